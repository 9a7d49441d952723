//! Bits made durable: the stored bitmap and the activity log of one group, and the writes that wait for them.
//!
//! ```text
//! range free -> every extent hot, or its regions stored? -> number
//!                  no: wait in `cold`; pump: give slots away, write the log's cells, go on
//! ```

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use crate::context::Cx;
use crate::formats::bitmap::{self, BitmapCell, REGIONS_PER_CELL, region_span, words_between};
use crate::formats::cell::{self, CellHead};
use crate::formats::identity::Confirmed;
use crate::ids::*;
use crate::records::activity::{ActivityLog, Extent, extents_of};
use crate::shared::lifecycle::Promotion;
use crate::shared::operation_slots::{OperationSlots, SlotOperation};
use crate::shared::volumes::Volumes;
use crate::state::Broken;
use crate::{ActivityConfig, Store, WriteBytes, limits};

/// Cells of the bitmap being written at once.
const CELLS_IN_FLIGHT_MAX: usize = 64;

/// A write over more extents than this has its regions stored instead: a large trim would empty the log.
pub(crate) const EXTENTS_PER_WRITE_MAX: usize = 16;

/// What goes on once bits are durable.
#[derive(Debug)]
pub(crate) enum AfterBits {
    /// The start goes on.
    Started,
    /// The clean stop is recorded.
    Stopped,
    /// The demotion is recorded.
    Demote { id: CommandId },
    /// The promotion is recorded.
    /// `peer_ahead`: the peer may have what is not here.
    Promote { promotion: Promotion, peer_ahead: bool },
    /// The sync of everything begins.
    FullSync,
    /// The rollback is recorded.
    Rollback,
    /// What the peer answered to this question, its bits, is stored here too.
    Joined { question: u64 },
    /// What will be pulled after its answer to this question is dirty.
    Pull { question: u64 },
    /// What the two sides of a fork hold against each other, as the primary named it with this question, is stored here too.
    Union { question: u64 },
}

impl AfterBits {
    fn is_of_a_question(&self) -> bool {
        matches!(self, AfterBits::Joined { .. } | AfterBits::Pull { .. } | AfterBits::Union { .. })
    }
}

/// One cell's life on disk.
#[derive(Clone, Copy, Debug, Default)]
struct CellState {
    update: u64,
    writing: bool,
    /// Where it was found, before the devices in front of its own were enlarged.
    found_at: Option<usize>,
}

/// A wait for the writes of some cells.
#[derive(Debug)]
struct CellWait {
    /// Cell and the update that must be durable.
    left: Vec<(usize, u64)>,
    then: AfterBits,
}

/// Writes the cells of a group's bitmap.
#[derive(Debug, Default)]
pub(crate) struct BitmapWriter {
    /// The cells on disk speak of smaller volumes: all are to be written.
    outgrown: bool,
    /// What cells say of the size of their volume's device, for each volume.
    device_bytes: Vec<u64>,
    /// First cell of each volume.
    first: Vec<usize>,
    cells: Vec<CellState>,
    /// Here stand cells that belong further back and are not durable there yet: nothing is written over them.
    moving: BTreeSet<usize>,
    wanted: BTreeSet<usize>,
    in_flight: usize,
    waiting: Vec<CellWait>,
}

impl BitmapWriter {
    pub fn new(sizes: impl Iterator<Item = u64>) -> BitmapWriter {
        let (mut first, device_bytes) = (Vec::new(), sizes.collect::<Vec<u64>>());
        let mut count = 0;
        for size in &device_bytes {
            first.push(count);
            count += bitmap::cells(*size) as usize;
        }
        BitmapWriter { first, device_bytes, cells: vec![CellState::default(); count], ..BitmapWriter::default() }
    }

    pub fn count(&self) -> usize {
        self.cells.len()
    }

    /// Volume and the cell's position among that volume's.
    pub fn position(&self, index: usize) -> (VolumeId, u64) {
        let volume = self.first.partition_point(|first| *first <= index) - 1;
        (VolumeId(volume as u16), (index - self.first[volume]) as u64)
    }

    fn index(&self, volume: VolumeId, region: u64) -> usize {
        self.first[usize::from(volume.0)] + (region / REGIONS_PER_CELL) as usize
    }

    /// A device was enlarged since the cell was written. They go on saying so until the group's new size is on record: else a start
    /// that is cut short would hide it from the next one.
    pub fn device_grew(&mut self, volume: VolumeId, before_bytes: u64) {
        self.outgrown = true;
        let says = &mut self.device_bytes[usize::from(volume.0)];
        *says = before_bytes.min(*says);
    }

    pub fn is_outgrown(&self) -> bool {
        self.outgrown
    }

    /// The sizes are on record.
    fn sizes_recorded(&mut self, device_bytes: Vec<u64>) {
        if core::mem::take(&mut self.outgrown) {
            self.device_bytes = device_bytes;
            self.wanted.extend(0..self.cells.len());
        }
    }

    /// Where a cell belongs that was found in the place of another one, which is before its own: devices grew since it was written.
    pub fn belongs_behind(&self, index: usize, found: &BitmapCell) -> Option<usize> {
        let first = *self.first.get(usize::from(found.volume.0))?;
        let cell_index = first.checked_add((found.first_region / REGIONS_PER_CELL) as usize)?;
        let is_its_volumes = cell_index < self.cells.len() && self.position(cell_index).0 == found.volume;
        (is_its_volumes && cell_index > index).then_some(cell_index)
    }

    /// The cell of this position was found at that one. Of two such positions, as a start that was killed leaves them, the later is kept.
    pub fn found_elsewhere(&mut self, cell_index: usize, at: usize) {
        if let Some(earlier) = self.cells[cell_index].found_at.replace(at) {
            self.moving.remove(&earlier);
        }
        self.moving.insert(at);
    }

    pub fn was_found_elsewhere(&self, cell_index: usize) -> bool {
        self.cells[cell_index].found_at.is_some()
    }

    /// What has its bits on disk, the next of it.
    pub fn next_saved(&mut self) -> Option<AfterBits> {
        let at = self.waiting.iter().position(|waiting| waiting.left.is_empty())?;
        Some(self.waiting.remove(at).then)
    }

    /// All that waits, whether its bits will ever be on disk or not.
    pub fn take_waiting(&mut self) -> Vec<AfterBits> {
        core::mem::take(&mut self.waiting).into_iter().map(|waiting| waiting.then).collect()
    }

    /// Nothing follows any more from what waits and is of this kind.
    pub fn forget(&mut self, kind: impl Fn(&AfterBits) -> bool) {
        self.waiting.retain(|waiting| !kind(&waiting.then));
    }

    /// A full sync waits until its bits are on disk.
    pub fn awaits_full_sync(&self) -> bool {
        self.waiting.iter().any(|waiting| matches!(waiting.then, AfterBits::FullSync))
    }

    /// Something has its bits on disk, and nobody has gone on with it.
    pub fn is_overdue(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.left.is_empty())
    }

    pub fn has_moved(&self) -> bool {
        !self.moving.is_empty()
    }

    /// The next cell to write. What moves on goes from the last to the first, each over one that is durable further back.
    fn next_wanted(&mut self) -> Option<usize> {
        let writable = |index: &&usize| !self.cells[**index].writing && !self.moving.contains(*index);
        let next =
            if self.has_moved() { self.wanted.iter().rev().find(writable) } else { self.wanted.iter().find(writable) };
        let next = next.copied()?;
        self.wanted.remove(&next);
        Some(next)
    }

    pub fn found(&mut self, index: usize, update: u64) {
        self.cells[index].update = update;
    }

    /// The next time bits are stored this cell is written, whatever it holds.
    pub fn write_again(&mut self, index: usize) {
        self.wanted.insert(index);
    }
}

/// The stored bits of a group, with what is touched as they are written.
pub(crate) struct StoredBits<'a> {
    pub writer: &'a mut BitmapWriter,
    pub activity: &'a mut ActivityLog,
    pub volumes: &'a mut Volumes,
    pub slots: &'a mut OperationSlots,
    pub config: ActivityConfig,
    /// What every cell says of its group.
    pub head: CellHead,
    /// Bits that are clear are clear because the peer confirmed so much: a cell says it, so that no crash comes between the two.
    pub confirmed: Confirmed,
}

impl StoredBits<'_> {
    /// Stores every bit that is set in memory and not on disk; `then` goes on once that is durable: whoever calls this sees to
    /// [`BitmapWriter::next_saved`] behind it.
    pub fn save(&mut self, cx: &mut Cx, then: AfterBits) {
        let unstored = |bits: &StoredBits, index: usize| {
            let (volume, cell) = bits.writer.position(index);
            let volume = &bits.volumes[usize::from(volume.0)];
            !volume.copy.dirty.cell_is_within(&volume.stored, cell)
        };
        let cells = (0..self.writer.count()).filter(|index| unstored(self, *index)).collect();
        self.save_cells(cx, cells, then);
    }

    /// Stores every cell that differs from memory: for a clean stop, after which what is stored is all there is.
    pub fn save_exactly(&mut self, cx: &mut Cx, then: AfterBits) {
        let differs = |bits: &StoredBits, index: usize| {
            let (volume, cell) = bits.writer.position(index);
            let volume = &bits.volumes[usize::from(volume.0)];
            let (dirty, stored) = (&volume.copy.dirty, &volume.stored);
            !dirty.cell_is_within(stored, cell) || !stored.cell_is_within(dirty, cell)
        };
        let cells = (0..self.writer.count()).filter(|index| differs(self, *index)).collect();
        self.save_cells(cx, cells, then);
    }

    /// Stores every cell as it is in memory.
    pub fn save_all(&mut self, cx: &mut Cx, then: AfterBits) {
        let cells = (0..self.writer.count()).collect();
        self.save_cells(cx, cells, then);
    }

    fn save_cells(&mut self, cx: &mut Cx, cells: Vec<usize>, then: AfterBits) {
        let needed = |index: &usize| (self.writer.cells[*index].update + 1).max(cell::RELIED_ON_FROM);
        let left: Vec<_> = cells.iter().map(|index| (*index, needed(index))).collect();
        self.writer.wanted.extend(cells);
        if then.is_of_a_question() {
            // Nothing follows from an earlier one any more.
            self.writer.waiting.retain(|waiting| !waiting.then.is_of_a_question());
        }
        self.writer.waiting.push(CellWait { left, then });
        self.pump_cells(cx);
    }

    /// A cell's write has ended: whether what waits for it may go on, or the write has to be followed by another.
    pub fn cell_written(&mut self, cx: &mut Cx, index: usize, words: &[u64], ok: bool) -> Result<bool, Broken> {
        self.writer.in_flight -= 1;
        let cell = &mut self.writer.cells[index];
        cell.writing = false;
        if !ok {
            // As with the superblock: the slot that may be torn is the next one as well.
            cell.update += 1;
            return Err(Broken::Bits);
        }
        let update = cell.update;
        if update < cell::RELIED_ON_FROM {
            self.writer.wanted.insert(index);
            self.pump_cells(cx);
            return Ok(false);
        }
        if let Some(at) = cell.found_at.take() {
            self.writer.moving.remove(&at);
        }
        let (id, cell) = self.writer.position(index);
        self.volumes.of(id).stored.set_cell(cell, words);
        for waiting in &mut self.writer.waiting {
            waiting.left.retain(|(cell, needed)| *cell != index || update < *needed);
        }
        self.pump_cells(cx);
        Ok(true)
    }

    // ---- the bitmap's cells -----------------------------------------------------------------------------------------

    /// The sizes of the group are on record: the cells on disk need not tell the next start that devices grew.
    pub fn store_device_sizes(&mut self, cx: &mut Cx) {
        let devices = self.volumes.device_sizes();
        self.writer.sizes_recorded(devices);
        self.pump_cells(cx);
    }

    pub fn pump_cells(&mut self, cx: &mut Cx) {
        while self.writer.in_flight < CELLS_IN_FLIGHT_MAX {
            let Some(index) = self.writer.next_wanted() else { return };
            self.write_cell(cx, index);
        }
    }

    fn write_cell(&mut self, cx: &mut Cx, index: usize) {
        let (id, cell) = self.writer.position(index);
        let volume = &mut self.volumes[usize::from(id.0)];
        let mut words = volume.copy.dirty.cell(cell);
        announce(&mut words, volume.announced(), cell);
        // Until the write is done either content may be found: only what both hold counts as stored.
        volume.stored.mask_cell(cell, &words);
        let state = &mut self.writer.cells[index];
        state.update += 1;
        state.writing = true;
        // Where the cells stand follows from the devices, whatever the group uses of them.
        let size = self.writer.device_bytes[usize::from(id.0)];
        let head = CellHead { update: state.update, offset: index as u64 * cell::CELL_BYTES, ..self.head };
        let body = BitmapCell::encode(id, size, cell * REGIONS_PER_CELL, self.confirmed, &words);
        let image = cell::encode(bitmap::KIND, &head, &body);
        self.writer.in_flight += 1;
        let token = self.slots.start(SlotOperation::BitmapCell { index, words });
        let store = Store::Bitmap(self.slots.group());
        volume.traffic.stored_bits(image.len() as u64);
        let parts = vec![WriteBytes::Meta(image)];
        let offset = head.slot_offset();
        cx.write(token, store, offset, parts, true);
    }

    /// Clears on disk what is clear in memory, in as many cells; true if there are more.
    pub fn tidy(&mut self, cx: &mut Cx, most: usize) -> bool {
        let stale = |bits: &StoredBits, index: usize| {
            let (volume, cell) = bits.writer.position(index);
            let volume = &bits.volumes[usize::from(volume.0)];
            !volume.stored.cell_is_within(&volume.copy.dirty, cell)
        };
        let mut found = (0..self.writer.count()).filter(|index| stale(self, *index));
        let cells: Vec<usize> = found.by_ref().take(most).collect();
        let more = found.next().is_some();
        self.writer.wanted.extend(cells);
        self.pump_cells(cx);
        more
    }

    // ---- the activity log -------------------------------------------------------------------------------------------

    /// A crash from now on finds this range: by the log, or by its stored bits.
    pub fn is_covered(&self, id: VolumeId, offset: u64, length: u64) -> bool {
        extents_of(self.config, id, offset, length).all(|extent| self.extent_covered(extent, offset, length))
    }

    fn extent_covered(&self, extent: Extent, offset: u64, length: u64) -> bool {
        if self.activity.is_hot(extent) {
            return true;
        }
        let volume = &self.volumes[usize::from(extent.volume.0)];
        let Some((start, bytes)) = self.activity.range(extent, volume.size_bytes()) else { return true };
        let (first, last) = region_span(offset.max(start), (offset + length).min(start + bytes) - offset.max(start));
        volume.stored.has_all(first, last) && volume.copy.dirty.has_all(first, last)
    }

    /// Extents that will leave the log have their bits stored ahead of need, many with one write.
    pub fn store_ahead(&mut self, crowded: bool) {
        let wanted = self.config.extents as usize / if crowded { 2 } else { 8 };
        let bytes = self.config.extent_bytes;
        let coldest: Vec<Extent> = self.activity.coldest(wanted.max(1)).collect();
        for extent in coldest {
            if !stored_through(self.volumes, bytes, extent) {
                // It may lie in two cells.
                let size = self.volumes[usize::from(extent.volume.0)].size_bytes();
                let Some((start, bytes)) = self.activity.range(extent, size) else { continue };
                let (first, last) = region_span(start, bytes);
                let cells = self.writer.index(extent.volume, first)..=self.writer.index(extent.volume, last);
                self.writer.wanted.extend(cells);
            }
        }
    }

    /// A very long write is covered by stored bits, not by the log.
    pub fn announce_write(&mut self, slot: u32, id: VolumeId, offset: u64, length: u64) {
        let (first, last) = region_span(offset, length);
        let volume = self.volumes.of(id);
        if !volume.announce(slot, first, last) {
            return;
        }
        let cells = self.writer.index(id, first)..=self.writer.index(id, last);
        self.writer.wanted.extend(cells);
    }

    /// Writers keep every extent of the log in use, and somebody has waited for a slot for a while: until he has one nobody is let
    /// past him, so that those under way can end.
    pub fn starves(&self, cx: &Cx) -> bool {
        let Some(slot) = self.activity.crowded_out() else {
            return false;
        };
        cx.now.mono.since(self.slots.write_ref(slot).since) >= limits::STARVES_AFTER
    }

    pub fn write_activity(&mut self, cx: &mut Cx, cells: Vec<(u64, Vec<u8>)>) {
        for (offset, image) in cells {
            let token = self.slots.start(SlotOperation::ActivityCell);
            let (store, parts) = (Store::Activity(self.slots.group()), vec![WriteBytes::Meta(image)]);
            cx.write(token, store, offset, parts, true);
        }
    }

    /// Empties the log on disk for a run that begins: everything it named is in the stored bitmap.
    pub fn reset_activity(&mut self, cx: &mut Cx, run: Incarnation) {
        let cells = self.activity.begin_reset(self.head, run, self.confirmed);
        self.write_activity(cx, cells);
    }
}

fn announce(words: &mut [u64], announced: impl Iterator<Item = (u64, u64)>, cell: u64) {
    let base = cell * REGIONS_PER_CELL;
    let most = words.len() as u64 * 64;
    for (first, last) in announced.filter(|(first, last)| *first < base + most && *last >= base) {
        let (first, last) = (first.max(base) - base, (last - base).min(most - 1));
        words_between(first, last).for_each(|(index, mask)| words[index as usize] |= mask);
    }
}

/// The stored bitmap holds every bit of the extent: it may leave the log.
pub(crate) fn stored_through(volumes: &[crate::shared::volume::Volume], extent_bytes: u64, extent: Extent) -> bool {
    let Some(volume) = volumes.get(usize::from(extent.volume.0)) else { return true };
    let size = volume.size_bytes();
    let start = extent.number * extent_bytes;
    if start >= size {
        return true;
    }
    let (first, last) = region_span(start, extent_bytes.min(size - start));
    volume.copy.dirty.is_within(&volume.stored, first, last)
}

/// First and last of the regions that an extent of the log stands for, if it lies in the volume.
pub(crate) fn regions_of(extent: Extent, extent_bytes: u64, size_bytes: u64) -> Option<(u64, u64)> {
    let start = extent.number.checked_mul(extent_bytes).filter(|start| *start < size_bytes)?;
    Some(region_span(start, extent_bytes.min(size_bytes - start)))
}
