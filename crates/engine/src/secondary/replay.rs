//! Replay of a secondary's journal at its start: from the recorded head on, batch by batch, to the first that is not whole
//! and its own. What was applied before is read back only for a primary that may have lost it.

use alloc::format;
use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::journal::{self, INDEX_BYTES, JournalEntry, JournalIndex, JournalRing, LiveBatch, RecordKind};
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
use crate::{Event, IoDone, IoError, Output, Store};

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

impl JournalReplay {
    /// Whether the block is the batch that follows.
    fn follows(&self, index: &JournalIndex, offset: u64, common: &GroupCommon) -> bool {
        let identity = common.sb.identity;
        let (tag, ring_bytes, own_from) = (common.config.tag, common.config.journal_bytes, common.sb.own_from_ordinal);
        let first = index.entries.first().map_or(Seq::NONE, |e| e.seq);
        let consecutive = index.entries.windows(2).all(|w| w[0].seq.next() == w[1].seq);
        // The first ones may hold what was applied before: it is kept while the primary may not have flushed it.
        let in_order = if self.live.is_empty() { first <= self.last.next() } else { first == self.last.next() };
        let own = index.boot == identity.incarnation;
        index.tag == tag
            && index.ring_offset == offset
            && index.ordinal == self.next.ordinal
            // A start records with its own run how far whole batches reach, so whatever follows is of that run; a batch of
            // another is a left-over behind an earlier torn tail.
            && (own
                || (index.boot < identity.incarnation && index.ordinal < own_from))
            && index.generation == identity.position.generation
            && index.incarnation == identity.position.incarnation
            // A snapshot is one step, or none: what of it had landed is not replayed.
            && index.snapshot == 0
            && offset + u64::from(index.bytes) <= ring_bytes
            && consecutive
            && in_order
    }
}

impl Secondary {
    pub fn replay_read(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        result: Result<IoDone, IoError>,
    ) -> Result<(), CannotStart> {
        if self.replay.batch.is_none() {
            return match result {
                Ok(IoDone::Meta(block)) => self.index_read(common, cx, &block),
                _ => Err(CannotStart::unreadable(Broken::Journal, "the journal")),
            };
        }
        let replay = &mut self.replay;
        match result {
            Ok(IoDone::Payload { buf, .. }) => replay.payloads.push(buf),
            Err(IoError::Damaged) => replay.damaged = true,
            _ => {
                return Err(CannotStart::unreadable(Broken::Journal, "the journal"));
            }
        }
        self.read_next_payload(common, cx);
        Ok(())
    }

    fn index_read(&mut self, common: &mut GroupCommon, cx: &mut Cx, block: &[u8]) -> Result<(), CannotStart> {
        let replay = &mut self.replay;
        let offset = if replay.tried_start { 0 } else { replay.next.offset };
        match JournalIndex::decode(block) {
            Some(index) if self.replay.follows(&index, offset, common) => {
                let sizes_fit = index.entries.iter().all(|e| entry_fits(&common.volumes, e));
                let replay = &mut self.replay;
                if !sizes_fit {
                    return Err(CannotStart::new(
                        Broken::Journal,
                        "the journal holds writes past the end of a volume: a volume shrank; give it its old size back",
                    ));
                }
                replay.payloads.clear();
                replay.damaged = false;
                replay.batch = Some(index);
                self.read_next_payload(common, cx);
                Ok(())
            }
            other => self.not_the_next_batch(common, cx, other.as_ref(), block),
        }
    }

    /// The journal ends here, unless the block says that it must not be read by these rules.
    fn not_the_next_batch(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        index: Option<&JournalIndex>,
        block: &[u8],
    ) -> Result<(), CannotStart> {
        if let Some(index) = index
            && index.tag == common.config.tag
            && index.boot > common.sb.identity.incarnation
        {
            return Err(superblock_is_older("journal", index.boot, &common.sb));
        }
        match JournalIndex::other_version(block) {
            Some(version) => {
                let why = other_version("journal", version, journal::VERSION);
                return Err(CannotStart::new(Broken::Journal, why));
            }
            None => self.no_batch_here(common, cx),
        }
        Ok(())
    }
}

impl Secondary {
    pub fn begin_replay(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let position = common.sb.identity.position;
        self.stand_at(position, common.sb.applied_wall);
        self.may_count = true;
        common.lifecycle.enter_stage(StartStage::Replay);
        let head = common.sb.journal;
        self.replay =
            JournalReplay { next: head, last: position.seq, applied: position.seq, head, ..JournalReplay::default() };
        self.read_next_batch(common, cx);
    }

    fn read_next_batch(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let offset = self.replay.next.offset;
        if offset + INDEX_BYTES as u64 > common.config.journal_bytes {
            return self.no_batch_here(common, cx);
        }
        read_meta(&mut common.slots, cx, Store::Journal(common.config.id), offset, INDEX_BYTES as u32);
    }

    fn no_batch_here(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let replay = &mut self.replay;
        if !replay.tried_start && replay.next.offset != 0 && !injected(Fault::ReplayStopsAtWrap) {
            // It may stand at the ring's start: the writer wraps when a batch does not fit at the end.
            replay.tried_start = true;
            read_meta(&mut common.slots, cx, Store::Journal(common.config.id), 0, INDEX_BYTES as u32);
        } else {
            self.replay_ended(common, cx);
        }
    }

    fn read_next_payload(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let replay = &mut self.replay;
        let Some(index) = &replay.batch else { return };
        if replay.damaged {
            // Torn: the crash came while it was written, it was never confirmed.
            cx.coverage.hit(CoveragePoint::JournalTornTail);
            return self.replay_ended(common, cx);
        }
        // What is on the volumes already is not read: if it is rotten, nothing is missing.
        let mut due = index.entries.iter().filter(|e| e.payload_bytes > 0 && e.seq > replay.applied);
        let next = due.nth(replay.payloads.len()).copied();
        let base = index.ring_offset;
        match next {
            Some(entry) => {
                let token = common.slots.start(SlotOperation::StartRead);
                cx.out.push_back(Output::Read {
                    token,
                    store: Store::Journal(common.id()),
                    offset: base + u64::from(entry.payload_at),
                    length: entry.payload_bytes,
                    crc: (!injected(Fault::ReplayTorn)).then_some(entry.payload_crc),
                });
            }
            None => self.apply_batch(common, cx),
        }
    }

    fn apply_batch(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let replay = &mut self.replay;
        let Some(index) = &replay.batch else { return };
        let applied = replay.applied;
        let mut payloads = core::mem::take(&mut replay.payloads).into_iter();
        let records: Vec<JournalRecord> = index
            .entries
            .iter()
            .map(|e| JournalRecord {
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
            })
            .collect();
        replay.last = index.last();
        replay.records += records.iter().filter(|record| record.seq > applied).count() as u64;
        replay.live.push(LiveBatch { offset: index.ring_offset, ordinal: index.ordinal, last: index.last() });
        replay.next = JournalHead { offset: index.ring_offset + u64::from(index.bytes), ordinal: index.ordinal + 1 };
        replay.tried_start = false;
        replay.applying = true;
        // What was on the volumes before is only remembered, for a primary that may have lost it.
        self.remember(&records);
        self.replay(records.into_iter().filter(|record| record.seq > applied).collect());
        self.apply(common, cx);
        self.replay_goes_on(common, cx);
    }

    /// Called when applied records may have completed: the next batch, once this one is on the volumes.
    pub fn replay_goes_on(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let applying = common.lifecycle.is_at(StartStage::Replay) && self.replay.applying;
        // Of one that has failed nothing is left to apply either.
        if !applying || !self.replayed() || common.has_failed() {
            return;
        }
        let replay = &mut self.replay;
        replay.applying = false;
        replay.batch = None;
        self.read_next_batch(common, cx);
    }

    fn replay_ended(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if common.sb.counts_too_few(&common.undo) {
            // Should this start fail from here on, what it has saved and overwritten is on record.
            return common.save(cx, Some(AfterSuper::ReplayCounted));
        }
        self.replay_counted(common, cx);
    }

    pub fn replay_counted(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let failed = common.has_failed();
        if failed || !common.lifecycle.is_at(StartStage::Replay) {
            // Stopped while starting, or failed.
            return;
        }
        self.may_count = false;
        let mut replay = core::mem::take(&mut self.replay);
        let (next, records, last) = (replay.next, replay.records, replay.last.max(replay.applied));
        let (head, live) = (replay.head, core::mem::take(&mut replay.live));
        if records > 0 {
            cx.coverage.hit(CoveragePoint::JournalReplayedRecords);
        }
        let position = Position { seq: last, ..common.sb.identity.position };
        let wall = self.progress.written_wall();
        let sync_ended = self.take_sync_end();
        let damaged = next.ordinal < common.sb.confirmed_ordinal;
        if damaged {
            // Also behind the end of a sync: this is no image, and a rollback point is still one to go back to.
            self.journal_damaged(common, cx, next, last);
        } else if sync_ended {
            common.sb.made_whole(common.volumes.len());
            common.sb.no_point();
        }
        self.stand_at(position, wall);
        self.kept_from_journal(common.sb.given_up);
        self.gives_nothing_it_does_not_hold(common, damaged);
        self.ring = JournalRing::with(common.config.journal_bytes, next, live);
        common.sb.replayed(position, wall, if self.kept.is_empty() { next } else { head }, next);
        if self.kept.is_empty() {
            _ = self.ring.trim(next);
        }
        cx.event(common.id(), Event::Replayed { to: position, records });
        common.start().flush_then_record(cx);
    }

    /// A batch that was durable is not whole any more. What came after it may be on the volumes already, in part: this is no
    /// prefix (P2) before a sync has ended, and what is missing stands dirty at the primary.
    fn journal_damaged(&self, common: &mut GroupCommon, cx: &mut Cx, at: JournalHead, last: Seq) {
        cx.coverage.hit(CoveragePoint::JournalDamaged);
        common.sb.image_lost();
        let note = format!(
            "the journal is damaged at byte {}: batch {} was durable and is not whole any more. This copy is whole \
             up to sequence {} and holds an unknown part of what was confirmed after it: no image before the next sync has ended",
            at.offset, at.ordinal, last.0
        );
        cx.event(common.id(), Event::Note(note));
    }

    /// What a primary that lost its power may have from here is what it sent, and all of it. Behind a damaged batch a newer write to
    /// the same position may be lost, and on a volume that somebody else wrote stands something else: then it learns that nobody knows.
    fn gives_nothing_it_does_not_hold(&mut self, common: &mut GroupCommon, damaged: bool) {
        if damaged {
            _ = self.kept.give_up(self.progress.durable_on_disk());
            common.sb.give_up(Seq(u64::MAX));
        } else if common.sb.identity.generation.is_blank() && !injected(Fault::ForeignGiven) {
            self.give_up_kept(common, self.progress.durable_on_disk());
        }
    }
}

fn entry_fits(volumes: &Volumes, entry: &JournalEntry) -> bool {
    matches!(entry.kind, RecordKind::Void | RecordKind::SyncEnd)
        || volumes.contain(entry.volume, entry.offset, entry.length)
}
