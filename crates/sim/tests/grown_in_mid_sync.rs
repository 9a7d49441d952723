//! What happened: a group's volumes ended in the middle of a block, which a sync had saved and overwritten on the secondary when
//! they were enlarged on both nodes. The sync sent that block again, so the rest of it was saved as well: a range that begins in the
//! middle of a block. The next start took no such range: it called the undo store damaged, or went back without all
//! that was saved from there on.
// proves: P2, rule 21

use std::rc::Rc;

use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult, Store};
use sim::nodes::disk::SimDisk;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, ScenarioWorld, options};

const NEAR: usize = 0;
const FAR: usize = 1;

/// The last block has one sector.
const OLD_BYTES: u64 = MIB - 28 * KIB + 512;
const GROWN_BYTES: u64 = 2 * MIB;

/// A pair in step, then a sync that has overwritten the last block of the copy; the images of the copy before it.
fn mid_sync() -> (ScenarioWorld, Vec<Vec<u8>>) {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        volume_bytes: OLD_BYTES,
        bytes_per_s: 1_000_000,
        ..options(Mode::Async, Policy::Degrade)
    });
    for n in 0..20 {
        world.write_done(n % 2, u64::from(n) * 44 * KIB, 12 * KIB);
    }
    world.drain();
    let before = world.images_of(FAR);
    assert!(matches!(world.order(NEAR, Command::Logging), CommandResult::Done(_)));
    world.write_done(0, OLD_BYTES - 512, 512);
    for n in 0..14 {
        world.write_done(1, n * 64 * KIB, 36 * KIB);
    }
    assert!(matches!(world.order(NEAR, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("the last block is overwritten", |world| world.images_of(FAR)[0] != before[0]);
    (world, before)
}

fn grow(world: &mut ScenarioWorld) {
    world.cluster.options = Rc::new(SimOptions { volume_bytes: GROWN_BYTES, ..(*world.cluster.options).clone() });
    for (node, filling) in [(NEAR, 0x77), (FAR, 0)] {
        for (store, disk) in world.cluster[node].storage.disks_mut() {
            if matches!(store, Store::Volume(..)) {
                let mut content = disk.view().to_vec();
                content.resize(GROWN_BYTES as usize, filling);
                *disk = SimDisk::new(content);
            }
        }
    }
}

/// A batch of the undo store names the rest of the block in which the volumes ended.
fn saved_the_rest(world: &ScenarioWorld) -> bool {
    let store = world.cluster[FAR].disk(Store::Undo(GROUP)).view();
    store.chunks(8).any(|word| word == OLD_BYTES.to_le_bytes())
}

/// So many batches are counted by a record.
fn counted(world: &ScenarioWorld) -> u64 {
    world.recorded(FAR).rollback_point.batches
}

/// The same on volumes that grew meanwhile. The secondary dies so long after it saved the rest of the last block, and
/// starts without its primary. Whether a record counted what it saved; the images before the sync.
fn grown_and_back(dies_after_ns: u64) -> (ScenarioWorld, bool, Vec<Vec<u8>>) {
    let (mut world, before) = mid_sync();
    let name = world.figures(FAR).rollback_point.expect("taken").name;
    world.crash(FAR, false, FOR_EVER);
    world.crash(NEAR, false, FOR_EVER);
    grow(&mut world);
    world.boot(NEAR);
    world.boot(FAR);
    world.until("the rest of the block is saved", saved_the_rest);
    let seen = counted(&world);
    world.pass(dies_after_ns);
    assert!(world.glance(FAR, GROUP).expect("up").identity.inconsistent, "still in mid-sync");
    world.crash(FAR, false, FOR_EVER);
    let is_counted = counted(&world) > seen;
    world.cut([false; 2]);
    world.boot(FAR);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|glance| glance.running));
    assert_eq!(world.figures(FAR).rollback_point.map(|point| point.name), Some(name));
    (world, is_counted, before)
}

/// What a record counts is whole, and so is the point.
#[test]
fn a_volume_that_grows_in_mid_sync_keeps_the_rollback_point() {
    let (world, is_counted, _) = grown_and_back(300 * MILLISECOND);
    assert!(is_counted);
    assert_eq!(world.figures(FAR).rollback_point.expect("kept").damaged, None);
    assert!(world.figures(FAR).promotable.is_some());
}

/// Whether a record counts what was saved or not: going back gives the image as it was.
#[test]
fn a_volume_that_grows_in_mid_sync_goes_back_to_the_image_before_it() {
    let mut met = [0; 2];
    for dies_after in (15..=285).step_by(15) {
        let (mut world, is_counted, before) = grown_and_back(dies_after * MILLISECOND);
        met[usize::from(is_counted)] += 1;
        let promoted = world.promote(FAR, true);
        assert!(matches!(promoted, CommandResult::Warning(_)), "{dies_after} ms: {promoted:?}");
        let after = world.images_of(FAR);
        let same = before.iter().zip(&after).all(|(before, after)| after.starts_with(before));
        assert!(same, "{dies_after} ms");
    }
    assert!(met.iter().all(|times| *times > 3), "{met:?}");
}
