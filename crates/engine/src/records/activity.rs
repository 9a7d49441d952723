//! The activity log: which extents were written lately. An extent is in the log, durably, before the first write to it is
//! issued; so after a crash only what the log names and what the stored bitmap names may differ (rule 2).
//!
//! A write to an extent in the log costs no metadata. An extent leaves the log only when the stored bitmap holds every bit
//! that is set in it, so the log never waits for the peer.
//!
//! On disk: cells of [`SLOTS_PER_CELL`] slots. A slot names an extent or nothing.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use crate::ActivityConfig;
use crate::formats::cell::{self, BODY_BYTES, CELL_BYTES, CellHead, CellKind, Rejected};
use crate::formats::codec::{FieldDecoder, FieldEncoder};
use crate::formats::identity::Confirmed;
use crate::ids::{Incarnation, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::limits::VOLUMES_MAX;
use crate::shared::write::ExtentPins;

/// Format versions: 2 carries what the peer confirmed beside the extents; 1 was never released.
pub const VERSION: u16 = 2;
pub const KIND: CellKind = CellKind { magic: *b"FSHACTIV", version: VERSION, oldest: VERSION };
const SLOT_BYTES: usize = 8;
/// Before the slots: the run that wrote the cell, and what the peer confirmed.
const FIXED_BYTES: usize = 72;
pub const SLOTS_PER_CELL: usize = (BODY_BYTES - FIXED_BYTES) / SLOT_BYTES;
/// A slot's lower bits name the extent, the upper ones the volume.
const EXTENT_BITS: u32 = 48;

/// Bytes of the activity log's file.
pub fn file_bytes(config: ActivityConfig) -> u64 {
    cells(config) as u64 * CELL_BYTES
}

fn cells(config: ActivityConfig) -> usize {
    (config.extents as usize).div_ceil(SLOTS_PER_CELL)
}

/// A run of a volume, of the log's extent size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    pub volume: VolumeId,
    pub number: u64,
}

/// One cell of the log, read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivityCell {
    /// The run of the node that wrote it.
    pub incarnation: Incarnation,
    /// What the peer had confirmed when the cell was written: extents may have left it because of that.
    pub confirmed: Confirmed,
    pub extents: Vec<Extent>,
}

impl ActivityCell {
    /// # Errors
    /// [`Rejected::Damaged`] for a body that no program of this version writes.
    pub fn decode(body: &[u8]) -> Result<ActivityCell, Rejected> {
        let mut r = FieldDecoder(body);
        let incarnation = Incarnation(r.u64().ok_or(Rejected::Damaged)?);
        let confirmed = Confirmed::decode(&mut r).ok_or(Rejected::Damaged)?;
        let mut extents = Vec::new();
        for _ in 0..SLOTS_PER_CELL {
            let slot = r.u64().ok_or(Rejected::Damaged)?;
            if slot == 0 {
                continue;
            }
            let volume = (slot >> EXTENT_BITS).checked_sub(1).ok_or(Rejected::Damaged)?;
            if volume >= VOLUMES_MAX as u64 {
                return Err(Rejected::Damaged);
            }
            let number = slot & ((1 << EXTENT_BITS) - 1);
            extents.push(Extent { volume: VolumeId(volume as u16), number });
        }
        Ok(ActivityCell { incarnation, confirmed, extents })
    }
}

/// The body of a cell with these slots.
pub fn encode_slots(
    incarnation: Incarnation,
    confirmed: Confirmed,
    slots: impl Iterator<Item = Option<Extent>>,
) -> Vec<u8> {
    let mut w = FieldEncoder::default();
    w.u64(incarnation.0);
    confirmed.encode(&mut w);
    for slot in slots {
        w.u64(slot.map_or(0, |e| (u64::from(e.volume.0) + 1) << EXTENT_BITS | e.number));
    }
    w.0
}

#[derive(Clone, Copy, Debug, Default)]
struct ActivitySlot {
    extent: Option<Extent>,
    /// Writes between their admission to the log and their completion on disk.
    pins: u32,
    /// Used since the hand last passed.
    used: bool,
    /// The log names it on disk.
    durable: bool,
}

/// The extents of a range.
pub(crate) fn extents_of(
    config: ActivityConfig,
    volume: VolumeId,
    offset: u64,
    length: u64,
) -> impl Iterator<Item = Extent> {
    (offset / config.extent_bytes..=(offset + length - 1) / config.extent_bytes)
        .map(move |number| Extent { volume, number })
}

/// The log in memory.
#[derive(Debug)]
pub(crate) struct ActivityLog {
    config: ActivityConfig,
    slots: Vec<ActivitySlot>,
    by_extent: BTreeMap<Extent, u32>,
    /// Where the search for a slot to give away goes on.
    hand: u32,
    updates: Vec<u64>,
    changed: BTreeSet<usize>,
    in_flight: usize,
    broken: bool,
    /// Writes that wait for their extents.
    cold: VecDeque<u32>,
    /// The first of them found every slot of the log in use.
    crowded: bool,
}

impl ActivityLog {
    pub fn new(config: ActivityConfig) -> ActivityLog {
        assert!(config.extent_bytes.is_power_of_two() && config.extents > 0);
        ActivityLog {
            config,
            slots: vec![ActivitySlot::default(); config.extents as usize],
            by_extent: BTreeMap::new(),
            hand: 0,
            updates: vec![0; cells(config)],
            changed: BTreeSet::new(),
            in_flight: 0,
            broken: false,
            cold: VecDeque::new(),
            crowded: false,
        }
    }

    /// First byte and length of an extent, clipped at the volume's end.
    pub fn range(&self, extent: Extent, size_bytes: u64) -> Option<(u64, u64)> {
        let offset = extent.number.checked_mul(self.config.extent_bytes).filter(|offset| *offset < size_bytes)?;
        Some((offset, self.config.extent_bytes.min(size_bytes - offset)))
    }

    pub fn is_hot(&self, extent: Extent) -> bool {
        let counts = |at: &u32| self.slots[*at as usize].durable || injected(Fault::HotTooEarly);
        self.by_extent.get(&extent).is_some_and(counts)
    }

    /// Holds the extent in the log, if it is there.
    pub fn pin(&mut self, extent: Extent, pins: &mut ExtentPins) {
        let Some(&at) = self.by_extent.get(&extent) else { return };
        let slot = &mut self.slots[at as usize];
        slot.pins += 1;
        slot.used = true;
        pins.add(at);
    }

    pub fn unpin(&mut self, pins: &ExtentPins) {
        for at in pins.all() {
            self.slots[at as usize].pins -= 1;
        }
    }

    /// A write waits for its extents, behind all that wait already.
    pub fn wait(&mut self, slot: u32) {
        self.cold.push_back(slot);
    }

    /// The writes that wait, first come first.
    pub fn waiting(&self) -> &VecDeque<u32> {
        &self.cold
    }

    /// The write at this position of the line waits no more.
    pub fn goes_on(&mut self, at: usize) {
        self.cold.remove(at);
    }

    /// The first of the line, which waits no more.
    pub fn next_waiting(&mut self) -> Option<u32> {
        self.cold.pop_front()
    }

    /// The first of the line, if it found every slot of the log in use.
    pub fn crowded_out(&self) -> Option<u32> {
        self.cold.front().copied().filter(|_| self.crowded)
    }

    /// An update of the log is being written, or none can be any more.
    pub fn is_writing(&self) -> bool {
        self.in_flight > 0 || self.broken
    }

    /// Gives the extents of writes that wait, first come first, their slots; false if there are not enough. A write needs all of its
    /// own at one moment: what it has is not taken from it for one that came later, or they might take turns at it for ever.
    pub fn admit_line(
        &mut self,
        mut line: impl Iterator<Item = Vec<Extent>>,
        may_leave: impl Fn(Extent) -> bool,
    ) -> bool {
        let mut spoken_for = BTreeSet::<Extent>::new();
        let all = line.all(|extents| {
            spoken_for.extend(&extents);
            extents.iter().all(|extent| self.admit(*extent, |old| !spoken_for.contains(&old) && may_leave(old)))
        });
        self.crowded = !all;
        all
    }

    /// Gives the extent a slot, in place of one that `may_leave`; false if there is none.
    fn admit(&mut self, extent: Extent, may_leave: impl Fn(Extent) -> bool) -> bool {
        if self.by_extent.contains_key(&extent) {
            return true;
        }
        let Some(at) = self.victim(may_leave) else { return false };
        if let Some(old) = self.slots[at as usize].extent {
            self.by_extent.remove(&old);
        }
        self.slots[at as usize] = ActivitySlot { extent: Some(extent), pins: 0, used: true, durable: false };
        self.by_extent.insert(extent, at);
        self.changed.insert(at as usize / SLOTS_PER_CELL);
        true
    }

    /// Clock: the first slot behind the hand that was not used since the hand passed, is not held and may leave.
    fn victim(&mut self, may_leave: impl Fn(Extent) -> bool) -> Option<u32> {
        let count = self.slots.len() as u32;
        for _ in 0..2 * count {
            let at = self.hand;
            self.hand = (self.hand + 1) % count;
            let slot = &mut self.slots[at as usize];
            let Some(extent) = slot.extent else { return Some(at) };
            let passed_over = slot.pins > 0 || !slot.durable || core::mem::take(&mut slot.used);
            if !passed_over && may_leave(extent) {
                return Some(at);
            }
        }
        None
    }

    /// Extents that nobody holds, the next ones to leave first; at most `count`.
    pub fn coldest(&self, count: usize) -> impl Iterator<Item = Extent> + '_ {
        let length = self.slots.len();
        let in_turn = (0..length).map(move |i| &self.slots[(self.hand as usize + i) % length]);
        in_turn.filter(|slot| slot.pins == 0 && slot.durable).filter_map(|slot| slot.extent).take(count)
    }

    /// The cells to be written now: index and content. What they name is durable after [`ActivityLog::written`].
    pub fn begin_update(&mut self, head: CellHead, run: Incarnation, confirmed: Confirmed) -> Vec<(u64, Vec<u8>)> {
        let changed = core::mem::take(&mut self.changed);
        self.in_flight = changed.len();
        changed.into_iter().map(|index| self.encode(index, head, run, confirmed)).collect()
    }

    /// All cells, empty: nothing is hot in a run that begins.
    pub fn begin_reset(&mut self, head: CellHead, run: Incarnation, confirmed: Confirmed) -> Vec<(u64, Vec<u8>)> {
        self.changed = (0..self.updates.len()).collect();
        self.begin_update(head, run, confirmed)
    }

    fn encode(&mut self, index: usize, head: CellHead, run: Incarnation, confirmed: Confirmed) -> (u64, Vec<u8>) {
        self.updates[index] += 1;
        let from = index * SLOTS_PER_CELL;
        let slots = self.slots.iter().skip(from).take(SLOTS_PER_CELL).map(|slot| slot.extent);
        let body = encode_slots(run, confirmed, slots);
        let head = CellHead { update: self.updates[index], offset: index as u64 * CELL_BYTES, ..head };
        (head.slot_offset(), cell::encode(KIND, &head, &body))
    }

    /// One cell is durable, or could not be written; true when the whole update is durable, and what it names is hot. After a
    /// cell that was not nothing becomes hot any more: only a restart helps.
    pub fn written(&mut self, ok: bool) -> bool {
        self.in_flight -= 1;
        self.broken |= !ok;
        if self.in_flight > 0 || self.broken {
            return false;
        }
        // Nothing is admitted while an update is under way.
        debug_assert!(self.changed.is_empty());
        self.slots.iter_mut().for_each(|slot| slot.durable = slot.extent.is_some());
        true
    }

    /// A cell whose updates nothing may follow from yet: another is due.
    pub fn is_young(&self) -> bool {
        self.updates.iter().any(|update| *update < cell::RELIED_ON_FROM)
    }

    /// Takes over the update counts of what is on disk.
    pub fn found(&mut self, index: usize, update: u64) {
        self.updates[index] = update;
    }

    pub fn cells(&self) -> usize {
        self.updates.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Position, Seq};

    const CONFIG: ActivityConfig = ActivityConfig { extent_bytes: 1 << 20, extents: 4 };

    fn extent(number: u64) -> Extent {
        Extent { volume: VolumeId(0), number }
    }

    fn update(log: &mut ActivityLog) -> Vec<(u64, Vec<u8>)> {
        let cells = log.begin_update(CellHead::default(), Incarnation(1), Confirmed::default());
        cells.iter().for_each(|_| _ = log.written(true));
        cells
    }

    fn named(cells: &[(u64, Vec<u8>)]) -> Vec<u64> {
        let (_, body) = cell::decode(KIND, &cells[0].1[..cell::BYTES]).expect("whole");
        ActivityCell::decode(body).expect("ours").extents.iter().map(|e| e.number).collect()
    }

    // proves: rule 2
    #[test]
    fn an_extent_is_hot_when_the_log_names_it_on_disk() {
        let mut log = ActivityLog::new(CONFIG);
        assert!(log.admit(extent(7), |_| true));
        assert!(!log.is_hot(extent(7)));
        assert_eq!(named(&update(&mut log)), [7]);
        assert!(log.is_hot(extent(7)));
    }

    // proves: rule 2
    #[test]
    fn what_could_not_be_logged_is_not_hot() {
        let mut log = ActivityLog::new(CONFIG);
        assert!(log.admit(extent(7), |_| true));
        update(&mut log);
        assert!(log.admit(extent(8), |_| true));
        assert_eq!(log.begin_update(CellHead::default(), Incarnation(1), Confirmed::default()).len(), 1);
        assert!(!log.written(false));
        assert!(log.is_hot(extent(7)) && !log.is_hot(extent(8)));
    }

    // proves: rule 2
    #[test]
    fn the_longest_unused_extent_that_may_leave_leaves() {
        let mut log = ActivityLog::new(CONFIG);
        (0..4).for_each(|n| assert!(log.admit(extent(n), |_| true)));
        update(&mut log);
        let mut pins = ExtentPins::default();
        log.pin(extent(0), &mut pins);
        assert!(log.admit(extent(9), |e| e.number != 1), "0 is held, 1 must not leave");
        assert!(!log.is_hot(extent(2)) && log.is_hot(extent(1)) && log.is_hot(extent(0)));
        update(&mut log);
        assert!(!log.admit(extent(10), |_| false));
        log.unpin(&pins);
        assert!(log.admit(extent(10), |_| true));
    }

    /// Sixteen slots, and writes over several extents each that want more; each keeps its slots for some updates of the log.
    #[test]
    fn writes_over_several_extents_do_not_take_each_others_slots() {
        let mut log = ActivityLog::new(ActivityConfig { extents: 16, ..CONFIG });
        let (mut drawn, mut next) = (1u64, 0);
        let mut draw = |least: u64, most: u64| {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            least + (drawn >> 33) % (most - least + 1)
        };
        let (mut line, mut writing, mut first_waits) = (Vec::new(), Vec::new(), 0);
        for update_number in 0..50_000 {
            writing.retain(|(until, pins)| {
                let goes_on = *until > update_number;
                if !goes_on {
                    log.unpin(pins);
                }
                goes_on
            });
            while line.len() + writing.len() < 4 {
                let extents = draw(1, 8);
                line.push((next..next + extents).map(extent).collect::<Vec<_>>());
                next += extents;
            }
            log.admit_line(line.iter().cloned(), |_| true);
            update(&mut log);
            let first = line.first().cloned();
            line.retain(|extents| {
                let hot = extents.iter().all(|extent| log.is_hot(*extent));
                if hot {
                    let mut pins = ExtentPins::default();
                    extents.iter().for_each(|extent| log.pin(*extent, &mut pins));
                    writing.push((update_number + draw(1, 5), pins));
                }
                !hot
            });
            first_waits = if line.first() == first.as_ref() { first_waits + 1 } else { 0 };
            assert!(
                first_waits < 16,
                "update {update_number}: the first waits for ever, with {} behind it",
                line.len() - 1
            );
        }
    }

    #[test]
    fn a_cell_comes_back() {
        let slots = [Some(Extent { volume: VolumeId(255), number: 1 << 40 }), None, Some(extent(0))];
        let confirmed = Confirmed { position: Position { seq: Seq(7), ..Position::default() }, ..Confirmed::default() };
        let body = encode_slots(Incarnation(3), confirmed, slots.into_iter());
        let block = cell::encode(KIND, &CellHead::default(), &body);
        let (_, body) = cell::decode(KIND, &block[..cell::BYTES]).expect("whole");
        let back = ActivityCell::decode(body).expect("ours");
        assert_eq!((back.incarnation, back.confirmed), (Incarnation(3), confirmed));
        assert_eq!(back.extents, slots.into_iter().flatten().collect::<Vec<_>>());
    }

    /// A start went on after the first write of an empty log: a device that confirmed and never wrote it was believed (P9).
    #[test]
    fn a_log_is_young_until_each_cell_was_written_as_often_as_is_relied_on() {
        let mut log = ActivityLog::new(CONFIG);
        for update in 0..cell::RELIED_ON_FROM {
            (0..log.cells()).for_each(|index| log.found(index, update));
            assert!(log.is_young(), "{update}");
        }
        (0..log.cells()).for_each(|index| log.found(index, cell::RELIED_ON_FROM));
        assert!(!log.is_young());
    }
}
