//! The export of a primary that lost its power, or that is new: it stays closed until the peer was asked, for as long as
//! `start_alone` says, or until its operator chooses.

use super::{ReconcileStage, Reconciliation};
use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Role;
use crate::injected_fault::{Fault, injected};
use crate::limits::{self};
use crate::peer::reconcile::closed_words;
use crate::records::record::AfterSuper;
use crate::shared::coverage::CoveragePoint;
use crate::{Event, Output, StartAlone};
use alloc::format;
use alloc::string::String;

impl Reconciliation {
    /// The export closes before it was opened, perhaps in the moment in which it is recorded that it will be.
    pub fn never_served(&mut self, common: &mut GroupCommon) {
        if self.export_fenced {
            common.sb.not_served();
        }
    }

    /// What stands here is newer than what only the peer has: clients wrote, or somebody from outside.
    pub fn is_written_since(&self, common: &GroupCommon) -> bool {
        let sb = &common.sb;
        // That it serves without the peer may be on its way to the record: then it opens in this very moment.
        let changed = sb.changed_outside && !injected(Fault::ChangedPulledOver);
        sb.served_unverified || changed || !self.export_fenced
    }

    /// The export waits for its operator, and for nothing else.
    pub fn waits_for_choice(&self, common: &GroupCommon) -> bool {
        let closed = self.export_fenced && common.sb.is_closed_until_chosen() && !common.has_failed();
        closed && common.settings.start_alone != StartAlone::Serve
    }

    /// Why the state is what it is, and while the export waits for its operator how it opens, whatever else has happened since.
    pub fn shown_reason(&self, common: &GroupCommon, peer_has_lived: bool) -> String {
        if !self.waits_for_choice(common) || matches!(self.stage, ReconcileStage::Asking) {
            return common.standing.why().into();
        }
        format!("{}; {}", common.standing.why(), closed_words(common, peer_has_lived))
    }

    /// An export that was not opened stays closed until the operator chooses, whatever time passes: also through restarts. He is told
    /// once that is on record. That time is up may be on its way there: nothing follows from it any more.
    pub fn stays_closed(&mut self, common: &mut GroupCommon, cx: &mut Cx, reported: Option<String>) {
        let may_open = common.settings.start_alone == StartAlone::Serve;
        if !self.export_fenced || common.sb.is_closed_until_chosen() || may_open {
            return;
        }
        if injected(Fault::ChoiceForgotten) {
            return reported.into_iter().for_each(|reported| cx.event(common.id(), Event::Note(reported)));
        }
        let then = AfterSuper::StaysClosed { reported };
        common.sb.close_until_chosen();
        self.never_served(common);
        common.sb.forget(|then| matches!(then, AfterSuper::ServedUnverified));
        common.save_in_both_slots(cx, then);
    }

    /// Whether this primary may open its exports now, and when it may if not (rule 24).
    pub fn open_or_fence(&mut self, common: &mut GroupCommon, cx: &mut Cx, peer_has_lived: bool) {
        let serves =
            !common.sb.needs_verification() || common.sb.served_unverified || injected(Fault::StartAloneIgnored);
        if serves && !common.sb.is_unmet() {
            return cx.out.push_back(Output::Serve { group: common.id(), open: true });
        }
        self.export_fenced = true;
        self.fenced_since = cx.now.mono;
        if common.sb.is_unmet() && self.waits_for_choice(common) {
            cx.event(common.id(), Event::Note(closed_words(common, peer_has_lived).into()));
        }
        self.start_alone(common, cx);
    }

    /// The time to wait for the peer is over, or the operator changed it.
    pub fn start_alone(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let broken = common.has_failed();
        if broken || !self.export_fenced || common.role() != Role::Primary || !common.lifecycle.is_running() {
            return;
        }
        let wait = match common.settings.start_alone {
            StartAlone::Serve => core::time::Duration::ZERO,
            StartAlone::Wait(wait) => wait,
        };
        if self.waits_for_choice(common) {
            // The operator was asked, and waiting answers nothing.
            return;
        }
        if common.sb.is_unmet() {
            return self.nothing_to_verify(common, cx);
        }
        let waited = cx.now.mono.since(self.fenced_since);
        if waited < wait {
            common.standing.explain(format!(
                "this node lost power: the export opens when the peer was asked what it confirmed, or after {} s \
                 ('start_alone')",
                wait.as_secs()
            ));
            let at = self.fenced_since.plus(wait);
            return cx.timers.set(crate::context::TimerKey::Group(common.id(), GroupTimer::StartAlone), at);
        }
        let fetches = matches!(self.stage, ReconcileStage::Pulling(_)) && self.pulling.writing == 0;
        if fetches && cx.now.mono.since(self.pulling.moved_at) >= limits::SYNC_STALLED_AFTER {
            let note = "the peer is connected, but has sent nothing of what is fetched from it for 60 s: the export opens without";
            cx.event(common.id(), Event::Note(note.into()));
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

    pub fn open_exports(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if core::mem::take(&mut self.export_fenced) && common.lifecycle.is_running() {
            cx.out.push_back(Output::Serve { group: common.id(), open: true });
        }
    }

    /// It is on record that this node serves what the peer may know better. True: the peer is met anew.
    pub fn serves_unverified(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        if common.has_failed() || self.waits_for_choice(common) {
            // It broke while that was being recorded: the next start asks. Or the peer answered meanwhile, and the operator was asked.
            self.never_served(common);
            common.save(cx, None);
            return false;
        }
        self.open_exports(common, cx);
        if matches!(self.stage, ReconcileStage::Asking) {
            // What the operator was told is true of an export that is closed.
            self.enter(ReconcileStage::NotYet);
        }
        // One that stood still is asked anew: from now on the operator has the choice.
        true
    }

    /// The export was not opened yet.
    pub fn is_export_fenced(&self) -> bool {
        self.export_fenced
    }
}
