//! What the peer said of its half of the group in its hello, and what is known of it since.

use alloc::format;
use alloc::string::String;
use core::cmp::Ordering;

use crate::Settings;
use crate::formats::identity::{Confirmed, Identity, Role};
use crate::formats::wire::{FrameHeader, FrameKind, GroupHello};
use crate::ids::{Generation, Incarnation, NodeId, Position, Seq, VolumeSet};

/// Why a peer that is connected is of no use.
pub(crate) const PEER_FAILED: &str = "the peer reports that its half of the group has failed; see 'status' there";

/// The peer's hello of this session.
#[derive(Default)]
pub(crate) struct Greeting {
    hello: Option<GroupHello>,
    /// It came while this node was starting, or changing its role.
    early: Option<GroupHello>,
    /// Why the peer's half does not fit ours, if it does not.
    unfit: Option<String>,
    /// What the peer is set to, as it said last, in whatever session.
    settings: Option<Settings>,
    /// Its copy is no image, as far as is known, in whatever session.
    lacks_image: bool,
    /// It was primary, and had not failed, in whatever session.
    served_last: bool,
    /// How often either half was reset within this session: both greet anew each time.
    round: u64,
    /// This node has said who it is in this round.
    has_greeted: bool,
}

/// Of which round of greetings a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameRound {
    /// From before a reset: it counts for nothing.
    Past,
    Present,
    /// The peer's half was reset: it greets anew.
    Next(u64),
}

impl Greeting {
    pub fn hello(&self) -> Option<&GroupHello> {
        self.hello.as_ref()
    }

    /// The peer has not said who it is, nor what cannot be worked with.
    pub fn is_missing(&self) -> bool {
        self.hello.is_none() && self.unfit.is_none()
    }

    /// Who the peer said it is, acted on or not yet.
    pub fn said(&self) -> Option<&GroupHello> {
        self.hello.as_ref().or(self.early.as_ref())
    }

    pub fn generation(&self) -> Option<Generation> {
        self.hello.as_ref().map(|hello| hello.identity.generation)
    }

    /// The peer is there, and not a new node.
    pub fn has_lived(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| !hello.identity.is_new())
    }

    pub fn settings(&self) -> Option<Settings> {
        self.settings
    }

    /// The peer could present an image, as far as is known.
    pub fn has_image(&self) -> bool {
        !self.lacks_image
    }

    /// Why the peer's half cannot be worked with.
    pub fn unfit(&self) -> Option<&str> {
        self.unfit.as_deref()
    }

    /// A session begins or ends: nothing of the last one counts.
    pub fn forget(&mut self) {
        (self.hello, self.early, self.unfit) = (None, None, None);
    }

    // ---- resets within a session -----------------------------------------------------------------------------------

    pub fn round(&self) -> u64 {
        self.round
    }

    /// Nothing of the rounds before counts any more.
    pub fn begin_round(&mut self, round: u64) {
        self.forget();
        (self.round, self.has_greeted) = (round, false);
    }

    /// The kind and the number of the frame that says who this node is. Whoever was reset says that by a hello first, also where his
    /// start failed.
    pub fn greets(&mut self, kind: FrameKind) -> (FrameKind, Seq) {
        let is_hello = kind == FrameKind::GroupHello || self.round > 0 && !self.has_greeted;
        self.has_greeted |= is_hello;
        if is_hello { (FrameKind::GroupHello, Seq(self.round)) } else { (kind, Seq::NONE) }
    }

    /// A session delivers in order: between a reset here and the peer's answer to it all is from before.
    pub fn round_of(&self, header: &FrameHeader) -> FrameRound {
        if header.kind != FrameKind::GroupHello {
            let is_past = self.round > 0 && self.said().is_none() && self.unfit.is_none();
            return if is_past { FrameRound::Past } else { FrameRound::Present };
        }
        match header.seq.0.cmp(&self.round) {
            Ordering::Less => FrameRound::Past,
            Ordering::Equal => FrameRound::Present,
            Ordering::Greater => FrameRound::Next(header.seq.0),
        }
    }

    pub fn take_up(&mut self, hello: GroupHello) {
        (self.settings, self.lacks_image) = (Some(hello.settings), hello.lacks_image);
        self.served_last = hello.identity.role == Role::Primary && !hello.failed;
        self.hello = Some(hello);
    }

    /// It is acted on later.
    pub fn keep_early(&mut self, hello: GroupHello) {
        self.served_last = hello.identity.role == Role::Primary && !hello.failed;
        self.early = Some(hello);
    }

    pub fn take_early(&mut self) -> Option<GroupHello> {
        self.early.take()
    }

    /// The peer's half cannot be worked with: what it said does not count, but for whether it serves.
    pub fn refuse(&mut self, why: String, serves: bool) {
        (self.hello, self.unfit, self.served_last) = (None, Some(why), serves);
    }

    /// The peer's half fits; true if it did not before.
    pub fn accept(&mut self) -> bool {
        self.unfit.take().is_some()
    }

    // ---- of the peer -----------------------------------------------------------------------------------------------

    pub fn is_primary(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.identity.role == Role::Primary)
    }

    /// The peer is primary, and has not failed.
    pub fn serves(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.identity.role == Role::Primary && !hello.failed)
    }

    /// The peer was primary, and had not failed, when it was heard last, in whatever session.
    pub fn served_last(&self) -> bool {
        self.served_last
    }

    /// The run before this one was reset, and heard that last.
    pub fn follows(&mut self, served_last: bool) {
        self.served_last = served_last;
    }

    /// The peer holds the image of this position, whole.
    pub fn stands_at(&self, position: Position) -> bool {
        self.hello.as_ref().is_some_and(|hello| {
            let identity = &hello.identity;
            identity.position == position && !identity.inconsistent && hello.dirty_bytes == 0 && !hello.failed
        })
    }

    /// A position and the one its run began from are of the peer's present run.
    pub fn is_in_run(&self, from: Position, parent: Position) -> bool {
        self.said().is_some_and(|said| {
            let identity = &said.identity;
            let named = (identity.generation, identity.incarnation, identity.parent);
            (from.generation, from.incarnation, parent) == named
        })
    }

    /// Why the peer `named` so cannot have meant this frame, as it contradicts what it said of itself in this session; a look at its
    /// header. `heard`: it heard who this node is. Such a frame ends the session before anything of it is acted on.
    ///
    /// A session delivers in order, and a node says who it has become before it acts so. So what it said last holds for whatever
    /// comes behind it, until it says something else.
    pub fn contradiction(&self, header: &FrameHeader, named: NodeId, heard: bool) -> Option<String> {
        let (kind, said) = (header.kind, self.said());
        if kind == FrameKind::GroupHello && said.is_some() {
            return Some("a second GroupHello in one session".into());
        }
        let sender = kind.sender()?;
        let Some(GroupHello { identity, .. }) = said else {
            return Some(format!("a {kind:?} frame before it said who it is"));
        };
        if !heard {
            return Some(format!("a {kind:?} frame before it heard who this node is"));
        }
        if sender != identity.role {
            return Some(format!("a {kind:?} frame, though it said that it is the {}", identity.role.word()));
        }
        let named = (named, identity.incarnation, identity.generation.tag);
        let is_own = (header.origin, header.incarnation, header.generation_tag) == named;
        (kind.is_numbered() && !is_own).then(|| format!("number {} of another run than its own", header.seq.0))
    }

    /// The run that the peer said it is in.
    pub fn run(&self) -> Incarnation {
        self.hello.as_ref().map_or(Incarnation(0), |hello| hello.identity.incarnation)
    }

    // ---- what became of it since -----------------------------------------------------------------------------------

    /// The peer applied through here: it confirmed that, and if it holds an image, that of this position.
    pub fn applied(&mut self, known: Confirmed, position: Position) -> Confirmed {
        let Some(hello) = &mut self.hello else { return Confirmed { position, ..known } };
        let theirs = &mut hello.identity.position;
        let same_run = (theirs.generation, theirs.incarnation) == (position.generation, position.incarnation);
        if same_run && theirs.seq < position.seq {
            *theirs = position;
        }
        Confirmed { position, image: if hello.identity.inconsistent { known.image } else { position } }
    }

    /// The peer has taken up this node's history: a sync begins at this position.
    pub fn took_up(&mut self, ours: &Identity, begin: Position, is_dirty: bool) {
        if let Some(hello) = &mut self.hello {
            let theirs = &mut hello.identity;
            (theirs.generation, theirs.parent, theirs.position) = (ours.generation, ours.parent, begin);
            theirs.handed_over = false;
            theirs.inconsistent |= is_dirty;
        }
    }

    /// A sync in the stream has made the peer's copy whole.
    pub fn became_whole(&mut self, generation: Generation) {
        self.lacks_image = false;
        if let Some(hello) = &mut self.hello {
            (hello.identity.generation, hello.identity.inconsistent) = (generation, false);
        }
    }

    /// The peer takes up a sync that fills all of its devices but those of these volumes.
    pub fn fills(&mut self, aside: &VolumeSet) {
        if let Some(hello) = &mut self.hello {
            hello.unfilled = hello.unfilled.both(aside);
        }
    }

    /// The peer holds the image of a snapshot.
    pub fn holds_snapshot(&mut self, from: Position) {
        self.lacks_image = false;
        if let Some(hello) = &mut self.hello {
            let theirs = &mut hello.identity;
            (theirs.generation, theirs.position, theirs.inconsistent) = (from.generation, from, false);
        }
    }

    /// The peer's bits stand here too. If it went back to its image, what it undid is dirty here now: less has to stand there from here
    /// on.
    pub fn bits_joined(&mut self, known: Confirmed) -> Confirmed {
        let Some(hello) = &mut self.hello else { return known };
        let earliest = known.earliest(&hello.identity, hello.dirty_bytes);
        hello.dirty_bytes = 0;
        Confirmed { position: known.position.min(hello.identity.position).max(earliest), ..known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GroupId, SessionId};

    fn frame(kind: FrameKind, seq: u64) -> FrameHeader {
        FrameHeader { seq: Seq(seq), ..FrameHeader::new(kind, SessionId(1), GroupId(0)) }
    }

    #[test]
    fn a_frame_is_of_the_round_in_which_its_sender_greeted() {
        let mut greeting = Greeting::default();
        let (hello, state) = (FrameKind::GroupHello, FrameKind::GroupState);
        assert_eq!(greeting.round_of(&frame(hello, 0)), FrameRound::Present);
        assert_eq!(greeting.round_of(&frame(state, 0)), FrameRound::Present, "a start that failed says no more");
        assert_eq!(greeting.round_of(&frame(hello, 1)), FrameRound::Next(1));
        greeting.begin_round(2);
        assert_eq!(greeting.round_of(&frame(hello, 1)), FrameRound::Past);
        assert_eq!(greeting.round_of(&frame(state, 0)), FrameRound::Past, "the peer has not heard of it");
        assert_eq!(greeting.round_of(&frame(hello, 2)), FrameRound::Present);
        greeting.refuse("too small".into(), false);
        assert_eq!(greeting.round_of(&frame(state, 0)), FrameRound::Present, "it has said who it is");
    }

    #[test]
    fn whoever_was_reset_greets_first() {
        let mut greeting = Greeting::default();
        assert_eq!(greeting.greets(FrameKind::GroupState), (FrameKind::GroupState, Seq::NONE));
        greeting.begin_round(3);
        assert_eq!(greeting.greets(FrameKind::GroupState), (FrameKind::GroupHello, Seq(3)));
        assert_eq!(greeting.greets(FrameKind::GroupState), (FrameKind::GroupState, Seq::NONE));
    }
}
