//! An open volume or state file: descriptors, alignment, identity, and how fast it has been lately.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::limits::SECTOR_BYTES;
use rustix::fs::{AtFlags, StatxFlags};

use super::advisory_lock::unlock;
use super::identity::FileIdentity;

/// What O_DIRECT asks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectRules {
    /// Alignment of memory addresses.
    pub memory: usize,
    /// Alignment of file offsets and of every length.
    pub offset: u64,
}

/// The descriptors of a file.
pub(super) struct FileDescriptors {
    /// Opened with O_DIRECT where the file's rules for it are known.
    pub fd: OwnedFd,
    /// Only where O_DIRECT needs more than a sector: a second, buffered way for small requests.
    pub buffered: Option<OwnedFd>,
}

/// The facts of an open file, as `volume` and `meta` find them.
pub(super) struct OpenedFile {
    pub plain: FileDescriptors,
    /// For durable writes, where the page cache is used, if only for the ends of a hole. What could not be written back from there the
    /// kernel tells once to each open file: told to a durable write, it would be missing from the flush that speaks for what it is about.
    pub durable: Option<FileDescriptors>,
    pub direct: Option<DirectRules>,
    pub path: Arc<Path>,
    pub size_bytes: u64,
    pub logical_block: u32,
    pub physical_block: u32,
    pub identity: FileIdentity,
    /// It ends where the last write ended.
    pub grows: bool,
}

/// An open file or block device, of fixed size unless it grows. Locks and exclusive holds last as long as it does.
pub struct File {
    opened: OpenedFile,
    /// See [`File::holds_submitters`].
    holds_submitters: bool,
    /// Modelled latency in nanoseconds; 0: none.
    latency_ns: AtomicU64,
    pub(super) reads: LatencyAverage,
    pub(super) writes: LatencyAverage,
    /// A flush failed, and so do all others from then on: the disk may have forgotten what it could not write, and would
    /// flush the rest without a word.
    flush_failed: AtomicBool,
}

impl File {
    pub(super) fn new(opened: OpenedFile) -> File {
        assert!(opened.size_bytes.is_multiple_of(u64::from(opened.logical_block)));
        let (reads, writes) = (LatencyAverage::new(), LatencyAverage::new());
        let holds_submitters = holds_submitters(&opened);
        File {
            opened,
            holds_submitters,
            latency_ns: AtomicU64::new(0),
            reads,
            writes,
            flush_failed: AtomicBool::new(false),
        }
    }

    /// From now on a write behind its end makes it longer.
    pub(super) fn growing(mut self) -> File {
        self.opened.grows = true;
        self
    }

    pub fn path(&self) -> &Arc<Path> {
        &self.opened.path
    }

    pub fn size_bytes(&self) -> u64 {
        self.opened.size_bytes
    }

    /// Smallest unit of a client's request in bytes: the device's logical block, 512 for files.
    pub fn logical_block(&self) -> u32 {
        self.opened.logical_block
    }

    /// Unit in bytes that the medium writes at once; a smaller write may tear its neighbours.
    pub fn physical_block(&self) -> u32 {
        self.opened.physical_block
    }

    pub fn identity(&self) -> FileIdentity {
        self.opened.identity
    }

    /// The device that its bytes lie on, as far as the kernel names it: that of the file system, or the block device itself.
    pub(super) fn device(&self) -> u64 {
        match self.opened.identity {
            FileIdentity::File { device, .. } => device,
            FileIdentity::Device { major, minor } => rustix::fs::makedev(major, minor),
        }
    }

    /// Has the kernel drop what it keeps of the file and need not write back. Where it does not, a read may return what a failed write left
    /// in the cache; that is not to be helped.
    pub fn forget_cache(&self) {
        let all = self.opened.durable.iter().chain([&self.opened.plain]);
        for fd in all.flat_map(|way| [Some(&way.fd), way.buffered.as_ref()]).flatten() {
            if let Err(error) = rustix::fs::fadvise(fd, 0, None, rustix::fs::Advice::DontNeed) {
                tracing::debug!("{}: the page cache keeps what it has: {error}", self.opened.path.display());
            }
        }
    }

    /// A number made of its inode and the moment in which it was made: it tells the file from a copy of it, across boots.
    pub fn mark(&self) -> u64 {
        File::mark_of(self)
    }

    /// The same of any file.
    pub fn mark_of(file: impl AsFd) -> u64 {
        let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::BTIME);
        let Ok(found) = found else { return 0 };
        let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let (seconds, ns) = if has_birth { (found.stx_btime.tv_sec, found.stx_btime.tv_nsec) } else { (0, 0) };
        let words = [found.stx_ino, seconds.cast_unsigned(), u64::from(ns)];
        words.into_iter().fold(0, |mark: u64, word| (mark.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Whether it ends before it did when it was opened. By what the kernel knows: a server that hangs is not asked. One call, which costs
    /// a write some 0.2 us; none for a device.
    pub(super) fn is_cut_short(&self) -> bool {
        if self.is_block_device() || self.opened.grows {
            return false;
        }
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(self, c"", flags, StatxFlags::SIZE);
        found.is_ok_and(|found| found.stx_size < self.opened.size_bytes)
    }

    /// Whether somebody who hands a request over may be held until it is done, though they asked not to be.
    pub(super) fn holds_submitters(&self) -> bool {
        self.holds_submitters
    }

    pub fn is_block_device(&self) -> bool {
        matches!(self.opened.identity, FileIdentity::Device { .. })
    }

    /// True when requests pass the page cache by (O_DIRECT).
    pub fn direct(&self) -> bool {
        self.opened.direct.is_some()
    }

    /// From now on every write, zeroing or flush completes no earlier than `latency` after its issue: to re-enact slow
    /// disks. Zero ends it.
    pub fn model_latency(&self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latency_ns.store(nanoseconds, Ordering::Relaxed);
    }

    pub(super) fn modelled_latency(&self) -> Duration {
        Duration::from_nanos(self.latency_ns.load(Ordering::Relaxed))
    }

    /// Is the range inside the file and in whole sectors? On a device with larger blocks clients keep to those, but what
    /// a peer with smaller ones sends must find its place too.
    pub(super) fn admits(&self, offset: u64, length: u64) -> bool {
        let end_max = if self.opened.grows { END_MAX } else { self.opened.size_bytes };
        let inside = offset.checked_add(length).is_some_and(|end| end <= end_max);
        inside && offset.is_multiple_of(SECTOR_BYTES) && length.is_multiple_of(SECTOR_BYTES)
    }

    /// The descriptor for a transfer, and what it asks of memory (`None`: nothing).
    pub(super) fn route(&self, offset: u64, length: u64) -> (BorrowedFd<'_>, Option<DirectRules>) {
        self.route_in(&self.opened.plain, offset, length)
    }

    /// The same for a write.
    pub(super) fn route_write(&self, offset: u64, length: u64, durable: bool) -> (BorrowedFd<'_>, Option<DirectRules>) {
        let apart = self.opened.durable.as_ref().filter(|_| durable);
        self.route_in(apart.unwrap_or(&self.opened.plain), offset, length)
    }

    fn route_in<'a>(
        &self,
        ways: &'a FileDescriptors,
        offset: u64,
        length: u64,
    ) -> (BorrowedFd<'a>, Option<DirectRules>) {
        let Some(rules) = self.opened.direct else {
            return (ways.fd.as_fd(), None);
        };
        let aligned = offset.is_multiple_of(rules.offset) && length.is_multiple_of(rules.offset);
        match &ways.buffered {
            Some(buffered) if !aligned => (buffered.as_fd(), None),
            _ => (ways.fd.as_fd(), Some(rules)),
        }
    }

    // Relaxed: whoever asks was told of the failure by the completion of a request, or asks too early to know of it.
    pub(super) fn latch_flushes(&self) {
        self.flush_failed.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_failed_flush(&self) -> bool {
        self.flush_failed.load(Ordering::Relaxed)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.is_block_device() {
            let durable = self.opened.durable.as_ref();
            durable.into_iter().chain([&self.opened.plain]).for_each(|ways| unlock(&ways.fd));
        }
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.opened.plain.fd.as_fd()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "File({}, {} bytes)", self.opened.path.display(), self.opened.size_bytes)
    }
}

/// Where a file may end that grows, as far as the kernel counts.
const END_MAX: u64 = i64::MAX as u64;

/// Of these file systems it is known that they take a request without waiting for its end, or say that they cannot. FUSE says
/// nothing and waits.
const ASYNCHRONOUS: [i128; 6] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
    0xca45_1a4e, // bcachefs
    0x0102_1994, // tmpfs
];

fn holds_submitters(opened: &OpenedFile) -> bool {
    match opened.identity {
        FileIdentity::Device { .. } => false,
        FileIdentity::File { .. } => rustix::fs::fstatfs(&opened.plain.fd)
            .map_or(true, |system| !ASYNCHRONOUS.contains(&i128::from(system.f_type))),
    }
}

/// A moving average of how long recent lone requests took.
pub(super) struct LatencyAverage {
    /// Nanoseconds; `UNKNOWN` until the first sample.
    average_ns: AtomicU64,
}

impl LatencyAverage {
    const UNKNOWN: u64 = u64::MAX;
    /// A sample counts for an eighth, and no single outlier for more than this: a disk that hiccups once comes back
    /// within a few requests, one that is slow stays slow.
    const SAMPLE_NS_MAX: u64 = 2_000_000;

    fn new() -> LatencyAverage {
        LatencyAverage { average_ns: AtomicU64::new(LatencyAverage::UNKNOWN) }
    }

    // Relaxed throughout: only the file's data thread writes, and a stale reading costs one slower request.
    pub fn sample(&self, elapsed: Duration) {
        let sample = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).min(LatencyAverage::SAMPLE_NS_MAX);
        let average = match self.average_ns.load(Ordering::Relaxed) {
            LatencyAverage::UNKNOWN => sample,
            average => average - average / 8 + sample / 8,
        };
        self.average_ns.store(average, Ordering::Relaxed);
    }

    pub fn is_below(&self, bound: Duration) -> bool {
        u128::from(self.average_ns.load(Ordering::Relaxed)) < bound.as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_is_unknown_then_follows_and_forgives_one_outlier() {
        let bound = Duration::from_micros(100);
        let pace = LatencyAverage::new();
        assert!(!pace.is_below(bound));
        pace.sample(Duration::from_micros(60));
        assert!(pace.is_below(bound));
        pace.sample(Duration::from_secs(5));
        assert!(!pace.is_below(bound));
        let recovery = (0..100).take_while(|_| {
            pace.sample(Duration::from_micros(60));
            !pace.is_below(bound)
        });
        assert!(recovery.count() < 20);
    }
}
