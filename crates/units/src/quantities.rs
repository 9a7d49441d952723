//! Quantities as types, and text to quantities.
//!
//! Units are the trap of this trade: 10^6 against 2^20, bits against bytes. So a number never travels without its type,
//! a constructor always names its unit, and text whose unit could mean two things is asked back, not guessed.

use serde::{Deserialize, Serialize};

use crate::{GIB, KIB, MIB, TIB, split_number};

/// An amount of data, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A speed, in bytes per second; never negative, never infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(f64);

/// A span of time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(pub f64);

/// A share or a probability, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(pub f64);

impl Bytes {
    /// 10^3 bytes each.
    pub const fn from_kb(count: u64) -> Self {
        Self(count * 1000)
    }
    /// 10^6 bytes each.
    pub const fn from_mb(count: u64) -> Self {
        Self(count * 1_000_000)
    }
    /// 2^10 bytes each.
    pub const fn from_kib(count: u64) -> Self {
        Self(count * KIB)
    }
    /// 2^20 bytes each.
    pub const fn from_mib(count: u64) -> Self {
        Self(count * MIB)
    }
    /// Whole bytes, rounded up, from arithmetic.
    pub fn ceil(bytes: f64) -> Self {
        Self(bytes.max(0.0).ceil() as u64)
    }
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
    /// The time this much takes at a speed; infinite at no speed.
    pub fn at(self, rate: Rate) -> Seconds {
        Seconds(self.as_f64() / rate.bytes_per_s())
    }
}

impl Rate {
    pub fn from_bytes_per_s(bytes: f64) -> Self {
        assert!(bytes.is_finite() && bytes >= 0.0, "a rate is a number, zero or more");
        Self(bytes)
    }
    /// 10^6 bits per second each: what line rates are given in.
    pub fn from_mbit(count: f64) -> Self {
        Self::from_bytes_per_s(count * 1e6 / 8.0)
    }
    /// 2^20 bits per second each: the convention of the AVS paper's table B-1.
    pub fn from_mibit(count: f64) -> Self {
        Self::from_bytes_per_s(count * MIB as f64 / 8.0)
    }
    /// 10^6 bytes per second each.
    pub fn from_mb(count: f64) -> Self {
        Self::from_bytes_per_s(count * 1e6)
    }
    /// 2^20 bytes per second each: the convention of the HADR scanner and calculator.
    pub fn from_mib(count: f64) -> Self {
        Self::from_bytes_per_s(count * MIB as f64)
    }
    pub fn bytes_per_s(self) -> f64 {
        self.0
    }
    pub fn as_mbit(self) -> f64 {
        self.0 * 8.0 / 1e6
    }
    pub fn as_mibit(self) -> f64 {
        self.0 * 8.0 / MIB as f64
    }
    pub fn as_mb(self) -> f64 {
        self.0 / 1e6
    }
    pub fn as_mib(self) -> f64 {
        self.0 / MIB as f64
    }
    /// What flows in a time, in bytes.
    pub fn over(self, time: Seconds) -> f64 {
        self.0 * time.0
    }
    pub fn times(self, factor: f64) -> Self {
        Self::from_bytes_per_s(self.0 * factor)
    }
}

impl Seconds {
    pub fn from_ms(count: f64) -> Self {
        Self(count / 1e3)
    }
    pub fn as_ms(self) -> f64 {
        self.0 * 1e3
    }
    pub fn from_ns(count: u64) -> Self {
        Self(count as f64 / 1e9)
    }
    /// Nanoseconds, as the clocks of the queue model count; saturates after 584 years.
    pub fn as_ns(self) -> u64 {
        (self.0 * 1e9).round() as u64
    }
}

const SIZES: [(&str, f64); 9] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", KIB as f64),
    ("MiB", MIB as f64),
    ("GiB", GIB as f64),
    ("TiB", TIB as f64),
];
const BIT_RATES: [(&str, f64); 8] = [
    ("bit", 1.0),
    ("kbit", 1e3),
    ("Mbit", 1e6),
    ("Gbit", 1e9),
    ("Tbit", 1e12),
    ("Kibit", KIB as f64),
    ("Mibit", MIB as f64),
    ("Gibit", GIB as f64),
];
const TIMES: [(&str, f64); 8] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// A bit per second, in bytes: what is slower is no line and no disk, and divided by next to nothing a size is no time any more.
pub const BYTES_PER_S_MIN: f64 = 0.125;
/// What rounds to no nanosecond is no time either: divided by it, a size is no rate any more.
const SECONDS_MIN: f64 = 0.5e-9;

/// Number and unit of a text such as `8 MiB`; the number is finite and not negative.
fn split<'a>(text: &'a str, what: &str, example: &str) -> Result<(f64, &'a str), String> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err(format!("{text:?} is negative; {what} is zero or more"));
    }
    let (number, unit) = split_number(text, |c| c.is_ascii_digit() || c == '.');
    let number: f64 =
        number.parse().map_err(|_| format!("{text:?} is not {what}; write a number and a unit, such as {example}"))?;
    Ok((number, unit))
}

fn factor_of(table: &[(&str, f64)], unit: &str) -> Option<f64> {
    table.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor)
}

/// A size such as `8MiB`, `625kB` or a plain number of bytes.
///
/// # Errors
/// A sentence that says what the text could mean and how to write it.
pub fn parse_size(text: &str) -> Result<Bytes, String> {
    let (number, unit) = split(text, "a size", "\"8MiB\"")?;
    let factor = if unit.is_empty() { Some(1.0) } else { factor_of(&SIZES, unit) };
    let Some(factor) = factor else {
        return Err(size_question(text.trim(), number, unit));
    };
    let bytes = number * factor;
    if bytes >= 9_223_372_036_854_775_808.0 {
        return Err(format!("{:?} is larger than any size here can be (8 EiB)", text.trim()));
    }
    Ok(Bytes(bytes.round() as u64))
}

fn size_question(text: &str, number: f64, unit: &str) -> String {
    if unit.ends_with("/s") || unit.ends_with("ps") {
        return format!("{text:?} is a rate, and a size is wanted; write one such as \"8MiB\"");
    }
    if unit.ends_with("bit") {
        return format!("{text:?} is a number of bits, and sizes are bytes; write one such as \"8MiB\"");
    }
    let big = prefix_of(unit);
    match (big, unit.ends_with('b') && unit.len() == 2) {
        (Some(p), true) => format!(
            "{text:?} could be bits or bytes; for bytes write \"{number}{}B\" (10^{}) or \"{number}{}iB\" (2^{})",
            decimal_prefix(p),
            power(p) * 3,
            p,
            power(p) * 10
        ),
        (Some(p), false) => format!(
            "{text:?} could mean powers of 1000 or of 1024; write \"{number}{}B\" (10^{}) or \"{number}{}iB\" (2^{})",
            decimal_prefix(p),
            power(p) * 3,
            p,
            power(p) * 10
        ),
        (None, _) => format!(
            "{text:?} has the unknown unit {unit:?}; sizes are B, kB, MB, GB, TB (10^3) or KiB, MiB, GiB, TiB (2^10)"
        ),
    }
}

/// K, M, G or T if the unit begins so and is short enough to be a misspelt one.
fn prefix_of(unit: &str) -> Option<char> {
    let first = unit.chars().next()?.to_ascii_uppercase();
    ("KMGT".contains(first) && unit.len() <= 3).then_some(first)
}

fn decimal_prefix(prefix: char) -> char {
    if prefix == 'K' { 'k' } else { prefix }
}

fn power(prefix: char) -> usize {
    "KMGT".find(prefix).map_or(1, |at| at + 1)
}

/// A rate such as `100Mbit`, `100Mbit/s`, `12.5MB/s` or `10MiB/s`.
///
/// # Errors
/// A sentence that says what the text could mean and how to write it: `100Mb` may be bits or bytes.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    let (number, unit) = split(text, "a rate", "\"100Mbit\" or \"12.5MB/s\"")?;
    let text = text.trim();
    let (bare, per_second) = match unit.strip_suffix("/s") {
        Some(bare) => (bare.trim_end(), true),
        None => (unit, false),
    };
    let factor = match (factor_of(&BIT_RATES, bare), factor_of(&SIZES, bare)) {
        (Some(bits), _) => bits / 8.0,
        (None, Some(bytes)) if per_second => bytes,
        (None, Some(_)) => {
            return Err(format!(
                "{text:?} is a size, and a rate is wanted; did you mean \"{number}{bare}/s\" (bytes) or \"{number}{}bit/s\" (bits)?",
                bare.trim_end_matches('B')
            ));
        }
        (None, None) => return Err(rate_question(text, number, bare)),
    };
    let rate = number * factor;
    if !(BYTES_PER_S_MIN..1e15).contains(&rate) {
        return Err(format!("{text:?} is out of range; a rate is at least 1 bit/s and less than 8 Pbit/s"));
    }
    Ok(Rate(rate))
}

fn rate_question(text: &str, number: f64, unit: &str) -> String {
    if unit.is_empty() {
        return format!("{text:?} has no unit; write \"{number}Mbit/s\" or \"{number}MB/s\"");
    }
    if let Some((name, _)) = BIT_RATES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        return format!("{text:?} is misspelt; write \"{number}{name}/s\"");
    }
    match unit.chars().next().map(|first| first.to_ascii_uppercase()) {
        Some(p) if "KMGT".contains(p) && unit.len() <= 4 => format!(
            "{text:?} could be bits or bytes per second; write \"{number}{d}bit/s\" or \"{number}{d}B/s\", which is eight times as much",
            d = decimal_prefix(p)
        ),
        _ => format!(
            "{text:?} has the unknown unit {unit:?}; rates are kbit/s, Mbit/s, Gbit/s, or kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s"
        ),
    }
}

/// A time such as `50ms`, `1.5s`, `10m`, `2h 30m`, `24h`, `3d`.
///
/// # Errors
/// A sentence: what is wrong with the text and how to write it.
pub fn parse_time(text: &str) -> Result<Seconds, String> {
    let mut rest = text.trim();
    let mut total = 0.0;
    loop {
        let (number, after) = split(rest, "a time", "\"50ms\" or \"2h 30m\"")?;
        let end = after.find(|c: char| !(c.is_alphabetic() || c == 'µ')).unwrap_or(after.len());
        let unit = &after[..end];
        let factor = if unit == "m" { Some(60.0) } else { factor_of(&TIMES, unit) };
        let Some(factor) = factor else {
            let text = text.trim();
            return Err(match unit {
                "" if number == 0.0 => format!("{text:?} has no unit; write \"0s\""),
                "" => format!("{text:?} has no unit; write \"{number}ms\" or \"{number}s\""),
                _ => format!("{text:?} has the unknown unit {unit:?}; times are ns, us, ms, s, m (minutes), h, d"),
            });
        };
        total += number * factor;
        rest = after[end..].trim_start();
        if rest.is_empty() {
            break;
        }
    }
    if total > 1e9 {
        return Err(format!("{:?} is longer than any time here can be (31 years)", text.trim()));
    }
    if total > 0.0 && total < SECONDS_MIN {
        return Err(format!("{:?} is shorter than any time here can be (1 ns)", text.trim()));
    }
    Ok(Seconds(total))
}

/// A share such as `0.1%` or `0.001`.
///
/// # Errors
/// A sentence, when it is no number or above one.
pub fn parse_share(text: &str) -> Result<Share, String> {
    let (number, unit) = split(text, "a share", "\"0.1%\"")?;
    let share = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(format!("{:?} is not a share; write one such as \"0.1%\" or \"0.001\"", text.trim())),
    };
    if share > 1.0 {
        let hint = if unit == "%" { "use 100% at most".to_owned() } else { format!("for percent write \"{number}%\"") };
        return Err(format!("{:?} is more than the whole; {hint}", text.trim()));
    }
    Ok(Share(share))
}

/// At most three digits that mean something, and no zeros behind the point that say nothing.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// For eyes, powers of 1024: `12.5 MiB`.
pub fn show_bytes(bytes: Bytes) -> String {
    show_scaled(
        bytes.as_f64(),
        &[("TiB", TIB as f64), ("GiB", GIB as f64), ("MiB", MIB as f64), ("KiB", KIB as f64)],
        "B",
    )
}

/// For eyes, powers of 1000: `625 kB`.
pub fn show_bytes_decimal(bytes: f64) -> String {
    show_scaled(bytes, &[("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)], "B")
}

/// For eyes: `12.5 MB/s`.
pub fn show_rate(rate: Rate) -> String {
    format!("{}/s", show_bytes_decimal(rate.bytes_per_s()))
}

/// For eyes: `100 Mbit/s`.
pub fn show_bit_rate(rate: Rate) -> String {
    show_scaled(rate.bytes_per_s() * 8.0, &[("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)], "bit/s")
}

fn show_scaled(value: f64, units: &[(&str, f64)], base: &str) -> String {
    let (unit, factor) = units.iter().find(|(_, factor)| value >= *factor).copied().unwrap_or((base, 1.0));
    format!("{} {unit}", digits(value / factor))
}

/// For eyes: `51.2 ms`, `33.3 s`, `2 h 5 min`.
pub fn show_time(time: Seconds) -> String {
    let s = time.0;
    if !s.is_finite() {
        return "never".to_owned();
    }
    let whole = s.round() as u64;
    match s {
        0.0 => "0 s".to_owned(),
        s if s < 1e-3 => format!("{} µs", digits(s * 1e6)),
        s if s < 1.0 => format!("{} ms", digits(s * 1e3)),
        s if s < 120.0 => format!("{} s", digits(s)),
        s if s < 7200.0 => pair(whole / 60, "min", whole % 60, "s"),
        s if s < 172_800.0 => pair(whole / 3600, "h", whole % 3600 / 60, "min"),
        _ => pair(whole / 86400, "d", whole % 86400 / 3600, "h"),
    }
}

fn pair(big: u64, big_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 { format!("{big} {big_unit}") } else { format!("{big} {big_unit} {small} {small_unit}") }
}

/// For eyes: `31 %`, `0.1 %`.
pub fn show_share(share: f64) -> String {
    format!("{} %", digits(share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_worlds_of_units_never_meet() {
        assert_eq!(parse_size("8MiB"), Ok(Bytes(8_388_608)));
        assert_eq!(parse_size("8 MB"), Ok(Bytes(8_000_000)));
        assert_eq!(parse_size("1.5 GiB"), Ok(Bytes(1_610_612_736)));
        assert_eq!(parse_size("512"), Ok(Bytes(512)));
        assert_eq!(parse_rate("100Mbit"), Ok(Rate::from_mbit(100.0)));
        assert_eq!(parse_rate("100 Mibit/s"), Ok(Rate::from_mibit(100.0)));
        assert_eq!(parse_rate("12.5MB/s"), parse_rate("100Mbit/s"));
        assert_eq!(parse_rate("1MiB/s").unwrap().bytes_per_s(), 1_048_576.0);
        // The HADR simulator's MB fed to its calculator errs by this much.
        assert!((Rate::from_mib(1.0).as_mb() - 1.048_576).abs() < 1e-12);
    }

    #[test]
    fn what_could_mean_two_things_is_asked_back() {
        for (text, hint) in [
            ("8Mb", "bits or bytes"),
            ("8M", "\"8MB\" (10^6) or \"8MiB\" (2^20)"),
            ("8KB", "\"8kB\" (10^3) or \"8KiB\" (2^10)"),
            ("8mib", "1000 or of 1024"),
            ("8Mbit", "sizes are bytes"),
            ("8MB/s", "is a rate"),
            ("8 parsecs", "unknown unit"),
            ("-8MiB", "negative"),
            ("MiB", "not a size"),
            ("", "not a size"),
            ("1e400", "unknown unit"),
            ("9999999TiB", "larger than any"),
        ] {
            let error = parse_size(text).expect_err(text);
            assert!(error.contains(hint), "{text}: {error}");
        }
        for (text, hint) in [
            ("100Mb", "\"100Mbit/s\" or \"100MB/s\""),
            ("100MB", "\"100MB/s\" (bytes) or \"100Mbit/s\" (bits)"),
            ("100Mbps", "bits or bytes per second"),
            ("100mbit", "write \"100Mbit/s\""),
            ("100M", "bits or bytes per second"),
            ("100", "has no unit"),
            ("0Mbit", "out of range"),
            ("0.1bit", "at least 1 bit/s"),
            ("-1Mbit", "negative"),
            ("fast", "not a rate"),
        ] {
            let error = parse_rate(text).expect_err(text);
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn times_and_shares_read_as_written() {
        for (text, seconds) in [
            ("50ms", 0.05),
            ("1.5s", 1.5),
            ("10m", 600.0),
            ("2h 30m", 9000.0),
            ("24h", 86400.0),
            ("100us", 1e-4),
            ("0s", 0.0),
        ] {
            assert!((parse_time(text).unwrap().0 - seconds).abs() < 1e-12, "{text}");
        }
        assert_eq!((parse_time("1ns"), parse_rate("1bit")), (Ok(Seconds(1e-9)), Ok(Rate(BYTES_PER_S_MIN))));
        let next_to_nothing = format!("0.{}1s", "0".repeat(300));
        for (text, hint) in [
            ("50", "\"50ms\" or \"50s\""),
            ("-1s", "negative"),
            (&*next_to_nothing, "shorter than any"),
            ("0s 0.1ns", "shorter than any"),
            ("soon", "not a time"),
            ("5 fortnights", "unknown unit"),
        ] {
            assert!(parse_time(text).expect_err(text).contains(hint), "{text}");
        }
        assert_eq!(parse_share("0.1%"), Ok(Share(0.001)));
        assert_eq!(parse_share("0.5"), Ok(Share(0.5)));
        assert!(parse_share("5").expect_err("5").contains("\"5%\""));
        assert!(parse_share("5 permille").is_err());
    }

    #[test]
    fn quantities_for_eyes() {
        assert_eq!(show_bytes(Bytes(8_388_608)), "8 MiB");
        assert_eq!(show_bytes_decimal(625_000.0), "625 kB");
        assert_eq!(show_rate(Rate::from_mbit(100.0)), "12.5 MB/s");
        assert_eq!(show_bit_rate(Rate::from_mbit(100.0)), "100 Mbit/s");
        for (seconds, text) in [
            (0.0, "0 s"),
            (5e-5, "50 µs"),
            (0.0512, "51.2 ms"),
            (33.333, "33.3 s"),
            (190.0, "3 min 10 s"),
            (7500.0, "2 h 5 min"),
            (273_600.0, "3 d 4 h"),
            (f64::INFINITY, "never"),
        ] {
            assert_eq!(show_time(Seconds(seconds)), text);
        }
        assert_eq!(show_share(0.001), "0.1 %");
    }
}
