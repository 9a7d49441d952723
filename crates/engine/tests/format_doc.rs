//! docs/format.md and docs/protocol.md say byte by byte what the code writes. Every row of their tables is looked up in an
//! encoded sample whose fields all differ; and a digest of each sample is kept beside its version, so that a shape that
//! changed without its version is noticed.

use engine::activity::{self, Extent, SLOTS_PER_CELL};
use engine::bitmap::{self, BitmapCell, REGIONS_PER_CELL};
use engine::cell;
use engine::identity::{Confirmed, Identity, Role};
use engine::journal::{self, ENTRIES_MAX, JournalEntry, JournalIndex, RecordKind};
use engine::limits::{REGION_BYTES, SECTOR_BYTES};
use engine::state::{Mode, Pause, Policy, State};
use engine::superblock::{self, JournalHead, RollbackPoint, Superblock};
use engine::undo;
use engine::wire::{self, Ack, FlushPoints, FrameHeader, FrameKind, GroupHello, SyncBegin, Tick, VolumeRange};
use engine::{
    Bitmap, Generation, GroupId, Incarnation, NodeId, Position, Seq, SessionId, Settings, StartAlone, VolumeId, Wall,
};
use std::time::Duration;

const FORMAT: &str = include_str!("../../../docs/format.md");
const PROTOCOL: &str = include_str!("../../../docs/protocol.md");

/// A row of a table of bytes.
#[derive(Debug)]
struct ByteRow {
    offset: usize,
    size: usize,
    field: String,
}

/// The first table of bytes under a heading.
fn table(document: &str, heading: &str) -> Vec<ByteRow> {
    let start = document.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("there is no heading {heading:?}"));
    let lines = document[start..].lines().skip_while(|line| !line.starts_with("| Offset | Size | Field |"));
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let row = |line: &str| {
        let cells = cells(line);
        let number = |at: usize| cells[at].parse().unwrap_or_else(|_| panic!("{line:?} has no number in cell {at}"));
        ByteRow { offset: number(1), size: number(2), field: cells[3].clone() }
    };
    lines.skip(2).take_while(|line| line.starts_with('|')).map(row).collect()
}

/// What a field of the sample must hold, by its name in the document.
enum FieldHolds {
    Number(u64),
    Text(&'static str),
    Bytes(Vec<u8>),
    Zero,
}

/// Each row stands where it says, holds what it names, and together they leave no byte out.
fn check(what: &str, document: &str, heading: &str, sample: &[u8], fields: &[(&str, FieldHolds)]) {
    let rows = table(document, heading);
    assert_eq!(rows.len(), fields.len(), "{what}: the document has {} rows", rows.len());
    let mut end = 0;
    for (row, (name, holds)) in rows.iter().zip(fields) {
        assert_eq!(row.field, *name, "{what}: the field at {}", row.offset);
        assert_eq!(row.offset, end, "{what}: the row before {name:?} ends at {end}");
        end = row.offset + row.size;
        let found =
            sample.get(row.offset..end).unwrap_or_else(|| panic!("{what}: {name:?} lies past the sample's end"));
        let wanted = match holds {
            FieldHolds::Number(number) => number.to_le_bytes()[..row.size.min(8)].to_vec(),
            FieldHolds::Text(text) => text.as_bytes().to_vec(),
            FieldHolds::Bytes(bytes) => bytes.clone(),
            FieldHolds::Zero => vec![0; row.size],
        };
        assert_eq!(found, wanted, "{what}: {name:?} at {}..{end}", row.offset);
    }
    assert_eq!(end, sample.len(), "{what}: the document ends at {end}");
}

fn at(base: u64) -> Position {
    Position {
        generation: Generation { number: base, tag: base + 1 },
        incarnation: Incarnation(base + 2),
        seq: Seq(base + 3),
    }
}

fn position(base: u64) -> [FieldHolds; 4] {
    [base, base + 1, base + 2, base + 3].map(FieldHolds::Number)
}

fn identity() -> Identity {
    Identity {
        role: Role::Primary,
        generation: Generation { number: 0x1111, tag: 0x1212 },
        parent: at(0x2100),
        incarnation: Incarnation(0x3333),
        position: at(0x4100),
        inconsistent: true,
        handed_over: true,
        continued: true,
    }
}

fn superblock() -> Superblock {
    Superblock {
        update: 0x5151,
        tag: 0x5252,
        node: NodeId(0x53),
        peer: NodeId(0x54),
        identity: identity(),
        clean: true,
        compare: false,
        held_in_logging: true,
        changed_outside: true,
        rolling_back: false,
        alone: true,
        journal: JournalHead { offset: 0x5555, ordinal: 0x5656 },
        confirmed_ordinal: 0x5858,
        own_from_ordinal: 0x5454,
        applied_wall: Wall(0x5757),
        boot: u128::from_le_bytes(*b"a machine's boot"),
        unverified_run: Incarnation(0x5959),
        unverified_generations: [0x6800, 0x6900].map(|number| Generation { number, tag: number + 1 }),
        served_unverified: true,
        given_up: Seq(0x6a6a),
        rollback_point: RollbackPoint {
            id: 0x5a5a,
            position: at(0x5b00),
            parent: at(0x5b80),
            wall: Wall(0x5c5c),
            batches: 0x5d5d,
            reserved_bytes: 0x5e5e,
        },
        confirmed: confirmed(),
        primary_mode: Some(Mode::Async),
        sizes: vec![0x6b6b * SECTOR_BYTES, 0x6c6c * SECTOR_BYTES],
        flushed: vec![Seq(0x5f5f), Seq(0x6060)],
    }
}

fn confirmed() -> Confirmed {
    Confirmed { position: at(0x6600), image: at(0x6700) }
}

/// The rows of what the peer confirmed.
fn confirmed_fields() -> [(&'static str, FieldHolds); 8] {
    let [number, tag, incarnation, seq] = position(0x6600);
    let [image_number, image_tag, image_incarnation, image_seq] = position(0x6700);
    [
        ("confirmed generation number", number),
        ("confirmed generation tag", tag),
        ("confirmed incarnation", incarnation),
        ("confirmed seq", seq),
        ("confirmed image generation number", image_number),
        ("confirmed image generation tag", image_tag),
        ("confirmed image incarnation", image_incarnation),
        ("confirmed image seq", image_seq),
    ]
}

/// CRC-32C of everything before the last four bytes.
fn sealed(image: &[u8]) -> FieldHolds {
    FieldHolds::Number(u64::from(crc32c::crc32c(&image[..image.len() - 4])))
}

/// A bitmap cell's body, filled up as it stands in its copy.
fn bitmap_body() -> Vec<u8> {
    let mut map = Bitmap::new(2 * REGIONS_PER_CELL * REGION_BYTES);
    map.set(REGIONS_PER_CELL + 1);
    map.set(REGIONS_PER_CELL + 64);
    in_a_cell(bitmap::KIND, &BitmapCell::encode(VolumeId(0x61), 0x6262, REGIONS_PER_CELL, confirmed(), map.cell(1)))
}

fn activity_body() -> Vec<u8> {
    let extent = |volume, number| Some(Extent { volume: VolumeId(volume), number });
    let slots = [extent(0x63, 0x6464), None, extent(0, 0)];
    in_a_cell(activity::KIND, &activity::encode_slots(Incarnation(0x65), confirmed(), slots.into_iter()))
}

fn in_a_cell(kind: cell::CellKind, body: &[u8]) -> Vec<u8> {
    let image = cell::encode(kind, &cell::CellHead::default(), body);
    image[cell::HEAD_BYTES..][..cell::BODY_BYTES].to_vec()
}

fn entry() -> JournalEntry {
    JournalEntry {
        seq: Seq(0x7171),
        kind: RecordKind::Data,
        no_hole: true,
        resync: true,
        volume: VolumeId(0x72),
        offset: 0x7373,
        length: 0x200,
        wall: Wall(0x7474),
        payload_at: 0x1000,
        payload_bytes: 0x200,
        payload_crc: 0x7575,
    }
}

fn index() -> JournalIndex {
    JournalIndex {
        tag: 0x81,
        ring_offset: 0x8282,
        ordinal: 0x8383,
        boot: Incarnation(0x84),
        origin: NodeId(0x85),
        generation: Generation { number: 0x86, tag: 0x87 },
        incarnation: Incarnation(0x88),
        snapshot: 0x89,
        bytes: 0x2000,
        entries: vec![entry()],
    }
}

fn header() -> FrameHeader {
    FrameHeader {
        flags: 0x91,
        volume: VolumeId(0x92),
        origin: NodeId(0x93),
        incarnation: Incarnation(0x94),
        generation_tag: 0x95,
        seq: Seq(0x96),
        offset: 0x97,
        wall: Wall(0x98),
        length: 5,
        flushed: Seq(0x9b),
        ..FrameHeader::new(FrameKind::Data, SessionId(0x99), GroupId(0x9a))
    }
    .sealed(b"bytes")
}

fn ack() -> Ack {
    Ack {
        received: Seq(0xa1),
        durable: Seq(0xa2),
        applied: Seq(0xa3),
        granted_bytes: 0xa4,
        applied_wall: Wall(0xa5),
        paused: Some(Pause::HistoryFull),
        noted: Seq(0xa6),
        wants_flush: true,
    }
}

fn hello() -> GroupHello {
    GroupHello {
        identity: identity(),
        granted_bytes: 0xb1,
        dirty_bytes: 0xb2,
        failed: true,
        lacks_image: false,
        features: 0xb4,
        required: 0xb5,
        settings: Settings {
            mode: Mode::Async,
            policy: Policy::Hold(Duration::from_nanos(0xb6)),
            wait_limit: Duration::from_nanos(0xb7),
            autosync: true,
            queue_bytes: 0xb8,
            queue_items: 0xb9,
            start_alone: StartAlone::Wait(Duration::from_nanos(0xba)),
        },
        volume_bytes: vec![0xb3],
    }
}

fn tick() -> Tick {
    Tick {
        state: State::Replicating,
        mode: Mode::Nearsync,
        lag_bytes: 0xbb,
        lag: Some(Duration::from_nanos(0xbc)),
        dirty_bytes: 0xbd,
        clock: Wall(0xbe),
    }
}

fn begin() -> SyncBegin {
    SyncBegin {
        from: at(0xc100),
        parent: at(0xc200),
        to: Incarnation(0xc6),
        nothing_dirty: true,
        dirty_bytes: 0xc5,
        snapshot: 0xc4,
        attempt: 0xc3,
    }
}

fn flush_points() -> FlushPoints {
    FlushPoints { incarnation: Incarnation(0xd1), volumes: vec![Seq(0xd2)] }
}

fn range() -> Vec<u8> {
    wire::encode_ranges(&[VolumeRange { volume: VolumeId(0xe1), offset: 0xe2, length: 0xe3 }])
}

/// What stands in every cell before its body, with the superblock's values.
fn head_fields() -> [(&'static str, FieldHolds); 8] {
    [
        ("magic", FieldHolds::Text("FSHSUPER")),
        ("version", FieldHolds::Number(superblock::VERSION.into())),
        ("node", FieldHolds::Number(0x53)),
        ("peer", FieldHolds::Number(0x54)),
        ("flags", FieldHolds::Number(1 | 4 | 16 | 32 | 64)),
        ("update", FieldHolds::Number(0x5151)),
        ("tag", FieldHolds::Number(0x5252)),
        ("offset", FieldHolds::Number(0)),
    ]
}

#[test]
fn the_cell_is_as_documented() {
    let image = superblock().encode();
    assert_eq!(image.len() as u64, cell::SLOT_BYTES);
    assert_eq!(cell::CELL_BYTES, 2 * cell::SLOT_BYTES);
    let (copy, twin) = image.split_at(cell::BYTES);
    assert_eq!(copy, twin);
    let body = copy[cell::HEAD_BYTES..][..cell::BODY_BYTES].to_vec();
    let rest = [("body", FieldHolds::Bytes(body)), ("checksum", sealed(copy))];
    check("cell", FORMAT, "## Cell", copy, &head_fields().into_iter().chain(rest).collect::<Vec<_>>());
}

#[test]
fn the_superblock_is_as_documented() {
    let image = superblock().encode();
    let body = &image[cell::HEAD_BYTES..][..cell::BODY_BYTES];
    let [parent_number, parent_tag, parent_incarnation, parent_seq] = position(0x5b80);
    let [number, tag, incarnation, seq] = position(0x5b00);
    let fields = [
        ("identity", FieldHolds::Bytes(identity_bytes())),
        ("journal offset", FieldHolds::Number(0x5555)),
        ("journal ordinal", FieldHolds::Number(0x5656)),
        ("confirmed ordinal", FieldHolds::Number(0x5858)),
        ("own from ordinal", FieldHolds::Number(0x5454)),
        ("applied wall", FieldHolds::Number(0x5757)),
        ("boot", FieldHolds::Text("a machine's boot")),
        ("unverified run", FieldHolds::Number(0x5959)),
        ("unverified generation number", FieldHolds::Number(0x6800)),
        ("unverified generation tag", FieldHolds::Number(0x6801)),
        ("unverified parent generation number", FieldHolds::Number(0x6900)),
        ("unverified parent generation tag", FieldHolds::Number(0x6901)),
        ("given up", FieldHolds::Number(0x6a6a)),
        ("rollback point", FieldHolds::Number(0x5a5a)),
        ("point generation number", number),
        ("point generation tag", tag),
        ("point incarnation", incarnation),
        ("point seq", seq),
        ("point parent generation number", parent_number),
        ("point parent generation tag", parent_tag),
        ("point parent incarnation", parent_incarnation),
        ("point parent seq", parent_seq),
        ("point wall", FieldHolds::Number(0x5c5c)),
        ("point batches", FieldHolds::Number(0x5d5d)),
        ("point reserved bytes", FieldHolds::Number(0x5e5e)),
    ];
    let flushed = [
        ("mode of the primary", FieldHolds::Number(3)),
        ("volumes", FieldHolds::Number(2)),
        ("first volume's flushed", FieldHolds::Number(0x5f5f)),
        ("first volume's sectors", FieldHolds::Number(0x6b6b)),
        ("second volume's flushed", FieldHolds::Number(0x6060)),
        ("second volume's sectors", FieldHolds::Number(0x6c6c)),
        ("zero", FieldHolds::Zero),
    ];
    let fields: Vec<_> = fields.into_iter().chain(confirmed_fields()).chain(flushed).collect();
    check("superblock", FORMAT, "## Superblock", body, &fields);
}

fn identity_bytes() -> Vec<u8> {
    superblock().encode()[cell::HEAD_BYTES..][..90].to_vec()
}

#[test]
fn the_identity_is_as_documented() {
    let [parent_number, parent_tag, parent_incarnation, parent_seq] = position(0x2100);
    let [number, tag, incarnation, seq] = position(0x4100);
    check(
        "identity",
        FORMAT,
        "## Identity",
        &identity_bytes(),
        &[
            ("role", FieldHolds::Number(1)),
            ("flags", FieldHolds::Number(7)),
            ("generation number", FieldHolds::Number(0x1111)),
            ("generation tag", FieldHolds::Number(0x1212)),
            ("parent generation number", parent_number),
            ("parent generation tag", parent_tag),
            ("parent incarnation", parent_incarnation),
            ("parent seq", parent_seq),
            ("incarnation", FieldHolds::Number(0x3333)),
            ("position generation number", number),
            ("position generation tag", tag),
            ("position incarnation", incarnation),
            ("position seq", seq),
        ],
    );
}

#[test]
fn the_bitmap_is_as_documented() {
    let body = bitmap_body();
    let words = body[88..4048].to_vec();
    assert_eq!(words[..9], [2, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(words.len() as u64 * 8, REGIONS_PER_CELL, "the bits fill their row");
    let position = [
        ("volume", FieldHolds::Number(0x61)),
        ("zero", FieldHolds::Zero),
        ("region bytes", FieldHolds::Number(REGION_BYTES)),
        ("first region", FieldHolds::Number(REGIONS_PER_CELL)),
        ("volume bytes", FieldHolds::Number(0x6262)),
    ];
    let bits = [("bits", FieldHolds::Bytes(words)), ("zero", FieldHolds::Zero)];
    let fields: Vec<_> = position.into_iter().chain(confirmed_fields()).chain(bits).collect();
    check("bitmap", FORMAT, "## Bitmap", &body, &fields);
    assert_eq!((bitmap::KIND.magic, bitmap::VERSION), (*b"FSHBITMP", 3));
}

#[test]
fn the_activity_log_is_as_documented() {
    let body = activity_body();
    let slot = |volume: u64, number: u64| ((volume + 1) << 48 | number).to_le_bytes();
    let mut slots = [slot(0x63, 0x6464), [0; 8], slot(0, 0)].concat();
    slots.resize(8 * SLOTS_PER_CELL, 0);
    let run = [("incarnation", FieldHolds::Number(0x65))];
    let slots = [("slots", FieldHolds::Bytes(slots)), ("zero", FieldHolds::Zero)];
    let fields: Vec<_> = run.into_iter().chain(confirmed_fields()).chain(slots).collect();
    check("activity log", FORMAT, "## Activity log", &body, &fields);
    assert_eq!((activity::KIND.magic, activity::VERSION), (*b"FSHACTIV", 2));
}

#[test]
fn the_journal_is_as_documented() {
    let image = index().encode();
    let lines = image[128..4064].to_vec();
    assert_eq!(lines.len(), 48 * ENTRIES_MAX, "the entry lines fill their row");
    check(
        "journal index",
        FORMAT,
        "## Journal",
        &image,
        &[
            ("magic", FieldHolds::Text("FSHBATCH")),
            ("version", FieldHolds::Number(journal::VERSION.into())),
            ("entries", FieldHolds::Number(1)),
            ("bytes", FieldHolds::Number(0x2000)),
            ("tag", FieldHolds::Number(0x81)),
            ("ring offset", FieldHolds::Number(0x8282)),
            ("ordinal", FieldHolds::Number(0x8383)),
            ("boot", FieldHolds::Number(0x84)),
            ("generation number", FieldHolds::Number(0x86)),
            ("generation tag", FieldHolds::Number(0x87)),
            ("incarnation", FieldHolds::Number(0x88)),
            ("origin", FieldHolds::Number(0x85)),
            ("zero", FieldHolds::Zero),
            ("snapshot", FieldHolds::Number(0x89)),
            ("zero", FieldHolds::Zero),
            ("entry lines", FieldHolds::Bytes(lines)),
            ("zero", FieldHolds::Zero),
            ("checksum", sealed(&image)),
        ],
    );
    check(
        "journal entry",
        FORMAT,
        "### Entry",
        &image[128..176],
        &[
            ("seq", FieldHolds::Number(0x7171)),
            ("offset", FieldHolds::Number(0x7373)),
            ("length", FieldHolds::Number(0x200)),
            ("wall", FieldHolds::Number(0x7474)),
            ("payload at", FieldHolds::Number(0x1000)),
            ("payload bytes", FieldHolds::Number(0x200)),
            ("payload checksum", FieldHolds::Number(0x7575)),
            ("volume", FieldHolds::Number(0x72)),
            ("kind", FieldHolds::Number(1)),
            ("flags", FieldHolds::Number(3)),
        ],
    );
}

fn undo_index() -> undo::UndoIndex {
    let entry = undo::UndoEntry {
        volume: VolumeId(0xf1),
        offset: 0x20_3000,
        length: 0x1e00,
        payload_at: 0x1000,
        payload_crc: 0xf2f2,
    };
    undo::UndoIndex {
        tag: 0xf3,
        ring_offset: 0xf4f4,
        ordinal: 0xf5f5,
        mark: 0xf6,
        boot: Incarnation(0xf7),
        chain: 0xf8f8,
        bytes: 0x3000,
        entries: vec![entry],
    }
}

#[test]
fn the_undo_store_is_as_documented() {
    let image = undo_index().encode();
    let lines = image[64..4072].to_vec();
    assert_eq!(lines.len(), 24 * undo::ENTRIES_MAX, "the saved ranges fill their row");
    check(
        "undo index",
        FORMAT,
        "## Undo store",
        &image,
        &[
            ("magic", FieldHolds::Text("FSHUNDOB")),
            ("version", FieldHolds::Number(undo::VERSION.into())),
            ("entries", FieldHolds::Number(1)),
            ("bytes", FieldHolds::Number(0x3000)),
            ("tag", FieldHolds::Number(0xf3)),
            ("ring offset", FieldHolds::Number(0xf4f4)),
            ("ordinal", FieldHolds::Number(0xf5f5)),
            ("mark", FieldHolds::Number(0xf6)),
            ("boot", FieldHolds::Number(0xf7)),
            ("chain", FieldHolds::Number(0xf8f8)),
            ("zero", FieldHolds::Zero),
            ("saved ranges", FieldHolds::Bytes(lines)),
            ("zero", FieldHolds::Zero),
            ("checksum", sealed(&image)),
        ],
    );
    check(
        "saved range",
        FORMAT,
        "### Saved range",
        &image[64..88],
        &[
            ("offset", FieldHolds::Number(0x20_3000)),
            ("length", FieldHolds::Number(0x1e00)),
            ("payload at", FieldHolds::Number(0x1000)),
            ("payload checksum", FieldHolds::Number(0xf2f2)),
            ("volume", FieldHolds::Number(0xf1)),
            ("zero", FieldHolds::Zero),
        ],
    );
    assert_eq!(undo::UndoIndex::decode(&image), Some(undo_index()));
}

#[test]
fn the_frame_header_is_as_documented() {
    let image = header().encode();
    check(
        "frame header",
        PROTOCOL,
        "## Frame",
        &image,
        &[
            ("magic", FieldHolds::Text("FSHR")),
            ("version", FieldHolds::Number(wire::VERSION as u64)),
            ("kind", FieldHolds::Number(4)),
            ("flags", FieldHolds::Number(0x91)),
            ("session", FieldHolds::Number(0x99)),
            ("incarnation", FieldHolds::Number(0x94)),
            ("generation tag", FieldHolds::Number(0x95)),
            ("seq", FieldHolds::Number(0x96)),
            ("offset", FieldHolds::Number(0x97)),
            ("length", FieldHolds::Number(5)),
            ("wall", FieldHolds::Number(0x98)),
            ("group", FieldHolds::Number(0x9a)),
            ("volume", FieldHolds::Number(0x92)),
            ("origin", FieldHolds::Number(0x93)),
            ("payload bytes", FieldHolds::Number(5)),
            ("payload checksum", FieldHolds::Number(u64::from(crc32c::crc32c(b"bytes")))),
            ("flushed", FieldHolds::Number(0x9b)),
            ("zero", FieldHolds::Zero),
            ("checksum", sealed(&image)),
        ],
    );
}

#[test]
fn control_payloads_are_as_documented() {
    check(
        "Ack",
        PROTOCOL,
        "### Ack",
        &ack().encode(),
        &[
            ("received", FieldHolds::Number(0xa1)),
            ("durable", FieldHolds::Number(0xa2)),
            ("applied", FieldHolds::Number(0xa3)),
            ("granted bytes", FieldHolds::Number(0xa4)),
            ("applied wall", FieldHolds::Number(0xa5)),
            ("flags", FieldHolds::Number(7)),
            ("noted", FieldHolds::Number(0xa6)),
        ],
    );
    let image = hello().encode();
    check(
        "GroupHello",
        PROTOCOL,
        "### GroupHello",
        &image,
        &[
            ("identity", FieldHolds::Bytes(identity_bytes())),
            ("granted bytes", FieldHolds::Number(0xb1)),
            ("dirty bytes", FieldHolds::Number(0xb2)),
            ("flags", FieldHolds::Number(1)),
            ("features", FieldHolds::Number(0xb4)),
            ("required", FieldHolds::Number(0xb5)),
            ("mode", FieldHolds::Number(2)),
            ("policy", FieldHolds::Number(1)),
            ("hold", FieldHolds::Number(0xb6)),
            ("wait limit", FieldHolds::Number(0xb7)),
            ("autosync", FieldHolds::Number(1)),
            ("start alone", FieldHolds::Number(1)),
            ("wait", FieldHolds::Number(0xba)),
            ("queue bytes", FieldHolds::Number(0xb8)),
            ("queue items", FieldHolds::Number(0xb9)),
            ("volumes", FieldHolds::Number(1)),
            ("first volume's size", FieldHolds::Number(0xb3)),
        ],
    );
    check(
        "Tick",
        PROTOCOL,
        "### Tick",
        &tick().encode(),
        &[
            ("state", FieldHolds::Number(4)),
            ("mode", FieldHolds::Number(1)),
            ("lag bytes", FieldHolds::Number(0xbb)),
            ("lag", FieldHolds::Number(0xbc)),
            ("dirty bytes", FieldHolds::Number(0xbd)),
            ("clock", FieldHolds::Number(0xbe)),
        ],
    );
}

#[test]
fn the_begin_of_a_sync_is_as_documented() {
    let [number, tag, incarnation, seq] = position(0xc100);
    let [parent_number, parent_tag, parent_incarnation, parent_seq] = position(0xc200);
    check(
        "SyncBegin",
        PROTOCOL,
        "### SyncBegin",
        &begin().encode(),
        &[
            ("generation number", number),
            ("generation tag", tag),
            ("incarnation", incarnation),
            ("seq", seq),
            ("parent generation number", parent_number),
            ("parent generation tag", parent_tag),
            ("parent incarnation", parent_incarnation),
            ("parent seq", parent_seq),
            ("to", FieldHolds::Number(0xc6)),
            ("nothing dirty", FieldHolds::Number(1)),
            ("dirty bytes", FieldHolds::Number(0xc5)),
            ("snapshot", FieldHolds::Number(0xc4)),
            ("attempt", FieldHolds::Number(0xc3)),
        ],
    );
}

#[test]
fn payloads_about_lost_writes_are_as_documented() {
    check(
        "FlushPoints",
        PROTOCOL,
        "### TailAsk",
        &flush_points().encode(),
        &[
            ("incarnation", FieldHolds::Number(0xd1)),
            ("volumes", FieldHolds::Number(1)),
            ("first volume's flushed", FieldHolds::Number(0xd2)),
        ],
    );
    check(
        "Tail",
        PROTOCOL,
        "### Tail",
        &range(),
        &[
            ("volume", FieldHolds::Number(0xe1)),
            ("offset", FieldHolds::Number(0xe2)),
            ("length", FieldHolds::Number(0xe3)),
        ],
    );
}

/// The kinds in the document are those of the code, by number and name.
#[test]
fn every_kind_of_frame_is_documented() {
    let start = PROTOCOL.find("\n## Kinds\n").expect("there is a chapter on kinds");
    let mut documented = Vec::new();
    for line in PROTOCOL[start..].lines().skip(2).take_while(|line| !line.starts_with('#')) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if let Some(byte) = cells.get(1).and_then(|cell| cell.parse::<u8>().ok()) {
            documented.push((byte, cells[2].to_owned()));
        }
    }
    let known: Vec<_> =
        (0..=u8::MAX).filter_map(|byte| FrameKind::from_byte(byte).map(|kind| (byte, format!("{kind:?}")))).collect();
    assert_eq!(documented, known);
}

/// FNV-1a: enough to notice a change, and not the checksum that the samples carry themselves.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// One line per shape: name, version, digest of the sample. A new version gets a new line in place of the old.
const SHAPES: [(&str, u64, u64); 12] = [
    ("superblock", 6, 0xba83_3c4a_8902_6d7d),
    ("bitmap", 3, 0x43f7_6d3c_0519_cdfa),
    ("activity log", 2, 0x4b01_f9bf_7799_8211),
    ("journal index", 2, 0xc0e9_6bc5_4b43_eaa6),
    ("undo index", 1, 0x1361_0fa2_876b_4ffb),
    ("frame header", 5, 0xe9f6_c9c1_031c_bca9),
    ("Ack", 5, 0x47bc_9dbe_02da_7fdf),
    ("GroupHello", 5, 0xbd08_e7cc_93c2_8a3b),
    ("Tick", 5, 0xab0e_4f50_cb04_5352),
    ("SyncBegin", 5, 0x0a95_3ed5_f536_f0d0),
    ("TailAsk", 5, 0x4f4a_ba98_c466_0f4f),
    ("Tail", 5, 0xa40f_9916_8abf_3a45),
];

// proves: rule 23
#[test]
fn a_changed_shape_has_a_changed_version() {
    let protocol = wire::VERSION as u64;
    let samples: [_; SHAPES.len()] = [
        (u64::from(superblock::VERSION), superblock().encode()),
        (u64::from(bitmap::VERSION), bitmap_body()),
        (u64::from(activity::VERSION), activity_body()),
        (u64::from(journal::VERSION), index().encode()),
        (u64::from(undo::VERSION), undo_index().encode()),
        (protocol, header().encode().to_vec()),
        (protocol, ack().encode()),
        (protocol, hello().encode()),
        (protocol, tick().encode()),
        (protocol, begin().encode()),
        (protocol, flush_points().encode()),
        (protocol, range()),
    ];
    let mut wrong = Vec::new();
    for ((name, version, wanted), (now, image)) in SHAPES.into_iter().zip(samples) {
        let found = digest(&image);
        if version != now {
            wrong.push(format!("{name} has version {now}: put its digest {found:#018x} into SHAPES, and document it"));
        } else if found != wanted {
            wrong.push(format!(
                "{name} changed its shape but not its version {now} (its digest is {found:#018x} now): nodes of two \
                 builds would misread each other. Give it a new version with a reason, document it, then change SHAPES"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
