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
    if let SectorFill::Stamp(write) = fill {
        for chunk in bytes.chunks_mut(32) {
            chunk[..8].copy_from_slice(&write.to_le_bytes());
            chunk[8..16].copy_from_slice(&sector.to_le_bytes());
            chunk[16..18].copy_from_slice(&(volume.0 + 1).to_le_bytes());
        }
    }
    bytes
}

/// The bytes of a run of sectors of a write.
pub fn content(fill: SectorFill, volume: VolumeId, sectors: std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((sectors.end - sectors.start) as usize * SECTOR);
    sectors.for_each(|sector| bytes.extend_from_slice(&sector_bytes(fill, volume, sector)));
    bytes
}
