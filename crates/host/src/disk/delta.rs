//! The file of a delta: what a node held where it differed from the peer that was chosen over it (docs/book/format.md). Each one is a file
//! of its own. The newest has the plain name, and one that is whole is never written over or removed here.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use engine::delta::{DeltaHead, HEAD_BYTES};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::file::File;
use super::meta::{create_or_open_sparse, sync_directory};

/// Earlier deltas that are kept beside the newest: with one more it is not renewed, and whoever waits for it says so.
pub const DELTAS_KEPT_MAX: u32 = 1000;

/// Makes the delta at `path` anew.
///
/// # Errors
/// What the system says: no space, no permission; too many earlier ones: MLINK.
pub(super) fn renew(path: &Path) -> Result<File, Errno> {
    let of = |error: std::io::Error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
    match is_whole(path) {
        Ok(true) => {
            let kept = next_name(path).ok_or(Errno::MLINK)?;
            fs::rename(path, kept).map_err(of)?;
        }
        Ok(false) => fs::remove_file(path).map_err(of)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(of(error)),
    }
    sync_directory(path.parent().unwrap_or(Path::new("/"))).map_err(|error| error.errno())?;
    create_or_open_sparse(path, HEAD_BYTES).map(|made| made.file.growing()).map_err(|error| error.errno())
}

/// Whether it has its head, also one of another version than this program's.
fn is_whole(path: &Path) -> std::io::Result<bool> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(DeltaHead::decode(&head).is_some() || DeltaHead::other_version(&head).is_some())
}

fn next_name(path: &Path) -> Option<PathBuf> {
    let name = |number: u32| {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{number}"));
        path.with_file_name(name)
    };
    (1..=DELTAS_KEPT_MAX).map(name).find(|path| fs::symlink_metadata(path).is_err())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::op::{DiskError, DiskOp, ErrorKind, Inline, OpName, Part};
    use super::super::work::{DiskWork, WorkStep};
    use super::*;
    use crate::buffers::Pool;
    use engine::{Generation, Position};

    fn write_whole(path: &Path, tag: u64) {
        let generation = Generation { number: 2, tag };
        let head = DeltaHead { position: Position { generation, ..Position::default() }, ..DeltaHead::default() };
        fs::write(path, head.encode()).expect("written");
    }

    // proves: P6
    #[test]
    fn a_whole_delta_is_kept_and_no_other() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("delta");
        for (tag, kept) in [(7, 0), (8, 1), (8, 2)] {
            drop(renew(&path).expect("renewed"));
            assert_eq!(fs::read(&path).expect("there"), [0; 4096]);
            let names = fs::read_dir(scratch.path()).expect("read").count();
            assert_eq!(names, kept + 1, "{tag}");
            write_whole(&path, tag);
        }
        fs::write(&path, [3; 4096]).expect("one that is cut short");
        drop(renew(&path).expect("renewed"));
        assert_eq!(fs::read_dir(scratch.path()).expect("read").count(), 3);
    }

    // proves: P6, P9
    /// A program of another version does not know what stands there, and removes nothing.
    #[test]
    fn a_whole_delta_of_another_version_is_kept() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("delta");
        let mut head = DeltaHead::default().encode();
        head[8] += 1;
        let sum = crc32c::crc32c(&head[..4092]).to_le_bytes();
        head[4092..].copy_from_slice(&sum);
        assert!(DeltaHead::decode(&head).is_none());
        fs::write(&path, &head).expect("written");
        drop(renew(&path).expect("renewed"));
        assert_eq!(fs::read(scratch.path().join("delta.1")).expect("kept"), head);
    }

    // proves: P6, P8
    /// Where as many are kept as may be, nothing is written over and nothing removed.
    #[test]
    fn with_too_many_deltas_none_is_made() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("delta");
        write_whole(&path, 7);
        let kept = |number: u32| scratch.path().join(format!("delta.{number}"));
        (1..=DELTAS_KEPT_MAX).for_each(|number| fs::write(kept(number), b"kept").expect("written"));
        let whole = fs::read(&path).expect("there");
        let errno = renew(&path).expect_err("there are too many");
        let error = DiskError::new(OpName::RenewDelta, &path.as_path().into(), errno);
        assert_eq!(error.kind, ErrorKind::TooManyDeltas, "{error}");
        assert_eq!(fs::read(&path).expect("there"), whole);
        fs::remove_file(kept(500)).expect("one is moved away");
        drop(renew(&path).expect("renewed"));
        assert_eq!(fs::read(kept(500)).expect("kept"), whole);
    }

    /// One write of a block there.
    fn write(file: &Arc<File>, offset: u64) -> Result<(), DiskError> {
        let op = DiskOp::Write { offset, parts: Part::Meta(vec![7; 4096]).into(), dsync: true };
        let mut work = DiskWork::prepare(1, file, op, Inline::Forbidden, &Pool::new(usize::MAX))?;
        loop {
            match work.step_blocking() {
                WorkStep::Again => {}
                WorkStep::Finished(done) => return done.map(|_| ()),
            }
        }
    }

    // proves: P6, P8
    /// It is as long as what was written, whatever the volumes measure; where the file system ends it, that is told as what it is.
    #[test]
    fn a_delta_grows_as_it_is_written_and_no_further_than_its_file_system_lets_it() {
        const EXT4: i128 = 0xef53;
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("delta");
        let file = Arc::new(renew(&path).expect("renewed"));
        (0..4).for_each(|block| write(&file, (block + 1) * 4096).expect("written"));
        assert_eq!(fs::metadata(&path).expect("there").len(), 5 * 4096);
        if rustix::fs::fstatfs(&*file).map_or(0, |found| i128::from(found.f_type)) != EXT4 {
            eprintln!("skipped: only ext4 ends a file at 16 TiB");
            return;
        }
        let error = write(&file, 1 << 44).expect_err("no file of ext4 is as long");
        assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
        assert!(error.to_string().contains("no file as large"), "{error}");
    }
}
