//! A volume of which little is written: its *image* is the places that clients write to, one after the other. So nothing
//! here costs the volume's length. What the engine writes elsewhere has to be zeroes.

use std::ops::Range;

use engine::limits::REGION_BYTES;

use crate::payload::{hash, is_zero};
use crate::stamps::SECTOR;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// Where clients write: places in order, whole sectors, not touching. All else is zeroes.
#[derive(Debug)]
pub struct WriteSpread {
    spans: Vec<Range<u64>>,
    /// The image's byte with which each of them begins.
    begins: Vec<u64>,
    image_bytes: u64,
    /// Each region that a place lies in, and its part of the image.
    regions: Vec<(u64, Range<usize>)>,
}

impl WriteSpread {
    /// Places that overlap or touch are joined.
    pub fn new(mut ranges: Vec<Range<u64>>) -> WriteSpread {
        ranges.retain(|offset_of| !offset_of.is_empty());
        ranges.sort_by_key(|offset_of| offset_of.start);
        let mut spans: Vec<Range<u64>> = Vec::new();
        for offset_of in ranges {
            assert!(offset_of.start.is_multiple_of(SECTOR_BYTES) && offset_of.end.is_multiple_of(SECTOR_BYTES));
            match spans.last_mut() {
                Some(last) if offset_of.start <= last.end => last.end = last.end.max(offset_of.end),
                _ => spans.push(offset_of),
            }
        }
        let (mut begins, mut regions, mut at) = (Vec::new(), Vec::new(), 0);
        for span in &spans {
            begins.push(at);
            let mut from = span.start;
            while from < span.end {
                let to = ((from / REGION_BYTES + 1) * REGION_BYTES).min(span.end);
                let part = (at + from - span.start) as usize..(at + to - span.start) as usize;
                regions.push((from / REGION_BYTES, part));
                from = to;
            }
            at += span.end - span.start;
        }
        WriteSpread { spans, begins, image_bytes: at, regions }
    }

    pub fn image_bytes(&self) -> u64 {
        self.image_bytes
    }

    pub fn spans(&self) -> &[Range<u64>] {
        &self.spans
    }

    pub fn regions(&self) -> &[(u64, Range<usize>)] {
        &self.regions
    }

    /// The image's bytes that lie before this byte of the volume.
    fn before(&self, offset: u64) -> u64 {
        let Some(at) = self.spans.partition_point(|span| span.start < offset).checked_sub(1) else { return 0 };
        self.begins[at] + offset.min(self.spans[at].end) - self.spans[at].start
    }

    /// What a range of the volume has of the image; places that it covers whole lie side by side there.
    pub fn image(&self, offset: u64, length: u64) -> Range<u64> {
        self.before(offset)..self.before(offset + length)
    }

    /// The byte of the volume that a byte of the image stands for.
    pub fn offset_of(&self, image: u64) -> u64 {
        let at = self.begins.partition_point(|begin| *begin <= image) - 1;
        self.spans[at].start + image - self.begins[at]
    }

    /// How much of a length fits into the place from that byte of the image on.
    pub fn fit(&self, image: u64, length: u64) -> u64 {
        let at = self.begins.partition_point(|begin| *begin <= image) - 1;
        length.min(self.begins[at] + self.spans[at].end - self.spans[at].start - image)
    }

    /// The pieces of a range of the volume that lie in places: where in the range, and how long.
    fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = Range<usize>> {
        let first = self.spans.partition_point(|span| span.end <= offset);
        let inside = self.spans[first..].iter().take_while(move |span| span.start < offset + length);
        inside.map(move |span| {
            let (from, to) = (span.start.max(offset), span.end.min(offset + length));
            (from - offset) as usize..(to - offset) as usize
        })
    }

    /// What data written there leaves in the image; `None`: it is not zeroes where nobody writes.
    pub fn folded(&self, offset: u64, data: &[u8]) -> Option<Vec<u8>> {
        let (mut image, mut end) = (Vec::new(), 0);
        for piece in self.pieces(offset, data.len() as u64) {
            if !is_zero(&data[end..piece.start]) {
                return None;
            }
            image.extend_from_slice(&data[piece.clone()]);
            end = piece.end;
        }
        is_zero(&data[end..]).then_some(image)
    }

    /// A hash of the range of which that is the image's part: where in the range something stands, and what.
    pub fn hash(&self, offset: u64, length: u64, image: &[u8]) -> [u8; 32] {
        let (mut content, mut at) = (length.to_le_bytes().to_vec(), 0);
        for piece in self.pieces(offset, length) {
            for from in piece.step_by(SECTOR) {
                let sector = &image[at..at + SECTOR];
                at += SECTOR;
                if !is_zero(sector) {
                    content.extend_from_slice(&(from as u64).to_le_bytes());
                    content.extend_from_slice(sector);
                }
            }
        }
        hash(&content)
    }

    /// The range of the volume of which that is the image's part.
    pub fn unfolded(&self, offset: u64, length: u64, image: &[u8]) -> Vec<u8> {
        let (mut data, mut at) = (vec![0; length as usize], 0);
        for piece in self.pieces(offset, length) {
            let bytes = piece.len();
            data[piece].copy_from_slice(&image[at..at + bytes]);
            at += bytes;
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TIB;

    #[test]
    fn a_range_of_the_volume_is_a_range_of_the_image_and_back() {
        let spread = WriteSpread::new(vec![4096..8192, 0..512, TIB..TIB + 1024, 8192..8704]);
        assert_eq!(spread.spans(), [0..512, 4096..8704, TIB..TIB + 1024]);
        assert_eq!(spread.image_bytes(), 512 + 4608 + 1024);
        assert_eq!(spread.image(0, 4096), 0..512);
        assert_eq!(spread.image(4608, 2 * TIB), 1024..6144);
        assert_eq!((spread.offset_of(511), spread.offset_of(512), spread.offset_of(5120)), (511, 4096, TIB));
        assert_eq!((spread.fit(5120, 4096), spread.fit(512, 512)), (1024, 512));
        let mut data = vec![0; 8192];
        (data[0], data[511], data[4096]) = (1, 2, 3);
        let image = spread.folded(0, &data).expect("only where clients write");
        assert_eq!((image[0], image[511], image[512]), (1, 2, 3));
        assert_eq!(spread.unfolded(0, 8192, &image), data);
        data[600] = 1;
        assert_eq!(spread.folded(0, &data), None, "nobody writes there");
    }

    #[test]
    fn regions_are_cut_where_the_volume_has_them() {
        let spread = WriteSpread::new(vec![0..512, 2 * REGION_BYTES - 512..2 * REGION_BYTES + 1024]);
        assert_eq!(spread.regions(), [(0, 0..512), (1, 512..1024), (2, 1024..2048)]);
    }
}
