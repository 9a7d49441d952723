//! Saving a region of a cut ahead of the write that would overwrite it: into memory, while there is room, else into the undo
//! store. That is all a writer waits for: its own disk's read, and at most one write to the store.
//!
//! ```text
//! write -> regions not shipped yet? -> read (range locked) -> memory -------------------> frames, first of all
//!                                                          -> undo store -> read back ->
//! ```
//! On a primary the store is scratch: nothing in it is durable or outlives the cut, whose end a crash is anyway. When the
//! store is full too, the cut is given up: its regions stay dirty, and the writer goes on.

use alloc::collections::VecDeque;
use alloc::vec;

use crate::common::Common;
use crate::context::Cx;
use crate::formats::bitmap::region_span;
use crate::formats::undo::{BLOCK_BYTES, ToSave};
use crate::ids::*;
use crate::limits::{self, REGION_BYTES};
use crate::peer::Peer;
use crate::peer::cuts::{CutRead, longest_read};
use crate::peer::stall::PauseCause;
use crate::planted::{Fault, planted};
use crate::primary::Primary;
use crate::shared::marks::Mark;
use crate::shared::slots::Op;
use crate::{Buf, Bytes, IoDone, IoError, Output, Slice, Store};

/// Marks of cuts have numbers that no rollback point has.
const SCRATCH: u64 = 1 << 63;

/// A range of a cut that lies in the undo store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spilled {
    cut: u64,
    volume: VolumeId,
    offset: u64,
    length: u64,
    /// In the store's file.
    place: u64,
    crc: u32,
}

impl Primary {
    /// A write is about to be given its number: what it would overwrite of the cut is read first. True: it waits.
    pub fn saves_for_cut(&mut self, common: &mut Common, cx: &mut Cx, slot: u32) -> bool {
        let (id, offset, length) = common.slots.write(slot).range();
        let (first, last) = region_span(offset, length);
        let spared = common.volume(id).unshipped_in(first, last) == 0 || planted(Fault::CutNotSaved);
        if spared || self.peer.cut.is_none() {
            return false;
        }
        cx.marks.hit(Mark::CutSavedRegion);
        common.give_back_range(slot);
        let mut from = first;
        let longest = longest_read(limits::PART_BYTES_MAX, self.peer.cut_room(common, cx));
        while let Some((run, next)) = common.volume(id).next_of_cut(from, last, longest) {
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
            self.peer.stall.not_the_peers(PauseCause::UndoStoreWasFull);
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
        common.volume(read.volume).hand_over(slot, now);
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
        common.volume(spilled.volume).release(slot);
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
}

impl Peer {
    /// Reads back what was saved in the undo store; true if there was something.
    pub fn fetch_spilled(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let Some(cut) = self.cut.as_mut() else { return false };
        let Some(spilled) = cut.spilled.pop_front() else { return false };
        cut.reads += 1;
        cut.reading_bytes += spilled.length;
        let token = common.start_op(Op::CutFetch(spilled));
        let store = Store::Undo(common.id());
        let (offset, length) = (spilled.place, spilled.length as u32);
        cx.out.push_back(Output::Read { token, store, offset, length, crc: Some(spilled.crc) });
        true
    }

    /// The store holds what this cut saved, or nothing: no write of an earlier one is on its way there.
    fn scratch_is_ours(&mut self, common: &mut Common, cut: u64) -> bool {
        match common.saver.store.mark() {
            Some(mark) => mark == cut | SCRATCH,
            None if self.scratch_writes == 0 => {
                common.saver.store.begin_mark(cut | SCRATCH);
                true
            }
            None => false,
        }
    }
}

impl Common {
    /// Nothing of the cut is needed any more.
    pub fn empty_scratch(&mut self) {
        if self.saver.store.mark().is_some() {
            self.saver.store.drop_oldest();
        }
    }
}
