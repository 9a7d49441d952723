//! Connections on which a node asks its peer for a volume that the peer serves to it alone: a reverse sync.
//!
//! They are beside the link, as control connections are, and prove the same. What is spoken on them is NBD; that is no matter here. They stay
//! on the thread of the data.

use std::net::SocketAddr;
use std::time::Duration;

use engine::NodeId;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::auth::{Attempt, ConnectionKind};
use super::dialer::{PeerDialer, ReachedPeer};
use super::link_stream::LinkStream;
use crate::tls::Channel;

/// From the first packet to the mutual proof: as long as a link has for it.
const REACH_LIMIT: Duration = Duration::from_secs(5);

/// A peer that has proven who it is, and is about to ask for a volume.
#[derive(Debug)]
pub struct VolumeLine {
    pub peer: NodeId,
    pub name: String,
    pub address: SocketAddr,
    pub(crate) attempt: Attempt,
    pub(crate) line: PeerLine,
}

/// What such a connection runs on.
pub(crate) struct PeerLine {
    pub stream: TcpStream,
    pub channel: Option<Channel>,
}

impl std::fmt::Debug for PeerLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PeerLine")
    }
}

impl PeerLine {
    pub(super) fn new(line: LinkStream) -> PeerLine {
        let (stream, channel) = line.into_halves();
        PeerLine { stream, channel }
    }
}

/// A connection to the node `peer` for one of its volumes.
///
/// # Errors
/// A sentence about the peer ("it ...").
pub(crate) async fn dial(dialer: &PeerDialer, peer: &str, address: SocketAddr) -> Result<PeerLine, String> {
    let reached = timeout(REACH_LIMIT, dialer.reach(peer, address, (REACH_LIMIT, ConnectionKind::Volume))).await;
    let ReachedPeer { line, .. } =
        reached.unwrap_or_else(|_| Err(format!("it does not answer within {REACH_LIMIT:?}")))?;
    Ok(PeerLine::new(line))
}
