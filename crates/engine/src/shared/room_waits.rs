//! How long writers waited for room in the queue.

use core::time::Duration;

/// Writers that waited for room and need not any more, by how long each waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomWaits {
    /// Writers in each class of [`RoomWaits::BOUNDS`]; the last class has no upper bound.
    pub counts: [u64; RoomWaits::BOUNDS.len() + 1],
    /// Sum of all waits, nanoseconds.
    pub sum_ns: u64,
}

impl RoomWaits {
    /// Upper bounds of the classes: from what a client does not feel to the limit at which it gives up.
    pub const BOUNDS: [Duration; 10] = [
        Duration::from_millis(1),
        Duration::from_millis(3),
        Duration::from_millis(10),
        Duration::from_millis(30),
        Duration::from_millis(100),
        Duration::from_millis(300),
        Duration::from_secs(1),
        Duration::from_secs(3),
        Duration::from_secs(10),
        Duration::from_secs(60),
    ];

    pub(crate) fn note(&mut self, waited: Duration) {
        let class = RoomWaits::BOUNDS.partition_point(|bound| *bound < waited);
        self.counts[class] += 1;
        self.sum_ns = self.sum_ns.saturating_add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_counted_in_the_first_class_that_it_does_not_exceed() {
        let mut waits = RoomWaits::default();
        for waited in [0, 1_000_000, 1_000_001, 61_000_000_000] {
            waits.note(Duration::from_nanos(waited));
        }
        assert_eq!(waits.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(waits.sum(), Duration::from_nanos(61_002_000_001));
    }
}
