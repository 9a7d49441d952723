//! What is shown of a group.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::common::GroupCommon;
use crate::formats::identity::{Decision, Identity, Role};
use crate::formats::wire::GroupHello;
use crate::group::handover::{Handover, PeerStands, shown_reason};
use crate::group::reset::GroupReset;
use crate::group::{Group, marks};
use crate::ids::{Position, Seq, VolumeId};
use crate::peer::forks::{keeps_over, step_of_policy, would_yield};
use crate::peer::logging;
use crate::peer::repair::reads_regions;
use crate::peer::resync::waits_for_order;
use crate::peer::status::{oldest_unconfirmed, peaks};
use crate::peer::verify;
use crate::primary::Primary;
use crate::primary::pace::paced_to;
use crate::primary::steps::ladder_status;
use crate::secondary::Secondary;
use crate::shared::link::ShownLink;
use crate::shared::volume::Volume;
use crate::state::State;
use crate::status::{GroupGlance, GroupStatus, HandoverStage, MeetingStatus, PeerStatus, QueueStatus, VolumeStatus};
use crate::time::Now;

/// A group, to be looked at.
pub(crate) struct ShownGroup<'a> {
    common: &'a GroupCommon,
    primary: &'a Primary,
    secondary: &'a Secondary,
    reset: Option<&'a GroupReset>,
    handover: &'a Handover,
}

impl Group {
    pub fn shown(&self) -> ShownGroup<'_> {
        let Group { common, primary, secondary, reset, handover, .. } = self;
        ShownGroup { common, primary, secondary, reset: reset.as_ref(), handover }
    }
}

impl ShownGroup<'_> {
    pub fn state(&self) -> State {
        self.primary.peer.state(self.common)
    }

    /// It syncs.
    pub fn uses_permit(&self) -> bool {
        self.state() == State::Syncing
    }

    /// It records that it syncs in full, and begins then: a permit that it has is kept, as another group in between would make it wait for
    /// its turn again. One that it has lost with its peer is not taken anew.
    pub fn keeps_permit(&self) -> bool {
        let records = self.common.bitmap.awaits_full_sync() || self.primary.peer.reconcile.is_full_sync_due();
        records && self.primary.peer.wants_full(self.common) && !self.common.has_failed()
    }

    /// A permit to sync would be of use to it, now or once its peer is back, or has space again.
    pub fn has_use_for_permit(&self) -> bool {
        let (common, peer) = (self.common, &self.primary.peer);
        let may_use = match self.state() {
            State::Logging => waits_for_order(peer, common).is_none(),
            State::Paused(_) => peer.outbox.syncs(),
            _ => false,
        };
        common.role() == Role::Primary && (may_use || peer.sync_is_ordered(common))
    }

    /// Inner states as one line, for a simulator's failure report.
    pub fn explain(&self) -> String {
        let ShownGroup { common, primary, secondary, handover, .. } = self;
        format!(
            "{:?} handover {:?} waiters {:?} cold {:?} writes {:?} sending {:?} replica {:?}",
            common.lifecycle.phase(),
            handover.stage(),
            primary.waiters(),
            common.activity.waiting(),
            common.slots.write_ops(),
            primary.peer.outbox.sending(),
            secondary
        )
    }

    /// As a secondary: the number of the oldest write that is kept for a primary that may lose it.
    pub fn oldest_kept(&self) -> Option<Seq> {
        self.secondary.replica.journal().oldest_kept()
    }

    pub fn glance(&self) -> GroupGlance {
        let ShownGroup { common, primary, secondary, .. } = self;
        GroupGlance {
            identity: self.identity(),
            state: self.state(),
            mode: common.settings.mode,
            protection: primary.peer.protection(common),
            paused: secondary.replica.paused(),
            running: common.lifecycle.is_running(),
            needs_verification: common.sb.needs_verification(),
            aside: common.sb.aside,
            peer_window_until: secondary.window_until(common),
            drained: common.lifecycle.is_running() && self.drained(),
        }
    }

    fn volumes(&self) -> Vec<VolumeStatus> {
        let (common, greeting) = (self.common, &self.primary.peer.greeting);
        let at_peer = greeting.hello().map(|hello| hello.detached).unwrap_or_default();
        let volumes = common.volumes.iter().zip(common.volumes.device_sizes());
        // What has no disk here has the size that the other node gives it, also where it grew meanwhile.
        let size_there =
            |id: VolumeId| greeting.hello().and_then(|hello| hello.volume_bytes.get(usize::from(id.0)).copied());
        let is_copy = common.role() == Role::Secondary;
        let size_bytes = |id: VolumeId, volume: &Volume| match is_copy && volume.is_detached() {
            true => volume.size_bytes().max(size_there(id).unwrap_or(0)),
            false => volume.size_bytes(),
        };
        let one = |(id, (volume, device_bytes)): (VolumeId, (&Volume, u64))| VolumeStatus {
            is_aside: common.sb.aside.contains(id),
            is_detached: volume.is_detached(),
            is_detached_at_peer: at_peer.contains(id),
            is_unfilled: common.sb.unfilled.contains(id),
            size_bytes: size_bytes(id, volume),
            device_bytes,
            dirty_bytes: volume.copy.dirty.dirty_bytes(),
            queue: self.primary.peer.outbox.queued().1.volumes.of(id),
            traffic: volume.traffic.figures(),
        };
        (0..).map(VolumeId).zip(volumes).map(one).collect()
    }

    fn queue_status(&self, now: Now, rate: Option<u64>) -> QueueStatus {
        let ShownGroup { common, primary, .. } = self;
        let outbox = &primary.peer.outbox;
        let (queued, record) = outbox.queued();
        let (peaks, late_peaks) = peaks(&primary.peer, common, now);
        let (held_up, held_up_limit) = primary.waiters().held_up(common, now.mono);
        QueueStatus {
            bytes: queued.bytes,
            items: queued.items,
            disk_bytes: outbox.stream().map_or(0, |stream| stream.queue().disk_bytes()),
            spilled_bytes: record.spilled_bytes,
            disk_has_failed: outbox.disk_has_failed(),
            log: logging::shown(outbox, common, now.mono),
            oldest_unconfirmed: oldest_unconfirmed(&primary.peer, now),
            peaks,
            late_peaks,
            entered_bytes: record.entered_bytes,
            left_bytes: record.left_bytes,
            waits: common.counters.room_waits,
            blocked_writers: primary.waiters().count_for_room(),
            paced_to: paced_to(primary, common, rate),
            held_up,
            held_up_limit,
            holds_writers_up: primary.waiters().was_held_up(),
        }
    }

    pub fn status(&self, link: ShownLink<'_>, now: Now) -> GroupStatus {
        let ShownGroup { common, primary, secondary, .. } = self;
        let identity = self.identity();
        let role = identity.role;
        let is_secondary = role == Role::Secondary;
        let promotable = secondary.promotable(common);
        let reported = secondary.primary_report.state().filter(|_| is_secondary);
        let set = common.settings.as_set();
        GroupStatus {
            id: common.id(),
            identity,
            role,
            settings: *set,
            mode: if is_secondary { common.sb.primary_mode } else { Some(set.mode) },
            acts_as: if is_secondary { secondary.primary_report.acts_as() } else { Some(common.settings.mode) },
            ladder: ladder_status(primary, common, now.mono),
            served_before_in: common.sb.primary_mode.filter(|mode| !is_secondary && *mode != set.mode),
            clock_behind: self.clock_behind(now),
            state: secondary.shown_state(common, self.state(), reported),
            reason: self.reason(),
            starting: common.lifecycle.stage().is_some(),
            handover: self.handover.status(common.config.peer, now.mono),
            by_policy: step_of_policy(&primary.peer, common),
            has_failed: self.common.has_failed(),
            is_granted: is_secondary && self.peer_stands() == PeerStands::HandedOver && self.is_granted(),
            changed_outside: role == Role::Primary && common.sb.changed_outside,
            protection: primary.peer.protection(common),
            doubts: common.sb.doubts,
            verify: verify::status(&primary.peer, common, now.mono),
            verified: primary.peer.verify.last().cloned(),
            volumes: self.volumes(),
            queue: self.queue_status(now, link.rate),
            peer: self.peer_status(link, now),
            sync: primary.peer.sync_status(),
            meeting: self.meeting(),
            sync_ordered: primary.peer.sync_is_ordered(common),
            syncs_by_itself: self.syncs_by_itself(),
            reads_regions: reads_regions(&primary.peer),
            sync_position: None,
            unapplied_bytes: secondary.replica.window().held_bytes(),
            memory_bytes: self.held_bytes(),
            promotable: promotable
                .map(|(position, wall)| (position, secondary.primary_report.time_of_copy(position.seq, wall))),
            peer_window: secondary.window_left(common, now.mono),
            held_answers: common.window.held(now.mono),
            rollback_point: secondary.rollback_point(common),
            views: secondary.replica.views.status(),
            marks: marks::shown(common),
            saved_delta: secondary.delta.saved(),
            writes: common.counters.writes,
            written_bytes: common.counters.written_bytes,
            streamed_bytes: common.counters.streamed_bytes,
            joined_writes: common.counters.joined_writes,
            joined_frames: common.counters.joined_frames,
            folded_writes: common.counters.folded_writes,
            folded_bytes: common.counters.folded_bytes,
            step: common.counters.step_of_late(now.mono),
            step_hwm: common.counters.step_hwm,
            resynced_bytes: common.counters.resynced_bytes,
            compared_bytes: common.counters.compared_bytes,
            shipped_bytes: common.counters.shipped_bytes,
            pulled_bytes: common.counters.pulled_bytes,
        }
    }

    /// What stands in the way of anything better, in words.
    fn reason(&self) -> String {
        let (common, greeting) = (self.common, &self.primary.peer.greeting);
        let words = self.reset.and_then(GroupReset::words);
        let words = words.or_else(|| self.secondary.shown_words(common, greeting).map(Into::into));
        let words = words.or_else(|| self.nobody_is_primary());
        words.unwrap_or_else(|| self.primary.peer.reconcile.shown_reason(common, greeting))
    }

    /// A secondary that handed over, or was handed over to, names the node that is to be promoted.
    fn nobody_is_primary(&self) -> Option<String> {
        let (common, greeting) = (self.common, &self.primary.peer.greeting);
        if common.has_failed() || !common.lifecycle.is_running() || greeting.unfit().is_some() {
            return None;
        }
        let identity = &common.sb.identity;
        if common.role() == Role::Primary {
            return None;
        }
        let at = identity.handed_over.then_some(identity.position.seq.0);
        let lacks_volume = !common.sb.aside.is_empty();
        let needs_force = self.secondary.promotable(common).is_none() || common.sb.needs_verification() || lacks_volume;
        shown_reason(at, self.peer_stands(), needs_force)
    }

    pub fn peer_stands(&self) -> PeerStands {
        let Some(hello) = self.primary.peer.greeting.hello() else { return PeerStands::Unknown };
        let theirs = &hello.identity;
        match (theirs.role, theirs.position == self.copy_position()) {
            (Role::Primary, _) => PeerStands::Primary,
            (Role::Secondary, _) if hello.failed => PeerStands::Failed,
            (Role::Secondary, true) if theirs.handed_over => PeerStands::HandedOver,
            (Role::Secondary, true) if !hello.lacks_image && !theirs.inconsistent => PeerStands::Equal,
            (Role::Secondary, _) => PeerStands::Elsewhere,
        }
    }

    fn is_granted(&self) -> bool {
        self.common.lifecycle.is_running() && self.primary.peer.greeting.hello().is_some_and(|hello| hello.grants)
    }

    fn meeting(&self) -> Option<MeetingStatus> {
        let hello = self.primary.peer.greeting.hello()?;
        let decision = self.primary.peer.decision(self.common)?;
        Some(MeetingStatus { decision, peer_dirty_bytes: hello.dirty_bytes, peer_failed: hello.failed })
    }

    /// Nobody has to order anything for a sync to begin.
    fn syncs_by_itself(&self) -> bool {
        let (common, peer) = (self.common, &self.primary.peer);
        let is_apart = common.role() == Role::Primary && self.state() == State::Logging;
        let greeting = &peer.greeting;
        let is_of_use = greeting.unfit().is_none() && greeting.hello().is_none_or(|hello| !hello.failed);
        let needs_order = matches!(peer.decision(common), Some(Decision::NeedsFullSync(_) | Decision::Refuse(_)));
        let asks = peer.reconcile.asks_operator() || common.waits_for_choice();
        is_apart && is_of_use && !asks && !needs_order && waits_for_order(peer, common).is_none()
    }

    fn drained(&self) -> bool {
        match self.common.role() {
            Role::Primary => self.primary.peer.outbox.is_in_step(self.common),
            Role::Secondary => self.secondary.replica.progress().is_in_step(),
        }
    }

    fn peer_status(&self, link: ShownLink<'_>, now: Now) -> PeerStatus {
        let status = PeerStatus {
            node: self.common.config.peer,
            link: link.status,
            link_since: link.since,
            link_reason: link.reason.into(),
            round_trip: link.round_trip,
            rate_bytes_per_s: link.rate,
            generation: self.primary.peer.greeting.generation(),
            peers_dirty_bytes: self.primary.peer.greeting.hello().map_or(0, |hello| hello.dirty_bytes),
            keeps_over: self.primary.peer.greeting.hello().map_or(0, |hello| hello.keeps_over),
            role: self.primary.peer.greeting.hello().map(|h| h.identity.role),
            lag_bytes: None,
            lag_items: None,
            lag: None,
            reported: None,
            settings: self.primary.peer.greeting.settings(),
            dirty_bytes: self.common.volumes.dirty_bytes(),
            recovery_point: None,
        };
        match self.common.role() {
            Role::Primary => {
                let behind = self.primary.peer.behind(self.common, now);
                let (lag_bytes, lag_items, lag) = (Some(behind.lag_bytes), behind.lag_items, behind.lag);
                PeerStatus { lag_bytes, lag_items, lag, recovery_point: behind.applied, ..status }
            }
            Role::Secondary => self.secondary.status_of_copy(self.common, status, now.mono),
        }
    }

    /// Memory this group holds or has promised to take: what counts against the node's pool (rule 22).
    pub fn held_bytes(&self) -> u64 {
        let lease =
            if self.common.role() == Role::Secondary { self.secondary.replica.window().lease_bytes() } else { 0 };
        let views = self.secondary.replica.views.held_bytes();
        self.primary.peer.outbox.outgoing_bytes() + lease + self.secondary.delta.held_bytes() + views
    }

    pub fn identity(&self) -> Identity {
        match self.common.role() {
            Role::Primary => self.common.identity_sent(),
            Role::Secondary => Identity { position: self.copy_position(), ..self.common.sb.identity },
        }
    }

    /// Of a copy that could not be taken up: where it stood last.
    fn copy_position(&self) -> Position {
        let position = self.secondary.replica.progress().position();
        if position.generation.is_blank() { self.common.sb.identity.position } else { position }
    }

    /// What is reported to the peer. It may take this node for one that has the role on record, also while another one is being recorded, and
    /// when that failed.
    pub fn hello(&self) -> GroupHello {
        let (mut identity, durable) = (self.identity(), self.common.sb.durable());
        // The primary goes by what is on record here.
        identity.inconsistent |= self.secondary.replica.records_sync_end();
        if durable.role != identity.role {
            let (generation, incarnation) = (durable.generation, durable.incarnation);
            let position = match durable.role {
                Role::Primary => Position { generation, incarnation, seq: self.common.numbers.last() },
                Role::Secondary => self.copy_position(),
            };
            identity = Identity { position, ..durable };
        }
        GroupHello {
            identity,
            granted_bytes: self.secondary.replica.window().granted_bytes(),
            dirty_bytes: self.common.volumes.dirty_bytes_told(&self.common.sb.waits_to_be_filled()),
            failed: self.common.has_failed(),
            lacks_image: identity.role == Role::Secondary && self.secondary.promotable(self.common).is_none(),
            grants: identity.handed_over && self.handover.is_at(HandoverStage::Granted),
            features: 0,
            required: 0,
            settings: *self.common.settings.as_set(),
            confirmed: self.common.sb.confirmed_at_last(),
            went_back_to: self.common.sb.went_back_to,
            keeps_over: keeps_over(&self.primary.peer, self.common),
            yields_to: self.primary.peer.yields_to,
            keeps_by_policy: self.primary.peer.fork.is_some_and(|order| order.by_policy),
            would_yield: would_yield(&self.primary.peer, self.common),
            volume_bytes: self.common.volumes.announced_sizes(identity.role),
            detached: self.common.volumes.detached(),
            unfilled: self.common.sb.waits_to_be_filled(),
        }
    }

    /// Writes are stamped by a clock that never goes back: how far this node's stands behind it, if that is worth a word.
    fn clock_behind(&self, now: Now) -> Option<Duration> {
        match self.common.role() {
            Role::Primary => self.common.numbers.clock_behind(now),
            Role::Secondary => self.secondary.primary_report.clock_ahead(),
        }
    }
}
