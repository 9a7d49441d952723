//! What the peer could present: the image of a number of this run, and of an instant.

use crate::ids::Seq;
use crate::time::{Mono, Wall};

#[derive(Debug, Default)]
pub(crate) struct PeerRecoveryPoint {
    /// The last number of this run at which the peer is known to be consistent.
    seq: Option<Seq>,
    wall: Wall,
    /// When that last moved: its age, whatever was done to the wall clock since.
    since: Mono,
}

impl PeerRecoveryPoint {
    /// A run begins, and the peer stands at the image of this instant.
    pub fn begin_run(&mut self, now: Mono, wall: Wall) {
        (self.seq, self.wall) = (None, Wall(0));
        self.move_on(now, wall);
    }

    pub fn reach(&mut self, now: Mono, wall: Wall, seq: Seq) {
        self.move_on(now, wall);
        self.seq = Some(seq);
    }

    fn move_on(&mut self, now: Mono, wall: Wall) {
        if wall > self.wall {
            (self.wall, self.since) = (wall, now);
        }
    }

    pub fn seq(&self) -> Option<Seq> {
        self.seq
    }

    pub fn wall(&self) -> Wall {
        self.wall
    }

    pub fn since(&self) -> Mono {
        self.since
    }
}
