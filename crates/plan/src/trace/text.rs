//! Fields and numbers out of bytes, without allocation: text traces are read at disk speed.

use super::RecordFault;

/// Fields between runs of blanks and tabs.
#[derive(Clone)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn new(line: &'a [u8]) -> Self {
        Self(line)
    }
    pub fn wanted(&mut self) -> Result<&'a [u8], RecordFault> {
        self.next().ok_or(RecordFault::TooFewFields)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let is_blank = |byte: u8| byte == b' ' || byte == b'\t';
        let start = self.0.iter().position(|&byte| !is_blank(byte))?;
        let rest = &self.0[start..];
        let end = rest.iter().position(|&byte| is_blank(byte)).unwrap_or(rest.len());
        self.0 = &rest[end..];
        Some(&rest[..end])
    }
}

/// A whole number in decimal.
pub fn whole(field: &[u8]) -> Result<u64, RecordFault> {
    if field.is_empty() || field.len() > 20 {
        return Err(RecordFault::NotANumber);
    }
    let mut value: u64 = 0;
    for &byte in field {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(RecordFault::NotANumber);
        }
        value =
            value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit))).ok_or(RecordFault::OffsetTooLarge)?;
    }
    Ok(value)
}

/// An offset or length in a unit of so many bytes.
pub fn bytes(field: &[u8], unit: u64) -> Result<u64, RecordFault> {
    match field.strip_prefix(b"-") {
        Some(rest) if whole(rest).is_ok() => Err(RecordFault::NegativeOffset),
        _ => whole(field)?.checked_mul(unit).ok_or(RecordFault::OffsetTooLarge),
    }
}

/// A time with or without a fraction, in a unit of so many nanoseconds; digits below one nanosecond are cut off.
pub fn time(field: &[u8], unit_ns: u64) -> Result<u64, RecordFault> {
    if field.first() == Some(&b'-') {
        return Err(RecordFault::NegativeTime);
    }
    let (before, after) = match memchr::memchr(b'.', field) {
        Some(dot) => (&field[..dot], &field[dot + 1..]),
        None => (field, &[][..]),
    };
    let units = whole(before)
        .map_err(|fault| if fault == RecordFault::OffsetTooLarge { RecordFault::TimeTooLarge } else { fault })?;
    let mut fraction_ns = 0;
    let mut digit_ns = unit_ns;
    for &byte in after {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(RecordFault::NotANumber);
        }
        digit_ns /= 10;
        fraction_ns += u64::from(digit) * digit_ns;
    }
    units.checked_mul(unit_ns).and_then(|ns| ns.checked_add(fraction_ns)).ok_or(RecordFault::TimeTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_numbers() {
        let fields: Vec<&[u8]> = Fields::new(b"  a\tbc   d ").collect();
        assert_eq!(fields, [&b"a"[..], b"bc", b"d"]);
        assert_eq!(whole(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(whole(b"18446744073709551616"), Err(RecordFault::OffsetTooLarge));
        assert_eq!(whole(b"1x"), Err(RecordFault::NotANumber));
        assert_eq!(whole(b""), Err(RecordFault::NotANumber));
        assert_eq!(bytes(b"-8", 512), Err(RecordFault::NegativeOffset));
        assert_eq!(bytes(b"8", 512), Ok(4096));
    }

    #[test]
    fn times_are_exact() {
        assert_eq!(time(b"0.000000001", 1_000_000_000), Ok(1));
        assert_eq!(time(b"1455592930.123456", 1_000_000_000), Ok(1_455_592_930_123_456_000));
        assert_eq!(time(b"12.5", 1_000), Ok(12_500));
        assert_eq!(time(b"128166372003061629", 100), Ok(12_816_637_200_306_162_900));
        assert_eq!(time(b"-1.5", 1_000), Err(RecordFault::NegativeTime));
        assert_eq!(time(b"99999999999999999999", 1), Err(RecordFault::TimeTooLarge));
        assert_eq!(time(b"999999999999", 1_000_000_000), Err(RecordFault::TimeTooLarge));
        assert_eq!(time(b"1.x", 1_000), Err(RecordFault::NotANumber));
    }
}
