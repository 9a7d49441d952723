//! When an export opens that waits until the peer was asked: what came of that, and the time that `start_alone` gives it.

use super::{CLOSED_BESIDE_PRIMARY, ReconcileStage, Reconciliation};
use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::{Role, is_later};
use crate::injected_fault::{Fault, injected};
use crate::limits::{self};
use crate::peer::reconcile::closed_words;
use crate::records::record::AfterSuper;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::Greeting;
use crate::{Event, Output, StartAlone};
use alloc::format;
use alloc::string::String;

/// Of a primary that was reset: its peer may be the primary by now, and a dead one ends the link no sooner than that's timeout says.
const CLOSED_UNTIL_HEARD: &str = "the export opens once the peer has said who it is, or the link to it has ended";

impl Reconciliation {
    /// Why the state is what it is, and while the export waits for its operator how it opens, whatever else has happened since.
    pub fn shown_reason(&self, common: &GroupCommon, peer: &Greeting) -> String {
        let why = common.standing.why();
        // Of a peer that became primary, or failed, nothing is to be asked any more.
        let is_asked = !common.has_failed()
            && peer.hello().is_some_and(|hello| hello.identity.role == Role::Secondary && !hello.failed);
        match &self.stage {
            ReconcileStage::Asking { question } if is_asked && !question.is_empty() => question.clone(),
            _ if common.waits_for_choice() => format!("{why}; {}", closed_words(common, peer.has_lived())),
            _ if common.fenced_since().is_some() && peer.serves() => format!("{why}; {CLOSED_BESIDE_PRIMARY}"),
            _ if common.awaits_peer() && peer.unfit().is_some() && peer.served_last() => {
                format!("{why}; {CLOSED_BESIDE_PRIMARY}")
            }
            _ if common.awaits_peer() && peer.is_missing() => format!("{why}; {CLOSED_UNTIL_HEARD}"),
            _ => why.into(),
        }
    }

    /// Whether this primary may open its exports now, and when it may if not (rule 24).
    pub fn open_or_fence(&mut self, common: &mut GroupCommon, cx: &mut Cx, peer: &Greeting) {
        let serves =
            !common.sb.needs_verification() || common.sb.served_unverified || injected(Fault::StartAloneIgnored);
        if serves && !common.sb.is_unmet() {
            return cx.out.push_back(Output::Serve { group: common.id(), open: true });
        }
        common.fence_export(cx);
        if common.sb.is_unmet() && common.waits_for_choice() {
            cx.event(common.id(), Event::Note(closed_words(common, peer.has_lived()).into()));
        }
        self.start_alone(common, cx, peer);
    }

    /// The time to wait for the peer is over, or the operator changed it.
    pub fn start_alone(&mut self, common: &mut GroupCommon, cx: &mut Cx, peer: &Greeting) {
        let Some(since) = common.fenced_since() else { return };
        let may_open = common.role() == Role::Primary && common.lifecycle.is_running() && !common.awaits_peer();
        if common.has_failed() || !may_open {
            return;
        }
        let wait = match common.settings.start_alone {
            StartAlone::Serve => core::time::Duration::ZERO,
            StartAlone::Wait(wait) => wait,
        };
        if common.waits_for_choice() {
            // The operator was asked, and waiting answers nothing.
            return;
        }
        if common.sb.is_unmet() {
            return self.nothing_to_verify(common, cx);
        }
        if self.is_beside_primary(common, peer) {
            // It is alone from here on, if it is.
            common.fence_export(cx);
            return common.set_timer(cx, GroupTimer::StartAlone, limits::START_ALONE_AGAIN);
        }
        let waited = cx.now.mono.since(since);
        if waited < wait {
            common.standing.explain(format!(
                "this node lost power: the export opens when the peer was asked what it confirmed, or after {} s \
                 ('start_alone')",
                wait.as_secs()
            ));
            let at = since.plus(wait);
            return cx.timers.set(crate::context::TimerKey::Group(common.id(), GroupTimer::StartAlone), at);
        }
        let fetches = matches!(self.stage, ReconcileStage::Pulling(_)) && self.pulling.writing == 0;
        let limit = cx.peer.stalls_after();
        if fetches && cx.now.mono.since(self.pulling.moved_at) >= limit {
            let note = format!(
                "the peer is connected, but has sent nothing of what is fetched from it for {} s: the export opens without",
                limit.as_secs()
            );
            cx.event(common.id(), Event::Note(note));
            self.stop_asking();
        }
        let asks = matches!(self.stage, ReconcileStage::StoringRanges { .. } | ReconcileStage::Pulling(_));
        if asks || matches!(self.stage, ReconcileStage::Draining | ReconcileStage::Recording) {
            // It comes back right now.
            return common.set_timer(cx, GroupTimer::StartAlone, limits::START_ALONE_AGAIN);
        }
        if self.pulled_is_durable(common, cx) && !common.sb.served_unverified {
            cx.coverage.hit(CoveragePoint::ServedAloneUnverified);
            common.sb.served_unverified();
            common.save_in_both_slots(cx, AfterSuper::ServedUnverified);
        }
    }

    /// The peer is there and serves, and this node was not promoted after it: a second export opens by an operator's word only (P6,
    /// rule 24). Of a peer whose half does not fit this one, nothing else counts.
    pub fn is_beside_primary(&self, common: &GroupCommon, peer: &Greeting) -> bool {
        let is_beside = match peer.hello() {
            Some(hello) => peer.serves() && !is_later(&common.sb.identity, &hello.identity),
            None => peer.unfit().is_some() && peer.served_last(),
        };
        is_beside && common.settings.start_alone != StartAlone::Serve
    }

    /// It is on record that this node serves what the peer may know better. True: the peer is met anew.
    pub fn serves_unverified(&mut self, common: &mut GroupCommon, cx: &mut Cx, peer: &Greeting) -> bool {
        if self.is_beside_primary(common, peer) {
            common.set_timer(cx, GroupTimer::StartAlone, limits::START_ALONE_AGAIN);
        }
        if common.has_failed() || common.waits_for_choice() || self.is_beside_primary(common, peer) {
            // It broke while that was being recorded: the next start asks. Or the peer answered meanwhile, and the operator was asked.
            common.never_served();
            common.save(cx, None);
            return false;
        }
        common.open_exports(cx);
        if matches!(self.stage, ReconcileStage::Asking { .. }) {
            // What the operator was told is true of an export that is closed.
            self.enter(ReconcileStage::NotYet);
        }
        // One that stood still is asked anew: from now on the operator has the choice.
        true
    }
}
