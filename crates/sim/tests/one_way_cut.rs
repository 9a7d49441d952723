//! Only one direction of the path is cut, the meanest failure: each end hears that the other does not answer, the policy
//! acts, and nothing acknowledged is lost.

use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use sim::scenarios::{GROUP, SECOND, ScenarioWorld, options};

fn cut_one_way(mode: Mode, passes: [bool; 2]) {
    let mut world = ScenarioWorld::in_peace(options(mode, Policy::Degrade));
    world.write_done(0, 0, 32 * KIB);
    world.cut(passes);
    let mut longest = 0;
    for n in 0..80u64 {
        let id = world.write((n % 2) as u16, n * 12 * KIB, 12 * KIB);
        let (done, after) = world.answer(id);
        assert!(done, "degraded, not failed");
        longest = longest.max(after);
        world.pass(SECOND / 10);
    }
    assert!(longest < 6 * SECOND, "{longest} ns");
    let state = world.glance(0, GROUP).map(|g| g.state);
    assert!(matches!(state, Some(State::Logging | State::Queuing)), "{state:?}");
    world.restore_path();
    world.drain();
}

#[test]
fn towards_the_secondary() {
    cut_one_way(Mode::Sync, [false, true]);
    cut_one_way(Mode::Async, [false, true]);
}

#[test]
fn towards_the_primary() {
    cut_one_way(Mode::Sync, [true, false]);
    cut_one_way(Mode::Async, [true, false]);
}
