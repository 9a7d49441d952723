//! Every default and bound in one place, each with its reason.

use core::time::Duration;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// One bit of the dirty bitmap in memory. 4 KiB: what file systems and databases write at least, so a resync sends what was written
/// and hardly more. A TiB costs 34 MiB of bits for each set of them if it is mixed everywhere, and 0.6 MiB where none or all are set.
pub const REGION_BYTES: u64 = 4 * KIB;

/// Smallest block any export may use, and the unit of every length on disk and wire.
pub const SECTOR_BYTES: u64 = 512;

/// Alignment of metadata blocks: covers 4 KiB-native devices.
pub const META_BLOCK_BYTES: u64 = 4 * KIB;

/// Largest NBD READ/WRITE payload (what nbd clients assume at most without asking).
pub const REQUEST_BYTES_MAX: u64 = 32 * MIB;

/// Largest payload of one frame; a longer write becomes parts with numbers of their own (rule 4).
pub const PART_BYTES_MAX: u64 = MIB;

/// Numbers that one frame stands for: more than it could have joined, and few enough to count.
pub const RUN_MAX: u64 = 16_384;

/// Slices of one frame: what a write to the kernel takes is bounded, and a header comes before them.
pub const SLICES_MAX: usize = 60;

/// What the peer takes in one step, where something of it was left out: one batch of its journal has to hold it.
pub const EPOCH_FRAMES_MAX: usize = 64;
pub const EPOCH_BYTES_MAX: u64 = MIB;
/// And the time between its first write and its last, as of those that travel joined.
pub const EPOCH_TIME: Duration = Duration::from_secs(1);

/// What one request writes to the disk queue or reads of it at most: a part fits, and a disk is at its full rate.
pub const DISK_QUEUE_BATCH_BYTES: u64 = PART_BYTES_MAX;

/// A head of the queue's log that has moved is on record so soon, and how many of its batches are durable.
pub const QUEUE_CELL_AFTER: Duration = Duration::from_millis(200);

/// Least disk queue: several batches and the gap at its end.
pub const DISK_QUEUE_BYTES_MIN: u64 = 8 * MIB;

/// Default disk queue: more than half an hour of 2 MB/s, or five minutes of 14 MB/s.
pub const DISK_QUEUE_BYTES_DEFAULT: u64 = 4 * GIB;

/// Shorter holes are read as data when a snapshot is read: to ask for each would cost more than to read them.
pub const HOLE_BYTES_MIN: u64 = 256 * KIB;

/// A hole travels in parts of this size at most. A secondary whose device knows no zeroes writes so many of them side by side as it
/// applies at once, 512 MiB, and has to show progress meanwhile.
pub const HOLE_PART_BYTES_MAX: u64 = 8 * MIB;

/// Smallest part on the slowest link: 8 KiB take half a second at 128 kbit/s (rule 25).
pub const PART_BYTES_MIN: u64 = 8 * KIB;

/// Part size before the link's rate was measured: 64 KiB is 4 s at 128 kbit/s, 5 ms at 100 Mbit/s.
pub const PART_BYTES_UNMEASURED: u64 = 64 * KIB;

/// Largest part of a write on a link of this rate, bytes a second: a quarter of a second of it.
pub fn part_bytes(rate: Option<u64>) -> u64 {
    rate.map_or(PART_BYTES_UNMEASURED, |rate| 1 << (rate / 4).clamp(PART_BYTES_MIN, PART_BYTES_MAX).ilog2())
}

/// The same while another group's writers wait for the peer: what goes before them is short. A link with little to carry is
/// measured too low, so there is a least.
pub fn part_bytes_awaited(rate: Option<u64>) -> u64 {
    let most = rate.map_or(PART_BYTES_UNMEASURED, |rate| rate / 1000 * UNSENT_TIME_AWAITED.as_millis() as u64);
    part_bytes(rate).min(1 << most.max(UNSENT_BYTES_AWAITED_MIN / 2).ilog2())
}

/// Longest range of one write-zeroes record: it carries no payload, the bound keeps one apply short.
pub const ZERO_PART_BYTES_MAX: u64 = 128 * MIB;

/// Largest payload of a control frame (hello, acknowledgement): a hello of a group with 256 volumes fits.
pub const CONTROL_BYTES_MAX: u64 = 64 * KIB;

/// Marks of one group on a node: ten cells of their file, read at once at a start. One that is dropped counts until the peer has heard of it.
pub const MARKS_MAX: usize = 250;
/// Bytes of a mark's name: with all else that is known of it a mark fits a slot of 160 bytes.
pub const MARK_NAME_BYTES_MAX: usize = 63;

/// Volumes in one group: one flush point for each fits the superblock.
pub const VOLUMES_MAX: usize = 256;

/// Largest volume: 16 PiB keeps region numbers below 2^42, and a set of them below 564 GiB if it is mixed everywhere.
pub const VOLUME_BYTES_MAX: u64 = 1 << 54;

/// What a peer may count up to: numbers of writes, runs, generations, bytes. At 10^9 a second none comes there in 146 years, and
/// four of them can be added without a thought.
pub const NUMBER_MAX: u64 = 1 << 62;

/// What a peer's clock may say, in nanoseconds since 1970: the year 2262.
pub const WALL_MAX: u64 = 1 << 63;

/// Queue payload before writers wait. AVS shipped 8 MiB, which a burst of 50 x 8 KiB/s over 50 ms filled in 33 s.
pub const QUEUE_BYTES_DEFAULT: u64 = 64 * MIB;
pub const QUEUE_BYTES_MIN: u64 = MIB;
/// Bounded by memory, not by the engine; 1 TiB is past any machine this runs on.
pub const QUEUE_BYTES_MAX: u64 = 1 << 40;

/// Queue entries before writers wait; AVS's own number, which in practice never binds before the bytes do.
pub const QUEUE_ITEMS_DEFAULT: u64 = 4_194_304;
pub const QUEUE_ITEMS_MIN: u64 = 16;
pub const QUEUE_ITEMS_MAX: u64 = 1 << 32;

/// What one queued write costs besides its payload (rule 22): entry, index, allocator.
pub const ITEM_OVERHEAD_BYTES: u64 = 256;

/// What all groups of a node may hold in memory: queues, and what secondaries have received or promised to take. 1 GiB:
/// sixteen groups with their default queue or window full at once, on machines that have several.
pub const MEMORY_BYTES_DEFAULT: u64 = GIB;
pub const MEMORY_BYTES_MIN: u64 = 16 * MIB;
/// Past any machine this runs on.
pub const MEMORY_BYTES_MAX: u64 = 1 << 44;

/// What each group may hold however short memory is, so that every one can go on: the largest part of a write with its
/// bookkeeping, and some small ones beside it.
pub const MEMORY_GROUP_BYTES: u64 = MIB + 64 * KIB;

/// Groups that read their state or replay their journal at once when a node starts (rule 24). Each replays one batch at a
/// time, so sixteen keep an SSD's queue filled and hold 64 MiB at most.
pub const STARTS_AT_ONCE: usize = 16;
/// A group that starts for longer than this, for want of an answer or with a long journal, no longer holds up others.
pub const START_PERMIT_LIMIT: Duration = Duration::from_secs(10);

/// Groups of a node that sync at once (rule 17): together they share link and disks, so more of them only end later each;
/// four keep the link busy while one of them waits for its disk.
pub const SYNCS_AT_ONCE: usize = 4;
pub const SYNCS_AT_ONCE_MAX: usize = 4096;
/// A sync that takes longer than this no longer holds up others: one endless sync is not all groups' fate.
pub const SYNC_PERMIT_LIMIT: Duration = Duration::from_secs(600);

/// A sync whose peer shows no progress for this long although its link lives is given up. Longer than a disk takes to
/// give up on a bad sector and try again, and than the first bytes of a link of 128 kbit/s are on their way (half a MiB:
/// 33 s); nobody waits for it meanwhile but other syncs. Where a link's timeout is longer, that is the limit.
pub const SYNC_STALLED_AFTER: Duration = Duration::from_secs(60);

/// Pieces of a snapshot that were sent and are not confirmed as applied, of which is remembered what they are of: 40 bytes each, however
/// much a peer lets itself be sent. Pieces of one region fill a window of 272 MiB with so many, four times the default; of zeroes, which
/// cost a frame without a payload, 16 MiB. What is not remembered is sent again.
pub const SHIPPED_PIECES_MAX: usize = 65_536;

/// Bytes the secondary lets a primary send ahead of what it has applied. 64 MiB fill 1 Gbit/s at 200 ms twice over.
pub const WINDOW_BYTES_DEFAULT: u64 = 64 * MIB;
pub const WINDOW_BYTES_MIN: u64 = 2 * MIB;
pub const WINDOW_BYTES_MAX: u64 = 16 * GIB;

/// The landing log. At least twice the window, so that a full window never waits for trimming.
pub const JOURNAL_BYTES_DEFAULT: u64 = 256 * MIB;
pub const JOURNAL_BYTES_MIN: u64 = 8 * MIB;
pub const JOURNAL_BYTES_MAX: u64 = 1 << 40;

/// Payload gathered into one journal batch: long enough for full speed, short enough that a lone write is not held up.
pub const BATCH_BYTES_MAX: u64 = 4 * MIB;

/// Journal batches in flight at once: one being written, one gathered, as group commit wants; more hide device latency.
pub const BATCHES_IN_FLIGHT_MAX: usize = 4;

/// Writes applied to a secondary's volumes at once.
pub const APPLY_IN_FLIGHT_MAX: usize = 64;

/// The secondary flushes its volumes (which lets `applied` advance) after this much or this long.
pub const APPLY_FLUSH_BYTES: u64 = 16 * MIB;
pub const APPLY_FLUSH_AFTER: Duration = Duration::from_millis(200);

/// The primary flushes its volumes by itself so that bits can clear (rule 2).
pub const LOCAL_FLUSH_BYTES: u64 = 64 * MIB;
pub const LOCAL_FLUSH_AFTER: Duration = Duration::from_secs(5);

/// One entry of the activity log. 4 MiB and 1 024 of them, as DRBD's: 4 GiB of hot extents are resynced at most, and a
/// working set of that size writes no metadata.
pub const EXTENT_BYTES: u64 = 4 * MIB;
pub const EXTENTS_DEFAULT: u32 = 1024;
pub const EXTENTS_MIN: u32 = 16;
/// Each extent costs 8 bytes on disk and about 64 in memory; 65 536 are 256 GiB of hot extents.
pub const EXTENTS_MAX: u32 = 65_536;

/// A primary's stored bits that are clear in memory are cleared on disk this much later, so many cells at a time: it costs nothing to
/// wait, and a busy group clears the same cell again and again.
pub const TIDY_BITS_AFTER: Duration = Duration::from_secs(5);
pub const TIDY_CELLS: usize = 512;

/// The undo store: room for what a resync overwrites. The file is sparse and grows as it is reserved.
pub const HISTORY_BYTES_DEFAULT: u64 = 16 * GIB;
pub const HISTORY_BYTES_MIN: u64 = 64 * MIB;
pub const HISTORY_BYTES_MAX: u64 = 1 << 50;

/// What a sync overwrites is saved in regions, each at worst in a batch of its own with an index as large. Where that may take more room
/// than the whole image in such units with their indexes, 9/8 of it, units are saved whole.
pub const SAVE_UNIT_BYTES: u64 = 32 * KIB;
/// One range on its way into the undo store, and how many there may be: a large trim is saved in pieces.
pub const SAVE_PIECE_BYTES_MAX: u64 = 256 * KIB;
pub const SAVE_PIECES_MAX: usize = 256;
/// What is read to be saved and not saved yet: enough to keep a disk busy.
pub const SAVE_HELD_BYTES_MAX: u64 = 8 * MIB;
/// Ranges written back at once in a rollback: 8 MiB of the largest.
pub const WRITE_BACKS_MAX: usize = 32;

/// Views of one group. Each one more has its first touches saved again.
pub const VIEWS_MAX: usize = 8;
/// One read of a view: what the front end asks for at once.
pub const VIEW_READ_BYTES_MAX: u64 = MIB;
/// Reads of one view that wait or are under way: as many as clients of an export ask for at once.
pub const VIEW_REQUESTS_MAX: usize = 128;
/// What one view has read into memory, and how many operations of disks it has under way: a small share of the memory and of the disks, as
/// the secondary's own work comes first.
pub const VIEW_HELD_BYTES_MAX: u64 = 4 * MIB;
pub const VIEW_READS_MAX: usize = 16;
/// How long an opening waits for a moment in which nothing is being written, and applying for a save that does not get on: past that a disk
/// hangs, and no view is worth waiting for it.
pub const VIEW_PATIENCE: Duration = Duration::from_secs(10);

/// How long a primary waits for its peer after a power loss before it serves alone: a machine boots and a link comes up
/// within it.
pub const START_ALONE_DEFAULT: Duration = Duration::from_secs(60);
/// A pull under way when that time is over gets this much more.
pub const START_ALONE_AGAIN: Duration = Duration::from_secs(1);
pub const START_ALONE_MAX: Duration = Duration::from_secs(24 * 3600);

/// How long one write may wait for the peer before the policy decides.
pub const WAIT_LIMIT_DEFAULT: Duration = Duration::from_secs(10);
pub const WAIT_LIMIT_MIN: Duration = Duration::from_millis(100);
pub const WAIT_LIMIT_MAX: Duration = Duration::from_secs(3600);

/// A writer is held up who has waited for room longer than this share of `wait_limit`: 0.1 s of the default, which is what people
/// begin to notice, and what a hundred writers of 4 KiB cost each other at 4 MB/s.
pub const HELD_UP_SHARE: u32 = 100;

/// `link.weight` where nothing is said: a group of this weight sends a part in its turn.
pub const LINK_WEIGHT_DEFAULT: u8 = 10;
/// A turn of this weight lasts ten parts, for which the others wait.
pub const LINK_WEIGHT_MAX: u8 = 100;

/// While the mode ladder is down the line is looked at so often. While it is not, who waits is looked at as often.
pub const LADDER_LOOK: Duration = Duration::from_millis(100);

/// Where a full queue holds nobody up, nobody waits longer for the disk of this node's own queue: 0.1 s is what people begin to notice, and
/// five times what a disk needs for a batch and a flush.
pub const OWN_DISK_PATIENCE: Duration = Duration::from_millis(100);

/// A peer that was heard so lately is slow, and not lost: two of its heartbeats.
pub const LADDER_HEARS: Duration = Duration::from_millis(2 * HEARTBEAT_EVERY.as_millis() as u64);

/// The peer window of policy `hold`.
pub const HOLD_MAX: Duration = Duration::from_secs(24 * 3600);

/// A secondary asks for a peer window so often, or four times in a window that is shorter than four of these.
pub const WINDOW_ASK_EVERY: Duration = Duration::from_secs(1);

/// A question whose answer takes longer, or half of the window, is asked anew.
pub const WINDOW_ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Heartbeats each way. Four in the shortest silence that counts.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(200);

/// Silence after which a full queue no longer waits for the peer: the cable is more likely pulled than slow.
pub const SILENCE_SUSPECT: Duration = Duration::from_millis(600);

/// Silence after which writers of `sync` and `nearsync` no longer wait for the peer where the queue keeps the order, or so many round
/// trips: with the look at those who wait, nobody is held for more than a second, or ten round trips, by a pulled cable.
pub const SILENCE_LEAVES_BEHIND: Duration = Duration::from_millis(800);
pub const SILENCE_LEAVES_BEHIND_ROUND_TRIPS: u32 = 8;

/// What is queued when writers wait for the peer once more is through by then: the first of them waits no longer than for a pulled cable.
pub const PROMISED_WITHIN: Duration = Duration::from_secs(1);

/// Silence after which the link is declared dead.
pub const LINK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
pub const LINK_TIMEOUT_MIN: Duration = Duration::from_secs(1);
pub const LINK_TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// A link whose handed-over bytes made no progress for this long is shown as congested.
pub const CONGESTED_AFTER: Duration = Duration::from_secs(1);

/// An idle group sends its clock this often, so that it does not look behind (rule 19).
pub const TICK_EVERY: Duration = Duration::from_secs(1);

/// A secondary takes what its primary reported for the present so long: five words of it may be late.
pub const REPORT_HOLDS: Duration = Duration::from_secs(5);
const _: () = assert!(REPORT_HOLDS.as_nanos() > 2 * TICK_EVERY.as_nanos());

/// A wall clock that stands this far behind the stamps of writes is worth a word; less is what setting it by a millisecond or a leap
/// second does.
pub const CLOCK_BEHIND_NOTICED: Duration = Duration::from_secs(2);

/// Between two words on that.
pub const CLOCK_SAID_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// A peer that is connected, and whose half of a group has not said who it is after this, is still starting: reported to operators.
pub const GREETING_LATE_AFTER: Duration = Duration::from_secs(3);

/// Bytes handed to the socket but not yet taken by the kernel: at most this share of a second of the measured rate
/// (rule 25), within these bounds. The upper bound keeps the backlog in our queue.
pub const UNSENT_TIME: Duration = Duration::from_millis(250);
pub const UNSENT_BYTES_MIN: u64 = 64 * KIB;
pub const UNSENT_BYTES_MAX: u64 = 8 * MIB;
pub const UNSENT_BYTES_UNMEASURED: u64 = 512 * KIB;

/// The same while writers of one group wait for the peer and another group sends to it: so much of that one's may go before
/// them. As long as what the kernel may hold unsent, so that the socket does not run dry.
pub const UNSENT_TIME_AWAITED: Duration = Duration::from_millis(20);
/// Two parts: one on its way, and the next.
pub const UNSENT_BYTES_AWAITED_MIN: u64 = 32 * KIB;

/// Beyond that nothing is said that can be said later: what is repeated, or summed up by what follows. A busy link has its last frame
/// beyond its credit.
pub const CLOGGED_BYTES: u64 = PART_BYTES_MAX + 64 * KIB;

/// Control frames beyond the largest credit that are handed over and not taken: greetings, states and begins of all groups go at once
/// when a session begins, the largest with 2.2 KiB each. A peer that is owed more asks and does not read: its session ends.
pub const CONTROL_UNSENT_BYTES_MAX: u64 = MIB;
pub const CONTROL_UNSENT_BYTES_PER_GROUP: u64 = 8 * KIB;

/// Ranges that a primary has asked back and not written, and that a secondary owes its primary: 1 MiB each at most.
pub const PULLS_IN_FLIGHT: usize = 16;

/// Writes that a secondary remembers for a primary that may lose its power, and ranges that such a primary takes from it: some
/// 10 MiB of memory. Beyond it the journal takes nothing more until the primary has flushed, as when it is full; a primary
/// flushes after 64 MiB, which are half as many of the smallest writes.
pub const KEPT_MAX: usize = 1 << 18;

/// Resync reads in flight.
pub const RESYNC_READS_MAX: usize = 16;

/// Resync bytes that may stand unsent in the queue: a second of the link, no more than keeps the fastest one busy.
pub const RESYNC_BACKLOG_BYTES_MAX: u64 = 2 * MIB;

/// The same before the link's rate was measured.
pub const RESYNC_BACKLOG_BYTES_UNMEASURED: u64 = 512 * KIB;

/// A sync in the stream that live writes leave no room to read for this long goes on by snapshots.
pub const SYNC_STARVED_AFTER: Duration = Duration::from_secs(5);

/// A catch-up ends in the stream once what is left is at most what the link carries in this time (and at most a quarter of
/// the queue, which has to take the writes that come meanwhile): so the copy is without a new consistent point for about
/// that long. More goes by snapshots.
pub const STREAM_TAIL: Duration = Duration::from_secs(1);
/// The same on a link whose rate is not known: 1 MiB is 1 s at 8 Mbit/s.
pub const STREAM_TAIL_BYTES_UNMEASURED: u64 = MIB;

/// Snapshots with little in them follow each other at this distance: each costs a flush of every volume on both nodes, and what
/// is overwritten in the meantime travels once.
pub const SNAPSHOT_EVERY: Duration = Duration::from_secs(1);

/// Between two snapshots the copy does not move: while one takes longer than this, people are told how much the link would have to carry more.
pub const SNAPSHOT_WITHIN: Duration = Duration::from_secs(30);

/// After live writes did not fit beside a sync, snapshots go on for this long before the stream is tried again: writers that
/// come in bursts would make it begin and give up over and over.
pub const STREAM_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Compare-sync: bytes per hash, and unanswered hashes.
pub const PROBE_BYTES: u64 = 64 * KIB;
pub const PROBES_IN_FLIGHT_MAX: usize = 512;

/// Hashes that a snapshot has under way. So 64 MiB are compared in a round trip, more than a GiB a second at 50 ms: the disks are slower,
/// and so is the link that the content would have to take. Of regions one by one it is 4 MiB, 80 MiB a second.
pub const SNAPSHOT_PROBES_MAX: usize = 1024;

/// A verify yields: so many reads of it are under way, so many of its comparisons without an answer (64 KiB each, so 8 MiB are compared
/// in a round trip), and it reads only while no more than this stands unsent before it.
pub const VERIFY_READS_MAX: usize = 4;
pub const VERIFY_PROBES_MAX: usize = 128;
pub const VERIFY_UNSENT_BYTES_MAX: u64 = 64 * KIB;

/// Ranges that a verify has to look at again, for want of a repair, an answer or a link: beyond it nothing new is looked at.
pub const VERIFY_AGAIN_MAX: usize = 256;

/// A range that this node could not read so often, with [`REPAIR_AFTER`] between, is left out of a verify, which says so.
pub const VERIFY_TRIES_MAX: u32 = 4;

/// What waits for a repair is left out as well, once so long none of it was repaired.
pub const VERIFY_LEAVES_OUT_AFTER: Duration = Duration::from_secs(60);

/// Ranges that differ, named by a verify, in its status and in events: the rest is counted. A copy may differ everywhere.
pub const VERIFY_NAMED_MAX: usize = 16;

/// A mode with a promise is taken up when the backlog is below this, or after this long in catching-up.
pub const CATCH_UP_BYTES: u64 = MIB;
pub const CATCH_UP_AFTER: Duration = Duration::from_secs(3);

/// In `superasync` a queue that would take this long to send gives its order up for snapshots, if a snapshot takes half as long at most:
/// the copy is then between half of this and all of it behind, and not ever more.
pub const SUPERASYNC_QUEUE_TIME: Duration = Duration::from_secs(20);

/// After a stalled peer made the group fall to logging, autosync waits this long (rule 17: no resync storms), twice as
/// long each time it happens again without a sync that ended, up to the second figure: an operator's patience.
pub const RESYNC_HOLD_OFF: Duration = Duration::from_secs(5);
pub const RESYNC_HOLD_OFF_MAX: Duration = Duration::from_secs(120);

/// A region whose local write failed is read again and sent after this.
pub const REPAIR_AFTER: Duration = Duration::from_secs(1);

/// The peer of a node whose content was chosen is demoted within this time: a drain, and the way of an order from node to node.
pub const YIELD_LIMIT: Duration = Duration::from_secs(60);
/// What the other node holds is named to it and saved there at least so fast, in bytes a second: a disk that is slower hangs.
pub const DELTA_BYTES_PER_S_MIN: u64 = MIB;
/// How long a demotion waits for the peer to have everything.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// A switchover holds clients for this long at most, if no other time is asked for: less than the time after which the clients' own kernels
/// give up.
pub const HANDOVER_LIMIT: Duration = Duration::from_secs(10);

/// No longer time can be asked for.
pub const HANDOVER_LIMIT_MAX: Duration = Duration::from_secs(60);

/// A node that handed over waits this long for its peer to say that it is primary: that takes a record there.
pub const GRANT_LIMIT: Duration = Duration::from_secs(10);

/// A clean stop waits this long for the peer to have everything; the rest is an update sync at the next start.
pub const STOP_DRAIN: Duration = Duration::from_secs(2);

/// A write that has waited this long for a slot in the activity log is let past by nobody any more.
pub const STARVES_AFTER: Duration = Duration::from_millis(100);

/// A record that failed, and that the next start has to find, is tried again after this.
pub const RECORD_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Paused apply (no space on the secondary) tries again after this.
pub const APPLY_RETRY_AFTER: Duration = Duration::from_secs(1);

// Relations the code relies on, proved when it is compiled.
const _: () = assert!(JOURNAL_BYTES_DEFAULT >= 2 * WINDOW_BYTES_DEFAULT);
const _: () = assert!(JOURNAL_BYTES_MIN >= 2 * WINDOW_BYTES_MIN);
const _: () = assert!(WINDOW_BYTES_MIN >= 2 * PART_BYTES_MAX);
const _: () = assert!(MEMORY_GROUP_BYTES >= PART_BYTES_MAX + ITEM_OVERHEAD_BYTES);
const _: () = assert!(MEMORY_GROUP_BYTES <= WINDOW_BYTES_MIN);
const _: () = assert!(SYNC_STALLED_AFTER.as_secs() > UNSENT_BYTES_UNMEASURED / 16_000);
const _: () = assert!(PART_BYTES_MAX.is_multiple_of(REGION_BYTES));
const _: () = assert!(UNSENT_BYTES_AWAITED_MIN >= 2 * PART_BYTES_MIN && UNSENT_BYTES_AWAITED_MIN <= UNSENT_BYTES_MIN);
const _: () = assert!(PROBE_BYTES.is_multiple_of(REGION_BYTES));
const _: () = assert!(EXTENT_BYTES.is_multiple_of(64 * REGION_BYTES));
const _: () = assert!(SAVE_UNIT_BYTES.is_multiple_of(REGION_BYTES) && REGION_BYTES.is_multiple_of(META_BLOCK_BYTES));
const _: () = assert!(BATCH_BYTES_MAX >= PART_BYTES_MAX);
const _: () =
    assert!(EPOCH_BYTES_MAX >= PART_BYTES_MAX && EPOCH_BYTES_MAX + 2 * META_BLOCK_BYTES < JOURNAL_BYTES_MIN / 2);
const _: () = assert!(SAVE_PIECE_BYTES_MAX.is_multiple_of(META_BLOCK_BYTES) && SAVE_HELD_BYTES_MAX >= BATCH_BYTES_MAX);
const _: () = assert!(JOURNAL_BYTES_MIN > 2 * (BATCH_BYTES_MAX + META_BLOCK_BYTES) - MIB);
const _: () = assert!(PART_BYTES_MIN.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(SILENCE_SUSPECT.as_nanos() >= 3 * HEARTBEAT_EVERY.as_nanos());
const _: () = assert!(SILENCE_LEAVES_BEHIND.as_nanos() >= SILENCE_SUSPECT.as_nanos());
const _: () = assert!(SILENCE_LEAVES_BEHIND.as_nanos() < LINK_TIMEOUT_MIN.as_nanos());

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients that ask for no sizes assume this one: NBD's protocol says so.
    #[test]
    fn the_largest_request_is_what_nbd_clients_assume() {
        assert_eq!(REQUEST_BYTES_MAX, 33_554_432);
    }
}
