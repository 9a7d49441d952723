//! Plain data for people: what `status` shows.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::Settings;
use crate::formats::identity::{Identity, Role};
use crate::group::Group;
use crate::ids::*;
use crate::node::Node;
pub use crate::peer::status::SyncStatus;
use crate::shared::link::Link;
pub use crate::shared::link::LinkStatus;
use crate::shared::time::{Mono, Now, Wall};
use crate::state::{Mode, Pause, Protection, State};

#[derive(Clone, Debug)]
pub struct GroupStatus {
    pub id: GroupId,
    pub identity: Identity,
    pub role: Role,
    pub settings: Settings,
    /// What is wanted. On a secondary that of the primary whose copy this is; `None`: none was heard of yet.
    pub mode: Option<Mode>,
    /// On a primary that was promoted, and has no copy in step since: the mode of the one before, where it was another.
    pub served_before_in: Option<Mode>,
    /// Times of writes stand still: the primary's wall clock is so far behind them.
    pub clock_behind: Option<Duration>,
    pub state: State,
    /// What the group is busy with, or why it is where it is.
    pub reason: String,
    pub starting: bool,
    /// A volume of this primary was written while the node was stopped: what stands here goes to the peer when `sync` is typed.
    pub changed_outside: bool,
    pub protection: Protection,
    pub volumes: Vec<VolumeStatus>,
    pub queue: QueueStatus,
    pub peer: PeerStatus,
    pub sync: Option<SyncStatus>,
    /// A sync that was ordered and has not begun.
    pub sync_ordered: bool,
    /// Where this group stands in the line of those that wait for their turn to sync; 1: it is next.
    pub sync_place: Option<usize>,
    /// Received and not yet on the volumes (secondary).
    pub unapplied_bytes: u64,
    /// What the group holds of the node's memory, or has promised to take.
    pub memory_bytes: u64,
    /// What a promotion would give now (secondary): the place in the write order, and the primary's time of it.
    pub promotable: Option<(Position, Wall)>,
    pub rollback_point: Option<RollbackPointStatus>,
    pub writes: u64,
    pub written_bytes: u64,
    /// Of regions, read for a sync: compared, sent or told to be zero.
    pub resynced_bytes: u64,
    /// Of them, those whose hash was asked about, and those that went as data.
    pub compared_bytes: u64,
    pub shipped_bytes: u64,
    /// Fetched back from the peer after a power loss.
    pub pulled_bytes: u64,
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
    /// The primary's time of that place.
    pub wall: Wall,
    /// Of the undo store: in use, still reserved for the sync, in all.
    pub used_bytes: u64,
    pub reserved_bytes: u64,
    pub limit_bytes: u64,
    /// Why it cannot be gone back to, if it cannot.
    pub damaged: Option<String>,
}

/// A group at one moment, cheap to take.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    pub identity: Identity,
    pub state: State,
    pub mode: Mode,
    pub protection: Protection,
    /// Why this secondary does not apply.
    pub paused: Option<Pause>,
    /// Through with starting, and not changing its role or stopping.
    pub running: bool,
    /// Running, and nothing is under way: both images should be equal when the peer says so too.
    pub settled: bool,
    /// What this primary lost with its power may still have to be fetched.
    pub in_doubt: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct VolumeStatus {
    /// In this group, and on whichever node is primary.
    pub size_bytes: u64,
    /// What its device holds here; the rest is not used.
    pub device_bytes: u64,
    pub dirty_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct QueueStatus {
    pub bytes: u64,
    pub items: u64,
    pub bytes_hwm: u64,
    pub items_hwm: u64,
    pub blocked: Duration,
    pub blocked_writers: u64,
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
    pub role: Option<Role>,
    /// As the primary says; `None`: unknown, on a secondary that does not hear it.
    pub lag_bytes: Option<u64>,
    /// `None`: unknown, or nothing was applied yet.
    pub lag: Option<Duration>,
    /// On a secondary: how long ago the primary was heard last, and how far behind it said that the copy was.
    pub told: Option<TellingStatus>,
    /// What the peer is set to, as it told last; a promotion there serves by it.
    pub settings: Option<Settings>,
    pub dirty_bytes: u64,
    /// Sequence and the primary's time of the last write known to be applied.
    pub recovery_point: Option<(Seq, Wall)>,
}

#[derive(Clone, Copy, Debug)]
pub struct TellingStatus {
    pub since: Duration,
    pub lag_bytes: u64,
    pub lag: Option<Duration>,
}

impl Node {
    /// Inner places of a group as one line, for a simulator's failure report.
    pub fn explain(&self, id: GroupId) -> String {
        self.groups.get(&id).map_or_else(String::new, |g| {
            let link = self.links.get(&g.common.config.peer);
            alloc::format!(
                "{:?} waiters {:?} cold {:?} writes {:?} sending {:?} replica {:?} link {link:?}",
                g.common.lifecycle.phase(),
                g.primary.waiters(),
                g.common.activity.cold,
                g.common.slots.write_ops(),
                g.primary.peer.sending(),
                g.secondary
            )
        })
    }

    /// As a secondary: the number of the oldest write that is kept for a primary that may lose it.
    pub fn oldest_kept(&self, id: GroupId) -> Option<Seq> {
        self.groups.get(&id).and_then(|group| group.secondary.oldest_kept())
    }

    /// The few facts a judge looks at after every step.
    pub fn glance(&self, id: GroupId) -> Option<Glance> {
        let g = self.groups.get(&id)?;
        Some(Glance {
            identity: g.identity(),
            state: g.common.state,
            mode: g.common.settings.mode,
            protection: g.primary.peer.protection(&g.common),
            paused: g.secondary.paused(),
            running: g.common.lifecycle.is_running(),
            in_doubt: g.common.sb.is_in_doubt(),
            settled: g.common.lifecycle.is_running() && g.settled(),
        })
    }

    /// The regions of each volume that this node holds for perhaps different from its peer's; for judges.
    pub fn dirty_regions(&self, id: GroupId) -> Vec<&crate::Bitmap> {
        self.groups.get(&id).map_or_else(Vec::new, |g| g.common.volumes.iter().map(|v| &v.dirty).collect())
    }

    pub fn shared(&self) -> SharedStatus {
        SharedStatus {
            memory_bytes: self.memory.held_bytes(),
            memory_limit_bytes: self.memory.limit_bytes(),
            starting: self.starts.counts(),
            syncing: self.syncs.counts(),
        }
    }

    /// How large a volume is in its group: what its export has, on whichever node that opens.
    pub fn volume_bytes(&self, group: GroupId, volume: VolumeId) -> Option<u64> {
        let group = self.groups.get(&group)?;
        group.common.volumes.get(usize::from(volume.0)).map(|volume| volume.config.size_bytes)
    }

    pub fn status(&self) -> Vec<GroupStatus> {
        self.groups.keys().filter_map(|id| self.status_of(*id)).collect()
    }

    /// `None`: there is no such group.
    pub fn status_of(&self, id: GroupId) -> Option<GroupStatus> {
        let group = self.groups.get(&id)?;
        let status = group.status(self.links.get(&group.common.config.peer)?, self.now);
        Some(GroupStatus { sync_place: self.syncs.place(id), ..status })
    }
}

impl Group {
    fn status(&self, link: &Link, now: Now) -> GroupStatus {
        let identity = self.identity();
        let role = identity.role;
        let secondary = role == Role::Secondary;
        let (bytes, items, high_water) = self.primary.peer.queued();
        let (held_up, held_up_limit) = self.primary.waiters().held_up(&self.common, now.mono);
        GroupStatus {
            id: self.common.id(),
            identity,
            role,
            settings: self.common.settings,
            mode: if secondary { self.common.sb.primary_mode } else { Some(self.common.settings.mode) },
            served_before_in: self
                .common
                .sb
                .primary_mode
                .filter(|mode| !secondary && *mode != self.common.settings.mode),
            clock_behind: self.clock_behind(now),
            state: self.secondary.shown_state(&self.common, self.secondary.told_state().filter(|_| secondary)),
            reason: self
                .secondary
                .standstill(&self.common)
                .map_or_else(|| self.primary.peer.reconcile.shown_reason(&self.common), |(_, why)| why.into()),
            starting: self.common.lifecycle.stage().is_some(),
            changed_outside: role == Role::Primary && self.common.sb.changed_outside,
            protection: self.primary.peer.protection(&self.common),
            volumes: self
                .common
                .volumes
                .iter()
                .zip(self.common.volumes.device_sizes())
                .map(|(v, device_bytes)| VolumeStatus {
                    size_bytes: v.config.size_bytes,
                    device_bytes,
                    dirty_bytes: v.dirty.dirty_bytes(),
                })
                .collect(),
            queue: QueueStatus {
                bytes,
                items,
                bytes_hwm: high_water.bytes,
                items_hwm: high_water.items,
                blocked: Duration::from_nanos(self.common.counters.blocked_ns),
                blocked_writers: self.primary.waiters().count_for_room(),
                held_up,
                held_up_limit,
                holds_writers_up: self.primary.waiters().was_held_up(),
            },
            peer: self.peer_status(link, now),
            sync: self.primary.peer.sync_status(),
            sync_ordered: self.primary.peer.sync_is_ordered(&self.common),
            sync_place: None,
            unapplied_bytes: self.secondary.unapplied_bytes(),
            memory_bytes: self.held_bytes(),
            promotable: self
                .secondary
                .promotable(&self.common)
                .map(|(place, wall)| (place, self.secondary.time_of_copy(place.seq, wall))),
            rollback_point: self.secondary.rollback_point(&self.common),
            writes: self.common.counters.writes,
            written_bytes: self.common.counters.written_bytes,
            resynced_bytes: self.common.counters.resynced_bytes,
            compared_bytes: self.common.counters.compared_bytes,
            shipped_bytes: self.common.counters.shipped_bytes,
            pulled_bytes: self.common.counters.pulled_bytes,
        }
    }

    fn settled(&self) -> bool {
        match self.common.role() {
            Role::Primary => self.primary.peer.is_in_step(&self.common),
            Role::Secondary => self.secondary.is_in_step(),
        }
    }

    fn peer_status(&self, link: &Link, now: Now) -> PeerStatus {
        let status = PeerStatus {
            node: self.common.config.peer,
            link: link.status,
            link_since: link.since,
            link_reason: link.reason.clone(),
            round_trip: link.round_trip(),
            rate_bytes_per_s: link.rate(),
            role: self.common.greeting.hello().map(|h| h.identity.role),
            lag_bytes: None,
            lag: None,
            told: None,
            settings: self.common.greeting.settings(),
            dirty_bytes: self.common.volumes.dirty_bytes(),
            recovery_point: None,
        };
        match self.common.role() {
            Role::Primary => {
                let behind = self.primary.peer.behind(&self.common, now);
                let (lag_bytes, lag) = (Some(behind.lag_bytes), behind.lag);
                PeerStatus { lag_bytes, lag, recovery_point: behind.applied, ..status }
            }
            Role::Secondary => self.secondary.status_of_copy(&self.common, status, now.mono),
        }
    }
}
