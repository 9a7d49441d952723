//! What whoever opens a view of a copy is told, and gets.

use alloc::vec::Vec;

use crate::Slice;
use crate::ids::{Position, VolumeSet};
use crate::time::Wall;

/// A view that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedView {
    /// The image is exactly what the order had written up to here.
    pub position: Position,
    /// The primary's time of that position.
    pub wall: Wall,
    /// Of the volumes, in their order, as the group has them at the opening.
    pub volume_bytes: Vec<u64>,
    /// Volumes that are no part of the image: they were set aside, or have no device here, or one that nobody filled.
    pub without: VolumeSet,
    /// The image is the one before the sync under way, and the view ends with that sync at the latest.
    pub before_sync: bool,
}

/// A part of what a view holds.
#[derive(Clone, Debug)]
pub enum ViewPart {
    Data(Slice),
    /// So many zeroes.
    Zeroes(u64),
}

impl ViewPart {
    pub fn length(&self) -> u64 {
        match self {
            ViewPart::Data(slice) => u64::from(slice.length),
            ViewPart::Zeroes(length) => *length,
        }
    }
}
