//! A sync by snapshots on its primary: reads, writers that wait for what they would overwrite, confirmations.

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::bitmap::region_span;
use crate::formats::wire::Ack;
use crate::injected_fault::{Fault, injected};
use crate::limits::REGION_BYTES;
use crate::peer::snapshot::GivenUp;
use crate::primary::Primary;
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::reads::{SnapshotRead, SpilledRange};
use crate::shared::wakes::Wake;
use crate::{IoError, IoResult};

impl Primary {
    /// Live writes do not fit the stream beside a sync: nobody waits, the sync goes on by snapshots.
    pub fn switch_to_snapshots(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        cx.coverage.hit(CoveragePoint::SyncTurnedToSnapshots);
        let paused = self.peer.outbox.sending().paused();
        self.end_stream(common, cx, "writes come faster than the link carries them beside the sync");
        self.peer.keep_from_stream(cx.now.mono);
        self.peer.begin_snapshot(common, cx, paused, "writes come faster than the link carries them beside the sync");
        common.wake(Wake::Room);
    }

    /// The snapshot ends without its step: what belonged to it is still dirty.
    pub fn drop_snapshot(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.peer.outbox.drop_snapshot(common, cx).into_iter().for_each(|slot| common.wake(Wake::Write(slot)));
    }

    /// The snapshot cannot be finished; the next one begins after a pause.
    fn give_up_snapshot(&mut self, common: &mut GroupCommon, cx: &mut Cx, given_up: &GivenUp) {
        cx.coverage.hit(CoveragePoint::SnapshotGivenUp);
        self.give_up_session(common, cx, &given_up.why);
        self.peer.stall.not_the_peers(given_up.cause);
    }

    /// The peer's confirmations of the snapshot's numbers.
    pub fn snapshot_ack(&mut self, common: &mut GroupCommon, cx: &mut Cx, ack: Ack, recalls: u64) {
        if !self.peer.confirm_snapshot(common, cx, ack, recalls) {
            return;
        }
        self.wake_for_memory(common);
        // Writers would pay for a snapshot that is not sent while others have the permit: it begins when this group goes on.
        if common.lifecycle.is_running() && !self.peer.waits_to_resume(common) {
            self.peer.next_step(common, cx, "update sync");
        }
    }

    // ---- reads and saves that are done -----------------------------------------------------------------------------

    pub fn snapshot_read_done(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32, result: IoResult) {
        let Some(&SlotOperation::Snapshot(read)) = common.slots.get(slot) else {
            unreachable!("checked by the caller")
        };
        let is_spilled = match self.peer.outbox.accept_snapshot_read(common, cx, slot, &read, result) {
            Ok(is_spilled) => is_spilled,
            Err(given_up) => {
                self.give_up_snapshot(common, cx, &given_up);
                false
            }
        };
        if !is_spilled {
            common.volumes.of(read.volume).release(slot);
        }
        // Nobody else is given the slot while it holds the range.
        common.slots.take(slot);
        if !is_spilled {
            common.wake(Wake::Range(read.volume));
        }
    }

    pub fn spill_done(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32, result: Result<(), IoError>) {
        let Some(SlotOperation::SnapshotSpill(spilled)) = common.slots.take(slot) else {
            unreachable!("checked by the caller")
        };
        // Before anything else may be given the slot.
        common.volumes.of(spilled.volume).release(slot);
        if let Err(given_up) = self.peer.outbox.spill_done(spilled, result.is_ok()) {
            self.give_up_snapshot(common, cx, &given_up);
        }
        common.wake(Wake::Range(spilled.volume));
    }

    pub fn spilled_read(&mut self, common: &mut GroupCommon, cx: &mut Cx, spilled: SpilledRange, result: IoResult) {
        if let Some(Err(given_up)) = self.peer.outbox.snapshot_mut().map(|snapshot| snapshot.fetched(spilled, result)) {
            self.give_up_snapshot(common, cx, &given_up);
        }
    }

    pub fn hole_found(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        slot: u32,
        question: SnapshotRead,
        result: IoResult,
    ) {
        common.volumes.of(question.volume).release(slot);
        common.slots.take(slot);
        if let Some(snapshot) = self.peer.outbox.snapshot_mut() {
            snapshot.hole_found(common, cx, question, result);
        }
        common.wake(Wake::Range(question.volume));
    }

    // ---- writers ---------------------------------------------------------------------------------------------------

    /// A write is about to be given its number: what it would overwrite of the snapshot is read first. True: it waits.
    pub fn saves_for_snapshot(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32) -> bool {
        let (id, offset, length) = common.slots.write(slot).range();
        let (first, last) = region_span(offset, length);
        if !injected(Fault::AskedNotSaved) {
            common.volumes.copy_of(id).ask_no_more(first, last);
        }
        let spared = common.volumes.copy_of(id).unshipped_in(first, last) == 0 || injected(Fault::SnapshotNotSaved);
        if spared || !self.peer.outbox.goes_by_snapshots() {
            return false;
        }
        cx.coverage.hit(CoveragePoint::SnapshotSavedRegion);
        common.give_back_range(slot);
        if self.peer.outbox.save_for_snapshot(common, cx, id, first, last) {
            // Whole regions: one that is being written now is read when that is done, and the write comes after.
            self.peer.outbox.wait_for_range(common, slot, first * REGION_BYTES, (last + 1 - first) * REGION_BYTES);
            return true;
        }
        cx.coverage.hit(CoveragePoint::SnapshotSaveWaited);
        self.peer.outbox.wait_for_memory_of_snapshot(common, slot);
        common.wake(Wake::Range(id));
        true
    }

    /// There may be memory by now to save what they overwrite.
    pub fn wake_for_memory(&mut self, common: &mut GroupCommon) {
        self.peer.outbox.take_waiting().into_iter().for_each(|slot| common.wake(Wake::Write(slot)));
    }
}
