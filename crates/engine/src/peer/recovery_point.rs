//! What the peer could present: the image of a number of this run, and of an instant.

use core::time::Duration;

use crate::ids::Seq;
use crate::time::{Mono, Wall};

#[derive(Debug, Default)]
pub(crate) struct PeerRecoveryPoint {
    /// The last number of this run at which the peer is known to be consistent.
    seq: Option<Seq>,
    wall: Wall,
    /// When that last moved: its age, whatever was done to the wall clock since.
    since: Mono,
    /// The oldest that it was, since the node started and since it was told to forget peaks.
    oldest: Option<Duration>,
    late_oldest: Option<Duration>,
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

    /// So far the copy is behind, and the point may be about to move.
    pub fn saw(&mut self, lag: Option<Duration>) {
        (self.oldest, self.late_oldest) = (self.oldest.max(lag), self.late_oldest.max(lag));
    }

    pub fn forget_peak(&mut self) {
        self.late_oldest = None;
    }

    pub fn oldest(&self) -> (Option<Duration>, Option<Duration>) {
        (self.oldest, self.late_oldest)
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
