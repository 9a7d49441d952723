//! Locks by agreement: programs that do not ask (dd, cp) are not kept out.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::holders;
use super::identity::FileIdentity;
use super::open_error::OpenError;

/// Name of the lock file in a state directory.
pub(super) const LOCK_NAME: &str = "lock";
/// statfs type of NFS, where the kernel turns both kinds of lock into one and we would block ourselves.
const NFS_MAGIC: i128 = 0x6969;

/// Where the bytes begin that a second way to the same file locks: far behind what any file has.
const SECOND_FROM: i64 = 1 << 62;

/// Takes both kinds of advisory lock: flock for tools and other daemons, a byte-range lock for emulators, which know
/// only that one.
pub(super) fn lock(fd: &OwnedFd, path: &Path, identity: FileIdentity) -> Result<(), OpenError> {
    let locked = || {
        let holder = holders::locked_by(identity).map_or("another program".into(), |pid| format!("process {pid}"));
        OpenError::Locked { path: path.into(), holder }
    };
    match rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(locked()),
        Err(errno) => return Err(OpenError::at(path, "locking it", errno)),
    }
    if rustix::fs::fstatfs(fd).is_ok_and(|system| i128::from(system.f_type) == NFS_MAGIC) {
        return Ok(());
    }
    match set_range_lock(fd, libc::F_WRLCK, (0, SECOND_FROM)) {
        Ok(()) => Ok(()),
        Err(Errno::AGAIN | Errno::ACCESS) => Err(locked()),
        Err(errno) => Err(OpenError::at(path, "locking it", errno)),
    }
}

/// The same for a second open file of one that is locked already. A write that a killed process had given to the kernel keeps only the
/// open file alive that it goes by, so each of them has a lock of its own: nobody reads what such a write is still to change.
pub(super) fn lock_second(fd: &OwnedFd, path: &Path) -> Result<(), OpenError> {
    if rustix::fs::fstatfs(fd).is_ok_and(|system| i128::from(system.f_type) == NFS_MAGIC) {
        return Ok(());
    }
    match set_range_lock(fd, libc::F_WRLCK, (SECOND_FROM, 0)) {
        Ok(()) => Ok(()),
        Err(Errno::AGAIN | Errno::ACCESS) => {
            let holder = "a write of an earlier process that has not ended".into();
            Err(OpenError::Locked { path: path.into(), holder })
        }
        Err(errno) => Err(OpenError::at(path, "locking it", errno)),
    }
}

/// Gives up both locks. Closing alone may not: a process being started in this moment still has a copy of the
/// descriptor, and with it the lock.
pub(super) fn unlock(fd: &OwnedFd) {
    // Nobody is left to tell of a failure, and the descriptor is closed next.
    let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
    let _ = set_range_lock(fd, libc::F_UNLCK, (0, 0));
}

/// Sets the lock of this open file (not of this process) on so many bytes from there; 0: on all that follow.
fn set_range_lock(fd: &OwnedFd, kind: libc::c_int, (start, length): (i64, i64)) -> Result<(), Errno> {
    let range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open and the structure is a complete `struct flock` that the call only reads.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &range) };
    if result == 0 {
        return Ok(());
    }
    let code = std::io::Error::last_os_error().raw_os_error();
    Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)))
}
