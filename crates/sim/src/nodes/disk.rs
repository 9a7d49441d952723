//! A disk that forgets: what was not flushed survives a power loss sector by sector, or not, in any version written
//! since; what is in flight may be torn. A sector is atomic, nothing larger is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use engine::limits::REGION_BYTES;

use crate::payload::{SharedBytes, is_zero};
use crate::rng::Rng;
use crate::stamps::SECTOR;

const REGION: usize = REGION_BYTES as usize;

/// Whole sectors, one part after the other.
pub struct WrittenBytes {
    parts: Vec<SharedBytes>,
    bytes: usize,
}

impl WrittenBytes {
    pub fn new(parts: Vec<SharedBytes>) -> WrittenBytes {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let is_split = parts.iter().any(|part| !part.len().is_multiple_of(SECTOR));
        let parts = if is_split { vec![joined(&parts).into()] } else { parts };
        WrittenBytes { parts, bytes }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn sector(&self, index: usize) -> &[u8] {
        let mut at = index * SECTOR;
        for part in &self.parts {
            match part.get(at..at + SECTOR) {
                Some(sector) => return sector,
                None => at -= part.len(),
            }
        }
        panic!("it has {} bytes, and no sector {index}", self.bytes);
    }

    fn copy_to(&self, mut image: &mut [u8]) {
        for part in &self.parts {
            let (here, behind) = image.split_at_mut(part.len());
            here.copy_from_slice(part);
            image = behind;
        }
    }
}

impl From<Vec<u8>> for WrittenBytes {
    fn from(bytes: Vec<u8>) -> WrittenBytes {
        WrittenBytes::new(vec![bytes.into()])
    }
}

/// In one piece.
pub fn joined(parts: &[SharedBytes]) -> Vec<u8> {
    parts.iter().map(|part| &part[..]).collect::<Vec<_>>().concat()
}

/// A write of which a power loss may or may not keep any sector.
struct DiskWrite {
    id: u64,
    /// Its first sector.
    first: u64,
    data: WrittenBytes,
    /// Number in the order of completions; `None` while in flight.
    completed: Option<u64>,
    /// Sectors of it of which nothing is open any more, from `first` on; empty while that is so of none.
    closed: Vec<bool>,
}

impl DiskWrite {
    fn end(&self) -> u64 {
        self.first + (self.data.bytes / SECTOR) as u64
    }

    fn is_open(&self, sector: u64) -> bool {
        (self.first..self.end()).contains(&sector)
            && self.closed.get((sector - self.first) as usize).is_none_or(|closed| !closed)
    }

    fn close(&mut self, sector: u64) {
        if self.closed.is_empty() {
            self.closed = vec![false; self.data.bytes / SECTOR];
        }
        self.closed[(sector - self.first) as usize] = true;
    }

    fn close_all(&mut self, sectors: Range<u64>) {
        for sector in sectors.start.max(self.first)..sectors.end.min(self.end()) {
            self.close(sector);
        }
    }

    fn is_closed(&self) -> bool {
        !self.closed.is_empty() && self.closed.iter().all(|closed| *closed)
    }

    fn sector(&self, sector: u64) -> &[u8] {
        self.data.sector((sector - self.first) as usize)
    }

    /// Copies its open sectors to where they belong.
    fn copy_to(&self, image: &mut [u8]) {
        if self.closed.is_empty() {
            let at = self.first as usize * SECTOR;
            return self.data.copy_to(&mut image[at..at + self.data.bytes]);
        }
        for sector in (self.first..self.end()).filter(|sector| self.is_open(*sector)) {
            image[sector as usize * SECTOR..][..SECTOR].copy_from_slice(self.sector(sector));
        }
    }
}

/// Makes a page of a large record, by its number. Until something is written to a page it costs no memory.
pub type PageMaker = Rc<dyn Fn(usize) -> Vec<u8>>;

/// The content of a disk of which most pages are made when they are read.
struct MadePages {
    page_bytes: usize,
    pages: usize,
    make: PageMaker,
    /// Pages that stand on the disk as any other content does.
    stored: BTreeSet<usize>,
}

impl MadePages {
    fn pages_of(&self, bytes: &Range<usize>) -> Range<usize> {
        bytes.start / self.page_bytes..bytes.end.div_ceil(self.page_bytes).min(self.pages)
    }
}

pub struct SimDisk {
    made: Option<MadePages>,
    durable: Vec<u8>,
    /// What a read returns: durable content plus completed writes.
    view: Vec<u8>,
    /// What is not on stable storage, in the order in which it began.
    volatile: Vec<DiskWrite>,
    completions: u64,
    writes: u64,
    /// Sectors of which was decided ahead of a power loss what it keeps.
    decided: Vec<u64>,
    /// The last few durable writes: when, first sector, and the one behind the last.
    recent: VecDeque<(u64, u64, u64)>,
    /// Counts the changes of the view.
    revision: u64,
    /// The last change in each region of the view.
    revisions: Vec<u64>,
}

/// So many of them.
const RECENT: usize = 64;
/// Rot strikes one of so many.
const ROTTING: usize = 4;

impl SimDisk {
    pub fn new(content: Vec<u8>) -> SimDisk {
        assert!(content.len().is_multiple_of(SECTOR));
        let revisions = vec![0; content.len().div_ceil(REGION)];
        SimDisk { view: content.clone(), durable: content, revisions, ..SimDisk::blank(0) }
    }

    /// Zeroes, which cost nothing before they are written.
    pub fn blank(bytes: usize) -> SimDisk {
        assert!(bytes.is_multiple_of(SECTOR));
        SimDisk {
            made: None,
            view: vec![0; bytes],
            durable: vec![0; bytes],
            decided: Vec::new(),
            volatile: Vec::new(),
            completions: 0,
            writes: 0,
            recent: VecDeque::new(),
            revision: 0,
            revisions: vec![0; bytes.div_ceil(REGION)],
        }
    }

    /// So many pages, each made when it is read.
    pub fn made(page_bytes: usize, pages: usize, make: PageMaker) -> SimDisk {
        let made = MadePages { page_bytes, pages, make, stored: BTreeSet::new() };
        SimDisk { made: Some(made), ..SimDisk::blank(page_bytes * pages) }
    }

    /// All of it, which must not be made page by page.
    pub fn view(&self) -> &[u8] {
        assert!(self.made.is_none(), "most of this disk is not in memory");
        &self.view
    }

    /// What a read returns there, up to the end of the disk.
    pub fn read(&self, bytes: Range<usize>) -> Vec<u8> {
        let bytes = bytes.start..bytes.end.min(self.view.len());
        let Some(made) = &self.made else { return self.view[bytes].to_vec() };
        let mut content = self.view[bytes.clone()].to_vec();
        for page in made.pages_of(&bytes).filter(|page| !made.stored.contains(page)) {
            let from = page * made.page_bytes;
            let both = bytes.start.max(from)..bytes.end.min(from + made.page_bytes);
            let here = both.start - bytes.start..both.end - bytes.start;
            content[here].copy_from_slice(&(made.make)(page)[both.start - from..both.end - from]);
        }
        content
    }

    /// What is made there stands on the disk from now on.
    fn stores(&mut self, bytes: &Range<usize>) {
        let Some(made) = &mut self.made else { return };
        for page in made.pages_of(bytes) {
            if made.stored.insert(page) {
                let (from, content) = (page * made.page_bytes, (made.make)(page));
                self.view[from..from + made.page_bytes].copy_from_slice(&content);
                self.durable[from..from + made.page_bytes].copy_from_slice(&content);
            }
        }
    }

    /// A number that is another one whenever these bytes of the view may have changed.
    pub fn revision(&self, bytes: &Range<usize>) -> u64 {
        let regions = bytes.start / REGION..bytes.end.div_ceil(REGION);
        self.revisions[regions].iter().copied().max().unwrap_or(0)
    }

    /// Where a write stands among those that are not on stable storage.
    fn find(&self, write: u64) -> Option<usize> {
        self.volatile.binary_search_by_key(&write, |w| w.id).ok()
    }

    /// The view changes there.
    fn changes(&mut self, bytes: Range<usize>) {
        self.revision += 1;
        if !bytes.is_empty() {
            self.revisions[bytes.start / REGION..=(bytes.end - 1) / REGION].fill(self.revision);
        }
    }

    /// A write is under way: a power loss from now on may leave any of its sectors.
    pub fn begin_write(&mut self, offset: u64, data: impl Into<WrittenBytes>) -> u64 {
        let data = data.into();
        assert!(
            (offset as usize).is_multiple_of(SECTOR) && data.bytes.is_multiple_of(SECTOR),
            "writes are whole sectors"
        );
        assert!(offset as usize + data.bytes <= self.durable.len(), "a write past the end of the disk");
        self.stores(&(offset as usize..offset as usize + data.bytes));
        self.writes += 1;
        if data.bytes > 0 {
            let first = offset / SECTOR as u64;
            self.volatile.push(DiskWrite { id: self.writes, first, data, completed: None, closed: Vec::new() });
        }
        self.writes
    }

    /// The write is complete at `now`; with `durable` it is also on stable storage.
    pub fn end_write(&mut self, now: u64, write: u64, offset: u64, length: u64, durable: bool) {
        self.completions += 1;
        let sectors = offset / SECTOR as u64..(offset + length) / SECTOR as u64;
        if durable {
            self.recent.push_back((now, sectors.start, sectors.end));
            self.recent.drain(..self.recent.len().saturating_sub(RECENT));
        }
        let Some(at) = self.find(write) else { return };
        self.volatile[at].copy_to(&mut self.view);
        self.changes(offset as usize..(offset + length) as usize);
        if !durable {
            self.volatile[at].completed = Some(self.completions);
            return;
        }
        self.volatile.remove(at).copy_to(&mut self.durable);
        // What was complete before it is overwritten for good; what is in flight may still land on it.
        let completed = self.volatile.iter_mut().filter(|w| w.completed.is_some());
        for over in completed.filter(|w| w.first < sectors.end && sectors.start < w.end()) {
            over.close_all(sectors.clone());
        }
        self.volatile.retain(|w| !w.is_closed());
    }

    /// The write failed half-way: some sectors hold it, some do not. `lands`: asked for each.
    pub fn fail_write(&mut self, write: u64, offset: u64, length: u64, mut lands: impl FnMut() -> bool) {
        self.completions += 1;
        let Some(at) = self.find(write) else { return };
        let failed = &mut self.volatile[at];
        failed.completed = Some(self.completions);
        for sector in failed.first..failed.end() {
            if failed.is_open(sector) && !lands() {
                failed.close(sector);
            }
        }
        failed.copy_to(&mut self.view);
        if failed.is_closed() {
            self.volatile.remove(at);
        }
        self.changes(offset as usize..(offset + length) as usize);
    }

    /// Sectors that no flush or durable write covers yet, in order.
    pub fn undecided(&self) -> Vec<u64> {
        self.versions().into_keys().collect()
    }

    /// A power loss leaves all of it as it is.
    pub fn is_settled(&self) -> bool {
        self.volatile.is_empty() && self.decided.is_empty()
    }

    /// The writes that a power loss may leave in each sector, oldest first.
    fn versions(&self) -> BTreeMap<u64, Vec<&DiskWrite>> {
        let mut versions: BTreeMap<u64, Vec<&DiskWrite>> = BTreeMap::new();
        for write in &self.volatile {
            for sector in (write.first..write.end()).filter(|sector| write.is_open(*sector)) {
                versions.entry(sector).or_default().push(write);
            }
        }
        versions
    }

    /// Decides of each undecided sector, in order, which of its versions is durable; none of them: the sector stays as it was.
    fn decide(&mut self, mut kept: impl FnMut(u64, &[&DiskWrite]) -> Option<usize>) {
        let mut durable = std::mem::take(&mut self.durable);
        for (sector, versions) in self.versions() {
            if let Some(version) = kept(sector, &versions).map(|index| versions[index]) {
                durable[sector as usize * SECTOR..][..SECTOR].copy_from_slice(version.sector(sector));
            }
        }
        self.durable = durable;
        self.volatile.clear();
    }

    /// Decides, ahead of a power loss, which undecided sectors it will keep in their newest version; the others it will
    /// leave as they were.
    pub fn will_keep(&mut self, keep: impl Fn(u64) -> bool) {
        self.decided.extend(self.undecided());
        self.decide(|sector, versions| keep(sector).then(|| versions.len() - 1));
    }

    /// Where a flush begins, in completions: what is complete now will be durable when it ends.
    pub fn begin_flush(&self) -> u64 {
        self.completions
    }

    pub fn end_flush(&mut self, completions: u64) {
        let covers = |w: &DiskWrite| w.completed.is_some_and(|c| c <= completions);
        let mut covered: Vec<&DiskWrite> = self.volatile.iter().filter(|w| covers(w)).collect();
        covered.sort_by_key(|w| w.completed);
        covered.iter().for_each(|w| w.copy_to(&mut self.durable));
        self.volatile.retain(|w| !covers(w));
    }

    /// The flush failed: what it was to make durable stays in the device's cache, or is lost there and then.
    pub fn fail_flush(&mut self, completions: u64, rng: &mut Rng) {
        let lost: Vec<u64> = self.undecided().into_iter().filter(|_| rng.percent(50)).collect();
        for sector in lost {
            let covered = |w: &&mut DiskWrite| w.completed.is_some_and(|c| c <= completions);
            for write in self.volatile.iter_mut().filter(|w| w.is_open(sector)).filter(covered) {
                write.close(sector);
            }
            let at = sector as usize * SECTOR;
            let completed = self.volatile.iter().filter(|w| w.is_open(sector) && w.completed.is_some());
            let seen = completed.max_by_key(|w| w.completed).map(|w| w.sector(sector));
            self.view[at..at + SECTOR].copy_from_slice(seen.unwrap_or(&self.durable[at..at + SECTOR]));
            self.changes(at..at + SECTOR);
        }
        self.volatile.retain(|w| !w.is_closed());
    }

    /// The process dies, the machine lives: completed writes stay in the page cache, in flight ones land or not.
    pub fn kill(&mut self, rng: &mut Rng) {
        let flying: BTreeMap<u64, Vec<u64>> = self
            .versions()
            .into_iter()
            .map(|(sector, versions)| {
                (sector, versions.into_iter().filter(|w| w.completed.is_none()).map(|w| w.id).collect())
            })
            .collect();
        let lost: Vec<(u64, u64)> = flying
            .into_iter()
            .flat_map(|(sector, writes)| writes.into_iter().map(move |write| (sector, write)))
            .filter(|_| !rng.percent(50))
            .collect();
        for (sector, write) in lost {
            self.volatile.iter_mut().filter(|w| w.id == write).for_each(|w| w.close(sector));
        }
        for at in 0..self.volatile.len() {
            let write = &mut self.volatile[at];
            if write.completed.is_some() {
                continue;
            }
            self.completions += 1;
            write.completed = Some(self.completions);
            write.copy_to(&mut self.view);
            let bytes = write.first as usize * SECTOR..write.end() as usize * SECTOR;
            self.changes(bytes);
        }
        self.volatile.retain(|w| !w.is_closed());
    }

    /// Power loss: every sector keeps its durable content or any one version written since. Or the device was going
    /// through each write in order, and all of it that is kept is its beginning, or its end.
    pub fn lose_power(&mut self, rng: &mut Rng) {
        // Elsewhere a reader sees what is durable.
        let mut undecided = std::mem::take(&mut self.decided);
        undecided.extend(self.undecided());
        match rng.below(3) {
            0 => self.cut_writes(|sector, cut| sector < cut, rng),
            1 => self.cut_writes(|sector, cut| sector >= cut, rng),
            _ => self.decide(|_, versions| {
                let choice = rng.below(versions.len() as u64 + 1) as usize;
                (choice < versions.len()).then_some(choice)
            }),
        }
        for sector in undecided {
            let at = sector as usize * SECTOR;
            self.view[at..at + SECTOR].copy_from_slice(&self.durable[at..at + SECTOR]);
            self.changes(at..at + SECTOR);
        }
    }

    /// Decides for each undecided write where it was cut; of each sector the newest version that is kept is durable.
    fn cut_writes(&mut self, kept: impl Fn(u64, u64) -> bool, rng: &mut Rng) {
        let snapshots: BTreeMap<u64, u64> = self
            .volatile
            .iter()
            .map(|w| {
                let open = || (w.first..w.end()).filter(|sector| w.is_open(*sector));
                let (first, last) = (open().next().expect("one is open"), open().next_back().expect("one is open"));
                (w.id, rng.between(first, last + 1))
            })
            .collect();
        self.decide(|sector, versions| versions.iter().rposition(|w| kept(sector, snapshots[&w.id])));
    }

    /// Nothing that it holds is whole any more, and nothing that has rotted before is again.
    pub fn rot_all(&mut self) {
        assert!(self.made.is_none(), "most of this disk is not in memory");
        for sector in self.durable.chunks_mut(SECTOR).filter(|sector| !is_zero(sector)) {
            sector[7] = sector[7].wrapping_add(1);
        }
        self.view.clone_from(&self.durable);
        self.changes(0..self.view.len());
    }

    /// Rot: one bit of a sector that was written lately, but not since `before`, turns over while nobody looks. False: there
    /// is none.
    pub fn rot(&mut self, before: u64, rng: &mut Rng) -> bool {
        let young =
            |sector: u64| self.recent.iter().any(|(at, from, to)| *at >= before && (*from..*to).contains(&sector));
        let old = self.recent.iter().rev().filter(|(at, ..)| *at < before).take(ROTTING);
        let sectors: Vec<usize> = old
            .flat_map(|(_, from, to)| *from..*to)
            .filter(|sector| !young(*sector))
            .map(|sector| sector as usize)
            .collect();
        if sectors.is_empty() {
            return false;
        }
        let at = *rng.pick(&sectors) * SECTOR + rng.below(SECTOR as u64) as usize;
        let bit = 1 << rng.below(8);
        self.durable[at] ^= bit;
        self.view[at] ^= bit;
        self.changes(at..at + 1);
        true
    }

    /// What was written durably last begins so, as far as the disk goes.
    pub fn latest(&self, length: usize) -> Option<Vec<u8>> {
        let at = self.recent.back()?.1 as usize * SECTOR;
        self.durable.get(at..at + length).map(<[u8]>::to_vec)
    }

    /// A write that was meant for another place lands here.
    pub fn goes_astray(&mut self, at: usize, data: &[u8]) {
        self.stores(&(at..at + data.len()));
        self.durable[at..at + data.len()].copy_from_slice(data);
        self.view[at..at + data.len()].copy_from_slice(data);
        self.changes(at..at + data.len());
    }

    /// The device is enlarged.
    pub fn grow(&mut self, more: usize, filling: u8) {
        let bytes = self.durable.len() + more;
        self.durable.resize(bytes, filling);
        self.view.resize(bytes, filling);
        self.revisions.resize(bytes.div_ceil(REGION), 0);
    }

    /// In bytes.
    pub fn size(&self) -> usize {
        self.durable.len()
    }

    /// What a power loss at this moment would at least leave.
    pub fn durable(&self) -> &[u8] {
        assert!(self.made.is_none(), "most of this disk is not in memory");
        &self.durable
    }

    /// All of it is replaced, while nobody uses it.
    pub fn restore(&mut self, content: Vec<u8>) {
        let revision = self.revision + 1;
        *self = SimDisk { revision, ..SimDisk::new(content) };
        self.revisions.fill(revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_of_parts_is_their_bytes_in_order_whole_and_by_sectors() {
        for lengths in [vec![SECTOR, 0, 2 * SECTOR], vec![100, 3 * SECTOR - 100], vec![3 * SECTOR]] {
            let mut bytes = 0u8..;
            let parts = lengths.iter().map(|length| vec![bytes.next().expect("few parts"); *length]);
            let parts: Vec<SharedBytes> = parts.map(SharedBytes::from).collect();
            let expected = joined(&parts);
            let written = WrittenBytes::new(parts);
            let mut image = vec![0xff; 3 * SECTOR];
            written.copy_to(&mut image);
            assert_eq!((written.bytes(), &image), (3 * SECTOR as u64, &expected));
            let sectors: Vec<&[u8]> = (0..3).map(|index| written.sector(index)).collect();
            assert_eq!(sectors.concat(), expected);
        }
    }

    #[test]
    fn flushed_and_durable_writes_survive_power_loss_whatever_else_does() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut disk = SimDisk::new(vec![0; 4 * SECTOR]);
            let a = disk.begin_write(0, vec![1; 2 * SECTOR]);
            disk.end_write(0, a, 0, 2 * SECTOR as u64, false);
            let completions = disk.begin_flush();
            let b = disk.begin_write(0, vec![2; SECTOR]);
            disk.end_write(0, b, 0, SECTOR as u64, false);
            disk.end_flush(completions);
            let c = disk.begin_write(1024, vec![3; SECTOR]);
            disk.end_write(0, c, 1024, SECTOR as u64, true);
            disk.lose_power(&mut rng);
            assert!(matches!(disk.view()[0], 1 | 2), "flushed, or the newer one");
            assert_eq!((disk.view()[512], disk.view()[1024]), (1, 3));
        }
    }
}
