//! Little-endian fields in and out of byte slices, for formats specified byte by byte.

use alloc::vec::Vec;

use crate::ids::{Generation, Incarnation, Position, Seq};
use crate::limits::{NUMBER_MAX, WALL_MAX};
use crate::time::Wall;

/// Appends fields.
#[derive(Default)]
pub(crate) struct FieldEncoder(pub Vec<u8>);

impl FieldEncoder {
    pub fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    pub fn u16(&mut self, v: u16) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub fn generation(&mut self, g: Generation) {
        self.u64(g.number);
        self.u64(g.tag);
    }
    pub fn position(&mut self, p: Position) {
        self.generation(p.generation);
        self.u64(p.incarnation.0);
        self.u64(p.seq.0);
    }
    pub fn pad_to(&mut self, length: usize) {
        assert!(self.0.len() <= length, "format overflows its block");
        self.0.resize(length, 0);
    }
    /// The block of this length: what is written, padding, and the checksum of both.
    pub fn sealed(mut self, length: usize) -> Vec<u8> {
        self.pad_to(length - 4);
        let crc = crc32c::crc32c(&self.0);
        self.u32(crc);
        self.0
    }
}

/// A block of entries: magic, version, number of entries, what its format says, padding; its last 4 bytes are the checksum of what is
/// before them.
pub(crate) struct IndexBlock {
    pub magic: [u8; 8],
    pub version: u16,
    /// The oldest version that is read.
    pub oldest: u16,
    pub bytes: usize,
    pub entries_max: usize,
}

impl IndexBlock {
    pub fn begin(&self, entries: usize) -> FieldEncoder {
        assert!((1..=self.entries_max).contains(&entries));
        let mut w = FieldEncoder(self.magic.to_vec());
        w.u16(self.version);
        w.u16(entries as u16);
        w
    }

    /// How many entries a whole block of a version that is read has, and the rest of it.
    pub fn open<'a>(&self, block: &'a [u8]) -> Option<(usize, FieldDecoder<'a>)> {
        let (content, stored) = block.split_at_checked(self.bytes - 4)?;
        let mut r = FieldDecoder(content);
        let is_whole = stored.len() == 4 && FieldDecoder(stored).u32()? == crc32c::crc32c(content);
        let is_known = r.take()? == self.magic && self.reads(r.u16()?);
        let count = usize::from(r.u16()?);
        (is_whole && is_known && (1..=self.entries_max).contains(&count)).then_some((count, r))
    }

    /// Of a block that is whole but of a version that this program does not read: its version, and what stands behind the number of its
    /// entries.
    pub fn of_other_version<'a>(&self, block: &'a [u8]) -> Option<(u16, FieldDecoder<'a>)> {
        let (content, stored) = block.split_at_checked(block.len().checked_sub(4)?)?;
        let mut r = FieldDecoder(content);
        let is_ours = r.take()? == self.magic && FieldDecoder(stored).u32()? == crc32c::crc32c(content);
        let (version, _entries) = (r.u16()?, r.u16()?);
        (is_ours && !self.reads(version)).then_some((version, r))
    }

    fn reads(&self, version: u16) -> bool {
        (self.oldest..=self.version).contains(&version)
    }
}

/// Takes fields off the front; `None` past the end.
pub(crate) struct FieldDecoder<'a>(pub &'a [u8]);

impl FieldDecoder<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_at_checked(N)?;
        self.0 = rest;
        head.try_into().ok()
    }
    pub fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|b| b[0])
    }
    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    pub fn u128(&mut self) -> Option<u128> {
        self.take().map(u128::from_le_bytes)
    }
    pub fn generation(&mut self) -> Option<Generation> {
        Some(Generation { number: self.u64()?, tag: self.u64()? })
    }
    pub fn position(&mut self) -> Option<Position> {
        Some(Position { generation: self.generation()?, incarnation: Incarnation(self.u64()?), seq: Seq(self.u64()?) })
    }
    /// A peer's count: `None` where no honest one comes.
    pub fn number(&mut self) -> Option<u64> {
        self.u64().filter(|number| *number <= NUMBER_MAX)
    }
    /// A peer's clock.
    pub fn wall(&mut self) -> Option<Wall> {
        self.u64().filter(|wall| *wall <= WALL_MAX).map(Wall)
    }
    /// A position that a peer names.
    pub fn peers_position(&mut self) -> Option<Position> {
        self.position().filter(|position| position.is_in_reach())
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
