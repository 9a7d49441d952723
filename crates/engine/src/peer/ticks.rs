//! What a primary reports to its peer of itself, by itself and whenever something changed: its clock, its state, how far it is behind.

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Role;
use crate::formats::wire::{FrameHeader, FrameKind, Tick};
use crate::peer::Peer;
use crate::peer::status::CopyLag;
use crate::peer::stream::PeerStream;
use crate::{SendPayload, limits};

impl Peer {
    /// A primary sends its clock, its state, its last number and how far behind its secondary is, however busy it is (rule 19).
    pub fn send_tick(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if common.role() != Role::Primary {
            return;
        }
        if !cx.peer.is_clogged {
            self.report_primary_state(common, cx);
        }
        if cx.peer.link.is_some() {
            common.set_timer(cx, GroupTimer::Tick, limits::TICK_EVERY);
        }
    }

    pub fn report_primary_state(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        // What is not on record was not reported to the peer.
        let is_known = common.role() == Role::Primary && common.sb.durable().role == Role::Primary;
        if !is_known || self.greeting.hello().is_none() {
            return;
        }
        let Some(link) = cx.peer.link else { return };
        common.watch_clock(cx);
        let idle = self.outbox.stream().is_some_and(PeerStream::is_idle);
        let wall = if idle { common.numbers.stamp(cx) } else { common.numbers.last_wall() };
        let flushed = common.flush_point();
        let incarnation = common.sb.identity.incarnation;
        let header = FrameHeader {
            seq: common.numbers.last(),
            offset: self.outbox.sending.recalls(),
            wall,
            flushed,
            incarnation,
            ..FrameHeader::new(FrameKind::Tick, cx.peer.session, common.id())
        };
        let CopyLag { lag_bytes, lag, .. } = self.behind(common, cx.now);
        let (state, mode) = (self.state(common), common.settings.as_set().mode);
        let acts_as = common.settings.mode;
        let (dirty_bytes, doubts) = (common.volumes.dirty_bytes(), common.sb.doubts);
        let tick = Tick { state, mode, acts_as, lag_bytes, lag, dirty_bytes, clock: cx.now.wall, doubts };
        cx.send(link, header, SendPayload::Control(tick.encode()));
    }
}
