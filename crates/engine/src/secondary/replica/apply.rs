//! From the journal to the volumes: durable records are written, in order where they overlap.

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::durability::saving::BatchResult;
use crate::formats::identity::Role;
use crate::formats::undo::BLOCK_BYTES;
use crate::formats::wire::{FrameHeader, FrameKind, flags};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::records::record::set_aside_by_primary;
use crate::secondary::record_pipeline::{RecordContent, SaveTickets};
use crate::secondary::replica::OrderedReplica;
use crate::secondary::replica::image::holds_back;
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::{SavedFor, UndoTicket};
use crate::shared::wakes::Wake;
use crate::state::{Broken, Pause};
use crate::{Event, IoDone, IoError, IoResult, SendPayload, limits};

impl OrderedReplica {
    pub fn apply_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        seq: Seq,
        result: IoResult,
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
            // What cannot be read here is not known to be equal: in a sync it is sent, and written over.
            (Err(_), RecordContent::Probe(_)) => self.answer_probe(common, cx, seq, flags::UNREADABLE),
            (Err(_), _) => return Err(Broken::VolumeApply),
            (Ok(IoDone::Hash(ours)), RecordContent::Probe(theirs)) => {
                self.answer_probe(common, cx, seq, if ours == *theirs { flags::EQUAL } else { 0 })
            }
            (Ok(_), _) => self.cycle.wrote(record.volume, record.length),
        }
        self.way.done(seq);
        self.collect_applied(common, cx);
        common.wake(Wake::Apply);
        Ok(())
    }
}

impl OrderedReplica {
    /// Writes durable records to the volumes, in order where they overlap.
    pub fn apply(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if common.lifecycle.is_rolling_back() {
            // Nothing new begins.
            return self.collect_applied(common, cx);
        }
        while self.apply_some(common, cx) {}
    }

    /// Nothing is applied before the next try.
    pub(super) fn stands_still(&self) -> bool {
        self.cycle.is_paused() || self.paused.is_some() && !self.retrying
    }

    /// As many as may be under way. True: those that no disk has to do with are done already, and others may follow.
    fn apply_some(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        self.save_ahead(common, cx);
        while !self.stands_still() && !holds_back(self, &common.slots) {
            let Some((record, tickets)) = self.way.next_to_apply() else { break };
            if !self.saver.is_good(tickets.undo) || !self.views.is_good(tickets.views) {
                break;
            }
            let block = common.volumes.get(usize::from(record.volume.0)).map_or(1, |v| v.block_bytes());
            let unordered = matches!(record.content, RecordContent::Zero { .. }) && injected(Fault::TrimsUnordered);
            if self.way.clashes(record, block) && !injected(Fault::ApplyIgnoresOverlap) && !unordered {
                cx.coverage.hit(CoveragePoint::ApplyOverlapWaited);
                break;
            }
            self.views.overwrites(record);
            if let Some(record) = self.way.begin_apply() {
                record.carry_out(&mut common.slots, cx);
            }
        }
        let under_way = self.way.applying();
        self.collect_applied(common, cx);
        under_way == limits::APPLY_IN_FLIGHT_MAX && self.way.applying() < under_way
    }

    /// What the next records overwrite goes into the undo store, many records at a time.
    fn save_ahead(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if self.stands_still() || holds_back(self, &common.slots) || !self.way.has_to_save() {
            return;
        }
        if common.undo.is_short() {
            return self.pause_apply(common, cx, Pause::HistoryFull);
        }
        while self.saver.has_room() && self.views.has_room() {
            let Some(record) = self.way.next_to_save() else { break };
            let unit = if record.resync { common.undo.unit_bytes() } else { BLOCK_BYTES };
            let range = record.offset..record.offset + record.length;
            let undo = if record.overwrites() {
                let size_bytes = common.volumes[usize::from(record.volume.0)].size_bytes();
                self.saver.save(&common.undo, record.volume, size_bytes, range, unit, record.resync)
            } else {
                0
            };
            let tickets = SaveTickets { undo, views: self.views.save(common, &record) };
            self.way.saves(record, tickets);
        }
        self.pump_saves(common, cx);
    }

    fn answer_probe(&self, common: &mut GroupCommon, cx: &mut Cx, seq: Seq, flags: u16) {
        if let Some(link) = cx.peer.link.filter(|_| self.streaming) {
            let mut header = FrameHeader::new(FrameKind::ProbeResult, cx.peer.session, common.id());
            (header.seq, header.flags) = (seq, flags);
            cx.send(link, header, SendPayload::None);
        }
    }

    /// ENOSPC pauses apply and keeps the journal; it is no failed volume (rule 12).
    pub fn pause_apply(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: Pause) {
        let (point, note) = match why {
            Pause::PeerFull => {
                (CoveragePoint::ApplyPaused, "a volume has no space; apply waits, the journal keeps what arrives")
            }
            _ => {
                (CoveragePoint::HistoryFull, "the undo store has no space; apply waits, the journal keeps what arrives")
            }
        };
        if self.paused.replace(why) != Some(why) {
            cx.coverage.hit(point);
            cx.event(common.id(), Event::Note(note.into()));
        }
        (self.retrying, self.ack_due) = (false, true);
        common.set_timer(cx, GroupTimer::ApplyRetry, limits::APPLY_RETRY_AFTER);
    }

    /// Tries the paused records again; those that succeed meanwhile are merely written twice.
    pub fn retry_apply(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if !common.has_failed() {
            self.saver.retry_reads();
            self.pump_saves(common, cx);
        }
        if self.paused.is_none() {
            return;
        }
        self.retrying = true;
        self.saver.write_allocated(&mut common.slots, cx);
        self.pump_saves(common, cx);
        let again = self.way.interrupted(|seq| common.slots.applies(seq));
        again.iter().for_each(|record| record.carry_out(&mut common.slots, cx));
        common.wake(Wake::Apply);
    }

    fn collect_applied(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let mut any = false;
        while let Some(record) = self.way.collect() {
            if !record.continues {
                self.progress.write(record.seq, record.wall);
            }
            any = true;
            if record.sets_aside {
                cx.coverage.hit(CoveragePoint::CopySetAside);
                // Goes on record with all that is applied.
                set_aside_by_primary(&mut common.sb, record.volume);
            }
            self.cycle.collect(&record);
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
        if self.cycle.is_urgent() {
            self.flush_replica(common, cx);
        } else {
            common.set_timer(cx, GroupTimer::ApplyFlush, limits::APPLY_FLUSH_AFTER);
        }
    }

    // ---- what is about to be overwritten goes into the undo store before ---------------------------------------------

    pub fn save_read_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        (of, piece): (SavedFor, UndoTicket),
        result: IoResult,
    ) -> Result<(), Broken> {
        if of == SavedFor::Views {
            let boot = common.sb.identity.incarnation;
            self.views.save_read_done(&mut common.slots, cx, boot, piece, result);
            common.wake(Wake::Apply);
            return Ok(());
        }
        if !self.saver.has(piece) {
            return Ok(());
        }
        if self.saver.read_done(cx, piece, result)? {
            common.set_timer(cx, GroupTimer::ApplyRetry, limits::APPLY_RETRY_AFTER);
        }
        self.pump_saves(common, cx);
        Ok(())
    }

    pub fn save_batch_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        (of, last_piece): (SavedFor, UndoTicket),
        result: IoResult,
    ) -> Result<(), Broken> {
        if of == SavedFor::Views {
            let boot = common.sb.identity.incarnation;
            self.views.save_batch_done(&mut common.slots, cx, boot, last_piece, result);
            common.wake(Wake::Apply);
            return Ok(());
        }
        match self.saver.batch_done(&mut common.undo, last_piece, result)? {
            BatchResult::Nobodys => {}
            BatchResult::Full => self.history_full(common, cx),
            BatchResult::More => {
                self.pump_saves(common, cx);
                // Tickets may have become good.
                if common.role() == Role::Secondary {
                    common.set_timer(cx, GroupTimer::ApplyFlush, limits::APPLY_FLUSH_AFTER);
                    common.wake(Wake::Apply);
                }
            }
        }
        Ok(())
    }

    /// Starts reads and batches; called whenever something was asked for or came back.
    pub fn pump_saves(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let boot = common.sb.identity.incarnation;
        self.views.pump_saves(&mut common.slots, cx, boot);
        if !self.saver.pump(&mut common.undo, &mut common.slots, cx, boot) {
            self.history_full(common, cx);
        }
    }

    /// The store is full, or its file system is.
    fn history_full(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if common.role() == Role::Secondary {
            self.pause_apply(common, cx, Pause::HistoryFull);
        }
        common.set_timer(cx, GroupTimer::ApplyRetry, limits::APPLY_RETRY_AFTER);
    }
}
