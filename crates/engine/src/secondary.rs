//! The receiving half: receive, land, apply, answer, go back.

pub mod delta;
pub mod journal;
pub mod known_window;
pub mod primary_report;
pub mod progress;
pub mod receive;
pub mod record_pipeline;
pub mod replay;
pub mod replica;
pub mod roles;
pub mod rollback;
pub mod sizes;
pub mod status;
pub mod viewing;
pub mod views;
pub mod window;

use alloc::string::String;

use crate::GroupConfig;
use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::wire::FlushPoints;
use crate::ids::*;
use crate::secondary::delta::DeltaSave;
use crate::secondary::known_window::KnownWindow;
use crate::secondary::primary_report::PrimaryReport;
use crate::secondary::receive::StreamBeginning;
use crate::secondary::replay::{JournalReplay, ReplayEnd};
use crate::secondary::replica::OrderedReplica;
use crate::secondary::rollback::Rollback;
use crate::secondary::rollback::scan::RollbackScan;
use crate::shared::coverage::CoveragePoint;
use crate::shared::lifecycle::{Phase, StartStage};
use crate::state::Broken;

/// A snapshot being received, or the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotPosition {
    /// As its primary names it.
    pub name: u64,
    /// The image it makes; this node's position once it is done.
    pub from: Position,
}

/// The secondary's half of a group: its copy, what it owes its primary, how it comes up and goes back.
#[derive(Debug)]
pub(crate) struct Secondary {
    pub replica: OrderedReplica,
    pub primary_report: PrimaryReport,
    /// What the primary promised of writes that this copy does not have.
    pub window: KnownWindow,
    /// What is saved of this copy before a peer that was chosen over it overwrites it.
    pub delta: DeltaSave,
    /// A stream waits to begin until what came before is applied.
    beginning: Option<StreamBeginning>,
    begins: u64,
    /// The primary asks for what it may have lost; answered once all is applied.
    /// With the number of the question.
    tail_asked: Option<(FlushPoints, Seq)>,
    /// Why the rollback point cannot be gone back to.
    undo_damaged: Option<String>,
    /// What the superblock says in memory is true: a start may have to say more before it stands.
    may_count: bool,
    /// Counts in the stage of a start that it is named after.
    scan: RollbackScan,
    replay: JournalReplay,
    /// Where it came to, while the volumes are flushed, and whether the journal was damaged there.
    replayed: Option<(ReplayEnd, bool)>,
    /// Counts while the group is on its way back.
    rollback: Option<Rollback>,
}

impl Secondary {
    pub fn new(config: &GroupConfig) -> Secondary {
        Secondary {
            replica: OrderedReplica::new(config),
            primary_report: PrimaryReport::default(),
            window: KnownWindow::default(),
            delta: DeltaSave::default(),
            beginning: None,
            begins: 0,
            tail_asked: None,
            undo_damaged: None,
            may_count: false,
            scan: RollbackScan::default(),
            replay: JournalReplay::default(),
            replayed: None,
            rollback: None,
        }
    }

    /// Should this node become secondary again, what it knew of itself goes on.
    pub fn after_promotion(&mut self, config: &GroupConfig) {
        let old = core::mem::replace(self, Secondary::new(config));
        self.replica = old.replica.after_promotion(config);
        self.delta = old.delta.after_promotion();
        (self.primary_report, self.undo_damaged, self.may_count) =
            (old.primary_report, old.undo_damaged, old.may_count);
    }

    pub fn new_session(&mut self) {
        self.replica.new_session();
        self.delta.forget_union();
        self.beginning = None;
    }

    pub fn lost_session(&mut self, cx: &mut Cx) {
        self.replica.lost_session(cx);
        self.delta.forget_union();
        self.beginning = None;
        self.tail_asked = None;
    }

    /// The start is through: what the superblock says of the batches is true from here on.
    pub fn may_count(&mut self) {
        self.may_count = true;
    }

    /// The start came to nothing.
    pub fn forget_start(&mut self) {
        (self.scan, self.replay, self.replayed) = (RollbackScan::default(), JournalReplay::default(), None);
    }

    /// A batch that rots is distinguished from a torn one by the count (P9). Where nothing is applied, no cycle brings it up to date.
    pub fn count_batches(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let due = match (common.lifecycle.phase(), common.lifecycle.broken()) {
            // However long it stands failed until somebody looks.
            (Phase::Running, Some(broken)) => self.may_count && broken != Broken::Superblock,
            (Phase::Running | Phase::Promoting(_) | Phase::Stopping { .. }, _) => {
                !self.replica.is_flushing() || self.replica.awaits_delta()
            }
            // It stands still for want of space, or failed, and has overwritten what it saved.
            (Phase::Starting(StartStage::Replay), _) => true,
            _ => false,
        };
        if due && common.sb.counts_too_few(&common.undo) {
            cx.coverage.hit(CoveragePoint::CountedWithoutCycle);
            common.save(cx, None);
        }
    }

    /// A stream waits to begin.
    pub fn begins_stream(&self) -> bool {
        self.beginning.is_some()
    }
}
