//! Taking up a group: superblock, dirty regions, journal replay (secondary), then a new incarnation, durable before the
//! first number or batch of this run (rule 5).
//!
//! ```text
//! files durable -> superblock -> bitmap -> activity log -> [bits stored, log emptied] -> [secondary: replay; primary: the
//!               log of its queue] -> flush -> record -> ready
//! ```

use alloc::format;

use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Role;
use crate::formats::wire::FrameKind;
use crate::group::{Group, peer_window, reset};
use crate::peer::logging;
use crate::records::start::CannotStart;
use crate::shared::lifecycle::{Phase, StartStage};
use crate::{Event, IoResult, limits};

/// The volumes are flushed, and the marks of the journal have their slots: what is recorded now could not bring one back. Called after every
/// input.
pub(crate) fn flushed(group: &mut Group, cx: &mut Cx) {
    let is_flushed = matches!(group.common.lifecycle.stage(), Some(StartStage::Flush { left: 0 }));
    if !is_flushed || group.common.has_failed() || !group.common.marks.is_durable() {
        return;
    }
    logging::redo_flushed(&mut group.primary.peer.outbox, &mut group.common);
    // Not before: an update of the superblock that others wait for would call whole what the caches may lose.
    group.secondary.end_replay(&mut group.common);
    group.common.start().record(cx);
}

impl Group {
    pub fn start_failed(&mut self, cx: &mut Cx, cannot: CannotStart) {
        let (broken, why) = cannot.into_text();
        cx.event(self.common.id(), Event::Note(why.clone()));
        self.common.lifecycle.enter(Phase::Running);
        self.secondary.forget_start();
        self.fail(cx, broken);
        let unknown = self.common.sb.lost_unrecorded() && !self.common.sb.has_lost_caches();
        self.common.standing.explain(if unknown { format!("{why}{}", reset::NOT_ON_RECORD) } else { why });
    }

    pub fn ready(&mut self, cx: &mut Cx) {
        if self.common.lifecycle.stage().is_none() || self.common.has_failed() {
            // Stopped while starting, or failed.
            return;
        }
        self.common.lifecycle.enter(Phase::Running);
        self.marks.starts();
        peer_window::remember(&mut self.common, cx.now.mono);
        self.secondary.may_count();
        self.common.bits().store_device_sizes(cx);
        if self.common.sb.rollback_point.id == 0 && !self.common.sb.drops_point() {
            self.secondary.empty_undo(&mut self.common);
        }
        let goes_on = logging::take_up(&mut self.primary.peer.outbox, &mut self.common, cx);
        let identity = self.common.sb.identity;
        cx.event(
            self.common.id(),
            Event::Ready {
                role: identity.role,
                incarnation: identity.incarnation,
                generation: identity.generation,
                clean: !self.common.sb.compare,
            },
        );
        self.primary.peer.report_state(&mut self.common, cx, "waiting for the peer");
        if !goes_on {
            self.primary.fall_to_logging(&mut self.common, cx, "the queue is not to be kept");
        }
        let is_seen_to = reset::is_ready(self, cx);
        if identity.role == Role::Primary && !is_seen_to {
            let peer = &mut self.primary.peer;
            peer.reconcile.open_or_fence(&mut self.common, cx, &peer.greeting);
        }
        if cx.peer.link.is_some() {
            self.secondary.new_session();
            self.say_hello(cx, FrameKind::GroupHello);
            self.common.set_timer(cx, GroupTimer::Greeting, limits::GREETING_LATE_AFTER);
            if let Some(hello) = self.primary.peer.greeting.take_early() {
                self.peer_hello(cx, hello);
            }
        }
    }

    /// A read or flush of the start completed.
    pub fn start_read_done(&mut self, cx: &mut Cx, result: IoResult) -> Result<(), CannotStart> {
        match self.common.lifecycle.stage() {
            None => Ok(()),
            Some(StartStage::Undo) => self.secondary.undo_read(&mut self.common, cx, result),
            Some(StartStage::Replay) => self.secondary.replay_read(&mut self.common, cx, result),
            Some(StartStage::Superblocks { .. }) => {
                self.common.start().read_done(cx, result)?;
                self.secondary.replica.take_up_journal(&self.common);
                Ok(())
            }
            Some(StartStage::QueueFlush | StartStage::QueueHead | StartStage::QueueRead | StartStage::QueueWrite) => {
                logging::redo_done(&mut self.primary.peer.outbox, &mut self.common, cx, result)
            }
            Some(StartStage::Flush { .. }) => {
                self.common.start().volume_flushed(result)?;
                Ok(())
            }
            Some(_) => self.common.start().read_done(cx, result),
        }
    }

    /// The log on disk is empty; false: this is no start.
    pub fn log_emptied(&mut self, cx: &mut Cx) -> bool {
        if !self.common.lifecycle.is_at(StartStage::EmptyingLog) {
            return false;
        }
        if self.common.activity.is_young() {
            self.common.start().reset_activity(cx);
            return true;
        }
        let known = self.common.sb.update > 0;
        match self.common.role() {
            Role::Secondary if known && self.common.sb.rollback_point.id != 0 => {
                self.secondary.begin_scan(&mut self.common, cx)
            }
            Role::Secondary if known => self.secondary.begin_replay(&mut self.common, cx),
            Role::Primary if logging::may_redo(&self.primary.peer.outbox, &self.common) => {
                logging::begin_redo(&mut self.primary.peer.outbox, &mut self.common, cx);
            }
            _ => {
                if let Err(cannot) = logging::goes_on_without(&mut self.common) {
                    self.start_failed(cx, cannot);
                    return true;
                }
                self.common.start().flush_then_record(cx);
            }
        }
        true
    }
}
