//! Many groups on two nodes: 65 to 128, of which one to three may sync at a time, with hardly more memory than their own
//! shelves. All have to catch up at once, over and over; nobody may be forgotten.

use engine::ActivityConfig;
use engine::limits::{self, KIB};

use super::SimOptions;
use super::fault::FaultKind;
use crate::rng::Rng;

const SECOND: u64 = 1_000_000_000;

/// What makes a crowd another world than its seed's.
const CROWD: u64 = 0xc203_d000_0000_0000;

/// What befalls all groups of a node or of the path at once.
const FAULTS: [FaultKind; 10] = [
    FaultKind::Cut,
    FaultKind::KillPrimary,
    FaultKind::PowerSecondary,
    FaultKind::PowerBoth,
    FaultKind::CleanRestart,
    FaultKind::Flap,
    FaultKind::SlowSecondary,
    FaultKind::SlowPrimary,
    FaultKind::Swizzle,
    FaultKind::OperatorLogging,
];

impl SimOptions {
    pub fn draw_crowd(seed: u64) -> SimOptions {
        let mut rng = Rng::new(seed ^ CROWD);
        let drawn = SimOptions::draw(seed ^ CROWD);
        let groups = rng.between(65, 128);
        let window_bytes = *rng.pick(&[192 * KIB, 256 * KIB]);
        let mut faults = vec![FaultKind::Cut, FaultKind::KillPrimary];
        faults.extend((0..6).map(|_| *rng.pick(&FAULTS)));
        SimOptions {
            seed: drawn.seed,
            pairs: vec![[0, 1]; groups as usize],
            volumes: 1,
            volume_bytes: rng.between(5, 8) * 32 * KIB + rng.below(2) * 512,
            block_bytes: *rng.pick(&[512, 4096]),
            spread: None,
            forks: true,
            bytes_per_s: *rng.pick(&[4_000_000, 12_500_000, 125_000_000]),
            queue_bytes: *rng.pick(&[256 * KIB, 1024 * KIB]),
            queue_durable: false,
            queue_disk_bytes: *rng.pick(&[0, 128 * KIB]),
            folds: SimOptions::folds(seed),
            journal_bytes: 2 * window_bytes,
            window_bytes,
            memory_bytes: groups * window_bytes.min(limits::MEMORY_GROUP_BYTES)
                + *rng.pick(&[0, 128 * KIB, 1024 * KIB]),
            syncs_at_once: rng.between(1, 3) as usize,
            activity: ActivityConfig { extent_bytes: 64 * KIB, extents: 4 },
            history_bytes: 512 * KIB,
            view_bytes: 0,
            depth: 4,
            think_ns: *rng.pick(&[100_000, 400_000]),
            faults,
            fault_every_ns: SECOND,
            writes: 10 * groups * 20,
            ..drawn
        }
    }
}
