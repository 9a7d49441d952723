//! What happened: the secondary's devices were larger than the primary's. After a switchover the new primary had a larger volume than
//! its secondary, so nothing could be sent, for ever; and what its export showed had another size than before.
//!
//! How large a volume is, is the group's business, on whichever node is primary; the rest of a device is not used.
// proves: rule 21

use std::rc::Rc;

use engine::limits::{KIB, MIB};
use engine::state::{Broken, Mode, Pause, Policy, State};
use engine::{Command, CommandResult, Store, VolumeId};
use sim::nodes::disk::SimDisk;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const NEAR: usize = 0;
const FAR: usize = 1;
const SMALL: u64 = MIB;
const LARGE: u64 = 2 * MIB;

/// The node goes down, and comes back with devices of this size.
fn boots_with(world: &mut ScenarioWorld, node: usize, bytes: u64) {
    world.crash(node, false, FOR_EVER);
    enlarge(world, node, bytes);
}

fn enlarge(world: &mut ScenarioWorld, node: usize, bytes: u64) {
    put_devices(world, node, bytes);
    boot(world, node, bytes);
}

fn put_devices(world: &mut ScenarioWorld, node: usize, bytes: u64) {
    for (store, disk) in world.cluster[node].storage.disks_mut() {
        if matches!(store, Store::Volume(..)) {
            let mut content = disk.view().to_vec();
            // No zeroes: whoever takes it for content is found out.
            content.resize(bytes as usize, 0xee);
            *disk = SimDisk::new(content);
        }
    }
}

fn boot(world: &mut ScenarioWorld, node: usize, bytes: u64) {
    let before = world.cluster.options.clone();
    world.cluster.options = Rc::new(SimOptions { volume_bytes: bytes, ..(*before).clone() });
    world.boot(node);
    world.cluster.options = before;
    world.until("it runs", |world| world.glance(node, GROUP).is_some_and(|glance| glance.running));
}

/// What the export of a node has, or would have.
fn export_bytes(world: &ScenarioWorld, node: usize) -> Vec<u64> {
    let engine = world.cluster[node].engine().expect("the node is up");
    let bytes = |volume| engine.volume_bytes(GROUP, VolumeId(volume)).expect("a volume");
    (0..world.cluster.options.volumes).map(bytes).collect()
}

fn has_size(world: &ScenarioWorld, node: usize, bytes: u64) -> bool {
    export_bytes(world, node).into_iter().all(|of_one| of_one == bytes)
}

/// A pair whose secondary has twice the room, in step.
fn pair() -> ScenarioWorld {
    pair_with(options(Mode::Async, Policy::Degrade))
}

fn pair_with(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::new(options);
    world.pass(SECOND);
    boots_with(&mut world, FAR, LARGE);
    world.pass(SECOND);
    assert!(matches!(world.order(NEAR, Command::Sync { full: true }), CommandResult::Done(_)));
    for n in 0..8 {
        world.write_done(n % world.cluster.options.volumes, u64::from(n) * 64 * KIB, 12 * KIB);
    }
    world.drain();
    world
}

fn clean(world: &ScenarioWorld) -> bool {
    [NEAR, FAR].iter().all(|node| world.figures(*node).volumes.iter().all(|volume| volume.dirty_bytes == 0))
}

fn switch_over(world: &mut ScenarioWorld, from: usize, to: usize) {
    world.until("every bit is cleared", clean);
    let demoted = world.order(from, Command::Demote);
    assert!(matches!(demoted, CommandResult::Done(_)), "{demoted:?}");
    world.pass(SECOND);
    let promoted = world.promote(to, false);
    assert!(matches!(promoted, CommandResult::Done(_)), "{promoted:?}");
}

#[test]
fn a_switchover_to_larger_devices_and_back_goes_on() {
    let mut world = pair();
    switch_over(&mut world, NEAR, FAR);
    world.drain();
    assert_eq!(export_bytes(&world, FAR), [SMALL; 2]);
    let volume = world.figures(FAR).volumes[0];
    assert_eq!((volume.size_bytes, volume.device_bytes), (SMALL, LARGE));
    // Also after a run that ended uncleanly, and from the last block.
    world.write_done(1, SMALL - 4 * KIB, 4 * KIB);
    world.crash(FAR, false, FOR_EVER);
    boot(&mut world, FAR, LARGE);
    assert_eq!(export_bytes(&world, FAR), [SMALL; 2]);
    world.drain();
    switch_over(&mut world, FAR, NEAR);
    world.drain();
    assert_eq!(export_bytes(&world, NEAR), [SMALL; 2]);
    let beyond = &world.images_of(FAR)[0][SMALL as usize..];
    assert!(beyond.iter().all(|byte| *byte == 0xee), "nobody writes what is not the group's");
}

#[test]
fn a_failover_to_larger_devices_keeps_the_size() {
    let mut world = pair();
    world.crash(NEAR, false, FOR_EVER);
    world.crash(FAR, false, FOR_EVER);
    boot(&mut world, FAR, LARGE);
    assert!(matches!(world.promote(FAR, true), CommandResult::Warning(_)));
    assert_eq!(export_bytes(&world, FAR), [SMALL; 2]);
    boot(&mut world, NEAR, SMALL);
    world.pass(SECOND);
    world.order(NEAR, Command::Demote);
    world.pass(SECOND);
    assert!(matches!(world.order(FAR, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
    assert_eq!(export_bytes(&world, FAR), [SMALL; 2]);
}

/// What the operator enlarges on a primary counts at its next start, and the secondary follows.
#[test]
fn a_primary_that_grew_takes_its_secondary_along() {
    let mut world = pair();
    boots_with(&mut world, NEAR, LARGE);
    assert!(has_size(&world, NEAR, LARGE) && has_size(&world, FAR, SMALL));
    world.drain();
    assert_eq!(export_bytes(&world, FAR), [LARGE; 2]);
    let (near, far) = (world.images_of(NEAR), world.images_of(FAR));
    assert_eq!(near, far);
}

/// Enlarged as a secondary: the switchover uses what both have, and compares it.
#[test]
fn what_both_have_is_used_after_the_next_switchover() {
    let mut world = pair();
    switch_over(&mut world, NEAR, FAR);
    world.drain();
    boots_with(&mut world, NEAR, LARGE);
    world.drain();
    assert_eq!([NEAR, FAR].map(|node| export_bytes(&world, node)), [[SMALL; 2]; 2]);
    switch_over(&mut world, FAR, NEAR);
    world.drain();
    assert_eq!([NEAR, FAR].map(|node| export_bytes(&world, node)), [[LARGE; 2]; 2]);
    assert_eq!(world.images_of(NEAR), world.images_of(FAR));
}

/// A copy that is smaller is refused, with the reason on both nodes.
#[test]
fn a_secondary_that_is_smaller_is_refused_on_both_nodes() {
    let mut world = ScenarioWorld::new(options(Mode::Async, Policy::Degrade));
    world.pass(SECOND);
    boots_with(&mut world, NEAR, LARGE);
    world.pass(SECOND);
    let refused = world.refused(NEAR, Command::Sync { full: true });
    for said in [refused, world.figures(NEAR).reason, world.figures(FAR).reason] {
        assert!(said.contains("1 MiB (1048576 bytes) and 2 MiB (2097152 bytes)"), "{said}");
    }
}

/// A start that is killed in its midst, whenever that is: the next one finds what the operator enlarged all the same.
#[test]
fn a_primary_that_grew_is_found_so_by_the_next_start_too() {
    for killed_after in 8..32 {
        let mut world = pair();
        world.crash(NEAR, false, FOR_EVER);
        let before = world.cluster.options.clone();
        world.cluster.options = Rc::new(SimOptions { volume_bytes: LARGE, ..(*before).clone() });
        put_devices(&mut world, NEAR, LARGE);
        world.boot(NEAR);
        world.pass(killed_after * 50_000);
        world.cluster.options = before;
        world.crash(NEAR, false, FOR_EVER);
        boot(&mut world, NEAR, LARGE);
        assert_eq!(export_bytes(&world, NEAR), [LARGE; 2], "killed after {killed_after} times 50 us");
    }
}

/// The copy was larger than the primary whose sync it takes up. Its end has landed, and the primary is gone before it counts. True:
/// the copy is whole.
fn in_a_sync_from_a_smaller_primary(by_snapshots: bool) -> ScenarioWorld {
    let (volumes, bytes_per_s, queue_bytes) = (if by_snapshots { 2 } else { 1 }, 2_000_000, 8 * MIB);
    let mut world =
        pair_with(SimOptions { volumes, bytes_per_s, queue_bytes, ..options(Mode::Async, Policy::Degrade) });
    world.crash(NEAR, false, FOR_EVER);
    assert!(matches!(world.promote(FAR, true), CommandResult::Warning(_)));
    boots_with(&mut world, FAR, LARGE + MIB);
    assert!(has_size(&world, FAR, LARGE + MIB));
    // It was a mistake: what the other one has counts.
    boot(&mut world, NEAR, SMALL);
    world.pass(SECOND);
    for node in [NEAR, FAR] {
        world.order(node, Command::Demote);
    }
    assert!(matches!(world.promote(NEAR, true), CommandResult::Warning(_)));
    world.pass(SECOND);
    assert!(matches!(world.order(NEAR, Command::Sync { full: true }), CommandResult::Done(_)));
    world.until("most of it is there", |world| world.figures(NEAR).sync.is_some_and(|sync| sync.done_bytes > MIB / 2));
    if !by_snapshots {
        // Over a link that was not measured yet so little goes in the stream.
        world.crash(NEAR, false, FOR_EVER);
        boot(&mut world, NEAR, SMALL);
        world.until("the rest is on its way", |world| world.figures(NEAR).sync.is_some());
    }
    world
}

fn takes_up_a_smaller_primary(by_snapshots: bool, after_ns: u64) -> (ScenarioWorld, bool) {
    let mut world = in_a_sync_from_a_smaller_primary(by_snapshots);
    world.cluster[FAR].storage.trouble.flush_ns = 100 * MILLISECOND;
    world.pass(after_ns);
    world.crash(NEAR, false, FOR_EVER);
    world.cluster[FAR].storage.trouble.flush_ns = 0;
    world.pass(SECOND);
    let is_whole = !world.glance(FAR, GROUP).expect("up").identity.inconsistent;
    (world, is_whole)
}

/// Or the next switchover would have a primary that its secondary is too small for.
#[test]
fn a_copy_whose_sync_ends_without_its_primary_has_its_sizes() {
    for (by_snapshots, after) in
        [false, true].into_iter().flat_map(|by_snapshots| (0..25).map(move |n| (by_snapshots, n)))
    {
        let (world, is_whole) = takes_up_a_smaller_primary(by_snapshots, after * 20 * MILLISECOND);
        assert!(!is_whole || has_size(&world, FAR, SMALL), "by snapshots {by_snapshots}, {after}");
        assert!(is_whole || after < 22, "it has ended by then");
    }
}

// proves: rule 9
/// The copy becomes as large as its primary: room for what it overwrites is reserved with that, before the first of it is (rule 9).
#[test]
fn a_sync_to_a_copy_that_grows_begins_with_room_for_all_of_it() {
    let mut world = pair_with(SimOptions { history_bytes: 3 * MIB, ..options(Mode::Async, Policy::Degrade) });
    world.cut([false; 2]);
    boots_with(&mut world, NEAR, LARGE);
    let before = world.images_of(FAR);
    world.set(GROUP, |settings| settings.autosync = false);
    world.restore_path();
    world.pass(SECOND);
    assert!(matches!(world.order(NEAR, Command::SendAll), CommandResult::Done(_)));
    world.until("it waits for room", |world| world.figures(FAR).state == State::Paused(Pause::HistoryFull));
    assert!(world.images_of(FAR) == before, "nothing was overwritten");
}

/// Space was moved from one device to another: a volume that needs more cells of the bitmap has those of the others looked for elsewhere,
/// and what they say of the sizes is not found.
#[test]
fn a_volume_that_shrank_is_refused_also_if_its_bits_are_not_found() {
    for node in [NEAR, FAR] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.pass(10 * SECOND);
        world.crash(node, false, FOR_EVER);
        let bitmap = world.cluster[node].disk_mut(Store::Bitmap(GROUP));
        *bitmap = SimDisk::new(vec![0; bitmap.view().len()]);
        put_devices(&mut world, node, SMALL / 2);
        let before = world.recorded(node);
        boot(&mut world, node, SMALL / 2);
        let figures = world.figures(node);
        assert_eq!(figures.state, State::Failed(Broken::VolumeShrank), "{}", figures.reason);
        assert!(figures.reason.contains("524288") && figures.reason.contains("1048576"), "{}", figures.reason);
        assert_eq!(world.recorded(node), before, "nothing is recorded");
    }
}

/// As above, but it is the copy that is killed, before and after the end counts; its primary never comes back.
#[test]
fn a_copy_that_is_killed_at_the_end_of_its_sync_has_the_sizes_of_its_primary_or_is_none() {
    let mut whole = 0;
    for n in 0..30 {
        let mut world = in_a_sync_from_a_smaller_primary(false);
        world.cluster[FAR].storage.trouble.flush_ns = 100 * MILLISECOND;
        world.pass(n * 25 * MILLISECOND);
        world.crash(NEAR, false, FOR_EVER);
        world.crash(FAR, false, FOR_EVER);
        world.cluster[FAR].storage.trouble.flush_ns = 0;
        boot(&mut world, FAR, LARGE + MIB);
        let is_whole = !world.glance(FAR, GROUP).expect("up").identity.inconsistent;
        whole += u32::from(is_whole);
        assert!(!is_whole || has_size(&world, FAR, SMALL), "{n}");
    }
    assert!((1..30).contains(&whole), "{whole}");
}
