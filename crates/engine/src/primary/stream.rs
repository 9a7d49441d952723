//! What the stream means for writers: whom a confirmation answers, who is held when the link is lost, who goes on.

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::wire::Ack;
use crate::injected_fault::{Fault, injected};
use crate::peer::stream::PeerStream;
use crate::peer::streaming::LostLink;
use crate::primary::Primary;
use crate::primary::alone::degrade;
use crate::primary::steps::{note_confirmed, note_wait};
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::PEER_FAILED;
use crate::shared::wakes::Wake;
use crate::shared::write::AckLevel;
use crate::state::{Mode, Policy, State};
use alloc::format;

impl Primary {
    /// The peer's three confirmations and its window, which went back `recalls` times on this stream.
    pub fn ack(&mut self, common: &mut GroupCommon, cx: &mut Cx, ack: Ack, recalls: u64) {
        if self.peer.outbox.goes_by_snapshots() {
            return self.snapshot_ack(common, cx, ack, recalls);
        }
        if !self.peer.confirm(common, cx, &ack, recalls) {
            return;
        }
        self.release_acked(common, cx);
        note_confirmed(self, common, cx);
        self.peer.go_on_confirmed(common, cx, &ack);
        common.wake(Wake::Promise);
        common.wake(Wake::Room);
    }

    pub fn release_acked(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some(stream) = self.peer.outbox.stream() else { return };
        while let Some((last, slot)) = self.waiters.first_for_peer() {
            if !stream.has(common.slots.write(slot).level, last) {
                break;
            }
            self.waiters.leave_peer();
            let done_here = common.slots.write(slot).done_here();
            note_wait(&mut self.ladder, common, cx, done_here, stream.catching_up_since());
            let op = common.slots.write(slot);
            (op.remote_done, op.peer_has_it) = (true, true);
            common.finish(cx, slot);
        }
        self.end_window(common);
    }

    /// Once the group is in step and has all that was held, the next loss of the link opens a window of its own.
    fn end_window(&mut self, common: &mut GroupCommon) {
        let oldest = self.waiters.first_for_peer().map(|(_, slot)| common.slots.write(slot).since);
        let back = self.peer.outbox.stream().map(PeerStream::catching_up_since);
        if self.peer.state(common) == State::Replicating && oldest.is_none_or(|since| Some(since) > back) {
            self.window.forget();
        }
    }

    /// Takes up the mode's promise once the backlog is small, and says so once it holds.
    pub fn take_up_promise(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if self.peer.state(common) == State::CatchingUp && self.peer.take_up_promise(common, cx) {
            self.end_window(common);
        }
    }

    /// The stream ends: what was outstanding is covered by its bits, which are set already (rule 10).
    pub fn end_stream(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        self.window.forget();
        self.peer.end_stream(common, cx, why);
    }

    /// Ends the stream and answers everyone who waited for the peer: their regions are dirty.
    pub fn fall_to_logging(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        if self.peer.outbox.streams() {
            self.end_stream(common, cx, why);
        }
        self.drop_snapshot(common, cx);
        self.peer.report_state(common, cx, why);
        if !self.waiters.nobody_waits_for_peer() {
            cx.coverage.hit(CoveragePoint::DegradeReleasedWriters);
        }
        self.release_waiting(common, cx);
        common.wake(Wake::Room);
    }

    /// Who waits for the peer waits for no more of it than the mode asks now, as slow as the peer may be.
    pub fn wait_as_the_mode_says(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        match common.settings.mode {
            Mode::Async | Mode::Superasync => self.release_waiting(common, cx),
            Mode::Nearsync => {
                let mut at = 0;
                let both_have_it = self.peer.outbox.has_what_was_acknowledged(common);
                while let Some(slot) = self.waiters.for_peer_at(at) {
                    at += 1;
                    common.slots.write(slot).level = AckLevel::Received;
                    common.stand_alone(cx, slot, both_have_it);
                }
                self.release_acked(common, cx);
            }
            Mode::Sync | Mode::Logging => {}
        }
    }

    /// Everyone who waited for the peer waits no longer; state or mode say already that nothing is promised of it.
    pub fn release_waiting(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let both_have_it = self.peer.outbox.has_what_was_acknowledged(common);
        while let Some(slot) = self.waiters.leave_peer() {
            common.slots.write(slot).remote_done = true;
            common.stand_alone(cx, slot, both_have_it);
            common.finish(cx, slot);
        }
    }

    /// The session with the peer ended while this node is primary.
    pub fn stream_lost(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        match self.peer.link_lost(common, cx) {
            LostLink::Nothing if self.peer.state(common) == State::Logging && common.lifecycle.is_running() => {
                return self.peer.report_state(common, cx, why);
            }
            LostLink::Nothing => return,
            LostLink::Before => return self.peer.report_state(common, cx, why),
            LostLink::Sync => return self.fall_to_logging(common, cx, why),
            LostLink::Stream => {}
        }
        if injected(Fault::AnsweredBeforeDegraded) {
            self.release_waiting(common, cx);
        }
        let holds = matches!(common.settings.policy, Policy::Hold(_) | Policy::Strict);
        if holds && common.settings.mode.promises() {
            self.peer.outbox.promise_from_here();
        }
        match (common.settings.mode, common.settings.policy) {
            (Mode::Async | Mode::Superasync | Mode::Logging, _) => self.peer.outbox.keep_order(false),
            (_, Policy::Degrade) => {
                self.peer.outbox.keep_order(false);
                return degrade(self, common, cx, why);
            }
            (_, Policy::Hold(window)) => {
                let until = self.window.open(cx.now.mono, window);
                cx.timers.set(TimerKey::Group(common.id(), GroupTimer::HoldEnd), until);
                self.peer.outbox.keep_order(true);
            }
            (_, Policy::Strict) => self.peer.outbox.keep_order(true),
        }
        self.peer.report_state(common, cx, why);
        common.wake(Wake::Waits);
    }

    pub fn hold_ended(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let holds = matches!(common.settings.policy, Policy::Hold(_));
        if self.peer.state(common) == State::Holding && holds && self.window.is_over(cx.now.mono) {
            cx.coverage.hit(CoveragePoint::HoldEnded);
            if self.peer.greeting.hello().is_some_and(|hello| hello.failed) {
                // It does not come back before it is restarted: as in `async`, nothing is kept for it.
                return self.fall_to_logging(common, cx, &format!("the peer window ended; {PEER_FAILED}"));
            }
            degrade(self, common, cx, "the peer window ended");
        }
    }
}
