//! A region whose local write failed is read and sent again, whatever happens to the link meanwhile.

use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use sim::story::{GROUP, MILLISECOND, SECOND, options};
use sim::world::World;

#[test]
fn a_link_lost_during_a_repair_does_not_forget_it() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    world.nodes[0].trouble.write_errors_until = world.now + SECOND / 2;
    for n in 0.. {
        let id = world.write(0, n % 16 * 8 * KIB, 8 * KIB);
        if !world.answer(id).0 {
            break;
        }
    }
    world.nodes[0].trouble.write_errors_until = 0;
    world.cut([false; 2]);
    // What cannot leave keeps the repair waiting behind it.
    for n in 0..24 {
        world.write(1, n * 32 * KIB, 32 * KIB);
        world.pass(MILLISECOND);
    }
    let state = |world: &World| world.glance(0, GROUP).map(|glance| glance.state);
    world.until("the link is given up", |world| state(world) == Some(State::Queuing));
    world.restore_path();
    world.until("in order again", |world| state(world) == Some(State::Replicating));
    world.settle();
}
