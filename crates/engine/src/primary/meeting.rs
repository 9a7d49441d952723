//! What a meeting with the peer comes to on a primary: who is of no use, who goes on, what begins.

use crate::Event;
use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::{Decision, Role, is_later};
use crate::formats::wire::GroupHello;
use crate::peer::detached::CAME_AT_PEER;
use crate::peer::meeting::{features_missing, why_idle};
use crate::peer::reconcile::ReconcileOutcome;
use crate::peer::resync::waits_for_order;
use crate::peer::{Peer, detached};
use crate::primary::Primary;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::PEER_FAILED;
use crate::shared::lifecycle::Phase;
use crate::shared::wakes::Wake;
use crate::state::{Policy, State};

impl Primary {
    /// The peer is connected and of no use: to its writers that is as good as a lost link, and the policy says whether they
    /// are held.
    pub fn peer_failed(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let why = PEER_FAILED;
        let holds = matches!(common.settings.policy, Policy::Hold(_) | Policy::Strict);
        let promises = common.settings.mode.promises();
        if common.role() == Role::Primary && holds && promises && self.peer.outbox.streams() {
            return self.stream_lost(common, cx, why);
        }
        self.fall_if_primary(common, cx, why);
    }

    pub fn fall_if_primary(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        if common.role() == Role::Primary && !common.has_failed() {
            self.fall_to_logging(common, cx, why);
        }
    }

    /// Whether the peer's half can be worked with; if not, both ends say why, and nothing is sent.
    pub fn fits(&mut self, common: &mut GroupCommon, cx: &mut Cx, hello: &GroupHello) -> bool {
        let unfit = features_missing(hello).or_else(|| common.volumes.disagree(common.role(), hello));
        let Some(what) = unfit else {
            if self.peer.greeting.accept() && common.role() == Role::Secondary {
                common.standing.explain("");
            }
            return true;
        };
        cx.coverage.hit(CoveragePoint::PeerUnfit);
        let (ours, theirs) = (&common.sb.identity, &hello.identity);
        let serves = theirs.role == Role::Primary && !hello.failed && !is_later(ours, theirs);
        self.peer.greeting.refuse(what.clone(), serves);
        cx.event(common.id(), Event::Note(what.clone()));
        self.fail_held(common, cx);
        self.fall_if_primary(common, cx, &what);
        if common.role() == Role::Secondary {
            common.standing.explain(what);
        }
        false
    }

    pub fn meet_peer(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if common.role() != Role::Primary || common.has_failed() {
            return;
        }
        if !common.lifecycle.is_running() {
            continue_while_closing(self, common, cx);
            if self.peer.state(common) == State::Logging {
                self.peer.report_state(common, cx, &why_idle(self.peer.decision(common)));
            }
            return;
        }
        // The hello may have come while this node was in the midst of something else.
        if detached::leave_out(&mut self.peer, common, cx) {
            self.fail_held(common, cx);
            self.fall_to_logging(common, cx, CAME_AT_PEER);
        }
        let Some((row, decision)) = self.peer.decided(common) else { return };
        let Some(hello) = self.peer.greeting.hello() else { return };
        let (granted, failed, theirs) = (hello.granted_bytes, hello.failed, hello.identity);
        cx.event(common.id(), Event::Decided { row, decision });
        if !failed && !matches!(decision, Decision::Continue(_)) {
            self.fail_held(common, cx);
        }
        match decision {
            _ if failed => self.peer_failed(common, cx),
            Decision::Continue(_) | Decision::UpdateSync if !self.reconcile(common, cx) => {
                if self.peer.outbox.streams() {
                    self.fail_held(common, cx);
                    self.fall_to_logging(common, cx, "the peer holds differences of its own");
                }
            }
            Decision::Continue(received) if self.peer.outbox.streams() => {
                self.peer.continue_stream(common, cx, received, granted);
                self.release_acked(common, cx);
                common.wake(Wake::Promise);
                if self.peer.wants_full(common) {
                    self.request_sync(common, cx, true);
                }
            }
            Decision::Continue(_) | Decision::UpdateSync => {
                self.fall_to_logging(common, cx, "the link is up, a sync is due");
                self.try_autosync(common, cx);
            }
            Decision::NeedsFullSync(why) => {
                self.fall_to_logging(common, cx, &alloc::format!("{why}"));
                if self.peer.wants_full(common) {
                    // The operator has asked for it already, and it waited for its turn.
                    self.request_sync(common, cx, true);
                } else if self.peer.reconcile.reconciles_fork(common, cx, &theirs) {
                    self.reconcile(common, cx);
                }
            }
            Decision::Refuse(why) => {
                cx.coverage.hit(CoveragePoint::ForkRefused);
                self.fall_to_logging(common, cx, &alloc::format!("{why}"));
            }
            Decision::Idle => {}
        }
    }

    // ---- before anything is sent, what both know is reconciled ------------------------------------------------------

    /// Whether this session may go on to send; if not, what is missing was asked for.
    pub fn reconcile(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        self.reconcile_by(common, cx, |Peer { reconcile, greeting, .. }, common, cx, decision| {
            reconcile.go_on(common, cx, greeting, decision)
        })
    }

    /// As [`Primary::reconcile`], by one `step` of it, which learns what the peer's hello led to.
    pub fn reconcile_by(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        step: impl FnOnce(&mut Peer, &mut GroupCommon, &mut Cx, Option<Decision>) -> ReconcileOutcome,
    ) -> bool {
        let decision = self.peer.decision(common);
        match step(&mut self.peer, common, cx, decision) {
            ReconcileOutcome::Asks(why) => self.fall_to_logging(common, cx, &why),
            ReconcileOutcome::Waits => self.explain_reconciling(common, cx),
            ReconcileOutcome::Done => return true,
        }
        false
    }

    /// A sync that nothing else stands in the way of waits for what is reconciled with the peer first: the state says so.
    fn explain_reconciling(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let peer = &mut self.peer;
        let agreed = matches!(peer.decision(common), Some(Decision::UpdateSync | Decision::Continue(_)));
        if peer.state(common) != State::Logging || !agreed || waits_for_order(peer, common).is_some() {
            return;
        }
        if let Some(why) = peer.reconcile.waits_for() {
            peer.report_state(common, cx, why);
        }
    }

    /// Something that stood in the way of a sync is done.
    pub fn meet_if_apart(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if self.peer.outbox.is_apart() {
            self.meet_peer(common, cx);
        }
    }
}

/// A demotion or a stop waits for writes that the queue still holds: a peer that is back in time, and where the queue goes on, gets
/// them.
fn continue_while_closing(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx) {
    let waits = matches!(common.lifecycle.phase(), Phase::Demoting { .. } | Phase::Stopping { .. });
    // What it has no disk for, or one that nobody filled, it would confirm without having it.
    let lacks_none = |hello: &GroupHello| hello.detached.is_empty() && hello.unfilled.is_empty();
    let is_whole = |hello: &&GroupHello| !hello.failed && hello.dirty_bytes == 0 && lacks_none(hello);
    let Some(hello) = primary.peer.greeting.hello().filter(is_whole) else { return };
    let granted = hello.granted_bytes;
    let Some(Decision::Continue(received)) = primary.peer.decision(common) else { return };
    if waits && primary.peer.outbox.streams() && !common.sb.needs_verification() {
        primary.peer.continue_stream(common, cx, received, granted);
        primary.release_acked(common, cx);
    }
}
