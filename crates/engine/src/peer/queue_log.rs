//! The log of the queue: what the stream carries stands in the queue's file before it is written here or sent, and a start goes on from it.
//!
//! ```text
//! closed -> filling: each number goes into the log, and waits for that     (a stream in order, nothing set aside)
//! filling -> opening: the cell, then the superblock, in both slots         (the peer, and every flush here, is past the log's beginning)
//! opening -> live: a start finds in the log whatever the peer may lack
//! any     -> closed: off the superblock, in both slots, before a write goes on that is not in the log
//! ```
//! * A number's batch is durable before its local write begins, and before its frame is sent.
//! * Space is given out again only after the cell that needs it no more is durable: the peer has applied what stood there, and every
//!   volume here has flushed it.
//! * The log counts if the superblock says so, and not otherwise.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::cell::{self, CELL_BYTES, CellHead, RELIED_ON_FROM};
use crate::formats::identity::{DecisionRow, Identity};
use crate::formats::journal::{ENTRIES_MAX, INDEX_BYTES, JournalEntry, JournalIndex, JournalRing, RecordKind};
use crate::formats::queue_log::{self, QueueCell, ring_bytes};
use crate::formats::superblock::JournalHead;
use crate::formats::wire::flags;
use crate::ids::{Incarnation, Seq};
use crate::injected_fault::{Fault, injected};
use crate::limits::{DISK_QUEUE_BATCH_BYTES, KIB, META_BLOCK_BYTES, QUEUE_CELL_AFTER, RESYNC_HOLD_OFF};
use crate::peer::outbox::Outbox;
use crate::peer::queue::{ItemBody, QueueItem, StreamQueue};
use crate::peer::queue_redo::QueueRedo;
use crate::peer::sending::Sending;
use crate::peer::stream::{PeerStream, queue_of, stands_in_queue};
use crate::records::record::{AfterSuper, queue_is_logged};
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::wakes::Wake;
use crate::shared::write::{WriteKind, WriteOp};
use crate::state::Mode;
use crate::time::Mono;
use crate::{Event, IoDone, IoError, IoResult, Output, Slice, Store, WriteBytes};

/// Batches on their way at once.
const BATCHES_MAX: usize = 4;
/// With one on its way, less than this waits for company.
const WORTH_A_BATCH: u64 = 256 * KIB;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LogStage {
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
struct AppendBatch {
    ordinal: u64,
    last: Seq,
    /// For each number with content: where that stands in the ring, and its length.
    places: Vec<(Seq, u64, u32)>,
    /// It is durable, with these sums; one before it is not.
    sums: Option<Vec<u32>>,
}

/// The cell, and what of it is durable.
#[derive(Debug, Default)]
struct CellWriter {
    /// Number of the last update, unless it is not known what stands there: then it is wiped first.
    update: u64,
    is_known: bool,
    durable: QueueCell,
    writing: Option<QueueCell>,
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
    file_bytes: u64,
    is_wanted: bool,
    stage: LogStage,
    ring: Option<JournalRing>,
    under_way: VecDeque<AppendBatch>,
    /// The last number that is in the log, or on its way there.
    taken: Seq,
    /// The last number that is in the log, and all before it.
    logged: Seq,
    /// Runs before this one whose numbers stand in the log, each with its last.
    earlier: Vec<(Incarnation, Seq)>,
    /// Writes that wait until they are in the log, in their order.
    parked: VecDeque<(Seq, u32)>,
    cell: CellWriter,
    /// A start goes on from it.
    pub redo: Option<QueueRedo>,
    /// Its disk refused a write: it is not tried again before.
    not_before: Mono,
    /// The superblock is being told that the log counts no more.
    is_closing: bool,
    /// What the queue had taken in up to the last number that is on its way.
    entered_bytes: u64,
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

    /// The number is in the log, or will be: it stays what it is.
    pub fn holds(&self, seq: Seq) -> bool {
        self.gates() && seq <= self.taken
    }

    pub fn ring_bytes(&self) -> u64 {
        ring_bytes(self.file_bytes)
    }

    /// The most that one batch takes.
    fn batch_bytes_max(&self) -> u64 {
        (INDEX_BYTES as u64 + DISK_QUEUE_BATCH_BYTES).min(self.ring_bytes() / 8)
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
            && QueueLog::bytes_of(op, part_bytes) + 2 * self.batch_bytes_max() < self.ring_bytes()
    }

    /// There is room for it behind all that has a number, or was let in, and is not in the log yet.
    pub fn has_room_for(&self, queue: &StreamQueue, reserved: (u64, u64), op: &WriteOp, part_bytes: u64) -> bool {
        let Some(ring) = self.ring.as_ref().filter(|_| self.gates()) else { return true };
        // A write that the log could never hold closes it.
        if !self.could_hold(op, part_bytes) {
            return true;
        }
        let waiting = queue.last().0.saturating_sub(self.taken.0);
        let unlogged = queue.record().entered_bytes.saturating_sub(self.entered_bytes) + waiting * 2 * META_BLOCK_BYTES;
        let reserved = reserved.0 + reserved.1 * 2 * META_BLOCK_BYTES;
        // Neither what is left at the ring's end, nor the gap between tail and head, holds a batch.
        let gaps = 2 * self.batch_bytes_max();
        ring.used_bytes() + unlogged + reserved + QueueLog::bytes_of(op, part_bytes) + gaps <= self.ring_bytes()
    }

    /// Space is taken by what the peer has applied: this node alone frees it.
    pub fn makes_room(&self, applied: Seq) -> bool {
        self.gates() && self.ring.as_ref().is_some_and(|ring| ring.has_before(applied))
    }

    /// A write waits until its numbers are in the log.
    pub fn park(&mut self, last: Seq, slot: u32) {
        self.parked.push_back((last, slot));
    }

    fn release_logged(&mut self, common: &mut GroupCommon) {
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
    fn run_of(&self, seq: Seq, now: Incarnation) -> Incarnation {
        self.earlier.iter().find(|(_, last)| seq <= *last).map_or(now, |(run, _)| *run)
    }

    // ---- into the log ------------------------------------------------------------------------------------------------

    /// The next batch, if there is enough for one: its index, and its payloads.
    fn next_batch(&mut self, common: &GroupCommon, queue: &StreamQueue) -> Option<(JournalIndex, Vec<Slice>)> {
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
        self.under_way.push_back(AppendBatch { ordinal, last, places, sums: None });
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
            bytes: bytes as u32,
            entries,
        };
        Some((index, parts))
    }

    /// A batch is durable, or could not be written. What of it leaves memory goes to `leaves`.
    fn appended(&mut self, ordinal: u64, result: IoResult, mut leaves: impl FnMut(Seq, u64, u32, u32)) -> Appended {
        let sums = match result {
            Ok(IoDone::Sums(sums)) => sums,
            Ok(_) => unreachable!("an append answers with sums"),
            Err(error) => {
                self.under_way.retain(|batch| batch.ordinal != ordinal);
                return Appended::Failed(error);
            }
        };
        let batch = self.under_way.iter_mut().find(|batch| batch.ordinal == ordinal).expect("it was on its way");
        assert_eq!(sums.len(), batch.places.len(), "a sum for each payload");
        batch.sums = Some(sums);
        while self.under_way.front().is_some_and(|batch| batch.sums.is_some())
            && let Some(batch) = self.under_way.pop_front()
        {
            self.logged = batch.last;
            for ((seq, at, length), crc) in batch.places.into_iter().zip(batch.sums.unwrap_or_default()) {
                leaves(seq, at, length, crc);
            }
        }
        Appended::Through(self.logged)
    }

    // ---- the cell ----------------------------------------------------------------------------------------------------

    /// What the cell is to say, if everything up to `through` is needed no more.
    fn cell_for(&self, common: &GroupCommon, through: Seq, flushed: Seq) -> Option<QueueCell> {
        let ring = self.ring.as_ref()?;
        let head = ring.head_after(through);
        let before = match ring.last_before(head) {
            Some(seq) => (self.run_of(seq, common.sb.identity.incarnation), seq),
            None => self.cell.durable.before,
        };
        let confirmed_ordinal = self.under_way.front().map_or(ring.next_ordinal(), |batch| batch.ordinal);
        let generation = common.sb.identity.generation;
        let confirmed_ordinal = confirmed_ordinal.max(head.ordinal);
        Some(QueueCell { generation, head, before, flushed, confirmed_ordinal })
    }

    /// No start looks at it yet: space is free without a word.
    fn trim_unread(&mut self, common: &mut GroupCommon, through: Seq) {
        let Some(ring) = &mut self.ring else { return };
        if let Some(gone) = ring.trim(ring.head_after(through)) {
            self.cell.durable.before = (common.sb.identity.incarnation, gone);
            common.wake(Wake::Room);
        }
    }

    fn write_cell(&mut self, common: &mut GroupCommon, cx: &mut Cx, cell: QueueCell) {
        let (store, offset) = (Store::Queue(common.id()), self.ring_bytes());
        let token = common.slots.start(SlotOperation::QueueCell);
        self.cell.writing = Some(cell);
        if !self.cell.is_known {
            self.cell.update = 0;
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
        volume: item.volume,
        offset: item.offset,
        length: if kind == RecordKind::Void { 0 } else { item.length },
        wall: item.wall,
        payload_at: if payload_bytes > 0 { payload_at as u32 } else { 0 },
        payload_bytes,
        payload_crc: 0,
    })
}

// ---- what the group does with it -------------------------------------------------------------------------------------

/// Once a turn: the log opens and fills as far as it may, and takes what has numbers.
pub(crate) fn pump(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    let has_log = outbox.log.is_wanted() || outbox.log.gates();
    if !has_log || common.has_failed() || common.lifecycle.has_stopped() || common.is_starting() {
        return;
    }
    if outbox.log.gates() && !may_log(outbox, common) {
        close(outbox, common, cx, "a volume left the order");
    }
    begin_filling(outbox, common, cx);
    let Outbox { log, sending, .. } = outbox;
    if let Some(stream) = sending.stream_mut().filter(|_| log.gates()) {
        let queue = queue_of(stream);
        while let Some((index, parts)) = log.next_batch(common, queue) {
            cx.coverage.hit(CoveragePoint::QueueLogged);
            let token = common.slots.start(SlotOperation::QueueAppend { ordinal: index.ordinal });
            let (store, offset) = (Store::Queue(common.id()), index.ring_offset);
            cx.out.push_back(Output::Append { token, store, offset, index, parts });
        }
        if injected(Fault::SentBeforeLogged) {
            queue.gate(None);
        }
        log.release_logged(common);
    }
    begin_opening(outbox, common, cx);
}

/// The stream carries whatever is written.
fn may_log(outbox: &Outbox, common: &GroupCommon) -> bool {
    let in_order = outbox.stream().is_some_and(|stream| !stream.syncs());
    in_order && common.sb.aside.is_empty() && common.sb.detached.is_empty()
}

fn begin_filling(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    let log = &outbox.log;
    if cx.now.mono < log.not_before {
        return;
    }
    let is_quiet = log.under_way.is_empty() && log.parked.is_empty() && !log.is_closing && log.cell.writing.is_none();
    let fits = log.stage == LogStage::Closed && is_quiet && common.lifecycle.is_running() && may_log(outbox, common);
    // What stands on disk alone is still to be read from its place in the ring.
    let fits = fits && log.is_wanted && !outbox.disk.is_in_use() && !common.sb.needs_verification();
    if !fits || outbox.syncs_in_stream() || common.numbers.generation_is_due() {
        return;
    }
    if common.sb.queue_logged {
        return close(outbox, common, cx, "it begins anew");
    }
    let Outbox { log, sending, .. } = outbox;
    let last = common.numbers.last();
    let next = log.ring.as_ref().map_or(JournalHead { offset: 0, ordinal: 1 }, |ring| ring.head_after(Seq(u64::MAX)));
    log.ring = Some(JournalRing::new(log.ring_bytes(), next));
    (log.stage, log.taken, log.logged) = (LogStage::Filling { after: last }, last, last);
    log.earlier.clear();
    log.cell.durable = QueueCell { before: (common.sb.identity.incarnation, last), ..QueueCell::default() };
    if let Some(stream) = sending.stream_mut() {
        let queue = queue_of(stream);
        queue.gate(Some(last));
        log.entered_bytes = queue.record().entered_bytes;
    }
}

/// Whatever the peer may lack from here on is in the log.
fn begin_opening(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    let LogStage::Filling { after } = outbox.log.stage else { return };
    let Some(stream) = outbox.stream() else { return };
    let is_done = stream.clears_through() >= after && !stream.has_pass() && common.lifecycle.is_running();
    if !is_done || outbox.log.cell.writing.is_some() || common.volumes.copies().any(|c| c.next_to_ship(0).is_some()) {
        return;
    }
    if !common.flushed_through(cx, after) {
        return;
    }
    let log = &mut outbox.log;
    let Some(cell) = log.cell_for(common, after, after) else { return };
    log.stage = LogStage::Opening;
    log.write_cell(common, cx, cell);
}

/// A batch is durable, or could not be written.
pub(crate) fn appended(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx, ordinal: u64, result: IoResult) {
    let is_short = outbox.is_short_of_memory(common, cx);
    let Outbox { log, sending, disk, .. } = outbox;
    let mut queue = sending.stream_mut().filter(|_| log.gates()).map(queue_of);
    let done = log.appended(ordinal, result, |seq, at, length, crc| {
        if let Some(queue) = queue.as_deref_mut()
            && (is_short || disk.is_in_use())
            && queue.leave_memory(seq)
        {
            disk.stands_at(seq, at, length, crc);
        }
    });
    match done {
        Appended::Through(logged) => {
            if let Some(queue) = queue {
                queue.gate(Some(logged));
            }
            log.release_logged(common);
            common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER);
            common.wake(Wake::Room);
        }
        Appended::Failed(error) => {
            cx.coverage.hit(CoveragePoint::QueueLogFailed);
            let why = if error == IoError::NoSpace { "its file system is full" } else { "its disk refuses a write" };
            log.not_before = cx.now.mono.plus(RESYNC_HOLD_OFF);
            close(outbox, common, cx, why);
        }
    }
}

/// The head has moved, or more is durable: the cell says so.
pub(crate) fn cell_due(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    if !outbox.log.gates() || common.has_failed() || common.lifecycle.has_stopped() {
        return;
    }
    let Some(applied) = outbox.stream().map(|stream| stream.clears_through()) else { return };
    let flushed = common.flush_point();
    let through = if injected(Fault::LogHeadTooFar) { applied.max(flushed) } else { applied.min(flushed) };
    let log = &mut outbox.log;
    if log.ring.as_ref().is_some_and(JournalRing::is_half_full) {
        common.flush_where(cx, |volume| volume.flushes.unflushed_bytes() > 0);
    }
    if matches!(log.stage, LogStage::Filling { .. }) {
        return log.trim_unread(common, through);
    }
    if log.cell.writing.is_some() || log.stage == LogStage::Opening {
        return common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER);
    }
    let Some(cell) = log.cell_for(common, through, flushed) else { return };
    if cell != log.cell.durable {
        log.write_cell(common, cx, cell);
    }
    if log.makes_room(applied) {
        common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER);
    }
}

/// The cell was written, or could not be.
pub(crate) fn cell_written(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx, result: IoResult) {
    let log = &mut outbox.log;
    let Some(cell) = log.cell.writing.take() else { return };
    if result.is_err() {
        // Nobody knows what stands there.
        log.cell.is_known = false;
        log.not_before = cx.now.mono.plus(RESYNC_HOLD_OFF);
        return close(outbox, common, cx, "its disk refuses a write");
    }
    log.cell.is_known = true;
    if log.stage == LogStage::Closed {
        return;
    }
    if log.cell.update < RELIED_ON_FROM {
        return log.write_cell(common, cx, cell);
    }
    log.cell.durable = cell;
    if log.stage == LogStage::Opening {
        queue_is_logged(&mut common.sb, true);
        return common.save_in_both_slots(cx, AfterSuper::QueueLogOpened);
    }
    if let Some(ring) = &mut log.ring
        && ring.trim(cell.head).is_some()
    {
        common.wake(Wake::Room);
    }
}

/// The superblock says that the log counts.
pub(crate) fn opened(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    if outbox.log.stage == LogStage::Opening && common.sb.queue_logged {
        cx.coverage.hit(CoveragePoint::QueueLogOpened);
        outbox.log.stage = LogStage::Live;
        cx.event(common.id(), Event::QueueLog { is_live: true });
        common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER);
    }
}

/// Something happens that the log does not tell. What waits for the log goes on once the superblock says that it counts no more.
pub(crate) fn close(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
    let log = &mut outbox.log;
    let was_live = log.is_live();
    log.stage = LogStage::Closed;
    if common.sb.queue_logged && !injected(Fault::LogKeptOpen) {
        cx.coverage.hit(CoveragePoint::QueueLogClosed);
        queue_is_logged(&mut common.sb, false);
        log.is_closing = true;
        common.save_in_both_slots(cx, AfterSuper::QueueLogClosed);
    }
    if was_live {
        cx.event(common.id(), Event::QueueLog { is_live: false });
        cx.event(common.id(), Event::Note(alloc::format!("the log of the queue counts no more: {why}")));
    }
    if !log.is_closing {
        lets_go(outbox, common);
    }
}

/// Both slots say that the log counts no more.
pub(crate) fn closed(outbox: &mut Outbox, common: &mut GroupCommon) {
    outbox.log.is_closing = false;
    lets_go(outbox, common);
    common.wake(Wake::Covered);
    common.wake(Wake::Room);
}

/// Nothing waits for the log any more.
fn lets_go(outbox: &mut Outbox, common: &mut GroupCommon) {
    let Outbox { log, sending, .. } = outbox;
    if let Some(stream) = sending.stream_mut() {
        queue_of(stream).gate(None);
    }
    for slot in log.take_parked() {
        common.wake(Wake::Write(slot));
    }
}

/// A sync is about to be announced: what it sends has numbers that are in no log. False: first the superblock says so.
pub(crate) fn lets_sync(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) -> bool {
    if !outbox.log.gates() && common.sb.queue_logged && !injected(Fault::LogKeptOpen) {
        close(outbox, common, cx, "a sync begins");
    }
    !outbox.log.is_closing
}

/// A write is about to have its number. True: the log does not take it, and has to be off the superblock first.
pub(crate) fn waits_for_close(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx, slot: u32) -> bool {
    if !outbox.log.is_wanted() && !common.sb.queue_logged && !outbox.log.is_closing {
        return false;
    }
    let op = common.slots.write_ref(slot);
    let is_taken = outbox.log.gates()
        && outbox.streams()
        && !outbox.passes_by(common, op.volume)
        && outbox.log.could_hold(op, cx.peer.part_bytes);
    if !is_taken && (outbox.log.gates() || common.sb.queue_logged) {
        close(outbox, common, cx, "a write goes on that it cannot hold");
    }
    outbox.log.is_closing
}

/// The stream has ended. What has numbers and is not on its way into the log never gets there.
pub(crate) fn stream_ended(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    let log = &mut outbox.log;
    let is_left = log.parked.back().is_some_and(|&(last, _)| last > log.taken);
    let was_live = log.is_live();
    if is_left || !was_live && log.gates() {
        close(outbox, common, cx, "the stream has ended");
    } else if was_live {
        // What it holds still counts, until a write goes on without it.
        log.stage = LogStage::Closed;
        cx.event(common.id(), Event::QueueLog { is_live: false });
    }
}

// ---- a start goes on -------------------------------------------------------------------------------------------------

/// What the volumes hold is what the log says, flushed, and this run is on record: the queue stands as it stood. Numbers go on. False: the
/// queue is to be left.
pub(crate) fn take_up(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) -> bool {
    let Some(redo) = outbox.log.redo.take() else { return true };
    let (last, before) = (redo.last, redo.cell.before.1);
    common.numbers.go_on(last, redo.wall);
    for volume in common.volumes.iter_mut() {
        if !volume.copy.is_aside() && !redo.has_grown {
            volume.copy.is_equal();
        }
        volume.flushes.go_on_from(last);
    }
    let log = &mut outbox.log;
    let mut stream = PeerStream::new(before, cx.now.mono, outbox.record, None);
    for (entry, at) in &redo.entries {
        queue_of(&mut stream).push(QueueRedo::item(entry));
        if entry.payload_bytes > 0 {
            outbox.disk.stands_at(entry.seq, *at, entry.payload_bytes, entry.payload_crc);
        }
        if entry.kind != RecordKind::Void && !injected(Fault::LogBitsForgotten) {
            common.volumes.copy_of(entry.volume).set_written(entry.offset, entry.length, entry.seq, true);
        }
    }
    let queue = queue_of(&mut stream);
    queue.gate(Some(last));
    // Whether the peer has any of it, nobody knows.
    (0..queue.len()).for_each(|_| queue.advance(cx.now.mono));
    log.entered_bytes = queue.record().entered_bytes;
    stands_in_queue(&mut stream, common.settings.mode.promises(), cx.now.mono);
    outbox.sending = Sending::Stream(stream);
    log.ring = Some(JournalRing::with(log.ring_bytes(), redo.next, redo.live));
    (log.stage, log.taken, log.logged, log.earlier) = (LogStage::Live, last, last, redo.runs);
    log.cell = CellWriter { update: redo.update, is_known: true, durable: redo.cell, writing: None };
    cx.event(common.id(), Event::RunGoesOn { at: common.position(last) });
    common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER);
    let is_held = common.sb.held_in_logging || common.settings.mode == Mode::Logging;
    !is_held && !redo.has_grown && outbox.log.is_wanted && may_log(outbox, common)
}

/// A peer that stands in an earlier run whose numbers the log holds, or held: `None`: in another one.
pub(crate) fn row_of_earlier(outbox: &Outbox, common: &GroupCommon, theirs: &Identity) -> Option<DecisionRow> {
    let (log, at) = (&outbox.log, theirs.position);
    let kept_after = outbox.stream().filter(|_| log.is_live())?.queue().kept_after();
    // A run that gave no number stands where the one before it ended.
    let (_, last) = log.earlier.iter().rfind(|(run, _)| *run <= at.incarnation)?;
    if at.generation != common.sb.identity.generation || theirs.inconsistent {
        return None;
    }
    if at.seq > *last {
        return Some(DecisionRow::PastOurLast);
    }
    (kept_after <= at.seq).then_some(DecisionRow::InEarlierQueue)
}
