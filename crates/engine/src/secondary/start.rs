//! What a secondary keeps while its group is taken up.

use crate::common::GroupCommon;
use crate::formats::journal::JournalRing;
use crate::secondary::Secondary;
use crate::secondary::replay::JournalReplay;
use crate::secondary::rollback::UndoScan;

impl Secondary {
    /// The superblock is read: the journal goes on where it says.
    pub fn take_up_journal(&mut self, common: &GroupCommon) {
        self.ring = JournalRing::new(common.config.journal_bytes, common.sb.journal);
    }

    /// The start came to nothing.
    pub fn forget_start(&mut self) {
        (self.scan, self.replay) = (UndoScan::default(), JournalReplay::default());
    }
}
