//! Sizes as people read them.

use engine::limits::{GIB, KIB, MIB};

pub const TIB: u64 = 1 << 40;

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

#[cfg(test)]
mod tests {
    use super::*;

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
