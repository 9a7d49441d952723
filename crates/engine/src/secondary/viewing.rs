//! When views of a copy may be opened, and what ends them.

use alloc::format;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::secondary::Secondary;
use crate::secondary::replica;
use crate::shared::lifecycle::Phase;
use crate::shared::wakes::Wake;
use crate::{Refusal, RefusalCode};

/// What speaks against a view right now.
pub(crate) fn obstacle(secondary: &Secondary, common: &GroupCommon) -> Option<Refusal> {
    let (identity, point) = (&common.sb.identity, common.sb.rollback_point);
    if let Some(broken) = common.lifecycle.broken() {
        return Some(Refusal::new(RefusalCode::GroupFailed, format!("the group has failed: {}", broken.words())));
    }
    if !common.lifecycle.is_running() {
        let why = "the group is starting, stopping or changing its role";
        return Some(Refusal::new(common.lifecycle.refusal(), why));
    }
    if common.role() == Role::Primary {
        let why = "this node is the primary of the group: a view is opened on the secondary";
        return Some(Refusal::new(RefusalCode::ViewOfPrimary, why));
    }
    if identity.inconsistent && (secondary.promotable(common).is_none() || common.undo.mark() != Some(point.id)) {
        let why = "a sync overwrites this copy, and no image from before it is kept: try again once it has ended";
        return Some(Refusal::new(RefusalCode::ViewNotNow, why));
    }
    if identity.generation.is_blank() {
        return Some(Refusal::new(RefusalCode::NoImage, "this copy was never whole: there is nothing to look at"));
    }
    None
}

/// Openings that wait get on, or are refused.
pub(crate) fn open_views(secondary: &mut Secondary, common: &mut GroupCommon, cx: &mut Cx) {
    if !secondary.replica.views.has_opening() {
        return;
    }
    if let Some(refusal) = obstacle(secondary, common) {
        secondary.replica.views.refuse_opening(cx, &refusal);
        return common.wake(Wake::Apply);
    }
    match secondary.promotable(common).filter(|_| common.sb.identity.inconsistent) {
        Some(image) => {
            let point = common.sb.rollback_point.id;
            secondary.replica.views.open_before_sync(common, cx, point, image);
            common.wake(Wake::Apply);
        }
        None if secondary.replica.views.hold_back(&common.slots) => {
            replica::open_views(&mut secondary.replica, common, cx);
        }
        None => {}
    }
}

/// Whatever ends views ends them, and whatever they kept from being written goes on.
pub(crate) fn review(secondary: &mut Secondary, common: &mut GroupCommon, cx: &mut Cx) {
    if secondary.replica.views.are_none() {
        return;
    }
    let ends = match common.lifecycle.phase() {
        _ if common.has_failed() => Some("the group has failed on this node"),
        Phase::Promoting(_) | Phase::RollingBack(_) | Phase::Recording => Some("this node is being promoted"),
        Phase::Stopping { .. } | Phase::StopRecording | Phase::Stopped => Some("the group is being stopped here"),
        _ if common.role() == Role::Primary => Some("this node is the primary"),
        Phase::Starting(_) | Phase::Running | Phase::Demoting { .. } => None,
    };
    if let Some(why) = ends {
        if let Some(refusal) = obstacle(secondary, common) {
            secondary.replica.views.refuse_opening(cx, &refusal);
        }
        secondary.replica.views.lose_all(cx, why);
        return common.wake(Wake::Apply);
    }
    let point = common.sb.rollback_point.id;
    let is_kept = point != 0 && common.undo.mark() == Some(point);
    secondary.replica.views.lose_before_sync(cx, Some(point).filter(|_| is_kept));
}
