//! What leaves the queue in a second while there is always more of it: what link, peer and the peer's disk carry together.
//!
//! A link measures itself while its socket is full. One that takes all that it is given is never measured, however long the queue behind it is.

use core::time::Duration;

use crate::time::Mono;

/// Bytes per second that the peer confirms as durable, as far as the queue was never short.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrainRate {
    /// At the last look: when it was, what had left the queue since the node started, and what waited.
    looked: Option<(Mono, u64, u64)>,
    per_second: Option<u64>,
}

impl DrainRate {
    /// Between two looks that give a figure: no shorter, and no longer than while the link stood all the time.
    const LEAST: Duration = Duration::from_millis(500);
    const MOST: Duration = Duration::from_secs(2);

    pub fn per_second(self) -> Option<u64> {
        self.per_second
    }

    /// `left_bytes`: the sum since the node started; `queued_bytes`: what waits now.
    pub fn look(&mut self, now: Mono, left_bytes: u64, queued_bytes: u64) {
        let looked = self.looked.replace((now, left_bytes, queued_bytes));
        let Some((at, left_before, queued_before)) = looked else { return };
        let elapsed = now.since(at);
        let left = left_bytes.saturating_sub(left_before);
        // Less than that is what is on its way to the peer and back, and would be there on an idle link too.
        let is_long = elapsed >= DrainRate::LEAST && elapsed <= DrainRate::MOST;
        if !is_long || left == 0 || queued_bytes.min(queued_before) < left {
            return;
        }
        let measured = u128::from(left) * 1_000_000_000 / elapsed.as_nanos();
        let measured = u64::try_from(measured).unwrap_or(u64::MAX).max(1);
        self.per_second = Some(self.per_second.map_or(measured, |old| old / 4 * 3 + measured / 4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn only_a_queue_that_is_never_short_shows_what_leaves_it() {
        let mut drain = DrainRate::default();
        drain.look(Mono(SECOND), 0, 5_000_000);
        assert_eq!(drain.per_second(), None, "one look shows nothing");
        drain.look(Mono(2 * SECOND), 1_000_000, 100_000);
        assert_eq!(drain.per_second(), None, "all of it is on its way");
        drain.look(Mono(3 * SECOND), 2_000_000, 5_000_000);
        assert_eq!(drain.per_second(), None, "it was short at the beginning");
        drain.look(Mono(4 * SECOND), 3_000_000, 5_000_000);
        assert_eq!(drain.per_second(), Some(1_000_000));
        drain.look(Mono(5 * SECOND), 3_000_000, 5_000_000);
        assert_eq!(drain.per_second(), Some(1_000_000), "a peer that stands still has no rate");
        drain.look(Mono(3600 * SECOND), 4_000_000, 5_000_000);
        assert_eq!(drain.per_second(), Some(1_000_000), "nor has a link that was away");
    }
}
