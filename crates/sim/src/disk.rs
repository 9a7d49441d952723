//! A disk that forgets: what was not flushed survives a power loss sector by sector, or not, in any version written
//! since; what is in flight may be torn. A sector is atomic, nothing larger is.

use std::collections::{BTreeMap, VecDeque};

use crate::rng::Rng;

pub const SECTOR: usize = 512;
pub type Sector = [u8; SECTOR];

/// A version of a sector that a power loss may or may not keep.
struct Version {
    /// Which write it came from.
    write: u64,
    /// Place in the order of completions; `None` while in flight.
    completed: Option<u64>,
    data: Box<Sector>,
}

pub struct Disk {
    durable: Vec<u8>,
    /// What a read returns: durable content plus completed writes.
    view: Vec<u8>,
    volatile: BTreeMap<u64, Vec<Version>>,
    completions: u64,
    writes: u64,
    /// Sectors of which was decided ahead of a power loss what it keeps.
    decided: Vec<u64>,
    /// The last few durable writes: when, first sector, and the one behind the last.
    recent: VecDeque<(u64, u64, u64)>,
}

/// So many of them.
const RECENT: usize = 64;
/// Rot strikes one of so many.
const ROTTING: usize = 4;

impl Disk {
    pub fn new(content: Vec<u8>) -> Disk {
        assert!(content.len().is_multiple_of(SECTOR));
        Disk { view: content.clone(), durable: content, ..Disk::blank(0) }
    }

    /// Zeroes, which cost nothing before they are written.
    pub fn blank(bytes: usize) -> Disk {
        assert!(bytes.is_multiple_of(SECTOR));
        Disk {
            view: vec![0; bytes],
            durable: vec![0; bytes],
            decided: Vec::new(),
            volatile: BTreeMap::new(),
            completions: 0,
            writes: 0,
            recent: VecDeque::new(),
        }
    }

    pub fn view(&self) -> &[u8] {
        &self.view
    }

    /// A write is under way: a power loss from now on may leave any of its sectors.
    pub fn begin_write(&mut self, offset: u64, data: &[u8]) -> u64 {
        assert!(
            (offset as usize).is_multiple_of(SECTOR) && data.len().is_multiple_of(SECTOR),
            "writes are whole sectors"
        );
        assert!(offset as usize + data.len() <= self.durable.len(), "a write past the end of the disk");
        self.writes += 1;
        for (i, chunk) in data.chunks(SECTOR).enumerate() {
            let sector = offset / SECTOR as u64 + i as u64;
            let data = Box::new(Sector::try_from(chunk).expect("whole sectors"));
            self.volatile.entry(sector).or_default().push(Version { write: self.writes, completed: None, data });
        }
        self.writes
    }

    /// The write is complete at `now`; with `durable` it is also on stable storage.
    pub fn end_write(&mut self, now: u64, write: u64, offset: u64, length: u64, durable: bool) {
        self.completions += 1;
        if durable {
            self.recent.push_back((now, offset / SECTOR as u64, (offset + length) / SECTOR as u64));
            self.recent.drain(..self.recent.len().saturating_sub(RECENT));
        }
        for sector in offset / SECTOR as u64..(offset + length) / SECTOR as u64 {
            let Some(versions) = self.volatile.get_mut(&sector) else { continue };
            let Some(version) = versions.iter_mut().find(|v| v.write == write) else { continue };
            version.completed = Some(self.completions);
            let at = sector as usize * SECTOR;
            self.view[at..at + SECTOR].copy_from_slice(&version.data[..]);
            if durable {
                self.durable[at..at + SECTOR].copy_from_slice(&version.data[..]);
                versions.retain(|v| v.completed.is_none());
                if versions.is_empty() {
                    self.volatile.remove(&sector);
                }
            }
        }
    }

    /// The write failed half-way: some sectors hold it, some do not.
    pub fn fail_write(&mut self, write: u64, offset: u64, length: u64, rng: &mut Rng) {
        self.completions += 1;
        for sector in offset / SECTOR as u64..(offset + length) / SECTOR as u64 {
            let Some(versions) = self.volatile.get_mut(&sector) else { continue };
            let Some(at) = versions.iter().position(|v| v.write == write) else { continue };
            if rng.percent(50) {
                versions[at].completed = Some(self.completions);
                let place = sector as usize * SECTOR;
                self.view[place..place + SECTOR].copy_from_slice(&versions[at].data[..]);
            } else {
                versions.remove(at);
            }
        }
    }

    /// Sectors that no flush or durable write covers yet, in order.
    pub fn unsettled(&self) -> Vec<u64> {
        self.volatile.keys().copied().collect()
    }

    /// Decides, ahead of a power loss, which unsettled sectors it will keep in their newest version; the others it will
    /// leave as they were.
    pub fn will_keep(&mut self, keep: impl Fn(u64) -> bool) {
        for (sector, versions) in std::mem::take(&mut self.volatile) {
            if let Some(newest) = versions.last().filter(|_| keep(sector)) {
                let at = sector as usize * SECTOR;
                self.durable[at..at + SECTOR].copy_from_slice(&newest.data[..]);
            }
            self.decided.push(sector);
        }
    }

    /// Where a flush begins: what is complete now will be durable when it ends.
    pub fn begin_flush(&self) -> u64 {
        self.completions
    }

    pub fn end_flush(&mut self, mark: u64) {
        self.volatile.retain(|sector, versions| {
            let newest = versions.iter().filter(|v| v.completed.is_some_and(|c| c <= mark)).max_by_key(|v| v.completed);
            if let Some(version) = newest {
                let at = *sector as usize * SECTOR;
                self.durable[at..at + SECTOR].copy_from_slice(&version.data[..]);
            }
            versions.retain(|v| v.completed.is_none_or(|c| c > mark));
            !versions.is_empty()
        });
    }

    /// The flush failed: what it was to make durable stays in the device's cache, or is lost there and then.
    pub fn fail_flush(&mut self, mark: u64, rng: &mut Rng) {
        let (view, durable) = (&mut self.view, &self.durable);
        self.volatile.retain(|sector, versions| {
            if rng.percent(50) {
                versions.retain(|v| v.completed.is_none_or(|c| c > mark));
                let at = *sector as usize * SECTOR;
                let newest = versions.iter().filter(|v| v.completed.is_some()).max_by_key(|v| v.completed);
                let seen = newest.map_or(&durable[at..at + SECTOR], |v| &v.data[..]);
                view[at..at + SECTOR].copy_from_slice(seen);
            }
            !versions.is_empty()
        });
    }

    /// The process dies, the machine lives: completed writes stay in the page cache, in flight ones land or not.
    pub fn kill(&mut self, rng: &mut Rng) {
        for (sector, versions) in &mut self.volatile {
            for version in versions.iter_mut().filter(|v| v.completed.is_none()) {
                if rng.percent(50) {
                    self.completions += 1;
                    version.completed = Some(self.completions);
                    let at = *sector as usize * SECTOR;
                    self.view[at..at + SECTOR].copy_from_slice(&version.data[..]);
                }
            }
            versions.retain(|v| v.completed.is_some());
        }
    }

    /// Power loss: every sector keeps its durable content or any one version written since. Or the device was going
    /// through each write in order, and all of it that is kept is its beginning, or its end.
    pub fn lose_power(&mut self, rng: &mut Rng) {
        // Elsewhere a reader sees what is durable.
        let mut unsettled = std::mem::take(&mut self.decided);
        unsettled.extend(self.volatile.keys());
        match rng.below(3) {
            0 => self.cut_writes(|sector, cut| sector < cut, rng),
            1 => self.cut_writes(|sector, cut| sector >= cut, rng),
            _ => {}
        }
        for (sector, versions) in std::mem::take(&mut self.volatile) {
            let choice = rng.below(versions.len() as u64 + 1) as usize;
            if let Some(version) = versions.get(choice) {
                let at = sector as usize * SECTOR;
                self.durable[at..at + SECTOR].copy_from_slice(&version.data[..]);
            }
        }
        for sector in unsettled {
            let at = sector as usize * SECTOR;
            self.view[at..at + SECTOR].copy_from_slice(&self.durable[at..at + SECTOR]);
        }
    }

    /// Decides for each unsettled write where it was cut; of each sector the newest version that is kept is durable.
    fn cut_writes(&mut self, kept: impl Fn(u64, u64) -> bool, rng: &mut Rng) {
        let mut spans: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (sector, versions) in &self.volatile {
            for version in versions {
                let span = spans.entry(version.write).or_insert((*sector, *sector));
                *span = (span.0.min(*sector), span.1.max(*sector));
            }
        }
        let cuts: BTreeMap<u64, u64> =
            spans.into_iter().map(|(write, (first, last))| (write, rng.between(first, last + 1))).collect();
        for (sector, versions) in std::mem::take(&mut self.volatile) {
            if let Some(version) = versions.iter().rfind(|version| kept(sector, cuts[&version.write])) {
                let at = sector as usize * SECTOR;
                self.durable[at..at + SECTOR].copy_from_slice(&version.data[..]);
            }
        }
    }

    /// Nothing that it holds is whole any more, and nothing that has rotted before is again.
    pub fn rot_all(&mut self) {
        for sector in self.durable.chunks_mut(SECTOR).filter(|sector| sector.iter().any(|byte| *byte != 0)) {
            sector[7] = sector[7].wrapping_add(1);
        }
        self.view.clone_from(&self.durable);
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
        true
    }

    /// What was written durably last begins so, as far as the disk goes.
    pub fn latest(&self, length: usize) -> Option<Vec<u8>> {
        let at = self.recent.back()?.1 as usize * SECTOR;
        self.durable.get(at..at + length).map(<[u8]>::to_vec)
    }

    /// A write that was meant for another place lands here.
    pub fn goes_astray(&mut self, at: usize, data: &[u8]) {
        self.durable[at..at + data.len()].copy_from_slice(data);
        self.view[at..at + data.len()].copy_from_slice(data);
    }

    /// In bytes.
    pub fn size(&self) -> usize {
        self.durable.len()
    }

    /// What a power loss at this moment would at least leave.
    pub fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// All of it is replaced, while nobody uses it.
    pub fn restore(&mut self, content: Vec<u8>) {
        *self = Disk::new(content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushed_and_durable_writes_survive_power_loss_whatever_else_does() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut disk = Disk::new(vec![0; 4 * SECTOR]);
            let a = disk.begin_write(0, &[1; 2 * SECTOR]);
            disk.end_write(0, a, 0, 2 * SECTOR as u64, false);
            let mark = disk.begin_flush();
            let b = disk.begin_write(0, &[2; SECTOR]);
            disk.end_write(0, b, 0, SECTOR as u64, false);
            disk.end_flush(mark);
            let c = disk.begin_write(1024, &[3; SECTOR]);
            disk.end_write(0, c, 1024, SECTOR as u64, true);
            disk.lose_power(&mut rng);
            assert!(matches!(disk.view()[0], 1 | 2), "flushed, or the newer one");
            assert_eq!((disk.view()[512], disk.view()[1024]), (1, 3));
        }
    }
}
