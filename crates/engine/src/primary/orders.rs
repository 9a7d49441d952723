//! What operators order of a primary: a mode, logging, a sync with a permit.

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::identity::Role;
use crate::ids::CommandId;
use crate::peer::meeting::why_apart;
use crate::peer::resync::{WAITS_FOR_TURN, set_all_dirty};
use crate::primary::Primary;
use crate::primary::alone::degrade;
use crate::records::record::AfterSuper;
use crate::shared::coverage::CoveragePoint;
use crate::shared::wakes::Wake;
use crate::state::{Mode, Policy, State};
use crate::{CommandResult, RefusalCode};
use alloc::format;
use alloc::string::ToString;

impl Primary {
    /// `why`: what is told of it.
    pub fn mode_changed(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        cx.coverage.hit(CoveragePoint::ModeChangedLive);
        if common.settings.mode == Mode::Logging {
            self.peer.wanted.forget_orders();
            return self.fall_to_logging(common, cx, "mode is logging");
        }
        if self.peer.state(common) == State::Logging && self.peer.greeting.is_missing() {
            self.peer.report_state(common, cx, why_apart(common, cx));
        }
        self.peer.promise_anew(common, cx, why);
        if self.peer.state(common) == State::Holding && common.settings.mode.follows_behind() {
            // They are answered, the queue keeps the order.
            self.window.forget();
            self.peer.outbox.keep_order(false);
            self.peer.report_state(
                common,
                cx,
                &format!("the mode became {} while the link was down", common.settings.mode.word()),
            );
            return self.release_waiting(common, cx);
        }
        self.wait_as_the_mode_says(common, cx);
        if self.peer.state(common) == State::Holding {
            self.peer.outbox.promise_from_here();
        }
        common.wake(Wake::Promise);
        self.try_autosync(common, cx);
    }

    /// Mode or policy changed: should writers be held again, the window is a new one. Of those who are being held the new policy says for
    /// how long, from now on.
    pub fn policy_changed(&mut self, common: &mut GroupCommon, cx: &mut Cx, before: Policy) {
        if self.peer.state(common) != State::Holding {
            return self.window.forget();
        }
        if before == common.settings.policy {
            return;
        }
        self.window.forget();
        match common.settings.policy {
            Policy::Degrade => degrade(self, common, cx, "the policy became 'degrade' while the link was down"),
            Policy::Hold(window) => {
                let until = self.window.open(cx.now.mono, window);
                cx.timers.set(TimerKey::Group(common.id(), GroupTimer::HoldEnd), until);
            }
            Policy::Strict => {}
        }
    }

    pub fn command_logging(&mut self, common: &mut GroupCommon, cx: &mut Cx, id: CommandId) {
        if common.role() != Role::Primary {
            let why = "this node is the secondary; run 'logging' on the primary";
            return cx.refuse(id, RefusalCode::NotPrimary, why);
        }
        // An order to sync would have ended it.
        let is_held = common.sb.held_in_logging && self.peer.state(common) == State::Logging;
        common.sb.held_in_logging();
        self.peer.wanted.forget_orders();
        self.fall_to_logging(common, cx, "the operator asked for logging");
        let result = match is_held {
            true => CommandResult::Unchanged("already logging; nothing to do".to_string()),
            false => CommandResult::Done("writes are tracked, not sent, until 'sync'".to_string()),
        };
        // Also where nothing changes: the order before this one may not be on record yet.
        common.save(cx, Some(AfterSuper::Answer { id, result }));
    }

    /// A sync in the stream gives new numbers as long as it goes on, each to be flushed here, so that this node never comes to rest:
    /// what waits for that waits no longer. What is left of the sync stays dirty.
    pub fn abort_sync(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if self.peer.outbox.syncs_in_stream() {
            let why = "the sync is cut short: it would take longer than a stop or a demotion waits";
            self.fall_to_logging(common, cx, why);
        }
    }

    /// Begins a sync if this node has a permit for one; else it waits in line, and what streams goes on streaming.
    pub fn request_sync(&mut self, common: &mut GroupCommon, cx: &mut Cx, full: bool) -> bool {
        if !cx.may_sync {
            self.peer.wanted.wait_for_permit(&self.peer.greeting, full);
            if full && self.peer.outbox.syncs() {
                // All of it is sent again: the sync that is paused is of no use any more, and its answers would end this order.
                self.fall_to_logging(common, cx, WAITS_FOR_TURN);
            }
            if self.peer.state(common) == State::Logging {
                self.peer.report_state(common, cx, WAITS_FOR_TURN);
            }
            return false;
        }
        let full = self.peer.wants_full(common) || full;
        self.peer.wanted.order_full(&self.peer.greeting, full);
        if !self.peer.outbox.is_apart() {
            // Under `strict` nobody is answered alone, also if it was an operator who ended the stream.
            self.fail_held(common, cx);
            self.fall_to_logging(common, cx, "the operator asked for a sync");
        }
        if full {
            self.peer.wanted.begin_with_permit();
            self.peer.reconcile.ask_nothing(common, cx);
            self.peer.report_state(common, cx, "a full sync begins once it is on record that all of it is to be sent");
            set_all_dirty(&mut self.peer, common, cx);
        } else if self.reconcile(common, cx) {
            self.peer.begin_sync(common, cx, false);
        }
        true
    }
}
