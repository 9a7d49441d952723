//! What leaves this primary for its peer: writes in their order, numbered, and what carries them; no state changes here.

mod room;

use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Unbroken;
use crate::ids::{Seq, VolumeId};
use crate::limits::REGION_BYTES;
use crate::peer::cut::saves::Scratch;
use crate::peer::cut::{Cut, GivenUp, Placed, longest_read};
use crate::peer::numbers::Numbers;
use crate::peer::promised::Promised;
use crate::peer::queue::HighWater;
use crate::peer::sending::Sending;
use crate::peer::stream::Stream;
use crate::peer::stream::pass::Pass;
use crate::records::record::AfterSuper;
use crate::shared::flushes::Who;
use crate::shared::link::LinkUse;
use crate::shared::marks::Mark;
use crate::shared::reads::{CutRead, Spilled};
use crate::shared::slots::Op;
use crate::shared::volume::Volume;
use crate::shared::write::{Level, WriteOp, WriteStage};
use crate::state::Mode;
use crate::{Event, IoResult, limits};
use alloc::collections::VecDeque;

/// A write's place in the order.
pub(crate) struct Numbered {
    pub first: Seq,
    pub last: Seq,
    pub level: Level,
    /// How its parts were cut for the stream; `None`: it is in none.
    pub part_bytes: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    pub numbers: Numbers,
    pub(super) sending: Sending,
    /// Of the queues of all streams so far.
    high_water: HighWater,
    pub(super) promised: Promised,
    pub(super) scratch: Scratch,
    /// For tags of generations that begin without a promotion.
    entropy: u64,
    /// A new generation is being recorded; writes wait for it.
    generation_due: bool,
}

impl Outbox {
    pub fn new() -> Outbox {
        Outbox {
            numbers: Numbers::new(),
            sending: Sending::Apart,
            high_water: HighWater::default(),
            promised: Promised::default(),
            scratch: Scratch::default(),
            entropy: 0,
            generation_due: false,
        }
    }

    /// What waits to be sent: bytes and items, and the most there ever were.
    pub fn queued(&self) -> (u64, u64, HighWater) {
        self.stream()
            .map(Stream::queue)
            .map_or((0, 0, self.high_water), |queue| (queue.bytes(), queue.len(), queue.high_water()))
    }

    /// For a failure report.
    pub fn sending(&self) -> &Sending {
        &self.sending
    }

    /// Of that, what is to be sent. A primary holds nothing else.
    pub fn outgoing_bytes(&self, common: &Common) -> u64 {
        // Without a stream what waits for its range will not be queued: it is its client's memory.
        let promised = if self.streams() { self.promised.bytes() } else { 0 };
        self.sending.held_bytes() + promised + common.answers.held_bytes()
    }

    /// What can still be sent in order.
    pub fn unbroken(&self) -> Option<Unbroken> {
        self.stream().map(|stream| stream.unbroken(self.numbers.last()))
    }

    /// The peer has all there is.
    pub fn is_in_step(&self, common: &Common) -> bool {
        self.stream().is_some_and(|stream| stream.has_applied(self.numbers.last()) && !stream.has_pass())
            && common.volumes.iter().all(|v| v.dirty.is_clean() && !v.has_writes_in_flight())
    }

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

    /// A sync is under way, by cuts or in the stream; not a mere repair.
    pub fn syncs(&self) -> bool {
        self.sending.syncs()
    }

    /// A pass over the dirty regions is under way, or a mere repair.
    pub fn syncs_in_stream(&self) -> bool {
        self.stream().is_some_and(Stream::has_pass)
    }

    /// A sync goes by cuts; beside a stream there is none.
    pub fn goes_by_cuts(&self) -> bool {
        self.sending.cut().is_some()
    }

    /// What this group is to its link.
    pub fn link_use(&self, common: &Common) -> LinkUse {
        let promises = matches!(common.settings.mode, Mode::Sync | Mode::Nearsync);
        let awaited = promises && self.stream().is_some_and(Stream::is_promised);
        LinkUse { sends: !self.is_apart(), awaited }
    }

    /// The peer is taking writes in order and has not applied the last.
    pub fn peer_is_behind(&self) -> bool {
        self.stream().is_some_and(|stream| !stream.has_pass() && stream.is_behind(self.numbers.last()))
    }

    /// A demotion waits for a stream that is open. A peer that has applied every number so far holds no whole image before the sync's end
    /// has one too.
    pub fn drains(&self) -> bool {
        self.stream().is_some_and(|s| s.is_behind(self.numbers.last()) || s.is_open() && s.syncs())
    }

    /// Whether the peer has all that the stream was given; `None`: there is no stream.
    pub fn stream_brought_all(&self) -> Option<bool> {
        self.stream().map(|stream| stream.is_idle(self.numbers.last()) && !stream.syncs())
    }

    /// A new stream: numbers from here on travel in order.
    pub fn begin_stream(&mut self, cx: &Cx, pass: Option<Pass>) {
        assert!(!self.streams(), "a stream ends before the next one begins");
        let stream = Stream::new(self.numbers.last(), cx.now.mono, self.high_water, pass);
        self.sending = Sending::Stream(stream);
    }

    /// From the next number on writers wait as the mode says: in `holding` nobody is answered alone.
    pub fn promise_from_here(&mut self) {
        if let Some(stream) = self.sending.stream_mut() {
            stream.promise_from(self.numbers.last());
        }
    }

    /// What a read waited for has its range free.
    pub fn admit_waiting_read(&mut self, common: &mut Common, cx: &mut Cx, slot: u32) {
        let stream = self.sending.stream_mut();
        if stream.is_some_and(|stream| stream.admit_waiting_read(common, cx, &mut self.numbers, slot)) {
            return;
        }
        // The stream ended while the read waited for its range.
        if let Some(Op::Resync(read)) = common.slots.take(slot) {
            common.volumes.of(read.range.volume).let_go(slot);
        }
    }

    /// What writers must wait for now.
    fn write_level(&self, common: &Common) -> Level {
        let promised = self.stream().is_some_and(Stream::is_promised);
        match common.settings.mode {
            Mode::Sync if promised => Level::Durable,
            Mode::Nearsync if promised => Level::Received,
            _ => Level::Local,
        }
    }

    /// The write takes its place in the order, and in the stream if there is one.
    pub fn number_write(&mut self, common: &Common, cx: &mut Cx, op: &WriteOp) -> Numbered {
        let (wall, level) = (self.numbers.stamp(cx), self.write_level(common));
        let part_bytes = self.streams().then(|| op.part_bytes(cx.peer.part_bytes));
        let (first, last) = self.numbers.give_many(part_bytes.map_or(1, |part| op.length.div_ceil(part)));
        if last > first {
            cx.marks.hit(Mark::WriteSplitInParts);
        }
        if let (Some(part), Some(stream)) = (part_bytes, self.sending.stream_mut()) {
            stream.enqueue(op, first, part, wall, level);
        }
        Numbered { first, last, level, part_bytes }
    }

    pub fn clear_bits(&mut self, common: &mut Common, cx: &mut Cx) {
        let Some(applied) = self.stream().map(Stream::clears_through) else { return };
        let mut cleared = false;
        for volume in common.volumes.iter_mut() {
            cleared |= volume.clear_confirmed(applied);
        }
        if cleared {
            common.set_timer(cx, GroupTimer::TidyBits, limits::TIDY_BITS_AFTER);
        }
    }

    /// All local work is done and flushed.
    pub fn primary_at_rest(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        if common.slots.writes() > 0
            || !self.scratch.is_idle()
            || common.volumes.iter().any(|v| v.has_writes_in_flight())
        {
            return false;
        }
        let mut rest = true;
        for index in 0..common.volumes.len() {
            let volume = &common.volumes[index];
            let dirty_cache = volume.flushes.unflushed_bytes() > 0
                || volume.flushes.through() < self.numbers.last() && volume.wants_flush();
            if volume.flushes.is_under_way() {
                rest = false;
            } else if dirty_cache && !volume.flushes.has_failed() {
                self.numbers.want_flush(common, cx, VolumeId(index as u16), Who::Engine);
                rest = false;
            }
        }
        rest
    }

    pub fn cut_mut(&mut self) -> Option<&mut Cut> {
        self.sending.cut_mut()
    }

    /// The cut ends without its step. Who waited for it.
    pub fn drop_cut(&mut self, common: &mut Common, cx: &mut Cx) -> VecDeque<u32> {
        let Some(mut cut) = self.sending.end_cut() else { return VecDeque::new() };
        if !cut.is_done() {
            cx.marks.hit(Mark::CutInterrupted);
        }
        common.volumes.iter_mut().for_each(Volume::drop_cut);
        common.undo.empty();
        cut.take_waiting()
    }

    /// `Ok(true)`: the range stays locked, its content goes to the undo store first.
    pub fn place_cut_read(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        slot: u32,
        read: &CutRead,
        result: IoResult,
    ) -> Result<bool, GivenUp> {
        let room = self.cut_room(common, cx);
        let Some(cut) = self.sending.cut_mut().filter(|cut| cut.is_named(read.cut)) else { return Ok(false) };
        match cut.place_read(common, read, result, room)? {
            Placed::Held => Ok(false),
            Placed::ToSpill { buf, crc } => {
                cut.spill(common, cx, &mut self.scratch, slot, read, (buf, crc))?;
                Ok(true)
            }
        }
    }

    pub fn spill_done(&mut self, spilled: Spilled, is_saved: bool) -> Result<(), GivenUp> {
        self.scratch.written();
        self.sending.cut_mut().map_or(Ok(()), |cut| cut.spilled(spilled, is_saved))
    }

    /// Reads what the cut has of these regions ahead of a write. False: there is no memory for it yet.
    pub fn save_for_cut(&mut self, common: &mut Common, cx: &mut Cx, id: VolumeId, first: u64, last: u64) -> bool {
        let mut from = first;
        let longest = longest_read(limits::PART_BYTES_MAX, self.cut_room(common, cx));
        while let Some((run, next)) = common.volumes.of(id).next_of_cut(from, last, longest) {
            let bytes = (next - run) * REGION_BYTES;
            let room = self.cut_room(common, cx);
            let Some(cut) = self.sending.cut_mut() else { return true };
            // What is being read leaves memory soon, for the link or for the undo store; what is read may stay for long.
            if cut.is_short_of_memory(bytes, room) {
                return false;
            }
            cut.read(common, cx, id, run, next, true);
            from = next;
        }
        true
    }

    /// Something of the cut leaves memory soon: then the write is looked at again.
    pub fn wait_for_memory_of_cut(&mut self, common: &mut Common, slot: u32) {
        self.reserve(common, slot);
        common.slots.write(slot).enter(WriteStage::ForMemory);
        if let Some(cut) = self.sending.cut_mut() {
            cut.keep_waiting(slot);
        }
    }

    /// What was outstanding is covered by its bits, which are set already (rule 10).
    pub fn end_stream(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        let Some(stream) = self.sending.end_stream() else { return };
        self.high_water = stream.queue().high_water();
        if stream.has_pass() {
            cx.marks.hit(Mark::SyncInterrupted);
        }
        common.volumes.iter_mut().for_each(|v| v.forget_stream());
        let (items, bytes) = (stream.queue().len(), stream.queue().bytes());
        if items > 0 {
            cx.event(common.id(), Event::QueueDropped { items, bytes, why: why.into() });
        }
    }

    // ---- a history that goes on alone -------------------------------------------------------------------------------

    /// The first write that the peer will not see in order begins a new generation: should the peer be promoted, both
    /// histories can be told apart (rule 5).
    ///
    /// True: it is being recorded, and writes wait for it.
    pub fn want_generation(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let sb = &common.sb;
        if !self.sending.is_apart() || sb.alone || self.generation_due || sb.identity.generation.is_blank() {
            return self.generation_due;
        }
        cx.marks.hit(Mark::GenerationContinued);
        common.sb.goes_on_alone(self.numbers.last(), |number| crate::ids::mix(self.entropy, number));
        self.generation_due = true;
        common.save_in_both_slots(cx, AfterSuper::NewGeneration);
        true
    }

    pub fn generation_is_due(&self) -> bool {
        self.generation_due
    }

    pub fn generation_recorded(&mut self) {
        self.generation_due = false;
    }

    pub fn start(&mut self, entropy: u64) {
        self.entropy = entropy;
    }

    /// Writes that waited until there is memory to save what they overwrite of a cut.
    pub fn take_waiting(&mut self) -> VecDeque<u32> {
        self.cut_mut().map(Cut::take_waiting).unwrap_or_default()
    }
}
