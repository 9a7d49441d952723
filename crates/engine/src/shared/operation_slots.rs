//! Operations under way: what each completion belongs to.

use alloc::vec::Vec;

use crate::formats::undo::SavedRange;
use crate::formats::wire::VolumeRange;
use crate::ids::*;
use crate::shared::reads::{ResyncRead, SnapshotRead, SpilledRange, VerifyRead};
use crate::shared::write::WriteOp;

/// What waits for the undo store holds: good once everything asked for up to it is durable; 0 at once.
pub(crate) type UndoTicket = u64;

/// What saves content before it is overwritten, each in a store of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SavedFor {
    RollbackPoint,
    Views,
}

/// What of a view's image is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewSource {
    /// Of the volume, from this byte on: it holds the image still, if nothing of it is saved by the end of the read.
    Volume(u64),
    /// A saved range, by its place in its store.
    Saved(u64),
}

/// A read for a view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewReadOp {
    pub view: ViewId,
    /// The request that it is a part of, by its number among those of all views.
    pub request: u64,
    pub source: ViewSource,
    pub length: u64,
}

/// An operation under way; its slot is in the token.
#[derive(Debug)]
pub(crate) enum SlotOperation {
    Write(WriteOp),
    Resync(ResyncRead),
    Verify(VerifyRead),
    Snapshot(SnapshotRead),
    SnapshotHole(SnapshotRead),
    SnapshotSpill(SpilledRange),
    SnapshotFetch(SpilledRange),
    QueueSpill,
    QueueFetch,
    QueueAppend {
        ordinal: u64,
    },
    QueueCell,
    LocalFlush(VolumeId),
    Superblock,
    BitmapCell {
        index: usize,
        words: Vec<u64>,
    },
    ActivityCell,
    MarksCell,
    /// For a primary that asked in this session.
    PullRead {
        range: VolumeRange,
        session: SessionId,
        question: Seq,
    },
    PullWrite {
        bytes: u64,
    },
    PullFlush,
    JournalBatch {
        ordinal: u64,
    },
    Apply {
        seq: Seq,
    },
    ReplicaFlush,
    StartRead,
    SaveRead {
        of: SavedFor,
        piece: UndoTicket,
    },
    SaveBatch {
        of: SavedFor,
        last_piece: UndoTicket,
    },
    ViewRead(ViewReadOp),
    RestoreRead(SavedRange),
    RestoreWrite(SavedRange),
    RestoreFlush,
    Delta(DeltaPart),
}

/// What is done for a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeltaPart {
    Renew,
    /// Of the batch that is being gathered: its range of this position.
    Read(usize),
    Batch,
    Flush,
    Head,
}

impl DeltaPart {
    /// What has to be done before comes first.
    pub fn stage(self) -> u8 {
        match self {
            DeltaPart::Renew => 0,
            DeltaPart::Read(_) | DeltaPart::Batch => 1,
            DeltaPart::Flush => 2,
            DeltaPart::Head => 3,
        }
    }
}

/// Operations by slot; a slot is reused only after its operation is gone.
#[derive(Debug)]
pub(crate) struct OperationSlots {
    group: GroupId,
    ops: Vec<Option<SlotOperation>>,
    free: Vec<u32>,
}

impl OperationSlots {
    pub fn new(group: GroupId) -> OperationSlots {
        OperationSlots { group, ops: Vec::new(), free: Vec::new() }
    }

    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The operation is under way; its completion brings the token back.
    pub fn start(&mut self, op: SlotOperation) -> Token {
        Token::new(self.group, self.insert(op))
    }

    pub fn insert(&mut self, op: SlotOperation) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.ops[slot as usize] = Some(op);
                slot
            }
            None => {
                self.ops.push(Some(op));
                self.ops.len() as u32 - 1
            }
        }
    }

    pub fn get(&self, slot: u32) -> Option<&SlotOperation> {
        self.ops.get(slot as usize)?.as_ref()
    }

    pub fn take(&mut self, slot: u32) -> Option<SlotOperation> {
        let op = self.ops.get_mut(slot as usize)?.take();
        if op.is_some() {
            self.free.push(slot);
        }
        op
    }

    pub fn write(&mut self, slot: u32) -> &mut WriteOp {
        match self.ops.get_mut(slot as usize) {
            Some(Some(SlotOperation::Write(w))) => w,
            other => unreachable!("slot {slot} holds a write, not {other:?}"),
        }
    }

    pub fn write_ref(&self, slot: u32) -> &WriteOp {
        match self.get(slot) {
            Some(SlotOperation::Write(w)) => w,
            other => unreachable!("slot {slot} holds a write, not {other:?}"),
        }
    }

    pub fn get_resync(&mut self, slot: u32) -> Option<&mut ResyncRead> {
        match self.ops.get_mut(slot as usize) {
            Some(Some(SlotOperation::Resync(read))) => Some(read),
            _ => None,
        }
    }

    pub fn applies(&self, seq: Seq) -> bool {
        self.ops.iter().any(|op| matches!(op, Some(SlotOperation::Apply { seq: s }) if *s == seq))
    }

    /// Nothing is under way, and no writer waits.
    pub fn are_idle(&self) -> bool {
        self.free.len() == self.ops.len()
    }

    /// Something that saves for a rollback point, or something of a delta, is in flight. What is saved or read for views keeps nobody waiting.
    pub fn saves(&self) -> bool {
        use SlotOperation::{Delta, SaveBatch, SaveRead};
        let of_point = |of: &SavedFor| *of == SavedFor::RollbackPoint;
        let is_it = |op: &SlotOperation| match op {
            SaveRead { of, .. } | SaveBatch { of, .. } => of_point(of),
            Delta(_) => true,
            _ => false,
        };
        self.ops.iter().flatten().any(is_it)
    }

    /// Something is on its way into the store for views, also of views that are lost.
    pub fn saves_for_views(&self) -> bool {
        use SlotOperation::{SaveBatch, SaveRead};
        let of_views = |of: &SavedFor| *of == SavedFor::Views;
        self.ops.iter().flatten().any(|op| matches!(op, SaveRead { of, .. } | SaveBatch { of, .. } if of_views(of)))
    }

    /// Something of a delta is in flight.
    pub fn saves_delta(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Some(SlotOperation::Delta(_))))
    }

    /// The head that makes a delta whole is on its way.
    pub fn heads_delta(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Some(SlotOperation::Delta(DeltaPart::Head))))
    }

    /// A write of a snapshot is on its way to the undo store, also of one that is over.
    pub fn spills(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Some(SlotOperation::SnapshotSpill(_))))
    }

    /// Something of the receiving side is in flight.
    pub fn replica_busy(&self) -> bool {
        let busy = |op: &SlotOperation| {
            matches!(
                op,
                SlotOperation::JournalBatch { .. }
                    | SlotOperation::Apply { .. }
                    | SlotOperation::ReplicaFlush
                    | SlotOperation::Superblock
                    | SlotOperation::StartRead
            ) || matches!(
                op,
                SlotOperation::RestoreRead(_)
                    | SlotOperation::RestoreWrite(_)
                    | SlotOperation::RestoreFlush
                    | SlotOperation::PullRead { .. }
            )
        };
        self.saves() || self.ops.iter().flatten().any(busy)
    }

    /// Writes under way, for a failure report.
    pub fn write_ops(&self) -> Vec<&WriteOp> {
        self.ops
            .iter()
            .filter_map(|op| if let Some(SlotOperation::Write(write)) = op { Some(write) } else { None })
            .collect()
    }

    pub fn writes(&self) -> usize {
        self.ops.iter().filter(|op| matches!(op, Some(SlotOperation::Write(_)))).count()
    }
}
