//! A primary that lost its power and waits for its peer has served alone when its export was open, and not before.

use engine::coverage::CoveragePoint;
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult, Input};
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options, serves};

/// In step, with writes that the peer has confirmed and this node has not flushed; then without power, and without the peer.
fn lost_power() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.loses_power_alone();
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    world
}

/// The wait for the peer ends while the node is being stopped. It never served, and asks at its next start.
#[test]
fn a_node_that_is_stopped_while_it_waits_for_its_peer_has_not_served_alone() {
    let mut world = lost_power();
    let held = world.images_of(1);
    world.pass(4900 * MILLISECOND);
    assert!(!serves(&world));
    world.cluster[0].storage.trouble.stalled_until = world.now() + 300 * MILLISECOND;
    world.input(0, Input::Stop);
    while world.cluster[0].up() {
        world.pass(MILLISECOND);
        assert!(!serves(&world));
    }
    world.cluster[0].storage.trouble.stalled_until = 0;
    world.restore_path();
    world.until("its export is open", serves);
    assert!(world.images_of(0) == held, "it opened without what the peer confirmed, and had never served");
}

/// The wait for the peer ends, and while that is being recorded the node is demoted. It never served; promoted again it asks.
#[test]
fn a_node_that_is_demoted_before_it_served_alone_asks_again() {
    let mut world = lost_power();
    let held = world.images_of(1);
    world.pass(3 * SECOND);
    assert!(!serves(&world));
    while !world.recorded(0).served_unverified && world.coverage(0, CoveragePoint::ServedAloneUnverified) == 0 {
        world.cluster[0].storage.trouble.stalled_until = world.now() + 300 * MILLISECOND;
        world.pass(MILLISECOND);
    }
    assert!(!serves(&world));
    let demoted = world.order(0, Command::Demote);
    assert!(matches!(demoted, CommandResult::Warning(_)), "{demoted:?}");
    assert!(!serves(&world));
    world.cluster[0].storage.trouble.stalled_until = 0;
    world.restore_path();
    world.connect([0, 1]);
    world.pass(2 * SECOND);
    world.promote(0, true);
    world.until("its export is open", serves);
    assert!(world.images_of(0) == held, "it opened without what the peer confirmed, and had never served");
}
