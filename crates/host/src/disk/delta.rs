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

/// Earlier deltas that are kept beside the newest.
const KEPT_MAX: u32 = 1000;

/// Makes the delta at `path` anew.
///
/// # Errors
/// What the system says: no space, no permission, too many earlier ones.
pub(super) fn renew(path: &Path, size_bytes: u64) -> Result<File, Errno> {
    let of = |error: std::io::Error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
    match head_of(path) {
        Ok(Some(_)) => {
            let kept = next_name(path).ok_or(Errno::MLINK)?;
            fs::rename(path, kept).map_err(of)?;
        }
        Ok(None) => fs::remove_file(path).map_err(of)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(of(error)),
    }
    sync_directory(path.parent().unwrap_or(Path::new("/"))).map_err(|_| Errno::IO)?;
    create_or_open_sparse(path, size_bytes).map(|made| made.file).map_err(|_| Errno::IO)
}

/// The head of a delta that is whole; `None`: what stands there is not.
fn head_of(path: &Path) -> std::io::Result<Option<DeltaHead>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(DeltaHead::decode(&head))
}

fn next_name(path: &Path) -> Option<PathBuf> {
    let name = |number: u32| {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{number}"));
        path.with_file_name(name)
    };
    (1..=KEPT_MAX).map(name).find(|path| fs::symlink_metadata(path).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;
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
            drop(renew(&path, 8192).expect("renewed"));
            assert_eq!(fs::read(&path).expect("there"), [0; 8192]);
            let names = fs::read_dir(scratch.path()).expect("read").count();
            assert_eq!(names, kept + 1, "{tag}");
            write_whole(&path, tag);
        }
        fs::write(&path, [3; 4096]).expect("one that is cut short");
        drop(renew(&path, 8192).expect("renewed"));
        assert_eq!(fs::read_dir(scratch.path()).expect("read").count(), 3);
    }
}
