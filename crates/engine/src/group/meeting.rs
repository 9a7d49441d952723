//! The peer says who it is, and what it is asked and answers: to the half that it concerns.

use crate::context::Cx;
use crate::formats::identity::Role;
use crate::formats::wire::{FlushPoints, FrameHeader, FrameKind, GroupHello, decode_ranges, flags};
use crate::group::{Group, handover, reset};
use crate::peer::Peer;
use crate::peer::detached::{self, CAME_AT_PEER, NOTHING_IN_ORDER, is_nothing_in_order};
use crate::secondary::Secondary;
use crate::shared::coverage::CoveragePoint;
use crate::shared::wakes::Wake;
use crate::state::State;
use crate::{Event, FramePayload};

impl Group {
    /// A frame of reconciliation, on either side. `None`: not one that may come now.
    pub fn starting_frame(&mut self, cx: &mut Cx, header: &FrameHeader, payload: &FramePayload) -> Option<()> {
        if !self.common.lifecycle.is_running() || self.common.has_failed() {
            return Some(());
        }
        match (header.kind, payload) {
            (FrameKind::BitsAsk, FramePayload::None) => {
                if self.common.role() == Role::Secondary {
                    self.primary.peer.outbox.answers.bits_asked(header.seq);
                }
            }
            // Of a question that was given up meanwhile.
            (FrameKind::Bits | FrameKind::Tail | FrameKind::Pulled, _)
                if !self.primary.peer.reconcile.is_asking(header.seq.0) => {}
            (FrameKind::Bits, FramePayload::Control(_) | FramePayload::None) => {
                let Peer { reconcile, greeting, .. } = &mut self.primary.peer;
                reconcile.bits_arrived(&mut self.common, cx, greeting, header, payload.control())?;
            }
            (FrameKind::TailAsk, FramePayload::Control(bytes)) => {
                let points = FlushPoints::decode(bytes)?;
                let tail = self.secondary.tail_is_asked(&mut self.common, cx, points, header.seq);
                tail.into_iter().for_each(|tail| self.primary.peer.outbox.answers.tail(tail));
            }
            (FrameKind::Tail, FramePayload::Control(_) | FramePayload::None) => {
                let ranges = decode_ranges(payload.control())?;
                if self.primary.peer.reconcile.take_tail(&self.common.volumes, header, ranges)? {
                    let unknown = header.flags & flags::UNKNOWN != 0;
                    self.primary.reconcile_by(&mut self.common, cx, |peer, common, cx, decision| {
                        peer.reconcile.tail_arrived(common, cx, decision, unknown)
                    });
                }
            }
            (FrameKind::Pull, FramePayload::None) => {
                self.primary.peer.outbox.answers.pull_is_asked(&self.common, cx, header)?;
            }
            (FrameKind::Pulled, FramePayload::Data(buf)) => {
                self.primary.peer.reconcile.pulled(&mut self.common, cx, header, buf.clone())?
            }
            _ => return None,
        }
        Some(())
    }

    pub fn generation_recorded(&mut self, cx: &mut Cx) {
        self.common.numbers.generation_recorded();
        let generation = self.common.sb.identity.generation;
        cx.event(self.common.id(), Event::WritesAlone { generation });
        // Those who waited for the record are written alone, before a stream begins that would have no room for them.
        self.common.wake(Wake::Covered);
        self.common.wake(Wake::Meet);
        self.say_hello(cx, FrameKind::GroupState);
    }

    pub fn peer_hello(&mut self, cx: &mut Cx, hello: GroupHello) {
        if self.common.is_starting() {
            // Who this node is, is not known yet.
            self.primary.peer.greeting.keep_early(hello);
            return;
        }
        if !self.primary.fits(&mut self.common, cx, &hello) {
            return;
        }
        take_up(&mut self.secondary, &mut self.primary.peer, hello);
        leave_out(self, cx);
        reset::open_when_met(self, cx);
        self.primary.peer.hears_of_end(&mut self.common, cx);
        self.primary.meet_peer(&mut self.common, cx);
        self.primary.peer.report_primary_state(&mut self.common, cx);
        self.primary.peer.send_tick(&mut self.common, cx);
    }

    /// The peer's role or health changed within the session.
    pub fn peer_changed(&mut self, cx: &mut Cx, hello: GroupHello) {
        if self.common.is_starting() {
            self.primary.peer.greeting.keep_early(hello);
            return;
        }
        self.primary.peer.stall.moved(cx.now.mono);
        let granted_before = self.primary.peer.greeting.hello().is_some_and(|before| before.grants);
        let (failed, grants) = (hello.failed, hello.grants && !granted_before);
        let promoted = hello.identity.role == Role::Primary;
        if failed || promoted {
            self.primary.peer.reconcile.stop_asking();
        }
        // A change of roles may turn sizes that were fine into ones that are not.
        if !self.primary.fits(&mut self.common, cx, &hello) {
            return;
        }
        let parts = promoted && self.common.role() == Role::Primary && !self.primary.peer.greeting.is_primary();
        take_up(&mut self.secondary, &mut self.primary.peer, hello);
        leave_out(self, cx);
        reset::open_when_met(self, cx);
        if grants {
            handover::take(self, cx);
        }
        if parts {
            // From here on a fork is judged by what the other one had confirmed when they parted.
            self.say_hello(cx, FrameKind::GroupState);
        }
        if failed {
            return self.primary.peer_failed(&mut self.common, cx);
        }
        if promoted && !self.common.lifecycle.is_running() {
            // Whatever this node is in the middle of, its stream has nobody any more who receives it.
            self.primary.fail_held(&mut self.common, cx);
            self.primary.fall_if_primary(&mut self.common, cx, "the peer was promoted");
        }
        let heard = self.primary.peer.hears_of_end(&mut self.common, cx);
        if heard && self.primary.peer.outbox.goes_by_snapshots() {
            // It was announced before that was known, and most of it is there.
            let why = "the snapshot before has ended at the peer: what is left begins anew";
            self.primary.fall_to_logging(&mut self.common, cx, why);
        }
        if self.shown().state() == State::Logging || promoted {
            self.primary.meet_peer(&mut self.common, cx);
        }
    }
}

/// What the peer says of itself counts from here on.
pub(super) fn take_up(secondary: &mut Secondary, peer: &mut Peer, hello: GroupHello) {
    secondary.primary_report.meets(hello.identity.role);
    peer.greeting.take_up(hello);
}

/// What the peer has no device for. If nothing is left, nobody is answered as if there were a copy.
fn leave_out(group: &mut Group, cx: &mut Cx) {
    let Group { common, primary, .. } = group;
    if detached::leave_out(&mut primary.peer, common, cx) {
        primary.fail_held(common, cx);
        primary.fall_to_logging(common, cx, CAME_AT_PEER);
    }
    if primary.peer.outbox.streams() && common.lifecycle.is_running() && is_nothing_in_order(common) {
        cx.coverage.hit(CoveragePoint::NothingInOrder);
        primary.fail_held(common, cx);
        primary.fall_to_logging(common, cx, NOTHING_IN_ORDER);
    }
}
