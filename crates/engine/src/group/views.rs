//! Views of this node's copy of a group: what their front end asks for.

use core::ops::Range;

use crate::context::{Cx, GroupTimer};
use crate::group::Group;
use crate::ids::{RequestId, ViewId, VolumeId};
use crate::secondary::viewing::obstacle;
use crate::shared::operation_slots::ViewReadOp;
use crate::shared::wakes::Wake;
use crate::{IoResult, limits};

pub(crate) fn open(group: &mut Group, cx: &mut Cx, view: ViewId) {
    let obstacle = obstacle(&group.secondary, &group.common);
    group.secondary.replica.views.ask(cx, view, obstacle);
    group.common.set_timer(cx, GroupTimer::Views, limits::VIEW_PATIENCE);
    group.common.wake(Wake::Apply);
}

pub(crate) fn read(
    group: &mut Group,
    cx: &mut Cx,
    view: ViewId,
    (id, volume, range): (RequestId, VolumeId, Range<u64>),
) {
    group.secondary.replica.views.ask_read(cx, view, id, volume, range);
    pump(group, cx);
}

pub(crate) fn close(group: &mut Group, cx: &mut Cx, view: ViewId) {
    group.secondary.replica.views.close(cx, view);
    // Whatever waited for it to be saved, or opened, goes on.
    group.common.wake(Wake::Apply);
}

/// A part of what a view shows was read.
pub(super) fn read_done(group: &mut Group, cx: &mut Cx, op: ViewReadOp, result: IoResult) {
    let Group { common, secondary, .. } = &mut *group;
    secondary.replica.views.read_done(common, cx, op, result);
    pump(group, cx);
}

/// Reads go on as far as there is memory.
pub(super) fn pump(group: &mut Group, cx: &mut Cx) {
    let others_bytes = group.shown().held_bytes() - group.secondary.replica.views.read_bytes();
    let Group { common, secondary, .. } = group;
    secondary.replica.views.pump_reads(common, cx, others_bytes);
}

/// What waits for a disk is looked at.
pub(super) fn look(group: &mut Group, cx: &mut Cx) {
    if group.secondary.replica.views.look(cx) {
        group.common.set_timer(cx, GroupTimer::Views, limits::VIEW_PATIENCE);
    }
    group.common.wake(Wake::Apply);
}
