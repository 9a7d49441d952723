//! A block of metadata that outlives a torn write, rot, and a write that went astray: kept in two slots, and in each slot
//! twice.
//!
//! ```text
//! cell:  slot 0: copy, copy   slot 1: copy, copy        4 x 4 KiB
//! ```
//! Update number *u* writes both copies of slot *u* mod 2 with one durable write, and only its completion lets anything
//! follow from it, from the third on. So a crash in the middle leaves the other slot whole, and one rotten copy leaves its
//! twin (docs/book/format.md argues each case).

use alloc::vec::Vec;

use crate::formats::codec::{FieldDecoder, FieldEncoder};
use crate::ids::NodeId;
use crate::limits::META_BLOCK_BYTES;

/// One copy.
pub const BYTES: usize = META_BLOCK_BYTES as usize;
/// Both copies of one slot: what an update writes.
pub const SLOT_BYTES: u64 = 2 * META_BLOCK_BYTES;
/// What a cell takes in its file.
pub const CELL_BYTES: u64 = 2 * SLOT_BYTES;
/// The first update that anything may follow from; those before it are written for its sake, one after the other. From it on
/// no slot is what a torn first write leaves, so whatever is found there instead is known for what it is.
pub const RELIED_ON_FROM: u64 = 3;
/// Fields before the body.
pub const HEAD_BYTES: usize = 40;
/// What a cell can hold.
pub const BODY_BYTES: usize = BYTES - HEAD_BYTES - 4;

/// What kind of cell, in which format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellKind {
    pub magic: [u8; 8],
    pub version: u16,
    /// The oldest version that is read. What is written anew is of this program's.
    pub oldest: u16,
}

/// The fields every cell begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CellHead {
    /// Who wrote it.
    pub node: NodeId,
    /// Whose differences, or which peer's stream, it is about.
    pub peer: NodeId,
    /// What the kind makes of it.
    pub flags: u16,
    /// Counts updates; the higher one is newer. Its parity is its slot.
    pub update: u64,
    /// Identity of cluster and group.
    pub tag: u64,
    /// Where the cell begins in its file.
    pub offset: u64,
}

impl CellHead {
    /// Where this update is written.
    pub fn slot_offset(&self) -> u64 {
        self.offset + (self.update % 2) * SLOT_BYTES
    }
}

/// Why a copy does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// All zeroes: never written.
    Blank,
    Damaged,
    VersionUnknown(u16),
    /// Of another cluster or group.
    Foreign,
    /// Whole, but it belongs to another offset or is another kind of block.
    Astray,
}

/// Both copies of one update, as they are written at [`CellHead::slot_offset`].
pub fn encode(kind: CellKind, head: &CellHead, body: &[u8]) -> Vec<u8> {
    let mut w = FieldEncoder(kind.magic.to_vec());
    w.u16(kind.version);
    w.u16(head.node.0);
    w.u16(head.peer.0);
    w.u16(head.flags);
    w.u64(head.update);
    w.u64(head.tag);
    w.u64(head.offset);
    w.0.extend_from_slice(body);
    w.sealed(BYTES).repeat(2)
}

/// One copy: its head and its body.
///
/// # Errors
/// Why it does not count. Whether it belongs where it was found is not looked at here.
pub fn decode(kind: CellKind, block: &[u8]) -> Result<(CellHead, &[u8]), Rejected> {
    if block.len() != BYTES {
        return Err(Rejected::Damaged);
    }
    if block.iter().all(|b| *b == 0) {
        return Err(Rejected::Blank);
    }
    let (content, stored) = block.split_at(BYTES - 4);
    if FieldDecoder(stored).u32() != Some(crc32c::crc32c(content)) {
        return Err(Rejected::Damaged);
    }
    if content[..8] != kind.magic {
        return Err(Rejected::Astray);
    }
    let mut r = FieldDecoder(&content[8..]);
    let version = r.u16().unwrap_or_default();
    if !(kind.oldest..=kind.version).contains(&version) {
        return Err(Rejected::VersionUnknown(version));
    }
    head(&mut r).map(|head| (head, &content[HEAD_BYTES..])).ok_or(Rejected::Damaged)
}

fn head(r: &mut FieldDecoder<'_>) -> Option<CellHead> {
    let (node, peer, flags) = (NodeId(r.u16()?), NodeId(r.u16()?), r.u16()?);
    Some(CellHead { node, peer, flags, update: r.u64()?, tag: r.u64()?, offset: r.u64()? })
}

/// What the four copies of a cell come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellChoice<'a> {
    /// The newest whole copy that belongs here.
    pub newest: Copy<'a>,
    /// Copies that do not count though their twin or the other slot does: named, and mended by the next update.
    pub damaged: u32,
    /// A slot is lost for another reason than a torn write: what it held may have been newer than what is left.
    pub ambiguous: bool,
    /// The number of the newest whole copy that belongs here, also when another one forbids to go by it; 0: there is none.
    pub highest: u64,
}

/// One copy as it was found where it should be: its head and its body, or why it does not count.
pub type Copy<'a> = Result<(CellHead, &'a [u8]), Rejected>;

/// The four copies of the cell at `offset`, in the order of the file. What is missing of `bytes` counts as damaged.
pub fn copies(kind: CellKind, tag: u64, offset: u64, bytes: &[u8]) -> [Copy<'_>; 4] {
    [0, 1, 2, 3].map(|index| {
        let block = bytes.get(index * BYTES..(index + 1) * BYTES).unwrap_or_default();
        belongs(decode(kind, block), tag, offset, index as u64 / 2)
    })
}

/// Reads the cell at `offset` from its [`CELL_BYTES`] bytes.
///
/// A slot whose copies are both unreadable was being written when the node died, and the other slot counts. A slot that
/// holds something which was never meant for it was overwritten by a write that went astray: then what is left is not
/// known to be the newest. So it is with one whose copies both begin with what no update of this cell begins with: a torn
/// write leaves each sector old or new.
pub fn choose(kind: CellKind, tag: u64, offset: u64, bytes: &[u8]) -> CellChoice<'_> {
    let copies = copies(kind, tag, offset, bytes);
    let slots = [better(copies[0], copies[1]), better(copies[2], copies[3])];
    let broken = copies.iter().filter(|c| matches!(c, Err(Rejected::Damaged | Rejected::Astray))).count();
    // A torn update leaves the other one as it was, whole and two updates old: no twin to the one that counts.
    let outdated =
        copies.chunks(2).filter(|twins| matches!(twins, [Ok((a, _)), Ok((b, _))] if a.update != b.update)).count();
    let damaged = (broken + outdated) as u32;
    let ambiguous = [0, 1].iter().any(|slot| {
        // Beside update 1 nothing was ever lost: what follows from an update comes after the third.
        let was_written = slots[1 - slot].is_ok_and(|(head, _)| head.update > 1);
        let alien = || [0, 1].iter().all(|twin| begins_alien(kind, tag, offset, bytes, 2 * slot + twin));
        was_written
            && match slots[*slot] {
                Err(Rejected::Astray | Rejected::Blank) => true,
                Err(Rejected::Damaged) => alien(),
                _ => false,
            }
    });
    // A slot of a newer program is the newer one: going on from the other would forget what that program recorded.
    let refused = |slot: &Result<_, Rejected>| matches!(slot, Err(Rejected::VersionUnknown(_) | Rejected::Foreign));
    let newest = if let Some(refused) = slots.iter().find(|slot| refused(slot)) {
        *refused
    } else {
        let whole = slots.iter().filter_map(|slot| slot.ok()).max_by_key(|(head, _)| head.update);
        whole.ok_or_else(|| first_update_torn(&slots))
    };
    let highest = slots.iter().filter_map(|slot| slot.ok()).map(|(head, _)| head.update).max().unwrap_or_default();
    CellChoice { newest, damaged, ambiguous: ambiguous && newest.is_ok(), highest }
}

/// Whether a copy begins with what no update of this cell begins with.
fn begins_alien(kind: CellKind, tag: u64, offset: u64, bytes: &[u8], index: usize) -> bool {
    let Some(head) = bytes.get(index * BYTES..index * BYTES + HEAD_BYTES) else { return false };
    head[..8] != kind.magic || head[24..32] != tag.to_le_bytes() || head[32..40] != offset.to_le_bytes()
}

/// Without a whole slot: a group whose very first update was torn is new, nothing was ever acknowledged on it.
fn first_update_torn(slots: &[Copy<'_>; 2]) -> Rejected {
    match slots {
        [Err(Rejected::Blank), Err(Rejected::Blank | Rejected::Damaged)] => Rejected::Blank,
        _ => Rejected::Damaged,
    }
}

fn belongs(copy: Copy<'_>, tag: u64, offset: u64, slot: u64) -> Copy<'_> {
    match copy {
        Ok((head, _)) if head.tag != tag => Err(Rejected::Foreign),
        Ok((head, _)) if head.offset != offset || head.update % 2 != slot => Err(Rejected::Astray),
        other => other,
    }
}

/// The twin that tells more: a whole one, else what explains the slot best.
fn better<'a>(a: Copy<'a>, b: Copy<'a>) -> Copy<'a> {
    let rank = |copy: &Copy<'a>| match copy {
        Err(Rejected::VersionUnknown(_)) => 5,
        Ok(_) => 4,
        Err(Rejected::Foreign) => 3,
        Err(Rejected::Astray) => 2,
        Err(Rejected::Damaged) => 1,
        Err(Rejected::Blank) => 0,
    };
    match (a, b) {
        (Ok((x, _)), Ok((y, _))) => {
            if x.update >= y.update {
                a
            } else {
                b
            }
        }
        _ if rank(&a) >= rank(&b) => a,
        _ => b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: CellKind = CellKind { magic: *b"FSHTESTS", version: 2, oldest: 2 };
    const OFFSET: u64 = 3 * CELL_BYTES;

    fn update(update: u64) -> Vec<u8> {
        encode(KIND, &CellHead { update, tag: 42, offset: OFFSET, ..CellHead::default() }, &update.to_le_bytes())
    }

    fn cell(slot_0: &[u8], slot_1: &[u8]) -> Vec<u8> {
        [slot_0, slot_1].concat()
    }

    fn newest(bytes: &[u8]) -> Result<u64, Rejected> {
        choose(KIND, 42, OFFSET, bytes).newest.map(|(head, _)| head.update)
    }

    // proves: P9
    #[test]
    fn the_newer_slot_counts_and_one_rotten_copy_changes_nothing() {
        let good = cell(&update(4), &update(5));
        assert_eq!(newest(&good), Ok(5));
        for at in (0..good.len()).step_by(97) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            let seen = choose(KIND, 42, OFFSET, &bad);
            assert_eq!(seen.newest.map(|(head, body)| (head.update, body[0])), Ok((5, 5)), "byte {at}");
            assert!(!seen.ambiguous && seen.damaged == 1, "byte {at} is named");
        }
    }

    #[test]
    fn a_torn_update_leaves_the_one_before() {
        let torn = |number| {
            let mut slot = update(number);
            (slot[600], slot[BYTES + 600]) = (1, 1);
            slot
        };
        assert_eq!(newest(&cell(&update(4), &torn(5))), Ok(4));
        assert_eq!(newest(&cell(&torn(6), &update(5))), Ok(5));
        let blank = vec![0; SLOT_BYTES as usize];
        assert!(!choose(KIND, 42, OFFSET, &cell(&blank, &update(1))).ambiguous);
        assert_eq!(newest(&cell(&blank, &update(1))), Ok(1));
        assert_eq!(newest(&cell(&blank, &blank)), Err(Rejected::Blank));
        assert_eq!(newest(&cell(&blank, &torn(1))), Err(Rejected::Blank), "the very first update");
        assert_eq!(newest(&cell(&torn(4), &torn(5))), Err(Rejected::Damaged));
    }

    // proves: P9
    #[test]
    fn what_went_astray_over_a_slot_leaves_the_cell_ambiguous() {
        let other = encode(KIND, &CellHead { update: 9, tag: 42, offset: 0, ..CellHead::default() }, &[]);
        let seen = cell(&update(4), &other);
        let seen = choose(KIND, 42, OFFSET, &seen);
        assert!(seen.ambiguous && seen.newest.is_ok());
        let own_but_other_slot = cell(&update(5), &update(5));
        assert!(choose(KIND, 42, OFFSET, &own_but_other_slot).ambiguous);
    }

    #[test]
    fn another_kind_of_block_or_plain_data_over_a_slot_leaves_the_cell_ambiguous() {
        let index = encode(
            CellKind { magic: *b"FSHOTHER", version: 1, oldest: 1 },
            &CellHead { tag: 42, ..CellHead::default() },
            &[7],
        );
        let [data, zeroes] = [0x5a, 0].map(|byte| vec![byte; SLOT_BYTES as usize]);
        let begins_with_zeroes = [&zeroes[..BYTES], &data[BYTES..]].concat();
        for astray in [&index, &data, &zeroes, &begins_with_zeroes] {
            // From the first update on that anything follows from.
            for bytes in [cell(&update(4), astray), cell(&update(2), astray), cell(astray, &update(3))] {
                let seen = choose(KIND, 42, OFFSET, &bytes);
                assert!(seen.ambiguous && seen.newest.is_ok());
            }
            // Over one copy only: its twin counts.
            let bytes = cell(&update(4), &[&astray[..BYTES], &update(5)[BYTES..]].concat());
            let seen = choose(KIND, 42, OFFSET, &bytes);
            assert_eq!((seen.ambiguous, seen.newest.map(|(head, _)| head.update)), (false, Ok(5)));
        }
    }

    // proves: P9
    #[test]
    fn no_torn_update_leaves_the_cell_ambiguous() {
        // Each sector is old or new; before that, one copy may have rotted where it begins. The first update of a slot is over
        // zeroes.
        let blank = vec![0; SLOT_BYTES as usize];
        for (old, new, other) in [(update(3), update(5), update(4)), (blank, update(2), update(1))] {
            for rotten in [None, Some(0), Some(BYTES)] {
                for kept in (0..1u32 << 16).step_by(41) {
                    let sectors = old.chunks(512).zip(new.chunks(512)).enumerate();
                    let mut slot: Vec<u8> =
                        sectors.flat_map(|(at, (o, n))| if kept & (1 << at) == 0 { o } else { n }).copied().collect();
                    if let Some(at) = rotten.filter(|_| old[0] != 0) {
                        slot[at] ^= 1;
                    }
                    let slots = if new == update(5) { [&other, &slot] } else { [&slot, &other] };
                    let bytes = cell(slots[0], slots[1]);
                    assert!(!choose(KIND, 42, OFFSET, &bytes).ambiguous, "{kept:016b}, rotten {rotten:?}");
                }
            }
        }
    }

    // proves: rule 23
    #[test]
    fn another_group_and_a_newer_program_are_never_passed_over() {
        let foreign = encode(KIND, &CellHead { update: 7, tag: 43, offset: OFFSET, ..CellHead::default() }, &[]);
        assert_eq!(newest(&cell(&update(4), &foreign)), Err(Rejected::Foreign));
        let newer = CellKind { version: 3, oldest: 3, ..KIND };
        let newer = encode(newer, &CellHead { update: 7, tag: 42, offset: OFFSET, ..CellHead::default() }, &[]);
        assert_eq!(newest(&cell(&update(4), &newer)), Err(Rejected::VersionUnknown(3)));
    }

    // proves: rule 23
    /// After an upgrade one slot holds the version before, until the second update. The update decides, not the version.
    #[test]
    fn a_cell_of_a_version_that_is_still_read_counts_beside_a_newer_slot() {
        let next = CellKind { version: 3, oldest: 2, ..KIND };
        let of_next = |update| {
            encode(next, &CellHead { update, tag: 42, offset: OFFSET, ..CellHead::default() }, &[update as u8])
        };
        let newest = |slots: &[u8]| choose(next, 42, OFFSET, slots).newest.map(|(head, body)| (head.update, body[0]));
        assert_eq!(newest(&cell(&update(4), &update(5))), Ok((5, 5)));
        assert_eq!(newest(&cell(&of_next(6), &update(5))), Ok((6, 6)));
        assert_eq!(newest(&cell(&of_next(4), &update(5))), Ok((5, 5)));
        let older = encode(CellKind { version: 1, ..KIND }, &CellHead::default(), &[]);
        assert_eq!(newest(&cell(&update(4), &older)), Err(Rejected::VersionUnknown(1)));
    }
}
