//! Where the receiving half needs the whole group: answers that count memory, a sync that begins, what was applied.

use crate::context::Cx;
use crate::formats::identity::Role;
use crate::formats::wire::{FrameKind, SyncBegin};
use crate::group::Group;
use crate::ids::Seq;
use crate::time::Wall;

impl Group {
    /// The superblock that starts replay behind these records is durable.
    pub fn applied_recorded(&mut self, cx: &mut Cx, upto: Seq, wall: Wall) {
        let Some(says) = self.secondary.note_applied(&mut self.common, cx, upto, wall) else { return };
        if says {
            // No acknowledgements before the new stream: this says that what was before it gets on.
            self.say_hello(cx, FrameKind::GroupState);
        }
        self.secondary.goes_on_applying(&mut self.common, cx);
    }

    /// Memory of this node came free: room for writers who wait, for a larger window.
    pub fn memory_freed(&mut self, cx: &mut Cx) {
        self.primary.release_blocked(&mut self.common, cx);
        self.secondary.memory_freed(cx);
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
        self.secondary.sync_begin(&mut self.common, cx, begin);
    }
}
