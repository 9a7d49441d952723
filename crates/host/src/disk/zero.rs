//! Making ranges read as zero, and knowing zeroes when they pass by.

use std::sync::OnceLock;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::file::File;
use crate::buffers::Buffer;

/// How much one call may zero: bounds how long a worker is away (a file system only edits extents, a device without
/// the command has its zeroes written by the kernel).
const FILE_PIECE_BYTES: u64 = 128 << 20;
const DEVICE_PIECE_BYTES: u64 = 32 << 20;
const WRITE_PIECE_BYTES: u64 = 1 << 20;

/// Ways to zero a range, best first. A file that refuses one is asked the next; the last always works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZeroMethod {
    /// Give the space back. On a device: unmap, but only if zeroes are guaranteed.
    Punch,
    /// Keep the space. On a device the kernel writes zeroes where there is no command for it.
    ZeroRange,
    Write,
}

impl ZeroMethod {
    pub fn first(no_hole: bool) -> ZeroMethod {
        if no_hole { ZeroMethod::ZeroRange } else { ZeroMethod::Punch }
    }

    fn next(self) -> Option<ZeroMethod> {
        match self {
            ZeroMethod::Punch => Some(ZeroMethod::ZeroRange),
            ZeroMethod::ZeroRange => Some(ZeroMethod::Write),
            ZeroMethod::Write => None,
        }
    }
}

/// Zeroes the beginning of a range and says how many bytes; `method` moves on when the file refuses it.
pub(super) fn piece(file: &File, offset: u64, length: u64, method: &mut ZeroMethod) -> Result<u64, Errno> {
    loop {
        match attempt(file, offset, length, *method) {
            // REMOTEIO: a device that announced the command and then refused it.
            Err(errno @ (Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::REMOTEIO)) => {
                *method = method.next().ok_or(errno)?;
            }
            result => return result,
        }
    }
}

/// Whole blocks at the beginning of a range, or how much of one has to be written: a device takes commands for whole
/// blocks only.
fn whole_blocks(file: &File, offset: u64, length: u64) -> Result<u64, u64> {
    let block = u64::from(file.logical_block());
    let to_boundary = offset.next_multiple_of(block) - offset;
    match length.saturating_sub(to_boundary) / block * block {
        _ if to_boundary > 0 => Err(to_boundary.min(length)),
        0 => Err(length),
        whole => Ok(whole),
    }
}

fn attempt(file: &File, offset: u64, length: u64, method: ZeroMethod) -> Result<u64, Errno> {
    let length = match whole_blocks(file, offset, length) {
        Ok(whole) => whole,
        Err(edge) => return write_zeroes(file, offset, edge),
    };
    let flags = match method {
        ZeroMethod::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        ZeroMethod::ZeroRange => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        ZeroMethod::Write => return write_zeroes(file, offset, length),
    };
    let bytes = length.min(if file.is_block_device() { DEVICE_PIECE_BYTES } else { FILE_PIECE_BYTES });
    rustix::fs::fallocate(file, flags, offset, bytes).map(|()| bytes)
}

fn write_zeroes(file: &File, offset: u64, length: u64) -> Result<u64, Errno> {
    static ZEROES: OnceLock<Buffer> = OnceLock::new();
    let zeroes = ZEROES.get_or_init(|| Buffer::detached(WRITE_PIECE_BYTES as usize));
    let bytes = length.min(WRITE_PIECE_BYTES);
    let (fd, _) = file.route(offset, bytes);
    match rustix::io::pwrite(fd, &zeroes[..bytes as usize], offset)? {
        0 => Err(Errno::IO),
        written => Ok(written as u64),
    }
}

/// Is every byte zero? Decides by whole blocks so that the compiler can use wide registers, and stops at the first
/// block that is not.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(512).all(|block| block.iter().fold(0, |union, byte| union | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_zero_everywhere() {
        for length in [0, 1, 511, 512, 513, 4096, 5000] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes));
            for at in [0, length / 2, length.saturating_sub(1)] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = 0x80;
                    assert!(!is_zero(&bytes), "byte {at} of {length}");
                    bytes[at] = 0;
                }
            }
        }
    }

    // proves: rule 16
    /// The last resort must do by itself what the kernel does elsewhere, on both paths to the disk.
    #[test]
    fn every_method_zeroes_exactly_its_range() {
        let size = 3 * WRITE_PIECE_BYTES;
        for buffered in [false, true] {
            for first in [ZeroMethod::Punch, ZeroMethod::ZeroRange, ZeroMethod::Write] {
                let backing = tempfile::NamedTempFile::new().unwrap();
                std::fs::write(backing.path(), vec![1; size as usize]).unwrap();
                let options = super::super::volume::VolumeOptions { buffered };
                let file = super::super::volume::open_volume(backing.path(), options).unwrap();
                let (mut at, end, mut method) = (512, size - 1536, first);
                while at < end {
                    at += piece(&file, at, end - at, &mut method).unwrap();
                }
                assert_eq!(at, end);
                let bytes = std::fs::read(backing.path()).unwrap();
                assert_eq!(bytes.len() as u64, size);
                assert!(is_zero(&bytes[512..end as usize]));
                assert!(bytes[..512].iter().chain(&bytes[end as usize..]).all(|byte| *byte == 1));
            }
        }
    }

    // proves: rule 16
    #[test]
    fn methods_fall_back_to_writing() {
        let chain = |first| std::iter::successors(Some(first), |method: &ZeroMethod| method.next()).collect::<Vec<_>>();
        assert_eq!(chain(ZeroMethod::first(false)), [ZeroMethod::Punch, ZeroMethod::ZeroRange, ZeroMethod::Write]);
        assert_eq!(chain(ZeroMethod::first(true)), [ZeroMethod::ZeroRange, ZeroMethod::Write]);
    }
}
