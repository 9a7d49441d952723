//! Dirty regions: which parts of a volume may differ from the peer's. One bit per [`REGION_BYTES`].
//!
//! In memory while the daemon runs, on disk from a clean stop to the next start. After an unclean stop the stored bits
//! say nothing, and the group starts with every region marked for comparison.

use alloc::vec;
use alloc::vec::Vec;

use crate::codec::{Reader, Writer};
use crate::ids::{Generation, NodeId};
use crate::limits::{META_BLOCK_BYTES, REGION_BYTES};

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

    pub fn is_clean(&self) -> bool {
        self.set == 0
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"FSHBITS1");
const HEADER_BYTES: usize = META_BLOCK_BYTES as usize;

/// Bytes the bitmap file of a group needs: a header block, then each volume's bits, padded to whole blocks.
pub fn file_bytes(volume_bytes: impl Iterator<Item = u64>) -> u64 {
    let bits: u64 = volume_bytes.map(|size| regions(size).div_ceil(64) * 8).sum();
    META_BLOCK_BYTES + bits.next_multiple_of(META_BLOCK_BYTES)
}

/// All bitmaps of a group as one file image (docs/format.md).
pub fn encode_bitmaps(tag: u64, peer: NodeId, generation: Generation, maps: &[&Bitmap]) -> Vec<u8> {
    let mut body = Vec::new();
    for map in maps {
        for word in &map.words {
            body.extend_from_slice(&word.to_le_bytes());
        }
    }
    let mut w = Writer::default();
    w.u64(MAGIC);
    w.u64(tag);
    w.generation(generation);
    w.u16(peer.0);
    w.u16(maps.len() as u16);
    w.u32(REGION_BYTES as u32);
    w.u64(body.len() as u64);
    w.u32(crc32c::crc32c(&body));
    w.pad_to(HEADER_BYTES - 4);
    let crc = crc32c::crc32c(&w.0);
    w.u32(crc);
    w.0.extend_from_slice(&body);
    let padded = w.0.len().next_multiple_of(META_BLOCK_BYTES as usize);
    w.pad_to(padded);
    w.0
}

/// A whole bitmap file, before it is known to belong to anybody. Which bits are which volume's follows from their sizes,
/// in the order of the volumes: each one's bits fill whole words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapFile<'a> {
    pub tag: u64,
    pub generation: Generation,
    pub peer: NodeId,
    pub volumes: u16,
    pub region_bytes: u32,
    /// Little-endian words, the lowest bit first.
    pub bits: &'a [u8],
}

/// Why an image is not a bitmap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitmapRejected {
    /// Its header block is all zeroes: never written.
    Blank,
    HeaderDamaged,
    /// The header announces more bits than the image holds.
    CutShort,
    BitsDamaged,
}

impl<'a> BitmapFile<'a> {
    /// Reads what [`encode_bitmaps`] wrote.
    ///
    /// # Errors
    /// What is wrong with the image.
    pub fn read(image: &'a [u8]) -> Result<BitmapFile<'a>, BitmapRejected> {
        let (header, rest) = image.split_at_checked(HEADER_BYTES).ok_or(BitmapRejected::CutShort)?;
        if header.iter().all(|byte| *byte == 0) {
            return Err(BitmapRejected::Blank);
        }
        let (content, stored) = header.split_at(HEADER_BYTES - 4);
        let mut r = Reader(content);
        if r.u64() != Some(MAGIC) || Reader(stored).u32() != Some(crc32c::crc32c(content)) {
            return Err(BitmapRejected::HeaderDamaged);
        }
        let (file, length, crc) = BitmapFile::fields(&mut r).ok_or(BitmapRejected::HeaderDamaged)?;
        let length = usize::try_from(length).map_err(|_| BitmapRejected::CutShort)?;
        let bits = rest.get(..length).ok_or(BitmapRejected::CutShort)?;
        if crc32c::crc32c(bits) != crc {
            return Err(BitmapRejected::BitsDamaged);
        }
        Ok(BitmapFile { bits, ..file })
    }

    fn fields(r: &mut Reader<'_>) -> Option<(BitmapFile<'a>, u64, u32)> {
        let (tag, generation, peer) = (r.u64()?, r.generation()?, NodeId(r.u16()?));
        let (volumes, region_bytes) = (r.u16()?, r.u32()?);
        Some((BitmapFile { tag, generation, peer, volumes, region_bytes, bits: &[] }, r.u64()?, r.u32()?))
    }
}

/// The bitmaps back, if the image is whole and belongs to this group, peer and generation.
pub fn decode_bitmaps(
    image: &[u8],
    tag: u64,
    peer: NodeId,
    generation: Generation,
    sizes: &[u64],
) -> Option<Vec<Bitmap>> {
    let file = BitmapFile::read(image).ok()?;
    let ours = (file.tag, file.peer, file.generation) == (tag, peer, generation);
    if !ours || usize::from(file.volumes) != sizes.len() || u64::from(file.region_bytes) != REGION_BYTES {
        return None;
    }
    split_bits(file.bits, sizes)
}

/// The bits of volumes of these sizes; `None` when they are too few, too many, or past a volume's end.
pub fn split_bits(bits: &[u8], sizes: &[u64]) -> Option<Vec<Bitmap>> {
    let needed: u64 = sizes.iter().map(|size| regions(*size).div_ceil(64) * 8).sum();
    if bits.len() as u64 != needed {
        return None;
    }
    let mut words = bits.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("chunks of eight")));
    let mut maps = Vec::new();
    for &size in sizes {
        let mut map = Bitmap::new(size);
        for index in 0..map.words.len() {
            let mut word = words.next()?;
            while word != 0 {
                let region = index as u64 * 64 + u64::from(word.trailing_zeros());
                if region >= regions(size) {
                    return None;
                }
                map.set(region);
                word &= word - 1;
            }
        }
        maps.push(map);
    }
    words.next().is_none().then_some(maps)
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
    fn an_image_comes_back_only_for_its_own_group_and_whole() {
        let generation = Generation { number: 2, tag: 9 };
        let mut a = Bitmap::new(100 * REGION_BYTES);
        let mut b = Bitmap::new(700 * REGION_BYTES);
        a.set(99);
        b.set(0);
        b.set(640);
        let sizes = [100 * REGION_BYTES, 700 * REGION_BYTES];
        let image = encode_bitmaps(5, NodeId(1), generation, &[&a, &b]);
        assert_eq!(image.len() as u64, file_bytes(sizes.into_iter()));
        assert_eq!(decode_bitmaps(&image, 5, NodeId(1), generation, &sizes), Some(vec![a, b]));
        assert_eq!(decode_bitmaps(&image, 6, NodeId(1), generation, &sizes), None);
        assert_eq!(decode_bitmaps(&image, 5, NodeId(2), generation, &sizes), None);
        for at in [0, 40, HEADER_BYTES + 1] {
            let mut bad = image.clone();
            bad[at] ^= 1;
            assert_eq!(decode_bitmaps(&bad, 5, NodeId(1), generation, &sizes), None, "byte {at}");
        }
    }
}
