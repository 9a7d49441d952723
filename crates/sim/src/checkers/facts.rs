//! What checkers must know of a group, or of a node's copy of it, beside what they see: what befell it, and what its operator said.

use std::collections::BTreeSet;

use engine::state::State;
use engine::{GroupId, Store};

/// Of a node's copy of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyFact {
    /// A secondary's journal in which a batch that it counts as durable was hit.
    JournalHit,
    /// Its records are old, or its superblock is in doubt, and it was not synced since.
    Spoiled,
    /// A primary in doubt has waited for its peer as long as it was told to, and may serve without it.
    WaitedAlone,
    /// The operator of a primary in doubt was asked, and told that the export stays closed until he chooses.
    OperatorAsked,
    /// Somebody else wrote to a volume of a primary: nothing of that flows before an operator's word.
    ChangedOutside,
    /// A primary sends, by the state it told last.
    Sends,
    /// A primary that does not send was seen to number a write in a generation of its own.
    Alone,
}

/// Of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupFact {
    /// A forced promotion took place and has not been settled: two nodes may serve.
    Forked,
    /// The operator chose the primary's content over what only its peer has.
    Chosen,
}

#[derive(Default)]
pub struct KnownFacts {
    copies: BTreeSet<(CopyFact, GroupId, usize)>,
    groups: BTreeSet<(GroupFact, GroupId)>,
    /// Stores that were damaged.
    rotten: BTreeSet<(usize, Store)>,
}

impl KnownFacts {
    pub fn add(&mut self, fact: CopyFact, group: GroupId, node: usize) {
        self.copies.insert((fact, group, node));
    }

    /// It is true no more; whether it was.
    pub fn remove(&mut self, fact: CopyFact, group: GroupId, node: usize) -> bool {
        self.copies.remove(&(fact, group, node))
    }

    pub fn is(&self, fact: CopyFact, group: GroupId, node: usize) -> bool {
        self.copies.contains(&(fact, group, node))
    }

    /// The groups of which it is true on a node.
    pub fn groups_with(&self, fact: CopyFact, node: usize) -> Vec<GroupId> {
        self.copies.iter().filter(|of| of.0 == fact && of.2 == node).map(|of| of.1).collect()
    }

    pub fn add_to_group(&mut self, fact: GroupFact, group: GroupId) {
        self.groups.insert((fact, group));
    }

    /// It is true no more; whether it was.
    pub fn remove_from_group(&mut self, fact: GroupFact, group: GroupId) -> bool {
        self.groups.remove(&(fact, group))
    }

    pub fn is_forked(&self, group: GroupId) -> bool {
        self.groups.contains(&(GroupFact::Forked, group))
    }

    /// A store was damaged; false: it was before.
    pub fn rots(&mut self, node: usize, store: Store) -> bool {
        self.rotten.insert((node, store))
    }

    pub fn is_rotten(&self, node: usize, store: Store) -> bool {
        self.rotten.contains(&(node, store))
    }

    /// A node tells the state of a group.
    pub fn tells(&mut self, group: GroupId, node: usize, state: State) {
        self.remove(CopyFact::Alone, group, node);
        if state.sends() {
            self.add(CopyFact::Sends, group, node);
        } else {
            self.remove(CopyFact::Sends, group, node);
        }
    }

    pub fn node_died(&mut self, node: usize) {
        self.copies.retain(|(fact, _, at)| *at != node || !matches!(fact, CopyFact::Sends | CopyFact::Alone));
    }
}
