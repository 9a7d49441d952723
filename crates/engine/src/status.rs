//! Plain data for people: what `status` shows.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

pub use crate::formats::delta::SavedDelta;
use crate::formats::identity::{Decision, Identity, Role};
pub use crate::formats::marks::Mark;
use crate::ids::*;
pub use crate::shared::link::LinkStatus;
pub use crate::shared::room_waits::RoomWaits;
pub use crate::shared::volume_traffic::{VolumeQueue, VolumeTraffic};
use crate::state::{CopyDoubts, Mode, Pause, Protection, State};
use crate::time::{Mono, Wall};
use crate::{Settings, VerifyOrder};

#[derive(Clone, Debug)]
pub struct GroupStatus {
    pub id: GroupId,
    pub identity: Identity,
    pub role: Role,
    pub settings: Settings,
    /// What is wanted. On a secondary that of the primary whose copy this is; `None`: none was heard of yet.
    pub mode: Option<Mode>,
    /// As writers are answered now: a lower mode while the mode ladder is down. On a secondary as its primary said
    /// last; `None`: it has said nothing in this run.
    pub acts_as: Option<Mode>,
    /// On a primary whose mode ladder is down.
    pub ladder: Option<LadderStatus>,
    /// On a primary that was promoted, and has no copy in step since: the mode of the one before, where it was another.
    pub served_before_in: Option<Mode>,
    /// Times of writes stand still: the primary's wall clock is so far behind them.
    pub clock_behind: Option<Duration>,
    /// On a secondary that of its primary, unless this node knows better.
    pub state: State,
    /// The half of this node: whatever its primary reports.
    pub has_failed: bool,
    /// What the group is busy with, or why it is where it is.
    pub reason: String,
    pub starting: bool,
    /// Of the node that hands over.
    pub handover: Option<HandoverStatus>,
    /// Of its peer: it was handed over to in this session, and is to be promoted.
    pub is_granted: bool,
    /// A volume of this primary was written while the node was stopped: what stands here goes to the peer when `sync` is typed.
    pub changed_outside: bool,
    pub protection: Protection,
    /// What speaks against the copy.
    pub doubts: CopyDoubts,
    /// A verify under way, and what came of the last one since this daemon started; a primary's.
    pub verify: Option<VerifyStatus>,
    pub verified: Option<VerifiedStatus>,
    pub volumes: Vec<VolumeStatus>,
    pub queue: QueueStatus,
    pub peer: PeerStatus,
    pub sync: Option<SyncStatus>,
    /// Of a primary whose peer has said who it is.
    pub meeting: Option<MeetingStatus>,
    /// A sync that was ordered and has not begun.
    pub sync_ordered: bool,
    /// What the policy has this node do for a fork.
    pub by_policy: Option<PolicyStep>,
    /// In `logging`, and a sync begins without another order once what stands in its way is gone.
    pub syncs_by_itself: bool,
    /// Regions are read to be sent in the stream, or are to be, as a local write failed.
    pub reads_regions: bool,
    /// Where this group stands in the line of those that wait for their turn to sync; 1: it is next.
    pub sync_position: Option<usize>,
    /// Received and not yet on the volumes (secondary).
    pub unapplied_bytes: u64,
    /// What the group holds of the node's memory, or has promised to take.
    pub memory_bytes: u64,
    /// What a promotion would give now (secondary): the position in the write order, and the primary's time of it.
    pub promotable: Option<(Position, Wall)>,
    /// For so long a promotion loses nothing that was acknowledged, whatever became of the primary (secondary).
    pub peer_window: Option<Duration>,
    /// Writers of a primary whose answers wait for the end of the window that its peer counts on, and how long that is still.
    pub held_answers: Option<(usize, Duration)>,
    pub rollback_point: Option<RollbackPointStatus>,
    /// Of this node's copy.
    pub views: ViewsStatus,
    /// Oldest first.
    pub marks: Vec<Mark>,
    /// The last delta that this run of the node saved.
    pub saved_delta: Option<SavedDelta>,
    pub writes: u64,
    pub written_bytes: u64,
    /// Payload of writes that was handed to the link, each time it was.
    pub streamed_bytes: u64,
    /// Writes that travelled joined to neighbours, each time they did, and the frames that they became.
    pub joined_writes: u64,
    pub joined_frames: u64,
    /// Writes that were left out, as later ones that travelled with them overwrote them, and their bytes.
    pub folded_writes: u64,
    pub folded_bytes: u64,
    /// What the peer took at once last, though it was several writes; `None`: nothing within the last minute.
    pub step: Option<StepSpan>,
    /// The most of either since the start.
    pub step_hwm: StepSpan,
    /// Of regions, read for a sync: compared, sent or reported to be zero.
    pub resynced_bytes: u64,
    /// Of them, those whose hash was asked about, and those that went as data.
    pub compared_bytes: u64,
    pub shipped_bytes: u64,
    /// Fetched back from the peer after a power loss.
    pub pulled_bytes: u64,
}

/// Writes that the peer takes at once: within them there is no recovery point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepSpan {
    /// From the first one's stamp to the last one's.
    pub time: Duration,
    /// What they wrote.
    pub bytes: u64,
}

impl StepSpan {
    /// The most of either.
    pub(crate) fn max(self, other: StepSpan) -> StepSpan {
        StepSpan { time: self.time.max(other.time), bytes: self.bytes.max(other.bytes) }
    }
}

/// What `after_forced_failover` has this node do for a fork. Whoever runs the node orders it, as an operator would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyStep {
    /// [`crate::Command::Keep`]: this node was promoted, and the other one was not.
    Keep { over: u64 },
    /// [`crate::Command::Yield`]: the other one was, and keeps its content by now.
    Yield { to: u64 },
}

/// How far a switchover has come on the node that hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverStage {
    /// Requests are held, and the peer gets the last writes.
    Draining,
    /// Both nodes are equal; what this one has to store before it is secondary is being stored.
    Storing,
    /// Behind the point of no return: the demotion is being recorded.
    Recording,
    /// The demotion is on record, and the peer is to be primary.
    Granted,
}

impl HandoverStage {
    pub fn word(self) -> &'static str {
        match self {
            HandoverStage::Draining => "draining",
            HandoverStage::Storing => "storing",
            HandoverStage::Recording => "recording",
            HandoverStage::Granted => "granted",
        }
    }
}

/// A switchover that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoverStatus {
    pub to: NodeId,
    pub stage: HandoverStage,
    pub held_requests: u64,
    /// Until it is given up, or the peer is not waited for any more.
    pub ends_in: Duration,
}

/// What a primary and its peer come to, as both stand now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeetingStatus {
    pub decision: Decision,
    /// Regions that may differ by what the peer knows alone, in bytes.
    pub peer_dirty_bytes: u64,
    /// The peer's half of the group has failed.
    pub peer_failed: bool,
}

/// What a verify has compared and found, each range counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyTotals {
    pub compared_bytes: u64,
    /// Regions that held different bytes at one position of the order.
    pub differing_bytes: u64,
    /// Of them, what was sent again and found equal.
    pub repaired_bytes: u64,
    /// This node could not read it, so it was not compared.
    pub unread_bytes: u64,
}

impl VerifyTotals {
    /// What still differs.
    pub fn left_bytes(&self) -> u64 {
        self.differing_bytes.saturating_sub(self.repaired_bytes)
    }
}

/// A range that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyDifference {
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    /// The peer could not read it.
    pub unreadable: bool,
}

/// A verify under way.
#[derive(Clone, Debug)]
pub struct VerifyStatus {
    pub order: VerifyOrder,
    /// How long ago it began.
    pub since: Duration,
    /// It goes on when the peer is in step again.
    pub waits: bool,
    /// What the walk has come past, of how much; of a sample what is not in it too.
    pub walked_bytes: u64,
    pub total_bytes: u64,
    pub totals: VerifyTotals,
    /// The first ranges that differ.
    pub named: Vec<VerifyDifference>,
}

/// A verify that is over.
#[derive(Clone, Debug)]
pub struct VerifiedStatus {
    pub order: VerifyOrder,
    /// A volume was set aside, and not compared.
    pub leaves_volume: bool,
    pub ended: Wall,
    pub totals: VerifyTotals,
    pub named: Vec<VerifyDifference>,
    /// Why it has not come to its end, if it has not.
    pub given_up: Option<String>,
}

/// What the groups of a node share.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedStatus {
    /// Held or promised by all groups, and what they may (rule 22).
    pub memory_bytes: u64,
    pub memory_limit_bytes: u64,
    /// Groups that start now, and that wait for their turn to.
    pub starting: (usize, usize),
    /// Groups that sync now as primaries, and that wait for their turn to.
    pub syncing: (usize, usize),
}

/// The image before the sync under way, kept by a secondary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackPointStatus {
    /// For `mark drop`.
    pub name: String,
    pub position: Position,
    /// The primary's time of that position.
    pub wall: Wall,
    /// Of the undo store: in use, still reserved for the sync, in all.
    pub used_bytes: u64,
    pub reserved_bytes: u64,
    pub limit_bytes: u64,
    /// Why it cannot be gone back to, if it cannot.
    pub damaged: Option<String>,
    /// The sync overwrites a history of this node's own: before it ends a delta is made of what the point keeps.
    pub is_of_fork: bool,
    /// It is given up by `--discard` alone: so too where a volume that is left out has such a history.
    pub keeps_own: bool,
}

/// The views of a copy, and their store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewsStatus {
    /// In the order of their opening.
    pub open: Vec<ViewStatus>,
    /// Of the store that keeps what is overwritten: in use, and in all; 0: there is none.
    pub used_bytes: u64,
    pub limit_bytes: u64,
}

/// A view that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewStatus {
    pub view: ViewId,
    pub position: Position,
    /// The primary's time of that position.
    pub wall: Wall,
    /// It shows the image before the sync under way, and ends with that sync.
    pub before_sync: bool,
    /// What was overwritten since, on the volumes; views that were opened later share it.
    pub saved_bytes: u64,
}

/// A group at one moment, cheap to take.
#[derive(Clone, Copy, Debug)]
pub struct GroupGlance {
    pub identity: Identity,
    pub state: State,
    pub mode: Mode,
    pub protection: Protection,
    /// Why this secondary does not apply.
    pub paused: Option<Pause>,
    /// Through with starting, and not changing its role or stopping.
    pub running: bool,
    /// Running, and nothing is under way: both images should be equal when the peer says so too.
    pub drained: bool,
    /// What this primary lost with its power may still have to be fetched.
    pub needs_verification: bool,
    /// Volumes that are set aside: on a secondary its copy is one without them.
    pub aside: VolumeSet,
    /// Until then a promotion of this secondary loses nothing that was acknowledged.
    pub peer_window_until: Option<Mono>,
}

#[derive(Clone, Copy, Debug)]
pub struct VolumeStatus {
    /// In this group, and on whichever node is primary.
    pub size_bytes: u64,
    /// What its device holds here; the rest is not used.
    pub device_bytes: u64,
    pub dirty_bytes: u64,
    /// The group's order is without it: on a primary nothing of it is sent, on a secondary it is no part of what a promotion would give.
    pub is_aside: bool,
    /// It has no device on this node; on its peer, as far as that is connected and says so.
    pub is_detached: bool,
    pub is_detached_at_peer: bool,
    /// It has a device here that no sync has filled: a promotion is refused.
    pub is_unfilled: bool,
    pub queue: VolumeQueue,
    pub traffic: VolumeTraffic,
}

/// A lower mode counts than the one that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderStatus {
    /// For so long.
    pub lasts: Duration,
    pub why: String,
    /// So long until the mode that is set counts again, if the line stays as good as it is; `None`: it is slow, or the copy is behind.
    pub returns_in: Option<Duration>,
}

/// Whether a start would go on in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueLogState {
    /// Nobody wants a log, there is no file for one, or this node is no primary that serves.
    #[default]
    Off,
    /// It takes what is written, and counts for nothing yet.
    Filling,
    Live,
    Closed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLogStatus {
    pub state: QueueLogState,
    /// Why it does not count; of one that is off or live nothing.
    pub why: &'static str,
    /// For so long it has not counted, though it is wanted.
    pub off_for: Option<Duration>,
    /// What it holds for the peer, and may hold; `None`: it takes nothing.
    pub filled: Option<(u64, u64)>,
}

/// The most of each, whenever that was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePeaks {
    /// In memory.
    pub bytes: u64,
    /// All of them, in memory or on disk.
    pub items: u64,
    /// Of what waits, in memory or on disk.
    pub waiting_bytes: u64,
    /// On disk alone.
    pub disk_bytes: u64,
    /// What the log held for the peer.
    pub log_bytes: u64,
    /// The age of what the peer could present; `None`: never known.
    pub lag: Option<Duration>,
}

impl QueuePeaks {
    pub(crate) fn raise(&mut self, by: &QueuePeaks) {
        *self = QueuePeaks {
            bytes: self.bytes.max(by.bytes),
            items: self.items.max(by.items),
            waiting_bytes: self.waiting_bytes.max(by.waiting_bytes),
            disk_bytes: self.disk_bytes.max(by.disk_bytes),
            log_bytes: self.log_bytes.max(by.log_bytes),
            lag: self.lag.max(by.lag),
        };
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct QueueStatus {
    /// In memory.
    pub bytes: u64,
    /// All of them, in memory or on disk.
    pub items: u64,
    /// Payload that stands on disk alone.
    pub disk_bytes: u64,
    /// Sum of what was written to the disk queue.
    pub spilled_bytes: u64,
    /// It cannot be written: nothing is spilled before the next stream begins.
    pub disk_has_failed: bool,
    /// Of the disk queue, where it is one.
    pub log: QueueLogStatus,
    /// The age of the oldest write that is not durable at the peer; zero: there is none. `None`: nothing goes in its order.
    pub oldest_unconfirmed: Option<Duration>,
    /// Since the node started.
    pub peaks: QueuePeaks,
    /// Since [`crate::Command::ForgetPeaks`].
    pub late_peaks: QueuePeaks,
    /// Sums: what came in, and what went out as it was durable at the peer. What is dropped when the order ends is in neither.
    pub entered_bytes: u64,
    pub left_bytes: u64,
    /// Of writers who waited for room.
    pub waits: RoomWaits,
    pub blocked_writers: u64,
    /// Bytes per second at which writers are admitted; `None`: they are not slowed down.
    pub paced_to: Option<u64>,
    /// How long writers were held up of late, one after the other: it runs back while they are not.
    pub held_up: Duration,
    /// What that may come to before the policy acts; `None`: under `strict` it does not.
    pub held_up_limit: Option<Duration>,
    /// It came to half of that or more, and is not over.
    pub holds_writers_up: bool,
}

#[derive(Clone, Debug)]
pub struct PeerStatus {
    pub node: NodeId,
    pub link: LinkStatus,
    pub link_since: Mono,
    pub link_reason: String,
    pub round_trip: Duration,
    pub rate_bytes_per_s: Option<u64>,
    /// The history it is in, while it is connected.
    pub generation: Option<Generation>,
    /// What it has dirty of its own, as it said last.
    pub peers_dirty_bytes: u64,
    /// The tag of the generation over which it keeps its own content, as it said last; 0: none.
    pub keeps_over: u64,
    pub role: Option<Role>,
    /// As the primary says; `None`: unknown, on a secondary that does not hear it.
    pub lag_bytes: Option<u64>,
    /// Numbers of the order that are not durable at the secondary; `None`: unknown, or what is behind has no numbers.
    pub lag_items: Option<u64>,
    /// `None`: unknown, or nothing was applied yet.
    pub lag: Option<Duration>,
    /// On a secondary: how long ago the primary was heard last, and how far behind it said that the copy was.
    pub reported: Option<ReportedStatus>,
    /// What the peer is set to, as it reported last; a promotion there serves by it.
    pub settings: Option<Settings>,
    pub dirty_bytes: u64,
    /// Sequence and the primary's time of the last write known to be applied.
    pub recovery_point: Option<(Seq, Wall)>,
}

#[derive(Clone, Copy, Debug)]
pub struct ReportedStatus {
    pub since: Duration,
    pub lag_bytes: u64,
    pub lag: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub struct SyncStatus {
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub sent_bytes: u64,
    /// Which snapshot of this catch-up travels; `None`: regions travel in the stream.
    pub snapshot: Option<u64>,
    /// During the snapshot before: regions that writers dirtied, each counted once, and what reached the peer.
    pub dirtied_bytes_per_s: Option<u64>,
    pub carried_bytes_per_s: Option<u64>,
    /// What the link would have to carry more, to catch up or for a copy that moves as often as [`crate::limits::SNAPSHOT_WITHIN`] says.
    pub missing_bytes_per_s: Option<u64>,
}
