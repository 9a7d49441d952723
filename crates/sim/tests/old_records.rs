//! A secondary comes back from an old copy: its records, in which it still has differences of its own from when it was primary;
//! or its whole machine, while the primary, which heard what it had confirmed since, was away too.

use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, Input, Store};
use sim::checkers::facts::KnownFact;
use sim::scenarios::{GROUP, SECOND, ScenarioWorld, options};

// proves: P3
#[test]
fn differences_of_its_own_do_not_hide_that_a_secondary_went_back() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    world.write(0, 0, 64 * KIB);
    world.pass(SECOND);
    world.promote(1, true);
    world.order(0, Command::Demote);
    world.restore_path();
    let state = |world: &ScenarioWorld| world.glance(1, GROUP).map(|glance| glance.state);
    world.until("they meet", |world| world.figures(1).reason.contains("--full"));
    world.order(1, Command::Sync { full: true });
    world.until("it is overwritten", |world| world.recorded(0).identity.inconsistent);
    while world.recorded(0).identity.inconsistent {
        world.pass(20_000);
    }
    // In that moment its own differences are reconciled, and still stand on disk.
    let records = [Store::Superblock(GROUP), Store::Bitmap(GROUP), Store::Journal(GROUP), Store::Undo(GROUP)];
    let old = snapshot(&world, 0).into_iter().filter(|(store, _)| records.contains(store)).collect();
    world.until("in step", |world| state(world) == Some(State::Replicating));
    world.write_done(1, 128 * KIB, 8 * KIB);
    world.until("it is applied", |world| world.figures(1).volumes.iter().all(|v| v.dirty_bytes == 0));
    comes_back_as(&mut world, 0, old);
    world.until("it is back", |world| world.cluster[0].is_ready(GROUP));
    assert!(world.figures(0).volumes.iter().any(|v| v.dirty_bytes > 0), "it has differences of its own");
    world.until("the contradiction is named", |world| world.figures(1).reason.contains("had confirmed"));
    world.order(1, Command::Sync { full: true });
    world.until("in step again", |world| state(world) == Some(State::Replicating));
    world.drain();
    assert_eq!(world.images_of(0), world.images_of(1));
}

const HERE: usize = 0;
const THERE: usize = 1;

/// How the primary goes away meanwhile.
#[derive(Clone, Copy, Debug)]
enum PrimaryAbsence {
    Stopped,
    Killed,
    LostPower,
}

/// All that a node's disks hold, as a snapshot of the machine finds it.
fn snapshot(world: &ScenarioWorld, node: usize) -> Vec<(Store, Vec<u8>)> {
    world.cluster[node].storage.disks().map(|(store, disk)| (*store, disk.durable().to_vec())).collect()
}

/// A node's power goes, and what it held is what it held before: no checker believes it until it is synced again.
fn comes_back_as(world: &mut ScenarioWorld, node: usize, snapshot: Vec<(Store, Vec<u8>)>) {
    world.crash(node, true, 3 * SECOND);
    for (store, content) in snapshot {
        world.cluster[node].disk_mut(store).restore(content);
    }
    world.checkers.wire.forget(GROUP, node);
    world.checkers.facts.add(KnownFact::Spoiled(GROUP, node));
    world.cluster.ledger.gives_up(GROUP, node);
}

/// Nothing is under way, nothing differs, and no bit of it is left on disk.
fn rest(world: &mut ScenarioWorld) {
    world.drain();
    world.until("every bit is clear", |world| world.figures(HERE).volumes.iter().all(|v| v.dirty_bytes == 0));
    world.pass(20 * SECOND);
}

/// Writes to more extents than the activity log holds: it names none of those from before.
fn forget_what_was_hot(world: &mut ScenarioWorld) {
    for offset in (256..1024).step_by(256) {
        world.write(0, offset * KIB, 8 * KIB);
        rest(world);
    }
    for offset in (0..1024).step_by(256) {
        world.write(1, offset * KIB, 8 * KIB);
        rest(world);
    }
}

fn goes_away(world: &mut ScenarioWorld, how: PrimaryAbsence) {
    match how {
        PrimaryAbsence::Stopped => {
            world.input(HERE, Input::Stop);
            world.until("it has stopped", |world| !world.cluster[HERE].up());
        }
        PrimaryAbsence::Killed => world.crash(HERE, false, SECOND),
        PrimaryAbsence::LostPower => world.crash(HERE, true, SECOND),
    }
}

// proves: P3
/// What the peer confirmed is on record, not only in memory. A primary that restarts, too, notices a secondary restored from an old copy;
/// otherwise what was written between would differ, and no bit would say so.
#[test]
fn a_primary_that_restarted_still_knows_what_a_restored_secondary_had_confirmed() {
    for how in [PrimaryAbsence::Stopped, PrimaryAbsence::Killed, PrimaryAbsence::LostPower] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.write(0, 0, 64 * KIB);
        rest(&mut world);
        let old = snapshot(&world, THERE);
        world.write(0, 0, 64 * KIB);
        rest(&mut world);
        forget_what_was_hot(&mut world);

        comes_back_as(&mut world, THERE, old);
        goes_away(&mut world, how);
        world.until("the contradiction is named", |world| {
            world.cluster[HERE].up() && world.figures(HERE).reason.contains("had confirmed")
        });
        world.order(HERE, Command::Sync { full: true });
        world.drain();
    }
}

// proves: P1
/// The primary loses its power, and the peer, which had confirmed what was lost with it, comes back from an old copy: that is seen, and
/// no time that passes brings the writes back. So the operator is asked, as where a peer says that it does not know any more.
#[test]
fn a_primary_that_lost_its_power_asks_its_operator_when_its_peer_has_gone_back() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.write(0, 0, 64 * KIB);
    rest(&mut world);
    let old = snapshot(&world, THERE);
    world.write(0, 0, 64 * KIB);
    rest(&mut world);
    forget_what_was_hot(&mut world);
    world.write_done(1, 512 * KIB, 16 * KIB);
    world.pass(SECOND / 5);
    let confirmed = world.images_of(THERE);

    world.crash(HERE, true, 5 * SECOND);
    assert!(world.images_of(HERE) != confirmed, "something was lost");
    comes_back_as(&mut world, THERE, old);
    let serves = |world: &ScenarioWorld| world.cluster[HERE].serves(GROUP);
    world.until("the contradiction is seen", |world| {
        world.cluster[HERE].up() && world.figures(HERE).reason.contains("had confirmed") || serves(world)
    });
    // Longer than `start_alone`, and through a restart.
    world.pass(60 * SECOND);
    assert!(!serves(&world), "it opened by itself");
    goes_away(&mut world, PrimaryAbsence::Killed);
    world.pass(60 * SECOND);
    assert!(!serves(&world), "it opened by itself");
    let reason = world.figures(HERE).reason;
    assert!(reason.contains("'farshore sync GROUP --full' here keeps this node's content"), "{reason}");
    assert!(matches!(world.order(HERE, Command::Sync { full: true }), engine::CommandResult::Done(_)));
    world.until("its export is open", serves);
    world.drain();
}
