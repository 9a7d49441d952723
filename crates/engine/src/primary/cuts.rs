//! A sync by cuts on its primary: reads, writers that wait for what they would overwrite, confirmations.

use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::formats::bitmap::region_span;
use crate::formats::undo::{BLOCK_BYTES, ToSave};
use crate::formats::wire::Ack;
use crate::group::contradiction::ack_contradicts;
use crate::ids::*;
use crate::limits::{self, HOLE_BYTES_MIN, REGION_BYTES};
use crate::peer::cut_saves::Spilled;
use crate::peer::cuts::{CutRead, longest_read};
use crate::peer::stall::{PauseCause, unreadable};
use crate::planted::{Fault, planted};
use crate::primary::Primary;
use crate::shared::marks::Mark;
use crate::shared::slots::Op;
use crate::shared::volume::Volume;
use crate::{Buf, Bytes, Event, IoDone, IoError, Output, Slice, Store};
use alloc::collections::VecDeque;
use alloc::vec;

impl Primary {
    /// Live writes do not fit the stream beside a sync: nobody waits, the sync goes on by cuts.
    pub fn turn_to_cuts(&mut self, common: &mut Common, cx: &mut Cx) {
        cx.marks.hit(Mark::SyncTurnedToCuts);
        self.end_stream(common, cx, "writes come faster than the link carries them beside the sync");
        self.peer.keep_from_stream(cx.now.mono);
        self.peer.begin_cut(common, cx, "writes come faster than the link carries them beside the sync");
    }

    /// The cut ends without its step: what belonged to it is still dirty.
    pub fn drop_cut(&mut self, common: &mut Common, cx: &mut Cx) {
        let Some(cut) = self.peer.cut.take() else { return };
        if !cut.done {
            cx.marks.hit(Mark::CutInterrupted);
        }
        common.volumes.iter_mut().for_each(|volume| volume.cut = None);
        common.empty_scratch();
        self.let_go_on(common, cx, cut.waiting);
    }

    /// The cut cannot be finished; the next one begins after a pause.
    pub fn give_up_cut(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        cx.marks.hit(Mark::CutGivenUp);
        self.pause_for_own_store(common, cx, why);
    }

    // ---- reading ---------------------------------------------------------------------------------------------------

    /// Starts reads while the link has use for them.
    pub fn pump_cut(&mut self, common: &mut Common, cx: &mut Cx) {
        self.peer.announce_cut(common, cx);
        self.retry_saves_for_cut(common, cx);
        loop {
            let room = self.peer.cut_room(common, cx);
            let Some(cut) = self.peer.cut.as_ref().filter(|cut| cut.ships() && !self.peer.waits_to_resume(common))
            else {
                return;
            };
            let some = cut.memory_bytes() > 0;
            let full = cut.memory_bytes() >= limits::RESYNC_BACKLOG_BYTES_MAX.min(room / 2);
            if cut.reads >= limits::RESYNC_READS_MAX || (some && full) {
                return;
            }
            if self.peer.fetch_spilled(common, cx) {
                continue;
            }
            let Some((volume, first, next)) = self.peer.next_of_cut(common, longest_read(cx.peer.part_bytes, room))
            else {
                return;
            };
            if self.peer.asks_for_hole(common, cx, volume, first) {
                return;
            }
            self.peer.read_for_cut(common, cx, volume, first, next, false);
        }
    }

    pub fn cut_read_done(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, result: Result<IoDone, IoError>) {
        let Some(&Op::Cut(read)) = common.slots.get(slot) else { unreachable!("checked by the caller") };
        let ours = self.peer.cut.as_ref().is_some_and(|cut| cut.name == read.cut);
        let is_spilled = ours && self.place_cut_read(common, cx, slot, &read, result);
        if !is_spilled {
            common.volumes.of(read.volume).release(slot);
        }
        // Nobody else is given the slot while it holds the range.
        common.slots.take(slot);
        if !is_spilled {
            self.wake_range_waiters(common, cx, read.volume);
        }
    }

    /// True: the range stays locked, its content goes to the undo store first.
    fn place_cut_read(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        slot: u32,
        read: &CutRead,
        result: Result<IoDone, IoError>,
    ) -> bool {
        let room = self.peer.cut_room(common, cx);
        let cut = self.peer.cut.as_mut().expect("checked by the caller");
        cut.reads -= 1;
        cut.reading_bytes -= read.length;
        let (buf, crc) = match result {
            Ok(IoDone::Summed { zero: true, .. } | IoDone::Payload { zero: true, .. }) => (None, 0),
            Ok(IoDone::Summed { buf, crc, .. }) => (Some(buf), crc),
            Ok(IoDone::Payload { buf, .. }) => (Some(buf), 0),
            Ok(_) => unreachable!("a read answers with what was read"),
            Err(_) => {
                // A write may be about to overwrite what could not be read: the step cannot be whole.
                self.give_up_cut(common, cx, &unreadable(read.volume, read.offset));
                return false;
            }
        };
        common.counters.resynced_bytes += read.length;
        common.counters.shipped_bytes += if buf.is_some() { read.length } else { 0 };
        if let Some(buf) = buf.clone().filter(|_| read.save && cut.held_bytes + read.length > room / 4) {
            return self.spill(common, cx, slot, read, buf, crc);
        }
        cut.hold(read.volume, read.offset, read.length, buf, read.save);
        false
    }

    /// The peer's confirmations of the cut's numbers.
    pub fn cut_ack(&mut self, common: &mut Common, cx: &mut Cx, ack: Ack, recalls: u64) {
        let Some(cut) = self.peer.cut.as_mut().filter(|cut| cut.open_since.is_some() && !cut.done) else {
            // The cut waits to begin, perhaps for what the peer cannot apply.
            return self.peer.peer_paused(common, cx, ack.paused);
        };
        let was = cut.confirmed;
        if let Some(what) = ack_contradicts(&ack, [was.received, was.durable, was.applied], cut.sent) {
            return common.protocol_error(cx, what);
        }
        cut.confirmed = ack;
        (cut.granted_bytes, cut.recalls) = (ack.granted_bytes, recalls);
        if (was.received, was.durable, was.applied) != (ack.received, ack.durable, ack.applied) {
            self.peer.stall.moved(cx.now.mono);
        }
        let done = cut.end.is_some_and(|end| end <= ack.applied);
        self.peer.peer_paused(common, cx, ack.paused);
        if done {
            self.cut_applied(common, cx);
        }
    }

    /// The peer holds the image of the mark: that is the recovery point now.
    fn cut_applied(&mut self, common: &mut Common, cx: &mut Cx) {
        cx.marks.hit(Mark::CutEnded);
        self.peer.stall.sync_ended();
        self.peer.measure(common, cx);
        let Some(cut) = self.peer.cut.as_mut() else { return };
        cut.done = true;
        let (from, wall, payload_bytes) = (cut.from, cut.wall, cut.payload_bytes);
        common.greeting.holds_snapshot(from);
        common.confirmed(from);
        common.volumes.iter_mut().for_each(Volume::settle_cut);
        common.empty_scratch();
        common.set_timer(cx, GroupTimer::TidyBits, limits::TIDY_BITS_AFTER);
        self.peer.catch_up.sent_bytes += payload_bytes;
        self.peer.recovered = Some(from.seq);
        self.peer.peer_reached(cx, wall);
        if core::mem::take(&mut common.sb.current.compare) {
            common.save(cx, None);
        }
        cx.event(common.id(), Event::CutEnded { at: from, sent_bytes: payload_bytes });
        self.retry_saves_for_cut(common, cx);
        if common.lifecycle.is_running() {
            self.peer.next_step(common, cx, "update sync");
        }
    }

    /// A write is about to be given its number: what it would overwrite of the cut is read first. True: it waits.
    pub fn saves_for_cut(&mut self, common: &mut Common, cx: &mut Cx, slot: u32) -> bool {
        let (id, offset, length) = common.slots.write(slot).range();
        let (first, last) = region_span(offset, length);
        let spared = common.volumes.of(id).unshipped_in(first, last) == 0 || planted(Fault::CutNotSaved);
        if spared || self.peer.cut.is_none() {
            return false;
        }
        cx.marks.hit(Mark::CutSavedRegion);
        common.give_back_range(slot);
        let mut from = first;
        let longest = longest_read(limits::PART_BYTES_MAX, self.peer.cut_room(common, cx));
        while let Some((run, next)) = common.volumes.of(id).next_of_cut(from, last, longest) {
            let bytes = (next - run) * REGION_BYTES;
            let room = self.peer.cut_room(common, cx);
            // What is being read leaves memory soon, for the link or for the undo store; what is read may stay for long.
            if self.peer.cut.as_ref().is_some_and(|cut| cut.reads > 0 && cut.memory_bytes() + bytes > room) {
                return self.waits_for_memory_of_cut(common, cx, slot);
            }
            self.peer.read_for_cut(common, cx, id, run, next, true);
            from = next;
        }
        // Whole regions: one that is being written now is read when that is done, and the write comes after.
        self.peer.wait_for_range(common, slot, first * REGION_BYTES, (last + 1 - first) * REGION_BYTES);
        true
    }

    /// Something of the cut leaves memory soon: then the write is looked at again.
    fn waits_for_memory_of_cut(&mut self, common: &mut Common, cx: &mut Cx, slot: u32) -> bool {
        cx.marks.hit(Mark::CutSaveWaited);
        self.peer.reserve(common, slot);
        let volume = common.slots.write(slot).volume;
        if let Some(cut) = self.peer.cut.as_mut() {
            cut.waiting.push_back(slot);
        }
        self.wake_range_waiters(common, cx, volume);
        true
    }

    /// There may be memory by now.
    pub fn retry_saves_for_cut(&mut self, common: &mut Common, cx: &mut Cx) {
        let waiting = self.peer.cut.as_mut().map(|cut| core::mem::take(&mut cut.waiting)).unwrap_or_default();
        self.let_go_on(common, cx, waiting);
    }

    pub fn let_go_on(&mut self, common: &mut Common, cx: &mut Cx, waiting: VecDeque<u32>) {
        for slot in waiting {
            self.peer.unreserve(common, slot);
            self.reserve_and_go(common, cx, slot);
        }
    }

    // ---- the undo store as scratch ---------------------------------------------------------------------------------

    /// Puts what was read into the undo store; its range stays locked meanwhile. False: there is no room, and no cut any
    /// more.
    pub fn spill(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, read: &CutRead, buf: Buf, crc: u32) -> bool {
        let (length, boot) = (read.length as u32, common.sb.current.identity.incarnation);
        let to_save = ToSave { volume: read.volume, offset: read.offset, length, crc: Some(crc), reserved: false };
        let placed = if self.peer.scratch_is_ours(common, read.cut) {
            common.saver.store.place(common.config.tag, boot, &[to_save])
        } else {
            None
        };
        let Some(placed) = placed else {
            let why = "writers overwrite what a cut has not shipped faster than the link carries it, and the undo store is full";
            self.give_up_cut(common, cx, why);
            self.peer.not_the_peers(PauseCause::UndoStoreWasFull);
            return false;
        };
        cx.marks.hit(Mark::CutSpilled);
        let place = placed.offset + u64::from(placed.entries[0].payload_at);
        let spilled =
            Spilled { cut: read.cut, volume: read.volume, offset: read.offset, length: read.length, place, crc };
        if let Some(cut) = self.peer.cut.as_mut() {
            cut.reads += 1;
            cut.reading_bytes += read.length;
        }
        self.peer.scratch_writes += 1;
        let now = common.slots.insert(Op::CutSpill(spilled));
        common.volumes.of(read.volume).hand_over(slot, now);
        let mut parts = vec![Bytes::Meta(placed.image), Bytes::Payload(Slice { buf, start: 0, length })];
        let padding = u64::from(length).next_multiple_of(BLOCK_BYTES) - u64::from(length);
        if padding > 0 {
            parts.push(Bytes::Meta(vec![0; padding as usize]));
        }
        cx.out.push_back(Output::Write {
            token: Token::new(common.id(), now),
            store: Store::Undo(common.id()),
            offset: placed.offset,
            parts,
            durable: false,
            waits_for_peer: false,
        });
        true
    }

    pub fn spill_done(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, result: Result<(), IoError>) {
        let Some(Op::CutSpill(spilled)) = common.slots.take(slot) else { unreachable!("checked by the caller") };
        self.peer.scratch_writes -= 1;
        // Before anything else may be given the slot.
        common.volumes.of(spilled.volume).release(slot);
        if let Some(cut) = self.peer.cut.as_mut().filter(|cut| cut.name == spilled.cut) {
            cut.reads -= 1;
            cut.reading_bytes -= spilled.length;
            cut.spilled.push_back(spilled);
            if result.is_err() {
                // No space for the store's file, or a bad disk: either way the content is not kept.
                self.give_up_cut(
                    common,
                    cx,
                    "what a write was about to overwrite could not be saved in the undo store",
                );
            }
        }
        self.wake_range_waiters(common, cx, spilled.volume);
    }

    pub fn spilled_read(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        spilled: Spilled,
        result: Result<IoDone, IoError>,
    ) {
        let Some(cut) = self.peer.cut.as_mut().filter(|cut| cut.name == spilled.cut) else { return };
        cut.reads -= 1;
        cut.reading_bytes -= spilled.length;
        match result {
            Ok(IoDone::Payload { buf, .. }) => {
                cut.hold(spilled.volume, spilled.offset, spilled.length, Some(buf), true);
            }
            Ok(_) => unreachable!("a read answers with what was read"),
            Err(IoError::Damaged) => {
                self.give_up_cut(common, cx, "what was saved for a cut in the undo store is damaged")
            }
            Err(_) => {
                self.give_up_cut(common, cx, "what was saved for a cut could not be read back from the undo store")
            }
        }
    }

    /// What is not known to be a hole is read.
    pub fn hole_found(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        slot: u32,
        question: CutRead,
        result: Result<IoDone, IoError>,
    ) {
        let CutRead { volume, offset, length, .. } = question;
        common.volumes.of(volume).release(slot);
        common.slots.take(slot);
        if let Some(cut) = self.peer.cut.as_mut().filter(|cut| cut.name == question.cut) {
            cut.reads -= 1;
            let (run, is_hole) = match result {
                Ok(IoDone::Run { length: run, is_hole }) => (run.min(length), is_hole),
                _ => (0, false),
            };
            let first = offset / REGION_BYTES;
            // A last region that is cut short by the volume's end is whole if the run reaches that.
            let regions = if run == length { length.div_ceil(REGION_BYTES) } else { run / REGION_BYTES };
            let bytes = (regions * REGION_BYTES).min(length);
            cut.asked.is_asking = false;
            if is_hole && bytes >= HOLE_BYTES_MIN {
                cx.marks.hit(Mark::HoleFound);
                cut.hold(volume, offset, bytes, None, false);
                cut.walk_from(volume, first + regions);
                common.volumes.of(volume).take_for_cut(first, first + regions);
                common.counters.resynced_bytes += bytes;
            } else {
                let until = first + regions.max(HOLE_BYTES_MIN / REGION_BYTES);
                cut.asked.data_until = Some((volume, until));
                cut.walk_from(volume, first);
            }
        }
        self.wake_range_waiters(common, cx, volume);
    }
}
