//! Records are received in order, and land in the journal in batches.

use alloc::vec::Vec;
use alloc::{format, vec};

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::journal::{BatchOf, INDEX_BYTES, JournalEntry, JournalIndex, RecordKind};
use crate::formats::wire::{FrameHeader, FrameKind, flags};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::secondary::record_pipeline::{JournalRecord, RecordContent};
use crate::secondary::replica::OrderedReplica;
use crate::secondary::replica::flush::keeps_delta;
use crate::shared::cost::cost;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::volumes::Volumes;
use crate::shared::wakes::Wake;
use crate::{FramePayload, Output, Slice, Store, WriteBytes, limits};

impl OrderedReplica {
    /// A record comes from the primary.
    pub fn receive(&mut self, common: &mut GroupCommon, cx: &mut Cx, header: &FrameHeader, payload: FramePayload) {
        let ours = (header.incarnation, header.generation_tag);
        if ours != (self.progress.incarnation(), self.progress.generation().tag) {
            // Of a primary that was overtaken: this node was promoted while it was on its way, and is demoted again.
            return;
        }
        let open = self.way.open_epoch();
        let expected = open.map_or(self.progress.received(), |open| open.last).next();
        if header.first() != expected {
            let why = format!("number {} where {} was expected", header.first().0, expected.0);
            return common.protocol_error(cx, &why);
        }
        let Some(continues) = continues_epoch(self, header) else {
            return common.protocol_error(cx, &format!("number {} in an epoch that cannot be", header.seq.0));
        };
        // Of a volume without a device the number alone counts, also where the primary's has grown.
        let has_range = !matches!(header.kind, FrameKind::Void | FrameKind::SyncEnd);
        let is_lost = has_range && common.volumes.is_detached(header.volume);
        if !is_lost && !range_fits(&common.volumes, header) {
            return common.protocol_error(cx, &format!("number {} for a range outside its volume", header.seq.0));
        }
        let Some(sent) = content_of(header, payload) else {
            return common.protocol_error(cx, &format!("number {} without its payload", header.seq.0));
        };
        // The primary counts it against the window, whatever becomes of it here.
        let payload_bytes = if matches!(sent, RecordContent::Data(_)) { u64::from(header.payload_bytes) } else { 0 };
        let content = if is_lost { RecordContent::Void } else { sent };
        give_up_if_lost(common, is_lost, header);
        let (sets_aside, mark) = match void_of(header, common.volumes.len()) {
            Ok(found) => found,
            Err(why) => return common.protocol_error(cx, &format!("number {} for {why}", header.seq.0)),
        };
        // What says nothing of a range may still name one.
        let (volume, offset, length) = match content {
            RecordContent::Void if sets_aside => (header.volume, 0, 0),
            RecordContent::Void if mark => (VolumeId(0), header.offset, 0),
            RecordContent::Void | RecordContent::SyncEnd => (VolumeId(0), 0, 0),
            _ => (header.volume, header.offset, header.length),
        };
        let record = JournalRecord {
            first: expected,
            seq: header.seq,
            volume,
            offset,
            length,
            wall: header.wall,
            crc: header.payload_crc,
            content,
            cost: cost(payload_bytes),
            resync: header.flags & flags::RESYNC != 0,
            sets_aside,
            mark,
            continues,
        };
        if !self.way.receive(record) {
            return common.protocol_error(cx, "more than the window allows");
        }
        self.streaming = true;
        if continues {
            return;
        }
        let next = self.progress.received().next();
        assert_eq!(open.map_or(expected, |open| open.first), next, "an epoch follows what was received");
        self.progress.receive(header.seq, header.wall);
        self.journal.flushed_by_primary(header.flushed.min(header.seq));
        self.trim_if_pressed(common, cx);
        self.ack_due |= header.flags & flags::WANT_RECEIVED != 0;
    }

    /// Gathers what has arrived into batches; called when a turn's inputs are handled, so that what arrives together
    /// lands together.
    pub fn land(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        while self.way.wants_to_land() && self.land_batch(common, cx) {}
    }

    fn land_batch(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        let (count, bytes, last) = self.way.next_batch(self.journal.batch_bytes_max());
        let Some((offset, ordinal)) = self.journal.allocate(cx, count, bytes, last) else {
            self.ack_due = true;
            self.flush_replica(common, cx);
            return false;
        };
        let records = self.way.take_unlanded(count);
        let (index, parts) = self.batch_parts(common, &records, offset, ordinal, bytes as u32);
        debug_assert_eq!(index.last(), last);
        let mut all = vec![WriteBytes::Meta(index.encode(BatchOf::Journal))];
        all.extend(parts);
        if injected(Fault::ApplyBeforeJournal) {
            self.way.landed(records.iter().cloned());
        }
        self.way.batch(ordinal, last, records);
        if injected(Fault::AckBeforeJournal) {
            self.progress.land(last);
            self.ack_due = true;
        }
        let token = common.slots.start(SlotOperation::JournalBatch { ordinal });
        cx.out.push_back(Output::Write {
            token,
            store: Store::Journal(common.id()),
            offset,
            parts: all,
            durable: true,
            waits_for_peer: true,
        });
        true
    }

    fn batch_parts(
        &self,
        common: &GroupCommon,
        records: &[JournalRecord],
        ring_offset: u64,
        ordinal: u64,
        bytes: u32,
    ) -> (JournalIndex, Vec<WriteBytes>) {
        let identity = &common.sb.identity;
        let mut at = INDEX_BYTES as u32;
        let mut entries = Vec::with_capacity(records.len());
        let mut parts = Vec::new();
        for record in records {
            let payload_bytes = record.payload_bytes() as u32;
            if let RecordContent::Data(buf) = &record.content {
                parts.push(WriteBytes::Payload(Slice { buf: buf.clone(), start: 0, length: payload_bytes }));
            }
            entries.push(JournalEntry {
                seq: record.seq,
                kind: match record.kind() {
                    // The end of a sync that makes this copy smaller is not replayed: the size that it is to have is known to this
                    // run alone. Nor is that of a sync over a fork: no delta can be saved by then. The sync begins anew, as its end was not
                    // reported to the primary.
                    RecordKind::SyncEnd if self.sizes.shrinks_when_whole(common) || keeps_delta(common) => {
                        RecordKind::Void
                    }
                    kind => kind,
                },
                no_hole: matches!(record.content, RecordContent::Zero { no_hole: true }),
                resync: record.resync,
                sets_aside: record.sets_aside,
                mark: record.mark,
                volume: record.volume,
                offset: record.offset,
                length: record.length,
                wall: record.wall,
                payload_at: if payload_bytes > 0 { at } else { 0 },
                payload_bytes,
                payload_crc: if payload_bytes > 0 { record.crc } else { 0 },
            });
            at += payload_bytes;
        }
        let padding = bytes - at;
        if padding > 0 {
            parts.push(WriteBytes::Meta(vec![0; padding as usize]));
        }
        let index = JournalIndex {
            tag: common.config.tag,
            ring_offset,
            ordinal,
            boot: identity.incarnation,
            origin: common.config.peer,
            generation: self.progress.generation(),
            incarnation: self.progress.incarnation(),
            snapshot: self.progress.snapshot().map_or(0, |snapshot| snapshot.name),
            durable_below: 0,
            bytes,
            first: records[0].first,
            entries,
        };
        (index, parts)
    }

    pub fn batch_done(&mut self, common: &mut GroupCommon, cx: &mut Cx, ordinal: u64) {
        if common.has_failed() {
            // What of it is durable the next start finds.
            return self.way.let_go_of_batch(ordinal);
        }
        self.way.batch_written(ordinal);
        #[cfg(feature = "injected-faults")]
        if let Some(last) = self.way.written_over_gap().filter(|_| injected(Fault::DurableOverGap)) {
            self.progress.land(last);
            self.ack_due = true;
        }
        while let Some(batch) = self.way.next_durable() {
            self.progress.land(batch.last);
            if self.progress.snapshot().is_none() {
                // What had landed of a snapshot is not replayed: it is no damage when it is not there.
                common.sb.batch_durable(batch.ordinal);
            }
            self.ack_due = true;
            marks_arrive(common, self.progress.position(), &batch.records);
            self.journal.remember(&batch.records);
            if !injected(Fault::ApplyBeforeJournal) {
                self.way.landed(batch.records);
            }
        }
        common.set_timer(cx, GroupTimer::ApplyFlush, limits::APPLY_FLUSH_AFTER);
        common.wake(Wake::Apply);
    }
}

/// Its primary counts on it until it has flushed its own.
fn give_up_if_lost(common: &mut GroupCommon, is_lost: bool, header: &FrameHeader) {
    if is_lost && header.flags & flags::RESYNC == 0 {
        common.sb.give_up(header.seq);
    }
}

/// Whether what comes next is of the same epoch; `None`: it is of one that cannot be. One batch of the journal has to hold it.
fn continues_epoch(replica: &OrderedReplica, header: &FrameHeader) -> Option<bool> {
    let is_of_one = header.flags & flags::EPOCH != 0;
    let (records, bytes) = replica.way.open_epoch().map_or((0, 0), |open| (open.records, open.payload_bytes));
    if !is_of_one {
        return (records == 0).then_some(false);
    }
    let is_plain = header.may_be_of_epoch() && header.flags & (flags::RESYNC | flags::SETS_ASIDE | flags::MARK) == 0;
    let bytes = bytes + u64::from(header.payload_bytes);
    let fits = records < limits::EPOCH_FRAMES_MAX && bytes <= limits::EPOCH_BYTES_MAX && replica.journal.takes(bytes);
    let may_be = is_plain && fits && replica.progress.snapshot().is_none();
    may_be.then_some(header.flags & flags::LAST == 0 && !injected(Fault::EpochLandsOpen))
}

/// Whether a number sets a volume aside, and whether it is a mark; or what it cannot be.
fn void_of(header: &FrameHeader, volumes: usize) -> Result<(bool, bool), &'static str> {
    let has = |flag: u16| header.kind == FrameKind::Void && header.flags & flag != 0;
    let (sets_aside, mark) = (has(flags::SETS_ASIDE), has(flags::MARK));
    if sets_aside && usize::from(header.volume.0) >= volumes {
        return Err("a range outside its volume");
    }
    if mark && (MarkId::read(header.offset).is_none() || header.length > 0 || sets_aside) {
        return Err("a mark with an id or a range that no mark has");
    }
    Ok((sets_aside, mark))
}

/// Marks of the order are durable here.
pub(super) fn marks_arrive(common: &mut GroupCommon, at: Position, records: &[JournalRecord]) {
    for record in records.iter().filter(|record| record.mark) {
        common.marks.arrive(MarkId(record.offset), Position { seq: record.seq, ..at }, record.wall);
    }
}

fn content_of(header: &FrameHeader, payload: FramePayload) -> Option<RecordContent> {
    Some(match (header.kind, payload) {
        (FrameKind::Data, FramePayload::Data(buf)) => RecordContent::Data(buf),
        (FrameKind::Zero, FramePayload::None) => RecordContent::Zero { no_hole: header.flags & flags::NO_HOLE != 0 },
        (FrameKind::Void, FramePayload::None) => RecordContent::Void,
        (FrameKind::SyncEnd, FramePayload::None) => RecordContent::SyncEnd,
        (FrameKind::Probe, FramePayload::Control(hash)) => RecordContent::Probe(hash.try_into().ok()?),
        _ => return None,
    })
}

/// The range lies in a volume, and is no longer than a frame of its kind may be.
fn range_fits(volumes: &Volumes, header: &FrameHeader) -> bool {
    if matches!(header.kind, FrameKind::Void | FrameKind::SyncEnd) {
        return true;
    }
    let aligned =
        header.offset.is_multiple_of(limits::SECTOR_BYTES) && header.length.is_multiple_of(limits::SECTOR_BYTES);
    // A comparison is read into memory: its length is bounded like a payload's (P10).
    let longest = match header.kind {
        FrameKind::Probe => limits::PROBE_BYTES,
        FrameKind::Zero => limits::ZERO_PART_BYTES_MAX,
        _ => limits::PART_BYTES_MAX,
    };
    aligned && (1..=longest).contains(&header.length) && volumes.contain(header.volume, header.offset, header.length)
}
