//! What a secondary keeps while its group is taken up.

use crate::common::Common;
use crate::formats::journal::Ring;
use crate::secondary::Secondary;
use crate::secondary::replay::Replay;
use crate::secondary::rollback::Scan;

impl Secondary {
    /// The superblock is read: the journal goes on where it says.
    pub fn take_up_journal(&mut self, common: &Common) {
        self.ring = Ring::new(common.config.journal_bytes, common.sb.journal);
    }

    /// The start came to nothing.
    pub fn forget_start(&mut self) {
        (self.scan, self.replay) = (Scan::default(), Replay::default());
    }
}
