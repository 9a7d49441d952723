//! Dirty regions: which parts of a volume may differ from the peer's. One bit per [`REGION_BYTES`].
//!
//! In memory they are exact. On disk, in cells of [`REGIONS_PER_CELL`] bits, stands what is not covered by the activity
//! log: bits are stored before an extent leaves the log, before anything is undone or discarded, and at a clean stop. A
//! stored bit that is clear in memory by now is cleared on disk later, without haste.

mod regions;

use alloc::vec::Vec;

use crate::formats::cell::{BODY_BYTES, CELL_BYTES, CellKind, Rejected};
use crate::formats::codec::{FieldDecoder, FieldEncoder};
use crate::formats::identity::Confirmed;
use crate::ids::VolumeId;
use crate::limits::REGION_BYTES;

pub use regions::Bitmap;

/// Regions of a volume of this size; the last may be partial.
pub(crate) fn regions(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(REGION_BYTES)
}

/// First and last region of a non-empty range.
pub(crate) fn region_span(offset: u64, length: u64) -> (u64, u64) {
    debug_assert!(length > 0);
    (offset / REGION_BYTES, (offset + length - 1) / REGION_BYTES)
}

/// The words that hold the bits from `first` to `last`, and which of their bits these are.
pub(crate) fn words_between(first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> {
    (first / 64..=last / 64).map(move |index| {
        let low = if index == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
        let high = if index == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
        (index, low & high)
    })
}

/// Format versions: 4 has a bit for each 4 KiB, where 3 had one for each 32 KiB; 3 carries what the peer confirmed beside the bits that
/// are clear because of it; 2 keeps the bits in cells; 1 was one image, written at a clean stop. 3, 2 and 1 were never released.
pub const VERSION: u16 = 4;
pub const KIND: CellKind = CellKind { magic: *b"FSHBITMP", version: VERSION, oldest: VERSION };
/// Before the bits: volume, region size, first region, size of the volume, what the peer confirmed.
const FIXED_BYTES: usize = 88;
/// Words of bits in one cell.
const WORDS_PER_CELL: usize = (BODY_BYTES - FIXED_BYTES) / 8;
/// Regions one cell covers: 123.75 MiB of a volume.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_come_back_and_bits_past_the_end_are_left_out() {
        let size = (REGIONS_PER_CELL + 70) * REGION_BYTES;
        let mut map = Bitmap::new(size);
        for region in [0, 5, 8, REGIONS_PER_CELL - 1, REGIONS_PER_CELL, REGIONS_PER_CELL + 69] {
            map.set(region);
        }
        let mut back = Bitmap::new(size);
        for cell in 0..cells(size) {
            let (first, words) = (cell * REGIONS_PER_CELL, map.cell(cell));
            let body = BitmapCell::encode(VolumeId(3), size, first, Confirmed::default(), &words);
            let mut padded = body.clone();
            padded.resize(BODY_BYTES, 0);
            let cell_back = BitmapCell::decode(&padded).expect("ours");
            assert_eq!((cell_back.volume, cell_back.first_region), (VolumeId(3), first));
            assert_eq!(cell_back.volume_bytes, size);
            back.set_cell(cell, &cell_back.words);
        }
        assert_eq!(back, map);
        back.set_cell(1, &[u64::MAX; 2]);
        assert_eq!(back.dirty_bytes(), (4 + 70) * REGION_BYTES);
    }

    /// A cell of which one field is of another program was taken for ours when the other fields were right.
    #[test]
    fn a_cell_with_one_wrong_field_is_damaged() {
        let body = |first_region| {
            let words = [0; WORDS_PER_CELL];
            BitmapCell::encode(VolumeId(3), 1 << 30, first_region, Confirmed::default(), &words)
        };
        assert!(BitmapCell::decode(&body(REGIONS_PER_CELL)).is_ok());
        assert!(BitmapCell::decode(&body(64)).is_err(), "it begins in the middle of a cell");
        for at in [2, 4] {
            let mut wrong = body(0);
            wrong[at] ^= 1;
            assert!(BitmapCell::decode(&wrong).is_err(), "byte {at}");
        }
    }
}
