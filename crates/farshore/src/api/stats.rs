//! Rates and the queue, as the commands `stats` and `queue` print them. The comments of fields are the manual's words.

use serde::Serialize;

use super::group::{ModeLadderView, QueueView, RecoveryPoint, RpoView, VolumeQueueView};
use super::words::{GroupState, LinkState, Role};

/// The schema of [`StatsReport`].
pub const STATS_SCHEMA: &str = "farshore-stats/1";
/// The schema of [`QueueReport`].
pub const QUEUE_SCHEMA: &str = "farshore-queue/1";

/// The schema of [`RpoReport`].
pub const RPO_SCHEMA: &str = "farshore-rpo/1";

/// How well groups kept to `rpo.warn` and `rpo.error`: what `rpo --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RpoReport {
    /// name and version of this schema
    pub schema: &'static str,
    /// one per group
    pub groups: Vec<RpoHistory>,
}

/// How well one group did, as the events of its nodes have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RpoHistory {
    /// the group
    pub group: String,
    /// milliseconds since 1970: where the history begins
    pub since_unix_ms: u64,
    /// milliseconds since 1970: now
    pub until_unix_ms: u64,
    /// one per threshold that is set, or was passed
    pub levels: Vec<RpoLevel>,
    /// each time that a threshold was passed, oldest first
    pub missed: Vec<RpoMiss>,
}

/// One threshold over that time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RpoLevel {
    /// `warn` or `error`
    pub level: String,
    /// seconds, as it is set now; `null`: off
    pub threshold_s: Option<f64>,
    /// seconds in which a primary said that it watched its lag for it; of the others nothing is claimed
    pub watched_s: f64,
    /// of the watched time the part in which the lag was within it, 0 to 1; `null`: nobody watched
    pub met_share: Option<f64>,
    /// seconds of the watched time in which it was not
    pub missed_s: f64,
    /// how often it was passed
    pub times: u64,
    /// seconds: the longest of them
    pub longest_s: f64,
}

/// One time that a threshold was passed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RpoMiss {
    /// `warn` or `error`
    pub level: String,
    /// the primary that saw it
    pub node: String,
    /// milliseconds since 1970, by that node's clock
    pub since_unix_ms: u64,
    /// the same of its end; `null`: not over yet, as far as its events say
    pub until_unix_ms: Option<u64>,
    /// seconds; until now where it is not over
    pub lasted_s: f64,
    /// seconds: the threshold as it was then
    pub threshold_s: Option<f64>,
    /// why nobody watched any more, if it ended with that
    pub reason: Option<String>,
}

/// What a node did in one stretch of time: a line of `stats --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatsReport {
    /// name and version of this schema
    pub schema: &'static str,
    /// the node that was looked at
    pub node: String,
    /// RFC 3339, this machine's clock: the end of the stretch
    pub time: String,
    /// seconds: its length
    pub seconds: f64,
    /// one per group
    pub groups: Vec<GroupStats>,
    /// one per peer
    pub links: Vec<LinkStats>,
}

/// The link to a peer in that stretch, which all groups share.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinkStats {
    /// the peer
    pub node: String,
    /// where the connection is
    pub link: LinkState,
    /// bytes a second on the line, behind compression and without TLS's own; `null`: not connected. Of a connection that came up meanwhile: since then
    pub sent_bytes_per_s: Option<f64>,
    /// the same of what came
    pub received_bytes_per_s: Option<f64>,
}

/// A group in that stretch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupStats {
    /// the group
    pub name: String,
    /// what this node is for the group
    pub role: Role,
    /// where the group is
    pub state: GroupState,
    /// of all its volumes
    pub requests: RequestRates,
    /// at the end of the stretch
    pub queue: QueueView,
    /// bytes of the landing journal of a secondary at the end of the stretch; `null` on a primary
    pub unapplied_bytes: Option<u64>,
    /// bytes a second that writes put on the link, each time they were sent
    pub streamed_bytes_per_s: f64,
    /// bytes a second that syncs put on the link
    pub shipped_bytes_per_s: f64,
    /// bytes a second that were written to bitmap and activity log, which is the group's
    pub bitmap_bytes_per_s: f64,
    /// bytes a second that were written to the journal
    pub journal_bytes_per_s: f64,
    /// bytes a second that were written to the undo store
    pub undo_bytes_per_s: f64,
    /// bytes a second that were written to the disk queue
    pub queue_disk_bytes_per_s: f64,
    /// one per volume
    pub volumes: Vec<VolumeStats>,
}

/// A volume in that stretch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VolumeStats {
    /// the volume
    pub name: String,
    /// of its clients
    pub requests: RequestRates,
    /// bytes at the end of the stretch: regions that may differ from the peer's
    pub dirty_bytes: u64,
    /// at the end of the stretch: its part of the group's queue
    pub queue: VolumeQueueView,
    /// true: the group's order is without it
    pub set_aside: bool,
    /// true: it has no disk on this node
    pub detached: bool,
    /// bytes a second that writes put on the link, each time they were sent
    pub streamed_bytes_per_s: f64,
    /// bytes a second that syncs put on the link
    pub shipped_bytes_per_s: f64,
    /// bytes a second that were written to the bitmap
    pub bitmap_bytes_per_s: f64,
}

/// Requests of clients that were done in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RequestRates {
    /// reads a second
    pub reads_per_s: f64,
    /// bytes a second
    pub read_bytes_per_s: f64,
    /// milliseconds: mean time of a read; `null`: there was none
    pub read_ms: Option<f64>,
    /// writes a second, of zeroes and trims too
    pub writes_per_s: f64,
    /// bytes of data a second
    pub write_bytes_per_s: f64,
    /// milliseconds: mean time of a write; `null`: there was none
    pub write_ms: Option<f64>,
    /// flushes a second
    pub flushes_per_s: f64,
    /// milliseconds: mean time of a flush; `null`: there was none
    pub flush_ms: Option<f64>,
}

/// The queues of groups: what `queue --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QueueReport {
    /// name and version of this schema
    pub schema: &'static str,
    /// one per group that was asked for
    pub groups: Vec<GroupQueue>,
}

/// The queue of a group, which its primary has.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupQueue {
    /// the group
    pub name: String,
    /// the node whose queue it is
    pub node: String,
    /// what that node is for the group
    pub role: Role,
    /// where the group is
    pub state: GroupState,
    /// the mode that is wanted
    pub mode: String,
    /// the mode in which writers are answered: a lower one than `mode` while the mode ladder is down; empty from an older daemon
    pub effective_mode: String,
    /// the mode ladder is down, and why; `null`: it acts as `mode`
    pub mode_ladder: Option<ModeLadderView>,
    /// what writers in `sync` and `nearsync` meet without the peer; `null`: not known
    pub policy: Option<String>,
    /// what a full queue does; `null`: not known
    pub when_full: Option<String>,
    /// the group's share of the link beside other groups; `null`: not known
    pub link_weight: Option<String>,
    /// bytes per second that its node sends at most on the link now, of all groups; `null`: no limit, or not known
    pub allowed_bytes_per_s: Option<u64>,
    /// thresholds of the lag, and how it keeps to them; `null` from an older daemon
    pub rpo: Option<RpoView>,
    /// the newest point that the other node can present; `null`: none, or not known
    pub recovery_point: Option<RecoveryPoint>,
    /// what waits to be sent or confirmed
    pub queue: QueueView,
    /// bytes that are not yet durable at the other node; `null`: not known
    pub lag_bytes: Option<u64>,
    /// seconds: the age of what the other node can present; `null`: not known
    pub lag_seconds: Option<f64>,
}
