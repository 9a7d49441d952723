//! The ordered stream to the peer: frames out, confirmations in, and what becomes of it when the link does.

use crate::common::Phase;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::wire::{Ack, Header, Kind, flags};
use crate::group::Group;
use crate::group::contradiction::ack_contradicts;
use crate::ids::*;
use crate::limits;
use crate::peer::queue::Body;
use crate::planted::{Fault, planted};
use crate::primary::write::{Level, frame_cost};
use crate::shared::link::LinkUse;
use crate::shared::marks::Mark;
use crate::shared::time::Mono;
use crate::shared::time::Wall;
use crate::shared::volume::Who;
use crate::state::{Mode, Pause, Policy, State};
use crate::{Event, SendPayload};

/// The ordered stream to the peer, on a primary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The peer may be sent to: it said SyncReady, or continued from the queue.
    pub open: bool,
    pub granted_bytes: u64,
    pub sent_bytes: u64,
    /// How often the peer's grant went back on this stream.
    pub recalls: u64,
    pub received: Seq,
    pub durable: Seq,
    pub applied: Seq,
    /// Writers follow the mode's promise for numbers above this.
    pub promise_from: Option<Seq>,
    /// When catching-up began.
    pub catching_up_since: Mono,
}

impl Group {
    /// The next frame of the stream, if the peer's window and the bytes allow it.
    pub fn next_frame(&mut self, cx: &mut Cx) -> Option<(Header, SendPayload)> {
        if self.primary.peer.cut.is_some() {
            return self.next_cut_frame(cx);
        }
        let flushed = self.flush_point();
        let owed = self.stream_owes();
        let stream = self.primary.peer.stream.as_mut().filter(|s| s.open)?;
        let item = self.primary.peer.queue.next_ready()?;
        let (kind, payload) = match &item.body {
            Body::Data(slice) => (Kind::Data, SendPayload::Data(slice.clone())),
            Body::Zero { .. } => (Kind::Zero, SendPayload::None),
            Body::Void => (Kind::Void, SendPayload::None),
            Body::Probe(hash) => (Kind::Probe, SendPayload::Control(hash.to_vec())),
            Body::SyncEnd => (Kind::SyncEnd, SendPayload::None),
            Body::Pending => return None,
        };
        let bytes = frame_cost(&payload);
        if stream.sent_bytes + bytes > stream.granted_bytes && !planted(Fault::WindowIgnored) {
            return None;
        }
        stream.sent_bytes += bytes;
        if !owed {
            self.primary.peer.stall.moved(cx.now.mono);
        }
        if kind == Kind::Void {
            cx.marks.hit(Mark::VoidSent);
        }
        let identity = &self.common.sb.current.identity;
        let header = Header {
            flags: item.flags | if matches!(item.body, Body::Zero { no_hole: true }) { flags::NO_HOLE } else { 0 },
            volume: item.volume,
            origin: self.common.node,
            incarnation: identity.incarnation,
            generation_tag: identity.generation.tag,
            seq: item.seq,
            offset: item.offset,
            length: item.length,
            wall: item.wall,
            flushed,
            ..Header::new(kind, cx.peer.session, self.common.config.id)
        };
        self.primary.peer.queue.advance(cx.now.mono);
        Some((header, payload))
    }

    /// The peer's three confirmations and its window, which went back `recalls` times on this stream.
    pub fn ack(&mut self, cx: &mut Cx, ack: Ack, recalls: u64) {
        if self.primary.peer.cut.is_some() {
            return self.cut_ack(cx, ack, recalls);
        }
        if self.primary.peer.stream.is_some_and(|s| !s.open) && self.primary.peer.resync.is_some() {
            // The sync waits to begin for what the peer cannot apply.
            return self.peer_paused(cx, ack.paused);
        }
        let sent = self.sent_through();
        let Some(stream) = self.primary.peer.stream.as_mut().filter(|s| s.open) else { return };
        if let Some(what) = ack_contradicts(&ack, [stream.received, stream.durable, stream.applied], sent) {
            return self.protocol_error(cx, what);
        }
        if ack.noted > ack.applied {
            return self.protocol_error(cx, "an acknowledgement that notes a flush of what it has not applied");
        }
        let before = (stream.received, stream.durable, stream.applied);
        (stream.received, stream.durable, stream.applied) = (ack.received, ack.durable, ack.applied);
        if before != (ack.received, ack.durable, ack.applied) {
            self.primary.peer.stall.moved(cx.now.mono);
        }
        (stream.granted_bytes, stream.recalls) = (ack.granted_bytes, recalls);
        self.confirmed(self.place(ack.applied));
        self.primary.peer.queue.confirm(ack.durable);
        self.common.volumes.iter_mut().for_each(|volume| volume.forget_kept(ack.noted));
        self.primary.peer.peer_wants_flush = ack.wants_flush;
        if ack.wants_flush {
            self.flush_for_peer(cx);
        }
        self.clear_bits(cx);
        self.release_acked(cx);
        self.sync_progress(cx);
        if self.primary.peer.resync.as_ref().is_none_or(|r| r.repair) {
            // In the middle of a sync the peer can present nothing newer than before it.
            self.peer_reached(cx, ack.applied_wall);
            self.primary.peer.recovered = Some(ack.applied);
        }
        self.peer_paused(cx, ack.paused);
        self.take_up_promise(cx);
        self.release_blocked(cx);
    }

    /// The peer could present the image of this instant.
    pub fn peer_reached(&mut self, cx: &Cx, wall: Wall) {
        if wall > self.primary.peer.applied_wall {
            (self.primary.peer.applied_wall, self.primary.peer.applied_wall_since) = (wall, cx.now.mono);
        }
    }

    /// The peer's journal fills with writes that are not flushed here: flush, and tell it.
    fn flush_for_peer(&mut self, cx: &mut Cx) {
        cx.marks.hit(Mark::FlushedForPeer);
        for index in 0..self.common.volumes.len() {
            let volume = &self.common.volumes[index];
            if volume.unflushed_bytes > 0 && volume.flushing.is_none() && !volume.latched {
                self.want_flush(cx, VolumeId(index as u16), Who::Engine);
            }
        }
        self.tell_primary_state(cx);
    }

    /// The peer stands at least here: what it said of itself when it was met is older.
    pub fn confirmed(&mut self, place: Position) {
        let known = &mut self.common.sb.current.confirmed;
        known.place = place;
        if let Some(hello) = self.common.hello.as_mut() {
            if !hello.identity.inconsistent {
                known.image = place;
            }
            let theirs = &mut hello.identity.position;
            let same_run = (theirs.generation, theirs.incarnation) == (place.generation, place.incarnation);
            if same_run && theirs.seq < place.seq {
                *theirs = place;
            }
        }
    }

    /// What this group is to its link.
    pub fn link_use(&self) -> LinkUse {
        let promises = matches!(self.common.settings.mode, Mode::Sync | Mode::Nearsync);
        let awaited = promises && self.primary.peer.stream.is_some_and(|stream| stream.promise_from.is_some());
        LinkUse { sends: self.primary.peer.stream.is_some() || self.primary.peer.cut.is_some(), awaited }
    }

    pub fn release_acked(&mut self, cx: &mut Cx) {
        let Some(stream) = self.primary.peer.stream else { return };
        while let Some(&(last, slot)) = self.primary.waiting_ack.front() {
            let confirmed = match self.common.slots.write(slot).level {
                Level::Local => last,
                Level::Received if planted(Fault::NearsyncAckTooEarly) => last,
                Level::Durable if planted(Fault::SyncAckTooEarly) => stream.received,
                Level::Received => stream.received,
                Level::Durable => stream.durable,
            };
            if last > confirmed {
                break;
            }
            self.primary.waiting_ack.pop_front();
            self.common.slots.write(slot).remote_done = true;
            self.finish(cx, slot);
        }
        self.end_window();
    }

    /// Once the group is in step and has all that was held, the next loss of the link opens a window of its own.
    fn end_window(&mut self) {
        let oldest = self.primary.waiting_ack.front().map(|&(_, slot)| self.common.slots.write(slot).since);
        let back = self.primary.peer.stream.map(|stream| stream.catching_up_since);
        if self.common.state == State::Replicating && oldest.is_none_or(|since| Some(since) > back) {
            self.primary.hold_until = None;
        }
    }

    pub fn peer_paused(&mut self, cx: &mut Cx, paused: Option<Pause>) {
        self.primary.peer.catch_up.resumes = false;
        if matches!(self.common.state, State::Paused(_)) && paused.map(State::Paused) != Some(self.common.state) {
            if paused.is_none() && self.syncs() && !cx.may_sync {
                return self.resume_in_turn(cx);
            }
            self.resume(cx);
        }
        if let Some(pause) = paused
            && matches!(self.common.state, State::Syncing | State::CatchingUp | State::Replicating)
        {
            self.transition(cx, State::Paused(pause), pause.words());
        }
    }

    pub fn resume(&mut self, cx: &mut Cx) {
        let back = if self.syncs() { State::Syncing } else { State::CatchingUp };
        self.primary.peer.catch_up.resumes = false;
        self.primary.peer.stall.moved(cx.now.mono);
        self.transition(cx, back, "the secondary has space again");
    }

    /// Takes up the mode's promise once the backlog is small, and says so once it holds.
    pub fn take_up_promise(&mut self, cx: &mut Cx) {
        if self.common.state != State::CatchingUp {
            return;
        }
        let Some(stream) = self.primary.peer.stream.as_mut().filter(|s| s.open) else { return };
        if stream.promise_from.is_none() {
            let due = cx.now.mono.since(stream.catching_up_since) >= limits::CATCH_UP_AFTER;
            let small = self.primary.peer.queue.bytes() <= limits::CATCH_UP_BYTES;
            if small || due || self.common.settings.mode == Mode::Async {
                stream.promise_from = Some(self.primary.peer.last_seq);
            } else {
                return self.set_timer(cx, GroupTimer::CatchUp, limits::CATCH_UP_AFTER);
            }
        }
        let Some(from) = stream.promise_from.filter(|from| *from <= stream.durable) else { return };
        // What was given before the promise may be answered under it: then it is durable here too.
        if self.common.settings.mode != Mode::Sync || self.flushed_through(cx, from) {
            self.transition(cx, State::Replicating, "");
            // The copy is made in this mode now.
            self.common.sb.current.primary_mode = None;
            self.end_window();
        }
    }

    /// From the next number on writers wait as the mode says: in `holding` nobody is answered alone.
    pub fn promise_from_here(&mut self) {
        let last = self.primary.peer.last_seq;
        if let Some(stream) = &mut self.primary.peer.stream {
            stream.promise_from.get_or_insert(last);
        }
    }

    /// A new stream: numbers after `last_seq` travel in order.
    pub fn begin_stream(&mut self, cx: &Cx) {
        assert!(self.primary.peer.stream.is_none() && self.primary.peer.queue.is_empty());
        self.primary.peer.stream = Some(Stream {
            open: false,
            granted_bytes: 0,
            sent_bytes: 0,
            recalls: 0,
            received: self.primary.peer.last_seq,
            durable: self.primary.peer.last_seq,
            applied: self.primary.peer.last_seq,
            promise_from: None,
            catching_up_since: cx.now.mono,
        });
    }

    /// The stream ends: what was outstanding is covered by its bits, which are set already (rule 10).
    pub fn end_stream(&mut self, cx: &mut Cx, why: &str) {
        let (items, bytes) = self.primary.peer.queue.clear();
        self.primary.peer.stream = None;
        (self.primary.hold_until, self.primary.peer.repair.again_at) = (None, None);
        if self.primary.peer.resync.take().is_some() {
            cx.marks.hit(Mark::SyncInterrupted);
        }
        self.common.volumes.iter_mut().for_each(|v| v.forget_stream());
        if items > 0 {
            cx.event(self.id(), Event::QueueDropped { items, bytes, why: why.into() });
        }
    }

    /// Ends the stream and answers everyone who waited for the peer: their regions are marked.
    pub fn fall_to_logging(&mut self, cx: &mut Cx, why: &str) {
        if self.primary.peer.stream.is_some() {
            self.end_stream(cx, why);
        }
        self.drop_cut(cx);
        self.transition(cx, State::Logging, why);
        if !self.primary.waiting_ack.is_empty() {
            cx.marks.hit(Mark::DegradeReleasedWriters);
        }
        self.release_waiting(cx);
        self.release_blocked(cx);
    }

    /// Who waits for the peer waits for no more of it than the mode asks now, as slow as the peer may be.
    pub fn wait_as_the_mode_says(&mut self, cx: &mut Cx) {
        match self.common.settings.mode {
            Mode::Async => self.release_waiting(cx),
            Mode::Nearsync => {
                for at in 0..self.primary.waiting_ack.len() {
                    let (_, slot) = self.primary.waiting_ack[at];
                    self.common.slots.write(slot).level = Level::Received;
                    self.stand_alone(cx, slot);
                }
                self.release_acked(cx);
            }
            Mode::Sync | Mode::Logging => {}
        }
    }

    /// Everyone who waited for the peer waits no longer; state or mode say already that nothing is promised of it.
    fn release_waiting(&mut self, cx: &mut Cx) {
        while let Some((_, slot)) = self.primary.waiting_ack.pop_front() {
            self.common.slots.write(slot).remote_done = true;
            self.stand_alone(cx, slot);
            self.finish(cx, slot);
        }
    }

    /// The session with the peer ended while this node is primary.
    pub fn stream_lost(&mut self, cx: &mut Cx, why: &str) {
        if self.primary.peer.cut.is_some() {
            return self.fall_to_logging(cx, why);
        }
        if self.primary.peer.stream.is_none() {
            if self.common.state == State::Logging && matches!(self.common.phase, Phase::Running) {
                self.transition(cx, State::Logging, why);
            }
            return;
        }
        let mid_sync = self.primary.peer.resync.as_ref().is_some_and(|r| !r.repair);
        if self.primary.peer.resync.as_ref().is_some_and(|r| r.repair) {
            // What it has not read yet is still to be sent.
            self.primary.peer.resync = None;
            self.primary.peer.repair.due = true;
            self.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
        }
        let ordered =
            matches!(self.common.state, State::CatchingUp | State::Replicating | State::Paused(_)) && !mid_sync;
        if matches!(self.common.state, State::Queuing | State::Holding) {
            return;
        }
        if ordered {
            self.void_pending();
        }
        if !ordered {
            return self.fall_to_logging(cx, why);
        }
        if let Some(stream) = &mut self.primary.peer.stream {
            stream.open = false;
        }
        if planted(Fault::AnsweredBeforeDegraded) {
            self.release_waiting(cx);
        }
        let holds = matches!(self.common.settings.policy, Policy::Hold(_) | Policy::Strict);
        if holds && matches!(self.common.settings.mode, Mode::Sync | Mode::Nearsync) {
            self.promise_from_here();
        }
        match (self.common.settings.mode, self.common.settings.policy) {
            (Mode::Async | Mode::Logging, _) => self.transition(cx, State::Queuing, why),
            (_, Policy::Degrade) => self.fall_to_logging(cx, why),
            (_, Policy::Hold(window)) => {
                // However often the link is lost until the group is in step again, it is one window.
                let until = *self.primary.hold_until.get_or_insert(cx.now.mono.plus(window));
                cx.timers.set(TimerKey::Group(self.id(), GroupTimer::HoldEnd), until);
                self.transition(cx, State::Holding, why);
            }
            (_, Policy::Strict) => self.transition(cx, State::Holding, why),
        }
        self.check_waits(cx);
    }

    /// A repair read may stand in the middle of the queue: its numbers never become writes, and it is read again later.
    pub fn void_pending(&mut self) {
        for (seq, volume, offset, length) in self.primary.peer.queue.pending() {
            self.primary.peer.queue.void(seq);
            self.primary.peer.queue.lighten(seq, crate::peer::queue::cost(0));
            self.volume(volume).mark_uncovered(offset, length);
        }
    }

    pub fn hold_ended(&mut self, cx: &mut Cx) {
        let holds = matches!(self.common.settings.policy, Policy::Hold(_));
        if self.common.state == State::Holding
            && holds
            && self.primary.hold_until.is_some_and(|until| until <= cx.now.mono)
        {
            cx.marks.hit(Mark::HoldEnded);
            self.fall_to_logging(cx, "the peer window ended");
        }
    }

    /// The mode became `async` while writers were held: they are answered, the queue keeps the order.
    pub fn stop_holding(&mut self, cx: &mut Cx) {
        self.primary.hold_until = None;
        self.transition(cx, State::Queuing, "the mode became async while the link was down");
        self.release_waiting(cx);
    }

    /// The queue goes on where the peer stands.
    pub fn continue_stream(&mut self, cx: &mut Cx, received: Seq, granted_bytes: u64) {
        cx.marks.hit(Mark::QueueContinued);
        self.primary.peer.queue.rewind(received);
        if self.primary.peer.queue.unsent_bytes() > 0 {
            cx.marks.hit(Mark::QueueRewound);
        }
        if self.common.state == State::Holding {
            cx.marks.hit(Mark::HoldSavedByReconnect);
        }
        let held = self.common.state == State::Holding;
        let stream = self.primary.peer.stream.as_mut().expect("only an existing stream continues");
        stream.open = true;
        (stream.granted_bytes, stream.sent_bytes, stream.recalls) = (granted_bytes, 0, 0);
        // A crash of the peer may have lost what it had received but not landed.
        stream.received = received;
        stream.catching_up_since = cx.now.mono;
        if !held {
            stream.promise_from = None;
        }
        self.transition(cx, State::CatchingUp, "the link is back, the queue continues");
        self.release_acked(cx);
        self.take_up_promise(cx);
    }
}
