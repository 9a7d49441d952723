//! A group goes on with other volumes (decision 68): its records, rewritten for another order of names between a clean stop and the next
//! start. Nothing here touches a disk: whoever converts reads the old files and writes the new ones beside them.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::formats::bitmap::{self, BitmapCell, REGIONS_PER_CELL};
use crate::formats::cell::{self, CELL_BYTES, CellHead, RELIED_ON_FROM, Rejected};
use crate::formats::identity::{Confirmed, Role};
use crate::formats::journal::{BatchOf, INDEX_BYTES, JournalEntry, JournalIndex, RecordKind};
use crate::formats::superblock::{self, JournalHead, Superblock};
use crate::ids::{Seq, VolumeId, VolumeSet};
use crate::injected_fault::{Fault, injected};

/// Which volume of before each volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMap {
    /// For each volume its position of before; `None`: it came.
    from: Vec<Option<VolumeId>>,
    /// Those of the ones that came that are volumes of before under new names. A node knows them by its devices alone, and nobody compares
    /// that with what its peer calls so.
    renamed: VolumeSet,
    /// For each of those its position of before.
    was: Vec<Option<VolumeId>>,
}

/// Why a group at rest cannot go on with other volumes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Its last stop was not clean.
    Unclean,
    /// It is being rolled back, or could be: a sync is under way.
    SyncUnderWay,
    /// Its last writes as a primary may be missing.
    Unverified,
    /// It handed over, and nobody was promoted.
    HandedOver,
    /// None of its volumes stays.
    NothingStays,
    /// Of its volumes none would be part of the order.
    AllAside,
    /// The journal holds what is not on the volumes yet.
    Unapplied,
    /// The journal is damaged, or of another version.
    Journal,
    /// The bitmap cannot be read as it is: volumes were enlarged, and no start has recorded that; or it is of another version or group.
    Bitmap,
}

impl VolumeMap {
    /// For each volume its position of before, or `None` where it came.
    pub fn new(from: Vec<Option<VolumeId>>) -> VolumeMap {
        VolumeMap { was: vec![None; from.len()], from, renamed: VolumeSet::default() }
    }

    /// The map between two lists of names, each in its order, and which of those of now are volumes of before under new names. A volume keeps its
    /// name; and a name that came on the device of one that left is that volume. `is_its_device`: whether the volume of before at the first
    /// position is on record with the device that the one of now at the second position has.
    pub fn of_names<N: PartialEq>(
        before: &[N],
        now: &[N],
        is_its_device: impl Fn(usize, usize) -> bool,
    ) -> (VolumeMap, VolumeSet) {
        let mut left: Vec<usize> = (0..before.len()).filter(|at| !now.contains(&before[*at])).collect();
        let mut renamed = VolumeSet::default();
        let mut one = |(at, name): (usize, &N)| {
            if let Some(same) = before.iter().position(|before| before == name) {
                return Some(VolumeId(same as u16));
            }
            let found = left.iter().position(|left| is_its_device(*left, at))?;
            renamed.insert(VolumeId(at as u16));
            Some(VolumeId(left.remove(found) as u16))
        };
        let from = now.iter().enumerate().map(&mut one).collect();
        (VolumeMap::new(from), renamed)
    }

    /// The same with `renamed`, volumes of before under new names. They come as others do: names are all that two nodes compare, so a node that
    /// exchanged them, step by step, would meet its peer with one volume under the other's name.
    pub fn with_renamed(mut self, renamed: &VolumeSet) -> VolumeMap {
        if injected(Fault::RenamedBelieved) {
            return self;
        }
        for (at, from) in self.from.iter_mut().enumerate().filter(|(at, _)| renamed.contains(VolumeId(*at as u16))) {
            self.was[at] = from.take();
        }
        self.renamed = *renamed;
        self
    }

    /// For each volume its position of before.
    pub fn positions(&self) -> impl Iterator<Item = Option<VolumeId>> + '_ {
        self.from.iter().copied()
    }

    /// What a volume of before is now; `None`: it left.
    fn to(&self, before: VolumeId) -> Option<VolumeId> {
        self.from.iter().position(|from| *from == Some(before)).map(|at| VolumeId(at as u16))
    }

    fn came(&self) -> impl Iterator<Item = VolumeId> + '_ {
        (0..).map(VolumeId).zip(&self.from).filter(|(_, from)| from.is_none()).map(|(id, _)| id)
    }

    fn set(&self, before: &VolumeSet) -> VolumeSet {
        let mut set = VolumeSet::default();
        before.iter().filter_map(|id| self.to(id)).for_each(|id| _ = set.insert(id));
        set
    }

    /// The same of what stands in them: it stays what it is under a new name.
    fn contents(&self, before: &VolumeSet) -> VolumeSet {
        let mut set = self.set(before);
        let was = (0..).map(VolumeId).zip(&self.was);
        was.filter(|(_, was)| was.is_some_and(|was| before.contains(was))).for_each(|(id, _)| _ = set.insert(id));
        set
    }

    fn list<T: Copy>(&self, before: &[T], new: impl Fn(usize) -> T) -> Vec<T> {
        let one = |(at, from): (usize, &Option<VolumeId>)| {
            from.and_then(|from| before.get(usize::from(from.0)).copied()).unwrap_or_else(|| new(at))
        };
        self.from.iter().enumerate().map(one).collect()
    }
}

/// Whether what stands on a device that comes to a group counts under this role: `had` is the one that this node had where the device was
/// before. As a secondary it held the other node's content, maybe an older one.
pub fn counts_under(role: Role, had: Role) -> bool {
    role == had || injected(Fault::MovedInOtherRole)
}

// ---- the superblock ------------------------------------------------------------------------------------------------------

/// What of the superblock speaks against a conversion. `is_running`: the group has not stopped yet, so its stop is still to be clean.
pub fn obstacle(sb: &Superblock, map: &VolumeMap, is_running: bool) -> Option<Obstacle> {
    let stays = map.from.iter().any(Option::is_some) || !map.renamed.is_empty();
    let aside = map.set(&sb.aside);
    // One that comes is no part of the order either, at first. Of a group whose volumes all have new names it is the same, but no other way
    // would lead there.
    let is_aside =
        |(from, id): (&Option<VolumeId>, VolumeId)| aside.contains(id) || from.is_none() && !map.renamed.contains(id);
    let all_aside = map.from.iter().zip((0..).map(VolumeId)).all(is_aside);
    let checks = [
        (!stays, Obstacle::NothingStays),
        (is_in_sync(sb), Obstacle::SyncUnderWay),
        (sb.needs_verification(), Obstacle::Unverified),
        (sb.identity.role == Role::Secondary && sb.identity.handed_over, Obstacle::HandedOver),
        (all_aside, Obstacle::AllAside),
        (!sb.clean && !is_running, Obstacle::Unclean),
    ];
    checks.into_iter().find_map(|(holds, obstacle)| holds.then_some(obstacle))
}

/// What the undo store holds is of volumes by their positions of before.
fn is_in_sync(sb: &Superblock) -> bool {
    let is_in_sync = sb.rolling_back || sb.rollback_point.id != 0 || sb.identity.inconsistent;
    is_in_sync && !injected(Fault::ChangedMidSync)
}

/// What a conversion costs that cannot be had back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Bits of some volume are not known.
    pub bits: bool,
    /// Content that was kept for a primary that loses its power is a number without content now.
    pub kept: bool,
}

/// What the group is on record as with its new volumes. `device_bytes`: what each of their devices holds.
pub fn converted(sb: &Superblock, map: &VolumeMap, device_bytes: &[u64], lost: Lost) -> Superblock {
    let mut new = sb.clone();
    let is_secondary = sb.identity.role == Role::Secondary;
    // A secondary learns the size of one that came from the primary that fills it.
    let came_bytes = |at: usize| match map.was[at].and_then(|was| sb.sizes.get(usize::from(was.0))) {
        Some(bytes) => *bytes,
        None if is_secondary => 0,
        None => device_bytes[at],
    };
    // Of one without sizes or flush points these say nothing.
    new.sizes = if sb.sizes.is_empty() { Vec::new() } else { map.list(&sb.sizes, came_bytes) };
    new.flushed = map.list(&sb.flushed, |_| Seq::NONE);
    (new.aside, new.sync_aside) = (map.set(&sb.aside), map.set(&sb.sync_aside));
    (new.detached, new.unfilled) = (map.set(&sb.detached), map.set(&sb.unfilled));
    // Batches name volumes by their positions of before.
    new.queue_logged = false;
    (new.renamed, new.own_history) = (map.set(&sb.renamed), map.contents(&sb.own_history));
    // Whose content counts of one that came, somebody has to say: until then neither node overwrites the other's.
    if !injected(Fault::CameInOrder) {
        map.came().for_each(|id| _ = new.aside.insert(id));
    }
    if is_secondary {
        for id in map.came() {
            new.sync_aside.insert(id);
            // What had another name here is still what it was: a promotion may have to do with it.
            let was_filled =
                map.renamed.contains(id) && map.was[usize::from(id.0)].is_some_and(|was| !sb.unfilled.contains(was));
            if injected(Fault::CameFilled) {
                continue;
            }
            let set = if was_filled { &mut new.renamed } else { &mut new.unfilled };
            set.insert(id);
        }
        if lost.kept {
            // Nobody knows what a primary lacks that loses its power now.
            new.given_up = new.given_up.max(sb.identity.position.seq);
        }
    }
    new.compare |= lost.bits || map.came().next().is_some();
    new.update += 2;
    new
}

/// The file of a superblock, with the last two updates the same.
pub fn superblock_file(sb: &Superblock) -> Vec<u8> {
    let mut file = vec![0; superblock::FILE_BYTES as usize];
    for update in [sb.update - 1, sb.update] {
        let sb = Superblock { update, ..sb.clone() };
        let (at, image) = (sb.slot_offset() as usize, sb.encode());
        file[at..at + image.len()].copy_from_slice(&image);
    }
    file
}

// ---- the bitmap ----------------------------------------------------------------------------------------------------------

/// Where the cells of a bitmap stand, whatever the sizes of volumes it was laid out for.
#[derive(Debug, Default)]
pub struct FoundCells {
    /// By volume and cell; after a growth that was cut short, a cell may stand in two places.
    places: BTreeMap<(VolumeId, u64), Vec<usize>>,
    device_bytes: BTreeMap<VolumeId, u64>,
}

/// A cell of the new bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCell {
    volume: VolumeId,
    cell: u64,
    device_bytes: u64,
    /// Where its bits stand in the old file; none: all of it is dirty.
    pub from: Vec<usize>,
}

impl FoundCells {
    /// Takes up the [`CELL_BYTES`] of the old file at this position. A cell that is lost is missed when the new file is planned.
    ///
    /// # Errors
    /// Its bitmap cannot be converted.
    pub fn take(&mut self, tag: u64, index: usize, bytes: &[u8]) -> Result<(), Obstacle> {
        match read_cell(tag, index, bytes) {
            Ok(found) => {
                if *self.device_bytes.entry(found.volume).or_insert(found.volume_bytes) != found.volume_bytes {
                    return Err(Obstacle::Bitmap);
                }
                let cell = found.first_region / REGIONS_PER_CELL;
                self.places.entry((found.volume, cell)).or_default().push(index);
                Ok(())
            }
            Err(Rejected::VersionUnknown(_) | Rejected::Foreign) => Err(Obstacle::Bitmap),
            Err(_) => Ok(()),
        }
    }

    /// The cells of the new file in their order. `device_bytes`: what the devices of the new volumes hold now; of one that stays, what its cells
    /// say counts, so that the next start finds what has become of it.
    pub fn plan(&self, map: &VolumeMap, device_bytes: &[u64]) -> Vec<PlannedCell> {
        let mut planned = Vec::new();
        for ((volume, from), now_bytes) in (0..).map(VolumeId).zip(&map.from).zip(device_bytes) {
            let recorded = from.and_then(|from| self.device_bytes.get(&from).copied());
            let device_bytes = recorded.unwrap_or(*now_bytes);
            let from = if injected(Fault::BitsStayInPlace) { from.map(|_| volume) } else { *from };
            planned.extend((0..bitmap::cells(device_bytes)).map(|cell| {
                let from = from.and_then(|from| self.places.get(&(from, cell)).cloned()).unwrap_or_default();
                PlannedCell { volume, cell, device_bytes, from }
            }));
        }
        planned
    }
}

impl PlannedCell {
    /// Its bytes at `index` in the new file. `old`: what stands in the places that it names; `sb` is the new one.
    ///
    /// # Errors
    /// One of these is none of the cells that were found.
    pub fn image(&self, sb: &Superblock, index: usize, old: &[Vec<u8>]) -> Result<Vec<u8>, Obstacle> {
        let is_all_dirty = old.is_empty() && !injected(Fault::CameClean);
        let mut words = vec![if is_all_dirty { u64::MAX } else { 0 }; (REGIONS_PER_CELL / 64) as usize];
        if is_all_dirty {
            self.clip(&mut words);
        }
        let mut confirmed = Confirmed::default();
        for (at, bytes) in self.from.iter().zip(old) {
            let found = read_cell(sb.tag, *at, bytes).map_err(|_| Obstacle::Bitmap)?;
            words.iter_mut().zip(&found.words).for_each(|(word, more)| *word |= more);
            confirmed = confirmed.max(found.confirmed);
        }
        let body = BitmapCell::encode(self.volume, self.device_bytes, self.cell * REGIONS_PER_CELL, confirmed, &words);
        let head = |update| CellHead {
            node: sb.node,
            peer: sb.peer,
            flags: 0,
            update,
            tag: sb.tag,
            offset: index as u64 * CELL_BYTES,
        };
        // Both slots, the later one first: its number is even.
        let slots = [RELIED_ON_FROM + 1, RELIED_ON_FROM].map(|update| cell::encode(bitmap::KIND, &head(update), &body));
        Ok(slots.concat())
    }

    /// Bits behind the volume's end say nothing.
    fn clip(&self, words: &mut [u64]) {
        let regions = bitmap::regions(self.device_bytes).saturating_sub(self.cell * REGIONS_PER_CELL);
        for (word, first) in words.iter_mut().zip((0..).step_by(64)) {
            *word = match regions.saturating_sub(first) {
                0 => 0,
                left @ 1..64 => u64::MAX >> (64 - left),
                _ => u64::MAX,
            };
        }
    }
}

fn read_cell(tag: u64, index: usize, bytes: &[u8]) -> Result<BitmapCell, Rejected> {
    let choice = cell::choose(bitmap::KIND, tag, index as u64 * CELL_BYTES, bytes);
    let found = choice.newest.and_then(|(_, body)| BitmapCell::decode(body))?;
    // One that may be older than what was lost is no better than none.
    if choice.ambiguous { Err(Rejected::Damaged) } else { Ok(found) }
}

// ---- the journal ---------------------------------------------------------------------------------------------------------

/// Walks over the batches that a secondary's journal keeps for its primary, as a replay does.
#[derive(Debug)]
pub struct KeptBatches<'a> {
    sb: &'a Superblock,
    ring_bytes: u64,
    next: JournalHead,
    /// The end of the ring was met, and its start is looked at.
    wrapped: bool,
    last: Option<Seq>,
    gives_up: bool,
}

impl<'a> KeptBatches<'a> {
    /// Those of a group that is at rest, in a ring of so many bytes.
    pub fn new(sb: &'a Superblock, ring_bytes: u64) -> KeptBatches<'a> {
        KeptBatches { sb, ring_bytes, next: sb.journal, wrapped: false, last: None, gives_up: false }
    }

    /// Where the next index block may stand; `None`: there is no further batch.
    pub fn next_offset(&mut self) -> Option<u64> {
        if self.sb.identity.role == Role::Primary {
            return None;
        }
        if !self.wrapped && self.next.offset + INDEX_BYTES as u64 > self.ring_bytes {
            self.wrapped = true;
        }
        Some(if self.wrapped { 0 } else { self.next.offset })
    }

    /// Takes up the block that stands there. `Some`: the index block to be written in its place. `None`: none follows there; the walk is over
    /// unless [`KeptBatches::looks_again`].
    ///
    /// # Errors
    /// The journal cannot be converted.
    pub fn take(&mut self, block: &[u8], map: &VolumeMap) -> Result<Option<Vec<u8>>, Obstacle> {
        let offset = if self.wrapped { 0 } else { self.next.offset };
        let Some(index) = JournalIndex::decode(BatchOf::Journal, block).filter(|index| self.follows(index, offset))
        else {
            let other = JournalIndex::of_other_version(BatchOf::Journal, block);
            return match other.is_some_and(|other| other.tag == self.sb.tag) {
                true => Err(Obstacle::Journal),
                false => Ok(None),
            };
        };
        if index.last() > self.sb.identity.position.seq {
            return Err(Obstacle::Unapplied);
        }
        self.last = Some(index.last());
        self.next = JournalHead { offset: offset + u64::from(index.bytes), ordinal: index.ordinal + 1 };
        self.wrapped = false;
        let has_content = |entry: &JournalEntry| matches!(entry.kind, RecordKind::Data | RecordKind::Zero);
        self.gives_up |= index.entries.iter().any(|entry| has_content(entry) && map.to(entry.volume).is_none());
        let entries = index.entries.iter().map(|entry| mapped(entry, map)).collect();
        Ok(Some(JournalIndex { entries, ..index }.encode(BatchOf::Journal)))
    }

    /// Of what it walked over, content of a volume that left is kept no more.
    pub fn gives_up(&self) -> bool {
        self.gives_up && !injected(Fault::LeftForgetsKept)
    }

    /// After nothing followed: whether the ring's start is to be looked at as well.
    pub fn looks_again(&mut self) -> bool {
        let again = !self.wrapped && self.next.offset != 0;
        self.wrapped = true;
        again
    }

    /// All that was durable when the group stopped was there.
    ///
    /// # Errors
    /// It was not.
    pub fn end(&self) -> Result<(), Obstacle> {
        let is_whole = self.sb.identity.role == Role::Primary || self.next.ordinal >= self.sb.confirmed_ordinal;
        is_whole.then_some(()).ok_or(Obstacle::Journal)
    }

    fn follows(&self, index: &JournalIndex, offset: u64) -> bool {
        let (identity, run) = (&self.sb.identity, self.sb.identity.incarnation);
        let is_ours = index.boot == run || index.boot < run && index.ordinal < self.sb.own_from_ordinal;
        index.tag == self.sb.tag
            && index.ring_offset == offset
            && index.ordinal == self.next.ordinal
            && is_ours
            && index.generation == identity.position.generation
            && index.incarnation == identity.position.incarnation
            && index.snapshot == 0
            && offset + u64::from(index.bytes) <= self.ring_bytes
            && index.is_in_order()
            && self.last.is_none_or(|last| index.first == last.next())
    }
}

/// What is of a volume that left keeps its number, and nothing else.
fn mapped(entry: &JournalEntry, map: &VolumeMap) -> JournalEntry {
    if injected(Fault::KeptOfAnother) {
        return JournalEntry { volume: VolumeId(entry.volume.0.min(map.from.len() as u16 - 1)), ..*entry };
    }
    let names_none = match entry.kind {
        RecordKind::Void => !entry.sets_aside,
        RecordKind::SyncEnd => true,
        RecordKind::Data | RecordKind::Zero => false,
    };
    match map.to(entry.volume) {
        Some(volume) => JournalEntry { volume, ..*entry },
        None if names_none => JournalEntry { volume: VolumeId(0), ..*entry },
        None => JournalEntry {
            kind: RecordKind::Void,
            no_hole: false,
            sets_aside: false,
            mark: false,
            volume: VolumeId(0),
            offset: 0,
            length: 0,
            payload_at: 0,
            payload_bytes: 0,
            payload_crc: 0,
            ..*entry
        },
    }
}
