//! Volumes of more regions than one word, one cell of the bitmap and one frame of dirty bits hold.

use std::rc::Rc;
use std::sync::Arc;

use engine::ActivityConfig;
use engine::coverage::CoveragePoint;
use engine::limits::{GIB, KIB, MIB, REGION_BYTES};
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult, Store, VolumeId};
use sim::nodes::disk::SimDisk;
use sim::options::SimOptions;
use sim::options::spread::WriteSpread;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const NEAR: usize = 0;
const FAR: usize = 1;

/// A pair in step with volumes of that size; of each, clients know half a MiB from every one of these places on.
fn in_step(size: u64, offsets: &[u64], bytes_per_s: u64) -> ScenarioWorld {
    let spans = offsets.iter().map(|offset| *offset..(*offset + 512 * KIB).min(size)).collect();
    let mut world = ScenarioWorld::new(SimOptions {
        volume_bytes: size,
        spread: Some(Arc::new(WriteSpread::new(spans))),
        bytes_per_s,
        history_bytes: 64 * MIB,
        activity: ActivityConfig { extent_bytes: 4 * MIB, extents: 4 },
        ..options(Mode::Async, Policy::Degrade)
    });
    world.drain();
    world
}

// proves: P3, rule 6
/// The copy is overwritten by a sync, its primary is lost, and a promotion that its own power cuts short has it go back: its
/// bits tell what it undid, past the 8 GiB that one frame of them tells of, and are joined.
#[test]
fn what_a_copy_undid_past_8_gib_is_sent_again() {
    let mut world = in_step(9 * GIB + 512, &[0, 8 * GIB + 96 * MIB], 400_000);
    let write_all = |world: &mut ScenarioWorld| {
        for n in 0..14 {
            world.write_done(n % 2, 512 * KIB + u64::from(n) * 32 * KIB, 32 * KIB);
        }
    };
    write_all(&mut world);
    world.drain();
    let before = world.images_of(FAR);
    assert!(matches!(world.order(NEAR, Command::Logging), CommandResult::Done(_)));
    write_all(&mut world);
    assert!(matches!(world.order(NEAR, Command::Sync { full: false }), CommandResult::Done(_)));
    let used = |world: &ScenarioWorld| world.figures(FAR).rollback_point.map_or(0, |point| point.used_bytes);
    world.until("a part is overwritten", |world| world.images_of(FAR) != before && used(world) > 200 * KIB);
    world.cut([false; 2]);
    let entropy = world.rng.draw();
    world.command(FAR, GROUP, Command::Promote { force: true, entropy });
    let writes_back =
        |world: &ScenarioWorld| world.cluster[FAR].explain(GROUP).map(|inside| inside.contains("WriteBack"));
    while writes_back(&world) != Some(true) {
        world.pass(50_000);
    }
    world.crash(FAR, true, MILLISECOND);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running));
    assert_eq!(world.images_of(FAR), before);
    assert!(world.figures(FAR).volumes.iter().any(|volume| volume.dirty_bytes > 0), "bits tell what was undone");
    world.restore_path();
    world.pass(SECOND);
    world.order(NEAR, Command::Sync { full: false });
    world.drain();
    assert!(world.coverage(NEAR, CoveragePoint::BitsJoined) > 0);
}

// proves: P3, rule 2
/// The largest that seeds draw: what was being written on both its ends when the power failed is compared, and nothing else.
#[test]
fn of_16_tib_hot_extents_alone_are_compared() {
    let size = 16 * 1024 * GIB - 3 * 512;
    let mut world = in_step(size, &[0, 1024 * GIB, size - size % MIB], 12_500_000);
    let image = world.cluster.options.image_bytes();
    for offset in [0, 512 * KIB, image - 512] {
        world.write_done(0, offset, 512);
    }
    world.crash(NEAR, true, MILLISECOND);
    world.drain();
    let compared = world.figures(NEAR).compared_bytes;
    assert!((8 * MIB..=12 * MIB).contains(&compared), "{compared} bytes were compared");
    println!("the most memory that this process had: {}", peak());
}

/// What the system says, as words.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or("unknown".to_owned(), |words| words.trim().to_owned())
}

/// The operator enlarges both devices of each node of a pair that was stopped. The bits of the first volume take more room in their file
/// then, and those of the second stand elsewhere.
fn enlarged(before: u64, after: u64) -> ScenarioWorld {
    let mut world = in_step(before, &[0, before - 512 * KIB], 12_500_000);
    world.cut([false; 2]);
    world.write_done(1, 512 * KIB, 4 * KIB);
    world.stop(NEAR);
    world.stop(FAR);
    world.restore_path();
    enlarge(&mut world, after);
    world
}

fn enlarge(world: &mut ScenarioWorld, after: u64) {
    world.cluster.options = Rc::new(SimOptions { volume_bytes: after, ..(*world.cluster.options).clone() });
    for node in [NEAR, FAR] {
        let bits = world.cluster[node].disk_mut(Store::Bitmap(GROUP));
        let mut file = bits.view().to_vec();
        file.resize(engine::bitmap_file_bytes([after; 2].into_iter()) as usize, 0);
        *bits = SimDisk::new(file);
    }
}

fn both_grew(world: &ScenarioWorld, after: u64, nodes: &[usize]) {
    for node in nodes {
        let engine = world.cluster[*node].engine().expect("up");
        let sizes = [0, 1].map(|volume| engine.volume_bytes(GROUP, VolumeId(volume)));
        assert_eq!(sizes, [Some(after); 2], "node {node}");
        assert_eq!(world.coverage(*node, CoveragePoint::BitmapCellLost), 0, "node {node}: no cell is damaged");
    }
}

/// What is new, and what was written.
fn knows_what_differs(world: &ScenarioWorld, before: u64, after: u64) {
    let [one, other] = [0, 1].map(|at| world.figures(NEAR).volumes[at].dirty_bytes);
    let new = (after - before).next_multiple_of(REGION_BYTES);
    assert!(one <= new && (new + 1..=new + REGION_BYTES).contains(&other), "{one} {other}");
}

// proves: rule 21
#[test]
fn every_volume_of_a_group_grows_also_when_the_bits_of_one_move_those_of_the_next() {
    for (before, after) in [(900 * MIB, 3 * GIB), (3 * GIB, 5 * GIB)] {
        let mut world = enlarged(before, after);
        world.boot(NEAR);
        world.until("it runs", |world| world.glance(NEAR, GROUP).is_some_and(|glance| glance.running));
        both_grew(&world, after, &[NEAR]);
        knows_what_differs(&world, before, after);
        world.boot(FAR);
        world.until("the secondary follows", |world| world.in_step());
        both_grew(&world, after, &[NEAR, FAR]);
        world.drain();
    }
}

// proves: P3
/// A start that is killed in its midst, whenever that is: the next one finds all of it all the same, also when its devices are larger still.
#[test]
fn bits_that_move_are_found_by_the_start_after_one_that_was_killed() {
    let (before, after) = (3 * GIB, 5 * GIB);
    for killed_after in 4..32 {
        let mut world = enlarged(before, after);
        world.boot(NEAR);
        world.pass(killed_after * 100_000);
        world.crash(NEAR, false, FOR_EVER);
        let after = after + killed_after % 3 * GIB;
        enlarge(&mut world, after);
        world.boot(NEAR);
        world.until("it runs", |world| world.glance(NEAR, GROUP).is_some_and(|glance| glance.running));
        both_grew(&world, after, &[NEAR]);
        knows_what_differs(&world, before, after);
    }
}

/// Three volumes, and one start after the other that is killed, each with devices that are larger still.
#[test]
fn bits_of_three_volumes_are_found_however_often_a_start_is_killed() {
    for seed in 0..24u64 {
        let mut size = [GIB, 3 * GIB, 2 * GIB][seed as usize % 3];
        let before = size;
        let mut world = ScenarioWorld::new(SimOptions {
            volumes: 3,
            volume_bytes: size,
            spread: Some(Arc::new(WriteSpread::new(vec![0..512 * KIB, size - 512 * KIB..size]))),
            bytes_per_s: 12_500_000,
            history_bytes: 64 * MIB,
            activity: ActivityConfig { extent_bytes: 4 * MIB, extents: 4 },
            ..options(Mode::Async, Policy::Degrade)
        });
        world.drain();
        world.cut([false; 2]);
        let ids = [world.write(1, 512 * KIB, 4 * KIB), world.write(2, 600 * KIB, 4 * KIB)];
        ids.into_iter().for_each(|id| assert!(world.answer(id).0));
        if seed % 2 == 0 {
            world.stop(NEAR);
        } else {
            world.crash(NEAR, true, FOR_EVER);
        }
        let grow = |world: &mut ScenarioWorld, after: u64| {
            world.cluster.options = Rc::new(SimOptions { volume_bytes: after, ..(*world.cluster.options).clone() });
            let bits = world.cluster[NEAR].disk_mut(Store::Bitmap(GROUP));
            let mut file = bits.view().to_vec();
            file.resize(engine::bitmap_file_bytes([after; 3].into_iter()) as usize, 0);
            *bits = SimDisk::new(file);
        };
        for start in 0..4 {
            size += [GIB, 0, 2 * GIB, 5 * GIB][(seed as usize + start) % 4];
            grow(&mut world, size);
            world.boot(NEAR);
            world.pass((4 + (seed * 7 + start as u64 * 5) % 30) * 100_000);
            world.crash(NEAR, seed % 3 == 0, FOR_EVER);
        }
        world.boot(NEAR);
        world.until("it runs", |world| world.glance(NEAR, GROUP).is_some_and(|glance| glance.running));
        assert_eq!(world.coverage(NEAR, CoveragePoint::BitmapCellLost), 0, "{seed}");
        let new = (size - before).next_multiple_of(REGION_BYTES);
        let dirty: Vec<u64> = (0..3).map(|at| world.figures(NEAR).volumes[at].dirty_bytes).collect();
        assert!(dirty[1] > new && dirty[2] > new, "{seed}: {dirty:?} {new}");
    }
}
