//! From the journal to the volumes: durable records are written in order where they overlap, then flushed, recorded, and told
//! as `applied`; only then is their journal space free.

use alloc::vec;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::undo::BLOCK_BYTES;
use crate::formats::wire::{Ack, FrameHeader, FrameKind, flags};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::records::record::AfterSuper;
use crate::secondary::Secondary;
use crate::secondary::receive::*;
use crate::secondary::record_pipeline::{JournalRecord, RecordContent};
use crate::shared::coverage::CoveragePoint;
use crate::shared::lifecycle::{Phase, StartStage};
use crate::shared::operation_slots::{OperationSlots, SlotOperation};
use crate::shared::volume::Volume;
use crate::state::{Broken, Pause, State};
use crate::time::Wall;
use crate::{Event, IoDone, IoError, Output, SendPayload, Slice, Store, WriteBytes, limits};

impl Secondary {
    pub fn apply_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        seq: Seq,
        result: Result<IoDone, IoError>,
    ) -> Result<(), Broken> {
        if common.has_failed() {
            self.way.let_go_of(seq);
            return Ok(());
        }
        let record = self.way.applies(seq).clone();
        match (result, &record.content) {
            (Err(IoError::NoSpace), _) => {
                self.pause_apply(common, cx, Pause::PeerFull);
                return Ok(());
            }
            (Err(_), _) if injected(Fault::MemberDropsAlone) => {}
            // What cannot be read here is not known to be equal: it is sent, and written over.
            (Err(_), RecordContent::Probe(_)) => self.answer_probe(common, cx, seq, false),
            (Err(_), _) => return Err(Broken::VolumeApply),
            (Ok(IoDone::Hash(ours)), RecordContent::Probe(theirs)) => {
                self.answer_probe(common, cx, seq, ours == *theirs)
            }
            (Ok(_), _) => {
                self.unflushed_bytes += record.length;
                if !self.unflushed_volumes.contains(&record.volume) {
                    self.unflushed_volumes.push(record.volume);
                }
            }
        }
        self.way.done(seq);
        self.collect_applied(common, cx);
        self.apply(common, cx);
        self.replay_goes_on(common, cx);
        Ok(())
    }

    pub fn replica_flush_done(&mut self, common: &mut GroupCommon, cx: &mut Cx, ok: bool) -> Result<(), Broken> {
        let Some(cycle) = self.cycle.as_mut() else { return Ok(()) };
        cycle.flushes -= 1;
        cycle.failed |= !ok && !injected(Fault::FailedApplyFlushIgnored);
        if cycle.failed {
            cx.coverage.hit(CoveragePoint::FlushFailedLatched);
            return Err(Broken::VolumeFlush);
        }
        if cycle.flushes == 0 {
            self.cycle_flushed(common, cx);
        }
        Ok(())
    }
}

impl Secondary {
    /// Writes durable records to the volumes, in order where they overlap.
    pub fn apply(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if common.lifecycle.is_rolling_back() {
            // Nothing new begins.
            return self.collect_applied(common, cx);
        }
        while self.apply_some(common, cx) {}
    }

    /// As many as may be under way. True: those that no disk has to do with are done already, and others may follow.
    fn apply_some(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        self.save_ahead(common, cx);
        while !self.stands_still() {
            let Some((record, ticket)) = self.way.next_to_apply() else { break };
            if !self.saver.is_good(*ticket) {
                break;
            }
            let block = common.volumes.get(usize::from(record.volume.0)).map_or(1, |v| v.block_bytes());
            let unordered = matches!(record.content, RecordContent::Zero { .. }) && injected(Fault::TrimsUnordered);
            if self.way.clashes(record, block) && !injected(Fault::ApplyIgnoresOverlap) && !unordered {
                cx.coverage.hit(CoveragePoint::ApplyOverlapWaited);
                break;
            }
            if let Some(record) = self.way.begin_apply() {
                record.carry_out(&mut common.slots, cx);
            }
        }
        let under_way = self.way.applying();
        self.collect_applied(common, cx);
        under_way == limits::APPLY_IN_FLIGHT_MAX && self.way.applying() < under_way
    }

    /// What the next records overwrite goes into the undo store, many records at a time.
    pub fn save_ahead(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if self.stands_still() || !self.way.has_to_save() {
            return;
        }
        if common.undo.is_short() {
            return self.pause_apply(common, cx, Pause::HistoryFull);
        }
        while self.saver.has_room() {
            let Some(record) = self.way.next_to_save() else { break };
            // All of a region of a sync will be overwritten: it is saved as a whole, in as few batches as can be.
            let unit = if record.resync { limits::REGION_BYTES } else { BLOCK_BYTES };
            let range = record.offset..record.offset + record.length;
            let ticket = if record.overwrites() {
                self.save_range(common, record.volume, range, unit, record.resync)
            } else {
                0
            };
            self.way.saves(record, ticket);
        }
        self.pump_saves(common, cx);
    }

    pub fn answer_probe(&mut self, common: &mut GroupCommon, cx: &mut Cx, seq: Seq, equal: bool) {
        if let Some(link) = cx.peer.link.filter(|_| self.streaming) {
            let mut header = FrameHeader::new(FrameKind::ProbeResult, cx.peer.session, common.id());
            header.seq = seq;
            header.flags = if equal { flags::EQUAL } else { 0 };
            cx.send(link, header, SendPayload::None);
        }
    }

    /// ENOSPC pauses apply and keeps the journal; it is no failed volume (rule 12).
    pub fn pause_apply(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: Pause) {
        if self.paused.replace(why) != Some(why) {
            let (mark, note) = match why {
                Pause::PeerFull => {
                    (CoveragePoint::ApplyPaused, "a volume has no space; apply waits, the journal keeps what arrives")
                }
                Pause::HistoryFull => (
                    CoveragePoint::HistoryFull,
                    "the undo store has no space; apply waits, the journal keeps what arrives",
                ),
            };
            cx.coverage.hit(mark);
            cx.event(common.id(), Event::Note(note.into()));
        }
        self.retrying = false;
        self.ack_due = true;
        common.set_timer(cx, GroupTimer::ApplyRetry, limits::APPLY_RETRY_AFTER);
    }

    /// Tries the paused records again; those that succeed meanwhile are merely written twice.
    pub fn retry_apply(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if common.lifecycle.is_rolling_back() {
            return self.retry_write_back(common, cx);
        }
        if !common.has_failed() {
            self.retry_reads(common, cx);
        }
        if self.paused.is_none() {
            return;
        }
        self.retrying = true;
        self.retry_saves(common, cx);
        let again = self.way.interrupted(|seq| common.slots.applies(seq));
        again.iter().for_each(|record| record.carry_out(&mut common.slots, cx));
        self.apply(common, cx);
    }

    pub fn collect_applied(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let mut any = false;
        while let Some(record) = self.way.collect() {
            self.progress.write(record.seq, record.wall);
            any = true;
            if matches!(record.content, RecordContent::SyncEnd) {
                self.sync_end = Some(record.seq);
            }
            if cx.trace && self.progress.snapshot().is_none() {
                cx.event(common.id(), Event::AppliedWrite { seq: record.seq });
            }
        }
        if !any {
            return;
        }
        if core::mem::take(&mut self.retrying) {
            self.paused = None;
        }
        self.ack_due = true;
        let hurry = self.unflushed_bytes >= limits::APPLY_FLUSH_BYTES || self.sync_end.is_some();
        if hurry {
            self.flush_replica(common, cx);
        } else {
            common.set_timer(cx, GroupTimer::ApplyFlush, limits::APPLY_FLUSH_AFTER);
        }
    }

    // ---- flushing, recording, trimming -------------------------------------------------------------------------------

    /// Begins a cycle unless one is under way or nothing was written since.
    pub fn flush_replica(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        // A stopped one may have been stopped in the middle of its start.
        let is_still = matches!(common.lifecycle.phase(), Phase::Starting(_) | Phase::RollingBack(_) | Phase::Stopped);
        if is_still || self.cycle.is_some() || (self.progress.is_flushed() && !self.can_trim()) || common.has_failed() {
            return;
        }
        let mut volumes = core::mem::take(&mut self.unflushed_volumes);
        if injected(Fault::TrimBeforeFlush) {
            volumes.clear();
        }
        self.unflushed_bytes = 0;
        // The index of what the primary has not flushed stays (P1).
        let done = self.progress.written().min(self.kept.floor());
        let head = self.ring.head_after(if injected(Fault::HeadTooFar) { done.next() } else { done });
        let cycle = FlushCycle {
            upto: self.progress.written(),
            wall: self.progress.written_wall(),
            head,
            flushes: volumes.len(),
            failed: false,
        };
        self.cycle = Some(cycle);
        for volume in &volumes {
            let token = common.slots.start(SlotOperation::ReplicaFlush);
            cx.out.push_back(Output::Flush { token, store: Store::Volume(common.id(), *volume) });
        }
        if volumes.is_empty() {
            self.cycle_flushed(common, cx);
        }
    }

    pub fn cycle_flushed(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some(cycle) = self.cycle else { return };
        if self.progress.snapshot().is_none() {
            common.sb.applied_through(cycle.upto);
        }
        if self.sync_end.is_some_and(|end| end <= cycle.upto) {
            // One update: the whole sync counts, or nothing of it.
            common.sb.made_whole(common.volumes.len());
            self.sync_end = None;
            common.sb.drop_rollback_point(None);
            self.forget_bits(common);
            self.follow_sizes(common, cx, true);
        }
        let wall = common.sb.trimmed(cycle.head, cycle.wall, self.kept.primary_flushed());
        common.save(cx, Some(AfterSuper::Applied { upto: cycle.upto, wall }));
    }

    /// The sync made this copy equal: what this side held against it is reconciled, and on disk too once that is on record.
    fn forget_bits(&mut self, common: &mut GroupCommon) {
        common.volumes.iter_mut().for_each(Volume::is_equal);
        self.bits_forgotten = true;
    }

    /// The primary's flush point freed journal space that is wanted.
    pub fn trim_if_pressed(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if self.is_pressed() && self.can_trim() {
            self.flush_replica(common, cx);
        }
    }

    /// One acknowledgement per turn, if anything moved.
    pub fn send_due_ack(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if cx.peer.is_clogged {
            // The newest will say all of it.
            return;
        }
        let says = self.streaming || (self.beginning.is_some() && self.paused.is_some());
        if !core::mem::take(&mut self.ack_due) || !says {
            return;
        }
        let Some(link) = cx.peer.link else { return };
        let window_bytes = self.way.window.size_bytes();
        let granted_bytes = self.way.window.grant(cx.allowance, cx.now.mono, cx.peer.round_trip);
        if self.way.window.size_bytes() > window_bytes {
            cx.coverage.hit(CoveragePoint::WindowGrew);
        }
        let ack = Ack {
            received: self.progress.received(),
            durable: self.progress.durable_on_disk(),
            applied: self.progress.applied_on_disk(),
            granted_bytes,
            applied_wall: self.progress.applied_wall(),
            paused: self.paused,
            noted: self.noted,
            wants_flush: self.wants_flush() && self.kept.primary_flushed() < self.progress.written(),
        };
        let recalls = self.way.window.recalls();
        common.memory.note(self.way.window.is_short(cx.allowance));
        let header = FrameHeader { offset: recalls, ..FrameHeader::new(FrameKind::Ack, cx.peer.session, common.id()) };
        cx.send(link, header, SendPayload::Control(ack.encode()));
    }

    /// A batch that rots is distinguished from a torn one by the count (P9). Where nothing is applied, no cycle brings it up to date.
    pub fn count_batches(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let due = match (common.lifecycle.phase(), common.state()) {
            // However long it stands failed until somebody looks.
            (Phase::Running, State::Failed(broken)) => self.may_count && broken != Broken::Superblock,
            (Phase::Running | Phase::Promoting(_) | Phase::Stopping { .. }, _) => self.cycle.is_none(),
            // It stands still for want of space, or failed, and has overwritten what it saved.
            (Phase::Starting(StartStage::Replay), _) => true,
            _ => false,
        };
        if due && common.sb.counts_too_few(&common.undo) {
            cx.coverage.hit(CoveragePoint::CountedWithoutCycle);
            common.save(cx, None);
        }
    }
}

impl Secondary {
    /// The superblock that starts replay behind these records is durable: their space is free, the primary may know. Whether it is to be
    /// told who this node is; `None`: there was no cycle.
    pub fn note_applied(&mut self, common: &mut GroupCommon, cx: &mut Cx, upto: Seq, wall: Wall) -> Option<bool> {
        let cycle = self.cycle.take()?;
        self.noted = self.ring.trim(cycle.head).unwrap_or(self.noted);
        self.progress.apply(upto, wall);
        self.ack_due = true;
        let tidy = core::mem::take(&mut self.bits_forgotten);
        if let Some(snapshot) = self.progress.snapshot()
            && !common.sb.identity.inconsistent
        {
            cx.event(common.config.id, Event::SnapshotEnded { at: snapshot.from, sent_bytes: 0 });
        }
        if tidy {
            // Killed before that, this node would hold them against what it goes on with.
            common.tidy_bits(cx);
        }
        Some(self.beginning.is_some())
    }

    /// What waited for space lands, and the next cycle is looked for.
    pub fn goes_on_applying(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.land(common, cx);
        if self.progress.is_unflushed() || common.sb.counts_too_few(&common.undo) {
            common.set_timer(cx, GroupTimer::ApplyFlush, limits::APPLY_FLUSH_AFTER);
        }
    }

    /// Memory of this node came free: the window may grow.
    pub fn memory_freed(&mut self, cx: &Cx) {
        self.ack_due |= self.streaming && self.way.window.could_grow(cx.allowance);
    }
}

impl JournalRecord {
    /// Writes it to its volume, or reads what it is compared with.
    fn carry_out(&self, slots: &mut OperationSlots, cx: &mut Cx) {
        let token = slots.start(SlotOperation::Apply { seq: self.seq });
        let store = Store::Volume(slots.group(), self.volume);
        let (mut offset, mut length) = (self.offset, self.length);
        if injected(Fault::TrimDiffers) && matches!(self.content, RecordContent::Zero { .. }) {
            let (start, end) = (offset.next_multiple_of(4096), (offset + length) / 4096 * 4096);
            (offset, length) = if start < end { (start, end - start) } else { (offset, length) };
        }
        cx.out.push_back(match &self.content {
            RecordContent::Data(buf) => Output::Write {
                token,
                store,
                offset,
                parts: vec![WriteBytes::Payload(Slice { buf: buf.clone(), start: 0, length: length as u32 })],
                durable: false,
                waits_for_peer: false,
            },
            RecordContent::Zero { no_hole } => {
                Output::Zero { token, store, offset, length, no_hole: *no_hole, durable: false }
            }
            RecordContent::Probe(_) => Output::ReadHash { token, store, offset, length: length as u32 },
            RecordContent::Void | RecordContent::SyncEnd => unreachable!("nothing to do on a volume"),
        });
    }
}
