//! What a group has at hand while it handles one input: the time, where its outputs go, its timers, what it knows of the link.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use crate::formats::wire::{FrameHeader, FrameKind};
use crate::ids::*;
use crate::shared::cost::frame_bytes;
use crate::shared::coverage::CoverageCounts;
use crate::shared::link::PeerView;
use crate::time::{Now, Timers};
use crate::{CommandResult, Event, IoError, Output, Refusal, RefusalCode, SendPayload, Store, WriteBytes};

/// All timers of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKey {
    Group(GroupId, GroupTimer),
    Link(NodeId, LinkTimer),
    /// A group has been starting, or syncing, for longer than its permit holds: the next may begin.
    Starts,
    Syncs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupTimer {
    /// A writer waits: for room, or for the peer.
    Waits,
    /// While the mode ladder is down.
    Ladder,
    LocalFlush,
    Tick,
    HoldEnd,
    /// The peer window that was given ends.
    Window,
    /// The secondary asks for one.
    WindowAsk,
    Autosync,
    /// The next snapshot may begin.
    Snapshot,
    /// A sync may have come to a stand.
    Stall,
    CatchUp,
    ApplyFlush,
    ApplyRetry,
    Drain,
    /// The peer that was not chosen is to be demoted by then.
    Yield,
    TidyBits,
    StartAlone,
    /// A record failed that the next start has to find.
    RecordAgain,
    /// The peer's half of the group has said nothing in this session.
    Greeting,
    /// A verify may read again.
    Verify,
    /// A writer that is slowed down may go on.
    Pace,
    /// The head of the log of the queue may have moved.
    QueueLog,
    /// What views wait for is looked at.
    Views,
}

impl GroupTimer {
    pub const ALL: [GroupTimer; 21] = [
        GroupTimer::Waits,
        GroupTimer::Ladder,
        GroupTimer::LocalFlush,
        GroupTimer::Tick,
        GroupTimer::HoldEnd,
        GroupTimer::Window,
        GroupTimer::WindowAsk,
        GroupTimer::Autosync,
        GroupTimer::Snapshot,
        GroupTimer::Stall,
        GroupTimer::CatchUp,
        GroupTimer::ApplyFlush,
        GroupTimer::ApplyRetry,
        GroupTimer::Drain,
        GroupTimer::TidyBits,
        GroupTimer::StartAlone,
        GroupTimer::RecordAgain,
        GroupTimer::Greeting,
        GroupTimer::Pace,
        GroupTimer::QueueLog,
        GroupTimer::Views,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LinkTimer {
    Heartbeat,
    Silence,
}

/// What a group may use while it handles one input.
pub(crate) struct Cx<'a> {
    pub now: Now,
    pub out: &'a mut VecDeque<Output>,
    pub timers: &'a mut Timers<TimerKey>,
    pub coverage: &'a mut CoverageCounts,
    /// Report every admission (the simulator's checkers want it, the data path does not).
    pub trace: bool,
    pub peer: PeerView,
    /// What the node's pool lets this group hold in memory, all in all.
    pub allowance: u64,
    /// A permit for a sync is free for this group.
    pub may_sync: bool,
    /// Bytes of control frames handed to the link meanwhile.
    pub handed_bytes: u64,
    /// This node ends the session: nothing more of it is listened to.
    pub refused: bool,
}

impl Cx<'_> {
    pub fn event(&mut self, group: GroupId, event: Event) {
        self.out.push_back(Output::Event { group, event });
    }

    pub fn answer(&mut self, id: CommandId, result: CommandResult) {
        self.out.push_back(Output::CommandDone { id, result });
    }

    pub fn refuse(&mut self, id: CommandId, code: RefusalCode, why: impl Into<String>) {
        self.answer(id, CommandResult::Refused(Refusal::new(code, why)));
    }

    pub fn reply(&mut self, id: RequestId, result: Result<(), IoError>) {
        self.out.push_back(Output::Reply { id, result });
    }

    /// Asks for a write that is not held up for the peer.
    pub fn write(&mut self, token: Token, store: Store, offset: u64, parts: Vec<WriteBytes>, durable: bool) {
        self.out.push_back(Output::Write { token, store, offset, parts, durable, waits_for_peer: false });
    }

    pub fn send(&mut self, link: LinkId, header: FrameHeader, payload: SendPayload) {
        self.handed_bytes += frame_bytes(&payload);
        self.out.push_back(Output::Send { link, header, payload });
    }

    pub fn send_control(&mut self, link: LinkId, kind: FrameKind, group: GroupId, payload: Vec<u8>) {
        let header = FrameHeader::new(kind, self.peer.session, group);
        self.send(link, header, if payload.is_empty() { SendPayload::None } else { SendPayload::Control(payload) });
    }
}
