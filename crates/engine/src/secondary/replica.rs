//! The copy in the write order: receive in order, land in the journal, apply behind in order, flush, record, confirm.
//!
//! ```text
//! receive -> landing -> batch (journal, durable) -> to_apply -> volumes -> flush -> superblock -> applied, trim
//!   received                durable                                                            applied
//! ```
//! Nothing reaches a volume before it is durable in the journal: so a crash at any point leaves volumes + journal =
//! a prefix of the write order (P2), once replayed.

mod apply;
mod flush;
mod image;
mod land;

pub(crate) use flush::{delta_gets_on, delta_is_there, pause_for_delta};
pub(crate) use image::open_views;

use alloc::format;
use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::durability::saving::UndoSaver;
use crate::formats::identity::{Decision, Identity, Role, decide};
use crate::formats::superblock::JournalHead;
use crate::formats::wire::{Ack, FrameHeader, SyncBegin};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::records::record::overwrites_own;
use crate::secondary::journal::ReplicaJournal;
use crate::secondary::progress::CopyProgress;
use crate::secondary::record_pipeline::{JournalRecord, RecordContent, RecordPipeline};
use crate::secondary::replay::ReplayEnd;
use crate::secondary::replica::flush::FlushCycle;
use crate::secondary::rollback::{name, reserve_for_sync};
use crate::secondary::sizes::PrimarySizes;
use crate::secondary::views::CopyViews;
use crate::secondary::window::ReceiveWindow;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::Greeting;
use crate::shared::memory::reserve;
use crate::shared::operation_slots::SavedFor;
use crate::shared::wakes::Wake;
use crate::state::{Pause, State};
use crate::time::Wall;
use crate::{Event, GroupConfig};

/// What a secondary received, and how far that has come.
#[derive(Debug)]
pub(crate) struct OrderedReplica {
    progress: CopyProgress,
    way: RecordPipeline,
    saver: UndoSaver,
    pub views: CopyViews,
    journal: ReplicaJournal,
    sizes: PrimarySizes,
    cycle: FlushCycle,
    paused: Option<Pause>,
    /// It is tried whether there is space again; until something gets on, the pause goes on being reported.
    retrying: bool,
    ack_due: bool,
    /// A primary sends on this session.
    streaming: bool,
}

impl OrderedReplica {
    pub fn new(config: &GroupConfig) -> OrderedReplica {
        OrderedReplica {
            progress: CopyProgress::default(),
            way: RecordPipeline::new(ReceiveWindow::new(config.window_bytes, reserve(config.window_bytes))),
            saver: UndoSaver::new(config, SavedFor::RollbackPoint),
            views: CopyViews::new(config),
            journal: ReplicaJournal::new(config.journal_bytes, JournalHead::default()),
            sizes: PrimarySizes::default(),
            cycle: FlushCycle::default(),
            paused: None,
            retrying: false,
            ack_due: false,
            streaming: false,
        }
    }

    /// A former secondary's journal goes on where it was, should this node become secondary again.
    pub fn after_promotion(self, config: &GroupConfig) -> OrderedReplica {
        OrderedReplica {
            journal: ReplicaJournal::new(config.journal_bytes, self.journal.end()),
            // Completions may still come of what was on its way.
            saver: self.saver,
            views: self.views,
            ..OrderedReplica::new(config)
        }
    }

    pub fn progress(&self) -> &CopyProgress {
        &self.progress
    }

    pub fn journal(&self) -> &ReplicaJournal {
        &self.journal
    }

    /// What the primary may send, and what is held of that.
    pub fn window(&self) -> &ReceiveWindow {
        &self.way.window
    }

    pub fn is_flushing(&self) -> bool {
        self.cycle.is_under_way()
    }

    pub fn paused(&self) -> Option<Pause> {
        if self.cycle.is_paused() { Some(Pause::DeltaUnsaved) } else { self.paused }
    }

    /// A primary sends on this session.
    pub fn is_streaming(&self) -> bool {
        self.streaming
    }

    /// Everything up to `position` is applied and recorded.
    pub fn stand_at(&mut self, position: Position, wall: Wall) {
        self.progress.stand_at(position, wall);
    }

    // ---- a session, a stream -----------------------------------------------------------------------------------------

    pub fn new_session(&mut self) {
        self.way.drop_open_epoch();
        self.way.window.restart();
        self.streaming = false;
    }

    pub fn lost_session(&mut self, cx: &mut Cx) {
        if self.way.open_epoch().is_some() {
            cx.coverage.hit(CoveragePoint::EpochCutShort);
        }
        self.new_session();
        self.ack_due = false;
    }

    /// Another stream begins only when its primary has flushed what it sent before.
    pub fn end_stream(&mut self) {
        self.streaming = false;
        self.way.drop_open_epoch();
        self.journal.flushed_by_primary(self.progress.received());
        self.ack_due = true;
    }

    /// What came before the stream is applied and recorded; the caller saves.
    pub fn begin_stream(&mut self, common: &mut GroupCommon, cx: &mut Cx, begin: &SyncBegin, primary: &Greeting) {
        let ours = Identity { position: self.progress.position(), ..common.sb.identity };
        let stood = self.take_rollback_point(common, cx, begin);
        let parts = !begin.nothing_dirty && is_of_other_history(&ours, begin, primary);
        if parts && stood {
            cx.coverage.hit(CoveragePoint::PointJudgedAgain);
        }
        // What it took up is of the history that this copy followed until now, and so is an image that stands from a sync that was cut short.
        let parts = parts && !(stood && injected(Fault::PointNotJudgedAgain));
        self.sizes.sync_begins(common, cx, primary);
        reserve_for_sync(&mut common.undo, &common.volumes, begin);
        common.sb.sync_begins(begin, self.journal.end());
        if overwrites_own(&mut common.sb, parts.then_some(common.volumes.len()), begin.is_resolved) {
            cx.coverage.hit(CoveragePoint::TookInOwnHistory);
        }
        self.stand_at(begin.from, self.progress.applied_wall());
        self.journal.begin_stream(begin);
        if begin.snapshot > 0 {
            self.progress.expect_snapshot(begin);
        }
    }

    /// A sync is about to be recorded: take the rollback point in the same update, unless there is one from a sync that
    /// was interrupted, or no image to go back to. Room for what the sync will overwrite is reserved next; without it, nothing
    /// is applied. True: there is one.
    fn take_rollback_point(&self, common: &mut GroupCommon, cx: &mut Cx, begin: &SyncBegin) -> bool {
        let (identity, position) = (common.sb.identity, self.progress.position());
        let has_image = !identity.inconsistent && !identity.generation.is_blank();
        let has_point = common.sb.rollback_point.id != 0;
        if !has_point && has_image && !begin.nothing_dirty {
            let point = common.sb.take_point(position, self.progress.applied_wall());
            cx.coverage.hit(CoveragePoint::RollbackPointTaken);
            assert!(self.saver.is_idle() && common.undo.mark().is_none(), "an older point is gone");
            common.undo.begin_mark(point.id);
            cx.event(common.config.id, Event::RollbackPoint { name: name(point.id), at: point.position });
        } else if has_point {
            cx.coverage.hit(CoveragePoint::RollbackPointKept);
            #[cfg(feature = "injected-faults")]
            if injected(Fault::PointMoves) {
                common.sb.move_point(position);
            }
        }
        has_point
    }

    /// The superblock names the stream: its records may come.
    pub fn await_stream(&mut self) {
        (self.streaming, self.ack_due) = (true, true);
        // The window is counted per stream, from its first frame on both ends.
        self.way.window.restart();
    }

    /// The primary's clock shows that it has numbered nothing that is not applied here. The session may outlive the run whose stream
    /// this was: numbers of another one say nothing of what is here.
    pub fn has_all(&self, tick: &FrameHeader) -> bool {
        follows(self, tick) && tick.seq == self.progress.applied_on_disk() && self.progress.is_in_step()
    }

    /// The primary reports how far it has flushed, what it knows of grants, and its time. `begins`: a stream waits to begin.
    pub fn take_tick(&mut self, common: &mut GroupCommon, cx: &mut Cx, tick: &FrameHeader, state: State, begins: bool) {
        let has_all = self.has_all(tick);
        if tick.incarnation == self.progress.incarnation() {
            self.journal.flushed_by_primary(tick.flushed.min(self.progress.durable_on_disk()));
        }
        match state {
            // Nothing comes before a new stream begins.
            State::Logging | State::Failed(_) => {
                if !injected(Fault::EpochOutlivesStream) {
                    self.way.drop_open_epoch();
                }
                self.way.window.restart();
            }
            _ => self.way.window.seen(tick.offset),
        }
        if has_all {
            let recalls = self.way.window.recalls();
            self.way.window.recall();
            if self.way.window.recalls() > recalls {
                cx.coverage.hit(CoveragePoint::WindowTakenBack);
            }
            self.progress.stands_still_until(tick.wall);
            self.ack_due = true;
        }
        // After a reconnect the primary goes on without a SyncBegin: it waits for our confirmations.
        if matches!(state, State::CatchingUp | State::Replicating | State::Paused(_)) && !begins {
            self.ack_due |= !core::mem::replace(&mut self.streaming, true);
        }
        self.trim_if_pressed(common, cx);
    }

    /// What is to be confirmed, if anything is, and how often the window was taken back. `begins`: a stream waits to begin.
    pub fn due_ack(&mut self, common: &mut GroupCommon, cx: &mut Cx, begins: bool) -> Option<(Ack, u64)> {
        let says = self.streaming || begins && self.paused().is_some();
        if !core::mem::take(&mut self.ack_due) || !says || cx.peer.link.is_none() {
            return None;
        }
        let paused = self.paused();
        let window = &mut self.way.window;
        let window_bytes = window.size_bytes();
        let granted_bytes = window.grant(cx.allowance, cx.now.mono, cx.peer.round_trip);
        if window.size_bytes() > window_bytes {
            cx.coverage.hit(CoveragePoint::WindowGrew);
        }
        common.memory.note(window.is_short(cx.allowance));
        let ack = Ack {
            received: self.progress.received(),
            durable: self.progress.durable_on_disk(),
            applied: self.progress.applied_on_disk(),
            granted_bytes,
            applied_wall: self.progress.applied_wall(),
            paused,
            noted: self.journal.noted(),
            wants_flush: self.journal.wants_flush() && self.journal.primary_flushed() < self.progress.written(),
        };
        Some((ack, window.recalls()))
    }

    /// Memory of this node came free: the window may grow.
    pub fn memory_freed(&mut self, cx: &Cx) {
        self.ack_due |= self.streaming && self.way.window.could_grow(cx.allowance);
    }

    // ---- at rest -----------------------------------------------------------------------------------------------------

    /// Everything received is applied, flushed and recorded.
    pub fn replica_at_rest(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        self.land(common, cx);
        if self.progress.is_unflushed() {
            self.flush_replica(common, cx);
        }
        let is_idle = !self.way.has_unlanded() && self.has_landed();
        is_idle && self.saver.is_idle() && self.progress.is_in_step() && !common.slots.saves()
    }

    /// What has landed is applied, flushed and recorded.
    fn has_landed(&self) -> bool {
        self.way.is_through() && !self.cycle.is_under_way() && self.progress.is_flushed()
    }

    /// The journal is full of what the primary may not have flushed: what was received lands when the primary says that it
    /// has, and not before.
    fn waits_for_primary(&self) -> bool {
        self.way.has_unlanded() && self.has_landed() && !self.can_trim()
    }

    /// Batches are applied and flushed on both sides, and still take up the journal.
    fn can_trim(&self) -> bool {
        self.journal.can_trim(self.progress.applied_on_disk())
    }

    /// Nobody will make room in a journal full of what a primary has not flushed: what has not landed is given up. It was
    /// never confirmed as durable, and a primary that is still there sends it again.
    pub fn give_up_unlanded(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.land(common, cx);
        if !self.waits_for_primary() {
            return;
        }
        let dropped = self.way.drop_unlanded();
        self.progress.forget_unlanded();
        // What was confirmed as received is not taken back: until the next stream nothing is.
        self.streaming = false;
        let note = format!(
            "{dropped} writes that were received and not yet durable are dropped: the journal is full of what the primary \
             may not have flushed ('journal' makes it larger)"
        );
        cx.event(common.id(), Event::Note(note));
    }

    /// Should nothing come of a promotion, the primary learns that it cannot know what it lost.
    pub fn waits_for_primary_no_more(&mut self, common: &mut GroupCommon) {
        if self.waits_for_primary() {
            let durable = self.progress.durable_on_disk();
            self.journal.give_up_kept(common, durable, durable);
        }
    }

    // ---- given up ----------------------------------------------------------------------------------------------------

    /// Forgets what was received and not applied; the ranges it was for.
    pub fn drop_unapplied(&mut self) -> Vec<(VolumeId, u64, u64)> {
        (self.paused, self.retrying, self.cycle) = (None, false, FlushCycle::default());
        self.saver.forget();
        self.way.drop_all()
    }

    /// What is on its way into the undo store is not needed any more.
    pub fn forget_saves(&mut self) {
        self.saver.forget();
    }

    /// The way back is about to be recorded. The copy stands nowhere any more: what a primary lost cannot be had from here, also if the
    /// image cannot be had back, or nothing comes of the promotion.
    pub fn drop_journal(&mut self, common: &mut GroupCommon) {
        self.empty_journal(common);
        self.journal.forget_batches();
        let durable = self.progress.durable_on_disk();
        let given_up = if injected(Fault::WayBackForgotten) { Seq::NONE } else { Seq(u64::MAX) };
        self.journal.give_up_kept(common, durable, given_up);
    }

    /// Nothing in the journal is needed any more: what follows begins behind it.
    pub fn empty_journal(&self, common: &mut GroupCommon) {
        common.sb.journal_emptied(self.journal.end());
    }

    /// The group has failed and applies nothing more: others of this node want the memory. What is under way goes when it
    /// completes; what is durable stands in the journal for the next start.
    pub fn let_go(&mut self, is_under_way: impl Fn(Seq) -> bool) {
        self.way.let_go(is_under_way);
    }

    // ---- at a start --------------------------------------------------------------------------------------------------

    /// The superblock is read: the journal goes on where it says.
    pub fn take_up_journal(&mut self, common: &GroupCommon) {
        self.journal = ReplicaJournal::new(common.config.journal_bytes, common.sb.journal);
    }

    /// Records read back from the journal. What was on the volumes before is only remembered, for a primary that may have lost it; the
    /// rest is applied as it was going to be.
    pub fn replay(&mut self, common: &mut GroupCommon, records: Vec<JournalRecord>, applied: Seq) {
        self.journal.remember(&records);
        let mut records: Vec<JournalRecord> = records.into_iter().filter(|record| record.seq > applied).collect();
        for record in records.iter_mut().filter(|record| record.overwrites()) {
            if common.volumes.is_detached(record.volume) {
                record.content = RecordContent::Void;
            }
        }
        land::marks_arrive(common, self.progress.position(), &records);
        self.progress.read_back(records.last().map(|record| (record.seq, record.wall)));
        self.way.landed(records);
        common.wake(Wake::Apply);
    }

    /// Replay has put everything on the volumes.
    pub fn has_applied(&self) -> bool {
        self.way.has_applied()
    }

    /// The journal is read back to its end.
    pub fn replayed(&mut self, common: &mut GroupCommon, end: ReplayEnd, is_damaged: bool) {
        let ReplayEnd { position, head, next, live, .. } = end;
        let wall = self.progress.written_wall();
        if self.cycle.take_sync_end() && !is_damaged {
            common.sb.sync_ended(common.volumes.len());
        }
        self.stand_at(position, wall);
        self.journal.keep_from_start(common, position.seq, is_damaged);
        let head = self.journal.read_back(common.config.journal_bytes, head, next, live);
        common.sb.replayed(position, wall, head, next);
    }
}

/// The sync makes this copy, which is `ours`, one of another history than it is of.
fn is_of_other_history(ours: &Identity, begin: &SyncBegin, primary: &Greeting) -> bool {
    let Some(hello) = primary.hello() else { return false };
    let theirs = Identity {
        role: Role::Primary,
        generation: begin.from.generation,
        parent: begin.parent,
        incarnation: begin.from.incarnation,
        position: begin.from,
        ..hello.identity
    };
    let needs = decide(&theirs, ours, None);
    let of_two = matches!(needs, Decision::NeedsFullSync(why) if why.is_of_two_histories());
    of_two && !injected(Fault::ForkSyncedUnsaved)
}

/// What comes is the order that the primary speaks of.
fn follows(replica: &OrderedReplica, tick: &FrameHeader) -> bool {
    let progress = replica.progress();
    replica.streaming && progress.snapshot().is_none() && tick.incarnation == progress.incarnation()
}

/// So many of the primary's numbers are not durable here; `None`: what comes is not their order.
pub(crate) fn lacks(replica: &OrderedReplica, tick: &FrameHeader) -> Option<u64> {
    let durable = replica.progress().durable_on_disk();
    follows(replica, tick).then(|| tick.seq.0.saturating_sub(durable.0))
}
