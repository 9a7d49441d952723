//! Names and positions. Each is a type of its own, so that a count can never stand where a position belongs.

use core::fmt;

use crate::limits::NUMBER_MAX;

/// A node of the cluster: its position in the configuration's list of nodes, sorted by name (the same on every node).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId(pub u16);

/// A group: its position in the configuration's list of groups, sorted by name (the same on every node).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupId(pub u32);

/// A volume: its position in its group's list of volumes, sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VolumeId(pub u16);

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
