//! A line as `tc` spells it, as numbers: `50ms`, `100mbit`, `0.1%`, `64KiB`. Upper and lower case are the same.

use crate::split_number;

type Result<T> = std::result::Result<T, String>;

const DELAY_NS_MAX: u64 = 10_000_000_000;
const RATE_BITS_MIN: u64 = 8_000;
const RATE_BITS_MAX: u64 = 100_000_000_000;
const QUEUE_BYTES_MAX: u64 = 1 << 30;

/// A length of time in nanoseconds, with its unit: `50ms`, `250us`, `1.5s`, or plain `0`.
pub fn duration_ns(text: &str) -> Result<u64> {
    let (number, unit) = split(text)?;
    let unit_ns = match unit.as_str() {
        "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "" if number == 0.0 => 0.0,
        _ => return Err(format!("`{text}` is not a time: write a number and s, ms or us, such as 50ms")),
    };
    let ns = (number * unit_ns).round() as u64;
    if ns > DELAY_NS_MAX {
        return Err(format!("`{text}` is too long: the most is 10s"));
    }
    Ok(ns)
}

/// Bits per second: `100mbit`, `1gbit`, `512kbit`.
pub fn rate_bits_per_second(text: &str) -> Result<u64> {
    let (number, unit) = split(text)?;
    let unit_bits = match unit.as_str() {
        "gbit" => 1e9,
        "mbit" => 1e6,
        "kbit" => 1e3,
        _ => return Err(format!("`{text}` is not a rate: write a number and kbit, mbit or gbit, such as 100mbit")),
    };
    let bits = (number * unit_bits).round() as u64;
    if !(RATE_BITS_MIN..=RATE_BITS_MAX).contains(&bits) {
        return Err(format!("`{text}` is out of range: a rate lies between 8kbit and 100gbit"));
    }
    Ok(bits)
}

/// A share from 0 to 1, written in percent: `0.1` or `0.1%`.
pub fn share(text: &str) -> Result<f64> {
    let (number, unit) = split(text)?;
    if !(matches!(unit.as_str(), "" | "%") && number <= 100.0) {
        return Err(format!("`{text}` is not a percentage: write a number from 0 to 100, such as 0.1%"));
    }
    Ok(number / 100.0)
}

/// Bytes: `65536`, `64KiB`, `1MiB`.
pub fn bytes(text: &str) -> Result<u64> {
    let (number, unit) = split(text)?;
    let unit_bytes = match unit.as_str() {
        "" | "b" => 1.0,
        "kib" => 1024.0,
        "mib" => 1_048_576.0,
        _ => return Err(format!("`{text}` is not a size: write bytes, or a number and KiB or MiB, such as 64KiB")),
    };
    let bytes = (number * unit_bytes).round() as u64;
    if !(1..=QUEUE_BYTES_MAX).contains(&bytes) {
        return Err(format!("`{text}` is out of range: a size lies between 1 byte and 1024MiB"));
    }
    Ok(bytes)
}

fn split(text: &str) -> Result<(f64, String)> {
    let (number, unit) = split_number(text, |c| c.is_ascii_digit() || c == '.');
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok((number, unit.to_ascii_lowercase())),
        _ => Err(format!("`{text}` does not start with a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_type() {
        assert_eq!(duration_ns("50ms").ok(), Some(50_000_000));
        assert_eq!(duration_ns("0.25ms").ok(), Some(250_000));
        assert_eq!(duration_ns("0").ok(), Some(0));
        assert_eq!(rate_bits_per_second("100mbit").ok(), Some(100_000_000));
        assert_eq!(rate_bits_per_second("1.5Gbit").ok(), Some(1_500_000_000));
        assert_eq!(share("0.1").ok(), Some(0.001));
        assert_eq!(share("100%").ok(), Some(1.0));
        assert_eq!(bytes("1400").ok(), Some(1400));
        assert_eq!(bytes("64KiB").ok(), Some(65_536));
    }

    #[test]
    fn what_is_refused() {
        for text in ["", "ms", "50", "-1ms", "1h", "11s", "1e3ms", "1..2s"] {
            assert!(duration_ns(text).is_err(), "{text}");
        }
        for text in ["0mbit", "1kbit", "200gbit", "100", "100mb"] {
            assert!(rate_bits_per_second(text).is_err(), "{text}");
        }
        assert!(share("101").is_err() && share("nan").is_err() && share("1ms").is_err());
        assert!(bytes("0").is_err() && bytes("2048MiB").is_err() && bytes("1kb").is_err());
    }
}
