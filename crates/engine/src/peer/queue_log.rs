//! The log of the queue: its ring, what is on its way there, and its cell. What the group does with it: `logging.rs`.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::cell::{self, CELL_BYTES, CellHead};
use crate::formats::journal::{ENTRIES_MAX, INDEX_BYTES, JournalEntry, JournalIndex, JournalRing, RecordKind};
use crate::formats::queue_log::{self, BATCHES_MAX, QueueCell, ring_bytes};
use crate::formats::wire::flags;
use crate::ids::{Incarnation, Seq};
use crate::injected_fault::{Fault, injected};
use crate::limits::{KIB, META_BLOCK_BYTES};
use crate::peer::queue::{ItemBody, QueueItem, StreamQueue};
use crate::peer::queue_redo::QueueRedo;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::wakes::Wake;
use crate::shared::write::{WriteKind, WriteOp};
use crate::time::Mono;
use crate::{IoDone, IoError, IoResult, Output, Slice, Store, WriteBytes};

/// With one on its way, less than this waits for company.
const WORTH_A_BATCH: u64 = 256 * KIB;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LogStage {
    #[default]
    Closed,
    /// What comes behind this number goes into the log, which counts for nothing yet.
    Filling {
        after: Seq,
    },
    /// Cell and superblock are being written.
    Opening,
    Live,
}

#[derive(Debug)]
pub(super) struct AppendBatch {
    ordinal: u64,
    since: Mono,
    last: Seq,
    /// For each number with content: where that stands in the ring, and its length.
    places: Vec<(Seq, u64, u32)>,
    /// How it ended, while one before it has not: it is durable, with these sums, or `None`: it could not be written.
    ended: Option<Option<Vec<u32>>>,
}

/// The cell, and what of it is durable.
#[derive(Debug, Default)]
pub(super) struct CellWriter {
    /// Number of the last update, unless it is not known what stands there: then it is wiped first.
    pub(super) update: u64,
    pub(super) is_known: bool,
    pub(super) durable: QueueCell,
    pub(super) writing: Option<QueueCell>,
    /// What the last update said.
    said: Option<QueueCell>,
}

impl CellWriter {
    /// A start found it so.
    pub(super) fn found(update: u64, durable: QueueCell) -> CellWriter {
        CellWriter { update, is_known: true, durable, ..CellWriter::default() }
    }

    /// An update that says this has ended; true: so did the one before it. A disk may confirm an update and never write it: the log of before
    /// stands in no slot only then (P9).
    pub(super) fn is_in_both(&mut self, cell: &QueueCell) -> bool {
        self.said.replace(*cell) == Some(*cell)
    }
}

/// What became of a batch.
pub(crate) enum Appended {
    /// Numbers up to here are in the log.
    Through(Seq),
    /// The log takes nothing more.
    Failed(IoError),
}

#[derive(Debug, Default)]
pub(crate) struct QueueLog {
    /// Of the file; 0: there is none.
    pub(super) file_bytes: u64,
    pub(super) is_wanted: bool,
    pub(super) stage: LogStage,
    pub(super) ring: Option<JournalRing>,
    pub(super) under_way: VecDeque<AppendBatch>,
    /// The last number that is in the log, or on its way there.
    pub(super) taken: Seq,
    /// The last number that is in the log, and all before it.
    pub(super) logged: Seq,
    /// Runs before this one whose numbers stand in the log, each with its last.
    pub(super) earlier: Vec<(Incarnation, Seq)>,
    /// Writes that wait until they are in the log, in their order.
    pub(super) parked: VecDeque<(Seq, u32)>,
    pub(super) cell: CellWriter,
    /// A start goes on from it.
    pub redo: Option<QueueRedo>,
    /// Its disk refused a write: it is not tried again before.
    pub(super) not_before: Mono,
    /// Why it closed last.
    pub(super) why_closed: &'static str,
    /// Since when it does not count, though it is to.
    off_since: Option<Mono>,
    /// The superblock is being told that the log counts no more.
    pub(super) is_closing: bool,
    /// What the queue had taken in up to the last number that is on its way.
    pub(super) entered_bytes: u64,
}

fn blocks(length: u64) -> u64 {
    length.next_multiple_of(META_BLOCK_BYTES)
}

impl QueueLog {
    pub fn new(file_bytes: u64, is_wanted: bool) -> QueueLog {
        QueueLog { file_bytes, is_wanted: is_wanted && file_bytes > 0, ..QueueLog::default() }
    }

    /// The group is to have one, whether it counts or not.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    pub fn is_live(&self) -> bool {
        self.stage == LogStage::Live
    }

    /// Numbers go into the log before they are written or sent.
    pub fn gates(&self) -> bool {
        self.stage != LogStage::Closed
    }

    /// Whoever waits for this number to be in the log need not.
    pub fn has(&self, seq: Seq) -> bool {
        !self.gates() && !self.is_closing || seq <= self.logged
    }

    /// The number is in the log that a start would find, or will be: it stays what it is. `counts`: the superblock says so, also where the stream
    /// has ended and the log takes nothing more.
    pub fn holds(&self, seq: Seq, counts: bool) -> bool {
        (self.gates() || self.is_closing || counts) && seq <= self.taken
    }

    /// A start would read the log from a number before this one.
    pub fn starts_before(&self, seq: Seq) -> bool {
        seq > self.cell.durable.before.1
    }

    pub fn ring_bytes(&self) -> u64 {
        ring_bytes(self.file_bytes)
    }

    /// The most that one batch takes.
    fn batch_bytes_max(&self) -> u64 {
        queue_log::batch_bytes_max(self.ring_bytes())
    }

    /// What a write takes at most: each part in a batch of its own.
    fn bytes_of(op: &WriteOp, part_bytes: u64) -> u64 {
        let parts = op.length.div_ceil(op.part_bytes(part_bytes));
        let payload = if matches!(op.what, WriteKind::Data(_)) { blocks(op.length) } else { 0 };
        payload + parts * 2 * META_BLOCK_BYTES
    }

    /// It would have room if the ring were empty.
    pub fn could_hold(&self, op: &WriteOp, part_bytes: u64) -> bool {
        let longest = if matches!(op.what, WriteKind::Data(_)) { op.length.min(part_bytes) } else { 0 };
        INDEX_BYTES as u64 + blocks(longest) <= self.batch_bytes_max()
            && QueueLog::bytes_of(op, part_bytes) < self.usable_bytes()
    }

    /// There is room for it behind all that has a number, or was let in, and is not in the log yet.
    pub fn has_room_for(&self, queue: &StreamQueue, reserved: (u64, u64), op: &WriteOp, part_bytes: u64) -> bool {
        let Some(ring) = self.ring.as_ref().filter(|_| self.gates()) else { return true };
        // A write that the log could never hold closes it.
        if !self.could_hold(op, part_bytes) {
            return true;
        }
        let taken = ring.used_bytes() + self.comes_bytes(queue, reserved);
        taken + QueueLog::bytes_of(op, part_bytes) <= self.usable_bytes()
    }

    /// What has a number, or was let in, and is not in the log yet.
    fn comes_bytes(&self, queue: &StreamQueue, reserved: (u64, u64)) -> u64 {
        let waiting = queue.last().0.saturating_sub(self.taken.0);
        let unlogged = queue.record().entered_bytes.saturating_sub(self.entered_bytes);
        unlogged + reserved.0 + (waiting + reserved.1) * 2 * META_BLOCK_BYTES
    }

    /// Neither what is left at the ring's end, nor the gap between tail and head, holds a batch.
    fn usable_bytes(&self) -> u64 {
        self.ring_bytes() - 2 * self.batch_bytes_max()
    }

    /// What it holds, or is to hold, for a peer that has applied everything up to there, and how much that may be; `None`: it takes nothing.
    /// What only waits for a flush of this node is free soon.
    pub fn filled(&self, queue: &StreamQueue, applied: Seq, reserved: (u64, u64)) -> Option<(u64, u64)> {
        let ring = self.ring.as_ref().filter(|_| self.gates())?;
        Some((ring.used_bytes_after(applied) + self.comes_bytes(queue, reserved), self.usable_bytes()))
    }

    /// Space is taken by what the peer has applied: this node alone frees it.
    pub fn makes_room(&self, applied: Seq) -> bool {
        self.gates() && self.ring.as_ref().is_some_and(|ring| ring.has_before(applied))
    }

    /// Writers wait for a batch, and its disk has answered nothing for so long.
    pub(super) fn hangs(&self, now: Mono, limit: Duration) -> bool {
        let is_waited_for = self.gates() || !self.parked.is_empty() && !self.is_closing;
        is_waited_for && self.under_way.front().is_some_and(|batch| now.since(batch.since) >= limit)
    }

    /// To be told once a turn.
    pub(super) fn note_whether_it_counts(&mut self, now: Mono, is_expected: bool) {
        self.off_since = (is_expected && !self.is_live()).then_some(self.off_since.unwrap_or(now));
    }

    /// For so long it has not counted, though it is to.
    pub(super) fn off_for(&self, now: Mono) -> Option<Duration> {
        self.off_since.map(|since| now.since(since))
    }

    /// A write waits until its numbers are in the log.
    pub fn park(&mut self, last: Seq, slot: u32) {
        self.parked.push_back((last, slot));
    }

    pub(super) fn release_logged(&mut self, common: &mut GroupCommon) {
        while let Some(&(last, slot)) = self.parked.front()
            && (last <= self.logged || injected(Fault::LoggedAfterWrite))
        {
            self.parked.pop_front();
            common.wake(Wake::Write(slot));
        }
    }

    /// The group failed: these are not written any more.
    pub fn take_parked(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.parked).into_iter().map(|(_, slot)| slot).collect()
    }

    /// The run in which this number of the log was given.
    pub(super) fn run_of(&self, seq: Seq, now: Incarnation) -> Incarnation {
        self.earlier.iter().find(|(_, last)| seq <= *last).map_or(now, |(run, _)| *run)
    }

    // ---- into the log ------------------------------------------------------------------------------------------------

    /// The next batch, if there is enough for one: its index, and its payloads.
    pub(super) fn next_batch(
        &mut self,
        common: &GroupCommon,
        queue: &StreamQueue,
        now: Mono,
    ) -> Option<(JournalIndex, Vec<Slice>)> {
        if self.under_way.len() >= BATCHES_MAX || self.taken >= queue.last() {
            return None;
        }
        let most = self.batch_bytes_max();
        let (mut entries, mut parts, mut bytes, mut cost) = (Vec::new(), Vec::new(), INDEX_BYTES as u64, 0);
        for item in queue.after(self.taken).take(ENTRIES_MAX) {
            let Some(entry) = entry_of(item, bytes) else { break };
            let payload = blocks(entry.payload_bytes.into());
            if bytes + payload > most {
                break;
            }
            bytes += payload;
            cost += item.cost_bytes;
            if let ItemBody::Data(slice) = &item.body {
                parts.push(slice.clone());
            }
            entries.push(entry);
        }
        let is_full = entries.len() == ENTRIES_MAX || bytes >= WORTH_A_BATCH.min(most / 2);
        if entries.is_empty() || !self.under_way.is_empty() && !is_full {
            return None;
        }
        let last = entries.last().map_or(Seq::NONE, |entry| entry.seq);
        let (offset, ordinal) = self.ring.as_mut()?.allocate(bytes, last)?;
        let places = entries.iter().filter(|entry| entry.payload_bytes > 0);
        let places = places.map(|e| (e.seq, offset + u64::from(e.payload_at), e.payload_bytes)).collect();
        let durable_below = self.under_way.front().map_or(ordinal, |batch| batch.ordinal);
        self.under_way.push_back(AppendBatch { ordinal, since: now, last, places, ended: None });
        self.taken = last;
        self.entered_bytes += cost;
        let identity = &common.sb.identity;
        let index = JournalIndex {
            tag: common.config.tag,
            ring_offset: offset,
            ordinal,
            boot: identity.incarnation,
            origin: common.node,
            generation: identity.generation,
            incarnation: identity.incarnation,
            snapshot: 0,
            durable_below,
            bytes: bytes as u32,
            first: entries.first().map_or(Seq::NONE, |entry| entry.seq),
            entries,
        };
        Some((index, parts))
    }

    /// A batch is durable, or could not be written. What of it leaves memory goes to `leaves`.
    pub(super) fn appended(
        &mut self,
        ordinal: u64,
        result: IoResult,
        mut leaves: impl FnMut(Seq, u64, u32, u32),
    ) -> Appended {
        let batch = self.under_way.iter_mut().find(|batch| batch.ordinal == ordinal).expect("it was on its way");
        let failed = match result {
            Ok(IoDone::Sums(sums)) => {
                assert_eq!(sums.len(), batch.places.len(), "a sum for each payload");
                batch.ended = Some(Some(sums));
                None
            }
            Ok(_) => unreachable!("an append answers with sums"),
            Err(error) => {
                batch.ended = Some(None);
                Some(error)
            }
        };
        while self.under_way.front().is_some_and(|batch| matches!(batch.ended, Some(Some(_))))
            && let Some(batch) = self.under_way.pop_front()
        {
            self.logged = batch.last;
            for ((seq, at, length), crc) in batch.places.into_iter().zip(batch.ended.flatten().unwrap_or_default()) {
                leaves(seq, at, length, crc);
            }
        }
        // Behind one that failed nothing counts, whether it stands there or not.
        if self.under_way.iter().all(|batch| batch.ended.is_some()) {
            self.under_way.clear();
        }
        if let Some(error) = failed {
            return Appended::Failed(error);
        }
        Appended::Through(self.logged)
    }

    // ---- the cell ----------------------------------------------------------------------------------------------------

    /// What the cell is to say, if everything up to `through` is needed no more.
    pub(super) fn cell_for(&self, common: &GroupCommon, through: Seq, flushed: Seq) -> Option<QueueCell> {
        let ring = self.ring.as_ref()?;
        let head = ring.head_after(through);
        let before = match ring.last_before(head) {
            Some(seq) => (self.run_of(seq, common.sb.identity.incarnation), seq),
            None => self.cell.durable.before,
        };
        let confirmed_ordinal = self.under_way.front().map_or(ring.next_ordinal(), |batch| batch.ordinal);
        let generation = common.sb.identity.generation;
        let confirmed_ordinal = confirmed_ordinal.max(head.ordinal);
        let (confirmed, file, begun) = (common.sb.confirmed, common.config.queue_file, self.cell.durable.begun);
        Some(QueueCell { generation, head, before, flushed, confirmed_ordinal, confirmed, file, begun })
    }

    /// No start looks at it yet: space is free without a word.
    pub(super) fn trim_unread(&mut self, common: &mut GroupCommon, through: Seq) {
        let Some(ring) = &mut self.ring else { return };
        if let Some(gone) = ring.trim(ring.head_after(through)) {
            self.cell.durable.before = (common.sb.identity.incarnation, gone);
            common.wake(Wake::Room);
        }
    }

    pub(super) fn write_cell(&mut self, common: &mut GroupCommon, cx: &mut Cx, cell: QueueCell) {
        let (store, offset) = (Store::Queue(common.id()), self.ring_bytes());
        let token = common.slots.start(SlotOperation::QueueCell);
        self.cell.writing = Some(cell);
        if !self.cell.is_known {
            (self.cell.update, self.cell.said) = (0, None);
            let (length, no_hole, durable) = (CELL_BYTES, true, true);
            return cx.out.push_back(Output::Zero { token, store, offset, length, no_hole, durable });
        }
        self.cell.update += 1;
        let head = CellHead { update: self.cell.update, offset, ..common.cell_head() };
        let parts = alloc::vec![WriteBytes::Meta(cell::encode(queue_log::KIND, &head, &cell.encode()))];
        cx.write(token, store, head.slot_offset(), parts, true);
    }
}

/// The line of the index for a number whose payload would stand there; `None`: its content is not known yet.
fn entry_of(item: &QueueItem, payload_at: u64) -> Option<JournalEntry> {
    let (kind, payload_bytes) = match &item.body {
        ItemBody::Data(slice) => (RecordKind::Data, slice.length),
        ItemBody::Zero { .. } => (RecordKind::Zero, 0),
        ItemBody::Void | ItemBody::Probe(_) | ItemBody::SyncEnd => (RecordKind::Void, 0),
        ItemBody::Pending | ItemBody::OnDisk | ItemBody::Fetching => return None,
    };
    Some(JournalEntry {
        seq: item.seq,
        kind,
        no_hole: matches!(item.body, ItemBody::Zero { no_hole: true }),
        resync: item.flags & flags::RESYNC != 0,
        sets_aside: kind == RecordKind::Void && item.flags & flags::SETS_ASIDE != 0,
        mark: kind == RecordKind::Void && item.flags & flags::MARK != 0,
        volume: item.volume,
        offset: item.offset,
        length: if kind == RecordKind::Void { 0 } else { item.length },
        wall: item.wall,
        payload_at: if payload_bytes > 0 { payload_at as u32 } else { 0 },
        payload_bytes,
        payload_crc: 0,
    })
}
