//! What is confirmed on both ends: numbers, flushes here, ticks that tell of them, bits that may be cleared.

use crate::common::Common;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::identity::Role;
use crate::formats::wire::{Header, Kind};
use crate::ids::{Seq, VolumeId};
use crate::peer::Peer;
use crate::peer::stream::Stream;
use crate::planted::{Fault, planted};
use crate::shared::marks::Mark;
use crate::shared::volume::Who;
use crate::shared::write::{Level, WriteOp, WriteStage};
use crate::state::{Mode, Protection, State};
use crate::{Event, IoError, SendPayload, limits};

/// A write's place in the order.
pub(crate) struct Numbered {
    pub first: Seq,
    pub last: Seq,
    pub level: Level,
    /// How its parts were cut for the stream; `None`: it is in none.
    pub part_bytes: Option<u64>,
}

impl Peer {
    /// What writers must wait for now.
    fn write_level(&self, common: &Common) -> Level {
        let promised = self.stream().is_some_and(Stream::is_promised);
        match common.settings.mode {
            Mode::Sync if promised => Level::Durable,
            Mode::Nearsync if promised => Level::Received,
            _ => Level::Local,
        }
    }

    /// The write takes its place in the order, and in the stream if there is one.
    pub fn number_write(&mut self, common: &Common, cx: &mut Cx, op: &WriteOp) -> Numbered {
        let (wall, level) = (self.numbers.stamp(cx), self.write_level(common));
        let part_bytes = self.streams().then(|| op.part_bytes(cx.peer.part_bytes));
        let (first, last) = self.numbers.give_many(part_bytes.map_or(1, |part| op.length.div_ceil(part)));
        if last > first {
            cx.marks.hit(Mark::WriteSplitInParts);
        }
        if let (Some(part), Some(stream)) = (part_bytes, self.sending.stream_mut()) {
            stream.enqueue(op, first, part, wall, level);
        }
        Numbered { first, last, level, part_bytes }
    }

    /// The region stays dirty; parts that have not left yet never become writes (rules 1 and 4).
    pub fn local_write_failed(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, op: &WriteOp, error: IoError) {
        cx.marks.hit(Mark::LocalWriteFailed);
        if !planted(Fault::FailedWriteClears) {
            common.volumes.of(op.volume).mark_uncovered(op.offset, op.length);
        }
        if let Some(stream) = self.sending.stream_mut() {
            stream.void_unsent(op.first, op.last);
        }
        let stored = common.slots.write(slot);
        stored.enter(WriteStage::Here);
        stored.failed = Some(error);
        cx.event(common.id(), Event::LocalWriteFailed { volume: op.volume, offset: op.offset });
        self.repair.write_failed(cx.now.mono);
        common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
    }

    pub fn clear_bits(&mut self, common: &mut Common, cx: &mut Cx) {
        let Some(applied) = self.stream().map(Stream::clears_through) else { return };
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
        let idle = self.stream().is_some_and(|stream| stream.is_idle(self.numbers.last()));
        let wall = if idle { self.numbers.stamp(cx) } else { self.numbers.last_wall() };
        let flushed = self.numbers.flush_point(common);
        let incarnation = common.sb.identity.incarnation;
        let header = Header {
            seq: self.numbers.last(),
            offset: self.sending.recalls(),
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
            _ if self.streams() => Protection::Queued,
            _ => Protection::LocalOnly,
        }
    }
}
