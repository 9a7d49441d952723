//! Writers who are held up by a queue that stays full: each for a moment only, and for ever.
//!
//! A clock runs on while a writer has waited for room longer than a hundredth of `wait_limit`, and back while none has. What the peer
//! confirms at once makes room at once: for as long as the link takes for that, a writer waits besides. When the clock shows `wait_limit` the policy acts, as for a single write that waited so long (docs/book/decisions/0034-writers-held-up.md).

use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::injected_fault::{Fault, injected};
use crate::shared::coverage::CoveragePoint;
use crate::state::Policy;
use crate::time::Mono;
use crate::{Event, Settings, limits};

/// What writers lost of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldUp {
    shows: Duration,
    as_of: Mono,
    /// What is confirmed makes room in steps: one takes the link so long.
    step: Duration,
    /// People know of it, and not yet that it is over.
    reported: bool,
}

impl HeldUp {
    /// What the clock shows now. `oldest`: since when the first in line waits, `None`: nobody does.
    fn at(&self, now: Mono, oldest: Option<Mono>, settings: &Settings) -> Duration {
        let from = oldest.map_or(now, |since| since.plus(self.bearable(settings)).max(self.as_of).min(now));
        let shows = self.shows.saturating_sub(from.since(self.as_of)) + now.since(from);
        shows.min(limit(settings))
    }

    /// Who waits no longer than this is not held up: the writers of a group that is merely at its link's speed.
    fn bearable(&self, settings: &Settings) -> Duration {
        settings.wait_limit / limits::HELD_UP_SHARE + self.step.min(settings.wait_limit / 4)
    }

    pub fn is_reported(&self) -> bool {
        self.reported
    }

    /// What it shows, and may show before the policy acts.
    pub fn shown(&self, now: Mono, oldest: Option<Mono>, settings: &Settings) -> (Duration, Option<Duration>) {
        (self.at(now, oldest, settings), (!bears_it(settings)).then(|| limit(settings)))
    }

    /// Looks at the clock and says what it shows. True: the policy is to act. `window_open`: a peer window is, and ends by itself.
    pub fn look(&mut self, common: &GroupCommon, cx: &mut Cx, oldest: Option<Mono>, window_open: bool) -> bool {
        let (now, settings) = (cx.now.mono, &common.settings);
        self.note(now, oldest, settings);
        if self.reported && self.shows.is_zero() {
            self.reported = false;
            cx.event(common.id(), Event::WritersGoOn);
            return false;
        }
        let is_held = oldest.is_some_and(|since| now.since(since) > self.bearable(settings));
        if !is_held || self.shows < limit(settings) / 2 {
            return false;
        }
        if !self.reported {
            self.reported = true;
            let left = limit(settings) - self.shows;
            cx.event(common.id(), Event::WritersHeldUp { acts_in: (!bears_it(settings)).then_some(left) });
        }
        let acts = self.shows >= limit(settings) && !bears_it(settings) && !window_open;
        if acts {
            cx.coverage.hit(CoveragePoint::HeldUpTooLong);
        }
        acts
    }

    /// What the peer confirms at once takes the link so long.
    pub fn step_takes(&mut self, step: Duration) {
        self.step = if injected(Fault::StepHeldUp) { Duration::ZERO } else { step };
    }

    pub fn step(&self) -> Duration {
        self.step
    }

    /// To be told before the first in line changes.
    pub fn note(&mut self, now: Mono, oldest: Option<Mono>, settings: &Settings) {
        (self.shows, self.as_of) = (self.at(now, oldest, settings), now);
    }
}

/// When it is too much: as long as one write may wait under the policy.
fn limit(settings: &Settings) -> Duration {
    match settings.policy {
        Policy::Hold(window) if promises(settings) => settings.wait_limit + window,
        _ => settings.wait_limit,
    }
}

fn promises(settings: &Settings) -> bool {
    settings.mode.promises()
}

/// Under `strict` nobody is answered alone, and what waits less than `wait_limit` need not fail.
fn bears_it(settings: &Settings) -> bool {
    promises(settings) && settings.policy == Policy::Strict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Mode;

    const SECOND: u64 = 1_000_000_000;

    fn settings() -> Settings {
        Settings { wait_limit: Duration::from_secs(10), ..Settings::default() }
    }

    /// Writers come in turn, each waits so long and is followed by the next after a pause; what the clock shows after so many.
    fn after(turns: u64, wait: u64, pause: u64) -> Duration {
        let (mut clock, mut now) = (HeldUp::default(), 5 * SECOND);
        for _ in 0..turns {
            clock.note(Mono(now + wait), Some(Mono(now)), &settings());
            now += wait + pause;
        }
        clock.at(Mono(now), None, &settings())
    }

    #[test]
    fn the_clock_runs_on_beyond_a_hundredth_of_the_limit_and_back_otherwise() {
        let ms = Duration::from_millis;
        assert_eq!(after(1000, SECOND / 10, 0), ms(0), "at the link's speed");
        assert_eq!(after(1, SECOND, 0), ms(900));
        assert_eq!(after(1, SECOND, SECOND / 2), ms(400));
        assert_eq!(after(10, SECOND / 2, 0), ms(10 * 300 + 100), "the first begins at nothing, which is not run back");
        assert_eq!(after(1000, SECOND / 2, SECOND), ms(0), "a third of the time is borne for ever");
        assert_eq!(after(1000, SECOND, 0), ms(10_000), "and never shows more than the limit");
    }

    #[test]
    fn writers_who_wait_side_by_side_are_held_up_all_the_time() {
        // Eight at once, each for 0.4 s: one leaves every 50 ms.
        let mut clock = HeldUp::default();
        for n in 8..100u64 {
            let now = n * SECOND / 20;
            clock.note(Mono(now), Some(Mono(now - 8 * SECOND / 20)), &settings());
        }
        assert_eq!(clock.shows, Duration::from_millis(92 * 50 + 250), "all of it but what the first found bearable");
    }

    /// Writers who are promised nothing were held up for ever under a policy that counts for promises only.
    #[test]
    fn only_strict_writers_with_a_promise_bear_any_wait() {
        let bears = |mode, policy| bears_it(&Settings { mode, policy, ..settings() });
        let hold = Policy::Hold(Duration::from_secs(1));
        assert!(bears(Mode::Sync, Policy::Strict) && bears(Mode::Nearsync, Policy::Strict));
        assert!(!bears(Mode::Async, Policy::Strict), "nothing is promised");
        assert!(!bears(Mode::Sync, hold) && !bears(Mode::Sync, Policy::Degrade), "they are answered alone in the end");
    }
}
