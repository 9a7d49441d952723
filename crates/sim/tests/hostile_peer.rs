//! A peer that is authenticated and wrong: what it asks for again and again, what it never reads, numbers at their end. And very many
//! seeds of such a peer, each checked against stated bounds.

use engine::identity::{Identity, Role};
use engine::state::{Degrade, Mode, Policy};
use engine::wire::{
    FlushPoints, FrameHeader, FrameKind, GroupHello, HEADER_BYTES, SyncBegin, VolumeRange, encode_ranges, flags,
};
use engine::*;
use sim::hostile;
use sim::hostile::machine::{BareMachine, GROUP, MachineShape};

/// `sim --hostile` runs more of them, optimised.
const SEEDS: u64 = 100;
const SECOND: u64 = 1_000_000_000;
const HISTORY: Generation = Generation { number: 3, tag: 33 };
const RUN: Incarnation = Incarnation(7);
const SESSION: SessionId = SessionId(5);
const PART: u64 = limits::PART_BYTES_MAX;

// proves: P10
#[test]
fn a_hostile_peer_is_refused_bounded_and_survived() {
    let many = hostile::run_many(0, SEEDS);
    println!("{}", many.sum);
    assert!(many.failed.is_empty(), "{} seeds failed; sim --hostile {:?}", many.failed.len(), many.failed.first());
    assert!(many.sum.refused > SEEDS && many.sum.states.len() >= 6, "{}", many.sum);
}

// ---- a victim, and what is sent to it --------------------------------------------------------------------------------

fn at(time_ns: u64) -> Now {
    Now { mono: Mono(time_ns), wall: Wall(1_700_000_000 * SECOND + time_ns) }
}

fn shape(volume_bytes: u64) -> MachineShape {
    MachineShape {
        volumes: 1,
        volume_bytes,
        mode: Mode::Async,
        policy: Policy::Degrade,
        degrade: Degrade::Queue,
        memory_bytes: limits::MEMORY_BYTES_MIN,
        link_timeout_s: 5,
    }
}

fn header(kind: FrameKind) -> FrameHeader {
    FrameHeader::new(kind, SESSION, GROUP)
}

fn numbered(kind: FrameKind, seq: u64) -> FrameHeader {
    let named = FrameHeader { origin: NodeId(1), incarnation: RUN, generation_tag: HISTORY.tag, ..header(kind) };
    FrameHeader { seq: Seq(seq), ..named }
}

fn hello(role: Role, volume_bytes: u64) -> GroupHello {
    let identity = Identity { role, generation: HISTORY, incarnation: RUN, ..Identity::default() };
    GroupHello { identity, volume_bytes: vec![volume_bytes], ..GroupHello::default() }
}

fn began(seq: u64) -> SyncBegin {
    let from = Position { generation: HISTORY, incarnation: RUN, seq: Seq(seq) };
    let parent = Position::default();
    SyncBegin {
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
    }
}

/// A secondary that takes numbers of a primary that is played here.
fn secondary(volume_bytes: u64) -> BareMachine {
    let (mut victim, now) = (BareMachine::new(0, Role::Secondary, shape(volume_bytes)), at(SECOND));
    victim.start(now);
    victim.complete_all(now);
    victim.link_up(now, SESSION.0);
    assert!(victim.receive(now, header(FrameKind::GroupHello), hello(Role::Primary, volume_bytes).encode()));
    assert!(victim.receive(now, header(FrameKind::SyncBegin), began(0).encode()));
    victim.complete_all(now);
    assert!(said(&victim, FrameKind::SyncReady) == 1);
    victim.sent.clear();
    victim
}

fn said(machine: &BareMachine, kind: FrameKind) -> usize {
    machine.sent.iter().filter(|(header, _)| header.kind == kind).count()
}

fn pull(question: u64, offset: u64) -> FrameHeader {
    FrameHeader { seq: Seq(question), offset, length: PART, ..header(FrameKind::Pull) }
}

// ---- what it asks for --------------------------------------------------------------------------------------------------

#[test]
fn however_often_a_range_is_asked_for_few_are_read_and_the_newest_question_counts() {
    let (mut victim, now) = (secondary(64 << 20), at(2 * SECOND));
    for question in 1..200 {
        for n in 0..limits::PULLS_IN_FLIGHT as u64 {
            assert!(victim.receive(now, pull(question, n * PART), Vec::new()));
            let (reads, bytes) = victim.volume_reads();
            assert!(reads <= 4 && bytes <= 4 * PART, "question {question}: {reads} reads, {bytes} bytes");
        }
    }
    assert!(victim.closed.is_empty());
    victim.complete_all(now);
    assert!(victim.unsent_bytes < limits::UNSENT_BYTES_UNMEASURED + 2 * PART, "{}", victim.unsent_bytes);
    assert!(victim.meter.bytes() <= 4 * PART, "{} bytes of payload are held", victim.meter.bytes());
    while said(&victim, FrameKind::Pulled) < limits::PULLS_IN_FLIGHT {
        assert!(victim.unsent_bytes > 0, "all that was asked last is answered");
        victim.takes(now, PART);
        victim.complete_all(now);
    }
    assert!(victim.sent.iter().all(|(header, _)| header.kind != FrameKind::Pulled || header.seq == Seq(199)));
}

#[test]
fn more_ranges_at_once_than_may_be_end_the_session() {
    let (mut victim, now) = (secondary(64 << 20), at(2 * SECOND));
    for n in 0..=limits::PULLS_IN_FLIGHT as u64 {
        assert!(victim.closed.is_empty());
        assert!(victim.receive(now, pull(1, n * PART), Vec::new()));
    }
    assert!(victim.closed[0].contains("more ranges at once than may be asked for"), "{:?}", victim.closed);
}

#[test]
fn dirty_regions_asked_for_a_thousand_times_are_sent_as_the_link_takes_them() {
    // 1 TiB: 32 MiB of bits, 1024 frames of 32 KiB for each time.
    let volume_bytes = 1 << 40;
    let (mut machine, now) = (BareMachine::new(0, Role::Secondary, shape(volume_bytes)), at(SECOND));
    machine.start(now);
    machine.complete_all(now);
    // A demoted primary that never met a peer holds all of its regions for different.
    machine.link_up(now, SESSION.0);
    assert!(machine.receive(now, header(FrameKind::GroupHello), hello(Role::Primary, volume_bytes).encode()));
    machine.sent.clear();
    for question in 0..1000 {
        assert!(machine.receive(now, FrameHeader { seq: Seq(question), ..header(FrameKind::BitsAsk) }, Vec::new()));
        assert!(machine.outputs < 64, "{} outputs for one question", machine.outputs);
    }
    assert!(machine.unsent_bytes < limits::UNSENT_BYTES_UNMEASURED + PART, "{}", machine.unsent_bytes);
}

#[test]
fn a_tail_whose_ranges_overlap_is_refused() {
    let range = |offset| VolumeRange { volume: VolumeId(0), offset, length: 4096 };
    for (ranges, fits) in
        [([range(0), range(4096)], true), ([range(0), range(0)], false), ([range(4096), range(0)], false)]
    {
        let (mut victim, now) = needs_verification();
        let question = victim.sent.iter().find(|(header, _)| header.kind == FrameKind::TailAsk).expect("it asks").0.seq;
        let tail = FrameHeader { seq: question, flags: flags::LAST, ..header(FrameKind::Tail) };
        assert!(victim.receive(now, tail, encode_ranges(&ranges)));
        assert_eq!(victim.closed.is_empty(), fits, "{:?}", victim.closed);
    }
}

// ---- what it never reads ------------------------------------------------------------------------------------------------

#[test]
fn heartbeats_of_a_peer_that_never_reads_are_not_piled_up() {
    let mut victim = secondary(1 << 20);
    let mut time = 2 * SECOND;
    for n in 0..200_000u64 {
        assert!(victim.receive(at(time), header(FrameKind::Heartbeat), n.to_le_bytes().to_vec()));
        time += SECOND / 100;
        victim.handle(at(time), Input::Tick);
    }
    let most = limits::UNSENT_BYTES_UNMEASURED + limits::CLOGGED_BYTES + 2 * HEADER_BYTES as u64;
    assert!(victim.unsent_bytes <= most, "{} bytes wait for a peer that reads nothing", victim.unsent_bytes);
    victim.sent.clear();
    victim.takes(at(time), u64::MAX);
    let echo =
        victim.sent.iter().find(|(header, _)| header.kind == FrameKind::HeartbeatEcho).expect("the newest goes back");
    assert_eq!(echo.1, 199_999u64.to_le_bytes());
}

#[test]
fn a_heartbeat_is_eight_bytes() {
    let mut victim = secondary(1 << 20);
    assert!(!victim.receive(at(2 * SECOND), header(FrameKind::Heartbeat), vec![0; 9]));
    assert!(!victim.receive(at(2 * SECOND), header(FrameKind::HeartbeatEcho), vec![0; 60_000]));
}

// proves: P10
#[test]
fn a_peer_that_asks_and_does_not_read_is_parted_with() {
    let (mut victim, now) = (secondary(1 << 20), at(2 * SECOND));
    // A sync for another run is answered with who this node is.
    let begin = SyncBegin { to: Incarnation(9), ..began(0) }.encode();
    let mut frames = 0;
    while victim.closed.is_empty() && frames < 1_000_000 {
        assert!(victim.receive(now, header(FrameKind::SyncBegin), begin.clone()));
        frames += 1;
    }
    assert!(victim.unsent_bytes < 12 << 20, "{} bytes wait", victim.unsent_bytes);
    assert!(victim.closed[0].contains("asks and does not read"), "{:?}", victim.closed);
    let before = victim.unsent_bytes;
    assert!(victim.receive(now, header(FrameKind::SyncBegin), begin));
    assert_eq!((victim.unsent_bytes, victim.closed.len()), (before, 1), "nothing more of it is listened to");
}

// ---- numbers at their end ------------------------------------------------------------------------------------------------

// proves: P10
#[test]
fn numbers_at_the_edge_of_64_bits_are_refused_before_they_count() {
    let far = [limits::NUMBER_MAX + 1, 1 << 63, u64::MAX - 1, u64::MAX];
    for number in far {
        for bent in [
            FrameHeader { seq: Seq(number), ..numbered(FrameKind::Void, 1) },
            FrameHeader { flushed: Seq(number), ..numbered(FrameKind::Void, 1) },
            FrameHeader { offset: number, ..numbered(FrameKind::Void, 1) },
            FrameHeader { length: number, ..numbered(FrameKind::Zero, 1) },
            FrameHeader { incarnation: Incarnation(number), ..numbered(FrameKind::Void, 1) },
        ] {
            assert!(!secondary(1 << 20).receive(at(2 * SECOND), bent, Vec::new()), "{bent:?}");
        }
        let position = Position { seq: Seq(number), ..Position::default() };
        let points = FlushPoints { incarnation: RUN, volumes: vec![Seq(number)] };
        for (kind, payload) in [
            (FrameKind::SyncBegin, began(number).encode()),
            (FrameKind::SyncBegin, SyncBegin { dirty_bytes: number, ..began(0) }.encode()),
            (FrameKind::TailAsk, points.encode()),
            (FrameKind::GroupState, GroupHello { dirty_bytes: number, ..hello(Role::Primary, 1 << 20) }.encode()),
            (
                FrameKind::GroupState,
                GroupHello { volume_bytes: vec![number], ..hello(Role::Primary, 1 << 20) }.encode(),
            ),
            (FrameKind::GroupState, {
                let hello = hello(Role::Primary, 1 << 20);
                GroupHello { identity: Identity { position, ..hello.identity }, ..hello }.encode()
            }),
        ] {
            let mut victim = secondary(1 << 20);
            victim.receive(at(2 * SECOND), header(kind), payload);
            assert!(victim.closed[0].contains("with a payload it cannot have"), "{kind:?} {:?}", victim.closed);
        }
    }
    let late = FrameHeader { wall: Wall(u64::MAX), ..numbered(FrameKind::Void, 1) };
    assert!(!secondary(1 << 20).receive(at(2 * SECOND), late, Vec::new()));
}

#[test]
fn what_ships_checks_its_sums() {
    let manifest = include_str!("../../../Cargo.toml");
    let (_, release) = manifest.split_once("[profile.release]").expect("a profile");
    let release = release.split("\n[").next().expect("its lines");
    assert!(release.contains("overflow-checks = true"), "{release}");
}

/// The last numbers that are believed: what comes of them is still a number that a peer believes.
#[test]
fn after_a_promotion_over_the_last_generation_and_the_last_time_an_honest_peer_still_listens() {
    let volume_bytes = 1 << 20;
    let last = Generation { number: limits::NUMBER_MAX, tag: 34 };
    let (mut victim, now) = (BareMachine::new(0, Role::Secondary, shape(volume_bytes)), at(SECOND));
    victim.start(now);
    victim.complete_all(now);
    victim.link_up(now, SESSION.0);
    let mut says = hello(Role::Primary, volume_bytes);
    says.identity.generation = last;
    assert!(victim.receive(now, header(FrameKind::GroupHello), says.encode()));
    let begin = began(0);
    let begin = SyncBegin { from: Position { generation: last, ..begin.from }, nothing_dirty: true, ..begin };
    assert!(victim.receive(now, header(FrameKind::SyncBegin), begin.encode()));
    victim.complete_all(now);
    let end = FrameHeader { generation_tag: last.tag, wall: Wall(limits::WALL_MAX), ..numbered(FrameKind::SyncEnd, 1) };
    assert!(victim.receive(now, end, Vec::new()));
    victim.complete_all(now);
    victim.handle(at(2 * SECOND), Input::Tick);
    victim.complete_all(at(2 * SECOND));
    victim.command(at(2 * SECOND), Command::Promote { force: true, entropy: 99 });
    victim.complete_all(at(2 * SECOND));
    let identity = victim.node.glance(GROUP).expect("a group").identity;
    assert_eq!(
        (identity.role, identity.generation),
        (Role::Primary, Generation { number: limits::NUMBER_MAX, tag: 99 })
    );
    let (_, reply) =
        victim.sent.iter().rev().find(|(header, _)| header.kind == FrameKind::GroupState).expect("it says so");
    assert!(GroupHello::decode(reply).is_some(), "and is believed");
    let mut rng = sim::rng::Rng::new(1);
    (0..20).for_each(|_| victim.write(at(3 * SECOND), &mut rng));
    victim.complete_all(at(3 * SECOND));
    assert!(victim.unanswered.is_empty());
}

/// A frame of an epoch: 512 bytes of data that stand for `more` numbers before its own, too.
fn of_epoch(seq: u64, more: u32, is_last: bool) -> FrameHeader {
    let flags = flags::EPOCH | if is_last { flags::LAST } else { 0 };
    FrameHeader { flags, more, length: 512, ..numbered(FrameKind::Data, seq) }
}

/// What ends an epoch wrongly, or does not end it: it is refused or dropped, and what is right after that is taken.
#[test]
fn an_epoch_that_lies_is_refused_or_forgotten() {
    let now = at(2 * SECOND);
    let bytes = || vec![7; 512];
    let first = of_epoch(3, 2, false);
    let refused: Vec<(&str, FrameHeader)> = vec![
        ("a number that is skipped", of_epoch(5, 0, true)),
        ("more than there is between", of_epoch(5, 2, true)),
        ("a number once more", of_epoch(3, 0, true)),
        ("a frame of no epoch within it", FrameHeader { flags: 0, ..of_epoch(4, 0, false) }),
        ("a region of a sync", FrameHeader { flags: flags::EPOCH | flags::RESYNC, ..of_epoch(4, 0, false) }),
        (
            "the numbers of a range set aside",
            FrameHeader { flags: flags::EPOCH | flags::SETS_ASIDE, ..numbered(FrameKind::Void, 4) },
        ),
    ];
    for (what, header) in refused {
        let mut victim = secondary(1 << 20);
        assert!(victim.receive(now, first, bytes()));
        let payload = if header.kind == FrameKind::Data { bytes() } else { Vec::new() };
        assert!(victim.receive(now, header, payload), "{what}");
        victim.complete_all(now);
        assert!(!victim.closed.is_empty(), "{what}");
        victim.link_up(now, SESSION.0 + 1);
        assert_eq!(victim.meter.bytes(), 0, "{what}");
    }
    // A sync's end and a comparison are of no epoch, nor is one without numbers, or with more than there can be.
    for (bent, payload) in [
        (FrameHeader { flags: flags::EPOCH, ..numbered(FrameKind::SyncEnd, 4) }, Vec::new()),
        (FrameHeader { flags: flags::EPOCH, length: 65536, ..numbered(FrameKind::Probe, 4) }, vec![7; 32]),
        (of_epoch(3, 3, true), bytes()),
        (of_epoch(3, u32::MAX, true), bytes()),
        (FrameHeader { more: 1, length: 4096, ..numbered(FrameKind::Zero, 4) }, Vec::new()),
        (FrameHeader { more: 1, ..numbered(FrameKind::SyncEnd, 4) }, Vec::new()),
    ] {
        let mut victim = secondary(1 << 20);
        let is_one = victim.receive(now, bent, payload);
        victim.complete_all(now);
        assert!(!is_one || !victim.closed.is_empty(), "{bent:?}");
    }
}

/// It never ends: it may grow as long as one may be, and then the session is over.
#[test]
fn an_epoch_without_an_end_is_bounded() {
    let (mut victim, now) = (secondary(1 << 20), at(2 * SECOND));
    let mut frames = 0;
    while victim.closed.is_empty() {
        frames += 1;
        assert!(victim.receive(now, of_epoch(frames, 0, false), vec![7; 512]));
    }
    assert_eq!(frames as usize, limits::EPOCH_FRAMES_MAX + 1);
    assert_eq!(said(&victim, FrameKind::Ack), 0, "nothing of it is confirmed");
}

/// In the middle of an epoch it speaks of something else: what came of it is forgotten, and nothing of it is on the volumes.
#[test]
fn what_interrupts_an_epoch_forgets_it() {
    let now = at(2 * SECOND);
    let points = FlushPoints { incarnation: RUN, volumes: vec![Seq(0)] };
    // In logging.
    let mut tick_payload = vec![0, 0];
    [1 << 20, 1_000_000_000, 65536, 1_000_000u64].iter().for_each(|number| tick_payload.extend(number.to_le_bytes()));
    let says: Vec<(FrameHeader, Vec<u8>)> = vec![
        (header(FrameKind::SyncBegin), began(0).encode()),
        (header(FrameKind::TailAsk), points.encode()),
        (FrameHeader { incarnation: RUN, ..header(FrameKind::Tick) }, tick_payload),
        (header(FrameKind::GroupState), hello(Role::Primary, 1 << 20).encode()),
        (header(FrameKind::Goodbye), b"so long".to_vec()),
    ];
    for (interrupts, payload) in says {
        for then in
            [of_epoch(4, 0, true), of_epoch(1, 0, true), numbered(FrameKind::Void, 1), numbered(FrameKind::Void, 4)]
        {
            let mut victim = secondary(1 << 20);
            assert!(victim.receive(now, of_epoch(3, 2, false), vec![7; 512]));
            victim.receive(now, interrupts, payload.clone());
            victim.complete_all(now);
            let bytes = if then.kind == FrameKind::Data { vec![8; 512] } else { Vec::new() };
            victim.receive(now, then, bytes);
            victim.handle(at(3 * SECOND), Input::Tick);
            victim.complete_all(at(3 * SECOND));
            let session = victim.closed.len();
            victim.link_up(at(4 * SECOND), SESSION.0 + 1);
            victim.complete_all(at(4 * SECOND));
            assert!(victim.meter.bytes() == 0, "{:?}, then {:?}, {session}", interrupts.kind, then.kind);
        }
    }
}

// ---- what it makes stand still -------------------------------------------------------------------------------------------

/// Records that change nothing need no disk: whoever sends more of them at once than may be under way waited for the next one.
#[test]
fn very_many_records_that_change_nothing_are_applied_to_the_last_one() {
    let (mut victim, now) = (secondary(1 << 20), at(2 * SECOND));
    for seq in 1..=500 {
        assert!(victim.receive(now, numbered(FrameKind::Void, seq), Vec::new()));
    }
    for second in 2..6 {
        victim.handle(at(second * SECOND), Input::Tick);
        victim.complete_all(at(second * SECOND));
    }
    let (_, ack) = victim.sent.iter().rev().find(|(header, _)| header.kind == FrameKind::Ack).expect("it confirms");
    assert_eq!(engine::wire::Ack::decode(ack).expect("ours").applied, Seq(500));
}

/// A primary that lost its power in the midst of writes and asks its peer what that confirmed.
fn needs_verification() -> (BareMachine, Now) {
    let volume_bytes = 1 << 20;
    let (mut victim, now) = (BareMachine::new(0, Role::Primary, shape(volume_bytes)), at(SECOND));
    victim.start(now);
    victim.complete_all(now);
    let run = victim.node.glance(GROUP).expect("a group").identity;
    victim.restart(now, true);
    victim.complete_all(now);
    victim.link_up(now, SESSION.0);
    assert!(!victim.serves, "its export waits");
    let position = Position { generation: run.generation, incarnation: run.incarnation, seq: Seq(0) };
    let identity = Identity { role: Role::Secondary, generation: run.generation, position, ..Identity::default() };
    let says = GroupHello { identity, volume_bytes: vec![volume_bytes], ..GroupHello::default() };
    assert!(victim.receive(now, header(FrameKind::GroupHello), says.encode()));
    (victim, now)
}

#[test]
fn signs_of_life_do_not_keep_an_export_closed_for_what_is_never_sent() {
    let (mut victim, now) = needs_verification();
    let (asked, _) = victim.sent.iter().find(|(header, _)| header.kind == FrameKind::TailAsk).expect("it asks").clone();
    let tail = FrameHeader { seq: asked.seq, flags: flags::LAST, ..header(FrameKind::Tail) };
    let range = VolumeRange { volume: VolumeId(0), offset: 0, length: 4096 };
    assert!(victim.receive(now, tail, encode_ranges(&[range])));
    victim.complete_all(now);
    assert_eq!(said(&victim, FrameKind::Pull), 1);
    let hello = victim.node.glance(GROUP).expect("a group").identity;
    let position = Position { generation: hello.generation, incarnation: Incarnation(1), seq: Seq(0) };
    let identity = Identity { role: Role::Secondary, generation: hello.generation, position, ..Identity::default() };
    let says = GroupHello { identity, volume_bytes: vec![1 << 20], ..GroupHello::default() }.encode();
    for second in 2..200 {
        let now = at(second * SECOND);
        assert!(victim.receive(now, header(FrameKind::GroupState), says.clone()));
        victim.handle(now, Input::Tick);
        victim.complete_all(now);
        victim.takes(now, u64::MAX);
        if victim.serves {
            assert!(second > 60, "start_alone");
            return;
        }
    }
    panic!("the export is closed after 200 s: {}", victim.node.status()[0].reason);
}
