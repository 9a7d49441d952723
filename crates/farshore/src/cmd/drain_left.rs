//! What is left of what a drain waits for, while writers go on.

use crate::api::GroupView;

/// The lag at the first look, and how many numbers of the write order were missing then: later writes do not count.
#[derive(Debug, Default)]
pub struct LeftToDrain {
    first: Option<FirstLook>,
}

#[derive(Clone, Copy, Debug)]
struct FirstLook {
    lag_bytes: u64,
    numbers: u64,
}

impl LeftToDrain {
    /// Bytes until the copy holds all up to `target`. A sync that runs says itself what it has left.
    pub fn bytes(&mut self, group: &GroupView, target: u64) -> u64 {
        if let Some(sync) = &group.sync {
            self.first = None;
            return sync.total_bytes.saturating_sub(sync.done_bytes);
        }
        let Some(peer) = group.peers.first() else { return 0 };
        let recovered = peer.recovery_point.as_ref().map(|point| point.sequence);
        self.of_order(peer.lag_bytes.unwrap_or(0), recovered, target)
    }

    /// As far as writes are of one size: the lag of the first look, by the share of its numbers that the copy still lacks.
    fn of_order(&mut self, lag_bytes: u64, recovered: Option<u64>, target: u64) -> u64 {
        let Some(recovered) = recovered else { return lag_bytes };
        let numbers = target.saturating_sub(recovered);
        let first = *self.first.get_or_insert(FirstLook { lag_bytes, numbers });
        let left = u128::from(first.lag_bytes) * u128::from(numbers) / u128::from(first.numbers.max(1));
        u64::try_from(left).unwrap_or(u64::MAX).min(first.lag_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lag grows, as writers go on: what was written until the first look gets less all the same.
    #[test]
    fn what_is_written_later_does_not_count() {
        let mut left = LeftToDrain::default();
        assert_eq!(left.of_order(1000, Some(100), 200), 1000);
        assert_eq!(left.of_order(5000, Some(150), 200), 500);
        assert_eq!(left.of_order(9000, Some(260), 200), 0);
    }

    #[test]
    fn without_a_position_of_the_copy_the_lag_is_all_that_is_known() {
        let mut left = LeftToDrain::default();
        assert_eq!(left.of_order(700, None, 200), 700);
        assert_eq!(left.of_order(0, Some(200), 200), 0);
    }
}
