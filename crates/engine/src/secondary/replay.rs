//! Replay of a secondary's journal at its start: from the recorded head on, batch by batch, to the first that is not whole
//! and its own. What was applied before is read back only for a primary that may have lost it.

use alloc::format;
use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::journal::{
    self, BatchOf, INDEX_BYTES, JournalEntry, JournalIndex, LiveBatch, OtherVersionBatch, RecordKind,
};
use crate::formats::superblock::JournalHead;
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::records::record::AfterSuper;
use crate::records::start::{CannotStart, other_version, read_meta, superblock_is_older};
use crate::secondary::Secondary;
use crate::secondary::record_pipeline::{JournalRecord, RecordContent};
use crate::shared::coverage::CoveragePoint;
use crate::shared::lifecycle::StartStage;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::volumes::Volumes;
use crate::state::Broken;
use crate::{Event, IoDone, IoError, IoResult, Output, Store};

/// How far it has come: read, check whole, apply.
#[derive(Debug, Default)]
pub(crate) struct JournalReplay {
    /// Where the next batch is expected.
    next: JournalHead,
    /// Not found there: it may have wrapped.
    tried_start: bool,
    /// Last number read back, or applied before.
    last: Seq,
    /// Applied before: read back only for a primary that may have lost it.
    applied: Seq,
    /// Where it began, and the whole batches since.
    head: JournalHead,
    live: Vec<LiveBatch>,
    batch: Option<JournalIndex>,
    payloads: Vec<crate::Buf>,
    damaged: bool,
    applying: bool,
    records: u64,
}

/// What the journal was read for.
enum ReadBack {
    /// More is being read.
    GoesOn,
    /// The next batch is whole.
    Batch(Vec<JournalRecord>),
    /// There is no further batch.
    Ended,
}

/// What replay has come to.
#[derive(Debug)]
pub(crate) struct ReplayEnd {
    pub position: Position,
    /// Where it began, where the next batch comes, and the batches between.
    pub head: JournalHead,
    pub next: JournalHead,
    pub live: Vec<LiveBatch>,
    /// Those that were not applied before.
    records: u64,
}

impl JournalReplay {
    fn of(position: Position, head: JournalHead) -> JournalReplay {
        JournalReplay { next: head, last: position.seq, applied: position.seq, head, ..JournalReplay::default() }
    }

    fn end(self, common: &GroupCommon) -> ReplayEnd {
        let position = Position { seq: self.last.max(self.applied), ..common.sb.identity.position };
        ReplayEnd { position, head: self.head, next: self.next, live: self.live, records: self.records }
    }

    fn read_done(&mut self, common: &mut GroupCommon, cx: &mut Cx, result: IoResult) -> Result<ReadBack, CannotStart> {
        match (self.batch.is_some(), result) {
            (false, Ok(IoDone::Meta(block))) => return self.index_read(common, cx, &block),
            (true, Ok(IoDone::Payload { buf, .. })) => self.payloads.push(buf),
            (true, Err(IoError::Damaged)) => self.damaged = true,
            _ => return Err(CannotStart::unreadable(Broken::Journal, "the journal")),
        }
        Ok(self.read_next_payload(common, cx))
    }

    fn index_read(&mut self, common: &mut GroupCommon, cx: &mut Cx, block: &[u8]) -> Result<ReadBack, CannotStart> {
        let offset = if self.tried_start { 0 } else { self.next.offset };
        match JournalIndex::decode(BatchOf::Journal, block) {
            Some(index) if self.follows(&index, offset, common) => {
                if !index.entries.iter().all(|e| entry_fits(&common.volumes, e)) {
                    return Err(CannotStart::new(
                        Broken::Journal,
                        "the journal holds writes past the end of a volume: a volume shrank; give it its old size back",
                    ));
                }
                self.payloads.clear();
                self.damaged = false;
                self.batch = Some(index);
                Ok(self.read_next_payload(common, cx))
            }
            Some(index) if index.tag == common.config.tag && index.boot > common.sb.identity.incarnation => {
                Err(superblock_is_older("journal", index.boot, &common.sb))
            }
            // The journal ends here, unless the block says that it must not be read by these rules.
            _ => match self.unknown_version(block, offset, common) {
                Some(version) => {
                    let why = other_version("journal", version, journal::VERSION);
                    Err(CannotStart::new(Broken::Journal, why))
                }
                None => Ok(self.no_batch_here(common, cx)),
            },
        }
    }

    /// Whether the block is the batch that follows.
    fn follows(&self, index: &JournalIndex, offset: u64, common: &GroupCommon) -> bool {
        let identity = common.sb.identity;
        let (tag, ring_bytes) = (common.config.tag, common.config.journal_bytes);
        // The first ones may hold what was applied before: it is kept while the primary may not have flushed it.
        let in_order =
            if self.live.is_empty() { index.first <= self.last.next() } else { index.first == self.last.next() };
        index.tag == tag
            && index.ring_offset == offset
            && index.ordinal == self.next.ordinal
            && is_no_left_over(common, index.boot, index.ordinal)
            && index.generation == identity.position.generation
            && index.incarnation == identity.position.incarnation
            // A snapshot is one step, or none: what of it had landed is not replayed.
            && index.snapshot == 0
            && offset + u64::from(index.bytes) <= ring_bytes
            && index.is_in_order()
            && in_order
    }

    /// The version of a batch that this program does not know, if it is the one that follows, or of a run that the superblock has not
    /// seen. Whatever else stands there is a left-over, or not of this ring.
    fn unknown_version(&self, block: &[u8], offset: u64, common: &GroupCommon) -> Option<u16> {
        let OtherVersionBatch { version, tag, place, boot } = JournalIndex::of_other_version(BatchOf::Journal, block)?;
        let next = JournalHead { offset, ordinal: self.next.ordinal };
        let follows = place == next && is_no_left_over(common, boot, place.ordinal);
        let is_later = boot > common.sb.identity.incarnation;
        (tag == common.config.tag && (follows || is_later)).then_some(version)
    }

    fn read_next_batch(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> ReadBack {
        let offset = self.next.offset;
        if offset + INDEX_BYTES as u64 > common.config.journal_bytes {
            return self.no_batch_here(common, cx);
        }
        read_meta(&mut common.slots, cx, Store::Journal(common.config.id), offset, INDEX_BYTES as u32);
        ReadBack::GoesOn
    }

    fn no_batch_here(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> ReadBack {
        if self.tried_start || self.next.offset == 0 || injected(Fault::ReplayStopsAtWrap) {
            return ReadBack::Ended;
        }
        // It may stand at the ring's start: the writer wraps when a batch does not fit at the end.
        self.tried_start = true;
        read_meta(&mut common.slots, cx, Store::Journal(common.config.id), 0, INDEX_BYTES as u32);
        ReadBack::GoesOn
    }

    fn read_next_payload(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> ReadBack {
        let Some(index) = &self.batch else { return ReadBack::GoesOn };
        if self.damaged {
            // Torn: the crash came while it was written, it was never confirmed.
            cx.coverage.hit(CoveragePoint::JournalTornTail);
            return ReadBack::Ended;
        }
        // What is on the volumes already is not read: if it is rotten, nothing is missing.
        let mut due = index.entries.iter().filter(|e| e.payload_bytes > 0 && e.seq > self.applied);
        let Some(entry) = due.nth(self.payloads.len()) else { return self.batch_read() };
        let token = common.slots.start(SlotOperation::StartRead);
        cx.out.push_back(Output::Read {
            token,
            store: Store::Journal(common.id()),
            offset: index.ring_offset + u64::from(entry.payload_at),
            length: entry.payload_bytes,
            crc: (!injected(Fault::ReplayTorn)).then_some(entry.payload_crc),
        });
        ReadBack::GoesOn
    }

    fn batch_read(&mut self) -> ReadBack {
        let Some(index) = self.batch.take() else { return ReadBack::GoesOn };
        let applied = self.applied;
        let mut payloads = core::mem::take(&mut self.payloads).into_iter();
        let records: Vec<JournalRecord> = index
            .entries
            .iter()
            .zip(index.firsts())
            .map(|(e, first)| JournalRecord {
                first,
                seq: e.seq,
                volume: e.volume,
                offset: e.offset,
                length: e.length,
                wall: e.wall,
                crc: e.payload_crc,
                content: match e.kind {
                    // Only where it stands is remembered.
                    RecordKind::Data if e.seq <= applied => RecordContent::Zero { no_hole: false },
                    RecordKind::Data => payloads.next().map_or(RecordContent::Void, RecordContent::Data),
                    RecordKind::Zero => RecordContent::Zero { no_hole: e.no_hole },
                    RecordKind::Void => RecordContent::Void,
                    RecordKind::SyncEnd => RecordContent::SyncEnd,
                },
                cost: 0,
                resync: e.resync,
                sets_aside: e.sets_aside,
                mark: e.mark,
                // The batch is there, and with it all of each epoch.
                continues: false,
            })
            .collect();
        self.last = index.last();
        self.records += records.iter().filter(|record| record.seq > applied).count() as u64;
        self.live.push(LiveBatch { offset: index.ring_offset, ordinal: index.ordinal, last: index.last() });
        self.next = JournalHead { offset: index.ring_offset + u64::from(index.bytes), ordinal: index.ordinal + 1 };
        self.tried_start = false;
        self.applying = true;
        ReadBack::Batch(records)
    }
}

impl Secondary {
    pub fn begin_replay(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let position = common.sb.identity.position;
        self.replica.stand_at(position, common.sb.applied_wall);
        self.may_count = true;
        common.lifecycle.enter_stage(StartStage::Replay);
        self.replay = JournalReplay::of(position, common.sb.journal);
        self.read_next_batch(common, cx);
    }

    fn read_next_batch(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let read = self.replay.read_next_batch(common, cx);
        self.go_on_replaying(common, cx, read);
    }

    pub fn replay_read(&mut self, common: &mut GroupCommon, cx: &mut Cx, result: IoResult) -> Result<(), CannotStart> {
        let read = self.replay.read_done(common, cx, result)?;
        self.go_on_replaying(common, cx, read);
        Ok(())
    }

    fn go_on_replaying(&mut self, common: &mut GroupCommon, cx: &mut Cx, read: ReadBack) {
        match read {
            ReadBack::GoesOn => {}
            ReadBack::Batch(records) => {
                self.replica.replay(common, records, self.replay.applied);
            }
            // Should this start fail from here on, what it has saved and overwritten is on record.
            ReadBack::Ended if common.sb.counts_too_few(&common.undo) => {
                common.save(cx, Some(AfterSuper::ReplayCounted));
            }
            ReadBack::Ended => self.replay_counted(common, cx),
        }
    }

    /// Records may be written to the volumes; a replay goes on with its next batch once this one is there.
    pub fn apply(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.replica.apply(common, cx);
        self.replay_goes_on(common, cx);
    }

    fn replay_goes_on(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let applying = common.lifecycle.is_at(StartStage::Replay) && self.replay.applying;
        // Of one that has failed nothing is left to apply either.
        if !applying || !self.replica.has_applied() || common.has_failed() {
            return;
        }
        self.replay.applying = false;
        self.read_next_batch(common, cx);
    }

    pub fn replay_counted(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if common.has_failed() || !common.lifecycle.is_at(StartStage::Replay) {
            // Stopped while starting, or failed.
            return;
        }
        self.may_count = false;
        let end = core::mem::take(&mut self.replay).end(common);
        let (position, records) = (end.position, end.records);
        if records > 0 {
            cx.coverage.hit(CoveragePoint::JournalReplayedRecords);
        }
        let damaged = end.next.ordinal < common.sb.confirmed_ordinal;
        if damaged {
            // Also behind the end of a sync: this is no image, and a rollback point is still one to go back to.
            journal_damaged(common, cx, &end);
        }
        self.replayed = Some((end, damaged));
        cx.event(common.id(), Event::Replayed { to: position, records });
        common.start().flush_then_record(cx);
    }

    /// What replay has put on the volumes is durable.
    pub fn end_replay(&mut self, common: &mut GroupCommon) {
        if let Some((end, is_damaged)) = self.replayed.take() {
            self.replica.replayed(common, end, is_damaged);
        }
    }
}

/// A batch that was durable is not whole any more. What came after it may be on the volumes already, in part: this is no
/// prefix (P2) before a sync has ended, and what is missing stands dirty at the primary.
fn journal_damaged(common: &mut GroupCommon, cx: &mut Cx, end: &ReplayEnd) {
    cx.coverage.hit(CoveragePoint::JournalDamaged);
    common.sb.image_lost();
    let note = format!(
        "the journal is damaged at byte {}: batch {} was durable and is not whole any more. This copy is whole \
         up to sequence {} and holds an unknown part of what was confirmed after it: no image before the next sync has ended",
        end.next.offset, end.next.ordinal, end.position.seq.0
    );
    cx.event(common.id(), Event::Note(note));
}

/// A start records with its own run how far whole batches reach, so whatever follows is of that run; a batch of another is a left-over
/// behind an earlier torn tail.
fn is_no_left_over(common: &GroupCommon, boot: Incarnation, ordinal: u64) -> bool {
    let run = common.sb.identity.incarnation;
    boot == run || (boot < run && ordinal < common.sb.own_from_ordinal)
}

fn entry_fits(volumes: &Volumes, entry: &JournalEntry) -> bool {
    matches!(entry.kind, RecordKind::Void | RecordKind::SyncEnd)
        && (!entry.sets_aside || usize::from(entry.volume.0) < volumes.len())
        || volumes.contain(entry.volume, entry.offset, entry.length)
}
