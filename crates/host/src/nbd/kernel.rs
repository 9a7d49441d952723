//! The kernel's own NBD client: a block device whose requests come over a socket of ours. Ordered by generic netlink (family `nbd`,
//! linux/nbd-netlink.h), so no process has to stay in an ioctl, and a device outlives whoever serves it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::net::netlink::{ACKNOWLEDGE, REQUEST, ask, attributes, put_attribute, short};

// linux/netlink.h, linux/genetlink.h: the family that names the others.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GENERIC_BYTES: usize = 4;
const NESTED: u16 = 1 << 15;

// linux/prctl.h: what this thread does is needed for memory to be freed.
const PR_SET_IO_FLUSHER: i32 = 57;

// linux/nbd-netlink.h.
const FAMILY: &[u8] = b"nbd\0";
const VERSION: u8 = 1;
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;
const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONNECTION_TIMEOUT: u16 = 8;
const BACKEND_IDENTIFIER: u16 = 10;
const SOCKET_ITEM: u16 = 1;
const SOCKET_DESCRIPTOR: u16 = 1;

/// Of the kernel's 2^20 minor numbers each device takes 32: its partitions have the others.
pub const INDEXES_MAX: u32 = 1 << 15;

/// A device as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelDevice {
    pub size_bytes: u64,
    /// A power of two, 512 to the page's size.
    pub block_bytes: u32,
    /// See [`super::proto::transmission`].
    pub flags: u16,
    /// For how long requests wait when nobody serves the device.
    pub dead_timeout: Duration,
    /// Stays with the device, and has to be said again by whoever takes it over (kernel 5.14).
    pub backend: String,
}

/// The kernel's NBD, if its module is there.
#[derive(Clone, Copy, Debug)]
pub struct KernelNbd {
    family: u16,
}

impl KernelNbd {
    /// # Errors
    /// `NotFound`: the module `nbd` is not loaded. Else the kernel's own.
    pub fn find() -> io::Result<KernelNbd> {
        let mut body = generic(GET_FAMILY, 1);
        put_attribute(&mut body, FAMILY_NAME, FAMILY);
        let answers = ask(libc::NETLINK_GENERIC, CONTROL, REQUEST, &body)?;
        let family = answers.iter().find_map(|(_, body)| attribute(body, FAMILY_ID).map(|value| short(value, 0)));
        family.map(|family| KernelNbd { family }).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Makes the device of this index, whose requests come over `socket`, which the kernel keeps.
    ///
    /// # Errors
    /// The kernel's own: no permission; `EBUSY`, or `EEXIST` where another one makes it just now: somebody else has it.
    pub fn connect(self, index: u32, device: &KernelDevice, socket: BorrowedFd<'_>) -> io::Result<()> {
        let mut body = generic(CONNECT, VERSION);
        put_attribute(&mut body, INDEX, &index.to_ne_bytes());
        put_attribute(&mut body, SIZE_BYTES, &device.size_bytes.to_ne_bytes());
        put_attribute(&mut body, BLOCK_SIZE_BYTES, &u64::from(device.block_bytes).to_ne_bytes());
        put_attribute(&mut body, SERVER_FLAGS, &u64::from(device.flags).to_ne_bytes());
        put_attribute(&mut body, DEAD_CONNECTION_TIMEOUT, &device.dead_timeout.as_secs().to_ne_bytes());
        put_attribute(&mut body, BACKEND_IDENTIFIER, &[device.backend.as_bytes(), b"\0"].concat());
        put_socket(&mut body, socket);
        ask(libc::NETLINK_GENERIC, self.family, REQUEST, &body).map(drop)
    }

    /// Gives a device that nobody serves a new socket. The kernel says nothing when it has no use for the socket, because the old one is
    /// not dead yet: then it closes it. The size stays: the kernel would wait for requests that nobody answers before the socket is there.
    ///
    /// # Errors
    /// The kernel's own: there is no such device, or another backend.
    pub fn take_over(self, index: u32, device: &KernelDevice, socket: BorrowedFd<'_>) -> io::Result<()> {
        let mut body = generic(RECONFIGURE, VERSION);
        put_attribute(&mut body, INDEX, &index.to_ne_bytes());
        put_attribute(&mut body, DEAD_CONNECTION_TIMEOUT, &device.dead_timeout.as_secs().to_ne_bytes());
        put_attribute(&mut body, BACKEND_IDENTIFIER, &[device.backend.as_bytes(), b"\0"].concat());
        put_socket(&mut body, socket);
        ask(libc::NETLINK_GENERIC, self.family, REQUEST | ACKNOWLEDGE, &body).map(drop)
    }

    /// Gives a device another size. From Linux 6.9 on this waits until all requests are answered, so whoever answers them must not wait
    /// for it.
    ///
    /// # Errors
    /// The kernel's own: there is no such device, or another backend.
    pub fn resize(self, index: u32, device: &KernelDevice) -> io::Result<()> {
        let mut body = generic(RECONFIGURE, VERSION);
        put_attribute(&mut body, INDEX, &index.to_ne_bytes());
        put_attribute(&mut body, SIZE_BYTES, &device.size_bytes.to_ne_bytes());
        put_attribute(&mut body, BACKEND_IDENTIFIER, &[device.backend.as_bytes(), b"\0"].concat());
        ask(libc::NETLINK_GENERIC, self.family, REQUEST | ACKNOWLEDGE, &body).map(drop)
    }

    /// Takes the device away. Whoever still has it open gets errors. Waits for the socket, so whoever reads that must not wait for it.
    ///
    /// # Errors
    /// The kernel's own: there is no such device.
    pub fn disconnect(self, index: u32) -> io::Result<()> {
        let mut body = generic(DISCONNECT, VERSION);
        put_attribute(&mut body, INDEX, &index.to_ne_bytes());
        ask(libc::NETLINK_GENERIC, self.family, REQUEST | ACKNOWLEDGE, &body).map(drop)
    }
}

/// Keeps this process alive and able to write when memory is short: pages that wait to be written to its device are freed by no one
/// else. What the system refuses is left as it is.
pub fn survive_memory_shortage() {
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    // SAFETY: the call takes numbers only, and changes a flag of this thread.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
}

/// The device's node.
pub fn device_path(index: u32) -> PathBuf {
    PathBuf::from(format!("/dev/nbd{index}"))
}

/// Indexes of devices that are not in use, in the order in which the kernel would take them. Connecting makes one that is not there.
pub fn free_indexes() -> impl Iterator<Item = u32> {
    // One that cannot be looked at is the kernel's to refuse.
    (0..INDEXES_MAX).filter(|index| !is_connected(*index).unwrap_or(false))
}

/// What was said of the device's backend when it was made; `None`: it is not in use, or the kernel is older than 5.14.
///
/// # Errors
/// The system's own, which says nothing of the device: too many files are open.
pub fn backend_of(index: u32) -> io::Result<Option<String>> {
    match fs::read_to_string(format!("/sys/block/nbd{index}/backend")) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        // It went away while it was read.
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the device is in use, whoever made it.
///
/// # Errors
/// The system's own, which says nothing of the device.
pub fn is_connected(index: u32) -> io::Result<bool> {
    Path::new(&format!("/sys/block/nbd{index}/pid")).try_exists()
}

fn generic(command: u8, version: u8) -> Vec<u8> {
    vec![command, version, 0, 0]
}

fn put_socket(body: &mut Vec<u8>, socket: BorrowedFd<'_>) {
    let (mut item, mut list) = (Vec::new(), Vec::new());
    put_attribute(&mut item, SOCKET_DESCRIPTOR, &socket.as_raw_fd().to_ne_bytes());
    put_attribute(&mut list, SOCKET_ITEM | NESTED, &item);
    put_attribute(body, SOCKETS | NESTED, &list);
}

fn attribute(body: &[u8], wanted: u16) -> Option<&[u8]> {
    let found = attributes(body.get(GENERIC_BYTES..)?).into_iter().find(|(kind, _)| *kind & !NESTED == wanted);
    found.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::net::netlink::word;

    #[test]
    fn a_socket_is_nested_twice() {
        let socket = std::os::unix::net::UnixStream::pair().expect("a pair").0;
        let mut body = generic(CONNECT, VERSION);
        put_socket(&mut body, socket.as_fd());
        let list = attribute(&body, SOCKETS).expect("there");
        let item = attributes(list)[0];
        let descriptor = attributes(item.1)[0];
        assert_eq!((item.0, descriptor.0), (SOCKET_ITEM | NESTED, SOCKET_DESCRIPTOR));
        assert_eq!(word(descriptor.1, 0) as i32, socket.as_raw_fd());
    }

    #[test]
    fn a_device_that_is_not_there_is_no_error() {
        assert!(matches!(backend_of(u32::MAX), Ok(None)));
        assert!(matches!(is_connected(u32::MAX), Ok(false)));
    }

    #[test]
    fn a_kernel_answers_by_attributes() {
        let mut body = generic(CONNECT, VERSION);
        put_attribute(&mut body, INDEX, &7u32.to_ne_bytes());
        assert_eq!(attribute(&body, INDEX).map(|value| word(value, 0)), Some(7));
        assert_eq!(attribute(&body, FAMILY_NAME), None);
        assert_eq!(attribute(&[], INDEX), None);
    }
}
