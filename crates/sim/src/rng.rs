//! The only source of chance: xorshift64* (Vigna 2016). One seed, one run.

pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        // A seed of zero would stay zero.
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
        (0..4).for_each(|_| {
            rng.draw();
        });
        rng
    }

    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.draw() >> 11) % bound.max(1)
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `percent` times in a hundred, on average.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}
