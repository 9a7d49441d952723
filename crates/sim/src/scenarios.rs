//! Scenarios: what happens is written down, or drawn step by step, and not left to actors. By hand ([`ScenarioWorld`]), as a
//! script with a crash at each of its instants ([`script`], [`enumerate`]), or sparse ([`sparse`]).

pub mod enumerate;
pub mod histories;
mod scenario_world;
pub mod script;
mod situations;
pub mod sparse;

use engine::GroupId;
use engine::limits::{KIB, MIB};
use engine::state::{AfterForcedFailover, Degrade, Mode, Policy, WhenFull};

use crate::options::SimOptions;

pub use scenario_world::ScenarioWorld;
pub use situations::{at_rest, loses_power, needs_verification, node_failed, patient, serves, state, unflushed};

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;
/// Longer than any scenario.
pub const FOR_EVER: u64 = 100_000 * SECOND;
/// The one group of a scenario. Node 0 starts as its primary.
pub const GROUP: GroupId = GroupId(0);

/// A fast disk, 100 Mbit/s and 1 ms each way, two volumes of 1 MiB.
pub fn options(mode: Mode, policy: Policy) -> SimOptions {
    SimOptions {
        // Even: node 0 starts as primary.
        seed: 2,
        pairs: vec![[0, 1]],
        volumes: 2,
        volume_bytes: MIB,
        extra_bytes: [0; 2],
        block_bytes: 4096,
        spread: None,
        forks: true,
        writes: 0,
        delay_ns: MILLISECOND,
        jitter_ns: 0,
        bytes_per_s: 12_500_000,
        slow_delay_ns: 0,
        disk_ns: (20_000, 200_000),
        turn_ns: 0,
        queue_bytes: MIB,
        queue_items: 100_000,
        queue_disk_bytes: 0,
        folds: false,
        queue_durable: false,
        when_full: WhenFull::Block,
        pace: None,
        journal_bytes: MIB,
        window_bytes: 256 * KIB,
        memory_bytes: 64 * MIB,
        syncs_at_once: engine::limits::SYNCS_AT_ONCE,
        activity: engine::ActivityConfig { extent_bytes: 256 * KIB, extents: 4 },
        history_bytes: 4 * MIB,
        view_bytes: 4 * MIB,
        modes: vec![mode],
        policy,
        // Most scenarios that lose the link want to see what follows when the order is lost with it.
        degrade: Degrade::Logging,
        after_forced_failover: AfterForcedFailover::Ask,
        fallback: None,
        wait_limit_ms: 1000,
        start_alone_ms: 5000,
        depth: 8,
        think_ns: MILLISECOND,
        hot_percent: 0,
        overlap_percent: 0,
        faults: Vec::new(),
        fault_every_ns: FOR_EVER,
        skirmish: false,
    }
}
