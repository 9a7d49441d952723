//! What is confirmed on both ends: numbers, flushes here, ticks that tell of them, bits that may be cleared.

use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Role;
use crate::formats::wire::{Header, Kind, Tick};
use crate::peer::Peer;
use crate::peer::status::Behind;
use crate::planted::{Fault, planted};
use crate::shared::marks::Mark;
use crate::shared::write::{WriteOp, WriteStage};
use crate::state::{Mode, Protection, State};
use crate::{Event, IoError, SendPayload, limits};

impl Peer {
    /// The region stays dirty; parts that have not left yet never become writes (rules 1 and 4).
    pub fn local_write_failed(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, op: &WriteOp, error: IoError) {
        cx.marks.hit(Mark::LocalWriteFailed);
        if !planted(Fault::FailedWriteClears) {
            common.volumes.of(op.volume).mark_uncovered(op.offset, op.length);
        }
        if let Some(stream) = self.outbox.sending.stream_mut() {
            stream.void_unsent(op.first, op.last);
        }
        let stored = common.slots.write(slot);
        stored.enter(WriteStage::Here);
        stored.failed = Some(error);
        cx.event(common.id(), Event::LocalWriteFailed { volume: op.volume, offset: op.offset });
        self.repair.write_failed(cx.now.mono);
        common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
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
        self.outbox.numbers.watch_clock(common, cx);
        let idle = self.outbox.stream().is_some_and(|stream| stream.is_idle(self.outbox.numbers.last()));
        let wall = if idle { self.outbox.numbers.stamp(cx) } else { self.outbox.numbers.last_wall() };
        let flushed = self.outbox.numbers.flush_point(common);
        let incarnation = common.sb.identity.incarnation;
        let header = Header {
            seq: self.outbox.numbers.last(),
            offset: self.outbox.sending.recalls(),
            wall,
            flushed,
            incarnation,
            ..Header::new(Kind::Tick, cx.peer.session, common.id())
        };
        let Behind { lag_bytes, lag, .. } = self.behind(common, cx.now);
        let (state, mode) = (common.state(), common.settings.mode);
        let tick = Tick { state, mode, lag_bytes, lag, dirty_bytes: common.volumes.dirty_bytes(), clock: cx.now.wall };
        cx.send(link, header, SendPayload::Control(tick.encode()));
    }

    pub fn protection(&self, common: &Common) -> Protection {
        if !self.serves(common) {
            return Protection::None;
        }
        match (common.state(), common.settings.mode) {
            (State::Replicating, Mode::Sync) => Protection::BothDurable,
            (State::Replicating, Mode::Nearsync) => Protection::BothReceived,
            (State::Holding, _) => Protection::Held,
            (State::Failed(_), _) => Protection::None,
            // What the queue brings over is of no use alone: there is no consistent copy before the sync ends.
            (State::Syncing | State::Paused(_), _) if self.outbox.syncs() => Protection::LocalOnly,
            _ if self.outbox.streams() => Protection::Queued,
            _ => Protection::LocalOnly,
        }
    }
}
