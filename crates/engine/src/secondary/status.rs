//! What the primary told, and what is shown of the copy.

use crate::common::Common;
use crate::formats::identity::Role;
use crate::secondary::Secondary;
use crate::secondary::rollback::NO_SPACE;
use crate::shared::greeting::PEER_FAILED;
use crate::shared::lifecycle::Phase;
use crate::state::{Pause, State};
use crate::status::{PeerStatus, RollbackPointStatus, TellingStatus};
use crate::time::{Mono, Wall};

impl Secondary {
    /// Why nothing is written to the volumes of this secondary, and in what words.
    pub fn standstill(&self, common: &Common) -> Option<(Pause, &'static str)> {
        if self.restore_waits_for_space(common) {
            return Some((Pause::PeerFull, NO_SPACE));
        }
        self.replica.paused().map(|pause| (pause, pause.words()))
    }

    /// A secondary shows the state its primary told, unless it knows better.
    pub fn shown_state(&self, common: &Common, told: Option<State>) -> State {
        match (common.state(), self.standstill(common)) {
            (State::Failed(_), _) => common.state(),
            (_, Some((pause, _))) => State::Paused(pause),
            _ => told.unwrap_or(common.state()),
        }
    }

    /// The reason for that state, where it is not this node's own.
    pub fn shown_words(&self, common: &Common) -> Option<&'static str> {
        let told = self.told.state().filter(|_| common.role() == Role::Secondary && common.greeting.unfit().is_none());
        match (common.state(), self.standstill(common), told) {
            (State::Failed(_), _, _) => None,
            (_, Some((_, words)), _) => Some(words),
            (_, _, Some(State::Failed(_))) => Some(PEER_FAILED),
            (_, _, Some(State::Paused(pause))) => Some(pause.words()),
            (_, _, Some(state)) if state.sends() => Some(""),
            _ => None,
        }
    }

    /// A change of role waits for space that may never come.
    pub fn waits_for_space(&self, common: &Common) -> bool {
        match common.lifecycle.phase() {
            Phase::Promoting(_) => self.replica.paused().is_some(),
            _ => self.restore_waits_for_space(common),
        }
    }

    pub fn rollback_point(&self, common: &Common) -> Option<RollbackPointStatus> {
        let point = common.sb.rollback_point;
        (point.id != 0).then(|| RollbackPointStatus {
            name: crate::secondary::rollback::name(point.id),
            position: point.position,
            wall: point.wall,
            used_bytes: common.undo.used_bytes(),
            reserved_bytes: common.undo.reserved_bytes(),
            limit_bytes: common.config.history_bytes,
            damaged: self.undo_damaged.clone(),
        })
    }

    /// How far it is behind only its primary knows.
    pub fn status_of_copy(&self, common: &Common, status: PeerStatus, now: Mono) -> PeerStatus {
        // In the middle of a sync it can present what a promotion would give, and no more.
        let (place, wall) = match common.sb.identity.inconsistent {
            true => self.promotable(common).map(|(place, wall)| (place.seq, wall)).unzip(),
            false => (Some(self.replica.progress().recovered()), Some(self.replica.progress().applied_wall())),
        };
        let known = wall.filter(|wall| *wall != Wall(0));
        let recovery_point = place.zip(known).map(|(seq, wall)| (seq, self.told.time_of_copy(seq, wall)));
        let status = PeerStatus { recovery_point, ..status };
        let Some((tick, since, counts)) = self.told.newest(now) else { return status };
        let told = Some(TellingStatus { since, lag_bytes: tick.lag_bytes, lag: tick.lag });
        if !counts {
            return PeerStatus { told, ..status };
        }
        PeerStatus { told, lag_bytes: Some(tick.lag_bytes), lag: tick.lag, dirty_bytes: tick.dirty_bytes, ..status }
    }
}
