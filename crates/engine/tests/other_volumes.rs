//! Records of a group, rewritten for other volumes: every map, with sizes of one and of several cells.

use engine::bitmap::{self, BitmapCell, REGIONS_PER_CELL};
use engine::cell::{self, CELL_BYTES, CellHead};
use engine::identity::{Confirmed, Identity, Role};
use engine::journal::{BatchOf, INDEX_BYTES, JournalEntry, JournalIndex, RecordKind};
use engine::limits::REGION_BYTES;
use engine::other_volumes::{
    FoundCells, KeptBatches, Lost, Obstacle, VolumeMap, converted, counts_under, obstacle, superblock_file,
};
use engine::superblock::{self, JournalHead, RollbackPoint, Superblock};
use engine::*;

const TAG: u64 = 42;
const CELL_SPAN: u64 = REGIONS_PER_CELL * REGION_BYTES;

fn map(from: &[Option<u16>]) -> VolumeMap {
    VolumeMap::new(from.iter().map(|from| from.map(VolumeId)).collect())
}

fn position(seq: u64) -> Position {
    Position { generation: Generation { number: 2, tag: 9 }, incarnation: Incarnation(4), seq: Seq(seq) }
}

/// A secondary at rest, with two volumes.
fn secondary() -> Superblock {
    let identity =
        Identity { role: Role::Secondary, incarnation: Incarnation(6), position: position(30), ..Identity::default() };
    Superblock {
        update: 11,
        tag: TAG,
        node: NodeId(1),
        identity,
        clean: true,
        sizes: vec![4096, 8192],
        flushed: vec![Seq(3), Seq(5)],
        own_from_ordinal: 7,
        ..Superblock::default()
    }
}

fn primary() -> Superblock {
    let sb = secondary();
    Superblock { identity: Identity { role: Role::Primary, ..sb.identity }, ..sb }
}

/// Every map of two volumes of before to at most three.
fn maps() -> Vec<VolumeMap> {
    let ways = [None, Some(0), Some(1)];
    let mut maps: Vec<Vec<Option<u16>>> = vec![Vec::new()];
    for length in 0..3 {
        let longer: Vec<_> = maps
            .iter()
            .filter(|map| map.len() == length)
            .flat_map(|map| ways.map(|way| [&map[..], &[way]].concat()))
            .filter(|map| [Some(0), Some(1)].iter().all(|id| map.iter().filter(|from| *from == id).count() < 2))
            .collect();
        maps.extend(longer);
    }
    maps.iter().filter(|map| map.iter().any(Option::is_some)).map(|from| self::map(from)).collect()
}

#[test]
fn the_superblock_keeps_its_history_and_each_volume_its_own() {
    for map in maps() {
        for sb in [primary(), secondary()] {
            let mut sb = sb;
            sb.aside.insert(VolumeId(1));
            sb.detached.insert(VolumeId(1));
            sb.unfilled.insert(VolumeId(0));
            let device_bytes: Vec<u64> = map.positions().map(|_| 1 << 20).collect();
            let new = converted(&sb, &map, &device_bytes, Lost::default());
            let file = superblock_file(&new);
            let read = superblock::read(&file, TAG).expect("sound");
            assert_eq!((read.damaged, read.found.as_ref()), (0, Some(&new)));
            assert_eq!(
                (new.identity, new.confirmed, new.journal, new.clean),
                (sb.identity, sb.confirmed, sb.journal, true)
            );
            assert_eq!(new.update, 13);
            // What the journal kept of a volume that left is kept for no primary any more.
            assert_eq!(new.given_up, sb.given_up);
            let lost = Lost { kept: true, bits: true };
            let gave_up = converted(&sb, &map, &device_bytes, lost);
            let is_secondary = sb.identity.role == Role::Secondary;
            assert_eq!(gave_up.given_up, if is_secondary { sb.identity.position.seq } else { sb.given_up });
            assert!(gave_up.compare);
            let came = map.positions().any(|from| from.is_none());
            assert_eq!(new.compare, came);
            for (at, from) in map.positions().enumerate() {
                let (is_detached, is_unfilled) =
                    (new.detached.contains(VolumeId(at as u16)), new.unfilled.contains(VolumeId(at as u16)));
                let (is_aside, id) = (new.aside.contains(VolumeId(at as u16)), from.map(|from| usize::from(from.0)));
                match id {
                    Some(id) => {
                        assert_eq!((new.sizes[at], new.flushed[at]), (sb.sizes[id], sb.flushed[id]));
                        assert_eq!((is_aside, is_detached, is_unfilled), (id == 1, id == 1, id == 0));
                    }
                    None => {
                        let size = if is_secondary { 0 } else { 1 << 20 };
                        assert_eq!((new.sizes[at], new.flushed[at]), (size, Seq::NONE));
                        assert!(is_aside, "nothing of it is sent, and nothing taken, unasked");
                        assert_eq!((is_detached, is_unfilled), (false, is_secondary), "and nothing has filled it");
                    }
                }
            }
        }
    }
}

// proves: P1, P7
/// As a secondary a node holds the other one's content.
#[test]
fn a_device_counts_under_the_role_that_its_node_had() {
    let both = [Role::Primary, Role::Secondary];
    for (role, had) in both.into_iter().flat_map(|role| both.map(|had| (role, had))) {
        assert_eq!(counts_under(role, had), role == had);
    }
}

/// By name; and a name that came on the recorded device of one that left is that volume. A device is one volume's.
#[test]
fn names_and_devices_make_the_map() {
    let (before, recorded) = (["data", "log"], [1, 2]);
    let of = |now: &[(&str, u32)]| {
        let names: Vec<&str> = now.iter().map(|(name, _)| *name).collect();
        let (map, renamed) = VolumeMap::of_names(&before, &names, |then, volume| recorded[then] == now[volume].1);
        let from: Vec<_> = map.positions().map(|from| from.map(|from| from.0)).collect();
        (from, renamed.iter().map(|id| id.0).collect::<Vec<_>>())
    };
    assert_eq!(of(&[("a", 3), ("data", 1), ("log", 2)]), (vec![None, Some(0), Some(1)], vec![]));
    assert_eq!(of(&[("data", 1), ("wal", 2)]), (vec![Some(0), Some(1)], vec![1]), "a new name");
    assert_eq!(of(&[("data", 1), ("wal", 3)]), (vec![Some(0), None], vec![]), "another device");
    assert_eq!(of(&[("v", 2), ("w", 2)]), (vec![Some(1), None], vec![0]));
}

// proves: P3, P7
/// Names are all that two nodes compare: on either node it is one that came, and its size and content are what they were.
#[test]
fn a_new_name_is_believed_by_nobody() {
    let set = |ids: &[u16]| {
        let mut set = VolumeSet::default();
        ids.iter().for_each(|id| _ = set.insert(VolumeId(*id)));
        set
    };
    let (renamed, all_renamed) = (set(&[1]), set(&[0, 1]));
    let before = map(&[Some(1), Some(0)]);
    let now = before.clone().with_renamed(&renamed);
    assert_eq!(now.positions().collect::<Vec<_>>(), [Some(VolumeId(1)), None]);
    for sb in [primary(), secondary()] {
        let is_secondary = sb.identity.role == Role::Secondary;
        let sb = Superblock { sizes: vec![4096, 8192], ..sb };
        let new = converted(&sb, &now, &[16384, 16384], Lost::default());
        assert_eq!((new.aside, new.compare, new.sizes), (renamed, true, vec![8192, 4096]));
        assert_eq!((new.renamed == renamed, new.unfilled.is_empty()), (is_secondary, true), "it is what it was");
        // Where every volume has a new name none is in order before somebody says so.
        let none_left = before.clone().with_renamed(&all_renamed);
        assert_eq!(obstacle(&sb, &none_left, false), None);
        assert_eq!(converted(&sb, &none_left, &[4096, 8192], Lost::default()).aside, all_renamed);
    }
    // What nobody had filled is still that.
    let sb = Superblock { unfilled: set(&[0]), ..secondary() };
    let new = converted(&sb, &now, &[4096, 4096], Lost::default());
    assert_eq!((new.unfilled, new.renamed), (renamed, VolumeSet::default()));
    let (file, _) = bitmap_file(&[4096, 4096]);
    let cells = convert(&file, &now, &[4096, 4096]).expect("sound");
    assert_eq!((cells[0].words[0], cells[1].words[0]), (word(1, 0), 1), "all of it is dirty");
}

#[test]
fn what_is_not_at_rest_is_an_obstacle() {
    let stays = map(&[Some(1), None]);
    let of = |sb: &Superblock| obstacle(sb, &stays, false);
    assert_eq!((of(&primary()), of(&secondary())), (None, None));
    let with = |change: fn(&mut Superblock)| {
        let mut sb = secondary();
        change(&mut sb);
        of(&sb)
    };
    assert_eq!(with(|sb| sb.clean = false), Some(Obstacle::Unclean));
    assert_eq!(with(|sb| sb.rolling_back = true), Some(Obstacle::SyncUnderWay));
    assert_eq!(
        with(|sb| sb.rollback_point = RollbackPoint { id: 1, ..RollbackPoint::default() }),
        Some(Obstacle::SyncUnderWay)
    );
    assert_eq!(with(|sb| sb.identity.inconsistent = true), Some(Obstacle::SyncUnderWay));
    assert_eq!(with(|sb| sb.unverified_run = Incarnation(1)), Some(Obstacle::Unverified));
    assert_eq!(with(|sb| sb.identity.handed_over = true), Some(Obstacle::HandedOver));
    let running = Superblock { clean: false, ..primary() };
    assert_eq!(obstacle(&running, &stays, true), None, "its stop is still to come");
    assert_eq!(obstacle(&primary(), &map(&[None, None]), false), Some(Obstacle::NothingStays));
    let mut aside = primary();
    aside.aside.insert(VolumeId(1));
    assert_eq!(obstacle(&aside, &map(&[Some(1)]), false), Some(Obstacle::AllAside));
    assert_eq!(obstacle(&aside, &map(&[None, Some(1)]), false), Some(Obstacle::AllAside));
}

/// The file of two volumes: each cell has a word of its own.
fn bitmap_file(sizes: &[u64]) -> (Vec<u8>, Vec<(u16, u64)>) {
    let (mut file, mut cells) = (Vec::new(), Vec::new());
    for (volume, size) in sizes.iter().enumerate() {
        for cell in 0..size.div_ceil(CELL_SPAN) {
            cells.push((volume as u16, cell));
            let mut words = vec![0; (REGIONS_PER_CELL / 64) as usize];
            words[0] = word(volume as u16, cell);
            let confirmed = Confirmed { position: position(cell + 1), image: position(cell) };
            let body = BitmapCell::encode(VolumeId(volume as u16), *size, cell * REGIONS_PER_CELL, confirmed, &words);
            let offset = (cells.len() as u64 - 1) * CELL_BYTES;
            let slot = |update| {
                cell::encode(bitmap::KIND, &CellHead { update, tag: TAG, offset, ..CellHead::default() }, &body)
            };
            file.extend([slot(8), slot(7)].concat());
        }
    }
    (file, cells)
}

fn word(volume: u16, cell: u64) -> u64 {
    1 << volume | 1 << (cell + 8)
}

fn convert(file: &[u8], map: &VolumeMap, sizes: &[u64]) -> Result<Vec<BitmapCell>, Obstacle> {
    let mut found = FoundCells::default();
    let cells: Vec<_> = file.chunks(CELL_BYTES as usize).collect();
    for (index, bytes) in cells.iter().enumerate() {
        found.take(TAG, index, bytes)?;
    }
    let mut new = Vec::new();
    for (index, planned) in found.plan(map, sizes).iter().enumerate() {
        let old: Vec<_> = planned.from.iter().map(|from| cells[*from].to_vec()).collect();
        let image = planned.image(&secondary(), index, &old)?;
        assert_eq!(image.len(), CELL_BYTES as usize);
        let choice = cell::choose(bitmap::KIND, TAG, index as u64 * CELL_BYTES, &image);
        assert!(!choice.ambiguous && choice.damaged == 0 && choice.highest > cell::RELIED_ON_FROM);
        let (_, body) = choice.newest.expect("whole");
        new.push(BitmapCell::decode(body).expect("sound"));
    }
    Ok(new)
}

// proves: rule 2
#[test]
fn bits_follow_their_volume_and_those_of_a_new_one_are_all_set() {
    for sizes in [[4096, 4096], [3 * CELL_SPAN, 4096], [CELL_SPAN + 4096, 2 * CELL_SPAN]] {
        let (file, _) = bitmap_file(&sizes);
        for map in maps() {
            let new_sizes: Vec<u64> = map
                .positions()
                .map(|from| from.map_or(CELL_SPAN + 70 * REGION_BYTES, |from| sizes[usize::from(from.0)]))
                .collect();
            let cells = convert(&file, &map, &new_sizes).expect("sound");
            assert_eq!(cells.len() as u64 * CELL_BYTES, bitmap_file_bytes(new_sizes.iter().copied()));
            for cell in cells {
                let number = cell.first_region / REGIONS_PER_CELL;
                let from = map.positions().nth(usize::from(cell.volume.0)).expect("there");
                assert_eq!(cell.volume_bytes, new_sizes[usize::from(cell.volume.0)]);
                match from {
                    Some(from) => {
                        assert_eq!(cell.words[0], word(from.0, number));
                        assert!(cell.words[1..].iter().all(|word| *word == 0));
                        assert_eq!(cell.confirmed.position, position(number + 1));
                    }
                    None if number == 0 => assert!(cell.words.iter().all(|word| *word == u64::MAX)),
                    None => assert_eq!(cell.words[..3], [u64::MAX, (1 << 6) - 1, 0]),
                }
            }
        }
    }
}

// proves: P9
/// All of what it covered is dirty then; a cell of another version is not passed over.
#[test]
fn a_cell_that_is_lost_costs_its_own_range_alone() {
    let sizes = [2 * CELL_SPAN, 4096];
    let (mut file, cells) = bitmap_file(&sizes);
    let keep = map(&[Some(0), Some(1)]);
    let lost = 1;
    file[CELL_BYTES as usize..2 * CELL_BYTES as usize].fill(7);
    let new = convert(&file, &keep, &sizes).expect("the others are sound");
    for (at, (cell, (volume, number))) in new.iter().zip(cells).enumerate() {
        assert_eq!(cell.words[0], if at == lost { u64::MAX } else { word(volume, number) });
    }
    // A growth of a device that no start has recorded.
    let (grown, _) = bitmap_file(&[3 * CELL_SPAN]);
    let (old, _) = bitmap_file(&[CELL_SPAN]);
    let mixed = [&old[..], &grown[CELL_BYTES as usize..]].concat();
    assert_eq!(convert(&mixed, &keep, &sizes), Err(Obstacle::Bitmap));
    let (mut newer, _) = bitmap_file(&sizes);
    for slot in newer.chunks_mut(cell::BYTES).take(4) {
        slot[8] = bitmap::VERSION as u8 + 1;
        let end = slot.len() - 4;
        let checksum = crc32c::crc32c(&slot[..end]);
        slot[end..].copy_from_slice(&checksum.to_le_bytes());
    }
    assert_eq!(convert(&newer, &keep, &sizes), Err(Obstacle::Bitmap));
}

fn entry(seq: u64, volume: u16, kind: RecordKind) -> JournalEntry {
    let payload_bytes = if kind == RecordKind::Data { 512 } else { 0 };
    JournalEntry {
        seq: Seq(seq),
        kind,
        no_hole: false,
        resync: false,
        sets_aside: kind == RecordKind::Void,
        mark: false,
        volume: VolumeId(volume),
        offset: 512 * seq,
        length: if kind == RecordKind::Zero { 4096 } else { u64::from(payload_bytes) },
        wall: Wall(seq),
        payload_at: if payload_bytes > 0 { 4096 } else { 0 },
        payload_bytes,
        payload_crc: payload_bytes,
    }
}

fn batch(offset: u64, ordinal: u64, entries: Vec<JournalEntry>) -> JournalIndex {
    JournalIndex {
        tag: TAG,
        ring_offset: offset,
        ordinal,
        boot: Incarnation(6),
        origin: NodeId(0),
        generation: position(0).generation,
        incarnation: position(0).incarnation,
        snapshot: 0,
        durable_below: 0,
        bytes: 8192,
        first: entries[0].seq,
        entries,
    }
}

/// A ring of 32 KiB: the second batch is the last in it, the third stands at its start.
fn ring() -> (Superblock, Vec<u8>) {
    let batches = [
        batch(16384, 4, vec![entry(27, 0, RecordKind::Data), entry(28, 1, RecordKind::Zero)]),
        batch(24576, 5, vec![entry(29, 1, RecordKind::Void)]),
        batch(0, 6, vec![entry(30, 1, RecordKind::Data)]),
    ];
    let mut ring = vec![0; 32768];
    for batch in batches {
        let at = batch.ring_offset as usize;
        ring[at..at + INDEX_BYTES].copy_from_slice(&batch.encode(BatchOf::Journal));
    }
    let journal = JournalHead { offset: 16384, ordinal: 4 };
    (Superblock { journal, confirmed_ordinal: 7, ..secondary() }, ring)
}

fn rewritten(sb: &Superblock, ring: &[u8], map: &VolumeMap) -> Result<Vec<JournalIndex>, Obstacle> {
    walked(sb, ring, map).map(|(found, _)| found)
}

/// And whether content is kept no more.
fn walked(sb: &Superblock, ring: &[u8], map: &VolumeMap) -> Result<(Vec<JournalIndex>, bool), Obstacle> {
    let mut kept = KeptBatches::new(sb, ring.len() as u64);
    let mut found = Vec::new();
    while let Some(offset) = kept.next_offset() {
        let at = offset as usize;
        match kept.take(&ring[at..at + INDEX_BYTES], map)? {
            Some(block) => found.push(JournalIndex::decode(BatchOf::Journal, &block).expect("whole")),
            None if kept.looks_again() => {}
            None => break,
        }
    }
    kept.end().map(|()| (found, kept.gives_up()))
}

// proves: P1
#[test]
fn what_is_kept_for_the_primary_follows_its_volume() {
    let (sb, ring) = ring();
    let all = rewritten(&sb, &ring, &map(&[None, Some(0), Some(1)])).expect("sound");
    let volumes: Vec<_> =
        all.iter().flat_map(|batch| &batch.entries).map(|entry| (entry.seq.0, entry.volume.0)).collect();
    assert_eq!(volumes, [(27, 1), (28, 2), (29, 2), (30, 2)]);
    assert_eq!(all.iter().map(|batch| batch.ring_offset).collect::<Vec<_>>(), [16384, 24576, 0]);
    assert!(all[0].entries[0].payload_bytes == 512 && all[1].entries[0].sets_aside);
    // Of one that left the numbers stay.
    let left = rewritten(&sb, &ring, &map(&[Some(0)])).expect("sound");
    let entries: Vec<_> = left.iter().flat_map(|batch| &batch.entries).collect();
    assert_eq!((entries[0].kind, entries[0].volume), (RecordKind::Data, VolumeId(0)));
    for entry in &entries[1..] {
        assert_eq!(
            (entry.kind, entry.volume, entry.payload_bytes, entry.sets_aside),
            (RecordKind::Void, VolumeId(0), 0, false)
        );
    }
    let gives_up = |from: &[Option<u16>]| walked(&sb, &ring, &map(from)).expect("sound").1;
    assert!(gives_up(&[Some(0)]) && gives_up(&[Some(1)]) && !gives_up(&[Some(1), None, Some(0)]));
    let nothing_kept = Superblock { journal: JournalHead { offset: 24576, ordinal: 5 }, ..sb.clone() };
    let (_, gave_up) = walked(&nothing_kept, &ring, &map(&[Some(1)])).expect("sound");
    assert!(!gave_up, "of the volume that left nothing is kept");
    // Once more, as after a crash: the same.
    let mut again = ring.clone();
    for batch in &left {
        let at = batch.ring_offset as usize;
        again[at..at + INDEX_BYTES].copy_from_slice(&batch.encode(BatchOf::Journal));
    }
    assert_eq!(rewritten(&sb, &again, &map(&[Some(0)])).expect("sound"), left);
}

// proves: P9
#[test]
fn a_journal_that_is_not_whole_or_not_applied_is_refused() {
    let (sb, ring) = ring();
    let keep = map(&[Some(0), Some(1)]);
    let mut torn = ring.clone();
    torn[24576 + 100] ^= 1;
    assert_eq!(rewritten(&sb, &torn, &keep), Err(Obstacle::Journal), "it was durable");
    let behind = Superblock { identity: Identity { position: position(29), ..sb.identity }, ..sb.clone() };
    assert_eq!(rewritten(&behind, &ring, &keep), Err(Obstacle::Unapplied));
    let empty = Superblock { journal: JournalHead { offset: 8192, ordinal: 7 }, ..sb.clone() };
    assert_eq!(rewritten(&empty, &ring, &keep), Ok(vec![]));
    assert_eq!(
        rewritten(&Superblock { journal: sb.journal, ..primary() }, &ring, &keep),
        Ok(vec![]),
        "a primary keeps none"
    );
}
