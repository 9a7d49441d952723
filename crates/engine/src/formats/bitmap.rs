//! Dirty regions: which parts of a volume may differ from the peer's. One bit per [`REGION_BYTES`].
//!
//! In memory they are exact. On disk, in cells of [`REGIONS_PER_CELL`] bits, stands what is not covered by the activity
//! log: bits are stored before an extent leaves the log, before anything is undone or discarded, and at a clean stop. A
//! stored bit that is clear in memory by now is cleared on disk later, without haste.

use alloc::vec;
use alloc::vec::Vec;

use crate::formats::cell::{BODY_BYTES, CELL_BYTES, CellKind, Rejected};
use crate::formats::codec::{FieldDecoder, FieldEncoder};
use crate::formats::identity::Confirmed;
use crate::ids::VolumeId;
use crate::injected_fault::{Fault, injected};
use crate::limits::REGION_BYTES;

/// Regions of a volume of this size; the last may be partial.
pub(crate) fn regions(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(REGION_BYTES)
}

/// First and last region of a non-empty range.
pub(crate) fn region_span(offset: u64, length: u64) -> (u64, u64) {
    debug_assert!(length > 0);
    (offset / REGION_BYTES, (offset + length - 1) / REGION_BYTES)
}

/// One volume's dirty regions. Its cost follows what is set, not what the volume could hold: a volume of 16 TiB has eight
/// million words, and a walk over a few bits looks at hardly more of them than hold one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    /// A bit for each word that is not zero.
    used: Vec<u64>,
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

/// The bits of a word that lie from `first` to `last`; the word holds some of these.
fn between(index: u64, first: u64, last: u64) -> u64 {
    let low = if index == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
    let high = if index == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
    low & high
}

impl Bitmap {
    pub fn new(size_bytes: u64) -> Bitmap {
        let words = regions(size_bytes).div_ceil(64) as usize;
        Bitmap { words: vec![0; words], used: vec![0; words.div_ceil(64)], size_bytes, set: 0 }
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn get(&self, region: u64) -> bool {
        self.words[(region / 64) as usize] >> (region % 64) & 1 != 0
    }

    /// Sets the bit; true if it was clear.
    pub fn set(&mut self, region: u64) -> bool {
        assert!(region < regions(self.size_bytes), "region past the volume's end");
        let was_clear = !self.get(region);
        self.put(region / 64, self.words[(region / 64) as usize] | 1 << (region % 64));
        was_clear
    }

    pub fn clear(&mut self, region: u64) {
        self.put(region / 64, self.words[(region / 64) as usize] & !(1 << (region % 64)));
    }

    pub fn set_all(&mut self) {
        for index in 0..self.words.len() as u64 {
            self.put(index, self.within(index));
        }
    }

    /// The word becomes this one.
    fn put(&mut self, index: u64, new: u64) {
        let word = &mut self.words[index as usize];
        self.set = self.set + u64::from(new.count_ones()) - u64::from(word.count_ones());
        *word = new;
        let (used, bit) = (&mut self.used[(index / 64) as usize], 1 << (index % 64));
        *used = if new == 0 { *used & !bit } else { *used | bit };
    }

    /// The bits of a word that lie in the volume.
    fn within(&self, index: u64) -> u64 {
        let count = regions(self.size_bytes);
        if (index + 1) * 64 > count { !(u64::MAX << (count % 64)) } else { u64::MAX }
    }

    /// The first dirty region at or after `from`.
    pub fn next_set(&self, from: u64) -> Option<u64> {
        let index = from / 64;
        let word = self.words.get(index as usize)? & (u64::MAX << (from % 64));
        if word != 0 {
            return Some(index * 64 + u64::from(word.trailing_zeros()));
        }
        let index = next_bit(&self.used, index + 1)?;
        Some(index * 64 + u64::from(self.words[index as usize].trailing_zeros()))
    }

    /// Bytes of dirty regions, the partial tail counted as what it holds.
    pub fn dirty_bytes(&self) -> u64 {
        let count = regions(self.size_bytes);
        let tail_missing = count * REGION_BYTES - self.size_bytes;
        let tail_set = count > 0 && self.get(count - 1);
        self.set * REGION_BYTES - if tail_set { tail_missing } else { 0 }
    }

    /// Bytes of the regions that are dirty in both.
    pub fn common_bytes(&self, other: &Bitmap) -> u64 {
        let mut both = Bitmap::new(self.size_bytes);
        self.used_words().for_each(|index| both.put(index, self.words[index as usize] & other.words[index as usize]));
        both.dirty_bytes()
    }

    /// The words that are not zero.
    fn used_words(&self) -> impl Iterator<Item = u64> {
        core::iter::successors(next_bit(&self.used, 0), |index| next_bit(&self.used, index + 1))
    }

    pub fn is_clean(&self) -> bool {
        self.set == 0
    }
}

/// Format versions: 3 carries what the peer confirmed beside the bits that are clear because of it; 2 keeps the bits in cells;
/// 1 was one image, written at a clean stop. 2 and 1 were never released.
pub const VERSION: u16 = 3;
pub const KIND: CellKind = CellKind { magic: *b"FSHBITMP", version: VERSION };
/// Before the bits: volume, region size, first region, size of the volume, what the peer confirmed.
const FIXED_BYTES: usize = 88;
/// Words of bits in one cell.
const WORDS_PER_CELL: usize = (BODY_BYTES - FIXED_BYTES) / 8;
/// Regions one cell covers: 990 MiB of a volume.
pub const REGIONS_PER_CELL: u64 = WORDS_PER_CELL as u64 * 64;

/// Cells of a volume of this size.
pub(crate) fn cells(size_bytes: u64) -> u64 {
    regions(size_bytes).div_ceil(REGIONS_PER_CELL).max(1)
}

/// Bytes the bitmap file of a group needs: the cells of each volume, in their order.
pub fn file_bytes(volume_bytes: impl Iterator<Item = u64>) -> u64 {
    volume_bytes.map(cells).sum::<u64>() * CELL_BYTES
}

/// One cell of the file, read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapCell {
    pub volume: VolumeId,
    pub first_region: u64,
    /// Size of the volume when the cell was written: one that shrank since is not taken up.
    pub volume_bytes: u64,
    /// What the peer had confirmed when the cell was written: bits that are clear here may be clear because of it.
    pub confirmed: Confirmed,
    pub words: Vec<u64>,
}

impl BitmapCell {
    /// The body of a cell.
    pub fn encode(
        volume: VolumeId,
        volume_bytes: u64,
        first_region: u64,
        confirmed: Confirmed,
        words: &[u64],
    ) -> Vec<u8> {
        let mut w = FieldEncoder::default();
        w.u16(volume.0);
        w.u16(0);
        w.u32(REGION_BYTES as u32);
        w.u64(first_region);
        w.u64(volume_bytes);
        confirmed.encode(&mut w);
        words.iter().for_each(|word| w.u64(*word));
        w.0
    }

    /// # Errors
    /// [`Rejected::Damaged`] for a body that no program of this version writes.
    pub fn decode(body: &[u8]) -> Result<BitmapCell, Rejected> {
        BitmapCell::fields(&mut FieldDecoder(body)).ok_or(Rejected::Damaged)
    }

    fn fields(r: &mut FieldDecoder<'_>) -> Option<BitmapCell> {
        let (volume, zero, region_bytes, first_region) = (VolumeId(r.u16()?), r.u16()?, r.u32()?, r.u64()?);
        if zero != 0 || u64::from(region_bytes) != REGION_BYTES || !first_region.is_multiple_of(REGIONS_PER_CELL) {
            return None;
        }
        let volume_bytes = r.u64()?;
        let confirmed = Confirmed::decode(r)?;
        let words = (0..WORDS_PER_CELL).map(|_| r.u64()).collect::<Option<Vec<u64>>>()?;
        Some(BitmapCell { volume, first_region, volume_bytes, confirmed, words })
    }
}

impl Bitmap {
    /// The words of one cell; the last cell of a volume is shorter.
    pub fn cell(&self, cell: u64) -> &[u64] {
        let from = cell as usize * WORDS_PER_CELL;
        &self.words[from.min(self.words.len())..(from + WORDS_PER_CELL).min(self.words.len())]
    }

    /// Puts words in the place of a cell's; bits past the volume's end are left out.
    pub fn set_cell(&mut self, cell: u64, words: &[u64]) {
        let from = cell * WORDS_PER_CELL as u64;
        for (index, word) in (from..(self.words.len() as u64).min(from + WORDS_PER_CELL as u64)).zip(words) {
            self.put(index, word & self.within(index));
        }
    }

    /// Keeps of a cell only what is set in `words` too.
    pub fn mask_cell(&mut self, cell: u64, words: &[u64]) {
        let kept: Vec<u64> = self.cell(cell).iter().zip(words).map(|(a, b)| a & b).collect();
        self.set_cell(cell, &kept);
    }

    /// Dirty regions from `first` to `last`.
    pub fn count_in(&self, first: u64, last: u64) -> u64 {
        let words = first / 64..=last / 64;
        words.map(|index| u64::from((self.words[index as usize] & between(index, first, last)).count_ones())).sum()
    }

    /// Every bit of the range that is set here is set in `other`.
    pub fn is_within(&self, other: &Bitmap, first: u64, last: u64) -> bool {
        (first / 64..=last / 64).all(|index| {
            let left_out = index == last / 64 && index > first / 64 && injected(Fault::LastWordMasked);
            let looked_at = if left_out { 0 } else { between(index, first, last) };
            let at = index as usize;
            self.words[at] & !other.words[at] & looked_at == 0
        })
    }

    /// Sets every bit that is set in `other`, a map of the same size.
    pub fn join(&mut self, other: &Bitmap) {
        for index in other.used_words() {
            self.put(index, self.words[index as usize] | other.words[index as usize]);
        }
    }

    /// Clears every bit that is set in `other`, a map of the same size.
    pub fn leave_out(&mut self, other: &Bitmap) {
        for index in other.used_words() {
            self.put(index, self.words[index as usize] & !other.words[index as usize]);
        }
    }

    /// The same of a volume of another size: bits past its end are left out.
    pub fn resized(&self, size_bytes: u64) -> Bitmap {
        let mut resized = Bitmap::new(size_bytes);
        self.used_words().for_each(|index| resized.join_word(index, self.words[index as usize]));
        resized
    }

    /// Words of 64 regions each, lowest bit first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Sets the bits of a word that lie in the volume.
    pub fn join_word(&mut self, index: u64, word: u64) {
        if let Some(mine) = self.words.get(index as usize) {
            self.put(index, mine | (word & self.within(index)));
        }
    }
}

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
    }

    #[test]
    fn a_walk_finds_what_a_look_at_each_bit_finds() {
        let count = 64 * 64 * 3 + 17;
        let mut map = Bitmap::new(count * REGION_BYTES);
        let mut state = 9u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..2_000 {
            let region = draw(count);
            match draw(6) {
                0 | 1 => _ = map.set(region),
                2 | 3 => (region..count.min(region + 700)).for_each(|region| map.clear(region)),
                4 => map.join_word(region / 64, draw(1 << 31) << draw(33)),
                _ if draw(20) == 0 => map.set_all(),
                _ => map.mask_cell(0, &[0, u64::MAX, 0, 5]),
            }
            let from = draw(count + 100);
            assert_eq!(map.next_set(from), (from..count).find(|region| map.get(*region)));
            let (first, last) = (from.min(region), from.max(region).min(count - 1));
            let set = (first..=last).filter(|region| map.get(*region)).count() as u64;
            assert_eq!(map.count_in(first, last), set);
        }
        let set = map.count_in(0, count - 1);
        assert_eq!(map.dirty_bytes(), set * REGION_BYTES);
    }

    #[test]
    fn cells_come_back_and_bits_past_the_end_are_left_out() {
        let size = (REGIONS_PER_CELL + 70) * REGION_BYTES;
        let mut map = Bitmap::new(size);
        for region in [0, 5, REGIONS_PER_CELL - 1, REGIONS_PER_CELL, REGIONS_PER_CELL + 69] {
            map.set(region);
        }
        let mut back = Bitmap::new(size);
        for cell in 0..cells(size) {
            let confirmed = Confirmed::default();
            let body = BitmapCell::encode(VolumeId(3), size, cell * REGIONS_PER_CELL, confirmed, map.cell(cell));
            let mut padded = body.clone();
            padded.resize(BODY_BYTES, 0);
            let cell_back = BitmapCell::decode(&padded).expect("ours");
            assert_eq!((cell_back.volume, cell_back.first_region), (VolumeId(3), cell * REGIONS_PER_CELL));
            assert_eq!(cell_back.volume_bytes, size);
            back.set_cell(cell, &cell_back.words);
        }
        assert_eq!(back, map);
        back.set_cell(1, &[0, u64::MAX]);
        assert_eq!(back.dirty_bytes(), (3 + 6) * REGION_BYTES, "64 to 69 are the last six");
    }

    #[test]
    fn ranges_are_compared_within_their_bounds() {
        let mut a = Bitmap::new(300 * REGION_BYTES);
        let mut b = a.clone();
        for region in [10, 70, 200] {
            a.set(region);
        }
        b.set(70);
        assert!(a.is_within(&b, 11, 199) && !a.is_within(&b, 10, 10) && !a.is_within(&b, 64, 200));
        b.join(&a);
        assert_eq!(a, {
            b.mask_cell(0, a.cell(0));
            b
        });
    }

    /// A cell of which one field is of another program was taken for ours when the other fields were right.
    #[test]
    fn a_cell_with_one_wrong_field_is_damaged() {
        let body = |first_region| {
            let words = [0; WORDS_PER_CELL];
            BitmapCell::encode(VolumeId(3), 1 << 30, first_region, Confirmed::default(), &words)
        };
        assert!(BitmapCell::decode(&body(REGIONS_PER_CELL)).is_ok());
        assert!(BitmapCell::decode(&body(1)).is_err(), "it begins in the middle of a cell");
        for at in [2, 4] {
            let mut wrong = body(0);
            wrong[at] ^= 1;
            assert!(BitmapCell::decode(&wrong).is_err(), "byte {at}");
        }
    }
}
