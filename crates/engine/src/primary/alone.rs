//! Writers of a mode with a promise go on without the peer (docs/book/decisions/0056-degrade-to-the-queue.md): the queue keeps the
//! order, or what they write is dirty and a sync follows.
//!
//! * People are told that nothing is promised any more before anybody is answered alone.
//! * What is answered alone keeps its generation: the peer will see it in order.

use alloc::string::ToString;

use crate::Event;
use crate::common::GroupCommon;
use crate::context::Cx;
use crate::injected_fault::{Fault, injected};
use crate::primary::Primary;
use crate::shared::coverage::CoveragePoint;
use crate::shared::wakes::Wake;
use crate::state::{Degrade, Policy, State};

/// Writers are answered without the peer from here on: in order, or with regions that are dirty, as the settings say.
pub(super) fn degrade(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
    if common.settings.degrade == Degrade::Logging || !go_on_alone(primary, common, cx, why) {
        primary.fall_to_logging(common, cx, why);
    }
}

/// Writers are answered as in `async`: the queue keeps the order, and goes on where the peer stands. False: there is no order to keep.
pub(super) fn go_on_alone(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, why: &str) -> bool {
    if injected(Fault::QueuedStillPromised) {
        primary.release_waiting(common, cx);
        return true;
    }
    if !primary.peer.outbox.answer_alone(cx.now.mono) {
        return false;
    }
    cx.coverage.hit(CoveragePoint::WentOnAlone);
    cx.event(common.id(), Event::QueuedAlone { why: why.to_string() });
    if !matches!(primary.peer.state(common), State::Paused(_)) {
        // What a peer that pauses waits for is the reason that people have to know.
        primary.peer.report_state(common, cx, why);
    }
    if !primary.waiters.nobody_waits_for_peer() {
        cx.coverage.hit(CoveragePoint::DegradeReleasedWriters);
    }
    primary.release_waiting(common, cx);
    // The queue may be full, and the link down.
    common.wake(Wake::Waits);
    common.wake(Wake::Promise);
    true
}

/// Writers who wait for the peer may be answered without it, and the order is kept.
pub(super) fn may_go_on_alone(primary: &Primary, common: &GroupCommon) -> bool {
    let promised = primary.peer.outbox.stream().is_some_and(|stream| stream.is_promised() && !stream.syncs());
    promised && common.settings.keeps_order_alone()
}

/// Nothing was heard of the peer for longer than any of its signs of life takes. To leave it behind costs no resync, so nobody waits
/// until the link counts as dead; under a peer window somebody wants to wait.
pub(super) fn is_left_behind(primary: &Primary, common: &GroupCommon, cx: &Cx) -> bool {
    let silent = cx.peer.link.is_some() && cx.peer.silent_for(cx.now.mono) > cx.peer.left_behind_after();
    silent && common.settings.policy == Policy::Degrade && may_go_on_alone(primary, common)
}
