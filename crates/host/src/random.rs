//! The kernel's randomness.

use std::io;

/// Bytes from the kernel's generator.
///
/// # Errors
/// The kernel has none, which no supported one says after boot.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    const { assert!(N <= 256, "up to 256 bytes come whole") };
    let mut bytes = [0; N];
    // SAFETY: the pointer and length describe `bytes`, which lives across the call.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    if got == N as isize { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

/// Eight bytes from the kernel's generator.
///
/// # Panics
/// When the kernel has none: nothing may be named without it.
pub fn entropy() -> u64 {
    u64::from_le_bytes(random().expect("the kernel gives 8 random bytes at once"))
}
