//! The receiving side: receive in order, land in the journal, confirm, apply behind in order, flush, confirm again.
//!
//! ```text
//! receive -> landing -> batch (journal, durable) -> to_apply -> volumes -> flush -> superblock -> applied, trim
//!   received                durable                                                            applied
//! ```
//! Nothing reaches a volume before it is durable in the journal: so a crash at any point leaves volumes + journal =
//! a prefix of the write order (P2), once replayed.

use alloc::vec::Vec;
use alloc::{format, vec};

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Role;
use crate::formats::journal::{INDEX_BYTES, JournalEntry, JournalIndex, RecordKind};
use crate::formats::superblock::JournalHead;
use crate::formats::wire::{FrameHeader, FrameKind, SyncBegin, Tick, flags};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::records::record::AfterSuper;
use crate::secondary::Secondary;
use crate::secondary::record_pipeline::{JournalRecord, RecordContent};
use crate::secondary::rollback::reserve_for_sync;
use crate::shared::cost::cost;
use crate::shared::coverage::CoveragePoint;
use crate::shared::lifecycle::Phase;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::volumes::Volumes;
use crate::state::State;
use crate::time::Wall;
use crate::{FramePayload, Output, SendPayload, Slice, Store, WriteBytes, limits};

/// A flush cycle: everything written up to `upto` becomes durable on the volumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushCycle {
    pub upto: Seq,
    pub wall: Wall,
    pub head: JournalHead,
    pub flushes: usize,
    pub failed: bool,
}

/// A stream that waits to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamBeginning {
    pub begin: SyncBegin,
    /// Names this attempt: a newer one overtakes it.
    pub number: u64,
    /// The superblock that names the stream is being written.
    pub recording: bool,
}

impl Secondary {
    pub fn batch_done(&mut self, common: &mut GroupCommon, cx: &mut Cx, ordinal: u64) {
        if common.has_failed() {
            // What of it is durable the next start finds.
            return self.way.let_go_of_batch(ordinal);
        }
        self.way.batch_written(ordinal);
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
            self.remember(&batch.records);
            if !injected(Fault::ApplyBeforeJournal) {
                self.way.landed(batch.records);
            }
        }
        common.set_timer(cx, GroupTimer::ApplyFlush, limits::APPLY_FLUSH_AFTER);
        self.apply(common, cx);
    }
}

impl Secondary {
    // ---- receiving -------------------------------------------------------------------------------------------------

    pub fn receive(&mut self, common: &mut GroupCommon, cx: &mut Cx, header: &FrameHeader, payload: FramePayload) {
        let receives = common.role() == Role::Secondary && common.lifecycle.is_running();
        if common.has_failed() || !receives {
            // Failed, stopping, or promoted: the peer will learn it, the session is about to end.
            return;
        }
        if common.role() == Role::Primary {
            // Promoted while it was on its way; the peer was told.
            return;
        }
        let expected = self.progress.received().next();
        let ours = header.incarnation == self.progress.incarnation()
            && header.generation_tag == self.progress.generation().tag;
        if !ours && self.beginning.is_none() {
            // Of a primary that was overtaken: this node was promoted while it was on its way, and is demoted again.
            return;
        }
        if self.beginning.is_some() {
            let what = format!("number {} before this node was ready for its sync", header.seq.0);
            return common.protocol_error(cx, &what);
        }
        if header.seq != expected {
            return common.protocol_error(cx, &format!("number {} where {} was expected", header.seq.0, expected.0));
        }
        if !range_fits(&common.volumes, header) {
            return common.protocol_error(cx, &format!("number {} for a range outside its volume", header.seq.0));
        }
        let Some(content) = content_of(header, payload) else {
            return common.protocol_error(cx, &format!("number {} without its payload", header.seq.0));
        };
        let payload_bytes = if matches!(content, RecordContent::Data(_)) { u64::from(header.payload_bytes) } else { 0 };
        // What says nothing of a range may still name one.
        let (volume, offset, length) = match content {
            RecordContent::Void | RecordContent::SyncEnd => (VolumeId(0), 0, 0),
            _ => (header.volume, header.offset, header.length),
        };
        let record = JournalRecord {
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
        self.kept.flushed_by_primary(header.flushed.min(header.seq));
        self.trim_if_pressed(common, cx);
        if header.flags & flags::WANT_RECEIVED != 0 {
            self.want_received = true;
            self.ack_due = true;
        }
    }

    // ---- landing ---------------------------------------------------------------------------------------------------

    /// Gathers what has arrived into batches; called when a turn's inputs are handled, so that what arrives together
    /// lands together.
    pub fn land(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        while self.way.wants_to_land() && self.land_batch(common, cx) {}
    }

    fn land_batch(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        let batch_max = limits::BATCH_BYTES_MAX.min(self.ring.bytes() / 4);
        let (count, bytes, last) = self.way.next_batch(batch_max);
        let tail_before = self.ring.head_after(Seq(u64::MAX)).offset;
        let remembers = self.kept.len() + count <= limits::KEPT_MAX;
        let Some((offset, ordinal)) = remembers.then(|| self.ring.allocate(bytes, last)).flatten() else {
            cx.coverage.hit(CoveragePoint::JournalFullWaited);
            self.ack_due = true;
            self.flush_replica(common, cx);
            return false;
        };
        if offset < tail_before {
            cx.coverage.hit(CoveragePoint::JournalWrapped);
        }
        let records = self.way.take_unlanded(count);
        let (index, parts) = self.batch_parts(common, &records, offset, ordinal, bytes as u32);
        debug_assert_eq!(index.last(), last);
        let mut all = vec![WriteBytes::Meta(index.encode())];
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
                kind: self.kind_in_journal(common, record),
                no_hole: matches!(record.content, RecordContent::Zero { no_hole: true }),
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
            bytes,
            entries,
        };
        (index, parts)
    }

    /// The end of a sync that makes this copy smaller is not replayed: the size that it is to have is known to this run alone. The sync
    /// begins anew then, as the primary was not told that it had ended.
    fn kind_in_journal(&self, common: &GroupCommon, record: &JournalRecord) -> RecordKind {
        match record.kind() {
            RecordKind::SyncEnd if self.shrinks_when_whole(common) => RecordKind::Void,
            kind => kind,
        }
    }

    /// What came before is applied and recorded first; then the new stream's identity is, and `inconsistent` with it,
    /// before anything of it is accepted.
    pub fn proceed_sync_begin(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some(StreamBeginning { begin, number, recording: false }) = self.beginning else { return };
        // One that was overtaken while it is recorded is waited for: however many come, one record is under way.
        let records = common.sb.awaits(|then| matches!(then, AfterSuper::SyncReady { .. }));
        if records || !self.replica_at_rest(common, cx) {
            return;
        }
        self.beginning = Some(StreamBeginning { begin, number, recording: true });
        self.take_rollback_point(common, cx, &begin);
        self.begin_sizes(common, cx);
        reserve_for_sync(&mut common.undo, &common.volumes, &begin);
        let journal = self.ring.head_after(Seq(u64::MAX));
        common.sb.sync_begins(&begin, journal);
        _ = self.ring.trim(journal);
        let wall = self.progress.applied_wall();
        self.begin_stream(&begin, wall);
        common.save_in_both_slots(cx, AfterSuper::SyncReady { number });
    }

    pub fn sync_ready(&mut self, common: &mut GroupCommon, cx: &mut Cx, number: u64) {
        let Some(StreamBeginning { begin, .. }) = self.beginning.filter(|b| b.number == number) else { return };
        self.beginning = None;
        self.streaming = true;
        self.ack_due = true;
        // The window is counted per stream, from its first frame on both ends.
        self.way.window.restart();
        if let Some(link) = cx.peer.link {
            let header = FrameHeader {
                offset: begin.attempt,
                ..FrameHeader::new(FrameKind::SyncReady, cx.peer.session, common.id())
            };
            cx.send(link, header, SendPayload::None);
        }
    }

    /// Nobody will make room in a journal full of what a primary has not flushed: what has not landed is given up. It was
    /// never confirmed as durable, and a primary that is still there sends it again.
    pub fn give_up_unlanded(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.land(common, cx);
        if !self.waits_for_primary() {
            return;
        }
        let dropped = self.drop_unlanded();
        let note = format!(
            "{dropped} writes that were received and not yet durable are dropped: the journal is full of what the primary \
             may not have flushed ('journal' makes it larger)"
        );
        cx.event(common.id(), crate::Event::Note(note));
    }

    /// Nothing that landed is kept for the primary any more, though it may have lost it: that goes on record with the next update,
    /// which is also the first to use the journal's space.
    pub fn give_up_kept(&mut self, common: &mut GroupCommon, given_up: Seq) {
        if self.kept.give_up(self.progress.durable_on_disk()) && !injected(Fault::GivenUpForgotten) {
            common.sb.give_up(given_up);
        }
    }

    /// Should nothing come of a promotion, the primary learns that it cannot know what it lost.
    pub fn waits_for_primary_no_more(&mut self, common: &mut GroupCommon) {
        if self.waits_for_primary() {
            self.give_up_kept(common, self.progress.durable_on_disk());
        }
    }

    /// Everything received is applied, flushed and recorded.
    pub fn replica_at_rest(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        self.land(common, cx);
        if self.progress.is_unflushed() {
            self.flush_replica(common, cx);
        }
        self.is_idle() && self.saver.is_idle() && self.progress.is_in_step() && !common.slots.saves()
    }

    // ---- the primary's clock -----------------------------------------------------------------------------------------

    pub fn primary_tick(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        header: &FrameHeader,
        payload: &[u8],
    ) -> Option<()> {
        let tick = Tick::decode(payload)?;
        if common.role() != Role::Secondary || !common.lifecycle.is_running() {
            // Promoted meanwhile, or about to be: no confirmations are owed.
            return Some(());
        }
        let state = tick.state;
        self.hear_primary(common, cx, header, tick);
        if header.incarnation == self.progress.incarnation() {
            self.kept.flushed_by_primary(header.flushed.min(self.progress.durable_on_disk()));
        }
        match state {
            // Nothing comes before a new stream begins.
            State::Logging | State::Failed(_) => self.way.window.restart(),
            _ => self.way.window.seen(header.offset),
        }
        // The session may outlive the run whose stream this was: numbers of another one say nothing of what is here.
        let in_order =
            self.streaming && self.progress.snapshot().is_none() && header.incarnation == self.progress.incarnation();
        if in_order && header.seq == self.progress.applied_on_disk() && self.progress.is_in_step() {
            let recalls = self.way.window.recalls();
            self.way.window.recall();
            if self.way.window.recalls() > recalls {
                cx.coverage.hit(CoveragePoint::WindowTakenBack);
            }
            self.progress.stands_still_until(header.wall);
            self.ack_due = true;
        }
        // After a reconnect the primary goes on without a SyncBegin: it waits for our confirmations.
        if matches!(state, State::CatchingUp | State::Replicating | State::Paused(_)) && self.beginning.is_none() {
            self.ack_due |= !core::mem::replace(&mut self.streaming, true);
        }
        self.trim_if_pressed(common, cx);
        Some(())
    }

    /// A change of role waits for space that may never come.
    pub fn waits_for_space(&self, common: &GroupCommon) -> bool {
        match common.lifecycle.phase() {
            Phase::Promoting(_) => self.paused.is_some(),
            _ => self.restore_waits_for_space(common),
        }
    }
}

impl Secondary {
    /// A primary begins another stream.
    pub fn sync_begin(&mut self, common: &mut GroupCommon, cx: &mut Cx, begin: SyncBegin) {
        if !common.greeting.is_in_run(begin.from, begin.parent) {
            return common.protocol_error(cx, "a sync of another run or history than its own");
        }
        self.streaming = false;
        // Another stream begins only when its primary has flushed what it sent before.
        self.kept.flushed_by_primary(self.progress.received());
        self.begins += 1;
        self.beginning = Some(StreamBeginning { begin, number: self.begins, recording: false });
        self.ack_due = true;
        self.proceed_sync_begin(common, cx);
    }

    /// All that was received is applied and recorded.
    pub fn is_in_step(&self) -> bool {
        self.progress.is_in_step()
    }

    pub fn check_invariants(&self) {
        self.kept.check_invariants(self.progress.durable_on_disk(), self.noted);
    }
}

impl JournalRecord {
    fn kind(&self) -> RecordKind {
        match self.content {
            RecordContent::Data(_) => RecordKind::Data,
            RecordContent::Zero { .. } => RecordKind::Zero,
            // A comparison changes nothing; its number must still be there.
            RecordContent::Void | RecordContent::Probe(_) => RecordKind::Void,
            RecordContent::SyncEnd => RecordKind::SyncEnd,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two records that have nothing in common were applied one after the other, or two of one block side by side (rule 3).
    #[test]
    fn records_touch_where_both_reach_into_one_block() {
        let record = |volume, offset, length| JournalRecord {
            seq: Seq(1),
            volume: VolumeId(volume),
            offset,
            length,
            wall: Wall(0),
            crc: 0,
            content: RecordContent::Void,
            cost: 0,
            resync: false,
        };
        let touches = |a: &JournalRecord, b: &JournalRecord| {
            assert_eq!(a.touches(b, 4096), b.touches(a, 4096));
            a.touches(b, 4096)
        };
        let one = record(0, 4096, 512);
        assert!(touches(&one, &record(0, 7680, 512)), "one block, other bytes");
        assert!(touches(&one, &record(0, 0, 4097)));
        assert!(!touches(&one, &record(0, 8192, 512)) && !touches(&one, &record(0, 0, 4096)), "the blocks beside it");
        assert!(!touches(&one, &record(1, 4096, 512)), "another volume");
        assert!(!touches(&one, &record(0, 4096, 0)), "nothing of it");
    }
}
