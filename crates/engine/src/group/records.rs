//! What goes on once something is on record: a superblock update, bits, the activity log.

use alloc::format;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::wire::FrameKind;
use crate::group::Group;
use crate::injected_fault::{Fault, injected};
use crate::peer::writers::{flush_failed, flush_recorded};
use crate::records::bits::AfterBits;
use crate::records::record::AfterSuper;
use crate::shared::lifecycle::{Phase, Promotion};
use crate::state::Broken;
use crate::{Event, limits};

impl Group {
    /// A fault on purpose: goes on before what was to be recorded first is durable.
    pub fn go_on_unrecorded(&mut self, cx: &mut Cx) {
        while injected(Fault::RecordNotAwaited) && self.common.sb.awaits(|_| true) {
            let then = self.common.sb.take_followers();
            then.into_iter().for_each(|then| self.after_super(cx, then));
        }
    }

    pub fn super_done(&mut self, cx: &mut Cx, ok: bool) {
        match self.common.sb.written(ok) {
            Err(broken) => {
                self.fail(cx, broken);
                return self.update_failed(cx);
            }
            // Nobody else says so any more.
            Ok(true) if self.common.has_failed() => self.say_hello(cx, FrameKind::GroupState),
            Ok(_) => {}
        }
        let GroupCommon { sb, undo, slots, .. } = &mut self.common;
        for then in sb.followers(undo, slots, cx) {
            self.after_super(cx, then);
        }
    }

    /// The superblock could not be written: whoever waits for it is told, and what caches lost is tried again.
    fn update_failed(&mut self, cx: &mut Cx) {
        for then in self.common.sb.take_followers() {
            match then {
                AfterSuper::FlushRecorded { waiters, .. } | AfterSuper::FlushFailed { waiters } => {
                    flush_failed(&mut self.common, cx, waiters);
                }
                AfterSuper::Answer { id, .. } | AfterSuper::PointGone { answer: Some((id, _)) } => {
                    cx.refuse(id, Broken::Superblock.words());
                }
                AfterSuper::Promoted { id, .. } | AfterSuper::Demoted { id, .. } => {
                    self.common.lifecycle.enter(Phase::Running);
                    // One of its slots may say it.
                    let why = format!(
                        "{}; it is not known whether the new role is on record: put that right and restart farshore here, and see \
                         'farshore status' before another node gets a role",
                        Broken::Superblock.words()
                    );
                    cx.refuse(id, &why);
                }
                _ => {}
            }
        }
        if self.common.sb.has_lost_caches() {
            self.common.set_timer(cx, GroupTimer::RecordAgain, limits::RECORD_AGAIN_AFTER);
        }
    }

    /// The group has failed, but what its caches lost is the one thing that the next start has to know.
    pub fn record_again(&mut self, cx: &mut Cx) {
        let sb = &self.common.sb;
        if sb.has_lost_caches() && !sb.is_writing() && !self.common.lifecycle.has_stopped() {
            self.common.save(cx, None);
        }
    }

    fn after_super(&mut self, cx: &mut Cx, then: AfterSuper) {
        match then {
            AfterSuper::Ready => self.ready(cx),
            AfterSuper::SyncReady { number } => self.secondary.sync_ready(&mut self.common, cx, number),
            AfterSuper::Applied { upto, wall } => self.applied_recorded(cx, upto, wall),
            AfterSuper::Promoted { id, answer } => self.promoted(cx, id, answer),
            AfterSuper::Demoted { id, text, warn } => self.demoted(cx, id, text, warn),
            AfterSuper::Answer { id, result } => cx.answer(id, result),
            AfterSuper::PointGone { answer } => self.secondary.point_gone(&mut self.common, cx, answer),
            AfterSuper::PointDamaged => self.secondary.damage_recorded(&mut self.common, cx),
            AfterSuper::RollingBack => self.secondary.write_back(&mut self.common, cx),
            AfterSuper::RollbackGivenUp => {
                if self.secondary.rollback_given_up(&mut self.common, cx) {
                    self.say_hello(cx, FrameKind::GroupState);
                }
            }
            AfterSuper::FlushRecorded { volume, through, waiters } => {
                flush_recorded(&mut self.common, cx, volume, through, waiters)
            }
            AfterSuper::FlushFailed { waiters } => flush_failed(&mut self.common, cx, waiters),
            AfterSuper::NewGeneration => self.generation_recorded(cx),
            AfterSuper::ReplayCounted => self.secondary.replay_counted(&mut self.common, cx),
            AfterSuper::Reconciled => {
                if !self.primary.peer.begins_reconciled(&mut self.common, cx) {
                    self.primary.meet_if_apart(&mut self.common, cx);
                }
                self.bits_saved(cx);
            }
            AfterSuper::ServedUnverified => {
                if self.primary.peer.reconcile.serves_unverified(&mut self.common, cx) {
                    self.primary.meet_if_apart(&mut self.common, cx);
                }
                self.bits_saved(cx);
            }
            AfterSuper::StaysClosed { reported } => {
                if let Some(reported) = reported {
                    cx.event(self.common.id(), Event::Note(reported));
                }
            }
            AfterSuper::Stopped => {
                self.common.lifecycle.enter(Phase::Stopped);
            }
        }
    }

    pub fn cell_written(&mut self, cx: &mut Cx, index: usize, words: &[u64], ok: bool) {
        match self.common.bits().cell_written(cx, index, words, ok) {
            Ok(false) => {}
            Ok(true) => {
                self.bits_saved(cx);
                self.primary.pump_activity(&mut self.common, cx);
            }
            Err(broken) => {
                self.fail(cx, broken);
                self.bits_failed(cx);
            }
        }
    }

    /// The bits cannot be stored: whoever ordered what waits for them is told.
    fn bits_failed(&mut self, cx: &mut Cx) {
        for then in self.common.bitmap.take_waiting() {
            if let AfterBits::Demote { id } | AfterBits::Promote(Promotion { id, .. }) = then {
                self.common.lifecycle.enter(Phase::Running);
                cx.refuse(id, Broken::Bits.words());
            }
        }
    }

    /// Goes on with what has its bits on disk, at once if all of them stood there.
    pub fn bits_saved(&mut self, cx: &mut Cx) {
        while let Some(then) = self.common.bitmap.next_saved() {
            self.after_bits(cx, then);
        }
    }

    pub fn activity_written(&mut self, cx: &mut Cx, ok: bool) {
        let whole = self.common.activity.written(ok);
        if !ok {
            return self.fail(cx, Broken::Bits);
        }
        if whole && !self.log_emptied(cx) {
            self.primary.pump_activity(&mut self.common, cx);
        }
    }
}
