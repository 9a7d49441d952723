//! The queue is full in `async`: with the link down nobody waits, with a silent peer nobody waits long; the queue becomes
//! dirty regions and a resync brings both together again.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB, SILENCE_SUSPECT};
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult};
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

/// More than the queue holds, one write after the other; the longest wait.
fn overfill(world: &mut ScenarioWorld) -> u64 {
    (0..40u64)
        .map(|n| {
            let id = world.write((n % 2) as u16, n / 2 * 32 * KIB, 32 * KIB);
            let (done, after) = world.answer(id);
            assert!(done, "write {n}");
            after
        })
        .max()
        .unwrap_or(0)
}

// proves: P8, rule 10
#[test]
fn with_the_link_down_nobody_waits() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.crash(1, false, FOR_EVER);
    world.pass(100 * MILLISECOND);
    let longest = overfill(&mut world);
    assert!(longest <= 50 * MILLISECOND, "{longest} ns");
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Logging));
    assert_eq!((world.coverage(0, CoveragePoint::QueueFullLinkDown), world.figures(0).queue.bytes), (1, 0));
    world.boot(1);
    world.drain();
    assert!(world.figures(0).resynced_bytes <= 2 * MIB + 40 * 32 * KIB);
}

// proves: P8, rule 10
#[test]
fn a_silent_peer_is_not_waited_for_longer_than_silence_may_last() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    let longest = overfill(&mut world);
    assert!(longest <= SILENCE_SUSPECT.as_nanos() as u64 + 300 * MILLISECOND, "{longest} ns");
    assert_eq!(world.coverage(0, CoveragePoint::QueueFullPeerSilent), 1);
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Logging));
    world.pass(20 * SECOND);
    world.restore_path();
    world.drain();
}

/// Writes that wait for a generation's record are let in without room, and a stream begins before they go on.
#[test]
fn what_waited_while_there_was_no_stream_has_its_room_in_the_queue() {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        queue_bytes: 128 * KIB,
        bytes_per_s: 400_000,
        ..options(Mode::Async, Policy::Degrade)
    });
    world.pass(10 * SECOND);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.pass(SECOND);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 100 * MILLISECOND;
    let ids: Vec<_> = (0..20).map(|n| world.write((n % 2) as u16, n * 32 * KIB, 32 * KIB)).collect();
    world.cluster[0].storage.trouble.stalled_until = 0;
    world.command(0, GROUP, Command::Sync { full: false });
    let limit = world.now() + SECOND;
    let mut most = 0;
    while world.now() < limit {
        world.run_until(world.now() + MILLISECOND);
        if ids.iter().all(|id| world.reply(*id).is_some()) {
            most = most.max(world.figures(0).queue.bytes);
        }
    }
    println!(
        "{most} bytes after all were answered, hwm {}, {:?}, {:?}",
        world.figures(0).queue.peaks.bytes,
        world.glance(0, GROUP),
        world.verdict()
    );
    assert!(most <= 128 * KIB, "{most} bytes are queued, 131072 is the limit");
}
