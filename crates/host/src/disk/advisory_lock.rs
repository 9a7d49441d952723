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
    match set_range_lock(fd, libc::F_WRLCK) {
        Ok(()) => Ok(()),
        Err(Errno::AGAIN | Errno::ACCESS) => Err(locked()),
        Err(errno) => Err(OpenError::at(path, "locking it", errno)),
    }
}

/// Gives up both locks. Closing alone may not: a process being started in this moment still has a copy of the
/// descriptor, and with it the lock.
pub(super) fn unlock(fd: &OwnedFd) {
    // Nobody is left to tell of a failure, and the descriptor is closed next.
    let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
    let _ = set_range_lock(fd, libc::F_UNLCK);
}

/// Sets the lock of this open file (not of this process) on all its bytes.
fn set_range_lock(fd: &OwnedFd, kind: libc::c_int) -> Result<(), Errno> {
    let whole = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open and the structure is a complete `struct flock` that the call only reads.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &whole) };
    if result == 0 {
        return Ok(());
    }
    let code = std::io::Error::last_os_error().raw_os_error();
    Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)))
}
