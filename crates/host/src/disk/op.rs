//! What may be asked of a disk, what comes back, and how it fails: plain data.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::file::File;
use crate::buffers::Buffer;

/// One request. Offsets and lengths are bytes, inside the file, and multiples of [`super::File::logical_block`].
///
/// Requests in flight together are unordered: a `Flush` covers the writes whose completion was seen before it was
/// submitted, and ranges that overlap must not be in flight together (the engine above keeps overlaps apart).
#[derive(Debug)]
pub enum DiskOp {
    /// Fills the whole buffer and gives it back in [`DiskAnswer::Data`].
    Read { offset: u64, buffer: Buffer },
    /// `dsync`: complete only when the bytes are durable.
    Write { offset: u64, parts: Parts, dsync: bool },
    /// Makes all completed writes durable (fdatasync).
    Flush,
    /// Afterwards the range reads as zero. `no_hole` keeps its space allocated. Durable after a `Flush`.
    Zero { offset: u64, length: u64, no_hole: bool },
    /// Which parts of the range hold data; at most `runs_max` runs, so the answer may cover less than asked.
    BlockStatus { offset: u64, length: u64, runs_max: usize },
    /// Makes the delta at this path anew, blank and as long as its head, which grows as it is written: [`DiskAnswer::Opened`]. A whole one
    /// stays, under another name. The request is carried out beside those of a file in the same directory.
    RenewDelta { path: Arc<Path> },
}

/// A run of the bytes of one write.
#[derive(Debug)]
pub enum Part {
    /// Payload shared with the queue and the link: written from where it lies.
    Shared { buffer: Arc<Buffer>, range: Range<usize> },
    /// Aligned memory that nobody else needs.
    Owned(Buffer),
    /// Small bytes of any alignment (index blocks, superblock, bitmap), copied to aligned memory where O_DIRECT asks.
    Meta(Vec<u8>),
}

impl Part {
    /// A whole shared buffer.
    pub fn whole(buffer: Arc<Buffer>) -> Part {
        let range = 0..buffer.len();
        Part::Shared { buffer, range }
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Part::Shared { buffer, range } => &buffer[range.clone()],
            Part::Owned(buffer) => buffer,
            Part::Meta(bytes) => bytes,
        }
    }
}

/// The parts of one write, in file order. One part, the common case, costs no list.
#[derive(Debug)]
pub enum Parts {
    One(Part),
    Many(Vec<Part>),
}

impl Parts {
    pub fn as_slice(&self) -> &[Part] {
        match self {
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Many(parts) => parts,
        }
    }

    pub fn length(&self) -> usize {
        self.as_slice().iter().map(|part| part.bytes().len()).sum()
    }
}

impl From<Part> for Parts {
    fn from(part: Part) -> Parts {
        Parts::One(part)
    }
}

impl From<Vec<Part>> for Parts {
    fn from(parts: Vec<Part>) -> Parts {
        Parts::Many(parts)
    }
}

/// May the data thread wait for this request for a moment? Only for a lone read or plain write on a fast disk it ever does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inline {
    Allowed,
    /// The thread has something better to do than to wait (sync mode: the peer's answer).
    Forbidden,
}

/// What a successful request brings.
#[derive(Debug)]
pub enum DiskAnswer {
    Done,
    Data(Buffer),
    Runs(Vec<AllocationRun>),
    Opened(File),
}

/// A run of a file that holds data, or a hole, which reads as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationRun {
    pub length: u64,
    pub hole: bool,
}

/// The end of one request.
#[derive(Debug)]
pub struct Completion {
    pub token: u64,
    pub result: Result<DiskAnswer, DiskError>,
    /// From the hand-over to the kernel or a worker to the completion, a modelled latency included.
    pub elapsed: Duration,
}

/// The operation's name in errors and statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpName {
    Read,
    Write,
    Flush,
    Zero,
    BlockStatus,
    RenewDelta,
    Fingerprint,
}

impl std::fmt::Display for OpName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            OpName::Read => "read",
            OpName::Write => "write",
            OpName::Flush => "flush",
            OpName::Zero => "zeroing",
            OpName::BlockStatus => "block status",
            OpName::RenewDelta => "making a new delta",
            OpName::Fingerprint => "taking the fingerprint",
        })
    }
}

/// What a failure means to the one who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The device failed, or what it did is unknown.
    Io,
    /// The file system, quota or thin pool behind the file is full.
    NoSpace,
    /// Its file system, or a limit of the process, lets no file become so large.
    TooLarge,
    /// As many earlier deltas are kept beside a new one as may be.
    TooManyDeltas,
    /// The device or file system has become read-only.
    ReadOnly,
    /// The file ends before the size it had when it was opened.
    Truncated,
    /// The request is not one this file takes: outside it, or not aligned to its block. A fault of the caller.
    Invalid,
    /// The kernel had no memory for the request.
    NoMemory,
    NotSupported,
}

/// A request that failed. Whether to latch is decided above: this says only what happened to which file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} failed on {}: {}", .path.display(), describe(*.kind, *.errno))]
pub struct DiskError {
    pub kind: ErrorKind,
    /// 0 where the kernel gave none.
    pub errno: i32,
    pub op: OpName,
    pub path: Arc<Path>,
}

impl ErrorKind {
    pub(super) fn of(errno: Errno) -> ErrorKind {
        match errno {
            Errno::NOSPC | Errno::DQUOT => ErrorKind::NoSpace,
            Errno::FBIG => ErrorKind::TooLarge,
            Errno::MLINK => ErrorKind::TooManyDeltas,
            Errno::ROFS | Errno::PERM | Errno::ACCESS => ErrorKind::ReadOnly,
            Errno::INVAL => ErrorKind::Invalid,
            Errno::NOMEM | Errno::AGAIN | Errno::NOBUFS => ErrorKind::NoMemory,
            Errno::OPNOTSUPP | Errno::NOSYS => ErrorKind::NotSupported,
            _ => ErrorKind::Io,
        }
    }
}

impl DiskError {
    pub(super) fn new(op: OpName, path: &Arc<Path>, errno: Errno) -> DiskError {
        let kind = ErrorKind::of(errno);
        DiskError { kind, errno: errno.raw_os_error(), op, path: path.clone() }
    }

    pub(super) fn of_kind(kind: ErrorKind, op: OpName, path: &Arc<Path>) -> DiskError {
        DiskError { kind, errno: 0, op, path: path.clone() }
    }
}

fn describe(kind: ErrorKind, errno: i32) -> String {
    let advice = match kind {
        ErrorKind::Io => "check the device and its cables in the kernel log",
        ErrorKind::NoSpace => "free or add space on its file system",
        ErrorKind::TooLarge => {
            "its file system takes no file as large as that (16 TiB on ext4), or 'ulimit -f' is a limit"
        }
        ErrorKind::TooManyDeltas => {
            "as many earlier deltas stand beside it as may; move one away or remove it ('delta.1' and so on)"
        }
        ErrorKind::ReadOnly => "make it writable again, and see the kernel log for why it is not",
        ErrorKind::Truncated => "it is shorter than when it was opened; restore its size",
        ErrorKind::Invalid => "the request lies outside it or is not aligned to its block size",
        ErrorKind::NoMemory => "the kernel is out of memory; give the machine more or lower memory.limit",
        ErrorKind::NotSupported => "its file system or driver cannot do this",
    };
    match errno {
        0 => advice.to_string(),
        errno => format!("{}; {advice}", Errno::from_raw_os_error(errno)),
    }
}
