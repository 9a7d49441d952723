//! The export of a primary that lost its power, or that is new: it stays closed until the peer was asked, for as long as
//! `start_alone` says, or until its operator chooses.

use super::{Reconcile, Reconciling};
use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Role;
use crate::limits::{self};
use crate::peer::reconcile::closed_words;
use crate::planted::{Fault, planted};
use crate::records::record::AfterSuper;
use crate::shared::marks::Mark;
use crate::{Event, Output, StartAlone};
use alloc::format;
use alloc::string::String;

impl Reconcile {
    /// The export closes before it was opened, perhaps in the moment in which it is recorded that it will be.
    pub fn never_served(&mut self, common: &mut Common) {
        if self.withheld {
            common.sb.not_served();
        }
    }

    /// What stands here is newer than what only the peer has: clients wrote, or somebody from outside.
    pub fn is_written_since(&self, common: &Common) -> bool {
        let sb = &common.sb;
        // That it serves without the peer may be on its way to the record: then it opens in this very moment.
        let changed = sb.changed_outside && !planted(Fault::ChangedPulledOver);
        sb.served_in_doubt || changed || !self.withheld
    }

    /// The export waits for its operator, and for nothing else.
    pub fn waits_for_choice(&self, common: &Common) -> bool {
        let closed = self.withheld && common.sb.is_closed_until_chosen() && !common.has_failed();
        closed && common.settings.start_alone != StartAlone::Serve
    }

    /// Why the state is what it is, and while the export waits for its operator how it opens, whatever else has happened since.
    pub fn shown_reason(&self, common: &Common) -> String {
        if !self.waits_for_choice(common) || matches!(self.stage, Reconciling::Asking) {
            return common.standing.why().into();
        }
        format!("{}; {}", common.standing.why(), closed_words(common))
    }

    /// An export that was not opened stays closed until the operator chooses, whatever time passes: also through restarts. He is told
    /// once that is on record. That time is up may be on its way there: nothing follows from it any more.
    pub fn stays_closed(&mut self, common: &mut Common, cx: &mut Cx, told: Option<String>) {
        let may_open = common.settings.start_alone == StartAlone::Serve;
        if !self.withheld || common.sb.is_closed_until_chosen() || may_open {
            return;
        }
        if planted(Fault::ChoiceForgotten) {
            return told.into_iter().for_each(|told| cx.event(common.id(), Event::Note(told)));
        }
        let then = AfterSuper::StaysClosed { told };
        common.sb.close_until_chosen();
        self.never_served(common);
        common.sb.forget(|then| matches!(then, AfterSuper::ServedInDoubt));
        common.save_in_both_slots(cx, then);
    }

    /// Whether this primary may open its exports now, and when it may if not (rule 24).
    pub fn open_or_withhold(&mut self, common: &mut Common, cx: &mut Cx) {
        let serves = !common.sb.is_in_doubt() || common.sb.served_in_doubt || planted(Fault::StartAloneIgnored);
        if serves && !common.sb.is_unmet() {
            return cx.out.push_back(Output::Serve { group: common.id(), open: true });
        }
        self.withheld = true;
        self.withheld_since = cx.now.mono;
        if common.sb.is_unmet() && self.waits_for_choice(common) {
            cx.event(common.id(), Event::Note(closed_words(common).into()));
        }
        self.start_alone(common, cx);
    }

    /// The time to wait for the peer is over, or the operator changed it.
    pub fn start_alone(&mut self, common: &mut Common, cx: &mut Cx) {
        let broken = common.has_failed();
        if broken || !self.withheld || common.role() != Role::Primary || !common.lifecycle.is_running() {
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
            return self.nothing_in_doubt(common, cx);
        }
        let waited = cx.now.mono.since(self.withheld_since);
        if waited < wait {
            common.standing.explain(format!(
                "this node lost power: the export opens when the peer was asked what it confirmed, or after {} s \
                 ('start_alone')",
                wait.as_secs()
            ));
            let at = self.withheld_since.plus(wait);
            return cx.timers.set(crate::context::TimerKey::Group(common.id(), GroupTimer::StartAlone), at);
        }
        let fetches = matches!(self.stage, Reconciling::Pulling(_)) && self.pulling.writing == 0;
        if fetches && cx.now.mono.since(self.pulling.moved_at) >= limits::SYNC_STALLED_AFTER {
            let note = "the peer is connected, but has sent nothing of what is fetched from it for 60 s: the export opens without";
            cx.event(common.id(), Event::Note(note.into()));
            self.stop_asking();
        }
        let asks = matches!(self.stage, Reconciling::StoringRanges { .. } | Reconciling::Pulling(_));
        if asks || matches!(self.stage, Reconciling::Draining | Reconciling::Recording) {
            // It comes back right now.
            return common.set_timer(cx, GroupTimer::StartAlone, limits::START_ALONE_AGAIN);
        }
        if self.pulled_is_durable(common, cx) && !common.sb.served_in_doubt {
            cx.marks.hit(Mark::ServedAloneInDoubt);
            common.sb.served_in_doubt();
            common.save_in_both_slots(cx, AfterSuper::ServedInDoubt);
        }
    }

    pub fn open_exports(&mut self, common: &mut Common, cx: &mut Cx) {
        if core::mem::take(&mut self.withheld) && common.lifecycle.is_running() {
            cx.out.push_back(Output::Serve { group: common.id(), open: true });
        }
    }

    /// It is on record that this node serves what the peer may know better. True: the peer is met anew.
    pub fn serves_in_doubt(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        if common.has_failed() || self.waits_for_choice(common) {
            // It broke while that was being recorded: the next start asks. Or the peer answered meanwhile, and the operator was asked.
            self.never_served(common);
            common.save(cx, None);
            return false;
        }
        self.open_exports(common, cx);
        if matches!(self.stage, Reconciling::Asking) {
            // What the operator was told is true of an export that is closed.
            self.enter(Reconciling::NotYet);
        }
        // One that stood still is asked anew: from now on the operator has the choice.
        true
    }

    /// The export was not opened yet.
    pub fn is_withheld(&self) -> bool {
        self.withheld
    }
}
