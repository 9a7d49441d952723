//! What a primary reports to its secondary of the group, and how long that counts: both nodes show the same truth of the copy, or say
//! since when it is not known (rule 19).
//!
//! How far the copy is behind only the primary knows: it reports that with its clock, at least every second, also while frames
//! travel. A secondary takes it for the present for [`REPORT_HOLDS`], and never once the session is over.

use alloc::vec::Vec;
use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::durability::kept::merged;
use crate::formats::identity::Role;
use crate::formats::wire::{FlushPoints, FrameHeader, GroupHello, Tick, VolumeRange};
use crate::ids::Seq;
use crate::limits;
use crate::limits::REPORT_HOLDS;
use crate::secondary::Secondary;
use crate::state::State;
use crate::time::{Mono, Wall, ahead};

/// The newest report of the primary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrimaryReport {
    tick: Tick,
    at: Mono,
    /// Its stamp of the last write then.
    stamp: Wall,
    /// All that it had numbered was applied here then: up to this number.
    in_step: Option<Seq>,
    /// In the session that is up.
    in_session: bool,
}

impl Secondary {
    /// How far the primary's stamps stand ahead of its clock, as it reports in this session.
    pub fn primary_clock_ahead(&self) -> Option<Duration> {
        self.report.filter(|report| report.in_session).and_then(|report| report.ahead())
    }

    // ---- the secondary's half --------------------------------------------------------------------------------------

    pub fn hear_primary(&mut self, common: &mut GroupCommon, cx: &mut Cx, header: &FrameHeader, tick: Tick) {
        let follows =
            header.incarnation == self.progress.incarnation() && self.streaming && self.progress.snapshot().is_none();
        let applied = header.seq == self.progress.applied_on_disk() && self.progress.is_in_step();
        let in_step = Some(header.seq).filter(|_| follows && applied);
        let report = PrimaryReport { tick, at: cx.now.mono, stamp: header.wall, in_step, in_session: true };
        self.report = Some(report);
        common.say_of_clock(cx, report.ahead(), report.stamp, "the primary");
        // A group that failed may not know what its superblock should say.
        let may_record = self.may_count && !common.has_failed();
        if may_record && common.sb.primary_mode != Some(tick.mode) {
            // What a promotion has to know, however this node comes to it.
            common.sb.primary_serves_in(tick.mode);
            common.save(cx, None);
        }
    }

    /// The session is over, or its other end is no primary: what it reported is of the past.
    pub fn report_is_past(&mut self) {
        if let Some(report) = &mut self.report {
            report.in_session = false;
        }
    }

    /// What a former primary reported does not count.
    pub fn forget_report(&mut self) {
        self.report = None;
    }

    pub fn take_peer_hello(&mut self, common: &mut GroupCommon, hello: GroupHello) {
        if hello.identity.role != Role::Primary {
            self.report_is_past();
        }
        common.greeting.take_up(hello);
    }

    /// The state that the primary reported in this session.
    pub fn reported_state(&self) -> Option<State> {
        self.report.filter(|report| report.in_session).map(|report| report.tick.state)
    }

    /// What the primary reported, and how long ago; whether that still counts.
    pub fn primary_report(&self, now: Mono) -> Option<(Tick, Duration, bool)> {
        self.report.map(|report| {
            let since = now.since(report.at);
            (report.tick, since, report.in_session && since < REPORT_HOLDS)
        })
    }

    /// The time of the copy, by the primary's clock: where stamps stand still since that was set back, and the copy was in step, it is
    /// the clock as it was reported.
    pub fn time_of_copy(&self, seq: Seq, stamp: Wall) -> Wall {
        match self.report {
            Some(report) if report.in_step == Some(seq) && report.ahead().is_some() => report.tick.clock,
            _ => stamp,
        }
    }
}

impl PrimaryReport {
    pub fn ahead(&self) -> Option<Duration> {
        ahead(self.stamp, self.tick.clock)
    }
}

impl Secondary {
    /// A primary asks for what it may have lost. One that was promoted meanwhile has nothing to tell.
    pub fn tail_is_asked(&mut self, common: &mut GroupCommon, cx: &mut Cx, points: FlushPoints, question: Seq) {
        self.tail_asked = Some((points, question)).filter(|_| common.role() == Role::Secondary);
        self.answer_tail(common, cx);
    }

    /// A primary asks for content. `None`: not of a range that it may ask for.
    pub fn pull_is_asked(&self, common: &mut GroupCommon, cx: &mut Cx, header: &FrameHeader) -> Option<()> {
        let range = VolumeRange { volume: header.volume, offset: header.offset, length: header.length };
        if !common.volumes.has_sectors(&range) || range.length > limits::PART_BYTES_MAX {
            return None;
        }
        if common.role() == Role::Secondary && !common.answers.range_asked(header.seq, range) {
            common.protocol_error(cx, "a question for more ranges at once than may be asked for");
        }
        Some(())
    }

    /// Once everything received is on the volumes, the primary is told which ranges it may have lost.
    pub fn answer_tail(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if self.tail_asked.is_none() || common.role() != Role::Secondary {
            return;
        }
        self.give_up_unlanded(common, cx);
        if !self.replica_at_rest(common, cx) {
            return;
        }
        let Some((points, question)) = self.tail_asked.take() else { return };
        let same_run = points.incarnation == self.position().incarnation;
        let mut ranges = if same_run { merged(self.kept.beyond(&points).collect()) } else { Vec::new() };
        let recorded = points.volumes.iter().min().copied().unwrap_or_default();
        let given_up = common.sb.given_up;
        // Of what was given up whole nobody knows which run it was of.
        let given_up = given_up == Seq(u64::MAX) || same_run && given_up > recorded.max(self.kept.primary_flushed());
        // A journal that was read back may hold more than an answer does.
        let too_many = ranges.len() > limits::KEPT_MAX;
        if too_many {
            ranges.clear();
        }
        let unknown = given_up || too_many;
        common.answers.tail(question, ranges, unknown);
    }
}
