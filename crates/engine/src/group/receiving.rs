//! Where the receiving half needs the whole group: answers that count memory, a sync that begins, what was applied.

use crate::common::Phase;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Role;
use crate::formats::wire::{Kind, SyncBegin};
use crate::group::Group;
use crate::ids::Seq;
use crate::secondary::receive::Beginning;
use crate::shared::time::Wall;
use crate::state::State;
use crate::{Event, limits};

impl Group {
    /// The superblock that starts replay behind these records is durable: their space is free, the primary may know.
    pub fn applied_recorded(&mut self, cx: &mut Cx, upto: Seq, wall: Wall) {
        let Some(cycle) = self.secondary.cycle.take() else { return };
        let secondary = &mut self.secondary;
        secondary.noted = secondary.ring.trim(cycle.head).unwrap_or(secondary.noted);
        secondary.applied = upto;
        secondary.applied_wall = wall;
        secondary.ack_due = true;
        let tidy = core::mem::take(&mut secondary.bits_forgotten);
        if let Some(cut) = secondary.cut
            && !self.common.sb.current.identity.inconsistent
        {
            cx.event(self.common.config.id, Event::CutEnded { at: cut.from, sent_bytes: 0 });
        }
        if tidy {
            // Killed before that, this node would hold them against what it goes on with.
            self.common.tidy_bits(cx);
        }
        if self.secondary.beginning.is_some() {
            // No acknowledgements before the new stream: this says that what was before it gets on.
            self.say_hello(cx, Kind::GroupState);
        }
        self.secondary.land(&mut self.common, cx);
        if self.secondary.written > self.secondary.applied || self.common.counts_too_few() {
            self.common.set_timer(cx, GroupTimer::ApplyFlush, limits::APPLY_FLUSH_AFTER);
        }
    }

    /// Memory of this node came free: room for writers who wait, for a larger window.
    pub fn memory_freed(&mut self, cx: &mut Cx) {
        self.primary.release_blocked(&mut self.common, cx);
        self.secondary.ack_due |= self.secondary.streaming && self.secondary.window.could_grow(cx.allowance);
    }

    // ---- a stream begins ---------------------------------------------------------------------------------------------

    pub fn sync_begin(&mut self, cx: &mut Cx, begin: SyncBegin) {
        if begin.from.generation.is_blank() {
            return self.common.protocol_error(cx, "a sync of a blank history");
        }
        let welcome = self.common.role() == Role::Secondary && matches!(self.common.phase, Phase::Running);
        let same_run = begin.to == self.common.sb.current.identity.incarnation;
        if !welcome || !same_run || matches!(self.common.state, State::Failed(_)) {
            // Promoted or failed while it was on its way, and perhaps demoted again: the peer learns it.
            return self.say_hello(cx, Kind::GroupState);
        }
        if !self.common.is_of_the_peer(begin.from, begin.parent) {
            return self.common.protocol_error(cx, "a sync of another run or history than its own");
        }
        self.secondary.streaming = false;
        // Another stream begins only when its primary has flushed what it sent before.
        self.secondary.kept.flushed_by_primary(self.secondary.received);
        self.secondary.begins += 1;
        self.secondary.beginning = Some(Beginning { begin, number: self.secondary.begins, recording: false });
        self.secondary.ack_due = true;
        self.secondary.proceed_sync_begin(&mut self.common, cx);
    }
}
