//! What a primary fetches back after a power loss: asked for anew in each session, so what is read for an older one is nobody's;
//! and lost again if the flush behind it fails.

use engine::limits::KIB;
use engine::marks::Mark;
use engine::state::{Mode, Policy, State};
use engine::{Command, Store};
use sim::story::{GROUP, MILLISECOND, SECOND, options};
use sim::swarm::Options;
use sim::world::World;

/// In step, with writes that the peer has confirmed and this node has not flushed.
fn unflushed() -> World {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..24 {
        let id = world.write((n % 2) as u16, n * 32 * KIB, 16 * KIB);
        assert!(world.answer(id).0);
    }
    // Here that happens every five seconds.
    world.pass(200 * MILLISECOND);
    world
}

/// The primary has lost its power and what the peer confirmed, and is back; nothing of it is fetched yet.
fn lost_power() -> World {
    let mut world = unflushed();
    world.crash(0, true, SECOND);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    world
}

#[test]
fn a_failed_flush_of_what_was_fetched_leaves_the_doubt() {
    let mut world = lost_power();
    world.nodes[0].trouble.fail_next_flush = true;
    world.until("the group fails", |world| matches!(world.glance(0, GROUP).map(|g| g.state), Some(State::Failed(_))));
    world.pass(SECOND);
    assert!(!world.nodes[0].serving.contains(&GROUP), "nobody may read what lacks confirmed writes");
    assert!(world.glance(0, GROUP).is_some_and(|glance| glance.in_doubt));
    world.crash(0, true, SECOND);
    world.until("its export is open", |world| world.nodes[0].serving.contains(&GROUP));
    assert_eq!(world.mark(0, Mark::TailPulled), 1);
    world.settle();
}

#[test]
fn an_answer_read_for_an_older_session_is_not_given_in_a_newer_one() {
    let mut world = lost_power();
    world.nodes[1].trouble.slow_until = world.now + 60 * SECOND;
    for _ in 0..20 {
        world.pass(15 * MILLISECOND);
        world.connect([0, 1]);
    }
    world.until("its export is open", |world| world.nodes[0].serving.contains(&GROUP));
    assert_eq!(world.mark(0, Mark::TailPulled), 1);
    world.settle();
}

/// A sync in the stream of writes has overwritten a part of its copy. The last write is at the peer, which keeps it, and is
/// flushed here, which the peer does not know.
fn mid_sync() -> World {
    let mut world = World::in_peace(Options { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) });
    // What stood here before comes back without the undo store: zeroes are not read.
    let id = world.zero(0, 0, 256 * KIB, false);
    assert!(world.answer(id).0);
    world.settle();
    world.cut([false; 2]);
    for n in 0..14 {
        let id = world.write(0, n * 60 * KIB, 36 * KIB);
        assert!(world.answer(id).0);
    }
    let before = world.images_of(1);
    // After a kill a sync compares, and is no cut.
    world.crash(0, false, SECOND);
    world.restore_path();
    world.until("a part is overwritten", |world| world.images_of(1) != before);
    let id = world.write(0, 0, 4 * KIB);
    assert!(world.answer(id).0);
    world.until("the peer has it", |world| world.images_of(1)[0][..4 << 10] == world.images_of(0)[0][..4 << 10]);
    world.cut([false; 2]);
    let flush = world.flush(0);
    assert!(world.answer(flush).0);
    world
}

/// Seed 19012831. The peer was to be promoted, and found its way back damaged when it had gone a part of it: what it had
/// received is not to be had there any more.
#[test]
fn nothing_is_fetched_from_a_mixture() {
    let mut world = mid_sync();
    let held = world.images_of(0);
    world.nodes[1].disks.get_mut(&Store::Undo(GROUP)).expect("every store has a disk").rot_all();
    let refused = world.refused(1, Command::Promote { force: true, entropy: 7 });
    assert!(refused.contains("a mixture"), "{refused}");
    assert_ne!(world.images_of(1)[0][..4 << 10], held[0][..4 << 10], "that went back");
    world.crash(0, true, SECOND);
    world.restore_path();
    world.until("its export is open", |world| world.nodes[0].serving.contains(&GROUP));
    assert!(world.images_of(0) == held, "a flush was acknowledged for all of it");
    world.settle();
}

/// A device that fails a flush may have dropped what it was to make durable, and reads go on as if nothing were wrong. The machine
/// does not restart; the next start of the daemon treats it as a power loss all the same.
#[test]
fn what_a_failed_flush_lost_and_the_peer_confirmed_is_fetched_by_the_next_start() {
    let mut world = unflushed();
    let confirmed = world.images_of(1);
    world.nodes[0].trouble.fail_next_flush = true;
    let flush = world.flush(0);
    assert!(!world.answer(flush).0, "it is no flush");
    let write = world.write(1, 0, 4 * KIB);
    assert!(!world.answer(write).0, "nothing is acknowledged any more");
    assert!(matches!(world.glance(0, GROUP).map(|g| g.state), Some(State::Failed(_))));
    assert_ne!(world.images_of(0), confirmed, "something was lost");
    world.pass(20 * MILLISECOND);
    world.crash(0, false, SECOND);
    world.until("its export is open", |world| world.nodes[0].serving.contains(&GROUP));
    assert_eq!(world.mark(0, Mark::TailPulled), 1);
    assert!(world.images_of(0) == confirmed, "all that the peer had is here again");
    world.settle();
}
