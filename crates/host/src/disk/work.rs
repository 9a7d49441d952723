//! One request on its way: what is left of it, and the next system call it needs.
//!
//! Whoever carries a request out (the ring, a worker, the data thread itself) repeats two steps: perform one transfer,
//! hand its result to [`DiskWork::advance`]. Short transfers, interruptions and the cutting of long ranges live here once.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::{Errno, ReadWriteFlags};

use super::file::{DirectRules, File};
use super::op::{DiskAnswer, DiskError, DiskOp, ErrorKind, Inline, OpName, Part, Parts};
use super::{delta, status, zero};
use crate::buffers::{Buffer, Pool};

/// The kernel's IOV_MAX; longer lists are cut and continued like short writes.
const SLICES_MAX: usize = 1024;
/// How often in a row the kernel may say "again" before that counts as a failure.
const RETRIES_MAX: u32 = 1000;
/// Longest request that the data thread may wait for: more takes longer than the thread may be away.
const INLINE_BYTES_MAX: usize = 128 << 10;

/// A request being carried out.
pub(super) struct DiskWork {
    pub token: u64,
    pub file: Arc<File>,
    /// Its number among the engine's devices, from the hand-over on.
    pub device: usize,
    pub task: DiskTask,
    inline: Inline,
    /// Alone in flight when issued: its duration says something about the disk and not about a queue.
    pub lone: bool,
    pub issued: Instant,
    retries: u32,
}

pub(super) enum DiskTask {
    Read { offset: u64, buffer: Buffer, done: usize },
    Write { offset: u64, parts: Parts, total: usize, done: usize, dsync: bool },
    Flush,
    Zero { offset: u64, length: u64, method: zero::ZeroMethod },
    BlockStatus { offset: u64, length: u64, runs_max: usize },
    RenewDelta { path: Arc<Path> },
}

/// What a step left.
pub(super) enum WorkStep {
    /// Perform again: there is more, or the kernel was interrupted.
    Again,
    Finished(Result<DiskAnswer, DiskError>),
}

impl DiskWork {
    /// Checks the request and brings its memory into the form the file needs. `bounce` lends aligned memory.
    pub fn prepare(
        token: u64,
        file: &Arc<File>,
        op: DiskOp,
        inline: Inline,
        bounce: &Pool,
    ) -> Result<DiskWork, DiskError> {
        let task = match op {
            DiskOp::Read { offset, buffer } => DiskTask::Read { offset, buffer, done: 0 },
            DiskOp::Write { offset, parts, dsync } => {
                let total = parts.length();
                let parts = match file.route_write(offset, total as u64, dsync) {
                    (_, Some(rules)) => align(parts, rules, bounce),
                    (_, None) => parts,
                };
                DiskTask::Write { offset, parts, total, done: 0, dsync }
            }
            DiskOp::Flush => DiskTask::Flush,
            DiskOp::Zero { offset, length, no_hole } => {
                DiskTask::Zero { offset, length, method: zero::ZeroMethod::first(no_hole) }
            }
            DiskOp::BlockStatus { offset, length, runs_max } => DiskTask::BlockStatus { offset, length, runs_max },
            DiskOp::RenewDelta { path } => DiskTask::RenewDelta { path },
        };
        let (offset, length) = task.range();
        if !file.admits(offset, length) {
            return Err(DiskError::of_kind(ErrorKind::Invalid, task.name(), file.path()));
        }
        let changes = matches!(task, DiskTask::Write { .. } | DiskTask::Zero { .. });
        if changes && file.is_cut_short() {
            // It would make the file whole again, and zeroes of what was cut off.
            return Err(DiskError::of_kind(ErrorKind::Truncated, task.name(), file.path()));
        }
        let (file, issued) = (file.clone(), Instant::now());
        Ok(DiskWork { token, file, device: 0, task, inline, lone: false, issued, retries: 0 })
    }

    pub fn is_flush(&self) -> bool {
        matches!(self.task, DiskTask::Flush)
    }

    /// Nothing to do at all: a transfer of no bytes.
    pub fn is_empty(&self) -> bool {
        let has_range = !self.is_flush() && !matches!(self.task, DiskTask::RenewDelta { .. });
        has_range && self.task.range().1 == 0
    }

    /// The answer to an empty request.
    pub fn answer_empty(&mut self) -> DiskAnswer {
        match &mut self.task {
            DiskTask::Read { buffer, .. } => DiskAnswer::Data(std::mem::replace(buffer, Buffer::detached(0))),
            DiskTask::BlockStatus { .. } => DiskAnswer::Runs(Vec::new()),
            _ => DiskAnswer::Done,
        }
    }

    /// May the data thread wait for it, given that nothing else is in flight? Never for a flush or a durable write: they
    /// wait for the medium.
    pub fn suits_inline(&self, bound: Duration) -> bool {
        let pace = match &self.task {
            DiskTask::Read { .. } => &self.file.reads,
            DiskTask::Write { dsync: false, .. } => &self.file.writes,
            _ => return false,
        };
        self.inline == Inline::Allowed && self.is_short() && pace.is_below(bound)
    }

    /// Work that may take long in the kernel whatever the engine: it belongs to a worker.
    pub fn needs_worker(&self) -> bool {
        matches!(self.task, DiskTask::Zero { .. } | DiskTask::BlockStatus { .. } | DiskTask::RenewDelta { .. })
    }

    /// Work that the kernel hands to a worker of its own.
    pub fn needs_kernel_worker(&self) -> bool {
        matches!(self.task, DiskTask::Flush) || self.file.holds_submitters()
    }

    /// The earliest moment its completion may be reported.
    pub fn due(&self) -> Option<Instant> {
        let delayed = matches!(self.task, DiskTask::Write { .. } | DiskTask::Flush | DiskTask::Zero { .. });
        let latency = self.file.modelled_latency();
        (delayed && !latency.is_zero()).then(|| self.issued + latency)
    }

    /// Notes how fast the file is, where this request can tell.
    pub fn sample(&self, elapsed: Duration) {
        if self.lone && self.is_short() {
            match &self.task {
                DiskTask::Read { .. } => self.file.reads.sample(elapsed),
                DiskTask::Write { dsync: false, .. } => self.file.writes.sample(elapsed),
                _ => {}
            }
        }
    }

    fn is_short(&self) -> bool {
        self.task.range().1 <= INLINE_BYTES_MAX as u64
    }

    /// Performs the next system call and takes in its result.
    pub fn step_blocking(&mut self) -> WorkStep {
        let result = match &mut self.task {
            DiskTask::Read { offset, buffer, done } => {
                let (fd, _) = self.file.route(*offset + *done as u64, (buffer.len() - *done) as u64);
                rustix::io::pread(fd, &mut buffer[*done..], *offset + *done as u64)
            }
            DiskTask::Write { offset, parts, total, done, dsync } => {
                let (fd, _) = self.file.route_write(*offset + *done as u64, (*total - *done) as u64, *dsync);
                let flags = if *dsync { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
                write_once(fd, parts, *offset, *done, flags)
            }
            DiskTask::Flush => rustix::fs::fdatasync(&self.file).map(|()| 0),
            DiskTask::Zero { offset, length, method } => {
                zero::piece(&self.file, *offset, *length, method).map(|bytes| bytes as usize)
            }
            DiskTask::BlockStatus { offset, length, runs_max } => {
                return WorkStep::Finished(
                    status::block_status(&self.file, *offset, *length, *runs_max).map(DiskAnswer::Runs),
                );
            }
            DiskTask::RenewDelta { path } => {
                let renewed = delta::renew(path);
                let failed = |errno| DiskError::new(OpName::RenewDelta, path, errno);
                return WorkStep::Finished(renewed.map(DiskAnswer::Opened).map_err(failed));
            }
        };
        self.advance(result)
    }

    /// Takes in what one transfer brought.
    pub fn advance(&mut self, result: Result<usize, Errno>) -> WorkStep {
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(Errno::INTR) => return WorkStep::Again,
            Err(errno) if matches!(self.task, DiskTask::Flush) => {
                self.file.latch_flushes();
                return WorkStep::Finished(Err(self.error(errno)));
            }
            Err(Errno::AGAIN) if self.retries < RETRIES_MAX => {
                self.retries += 1;
                return WorkStep::Again;
            }
            Err(errno) => return WorkStep::Finished(Err(self.error(errno))),
        };
        self.retries = 0;
        let name = self.task.name();
        match &mut self.task {
            // Another one took the error while this one was under way, or long before.
            DiskTask::Flush if self.file.has_failed_flush() => WorkStep::Finished(Err(self.error_kind(ErrorKind::Io))),
            DiskTask::Flush => WorkStep::Finished(Ok(DiskAnswer::Done)),
            DiskTask::Read { .. } if bytes == 0 => WorkStep::Finished(Err(self.error_kind(ErrorKind::Truncated))),
            DiskTask::Write { .. } if bytes == 0 => WorkStep::Finished(Err(self.error_kind(ErrorKind::Io))),
            DiskTask::Read { buffer, done, .. } => {
                *done += bytes;
                assert!(*done <= buffer.len(), "{name}: more bytes than asked for");
                if *done < buffer.len() {
                    return WorkStep::Again;
                }
                WorkStep::Finished(Ok(DiskAnswer::Data(std::mem::replace(buffer, Buffer::detached(0)))))
            }
            DiskTask::Write { done, total, .. } => {
                *done += bytes;
                assert!(*done <= *total, "{name}: more bytes than given");
                if *done < *total { WorkStep::Again } else { WorkStep::Finished(Ok(DiskAnswer::Done)) }
            }
            DiskTask::Zero { offset, length, .. } => {
                *offset += bytes as u64;
                *length -= bytes as u64;
                if *length > 0 { WorkStep::Again } else { WorkStep::Finished(Ok(DiskAnswer::Done)) }
            }
            DiskTask::BlockStatus { .. } | DiskTask::RenewDelta { .. } => {
                unreachable!("it is answered where it is performed")
            }
        }
    }

    pub fn error(&self, errno: Errno) -> DiskError {
        DiskError::new(self.task.name(), self.file.path(), errno)
    }

    fn error_kind(&self, kind: ErrorKind) -> DiskError {
        DiskError::of_kind(kind, self.task.name(), self.file.path())
    }
}

impl DiskTask {
    /// Offset and whole length of the request (for `Zero`: of what is left).
    fn range(&self) -> (u64, u64) {
        match self {
            DiskTask::Read { offset, buffer, .. } => (*offset, buffer.len() as u64),
            DiskTask::Write { offset, total, .. } => (*offset, *total as u64),
            DiskTask::Flush | DiskTask::RenewDelta { .. } => (0, 0),
            DiskTask::Zero { offset, length, .. } | DiskTask::BlockStatus { offset, length, .. } => (*offset, *length),
        }
    }

    fn name(&self) -> OpName {
        match self {
            DiskTask::Read { .. } => OpName::Read,
            DiskTask::Write { .. } => OpName::Write,
            DiskTask::Flush => OpName::Flush,
            DiskTask::Zero { .. } => OpName::Zero,
            DiskTask::BlockStatus { .. } => OpName::BlockStatus,
            DiskTask::RenewDelta { .. } => OpName::RenewDelta,
        }
    }
}

/// What is left of a write's parts after `done` bytes, in order, as many as one system call takes.
pub(super) fn rest(parts: &Parts, done: usize) -> impl Iterator<Item = &[u8]> {
    let mut skip = done;
    let left = parts.as_slice().iter().filter_map(move |part| {
        let bytes = part.bytes();
        let skipped = skip.min(bytes.len());
        skip -= skipped;
        (skipped < bytes.len()).then(|| &bytes[skipped..])
    });
    left.take(SLICES_MAX)
}

fn write_once(
    fd: BorrowedFd<'_>,
    parts: &Parts,
    offset: u64,
    done: usize,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    let position = offset + done as u64;
    if let Parts::One(part) = parts {
        return rustix::io::pwritev2(fd, &[IoSlice::new(&part.bytes()[done..])], position, flags);
    }
    let slices: Vec<IoSlice<'_>> = rest(parts, done).map(IoSlice::new).collect();
    rustix::io::pwritev2(fd, &slices, position, flags)
}

/// Replaces parts that O_DIRECT would refuse by aligned copies; payload that fits is left where it lies. A run of
/// misfits is copied together until it ends on a block boundary, since every slice must be whole blocks.
fn align(parts: Parts, rules: DirectRules, bounce: &Pool) -> Parts {
    let whole = |length: usize| (length as u64).is_multiple_of(rules.offset);
    let fits = |bytes: &[u8]| whole(bytes.len()) && (bytes.as_ptr() as usize).is_multiple_of(rules.memory);
    if parts.as_slice().iter().all(|part| fits(part.bytes())) {
        return parts;
    }
    let copy = |run: &mut Vec<Part>| {
        let length = run.iter().map(|part| part.bytes().len()).sum();
        let mut buffer = bounce.take(length).expect("the bounce pool has no limit");
        let mut at = 0;
        for part in run.drain(..) {
            let bytes = part.bytes();
            buffer[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        Part::Owned(buffer)
    };
    let parts = match parts {
        Parts::One(part) => return Parts::One(copy(&mut vec![part])),
        Parts::Many(parts) => parts,
    };
    let (mut aligned, mut run, mut run_bytes) = (Vec::with_capacity(parts.len()), Vec::new(), 0);
    for part in parts {
        if whole(run_bytes) && fits(part.bytes()) {
            if !run.is_empty() {
                aligned.push(copy(&mut run));
                run_bytes = 0;
            }
            aligned.push(part);
        } else {
            run_bytes += part.bytes().len();
            run.push(part);
        }
    }
    if !run.is_empty() {
        aligned.push(copy(&mut run));
    }
    Parts::Many(aligned)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    fn shared(range: std::ops::Range<usize>) -> Part {
        let mut buffer = Buffer::detached(8192);
        for (at, byte) in buffer.iter_mut().enumerate() {
            *byte = (at / 512) as u8 + 1;
        }
        Part::Shared { buffer: Arc::new(buffer), range }
    }

    #[test]
    fn aligned_parts_stay_and_misfits_are_copied_up_to_a_block_boundary() {
        let rules = DirectRules { memory: 512, offset: 512 };
        let parts = vec![
            shared(0..4096),
            Part::Meta(vec![7; 100]),
            shared(100..512),
            Part::Meta(vec![8; 512]),
            shared(512..1536),
            shared(1..513),
        ];
        let expected: Vec<u8> = parts.iter().flat_map(|part| part.bytes().to_vec()).collect();
        let kept = (parts[0].bytes().as_ptr(), parts[4].bytes().as_ptr());
        let aligned = align(Parts::Many(parts), rules, &Pool::new(usize::MAX));
        let slices: Vec<&[u8]> = rest(&aligned, 0).collect();
        assert_eq!(slices.concat(), expected);
        let whole = |slice: &[u8]| [slice.len(), slice.as_ptr() as usize].into_iter().all(|n| n.is_multiple_of(512));
        assert!(slices.iter().all(|slice| whole(slice)));
        assert_eq!((slices[0].as_ptr(), slices[2].as_ptr()), kept);
    }

    #[test]
    fn the_rest_of_a_write_starts_inside_a_part_and_is_bounded() {
        let parts = Parts::Many(vec![Part::Meta(vec![1; 10]), Part::Meta(Vec::new()), Part::Meta(vec![2; 10])]);
        assert_eq!(rest(&parts, 4).collect::<Vec<_>>().concat(), [[1; 6].as_slice(), &[2; 10]].concat());
        assert_eq!(rest(&parts, 10).count(), 1);
        assert_eq!(rest(&parts, 20).count(), 0);
        let many = Parts::Many((0..2000).map(|_| Part::Meta(vec![0; 1])).collect());
        assert_eq!(rest(&many, 0).count(), SLICES_MAX);
    }

    fn write_of(file: &Arc<File>, parts: Vec<Part>) -> DiskWork {
        let op = DiskOp::Write { offset: 512, parts: parts.into(), dsync: false };
        DiskWork::prepare(1, file, op, Inline::Allowed, &Pool::new(usize::MAX)).unwrap()
    }

    fn file() -> (tempfile::NamedTempFile, Arc<File>) {
        file_by(true)
    }

    fn file_by(buffered: bool) -> (tempfile::NamedTempFile, Arc<File>) {
        let backing = tempfile::NamedTempFile::new().unwrap();
        backing.as_file().set_len(1 << 20).unwrap();
        let options = super::super::volume::VolumeOptions { buffered };
        let file = super::super::volume::open_volume(backing.path(), options).unwrap();
        (backing, Arc::new(file))
    }

    #[test]
    fn short_transfers_are_continued_where_they_stopped() {
        let (backing, file) = file();
        let mut work = write_of(&file, vec![Part::Meta(vec![1; 512]), Part::Meta(vec![2; 512])]);
        // As if the kernel had taken 700 bytes: the next call must begin inside the second part.
        assert!(matches!(work.advance(Ok(700)), WorkStep::Again));
        assert!(matches!(work.step_blocking(), WorkStep::Finished(Ok(DiskAnswer::Done))));
        let bytes = std::fs::read(backing.path()).unwrap();
        assert!(bytes[..1212].iter().all(|byte| *byte == 0));
        assert!(bytes[1212..1536].iter().all(|byte| *byte == 2));
        assert!(bytes[1536..].iter().all(|byte| *byte == 0));

        let op = DiskOp::Read { offset: 0, buffer: Buffer::detached(2048) };
        let mut work = DiskWork::prepare(1, &file, op, Inline::Allowed, &Pool::new(0)).unwrap();
        assert!(matches!(work.advance(Ok(100)), WorkStep::Again));
        let WorkStep::Finished(Ok(DiskAnswer::Data(read))) = work.step_blocking() else { panic!("not finished") };
        assert_eq!(read[100..], bytes[100..2048]);
    }

    #[test]
    fn interruptions_are_repeated_and_failures_have_their_kind() {
        let (_backing, file) = file();
        let mut work = write_of(&file, vec![Part::Meta(vec![1; 512])]);
        for _ in 0..RETRIES_MAX {
            assert!(matches!(work.advance(Err(Errno::INTR)), WorkStep::Again));
            assert!(matches!(work.advance(Err(Errno::AGAIN)), WorkStep::Again));
        }
        let cases = [
            (Err(Errno::AGAIN), ErrorKind::NoMemory),
            (Err(Errno::NOSPC), ErrorKind::NoSpace),
            (Err(Errno::DQUOT), ErrorKind::NoSpace),
            (Err(Errno::FBIG), ErrorKind::TooLarge),
            (Err(Errno::ROFS), ErrorKind::ReadOnly),
            (Err(Errno::IO), ErrorKind::Io),
            (Err(Errno::NODEV), ErrorKind::Io),
            (Ok(0), ErrorKind::Io),
        ];
        for (result, kind) in cases {
            let WorkStep::Finished(Err(error)) = work.advance(result) else { panic!("{result:?} is no failure") };
            assert_eq!((error.kind, error.op), (kind, OpName::Write));
            assert_eq!(error.errno, result.err().map_or(0, Errno::raw_os_error));
        }
    }

    fn flush_of(file: &Arc<File>) -> DiskWork {
        DiskWork::prepare(1, file, DiskOp::Flush, Inline::Forbidden, &Pool::new(usize::MAX)).unwrap()
    }

    // proves: P4, rule 12
    #[test]
    fn a_failed_flush_is_not_repeated_and_none_succeeds_after_it() {
        for errno in [Errno::IO, Errno::AGAIN, Errno::NOSPC] {
            let (_backing, file) = file();
            let (mut under_way, mut failing) = (flush_of(&file), flush_of(&file));
            assert!(matches!(failing.advance(Err(Errno::INTR)), WorkStep::Again), "nothing was said of the disk");
            let WorkStep::Finished(Err(error)) = failing.advance(Err(errno)) else { panic!("{errno} is no failure") };
            assert_eq!((error.errno, error.op), (errno.raw_os_error(), OpName::Flush));
            // Whoever took the error, what it is about concerns every one of them.
            assert!(matches!(under_way.advance(Ok(0)), WorkStep::Finished(Err(_))));
            assert!(matches!(flush_of(&file).step_blocking(), WorkStep::Finished(Err(_))));
        }
    }

    // proves: rule 12
    #[test]
    fn a_durable_write_takes_no_error_of_the_page_cache_from_a_flush() {
        // Past the page cache too: a trim may have put the ends of its hole there.
        for buffered in [true, false] {
            let (_backing, file) = file_by(buffered);
            let fd = |durable| file.route_write(0, 4096, durable).0.as_raw_fd();
            assert_ne!(fd(true), fd(false), "buffered: {buffered}");
            assert_eq!(fd(false), file.as_fd().as_raw_fd(), "the one that flushes");
        }
    }

    #[test]
    fn only_lone_short_plain_requests_on_a_fast_file_suit_the_data_thread() {
        let (_backing, file) = file();
        let bound = Duration::from_micros(100);
        let op = |length: usize, dsync| DiskOp::Write { offset: 0, parts: Part::Meta(vec![0; length]).into(), dsync };
        let suits = |op, inline| {
            let work = DiskWork::prepare(1, &file, op, inline, &Pool::new(0)).unwrap();
            work.suits_inline(bound)
        };
        assert!(!suits(op(4096, false), Inline::Allowed), "nothing is known of the file yet");
        let mut first = write_of(&file, vec![Part::Meta(vec![0; 512])]);
        first.sample(Duration::from_micros(10));
        assert!(!suits(op(4096, false), Inline::Allowed), "one of many says nothing");
        first.lone = true;
        first.sample(Duration::from_micros(10));
        assert!(suits(op(4096, false), Inline::Allowed));
        assert!(!suits(op(4096, false), Inline::Forbidden));
        assert!(!suits(op(4096, true), Inline::Allowed));
        assert!(!suits(op(INLINE_BYTES_MAX + 512, false), Inline::Allowed));
        assert!(!suits(DiskOp::Flush, Inline::Allowed));
        assert!(!suits(DiskOp::Zero { offset: 0, length: 512, no_hole: true }, Inline::Allowed));
        let read = DiskOp::Read { offset: 0, buffer: Buffer::detached(512) };
        assert!(!suits(read, Inline::Allowed), "reads have a pace of their own");
        first.sample(Duration::from_millis(5));
        assert!(!suits(op(4096, false), Inline::Allowed), "the file has become slow");
    }
}
