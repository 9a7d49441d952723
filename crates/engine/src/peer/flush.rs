//! What is confirmed on both ends: numbers, flushes here, ticks that tell of them, bits that may be cleared.

use crate::common::Common;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::identity::Role;
use crate::formats::wire::{Header, Kind, flags};
use crate::ids::{Seq, VolumeId};
use crate::peer::Peer;
use crate::peer::cut::Cut;
use crate::peer::queue::{Body, Item, cost};
use crate::peer::stream::Stream;
use crate::planted::{Fault, planted};
use crate::primary::write::{Level, Local, What, WriteOp};
use crate::shared::marks::Mark;
use crate::shared::time::Wall;
use crate::shared::volume::Who;
use crate::state::{Mode, Protection, State};
use crate::{Event, IoError, SendPayload, Slice, limits};

/// A write's place in the order.
pub(crate) struct Numbered {
    pub first: Seq,
    pub last: Seq,
    pub level: Level,
    /// How its parts were cut for the stream; `None`: it is in none.
    pub part_bytes: Option<u64>,
}

impl Peer {
    pub fn has_room(&mut self, common: &mut Common, cx: &Cx, slot: u32) -> bool {
        let lone = self.queue.is_empty() && self.reserved_items == 0;
        if self.stream.is_none() || lone || planted(Fault::QueueLimitIgnored) {
            return true;
        }
        let (bytes, items) = common.slots.write(slot).cost_bytes(cx.peer.part_bytes);
        let memory = self.outgoing_bytes(common) + bytes <= cx.allowance;
        common.memory.note(!memory);
        memory
            && self.queue.bytes() + self.sync_waiting_bytes() + self.reserved_bytes + bytes
                <= common.settings.queue_bytes
            && self.queue.len() + self.reserved_items + items <= common.settings.queue_items
    }

    /// A write waits until the range is free; its room in the queue is kept meanwhile.
    pub fn wait_for_range(&mut self, common: &mut Common, slot: u32, offset: u64, length: u64) {
        self.reserve(common, slot);
        let volume = common.slots.write(slot).volume;
        common.volumes.of(volume).wait_for_range(slot, offset, length, true);
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

    /// What writers must wait for now.
    fn write_level(&self, common: &Common) -> Level {
        let promised = self.stream.is_some_and(|s| s.is_promised());
        match common.settings.mode {
            Mode::Sync if promised => Level::Durable,
            Mode::Nearsync if promised => Level::Received,
            _ => Level::Local,
        }
    }

    /// The write takes its place in the order, and in the stream if there is one.
    pub fn number_write(&mut self, common: &Common, cx: &mut Cx, op: &WriteOp) -> Numbered {
        let (wall, level) = (self.numbers.stamp(cx), self.write_level(common));
        let part_bytes = self.stream.is_some().then(|| op.part_bytes(cx.peer.part_bytes));
        let (first, last) = self.numbers.give_many(part_bytes.map_or(1, |part| op.length.div_ceil(part)));
        if last > first {
            cx.marks.hit(Mark::WriteSplitInParts);
        }
        if let Some(part) = part_bytes {
            self.enqueue_parts(op, first, part, wall, level);
        }
        Numbered { first, last, level, part_bytes }
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
    pub fn local_write_failed(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, op: &WriteOp, error: IoError) {
        cx.marks.hit(Mark::LocalWriteFailed);
        if !planted(Fault::FailedWriteClears) {
            common.volumes.of(op.volume).mark_uncovered(op.offset, op.length);
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

    pub fn clear_bits(&mut self, common: &mut Common, cx: &mut Cx) {
        let applied = |s: Stream| if planted(Fault::ClearBeforeApply) { s.received } else { s.applied };
        let Some(applied) = self.stream.map(applied) else { return };
        let mut cleared = false;
        for volume in common.volumes.iter_mut() {
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
        let is_known = common.role() == Role::Primary && common.sb.durable().role == Role::Primary;
        if !is_known || common.greeting.hello().is_none() {
            return;
        }
        let Some(link) = cx.peer.link else { return };
        self.numbers.watch_clock(common, cx);
        let idle = self.stream.is_some_and(|s| s.open && s.applied == self.numbers.last());
        let wall = if idle { self.numbers.stamp(cx) } else { self.numbers.last_wall() };
        let flushed = self.numbers.flush_point(common);
        let incarnation = common.sb.current.identity.incarnation;
        // Which grants this stream goes by: what was taken back before is not under way any more.
        let in_cut = self.cut.as_ref().map_or(0, Cut::recalls);
        let offset = self.stream.map_or(in_cut, |s| s.recalls);
        let header = Header {
            seq: self.numbers.last(),
            offset,
            wall,
            flushed,
            incarnation,
            ..Header::new(Kind::Tick, cx.peer.session, common.id())
        };
        cx.send(link, header, SendPayload::Control(self.make_tick(common, cx.now).encode()));
    }

    /// All local work is done and flushed.
    pub fn primary_at_rest(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        if common.slots.writes() > 0
            || !self.scratch.is_idle()
            || common.volumes.iter().any(|v| v.has_writes_in_flight())
        {
            return false;
        }
        let mut rest = true;
        for index in 0..common.volumes.len() {
            let volume = &common.volumes[index];
            let dirty_cache =
                volume.unflushed_bytes > 0 || volume.flushed < self.numbers.last() && volume.wants_flush();
            if volume.flushing.is_some() {
                rest = false;
            } else if dirty_cache && !volume.latched {
                self.numbers.want_flush(common, cx, VolumeId(index as u16), Who::Engine);
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
