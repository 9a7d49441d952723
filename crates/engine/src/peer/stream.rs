//! The ordered stream to the peer: frames out, confirmations in, and what becomes of it when the link does.

pub mod pass;

use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Unbroken;
use crate::formats::wire::{Ack, Header, Kind, flags};
use crate::ids::*;
use crate::peer::Peer;
use crate::peer::queue::{Body, HighWater, Item, Queue};
use crate::peer::sending::Sending;
use crate::peer::stream::pass::Pass;
use crate::planted::{Fault, planted};
use crate::shared::cost::{cost, frame_cost};
use crate::shared::link::LinkUse;
use crate::shared::marks::Mark;
use crate::shared::time::{Mono, Wall};
use crate::shared::volume::Who;
use crate::shared::write::{Level, What, WriteOp};
use crate::state::{Mode, Pause, State};
use crate::{Event, SendPayload, Slice, limits};
use core::time::Duration;

/// The ordered stream to the peer, on a primary.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The number before its first.
    began: Seq,
    queue: Queue,
    /// Regions that travel in it.
    pass: Option<Pass>,
    /// The peer may be sent to: it said SyncReady, or continued from the queue.
    open: bool,
    granted_bytes: u64,
    sent_bytes: u64,
    /// How often the peer's grant went back on this stream.
    recalls: u64,
    received: Seq,
    durable: Seq,
    applied: Seq,
    /// Writers follow the mode's promise for numbers above this.
    promise_from: Option<Seq>,
    /// When catching-up began.
    catching_up_since: Mono,
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
    /// Numbers after `last` travel in it.
    fn new(last: Seq, now: Mono, high_water: HighWater) -> Stream {
        Stream {
            began: last,
            queue: Queue::new(high_water),
            pass: None,
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

    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// What it holds in memory, and what reads of a sync that wait for their range will.
    pub fn held_bytes(&self) -> u64 {
        self.queue.bytes() + self.sync_waiting_bytes()
    }

    pub fn is_open(&self) -> bool {
        self.open
    }

    pub fn recalls(&self) -> u64 {
        self.recalls
    }

    /// Whether the peer applied all numbers through here.
    pub fn has_applied(&self, seq: Seq) -> bool {
        self.applied == seq
    }

    /// The peer may be sent to, and has applied all there is.
    pub fn is_idle(&self, last: Seq) -> bool {
        self.open && self.applied == last
    }

    /// The peer is taking writes in order and has not applied the last.
    pub fn is_behind(&self, last: Seq) -> bool {
        self.open && self.applied < last
    }

    /// Bits of writes through here may clear, once they are flushed here.
    pub fn clears_through(&self) -> Seq {
        if planted(Fault::ClearBeforeApply) { self.received } else { self.applied }
    }

    /// The last number that was handed to the link: the peer can have no later one. `last`: the last number given.
    pub fn sent_through(&self, last: Seq) -> Seq {
        self.queue.first_unsent().map_or(last, |seq| Seq(seq.0 - 1))
    }

    /// Something was sent that the peer has not dealt with.
    pub fn owes(&self, last: Seq) -> bool {
        !self.open || self.applied < self.sent_through(last)
    }

    /// What can still be sent in order.
    pub fn unbroken(&self, last: Seq) -> Unbroken {
        let kept_after = self.queue.kept_after().unwrap_or(last);
        debug_assert!(kept_after <= last && self.durable <= last);
        Unbroken { kept_after, last: self.sent_through(last) }
    }

    /// Whether it was the peer that kept writers waiting: it had what they wait for during half of that time, or would not have it.
    pub fn peer_kept_us(&self, now: Mono, wait_limit: Duration) -> bool {
        let next = self.queue.next_ready();
        !self.open
            || next.is_some_and(|item| self.sent_bytes + item.cost_bytes > self.granted_bytes)
            || self.queue.oldest_sent().is_some_and(|since| now.since(since) >= wait_limit / 2)
    }

    // ---- the mode's promise ----------------------------------------------------------------------------------------

    /// Writers wait as the mode says for numbers after this, unless they do already.
    pub fn promise_from(&mut self, last: Seq) {
        self.promise_from.get_or_insert(last);
    }

    /// What was given so far was not given under the promise of this mode.
    pub fn promise_anew(&mut self, now: Mono) {
        (self.promise_from, self.catching_up_since) = (None, now);
    }

    /// Whether it is time to promise something: the backlog is small, or it took too long.
    fn may_promise(&self, now: Mono, mode: Mode) -> bool {
        let due = now.since(self.catching_up_since) >= limits::CATCH_UP_AFTER;
        due || self.queue.bytes() <= limits::CATCH_UP_BYTES || mode == Mode::Async
    }

    /// From which number on the promise holds, once it does.
    fn holds_promise(&self) -> Option<Seq> {
        self.promise_from.filter(|from| *from <= self.durable)
    }

    // ---- writes ----------------------------------------------------------------------------------------------------

    /// The parts of a write take their places.
    pub fn enqueue(&mut self, op: &WriteOp, first: Seq, part: u64, wall: Wall, level: Level) {
        let mut done = 0;
        let mut seq = first;
        while done < op.length {
            let length = part.min(op.length - done);
            let (body, payload) = match &op.what {
                What::Data(buf) => {
                    let slice = Slice { buf: buf.clone(), start: done as u32, length: length as u32 };
                    (Body::Data(slice), length)
                }
                What::Zero { no_hole } => (Body::Zero { no_hole: *no_hole }, 0),
            };
            self.queue.push(Item {
                seq,
                volume: op.volume,
                offset: op.offset + done,
                length,
                wall,
                flags: if level == Level::Received { flags::WANT_RECEIVED } else { 0 },
                body,
                cost_bytes: cost(payload),
            });
            done += length;
            seq = seq.next();
        }
    }

    /// Those of these numbers that have not left yet never become writes (rules 1 and 4).
    pub fn void_unsent(&mut self, first: Seq, last: Seq) {
        let Some(unsent) = self.queue.first_unsent() else { return };
        (first.max(unsent).0..=last.0).for_each(|seq| self.queue.void(Seq(seq)));
    }

    /// A repair read may stand in the middle of the queue: its numbers never become writes, and it is read again later.
    pub fn void_pending(&mut self, common: &mut Common) {
        for (seq, volume, offset, length) in self.queue.pending() {
            self.queue.void(seq);
            self.queue.lighten(seq, cost(0));
            common.volumes.of(volume).mark_uncovered(offset, length);
        }
    }

    // ---- sending and confirming ------------------------------------------------------------------------------------

    /// The next frame of the stream, if the peer's window and the bytes allow it.
    fn next_frame(&mut self, common: &Common, cx: &mut Cx, flushed: Seq) -> Option<(Header, SendPayload)> {
        if !self.open {
            return None;
        }
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
        if self.sent_bytes + bytes > self.granted_bytes && !planted(Fault::WindowIgnored) {
            return None;
        }
        self.sent_bytes += bytes;
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

    /// Writers have what the mode promises.
    pub fn keeps_promise(&self) -> bool {
        self.holds_promise().is_some()
    }

    pub fn check_invariants(&self, last: Seq) {
        assert!(self.applied <= self.durable && self.durable <= self.received);
        assert!(self.received <= last, "the peer is not ahead of us");
    }
}

impl Peer {
    /// The ordered stream, if there is one.
    pub fn stream(&self) -> Option<&Stream> {
        self.sending.stream()
    }

    pub fn streams(&self) -> bool {
        self.stream().is_some()
    }

    /// Nothing is sent, in no way.
    pub fn is_apart(&self) -> bool {
        self.sending.is_apart()
    }

    /// A new stream: numbers from here on travel in order.
    pub fn begin_stream(&mut self, cx: &Cx, pass: Option<Pass>) {
        assert!(!self.streams(), "a stream ends before the next one begins");
        let mut stream = Stream::new(self.numbers.last(), cx.now.mono, self.high_water);
        stream.pass = pass;
        self.sending = Sending::Stream(stream);
    }

    /// The peer's three confirmations and its window, while there is no cut. True: they were taken.
    pub fn confirm(&mut self, common: &mut Common, cx: &mut Cx, ack: &Ack, recalls: u64) -> bool {
        let last = self.numbers.last();
        let Some(stream) = self.sending.stream_mut() else { return false };
        if !stream.open && stream.pass.is_some() {
            // The sync waits to begin for what the peer cannot apply.
            self.peer_paused(common, cx, ack.paused);
            return false;
        }
        if !stream.open {
            return false;
        }
        let sent = stream.sent_through(last);
        if let Some(what) = ack.contradicts([stream.received, stream.durable, stream.applied], sent) {
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
        stream.queue.confirm(ack.durable);
        common.volumes.iter_mut().for_each(|volume| volume.forget_kept(ack.noted));
        self.wants_flush = ack.wants_flush;
        if ack.wants_flush {
            self.flush_for_peer(common, cx);
        }
        self.clear_bits(common, cx);
        true
    }

    /// Confirmations were taken, and writers have their answers.
    pub fn go_on_confirmed(&mut self, common: &mut Common, cx: &mut Cx, ack: &Ack) {
        self.sync_progress(common, cx);
        if !self.syncs() {
            // In the middle of a sync the peer can present nothing newer than before it.
            self.reached.reach(cx.now.mono, ack.applied_wall, ack.applied);
        }
        self.peer_paused(common, cx, ack.paused);
    }

    /// Takes up the mode's promise once the backlog is small. True: it holds from now on.
    pub fn take_up_promise(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let Some(stream) = self.sending.stream_mut().filter(|stream| stream.open) else { return false };
        if !stream.is_promised() && !stream.may_promise(cx.now.mono, common.settings.mode) {
            common.set_timer(cx, GroupTimer::CatchUp, limits::CATCH_UP_AFTER);
            return false;
        }
        stream.promise_from(self.numbers.last());
        let Some(from) = stream.holds_promise() else { return false };
        // What was given before the promise may be answered under it: then it is durable here too.
        if common.settings.mode == Mode::Sync && !self.numbers.flushed_through(common, cx, from) {
            return false;
        }
        self.transition(common, cx, State::Replicating, "");
        // The copy is made in this mode now.
        common.sb.current.primary_mode = None;
        true
    }

    /// From the next number on writers wait as the mode says: in `holding` nobody is answered alone.
    pub fn promise_from_here(&mut self) {
        if let Some(stream) = self.sending.stream_mut() {
            stream.promise_from(self.numbers.last());
        }
    }

    /// What was outstanding is covered by its bits, which are set already (rule 10).
    pub fn end_stream(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        let Some(stream) = self.sending.end_stream() else { return };
        self.high_water = stream.queue.high_water();
        self.repair.forget_pause();
        if stream.pass.is_some() {
            cx.marks.hit(Mark::SyncInterrupted);
        }
        common.volumes.iter_mut().for_each(|v| v.forget_stream());
        let (items, bytes) = (stream.queue.len(), stream.queue.bytes());
        if items > 0 {
            cx.event(common.id(), Event::QueueDropped { items, bytes, why: why.into() });
        }
    }

    /// The session ended: what of that which is sent outlives it.
    pub fn link_lost(&mut self, common: &mut Common, cx: &mut Cx) -> Lost {
        let stream = match &mut self.sending {
            Sending::Apart => return Lost::Nothing,
            Sending::Cut(_) => return Lost::Sync,
            Sending::Stream(stream) => stream,
        };
        let mid_sync = stream.syncs();
        if stream.end_repair() {
            // What it has not read yet is still to be sent.
            self.repair.is_due();
            common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
        }
        match common.state {
            State::Queuing | State::Holding => Lost::Before,
            State::CatchingUp | State::Replicating | State::Paused(_) if !mid_sync => {
                stream.void_pending(common);
                stream.open = false;
                Lost::Stream
            }
            _ => Lost::Sync,
        }
    }

    /// The queue goes on where the peer stands.
    pub fn continue_stream(&mut self, common: &mut Common, cx: &mut Cx, received: Seq, granted_bytes: u64) {
        cx.marks.hit(Mark::QueueContinued);
        let held = common.state == State::Holding;
        let stream = self.sending.stream_mut().expect("only an existing stream continues");
        stream.queue.rewind(received);
        if stream.queue.unsent_bytes() > 0 {
            cx.marks.hit(Mark::QueueRewound);
        }
        if held {
            cx.marks.hit(Mark::HoldSavedByReconnect);
        }
        stream.reopen(received, granted_bytes, cx.now.mono, held);
        self.wanted.update_is_done();
        self.transition(common, cx, State::CatchingUp, "the link is back, the queue continues");
    }

    /// The next frame of what is sent, if the peer's window and the bytes allow it.
    pub fn next_frame(&mut self, common: &mut Common, cx: &mut Cx) -> Option<(Header, SendPayload)> {
        let last = self.numbers.last();
        let (owed, frame) = match &mut self.sending {
            Sending::Apart => return None,
            Sending::Stream(stream) => {
                let flushed = self.numbers.flush_point(common);
                (stream.owes(last), stream.next_frame(common, cx, flushed)?)
            }
            Sending::Cut(cut) => (cut.peer_owes(), cut.next_frame(common, cx)?),
        };
        if !owed {
            self.stall.moved(cx.now.mono);
        }
        Some(frame)
    }

    /// What this group is to its link.
    pub fn link_use(&self, common: &Common) -> LinkUse {
        let promises = matches!(common.settings.mode, Mode::Sync | Mode::Nearsync);
        let awaited = promises && self.stream().is_some_and(Stream::is_promised);
        LinkUse { sends: !self.is_apart(), awaited }
    }

    /// Whether a peer may be ready for this begin: it is told of it, or was. What was abandoned meanwhile is still answered.
    pub fn was_begun(&self, attempt: u64) -> bool {
        (1..=self.passes).contains(&attempt) && !self.sending.is_to_begin(attempt)
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
        if self.wants_flush {
            self.tell_primary_state(common, cx);
        }
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
