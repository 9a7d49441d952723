//! The undo store: what stood on the volumes before it was overwritten. Before a block is overwritten for the first time
//! after a *mark*, its content goes here, durable; so the image at the mark can be had back: the earliest content saved
//! after it, else the volume. A rollback point, a snapshot's unshipped regions, history and point-in-time copies are all this.
//!
//! ```text
//! mark 7 -> batch, batch, batch     mark 9 -> batch, batch ...        one ring; the oldest mark's batches are freed
//!           index + saved blocks
//! ```
//! Pure: offsets and names, no payload. `saving.rs` fills it on the way of a write; `rollback.rs` plays it back. The bytes
//! on disk and what a crash leaves are in docs/book/format.md.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use crate::formats::codec::{FieldDecoder, IndexBlock};
use crate::ids::{Incarnation, VolumeId};
use crate::limits::{META_BLOCK_BYTES, REGION_BYTES, SAVE_UNIT_BYTES, SECTOR_BYTES, ZERO_PART_BYTES_MAX};

/// Format versions: 1, the first.
pub const VERSION: u16 = 1;
/// The index block of a batch.
pub const INDEX_BYTES: usize = META_BLOCK_BYTES as usize;
const FIXED_BYTES: usize = 64;
const ENTRY_BYTES: usize = 24;
/// The flag of a range that is lost.
const LOST: u16 = 1;
/// Saved ranges that one batch can hold.
pub const ENTRIES_MAX: usize = (INDEX_BYTES - FIXED_BYTES - 4) / ENTRY_BYTES;
const BLOCK: IndexBlock =
    IndexBlock { magic: *b"FSHUNDOB", version: VERSION, oldest: VERSION, bytes: INDEX_BYTES, entries_max: ENTRIES_MAX };
/// What is saved at once, and what "first time" is decided on.
pub(crate) const BLOCK_BYTES: u64 = META_BLOCK_BYTES;

/// One saved range: a line of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoEntry {
    pub volume: VolumeId,
    /// On the volume; a multiple of a block, but behind an old end that was none.
    pub offset: u64,
    /// Whole blocks, except at a volume's end.
    pub length: u32,
    /// Where its content starts, from the start of the batch; 0: it was all zeroes, nothing is kept.
    pub payload_at: u32,
    pub payload_crc: u32,
    /// Of a delta: what stood there is lost, and nothing is kept. The undo store has none of these.
    pub is_lost: bool,
}

impl UndoEntry {
    /// What its content takes in the store.
    pub fn payload_bytes(&self) -> u32 {
        if self.payload_at == 0 { 0 } else { self.length.next_multiple_of(BLOCK_BYTES as u32) }
    }
}

/// A batch's index block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoIndex {
    pub tag: u64,
    /// Where in the file it belongs.
    pub ring_offset: u64,
    /// Counts the batches since the store was empty, from 1.
    pub ordinal: u64,
    /// The mark this was saved for.
    pub mark: u64,
    /// The run of the node that wrote it.
    pub boot: Incarnation,
    /// Checksum of the index block before this one, 0 in the first: a left-over behind a torn batch does not fit.
    pub chain: u32,
    /// Of the batch: index and content.
    pub bytes: u32,
    pub entries: Vec<UndoEntry>,
}

impl UndoIndex {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = BLOCK.begin(self.entries.len());
        w.u32(self.bytes);
        w.u64(self.tag);
        w.u64(self.ring_offset);
        w.u64(self.ordinal);
        w.u64(self.mark);
        w.u64(self.boot.0);
        w.u32(self.chain);
        w.pad_to(FIXED_BYTES);
        for e in &self.entries {
            w.u64(e.offset);
            w.u32(e.length);
            w.u32(e.payload_at);
            w.u32(e.payload_crc);
            w.u16(e.volume.0);
            w.u16(if e.is_lost { LOST } else { 0 });
        }
        w.sealed(INDEX_BYTES)
    }

    /// A whole index block, or `None`. The caller still checks that it belongs where it was found.
    pub fn decode(block: &[u8]) -> Option<UndoIndex> {
        let (count, mut r) = BLOCK.open(block)?;
        let mut index = UndoIndex {
            bytes: r.u32()?,
            tag: r.u64()?,
            ring_offset: r.u64()?,
            ordinal: r.u64()?,
            mark: r.u64()?,
            boot: Incarnation(r.u64()?),
            chain: r.u32()?,
            entries: Vec::with_capacity(count),
        };
        let mut r = FieldDecoder(&block[FIXED_BYTES..]);
        for _ in 0..count {
            index.entries.push(decode_entry(&mut r, index.bytes)?);
        }
        Some(index)
    }

    /// The version of an index block that is whole but of another version than this program's.
    pub fn other_version(block: &[u8]) -> Option<u16> {
        BLOCK.of_other_version(block).map(|(version, _)| version)
    }
}

/// The checksum an index block carries, which the next one repeats.
pub(crate) fn checksum(block: &[u8]) -> Option<u32> {
    let stored: [u8; 4] = block.get(INDEX_BYTES - 4..)?.try_into().ok()?;
    Some(u32::from_le_bytes(stored))
}

fn decode_entry(r: &mut FieldDecoder<'_>, batch_bytes: u32) -> Option<UndoEntry> {
    let (offset, length, payload_at, payload_crc) = (r.u64()?, r.u32()?, r.u32()?, r.u32()?);
    let (volume, flags) = (VolumeId(r.u16()?), r.u16()?);
    let is_lost = flags == LOST;
    let entry = UndoEntry { volume, offset, length, payload_at, payload_crc, is_lost };
    let range_fits = offset.is_multiple_of(SECTOR_BYTES)
        && length > 0
        && u64::from(length).is_multiple_of(SECTOR_BYTES)
        && u64::from(length) <= u64::from(u32::MAX) - BLOCK_BYTES
        && offset.checked_add(u64::from(length)).is_some();
    let payload_fits = payload_at == 0 && payload_crc == 0
        || (payload_at as usize >= INDEX_BYTES
            && u64::from(payload_at).is_multiple_of(BLOCK_BYTES)
            && length
                .checked_next_multiple_of(BLOCK_BYTES as u32)
                .and_then(|content| payload_at.checked_add(content))
                .is_some_and(|end| end <= batch_bytes));
    let flags_fit = flags == 0 || is_lost && payload_at == 0;
    (flags_fit && range_fits && payload_fits).then_some(entry)
}

/// A saved range and where its content lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedRange {
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u32,
    /// In the store's file; `None`: all zeroes.
    pub undo_offset: Option<u64>,
    /// Of the whole content.
    pub crc: u32,
}

/// What was saved for one mark, until the next one.
#[derive(Debug)]
struct MarkLog {
    id: u64,
    saved: BTreeMap<(VolumeId, u64), SavedRange>,
    /// What they are long together.
    bytes: u64,
}

/// A batch whose space is in use.
#[derive(Clone, Copy, Debug)]
struct LiveUndoBatch {
    offset: u64,
    mark: u64,
}

/// A batch that has its space and is to be written, index first.
#[derive(Clone, Debug)]
pub(crate) struct AllocatedBatch {
    pub offset: u64,
    pub ordinal: u64,
    pub mark: u64,
    pub image: Vec<u8>,
    pub entries: Vec<UndoEntry>,
}

/// What a batch is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToSave {
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u32,
    /// Checksum of the content; `None`: all zeroes.
    pub crc: Option<u32>,
    /// It draws on what was reserved for a sync.
    pub reserved: bool,
}

impl ToSave {
    fn payload_bytes(&self) -> u64 {
        if self.crc.is_some() { u64::from(self.length).next_multiple_of(BLOCK_BYTES) } else { 0 }
    }

    /// What was reserved for its content.
    fn reserved_bytes(&self) -> u64 {
        if self.reserved { u64::from(self.length).next_multiple_of(BLOCK_BYTES) } else { 0 }
    }

    /// Units of so many bytes that are saved with it from end to end: for each of them room for an index was reserved.
    fn reserved_units(&self, unit_bytes: u64) -> u64 {
        let end = self.offset + u64::from(self.length);
        let whole = (end / unit_bytes).saturating_sub(self.offset.div_ceil(unit_bytes));
        if self.reserved { whole } else { 0 }
    }
}

/// Space that is sure to suffice for saving this much in pieces of that size: each at worst in a batch of its own.
fn space_for(bytes: u64, piece_bytes: u64) -> u64 {
    bytes.saturating_add(bytes.div_ceil(piece_bytes).saturating_mul(INDEX_BYTES as u64))
}

/// Space that is sure to suffice for saving this much in regions.
pub(crate) fn space_for_regions(bytes: u64) -> u64 {
    space_for(bytes, REGION_BYTES)
}

/// The same in units of [`SAVE_UNIT_BYTES`], which are saved as a whole whatever of them is overwritten.
pub(crate) fn space_for_units(bytes: u64) -> u64 {
    space_for(bytes, SAVE_UNIT_BYTES)
}

/// What a sync of so many dirty bytes of an image of that size reserves at most, in bytes: room for its regions, or for the whole image in
/// units where that is less.
pub fn space_for_sync(dirty_bytes: u64, image_bytes: u64) -> u64 {
    space_for_regions(dirty_bytes).min(space_for_units(image_bytes))
}

/// The store of one group: marks, the ring of their batches, and what is reserved in it.
#[derive(Debug)]
pub(crate) struct UndoStore {
    bytes: u64,
    tail: u64,
    next_ordinal: u64,
    chain: u32,
    /// The run that wrote the newest batch.
    boot: Incarnation,
    /// Oldest first; what is saved now goes to the newest.
    marks: VecDeque<MarkLog>,
    live: VecDeque<LiveUndoBatch>,
    /// Batches that are durable, as an unbroken run.
    durable: u64,
    reserved_bytes: u64,
    /// It is for all that the sync overwrites.
    reserved_for_all: bool,
    /// What a sync overwrites is saved in whole units of so many bytes, as far as this run of the node knows.
    unit_bytes: Option<u64>,
}

impl UndoStore {
    /// Nothing that was saved is needed any more.
    pub fn empty(&mut self) {
        if self.mark().is_some() {
            *self = UndoStore::new(self.bytes);
        }
    }

    /// An empty store in a file of this size.
    pub fn new(bytes: u64) -> UndoStore {
        UndoStore {
            bytes,
            tail: 0,
            next_ordinal: 1,
            chain: 0,
            boot: Incarnation(0),
            marks: VecDeque::new(),
            live: VecDeque::new(),
            durable: 0,
            reserved_bytes: 0,
            reserved_for_all: false,
            unit_bytes: None,
        }
    }

    // ---- marks -----------------------------------------------------------------------------------------------------

    /// From here on whatever is overwritten for the first time must be saved. Ids grow.
    pub fn begin_mark(&mut self, id: u64) {
        assert!(id != 0 && self.marks.back().is_none_or(|m| m.id < id), "marks have growing ids");
        self.marks.push_back(MarkLog { id, saved: BTreeMap::new(), bytes: 0 });
    }

    /// Gives up the oldest mark and what only it needs. The caller has nothing in flight for it.
    pub fn drop_oldest(&mut self) {
        self.marks.pop_front();
        let oldest = self.marks.front().map(|m| m.id);
        match oldest {
            Some(oldest) => {
                while self.live.front().is_some_and(|b| b.mark < oldest) {
                    self.live.pop_front();
                }
            }
            None => *self = UndoStore::new(self.bytes),
        }
    }

    /// The mark that is saved for now.
    pub fn mark(&self) -> Option<u64> {
        self.marks.back().map(|m| m.id)
    }

    /// The one that has been saved for longest.
    pub fn oldest_mark(&self) -> Option<u64> {
        self.marks.front().map(|m| m.id)
    }

    // ---- space -----------------------------------------------------------------------------------------------------

    pub fn used_bytes(&self) -> u64 {
        self.bytes - self.free_bytes()
    }

    pub fn free_bytes(&self) -> u64 {
        match self.live.front() {
            None => self.bytes,
            Some(head) if self.tail > head.offset => self.bytes - self.tail + head.offset,
            Some(head) => head.offset - self.tail,
        }
    }

    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// Reserves space in place of what was reserved before; whether it is there tells [`UndoStore::is_short`].
    pub fn reserve(&mut self, bytes: u64) {
        self.reserved_bytes = bytes;
    }

    /// Whether it is for all that the sync overwrites. Then zeroes of the sync, of which nothing is kept, free what was reserved for them.
    /// Of a comparison it is for the regions that are sure to differ, and zeroes of the others must not free that.
    pub fn reserve_for_all(&mut self, for_all: bool) {
        self.reserved_for_all = for_all;
    }

    /// What a sync overwrites is saved in units of so many bytes: in such as there is room reserved for.
    pub fn save_in_units(&mut self, unit_bytes: u64) {
        self.unit_bytes = Some(unit_bytes);
    }

    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes.unwrap_or(BLOCK_BYTES)
    }

    /// What is reserved is for units of another size.
    pub fn is_for_other_units(&self, unit_bytes: u64) -> bool {
        self.reserved_bytes > 0 && self.unit_bytes.is_some_and(|known| known != unit_bytes)
    }

    /// Bytes of the units of [`SAVE_UNIT_BYTES`] that are saved whole since the oldest mark.
    pub fn saved_units_bytes(&self) -> u64 {
        let (mut bytes, mut run) = (0, (VolumeId(0), 0..0));
        let whole = |run: &Range<u64>| {
            let (first, end) = (run.start.div_ceil(SAVE_UNIT_BYTES), run.end / SAVE_UNIT_BYTES);
            end.saturating_sub(first) * SAVE_UNIT_BYTES
        };
        for saved in self.all_saved() {
            if (saved.volume, saved.offset) == (run.0, run.1.end) {
                run.1.end = saved.range().end;
            } else {
                bytes += whole(&run.1);
                run = (saved.volume, saved.range());
            }
        }
        bytes + whole(&run.1)
    }

    /// What is reserved is not there: nothing may be overwritten.
    pub fn is_short(&self) -> bool {
        self.reserved_bytes > self.free_bytes()
    }

    // ---- saving ----------------------------------------------------------------------------------------------------

    /// The parts of a range that were not saved since the newest mark; none without a mark.
    pub fn unsaved(&self, volume: VolumeId, range: Range<u64>) -> Vec<Range<u64>> {
        match self.marks.back() {
            Some(log) => gaps(range.clone(), log.overlapping(volume, &range).map(SavedRange::range)),
            None => Vec::new(),
        }
    }

    /// Space for these ranges as one batch; `None` when there is no room beside what is reserved.
    pub fn allocate(&mut self, tag: u64, boot: Incarnation, ranges: &[ToSave]) -> Option<AllocatedBatch> {
        let mark = self.mark()?;
        let payload: u64 = ranges.iter().map(ToSave::payload_bytes).sum();
        let bytes = INDEX_BYTES as u64 + payload;
        let drawing = ranges.iter().filter(|r| r.crc.is_some() || self.reserved_for_all);
        // After a start it is not known for what units it was reserved: for large ones less is given back.
        let unit_bytes = self.unit_bytes.unwrap_or(SAVE_UNIT_BYTES);
        let (content, units) = drawing.fold((0, 0), |(content, units), range| {
            (content + range.reserved_bytes(), units + range.reserved_units(unit_bytes))
        });
        // Units that are saved in one batch share its index: what was reserved for the others' is free.
        let indexes = u64::from(ranges.iter().any(|r| r.reserved)).max(units);
        let drawn = content + indexes * INDEX_BYTES as u64;
        let still_reserved = self.reserved_bytes.saturating_sub(drawn);
        let offset = self.offset_for(bytes)?;
        if self.is_short() || self.free_bytes() < bytes + still_reserved {
            return None;
        }
        let mut at = INDEX_BYTES as u32;
        let entry = |r: &ToSave| {
            let payload_at = if r.crc.is_some() { at } else { 0 };
            at += r.payload_bytes() as u32;
            UndoEntry {
                volume: r.volume,
                offset: r.offset,
                length: r.length,
                payload_at,
                payload_crc: r.crc.unwrap_or_default(),
                is_lost: false,
            }
        };
        let entries: Vec<UndoEntry> = ranges.iter().map(entry).collect();
        let ordinal = self.next_ordinal;
        let (chain, entries_kept) = (self.chain, entries.clone());
        let index = UndoIndex { tag, ring_offset: offset, ordinal, mark, boot, chain, bytes: bytes as u32, entries };
        let image = index.encode();
        self.reserved_bytes = still_reserved;
        self.took(&image, &index);
        Some(AllocatedBatch { offset, ordinal, mark, image, entries: entries_kept })
    }

    fn offset_for(&self, bytes: u64) -> Option<u64> {
        let fits_at_tail = self.tail + bytes <= self.bytes;
        match self.live.front() {
            None => fits_at_tail.then_some(self.tail),
            Some(head) if self.tail > head.offset && fits_at_tail => Some(self.tail),
            Some(head) if self.tail > head.offset => (bytes < head.offset).then_some(0),
            Some(head) => (self.tail + bytes < head.offset).then_some(self.tail),
        }
    }

    fn took(&mut self, image: &[u8], index: &UndoIndex) {
        self.chain = checksum(image).expect("an index block has its checksum");
        self.live.push_back(LiveUndoBatch { offset: index.ring_offset, mark: index.mark });
        self.tail = index.ring_offset + u64::from(index.bytes);
        self.next_ordinal = index.ordinal + 1;
        self.boot = index.boot;
    }

    /// A batch is durable, and all before it are: its ranges may be overwritten from now on.
    pub fn saved(&mut self, allocated: &AllocatedBatch) {
        assert_eq!(allocated.ordinal, self.durable + 1, "batches become durable in order");
        self.durable = allocated.ordinal;
        self.remember(allocated.mark, allocated.offset, &allocated.entries);
    }

    fn remember(&mut self, mark: u64, base: u64, entries: &[UndoEntry]) {
        let Some(log) = self.marks.iter_mut().find(|m| m.id == mark) else { return };
        for e in entries {
            let undo_offset = (e.payload_at > 0).then(|| base + u64::from(e.payload_at));
            let saved =
                SavedRange { volume: e.volume, offset: e.offset, length: e.length, undo_offset, crc: e.payload_crc };
            log.remember(saved);
        }
    }

    /// Batches that are durable: what the superblock records.
    pub fn durable_batches(&self) -> u64 {
        self.durable
    }

    // ---- after a start ---------------------------------------------------------------------------------------------

    /// Where the next batch is looked for.
    pub fn next_offset(&self) -> u64 {
        self.tail
    }

    /// Takes up a block found at [`UndoStore::next_offset`] if it is the index of the next batch.
    pub fn follows(&self, tag: u64, boot: Incarnation, index: &UndoIndex) -> bool {
        let belongs = index.tag == tag && self.mark() == Some(index.mark);
        let belongs = belongs && (self.boot..=boot).contains(&index.boot) && !index.entries.iter().any(|e| e.is_lost);
        let next = index.ring_offset == self.tail && index.ordinal == self.next_ordinal && index.chain == self.chain;
        belongs && next && index.ring_offset + u64::from(index.bytes) <= self.bytes
    }

    /// The version of a block found at [`UndoStore::next_offset`], if it is the index of the next batch and of another version than this
    /// program's. These fields stand in the same place in every version: by them a left-over is known.
    pub fn next_of_other_version(&self, tag: u64, block: &[u8]) -> Option<u16> {
        let (version, mut r) = BLOCK.of_other_version(block)?;
        let _bytes = r.u32()?;
        let (theirs, ring_offset, ordinal, mark) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        let belongs = theirs == tag && self.mark() == Some(mark);
        (belongs && ring_offset == self.tail && ordinal == self.next_ordinal).then_some(version)
    }

    /// A whole batch was found after a start.
    pub fn found(&mut self, image: &[u8], index: &UndoIndex) {
        self.took(image, index);
        self.durable = index.ordinal;
        self.remember(index.mark, index.ring_offset, &index.entries);
    }

    // ---- looking back ----------------------------------------------------------------------------------------------

    /// What was saved for the oldest mark, in the order of volumes and offsets, after `cursor`: what was zero, or all the rest.
    pub fn next_saved(&self, cursor: Option<(VolumeId, u64)>, zero: bool) -> Option<SavedRange> {
        use core::ops::Bound::{Excluded, Unbounded};
        let log = self.marks.front()?;
        let from = cursor.map_or(Unbounded, Excluded);
        log.saved.range((from, Unbounded)).map(|(_, saved)| *saved).find(|saved| saved.undo_offset.is_none() == zero)
    }

    /// The next range that was saved for the oldest mark from this place on, in the order of volumes and offsets. Zeroes that were saved
    /// later may have joined ranges on both sides of the place: then only what is behind it counts.
    pub fn saved_from(&self, volume: VolumeId, offset: u64) -> Option<SavedRange> {
        let log = self.marks.front()?;
        let before = log.saved.range(..(volume, offset)).next_back().map(|(_, saved)| *saved);
        let reaches_in = before.filter(|saved| saved.volume == volume && saved.range().end > offset);
        if let Some(saved) = reaches_in {
            let length = (saved.range().end - offset) as u32;
            return Some(SavedRange { offset, length, ..saved });
        }
        log.saved.range((volume, offset)..).next().map(|(_, saved)| *saved)
    }

    /// What a range held at a mark, piece by piece in its order: the earliest content that was saved since then; `None`: the volume holds it
    /// still.
    pub fn image_at(&self, mark: u64, volume: VolumeId, range: Range<u64>) -> Vec<(Range<u64>, Option<SavedRange>)> {
        let (mut pieces, mut unsaved) = (Vec::new(), alloc::vec![range]);
        for log in self.marks.iter().filter(|log| log.id >= mark) {
            let mut left = Vec::new();
            for gap in unsaved {
                let saved: Vec<SavedRange> = log.overlapping(volume, &gap).copied().collect();
                left.extend(gaps(gap.clone(), saved.iter().map(SavedRange::range)));
                let within = |saved: &SavedRange| saved.offset.max(gap.start)..saved.range().end.min(gap.end);
                pieces.extend(saved.iter().map(|saved| (within(saved), Some(*saved))));
            }
            unsaved = left;
        }
        pieces.extend(unsaved.into_iter().map(|gap| (gap, None)));
        pieces.sort_by_key(|(piece, _)| piece.start);
        pieces
    }

    /// What was saved since a mark, in bytes of the volumes.
    pub fn saved_since(&self, mark: u64) -> u64 {
        self.marks.iter().filter(|log| log.id >= mark).map(|log| log.bytes).sum()
    }

    /// Every range saved since the oldest mark.
    pub fn all_saved(&self) -> impl Iterator<Item = &SavedRange> {
        self.marks.iter().flat_map(|m| m.saved.values())
    }
}

impl MarkLog {
    /// Zeroes cost nothing in the store, so their number is bounded by nothing but their ranges: those that touch are one.
    fn remember(&mut self, saved: SavedRange) {
        self.bytes += u64::from(saved.length);
        let key = |range: &SavedRange| (range.volume, range.offset);
        let mut joined = saved;
        if let Some((_, before)) =
            self.saved.range(..key(&saved)).next_back().filter(|(_, last)| last.is_continued_by(&saved))
        {
            joined = SavedRange { length: before.length + saved.length, ..*before };
        }
        let after = self.saved.get(&(saved.volume, saved.range().end)).copied();
        if let Some(after) = after.filter(|after| joined.is_continued_by(after)) {
            self.saved.remove(&key(&after));
            joined.length += after.length;
        }
        self.saved.insert(key(&joined), joined);
    }

    fn overlapping(&self, volume: VolumeId, range: &Range<u64>) -> impl Iterator<Item = &SavedRange> {
        // Saved ranges do not overlap one another: at most one begins before the range and reaches into it.
        let before = self.saved.range((volume, 0)..(volume, range.start)).next_back().map(|(_, saved)| saved);
        let inside = self.saved.range((volume, range.start)..(volume, range.end)).map(|(_, saved)| saved);
        let start = range.start;
        before.filter(move |saved| saved.range().end > start).into_iter().chain(inside)
    }
}

impl SavedRange {
    fn is_continued_by(&self, next: &SavedRange) -> bool {
        let zero = self.undo_offset.is_none() && next.undo_offset.is_none();
        let touches = self.volume == next.volume && self.range().end == next.offset;
        zero && touches && u64::from(self.length) + u64::from(next.length) <= ZERO_PART_BYTES_MAX
    }

    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.length)
    }
}

/// What of a range is not covered by these, which come in order.
pub(crate) fn gaps(range: Range<u64>, covered: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let (mut gaps, mut at) = (Vec::new(), range.start);
    for cover in covered.filter(|c| c.end > range.start && c.start < range.end) {
        if cover.start > at {
            gaps.push(at..cover.start);
        }
        at = at.max(cover.end);
    }
    if at < range.end {
        gaps.push(at..range.end);
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const V: VolumeId = VolumeId(0);
    const KIB: u64 = 1024;

    fn sample() -> UndoIndex {
        UndoIndex {
            tag: 1,
            ring_offset: 4096,
            ordinal: 9,
            mark: 3,
            boot: Incarnation(2),
            chain: 77,
            bytes: 4096 + 8192,
            entries: vec![
                UndoEntry {
                    volume: VolumeId(1),
                    offset: 4096,
                    length: 8192,
                    payload_at: 4096,
                    payload_crc: 5,
                    is_lost: false,
                },
                UndoEntry {
                    volume: VolumeId(0),
                    offset: 0,
                    length: 512,
                    payload_at: 0,
                    payload_crc: 0,
                    is_lost: false,
                },
                UndoEntry { volume: VolumeId(2), offset: 0, length: 512, payload_at: 0, payload_crc: 0, is_lost: true },
            ],
        }
    }

    fn data(offset: u64, length: u64) -> ToSave {
        ToSave { volume: V, offset, length: length as u32, crc: Some(1), reserved: false }
    }

    fn save(store: &mut UndoStore, ranges: &[ToSave]) -> Option<AllocatedBatch> {
        let allocated = store.allocate(1, Incarnation(1), ranges)?;
        store.saved(&allocated);
        Some(allocated)
    }

    #[test]
    fn an_image_is_the_earliest_that_was_saved_since_its_mark() {
        let mut store = UndoStore::new(1024 * KIB);
        store.begin_mark(1);
        let first = save(&mut store, &[data(8 * KIB, 8 * KIB)]).expect("there is room");
        store.begin_mark(2);
        let second = save(&mut store, &[data(0, 64 * KIB)]).expect("there is room");
        let zero = ToSave { crc: None, ..data(64 * KIB, 4 * KIB) };
        save(&mut store, &[zero]).expect("there is room");
        let content = INDEX_BYTES as u64;
        let found = |mark, range| {
            let pieces = store.image_at(mark, V, range).into_iter();
            pieces.map(|(range, saved)| (range, saved.map(|saved| saved.undo_offset))).collect::<Vec<_>>()
        };
        let later = Some(Some(second.offset + content));
        let expected = vec![
            (4 * KIB..8 * KIB, later),
            (8 * KIB..16 * KIB, Some(Some(first.offset + content))),
            (16 * KIB..20 * KIB, later),
        ];
        assert_eq!(found(1, 4 * KIB..20 * KIB), expected);
        assert_eq!(found(2, 4 * KIB..20 * KIB), [(4 * KIB..20 * KIB, later)]);
        assert_eq!(found(1, 66 * KIB..72 * KIB), [(66 * KIB..68 * KIB, Some(None)), (68 * KIB..72 * KIB, None)]);
        assert_eq!((store.saved_since(1), store.saved_since(2)), (76 * KIB, 68 * KIB));
        store.drop_oldest();
        assert_eq!(store.oldest_mark(), Some(2));
        assert_eq!(store.image_at(2, V, 8 * KIB..12 * KIB).len(), 1, "what the older mark alone needed is gone");
    }

    #[test]
    fn an_index_comes_back_and_every_flipped_byte_is_noticed() {
        let image = sample().encode();
        assert_eq!(UndoIndex::decode(&image), Some(sample()));
        for at in 0..INDEX_BYTES {
            let mut bad = image.clone();
            bad[at] ^= 0x40;
            assert_eq!(UndoIndex::decode(&bad), None, "byte {at}");
        }
    }

    #[test]
    fn an_entry_that_reaches_past_its_batch_or_off_the_sectors_is_refused() {
        let spoil = |change: fn(&mut UndoIndex)| {
            let mut index = sample();
            change(&mut index);
            UndoIndex::decode(&index.encode())
        };
        assert_eq!(spoil(|i| i.bytes -= 1), None);
        assert_eq!(spoil(|i| i.entries[0].payload_at = 512), None);
        assert_eq!(spoil(|i| i.entries[0].offset += 256), None);
        assert_eq!(spoil(|i| i.entries[0].length = 0), None);
        assert_eq!(spoil(|i| i.entries[1].payload_crc = 9), None);
        assert_eq!(spoil(|i| i.entries[1].length = u32::MAX - 511), None);
    }

    #[test]
    fn gaps_are_what_is_not_covered() {
        assert_eq!(gaps(0..10, [].into_iter()), vec![0..10]);
        assert_eq!(gaps(0..10, core::iter::once(0..10)), vec![]);
        assert_eq!(gaps(2..10, [0..3, 5..6, 9..20].into_iter()), vec![3..5, 6..9]);
    }

    // proves: rule 9
    #[test]
    fn a_block_is_saved_once_for_each_mark_and_the_earliest_content_is_seen() {
        let mut store = UndoStore::new(1024 * KIB);
        assert_eq!(store.unsaved(V, 0..8192), vec![], "nothing is saved without a mark");
        store.begin_mark(5);
        assert_eq!(store.unsaved(V, 0..8192), vec![0..8192]);
        let first = save(&mut store, &[data(4096, 4096)]).expect("room");
        assert_eq!(store.unsaved(V, 0..12288), vec![0..4096, 8192..12288]);
        assert_eq!(store.unsaved(VolumeId(1), 4096..8192), vec![4096..8192], "another volume");
        store.begin_mark(6);
        assert_eq!(store.unsaved(V, 4096..8192), vec![4096..8192], "a new mark begins anew");
        let second = save(&mut store, &[data(0, 8192)]).expect("room");
        let at = |allocated: &AllocatedBatch, offset, length| SavedRange {
            volume: V,
            offset,
            length,
            undo_offset: Some(allocated.offset + 4096),
            crc: 1,
        };
        let (old, new) = (at(&first, 4096, 4096), at(&second, 0, 8192));
        assert_eq!(store.next_saved(None, false), Some(old));
        store.drop_oldest();
        assert_eq!(store.used_bytes(), 4096 + 8192, "only the newer mark's batch is kept");
        assert_eq!(store.next_saved(None, false), Some(new));
        store.drop_oldest();
        assert_eq!((store.used_bytes(), store.mark()), (0, None));
    }

    // proves: P6
    /// Zeroes that were saved behind a walk joined what the walk had not come to yet with what it had.
    #[test]
    fn a_walk_meets_every_saved_range_whatever_joins_meanwhile() {
        let mut store = UndoStore::new(1024 * KIB);
        store.begin_mark(1);
        let zeroes = |offset, length| ToSave { crc: None, ..data(offset, length) };
        let of_another = ToSave { volume: VolumeId(1), ..data(0, 4096) };
        assert!(save(&mut store, &[zeroes(0, 4096), zeroes(8192, 4096), data(16384, 8192), of_another]).is_some());
        let (mut place, mut met) = ((V, 0), Vec::new());
        while let Some(saved) = store.saved_from(place.0, place.1) {
            met.push((saved.volume.0, saved.offset, saved.length));
            place = (saved.volume, saved.range().end);
            if met.len() == 1 {
                assert!(save(&mut store, &[zeroes(4096, 4096)]).is_some());
            }
        }
        assert_eq!(met, [(0, 0, 4096), (0, 4096, 8192), (0, 16384, 8192), (1, 0, 4096)]);
    }

    // proves: rule 9
    #[test]
    fn what_is_reserved_is_there_for_the_sync_alone() {
        let mut store = UndoStore::new(200 * KIB);
        store.begin_mark(1);
        store.reserve(space_for_units(128 * KIB));
        assert!(!store.is_short());
        assert_eq!(store.reserved_bytes(), 144 * KIB);
        assert!(save(&mut store, &[data(0, 32 * KIB)]).is_some(), "36 of the free 56 KiB");
        assert!(save(&mut store, &[data(64 * KIB, 32 * KIB)]).is_none(), "the rest is reserved");
        for region in 0..4 {
            let range = ToSave { reserved: true, ..data((10 + region) * 32 * KIB, 32 * KIB) };
            assert!(save(&mut store, &[range]).is_some(), "region {region}");
        }
        assert_eq!(store.reserved_bytes(), 0);
        store.reserve(64 * KIB);
        assert!(store.is_short());
        assert!(save(&mut store, &[data(640 * KIB, 4 * KIB)]).is_none());
        store.reserve(0);
        assert!(!store.is_short() && save(&mut store, &[data(640 * KIB, 4 * KIB)]).is_some());
    }

    // proves: rule 9
    #[test]
    fn regions_are_reserved_for_or_the_whole_image_where_that_is_less() {
        assert_eq!(space_for_sync(128 * KIB, 1024 * KIB), 256 * KIB);
        assert_eq!(space_for_sync(1024 * KIB, 1024 * KIB), 1152 * KIB);
        assert_eq!(space_for_sync(u64::MAX, u64::MAX), u64::MAX);
    }

    // proves: rule 9
    /// What was reserved for indexes that no batch needed was kept from live writes until the sync had ended.
    #[test]
    fn what_was_reserved_for_indexes_is_free_once_their_content_is_saved() {
        let left_of = |unit_bytes: u64, reserved: u64, lengths: &[u64]| {
            let mut store = UndoStore::new(4096 * KIB);
            store.begin_mark(1);
            store.reserve(reserved * KIB);
            store.save_in_units(unit_bytes);
            let mut offset = 0;
            let range = |length: &u64| {
                let range = ToSave { reserved: true, ..data(offset, length * KIB) };
                offset += length * KIB;
                range
            };
            let ranges: Vec<ToSave> = lengths.iter().map(range).collect();
            assert!(save(&mut store, &ranges).is_some());
            store.reserved_bytes() / KIB
        };
        assert_eq!(left_of(BLOCK_BYTES, 256, &[64, 32]), 64, "8 KiB for each of 24 regions");
        assert_eq!(left_of(SAVE_UNIT_BYTES, 144, &[64, 32]), 36, "36 KiB for each of three units");
        assert_eq!(left_of(SAVE_UNIT_BYTES, 144, &[20]), 120, "the rest of a unit may need an index of its own");
    }

    #[test]
    fn units_count_once_all_of_them_is_saved() {
        let mut store = UndoStore::new(4096 * KIB);
        store.begin_mark(1);
        let mut units = |offset: u64, length: u64| {
            save(&mut store, &[data(offset * KIB, length * KIB)]).expect("there is room");
            store.saved_units_bytes() / KIB
        };
        assert_eq!((units(4, 28), units(36, 28), units(32, 4)), (0, 0, 32));
        assert_eq!((units(0, 4), units(128, 100)), (64, 160));
    }

    // proves: rule 9
    /// A copy that was blank kept the room of a whole one from live writes until the sync had ended.
    #[test]
    fn what_was_reserved_for_zeroes_is_free_for_others_once_they_are_saved() {
        let after_zeroes = |for_all: bool| {
            let mut store = UndoStore::new(200 * KIB);
            store.begin_mark(1);
            store.reserve(space_for_units(128 * KIB));
            store.reserve_for_all(for_all);
            for region in 0..3 {
                let zeroes = ToSave { crc: None, reserved: true, ..data((10 + region) * 32 * KIB, 32 * KIB) };
                assert!(save(&mut store, &[zeroes]).is_some(), "region {region}");
            }
            store
        };
        let of_a_comparison = after_zeroes(false);
        assert_eq!(of_a_comparison.reserved_bytes(), 132 * KIB, "they may be of what nothing was reserved for");
        let mut store = after_zeroes(true);
        assert_eq!((store.reserved_bytes(), store.used_bytes()), (36 * KIB, 12 * KIB), "for the region that is left");
        assert!(save(&mut store, &[data(0, 140 * KIB)]).is_some());
        assert!(save(&mut store, &[data(160 * KIB, 8 * KIB)]).is_none(), "the rest is reserved");
        assert!(save(&mut store, &[ToSave { reserved: true, ..data(13 * 32 * KIB, 32 * KIB) }]).is_some());
    }

    #[test]
    fn the_ring_wraps_into_what_the_oldest_mark_left() {
        let mut store = UndoStore::new(100 * KIB);
        store.begin_mark(1);
        assert!(save(&mut store, &[data(0, 36 * KIB)]).is_some());
        store.begin_mark(2);
        assert!(save(&mut store, &[data(0, 36 * KIB)]).is_some());
        assert!(save(&mut store, &[data(64 * KIB, 32 * KIB)]).is_none(), "full");
        store.drop_oldest();
        let allocated = save(&mut store, &[data(64 * KIB, 32 * KIB)]).expect("room at the start");
        assert_eq!(allocated.offset, 0);
        assert_eq!(store.free_bytes(), 4 * KIB);
        assert!(save(&mut store, &[data(128 * KIB, 4 * KIB)]).is_none(), "the tail may not reach the head");
    }

    #[test]
    fn a_left_over_behind_a_torn_batch_does_not_follow() {
        let mut crashed = UndoStore::new(1024 * KIB);
        crashed.begin_mark(4);
        let batches: Vec<AllocatedBatch> = (0..3).filter_map(|n| save(&mut crashed, &[data(n * 4096, 4096)])).collect();
        let index = |allocated: &AllocatedBatch| UndoIndex::decode(&allocated.image).expect("whole");
        // The second one was torn: the next run finds the first, and writes another second one of the same size.
        let mut next = UndoStore::new(1024 * KIB);
        next.begin_mark(4);
        assert!(next.follows(1, Incarnation(2), &index(&batches[0])));
        next.found(&batches[0].image, &index(&batches[0]));
        assert!(!next.follows(1, Incarnation(2), &index(&batches[2])), "one is missing");
        let mut second = next.allocate(1, Incarnation(2), &[data(8192, 4096)]).expect("room");
        assert_eq!(second.offset, batches[1].offset);
        next.saved(&second);
        assert_eq!(next.next_offset(), batches[2].offset);
        assert!(!next.follows(1, Incarnation(2), &index(&batches[2])), "it follows another second one");
        // Nor does anything of an earlier mark, another group, or a later run.
        let mut other = UndoStore::new(1024 * KIB);
        other.begin_mark(5);
        assert!(!other.follows(1, Incarnation(2), &index(&batches[0])));
        let mut same = UndoStore::new(1024 * KIB);
        same.begin_mark(4);
        assert!(!same.follows(2, Incarnation(2), &index(&batches[0])));
        assert!(!same.follows(1, Incarnation(0), &index(&batches[0])));
        second.image[100] ^= 1;
        assert_eq!(UndoIndex::decode(&second.image), None);
    }

    // proves: rule 23
    /// Any block of another version made the group fail, also one that an earlier sync had left there.
    #[test]
    fn a_block_of_another_version_counts_only_where_it_is_the_next_batch() {
        let image = |change: fn(&mut UndoIndex)| {
            let mut index = UndoIndex { ring_offset: 0, ordinal: 1, ..sample() };
            change(&mut index);
            let mut image = index.encode();
            image[8] = 9;
            let crc = crc32c::crc32c(&image[..INDEX_BYTES - 4]);
            image[INDEX_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
            image
        };
        let mut store = UndoStore::new(1024 * KIB);
        store.begin_mark(sample().mark);
        let found = |change: fn(&mut UndoIndex)| store.next_of_other_version(sample().tag, &image(change));
        assert_eq!(found(|_| {}), Some(9));
        assert_eq!(found(|index| index.tag += 1), None, "another group's");
        assert_eq!(found(|index| index.mark -= 1), None, "of an earlier sync");
        assert_eq!(found(|index| index.ordinal += 1), None, "behind one that is missing");
        assert_eq!(found(|index| index.ring_offset += 4096), None, "from another place");
        assert_eq!(UndoIndex::other_version(&image(|_| {})), Some(9));
    }
}
