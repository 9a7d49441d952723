//! Writers who wait, for room in the queue or for the peer, and how long one of them may (design: policy and `wait_limit`);
//! how long many may, each for less, is in `held_up.rs`.

use alloc::format;
use core::time::Duration;

use crate::Settings;
use crate::common::GroupCommon;
use crate::common::given_window::fail_held_answers;
use crate::context::{Cx, GroupTimer};
use crate::injected_fault::{Fault, injected};
use crate::peer::pause::PauseCause;
use crate::peer::stream::PeerStream;
use crate::primary::Primary;
use crate::primary::alone::{go_on_alone, is_left_behind, may_go_on_alone};
use crate::primary::disk_queue::{give_order_up, leave_full_queue, what_is_full};
use crate::primary::pace::only_paces;
use crate::primary::steps::{look_at_ladder, look_at_step};
use crate::shared::coverage::CoveragePoint;
use crate::shared::wakes::Wake;
use crate::state::{Policy, State, WhenFull};
use crate::time::Mono;

/// Those who wait are looked at so often.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

const PEER_WAS_SILENT: &str = "the peer was silent: writers are answered without it, in order";

impl Primary {
    /// Looks at those who wait: for room, for the peer. Runs at once when someone begins to wait, then on a timer.
    pub fn check_waits(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let streamed = self.peer.outbox.streams();
        let only_paces = only_paces(self, common, cx);
        match only_paces {
            true => self.waiters.is_paced(cx.now.mono),
            false => self.waiters.is_not_paced(),
        }
        if !only_paces && !waits_for_own_disk(self, common, cx) {
            self.check_blocked(common, cx);
            // Who was given up for the one is not given up for the other once more: those who wait are let go after this.
            if streamed == self.peer.outbox.streams() {
                check_held_up(self, common, cx);
            }
        }
        if let Some((_, slot)) = self.waiters.first_for_peer().filter(|_| streamed == self.peer.outbox.streams()) {
            let since = common.slots.write(slot).since;
            if is_left_behind(self, common, cx) {
                cx.coverage.hit(CoveragePoint::SilentPeerLeftBehind);
                go_on_alone(self, common, cx, PEER_WAS_SILENT);
            } else {
                self.wait_limit_reached(common, cx, since);
            }
        }
        look_at_ladder(self, common, cx);
        if !self.waiters.is_quiet() {
            common.set_timer(cx, GroupTimer::Waits, LOOK_AGAIN);
        }
    }

    fn check_blocked(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some(slot) = self.waiters.first_for_room() else { return };
        if self.peer.outbox.has_room(common, cx, slot) {
            // It was slowed down until now, by the rate of a link that is gone: no queue is full.
            return common.wake(Wake::Room);
        }
        let since = self.waiters.waits_since(common).unwrap_or(cx.now.mono);
        if self.peer.state(common) == State::Queuing {
            cx.coverage.hit(CoveragePoint::QueueFullLinkDown);
            let and = match (cx.peer.link, self.peer.greeting.hello()) {
                (None, _) => "and the link is down",
                (_, None) => "and the peer is connected, but its half of the group has not started",
                (_, Some(_)) => "and nothing is sent to the peer",
            };
            return self.fall_to_logging(common, cx, &what_is_full(common, and));
        }
        if self.peer.waits_in_vain(common) {
            let why = what_is_full(common, "and the peer has not answered since it stalled");
            return self.give_up_session(common, cx, &why);
        }
        if is_left_behind(self, common, cx) {
            // Whoever waits is looked at once more, and the queue's own policy decides.
            go_on_alone(self, common, cx, PEER_WAS_SILENT);
            return;
        }
        let silent = cx.peer.silent_for(cx.now.mono);
        if holds_nobody_up(self, common) {
            return leave_full_queue(self, common, cx);
        }
        if as_in_async(self, common) && silent > cx.peer.suspect_after() {
            cx.coverage.hit(CoveragePoint::QueueFullPeerSilent);
            return self.give_up_session(common, cx, &what_is_full(common, "and the peer is silent"));
        }
        self.wait_limit_reached(common, cx, since);
    }
}

impl Primary {
    fn wait_limit_reached(&mut self, common: &mut GroupCommon, cx: &mut Cx, since: Mono) {
        if cx.now.mono.since(since) < common.settings.wait_limit {
            return;
        }
        cx.coverage.hit(CoveragePoint::WaitLimitTripped);
        let promises = common.settings.mode.promises();
        let wait_limit = common.settings.wait_limit;
        match common.settings.policy {
            Policy::Strict if promises => self.fail_overdue(common, cx),
            Policy::Hold(_) if promises && self.peer.state(common) == State::Holding => {}
            // A peer that is back within the window gets its time to confirm.
            Policy::Hold(window) if promises && cx.now.mono < self.window.end_for(since, window).plus(wait_limit) => {}
            // Nobody waits for the peer any more. Who waits for room waits on, as in `async`.
            _ if may_go_on_alone(self, common) && !self.waiters.nobody_waits_for_peer() => {
                let why = match self.peer.waited_for_ourselves(common, cx) {
                    None => "a write waited longer than wait_limit",
                    Some((_, why)) => why,
                };
                go_on_alone(self, common, cx, why);
            }
            // Nobody waits any more. Whose fault it was says how the group goes on.
            _ => match self.peer.waited_for_ourselves(common, cx) {
                None => self.give_up_session(common, cx, "a write waited longer than wait_limit"),
                Some((cause, why)) => give_order_up(self, common, cx, why, cause),
            },
        }
    }

    /// Policy `strict`: writes that waited too long fail, their regions stay dirty.
    fn fail_overdue(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let now = cx.now.mono;
        let limit = common.settings.wait_limit;
        while let Some((_, slot)) = self.waiters.first_for_peer() {
            if now.since(common.slots.write(slot).since) < limit {
                break;
            }
            self.waiters.leave_peer();
            cx.coverage.hit(CoveragePoint::StrictFailedWrite);
            common.fail_write(cx, slot);
        }
        // Those behind them may have what they wait for.
        self.release_acked(common, cx);
        while let Some(slot) = self.waiters.first_for_room() {
            if now.since(self.waiters.waited_since(common, slot)) < limit {
                break;
            }
            self.waiters.leave_room();
            self.waiters.was_blocked(common, cx, slot);
            common.fail_unnumbered(cx, slot);
        }
    }

    /// Writers who are held under `strict` wait for this very peer to have their writes, and it will not get them in order.
    pub fn fail_held(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        // Before it was in step nobody waits for the peer's copy: they go on alone. Who waits does so under a promise, though the mode
        // may have changed since.
        let promised = self.peer.outbox.stream().is_some_and(PeerStream::is_promised);
        let held = promised || !self.waiters.nobody_waits_for_peer() || self.peer.state(common) == State::Holding;
        if held && common.settings.policy == Policy::Strict && !injected(Fault::StrictReleased) {
            self.fail_waiting(common, cx);
        }
    }

    /// Everyone who waits is told that the outcome is unknown.
    pub fn fail_waiting(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.fail_cold(common, cx);
        fail_held_answers(common, cx);
        while let Some(slot) = self.waiters.leave_peer() {
            common.fail_write(cx, slot);
        }
        while let Some(slot) = self.waiters.leave_room() {
            self.waiters.was_blocked(common, cx, slot);
            common.fail_unnumbered(cx, slot);
        }
    }
}

/// When somebody who begins to wait for the peer is looked at first.
pub(super) fn first_look_at_waits(settings: &Settings) -> Duration {
    let first =
        if settings.keeps_order_alone() || settings.ladder().is_some() { LOOK_AGAIN } else { Duration::from_secs(1) };
    first.min(settings.wait_limit)
}

fn as_in_async(primary: &Primary, common: &GroupCommon) -> bool {
    common.settings.mode.follows_behind() || primary.peer.outbox.answers_alone()
}

/// A full queue gives its order up, and nobody waits for room.
fn holds_nobody_up(primary: &Primary, common: &GroupCommon) -> bool {
    as_in_async(primary, common) && common.settings.when_full() == WhenFull::Bitmap && !injected(Fault::SuperasyncWaits)
}

/// Who waits for this node's disk queue alone waits for neither link nor peer; but for no longer than for those, and hardly at all where
/// nobody waits for room.
fn waits_for_own_disk(primary: &Primary, common: &GroupCommon, cx: &Cx) -> bool {
    let limit = common.settings.own_disk_limit(holds_nobody_up(primary, common));
    let waited = primary.waiters.waits_since(common).map_or(Duration::ZERO, |since| cx.now.mono.since(since));
    waited < limit && primary.peer.outbox.disk_makes_room(cx, limit)
}

fn check_held_up(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx) {
    look_at_step(primary, cx);
    if !primary.waiters.look_at_held_up(common, cx, primary.peer.state(common) == State::Holding) {
        return;
    }
    let ours = primary.peer.waited_for_ourselves(common, cx);
    let by = match ours {
        Some((PauseCause::LinkWasFull, _)) => "more is written than the link carries",
        Some(_) => "this node's disk has not read yet what is to be sent",
        None => "the peer stood still",
    };
    primary.give_up_session(common, cx, &format!("writers were held up for too long: {by}"));
    if let Some((cause, _)) = ours {
        primary.peer.stall.not_the_peers(cause);
    }
}
