//! The outermost machine: owns the groups and the links of this node, routes inputs, runs the timers. No policy here.

mod marks;
mod membership;
mod scheduling;
mod status;
mod views;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::context::{Cx, LinkTimer, TimerKey};
use crate::formats::codec::FieldDecoder;
use crate::formats::wire::{FrameHeader, FrameKind};
use crate::group::{Group, reset};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::shared::cost::frame_bytes;
use crate::shared::coverage::{CoverageCounts, CoveragePoint};
use crate::shared::link::PeerLink;
use crate::shared::memory::NodeMemory;
use crate::shared::semaphore::GroupSemaphore;
use crate::shared::size::ShownSize;
use crate::time::{Mono, Now, Timers};
use crate::{
    CommandResult, FramePayload, Input, IoError, NodeConfig, Output, Refusal, RefusalCode, SendPayload, limits,
};

/// This node's half of every group, and its links. See the crate's documentation for how it is driven.
pub struct Node {
    config: NodeConfig,
    groups: BTreeMap<GroupId, Group>,
    links: BTreeMap<NodeId, PeerLink>,
    timers: Timers<TimerKey>,
    outputs: VecDeque<Output>,
    coverage: CoverageCounts,
    // What the groups share: see `scheduling.rs`.
    memory: NodeMemory,
    memory_freed: bool,
    short_of_memory: VecDeque<GroupId>,
    starts: GroupSemaphore,
    syncs: GroupSemaphore,
    start_entropy: u64,
    boot: u128,
    trace: bool,
    /// Groups that handled something since the last drain: acknowledgements, batches and frames are made once per turn.
    touched: Vec<GroupId>,
    /// A socket took bytes: the link may have credit again.
    links_moved: bool,
    now: Now,
    /// Groups that leave the node once they are at rest.
    removing: BTreeSet<GroupId>,
    /// Groups that have left, with what they knew, and those that are to come.
    gone: BTreeMap<GroupId, Option<reset::LeftBehind>>,
    /// Marks of a moment that a fault on purpose tears.
    torn: Vec<marks::TornMark>,
    stopping: bool,
    stopped: bool,
}

impl Node {
    pub fn new(config: NodeConfig) -> Node {
        let mut links = BTreeMap::new();
        for group in &config.groups {
            links.entry(group.peer).or_insert_with(|| PeerLink::new(group.peer));
        }
        let node = config.node;
        let groups: BTreeMap<_, _> = config.groups.iter().map(|g| (g.id, Group::new(node, g.clone()))).collect();
        let memory = NodeMemory::new(config.memory_bytes, groups.values().map(|g: &Group| g.reserve_bytes()));
        let syncs = GroupSemaphore::new(config.syncs_at_once, limits::SYNC_PERMIT_LIMIT);
        Node {
            config,
            groups,
            links,
            timers: Timers::default(),
            outputs: VecDeque::new(),
            coverage: CoverageCounts::default(),
            memory,
            memory_freed: false,
            short_of_memory: VecDeque::new(),
            starts: GroupSemaphore::new(limits::STARTS_AT_ONCE, limits::START_PERMIT_LIMIT),
            syncs,
            start_entropy: 0,
            boot: 0,
            trace: false,
            touched: Vec::new(),
            links_moved: false,
            now: Now::default(),
            removing: BTreeSet::new(),
            gone: BTreeMap::new(),
            torn: Vec::new(),
            stopping: false,
            stopped: false,
        }
    }

    /// Report every admission and apply as an event; for checkers in the simulator.
    pub fn trace(&mut self, on: bool) {
        self.trace = on;
    }

    pub fn coverage(&self) -> &CoverageCounts {
        &self.coverage
    }

    /// When [`Input::Tick`] is wanted next.
    pub fn next_timeout(&self) -> Option<Mono> {
        self.timers.next().map(|(at, _)| at)
    }

    /// Takes one input. Outputs follow from [`Node::poll_output`].
    pub fn handle(&mut self, now: Now, input: Input) {
        self.now = now;
        let torn = core::mem::take(&mut self.torn);
        match input {
            Input::Request { group, id, .. } if !self.groups.contains_key(&group) => {
                self.outputs.push_back(Output::Reply { id, result: Err(IoError::Io) });
            }
            Input::Request { group, volume, id, request } => {
                self.in_group(group, |g, cx| g.request(cx, volume, id, request));
            }
            Input::Io { token, result } => self.in_group(token.group(), |g, cx| g.io(cx, token.slot(), result)),
            Input::Frame { link, header, payload } => self.frame(link, header, payload),
            Input::Sent { link, bytes } => self.sent(link, bytes),
            Input::Heard { link } => {
                if let Some(l) = self.link_of(link) {
                    l.heard(now.mono);
                }
            }
            Input::Tick => {}
            Input::Command { group, id, .. } if !self.groups.contains_key(&group) => {
                let refusal = Refusal::new(RefusalCode::GroupStopping, "the group has left this node");
                self.outputs.push_back(Output::CommandDone { id, result: CommandResult::Refused(refusal) });
            }
            Input::Command { group, id, command } => self.in_group(group, |g, cx| g.command(cx, id, command)),
            Input::Mark { groups, name } => self.mark(groups, &name),
            Input::ViewOpen { .. } | Input::ViewRead { .. } | Input::ViewClose { .. } => self.view(input),
            Input::Reopened { group, opened } => self.in_group(group, |g, cx| reset::reopened(g, cx, opened)),
            Input::Expect { groups } => self.expect_groups(groups),
            Input::Add { config, entropy, refused } => self.add_group(*config, entropy, refused),
            Input::Remove { group } => self.remove_group(group),
            Input::LinkUp { peer, link, session, apart } => self.link_up(peer, (link, session), apart),
            Input::LinkDown { link, reason } => self.link_down(link, &reason),
            Input::Start { entropy, boot } => self.start_all(entropy, boot),
            Input::Stop => {
                self.stopping = true;
                for id in self.ids() {
                    self.in_group(id, |g, cx| g.stop(cx));
                }
            }
        }
        self.set_torn_marks(torn);
        self.run_timers();
        self.schedule();
    }

    /// The next thing to do; `None` when this turn is drained.
    pub fn poll_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.end_turn();
        }
        self.outputs.pop_front()
    }

    fn ids(&self) -> Vec<GroupId> {
        self.groups.keys().copied().collect()
    }

    // ---- routing -------------------------------------------------------------------------------------------------

    pub(crate) fn in_group(&mut self, id: GroupId, act: impl FnOnce(&mut Group, &mut Cx)) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let mut peer = self.links.get(&group.peer()).map(|link| link.view(id)).unwrap_or_default();
        // A part must fit the window with room for more to be on the way.
        peer.part_bytes = peer.part_bytes.min(1 << (group.common().config.window_bytes / 4).ilog2());
        peer.timeout = self.config.link_timeout;
        let mut cx = Cx {
            now: self.now,
            out: &mut self.outputs,
            timers: &mut self.timers,
            coverage: &mut self.coverage,
            trace: self.trace,
            peer,
            allowance: self.memory.allowance(group.reserve_bytes(), group.counted_bytes()),
            may_sync: self.syncs.admits(self.now.mono, id),
            handed_bytes: 0,
            refused: false,
        };
        act(group, &mut cx);
        group.go_on(&mut cx);
        group.check_invariants();
        let (handed_bytes, refused, peer) = (cx.handed_bytes, cx.refused, group.peer());
        if let Some(l) = self.links.get_mut(&peer).filter(|_| handed_bytes > 0 || refused) {
            l.handed(self.now.mono, handed_bytes);
            l.refused |= refused;
            self.end_if_unread(peer);
        }
        self.account_for(id);
        if self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
    }

    fn link_of(&mut self, link: LinkId) -> Option<&mut PeerLink> {
        self.links.values_mut().find(|l| l.is(link))
    }

    fn groups_with(&self, peer: NodeId) -> Vec<GroupId> {
        self.groups.iter().filter(|(_, g)| g.peer() == peer).map(|(id, _)| *id).collect()
    }

    /// The groups that meet theirs in the present session.
    fn linked_with(&self, peer: NodeId) -> Vec<GroupId> {
        let is_apart = |id: &GroupId| self.links.get(&peer).is_some_and(|link| link.is_apart(*id));
        self.groups_with(peer).into_iter().filter(|id| !is_apart(id)).collect()
    }

    fn link_up(&mut self, peer: NodeId, (link, session): (LinkId, SessionId), apart: Vec<GroupId>) {
        let now = self.now.mono;
        let Some(l) = self.links.get_mut(&peer) else {
            let reason = String::from("no group is shared with this peer");
            return self.outputs.push_back(Output::CloseLink { link, reason });
        };
        if let Some((old, _)) = l.session {
            // Reconnects race: the newer session wins (rule 18).
            if injected(Fault::OlderSessionWins) {
                return;
            }
            self.coverage.hit(CoveragePoint::SessionSuperseded);
            let reason = String::from("superseded by a newer connection");
            self.outputs.push_back(Output::CloseLink { link: old, reason: reason.clone() });
            self.link_down(old, &reason);
        }
        let l = self.links.get_mut(&peer).expect("looked up above");
        // A group that leaves meets nobody any more: the peer may not have it in its definitions.
        l.up(now, link, session, apart.into_iter().chain(self.removing.iter().copied()).collect());
        self.timers.set(TimerKey::Link(peer, LinkTimer::Heartbeat), now);
        self.timers.set(TimerKey::Link(peer, LinkTimer::Silence), now.plus(self.config.link_timeout));
        for id in self.linked_with(peer) {
            self.in_group(id, |g, cx| g.link_up(cx));
        }
    }

    fn link_down(&mut self, link: LinkId, reason: &str) {
        let now = self.now.mono;
        let Some(l) = self.link_of(link) else { return };
        let peer = l.peer;
        let linked = self.linked_with(peer);
        let Some(l) = self.link_of(link) else { return };
        l.down(now, reason);
        self.timers.clear(TimerKey::Link(peer, LinkTimer::Heartbeat));
        self.timers.clear(TimerKey::Link(peer, LinkTimer::Silence));
        for id in linked {
            self.in_group(id, |g, cx| g.link_down(cx, reason));
        }
    }

    fn frame(&mut self, link: LinkId, header: FrameHeader, payload: FramePayload) {
        let now = self.now.mono;
        let Some(l) = self.link_of(link) else {
            // A frame of a session that is over.
            return self.coverage.hit(CoveragePoint::StaleFrameFenced);
        };
        if l.refused {
            // The session is over here; the host closes in a moment.
            return self.coverage.hit(CoveragePoint::StaleFrameFenced);
        }
        l.heard(now);
        let (peer, session) = (l.peer, l.session.map(|(_, s)| s));
        if session != Some(header.session) {
            self.coverage.hit(CoveragePoint::StaleFrameFenced);
            let reason = format!("the peer sent a frame of session {}, which is not this one", header.session.0);
            return self.part_with(peer, reason);
        }
        match (header.kind, &payload) {
            (FrameKind::Heartbeat, FramePayload::Control(bytes)) => {
                if let Some(l) = self.link_of(link) {
                    l.echo_due = Some(bytes.clone());
                }
                self.echo(peer);
            }
            (FrameKind::HeartbeatEcho, FramePayload::Control(bytes)) => {
                if let (Some(l), Some(at)) = (self.link_of(link), FieldDecoder(bytes).u64()) {
                    l.echo(now, Mono(at));
                }
            }
            (FrameKind::Heartbeat | FrameKind::HeartbeatEcho, _) => {}
            (FrameKind::Goodbye, _) => {
                self.coverage.hit(CoveragePoint::GoodbyeHeard);
                let reason = String::from("the peer was stopped");
                self.outputs.push_back(Output::CloseLink { link, reason: reason.clone() });
                self.link_down(link, &reason);
            }
            // Of a group that has left, and may come again: the session ends with its coming.
            _ if self.gone.contains_key(&header.group)
                || self.links.get(&peer).is_some_and(|link| link.is_apart(header.group)) =>
            {
                self.coverage.hit(CoveragePoint::FrameForGroupGone);
            }
            _ if self.groups.get(&header.group).is_some_and(|g| g.peer() == peer) => {
                self.in_group(header.group, |g, cx| g.frame(cx, header, payload));
            }
            _ => {
                let reason =
                    format!("the peer sent a frame for group number {}, which it does not share", header.group.0);
                self.part_with(peer, reason);
            }
        }
    }

    /// The session ends, and nothing more of it is listened to.
    fn part_with(&mut self, peer: NodeId, reason: String) {
        let Some(l) = self.links.get_mut(&peer).filter(|l| !l.refused) else { return };
        l.refused = true;
        if let Some((link, _)) = l.session {
            self.outputs.push_back(Output::CloseLink { link, reason });
        }
    }

    /// What a peer makes us owe it and does not read is bounded.
    fn end_if_unread(&mut self, peer: NodeId) {
        let groups = self.groups.values().filter(|g| g.peer() == peer).count() as u64;
        let Some(unsent_bytes) = self.links.get(&peer).and_then(|l| l.owes_too_much(groups)) else { return };
        let reason =
            format!("the peer asks and does not read: {} of what it is sent wait for it", ShownSize(unsent_bytes));
        self.part_with(peer, reason);
    }

    fn sent(&mut self, link: LinkId, bytes: u64) {
        let now = self.now.mono;
        let Some(l) = self.link_of(link) else { return };
        let was_clogged = l.is_clogged();
        l.sent(now, bytes);
        let (peer, is_free) = (l.peer, was_clogged && !l.is_clogged());
        self.links_moved = true;
        if is_free {
            // What waited for that is said now.
            self.echo(peer);
            let ids = self.groups_with(peer);
            self.touched.extend(ids);
        }
    }

    /// The newest heartbeat goes back, once there is room for it.
    fn echo(&mut self, peer: NodeId) {
        let Some(l) = self.links.get_mut(&peer).filter(|l| !l.is_clogged()) else { return };
        if let (Some(bytes), Some((_, session))) = (l.echo_due.take(), l.session) {
            let echo = FrameHeader::new(FrameKind::HeartbeatEcho, session, GroupId(0));
            self.send(peer, echo, SendPayload::Control(bytes));
        }
    }

    fn send(&mut self, peer: NodeId, header: FrameHeader, payload: SendPayload) {
        let now = self.now.mono;
        let Some(l) = self.links.get_mut(&peer) else { return };
        if let Some((link, _)) = l.session {
            l.handed(now, frame_bytes(&payload));
            self.outputs.push_back(Output::Send { link, header, payload });
        }
    }

    // ---- timers --------------------------------------------------------------------------------------------------

    fn run_timers(&mut self) {
        while let Some(key) = self.timers.pop_due(self.now.mono) {
            match key {
                TimerKey::Group(id, timer) => self.in_group(id, |g, cx| g.timer(cx, timer)),
                TimerKey::Link(peer, LinkTimer::Heartbeat) => self.heartbeat(peer),
                TimerKey::Link(peer, LinkTimer::Silence) => self.silence(peer),
                // Who is next is looked at after every input.
                TimerKey::Starts | TimerKey::Syncs => {}
            }
        }
    }

    fn heartbeat(&mut self, peer: NodeId) {
        let now = self.now.mono;
        let Some(l) = self.links.get_mut(&peer) else { return };
        let Some((_, session)) = l.session else { return };
        l.look_for_congestion(now);
        if !l.is_clogged() {
            let header = FrameHeader::new(FrameKind::Heartbeat, session, GroupId(0));
            self.send(peer, header, SendPayload::Control(now.0.to_le_bytes().to_vec()));
        }
        self.timers.set(TimerKey::Link(peer, LinkTimer::Heartbeat), now.plus(limits::HEARTBEAT_EVERY));
    }

    fn silence(&mut self, peer: NodeId) {
        let now = self.now.mono;
        let limit = self.config.link_timeout;
        let Some(l) = self.links.get(&peer) else { return };
        let Some((link, _)) = l.session else { return };
        let silent = l.silence(now);
        if silent < limit {
            return self.timers.set(TimerKey::Link(peer, LinkTimer::Silence), now.plus(limit - silent));
        }
        let reason = format!("nothing was heard from the peer for {} ms", silent.as_millis());
        self.outputs.push_back(Output::CloseLink { link, reason: reason.clone() });
        self.link_down(link, &reason);
    }

    // ---- the end of a turn ----------------------------------------------------------------------------------------

    /// What is worth doing once per turn: land batches, start resync reads, hand frames to the link, acknowledge.
    fn end_turn(&mut self) {
        if self.touched.is_empty() && !core::mem::take(&mut self.links_moved) {
            return;
        }
        self.lend_memory();
        let mut touched = core::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for id in touched {
            self.in_turn_end(id);
        }
        self.fill_links();
        self.touched.clear();
        self.drop_removed();
        if self.stopping && !self.stopped && self.groups.values().all(|g| g.common().lifecycle.has_stopped()) {
            self.stopped = true;
            self.say_goodbye();
            self.outputs.push_back(Output::Stopped);
        }
    }

    /// The peers need not wait for silence, nor take it for a fault.
    fn say_goodbye(&mut self) {
        let peers: Vec<(NodeId, SessionId)> =
            self.links.values().filter_map(|l| l.session.map(|(_, session)| (l.peer, session))).collect();
        for (peer, session) in peers {
            let header = FrameHeader::new(FrameKind::Goodbye, session, GroupId(0));
            self.send(peer, header, SendPayload::Control(b"this node was stopped".to_vec()));
        }
    }

    fn in_turn_end(&mut self, id: GroupId) {
        self.in_group(id, Group::end_turn);
        let Some(group) = self.groups.get(&id) else { return };
        if let Some(l) = self.links.get_mut(&group.peer()) {
            let weight = group.common().settings.link_weight;
            l.offer(id, if injected(Fault::LinkWeightIgnored) { limits::LINK_WEIGHT_DEFAULT } else { weight });
        }
    }

    /// Hands frames to the links while they have credit, to each group its share of the bytes.
    fn fill_links(&mut self) {
        let peers: Vec<NodeId> = self.links.keys().copied().collect();
        for peer in peers {
            while let Some(id) = self.links.get_mut(&peer).and_then(PeerLink::next_group) {
                self.send_frame(peer, id);
            }
        }
    }

    fn send_frame(&mut self, peer: NodeId, id: GroupId) {
        let mut frame = None;
        self.in_group(id, |g, cx| frame = g.next_frame(cx));
        let Some(l) = self.links.get_mut(&peer) else { return };
        let (Some((header, payload)), Some((link, _))) = (frame, l.session) else { return l.rests(id) };
        l.group_sent(self.now.mono, id, frame_bytes(&payload));
        self.outputs.push_back(Output::Send { link, header, payload });
    }
}
