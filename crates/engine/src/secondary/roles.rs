//! What a promotion has to know of the copy.

use alloc::format;
use alloc::string::String;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::{Identity, Role};
use crate::ids::Position;
use crate::injected_fault::{Fault, injected};
use crate::secondary::Secondary;
use crate::shared::greeting::Greeting;
use crate::shared::size::ShownSize;

impl Secondary {
    /// Why an unforced promotion cannot be allowed; `None` when the primary handed over.
    pub fn promote_needs_force(&self, common: &GroupCommon, cx: &Cx, peer: &Greeting) -> Option<String> {
        let position = self.promotable(common).map_or(Position::default(), |(position, _)| position);
        let at = position.seq.0;
        let hello = match peer.said() {
            Some(hello) if cx.peer.link.is_some() => hello,
            _ if cx.peer.link.is_some() => {
                let silent =
                    "the peer is connected, but its half of the group has not said who it is (see 'status' there)";
                return Some(format!(
                    "{}; it may be primary, and what it acknowledged alone cannot be known: --force promotes this node at sequence {at}, and \
                     gives up whatever the peer wrote after it",
                    peer.unfit().unwrap_or(silent)
                ));
            }
            _ => {
                return Some(format!(
                    "the peer is not connected and may be primary: what it acknowledged alone cannot be known; \
                     --force promotes this node at sequence {at}, and gives up whatever the peer wrote after it"
                ));
            }
        };
        if hello.identity.role == Role::Primary && hello.failed {
            return Some(format!(
                "the peer is primary and its half of the group has failed, so it cannot be demoted: --force promotes this node at \
                 sequence {at}, and gives up whatever the peer wrote after it"
            ));
        }
        if hello.identity.role == Role::Primary {
            return Some("the peer is primary and connected; demote it there first ('farshore demote GROUP')".into());
        }
        if common.sb.needs_verification() {
            return Some(format!(
                "this node lost power while it was primary, and was demoted before it was known what the peer had confirmed \
                 until then; --force promotes it at sequence {at}, and it asks the peer first; what the peer wrote since is given up"
            ));
        }
        let equal = hello.identity.position == position || injected(Fault::HandoverWithoutDrain);
        let same_position = hello.identity.handed_over && equal;
        if same_position {
            return None;
        }
        if common.sb.takes_demotion_back() && equal {
            return Some(
                "this node handed over to the peer, which may be promoted there without force, also in this very moment; --force takes \
                 the demotion back"
                    .into(),
            );
        }
        if hello.dirty_bytes == 0 {
            return Some(format!(
                "the peer stands elsewhere than this node, and it is not known that nothing is missing here; --force promotes this node \
                 at sequence {at} and gives up what only the peer may have"
            ));
        }
        Some(format!(
            "the peer was demoted with {} that this node does not have; \
             --force promotes this node at sequence {at} and gives that up",
            ShownSize(hello.dirty_bytes)
        ))
    }

    pub fn peer_may_be_ahead(&self, common: &GroupCommon, peer: &Greeting) -> bool {
        let handed_over =
            |identity: &Identity| identity.handed_over && identity.position == self.replica.progress().position();
        let never_left = common.sb.takes_demotion_back() && peer.stands_at(self.replica.progress().position());
        !never_left && peer.hello().is_none_or(|hello| !handed_over(&hello.identity))
    }
}
