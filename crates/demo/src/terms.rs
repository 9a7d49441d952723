//! What the play is set to: names, sizes, times.

use std::time::Duration;

/// The one group, and its volumes `v1` to `v5`: the paper had five.
pub const GROUP: &str = "demo";
pub const VOLUMES: u32 = 5;
/// More than anything writes in one act, so that no dirty region is counted twice.
pub const VOLUME_BYTES: u64 = 64 << 20;
/// The queue of AVS, in bytes and in the configuration.
pub const QUEUE_BYTES: u64 = 8 << 20;
/// How long the daemons may take to find each other.
pub const LINK_PATIENCE: Duration = Duration::from_secs(10);
/// How long a sync may take.
pub const SYNC_PATIENCE: Duration = Duration::from_secs(60);

/// The paper's line: 50 ms round trip; the rate is what its authors could have bought ten years later.
pub const RTT: Duration = Duration::from_millis(50);
pub const RATE_BITS: u64 = 100_000_000;
/// The paper's spindles.
pub const MODEL_LATENCY: Duration = Duration::from_millis(8);

pub fn volume_name(volume: u32) -> String {
    format!("v{}", volume + 1)
}
