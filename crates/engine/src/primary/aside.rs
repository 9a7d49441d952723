//! One volume of a group is set aside, for a bulk load (docs/book/decisions/0064-a-volume-set-aside.md): its writers are answered alone,
//! what they write is dirty, and the other volumes go on in their order.
//!
//! * Beside a stream its writes have no numbers: neither queue nor link know of them. Where it was set aside has a number: from there on
//!   the peer's copy is one without the volume. What was given before travels on.
//! * A sync leaves it out and says so when it begins.
//! * It rejoins by a sync of the group, which is one step at the peer. The stream ends there: no part of the volume travels in it before
//!   all of it is equal.

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::ids::{CommandId, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::primary::Primary;
use crate::records::record::{AfterSuper, set_aside};
use crate::shared::coverage::CoveragePoint;
use crate::shared::size::ShownSize;
use crate::shared::wakes::Wake;
use crate::state::Mode;
use crate::{CommandResult, Event, RefusalCode};
use alloc::format;

/// An operator sets a volume aside.
pub(crate) fn command_aside(
    primary: &mut Primary,
    common: &mut GroupCommon,
    cx: &mut Cx,
    id: CommandId,
    volume: VolumeId,
) {
    if is_refused(common, cx, id, volume, "logging") {
        return;
    }
    let in_order = common.volumes.copies().filter(|copy| !copy.is_aside()).count();
    if !common.sb.aside.contains(volume) && in_order < 2 {
        let why = "no other volume of the group would be left in its order: 'farshore logging GROUP' stops sending for all of it";
        return cx.refuse(id, RefusalCode::LastInOrder, why);
    }
    let is_new = set_aside(&mut common.sb, volume, true);
    if is_new {
        cx.coverage.hit(CoveragePoint::SetAside);
        if primary.peer.outbox.syncs() {
            cx.coverage.hit(CoveragePoint::SetAsideInSync);
        }
        common.volumes.copy_of(volume).set_aside(true);
        if !injected(Fault::AsideNotInOrder) {
            primary.peer.outbox.set_aside(common, cx, volume);
        }
        common.wake(Wake::Room);
        cx.event(common.id(), Event::SetAside { volume });
    }
    let result = match is_new {
        true => CommandResult::Done(
            "writes to the volume are tracked, not sent, until 'sync --volume'; the group's order goes on without it"
                .into(),
        ),
        false => CommandResult::Unchanged("the volume is set aside already; nothing to do".into()),
    };
    // Also where nothing changes: the order before this one may not be on record yet.
    common.save(cx, Some(AfterSuper::Answer { id, result }));
}

/// It is to be part of the order again.
pub(crate) fn command_rejoin(
    primary: &mut Primary,
    common: &mut GroupCommon,
    cx: &mut Cx,
    id: CommandId,
    volume: VolumeId,
) {
    if is_refused(common, cx, id, volume, "sync") {
        return;
    }
    if let Some(node) = lacks_device(primary, common, volume) {
        let why =
            format!("the volume is detached on {node}, which holds nothing of it: first 'farshore group attach' there");
        return cx.refuse(id, RefusalCode::VolumeDetached, why);
    }
    if common.settings.mode == Mode::Logging {
        let why = "the mode is 'logging'; first 'set GROUP mode=async' (or sync, nearsync)";
        return cx.refuse(id, RefusalCode::ModeLogging, why);
    }
    let is_there = primary.peer.greeting.hello().is_some_and(|hello| !hello.failed);
    if common.sb.aside.contains(volume) && primary.peer.outbox.streams() && !is_there {
        let why = "the peer is not there, and the queue keeps the order of the other volumes for it: the volume rejoins when it is back";
        return cx.refuse(id, RefusalCode::PeerAway, why);
    }
    if common.sb.aside.contains(volume) && !primary.peer.outbox.is_apart() && !cx.may_sync {
        let why = "as many groups of this node sync as may at once: in line for its turn the group would be without its order, so \
                   nothing was changed; try again when one of them is done";
        return cx.refuse(id, RefusalCode::SyncsBusy, why);
    }
    if !set_aside(&mut common.sb, volume, false) {
        let text = "the volume is part of the group's order already; nothing to do";
        return common.save(cx, Some(AfterSuper::Answer { id, result: CommandResult::Unchanged(text.into()) }));
    }
    cx.coverage.hit(CoveragePoint::Rejoined);
    primary.peer.wanted.rejoin(volume);
    common.volumes.copy_of(volume).set_aside(false);
    cx.event(common.id(), Event::Rejoins { volume });
    let dirty = ShownSize(common.volumes.copy_of(volume).dirty.dirty_bytes());
    let text = match common.sb.held_in_logging {
        true => format!(
            "the volume is part of what 'sync GROUP' sends: {dirty} of it may differ, and the group is held in logging"
        ),
        false => format!(
            "the volume rejoins with a sync of the group: {dirty} of it may differ; the peer's copy takes them up in one step"
        ),
    };
    common.save(cx, Some(AfterSuper::Answer { id, result: CommandResult::Done(text) }));
    if !primary.peer.outbox.is_apart() && !injected(Fault::RejoinsInStream) {
        // Under `strict` nobody is answered alone, also if it was an operator who ended the stream.
        primary.fail_held(common, cx);
        primary.fall_to_logging(common, cx, "a volume that was set aside rejoins");
    }
    primary.peer.wanted.order_update();
    primary.peer.stall.ordered(cx.now.mono);
    primary.try_autosync(common, cx);
}

/// Where the volume has no device, as far as that is known.
fn lacks_device(primary: &Primary, common: &GroupCommon, volume: VolumeId) -> Option<&'static str> {
    let at_peer = primary.peer.greeting.hello().is_some_and(|hello| hello.detached.contains(volume));
    match (common.volumes.is_detached(volume), at_peer) {
        (true, _) => Some("this node"),
        (false, true) => Some("the peer"),
        (false, false) => None,
    }
}

/// True: it was, and why is said.
fn is_refused(common: &GroupCommon, cx: &mut Cx, id: CommandId, volume: VolumeId, verb: &str) -> bool {
    if common.role() != Role::Primary {
        let why = format!("this node is the secondary; run '{verb}' on the primary");
        cx.refuse(id, RefusalCode::NotPrimary, why);
        return true;
    }
    let is_there = usize::from(volume.0) < common.volumes.len();
    if !is_there {
        cx.refuse(id, RefusalCode::NotInGroup, "the group has no such volume");
    }
    !is_there
}
