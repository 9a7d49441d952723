//! A primary is cut off, its secondary promoted by force, both write on. When they meet, in either order, the old
//! primary overwrites nothing, and neither does the new one until the operator chooses.
// proves: P6

use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult};
use sim::scenarios::{SECOND, ScenarioWorld, options};

/// Both are up, on two histories, and cannot see each other.
fn forked(dead: bool) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.write_done(0, 0, 64 * KIB);
    world.drain();
    world.cut([false; 2]);
    // The old primary goes on alone for a while.
    world.write_done(0, 0, 8 * KIB);
    world.pass(10 * SECOND);
    if dead {
        world.crash(0, true, 40 * SECOND);
    }
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)), "a forced promotion warns");
    world.write_done(0, 4 * KIB, 16 * KIB);
    world
}

fn nothing_is_overwritten_until_ordered(mut world: ScenarioWorld) {
    let ours = world.images_of(1);
    world.restore_path();
    world.until("the old primary is back", |world| world.cluster[0].up());
    let theirs = world.images_of(0);
    assert_ne!(ours, theirs);
    world.pass(30 * SECOND);
    assert_eq!((world.images_of(0), world.images_of(1)), (theirs.clone(), ours.clone()), "both as they were");
    for (node, full) in [(0, false), (0, true), (1, false), (1, true)] {
        world.refused(node, Command::Sync { full });
    }
    assert!(world.figures(1).reason.contains("both nodes are primary"), "{}", world.figures(1).reason);
    // The operator gives the old primary's changes up, in two words.
    match world.order(0, Command::Demote) {
        CommandResult::Warning(words) => {
            assert!(words.contains("the peer is primary and goes on") && !words.contains("--force"), "{words}");
        }
        other => panic!("{other:?}"),
    }
    world.pass(30 * SECOND);
    assert_eq!((world.images_of(0), world.images_of(1)), (theirs, ours.clone()), "autosync does not choose");
    world.refused(1, Command::Sync { full: false });
    assert!(matches!(world.order(1, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
    assert_eq!(world.images_of(0), ours);
}

#[test]
fn the_old_primary_boots_after_the_promotion() {
    nothing_is_overwritten_until_ordered(forked(true));
}

#[test]
fn the_old_primary_never_stopped() {
    nothing_is_overwritten_until_ordered(forked(false));
}

#[test]
fn the_new_primary_is_the_one_that_comes_back() {
    let mut world = forked(false);
    world.crash(1, false, 20 * SECOND);
    world.pass(25 * SECOND);
    nothing_is_overwritten_until_ordered(world);
}
