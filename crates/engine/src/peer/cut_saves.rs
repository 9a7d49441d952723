//! Saving a region of a cut ahead of the write that would overwrite it: into memory, while there is room, else into the undo
//! store. That is all a writer waits for: its own disk's read, and at most one write to the store.
//!
//! ```text
//! write -> regions not shipped yet? -> read (range locked) -> memory -------------------> frames, first of all
//!                                                          -> undo store -> read back ->
//! ```
//! On a primary the store is scratch: nothing in it is durable or outlives the cut, whose end a crash is anyway. When the
//! store is full too, the cut is given up: its regions stay dirty, and the writer goes on.

use crate::common::Common;
use crate::context::Cx;
use crate::ids::*;
use crate::peer::Peer;
use crate::shared::slots::Op;
use crate::{Output, Store};

/// Marks of cuts have numbers that no rollback point has.
const SCRATCH: u64 = 1 << 63;

/// A range of a cut that lies in the undo store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spilled {
    pub cut: u64,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    /// In the store's file.
    pub place: u64,
    pub crc: u32,
}

impl Peer {
    /// Reads back what was saved in the undo store; true if there was something.
    pub fn fetch_spilled(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let Some(cut) = self.cut.as_mut() else { return false };
        let Some(spilled) = cut.spilled.pop_front() else { return false };
        cut.reads += 1;
        cut.reading_bytes += spilled.length;
        let token = common.slots.start(Op::CutFetch(spilled));
        let store = Store::Undo(common.id());
        let (offset, length) = (spilled.place, spilled.length as u32);
        cx.out.push_back(Output::Read { token, store, offset, length, crc: Some(spilled.crc) });
        true
    }

    /// The store holds what this cut saved, or nothing: no write of an earlier one is on its way there.
    pub fn scratch_is_ours(&mut self, common: &mut Common, cut: u64) -> bool {
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
