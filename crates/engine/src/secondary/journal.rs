//! A secondary's journal: where batches stand in it, and what of it is kept for a primary that may lose its own.

use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::durability::kept::{KeptWrites, merged};
use crate::formats::journal::{ENTRIES_MAX, JournalRing, LiveBatch};
use crate::formats::superblock::JournalHead;
use crate::formats::wire::{FlushPoints, SyncBegin, VolumeRange};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::limits;
use crate::secondary::record_pipeline::JournalRecord;
use crate::shared::coverage::CoveragePoint;

/// What a secondary has made durable and still needs.
#[derive(Debug)]
pub(crate) struct ReplicaJournal {
    ring: JournalRing,
    kept: KeptWrites,
    /// No record up to here comes back from the journal at a start.
    noted: Seq,
}

impl ReplicaJournal {
    pub fn new(bytes: u64, head: JournalHead) -> ReplicaJournal {
        ReplicaJournal { ring: JournalRing::new(bytes, head), kept: KeptWrites::default(), noted: Seq::NONE }
    }

    /// Behind all that it holds.
    pub fn end(&self) -> JournalHead {
        self.ring.head_after(Seq(u64::MAX))
    }

    /// Another stream begins: its primary has flushed what it sent before.
    pub fn begin_stream(&mut self, begin: &SyncBegin) {
        self.forget_batches();
        self.noted = begin.from.seq;
        self.kept = if begin.snapshot > 0 { KeptWrites::of_snapshot() } else { KeptWrites::of_stream(begin.from.seq) };
    }

    // ---- batches -----------------------------------------------------------------------------------------------------

    /// A batch with so much payload leaves room for the next.
    pub fn takes(&self, payload_bytes: u64) -> bool {
        payload_bytes + 2 * limits::META_BLOCK_BYTES < self.ring.bytes() / 2
    }

    /// The most that a batch should take up.
    pub fn batch_bytes_max(&self) -> u64 {
        limits::BATCH_BYTES_MAX.min(self.ring.bytes() / 4)
    }

    /// Space for a batch of so many records: its offset and ordinal; `None`: there is none before something was trimmed.
    pub fn allocate(&mut self, cx: &mut Cx, count: usize, bytes: u64, last: Seq) -> Option<(u64, u64)> {
        let tail_before = self.end().offset;
        // Those of the batches under way come to it when they have landed.
        let under_way = (limits::BATCHES_IN_FLIGHT_MAX - 1) * ENTRIES_MAX;
        let remembers = self.kept.len() + under_way + count <= limits::KEPT_MAX;
        let allocated = remembers.then(|| self.ring.allocate(bytes, last)).flatten();
        cx.coverage.hit(match allocated {
            None => CoveragePoint::JournalFullWaited,
            Some((offset, _)) if offset < tail_before => CoveragePoint::JournalWrapped,
            Some(_) => return allocated,
        });
        allocated
    }

    /// These are durable: their ranges are kept for a primary that loses its power.
    pub fn remember(&mut self, records: &[JournalRecord]) {
        for record in records.iter().filter(|record| !record.resync && record.overwrites()) {
            let range = VolumeRange { volume: record.volume, offset: record.offset, length: record.length };
            self.kept.landed(record.first, record.seq, range);
        }
    }

    /// Where replay may begin once all that is written up to here is flushed. The index of what the primary has not flushed stays (P1).
    pub fn head_behind(&self, written: Seq) -> JournalHead {
        let done = written.min(self.kept.floor());
        self.ring.head_after(if injected(Fault::HeadTooFar) { done.next() } else { done })
    }

    /// It is on record that replay begins there.
    pub fn trim(&mut self, head: JournalHead) {
        self.noted = self.ring.trim(head).unwrap_or(self.noted);
    }

    /// All that it holds is given up: its space is free.
    pub fn forget_batches(&mut self) {
        _ = self.ring.trim(self.end());
    }

    /// A start has read back the batches `live`, the first of them at `head`; the next one comes at `next`. Where replay begins.
    pub fn read_back(&mut self, bytes: u64, head: JournalHead, next: JournalHead, live: Vec<LiveBatch>) -> JournalHead {
        self.ring = JournalRing::with(bytes, next, live);
        if !self.kept.is_empty() {
            return head;
        }
        _ = self.ring.trim(next);
        next
    }

    // ---- what is kept ------------------------------------------------------------------------------------------------

    /// A start has read back all that it holds, up to here.
    pub fn keep_from_start(&mut self, common: &mut GroupCommon, last: Seq, is_damaged: bool) {
        self.kept.read_back(last, common.sb.given_up);
        if injected(Fault::KeptLostAtStart) {
            _ = self.kept.give_up(last);
        }
        self.give_up_detached(common, last);
        self.noted = self.kept.floor();
        // What a primary that lost its power may have from here is what it sent, and all of it. Behind a damaged batch a newer write
        // to the same position may be lost, and on a volume that somebody else wrote stands something else: then it learns that nobody
        // knows.
        if is_damaged {
            _ = self.kept.give_up(last);
            common.sb.give_up(Seq(u64::MAX));
        } else if common.sb.identity.generation.is_blank() && !injected(Fault::ForeignGiven) {
            self.give_up_kept(common, last, last);
        }
    }

    /// Of volumes without a device, or with another one, nothing that was kept is there any more: a primary that lost its power learns that
    /// nobody knows. From a device that has come nothing older is read in a later run either.
    fn give_up_detached(&mut self, common: &mut GroupCommon, last: Seq) {
        let lost = common.sb.detached;
        if !self.kept.ranges().any(|range| lost.contains(range.volume)) {
            return;
        }
        self.kept.forget_volumes(&lost);
        if !lost.without(&common.volumes.detached()).is_empty() {
            _ = self.kept.give_up(last);
        }
        common.sb.give_up(last);
    }

    /// The primary reports that it flushed its own writes up to here.
    pub fn flushed_by_primary(&mut self, through: Seq) {
        self.kept.flushed_by_primary(through);
    }

    pub fn primary_flushed(&self) -> Seq {
        self.kept.primary_flushed()
    }

    /// Nothing that landed, up to `durable`, is kept for the primary any more, though it may have lost it: that goes on record with the
    /// next update, which is also the first to use the journal's space.
    pub fn give_up_kept(&mut self, common: &mut GroupCommon, durable: Seq, given_up: Seq) {
        if self.kept.give_up(durable) && !injected(Fault::GivenUpForgotten) {
            common.sb.give_up(given_up);
        }
    }

    /// What a primary with these flush points may have lost, and whether that is not known.
    pub fn lost_beyond(&self, given_up: Seq, points: &FlushPoints, same_run: bool) -> (Vec<VolumeRange>, bool) {
        let mut ranges = if same_run { merged(self.kept.beyond(points).collect()) } else { Vec::new() };
        let recorded = points.volumes.iter().min().copied().unwrap_or_default();
        // Of what was given up whole nobody knows which run it was of.
        let given_up = given_up == Seq(u64::MAX) || same_run && given_up > recorded.max(self.kept.primary_flushed());
        // A journal that was read back may hold more than an answer does.
        let too_many = ranges.len() > limits::KEPT_MAX;
        if too_many {
            ranges.clear();
        }
        (ranges, given_up || too_many)
    }

    /// What the primary would lose with its power.
    pub fn kept_ranges(&self) -> Vec<VolumeRange> {
        self.kept.beyond(&FlushPoints::default()).collect()
    }

    /// The oldest write that is kept for a primary that may lose it.
    pub fn oldest_kept(&self) -> Option<Seq> {
        self.kept.oldest()
    }

    /// Half of what it can keep for a primary that has not flushed is in use.
    pub fn wants_flush(&self) -> bool {
        self.ring.is_half_full() || self.kept.len() >= limits::KEPT_MAX / 2
    }

    /// Batches are applied and flushed on both sides, and still take up space.
    pub fn can_trim(&self, applied: Seq) -> bool {
        self.ring.has_before(applied.min(self.kept.floor()))
    }

    pub fn noted(&self) -> Seq {
        self.noted
    }

    pub fn check_invariants(&self, durable: Seq) {
        self.kept.check_invariants(durable, self.noted);
    }
}
