//! All links of this node: who listens, who dials, who is let in, and which of two connections is the newer one.
//!
//! What must hold:
//! * a peer has at most one live link; a newer connection ends the older one before it is reported (rule 18), and one that
//!   was dialed earlier but arrives later is turned away;
//! * unauthenticated peers are few, short-lived and cannot crowd out a peer from another address;
//! * no borrow is held across an event: the data path may push, flush or close from inside it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::{LinkId, NodeId};
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::auth::{Attempt, AuthError, Authenticated, ConnectionKind, Handshake};
use super::authenticate::{COMPARING_MAX, HandshakeProgress, LinkFailure, certified, ours_on, run_handshake};
use super::control;
use super::frames::FrameReader;
use super::link_stream::LinkStream;
use super::path::PathWatch;
use super::sender::{AdaptiveOptions, LinkSender, serve};
use super::tcp::{self, Backoff, Listener};
use super::volume_line::{PeerLine, VolumeLine};
use super::{FrameOptions, LinkConfig, LinkEvents, LinkPeer, Ourselves, PeerInfo, SocketOptions, SocketReport};
use crate::buffers::Pool;
use crate::node_name::is_name;
use crate::random::random;
use crate::report_limiter::{ReportLimiter, ReportSubject};
use crate::tcp_info::TcpInfo;
use crate::tls::{Channel, ChannelError, CredentialStore, Credentials};
use crate::unauthenticated::{UnauthenticatedPeers, UnauthenticatedSlot, network};

/// All links of this node. Dropping it ends them without further events.
pub struct Links {
    hub: Rc<LinkHub>,
    /// The listeners' and dialers' tasks, which own those of the connections.
    tasks: JoinSet<()>,
    listeners: Vec<Rc<Listener>>,
    addresses: Vec<SocketAddr>,
}

impl Links {
    /// Listens and dials from now on. To be called inside a `LocalSet`.
    ///
    /// `pool` serves arriving volume content and nothing else: were it shared with front ends, a queue full of their
    /// writes could keep the link from reading the very confirmations that empty the queue. Let it hold the windows of
    /// all groups received here, and one largest frame for each peer.
    ///
    /// # Errors
    /// A listening address that cannot be bound, with the address in the sentence.
    pub fn start(config: LinkConfig, pool: Pool, events: Rc<dyn LinkEvents>) -> io::Result<Links> {
        let mut listeners = Vec::new();
        for address in &config.listen {
            let bound = Listener::bind(*address, &config.socket).map_err(|error| {
                let hint = "is another daemon running, or the address not this host's?";
                io::Error::new(error.kind(), format!("cannot listen on {address}: {error}; {hint}"))
            })?;
            listeners.push(Rc::new(bound));
        }
        let addresses = listeners.iter().map(|listener| listener.address()).collect::<io::Result<Vec<_>>>()?;
        let hub = Rc::new(LinkHub::new(config, pool, events)?);
        let mut tasks = JoinSet::new();
        for (address, listener) in addresses.iter().zip(&listeners) {
            tasks.spawn_local(hub.clone().listen(*address, listener.clone()));
        }
        for peer in hub.config.peers.iter().filter(|peer| hub.ours().node < peer.name) {
            tasks.spawn_local(hub.clone().dial_for_ever(peer.clone()));
        }
        if let Some(store) = &hub.config.tls {
            tasks.spawn_local(hub.clone().verify_for_ever(store.clone()));
        }
        Ok(Links { hub, tasks, listeners, addresses })
    }

    /// Other ways with frames, on the links that are up as well.
    pub fn set_flow(&self, flow: FrameOptions) {
        self.hub.flow.set(flow);
        for live in self.hub.live.borrow().values() {
            live.sender.set_flow(flow);
        }
    }

    /// Other definitions of groups, from the next connection on.
    pub fn set_definitions(&self, definitions: String) {
        let ours = Ourselves { definitions, ..(*self.hub.ours()).clone() };
        *self.hub.ours.borrow_mut() = Rc::new(ours);
    }

    /// Other socket options, from the next connection on; the ones that are up end, and come again.
    pub fn retune(&self, options: SocketOptions) {
        for listener in &self.listeners {
            listener.retune(&options);
        }
        *self.hub.socket.borrow_mut() = options;
        let live: Vec<Rc<LinkSender>> = self.hub.live.borrow().values().map(|live| live.sender.clone()).collect();
        for sender in live {
            sender.flush();
            sender.close("the settings of the link were changed on this node; it connects again");
        }
    }

    /// The addresses listened on; tells the port when the configuration said 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Links up now.
    pub fn live(&self) -> Vec<(NodeId, LinkId)> {
        self.hub.live.borrow().iter().map(|(peer, live)| (*peer, live.sender.link())).collect()
    }

    /// Ends everything; no event follows.
    pub fn stop(mut self) {
        self.tasks.abort_all();
    }
}

struct LiveLink {
    sender: Rc<LinkSender>,
    dialed: bool,
    attempt: Attempt,
}

struct LinkHub {
    config: LinkConfig,
    /// What the next connection asks of its socket.
    socket: RefCell<SocketOptions>,
    flow: Cell<FrameOptions>,
    /// Replaced as a whole: a handshake under way goes on with what it began with.
    ours: RefCell<Rc<Ourselves>>,
    pool: Pool,
    events: Rc<dyn LinkEvents>,
    /// This run of the process, as peers see it.
    run: u64,
    counter: Cell<u64>,
    live: RefCell<BTreeMap<NodeId, LiveLink>>,
    unauthenticated: Rc<UnauthenticatedPeers>,
    report_limiter: ReportLimiter,
    /// Peers that have come in and tell their definitions.
    comparing: Cell<usize>,
}

/// One more, for as long as this lasts.
struct CountGuard<'a>(&'a Cell<usize>);

impl CountGuard<'_> {
    fn one_more(count: &Cell<usize>) -> CountGuard<'_> {
        count.set(count.get() + 1);
        CountGuard(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl LinkHub {
    fn new(config: LinkConfig, pool: Pool, events: Rc<dyn LinkEvents>) -> io::Result<LinkHub> {
        let mut ours = config.ours.clone();
        ours.peers = config.peers.iter().map(|peer| peer.name.clone()).collect();
        for name in ours.peers.iter().chain([&ours.node, &ours.cluster]) {
            assert!(is_name(name), "names are checked when the configuration is read");
        }
        assert!(!ours.peers.contains(&ours.node), "a node is not its own peer");
        let unauthenticated = UnauthenticatedPeers::new(config.bounds.unauthenticated_max);
        config.peers.iter().for_each(|peer| unauthenticated.expect(peer.address.ip()));
        Ok(LinkHub {
            ours: RefCell::new(Rc::new(ours)),
            socket: RefCell::new(config.socket.clone()),
            flow: Cell::new(config.flow),
            report_limiter: ReportLimiter::new(config.bounds.repeat_after),
            unauthenticated,
            comparing: Cell::new(0),
            config,
            pool,
            events,
            run: u64::from_le_bytes(random()?),
            counter: Cell::new(0),
            live: RefCell::default(),
        })
    }

    fn ours(&self) -> Rc<Ourselves> {
        self.ours.borrow().clone()
    }

    /// Numbers of links and attempts: one counter, never used twice.
    fn number(&self) -> u64 {
        self.counter.set(self.counter.get() + 1);
        self.counter.get()
    }

    // --- Accepting ---

    async fn listen(self: Rc<LinkHub>, address: SocketAddr, listener: Rc<Listener>) {
        let mut connections = JoinSet::new();
        loop {
            match listener.accept().await {
                Ok((stream, from, report)) => {
                    connections.spawn_local(self.clone().accept(stream, from, report));
                }
                Err(error) => {
                    let listener = format!("listener {address}");
                    if self.report_limiter.is_news(ReportSubject::Peer(&listener), "not accepted") {
                        self.events.refused(listener, format!("accepting a connection failed: {error}"));
                    }
                    // Out of descriptors, most likely: those that end give some back.
                    sleep(self.config.bounds.backoff_min).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    }

    async fn accept(self: Rc<LinkHub>, stream: TcpStream, from: SocketAddr, report: SocketReport) {
        let slot = self.unauthenticated.admit(from.ip());
        let failure = match self.line(stream, |tls| tls.current().accept_link()) {
            Ok(line) => match self.authenticate_dialer(&line, &slot).await {
                Ok((handshake, shaken)) => {
                    slot.authenticated();
                    match self.compare_definitions(&line, handshake, shaken).await {
                        Ok(peer) => {
                            match peer.kind {
                                ConnectionKind::Frames => _ = self.run_link(line, from, report, peer, false).await,
                                ConnectionKind::Control => self.hand_on(line, from, peer).await,
                                ConnectionKind::Volume => self.lead_to_volumes(line, from, peer),
                            }
                            return;
                        }
                        Err(failure) => failure,
                    }
                }
                Err(failure) => {
                    // So that the last words are read before the connection is reset.
                    tokio::select! {
                        () = slot.evicted() => {}
                        _ = timeout(self.config.bounds.backoff_min, serve::drain(line.stream())) => {}
                    }
                    failure
                }
            },
            Err(failure) => failure,
        };
        // Ports of dialers change with every attempt: the same host with the same mistake is no news.
        let network = network(from.ip()).to_string();
        self.report_failure(ReportSubject::Unauthenticated(&network), format!("peer at {from}"), failure);
    }

    /// A line over a new connection: encrypted when this node has credentials, by their newest.
    fn line(
        &self,
        stream: TcpStream,
        channel: impl FnOnce(&crate::tls::CredentialStore) -> Result<Channel, rustls::Error>,
    ) -> Result<LinkStream, LinkFailure> {
        let channel = self.config.tls.as_ref().map(channel).transpose().map_err(ChannelError::from)?;
        Ok(LinkStream::new(stream, channel))
    }

    async fn authenticate_dialer(
        &self,
        line: &LinkStream,
        slot: &UnauthenticatedSlot,
    ) -> Result<(Handshake, HandshakeProgress), LinkFailure> {
        let bounds = &self.config.bounds;
        let handshake = async {
            if !slot.turn().await {
                return Err(LinkFailure::TooMany);
            }
            let ours = ours_on(&self.ours(), line).await?;
            let handshake = Handshake::accept(ours, random()?).announcing(self.announced());
            let mut handshake = handshake.certified(certified(line));
            let shaken = run_handshake(line, &mut handshake, Vec::new()).await?;
            Ok::<_, LinkFailure>((handshake, shaken))
        };
        let shaken = tokio::select! {
            biased;
            () = slot.evicted() => return Err(LinkFailure::PushedOut(self.unauthenticated.most())),
            shaken = timeout(bounds.auth_timeout, handshake) => shaken,
        };
        match shaken.map_err(|_| LinkFailure::TooSlow(bounds.auth_timeout))?? {
            // Not proven, so the slot is kept to the end.
            (_, HandshakeProgress::Done(Err(error))) => Err(LinkFailure::Auth(error)),
            shaken => Ok(shaken),
        }
    }

    /// The second half of a handshake whose definitions differ; else its result.
    async fn compare_definitions(
        &self,
        line: &LinkStream,
        mut handshake: Handshake,
        shaken: HandshakeProgress,
    ) -> Result<Authenticated, LinkFailure> {
        let limit = self.config.bounds.definitions_timeout;
        let end = match shaken {
            HandshakeProgress::Done(result) => result,
            HandshakeProgress::Proven(send) => {
                match timeout(limit, self.exchange_definitions(line, &mut handshake, send)).await {
                    Ok(Ok(HandshakeProgress::Done(result))) => result,
                    Ok(Ok(HandshakeProgress::Proven(_))) => Err(AuthError::Malformed),
                    Ok(Err(error)) => return Err(error),
                    Err(_) => return Err(LinkFailure::TooSlow(limit)),
                }
            }
        };
        let peer = end.map_err(LinkFailure::Auth)?;
        if peer.kind == ConnectionKind::Frames && handshake.definitions() != self.ours().definitions {
            return Err(LinkFailure::Redefined);
        }
        let certified = certified(line);
        assert!(certified.is_none_or(|name| name == peer.peer), "a name was held against its certificate before");
        Ok(peer)
    }

    /// Goes on with a handshake of a proven peer, counted for as long as that lasts.
    async fn exchange_definitions(
        &self,
        line: &LinkStream,
        handshake: &mut Handshake,
        send: Vec<u8>,
    ) -> Result<HandshakeProgress, LinkFailure> {
        if self.comparing.get() >= COMPARING_MAX {
            return Err(LinkFailure::Comparing);
        }
        let _count = CountGuard::one_more(&self.comparing);
        run_handshake(line, handshake, send).await
    }

    // --- Dialing ---

    async fn dial_for_ever(self: Rc<LinkHub>, peer: LinkPeer) {
        let bounds = &self.config.bounds;
        let seed = self.run ^ u64::from(peer.id.0);
        let mut backoff = Backoff::new(bounds.backoff_min, bounds.backoff_max, seed);
        let mut path = PathWatch::default();
        loop {
            match self.dial(&peer, &mut path).await {
                // A link that held is dialed again at once; one that fell soon after it was up is not, for ever.
                Ok(held) if held >= bounds.backoff_max => {
                    backoff.reset();
                    continue;
                }
                Ok(_) => {}
                Err((at, failure)) => {
                    self.report_failure(ReportSubject::Peer(&peer.name), format!("node {} at {at}", peer.name), failure)
                }
            }
            sleep(backoff.pause()).await;
        }
    }

    /// Dials once and runs the link to its end; how long it held.
    async fn dial(
        self: &Rc<LinkHub>,
        peer: &LinkPeer,
        path: &mut PathWatch,
    ) -> Result<Duration, (String, LinkFailure)> {
        let address = peer.address;
        let at = |failure| (address.to_string(), failure);
        let segment_bytes = path.segment_bytes(Instant::now());
        let options = SocketOptions { segment_bytes, ..self.socket.borrow().clone() };
        let connected = tcp::connect(address, &options, self.config.bounds.connect_timeout).await;
        let (stream, mut report) =
            connected.map_err(|error| at(LinkFailure::Address(format!("cannot connect: {error}"))))?;
        report.warnings.extend(segment_bytes.map(|_| PathWatch::warning()));
        let line = self.line(stream, |tls| tls.current().dial(std::slice::from_ref(&peer.name))).map_err(at)?;
        let limit = self.config.bounds.auth_timeout;
        let Ok(done) = timeout(limit, self.authenticate_acceptor(&line, peer)).await else {
            // Certificates are what is large here: a path may swallow them already.
            if let Ok(last) = TcpInfo::read(line.stream().as_fd()) {
                path.ended(Instant::now(), &last);
            }
            return Err(at(LinkFailure::TooSlow(limit)));
        };
        let (handshake, shaken) = done.map_err(at)?;
        let peer = self.compare_definitions(&line, handshake, shaken).await.map_err(at)?;
        let up = Instant::now();
        if let Some(last) = self.run_link(line, address, report, peer, true).await {
            path.ended(Instant::now(), &last);
        }
        Ok(up.elapsed())
    }

    fn announced(&self) -> u32 {
        self.socket.borrow().announced_rto_min_us()
    }

    async fn authenticate_acceptor(
        &self,
        line: &LinkStream,
        peer: &LinkPeer,
    ) -> Result<(Handshake, HandshakeProgress), LinkFailure> {
        let ours = ours_on(&self.ours(), line).await?;
        let attempt = Attempt { run: self.run, number: self.number() };
        let (mut handshake, hello) = Handshake::dial_announcing(ours, &peer.name, random()?, attempt, self.announced());
        let shaken = run_handshake(line, &mut handshake, hello).await?;
        Ok((handshake, shaken))
    }

    // --- Verifying again ---

    /// Ends the links of peers that are believed no more, whenever that changes.
    async fn verify_for_ever(self: Rc<LinkHub>, store: CredentialStore) {
        let mut changes = store.changes();
        while changes.changed().await.is_ok() {
            let credentials = changes.borrow_and_update().clone();
            let live: Vec<_> = self.live.borrow().values().map(|live| (live.sender.clone(), live.dialed)).collect();
            for (sender, dialed) in live {
                if let Err(why) = verify(&credentials, sender.chain(), dialed) {
                    sender.abort(&format!("the peer is believed no more: {why}"));
                }
            }
        }
    }

    // --- Running ---

    /// The peer at the other end, if it is one and still believed.
    fn known(&self, line: &LinkStream, address: SocketAddr, peer: &Authenticated, dialed: bool) -> Option<&LinkPeer> {
        let Some(known) = self.config.peers.iter().find(|known| known.name == peer.peer) else {
            // A name that it chose itself.
            let network = network(address.ip()).to_string();
            if self.report_limiter.is_news(ReportSubject::Unauthenticated(&network), "no peer") {
                let who = format!("node {} at {address}", peer.peer);
                self.events.refused(who, "it is not a peer of this node".to_owned());
            }
            return None;
        };
        // The two may have shaken hands while somebody was revoked.
        if let Some(Err(why)) = self.config.tls.as_ref().map(|store| verify(&store.current(), line.chain(), dialed)) {
            self.refuse(&peer.peer, address, why);
            return None;
        }
        Some(known)
    }

    /// A control connection leaves this thread, which has data to carry; where there is no room for it, its peer is told so.
    async fn hand_on(&self, line: LinkStream, address: SocketAddr, peer: Authenticated) {
        if self.known(&line, address, &peer, false).is_none() {
            return;
        }
        let door = self.config.control.as_ref();
        match door.and_then(|door| Some((door, door.room(&peer.peer)?))) {
            Some((door, room)) => door.let_in(room, line, address, &peer),
            None => _ = timeout(self.config.bounds.auth_timeout, control::turn_away(&line, &peer.key)).await,
        }
    }

    /// What is asked there is for whoever serves volumes.
    fn lead_to_volumes(&self, line: LinkStream, address: SocketAddr, peer: Authenticated) {
        let Some(known) = self.known(&line, address, &peer, false) else { return };
        let Authenticated { peer: name, attempt, .. } = peer;
        let line = VolumeLine { peer: known.id, name, address, attempt, line: PeerLine::new(line) };
        // Where nobody serves volumes any more, the connection ends.
        if let Some(volumes) = &self.config.volumes {
            let _ = volumes.send(line);
        }
    }

    /// To the link's end; what was last seen of its connection. `None`: it never was a link.
    async fn run_link(
        self: &Rc<LinkHub>,
        line: LinkStream,
        address: SocketAddr,
        mut socket: SocketReport,
        peer: Authenticated,
        dialed: bool,
    ) -> Option<TcpInfo> {
        let known = self.known(&line, address, &peer, dialed)?;
        let certificate = line.certificate();
        socket.agree(line.stream().as_fd(), self.announced(), peer.rto_min_us);
        let adaptive = AdaptiveOptions::by(&self.socket.borrow());
        let sender = LinkSender::new(LinkId(self.number()), line, adaptive, self.flow.get());
        let live = LiveLink { sender: sender.clone(), dialed, attempt: peer.attempt };
        let older = self.live.borrow().get(&known.id).map(|live| (live.sender.clone(), live.attempt));
        if let Some((older, attempt)) = older {
            if peer.attempt.is_older_than(attempt) {
                self.refuse(
                    &peer.peer,
                    address,
                    "this connection was dialed before the one that is up, and arrived after it".to_owned(),
                );
                return None;
            }
            older.abort("a newer connection of the same peer took its place");
            older.report_down(&*self.events, "a newer connection of the same peer took its place".to_owned());
        }
        self.live.borrow_mut().insert(known.id, live);
        let info = PeerInfo {
            name: peer.peer,
            address,
            dialed,
            version: peer.version,
            key: peer.key,
            socket,
            certificate,
            definitions: peer.differing,
        };
        self.events.up(known.id, sender.link(), peer.session, sender.clone(), info);
        self.events.turn_done();
        let frames = FrameReader::new(peer.session);
        serve::serve(sender.clone(), frames, &self.pool, &*self.events).await;
        let mut live = self.live.borrow_mut();
        if live.get(&known.id).is_some_and(|live| Rc::ptr_eq(&live.sender, &sender)) {
            live.remove(&known.id);
        }
        Some(sender.last_look())
    }

    // --- Reporting ---

    /// `who` is the full sentence, `about` what makes the complaint a new one.
    fn report_failure(&self, about: ReportSubject, who: String, failure: LinkFailure) {
        if let ReportSubject::Peer(name) = about {
            self.is_not_reached(name, &who, &failure);
        }
        if self.report_limiter.is_news(about, &failure.kind(about)) {
            self.events.refused(who, failure.to_string());
        }
    }

    /// Of a peer that has proven who it is.
    fn refuse(&self, peer: &str, address: SocketAddr, why: String) {
        let who = format!("node {peer} at {address}");
        self.is_not_reached(peer, &who, &why);
        if self.report_limiter.is_news(ReportSubject::Peer(peer), &why) {
            self.events.refused(who, why);
        }
    }

    fn is_not_reached(&self, name: &str, who: &str, why: &dyn fmt::Display) {
        if let Some(known) = self.config.peers.iter().find(|known| known.name == name) {
            self.events.not_reached(known.id, format!("{who}: {why}"));
        }
    }
}

/// A link that has ended already has nothing to be verified.
fn verify(credentials: &Credentials, chain: Option<Vec<CertificateDer<'static>>>, dialed: bool) -> Result<(), String> {
    chain.map_or(Ok(()), |chain| credentials.verify_peer(&chain, dialed))
}
