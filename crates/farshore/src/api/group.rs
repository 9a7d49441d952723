//! A group, as a daemon shows it. The comments of fields are the manual's words: docs/book/status-json.md is made from them.

use std::collections::BTreeMap;

use engine::limits;
use serde::{Deserialize, Serialize};

use super::counters::LatencyClasses;
use super::link::SettingStatus;
use super::refusals::{DeskRefusal, RefusalView};
use super::words::{Flow, GroupState, LinkState, OperationState, Protection, QueueLogState, Role, RpoState};

/// The schema of [`MarkList`] and [`DroppedMark`].
pub const MARKS_SCHEMA: &str = "farshore-marks/1";

/// A group of volumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupView {
    /// the group
    pub name: String,
    /// what this node is for the group
    pub role: Role,
    /// the node whose writes count; `null`: not known now, or not one of the two. The peer's role counts while it is connected
    #[serde(default)]
    pub from: Option<String>,
    /// the node that they are for; `null` where `from` is
    #[serde(default)]
    pub to: Option<String>,
    /// whether they travel there; `unknown` also from an older daemon
    #[serde(default)]
    pub flow: Flow,
    /// true: what is recorded of the group is not known yet, nor is its role
    #[serde(default)]
    pub starting: bool,
    /// true: this node is being promoted, and its export is not open yet; until that ends, the role says nothing
    #[serde(default)]
    pub promoting: bool,
    /// true: this node is being demoted, serves nobody, and that it is secondary is not on record yet; until it is, `role` stays
    /// `primary`
    #[serde(default)]
    pub demoting: bool,
    /// on a secondary: true: it was the primary, was demoted when its peer had everything, and has followed nobody since. `null` from an
    /// older daemon
    #[serde(default)]
    pub handed_over: Option<bool>,
    /// a switchover in which this node hands over; `null`: none is under way
    #[serde(default)]
    pub handover: Option<HandoverView>,
    /// a reverse sync is under way; `null`: none
    #[serde(default)]
    pub reverse: Option<ReverseView>,
    /// of the group's history here: number and tag; empty from an older daemon
    #[serde(default)]
    pub generation: String,
    /// on a primary: the number of its newest write in this run; `null` on a secondary, while it starts, and from an older daemon
    #[serde(default)]
    pub last_sequence: Option<u64>,
    /// another word after each promotion of this node
    #[serde(default)]
    pub term: String,
    /// wanted: `sync`, `nearsync`, `async`, `superasync`, `logging`. On a secondary the mode that its primary last reported; `unknown` before
    pub mode: String,
    /// the mode in which writers are answered: a lower one than `mode` while the mode ladder is down. On a secondary as its
    /// primary said last; `unknown`: it has said nothing since this daemon started. Empty from an older daemon
    #[serde(default)]
    pub effective_mode: String,
    /// on a primary whose mode ladder is down; `null`: it acts as `mode`
    #[serde(default)]
    pub mode_ladder: Option<ModeLadderView>,
    /// where the group is
    pub state: GroupState,
    /// what an acknowledgement means now
    pub protection: Protection,
    /// why the state is not the wanted one; `null` when it is
    #[serde(default)]
    pub reason: Option<String>,
    /// one per volume
    pub volumes: Vec<VolumeView>,
    /// writes waiting to be sent or confirmed, in memory
    pub queue: QueueView,
    /// bytes of the node's memory: the queue, or what a secondary received and granted
    #[serde(default)]
    pub memory_bytes: u64,
    /// the landing journal of a secondary; `null` on a primary
    #[serde(default)]
    pub journal: Option<JournalStatus>,
    /// the other node of the group
    pub peers: Vec<PeerStatusView>,
    /// on a secondary: the image that a promotion would give; `null`: none
    #[serde(default)]
    pub promotable: Option<RecoveryPoint>,
    /// on a secondary: so many seconds more, whatever becomes of the primary, nothing is acknowledged that a promotion here would lack (the
    /// peer window of `policy = "hold"`); `null`: nothing proves that
    #[serde(default)]
    pub peer_window_s: Option<f64>,
    /// writers of a primary whose answers wait for the end of the peer window that the other node counts on
    #[serde(default)]
    pub held_writers: u64,
    /// how long that is still; `null`: none wait
    #[serde(default)]
    pub held_writers_s: Option<f64>,
    /// images kept besides the volumes' own, oldest first
    #[serde(default)]
    pub marks: Vec<MarkStatus>,
    /// while a sync runs; else `null`
    #[serde(default)]
    pub sync: Option<SyncView>,
    /// an ordered sync has not begun: it waits for its turn, for the peer, or until both nodes have compared
    #[serde(default)]
    pub sync_ordered: bool,
    /// in `logging`: a sync begins without another order, once what stands in its way is gone
    #[serde(default)]
    pub syncs_by_itself: bool,
    /// place in the line for a turn to sync; 1: next; `null`: not waiting
    #[serde(default)]
    pub sync_position: Option<u64>,
    /// an operator declared both copies equal, and nobody has compared all of them since: run `farshore verify`
    #[serde(default)]
    pub assumed_equal: bool,
    /// a verify found blocks that differ, and they are not known to be repaired
    #[serde(default)]
    pub differs: bool,
    /// on the primary, while a verify runs; else `null`
    #[serde(default)]
    pub verify: Option<VerifyView>,
    /// on the primary: the last verify that ended since this daemon's start; `null`: none
    #[serde(default)]
    pub verified: Option<VerifiedView>,
    /// on the primary, with `scrub.every`: verifies that begin by themselves; else `null`
    #[serde(default)]
    pub scrub: Option<ScrubView>,
    /// by key
    pub settings: BTreeMap<String, SettingStatus>,
    /// the lag from which somebody should know; `null` from an older daemon
    #[serde(default)]
    pub rpo: Option<RpoView>,
    /// sentences about this group, such as a queue over 80 %
    #[serde(default, deserialize_with = "super::sentences::sentences")]
    pub warnings: Vec<String>,
}

impl GroupView {
    /// Another mode counts than the one that is wanted.
    pub fn acts_otherwise(&self) -> Option<&str> {
        let is_known = !matches!(self.effective_mode.as_str(), "" | "unknown") && self.mode != "unknown";
        Some(self.effective_mode.as_str()).filter(|acts_as| is_known && *acts_as != self.mode)
    }

    /// A primary that serves nobody: its export waits for the peer, for `start_alone`, or for an operator.
    pub fn is_closed(&self) -> bool {
        let is_primary = self.role == Role::Primary && !self.starting && self.state != GroupState::Failed;
        is_primary && self.protection == Protection::None
    }

    /// A change of role that is under way has not ended here. A promotion of a primary that serves has ended, or was ordered once more; a
    /// demotion of one that serves has not begun.
    pub fn is_between_roles(&self) -> bool {
        self.role == Role::Secondary || self.is_closed()
    }

    /// A promotion of this node's is under way.
    pub fn is_promoted_now(&mut self) {
        self.promoting = self.is_between_roles();
        if self.promoting {
            self.has_no_direction();
        }
    }

    /// A switchover in which this node hands over is past its point of no return, and not on record.
    pub fn records_handover(&self) -> bool {
        self.handover.as_ref().is_some_and(|handover| handover.stage == "recording")
    }

    fn has_no_direction(&mut self) {
        (self.flow, self.from, self.to) = (Flow::Unknown, None, None);
    }

    /// A demotion of this node's is under way: until the new role is on record the node is what it would be after a crash.
    pub fn is_demoted_now(&mut self) {
        self.demoting = self.is_between_roles() && !self.starting && self.state != GroupState::Failed;
        if self.demoting && self.role == Role::Secondary {
            self.role = Role::Primary;
            self.has_no_direction();
            // Of a secondary: after a crash it would not be one.
            (self.handed_over, self.promotable, self.journal) = (Some(false), None, None);
            self.peer_window_s = None;
        }
    }
}

/// A switchover on the node that hands over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HandoverView {
    /// the node that is to be primary
    pub to: String,
    /// `draining`: requests are held, the peer gets the last writes; `storing`: both nodes are equal; `recording`: the point of no return is
    /// passed; `granted`: this node is secondary on record, and the peer is to be primary
    pub stage: String,
    /// requests of clients that wait for what becomes of it
    pub held_requests: u64,
    /// seconds until it is given up, or the peer is not waited for any more
    pub ends_in_s: f64,
}

/// A reverse sync: the clients of one node are served by the other, whose content is sent to the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReverseView {
    /// the node whose clients they are, and that takes over again
    pub home: String,
    /// the node that serves them
    pub server: String,
    /// at home: the server answers for all volumes; on the server: true
    pub connected: bool,
    /// requests of clients that wait for the server
    pub waiting: u64,
    /// why there is no connection, or why `home` does not take over yet; `null`: nothing is in the way
    #[serde(default)]
    pub why: Option<String>,
}

/// A primary answers writers in a lower mode than the one that is set, as its line is slow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModeLadderView {
    /// seconds: for how long
    pub lowered_s: f64,
    /// what made it slow
    pub reason: String,
    /// seconds until `mode` counts again, if the line stays good; `null`: it is slow, or the copy is behind
    #[serde(default)]
    pub returns_in_s: Option<f64>,
}

/// Thresholds of a group's lag, and how it keeps to them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RpoView {
    /// seconds; `null`: off
    pub warn_seconds: Option<f64>,
    /// seconds; `null`: off
    pub error_seconds: Option<f64>,
    /// seconds for which a lag is beyond a threshold, or back under it, before that counts; `null` from an older daemon
    #[serde(default)]
    pub hold_off_seconds: Option<f64>,
    /// whether the lag is within them: `met`, `warn`, `error` or `unwatched`
    #[serde(default)]
    pub state: RpoState,
    /// seconds for which it is so, as far as this daemon knows; `null`: it has not looked yet
    #[serde(default)]
    pub state_s: Option<f64>,
}

impl RpoView {
    pub fn is_missed(&self) -> bool {
        matches!(self.state, RpoState::Warn | RpoState::Error)
    }
}

/// A volume of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VolumeView {
    /// the volume
    pub name: String,
    /// bytes, of the group: the size of the export, on whichever node is primary
    pub size_bytes: u64,
    /// bytes of this node's device; what exceeds `size_bytes` is unused (0 from an older daemon)
    #[serde(default)]
    pub device_bytes: u64,
    /// path on this node
    pub device: String,
    /// bytes: regions that may differ from the peer's
    pub dirty_bytes: u64,
    /// true: the group's order is without it ([bulk load](operate/bulk-load.md)); on a secondary: a promotion would lack it
    #[serde(default)]
    pub set_aside: bool,
    /// true: it has no disk on this node, and the group goes on without it ([dead disk](operate/dead-disk.md))
    #[serde(default)]
    pub detached: bool,
    /// true: it has a disk here that no sync has filled, and this node is not promoted with it
    #[serde(default)]
    pub unfilled: bool,
    /// its part of the group's queue
    #[serde(default)]
    pub queue: VolumeQueueView,
    /// another word after each promotion of this node, and where another volume came under this name: requests that were kept are asked
    /// again in the same term only
    #[serde(default)]
    pub term: String,
    /// past the page cache (O_DIRECT)
    pub direct: bool,
    /// attached now
    #[serde(default)]
    pub clients: u64,
    /// what is wrong with the device, or that it has not answered for 10 s or more; `null`: nothing
    #[serde(default)]
    pub error: Option<String>,
    /// true: `error` is of the volume's own device; a file of the group on another disk that hangs is told there as well; left out by an older
    /// daemon, which does not tell the two apart
    #[serde(default)]
    pub device_failed: Option<bool>,
}

/// What of a group's queue is a volume's, in memory and on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VolumeQueueView {
    /// bytes waiting to be sent or confirmed
    pub bytes: u64,
    /// writes waiting to be sent or confirmed
    pub items: u64,
    /// the most bytes since the daemon started
    pub bytes_hwm: u64,
    /// the most writes since the daemon started
    pub items_hwm: u64,
    /// the most bytes since then or since `queue --reset-peaks`
    pub reset_bytes_hwm: u64,
    /// the most writes since then or since `queue --reset-peaks`
    pub reset_items_hwm: u64,
}

/// Writes waiting to be sent or confirmed, in memory and on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QueueView {
    /// bytes waiting to be sent or confirmed, in memory
    pub bytes: u64,
    /// writes waiting to be sent or confirmed, those on disk too
    pub items: u64,
    /// seconds: the age of the oldest write that is not durable at the other node, by the primary's clock; 0: there is none. `null`: nothing
    /// is sent in its order, and what is dirty has no age
    #[serde(default)]
    pub oldest_unconfirmed_s: Option<f64>,
    /// bytes of memory: the most since the daemon's start
    pub bytes_hwm: u64,
    /// writes: the most since the daemon's start
    pub items_hwm: u64,
    /// bytes of memory: the most since `queue --reset-peaks`, or the daemon's start
    #[serde(default)]
    pub reset_bytes_hwm: u64,
    /// writes: the most since then
    #[serde(default)]
    pub reset_items_hwm: u64,
    /// bytes that waited, in memory and on disk together: the most since the daemon's start
    #[serde(default)]
    pub waiting_bytes_hwm: u64,
    /// bytes that waited: the most since `queue --reset-peaks`, or the daemon's start
    #[serde(default)]
    pub reset_waiting_bytes_hwm: u64,
    /// seconds: the oldest that the copy was since the daemon's start, as `lag_seconds`; `null`: never known
    #[serde(default)]
    pub lag_hwm_s: Option<f64>,
    /// seconds: the oldest since `queue --reset-peaks`, or the daemon's start; `null`: never known
    #[serde(default)]
    pub reset_lag_hwm_s: Option<f64>,
    /// bytes a second that came in, lately
    #[serde(default)]
    pub entering_bytes_per_s: u64,
    /// bytes a second that went out, durable at the peer, lately
    #[serde(default)]
    pub leaving_bytes_per_s: u64,
    /// seconds until it is full at this pace; `null`: it does not fill
    #[serde(default)]
    pub full_in_s: Option<u64>,
    /// bytes of memory: where writers begin to wait, if the disk queue has no room either
    pub limit_bytes: u64,
    /// writes, in memory and on disk: where writers begin to wait
    pub limit_items: u64,
    /// bytes of payload that stand in the [disk queue](config.md#window-and-memory) and no longer in memory
    #[serde(default)]
    pub disk_bytes: u64,
    /// bytes: the size of the disk queue; 0: there is none
    #[serde(default)]
    pub disk_limit_bytes: u64,
    /// bytes: the most that stood there since the daemon's start
    #[serde(default)]
    pub disk_bytes_hwm: u64,
    /// bytes: the most since `queue --reset-peaks`, or the daemon's start
    #[serde(default)]
    pub reset_disk_bytes_hwm: u64,
    /// bytes of payload: sum of what was written there
    #[serde(default)]
    pub spilled_bytes: u64,
    /// the disk queue cannot be written: nothing more goes there before the next stream begins
    #[serde(default)]
    pub disk_failed: bool,
    /// writes that were left out since the daemon's start, each time they were, as [later ones that went with them overwrote them](config.md#window-and-memory)
    #[serde(default)]
    pub folded_writes: u64,
    /// bytes: of those writes
    #[serde(default)]
    pub folded_bytes: u64,
    /// milliseconds of the primary's time: the last writes that went as one [step](config.md#window-and-memory), so that there is no recovery point between them, were written within so long; `null`: there was no step within the last minute, and a recovery point after each write
    #[serde(default)]
    pub step_ms: Option<u64>,
    /// bytes: so much was written in it; `null` as above
    #[serde(default)]
    pub step_bytes: Option<u64>,
    /// milliseconds: the longest step since the daemon's start; 0: there was none
    #[serde(default)]
    pub step_ms_hwm: u64,
    /// bytes: the largest one
    #[serde(default)]
    pub step_bytes_hwm: u64,
    /// writes that travelled joined to their neighbours, each time they did
    #[serde(default)]
    pub joined_writes: u64,
    /// the frames that they became
    #[serde(default)]
    pub joined_frames: u64,
    /// of the [log of the queue](config.md#log-of-the-queue)
    #[serde(default)]
    pub log: QueueLogState,
    /// why the log does not count; `null`: it does, or is `off`
    #[serde(default)]
    pub log_why: Option<String>,
    /// seconds: for how long the log has not counted though it is to; `null`: it counts, or is `off`
    #[serde(default)]
    pub log_off_s: Option<u64>,
    /// bytes of the file that the log takes for the peer, indexes and whole blocks counted; 0: it takes nothing
    #[serde(default)]
    pub log_bytes: u64,
    /// bytes: what it may take, where writers begin to wait; 0: it takes nothing
    #[serde(default)]
    pub log_limit_bytes: u64,
    /// bytes of the file: the most that the log took since the daemon's start
    #[serde(default)]
    pub log_bytes_hwm: u64,
    /// bytes of the file: the most since `queue --reset-peaks`, or the daemon's start
    #[serde(default)]
    pub reset_log_bytes_hwm: u64,
    /// milliseconds: sum of the time writers waited for room
    pub blocked_ms: u64,
    /// writers that waited for room, by how long each waited; empty from an older daemon
    #[serde(default)]
    pub waits: LatencyClasses,
    /// writers that wait for room now
    #[serde(default)]
    pub waiting_writers: u64,
    /// bytes a second at which [`queue.pace`](config.md#window-and-memory) admits writers now; `null`: it slows nobody down
    #[serde(default)]
    pub paced_to_bytes_per_s: Option<u64>,
    /// milliseconds, while a full queue [holds writers up](operate/full-queue-and-journal.md): for how long of late (runs back while it
    /// does not); else `null`
    #[serde(default)]
    pub held_up_ms: Option<u64>,
}

impl QueueView {
    /// Bytes that wait, and that may wait, in memory and on disk, or in the log. A disk queue that failed takes nothing more, nor does a log that is
    /// closed.
    pub fn filled_of(&self) -> (u64, u64) {
        if self.log_limit_bytes > 0 {
            return (self.log_bytes, self.log_limit_bytes);
        }
        if self.log == QueueLogState::Closed {
            return (self.bytes, self.limit_bytes);
        }
        let disk_limit_bytes = if self.disk_failed { self.disk_bytes } else { self.disk_limit_bytes };
        (self.bytes.saturating_add(self.disk_bytes), self.limit_bytes.saturating_add(disk_limit_bytes))
    }

    /// The most that waited since the peaks were reset, counted as now.
    pub fn peak_of(&self) -> u64 {
        if self.log_limit_bytes > 0 { self.reset_log_bytes_hwm } else { self.reset_waiting_bytes_hwm }
    }

    /// What is filled, and the whole, of each thing that fills: bytes, writes, and what writes cost in memory wherever their bytes are.
    pub fn fills(&self) -> [(u64, u64); 3] {
        // With a disk queue a quarter of memory is for what comes back, and an eighth is what is sent next. A log leaves nothing there.
        let on_disk = self.disk_limit_bytes > 0 && self.log != QueueLogState::Closed;
        let places_bytes = if on_disk { self.items.saturating_mul(limits::ITEM_OVERHEAD_BYTES) } else { 0 };
        let eighths = if self.log_limit_bytes > 0 { 6 } else { 5 };
        [self.filled_of(), (self.items, self.limit_items), (places_bytes, self.limit_bytes / 8 * eighths)]
    }

    /// Of whatever is nearest to its limit. 1.0: the queue is full. `None`: there is no queue.
    pub fn filled_share(&self) -> Option<f64> {
        let parts = self.fills().into_iter().filter(|(_, whole)| *whole > 0);
        parts.map(|(part, whole)| part as f64 / whole as f64).reduce(f64::max)
    }
}

/// The landing journal of a secondary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JournalStatus {
    /// bytes received and not yet on a volume, at most [`window`](config.md#window-and-memory)
    pub bytes: u64,
    /// bytes: the size of the file
    pub limit_bytes: u64,
}

/// The other node, as far as a group is concerned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerStatusView {
    /// the peer
    pub node: String,
    /// where the connection is
    pub link: LinkState,
    /// seconds: for how long it has been so
    pub link_since_s: f64,
    /// why it is not connected, or congested; else `null`
    #[serde(default)]
    pub link_reason: Option<String>,
    /// bytes, on both nodes, as the primary reports: the queue, that is, what is not yet durable in the secondary's journal; during a
    /// sync, and without a stream, `dirty_bytes`. `null` on a secondary that has not heard its primary for 5 s or is not connected
    pub lag_bytes: Option<u64>,
    /// writes, on both nodes: numbers of the order that are not durable in the secondary's journal. `null` where `lag_bytes` is, and while
    /// what is behind is dirty regions
    #[serde(default)]
    pub lag_items: Option<u64>,
    /// seconds, age of what the secondary can present: now, less the primary's time of the last write that is applied, flushed and
    /// recorded. So more than the age of the oldest write of `lag_bytes`, which is `queue.oldest_unconfirmed_s`. 0: everything is applied. `null` until something is, and where
    /// `lag_bytes` is
    pub lag_seconds: Option<f64>,
    /// seconds, on a secondary: how long ago the primary was last heard; `null`: not since this daemon's start
    #[serde(default)]
    pub heard_s: Option<f64>,
    /// bytes: the lag that it then told; `null`: none
    #[serde(default)]
    pub heard_lag_bytes: Option<u64>,
    /// seconds: the lag that it then told; `null`: none
    #[serde(default)]
    pub heard_lag_seconds: Option<f64>,
    /// the peer's, by key, as last reported; they count once the peer is promoted. `null`: none reported
    #[serde(default)]
    pub settings: Option<BTreeMap<String, String>>,
    /// bytes: regions that may differ from this peer's; on a secondary as the primary reports, where known
    pub dirty_bytes: u64,
    /// the newest point that the secondary can present; during a sync the newest finished image; `null`: none
    pub recovery_point: Option<RecoveryPoint>,
}

/// A position of the write order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecoveryPoint {
    /// position in the write order
    pub sequence: u64,
    /// RFC 3339, the primary's clock; `null`: no time is known
    #[serde(default)]
    pub time: Option<String>,
}

/// An image of the group at one position of the write order, kept in the undo store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MarkStatus {
    /// for `mark drop`, such as `before-sync-12`
    pub name: String,
    /// position in the write order
    pub sequence: u64,
    /// RFC 3339, the primary's clock; `null`: no time is known
    #[serde(default)]
    pub time: Option<String>,
    /// bytes of the undo store in use
    pub used_bytes: u64,
    /// bytes of the undo store reserved for the running sync
    pub reserved_bytes: u64,
    /// bytes that the undo store may take in all
    pub limit_bytes: u64,
    /// why nothing can go back to the mark; `null`: something can
    #[serde(default)]
    pub error: Option<String>,
    /// the sync overwrites a history of this node's own: before it ends, the file `delta` holds what it overwrote, and `mark drop` needs
    /// `--discard`, as it does where a volume that such a sync left out is still set aside or detached
    #[serde(default)]
    pub delta: bool,
}

/// A sync that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SyncView {
    /// everything, not only dirty regions
    pub full: bool,
    /// bytes done, of the snapshot if there is one
    pub done_bytes: u64,
    /// bytes in all, of the snapshot if there is one
    pub total_bytes: u64,
    /// bytes a second, lately
    pub rate_bytes_per_s: f64,
    /// number of the snapshot that travels; `null`: regions travel in the stream of writes
    #[serde(default)]
    pub snapshot: Option<u64>,
    /// bytes a second: regions dirtied during the snapshot before, each counted once; `null` before the second snapshot
    #[serde(default)]
    pub dirtied_bytes_per_s: Option<u64>,
    /// bytes a second that the link would have to carry more, to catch up, or for a snapshot within 30 s, whichever is more (0: the catch-up
    /// ends by itself, or the copy moves at least every 30 s); `null` likewise
    #[serde(default)]
    pub missing_bytes_per_s: Option<u64>,
}

/// Verifies that begin by themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScrubView {
    /// seconds: `scrub.every`
    pub every_s: f64,
    /// bytes a second that such a verify reads at most
    pub rate_limit_bytes_per_s: u64,
    /// RFC 3339, this node's clock: when the last whole verify ended, whoever began it; `null`: none is on record here
    #[serde(default)]
    pub verified: Option<String>,
    /// RFC 3339: from when on the next one may begin; `null`: at once
    #[serde(default)]
    pub due: Option<String>,
    /// why one that is due has not begun; `null`: none is due, or one runs
    #[serde(default)]
    pub waits: Option<String>,
}

/// A verify that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyView {
    /// what differs is sent again
    pub repair: bool,
    /// it began by itself, and nobody has typed one since
    #[serde(default)]
    pub by_timer: bool,
    /// of what there is, in percent; 100: all
    pub sample_percent: u8,
    /// bytes a second that are read at most; `null`: no limit
    #[serde(default)]
    pub rate_limit_bytes_per_s: Option<u64>,
    /// it waits until the peer is in step again
    pub waits: bool,
    /// seconds: for how long it has run
    pub since_s: f64,
    /// bytes that it has come past; of a sample what is not in it too
    pub done_bytes: u64,
    /// bytes in all
    pub total_bytes: u64,
    /// bytes, as in `verified`
    pub compared_bytes: u64,
    /// bytes, as in `verified`
    pub differing_bytes: u64,
    /// bytes, as in `verified`
    pub repaired_bytes: u64,
    /// bytes, as in `verified`
    pub unread_bytes: u64,
    /// the first ranges that differ
    #[serde(default)]
    pub differences: Vec<DifferenceView>,
}

/// A verify that is over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifiedView {
    /// RFC 3339, this node's clock: when it ended
    #[serde(default)]
    pub time: Option<String>,
    /// what differed was sent again
    pub repair: bool,
    /// it began by itself
    #[serde(default)]
    pub by_timer: bool,
    /// a volume was set aside, and not compared
    #[serde(default)]
    pub leaves_volume: bool,
    /// of what there is, in percent; 100: all. Less proves nothing of the rest
    pub sample_percent: u8,
    /// bytes that were compared
    pub compared_bytes: u64,
    /// bytes of regions that held different bytes at one position of the write order
    pub differing_bytes: u64,
    /// bytes of them that were sent again and found equal
    pub repaired_bytes: u64,
    /// bytes that this node could not read, and that were not compared
    pub unread_bytes: u64,
    /// why it has not come to its end; `null`: it has
    #[serde(default)]
    pub given_up: Option<String>,
    /// the first ranges that differ, at most 16
    #[serde(default)]
    pub differences: Vec<DifferenceView>,
}

impl VerifiedView {
    /// How its operation ended, and why that is not the goal.
    pub fn outcome(&self) -> (OperationState, Option<RefusalView>) {
        if self.given_up.is_some() {
            return (OperationState::Stopped, Some(DeskRefusal::VerifyStopped.into()));
        }
        let differs = self.differing_bytes > self.repaired_bytes || self.unread_bytes > 0;
        (OperationState::Done, differs.then(|| DeskRefusal::CopyDiffers.into()))
    }
}

/// A range that differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DifferenceView {
    /// the volume
    pub volume: String,
    /// bytes from the volume's begin
    pub offset_bytes: u64,
    /// bytes
    pub bytes: u64,
    /// the peer could not read it
    pub unreadable: bool,
}

/// Where a named mark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum MarkState {
    /// durable on both nodes, at the same position
    OnBoth,
    /// on this primary, and in the order that goes to the peer
    OnItsWay,
    /// in no order any more that goes to the peer, which has not said yet whether it has it
    NotKnown,
    /// on this node only
    HereAlone,
}

impl MarkState {
    pub fn words(self) -> &'static str {
        match self {
            MarkState::OnBoth => "on both nodes",
            MarkState::OnItsWay => "on its way to the peer",
            MarkState::NotKnown => "on this node; what the peer has is not known yet",
            MarkState::HereAlone => "on this node only",
        }
    }
}

/// A named point of the write order. It says where, and keeps no image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NamedMark {
    /// as it was typed; `mark-NODE-NUMBER`: it came without its name so far
    pub name: String,
    /// position in the write order: what has a lower number lies before the mark; of one set while nothing was sent in order also what has this one
    pub sequence: u64,
    /// the history that the number is of
    pub generation: String,
    /// RFC 3339, the primary's clock; `null`: no time is known
    #[serde(default)]
    pub time: Option<String>,
    /// where it is
    pub state: MarkState,
    /// `mark drop` needs `--override-lock`
    pub locked: bool,
    /// RFC 3339: marks of other groups with the same moment were set together; `null`: of this group alone
    #[serde(default)]
    pub moment: Option<String>,
}

/// The named marks of a group, as a node has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MarksView {
    /// the node that says so
    pub node: String,
    /// the group
    pub group: String,
    /// oldest first
    pub marks: Vec<NamedMark>,
}

/// What `mark list --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MarkList<'a> {
    /// name and version of this schema
    pub schema: &'static str,
    /// the group
    pub group: &'a str,
    /// images before a sync, oldest first
    pub marks: &'a [MarkStatus],
    /// named points of the write order, oldest first
    pub named: &'a [NamedMark],
}

/// What `mark drop --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DroppedMark<'a> {
    /// name and version of this schema
    pub schema: &'static str,
    /// the group
    pub group: &'a str,
    /// the mark that is no more; `null`: none was kept, so nothing was dropped
    pub dropped: Option<&'a str>,
    /// the name of the operation; left out by a daemon of an older version
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<&'a str>,
}
