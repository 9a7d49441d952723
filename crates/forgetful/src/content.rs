//! The bytes of one file: as they are now, and as they are on the medium.
//!
//! Between the two lies the cache. It may write a sector back whenever it likes; that is drawn when a sector which is
//! still only in the cache is written again, so of several versions any one may be what a power loss leaves.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::random::StoreRandom;

/// What the medium writes whole.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// What the content is kept in.
pub(crate) const PAGE_BYTES: u64 = 4096;
const SECTORS_PER_PAGE: u64 = PAGE_BYTES / SECTOR_BYTES;

/// What a power loss did to a file's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Toll {
    pub forgotten_bytes: u64,
    pub survived_bytes: u64,
}

/// A sparse image: a page that is not there reads as zero. Pages are shared between what is now and what is on the
/// medium for as long as they are equal.
#[derive(Clone, Default)]
struct FileImage {
    size: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE_BYTES as usize]>>,
}

#[derive(Default)]
pub(crate) struct ForgetfulContent {
    now: FileImage,
    kept: FileImage,
    /// Sectors that may differ between the two: page to a bit per sector.
    unflushed: BTreeMap<u64, u8>,
}

/// A range cut at the pages' bounds: page, and where in it.
fn pieces(range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        let page = at / PAGE_BYTES;
        let stop = end.min((page + 1) * PAGE_BYTES);
        let within = (at % PAGE_BYTES) as usize..(stop.max(at) - page * PAGE_BYTES) as usize;
        let is_left = at < end;
        at = stop;
        is_left.then_some((page, within))
    })
}

/// The sectors of a page that a part of it touches, a bit for each.
fn sectors_of(within: &Range<usize>) -> u8 {
    let sector = SECTOR_BYTES as usize;
    let (first, end) = (within.start / sector, within.end.div_ceil(sector));
    (first..end).fold(0, |mask, sector| mask | 1 << sector)
}

fn sectors_in(mask: u8) -> impl Iterator<Item = u64> {
    (0..SECTORS_PER_PAGE).filter(move |sector| mask >> sector & 1 == 1)
}

impl FileImage {
    fn page_mut(&mut self, page: u64) -> &mut [u8; PAGE_BYTES as usize] {
        Arc::make_mut(self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES as usize])))
    }

    fn sector(&self, page: u64, sector: u64) -> &[u8] {
        let from = (sector * SECTOR_BYTES) as usize;
        let within = from..from + SECTOR_BYTES as usize;
        self.pages.get(&page).map_or(&[0; SECTOR_BYTES as usize], |bytes| &bytes[within])
    }

    /// Takes a sector over from another image.
    fn take_sector(&mut self, from: &FileImage, page: u64, sector: u64) {
        if self.pages.contains_key(&page) || from.pages.contains_key(&page) {
            let at = (sector * SECTOR_BYTES) as usize;
            let bytes = from.sector(page, sector);
            self.page_mut(page)[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn take_page(&mut self, from: &FileImage, page: u64) {
        match from.pages.get(&page) {
            Some(bytes) => self.pages.insert(page, bytes.clone()),
            None => self.pages.remove(&page),
        };
    }

    /// Ends the image here: what lies behind reads as zero if it grows again.
    fn cut(&mut self, size: u64) {
        self.size = size;
        self.pages.split_off(&size.div_ceil(PAGE_BYTES));
        let tail = (size % PAGE_BYTES) as usize;
        if tail > 0 && self.pages.contains_key(&(size / PAGE_BYTES)) {
            self.page_mut(size / PAGE_BYTES)[tail..].fill(0);
        }
    }
}

impl ForgetfulContent {
    pub fn size(&self) -> u64 {
        self.now.size
    }

    /// Bytes that take space.
    pub fn allocated_bytes(&self) -> u64 {
        self.now.pages.len() as u64 * PAGE_BYTES
    }

    pub fn unflushed_bytes(&self) -> u64 {
        self.unflushed.values().map(|mask| u64::from(mask.count_ones()) * SECTOR_BYTES).sum()
    }

    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let end = offset.saturating_add(length).min(self.now.size);
        let mut bytes = Vec::with_capacity(end.saturating_sub(offset) as usize);
        for (page, within) in pieces(offset..end) {
            match self.now.pages.get(&page) {
                Some(content) => bytes.extend_from_slice(&content[within]),
                None => bytes.resize(bytes.len() + within.len(), 0),
            }
        }
        bytes
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8], random: &mut StoreRandom) {
        let end = offset + bytes.len() as u64;
        let mut rest = bytes;
        for (page, within) in pieces(offset..end) {
            self.dirty(page, sectors_of(&within), random);
            let (piece, behind) = rest.split_at(within.len());
            self.now.page_mut(page)[within].copy_from_slice(piece);
            rest = behind;
        }
        if end > self.now.size {
            self.resize(end, random);
        }
    }

    /// Makes a range read as zero and gives its whole pages back.
    pub fn punch(&mut self, range: Range<u64>, random: &mut StoreRandom) {
        for (page, within) in pieces(range.start..range.end.min(self.now.size)) {
            if !self.now.pages.contains_key(&page) {
                continue;
            }
            self.dirty(page, sectors_of(&within), random);
            if within.len() == PAGE_BYTES as usize {
                self.now.pages.remove(&page);
            } else {
                self.now.page_mut(page)[within].fill(0);
            }
        }
    }

    pub fn resize(&mut self, size: u64, random: &mut StoreRandom) {
        if self.now.size != self.kept.size && random.coin() {
            self.kept.size = self.now.size;
        }
        if size < self.now.size {
            self.punch(size..self.now.size, random);
            self.now.cut(size);
        }
        self.now.size = size;
    }

    /// The first byte from `offset` on that is data (or is none); `None`: there is no such byte before the end.
    pub fn seek(&self, offset: u64, is_data: bool) -> Option<u64> {
        let end = self.now.size;
        let mut pages = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        let found = pages.find(|page| self.now.pages.contains_key(page) == is_data);
        found.map(|page| (page * PAGE_BYTES).max(offset))
    }

    /// Puts everything on the medium; how many bytes were not there yet.
    pub fn flush(&mut self) -> u64 {
        let flushed = self.unflushed_bytes();
        for page in std::mem::take(&mut self.unflushed).into_keys() {
            self.kept.take_page(&self.now, page);
        }
        self.kept.size = self.now.size;
        flushed
    }

    /// Nothing of it gets to the medium any more, and it counts as there.
    pub fn fail_flush(&mut self) {
        self.unflushed.clear();
    }

    /// Puts a range on the medium, with the size that is needed to find it again.
    pub fn flush_range(&mut self, range: Range<u64>) -> u64 {
        let mut flushed = 0;
        for (page, within) in pieces(range) {
            let Some(mask) = self.unflushed.get_mut(&page) else { continue };
            let covered = *mask & sectors_of(&within);
            *mask &= !covered;
            if *mask == 0 {
                self.unflushed.remove(&page);
            }
            for sector in sectors_in(covered) {
                self.kept.take_sector(&self.now, page, sector);
                flushed += SECTOR_BYTES;
            }
        }
        self.kept.size = self.now.size;
        flushed
    }

    /// The power is lost: only what is on the medium is left. With `random`, part of the cache got there in the last
    /// moment: sector by sector, or in larger pieces.
    pub fn forget(&mut self, mut random: Option<&mut StoreRandom>) -> Toll {
        let mut toll = Toll::default();
        let survives = |random: &mut Option<&mut StoreRandom>, eighths| match random {
            Some(random) => random.below(8) < eighths,
            None => false,
        };
        let (eighths, grain) = match &mut random {
            Some(random) => (random.below(9), [1, SECTORS_PER_PAGE, 16 * SECTORS_PER_PAGE][random.below(3) as usize]),
            None => (0, 1),
        };
        let mut drawn = None;
        for (page, mask) in std::mem::take(&mut self.unflushed) {
            for sector in sectors_in(mask) {
                let piece = (page * SECTORS_PER_PAGE + sector) / grain;
                let is_kept = match drawn {
                    Some((last, is_kept)) if last == piece => is_kept,
                    _ => survives(&mut random, eighths),
                };
                drawn = Some((piece, is_kept));
                if is_kept {
                    self.kept.take_sector(&self.now, page, sector);
                    toll.survived_bytes += SECTOR_BYTES;
                } else if self.kept.sector(page, sector) != self.now.sector(page, sector) {
                    toll.forgotten_bytes += SECTOR_BYTES;
                }
            }
        }
        let is_size_kept = survives(&mut random, eighths);
        self.kept.cut(if is_size_kept { self.now.size } else { self.kept.size });
        self.now = self.kept.clone();
        toll
    }

    /// Notes that sectors are about to change in the cache. What was there only may have been written back before.
    fn dirty(&mut self, page: u64, mask: u8, random: &mut StoreRandom) {
        let dirty = self.unflushed.entry(page).or_default();
        let again = *dirty & mask;
        *dirty |= mask;
        for sector in sectors_in(again).filter(|_| random.coin()) {
            self.kept.take_sector(&self.now, page, sector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(bytes: usize, byte: u8) -> Vec<u8> {
        vec![byte; bytes]
    }

    fn flushed(bytes: usize, random: &mut StoreRandom) -> ForgetfulContent {
        let mut content = ForgetfulContent::default();
        content.write(0, &filled(bytes, 1), random);
        assert_eq!(content.flush(), bytes.next_multiple_of(512) as u64);
        content
    }

    #[test]
    fn what_was_flushed_stays_and_the_rest_is_forgotten() {
        let random = &mut StoreRandom::new(1);
        let mut content = flushed(10_000, random);
        content.write(1024, &filled(512, 2), random);
        content.write(20_000, &filled(100, 3), random);
        content.punch(4096..8192, random);
        assert_eq!(content.size(), 20_100);
        let toll = content.forget(None);
        assert_eq!(toll, Toll { forgotten_bytes: 512 + 512 + 4096, survived_bytes: 0 });
        assert_eq!((content.size(), content.read(0, 1 << 20)), (10_000, filled(10_000, 1)));
    }

    #[test]
    fn a_durable_write_covers_itself_alone() {
        let random = &mut StoreRandom::new(1);
        let mut content = flushed(8192, random);
        content.write(0, &filled(1024, 2), random);
        content.write(512, &filled(1024, 3), random);
        assert_eq!(content.flush_range(512..1536), 1024);
        assert_eq!(content.forget(None).forgotten_bytes, 512);
        let expected = [filled(512, 1), filled(1024, 3), filled(8192 - 1536, 1)].concat();
        assert_eq!(content.read(0, 8192), expected);
    }

    #[test]
    fn a_size_is_forgotten_like_bytes_and_nothing_old_returns_behind_it() {
        let random = &mut StoreRandom::new(3);
        let mut content = flushed(8192, random);
        content.resize(100, random);
        content.flush();
        content.resize(8192, random);
        assert_eq!(content.read(0, 8192), [filled(100, 1), filled(8092, 0)].concat());
        content.forget(None);
        assert_eq!(content.read(0, 8192), filled(100, 1));
        content.write(5000, &filled(1, 7), random);
        content.flush_range(5000..5001);
        content.forget(None);
        assert_eq!(content.read(0, 8192), [filled(100, 1), filled(4900, 0), filled(1, 7)].concat());
    }

    #[test]
    fn of_several_versions_any_one_may_be_left_and_requests_tear() {
        let (mut seen, mut torn) = ([false; 4], 0);
        for seed in 0..200 {
            let random = &mut StoreRandom::new(seed);
            let mut content = flushed(8192, random);
            for version in 2..=4 {
                content.write(0, &filled(8192, version), random);
            }
            let toll = content.forget(Some(random));
            assert!(toll.forgotten_bytes + toll.survived_bytes <= 8192);
            let left = content.read(0, 8192);
            for sector in left.chunks(512) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is written whole");
                seen[usize::from(sector[0]) - 1] = true;
            }
            torn += usize::from(left.iter().any(|byte| *byte != left[0]));
        }
        assert_eq!(seen, [true; 4]);
        assert!((20..180).contains(&torn), "{torn} of 200 were torn");
    }

    #[test]
    fn holes_are_distinguished_from_data() {
        let random = &mut StoreRandom::new(1);
        let mut content = ForgetfulContent::default();
        content.resize(100_000, random);
        content.write(40_000, &filled(5000, 1), random);
        assert_eq!(content.seek(0, true), Some(36_864));
        assert_eq!(content.seek(0, false), Some(0));
        assert_eq!(content.seek(40_000, false), Some(45_056));
        assert_eq!(content.seek(50_000, true), None);
        assert_eq!(content.allocated_bytes(), 8192);
        content.punch(36_864..45_056, random);
        assert_eq!((content.seek(0, true), content.allocated_bytes()), (None, 0));
    }
}
