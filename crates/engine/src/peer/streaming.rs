//! The ordered stream as it goes: frames out, confirmations in, the mode's promise, and what becomes of it when the link is lost.

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::wire::{Ack, FrameHeader, flags};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::peer::epoch::Taken;
use crate::peer::sending::Sending;
use crate::peer::snapshot::CatchUpSnapshot;
use crate::peer::status::note_age;
use crate::peer::stream::pass::SyncPass;
use crate::peer::stream::{self, queue_of, take_uncounted, void_probes};
use crate::peer::verify::follow_stream;
use crate::peer::{Peer, logging};
use crate::shared::cost::data_bytes;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::Greeting;
use crate::state::{Mode, Pause, State};
use crate::{SendPayload, limits};
use core::time::Duration;

/// What a lost link takes away.
pub(crate) enum LostLink {
    /// Nothing was sent.
    Nothing,
    /// It was lost before, and writers wait, or queue.
    Before,
    /// A sync: what it was about is still dirty.
    Sync,
    /// A stream in its order: the queue keeps it.
    Stream,
}

impl Peer {
    /// The peer's three confirmations and its window, while there is no snapshot. True: they were taken.
    pub fn confirm(&mut self, common: &mut GroupCommon, cx: &mut Cx, ack: &Ack, recalls: u64) -> bool {
        let Some(stream) = self.outbox.sending.stream_mut() else { return false };
        if !stream.is_open() && stream.has_pass() {
            // The sync waits to begin for what the peer cannot apply.
            self.peer_paused(common, cx, ack.paused);
            return false;
        }
        if !stream.is_open() {
            return false;
        }
        note_age(self, cx.now);
        let Some(stream) = self.outbox.sending.stream_mut() else { return false };
        if !self.stall.took(common, cx, stream.confirm(ack, recalls)) {
            return false;
        }
        self.outbox.free_disk_queue(common, cx);
        confirmed(common, &mut self.greeting, common.position(ack.applied));
        common.volumes.copies_mut().for_each(|copy| copy.forget_kept(ack.noted));
        self.wants_flush = ack.wants_flush;
        if ack.wants_flush {
            // Its journal fills with writes that are not flushed here: flush, and tell it.
            common.flush_for_peer(cx);
            self.report_primary_state(common, cx);
        }
        self.outbox.clear_bits(common, cx);
        true
    }

    /// Confirmations were taken, and writers have their answers.
    pub fn go_on_confirmed(&mut self, common: &mut GroupCommon, cx: &mut Cx, ack: &Ack) {
        self.sync_progress(common, cx);
        if !self.outbox.syncs() {
            // In the middle of a sync the peer can present nothing newer than before it.
            self.reached.reach(cx.now.mono, ack.applied_wall, ack.applied);
        }
        self.peer_paused(common, cx, ack.paused);
    }

    /// Takes up the mode's promise once the backlog is small. True: it holds from now on.
    pub fn take_up_promise(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        let Some(stream) = self.outbox.sending.stream_mut().filter(|stream| stream.is_open()) else { return false };
        // A peer that was left behind for its silence may have all there is: whoever wrote next would wait for it again.
        let is_silent = stream.answers_alone() && cx.peer.silent_for(cx.now.mono) > cx.peer.left_behind_after();
        if !stream.is_promised() && (is_silent || !stream.may_promise(cx.now.mono, &common.settings, cx.peer.rate)) {
            common.set_timer(cx, GroupTimer::CatchUp, limits::CATCH_UP_AFTER);
            return false;
        }
        if stream.answers_alone() {
            cx.coverage.hit(CoveragePoint::PromisedAfterAlone);
        }
        stream.promise_from_here();
        let Some(from) = stream.holds_promise() else { return false };
        // What was given before the promise may be answered under it: then it is durable here too.
        if common.settings.mode == Mode::Sync && !common.flushed_through(cx, from) {
            return false;
        }
        stream.begin_replicating();
        self.report_state(common, cx, "");
        // The copy is made in this mode now.
        common.sb.copied_in_own_mode();
        true
    }

    /// The session ended: what of that which is sent outlives it.
    pub fn link_lost(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> LostLink {
        let state = self.state(common);
        let stream = match &mut self.outbox.sending {
            Sending::Apart => return LostLink::Nothing,
            Sending::Snapshot(_) => return LostLink::Sync,
            Sending::Stream(stream) => stream,
        };
        let mid_sync = stream.syncs();
        if stream.end_repair() {
            // What it has not read yet is still to be sent.
            self.repair.is_due();
            common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
        }
        match state {
            State::Queuing | State::Holding => LostLink::Before,
            State::CatchingUp | State::Replicating | State::Paused(_) if !mid_sync => {
                stream.void_pending(common);
                void_probes(stream);
                stream.close();
                // It may go on within this input, under the same name.
                follow_stream(self, cx);
                LostLink::Stream
            }
            _ => LostLink::Sync,
        }
    }

    /// The queue goes on where the peer stands.
    pub fn continue_stream(&mut self, common: &mut GroupCommon, cx: &mut Cx, received: Seq, granted_bytes: u64) {
        cx.coverage.hit(CoveragePoint::QueueContinued);
        let run = self.greeting.hello().map(|hello| hello.identity.position.incarnation);
        if run.is_some_and(|run| run != common.sb.identity.incarnation) && !injected(Fault::TakeUpSkipped) {
            return begin_take_up(self, common, cx, received);
        }
        let held = self.state(common) == State::Holding;
        let stream = self.outbox.sending.stream_mut().expect("only an existing stream continues");
        stream.reopen(received, granted_bytes, cx.now.mono, held);
        self.outbox.rewind_disk_queue();
        let stream = self.outbox.stream().expect("it goes on");
        if stream.queue().unsent_bytes() > 0 {
            cx.coverage.hit(CoveragePoint::QueueRewound);
        }
        if held {
            cx.coverage.hit(CoveragePoint::HoldSavedByReconnect);
        }
        self.wanted.update_is_done();
        self.report_state(common, cx, "the link is back, the queue continues");
    }

    /// The next frame of what is sent, if the peer's window and the bytes allow it.
    pub fn next_frame(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> Option<(FrameHeader, SendPayload)> {
        self.outbox.fetch_ahead(common, cx);
        let leaves_from = self.outbox.disk.first_to_leave();
        let (owed, frame) = match &mut self.outbox.sending {
            Sending::Apart => return None,
            Sending::Stream(stream) => {
                let flushed = common.flush_point();
                let (header, payload) = stream.next_frame(common, cx, flushed, leaves_from)?;
                let through = stream.queue().sent_through();
                if self.outbox.disk.sent(queue_of(stream), through) {
                    // In a turn of its own: this one is at its end.
                    common.set_timer(cx, GroupTimer::Pace, Duration::ZERO);
                }
                if header.flags & flags::RESYNC == 0 {
                    common.counters.streamed_bytes += data_bytes(&payload);
                    common.volumes.of(header.volume).traffic.streamed(data_bytes(&payload));
                }
                if let SendPayload::Gathered(slices) = &payload {
                    common.counters.joined_writes += slices.len() as u64;
                    common.counters.joined_frames += 1;
                }
                let Taken { left_out, step } = take_uncounted(stream);
                common.counters.note_sent(left_out, step, cx.now.mono);
                (stream.owes(), (header, payload))
            }
            Sending::Snapshot(snapshot) => (snapshot.peer_owes(), snapshot.next_frame(common, cx)?),
        };
        if !owed {
            self.stall.moved(cx.now.mono);
        }
        Some(frame)
    }

    /// A flush here is done: a peer that waits for one is told.
    pub fn announce_flush(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if self.wants_flush {
            self.report_primary_state(common, cx);
        }
    }

    pub fn peer_paused(&mut self, common: &mut GroupCommon, cx: &mut Cx, paused: Option<Pause>) {
        let waited = core::mem::take(&mut self.catch_up.resumes);
        if matches!(self.state(common), State::Paused(_)) && paused.map(State::Paused) != Some(self.state(common)) {
            if paused.is_none() && self.outbox.syncs() && !cx.may_sync {
                // While it was paused others took its permit.
                self.catch_up.resumes = true;
                self.wanted.wait_for_permit(&self.greeting, false);
                let why = "the secondary has space again; waiting for its turn: other groups of this node are syncing";
                return self.report_state(common, cx, why);
            }
            self.resume(common, cx);
        }
        let state = self.state(common);
        // The state says that the peer has space again, and it has none.
        let again = waited && matches!(state, State::Paused(_));
        if let Some(pause) = paused
            && (again || matches!(state, State::Syncing | State::CatchingUp | State::Replicating))
        {
            self.outbox.sending.pause(pause);
            self.report_state(common, cx, pause.words());
        }
    }

    pub fn resume(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.catch_up.resumes = false;
        self.stall.moved(cx.now.mono);
        let why = match self.state(common) {
            State::Paused(Pause::DeltaUnsaved) => "the secondary saves its delta",
            _ => "the secondary has space again",
        };
        self.outbox.sending.resume();
        self.report_state(common, cx, why);
        if self.outbox.sending.snapshot().is_some_and(CatchUpSnapshot::is_done) && common.lifecycle.is_running() {
            self.next_step(common, cx, "update sync");
        }
    }

    /// The stream ends, and with it what put off a repair.
    pub fn end_stream(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        self.repair.forget_pause();
        self.outbox.end_stream(common, cx, why);
        logging::stream_ended(&mut self.outbox, common, cx);
    }
}

/// The peer stands in an earlier run, at a number from which the queue goes on.
fn begin_take_up(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx, received: Seq) {
    cx.coverage.hit(CoveragePoint::RunTakenUp);
    peer.passes += 1;
    let pass = SyncPass::take_up(cx.now.mono, peer.passes);
    let stream = peer.outbox.sending.stream_mut().expect("only an existing stream continues");
    stream::begin_take_up(stream, received, cx.now.mono, pass);
    peer.outbox.rewind_disk_queue();
    peer.wanted.update_is_done();
    peer.report_state(common, cx, "the peer takes up this run, the queue continues");
    peer.stall.watch_sync(common, cx);
}

/// The next step of a sync has begun. If the one before was `paused`, so is this one: it may have no permit.
pub(crate) fn step_begun(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx, paused: Option<Pause>, why: &str) {
    match paused {
        Some(pause) => peer.outbox.sending.pause(pause),
        None => peer.report_state(common, cx, why),
    }
}

/// The peer stands at least here: what it said of itself when it was met is older.
pub(crate) fn confirmed(common: &mut GroupCommon, peer: &mut Greeting, position: Position) {
    common.sb.peer_confirmed(peer.applied(common.sb.confirmed, position));
}
