//! Situations that several scenarios begin in, and what they ask of their first primary, node 0.

use engine::limits::KIB;
use engine::state::{Mode, Policy, State};

use super::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};
use crate::options::SimOptions;

/// In step, and nothing is being recorded any more.
pub fn at_rest() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(30 * SECOND);
    world
}

/// In step, with writes that the peer has confirmed and this node has not flushed.
pub fn unflushed() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..24 {
        world.write_done((n % 2) as u16, n * 32 * KIB, 16 * KIB);
    }
    // Here that happens every five seconds.
    world.pass(200 * MILLISECOND);
    world
}

/// In step under `strict`, with time to wait.
pub fn patient() -> ScenarioWorld {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 60_000, ..options(Mode::Sync, Policy::Strict) });
    world.pass(5 * SECOND);
    assert_eq!(state(&world), Some(State::Replicating));
    world
}

/// The primary loses its power and is back.
pub fn loses_power(world: &mut ScenarioWorld) {
    world.crash(0, true, SECOND);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
}

pub fn serves(world: &ScenarioWorld) -> bool {
    world.cluster[0].serves(GROUP)
}

pub fn state(world: &ScenarioWorld) -> Option<State> {
    world.glance(0, GROUP).map(|glance| glance.state)
}

pub fn needs_verification(world: &ScenarioWorld) -> bool {
    world.glance(0, GROUP).is_some_and(|glance| glance.needs_verification)
}

pub fn node_failed(world: &ScenarioWorld, node: usize) -> bool {
    matches!(world.glance(node, GROUP).map(|glance| glance.state), Some(State::Failed(_)))
}
