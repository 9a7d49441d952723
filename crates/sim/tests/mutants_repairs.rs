//! More scenarios for small changes of the engine to which nobody else objected: what goes on beside a sync, and what a repair does.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, GroupId};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

/// Writes to one volume until one fails here.
fn one_write_fails(world: &mut ScenarioWorld, volume: u16) {
    world.cluster[0].storage.trouble.write_errors_until = ALWAYS;
    for n in 0.. {
        let id = world.write(volume, n % 16 * 16 * KIB, 4 * KIB);
        if !world.answer(id).0 {
            break;
        }
    }
    world.cluster[0].storage.trouble.write_errors_until = 0;
}

// proves: P5
/// A second write failed while the region of the first one was being read: the repair began anew, nobody waited for that read any
/// more, and its position in the queue held up all that came after it.
#[test]
fn a_write_that_fails_during_a_repair_does_not_begin_it_anew() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    one_write_fails(&mut world, 0);
    world.pass(950 * MILLISECOND);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 5 * SECOND;
    world.pass(100 * MILLISECOND);
    world.cluster[0].storage.trouble.stalled_until = 0;
    one_write_fails(&mut world, 1);
    let failed = world.now();
    world.drain();
    assert!(world.now() - failed < 10 * SECOND, "{} ns", world.now() - failed);
}

/// The half of a peer failed while a full sync waited for its turn. The sync began all the same, and set all dirty.
#[test]
fn a_full_sync_that_waited_does_not_begin_to_a_peer_that_has_failed() {
    let mut world = ScenarioWorld::new(SimOptions {
        pairs: vec![[0, 1], [0, 1], [0, 2]],
        volumes: 1,
        syncs_at_once: 1,
        bytes_per_s: 400_000,
        ..options(Mode::Async, Policy::Degrade)
    });
    world.pass(SECOND);
    let (busy, waiting) = (GroupId(0), GroupId(2));
    world.command(0, waiting, Command::Sync { full: true });
    world.until("synced", |world| world.cluster.in_step(waiting));
    for n in 0..16 {
        world.write_to(busy, 0, n * 64 * KIB, 64 * KIB);
    }
    world.pass(SECOND);
    world.command(0, busy, Command::Sync { full: true });
    world.pass(100 * MILLISECOND);
    world.command(0, waiting, Command::Sync { full: true });
    world.pass(100 * MILLISECOND);
    world.cluster[2].storage.trouble.apply_errors_until = ALWAYS;
    world.write_to(waiting, 0, 0, 4 * KIB);
    let state = |world: &ScenarioWorld, node| world.glance(node, waiting).map(|glance| glance.state);
    world.until("it has failed", |world| matches!(state(world, 2), Some(State::Failed(_))));
    assert!(!world.cluster.in_step(busy), "it still syncs");
    world.until("the other sync has ended", |world| world.cluster.in_step(busy));
    world.pass(SECOND);
    assert_eq!(state(&world, 0), Some(State::Logging));
    assert_eq!(world.coverage(0, CoveragePoint::FullSyncBegan), 2, "the first one, and that of the other group");
}

// proves: P5
/// A sync in the stream looked for the next region behind the last one of a volume whose bits fill whole words.
#[test]
fn a_sync_ends_with_the_last_region_of_a_volume() {
    let slow = SimOptions { bytes_per_s: 400_000, volume_bytes: 2 * MIB, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(slow);
    for n in 0..16 {
        world.write(0, n * 32 * KIB, 32 * KIB);
    }
    world.drain();
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.write_done(0, 2 * MIB - 32 * KIB, 32 * KIB);
    world.command(0, GROUP, Command::Sync { full: false });
    world.until("it syncs", |world| world.glance(0, GROUP).is_some_and(|glance| glance.state == State::Syncing));
    assert!(world.checkers.wire.syncs_in_stream(GROUP, 1));
    world.drain();
}

/// The peer's disk stood still for a while in the midst of a snapshot: the link was taken for as slow as that, and the sync went on by snapshots
/// beside writers for whom the stream has room.
#[test]
fn a_peer_that_stood_still_in_a_snapshot_is_no_slow_link() {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) });
    // So the link is measured.
    for n in 0..16 {
        world.write(0, n * 32 * KIB, 32 * KIB);
    }
    world.drain();
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..24 {
        world.write_done((n % 2) as u16, n / 2 * 32 * KIB, 32 * KIB);
    }
    let before = world.coverage(0, CoveragePoint::SnapshotBegan);
    world.command(0, GROUP, Command::Sync { full: false });
    world.until("some of the snapshot is done", |world| world.figures(0).sync.is_some_and(|sync| sync.done_bytes > 0));
    world.cluster[1].storage.trouble.stalled_until = world.now() + 15 * SECOND;
    for n in 0..200 {
        world.write_done(1, n % 8 * 8 * KIB, 8 * KIB);
        world.pass(100 * MILLISECOND);
    }
    world.drain();
    assert_eq!(world.coverage(0, CoveragePoint::SnapshotBegan) - before, 1, "the next step was the stream");
}
