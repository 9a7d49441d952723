//! The activity log: which extents were written lately. An extent is in the log, durably, before the first write to it is
//! issued; so after a crash only what the log names and what the stored bitmap marks may differ (rule 2).
//!
//! A write to an extent in the log costs no metadata. An extent leaves the log only when the stored bitmap holds every bit
//! that is set in it, so the log never waits for the peer.
//!
//! On disk: cells of [`SLOTS_PER_CELL`] slots. A slot names an extent or nothing.

use crate::ActivityConfig;
use crate::cell::{BODY_BYTES, CELL_BYTES, Kind};

/// Format versions: 1, the first.
pub const VERSION: u16 = 1;
pub const KIND: Kind = Kind { magic: *b"FSHACTIV", version: VERSION };
const SLOT_BYTES: usize = 8;
/// Before the slots: the run that wrote the cell.
const FIXED_BYTES: usize = 8;
pub const SLOTS_PER_CELL: usize = (BODY_BYTES - FIXED_BYTES) / SLOT_BYTES;

/// Bytes of the activity log's file.
pub fn file_bytes(config: ActivityConfig) -> u64 {
    u64::from(config.extents).div_ceil(SLOTS_PER_CELL as u64) * CELL_BYTES
}
