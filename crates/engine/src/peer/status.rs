//! What is told and shown of the peer: how far it is behind, what is under way to it.

use crate::common::Common;
use crate::formats::identity::Role;
use crate::formats::wire::Tick;
use crate::group::status::SyncStatus;
use crate::peer::Peer;
use crate::secondary::told::Behind;
use crate::shared::time::{Now, Wall};

use core::time::Duration;

impl Peer {
    pub fn sync_is_ordered(&self, common: &Common) -> bool {
        let waits = self.wanted.is_update() || self.reconcile.is_full_sync_due() || self.full_is_wanted(common);
        waits && common.role() == Role::Primary && !self.syncs()
    }

    pub fn sync_status(&self) -> Option<SyncStatus> {
        let before = self.catch_up.sent_bytes;
        if let Some(cut) = &self.cut {
            let (rates, (done_bytes, total_bytes, payload_bytes)) = (self.cut_rates(), cut.progress());
            return Some(SyncStatus {
                done_bytes,
                total_bytes,
                sent_bytes: before + payload_bytes,
                cut: self.cut_number(),
                dirtied_bytes_per_s: rates.map(|r| r.dirtied),
                carried_bytes_per_s: rates.map(|r| r.carried),
            });
        }
        self.resync.as_ref().map(|r| SyncStatus {
            done_bytes: r.done_bytes,
            total_bytes: r.total_bytes,
            sent_bytes: before + r.sent_bytes,
            cut: None,
            dirtied_bytes_per_s: None,
            carried_bytes_per_s: None,
        })
    }

    // ---- the primary's half ----------------------------------------------------------------------------------------

    pub fn behind(&self, common: &Common, now: Now) -> Behind {
        let in_step = self.stream.is_some_and(|s| s.applied == self.numbers.last()) && self.resync.is_none();
        let wall = if in_step { now.wall } else { self.applied_wall };
        let by_wall = Duration::from_nanos(now.wall.0.saturating_sub(wall.0));
        // A wall clock that was set back would have it younger than it is.
        let lag = if in_step { by_wall } else { by_wall.max(now.mono.since(self.applied_wall_since)) };
        let known = wall != Wall(0);
        Behind {
            lag_bytes: if self.stream.is_some() && self.resync.is_none() {
                self.queue.bytes()
            } else {
                common.volumes.dirty_bytes()
            },
            lag: known.then_some(lag),
            applied: self.recovered.filter(|_| known).map(|seq| (seq, wall)),
        }
    }

    pub fn make_tick(&self, common: &Common, now: Now) -> Tick {
        let Behind { lag_bytes, lag, .. } = self.behind(common, now);
        let (state, mode) = (common.state, common.settings.mode);
        Tick { state, mode, lag_bytes, lag, dirty_bytes: common.volumes.dirty_bytes(), clock: now.wall }
    }
}
