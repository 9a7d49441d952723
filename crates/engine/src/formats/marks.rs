//! The file of marks: named points of the write order. A mark has no content: it says which number of which history was the last
//! before it.
//!
//! On disk: cells of [`SLOTS_PER_CELL`] slots. A slot holds a mark or nothing. On the link a mark's terms are the same bytes.

use alloc::string::String;
use alloc::vec::Vec;

use crate::formats::cell::{BODY_BYTES, CELL_BYTES, CellKind, Rejected};
use crate::formats::codec::{FieldDecoder, FieldEncoder};
use crate::ids::{MarkId, Position};
use crate::limits::{MARK_NAME_BYTES_MAX, MARKS_MAX};
use crate::time::Wall;

/// Format versions: 1 is the first.
pub const VERSION: u16 = 1;
pub const KIND: CellKind = CellKind { magic: *b"FSHMARKS", version: VERSION, oldest: VERSION };
/// One mark in a cell, and the payload of its terms.
pub const SLOT_BYTES: usize = 160;
pub const SLOTS_PER_CELL: usize = BODY_BYTES / SLOT_BYTES;
const _: () = assert!(SLOTS_PER_CELL == 25 && MARKS_MAX.is_multiple_of(SLOTS_PER_CELL));

/// Cells of the file.
pub const CELLS: usize = MARKS_MAX / SLOTS_PER_CELL;

/// Bytes of the file of marks.
pub const FILE_BYTES: u64 = CELLS as u64 * CELL_BYTES;

/// Bits of a slot.
const LOCKED: u16 = 1;
const THERE: u16 = 2;
const LOST: u16 = 4;
const DROPPED: u16 = 8;
const DOUBTED: u16 = 16;
const BITS: u16 = LOCKED | THERE | LOST | DROPPED | DOUBTED;

/// A named point of the write order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    pub id: MarkId,
    /// Its own number: what has a lower one lies before it. One that never had a number in a stream has that of the last write, which
    /// lies before it too.
    pub position: Position,
    /// The primary's stamp of it.
    pub wall: Wall,
    /// Marks of several groups that were set at one moment have the same; 0: of this group alone.
    pub moment: u64,
    /// Empty: it came without its terms, and is called by its number.
    pub name: String,
    /// It is dropped only by whoever says so of the lock.
    pub locked: bool,
    /// Of a primary: the peer has it, durable. Of a secondary always.
    pub there: bool,
    /// Of a primary: it stands in no order that reached the peer.
    pub lost: bool,
    /// It is `lost` as far as this node can know, and the peer has not said so: it may have it.
    pub doubted: bool,
    /// Gone for people; its slot is free once the peer has heard of it.
    pub dropped: bool,
}

impl Mark {
    fn encode_into(&self, w: &mut FieldEncoder) {
        let end = w.0.len() + SLOT_BYTES;
        w.u64(self.id.0);
        w.position(self.position);
        w.u64(self.wall.0);
        w.u64(self.moment);
        let bits = [self.locked, self.there, self.lost, self.dropped, self.doubted];
        w.u16(bits.into_iter().enumerate().fold(0, |bits, (at, bit)| bits | u16::from(bit) << at));
        w.u8(self.name.len() as u8);
        w.0.extend_from_slice(self.name.as_bytes());
        w.pad_to(end);
    }

    /// `Some(None)`: there is none.
    fn decode_slot(slot: &[u8]) -> Option<Option<Mark>> {
        if slot.iter().all(|byte| *byte == 0) {
            return Some(None);
        }
        let mut r = FieldDecoder(slot);
        let id = MarkId::read(r.u64()?)?;
        let (position, wall) = (r.peers_position()?, r.wall()?);
        let (moment, bits, length) = (r.u64()?, r.u16().filter(|bits| bits & !BITS == 0)?, usize::from(r.u8()?));
        let (name, rest) = r.0.split_at_checked(length).filter(|_| length <= MARK_NAME_BYTES_MAX)?;
        let name = core::str::from_utf8(name).ok().filter(|name| name.is_empty() || may_be_called(name))?;
        rest.iter().all(|byte| *byte == 0).then_some(Some(Mark {
            id,
            position,
            wall,
            moment,
            name: name.into(),
            locked: bits & LOCKED != 0,
            there: bits & THERE != 0,
            lost: bits & LOST != 0,
            dropped: bits & DROPPED != 0,
            doubted: bits & DOUBTED != 0,
        }))
    }

    /// Payload of `MarkTerms`.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = FieldEncoder::default();
        self.encode_into(&mut w);
        w.0
    }

    /// The terms of a mark that has a name.
    pub fn decode(bytes: &[u8]) -> Option<Mark> {
        let mark = Mark::decode_slot(bytes).filter(|_| bytes.len() == SLOT_BYTES)??;
        (!mark.name.is_empty()).then_some(mark)
    }
}

/// Whether a mark may have this name: letters, digits, `-`, `_`, `.` and `:`, the first one a letter or a digit.
pub fn may_be_called(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric();
    (1..=MARK_NAME_BYTES_MAX).contains(&name.len())
        && name.starts_with(is_plain)
        && name.chars().all(|c| is_plain(c) || matches!(c, '-' | '_' | '.' | ':'))
}

/// The body of a cell with these slots.
pub fn encode_slots<'a>(slots: impl Iterator<Item = Option<&'a Mark>>) -> Vec<u8> {
    let mut w = FieldEncoder::default();
    for slot in slots {
        let end = w.0.len() + SLOT_BYTES;
        if let Some(mark) = slot {
            mark.encode_into(&mut w);
        }
        w.pad_to(end);
    }
    w.0
}

/// The slots of a cell.
///
/// # Errors
/// [`Rejected::Damaged`] for a body that no program of this version writes.
pub fn decode_slots(body: &[u8]) -> Result<Vec<Option<Mark>>, Rejected> {
    let slots = body.chunks_exact(SLOT_BYTES).take(SLOTS_PER_CELL);
    slots.map(|slot| Mark::decode_slot(slot).ok_or(Rejected::Damaged)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Generation, Incarnation, Seq};

    fn sample() -> Mark {
        Mark {
            id: MarkId(7 << MarkId::COUNTER_BITS | 3),
            position: Position {
                generation: Generation { number: 2, tag: 9 },
                incarnation: Incarnation(4),
                seq: Seq(77),
            },
            wall: Wall(5),
            moment: 11,
            name: "nightly-2026.11:a".into(),
            locked: true,
            ..Mark::default()
        }
    }

    // proves: P9
    #[test]
    fn marks_come_back_from_a_cell_and_from_their_terms() {
        let mark = sample();
        assert_eq!(Mark::decode(&mark.encode()), Some(mark.clone()));
        let body = encode_slots([None, Some(&mark)].into_iter());
        assert_eq!(decode_slots(&body), Ok(alloc::vec![None, Some(mark.clone())]));
        let bytes = mark.encode();
        for end in 0..bytes.len() {
            assert_eq!(Mark::decode(&bytes[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn a_name_that_could_be_taken_for_something_else_is_refused() {
        let longest = "a".repeat(MARK_NAME_BYTES_MAX);
        for name in ["a", "2026-11-30T05:00", "before_upgrade.1", &longest] {
            assert!(may_be_called(name), "{name}");
        }
        for name in ["", "-a", ".a", "a b", "a/b", "ä", "a\n", &alloc::format!("{longest}a")] {
            assert!(!may_be_called(name), "{name}");
        }
        for id in [0, 1 << 56, u64::MAX] {
            assert_eq!(Mark::decode(&Mark { id: MarkId(id), ..sample() }.encode()), None, "nobody gives the id {id}");
        }
        let unnamed = Mark { name: String::new(), ..sample() };
        assert_eq!(Mark::decode(&unnamed.encode()), None, "terms have a name");
    }
}
