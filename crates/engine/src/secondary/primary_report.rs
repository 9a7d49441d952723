//! What a primary reports to its secondary of the group, and how long that counts: both nodes show the same truth of the copy, or say
//! since when it is not known (rule 19).
//!
//! How far the copy is behind only the primary knows: it reports that with its clock, at least every second, also while frames
//! travel. A secondary takes it for the present for [`REPORT_HOLDS`], and never once the session is over.

use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::formats::wire::{FlushPoints, Tick};
use crate::ids::Seq;
use crate::limits::REPORT_HOLDS;
use crate::secondary::Secondary;
use crate::shared::kept_tail::KeptTail;
use crate::state::{Mode, State};
use crate::time::{Mono, Wall, ahead};

/// The newest report of the primary.
#[derive(Clone, Copy, Debug)]
struct NewestReport {
    tick: Tick,
    at: Mono,
    /// Its stamp of the last write then.
    stamp: Wall,
    /// All that it had numbered was applied here then: up to this number.
    in_step: Option<Seq>,
    /// So many of them were not durable here then; `None`: what came was not their order.
    lacked: Option<u64>,
    /// In the session that is up.
    in_session: bool,
}

impl NewestReport {
    fn ahead(&self) -> Option<Duration> {
        ahead(self.stamp, self.tick.clock)
    }
}

/// What the primary reported, as far as it did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PrimaryReport {
    newest: Option<NewestReport>,
}

impl PrimaryReport {
    /// `in_step`: the primary's last number, if all of them are applied here; `lacked`: so many of them are not durable here.
    pub fn hear(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        (tick, stamp): (Tick, Wall),
        in_step: Option<Seq>,
        lacked: Option<u64>,
    ) {
        let report = NewestReport { tick, at: cx.now.mono, stamp, in_step, lacked, in_session: true };
        self.newest = Some(report);
        common.say_of_clock(cx, report.ahead(), stamp, "the primary");
    }

    /// The peer says who it is.
    pub fn meets(&mut self, role: Role) {
        if role != Role::Primary {
            self.is_past();
        }
    }

    /// The session is over, or its other end is no primary: what it reported is of the past.
    pub fn is_past(&mut self) {
        if let Some(report) = &mut self.newest {
            report.in_session = false;
        }
    }

    /// What a former primary reported does not count.
    pub fn forget(&mut self) {
        self.newest = None;
    }

    fn in_session(&self) -> Option<&NewestReport> {
        self.newest.as_ref().filter(|report| report.in_session)
    }

    /// How far the primary's stamps stand ahead of its clock, as it reports in this session.
    pub fn clock_ahead(&self) -> Option<Duration> {
        self.in_session().and_then(NewestReport::ahead)
    }

    /// The state that the primary reported in this session.
    pub fn state(&self) -> Option<State> {
        self.in_session().map(|report| report.tick.state)
    }

    /// The mode in which it answers writers, as it said last: of a primary that is lost, what a promotion has to count with.
    pub fn acts_as(&self) -> Option<Mode> {
        self.newest.map(|report| report.tick.acts_as)
    }

    /// What the primary reported, and how long ago; whether that still counts.
    pub fn newest(&self, now: Mono) -> Option<(Tick, Duration, bool)> {
        self.newest.map(|report| {
            let since = now.since(report.at);
            (report.tick, since, report.in_session && since < REPORT_HOLDS)
        })
    }

    /// How many numbers of the order were not durable here when the primary was heard last.
    pub fn lacked(&self) -> Option<u64> {
        self.newest.and_then(|report| report.lacked)
    }

    /// The time of the copy, by the primary's clock: where stamps stand still since that was set back, and the copy was in step, it is
    /// the clock as it was reported.
    pub fn time_of_copy(&self, seq: Seq, stamp: Wall) -> Wall {
        match self.newest {
            Some(report) if report.in_step == Some(seq) && report.ahead().is_some() => report.tick.clock,
            _ => stamp,
        }
    }
}

impl Secondary {
    /// A primary asks for what it may have lost. One that was promoted meanwhile has nothing to tell.
    #[must_use = "the primary waits for it"]
    pub fn tail_is_asked(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        points: FlushPoints,
        question: Seq,
    ) -> Option<KeptTail> {
        // What was received and has not landed is given up for it.
        self.window.forget();
        self.tail_asked = Some((points, question)).filter(|_| common.role() == Role::Secondary);
        self.answer_tail(common, cx)
    }

    /// Once everything received is on the volumes, the primary is told which ranges it may have lost, and whether there are others that
    /// nobody knows any more.
    #[must_use = "the primary waits for it"]
    pub fn answer_tail(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> Option<KeptTail> {
        if self.tail_asked.is_none() || common.role() != Role::Secondary {
            return None;
        }
        self.replica.give_up_unlanded(common, cx);
        if !self.replica.replica_at_rest(common, cx) {
            return None;
        }
        let (points, question) = self.tail_asked.take()?;
        let same_run = points.incarnation == self.replica.progress().position().incarnation;
        let (ranges, unknown) = self.replica.journal().lost_beyond(common.sb.given_up, &points, same_run);
        Some(KeptTail { question, ranges, unknown })
    }
}
