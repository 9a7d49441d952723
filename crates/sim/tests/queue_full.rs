//! The queue is full in `async`: with the link down nobody waits, with a silent peer nobody waits long; the queue becomes
//! dirty regions and a resync brings both together again.

use engine::limits::{KIB, MIB, SILENCE_SUSPECT};
use engine::marks::Mark;
use engine::state::{Mode, Policy, State};
use sim::story::{FOR_EVER, GROUP, MILLISECOND, SECOND, options};
use sim::world::World;

/// More than the queue holds, one write after the other; the longest wait.
fn overfill(world: &mut World) -> u64 {
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

#[test]
fn with_the_link_down_nobody_waits() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    world.crash(1, false, FOR_EVER);
    world.pass(100 * MILLISECOND);
    let longest = overfill(&mut world);
    assert!(longest <= 50 * MILLISECOND, "{longest} ns");
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Logging));
    assert_eq!((world.mark(0, Mark::QueueFullLinkDown), world.figures(0).queue.bytes), (1, 0));
    world.boot(1);
    world.settle();
    assert!(world.figures(0).resynced_bytes <= 2 * MIB + 40 * 32 * KIB);
}

#[test]
fn a_silent_peer_is_not_waited_for_longer_than_silence_may_last() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    let longest = overfill(&mut world);
    assert!(longest <= SILENCE_SUSPECT.as_nanos() as u64 + 300 * MILLISECOND, "{longest} ns");
    assert_eq!(world.mark(0, Mark::QueueFullPeerSilent), 1);
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Logging));
    world.pass(20 * SECOND);
    world.restore_path();
    world.settle();
}
