//! What a snapshot that was cut short left at the peer: regions that it has applied and that were not written since. The next snapshot
//! leaves them out, so a link that breaks now and then does not make a long copy begin again.
//!
//! ```text
//! snapshot at mark 1:  A B C | lost       B is written       snapshot at mark 2:  B D E, end
//!    applied: A B C                        left: A C                                image: A C of mark 1, which is also theirs at 2
//! ```
//! * Their bits stay set, here and on disk: whatever becomes of this node, all of it is sent again. They clear with all others, at the
//!   end of the snapshot that leaves them out.
//! * It counts for the very run of the peer that applied it, in the middle of that sync: one that was started again may have lost what
//!   it had, or stand on an old copy; one that goes back to its rollback point does so in a run of its own. The point stays what it was
//!   all the while, and the copy no image before the end. Bits of the peer's own are older than the snapshot.
//! * A mark has a number of its own, so no earlier sync leads there. One in the stream may begin there, if nobody wrote since: the peer
//!   has applied the snapshot's part all the same, and is sent the same content, or that of a write, which takes its region out.
//! * The peer may come to the end of a snapshot that was cut short here: its last confirmation was lost, or came to nobody. Then it
//!   holds the image of the mark, says so, and the snapshot has ended like any other.

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::ids::{Incarnation, Position};
use crate::shared::greeting::Greeting;
use crate::shared::peer_copy::PeerCopy;
use crate::time::Wall;

/// Where the last snapshot left the peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeftSnapshot {
    /// The last snapshot's mark, whether the peer heard of it or not.
    marked: Option<Position>,
    ready: Option<ReadySnapshot>,
}

/// The last snapshot that the peer was ready for.
#[derive(Clone, Copy, Debug)]
struct ReadySnapshot {
    mark: Position,
    wall: Wall,
    /// The peer's.
    run: Incarnation,
}

impl LeftSnapshot {
    /// The next snapshot begins: its mark, and the time of that. What the last one left is forgotten unless the peer stands there.
    /// `is_first`: no sync of any kind has begun before.
    pub fn next_mark(
        &mut self,
        common: &mut GroupCommon,
        cx: &Cx,
        peer: &Greeting,
        is_first: bool,
    ) -> (Position, Wall) {
        if !self.stands_there(peer) {
            self.ready = None;
            common.volumes.copies_mut().for_each(PeerCopy::forget_held);
        }
        // No write's: the peer may have been in the middle of a sync at the last one.
        if common.volumes.take_number() || !is_first {
            _ = common.numbers.give(cx, 1);
        }
        let from = common.last_position();
        self.marked = Some(from);
        (from, common.numbers.stamp(cx))
    }

    /// The peer, in this run, is in the middle of the snapshot of this mark.
    pub fn peer_is_ready(&mut self, (mark, wall): (Position, Wall), run: Incarnation) {
        self.ready = Some(ReadySnapshot { mark, wall, run });
    }

    /// The run that was ready for the last snapshot holds its image: its mark, and the time of that.
    pub fn is_whole_there(&self, peer: &Greeting) -> Option<(Position, Wall)> {
        let ReadySnapshot { mark, wall, run } = self.ready?;
        let holds_it = !peer.is_primary() && peer.run() == run && peer.stands_at(mark);
        holds_it.then_some((mark, wall))
    }

    /// The run that was ready for the last snapshot is still in the middle of it, or of the one that was announced behind it.
    fn stands_there(&self, peer: &Greeting) -> bool {
        let (Some(ReadySnapshot { mark, run, .. }), Some(hello)) = (self.ready, peer.hello()) else { return false };
        let theirs = &hello.identity;
        let at_mark = theirs.position == mark || Some(theirs.position) == self.marked;
        let follows = theirs.role == Role::Secondary && theirs.incarnation == run && !hello.failed;
        follows && theirs.inconsistent && at_mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::identity::Identity;
    use crate::formats::wire::GroupHello;
    use crate::ids::{Generation, Seq};

    const HISTORY: Generation = Generation { number: 1, tag: 2 };

    fn at(seq: u64) -> Position {
        Position { generation: HISTORY, incarnation: Incarnation(3), seq: Seq(seq) }
    }

    fn left() -> LeftSnapshot {
        let ready = ReadySnapshot { mark: at(10), wall: Wall(5), run: Incarnation(7) };
        LeftSnapshot { marked: Some(at(20)), ready: Some(ready) }
    }

    /// One in the middle of that snapshot, but for a change.
    fn peer(change: fn(&mut GroupHello)) -> Greeting {
        let (incarnation, position) = (Incarnation(7), at(10));
        let identity = Identity { incarnation, position, inconsistent: true, ..Identity::default() };
        let mut hello = GroupHello { identity, ..GroupHello::default() };
        change(&mut hello);
        let mut peer = Greeting::default();
        peer.take_up(hello);
        peer
    }

    // proves: P3, rule 8
    #[test]
    fn what_was_left_counts_for_the_run_that_has_it_and_only_where_that_was_left() {
        let stands = |change: fn(&mut GroupHello)| left().stands_there(&peer(change));
        assert!(stands(|_| {}) && stands(|hello| hello.identity.position = at(20)));
        assert!(!stands(|hello| hello.identity.position = at(11)), "in the middle of another sync");
        assert!(!stands(|hello| hello.identity.incarnation.0 += 1), "it was started again");
        assert!(!stands(|hello| hello.identity.inconsistent = false), "it went back to an image");
        assert!(stands(|hello| hello.dirty_bytes = 512), "it was primary itself before the snapshot");
        assert!(!stands(|hello| hello.failed = true), "nobody knows what it holds");
        assert!(!LeftSnapshot::default().stands_there(&Greeting::default()));
    }

    // proves: P3, rule 8
    #[test]
    fn a_snapshot_has_ended_where_the_run_that_was_ready_for_it_holds_the_image_of_its_mark() {
        let whole = || peer(|hello| hello.identity.inconsistent = false);
        assert_eq!(left().is_whole_there(&whole()), Some((at(10), Wall(5))));
        let but_for: [fn(&mut GroupHello); 6] = [
            |hello| hello.identity.inconsistent = true,
            |hello| hello.identity.position = at(20),
            |hello| hello.identity.incarnation.0 += 1,
            |hello| hello.identity.role = Role::Primary,
            |hello| hello.dirty_bytes = 512,
            |hello| hello.failed = true,
        ];
        for (case, change) in but_for.into_iter().enumerate() {
            let mut other = whole();
            let mut hello = other.hello().expect("it was just taken up").clone();
            change(&mut hello);
            other.take_up(hello);
            assert_eq!(left().is_whole_there(&other), None, "case {case}");
        }
        assert_eq!(LeftSnapshot::default().is_whole_there(&Greeting::default()), None);
    }
}
