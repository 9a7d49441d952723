//! What goes to the peer: nothing, or one ordered stream, or a snapshot; never two of them.

use crate::common::GroupCommon;
use crate::ids::Position;
use crate::peer::snapshot::CatchUpSnapshot;
use crate::peer::stream::PeerStream;
use crate::shared::volumes::AmountToSend;
use crate::state::{Pause, State};

#[derive(Debug, Default)]
pub(crate) enum Sending {
    /// Writes only set dirty bits.
    #[default]
    Apart,
    /// Writes in their order, and regions that are dirty between them.
    Stream(PeerStream),
    /// Regions as they were at a mark; writes only set dirty bits.
    Snapshot(CatchUpSnapshot),
}

/// A sync that is to be announced to the peer.
pub(crate) struct SyncAnnouncement {
    pub attempt: u64,
    pub from: Position,
    pub by_snapshot: bool,
    /// `None`: what is dirty without doubt is sent.
    pub to_send: Option<AmountToSend>,
    pub nothing_dirty: bool,
}

impl Sending {
    /// What is to be announced to the peer, once this node has flushed what it builds on.
    pub fn to_announce(&self, common: &GroupCommon) -> Option<SyncAnnouncement> {
        match self {
            Sending::Apart => None,
            Sending::Stream(stream) => stream.to_announce().map(|(attempt, began, nothing_dirty)| SyncAnnouncement {
                attempt,
                from: common.position(began),
                by_snapshot: false,
                to_send: None,
                nothing_dirty,
            }),
            Sending::Snapshot(snapshot) => snapshot.to_announce().map(|(attempt, from, to_send)| SyncAnnouncement {
                attempt,
                from,
                by_snapshot: true,
                to_send: Some(to_send),
                nothing_dirty: false,
            }),
        }
    }

    pub fn announced(&mut self) {
        match self {
            Sending::Apart => {}
            Sending::Stream(stream) => stream.announced(),
            Sending::Snapshot(snapshot) => snapshot.announced(),
        }
    }

    /// The state of a group that has not failed.
    pub fn state(&self) -> State {
        match self {
            Sending::Apart => State::Logging,
            Sending::Stream(stream) => stream.state(),
            Sending::Snapshot(snapshot) => snapshot.paused().map_or(State::Syncing, State::Paused),
        }
    }

    /// Why the peer cannot apply, if it cannot.
    pub fn paused(&self) -> Option<Pause> {
        if let State::Paused(pause) = self.state() { Some(pause) } else { None }
    }

    /// The peer cannot apply.
    pub fn pause(&mut self, pause: Pause) {
        match self {
            Sending::Apart => {}
            Sending::Stream(stream) => stream.pause(pause),
            Sending::Snapshot(snapshot) => snapshot.pause(Some(pause)),
        }
    }

    /// It can again.
    pub fn resume(&mut self) {
        match self {
            Sending::Apart => {}
            Sending::Stream(stream) => stream.resume(),
            Sending::Snapshot(snapshot) => snapshot.pause(None),
        }
    }

    pub fn is_apart(&self) -> bool {
        matches!(self, Sending::Apart)
    }

    pub fn stream(&self) -> Option<&PeerStream> {
        if let Sending::Stream(stream) = self { Some(stream) } else { None }
    }

    pub fn stream_mut(&mut self) -> Option<&mut PeerStream> {
        if let Sending::Stream(stream) = self { Some(stream) } else { None }
    }

    pub fn snapshot(&self) -> Option<&CatchUpSnapshot> {
        if let Sending::Snapshot(snapshot) = self { Some(snapshot) } else { None }
    }

    pub fn snapshot_mut(&mut self) -> Option<&mut CatchUpSnapshot> {
        if let Sending::Snapshot(snapshot) = self { Some(snapshot) } else { None }
    }

    /// The stream ends.
    pub fn end_stream(&mut self) -> Option<PeerStream> {
        match core::mem::take(self) {
            Sending::Stream(stream) => Some(stream),
            other => {
                *self = other;
                None
            }
        }
    }

    /// The snapshot ends, its step made or not.
    pub fn end_snapshot(&mut self) -> Option<CatchUpSnapshot> {
        match core::mem::take(self) {
            Sending::Snapshot(snapshot) => Some(snapshot),
            other => {
                *self = other;
                None
            }
        }
    }

    /// A sync is under way, by snapshots or in the stream; not a mere repair.
    pub fn syncs(&self) -> bool {
        match self {
            Sending::Apart => false,
            Sending::Stream(stream) => stream.syncs(),
            Sending::Snapshot(_) => true,
        }
    }

    /// Memory it holds or is about to.
    pub fn held_bytes(&self) -> u64 {
        match self {
            Sending::Apart => 0,
            Sending::Stream(stream) => stream.held_bytes(),
            Sending::Snapshot(snapshot) => snapshot.memory_bytes(),
        }
    }

    /// Something was sent that the peer has not dealt with.
    pub fn owes(&self) -> bool {
        match self {
            Sending::Apart => false,
            Sending::Stream(stream) => stream.is_reported() && stream.owes(),
            Sending::Snapshot(snapshot) => snapshot.peer_owes(),
        }
    }

    /// The sync of this name is under way, and it is not announced to the peer yet.
    pub fn is_to_begin(&self, attempt: u64) -> bool {
        match self {
            Sending::Apart => false,
            Sending::Stream(stream) => stream.is_to_begin(attempt),
            Sending::Snapshot(snapshot) => snapshot.is_to_begin(attempt),
        }
    }

    /// How often the peer's grant went back: what was taken back before is not under way any more.
    pub fn recalls(&self) -> u64 {
        match self {
            Sending::Apart => 0,
            Sending::Stream(stream) => stream.recalls(),
            Sending::Snapshot(snapshot) => snapshot.recalls(),
        }
    }
}
