//! What operators order, and what takes longer than one input: demotion, promotion, the clean stop.

use alloc::format;
use alloc::string::String;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::identity::{Decision, Role};
use crate::formats::wire::FrameKind;
use crate::group::forks::KeepWish;
use crate::group::handover::HandoverOrder;
use crate::group::{Group, equal, forks, handover, lent, marks, peer_window, reset, start};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::peer::detached::{NOTHING_IN_ORDER, sync_has_nothing};
use crate::peer::logging;
use crate::peer::orders::{FULL_UNDER_WAY, open_choice, under_way};
use crate::peer::{Peer, status, verify};
use crate::primary::aside::{command_aside, command_rejoin};
use crate::primary::steps::end_lowering;
use crate::records::bits::AfterBits;
use crate::records::record::AfterSuper;
use crate::secondary::delta::proceed_delta;
use crate::secondary::rollback::command_drop_point;
use crate::shared::greeting::PEER_FAILED;
use crate::shared::lifecycle::{Phase, Promotion};
use crate::shared::wakes::Wake;
use crate::state::{CopyDoubts, Mode, Pause, State};
use crate::status::HandoverStage;
use crate::time::Mono;
use crate::{Command, CommandResult, Output, RefusalCode, Settings, limits};

impl Group {
    pub fn command(&mut self, cx: &mut Cx, id: CommandId, command: Command) {
        if let Command::Reset { entropy } = command {
            return reset::command(self, cx, id, entropy);
        }
        let acts = self.common.lifecycle.is_running() && self.common.lifecycle.broken().is_none();
        if let (Command::Set(settings), false) = (&command, acts) {
            set_at_rest(self, cx, *settings);
            return cx.answer(id, CommandResult::Done(String::new()));
        }
        let starts = self.common.lifecycle.stage().is_some();
        if starts && let State::Failed(broken) = self.shown().state() {
            return cx.refuse(id, RefusalCode::GroupFailed, format!("the group has failed: {}", broken.words()));
        }
        // With the history full a start stands still, and these are the ways out.
        let stuck = starts && self.secondary.replica.paused() == Some(Pause::HistoryFull);
        let way_out = stuck && matches!(command, Command::DropRollbackPoint { .. } | Command::Promote { .. });
        if !self.common.lifecycle.is_running() && !way_out {
            let why = self.secondary.standstill(&self.common).map_or("try again in a moment", |(_, why)| why);
            let code = self.common.lifecycle.refusal();
            return cx.refuse(id, code, format!("the group is starting, stopping or changing its role; {why}"));
        }
        if let Some(broken) = self.common.lifecycle.broken() {
            return cx.refuse(id, RefusalCode::GroupFailed, format!("the group has failed: {}", broken.words()));
        }
        if let Some(refusal) = handover::refuses(&self.handover, &command) {
            return cx.answer(id, CommandResult::Refused(refusal));
        }
        if let Some(refusal) = forks::refuses(&self.primary.peer, &self.common, &command) {
            return cx.answer(id, CommandResult::Refused(refusal));
        }
        match command {
            Command::Set(settings) => set(self, cx, id, settings),
            Command::Logging => self.primary.command_logging(&mut self.common, cx, id),
            Command::Sync { full } => self.command_sync(cx, id, full, true),
            Command::SendAll => self.command_sync(cx, id, true, false),
            Command::SetAside { volume } => command_aside(&mut self.primary, &mut self.common, cx, id, volume),
            Command::Rejoin { volume } => command_rejoin(&mut self.primary, &mut self.common, cx, id, volume),
            Command::BringUpToDate => bring_up_to_date(self, cx, id),
            Command::Demote => demote(&mut self.primary.peer, &mut self.common, cx, id),
            Command::Keep { over, discard, by_policy } => {
                forks::keep(self, cx, id, KeepWish { over, discard, by_policy })
            }
            Command::TakeBack { over } => forks::take_back(self, cx, id, over),
            Command::Yield { to, by_policy } => forks::give_way(self, cx, id, to, by_policy),
            Command::Promote { force, entropy } => self.promote(cx, Promotion::typed(id, force, entropy)),
            Command::PromoteInWindow { entropy } => peer_window::promote(self, cx, id, entropy),
            Command::PromoteForPeer { entropy } => lent::promote(self, cx, id, entropy),
            Command::Switchover { to, limit, closes_export, only_asks } => {
                handover::command(self, cx, id, HandoverOrder { to, limit, closes_export, only_asks });
            }
            Command::DropRollbackPoint { name, discard } => {
                command_drop_point(&mut self.common, cx, id, (&name, discard));
            }
            Command::Mark { .. } | Command::LockMark { .. } | Command::DropMark { .. } => {
                marks::command(self, cx, id, command);
            }
            Command::Reset { .. } => unreachable!("it is taken in any state"),
            Command::Verify(order) => verify::command(&mut self.primary.peer, &mut self.common, cx, id, order),
            Command::VerifyStop => verify::command_stop(&mut self.primary.peer, &mut self.common, cx, id),
            Command::ForgetPeaks => forget_peaks(&mut self.primary.peer, cx, id),
            Command::AssumeEqual => equal::command(&mut self.primary, &mut self.common, cx, id),
        }
    }

    pub(super) fn apply_settings(&mut self, cx: &mut Cx, settings: Settings) {
        let was_set = *self.common.settings.as_set();
        let before = take_settings(self, cx, settings);
        let changes_mode = before.mode != self.common.settings.mode;
        if self.common.role() == Role::Primary && changes_mode {
            self.primary.mode_changed(&mut self.common, cx, MODE_CHANGED);
        }
        let changed = before.policy != settings.policy || changes_mode;
        if self.common.role() == Role::Primary {
            if changed {
                self.primary.policy_changed(&mut self.common, cx, before.policy);
            }
            self.common.wake(Wake::Room);
            if reset::has_to_meet(self) {
                reset::open_when_met(self, cx);
            } else {
                let Peer { reconcile, greeting, .. } = &mut self.primary.peer;
                reconcile.start_alone(&mut self.common, cx, greeting);
            }
        }
        if settings.autosync != before.autosync {
            // Or says that it waits for an order from now on.
            self.primary.try_autosync(&mut self.common, cx);
        }
        if was_set != settings {
            // Each node shows what the other is set to.
            self.say_hello(cx, FrameKind::GroupState);
            self.primary.peer.report_primary_state(&mut self.common, cx);
        }
    }
}

/// Settings that count once the group acts again.
fn set_at_rest(group: &mut Group, cx: &mut Cx, settings: Settings) {
    let was_set = *group.common.settings.as_set();
    let before = take_settings(group, cx, settings);
    if was_set != settings && group.common.lifecycle.is_running() {
        // It has failed: each node shows what the other is set to all the same.
        group.say_hello(cx, FrameKind::GroupState);
    }
    if group.common.role() == Role::Primary && group.common.settings.mode != before.mode {
        // The export closes, and writes are still under way: each is answered as if the mode had changed before.
        group.primary.peer.promise_anew(&mut group.common, cx, MODE_CHANGED);
        if group.shown().state() == State::Holding {
            group.primary.peer.outbox.promise_from_here();
        }
    }
}

const MODE_CHANGED: &str = "the mode changed";

/// These settings count from now on; what counted before. Where they say something of the mode ladder, that is at its beginning.
fn take_settings(group: &mut Group, cx: &mut Cx, settings: Settings) -> Settings {
    let Group { common, primary, .. } = group;
    let before = *common.settings;
    if common.settings.set(settings) {
        end_lowering(primary, common, cx, before.mode, "the settings changed");
    }
    before
}

/// What is told of a sync over the peer as it was when that was ordered.
fn ordered_over(peer: Decision, has_image: bool, begins: &str) -> String {
    let besides = match peer {
        Decision::NeedsFullSync(why) if why.is_of_two_histories() => match has_image {
            true => {
                "; before it ends the peer saves what it overwrites there to a file ('farshore inspect'), unless that is given up there with \
                 'mark drop'"
            }
            false => "; the peer holds no whole image, so nothing of what it overwrites there is saved",
        },
        _ => "",
    };
    format!("{begins}{besides}")
}

/// It was typed: this node yields to nobody.
fn demote(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx, id: CommandId) {
    peer.yields_to = 0;
    peer.demote(common, cx, id);
}

fn set(group: &mut Group, cx: &mut Cx, id: CommandId, settings: Settings) {
    group.apply_settings(cx, settings);
    cx.answer(id, CommandResult::Done(String::new()));
}

fn forget_peaks(peer: &mut Peer, cx: &mut Cx, id: CommandId) {
    status::forget_peaks(peer);
    cx.answer(id, CommandResult::Done("the queue's peaks are counted from now on".into()));
}

fn bring_up_to_date(group: &mut Group, cx: &mut Cx, id: CommandId) {
    match open_choice(&group.primary.peer, &group.common) {
        Some(refusal) => cx.answer(id, CommandResult::Refused(refusal)),
        None => group.command_sync(cx, id, false, true),
    }
}

impl Group {
    /// `compares`: a full one sends only what differs.
    pub fn command_sync(&mut self, cx: &mut Cx, id: CommandId, full: bool, compares: bool) {
        if self.common.role() != Role::Primary {
            let why = "this node is the secondary; run 'sync' on the primary";
            return cx.refuse(id, RefusalCode::NotPrimary, why);
        }
        if self.common.settings.mode == Mode::Logging {
            let why = "the mode is 'logging'; first 'set GROUP mode=async' (or sync, nearsync)";
            return cx.refuse(id, RefusalCode::ModeLogging, why);
        }
        let Some(decision) = self.primary.peer.decision(&self.common) else {
            return self.primary.peer.sync_without_peer(&mut self.common, cx, id, full);
        };
        match decision {
            Decision::Refuse(why) => return cx.refuse(id, RefusalCode::HistoriesApart, format!("{why}")),
            Decision::NeedsFullSync(why) if !full => {
                return cx.refuse(id, RefusalCode::NeedsFullSync, format!("{why}"));
            }
            _ => {}
        }
        if self.primary.peer.greeting.hello().is_some_and(|h| h.failed) {
            return cx.refuse(id, RefusalCode::PeerFailed, PEER_FAILED);
        }
        if sync_has_nothing(&self.primary.peer, &self.common, full) {
            return cx.refuse(id, RefusalCode::LastInOrder, NOTHING_IN_ORDER);
        }
        // What somebody wrote here counts: nothing is fetched over it, whether the peer was asked already or not. A full sync that waits
        // for its turn may be taken back, and then what only the peer knows has to be asked for: it overrules when it begins.
        let overrules = full && cx.may_sync || self.common.sb.changed_outside;
        self.common.sb.sync_ordered();
        self.primary.peer.stall.ordered(cx.now.mono);
        if overrules {
            self.primary.peer.reconcile.ask_nothing(&mut self.common, cx);
        } else {
            self.primary.peer.reconcile.by_order(&mut self.common, cx);
        }
        let records_full = full && self.shown().keeps_permit();
        let in_step = self.shown().state().sends() && !full;
        if !in_step && !full {
            self.primary.peer.wanted.order_update();
        }
        let repairs = in_step && self.primary.peer.end_repairs_pause(cx.now.mono);
        if repairs {
            self.primary.try_autosync(&mut self.common, cx);
        }
        let under_way = under_way(&self.primary.peer, &self.common, full);
        if full && !records_full && under_way.is_none() {
            self.primary.peer.wanted.compares(compares);
        }
        let result = if repairs {
            let text = "the group is in step but for what could not be read, which is read again now";
            CommandResult::Done(text.into())
        } else if records_full {
            CommandResult::Done(FULL_UNDER_WAY.into())
        } else {
            let has_image = self.primary.peer.greeting.has_image();
            under_way.unwrap_or_else(|| CommandResult::Done(ordered_over(decision, has_image, self.begins(cx, full))))
        };
        self.common.save(cx, Some(AfterSuper::Answer { id, result }));
    }

    /// Clean stop begins; a change of role under way is finished first.
    pub fn stop(&mut self, cx: &mut Cx) {
        match self.common.lifecycle.phase() {
            Phase::Stopping { .. } | Phase::StopRecording | Phase::Stopped => {}
            Phase::Starting(_) => self.common.lifecycle.enter(Phase::Stopped),
            Phase::Demoting { .. } | Phase::Promoting(_) | Phase::RollingBack(_) | Phase::Recording => {
                self.stop_wanted = true;
            }
            Phase::Running => {
                handover::stop(self, cx);
                cx.out.push_back(Output::Serve { group: self.common.id(), open: false });
                self.common.never_served();
                let deadline = cx.now.mono.plus(limits::STOP_DRAIN);
                self.common.lifecycle.enter(Phase::Stopping { deadline });
                cx.timers.set(TimerKey::Group(self.common.id(), GroupTimer::Drain), deadline);
                if self.primary.peer.outbox.goes_by_snapshots() {
                    self.primary.fall_to_logging(&mut self.common, cx, "stopping");
                }
                self.proceed(cx);
            }
        }
    }

    /// Of a promotion nothing is on record yet; a rollback is taken up by the next start.
    fn stop_without_space(&mut self, cx: &mut Cx) {
        let why = "the node is being stopped, and a volume has no space for what has to be written first";
        if let Some(id) = self.common.lifecycle.promotion_under_way() {
            cx.refuse(id, RefusalCode::GroupStopping, why);
        }
        if self.common.lifecycle.is_rolling_back() {
            self.common.lifecycle.enter(Phase::Stopped);
        } else {
            self.common.lifecycle.enter(Phase::Running);
            self.stop(cx);
        }
    }

    /// Moves demotion, promotion and stop forward; called after every input.
    pub fn proceed(&mut self, cx: &mut Cx) {
        // A fault on purpose: goes on before what was to be recorded first is durable.
        while injected(Fault::RecordNotAwaited) && self.common.sb.awaits(|_| true) {
            let then = self.common.sb.take_followers();
            then.into_iter().for_each(|then| self.after_super(cx, then));
        }
        if self.stop_wanted && self.secondary.waits_for_space(&self.common) {
            self.stop_wanted = false;
            return self.stop_without_space(cx);
        }
        reset::proceed(self, cx);
        forks::proceed(self, cx);
        marks::proceed(self, cx);
        start::flushed(self, cx);
        if matches!(self.common.lifecycle.phase(), Phase::Running | Phase::Stopping { .. }) {
            proceed_delta(&mut self.secondary, &mut self.common, cx);
        }
        match self.common.lifecycle.phase() {
            Phase::Demoting { id, deadline } => self.proceed_demote(cx, id, deadline),
            Phase::Promoting(promotion) => self.proceed_promote(cx, promotion),
            Phase::RollingBack(_) => self.secondary.proceed_rollback(&mut self.common, cx),
            Phase::Stopping { deadline } => self.proceed_stop(cx, deadline),
            Phase::Running if core::mem::take(&mut self.stop_wanted) => self.stop(cx),
            Phase::Running => {
                handover::proceed(self, cx);
                self.secondary.proceed_sync_begin(&mut self.common, cx, &self.primary.peer.greeting);
                let tail = self.secondary.answer_tail(&mut self.common, cx);
                tail.into_iter().for_each(|tail| self.primary.peer.outbox.answers.tail(tail));
            }
            // Nothing can be recorded as clean; the next start sees an unclean stop.
            Phase::StopRecording if self.common.has_failed() => self.common.lifecycle.enter(Phase::Stopped),
            // It went on with a rollback, whose last record failed.
            Phase::Starting(_) if self.stop_wanted && self.common.has_failed() => {
                self.common.lifecycle.enter(Phase::Stopped);
            }
            Phase::Recording => handover::proceed(self, cx),
            Phase::Starting(_) | Phase::StopRecording | Phase::Stopped => {}
        }
        // A change of role that ends here ends without a further input.
        if matches!(self.common.lifecycle.phase(), Phase::Running) && core::mem::take(&mut self.stop_wanted) {
            self.stop(cx);
        }
    }

    pub fn proceed_stop(&mut self, cx: &mut Cx, deadline: Mono) {
        if self.common.sb.is_writing() {
            return;
        }
        if self.common.has_failed() {
            // Nothing can be recorded as clean; the next start sees an unclean stop. It also has to see what the caches lost:
            // that is tried again until the deadline.
            if !self.common.sb.has_lost_caches() || cx.now.mono >= deadline {
                self.common.lifecycle.enter(Phase::Stopped);
            }
            return;
        }
        if !self.common.marks.is_durable() {
            return;
        }
        if self.common.role() == Role::Primary && !self.primary.peer.outbox.log.has(self.common.numbers.last()) {
            // A clean stop says which number was the last: the log has to have it. Nobody waits for the number of a mark but this.
            if cx.now.mono >= deadline && self.primary.peer.outbox.log.gates() {
                logging::close(&mut self.primary.peer.outbox, &mut self.common, cx, "the node is being stopped");
            }
            return;
        }
        let waits = self.secondary.replica.paused().is_some() || self.secondary.replica.awaits_delta();
        if waits && cx.now.mono >= deadline {
            // What it waits for may never come; the journal keeps the rest for the next start.
            self.common.lifecycle.enter(Phase::Stopped);
            return;
        }
        let drained = match self.common.role() {
            Role::Primary => {
                let overdue = cx.now.mono >= deadline;
                if overdue {
                    // Also who has come to his position in the order since.
                    self.primary.fail_waiting(&mut self.common, cx);
                    self.primary.abort_sync(&mut self.common, cx);
                }
                self.common.is_at_rest(cx)
                    && self.primary.peer.reconcile.pulled_is_durable(&mut self.common, cx)
                    && (overdue || !self.primary.peer.outbox.peer_is_behind())
            }
            Role::Secondary => {
                if !self.secondary.replica.is_streaming() || cx.now.mono >= deadline {
                    self.secondary.replica.give_up_unlanded(&mut self.common, cx);
                }
                self.secondary.replica.replica_at_rest(&mut self.common, cx)
            }
        };
        if drained {
            self.common.lifecycle.enter(Phase::StopRecording);
            self.common.bits().save_exactly(cx, AfterBits::Stopped);
        }
    }

    /// The dirty regions are durable.
    pub fn after_bits(&mut self, cx: &mut Cx, then: AfterBits) {
        match then {
            AfterBits::Started => self.common.start().bits_started(cx),
            // It broke meanwhile, perhaps of an operation that the stop did not wait for: the next start sees an unclean one.
            AfterBits::Stopped if self.common.has_failed() => self.common.lifecycle.enter(Phase::Stopped),
            AfterBits::Stopped => {
                let identity = self.shown().identity();
                self.common.sb.stops_cleanly(identity);
                self.common.save(cx, Some(AfterSuper::Stopped));
            }
            AfterBits::Demote { .. } if self.handover.is_at(HandoverStage::Storing) => handover::record(self, cx),
            AfterBits::Demote { id } => self.record_demotion(cx, id),
            AfterBits::Promote { promotion, peer_ahead } => self.record_promotion(cx, promotion, peer_ahead),
            AfterBits::FullSync => {
                if self.primary.peer.wants_full(&self.common) {
                    // All of it is dirty on record: nothing is taken for equal any more.
                    if self.common.sb.doubts(CopyDoubts::default()) {
                        self.common.save(cx, None);
                    }
                    verify::begins_anew(&mut self.primary.peer, &self.common, cx, "all of it is sent again");
                }
                self.primary.peer.begin_full_sync(&mut self.common, cx);
            }
            AfterBits::Rollback => self.secondary.record_rollback(&mut self.common, cx),
            AfterBits::Joined { question } if self.primary.peer.reconcile.is_asking(question) => {
                let Peer { reconcile, greeting, .. } = &mut self.primary.peer;
                if reconcile.bits_joined(&mut self.common, greeting) {
                    self.primary.meet_if_apart(&mut self.common, cx);
                }
            }
            AfterBits::Pull { question } if self.primary.peer.reconcile.is_asking(question) => {
                self.primary.reconcile_by(&mut self.common, cx, |peer, common, cx, decision| {
                    peer.reconcile.begin_pull(common, cx, decision)
                });
            }
            AfterBits::Union { question } => self.secondary.union_stored(&mut self.common, cx, Seq(question)),
            // Asked anew meanwhile: what that answer says is stored by itself.
            AfterBits::Joined { .. } | AfterBits::Pull { .. } => {}
        }
    }
}
