//! What goes on once something is on record: a superblock update, bits, the activity log.

use crate::Event;
use crate::common::Phase;
use crate::context::Cx;
use crate::formats::wire::Kind;
use crate::group::Group;
use crate::records::record::AfterSuper;
use crate::state::{Broken, State};

impl Group {
    /// A fault on purpose: goes on before what was to be recorded first is durable.
    pub fn go_on_unrecorded(&mut self, cx: &mut Cx) {
        loop {
            let then = self.common.followers_of_nothing();
            if then.is_empty() {
                return;
            }
            then.into_iter().for_each(|then| self.after_super(cx, then));
        }
    }

    pub fn super_done(&mut self, cx: &mut Cx, ok: bool) {
        match self.common.superblock_written(ok) {
            Err(broken) => {
                self.fail(cx, broken);
                return self.common.update_failed(cx);
            }
            // Nobody else says so any more.
            Ok(true) if matches!(self.common.state, State::Failed(_)) => self.say_hello(cx, Kind::GroupState),
            Ok(_) => {}
        }
        for then in self.common.followers_of_update(cx) {
            self.after_super(cx, then);
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
                    self.say_hello(cx, Kind::GroupState);
                }
            }
            AfterSuper::FlushRecorded { volume, through, waiters } => {
                self.common.flush_recorded(cx, volume, through, waiters)
            }
            AfterSuper::FlushFailed { waiters } => self.common.flush_failed(cx, waiters),
            AfterSuper::NewGeneration => self.generation_recorded(cx),
            AfterSuper::ReplayCounted => self.secondary.replay_counted(&mut self.common, cx),
            AfterSuper::Settled => {
                self.primary.reconciled_recorded(&mut self.common, cx);
                self.bits_saved(cx);
            }
            AfterSuper::ServedInDoubt => {
                self.primary.serves_in_doubt(&mut self.common, cx);
                self.bits_saved(cx);
            }
            AfterSuper::StaysClosed { told } => {
                if let Some(told) = told {
                    cx.event(self.common.id(), Event::Note(told));
                }
            }
            AfterSuper::Stopped => {
                self.common.phase = Phase::Stopped;
            }
        }
    }

    pub fn cell_written(&mut self, cx: &mut Cx, index: usize, words: &[u64], ok: bool) {
        match self.common.cell_written(cx, index, words, ok) {
            Ok(false) => {}
            Ok(true) => {
                self.bits_saved(cx);
                self.primary.pump_activity(&mut self.common, cx);
            }
            Err(broken) => {
                self.fail(cx, broken);
                self.common.refuse_waiting(cx);
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
        if whole && !self.secondary.start_activity_reset(&mut self.common, cx) {
            self.primary.pump_activity(&mut self.common, cx);
        }
    }
}
