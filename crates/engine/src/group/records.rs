//! What goes on once something is on record: a superblock update, bits, the activity log.

use alloc::format;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::wire::FrameKind;
use crate::group::{Group, equal, forks, peer_window, roles};
use crate::peer::{Peer, logging};
use crate::records::bits::AfterBits;
use crate::records::record::AfterSuper;
use crate::shared::lifecycle::{Phase, Promotion};
use crate::shared::wakes::Wake;
use crate::state::Broken;
use crate::{Event, RefusalCode, limits};

impl Group {
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
                    self.common.answer_flushes(cx, waiters, false);
                }
                AfterSuper::Answer { id, .. } => cx.refuse(id, RefusalCode::StoreFailed, Broken::Superblock.words()),
                AfterSuper::AssumedEqual { id, .. } => {
                    cx.refuse(id, RefusalCode::RecordUnknown, Broken::Superblock.words());
                }
                AfterSuper::ForkKept { id, .. } => {
                    // One of its slots may say it, and what the other node held is saved there.
                    let why = format!(
                        "{}; it is not known whether it is on record that this node's content is kept",
                        Broken::Superblock.words()
                    );
                    cx.refuse(id, RefusalCode::RecordUnknown, why);
                }
                AfterSuper::StaysSecondary { id, .. } => {
                    self.common.lifecycle.enter(Phase::Running);
                    cx.refuse(id, RefusalCode::StoreFailed, Broken::Superblock.words());
                }
                AfterSuper::PointGone { answer: Some((id, _)) } => {
                    // One of its slots may say it.
                    let why = format!(
                        "{}; it is not known whether the rollback point still stands",
                        Broken::Superblock.words()
                    );
                    cx.refuse(id, RefusalCode::RecordUnknown, why);
                }
                AfterSuper::Promoted { id, .. } | AfterSuper::Demoted { id, .. } => {
                    self.handover.ends();
                    self.common.lifecycle.enter(Phase::Running);
                    // One of its slots may say it.
                    let why = format!(
                        "{}; it is not known whether the new role is on record: put that right, then 'farshore reset GROUP' here, and \
                         see 'farshore status' before another node gets a role",
                        Broken::Superblock.words()
                    );
                    cx.refuse(id, RefusalCode::RecordUnknown, why);
                }
                _ => {}
            }
        }
        if self.common.sb.has_lost_caches() {
            self.common.set_timer(cx, GroupTimer::RecordAgain, limits::RECORD_AGAIN_AFTER);
        }
    }

    pub fn after_super(&mut self, cx: &mut Cx, then: AfterSuper) {
        match then {
            AfterSuper::Ready => self.ready(cx),
            AfterSuper::WindowRecorded { window } => peer_window::recorded(&mut self.common, window),
            AfterSuper::SyncReady { number } => self.secondary.sync_ready(&mut self.common, cx, number),
            AfterSuper::Applied { upto, wall } => {
                if self.secondary.replica.note_applied(&mut self.common, cx, upto, wall) {
                    if self.secondary.begins_stream() {
                        // No acknowledgements before the new stream: this says that what was before it gets on.
                        self.say_hello(cx, FrameKind::GroupState);
                    }
                    self.secondary.replica.goes_on_applying(&mut self.common, cx);
                }
            }
            AfterSuper::Promoted { id, answer } => self.promoted(cx, id, answer),
            AfterSuper::Demoted { id, text, warn } => self.demoted(cx, id, text, warn),
            AfterSuper::Answer { id, result } => cx.answer(id, result),
            AfterSuper::PointGone { answer } => {
                self.secondary.point_gone(&mut self.common, cx, answer);
                if !self.common.is_starting() {
                    // In the middle of a sync the copy holds no image from here on.
                    self.say_hello(cx, FrameKind::GroupState);
                }
            }
            AfterSuper::AssumedEqual { id, is_first } => {
                equal::recorded(&mut self.primary, &mut self.common, cx, id, is_first);
            }
            AfterSuper::PointDamaged => self.secondary.damage_recorded(&mut self.common, cx),
            AfterSuper::RollingBack => self.secondary.write_back(&mut self.common, cx),
            AfterSuper::RollbackGivenUp => {
                if self.secondary.rollback_given_up(&mut self.common, cx) {
                    self.say_hello(cx, FrameKind::GroupState);
                }
            }
            AfterSuper::StaysSecondary { id, code, why } => roles::stays_secondary(self, cx, id, (code, why)),
            AfterSuper::FlushRecorded { volume, through, waiters } => {
                self.common.flush_recorded(cx, volume, through, waiters)
            }
            AfterSuper::FlushFailed { waiters } => self.common.answer_flushes(cx, waiters, false),
            AfterSuper::NewGeneration => self.generation_recorded(cx),
            AfterSuper::ForkKept { id, text } => forks::kept(self, cx, id, text),
            AfterSuper::ReplayCounted => self.secondary.replay_counted(&mut self.common, cx),
            AfterSuper::Reconciled => {
                if !self.primary.peer.begins_reconciled(&mut self.common, cx) {
                    self.primary.meet_if_apart(&mut self.common, cx);
                }
            }
            AfterSuper::ServedUnverified => {
                let Peer { reconcile, greeting, .. } = &mut self.primary.peer;
                if reconcile.serves_unverified(&mut self.common, cx, greeting) {
                    self.primary.meet_if_apart(&mut self.common, cx);
                }
            }
            AfterSuper::StaysClosed { reported } => {
                if let Some(reported) = reported {
                    cx.event(self.common.id(), Event::Note(reported));
                }
            }
            AfterSuper::QueueLogOpened => logging::opened(&mut self.primary.peer.outbox, &mut self.common, cx),
            AfterSuper::QueueRedo => logging::redo_marked(&mut self.primary.peer.outbox, &mut self.common, cx),
            AfterSuper::QueueLogClosed => logging::closed(&mut self.primary.peer.outbox, &mut self.common),
            AfterSuper::Stopped => {
                self.common.lifecycle.enter(Phase::Stopped);
            }
        }
    }

    pub fn cell_written(&mut self, cx: &mut Cx, index: usize, words: &[u64], ok: bool) {
        match self.common.bits().cell_written(cx, index, words, ok) {
            Ok(false) => {}
            Ok(true) => {
                self.common.wake(Wake::Covered);
            }
            Err(broken) => {
                self.fail(cx, broken);
                // The bits cannot be stored: whoever ordered what waits for them is told.
                for then in self.common.bitmap.take_waiting() {
                    if let AfterBits::Demote { id } | AfterBits::Promote { promotion: Promotion { id, .. }, .. } = then
                    {
                        self.handover.ends();
                        self.common.lifecycle.enter(Phase::Running);
                        cx.refuse(id, RefusalCode::StoreFailed, Broken::Bits.words());
                    }
                }
            }
        }
    }

    pub fn activity_written(&mut self, cx: &mut Cx, ok: bool) {
        let whole = self.common.activity.written(ok);
        if !ok {
            return self.fail(cx, Broken::Bits);
        }
        if whole && !self.log_emptied(cx) {
            self.common.wake(Wake::Covered);
        }
    }
}
