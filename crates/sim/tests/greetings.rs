//! What a node says of itself is on record, and what its peer decides by that is for this run of it alone.

use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Store};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, at_rest, options, serves};

/// The peer of a primary wants its role without force.
fn is_not_promoted(world: &mut ScenarioWorld) {
    let why = world.refused(1, Command::Promote { force: false, entropy: 7 });
    assert!(why.contains("the peer is primary and"), "{why}");
}

// proves: rule 5, rule 14
/// The record of a demotion fails, and whether it landed is known after a restart: until then the peer is told of no
/// handover.
#[test]
fn a_demotion_whose_record_failed_is_no_handover() {
    let mut still_primary = 0;
    for draws in 0..8 {
        let mut world = at_rest();
        // Another part of the record lands.
        (0..100 * draws).for_each(|_| _ = world.rng.draw());
        world.cluster[0].storage.trouble.fail_next_record = true;
        let why = world.refused(0, Command::Demote);
        assert!(why.contains("superblock could not be written"), "{why}");
        world.pass(SECOND);
        is_not_promoted(&mut world);
        world.crash(0, true, SECOND);
        world.pass(10 * SECOND);
        if serves(&world) {
            still_primary += 1;
            is_not_promoted(&mut world);
        } else {
            assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
        }
        world.drain();
    }
    assert!(still_primary > 0);
}

// proves: rule 5
/// A session begins while a demotion is being recorded, and the node is killed before the record lands.
#[test]
fn a_demotion_that_is_being_recorded_is_no_handover() {
    let mut world = at_rest();
    world.cluster[0].storage.trouble.stalled_until = world.now() + 2 * SECOND;
    let demoted = world.command(0, GROUP, Command::Demote);
    world.pass(5 * MILLISECOND);
    world.connect([0, 1]);
    world.pass(50 * MILLISECOND);
    is_not_promoted(&mut world);
    assert!(world.cluster.ledger.result(demoted).is_none(), "its record is under way");
    let disk = world.cluster[0].disk_mut(Store::Superblock(GROUP));
    disk.will_keep(|_| false);
    world.cluster[0].storage.trouble.stalled_until = 0;
    world.crash(0, false, SECOND);
    world.until("it serves again", serves);
    world.drain();
}

// proves: rule 5
/// Until a restart tells whether the record of a promotion landed, the peer is told of no primary, by no frame, in no
/// session.
#[test]
fn a_promotion_whose_record_failed_is_no_primary() {
    let mut world = at_rest();
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    world.pass(30 * SECOND);
    world.cluster[1].storage.trouble.fail_next_record = true;
    let why = world.refused(1, Command::Promote { force: false, entropy: 7 });
    assert!(why.contains("superblock could not be written"), "{why}");
    world.connect([0, 1]);
    world.pass(5 * SECOND);
    assert!(!world.cluster[1].serves(GROUP));
    world.crash(1, false, SECOND);
    world.pass(10 * SECOND);
    if !world.cluster[1].serves(GROUP) {
        assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
    }
    world.until("it sends", |world| world.figures(1).state == State::Replicating);
}

// proves: rule 5
/// The first start of a primary fails while its record is under way: what its peer was told then is made good when it lands.
#[test]
fn a_first_start_that_failed_says_who_it_became() {
    for moment in 0..600 {
        let mut world = ScenarioWorld::new(SimOptions {
            disk_ns: (MILLISECOND, 20 * MILLISECOND),
            ..options(Mode::Async, Policy::Degrade)
        });
        (0..moment).for_each(|_| _ = world.rng.draw());
        world.pass(moment % 50 * MILLISECOND * 2);
        world.cluster[0].storage.trouble.fail_next_flush = true;
        world.pass(2 * SECOND);
    }
}

// proves: P6
/// Demoted, it was promoted again, wrote, and was demoted once more, all that while nothing it said got through. Its
/// peer was promoted by the first greeting, and begins a sync that would overwrite what was written since.
#[test]
fn a_sync_decided_by_an_old_greeting_is_not_taken() {
    let mut world = at_rest();
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    world.pass(100 * MILLISECOND);
    world.cut([false, true]);
    assert!(!matches!(world.promote(0, true), CommandResult::Refused(_)));
    world.write_done(0, 0, 16 * KIB);
    let flush = world.flush(0);
    assert!(world.answer(flush).0);
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    let written = world.images_of(0);
    world.command(1, GROUP, Command::Promote { force: true, entropy: 7 });
    world.until("a sync began", |world| world.figures(1).state == State::Syncing);
    world.pass(100 * MILLISECOND);
    world.restore_path();
    world.pass(500 * MILLISECOND);
    world.connect([0, 1]);
    world.pass(5 * SECOND);
    assert_eq!(world.images_of(0), written, "nobody asked for a sync");
    assert!(world.figures(1).reason.contains("the histories fork"), "{}", world.figures(1).reason);
    assert!(matches!(world.order(1, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
}
