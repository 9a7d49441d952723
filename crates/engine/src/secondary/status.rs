//! What the primary reported, and what is shown of the copy.

use crate::common::GroupCommon;
use crate::formats::identity::Role;
use crate::secondary::Secondary;
use crate::secondary::rollback::{NO_SPACE, point_keeps_own};
use crate::shared::greeting::{Greeting, PEER_FAILED};
use crate::shared::lifecycle::Phase;
use crate::state::{Pause, State};
use crate::status::{PeerStatus, ReportedStatus, RollbackPointStatus};
use crate::time::{Mono, Wall};

impl Secondary {
    /// Why nothing is written to the volumes of this secondary, and in what words.
    pub fn standstill(&self, common: &GroupCommon) -> Option<(Pause, &'static str)> {
        if self.restore_waits_for_space(common) {
            return Some((Pause::PeerFull, NO_SPACE));
        }
        let pause = self.replica.paused()?;
        let of_delta = self.delta.failure().filter(|_| pause == Pause::DeltaUnsaved);
        Some((pause, of_delta.unwrap_or(pause.words())))
    }

    /// A secondary shows the state its primary reported, unless it knows better.
    pub fn shown_state(&self, common: &GroupCommon, own: State, reported: Option<State>) -> State {
        match (own, self.standstill(common)) {
            (State::Failed(_), _) => own,
            (_, Some((pause, _))) => State::Paused(pause),
            _ => reported.unwrap_or(own),
        }
    }

    /// The reason for that state, where it is not this node's own.
    pub fn shown_words(&self, common: &GroupCommon, peer: &Greeting) -> Option<&'static str> {
        let counts = common.role() == Role::Secondary && peer.unfit().is_none();
        let reported = self.primary_report.state().filter(|_| counts);
        match (self.standstill(common), reported) {
            _ if common.has_failed() => None,
            (Some((_, words)), _) => Some(words),
            (_, Some(State::Failed(_))) => Some(PEER_FAILED),
            (_, Some(State::Paused(pause))) => Some(pause.words()),
            (_, Some(state)) if state.sends() => Some(""),
            _ => None,
        }
    }

    /// A change of role waits for space that may never come.
    pub fn waits_for_space(&self, common: &GroupCommon) -> bool {
        match common.lifecycle.phase() {
            Phase::Promoting(_) => self.replica.paused().is_some(),
            _ => self.restore_waits_for_space(common),
        }
    }

    pub fn rollback_point(&self, common: &GroupCommon) -> Option<RollbackPointStatus> {
        let point = common.sb.rollback_point;
        (point.id != 0).then(|| RollbackPointStatus {
            name: crate::secondary::rollback::name(point.id),
            position: point.position,
            wall: point.wall,
            used_bytes: common.undo.used_bytes(),
            reserved_bytes: common.undo.reserved_bytes(),
            limit_bytes: common.config.history_bytes,
            damaged: self.undo_damaged.clone(),
            is_of_fork: point.is_of_fork,
            keeps_own: point_keeps_own(&common.sb),
        })
    }

    /// How far it is behind only its primary knows.
    pub fn status_of_copy(&self, common: &GroupCommon, status: PeerStatus, now: Mono) -> PeerStatus {
        // In the middle of a sync it can present what a promotion would give, and no more.
        let (position, wall) = match common.sb.identity.inconsistent {
            true => self.promotable(common).map(|(position, wall)| (position.seq, wall)).unzip(),
            false => (Some(self.replica.progress().recovered()), Some(self.replica.progress().applied_wall())),
        };
        let known = wall.filter(|wall| *wall != Wall(0));
        let recovery_point = position.zip(known).map(|(seq, wall)| (seq, self.primary_report.time_of_copy(seq, wall)));
        let status = PeerStatus { recovery_point, ..status };
        let Some((tick, since, counts)) = self.primary_report.newest(now) else { return status };
        let reported = Some(ReportedStatus { since, lag_bytes: tick.lag_bytes, lag: tick.lag });
        if !counts {
            return PeerStatus { reported, ..status };
        }
        let lag_items = self.primary_report.lacked();
        PeerStatus {
            reported,
            lag_bytes: Some(tick.lag_bytes),
            lag_items,
            lag: tick.lag,
            dirty_bytes: tick.dirty_bytes,
            ..status
        }
    }
}
