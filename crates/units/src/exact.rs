//! Sizes and durations as people write them, and as people read them.
//!
//! Units of storage are a trap (10^6 against 2^20), so only binary units are accepted, spelled in full.

use std::time::Duration;

use crate::size::UNITS;
pub use crate::size::show_size;
use crate::{Bound, split_number};

/// Bytes from `64MiB`, `64 MiB`, `512B` or a plain number of bytes.
///
/// # Errors
/// A sentence: what is wrong with the text and how to write it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, unit) = split_number(text, |c| c.is_ascii_digit());
    if digits.is_empty() {
        return Err(format!("{text:?} is not a size; write a whole number and a unit, such as \"64MiB\""));
    }
    if unit.starts_with('.') || unit.starts_with(',') {
        return Err(format!("{text:?} is not a whole number; use a smaller unit, such as \"1536MiB\" for 1.5 GiB"));
    }
    let factor = if unit.is_empty() { 1 } else { unit_factor(text, digits, unit)? };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| format!("{text:?} is larger than any size can be (16 EiB)"))
}

fn unit_factor(text: &str, digits: &str, unit: &str) -> Result<u64, String> {
    if let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) {
        return Ok(*factor);
    }
    let first = unit.chars().next().map(|c| c.to_ascii_uppercase());
    let meant = UNITS.iter().find(|(name, _)| name.chars().next() == first).map(|(name, _)| *name);
    Err(match meant {
        Some(name) if unit.len() <= 3 => format!(
            "{text:?} could mean powers of 1000 or of 1024; write \"{digits}{name}\" (units are B, KiB, MiB, GiB, TiB)"
        ),
        _ => format!("{text:?} has the unknown unit {unit:?}; units are B, KiB, MiB, GiB, TiB"),
    })
}

/// The exact text of a size, in the largest unit that divides it: `64MiB`. [`parse_size`] reads it back.
pub fn size_text(bytes: u64) -> String {
    let (name, factor) = UNITS
        .iter()
        .find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor))
        .unwrap_or(&UNITS[UNITS.len() - 1]);
    if *factor == 1 { format!("{bytes}") } else { format!("{}{name}", bytes / factor) }
}

const RATES: [(&str, u64); 3] = [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1000)];

/// Bits per second from `93Mbit/s`: lines are sold in powers of 1000.
///
/// # Errors
/// A sentence: what is wrong with the text and how to write it.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, unit) = split_number(text, |c| c.is_ascii_digit());
    if unit.is_empty() {
        return Err(format!("{text:?} has no unit; write a rate such as \"93Mbit/s\" (kbit/s, Mbit/s, Gbit/s)"));
    }
    let factor = RATES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let rate = digits.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    rate.ok_or_else(|| {
        format!("{text:?} is not a rate; write a whole number with kbit/s, Mbit/s or Gbit/s, such as \"93Mbit/s\"")
    })
}

/// The exact text of a rate of whole kilobits; [`parse_rate`] reads it back.
pub fn rate_text(bits: u64) -> String {
    let fits = |(_, factor): &&(&str, u64)| bits >= *factor && bits.is_multiple_of(*factor);
    let (name, factor) = RATES.iter().find(fits).unwrap_or(&RATES[RATES.len() - 1]);
    format!("{}{name}", bits / factor)
}

/// A rate for eyes, from bytes per second: `93.4 Mbit/s`.
pub fn show_rate(bytes_per_s: f64) -> String {
    let bits = bytes_per_s * 8.0;
    let (name, factor) = RATES.iter().find(|(_, factor)| bits >= *factor as f64).unwrap_or(&RATES[RATES.len() - 1]);
    let value = bits / *factor as f64;
    let decimals = if value >= 100.0 { 0 } else { 1 };
    format!("{value:.decimals$} {}", name)
}

/// A duration from `10s`, `500ms`, `2h 30m`.
///
/// # Errors
/// A sentence: what is wrong with the text and how to write it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.parse::<f64>().is_ok() {
        return Err(format!("{text:?} has no unit; write a duration such as \"{text}s\" or \"2h 30m\""));
    }
    let signed: jiff::SignedDuration = text
        .parse()
        .map_err(|_| format!("{text:?} is not a duration; write one such as \"10s\", \"500ms\" or \"2h 30m\""))?;
    Duration::try_from(signed).map_err(|_| format!("{text:?} is negative; a duration is zero or more"))
}

/// The exact text of a duration: `2h 30m`. [`parse_duration`] reads it back.
pub fn duration_text(duration: Duration) -> String {
    match jiff::SignedDuration::try_from(duration) {
        Ok(signed) => format!("{signed:#}"),
        Err(_) => "forever".to_owned(),
    }
}

/// Seconds for eyes, two units at most: `0.4 s`, `42 s`, `3 min 10 s`, `2 h 5 min`, `3 d 4 h`.
pub fn show_seconds(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "unknown".to_owned();
    }
    if seconds < 10.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    let (minutes, hours, days) = (whole / 60, whole / 3600, whole / 86400);
    let pair = |big: u64, big_unit: &str, small: u64, small_unit: &str| {
        if small == 0 { format!("{big} {big_unit}") } else { format!("{big} {big_unit} {small} {small_unit}") }
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{whole} s"),
        (0, 0, _) => pair(minutes, "min", whole % 60, "s"),
        (0, _, _) => pair(hours, "h", minutes % 60, "min"),
        _ => pair(days, "d", hours % 24, "h"),
    }
}

/// [`parse_size`] inside a bound.
///
/// # Errors
/// A sentence with the bound.
pub fn bounded_size(text: &str, bound: Bound<u64>) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < bound.min {
        return Err(format!("{} is too small; the least is {}", show_size(bytes), size_text(bound.min)));
    }
    if bytes > bound.max {
        return Err(format!("{} is too large; the most is {}", show_size(bytes), size_text(bound.max)));
    }
    Ok(bytes)
}

/// [`parse_duration`] inside a bound.
///
/// # Errors
/// A sentence with the bound.
pub fn bounded_duration(text: &str, bound: Bound<Duration>) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration < bound.min {
        return Err(format!("{text:?} is too short; the least is \"{}\"", duration_text(bound.min)));
    }
    if duration > bound.max {
        return Err(format!("{text:?} is too long; the most is \"{}\"", duration_text(bound.max)));
    }
    Ok(duration)
}

/// A wall-clock time, as JSON has it: UTC, milliseconds. Times past the year 9999 are cut there.
pub fn time_text(unix_nanos: u64) -> String {
    let timestamp = jiff::Timestamp::from_nanosecond(i128::from(unix_nanos)).unwrap_or(jiff::Timestamp::MAX);
    format!("{timestamp:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GIB, KIB, MIB, TIB};

    #[test]
    fn sizes_read_as_written() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("64MiB", 64 * MIB),
            (" 64 MiB ", 64 * MIB),
            ("1TiB", TIB),
            ("16777215TiB", 16_777_215 * TIB),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn ambiguous_sizes_are_refused_with_the_right_spelling() {
        for (text, hint) in [
            ("64M", "write \"64MiB\""),
            ("64MB", "write \"64MiB\""),
            ("64mib", "write \"64MiB\""),
            ("2k", "write \"2KiB\""),
            ("10G", "write \"10GiB\""),
            ("1.5GiB", "1536MiB"),
            ("MiB", "not a size"),
            ("", "not a size"),
            ("-1", "not a size"),
            ("64 parsecs", "unknown unit \"parsecs\""),
            ("16777216TiB", "larger than any size"),
            ("99999999999999999999", "larger than any size"),
        ] {
            let error = parse_size(text).expect_err(text);
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn size_text_reads_back() {
        for bytes in [0, 1, 511, 512, KIB, 65_537, 64 * MIB, 3 * GIB, 5 * TIB, u64::MAX] {
            assert_eq!(parse_size(&size_text(bytes)), Ok(bytes));
        }
        assert_eq!(size_text(1536 * MIB), "1536MiB");
    }

    #[test]
    fn rates_read_back_and_show_their_unit() {
        for (text, bits) in [("128kbit/s", 128_000), ("93 Mbit/s", 93_000_000), ("10Gbit/s", 10_000_000_000)] {
            assert_eq!(parse_rate(text), Ok(bits), "{text}");
            assert_eq!(parse_rate(&rate_text(bits)), Ok(bits));
        }
        for (text, hint) in [
            ("100", "no unit"),
            ("100M", "not a rate"),
            ("100MB/s", "not a rate"),
            ("1.5Mbit/s", "not a rate"),
            ("Mbit/s", "not a rate"),
            ("99999999999999999Gbit/s", "not a rate"),
        ] {
            let error = parse_rate(text).expect_err(text);
            assert!(error.contains(hint), "{text}: {error}");
        }
        for (bytes_per_s, text) in
            [(0.0, "0.0 kbit/s"), (1.25e6, "10.0 Mbit/s"), (12.5e6, "100 Mbit/s"), (1.1675e9, "9.3 Gbit/s")]
        {
            assert_eq!(show_rate(bytes_per_s), text);
        }
    }

    #[test]
    fn durations_read_as_written() {
        for (text, millis) in [("10s", 10_000), ("500ms", 500), ("2h 30m", 9_000_000), ("0s", 0), ("PT10S", 10_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
            let again = duration_text(Duration::from_millis(millis));
            assert_eq!(parse_duration(&again), Ok(Duration::from_millis(millis)), "{again}");
        }
        for (text, hint) in [("10", "\"10s\""), ("-3s", "negative"), ("soon", "not a duration"), ("", "not a duration")]
        {
            let error = parse_duration(text).expect_err(text);
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn seconds_for_eyes() {
        for (seconds, text) in [
            (0.0, "0.0 s"),
            (0.42, "0.4 s"),
            (42.2, "42 s"),
            (190.0, "3 min 10 s"),
            (120.0, "2 min"),
            (7500.0, "2 h 5 min"),
            (273_600.0, "3 d 4 h"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(show_seconds(seconds), text);
        }
    }
    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(time_text(1_795_348_800_123_456_789), "2026-11-22T12:00:00.123Z");
        assert!(time_text(u64::MAX).ends_with('Z'));
    }
}
