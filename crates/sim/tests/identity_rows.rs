//! Rows of the identity table that no seed comes to by itself: what makes them is an operator who lets two histories begin,
//! or an old copy of a primary's records. Each test comes to the row that it is named after.
// proves: rule 5

use engine::identity::DecisionRow;
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult, Store};
use sim::scenarios::{GROUP, SECOND, ScenarioWorld, options};

fn in_peace() -> ScenarioWorld {
    ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade))
}

fn until_row(world: &mut ScenarioWorld, row: DecisionRow) {
    world.until(row.name(), |world| world.tally.rows.contains(&row));
}

/// Node 0 is away while node 1 is promoted by force and demoted again, so many times.
fn promoted_meanwhile(times: usize) -> ScenarioWorld {
    let mut world = in_peace();
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    for _ in 0..times {
        assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
        assert!(!matches!(world.order(1, Command::Demote), CommandResult::Refused(_)));
    }
    world.restore_path();
    world
}

#[test]
fn a_peer_that_was_promoted_twice_meanwhile_went_further() {
    let mut world = promoted_meanwhile(2);
    until_row(&mut world, DecisionRow::PeerWentFurther);
}

/// Both were promoted out of histories that do not know of each other.
#[test]
fn two_that_were_promoted_over_and_over_are_unrelated() {
    let mut world = promoted_meanwhile(3);
    assert!(!matches!(world.order(0, Command::Demote), CommandResult::Refused(_)));
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    for _ in 0..5 {
        assert!(!matches!(world.promote(0, true), CommandResult::Refused(_)));
        assert!(!matches!(world.order(0, Command::Demote), CommandResult::Refused(_)));
    }
    assert!(!matches!(world.promote(0, true), CommandResult::Refused(_)));
    world.restore_path();
    until_row(&mut world, DecisionRow::Unrelated);
}

/// What the primary keeps beside its volumes comes back as it was before its last writes.
fn records_from_before(crashes: usize) -> ScenarioWorld {
    let mut world = in_peace();
    let records = [Store::Superblock(GROUP), Store::Bitmap(GROUP), Store::Activity(GROUP)];
    world.crash(0, false, SECOND);
    let before = records.map(|store| world.cluster[0].disk(store).durable().to_vec());
    for _ in 0..crashes {
        world.until("it serves", |world| world.cluster[0].serves(GROUP));
        world.until("in step", |world| world.in_step());
        world.write_done(0, 0, 8192);
        world.drain();
        world.crash(0, false, SECOND);
    }
    for (store, before) in records.into_iter().zip(before) {
        world.cluster[0].disk_mut(store).restore(before);
    }
    world
}

/// The checker objects, and rightly: an incarnation is taken a second time.
fn until_row_whoever_objects(world: &mut ScenarioWorld, row: DecisionRow) {
    let limit = world.now() + 60 * SECOND;
    while !world.tally.rows.contains(&row) {
        assert!(world.now() < limit, "{} was not come to", row.name());
        world.pardon();
        world.run_until(world.now() + SECOND / 10);
    }
}

#[test]
fn a_peer_of_a_run_that_was_forgotten_saw_a_later_one() {
    let mut world = records_from_before(2);
    until_row_whoever_objects(&mut world, DecisionRow::LaterRun);
}

#[test]
fn a_peer_of_a_run_that_is_taken_again_is_past_its_last_number() {
    let mut world = records_from_before(1);
    until_row_whoever_objects(&mut world, DecisionRow::PastOurLast);
}
