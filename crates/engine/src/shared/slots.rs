//! Operations under way: what each completion belongs to.

use alloc::vec::Vec;

use crate::formats::undo::Saved;
use crate::formats::wire::VolumeRange;
use crate::ids::*;
use crate::shared::reads::{CutRead, ResyncRead, Spilled};
use crate::shared::write::WriteOp;

/// What waits for the undo store holds: good once everything asked for up to it is durable; 0 at once.
pub(crate) type Ticket = u64;

/// An operation under way; its slot is in the token.
#[derive(Debug)]
pub(crate) enum Op {
    Write(WriteOp),
    Resync(ResyncRead),
    Cut(CutRead),
    CutHole(CutRead),
    CutSpill(Spilled),
    CutFetch(Spilled),
    LocalFlush(VolumeId),
    Superblock,
    BitmapCell {
        index: usize,
        words: Vec<u64>,
    },
    ActivityCell,
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
        piece: Ticket,
    },
    SaveBatch {
        last_piece: Ticket,
    },
    RestoreRead(Saved),
    RestoreWrite(Saved),
    RestoreFlush,
}

/// Operations by slot; a slot is reused only after its operation is gone.
#[derive(Debug)]
pub(crate) struct Slots {
    group: GroupId,
    ops: Vec<Option<Op>>,
    free: Vec<u32>,
}

impl Slots {
    pub fn new(group: GroupId) -> Slots {
        Slots { group, ops: Vec::new(), free: Vec::new() }
    }

    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The operation is under way; its completion brings the token back.
    pub fn start(&mut self, op: Op) -> Token {
        Token::new(self.group, self.insert(op))
    }

    pub fn insert(&mut self, op: Op) -> u32 {
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

    pub fn get(&self, slot: u32) -> Option<&Op> {
        self.ops.get(slot as usize)?.as_ref()
    }

    pub fn take(&mut self, slot: u32) -> Option<Op> {
        let op = self.ops.get_mut(slot as usize)?.take();
        if op.is_some() {
            self.free.push(slot);
        }
        op
    }

    pub fn write(&mut self, slot: u32) -> &mut WriteOp {
        match self.ops.get_mut(slot as usize) {
            Some(Some(Op::Write(w))) => w,
            other => unreachable!("slot {slot} holds a write, not {other:?}"),
        }
    }

    pub fn write_ref(&self, slot: u32) -> &WriteOp {
        match self.get(slot) {
            Some(Op::Write(w)) => w,
            other => unreachable!("slot {slot} holds a write, not {other:?}"),
        }
    }

    pub fn get_resync(&mut self, slot: u32) -> Option<&mut ResyncRead> {
        match self.ops.get_mut(slot as usize) {
            Some(Some(Op::Resync(read))) => Some(read),
            _ => None,
        }
    }

    pub fn applies(&self, seq: Seq) -> bool {
        self.ops.iter().any(|op| matches!(op, Some(Op::Apply { seq: s }) if *s == seq))
    }

    /// Something of the undo store is in flight.
    pub fn saves(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Some(Op::SaveRead { .. } | Op::SaveBatch { .. })))
    }

    /// Something of the receiving side is in flight.
    pub fn replica_busy(&self) -> bool {
        let busy = |op: &Op| {
            matches!(op, Op::JournalBatch { .. } | Op::Apply { .. } | Op::ReplicaFlush | Op::Superblock | Op::StartRead)
                || matches!(op, Op::RestoreRead(_) | Op::RestoreWrite(_) | Op::RestoreFlush | Op::PullRead { .. })
        };
        self.saves() || self.ops.iter().flatten().any(busy)
    }

    /// Writes under way, for a failure report.
    pub fn write_ops(&self) -> Vec<&WriteOp> {
        self.ops.iter().filter_map(|op| if let Some(Op::Write(write)) = op { Some(write) } else { None }).collect()
    }

    pub fn writes(&self) -> usize {
        self.ops.iter().filter(|op| matches!(op, Some(Op::Write(_)))).count()
    }
}
