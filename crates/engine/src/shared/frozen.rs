//! A volume's part in a snapshot: which regions were dirty at its mark, and which were touched since.

use crate::formats::bitmap::Bitmap;

/// A volume's part in a snapshot: two bits per region, only while a snapshot is under way.
#[derive(Debug)]
pub(crate) struct FrozenBits {
    unshipped: Bitmap,
    written: Bitmap,
}

impl FrozenBits {
    /// A snapshot begins: what is dirty now belongs to it.
    pub fn new(dirty: &Bitmap, size_bytes: u64) -> FrozenBits {
        FrozenBits { unshipped: dirty.clone(), written: Bitmap::new(size_bytes) }
    }

    /// Of the snapshot, and not read yet.
    pub fn unshipped(&self) -> &Bitmap {
        &self.unshipped
    }

    /// Touched since the freeze: what stays dirty when the snapshot is done.
    pub fn written(&self) -> &Bitmap {
        &self.written
    }

    pub fn take(&mut self, first: u64, next: u64) {
        (first..next).for_each(|region| self.unshipped.clear(region));
    }

    pub fn touch(&mut self, region: u64) {
        self.written.set(region);
    }
}
