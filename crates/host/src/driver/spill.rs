//! Payload on its way to a disk queue and back: each part begins on a block, and has a sum that the engine keeps in memory.
//!
//! Sums are taken and checked on the data thread: 1 MiB takes some 50 to 100 us where the processor has an instruction for them.

use std::sync::Arc;

use engine::journal::{BatchOf, JournalIndex};
use engine::{Buf, IoDone, IoError, Slice, SpilledPart, limits};

use crate::buffers::Buffer;
use crate::disk::{Part, Parts};

/// The bytes of one write, each part padded with zeroes to whole blocks; and the sum of each part without them.
pub(super) fn laid_out(parts: Vec<Slice>) -> (Parts, Vec<u32>) {
    let (mut bytes, mut sums) = (Vec::with_capacity(2 * parts.len()), Vec::with_capacity(parts.len()));
    for slice in parts {
        let padding = padding_after(slice.length);
        let part = part_of(slice);
        sums.push(crc32c::crc32c(part.bytes()));
        bytes.push(part);
        if padding > 0 {
            bytes.push(Part::Meta(vec![0; padding as usize]));
        }
    }
    (Parts::Many(bytes), sums)
}

/// A batch of the log: its index with the sum of each part, then the parts as [`laid_out`] has them; and the sums.
pub(super) fn logged(mut index: JournalIndex, parts: Vec<Slice>) -> (Parts, Vec<u32>) {
    let (bytes, sums) = laid_out(parts);
    let with_payload = index.entries.iter_mut().filter(|entry| entry.payload_bytes > 0);
    with_payload.zip(&sums).for_each(|(entry, crc)| entry.payload_crc = *crc);
    let mut all = vec![Part::Meta(index.encode(BatchOf::Queue))];
    if let Parts::Many(bytes) = bytes {
        all.extend(bytes);
    }
    (Parts::Many(all), sums)
}

/// What these parts take on disk.
pub(super) fn blocks_bytes(parts: &[SpilledPart]) -> u32 {
    parts.iter().map(|part| part.length + padding_after(part.length)).sum()
}

/// Parts that were read, if each of them has its sum.
pub(super) fn checked(buffer: Buffer, parts: &[SpilledPart]) -> Result<IoDone, IoError> {
    let mut rest = &buffer[..];
    for part in parts {
        let (blocks, after) = rest.split_at((part.length + padding_after(part.length)) as usize);
        if crc32c::crc32c(&blocks[..part.length as usize]) != part.crc {
            return Err(IoError::Damaged);
        }
        rest = after;
    }
    assert!(rest.is_empty(), "what was read is what was spilled");
    Ok(IoDone::Payload { buf: Buf::new(Arc::new(buffer)), zero: false })
}

/// A slice of the engine's, which is one of a buffer of ours.
pub(super) fn part_of(Slice { buf, start, length }: Slice) -> Part {
    let buffer = buf.shared::<Buffer>().expect("payload is always one of this host's buffers");
    let range = start as usize..start as usize + length as usize;
    assert!(range.end <= buffer.len(), "a slice lies inside its buffer");
    Part::Shared { buffer, range }
}

fn padding_after(length: u32) -> u32 {
    let block = limits::META_BLOCK_BYTES as u32;
    length.next_multiple_of(block) - length
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slice of so many bytes of this value, which begins inside of its buffer.
    fn slice(byte: u8, length: u32) -> Slice {
        let mut buffer = Buffer::detached(512 + length as usize);
        buffer[512..].fill(byte);
        Slice { buf: Buf::new(Arc::new(buffer)), start: 512, length }
    }

    /// As the disk has it.
    fn written(parts: &Parts) -> Buffer {
        let bytes: Vec<u8> = parts.as_slice().iter().flat_map(Part::bytes).copied().collect();
        let mut buffer = Buffer::detached(bytes.len());
        buffer.copy_from_slice(&bytes);
        buffer
    }

    fn spilled(lengths: &[u32], sums: &[u32]) -> Vec<SpilledPart> {
        lengths.iter().zip(sums).map(|(length, crc)| SpilledPart { length: *length, crc: *crc }).collect()
    }

    #[test]
    fn each_part_begins_on_a_block_and_comes_back_by_its_sum() {
        let lengths = [512, 4096, 4608, 8192];
        let (parts, sums) = laid_out(lengths.iter().zip(1..).map(|(length, byte)| slice(byte, *length)).collect());
        let buffer = written(&parts);
        assert_eq!(sums[0], crc32c::crc32c(&[1; 512]), "padding has no part in it");
        let starts = [(0, 1, 512), (4096, 2, 4096), (8192, 3, 4608), (16384, 4, 8192)];
        for (start, byte, length) in starts {
            assert!(buffer[start..start + length].iter().all(|found| *found == byte), "part {byte}");
        }
        assert!(
            buffer[512..4096].iter().chain(&buffer[8192 + 4608..16384]).all(|byte| *byte == 0),
            "old memory is told"
        );
        let told = spilled(&lengths, &sums);
        assert_eq!(blocks_bytes(&told) as usize, buffer.len());
        let Ok(IoDone::Payload { buf, zero: false }) = checked(buffer, &told) else { panic!("what was written") };
        assert_eq!(buf.shared::<Buffer>().expect("a buffer of ours")[16384], 4);
    }

    // proves: P9
    #[test]
    fn a_part_that_rotted_is_damaged_and_its_padding_is_nobodys() {
        let lengths = [512, 4096];
        let (parts, sums) = laid_out(vec![slice(1, 512), slice(2, 4096)]);
        let told = spilled(&lengths, &sums);
        for (at, is_payload) in [(0, true), (511, true), (512, false), (4095, false), (4096, true), (8191, true)] {
            let mut buffer = written(&parts);
            buffer[at] ^= 1;
            let is_damaged = matches!(checked(buffer, &told), Err(IoError::Damaged));
            assert_eq!(is_damaged, is_payload, "byte {at}");
        }
    }
}
