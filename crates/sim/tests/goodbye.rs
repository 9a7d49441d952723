//! A node that is stopped says so: its peer need not take it for a fault.

use engine::Input;
use engine::marks::Mark;
use engine::state::{Mode, Policy};
use sim::story::{FOR_EVER, MILLISECOND, options};
use sim::world::World;

#[test]
fn the_peer_of_a_stopped_node_knows_why_the_link_is_down() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    world.input(1, Input::Stop);
    world.until("stopped", |world| !world.nodes[1].up());
    world.pass(50 * MILLISECOND);
    assert_eq!(world.figures(0).peer.link_reason, "the peer was stopped");
    assert_eq!(world.mark(0, Mark::GoodbyeHeard), 1);
    // A kill says nothing.
    world.until("back", |world| world.nodes[1].up());
    world.settle();
    world.crash(1, false, FOR_EVER);
    world.pass(50 * MILLISECOND);
    assert_eq!(world.figures(0).peer.link_reason, "reset");
}
