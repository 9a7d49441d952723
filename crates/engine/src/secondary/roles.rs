//! What a promotion has to know of the copy.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::{Identity, Role};
use crate::ids::Position;
use crate::injected_fault::{Fault, injected};
use crate::secondary::Secondary;
use crate::secondary::rollback::undoes_fork;
use crate::shared::greeting::Greeting;
use crate::shared::promotion::peer_away;
use crate::shared::size::ShownSize;
use crate::time::Mono;
use crate::{Refusal, RefusalCode};

impl Secondary {
    /// Why an unforced promotion cannot be allowed; `None` when the primary handed over.
    pub fn promote_needs_force(&self, common: &GroupCommon, cx: &Cx, peer: &Greeting) -> Option<Refusal> {
        let at = self.promotable(common).map_or(0, |(position, _)| position.seq.0);
        let lacking = lacks_volume(common, at);
        let undoes = undoes_fork(self, common).map(undoes_words);
        // Whatever else speaks against it: what --force gives up is said before.
        let refusal = |code, mut why: String| {
            let lacking = lacking.as_deref().filter(|_| code != RefusalCode::PeerIsPrimary);
            for besides in lacking.into_iter().chain(undoes) {
                why = format!("{why}; besides, {besides}");
            }
            Some(Refusal::new(code, why))
        };
        let position = self.promotable(common).map_or(Position::default(), |(position, _)| position);
        let hello = match peer.said() {
            Some(hello) if cx.peer.link.is_some() => hello,
            _ => {
                let (code, why) = peer_says_nothing(cx, peer, at, self.window_left(common, cx.now.mono));
                return refusal(code, why);
            }
        };
        if hello.identity.role == Role::Primary && hello.failed {
            let why = format!(
                "the peer is primary and its half of the group has failed, so it cannot be demoted: --force promotes this node at \
                 sequence {at}, and gives up whatever the peer wrote after it"
            );
            return refusal(RefusalCode::PeerFailed, why);
        }
        if hello.identity.role == Role::Primary {
            let why = "the peer is primary and connected; demote it there first ('farshore demote GROUP')";
            return refusal(RefusalCode::PeerIsPrimary, why.into());
        }
        if common.sb.needs_verification() {
            let why = format!(
                "this node lost power while it was primary, and was demoted before it was known what the peer had confirmed \
                 until then; --force promotes it at sequence {at}, and it asks the peer first; what the peer wrote since is given up"
            );
            return refusal(RefusalCode::Unverified, why);
        }
        if let Some(why) = lacking {
            let is_unfilled = common.sb.unfilled.named().is_some();
            let code = if is_unfilled { RefusalCode::VolumeUnfilled } else { RefusalCode::VolumeAside };
            return Some(Refusal::new(code, why));
        }
        let equal = hello.identity.position == position || injected(Fault::HandoverWithoutDrain);
        if hello.identity.handed_over && equal {
            return None;
        }
        if common.sb.takes_demotion_back() && equal {
            let why = "this node handed over to the peer, which may be promoted there without force, also in this very moment; --force takes \
                       the demotion back";
            return refusal(RefusalCode::HandedOver, why.into());
        }
        if hello.dirty_bytes == 0 {
            let why = format!(
                "the peer stands elsewhere than this node, and it is not known that nothing is missing here; --force promotes this node \
                 at sequence {at} and gives up what only the peer may have"
            );
            return refusal(RefusalCode::CopyBehind, why);
        }
        let why = format!(
            "the peer was demoted with {} that this node does not have; \
             --force promotes this node at sequence {at} and gives that up",
            ShownSize(hello.dirty_bytes)
        );
        refusal(RefusalCode::CopyBehind, why)
    }

    /// For so long nothing was acknowledged that a promotion of this copy would lack.
    pub fn window_left(&self, common: &GroupCommon, now: Mono) -> Option<Duration> {
        self.window_until(common).map(|until| until.since(now)).filter(|left| !left.is_zero())
    }

    pub fn window_until(&self, common: &GroupCommon) -> Option<Mono> {
        let is_copy = common.role() == Role::Secondary && !common.has_failed() && self.promotable(common).is_some();
        let is_whole = common.sb.aside.is_empty() && !common.sb.identity.inconsistent;
        Some(self.window.until()).filter(|_| is_copy && is_whole)
    }

    pub fn peer_may_be_ahead(&self, common: &GroupCommon, peer: &Greeting) -> bool {
        let handed_over =
            |identity: &Identity| identity.handed_over && identity.position == self.replica.progress().position();
        let never_left = common.sb.takes_demotion_back() && peer.stands_at(self.replica.progress().position());
        !never_left && peer.hello().is_none_or(|hello| !handed_over(&hello.identity))
    }
}

/// Why nothing is known of a peer that has not said where it stands.
fn peer_says_nothing(cx: &Cx, peer: &Greeting, at: u64, window: Option<Duration>) -> (RefusalCode, String) {
    if cx.peer.link.is_none() {
        return (RefusalCode::PeerAway, peer_away(at, window));
    }
    let silent = "the peer is connected, but its half of the group has not said who it is (see 'status' there)";
    let unfit = peer.unfit();
    let why = format!(
        "{}; it may be primary, and what it acknowledged alone cannot be known: --force promotes this node at sequence {at}, and gives up \
         whatever the peer wrote after it",
        unfit.unwrap_or(silent)
    );
    (if unfit.is_some() { RefusalCode::PeerUnfit } else { RefusalCode::PeerSilent }, why)
}

/// What a promotion would undo. `all_written`: only the delta of it is missing.
fn undoes_words(all_written: bool) -> &'static str {
    match all_written {
        true => {
            "all of the sync from the peer is written here, and only the delta of what it overwrote of this node's own history is missing: \
             --force goes back to that history; for what was synced let the sync end first, or give up what only this node had ('farshore mark \
             drop GROUP NAME --discard')"
        }
        false => {
            "the sync under way overwrites a history of this node's own, and --force goes back to that history, as it was before"
        }
    }
}

/// The copy, at this number, is one without a volume that its primary set aside: what a promotion would give.
fn lacks_volume(common: &GroupCommon, at: u64) -> Option<String> {
    if let Some(why) = unfilled(common) {
        return Some(why);
    }
    let (named, detached) = (common.sb.aside.named()?, common.volumes.detached());
    if common.sb.aside.without(&detached).is_empty() {
        return Some(format!(
            "the copy here is consistent without {named}, which is detached: --force promotes this node at sequence {at}, and serves nothing of \
             that"
        ));
    }
    if let Some(renamed) = common.sb.renamed.named() {
        return Some(format!(
            "{renamed} has a new name here, and no sync has shown that the peer calls the same volume so: --force promotes this node at sequence \
             {at} with what stood in it under its old name, which may be older than the others"
        ));
    }
    Some(format!(
        "the copy here is consistent without {named}, which was set aside, and is not part of the copy before a sync has ended: --force promotes this node at sequence {at} with what stands in it here, which is older or of several moments"
    ))
}

/// A volume has a disk that nobody filled: whatever stands there passed for the volume if it were promoted, and the one good copy, at the
/// other node, would be overwritten by it.
pub(crate) fn unfilled(common: &GroupCommon) -> Option<String> {
    let named = common.sb.unfilled.named()?;
    Some(format!(
        "{named} has a disk here that no sync has filled, so nothing in it is of the group, and this node is not promoted with it, --force or \
         not: 'farshore sync GROUP --volume NAME' on the primary fills it; to do without it, 'farshore group detach GROUP NAME' here, and \
         then promote with --force"
    ))
}
