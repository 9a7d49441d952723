//! Samples whose fields all differ, so that a field at the wrong place is noticed.

use engine::VolumeSet;
use engine::activity::{self, Extent};
use engine::bitmap::{self, BitmapCell, REGIONS_PER_CELL};
use engine::cell;
use engine::delta::DeltaHead;
use engine::identity::{Confirmed, Identity, Role};
use engine::journal::{JournalEntry, JournalIndex, RecordKind};
use engine::limits::{REGION_BYTES, SECTOR_BYTES};
use engine::marks::{self, Mark};
use engine::queue_log::{self, QueueCell};
use engine::state::{AfterForcedFailover, CopyDoubts, Degrade, Fold, Mode, Pause, Policy, State, WhenFull};
use engine::superblock::{JournalHead, RollbackPoint, Superblock};
use engine::undo;
use engine::wire::{self, Ack, FlushPoints, FrameHeader, FrameKind, GroupHello, SyncBegin, Tick, VolumeRange};
use engine::{
    Bitmap, Fallback, Generation, GroupId, Incarnation, MarkId, NodeId, Position, Seq, SessionId, Settings, StartAlone,
    VolumeId, Wall,
};
use std::time::Duration;

fn at(base: u64) -> Position {
    Position {
        generation: Generation { number: base, tag: base + 1 },
        incarnation: Incarnation(base + 2),
        seq: Seq(base + 3),
    }
}

pub fn identity() -> Identity {
    Identity {
        role: Role::Primary,
        generation: Generation { number: 0x1111, tag: 0x1212 },
        parent: at(0x2100),
        incarnation: Incarnation(0x3333),
        position: at(0x4100),
        inconsistent: true,
        handed_over: true,
        continued: true,
        forced: true,
    }
}

pub fn superblock() -> Superblock {
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
        doubts: CopyDoubts { assumed_equal: true, differs: true },
        journal: JournalHead { offset: 0x5555, ordinal: 0x5656 },
        confirmed_ordinal: 0x5858,
        own_from_ordinal: 0x5454,
        applied_wall: Wall(0x5757),
        boot: u128::from_le_bytes(*b"a machine's boot"),
        unverified_run: Incarnation(0x5959),
        unverified_generations: [0x6800, 0x6900].map(|number| Generation { number, tag: number + 1 }),
        served_unverified: true,
        queue_logged: false,
        queue_log: 0x71_7171,
        queue_redo: false,
        given_up: Seq(0x6a6a),
        rollback_point: RollbackPoint {
            id: 0x5a5a,
            position: at(0x5b00),
            parent: at(0x5b80),
            wall: Wall(0x5c5c),
            batches: 0x5d5d,
            reserved_bytes: 0x5e5e,
            is_of_fork: true,
        },
        confirmed: confirmed(),
        confirmed_before: Confirmed { position: at(0x6c00), image: at(0x6d00) },
        went_back_to: at(0x6e00),
        kept_over: 0x6f6f,
        primary_mode: Some(Mode::Async),
        window_ms: 0x7070,
        sizes: vec![0x6b6b * SECTOR_BYTES, 0x6c6c * SECTOR_BYTES],
        aside: some_volume(0),
        sync_aside: some_volume(1),
        detached: some_volume(1),
        unfilled: some_volume(0),
        renamed: VolumeSet::default(),
        own_history: some_volume(1),
        flushed: vec![Seq(0x5f5f), Seq(0x6060)],
    }
}

fn some_volume(id: u16) -> VolumeSet {
    let mut volumes = VolumeSet::default();
    volumes.insert(VolumeId(id));
    volumes
}

pub fn confirmed() -> Confirmed {
    Confirmed { position: at(0x6600), image: at(0x6700) }
}

/// A bitmap cell's body, filled up as it stands in its copy.
pub fn bitmap_body() -> Vec<u8> {
    let mut map = Bitmap::new(2 * REGIONS_PER_CELL * REGION_BYTES);
    map.set(REGIONS_PER_CELL + 1);
    map.set(REGIONS_PER_CELL + 64);
    in_a_cell(bitmap::KIND, &BitmapCell::encode(VolumeId(0x61), 0x6262, REGIONS_PER_CELL, confirmed(), &map.cell(1)))
}

pub fn mark() -> Mark {
    Mark {
        id: MarkId(0x0101_0202),
        position: at(0x61),
        wall: Wall(0x7777),
        moment: 0x7878,
        name: "nightly".into(),
        locked: true,
        there: true,
        ..Mark::default()
    }
}

pub fn marks_body() -> Vec<u8> {
    in_a_cell(marks::KIND, &marks::encode_slots([Some(&mark())].into_iter()))
}

pub fn activity_body() -> Vec<u8> {
    let extent = |volume, number| Some(Extent { volume: VolumeId(volume), number });
    let slots = [extent(0x63, 0x6464), None, extent(0, 0)];
    in_a_cell(activity::KIND, &activity::encode_slots(Incarnation(0x65), confirmed(), slots.into_iter()))
}

pub fn queue_body() -> Vec<u8> {
    let cell = QueueCell {
        generation: Generation { number: 0x1a1, tag: 0x1a2 },
        head: JournalHead { offset: 0x1a3, ordinal: 0x1a4 },
        before: (Incarnation(0x1a5), Seq(0x1a6)),
        flushed: Seq(0x1a7),
        confirmed_ordinal: 0x1a8,
        confirmed: confirmed(),
        file: 0x1a9,
        begun: Incarnation(0x1aa),
    };
    in_a_cell(queue_log::KIND, &cell.encode())
}

fn in_a_cell(kind: cell::CellKind, body: &[u8]) -> Vec<u8> {
    let image = cell::encode(kind, &cell::CellHead::default(), body);
    image[cell::HEAD_BYTES..][..cell::BODY_BYTES].to_vec()
}

pub fn entry() -> JournalEntry {
    JournalEntry {
        seq: Seq(0x7171),
        kind: RecordKind::Data,
        no_hole: true,
        resync: true,
        sets_aside: true,
        mark: false,
        volume: VolumeId(0x72),
        offset: 0x7373,
        length: 0x200,
        wall: Wall(0x7474),
        payload_at: 0x1000,
        payload_bytes: 0x200,
        payload_crc: 0x7575,
    }
}

pub fn index() -> JournalIndex {
    JournalIndex {
        tag: 0x81,
        ring_offset: 0x8282,
        ordinal: 0x8383,
        boot: Incarnation(0x84),
        origin: NodeId(0x85),
        generation: Generation { number: 0x86, tag: 0x87 },
        incarnation: Incarnation(0x88),
        snapshot: 0x89,
        durable_below: 0,
        bytes: 0x2000,
        first: Seq(0x8a8a),
        entries: vec![entry()],
    }
}

pub fn header() -> FrameHeader {
    FrameHeader {
        flags: 0x91,
        volume: VolumeId(0x92),
        origin: NodeId(0x93),
        incarnation: Incarnation(0x94),
        generation_tag: 0x95,
        seq: Seq(0x9696),
        offset: 0x97,
        wall: Wall(0x98),
        length: 5,
        flushed: Seq(0x9b),
        more: 0x9c,
        ..FrameHeader::new(FrameKind::Data, SessionId(0x99), GroupId(0x9a))
    }
    .sealed(b"bytes")
}

pub fn ack() -> Ack {
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

pub fn hello() -> GroupHello {
    GroupHello {
        identity: identity(),
        granted_bytes: 0xb1,
        dirty_bytes: 0xb2,
        failed: true,
        lacks_image: false,
        grants: true,
        features: 0xb4,
        required: 0xb5,
        settings: Settings {
            mode: Mode::Async,
            policy: Policy::Hold(Duration::from_nanos(0xb6)),
            degrade: Degrade::Logging,
            wait_limit: Duration::from_nanos(0xb7),
            autosync: true,
            queue_bytes: 0xb8,
            queue_items: 0xb9,
            link_weight: 40,
            fold: Fold::Never,
            start_alone: StartAlone::Wait(Duration::from_nanos(0xba)),
            after_forced_failover: AfterForcedFailover::KeepPromoted,
            when_full: WhenFull::Bitmap,
            pace: engine::QueuePace::new(50, 90),
            fallback: Some(Fallback {
                mode: Mode::Superasync,
                latency: Duration::from_nanos(0xc0),
                after: Duration::from_nanos(0xc1),
                return_after: Duration::from_nanos(0xc2),
                lag: Some(Duration::from_nanos(0xc3)),
            }),
        },
        confirmed: confirmed(),
        went_back_to: at(0xbb00),
        keeps_over: 0xbc,
        yields_to: 0xbf,
        keeps_by_policy: true,
        would_yield: false,
        volume_bytes: vec![0xb3],
        detached: some_volume(0),
        unfilled: some_volume(0),
    }
}

pub fn tick() -> Tick {
    Tick {
        state: State::Replicating,
        mode: Mode::Nearsync,
        acts_as: Mode::Async,
        lag_bytes: 0xbb,
        lag: Some(Duration::from_nanos(0xbc)),
        dirty_bytes: 0xbd,
        clock: Wall(0xbe),
        doubts: CopyDoubts { assumed_equal: true, differs: false },
    }
}

pub fn begin() -> SyncBegin {
    SyncBegin {
        from: at(0xc100),
        parent: at(0xc200),
        to: Incarnation(0xc6),
        nothing_dirty: true,
        dirty_bytes: 0xc5,
        dirty_units: 0xc8,
        left_out_bytes: 0xc7,
        snapshot: 0xc4,
        attempt: 0xc3,
        aside: some_volume(1),
        is_resolved: true,
    }
}

pub fn flush_points() -> FlushPoints {
    FlushPoints { incarnation: Incarnation(0xd1), volumes: vec![Seq(0xd2)] }
}

pub fn range() -> Vec<u8> {
    wire::encode_ranges(&[VolumeRange { volume: VolumeId(0xe1), offset: 0xe2, length: 0xe3 }])
}

pub fn undo_index() -> undo::UndoIndex {
    let entry = undo::UndoEntry {
        volume: VolumeId(0xf1),
        offset: 0x20_3000,
        length: 0x1e00,
        payload_at: 0x1000,
        payload_crc: 0xf2f2,
        is_lost: false,
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

pub fn delta_head() -> DeltaHead {
    DeltaHead {
        tag: 0xd1,
        node: NodeId(0xd2),
        peer: NodeId(0xd3),
        position: at(0xd400),
        chosen: Generation { number: 0xd5, tag: 0xd6 },
        batches: 0xd7,
        ranges: 0xd8,
        content_bytes: 0xd9,
        file_bytes: 0xda,
        chain: 0xdb,
        lost_ranges: 0xdc,
        lost_bytes: 0xdd,
    }
}
