//! What of the stream's queue has no room in memory: a ring in a file of this node, written and read in the queue's order.
//!
//! ```text
//! write -> memory is half full, or the ring holds something? -> waits -> one batch is written -> memory lets go
//!                                      its turn to be sent comes near -> read back, sums checked -> frames
//! ```
//! Nothing in the ring outlives the stream. The dirty bits of every write are set before it is queued (rule 10), so a ring that cannot
//! be read costs the order, and no content.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::ids::Seq;
use crate::injected_fault::{Fault, injected};
use crate::limits::{DISK_QUEUE_BATCH_BYTES, META_BLOCK_BYTES};
use crate::peer::queue::StreamQueue;
use crate::time::Mono;
use crate::{Buf, IoDone, IoError, IoResult, Slice, SpilledPart};

/// One number whose bytes stand in the ring.
#[derive(Clone, Copy, Debug)]
struct KeptItem {
    seq: Seq,
    /// Where its blocks begin: bytes that were given out before it.
    at: u64,
    part: SpilledPart,
}

impl KeptItem {
    fn ends_at(&self) -> u64 {
        self.at + blocks(self.part.length)
    }
}

#[derive(Debug)]
struct SpillBatch {
    items: Vec<(Seq, u32)>,
    at: u64,
    since: Mono,
    /// The stream has ended: nobody needs it any more.
    is_forgotten: bool,
}

#[derive(Debug)]
struct FetchBatch {
    items: Vec<KeptItem>,
    is_forgotten: bool,
}

#[derive(Debug, Default)]
pub(crate) struct DiskQueue {
    size_bytes: u64,
    /// Positions never go back: the place of one in the file is its remainder by the size.
    ends_at: u64,
    /// In their order, which is that of their positions too.
    kept: VecDeque<KeptItem>,
    /// Those that are to be written next, and what they take.
    waiting: VecDeque<(Seq, u32)>,
    waiting_bytes: u64,
    writing: Option<SpillBatch>,
    reading: Option<FetchBatch>,
    /// The first of the last batch that was asked for, and the last.
    fetched: Option<(Seq, Seq)>,
    /// Batches that memory holds, each with its first and its last.
    held: Vec<(Seq, Seq)>,
    /// A batch was damaged: a place of it may have been given out again after its number was confirmed. Up to its last each is read by
    /// itself.
    singly_through: Seq,
    has_failed: bool,
}

/// The bytes of a number cannot be had any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchFailed {
    Unreadable,
    Damaged,
}

/// What bytes take in the ring.
fn blocks(length: u32) -> u64 {
    u64::from(length).next_multiple_of(META_BLOCK_BYTES)
}

impl DiskQueue {
    pub fn new(size_bytes: u64) -> DiskQueue {
        DiskQueue { size_bytes, ..DiskQueue::default() }
    }

    /// Bytes of writes that the ring has room for however they lie; none once it failed.
    pub fn usable_bytes(&self) -> u64 {
        if self.has_failed { 0 } else { self.size_bytes - self.gap_at_most() }
    }

    /// Places that are not free: of what was read back too, until the peer has it.
    pub fn used_bytes(&self) -> u64 {
        self.size_bytes - self.free_bytes()
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Something stands in the ring, or is on its way there: what comes now goes behind it.
    pub fn is_in_use(&self) -> bool {
        !self.kept.is_empty()
            || !self.waiting.is_empty()
            || self.writing.as_ref().is_some_and(|batch| !batch.is_forgotten)
    }

    /// The first number that memory lets go of, once it stands in the ring.
    pub fn first_to_leave(&self) -> Option<Seq> {
        let writing = self.writing.iter().filter(|batch| !batch.is_forgotten).filter_map(|batch| batch.items.first());
        writing.chain(&self.waiting).map(|(seq, _)| *seq).min()
    }

    /// A batch is being written, and memory lets go of it soon: not a disk that hangs.
    pub fn makes_room(&self, now: Mono, limit: Duration) -> bool {
        self.writing.as_ref().is_some_and(|batch| !batch.is_forgotten && now.since(batch.since) < limit)
    }

    pub fn has_space_for(&self, bytes: u64) -> bool {
        !self.has_failed && self.waiting_bytes + bytes + self.gap_at_most() <= self.free_bytes()
    }

    // ---- into the ring -----------------------------------------------------------------------------------------------

    /// The parts of a write are to be written to the ring, all of them if there is room: memory lets go of a write as a whole.
    pub fn take(&mut self, parts: Vec<(Seq, u32)>) {
        let needed: u64 = parts.iter().map(|(_, length)| blocks(*length)).sum();
        if self.has_space_for(needed) {
            self.waiting.extend(parts);
            self.waiting_bytes += needed;
        }
    }

    /// Memory has room for all of it again, and nothing stands in the ring: nobody needs to be written.
    pub fn is_not_needed(&mut self) {
        if self.kept.is_empty() && self.writing.is_none() {
            self.stop_waiting();
        }
    }

    /// The next batch to write, and where, if none is being written.
    pub fn begin_spill(&mut self, queue: &mut StreamQueue, now: Mono) -> Option<(u64, Vec<Slice>)> {
        // Numbers that were confirmed or became void meanwhile need no place.
        while let Some((seq, length)) = self.waiting.front().copied()
            && queue.content(seq).is_none()
        {
            self.waiting.pop_front();
            self.waiting_bytes -= blocks(length);
        }
        if self.writing.is_some() || self.reading.as_ref().is_some_and(|batch| batch.is_forgotten) {
            return None;
        }
        let (_, first) = self.waiting.front().copied()?;
        if self.kept.is_empty() {
            // The beginning of the file is in the caches.
            self.ends_at = self.ends_at.next_multiple_of(self.size_bytes);
        }
        let room = self.size_bytes - self.ends_at % self.size_bytes;
        let gap = if blocks(first) > room { room } else { 0 };
        let at = self.ends_at + gap;
        let most = DISK_QUEUE_BATCH_BYTES
            .min(self.size_bytes - at % self.size_bytes)
            .min(self.free_bytes().saturating_sub(gap));
        let (mut batch, mut parts, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some((seq, length)) = self.waiting.front().copied() {
            let Some(content) = queue.content(seq) else { break };
            if bytes + blocks(length) > most && (bytes > 0 || blocks(length) > self.free_bytes().saturating_sub(gap)) {
                break;
            }
            self.waiting.pop_front();
            bytes += blocks(length);
            batch.push((seq, length));
            parts.push(content);
        }
        if parts.is_empty() {
            return None;
        }
        self.waiting_bytes -= bytes;
        self.ends_at = at + bytes;
        self.writing = Some(SpillBatch { items: batch, at, since: now, is_forgotten: false });
        Some((at % self.size_bytes, parts))
    }

    /// The batch is written, or could not be: then the ring takes no more of this stream, and what it has stays readable.
    pub fn spilled(&mut self, queue: Option<&mut StreamQueue>, result: IoResult) -> Result<(), IoError> {
        let batch = self.writing.take().expect("one batch is written at a time");
        let Some(queue) = queue.filter(|_| !batch.is_forgotten) else { return Ok(()) };
        let sums = match result {
            Ok(IoDone::Sums(sums)) => sums,
            Ok(_) => unreachable!("a spill answers with sums"),
            Err(error) => {
                self.has_failed = true;
                self.stop_waiting();
                return Err(error);
            }
        };
        assert_eq!(sums.len(), batch.items.len(), "a sum for each part");
        let mut at = batch.at;
        for ((seq, length), crc) in batch.items.into_iter().zip(sums) {
            if queue.leave_memory(seq) {
                self.kept.push_back(KeptItem { seq, at, part: SpilledPart { length, crc } });
            }
            at += blocks(length);
        }
        Ok(())
    }

    /// Its bytes stand in the log, and memory has let go of them.
    pub fn stands_at(&mut self, seq: Seq, at: u64, length: u32, crc: u32) {
        self.kept.push_back(KeptItem { seq, at, part: SpilledPart { length, crc } });
    }

    // ---- out of the ring ---------------------------------------------------------------------------------------------

    /// What is to be read next: `room` is what memory has for it. Where no confirmation can free any, one number has room.
    pub fn begin_fetch(&mut self, queue: &mut StreamQueue, room: u64) -> Option<(u64, Vec<SpilledPart>)> {
        let next = queue.first_unsent()?;
        // One batch is sent while the next one is read.
        if self.reading.is_some() || self.fetched.is_some_and(|(first, _)| next < first) {
            return None;
        }
        let after = self.fetched.map_or(next, |(_, last)| last.next().max(next));
        let mut from = self.kept.partition_point(|item| item.seq < after);
        while self.kept.get(from).is_some_and(|item| !queue.is_on_disk(item.seq)) {
            from += 1;
        }
        let first = self.kept.get(from)?;
        let is_stuck = first.seq == next && queue.nothing_is_on_its_way();
        let most = if is_stuck { room.max(blocks(first.part.length)) } else { room };
        let mut items: Vec<KeptItem> = Vec::new();
        let mut bytes = 0;
        for item in self.kept.range(from..) {
            let follows = items.last().is_none_or(|last| item.at == last.ends_at() && item.at % self.size_bytes != 0);
            bytes += blocks(item.part.length);
            if !follows || bytes > most.min(DISK_QUEUE_BATCH_BYTES) || !queue.is_on_disk(item.seq) {
                break;
            }
            items.push(*item);
            if item.seq <= self.singly_through {
                break;
            }
        }
        let (first, last) = (*items.first()?, *items.last()?);
        items.iter().for_each(|item| queue.begin_fetch(item.seq));
        self.fetched = Some((first.seq, last.seq));
        let parts = items.iter().map(|item| item.part).collect();
        self.reading = Some(FetchBatch { items, is_forgotten: false });
        Some((first.at % self.size_bytes, parts))
    }

    /// What was asked for is read, or could not be.
    pub fn fetched(&mut self, queue: Option<&mut StreamQueue>, result: IoResult) -> Result<(), FetchFailed> {
        let batch = self.reading.take().expect("one batch is read at a time");
        let Some(queue) = queue.filter(|_| !batch.is_forgotten) else { return Ok(()) };
        let buf = match result {
            Ok(IoDone::Payload { buf, .. }) => Some(buf),
            Ok(_) => unreachable!("a fetch answers with what was read"),
            Err(IoError::Damaged) if batch.items.len() > 1 => {
                self.singly_through = batch.items.last().map_or(Seq::NONE, |item| item.seq);
                self.fetched = None;
                None
            }
            // Confirmed meanwhile: its place may be somebody else's by now.
            Err(_) if !batch.items.iter().any(|item| queue.is_being_fetched(item.seq)) => None,
            Err(IoError::Damaged) => return Err(FetchFailed::Damaged),
            Err(_) => return Err(FetchFailed::Unreadable),
        };
        if let (Some(first), Some(last), true) = (batch.items.first(), batch.items.last(), buf.is_some()) {
            self.held.push((first.seq, last.seq));
        }
        let begins = batch.items.first().map_or(0, |item| item.at);
        for KeptItem { seq, at, part } in batch.items {
            let start = if injected(Fault::FetchedMixedUp) { 0 } else { at - begins };
            let slice = |buf: &Buf| Slice { buf: buf.clone(), start: start as u32, length: part.length };
            queue.end_fetch(seq, buf.as_ref().map(slice));
        }
        Ok(())
    }

    /// Everything up to there is handed to the link. A batch is one buffer: memory lets go of it as a whole, and its places are kept until the peer
    /// has it. Behind a lost link it is read once more. True: there is more room.
    pub fn sent(&mut self, queue: &mut StreamQueue, through: Seq) -> bool {
        let DiskQueue { held, kept, .. } = self;
        let before = held.len();
        held.retain(|(first, last)| {
            if *last > through || injected(Fault::SentStaysInMemory) {
                return true;
            }
            let from = kept.partition_point(|item| item.seq < *first);
            let batch = kept.range(from..).take_while(|item| item.seq <= *last);
            batch.for_each(|item| _ = queue.let_go(item.seq));
            false
        });
        held.len() < before
    }

    /// The peer has everything up to `durable`: its places are free.
    pub fn confirm(&mut self, durable: Seq) {
        while self.kept.front().is_some_and(|item| item.seq <= durable) {
            self.kept.pop_front();
        }
    }

    /// Numbers are sent again from an earlier one on: they may have to be read again.
    pub fn rewind(&mut self) {
        self.fetched = None;
    }

    /// The stream has ended, and with it what stands in the ring. A new one may find the disk well.
    pub fn forget(&mut self) {
        self.kept.clear();
        self.held.clear();
        self.stop_waiting();
        (self.fetched, self.singly_through, self.has_failed) = (None, Seq::NONE, false);
        if let Some(batch) = &mut self.writing {
            batch.is_forgotten = true;
        }
        if let Some(batch) = &mut self.reading {
            batch.is_forgotten = true;
        }
    }

    fn stop_waiting(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// What is not given out.
    fn free_bytes(&self) -> u64 {
        let writing = self.writing.as_ref().map(|batch| batch.at);
        let first = if injected(Fault::PlacesFreedEarly) { self.kept.len() / 2 } else { 0 };
        let begins_at = self.kept.get(first).map(|item| item.at).or(writing).unwrap_or(self.ends_at);
        self.size_bytes.saturating_sub(self.ends_at - begins_at)
    }

    /// No batch goes over the end of the file: what is left there may stay unused.
    fn gap_at_most(&self) -> u64 {
        DISK_QUEUE_BATCH_BYTES.min(self.size_bytes / 4)
    }
}
