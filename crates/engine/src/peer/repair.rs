//! A region whose local write failed is read again and sent, in the running stream: the secondary stays consistent. One that cannot
//! be read stays dirty, and is tried again later; the stream does not end because of it.

use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::peer::Peer;
use crate::peer::resync::Resync;
use crate::shared::time::Mono;
use crate::state::State;

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
            self.resync = Some(Resync::new(now, self.passes, true, common.volumes.dirty_bytes()));
        } else {
            self.repair_ended(common);
        }
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
