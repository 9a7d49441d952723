//! What a secondary answers a primary that lost its power: ranges, read ahead of the link where it has memory for it, and dirty
//! regions, each frame with its place.

use engine::identity::{Identity, Role};
use engine::state::{Degrade, Mode, Policy};
use engine::wire::{FlushPoints, FrameHeader, FrameKind, GroupHello, SyncBegin, flags};
use engine::*;
use sim::hostile::machine::{BareMachine, GROUP, MachineShape};

const SECOND: u64 = 1_000_000_000;
const HISTORY: Generation = Generation { number: 3, tag: 33 };
const RUN: Incarnation = Incarnation(7);
const SESSION: SessionId = SessionId(5);
const PART: u64 = limits::PART_BYTES_MAX;

fn at() -> Now {
    Now { mono: Mono(SECOND), wall: Wall(1_700_000_000 * SECOND) }
}

fn header(kind: FrameKind) -> FrameHeader {
    FrameHeader::new(kind, SESSION, GROUP)
}

/// A node with all the memory it may have, and a primary that greets it.
fn greeted(volume_bytes: u64, was: Role) -> BareMachine {
    greeted_with(volume_bytes, was, limits::MEMORY_BYTES_DEFAULT)
}

fn greeted_with(volume_bytes: u64, was: Role, memory_bytes: u64) -> BareMachine {
    let shape = MachineShape {
        volumes: 1,
        volume_bytes,
        mode: Mode::Async,
        policy: Policy::Degrade,
        degrade: Degrade::Queue,
        memory_bytes,
        link_timeout_s: 5,
    };
    let mut machine = BareMachine::new(0, was, shape);
    machine.start(at());
    machine.complete_all(at());
    if was == Role::Primary {
        machine.handle(at(), Input::Command { group: GROUP, id: CommandId(1), command: Command::Demote });
        machine.complete_all(at());
    }
    machine.link_up(at(), SESSION.0);
    let identity = Identity { role: Role::Primary, generation: HISTORY, incarnation: RUN, ..Identity::default() };
    let hello = GroupHello { identity, volume_bytes: vec![volume_bytes], ..GroupHello::default() };
    assert!(machine.receive(at(), header(FrameKind::GroupHello), hello.encode()));
    machine
}

/// A primary that has numbered nothing yet begins a sync.
fn begun(memory_bytes: u64) -> BareMachine {
    let mut machine = greeted_with(64 << 20, Role::Secondary, memory_bytes);
    let from = Position { generation: HISTORY, incarnation: RUN, seq: Seq(0) };
    let parent = Position::default();
    let begin = SyncBegin {
        from,
        parent,
        to: Incarnation(1),
        nothing_dirty: false,
        dirty_bytes: 0,
        dirty_units: 0,
        left_out_bytes: 0,
        snapshot: 0,
        attempt: 1,
        aside: engine::VolumeSet::default(),
        is_resolved: false,
    };
    assert!(machine.receive(at(), header(FrameKind::SyncBegin), begin.encode()));
    machine.complete_all(at());
    machine
}

/// The primary asks for eight ranges of the largest size.
fn asked_for_eight(memory_bytes: u64) -> BareMachine {
    let mut machine = begun(memory_bytes);
    for n in 0..8 {
        let pull = FrameHeader { seq: Seq(1), offset: n * PART, length: PART, ..header(FrameKind::Pull) };
        assert!(machine.receive(at(), pull, Vec::new()));
    }
    machine
}

/// It read one range after the other: a slow disk kept the link idle, and the export closed for longer.
#[test]
fn several_ranges_are_read_at_once_where_there_is_memory() {
    let machine = asked_for_eight(limits::MEMORY_BYTES_DEFAULT);
    assert_eq!(machine.volume_reads(), (4, 4 * PART));
}

/// Where the group has memory for one range, it read on regardless; or it read the first one and no other, and the primary's export
/// stayed closed.
#[test]
fn where_memory_is_short_one_range_is_read_after_the_other() {
    let mut machine = asked_for_eight(limits::MEMORY_GROUP_BYTES);
    machine.sent.clear();
    for n in 0..8 {
        assert_eq!(machine.volume_reads(), (1, PART), "range {n}");
        machine.complete(at(), 0);
        machine.takes(at(), u64::MAX);
    }
    let pulled: Vec<u64> = machine
        .sent
        .iter()
        .filter(|(header, _)| header.kind == FrameKind::Pulled)
        .map(|(header, _)| header.offset)
        .collect();
    assert_eq!(pulled, (0..8).map(|n| n * PART).collect::<Vec<u64>>());
}

// proves: P3, rule 6
/// All frames of dirty regions said that they were of the first 8 GiB: what differs behind them was never sent.
#[test]
fn dirty_regions_are_reported_with_their_position() {
    // 64 GiB: 64 frames. A demoted primary that never met a peer holds all of its regions for different.
    let mut machine = greeted(64 << 30, Role::Primary);
    machine.sent.clear();
    assert!(machine.receive(at(), FrameHeader { seq: Seq(1), ..header(FrameKind::BitsAsk) }, Vec::new()));
    let bits = machine.sent.iter().filter(|(header, _)| header.kind == FrameKind::Bits);
    let offsets: Vec<u64> = bits.map(|(header, _)| header.offset).take(12).collect();
    assert_eq!(offsets, (0..12).map(|n| n * (1 << 30) / limits::REGION_BYTES).collect::<Vec<u64>>());
}

/// A primary lost its power before it had flushed anything. It was told that nobody knows what it lost, and stayed closed for its operator.
#[test]
fn who_has_given_up_nothing_knows_what_a_primary_lost_that_had_flushed_nothing() {
    let mut machine = begun(limits::MEMORY_BYTES_DEFAULT);
    machine.sent.clear();
    let points = FlushPoints { incarnation: RUN, volumes: vec![Seq::NONE] };
    assert!(machine.receive(at(), FrameHeader { seq: Seq(1), ..header(FrameKind::TailAsk) }, points.encode()));
    machine.complete_all(at());
    let tail = machine.sent.iter().find(|(header, _)| header.kind == FrameKind::Tail).expect("it answers");
    assert_eq!((tail.0.flags, tail.1.len()), (flags::LAST, 0));
}
