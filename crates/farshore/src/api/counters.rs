//! What a daemon counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The schema of [`DaemonCounters`].
pub const COUNTERS_SCHEMA: &str = "farshore-counters/1";

/// Sums since the daemon started: the answer to the request `counters` on the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DaemonCounters {
    /// name and version of this schema
    pub schema: String,
    /// this node
    pub node: String,
    /// by dotted name such as `group.db.writes`
    pub counters: BTreeMap<String, u64>,
    /// how long requests of NBD clients took, by command; empty from an older daemon
    #[serde(default)]
    pub latencies: BTreeMap<String, LatencyClasses>,
}

/// Requests that were done, by how long they took; or writers, by how long they waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LatencyClasses {
    /// microseconds: upper bounds of the classes
    pub bounds_us: Vec<u64>,
    /// requests, or writers, in each class; the last one has no upper bound
    pub counts: Vec<u64>,
    /// microseconds: sum of all times
    pub sum_us: u64,
}
