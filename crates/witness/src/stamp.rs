//! What a writer puts into every sector, so that the sector can speak for itself.
//!
//! | byte | field |
//! |---|---|
//! | 0 | magic, 8 bytes |
//! | 8 | check over bytes 0-7 and 16-511 |
//! | 16 | run |
//! | 24 | writer (u32), 28 volume (u32) |
//! | 32 | number of the write, counted per writer from 1 |
//! | 40 | tick of the issue: its position in the order in which all writers issued and were acknowledged |
//! | 48 | sector of the volume that this sector was written to |
//! | 56 | sectors in the write (u32), 60 index of this one among them (u32) |
//! | 64 | filler that differs from sector to sector and does not compress |
//!
//! All numbers are little-endian.

use std::fmt;

use crate::hash::{hash, mix};

/// The unit that a disk writes whole, or so it says.
pub const SECTOR_BYTES: usize = 512;
const MAGIC: [u8; 8] = *b"WITNESS1";
const FILLER_AT: usize = 64;

/// One run of the writers: a sector of another run is foreign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeNumber(pub u32);

/// A write's name: who, and the how-manieth of that writer, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteName {
    pub writer: WriterId,
    pub number: u64,
}

impl fmt::Display for WriteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write {} of writer {}", self.number, self.writer.0)
    }
}

/// The contents of one sector's stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectorStamp {
    pub run: RunId,
    pub name: WriteName,
    pub volume: VolumeNumber,
    pub issued: u64,
    /// Where on the volume this very sector belongs.
    pub sector: u64,
    pub sectors: u32,
    pub index: u32,
}

/// What a sector turned out to be, before anyone asked whether it ought to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorReading {
    /// No magic: base, or garbage.
    Unstamped,
    /// A stamp whose check does not hold: torn inside the sector, or rotten. What it says may be wrong too.
    Damaged(SectorStamp),
    Stamped(SectorStamp),
}

impl SectorStamp {
    /// Fill `sector`, which must be [`SECTOR_BYTES`] long.
    pub fn write(&self, sector: &mut [u8]) {
        assert_eq!(sector.len(), SECTOR_BYTES, "a stamp fills one sector");
        sector[..8].copy_from_slice(&MAGIC);
        for (at, value) in [(16, self.run.0), (32, self.name.number), (40, self.issued), (48, self.sector)] {
            sector[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        for (at, value) in [(24, self.name.writer.0), (28, self.volume.0), (56, self.sectors), (60, self.index)] {
            sector[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let mut seed = mix(self.issued ^ mix(self.run.0 ^ u64::from(self.index)));
        for word in sector[FILLER_AT..].chunks_exact_mut(8) {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&mix(seed).to_le_bytes());
        }
        let check = check_of(sector);
        sector[8..16].copy_from_slice(&check.to_le_bytes());
    }

    /// What `sector`, which must be [`SECTOR_BYTES`] long, says of itself.
    pub fn read(sector: &[u8]) -> SectorReading {
        assert_eq!(sector.len(), SECTOR_BYTES, "a stamp fills one sector");
        if sector[..8] != MAGIC {
            return SectorReading::Unstamped;
        }
        let long = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().expect("eight bytes"));
        let short = |at: usize| u32::from_le_bytes(sector[at..at + 4].try_into().expect("four bytes"));
        let stamp = SectorStamp {
            run: RunId(long(16)),
            name: WriteName { writer: WriterId(short(24)), number: long(32) },
            volume: VolumeNumber(short(28)),
            issued: long(40),
            sector: long(48),
            sectors: short(56),
            index: short(60),
        };
        if check_of(sector) == long(8) { SectorReading::Stamped(stamp) } else { SectorReading::Damaged(stamp) }
    }
}

/// The check goes over everything but itself.
fn check_of(sector: &[u8]) -> u64 {
    hash(&sector[16..]) ^ mix(hash(&sector[..8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> SectorStamp {
        SectorStamp {
            run: RunId(7),
            name: WriteName { writer: WriterId(3), number: 41 },
            volume: VolumeNumber(2),
            issued: 900,
            sector: 77,
            sectors: 8,
            index: 5,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut sector = [0_u8; SECTOR_BYTES];
        stamp().write(&mut sector);
        assert_eq!(SectorStamp::read(&sector), SectorReading::Stamped(stamp()));
        assert_eq!(SectorStamp::read(&[0; SECTOR_BYTES]), SectorReading::Unstamped);
    }

    #[test]
    fn a_flipped_bit_is_never_a_good_stamp() {
        let mut sector = [0_u8; SECTOR_BYTES];
        stamp().write(&mut sector);
        for bit in 0..SECTOR_BYTES * 8 {
            sector[bit / 8] ^= 1 << (bit % 8);
            let reading = SectorStamp::read(&sector);
            assert!(!matches!(reading, SectorReading::Stamped(_)), "bit {bit}");
            assert_eq!(bit < 64, reading == SectorReading::Unstamped, "bit {bit}");
            sector[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_sector_of_two_halves_is_damaged() {
        let mut sector = [0_u8; SECTOR_BYTES];
        let mut newer = [0_u8; SECTOR_BYTES];
        stamp().write(&mut sector);
        SectorStamp { issued: 901, ..stamp() }.write(&mut newer);
        sector[256..].copy_from_slice(&newer[256..]);
        assert!(matches!(SectorStamp::read(&sector), SectorReading::Damaged(_)));
    }
}
