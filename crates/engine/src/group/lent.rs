//! A promotion for the clients of the peer, in a reverse sync (docs/book/decisions/0063-reverse-sync.md): never beside a primary.

use crate::RefusalCode;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::group::Group;
use crate::ids::CommandId;
use crate::shared::coverage::CoveragePoint;
use crate::shared::lifecycle::{Promotion, PromotionProviso};

/// Promotes this node with what it has, beside a peer that is secondary.
pub(super) fn promote(group: &mut Group, cx: &mut Cx, id: CommandId, entropy: u64) {
    let promotion = Promotion { id, force: true, proviso: PromotionProviso::SecondaryPeer, entropy };
    if group.common.role() == Role::Primary {
        return group.promote(cx, promotion);
    }
    if let Some((code, why)) = obstacle(group) {
        return cx.refuse(id, code, why);
    }
    cx.coverage.hit(CoveragePoint::PromotedForPeer);
    group.promote(cx, promotion);
}

/// Whoever promoted the peer meanwhile has decided otherwise; of one that says nothing that is not known.
pub(super) fn obstacle(group: &Group) -> Option<(RefusalCode, &'static str)> {
    match group.primary.peer.greeting.hello().map(|hello| hello.identity.role) {
        Some(Role::Secondary) => None,
        Some(Role::Primary) => Some((
            RefusalCode::PeerIsPrimary,
            "the peer is primary, and serves its clients itself: this node stays secondary",
        )),
        None => Some((
            RefusalCode::PeerSilent,
            "the peer is not heard as the secondary, so this node is not promoted for its clients",
        )),
    }
}
