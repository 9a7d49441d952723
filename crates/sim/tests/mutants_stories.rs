//! Stories for small changes of the engine to which nobody else objected (`cargo xtask soak --mutants`): each one is told by what
//! would go wrong.

use std::time::Duration;

use engine::limits::KIB;
use engine::marks::Mark;
use engine::state::{Mode, Policy, Protection, State};
use engine::{Command, CommandResult};
use sim::story::{GROUP, MILLISECOND, SECOND, options};
use sim::world::World;

fn state(world: &World) -> Option<State> {
    world.glance(0, GROUP).map(|glance| glance.state)
}

/// The second loss of the link came longer after the first one than the window lasts, and found it over: its writers were answered
/// alone at once.
#[test]
fn each_loss_of_the_link_has_a_window_of_its_own() {
    let mut world = World::in_peace(options(Mode::Sync, Policy::Hold(Duration::from_secs(20))));
    for round in 0..3 {
        world.cut([false; 2]);
        let id = world.write(0, round * 64 * KIB, 4 * KIB);
        world.until("the window opens", |world| state(world) == Some(State::Holding));
        world.pass(12 * SECOND);
        assert_eq!(world.reply(id), None, "round {round}: the window still runs");
        world.restore_path();
        assert!(world.answer(id).0);
        world.settle();
        world.pass(30 * SECOND);
    }
    assert_eq!((world.mark(0, Mark::HoldEnded), world.mark(0, Mark::DegradeReleasedWriters)), (0, 0));
}

/// A node in doubt was promoted by force while it saw a peer that had been promoted since: it asked that for what it lacks, which a
/// node with a history of its own does not give, and stayed closed.
#[test]
fn what_a_peer_that_went_on_cannot_give_is_not_waited_for() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..24 {
        let id = world.write((n % 2) as u16, n * 32 * KIB, 16 * KIB);
        assert!(world.answer(id).0);
    }
    world.pass(200 * MILLISECOND);
    world.cut([false; 2]);
    world.crash(0, true, SECOND);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    world.restore_path();
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    world.pass(10 * SECOND);
    let in_doubt = |world: &World| world.glance(0, GROUP).is_some_and(|glance| glance.in_doubt);
    assert!(in_doubt(&world));
    assert!(!matches!(world.promote(0, true), CommandResult::Refused(_)));
    assert!(world.nodes[0].serving.contains(&GROUP) && !in_doubt(&world), "{}", world.figures(0).reason);
}

/// A primary without writes sent no clock, and its copy seemed to grow older (rule 19).
#[test]
fn the_copy_of_an_idle_primary_does_not_grow_older() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    let copy_at = |world: &World| world.figures(1).promotable.expect("it is an image").1.0;
    let before = copy_at(&world);
    world.pass(60 * SECOND);
    assert!(copy_at(&world) - before >= 57 * SECOND, "{} ns in a minute", copy_at(&world) - before);
}

#[test]
fn writes_are_counted() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    let count = |world: &World| (world.figures(0).writes, world.figures(0).written_bytes);
    let (writes, bytes) = count(&world);
    for n in 0..3 {
        let id = world.write(0, n * 64 * KIB, 8 * KIB);
        assert!(world.answer(id).0);
    }
    assert_eq!(count(&world), (writes + 3, bytes + 24 * KIB));
}

/// While the link is down and the queue holds, what is written is on its way: status said that it was protected by nothing.
#[test]
fn what_waits_in_the_queue_is_told_as_queued() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    let id = world.write(0, 0, 8 * KIB);
    assert!(world.answer(id).0);
    world.until("the link is down", |world| state(world) == Some(State::Queuing));
    assert_eq!(world.figures(0).protection, Protection::Queued);
    world.restore_path();
    world.settle();
}
