//! What leaves this node for its peer: a primary's writes in their order and what carries them, a secondary's answers; no state changes
//! here.

mod queue_space;
pub(in crate::peer) mod spilling;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::wire::flags;
use crate::ids::{MarkId, Seq, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::limits::REGION_BYTES;
use crate::peer::answers::PeerAnswers;
use crate::peer::disk_queue::DiskQueue;
use crate::peer::queue::{QueueFill, QueueRecord};
use crate::peer::queue_log::QueueLog;
use crate::peer::reservation::QueueReservation;
use crate::peer::sending::Sending;
use crate::peer::snapshot::{CatchUpSnapshot, GivenUp, ReadDestination, longest_read};
use crate::peer::stream::pass::SyncPass;
use crate::peer::stream::{self, PeerStream, forget_peaks, push_void};
use crate::shared::coverage::CoveragePoint;
use crate::shared::link::LinkUse;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::peer_copy::PeerCopy;
use crate::shared::reads::{SnapshotRead, SpilledRange};
use crate::shared::write::{AckLevel, WriteOp, WriteStage};
use crate::state::{Mode, State};
use crate::status::QueuePeaks;
use crate::time::{Mono, Wall};
use crate::{Event, IoResult, limits};
use alloc::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// What the peer asked for and has not got.
    pub answers: PeerAnswers,
    pub(super) sending: Sending,
    /// Of the queues of all streams so far.
    pub(super) record: QueueRecord,
    /// As far as streams of this run that have ended were sent.
    sent_before: Seq,
    pub(super) reserved: QueueReservation,
    /// What of the stream's queue has no room in memory.
    pub(super) disk: DiskQueue,
    /// What a start goes on from.
    pub log: QueueLog,
}

impl Outbox {
    /// What waits to be sent, and what was seen of all queues.
    pub fn queued(&self) -> (QueueFill, &QueueRecord) {
        self.stream().map(PeerStream::queue).map_or((QueueFill::default(), &self.record), |queue| {
            (QueueFill { bytes: queue.memory_bytes(), items: queue.len() }, queue.record())
        })
    }

    /// The peaks that people look at begin with what is there now.
    pub fn forget_peaks(&mut self) {
        self.record.late_peaks = QueuePeaks::default();
        self.record.volumes.forget_peaks();
        if let Some(stream) = self.sending.stream_mut() {
            forget_peaks(stream);
        }
    }

    /// What is being sent now, to be looked at.
    pub fn sending(&self) -> &Sending {
        &self.sending
    }

    /// Of that, what is to be sent. A primary holds nothing else.
    pub fn outgoing_bytes(&self) -> u64 {
        // Without a stream what waits for its range will not be queued: it is its client's memory.
        let reserved = if self.streams() { self.reserved.bytes() } else { 0 };
        self.sending.held_bytes() + reserved + self.answers.held_bytes()
    }

    /// The peer has all there is.
    pub fn is_in_step(&self, common: &GroupCommon) -> bool {
        self.stream().is_some_and(|stream| stream.is_applied() && !stream.has_pass())
            && common.volumes.iter().all(|v| v.copy.dirty.is_clean() && !v.has_writes_in_flight())
    }

    /// The ordered stream, if there is one.
    pub fn stream(&self) -> Option<&PeerStream> {
        self.sending.stream()
    }

    pub fn streams(&self) -> bool {
        self.stream().is_some()
    }

    /// The last number of this run that was handed to a link in its order: the peer can have no later one.
    pub fn sent_through(&self) -> Seq {
        self.stream().map_or(self.sent_before, |stream| self.sent_before.max(stream.queue().sent_through()))
    }

    /// Numbers begin anew.
    pub fn begin_run(&mut self) {
        self.sent_before = Seq::NONE;
    }

    /// Nothing is sent, in no way.
    pub fn is_apart(&self) -> bool {
        self.sending.is_apart()
    }

    /// A sync is under way, by snapshots or in the stream; not a mere repair.
    pub fn syncs(&self) -> bool {
        self.sending.syncs()
    }

    /// A pass over the dirty regions is under way, or a mere repair.
    pub fn syncs_in_stream(&self) -> bool {
        self.stream().is_some_and(PeerStream::has_pass)
    }

    /// A sync goes by snapshots; beside a stream there is none.
    pub fn goes_by_snapshots(&self) -> bool {
        self.sending.snapshot().is_some()
    }

    /// What this group is to its link.
    pub fn link_use(&self, common: &GroupCommon) -> LinkUse {
        let promises = common.settings.mode.promises();
        let awaited = promises && self.stream().is_some_and(PeerStream::is_promised);
        LinkUse { sends: !self.is_apart(), awaited }
    }

    /// The peer is taking writes in order and has not applied the last.
    pub fn peer_is_behind(&self) -> bool {
        self.stream().is_some_and(|stream| !stream.has_pass() && stream.is_behind())
    }

    /// A demotion waits for a stream that is open. A peer that has applied every number so far holds no whole image before the sync's end
    /// has one too.
    pub fn drains(&self) -> bool {
        self.stream().is_some_and(|s| s.is_behind() || s.is_open() && s.syncs())
    }

    /// Whether the peer has all that the stream was given; `None`: there is no stream.
    pub fn stream_brought_all(&self) -> Option<bool> {
        self.stream().map(|stream| stream.is_idle() && !stream.syncs())
    }

    /// A new stream: numbers from here on travel in order.
    pub fn begin_stream(&mut self, common: &GroupCommon, cx: &Cx, pass: Option<SyncPass>) {
        assert!(!self.streams(), "a stream ends before the next one begins");
        let stream = PeerStream::new(common.numbers.last(), cx.now.mono, core::mem::take(&mut self.record), pass);
        self.sending = Sending::Stream(stream);
    }

    /// From the next number on writers wait as the mode says: in `holding` nobody is answered alone.
    pub fn promise_from_here(&mut self) {
        if let Some(stream) = self.sending.stream_mut() {
            stream.promise_from_here();
        }
    }

    /// Without the link the queue keeps its order; writers wait for the peer if it `holds` them.
    pub fn keep_order(&mut self, holds: bool) {
        if let Some(stream) = self.sending.stream_mut() {
            stream.keep_order(holds);
        }
    }

    /// Nobody waits for the peer any more, from the next number on; the queue keeps the order. False: there is no stream in its order.
    pub fn answer_alone(&mut self, now: Mono) -> bool {
        let stream = self.sending.stream_mut().filter(|stream| !stream.syncs());
        stream.map(|stream| stream.answer_alone(now)).is_some()
    }

    /// Writers are answered without the peer though the mode promises more, and the queue keeps the order.
    pub fn answers_alone(&self) -> bool {
        self.stream().is_some_and(PeerStream::answers_alone)
    }

    /// While the promise of `sync` holds, the peer has every acknowledged write.
    pub fn has_what_was_acknowledged(&self, common: &GroupCommon) -> bool {
        common.settings.mode == Mode::Sync && self.sending.state() == State::Replicating
    }

    /// What a read waited for has its range free.
    pub fn admit_waiting_read(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
        let stream = self.sending.stream_mut();
        if stream.is_some_and(|stream| stream.admit_waiting_read(common, cx, slot)) {
            return;
        }
        // The stream ended while the read waited for its range.
        if let Some(SlotOperation::Resync(read)) = common.slots.take(slot) {
            common.volumes.of(read.range.volume).let_go(slot);
        }
    }

    /// What writers must wait for now.
    fn write_level(&self, common: &GroupCommon) -> AckLevel {
        let promised = self.stream().is_some_and(PeerStream::is_promised);
        match common.settings.mode {
            Mode::Sync if promised => AckLevel::Durable,
            Mode::Nearsync if promised => AckLevel::Received,
            Mode::Sync if self.answers_alone() => AckLevel::LocalDurable,
            _ => AckLevel::Local,
        }
    }

    /// The write travels in the stream, if there is one, in parts of this size from this number on. What its writer waits for.
    pub fn enqueue(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        op: &WriteOp,
        part: u64,
        (wall, first): (Wall, Seq),
    ) -> AckLevel {
        let level = self.write_level(common);
        if let Some(stream) = self.sending.stream_mut() {
            stream.enqueue(op, first, part, wall, level);
            self.spill_from(common, cx, first);
        }
        level
    }

    /// A write to the volume is none of the order that the stream carries: the volume is set aside.
    pub fn passes_by(&self, common: &GroupCommon, volume: VolumeId) -> bool {
        self.streams() && common.volumes[usize::from(volume.0)].copy.is_aside()
    }

    /// From here on the volume is no part of the order: the peer hears it in that order.
    pub fn set_aside(&mut self, common: &mut GroupCommon, cx: &Cx, volume: VolumeId) {
        if let Some(stream) = self.sending.stream_mut() {
            let (wall, seq, _) = common.numbers.give(cx, 1);
            push_void(stream, volume, seq, wall, flags::SETS_ASIDE);
        }
    }

    pub fn clear_bits(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some(applied) = self.stream().map(PeerStream::clears_through) else { return };
        let mut cleared = false;
        for volume in common.volumes.iter_mut() {
            cleared |= volume.copy.clear_confirmed(applied, volume.flushes.through());
        }
        if cleared {
            common.set_timer(cx, GroupTimer::TidyBits, limits::TIDY_BITS_AFTER);
        }
    }

    pub fn snapshot_mut(&mut self) -> Option<&mut CatchUpSnapshot> {
        self.sending.snapshot_mut()
    }

    /// The snapshot ends without its step. Who waited for it.
    pub fn drop_snapshot(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> VecDeque<u32> {
        let Some(mut snapshot) = self.sending.end_snapshot() else { return VecDeque::new() };
        if !snapshot.is_done() {
            cx.coverage.hit(CoveragePoint::SnapshotInterrupted);
        }
        let end_sent = snapshot.is_awaited();
        common.volumes.copies_mut().for_each(|copy| copy.drop_snapshot(end_sent));
        common.undo.empty();
        snapshot.take_waiting()
    }

    /// `Ok(true)`: the range stays locked, its content goes to the undo store first.
    pub fn accept_snapshot_read(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        slot: u32,
        read: &SnapshotRead,
        result: IoResult,
    ) -> Result<bool, GivenUp> {
        let room = self.snapshot_room(common, cx);
        let Some(snapshot) = self.sending.snapshot_mut().filter(|snapshot| snapshot.is_named(read.snapshot)) else {
            return Ok(false);
        };
        match snapshot.accept_read(common, read, result, room)? {
            ReadDestination::Held => Ok(false),
            ReadDestination::ToSpill { buf, crc } => {
                snapshot.spill(common, cx, slot, read, (buf, crc))?;
                Ok(true)
            }
        }
    }

    pub fn spill_done(&mut self, spilled: SpilledRange, is_saved: bool) -> Result<(), GivenUp> {
        self.sending.snapshot_mut().map_or(Ok(()), |snapshot| snapshot.spilled(spilled, is_saved))
    }

    /// Reads what the snapshot has of these regions ahead of a write. False: there is no memory for it yet.
    pub fn save_for_snapshot(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        id: VolumeId,
        first: u64,
        last: u64,
    ) -> bool {
        let mut from = first;
        let longest = longest_read(limits::PART_BYTES_MAX, self.snapshot_room(common, cx));
        while let Some((run, next)) = common.volumes.of(id).next_of_snapshot(from, last, longest) {
            let bytes = (next - run) * REGION_BYTES;
            let room = self.snapshot_room(common, cx);
            let Some(snapshot) = self.sending.snapshot_mut() else { return true };
            // What is being read leaves memory soon, for the link or for the undo store; what is read may stay for long.
            if snapshot.is_short_of_memory(bytes, room) {
                return false;
            }
            snapshot.read(common, cx, id, run, next, true);
            from = next;
        }
        true
    }

    /// Something of the snapshot leaves memory soon: then the write is looked at again.
    pub fn wait_for_memory_of_snapshot(&mut self, common: &mut GroupCommon, slot: u32) {
        self.reserve(common, slot);
        common.slots.write(slot).enter(WriteStage::ForMemory);
        if let Some(snapshot) = self.sending.snapshot_mut() {
            snapshot.keep_waiting(slot);
        }
    }

    /// What was outstanding is covered by its bits, which are set already (rule 10).
    pub fn end_stream(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        let Some(stream) = self.sending.end_stream() else { return };
        self.disk.forget();
        self.record = stream.queue().record().clone();
        self.record.volumes.emptied();
        self.sent_before = self.sent_through().max(stream.queue().sent_through());
        if stream.has_pass() {
            cx.coverage.hit(CoveragePoint::SyncInterrupted);
        }
        common.volumes.copies_mut().for_each(PeerCopy::forget_stream);
        let (items, bytes) = (stream.queue().len(), stream.queue().bytes());
        if items > 0 {
            cx.event(common.id(), Event::QueueDropped { items, bytes, why: why.into() });
        }
    }

    /// Writes that waited until there is memory to save what they overwrite of a snapshot.
    pub fn take_waiting(&mut self) -> VecDeque<u32> {
        self.snapshot_mut().map(CatchUpSnapshot::take_waiting).unwrap_or_default()
    }
}

/// A mark takes a number of the order, beside a stream that carries it.
pub(crate) fn push_mark(outbox: &mut Outbox, common: &mut GroupCommon, cx: &Cx, mark: MarkId) -> (Wall, Seq) {
    let (wall, seq, _) = common.numbers.give(cx, 1);
    let is_spilled = outbox.disk.is_in_use();
    if let Some(stream) = outbox.sending.stream_mut() {
        match injected(Fault::MarkLostInSpill) && is_spilled {
            true => push_void(stream, VolumeId(0), seq, wall, 0),
            false => stream::push_mark(stream, mark, seq, wall),
        }
    }
    (wall, seq)
}
