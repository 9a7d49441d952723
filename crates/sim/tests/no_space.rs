//! Every disk that is full has one outcome, and none is a hang or a loss: see "When something is full" in the manual of
//! reliability.

use engine::limits::KIB;
use engine::marks::Mark;
use engine::state::{Broken, Mode, Policy, State};
use sim::story::{FOR_EVER, GROUP, MILLISECOND, SECOND, options};
use sim::world::World;

fn state(world: &World, node: usize) -> Option<State> {
    world.glance(node, GROUP).map(|glance| glance.state)
}

#[test]
fn the_secondarys_volume_pauses_apply_and_writers_go_on() {
    let mut world = World::in_peace(options(Mode::Sync, Policy::Degrade));
    world.nodes[1].trouble.full_until = world.now + 5 * SECOND;
    for n in 0..40u64 {
        // Sync asks for the journal, which has room.
        let id = world.write((n % 2) as u16, n * 8 * KIB, 4 * KIB);
        let (done, after) = world.answer(id);
        assert!(done && after < 100 * MILLISECOND, "{after} ns");
    }
    world.until("paused", |world| world.mark(1, Mark::ApplyPaused) > 0);
    world.settle();
}

#[test]
fn the_secondarys_journal_stops_the_group_there_and_the_primary_goes_on_alone() {
    for mode in [Mode::Sync, Mode::Async] {
        let mut world = World::in_peace(options(mode, Policy::Degrade));
        world.nodes[1].trouble.state_full_until = FOR_EVER;
        let id = world.write(0, 0, 64 * KIB);
        let (done, after) = world.answer(id);
        assert!(done && after < SECOND, "{after} ns");
        world.until("told", |world| state(world, 0) == Some(State::Logging));
        assert!(matches!(state(&world, 1), Some(State::Failed(Broken::Journal | Broken::Superblock))));
        assert!(world.figures(0).reason.contains("failed"), "{}", world.figures(0).reason);
        // Room was made, and the daemon there restarted.
        world.nodes[1].trouble.state_full_until = 0;
        world.crash(1, false, SECOND / 10);
        world.settle();
    }
}

#[test]
fn the_primarys_state_directory_stops_the_group_with_errors_not_with_silence() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    let id = world.write(0, 0, 64 * KIB);
    assert!(world.answer(id).0);
    world.settle();
    world.nodes[0].trouble.state_full_until = FOR_EVER;
    // An order that has to be recorded.
    world.command(0, GROUP, engine::Command::Logging);
    world.until("failed", |world| matches!(state(world, 0), Some(State::Failed(Broken::Superblock))));
    let id = world.write(0, 0, 4 * KIB);
    let (done, after) = world.answer(id);
    assert!(!done && after < 100 * MILLISECOND, "{after} ns");
    world.nodes[0].trouble.state_full_until = 0;
    world.crash(0, false, SECOND / 10);
    world.until("back", |world| world.nodes[0].serving.contains(&GROUP));
    world.order(0, engine::Command::Sync { full: false });
    world.settle();
}

#[test]
fn the_primarys_volume_fails_the_write_and_is_repaired() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    world.nodes[0].trouble.serving_full_until = world.now + SECOND;
    for n in 0..4u64 {
        let id = world.write(0, n * 64 * KIB, 16 * KIB);
        let (done, after) = world.answer(id);
        assert!(!done && after < 100 * MILLISECOND, "{after} ns");
    }
    assert!(world.mark(0, Mark::LocalWriteFailed) >= 4);
    world.pass(2 * SECOND);
    let id = world.write(0, 0, 16 * KIB);
    assert!(world.answer(id).0, "there is room again");
    world.settle();
}
