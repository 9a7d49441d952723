//! What clients' writes leave on a disk: each sector says which write it is of, and where it belongs.

use engine::VolumeId;

/// In bytes.
pub const SECTOR: usize = 512;

/// What a request leaves in each of its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorFill {
    Stamp(u64),
    Zero,
}

/// The bytes of one sector of a write.
pub fn sector_bytes(fill: SectorFill, volume: VolumeId, sector: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    stamp(fill, volume, sector, &mut bytes);
    bytes
}

/// Makes zeroes that sector.
fn stamp(fill: SectorFill, volume: VolumeId, sector: u64, zeroes: &mut [u8]) {
    let SectorFill::Stamp(write) = fill else { return };
    for chunk in zeroes.chunks_exact_mut(32) {
        chunk[..8].copy_from_slice(&write.to_le_bytes());
        chunk[8..16].copy_from_slice(&sector.to_le_bytes());
        chunk[16..18].copy_from_slice(&(volume.0 + 1).to_le_bytes());
    }
}

/// The bytes of a run of sectors of a write.
pub fn content(fill: SectorFill, volume: VolumeId, sectors: std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (sectors.end - sectors.start) as usize * SECTOR];
    for (sector, zeroes) in sectors.zip(bytes.chunks_exact_mut(SECTOR)) {
        stamp(fill, volume, sector, zeroes);
    }
    bytes
}
