//! A delta: what a node held where it differed from the peer that an operator chose over it. Ranges and their content, saved before
//! anything of it is overwritten.
//!
//! ```text
//! head | batch, batch, batch ...
//!        index of the undo store + content
//! ```
//! The batches come first and are flushed. Then the head is written, and it tells how many there are: a file without a head, or with
//! fewer batches than its head counts, is not whole (docs/book/format.md).

use alloc::vec::Vec;

use crate::formats::codec::{FieldDecoder, IndexBlock};
use crate::formats::undo::{INDEX_BYTES, UndoIndex};
use crate::ids::{Generation, NodeId, Position};
use crate::limits::META_BLOCK_BYTES;

/// Format versions: 2, which says what is lost; 1, the first, was never released.
pub const VERSION: u16 = 2;
/// The head, and where the first batch begins.
pub const HEAD_BYTES: u64 = META_BLOCK_BYTES;
const BLOCK: IndexBlock =
    IndexBlock { magic: *b"FSHDELTA", version: VERSION, oldest: VERSION, bytes: HEAD_BYTES as usize, entries_max: 1 };

/// What a delta says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeltaHead {
    /// Identity of cluster and group.
    pub tag: u64,
    /// The node whose content this is, and its peer, whose content was chosen.
    pub node: NodeId,
    pub peer: NodeId,
    /// The last position of the history that was given up.
    pub position: Position,
    /// The history that was chosen.
    pub chosen: Generation,
    pub batches: u64,
    pub ranges: u64,
    /// Of the ranges, without those that are lost.
    pub content_bytes: u64,
    /// Of the ranges: what stood there could not be read any more.
    pub lost_ranges: u64,
    pub lost_bytes: u64,
    /// Of the file.
    pub file_bytes: u64,
    /// Checksum of the last batch's index; 0 without one.
    pub chain: u32,
}

impl DeltaHead {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = BLOCK.begin(1);
        w.u16(self.node.0);
        w.u16(self.peer.0);
        w.u64(self.tag);
        w.position(self.position);
        w.generation(self.chosen);
        w.u64(self.batches);
        w.u64(self.ranges);
        w.u64(self.content_bytes);
        w.u64(self.file_bytes);
        w.u32(self.chain);
        w.u64(self.lost_ranges);
        w.u64(self.lost_bytes);
        w.sealed(HEAD_BYTES as usize)
    }

    /// A whole head, or `None`.
    pub fn decode(block: &[u8]) -> Option<DeltaHead> {
        let (_, mut r) = BLOCK.open(block)?;
        let (node, peer) = (NodeId(r.u16()?), NodeId(r.u16()?));
        Some(DeltaHead {
            node,
            peer,
            tag: r.u64()?,
            position: r.position()?,
            chosen: r.generation()?,
            batches: r.u64()?,
            ranges: r.u64()?,
            content_bytes: r.u64()?,
            file_bytes: r.u64()?,
            chain: r.u32()?,
            lost_ranges: r.u64()?,
            lost_bytes: r.u64()?,
        })
    }

    /// What an operator hears of it.
    pub fn saved(&self) -> SavedDelta {
        let DeltaHead { ranges, content_bytes: bytes, lost_ranges, lost_bytes, .. } = *self;
        SavedDelta { ranges, bytes, lost_ranges, lost_bytes }
    }

    /// The version of a head that is whole but of another version than this program's.
    pub fn other_version(block: &[u8]) -> Option<u16> {
        BLOCK.of_other_version(block).map(|(version, _)| version)
    }
}

/// A delta that was saved, durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SavedDelta {
    /// The lost ones count too.
    pub ranges: u64,
    /// Of what is saved.
    pub bytes: u64,
    /// What stood there could not be read any more.
    pub lost_ranges: u64,
    pub lost_bytes: u64,
}

/// Walks over the batches of a delta, in their order.
#[derive(Clone, Copy, Debug)]
pub struct DeltaWalk {
    head: DeltaHead,
    batches: u64,
    chain: u32,
    /// Where the next batch begins.
    offset: u64,
}

impl DeltaWalk {
    pub fn new(head: DeltaHead) -> DeltaWalk {
        DeltaWalk { head, batches: 0, chain: 0, offset: HEAD_BYTES }
    }

    /// Where the next index stands in the file; `None`: the end.
    pub fn next_offset(&self) -> Option<u64> {
        (self.batches < self.head.batches).then_some(self.offset)
    }

    /// All that the head counts was there.
    pub fn is_whole(&self) -> bool {
        let end = (self.batches, self.chain, self.offset);
        end == (self.head.batches, self.head.chain, self.head.file_bytes)
    }

    /// Takes up the block that stands at [`DeltaWalk::next_offset`]. `None`: it is not the next index, and the delta is damaged here.
    pub fn take(&mut self, block: &[u8]) -> Option<UndoIndex> {
        let index = UndoIndex::decode(block)?;
        let (tag, mark) = (self.head.tag, mark(self.head.position.generation));
        let belongs = (index.tag, index.mark, index.ordinal, index.chain) == (tag, mark, self.batches + 1, self.chain);
        let end = self.offset.checked_add(u64::from(index.bytes)).filter(|end| *end <= self.head.file_bytes)?;
        if !belongs || index.ring_offset != self.offset {
            return None;
        }
        self.chain = FieldDecoder(block.get(INDEX_BYTES - 4..)?).u32()?;
        (self.batches, self.offset) = (self.batches + 1, end);
        Some(index)
    }
}

/// The mark of its batches: which history they are of.
pub(crate) fn mark(generation: Generation) -> u64 {
    generation.tag.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Incarnation, Seq};

    // proves: P9
    #[test]
    fn a_head_comes_back_and_every_flipped_byte_is_noticed() {
        let position =
            Position { generation: Generation { number: 3, tag: 4 }, incarnation: Incarnation(5), seq: Seq(6) };
        let head = DeltaHead {
            tag: 1,
            position,
            batches: 7,
            file_bytes: 8,
            chain: 9,
            lost_ranges: 1,
            lost_bytes: 2,
            ..DeltaHead::default()
        };
        let image = head.encode();
        assert_eq!(DeltaHead::decode(&image), Some(head));
        for at in 0..image.len() {
            let mut bad = image.clone();
            bad[at] ^= 0x10;
            assert_eq!(DeltaHead::decode(&bad), None, "byte {at}");
        }
    }
}
