//! A sync in the stream: when it begins, and reads while the stream has use for them.

use crate::IoResult;
use crate::common::Common;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::peer::pause::PauseCause;
use crate::primary::Primary;
use crate::shared::wakes::Wake;
use crate::state::State;

impl Primary {
    // ---- beginning -------------------------------------------------------------------------------------------------

    /// Begins what may begin by itself: an update sync from logging, a repair in a running stream.
    pub fn try_autosync(&mut self, common: &mut Common, cx: &mut Cx) {
        if common.role() != Role::Primary || !common.lifecycle.is_running() {
            return;
        }
        if common.state() != State::Logging {
            self.peer.see_to_repair(common, cx);
        } else if self.peer.may_autosync(common, cx) && self.reconcile(common, cx) {
            self.sync_in_turn(common, cx, false);
        }
    }

    // ---- the pass --------------------------------------------------------------------------------------------------

    /// Starts reads while the stream has use for them. Regions and live writes share the queue: what a sync may have standing
    /// unsent there is its own affair, however much live writes have, or one at full load would never end (P5).
    pub fn pump_resync(&mut self, common: &mut Common, cx: &mut Cx) {
        self.peer.announce_sync(common, cx);
        if self.peer.outbox.goes_by_cuts() {
            return self.peer.pump_cut(common, cx);
        }
        if self.peer.pump_resync(common, cx) {
            self.turn_to_cuts(common, cx);
        }
    }

    pub fn resync_read_done(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, result: IoResult) {
        let (volume, placed) = self.peer.resync_read_done(common, cx, slot, result);
        if let Err(why) = placed {
            // It begins again after a pause, and clients are served meanwhile.
            self.give_up_session(common, cx, &why);
            self.peer.stall.not_the_peers(PauseCause::OwnStoreFailed);
        }
        common.wake(Wake::Range(volume));
    }
}
