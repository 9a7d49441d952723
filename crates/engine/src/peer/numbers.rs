//! The write order as this primary gives it: numbers, their stamps, and what of it is flushed here.

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Identity;
use crate::ids::{RequestId, Seq, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::peer::writers::{flush_answer, flush_record_due};
use crate::shared::coverage::CoveragePoint;
use crate::shared::flushes::{FlushRequester, FlushWaiter};
use crate::shared::operation_slots::SlotOperation;
use crate::shared::write::WriteStage;
use crate::time::{Now, Wall, ahead};
use crate::{IoError, Output, Store, limits};
use core::time::Duration;

/// Numbers given to writes so far.
#[derive(Debug)]
pub(crate) struct WriteNumbers {
    last_seq: Seq,
    last_wall: Wall,
}

impl WriteNumbers {
    pub fn new() -> WriteNumbers {
        WriteNumbers { last_seq: Seq::NONE, last_wall: Wall(0) }
    }

    /// A run begins: numbers from 1 on, stamps after this.
    pub fn begin_run(&mut self, wall: Wall) {
        (self.last_seq, self.last_wall) = (Seq::NONE, wall);
    }

    /// The last number given.
    pub fn last(&self) -> Seq {
        self.last_seq
    }

    /// Its stamp, or a later one.
    pub fn last_wall(&self) -> Wall {
        self.last_wall
    }

    /// Gives the next number.
    pub fn give(&mut self) -> Seq {
        self.give_many(1).0
    }

    /// Gives so many numbers: the first and the last of them.
    pub fn give_many(&mut self, count: u64) -> (Seq, Seq) {
        let first = self.last_seq.next();
        self.last_seq = Seq(self.last_seq.0 + count);
        (first, self.last_seq)
    }

    /// A primary stands at the last number it gave.
    pub fn identity_sent(&self, common: &GroupCommon) -> Identity {
        Identity { position: common.position(self.last_seq), ..common.sb.identity }
    }

    /// The next number's stamp: never goes back, whatever the wall clock does (rule 19).
    pub fn stamp(&mut self, cx: &Cx) -> Wall {
        let floor = if injected(Fault::ClockGoesBack) { 0 } else { self.last_wall.0 + 1 };
        // A hostile peer may have been followed whose clock stood at its end.
        self.last_wall = Wall(cx.now.wall.0.max(floor).min(limits::WALL_MAX));
        self.last_wall
    }

    /// How far this node's clock stands behind the stamps it gave.
    pub fn clock_behind(&self, now: Now) -> Option<Duration> {
        ahead(self.last_wall, now.wall)
    }

    /// Says once that the wall clock was set back, and once that it has caught up.
    pub fn watch_clock(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let behind = ahead(self.last_wall, cx.now.wall);
        common.say_of_clock(cx, behind, self.last_wall, "this node");
    }

    // ---- flush -----------------------------------------------------------------------------------------------------

    /// Every earlier acknowledged write of the volume becomes durable here. In `sync` and `nearsync` those writes were
    /// acknowledged only after the peer had them, so while the promise holds nothing more is to be waited for.
    pub fn request_flush(&mut self, common: &mut GroupCommon, cx: &mut Cx, volume: VolumeId, id: RequestId) {
        if injected(Fault::FlushSkipped) {
            return cx.reply(id, Ok(()));
        }
        self.want_flush(common, cx, volume, FlushRequester::Request(id));
    }

    /// A write that is done asks for a flush of its volume. What a failed one lost no later one brings back (rule 12).
    pub fn flush_write(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32, id: VolumeId) {
        let latched = common.volumes.of(id).flushes.has_failed();
        let op = common.slots.write(slot);
        if latched {
            op.failed = Some(IoError::Io);
        } else {
            op.enter(WriteStage::Flushing);
            self.want_flush(common, cx, id, FlushRequester::Write(slot));
        }
    }

    pub fn want_flush(&mut self, common: &mut GroupCommon, cx: &mut Cx, id: VolumeId, who: FlushRequester) {
        let record = if matches!(who, FlushRequester::Engine) { Seq::NONE } else { flush_record_due(common, id) };
        let volume = common.volumes.of(id);
        let waiter = FlushWaiter { who, record };
        if volume.flushes.has_failed() {
            return flush_answer(common, cx, waiter, false);
        }
        if volume.flushes.wait(waiter) {
            self.begin_flush(common, cx, id);
        }
    }

    pub fn begin_flush(&mut self, common: &mut GroupCommon, cx: &mut Cx, id: VolumeId) {
        let last = self.last_seq;
        let volume = common.volumes.of(id);
        volume.flushes.begin(volume.complete_through(last));
        let token = common.slots.start(SlotOperation::LocalFlush(id));
        cx.out.push_back(Output::Flush { token, store: Store::Volume(common.id(), id) });
    }

    /// Those who wait for a flush of more than was complete get it when that is.
    pub fn begin_late_flush(&mut self, common: &mut GroupCommon, cx: &mut Cx, id: VolumeId) {
        let last = self.last_seq;
        let volume = common.volumes.of(id);
        if volume.flushes.serve_late(volume.complete_through(last)) {
            self.begin_flush(common, cx, id);
        }
    }

    /// A write is answered without the peer. With FUA it counted on the promise of `sync`, under which nothing was due; now
    /// the peer may lack it and keep what it overwrote, so its flush goes on record like any other.
    pub fn stand_alone(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
        let op = common.slots.write(slot);
        let (id, stage, held) = (op.volume, op.stage(), op.fua && !op.answered && op.failed.is_none());
        let record = flush_record_due(common, id);
        if !held || record == Seq::NONE {
            return;
        }
        match stage {
            WriteStage::Here => self.flush_write(common, cx, slot, id),
            WriteStage::Flushing => common.volumes.of(id).flushes.record_for(slot, record),
            // When it is written it will be seen what is due.
            _ => {}
        }
    }

    /// Flushes by itself after enough bytes or time, so that bits can clear (rule 2).
    pub fn want_flush_for_bits(&mut self, common: &mut GroupCommon, cx: &mut Cx, id: VolumeId) {
        let volume = common.volumes.of(id);
        if !volume.wants_flush() {
            // Nothing is outstanding in a stream: no bit could clear.
            return;
        }
        if volume.flushes.unflushed_bytes() >= limits::LOCAL_FLUSH_BYTES && volume.flushes.may_begin() {
            self.want_flush(common, cx, id, FlushRequester::Engine);
        } else {
            common.set_timer(cx, GroupTimer::LocalFlush, limits::LOCAL_FLUSH_AFTER);
        }
    }

    pub fn flush_for_bits(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        for index in 0..common.volumes.len() {
            let volume = &common.volumes[index];
            if volume.wants_flush() && volume.flushes.may_begin() {
                self.want_flush(common, cx, VolumeId(index as u16), FlushRequester::Engine);
            }
        }
    }

    /// Whether all writes up to here are flushed on every volume; if not, sees to it. Nobody waits for it.
    pub fn flushed_through(&mut self, common: &mut GroupCommon, cx: &mut Cx, point: Seq) -> bool {
        let last = self.last_seq;
        for index in 0..common.volumes.len() {
            let volume = &common.volumes[index];
            let due = volume.flushes.through() < point && volume.flushes.may_begin();
            if due && volume.complete_through(last) >= point {
                self.want_flush(common, cx, VolumeId(index as u16), FlushRequester::Engine);
            }
        }
        common.volumes.iter().all(|volume| volume.flushes.through() >= point)
    }

    /// Every write up to here is flushed on its volume.
    pub fn flush_point(&self, common: &GroupCommon) -> Seq {
        common.volumes.iter().map(|volume| volume.flush_point(self.last_seq)).min().unwrap_or(self.last_seq)
    }

    /// The peer's journal fills with writes that are not flushed here.
    pub fn flush_for_peer(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        cx.coverage.hit(CoveragePoint::FlushedForPeer);
        for index in 0..common.volumes.len() {
            let volume = &common.volumes[index];
            if volume.flushes.unflushed_bytes() > 0 && volume.flushes.may_begin() {
                self.want_flush(common, cx, VolumeId(index as u16), FlushRequester::Engine);
            }
        }
    }
}
