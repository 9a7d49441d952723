//! Where the receiving half needs the whole group: answers that count memory, a sync that begins, what was applied.

use crate::context::Cx;
use crate::formats::identity::Role;
use crate::formats::wire::{FrameKind, SyncBegin};
use crate::group::{Group, views};
use crate::shared::wakes::Wake;

impl Group {
    /// Memory of this node came free: room for writers who wait, for a larger window.
    pub fn memory_freed(&mut self, cx: &mut Cx) {
        self.common.wake(Wake::Room);
        self.secondary.replica.memory_freed(cx);
        views::pump(self, cx);
    }

    // ---- a stream begins ---------------------------------------------------------------------------------------------

    pub fn sync_begin(&mut self, cx: &mut Cx, begin: SyncBegin) {
        if begin.from.generation.is_blank() {
            return self.common.protocol_error(cx, "a sync of a blank history");
        }
        let welcome = self.common.role() == Role::Secondary && self.common.lifecycle.is_running();
        let same_run = begin.to == self.common.sb.identity.incarnation;
        if !welcome || !same_run || self.common.has_failed() {
            // Promoted or failed while it was on its way, and perhaps demoted again: the peer learns it.
            return self.say_hello(cx, FrameKind::GroupState);
        }
        // Confirmations of a snapshot that was given up came to nobody: its primary may not know that it has ended here.
        let is_in_snapshot = self.secondary.replica.progress().snapshot().is_some();
        if is_in_snapshot && !self.shown().hello().identity.inconsistent {
            self.say_hello(cx, FrameKind::GroupState);
        }
        self.secondary.sync_begin(&mut self.common, cx, begin, &self.primary.peer.greeting);
    }
}
