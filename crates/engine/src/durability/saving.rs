//! Saving what is about to be overwritten: the way of a range into an undo store. What is not saved yet is read, several
//! reads at once, gathered into batches, and written; whoever wants to overwrite it waits for its ticket. A rollback point outlives
//! its daemon, so what is saved for it is durable. Views do not, and what is saved for them may stay in a cache.
//!
//! ```text
//! save_range -> pieces: waiting -> reading -> read -> batch (one durable write) -> saved: the ticket is good
//! ```
//! Pieces become durable in the order in which they were asked for, so a ticket is one number, and a range that another
//! one is already saving waits for that one. No block that is being saved is written meanwhile: a write to it waits, and
//! every write since the mark has waited for its own.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::context::Cx;
use crate::formats::undo::{AllocatedBatch, BLOCK_BYTES, ENTRIES_MAX, INDEX_BYTES, ToSave, UndoStore, gaps};
use crate::ids::{GroupId, Incarnation, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::shared::operation_slots::{OperationSlots, SavedFor, SlotOperation, UndoTicket};
use crate::state::Broken;
use crate::{Buf, Event, GroupConfig, IoDone, IoError, IoResult, Output, Slice, Store, WriteBytes, limits};

/// Failed reads of one piece before the group gives up, with a pause behind each: a path to a disk may change over meanwhile.
const READ_FAILURES_MAX: u32 = 8;

/// A range whose content is on its way into the store.
#[derive(Debug)]
struct PieceToSave {
    number: UndoTicket,
    volume: VolumeId,
    range: Range<u64>,
    reserved: bool,
    stage: PieceStage,
    /// Its reads that failed.
    failures: u32,
}

#[derive(Debug)]
enum PieceStage {
    Waiting,
    Reading,
    /// The read failed: it is tried again after a pause.
    Failed,
    /// `None`: all zeroes.
    Read(Option<(Buf, u32)>),
}

#[derive(Debug)]
struct UndoBatch {
    allocated: AllocatedBatch,
    content: Vec<(Buf, u32)>,
    last_piece: UndoTicket,
    stage: BatchStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchStage {
    Writing,
    /// There was no space: to be written again.
    NoSpace,
    Durable,
}

/// What is on its way into the undo store.
#[derive(Debug)]
pub(crate) struct UndoSaver {
    of: SavedFor,
    group: GroupId,
    tag: u64,
    /// Of the store.
    bytes: u64,
    pieces: VecDeque<PieceToSave>,
    batches: VecDeque<UndoBatch>,
    last_piece: UndoTicket,
    durable_piece: UndoTicket,
    /// Content in memory, or being read into it.
    held_bytes: u64,
}

impl UndoSaver {
    pub fn new(config: &GroupConfig, of: SavedFor) -> UndoSaver {
        UndoSaver {
            of,
            group: config.id,
            tag: config.tag,
            bytes: match of {
                SavedFor::RollbackPoint => config.history_bytes,
                SavedFor::Views => config.view_bytes,
            },
            pieces: VecDeque::new(),
            batches: VecDeque::new(),
            last_piece: 0,
            durable_piece: 0,
            held_bytes: 0,
        }
    }

    pub fn is_good(&self, ticket: UndoTicket) -> bool {
        let fault = match self.of {
            SavedFor::RollbackPoint => Fault::OverwrittenUnsaved,
            SavedFor::Views => Fault::ViewUnsaved,
        };
        ticket <= self.durable_piece || injected(fault)
    }

    /// Content in memory, or being read into it.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// How far it has come; it grows while anything gets on.
    pub fn durable(&self) -> UndoTicket {
        self.durable_piece
    }

    /// Ranges waiting for the store; more are worth asking for.
    pub fn has_room(&self) -> bool {
        self.pieces.len() < limits::SAVE_PIECES_MAX
    }

    /// The piece is on its way: nobody has given it up.
    pub fn has(&self, piece: UndoTicket) -> bool {
        self.pieces.iter().any(|p| p.number == piece)
    }

    /// Nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.pieces.is_empty() && self.batches.is_empty()
    }

    /// What is on its way is not needed any more: every ticket is good. Completions that still come are nobody's.
    pub fn forget(&mut self) {
        self.pieces.clear();
        self.batches.clear();
        self.held_bytes = 0;
        self.durable_piece = self.last_piece;
    }

    /// The parts of a range that are neither saved nor on their way.
    fn unclaimed(&self, undo: &UndoStore, volume: VolumeId, range: Range<u64>) -> Vec<Range<u64>> {
        let mut claimed: Vec<Range<u64>> = self.claims(volume).map(|(_, claim)| claim).collect();
        claimed.sort_by_key(|claim| claim.start);
        let unsaved = undo.unsaved(volume, range).into_iter();
        unsaved.flat_map(|gap| gaps(gap, claimed.iter().cloned())).collect()
    }

    /// The ticket for a range that may be on its way.
    fn ticket(&self, volume: VolumeId, range: &Range<u64>) -> UndoTicket {
        let meets = |claim: &Range<u64>| claim.start < range.end && range.start < claim.end;
        self.claims(volume).filter(|(_, claim)| meets(claim)).map(|(number, _)| number).max().unwrap_or(0)
    }

    fn claims(&self, volume: VolumeId) -> impl Iterator<Item = (UndoTicket, Range<u64>)> {
        let gathered = self.batches.iter().flat_map(move |batch| {
            let ours = batch.allocated.entries.iter().filter(move |e| e.volume == volume);
            ours.map(|e| (batch.last_piece, e.offset..e.offset + u64::from(e.length)))
        });
        let waiting = self.pieces.iter().filter(move |p| p.volume == volume).map(|p| (p.number, p.range.clone()));
        gathered.chain(waiting)
    }

    /// Largest piece: several fit a batch, and a batch is a small part of the store.
    fn piece_bytes_max(&self) -> u64 {
        limits::SAVE_PIECE_BYTES_MAX.min(batch_bytes_max(self.bytes) / 2).max(BLOCK_BYTES) / BLOCK_BYTES * BLOCK_BYTES
    }

    /// How many pieces at the front make the next batch, and whether more will come to them.
    fn next_batch(&self) -> usize {
        let (mut count, mut bytes) = (0, 0);
        for piece in self.pieces.iter().take(ENTRIES_MAX) {
            let PieceStage::Read(content) = &piece.stage else { break };
            let more = if content.is_some() { piece.range.end - piece.range.start } else { 0 };
            if count > 0 && bytes + more > batch_bytes_max(self.bytes) {
                break;
            }
            bytes += more;
            count += 1;
        }
        let writing = self.batches.iter().filter(|b| b.stage != BatchStage::Durable).count();
        let company_comes = writing > 0 && bytes < batch_bytes_max(self.bytes) / 4 && count < ENTRIES_MAX;
        if company_comes || writing >= limits::BATCHES_IN_FLIGHT_MAX { 0 } else { count }
    }
}

fn batch_bytes_max(store_bytes: u64) -> u64 {
    limits::BATCH_BYTES_MAX.min(store_bytes / 8)
}

/// What a batch's write came to.
pub(crate) enum BatchResult {
    /// It was given up meanwhile.
    Nobodys,
    /// The store's file system is full.
    Full,
    /// Tickets may have become good, and others may go on.
    More,
}

impl UndoSaver {
    /// Sees to it that the content of a range, widened to whole `unit`s, is saved. `reserved`: a sync reserved for it.
    pub fn save(
        &mut self,
        undo: &UndoStore,
        volume: VolumeId,
        size_bytes: u64,
        range: Range<u64>,
        unit: u64,
        reserved: bool,
    ) -> UndoTicket {
        if undo.mark().is_none() || range.is_empty() {
            return 0;
        }
        let start = range.start / unit * unit;
        let range = start..range.end.next_multiple_of(unit).min(size_bytes);
        let longest = self.piece_bytes_max();
        for gap in self.unclaimed(undo, volume, range.clone()) {
            let mut at = gap.start;
            while at < gap.end {
                let end = (at + longest).min(gap.end);
                self.last_piece += 1;
                self.pieces.push_back(PieceToSave {
                    number: self.last_piece,
                    volume,
                    range: at..end,
                    reserved,
                    stage: PieceStage::Waiting,
                    failures: 0,
                });
                at = end;
            }
        }
        self.ticket(volume, &range)
    }

    /// A piece was read, or could not be. True: it is read again after a pause.
    pub fn read_done(&mut self, cx: &mut Cx, piece: UndoTicket, result: IoResult) -> Result<bool, Broken> {
        let Some(found) = self.pieces.iter_mut().find(|p| p.number == piece) else { return Ok(false) };
        match result {
            Ok(IoDone::Summed { buf, zero, crc }) => {
                if zero {
                    self.held_bytes -= found.range.end - found.range.start;
                }
                found.stage = PieceStage::Read((!zero).then_some((buf, crc)));
                return Ok(false);
            }
            Ok(_) => unreachable!("a read for the undo store answers with content and checksum"),
            Err(_) => {}
        }
        self.held_bytes -= found.range.end - found.range.start;
        (found.stage, found.failures) = (PieceStage::Failed, found.failures + 1);
        // A sync waits for a disk that may come back, and a view is not worth that.
        let most = if self.of == SavedFor::Views { 1 } else { READ_FAILURES_MAX };
        if found.failures >= most {
            return Err(Broken::VolumeRead);
        }
        if self.pieces.iter().filter(|piece| matches!(piece.stage, PieceStage::Failed)).count() == 1 {
            let note =
                "what the sync is about to overwrite could not be read to be saved; it is tried again once a second";
            cx.event(self.group, Event::Note(note.into()));
        }
        Ok(true)
    }

    pub fn batch_done(
        &mut self,
        undo: &mut UndoStore,
        last_piece: UndoTicket,
        result: IoResult,
    ) -> Result<BatchResult, Broken> {
        let Some(batch) = self.batches.iter_mut().find(|b| b.last_piece == last_piece) else {
            return Ok(BatchResult::Nobodys);
        };
        match result {
            Ok(_) => batch.stage = BatchStage::Durable,
            Err(IoError::NoSpace) => {
                batch.stage = BatchStage::NoSpace;
                return Ok(BatchResult::Full);
            }
            Err(_) => return Err(Broken::Undo),
        }
        while self.batches.front().is_some_and(|b| b.stage == BatchStage::Durable) {
            let batch = self.batches.pop_front().expect("front was there");
            undo.saved(&batch.allocated);
            self.durable_piece = batch.last_piece;
            self.held_bytes -= batch.content.iter().map(|(_, length)| u64::from(*length)).sum::<u64>();
        }
        Ok(BatchResult::More)
    }

    /// Starts reads and batches, as the run `boot`; called whenever something was asked for or came back. False: the store has no
    /// room for the next batch.
    #[must_use]
    pub fn pump(&mut self, undo: &mut UndoStore, slots: &mut OperationSlots, cx: &mut Cx, boot: Incarnation) -> bool {
        self.read_pieces(slots, cx);
        loop {
            let count = self.next_batch();
            if count == 0 {
                return true;
            }
            if !self.make_batch(undo, boot, count) {
                return false;
            }
            self.write_allocated(slots, cx);
        }
    }

    /// Of the first pieces; false when the store has no room.
    fn make_batch(&mut self, undo: &mut UndoStore, boot: Incarnation, count: usize) -> bool {
        let ranges: Vec<ToSave> = self.pieces.iter().take(count).map(PieceToSave::to_save).collect();
        let Some(allocated) = undo.allocate(self.tag, boot, &ranges) else { return false };
        let pieces: Vec<PieceToSave> = self.pieces.drain(..count).collect();
        let last_piece = pieces.last().expect("a batch is not empty").number;
        let content = pieces
            .into_iter()
            .filter_map(|piece| match piece.stage {
                PieceStage::Read(content) => {
                    content.map(|(buf, _)| (buf, (piece.range.end - piece.range.start) as u32))
                }
                PieceStage::Waiting | PieceStage::Reading | PieceStage::Failed => {
                    unreachable!("a batch is made of what was read")
                }
            })
            .collect();
        self.batches.push_back(UndoBatch { allocated, content, last_piece, stage: BatchStage::NoSpace });
        true
    }

    /// What could not be read is to be read again.
    pub fn retry_reads(&mut self) {
        let failed = self.pieces.iter_mut().filter(|piece| matches!(piece.stage, PieceStage::Failed));
        failed.for_each(|piece| piece.stage = PieceStage::Waiting);
    }

    fn read_pieces(&mut self, slots: &mut OperationSlots, cx: &mut Cx) {
        for piece in self.pieces.iter_mut().filter(|p| matches!(p.stage, PieceStage::Waiting)) {
            let length = piece.range.end - piece.range.start;
            if self.held_bytes > 0 && self.held_bytes + length > limits::SAVE_HELD_BYTES_MAX {
                break;
            }
            self.held_bytes += length;
            piece.stage = PieceStage::Reading;
            let token = slots.start(SlotOperation::SaveRead { of: self.of, piece: piece.number });
            let (store, offset) = (Store::Volume(self.group, piece.volume), piece.range.start);
            cx.out.push_back(Output::ReadSummed { token, store, offset, length: length as u32 });
        }
    }

    /// Writes the batches that wait for their (next) try.
    pub fn write_allocated(&mut self, slots: &mut OperationSlots, cx: &mut Cx) {
        for batch in self.batches.iter_mut().filter(|b| b.stage == BatchStage::NoSpace) {
            batch.stage = BatchStage::Writing;
            let mut parts = vec![WriteBytes::Meta(batch.allocated.image.clone())];
            for (buf, length) in &batch.content {
                parts.push(WriteBytes::Payload(Slice { buf: buf.clone(), start: 0, length: *length }));
                let padding = length.next_multiple_of(BLOCK_BYTES as u32) - length;
                if padding > 0 {
                    parts.push(WriteBytes::Meta(vec![0; padding as usize]));
                }
            }
            debug_assert_eq!(batch.allocated.image.len(), INDEX_BYTES);
            let token = slots.start(SlotOperation::SaveBatch { of: self.of, last_piece: batch.last_piece });
            let (store, durable) = match self.of {
                SavedFor::RollbackPoint => (Store::Undo(self.group), true),
                SavedFor::Views => (Store::History(self.group), false),
            };
            cx.write(token, store, batch.allocated.offset, parts, durable);
        }
    }
}

impl PieceToSave {
    fn to_save(&self) -> ToSave {
        let PieceStage::Read(content) = &self.stage else { unreachable!("a batch is made of what was read") };
        ToSave {
            volume: self.volume,
            offset: self.range.start,
            length: (self.range.end - self.range.start) as u32,
            crc: content.as_ref().map(|(_, crc)| *crc),
            reserved: self.reserved,
        }
    }
}
