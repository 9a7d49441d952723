//! An update of the superblock was confirmed as durable and never written, or all of it reads as zeroes. What followed from the update
//! is not forgotten by the next start.

use engine::cell::SLOT_BYTES;
use engine::identity::Role;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Incarnation, Store};
use sim::checkers::facts::KnownFact;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const FAR: usize = 1;
const STORE: Store = Store::Superblock(GROUP);

fn superblock(world: &ScenarioWorld, node: usize) -> Vec<u8> {
    world.cluster[node].disk(STORE).durable().to_vec()
}

/// The node dies, and this slot of its superblock holds what it held `before`.
fn loses(world: &mut ScenarioWorld, node: usize, slot: usize, before: &[u8]) {
    world.checkers.facts.add(KnownFact::Rotten(node, STORE));
    world.crash(node, false, SECOND);
    let at = slot * SLOT_BYTES as usize;
    let disk = world.cluster[node].disk_mut(STORE);
    disk.goes_astray(at, &before[at..at + SLOT_BYTES as usize]);
}

// proves: P6
/// The device confirmed one slot of the demotion's record and never wrote it. The next start still finds the demotion, in the other slot,
/// and does not serve beside the new primary.
#[test]
fn a_demotion_is_not_forgotten() {
    for slot in [0, 1] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
        world.write_done(0, 0, 64 * KIB);
        world.drain();
        world.pass(20 * SECOND);
        let before = superblock(&world, 0);
        assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
        let entropy = world.rng.draw();
        let promotion = world.command(FAR, GROUP, Command::Promote { force: false, entropy });
        // Before the new primary can tell it anything.
        world.cut([false; 2]);
        world.until("it is answered", |world| world.cluster.ledger.result(promotion).is_some());
        assert!(matches!(world.cluster.ledger.result(promotion), Some(CommandResult::Done(_))));
        loses(&mut world, 0, slot, &before);
        world.pass(20 * SECOND);
        assert_eq!(world.glance(0, GROUP).map(|glance| glance.identity.role), Some(Role::Secondary), "slot {slot}");
    }
}

// proves: P1
/// A primary that lost its power fetched what the peer had confirmed, opened and served: the next start does not ask again, and is not
/// given what was overwritten since.
#[test]
fn what_was_reconciled_with_the_peer_is_not_forgotten() {
    for slot in [0, 1] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.set(GROUP, |settings| settings.autosync = false);
        world.pass(20 * SECOND);
        world.write_done(0, 0, 64 * KIB);
        world.pass(SECOND);
        world.crash(0, true, SECOND);
        let mut before = superblock(&world, 0);
        while !world.cluster[0].serves(GROUP) {
            if world.recorded(0).unverified_run != Incarnation(0) {
                before = superblock(&world, 0);
            }
            world.pass(MILLISECOND / 10);
        }
        world.write_done(0, 0, 64 * KIB);
        let flushed = world.flush(0);
        assert!(world.answer(flushed).0);
        let acknowledged = world.images_of(0);
        loses(&mut world, 0, slot, &before);
        world.until("it serves again", |world| world.cluster[0].serves(GROUP));
        assert!(
            world.images_of(0) == acknowledged,
            "slot {slot}: what was flushed is overwritten by what the peer kept (P1)"
        );
    }
}

// proves: P6
/// What clients wrote after a forced promotion is a fork that somebody decides of, however the record of the promotion fares.
#[test]
fn a_promotion_is_not_forgotten() {
    for slot in [0, 1] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.drain();
        world.pass(20 * SECOND);
        world.cut([false; 2]);
        let before = superblock(&world, FAR);
        assert!(matches!(world.promote(FAR, true), CommandResult::Warning(_)));
        world.write_done(0, 0, 64 * KIB);
        let flushed = world.flush(0);
        assert!(world.answer(flushed).0);
        let fork = world.images_of(FAR);
        loses(&mut world, FAR, slot, &before);
        world.restore_path();
        world.pass(30 * SECOND);
        assert_eq!(world.glance(FAR, GROUP).map(|glance| glance.identity.role), Some(Role::Primary), "slot {slot}");
        assert!(world.images_of(FAR) == fork, "slot {slot}: the fork is overwritten, and nobody asked for it (P6)");
    }
}

// proves: P2, P9
/// What a sync has overwritten is no image, whichever record of its begin is lost.
#[test]
fn the_begin_of_a_sync_is_not_forgotten() {
    let mut met = [0; 2];
    for (slot, step) in [0, 1].into_iter().flat_map(|slot| (0..40u64).map(move |step| (slot, step))) {
        let mut world =
            ScenarioWorld::in_peace(SimOptions { bytes_per_s: 1_000_000, ..options(Mode::Async, Policy::Degrade) });
        let writes = |world: &mut ScenarioWorld| {
            for n in 0..32 {
                world.write_done(0, n * 32 * KIB, 32 * KIB);
            }
        };
        writes(&mut world);
        world.drain();
        world.pass(10 * SECOND);
        world.cut([false; 2]);
        writes(&mut world);
        let (image, before) = (world.images_of(FAR), superblock(&world, FAR));
        world.crash(0, false, SECOND);
        world.restore_path();
        world.until("its begin is on record", |world| world.recorded(FAR).identity.inconsistent);
        let begun = world.recorded(FAR).update;
        world.pass(step * 5 * MILLISECOND);
        world.cut([false; 2]);
        if world.recorded(FAR).update > begun + 1 || world.images_of(FAR) == image {
            continue;
        }
        met[slot] += 1;
        loses(&mut world, FAR, slot, &before);
        world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|glance| glance.running));
        let answer = world.promote(FAR, true);
        assert!(
            matches!(answer, CommandResult::Refused(_)) || world.images_of(FAR) == image,
            "slot {slot}, step {step}: {answer:?}, and the volumes are a mixture (P2)"
        );
    }
    assert!(met.iter().all(|met| *met > 0), "never met: {met:?}");
}

/// All that the node wrote in its first run was written before its first sync had ended, or nothing was: its activity log names
/// nothing.
#[test]
fn a_blank_superblock_of_a_first_run_is_no_new_group() {
    for filled in [false, true] {
        let mut world = ScenarioWorld::new(options(Mode::Async, Policy::Degrade));
        world.pass(SECOND);
        if filled {
            world.write_done(0, 0, 64 * KIB);
        }
        assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
        world.drain();
        assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
        assert!(matches!(world.promote(FAR, false), CommandResult::Done(_)));
        world.until("turned round", |world| {
            world.glance(FAR, GROUP).is_some_and(|glance| glance.state == State::Replicating)
        });
        world.write_done(0, 128 * KIB, 64 * KIB);
        world.cut([false; 2]);
        world.checkers.facts.add(KnownFact::Spoiled(GROUP, 0));
        let blank = vec![0; 2 * SLOT_BYTES as usize];
        loses(&mut world, 0, 0, &blank);
        world.cluster[0].disk_mut(STORE).goes_astray(0, &blank);
        world.pass(10 * SECOND);
        assert!(!world.cluster[0].serves(GROUP), "two copies are writable, and nobody forced anything (P6)");
        assert!(world.figures(0).reason.contains("has lived"), "{}", world.figures(0).reason);
    }
}
