//! What views need of the copy: the moments in which it stands at one number of the order, and that nothing is overwritten unsaved.

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::ids::Position;
use crate::injected_fault::{Fault, injected};
use crate::secondary::replica::OrderedReplica;
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::OperationSlots;
use crate::shared::wakes::Wake;
use crate::time::Wall;
use crate::{Refusal, RefusalCode};

/// An opening waits for a moment between two steps: no further one is begun.
pub(super) fn holds_back(replica: &OrderedReplica, slots: &OperationSlots) -> bool {
    replica.views.hold_back(slots) && !replica.way.is_mid_step() && !injected(Fault::ViewAtMovingPoint)
}

/// Openings that wait get what the volumes hold, if that is one number's image right now.
pub(crate) fn open_views(replica: &mut OrderedReplica, common: &mut GroupCommon, cx: &mut Cx) {
    let is_between = replica.way.applying() == 0 && !replica.way.is_mid_step();
    if !is_between && !injected(Fault::ViewAtMovingPoint) {
        cx.coverage.hit(CoveragePoint::ViewOpenWaited);
        if replica.stands_still() {
            let why = "what is being written to the volumes waits for space: try again once there is some";
            replica.views.refuse_opening(cx, &Refusal::new(RefusalCode::ViewNotNow, why));
        }
        return;
    }
    let (at, wall) = written_to(replica);
    if !replica.views.open_here(common, cx, at, wall) {
        return cx.coverage.hit(CoveragePoint::ViewOpenWaited);
    }
    // What waits to be written overwrites what the new view shows.
    for (record, tickets) in replica.way.saving_mut().filter(|_| !injected(Fault::ViewNotSavedForAgain)) {
        tickets.views = replica.views.save(common, record);
    }
    replica.views.pump_saves(&mut common.slots, cx, common.sb.identity.incarnation);
    common.wake(Wake::Apply);
}

/// Whose image the volumes hold while nothing is being written, and the primary's time of it.
fn written_to(replica: &OrderedReplica) -> (Position, Wall) {
    let progress = &replica.progress;
    if let Some(snapshot) = progress.snapshot() {
        return (snapshot.from, progress.newest_wall());
    }
    let (generation, incarnation, seq) = (progress.generation(), progress.incarnation(), progress.written());
    // An idle primary's clock goes on.
    let is_all = progress.is_flushed();
    let wall = if is_all { progress.applied_wall().max(progress.written_wall()) } else { progress.written_wall() };
    (Position { generation, incarnation, seq }, wall)
}
