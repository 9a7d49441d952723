//! A 64-bit check of one sector. Not for secrets: for accidents.
//!
//! Every step is a bijection of the state for a given word, and of the word for a given state, so any change confined
//! to one aligned word is always seen; other changes pass with a chance of 2^-64.

const START: u64 = 0x243f_6a88_85a3_08d3;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The check of `bytes`, whose length must be a multiple of eight.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    debug_assert!(bytes.len().is_multiple_of(8));
    let mut state = START;
    for word in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().expect("a chunk of eight"));
        state = (state ^ word).wrapping_mul(FACTOR);
        state ^= state >> 29;
    }
    mix(state)
}

/// Spread every bit of `value` over the whole word (also the generator behind the filler of a sector).
pub(crate) fn mix(value: u64) -> u64 {
    let mut value = value.wrapping_add(FACTOR);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_bit_counts() {
        let mut bytes = [0_u8; 512];
        let before = hash(&bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(hash(&bytes), before, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(hash(&bytes), before);
    }

    #[test]
    fn words_do_not_commute() {
        let mut one = [0_u8; 16];
        one[0] = 1;
        let mut other = [0_u8; 16];
        other[8] = 1;
        assert_ne!(hash(&one), hash(&other));
    }
}
