//! What a node must know of a group after any crash: two alternating, checksummed blocks. The newer whole one counts.
//!
//! An update writes the block that is *not* the newest, durably, then counts it as the newest. A crash during the write
//! leaves the other block whole: the group is where it was before the update (docs/format.md).

use alloc::vec::Vec;

use crate::codec::{Reader, Writer};
use crate::identity::Identity;
use crate::ids::NodeId;
use crate::limits::META_BLOCK_BYTES;
use crate::time::Wall;

const MAGIC: u64 = u64::from_le_bytes(*b"FSHSUPER");
/// Format versions: 1, the first.
pub const VERSION: u16 = 1;
pub const BYTES: usize = META_BLOCK_BYTES as usize;

/// Where replay of the journal begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct JournalHead {
    pub offset: u64,
    /// Ordinal of the first batch to replay.
    pub ordinal: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Superblock {
    /// Counts updates; the higher one is newer. Its parity is its slot.
    pub update: u64,
    /// Identity of cluster and group.
    pub tag: u64,
    pub node: NodeId,
    pub peer: NodeId,
    pub identity: Identity,
    /// The last stop was clean: the bitmap file holds the dirty regions.
    pub clean: bool,
    /// The dirty regions are to be compared, not just sent: the last stop was not clean.
    pub compare: bool,
    /// The operator asked for logging; autosync waits for `sync`.
    pub held_in_logging: bool,
    pub journal: JournalHead,
    /// The primary's stamp of the last applied write.
    pub applied_wall: Wall,
}

/// Why a block is not a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// All zeroes: never written.
    Blank,
    Damaged,
    VersionUnknown(u16),
    /// Of another cluster or group.
    Foreign,
}

impl Superblock {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(MAGIC);
        w.u16(VERSION);
        w.u16(self.node.0);
        w.u16(self.peer.0);
        w.u16(u16::from(self.clean) | u16::from(self.compare) << 1 | u16::from(self.held_in_logging) << 2);
        w.u64(self.update);
        w.u64(self.tag);
        self.identity.encode(&mut w);
        w.u64(self.journal.offset);
        w.u64(self.journal.ordinal);
        w.u64(self.applied_wall.0);
        w.pad_to(BYTES - 4);
        let crc = crc32c::crc32c(&w.0);
        w.u32(crc);
        w.0
    }

    pub fn decode(block: &[u8]) -> Result<Superblock, Rejected> {
        if block.len() != BYTES {
            return Err(Rejected::Damaged);
        }
        if block.iter().all(|b| *b == 0) {
            return Err(Rejected::Blank);
        }
        let stored = u32::from_le_bytes(block[BYTES - 4..].try_into().map_err(|_| Rejected::Damaged)?);
        if crc32c::crc32c(&block[..BYTES - 4]) != stored {
            return Err(Rejected::Damaged);
        }
        let mut r = Reader(block);
        if r.u64() != Some(MAGIC) {
            return Err(Rejected::Damaged);
        }
        let version = r.u16().unwrap_or_default();
        if version != VERSION {
            return Err(Rejected::VersionUnknown(version));
        }
        Superblock::fields(&mut r).ok_or(Rejected::Damaged)
    }

    fn fields(r: &mut Reader<'_>) -> Option<Superblock> {
        let (node, peer, bits) = (NodeId(r.u16()?), NodeId(r.u16()?), r.u16()?);
        Some(Superblock {
            node,
            peer,
            clean: bits & 1 != 0,
            compare: bits & 2 != 0,
            held_in_logging: bits & 4 != 0,
            update: r.u64()?,
            tag: r.u64()?,
            identity: Identity::decode(r)?,
            journal: JournalHead { offset: r.u64()?, ordinal: r.u64()? },
            applied_wall: Wall(r.u64()?),
        })
    }

    /// Where this update is written.
    pub(crate) fn slot_offset(&self) -> u64 {
        (self.update % 2) * META_BLOCK_BYTES
    }
}

/// Chooses between the two slots: `Ok(None)` when the group is new.
pub fn choose(slots: [Result<Superblock, Rejected>; 2], tag: u64) -> Result<Option<Superblock>, Rejected> {
    // A slot of a newer program is the newer one: going on from the other would forget what that program recorded.
    if let Some(Err(unknown)) = slots.iter().find(|slot| matches!(slot, Err(Rejected::VersionUnknown(_)))) {
        return Err(*unknown);
    }
    let newest = slots.iter().filter_map(|s| s.ok()).max_by_key(|s| s.update);
    if let Some(superblock) = newest {
        return if superblock.tag == tag { Ok(Some(superblock)) } else { Err(Rejected::Foreign) };
    }
    match slots {
        [Err(Rejected::Blank), Err(Rejected::Blank)] => Ok(None),
        // The very first update was torn: nothing was ever acknowledged on it.
        [Err(Rejected::Blank), Err(Rejected::Damaged)] => Ok(None),
        [Err(Rejected::Blank), Err(why)] | [Err(why), _] => Err(why),
        _ => Err(Rejected::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Role;
    use crate::ids::Incarnation;

    fn sample(update: u64) -> Superblock {
        Superblock {
            update,
            tag: 42,
            node: NodeId(1),
            peer: NodeId(2),
            identity: Identity { role: Role::Primary, incarnation: Incarnation(3), ..Identity::default() },
            clean: true,
            journal: JournalHead { offset: 8192, ordinal: 7 },
            ..Superblock::default()
        }
    }

    #[test]
    fn a_superblock_comes_back_and_every_flipped_byte_is_noticed() {
        let image = sample(4).encode();
        assert_eq!(Superblock::decode(&image), Ok(sample(4)));
        for at in 0..BYTES {
            let mut bad = image.clone();
            bad[at] ^= 0x10;
            assert!(Superblock::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_newer_whole_slot_counts() {
        let (old, new) = (sample(4), sample(5));
        assert_eq!(choose([Ok(old), Ok(new)], 42), Ok(Some(new)));
        assert_eq!(choose([Ok(old), Err(Rejected::Damaged)], 42), Ok(Some(old)));
        assert_eq!(choose([Err(Rejected::Blank), Ok(new)], 42), Ok(Some(new)));
        assert_eq!(choose([Err(Rejected::Blank), Err(Rejected::Blank)], 42), Ok(None));
        assert_eq!(choose([Err(Rejected::Blank), Err(Rejected::Damaged)], 42), Ok(None));
        assert_eq!(choose([Err(Rejected::Damaged), Err(Rejected::Damaged)], 42), Err(Rejected::Damaged));
        assert_eq!(choose([Ok(old), Ok(new)], 43), Err(Rejected::Foreign));
        let later = Rejected::VersionUnknown(2);
        assert_eq!(choose([Ok(old), Err(later)], 42), Err(later), "never back to what an older program left");
    }
}
