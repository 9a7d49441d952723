//! Where a start finds the log of a primary's queue: one [`cell`] at the end of the queue's file, behind the ring of batches.
//!
//! The cell says nothing of whether the log counts: the superblock does ([`crate::superblock::Superblock::queue_logged`]).

use crate::formats::cell::{CELL_BYTES, CellKind, Rejected};
use crate::formats::codec::{FieldDecoder, FieldEncoder};
use crate::formats::identity::Confirmed;
use crate::formats::journal::INDEX_BYTES;
use crate::formats::superblock::JournalHead;
use crate::ids::{Generation, Incarnation, Seq};
use crate::limits::DISK_QUEUE_BATCH_BYTES;
use alloc::vec::Vec;

/// Format versions: 2 has batches of [`QUEUE_VERSION`](crate::journal::QUEUE_VERSION) 2 behind it, which a program that knows only 1 takes for the
/// log's end.
pub const VERSION: u16 = 2;
pub const KIND: CellKind = CellKind { magic: *b"FSHQUEUE", version: VERSION, oldest: 1 };

/// The name of a log that this run begins, of 24 bits: the superblock has room for no more. Within a run there is one file.
pub fn name_of(begun: Incarnation) -> u32 {
    begun.0 as u32 & 0xff_ffff
}

/// So many batches are on their way at once: each tells that those before these were durable.
pub(crate) const BATCHES_MAX: usize = 4;

/// What the ring of batches has of a file that is so large; the cell stands behind it.
pub fn ring_bytes(file_bytes: u64) -> u64 {
    file_bytes.saturating_sub(CELL_BYTES)
}

/// The most that one batch takes of a ring that is so large.
pub(crate) fn batch_bytes_max(ring_bytes: u64) -> u64 {
    (INDEX_BYTES as u64 + DISK_QUEUE_BATCH_BYTES).min(ring_bytes / 8)
}

/// What a start knows of the log before it reads a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueueCell {
    /// Whose numbers these are. Batches of another generation are left over.
    pub generation: Generation,
    /// The first batch that is needed.
    pub head: JournalHead,
    /// The run and the number before that batch: the peer has everything up to here, and every volume here holds it, flushed.
    pub before: (Incarnation, Seq),
    /// The last number that every volume here held, flushed: up to here nothing is written again.
    pub flushed: Seq,
    /// Batches below this ordinal were durable when this was written: fewer whole ones mean damage.
    pub confirmed_ordinal: u64,
    /// What the peer has confirmed: what is told by no number of the log any more was forgotten because of that.
    pub confirmed: Confirmed,
    /// What tells this file from a copy of it. A copy is older than the volumes are.
    pub file: u64,
    /// The run that began this log: the superblock names the one that counts.
    pub begun: Incarnation,
}

impl QueueCell {
    /// The cell's body.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = FieldEncoder::default();
        w.generation(self.generation);
        w.u64(self.head.offset);
        w.u64(self.head.ordinal);
        w.u64(self.before.0.0);
        w.u64(self.before.1.0);
        w.u64(self.flushed.0);
        w.u64(self.confirmed_ordinal);
        self.confirmed.encode(&mut w);
        w.u64(self.file);
        w.u64(self.begun.0);
        w.0
    }

    /// # Errors
    /// [`Rejected::Damaged`] for a body that no program of this version writes.
    pub fn decode(body: &[u8]) -> Result<QueueCell, Rejected> {
        QueueCell::fields(body).filter(|cell| cell.head.ordinal <= cell.confirmed_ordinal).ok_or(Rejected::Damaged)
    }

    fn fields(body: &[u8]) -> Option<QueueCell> {
        let mut r = FieldDecoder(body);
        Some(QueueCell {
            generation: r.generation()?,
            head: JournalHead { offset: r.u64()?, ordinal: r.u64()? },
            before: (Incarnation(r.u64()?), Seq(r.u64()?)),
            flushed: Seq(r.u64()?),
            confirmed_ordinal: r.u64()?,
            confirmed: Confirmed::decode(&mut r)?,
            file: r.u64()?,
            begun: Incarnation(r.u64()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_comes_back_and_one_whose_head_is_past_what_was_durable_is_refused() {
        let cell = QueueCell {
            generation: Generation { number: 3, tag: 4 },
            head: JournalHead { offset: 8192, ordinal: 5 },
            before: (Incarnation(6), Seq(7)),
            flushed: Seq(8),
            confirmed_ordinal: 5,
            confirmed: Confirmed::default(),
            file: 9,
            begun: Incarnation(10),
        };
        assert_eq!(QueueCell::decode(&cell.encode()), Ok(cell));
        let body = cell.encode();
        assert_eq!(QueueCell::decode(&body[..body.len() - 1]), Err(Rejected::Damaged));
        let ahead = QueueCell { confirmed_ordinal: 4, ..cell };
        assert_eq!(QueueCell::decode(&ahead.encode()), Err(Rejected::Damaged));
    }
}
