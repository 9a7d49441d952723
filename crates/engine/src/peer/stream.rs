//! The ordered stream to the peer: frames out, confirmations in, and what becomes of it when the link does.

use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::formats::wire::{Ack, Header, Kind, flags};
use crate::group::contradiction::ack_contradicts;
use crate::ids::*;
use crate::peer::Peer;
use crate::peer::queue::Body;
use crate::planted::{Fault, planted};
use crate::primary::write::{Level, frame_cost};
use crate::shared::link::LinkUse;
use crate::shared::marks::Mark;
use crate::shared::time::{Mono, Wall};
use crate::shared::volume::Who;
use crate::state::{Mode, Pause, State};
use crate::{Event, SendPayload, limits};

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

/// What a lost link takes away.
pub(crate) enum Lost {
    /// Nothing was sent.
    Nothing,
    /// It was lost before, and writers wait, or queue.
    Before,
    /// A sync: what it was about is still marked.
    Sync,
    /// A stream in its order: the queue keeps it.
    Stream,
}

impl Stream {
    fn new(last: Seq, now: Mono) -> Stream {
        Stream {
            open: false,
            granted_bytes: 0,
            sent_bytes: 0,
            recalls: 0,
            received: last,
            durable: last,
            applied: last,
            promise_from: None,
            catching_up_since: now,
        }
    }

    /// Whether the peer has the write of this number as its writer asks.
    pub fn has(&self, level: Level, last: Seq) -> bool {
        let confirmed = match level {
            Level::Local => last,
            Level::Received if planted(Fault::NearsyncAckTooEarly) => last,
            Level::Durable if planted(Fault::SyncAckTooEarly) => self.received,
            Level::Received => self.received,
            Level::Durable => self.durable,
        };
        last <= confirmed
    }

    pub fn catching_up_since(&self) -> Mono {
        self.catching_up_since
    }

    /// Writers follow the mode's promise.
    pub fn is_promised(&self) -> bool {
        self.promise_from.is_some()
    }

    /// The peer's three numbers and its window. True: it got on.
    fn confirm(&mut self, ack: &Ack, recalls: u64) -> bool {
        let before = (self.received, self.durable, self.applied);
        (self.received, self.durable, self.applied) = (ack.received, ack.durable, ack.applied);
        (self.granted_bytes, self.recalls) = (ack.granted_bytes, recalls);
        before != (ack.received, ack.durable, ack.applied)
    }

    /// The link is back, and the peer stands there.
    fn reopen(&mut self, received: Seq, granted_bytes: u64, now: Mono, keeps_promise: bool) {
        self.open = true;
        (self.granted_bytes, self.sent_bytes, self.recalls) = (granted_bytes, 0, 0);
        // A crash of the peer may have lost what it had received but not landed.
        self.received = received;
        self.catching_up_since = now;
        self.promise_from = self.promise_from.filter(|_| keeps_promise);
    }
}

impl Peer {
    /// The ordered stream, if there is one.
    pub fn stream(&self) -> Option<&Stream> {
        self.stream.as_ref()
    }

    pub fn streams(&self) -> bool {
        self.stream.is_some()
    }

    /// Nothing is sent, in no way.
    pub fn is_apart(&self) -> bool {
        self.stream.is_none() && self.cut.is_none()
    }

    /// The peer's three confirmations and its window, while there is no cut. True: they were taken.
    pub fn confirm(&mut self, common: &mut Common, cx: &mut Cx, ack: &Ack, recalls: u64) -> bool {
        if self.stream.is_some_and(|s| !s.open) && self.resync.is_some() {
            // The sync waits to begin for what the peer cannot apply.
            self.peer_paused(common, cx, ack.paused);
            return false;
        }
        let sent = self.sent_through();
        let Some(stream) = self.stream.as_mut().filter(|s| s.open) else { return false };
        if let Some(what) = ack_contradicts(ack, [stream.received, stream.durable, stream.applied], sent) {
            common.protocol_error(cx, what);
            return false;
        }
        if ack.noted > ack.applied {
            common.protocol_error(cx, "an acknowledgement that notes a flush of what it has not applied");
            return false;
        }
        if stream.confirm(ack, recalls) {
            self.stall.moved(cx.now.mono);
        }
        common.confirmed(common.place(ack.applied));
        self.queue.confirm(ack.durable);
        common.volumes.iter_mut().for_each(|volume| volume.forget_kept(ack.noted));
        self.peer_wants_flush = ack.wants_flush;
        if ack.wants_flush {
            self.flush_for_peer(common, cx);
        }
        self.clear_bits(common, cx);
        true
    }

    /// Confirmations were taken, and writers have their answers.
    pub fn go_on_confirmed(&mut self, common: &mut Common, cx: &mut Cx, ack: &Ack) {
        self.sync_progress(common, cx);
        if self.resync.as_ref().is_none_or(|r| r.repair) {
            // In the middle of a sync the peer can present nothing newer than before it.
            self.peer_reached(cx, ack.applied_wall);
            self.recovered = Some(ack.applied);
        }
        self.peer_paused(common, cx, ack.paused);
    }

    /// Takes up the mode's promise once the backlog is small. True: it holds from now on.
    pub fn take_up_promise(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let Some(stream) = self.stream.as_mut().filter(|s| s.open) else { return false };
        if stream.promise_from.is_none() {
            let due = cx.now.mono.since(stream.catching_up_since) >= limits::CATCH_UP_AFTER;
            let small = self.queue.bytes() <= limits::CATCH_UP_BYTES;
            if !small && !due && common.settings.mode != Mode::Async {
                common.set_timer(cx, GroupTimer::CatchUp, limits::CATCH_UP_AFTER);
                return false;
            }
            stream.promise_from = Some(self.numbers.last());
        }
        let Some(from) = stream.promise_from.filter(|from| *from <= stream.durable) else { return false };
        // What was given before the promise may be answered under it: then it is durable here too.
        if common.settings.mode == Mode::Sync && !self.numbers.flushed_through(common, cx, from) {
            return false;
        }
        self.transition(common, cx, State::Replicating, "");
        // The copy is made in this mode now.
        common.sb.current.primary_mode = None;
        true
    }

    /// What was outstanding is covered by its bits, which are set already (rule 10).
    pub fn end_stream(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        let (items, bytes) = self.queue.clear();
        self.stream = None;
        self.repair.again_at = None;
        if self.resync.take().is_some() {
            cx.marks.hit(Mark::SyncInterrupted);
        }
        common.volumes.iter_mut().for_each(|v| v.forget_stream());
        if items > 0 {
            cx.event(common.id(), Event::QueueDropped { items, bytes, why: why.into() });
        }
    }

    /// The session ended: what of that which is sent outlives it.
    pub fn link_lost(&mut self, common: &mut Common, cx: &mut Cx) -> Lost {
        if self.cut.is_some() {
            return Lost::Sync;
        }
        if self.stream.is_none() {
            return Lost::Nothing;
        }
        let mid_sync = self.syncs();
        if self.resync.as_ref().is_some_and(|r| r.repair) {
            // What it has not read yet is still to be sent.
            self.resync = None;
            self.repair.due = true;
            common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
        }
        match common.state {
            State::Queuing | State::Holding => Lost::Before,
            State::CatchingUp | State::Replicating | State::Paused(_) if !mid_sync => {
                self.void_pending(common);
                if let Some(stream) = &mut self.stream {
                    stream.open = false;
                }
                Lost::Stream
            }
            _ => Lost::Sync,
        }
    }

    /// The queue goes on where the peer stands.
    pub fn continue_stream(&mut self, common: &mut Common, cx: &mut Cx, received: Seq, granted_bytes: u64) {
        cx.marks.hit(Mark::QueueContinued);
        self.queue.rewind(received);
        if self.queue.unsent_bytes() > 0 {
            cx.marks.hit(Mark::QueueRewound);
        }
        let held = common.state == State::Holding;
        if held {
            cx.marks.hit(Mark::HoldSavedByReconnect);
        }
        let stream = self.stream.as_mut().expect("only an existing stream continues");
        stream.reopen(received, granted_bytes, cx.now.mono, held);
        self.wanted.update_is_done();
        self.transition(common, cx, State::CatchingUp, "the link is back, the queue continues");
    }

    /// The next frame of the stream, if the peer's window and the bytes allow it.
    pub fn next_frame(&mut self, common: &mut Common, cx: &mut Cx) -> Option<(Header, SendPayload)> {
        if self.cut.is_some() {
            return self.next_cut_frame(common, cx);
        }
        let flushed = self.numbers.flush_point(common);
        let owed = self.stream_owes();
        let stream = self.stream.as_mut().filter(|s| s.open)?;
        let item = self.queue.next_ready()?;
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
            self.stall.moved(cx.now.mono);
        }
        if kind == Kind::Void {
            cx.marks.hit(Mark::VoidSent);
        }
        let identity = &common.sb.current.identity;
        let header = Header {
            flags: item.flags | if matches!(item.body, Body::Zero { no_hole: true }) { flags::NO_HOLE } else { 0 },
            volume: item.volume,
            origin: common.node,
            incarnation: identity.incarnation,
            generation_tag: identity.generation.tag,
            seq: item.seq,
            offset: item.offset,
            length: item.length,
            wall: item.wall,
            flushed,
            ..Header::new(kind, cx.peer.session, common.config.id)
        };
        self.queue.advance(cx.now.mono);
        Some((header, payload))
    }

    /// The peer could present the image of this instant.
    pub fn peer_reached(&mut self, cx: &Cx, wall: Wall) {
        if wall > self.applied_wall {
            (self.applied_wall, self.applied_wall_since) = (wall, cx.now.mono);
        }
    }

    /// The peer's journal fills with writes that are not flushed here: flush, and tell it.
    pub fn flush_for_peer(&mut self, common: &mut Common, cx: &mut Cx) {
        cx.marks.hit(Mark::FlushedForPeer);
        for index in 0..common.volumes.len() {
            let volume = &common.volumes[index];
            if volume.unflushed_bytes > 0 && volume.flushing.is_none() && !volume.latched {
                self.numbers.want_flush(common, cx, VolumeId(index as u16), Who::Engine);
            }
        }
        self.tell_primary_state(common, cx);
    }

    /// A flush here is done: a peer that waits for one is told.
    pub fn tell_of_flush(&mut self, common: &mut Common, cx: &mut Cx) {
        if self.peer_wants_flush {
            self.tell_primary_state(common, cx);
        }
    }

    /// What this group is to its link.
    pub fn link_use(&self, common: &Common) -> LinkUse {
        let promises = matches!(common.settings.mode, Mode::Sync | Mode::Nearsync);
        let awaited = promises && self.stream.is_some_and(|stream| stream.promise_from.is_some());
        LinkUse { sends: self.stream.is_some() || self.cut.is_some(), awaited }
    }

    pub fn peer_paused(&mut self, common: &mut Common, cx: &mut Cx, paused: Option<Pause>) {
        self.catch_up.resumes = false;
        if matches!(common.state, State::Paused(_)) && paused.map(State::Paused) != Some(common.state) {
            if paused.is_none() && self.syncs() && !cx.may_sync {
                return self.resume_in_turn(common, cx);
            }
            self.resume(common, cx);
        }
        if let Some(pause) = paused
            && matches!(common.state, State::Syncing | State::CatchingUp | State::Replicating)
        {
            self.transition(common, cx, State::Paused(pause), pause.words());
        }
    }

    pub fn resume(&mut self, common: &mut Common, cx: &mut Cx) {
        let back = if self.syncs() { State::Syncing } else { State::CatchingUp };
        self.catch_up.resumes = false;
        self.stall.moved(cx.now.mono);
        self.transition(common, cx, back, "the secondary has space again");
    }

    /// From the next number on writers wait as the mode says: in `holding` nobody is answered alone.
    pub fn promise_from_here(&mut self) {
        let last = self.numbers.last();
        if let Some(stream) = &mut self.stream {
            stream.promise_from.get_or_insert(last);
        }
    }

    /// A new stream: numbers after `last_seq` travel in order.
    pub fn begin_stream(&mut self, cx: &Cx) {
        assert!(self.stream.is_none() && self.queue.is_empty());
        self.stream = Some(Stream::new(self.numbers.last(), cx.now.mono));
    }

    /// A repair read may stand in the middle of the queue: its numbers never become writes, and it is read again later.
    pub fn void_pending(&mut self, common: &mut Common) {
        for (seq, volume, offset, length) in self.queue.pending() {
            self.queue.void(seq);
            self.queue.lighten(seq, crate::peer::queue::cost(0));
            common.volumes.of(volume).mark_uncovered(offset, length);
        }
    }

    /// The last number that was handed to the link: the peer can have no later one.
    pub fn sent_through(&self) -> Seq {
        self.queue.first_unsent().map_or(self.numbers.last(), |seq| Seq(seq.0 - 1))
    }

    /// Whether a peer may be ready for this begin: it is told of it, or was. What was abandoned meanwhile is still answered.
    pub fn was_begun(&self, attempt: u64) -> bool {
        let waits = self.cut.as_ref().is_some_and(|cut| cut.is_to_begin(attempt))
            || self.resync.as_ref().is_some_and(|r| r.begins(attempt));
        (1..=self.passes).contains(&attempt) && !waits
    }
}

impl Common {
    /// The peer stands at least here: what it said of itself when it was met is older.
    pub fn confirmed(&mut self, place: Position) {
        let known = &mut self.sb.current.confirmed;
        known.place = place;
        if self.greeting.applied(place) {
            known.image = place;
        }
    }
}
