//! Writers are slowed down bit by bit before the queue is full (`queue.pace`), and not from one moment to the next when it is.
//!
//! ```text
//! fill of the queue:     below from    at 50 %             at 80 %            at to = 90 %      at 100 %
//! writers are admitted:  at once       at 16 times the     at twice the       at the link's     at half of it
//!                                      link's rate         link's rate        rate
//! ```
//! Each tenth of the queue halves the rate. So writers wait twice as long from one tenth to the next, and no longer, and the fill comes to rest at
//! the second mark. At the first mark nobody feels a step who offers less than the rate there: 2 to the power of the tenths between the marks.

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
    if fill_permille < from || fill_permille == 0 {
        return None;
    }
    let (rate, away) = (u128::from(rate), fill_permille.abs_diff(to));
    // Within a tenth it is a straight line.
    let (tenths, part) = (away / 100, u128::from(away % 100));
    let admitted = match fill_permille < to {
        true => (rate * (100 + part) / 100) << tenths,
        false => (rate * (200 - part) / 200) >> tenths,
    };
    Some(u64::try_from(admitted).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenth_of_the_queue_halves_the_rate() {
        let pace = QueuePace::new(50, 90).expect("two marks");
        let at = |permille| admitted_per_second(pace, permille, 1_000_000);
        assert_eq!(at(499), None, "below the first mark nobody is slowed down");
        let rates = [500, 800, 900, 1000].map(at);
        assert_eq!(rates, [16_000_000, 2_000_000, 1_000_000, 500_000].map(Some));
        assert_eq!([at(850), at(950)], [Some(1_500_000), Some(750_000)]);
        for permille in 500..=900 {
            let [here, next] = [permille, permille + 100].map(|permille| at(permille).expect("paced"));
            assert!(next <= here && here <= 2 * next + 2, "{permille}: {here}, then {next}");
        }
    }

    #[test]
    fn an_empty_queue_slows_nobody_down() {
        let pace = QueuePace::new(0, 90).expect("two marks");
        assert_eq!(admitted_per_second(pace, 0, 1_000_000), None);
        assert_eq!(admitted_per_second(pace, 1, u64::MAX), Some(u64::MAX));
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
