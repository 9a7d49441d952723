//! What the peer has no device for is left out of all that is sent to it, as a volume that is set aside
//! (docs/book/decisions/0067-detach.md).

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::ids::VolumeId;
use crate::peer::Peer;
use crate::records::record::set_aside;
use crate::shared::coverage::CoveragePoint;
use crate::{Event, limits};

/// Volumes that are detached there are set aside from here on, and all of them is to be sent once they rejoin. Said again in each session:
/// neither the bits nor the set have to be on record before anything else. Once the peer has a device again, it holds all of it dirty itself.
pub(crate) fn leave_out(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx) {
    let Some(hello) = peer.greeting.hello() else { return };
    let detached = hello.detached;
    if detached.is_empty() || common.role() != Role::Primary || !common.lifecycle.is_running() || common.has_failed() {
        return;
    }
    let mut is_new = false;
    let here = (0..limits::VOLUMES_MAX as u16).map(VolumeId).take(common.volumes.len());
    for volume in here.filter(|volume| detached.contains(*volume)) {
        let (size_bytes, copy) = (common.volumes.of(volume).size_bytes(), common.volumes.copy_of(volume));
        copy.set_aside(true);
        if copy.dirty.dirty_bytes() < size_bytes {
            copy.lost_at_peer();
        }
        if set_aside(&mut common.sb, volume, true) {
            is_new = true;
            cx.coverage.hit(CoveragePoint::PeerDetached);
            peer.outbox.set_aside(common, cx, volume);
            cx.event(common.id(), Event::SetAside { volume });
        }
    }
    if is_new {
        common.save(cx, None);
    }
}
