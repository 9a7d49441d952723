//! Seeded mutations for the replay on a stable compiler: no coverage to guide them, but the same ones every time.

/// Values that sit at the edges of length fields.
const EDGES: [u64; 12] = [0, 1, 31, 32, 255, 256, 65_535, 65_536, 1 << 20, (1 << 20) + 1, u32::MAX as u64, u64::MAX];

/// A generator of variations (SplitMix64).
pub struct Mutator(u64);

impl Mutator {
    pub fn new(seed: u64) -> Mutator {
        Mutator(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    /// A variation of `seed`: one to four small changes; `other` lends a piece now and then.
    pub fn mutate(&mut self, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..1 + self.below(4) {
            self.change(&mut bytes, other);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        if bytes.is_empty() {
            bytes.push(self.number() as u8);
            return;
        }
        let at = self.below(bytes.len());
        match self.below(8) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = self.number() as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at, self.number() as u8),
            4 => self.put_number(bytes, at),
            5 => {
                let end = at + self.below(bytes.len() - at);
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            6 => {
                bytes.drain(at..(at + self.below(16)).min(bytes.len()));
            }
            _ => {
                let from = self.below(other.len().max(1)).min(other.len());
                bytes.splice(at.., other[from..].iter().copied());
            }
        }
    }

    /// A length or offset at its limit, in one of the widths that formats use.
    fn put_number(&mut self, bytes: &mut [u8], at: usize) {
        let value = EDGES[self.below(EDGES.len())];
        let width = [1, 2, 4, 8][self.below(4)];
        let value = if self.below(2) == 0 { value.to_le_bytes() } else { value.swap_bytes().to_le_bytes() };
        for (byte, new) in bytes[at..].iter_mut().zip(&value[..width]) {
            *byte = *new;
        }
    }
}
