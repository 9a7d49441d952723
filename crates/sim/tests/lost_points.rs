//! An update of the superblock was confirmed as durable and never written, as in `lost_records.rs`. A rollback point that is gone is not
//! there again at the next start: what was overwritten since was not saved for it.

use engine::cell::SLOT_BYTES;
use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult, Store};
use sim::checkers::facts::KnownFact;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const NEAR: usize = 0;
const FAR: usize = 1;
const STORE: Store = Store::Superblock(GROUP);

fn superblock(world: &ScenarioWorld) -> Vec<u8> {
    world.cluster[FAR].disk(STORE).durable().to_vec()
}

/// The copy's node dies, and of its superblock the last update was never written.
fn loses_last_update(world: &mut ScenarioWorld, before: &[u8]) {
    let slot = (world.recorded(FAR).update % 2) as usize;
    world.checkers.facts.add(KnownFact::Rotten(FAR, STORE));
    world.crash(FAR, false, SECOND);
    let at = slot * SLOT_BYTES as usize;
    world.cluster[FAR].disk_mut(STORE).goes_astray(at, &before[at..at + SLOT_BYTES as usize]);
    world.crash(NEAR, true, FOR_EVER);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|glance| glance.running));
}

// proves: P2, rule 9
/// The operator gave the point up, and that was reported; what the sync overwrote after that is in no store.
#[test]
fn a_point_that_was_given_up_is_not_gone_back_to() {
    let mut met = 0;
    for step in 0..40 {
        let slow = SimOptions { bytes_per_s: 1_000_000, ..options(Mode::Async, Policy::Degrade) };
        let mut world = ScenarioWorld::in_peace(slow);
        for n in 0..20 {
            world.write_done(n % 2, u64::from(n) * 44 * KIB, 12 * KIB);
        }
        world.drain();
        let image = world.images_of(FAR);
        assert!(matches!(world.order(NEAR, Command::Logging), CommandResult::Done(_)));
        for n in 0..24 {
            world.write_done(n % 2, u64::from(n) * 40 * KIB, 36 * KIB);
        }
        assert!(matches!(world.order(NEAR, Command::Sync { full: false }), CommandResult::Done(_)));
        world.until("a part is overwritten", |world| {
            world.figures(FAR).rollback_point.is_some_and(|point| point.used_bytes > 100 * KIB)
        });
        world.pass(step * 5 * MILLISECOND);
        let Some(point) = world.figures(FAR).rollback_point else { continue };
        let drop = world.command(FAR, GROUP, Command::DropRollbackPoint { name: point.name, discard: false });
        let mut before = superblock(&world);
        while world.cluster.ledger.result(drop).is_none() {
            if world.recorded(FAR).rollback_point.id != 0 {
                before = superblock(&world);
            }
            world.pass(MILLISECOND / 20);
        }
        let (reply, gone) = (world.images_of(FAR), world.recorded(FAR));
        if gone.rollback_point.id != 0 {
            continue;
        }
        // As long as that is its last update.
        let limit = world.now() + 190 * MILLISECOND;
        while world.now() < limit && world.recorded(FAR).update == gone.update {
            if world.images_of(FAR) != reply {
                world.pass(30 * MILLISECOND);
                break;
            }
            world.pass(MILLISECOND);
        }
        if world.recorded(FAR).update != gone.update || world.images_of(FAR) == reply {
            continue;
        }
        met += 1;
        world.cut([false; 2]);
        loses_last_update(&mut world, &before);
        let answer = world.promote(FAR, true);
        assert!(
            matches!(answer, CommandResult::Refused(_)) || world.images_of(FAR) == image,
            "step {step}: {answer:?}, and the volumes are a mixture (P2)"
        );
    }
    assert!(met > 0, "never met");
}

// proves: rule 9
/// An operator gives a point up while another update of the superblock is under way, so that the end of the sync is on record before. The
/// next sync begins once the undo store is empty.
#[test]
fn a_point_given_up_as_its_sync_ends_is_gone_before_the_next_begins() {
    let disk_ns = (MILLISECOND / 20, MILLISECOND / 10);
    let near_by = SimOptions { delay_ns: MILLISECOND / 10, disk_ns, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(near_by);
    world.cluster[FAR].storage.trouble.slow_until = FOR_EVER;
    let mut late = 0;
    let sync = |world: &mut ScenarioWorld, n: u64| {
        world.command(NEAR, GROUP, Command::Logging);
        world.write(0, n % 16 * 32 * KIB, 32 * KIB);
        world.pass(MILLISECOND / 2);
        world.command(NEAR, GROUP, Command::Sync { full: false });
    };
    for n in 0..200u64 {
        world.until("it is in step", ScenarioWorld::in_step);
        sync(&mut world, n);
        world.until("it has begun", |world| world.recorded(FAR).identity.inconsistent);
        world.pass(n * MILLISECOND / 4);
        world.set_mode(GROUP, if n % 2 == 0 { Mode::Nearsync } else { Mode::Async });
        world.pass(MILLISECOND);
        let Some(point) = world.figures(FAR).rollback_point else { continue };
        let drop = world.command(FAR, GROUP, Command::DropRollbackPoint { name: point.name, discard: false });
        while world.recorded(FAR).identity.inconsistent && world.cluster.ledger.result(drop).is_none() {
            world.pass(MILLISECOND / 10);
        }
        if world.cluster.ledger.result(drop).is_none() {
            late += 1;
            sync(&mut world, n + 1);
        }
    }
    world.cluster[FAR].storage.trouble.slow_until = 0;
    assert!(late > 0, "no sync ended before its point was gone");
    world.drain();
}
