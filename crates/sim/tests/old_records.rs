//! A secondary's records are restored from an old copy, in which it still has differences of its own from when it was primary.

use engine::Command;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use sim::faults::Fault;
use sim::story::{GROUP, MILLISECOND, SECOND, options};
use sim::world::World;

#[test]
fn differences_of_its_own_do_not_hide_that_a_secondary_went_back() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    world.write(0, 0, 64 * KIB);
    world.pass(SECOND);
    world.promote(1, true);
    world.order(0, Command::Demote);
    world.restore_path();
    let state = |world: &World| world.glance(1, GROUP).map(|glance| glance.state);
    world.until("they meet", |world| world.figures(1).reason.contains("--full"));
    world.order(1, Command::Sync { full: true });
    world.until("in step", |world| state(world) == Some(State::Replicating));

    world.damage_records(Fault::OldCopy, GROUP);
    while world.figures(1).state == State::Replicating {
        world.write(1, 128 * KIB, 8 * KIB);
        world.pass(50 * MILLISECOND);
    }
    world.until("the contradiction is named", |world| world.figures(1).reason.contains("had confirmed"));
    world.order(1, Command::Sync { full: true });
    world.until("in step again", |world| state(world) == Some(State::Replicating));
    world.settle();
    assert_eq!(world.images_of(0), world.images_of(1));
}
