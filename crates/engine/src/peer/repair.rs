//! A region whose local write failed is read again and sent, in the running stream: the secondary stays consistent. One that cannot
//! be read stays dirty, and is tried again later; the stream does not end because of it.

use crate::Event;
use crate::context::{Cx, GroupTimer};
use crate::group::Group;
use crate::limits;
use crate::peer::resync::Resync;
use crate::planted::{Fault, planted};
use crate::shared::time::Mono;
use crate::state::State;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repair {
    /// A local write failed: its region must be read again and sent.
    pub due: bool,
    /// It could not be read, and is tried again then.
    pub again_at: Option<Mono>,
}

impl Group {
    pub fn begin_repair(&mut self, cx: &mut Cx) {
        let now = cx.now.mono;
        if let Some(at) = self.primary.peer.repair.again_at.filter(|at| self.primary.peer.repair.due && now < *at) {
            return self.set_timer(cx, GroupTimer::Autosync, at.since(now));
        }
        if !core::mem::take(&mut self.primary.peer.repair.due) {
            return;
        }
        let mut skipped = 0;
        if self.common.volumes.iter().any(|v| v.next_to_ship(0, &mut skipped).is_some()) {
            self.primary.peer.passes += 1;
            self.primary.peer.resync = Some(Resync::new(now, self.primary.peer.passes, true, self.dirty_bytes()));
        } else {
            self.repair_ended();
        }
    }

    /// The region cannot be read, and stays dirty. All else goes on in its order: nobody is answered alone because of it.
    pub fn put_off_repair(&mut self, cx: &mut Cx, why: &str) {
        if planted(Fault::RepairEndsStream) {
            return self.pause_for_own_store(cx, why);
        }
        self.primary.peer.resync = None;
        self.void_pending();
        self.primary.peer.repair = Repair { due: true, again_at: Some(cx.now.mono.plus(limits::RESYNC_HOLD_OFF_MAX)) };
        cx.event(self.id(), Event::Note(why.into()));
        self.transition(cx, self.common.state, why);
    }

    /// An operator's `sync` waits for nothing. False: nothing is put off.
    pub fn repair_at_once(&mut self, cx: &mut Cx) -> bool {
        let is_put_off = self.primary.peer.repair.due && self.primary.peer.repair.again_at.is_some();
        if is_put_off {
            self.primary.peer.repair.again_at = Some(cx.now.mono);
            self.try_autosync(cx);
        }
        is_put_off
    }

    /// Nothing is left to repair: the reason why something was is of the past.
    pub fn repair_ended(&mut self) {
        self.primary.peer.resync = None;
        if self.primary.peer.repair.again_at.take().is_some() && self.common.state == State::Replicating {
            self.common.reason.clear();
        }
    }
}
