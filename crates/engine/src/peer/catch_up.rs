//! Catching up by snapshots (rule 8): freeze the dirty bitmap at a mark, ship those regions as they were at the mark, make
//! that one atomic step on the secondary, and begin again with what was written meanwhile.
//!
//! ```text
//! freeze (mark = last number) -> flush -> SyncBegin{snapshot} .. SyncReady -> regions, numbered 1, 2, .. -> SyncEnd
//!    writes go on: a bit for the next snapshot, nothing is queued                              applied: those bits clear
//! ```
//! It is like photographing a page that is being written on. The photograph is of one moment; the pen never stops, but
//! where it is about to touch a part not yet taken, that part is copied first: that copy is all a writer ever waits for.
//!
//! * Every snapshot is a new consistent point, so the recovery point moves however much is written.
//! * When what is left is small, or shrinks no more, and the link carries what is written, the last step is the sync in
//!   the stream (`resync.rs`), which ends in order. What does not fit in there comes back here.
//! * No bit clears but by the snapshot's end, applied at the peer; what was written since the freeze keeps its own.
//! * A snapshot lives as long as its session. What the peer has applied of one that is cut short is left out of the next
//!   (`snapshot/left.rs`).

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::Event;
use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::bitmap::Bitmap;
use crate::formats::identity::Role;
use crate::formats::wire::Ack;
use crate::ids::Position;
use crate::limits::{self, KIB};
use crate::peer::Peer;
use crate::peer::sending::Sending;
use crate::peer::snapshot::{CatchUpSnapshot, SnapshotRates};
use crate::peer::status::note_age;
use crate::peer::streaming::{confirmed, step_begun};
use crate::shared::coverage::CoveragePoint;
use crate::shared::peer_copy::PeerCopy;
use crate::shared::size::ShownSize;
use crate::state::Pause;
use crate::time::{Mono, Wall};

/// Small snapshots in a row after which the stream is tried, whatever they showed; doubled so often at most.
const SMALL_SNAPSHOTS: u32 = 3;
const MISFITS_MAX: u32 = 5;

/// What catching up showed so far; lives from a sync's begin to its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CatchUp {
    /// Snapshots begun.
    snapshots: u64,
    /// Bytes of the last snapshot.
    last_bytes: u64,
    rates: Option<SnapshotRates>,
    sent_bytes: u64,
    /// Live writes did not fit the stream: not again before this.
    no_stream_before: Mono,
    /// How often they did not.
    misfits: u32,
    /// Snapshots in a row in which so little was that the stream would have taken it along.
    small_in_a_row: u32,
    /// It was paused and could go on, but others have its permit.
    pub(super) resumes: bool,
    /// All is sent, whatever was dirty.
    pub(super) full: bool,
}

/// The next step of a catch-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CatchUpStep {
    Stream,
    Snapshot,
    /// A snapshot, but not yet: so little would be in it.
    SnapshotLater,
}

impl CatchUp {
    /// What earlier ones showed of writers that do not fit beside a sync still counts.
    fn begins(&mut self) {
        *self = CatchUp { no_stream_before: self.no_stream_before, misfits: self.misfits, ..CatchUp::default() };
    }

    /// What went as data so far: the catch-up is over.
    pub fn take_sent_bytes(&mut self) -> u64 {
        self.misfits = 0;
        core::mem::take(&mut self.sent_bytes)
    }

    /// What follows with this much dirty; `small`: what the stream takes along with live writes. A snapshot that was small shows less
    /// than the link carries, so after some of them the stream is tried whatever they showed; each time in vain, after twice as many.
    fn step(&self, now: Mono, dirty_bytes: u64, small: u64) -> CatchUpStep {
        let shows_room = self.rates.is_none_or(|r| r.written <= r.carried / 10 * 9);
        let shows_little = self.small_in_a_row >= SMALL_SNAPSHOTS << self.misfits.min(MISFITS_MAX);
        let fits = (shows_room || shows_little) && now >= self.no_stream_before;
        let shrinks = self.snapshots == 0 || dirty_bytes <= self.last_bytes / 4 * 3;
        if dirty_bytes == 0 || (fits && (dirty_bytes <= small || !shrinks)) {
            CatchUpStep::Stream
        } else if dirty_bytes <= small && self.snapshots > 0 {
            CatchUpStep::SnapshotLater
        } else {
            CatchUpStep::Snapshot
        }
    }

    fn reason(&self, why: &str) -> String {
        let number = self.snapshots;
        let (Some(rates), Some(missing @ 1..)) = (self.rates, self.missing()) else {
            return format!("snapshot {number}: {why}");
        };
        let (carried, missing) = (rates.carried / KIB, missing.div_ceil(KIB));
        if rates.dirtied >= self.in_good_time() {
            let dirtied = rates.dirtied / KIB;
            return format!(
                "snapshot {number}: writers dirty {dirtied} KiB/s, {carried} KiB/s reach the peer: {missing} KiB/s are missing to catch up"
            );
        }
        let (size, takes) = (ShownSize(self.last_bytes), self.last_bytes / rates.carried.max(1));
        let within = limits::SNAPSHOT_WITHIN.as_secs();
        format!(
            "snapshot {number}: {size} take {takes} s, {carried} KiB/s reach the peer: {missing} KiB/s are missing for a copy that moves every {within} s"
        )
    }

    /// At so many bytes a second the snapshot under way, or the last one, is through in good time.
    fn in_good_time(&self) -> u64 {
        self.last_bytes.div_ceil(limits::SNAPSHOT_WITHIN.as_secs())
    }

    /// Bytes a second that the link would have to carry more: to catch up, or for snapshots in good time, whichever takes more.
    pub fn missing(&self) -> Option<u64> {
        self.rates.map(|rates| rates.dirtied.max(self.in_good_time()).saturating_sub(rates.carried))
    }

    /// Snapshots begun.
    pub fn snapshots(&self) -> u64 {
        self.snapshots
    }

    /// What the last snapshot showed.
    pub fn rates(&self) -> Option<SnapshotRates> {
        self.rates
    }

    /// What went as data in the snapshots that are done.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}

impl Peer {
    // ---- what comes next -------------------------------------------------------------------------------------------

    /// A sync begins: how, follows from what is dirty.
    pub fn begin_catch_up(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        self.catch_up.begins();
        self.next_step(common, cx, why);
    }

    pub fn next_step(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        let (small, paused) = (small_bytes(common, cx), self.outbox.sending.paused());
        match self.catch_up.step(cx.now.mono, common.volumes.dirty_bytes_to_send(), small) {
            CatchUpStep::Stream => {
                self.catch_up.small_in_a_row = 0;
                self.outbox.sending.end_snapshot();
                self.begin_sync_in_stream(common, cx, paused, why);
            }
            CatchUpStep::Snapshot => {
                self.catch_up.small_in_a_row = 0;
                self.begin_snapshot(common, cx, paused, why);
            }
            CatchUpStep::SnapshotLater => {
                self.catch_up.small_in_a_row += 1;
                let since = self.outbox.sending.snapshot().map_or(cx.now.mono, CatchUpSnapshot::frozen_at);
                let wait = since.plus(limits::SNAPSHOT_EVERY).since(cx.now.mono).max(Duration::from_millis(1));
                cx.timers.set(TimerKey::Group(common.id(), GroupTimer::Snapshot), cx.now.mono.plus(wait));
            }
        }
    }

    /// It is time for the next snapshot.
    pub fn snapshot_due(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let is_due = self.outbox.sending.snapshot().is_some_and(CatchUpSnapshot::is_done);
        if !is_due || !common.lifecycle.is_running() || self.waits_to_resume(common) {
            return;
        }
        if common.volumes.dirty_bytes_to_send() == 0 {
            return self.next_step(common, cx, "update sync");
        }
        self.begin_snapshot(common, cx, self.outbox.sending.paused(), "update sync");
    }

    /// Snapshots go on for a while before the stream is tried again.
    pub fn keep_from_stream(&mut self, now: Mono) {
        self.catch_up.no_stream_before = now.plus(limits::STREAM_AGAIN_AFTER);
        self.catch_up.misfits += 1;
    }

    // ---- a snapshot begins ----------------------------------------------------------------------------------------------

    pub fn begin_snapshot(&mut self, common: &mut GroupCommon, cx: &mut Cx, paused: Option<Pause>, why: &str) {
        cx.coverage.hit(CoveragePoint::SnapshotBegan);
        let (from, wall) = self.left.next_mark(common, cx, &self.greeting, self.passes == 0);
        self.passes += 1;
        common.volumes.copies_mut().for_each(PeerCopy::freeze);
        let total_bytes: u64 = common.volumes.copies().filter_map(PeerCopy::unshipped).map(Bitmap::dirty_bytes).sum();
        let left_out_bytes = common.volumes.dirty_bytes_to_send() - total_bytes;
        let to_send = common.volumes.snapshot_to_send(left_out_bytes);
        assert!(!self.outbox.streams(), "a stream ends before a snapshot begins");
        self.outbox.sending = Sending::Snapshot(CatchUpSnapshot::new(
            self.passes,
            from,
            wall,
            cx.now.mono,
            common.counters.ordered_bytes,
            (to_send, total_bytes),
        ));
        self.catch_up.snapshots += 1;
        self.catch_up.last_bytes = total_bytes;
        let mut reason = self.catch_up.reason(why);
        if left_out_bytes > 0 {
            cx.coverage.hit(CoveragePoint::SnapshotWentOn);
            let there = ShownSize(left_out_bytes);
            reason = format!("{reason}; it goes on, {there} of the one that was cut short are there");
        }
        step_begun(self, common, cx, paused, &reason);
        self.stall.watch_sync(common, cx);
    }

    /// Starts reads while the link has use for them.
    pub fn pump_snapshot(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let waits = self.waits_to_resume(common);
        loop {
            let room = self.outbox.snapshot_room(common, cx);
            let Some(snapshot) = self.outbox.sending.snapshot_mut().filter(|_| !waits) else { return };
            if !snapshot.read_next(common, cx, room) {
                return;
            }
        }
    }

    /// The peer's confirmations of the snapshot's numbers. True: it is applied.
    pub fn confirm_snapshot(&mut self, common: &mut GroupCommon, cx: &mut Cx, ack: Ack, recalls: u64) -> bool {
        let Some(snapshot) = self.outbox.sending.snapshot_mut().filter(|snapshot| snapshot.is_open()) else {
            // The snapshot waits to begin, perhaps for what the peer cannot apply.
            self.peer_paused(common, cx, ack.paused);
            return false;
        };
        if !self.stall.took(common, cx, snapshot.confirm(ack, recalls)) {
            return false;
        }
        snapshot.note_applied(&mut common.volumes);
        let is_applied = snapshot.is_applied();
        self.peer_paused(common, cx, ack.paused);
        if !is_applied {
            return false;
        }
        let Some(snapshot) = self.outbox.sending.snapshot_mut() else { return false };
        self.catch_up.rates = snapshot.rates(common, cx, cx.now.mono < self.catch_up.no_stream_before);
        let (from, wall, payload_bytes) = snapshot.end();
        snapshot_ended(self, common, cx, (from, wall), payload_bytes, PeerCopy::end_snapshot);
        common.undo.empty();
        true
    }

    /// The peer says what it holds, and that may be the image of a snapshot that was cut short here behind its end. True: it is.
    pub fn hears_of_end(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        let is_of_use = common.role() == Role::Primary && common.lifecycle.is_running() && !common.has_failed();
        // Beside a stream bits clear by its confirmations alone.
        if !is_of_use || self.outbox.streams() || !common.volumes.copies().any(PeerCopy::was_cut_short) {
            return false;
        }
        let Some(mark) = self.left.is_whole_there(&self.greeting) else { return false };
        snapshot_ended(self, common, cx, mark, 0, PeerCopy::end_cut_short);
        if let Some(from) = self.outbox.sending.snapshot().and_then(CatchUpSnapshot::announced_mark) {
            // It begins with the next one meanwhile, and is in the middle of that.
            self.greeting.took_up(&common.sb.identity, from, true);
        }
        true
    }
}

/// A sync begins in which all may be equal: a snapshot finds what differs, to the region, however much is compared.
pub(crate) fn compare_all(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
    peer.catch_up.begins();
    peer.begin_snapshot(common, cx, peer.outbox.sending.paused(), why);
}

/// What the stream may take along with live writes: what the link carries in a moment, and little enough that the
/// queue has room for the writes that come meanwhile.
fn small_bytes(common: &GroupCommon, cx: &Cx) -> u64 {
    let tail = cx.peer.rate.map_or(limits::STREAM_TAIL_BYTES_UNMEASURED, |rate| rate * limits::STREAM_TAIL.as_secs());
    tail.min(common.settings.queue_bytes / 4)
}

/// The peer holds the image of the mark: that is the recovery point now, and `clear` makes the bits say so.
fn snapshot_ended(
    peer: &mut Peer,
    common: &mut GroupCommon,
    cx: &mut Cx,
    (from, wall): (Position, Wall),
    payload_bytes: u64,
    clear: fn(&mut PeerCopy),
) {
    cx.coverage.hit(CoveragePoint::SnapshotEnded);
    peer.stall.sync_ended();
    peer.greeting.holds_snapshot(from);
    confirmed(common, &mut peer.greeting, from);
    common.volumes.copies_mut().for_each(clear);
    common.set_timer(cx, GroupTimer::TidyBits, limits::TIDY_BITS_AFTER);
    peer.catch_up.sent_bytes += payload_bytes;
    note_age(peer, cx.now);
    peer.reached.reach(cx.now.mono, wall, from.seq);
    common.compared(cx);
    cx.event(common.id(), Event::SnapshotEnded { at: from, sent_bytes: payload_bytes });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MIB;

    fn after(last_bytes: u64, written: u64, carried: u64) -> CatchUp {
        let rates = Some(SnapshotRates { written, dirtied: written, carried });
        CatchUp { snapshots: 1, last_bytes, rates, ..CatchUp::default() }
    }

    #[test]
    fn much_goes_by_snapshots_and_what_is_small_or_shrinks_no_more_by_the_stream_if_it_fits() {
        let now = Mono(1);
        let first = CatchUp::default();
        assert_eq!(first.step(now, 0, MIB), CatchUpStep::Stream);
        assert_eq!(first.step(now, MIB, MIB), CatchUpStep::Stream);
        assert_eq!(first.step(now, MIB + 1, MIB), CatchUpStep::Snapshot);
        let fits = after(100 * MIB, 80, 100);
        assert_eq!(fits.step(now, 50 * MIB, MIB), CatchUpStep::Snapshot, "it shrinks");
        assert_eq!(fits.step(now, 90 * MIB, MIB), CatchUpStep::Stream, "it does not");
        assert_eq!(fits.step(now, MIB, MIB), CatchUpStep::Stream);
        let does_not = after(100 * MIB, 100, 100);
        assert_eq!(does_not.step(now, 90 * MIB, MIB), CatchUpStep::Snapshot);
        assert_eq!(does_not.step(now, MIB, MIB), CatchUpStep::SnapshotLater);
        assert_eq!(does_not.step(now, 0, MIB), CatchUpStep::Stream);
        let tried = CatchUp { no_stream_before: Mono(2), ..fits };
        assert_eq!(tried.step(now, MIB, MIB), CatchUpStep::SnapshotLater, "the stream was tried a moment ago");
        assert_eq!(tried.step(Mono(2), MIB, MIB), CatchUpStep::Stream);
        let often = CatchUp { small_in_a_row: SMALL_SNAPSHOTS, ..does_not };
        assert_eq!(often.step(now, MIB, MIB), CatchUpStep::Stream, "small ones show little of what the link carries");
        assert_eq!(often.step(now, MIB + 1, MIB), CatchUpStep::Snapshot);
        let in_vain = CatchUp { misfits: 1, ..often };
        assert_eq!(in_vain.step(now, MIB, MIB), CatchUpStep::SnapshotLater);
    }
}
