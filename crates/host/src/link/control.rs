//! Control connections: a daemon asks the daemon of its peer one thing, beside the link and never on it.
//!
//! A visitor rings at the same door as a link does and shows the same papers. The porter, who has data to carry, looks at
//! the papers only: then the visitor is led to another room, where it is asked what it wants.
//!
//! What must hold:
//! * nothing that a peer sends here is looked at before it has proven who it is, exactly as for a link;
//! * the thread that carries data authenticates and no more: a [`ControlVisit`] is served on another thread;
//! * every message is keyed with the connection's own key, so that nobody on the way can put an order into a line that is not
//!   encrypted; its length is checked before any of it is read;
//! * a connection carries one request and one reply. Nothing is sent twice: whoever asked and got no reply is told whether the
//!   other side can have heard it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

use super::Ourselves;
use super::auth::{Authenticated, ConnectionKind, MAC_BYTES, keyed, same};
use super::dialer::{PeerDialer, ReachedPeer};
use super::link_stream::LinkStream;
use super::sender::serve::drain;
use crate::tls::{Channel, ChannelError, CredentialStore};

/// A request: the longest is that of the control socket, a `set` with all keys.
pub const CONTROL_REQUEST_BYTES_MAX: usize = 64 << 10;
/// A reply: a status of 4 096 groups with a few volumes each. Whoever asks allows as much as its question may come to.
pub const CONTROL_REPLY_BYTES_MAX: usize = 64 << 20;
/// Control connections of one peer at once. Its operators and scripts, not a crowd: it turns away its own, nobody else's.
pub const CONTROL_VISITS_MAX: usize = 8;
/// From the first packet to the mutual proof: as long as a link has for it.
const REACH_LIMIT: Duration = Duration::from_secs(5);
/// Memory for a message grows by this much as it arrives: no length that was only announced is believed.
const READ_BYTES: usize = 64 << 10;

const MAGIC: [u8; 4] = *b"FSHC";
/// Magic, kind, three zeroes, length of the content.
const HEAD_BYTES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum ControlMessage {
    Request = 1,
    Reply = 2,
    /// There is no room for this connection, and nothing of it was looked at.
    Busy = 3,
}

impl ControlMessage {
    fn from_byte(byte: u8) -> Option<ControlMessage> {
        [ControlMessage::Request, ControlMessage::Reply, ControlMessage::Busy]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    fn bytes_max(self) -> usize {
        match self {
            ControlMessage::Request => CONTROL_REQUEST_BYTES_MAX,
            ControlMessage::Reply => CONTROL_REPLY_BYTES_MAX,
            ControlMessage::Busy => 0,
        }
    }

    /// What keys a message of this kind: none is ever taken for one of another.
    fn label(self) -> &'static str {
        match self {
            ControlMessage::Request => "farshore 1 control request",
            ControlMessage::Reply => "farshore 1 control reply",
            ControlMessage::Busy => "farshore 1 control busy",
        }
    }
}

/// Why a message is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("the connection failed: {0}")]
    Broken(#[from] io::Error),
    #[error("it sent bytes that are no message of a control connection")]
    NotControl,
    #[error("it announced a message of {bytes} bytes where {most} are allowed")]
    TooLong { bytes: u32, most: usize },
    #[error("its message was changed on the way, or is not its own")]
    WrongKey,
}

impl From<ChannelError> for ControlError {
    fn from(error: ChannelError) -> ControlError {
        ControlError::Broken(error.into())
    }
}

async fn send(line: &LinkStream, key: &[u8; 32], kind: ControlMessage, content: &[u8]) -> Result<(), ControlError> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    if content.len() > kind.bytes_max() {
        return Err(ControlError::TooLong { bytes: length, most: kind.bytes_max() });
    }
    let head = [&MAGIC[..], &[kind as u8, 0, 0, 0], &length.to_le_bytes()].concat();
    line.write_all(&[&head[..], &keyed(key, kind.label(), &[content])].concat()).await?;
    Ok(line.write_all(content).await?)
}

/// The next message, if it is of one of these kinds and has no more than `most` bytes.
async fn receive(
    line: &LinkStream,
    key: &[u8; 32],
    expected: &[ControlMessage],
    most: usize,
) -> Result<(ControlMessage, Vec<u8>), ControlError> {
    let mut head = [0; HEAD_BYTES];
    line.read_exact(&mut head).await?;
    let [m0, m1, m2, m3, kind, z0, z1, z2, l0, l1, l2, l3] = head;
    let kind = ControlMessage::from_byte(kind).filter(|kind| expected.contains(kind));
    let (MAGIC, [0, 0, 0], Some(kind)) = ([m0, m1, m2, m3], [z0, z1, z2], kind) else {
        return Err(ControlError::NotControl);
    };
    let (bytes, most) = (u32::from_le_bytes([l0, l1, l2, l3]), most.min(kind.bytes_max()));
    if bytes as usize > most {
        return Err(ControlError::TooLong { bytes, most });
    }
    let mut mac = [0; MAC_BYTES];
    line.read_exact(&mut mac).await?;
    let mut content = Vec::new();
    while content.len() < bytes as usize {
        let (from, to) = (content.len(), (content.len() + READ_BYTES).min(bytes as usize));
        content.resize(to, 0);
        line.read_exact(&mut content[from..]).await?;
    }
    if !same(&mac, &keyed(key, kind.label(), &[&content])) {
        return Err(ControlError::WrongKey);
    }
    Ok((kind, content))
}

/// Tells a peer that there is no room for its connection.
pub(super) async fn turn_away(line: &LinkStream, key: &[u8; 32]) {
    // Whoever does not hear it will see the connection's end.
    let _ = send(line, key, ControlMessage::Busy, &[]).await;
    line.say_end();
    // Closed at once, the kernel would answer the request that is on its way with a reset, and the word could be lost by that.
    let _ = drain(line.stream()).await;
}

// --- Being asked ---

/// Where the links hand on control connections: cheap to copy, the room behind it is one.
#[derive(Clone)]
pub struct ControlDoor {
    visits: mpsc::Sender<ControlVisit>,
    /// What each peer may have open, by its name.
    room: Arc<BTreeMap<String, Arc<Semaphore>>>,
}

/// The other side of a [`ControlDoor`].
pub struct ControlVisits(mpsc::Receiver<ControlVisit>);

/// A door for these peers, and who comes through it.
pub fn door(peers: impl IntoIterator<Item = String>) -> (ControlDoor, ControlVisits) {
    let room = |peer| (peer, Arc::new(Semaphore::new(CONTROL_VISITS_MAX)));
    let room: BTreeMap<_, _> = peers.into_iter().map(room).collect();
    // Room for all that may be let in, so that none of them waits on the thread that carries data.
    let (visits, receiver) = mpsc::channel(CONTROL_VISITS_MAX * room.len().max(1));
    (ControlDoor { visits, room: Arc::new(room) }, ControlVisits(receiver))
}

impl fmt::Debug for ControlDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControlDoor")
    }
}

impl ControlDoor {
    /// Room for one more of the peer's connections, if there is any.
    pub(super) fn room(&self, peer: &str) -> Option<OwnedSemaphorePermit> {
        let room = self.room.get(peer).filter(|_| !self.visits.is_closed())?;
        room.clone().try_acquire_owned().ok()
    }

    /// Hands a connection on.
    pub(super) fn let_in(
        &self,
        permit: OwnedSemaphorePermit,
        line: LinkStream,
        address: SocketAddr,
        peer: &Authenticated,
    ) {
        // What cannot be taken off this thread is broken already.
        if let Ok((stream, channel)) = line.into_parts() {
            let visit = ControlVisit { peer: peer.peer.clone(), address, key: peer.key, stream, channel, permit };
            // There is room for all that have a permit. If the daemon has just closed, so does this.
            let _ = self.visits.try_send(visit);
        }
    }
}

impl ControlVisits {
    /// The next visit; `None`: the links have ended.
    pub async fn next(&mut self) -> Option<ControlVisit> {
        self.0.recv().await
    }
}

/// A peer that has proven who it is, and wants to ask something.
pub struct ControlVisit {
    peer: String,
    address: SocketAddr,
    key: [u8; 32],
    stream: std::net::TcpStream,
    channel: Option<Channel>,
    permit: OwnedSemaphorePermit,
}

impl ControlVisit {
    /// The node that asks.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// From where.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Goes on with the connection on this thread's runtime.
    ///
    /// # Errors
    /// The kernel does not watch the socket for this runtime.
    pub fn open(self) -> io::Result<ControlServing> {
        let line = LinkStream::new(TcpStream::from_std(self.stream)?, self.channel);
        Ok(ControlServing { line, key: self.key, _room: self.permit })
    }
}

/// A control connection at the end that is asked.
pub struct ControlServing {
    line: LinkStream,
    key: [u8; 32],
    _room: OwnedSemaphorePermit,
}

impl ControlServing {
    /// What the peer asks. The caller bounds the time.
    ///
    /// # Errors
    /// The connection broke, or what arrived is no request.
    pub async fn request(&self) -> Result<Vec<u8>, ControlError> {
        Ok(receive(&self.line, &self.key, &[ControlMessage::Request], CONTROL_REQUEST_BYTES_MAX).await?.1)
    }

    /// Answers, and ends the connection. The caller bounds the time.
    ///
    /// # Errors
    /// The connection broke, or the reply is longer than may be.
    pub async fn reply(self, content: &[u8]) -> Result<(), ControlError> {
        send(&self.line, &self.key, ControlMessage::Reply, content).await?;
        self.line.say_end();
        Ok(())
    }
}

// --- Asking ---

/// Why there is no reply, and whether the peer can have heard the request.
#[derive(Debug)]
pub enum ControlFailure {
    /// The request was not sent, or was turned away unread: nothing was done. Why, as a sentence about the peer ("it ...").
    NotReached(String),
    /// It was sent, and what became of it is not known.
    Unknown(String),
}

impl fmt::Display for ControlFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ControlFailure::NotReached(why) | ControlFailure::Unknown(why)) = self;
        f.write_str(why)
    }
}

/// Asks the daemons of peers. Lives on one thread, not on that of the data.
pub struct ControlDialer(PeerDialer);

impl ControlDialer {
    /// `ours` and `tls`: as the links have them.
    pub fn new(ours: Ourselves, tls: Option<CredentialStore>) -> ControlDialer {
        ControlDialer(PeerDialer::new(ours, tls))
    }

    /// Asks the node `peer` once, by a connection of its own; the reply comes within `patience` or not at all, and has no more than
    /// `reply_bytes_max`.
    ///
    /// # Errors
    /// Why there is no reply, and whether the request can have been heard.
    pub async fn ask(
        &self,
        peer: &str,
        address: SocketAddr,
        request: &[u8],
        (patience, reply_bytes_max): (Duration, usize),
    ) -> Result<Vec<u8>, ControlFailure> {
        if request.len() > CONTROL_REQUEST_BYTES_MAX {
            let why = format!("the request has {} bytes, and may have {CONTROL_REQUEST_BYTES_MAX}", request.len());
            return Err(ControlFailure::NotReached(why));
        }
        let end = Instant::now() + patience;
        let limit = patience.min(REACH_LIMIT);
        let reached = timeout(limit, self.0.reach(peer, address, (limit, ConnectionKind::Control))).await;
        let reached = reached.unwrap_or_else(|_| Err(format!("it does not answer within {limit:?}")));
        let ReachedPeer { line, key } = reached.map_err(ControlFailure::NotReached)?;
        let exchange = async {
            // Whoever turns it away may do so before it has all of it.
            let sent = send(&line, &key, ControlMessage::Request, request).await;
            let kinds = [ControlMessage::Reply, ControlMessage::Busy];
            let received = receive(&line, &key, &kinds, reply_bytes_max).await;
            received.map_err(|error| sent.err().unwrap_or(error))
        };
        match timeout_at(end, exchange).await {
            Ok(Ok((ControlMessage::Busy, _))) => Err(ControlFailure::NotReached(format!(
                "it takes {CONTROL_VISITS_MAX} control connections of a node at once, and that many are open (or it is stopping); \
                 try again"
            ))),
            Ok(Ok((_, reply))) => Ok(reply),
            Ok(Err(error)) => Err(ControlFailure::Unknown(match error {
                ControlError::Broken(_) => "the connection broke before its reply was here".to_owned(),
                other => other.to_string(),
            })),
            Err(_) => Err(ControlFailure::Unknown(format!("its reply did not come within {patience:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    /// What a request line is taken for, of whose bytes the peer's own key is the only thing that is right.
    async fn taken(bytes: Vec<u8>) -> Result<(ControlMessage, Vec<u8>), ControlError> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("bound");
        let (dialed, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (dialed, accepted) = (dialed.expect("connects"), accepted.expect("accepts").0);
        let (writer, reader) = (LinkStream::new(dialed, None), LinkStream::new(accepted, None));
        writer.write_all(&bytes).await.expect("the socket takes it");
        drop(writer);
        receive(&reader, &KEY, &[ControlMessage::Request], CONTROL_REQUEST_BYTES_MAX).await
    }

    fn message(kind: u8, announced: u32, key: &[u8; 32], label: ControlMessage, content: &[u8]) -> Vec<u8> {
        let head = [&MAGIC[..], &[kind, 0, 0, 0], &announced.to_le_bytes()].concat();
        [&head[..], &keyed(key, label.label(), &[content]), content].concat()
    }

    #[tokio::test]
    async fn only_a_keyed_request_of_bounded_length_is_taken() {
        let request = |announced, key| message(1, announced, key, ControlMessage::Request, b"look");
        let good = taken(request(4, &KEY)).await.expect("taken");
        assert_eq!(good, (ControlMessage::Request, b"look".to_vec()));
        assert!(matches!(taken(request(4, &[8; 32])).await, Err(ControlError::WrongKey)));
        // A reply that is sent back as a request.
        let reply = message(1, 4, &KEY, ControlMessage::Reply, b"look");
        assert!(matches!(taken(reply).await, Err(ControlError::WrongKey)));
        let too_long = CONTROL_REQUEST_BYTES_MAX as u32 + 1;
        assert!(matches!(taken(request(too_long, &KEY)).await, Err(ControlError::TooLong { .. })));
        for kind in [0, 2, 3, 4, 255] {
            let other = message(kind, 4, &KEY, ControlMessage::Request, b"look");
            assert!(matches!(taken(other).await, Err(ControlError::NotControl)), "kind {kind}");
        }
        assert!(matches!(taken(b"GET / HTTP/1.1\r\n\r\n".to_vec()).await, Err(ControlError::NotControl)));
        for bytes in 0..request(4, &KEY).len() {
            let cut = request(4, &KEY)[..bytes].to_vec();
            assert!(matches!(taken(cut).await, Err(ControlError::Broken(_))), "cut at {bytes}");
        }
    }
}
