//! One volume's dirty regions in memory.
//!
//! They stand in leaves of [`LEAF_WORDS`] words. A leaf without a dirty region and one of dirty regions only cost two bits and an empty
//! pointer, all others 464 bytes. A copy of a map shares its leaves until one of the two is changed: to freeze what is dirty for a snapshot
//! costs a pointer for each leaf. So what a map costs follows what is set, not what the volume could hold: one of a TiB has 76 261 leaves,
//! and an empty one takes 0.6 MiB of addresses, hardly any of it touched.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::{WORDS_PER_CELL, regions, words_between};
use crate::injected_fault::{Fault, injected};
use crate::limits::{REGION_BYTES, SAVE_UNIT_BYTES};

/// A ninth of a cell: 13.75 MiB of a volume.
const LEAF_WORDS: usize = 55;
const LEAF_REGIONS: u64 = LEAF_WORDS as u64 * 64;
const LEAVES_PER_CELL: usize = WORDS_PER_CELL / LEAF_WORDS;
/// Words without a bit that a frame of dirty bits carries rather than ends: to begin another one costs its header.
const GAP_WORDS_MAX: u64 = 16;
/// Regions of a unit in which a sync may save what it overwrites.
const UNIT_REGIONS: u64 = SAVE_UNIT_BYTES / REGION_BYTES;

type Words = [u64; LEAF_WORDS];

/// Of memory, with the two counts beside it.
const LEAF_BYTES: usize = size_of::<MixedLeaf>() + 16;

/// Of which some regions are set, and not all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MixedLeaf {
    set: u64,
    words: Words,
}

/// Regions of one volume, each set or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    mixed: Vec<Option<Arc<MixedLeaf>>>,
    /// A bit for each leaf in which something is set.
    used: Vec<u64>,
    /// A bit for each leaf in which all is set.
    full: Vec<u64>,
    size_bytes: u64,
    set: u64,
}

/// The first bit at or after `from`.
fn next_bit(words: &[u64], from: u64) -> Option<u64> {
    let first = (from / 64) as usize;
    let masked = words.get(first)? & (u64::MAX << (from % 64));
    let later = words[first + 1..].iter().copied().zip(first as u64 + 1..);
    let (word, index) = core::iter::once((masked, first as u64)).chain(later).find(|(word, _)| *word != 0)?;
    Some(index * 64 + u64::from(word.trailing_zeros()))
}

fn bit(words: &[u64], at: usize) -> bool {
    words[at / 64] >> (at % 64) & 1 != 0
}

fn put_bit(words: &mut [u64], at: usize, value: bool) {
    let (word, mask) = (&mut words[at / 64], 1 << (at % 64));
    *word = if value { *word | mask } else { *word & !mask };
}

/// The leaf of a word, and its place there.
fn place(index: u64) -> (usize, usize) {
    (index as usize / LEAF_WORDS, index as usize % LEAF_WORDS)
}

impl Bitmap {
    pub fn new(size_bytes: u64) -> Bitmap {
        let leaves = regions(size_bytes).div_ceil(LEAF_REGIONS) as usize;
        let bits = vec![0; leaves.div_ceil(64)];
        Bitmap { mixed: vec![None; leaves], used: bits.clone(), full: bits, size_bytes, set: 0 }
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes of memory that its leaves take.
    pub fn memory_bytes(&self) -> u64 {
        let mixed = self.mixed.iter().flatten().count() * LEAF_BYTES;
        (mixed + self.mixed.len() * size_of::<Option<Arc<MixedLeaf>>>() + (self.used.len() + self.full.len()) * 8)
            as u64
    }

    // ---- words ---------------------------------------------------------------------------------------------------------

    /// Words of 64 regions each.
    fn words(&self) -> u64 {
        regions(self.size_bytes).div_ceil(64)
    }

    /// The bits of a word that lie in the volume.
    fn within(&self, index: u64) -> u64 {
        match regions(self.size_bytes).saturating_sub(index * 64) {
            0 => 0,
            count @ 1..64 => !(u64::MAX << count),
            _ => u64::MAX,
        }
    }

    /// Lowest region first.
    fn word(&self, index: u64) -> u64 {
        let (leaf, at) = place(index);
        match &self.mixed[leaf] {
            Some(mixed) => mixed.words[at],
            None if bit(&self.full, leaf) => self.within(index),
            None => 0,
        }
    }

    /// The word becomes this one; its bits lie in the volume.
    fn put(&mut self, index: u64, new: u64) {
        let old = self.word(index);
        if new == old {
            return;
        }
        let (leaf, at) = place(index);
        let mixed = match self.mixed[leaf].take() {
            Some(mixed) => mixed,
            None => self.opened(leaf),
        };
        let mixed = Arc::make_mut(self.mixed[leaf].insert(mixed));
        mixed.words[at] = new;
        mixed.set = mixed.set + u64::from(new.count_ones()) - u64::from(old.count_ones());
        let set = mixed.set;
        self.set = self.set + u64::from(new.count_ones()) - u64::from(old.count_ones());
        put_bit(&mut self.used, leaf, set > 0);
        let is_full = set == self.capacity(leaf);
        put_bit(&mut self.full, leaf, is_full);
        if set == 0 || is_full {
            self.mixed[leaf] = None;
        }
    }

    /// The words of a leaf that has none, as all its regions are set, or none is.
    fn opened(&self, leaf: usize) -> Arc<MixedLeaf> {
        let mut mixed = MixedLeaf { set: 0, words: [0; LEAF_WORDS] };
        if bit(&self.full, leaf) {
            mixed.set = self.capacity(leaf);
            let first = (leaf * LEAF_WORDS) as u64;
            mixed.words.iter_mut().zip(first..).for_each(|(word, index)| *word = self.within(index));
        }
        Arc::new(mixed)
    }

    /// All words of a leaf are changed at once; what is set of them lies in the volume.
    fn change_leaf(&mut self, leaf: usize, change: impl FnOnce(&mut Words)) {
        let mut mixed = match self.mixed[leaf].take() {
            Some(mixed) => mixed,
            None => self.opened(leaf),
        };
        let changed = Arc::make_mut(&mut mixed);
        let before = changed.set;
        change(&mut changed.words);
        changed.set = changed.words.iter().map(|word| u64::from(word.count_ones())).sum();
        let set = changed.set;
        self.set = self.set + set - before;
        let is_full = set == self.capacity(leaf);
        put_bit(&mut self.used, leaf, set > 0);
        put_bit(&mut self.full, leaf, is_full);
        self.mixed[leaf] = Some(mixed).filter(|_| set > 0 && !is_full);
    }

    /// Set regions of a leaf.
    fn set_in(&self, leaf: usize) -> u64 {
        match &self.mixed[leaf] {
            Some(mixed) => mixed.set,
            None if bit(&self.full, leaf) => self.capacity(leaf),
            None => 0,
        }
    }

    /// Regions of a leaf; the last leaf of a volume may have fewer.
    fn capacity(&self, leaf: usize) -> u64 {
        LEAF_REGIONS.min(regions(self.size_bytes) - leaf as u64 * LEAF_REGIONS)
    }

    /// All regions of a leaf are set, or none is.
    fn fill(&mut self, leaf: usize, value: bool) {
        let before = self.set_in(leaf);
        self.mixed[leaf] = None;
        self.set = self.set - before + if value { self.capacity(leaf) } else { 0 };
        put_bit(&mut self.used, leaf, value);
        put_bit(&mut self.full, leaf, value);
    }

    /// The parts of a range of regions that lie in one leaf each: the leaf, first and last region, and whether that is all of it.
    fn by_leaves(&self, first: u64, last: u64) -> impl Iterator<Item = (usize, u64, u64, bool)> + use<> {
        let count = regions(self.size_bytes);
        (first / LEAF_REGIONS..=last / LEAF_REGIONS).map(move |leaf| {
            let (begins, ends) = (leaf * LEAF_REGIONS, ((leaf + 1) * LEAF_REGIONS).min(count) - 1);
            let (first, last) = (first.max(begins), last.min(ends));
            (leaf as usize, first, last, (first, last) == (begins, ends))
        })
    }

    /// The leaves in which something is set.
    fn used_leaves(&self) -> impl Iterator<Item = usize> {
        core::iter::successors(next_bit(&self.used, 0), |leaf| next_bit(&self.used, leaf + 1)).map(|c| c as usize)
    }

    /// The words of a leaf that lie in the volume.
    fn words_of(&self, leaf: usize) -> core::ops::Range<u64> {
        let first = (leaf * LEAF_WORDS) as u64;
        first..(first + LEAF_WORDS as u64).min(self.words())
    }

    // ---- single regions ------------------------------------------------------------------------------------------------

    pub fn get(&self, region: u64) -> bool {
        self.word(region / 64) >> (region % 64) & 1 != 0
    }

    /// Sets the bit; true if it was clear.
    pub fn set(&mut self, region: u64) -> bool {
        assert!(region < regions(self.size_bytes), "region past the volume's end");
        let was = self.word(region / 64);
        self.put(region / 64, was | 1 << (region % 64));
        was >> (region % 64) & 1 == 0
    }

    pub fn clear(&mut self, region: u64) {
        self.put(region / 64, self.word(region / 64) & !(1 << (region % 64)));
    }

    /// The first set region at or after `from`.
    pub fn next_set(&self, from: u64) -> Option<u64> {
        let (mut leaf, mut at) = place(from / 64);
        let mut mask = u64::MAX << (from % 64);
        loop {
            let next = next_bit(&self.used, leaf as u64)? as usize;
            if next > leaf {
                (leaf, at, mask) = (next, 0, u64::MAX);
            }
            let first = (leaf * LEAF_WORDS) as u64;
            let found = match &self.mixed[leaf] {
                Some(mixed) => {
                    let word = |at: usize| (at, mixed.words[at]);
                    let masked = (at, mixed.words[at] & mask);
                    let later = (at + 1..LEAF_WORDS).map(word);
                    core::iter::once(masked).chain(later).find(|(_, word)| *word != 0)
                }
                None => Some((at, self.within(first + at as u64) & mask)).filter(|(_, word)| *word != 0),
            };
            match found {
                Some((at, word)) => return Some((first + at as u64) * 64 + u64::from(word.trailing_zeros())),
                None => (leaf, at, mask) = (leaf + 1, 0, u64::MAX),
            }
        }
    }

    /// The first region at or after `from` that is set here and not in `other`, a map of the same size.
    pub fn next_set_outside(&self, other: &Bitmap, from: u64) -> Option<u64> {
        let mut from = self.next_set(from)?;
        loop {
            let (leaf, at) = place(from / 64);
            let first = (leaf * LEAF_WORDS) as u64;
            if !bit(&other.used, leaf) {
                return Some(from);
            }
            if !bit(&other.full, leaf) {
                let mut mask = u64::MAX << (from % 64);
                for index in first + at as u64..self.words_of(leaf).end {
                    let word = self.word(index) & !other.word(index) & core::mem::replace(&mut mask, u64::MAX);
                    if word != 0 {
                        return Some(index * 64 + u64::from(word.trailing_zeros()));
                    }
                }
            }
            from = self.next_set((leaf as u64 + 1) * LEAF_REGIONS)?;
        }
    }

    /// The first region behind `from` that is not set; at most `most`, which lies in the volume or just behind it.
    pub fn run_end(&self, from: u64, most: u64) -> u64 {
        let (mut index, mut mask) = (from / 64, u64::MAX << (from % 64));
        while index * 64 < most {
            let (leaf, _) = place(index);
            if bit(&self.full, leaf) {
                (index, mask) = (((leaf + 1) * LEAF_WORDS) as u64, u64::MAX);
                continue;
            }
            let clear = !self.word(index) & mask;
            if clear != 0 {
                return most.min(index * 64 + u64::from(clear.trailing_zeros()));
            }
            (index, mask) = (index + 1, u64::MAX);
        }
        most
    }

    // ---- ranges --------------------------------------------------------------------------------------------------------

    pub fn set_all(&mut self) {
        (0..self.mixed.len()).for_each(|leaf| self.fill(leaf, true));
    }

    /// Sets the regions from `first` to `last`.
    pub fn set_range(&mut self, first: u64, last: u64) {
        assert!(last < regions(self.size_bytes), "region past the volume's end");
        self.put_range(first, last, true);
    }

    /// Clears them.
    pub fn clear_range(&mut self, first: u64, last: u64) {
        self.put_range(first, last, false);
    }

    fn put_range(&mut self, first: u64, last: u64, value: bool) {
        for (leaf, first, last, all) in self.by_leaves(first, last) {
            if all {
                self.fill(leaf, value);
                continue;
            }
            for (index, mask) in words_between(first, last) {
                let word = self.word(index);
                self.put(index, if value { word | mask } else { word & !mask });
            }
        }
    }

    /// Every word of the range becomes what `new` makes of the bits that are here and in `other`, a map of the same size. Where nothing is
    /// set there a leaf stays, or is set where `unset`.
    fn combine(&mut self, other: &Bitmap, (first, last): (u64, u64), unset: bool, new: impl Fn(u64, u64) -> u64) {
        for (leaf, first, last, all) in self.by_leaves(first, last) {
            // What a leaf becomes that is alike everywhere in `other`.
            let (is_used, is_full) = (bit(&other.used, leaf), bit(&other.full, leaf));
            if (unset && is_full) || (!unset && !is_used) {
                continue;
            }
            if all && (is_full || !is_used) {
                self.fill(leaf, unset);
                continue;
            }
            for (index, mask) in words_between(first, last) {
                let mine = self.word(index);
                self.put(index, mine & !mask | new(mine, other.word(index)) & mask);
            }
        }
    }

    /// Sets the regions from `first` to `last` that are not set in `other`.
    pub fn set_outside(&mut self, other: &Bitmap, first: u64, last: u64) {
        self.combine(other, (first, last), true, |mine, theirs| mine | !theirs);
    }

    /// Clears the regions from `first` to `last` that are set in `other`.
    pub fn clear_inside(&mut self, other: &Bitmap, first: u64, last: u64) {
        self.combine(other, (first, last), false, |mine, theirs| mine & !theirs);
    }

    /// Set regions from `first` to `last`.
    pub fn count_in(&self, first: u64, last: u64) -> u64 {
        let of_leaf = |(leaf, first, last, all)| {
            if all || !bit(&self.used, leaf) {
                return self.set_in(leaf);
            }
            words_between(first, last).map(|(index, mask)| u64::from((self.word(index) & mask).count_ones())).sum()
        };
        self.by_leaves(first, last).map(of_leaf).sum()
    }

    /// All regions from `first` to `last` are set.
    pub fn has_all(&self, first: u64, last: u64) -> bool {
        words_between(first, last).all(|(index, mask)| self.word(index) & mask == mask)
    }

    /// Every bit of the range that is set here is set in `other`.
    pub fn is_within(&self, other: &Bitmap, first: u64, last: u64) -> bool {
        words_between(first, last).all(|(index, mask)| {
            let left_out = index == last / 64 && index > first / 64 && injected(Fault::LastWordMasked);
            let looked_at = if left_out { 0 } else { mask };
            self.word(index) & !other.word(index) & looked_at == 0
        })
    }

    // ---- whole maps ----------------------------------------------------------------------------------------------------

    /// Bytes of set regions, the partial tail counted as what it holds.
    pub fn dirty_bytes(&self) -> u64 {
        let count = regions(self.size_bytes);
        let tail_missing = count * REGION_BYTES - self.size_bytes;
        let tail_set = count > 0 && self.get(count - 1);
        self.set * REGION_BYTES - if tail_set { tail_missing } else { 0 }
    }

    pub fn is_clean(&self) -> bool {
        self.set == 0
    }

    /// Bytes of the regions that are set in both.
    pub fn common_bytes(&self, other: &Bitmap) -> u64 {
        let of_leaf = |leaf: usize| match (&self.mixed[leaf], &other.mixed[leaf]) {
            (Some(mine), Some(theirs)) => {
                let words = mine.words.iter().zip(&theirs.words);
                words.map(|(mine, theirs)| u64::from((mine & theirs).count_ones())).sum::<u64>()
            }
            (_, None) if bit(&other.full, leaf) => self.set_in(leaf),
            (None, _) if bit(&self.full, leaf) => other.set_in(leaf),
            _ => 0,
        };
        let set: u64 = self.used_leaves().map(of_leaf).sum();
        let count = regions(self.size_bytes);
        let tail_set = count > 0 && self.get(count - 1) && other.get(count - 1);
        set * REGION_BYTES - if tail_set { count * REGION_BYTES - self.size_bytes } else { 0 }
    }

    /// Units of [`SAVE_UNIT_BYTES`] in which a region is set here and not in `other`, a map of the same size.
    pub fn units_outside(&self, other: Option<&Bitmap>) -> u64 {
        let (mut units, mut from) = (0, 0);
        loop {
            let next = match other {
                Some(other) => self.next_set_outside(other, from),
                None => self.next_set(from),
            };
            let Some(region) = next else { return units };
            let leaf = (region / LEAF_REGIONS) as usize;
            let untouched = region.is_multiple_of(LEAF_REGIONS) && other.is_none_or(|other| !bit(&other.used, leaf));
            // A leaf is of whole units.
            (units, from) = if untouched && bit(&self.full, leaf) {
                (units + self.capacity(leaf).div_ceil(UNIT_REGIONS), region + LEAF_REGIONS)
            } else {
                (units + 1, (region / UNIT_REGIONS + 1) * UNIT_REGIONS)
            };
        }
    }

    /// Sets every bit that is set in `other`, a map of the same size.
    pub fn join(&mut self, other: &Bitmap) {
        for leaf in other.used_leaves() {
            match &other.mixed[leaf] {
                Some(theirs) => {
                    self.change_leaf(leaf, |words| each(words, &theirs.words, |mine, theirs| mine | theirs))
                }
                None => self.fill(leaf, true),
            }
        }
    }

    /// Clears every bit that is set in `other`, a map of the same size.
    pub fn leave_out(&mut self, other: &Bitmap) {
        for leaf in other.used_leaves() {
            match &other.mixed[leaf] {
                Some(theirs) => {
                    self.change_leaf(leaf, |words| each(words, &theirs.words, |mine, theirs| mine & !theirs))
                }
                None => self.fill(leaf, false),
            }
        }
    }

    /// Clears every bit that is not set in `other`, a map of the same size.
    pub fn retain(&mut self, other: &Bitmap) {
        let used: Vec<usize> = self.used_leaves().collect();
        for leaf in used {
            match &other.mixed[leaf] {
                Some(theirs) => {
                    self.change_leaf(leaf, |words| each(words, &theirs.words, |mine, theirs| mine & theirs))
                }
                None if !bit(&other.used, leaf) => self.fill(leaf, false),
                None => {}
            }
        }
    }

    /// The same of a volume of another size: bits past its end are left out.
    pub fn resized(&self, size_bytes: u64) -> Bitmap {
        let mut resized = Bitmap::new(size_bytes);
        for leaf in self.used_leaves().filter(|leaf| *leaf < resized.mixed.len()).collect::<Vec<usize>>() {
            let is_whole = self.capacity(leaf) == LEAF_REGIONS && resized.capacity(leaf) == LEAF_REGIONS;
            if is_whole && bit(&self.full, leaf) {
                resized.fill(leaf, true);
            } else {
                self.words_of(leaf).for_each(|index| resized.join_word(index, self.word(index)));
            }
        }
        resized
    }

    /// Sets the bits of a word of 64 regions, lowest first, that lie in the volume.
    pub fn join_word(&mut self, index: u64, word: u64) {
        if index < self.words() {
            self.put(index, self.word(index) | word & self.within(index));
        }
    }

    /// Words with the first set region at or after `from`, as far as they belong into one frame: the first of them, and at most so many.
    /// They begin and end with a word in which something is set.
    pub fn run_of_words(&self, from: u64, most: u64) -> Option<(u64, Vec<u64>)> {
        let first = self.next_set(from)? / 64;
        let (mut end, mut region) = (first, Some(first * 64));
        while let Some(index) = region.map(|region| region / 64)
            && index <= end + GAP_WORDS_MAX
            && index - first < most
        {
            // What is set without a gap is not gone through bit by bit.
            end = index + 1;
            while end - first < most && end < self.words() && self.word(end) != 0 {
                end += 1;
            }
            region = self.next_set(end * 64);
        }
        Some((first, (first..end).map(|index| self.word(index)).collect()))
    }

    // ---- cells of the stored bitmap --------------------------------------------------------------------------------------

    /// The words of a cell that lie in the volume.
    fn cell_words(&self, cell: u64) -> core::ops::Range<u64> {
        let first = cell * WORDS_PER_CELL as u64;
        first.min(self.words())..(first + WORDS_PER_CELL as u64).min(self.words())
    }

    fn cell_leaves(&self, cell: u64) -> core::ops::Range<usize> {
        let first = cell as usize * LEAVES_PER_CELL;
        first.min(self.mixed.len())..(first + LEAVES_PER_CELL).min(self.mixed.len())
    }

    /// The words of the regions of one cell; the last cell of a volume has fewer.
    pub fn cell(&self, cell: u64) -> Vec<u64> {
        self.cell_words(cell).map(|index| self.word(index)).collect()
    }

    /// Puts words in the place of a cell's; bits past the volume's end are left out.
    pub fn set_cell(&mut self, cell: u64, words: &[u64]) {
        self.change_cell(cell, words, |_, new| new);
    }

    /// Sets of a cell what is set in `words` too; bits past the volume's end are left out.
    pub fn join_cell(&mut self, cell: u64, words: &[u64]) {
        self.change_cell(cell, words, |mine, new| mine | new);
    }

    /// Keeps of a cell only what is set in `words` too.
    pub fn mask_cell(&mut self, cell: u64, words: &[u64]) {
        self.change_cell(cell, words, |mine, kept| mine & kept);
    }

    fn change_cell(&mut self, cell: u64, words: &[u64], new: impl Fn(u64, u64) -> u64) {
        for (leaf, words) in self.cell_leaves(cell).zip(words.chunks(LEAF_WORDS)) {
            if !bit(&self.used, leaf) && words.iter().all(|word| *word == 0) {
                continue;
            }
            let first = (leaf * LEAF_WORDS) as u64;
            let (last, within) = (self.words() - 1 - first, self.within(self.words() - 1));
            self.change_leaf(leaf, |mine| {
                for ((at, mine), word) in (0..=last).zip(mine).zip(words) {
                    let changed = new(*mine, *word);
                    *mine = if at == last { changed & within } else { changed };
                }
            });
        }
    }

    /// Every bit of the cell that is set here is set in `other`, a map of the same size.
    pub fn cell_is_within(&self, other: &Bitmap, cell: u64) -> bool {
        self.cell_leaves(cell).all(|leaf| match (&self.mixed[leaf], &other.mixed[leaf]) {
            (Some(mine), Some(theirs)) => {
                mine.words.iter().zip(&theirs.words).all(|(mine, theirs)| mine & !theirs == 0)
            }
            _ => !bit(&self.used, leaf) || bit(&other.full, leaf),
        })
    }
}

/// Each word becomes what `new` makes of it and of the other one.
fn each(words: &mut Words, others: &Words, new: impl Fn(u64, u64) -> u64) {
    words.iter_mut().zip(others).for_each(|(word, other)| *word = new(*word, *other));
}

const _: () = assert!(LEAVES_PER_CELL * LEAF_WORDS == WORDS_PER_CELL && LEAF_REGIONS.is_multiple_of(UNIT_REGIONS));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_count_and_walk() {
        let mut map = Bitmap::new(200 * REGION_BYTES - 512);
        assert!(map.set(3) && !map.set(3) && map.set(199) && map.set(64));
        assert_eq!(map.next_set(0), Some(3));
        assert_eq!(map.next_set(4), Some(64));
        assert_eq!(map.next_set(65), Some(199));
        assert_eq!(map.dirty_bytes(), 3 * REGION_BYTES - 512);
        map.clear(199);
        assert_eq!(map.next_set(65), None);
        assert_eq!(map.next_set(10_000), None);
        map.set_all();
        assert_eq!((map.dirty_bytes(), map.next_set(199), map.next_set(200)), (map.size_bytes(), Some(199), None));
    }

    struct Draws(u64);

    impl Draws {
        fn below(&mut self, below: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % below
        }
    }

    /// A map, and the same as single bits.
    struct Both(Bitmap, Vec<bool>);

    impl Both {
        fn drawn(count: u64, draws: &mut Draws) -> Both {
            let mut both = Both(Bitmap::new(count * REGION_BYTES), vec![false; count as usize]);
            for _ in 0..draws.below(6) {
                both.put(draws.below(count), draws.below(count), draws.below(3) > 0);
            }
            both
        }

        fn put(&mut self, a: u64, b: u64, value: bool) {
            let (first, last) = (a.min(b), a.max(b));
            if value {
                self.0.set_range(first, last)
            } else {
                self.0.clear_range(first, last)
            }
            self.1[first as usize..=last as usize].fill(value);
        }

        fn check(&self, draws: &mut Draws) {
            let Both(map, bits) = self;
            let count = bits.len() as u64;
            let set = bits.iter().filter(|bit| **bit).count() as u64;
            assert_eq!((map.set, map.count_in(0, count - 1)), (set, set));
            for _ in 0..20 {
                let (a, b) = (draws.below(count), draws.below(count));
                let (first, last) = (a.min(b), a.max(b));
                let range = || bits[first as usize..=last as usize].iter();
                assert_eq!(map.next_set(first), (first..count).find(|region| bits[*region as usize]));
                let clear = (first..=last).find(|region| !bits[*region as usize]).unwrap_or(last + 1);
                assert_eq!((map.run_end(first, last + 1), map.has_all(first, last)), (clear, range().all(|bit| *bit)));
                assert_eq!(map.count_in(first, last), range().filter(|bit| **bit).count() as u64);
            }
            let same =
                (0..count).filter(|region| bits[*region as usize]).fold(Bitmap::new(map.size_bytes), |mut map, r| {
                    map.set(r);
                    map
                });
            assert_eq!(*map, same, "one content, one map");
        }
    }

    /// A change of a map by another one, the same of a bit, and whether it is of all bits.
    type ChangedMap = (fn(&mut Bitmap, &Bitmap, u64, u64), fn(bool, bool) -> bool, bool);

    #[test]
    fn a_map_is_what_its_single_bits_are() {
        let mut draws = Draws(9);
        for round in 0..60 {
            let count = [1, 64, 700, LEAF_REGIONS, 2 * LEAF_REGIONS + 17, 9 * LEAF_REGIONS - 5][round % 6];
            let (mut a, b) = (Both::drawn(count, &mut draws), Both::drawn(count, &mut draws));
            a.check(&mut draws);
            let from = draws.below(count);
            let outside = (from..count).find(|at| a.1[*at as usize] && !b.1[*at as usize]);
            assert_eq!(a.0.next_set_outside(&b.0, from), outside);
            assert_eq!(a.0.is_within(&b.0, from, count - 1), outside.is_none());
            let (first, last) = (from.min(count / 2), from.max(count / 2).min(count - 1));
            let ways: [ChangedMap; 5] = [
                (|a, b, _, _| a.join(b), |a, b| a || b, true),
                (|a, b, _, _| a.leave_out(b), |a, b| a && !b, true),
                (|a, b, _, _| a.retain(b), |a, b| a && b, true),
                (|a, b, first, last| a.set_outside(b, first, last), |a, b| a || !b, false),
                (|a, b, first, last| a.clear_inside(b, first, last), |a, b| a && !b, false),
            ];
            let (change, of_bits, all) = ways[draws.below(5) as usize];
            change(&mut a.0, &b.0, first, last);
            for at in (0..count).filter(|at| all || (first..=last).contains(at)).map(|at| at as usize) {
                a.1[at] = of_bits(a.1[at], b.1[at]);
            }
            a.check(&mut draws);
            let units = |set: &dyn Fn(usize) -> bool| {
                a.1.chunks(8).zip(0..).filter(|(unit, at)| (0..unit.len()).any(|bit| set(at * 8 + bit))).count()
            };
            assert_eq!(a.0.units_outside(None), units(&|at| a.1[at]) as u64);
            assert_eq!(a.0.units_outside(Some(&b.0)), units(&|at| a.1[at] && !b.1[at]) as u64);
            let common = (0..a.1.len()).filter(|at| a.1[*at] && b.1[*at]).count() as u64;
            assert_eq!(a.0.common_bytes(&b.0), common * REGION_BYTES);
            let other = draws.below(2 * count) + 1;
            a.0 = a.0.resized(other * REGION_BYTES);
            a.1.resize(other as usize, false);
            a.check(&mut draws);
        }
    }

    #[test]
    fn cells_are_put_joined_and_masked() {
        let size = (WORDS_PER_CELL as u64 * 64 + 100) * REGION_BYTES;
        let (mut a, mut b) = (Bitmap::new(size), Bitmap::new(size));
        a.set_range(5, LEAF_REGIONS + 3);
        b.set_all();
        assert!(a.cell_is_within(&b, 0) && !b.cell_is_within(&a, 0) && !b.cell_is_within(&a, 1));
        b.mask_cell(0, &a.cell(0));
        assert_eq!((b.count_in(0, LEAF_REGIONS + 99), b.cell(1)), (LEAF_REGIONS - 1, [u64::MAX, (1 << 36) - 1].into()));
        b.set_cell(1, &[0, u64::MAX]);
        a.join_cell(1, &[0, u64::MAX]);
        assert_eq!(a, b);
    }

    #[test]
    fn frames_of_bits_are_as_long_as_what_they_tell() {
        let mut map = Bitmap::new(200_000 * REGION_BYTES);
        assert_eq!(map.run_of_words(0, 100), None);
        for region in [70, 64 * 17, 64 * 40 + 63, 199_999] {
            map.set(region);
        }
        let run = |map: &Bitmap, from| map.run_of_words(from, 100).map(|(first, words)| (first, words.len()));
        assert_eq!((run(&map, 0), run(&map, 71)), (Some((1, 17)), Some((17, 1))));
        assert_eq!((run(&map, 18 * 64), run(&map, 41 * 64)), (Some((40, 1)), Some((3124, 1))));
        map.set_all();
        assert_eq!((run(&map, 0), run(&map, 3100 * 64)), (Some((0, 100)), Some((3100, 25))));
    }

    /// What a map of 16 TiB costs in memory.
    #[test]
    fn memory_follows_what_is_set() {
        let mut map = Bitmap::new(1 << 44);
        let empty = map.memory_bytes();
        assert!(empty < 10 << 20, "{empty}");
        map.set_all();
        assert_eq!(map.memory_bytes(), empty);
        map.clear(7);
        map.clear_range(1 << 30, 1 << 31);
        assert!(map.memory_bytes() <= empty + 3 * 464, "{}", map.memory_bytes());
    }
}
