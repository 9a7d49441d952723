//! Aligned memory for payload, taken from a bounded pool and given back on drop.
//!
//! A [`Buffer`] is unique and writable while it is filled; `Arc<Buffer>` (wrapped as the engine's opaque handle) shares
//! it afterwards, so that the local write, the queue and the link hold the same bytes without a copy.
//!
//! A pool is a coat check: it counts what is out by the size of the hook, not of the coat, and refuses the next coat
//! when the hooks are used up. What must hold:
//! * outstanding bytes never pass the limit, save that one request larger than the whole limit is granted when nothing
//!   else is out: refusing it for ever would be a hang;
//! * memory is zeroed when the kernel first gives it, never again: a reused buffer holds old bytes, initialised but
//!   meaningless, and its taker must fill what it shows to others;
//! * idle memory kept for reuse is bounded on its own, so that a burst does not stay resident for ever.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Alignment of every buffer: what O_DIRECT asks of any device we know.
pub(crate) const ALIGNMENT: usize = 4096;

/// Sizes are 2^n and 3 * 2^(n-1) blocks of 4 KiB, up to 32 MiB (the largest NBD payload): two classes for each
/// doubling keep the waste under a third.
const CLASSES: usize = 26;
/// Largest size that is kept for reuse.
const CLASS_BYTES_MAX: usize = class_bytes(CLASSES - 1);
/// Idle memory one pool keeps: a full set of 1 MiB requests at depth 16 or 4 KiB ones at depth 4 096; larger
/// bursts pay for fresh pages, which costs little beside their copying.
const IDLE_BYTES_MAX: usize = 16 << 20;
/// From here memory comes straight from the kernel, already zero, instead of being cleared a second time.
const MAP_BYTES_MIN: usize = 256 << 10;

const _: () = assert!(CLASS_BYTES_MAX == 32 << 20);
const _: () = assert!(class_bytes(0) == ALIGNMENT && class_bytes(2) == 3 * ALIGNMENT);

/// Bytes of size class `class`: 4, 8, 12, 16, 24, 32, 48 KiB ...
const fn class_bytes(class: usize) -> usize {
    match class {
        0 => ALIGNMENT,
        n if n % 2 == 1 => (2 * ALIGNMENT) << (n / 2),
        n => (3 * ALIGNMENT) << (n / 2 - 1),
    }
}

/// The smallest class that holds `length`, or `None` above the largest.
fn class_of(length: usize) -> Option<usize> {
    if length <= ALIGNMENT {
        return Some(0);
    }
    // One less than the length decides, so that an exact power of two is its own class.
    let doublings = ((length - 1) / ALIGNMENT).ilog2() as usize;
    let middle = 2 * doublings;
    let class = if length <= class_bytes(middle) { middle } else { middle + 1 };
    (class < CLASSES).then_some(class)
}

/// What a buffer of `length` bytes costs its pool.
pub(crate) fn cost_of(length: usize) -> usize {
    class_of(length).map_or_else(|| length.next_multiple_of(ALIGNMENT), class_bytes)
}

/// Unique aligned memory of a chosen length, given back to its pool when dropped.
pub struct Buffer {
    memory: AlignedMemory,
    length: usize,
    home: Option<Arc<PoolShared>>,
}

impl Buffer {
    /// A zeroed buffer that belongs to no pool and counts against no limit: for start-up, tools and tests.
    pub fn detached(length: usize) -> Buffer {
        let capacity = length.next_multiple_of(ALIGNMENT);
        Buffer { memory: AlignedMemory::new(capacity), length, home: None }
    }

    /// Bytes asked for.
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes of memory behind it, which is what it costs its pool.
    pub fn capacity(&self) -> usize {
        self.memory.capacity
    }

    /// Shortens the buffer; a longer length than it has changes nothing.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `memory` owns at least `length` bytes, initialised when they were allocated; `&self` forbids writers.
        unsafe { std::slice::from_raw_parts(self.memory.pointer.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.memory.pointer.as_ptr(), self.length) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.give_back(std::mem::replace(&mut self.memory, AlignedMemory::EMPTY));
        }
    }
}

impl std::fmt::Debug for Buffer {
    // The content is somebody's data: it has no place in a log.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Buffer({} bytes)", self.length)
    }
}

/// A bounded source of buffers. Clones share one limit.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<PoolShared>,
}

impl Pool {
    /// `limit_bytes` bounds the memory out at any time, counted by capacity.
    pub fn new(limit_bytes: usize) -> Pool {
        let idle = Idle { classes: std::array::from_fn(|_| Vec::new()), bytes: 0 };
        Pool {
            shared: Arc::new(PoolShared {
                limit_bytes,
                outstanding_bytes: AtomicUsize::new(0),
                starved: AtomicBool::new(false),
                freed: Notify::new(),
                idle: Mutex::new(idle),
            }),
        }
    }

    /// A buffer of exactly `length` bytes with old content, or `None` when the limit is reached: stop asking and wait
    /// for [`Pool::freed`].
    pub fn take(&self, length: usize) -> Option<Buffer> {
        let class = class_of(length);
        let capacity = cost_of(length);
        if !self.shared.claim(capacity) {
            self.shared.starved.store(true, Ordering::SeqCst);
            // A buffer given back just before the flag stood has told nobody: look once more.
            if !self.shared.claim(capacity) {
                return None;
            }
        }
        let reused = class.and_then(|class| self.shared.reuse(class));
        let memory = reused.unwrap_or_else(|| AlignedMemory::new(capacity));
        Some(Buffer { memory, length, home: Some(self.shared.clone()) })
    }

    /// Resolves when buffers have been given back since [`Pool::take`] last refused one.
    pub async fn freed(&self) {
        // Registered before the look at the flag, so that no give-back falls between the two.
        let freed = self.shared.freed.notified();
        if self.shared.starved.load(Ordering::SeqCst) {
            freed.await;
        }
    }

    /// Memory out now, by capacity.
    pub fn outstanding_bytes(&self) -> usize {
        self.shared.outstanding_bytes.load(Ordering::SeqCst)
    }

    pub fn limit_bytes(&self) -> usize {
        self.shared.limit_bytes
    }
}

struct PoolShared {
    limit_bytes: usize,
    outstanding_bytes: AtomicUsize,
    /// Somebody was refused and nothing has come back since.
    starved: AtomicBool,
    freed: Notify,
    idle: Mutex<Idle>,
}

struct Idle {
    classes: [Vec<AlignedMemory>; CLASSES],
    bytes: usize,
}

impl PoolShared {
    fn claim(&self, capacity: usize) -> bool {
        let grant = |out: usize| {
            let after = out.checked_add(capacity)?;
            (after <= self.limit_bytes || out == 0).then_some(after)
        };
        self.outstanding_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, grant).is_ok()
    }

    fn reuse(&self, class: usize) -> Option<AlignedMemory> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = idle.classes[class].pop()?;
        idle.bytes -= memory.capacity;
        Some(memory)
    }

    fn give_back(&self, memory: AlignedMemory) {
        let capacity = memory.capacity;
        self.keep(memory);
        let out = self.outstanding_bytes.fetch_sub(capacity, Ordering::SeqCst);
        assert!(out >= capacity, "a pool got back more memory than it gave");
        if self.starved.swap(false, Ordering::SeqCst) {
            self.freed.notify_waiters();
        }
    }

    fn keep(&self, memory: AlignedMemory) {
        let Some(class) = class_of(memory.capacity) else {
            return;
        };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.bytes + memory.capacity <= IDLE_BYTES_MAX {
            idle.bytes += memory.capacity;
            idle.classes[class].push(memory);
        }
    }
}

/// Owned, aligned, initialised memory.
struct AlignedMemory {
    pointer: NonNull<u8>,
    capacity: usize,
}

// SAFETY: plain owned memory with no thread affinity; shared access through `&AlignedMemory` never writes.
unsafe impl Send for AlignedMemory {}
// SAFETY: as above.
unsafe impl Sync for AlignedMemory {}

impl AlignedMemory {
    const EMPTY: AlignedMemory = AlignedMemory { pointer: NonNull::dangling(), capacity: 0 };

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT).expect("a buffer is smaller than the address space")
    }

    /// `capacity` zeroed bytes, a multiple of the alignment.
    fn new(capacity: usize) -> AlignedMemory {
        assert!(capacity.is_multiple_of(ALIGNMENT));
        if capacity == 0 {
            return AlignedMemory::EMPTY;
        }
        let address = if capacity >= MAP_BYTES_MIN {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a fresh anonymous mapping touches no existing memory; failure is checked below.
            let address = unsafe { libc::mmap(std::ptr::null_mut(), capacity, protection, flags, -1, 0) };
            if address == libc::MAP_FAILED { std::ptr::null_mut() } else { address.cast() }
        } else {
            // SAFETY: the layout has a size above zero.
            unsafe { alloc_zeroed(AlignedMemory::layout(capacity)) }
        };
        let Some(pointer) = NonNull::new(address) else { handle_alloc_error(AlignedMemory::layout(capacity)) };
        AlignedMemory { pointer, capacity }
    }
}

impl Drop for AlignedMemory {
    fn drop(&mut self) {
        if self.capacity >= MAP_BYTES_MIN {
            // SAFETY: mapped in `new` with this very length, and owned by nobody else.
            let result = unsafe { libc::munmap(self.pointer.as_ptr().cast(), self.capacity) };
            debug_assert_eq!(result, 0);
        } else if self.capacity > 0 {
            // SAFETY: allocated in `new` with this very layout, and owned by nobody else.
            unsafe { dealloc(self.pointer.as_ptr(), AlignedMemory::layout(self.capacity)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_every_length() {
        let mut length = 1;
        while length <= CLASS_BYTES_MAX {
            for probe in [length - 1, length, length + 1] {
                let Some(class) = class_of(probe) else {
                    assert!(probe > CLASS_BYTES_MAX);
                    continue;
                };
                assert!(class_bytes(class) >= probe);
                assert!(class == 0 || class_bytes(class - 1) < probe, "{probe} fits a smaller class");
            }
            length += 2048;
        }
    }

    #[test]
    fn memory_is_aligned_writable_and_starts_as_zero() {
        for length in [1, 512, 4096, 5000, 65536, 1 << 20, 32 << 20, (32 << 20) + 1] {
            let pool = Pool::new(64 << 20);
            let mut buffer = pool.take(length).unwrap();
            assert_eq!(buffer.len(), length);
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            assert_eq!((buffer[0], buffer[length - 1]), (7, 7));
        }
        assert!(Buffer::detached(0).is_empty());
    }

    #[test]
    fn the_limit_counts_capacity_and_comes_back() {
        let pool = Pool::new(3 * ALIGNMENT);
        let one = pool.take(1).unwrap();
        let two = pool.take(ALIGNMENT + 1).unwrap();
        assert_eq!(pool.outstanding_bytes(), 3 * ALIGNMENT);
        assert!(pool.take(1).is_none());
        drop(one);
        assert!(pool.take(1).is_some());
        drop(two);
        assert_eq!(pool.outstanding_bytes(), 0);
    }

    #[test]
    fn a_request_above_the_whole_limit_is_served_alone() {
        let pool = Pool::new(ALIGNMENT);
        let large = pool.take(10 * ALIGNMENT).unwrap();
        assert!(pool.take(1).is_none());
        drop(large);
        let small = pool.take(1).unwrap();
        assert!(pool.take(10 * ALIGNMENT).is_none());
        drop(small);
    }

    #[test]
    fn memory_is_reused_and_idle_memory_is_bounded() {
        let pool = Pool::new(usize::MAX);
        let first = pool.take(4096).unwrap();
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.take(100).unwrap().as_ptr(), address);
        let many: Vec<_> = (0..40).map(|_| pool.take(1 << 20).unwrap()).collect();
        drop(many);
        assert!(pool.shared.idle.lock().unwrap().bytes <= IDLE_BYTES_MAX);
    }

    #[test]
    fn a_shared_buffer_returns_home_from_any_thread() {
        let pool = Pool::new(1 << 20);
        let shared = Arc::new(pool.take(4096).unwrap());
        let other = shared.clone();
        std::thread::spawn(move || assert_eq!(other.len(), 4096)).join().unwrap();
        drop(shared);
        assert_eq!(pool.outstanding_bytes(), 0);
    }

    #[tokio::test]
    async fn a_refused_taker_is_woken() {
        let pool = Pool::new(ALIGNMENT);
        pool.freed().await;
        let held = pool.take(1).unwrap();
        assert!(pool.take(1).is_none());
        let waiting = tokio::spawn({
            let pool = pool.clone();
            async move {
                while pool.take(1).is_none() {
                    pool.freed().await;
                }
            }
        });
        tokio::task::yield_now().await;
        std::thread::spawn(move || drop(held)).join().unwrap();
        waiting.await.unwrap();
    }
}
