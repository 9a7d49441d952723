//! What a primary tells its peer of itself, by itself and whenever something changed: its clock, its state, how far it is behind.

use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Role;
use crate::formats::wire::{Header, Kind, Tick};
use crate::peer::Peer;
use crate::peer::status::Behind;
use crate::{SendPayload, limits};

impl Peer {
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
}
