//! Records are received in order, and land in the journal in batches.

use alloc::vec::Vec;
use alloc::{format, vec};

use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::formats::journal::{Entry, INDEX_BYTES, Index, RecordKind};
use crate::formats::wire::{Header, Kind, flags};
use crate::ids::*;
use crate::planted::{Fault, planted};
use crate::secondary::replica::OrderedReplica;
use crate::secondary::way::{Content, Record};
use crate::shared::cost::cost;
use crate::shared::slots::Op;
use crate::shared::volumes::Volumes;
use crate::shared::wakes::Wake;
use crate::{Bytes, FramePayload, Output, Slice, Store, limits};

impl OrderedReplica {
    /// A record comes from the primary.
    pub fn receive(&mut self, common: &mut Common, cx: &mut Cx, header: &Header, payload: FramePayload) {
        let ours = (header.incarnation, header.generation_tag);
        if ours != (self.progress.incarnation(), self.progress.generation().tag) {
            // Of a primary that was overtaken: this node was promoted while it was on its way, and is demoted again.
            return;
        }
        let expected = self.progress.received().next();
        if header.seq != expected {
            return common.protocol_error(cx, &format!("number {} where {} was expected", header.seq.0, expected.0));
        }
        if !range_fits(&common.volumes, header) {
            return common.protocol_error(cx, &format!("number {} for a range outside its volume", header.seq.0));
        }
        let Some(content) = content_of(header, payload) else {
            return common.protocol_error(cx, &format!("number {} without its payload", header.seq.0));
        };
        let payload_bytes = if matches!(content, Content::Data(_)) { u64::from(header.payload_bytes) } else { 0 };
        // What says nothing of a range may still name one.
        let (volume, offset, length) = match content {
            Content::Void | Content::SyncEnd => (VolumeId(0), 0, 0),
            _ => (header.volume, header.offset, header.length),
        };
        let record = Record {
            seq: header.seq,
            volume,
            offset,
            length,
            wall: header.wall,
            crc: header.payload_crc,
            content,
            cost: cost(payload_bytes),
            resync: header.flags & flags::RESYNC != 0,
        };
        if !self.way.receive(record) {
            return common.protocol_error(cx, "more than the window allows");
        }
        self.progress.receive(header.seq, header.wall);
        self.streaming = true;
        self.journal.flushed_by_primary(header.flushed.min(header.seq));
        self.trim_if_pressed(common, cx);
        self.ack_due |= header.flags & flags::WANT_RECEIVED != 0;
    }

    /// Gathers what has arrived into batches; called when a turn's inputs are handled, so that what arrives together
    /// lands together.
    pub fn land(&mut self, common: &mut Common, cx: &mut Cx) {
        while self.way.wants_to_land() && self.land_batch(common, cx) {}
    }

    fn land_batch(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let (count, bytes, last) = self.way.next_batch(self.journal.batch_bytes_max());
        let Some((offset, ordinal)) = self.journal.place(cx, count, bytes, last) else {
            self.ack_due = true;
            self.flush_replica(common, cx);
            return false;
        };
        let records = self.way.take_unlanded(count);
        let (index, parts) = self.batch_parts(common, &records, offset, ordinal, bytes as u32);
        debug_assert_eq!(index.last(), last);
        let mut all = vec![Bytes::Meta(index.encode())];
        all.extend(parts);
        if planted(Fault::ApplyBeforeJournal) {
            self.way.landed(records.iter().cloned());
        }
        self.way.batch(ordinal, last, records);
        if planted(Fault::AckBeforeJournal) {
            self.progress.land(last);
            self.ack_due = true;
        }
        let token = common.slots.start(Op::JournalBatch { ordinal });
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
        common: &Common,
        records: &[Record],
        ring_offset: u64,
        ordinal: u64,
        bytes: u32,
    ) -> (Index, Vec<Bytes>) {
        let identity = &common.sb.identity;
        let mut at = INDEX_BYTES as u32;
        let mut entries = Vec::with_capacity(records.len());
        let mut parts = Vec::new();
        for record in records {
            let payload_bytes = record.payload_bytes() as u32;
            if let Content::Data(buf) = &record.content {
                parts.push(Bytes::Payload(Slice { buf: buf.clone(), start: 0, length: payload_bytes }));
            }
            entries.push(Entry {
                seq: record.seq,
                kind: match record.kind() {
                    // The end of a sync that makes this copy smaller is not replayed: the size that it is to have is known to this
                    // run alone. The sync begins anew then, as the primary was not told that it had ended.
                    RecordKind::SyncEnd if self.sizes.shrinks_when_whole(common) => RecordKind::Void,
                    kind => kind,
                },
                no_hole: matches!(record.content, Content::Zero { no_hole: true }),
                resync: record.resync,
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
            parts.push(Bytes::Meta(vec![0; padding as usize]));
        }
        let index = Index {
            tag: common.config.tag,
            ring_offset,
            ordinal,
            boot: identity.incarnation,
            origin: common.config.peer,
            generation: self.progress.generation(),
            incarnation: self.progress.incarnation(),
            cut: self.progress.cut().map_or(0, |cut| cut.name),
            bytes,
            entries,
        };
        (index, parts)
    }

    pub fn batch_done(&mut self, common: &mut Common, cx: &mut Cx, ordinal: u64) {
        if common.has_failed() {
            // What of it is durable the next start finds.
            return self.way.let_go_of_batch(ordinal);
        }
        self.way.batch_written(ordinal);
        #[cfg(feature = "planted")]
        if let Some(last) = self.way.written_over_gap().filter(|_| planted(Fault::DurableOverGap)) {
            self.progress.land(last);
            self.ack_due = true;
        }
        while let Some(batch) = self.way.next_durable() {
            self.progress.land(batch.last);
            if self.progress.cut().is_none() {
                // What had landed of a cut is not replayed: it is no damage when it is not there.
                common.sb.batch_durable(batch.ordinal);
            }
            self.ack_due = true;
            self.journal.remember(&batch.records);
            if !planted(Fault::ApplyBeforeJournal) {
                self.way.landed(batch.records);
            }
        }
        common.set_timer(cx, GroupTimer::ApplyFlush, limits::APPLY_FLUSH_AFTER);
        common.wake(Wake::Apply);
    }
}

fn content_of(header: &Header, payload: FramePayload) -> Option<Content> {
    Some(match (header.kind, payload) {
        (Kind::Data, FramePayload::Data(buf)) => Content::Data(buf),
        (Kind::Zero, FramePayload::None) => Content::Zero { no_hole: header.flags & flags::NO_HOLE != 0 },
        (Kind::Void, FramePayload::None) => Content::Void,
        (Kind::SyncEnd, FramePayload::None) => Content::SyncEnd,
        (Kind::Probe, FramePayload::Control(hash)) => Content::Probe(hash.try_into().ok()?),
        _ => return None,
    })
}

/// The range lies in a volume, and is no longer than a frame of its kind may be.
fn range_fits(volumes: &Volumes, header: &Header) -> bool {
    if matches!(header.kind, Kind::Void | Kind::SyncEnd) {
        return true;
    }
    let aligned =
        header.offset.is_multiple_of(limits::SECTOR_BYTES) && header.length.is_multiple_of(limits::SECTOR_BYTES);
    // A comparison is read into memory: its length is bounded like a payload's (P10).
    let longest = match header.kind {
        Kind::Probe => limits::PROBE_BYTES,
        Kind::Zero => limits::ZERO_PART_BYTES_MAX,
        _ => limits::PART_BYTES_MAX,
    };
    aligned && (1..=longest).contains(&header.length) && volumes.contain(header.volume, header.offset, header.length)
}
