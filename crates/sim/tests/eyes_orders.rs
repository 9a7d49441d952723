//! Orders that meet something under way: what they wait for, and what they say has been reached.

use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult};
use sim::story::{MILLISECOND, SECOND, options};
use sim::swarm::Options;
use sim::world::World;

/// All that may differ after an unclean stop is compared, and that goes in the stream, with a number for each range.
fn comparing() -> World {
    let mut world = World::in_peace(Options {
        volume_bytes: 64 * MIB,
        volumes: 1,
        queue_bytes: 8 * MIB,
        journal_bytes: 4 * MIB,
        window_bytes: 2 * MIB,
        activity: engine::ActivityConfig { extent_bytes: MIB, extents: 64 },
        history_bytes: 128 * MIB,
        disk_ns: (20 * MILLISECOND, 60 * MILLISECOND),
        delay_ns: 10 * MILLISECOND,
        bytes_per_s: 1_000_000,
        ..options(Mode::Async, Policy::Degrade)
    });
    for n in 0..64 {
        let id = world.write(0, n * MIB, 4 * KIB);
        assert!(world.answer(id).0);
    }
    world.pass(10 * SECOND);
    world.crash(0, false, SECOND);
    world.pass(3 * SECOND);
    world.nodes[0].trouble.flush_ns = 500 * MILLISECOND;
    world.until("the comparison is under way", |world| world.figures(0).sync.is_some_and(|sync| sync.done_bytes > MIB));
    world
}

/// Each number that the sync gives is to be flushed here, so while it goes on there is always something that is not; and the export
/// is closed meanwhile.
#[test]
fn a_demotion_does_not_wait_for_the_end_of_a_sync() {
    let mut world = comparing();
    let began = world.now;
    let result = world.order(0, Command::Demote);
    let waited = world.now - began;
    assert!(waited < 12 * SECOND, "it took {} ms", waited / MILLISECOND);
    assert!(matches!(&result, CommandResult::Warning(text) if text.contains("may differ")), "{result:?}");
}

#[test]
fn a_stop_does_not_wait_for_the_end_of_a_sync() {
    let mut world = comparing();
    let began = world.now;
    world.stop(0);
    let waited = world.now - began;
    assert!(waited < 4 * SECOND, "it took {} ms", waited / MILLISECOND);
    world.boot(0);
    world.settle();
}
