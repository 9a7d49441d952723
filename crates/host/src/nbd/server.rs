//! The server: listeners, how many clients may be inside, and each client's way from the listener to the end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

use super::admission;
use super::client_origin::ClientOrigin;
use super::connection::{ClientConnection, ClientLimits, LeaveReason};
use super::counters::{ExportCounters, NbdCounters, SharedCounters};
use super::handshake::{self, HandshakeContext, ListenerTls, NoSession};
pub use super::listen::ListenError;
use super::listen::{self, SocketFile};
use super::memory_shares::MemoryShares;
use super::negotiation::Encryption;
use super::session::{ClientSession, SessionEnd};
use super::socket::{ClientSocket, SocketStream};
use super::stall::LOOKS_MAX;
use crate::frontend::{ClientInfo, Gateway};
use crate::link::volume_line::PeerLine;
use crate::report_limiter::{REPEAT_AFTER, ReportLimiter, ReportSubject};
use crate::tls::{CertificateFacts, CredentialStore};
use crate::unauthenticated::{UnauthenticatedPeers, UnauthenticatedSlot};

/// What one server grants. The defaults suit a host with hundreds of volumes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at exports at once; more are turned away. 1 280: a thousand volumes, or a hundred with multi-connection clients, and a
    /// fifth of them kept for clients that hold few (`admission.rs`).
    pub connections: usize,
    /// Besides them, connections over TCP that have not chosen an export yet; of more the oldest of the busiest network goes. 1 024:
    /// all clients may come back in one moment, from one host.
    pub unauthenticated: usize,
    /// From the first byte to the chosen export. 10 s: ten round trips on the worst link we know, with losses.
    pub handshake: Duration,
    /// Requests in flight for each connection. 1 024: above any client's own queue, so that ours is not felt.
    pub requests_in_flight: usize,
    /// Payload in flight for each connection, both ways, in bytes. 64 MiB: two of the largest requests, so that one is
    /// received while the other is at the disk.
    pub bytes_in_flight: usize,
    /// The same for all connections together, of which each has a share to itself. 512 MiB: eight connections with all they are granted;
    /// so much of the gateway's memory should be kept for them.
    pub bytes_in_flight_all: usize,
    /// A client that owes the rest of a write, or does not take its answers, is cut off after so long without a move. 120 s: a line that
    /// was down for a minute is tried again by TCP after 102 s at the latest. Whoever owes nothing may be silent for ever.
    pub stalled: Duration,
    /// From a client's goodbye, or our own, to the last answer. 30 s: a disk that takes longer has failed.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1280,
            unauthenticated: 1024,
            handshake: Duration::from_secs(10),
            requests_in_flight: 1024,
            bytes_in_flight: 64 << 20,
            bytes_in_flight_all: 512 << 20,
            stalled: Duration::from_secs(120),
            farewell: Duration::from_secs(30),
        }
    }
}

/// Connections of socket files that have not chosen an export yet, besides all others: whoever may open one may do worse than sit there.
const OPENERS_MAX: usize = 256;
/// In the place of a listener's number: by the links.
const PEERS: usize = usize::MAX;

/// An NBD server over a gateway, on one data thread: make it and listen inside a `LocalSet`.
///
/// Dropping it stops listening and cuts every connection; [`NbdServer::stop`] lets them finish first.
pub struct NbdServer {
    shared: Rc<ServerState>,
    /// And who watches the clients.
    listeners: RefCell<Vec<JoinHandle<()>>>,
}

struct ServerState {
    gateway: Rc<dyn Gateway>,
    limits: Limits,
    tally: Rc<SharedCounters>,
    clients: RefCell<BTreeMap<u64, ServedClient>>,
    unauthenticated: Rc<UnauthenticatedPeers>,
    shares: Rc<MemoryShares>,
    next_client: Cell<u64>,
    /// A client has left.
    left: Notify,
    /// What was said about clients that were kept out.
    report_limiter: ReportLimiter,
    /// And which certificates clients have shown.
    certificates: ReportLimiter,
}

struct ServedClient {
    connection: Rc<ClientConnection>,
    task: JoinHandle<()>,
}

impl NbdServer {
    pub fn new(gateway: Rc<dyn Gateway>, limits: Limits) -> NbdServer {
        assert!(limits.connections > 0 && limits.requests_in_flight > 0 && limits.bytes_in_flight > 0);
        let shared = ServerState {
            gateway,
            limits,
            tally: Rc::default(),
            clients: RefCell::default(),
            unauthenticated: UnauthenticatedPeers::new(limits.unauthenticated),
            shares: MemoryShares::new(limits.bytes_in_flight_all),
            next_client: Cell::new(0),
            left: Notify::new(),
            report_limiter: ReportLimiter::new(REPEAT_AFTER),
            certificates: ReportLimiter::new(REPEAT_AFTER),
        };
        let shared = Rc::new(shared);
        let watch = spawn_local(watch_clients(shared.clone()));
        NbdServer { shared, listeners: RefCell::new(vec![watch]) }
    }

    /// Listens on a socket file, made with mode 0600; the file goes when the server does. A file left by a server
    /// that is no more is replaced; `PATH.lock` beside it guards that.
    ///
    /// # Errors
    /// The path is in use, is not a socket, or cannot be made.
    pub fn listen_unix(&self, path: &Path) -> Result<(), ListenError> {
        let (listener, file) = listen::unix(path)?;
        let failed = |reason| ListenError::Path { path: path.into(), reason };
        let listener = UnixListener::from_std(listener).map_err(failed)?;
        tracing::info!(path = %path.display(), "NBD is served on a socket file");
        self.spawn_listener(ClientListener::Unix(listener, file), ListenerTls::default());
        Ok(())
    }

    /// Listens on a TCP address and returns it, the port filled in if it was zero. Whether an address beyond loopback
    /// is allowed is the caller's decision: here nothing is authenticated or encrypted.
    ///
    /// # Errors
    /// The address is in use or not this host's.
    pub fn listen_tcp(&self, address: SocketAddr) -> Result<SocketAddr, ListenError> {
        self.listen_tcp_guarded(address, ListenerTls::default())
    }

    /// The same with TLS, which clients may or must use.
    ///
    /// # Errors
    /// As [`NbdServer::listen_tcp`].
    pub fn listen_tls(
        &self,
        address: SocketAddr,
        store: CredentialStore,
        is_required: bool,
    ) -> Result<SocketAddr, ListenError> {
        let encryption = if is_required { Encryption::Required } else { Encryption::Offered };
        self.listen_tcp_guarded(address, ListenerTls { encryption, store: Some(store) })
    }

    fn listen_tcp_guarded(&self, address: SocketAddr, tls: ListenerTls) -> Result<SocketAddr, ListenError> {
        let failed = |reason| ListenError::Address { address, reason };
        let listener = listen::tcp(address)?;
        let bound = listener.local_addr().map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        tracing::info!(address = %bound, "NBD is served on TCP");
        self.spawn_listener(ClientListener::Tcp(listener), tls);
        Ok(bound)
    }

    /// What has been seen so far. Cheap: copy it out of the data thread as often as wanted.
    pub fn counters(&self) -> NbdCounters {
        self.shared.tally.snapshot()
    }

    /// The same of each export that ever had a client, by its name.
    pub fn export_counters(&self) -> BTreeMap<String, ExportCounters> {
        self.shared.tally.exports()
    }

    /// The clients that are at an export now, sorted by it.
    pub fn clients(&self) -> Vec<ClientInfo> {
        let mut clients: Vec<ClientInfo> =
            self.shared.clients.borrow().values().filter_map(|client| client.connection.info()).collect();
        clients.sort_by(|a, b| a.export.cmp(&b.export));
        clients
    }

    /// Stops listening, lets every connection answer what it was asked, and closes them; at most
    /// [`Limits::farewell`] long.
    pub async fn stop(&self) {
        for listener in self.listeners.take() {
            listener.abort();
            // Its end frees the socket file; how it ended does not matter.
            let _ = listener.await;
        }
        self.shared.clients.borrow().values().for_each(|client| client.connection.stop());
        while !self.shared.clients.borrow().is_empty() {
            self.shared.left.notified().await;
        }
    }

    /// Lets a peer in that has proven who it is, to the exports that `gateway` has for it.
    pub(crate) fn admit_peer(&self, (name, from): (&str, SocketAddr), line: PeerLine, gateway: Rc<dyn Gateway>) {
        let socket = ClientSocket::new(SocketStream::Tcp(line.stream));
        line.channel.into_iter().for_each(|channel| socket.encrypt(channel));
        let origin = ClientOrigin::by_peer(name, from, PEERS);
        ServerState::admit(&self.shared, (socket, origin), ListenerTls::default(), (gateway, true));
    }

    /// Peers that are let in are cut off once their certificates are believed no more.
    pub(crate) fn verify_peers(&self, store: CredentialStore) {
        let watch = spawn_local(verify_clients(self.shared.clone(), PEERS, store));
        self.listeners.borrow_mut().push(watch);
    }

    fn spawn_listener(&self, listening: ClientListener, tls: ListenerTls) {
        let shared = self.shared.clone();
        let mut listeners = self.listeners.borrow_mut();
        let number = listeners.len();
        if let Some(store) = &tls.store {
            listeners.push(spawn_local(verify_clients(shared.clone(), number, store.clone())));
        }
        listeners.push(spawn_local(accept_clients(shared, (number, listening), tls)));
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.listeners.take().iter().for_each(JoinHandle::abort);
        self.shared.clients.borrow().values().for_each(|client| client.task.abort());
    }
}

enum ClientListener {
    /// The file is held here so that it goes with its listener.
    Unix(UnixListener, #[expect(dead_code, reason = "held for its drop")] SocketFile),
    Tcp(TcpListener),
}

impl ClientListener {
    /// The next client, and where it comes from.
    async fn accept(&self, listener: usize) -> io::Result<(ClientSocket, ClientOrigin)> {
        match self {
            ClientListener::Unix(listening, _) => {
                let stream = listening.accept().await?.0;
                let origin = ClientOrigin::by_file(&stream, listener);
                Ok((ClientSocket::new(SocketStream::Unix(stream)), origin))
            }
            ClientListener::Tcp(listening) => {
                let (stream, peer) = listening.accept().await?;
                tracing::debug!(%peer, "an NBD client connects");
                // Answers must not wait for one another, and a host that vanished must be noticed some day.
                stream.set_nodelay(true)?;
                let keepalive = socket2::TcpKeepalive::new()
                    .with_time(Duration::from_secs(60))
                    .with_interval(Duration::from_secs(15))
                    .with_retries(4);
                socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                Ok((ClientSocket::new(SocketStream::Tcp(stream)), ClientOrigin::by_tcp(peer, listener)))
            }
        }
    }
}

async fn accept_clients(shared: Rc<ServerState>, (listener, listening): (usize, ClientListener), tls: ListenerTls) {
    /// Out of descriptors or memory: those come back when clients leave, and asking at once again would only spin.
    const PAUSE: Duration = Duration::from_millis(100);
    loop {
        match listening.accept(listener).await {
            Ok(client) => {
                let gateway = shared.gateway.clone();
                ServerState::admit(&shared, client, tls.clone(), (gateway, false));
            }
            Err(error) => {
                if shared.report_limiter.is_news(ReportSubject::Peer("a listener"), "not accepted") {
                    tracing::warn!(%error, "NBD connections cannot be accepted; they are tried again ten times a second");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Whenever what is believed changes, cuts off who would not be let in any more by this listener; for ever.
async fn verify_clients(shared: Rc<ServerState>, listener: usize, store: CredentialStore) {
    let mut changes = store.changes();
    while changes.changed().await.is_ok() {
        let credentials = changes.borrow_and_update().clone();
        let all: Vec<_> = shared.clients.borrow().values().map(|client| client.connection.clone()).collect();
        for connection in all.into_iter().filter(|connection| connection.origin().listener == listener) {
            let Some(chain) = connection.socket().chain() else { continue };
            let believed = match listener {
                PEERS => credentials.verify_peer(&chain, false),
                _ => credentials.verify_client(&chain).map(drop),
            };
            if let Err(why) = believed {
                connection.cut_off();
                shared.complain(connection.origin(), "was cut off, its certificate being believed no more", &why);
            }
            // Signatures take their time, and there may be a thousand of them.
            tokio::task::yield_now().await;
        }
    }
}

/// Cuts off who stalls, for ever.
async fn watch_clients(shared: Rc<ServerState>) {
    loop {
        tokio::time::sleep(shared.limits.stalled / LOOKS_MAX).await;
        for client in shared.clients.borrow().values() {
            let Some(why) = client.connection.look() else { continue };
            client.connection.cut_off();
            shared.tally.note(|counters| counters.stalled += 1);
            let origin = client.connection.origin();
            if shared.report_limiter.is_news(origin.about(), why) {
                let patience = shared.limits.stalled;
                tracing::warn!("an NBD client at {} was cut off: {why} for {patience:?}", origin.who);
            }
        }
    }
}

impl ServerState {
    fn admit(
        shared: &Rc<ServerState>,
        (socket, origin): (ClientSocket, ClientOrigin),
        tls: ListenerTls,
        (gateway, is_authenticated): (Rc<dyn Gateway>, bool),
    ) {
        shared.tally.note(|counters| counters.connections_accepted += 1);
        let most = shared.limits.connections + shared.limits.unauthenticated + OPENERS_MAX;
        if shared.clients.borrow().len() >= most {
            let no_session = NoSession::Refused(format!("the limit of {most} connections is reached"));
            shared.log_no_session(&origin, no_session);
            shared.tally.note(|counters| counters.connections_refused += 1);
            return;
        }
        // Whoever may open the socket file may do worse than sit there.
        let from = origin.address.filter(|_| !is_authenticated);
        let unauthenticated = from.map(|from| shared.unauthenticated.admit(from.ip()));
        let limits = ClientLimits { requests: shared.limits.requests_in_flight, bytes: shared.limits.bytes_in_flight };
        let connection =
            Rc::new(ClientConnection::new(socket, origin, (limits, shared.shares.clone()), shared.tally.clone()));
        let number = shared.next_client.replace(shared.next_client.get() + 1);
        let slot = ClientSlot { shared: shared.clone(), number };
        let task = spawn_local(serve((connection.clone(), gateway), slot, tls, unauthenticated));
        shared.tally.note(|counters| counters.connections_open += 1);
        shared.clients.borrow_mut().insert(number, ServedClient { connection, task });
    }
}

impl ServerState {
    /// Room at an export, or the answer to the client.
    fn admit_to(&self, connection: &ClientConnection, export: &str) -> Result<(), String> {
        let clients = self.clients.borrow();
        let all = clients.values().map(|client| &*client.connection);
        admission::check(connection, export, self.limits.connections, all).map_err(|full| {
            self.tally.note(|counters| counters.connections_refused += 1);
            if self.report_limiter.is_news(connection.origin().about(), "found no slot") {
                tracing::warn!("an NBD client at {} was refused {export}: {}", connection.origin().who, full.why);
            }
            full.answer
        })
    }

    /// Why there is no session. Ports change with every attempt: the same host with the same mistake is no news.
    fn log_no_session(&self, origin: &ClientOrigin, no_session: NoSession) {
        match no_session {
            NoSession::Left(reason) => tracing::debug!(reason, "an NBD handshake ended without a session"),
            NoSession::Refused(why) => self.complain(origin, "was refused", &why),
        }
    }

    /// Who comes again and again with the same certificate is logged once in a while.
    fn log_certificate(&self, origin: &ClientOrigin, CertificateFacts { subject, fingerprint, .. }: &CertificateFacts) {
        if self.certificates.is_news(origin.about(), fingerprint) {
            tracing::info!("an NBD client at {} showed the certificate {subject} (sha256 {fingerprint})", origin.who);
        }
    }

    /// Whoever is turned away may come back at once, as often as it likes. `why` may hold its own words.
    fn complain(&self, origin: &ClientOrigin, what: &'static str, why: &str) {
        if self.report_limiter.is_news(origin.about(), what) {
            tracing::warn!("an NBD client at {} {what}: {why}", origin.who);
        }
    }
}

/// A client's slot in the server, given up however its task ends.
struct ClientSlot {
    shared: Rc<ServerState>,
    number: u64,
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        let client = self.shared.clients.borrow_mut().remove(&self.number);
        client.expect("a client keeps its slot to the end").connection.hang_up();
        self.shared.tally.note(|counters| counters.connections_open -= 1);
        self.shared.left.notify_one();
    }
}

/// The attachment to the gateway, given up however the session ends.
struct AttachedSession(ClientSession);

impl Drop for AttachedSession {
    fn drop(&mut self) {
        self.0.gateway.detach(self.0.client);
    }
}

async fn serve(
    (connection, gateway): (Rc<ClientConnection>, Rc<dyn Gateway>),
    slot: ClientSlot,
    tls: ListenerTls,
    unauthenticated: Option<UnauthenticatedSlot>,
) {
    let shared = &slot.shared;
    let negotiation = async {
        let admit = |export: &str| shared.admit_to(&connection, export);
        let denied = |export: &str| {
            let why = format!("the table 'clients' of the configuration grants nothing of {export} to its certificate");
            shared.complain(connection.origin(), "heard that there is no such export", &why);
        };
        let shown = |facts: &CertificateFacts| shared.log_certificate(connection.origin(), facts);
        let context = HandshakeContext { tls: &tls, admit: &admit, denied: &denied, shown: &shown };
        let negotiation = handshake::negotiate(&connection, &gateway, context);
        let Some(unauthenticated) = unauthenticated else { return negotiation.await };
        let paced = async {
            // It is TLS that costs time.
            if tls.store.is_some() && !unauthenticated.turn().await {
                return Err(NoSession::Refused(
                    "more connections arrive from there than can prove who they are".to_owned(),
                ));
            }
            negotiation.await
        };
        tokio::select! {
            biased;
            () = unauthenticated.evicted() => Err(NoSession::Left("others came before it had chosen an export")),
            session = paced => session.inspect(|_| unauthenticated.authenticated()),
        }
    };
    let outcome = timeout(shared.limits.handshake, negotiation).await;
    let too_long = match tls.encryption {
        Encryption::Required => NoSession::Refused("it took too long to begin TLS and choose an export".to_owned()),
        _ => NoSession::Left("the client took too long to choose an export"),
    };
    let session = match outcome.unwrap_or(Err(too_long)) {
        Ok(session) => session,
        Err(no_session) => {
            shared.log_no_session(connection.origin(), no_session);
            shared.tally.note(|counters| counters.handshakes_without_session += 1);
            return;
        }
    };
    let mut attached = AttachedSession(session);
    if attached.0.terms.structured {
        connection.use_structured_replies();
    }
    shared.tally.note(|counters| counters.sessions_started += 1);
    let end = attached.0.run().await;
    tracing::debug!(?end, "an NBD session ends");
    match end {
        SessionEnd::Disconnect | SessionEnd::Leaving => {
            let drained = timeout(shared.limits.farewell, connection.drained()).await;
            if drained.is_err() {
                shared.complain(connection.origin(), "was left with answers unsent", "it or its disk is too slow");
            } else if matches!(end, SessionEnd::Disconnect) && connection.leaving() != LeaveReason::Broken {
                shared.tally.note(|counters| counters.sessions_ended_cleanly += 1);
            }
        }
        SessionEnd::Violation(reason) => {
            shared.complain(connection.origin(), "was cut off", reason);
            shared.tally.note(|counters| counters.violations += 1);
        }
        SessionEnd::Broken(why) => shared.complain(connection.origin(), "was cut off", &why),
        SessionEnd::Vanished => {}
    }
}
