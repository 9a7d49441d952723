//! What an old primary had on its way reaches a node that was promoted and demoted since: it is nobody's.

use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult};
use sim::scenarios::{MILLISECOND, ScenarioWorld, options};

#[test]
fn frames_of_a_primary_that_was_overtaken_are_no_breach_when_this_node_was_demoted_since() {
    let mut options = options(Mode::Async, Policy::Degrade);
    options.bytes_per_s = 1_000_000;
    let mut world = ScenarioWorld::in_peace(options);
    for n in 0..16 {
        world.write(0, n * 32 * KIB, 32 * KIB);
    }
    world.pass(20 * MILLISECOND);
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    assert!(matches!(world.order(1, Command::Demote), CommandResult::Warning(_)));
    world.pass(500 * MILLISECOND);
}
