//! What is written to the volumes is flushed, recorded, and reported as `applied`; only then is its journal space free.

use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::superblock::JournalHead;
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::records::record::AfterSuper;
use crate::secondary::record_pipeline::{JournalRecord, RecordContent};
use crate::secondary::replica::OrderedReplica;
use crate::shared::coverage::CoveragePoint;
use crate::shared::lifecycle::Phase;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::wakes::Wake;
use crate::state::Broken;
use crate::time::Wall;
use crate::{Event, Output, Store, limits};

/// A flush cycle: everything written up to `upto` becomes durable on the volumes.
#[derive(Clone, Copy, Debug)]
struct CycleUnderWay {
    upto: Seq,
    wall: Wall,
    head: JournalHead,
    flushes: usize,
    failed: bool,
}

/// Whether the end of a sync waits for a delta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DeltaWait {
    #[default]
    None,
    Saving,
    /// Something keeps it from being saved, and nothing is applied before that is over.
    Paused,
}

/// What is written and not recorded.
#[derive(Debug, Default)]
pub(crate) struct FlushCycle {
    unflushed_bytes: u64,
    unflushed_volumes: Vec<VolumeId>,
    under_way: Option<CycleUnderWay>,
    /// The sync's end is written but not recorded.
    sync_end: Option<Seq>,
    /// All of it is flushed; it is recorded once the delta of what the sync overwrote is durable.
    delta: DeltaWait,
    /// A sync has ended, and bits that it reconciled still stand on disk.
    bits_forgotten: bool,
}

impl FlushCycle {
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Its end waits for a delta that cannot be saved.
    pub fn is_paused(&self) -> bool {
        self.delta == DeltaWait::Paused
    }

    /// A volume was written to.
    pub fn wrote(&mut self, volume: VolumeId, length: u64) {
        self.unflushed_bytes += length;
        if !self.unflushed_volumes.contains(&volume) {
            self.unflushed_volumes.push(volume);
        }
    }

    /// All before the record is written, and the record is.
    pub fn collect(&mut self, record: &JournalRecord) {
        if matches!(record.content, RecordContent::SyncEnd) {
            self.sync_end = Some(record.seq);
        }
    }

    /// The end of a sync was written.
    pub fn take_sync_end(&mut self) -> bool {
        self.sync_end.take().is_some()
    }

    /// It is not worth waiting for more.
    pub fn is_urgent(&self) -> bool {
        self.unflushed_bytes >= limits::APPLY_FLUSH_BYTES || self.sync_end.is_some()
    }

    /// What was written since the last cycle began.
    fn take_unflushed(&mut self) -> Vec<VolumeId> {
        let mut volumes = core::mem::take(&mut self.unflushed_volumes);
        if injected(Fault::TrimBeforeFlush) {
            volumes.clear();
        }
        self.unflushed_bytes = 0;
        volumes
    }

    /// A volume's flush has ended; true: all have.
    fn one_flushed(&mut self, cx: &mut Cx, ok: bool) -> Result<bool, Broken> {
        let Some(cycle) = self.under_way.as_mut() else { return Ok(false) };
        cycle.flushes -= 1;
        cycle.failed |= !ok && !injected(Fault::FailedApplyFlushIgnored);
        if cycle.failed {
            cx.coverage.hit(CoveragePoint::FlushFailedLatched);
            return Err(Broken::VolumeFlush);
        }
        Ok(cycle.flushes == 0)
    }
}

impl OrderedReplica {
    /// Begins a cycle unless one is under way or nothing was written since.
    pub fn flush_replica(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        // A stopped one may have been stopped in the middle of its start.
        let is_still = matches!(common.lifecycle.phase(), Phase::Starting(_) | Phase::RollingBack(_) | Phase::Stopped);
        let has_work = !self.progress.is_flushed() || self.can_trim();
        if is_still || self.cycle.is_under_way() || !has_work || common.has_failed() {
            return;
        }
        if !common.marks.is_durable() {
            // What leaves the journal could not bring a mark back.
            return;
        }
        let volumes = self.cycle.take_unflushed();
        let (upto, wall) = (self.progress.written(), self.progress.written_wall());
        let head = self.journal.head_behind(upto);
        self.cycle.under_way = Some(CycleUnderWay { upto, wall, head, flushes: volumes.len(), failed: false });
        for volume in &volumes {
            let token = common.slots.start(SlotOperation::ReplicaFlush);
            cx.out.push_back(Output::Flush { token, store: Store::Volume(common.id(), *volume) });
        }
        if volumes.is_empty() {
            self.cycle_flushed(common, cx);
        }
    }

    pub fn replica_flush_done(&mut self, common: &mut GroupCommon, cx: &mut Cx, ok: bool) -> Result<(), Broken> {
        if self.cycle.one_flushed(cx, ok)? {
            self.cycle_flushed(common, cx);
        }
        Ok(())
    }

    fn cycle_flushed(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some(CycleUnderWay { upto, .. }) = self.cycle.under_way else { return };
        let ends_sync = self.cycle.sync_end.is_some_and(|end| end <= upto);
        if ends_sync && keeps_delta(common) {
            self.cycle.delta = DeltaWait::Saving;
            return;
        }
        record_cycle(self, common, cx);
    }

    /// A sync over a fork has come to its end, which is on record only once there is a delta of what was overwritten.
    pub fn awaits_delta(&self) -> bool {
        self.cycle.delta != DeltaWait::None
    }

    /// The primary's flush point freed journal space that is wanted.
    pub fn trim_if_pressed(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let is_pressed = self.way.has_unlanded() || self.journal.wants_flush();
        if is_pressed && self.can_trim() {
            self.flush_replica(common, cx);
        }
    }

    /// The superblock that starts replay behind these records is durable: their space is free, the primary may know. False: there was
    /// no cycle.
    pub fn note_applied(&mut self, common: &mut GroupCommon, cx: &mut Cx, upto: Seq, wall: Wall) -> bool {
        let Some(cycle) = self.cycle.under_way.take() else { return false };
        self.journal.trim(cycle.head);
        self.progress.apply(upto, wall);
        self.ack_due = true;
        let tidy = core::mem::take(&mut self.cycle.bits_forgotten);
        if let Some(snapshot) = self.progress.snapshot()
            && !common.sb.identity.inconsistent
        {
            cx.event(common.config.id, Event::SnapshotEnded { at: snapshot.from, sent_bytes: 0 });
        }
        if tidy {
            // Killed before that, this node would hold them against what it goes on with.
            common.tidy_bits(cx);
        }
        true
    }

    /// A sync has ended, and that is not on record yet.
    pub fn records_sync_end(&self) -> bool {
        self.cycle.bits_forgotten
    }

    /// What waited for space lands, and the next cycle is looked for.
    pub fn goes_on_applying(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.land(common, cx);
        if self.progress.is_unflushed() || common.sb.counts_too_few(&common.undo) {
            common.set_timer(cx, GroupTimer::ApplyFlush, limits::APPLY_FLUSH_AFTER);
        }
    }
}

/// What the sync under way overwrites is of a fork, and all of it was saved: before the sync ends there is a delta.
pub(super) fn keeps_delta(common: &GroupCommon) -> bool {
    let point = common.sb.rollback_point;
    point.is_of_fork && common.undo.mark() == Some(point.id)
}

/// The delta is durable, or was given up by name: the sync ends.
pub(crate) fn delta_is_there(replica: &mut OrderedReplica, common: &mut GroupCommon, cx: &mut Cx) {
    if replica.awaits_delta() {
        delta_gets_on(replica, common);
        replica.cycle.delta = DeltaWait::None;
        record_cycle(replica, common, cx);
    }
}

/// Something keeps the delta from being saved, and the sync that waits for it does not end. It is tried again.
pub(crate) fn pause_for_delta(replica: &mut OrderedReplica, common: &mut GroupCommon, cx: &mut Cx) {
    if core::mem::replace(&mut replica.cycle.delta, DeltaWait::Paused) != DeltaWait::Paused {
        cx.coverage.hit(CoveragePoint::SyncWithoutDelta);
        replica.ack_due = true;
    }
    common.set_timer(cx, GroupTimer::ApplyRetry, limits::APPLY_RETRY_AFTER);
}

/// It is being saved again.
pub(crate) fn delta_gets_on(replica: &mut OrderedReplica, common: &mut GroupCommon) {
    if replica.cycle.is_paused() {
        (replica.cycle.delta, replica.ack_due) = (DeltaWait::Saving, true);
        common.wake(Wake::Apply);
    }
}

/// All of the cycle is flushed, and goes on record.
fn record_cycle(replica: &mut OrderedReplica, common: &mut GroupCommon, cx: &mut Cx) {
    let Some(CycleUnderWay { upto, wall, head, .. }) = replica.cycle.under_way else { return };
    if replica.progress.snapshot().is_none() {
        common.sb.applied_through(upto);
    }
    if replica.cycle.sync_end.take_if(|end| *end <= upto).is_some() {
        // One update: the whole sync counts, or nothing of it.
        common.sb.sync_ended(common.volumes.len());
        // The sync made this copy equal: what this side held against it is reconciled, and on disk too once that is on record.
        // What has no device here, or one that waits to be filled, was no part of it: that all of it is missing stays on record here, whatever
        // the primary forgets.
        let left_out = common.volumes.detached().with(&common.sb.lacking());
        let ids = (0..).map(VolumeId).zip(common.volumes.copies_mut());
        ids.filter(|(id, _)| !left_out.contains(*id)).for_each(|(_, copy)| copy.is_equal());
        replica.cycle.bits_forgotten = true;
        replica.sizes.follow(common, cx, true);
    }
    let wall = common.sb.trimmed(head, wall, replica.journal.primary_flushed());
    common.save(cx, Some(AfterSuper::Applied { upto, wall }));
}
