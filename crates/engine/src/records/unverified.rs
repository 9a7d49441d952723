//! An unverified run: a primary lost its power, and what it had confirmed may be missing on its volumes. That stands in the superblock
//! until it is verified.

use crate::formats::identity::Identity;
use crate::formats::superblock::Superblock;
use crate::ids::{Generation, Incarnation};
use crate::injected_fault::{Fault, injected};

impl Superblock {
    /// Writes of an earlier run of this node may be missing on its volumes, whatever its role has become since.
    pub(crate) fn needs_verification(&self) -> bool {
        self.unverified_run != Incarnation(0)
    }

    /// Whether the peer may have confirmed something of the unverified run: it stands in it, or in its history and at the image of
    /// an earlier run, to which it may have gone back from the midst of a sync. A later run of this node is at home in its last
    /// generation or in one that came after: in the one before, runs may be the peer's own, and are counted apart.
    pub(crate) fn followed_unverified_run(&self, theirs: &Identity) -> bool {
        let (sb, position) = (self, theirs.position);
        let of_history = |generation: Generation| sb.unverified_generations.contains(&generation);
        let is_there = position.incarnation == sb.unverified_run && of_history(position.generation);
        let has_run = |generation| {
            generation == sb.unverified_generations[0] || injected(Fault::RunsOfPeer) && of_history(generation)
        };
        let is_later = position.incarnation > sb.unverified_run && has_run(position.generation);
        let follows = !theirs.generation.is_blank() && of_history(theirs.generation);
        self.needs_verification() && (is_there || follows && !is_later)
    }

    /// It was the primary of this history and handed it over, and nobody was followed since: should it be promoted again it goes on
    /// with its own, and a peer that was not promoted meanwhile never left that.
    pub(crate) fn takes_demotion_back(&self) -> bool {
        self.identity.handed_over
    }
}
