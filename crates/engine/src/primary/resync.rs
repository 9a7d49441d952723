//! A sync in the stream: when it begins, and reads while the stream has use for them.

use crate::IoResult;
use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::peer::pause::PauseCause;
use crate::primary::Primary;
use crate::shared::wakes::Wake;
use crate::state::State;

impl Primary {
    // ---- beginning -------------------------------------------------------------------------------------------------

    /// Begins what may begin by itself: an update sync from logging, a repair in a running stream.
    pub fn try_autosync(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if common.role() != Role::Primary || !common.lifecycle.is_running() {
            return;
        }
        if self.peer.state(common) != State::Logging {
            self.peer.see_to_repair(common, cx);
        } else if self.peer.may_autosync(common, cx) && self.reconcile(common, cx) {
            self.request_sync(common, cx, false);
        }
    }

    // ---- the pass --------------------------------------------------------------------------------------------------

    /// Starts reads while the stream has use for them. Regions and live writes share the queue: what a sync may have standing
    /// unsent there is its own affair, however much live writes have, or one at full load would never end (P5).
    pub fn pump_resync(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.peer.announce_sync(common, cx);
        if self.peer.outbox.goes_by_snapshots() {
            return self.peer.pump_snapshot(common, cx);
        }
        if self.peer.pump_resync(common, cx) {
            self.switch_to_snapshots(common, cx);
        }
    }

    pub fn resync_read_done(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32, result: IoResult) {
        let (volume, accepted) = self.peer.resync_read_done(common, cx, slot, result);
        if let Err(why) = accepted {
            // It begins again after a pause, and clients are served meanwhile.
            self.give_up_session(common, cx, &why);
            self.peer.stall.not_the_peers(PauseCause::OwnStoreFailed);
        }
        common.wake(Wake::Range(volume));
    }
}
