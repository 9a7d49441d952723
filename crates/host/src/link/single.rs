//! Single connections outside the hub, for tools that measure the line between two nodes.
//!
//! Everything down to the frames is a link's own: sockets and their options, TLS and authentication, packing, sending and
//! receiving. Only what the frames mean is the tool's. A [`LineListener`] introduces itself by a name that no node
//! can have, so that a daemon that was dialed by mistake, or dials here, is told so after both have proven who they are.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use engine::{LinkId, SessionId};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::auth::{Attempt, AuthError, Authenticated, ClusterSecret, Handshake, Versions};
use super::authenticate::{HandshakeProgress, LinkFailure, ours_on, run_handshake};
use super::frames::FrameReader;
use super::link_stream::LinkStream;
use super::sender::{AdaptiveOptions, LinkSender, serve};
use super::tcp::{self, Listener};
use super::{FrameOptions, LinkEvents, Ourselves, SocketOptions, SocketReport};
use crate::buffers::Pool;
use crate::random::random;
use crate::resolver;
use crate::tls::{CertificateFacts, ChannelError, CredentialStore};

/// Spaces keep them apart from names of nodes; the dialer's sorts first.
const DIALER: &str = "line test, dialing";
const ACCEPTOR: &str = "line test, serving";
/// Connections that prove themselves at once; more wait in the kernel.
const UNAUTHENTICATED_MAX: usize = 16;
const LAST_WORDS: Duration = Duration::from_millis(100);

/// What both ends prove who they are with: the nodes' own.
#[derive(Clone)]
pub struct LineCredentials {
    pub cluster: String,
    /// With credentials every connection is encrypted, and they take the place of the shared secret.
    pub tls: Option<CredentialStore>,
    /// Of no use with credentials.
    pub secret: Option<ClusterSecret>,
}

impl LineCredentials {
    fn ours(&self, node: &str, peer: &str) -> io::Result<Rc<Ourselves>> {
        // An encrypted line brings its own: this one is never used then.
        let secret = match &self.secret {
            Some(secret) => secret.clone(),
            None => ClusterSecret::new(&random::<32>()?),
        };
        Ok(Rc::new(Ourselves {
            cluster: self.cluster.clone(),
            node: node.to_owned(),
            peers: vec![peer.to_owned()],
            secret,
            definitions: String::new(),
            versions: Versions::OURS,
        }))
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub enum DialRefusal {
    /// Nobody answers there, or the name leads nowhere.
    Unreachable(String),
    /// Somebody is there, and does not answer in time.
    Silent(String),
    /// Somebody answers, and is not to be spoken with.
    NotOurs(String),
}

impl fmt::Display for DialRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (DialRefusal::Unreachable(why) | DialRefusal::Silent(why) | DialRefusal::NotOurs(why)) = self;
        f.write_str(why)
    }
}

impl From<LinkFailure> for DialRefusal {
    fn from(failure: LinkFailure) -> DialRefusal {
        if let LinkFailure::TooSlow(_) = failure {
            return DialRefusal::Silent(failure.to_string());
        }
        DialRefusal::NotOurs(match failure {
            LinkFailure::Auth(AuthError::NotTheExpected { answered, .. }) if answered != ACCEPTOR => {
                format!("node {answered:?} answers there with its daemon: run 'farshore link serve' and name its port")
            }
            LinkFailure::Auth(AuthError::NotTheExpected { .. } | AuthError::UnknownNode { .. }) => {
                "it is a daemon that looks for its peer: a line test is served here".to_owned()
            }
            LinkFailure::Channel(ChannelError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                "it closed the connection before both sides had proven who they are: its own log says why (does one side \
                 speak TLS, and the other not?)"
                    .to_owned()
            }
            other => other.to_string(),
        })
    }
}

/// One authenticated connection that does not run yet.
pub struct SingleConnection {
    pub sender: Rc<LinkSender>,
    pub session: SessionId,
    pub address: SocketAddr,
    pub socket: SocketReport,
    /// What the other end's certificate says; `None`: the connection is not encrypted.
    pub certificate: Option<CertificateFacts>,
    frames: FrameReader,
}

impl SingleConnection {
    /// Runs the connection until it ends, and reports the end.
    pub async fn run(self, pool: &Pool, events: &dyn LinkEvents) {
        serve::serve(self.sender, self.frames, pool, events).await;
    }
}

/// What a dialer wants of its connection.
#[derive(Clone)]
pub struct DialRequest<'a> {
    /// `HOST:PORT`.
    pub address: &'a str,
    /// With certificates: the nodes that may be there.
    pub peers: &'a [String],
    pub socket: &'a SocketOptions,
    pub flow: FrameOptions,
    /// For each step: resolving, connecting, proving.
    pub timeout: Duration,
}

/// Connects to a [`LineListener`], trying all addresses of the name in the resolver's order.
///
/// # Errors
/// Why not, as a sentence about the other side ("it ...") or the address.
pub async fn dial(credentials: &LineCredentials, request: &DialRequest<'_>) -> Result<SingleConnection, DialRefusal> {
    let unresolved =
        |why: &dyn fmt::Display| DialRefusal::Unreachable(format!("cannot resolve {:?}: {why}", request.address));
    let found = async {
        match request.address.parse::<SocketAddr>() {
            Ok(address) => Ok(vec![address]),
            Err(_) => resolver::addresses(request.address.to_owned()).await,
        }
    };
    let addresses = timeout(request.timeout, found)
        .await
        .map_err(|_| unresolved(&"no answer"))?
        .map_err(|error| unresolved(&error))?;
    let mut refusal = unresolved(&"it has no address");
    for address in addresses {
        match tcp::connect(address, request.socket, request.timeout).await {
            Ok((stream, report)) => {
                let channel = credentials.tls.as_ref().map(|tls| tls.current().dial(request.peers)).transpose();
                let line =
                    LinkStream::new(stream, channel.map_err(|error| LinkFailure::from(ChannelError::from(error)))?);
                let proving = prove(credentials, line, address, report, (request.flow, request.socket), true);
                let proven = timeout(request.timeout, proving).await;
                return Ok(proven.map_err(|_| LinkFailure::TooSlow(request.timeout))??);
            }
            Err(error) => refusal = DialRefusal::Unreachable(format!("cannot connect to {address}: {error}")),
        }
    }
    Err(refusal)
}

async fn prove(
    credentials: &LineCredentials,
    line: LinkStream,
    address: SocketAddr,
    mut socket: SocketReport,
    (flow, options): (FrameOptions, &SocketOptions),
    dials: bool,
) -> Result<SingleConnection, LinkFailure> {
    let announced = options.announced_rto_min_us();
    let peer = match authenticate(credentials, &line, announced, dials).await {
        Ok(peer) => peer,
        Err(failure) => {
            // So that the last words are read before the connection is reset.
            if !dials {
                let _ = timeout(LAST_WORDS, serve::drain(line.stream())).await;
            }
            return Err(failure);
        }
    };
    let certificate = line.certificate();
    socket.agree(line.stream().as_fd(), announced, peer.rto_min_us);
    let sender = LinkSender::new(LinkId(1), line, AdaptiveOptions::by(options), flow);
    let frames = FrameReader::new(peer.session);
    Ok(SingleConnection { sender, session: peer.session, address, socket, certificate, frames })
}

async fn authenticate(
    credentials: &LineCredentials,
    line: &LinkStream,
    announced: u32,
    dials: bool,
) -> Result<Authenticated, LinkFailure> {
    let (us, them) = if dials { (DIALER, ACCEPTOR) } else { (ACCEPTOR, DIALER) };
    let ours = ours_on(&credentials.ours(us, them)?, line).await?;
    let (mut handshake, hello) = if dials {
        let attempt = Attempt { run: u64::from_le_bytes(random()?), number: 1 };
        Handshake::dial_announcing(ours, them, random()?, attempt, announced)
    } else {
        (Handshake::accept(ours, random()?).announcing(announced), Vec::new())
    };
    match run_handshake(line, &mut handshake, hello).await? {
        HandshakeProgress::Done(result) => result.map_err(LinkFailure::Auth),
        // Both definitions are empty: they cannot differ.
        HandshakeProgress::Proven(_) => Err(LinkFailure::Auth(AuthError::Malformed)),
    }
}

/// Where tests are served: unauthenticated peers are few, short-lived, and get a handshake's attention.
pub struct LineListener {
    credentials: LineCredentials,
    listener: Rc<Listener>,
    timeout: Duration,
    shaking: JoinSet<(SocketAddr, Result<SingleConnection, DialRefusal>)>,
}

/// Changes what the next connections accepted by a listener ask of their sockets.
#[derive(Clone)]
pub struct ListenerTuner(Rc<Listener>);

impl ListenerTuner {
    pub fn retune(&self, options: &SocketOptions) {
        self.0.retune(options);
    }
}

impl LineListener {
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(credentials: LineCredentials, address: SocketAddr, timeout: Duration) -> io::Result<LineListener> {
        let listener = Rc::new(Listener::bind(address, &SocketOptions::default())?);
        Ok(LineListener { credentials, listener, timeout, shaking: JoinSet::new() })
    }

    /// # Errors
    /// The kernel has forgotten the socket.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.address()
    }

    pub fn tuner(&self) -> ListenerTuner {
        ListenerTuner(self.listener.clone())
    }

    /// The next connection that has proven who it is, or that came to nothing. To be called inside a `LocalSet`; nothing is
    /// lost when the call is given up.
    pub async fn next(&mut self) -> (SocketAddr, Result<SingleConnection, DialRefusal>) {
        loop {
            tokio::select! {
                biased;
                Some(Ok(done)) = self.shaking.join_next(), if !self.shaking.is_empty() => return done,
                accepted = self.listener.accept(), if self.shaking.len() < UNAUTHENTICATED_MAX => {
                    let Ok((stream, from, report)) = accepted else {
                        // Out of descriptors, most likely: those that end give some back.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    };
                    self.shake(stream, from, report);
                }
            }
        }
    }

    fn shake(&mut self, stream: tokio::net::TcpStream, from: SocketAddr, report: SocketReport) {
        let (credentials, limit, options) = (self.credentials.clone(), self.timeout, self.listener.options());
        self.shaking.spawn_local(async move {
            let channel = credentials.tls.as_ref().map(|tls| tls.current().accept_link()).transpose();
            let line = match channel {
                Ok(channel) => LinkStream::new(stream, channel),
                Err(error) => return (from, Err(LinkFailure::from(ChannelError::from(error)).into())),
            };
            let proven =
                timeout(limit, prove(&credentials, line, from, report, (FrameOptions::default(), &options), false))
                    .await;
            let proven = proven.map_err(|_| LinkFailure::TooSlow(limit)).and_then(|proven| proven);
            (from, proven.map_err(DialRefusal::from))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_agree_on_the_shortest_pause_as_a_link_does() {
        let credentials =
            LineCredentials { cluster: "test".to_owned(), tls: None, secret: Some(ClusterSecret::new(&[b's'; 48])) };
        let limit = Duration::from_secs(60);
        let shortest = SocketOptions { rto_min: Some(Duration::from_millis(40)), ..SocketOptions::default() };
        let longer = SocketOptions::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let mut listener =
                LineListener::bind(credentials.clone(), ([127, 0, 0, 1], 0).into(), limit).expect("a port");
            let address = listener.address().expect("bound").to_string();
            let request = DialRequest {
                address: &address,
                peers: &[],
                socket: &shortest,
                flow: FrameOptions::default(),
                timeout: limit,
            };
            for is_there_too in [false, true] {
                listener.tuner().retune(if is_there_too { &shortest } else { &longer });
                let (dialed, (_, arrived)) = tokio::join!(dial(&credentials, &request), listener.next());
                let (dialed, arrived) = (dialed.expect("let in").socket, arrived.expect("it came").socket);
                // Kernels before 6.15 have no such option, and are told of with a warning.
                let asked = |report: &SocketReport| report.to_string().contains("TCP_RTO_MIN_US");
                assert_eq!([asked(&dialed), asked(&arrived)], [is_there_too; 2], "{dialed}\n{arrived}");
                let is_reported = dialed.warnings.iter().any(|warning| warning.contains("does not announce it"));
                assert_eq!(is_reported, !is_there_too, "{dialed}");
            }
        });
    }
}
