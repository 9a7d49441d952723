//! The log of a queue that a program of another version wrote.

use engine::Store;
use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::State;
use sim::payload::crc32c;
use sim::scenarios::{GROUP, SECOND, ScenarioWorld, serves};

use crate::durable_queue::{in_order, in_step, logged, writes};

const PRIMARY: usize = 0;

/// The primary is killed, and its log is as a program of other versions would have written it: of the cell, and of the batches.
fn is_of_versions(world: &mut ScenarioWorld, cell: u16, batch: u16) {
    world.crash(PRIMARY, false, SECOND);
    let disk = world.cluster[PRIMARY].disk_mut(Store::Queue(GROUP));
    let mut content = disk.durable().to_vec();
    let mut met = [0; 2];
    for block in content.chunks_exact_mut(4 * KIB as usize) {
        let (version, of) = match &block[..8] {
            b"FSHQUEUE" => (cell, 0),
            b"FSHQUEUB" => (batch, 1),
            _ => continue,
        };
        met[of] += 1;
        block[8..10].copy_from_slice(&version.to_le_bytes());
        if of == 1 && version == 1 {
            block[96..104].fill(0);
        }
        let end = block.len() - 4;
        let sum = crc32c(&block[..end]);
        block[end..].copy_from_slice(&sum.to_le_bytes());
    }
    assert!(met[0] == 4 && met[1] > 8, "{met:?}");
    disk.restore(content);
}

// proves: rule 23, P5
/// A program before steps of several writes wrote the log: after an upgrade the queue goes on in order.
#[test]
fn a_log_of_the_version_before_is_read() {
    for cell in [1, 2] {
        let mut world = in_step(logged(8 * MIB));
        world.cut([false; 2]);
        writes(&mut world, 240);
        is_of_versions(&mut world, cell, 1);
        world.until("it serves", serves);
        assert_eq!(world.coverage(PRIMARY, CoveragePoint::QueueLogDropped), 0);
        in_order(&mut world);
    }
}

// proves: rule 23, P3
/// A newer program wrote it: its next batch is no end of the log, behind which writes would be missing, and its cell is no damaged one.
#[test]
fn a_log_of_a_newer_version_fails_the_group() {
    for (cell, batch) in [(3, 2), (2, 3), (3, 3)] {
        let mut world = in_step(logged(8 * MIB));
        world.cut([false; 2]);
        writes(&mut world, 240);
        is_of_versions(&mut world, cell, batch);
        let has_failed = |world: &ScenarioWorld| {
            world.cluster[PRIMARY].status_of(GROUP).is_some_and(|status| matches!(status.state, State::Failed(_)))
        };
        world.until("it fails", has_failed);
        assert!(world.figures(PRIMARY).reason.contains("upgrade this node"), "{}", world.figures(PRIMARY).reason);
    }
}
