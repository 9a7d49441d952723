//! What is shown of a group.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::common::Common;
use crate::formats::identity::Identity;
use crate::formats::identity::Role;
use crate::formats::wire::GroupHello;
use crate::group::Group;
use crate::ids::{Position, Seq};
use crate::primary::Primary;
use crate::secondary::Secondary;
use crate::shared::link::Link;
use crate::status::{Glance, GroupStatus, PeerStatus, QueueStatus, VolumeStatus};
use crate::time::Now;

/// A group, to be looked at.
pub(crate) struct ShownGroup<'a> {
    common: &'a Common,
    primary: &'a Primary,
    secondary: &'a Secondary,
}

impl Group {
    pub fn shown(&self) -> ShownGroup<'_> {
        ShownGroup { common: &self.common, primary: &self.primary, secondary: &self.secondary }
    }
}

impl ShownGroup<'_> {
    /// Inner places as one line, for a simulator's failure report.
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
        self.secondary.replica.journal().oldest_kept()
    }

    pub fn glance(&self) -> Glance {
        Glance {
            identity: self.identity(),
            state: self.common.state(),
            mode: self.common.settings.mode,
            protection: self.primary.peer.protection(self.common),
            paused: self.secondary.replica.paused(),
            running: self.common.lifecycle.is_running(),
            in_doubt: self.common.sb.is_in_doubt(),
            settled: self.common.lifecycle.is_running() && self.settled(),
        }
    }

    pub fn status(&self, link: &Link, now: Now) -> GroupStatus {
        let identity = self.identity();
        let role = identity.role;
        let secondary = role == Role::Secondary;
        let (bytes, items, high_water) = self.primary.peer.outbox.queued();
        let (held_up, held_up_limit) = self.primary.waiters().held_up(self.common, now.mono);
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
            state: self.secondary.shown_state(self.common, self.secondary.told.state().filter(|_| secondary)),
            reason: match self.secondary.shown_words(self.common) {
                Some(words) => words.into(),
                None => self.primary.peer.reconcile.shown_reason(self.common),
            },
            starting: self.common.lifecycle.stage().is_some(),
            changed_outside: role == Role::Primary && self.common.sb.changed_outside,
            protection: self.primary.peer.protection(self.common),
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
            sync_ordered: self.primary.peer.sync_is_ordered(self.common),
            sync_place: None,
            unapplied_bytes: self.secondary.replica.window().held_bytes(),
            memory_bytes: self.held_bytes(),
            promotable: self
                .secondary
                .promotable(self.common)
                .map(|(place, wall)| (place, self.secondary.told.time_of_copy(place.seq, wall))),
            rollback_point: self.secondary.rollback_point(self.common),
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
            Role::Primary => self.primary.peer.outbox.is_in_step(self.common),
            Role::Secondary => self.secondary.replica.progress().is_in_step(),
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
                let behind = self.primary.peer.behind(self.common, now);
                let (lag_bytes, lag) = (Some(behind.lag_bytes), behind.lag);
                PeerStatus { lag_bytes, lag, recovery_point: behind.applied, ..status }
            }
            Role::Secondary => self.secondary.status_of_copy(self.common, status, now.mono),
        }
    }

    /// Memory this group holds or has promised to take: what counts against the node's pool (rule 22).
    pub fn held_bytes(&self) -> u64 {
        let lease =
            if self.common.role() == Role::Secondary { self.secondary.replica.window().lease_bytes() } else { 0 };
        self.primary.peer.outbox.outgoing_bytes(self.common) + lease
    }

    pub fn identity(&self) -> Identity {
        match self.common.role() {
            Role::Primary => self.primary.peer.outbox.numbers.identity_sent(self.common),
            Role::Secondary => {
                Identity { position: self.secondary.replica.progress().position(), ..self.common.sb.identity }
            }
        }
    }

    /// Who the peer may take this node for: it has the role that is on record, also while another one is being recorded, and
    /// when that failed.
    fn told_identity(&self) -> Identity {
        let durable = self.common.sb.durable();
        if durable.role == self.common.role() {
            return self.identity();
        }
        let position = match durable.role {
            Role::Primary => Position {
                generation: durable.generation,
                incarnation: durable.incarnation,
                seq: self.primary.peer.outbox.numbers.last(),
            },
            Role::Secondary => self.secondary.replica.progress().position(),
        };
        Identity { position, ..durable }
    }

    pub fn hello(&self) -> GroupHello {
        let identity = self.told_identity();
        GroupHello {
            identity,
            granted_bytes: self.secondary.replica.window().granted_bytes(),
            dirty_bytes: self.common.volumes.dirty_bytes(),
            failed: self.common.has_failed(),
            has_image: identity.role == Role::Primary || self.secondary.promotable(self.common).is_some(),
            features: 0,
            required: 0,
            settings: self.common.settings,
            volume_bytes: self.common.volumes.told_sizes(identity.role),
        }
    }

    /// Writes are stamped by a clock that never goes back: how far this node's stands behind it, if that is worth a word.
    fn clock_behind(&self, now: Now) -> Option<Duration> {
        match self.common.role() {
            Role::Primary => self.primary.peer.outbox.numbers.clock_behind(now),
            Role::Secondary => self.secondary.told.clock_ahead(),
        }
    }
}
