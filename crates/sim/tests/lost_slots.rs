//! A slot of a record is lost: zeroes stand there, as if it had never been written. However young the record is, what it held is
//! not forgotten.
// proves: P3

use engine::bitmap;
use engine::cell::{self, SLOT_BYTES};
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Input, Store};
use sim::checkers::facts::KnownFact;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};
use sim::stamps::SECTOR;

/// A primary that has gone on alone for so many writes, all to places of their own, since its first sync.
fn alone(writes: u64) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..writes {
        world.write_done((n % 2) as u16, n * 64 * KIB, 4 * KIB);
    }
    world
}

#[test]
fn what_a_young_record_held_is_not_forgotten() {
    let slots = |world: &ScenarioWorld, store| world.cluster[0].disk(store).size() as u64 / SLOT_BYTES;
    let mut struck = 0;
    for writes in 0..10 {
        for store in [Store::Bitmap(GROUP), Store::Activity(GROUP)] {
            for slot in 0..slots(&alone(0), store) {
                let mut world = alone(writes);
                world.crash(0, true, SECOND);
                let disk = world.cluster[0].disk_mut(store);
                let at = (slot * SLOT_BYTES) as usize;
                let zeroes = vec![0; SLOT_BYTES as usize];
                struck += u32::from(disk.durable()[at..at + zeroes.len()] != zeroes);
                disk.goes_astray(at, &zeroes);
                world.pass(10 * SECOND);
                let answer = world.order(0, Command::Sync { full: false });
                assert!(matches!(answer, CommandResult::Done(_)), "{writes}, {store:?}, {slot}: {answer:?}");
                world.drain();
            }
        }
    }
    assert!(struck > 20, "{struck}");
}

fn stop(world: &mut ScenarioWorld) {
    world.input(0, Input::Stop);
    world.until("it has stopped", |world| !world.cluster[0].up());
}

// proves: P9
/// Seed 29001443. The start that finds it writes the slot anew; it loses its power over that, and the next one finds a torn slot
/// beside an older one. What stands there is plain data, or a whole block of another group's bitmap.
#[test]
fn a_lost_slot_is_not_forgotten_by_a_start_that_is_interrupted() {
    for (foreign, slot, step) in [false, true]
        .into_iter()
        .flat_map(|foreign| (0..2usize).flat_map(move |slot| (0..60u64).map(move |step| (foreign, slot, step))))
    {
        let mut world = alone(3);
        // All that is dirty stands in the bitmap then, and of what came last one slot knows nothing.
        stop(&mut world);
        world.boot(0);
        world.pass(SECOND);
        for n in 3..6 {
            world.write_done(n % 2, u64::from(n) * 64 * KIB, 4 * KIB);
        }
        stop(&mut world);
        let disk = world.cluster[0].disk_mut(Store::Bitmap(GROUP));
        let at = slot * SLOT_BYTES as usize;
        let stands = if foreign {
            of_another_group(&disk.durable()[at..at + cell::BYTES])
        } else {
            vec![0x5a; SLOT_BYTES as usize]
        };
        disk.goes_astray(at, &stands);
        world.boot(0);
        // Another part of it lands.
        (0..step / 20).for_each(|_| _ = world.rng.draw());
        world.pass(step % 20 * MILLISECOND / 20);
        world.crash(0, true, SECOND);
        world.pass(10 * SECOND);
        let answer = world.order(0, Command::Sync { full: false });
        assert!(matches!(answer, CommandResult::Done(_)), "{slot}, {step}: {answer:?}");
        world.drain();
    }
}

/// The same slot as a group of another tag would have written it.
fn of_another_group(copy: &[u8]) -> Vec<u8> {
    let (head, body) = cell::decode(bitmap::KIND, copy).expect("whole");
    cell::encode(bitmap::KIND, &cell::CellHead { tag: head.tag ^ 1, ..head }, &body[..cell::BODY_BYTES])
}

/// Seed 100013. The disk fails a record half-way, and a flush that was under way wants another one: which must not be written
/// over the slot that is whole.
#[test]
fn a_record_that_failed_leaves_the_other_slot_alone() {
    for (second, step) in (0..300).map(|n| (14 + n % 20, n / 20)) {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        // Another half of each record lands.
        (0..100 * step + second).for_each(|_| _ = world.rng.draw());
        // Over blocks that the peer keeps: their flush goes on record.
        for n in 0..4 {
            world.write_done(n % 2, 0, 4 * KIB);
        }
        world.pass(100 * MILLISECOND);
        let near = &mut world.cluster[0].storage.trouble;
        (near.slow_until, near.fail_next_record) = (u64::MAX, true);
        world.flush(0);
        world.pass(second * MILLISECOND);
        world.flush(1);
        let fails = |world: &ScenarioWorld| {
            world.glance(0, GROUP).is_some_and(|glance| matches!(glance.state, State::Failed(_)))
        };
        world.until("the record fails", fails);
        world.pass(step * MILLISECOND);
        world.cluster[0].storage.trouble.slow_until = 0;
        world.crash(0, false, SECOND);
        world.pass(2 * SECOND);
        assert!(world.glance(0, GROUP).is_some() && !fails(&world), "{second}, {step}: no slot is whole");
    }
}

// proves: P9
/// A power loss cuts an update of a bitmap's cell between its two copies: the first is the new one, its twin is whole and two updates
/// old. The start that goes by the first writes the cell anew before anything rests on it; then a copy rots.
#[test]
fn a_twin_that_was_left_old_is_no_twin() {
    let far = 1;
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.write_done(0, 0, 64 * KIB);
    world.drain();
    world.pass(20 * SECOND);
    world.cut([false; 2]);
    assert!(!matches!(world.order(0, Command::Demote), CommandResult::Refused(_)));
    let answer = world.promote(far, true);
    assert!(!matches!(answer, CommandResult::Refused(_)), "{answer:?}");
    world.write_done(1, 512 * KIB, 64 * KIB);
    world.pass(20 * SECOND);
    let store = Store::Bitmap(GROUP);
    // A demotion stores the dirty regions first.
    world.command(far, GROUP, Command::Demote);
    let mut looks = 0;
    while world.cluster[far].disk(store).undecided().is_empty() {
        world.pass(2_000);
        looks += 1;
        assert!(looks < 1_000_000, "nothing was written to the bits");
    }
    let sectors = SLOT_BYTES as usize / SECTOR;
    let disk = world.cluster[far].disk_mut(store);
    disk.will_keep(|sector| sector as usize % sectors < sectors / 2);
    world.crash(far, true, SECOND);
    world.until("it is back", |world| world.glance(far, GROUP).is_some_and(|g| g.running));
    world.until("it serves again", |world| world.serves(GROUP));
    for n in 0..8 {
        world.write_done(n % 2, u64::from(n) * 64 * KIB, 16 * KIB);
    }
    world.pass(20 * SECOND);
    world.checkers.facts.add(KnownFact::Rotten(far, store));
    world.crash(far, false, SECOND);
    let disk = world.cluster[far].disk_mut(store);
    let update = |slot: &usize| {
        let copy = &disk.durable()[slot * SLOT_BYTES as usize..][..cell::BYTES];
        cell::decode(bitmap::KIND, copy).map_or(0, |(head, _)| head.update)
    };
    let newest = [0, 1].into_iter().max_by_key(update).expect("two");
    let at = newest * SLOT_BYTES as usize + SECTOR;
    let mut sector = disk.durable()[at..at + SECTOR].to_vec();
    sector[9] ^= 1;
    disk.goes_astray(at, &sector);
    world.until("it is back", |world| world.glance(far, GROUP).is_some_and(|g| g.running));
    world.restore_path();
    world.pass(5 * SECOND);
    _ = world.order(far, Command::Sync { full: false });
    world.drain();
}
