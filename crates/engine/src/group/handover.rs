//! A switchover: a primary hands over to its peer and nothing is lost (rule 15).
//!
//! ```text
//! idle -> draining   requests are held, nothing new enters the order; all else goes on
//!      -> storing    both nodes are equal: the dirty regions are stored, of which there are none
//!      -> recording  the point of no return: held requests fail, the export closes, the role is being recorded
//!      -> granted    this node is secondary on record, and the peer hears that it may go on
//!      -> idle       the peer is primary, or was not heard
//! ```
//! Before the point of no return whatever stands in the way leads back: the held requests go on in the order in which they came. After it
//! this node stays secondary. Whoever loses the grant on the way is told by the record of either node: the old primary stands there as one
//! that handed over, and its peer may be promoted without force once the two meet.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::identity::{Decision, Role};
use crate::formats::wire::FrameKind;
use crate::group::Group;
use crate::group::demotion::{become_secondary, save_demotion};
use crate::ids::{CommandId, NodeId, RequestId, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::peer::orders::open_choice;
use crate::peer::repair::reads_regions;
use crate::records::bits::AfterBits;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::PEER_FAILED;
use crate::shared::lifecycle::Phase;
use crate::shared::wakes::Wake;
use crate::state::{Mode, State};
use crate::status::{HandoverStage, HandoverStatus};
use crate::time::Mono;
use crate::{Command, CommandResult, Event, IoError, Output, Refusal, RefusalCode, Request, Settings, limits};

/// The legal edges. `None`: no switchover is under way.
///
/// | from | to | when |
/// |---|---|---|
/// | idle | draining | an operator |
/// | idle | granted | an operator again, at a node that has handed over already |
/// | draining | storing | both nodes are equal |
/// | storing | recording | they still are: the point of no return |
/// | recording | granted | the demotion is on record |
/// | any | idle | the peer is primary; the way back; a store failed |
fn legal(from: Option<HandoverStage>, to: Option<HandoverStage>) -> bool {
    use HandoverStage::*;
    match (from, to) {
        (None, Some(to)) => matches!(to, Draining | Granted),
        (Some(Draining), Some(to)) => to == Storing,
        (Some(Storing), Some(to)) => to == Recording,
        (Some(Recording), Some(to)) => to == Granted,
        (Some(Granted), Some(_)) => false,
        (from, None) => from.is_some(),
    }
}

/// What an operator wants: `to` is to be the primary; `limit`: for how long clients may be held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandoverOrder {
    pub to: NodeId,
    pub limit: Duration,
    pub closes_export: bool,
    pub only_asks: bool,
}

/// A request that waits for what becomes of the switchover.
struct HeldRequest {
    volume: VolumeId,
    id: RequestId,
    request: Request,
}

/// The switchover of a group, on the node that hands over.
pub(crate) struct Handover {
    stage: Option<HandoverStage>,
    /// Who waits for the answer.
    id: CommandId,
    /// When it gives up.
    deadline: Mono,
    /// The export is closed as long as it lasts.
    closed_export: bool,
    /// In the order in which they came. As many as the front end has buffers for: they are its clients' memory.
    held: VecDeque<HeldRequest>,
    /// What was set when the group left running: what is set meanwhile is acted upon should it come back.
    settings: Option<Settings>,
}

impl Handover {
    pub fn new() -> Handover {
        Handover {
            stage: None,
            id: CommandId(0),
            deadline: Mono(0),
            closed_export: false,
            held: VecDeque::new(),
            settings: None,
        }
    }

    /// The only way from one stage to another.
    fn enter(&mut self, to: Option<HandoverStage>) {
        assert!(cfg!(feature = "injected-faults") || legal(self.stage, to), "{:?} -> {to:?}", self.stage);
        self.stage = to;
    }

    /// What it was about is over, and somebody else has answered for it.
    pub fn ends(&mut self) {
        if self.stage.is_some() {
            self.enter(None);
        }
        self.settings = None;
    }

    pub fn is_at(&self, stage: HandoverStage) -> bool {
        self.stage == Some(stage)
    }

    /// Requests wait, and nothing has been decided.
    pub fn holds(&self) -> bool {
        matches!(self.stage, Some(HandoverStage::Draining | HandoverStage::Storing))
    }

    pub fn stage(&self) -> Option<HandoverStage> {
        self.stage
    }

    pub fn status(&self, to: NodeId, now: Mono) -> Option<HandoverStatus> {
        let stage = self.stage?;
        Some(HandoverStatus { to, stage, held_requests: self.held.len() as u64, ends_in: self.deadline.since(now) })
    }

    pub fn check_invariants(&self, role: Role) {
        assert!(self.held.is_empty() || self.holds(), "requests are held before the point of no return only");
        assert!(!self.holds() || role == Role::Primary, "a primary hands over");
        assert!(!self.is_at(HandoverStage::Granted) || role == Role::Secondary, "who granted is secondary");
    }
}

// ---- it begins ---------------------------------------------------------------------------------------------------------

pub(crate) fn command(group: &mut Group, cx: &mut Cx, id: CommandId, order: HandoverOrder) {
    let (common, to) = (&group.common, order.to);
    let here = to == common.node;
    if !here && to != common.config.peer {
        return cx.refuse(id, RefusalCode::NotInGroup, "that node is none of the group's two");
    }
    match (common.role(), here) {
        (Role::Primary, true) => {
            cx.answer(id, CommandResult::Unchanged("already primary; nothing to do".into()));
        }
        (Role::Primary, false) => begin(group, cx, id, order),
        (Role::Secondary, true) => {
            let why = match group.primary.peer.greeting.is_primary() {
                true => "this node is the secondary; type 'switchover' on the primary, which is the peer",
                false => {
                    "this node is the secondary, and so may the peer be: 'farshore promote GROUP' here says what stands in the way"
                }
            };
            cx.refuse(id, RefusalCode::NotPrimary, why);
        }
        (Role::Secondary, false) => grant_again(group, cx, id, order.only_asks),
    }
}

fn begin(group: &mut Group, cx: &mut Cx, id: CommandId, order: HandoverOrder) {
    if let Some(refusal) = obstacle(group, cx).or_else(|| not_in_step(group)) {
        return cx.answer(id, CommandResult::Refused(refusal));
    }
    if order.only_asks {
        return cx.answer(id, CommandResult::Done(NOTHING_IN_ITS_WAY.into()));
    }
    cx.coverage.hit(CoveragePoint::SwitchoverBegan);
    let handover = &mut group.handover;
    handover.enter(Some(HandoverStage::Draining));
    (handover.id, handover.closed_export) = (id, order.closes_export);
    if order.closes_export {
        cx.out.push_back(Output::Serve { group: group.common.id(), open: false });
    }
    awaits(group, cx, order.limit.min(limits::HANDOVER_LIMIT_MAX));
}

/// Looks again when the time is over.
fn awaits(group: &mut Group, cx: &mut Cx, limit: Duration) {
    group.handover.deadline = cx.now.mono.plus(limit);
    cx.timers.set(TimerKey::Group(group.common.id(), GroupTimer::Drain), group.handover.deadline);
}

/// Typed at a secondary whose peer is to be the primary: it is that already, or may have missed the grant.
fn grant_again(group: &mut Group, cx: &mut Cx, id: CommandId, only_asks: bool) {
    let greeting = &group.primary.peer.greeting;
    if greeting.is_primary() {
        return cx.answer(id, CommandResult::Unchanged("the peer is primary already; nothing to do".into()));
    }
    if cx.peer.link.is_none() {
        let why = "the peer is not connected, and this node is the secondary: what the peer is, is not known";
        return cx.refuse(id, RefusalCode::PeerAway, why);
    }
    if greeting.hello().is_none() {
        let why = "the peer is connected, but its half of the group has not said who it is (see 'status' there)";
        return cx.refuse(id, RefusalCode::PeerSilent, why);
    }
    if !group.common.sb.identity.handed_over {
        let why = "neither node is primary, and this one has not handed over: promote the one whose content counts \
                   ('farshore promote GROUP' there)";
        return cx.refuse(id, RefusalCode::NotPrimary, why);
    }
    if only_asks {
        return cx.answer(id, CommandResult::Done(NOTHING_IN_ITS_WAY.into()));
    }
    cx.coverage.hit(CoveragePoint::GrantedAgain);
    group.handover.enter(Some(HandoverStage::Granted));
    group.handover.id = id;
    awaits(group, cx, limits::GRANT_LIMIT);
    group.say_hello(cx, FrameKind::GroupState);
}

// ---- what stands in its way ----------------------------------------------------------------------------------------------

/// The answer to whoever only asks.
const NOTHING_IN_ITS_WAY: &str = "nothing stands in the way of a switchover now";

/// What no waiting helps against: it is refused for that, and given up once it has begun.
fn obstacle(group: &Group, cx: &Cx) -> Option<Refusal> {
    let (common, peer) = (&group.common, &group.primary.peer);
    let refusal = |code, why: &str| Some(Refusal::new(code, why));
    if common.settings.mode == Mode::Logging {
        let why = "the mode is 'logging'; first 'set GROUP mode=async' (or sync, nearsync)";
        return refusal(RefusalCode::ModeLogging, why);
    }
    if cx.peer.link.is_none() {
        return refusal(RefusalCode::PeerAway, "the peer is not connected");
    }
    if let Some(unfit) = peer.greeting.unfit() {
        return refusal(RefusalCode::PeerUnfit, unfit);
    }
    let Some(hello) = peer.greeting.hello() else {
        let why = "the peer is connected, but its half of the group has not said who it is (see 'status' there)";
        return refusal(RefusalCode::PeerSilent, why);
    };
    if hello.failed {
        return refusal(RefusalCode::PeerFailed, PEER_FAILED);
    }
    if hello.identity.role == Role::Primary {
        return refusal(RefusalCode::HistoriesApart, "the peer is primary too");
    }
    let in_order = matches!(peer.state(common), State::Replicating | State::CatchingUp | State::Paused(_));
    let is_whole = peer.greeting.has_image() && !common.sb.needs_verification();
    if !in_order || peer.outbox.syncs() || !is_whole {
        return not_in_step(group).or_else(|| refusal(RefusalCode::NotInStep, "the copy on the peer is no image yet"));
    }
    if let Some(named) = common.sb.aside.named() {
        let why = format!("the group's order is without {named}: it rejoins by 'farshore sync GROUP --volume NAME'");
        return refusal(RefusalCode::VolumeAside, &why);
    }
    None
}

/// Why clients would be held for longer than a moment.
fn not_in_step(group: &Group) -> Option<Refusal> {
    let (common, peer) = (&group.common, &group.primary.peer);
    if let Some(refusal) = open_choice(peer, common) {
        return Some(refusal);
    }
    match peer.decision(common) {
        Some(Decision::NeedsFullSync(why)) => return Some(Refusal::new(RefusalCode::NeedsFullSync, format!("{why}"))),
        Some(Decision::Refuse(why)) => return Some(Refusal::new(RefusalCode::HistoriesApart, format!("{why}"))),
        _ => {}
    }
    let (state, why) = (peer.state(common), common.standing.why());
    let why = match state {
        State::Replicating if reads_regions(peer) => {
            "what could not be written or read here is not at the peer yet; see 'farshore status GROUP'".into()
        }
        State::Replicating if !common.serves() => "the export is not open yet".into(),
        State::Replicating => return None,
        State::Syncing => "a sync to the peer is under way; 'farshore wait GROUP' waits for it".into(),
        State::CatchingUp => "the peer is catching up; 'farshore wait GROUP' waits for it".into(),
        state if why.is_empty() => format!("the group is {state}"),
        state => format!("the group is {state}: {why}"),
    };
    Some(Refusal::new(RefusalCode::NotInStep, format!("the peer is not in step: {why}")))
}

// ---- it goes on ----------------------------------------------------------------------------------------------------------

/// A client's request is held, if it is; it is given back if not.
pub(crate) fn hold(group: &mut Group, volume: VolumeId, id: RequestId, request: Request) -> Option<Request> {
    if !group.handover.holds() || group.common.has_failed() {
        return Some(request);
    }
    group.handover.held.push_back(HeldRequest { volume, id, request });
    None
}

/// After every input of a group that runs, or records a demotion.
pub(crate) fn proceed(group: &mut Group, cx: &mut Cx) {
    match group.handover.stage {
        Some(HandoverStage::Draining) => drain(group, cx),
        Some(HandoverStage::Granted) => await_peer(group, cx),
        Some(HandoverStage::Storing) if cx.now.mono >= group.handover.deadline => not_stored(group, cx),
        Some(HandoverStage::Storing | HandoverStage::Recording) | None => {}
    }
}

fn drain(group: &mut Group, cx: &mut Cx) {
    if let Some(refusal) = obstacle(group, cx) {
        return roll_back(group, cx, refusal);
    }
    let Group { common, primary, .. } = &mut *group;
    // Each sees to what it waits for.
    let is_flushed = common.is_at_rest(cx) && primary.peer.reconcile.pulled_is_durable(common, cx);
    if is_flushed && is_equal(group) {
        return store(group, cx);
    }
    if cx.now.mono >= group.handover.deadline {
        let why = match group.primary.peer.state(&group.common) {
            State::Paused(pause) => pause.words(),
            _ => "the peer did not have everything in time",
        };
        roll_back(group, cx, overdue(why));
    }
}

/// The peer has applied the last number, and nothing here differs from it.
fn is_equal(group: &Group) -> bool {
    let (common, peer) = (&group.common, &group.primary.peer);
    let in_order = matches!(peer.state(common), State::Replicating | State::CatchingUp);
    in_order && peer.outbox.is_in_step(common) && !reads_regions(peer)
}

fn store(group: &mut Group, cx: &mut Cx) {
    group.handover.enter(Some(HandoverStage::Storing));
    group.handover.settings = Some(*group.common.settings.as_set());
    group.common.lifecycle.enter(Phase::Recording);
    let id = group.handover.id;
    group.common.bits().save_exactly(cx, AfterBits::Demote { id });
}

/// A disk takes its time: nobody is held for that any longer.
fn not_stored(group: &mut Group, cx: &mut Cx) {
    cx.coverage.hit(CoveragePoint::HandoverNotStored);
    group.common.bitmap.forget(|then| matches!(then, AfterBits::Demote { .. }));
    if group.common.has_failed() {
        return record(group, cx);
    }
    roll_back(group, cx, overdue("the disk of this node's state did not store in time that nothing is dirty"));
}

fn overdue(why: &str) -> Refusal {
    Refusal::new(RefusalCode::HandoverTimeout, why)
}

/// The bits are stored. If both nodes are still equal, this is the point of no return.
pub(crate) fn record(group: &mut Group, cx: &mut Cx) {
    if let Some(broken) = group.common.lifecycle.broken() {
        group.handover.ends();
        group.common.lifecycle.enter(Phase::Running);
        return cx.refuse(group.handover.id, RefusalCode::StoreFailed, broken.words());
    }
    if cx.now.mono >= group.handover.deadline {
        return not_stored(group, cx);
    }
    let differs = || Refusal::new(RefusalCode::NotInStep, "the peer fell out of step in the last moment");
    if let Some(refusal) = obstacle(group, cx).or_else(|| (!is_equal(group)).then(differs)) {
        cx.coverage.hit(CoveragePoint::HandoverBackFromStoring);
        return roll_back(group, cx, refusal);
    }
    group.handover.enter(Some(HandoverStage::Recording));
    group.handover.settings = None;
    cx.out.push_back(Output::Serve { group: group.common.id(), open: false });
    fail_held(group, cx);
    let Group { common, primary, .. } = &mut *group;
    primary.peer.reconcile.stop(common);
    primary.peer.wanted.forget_orders();
    let id = group.handover.id;
    become_secondary(group, cx, true, "handed over to the peer");
    save_demotion(group, cx, id, String::new(), false);
    if injected(Fault::GrantBeforeRecord) {
        say_unrecorded(group, cx);
    }
}

/// A fault on purpose.
fn say_unrecorded(group: &Group, cx: &mut Cx) {
    if let Some(link) = cx.peer.link {
        let mut hello = group.shown().hello();
        (hello.identity, hello.grants) = (group.shown().identity(), true);
        cx.send_control(link, FrameKind::GroupState, group.common.id(), hello.encode());
    }
}

/// The demotion is on record.
pub(crate) fn grant(group: &mut Group, cx: &mut Cx) {
    cx.coverage.hit(CoveragePoint::Granted);
    group.common.lifecycle.enter(Phase::Running);
    group.handover.enter(Some(HandoverStage::Granted));
    cx.event(group.common.id(), Event::Demoted);
    awaits(group, cx, limits::GRANT_LIMIT);
    group.say_hello(cx, FrameKind::GroupState);
}

/// Until the peer says that it is primary, or cannot be expected to.
fn await_peer(group: &mut Group, cx: &mut Cx) {
    let peer = &group.primary.peer;
    let why = match peer.greeting.hello() {
        _ if cx.peer.link.is_none() => "the link was lost before the peer said that it is primary",
        Some(hello) if hello.identity.role == Role::Primary => return switched(group, cx),
        Some(hello) if hello.failed => PEER_FAILED,
        Some(_) if cx.now.mono < group.handover.deadline => return,
        None => "the peer's half of the group has not said who it is",
        Some(_) => "the peer has not said in time that it is primary",
    };
    unanswered(group, cx, why);
}

fn switched(group: &mut Group, cx: &mut Cx) {
    let id = group.handover.id;
    group.handover.ends();
    let (common, peer) = (&group.common, &group.primary.peer.greeting);
    let at = common.sb.identity.position.seq.0;
    let generation = peer.generation().unwrap_or_default();
    let text = format!("switched over at sequence {at}: the peer is primary, in generation {generation}");
    if let Some(broken) = common.lifecycle.broken() {
        let text = format!("{text}; but meanwhile this node failed, and follows nobody: {}", broken.words());
        return cx.answer(id, CommandResult::Warning(text));
    }
    let before = common.settings.as_set().mode;
    let now = peer.settings().map_or(before, |there| there.mode);
    if before == now {
        let text = format!("{text}; this node is the secondary and follows it");
        return cx.answer(id, CommandResult::Done(text));
    }
    let follows = if now == Mode::Logging { "which sends nothing to this node" } else { "and this node follows it" };
    let text = format!(
        "{text}; it serves in mode {now}, as set there, {follows}; this node served in {before}: 'farshore set GROUP mode={before}' there \
         goes on with that",
        now = now.word(),
        before = before.word(),
    );
    cx.answer(id, CommandResult::Warning(text));
}

/// The peer may or may not have been promoted: which of the two nodes is to be, and how, is known all the same.
fn unanswered(group: &mut Group, cx: &mut Cx, why: &str) {
    cx.coverage.hit(CoveragePoint::GrantUnanswered);
    let id = group.handover.id;
    let at = group.common.sb.identity.position.seq.0;
    let stands = group.shown().peer_stands();
    group.handover.ends();
    // Nobody waits for it any more: from here on an operator promotes.
    group.say_hello(cx, FrameKind::GroupState);
    let text = format!("{why}; {}", handed_over(at, stands));
    let text = match group.common.lifecycle.broken() {
        Some(broken) => format!("{text}; but meanwhile this node failed: {}", broken.words()),
        None => text,
    };
    cx.refuse(id, RefusalCode::GrantUnanswered, text);
}

/// What an operator has to know of a node that handed over at this number, whose peer is not heard to be primary.
fn handed_over(at: u64, peer: PeerStands) -> String {
    let handed_over = format!("this node handed over at sequence {at} and is secondary");
    match peer {
        PeerStands::Unknown | PeerStands::Primary => format!(
            "{handed_over}. Look at 'farshore status GROUP' on the peer: if it is not primary there, 'farshore promote GROUP' there makes it \
             that, without --force once both are connected. A promotion of this node could make a second primary"
        ),
        PeerStands::Equal | PeerStands::HandedOver => format!(
            "{handed_over}; so is the peer, which has everything: 'farshore promote GROUP' there makes it primary, without --force. A \
             promotion of this node could make a second primary"
        ),
        PeerStands::Failed => format!(
            "{handed_over}. The peer's half of the group has failed, perhaps with half of its promotion on record: put it right there, then \
             'farshore reset GROUP' there, which shows its role, and 'farshore promote GROUP' there. 'farshore promote GROUP --force' here \
             takes the demotion back, and makes a second primary unless that reset has shown the peer to be secondary, or it never comes back"
        ),
        PeerStands::Elsewhere => format!(
            "{handed_over}. The peer is secondary too, and does not hold what was handed over: 'farshore promote GROUP --force' here takes \
             the demotion back"
        ),
    }
}

// ---- it ends otherwise ---------------------------------------------------------------------------------------------------

/// Before the point of no return: this node stays primary, and who was held goes on.
fn roll_back(group: &mut Group, cx: &mut Cx, refusal: Refusal) {
    cx.coverage.hit(CoveragePoint::HandoverRolledBack);
    let settings = group.handover.settings.take();
    let had_stored = group.handover.is_at(HandoverStage::Storing);
    group.handover.enter(None);
    if core::mem::take(&mut group.handover.closed_export) {
        cx.out.push_back(Output::Serve { group: group.common.id(), open: true });
    }
    if had_stored {
        group.common.lifecycle.enter(Phase::Running);
        make_up(group, cx, settings);
    }
    let text = format!("{}; this node stays primary, and nothing was changed", refusal.text);
    cx.refuse(group.handover.id, refusal.code, text);
    for HeldRequest { volume, id, request } in core::mem::take(&mut group.handover.held) {
        group.primary.request(&mut group.common, cx, volume, id, request);
    }
}

/// What was put aside while the group did not run.
fn make_up(group: &mut Group, cx: &mut Cx, settings: Option<Settings>) {
    let now = *group.common.settings.as_set();
    if let Some(before) = settings.filter(|before| *before != now) {
        group.common.settings.set(before);
        group.apply_settings(cx, now);
    }
    let Group { common, primary, .. } = &mut *group;
    let is_apart = matches!(primary.peer.state(common), State::Logging | State::Queuing | State::Holding);
    if is_apart && primary.peer.greeting.hello().is_some() {
        primary.meet_peer(common, cx);
    }
    // A repair may have fallen due.
    primary.try_autosync(common, cx);
    for wake in [Wake::Room, Wake::Covered, Wake::Promise, Wake::Waits] {
        common.wake(wake);
    }
}

/// A store broke. What is being stored or recorded ends by itself.
pub(crate) fn fail(group: &mut Group, cx: &mut Cx) {
    if group.handover.is_at(HandoverStage::Draining) {
        group.handover.enter(None);
        let why = "a store of this node failed while the peer was given the last writes; it stays primary, and failed";
        cx.refuse(group.handover.id, RefusalCode::StoreFailed, why);
    }
    fail_held(group, cx);
}

/// The node is being stopped.
pub(crate) fn stop(group: &mut Group, cx: &mut Cx) {
    match group.handover.stage {
        Some(HandoverStage::Draining) => {
            roll_back(group, cx, Refusal::new(RefusalCode::GroupStopping, "the node is being stopped"));
        }
        Some(HandoverStage::Granted) => unanswered(group, cx, "the node is being stopped"),
        _ => {}
    }
}

/// A command comes beside it: why it is refused, if it is. Settings are taken at any time.
pub(crate) fn refuses(handover: &Handover, command: &Command) -> Option<Refusal> {
    let stage = handover.stage?;
    let is_taken = match command {
        Command::Set(_) | Command::ForgetPeaks => true,
        Command::Switchover { .. } => false,
        // Secondary already, it is like any other.
        _ => stage == HandoverStage::Granted,
    };
    let why = format!("a switchover to the peer is under way ({}); try again in a moment", stage.word());
    (!is_taken).then(|| Refusal::new(RefusalCode::RoleChanging, why))
}

/// This node is promoted, though it handed over.
pub(crate) fn take_back(group: &mut Group, cx: &mut Cx) {
    if group.handover.is_at(HandoverStage::Granted) {
        unanswered(group, cx, "this node was ordered to be primary again");
    }
}

/// The group starts anew: nobody waits here for the peer any more.
pub(super) fn is_reset(group: &mut Group, cx: &mut Cx) {
    if group.handover.is_at(HandoverStage::Granted) {
        unanswered(group, cx, "this node's half of the group was reset");
    }
}

fn fail_held(group: &mut Group, cx: &mut Cx) {
    let result = if injected(Fault::HeldAnswered) { Ok(()) } else { Err(IoError::Io) };
    for held in core::mem::take(&mut group.handover.held) {
        cx.reply(held.id, result);
    }
}

// ---- on the peer ----------------------------------------------------------------------------------------------------------

/// The old primary has handed over to this node: whoever runs it promotes it, as on the word of an operator here.
pub(crate) fn take(group: &Group, cx: &mut Cx) {
    let Group { common, primary, secondary, .. } = group;
    if common.role() != Role::Secondary || !common.lifecycle.is_running() || common.has_failed() {
        // On its way already, or not able to: the old primary hears which.
        return;
    }
    let refusal = match secondary.promotable(common) {
        None => Some(Refusal::new(RefusalCode::SyncUnfinished, secondary.no_image())),
        Some(_) => secondary.promote_needs_force(common, cx, &primary.peer.greeting),
    };
    if let Some(refusal) = refusal {
        let note = format!("the peer handed over, and this node cannot follow: {refusal}");
        return cx.event(common.id(), Event::Note(note));
    }
    cx.coverage.hit(CoveragePoint::GrantTaken);
    cx.event(common.id(), Event::HandedOver);
}

/// What is shown as the reason of a secondary that handed over, or was handed over to, and nobody is primary. `needs_force`: a promotion of
/// this node does, whatever the peer says.
pub(crate) fn shown_reason(handed_over_at: Option<u64>, peer: PeerStands, needs_force: bool) -> Option<String> {
    match (handed_over_at, peer) {
        (_, PeerStands::Primary) => None,
        (Some(at), _) => Some(handed_over(at, peer)),
        (None, PeerStands::HandedOver) if needs_force => Some(
            "the peer handed over to this node, whose copy does not hold that for certain: 'farshore promote GROUP' here says what \
             stands in the way"
                .into(),
        ),
        (None, PeerStands::HandedOver) => Some(
            "the peer handed over to this node: 'farshore promote GROUP' here makes it primary, without --force".into(),
        ),
        (None, _) => None,
    }
}

/// Where the peer of a secondary is seen to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerStands {
    /// It is away, or has not said who it is.
    Unknown,
    Primary,
    /// It handed over at the very position of this copy.
    HandedOver,
    /// At the position of this node, and it holds an image.
    Equal,
    Failed,
    Elsewhere,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_leads_back_behind_the_point_of_no_return() {
        use HandoverStage::*;
        for to in [Draining, Storing, Recording] {
            assert!(!legal(Some(Granted), Some(to)), "{to:?}");
            assert!(!legal(Some(Recording), Some(to)), "{to:?}");
        }
        assert!(legal(Some(Recording), Some(Granted)));
        assert!(!legal(None, None) && !legal(None, Some(Recording)) && !legal(Some(Draining), Some(Granted)));
    }

    #[test]
    fn a_secondary_names_who_is_to_be_promoted_and_never_both() {
        for peer in [PeerStands::Unknown, PeerStands::Equal] {
            let here = shown_reason(Some(7), peer, false).unwrap();
            assert!(here.contains("could make a second primary") && here.contains("there"), "{here}");
        }
        // There a promotion would be refused.
        for peer in [PeerStands::Failed, PeerStands::Elsewhere] {
            let here = shown_reason(Some(7), peer, false).unwrap();
            assert!(here.contains("promote GROUP --force' here") && !here.contains("without --force"), "{here}");
        }
        let there = shown_reason(None, PeerStands::HandedOver, false).unwrap();
        assert!(there.contains("here") && there.contains("without --force"));
        assert!(!shown_reason(None, PeerStands::HandedOver, true).unwrap().contains("without --force"));
        assert_eq!(shown_reason(Some(7), PeerStands::Primary, false), None);
        assert_eq!(shown_reason(None, PeerStands::Equal, false), None);
    }
}
