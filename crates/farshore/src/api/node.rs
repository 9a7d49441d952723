//! A node, as its daemon shows it. The comments of fields are the manual's words: docs/book/status-json.md is made from them.

use serde::{Deserialize, Serialize};

use super::group::GroupView;
use super::link::LinkReport;

/// The schema of [`NodeView`].
pub const STATUS_SCHEMA: &str = "farshore-status/1";

/// What one node knows, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeView {
    /// name and version of this schema
    pub schema: String,
    /// this cluster; empty from an older daemon
    #[serde(default)]
    pub cluster: String,
    /// this node
    pub node: String,
    /// the daemon's version
    pub version: String,
    /// seconds since the daemon's start
    pub uptime_s: f64,
    /// sentences about the node, such as an insecure link or a certificate that ends within 30 days
    #[serde(default, deserialize_with = "super::sentences::sentences")]
    pub warnings: Vec<String>,
    /// the certificates of new connections; `null` without `[tls]`
    #[serde(default)]
    pub tls: Option<TlsStatus>,
    /// what the groups share; `null` from an older daemon
    #[serde(default)]
    pub shared: Option<SharedView>,
    /// NBD connections of all exports; `null` from an older daemon
    #[serde(default)]
    pub clients: Option<ClientsStatus>,
    /// where the node keeps its own files; `null` from an older daemon
    #[serde(default)]
    pub state_directory: Option<StateDirectoryView>,
    /// log lines not written since the daemon's start: a full disk, or a pipe that nobody read
    #[serde(default)]
    pub lost_log_lines: u64,
    /// one per peer; empty from an older daemon
    #[serde(default)]
    pub links: Vec<LinkReport>,
    /// what the daemons of the peers say of themselves; left out with `--local` and `--on`
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peer_says: Vec<PeerSays>,
    /// one per group of this node, by name
    pub groups: Vec<GroupView>,
}

/// What the daemon of a peer says of itself, or why that is not known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerSays {
    /// the peer
    pub node: String,
    /// seconds: how old `status` is; `null`: there is none
    #[serde(default)]
    pub age_s: Option<f64>,
    /// seconds: how long ago the peer's daemon answered this one last; `null`: not since this daemon's start
    #[serde(default)]
    pub answered_s: Option<f64>,
    /// why `status` is not known, as a sentence about the peer ("it ..."); `null` when it is
    #[serde(default)]
    pub why: Option<String>,
    /// the peer's own object, of the groups that both nodes have; without `peer_says`. `null`: not known
    #[serde(default)]
    pub status: Option<Box<NodeView>>,
}

/// The certificates that new connections use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TlsStatus {
    /// RFC 3339: end of this node's certificate
    pub certificate_until: String,
    /// RFC 3339: end of the last trusted authority
    pub authority_until: String,
    /// SHA-256 of this node's certificate, hexadecimal
    pub fingerprint: String,
}

/// Where a node keeps journals, queues and undo stores: customers' data. With the setting `queues` the less protected of the two directories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StateDirectoryView {
    /// the setting `state`, or `queues`
    pub path: String,
    /// what lies there is encrypted at rest, by dm-crypt or the file system; `null`: that cannot be told
    pub encrypted: Option<bool>,
    /// by what it is encrypted, what it lies on, or why that cannot be told
    pub lies: String,
}

/// What the groups of a node share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SharedView {
    /// bytes held by all groups, or promised to their peers
    pub memory_bytes: u64,
    /// bytes: the limit (`memory.limit`)
    pub memory_limit_bytes: u64,
    /// groups that start now
    pub starting: u64,
    /// groups that wait for their turn to start
    pub starting_waiting: u64,
    /// groups that sync now from this node
    pub syncing: u64,
    /// groups that wait for their turn to sync
    pub syncing_waiting: u64,
}

/// NBD connections of all exports; sums count from the daemon's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClientsStatus {
    /// open now; for one volume `groups[].volumes[].clients`
    pub connected: u64,
    /// turned away since the daemon's start: no free slot
    pub refused: u64,
    /// cut off since then: owed bytes or took no answers for 120 s
    pub stalled: u64,
    /// cut off since then: did not speak NBD
    pub violations: u64,
}
