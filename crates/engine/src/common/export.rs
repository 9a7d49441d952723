//! The export of a primary that lost its power, or that is new: it stays closed until the peer was asked, for as long as
//! `start_alone` says, or until its operator chooses.

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::injected_fault::{Fault, injected};
use crate::records::record::AfterSuper;
use crate::time::Mono;
use crate::{Event, Output, StartAlone};
use alloc::string::String;

impl GroupCommon {
    pub fn fence_export(&mut self, cx: &Cx) {
        self.fenced = Some(cx.now.mono);
    }

    /// As [`GroupCommon::fence_export`], and nothing else opens it until the peer has been met, or was waited for.
    pub fn fence_until_met(&mut self, cx: &Cx) {
        self.fence_export(cx);
        self.awaits_peer = true;
    }

    pub fn awaits_peer(&self) -> bool {
        self.awaits_peer
    }

    /// The export was not opened yet, since then.
    pub fn fenced_since(&self) -> Option<Mono> {
        self.fenced
    }

    /// Requests are accepted.
    pub fn serves(&self) -> bool {
        self.role() == Role::Primary && self.lifecycle.is_running() && self.fenced.is_none()
    }

    /// A demotion: should this node be promoted again, the export waits again.
    pub fn close_export(&mut self) {
        self.never_served();
        (self.fenced, self.awaits_peer) = (None, false);
    }

    /// The export closes before it was opened, perhaps in the moment in which it is recorded that it will be. Of one that was reset, and
    /// waits to meet its peer, that says nothing: the run before may have served.
    pub fn never_served(&mut self) {
        if self.fenced.is_some() && !self.awaits_peer {
            self.sb.not_served();
        }
    }

    /// What stands here is newer than what only the peer has: clients wrote, or somebody from outside.
    pub fn is_written_since(&self) -> bool {
        let sb = &self.sb;
        // That it serves without the peer may be on its way to the record: then it opens in this very moment.
        let changed = sb.changed_outside && !injected(Fault::ChangedPulledOver);
        sb.served_unverified || changed || self.fenced.is_none()
    }

    /// The export waits for its operator, and for nothing else.
    pub fn waits_for_choice(&self) -> bool {
        let closed = self.fenced.is_some() && self.sb.is_closed_until_chosen() && !self.has_failed();
        closed && self.settings.start_alone != StartAlone::Serve
    }

    /// An export that was not opened stays closed until the operator chooses, whatever time passes: also through restarts. He is told
    /// once that is on record. That time is up may be on its way there: nothing follows from it any more.
    pub fn stays_closed(&mut self, cx: &mut Cx, reported: Option<String>) {
        let may_open = self.settings.start_alone == StartAlone::Serve;
        if self.fenced.is_none() || self.sb.is_closed_until_chosen() || may_open {
            return;
        }
        if injected(Fault::ChoiceForgotten) {
            return reported.into_iter().for_each(|reported| cx.event(self.id(), Event::Note(reported)));
        }
        let then = AfterSuper::StaysClosed { reported };
        self.sb.close_until_chosen();
        self.never_served();
        self.sb.forget(|then| matches!(then, AfterSuper::ServedUnverified));
        self.save_in_both_slots(cx, then);
    }

    pub fn open_exports(&mut self, cx: &mut Cx) {
        if !self.awaits_peer && self.fenced.take().is_some() && self.lifecycle.is_running() {
            cx.out.push_back(Output::Serve { group: self.id(), open: true });
        }
    }
}
