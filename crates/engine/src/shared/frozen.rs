//! A volume's part in a cut: which regions were dirty at its mark, and which were touched since.

use crate::formats::bitmap::Bitmap;
use crate::limits::REGION_BYTES;
use crate::planted::{Fault, planted};
use crate::shared::volume::Volume;

/// A volume's part in a cut: two bits per region, only while a cut is under way.
#[derive(Debug)]
pub(crate) struct FrozenBits {
    /// Of the cut, and not read yet.
    unshipped: Bitmap,
    /// Touched since the freeze: what stays dirty when the cut is done.
    written: Bitmap,
}

impl FrozenBits {
    pub fn touch(&mut self, region: u64) {
        self.written.set(region);
    }
}

impl Volume {
    /// A cut begins: what is dirty now belongs to it.
    pub fn freeze(&mut self) {
        let written = Bitmap::new(self.config.size_bytes);
        self.cut = Some(FrozenBits { unshipped: self.dirty.clone(), written });
    }

    /// The cut is applied at the peer: only what was touched since the freeze may differ.
    pub fn end_cut(&mut self) {
        let Some(bits) = self.cut.take() else { return };
        self.doubt = None;
        let mut from = 0;
        while let Some(region) = self.dirty.next_set(from) {
            if !bits.written.get(region) || planted(Fault::CutClearsAll) {
                self.dirty.clear(region);
            }
            from = region + 1;
        }
    }

    pub fn written_bytes(&self) -> u64 {
        self.cut.as_ref().map_or(0, |bits| bits.written.dirty_bytes())
    }

    pub fn all_shipped(&self) -> bool {
        self.cut.as_ref().is_none_or(|bits| bits.unshipped.is_clean())
    }

    /// The first run of regions at or after `from` that can be read now, at most `longest` bytes; `to`: not beyond this
    /// region. A region that is being written is passed over.
    pub fn next_of_cut(&self, from: u64, to: u64, longest: u64) -> Option<(u64, u64)> {
        let bits = self.cut.as_ref()?;
        let size = self.config.size_bytes;
        let ready = |region: u64| {
            let start = region * REGION_BYTES;
            start < size
                && region <= to
                && bits.unshipped.get(region)
                && !self.is_busy(start, REGION_BYTES.min(size - start))
        };
        let mut first = bits.unshipped.next_set(from).filter(|region| *region <= to)?;
        while !ready(first) {
            first = bits.unshipped.next_set(first + 1).filter(|region| *region <= to)?;
        }
        let mut next = first + 1;
        while (next + 1 - first) * REGION_BYTES <= longest && ready(next) {
            next += 1;
        }
        Some((first, next))
    }

    pub fn take_for_cut(&mut self, first: u64, next: u64) {
        let Some(bits) = self.cut.as_mut() else { return };
        (first..next).for_each(|region| bits.unshipped.clear(region));
    }

    pub fn unshipped_in(&self, first: u64, last: u64) -> u64 {
        self.cut.as_ref().map_or(0, |bits| bits.unshipped.count_in(first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VolumeConfig;
    use crate::ids::Seq;

    const R: u64 = REGION_BYTES;

    fn volume() -> Volume {
        Volume::new(VolumeConfig { size_bytes: 8 * R, block_bytes: 4096, changed_outside: false })
    }

    #[test]
    fn bits_of_a_cut_clear_at_its_end_but_for_what_was_written_since() {
        let mut v = volume();
        v.mark_write(0, 2 * R, Seq(1), false);
        v.freeze();
        v.mark_write(R, 512, Seq(2), false);
        v.mark_write(5 * R, 512, Seq(3), false);
        v.mark_uncovered(7 * R, 512);
        assert_eq!(v.written_bytes(), 3 * R);
        v.end_cut();
        let dirty: alloc::vec::Vec<u64> = (0..8).filter(|region| v.dirty.get(*region)).collect();
        assert_eq!(dirty, [1, 5, 7]);
    }

    #[test]
    fn the_walk_takes_runs_and_passes_over_what_is_being_written() {
        let mut v = volume();
        v.mark_write(0, 6 * R, Seq(1), false);
        v.freeze();
        v.occupy(9, 2 * R, 512, Seq(1), true);
        assert_eq!(v.next_of_cut(0, u64::MAX, 8 * R), Some((0, 2)));
        assert_eq!(v.next_of_cut(0, u64::MAX, R), Some((0, 1)));
        v.take_for_cut(0, 2);
        assert_eq!(v.next_of_cut(0, u64::MAX, 8 * R), Some((3, 6)));
        assert_eq!(v.next_of_cut(0, 2, 8 * R), None, "nothing up to there can be read now");
        v.take_for_cut(3, 6);
        v.release(9);
        assert_eq!((v.unshipped_in(0, 7), v.all_shipped()), (1, false));
        assert_eq!(v.next_of_cut(0, u64::MAX, 8 * R), Some((2, 3)));
    }
}
