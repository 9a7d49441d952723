//! What a server has mapped: the descriptors of its device's requests, which the kernel writes, and memory for their bytes.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};

use super::abi::Descriptor;

/// Of the only queue.
pub(super) struct Descriptors {
    first: NonNull<Descriptor>,
    depth: u16,
    mapped_bytes: usize,
}

impl Descriptors {
    /// # Errors
    /// The kernel's own: another process has the device.
    pub fn map(device: &File, depth: u16) -> io::Result<Descriptors> {
        let page = rustix::param::page_size();
        let mapped_bytes = (usize::from(depth) * size_of::<Descriptor>()).next_multiple_of(page);
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let first = map(mapped_bytes, libc::PROT_READ, flags, device.as_raw_fd())?;
        Ok(Descriptors { first: first.cast(), depth, mapped_bytes })
    }

    /// What the request of this tag is. The kernel has handed it over, and no answer was committed yet.
    pub fn read(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth);
        // SAFETY: as many as `depth` are mapped, at a page's begin; the kernel writes one only while it has the tag, and any bytes are a
        // descriptor.
        unsafe { self.first.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    /// The kernel counts the mapping as a user of the device.
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this very length; nothing of it is lent.
        let result = unsafe { libc::munmap(self.first.as_ptr().cast(), self.mapped_bytes) };
        debug_assert_eq!(result, 0);
    }
}

/// As many bytes for each tag as a request may have. Never unmapped, because the kernel knows the addresses until it has seen the end of
/// the server, and there is one server in a process. A page that no request has used yet takes no memory.
pub(super) struct RequestMemory {
    first: NonNull<u8>,
    depth: u16,
    bytes_each: usize,
}

impl RequestMemory {
    /// # Errors
    /// There is no room.
    pub fn map(depth: u16, bytes_each: u32) -> io::Result<RequestMemory> {
        let bytes_each = bytes_each as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let first = map(usize::from(depth) * bytes_each, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        Ok(RequestMemory { first, depth, bytes_each })
    }

    /// As the kernel is told it.
    pub fn address(&self, tag: u16) -> u64 {
        self.of(tag).as_ptr() as u64
    }

    /// The first bytes of a tag that the kernel has handed over.
    pub fn bytes(&self, tag: u16, length: usize) -> &[u8] {
        assert!(length <= self.bytes_each);
        // SAFETY: mapped and never unmapped, within the tag's part; the kernel touches the part only while this thread is in a call to it,
        // and then only when the tag is its own.
        unsafe { std::slice::from_raw_parts(self.of(tag).as_ptr(), length) }
    }

    /// The same, to be filled.
    pub fn bytes_mut(&mut self, tag: u16, length: usize) -> &mut [u8] {
        assert!(length <= self.bytes_each);
        // SAFETY: as in `bytes`; the borrow of `self` is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.of(tag).as_ptr(), length) }
    }

    fn of(&self, tag: u16) -> NonNull<u8> {
        assert!(tag < self.depth);
        // SAFETY: the tag is one of `depth`, and as many parts are mapped.
        unsafe { self.first.add(usize::from(tag) * self.bytes_each) }
    }
}

fn map(bytes: usize, protection: i32, flags: i32, file: RawFd) -> io::Result<NonNull<u8>> {
    // SAFETY: a mapping at a place that the kernel chooses touches no memory of ours; failure is looked at below.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, file, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tag_has_bytes_of_its_own() {
        let mut memory = RequestMemory::map(4, 8192).expect("memory");
        for tag in 0..4 {
            memory.bytes_mut(tag, 8192).fill(tag as u8);
        }
        for tag in 0..4 {
            assert!(memory.bytes(tag, 8192).iter().all(|byte| *byte == tag as u8), "{tag}");
            assert_eq!(memory.address(tag), memory.address(0) + u64::from(tag) * 8192);
        }
    }

    #[test]
    fn descriptors_are_read_where_they_were_written() {
        use std::io::Write;
        let mut file = tempfile::tempfile().expect("a file");
        let mut bytes = vec![0; 4096];
        let (at, sectors, first_sector) = (3 * size_of::<Descriptor>(), 8_u32, 77_u64);
        bytes[at + 4..at + 8].copy_from_slice(&sectors.to_ne_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&first_sector.to_ne_bytes());
        file.write_all(&bytes).expect("written");
        let descriptors = Descriptors::map(&file, 4).expect("mapped");
        assert_eq!(descriptors.read(3), Descriptor { sectors, first_sector, ..Descriptor::default() });
        assert_eq!(descriptors.read(2), Descriptor::default());
    }
}
