//! A group that failed is started anew within the running node (rule 12): by the same steps as at a daemon's start, from what is on record.
//!
//! ```text
//! order -> Draining (what is under way ends) -> Reopening (the host closes the stores and opens them) -> Starting -> Meeting -> over
//! ```
//! Nothing of the failed run's memory goes into the new one but what no record tells: that caches lost something. What must hold:
//!
//! * stores are closed while nothing is asked of them, and opened before anything is asked again;
//! * within a session both halves greet anew, and all that was under way before that counts for nothing;
//! * a primary's export stays closed as long as the peer, which is connected, may be primary.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::mem;
use core::time::Duration;

use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::identity::{Identity, Role};
use crate::formats::wire::{FrameHeader, FrameKind, GroupHello};
use crate::group::{Group, forks, handover};
use crate::ids::{CommandId, mix};
use crate::injected_fault::{Fault, injected};
use crate::peer::reconcile::CLOSED_BESIDE_PRIMARY;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::FrameRound;
use crate::shared::lifecycle::{AfterRollback, Phase, StartStage};
use crate::time::Mono;
use crate::{CommandResult, FramePayload, GroupConfig, Output, RefusalCode, StartAlone, limits};

const STOPPING: &str = "the daemon is being stopped, and its next start is a reset";

/// Behind the reason why a reset came to nothing.
pub(super) const NOT_ON_RECORD: &str =
    "; that a flush failed is not on record: do not restart the daemon or the machine before a reset has succeeded";

/// Why a peer's stream ends.
const PEER_RESET: &str = "the peer's half of the group was reset";

/// How far a reset has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResetStage {
    Draining,
    Reopening,
    Starting,
    /// It runs, and the peer, which is connected, has not said who it is since then: the export waits.
    Meeting {
        since: Mono,
    },
}

/// A group that is being reset.
#[derive(Debug)]
pub(crate) struct GroupReset {
    stage: ResetStage,
    /// Who is told what comes of it.
    askers: Vec<CommandId>,
    entropy: u64,
    /// The peer was primary when it was heard last.
    peer_serves: bool,
}

/// What a group that leaves its node knows and no record tells. It counts if the group comes again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeftBehind {
    /// Its caches lost something.
    lost: bool,
    peer_served: bool,
    was_linked: bool,
}

// ---- the order -------------------------------------------------------------------------------------------------------

pub(super) fn command(group: &mut Group, cx: &mut Cx, id: CommandId, entropy: u64) {
    if matches!(group.common.lifecycle.phase(), Phase::Stopping { .. } | Phase::StopRecording | Phase::Stopped) {
        return cx.refuse(id, RefusalCode::GroupStopping, STOPPING);
    }
    if let Some(reset) = group.reset.as_mut().filter(|reset| !matches!(reset.stage, ResetStage::Meeting { .. })) {
        return reset.askers.push(id);
    }
    if !group.common.has_failed() {
        return cx.answer(id, CommandResult::Unchanged("the group has not failed; nothing to do".into()));
    }
    cx.coverage.hit(CoveragePoint::GroupReset);
    group.reset = Some(GroupReset { stage: ResetStage::Draining, askers: vec![id], entropy, peer_serves: false });
    cx.out.push_back(Output::Serve { group: group.common.id(), open: false });
    // Once more: a machine that loses its power in the middle of the reset has nothing else to know it by.
    group.common.record_again(cx);
}

/// Moves a reset forward; called after every input.
pub(super) fn proceed(group: &mut Group, cx: &mut Cx) {
    let Some(reset) = &group.reset else { return };
    let stage = reset.stage;
    if matches!(group.common.lifecycle.phase(), Phase::Stopping { .. } | Phase::StopRecording | Phase::Stopped) {
        return is_stopped(group, cx, stage);
    }
    match stage {
        ResetStage::Draining if is_at_rest(group) => {
            enters(group, ResetStage::Reopening);
            cx.out.push_back(Output::Reopen { group: group.common.id() });
        }
        ResetStage::Starting | ResetStage::Meeting { .. } if group.common.has_failed() => {
            let why = format!("the group has failed: {}", group.common.standing.why());
            gives_up(group, cx, RefusalCode::GroupFailed, &why);
        }
        _ => {}
    }
}

fn enters(group: &mut Group, stage: ResetStage) {
    if let Some(reset) = &mut group.reset {
        reset.stage = stage;
    }
}

/// The node stops. Stores that are closed stay so: nothing more is recorded, and the next start sees a kill.
fn is_stopped(group: &mut Group, cx: &mut Cx, stage: ResetStage) {
    if stage == ResetStage::Reopening {
        let askers = group.reset.as_mut().map(|reset| mem::take(&mut reset.askers)).unwrap_or_default();
        askers.into_iter().for_each(|id| cx.refuse(id, RefusalCode::GroupStopping, STOPPING));
        return group.common.lifecycle.enter(Phase::Stopped);
    }
    gives_up(group, cx, RefusalCode::GroupStopping, STOPPING);
}

/// Whoever ordered it is told; what the failed group still has to record is tried again.
fn gives_up(group: &mut Group, cx: &mut Cx, code: RefusalCode, why: &str) {
    let askers = group.reset.take().map(|reset| reset.askers).unwrap_or_default();
    askers.into_iter().for_each(|id| cx.refuse(id, code, why));
    if group.common.sb.has_lost_caches() {
        group.common.set_timer(cx, GroupTimer::RecordAgain, limits::RECORD_AGAIN_AFTER);
    }
}

/// What the failed run had asked for has ended, and whoever waited for it was answered.
fn is_at_rest(group: &Group) -> bool {
    let busy = !matches!(
        group.common.lifecycle.phase(),
        Phase::Running | Phase::Starting(_) | Phase::RollingBack(AfterRollback::Start)
    );
    !busy && (group.common.slots.are_idle() || injected(Fault::ResetUndrained))
}

/// The failed run only ends what it has begun.
pub(super) fn comes_to_rest(group: &Group) -> bool {
    let stage = group.reset.as_ref().map(|reset| reset.stage);
    matches!(stage, Some(ResetStage::Draining | ResetStage::Reopening))
}

/// Its stores are being closed and opened.
pub(crate) fn is_closed(group: &Group) -> bool {
    group.reset.as_ref().is_some_and(|reset| reset.stage == ResetStage::Reopening)
}

// ---- the new run -----------------------------------------------------------------------------------------------------

/// The stores are open again, or cannot be: the group begins to start, as at a daemon's start.
pub(crate) fn reopened(group: &mut Group, cx: &mut Cx, opened: Result<Box<GroupConfig>, String>) {
    if !is_closed(group) {
        return;
    }
    if group.common.lifecycle.has_stopped() {
        // The node stopped meanwhile, or the group leaves it.
        group.reset = None;
        return;
    }
    let (before, settings) = (&group.common.config, *group.common.settings.as_set());
    let (config, refused) = match opened {
        Ok(config) => {
            let has_shape = (config.id, config.peer) == (before.id, before.peer);
            assert!(has_shape && config.volumes.len() == before.volumes.len(), "the group is the one that it was");
            (*config, None)
        }
        Err(why) => (before.clone(), Some(why)),
    };
    let config = GroupConfig { settings, ..config };
    for timer in GroupTimer::ALL {
        cx.timers.clear(TimerKey::Group(group.common.id(), timer));
    }
    answer_flushes(group, cx);
    handover::is_reset(group, cx);
    let mut before = mem::replace(group, Group::new(group.common.node, config));
    // What others count of it goes on.
    (group.counted_bytes, group.counted_use) = (before.counted_bytes, before.counted_use);
    group.common.memory = mem::take(&mut before.common.memory);
    group.common.counters = before.common.counters;
    group.common.standing = mem::replace(&mut before.common.standing, crate::shared::standing::Standing::new());
    (group.reset, group.link_comes) = (before.reset.take(), before.link_comes);
    let lost = before.common.sb.lost_unrecorded() && !injected(Fault::ResetForgetsLoss);
    group.common.sb.follows_loss(lost);
    group.primary.peer.reconcile.follows(&before.primary.peer.reconcile);
    let served_last = before.primary.peer.greeting.served_last();
    group.primary.peer.greeting.follows(served_last);
    if let Some(reset) = &mut group.reset {
        (reset.stage, reset.peer_serves) = (ResetStage::Starting, served_last);
    }
    if let Some(why) = refused {
        let why = format!("{why}{}", if lost { NOT_ON_RECORD } else { "" });
        cx.coverage.hit(CoveragePoint::ResetRefused);
        let known = before.common.sb.durable();
        group.refuse(why, Some(known).filter(|known| *known != Identity::default()));
    }
    if cx.peer.link.is_some() {
        cx.coverage.hit(CoveragePoint::ResetWhileConnected);
        begin_round(group, cx, before.primary.peer.greeting.round() + 1);
    }
    group.primary.peer.report_state(&mut group.common, cx, "the group was reset");
}

/// What is left of a group that leaves its node. `is_linked`: with its peer.
pub(crate) fn leaves(group: &Group, is_linked: bool) -> LeftBehind {
    let served = group.primary.peer.greeting.served_last();
    LeftBehind {
        lost: group.common.sb.lost_unrecorded() && !injected(Fault::ResetForgetsLoss),
        peer_served: served || group.reset.as_ref().is_some_and(|reset| reset.peer_serves),
        was_linked: is_linked || group.link_comes,
    }
}

/// A group that left comes again: it starts as one that was reset. `refused`: it is not taken up.
pub(crate) fn comes_again(
    group: &mut Group,
    left: LeftBehind,
    entropy: u64,
    refused: Option<(String, Option<Identity>)>,
) {
    group.common.sb.follows_loss(left.lost);
    group.primary.peer.greeting.follows(left.peer_served);
    group.link_comes = left.was_linked;
    match refused {
        Some((why, recorded)) => group.refuse(format!("{why}{}", if left.lost { NOT_ON_RECORD } else { "" }), recorded),
        None => {
            let (stage, peer_serves) = (ResetStage::Starting, left.peer_served);
            group.reset = Some(GroupReset { stage, askers: Vec::new(), entropy, peer_serves });
        }
    }
}

/// Flushes that nothing serves any more are answered as in any failed group.
fn answer_flushes(group: &mut Group, cx: &mut Cx) {
    let waiters: Vec<_> = group.common.volumes.iter_mut().flat_map(|volume| volume.flushes.take_waiters()).collect();
    group.common.answer_flushes(cx, waiters, false);
}

/// It waits for a permit to start.
pub(crate) fn wants_start(group: &Group) -> bool {
    let starts = group.reset.as_ref().is_some_and(|reset| reset.stage == ResetStage::Starting);
    starts && group.common.lifecycle.is_at(StartStage::Idle)
}

/// What seeds the tags of this run's generations.
pub(super) fn entropy(group: &Group, of_node: u64) -> u64 {
    group.reset.as_ref().map_or(of_node, |reset| mix(reset.entropy, u64::from(group.common.id().0)))
}

/// The start is on record. True: when the export opens is seen to.
pub(super) fn is_ready(group: &mut Group, cx: &mut Cx) -> bool {
    let Some(reset) = &mut group.reset else { return false };
    let role = group.common.role();
    let asks = role == Role::Primary && group.common.sb.needs_verification() && !group.common.sb.served_unverified;
    let follows = if asks { ": what its caches lost may be with the peer, which is asked for it" } else { "" };
    let text = format!("reset; the group has started anew, as {}{follows}", role.word());
    for id in mem::take(&mut reset.askers) {
        cx.answer(id, CommandResult::Done(text.clone()));
    }
    // It may have said so while the group started, and be gone again.
    reset.peer_serves |= group.primary.peer.greeting.served_last();
    let meets = role == Role::Primary && (cx.peer.link.is_some() || reset.peer_serves || group.link_comes);
    if !meets || injected(Fault::ResetServesAtOnce) {
        group.reset = None;
        return false;
    }
    reset.stage = ResetStage::Meeting { since: cx.now.mono };
    group.common.fence_until_met(cx);
    open_when_met(group, cx);
    true
}

// ---- the peer --------------------------------------------------------------------------------------------------------

/// The export waits until the peer has said who it is.
pub(super) fn has_to_meet(group: &Group) -> bool {
    group.common.awaits_peer()
}

/// Opens the export of a primary that was reset as any start does, but not beside a peer that is seen, or was seen last, to be primary.
pub(super) fn open_when_met(group: &mut Group, cx: &mut Cx) {
    let Some(GroupReset { stage: ResetStage::Meeting { since }, peer_serves, .. }) = &mut group.reset else { return };
    if !group.common.awaits_peer() || group.common.has_failed() {
        // Demoted since, or failed: what opens it then begins anew.
        group.reset = None;
        return;
    }
    if !group.common.lifecycle.is_running() {
        return;
    }
    let (greeting, is_linked) = (&group.primary.peer.greeting, cx.peer.link.is_some());
    let is_unfit = greeting.unfit().is_some();
    if greeting.hello().is_some() {
        *peer_serves = group.primary.peer.reconcile.is_beside_primary(&group.common, greeting);
    } else if is_unfit {
        *peer_serves = greeting.served_last();
    }
    *peer_serves &= group.common.settings.start_alone != StartAlone::Serve;
    if (greeting.serves() || is_unfit) && *peer_serves {
        cx.coverage.hit(CoveragePoint::ResetBesidePrimary);
        *since = cx.now.mono;
        if !is_unfit {
            group.common.standing.explain(CLOSED_BESIDE_PRIMARY);
        }
        return group.common.set_timer(cx, GroupTimer::StartAlone, limits::START_ALONE_AGAIN);
    }
    let alone = match group.common.settings.start_alone {
        StartAlone::Wait(wait) if *peer_serves => wait,
        _ => Duration::ZERO,
    };
    let unheard = (is_linked || group.link_comes) && greeting.is_missing();
    let wait = alone.max(if unheard { limits::GREETING_LATE_AFTER } else { Duration::ZERO });
    let (now, at) = (cx.now.mono, since.plus(wait));
    // Who it is may be on its way over a path that carries nothing right now: the link ends, or it is heard.
    let is_silent = unheard && is_linked && cx.peer.silent_for(now) > cx.peer.suspect_after();
    let at = if is_silent { at.max(now.plus(limits::START_ALONE_AGAIN)) } else { at };
    if now < at {
        return cx.timers.set(TimerKey::Group(group.common.id(), GroupTimer::StartAlone), at);
    }
    (group.reset, group.link_comes) = (None, false);
    group.common.close_export();
    let peer = &mut group.primary.peer;
    peer.reconcile.open_or_fence(&mut group.common, cx, &peer.greeting);
}

/// The halves meet as if they never had. `round`: how often one of them was reset within this session.
pub(super) fn begin_round(group: &mut Group, cx: &mut Cx, round: u64) {
    group.secondary.primary_report.is_past();
    group.primary.peer.session_begins(cx);
    group.primary.peer.greeting.begin_round(round);
    group.common.window.new_session();
    group.secondary.window.new_session();
    if let Some(GroupReset { stage: ResetStage::Meeting { since }, .. }) = &mut group.reset {
        // It is heard from here on.
        *since = cx.now.mono;
    }
    if group.common.is_starting() || group.common.lifecycle.has_stopped() {
        return;
    }
    group.secondary.new_session();
    group.say_hello(cx, FrameKind::GroupHello);
    group.common.set_timer(cx, GroupTimer::Greeting, limits::GREETING_LATE_AFTER);
    // An order that was given to the halves as they were is none for these.
    forks::proceed(group, cx);
}

/// Whether a frame counts. One that says that the peer's half was reset makes both halves meet anew, as after a restart there.
pub(super) fn is_of_this_round(group: &mut Group, cx: &mut Cx, header: &FrameHeader, payload: &FramePayload) -> bool {
    match group.primary.peer.greeting.round_of(header) {
        FrameRound::Present => true,
        FrameRound::Past => {
            hears_of_role(group, header, payload);
            false
        }
        FrameRound::Next(round) => {
            cx.coverage.hit(CoveragePoint::PeerReset);
            group.link_down(cx, PEER_RESET);
            begin_round(group, cx, round);
            true
        }
    }
}

/// Of what the peer said before it heard of the reset one thing counts: whether it is primary, until it says that again.
fn hears_of_role(group: &mut Group, header: &FrameHeader, payload: &FramePayload) {
    let says_who = matches!(header.kind, FrameKind::GroupHello | FrameKind::GroupState);
    let hello = Some(payload).filter(|_| says_who).and_then(|payload| GroupHello::decode(payload.control()));
    let Some(hello) = hello else { return };
    let serves = hello.identity.role == Role::Primary && !hello.failed;
    // The start may fail before it counts: the next one has to know it as well.
    group.primary.peer.greeting.follows(serves);
    if let Some(reset) = &mut group.reset {
        reset.peer_serves = serves;
    }
}

impl GroupReset {
    /// For operators: what a group that is being reset waits for.
    pub fn words(&self) -> Option<String> {
        match self.stage {
            ResetStage::Draining => Some("a reset waits for the group's disks to end what is under way".into()),
            ResetStage::Reopening => Some("a reset opens the group's devices and files again".into()),
            ResetStage::Starting | ResetStage::Meeting { .. } => None,
        }
    }
}
