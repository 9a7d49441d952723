//! Which file or device a path leads to.

use std::fmt;
use std::path::Path;

/// Which thing on this machine a path leads to. Two paths with equal identities are one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileIdentity {
    File { device: u64, inode: u64 },
    Device { major: u32, minor: u32 },
}

impl fmt::Display for FileIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileIdentity::File { device, inode } => {
                let (major, minor) = (rustix::fs::major(*device), rustix::fs::minor(*device));
                write!(formatter, "inode {inode} on device {major}:{minor}")
            }
            FileIdentity::Device { major, minor } => write!(formatter, "block device {major}:{minor}"),
        }
    }
}

/// The identity behind a path, links followed.
pub(super) fn identity_of(path: &Path) -> rustix::io::Result<FileIdentity> {
    rustix::fs::stat(path).map(|stat| identity_from(&stat))
}

pub(super) fn identity_from(stat: &rustix::fs::Stat) -> FileIdentity {
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::BlockDevice {
        let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        FileIdentity::Device { major, minor }
    } else {
        FileIdentity::File { device: stat.st_dev, inode: stat.st_ino }
    }
}
