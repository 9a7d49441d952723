//! Draws that repeat with their seed.

pub(crate) struct StoreRandom(u64);

impl StoreRandom {
    pub fn new(seed: u64) -> StoreRandom {
        // Neighbouring seeds must not draw alike, and no state may be zero.
        StoreRandom(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// From 0 to `limit` - 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    pub fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}
