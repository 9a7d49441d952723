//! The ordered stream to the peer: frames out, confirmations in, and what becomes of it when the link does.

pub mod pass;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::UnbrokenRun;
use crate::formats::wire::{Ack, FrameHeader, FrameKind, flags};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::peer::epoch::{EpochRoom, Folding, SendEpoch, Taken};
use crate::peer::framing::{FrameRoom, FrameUnit, next_unit};
use crate::peer::queue::{ItemBody, QueueItem, QueueRecord, StreamQueue};
use crate::peer::stream::pass::SyncPass;
use crate::shared::cost::{cost, frame_cost};
use crate::shared::coverage::CoveragePoint;
use crate::shared::reads::SyncRange;
use crate::shared::write::{AckLevel, WriteKind, WriteOp};
use crate::state::{Fold, Pause, State};
use crate::status::StepSpan;
use crate::time::{Mono, Wall};
use crate::{SendPayload, Settings, Slice, limits};
use core::time::Duration;

/// Where the stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamStage {
    /// Dirty regions travel between the writes.
    Syncing,
    /// In order; the mode's promise does not hold yet.
    CatchingUp,
    /// The mode's promise holds.
    Replicating,
    /// The peer does not apply.
    Paused(Pause),
    /// Without the link: the queue keeps its order.
    Queuing,
    /// The same, and writers wait for the peer.
    Holding,
}

/// The ordered stream to the peer, on a primary.
#[derive(Debug)]
pub(crate) struct PeerStream {
    stage: StreamStage,
    /// That of the pass it began with: no other of this run has the same.
    name: u64,
    /// The number before its first.
    began: Seq,
    queue: StreamQueue,
    /// Regions that travel in it.
    pass: Option<SyncPass>,
    /// The peer may be sent to: it said SyncReady, or continued from the queue.
    open: bool,
    granted_bytes: u64,
    sent_bytes: u64,
    /// How often the peer's grant went back on this stream.
    recalls: u64,
    received_at_peer: Seq,
    durable_at_peer: Seq,
    applied_at_peer: Seq,
    /// Writers follow the mode's promise for numbers above this.
    promise_from: Option<Seq>,
    /// Writers were answered without the peer though the mode promises more: nothing is promised anew before the peer has this number.
    alone_through: Option<Seq>,
    /// When catching-up began.
    catching_up_since: Mono,
    folding: Folding,
}

impl PeerStream {
    /// Numbers after `last` travel in it.
    pub fn new(last: Seq, now: Mono, record: QueueRecord, pass: Option<SyncPass>) -> PeerStream {
        PeerStream {
            stage: StreamStage::Syncing,
            name: pass.as_ref().map_or(0, SyncPass::name),
            began: last,
            queue: StreamQueue::new(last, record),
            pass,
            open: false,
            granted_bytes: 0,
            sent_bytes: 0,
            recalls: 0,
            received_at_peer: last,
            durable_at_peer: last,
            applied_at_peer: last,
            promise_from: None,
            alone_through: None,
            catching_up_since: now,
            folding: Folding::default(),
        }
    }

    pub fn queue(&self) -> &StreamQueue {
        &self.queue
    }

    pub fn state(&self) -> State {
        match self.stage {
            StreamStage::Syncing => State::Syncing,
            StreamStage::CatchingUp => State::CatchingUp,
            StreamStage::Replicating => State::Replicating,
            StreamStage::Paused(pause) => State::Paused(pause),
            StreamStage::Queuing => State::Queuing,
            StreamStage::Holding => State::Holding,
        }
    }

    /// The mode's promise holds from now on.
    pub fn begin_replicating(&mut self) {
        self.stage = StreamStage::Replicating;
    }

    /// The peer cannot apply.
    pub fn pause(&mut self, pause: Pause) {
        self.stage = StreamStage::Paused(pause);
    }

    /// It can again.
    pub fn resume(&mut self) {
        self.stage = if self.syncs() { StreamStage::Syncing } else { StreamStage::CatchingUp };
    }

    /// The link is lost; the queue keeps its order, and writers wait for the peer if it `holds` them.
    pub fn keep_order(&mut self, holds: bool) {
        self.stage = if holds { StreamStage::Holding } else { StreamStage::Queuing };
    }

    /// What it holds in memory, and what reads of a sync that wait for their range will.
    pub fn held_bytes(&self) -> u64 {
        self.queue.memory_bytes() + self.sync_waiting_bytes()
    }

    pub fn is_open(&self) -> bool {
        self.open
    }

    pub fn recalls(&self) -> u64 {
        self.recalls
    }

    /// The peer has applied all there is.
    pub fn is_applied(&self) -> bool {
        self.applied_at_peer == self.queue.last()
    }

    /// The peer may be sent to, and has applied all there is.
    pub fn is_idle(&self) -> bool {
        self.open && self.is_applied()
    }

    /// The peer is taking writes in order and has not applied the last.
    pub fn is_behind(&self) -> bool {
        self.open && !self.is_applied()
    }

    /// Bits of writes through here may clear, once they are flushed here.
    pub fn clears_through(&self) -> Seq {
        if injected(Fault::ClearBeforeApply) { self.received_at_peer } else { self.applied_at_peer }
    }

    /// Something was sent that the peer has not dealt with.
    pub fn owes(&self) -> bool {
        let sent = self.queue.sent_through();
        let unanswered = self.pass.as_ref().is_some_and(|pass| pass.awaits_answer(sent));
        !self.open || self.applied_at_peer < sent || unanswered
    }

    /// What can still be sent in order.
    pub fn unbroken(&self) -> UnbrokenRun {
        UnbrokenRun { kept_after: self.queue.kept_after(), last: self.queue.sent_through() }
    }

    /// Whether it was the peer that kept writers waiting: it had what they wait for during half of that time, or would not have it.
    pub fn peer_kept_us(&self, now: Mono, wait_limit: Duration) -> bool {
        let next = self.queue.next_ready();
        !self.open
            || self.folding.is_waiting() && !injected(Fault::RoomWaitNotPeers)
            || next.is_some_and(|item| self.sent_bytes + item.cost_bytes > self.granted_bytes)
            || self.queue.oldest_sent().is_some_and(|since| now.since(since) >= wait_limit / 2)
    }

    // ---- the mode's promise ----------------------------------------------------------------------------------------

    /// Writers wait as the mode says from the next number on, unless they do already.
    pub fn promise_from_here(&mut self) {
        self.promise_from.get_or_insert(self.queue.last());
        self.alone_through = None;
    }

    /// From the next number on nobody waits for the peer; the order goes on.
    pub fn answer_alone(&mut self, now: Mono) {
        (self.promise_from, self.catching_up_since) = (None, now);
        self.alone_through = Some(self.queue.last());
        self.stage = match self.stage {
            StreamStage::Replicating => StreamStage::CatchingUp,
            StreamStage::Holding => StreamStage::Queuing,
            other => other,
        };
    }

    pub fn answers_alone(&self) -> bool {
        self.alone_through.is_some()
    }

    /// What was given so far was not given under the promise of this mode.
    pub fn promise_anew(&mut self, now: Mono) {
        (self.promise_from, self.catching_up_since) = (None, now);
        if self.stage == StreamStage::Replicating {
            self.stage = StreamStage::CatchingUp;
        }
    }

    /// Whether it is time to promise something: the backlog is small, or it took too long. After writers were answered alone the peer has
    /// to have what was queued then, and what is queued by now so soon that a writer behind it hardly waits.
    pub fn may_promise(&self, now: Mono, settings: &Settings, rate: Option<u64>) -> bool {
        let due = now.since(self.catching_up_since) >= limits::CATCH_UP_AFTER;
        let is_small = self.queue.bytes() <= limits::CATCH_UP_BYTES;
        if settings.mode.follows_behind() {
            return true;
        }
        let Some(through) = self.alone_through else { return due || is_small };
        let soon = rate.is_none_or(|rate| {
            drains_within(self.queue.bytes(), limits::PROMISED_WITHIN.min(settings.wait_limit / 2), rate)
        });
        through <= self.durable_at_peer && soon && (due || is_small)
    }

    /// From which number on the promise holds, once it does.
    pub fn holds_promise(&self) -> Option<Seq> {
        self.promise_from.filter(|from| *from <= self.durable_at_peer)
    }

    // ---- writes ----------------------------------------------------------------------------------------------------

    /// The parts of a write enter the queue.
    pub fn enqueue(&mut self, op: &WriteOp, first: Seq, part: u64, wall: Wall, level: AckLevel) {
        let mut done = 0;
        let mut seq = first;
        while done < op.length {
            let length = part.min(op.length - done);
            let (body, payload) = match &op.what {
                WriteKind::Data(buf) => {
                    let slice = Slice { buf: buf.clone(), start: done as u32, length: length as u32 };
                    (ItemBody::Data(slice), length)
                }
                WriteKind::Zero { no_hole } => (ItemBody::Zero { no_hole: *no_hole }, 0),
            };
            self.queue.push(QueueItem {
                seq,
                volume: op.volume,
                offset: op.offset + done,
                length,
                wall,
                flags: if level == AckLevel::Received { flags::WANT_RECEIVED } else { 0 },
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
    pub fn void_pending(&mut self, common: &mut GroupCommon) {
        for (seq, volume, offset, length) in self.queue.pending() {
            self.queue.void(seq);
            self.queue.lighten(seq, cost(0));
            common.volumes.copy_of(volume).set_uncovered(offset, length);
        }
    }

    // ---- sending and confirming ------------------------------------------------------------------------------------

    /// The next frame of the stream, if the peer's window and the bytes allow it.
    pub fn next_frame(
        &mut self,
        common: &GroupCommon,
        cx: &mut Cx,
        flushed: Seq,
        leaves_from: Option<Seq>,
    ) -> Option<(FrameHeader, SendPayload)> {
        if !self.open {
            return None;
        }
        let left =
            if injected(Fault::WindowIgnored) { u64::MAX } else { self.granted_bytes.saturating_sub(self.sent_bytes) };
        if waits_for_epoch(self, common, cx, room_for_epoch(cx, flushed, leaves_from), left) {
            return None;
        }
        let room = FrameRoom { bytes: cx.peer.part_bytes, cost_bytes: left, flushed };
        let FrameUnit { kind, payload, numbers, first: item, last, length } =
            next_unit(&self.queue, self.folding.epoch(), &room)?;
        let bytes = frame_cost(&payload);
        if bytes > left {
            return None;
        }
        self.sent_bytes += bytes;
        if kind == FrameKind::Void {
            cx.coverage.hit(CoveragePoint::VoidSent);
        }
        if numbers > 1 {
            cx.coverage.hit(CoveragePoint::WritesJoined);
        }
        let identity = &common.sb.identity;
        let header = FrameHeader {
            flags: item.flags
                | epoch_flags(self.folding.epoch(), last.seq)
                | if matches!(item.body, ItemBody::Zero { no_hole: true }) { flags::NO_HOLE } else { 0 },
            volume: item.volume,
            origin: common.node,
            incarnation: identity.incarnation,
            generation_tag: identity.generation.tag,
            seq: last.seq,
            offset: item.offset,
            length,
            wall: last.wall,
            flushed,
            more: numbers as u32 - 1,
            ..FrameHeader::new(kind, cx.peer.session, common.config.id)
        };
        let time = last.wall.since(item.wall);
        (0..numbers).for_each(|_| self.queue.advance(cx.now.mono));
        self.folding.frame(numbers, StepSpan { time, bytes: length }, cx.now.mono);
        if let Some(grant) = self.folding.sent(header.seq) {
            (self.granted_bytes, self.recalls) = grant;
        }
        Some((header, payload))
    }

    /// Whether the peer has the write of this number as its writer asks.
    pub fn has(&self, level: AckLevel, last: Seq) -> bool {
        let confirmed = match level {
            AckLevel::Local | AckLevel::LocalDurable => last,
            AckLevel::Received if injected(Fault::NearsyncAckTooEarly) => last,
            AckLevel::Durable if injected(Fault::SyncAckTooEarly) => self.received_at_peer,
            AckLevel::Received => self.received_at_peer,
            AckLevel::Durable => self.durable_at_peer,
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

    /// Takes the peer's three numbers and its window. `Ok(true)`: it got on. `Err`: what the peer cannot have said.
    pub fn confirm(&mut self, ack: &Ack, recalls: u64) -> Result<bool, &'static str> {
        let before = [self.received_at_peer, self.durable_at_peer, self.applied_at_peer];
        if let Some(what) = ack.contradicts(before, self.queue.sent_through()) {
            return Err(what);
        }
        if ack.noted > ack.applied {
            return Err("an acknowledgement that notes a flush of what it has not applied");
        }
        (self.received_at_peer, self.durable_at_peer, self.applied_at_peer) = (ack.received, ack.durable, ack.applied);
        (self.granted_bytes, self.recalls) =
            self.folding.grant((self.granted_bytes, self.recalls), (ack.granted_bytes, recalls));
        self.queue.confirm(ack.durable);
        Ok(before != [ack.received, ack.durable, ack.applied])
    }

    /// The link is lost: nothing is sent until the peer has said where it stands.
    pub fn close(&mut self) {
        self.open = false;
        self.folding.forget();
    }

    /// The link is back, and the peer stands there.
    pub fn reopen(&mut self, received: Seq, granted_bytes: u64, now: Mono, keeps_promise: bool) {
        self.queue.rewind(received);
        self.folding.forget();
        (self.open, self.stage) = (true, StreamStage::CatchingUp);
        (self.granted_bytes, self.sent_bytes, self.recalls) = (granted_bytes, 0, 0);
        // A crash of the peer may have lost what it had received but not landed.
        self.received_at_peer = received;
        self.catching_up_since = now;
        self.promise_from = self.promise_from.filter(|_| keeps_promise);
        self.alone_through = self.alone_through.map(|_| self.queue.last());
    }

    /// Writers have what the mode promises.
    pub fn keeps_promise(&self) -> bool {
        self.holds_promise().is_some()
    }

    pub fn check_invariants(&self, last: Seq) {
        assert!(self.applied_at_peer <= self.durable_at_peer && self.durable_at_peer <= self.received_at_peer);
        assert!(self.received_at_peer <= last, "the peer is not ahead of us");
        assert_eq!(self.queue.last(), last, "a stream has every number from its first on");
        self.queue.check_volumes();
        assert!(self.stage != StreamStage::Replicating || self.keeps_promise(), "the promise of the mode holds");
    }
}

/// What the peer confirms at once takes the link so long, and what the queue holds of it is there until its end.
pub(crate) fn step_time(stream: &PeerStream, cx: &Cx) -> Duration {
    cx.peer.time_of(stream.folding.step_bytes()).min(limits::EPOCH_TIME)
}

/// What was sent since this was last asked.
pub(crate) fn take_uncounted(stream: &mut PeerStream) -> Taken {
    stream.folding.take_uncounted()
}

/// What a frame of the epoch says of that.
fn epoch_flags(epoch: Option<&SendEpoch>, last: Seq) -> u16 {
    epoch.map_or(0, |epoch| flags::EPOCH | if epoch.last() == last { flags::LAST } else { 0 })
}

/// What one epoch may take. `leaves_from`: from there on memory lets go of what the disk queue takes.
fn room_for_epoch(cx: &Cx, flushed: Seq, leaves_from: Option<Seq>) -> EpochRoom {
    EpochRoom { bytes: cx.peer.step_bytes, cost_bytes: 0, flushed, leaves_from }
}

/// What follows is folded where nobody waits for the peer to have it, and nothing but writes travels. True: more of the peer's window, of
/// which so much is `left`, comes soon, and is worth waiting for.
fn waits_for_epoch(stream: &mut PeerStream, common: &GroupCommon, cx: &mut Cx, room: EpochRoom, left: u64) -> bool {
    let may_fold = common.settings.fold == Fold::Auto && !stream.has_pass();
    if !may_fold || stream.is_promised() && !common.settings.mode.follows_behind() {
        return false;
    }
    let is_idle = stream.applied_at_peer == stream.queue.sent_through();
    if stream.folding.waits_for_room(&stream.queue, room, left, is_idle) {
        cx.coverage.hit(CoveragePoint::FoldAwaited);
        return true;
    }
    stream.folding.look(&stream.queue, EpochRoom { cost_bytes: left / 2, ..room });
    if stream.folding.epoch().is_some_and(|epoch| stream.queue.first_unsent() == Some(epoch.first())) {
        cx.coverage.hit(CoveragePoint::EpochFolded);
    }
    false
}

fn drains_within(bytes: u64, time: Duration, bytes_per_s: u64) -> bool {
    u128::from(bytes) * 1_000_000_000 <= u128::from(bytes_per_s) * time.as_nanos()
}

/// A hash is of use in its own session alone: in another one its number says nothing.
pub(crate) fn void_probes(stream: &mut PeerStream) {
    stream.queue.probes().into_iter().for_each(|seq| stream.queue.void(seq));
}

/// A start goes on with what is queued: nobody waits for the peer, and a promise begins anew.
pub(crate) fn stands_in_queue(stream: &mut PeerStream, promises: bool, now: Mono) {
    (stream.stage, stream.catching_up_since) = (StreamStage::Queuing, now);
    stream.alone_through = promises.then(|| stream.queue.last());
}

/// The link is back, and the peer stands there in an earlier run: before anything is sent it takes up this one.
pub(crate) fn begin_take_up(stream: &mut PeerStream, received: Seq, now: Mono, pass: SyncPass) {
    stream.reopen(received, 0, now, false);
    (stream.open, stream.began, stream.name, stream.pass) = (false, received, pass.name(), Some(pass));
}

/// The queue, to be changed by the disk queue.
pub(crate) fn queue_of(stream: &mut PeerStream) -> &mut StreamQueue {
    &mut stream.queue
}

/// The number before its first.
pub(crate) fn began_at(stream: &PeerStream) -> Seq {
    stream.began
}

/// Names the stream: no other of this run has the same.
pub(crate) fn name_of(stream: &PeerStream) -> u64 {
    stream.name
}

/// What a verify read takes its number, and is compared at that position of the order.
pub(crate) fn push_probe(
    stream: &mut PeerStream,
    common: &mut GroupCommon,
    cx: &Cx,
    range: SyncRange,
    hash: [u8; 32],
) -> Seq {
    let (wall, seq, _) = common.numbers.give(cx, 1);
    let SyncRange { volume, offset, length } = range;
    let (flags, body, cost_bytes) = (flags::RESYNC, ItemBody::Probe(hash), cost(0));
    stream.queue.push(QueueItem { seq, volume, offset, length, wall, flags, body, cost_bytes });
    seq
}

/// The peaks of its queue that people look at begin with what is there now.
pub(crate) fn forget_peaks(stream: &mut PeerStream) {
    stream.queue.forget_peaks();
}

/// A mark takes its number.
pub(crate) fn push_mark(stream: &mut PeerStream, mark: MarkId, seq: Seq, wall: Wall) {
    let (volume, flags, body, cost_bytes) = (VolumeId(0), flags::MARK, ItemBody::Void, cost(0));
    stream.queue.push(QueueItem { seq, volume, offset: mark.0, length: 0, wall, flags, body, cost_bytes });
}

/// This number is no write of the order.
pub(crate) fn push_void(stream: &mut PeerStream, volume: VolumeId, seq: Seq, wall: Wall, flags: u16) {
    let (body, cost_bytes) = (ItemBody::Void, cost(0));
    stream.queue.push(QueueItem { seq, volume, offset: 0, length: 0, wall, flags, body, cost_bytes });
}
