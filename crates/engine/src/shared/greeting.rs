//! What the peer said of its half of the group in its hello, and what is known of it since.

use alloc::string::String;

use crate::Settings;
use crate::formats::identity::{Confirmed, Identity, Role};
use crate::formats::wire::GroupHello;
use crate::ids::{Generation, Incarnation, Position};

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
}

impl Greeting {
    pub fn hello(&self) -> Option<&GroupHello> {
        self.hello.as_ref()
    }

    /// Who the peer said it is, acted on or not yet.
    pub fn said(&self) -> Option<&GroupHello> {
        self.hello.as_ref().or(self.early.as_ref())
    }

    pub fn settings(&self) -> Option<Settings> {
        self.settings
    }

    /// Why the peer's half cannot be worked with.
    pub fn unfit(&self) -> Option<&str> {
        self.unfit.as_deref()
    }

    /// A session begins or ends: nothing of the last one counts.
    pub fn forget(&mut self) {
        (self.hello, self.early, self.unfit) = (None, None, None);
    }

    pub fn take_up(&mut self, hello: GroupHello) {
        self.settings = Some(hello.settings);
        self.hello = Some(hello);
    }

    /// It is acted on later.
    pub fn keep_early(&mut self, hello: GroupHello) {
        self.early = Some(hello);
    }

    pub fn take_early(&mut self) -> Option<GroupHello> {
        self.early.take()
    }

    /// The peer's half cannot be worked with: what it said does not count.
    pub fn refuse(&mut self, why: String) {
        (self.hello, self.unfit) = (None, Some(why));
    }

    /// The peer's half fits; true if it did not before.
    pub fn accept(&mut self) -> bool {
        self.unfit.take().is_some()
    }

    // ---- of the peer -----------------------------------------------------------------------------------------------

    pub fn is_primary(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.identity.role == Role::Primary)
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

    /// The run that the peer said it is in.
    pub fn run(&self) -> Incarnation {
        self.hello.as_ref().map_or(Incarnation(0), |hello| hello.identity.incarnation)
    }

    // ---- what became of it since -----------------------------------------------------------------------------------

    /// The peer applied through here. Returns whether it holds an image.
    pub fn applied(&mut self, position: Position) -> bool {
        let Some(hello) = &mut self.hello else { return false };
        let theirs = &mut hello.identity.position;
        let same_run = (theirs.generation, theirs.incarnation) == (position.generation, position.incarnation);
        if same_run && theirs.seq < position.seq {
            *theirs = position;
        }
        !hello.identity.inconsistent
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
        if let Some(hello) = &mut self.hello {
            (hello.identity.generation, hello.identity.inconsistent) = (generation, false);
        }
    }

    /// The peer holds the image of a snapshot.
    pub fn holds_snapshot(&mut self, from: Position) {
        if let Some(hello) = &mut self.hello {
            let theirs = &mut hello.identity;
            (theirs.generation, theirs.position, theirs.inconsistent) = (from.generation, from, false);
        }
    }

    /// The peer's bits stand here too. If it went back to its image, what it undid is dirty here now: less has to stand there from here
    /// on.
    pub fn bits_joined(&mut self, known: &mut Confirmed) {
        if let Some(hello) = &mut self.hello {
            let earliest = known.earliest(&hello.identity, hello.dirty_bytes);
            known.position = known.position.min(hello.identity.position).max(earliest);
            hello.dirty_bytes = 0;
        }
    }
}
