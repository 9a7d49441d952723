//! A region whose local write failed is read again and sent, in the running stream: the secondary stays consistent. One that cannot
//! be read stays dirty, and is tried again later; the stream does not end because of it.

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::injected_fault::{Fault, injected};
use crate::peer::stream::pass::SyncPass;
use crate::peer::{Peer, logging};
use crate::shared::coverage::CoveragePoint;
use crate::shared::write::{WriteOp, WriteStage};
use crate::state::State;
use crate::time::Mono;
use crate::{Event, IoError, limits};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegionRepair {
    /// A local write failed: its region must be read again and sent.
    due: bool,
    /// It could not be read, and is tried again then.
    again_at: Option<Mono>,
}

impl RegionRepair {
    pub fn is_due(&mut self) {
        self.due = true;
    }

    /// A local write failed. What could not be read before is tried again: this one may well be readable.
    pub fn write_failed(&mut self, now: Mono) {
        self.due = !injected(Fault::RepairForgotten);
        self.again_at = self.again_at.map(|_| now);
    }

    /// What could not be read is tried again with all the rest.
    pub fn forget_pause(&mut self) {
        self.again_at = None;
    }
}

/// Regions are being read to be sent in the stream, or are to be, as a local write failed: until then the peer lacks them.
pub(crate) fn reads_regions(peer: &Peer) -> bool {
    peer.repair.due || peer.outbox.syncs_in_stream()
}

impl Peer {
    /// The region cannot be read, and stays dirty. All else goes on in its order: nobody is answered alone because of it.
    pub fn put_off_repair(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        if let Some(stream) = self.outbox.sending.stream_mut() {
            stream.drop_pass();
            stream.void_pending(common);
        }
        self.repair = RegionRepair { due: true, again_at: Some(cx.now.mono.plus(limits::RESYNC_HOLD_OFF_MAX)) };
        cx.event(common.id(), Event::Note(why.into()));
        self.report_state(common, cx, why);
    }

    /// What could not be read is tried again now. False: nothing is put off.
    pub fn end_repairs_pause(&mut self, now: Mono) -> bool {
        let is_put_off = self.repair.due && self.repair.again_at.is_some();
        if is_put_off {
            self.repair.again_at = Some(now);
        }
        is_put_off
    }

    /// Begins what is due in a running stream, or looks again.
    pub fn see_to_repair(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let now = cx.now.mono;
        let in_order = matches!(self.state(common), State::CatchingUp | State::Replicating);
        if !in_order || self.outbox.syncs_in_stream() {
            if self.repair.due {
                // A sync or a pause is under way: look again after it.
                common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
            }
            return;
        }
        if let Some(at) = self.repair.again_at.filter(|at| self.repair.due && now < *at) {
            return common.set_timer(cx, GroupTimer::Autosync, at.since(now));
        }
        if self.repair.due && !logging::lets_repair(&mut self.outbox, common, cx) {
            return common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
        }
        if !core::mem::take(&mut self.repair.due) {
            return;
        }
        if !common.volumes.copies().any(|copy| copy.next_to_ship(0).is_some()) {
            return self.repair_ended(common);
        }
        self.passes += 1;
        let pass = SyncPass::new(now, self.passes, true, common.volumes.dirty_bytes_to_send());
        if let Some(stream) = self.outbox.sending.stream_mut() {
            stream.begin_pass(pass);
        }
    }

    /// The region stays dirty; parts that have not left yet never become writes (rules 1 and 4).
    pub fn local_write_failed(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        slot: u32,
        op: &WriteOp,
        error: IoError,
    ) {
        cx.coverage.hit(CoveragePoint::LocalWriteFailed);
        if !injected(Fault::FailedWriteClears) {
            common.volumes.copy_of(op.volume).set_uncovered(op.offset, op.length);
        }
        // A start would find it in the log, and write it here: so the peer gets it too. That it failed no log tells.
        let is_logged = self.outbox.log.holds(op.last, common.sb.queue_logged && !injected(Fault::EndedLogKept));
        if is_logged {
            logging::close(&mut self.outbox, common, cx, "a local write failed");
        }
        if let Some(stream) = self.outbox.sending.stream_mut().filter(|_| !is_logged) {
            stream.void_unsent(op.first, op.last);
        }
        let stored = common.slots.write(slot);
        stored.enter(WriteStage::Here);
        stored.failed = Some(error);
        cx.event(common.id(), Event::LocalWriteFailed { volume: op.volume, offset: op.offset });
        self.repair.write_failed(cx.now.mono);
        common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
    }
}

impl Peer {
    /// Nothing is left to repair: the reason why something was is of the past.
    pub fn repair_ended(&mut self, common: &mut GroupCommon) {
        if let Some(stream) = self.outbox.sending.stream_mut() {
            stream.drop_pass();
        }
        if self.repair.again_at.take().is_some() && self.state(common) == State::Replicating {
            common.standing.explain("");
        }
    }
}
