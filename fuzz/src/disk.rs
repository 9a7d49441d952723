//! What lies in a state directory: superblocks and other cells, journal and undo batches, fingerprints.

use engine::activity::{ActivityCell, Extent, SLOTS_PER_CELL, encode_slots};
use engine::bitmap::{BitmapCell, REGIONS_PER_CELL};
use engine::cell;
use engine::identity::{Confirmed, Identity, Role};
use engine::journal::{BatchOf, ENTRIES_MAX, INDEX_BYTES, JournalEntry, JournalIndex, RecordKind};
use engine::limits::{PART_BYTES_MAX, REGION_BYTES};
use engine::marks::{self, Mark};
use engine::queue_log::QueueCell;
use engine::state::Mode;
use engine::superblock::{self, JournalHead, RollbackPoint, Superblock};
use engine::undo;
use engine::{Bitmap, Generation, Incarnation, MarkId, NodeId, Position, Seq, VolumeId, Wall};
use host::disk::fingerprint::Fingerprint;
use host::link::history;

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

fn confirmed() -> Confirmed {
    let at = |seq| Position { generation: GENERATION, incarnation: Incarnation(4), seq: Seq(seq) };
    Confirmed { position: at(97), image: at(95) }
}

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
    let point = RollbackPoint {
        id: 7,
        position,
        parent: position,
        wall: Wall(3),
        batches: 12,
        reserved_bytes: 1 << 30,
        is_of_fork: true,
    };
    let sync = Superblock { rollback_point: point, rolling_back: true, ..secondary.clone() };
    let unverified =
        Superblock { unverified_run: Incarnation(3), flushed: vec![Seq(80), Seq(99)], alone: true, ..sample() };
    let sizes = vec![1 << 30, 512];
    let unverified = Superblock { confirmed: confirmed(), primary_mode: Some(Mode::Nearsync), sizes, ..unverified };
    vec![
        ("primary", sample().encode()[..cell::BYTES].to_vec()),
        ("secondary_fields", fields(&secondary)),
        ("rollback_point_fields", fields(&sync)),
        ("unverified_fields", fields(&unverified)),
        ("blank", vec![0; 8]),
    ]
}

const KIND: cell::CellKind = cell::CellKind { magic: *b"FSHTESTS", version: 3, oldest: 3 };
const OFFSET: u64 = 2 * cell::CELL_BYTES;

fn cell_update(update: u64) -> Vec<u8> {
    cell::encode(
        KIND,
        &cell::CellHead { update, tag: 42, offset: OFFSET, ..cell::CellHead::default() },
        &update.to_le_bytes(),
    )
}

/// Rule: a cell's choice is one of its whole copies that belong to it, and none of those is newer. The first byte says
/// which copies the bytes take the place of (lowest four bits) and which of them get a good checksum.
pub fn cell(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let mut copy = bytes.to_vec();
    copy.resize(cell::BYTES, 0);
    let [copy, mended] = as_is_and_mended(&copy, cell::BYTES);
    let mut file = [cell_update(4), cell_update(5)].concat();
    for (number, offset) in file.chunks_mut(cell::BYTES).enumerate() {
        if which >> number & 1 != 0 {
            offset.copy_from_slice(if which >> (number + 4) & 1 != 0 { &mended } else { &copy });
        }
    }
    let copies = cell::copies(KIND, 42, OFFSET, &file);
    let choice = cell::choose(KIND, 42, OFFSET, &file);
    assert!(choice.damaged <= 4 && (choice.newest.is_ok() || !choice.ambiguous));
    if let Ok((head, body)) = choice.newest {
        assert!(copies.contains(&choice.newest) && body.len() == cell::BODY_BYTES);
        assert!((head.tag, head.offset) == (42, OFFSET));
        assert!(copies.iter().flatten().all(|(other, _)| other.update <= head.update));
        assert_eq!(cell::decode(KIND, &cell::encode(KIND, &head, body)[..cell::BYTES]), Ok((head, body)));
    }
    let _ = cell::choose(KIND, 42, OFFSET, bytes);
}

pub fn cell_seeds() -> Vec<Seed> {
    let in_slots = |which: u8, update: &[u8]| [&[which], &update[..48]].concat();
    let elsewhere = cell::CellHead { update: 6, tag: 42, offset: 0, ..cell::CellHead::default() };
    let newer = cell::CellKind { version: 4, ..KIND };
    vec![
        ("newer_update", in_slots(0x33, &cell_update(6))),
        ("wrong_slot", in_slots(0xcc, &cell_update(6))),
        ("one_twin", in_slots(0x11, &cell_update(6))),
        ("torn", in_slots(0x0c, &cell_update(7))),
        ("astray", in_slots(0x33, &cell::encode(KIND, &elsewhere, &[]))),
        ("newer_version", in_slots(0xff, &cell::encode(newer, &elsewhere, &[]))),
    ]
}

/// Rule: every record of a believed index lies inside its batch and is no longer than a frame.
pub fn journal_index(bytes: &[u8]) {
    let mut block = bytes.to_vec();
    block.resize(INDEX_BYTES, 0);
    for block in as_is_and_mended(&block, INDEX_BYTES) {
        for of in [BatchOf::Journal, BatchOf::Queue] {
            let Some(index) = JournalIndex::decode(of, &block) else { continue };
            assert!(!index.entries.is_empty() && index.entries.len() <= ENTRIES_MAX);
            for entry in &index.entries {
                assert!(u64::from(entry.payload_bytes) <= PART_BYTES_MAX);
                assert!(u64::from(entry.payload_at) + u64::from(entry.payload_bytes) <= u64::from(index.bytes));
            }
            assert_eq!(JournalIndex::decode(of, &index.encode(of)), Some(index));
        }
    }
    let _ = JournalIndex::decode(BatchOf::Journal, bytes);
}

pub fn journal_index_seeds() -> Vec<Seed> {
    let entry = |seq: u64, kind, payload_bytes: u32| JournalEntry {
        seq: Seq(seq),
        kind,
        no_hole: kind == RecordKind::Zero,
        resync: seq.is_multiple_of(2),
        sets_aside: seq.is_multiple_of(5),
        mark: false,
        volume: VolumeId(2),
        offset: 4096,
        length: if payload_bytes > 0 { u64::from(payload_bytes) } else { 1 << 20 },
        wall: Wall(7),
        payload_at: if payload_bytes > 0 { 4096 } else { 0 },
        payload_bytes,
        payload_crc: 1,
    };
    let index = |entries: Vec<JournalEntry>| JournalIndex {
        tag: 42,
        ring_offset: 8192,
        ordinal: 7,
        boot: Incarnation(2),
        origin: NodeId(1),
        generation: GENERATION,
        incarnation: Incarnation(4),
        snapshot: 3,
        durable_below: 0,
        bytes: 16384,
        first: entries[0].seq,
        entries,
    };
    let mixed = vec![
        entry(8, RecordKind::Data, 4096),
        entry(9, RecordKind::Zero, 0),
        entry(10, RecordKind::Void, 0),
        entry(11, RecordKind::SyncEnd, 0),
    ];
    let full = (1..=ENTRIES_MAX as u64).map(|seq| entry(seq, RecordKind::Data, 512)).collect();
    let of_queue = index(mixed.clone()).encode(BatchOf::Queue)[..320].to_vec();
    vec![
        ("mixed_fields", index(mixed).encode(BatchOf::Journal)[..320].to_vec()),
        ("full", index(full).encode(BatchOf::Journal)),
        ("of_queue_fields", of_queue),
    ]
}

/// The body of a cell, zeroes behind the input.
fn body(bytes: &[u8]) -> Vec<u8> {
    let mut body = bytes.to_vec();
    body.resize(cell::BODY_BYTES, 0);
    body
}

/// Rule: a believed cell comes back when it is written again, and no bit past a volume's end gets into its bitmap.
pub fn bitmap_cell(bytes: &[u8]) {
    if let Ok(read) = BitmapCell::decode(&body(bytes)) {
        let again = BitmapCell::encode(read.volume, read.volume_bytes, read.first_region, read.confirmed, &read.words);
        assert_eq!(BitmapCell::decode(&body(&again)).as_ref(), Ok(&read));
        let size = 100 * REGION_BYTES - 512;
        let mut map = Bitmap::new(size);
        map.set_cell(0, &read.words);
        assert!(map.dirty_bytes() <= size);
        map.join_cell(0, &read.words);
        assert!(map.dirty_bytes() <= size && map.next_set(100).is_none());
    }
    let _ = BitmapCell::decode(bytes);
}

pub fn bitmap_cell_seeds() -> Vec<Seed> {
    let mut map = Bitmap::new(100 * REGION_BYTES);
    for region in [0, 3, 64, 99] {
        map.set(region);
    }
    let encode = |cell: u64, words: &[u64]| {
        BitmapCell::encode(VolumeId(1), 1 << 40, cell * REGIONS_PER_CELL, confirmed(), words)
    };
    vec![("first", encode(0, &map.cell(0))), ("second_full", encode(1, &[u64::MAX; 8]))]
}

/// Rule: a believed cell names no more extents than it has slots, and they come back when they are written again.
pub fn activity_cell(bytes: &[u8]) {
    if let Ok(read) = ActivityCell::decode(&body(bytes)) {
        assert!(read.extents.len() <= SLOTS_PER_CELL);
        let again = encode_slots(read.incarnation, read.confirmed, read.extents.iter().copied().map(Some));
        assert_eq!(ActivityCell::decode(&body(&again)), Ok(read));
    }
    let _ = ActivityCell::decode(bytes);
}

pub fn activity_cell_seeds() -> Vec<Seed> {
    let extent = |volume, number| Some(Extent { volume: VolumeId(volume), number });
    let slots = [extent(0, 0), None, extent(255, (1 << 48) - 1), extent(3, 77)];
    vec![
        ("hot", encode_slots(Incarnation(5), confirmed(), slots.into_iter())),
        ("empty", encode_slots(Incarnation(6), Confirmed::default(), std::iter::empty())),
    ]
}

/// Rule: a believed cell comes back when it is written again, and so do the terms of a mark.
pub fn marks_cell(bytes: &[u8]) {
    if let Ok(read) = marks::decode_slots(&body(bytes)) {
        let again = marks::encode_slots(read.iter().map(Option::as_ref));
        assert_eq!(marks::decode_slots(&body(&again)), Ok(read));
    }
    let _ = marks::decode_slots(bytes);
    if let Some(mark) = Mark::decode(bytes) {
        assert_eq!(Mark::decode(&mark.encode()), Some(mark));
    }
}

pub fn marks_cell_seeds() -> Vec<Seed> {
    let position = Position { generation: GENERATION, incarnation: Incarnation(4), seq: Seq(90) };
    let mark = Mark { id: MarkId(7), position, wall: Wall(5), name: "nightly".into(), ..Mark::default() };
    let locked = Mark { id: MarkId(8), moment: 9, locked: true, there: true, ..mark.clone() };
    vec![
        ("two", marks::encode_slots([Some(&mark), None, Some(&locked)].into_iter())),
        ("terms", mark.encode()),
        ("empty", marks::encode_slots(std::iter::empty())),
    ]
}

/// Rule: a believed cell comes back when it is written again.
pub fn queue_cell(bytes: &[u8]) {
    if let Ok(read) = QueueCell::decode(&body(bytes)) {
        assert_eq!(QueueCell::decode(&body(&read.encode())), Ok(read));
    }
    let _ = QueueCell::decode(bytes);
}

pub fn queue_cell_seeds() -> Vec<Seed> {
    let cell = QueueCell {
        generation: GENERATION,
        head: JournalHead { offset: 8192, ordinal: 7 },
        before: (Incarnation(4), Seq(90)),
        flushed: Seq(95),
        confirmed_ordinal: 9,
        confirmed: confirmed(),
        file: 11,
        begun: Incarnation(4),
    };
    vec![("live", cell.encode()), ("head_is_past_all", QueueCell { confirmed_ordinal: 6, ..cell }.encode())]
}

/// Rule: every content of a believed index lies inside its batch, behind the index, and no range wraps.
pub fn undo_index(bytes: &[u8]) {
    let mut block = bytes.to_vec();
    block.resize(undo::INDEX_BYTES, 0);
    for block in as_is_and_mended(&block, undo::INDEX_BYTES) {
        let _ = undo::UndoIndex::other_version(&block);
        let Some(index) = undo::UndoIndex::decode(&block) else { continue };
        assert!(!index.entries.is_empty() && index.entries.len() <= undo::ENTRIES_MAX);
        for entry in &index.entries {
            assert!(entry.offset.checked_add(u64::from(entry.length)).is_some());
            let end = u64::from(entry.payload_at) + u64::from(entry.payload_bytes());
            assert!(end <= u64::from(index.bytes) || entry.payload_at == 0);
        }
        assert_eq!(undo::UndoIndex::decode(&index.encode()), Some(index));
    }
    let _ = (undo::UndoIndex::decode(bytes), undo::UndoIndex::other_version(bytes));
}

pub fn undo_index_seeds() -> Vec<Seed> {
    let saved = |number: u32, payload_at| undo::UndoEntry {
        volume: VolumeId(number as u16 % 3),
        offset: u64::from(number) << 15,
        length: if number == 2 { 512 } else { 8192 },
        payload_at,
        payload_crc: if payload_at == 0 { 0 } else { 9 },
        is_lost: false,
    };
    let index = |entries| undo::UndoIndex {
        tag: 42,
        ring_offset: 4096,
        ordinal: 3,
        mark: 8,
        boot: Incarnation(2),
        chain: 77,
        bytes: 4096 * 4,
        entries,
    };
    let mixed = vec![saved(1, 4096), saved(2, 4096 * 3), saved(3, 0)];
    let full = (0..undo::ENTRIES_MAX as u32).map(|number| saved(number, 0)).collect();
    vec![("mixed_fields", index(mixed).encode()[..256].to_vec()), ("full", index(full).encode())]
}

/// Magic, run and checksum.
const SEALS_HEAD_BYTES: usize = 20;

/// Rule: what is read comes back when it is written again, alone and among others in a group's file.
pub fn fingerprints(bytes: &[u8]) {
    let [as_is, whole] = as_is_and_mended(bytes, bytes.len().max(4));
    let [_, head] = as_is_and_mended(bytes, SEALS_HEAD_BYTES);
    for bytes in [as_is, whole, head] {
        if let Ok(read) = Fingerprint::from_bytes(&bytes) {
            assert_eq!(Fingerprint::from_bytes(&read.to_bytes()), Ok(read.clone()));
            assert!(!read.to_string().is_empty());
        }
        match farshore::daemon::seals::decode(&bytes) {
            Ok(sealed) => assert!(sealed.volumes.len() <= bytes.len()),
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
    let mut head = [farshore::daemon::seals::MAGIC, 7u64.to_le_bytes()].concat();
    head.extend(crc32c::crc32c(&head).to_le_bytes());
    vec![("file", one.clone()), ("group", [head, named("data"), named("log")].concat())]
}

/// Rule: records come in the order of their numbers, each of them once.
pub fn link_history(bytes: &[u8]) {
    for bytes in as_is_and_mended(bytes, 4096) {
        match history::parse(&bytes, Some(LINK_TAG)) {
            Ok(records) => assert!(records.list.is_sorted_by(|one, next| one.number < next.number)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

const LINK_TAG: u64 = 7;

pub fn link_history_seeds() -> Vec<Seed> {
    let record = |minute: u64| history::MinuteRecord {
        unix_ms: minute * 60_000,
        sent_bytes: 5,
        ..history::MinuteRecord::default()
    };
    let three = history::example(LINK_TAG, &[record(1), record(2), record(3)]);
    vec![("three_minutes", three.clone()), ("another_link", history::example(8, &[])), ("cut", three[..4200].to_vec())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_believed() {
        assert!(Superblock::decode(&superblock_seeds()[0].1).is_ok());
        assert!(cell::decode(KIND, &cell_update(4)[..cell::BYTES]).is_ok());
        assert!(JournalIndex::decode(BatchOf::Journal, &journal_index_seeds()[1].1).is_some());
        assert!(bitmap_cell_seeds().iter().all(|(_, seed)| BitmapCell::decode(&body(seed)).is_ok()));
        assert!(activity_cell_seeds().iter().all(|(_, seed)| ActivityCell::decode(&body(seed)).is_ok()));
        assert!(undo::UndoIndex::decode(&undo_index_seeds()[1].1).is_some());
        assert!(Fingerprint::from_bytes(&fingerprints_seeds()[0].1).is_ok());
        let sealed = farshore::daemon::seals::decode(&fingerprints_seeds()[1].1).expect("sound");
        assert_eq!((sealed.run.0, sealed.volumes.len()), (7, 2));
    }
}
