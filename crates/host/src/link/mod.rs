//! The network half of the host: authenticated connections between nodes, carrying frames of all groups.
//!
//! There is one connection for each pair of nodes; the node whose name sorts first dials
//! (docs/book/decisions/0004-connection-topology.md). [`Links`] listens, dials, authenticates, fences older connections and
//! redials; what happens is reported through [`LinkEvents`], what is to be sent goes through [`LinkSender`]. Nothing in here
//! knows what a group does with a frame. All of it lives on one thread: a tokio current-thread runtime with a `LocalSet`.

pub mod auth;
mod authenticate;
mod auto_congestion;
pub mod control;
mod dialer;
pub mod envelope;
pub mod frames;
pub mod history;
mod hub;
mod limiter;
mod link_stream;
pub mod meter;
mod packer;
mod path;
mod send_queue;
mod sender;
pub mod single;
mod tcp;
pub mod tuning;
pub mod volume_line;

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use engine::wire::FrameHeader;
use engine::{FramePayload, LinkId, NodeId, SessionId};
use tokio::sync::mpsc::UnboundedSender;

use volume_line::VolumeLine;

pub use crate::tcp_info::ControlName;
use crate::tls::{CertificateFacts, CredentialStore};

pub use auth::{Attempt, ClusterSecret, Ourselves, Versions};
pub use control::ControlDoor;
pub use dialer::PeerDialer;
pub use hub::Links;
pub use packer::{Compression, Method, PackingState, ZSTD_LEVELS};
pub use path::SMALL_SEGMENT_BYTES;
pub use sender::{LinkSender, SocketCalls};
pub use tuning::{BufferReport, CongestionChoice, OptionReport, SocketOptions, SocketReport};

/// What happens on the links, reported to the data path. Called from the links' own tasks, never from inside
/// [`LinkSender::push`], [`LinkSender::flush`] or [`LinkSender::close`], all three of which may be called from in here.
pub trait LinkEvents {
    /// A peer is connected and authenticated. An older link of the same peer was reported down before.
    fn up(&self, peer: NodeId, link: LinkId, session: SessionId, sender: Rc<LinkSender>, info: PeerInfo);
    /// Exactly once for each `up`; nothing of this link follows. Also after [`LinkSender::close`].
    fn down(&self, link: LinkId, reason: String);
    /// A frame of this link's session, header and payload checked. Its arrival also means "heard".
    fn frame(&self, link: LinkId, header: FrameHeader, payload: FramePayload);
    /// Bytes arrived, but no whole frame yet; or nothing can be read for want of a buffer, which is not the peer's fault.
    fn heard(&self, link: LinkId);
    /// The kernel took this many bytes (headers included) of what was pushed.
    fn sent(&self, link: LinkId, bytes: u64);
    /// The end of a batch of the calls above: drain the engine once.
    fn turn_done(&self);
    /// A connection came to nothing: `who` with its address, `why` as a sentence. For the log; repetitions are held back.
    fn refused(&self, who: String, why: String);
    /// Why there is no link with this peer, in a sentence. For status, so each time: the link may have been up since it was last so.
    fn not_reached(&self, _peer: NodeId, _why: String) {}
}

/// Whom a link leads to.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    pub name: String,
    pub address: SocketAddr,
    /// This node dialed.
    pub dialed: bool,
    pub version: u8,
    /// For keyed hashes of this session; the same on both ends.
    pub key: [u8; 32],
    pub socket: SocketReport,
    /// What the peer's certificate says; `None`: the link is not encrypted.
    pub certificate: Option<CertificateFacts>,
    /// Its definitions of groups, where they differ from this node's.
    pub definitions: Option<String>,
}

/// What is done with frames on their way to the line; may change while a link is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FrameOptions {
    pub compression: Compression,
    /// Bytes a second that go to the line at most, whichever group they are of; `None`: as it takes them.
    pub rate: Option<u64>,
}

/// Bytes of frames, and what of them is on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Amount {
    pub plain_bytes: u64,
    /// Without what encryption adds.
    pub wire_bytes: u64,
}

/// What a connection carried since it came up, and what is done with its frames now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LinkTraffic {
    pub sent: Amount,
    pub received: Amount,
    /// Bytes of frames sent that were written anew on their way to the kernel, by a compressor or into records of TLS. All others went from
    /// where the client's request had left them.
    pub copied_bytes: u64,
    pub doing: PackingState,
    /// It is the rate allowed that what is to be sent waits for.
    pub is_held: bool,
}

/// A node to be linked with.
#[derive(Clone, Debug)]
pub struct LinkPeer {
    pub id: NodeId,
    pub name: String,
    /// Dialed when this node's name sorts before the peer's. No name of a host: a resolver that hangs would keep a link down.
    pub address: SocketAddr,
}

#[derive(Clone, Debug)]
pub struct LinkConfig {
    pub ours: Ourselves,
    pub peers: Vec<LinkPeer>,
    pub listen: Vec<SocketAddr>,
    /// With credentials every link is encrypted, and they take the place of the shared secret.
    pub tls: Option<CredentialStore>,
    pub socket: SocketOptions,
    pub flow: FrameOptions,
    pub bounds: LinkBounds,
    /// Where peers' control connections go once they have proven who they are; `None`: they are turned away.
    pub control: Option<ControlDoor>,
    /// Where their connections for volumes go; `None`: they are closed.
    pub volumes: Option<UnboundedSender<VolumeLine>>,
}

/// Times and counts that keep unauthenticated and absent peers cheap.
#[derive(Clone, Debug)]
pub struct LinkBounds {
    /// From connect to mutual proof: 2 round trips, 3 with TLS, so generous even over a satellite.
    pub auth_timeout: Duration,
    /// For exchanging definitions that differ, among peers that hold the secret: 1 MiB at 128 kbit/s, twice.
    pub definitions_timeout: Duration,
    /// Connections at once that have not proven who they are. One more pushes out the oldest of the busiest address.
    pub unauthenticated_max: usize,
    pub connect_timeout: Duration,
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// The same complaint about the same address is reported once in this time.
    pub repeat_after: Duration,
}

impl Default for LinkBounds {
    fn default() -> Self {
        LinkBounds {
            auth_timeout: Duration::from_secs(5),
            definitions_timeout: Duration::from_secs(150),
            unauthenticated_max: 16,
            connect_timeout: Duration::from_secs(5),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(3),
            repeat_after: crate::report_limiter::REPEAT_AFTER,
        }
    }
}
