//! Where what is recorded of a group lies, and whether anything is.

use std::io::ErrorKind;
use std::path::Path;

use engine::superblock;
use host::disk::meta::read_blocks;

/// Under the state directory: what is recorded of each group.
pub(super) const GROUPS: &str = "groups";

/// Whether the superblock in `directory` is not there or says nothing yet.
pub(super) fn is_new(directory: &Path, tag: u64) -> bool {
    match read_blocks(&directory.join("superblock")) {
        Ok(blocks) => matches!(superblock::read(&blocks, tag).map(|read| read.found), Ok(None)),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}
