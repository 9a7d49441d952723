//! The rollback point under a resync, and rolling back to it.
//!
//! While a sync overwrites a secondary out of order there is no consistent image on its volumes. So the superblock update
//! that makes the sync's begin durable also takes a *rollback point*: from then on everything is saved before it is first
//! overwritten, and the point stays until the sync's end is recorded. A promotion in between goes back to it:
//!
//! ```text
//! quiesce -> bits durable -> superblock: rolling back -> write back -> flush -> superblock: consistent, at the point
//! ```
//! Bits come before the first byte (rule 6): what is undone here, the peer has. A crash anywhere in between is taken up at
//! the next start, from the superblock on; writing back again what is back already does no harm.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::durability::saving::UndoSaver;
use crate::formats::identity::Role;
use crate::formats::undo::{self, INDEX_BYTES, SavedRange, UndoIndex, UndoStore, space_for_regions};
use crate::formats::wire::SyncBegin;
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::limits::{self, SECTOR_BYTES};
use crate::records::bits::AfterBits;
use crate::records::record::AfterSuper;
use crate::records::start::{CannotStart, other_version, read_meta};
use crate::secondary::Secondary;
use crate::shared::coverage::CoveragePoint;
use crate::shared::lifecycle::{AfterRollback, Phase, Promotion, StartStage};
use crate::shared::operation_slots::{OperationSlots, SlotOperation};
use crate::shared::volumes::Volumes;
use crate::state::{Broken, Pause};
use crate::time::Wall;
use crate::{CommandResult, Event, IoDone, IoError, Output, Slice, Store, WriteBytes};

/// What an operator reads of a rollback that waits.
pub(crate) const NO_SPACE: &str =
    "a volume has no space for the image before the sync, which is being written back; it goes on when there is some";

/// A rollback under way.
#[derive(Debug)]
pub(crate) struct Rollback {
    stage: RollbackStage,
    /// It began before the start was through.
    mid_start: bool,
}

#[derive(Debug)]
enum RollbackStage {
    /// What is in flight ends, nothing new begins.
    Quiesce,
    Bits,
    Recording,
    WriteBack(WriteBack),
    Flush {
        left: usize,
    },
    /// It cannot be completed: see the text.
    GivenUp(String),
}

#[derive(Debug, Default)]
struct WriteBack {
    /// What was zero comes first: it may give back the space that the rest needs.
    zeroed: bool,
    cursor: Option<(VolumeId, u64)>,
    in_flight: usize,
    /// There was no space for these; tried again later, all at once: nothing new begins before.
    again: Vec<SavedRange>,
    /// Since something found no space, nothing has.
    waits: bool,
    damaged: Option<String>,
}

impl Rollback {
    /// The only way from one stage to the next.
    fn enter(&mut self, to: RollbackStage) {
        use RollbackStage::{Bits, Flush, GivenUp, Quiesce, Recording, WriteBack};
        let edge = (&self.stage, &to);
        let legal = matches!(
            edge,
            (Quiesce, Bits)
                | (Bits, Recording)
                | (Recording, WriteBack(_) | GivenUp(_))
                | (WriteBack(_), Flush { .. } | GivenUp(_))
        );
        assert!(cfg!(feature = "injected-faults") || legal, "{edge:?}");
        self.stage = to;
    }
}

impl WriteBack {
    fn next(&mut self, store: &UndoStore) -> Option<SavedRange> {
        if injected(Fault::RollbackHalf) && self.cursor.is_some() {
            return None;
        }
        if self.damaged.is_some() || !self.again.is_empty() || self.in_flight >= limits::WRITE_BACKS_MAX {
            return None;
        }
        let mut next = store.next_saved(self.cursor, !self.zeroed);
        if next.is_none() && !self.zeroed {
            (self.zeroed, self.cursor) = (true, None);
            next = store.next_saved(None, false);
        }
        let saved = next?;
        self.cursor = Some((saved.volume, saved.offset));
        self.in_flight += 1;
        Some(saved)
    }
}

/// Reading the store back at a start, a batch at a time.
#[derive(Debug, Default)]
pub(crate) struct UndoScan {
    /// The batch whose content is being checked.
    batch: Option<(Vec<u8>, UndoIndex)>,
    left: usize,
    torn: bool,
    /// Bytes of the batches that the superblock does not count.
    drawn_bytes: u64,
}

/// The name of a rollback point, for people.
pub(crate) fn name(point: u64) -> String {
    format!("before-sync-{point}")
}

impl Secondary {
    // ---- rolling back ------------------------------------------------------------------------------------------------

    pub fn begin_rollback(&mut self, common: &mut GroupCommon, cx: &mut Cx, promotion: Promotion) {
        let mid_start = !common.lifecycle.is_running();
        if mid_start {
            // The journal was not read to its end: what else it holds is not known.
            common.volumes.iter_mut().for_each(|v| v.dirty.set_all());
        }
        self.lost_session();
        self.enter_rollback(
            common,
            AfterRollback::Promote(promotion),
            Rollback { stage: RollbackStage::Quiesce, mid_start },
        );
        self.proceed_rollback(common, cx);
    }

    /// Called after every input: moves on what waits for others. Bits may be stored then.
    pub fn proceed_rollback(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Phase::RollingBack(then) = common.lifecycle.phase() else { return };
        if common.slots.replica_busy() {
            return;
        }
        if common.has_failed() {
            common.lifecycle.enter(Phase::Running);
            if let AfterRollback::Promote(Promotion { id, .. }) = then {
                cx.refuse(
                    id,
                    "a store of this node failed on the way back to the rollback point; a restart goes on with it if it had been recorded",
                );
            }
            return;
        }
        if self.rollback.as_ref().is_some_and(|rollback| matches!(rollback.stage, RollbackStage::Quiesce)) {
            self.quiesced(common, cx, then);
        }
    }

    fn quiesced(&mut self, common: &mut GroupCommon, cx: &mut Cx, then: AfterRollback) {
        if let AfterRollback::Promote(promotion) = then
            && !common.sb.identity.inconsistent
        {
            // The sync ended meanwhile: its image is the newer one.
            common.lifecycle.enter(Phase::Promoting(promotion));
            // The time to look for space again may have come and gone on the way back.
            self.retry_apply(common, cx);
            return self.apply(common, cx);
        }
        let mut undone: Vec<(VolumeId, u64, u64)> =
            common.undo.all_saved().map(|s| (s.volume, s.offset, u64::from(s.length))).collect();
        undone.extend(self.drop_unapplied());
        if undone.is_empty() {
            // It is by what it has dirty that the peer tells a copy that went back by itself from an old one.
            undone.push((VolumeId(0), 0, SECTOR_BYTES));
        }
        self.saver.forget();
        for (volume, offset, length) in undone {
            if !injected(Fault::RollbackWithoutBits) {
                common.volumes.of(volume).set_undone(offset, length);
            }
        }
        if let Some(rollback) = &mut self.rollback {
            rollback.enter(RollbackStage::Bits);
        }
        common.bits().save(cx, AfterBits::Rollback);
    }

    pub fn restore_read_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        saved: SavedRange,
        result: Result<IoDone, IoError>,
    ) -> Result<(), Broken> {
        let store = Store::Volume(common.id(), saved.volume);
        match result {
            Ok(IoDone::Payload { buf, .. }) => {
                let token = common.slots.start(SlotOperation::RestoreWrite(saved));
                let parts = alloc::vec![WriteBytes::Payload(Slice { buf, start: 0, length: saved.length })];
                let offset = saved.offset;
                cx.out.push_back(Output::Write { token, store, offset, parts, durable: false, waits_for_peer: false });
            }
            Err(IoError::Damaged) => {
                let what = format!(
                    "the undo store is damaged at byte {}: what stood on volume {} at byte {} is lost",
                    saved.undo_offset.unwrap_or_default(),
                    saved.volume.0 + 1,
                    saved.offset
                );
                self.restored(common, cx, |back| back.damaged = Some(what));
            }
            _ => return Err(Broken::Undo),
        }
        Ok(())
    }

    pub fn restore_write_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        saved: SavedRange,
        result: Result<(), IoError>,
    ) -> Result<(), Broken> {
        match result {
            Ok(()) => self.restored(common, cx, |back| back.waits = !back.again.is_empty()),
            Err(IoError::NoSpace) => {
                common.set_timer(cx, GroupTimer::ApplyRetry, limits::APPLY_RETRY_AFTER);
                if self.writing_back(common).is_some_and(|back| !core::mem::replace(&mut back.waits, true)) {
                    cx.event(common.id(), Event::Note(NO_SPACE.into()));
                }
                self.restored(common, cx, |back| back.again.push(saved));
            }
            Err(_) => return Err(Broken::VolumeApply),
        }
        Ok(())
    }

    /// A volume's flush behind what was written back has ended; once all have, what the rollback was for.
    pub fn restore_flushed(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        ok: bool,
    ) -> Result<Option<AfterRollback>, Broken> {
        if !ok {
            cx.coverage.hit(CoveragePoint::FlushFailedLatched);
            return Err(Broken::VolumeFlush);
        }
        let (Phase::RollingBack(then), Some(Rollback { stage: RollbackStage::Flush { left }, .. })) =
            (common.lifecycle.phase(), &mut self.rollback)
        else {
            return Ok(None);
        };
        *left -= 1;
        let then = (*left == 0).then_some(then);
        if then.is_some() {
            self.rolled_back(common, cx);
        }
        Ok(then)
    }

    /// The volumes hold the image of the point; one superblock update says so, together with what the rollback was for.
    fn rolled_back(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let point = common.sb.rollback_point;
        cx.coverage.hit(CoveragePoint::RolledBack);
        cx.event(common.id(), Event::RolledBack { to: point.position });
        self.stand_at(point.position, point.wall);
        common.sb.rolled_back();
    }

    /// The operator is told why a rollback ends; false if that is not on its way any more.
    pub fn rollback_given_up(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        let (Phase::RollingBack(AfterRollback::Promote(Promotion { id, .. })), Some(RollbackStage::GivenUp(what))) =
            (common.lifecycle.phase(), self.rollback.take().map(|rollback| rollback.stage))
        else {
            return false;
        };
        common.lifecycle.enter(Phase::Running);
        self.empty_undo(common);
        cx.refuse(id, &format!("{what}; the volumes hold a mixture, only a sync from the other node makes them whole"));
        if let Some(link) = cx.peer.link {
            // The peer still thinks of the sync as running.
            let reason = format!("group {}: this node gave the running sync up", common.id().0);
            cx.out.push_back(Output::CloseLink { link, reason });
        }
        true
    }

    pub fn undo_read(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        result: Result<IoDone, IoError>,
    ) -> Result<(), CannotStart> {
        match result {
            Ok(IoDone::Meta(block)) => return self.undo_index_read(common, cx, block),
            Ok(_) => {}
            Err(IoError::Damaged) => self.scan.torn = true,
            Err(_) => {
                return Err(CannotStart::unreadable(Broken::Undo, "the undo store"));
            }
        }
        self.scan.left -= 1;
        if self.scan.left == 0 {
            self.undo_batch_checked(common, cx);
        }
        Ok(())
    }

    fn undo_index_read(&mut self, common: &mut GroupCommon, cx: &mut Cx, block: Vec<u8>) -> Result<(), CannotStart> {
        if let Some(version) = UndoIndex::other_version(&block) {
            let why = other_version("undo store", version, undo::VERSION);
            return Err(CannotStart::new(Broken::Undo, why));
        }
        let boot = common.sb.identity.incarnation;
        let index = UndoIndex::decode(&block).filter(|index| common.undo.follows(common.config.tag, boot, index));
        let Some(index) = index else {
            self.scan_ended(common, cx);
            return Ok(());
        };
        if !index.entries.iter().all(|e| common.volumes.contain(e.volume, e.offset, u64::from(e.length))) {
            let why =
                "the undo store holds ranges past the end of a volume: a volume shrank; give it its old size back";
            return Err(CannotStart::new(Broken::Undo, why));
        }
        // What the superblock counts was durable; behind that a batch may be torn in its content.
        let counted = index.ordinal <= common.sb.rollback_point.batches;
        let base = index.ring_offset;
        let to_check: Vec<_> = index.entries.iter().filter(|e| e.payload_at > 0 && !counted).copied().collect();
        (self.scan.batch, self.scan.left, self.scan.torn) = (Some((block, index)), to_check.len(), false);
        if to_check.is_empty() {
            self.undo_batch_checked(common, cx);
            return Ok(());
        }
        for entry in to_check {
            let token = common.slots.start(SlotOperation::StartRead);
            cx.out.push_back(Output::Read {
                token,
                store: Store::Undo(common.id()),
                offset: base + u64::from(entry.payload_at),
                length: entry.length,
                crc: Some(entry.payload_crc),
            });
        }
        Ok(())
    }

    // ---- the point -------------------------------------------------------------------------------------------------

    /// A sync is about to be recorded: take the rollback point in the same update, unless there is one from a sync that
    /// was interrupted, or no image to go back to. Room for what the sync will overwrite is reserved next; without it, nothing
    /// is applied.
    pub fn take_rollback_point(&mut self, common: &mut GroupCommon, cx: &mut Cx, begin: &SyncBegin) {
        let identity = common.sb.identity;
        let has_image = !identity.inconsistent && !identity.generation.is_blank();
        let has_point = common.sb.rollback_point.id != 0;
        if !has_point && has_image && !begin.nothing_dirty {
            let point = common.sb.take_point(self.position(), self.progress.applied_wall());
            cx.coverage.hit(CoveragePoint::RollbackPointTaken);
            assert!(self.saver.is_idle() && common.undo.mark().is_none(), "an older point is gone");
            common.undo.begin_mark(point.id);
            let (name, at) = (name(point.id), point.position);
            cx.event(common.config.id, Event::RollbackPoint { name, at });
        } else if has_point {
            cx.coverage.hit(CoveragePoint::RollbackPointKept);
            if injected(Fault::PointMoves) {
                common.sb.move_point(self.position());
            }
        }
    }

    /// The superblock without the point is durable.
    pub fn point_gone(&mut self, common: &mut GroupCommon, cx: &mut Cx, answer: Option<(CommandId, String)>) {
        self.empty_undo(common);
        if let Some((id, text)) = answer {
            cx.coverage.hit(CoveragePoint::RollbackPointDropped);
            cx.answer(id, CommandResult::Done(text));
        }
        if self.paused == Some(Pause::HistoryFull) {
            self.retry_apply(common, cx);
        }
        self.apply(common, cx);
        self.replay_goes_on(common, cx);
    }

    /// An operator gives the rollback point up by its name.
    pub fn command_drop_point(&self, common: &mut GroupCommon, cx: &mut Cx, id: CommandId, wanted: &str) {
        let point = common.sb.rollback_point;
        if common.role() != Role::Secondary || point.id == 0 {
            return cx.refuse(id, "this node keeps no rollback point; 'mark list' shows what there is");
        }
        let name = name(point.id);
        if wanted != name {
            return cx.refuse(id, &format!("there is no mark {wanted:?} here; the rollback point is {name:?}"));
        }
        let text = format!("{name} is given up; until the sync ends this node has no image that could be promoted");
        common.sb.drop_rollback_point(Some((id, text)));
        common.save(cx, None);
    }

    /// What was saved is not needed any more.
    pub fn empty_undo(&mut self, common: &mut GroupCommon) {
        self.saver.forget();
        self.undo_damaged = None;
        common.undo.empty();
    }

    /// The image that a promotion would give: its position and the primary's time; `None`: none.
    pub fn promotable(&self, common: &GroupCommon) -> Option<(Position, Wall)> {
        let identity = common.sb.identity;
        if identity.role == Role::Primary || identity.generation.is_blank() {
            return None;
        }
        if identity.inconsistent || common.sb.rolling_back {
            let point = common.sb.rollback_point;
            return (point.id != 0 && self.undo_damaged.is_none()).then_some((point.position, point.wall));
        }
        Some((self.position(), self.newest_wall()))
    }

    /// Why there is nothing to promote.
    pub fn no_image(&self) -> String {
        match &self.undo_damaged {
            Some(what) => format!(
                "a sync to this node has begun and not ended, and the image before it cannot be had back: {what}; let the sync end first"
            ),
            None => "this copy is a mixture (a sync to this node has begun and not ended, or its journal was found damaged), and \
                     there is no rollback point (this was the first sync, or the point was given up): no consistent image \
                     exists yet, --force or not; let a sync end first"
                .into(),
        }
    }

    /// The bits of all that is undone and dropped are durable.
    pub fn record_rollback(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some(rollback) = self.rollback_under_way(common) else { return };
        rollback.enter(RollbackStage::Recording);
        // A run of its own, as after any start: what the journal still holds is of the one before. Not earlier: until the way back is
        // on record a start reads the journal again, and takes what is of an earlier run for a left-over.
        let mid_start = rollback.mid_start;
        common.sb.rolls_back(mid_start);
        self.empty_journal(common);
        self.ring.trim(common.sb.journal);
        // It stands nowhere any more: what a primary lost cannot be had from here, also if the image cannot be had back, or nothing
        // comes of the promotion. Half-way through a start it was not read back, and nobody knows what it was.
        if injected(Fault::WayBackForgotten) {
            _ = self.kept.give_up(self.progress.durable_on_disk());
        } else {
            self.give_up_kept(common, Seq(u64::MAX));
        }
        if mid_start {
            common.sb.give_up(Seq(u64::MAX));
        }
        common.save_in_both_slots(cx, AfterSuper::RollingBack);
    }

    /// The superblock says so: from here on a crash is followed by the rest of the rollback.
    pub fn write_back(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some(rollback) = self.rollback_under_way(common) else { return };
        rollback.enter(RollbackStage::WriteBack(WriteBack::default()));
        self.pump_write_back(common, cx);
    }

    fn pump_write_back(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        while let Some(saved) = self.writing_back(common).and_then(|back| back.next(&common.undo)) {
            write_back_one(&mut common.slots, cx, saved);
        }
        let Some(back) = self.writing_back(common) else { return };
        if back.in_flight > 0 || !back.again.is_empty() && back.damaged.is_none() {
            return;
        }
        match back.damaged.take() {
            Some(what) => self.give_rollback_up(common, cx, what),
            None => self.flush_restored(common, cx),
        }
    }

    fn restored(&mut self, common: &mut GroupCommon, cx: &mut Cx, note: impl FnOnce(&mut WriteBack)) {
        let Some(back) = self.writing_back(common) else { return };
        back.in_flight -= 1;
        note(back);
        self.pump_write_back(common, cx);
    }

    /// There may be space by now.
    pub fn retry_write_back(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some(back) = self.writing_back(common) else { return };
        let again = core::mem::take(&mut back.again);
        back.in_flight += again.len();
        again.into_iter().for_each(|saved| write_back_one(&mut common.slots, cx, saved));
    }

    fn flush_restored(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let left = common.volumes.len();
        let Some(rollback) = self.rollback_under_way(common) else { return };
        rollback.enter(RollbackStage::Flush { left });
        for index in 0..left {
            let token = common.slots.start(SlotOperation::RestoreFlush);
            cx.out.push_back(Output::Flush { token, store: Store::Volume(common.id(), VolumeId(index as u16)) });
        }
    }

    fn enter_rollback(&mut self, common: &mut GroupCommon, then: AfterRollback, rollback: Rollback) {
        common.lifecycle.enter(Phase::RollingBack(then));
        self.rollback = Some(rollback);
    }

    fn rollback_under_way(&mut self, common: &GroupCommon) -> Option<&mut Rollback> {
        self.rollback.as_mut().filter(|_| common.lifecycle.is_rolling_back())
    }

    fn writing_back(&mut self, common: &GroupCommon) -> Option<&mut WriteBack> {
        match &mut self.rollback_under_way(common)?.stage {
            RollbackStage::WriteBack(back) => Some(back),
            _ => None,
        }
    }

    /// Volumes have no space for what is written back.
    pub fn restore_waits_for_space(&self, common: &GroupCommon) -> bool {
        let waits = |rollback: &Rollback| matches!(&rollback.stage, RollbackStage::WriteBack(back) if back.waits);
        common.lifecycle.is_rolling_back() && self.rollback.as_ref().is_some_and(waits)
    }

    /// What was saved is damaged: the volumes are a mixture, and only a sync makes them whole.
    fn give_rollback_up(&mut self, common: &mut GroupCommon, cx: &mut Cx, what: String) {
        let (Phase::RollingBack(then), Some(rollback)) = (common.lifecycle.phase(), &mut self.rollback) else { return };
        rollback.enter(RollbackStage::GivenUp(what.clone()));
        cx.event(common.id(), Event::Note(what));
        common.sb.rollback_given_up();
        self.stand_at(common.sb.identity.position, common.sb.applied_wall);
        match then {
            AfterRollback::Promote { .. } => common.save(cx, Some(AfterSuper::RollbackGivenUp)),
            AfterRollback::Start => common.start().record(cx),
        }
    }

    // ---- at a start ---------------------------------------------------------------------------------------------------

    /// A secondary in the middle of a sync: its undo store is read back before anything is applied.
    pub fn begin_scan(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        (self.saver, common.undo) = (UndoSaver::new(&common.config), UndoStore::new(common.config.history_bytes));
        let point = common.sb.rollback_point;
        if point.was_damaged() {
            self.undo_damaged = Some("an earlier start found the undo store damaged".into());
            return self.begin_replay(common, cx);
        }
        common.undo.begin_mark(point.id);
        self.scan = UndoScan::default();
        common.lifecycle.enter_stage(StartStage::Undo);
        self.read_undo_index(common, cx);
    }

    fn read_undo_index(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let offset = common.undo.next_offset();
        if offset + INDEX_BYTES as u64 > common.config.history_bytes {
            return self.scan_ended(common, cx);
        }
        read_meta(&mut common.slots, cx, Store::Undo(common.config.id), offset, INDEX_BYTES as u32);
    }

    fn undo_batch_checked(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some((block, index)) = self.scan.batch.take() else { return };
        if self.scan.torn {
            cx.coverage.hit(CoveragePoint::UndoTornTail);
            return self.scan_ended(common, cx);
        }
        if index.ordinal > common.sb.rollback_point.batches {
            self.scan.drawn_bytes += u64::from(index.bytes);
        }
        common.undo.found(&block, &index);
        self.read_undo_index(common, cx);
    }

    fn scan_ended(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let drawn_bytes = self.scan.drawn_bytes;
        let point = common.sb.rollback_point;
        let (whole, at) = (common.undo.durable_batches(), common.undo.next_offset());
        if whole < point.batches {
            let what = format!(
                "the undo store is damaged at byte {at}: {whole} of {} batches of {} are whole",
                point.batches,
                name(point.id)
            );
            cx.event(common.id(), Event::Note(what.clone()));
            self.empty_undo(common);
            self.undo_damaged = Some(what);
        } else {
            // What came after that record drew on it.
            common.undo.reserve(point.reserved_bytes.saturating_sub(drawn_bytes));
        }
        if !common.sb.rolling_back {
            if self.undo_damaged.is_none() {
                return self.begin_replay(common, cx);
            }
            // From here on it is overwritten unsaved.
            common.sb.point_damaged();
            return common.save(cx, Some(AfterSuper::PointDamaged));
        }
        cx.coverage.hit(CoveragePoint::RollbackResumed);
        self.enter_rollback(
            common,
            AfterRollback::Start,
            Rollback { stage: RollbackStage::Recording, mid_start: false },
        );
        match self.undo_damaged.take() {
            Some(what) => self.give_rollback_up(common, cx, what),
            None => self.write_back(common, cx),
        }
    }

    /// It is on record that the point is no image, whatever a later start reads.
    pub fn damage_recorded(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        // Unless the node was stopped while it started.
        if common.lifecycle.is_at(StartStage::Undo) {
            self.begin_replay(common, cx);
        }
    }
}

/// The volumes have the sizes that the sync needs.
pub(crate) fn reserve_for_sync(undo: &mut UndoStore, volumes: &Volumes, begin: &SyncBegin) {
    if undo.mark().is_some() {
        // An earlier attempt may have saved a part of it, and what that had reserved was drawn on. How much of it is dirty
        // still cannot be known: at most all of what is announced now is unsaved, at least what exceeds the saved.
        let saved: u64 = undo.all_saved().map(|saved| u64::from(saved.length)).sum();
        let unsaved = volumes.iter().map(|v| v.size_bytes()).sum::<u64>().saturating_sub(saved);
        let most = space_for_regions(begin.dirty_bytes.min(unsaved));
        let least = space_for_regions(begin.dirty_bytes.saturating_sub(saved));
        undo.reserve(undo.reserved_bytes().max(least).min(most));
    }
}

fn write_back_one(slots: &mut OperationSlots, cx: &mut Cx, saved: SavedRange) {
    let id = slots.group();
    match saved.undo_offset {
        Some(offset) => {
            let token = slots.start(SlotOperation::RestoreRead(saved));
            let crc = Some(saved.crc);
            cx.out.push_back(Output::Read { token, store: Store::Undo(id), offset, length: saved.length, crc });
        }
        None => {
            let token = slots.start(SlotOperation::RestoreWrite(saved));
            let (offset, length) = (saved.offset, u64::from(saved.length));
            let store = Store::Volume(id, saved.volume);
            cx.out.push_back(Output::Zero { token, store, offset, length, no_hole: false, durable: false });
        }
    }
}
