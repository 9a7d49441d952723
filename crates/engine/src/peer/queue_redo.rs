//! A start goes on from the log of the queue: what the log holds is written to the volumes once more, in its order, and queued for the
//! peer.
//!
//! ```text
//! cell -> batches are read, from the head to the first that is not whole -> the superblock says that they are written again
//!      -> those that no flush covers are written again -> flush -> this run is recorded -> the queue stands as it stood, and numbers go on
//! ```
//! Nothing is written before the log is known to be whole: otherwise the start goes on without it, as if there were none. Once something
//! was written, older content may stand where newer had stood: from then on no start goes on without the log.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::cell::{self, Rejected};
use crate::formats::journal::{
    self, BatchOf, INDEX_BYTES, JournalEntry, JournalIndex, LiveBatch, OtherVersionBatch, RecordKind,
};
use crate::formats::queue_log::{self, BATCHES_MAX, QueueCell, batch_bytes_max};
use crate::formats::superblock::JournalHead;
use crate::formats::wire::flags;
use crate::ids::{Incarnation, Seq, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::limits::KIB;
use crate::peer::queue::{ItemBody, QueueItem};
use crate::records::start::{CannotStart, other_version, read_meta, superblock_is_older};
use crate::shared::cost::cost;
use crate::shared::coverage::CoveragePoint;
use crate::shared::lifecycle::StartStage;
use crate::shared::operation_slots::SlotOperation;
use crate::state::Broken;
use crate::time::Wall;
use crate::{Buf, IoDone, IoError, IoResult, Output, Slice, SpilledPart, Store, WriteBytes};

/// So much of the ring is read at once behind the end of the log.
const LOOK_BYTES: u64 = 256 * KIB;
const UNREADABLE: &str = "the log of the queue";

/// What was found of the log, and how far the start has come with it.
#[derive(Debug, Default)]
pub(crate) struct QueueRedo {
    pub cell: QueueCell,
    /// Of the cell.
    pub update: u64,
    /// Where the next batch is expected.
    pub next: JournalHead,
    tried_start: bool,
    /// Behind the end: parts of the ring in which a later batch may stand, each with its length, and the one that is being read.
    behind: VecDeque<(u64, u64)>,
    looks_at: Option<u64>,
    /// The last number of the whole batches so far, its run and its stamp.
    pub last: Seq,
    run: Incarnation,
    pub wall: Wall,
    /// Runs whose numbers stand in the log, or before it, each with its last.
    pub runs: Vec<(Incarnation, Seq)>,
    pub live: Vec<LiveBatch>,
    /// Each number, and where its payload stands in the ring.
    pub entries: Vec<(JournalEntry, u64)>,
    /// What lies behind the old end of a volume differs, and no number of the log tells of it.
    pub has_grown: bool,
    /// The queue is kept: this run is recorded as one whose log counts.
    pub goes_on: bool,
    /// Batches that are to be written again.
    due: VecDeque<JournalIndex>,
    /// The one whose payloads are being read.
    reading: Option<JournalIndex>,
    /// Writes that have to wait for those before them, and how many are under way.
    waiting: VecDeque<(JournalEntry, Option<Slice>)>,
    writing: usize,
}

/// What follows from what was read.
pub(super) enum Next {
    /// More was asked for.
    GoesOn,
    /// The log has no further batch.
    Ended,
    /// It does not count.
    Dropped(String),
}

impl QueueRedo {
    pub fn new(has_grown: bool) -> QueueRedo {
        QueueRedo { has_grown, ..QueueRedo::default() }
    }

    pub(super) fn cell_read(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        offset: u64,
        result: IoResult,
    ) -> Result<Next, CannotStart> {
        let Ok(IoDone::Meta(bytes)) = result else { return Ok(Next::Dropped("its cell cannot be read".into())) };
        let choice = cell::choose(queue_log::KIND, common.config.tag, offset, &bytes);
        let read = choice.newest.and_then(|(head, body)| Ok((head.update, QueueCell::decode(body)?)));
        if let Ok((_, cell)) = &read {
            common.start().take_up_confirmed(cell.confirmed);
        }
        let identity = &common.sb.identity;
        match read {
            Err(Rejected::VersionUnknown(version)) => {
                let why = other_version("log of the queue", version, queue_log::VERSION);
                Err(CannotStart::new(Broken::Journal, why))
            }
            Ok((_, cell)) if cell.before.0 > identity.incarnation => {
                Err(superblock_is_older("log of the queue", cell.before.0, &common.sb))
            }
            Ok((_, cell)) if queue_log::name_of(cell.begun) != common.sb.queue_log => {
                Ok(Next::Dropped("its file holds another log than the one that this node wrote last".into()))
            }
            // Once something of it was written again, there is no way without it.
            Ok((_, cell)) if cell.file != common.config.queue_file && !common.sb.queue_redo => {
                let why = "its file is a copy, and the volumes may hold newer content than such a log";
                Ok(Next::Dropped(why.into()))
            }
            Ok((update, cell)) if !choice.ambiguous && cell.generation == identity.generation => {
                let (run, last) = cell.before;
                // A clean stop has flushed all of it.
                let flushed = if common.sb.clean { Seq(u64::MAX) } else { cell.flushed };
                (self.cell, self.update, self.next) = (QueueCell { flushed, ..cell }, update, cell.head);
                (self.run, self.last, self.runs) = (run, last, vec![(run, last)]);
                common.lifecycle.enter_stage(StartStage::QueueRead);
                Ok(self.read_next(common, cx, offset))
            }
            _ => Ok(Next::Dropped("its cell is damaged".into())),
        }
    }

    // ---- reading -----------------------------------------------------------------------------------------------------

    fn read_next(&mut self, common: &mut GroupCommon, cx: &mut Cx, ring_bytes: u64) -> Next {
        if self.next.offset + INDEX_BYTES as u64 > ring_bytes {
            return self.not_here(common, cx, ring_bytes);
        }
        self.read_index(common, cx, self.next.offset)
    }

    fn read_index(&mut self, common: &mut GroupCommon, cx: &mut Cx, offset: u64) -> Next {
        read_meta(&mut common.slots, cx, Store::Queue(common.config.id), offset, INDEX_BYTES as u32);
        Next::GoesOn
    }

    /// It may stand at the ring's start: a batch that does not fit at the end goes there.
    fn not_here(&mut self, common: &mut GroupCommon, cx: &mut Cx, ring_bytes: u64) -> Next {
        if self.tried_start || self.next.offset == 0 {
            return self.look_behind(common, cx, ring_bytes);
        }
        self.tried_start = true;
        self.read_index(common, cx, 0)
    }

    pub(super) fn read_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        ring_bytes: u64,
        result: IoResult,
    ) -> Result<Next, CannotStart> {
        if let Some(at) = self.looks_at.take() {
            let Ok(IoDone::Meta(blocks)) = result else { return Ok(Next::Dropped("it cannot be read".into())) };
            return Ok(self.looked(common, cx, at, &blocks));
        }
        match (self.reading.take(), result) {
            (None, Ok(IoDone::Meta(block))) => self.index_read(common, cx, ring_bytes, &block),
            (Some(index), Ok(IoDone::Payload { .. })) => {
                self.due.push_back(index.clone());
                self.take(index);
                Ok(self.read_next(common, cx, ring_bytes))
            }
            // The crash came while it was written: nothing of it was written to a volume, or sent.
            (Some(_), Err(IoError::Damaged)) => {
                cx.coverage.hit(CoveragePoint::QueueTornTail);
                Ok(self.look_behind(common, cx, ring_bytes))
            }
            _ => Ok(Next::Dropped("it cannot be read".into())),
        }
    }

    fn index_read(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        ring_bytes: u64,
        block: &[u8],
    ) -> Result<Next, CannotStart> {
        let offset = if self.tried_start { 0 } else { self.next.offset };
        let identity = &common.sb.identity;
        match JournalIndex::decode(BatchOf::Queue, block) {
            Some(index) if self.is_next(&index, offset, common) && index.boot > identity.incarnation => {
                Err(superblock_is_older("log of the queue", index.boot, &common.sb))
            }
            Some(index) if self.follows(&index, offset, common, ring_bytes) => {
                let fits = |e: &JournalEntry| {
                    e.kind == RecordKind::Void || common.volumes.contain(e.volume, e.offset, e.length)
                };
                if !index.entries.iter().all(fits) {
                    return Ok(Next::Dropped("it holds writes past the end of a volume".into()));
                }
                self.tried_start = false;
                if index.last() <= self.cell.flushed {
                    self.take(index);
                    return Ok(self.read_next(common, cx, ring_bytes));
                }
                if !self.fetch(common, cx, &index) {
                    self.due.push_back(index.clone());
                    self.take(index);
                    return Ok(self.read_next(common, cx, ring_bytes));
                }
                self.reading = Some(index);
                Ok(Next::GoesOn)
            }
            _ => match self.unknown_version(block, offset, common) {
                Some(version) => {
                    let why = other_version("log of the queue", version, journal::QUEUE_VERSION);
                    Err(CannotStart::new(Broken::Journal, why))
                }
                None => Ok(self.not_here(common, cx, ring_bytes)),
            },
        }
    }

    /// The version of a batch that this program does not know, if it is the next one.
    fn unknown_version(&self, block: &[u8], offset: u64, common: &GroupCommon) -> Option<u16> {
        let OtherVersionBatch { version, tag, place, boot } = JournalIndex::of_other_version(BatchOf::Queue, block)?;
        let next = JournalHead { offset, ordinal: self.next.ordinal };
        (tag == common.config.tag && place == next && boot >= self.run).then_some(version)
    }

    /// The next batch is not whole. Was it on its way when the crash came, or was it durable, and is damaged?
    fn look_behind(&mut self, common: &mut GroupCommon, cx: &mut Cx, ring_bytes: u64) -> Next {
        if self.next.ordinal < self.cell.confirmed_ordinal {
            return Next::Dropped(self.damage());
        }
        // Those that were under way with it tell nothing of it. The next one does: it begins where they end, or they went on at the ring's start.
        let silent = if injected(Fault::LaterBatchMissed) { 1 } else { BATCHES_MAX as u64 };
        let reach = silent * batch_bytes_max(ring_bytes) + INDEX_BYTES as u64;
        for from in [self.next.offset].into_iter().chain((self.next.offset > 0).then_some(0)) {
            let until = (from + reach).min(ring_bytes);
            let parts = (from..until).step_by(LOOK_BYTES as usize);
            self.behind.extend(parts.map(|at| (at, LOOK_BYTES.min(until - at))));
        }
        self.look_on(common, cx)
    }

    fn look_on(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> Next {
        let Some((at, length)) = self.behind.pop_front() else { return Next::Ended };
        self.looks_at = Some(at);
        read_meta(&mut common.slots, cx, Store::Queue(common.config.id), at, length as u32);
        Next::GoesOn
    }

    /// A later batch that was issued when the one that is missing was durable tells of damage.
    fn looked(&mut self, common: &mut GroupCommon, cx: &mut Cx, at: u64, blocks: &[u8]) -> Next {
        let tells = |(offset, block): (u64, &[u8])| {
            let index = JournalIndex::decode(BatchOf::Queue, block);
            index.is_some_and(|index| {
                index.tag == common.config.tag
                    && index.ring_offset == offset
                    && index.generation == self.cell.generation
                    && index.boot >= self.run
                    && index.durable_below > self.next.ordinal
            })
        };
        let blocks = blocks.chunks_exact(INDEX_BYTES);
        if (at..).step_by(INDEX_BYTES).zip(blocks).any(tells) {
            return Next::Dropped(self.damage());
        }
        self.look_on(common, cx)
    }

    /// Why it is less than it was, though each batch that is there is whole; `None`: it is not, as far as anybody knows.
    pub(super) fn lacks(&self, common: &GroupCommon) -> Option<String> {
        // A clean stop has said which number was the last.
        let is_short = common.sb.clean && self.last < common.sb.identity.position.seq;
        is_short.then(|| self.damage())
    }

    fn damage(&self) -> String {
        let JournalHead { offset, ordinal } = self.next;
        format!("batch {ordinal}, at byte {offset}, was durable and is not whole any more")
    }

    /// Its place, number and history are those of the next batch.
    fn is_next(&self, index: &JournalIndex, offset: u64, common: &GroupCommon) -> bool {
        index.tag == common.config.tag
            && index.ring_offset == offset
            && index.ordinal == self.next.ordinal
            && index.generation == self.cell.generation
    }

    /// Whether it is the next batch. One that an earlier run left there is not: runs go up from batch to batch.
    fn follows(&self, index: &JournalIndex, offset: u64, common: &GroupCommon, ring_bytes: u64) -> bool {
        let consecutive = index.entries.windows(2).all(|w| w[0].seq.next() == w[1].seq);
        self.is_next(index, offset, common)
            && index.boot == index.incarnation
            && index.boot >= self.run
            && index.snapshot == 0
            && offset + u64::from(index.bytes) <= ring_bytes
            && consecutive
            && index.entries.first().is_some_and(|entry| entry.seq == self.last.next())
    }

    /// Asks for the payloads of a batch; false: it has none.
    fn fetch(&self, common: &mut GroupCommon, cx: &mut Cx, index: &JournalIndex) -> bool {
        let with_payload = index.entries.iter().filter(|entry| entry.payload_bytes > 0);
        let parts: Vec<_> = with_payload.map(|e| SpilledPart { length: e.payload_bytes, crc: e.payload_crc }).collect();
        if parts.is_empty() {
            return false;
        }
        let token = common.slots.start(SlotOperation::StartRead);
        let (store, offset) = (Store::Queue(common.id()), index.ring_offset + INDEX_BYTES as u64);
        cx.out.push_back(Output::Fetch { token, store, offset, parts });
        true
    }

    /// It is whole, and the next one comes behind it.
    fn take(&mut self, index: JournalIndex) {
        (self.run, self.last) = (index.boot, index.last());
        match self.runs.last_mut().filter(|(run, _)| *run == index.boot) {
            Some((_, last)) => *last = index.last(),
            None => self.runs.push((index.boot, index.last())),
        }
        self.live.push(LiveBatch { offset: index.ring_offset, ordinal: index.ordinal, last: index.last() });
        self.next = JournalHead { offset: index.ring_offset + u64::from(index.bytes), ordinal: index.ordinal + 1 };
        self.wall = index.entries.last().map_or(self.wall, |entry| entry.wall);
        let at = index.ring_offset;
        self.entries.extend(index.entries.iter().map(|entry| (*entry, at + u64::from(entry.payload_at))));
    }

    // ---- writing again -----------------------------------------------------------------------------------------------

    /// Something of it is written again.
    pub(super) fn is_due(&mut self) -> bool {
        if injected(Fault::RedoSkipped) {
            self.due.clear();
        }
        !self.due.is_empty()
    }

    /// The next batch is read once more, to be written; behind the last one come the flushes.
    pub(super) fn write_next(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if !common.lifecycle.is_at(StartStage::QueueWrite) {
            common.lifecycle.enter_stage(StartStage::QueueWrite);
        }
        while let Some(index) = self.due.pop_front() {
            if self.fetch(common, cx, &index) {
                self.reading = Some(index);
                return;
            }
            self.waiting = index.entries.iter().map(|entry| (*entry, None)).collect();
            if self.write_waiting(common, cx) {
                return;
            }
        }
        common.start().flush_then_record(cx);
    }

    pub(super) fn write_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        result: IoResult,
    ) -> Result<(), CannotStart> {
        match (self.reading.take(), result) {
            (Some(index), Ok(IoDone::Payload { buf, .. })) => {
                self.waiting = contents(&index, &buf);
                if !self.write_waiting(common, cx) {
                    self.write_next(common, cx);
                }
                Ok(())
            }
            // It was whole a moment ago, and what comes before it is written already.
            (Some(_), _) => Err(CannotStart::unreadable(Broken::Journal, UNREADABLE)),
            (None, Ok(_)) => {
                self.writing -= 1;
                if self.writing == 0 && !self.write_waiting(common, cx) {
                    self.write_next(common, cx);
                }
                Ok(())
            }
            (None, Err(_)) => Err(CannotStart::new(
                Broken::VolumeApply,
                "a volume refuses what stands in the log of the queue; see the kernel log for its device, then 'farshore reset GROUP'",
            )),
        }
    }

    /// Those at the front of which none overlaps another one are written at once. False: there is nothing to write.
    fn write_waiting(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        let mut under_way: Vec<(VolumeId, u64, u64)> = Vec::new();
        while let Some((entry, _)) = self.waiting.front() {
            if entry.kind == RecordKind::Void || common.volumes.is_detached(entry.volume) {
                self.waiting.pop_front();
                continue;
            }
            let block = common.volumes.of(entry.volume).block_bytes();
            let from = entry.offset / block * block;
            let to = (entry.offset + entry.length).next_multiple_of(block);
            if under_way.iter().any(|(volume, begins, ends)| *volume == entry.volume && from < *ends && *begins < to) {
                break;
            }
            under_way.push((entry.volume, from, to));
            let Some((entry, content)) = self.waiting.pop_front() else { break };
            let token = common.slots.start(SlotOperation::StartRead);
            let (store, offset) = (Store::Volume(common.id(), entry.volume), entry.offset);
            match content {
                Some(slice) => cx.write(token, store, offset, vec![WriteBytes::Payload(slice)], false),
                None => {
                    let (length, no_hole, durable) = (entry.length, entry.no_hole, false);
                    cx.out.push_back(Output::Zero { token, store, offset, length, no_hole, durable });
                }
            }
        }
        self.writing = under_way.len();
        self.writing > 0
    }

    /// What the queue holds of a number.
    pub fn item(entry: &JournalEntry) -> QueueItem {
        let (body, payload) = match entry.kind {
            RecordKind::Data => (ItemBody::OnDisk, u64::from(entry.payload_bytes)),
            RecordKind::Zero => (ItemBody::Zero { no_hole: entry.no_hole }, 0),
            RecordKind::Void | RecordKind::SyncEnd => (ItemBody::Void, 0),
        };
        let flag = |on: bool, flag: u16| if on { flag } else { 0 };
        QueueItem {
            seq: entry.seq,
            volume: entry.volume,
            offset: entry.offset,
            length: entry.length,
            wall: entry.wall,
            flags: flag(entry.resync, flags::RESYNC)
                | flag(entry.sets_aside, flags::SETS_ASIDE)
                | flag(entry.mark, flags::MARK),
            body,
            cost_bytes: cost(payload),
        }
    }
}

/// The numbers of a batch, with their payloads.
fn contents(index: &JournalIndex, buf: &Buf) -> VecDeque<(JournalEntry, Option<Slice>)> {
    let slice = |entry: &JournalEntry| Slice {
        buf: buf.clone(),
        start: entry.payload_at - INDEX_BYTES as u32,
        length: entry.payload_bytes,
    };
    let content = |entry: &JournalEntry| (entry.payload_bytes > 0).then(|| slice(entry));
    index.entries.iter().map(|entry| (*entry, content(entry))).collect()
}
