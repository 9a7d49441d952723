//! Frame headers and the payloads of control frames.

use std::time::Duration;

use engine::identity::{Identity, Role};
use engine::state::{CopyDoubts, Mode, Pause, Policy, State};
use engine::wire::{
    self, Ack, FlushPoints, FrameHeader, FrameKind, GroupHello, HEADER_BYTES, SyncBegin, Tick, VolumeRange,
};
use engine::{
    Fallback, Generation, GroupId, Incarnation, Position, Seq, SessionId, Settings, VolumeId, VolumeSet, Wall,
};

use crate::Seed;

/// Gives a header the checksum of its content, so that what lies behind that check is reached too.
pub(crate) fn with_good_checksum(mut header: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
    let checksum = crc32c::crc32c(&header[..HEADER_BYTES - 4]);
    header[HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// Rule: a header that is believed announces no more than its kind may, and survives being written again.
pub fn frame_header(bytes: &[u8]) {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return };
    for header in [*header, with_good_checksum(*header)] {
        match FrameHeader::decode(&header) {
            Ok(decoded) => {
                assert!(u64::from(decoded.payload_bytes) <= decoded.kind.payload_max());
                assert_eq!(FrameHeader::decode(&decoded.encode()), Ok(decoded));
                // The payload that would follow.
                let _ = decoded.check_payload(&bytes[HEADER_BYTES..]);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

pub fn frame_header_seeds() -> Vec<Seed> {
    let header = |kind| FrameHeader {
        seq: Seq(77),
        offset: 1 << 30,
        wall: Wall(5),
        incarnation: Incarnation(3),
        ..FrameHeader::new(kind, SessionId(9), GroupId(2))
    };
    let data = FrameHeader { length: 512, ..header(FrameKind::Data) }.sealed(&[6; 512]);
    let zero = FrameHeader { length: 1 << 27, ..header(FrameKind::Zero) }.sealed(b"");
    vec![
        ("data", [&data.encode()[..], &[6; 512]].concat()),
        ("zero", zero.encode().to_vec()),
        ("ack", header(FrameKind::Ack).sealed(&sample_ack().encode()).encode().to_vec()),
        ("pulled", FrameHeader { length: 512, ..header(FrameKind::Pulled) }.sealed(&[7; 512]).encode().to_vec()),
        ("bits", header(FrameKind::Bits).sealed(&[0x55; 16]).encode().to_vec()),
        ("goodbye", header(FrameKind::Goodbye).sealed(b"bye").encode().to_vec()),
    ]
}

/// Rule: what is read comes back when it is written again. The first byte says which payload it is.
pub fn control_payload(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 6 {
        0 => {
            let read = Ack::decode(bytes);
            assert_eq!(read.and_then(|ack| Ack::decode(&ack.encode())), read);
        }
        1 => {
            let read = GroupHello::decode(bytes);
            let again = read.as_ref().and_then(|hello| GroupHello::decode(&hello.encode()));
            assert_eq!(again, read);
        }
        2 => {
            let read = SyncBegin::decode(bytes);
            let again = read.as_ref().and_then(|begin| SyncBegin::decode(&begin.encode()));
            assert_eq!(again, read);
        }
        3 => {
            let read = FlushPoints::decode(bytes);
            let again = read.as_ref().and_then(|points| FlushPoints::decode(&points.encode()));
            assert_eq!(again, read);
        }
        4 => {
            let read = wire::decode_ranges(bytes);
            assert!(read.iter().flatten().count() <= bytes.len() / wire::RANGE_BYTES);
            assert!(read.is_none_or(|ranges| wire::encode_ranges(&ranges) == bytes));
        }
        _ => {
            let read = Tick::decode(bytes);
            assert!(read.is_none_or(|tick| tick.encode() == bytes));
        }
    }
}

pub fn control_payload_seeds() -> Vec<Seed> {
    let at = |number, seq| Position {
        generation: Generation { number, tag: number * 7 },
        incarnation: Incarnation(2),
        seq: Seq(seq),
    };
    let identity = Identity {
        role: Role::Primary,
        generation: at(2, 0).generation,
        parent: at(1, 9),
        position: at(2, 5),
        ..Identity::default()
    };
    let hello = GroupHello {
        identity,
        granted_bytes: 1 << 26,
        dirty_bytes: 4096,
        volume_bytes: vec![1 << 40, 512],
        ..GroupHello::default()
    };
    let begin = SyncBegin {
        from: at(2, 5),
        parent: at(1, 9),
        to: Incarnation(4),
        nothing_dirty: false,
        dirty_bytes: 1 << 30,
        dirty_units: 1 << 16,
        left_out_bytes: 1 << 20,
        snapshot: 0,
        attempt: 2,
        aside: VolumeSet::default(),
        is_resolved: true,
    };
    let mut aside = VolumeSet::default();
    aside.insert(VolumeId(1));
    let snapshot = SyncBegin { nothing_dirty: true, snapshot: 5, aside, ..begin };
    let tick = Tick {
        state: State::Queuing,
        mode: Mode::Nearsync,
        acts_as: Mode::Async,
        lag_bytes: 42 << 20,
        lag: Some(Duration::from_secs(3)),
        dirty_bytes: 32768,
        clock: Wall(1_700_000_000_000_000_000),
        doubts: CopyDoubts { assumed_equal: false, differs: true },
    };
    let settings = Settings { policy: Policy::Hold(Duration::from_secs(30)), ..Settings::default() };
    let [latency, after, return_after] = [100, 1000, 30_000].map(Duration::from_millis);
    let fallback = Fallback { mode: Mode::Async, latency, after, lag: Some(after), return_after };
    let ladder = Settings { mode: Mode::Sync, fallback: Some(fallback), ..settings };
    let points = FlushPoints { incarnation: Incarnation(3), volumes: vec![Seq(7), Seq(0)] };
    let range = |volume, offset| VolumeRange { volume: VolumeId(volume), offset, length: 4096 };
    let tagged = |tag: u8, bytes: Vec<u8>| [&[tag], &bytes[..]].concat();
    vec![
        ("ack", tagged(0, sample_ack().encode())),
        ("hello", tagged(1, hello.encode())),
        ("hello_no_volumes", tagged(1, GroupHello { volume_bytes: Vec::new(), ..hello.clone() }.encode())),
        ("hello_features", tagged(1, GroupHello { features: 6, required: 1 << 63, ..hello.clone() }.encode())),
        ("hello_grants", tagged(1, GroupHello { grants: true, ..hello.clone() }.encode())),
        ("hello_settings", tagged(1, GroupHello { settings, ..hello.clone() }.encode())),
        ("hello_ladder", tagged(1, GroupHello { settings: ladder, ..hello.clone() }.encode())),
        ("tick", tagged(5, tick.encode())),
        ("tick_unknown", tagged(5, Tick { lag: None, ..tick }.encode())),
        ("sync_begin", tagged(2, begin.encode())),
        ("sync_begin_snapshot", tagged(2, snapshot.encode())),
        ("flush_points", tagged(3, points.encode())),
        ("ranges", tagged(4, wire::encode_ranges(&[range(0, 512), range(9, 1 << 40)]))),
    ]
}

fn sample_ack() -> Ack {
    Ack {
        received: Seq(9),
        durable: Seq(8),
        applied: Seq(7),
        granted_bytes: 1 << 20,
        applied_wall: Wall(3),
        paused: Some(Pause::HistoryFull),
        noted: Seq(6),
        wants_flush: true,
    }
}
