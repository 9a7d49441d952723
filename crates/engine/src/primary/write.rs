//! A write's life on the primary: room, overlap, number, mark, local write and stream side by side, answer by mode.
//!
//! ```text
//! request -> room in the queue? -> range free? -> number, bits, queue, local write -> done here and there -> answer
//!               (blocked)          (volume.ranges)                                     (waiting_ack)
//! ```

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::common::Common;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::identity::Role;
use crate::formats::wire::{HEADER_BYTES, Header, Kind, flags};
use crate::ids::*;
use crate::limits;
use crate::peer::Peer;
use crate::peer::queue::{Body, Item, cost};
use crate::peer::stream::Stream;
use crate::planted::{Fault, planted};
use crate::primary::Primary;
use crate::records::activity::Pins;
use crate::records::record::AfterSuper;
use crate::shared::marks::Mark;
use crate::shared::slots::Op;
use crate::shared::time::{Mono, Wall};
use crate::shared::volume::{Conflict, FlushWaiter, Who};
use crate::state::{Broken, Mode, Protection, State};
use crate::{Buf, Bytes, Event, IoError, Output, SendPayload, Slice, Store};

/// What the writer waits for at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Local,
    Received,
    Durable,
}

#[derive(Clone, Debug)]
enum What {
    Data(Buf),
    Zero { no_hole: bool },
}

/// How far the write came on the local volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Local {
    Waiting,
    Writing,
    Flushing,
    Done,
}

/// One write, trim or write-zeroes.
#[derive(Clone, Debug)]
pub(crate) struct WriteOp {
    pub id: RequestId,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    what: What,
    fua: bool,
    pub since: Mono,
    /// Its place in the order of arrival.
    pub came: u64,
    first: Seq,
    last: Seq,
    pub level: Level,
    local: Local,
    failed: Option<IoError>,
    /// Nothing more is expected of the peer.
    pub remote_done: bool,
    /// The writer has its answer (early, under policy `strict`).
    pub answered: bool,
    /// Its places in the activity log.
    pub pins: Pins,
}

impl WriteOp {
    pub fn data(id: RequestId, volume: VolumeId, offset: u64, length: u64, buf: Buf, fua: bool, now: Mono) -> WriteOp {
        WriteOp::new(id, volume, offset, length, What::Data(buf), fua, now)
    }

    pub fn zero(
        id: RequestId,
        volume: VolumeId,
        offset: u64,
        length: u64,
        no_hole: bool,
        fua: bool,
        now: Mono,
    ) -> WriteOp {
        WriteOp::new(id, volume, offset, length, What::Zero { no_hole }, fua, now)
    }

    fn new(id: RequestId, volume: VolumeId, offset: u64, length: u64, what: What, fua: bool, since: Mono) -> WriteOp {
        assert!(
            length > 0 && length.is_multiple_of(limits::SECTOR_BYTES) && offset.is_multiple_of(limits::SECTOR_BYTES)
        );
        WriteOp {
            id,
            volume,
            offset,
            length,
            what,
            fua,
            since,
            came: 0,
            first: Seq::NONE,
            last: Seq::NONE,
            level: Level::Local,
            local: Local::Waiting,
            failed: None,
            remote_done: true,
            answered: false,
            pins: Pins::default(),
        }
    }

    /// Parts of at most this size get numbers of their own.
    fn part_bytes(&self, part_bytes: u64) -> u64 {
        match self.what {
            What::Data(_) => part_bytes,
            What::Zero { .. } => limits::ZERO_PART_BYTES_MAX,
        }
    }

    pub fn range(&self) -> (VolumeId, u64, u64) {
        (self.volume, self.offset, self.length)
    }

    fn cost_bytes(&self, part_bytes: u64) -> (u64, u64) {
        let parts = self.length.div_ceil(self.part_bytes(part_bytes));
        let payload = if matches!(self.what, What::Data(_)) { self.length } else { 0 };
        (cost(payload) + (parts - 1) * limits::ITEM_OVERHEAD_BYTES, parts)
    }
}

impl Primary {
    pub fn local_flush_done(&mut self, common: &mut Common, cx: &mut Cx, id: VolumeId, ok: bool) -> Result<(), Broken> {
        let ok = ok || planted(Fault::FailedFlushIgnored);
        let volume = common.volume(id);
        let through = volume.flushing.take().expect("one flush at a time");
        let mut waiters = core::mem::take(&mut volume.flush_now);
        volume.flush_now = core::mem::take(&mut volume.flush_next);
        if ok {
            volume.flushed = volume.flushed.max(through);
            // An older write was still in flight: the flush point is not past the overwrite yet. To flush again before that write
            // is done would bring it no further.
            volume.flush_later.extend(waiters.extract_if(.., |waiter| waiter.record > through));
        } else {
            volume.latched = true;
            cx.marks.hit(Mark::FlushFailedLatched);
        }
        if !ok {
            let volume = common.volume(id);
            waiters.append(&mut volume.flush_now);
            waiters.append(&mut volume.flush_later);
            // Once the loss is on record: a process that dies right after the answer starts with caches that lost something.
            common.caches_lost();
            common.save(cx, Some(AfterSuper::FlushFailed { waiters }));
            return Err(Broken::VolumeFlush);
        }
        let unrecorded = |waiter: &FlushWaiter| waiter.record > common.volumes[usize::from(id.0)].recorded;
        let (recorded, plain): (Vec<_>, Vec<_>) = waiters.into_iter().partition(unrecorded);
        for waiter in plain {
            common.flush_answer(cx, waiter, true);
        }
        if !recorded.is_empty() {
            common.record_flush(cx, id, through, recorded);
        }
        if !common.volume(id).flush_now.is_empty() {
            self.peer.begin_flush(common, cx, id);
        }
        self.peer.begin_late_flush(common, cx, id);
        // The timer may have met this flush, which does not cover what was written beside it.
        self.peer.want_flush_for_bits(common, cx, id);
        self.peer.clear_bits(common, cx);
        self.take_up_promise(common, cx);
        if self.peer.peer_wants_flush {
            self.peer.tell_primary_state(common, cx);
        }
        Ok(())
    }
}

impl Primary {
    // ---- room ------------------------------------------------------------------------------------------------------

    pub fn request_write(&mut self, common: &mut Common, cx: &mut Cx, op: WriteOp) {
        self.came += 1;
        let slot = common.slots.insert(Op::Write(WriteOp { came: self.came, ..op }));
        if self.blocked.is_empty() && self.peer.has_room(common, cx, slot) {
            return self.reserve_and_go(common, cx, slot);
        }
        if self.peer.stream.is_some() && self.peer.syncs() {
            self.turn_to_cuts(common, cx);
            return self.reserve_and_go(common, cx, slot);
        }
        cx.marks.hit(Mark::QueueFullWaited);
        self.blocked.push_back(slot);
        self.check_waits(common, cx);
    }

    /// A write that has its room goes for its range.
    pub fn reserve_and_go(&mut self, common: &mut Common, cx: &mut Cx, slot: u32) {
        let op = common.slots.write(slot);
        let (volume, offset, length) = (op.volume, op.offset, op.length);
        match common.volume(volume).conflict(offset, length) {
            None => self.take_range(common, cx, slot),
            Some(conflict) => {
                cx.marks.hit(match conflict {
                    Conflict::Write => Mark::OverlapWaited,
                    Conflict::Resync => Mark::WriteWaitedForResync,
                });
                if planted(Fault::NumberedAfterAnswer) {
                    common.answer_early(cx, slot);
                }
                self.peer.wait_for_range(common, slot, offset, length);
            }
        }
    }

    /// Lets blocked writers in while there is room.
    pub fn release_blocked(&mut self, common: &mut Common, cx: &mut Cx) {
        while let Some(&slot) = self.blocked.front() {
            if matches!(common.state, State::Failed(_)) || !self.peer.has_room(common, cx, slot) {
                return;
            }
            self.blocked.pop_front();
            if planted(Fault::WaiterForgotten) {
                continue;
            }
            self.was_blocked(common, cx, slot);
            self.reserve_and_go(common, cx, slot);
        }
    }

    /// A writer has waited for room, and need not any more, or failed.
    pub fn was_blocked(&mut self, common: &mut Common, cx: &Cx, slot: u32) {
        let since = common.slots.write(slot).since;
        common.counters.blocked_ns += cx.now.mono.since(since).as_nanos() as u64;
        self.held_up.note(cx.now.mono, Some(since), &common.settings);
    }

    // ---- admission -------------------------------------------------------------------------------------------------

    /// Ranges were freed: those who waited for them go on, in order of arrival.
    pub fn wake_range_waiters(&mut self, common: &mut Common, cx: &mut Cx, volume: VolumeId) {
        if core::mem::replace(&mut common.volume(volume).is_waking, true) {
            // One of them gave its range back at once: it is not for each to wake the next.
            return;
        }
        while let Some(slot) = common.volume(volume).next_free_waiter() {
            if matches!(common.slots.get(slot), Some(Op::Write(_))) {
                self.peer.unreserve(common, slot);
                self.take_range(common, cx, slot);
            } else {
                self.peer.admit_waiting_read(common, cx, slot);
            }
        }
        common.volume(volume).is_waking = false;
    }

    pub fn admit_write(&mut self, common: &mut Common, cx: &mut Cx, slot: u32) {
        self.peer.watch_clock(common, cx);
        if self.saves_for_cut(common, cx, slot) {
            return;
        }
        let wall = self.peer.stamp(cx);
        let level = self.peer.write_level(common);
        let streamed = self.peer.stream.is_some();
        let first = self.peer.last_seq.next();
        let op = common.slots.write(slot).clone();
        let part = op.part_bytes(cx.peer.part_bytes);
        let parts = if streamed { op.length.div_ceil(part) } else { 1 };
        if parts > 1 {
            cx.marks.hit(Mark::WriteSplitInParts);
        }
        if streamed {
            self.peer.enqueue_parts(&op, first, part, wall, level);
        }
        self.peer.last_seq = Seq(self.peer.last_seq.0 + parts);
        let last = self.peer.last_seq;
        let volume = common.volume(op.volume);
        volume.mark_write(op.offset, op.length, last, streamed);
        volume.keep(op.offset, op.length, last, streamed);
        volume.number(slot, first);
        let stored = common.slots.write(slot);
        (stored.first, stored.last, stored.level, stored.local) = (first, last, level, Local::Writing);
        if level > Level::Local {
            stored.remote_done = false;
            self.waiting_ack.push_back((last, slot));
            common.set_timer(cx, GroupTimer::Waits, common.settings.wait_limit.min(Duration::from_secs(1)));
        }
        common.counters.writes += 1;
        common.counters.written_bytes += op.length;
        if cx.trace {
            let part_bytes = if streamed { part } else { op.length };
            cx.event(common.id(), Event::Admitted { id: op.id, first, last, part_bytes });
        }
        common.write_locally(cx, slot, &op, level);
    }

    // ---- completion ------------------------------------------------------------------------------------------------

    pub fn write_done(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, result: Result<(), IoError>) {
        let op = common.slots.write(slot).clone();
        let volume = common.volume(op.volume);
        volume.release(slot);
        common.activity.unpin(&op.pins);
        let record = common.flush_record_due(op.volume);
        let volume = common.volume(op.volume);
        // What a flush under way covers is not durable before that flush ends.
        let others_unflushed = volume.unflushed_bytes > 0 || volume.flushing.is_some() || record > Seq::NONE;
        let durable = op.fua || op.level == Level::Durable;
        // One that failed may have left a part of itself in a cache.
        if !durable || result.is_err() {
            volume.unflushed_bytes += op.length;
        }
        match result {
            Ok(()) => {
                common.slots.write(slot).local = Local::Done;
                if op.fua && others_unflushed {
                    self.peer.flush_write(common, cx, slot, op.volume);
                }
            }
            Err(error) => self.peer.local_write_failed(common, cx, slot, &op, error),
        }
        // Before others go on: one that finds no room has all looked at who wait for the peer, and this one may be overdue.
        common.finish(cx, slot);
        self.wake_range_waiters(common, cx, op.volume);
        self.take_up_promise(common, cx);
        self.peer.begin_late_flush(common, cx, op.volume);
        self.peer.want_flush_for_bits(common, cx, op.volume);
        if !common.activity.cold.is_empty() {
            self.pump_activity(common, cx);
        }
    }
}

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
    fn write_level(&self, common: &Common) -> Level {
        let promised = self.stream.is_some_and(|s| s.promise_from.is_some());
        match common.settings.mode {
            Mode::Sync if promised => Level::Durable,
            Mode::Nearsync if promised => Level::Received,
            _ => Level::Local,
        }
    }

    fn enqueue_parts(&mut self, op: &WriteOp, first: Seq, part: u64, wall: Wall, level: Level) {
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
    fn local_write_failed(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, op: &WriteOp, error: IoError) {
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
    fn flush_write(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, id: VolumeId) {
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
    fn begin_late_flush(&mut self, common: &mut Common, cx: &mut Cx, id: VolumeId) {
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

    fn begin_flush(&mut self, common: &mut Common, cx: &mut Cx, id: VolumeId) {
        let last = self.last_seq;
        let volume = common.volume(id);
        volume.flushing = Some(volume.complete_through(last));
        volume.unflushed_bytes = 0;
        let token = common.start_op(Op::LocalFlush(id));
        cx.out.push_back(Output::Flush { token, store: Store::Volume(common.id(), id) });
    }

    /// Flushes by itself after enough bytes or time, so that bits can clear (rule 2).
    fn want_flush_for_bits(&mut self, common: &mut Common, cx: &mut Cx, id: VolumeId) {
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

impl Common {
    /// Only ever planted.
    fn answer_early(&mut self, cx: &mut Cx, slot: u32) {
        let op = self.slots.write(slot);
        op.answered = true;
        cx.reply(op.id, Ok(()));
    }

    /// A write that has no number yet lets go of its range and of its place in the activity log.
    pub fn give_back_range(&mut self, slot: u32) {
        let op = self.slots.write(slot);
        let (volume, pins) = (op.volume, core::mem::take(&mut op.pins));
        self.activity.unpin(&pins);
        self.volume(volume).release(slot);
    }

    fn write_locally(&mut self, cx: &mut Cx, slot: u32, op: &WriteOp, level: Level) {
        let token = Token::new(self.id(), slot);
        let store = Store::Volume(self.id(), op.volume);
        let durable = (op.fua && !planted(Fault::FuaSkipped)) || level == Level::Durable;
        cx.out.push_back(match &op.what {
            What::Data(buf) => Output::Write {
                token,
                store,
                offset: op.offset,
                parts: vec![Bytes::Payload(Slice { buf: buf.clone(), start: 0, length: op.length as u32 })],
                durable,
                waits_for_peer: level > Level::Local,
            },
            What::Zero { no_hole } => {
                Output::Zero { token, store, offset: op.offset, length: op.length, no_hole: *no_hole, durable }
            }
        });
    }

    /// Answers the writer when here and there is done what its mode asks, and forgets the write.
    pub fn finish(&mut self, cx: &mut Cx, slot: u32) {
        let broken = matches!(self.state, State::Failed(_));
        let op = self.slots.write(slot);
        if op.local != Local::Done || !(op.remote_done || op.failed.is_some()) {
            return;
        }
        let (id, result) = (op.id, op.failed.map_or(if broken { Err(IoError::Io) } else { Ok(()) }, Err));
        if !core::mem::replace(&mut op.answered, true) {
            cx.reply(id, result);
        }
        if self.slots.write(slot).remote_done {
            self.slots.take(slot);
        }
    }

    /// What must be on record before a flush of this volume is acknowledged. While the promise of `sync` holds the peer has
    /// every acknowledged write: a pull brings it back, and nothing is due.
    fn flush_record_due(&self, id: VolumeId) -> Seq {
        let both_have_it = self.state == State::Replicating && self.settings.mode == Mode::Sync;
        if both_have_it || planted(Fault::FlushPointNotRecorded) {
            Seq::NONE
        } else {
            self.volumes[usize::from(id.0)].record_due()
        }
    }

    /// The flush covers an overwrite of what the peer keeps: after a power loss the older write must not be pulled over it.
    fn record_flush(&mut self, cx: &mut Cx, volume: VolumeId, through: Seq, waiters: Vec<FlushWaiter>) {
        cx.marks.hit(Mark::FlushPointRecorded);
        self.sb.current.flushed[usize::from(volume.0)] = through;
        if planted(Fault::FlushPointsMixed) {
            self.sb.current.flushed.fill(through);
        }
        self.save(cx, Some(AfterSuper::FlushRecorded { volume, through, waiters }));
    }

    pub fn flush_recorded(&mut self, cx: &mut Cx, id: VolumeId, through: Seq, waiters: Vec<FlushWaiter>) {
        let volume = self.volume(id);
        volume.recorded = volume.recorded.max(through);
        volume.forget_kept(through);
        for waiter in waiters {
            self.flush_answer(cx, waiter, true);
        }
    }

    /// What a failed flush lost is on record, or cannot be: its waiters are told.
    pub fn flush_failed(&mut self, cx: &mut Cx, waiters: Vec<FlushWaiter>) {
        for waiter in waiters {
            self.flush_answer(cx, waiter, false);
        }
    }

    pub fn flush_answer(&mut self, cx: &mut Cx, waiter: FlushWaiter, ok: bool) {
        let result = if ok { Ok(()) } else { Err(IoError::Io) };
        match waiter.who {
            Who::Request(id) => cx.reply(id, result),
            Who::Engine => {}
            Who::Write(slot) => {
                let op = self.slots.write(slot);
                op.local = Local::Done;
                op.failed = op.failed.or(result.err());
                self.finish(cx, slot);
            }
        }
    }
}

/// What one frame counts against the peer's window: the memory it costs there. A hash fits into the bookkeeping.
pub(crate) fn frame_cost(payload: &SendPayload) -> u64 {
    match payload {
        SendPayload::Data(slice) => cost(u64::from(slice.length)),
        SendPayload::None | SendPayload::Control(_) => cost(0),
    }
}

/// What one frame is on the wire.
pub(crate) fn frame_bytes(payload: &SendPayload) -> u64 {
    let payload_bytes = match payload {
        SendPayload::None => 0,
        SendPayload::Control(bytes) => bytes.len() as u64,
        SendPayload::Data(slice) => u64::from(slice.length),
    };
    payload_bytes + HEADER_BYTES as u64
}
