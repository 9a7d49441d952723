//! The ring: batches of transfers handed to the kernel in one system call.
//!
//! Every request sits in a slot from submission to completion; the slot owns all memory that the kernel may touch. The
//! ring's depth bounds the slots, the rest waits here in its device's queue, so that no device has all slots ([`DeviceQueues`]).
//! There are twice as many completions as that: room also for the slots that devices have to themselves.
//!
//! What a file cannot do without waiting (a flush, space for a hole) the kernel hands to workers of its own, and where it
//! might wait all the same we ask it to ([`super::File`] knows which file systems do not). By itself it starts
//! four for each processor, which one device that hangs would soon have; here there may be one for each slot.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::io::Errno;

use super::device_queues::DeviceQueues;
use super::op::Parts;
use super::pool::FinishedWork;
use super::work::{DiskTask, DiskWork, WorkStep, rest};

/// Requests in the kernel at once, for less than 64 KiB of ring. A lone device has half of them: 256, more than any device
/// queue we know takes.
const DEPTH: u32 = 512;
/// Slots that each device has to itself, when others have taken all there are.
const OWN: usize = 4;
/// Workers that the kernel may start: for every slot, also with a thousand devices of which each has its own ones.
const KERNEL_WORKERS_MAX: u32 = DEPTH + 1024 * OWN as u32;
/// Longest single transfer; the rest follows as after a short one. The kernel's own bound is just below 2 GiB.
const TRANSFER_BYTES_MAX: usize = 1 << 30;

pub(super) struct IoRing {
    ring: IoUring,
    slots: Vec<RingSlot>,
    free: Vec<u32>,
    /// What waits for a slot.
    queues: DeviceQueues<DiskWork>,
    /// The kernel has a worker of its own for each slot that needs one.
    has_workers: bool,
}

#[derive(Default)]
struct RingSlot {
    work: Option<DiskWork>,
    /// Pieces of a vectored write; kept for its capacity.
    slices: Vec<libc::iovec>,
}

impl IoRing {
    /// Sets a ring up and proves by a request that it works here.
    ///
    /// # Errors
    /// What the kernel, or a filter in front of it, says: then this thread must do without.
    pub fn open() -> io::Result<IoRing> {
        // Completions are picked up when this thread enters the kernel anyway, without interrupting it. Kernels before
        // 6.0 do not know these flags and work without.
        let tuned = IoUring::builder().setup_coop_taskrun().setup_single_issuer().build(DEPTH);
        let mut ring = match tuned {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(DEPTH)?,
            other => other?,
        };
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Writev::CODE, opcode::Fsync::CODE];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring lacks read, write or fsync",
            ));
        }
        // SAFETY: a no-op refers to no memory.
        unsafe { ring.submission().push(&opcode::Nop::new().build()) }.expect("a new ring has room");
        ring.submit_and_wait(1)?;
        let proof = ring.completion().next();
        if proof.is_none_or(|entry| entry.result() != 0) {
            return Err(io::Error::other("io_uring accepted a request and did not carry it out"));
        }
        let slots = (0..DEPTH).map(|_| RingSlot::default()).collect();
        // The bound on workers for what is not a file stays as it is. Kernels before 5.15 do not know this.
        let has_workers = ring.submitter().register_iowq_max_workers(&mut [KERNEL_WORKERS_MAX, 0]).is_ok();
        let queues = DeviceQueues::new(DEPTH as usize, OWN);
        Ok(IoRing { ring, slots, free: (0..DEPTH).rev().collect(), queues, has_workers })
    }

    /// A request that the kernel hands to workers of its own holds nobody else's up.
    pub fn has_workers(&self) -> bool {
        self.has_workers
    }

    /// Whether [`IoRing::submit_and_wait`] can be had: since Linux 5.11.
    pub fn can_wait(&self) -> bool {
        self.ring.params().is_feature_ext_arg()
    }

    /// A descriptor that turns readable with completions, for the thread's reactor.
    pub fn watch_fd(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring keeps its descriptor open for as long as `self` lives.
        let fd = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        fd.try_clone_to_owned()
    }

    pub fn add(&mut self, work: DiskWork) {
        self.queues.push(work.device, work);
    }

    /// Hands what waits to the kernel, as far as there is room. `false`: the kernel was too busy for some of it, call
    /// again soon.
    pub fn submit(&mut self) -> bool {
        self.fill_slots();
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(_) => self.fill_slots(),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN | libc::EBUSY) => return false,
                    // The ring worked at start: nothing that a request did can cause this.
                    _ => panic!("io_uring stopped taking requests: {error}"),
                },
            }
        }
        true
    }

    /// The same, and in the same system call the thread waits until something is done, but no longer than `limit`.
    pub fn submit_and_wait(&mut self, limit: Duration) -> bool {
        self.fill_slots();
        let limit = Timespec::from(limit);
        // What went wrong, if not just time or a signal, the next submission meets again.
        let _ = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit));
        self.submit()
    }

    /// As many as the ring takes at once.
    fn fill_slots(&mut self) {
        while !self.ring.submission().is_full()
            && let Some(work) = self.queues.next()
        {
            let index = self.free.pop().unwrap_or_else(|| {
                self.slots.push(RingSlot::default());
                self.slots.len() as u32 - 1
            });
            let slot = &mut self.slots[index as usize];
            let flags = if work.file.holds_submitters() { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
            let entry = slot.fill(work).user_data(u64::from(index)).flags(flags);
            // SAFETY: all memory named by the entry is on the heap, belongs to the slot's request, and stays in place and
            // unshared with writers until its completion is reaped; `drop` waits for that too.
            unsafe { self.ring.submission().push(&entry) }.expect("it is not full");
        }
    }

    /// Moves finished work to `out`; what needs another transfer goes to the front of the line for the next `submit`.
    pub fn reap(&mut self, out: &mut Vec<FinishedWork>) {
        for entry in self.ring.completion() {
            let index = entry.user_data();
            let mut work = self.slots[index as usize].work.take().expect("a completion belongs to a filled slot");
            self.free.push(index as u32);
            self.queues.leave(work.device);
            let result = match entry.result() {
                code if code < 0 => Err(Errno::from_raw_os_error(-code)),
                bytes => Ok(bytes as usize),
            };
            match work.advance(result) {
                WorkStep::Again => self.queues.push_first(work.device, work),
                WorkStep::Finished(result) => out.push((work, result)),
            }
        }
    }

    fn in_kernel(&self) -> usize {
        self.queues.taken()
    }
}

impl Drop for IoRing {
    /// The kernel may still read from or write to lent memory: wait until it has let go.
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_kernel() > 0 {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                    tracing::error!("io_uring cannot be drained: {error}; its memory is left to the kernel");
                    std::mem::forget(std::mem::take(&mut self.slots));
                    return;
                }
                _ => self.reap(&mut done),
            }
        }
    }
}

impl RingSlot {
    /// Keeps the work and describes its next transfer.
    fn fill(&mut self, work: DiskWork) -> squeue::Entry {
        let work = self.work.insert(work);
        let file = &work.file;
        match &mut work.task {
            DiskTask::Read { offset, buffer, done } => {
                let position = *offset + *done as u64;
                let rest = &mut buffer[*done..];
                let (fd, _) = file.route(position, rest.len() as u64);
                let length = rest.len().min(TRANSFER_BYTES_MAX) as u32;
                opcode::Read::new(Fd(fd.as_raw_fd()), rest.as_mut_ptr(), length).offset(position).build()
            }
            DiskTask::Write { offset, parts, total, done, dsync } => {
                let position = *offset + *done as u64;
                let (fd, _) = file.route_write(position, (*total - *done) as u64, *dsync);
                let fd = Fd(fd.as_raw_fd());
                let flags = if *dsync { libc::RWF_DSYNC } else { 0 };
                if let Parts::One(part) = parts {
                    let rest = &part.bytes()[*done..];
                    let length = rest.len().min(TRANSFER_BYTES_MAX) as u32;
                    return opcode::Write::new(fd, rest.as_ptr(), length).offset(position).rw_flags(flags).build();
                }
                self.slices.clear();
                self.slices.extend(
                    rest(parts, *done)
                        .map(|bytes| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }),
                );
                let count = self.slices.len() as u32;
                opcode::Writev::new(fd, self.slices.as_ptr(), count).offset(position).rw_flags(flags).build()
            }
            DiskTask::Flush => opcode::Fsync::new(Fd(file.as_fd().as_raw_fd())).flags(FsyncFlags::DATASYNC).build(),
            DiskTask::Zero { .. } | DiskTask::BlockStatus { .. } | DiskTask::RenewDelta { .. } => {
                unreachable!("long work goes to a worker")
            }
        }
    }
}
