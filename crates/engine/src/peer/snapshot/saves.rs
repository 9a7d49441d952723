//! Saving a region of a snapshot ahead of the write that would overwrite it: into memory, while there is room, else into the undo
//! store. That is all a writer waits for: its own disk's read, and at most one write to the store.
//!
//! ```text
//! write -> regions not shipped yet? -> read (range locked) -> memory -------------------> frames, first of all
//!                                                          -> undo store -> read back ->
//! ```
//! On a primary the store is scratch: nothing in it is durable or outlives the snapshot, whose end a crash is anyway. When the
//! store is full too, the snapshot is given up: its regions stay dirty, and the writer goes on.

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::undo::{BLOCK_BYTES, ToSave};
use crate::ids::*;
use crate::peer::pause::PauseCause;
use crate::peer::snapshot::{CatchUpSnapshot, GivenUp};
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::reads::{SnapshotRead, SpilledRange};
use crate::{Buf, IoDone, IoError, IoResult, Output, Slice, Store, WriteBytes};
use alloc::vec;

/// Marks of snapshots have numbers that no rollback point has.
const SCRATCH: u64 = 1 << 63;

impl CatchUpSnapshot {
    /// Puts what was read into the undo store; its range stays locked meanwhile. `Err`: there is no room.
    pub fn spill(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        slot: u32,
        read: &SnapshotRead,
        (buf, crc): (Buf, u32),
    ) -> Result<(), GivenUp> {
        let (length, boot) = (read.length as u32, common.sb.identity.incarnation);
        let to_save = ToSave { volume: read.volume, offset: read.offset, length, crc: Some(crc), reserved: false };
        let allocated = if holds_only(common, self.name | SCRATCH) {
            common.undo.allocate(common.config.tag, boot, &[to_save])
        } else {
            None
        };
        let Some(allocated) = allocated else {
            let why = "writers overwrite what a snapshot has not shipped faster than the link carries it, and the undo store is full";
            return Err(GivenUp { cause: PauseCause::UndoStoreWasFull, why: why.into() });
        };
        cx.coverage.hit(CoveragePoint::SnapshotSpilled);
        let undo_offset = allocated.offset + u64::from(allocated.entries[0].payload_at);
        let spilled = SpilledRange {
            snapshot: read.snapshot,
            volume: read.volume,
            offset: read.offset,
            length: read.length,
            undo_offset,
            crc,
        };
        self.begin_read(read.length);
        let now = common.slots.insert(SlotOperation::SnapshotSpill(spilled));
        common.volumes.of(read.volume).hand_over(slot, now);
        let mut parts = vec![WriteBytes::Meta(allocated.image), WriteBytes::Payload(Slice { buf, start: 0, length })];
        let padding = u64::from(length).next_multiple_of(BLOCK_BYTES) - u64::from(length);
        if padding > 0 {
            parts.push(WriteBytes::Meta(vec![0; padding as usize]));
        }
        cx.write(Token::new(common.id(), now), Store::Undo(common.id()), allocated.offset, parts, false);
        Ok(())
    }

    /// It lies in the store, unless that failed.
    pub fn spilled(&mut self, spilled: SpilledRange, is_saved: bool) -> Result<(), GivenUp> {
        if self.name != spilled.snapshot {
            return Ok(());
        }
        self.end_read(spilled.length);
        self.spilled.push_back(spilled);
        if is_saved {
            return Ok(());
        }
        // No space for the store's file, or a bad disk: either way the content is not kept.
        Err(GivenUp::own_store("what a write was about to overwrite could not be saved in the undo store"))
    }

    /// Reads back what was saved in the undo store; true if there was something.
    pub fn fetch_spilled(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        let Some(spilled) = self.spilled.pop_front() else { return false };
        self.begin_read(spilled.length);
        let token = common.slots.start(SlotOperation::SnapshotFetch(spilled));
        let store = Store::Undo(common.id());
        let (offset, length) = (spilled.undo_offset, spilled.length as u32);
        cx.out.push_back(Output::Read { token, store, offset, length, crc: Some(spilled.crc) });
        true
    }

    /// What was saved there is back.
    pub fn fetched(&mut self, spilled: SpilledRange, result: IoResult) -> Result<(), GivenUp> {
        if self.name != spilled.snapshot {
            return Ok(());
        }
        self.end_read(spilled.length);
        match result {
            Ok(IoDone::Payload { buf, .. }) => {
                self.hold(spilled.volume, spilled.offset, spilled.length, Some(buf), true);
                Ok(())
            }
            Ok(_) => unreachable!("a read answers with what was read"),
            Err(IoError::Damaged) => {
                Err(GivenUp::own_store("what was saved for a snapshot in the undo store is damaged"))
            }
            Err(_) => {
                Err(GivenUp::own_store("what was saved for a snapshot could not be read back from the undo store"))
            }
        }
    }
}

/// The store holds what this snapshot saved, or nothing: no write of an earlier one is on its way there.
fn holds_only(common: &mut GroupCommon, mark: u64) -> bool {
    if common.undo.mark().is_none() && !common.slots.spills() {
        common.undo.begin_mark(mark);
    }
    common.undo.mark() == Some(mark)
}
