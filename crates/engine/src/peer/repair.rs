//! A region whose local write failed is read again and sent, in the running stream: the secondary stays consistent. One that cannot
//! be read stays dirty, and is tried again later; the stream does not end because of it.

use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::peer::Peer;
use crate::peer::resync::Resync;
use crate::planted::{Fault, planted};
use crate::primary::Primary;
use crate::shared::time::Mono;
use crate::state::State;
use crate::{Event, limits};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repair {
    /// A local write failed: its region must be read again and sent.
    pub due: bool,
    /// It could not be read, and is tried again then.
    pub again_at: Option<Mono>,
}

impl Peer {
    pub fn begin_repair(&mut self, common: &mut Common, cx: &mut Cx) {
        let now = cx.now.mono;
        if let Some(at) = self.repair.again_at.filter(|at| self.repair.due && now < *at) {
            return common.set_timer(cx, GroupTimer::Autosync, at.since(now));
        }
        if !core::mem::take(&mut self.repair.due) {
            return;
        }
        let mut skipped = 0;
        if common.volumes.iter().any(|v| v.next_to_ship(0, &mut skipped).is_some()) {
            self.passes += 1;
            self.resync = Some(Resync::new(now, self.passes, true, common.dirty_bytes()));
        } else {
            self.repair_ended(common);
        }
    }
}

impl Primary {
    /// The region cannot be read, and stays dirty. All else goes on in its order: nobody is answered alone because of it.
    pub fn put_off_repair(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        if planted(Fault::RepairEndsStream) {
            return self.pause_for_own_store(common, cx, why);
        }
        self.peer.resync = None;
        self.peer.void_pending(common);
        self.peer.repair = Repair { due: true, again_at: Some(cx.now.mono.plus(limits::RESYNC_HOLD_OFF_MAX)) };
        cx.event(common.id(), Event::Note(why.into()));
        self.peer.transition(common, cx, common.state, why);
    }
}

impl Primary {
    /// An operator's `sync` waits for nothing. False: nothing is put off.
    pub fn repair_at_once(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let is_put_off = self.peer.repair.due && self.peer.repair.again_at.is_some();
        if is_put_off {
            self.peer.repair.again_at = Some(cx.now.mono);
            self.try_autosync(common, cx);
        }
        is_put_off
    }
}

impl Peer {
    /// Nothing is left to repair: the reason why something was is of the past.
    pub fn repair_ended(&mut self, common: &mut Common) {
        self.resync = None;
        if self.repair.again_at.take().is_some() && common.state == State::Replicating {
            common.reason.clear();
        }
    }
}
