//! What a meeting of the two nodes of a group comes to: the peer says who it is and where it stands, and what follows is decided.

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::fork::{ForkSide, row_of_fork};
use crate::formats::identity::{Decision, DecisionRow, Role, row, row_back, went_back};
use crate::formats::wire::GroupHello;
use crate::peer::forks::{kept_over, own_side};
use crate::peer::resync::HELD_IN_LOGGING;
use crate::peer::stream::PeerStream;
use crate::peer::{NOT_GREETED, Peer, logging};
use alloc::format;
use alloc::string::String;

impl Peer {
    pub fn decision(&self, common: &GroupCommon) -> Option<Decision> {
        self.decided(common).map(|(_, decision)| decision)
    }

    /// On a primary: the decision, and the row of the table it comes from.
    pub fn decided(&self, common: &GroupCommon) -> Option<(DecisionRow, Decision)> {
        let hello = self.greeting.hello().filter(|_| common.role() == Role::Primary)?;
        let (ours, theirs) = (common.identity_sent(), &hello.identity);
        let earliest = common.sb.confirmed.earliest(theirs, hello.dirty_bytes);
        if let Some(decision) = went_back(earliest, &ours, theirs) {
            return Some((row_back(earliest, theirs), decision));
        }
        // What can still be sent in order.
        let unbroken = self.outbox.stream().map(PeerStream::unbroken);
        let row = match row(&ours, theirs, unbroken) {
            DecisionRow::EarlierRun => {
                logging::row_of_earlier(&self.outbox, common, theirs).unwrap_or(DecisionRow::EarlierRun)
            }
            row => row,
        };
        let row = row_of_fork(row, &own_side(common, ours), &ForkSide::of(hello), kept_over(common));
        Some((row, row.decision(&ours, theirs)))
    }

    /// What was reconciled is on record: exports open, and a full sync that waited for it begins. False: none did.
    pub fn begins_reconciled(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        self.reconcile.recorded();
        if common.has_failed() {
            // Another store failed while that was being recorded: nothing is opened over it, and nothing begins.
            return true;
        }
        common.open_exports(cx);
        let is_full = self.reconcile.take_due_full_sync() && self.wants_full(common);
        if is_full {
            self.begin_full_sync(common, cx);
        }
        is_full
    }
}

/// A primary that is about to stop or to change its role begins nothing, and says for what reason it would not.
pub(crate) fn why_idle(decision: Option<Decision>) -> String {
    match decision {
        Some(Decision::Refuse(why)) => format!("{why}"),
        Some(Decision::NeedsFullSync(why)) => format!("{why}"),
        _ => "nothing is sent: this node is being stopped or changes its role".into(),
    }
}

/// The peer has not said who it is: what is waited for.
pub(crate) fn why_apart(common: &GroupCommon, cx: &Cx) -> &'static str {
    if common.sb.held_in_logging {
        HELD_IN_LOGGING
    } else if cx.peer.link.is_some() {
        NOT_GREETED
    } else {
        "waiting for the peer"
    }
}

/// Rule 23: a peer that cannot do without something this program does not know is refused.
pub(crate) fn features_missing(hello: &GroupHello) -> Option<String> {
    let unknown = hello.required & !crate::formats::wire::FEATURES_KNOWN;
    (unknown != 0).then(|| {
        format!(
            "the peer runs a newer farshore and needs features this one does not have (bits {unknown:#x}); upgrade this node"
        )
    })
}
