//! Reads for a sync that are under way, and what lies in the undo store meanwhile.

use crate::ids::{Seq, VolumeId};

/// A range to be sent or compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncRange {
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
}

impl SyncRange {
    /// Payload of its read in the queue: that of a comparison has none.
    pub fn queued_bytes(self, compare: bool) -> u64 {
        if compare { 0 } else { self.length }
    }
}

/// One read under way, or waiting for its range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResyncRead {
    pub range: SyncRange,
    pub compare: bool,
    /// Its numbers: one for each part, so that no frame keeps a slow link busy for long (rule 25).
    pub first: Seq,
    pub last: Seq,
    pub part_bytes: u64,
    /// The pass it belongs to; a read of an older pass is forgotten.
    pub pass: u64,
}

/// A range being read for a verify, or waiting for that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VerifyRead {
    pub range: SyncRange,
    /// Of an earlier stretch of it nothing counts any more.
    pub stretch: u64,
}

/// A range being read for a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotRead {
    /// The snapshot it belongs to; a read of an older one is forgotten.
    pub snapshot: u64,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    /// A write waits for it.
    pub save: bool,
    /// Its hash is read, to be compared.
    pub compare: bool,
}

/// A range of a snapshot that lies in the undo store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpilledRange {
    pub snapshot: u64,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    /// In the store's file.
    pub undo_offset: u64,
    pub crc: u32,
}
