//! Whether what one side of a connection owes the other moves.

use std::cell::Cell;

/// Looks in a row that find a client stalled, before it is cut off. Looks are counted instead of time: a thread of ours that stood
/// still for long is no fault of the client's.
pub(super) const LOOKS_MAX: u32 = 8;
/// Between two looks at least so much has to move, for it to count as moving.
const MOVE_BYTES_MIN: u64 = 4096;

/// Whether what a client owes us moves.
#[derive(Default)]
pub(super) struct StallWatch {
    /// So much has moved since the connection was made.
    bytes: Cell<u64>,
    bytes_before: Cell<u64>,
    looks: Cell<u32>,
}

impl StallWatch {
    pub fn moved(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// A whole payload has moved, however short it is.
    pub fn moved_whole(&self) {
        self.moved(MOVE_BYTES_MIN);
    }

    /// Whether nothing that was owed moved for too long.
    pub fn has_stalled(&self, is_owed: bool) -> bool {
        let now = self.bytes.get();
        let moved = now - self.bytes_before.replace(now);
        self.looks.set(if is_owed && moved < MOVE_BYTES_MIN { self.looks.get() + 1 } else { 0 });
        self.looks.get() >= LOOKS_MAX
    }
}
