//! A primary of which nothing is recorded knows nothing of what its peer may have become: its export opens when it has met a peer
//! that is as new, or when its operator says so.

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult, StartAlone};
use sim::scenarios::{FOR_EVER, GROUP, SECOND, ScenarioWorld, options};

fn serves(world: &ScenarioWorld, node: usize) -> bool {
    world.cluster[node].serves(GROUP)
}

/// Both nodes start for the first time, with a cable pulled.
fn apart() -> ScenarioWorld {
    let mut world = ScenarioWorld::new(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    world
}

// proves: P6
#[test]
fn a_new_primary_opens_when_it_has_met_its_peer() {
    let mut world = apart();
    // Longer than `start_alone`, and whatever becomes of the node meanwhile.
    for power in [false, true] {
        world.pass(60 * SECOND);
        assert!(!serves(&world, 0));
        let why = world.figures(0).reason;
        assert!(why.contains("the export opens when this node has met its peer"), "{why}");
        assert!(world.refused(0, Command::Sync { full: true }).contains("not connected"));
        world.crash(0, power, SECOND);
    }
    world.pass(60 * SECOND);
    assert!(!serves(&world, 0));
    world.restore_path();
    world.until("its export is open", |world| serves(world, 0));
    assert_eq!(world.coverage(0, CoveragePoint::ServedAloneUnverified), 0);
    // From now on it opens by itself.
    world.cut([false; 2]);
    world.crash(0, false, SECOND);
    world.until("its export is open", |world| serves(world, 0));
    world.restore_path();
    world.pass(SECOND);
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
}

#[test]
fn a_new_primary_opens_when_it_is_ordered_to_serve_alone() {
    let mut world = apart();
    world.pass(60 * SECOND);
    assert!(!serves(&world, 0));
    world.set(GROUP, |settings| settings.start_alone = StartAlone::Serve);
    world.until("its export is open", |world| serves(world, 0));
    world.write_done(0, 0, 64 * KIB);
    world.set(GROUP, |settings| settings.start_alone = StartAlone::Wait(std::time::Duration::from_secs(5)));
    world.crash(0, false, SECOND);
    world.until("its export is open", |world| serves(world, 0));
    world.restore_path();
    world.pass(SECOND);
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
}

/// In step; then the primary's state directory and its disks are gone, and the peer has the only copy.
fn lost_all() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    world.write_done(0, 0, 64 * KIB);
    world.drain();
    world.crash(0, true, FOR_EVER);
    world.cluster[0].storage.empties_records(GROUP);
    world.boot(0);
    world
}

// proves: P6
#[test]
fn a_new_primary_beside_a_peer_that_has_lived_opens_nothing() {
    let mut world = lost_all();
    let held = world.images_of(1);
    world.pass_unchecked(600 * SECOND);
    assert!(!serves(&world, 0));
    let why = world.figures(0).reason;
    assert!(why.contains("the peer has lived, and the export stays closed until you choose"), "{why}");
    world.pass_unchecked(SECOND);
    assert!(world.images_of(1) == held, "the only copy");
    assert!(!matches!(world.order(0, Command::Demote), CommandResult::Refused(_)));
    assert!(!matches!(world.promote(1, true), CommandResult::Refused(_)));
    world.until("the copy is served", |world| serves(world, 1));
    assert!(world.images_of(1) == held && !serves(&world, 0));
}

// proves: P6
/// It has lived, though it is no image: somebody wrote its volumes while it was stopped. No other copy is left.
#[test]
fn a_peer_that_was_written_from_outside_is_not_new() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    world.write_done(0, 0, 64 * KIB);
    world.drain();
    world.stop(1);
    world.crash(0, true, FOR_EVER);
    world.boot_changed(1);
    world.cluster[0].storage.empties_records(GROUP);
    world.boot(0);
    world.pass_unchecked(600 * SECOND);
    assert!(!serves(&world, 0));
    let why = world.figures(0).reason;
    assert!(why.contains("the peer has lived, and the export stays closed until you choose"), "{why}");
}
