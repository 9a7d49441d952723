//! Writers, and those who wait for flushes, are answered.

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::ids::{Seq, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::shared::flushes::{FlushRequester, FlushWaiter};
use crate::shared::operation_slots::SlotOperation;
use crate::shared::write::WriteStage;
use crate::state::{Mode, State};
use crate::{IoError, Output};
use alloc::vec::Vec;

/// What must be on record before a flush of this volume is acknowledged. While the promise of `sync` holds the peer has
/// every acknowledged write: a pull brings it back, and nothing is due.
pub(crate) fn flush_record_due(common: &GroupCommon, id: VolumeId) -> Seq {
    let both_have_it = common.state() == State::Replicating && common.settings.mode == Mode::Sync;
    if both_have_it || injected(Fault::FlushPointNotRecorded) {
        Seq::NONE
    } else {
        common.volumes[usize::from(id.0)].record_due()
    }
}

/// Answers the writer when here and there is done what its mode asks, and forgets the write.
pub(crate) fn finish(common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
    let broken = common.has_failed();
    let op = common.slots.write(slot);
    if op.stage() != WriteStage::Here || !(op.remote_done || op.failed.is_some()) {
        return;
    }
    let (id, result) = (op.id, op.failed.map_or(if broken { Err(IoError::Io) } else { Ok(()) }, Err));
    if !core::mem::replace(&mut op.answered, true) {
        cx.reply(id, result);
    }
    if common.slots.write(slot).remote_done {
        common.slots.take(slot);
    }
}

pub(crate) fn flush_answer(common: &mut GroupCommon, cx: &mut Cx, waiter: FlushWaiter, ok: bool) {
    let result = if ok { Ok(()) } else { Err(IoError::Io) };
    match waiter.who {
        FlushRequester::Request(id) => cx.reply(id, result),
        FlushRequester::Engine => {}
        FlushRequester::Write(slot) => {
            let op = common.slots.write(slot);
            op.enter(WriteStage::Here);
            op.failed = op.failed.or(result.err());
            finish(common, cx, slot);
        }
    }
}

pub(crate) fn flush_recorded(
    common: &mut GroupCommon,
    cx: &mut Cx,
    id: VolumeId,
    through: Seq,
    waiters: Vec<FlushWaiter>,
) {
    let volume = common.volumes.of(id);
    volume.flushes.recorded(through);
    volume.copy.forget_kept(through);
    for waiter in waiters {
        flush_answer(common, cx, waiter, true);
    }
}

/// What a failed flush lost is on record, or cannot be: its waiters are told.
pub(crate) fn flush_failed(common: &mut GroupCommon, cx: &mut Cx, waiters: Vec<FlushWaiter>) {
    for waiter in waiters {
        flush_answer(common, cx, waiter, false);
    }
}

/// A write that has no number yet lets go of its range and of its slot in the activity log.
pub(crate) fn give_back_range(common: &mut GroupCommon, slot: u32) {
    let op = common.slots.write(slot);
    let (volume, pins) = (op.volume, core::mem::take(&mut op.pins));
    common.activity.unpin(&pins);
    common.volumes.of(volume).release(slot);
}

pub(crate) fn fail_write(common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
    let op = common.slots.write(slot);
    op.remote_done = true;
    if !core::mem::replace(&mut op.answered, true) {
        cx.out.push_back(Output::Reply { id: op.id, result: Err(IoError::Io) });
    }
    finish(common, cx, slot);
}

/// A write that has neither a number nor a range.
pub(crate) fn fail_unnumbered(common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
    if let Some(SlotOperation::Write(op)) = common.slots.take(slot) {
        assert!(op.stage().waits(), "a write with a number has its own way to fail");
        cx.reply(op.id, Err(IoError::Io));
    }
}
