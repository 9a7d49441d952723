//! The interface between front ends and the data path: the same requests, whoever speaks.
//!
//! A front end (NBD today) turns its protocol into [`ClientOp`]s, the data path answers with an [`RequestOutcome`]. Nothing here
//! knows NBD's words, and no front end knows what a group, a peer or a queue is. Everything in this file lives on one
//! data thread: no locks, no channels, plain calls.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::buffers::Buffer;

/// A volume that a front end may serve, as the data path names it on this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeHandle(pub u32);

/// What a front end must know to offer a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    pub handle: VolumeHandle,
    /// `group/volume`.
    pub name: String,
    pub description: String,
    pub size_bytes: u64,
    /// Smallest addressable unit: the device's logical block (files: 512).
    pub block_min_bytes: u32,
    pub block_preferred_bytes: u32,
    /// Largest READ/WRITE payload.
    pub block_max_bytes: u32,
}

/// A checked request: inside the volume, aligned to its minimum block, within the payload limit.
#[derive(Debug)]
pub enum ClientOp {
    /// The buffer's length says how much to read; it comes back filled in [`RequestOutcome::Data`].
    Read {
        offset: u64,
        buffer: Buffer,
    },
    Write {
        offset: u64,
        buffer: Buffer,
        fua: bool,
    },
    Flush,
    Trim {
        offset: u64,
        length: u64,
        fua: bool,
    },
    Zero {
        offset: u64,
        length: u64,
        fua: bool,
        no_hole: bool,
    },
    /// Prefetch; may do nothing.
    Cache {
        offset: u64,
        length: u64,
    },
    BlockStatus {
        offset: u64,
        length: u64,
        one_extent: bool,
    },
}

/// A run of bytes of one allocation kind, in the order of [`ClientOp::BlockStatus`]'s range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationExtent {
    pub length: u64,
    pub hole: bool,
    pub zero: bool,
}

/// Why a request failed, in the few kinds that a block client can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// The device failed, or the write's outcome is unknown.
    Io,
    NoSpace,
    Invalid,
    NotSupported,
    NoMemory,
    /// The export is gone: demoted, stopped, or the group failed.
    Gone,
}

#[derive(Debug)]
pub enum RequestOutcome {
    Done,
    Data(Buffer),
    Extents(Vec<AllocationExtent>),
    Failed(RequestFailure),
}

/// Where answers go: one per client connection. Called on the data thread, never from inside [`Gateway::submit`]'s
/// caller's own borrow: implementations may queue and write later, and must not call back into the gateway.
pub trait Replies {
    fn complete(&self, cookie: u64, outcome: RequestOutcome);
    /// Called once after a batch of `complete` calls, so that answers of one turn leave in one write.
    fn push(&self);
    /// The export is no longer served (demote, stop): close the connection after what is queued.
    fn gone(&self);
    /// A newer connection of the same client takes its place: it asks nothing more from this moment on, and ends without another answer.
    fn fenced(&self);
}

/// The exports open now.
pub trait Exports {
    /// All of them, sorted by name.
    fn list(&self) -> Vec<ExportInfo>;
    /// The one of this name. An empty name stands for the only export, and for nothing when there are several to choose from.
    fn find(&self, name: &str) -> Option<ExportInfo>;
    /// How many there are.
    fn count(&self) -> usize;
    /// Whether whoever asks may only read the one of this name.
    fn is_read_only(&self, _name: &str) -> bool {
        false
    }
}

impl Exports for [ExportInfo] {
    fn list(&self) -> Vec<ExportInfo> {
        self.to_vec()
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        match self {
            [only] if name.is_empty() => Some(only.clone()),
            _ => self.iter().find(|export| export.name == name).cloned(),
        }
    }

    fn count(&self) -> usize {
        self.len()
    }
}

/// What a front end may ask of the data path.
pub trait Gateway: Exports {
    /// Attach a client; `replies` receives the answers and learns when the export goes away.
    /// `None`: no such export now.
    fn attach(&self, name: &str, replies: Rc<dyn Replies>) -> Option<(ExportInfo, ClientId)>;
    /// The client is gone; answers still due are dropped.
    fn detach(&self, client: ClientId);
    /// An aligned buffer of exactly `length` bytes, or `None`: stop reading the socket and wait for
    /// [`Gateway::buffer_free`].
    fn buffer(&self, length: usize) -> Option<Buffer>;
    /// Resolves when buffers have been given back.
    fn buffer_free(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>>;
    /// Hand over one request. `cookie` comes back with its answer. Never blocks.
    fn submit(&self, client: ClientId, cookie: u64, op: ClientOp);
    /// End of a batch of `submit` calls: hand everything gathered to disks and links.
    fn kick(&self);
}

/// Requests of one kind that a client has sent, and the bytes of their ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSum {
    pub requests: u64,
    pub bytes: u64,
}

/// What a client has asked for since it is attached, answered or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientUsage {
    pub reads: RequestSum,
    pub writes: RequestSum,
    pub flushes: RequestSum,
    pub trims: RequestSum,
    /// Zeroes to be written, whether as holes or not.
    pub zeroes: RequestSum,
}

/// A client that is attached now, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    /// `group/volume`.
    pub export: String,
    /// Where it comes from: an address, or the socket file with the process that opened it.
    pub who: String,
    /// For so long.
    pub attached: Duration,
    /// So long ago; `None`: it has asked for nothing yet.
    pub last_request: Option<Duration>,
    /// Its end of a network connection; `None`: it came by a socket file.
    pub address: Option<SocketAddr>,
    /// Who opened the socket file, as the kernel says: process and user by their numbers.
    pub process: Option<i32>,
    pub user: Option<u32>,
    /// Whom its certificate names; `None`: it showed none.
    pub certificate: Option<String>,
    /// What it has agreed with this node on, in words.
    pub agreed: Vec<&'static str>,
    pub usage: ClientUsage,
    /// Requests that are not answered yet.
    pub in_flight: usize,
    /// So long ago its last flush was done; `None`: it has flushed nothing yet.
    pub last_flush: Option<Duration>,
}

/// An attached client connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);
