//! Why a volume or a state file cannot be opened.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use units::size::show_exact;

/// Why a volume or a state file cannot be used. Each is a sentence: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} does not exist; create it or correct its path", .0.display())]
    Missing(PathBuf),
    #[error("{} is {what}; a volume must be a regular file or a block device", .path.display())]
    WrongKind { path: PathBuf, what: &'static str },
    #[error("{} is {what}; only a file that farshore made can stand there: put it back, or remove what is in its place", .path.display())]
    NoStateFile { path: PathBuf, what: &'static str },
    #[error("{} may not be opened for reading and writing: {errno}; run as its owner or as root", .path.display())]
    Denied { path: PathBuf, errno: Errno },
    #[error("{} is read-only; make it writable (blockdev --setrw, or remount its file system)", .0.display())]
    ReadOnly(PathBuf),
    #[error("{} is mounted at {point}; unmount it first: two writers would destroy it", .path.display())]
    Mounted { path: PathBuf, point: String },
    #[error("{} is in use by {by}; stop that first", .path.display())]
    InUse { path: PathBuf, by: String },
    #[error(
        "{} is the backing file of {}, mounted or used elsewhere; detach it first (losetup -d), or give {} itself as volume",
        .path.display(), .device.display(), .device.display()
    )]
    LoopBacking { path: PathBuf, device: PathBuf },
    #[error("{} is locked by {holder}; stop that program: volumes and state have one owner", .path.display())]
    Locked { path: PathBuf, holder: String },
    #[error("{} has a size of 0 bytes; give it its size first (truncate -s SIZE, or attach the medium)", .0.display())]
    Empty(PathBuf),
    #[error("{} has {size_bytes} bytes, which is no multiple of {block_bytes}; grow it to {} bytes (truncate -s)",
        .path.display(), .size_bytes.next_multiple_of(u64::from(*block_bytes)))]
    OddSize { path: PathBuf, size_bytes: u64, block_bytes: u32 },
    #[error("{} has {} where {} is expected; {advice}", .path.display(), show_exact(*.size_bytes), show_exact(*.expected_bytes))]
    WrongSize { path: PathBuf, size_bytes: u64, expected_bytes: u64, advice: &'static str },
    #[error("there is no room for {}: {errno}; free space on its file system", .path.display())]
    NoSpace { path: PathBuf, errno: Errno },
    #[error("the file system of {} cannot reserve space for a file; ext4 and xfs can", .0.display())]
    CannotReserve(PathBuf),
    #[error("{} is open to others (mode {mode:04o}); run chmod {advice:04o} on it", .path.display())]
    OpenToOthers { path: PathBuf, mode: u32, advice: u32 },
    #[error("{} cannot be used: {step} failed: {errno}; see the kernel log", .path.display())]
    System { path: PathBuf, step: &'static str, errno: Errno },
}

impl OpenError {
    /// What the kernel said, as far as it is kept.
    pub(super) fn errno(&self) -> Errno {
        match self {
            OpenError::NoSpace { errno, .. } | OpenError::Denied { errno, .. } | OpenError::System { errno, .. } => {
                *errno
            }
            OpenError::ReadOnly(_) => Errno::ROFS,
            _ => Errno::IO,
        }
    }

    /// A failed step as the most telling variant.
    pub(super) fn at(path: &Path, step: &'static str, errno: Errno) -> OpenError {
        let path = path.to_path_buf();
        match errno {
            Errno::NOENT | Errno::NOTDIR => OpenError::Missing(path),
            Errno::ROFS => OpenError::ReadOnly(path),
            Errno::ACCESS | Errno::PERM => OpenError::Denied { path, errno },
            Errno::TXTBSY => OpenError::InUse { path, by: "a running program or the swap".into() },
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => OpenError::NoSpace { path, errno },
            errno => OpenError::System { path, step, errno },
        }
    }
}
