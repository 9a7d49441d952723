//! Small arithmetic over measured times.

use std::time::Duration;

pub fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Times in order, asked for shares.
pub struct Sorted(Vec<Duration>);

impl Sorted {
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The time that `share` (0 to 1) of all stay within; zero when there are none.
    pub fn share(&self, share: f64) -> Duration {
        let last = self.0.len().saturating_sub(1);
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.saturating_sub(1).min(last)).copied().unwrap_or_default()
    }

    pub fn median(&self) -> Duration {
        self.share(0.5)
    }

    pub fn longest(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_sorted_times() {
        let sorted = Sorted::new((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!(sorted.median(), Duration::from_millis(50));
        assert_eq!(sorted.share(0.99), Duration::from_millis(99));
        assert_eq!(sorted.share(0.999), sorted.longest());
        assert_eq!(sorted.longest(), Duration::from_millis(100));
        assert_eq!(Sorted::new(Vec::new()).median(), Duration::ZERO);
        assert_eq!(millis(Duration::from_micros(1_234)), 1.234);
    }
}
