//! Frames of a primary, as a secondary takes them: streams that begin, records, its clock.

use alloc::format;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::formats::wire::{FrameHeader, FrameKind, SyncBegin, Tick};
use crate::records::record::AfterSuper;
use crate::secondary::Secondary;
use crate::secondary::replica::lacks;
use crate::shared::greeting::Greeting;
use crate::state::State;
use crate::{FramePayload, SendPayload};

/// A stream that waits to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamBeginning {
    begin: SyncBegin,
    /// Names this attempt: a newer one overtakes it.
    number: u64,
    /// The superblock that names the stream is being written.
    recording: bool,
}

impl Secondary {
    pub fn receive(&mut self, common: &mut GroupCommon, cx: &mut Cx, header: &FrameHeader, payload: FramePayload) {
        let receives = common.role() == Role::Secondary && common.lifecycle.is_running();
        if common.has_failed() || !receives {
            // Failed, stopping, or promoted: the peer will learn it, the session is about to end.
            return;
        }
        if self.begins_stream() {
            let what = format!("number {} before this node was ready for its sync", header.seq.0);
            return common.protocol_error(cx, &what);
        }
        self.replica.receive(common, cx, header, payload);
    }

    // ---- a stream begins ---------------------------------------------------------------------------------------------

    /// A primary begins another stream.
    pub fn sync_begin(&mut self, common: &mut GroupCommon, cx: &mut Cx, begin: SyncBegin, primary: &Greeting) {
        if !primary.is_in_run(begin.from, begin.parent) {
            return common.protocol_error(cx, "a sync of another run or history than its own");
        }
        if !begin.nothing_dirty {
            // What this copy is about to lack for a while may have been acknowledged.
            self.window.forget();
        }
        self.replica.end_stream();
        self.delta.forget_union();
        self.begins += 1;
        self.beginning = Some(StreamBeginning { begin, number: self.begins, recording: false });
        self.proceed_sync_begin(common, cx, primary);
    }

    /// What came before is applied and recorded first; then the new stream's identity is, and `inconsistent` with it,
    /// before anything of it is accepted.
    pub fn proceed_sync_begin(&mut self, common: &mut GroupCommon, cx: &mut Cx, primary: &Greeting) {
        let Some(StreamBeginning { begin, number, recording: false }) = self.beginning.filter(|_| !common.has_failed())
        else {
            return;
        };
        // One that was overtaken while it is recorded is waited for: however many come, one record is under way. So is the end of the
        // rollback point before: the undo store holds one.
        let records = common.sb.awaits(|then| matches!(then, AfterSuper::SyncReady { .. }));
        if records || common.sb.drops_point() || !self.replica.replica_at_rest(common, cx) {
            return;
        }
        self.beginning = Some(StreamBeginning { begin, number, recording: true });
        self.replica.begin_stream(common, cx, &begin, primary);
        common.save_in_both_slots(cx, AfterSuper::SyncReady { number });
    }

    pub fn sync_ready(&mut self, common: &mut GroupCommon, cx: &mut Cx, number: u64) {
        let Some(StreamBeginning { begin, .. }) = self.beginning.take_if(|beginning| beginning.number == number) else {
            return;
        };
        self.replica.await_stream();
        if let Some(link) = cx.peer.link {
            let header = FrameHeader {
                offset: begin.attempt,
                ..FrameHeader::new(FrameKind::SyncReady, cx.peer.session, common.id())
            };
            cx.send(link, header, SendPayload::None);
        }
    }

    // ---- what both sides know ----------------------------------------------------------------------------------------

    /// The primary's clock, and what it says of the group.
    pub fn primary_tick(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        header: &FrameHeader,
        payload: &[u8],
    ) -> Option<()> {
        let mut tick = Tick::decode(payload)?;
        if common.role() != Role::Secondary || !common.lifecycle.is_running() {
            // Promoted meanwhile, or about to be: no confirmations are owed.
            return Some(());
        }
        if let State::Failed(_) = tick.state {
            // Nobody was answered in what was set since.
            tick.mode = common.sb.primary_mode.unwrap_or(tick.mode);
            tick.acts_as = self.primary_report.acts_as().unwrap_or(tick.acts_as);
        }
        let (state, mode) = (tick.state, tick.mode);
        // Before the end of a sync that is to put things right the blocks here are what they were.
        let is_after_sync = matches!(state, State::CatchingUp | State::Replicating);
        let doubts = if is_after_sync { tick.doubts } else { common.sb.doubts.and(tick.doubts) };
        let in_step = Some(header.seq).filter(|_| self.replica.has_all(header));
        let lacked = lacks(&self.replica, header).filter(|_| is_after_sync);
        self.primary_report.hear(common, cx, (tick, header.wall), in_step, lacked);
        // A group that failed may not know what its superblock should say.
        let may_record = self.may_count && !common.has_failed();
        if may_record && (common.sb.primary_mode != Some(mode) || common.sb.doubts != doubts) {
            // What a promotion has to know, however this node comes to it.
            common.sb.primary_serves_in(mode);
            common.sb.doubts(doubts);
            common.save(cx, None);
        }
        self.replica.take_tick(common, cx, header, state, self.begins_stream());
        Some(())
    }

    /// One acknowledgement per turn, if anything moved.
    pub fn send_due_ack(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if cx.peer.is_clogged {
            // The newest will say all of it.
            return;
        }
        if common.has_failed() {
            // Its role may be another than the one that the peer was told of: a demotion fails without a word.
            return;
        }
        if let (Some((ack, recalls)), Some(link)) =
            (self.replica.due_ack(common, cx, self.begins_stream()), cx.peer.link)
        {
            let header =
                FrameHeader { offset: recalls, ..FrameHeader::new(FrameKind::Ack, cx.peer.session, common.id()) };
            cx.send(link, header, SendPayload::Control(ack.encode()));
        }
    }
}
