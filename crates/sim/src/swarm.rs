//! What kind of world a seed draws: a swarm of options, so that each run stresses a different corner.

use engine::ActivityConfig;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy};

use crate::rng::Rng;

#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub groups: u32,
    pub volumes: u16,
    pub volume_bytes: u64,
    pub writes: u64,
    pub delay_ns: u64,
    pub bytes_per_s: u64,
    pub disk_ns: (u64, u64),
    pub queue_bytes: u64,
    pub journal_bytes: u64,
    pub window_bytes: u64,
    /// Of a node, for all its groups.
    pub memory_bytes: u64,
    pub syncs_at_once: usize,
    pub activity: ActivityConfig,
    pub history_bytes: u64,
    pub modes: Vec<Mode>,
    pub policy: Policy,
    pub wait_limit_ms: u64,
    pub start_alone_ms: u64,
    pub depth: usize,
    /// Mean time between requests.
    pub think_ns: u64,
    /// Percent of writes that aim at one small area.
    pub hot_percent: u64,
    /// Percent of writes that aim at a write in flight.
    pub overlap_percent: u64,
    pub faults: Vec<Fault>,
    pub fault_every_ns: u64,
}

/// What can go wrong; each seed draws some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    KillPrimary,
    KillSecondary,
    PowerPrimary,
    PowerSecondary,
    PowerBoth,
    CleanRestart,
    Cut,
    CutOneWay,
    Flap,
    DuplicateSession,
    LocalWriteErrors,
    FlushFails,
    SecondaryFull,
    ReadErrors,
    SlowSecondary,
    StalledSecondary,
    ModeChange,
    Switchover,
    Failover,
    OperatorLogging,
    FullSync,
}

impl Fault {
    const ALL: [Fault; 21] = [
        Fault::KillPrimary,
        Fault::KillSecondary,
        Fault::PowerPrimary,
        Fault::PowerSecondary,
        Fault::PowerBoth,
        Fault::CleanRestart,
        Fault::Cut,
        Fault::CutOneWay,
        Fault::Flap,
        Fault::DuplicateSession,
        Fault::LocalWriteErrors,
        Fault::FlushFails,
        Fault::SecondaryFull,
        Fault::ReadErrors,
        Fault::SlowSecondary,
        Fault::StalledSecondary,
        Fault::ModeChange,
        Fault::Switchover,
        Fault::Failover,
        Fault::OperatorLogging,
        Fault::FullSync,
    ];
}

impl Options {
    pub fn draw(seed: u64) -> Options {
        let mut rng = Rng::new(seed);
        let policies =
            [Policy::Degrade, Policy::Degrade, Policy::Hold(std::time::Duration::from_secs(2)), Policy::Strict];
        let mut modes = vec![*rng.pick(&[Mode::Sync, Mode::Nearsync, Mode::Async, Mode::Async])];
        if rng.percent(40) {
            modes.push(*rng.pick(&[Mode::Sync, Mode::Nearsync, Mode::Async, Mode::Logging]));
        }
        let window_bytes = *rng.pick(&[192 * KIB, 256 * KIB, MIB]);
        let groups = rng.between(1, 3) as u32;
        // Every seed kills each node at least once; the rest is drawn.
        let mut faults = vec![Fault::KillPrimary, Fault::PowerSecondary, Fault::Cut];
        for fault in Fault::ALL {
            if rng.percent(35) {
                faults.push(fault);
            }
        }
        Options {
            seed,
            groups,
            volumes: rng.between(3, 4) as u16,
            volume_bytes: rng.between(6, 12) * 64 * KIB - rng.below(2) * 20 * KIB,
            writes: rng.between(2000, 2600),
            delay_ns: *rng.pick(&[100_000, 1_000_000, 5_000_000, 25_000_000]),
            bytes_per_s: *rng.pick(&[100_000, 400_000, 4_000_000, 12_500_000, 125_000_000]),
            disk_ns: *rng.pick(&[(20_000, 200_000), (50_000, 3_000_000)]),
            queue_bytes: *rng.pick(&[256 * KIB, MIB, 8 * MIB]),
            journal_bytes: window_bytes * 2 + rng.below(3) * 256 * KIB,
            window_bytes,
            // Hardly more than the groups' own shelves, or plenty.
            memory_bytes: u64::from(groups) * window_bytes + *rng.pick(&[128 * KIB, 2 * MIB, 64 * MIB]),
            syncs_at_once: rng.between(1, 2) as usize,
            activity: ActivityConfig { extent_bytes: 64 * KIB, extents: rng.between(4, 12) as u32 },
            history_bytes: *rng.pick(&[512 * KIB, 8 * MIB]),
            modes,
            policy: *rng.pick(&policies),
            wait_limit_ms: *rng.pick(&[300, 1500, 10_000]),
            start_alone_ms: *rng.pick(&[1000, 5000, 60_000]),
            depth: rng.between(4, 16) as usize,
            think_ns: *rng.pick(&[100_000, 1_000_000, 4_000_000]),
            hot_percent: rng.between(20, 70),
            overlap_percent: rng.between(15, 40),
            faults,
            fault_every_ns: *rng.pick(&[300_000_000, 1_000_000_000, 2_500_000_000]),
        }
    }
}
