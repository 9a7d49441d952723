//! Names and positions. Each is a type of its own, so that a count can never stand where a position belongs.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::limits::{NUMBER_MAX, VOLUMES_MAX};

/// A node of the cluster: its position in the configuration's list of nodes, sorted by name (the same on every node).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId(pub u16);

/// A group: its position in the configuration's list of groups, sorted by name (the same on every node).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupId(pub u32);

/// A volume: its position in its group's list of volumes, sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VolumeId(pub u16);

/// A view of a group's copy, numbered by whoever opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ViewId(pub u64);

/// A mark: the node that set it, and a counter of that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MarkId(pub u64);

impl MarkId {
    pub const COUNTER_BITS: u32 = 40;
    pub const COUNTER_MAX: u64 = (1 << MarkId::COUNTER_BITS) - 1;

    /// As it was read: 0 is no mark, and nobody gives an id beyond node and counter.
    pub fn read(id: u64) -> Option<MarkId> {
        let bits = MarkId::COUNTER_BITS + u16::BITS;
        (id > 0 && id >> bits == 0).then_some(MarkId(id))
    }

    /// Who set it.
    pub fn node(self) -> NodeId {
        NodeId((self.0 >> MarkId::COUNTER_BITS) as u16)
    }
}

/// Some volumes of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VolumeSet([u64; VOLUMES_MAX / 64]);

impl VolumeSet {
    /// Bytes of it in a record or frame.
    pub const BYTES: usize = VOLUMES_MAX / 8;

    pub fn contains(&self, id: VolumeId) -> bool {
        self.0.get(usize::from(id.0 / 64)).is_some_and(|word| word >> (id.0 % 64) & 1 != 0)
    }

    /// False: it was there already.
    pub fn insert(&mut self, id: VolumeId) -> bool {
        let is_new = !self.contains(id);
        if let Some(word) = self.0.get_mut(usize::from(id.0 / 64)) {
            *word |= 1 << (id.0 % 64);
        }
        is_new
    }

    /// False: it was not there.
    pub fn remove(&mut self, id: VolumeId) -> bool {
        let was_there = self.contains(id);
        if let Some(word) = self.0.get_mut(usize::from(id.0 / 64)) {
            *word &= !(1 << (id.0 % 64));
        }
        was_there
    }

    pub fn is_empty(&self) -> bool {
        *self == VolumeSet::default()
    }

    /// Those of either.
    pub(crate) fn with(mut self, other: &VolumeSet) -> VolumeSet {
        self.0.iter_mut().zip(other.0).for_each(|(word, theirs)| *word |= theirs);
        self
    }

    /// Those that are not among the others.
    pub(crate) fn without(mut self, other: &VolumeSet) -> VolumeSet {
        self.0.iter_mut().zip(other.0).for_each(|(word, theirs)| *word &= !theirs);
        self
    }

    /// Those of both.
    pub(crate) fn both(mut self, other: &VolumeSet) -> VolumeSet {
        self.0.iter_mut().zip(other.0).for_each(|(word, theirs)| *word &= theirs);
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = VolumeId> + '_ {
        (0..VOLUMES_MAX as u16).map(VolumeId).filter(|id| self.contains(*id))
    }

    /// For people; `None`: there are none.
    pub(crate) fn named(&self) -> Option<String> {
        let one = |id: VolumeId| format!("volume {} of the group (in the order of names)", id.0 + 1);
        let all: Vec<String> = self.iter().map(one).collect();
        (!all.is_empty()).then(|| all.join(" and "))
    }

    /// One more than the last of them.
    pub(crate) fn end(&self) -> usize {
        self.iter().last().map_or(0, |id| usize::from(id.0) + 1)
    }

    pub(crate) fn words(&self) -> [u64; VOLUMES_MAX / 64] {
        self.0
    }

    pub(crate) fn from_words(words: [u64; VOLUMES_MAX / 64]) -> VolumeSet {
        VolumeSet(words)
    }
}

/// A position in the write order of one incarnation. The first number of an incarnation is 1; 0 means "none yet".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

impl Seq {
    pub const NONE: Seq = Seq(0);

    /// The number that follows.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

/// Counts the runs of one node with one group: taken anew, durably, at every start and at every promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Incarnation(pub u64);

/// Identity of a history. `number` counts promotions along the history, `tag` is random, so that two nodes which
/// promote alone never name the same generation. Number 0 is blank: no history yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation {
    pub number: u64,
    pub tag: u64,
}

impl Generation {
    pub const BLANK: Generation = Generation { number: 0, tag: 0 };

    pub fn is_blank(self) -> bool {
        self.number == 0
    }

    /// The number of a generation that comes after both. A peer may have named the highest there is: then the tags alone tell
    /// them apart.
    pub(crate) fn number_after(self, other: u64) -> u64 {
        self.number.max(other).min(NUMBER_MAX - 1) + 1
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}", self.number, self.tag >> 32)
    }
}

/// A position in a history: which history, which run of its primary, which write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    pub generation: Generation,
    pub incarnation: Incarnation,
    pub seq: Seq,
}

impl Position {
    /// Its position within a generation, later ones being greater.
    pub(crate) fn run_and_seq(self) -> (Incarnation, Seq) {
        (self.incarnation, self.seq)
    }

    /// Counted up to, not made up: a peer names no other.
    pub(crate) fn is_in_reach(self) -> bool {
        [self.generation.number, self.incarnation.0, self.seq.0].iter().all(|number| *number <= NUMBER_MAX)
    }
}

/// One authenticated connection between two nodes. Frames of any other session are refused (rule 18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub u64);

/// The host's name for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// The host's name for one request of a front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The host's name for one operator command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u64);

/// The engine's name for one operation it asked for; comes back with the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl Token {
    pub(crate) fn new(group: GroupId, slot: u32) -> Token {
        Token(u64::from(group.0) << 32 | u64::from(slot))
    }

    pub(crate) fn group(self) -> GroupId {
        GroupId((self.0 >> 32) as u32)
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// A different number for each group from one source of randomness (splitmix64's finaliser, Steele et al. 2014).
pub(crate) fn mix(entropy: u64, salt: u64) -> u64 {
    let mut z = entropy.wrapping_add(salt.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_volumes_has_each_of_them_once() {
        let mut set = VolumeSet::default();
        assert!(set.is_empty() && set.named().is_none());
        let last = VolumeId(VOLUMES_MAX as u16 - 1);
        assert!(set.insert(VolumeId(2)) && !set.insert(VolumeId(2)) && set.insert(last));
        assert!(!set.insert(VolumeId(VOLUMES_MAX as u16)) || !set.contains(VolumeId(VOLUMES_MAX as u16)));
        assert_eq!((set.iter().collect::<Vec<_>>(), set.end()), (Vec::from([VolumeId(2), last]), VOLUMES_MAX));
        assert_eq!(VolumeSet::from_words(set.words()), set);
        assert!(set.remove(last) && !set.remove(last));
        assert_eq!(set.named().as_deref(), Some("volume 3 of the group (in the order of names)"));
    }
}
