//! Where what is recorded of a group lies, and whether anything is.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use engine::superblock::{self, Superblock};
use host::disk::meta::read_blocks;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
pub(super) use settings::GROUPS;
use settings::durable;

/// Whether the superblock in `directory` is not there or says nothing yet.
pub(super) fn is_new(directory: &Path, tag: u64) -> bool {
    match read_blocks(&directory.join("superblock"), superblock::FILE_BYTES) {
        Ok(blocks) => matches!(superblock::read(&blocks, tag).map(|read| read.found), Ok(None)),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// What is on record in `directory`; `None`: nothing that can be read.
pub(super) fn recorded(directory: &Path, tag: u64) -> Option<Superblock> {
    let blocks = read_blocks(&directory.join("superblock"), superblock::FILE_BYTES).ok()?;
    superblock::read(&blocks, tag).ok()?.found
}

/// When the superblock in `directory` was written last, milliseconds since 1970; 0: nobody knows.
pub(super) fn written_unix_ms(directory: &Path) -> u64 {
    let written = directory.join("superblock").metadata().and_then(|facts| facts.modified()).ok();
    let since = written.and_then(|written| written.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// When it came to stand there, if that was later: it was prepared beside, and took its place.
pub(super) fn in_place_unix_ms(directory: &Path) -> u64 {
    let changed = directory.join("superblock").metadata().map_or(0, |facts| {
        let ms = facts.ctime().saturating_mul(1000).saturating_add(facts.ctime_nsec() / 1_000_000);
        u64::try_from(ms).unwrap_or(0)
    });
    changed.max(written_unix_ms(directory))
}

/// Whether another process has the group of `directory` open. One that opens it in this moment is patient.
pub(super) fn is_open(directory: &Path) -> bool {
    let superblock = durable::open(&directory.join("superblock"));
    superblock.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// A sparse file costs nothing to make, and more memory than there is to read.
    #[test]
    fn a_superblock_that_is_too_large_makes_no_group_new() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(is_new(directory.path(), 42), "there is none");
        let file = File::create(directory.path().join("superblock")).expect("made");
        for (size_bytes, new) in
            [(superblock::FILE_BYTES, true), (superblock::FILE_BYTES + 512, false), (4 << 40, false)]
        {
            file.set_len(size_bytes).expect("room for nothing but a length");
            assert_eq!(is_new(directory.path(), 42), new, "{size_bytes} bytes");
        }
    }
}
