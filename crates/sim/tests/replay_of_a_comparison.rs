//! A secondary dies in the midst of a comparison. Its journal holds a batch of more comparisons than records are applied at
//! once. At its start they ask for nothing any more, and are done as soon as they are taken up: no completion came that
//! would have taken up the rest, and the start stood still for ever.

use engine::ActivityConfig;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy, State};
use sim::options::SimOptions;
use sim::scenarios::{MILLISECOND, SECOND, ScenarioWorld, options};

// proves: P5
/// The secondary dies at many moments of a comparison, and each time it starts and comes in step.
#[test]
fn a_secondary_that_died_in_a_comparison_starts_again() {
    for after in (5..400).step_by(40) {
        let mut world = ScenarioWorld::in_peace(SimOptions {
            volumes: 1,
            volume_bytes: 16 * MIB,
            bytes_per_s: 125_000_000,
            journal_bytes: 8 * MIB,
            window_bytes: 4 * MIB,
            history_bytes: 64 * MIB,
            activity: ActivityConfig { extent_bytes: 8 * MIB, extents: 4 },
            ..options(Mode::Async, Policy::Degrade)
        });
        for offset in [0, 8 * MIB] {
            world.write_done(0, offset, 4 * KIB);
        }
        world.drain();
        // 256 comparisons; while one batch is written many gather for the next.
        world.crash(0, false, 100 * MILLISECOND);
        world.cluster[1].storage.trouble.slow_until = world.now() + 10 * SECOND;
        world.until("it compares", |world| world.cluster[0].up() && world.figures(0).state == State::Syncing);
        world.pass(after * MILLISECOND);
        world.cluster[1].storage.trouble.slow_until = 0;
        world.crash(1, false, 100 * MILLISECOND);
        world.drain();
    }
}
