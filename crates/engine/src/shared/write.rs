//! A write under way: what it is, what its writer waits for, and how far it came.

use core::time::Duration;

use alloc::vec::Vec;

use crate::ids::*;
use crate::shared::cost::cost;
use crate::time::Mono;
use crate::{Buf, IoError, limits};

/// What the writer waits for at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AckLevel {
    Local,
    /// Nothing, though the mode asks for durability on both: here it has it.
    LocalDurable,
    Received,
    Durable,
}

impl AckLevel {
    pub fn waits_for_peer(self) -> bool {
        self >= AckLevel::Received
    }

    /// The local write is durable before the writer is answered.
    pub fn is_durable_here(self) -> bool {
        matches!(self, AckLevel::LocalDurable | AckLevel::Durable)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum WriteKind {
    Data(Buf),
    Zero { no_hole: bool },
}

/// How far a write came: at any time it is in exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteStage {
    Arrived,
    /// It waits for room in the queue.
    ForRoom,
    /// For its range, which another one holds.
    ForRange,
    /// For a record that lets a crash find it; its range is its own.
    ForRecord,
    /// For memory to save what it would overwrite of a snapshot.
    ForMemory,
    /// It has its numbers, and waits until they are in the log of the queue.
    Logging,
    /// It has its numbers, and is being written here.
    Writing,
    /// It is written, and being flushed here.
    Flushing,
    /// Nothing more is to be done here; it may wait for the peer.
    Here,
}

impl WriteStage {
    /// It has no number yet.
    pub fn waits(self) -> bool {
        use WriteStage::*;
        matches!(self, Arrived | ForRoom | ForRange | ForRecord | ForMemory)
    }
}

/// The table of its edges.
fn legal(from: WriteStage, to: WriteStage) -> bool {
    use WriteStage::*;
    match (from, to) {
        (_, Arrived) => false,
        // What it finds when it goes on may be gone before it has a number.
        _ if from.waits() => to.waits() || matches!(to, Logging | Writing),
        (Logging, Writing) => true,
        (Writing, Flushing | Here) | (Flushing, Here) => true,
        // It is to be answered without the peer.
        (Here, Flushing) => true,
        _ => false,
    }
}

/// One write, trim or write-zeroes.
#[derive(Clone, Debug)]
pub(crate) struct WriteOp {
    pub id: RequestId,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    pub what: WriteKind,
    pub fua: bool,
    /// Since when it waits for the peer: for room first, then for what the peer owes it.
    pub since: Mono,
    /// For how long writers had been slowed down on purpose when it began to wait for room.
    pub paced_before: Duration,
    /// Since when it has room and waits for this node alone.
    waits_here_from: Option<Mono>,
    /// Its position in the order of arrival.
    came: u64,
    pub first: Seq,
    pub last: Seq,
    pub level: AckLevel,
    stage: WriteStage,
    /// Since when nothing more is to be done here.
    done_here: Option<Mono>,
    pub failed: Option<IoError>,
    /// Nothing more is expected of the peer.
    pub remote_done: bool,
    /// Bytes and items of the queue that are kept for it while it waits for something else.
    room: (u64, u64),
    /// The peer has confirmed it, as far as its writer waits for.
    pub peer_has_it: bool,
    /// Its answer waits for the end of the peer window.
    pub is_held: bool,
    /// The writer has its answer (early, under policy `strict`).
    pub answered: bool,
    /// Its slots in the activity log.
    pub pins: ExtentPins,
}

impl WriteOp {
    /// So much of the queue is kept for it.
    pub fn keep_room(&mut self, room: (u64, u64)) {
        self.room = room;
    }

    /// What was kept for it.
    pub fn give_room_back(&mut self) -> (u64, u64) {
        core::mem::take(&mut self.room)
    }

    /// It has its room; whatever it waits for before it has its number is nothing of the peer's.
    pub fn waits_here(&mut self, now: Mono) {
        self.waits_here_from.get_or_insert(now);
    }

    /// It waits for the peer again, which is not charged for what this node took.
    pub fn waits_for_peer(&mut self, now: Mono) {
        if let Some(from) = self.waits_here_from.take() {
            self.since = self.since.plus(now.since(from));
        }
    }

    pub fn data(id: RequestId, volume: VolumeId, offset: u64, length: u64, buf: Buf, fua: bool, now: Mono) -> WriteOp {
        WriteOp::new(id, volume, offset, length, WriteKind::Data(buf), fua, now)
    }

    pub fn zero(
        id: RequestId,
        volume: VolumeId,
        offset: u64,
        length: u64,
        no_hole: bool,
        fua: bool,
        now: Mono,
    ) -> WriteOp {
        WriteOp::new(id, volume, offset, length, WriteKind::Zero { no_hole }, fua, now)
    }

    fn new(
        id: RequestId,
        volume: VolumeId,
        offset: u64,
        length: u64,
        what: WriteKind,
        fua: bool,
        since: Mono,
    ) -> WriteOp {
        assert!(
            length > 0 && length.is_multiple_of(limits::SECTOR_BYTES) && offset.is_multiple_of(limits::SECTOR_BYTES)
        );
        WriteOp {
            id,
            volume,
            offset,
            length,
            what,
            fua,
            since,
            paced_before: Duration::ZERO,
            waits_here_from: None,
            came: 0,
            first: Seq::NONE,
            last: Seq::NONE,
            level: AckLevel::Local,
            stage: WriteStage::Arrived,
            done_here: None,
            failed: None,
            remote_done: true,
            room: (0, 0),
            peer_has_it: false,
            is_held: false,
            answered: false,
            pins: ExtentPins::default(),
        }
    }

    /// It is asked for, as the one of this number.
    pub fn arrives(self, came: u64) -> WriteOp {
        WriteOp { came, ..self }
    }

    pub fn came(&self) -> u64 {
        self.came
    }

    pub fn stage(&self) -> WriteStage {
        self.stage
    }

    /// It is looked at: from here on it waits for the peer alone, if it is done here.
    pub fn stands_here(&mut self, now: Mono) {
        if self.stage == WriteStage::Here {
            self.done_here.get_or_insert(now);
        }
    }

    /// Since when it waits for the peer alone.
    pub fn done_here(&self) -> Option<Mono> {
        self.done_here
    }

    /// The one way its stage changes.
    pub fn enter(&mut self, to: WriteStage) {
        assert!(legal(self.stage, to), "a write: {:?} -> {to:?} is not in the table of edges", self.stage);
        self.stage = to;
    }

    /// Parts of at most this size get numbers of their own.
    pub fn part_bytes(&self, part_bytes: u64) -> u64 {
        match self.what {
            WriteKind::Data(_) => part_bytes,
            WriteKind::Zero { .. } => limits::ZERO_PART_BYTES_MAX,
        }
    }

    pub fn range(&self) -> (VolumeId, u64, u64) {
        (self.volume, self.offset, self.length)
    }

    pub fn cost_bytes(&self, part_bytes: u64) -> (u64, u64) {
        let parts = self.length.div_ceil(self.part_bytes(part_bytes));
        let payload = if matches!(self.what, WriteKind::Data(_)) { self.length } else { 0 };
        (cost(payload) + (parts - 1) * limits::ITEM_OVERHEAD_BYTES, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::WriteStage::*;
    use super::*;

    // proves: rule 4
    #[test]
    fn a_write_with_a_number_waits_for_nothing_that_comes_before_one() {
        let all = [Arrived, ForRoom, ForRange, ForRecord, ForMemory, Logging, Writing, Flushing, Here];
        for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to))) {
            assert!(!legal(from, Arrived));
            let is_done = from == Logging && to == Writing;
            assert!(from.waits() || is_done || !to.waits() && to != Writing || !legal(from, to), "{from:?} -> {to:?}");
            assert_eq!(legal(from, Here), matches!(from, Writing | Flushing), "{from:?}");
        }
    }
}

/// What pins an extent's slot in the log; given back to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExtentPins {
    first: Option<u32>,
    more: Vec<u32>,
}

impl ExtentPins {
    pub fn add(&mut self, at: u32) {
        match self.first {
            None => self.first = Some(at),
            Some(_) => self.more.push(at),
        }
    }

    pub fn all(&self) -> impl Iterator<Item = u32> {
        self.first.iter().chain(&self.more).copied()
    }
}
