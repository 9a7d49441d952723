//! A write waits until a crash would find it: its extents stand in the activity log, or its regions in the stored bitmap.

use crate::ActivityConfig;
use crate::common::GroupCommon;
use crate::context::Cx;
use crate::ids::Seq;
use crate::injected_fault::{Fault, injected};
use crate::peer::logging;
use crate::primary::Primary;
use crate::records::activity::extents_of;
use crate::records::bits::{EXTENTS_PER_WRITE_MAX, stored_through};
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::wakes::Wake;
use crate::shared::write::{ExtentPins, WriteOp, WriteStage};

impl Primary {
    /// The write's range is its own: it gets its number at once if a crash would find it, else it waits.
    pub fn take_range(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
        let (id, offset, length) = common.slots.write(slot).range();
        if common.has_failed() {
            // It waited for another write when the group failed.
            common.volumes.of(id).let_go(slot);
            return common.fail_unnumbered(cx, slot);
        }
        common.volumes.of(id).occupy(slot, offset, length, Seq(u64::MAX), true);
        let generation_due = common.want_generation(cx, self.peer.outbox.is_apart());
        let record_due = generation_due || logging::waits_for_close(&mut self.peer.outbox, common, cx, slot);
        if !record_due && common.bits().is_covered(id, offset, length) && !common.bits().starves(cx) {
            return self.go_hot_in_its_room(common, cx, slot);
        }
        cx.coverage.hit(CoveragePoint::WaitedForActivityLog);
        self.peer.outbox.reserve(common, slot);
        common.slots.write(slot).enter(WriteStage::ForRecord);
        common.activity.wait(slot);
        common.wake(Wake::Covered);
    }

    /// A stream may have begun since it was let in without one, when there was room for everybody.
    pub fn go_hot_in_its_room(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
        if !self.finds_room(common, cx, slot) {
            let volume = common.slots.write(slot).volume;
            common.give_back_range(slot);
            self.wait_for_room(common, cx, slot);
            return common.wake(Wake::Range(volume));
        }
        let (id, offset, length) = common.slots.write(slot).range();
        let mut pins = ExtentPins::default();
        for extent in extents_of(common.config.activity, id, offset, length) {
            common.activity.pin(extent, &mut pins);
        }
        common.slots.write(slot).pins = pins;
        self.admit_write(common, cx, slot);
    }

    /// Gives cold writes their slot in the log, and lets those go on that have it.
    pub fn pump_activity(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.release_cold(common, cx);
        if common.activity.is_writing() || common.activity.waiting().is_empty() {
            return;
        }
        let config = common.config.activity;
        let cold = common.activity.waiting().clone();
        for slot in &cold {
            let op = common.slots.write_ref(*slot);
            if is_very_long(config, op) {
                let (id, offset, length) = op.range();
                common.bits().announce_write(*slot, id, offset, length);
            }
        }
        let volumes = &common.volumes;
        let may_leave = |old| stored_through(volumes, config.extent_bytes, old) || injected(Fault::LogForgetsUnstored);
        let writes = cold.iter().map(|slot| common.slots.write_ref(*slot)).filter(|op| !is_very_long(config, op));
        let line = writes.map(|op| extents_of(config, op.volume, op.offset, op.length).collect());
        let crowded = !common.activity.admit_line(line, may_leave);
        common.bits().store_ahead(crowded);
        common.bits().pump_cells(cx);
        let cells =
            common.activity.begin_update(common.cell_head(), common.sb.identity.incarnation, common.sb.confirmed);
        common.bits().write_activity(cx, cells);
    }

    fn release_cold(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let mut at = 0;
        while let Some(&slot) = common.activity.waiting().get(at) {
            // The stream may have ended since it took its range, or just now for the one before it.
            if !injected(Fault::GenerationForgotten) {
                common.want_generation(cx, self.peer.outbox.is_apart());
            }
            let is_closing = logging::waits_for_close(&mut self.peer.outbox, common, cx, slot);
            if common.numbers.generation_is_due() || is_closing {
                return;
            }
            let (id, offset, length) = common.slots.write(slot).range();
            let announced = common.volumes.of(id).is_announced(slot);
            let stored = announced && common.volumes.is_stored(id, offset, length);
            if !stored && !common.bits().is_covered(id, offset, length) {
                if at == 0 && common.bits().starves(cx) {
                    return;
                }
                at += 1;
                continue;
            }
            common.activity.goes_on(at);
            common.volumes.of(id).forget_announced(slot);
            self.go_on(common, cx, slot);
        }
    }

    /// The group failed: whoever waits for the log is told.
    pub fn fail_cold(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        while let Some(slot) = common.activity.next_waiting() {
            self.peer.outbox.unreserve(common, slot);
            let id = common.slots.write(slot).volume;
            common.volumes.of(id).forget_announced(slot);
            common.volumes.of(id).release(slot);
            if let Some(SlotOperation::Write(op)) = common.slots.take(slot) {
                cx.reply(op.id, Err(crate::IoError::Io));
            }
            common.wake(Wake::Range(id));
        }
    }
}

/// It is covered by stored bits, and not by the log.
fn is_very_long(config: ActivityConfig, op: &WriteOp) -> bool {
    let most = EXTENTS_PER_WRITE_MAX.min(config.extents as usize / 2);
    extents_of(config, op.volume, op.offset, op.length).count() > most
}
