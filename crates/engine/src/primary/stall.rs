//! A primary gives up a peer that does not get on.

use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::limits;
use crate::peer::stall::{PauseCause, Stall};
use crate::primary::Primary;
use crate::shared::marks::Mark;
use crate::state::State;

impl Primary {
    /// The peer is connected but of no use: fall to logging and leave it alone for a while.
    pub fn give_up_session(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        let hold_off = Stall::hold_off(self.peer.stall.times);
        if self.peer.stall.times > 0 {
            cx.marks.hit(Mark::StalledAgain);
        }
        self.peer.stall.times = self.peer.stall.times.saturating_add(1);
        (self.peer.stall.unanswered, self.peer.stall.pause_cause) = (true, PauseCause::PeerStoodStill);
        self.peer.stall.left_alone_until = cx.now.mono.plus(hold_off);
        self.fall_to_logging(common, cx, why);
        common.set_timer(cx, GroupTimer::Autosync, hold_off);
    }

    /// A read or a write that a sync needs failed on this node: it begins again after a pause, and clients are served meanwhile.
    pub fn pause_for_own_store(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        self.give_up_session(common, cx, why);
        self.peer.stall.not_the_peers(PauseCause::OwnStoreFailed);
    }

    /// A write waited longer than it may: nobody waits any more. Whose fault it was says how the group goes on.
    pub fn end_long_wait(&mut self, common: &mut Common, cx: &mut Cx) {
        if self.peer.peer_kept_us(common, cx.now.mono) {
            return self.give_up_session(common, cx, "a write waited longer than wait_limit");
        }
        let (cause, why) = if self.peer.queue.waits_for_read() {
            let why = "a write waited longer than wait_limit, behind a region that this node's disk was asked for and has not read yet";
            (PauseCause::OwnStoreFailed, why)
        } else {
            cx.marks.hit(Mark::LinkWasFull);
            (
                PauseCause::LinkWasFull,
                "a write waited longer than wait_limit: more is written than the link has room for",
            )
        };
        self.fall_to_logging(common, cx, why);
        // The peer is well: one pause, never a longer one, and no stream that would fill up again at once.
        self.peer.stall.pause_cause = cause;
        self.peer.stall.left_alone_until = cx.now.mono.plus(limits::RESYNC_HOLD_OFF);
        self.peer.keep_from_stream(cx.now.mono);
        common.set_timer(cx, GroupTimer::Autosync, limits::RESYNC_HOLD_OFF);
    }

    pub fn check_stall(&mut self, common: &mut Common, cx: &mut Cx) {
        if matches!(common.state, State::Paused(_)) && self.peer.syncs() {
            // Its time begins when it goes on.
            return common.set_timer(cx, GroupTimer::Stall, limits::SYNC_STALLED_AFTER);
        }
        if common.state != State::Syncing || cx.peer.link.is_none() {
            return;
        }
        if !self.peer.peer_owes() {
            // It is we who are slow.
            self.peer.stall.moved(cx.now.mono);
        }
        let still = cx.now.mono.since(self.peer.stall.moved_at);
        if still >= limits::SYNC_STALLED_AFTER {
            cx.marks.hit(Mark::SyncStalled);
            return self.give_up_session(
                common,
                cx,
                "the peer is connected, but showed no progress with the sync for 60 s",
            );
        }
        common.set_timer(cx, GroupTimer::Stall, limits::SYNC_STALLED_AFTER - still);
    }

    /// Live writes have held the room of a sync for long, although the peer takes them: it will not come to its end beside them.
    pub fn look_for_room(&mut self, common: &mut Common, cx: &mut Cx) {
        let Some(resync) = self.peer.resync.as_ref().filter(|r| !r.repair && r.reads == 0) else { return };
        let long = cx.now.mono.since(resync.had_room_at) >= limits::SYNC_STARVED_AFTER;
        let moves = self.peer.stall.still_for(cx.now.mono) < limits::SYNC_STARVED_AFTER;
        if long && moves && common.state == State::Syncing {
            self.turn_to_cuts(common, cx);
            self.release_blocked(common, cx);
        }
    }
}
