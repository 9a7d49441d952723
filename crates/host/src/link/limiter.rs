//! No more bytes a second than somebody allows. A token bucket: it fills at the rate, up to a twentieth of a second's worth;
//! whoever finds anything in it takes what it needs and may leave a debt, and the next one waits until that is paid.

use std::time::{Duration, Instant};

/// What may go at once after a pause, as a share of a second.
const BURSTS_PER_SECOND: u64 = 20;
const NANOS: i128 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct RateLimiter {
    bytes_per_second: u64,
    /// In billionths of a byte; below 0 a debt.
    tokens: i128,
    filled: Instant,
}

impl RateLimiter {
    pub fn new(bytes_per_second: u64, now: Instant) -> RateLimiter {
        assert!(bytes_per_second > 0, "a rate of nothing would hold everything for ever");
        RateLimiter { bytes_per_second, tokens: 1, filled: now }
    }

    pub fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second
    }

    /// How long the next bytes wait; `None`: they may go.
    pub fn pause(&mut self, now: Instant) -> Option<Duration> {
        let rate = i128::from(self.bytes_per_second);
        let elapsed = now.saturating_duration_since(self.filled).as_nanos().min(u128::from(u64::MAX)) as i128;
        self.tokens = (self.tokens + elapsed * rate).min(rate * NANOS / i128::from(BURSTS_PER_SECOND));
        self.filled = self.filled.max(now);
        let missing = 1 - self.tokens;
        (missing > 0).then(|| Duration::from_nanos((missing / rate + 1).min(i128::from(u64::MAX)) as u64))
    }

    /// These go now.
    pub fn pay(&mut self, bytes: u64) {
        self.tokens -= i128::from(bytes) * NANOS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What passes in so many milliseconds, in frames of so many bytes, taken as soon as they may go.
    fn passes(bytes_per_second: u64, frame_bytes: u64, ms: u64) -> u64 {
        let start = Instant::now();
        let (mut limiter, mut now, mut sum) = (RateLimiter::new(bytes_per_second, start), start, 0);
        while now < start + Duration::from_millis(ms) {
            match limiter.pause(now) {
                Some(pause) => now += pause,
                None => {
                    limiter.pay(frame_bytes);
                    sum += frame_bytes;
                }
            }
        }
        sum
    }

    #[test]
    fn the_rate_is_kept_whatever_the_frames() {
        for rate in [8_000, 1_000_000, 1_250_000_000] {
            for frame_bytes in [100, 4096, 1 << 20] {
                let (passed, allowed) = (passes(rate, frame_bytes, 10_000), rate * 10);
                assert!(passed <= allowed + frame_bytes, "{passed} of {allowed} at {rate} in {frame_bytes}");
                assert!(passed + frame_bytes >= allowed, "{passed} of {allowed} at {rate} in {frame_bytes}");
            }
        }
    }

    #[test]
    fn a_pause_saves_up_a_twentieth_of_a_second_and_no_more() {
        let start = Instant::now();
        let mut limiter = RateLimiter::new(1_000_000, start);
        let later = start + Duration::from_secs(3600);
        let mut sum = 0;
        while limiter.pause(later).is_none() {
            limiter.pay(1000);
            sum += 1000;
        }
        assert!((50_000..=51_000).contains(&sum), "{sum}");
    }
}
