//! Silent rot of volumes: a comparison reads something else in a sector than was written there, until somebody writes it anew. Whatever
//! else reads the sector mends it: so the images that other checkers look at, and what a sync carries over, are what was written.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::Store;

use crate::stamps::SECTOR;

/// A sector that rotted.
#[derive(Clone, Copy, Debug)]
pub struct RottenSector {
    pub since: u64,
    pub mended: Option<u64>,
    salt: u8,
}

impl RottenSector {
    pub fn stands(&self) -> bool {
        self.mended.is_none()
    }
}

/// The sectors of a node's volumes that rotted, mended or not.
#[derive(Default)]
pub struct VolumeRot(BTreeMap<(Store, u64), RottenSector>);

impl VolumeRot {
    /// The sector rots. No two of them rot alike.
    pub fn plant(&mut self, store: Store, sector: u64, now: u64) {
        let salt = self.0.len() as u8 % 100 + 1;
        self.0.insert((store, sector), RottenSector { since: now, mended: None, salt });
    }

    pub fn of(&self, store: Store) -> impl Iterator<Item = (u64, &RottenSector)> {
        self.0.range((store, 0)..=(store, u64::MAX)).map(|((_, sector), rot)| (*sector, rot))
    }

    /// These bytes are written, or read by somebody who goes by them.
    pub fn mend(&mut self, store: Store, bytes: Range<u64>, now: u64) {
        let sectors = bytes.start / SECTOR as u64..bytes.end.div_ceil(SECTOR as u64);
        let struck = self.0.range_mut((store, sectors.start)..(store, sectors.end));
        struck.filter(|(_, rot)| rot.stands()).for_each(|(_, rot)| rot.mended = Some(now));
    }

    /// What a comparison reads from `from` on.
    pub fn shows(&self, store: Store, from: u64, data: &mut [u8]) {
        let first = from / SECTOR as u64;
        let sectors = first..first + (data.len() / SECTOR) as u64;
        let struck = self.0.range((store, sectors.start)..(store, sectors.end)).filter(|(_, rot)| rot.stands());
        struck.for_each(|((_, sector), rot)| data[(sector - first) as usize * SECTOR + 7] ^= rot.salt);
    }
}
