//! What a node's disks refuse, or do slowly, for a while.

use engine::IoError;

/// Temporary trouble of a node's disks: who makes it sets it.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskTrouble {
    /// Writes of clients fail, or replicated ones.
    pub write_errors_until: u64,
    pub apply_errors_until: u64,
    pub read_errors_until: u64,
    /// Each read of a volume fails.
    pub unreadable_until: u64,
    pub full_until: u64,
    /// No space where a primary's volumes are, and for superblocks, bitmaps, journals.
    pub serving_full_until: u64,
    pub state_full_until: u64,
    /// No space for what goes into the queue's file.
    pub queue_full_until: u64,
    /// No space for a delta.
    pub delta_full_until: u64,
    /// Why no delta can be written, if not for want of space.
    pub delta_fails: Option<IoError>,
    pub slow_until: u64,
    /// A flush of a volume takes so much longer.
    pub flush_ns: u64,
    /// A read of a volume takes so much longer.
    pub read_ns: u64,
    /// An update of a superblock takes so much longer.
    pub superblock_ns: u64,
    /// A write to the disk queue takes so much longer.
    pub queue_ns: u64,
    /// A flush of the queue's file fails.
    pub queue_flush_fails: bool,
    /// Nothing completes before this.
    pub stalled_until: u64,
    pub fail_next_flush: bool,
    /// The next write of a superblock, bitmap or journal fails.
    pub fail_next_record: bool,
    /// The same of the one of this number among those to come; 0: none.
    pub fail_record_in: u64,
    /// The same of what goes into the queue's file.
    pub fail_queue_in: u64,
    /// The file of marks cannot be written, or not be read and flushed.
    pub marks_fail: bool,
    pub marks_unreadable: bool,
    /// A write of it takes so much longer.
    pub marks_ns: u64,
    /// The store for views cannot be written, or each write of it takes so much longer.
    pub views_fail: Option<IoError>,
    pub views_ns: u64,
    /// The group's stores cannot be opened again, once.
    pub refuses_reopening: bool,
    /// Faults that made this trouble and have not shown yet.
    pub unfelt: u64,
}
