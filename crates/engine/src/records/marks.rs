//! The marks that a node has on record of a group, and how they get there.
//!
//! A mark's slot is durable before anybody is told of it: on a primary whoever set it, on a secondary its primary. Each change of a mark
//! has a number, so that who waits for one knows whether it stands in the file.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::context::Cx;
use crate::formats::cell::{self, CELL_BYTES, CellHead, RELIED_ON_FROM, Rejected};
use crate::formats::marks::{self, CELLS, KIND, Mark, SLOTS_PER_CELL};
use crate::ids::{Incarnation, MarkId, NodeId, Position};
use crate::limits::MARKS_MAX;
use crate::shared::operation_slots::{OperationSlots, SlotOperation};
use crate::time::Wall;
use crate::{Store, WriteBytes};

/// Lower bits of an id's counter: how many ids the run has given. The upper ones name the run.
const GIVEN_BITS: u32 = 16;

/// A mark, and the number of its last change.
#[derive(Clone, Debug)]
struct Slot {
    mark: Mark,
    change: u64,
}

#[derive(Debug)]
pub(crate) struct MarkTable {
    slots: Vec<Option<Slot>>,
    /// Where each mark has its slot: who waits for marks looks for them in every turn.
    places: BTreeMap<MarkId, usize>,
    updates: [u64; CELLS],
    /// Cells that say less than the table.
    changed: BTreeSet<usize>,
    /// The cell that is being written.
    writing: Option<usize>,
    /// The last change.
    last_change: u64,
    /// So many cells were written, or not.
    writes_done: u64,
    /// Marks that are durable in the journal, and have no slot yet.
    arrived: Vec<(MarkId, Position, Wall)>,
    /// Marks of which the peer has said nothing, and those that are dropped.
    open: usize,
    dropped: usize,
    /// The file could not be written or read: it takes nothing more in this run.
    latched: bool,
    /// So many ids this run has given.
    given: u64,
}

impl Default for MarkTable {
    fn default() -> MarkTable {
        MarkTable {
            slots: Vec::new(),
            places: BTreeMap::new(),
            updates: [0; CELLS],
            changed: BTreeSet::new(),
            writing: None,
            last_change: 0,
            writes_done: 0,
            arrived: Vec::new(),
            open: 0,
            dropped: 0,
            latched: false,
            given: 0,
        }
    }
}

/// What a start found.
pub(crate) enum FoundMarks {
    Whole,
    /// So many cells cannot be read: their marks are lost.
    Damaged(usize),
    OtherVersion(u16),
}

impl MarkTable {
    /// The file as a start reads it.
    pub fn take_up(&mut self, tag: u64, bytes: &[u8]) -> FoundMarks {
        *self = MarkTable::default();
        let mut damaged = 0;
        for index in 0..CELLS {
            let offset = index as u64 * CELL_BYTES;
            let part = bytes.get(offset as usize..(offset + CELL_BYTES) as usize).unwrap_or_default();
            let choice = cell::choose(KIND, tag, offset, part);
            self.updates[index] = choice.highest;
            let read = choice.newest.and_then(|(_, body)| marks::decode_slots(body));
            match read {
                Ok(found) => {
                    damaged += usize::from(choice.ambiguous);
                    self.put_back(index, found);
                }
                Err(Rejected::Blank) => {}
                Err(Rejected::VersionUnknown(version)) => return FoundMarks::OtherVersion(version),
                Err(_) => damaged += 1,
            }
        }
        self.recount();
        if damaged > 0 { FoundMarks::Damaged(damaged) } else { FoundMarks::Whole }
    }

    /// A start could not read it, or not flush it: its marks are lost, and it takes no others.
    pub fn cannot_be_relied_on(&mut self) {
        *self = MarkTable { latched: true, ..MarkTable::default() };
    }

    /// A write failed: what its cell holds is not known.
    pub fn latch(&mut self) {
        self.latched = true;
        self.writes_done += 1;
        self.changed.extend(self.writing.take());
    }

    /// No mark can be recorded. Everything else goes on: no promise rests on this file.
    pub fn has_latched(&self) -> bool {
        self.latched
    }

    fn put_back(&mut self, cell: usize, found: Vec<Option<Mark>>) {
        for (at, mark) in (cell * SLOTS_PER_CELL..).zip(found) {
            let Some(mark) = mark else { continue };
            // A crash between two cells leaves a mark that moved in both. What the older slot says is past.
            if let Some(twin) = self.slot(mark.id) {
                let is_older = twin.mark.wall > mark.wall;
                self.changed.insert(if is_older { at } else { self.places[&mark.id] } / SLOTS_PER_CELL);
                if is_older {
                    continue;
                }
                self.slots[self.places[&mark.id]] = None;
            }
            self.slots.resize(self.slots.len().max(at + 1), None);
            self.places.insert(mark.id, at);
            self.slots[at] = Some(Slot { mark, change: 0 });
        }
    }

    /// All marks, also those that are dropped and of which the peer has not heard.
    pub fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.slots.iter().flatten().map(|slot| &slot.mark)
    }

    pub fn get(&self, id: MarkId) -> Option<&Mark> {
        self.slot(id).map(|slot| &slot.mark)
    }

    fn slot(&self, id: MarkId) -> Option<&Slot> {
        self.slots.get(*self.places.get(&id)?)?.as_ref()
    }

    /// The newest mark of that name that people see.
    pub fn named(&self, name: &str) -> Option<&Mark> {
        let named = self.marks().filter(|mark| !mark.dropped && mark.name == name);
        named.max_by_key(|mark| (mark.wall, mark.id))
    }

    pub fn is_full(&self) -> bool {
        self.marks().count() >= MARKS_MAX
    }

    /// An id that no mark has had. The run is on record before it gives one, and the mark's slot is not: so no id follows from the slots.
    pub fn next_id(&mut self, node: NodeId, run: Incarnation) -> MarkId {
        loop {
            self.given += 1;
            let given = self.given & ((1 << GIVEN_BITS) - 1);
            let counter = (run.0 << GIVEN_BITS | given) & MarkId::COUNTER_MAX;
            let id = MarkId(u64::from(node.0) << MarkId::COUNTER_BITS | counter);
            if self.get(id).is_none() {
                return id;
            }
        }
    }

    /// A new mark, or a mark as it is from now on. False: there is no room.
    pub fn put(&mut self, mark: Mark) -> bool {
        let same = self.places.get(&mark.id).copied();
        let free = || self.slots.iter().position(Option::is_none);
        let at = same.or_else(free).unwrap_or(self.slots.len());
        if at >= MARKS_MAX {
            return false;
        }
        self.slots.resize(self.slots.len().max(at + 1), None);
        self.last_change += 1;
        self.places.insert(mark.id, at);
        self.slots[at] = Some(Slot { mark, change: self.last_change });
        self.changed.insert(at / SLOTS_PER_CELL);
        self.recount();
        true
    }

    /// Its slot is free.
    pub fn remove(&mut self, id: MarkId) {
        if let Some(at) = self.places.remove(&id) {
            self.slots[at] = None;
            self.last_change += 1;
            self.changed.insert(at / SLOTS_PER_CELL);
            self.recount();
        }
    }

    fn recount(&mut self) {
        self.open = self.marks().filter(|mark| !mark.there && !mark.lost).count();
        self.dropped = self.marks().filter(|mark| mark.dropped).count();
    }

    /// Of some marks it is not known whether they reach the peer.
    pub fn has_open(&self) -> bool {
        self.open > 0
    }

    /// Some are dropped, and their slots not free.
    pub fn has_dropped(&self) -> bool {
        self.dropped > 0
    }

    /// A mark of the stream is durable in the journal.
    pub fn arrive(&mut self, id: MarkId, position: Position, wall: Wall) {
        self.arrived.push((id, position, wall));
    }

    pub fn take_arrived(&mut self) -> Vec<(MarkId, Position, Wall)> {
        core::mem::take(&mut self.arrived)
    }

    pub fn last_change(&self) -> u64 {
        self.last_change
    }

    /// The number of the last change of this mark.
    pub fn change_of(&self, id: MarkId) -> Option<u64> {
        self.slot(id).map(|slot| slot.change)
    }

    /// So many cells were written in this run: only with that a mark comes to stand in the file.
    pub fn writes_done(&self) -> u64 {
        self.writes_done
    }

    /// All changes stand in the file, as far as they ever will.
    pub fn is_durable(&self) -> bool {
        self.latched || self.changed.is_empty() && self.writing.is_none() && self.arrived.is_empty()
    }

    /// The mark stands in the file as it is.
    pub fn is_recorded(&self, id: MarkId) -> bool {
        self.places.get(&id).is_some_and(|at| {
            let cell = at / SLOTS_PER_CELL;
            !self.changed.contains(&cell) && self.writing.is_none_or(|writing| writing != cell)
        })
    }

    /// Writes the next cell that says less than the table, unless one is on its way.
    pub fn write_next(&mut self, cx: &mut Cx, slots: &mut OperationSlots, head: CellHead) {
        if self.writing.is_some() || self.latched {
            return;
        }
        let Some(index) = self.changed.pop_first() else { return };
        self.writing = Some(index);
        self.write(cx, slots, head, index);
    }

    fn write(&mut self, cx: &mut Cx, slots: &mut OperationSlots, head: CellHead, index: usize) {
        self.updates[index] += 1;
        let head = CellHead { update: self.updates[index], offset: index as u64 * CELL_BYTES, ..head };
        let first = index * SLOTS_PER_CELL;
        let in_cell = (first..first + SLOTS_PER_CELL).map(|at| self.slots.get(at)?.as_ref().map(|slot| &slot.mark));
        let image = cell::encode(KIND, &head, &marks::encode_slots(in_cell));
        let token = slots.start(SlotOperation::MarksCell);
        let (store, offset) = (Store::Marks(slots.group()), head.slot_offset());
        cx.write(token, store, offset, vec![WriteBytes::Meta(image)], true);
    }

    /// The cell is written; before the first update that counts it is written once more.
    pub fn written(&mut self, cx: &mut Cx, slots: &mut OperationSlots, head: CellHead) {
        let Some(index) = self.writing else { return };
        if self.updates[index] < RELIED_ON_FROM {
            return self.write(cx, slots, head, index);
        }
        self.writing = None;
        self.writes_done += 1;
        self.write_next(cx, slots, head);
    }
}

/// What people are told of a file that cannot be written or read.
pub(crate) const LATCHED: &str = "the file 'marks' cannot be written or read: until the group starts anew no mark is set, locked or dropped here. \
     Volumes, journal and order are not concerned; see the kernel log for the disk of the state directory";

/// What people are told of cells that cannot be read.
pub(crate) fn lost_words(cells: usize) -> alloc::string::String {
    format!(
        "{cells} cells of the file 'marks' are damaged: marks that stood there are lost. Volumes, journal and order are not concerned"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Seq;

    fn marked(id: u64, seq: u64) -> Mark {
        let position = Position { seq: Seq(seq), ..Position::default() };
        Mark { id: MarkId(id), position, wall: Wall(seq), name: format!("m{id}"), ..Mark::default() }
    }

    fn file_of(tag: u64, cells: &[&[Option<&Mark>]]) -> Vec<u8> {
        let mut file = vec![0; marks::FILE_BYTES as usize];
        for (at, slots) in cells.iter().enumerate() {
            let head = CellHead { tag, offset: at as u64 * CELL_BYTES, update: RELIED_ON_FROM, ..CellHead::default() };
            let image = cell::encode(KIND, &head, &marks::encode_slots(slots.iter().copied()));
            let from = (head.offset + head.slot_offset() % CELL_BYTES) as usize;
            file[from..from + image.len()].copy_from_slice(&image);
        }
        file
    }

    /// A peer may have told of any id. None of them is replaced by a mark that is set here.
    #[test]
    fn an_id_that_somebody_has_is_given_to_no_other_mark() {
        let (node, run) = (NodeId(2), Incarnation(u64::MAX >> 1));
        let mut table = MarkTable::default();
        for _ in 0..9 {
            let guessed = MarkTable::default().next_id(node, run);
            let taken = MarkId(guessed.0 + 2 * table.marks().count() as u64);
            assert!(table.put(Mark { id: taken, ..marked(1, 1) }));
        }
        let given: Vec<MarkId> = (0..9).map(|_| table.next_id(node, run)).collect();
        assert!(given.iter().all(|id| table.get(*id).is_none() && id.node() == node && MarkId::read(id.0).is_some()));
        assert!(given.is_sorted_by(|a, b| a < b));
    }

    /// A mark got another slot, of another cell, and the power went between the two writes.
    #[test]
    fn a_mark_of_two_slots_is_one_mark() {
        for (first, second) in [(5, 9), (9, 5)] {
            let (first, second, other) = (marked(7, first), marked(7, second), marked(8, 1));
            let file = file_of(3, &[&[None, Some(&first)], &[Some(&second), Some(&other)]]);
            let mut table = MarkTable::default();
            assert!(matches!(table.take_up(3, &file), FoundMarks::Whole | FoundMarks::Damaged(_)));
            assert_eq!(table.get(MarkId(7)).map(|mark| mark.position.seq), Some(Seq(9)));
            assert_eq!(table.marks().count(), 2);
            assert!(!table.is_durable(), "the other slot is written free");
            table.remove(MarkId(7));
            assert_eq!(table.marks().map(|mark| mark.id).collect::<Vec<_>>(), [MarkId(8)]);
        }
    }
}
