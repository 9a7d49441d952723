//! A peer that stands still while its link lives (rule 17): how that is noticed, and how long it is then left alone.
//!
//! * A write that has waited `wait_limit` decides by its own time (`waits.rs`), whatever the peer does meanwhile. The peer stood
//!   still only if it had what is waited for, or had no room for it: else it was we who did not send it, because the link carried
//!   other things first.
//! * A sync is measured by progress alone: a confirmation that moved, an answer. Any of them, however rare, keeps it going;
//!   [`limits::SYNC_STALLED_AFTER`] without one, or the link's timeout if that is longer, ends it, while something of this group is
//!   with the peer.
//! * A sync in the stream that live writes leave no room for, while the peer takes them, goes on by snapshots.
//! * A peer that was given up is left alone for a while, twice as long each time until a sync has ended. A reconnect
//!   shortens only the first wait: a link that comes and goes is no sign of health. An answer ends any, and so does an
//!   operator's `sync`, once.
//! * The same pause follows a sync for which a device of this node failed: it is tried again, and clients are served meanwhile.
//! * Until it has answered again nobody waits for room on its account: the next attempt's queue may fill, no more.

use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::injected_fault::{Fault, injected};
use crate::limits;
use crate::peer::Peer;
use crate::peer::pause::PauseCause;
use crate::peer::stream::PeerStream;
use crate::shared::coverage::CoveragePoint;
use crate::state::State;
use crate::time::Mono;

/// What is known of a peer's standing still.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerStall {
    /// How often it was given up since a sync ended.
    times: u32,
    /// It was given up and has not answered since.
    unanswered: bool,
    /// No sync begins by itself before this.
    left_alone_until: Mono,
    pause_cause: PauseCause,
    /// When it last showed progress.
    moved_at: Mono,
}

impl PeerStall {
    /// What the peer confirmed or answered was taken, and whether something moved by that. False: it contradicts what it was sent.
    pub fn took(&mut self, common: &mut GroupCommon, cx: &mut Cx, moved: Result<bool, &str>) -> bool {
        match moved {
            Ok(true) => self.moved(cx.now.mono),
            Ok(false) => {}
            Err(what) => common.protocol_error(cx, what),
        }
        moved.is_ok()
    }

    /// Why no sync begins yet.
    pub fn pause_words(&self) -> &'static str {
        self.pause_cause.words()
    }

    /// How long a peer is left alone that was given up so many times before.
    fn hold_off(times: u32) -> Duration {
        limits::RESYNC_HOLD_OFF.saturating_mul(1 << times.min(16)).min(limits::RESYNC_HOLD_OFF_MAX)
    }

    /// It is given up, and left alone for so long.
    pub fn give_up(&mut self, cx: &mut Cx) -> Duration {
        let hold_off = PeerStall::hold_off(self.times);
        if self.times > 0 {
            cx.coverage.hit(CoveragePoint::StalledAgain);
        }
        self.times = self.times.saturating_add(1);
        (self.unanswered, self.pause_cause) = (true, PauseCause::PeerStoodStill);
        self.left_alone_until = cx.now.mono.plus(hold_off);
        hold_off
    }

    /// For how long no sync begins by itself, if it is to wait.
    pub fn left_alone_for(&self, now: Mono) -> Option<Duration> {
        (now < self.left_alone_until).then(|| self.left_alone_until.since(now))
    }

    /// A session begins.
    pub fn link_up(&mut self, now: Mono) {
        self.moved_at = now;
        if self.times <= 1 {
            self.left_alone_until = now;
        }
    }

    pub fn moved(&mut self, now: Mono) {
        self.moved_at = now;
    }

    /// For how long it has shown no progress.
    fn still_for(&self, now: Mono) -> Duration {
        now.since(self.moved_at)
    }

    /// It said that it is ready for a sync, be it one that was given up.
    pub fn answered(&mut self, now: Mono) {
        self.moved_at = now;
        if core::mem::take(&mut self.unanswered) {
            self.left_alone_until = now;
        }
    }

    /// The operator wants a sync, which does not wait. Should it come to a stand as well, the next wait is as long as ever.
    pub fn ordered(&mut self, now: Mono) {
        self.left_alone_until = now;
    }

    /// No sync begins by itself for a moment.
    fn pause(&mut self, now: Mono, cause: PauseCause) {
        (self.pause_cause, self.left_alone_until) = (cause, now.plus(limits::RESYNC_HOLD_OFF));
    }

    /// What was given up was no fault of the peer's: no answer of it ends the pause.
    pub fn not_the_peers(&mut self, cause: PauseCause) {
        (self.unanswered, self.pause_cause) = (false, cause);
    }

    pub fn sync_ended(&mut self) {
        (self.times, self.unanswered) = (0, false);
    }

    /// Begins to watch a sync.
    pub fn watch_sync(&mut self, common: &GroupCommon, cx: &mut Cx) {
        self.moved(cx.now.mono);
        let limit = cx.peer.stalls_after();
        common.set_timer(cx, GroupTimer::Stall, limit);
    }
}

impl Peer {
    /// The peer is well: one pause, never a longer one, and no stream that would fill up again at once.
    pub fn pause(&mut self, now: Mono, cause: PauseCause) {
        self.stall.pause(now, cause);
        self.keep_from_stream(now);
    }

    /// Why a write waited so long, if it was not the peer that kept it.
    pub fn waited_for_ourselves(&self, common: &GroupCommon, cx: &mut Cx) -> Option<(PauseCause, &'static str)> {
        let stream = self.outbox.stream()?;
        if stream.peer_kept_us(cx.now.mono, common.settings.wait_limit) {
            return None;
        }
        if stream.queue().waits_for_read() {
            let why = "a write waited longer than wait_limit, behind a region that this node's disk was asked for and has not read yet";
            return Some((PauseCause::OwnStoreFailed, why));
        }
        cx.coverage.hit(CoveragePoint::LinkWasFull);
        let why = "a write waited longer than wait_limit: more is written than the link has room for";
        Some((PauseCause::LinkWasFull, why))
    }

    /// Whether a sync has come to a stand; if not, it is looked at again.
    pub fn has_stalled(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        let limit = cx.peer.stalls_after();
        // A stream that the peer has not opened is asked for as a sync is: also one that goes on in order, in a later run.
        let is_asked_for = self.outbox.stream().is_some_and(|stream| stream.has_pass() && !stream.is_open());
        let is_watched = self.outbox.syncs() || is_asked_for && !injected(Fault::TakeUpUnwatched);
        if matches!(self.state(common), State::Paused(_)) && is_watched {
            // Its time begins when it goes on.
            common.set_timer(cx, GroupTimer::Stall, limit);
            return false;
        }
        let goes_on = matches!(self.state(common), State::Syncing | State::CatchingUp);
        if !is_watched || !goes_on || cx.peer.link.is_none() {
            return false;
        }
        if !self.outbox.sending.owes() {
            // It is we who are slow.
            self.stall.moved(cx.now.mono);
        }
        let still = self.stall.still_for(cx.now.mono);
        if still >= limit {
            cx.coverage.hit(CoveragePoint::SyncStalled);
            return true;
        }
        common.set_timer(cx, GroupTimer::Stall, limit - still);
        false
    }

    /// Live writes have held the room of a sync for long, although the peer takes them: it will not come to its end beside them.
    pub fn is_starved(&self, common: &GroupCommon, now: Mono) -> bool {
        let Some(had_room_at) = self.outbox.stream().and_then(PeerStream::sync_had_room_at) else { return false };
        let long = now.since(had_room_at) >= limits::SYNC_STARVED_AFTER;
        let moves = self.stall.still_for(now) < limits::SYNC_STARVED_AFTER;
        long && moves && self.state(common) == State::Syncing
    }

    /// Whether writers would wait for a peer that was given up and gave no sign since.
    pub fn waits_in_vain(&self, common: &GroupCommon) -> bool {
        self.stall.unanswered
            && self.state(common) == State::Syncing
            && self.outbox.stream().is_some_and(|stream| !stream.is_open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: rule 17
    #[test]
    fn it_is_left_alone_twice_as_long_each_time_up_to_a_bound() {
        let seconds: alloc::vec::Vec<u64> = (0..8).map(|n| PeerStall::hold_off(n).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 120, 120, 120]);
        assert_eq!(PeerStall::hold_off(u32::MAX), limits::RESYNC_HOLD_OFF_MAX);
    }

    #[test]
    fn a_reconnect_shortens_the_first_wait_only_an_answer_and_an_order_any() {
        let until = Mono(900);
        let mut stall = PeerStall { times: 1, left_alone_until: until, unanswered: true, ..PeerStall::default() };
        stall.link_up(Mono(5));
        assert_eq!(stall.left_alone_until, Mono(5));
        stall = PeerStall { times: 2, left_alone_until: until, ..stall };
        stall.link_up(Mono(6));
        assert_eq!(stall.left_alone_until, until);
        stall.answered(Mono(7));
        assert_eq!((stall.left_alone_until, stall.times), (Mono(7), 2));
        stall.left_alone_until = until;
        stall.answered(Mono(8));
        assert_eq!(stall.left_alone_until, until, "it had answered already");
        stall.ordered(Mono(9));
        assert_eq!((stall.left_alone_until, stall.times), (Mono(9), 2));
    }
}
