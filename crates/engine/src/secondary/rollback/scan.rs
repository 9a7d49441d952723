//! A start reads the undo store back, a batch at a time, to the first that is not whole.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::undo::{self, INDEX_BYTES, UndoIndex};
use crate::records::start::{CannotStart, other_version, read_meta};
use crate::secondary::rollback::name;
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::SlotOperation;
use crate::state::Broken;
use crate::{IoDone, IoError, IoResult, Output, Store};

/// How far the store is read back.
#[derive(Debug, Default)]
pub(crate) struct RollbackScan {
    /// The batch whose content is being checked.
    batch: Option<(Vec<u8>, UndoIndex)>,
    left: usize,
    torn: bool,
    /// Bytes of the batches that the superblock does not count.
    drawn_bytes: u64,
}

/// These are true when it has ended: there is nothing more to read.
impl RollbackScan {
    pub fn begin(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        *self = RollbackScan::default();
        read_index(common, cx)
    }

    pub fn read_done(&mut self, common: &mut GroupCommon, cx: &mut Cx, result: IoResult) -> Result<bool, CannotStart> {
        match result {
            Ok(IoDone::Meta(block)) => return self.index_read(common, cx, block),
            Ok(_) => {}
            Err(IoError::Damaged) => self.torn = true,
            Err(_) => return Err(CannotStart::unreadable(Broken::Undo, "the undo store")),
        }
        self.left -= 1;
        Ok(self.left == 0 && self.batch_checked(common, cx))
    }

    fn index_read(&mut self, common: &mut GroupCommon, cx: &mut Cx, block: Vec<u8>) -> Result<bool, CannotStart> {
        if let Some(version) = common.undo.next_of_other_version(common.config.tag, &block) {
            let why = other_version("undo store", version, undo::VERSION);
            return Err(CannotStart::new(Broken::Undo, why));
        }
        let boot = common.sb.identity.incarnation;
        let index = UndoIndex::decode(&block).filter(|index| common.undo.follows(common.config.tag, boot, index));
        let Some(index) = index else { return Ok(true) };
        if !index.entries.iter().all(|e| common.volumes.contain(e.volume, e.offset, u64::from(e.length))) {
            let why =
                "the undo store holds ranges past the end of a volume: a volume shrank; give it its old size back";
            return Err(CannotStart::new(Broken::Undo, why));
        }
        // What the superblock counts was durable; behind that a batch may be torn in its content.
        let counted = index.ordinal <= common.sb.rollback_point.batches;
        let base = index.ring_offset;
        let to_check: Vec<_> = index.entries.iter().filter(|e| e.payload_at > 0 && !counted).copied().collect();
        (self.batch, self.left, self.torn) = (Some((block, index)), to_check.len(), false);
        if to_check.is_empty() {
            return Ok(self.batch_checked(common, cx));
        }
        for entry in to_check {
            let token = common.slots.start(SlotOperation::StartRead);
            cx.out.push_back(Output::Read {
                token,
                store: Store::Undo(common.id()),
                offset: base + u64::from(entry.payload_at),
                length: entry.length,
                crc: Some(entry.payload_crc),
            });
        }
        Ok(false)
    }

    fn batch_checked(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        let Some((block, index)) = self.batch.take() else { return false };
        if self.torn {
            cx.coverage.hit(CoveragePoint::UndoTornTail);
            return true;
        }
        if index.ordinal > common.sb.rollback_point.batches {
            self.drawn_bytes += u64::from(index.bytes);
        }
        common.undo.found(&block, &index);
        read_index(common, cx)
    }

    /// What is missing of the point; `None`: it is whole, and what the sync had reserved is reserved again.
    pub fn damage(&self, common: &mut GroupCommon) -> Option<String> {
        let point = common.sb.rollback_point;
        let (whole, at) = (common.undo.durable_batches(), common.undo.next_offset());
        if whole < point.batches {
            return Some(format!(
                "the undo store is damaged at byte {at}: {whole} of {} batches of {} are whole",
                point.batches,
                name(point.id)
            ));
        }
        // What came after that record drew on it, as far as the batches tell: which of their ranges the sync had reserved for stands nowhere.
        // So zeroes free nothing here, and live writes count too. The next begin of the sync reserves at least what is surely missing.
        common.undo.reserve(point.reserved_bytes.saturating_sub(self.drawn_bytes));
        None
    }
}

/// True: there is no space for another batch.
fn read_index(common: &mut GroupCommon, cx: &mut Cx) -> bool {
    let offset = common.undo.next_offset();
    let ended = offset + INDEX_BYTES as u64 > common.config.history_bytes;
    if !ended {
        read_meta(&mut common.slots, cx, Store::Undo(common.config.id), offset, INDEX_BYTES as u32);
    }
    ended
}
