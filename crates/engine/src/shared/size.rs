//! Sizes in sentences for people.

use core::fmt;

/// Bytes, in the largest binary unit that is not larger, with a digit behind the point unless the size is whole in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShownSize(pub u64);

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl fmt::Display for ShownSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = (self.0.max(1).ilog2() / 10) as usize;
        let scale = 1u64 << (10 * unit);
        let (whole, rest) = (self.0 / scale, self.0 % scale);
        match rest {
            0 => write!(f, "{whole} {}", UNITS[unit]),
            // Cut off, not rounded: nothing is shown as more than it is.
            _ => write!(f, "{whole}.{} {}", u128::from(rest) * 10 / u128::from(scale), UNITS[unit]),
        }
    }
}

/// The same with the exact number, where two of them are compared.
pub(crate) struct ExactSize(pub u64);

impl fmt::Display for ExactSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", ShownSize(self.0), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn sizes_read_as_people_write_them() {
        let shown = |bytes: u64| ShownSize(bytes).to_string();
        assert_eq!([0, 512, 1023, 1024, 4096].map(shown), ["0 B", "512 B", "1023 B", "1 KiB", "4 KiB"]);
        assert_eq!([1536, 6 << 20, (1 << 40) + 512].map(shown), ["1.5 KiB", "6 MiB", "1.0 TiB"]);
        assert_eq!(shown(u64::MAX), "15.9 EiB");
        assert_eq!(ExactSize(1536).to_string(), "1.5 KiB (1536 bytes)");
    }
}
