//! The rows of the identity table that no seed comes to by itself: what makes them is an operator who lets two histories
//! begin, or an old copy of a primary's records.

use std::collections::BTreeSet;

use engine::identity::Decision;
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult, Store};
use sim::story::{GROUP, SECOND, options};
use sim::world::World;

fn in_peace() -> World {
    World::in_peace(options(Mode::Async, Policy::Degrade))
}

fn until_row(world: &mut World, row: &'static str) {
    world.until(row, |world| world.tally.rows.contains(row));
}

/// Node 0 is away while node 1 is promoted by force and demoted again, so many times.
fn promoted_meanwhile(times: usize) -> World {
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

fn peer_went_further() -> World {
    let mut world = promoted_meanwhile(2);
    until_row(&mut world, "peer-went-further");
    world
}

/// Both were promoted out of histories that do not know of each other.
fn unrelated() -> World {
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
    until_row(&mut world, "unrelated");
    world
}

/// What the primary keeps beside its volumes comes back as it was before its last writes.
fn peer_saw_our_future() -> World {
    let mut world = in_peace();
    let records = [Store::Superblock(GROUP), Store::Bitmap(GROUP), Store::Activity(GROUP)];
    world.crash(0, false, SECOND);
    let before = records.map(|store| world.nodes[0].disks[&store].durable().to_vec());
    for _ in 0..2 {
        world.until("it serves", |world| world.nodes[0].serving.contains(&GROUP));
        world.until("in step", |world| world.in_step(GROUP));
        let id = world.write(0, 0, 8192);
        assert!(world.answer(id).0);
        world.settle();
        world.crash(0, false, SECOND);
    }
    for (store, before) in records.into_iter().zip(before) {
        world.nodes[0].disks.get_mut(&store).expect("every store has a disk").restore(before);
    }
    // The judge objects, and rightly: an incarnation is taken a second time.
    let limit = world.now + 60 * SECOND;
    while !world.tally.rows.contains("peer-saw-our-future") && world.now < limit {
        world.verdict = Ok(());
        world.run_until(world.now + SECOND / 10);
    }
    world
}

#[test]
fn the_rows_that_seeds_do_not_come_to_are_told() {
    let told: BTreeSet<&str> = [peer_went_further(), unrelated(), peer_saw_our_future()]
        .into_iter()
        .flat_map(|world| world.tally.rows)
        .chain(Decision::ROWS)
        .collect();
    assert_eq!(told.len(), 10, "{told:?}");
}
