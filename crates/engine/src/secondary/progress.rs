//! How far a secondary has come in its primary's write order.

use crate::formats::wire::SyncBegin;
use crate::ids::{Generation, Incarnation, Position, Seq};
use crate::secondary::SnapshotPosition;
use crate::time::Wall;

/// Received, durable in the journal, written to the volumes, applied: each is at most the one before it.
#[derive(Debug, Default)]
pub(crate) struct CopyProgress {
    generation: Generation,
    incarnation: Incarnation,
    /// The numbers below are a snapshot's, not the stream's.
    snapshot: Option<SnapshotPosition>,
    received: Seq,
    /// The primary's time of that record.
    received_wall: Wall,
    durable_on_disk: Seq,
    /// Written to the volumes up to here, not yet flushed.
    written: Seq,
    written_wall: Wall,
    applied_on_disk: Seq,
    applied_wall: Wall,
}

impl CopyProgress {
    /// In a snapshot: the position it leads to. Its numbers are nobody's position in the write order.
    pub fn position(&self) -> Position {
        if let Some(snapshot) = self.snapshot {
            return snapshot.from;
        }
        Position { generation: self.generation, incarnation: self.incarnation, seq: self.received }
    }

    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The run of the primary whose numbers these are.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub fn snapshot(&self) -> Option<SnapshotPosition> {
        self.snapshot
    }

    pub fn received(&self) -> Seq {
        self.received
    }

    pub fn durable_on_disk(&self) -> Seq {
        self.durable_on_disk
    }

    pub fn written(&self) -> Seq {
        self.written
    }

    pub fn written_wall(&self) -> Wall {
        self.written_wall
    }

    pub fn applied_on_disk(&self) -> Seq {
        self.applied_on_disk
    }

    pub fn applied_wall(&self) -> Wall {
        self.applied_wall
    }

    /// The primary's time of all that was received; an idle primary's clock goes on.
    pub fn newest_wall(&self) -> Wall {
        self.received_wall.max(self.applied_wall)
    }

    /// The last number of the write order whose image is on the volumes, once no sync is in the middle.
    pub fn recovered(&self) -> Seq {
        self.snapshot.map_or(self.applied_on_disk, |snapshot| snapshot.from.seq)
    }

    /// All that was received is applied and recorded.
    pub fn is_in_step(&self) -> bool {
        self.applied_on_disk == self.received
    }

    /// All that is written is flushed and recorded.
    pub fn is_flushed(&self) -> bool {
        self.applied_on_disk == self.written
    }

    /// A flush has something to cover.
    pub fn is_unflushed(&self) -> bool {
        self.applied_on_disk < self.written
    }

    // ---- it goes on --------------------------------------------------------------------------------------------------

    /// Everything up to `position` is applied and recorded.
    pub fn stand_at(&mut self, position: Position, wall: Wall) {
        let Position { generation, incarnation, seq } = position;
        *self = CopyProgress {
            generation,
            incarnation,
            snapshot: None,
            received: seq,
            received_wall: wall,
            durable_on_disk: seq,
            written: seq,
            written_wall: wall,
            applied_on_disk: seq,
            applied_wall: wall,
        };
    }

    /// A snapshot is to be received; its numbers begin at 1.
    pub fn expect_snapshot(&mut self, begin: &SyncBegin) {
        self.stand_at(Position { seq: Seq::NONE, ..begin.from }, self.applied_wall);
        self.snapshot = Some(SnapshotPosition { name: begin.snapshot, from: begin.from });
    }

    pub fn receive(&mut self, seq: Seq, wall: Wall) {
        (self.received, self.received_wall) = (seq, wall);
    }

    /// The journal holds all up to here.
    pub fn land(&mut self, last: Seq) {
        self.durable_on_disk = self.durable_on_disk.max(last);
    }

    /// The volumes hold all up to here, perhaps in their caches.
    pub fn write(&mut self, seq: Seq, wall: Wall) {
        (self.written, self.written_wall) = (seq, wall);
    }

    /// All up to here is flushed and recorded. Where that is nothing new, the primary may have reported a later time than `wall`.
    pub fn apply(&mut self, seq: Seq, wall: Wall) {
        self.applied_wall = if seq > self.applied_on_disk { wall } else { self.applied_wall.max(wall) };
        self.applied_on_disk = seq;
    }

    /// The primary has numbered nothing more until then.
    pub fn stands_still_until(&mut self, wall: Wall) {
        self.applied_wall = self.applied_wall.max(wall);
    }

    /// What was received and has not landed does not count. What has landed is applied.
    pub fn forget_unlanded(&mut self) {
        (self.received, self.received_wall) = (self.durable_on_disk, self.written_wall);
    }

    /// Read back from the journal up to here.
    pub fn read_back(&mut self, last: Option<(Seq, Wall)>) {
        let (last, wall) = last.unwrap_or((self.durable_on_disk, self.received_wall));
        (self.received, self.durable_on_disk, self.received_wall) = (last, last, wall);
    }
}
