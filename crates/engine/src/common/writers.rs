//! Writers, and those who wait for flushes, are answered.

use crate::common::GroupCommon;
use crate::common::given_window::holds_answer;
use crate::context::Cx;
use crate::ids::{Seq, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::shared::flushes::{FlushRequester, FlushWaiter};
use crate::shared::operation_slots::SlotOperation;
use crate::shared::write::WriteStage;
use crate::{IoError, Output};
use alloc::vec::Vec;

impl GroupCommon {
    /// What must be on record before a flush of this volume is acknowledged. While the promise of `sync` holds and so `both_have_it`,
    /// all that was acknowledged, a pull brings it back, and nothing is due; of a volume that is set aside the peer has nothing new.
    pub fn flush_record_due(&self, id: VolumeId, both_have_it: bool) -> Seq {
        let both_have_it = both_have_it && !self.volumes[usize::from(id.0)].copy.is_aside();
        if both_have_it || injected(Fault::FlushPointNotRecorded) {
            Seq::NONE
        } else {
            self.volumes[usize::from(id.0)].record_due()
        }
    }

    /// Answers the writer when here and there is done what its mode asks, and forgets the write.
    pub fn finish(&mut self, cx: &mut Cx, slot: u32) {
        let broken = self.has_failed();
        let op = self.slots.write(slot);
        op.stands_here(cx.now.mono);
        if op.stage() != WriteStage::Here || !(op.remote_done || op.failed.is_some()) {
            return;
        }
        if holds_answer(self, cx, slot) {
            return;
        }
        let op = self.slots.write(slot);
        let (id, result) = (op.id, op.failed.map_or(if broken { Err(IoError::Io) } else { Ok(()) }, Err));
        if !core::mem::replace(&mut op.answered, true) {
            cx.reply(id, result);
        }
        if self.slots.write(slot).remote_done {
            self.slots.take(slot);
        }
    }

    pub fn flush_answer(&mut self, cx: &mut Cx, waiter: FlushWaiter, ok: bool) {
        let result = if ok { Ok(()) } else { Err(IoError::Io) };
        match waiter.who {
            FlushRequester::Request(id) => cx.reply(id, result),
            FlushRequester::Engine => {}
            FlushRequester::Write(slot) => {
                let op = self.slots.write(slot);
                op.enter(WriteStage::Here);
                op.failed = op.failed.or(result.err());
                self.finish(cx, slot);
            }
        }
    }

    pub fn flush_recorded(&mut self, cx: &mut Cx, id: VolumeId, through: Seq, waiters: Vec<FlushWaiter>) {
        let volume = self.volumes.of(id);
        volume.flushes.recorded(through);
        volume.copy.forget_kept(through);
        self.answer_flushes(cx, waiters, true);
    }

    /// Of one that failed when it is on record what was lost, or cannot be.
    pub fn answer_flushes(&mut self, cx: &mut Cx, waiters: Vec<FlushWaiter>, ok: bool) {
        for waiter in waiters {
            self.flush_answer(cx, waiter, ok);
        }
    }

    /// A write that has no number yet lets go of its range and of its slot in the activity log.
    pub fn give_back_range(&mut self, slot: u32) {
        let op = self.slots.write(slot);
        let (volume, pins) = (op.volume, core::mem::take(&mut op.pins));
        self.activity.unpin(&pins);
        self.volumes.of(volume).release(slot);
    }

    pub fn fail_write(&mut self, cx: &mut Cx, slot: u32) {
        let op = self.slots.write(slot);
        op.remote_done = true;
        if !core::mem::replace(&mut op.answered, true) {
            cx.out.push_back(Output::Reply { id: op.id, result: Err(IoError::Io) });
        }
        self.finish(cx, slot);
    }

    /// A write that has neither a number nor a range.
    pub fn fail_unnumbered(&mut self, cx: &mut Cx, slot: u32) {
        if let Some(SlotOperation::Write(op)) = self.slots.take(slot) {
            assert!(op.stage().waits(), "a write with a number has its own way to fail");
            cx.reply(op.id, Err(IoError::Io));
        }
    }
}
