//! The receiving half: receive, land, apply, answer, go back.

pub mod apply;
pub mod primary_report;
pub mod progress;
pub mod receive;
pub mod record_pipeline;
pub mod replay;
pub mod roles;
pub mod rollback;
pub mod saving;
pub mod sizes;
pub mod start;
pub mod status;
pub mod window;

use alloc::string::String;
use alloc::vec::Vec;

use crate::durability::kept::KeptWrites;
use crate::durability::saving::UndoSaver;
use crate::formats::journal::JournalRing;
use crate::formats::superblock::JournalHead;
use crate::formats::wire::{FlushPoints, SyncBegin, VolumeRange};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::secondary::primary_report::PrimaryReport;
use crate::secondary::progress::CopyProgress;
use crate::secondary::receive::*;
use crate::secondary::record_pipeline::{JournalRecord, RecordPipeline};
use crate::secondary::replay::JournalReplay;
use crate::secondary::rollback::{Rollback, UndoScan};
use crate::secondary::window::ReceiveWindow;
use crate::shared::memory::reserve;
use crate::state::Pause;
use crate::time::Wall;
use crate::{GroupConfig, limits};

/// A snapshot being received, or the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotPosition {
    /// As its primary names it.
    pub name: u64,
    /// The image it makes; this node's position once it is done.
    pub from: Position,
}

/// The secondary's half of a group: what it received, how far that has come, what it owes its primary.
#[derive(Debug)]
pub(crate) struct Secondary {
    progress: CopyProgress,
    way: RecordPipeline,
    saver: UndoSaver,
    ring: JournalRing,
    unflushed_bytes: u64,
    unflushed_volumes: Vec<VolumeId>,
    cycle: Option<FlushCycle>,
    /// The sync's end is written but not recorded.
    sync_end: Option<Seq>,
    /// What the primary of the last sync said of its volumes.
    primary_bytes: Vec<u64>,
    /// A stream waits to begin until what came before is applied.
    beginning: Option<StreamBeginning>,
    begins: u64,
    paused: Option<Pause>,
    /// It is tried whether there is space again; until something gets on, the pause goes on being reported.
    retrying: bool,
    /// A sync has ended, and bits that it reconciled still stand on disk.
    bits_forgotten: bool,
    kept: KeptWrites,
    /// No record up to here comes back from the journal at a start.
    noted: Seq,
    /// The primary asks for what it may have lost; answered once all is applied.
    /// With the number of the question.
    tail_asked: Option<(FlushPoints, Seq)>,
    want_received: bool,
    ack_due: bool,
    /// A primary sends on this session.
    streaming: bool,
    /// Why the rollback point cannot be gone back to.
    undo_damaged: Option<String>,
    report: Option<PrimaryReport>,
    /// What the superblock says in memory is true: a start may have to say more before it stands.
    may_count: bool,
    /// Counts in the stage of a start that it is named after.
    scan: UndoScan,
    replay: JournalReplay,
    /// Counts while the group is on its way back.
    rollback: Option<Rollback>,
}

impl Secondary {
    pub fn new(config: &GroupConfig) -> Secondary {
        Secondary {
            progress: CopyProgress::default(),
            way: RecordPipeline::new(ReceiveWindow::new(config.window_bytes, reserve(config.window_bytes))),
            saver: UndoSaver::new(config),
            ring: JournalRing::new(config.journal_bytes, JournalHead::default()),
            unflushed_bytes: 0,
            unflushed_volumes: Vec::new(),
            cycle: None,
            sync_end: None,
            primary_bytes: Vec::new(),
            beginning: None,
            begins: 0,
            paused: None,
            retrying: false,
            bits_forgotten: false,
            kept: KeptWrites::default(),
            noted: Seq::NONE,
            tail_asked: None,
            want_received: false,
            ack_due: false,
            streaming: false,
            undo_damaged: None,
            report: None,
            may_count: false,
            scan: UndoScan::default(),
            replay: JournalReplay::default(),
            rollback: None,
        }
    }

    /// In a snapshot: the position it leads to. Its numbers are nobody's position in the write order.
    pub fn position(&self) -> Position {
        self.progress.position()
    }

    /// Everything up to `position` is applied and recorded.
    pub fn stand_at(&mut self, position: Position, wall: Wall) {
        self.progress.stand_at(position, wall);
    }

    /// Another stream begins: its primary has flushed what it sent before.
    pub fn begin_stream(&mut self, begin: &SyncBegin, wall: Wall) {
        self.stand_at(begin.from, wall);
        (self.kept, self.noted) = (KeptWrites::of_stream(begin.from.seq), begin.from.seq);
        if begin.snapshot > 0 {
            self.progress.expect_snapshot(begin);
            self.kept = KeptWrites::of_snapshot();
        }
    }

    /// These are durable: their ranges are kept for a primary that loses its power.
    pub fn remember(&mut self, records: &[JournalRecord]) {
        for record in records.iter().filter(|record| !record.resync && record.overwrites()) {
            let range = VolumeRange { volume: record.volume, offset: record.offset, length: record.length };
            self.kept.landed(record.seq, range);
        }
    }

    /// A start has read back all that the journal holds.
    pub fn kept_from_journal(&mut self, given_up: Seq) {
        self.kept.read_back(self.progress.applied_on_disk(), given_up);
        if injected(Fault::KeptLostAtStart) {
            _ = self.kept.give_up(self.progress.applied_on_disk());
        }
        self.noted = self.kept.floor();
    }

    /// A former secondary's journal goes on where it was, should this node become secondary again.
    pub fn after_promotion(&mut self, config: &GroupConfig) {
        let fresh = Secondary::new(config);
        let old = core::mem::replace(self, fresh);
        self.ring = JournalRing::new(config.journal_bytes, old.ring.head_after(Seq(u64::MAX)));
        // Completions may still come of what was on its way.
        self.saver = old.saver;
        (self.report, self.undo_damaged, self.may_count) = (old.report, old.undo_damaged, old.may_count);
    }

    pub fn new_session(&mut self) {
        self.way.window.restart();
        self.streaming = false;
        self.beginning = None;
    }

    pub fn lost_session(&mut self) {
        self.streaming = false;
        self.beginning = None;
        self.tail_asked = None;
        self.ack_due = false;
        self.way.window.restart();
    }

    /// Nothing is applied before the next try.
    pub fn stands_still(&self) -> bool {
        self.paused.is_some() && !self.retrying
    }

    /// The journal is short of space that the primary's flush would free, or has freed.
    pub fn is_pressed(&self) -> bool {
        self.way.has_unlanded() || self.wants_flush()
    }

    /// Half of what it can keep for a primary that has not flushed is in use.
    pub fn wants_flush(&self) -> bool {
        self.ring.is_half_full() || self.kept.len() >= limits::KEPT_MAX / 2
    }

    /// Batches are applied and flushed on both sides, and still take up the journal.
    pub fn can_trim(&self) -> bool {
        self.ring.has_before(self.progress.applied_on_disk().min(self.kept.floor()))
    }

    pub fn is_idle(&self) -> bool {
        !self.way.has_unlanded() && self.has_landed()
    }

    /// What has landed is applied, flushed and recorded.
    fn has_landed(&self) -> bool {
        self.way.is_through() && self.cycle.is_none() && self.progress.is_flushed()
    }

    /// The journal is full of what the primary may not have flushed: what was received lands when the primary says that it
    /// has, and not before.
    pub fn waits_for_primary(&self) -> bool {
        self.way.has_unlanded() && self.has_landed() && !self.can_trim()
    }

    /// Forgets what was received and has not landed; how many writes. None of them was confirmed as durable.
    pub fn drop_unlanded(&mut self) -> usize {
        let dropped = self.way.drop_unlanded();
        self.progress.forget_unlanded();
        // What was confirmed as received is not taken back: until the next stream nothing is.
        self.streaming = false;
        dropped
    }

    /// Records read back from the journal, to be applied as they were going to be.
    pub fn replay(&mut self, records: Vec<JournalRecord>) {
        self.progress.read_back(records.last().map(|record| (record.seq, record.wall)));
        self.way.landed(records);
    }

    /// Replay has put everything on the volumes.
    pub fn replayed(&mut self) -> bool {
        self.way.has_applied()
    }

    /// Replay met the end of a sync.
    pub fn take_sync_end(&mut self) -> bool {
        self.sync_end.take().is_some()
    }

    /// The primary's time of all that was received; an idle primary's clock goes on.
    pub fn newest_wall(&self) -> Wall {
        self.progress.newest_wall()
    }

    /// Forgets what was received and not applied; the ranges it was for.
    pub fn drop_unapplied(&mut self) -> Vec<(VolumeId, u64, u64)> {
        let changes = self.way.drop_all();
        self.unflushed_bytes = 0;
        (self.paused, self.retrying, self.sync_end, self.cycle) = (None, false, None, None);
        self.unflushed_volumes.clear();
        changes
    }

    /// The group has failed and applies nothing more: others of this node want the memory. What is under way goes when it
    /// completes; what is durable stands in the journal for the next start.
    pub fn let_go(&mut self, is_under_way: impl Fn(Seq) -> bool) {
        self.way.let_go(is_under_way);
    }

    pub fn paused(&self) -> Option<Pause> {
        self.paused
    }

    /// A primary sends on this session.
    pub fn is_streaming(&self) -> bool {
        self.streaming
    }

    pub fn applied_wall(&self) -> Wall {
        self.progress.applied_wall()
    }

    /// The oldest write that is kept for a primary that may lose it.
    pub fn oldest_kept(&self) -> Option<Seq> {
        self.kept.oldest()
    }

    /// Memory that the primary may count on here.
    pub fn lease_bytes(&self) -> u64 {
        self.way.window.lease_bytes()
    }

    pub fn granted_bytes(&self) -> u64 {
        self.way.window.granted_bytes()
    }

    /// The start is through: what the superblock says of the batches is true from here on.
    pub fn may_count(&mut self) {
        self.may_count = true;
    }

    /// Records waiting to be applied, in bytes of memory.
    pub fn unapplied_bytes(&self) -> u64 {
        self.way.window.held_bytes()
    }
}
