//! A full sync overwrites the peer whatever that holds: it is an order about the peer as the operator saw it.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB, REGION_BYTES};
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

// proves: P6
/// It waits for its bits to be stored. Meanwhile the peer is promoted, acknowledges a write, and is demoted again.
#[test]
fn a_full_sync_does_not_begin_once_the_peer_was_promoted() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(30 * SECOND);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.write_done(0, 0, 8 * KIB);
    let before = world.coverage(0, CoveragePoint::FullSyncBegan);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 3 * SECOND;
    world.command(0, GROUP, Command::Sync { full: true });
    world.pass(10 * MILLISECOND);
    world.cluster[0].storage.trouble.stalled_until = 0;
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    world.write_done(1, 512 * KIB, 8 * KIB);
    let flush = world.flush(1);
    assert!(world.answer(flush).0);
    let written = world.images_of(1);
    assert!(matches!(world.order(1, Command::Demote), CommandResult::Warning(_)));
    assert_eq!(world.coverage(0, CoveragePoint::FullSyncBegan), before, "it waits");
    world.pass(10 * SECOND);
    assert_eq!(world.coverage(0, CoveragePoint::FullSyncBegan), before);
    assert_eq!(world.images_of(1), written, "that was acknowledged");
    assert!(world.figures(0).reason.contains("the histories fork"), "{}", world.figures(0).reason);
    // Now he knows.
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.until("the peer follows", |world| world.images_of(0) == world.images_of(1));
}

// ---- what is equal does not travel -----------------------------------------------------------------------------------

const VOLUME_BYTES: u64 = 8 * MIB;
/// Where in each volume the copies differ before the sync: two regions each.
const DIFFERING: [u64; 8] =
    [0, 12 * KIB, 300 * KIB, 301 * 4 * KIB, 3 * MIB, 5 * MIB + 60 * KIB, 7 * MIB, VOLUME_BYTES - 8 * KIB];
const DIFFERING_BYTES: u64 = 2 * DIFFERING.len() as u64 * 2 * REGION_BYTES;

/// Volumes full of data, which no sync takes along in the stream.
fn large(bytes_per_s: u64) -> SimOptions {
    let options = options(Mode::Async, Policy::Degrade);
    SimOptions { volume_bytes: VOLUME_BYTES, history_bytes: 64 * MIB, bytes_per_s, ..options }
}

/// The other node, which was promoted by force: its content counts.
const NEW: usize = 1;

/// The old primary wrote alone before it heard of that. It follows now, and nobody asks the bits where the copies differ.
fn forked(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options);
    for at in (0..2 * VOLUME_BYTES).step_by(128 << 10) {
        world.write((at / VOLUME_BYTES) as u16, at % VOLUME_BYTES, 128 * KIB);
    }
    world.drain();
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for (volume, offset) in (0..2).flat_map(|volume| DIFFERING.map(|offset| (volume, offset))) {
        world.write_done(volume, offset, 2 * REGION_BYTES);
    }
    assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
    world.write_done(0, DIFFERING[0], 2 * REGION_BYTES);
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    // The other node hears of it.
    world.pass(SECOND);
    world
}

fn sync_in_full(world: &mut ScenarioWorld) {
    let result = world.order(NEW, Command::Sync { full: true });
    assert!(matches!(result, CommandResult::Done(_)), "{result:?}");
}

fn sent(world: &ScenarioWorld) -> u64 {
    world.data_sent_bytes()[NEW]
}

/// Nothing but what differed, and five parts in a hundred.
fn only_differing_travelled(world: &ScenarioWorld, before: u64, differing_bytes: u64) {
    let sent = sent(world) - before;
    assert!(sent <= differing_bytes + differing_bytes / 20, "{sent} bytes sent, where {differing_bytes} differed");
}

// proves: P3, rule 8
/// Nobody writes: a hash of each region travels, and the regions that differ.
#[test]
fn what_is_equal_does_not_travel_in_a_full_sync() {
    let mut world = forked(large(12_500_000));
    let before = sent(&world);
    sync_in_full(&mut world);
    world.drain();
    only_differing_travelled(&world, before, DIFFERING_BYTES);
    assert!(sent(&world) - before >= DIFFERING_BYTES);
    assert!(world.coverage(NEW, CoveragePoint::SnapshotProbeEqual) > 200);
    assert!(world.coverage(NEW, CoveragePoint::SnapshotProbeNarrowed) > 0);
    assert_eq!(world.coverage(NEW, CoveragePoint::SnapshotProbeDiffered) * REGION_BYTES, DIFFERING_BYTES);
}

// proves: P2, P3, rule 8
/// Writers go on, over regions that differ and others, some of which wait for their answer: each write may cost its regions once more.
#[test]
fn what_is_equal_does_not_travel_in_a_full_sync_beside_writers() {
    let mut world = forked(SimOptions { delay_ns: 50 * MILLISECOND, ..large(12_500_000) });
    let before = sent(&world);
    sync_in_full(&mut world);
    let mut written = 0;
    for n in 0..60 {
        world.pass(5 * MILLISECOND);
        let length = 16 * KIB;
        world.write(n % 2, u64::from(n) * 7 % 500 * length, length);
        written += 1;
    }
    world.drain();
    // Once as it was at the mark, and once as it is.
    only_differing_travelled(&world, before, DIFFERING_BYTES + 2 * written * 16 * KIB);
    assert!(world.coverage(NEW, CoveragePoint::SnapshotProbeEqual) > 150);
    assert!(world.coverage(NEW, CoveragePoint::SnapshotProbeOvertaken) > 0, "a write came before an answer");
}

// proves: P3, rule 8
/// The link is lost in the middle, more than once: what was compared is not compared again, and what was sent is not sent again.
#[test]
fn what_is_equal_does_not_travel_in_a_full_sync_that_is_cut_short() {
    let mut world = forked(SimOptions { delay_ns: 20 * MILLISECOND, ..large(12_500_000) });
    let before = sent(&world);
    sync_in_full(&mut world);
    let mut compared = 0;
    for cut in 1..=3 {
        let wanted = cut * 50;
        world.until("some is compared", |world| world.coverage(NEW, CoveragePoint::SnapshotProbeEqual) >= wanted);
        world.cut([false; 2]);
        world.until("the link is lost", |world| world.figures(NEW).state == State::Logging);
        compared = world.figures(NEW).compared_bytes;
        world.restore_path();
    }
    world.drain();
    // What was under way travels again, in the worst case.
    only_differing_travelled(&world, before, 2 * DIFFERING_BYTES);
    assert!(world.figures(NEW).compared_bytes - compared <= 2 * VOLUME_BYTES, "it went on");
}

// proves: P2, P3
/// Either node crashes in the middle. What was known of the other's copy is forgotten, and compared again.
#[test]
fn what_is_equal_does_not_travel_in_a_full_sync_after_a_crash() {
    for (node, power) in [(NEW, false), (NEW, true), (0, false), (0, true)] {
        let mut world = forked(SimOptions { delay_ns: 20 * MILLISECOND, ..large(12_500_000) });
        let before = sent(&world);
        sync_in_full(&mut world);
        world.until("some is compared", |world| world.coverage(NEW, CoveragePoint::SnapshotProbeEqual) >= 60);
        world.crash(node, power, SECOND);
        world.drain();
        only_differing_travelled(&world, before, 2 * DIFFERING_BYTES);
    }
}

/// The copy is known to differ: the disks are not read for hashes.
#[test]
fn all_of_it_travels_where_the_operator_says_so() {
    let mut world = forked(large(12_500_000));
    let before = sent(&world);
    assert!(matches!(world.order(NEW, Command::SendAll), CommandResult::Done(_)));
    world.drain();
    assert!(sent(&world) - before >= 2 * VOLUME_BYTES);
    assert_eq!(world.figures(NEW).compared_bytes, 0);
}
