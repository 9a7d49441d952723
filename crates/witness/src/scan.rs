//! Reading an image: every sector becomes the index of the write it came from, or the base, or a violation.

use std::collections::HashMap;
use std::io::{self, Read};

use crate::log::RecordedWrite;
use crate::stamp::{RunId, SECTOR_BYTES, SectorReading, SectorStamp, VolumeNumber, WriteName};
use crate::verdict::{SectorPosition, Violation};

const SECTOR: u64 = SECTOR_BYTES as u64;
const CHUNK_BYTES: usize = 1 << 20;
/// A sector that holds what was there before any write.
pub(crate) const BASE: u32 = u32::MAX;

/// The writes of a run, sorted by issue and found by name.
pub(crate) struct Known {
    pub(crate) run: RunId,
    pub(crate) writes: Vec<RecordedWrite>,
    names: HashMap<WriteName, u32>,
}

impl Known {
    pub(crate) fn new(run: RunId, mut writes: Vec<RecordedWrite>) -> Self {
        assert!(writes.len() < BASE as usize, "more writes than a check can count");
        writes.sort_unstable_by_key(|write| write.issued);
        let names = writes.iter().enumerate().map(|(index, write)| (write.name, index as u32)).collect();
        Self { run, writes, names }
    }

    /// The end of the last write to `volume`, in sectors.
    fn end_of(&self, volume: VolumeNumber) -> u64 {
        let on_it = self.writes.iter().filter(|write| write.volume == volume);
        on_it.map(|write| sectors_of(write).end).max().unwrap_or(0)
    }
}

/// The sectors that a write covers.
pub(crate) fn sectors_of(write: &RecordedWrite) -> std::ops::Range<u64> {
    let first = write.offset_bytes / SECTOR;
    first..first + u64::from(write.length_bytes) / SECTOR
}

/// What one volume holds, for as far as anyone wrote to it.
pub(crate) struct Surface {
    pub(crate) volume: VolumeNumber,
    /// Per sector, the index of the write found there, or [`BASE`].
    pub(crate) found: Vec<u32>,
}

/// Read a whole image. Past the last write only the base is allowed.
pub(crate) fn scan(
    known: &Known,
    volume: VolumeNumber,
    source: &mut dyn Read,
    mut base: Option<&mut dyn Read>,
) -> io::Result<Result<Surface, Violation>> {
    let end = known.end_of(volume);
    let mut found = Vec::new();
    let mut chunk = vec![0_u8; CHUNK_BYTES];
    let mut below = vec![0_u8; CHUNK_BYTES];
    let mut at = 0_u64;
    loop {
        let length = read_full(source, &mut chunk)?;
        if let Some(base) = &mut base {
            let base_length = read_full(*base, &mut below[..length])?;
            below[base_length..].fill(0);
        }
        for (sector, under) in chunk[..length].chunks(SECTOR_BYTES).zip(below.chunks(SECTOR_BYTES)) {
            let position = SectorPosition { volume, offset_bytes: at };
            match classify(known, position, sector, &under[..sector.len()]) {
                Ok(index) if at / SECTOR < end => found.push(index),
                Ok(index) => debug_assert_eq!(index, BASE, "a known write ends before the end"),
                Err(violation) => return Ok(Err(violation)),
            }
            at += sector.len() as u64;
        }
        if length < CHUNK_BYTES {
            break;
        }
    }
    if at < end * SECTOR {
        return Ok(Err(Violation::Short { volume, size_bytes: at, needed_bytes: end * SECTOR }));
    }
    Ok(Ok(Surface { volume, found }))
}

fn classify(known: &Known, position: SectorPosition, sector: &[u8], base: &[u8]) -> Result<u32, Violation> {
    let reading = if sector.len() == SECTOR_BYTES { SectorStamp::read(sector) } else { SectorReading::Unstamped };
    match reading {
        // The base may itself hold stamps, of an earlier run.
        SectorReading::Stamped(stamp) if stamp.run == known.run => check(known, position, &stamp),
        _ if sector == base => Ok(BASE),
        SectorReading::Stamped(stamp) => Err(Violation::Foreign { position, run: stamp.run }),
        SectorReading::Damaged(stamp) => Err(Violation::Damaged { position, claims: stamp.name }),
        SectorReading::Unstamped => Err(Violation::Garbage { position }),
    }
}

fn check(known: &Known, position: SectorPosition, stamp: &SectorStamp) -> Result<u32, Violation> {
    let belongs = SectorPosition { volume: stamp.volume, offset_bytes: stamp.sector.saturating_mul(SECTOR) };
    if belongs != position {
        return Err(Violation::Misplaced { position, name: stamp.name, belongs });
    }
    let unknown = Violation::Unknown { position, name: stamp.name };
    let Some(&index) = known.names.get(&stamp.name) else { return Err(unknown) };
    let write = &known.writes[index as usize];
    let sectors = sectors_of(write);
    let agrees = write.volume == stamp.volume
        && write.issued == stamp.issued
        && sectors.end - sectors.start == u64::from(stamp.sectors)
        && sectors.start + u64::from(stamp.index) == stamp.sector
        && sectors.contains(&stamp.sector);
    if agrees { Ok(index) } else { Err(unknown) }
}

/// Fill `buffer` as far as the source goes.
fn read_full(source: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
