//! What is shown of a group.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::formats::bitmap::Bitmap;
use crate::formats::identity::Role;
use crate::group::Group;
use crate::ids::{Seq, VolumeId};
use crate::shared::link::PeerLink;
use crate::status::{GroupGlance, GroupStatus, PeerStatus, QueueStatus, VolumeStatus};
use crate::time::Now;

impl Group {
    /// Inner states as one line, for a simulator's failure report.
    pub fn explain(&self) -> String {
        format!(
            "{:?} waiters {:?} cold {:?} writes {:?} sending {:?} replica {:?}",
            self.common.lifecycle.phase(),
            self.primary.waiters(),
            self.common.activity.waiting(),
            self.common.slots.write_ops(),
            self.primary.peer.outbox.sending(),
            self.secondary
        )
    }

    /// As a secondary: the number of the oldest write that is kept for a primary that may lose it.
    pub fn oldest_kept(&self) -> Option<Seq> {
        self.secondary.oldest_kept()
    }

    pub fn glance(&self) -> GroupGlance {
        GroupGlance {
            identity: self.identity(),
            state: self.common.state(),
            mode: self.common.settings.mode,
            protection: self.primary.peer.protection(&self.common),
            paused: self.secondary.paused(),
            running: self.common.lifecycle.is_running(),
            needs_verification: self.common.sb.needs_verification(),
            drained: self.common.lifecycle.is_running() && self.drained(),
        }
    }

    pub fn dirty_regions(&self) -> impl Iterator<Item = &Bitmap> {
        self.common.volumes.iter().map(|volume| &volume.dirty)
    }

    /// How large a volume is in the group.
    pub fn volume_bytes(&self, volume: VolumeId) -> Option<u64> {
        self.common.volumes.get(usize::from(volume.0)).map(|volume| volume.size_bytes())
    }

    pub fn status(&self, link: &PeerLink, now: Now) -> GroupStatus {
        let identity = self.identity();
        let role = identity.role;
        let secondary = role == Role::Secondary;
        let (bytes, items, high_water) = self.primary.peer.outbox.queued();
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
            state: self.secondary.shown_state(&self.common, self.secondary.reported_state().filter(|_| secondary)),
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
                    size_bytes: v.size_bytes(),
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
            sync_position: None,
            unapplied_bytes: self.secondary.unapplied_bytes(),
            memory_bytes: self.held_bytes(),
            promotable: self
                .secondary
                .promotable(&self.common)
                .map(|(position, wall)| (position, self.secondary.time_of_copy(position.seq, wall))),
            rollback_point: self.secondary.rollback_point(&self.common),
            writes: self.common.counters.writes,
            written_bytes: self.common.counters.written_bytes,
            resynced_bytes: self.common.counters.resynced_bytes,
            compared_bytes: self.common.counters.compared_bytes,
            shipped_bytes: self.common.counters.shipped_bytes,
            pulled_bytes: self.common.counters.pulled_bytes,
        }
    }

    fn drained(&self) -> bool {
        match self.common.role() {
            Role::Primary => self.primary.peer.outbox.is_in_step(&self.common),
            Role::Secondary => self.secondary.is_in_step(),
        }
    }

    fn peer_status(&self, link: &PeerLink, now: Now) -> PeerStatus {
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
            reported: None,
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
