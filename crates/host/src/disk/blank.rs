//! Does a volume carry anything yet? A quick look, not a proof: where file systems, databases and volume managers put what they are
//! known by, what a file has been given space for, and samples of all.

use super::file::File;
use super::fingerprint::{EDGE_BYTES, SAMPLE_BYTES, read_exactly, sample_offsets};
use super::op::DiskError;
use super::status::block_status;
use crate::buffers::Buffer;

/// Runs of data of a file that are looked at; a file with more has been written to.
const RUNS_MAX: usize = 64;
/// Draws the samples: any number, the same each time.
const SEED: u64 = 1;

/// Where a byte was found that is not zero: in the first or last MiB, at the beginning of what a file has space for, or in one of a
/// thousand samples. Blocks for up to some seconds on a disk that turns.
///
/// # Errors
/// What could not be read.
pub fn first_data(file: &File) -> Result<Option<u64>, DiskError> {
    let size = file.size_bytes();
    let edge = EDGE_BYTES.min(size);
    let mut samples = vec![(0, edge), (size - edge, edge)];
    let mut at = 0;
    for run in block_status(file, 0, size, RUNS_MAX)? {
        if !run.hole && !file.is_block_device() {
            samples.push((at, run.length.min(EDGE_BYTES)));
        }
        at += run.length;
    }
    samples.extend(sample_offsets(size, SEED).into_iter().map(|offset| (offset, SAMPLE_BYTES)));
    let mut buffer = Buffer::detached(EDGE_BYTES as usize);
    for (offset, length) in samples {
        let part = &mut buffer[..length as usize];
        read_exactly(file, part, offset)?;
        if let Some(found) = part.iter().position(|byte| *byte != 0) {
            return Ok(Some(offset + found as u64));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::disk::volume::{VolumeOptions, open_volume};

    #[test]
    fn a_byte_is_found_wherever_a_file_was_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("volume");
        for size in [512, 4096, 3 << 20, 64 << 20] {
            let file = std::fs::File::create(&path).expect("a file");
            file.set_len(size).expect("room");
            let look = || first_data(&open_volume(&path, VolumeOptions::default()).expect("opens")).expect("readable");
            assert_eq!(look(), None, "{size}");
            for offset in [0, size / 2, size - 1] {
                file.write_all_at(&[1], offset).expect("written");
                file.sync_all().expect("flushed");
                assert_eq!(look(), Some(offset), "{size}");
                file.write_all_at(&[0], offset).expect("written");
                file.sync_all().expect("flushed");
                assert_eq!(look(), None, "zeroes are no data: {size}");
            }
        }
    }
}
