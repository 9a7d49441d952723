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

pub mod scan;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Role;
use crate::formats::superblock::Superblock;
use crate::formats::undo::{SavedRange, UndoStore, space_for_regions, space_for_units};
use crate::formats::wire::SyncBegin;
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::limits::{self, META_BLOCK_BYTES, SAVE_UNIT_BYTES, SECTOR_BYTES};
use crate::records::bits::AfterBits;
use crate::records::record::AfterSuper;
use crate::records::start::CannotStart;
use crate::secondary::Secondary;
use crate::shared::coverage::CoveragePoint;
use crate::shared::lifecycle::{AfterRollback, Phase, Promotion, StartStage};
use crate::shared::operation_slots::{OperationSlots, SlotOperation};
use crate::shared::volumes::Volumes;
use crate::shared::wakes::Wake;
use crate::state::{Broken, Pause};
use crate::time::Wall;
use crate::{CommandResult, Event, IoDone, IoError, IoResult, Output, RefusalCode, Slice, Store, WriteBytes};

/// What an operator reads of a rollback that waits.
pub(crate) const NO_SPACE: &str =
    "a volume has no space for the image before the sync, which is being written back; it goes on when there is some";

/// Behind what is damaged of what a sync saved before it overwrote a history of this copy's own.
const NO_DELTA: &str =
    "; what the sync has overwritten of this node's own history is lost with it, and no delta will hold it";

/// What a promotion says that undid a sync over a fork, behind the image.
const UNDONE: &str = ", this node's own history, as it was before the sync from the peer, which is undone";
const ALL_UNDONE: &str = ", this node's own history, as it was before the sync from the peer: all of that was written here and only its delta \
    was missing, and it is undone";

/// A rollback under way.
#[derive(Debug)]
pub(crate) struct Rollback {
    stage: RollbackStage,
    /// It began before the start was through.
    mid_start: bool,
    /// What whoever ordered it hears of a sync over a fork that it undoes.
    undone: &'static str,
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
    /// Nothing of the copy's journal is needed for it: a promotion goes back to the image before the sync.
    fn of_promotion(common: &mut GroupCommon, promotion: Promotion, undone: &'static str) -> Rollback {
        let mid_start = !common.lifecycle.is_running();
        if mid_start {
            // The journal was not read to its end: what else it holds is not known.
            common.volumes.copies_mut().for_each(|copy| copy.dirty.set_all());
        }
        common.lifecycle.enter(Phase::RollingBack(AfterRollback::Promote(promotion)));
        Rollback { stage: RollbackStage::Quiesce, mid_start, undone }
    }

    /// One that was cut short goes on from where it is on record.
    fn of_start(common: &mut GroupCommon, cx: &mut Cx) -> Rollback {
        cx.coverage.hit(CoveragePoint::RollbackResumed);
        common.lifecycle.enter(Phase::RollingBack(AfterRollback::Start));
        Rollback { stage: RollbackStage::Recording, mid_start: false, undone: "" }
    }

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

    fn quiesces(&self) -> bool {
        matches!(self.stage, RollbackStage::Quiesce)
    }

    /// Nothing is in flight. What is undone, and `dropped` unapplied, is set dirty: the peer has it.
    fn store_bits(&mut self, common: &mut GroupCommon, cx: &mut Cx, dropped: Vec<(VolumeId, u64, u64)>) {
        let mut undone: Vec<(VolumeId, u64, u64)> =
            common.undo.all_saved().map(|s| (s.volume, s.offset, u64::from(s.length))).collect();
        undone.extend(dropped);
        if undone.is_empty() {
            // It is by what it has dirty that the peer tells a copy that went back by itself from an old one.
            undone.push((VolumeId(0), 0, SECTOR_BYTES));
        }
        for (volume, offset, length) in undone {
            if !injected(Fault::RollbackWithoutBits) {
                common.volumes.copy_of(volume).set_differs(offset, length);
            }
        }
        self.enter(RollbackStage::Bits);
        common.bits().save(cx, AfterBits::Rollback);
    }

    /// The bits are durable. True: it began before the start was through.
    fn begin_recording(&mut self) -> bool {
        self.enter(RollbackStage::Recording);
        self.mid_start
    }

    // ---- writing back. What is saved may be damaged: then these are true, and the rollback ends -----------------------

    /// The superblock says so: from here on a crash is followed by the rest of the rollback.
    fn write_back(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        self.enter(RollbackStage::WriteBack(WriteBack::default()));
        self.pump_write_back(common, cx)
    }

    fn pump_write_back(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        let Some(back) = self.writing_back(common) else { return false };
        while let Some(saved) = back.next(&common.undo, &common.volumes) {
            write_back_one(&mut common.slots, cx, saved);
        }
        if back.in_flight > 0 || !back.again.is_empty() && back.damaged.is_none() {
            return false;
        }
        let damaged = back.damaged.take();
        match damaged {
            Some(what) => self.give_up(common, cx, what),
            None => {
                self.flush(common, cx);
                false
            }
        }
    }

    fn restored(&mut self, common: &mut GroupCommon, cx: &mut Cx, note: impl FnOnce(&mut WriteBack)) -> bool {
        let Some(back) = self.writing_back(common) else { return false };
        back.in_flight -= 1;
        note(back);
        self.pump_write_back(common, cx)
    }

    fn read_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        saved: SavedRange,
        result: IoResult,
    ) -> Result<bool, Broken> {
        match result {
            Ok(IoDone::Payload { buf, .. }) => {
                let token = common.slots.start(SlotOperation::RestoreWrite(saved));
                let parts = alloc::vec![WriteBytes::Payload(Slice { buf, start: 0, length: saved.length })];
                cx.write(token, Store::Volume(common.id(), saved.volume), saved.offset, parts, false);
                Ok(false)
            }
            Err(IoError::Damaged) => {
                let what = format!(
                    "the undo store is damaged at byte {}: what stood on volume {} at byte {} is lost",
                    saved.undo_offset.unwrap_or_default(),
                    saved.volume.0 + 1,
                    saved.offset
                );
                Ok(self.restored(common, cx, |back| back.damaged = Some(what)))
            }
            _ => Err(Broken::Undo),
        }
    }

    fn write_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        saved: SavedRange,
        result: IoResult,
    ) -> Result<bool, Broken> {
        match result {
            Ok(_) => Ok(self.restored(common, cx, |back| back.waits = !back.again.is_empty())),
            Err(IoError::NoSpace) => {
                common.set_timer(cx, GroupTimer::ApplyRetry, limits::APPLY_RETRY_AFTER);
                if self.writing_back(common).is_some_and(|back| !core::mem::replace(&mut back.waits, true)) {
                    cx.event(common.id(), Event::Note(NO_SPACE.into()));
                }
                Ok(self.restored(common, cx, |back| back.again.push(saved)))
            }
            Err(_) => Err(Broken::VolumeApply),
        }
    }

    /// There may be space by now.
    fn retry(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some(back) = self.writing_back(common) else { return };
        let again = core::mem::take(&mut back.again);
        back.in_flight += again.len();
        again.into_iter().for_each(|saved| write_back_one(&mut common.slots, cx, saved));
    }

    fn flush(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let left = common.volumes.len();
        self.enter(RollbackStage::Flush { left });
        for index in 0..left {
            let token = common.slots.start(SlotOperation::RestoreFlush);
            let store = common.volumes.flush_store(common.id(), VolumeId(index as u16));
            cx.out.push_back(Output::Flush { token, store });
        }
    }

    /// A volume's flush behind what was written back has ended; true: all have.
    fn one_flushed(&mut self) -> bool {
        let RollbackStage::Flush { left } = &mut self.stage else { return false };
        *left -= 1;
        *left == 0
    }

    fn writing_back(&mut self, common: &GroupCommon) -> Option<&mut WriteBack> {
        match &mut self.stage {
            RollbackStage::WriteBack(back) if common.lifecycle.is_rolling_back() => Some(back),
            _ => None,
        }
    }

    /// Volumes have no space for what is written back.
    fn waits_for_space(&self, common: &GroupCommon) -> bool {
        common.lifecycle.is_rolling_back() && matches!(&self.stage, RollbackStage::WriteBack(back) if back.waits)
    }

    /// What was saved is damaged: the volumes are a mixture, and only a sync makes them whole.
    fn give_up(&mut self, common: &mut GroupCommon, cx: &mut Cx, what: String) -> bool {
        let Phase::RollingBack(then) = common.lifecycle.phase() else { return false };
        self.enter(RollbackStage::GivenUp(what.clone()));
        cx.event(common.id(), Event::Note(what));
        common.sb.rollback_given_up();
        match then {
            AfterRollback::Promote { .. } => common.save(cx, Some(AfterSuper::RollbackGivenUp)),
            AfterRollback::Start => common.start().record(cx),
        }
        true
    }
}

impl WriteBack {
    fn next(&mut self, store: &UndoStore, volumes: &Volumes) -> Option<SavedRange> {
        loop {
            let saved = self.next_of_any(store)?;
            if !volumes.is_detached(saved.volume) {
                return Some(saved);
            }
            self.in_flight -= 1;
        }
    }

    fn next_of_any(&mut self, store: &UndoStore) -> Option<SavedRange> {
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

/// The name of a rollback point, for people.
pub(crate) fn name(point: u64) -> String {
    format!("before-sync-{point}")
}

impl Secondary {
    // ---- rolling back ------------------------------------------------------------------------------------------------

    pub fn begin_rollback(&mut self, common: &mut GroupCommon, cx: &mut Cx, promotion: Promotion) {
        self.lost_session(cx);
        let undone = match undoes_fork(self, common) {
            Some(true) => ALL_UNDONE,
            Some(false) => UNDONE,
            None => "",
        };
        // The way back undoes what the sync overwrote: nothing of it is given up.
        self.delta.forget();
        self.rollback = Some(Rollback::of_promotion(common, promotion, undone));
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
                let why = "a store of this node failed on the way back to the rollback point; a reset goes on with it if it had been \
                           recorded";
                cx.refuse(id, RefusalCode::StoreFailed, why);
            }
            return;
        }
        let Some(rollback) = self.rollback.as_mut().filter(|rollback| rollback.quiesces()) else { return };
        match then {
            AfterRollback::Promote(promotion) if !common.sb.identity.inconsistent => {
                // The sync ended meanwhile: its image is the newer one.
                rollback.undone = "";
                common.lifecycle.enter(Phase::Promoting(promotion));
                // The time to look for space again may have come and gone on the way back.
                self.replica.retry_apply(common, cx);
                common.wake(Wake::Apply);
            }
            _ => rollback.store_bits(common, cx, self.replica.drop_unapplied()),
        }
    }

    /// The bits of all that is undone and dropped are durable.
    pub fn record_rollback(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some(rollback) = self.rollback_under_way(common) else { return };
        // As a run of its own, like any start: what the journal still holds is of the one before. Not earlier: until the way back is
        // on record a start reads the journal again, and takes what is of an earlier run for a left-over.
        let mid_start = rollback.begin_recording();
        common.sb.rolls_back();
        self.replica.drop_journal(common);
        if mid_start {
            // It was not read back, and nobody knows what it was.
            common.sb.give_up(Seq(u64::MAX));
        }
        common.save_in_both_slots(cx, AfterSuper::RollingBack);
    }

    /// The way back is on record.
    pub fn write_back(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let given_up = self.rollback_under_way(common).is_some_and(|rollback| rollback.write_back(common, cx));
        self.goes_back(common, given_up);
    }

    /// Something that is written back was read from the undo store, or has been written.
    pub fn restored(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        saved: SavedRange,
        is_read: bool,
        result: IoResult,
    ) -> Result<(), Broken> {
        let Some(rollback) = &mut self.rollback else { return Ok(()) };
        let given_up = match is_read {
            true => rollback.read_done(common, cx, saved, result)?,
            false => rollback.write_done(common, cx, saved, result)?,
        };
        self.goes_back(common, given_up);
        Ok(())
    }

    /// The way back goes on, or was given up: then the copy stands where its record does.
    fn goes_back(&mut self, common: &GroupCommon, given_up: bool) {
        if given_up {
            self.replica.stand_at(common.sb.identity.position, common.sb.applied_wall);
        }
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
        let Phase::RollingBack(then) = common.lifecycle.phase() else { return Ok(None) };
        if !self.rollback.as_mut().is_some_and(Rollback::one_flushed) {
            return Ok(None);
        }
        // The volumes hold the image of the point; one superblock update says so, together with what the rollback was for.
        let point = common.sb.rollback_point;
        cx.coverage.hit(CoveragePoint::RolledBack);
        cx.event(common.id(), Event::RolledBack { to: point.position });
        self.replica.stand_at(point.position, point.wall);
        common.sb.rolled_back();
        Ok(Some(then))
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
        let why = format!("{what}; the volumes hold a mixture, only a sync from the other node makes them whole");
        cx.refuse(id, RefusalCode::ImageLost, why);
        // The peer still thinks of the sync as running.
        common.end_session(cx, "this node gave the running sync up");
        true
    }

    fn rollback_under_way(&mut self, common: &GroupCommon) -> Option<&mut Rollback> {
        self.rollback.as_mut().filter(|_| common.lifecycle.is_rolling_back())
    }

    /// Volumes have no space for what is written back.
    pub fn restore_waits_for_space(&self, common: &GroupCommon) -> bool {
        self.rollback.as_ref().is_some_and(|rollback| rollback.waits_for_space(common))
    }

    /// There may be space by now.
    pub fn retry_apply(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.delta.retry();
        if !common.lifecycle.is_rolling_back() {
            self.replica.retry_apply(common, cx);
        } else if let Some(rollback) = &mut self.rollback {
            rollback.retry(common, cx);
        }
    }

    // ---- the point -------------------------------------------------------------------------------------------------

    /// Both slots of the superblock are without the point, and no sync has begun since.
    pub fn point_gone(&mut self, common: &mut GroupCommon, cx: &mut Cx, answer: Option<(CommandId, String)>) {
        self.empty_undo(common);
        if let Some((id, text)) = answer {
            cx.coverage.hit(CoveragePoint::RollbackPointDropped);
            cx.answer(id, CommandResult::Done(text));
        }
        if self.replica.paused() == Some(Pause::HistoryFull) {
            self.retry_apply(common, cx);
        }
        common.wake(Wake::Apply);
    }

    /// What was saved is not needed any more.
    pub fn empty_undo(&mut self, common: &mut GroupCommon) {
        self.replica.forget_saves();
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
        Some((self.replica.progress().position(), self.replica.progress().newest_wall()))
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

    // ---- at a start ---------------------------------------------------------------------------------------------------

    /// A secondary in the middle of a sync: its undo store is read back before anything is applied.
    pub fn begin_scan(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let point = common.sb.rollback_point;
        if point.was_damaged() {
            self.undo_damaged = Some("an earlier start found the undo store damaged".into());
            return self.begin_replay(common, cx);
        }
        common.undo.begin_mark(point.id);
        common.lifecycle.enter_stage(StartStage::Undo);
        if self.scan.begin(common, cx) {
            self.scan_ended(common, cx);
        }
    }

    pub fn undo_read(&mut self, common: &mut GroupCommon, cx: &mut Cx, result: IoResult) -> Result<(), CannotStart> {
        if self.scan.read_done(common, cx, result)? {
            self.scan_ended(common, cx);
        }
        Ok(())
    }

    fn scan_ended(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let damage = self.scan.damage(common);
        if let Some(what) = &damage {
            let of_fork = common.sb.rollback_point.is_of_fork && !common.sb.rolling_back;
            let besides = if of_fork { NO_DELTA } else { "" };
            cx.event(common.id(), Event::Note(format!("{what}{besides}")));
            self.empty_undo(common);
        }
        if common.sb.rolling_back {
            let rollback = self.rollback.insert(Rollback::of_start(common, cx));
            let given_up = match damage {
                Some(what) => rollback.give_up(common, cx, what),
                None => rollback.write_back(common, cx),
            };
            return self.goes_back(common, given_up);
        }
        if damage.is_none() {
            return self.begin_replay(common, cx);
        }
        // From here on it is overwritten unsaved.
        self.undo_damaged = damage;
        common.sb.point_damaged();
        common.save_in_both_slots(cx, AfterSuper::PointDamaged);
    }

    /// It is on record that the point is no image, whatever a later start reads.
    pub fn damage_recorded(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        // Unless the node was stopped while it started.
        if common.lifecycle.is_at(StartStage::Undo) {
            self.begin_replay(common, cx);
        }
    }
}

/// A promotion would undo a sync that overwrites a history of this node's own; true: only its delta is missing.
pub(crate) fn undoes_fork(secondary: &Secondary, common: &GroupCommon) -> Option<bool> {
    let point = common.sb.rollback_point;
    let undoes = common.sb.identity.inconsistent && point.is_of_fork && !point.was_damaged();
    undoes.then(|| secondary.replica.awaits_delta())
}

/// What was undone for the promotion that is being recorded, behind the image that is promoted.
pub(crate) fn take_undone(secondary: &mut Secondary) -> &'static str {
    secondary.rollback.as_mut().map_or("", |rollback| core::mem::take(&mut rollback.undone))
}

/// What only this node has, and would lose with its rollback point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnByPoint {
    /// The sync under way overwrites it.
    Overwritten,
    /// This volume is left out, and the others too that have a history of this node's own. A sync that takes one in saves what it overwrites, but
    /// only from a point: it has none while the copy is no image.
    LeftOut(VolumeId),
}

/// What was found damaged gives no delta.
fn own_by_point(sb: &Superblock) -> Option<OwnByPoint> {
    let point = sb.rollback_point;
    if point.id == 0 || point.was_damaged() {
        return None;
    }
    match sb.own_history.iter().next() {
        _ if point.is_of_fork => Some(OwnByPoint::Overwritten),
        left_out => left_out.map(OwnByPoint::LeftOut),
    }
}

/// `mark drop` has to be typed with `--discard`.
pub(crate) fn point_keeps_own(sb: &Superblock) -> bool {
    own_by_point(sb).is_some()
}

fn why_kept(own: OwnByPoint, name: &str) -> String {
    match own {
        OwnByPoint::Overwritten => format!(
            "the sync under way overwrites a history of this node's own, and what {name} keeps of it is saved as a delta before the sync ends: give \
             the undo store or the state directory more space, or type it with --discard, and what only this node had is lost"
        ),
        OwnByPoint::LeftOut(volume) => format!(
            "volume {} of the group (in the order of names) has a history of this node's own, which an earlier sync left out; without {name} it is \
             overwritten without a delta if it rejoins before the sync under way has ended: give the undo store more space, or type it with \
             --discard, and let no volume rejoin before this sync has ended",
            volume.0 + 1
        ),
    }
}

/// It went back for a promotion that is not made: the volumes hold the point, on record, and nothing that was saved is needed any more.
pub(crate) fn stands_at_point(secondary: &mut Secondary, common: &mut GroupCommon) {
    if secondary.rollback.take().is_some() && common.sb.rollback_point.id == 0 {
        secondary.empty_undo(common);
    }
}

/// An operator gives the rollback point up by its name.
pub(crate) fn command_drop_point(
    common: &mut GroupCommon,
    cx: &mut Cx,
    id: CommandId,
    (wanted, discard): (&str, bool),
) {
    let point = common.sb.rollback_point;
    if common.role() != Role::Secondary {
        let why = "this node keeps no rollback point; 'mark list' shows what there is";
        return cx.refuse(id, RefusalCode::NoSuchMark, why);
    }
    if point.id == 0 {
        // What was given up a moment ago may not be in both slots yet.
        let result = CommandResult::Unchanged("no rollback point is kept; nothing to do".into());
        return common.save_in_both_slots(cx, AfterSuper::Answer { id, result });
    }
    let name = name(point.id);
    if wanted != name {
        let why = format!("there is no mark {wanted:?} here; the rollback point is {name:?}");
        return cx.refuse(id, RefusalCode::NoSuchMark, why);
    }
    let own = own_by_point(&common.sb);
    if let Some(own) = own.filter(|_| !discard) {
        return cx.refuse(id, RefusalCode::DeltaUnsaved, why_kept(own, &name));
    }
    let besides = match own {
        Some(OwnByPoint::Overwritten) if common.slots.heads_delta() => {
            ", and of what the sync overwrote of this node's own history a delta is being completed, which stays if it comes to its end"
        }
        Some(OwnByPoint::Overwritten) => {
            ", and of what the sync overwrites of this node's own history no delta is saved"
        }
        Some(OwnByPoint::LeftOut(_)) => {
            ", and a volume that an earlier sync left out is overwritten without a delta if it rejoins before the sync under way has ended"
        }
        None => "",
    };
    let text = format!(
        "{name} is given up{besides}; until the snapshot under way has ended this node has no image that could be promoted"
    );
    common.sb.give_point_up(id, text);
    common.save(cx, None);
}

/// The volumes have the sizes that the sync needs.
pub(crate) fn reserve_for_sync(undo: &mut UndoStore, volumes: &Volumes, begin: &SyncBegin) {
    if undo.mark().is_some() {
        // An earlier attempt may have saved a part of it, and what that had reserved was drawn on. How much of it is dirty
        // still cannot be known: at most all that is to be sent is unsaved; of what is dirty at least what exceeds the saved.
        let saved: u64 = undo.all_saved().map(|saved| u64::from(saved.length)).sum();
        let image: u64 = volumes.iter().map(|v| v.size_bytes()).sum();
        // A volume may end with a part of a unit, which takes a batch of its own and whole blocks all the same.
        let parts = volumes.iter().filter(|v| !v.size_bytes().is_multiple_of(SAVE_UNIT_BYTES)).count() as u64;
        let for_parts = parts * 2 * META_BLOCK_BYTES;
        let room =
            |bytes: u64, space: fn(u64) -> u64| if bytes > 0 { space(bytes).saturating_add(for_parts) } else { 0 };
        let (dirty, left_out) = (begin.dirty_bytes, begin.left_out_bytes);
        let dirty_units = begin.dirty_units.saturating_mul(SAVE_UNIT_BYTES);
        let in_regions = room(dirty.min(image.saturating_sub(saved)), space_for_regions);
        let in_units = room(dirty_units.min(image.saturating_sub(undo.saved_units_bytes())), space_for_units);
        // Either is sure to be enough. Blocks that lie apart take less as regions, and runs of them in units.
        let (unit_bytes, most, least) = if in_units <= in_regions {
            let least = room(dirty_units.saturating_add(left_out).saturating_sub(saved), space_for_units);
            (SAVE_UNIT_BYTES, in_units, least)
        } else {
            let least = room(dirty.saturating_add(left_out).saturating_sub(saved), space_for_regions);
            (META_BLOCK_BYTES, in_regions, least)
        };
        let least = if undo.is_for_other_units(unit_bytes) { most } else { undo.reserved_bytes().max(least) };
        undo.reserve(least.min(most));
        undo.save_in_units(unit_bytes);
        undo.reserve_for_all(begin.snapshot > 0);
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
