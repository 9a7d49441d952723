//! What the stream means for writers: whom a confirmation answers, who is held when the link is lost, who goes on.

use crate::common::{Common, Phase};
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::wire::Ack;
use crate::group::contradiction::ack_contradicts;
use crate::ids::*;
use crate::planted::{Fault, planted};
use crate::primary::Primary;
use crate::primary::write::Level;
use crate::shared::marks::Mark;
use crate::state::{Mode, Policy, State};
use crate::{Event, limits};

impl Primary {
    /// The peer's three confirmations and its window, which went back `recalls` times on this stream.
    pub fn ack(&mut self, common: &mut Common, cx: &mut Cx, ack: Ack, recalls: u64) {
        if self.peer.cut.is_some() {
            return self.cut_ack(common, cx, ack, recalls);
        }
        if self.peer.stream.is_some_and(|s| !s.open) && self.peer.resync.is_some() {
            // The sync waits to begin for what the peer cannot apply.
            return self.peer.peer_paused(common, cx, ack.paused);
        }
        let sent = self.peer.sent_through();
        let Some(stream) = self.peer.stream.as_mut().filter(|s| s.open) else { return };
        if let Some(what) = ack_contradicts(&ack, [stream.received, stream.durable, stream.applied], sent) {
            return common.protocol_error(cx, what);
        }
        if ack.noted > ack.applied {
            return common.protocol_error(cx, "an acknowledgement that notes a flush of what it has not applied");
        }
        let before = (stream.received, stream.durable, stream.applied);
        (stream.received, stream.durable, stream.applied) = (ack.received, ack.durable, ack.applied);
        if before != (ack.received, ack.durable, ack.applied) {
            self.peer.stall.moved(cx.now.mono);
        }
        (stream.granted_bytes, stream.recalls) = (ack.granted_bytes, recalls);
        common.confirmed(common.place(ack.applied));
        self.peer.queue.confirm(ack.durable);
        common.volumes.iter_mut().for_each(|volume| volume.forget_kept(ack.noted));
        self.peer.peer_wants_flush = ack.wants_flush;
        if ack.wants_flush {
            self.peer.flush_for_peer(common, cx);
        }
        self.peer.clear_bits(common, cx);
        self.release_acked(common, cx);
        self.peer.sync_progress(common, cx);
        if self.peer.resync.as_ref().is_none_or(|r| r.repair) {
            // In the middle of a sync the peer can present nothing newer than before it.
            self.peer.peer_reached(cx, ack.applied_wall);
            self.peer.recovered = Some(ack.applied);
        }
        self.peer.peer_paused(common, cx, ack.paused);
        self.take_up_promise(common, cx);
        self.release_blocked(common, cx);
    }

    pub fn release_acked(&mut self, common: &mut Common, cx: &mut Cx) {
        let Some(stream) = self.peer.stream else { return };
        while let Some(&(last, slot)) = self.waiting_ack.front() {
            let confirmed = match common.slots.write(slot).level {
                Level::Local => last,
                Level::Received if planted(Fault::NearsyncAckTooEarly) => last,
                Level::Durable if planted(Fault::SyncAckTooEarly) => stream.received,
                Level::Received => stream.received,
                Level::Durable => stream.durable,
            };
            if last > confirmed {
                break;
            }
            self.waiting_ack.pop_front();
            common.slots.write(slot).remote_done = true;
            common.finish(cx, slot);
        }
        self.end_window(common);
    }

    /// Once the group is in step and has all that was held, the next loss of the link opens a window of its own.
    fn end_window(&mut self, common: &mut Common) {
        let oldest = self.waiting_ack.front().map(|&(_, slot)| common.slots.write(slot).since);
        let back = self.peer.stream.map(|stream| stream.catching_up_since);
        if common.state == State::Replicating && oldest.is_none_or(|since| Some(since) > back) {
            self.hold_until = None;
        }
    }

    /// Takes up the mode's promise once the backlog is small, and says so once it holds.
    pub fn take_up_promise(&mut self, common: &mut Common, cx: &mut Cx) {
        if common.state != State::CatchingUp {
            return;
        }
        let Some(stream) = self.peer.stream.as_mut().filter(|s| s.open) else { return };
        if stream.promise_from.is_none() {
            let due = cx.now.mono.since(stream.catching_up_since) >= limits::CATCH_UP_AFTER;
            let small = self.peer.queue.bytes() <= limits::CATCH_UP_BYTES;
            if small || due || common.settings.mode == Mode::Async {
                stream.promise_from = Some(self.peer.numbers.last());
            } else {
                return common.set_timer(cx, GroupTimer::CatchUp, limits::CATCH_UP_AFTER);
            }
        }
        let Some(from) = stream.promise_from.filter(|from| *from <= stream.durable) else { return };
        // What was given before the promise may be answered under it: then it is durable here too.
        if common.settings.mode != Mode::Sync || self.peer.numbers.flushed_through(common, cx, from) {
            self.peer.transition(common, cx, State::Replicating, "");
            // The copy is made in this mode now.
            common.sb.current.primary_mode = None;
            self.end_window(common);
        }
    }

    /// The stream ends: what was outstanding is covered by its bits, which are set already (rule 10).
    pub fn end_stream(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        let (items, bytes) = self.peer.queue.clear();
        self.peer.stream = None;
        (self.hold_until, self.peer.repair.again_at) = (None, None);
        if self.peer.resync.take().is_some() {
            cx.marks.hit(Mark::SyncInterrupted);
        }
        common.volumes.iter_mut().for_each(|v| v.forget_stream());
        if items > 0 {
            cx.event(common.id(), Event::QueueDropped { items, bytes, why: why.into() });
        }
    }

    /// Ends the stream and answers everyone who waited for the peer: their regions are marked.
    pub fn fall_to_logging(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        if self.peer.stream.is_some() {
            self.end_stream(common, cx, why);
        }
        self.drop_cut(common, cx);
        self.peer.transition(common, cx, State::Logging, why);
        if !self.waiting_ack.is_empty() {
            cx.marks.hit(Mark::DegradeReleasedWriters);
        }
        self.release_waiting(common, cx);
        self.release_blocked(common, cx);
    }

    /// Who waits for the peer waits for no more of it than the mode asks now, as slow as the peer may be.
    pub fn wait_as_the_mode_says(&mut self, common: &mut Common, cx: &mut Cx) {
        match common.settings.mode {
            Mode::Async => self.release_waiting(common, cx),
            Mode::Nearsync => {
                for at in 0..self.waiting_ack.len() {
                    let (_, slot) = self.waiting_ack[at];
                    common.slots.write(slot).level = Level::Received;
                    self.peer.numbers.stand_alone(common, cx, slot);
                }
                self.release_acked(common, cx);
            }
            Mode::Sync | Mode::Logging => {}
        }
    }

    /// Everyone who waited for the peer waits no longer; state or mode say already that nothing is promised of it.
    fn release_waiting(&mut self, common: &mut Common, cx: &mut Cx) {
        while let Some((_, slot)) = self.waiting_ack.pop_front() {
            common.slots.write(slot).remote_done = true;
            self.peer.numbers.stand_alone(common, cx, slot);
            common.finish(cx, slot);
        }
    }

    /// The session with the peer ended while this node is primary.
    pub fn stream_lost(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        if self.peer.cut.is_some() {
            return self.fall_to_logging(common, cx, why);
        }
        if self.peer.stream.is_none() {
            if common.state == State::Logging && matches!(common.phase, Phase::Running) {
                self.peer.transition(common, cx, State::Logging, why);
            }
            return;
        }
        let mid_sync = self.peer.resync.as_ref().is_some_and(|r| !r.repair);
        if self.peer.resync.as_ref().is_some_and(|r| r.repair) {
            // What it has not read yet is still to be sent.
            self.peer.resync = None;
            self.peer.repair.due = true;
            common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
        }
        let ordered = matches!(common.state, State::CatchingUp | State::Replicating | State::Paused(_)) && !mid_sync;
        if matches!(common.state, State::Queuing | State::Holding) {
            return;
        }
        if ordered {
            self.peer.void_pending(common);
        }
        if !ordered {
            return self.fall_to_logging(common, cx, why);
        }
        if let Some(stream) = &mut self.peer.stream {
            stream.open = false;
        }
        if planted(Fault::AnsweredBeforeDegraded) {
            self.release_waiting(common, cx);
        }
        let holds = matches!(common.settings.policy, Policy::Hold(_) | Policy::Strict);
        if holds && matches!(common.settings.mode, Mode::Sync | Mode::Nearsync) {
            self.peer.promise_from_here();
        }
        match (common.settings.mode, common.settings.policy) {
            (Mode::Async | Mode::Logging, _) => self.peer.transition(common, cx, State::Queuing, why),
            (_, Policy::Degrade) => self.fall_to_logging(common, cx, why),
            (_, Policy::Hold(window)) => {
                // However often the link is lost until the group is in step again, it is one window.
                let until = *self.hold_until.get_or_insert(cx.now.mono.plus(window));
                cx.timers.set(TimerKey::Group(common.id(), GroupTimer::HoldEnd), until);
                self.peer.transition(common, cx, State::Holding, why);
            }
            (_, Policy::Strict) => self.peer.transition(common, cx, State::Holding, why),
        }
        self.check_waits(common, cx);
    }

    pub fn hold_ended(&mut self, common: &mut Common, cx: &mut Cx) {
        let holds = matches!(common.settings.policy, Policy::Hold(_));
        if common.state == State::Holding && holds && self.hold_until.is_some_and(|until| until <= cx.now.mono) {
            cx.marks.hit(Mark::HoldEnded);
            self.fall_to_logging(common, cx, "the peer window ended");
        }
    }

    /// The mode became `async` while writers were held: they are answered, the queue keeps the order.
    pub fn stop_holding(&mut self, common: &mut Common, cx: &mut Cx) {
        self.hold_until = None;
        self.peer.transition(common, cx, State::Queuing, "the mode became async while the link was down");
        self.release_waiting(common, cx);
    }

    /// The queue goes on where the peer stands.
    pub fn continue_stream(&mut self, common: &mut Common, cx: &mut Cx, received: Seq, granted_bytes: u64) {
        cx.marks.hit(Mark::QueueContinued);
        self.peer.queue.rewind(received);
        if self.peer.queue.unsent_bytes() > 0 {
            cx.marks.hit(Mark::QueueRewound);
        }
        if common.state == State::Holding {
            cx.marks.hit(Mark::HoldSavedByReconnect);
        }
        let held = common.state == State::Holding;
        let stream = self.peer.stream.as_mut().expect("only an existing stream continues");
        stream.open = true;
        (stream.granted_bytes, stream.sent_bytes, stream.recalls) = (granted_bytes, 0, 0);
        // A crash of the peer may have lost what it had received but not landed.
        stream.received = received;
        stream.catching_up_since = cx.now.mono;
        if !held {
            stream.promise_from = None;
        }
        self.peer.transition(common, cx, State::CatchingUp, "the link is back, the queue continues");
        self.release_acked(common, cx);
        self.take_up_promise(common, cx);
    }
}
