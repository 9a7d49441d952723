//! Writers are slowed down bit by bit before the queue is full (`queue.pace`), and not from one moment to the next when it is.
//!
//! ```text
//! fill of the queue:     below from     a tenth of the way    half of the way    at to    beyond
//! writers are admitted:  at once        at 10 times the rate  at twice the rate  at it    slower than the link
//! ```
//! So writers who offer n times what the link carries are slowed down by no more than half from one tenth of the way to the next, and the
//! fill comes to rest at the second mark.

use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::primary::Primary;
use crate::settings::QueuePace;
use crate::shared::coverage::CoveragePoint;
use crate::state::{State, WhenFull};
use crate::time::Mono;

/// When the next writer is admitted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WritePace {
    next: Mono,
}

impl WritePace {
    fn wait(self, now: Mono) -> Option<Duration> {
        (self.next > now).then(|| self.next.since(now))
    }

    /// A write of so many bytes is admitted, at so many bytes per second; it holds the next one up for `most` at most.
    fn admitted(&mut self, now: Mono, bytes: u64, per_second: u64, most: Duration) {
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(per_second.max(1));
        let takes = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        self.next = now.plus(takes.min(most));
    }
}

/// Bytes per second at which writers are admitted now; `None`: they are not slowed down. `link_rate`: what the link measured.
pub(crate) fn paced_to(primary: &Primary, common: &GroupCommon, link_rate: Option<u64>) -> Option<u64> {
    let settings = &common.settings;
    let pace = settings.pace.filter(|_| settings.mode.follows_behind() && settings.when_full() == WhenFull::Block)?;
    let streams = matches!(primary.peer.state(common), State::Replicating | State::CatchingUp);
    let fill = primary.peer.outbox.filled_permille(common).filter(|_| streams)?;
    admitted_per_second(pace, fill, primary.drain.per_second().or(link_rate)?)
}

/// Whether a write that came may go on: it has room, and those before it do not slow it down any more.
pub(super) fn may_enter(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, slot: u32) -> bool {
    if !primary.finds_room(common, cx, slot) {
        primary.waiters.is_not_paced();
        return false;
    }
    let Some(per_second) = paced_to(primary, common, cx.peer.rate) else {
        primary.waiters.is_not_paced();
        return true;
    };
    let now = cx.now.mono;
    primary.waiters.is_paced(now);
    if let Some(wait) = primary.pace.wait(now) {
        cx.coverage.hit(CoveragePoint::WriterPaced);
        common.set_timer(cx, GroupTimer::Pace, wait);
        return false;
    }
    let (bytes, _) = common.slots.write(slot).cost_bytes(cx.peer.part_bytes);
    primary.pace.admitted(now, bytes, per_second, common.settings.wait_limit / 4);
    true
}

/// The first writer in line has room, and is slowed down on purpose: no wait that the policy counts.
pub(super) fn only_paces(primary: &Primary, common: &mut GroupCommon, cx: &Cx) -> bool {
    primary.waiters.first_for_room().is_some_and(|slot| primary.peer.outbox.has_room(common, cx, slot))
        && paced_to(primary, common, cx.peer.rate).is_some()
}

fn admitted_per_second(pace: QueuePace, fill_permille: u64, rate: u64) -> Option<u64> {
    let (from, to) = (u64::from(pace.from()) * 10, u64::from(pace.to()) * 10);
    let beyond = fill_permille.checked_sub(from).filter(|beyond| *beyond > 0)?;
    Some((u128::from(rate) * u128::from(to - from) / u128::from(beyond)).min(u128::from(u64::MAX)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tenth_of_the_way_slows_writers_to_less_than_half() {
        let pace = QueuePace::new(50, 100).expect("two marks");
        let at = |permille| admitted_per_second(pace, permille, 1_000_000);
        assert_eq!(at(500), None, "below the first mark nobody is slowed down");
        assert_eq!([at(550), at(750), at(1000)], [Some(10_000_000), Some(2_000_000), Some(1_000_000)]);
        for tenth in 1..10 {
            let [here, next] = [tenth, tenth + 1].map(|tenth| at(500 + tenth * 50).expect("paced"));
            assert!(here <= 2 * next, "tenth {tenth}: {here}, then {next}");
        }
    }

    #[test]
    fn a_write_holds_the_next_one_up_for_a_moment_only() {
        let mut pace = WritePace::default();
        assert_eq!(pace.wait(Mono(5)), None);
        pace.admitted(Mono(1_000), 4096, 4096, Duration::from_secs(2));
        assert_eq!(pace.wait(Mono(1_000)), Some(Duration::from_secs(1)));
        pace.admitted(Mono(1_000), 1 << 40, 1, Duration::from_secs(2));
        assert_eq!(pace.wait(Mono(1_000)), Some(Duration::from_secs(2)));
    }
}
