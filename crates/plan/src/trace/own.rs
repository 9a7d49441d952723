//! Our own trace file: what `scan --out` and `record` write, and what `plan` replays fastest.
//!
//! All numbers are little-endian. A head of 32 bytes, blocks, and an empty block at the end; without it the file is
//! truncated or still being written.
//!
//! ```text
//! head    0 "FARTRACE"   8 version u16 (1)   10 record bytes u16 (24)   12 flags u32 (0)   16 start, ns since 1970 u64 (0: unknown)
//!        24 zero u32    28 CRC-32C of bytes 0..28
//! block   0 "FBLK"       4 records u32 (0..=4096; 0 ends the file)   8 block number u32   12 CRC-32C of bytes 4..12 and the records
//! record  0 time ns u64  8 offset u64       16 length u32   20 volume u16   22 kind u8 (0 write, 1 flush, 2 trim)
//!        23 flags u8 (1 FUA, 2 made up from counts)
//! ```

use std::io::{self, Write};

use super::{RecordFault, TraceKind, TraceRecord, byte_range};

pub const MAGIC: &[u8; 8] = b"FARTRACE";
pub const HEAD_BYTES: usize = 32;
pub const BLOCK_HEAD_BYTES: usize = 16;
pub const RECORD_BYTES: usize = 24;
/// Records in a block: 96 KiB, a good size for one write and one checksum.
pub const BLOCK_RECORDS_MAX: usize = 4096;
const BLOCK_MAGIC: &[u8; 4] = b"FBLK";
const VERSION: u16 = 1;
const FLAG_FUA: u8 = 1;
const FLAG_SYNTHETIC: u8 = 2;

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The head of a file.
pub fn head(start_unix_ns: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(MAGIC);
    head[8..10].copy_from_slice(&VERSION.to_le_bytes());
    head[10..12].copy_from_slice(&(RECORD_BYTES as u16).to_le_bytes());
    head[16..24].copy_from_slice(&start_unix_ns.to_le_bytes());
    let sum = crc32c::crc32c(&head[..28]);
    head[28..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// Whether a head is sound and of a version we read.
///
/// # Errors
/// A sentence.
pub fn check_head(head: &[u8]) -> Result<(), String> {
    if head.len() < HEAD_BYTES {
        return Err("it ends within its head".to_owned());
    }
    if crc32c::crc32c(&head[..28]) != word(head, 28) {
        return Err("its head is damaged (checksum)".to_owned());
    }
    let version = u16::from_le_bytes([head[8], head[9]]);
    let record_bytes = u16::from_le_bytes([head[10], head[11]]);
    if (version, record_bytes) != (VERSION, RECORD_BYTES as u16) {
        return Err(format!("it is of version {version}, and this program reads version {VERSION}"));
    }
    Ok(())
}

/// Writes a trace, block by block.
pub struct TraceWriter<W: Write> {
    out: W,
    block: Vec<u8>,
    records: u32,
    number: u32,
}

impl<W: Write> TraceWriter<W> {
    /// # Errors
    /// Whatever the writer says.
    pub fn new(mut out: W, start_unix_ns: u64) -> io::Result<Self> {
        out.write_all(&head(start_unix_ns))?;
        Ok(Self { out, block: vec![0; BLOCK_HEAD_BYTES], records: 0, number: 0 })
    }

    /// # Errors
    /// Whatever the writer says.
    pub fn push(&mut self, record: &TraceRecord) -> io::Result<()> {
        let flags = if record.fua { FLAG_FUA } else { 0 } | if record.synthetic { FLAG_SYNTHETIC } else { 0 };
        self.block.extend_from_slice(&record.time_ns.to_le_bytes());
        self.block.extend_from_slice(&record.offset.to_le_bytes());
        self.block.extend_from_slice(&record.length.to_le_bytes());
        self.block.extend_from_slice(&record.volume.to_le_bytes());
        self.block.extend_from_slice(&[record.kind as u8, flags]);
        self.records += 1;
        if self.records as usize == BLOCK_RECORDS_MAX { self.end_block() } else { Ok(()) }
    }

    /// Closes the block under way, so that all records so far can be read. Does nothing without one.
    ///
    /// # Errors
    /// Whatever the writer says.
    pub fn end_block(&mut self) -> io::Result<()> {
        if self.records > 0 { self.write_block() } else { Ok(()) }
    }

    fn write_block(&mut self) -> io::Result<()> {
        self.block[..4].copy_from_slice(BLOCK_MAGIC);
        self.block[4..8].copy_from_slice(&self.records.to_le_bytes());
        self.block[8..12].copy_from_slice(&self.number.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&self.block[4..12]), &self.block[BLOCK_HEAD_BYTES..]);
        self.block[12..16].copy_from_slice(&sum.to_le_bytes());
        self.out.write_all(&self.block)?;
        self.block.truncate(BLOCK_HEAD_BYTES);
        (self.records, self.number) = (0, self.number.wrapping_add(1));
        Ok(())
    }

    /// Writes what is left and the end mark, and gives the writer back, flushed.
    ///
    /// # Errors
    /// Whatever the writer says.
    pub fn finish(mut self) -> io::Result<W> {
        self.end_block()?;
        self.write_block()?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// What stands at the head of the buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum Block {
    /// This many bytes were a sound block; its records were added.
    Used(usize),
    /// The end mark.
    End(usize),
    /// More bytes are needed.
    Short,
}

/// Reads one block: checksum first, then the records.
pub fn read_block(bytes: &[u8], number: u32, out: &mut Vec<TraceRecord>) -> Result<Block, RecordFault> {
    if bytes.len() < BLOCK_HEAD_BYTES {
        return Ok(Block::Short);
    }
    let records = word(bytes, 4) as usize;
    if &bytes[..4] != BLOCK_MAGIC || records > BLOCK_RECORDS_MAX || word(bytes, 8) != number {
        return Err(RecordFault::Damaged);
    }
    let total = BLOCK_HEAD_BYTES + records * RECORD_BYTES;
    if bytes.len() < total {
        return Ok(Block::Short);
    }
    let body = &bytes[BLOCK_HEAD_BYTES..total];
    if crc32c::crc32c_append(crc32c::crc32c(&bytes[4..12]), body) != word(bytes, 12) {
        return Err(RecordFault::Damaged);
    }
    if records == 0 {
        return Ok(Block::End(total));
    }
    out.reserve(records);
    for bytes in body.chunks_exact(RECORD_BYTES) {
        out.push(read_record(bytes)?);
    }
    Ok(Block::Used(total))
}

/// All records of a whole file.
///
/// # Errors
/// A sentence.
pub fn read_all(bytes: &[u8]) -> Result<Vec<TraceRecord>, String> {
    check_head(bytes)?;
    let (mut at, mut records) = (HEAD_BYTES, Vec::new());
    for number in 0.. {
        match read_block(&bytes[at..], number, &mut records) {
            Ok(Block::Used(length)) => at += length,
            Ok(Block::End(_)) => break,
            Ok(Block::Short) => return Err("it ends within a block".to_owned()),
            Err(_) => return Err(format!("block {number} is damaged")),
        }
    }
    Ok(records)
}

fn read_record(bytes: &[u8]) -> Result<TraceRecord, RecordFault> {
    let (offset, length) = byte_range(long(bytes, 8), u64::from(word(bytes, 16)))?;
    let kind = match bytes[22] {
        0 => TraceKind::Write,
        1 => TraceKind::Flush,
        2 => TraceKind::Trim,
        _ => return Err(RecordFault::UnknownOperation),
    };
    Ok(TraceRecord {
        time_ns: long(bytes, 0),
        offset,
        length,
        volume: u16::from_le_bytes([bytes[20], bytes[21]]),
        kind,
        fua: bytes[23] & FLAG_FUA != 0,
        synthetic: bytes[23] & FLAG_SYNTHETIC != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(count: u64) -> Vec<TraceRecord> {
        (0..count)
            .map(|n| TraceRecord {
                time_ns: n * 10,
                offset: n * 4096,
                length: 4096,
                volume: (n % 3) as u16,
                kind: if n % 7 == 6 { TraceKind::Flush } else { TraceKind::Write },
                fua: n % 5 == 0,
                synthetic: n % 2 == 0,
            })
            .collect()
    }

    fn written(records: &[TraceRecord]) -> Vec<u8> {
        let mut writer = TraceWriter::new(Vec::new(), 7).unwrap();
        records.iter().for_each(|record| writer.push(record).unwrap());
        writer.finish().unwrap()
    }

    #[test]
    fn what_is_written_reads_back_and_nothing_less() {
        let records = sample(10_000);
        let file = written(&records);
        assert_eq!(read_all(&file), Ok(records));
        for end in (0..file.len()).step_by(997) {
            assert!(read_all(&file[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let file = written(&sample(3));
        for bit in 0..file.len() * 8 {
            let mut bad = file.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read_all(&bad).is_err(), "bit {bit}");
        }
    }
}
