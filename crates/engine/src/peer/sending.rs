//! What goes to the peer: nothing, or one ordered stream, or a cut; never two of them.

use crate::common::Common;
use crate::ids::{Position, Seq};
use crate::peer::cut::Cut;
use crate::peer::stream::Stream;

#[derive(Debug, Default)]
pub(crate) enum Sending {
    /// Writes only mark their regions.
    #[default]
    Apart,
    /// Writes in their order, and regions that are dirty between them.
    Stream(Stream),
    /// Regions as they were at a mark; writes only mark theirs.
    Cut(Cut),
}

/// A sync that the peer is to be told of.
pub(crate) struct Announcement {
    pub attempt: u64,
    pub from: Position,
    pub by_cut: bool,
    /// `None`: what is dirty without doubt.
    pub dirty_bytes: Option<u64>,
    pub nothing_dirty: bool,
}

impl Sending {
    /// What the peer is to be told of, once this node has flushed what it builds on.
    pub fn to_announce(&self, common: &Common) -> Option<Announcement> {
        match self {
            Sending::Apart => None,
            Sending::Stream(stream) => stream.to_announce().map(|(attempt, began, nothing_dirty)| Announcement {
                attempt,
                from: common.place(began),
                by_cut: false,
                dirty_bytes: None,
                nothing_dirty,
            }),
            Sending::Cut(cut) => cut.to_announce().map(|(attempt, from, dirty_bytes)| Announcement {
                attempt,
                from,
                by_cut: true,
                dirty_bytes: Some(dirty_bytes),
                nothing_dirty: false,
            }),
        }
    }

    pub fn announced(&mut self) {
        match self {
            Sending::Apart => {}
            Sending::Stream(stream) => stream.announced(),
            Sending::Cut(cut) => cut.announced(),
        }
    }

    pub fn is_apart(&self) -> bool {
        matches!(self, Sending::Apart)
    }

    pub fn stream(&self) -> Option<&Stream> {
        if let Sending::Stream(stream) = self { Some(stream) } else { None }
    }

    pub fn stream_mut(&mut self) -> Option<&mut Stream> {
        if let Sending::Stream(stream) = self { Some(stream) } else { None }
    }

    pub fn cut(&self) -> Option<&Cut> {
        if let Sending::Cut(cut) = self { Some(cut) } else { None }
    }

    pub fn cut_mut(&mut self) -> Option<&mut Cut> {
        if let Sending::Cut(cut) = self { Some(cut) } else { None }
    }

    /// The stream ends.
    pub fn end_stream(&mut self) -> Option<Stream> {
        match core::mem::take(self) {
            Sending::Stream(stream) => Some(stream),
            other => {
                *self = other;
                None
            }
        }
    }

    /// The cut ends, its step made or not.
    pub fn end_cut(&mut self) -> Option<Cut> {
        match core::mem::take(self) {
            Sending::Cut(cut) => Some(cut),
            other => {
                *self = other;
                None
            }
        }
    }

    /// A sync is under way, by cuts or in the stream; not a mere repair.
    pub fn syncs(&self) -> bool {
        match self {
            Sending::Apart => false,
            Sending::Stream(stream) => stream.syncs(),
            Sending::Cut(_) => true,
        }
    }

    /// Memory it holds or is about to.
    pub fn held_bytes(&self) -> u64 {
        match self {
            Sending::Apart => 0,
            Sending::Stream(stream) => stream.held_bytes(),
            Sending::Cut(cut) => cut.memory_bytes(),
        }
    }

    /// Something was sent that the peer has not dealt with. `last`: the last number given.
    pub fn owes(&self, last: Seq) -> bool {
        match self {
            Sending::Apart => false,
            Sending::Stream(stream) => stream.is_told() && stream.owes(last),
            Sending::Cut(cut) => cut.peer_owes(),
        }
    }

    /// The sync of this name is under way, and the peer was not told yet.
    pub fn is_to_begin(&self, attempt: u64) -> bool {
        match self {
            Sending::Apart => false,
            Sending::Stream(stream) => stream.is_to_begin(attempt),
            Sending::Cut(cut) => cut.is_to_begin(attempt),
        }
    }

    /// How often the peer's grant went back: what was taken back before is not under way any more.
    pub fn recalls(&self) -> u64 {
        match self {
            Sending::Apart => 0,
            Sending::Stream(stream) => stream.recalls(),
            Sending::Cut(cut) => cut.recalls(),
        }
    }
}
