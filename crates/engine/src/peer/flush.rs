//! What is confirmed on both ends: numbers, flushes here, ticks that tell of them, bits that may be cleared.

use crate::common::Common;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::identity::Role;
use crate::formats::wire::{Header, Kind, flags};
use crate::ids::{RequestId, Seq, VolumeId};
use crate::peer::Peer;
use crate::peer::queue::{Body, Item, cost};
use crate::peer::stream::Stream;
use crate::planted::{Fault, planted};
use crate::primary::write::{Level, Local, What, WriteOp};
use crate::shared::marks::Mark;
use crate::shared::slots::Op;
use crate::shared::time::Wall;
use crate::shared::volume::{FlushWaiter, Who};
use crate::state::{Mode, Protection, State};
use crate::{Event, IoError, Output, SendPayload, Slice, Store, limits};

impl Peer {
    pub fn has_room(&mut self, common: &mut Common, cx: &Cx, slot: u32) -> bool {
        let lone = self.queue.is_empty() && self.reserved_items == 0;
        if self.stream.is_none() || lone || planted(Fault::QueueLimitIgnored) {
            return true;
        }
        let (bytes, items) = common.slots.write(slot).cost_bytes(cx.peer.part_bytes);
        let memory = self.outgoing_bytes(common) + bytes <= cx.allowance;
        common.wants_memory |= !memory;
        memory
            && self.queue.bytes() + self.sync_waiting_bytes() + self.reserved_bytes + bytes
                <= common.settings.queue_bytes
            && self.queue.len() + self.reserved_items + items <= common.settings.queue_items
    }

    /// A write waits until the range is free; its room in the queue is kept meanwhile.
    pub fn wait_for_range(&mut self, common: &mut Common, slot: u32, offset: u64, length: u64) {
        self.reserve(common, slot);
        let volume = common.slots.write(slot).volume;
        common.volume(volume).wait_for_range(slot, offset, length, true);
    }

    /// Room is promised to a write that waits for something else.
    pub fn reserve(&mut self, common: &mut Common, slot: u32) {
        let (bytes, items) = common.slots.write(slot).cost_bytes(limits::PART_BYTES_MIN);
        self.reserved_bytes += bytes;
        self.reserved_items += items;
    }

    pub fn unreserve(&mut self, common: &mut Common, slot: u32) {
        let (bytes, items) = common.slots.write(slot).cost_bytes(limits::PART_BYTES_MIN);
        self.reserved_bytes -= bytes;
        self.reserved_items -= items;
    }

    /// The next number's stamp: never goes back, whatever the wall clock does (rule 19).
    pub fn stamp(&mut self, cx: &Cx) -> Wall {
        let floor = if planted(Fault::ClockGoesBack) { 0 } else { self.last_wall.0 + 1 };
        // A liar may have been followed whose clock stood at its end.
        self.last_wall = Wall(cx.now.wall.0.max(floor).min(limits::WALL_MAX));
        self.last_wall
    }

    /// What writers must wait for now.
    pub fn write_level(&self, common: &Common) -> Level {
        let promised = self.stream.is_some_and(|s| s.promise_from.is_some());
        match common.settings.mode {
            Mode::Sync if promised => Level::Durable,
            Mode::Nearsync if promised => Level::Received,
            _ => Level::Local,
        }
    }

    pub fn enqueue_parts(&mut self, op: &WriteOp, first: Seq, part: u64, wall: Wall, level: Level) {
        let mut done = 0;
        let mut seq = first;
        while done < op.length {
            let length = part.min(op.length - done);
            let (body, payload) = match &op.what {
                What::Data(buf) => {
                    let slice = Slice { buf: buf.clone(), start: done as u32, length: length as u32 };
                    (Body::Data(slice), length)
                }
                What::Zero { no_hole } => (Body::Zero { no_hole: *no_hole }, 0),
            };
            self.queue.push(Item {
                seq,
                volume: op.volume,
                offset: op.offset + done,
                length,
                wall,
                flags: if level == Level::Received { flags::WANT_RECEIVED } else { 0 },
                body,
                cost_bytes: cost(payload),
            });
            done += length;
            seq = seq.next();
        }
    }

    /// The region stays dirty; parts that have not left yet never become writes (rules 1 and 4).
    pub fn local_write_failed(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, op: &WriteOp, error: IoError) {
        cx.marks.hit(Mark::LocalWriteFailed);
        if !planted(Fault::FailedWriteClears) {
            common.volume(op.volume).mark_uncovered(op.offset, op.length);
        }
        let unsent_from = self.queue.first_unsent();
        let mut seq = op.first.max(unsent_from.unwrap_or(Seq(u64::MAX)));
        while seq <= op.last && self.stream.is_some() {
            self.queue.void(seq);
            seq = seq.next();
        }
        let stored = common.slots.write(slot);
        stored.local = Local::Done;
        stored.failed = Some(error);
        cx.event(common.id(), Event::LocalWriteFailed { volume: op.volume, offset: op.offset });
        self.repair.due = !planted(Fault::RepairForgotten);
        // This one may well be readable.
        self.repair.again_at = self.repair.again_at.map(|_| cx.now.mono);
        common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
    }

    // ---- flush -----------------------------------------------------------------------------------------------------

    /// Every earlier acknowledged write of the volume becomes durable here. In `sync` and `nearsync` those writes were
    /// acknowledged only after the peer had them, so while the promise holds nothing more is to be waited for.
    pub fn request_flush(&mut self, common: &mut Common, cx: &mut Cx, volume: VolumeId, id: RequestId) {
        if planted(Fault::FlushSkipped) {
            return cx.reply(id, Ok(()));
        }
        self.want_flush(common, cx, volume, Who::Request(id));
    }

    /// A write that is done asks for a flush of its volume. What a failed one lost no later one brings back (rule 12).
    pub fn flush_write(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, id: VolumeId) {
        let latched = common.volume(id).latched;
        let op = common.slots.write(slot);
        if latched {
            op.failed = Some(IoError::Io);
        } else {
            op.local = Local::Flushing;
            self.want_flush(common, cx, id, Who::Write(slot));
        }
    }

    pub fn want_flush(&mut self, common: &mut Common, cx: &mut Cx, id: VolumeId, who: Who) {
        let record = if matches!(who, Who::Engine) { Seq::NONE } else { common.flush_record_due(id) };
        let volume = common.volume(id);
        let waiter = FlushWaiter { who, record };
        if volume.latched {
            return common.flush_answer(cx, waiter, false);
        }
        if volume.flushing.is_some() {
            // The one under way may have begun before the waiter's writes were complete.
            let joined = planted(Fault::FlushJoined);
            return if joined { &mut volume.flush_now } else { &mut volume.flush_next }.push(waiter);
        }
        volume.flush_now.push(waiter);
        self.begin_flush(common, cx, id);
    }

    /// Those who wait for a flush of more than was complete get it when that is.
    pub fn begin_late_flush(&mut self, common: &mut Common, cx: &mut Cx, id: VolumeId) {
        let last = self.last_seq;
        let volume = common.volume(id);
        if volume.flushing.is_some() || volume.flush_later.is_empty() {
            return;
        }
        let through = volume.complete_through(last);
        volume.flush_now.extend(volume.flush_later.extract_if(.., |waiter| waiter.record <= through));
        if !volume.flush_now.is_empty() {
            self.begin_flush(common, cx, id);
        }
    }

    /// A write is answered without the peer. With FUA it counted on the promise of `sync`, under which nothing was due; now
    /// the peer may lack it and keep what it overwrote, so its flush goes on record like any other.
    pub fn stand_alone(&mut self, common: &mut Common, cx: &mut Cx, slot: u32) {
        let op = common.slots.write(slot);
        let (id, local, held) = (op.volume, op.local, op.fua && !op.answered && op.failed.is_none());
        let record = common.flush_record_due(id);
        if !held || record == Seq::NONE {
            return;
        }
        match local {
            Local::Done => self.flush_write(common, cx, slot, id),
            Local::Flushing => common.volume(id).record_for(slot, record),
            // When it is written it will be seen what is due.
            Local::Waiting | Local::Writing => {}
        }
    }

    pub fn begin_flush(&mut self, common: &mut Common, cx: &mut Cx, id: VolumeId) {
        let last = self.last_seq;
        let volume = common.volume(id);
        volume.flushing = Some(volume.complete_through(last));
        volume.unflushed_bytes = 0;
        let token = common.start_op(Op::LocalFlush(id));
        cx.out.push_back(Output::Flush { token, store: Store::Volume(common.id(), id) });
    }

    /// Flushes by itself after enough bytes or time, so that bits can clear (rule 2).
    pub fn want_flush_for_bits(&mut self, common: &mut Common, cx: &mut Cx, id: VolumeId) {
        let volume = common.volume(id);
        if !volume.wants_flush() {
            // Nothing is outstanding in a stream: no bit could clear.
            return;
        }
        if volume.unflushed_bytes >= limits::LOCAL_FLUSH_BYTES && volume.flushing.is_none() && !volume.latched {
            self.want_flush(common, cx, id, Who::Engine);
        } else {
            common.set_timer(cx, GroupTimer::LocalFlush, limits::LOCAL_FLUSH_AFTER);
        }
    }

    pub fn flush_for_bits(&mut self, common: &mut Common, cx: &mut Cx) {
        for index in 0..common.volumes.len() {
            let volume = &common.volumes[index];
            if volume.wants_flush() && volume.flushing.is_none() && !volume.latched {
                self.want_flush(common, cx, VolumeId(index as u16), Who::Engine);
            }
        }
    }

    /// Whether all writes up to here are flushed on every volume; if not, sees to it. Nobody waits for it.
    pub fn flushed_through(&mut self, common: &mut Common, cx: &mut Cx, mark: Seq) -> bool {
        let last = self.last_seq;
        for index in 0..common.volumes.len() {
            let volume = &common.volumes[index];
            let due = volume.flushed < mark && volume.flushing.is_none() && !volume.latched;
            if due && volume.complete_through(last) >= mark {
                self.want_flush(common, cx, VolumeId(index as u16), Who::Engine);
            }
        }
        common.volumes.iter().all(|volume| volume.flushed >= mark)
    }

    pub fn clear_bits(&mut self, common: &mut Common, cx: &mut Cx) {
        let applied = |s: Stream| if planted(Fault::ClearBeforeApply) { s.received } else { s.applied };
        let Some(applied) = self.stream.map(applied) else { return };
        let mut cleared = false;
        for volume in &mut common.volumes {
            cleared |= volume.clear_confirmed(applied);
        }
        if cleared {
            cx.timers.set_if_idle(
                TimerKey::Group(common.id(), GroupTimer::TidyBits),
                cx.now.mono.plus(limits::TIDY_BITS_AFTER),
            );
        }
    }

    // ---- clock and rest --------------------------------------------------------------------------------------------

    /// A primary sends its clock, its state, its last number and how far behind its secondary is, however busy it is (rule 19).
    pub fn send_tick(&mut self, common: &mut Common, cx: &mut Cx) {
        if common.role() != Role::Primary {
            return;
        }
        if !cx.peer.is_clogged {
            self.tell_primary_state(common, cx);
        }
        if cx.peer.link.is_some() {
            common.set_timer(cx, GroupTimer::Tick, limits::TICK_EVERY);
        }
    }

    pub fn tell_primary_state(&mut self, common: &mut Common, cx: &mut Cx) {
        // What is not on record the peer was not told.
        let is_known = common.role() == Role::Primary && common.sb.durable.role == Role::Primary;
        if !is_known || common.hello.is_none() {
            return;
        }
        let Some(link) = cx.peer.link else { return };
        self.watch_clock(common, cx);
        let idle = self.stream.is_some_and(|s| s.open && s.applied == self.last_seq);
        let wall = if idle { self.stamp(cx) } else { self.last_wall };
        let flushed = self.flush_point(common);
        let incarnation = common.sb.current.identity.incarnation;
        // Which grants this stream goes by: what was taken back before is not under way any more.
        let in_cut = self.cut.as_ref().map_or(0, |cut| cut.recalls);
        let offset = self.stream.map_or(in_cut, |s| s.recalls);
        let header = Header {
            seq: self.last_seq,
            offset,
            wall,
            flushed,
            incarnation,
            ..Header::new(Kind::Tick, cx.peer.session, common.id())
        };
        cx.send(link, header, SendPayload::Control(self.make_tick(common, cx.now).encode()));
    }

    /// Every write up to here is flushed on its volume.
    pub fn flush_point(&self, common: &Common) -> Seq {
        common.volumes.iter().map(|volume| volume.flush_point(self.last_seq)).min().unwrap_or(self.last_seq)
    }

    /// All local work is done and flushed.
    pub fn primary_at_rest(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        if common.slots.writes() > 0
            || self.scratch_writes > 0
            || common.volumes.iter().any(|v| v.has_writes_in_flight())
        {
            return false;
        }
        let mut rest = true;
        for index in 0..common.volumes.len() {
            let volume = &common.volumes[index];
            let dirty_cache = volume.unflushed_bytes > 0 || volume.flushed < self.last_seq && volume.wants_flush();
            if volume.flushing.is_some() {
                rest = false;
            } else if dirty_cache && !volume.latched {
                self.want_flush(common, cx, VolumeId(index as u16), Who::Engine);
                rest = false;
            }
        }
        rest
    }

    pub fn protection(&self, common: &Common) -> Protection {
        if !self.serves(common) {
            return Protection::None;
        }
        match (common.state, common.settings.mode) {
            (State::Replicating, Mode::Sync) => Protection::BothDurable,
            (State::Replicating, Mode::Nearsync) => Protection::BothReceived,
            (State::Holding, _) => Protection::Held,
            (State::Failed(_), _) => Protection::None,
            // What the queue brings over is of no use alone: there is no consistent copy before the sync ends.
            (State::Syncing | State::Paused(_), _) if self.syncs() => Protection::LocalOnly,
            _ if self.stream.is_some() => Protection::Queued,
            _ => Protection::LocalOnly,
        }
    }
}
