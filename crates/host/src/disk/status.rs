//! Where a file holds data, and where only holes.

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::file::File;
use super::op::{AllocationRun, DiskError, ErrorKind, OpName};

/// The runs of data and holes from `offset` on: at least one, at most `runs_max`, together at most `length` bytes (less
/// when the bound on runs was met). A device has no holes to tell. Blocks while the file system reads its extent tree.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a range outside the file or off its block boundaries, [`ErrorKind::Truncated`] where the file was cut
/// short since it was opened, else what the kernel says.
pub fn block_status(file: &File, offset: u64, length: u64, runs_max: usize) -> Result<Vec<AllocationRun>, DiskError> {
    if !file.admits(offset, length) {
        return Err(DiskError::of_kind(ErrorKind::Invalid, OpName::BlockStatus, file.path()));
    }
    if length == 0 {
        return Ok(Vec::new());
    }
    if file.is_block_device() {
        return Ok(vec![AllocationRun { length, hole: false }]);
    }
    let failed = |errno| DiskError::new(OpName::BlockStatus, file.path(), errno);
    let block = u64::from(file.logical_block());
    let end = offset + length;
    let mut runs = Vec::new();
    let mut at = offset;
    while at < end && runs.len() < runs_max.max(1) {
        // A block that holds any data counts as data.
        let data = match seek(file, SeekFrom::Data(at)).map_err(failed)? {
            Some(data) => data / block * block,
            // What is gone is no hole.
            None if file.is_cut_short() => {
                return Err(DiskError::of_kind(ErrorKind::Truncated, OpName::BlockStatus, file.path()));
            }
            None => end,
        };
        if data > at {
            let stop = data.min(end);
            runs.push(AllocationRun { length: stop - at, hole: true });
            at = stop;
        } else {
            let hole = seek(file, SeekFrom::Hole(at)).map_err(failed)?.unwrap_or(end);
            // Someone else may punch between the two questions: never stand still.
            let stop = hole.next_multiple_of(block).max(at + block).min(end);
            runs.push(AllocationRun { length: stop - at, hole: false });
            at = stop;
        }
    }
    Ok(runs)
}

/// `None`: nothing of that kind up to the end of the file.
fn seek(file: &File, to: SeekFrom) -> Result<Option<u64>, Errno> {
    match rustix::fs::seek(file, to) {
        Ok(position) => Ok(Some(position)),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno),
    }
}
