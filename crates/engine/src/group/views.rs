//! Views of this node's copy of a group.

use core::ops::Range;

use crate::context::Cx;
use crate::group::Group;
use crate::ids::{RequestId, ViewId, VolumeId};
use crate::{IoError, Output, Refusal, RefusalCode};

pub(crate) fn open(group: &mut Group, cx: &mut Cx, view: ViewId) {
    let result = Err(Refusal::new(RefusalCode::NoViews, "this node has no store for views of the group"));
    cx.out.push_back(Output::ViewOpened { group: group.common.id(), view, result });
}

pub(crate) fn read(_: &mut Group, cx: &mut Cx, _: ViewId, (id, _, _): (RequestId, VolumeId, Range<u64>)) {
    cx.out.push_back(Output::ViewData { id, result: Err(IoError::Io) });
}

pub(crate) fn close(_: &mut Group, _: &mut Cx, _: ViewId) {}
