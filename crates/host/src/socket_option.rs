//! Single options of a socket, set and read as numbers or as the kernel's own bytes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The level and the name of an option, as the kernel numbers them.
pub(crate) type SocketOption = (libc::c_int, libc::c_int);

/// The one option that is wider than an `int`.
fn is_wide(option: SocketOption) -> bool {
    option == (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE)
}

pub(crate) fn set_option(socket: BorrowedFd<'_>, option: SocketOption, value: u64) -> io::Result<()> {
    if is_wide(option) {
        return set_bytes(socket, option, &value.to_ne_bytes());
    }
    let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
    set_bytes(socket, option, &value.to_ne_bytes())
}

fn set_bytes(socket: BorrowedFd<'_>, (level, name): SocketOption, value: &[u8]) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the borrow; the kernel reads `length` bytes of `value`, which
    // lives across the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn read_option(socket: BorrowedFd<'_>, option: SocketOption) -> io::Result<u64> {
    let mut wide = [0; 8];
    if is_wide(option) {
        return read_bytes(socket, option, &mut wide).map(|_| u64::from_ne_bytes(wide));
    }
    let mut value = [0; 4];
    read_bytes(socket, option, &mut value)?;
    Ok(libc::c_int::from_ne_bytes(value).max(0) as u64)
}

/// Reads an option into `bytes`; how many the kernel wrote.
pub(crate) fn read_bytes(socket: BorrowedFd<'_>, (level, name): SocketOption, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the borrow; the kernel writes at most `length` bytes to `bytes`,
    // which lives across the call as `length` does.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, bytes.as_mut_ptr().cast(), &raw mut length) };
    if result == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}
