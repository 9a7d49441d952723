//! A run in doubt: a primary lost its power, and what it had confirmed may be missing on its volumes. That stands in the superblock
//! until it is settled.

use crate::formats::identity::Identity;
use crate::formats::superblock::Superblock;
use crate::ids::{Generation, Incarnation};
use crate::planted::{Fault, planted};

impl Superblock {
    /// Writes of an earlier run of this node may be missing on its volumes, whatever its role has become since.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt != Incarnation(0)
    }

    /// Whether the peer may have confirmed something of the run in doubt: it stands in it, or in its history and at the image of
    /// an earlier run, to which it may have gone back from the midst of a sync. A later run of this node is at home in its last
    /// generation or in one that came after: in the one before, runs may be the peer's own, and are counted apart.
    pub(crate) fn followed_in_doubt(&self, theirs: &Identity) -> bool {
        let (sb, place) = (self, theirs.position);
        let of_history = |generation: Generation| sb.doubt_generations.contains(&generation);
        let is_there = place.incarnation == sb.in_doubt && of_history(place.generation);
        let has_run =
            |generation| generation == sb.doubt_generations[0] || planted(Fault::RunsOfPeer) && of_history(generation);
        let is_later = place.incarnation > sb.in_doubt && has_run(place.generation);
        let follows = !theirs.generation.is_blank() && of_history(theirs.generation);
        self.is_in_doubt() && (is_there || follows && !is_later)
    }

    /// It was the primary of this history and handed it over, and nobody was followed since: should it be promoted again it goes on
    /// with its own, and a peer that was not promoted meanwhile never left that.
    pub(crate) fn takes_demotion_back(&self) -> bool {
        self.identity.handed_over
    }
}
