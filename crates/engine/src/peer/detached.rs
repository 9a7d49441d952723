//! What the peer has no device for is left out of all that is sent to it, as a volume that is set aside
//! (docs/book/decisions/0067-detach.md); and so is what stands on a device there that came, before an operator says that it is to be
//! overwritten (docs/book/decisions/0068-other-volumes.md).

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::ids::{VolumeId, VolumeSet};
use crate::injected_fault::{Fault, injected};
use crate::peer::Peer;
use crate::records::record::set_aside;
use crate::shared::coverage::CoveragePoint;
use crate::shared::peer_copy::PeerCopy;
use crate::{Event, limits};

/// Why nothing is sent to a peer that would have nothing in order.
pub(crate) const NOTHING_IN_ORDER: &str = "every volume of the group is set aside, or detached on one of the nodes: no order is left to be \
                                           mirrored before 'farshore sync GROUP --volume NAME' takes one in";

/// Why a queue does not go on.
pub(crate) const CAME_AT_PEER: &str =
    "a volume came at the peer, and waits for 'sync --volume': the queue has writes to it";

/// Each volume is left out of what is sent.
pub(crate) fn is_nothing_in_order(common: &GroupCommon) -> bool {
    common.volumes.copies().all(PeerCopy::is_aside)
}

/// A sync would leave every volume out; a full one takes in all that have a device on both nodes.
pub(crate) fn sync_has_nothing(peer: &Peer, common: &GroupCommon, full: bool) -> bool {
    let there = peer.greeting.hello().map(|hello| hello.detached).unwrap_or_default();
    let without = common.volumes.detached().with(&there);
    let left_out = if full { without } else { common.sb.aside.with(&without) };
    (0..limits::VOLUMES_MAX as u16).map(VolumeId).take(common.volumes.len()).all(|id| left_out.contains(id))
}

/// An operator said that this node's content counts, of every volume.
pub(crate) fn fill_all(peer: &mut Peer) {
    let unfilled = peer.greeting.hello().map(|hello| hello.unfilled).unwrap_or_default();
    peer.wanted.fill(&unfilled);
}

/// Volumes that are detached there, or that nobody ordered to be filled there, are set aside from here on, and all of them is to be sent once
/// they rejoin. Said again in each session: neither the bits nor the set have to be on record before anything else. The peer that has a device
/// holds all of it dirty itself. True: the queue may have writes for a device that nobody ordered to be filled, and must not go on.
pub(crate) fn leave_out(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx) -> bool {
    let Some(hello) = peer.greeting.hello() else { return false };
    let (detached, unfilled) = (hello.detached, hello.unfilled);
    let came = unfilled.without(&peer.wanted.fills());
    let came = if injected(Fault::FilledUnasked) { VolumeSet::default() } else { came };
    let lacking = detached.with(&unfilled);
    if lacking.is_empty() || common.role() != Role::Primary || !common.lifecycle.is_running() || common.has_failed() {
        return false;
    }
    let (mut is_new, mut has_come) = (false, false);
    let here = (0..limits::VOLUMES_MAX as u16).map(VolumeId).take(common.volumes.len());
    for volume in here.filter(|volume| lacking.contains(*volume)) {
        let copy = common.volumes.copy_of(volume);
        if detached.contains(volume) {
            copy.lost_at_peer();
        } else {
            copy.replaced_at_peer();
        }
        if !detached.contains(volume) && !came.contains(volume) {
            // It is to be filled, as somebody ordered: all of it, whatever was sent to the device before this one.
            continue;
        }
        common.volumes.copy_of(volume).set_aside(true);
        if set_aside(&mut common.sb, volume, true) {
            is_new = true;
            let is_detached = detached.contains(volume);
            has_come |= !is_detached;
            cx.coverage.hit(if is_detached { CoveragePoint::PeerDetached } else { CoveragePoint::PeerUnfilled });
            peer.outbox.set_aside(common, cx, volume);
            cx.event(common.id(), Event::SetAside { volume });
        }
    }
    if is_new {
        common.save(cx, None);
    }
    has_come && peer.outbox.streams()
}
