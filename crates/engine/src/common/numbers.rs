//! The write order as this primary gives it: numbers, their stamps, and what of it is flushed here.

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Identity;
use crate::ids::{Position, RequestId, Seq, VolumeId, mix};
use crate::injected_fault::{Fault, injected};
use crate::records::record::AfterSuper;
use crate::shared::coverage::CoveragePoint;
use crate::shared::flushes::{FlushRequester, FlushWaiter};
use crate::shared::operation_slots::SlotOperation;
use crate::shared::volume::Volume;
use crate::shared::write::{AckLevel, WriteStage};
use crate::time::{Now, Wall, ahead};
use crate::{IoError, Output, limits};
use core::time::Duration;

/// Numbers given to writes so far.
#[derive(Debug, Default)]
pub(crate) struct WriteNumbers {
    last_seq: Seq,
    last_wall: Wall,
    /// For tags of generations that begin without a promotion.
    entropy: u64,
    /// A new generation is being recorded; writes wait for it.
    generation_due: bool,
}

impl WriteNumbers {
    pub fn seed(&mut self, entropy: u64) {
        self.entropy = entropy;
    }

    /// A run begins: numbers from 1 on, stamps after this.
    pub fn begin_run(&mut self, wall: Wall) {
        (self.last_seq, self.last_wall) = (Seq::NONE, wall);
    }

    /// A start goes on behind this number, and its stamp.
    pub fn go_on(&mut self, last: Seq, wall: Wall) {
        (self.last_seq, self.last_wall) = (last, self.last_wall.max(wall));
    }

    /// The last number given.
    pub fn last(&self) -> Seq {
        self.last_seq
    }

    /// Its stamp, or a later one.
    pub fn last_wall(&self) -> Wall {
        self.last_wall
    }

    /// Gives so many numbers: their stamp, the first and the last of them.
    pub fn give(&mut self, cx: &Cx, count: u64) -> (Wall, Seq, Seq) {
        let first = self.last_seq.next();
        self.last_seq = Seq(self.last_seq.0 + count);
        (self.stamp(cx), first, self.last_seq)
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

    // ---- generations -------------------------------------------------------------------------------------------------

    pub fn generation_is_due(&self) -> bool {
        self.generation_due
    }

    pub fn generation_recorded(&mut self) {
        self.generation_due = false;
    }
}

impl GroupCommon {
    /// Where a primary stands: at the last number it gave.
    pub fn last_position(&self) -> Position {
        self.position(self.numbers.last())
    }

    pub fn identity_sent(&self) -> Identity {
        Identity { position: self.last_position(), ..self.sb.identity }
    }

    /// Says once that the wall clock was set back, and once that it has caught up.
    pub fn watch_clock(&mut self, cx: &mut Cx) {
        let stamp = self.numbers.last_wall();
        self.say_of_clock(cx, ahead(stamp, cx.now.wall), stamp, "this node");
    }

    /// The first write that the peer will not see in order begins a new generation: should the peer be promoted, both
    /// histories can be distinguished (rule 5). `apart`: nothing is sent to it.
    ///
    /// True: it is being recorded, and writes wait for it.
    pub fn want_generation(&mut self, cx: &mut Cx, apart: bool) -> bool {
        let numbers = &mut self.numbers;
        if !apart || self.sb.alone || numbers.generation_due || self.sb.identity.generation.is_blank() {
            return numbers.generation_due;
        }
        cx.coverage.hit(CoveragePoint::GenerationContinued);
        self.begin_generation(cx, 0);
        true
    }

    /// This primary's history goes on in a generation of its own, with a number above this one. Writes wait until it is on record.
    pub fn begin_generation(&mut self, cx: &mut Cx, peers_number: u64) {
        let numbers = &mut self.numbers;
        self.sb.goes_on_alone(numbers.last_seq, peers_number, |number| mix(numbers.entropy, number));
        numbers.generation_due = true;
        self.save_in_both_slots(cx, AfterSuper::NewGeneration);
    }

    // ---- flush -----------------------------------------------------------------------------------------------------

    /// Every earlier acknowledged write of the volume becomes durable here. In `sync` and `nearsync` those writes were
    /// acknowledged only after the peer had them, so while the promise holds nothing more is to be waited for.
    pub fn request_flush(&mut self, cx: &mut Cx, volume: VolumeId, id: RequestId, both_have_it: bool) {
        if injected(Fault::FlushSkipped) {
            return cx.reply(id, Ok(()));
        }
        let record = self.flush_record_due(volume, both_have_it);
        self.want_flush(cx, volume, FlushRequester::Request(id), record);
    }

    /// A write that is done asks for a flush of its volume. What a failed one lost no later one brings back (rule 12).
    pub fn flush_write(&mut self, cx: &mut Cx, slot: u32, id: VolumeId, record: Seq) {
        let latched = self.volumes.of(id).flushes.has_failed();
        let op = self.slots.write(slot);
        if latched {
            op.failed = Some(IoError::Io);
        } else {
            op.enter(WriteStage::Flushing);
            self.want_flush(cx, id, FlushRequester::Write(slot), record);
        }
    }

    /// Before `who` is answered, `record` is to be on record.
    fn want_flush(&mut self, cx: &mut Cx, id: VolumeId, who: FlushRequester, record: Seq) {
        let volume = self.volumes.of(id);
        let waiter = FlushWaiter { who, record };
        if volume.flushes.has_failed() {
            return self.flush_answer(cx, waiter, false);
        }
        if volume.flushes.wait(waiter) {
            self.begin_flush(cx, id);
        }
    }

    pub fn begin_flush(&mut self, cx: &mut Cx, id: VolumeId) {
        let last = self.numbers.last();
        let volume = self.volumes.of(id);
        volume.flushes.begin(volume.complete_through(last));
        let token = self.slots.start(SlotOperation::LocalFlush(id));
        cx.out.push_back(Output::Flush { token, store: self.volumes.flush_store(self.id(), id) });
    }

    /// Those who wait for a flush of more than was complete get it when that is.
    pub fn begin_late_flush(&mut self, cx: &mut Cx, id: VolumeId) {
        let last = self.numbers.last();
        let volume = self.volumes.of(id);
        if volume.flushes.serve_late(volume.complete_through(last)) {
            self.begin_flush(cx, id);
        }
    }

    /// A write is answered without the peer. It is durable here by FUA or by its mode, and counted on the promise of `sync`, under which
    /// nothing was due; now the peer may lack it and keep what it overwrote, so its flush goes on record like any other.
    pub fn stand_alone(&mut self, cx: &mut Cx, slot: u32, both_have_it: bool) {
        let op = self.slots.write(slot);
        if matches!(op.stage(), WriteStage::Logging | WriteStage::Writing) && op.level == AckLevel::Durable {
            // What is due once it is written may be more than now.
            op.level = AckLevel::LocalDurable;
        }
        let durable = op.fua || op.level.is_durable_here();
        let (id, stage, held) = (op.volume, op.stage(), durable && !op.answered && op.failed.is_none());
        let record = self.flush_record_due(id, both_have_it);
        if !held || record == Seq::NONE {
            return;
        }
        match stage {
            WriteStage::Here => self.flush_write(cx, slot, id, record),
            WriteStage::Flushing => self.volumes.of(id).flushes.record_for(slot, record),
            // When it is written it will be seen what is due.
            _ => {}
        }
    }

    /// Flushes by itself after enough bytes or time, so that bits can clear (rule 2).
    pub fn want_flush_for_bits(&mut self, cx: &mut Cx, id: VolumeId) {
        let volume = self.volumes.of(id);
        if !volume.wants_flush() {
            // Nothing is outstanding in a stream: no bit could clear.
            return;
        }
        if volume.flushes.unflushed_bytes() >= limits::LOCAL_FLUSH_BYTES && volume.flushes.may_begin() {
            self.want_flush(cx, id, FlushRequester::Engine, Seq::NONE);
        } else {
            self.set_timer(cx, GroupTimer::LocalFlush, limits::LOCAL_FLUSH_AFTER);
        }
    }

    pub fn flush_for_bits(&mut self, cx: &mut Cx) {
        self.flush_where(cx, Volume::wants_flush);
    }

    /// Whether all writes up to here are flushed on every volume; if not, sees to it. Nobody waits for it.
    pub fn flushed_through(&mut self, cx: &mut Cx, point: Seq) -> bool {
        let last = self.numbers.last();
        self.flush_where(cx, |volume| volume.flushes.through() < point && volume.complete_through(last) >= point);
        self.volumes.iter().all(|volume| volume.flushes.through() >= point)
    }

    /// Every write up to here is flushed on its volume.
    pub fn flush_point(&self) -> Seq {
        self.volumes.iter().map(|volume| volume.flush_point(self.numbers.last())).min().unwrap_or(self.numbers.last())
    }

    /// The peer's journal fills with writes that are not flushed here.
    pub fn flush_for_peer(&mut self, cx: &mut Cx) {
        cx.coverage.hit(CoveragePoint::FlushedForPeer);
        self.flush_where(cx, |volume| volume.flushes.unflushed_bytes() > 0);
    }

    pub fn flush_where(&mut self, cx: &mut Cx, is_due: impl Fn(&Volume) -> bool) {
        for index in 0..self.volumes.len() {
            let volume = &self.volumes[index];
            if volume.flushes.may_begin() && is_due(volume) {
                self.want_flush(cx, VolumeId(index as u16), FlushRequester::Engine, Seq::NONE);
            }
        }
    }

    /// All writes are done and flushed here.
    pub fn is_at_rest(&mut self, cx: &mut Cx) -> bool {
        let moves = self.slots.writes() > 0 || self.slots.spills();
        if moves || self.volumes.iter().any(Volume::has_writes_in_flight) {
            return false;
        }
        let mut rest = true;
        for index in 0..self.volumes.len() {
            let volume = &self.volumes[index];
            let dirty_cache = volume.flushes.unflushed_bytes() > 0
                || volume.flushes.through() < self.numbers.last() && volume.wants_flush();
            if volume.flushes.is_under_way() {
                rest = false;
            } else if dirty_cache && !volume.flushes.has_failed() {
                self.want_flush(cx, VolumeId(index as u16), FlushRequester::Engine, Seq::NONE);
                rest = false;
            }
        }
        rest
    }
}
