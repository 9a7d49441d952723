//! Sizes as people read them.

use crate::{GIB, KIB, MIB, TIB};

/// The units of storage, the largest first.
pub const UNITS: [(&str, u64); 5] = [("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1)];

/// A size for eyes, rounded to three digits: `12.5 MiB`.
pub fn show_size(bytes: u64) -> String {
    let Some((name, factor)) = UNITS.iter().find(|(_, factor)| bytes >= *factor) else {
        return "0 B".to_owned();
    };
    if *factor == 1 {
        return format!("{bytes} B");
    }
    let value = bytes as f64 / *factor as f64;
    let decimals = if value >= 100.0 || bytes.is_multiple_of(*factor) { 0 } else { 1 };
    format!("{value:.decimals$} {name}")
}

/// The same where each byte counts: `12.5 MiB`, or `12.5 MiB (13107201 bytes)` if that is not all.
pub fn show_exact(bytes: u64) -> String {
    let shown = show_size(bytes);
    let unit = UNITS.iter().find(|(_, factor)| bytes >= *factor).map_or(1, |(_, factor)| *factor);
    // A digit behind the point is shown below a hundred.
    let is_all = bytes.is_multiple_of(unit) || (bytes / unit < 100 && (bytes % unit * 10).is_multiple_of(unit));
    if is_all { shown } else { format!("{shown} ({bytes} bytes)") }
}

/// The digits of a whole number with a space before each three: `8 200 000`.
pub fn spaced(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_spaced_from_the_end() {
        for (digits, text) in
            [("", ""), ("0", "0"), ("840", "840"), ("1052", "1 052"), ("65536", "65 536"), ("8200000", "8 200 000")]
        {
            assert_eq!(spaced(digits), text);
        }
    }

    #[test]
    fn nothing_is_rounded_away_where_it_counts() {
        for (bytes, text) in [
            (0, "0 B"),
            (1000, "1000 B"),
            (40 * KIB, "40 KiB"),
            (KIB + 1, "1.0 KiB (1025 bytes)"),
            (12 * MIB + MIB / 2, "12.5 MiB"),
            (12 * MIB + MIB / 2 + 1, "12.5 MiB (13107201 bytes)"),
            (150 * MIB, "150 MiB"),
            (TIB + GIB, "1.0 TiB (1100585369600 bytes)"),
        ] {
            assert_eq!(show_exact(bytes), text);
        }
    }

    #[test]
    fn sizes_for_eyes() {
        for (bytes, text) in [
            (0, "0 B"),
            (512, "512 B"),
            (MIB, "1 MiB"),
            (12 * MIB + MIB / 2, "12.5 MiB"),
            (150 * MIB + 1, "150 MiB"),
            (TIB, "1 TiB"),
        ] {
            assert_eq!(show_size(bytes), text);
        }
    }
}
