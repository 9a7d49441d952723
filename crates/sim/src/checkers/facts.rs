//! What checkers must know of a group, or of a node's copy of it, beside what they see: what befell it, and what its operator said.

use std::collections::BTreeSet;

use engine::state::State;
use engine::{GroupId, Store};

/// True of a group, of a node's copy of it, or of a store of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KnownFact {
    /// A forced promotion took place and has not been reconciled: two nodes may serve.
    Forked(GroupId),
    /// The fork was resolved by the bits of both nodes: until the copy is synced they cover what differs.
    Resolved(GroupId),
    /// The operator chose the primary's content over what only its peer has.
    Chosen(GroupId),
    /// A full sync from this node began by order, before its export opened: what the other node holds is to be overwritten, also by
    /// what goes on after a restart.
    Overwrites(GroupId, usize),
    /// A store was damaged.
    Rotten(usize, Store),
    /// A secondary's journal in which a batch that it counts as durable was hit.
    JournalHit(GroupId, usize),
    /// Its records are old, or its superblock is ambiguous, and it was not synced since.
    Spoiled(GroupId, usize),
    /// A primary that needs verification has waited for its peer as long as it was told to, and may serve without it.
    WaitedAlone(GroupId, usize),
    /// The operator of a primary that needs verification was asked, and told that the export stays closed until he chooses.
    OperatorAsked(GroupId, usize),
    /// Somebody else wrote to a volume of a primary: nothing of that flows before an operator's word.
    ChangedOutside(GroupId, usize),
    /// A primary sends, by the state it reported last.
    Sends(GroupId, usize),
    /// A primary that does not send was seen to number a write in a generation of its own.
    Alone(GroupId, usize),
}

use KnownFact::{Alone, Sends, Spoiled};

#[derive(Default)]
pub struct KnownFacts(BTreeSet<KnownFact>);

impl KnownFacts {
    /// It is true from now on; whether it was not before.
    pub fn add(&mut self, fact: KnownFact) -> bool {
        self.0.insert(fact)
    }

    /// It is true no more; whether it was.
    pub fn remove(&mut self, fact: KnownFact) -> bool {
        self.0.remove(&fact)
    }

    pub fn has(&self, fact: KnownFact) -> bool {
        self.0.contains(&fact)
    }

    /// The groups whose copy on a node is spoiled.
    pub fn spoiled_on(&self, node: usize) -> Vec<GroupId> {
        let spoiled = |fact: &KnownFact| if let Spoiled(group, at) = fact { Some((*group, *at)) } else { None };
        self.0.iter().filter_map(spoiled).filter(|(_, at)| *at == node).map(|(group, _)| group).collect()
    }

    /// A node reports the state of a group.
    pub fn reports(&mut self, group: GroupId, node: usize, state: State) {
        self.remove(Alone(group, node));
        if state.sends() {
            self.add(Sends(group, node))
        } else {
            self.remove(Sends(group, node))
        };
    }

    pub fn node_died(&mut self, node: usize) {
        self.0.retain(|fact| !matches!(fact, Sends(_, at) | Alone(_, at) if *at == node));
    }
}
