//! A write's life on the primary, as a straight line ([`WriteStage`] names where it stands, [`Primary::go_on`] takes it further):
//!
//! ```text
//! Arrived   -> is there room in the queue?              else ForRoom    until confirmations or memory free some
//!           -> is its range free?                       else ForRange   until who holds it gives it back
//!           -> would a crash find it?                   else ForRecord  until the log or the stored bits say so
//!           -> does a snapshot still need what stands there? then ForRange, or ForMemory, until that is saved
//!           -> number, bits, queue: is it to be logged?  then Logging   until the log of the queue holds it
//!           -> Writing                                  the local write, beside the stream
//!           -> FUA with more in the cache?              then Flushing
//!           -> Here                                     answered once the peer has it as well, as far as the mode asks
//! ```
//! It has its numbers in one moment only, behind all that it may have to wait for: what waits holds up nobody's order.

use alloc::vec;
use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::peer::verify;
use crate::primary::Primary;
use crate::primary::pace::may_enter;
use crate::primary::steps::{look_at_step, note_numbered, note_room_wait};
use crate::primary::waits::first_look_at_waits;
use crate::records::record::AfterSuper;
use crate::shared::coverage::CoveragePoint;
use crate::shared::flushes::FlushWaiter;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::volume::Conflict;
use crate::shared::wakes::Wake;
use crate::shared::write::{AckLevel, WriteKind, WriteOp, WriteStage};
use crate::state::Broken;
use crate::{Event, IoError, Output, Request, Slice, Store, WriteBytes};

impl Primary {
    pub fn local_flush_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        id: VolumeId,
        ok: bool,
    ) -> Result<(), Broken> {
        let ok = ok || injected(Fault::FailedFlushIgnored);
        let (through, waiters) = common.volumes.of(id).flushes.ended(ok);
        if !ok {
            cx.coverage.hit(CoveragePoint::FlushFailedLatched);
            // Once the loss is on record: a process that dies right after the answer starts with caches that lost something.
            common.sb.caches_lost();
            common.save(cx, Some(AfterSuper::FlushFailed { waiters }));
            return Err(Broken::VolumeFlush);
        }
        let unrecorded = |waiter: &FlushWaiter| common.volumes[usize::from(id.0)].flushes.needs_record(waiter);
        let (recorded, plain): (Vec<_>, Vec<_>) = waiters.into_iter().partition(unrecorded);
        common.answer_flushes(cx, plain, true);
        if !recorded.is_empty() {
            record_flush(common, cx, id, through, recorded);
        }
        if common.volumes.of(id).flushes.has_next() {
            common.begin_flush(cx, id);
        }
        common.begin_late_flush(cx, id);
        // The timer may have met this flush, which does not cover what was written beside it.
        common.want_flush_for_bits(cx, id);
        self.peer.outbox.clear_bits(common, cx);
        common.wake(Wake::Promise);
        self.peer.announce_flush(common, cx);
        Ok(())
    }
}

impl Primary {
    /// A client asks for something.
    pub fn request(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        volume: VolumeId,
        id: RequestId,
        request: Request,
    ) {
        let of_volume = common.volumes.of(volume);
        let broken = of_volume.flushes.has_failed() || of_volume.is_detached() || common.has_failed();
        if !common.serves() || broken {
            return cx.reply(id, Err(IoError::Io));
        }
        let now = cx.now.mono;
        let op = match request {
            Request::Flush => {
                return common.request_flush(cx, volume, id, self.peer.outbox.has_what_was_acknowledged(common));
            }
            Request::Write { offset, length, buf, fua } => WriteOp::data(id, volume, offset, length, buf, fua, now),
            Request::Zero { offset, length, no_hole, fua } => {
                WriteOp::zero(id, volume, offset, length, no_hole, fua, now)
            }
        };
        let came = self.waiters.arrive();
        let slot = common.slots.insert(SlotOperation::Write(op.arrives(came)));
        self.go_on(common, cx, slot);
    }

    /// A write goes on from the stage it is in: what it waited for may be there. Who finds that out has taken it out of its line.
    pub fn go_on(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
        let stage = common.slots.write(slot).stage();
        match stage {
            WriteStage::Arrived => {
                // Those who wait for room are before it, unless it needs none.
                let volume = common.slots.write_ref(slot).range().0;
                let needs_none = self.peer.outbox.passes_by(common, volume);
                if needs_none || self.waiters.nobody_waits_for_room() && may_enter(self, common, cx, slot) {
                    self.go_for_range(common, cx, slot);
                } else {
                    cx.coverage.hit(CoveragePoint::QueueFullWaited);
                    self.wait_for_room(common, cx, slot);
                }
            }
            WriteStage::ForRoom => {
                look_at_step(self, cx);
                let since = self.waiters.was_blocked(common, cx, slot);
                note_room_wait(self, common, cx, since);
                self.go_for_range(common, cx, slot);
            }
            WriteStage::ForRange => {
                self.peer.outbox.unreserve(common, slot);
                self.take_range(common, cx, slot);
            }
            WriteStage::ForRecord => {
                self.peer.outbox.unreserve(common, slot);
                self.go_hot_in_its_room(common, cx, slot);
            }
            WriteStage::ForMemory => {
                self.peer.outbox.unreserve(common, slot);
                self.go_for_range(common, cx, slot);
            }
            WriteStage::Logging => write_logged(self, common, cx, slot),
            WriteStage::Writing | WriteStage::Flushing | WriteStage::Here => unreachable!("a write waits: {stage:?}"),
        }
    }

    /// Whether a write has room. Beside a sync in the stream nobody waits for it: that goes on by snapshots.
    pub fn finds_room(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32) -> bool {
        if self.peer.outbox.has_room(common, cx, slot) {
            return true;
        }
        let beside_sync = self.peer.outbox.syncs();
        if beside_sync {
            self.switch_to_snapshots(common, cx);
        }
        beside_sync
    }

    /// In order of arrival: before those who came after it.
    pub fn wait_for_room(&mut self, common: &mut GroupCommon, cx: &Cx, slot: u32) {
        let op = common.slots.write(slot);
        op.waits_for_peer(cx.now.mono);
        op.enter(WriteStage::ForRoom);
        self.waiters.wait_for_room(&mut common.slots, slot);
        common.wake(Wake::Waits);
    }

    /// A write that has its room goes for its range.
    fn go_for_range(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
        common.slots.write(slot).waits_here(cx.now.mono);
        let (volume, offset, length) = common.slots.write(slot).range();
        match common.volumes.of(volume).conflict(offset, length) {
            None => self.take_range(common, cx, slot),
            Some(conflict) => {
                cx.coverage.hit(match conflict {
                    Conflict::Write => CoveragePoint::OverlapWaited,
                    Conflict::Resync => CoveragePoint::WriteWaitedForResync,
                });
                if injected(Fault::NumberedAfterAnswer) {
                    let op = common.slots.write(slot);
                    op.answered = true;
                    cx.reply(op.id, Ok(()));
                }
                self.peer.outbox.wait_for_range(common, slot, offset, length);
            }
        }
    }

    /// Lets blocked writers in while there is room.
    pub fn release_blocked(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        while let Some(slot) = self.waiters.first_for_room() {
            if common.has_failed() {
                return;
            }
            if !may_enter(self, common, cx, slot) {
                return;
            }
            self.waiters.leave_room();
            if injected(Fault::WaiterForgotten) {
                continue;
            }
            self.go_on(common, cx, slot);
        }
    }

    // ---- admission -------------------------------------------------------------------------------------------------

    /// Ranges were freed: those who waited for them go on, in order of arrival.
    pub fn wake_range_waiters(&mut self, common: &mut GroupCommon, cx: &mut Cx, volume: VolumeId) {
        while let Some(slot) = common.volumes.of(volume).next_free_waiter() {
            if matches!(common.slots.get(slot), Some(SlotOperation::Write(_))) {
                self.go_on(common, cx, slot);
            } else if matches!(common.slots.get(slot), Some(SlotOperation::Verify(_))) {
                verify::admit_waiting(&mut self.peer, common, cx, slot);
            } else {
                self.peer.outbox.admit_waiting_read(common, cx, slot);
            }
        }
    }

    pub fn admit_write(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
        common.watch_clock(cx);
        if self.saves_for_snapshot(common, cx, slot) {
            return;
        }
        let op = common.slots.write(slot).clone();
        if self.peer.outbox.passes_by(common, op.volume) {
            return write_aside(common, cx, slot, &op);
        }
        let streamed = self.peer.outbox.streams();
        let part_bytes = if streamed { op.part_bytes(cx.peer.part_bytes) } else { op.length };
        let (wall, first, last) = common.numbers.give(cx, op.length.div_ceil(part_bytes));
        if last > first {
            cx.coverage.hit(CoveragePoint::WriteSplitInParts);
        }
        let level = self.peer.outbox.enqueue(common, cx, &op, part_bytes, (wall, first));
        common.volumes.of(op.volume).number(slot, (op.offset, op.length), (first, last), streamed);
        let stored = common.slots.write(slot);
        (stored.first, stored.last, stored.level) = (first, last, level);
        let is_logged = streamed && self.peer.outbox.log.gates();
        stored.enter(if is_logged { WriteStage::Logging } else { WriteStage::Writing });
        stored.waits_for_peer(cx.now.mono);
        if level.waits_for_peer() {
            stored.remote_done = false;
            self.waiters.wait_for_peer(last, slot);
            common.set_timer(cx, GroupTimer::Waits, first_look_at_waits(&common.settings));
        }
        if streamed {
            note_numbered(&mut self.ladder, common, cx, last);
        }
        admitted(common, cx, &op, (first, last), part_bytes);
        if is_logged {
            common.slots.write(slot).waits_here(cx.now.mono);
            return self.peer.outbox.log.park(last, slot);
        }
        write_locally(common, cx, slot, &op, level);
    }

    // ---- completion ------------------------------------------------------------------------------------------------

    pub fn write_done(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32, result: Result<(), IoError>) {
        let op = common.slots.write(slot).clone();
        let volume = common.volumes.of(op.volume);
        volume.release(slot);
        common.activity.unpin(&op.pins);
        let record = common.flush_record_due(op.volume, self.peer.outbox.has_what_was_acknowledged(common));
        let volume = common.volumes.of(op.volume);
        // What a flush under way covers is not durable before that flush ends.
        let others_unflushed =
            volume.flushes.unflushed_bytes() > 0 || volume.flushes.is_under_way() || record > Seq::NONE;
        let durable = op.fua || op.level.is_durable_here();
        // One that failed may have left a part of itself in a cache.
        if !durable || result.is_err() {
            volume.flushes.wrote(op.length);
        }
        match result {
            Ok(()) => {
                common.slots.write(slot).enter(WriteStage::Here);
                let counts_on_it = op.fua || op.level == AckLevel::LocalDurable;
                if counts_on_it && others_unflushed {
                    common.flush_write(cx, slot, op.volume, record);
                }
            }
            Err(error) => self.peer.local_write_failed(common, cx, slot, &op, error),
        }
        common.finish(cx, slot);
        common.wake(Wake::Range(op.volume));
        common.wake(Wake::Promise);
        common.begin_late_flush(cx, op.volume);
        common.want_flush_for_bits(cx, op.volume);
        if !common.activity.waiting().is_empty() {
            common.wake(Wake::Covered);
        }
    }
}

/// The log holds the write, or is not waited for any more. What its writer waits for may have changed meanwhile.
fn write_logged(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
    let stored = common.slots.write(slot);
    stored.enter(WriteStage::Writing);
    stored.waits_for_peer(cx.now.mono);
    let op = stored.clone();
    if common.has_failed() {
        return primary.write_done(common, cx, slot, Err(IoError::Io));
    }
    write_locally(common, cx, slot, &op, op.level);
}

/// To a volume that is set aside, beside a stream: no number of the order is for it, so neither queue nor link know of it.
fn write_aside(common: &mut GroupCommon, cx: &mut Cx, slot: u32, op: &WriteOp) {
    cx.coverage.hit(CoveragePoint::WroteAside);
    let last = common.numbers.last();
    common.volumes.of(op.volume).write_aside(slot, (op.offset, op.length), last);
    let stored = common.slots.write(slot);
    (stored.first, stored.last, stored.level) = (last.next(), last, AckLevel::Local);
    stored.enter(WriteStage::Writing);
    // It may have waited with room in the queue, from before the volume was set aside.
    common.wake(Wake::Room);
    admitted(common, cx, op, (last.next(), last), op.length);
    write_locally(common, cx, slot, op, AckLevel::Local);
}

fn admitted(common: &mut GroupCommon, cx: &mut Cx, op: &WriteOp, (first, last): (Seq, Seq), part_bytes: u64) {
    common.counters.writes += 1;
    common.counters.written_bytes += op.length;
    if !common.volumes.copy_of(op.volume).is_aside() || injected(Fault::AsideCountsAsWritten) {
        common.counters.ordered_bytes += op.length;
    }
    if cx.trace {
        cx.event(common.id(), Event::Admitted { id: op.id, first, last, part_bytes });
    }
}

fn write_locally(common: &mut GroupCommon, cx: &mut Cx, slot: u32, op: &WriteOp, level: AckLevel) {
    let token = Token::new(common.id(), slot);
    let store = Store::Volume(common.id(), op.volume);
    let durable = (op.fua && !injected(Fault::FuaSkipped)) || level.is_durable_here();
    cx.out.push_back(match &op.what {
        WriteKind::Data(buf) => Output::Write {
            token,
            store,
            offset: op.offset,
            parts: vec![WriteBytes::Payload(Slice { buf: buf.clone(), start: 0, length: op.length as u32 })],
            durable,
            waits_for_peer: level.waits_for_peer(),
        },
        WriteKind::Zero { no_hole } => {
            Output::Zero { token, store, offset: op.offset, length: op.length, no_hole: *no_hole, durable }
        }
    });
}

/// The flush covers an overwrite of what the peer keeps: after a power loss the older write must not be pulled over it.
fn record_flush(common: &mut GroupCommon, cx: &mut Cx, volume: VolumeId, through: Seq, waiters: Vec<FlushWaiter>) {
    cx.coverage.hit(CoveragePoint::FlushPointRecorded);
    common.sb.flushed(volume, through);
    common.save(cx, Some(AfterSuper::FlushRecorded { volume, through, waiters }));
}
