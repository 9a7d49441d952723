//! The mode ladder: while the line is slow a group acts as a lower mode than the one that is set, and never as a higher one
//! (docs/book/decisions/0074-mode-ladder.md).
//!
//! A machine without clock or group: it is told what writers waited, and what the line looks like, and answers with a step that its caller
//! takes. The line is judged by what writers wait for the peer, on the average of [`Fallback::after`] of time in which anyone waited: so
//! idle time says nothing, and one write that waited long is no slow line. A write that has waited for latency and time together is enough
//! by itself: nobody waits longer.

use core::time::Duration;

use crate::Fallback;
use crate::ids::Seq;
use crate::time::Mono;

/// Each return that did not last doubles the time before the next one, so often.
const DOUBLINGS_MAX: u32 = 3;

/// Where a ladder stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rung {
    /// The mode that is set.
    #[default]
    AsSet,
    /// The fallback, and the line is slow.
    Lowered(Lowering),
    /// The fallback, and the line has been good since then.
    Recovering(Lowering, Mono),
}

/// | from | to | when |
/// |---|---|---|
/// | as set | lowered | writers waited too long for the peer, or the peer is too far behind |
/// | lowered | recovering | the peer is in step with the fallback, near enough, and what it confirms is not late |
/// | recovering | lowered | that is over |
/// | recovering | as set | it was so for `return_after`, twice that after a return that did not last, and so on |
/// | lowered, recovering | as set | other settings; the node is primary no longer |
fn legal(from: Rung, to: Rung) -> bool {
    matches!(
        (from, to),
        (Rung::AsSet | Rung::Recovering(..), Rung::Lowered(_))
            | (Rung::Lowered(_), Rung::Recovering(..))
            | (Rung::Lowered(_) | Rung::Recovering(..), Rung::AsSet)
    )
}

/// Since when, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lowering {
    pub since: Mono,
    pub cause: SlowLine,
}

/// What made a line slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlowLine {
    /// Writers waited for so long on the average.
    Average(Duration),
    /// One write has waited for so long.
    One(Duration),
    /// The oldest write that the peer lacks is so old.
    Lag(Duration),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LadderStep {
    Down(SlowLine),
    /// The line was good for so long.
    Up(Duration),
}

/// What the group looks like to its ladder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenLine {
    /// The writer who has waited longest for the peer, since when.
    pub oldest: Option<Mono>,
    /// The peer takes writes in their order, and has what the acting mode asks.
    pub in_order: bool,
    /// Something was heard of it a moment ago. A silent line may be a lost one, and that is no affair of a ladder.
    pub is_heard: bool,
    /// It was not silent for so long that a lost line is likelier than a gap between two packets.
    pub is_there: bool,
    /// A heartbeat's round trip, where the mode that is set waits for one.
    pub round_trip: Duration,
    /// What is queued, in memory and on disk, is at most half of what memory has room for.
    pub queue_is_low: bool,
    /// Writers have what the mode promises, or it promises nothing: a copy that only catches up is behind whatever the mode.
    pub keeps_promise: bool,
}

/// What writers waited for the peer.
#[derive(Clone, Copy, Debug, Default)]
struct LineJudge {
    /// Time in which anyone waited, each moment once.
    waited: Duration,
    /// Through here.
    through: Mono,
    sum: Duration,
    count: u32,
    /// Until then nothing was heard of the peer: that time is charged to nobody.
    silent_until: Mono,
}

impl LineJudge {
    /// A writer who has waited since then waits no longer.
    fn note(&mut self, now: Mono, since: Mono) {
        let since = since.max(self.silent_until);
        self.spans(now, since);
        (self.sum, self.count) = (self.sum + now.since(since), self.count.saturating_add(1));
    }

    fn spans(&mut self, now: Mono, since: Mono) {
        self.waited += now.since(since.max(self.through).min(now));
        self.through = now;
    }

    /// `Some`: enough was seen to say whether the line is slow, and the next judgement begins.
    fn verdict(&mut self, now: Mono, oldest: Option<Mono>, rules: &Fallback) -> Option<Result<(), SlowLine>> {
        let oldest = oldest.map(|since| since.max(self.silent_until));
        let age = oldest.map(|since| now.since(since));
        oldest.into_iter().for_each(|since| self.spans(now, since));
        if let Some(age) = age.filter(|age| *age >= rules.latency + rules.after) {
            self.begin_anew(now);
            return Some(Err(SlowLine::One(age)));
        }
        if self.waited < rules.after {
            return None;
        }
        let count = self.count + u32::from(age.is_some());
        let average = (self.sum + age.unwrap_or_default()) / count.max(1);
        self.begin_anew(now);
        Some(if average > rules.latency { Err(SlowLine::Average(average)) } else { Ok(()) })
    }

    fn begin_anew(&mut self, now: Mono) {
        *self = LineJudge { through: now, silent_until: self.silent_until, ..LineJudge::default() };
    }
}

#[derive(Debug, Default)]
pub(crate) struct ModeLadder {
    rung: Rung,
    line: LineJudge,
    /// Lowered: a write whose writer would wait for it now in the mode that is set.
    sample: Option<(Seq, Mono)>,
    /// A write that is not durable at the peer, and since when it was queued: the copy is behind for at least so long.
    lacked: Option<(Seq, Mono)>,
    /// When it came back last, and how long the line had been good for then.
    returned: Option<(Mono, Duration)>,
    doublings: u32,
}

impl ModeLadder {
    /// A writer had what it waited for.
    pub fn waited(&mut self, now: Mono, since: Mono) {
        self.line.note(now, since);
    }

    /// A write was queued behind which, as far as it is known, nobody waits.
    pub fn numbered(&mut self, now: Mono, last: Seq) {
        self.lacked.get_or_insert((last, now));
        if self.lowering().is_some() {
            self.sample.get_or_insert((last, now));
        }
    }

    /// The peer has these writes as the mode that is set has it.
    pub fn confirmed(&mut self, now: Mono, has: impl Fn(Seq) -> bool) {
        if let Some((_, since)) = self.sample.take_if(|(seq, _)| has(*seq)) {
            self.line.note(now, since);
        }
    }

    /// The peer has these writes durable.
    pub fn durable(&mut self, has: impl Fn(Seq) -> bool) {
        self.lacked.take_if(|(seq, _)| has(*seq));
    }

    /// For so long the copy lacks a write, as far as is known. The time in which nothing was heard of the peer is charged to nobody.
    fn lag(&self, now: Mono) -> Duration {
        self.lacked.map_or(Duration::ZERO, |(_, since)| now.since(since.max(self.line.silent_until)))
    }

    /// Since when the fallback counts, and why.
    pub fn lowering(&self) -> Option<Lowering> {
        match self.rung {
            Rung::AsSet => None,
            Rung::Lowered(lowering) | Rung::Recovering(lowering, _) => Some(lowering),
        }
    }

    /// Since when the line has been good, and how long it has to be.
    pub fn recovering(&self, rules: &Fallback) -> Option<(Mono, Duration)> {
        match self.rung {
            Rung::Recovering(_, since) => Some((since, self.hold(rules))),
            _ => None,
        }
    }

    pub fn look(&mut self, now: Mono, rules: &Fallback, seen: &SeenLine) -> Option<LadderStep> {
        if !seen.in_order {
            self.line.begin_anew(now);
            (self.sample, self.lacked) = (None, None);
        }
        if !seen.is_heard {
            self.line.silent_until = now;
        }
        let oldest = seen.oldest.into_iter().chain(self.sample.map(|(_, since)| since)).min();
        let slow = self.line.verdict(now, oldest.filter(|_| seen.in_order), rules).and_then(Result::err);
        let lag = self.lag(now);
        let too_far = rules.lag.is_some_and(|most| lag >= most) && seen.in_order && seen.is_heard && seen.keeps_promise;
        let slow = slow.or(too_far.then_some(SlowLine::Lag(lag)));
        let is_near = seen.queue_is_low && rules.lag.is_none_or(|most| lag <= most / 2);
        let is_good = seen.in_order && seen.is_there && is_near && seen.round_trip <= rules.latency && slow.is_none();
        match (self.rung, slow) {
            (Rung::AsSet, Some(cause)) => {
                let lasted = |(at, hold): (Mono, Duration)| now.since(at) >= hold;
                self.doublings = match self.returned {
                    Some(returned) if !lasted(returned) => (self.doublings + 1).min(DOUBLINGS_MAX),
                    _ => 0,
                };
                self.enter(Rung::Lowered(Lowering { since: now, cause }));
                Some(LadderStep::Down(cause))
            }
            (Rung::Lowered(lowering), _) if is_good => {
                self.enter(Rung::Recovering(lowering, now));
                None
            }
            (Rung::Recovering(lowering, _), _) if !is_good => {
                self.enter(Rung::Lowered(lowering));
                None
            }
            (Rung::Recovering(_, since), _) if now.since(since) >= self.hold(rules) => {
                let good_for = now.since(since);
                self.returned = Some((now, self.hold(rules)));
                self.restore(now);
                Some(LadderStep::Up(good_for))
            }
            _ => None,
        }
    }

    /// Other settings, or another role. True: the fallback counted.
    pub fn forget(&mut self, now: Mono) -> bool {
        (self.returned, self.doublings) = (None, 0);
        let was_lowered = self.lowering().is_some();
        if was_lowered {
            self.restore(now);
        }
        was_lowered
    }

    fn restore(&mut self, now: Mono) {
        self.sample = None;
        self.line.begin_anew(now);
        self.enter(Rung::AsSet);
    }

    fn hold(&self, rules: &Fallback) -> Duration {
        rules.return_after * (1 << self.doublings)
    }

    /// The one way its rung changes.
    fn enter(&mut self, to: Rung) {
        assert!(legal(self.rung, to), "a mode ladder: {:?} -> {to:?} is not in the table of edges", self.rung);
        self.rung = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Mode;

    const MS: u64 = 1_000_000;

    fn rules() -> Fallback {
        Fallback {
            mode: Mode::Async,
            latency: Duration::from_millis(100),
            after: Duration::from_secs(1),
            lag: None,
            return_after: Duration::from_secs(10),
        }
    }

    fn good() -> SeenLine {
        SeenLine {
            oldest: None,
            in_order: true,
            is_heard: true,
            is_there: true,
            round_trip: Duration::from_millis(20),
            queue_is_low: true,
            keeps_promise: true,
        }
    }

    /// One writer, write after write, each waits so long; until the ladder steps, or so long. When it did.
    fn one_writer(ladder: &mut ModeLadder, from: Mono, wait_ms: u64, most_ms: u64) -> Option<(u64, LadderStep)> {
        let mut now = from;
        while now.0 < from.0 + most_ms * MS {
            now = Mono(now.0 + wait_ms * MS);
            ladder.waited(now, Mono(now.0 - wait_ms * MS));
            if let Some(step) = ladder.look(now, &rules(), &good()) {
                return Some(((now.0 - from.0) / MS, step));
            }
        }
        None
    }

    /// So it is lowered, and when.
    fn lowered() -> (ModeLadder, Mono) {
        let mut ladder = ModeLadder::default();
        let (at, step) = one_writer(&mut ladder, Mono(0), 200, 60_000).expect("a slow line");
        assert!(matches!(step, LadderStep::Down(SlowLine::Average(wait)) if wait == Duration::from_millis(200)));
        (ladder, Mono(at * MS))
    }

    #[test]
    fn a_line_is_slow_by_what_writers_waited_on_the_average() {
        let mut ladder = ModeLadder::default();
        assert_eq!(one_writer(&mut ladder, Mono(0), 100, 60_000), None, "as long as they may");
        let mut ladder = ModeLadder::default();
        let (at, _) = one_writer(&mut ladder, Mono(0), 101, 60_000).expect("longer");
        assert_eq!(at, 1010, "in the first second of waiting");
        // One write in twenty waits long.
        let (mut ladder, mut now) = (ModeLadder::default(), Mono(0));
        for n in 0..1000 {
            let (wait, since) = (if n % 20 == 0 { 600 } else { 20 }, now);
            now = Mono(now.0 + wait * MS);
            ladder.waited(now, since);
            assert_eq!(ladder.look(now, &rules(), &good()), None);
        }
    }

    #[test]
    fn seldom_writes_count_by_their_waits_and_not_by_the_time_between() {
        let (mut ladder, mut now) = (ModeLadder::default(), Mono(0));
        let mut after = |wait: u64| {
            now = Mono(now.0 + 60_000 * MS);
            ladder.waited(now, Mono(now.0 - wait * MS));
            ladder.look(now, &rules(), &good())
        };
        assert_eq!(after(300), None, "one packet was lost");
        assert!((0..100).all(|_| after(20).is_none()), "and a minute later all is well");
        assert!((0..10).any(|_| after(200).is_some()), "each of them waits too long");
    }

    #[test]
    fn no_write_waits_longer_than_latency_and_time_together() {
        let mut ladder = ModeLadder::default();
        // Many good ones, and then the line stands still.
        for n in 1..=900 {
            ladder.waited(Mono(n * MS), Mono((n - 1) * MS));
            assert_eq!(ladder.look(Mono(n * MS), &rules(), &good()), None);
        }
        let stuck = SeenLine { oldest: Some(Mono(900 * MS)), ..good() };
        let look = |ms: u64, ladder: &mut ModeLadder| ladder.look(Mono(ms * MS), &rules(), &stuck);
        assert!((900..2000).step_by(100).all(|ms| look(ms, &mut ladder).is_none() || ms >= 1900));
        let step = look(2000, &mut ladder);
        assert!(ladder.lowering().is_some(), "{step:?}");
    }

    #[test]
    fn the_time_in_which_the_peer_was_silent_is_charged_to_nobody() {
        let mut ladder = ModeLadder::default();
        let look = |ladder: &mut ModeLadder, ms: u64, is_heard| {
            let seen = SeenLine { oldest: Some(Mono(0)), is_heard, ..good() };
            ladder.look(Mono(ms * MS), &rules(), &seen)
        };
        assert!((0..500).step_by(100).all(|ms| look(&mut ladder, ms, true).is_none()));
        assert!((500..=9000).step_by(100).all(|ms| look(&mut ladder, ms, false).is_none()));
        assert!((9100..9600).step_by(100).all(|ms| look(&mut ladder, ms, true).is_none()));
        assert!(look(&mut ladder, 9600, true).is_some(), "it goes on where it was");
    }

    #[test]
    fn it_comes_back_once_the_line_was_good_for_long_enough() {
        let (mut ladder, at) = lowered();
        let look =
            |ladder: &mut ModeLadder, ms: u64, seen: SeenLine| ladder.look(Mono(at.0 + ms * MS), &rules(), &seen);
        let away = SeenLine { in_order: false, ..good() };
        let far = SeenLine { round_trip: Duration::from_millis(101), ..good() };
        let full = SeenLine { queue_is_low: false, ..good() };
        for (ms, seen) in [(0, away), (9_000, far), (19_000, full)] {
            assert_eq!(look(&mut ladder, ms, good()), None);
            assert_eq!(look(&mut ladder, ms + 9_000, seen), None);
        }
        assert_eq!(look(&mut ladder, 30_000, good()), None);
        assert_eq!(look(&mut ladder, 39_999, good()), None);
        assert_eq!(look(&mut ladder, 40_000, good()), Some(LadderStep::Up(Duration::from_secs(10))));
        assert_eq!(ladder.lowering(), None);
    }

    #[test]
    fn a_peer_that_is_far_behind_is_reason_enough() {
        let rules = Fallback { lag: Some(Duration::from_secs(20)), ..rules() };
        let mut ladder = ModeLadder::default();
        let at = |seconds: u64| Mono(seconds * 1000 * MS);
        ladder.numbered(at(1), Seq(5));
        ladder.numbered(at(9), Seq(6));
        let catches_up = SeenLine { keeps_promise: false, ..good() };
        let silent = SeenLine { is_heard: false, ..good() };
        assert_eq!(ladder.look(at(20), &rules, &good()), None, "not that far");
        assert_eq!(ladder.look(at(21), &rules, &catches_up), None, "no mode would have it nearer");
        assert_eq!(ladder.look(at(22), &rules, &silent), None, "a silent line is judged by others");
        assert_eq!(ladder.look(at(41), &rules, &good()), None, "and charged to nobody");
        let step = ladder.look(at(42), &rules, &good());
        assert_eq!(step, Some(LadderStep::Down(SlowLine::Lag(Duration::from_secs(20)))));
        ladder.durable(|seq| seq == Seq(5));
        ladder.numbered(at(43), Seq(7));
        ladder.confirmed(at(43), |_| true);
        assert!([44, 53].iter().all(|seconds| ladder.look(at(*seconds), &rules, &good()).is_none()));
        assert_eq!(ladder.look(at(54), &rules, &good()), None, "more than half as far");
        ladder.durable(|_| true);
        assert!([55, 64].iter().all(|seconds| ladder.look(at(*seconds), &rules, &good()).is_none()));
        assert_eq!(ladder.look(at(65), &rules, &good()), Some(LadderStep::Up(Duration::from_secs(10))));
    }

    #[test]
    fn a_write_that_would_have_waited_keeps_it_down() {
        let (mut ladder, at) = lowered();
        let mut now = at;
        for n in 0..1000 {
            ladder.numbered(now, Seq(n));
            now = Mono(now.0 + 150 * MS);
            ladder.confirmed(now, |seq| seq == Seq(n));
            assert_eq!(ladder.look(now, &rules(), &good()), None);
        }
        // The line is good again; writes go on.
        let from = now;
        let mut n = 1000;
        loop {
            ladder.numbered(now, Seq(n));
            now = Mono(now.0 + 30 * MS);
            ladder.confirmed(now, |seq| seq == Seq(n));
            n += 1;
            if ladder.look(now, &rules(), &good()).is_some() {
                break;
            }
        }
        assert!((10_000..12_000).contains(&((now.0 - from.0) / MS)), "{} ms", (now.0 - from.0) / MS);
    }

    #[test]
    fn a_return_that_does_not_last_doubles_the_time_before_the_next() {
        let (mut ladder, mut now) = lowered();
        let mut held = Vec::new();
        for _ in 0..6 {
            let from = now;
            while ladder.look(now, &rules(), &good()).is_none() {
                now = Mono(now.0 + 100 * MS);
            }
            held.push((now.0 - from.0) / MS / 1000);
            let (took, _) = one_writer(&mut ladder, now, 200, 5_000).expect("slow again");
            now = Mono(now.0 + took * MS);
        }
        assert_eq!(held, [10, 20, 40, 80, 80, 80]);
        while ladder.look(now, &rules(), &good()).is_none() {
            now = Mono(now.0 + 100 * MS);
        }
        now = Mono(now.0 + 81_000 * MS);
        one_writer(&mut ladder, now, 200, 5_000).expect("slow again");
        assert_eq!(ladder.hold(&rules()), Duration::from_secs(10), "that one lasted");
    }

    #[test]
    fn settings_end_it_at_once() {
        let (mut ladder, at) = lowered();
        assert!(ladder.forget(at) && !ladder.forget(at));
        assert_eq!(ladder.lowering(), None);
    }

    #[test]
    fn the_fallback_is_left_by_no_other_way() {
        let lowering = Lowering { since: Mono(0), cause: SlowLine::One(Duration::ZERO) };
        let rungs = [Rung::AsSet, Rung::Lowered(lowering), Rung::Recovering(lowering, Mono(1))];
        for (from, to) in rungs.iter().flat_map(|from| rungs.iter().map(move |to| (*from, *to))) {
            assert_eq!(legal(from, to), from != to && (from, to) != (rungs[0], rungs[2]), "{from:?} -> {to:?}");
        }
    }
}
