//! Dirty regions: which parts of a volume may differ from the peer's. One bit per [`REGION_BYTES`].
//!
//! In memory they are exact. On disk, in cells of [`REGIONS_PER_CELL`] bits, stands what is not covered by the activity
//! log: bits are stored before an extent leaves the log, before anything is undone or discarded, and at a clean stop. A
//! stored bit that is clear in memory by now is cleared on disk later, without haste.

use alloc::vec;
use alloc::vec::Vec;

use crate::cell::{BODY_BYTES, CELL_BYTES, Kind, Rejected};
use crate::codec::{Reader, Writer};
use crate::identity::Confirmed;
use crate::ids::VolumeId;
use crate::limits::REGION_BYTES;
use crate::planted::{Fault, planted};

/// Regions of a volume of this size; the last may be partial.
pub(crate) fn regions(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(REGION_BYTES)
}

/// First and last region of a non-empty range.
pub(crate) fn region_span(offset: u64, length: u64) -> (u64, u64) {
    debug_assert!(length > 0);
    (offset / REGION_BYTES, (offset + length - 1) / REGION_BYTES)
}

/// One volume's dirty regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    size_bytes: u64,
    set: u64,
}

impl Bitmap {
    pub fn new(size_bytes: u64) -> Bitmap {
        Bitmap { words: vec![0; regions(size_bytes).div_ceil(64) as usize], size_bytes, set: 0 }
    }

    pub fn get(&self, region: u64) -> bool {
        self.words[(region / 64) as usize] >> (region % 64) & 1 != 0
    }

    /// Sets the bit; true if it was clear.
    pub fn set(&mut self, region: u64) -> bool {
        assert!(region < regions(self.size_bytes), "region past the volume's end");
        let word = &mut self.words[(region / 64) as usize];
        let bit = 1u64 << (region % 64);
        let was_clear = *word & bit == 0;
        *word |= bit;
        self.set += u64::from(was_clear);
        was_clear
    }

    pub fn clear(&mut self, region: u64) {
        let word = &mut self.words[(region / 64) as usize];
        let bit = 1u64 << (region % 64);
        self.set -= u64::from(*word & bit != 0);
        *word &= !bit;
    }

    pub fn set_all(&mut self) {
        for region in 0..regions(self.size_bytes) {
            self.set(region);
        }
    }

    /// The first dirty region at or after `from`.
    pub fn next_set(&self, from: u64) -> Option<u64> {
        let mut index = (from / 64) as usize;
        let mut word = *self.words.get(index)? & (u64::MAX << (from % 64));
        loop {
            if word != 0 {
                return Some(index as u64 * 64 + u64::from(word.trailing_zeros()));
            }
            index += 1;
            word = *self.words.get(index)?;
        }
    }

    /// Bytes of dirty regions, the partial tail counted as what it holds.
    pub fn dirty_bytes(&self) -> u64 {
        let count = regions(self.size_bytes);
        let tail_missing = count * REGION_BYTES - self.size_bytes;
        let tail_set = count > 0 && self.get(count - 1);
        self.set * REGION_BYTES - if tail_set { tail_missing } else { 0 }
    }

    /// Bytes of the regions that both mark.
    pub fn common_bytes(&self, other: &Bitmap) -> u64 {
        let mut both = Bitmap::new(self.size_bytes);
        for (index, (a, b)) in self.words.iter().zip(&other.words).enumerate() {
            both.words[index] = a & b;
            both.set += u64::from((a & b).count_ones());
        }
        both.dirty_bytes()
    }

    pub fn is_clean(&self) -> bool {
        self.set == 0
    }
}

/// Format versions: 3 carries what the peer confirmed beside the bits that are clear because of it; 2 keeps the bits in cells;
/// 1 was one image, written at a clean stop. 2 and 1 were never released.
pub const VERSION: u16 = 3;
pub const KIND: Kind = Kind { magic: *b"FSHBITMP", version: VERSION };
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
        let mut w = Writer::default();
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
        BitmapCell::fields(&mut Reader(body)).ok_or(Rejected::Damaged)
    }

    fn fields(r: &mut Reader<'_>) -> Option<BitmapCell> {
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
        let from = cell as usize * WORDS_PER_CELL;
        let last = self.words.len().wrapping_sub(1);
        let count = regions(self.size_bytes);
        for (at, word) in (from..self.words.len().min(from + WORDS_PER_CELL)).zip(words) {
            let spare = if at == last && !count.is_multiple_of(64) { u64::MAX << (count % 64) } else { 0 };
            let new = word & !spare;
            self.set = self.set + u64::from(new.count_ones()) - u64::from(self.words[at].count_ones());
            self.words[at] = new;
        }
    }

    /// Keeps of a cell only what is set in `words` too.
    pub fn mask_cell(&mut self, cell: u64, words: &[u64]) {
        let kept: Vec<u64> = self.cell(cell).iter().zip(words).map(|(a, b)| a & b).collect();
        self.set_cell(cell, &kept);
    }

    /// Every bit of the range that is set here is set in `other`.
    pub fn is_within(&self, other: &Bitmap, first: u64, last: u64) -> bool {
        (first / 64..=last / 64).all(|index| {
            let low = if index == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
            let high = if index == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
            let left_out = index == last / 64 && index > first / 64 && planted(Fault::LastWordMasked);
            let high = if left_out { 0 } else { high };
            let at = index as usize;
            self.words[at] & !other.words[at] & low & high == 0
        })
    }

    /// Sets every bit that is set in `other`, a map of the same size.
    pub fn join(&mut self, other: &Bitmap) {
        for region in 0..self.words.len() {
            let new = self.words[region] | other.words[region];
            self.set += u64::from((new ^ self.words[region]).count_ones());
            self.words[region] = new;
        }
    }

    /// Words of 64 regions each, lowest bit first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Sets the bits of a word that lie in the volume.
    pub fn join_word(&mut self, index: u64, word: u64) {
        let count = regions(self.size_bytes);
        let Some(mine) = self.words.get_mut(index as usize) else { return };
        let spare = if (index + 1) * 64 > count { u64::MAX << (count % 64) } else { 0 };
        let new = *mine | (word & !spare);
        self.set += u64::from((new ^ *mine).count_ones());
        *mine = new;
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
}
