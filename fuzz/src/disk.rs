//! What lies in a state directory: superblocks, journal batches, bitmaps, fingerprints.

use engine::cell;
use engine::identity::{Identity, Role};
use engine::journal::{ENTRIES_MAX, Entry, INDEX_BYTES, Index, RecordKind};
use engine::limits::{PART_BYTES_MAX, REGION_BYTES};
use engine::superblock::{self, JournalHead, RollbackPoint, Superblock};
use engine::{Bitmap, BitmapFile, Generation, Incarnation, NodeId, Position, Seq, VolumeId, Wall};
use host::disk::fingerprint::Fingerprint;

use crate::Seed;

/// The bytes as they are, and with a good checksum at the end of their first `block` bytes, so that what lies behind
/// that check is reached too.
fn as_is_and_mended(bytes: &[u8], block: usize) -> [Vec<u8>; 2] {
    let mut mended = bytes.to_vec();
    if let Some(block) = mended.get_mut(..block) {
        let (content, checksum) = block.split_at_mut(block.len() - 4);
        checksum.copy_from_slice(&crc32c::crc32c(content).to_le_bytes());
    }
    [bytes.to_vec(), mended]
}

const GENERATION: Generation = Generation { number: 3, tag: 0x1234_5678_9abc_def0 };

fn sample() -> Superblock {
    let position = Position { generation: GENERATION, incarnation: Incarnation(4), seq: Seq(99) };
    Superblock {
        update: 6,
        tag: 42,
        node: NodeId(1),
        identity: Identity { role: Role::Primary, generation: GENERATION, position, ..Identity::default() },
        clean: true,
        journal: JournalHead { offset: 8192, ordinal: 7 },
        applied_wall: Wall(5),
        ..Superblock::default()
    }
}

/// Rule: what is read comes back when it is written again, and what is chosen is a whole copy of this group.
pub fn superblock(bytes: &[u8]) {
    // Zeroes behind the input: seeds hold one copy's fields, not its padding.
    let mut copy = bytes.to_vec();
    copy.resize(cell::BYTES, 0);
    let [copy, mended] = as_is_and_mended(&copy, cell::BYTES);
    let read = Superblock::decode(&mended);
    if let Ok(read) = &read {
        assert_eq!(Superblock::decode(&read.encode()[..cell::BYTES]).as_ref(), Ok(read));
    }
    let known = sample().encode();
    for twins in [[&copy[..], &copy], [&mended, &mended], [&copy, &mended]] {
        let slot = twins.concat();
        for file in [[&slot[..], &known], [&known, &slot]] {
            let Ok(chosen) = superblock::read(&file.concat(), 42) else { continue };
            let found = chosen.found.expect("one slot was written");
            assert!(found.tag == 42 && (found == sample() || Ok(&found) == read.as_ref()));
        }
    }
    let _ = (Superblock::decode(bytes), superblock::read(bytes, 42));
}

pub fn superblock_seeds() -> Vec<Seed> {
    let fields = |superblock: &Superblock| superblock.encode()[..512].to_vec();
    let secondary = Superblock { identity: Identity { inconsistent: true, ..Identity::default() }, ..sample() };
    let position = Position { generation: GENERATION, incarnation: Incarnation(4), seq: Seq(90) };
    let point = RollbackPoint { id: 7, position, wall: Wall(3), batches: 12, reserved_bytes: 1 << 30 };
    let sync = Superblock { rollback_point: point, rolling_back: true, ..secondary.clone() };
    let doubt = Superblock { in_doubt: Incarnation(3), flushed: vec![Seq(80), Seq(99)], alone: true, ..sample() };
    vec![
        ("primary", sample().encode()[..cell::BYTES].to_vec()),
        ("secondary_fields", fields(&secondary)),
        ("rollback_point_fields", fields(&sync)),
        ("in_doubt_fields", fields(&doubt)),
        ("blank", vec![0; 8]),
    ]
}

const KIND: cell::Kind = cell::Kind { magic: *b"FSHTESTS", version: 3 };
const PLACE: u64 = 2 * cell::CELL_BYTES;

fn cell_update(update: u64) -> Vec<u8> {
    cell::encode(KIND, &cell::Head { update, tag: 42, place: PLACE, ..cell::Head::default() }, &update.to_le_bytes())
}

/// Rule: a cell's choice is one of its whole copies that belong to it, and none of those is newer. The first byte says
/// which copies the bytes take the place of (lowest four bits) and which of them get a good checksum.
pub fn cell(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let mut copy = bytes.to_vec();
    copy.resize(cell::BYTES, 0);
    let [copy, mended] = as_is_and_mended(&copy, cell::BYTES);
    let mut file = [cell_update(4), cell_update(5)].concat();
    for (number, place) in file.chunks_mut(cell::BYTES).enumerate() {
        if which >> number & 1 != 0 {
            place.copy_from_slice(if which >> (number + 4) & 1 != 0 { &mended } else { &copy });
        }
    }
    let copies = cell::copies(KIND, 42, PLACE, &file);
    let choice = cell::choose(KIND, 42, PLACE, &file);
    assert!(choice.damaged <= 4 && (choice.newest.is_ok() || !choice.in_doubt));
    if let Ok((head, body)) = choice.newest {
        assert!(copies.contains(&choice.newest) && body.len() == cell::BODY_BYTES);
        assert!((head.tag, head.place) == (42, PLACE));
        assert!(copies.iter().flatten().all(|(other, _)| other.update <= head.update));
        assert_eq!(cell::decode(KIND, &cell::encode(KIND, &head, body)[..cell::BYTES]), Ok((head, body)));
    }
    let _ = cell::choose(KIND, 42, PLACE, bytes);
}

pub fn cell_seeds() -> Vec<Seed> {
    let placed = |which: u8, update: &[u8]| [&[which], &update[..48]].concat();
    let elsewhere = cell::Head { update: 6, tag: 42, place: 0, ..cell::Head::default() };
    let newer = cell::Kind { version: 4, ..KIND };
    vec![
        ("newer_update", placed(0x33, &cell_update(6))),
        ("wrong_slot", placed(0xcc, &cell_update(6))),
        ("one_twin", placed(0x11, &cell_update(6))),
        ("torn", placed(0x0c, &cell_update(7))),
        ("astray", placed(0x33, &cell::encode(KIND, &elsewhere, &[]))),
        ("newer_version", placed(0xff, &cell::encode(newer, &elsewhere, &[]))),
    ]
}

/// Rule: every record of a believed index lies inside its batch and is no longer than a frame.
pub fn journal_index(bytes: &[u8]) {
    let mut block = bytes.to_vec();
    block.resize(INDEX_BYTES, 0);
    for block in as_is_and_mended(&block, INDEX_BYTES) {
        let Some(index) = Index::decode(&block) else { continue };
        assert!(!index.entries.is_empty() && index.entries.len() <= ENTRIES_MAX);
        for entry in &index.entries {
            assert!(u64::from(entry.payload_bytes) <= PART_BYTES_MAX);
            assert!(u64::from(entry.payload_at) + u64::from(entry.payload_bytes) <= u64::from(index.bytes));
        }
        assert_eq!(Index::decode(&index.encode()), Some(index));
    }
    let _ = Index::decode(bytes);
}

pub fn journal_index_seeds() -> Vec<Seed> {
    let entry = |seq: u64, kind, payload_bytes: u32| Entry {
        seq: Seq(seq),
        kind,
        no_hole: kind == RecordKind::Zero,
        resync: seq % 2 == 0,
        volume: VolumeId(2),
        offset: 4096,
        length: if payload_bytes > 0 { u64::from(payload_bytes) } else { 1 << 20 },
        wall: Wall(7),
        payload_at: if payload_bytes > 0 { 4096 } else { 0 },
        payload_bytes,
        payload_crc: 1,
    };
    let index = |entries| Index {
        tag: 42,
        ring_offset: 8192,
        ordinal: 7,
        boot: Incarnation(2),
        origin: NodeId(1),
        generation: GENERATION,
        incarnation: Incarnation(4),
        cut: 3,
        bytes: 16384,
        entries,
    };
    let mixed = vec![
        entry(8, RecordKind::Data, 4096),
        entry(9, RecordKind::Zero, 0),
        entry(10, RecordKind::Void, 0),
        entry(11, RecordKind::SyncEnd, 0),
    ];
    let full = (1..=ENTRIES_MAX as u64).map(|seq| entry(seq, RecordKind::Data, 512)).collect();
    vec![("mixed_fields", index(mixed).encode()[..320].to_vec()), ("full", index(full).encode())]
}

const SIZES: [u64; 2] = [100 * REGION_BYTES, 7 * REGION_BYTES - 512];

/// Rule: a believed image comes back when it is written again, and none counts more bytes than the volumes have.
pub fn bitmaps(bytes: &[u8]) {
    let mut images = as_is_and_mended(bytes, 4096);
    // The checksum of the bits stands in the header: mend that one first.
    let length = images[1].len().saturating_sub(4096).min(24);
    if length > 0 {
        let crc = crc32c::crc32c(&images[1][4096..4096 + length]);
        images[1][40..48].copy_from_slice(&(length as u64).to_le_bytes());
        images[1][48..52].copy_from_slice(&crc.to_le_bytes());
        images[1] = as_is_and_mended(&images[1], 4096)[1].clone();
    }
    for image in images {
        if let Ok(file) = BitmapFile::read(&image) {
            assert!(file.bits.len() + 4096 <= image.len());
            let _ = engine::split_bits(file.bits, &[u64::MAX, u64::MAX]);
        }
        let Some(maps) = engine::decode_bitmaps(&image, 42, NodeId(1), GENERATION, &SIZES) else { continue };
        for (map, size) in maps.iter().zip(SIZES) {
            assert!(map.dirty_bytes() <= size);
        }
        let again = engine::encode_bitmaps(42, NodeId(1), GENERATION, &maps.iter().collect::<Vec<_>>());
        assert_eq!(engine::decode_bitmaps(&again, 42, NodeId(1), GENERATION, &SIZES), Some(maps));
    }
}

pub fn bitmaps_seeds() -> Vec<Seed> {
    let mut maps = SIZES.map(Bitmap::new);
    for region in [0, 3, 64, 99] {
        maps[0].set(region);
    }
    maps[1].set(6);
    let image = engine::encode_bitmaps(42, NodeId(1), GENERATION, &[&maps[0], &maps[1]]);
    vec![("two_volumes", image[..4096 + 24].to_vec())]
}

/// Rule: what is read comes back when it is written again, alone and among others in a group's file.
pub fn fingerprints(bytes: &[u8]) {
    for bytes in as_is_and_mended(bytes, bytes.len().max(4)) {
        if let Ok(read) = Fingerprint::from_bytes(&bytes) {
            assert_eq!(Fingerprint::from_bytes(&read.to_bytes()), Ok(read.clone()));
            assert!(!read.to_string().is_empty());
        }
        match farshore::daemon::seals::decode(&bytes) {
            Ok(seals) => assert!(seals.len() <= bytes.len()),
            Err(error) => assert!(!format!("{error:#}").is_empty()),
        }
    }
}

/// A file's fingerprint by its documented layout: no volume is needed to make one.
fn file_fingerprint() -> Vec<u8> {
    let mut bytes = Vec::from(*b"FARSEAL\0");
    bytes.extend([1, 0, 1, 0]);
    bytes.extend(68u32.to_le_bytes());
    for number in [11u64, 1 << 20, 3] {
        bytes.extend(number.to_le_bytes());
    }
    for (seconds, nanoseconds) in [(1_700_000_000i64, 5u32), (1_700_000_001, 999_999_999)] {
        bytes.extend(seconds.to_le_bytes());
        bytes.extend(nanoseconds.to_le_bytes());
    }
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

pub fn fingerprints_seeds() -> Vec<Seed> {
    let one = file_fingerprint();
    let named = |name: &str| [&[name.len() as u8], name.as_bytes(), &(one.len() as u32).to_le_bytes(), &one].concat();
    vec![("file", one.clone()), ("group", [named("data"), named("log")].concat())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_believed() {
        assert!(Superblock::decode(&superblock_seeds()[0].1).is_ok());
        assert!(cell::decode(KIND, &cell_update(4)[..cell::BYTES]).is_ok());
        assert!(Index::decode(&journal_index_seeds()[1].1).is_some());
        assert!(engine::decode_bitmaps(&bitmaps_seeds()[0].1, 42, NodeId(1), GENERATION, &SIZES).is_some());
        assert!(Fingerprint::from_bytes(&fingerprints_seeds()[0].1).is_ok());
        assert_eq!(farshore::daemon::seals::decode(&fingerprints_seeds()[1].1).map(|seals| seals.len()).ok(), Some(2));
    }
}
