//! A primary is cut off, its secondary promoted by force, both write on. When they meet, in either order, the old
//! primary overwrites nothing, and neither does the new one until the operator chooses.
// proves: P6

use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult};
use sim::scenarios::{GROUP, SECOND, ScenarioWorld, options, serves};

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

/// Its power is back and the peer serves: no time that passes has it serve beside the peer. Alone, it may (rule 24).
#[test]
fn an_old_primary_that_lost_power_does_not_open_beside_the_promoted_one() {
    for is_gone in [false, true] {
        let mut world = forked(true);
        world.restore_path();
        world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
        world.pass(100 * SECOND);
        let reason = world.figures(0).reason;
        assert!(!serves(&world) && reason.contains("both nodes are primary"), "{reason}");
        assert!(reason.contains("as long as the peer is seen to be primary"), "{reason}");
        if is_gone {
            world.cut([false; 2]);
            world.until("it is alone", serves);
            continue;
        }
        world.order(0, Command::Demote);
        world.order(1, Command::Sync { full: true });
        world.drain();
    }
}

/// Both lose their power after the promotion. The one that was promoted opens when its wait is over; the other one does not.
#[test]
fn of_two_primaries_that_lost_power_the_promoted_one_opens() {
    let mut world = forked(true);
    world.crash(1, true, SECOND);
    world.restore_path();
    world.until("both are back", |world| (0..2).all(|node| world.glance(node, GROUP).is_some_and(|g| g.running)));
    world.until("the promoted one is open", |world| world.cluster[1].serves(GROUP));
    world.pass(100 * SECOND);
    assert!(!serves(&world) && world.cluster[1].serves(GROUP));
    // A moment without the other one is not yet to be alone.
    world.cut([false; 2]);
    world.pass(SECOND);
    assert!(!serves(&world));
}
