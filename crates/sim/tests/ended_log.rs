//! Where the log of the queue ends, and what becomes of one that is written no more but still counts.

use engine::Store;
use engine::cell::CELL_BYTES;
use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Degrade, Mode, State};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, serves};

use crate::durable_queue::{in_step, logged, writes};

const PRIMARY: usize = 0;
const PEER: usize = 1;

fn comes_in_step(world: &mut ScenarioWorld) {
    world.restore_path();
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating && world.in_step());
    world.drain();
}

/// Writers who ask at once fill several large batches, which are under way together: none of four tells of another. The link is down.
fn large_batches() -> (ScenarioWorld, Vec<usize>) {
    let mut world = in_step(SimOptions {
        queue_bytes: 32 * MIB,
        volume_bytes: 8 * MIB,
        history_bytes: 64 * MIB,
        activity: engine::ActivityConfig { extent_bytes: MIB, extents: 64 },
        ..logged(24 * MIB)
    });
    // The cell has counted all that was before.
    world.pass(SECOND);
    world.cut([false; 2]);
    let begins = world.cluster[PRIMARY].disk(Store::Queue(GROUP)).durable().to_vec();
    let asked: Vec<_> = (0..20).map(|n| world.write((n % 2) as u16, n / 2 * 512 * KIB, 512 * KIB)).collect();
    asked.into_iter().for_each(|id| assert!(world.answer(id).0));
    let disk = world.cluster[PRIMARY].disk(Store::Queue(GROUP));
    let is_new = |at: &usize| disk.durable()[*at..][..8] == *b"FSHQUEUB" && begins[*at..][..8] != *b"FSHQUEUB";
    let new = (0..disk.size() - CELL_BYTES as usize).step_by(4096).filter(is_new).collect();
    (world, new)
}

// proves: P3, P9
/// Of batches as large as they get one rots before the cell has counted it, behind others that were under way with it. A later one tells that it was
/// durable, so it is no end of the log: that can befall the last four alone.
#[test]
fn a_large_batch_that_rots_is_no_end_of_the_log() {
    let batches = large_batches().1.len();
    assert!(batches > 8, "{batches}");
    for batch in 0..batches - 4 {
        let (mut world, new) = large_batches();
        world.cluster[PRIMARY].disk_mut(Store::Queue(GROUP)).goes_astray(new[batch], &[7; 4096]);
        world.crash(PRIMARY, false, SECOND);
        world.until("it serves", serves);
        assert_eq!(world.coverage(PRIMARY, CoveragePoint::QueueLogDropped), 1, "batch {batch} of {batches}");
        comes_in_step(&mut world);
    }
}

// proves: P3, rule 1
/// The order is lost with the link, and a local write that the log holds is still under way. It fails, and a clean stop follows: no start goes on
/// from a log of which one number never came to the volume.
#[test]
fn a_write_that_fails_behind_the_end_of_the_order_closes_the_log() {
    for clean in [true, false] {
        let options = SimOptions { modes: vec![Mode::Sync], degrade: Degrade::Logging, ..logged(8 * MIB) };
        let mut world = in_step(options);
        world.pass(SECOND);
        // Into the log soon, and from there to a volume that takes long.
        world.cluster[PRIMARY].storage.trouble.queue_ns = 5 * MILLISECOND;
        let id = world.write(0, 0, 64 * KIB);
        world.pass(MILLISECOND);
        world.cut([false; 2]);
        world.cluster[PRIMARY].storage.trouble.serving_full_until = ALWAYS;
        world.cluster[PRIMARY].storage.trouble.stalled_until = world.now() + 20 * SECOND;
        world.until("the order is lost", |world| world.figures(PRIMARY).state == State::Logging);
        assert_eq!(world.reply(id), None, "it is under way");
        world.cluster[PRIMARY].storage.trouble.stalled_until = 0;
        assert!(!world.answer(id).0, "it failed");
        world.cluster[PRIMARY].storage.trouble.serving_full_until = 0;
        match clean {
            true => world.stop(PRIMARY),
            false => world.crash(PRIMARY, false, SECOND),
        }
        if clean {
            world.boot(PRIMARY);
        }
        world.until("it serves", serves);
        comes_in_step(&mut world);
    }
}

// proves: P8
/// A start cannot flush the log's file: what it would read there may be gone with the next loss of power, so the log does not count. The
/// group serves all the same.
#[test]
fn a_log_that_a_start_cannot_flush_does_not_count() {
    let mut world = in_step(logged(8 * MIB));
    world.cut([false; 2]);
    writes(&mut world, 240);
    world.cluster[PRIMARY].storage.trouble.queue_flush_fails = true;
    world.crash(PRIMARY, false, SECOND);
    world.until("it serves", serves);
    assert_eq!(world.coverage(PRIMARY, CoveragePoint::QueueLogDropped), 1);
    world.cluster[PRIMARY].storage.trouble.queue_flush_fails = false;
    comes_in_step(&mut world);
}

// proves: rule 17
/// The primary goes on from its log, and the peer never answers: the disk of its records hangs. It is given up as a peer that stands still in a
/// sync, and people are told.
#[test]
fn a_peer_that_does_not_take_up_a_run_is_given_up() {
    let mut world = in_step(logged(8 * MIB));
    world.cut([false; 2]);
    writes(&mut world, 240);
    world.crash(PRIMARY, false, SECOND);
    world.until("it serves", serves);
    world.cluster[PEER].storage.trouble.superblock_ns = 200 * SECOND;
    world.restore_path();
    world.until("it is asked", |world| world.figures(PRIMARY).state == State::CatchingUp);
    world.pass(50 * SECOND);
    assert_eq!(world.coverage(PRIMARY, CoveragePoint::SyncStalled), 0);
    world.pass(12 * SECOND);
    assert_eq!(world.coverage(PRIMARY, CoveragePoint::SyncStalled), 1);
    assert_eq!(world.figures(PRIMARY).state, State::Logging);
    assert!(world.figures(PRIMARY).reason.contains("showed no progress"), "{}", world.figures(PRIMARY).reason);
    world.cluster[PEER].storage.trouble.superblock_ns = 0;
    comes_in_step(&mut world);
}
