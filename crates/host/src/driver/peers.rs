//! Peers: what is known of them, and the links to them that are up.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Once;
use std::time::{Duration, Instant};

use engine::wire::FrameHeader;
use engine::{LinkId, NodeId, SendPayload, SessionId};

use super::setup::{CompareDefinitions, DefinitionsDifference};
use super::snapshot::{LinkSnapshot, PeerConnection};
use crate::link::meter::{LinkMeter, Minute};
use crate::link::{LinkSender, PeerInfo};
use crate::report_limiter::REPEAT_AFTER;

/// How often the kernel is asked how a connection does.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// So many connections of one peer are reported one by one in [`REPEAT_AFTER`]; of the others only how many they were.
const REPORTED_MAX: u32 = 16;

/// A link that is up.
struct OpenLink {
    id: LinkId,
    peer: NodeId,
    sender: Rc<LinkSender>,
    /// The log says that it came up, and will say that it ended.
    is_reported: bool,
    /// Frames were pushed and not yet flushed.
    is_touched: bool,
}

/// What is known of the peers, what they should agree to, and the links to them.
pub(super) struct Peers {
    /// In the order of the configuration.
    peers: Vec<KnownPeer>,
    links: Vec<OpenLink>,
    definitions: String,
    compare: CompareDefinitions,
}

struct KnownPeer {
    id: NodeId,
    name: String,
    /// Of the newest session.
    key: [u8; 32],
    /// Why there is no link, in a sentence.
    problem: Option<String>,
    /// How its definitions of groups differ from this node's.
    difference: Option<DefinitionsDifference>,
    connection: Option<PeerConnection>,
    meter: LinkMeter,
    turnover: Turnover,
}

/// A peer whose connections came up too often to be reported one by one.
pub(super) struct UnsteadyLink {
    pub peer: NodeId,
    /// So many were not.
    pub connections: u32,
    /// Where the one that is up leads to.
    pub up: Option<SocketAddr>,
}

/// A peer's connections, as the log shows them: one whose link falls again and again does not fill it.
struct Turnover {
    since: Instant,
    reported: u32,
    unreported: u32,
}

impl Turnover {
    fn new(now: Instant) -> Turnover {
        Turnover { since: now, reported: 0, unreported: 0 }
    }

    /// One more comes up: whether that is reported.
    fn is_reported(&mut self) -> bool {
        let is_reported = self.reported < REPORTED_MAX;
        *(if is_reported { &mut self.reported } else { &mut self.unreported }) += 1;
        is_reported
    }

    /// Begins anew when it is time; how many were not reported until then.
    fn look(&mut self, now: Instant) -> Option<u32> {
        if now.saturating_duration_since(self.since) < REPEAT_AFTER {
            return None;
        }
        let unreported = std::mem::replace(self, Turnover::new(now)).unreported;
        (unreported > 0).then_some(unreported)
    }
}

fn differs(peer: &str, text: &str) -> String {
    format!(
        "node {peer} has other definitions of groups, which do not meet theirs there; give both nodes the same configuration file, and \
         'farshore config apply' on both:\n{text}"
    )
}

impl Peers {
    pub fn new(peers: Vec<(NodeId, String)>, definitions: String, compare: CompareDefinitions) -> Peers {
        let now = Instant::now();
        let known = |(id, name)| KnownPeer {
            id,
            name,
            key: [0; 32],
            problem: None,
            difference: None,
            connection: None,
            meter: LinkMeter::new(now),
            turnover: Turnover::new(now),
        };
        Peers { peers: peers.into_iter().map(known).collect(), links: Vec::new(), definitions, compare }
    }

    fn peer(&mut self, id: NodeId) -> &mut KnownPeer {
        self.peers.iter_mut().find(|peer| peer.id == id).expect("links lead to known peers")
    }

    /// The key of the peer's newest session.
    pub fn key(&mut self, id: NodeId) -> [u8; 32] {
        self.peer(id).key
    }

    /// Why there is no link to the peer, if that is known.
    pub fn problem(&self, id: NodeId) -> Option<String> {
        self.peers.iter().find(|peer| peer.id == id).and_then(|peer| peer.problem.clone())
    }

    /// Whether the connection is reported one by one.
    pub fn came_up(
        &mut self,
        id: NodeId,
        link: LinkId,
        session: SessionId,
        sender: Rc<LinkSender>,
        info: PeerInfo,
    ) -> bool {
        let difference = info.definitions.as_ref().map(|theirs| (self.compare)(&self.definitions, theirs));
        let peer = self.peer(id);
        let is_reported = peer.turnover.is_reported();
        if is_reported {
            log_connected(session, &info);
        }
        let is_news = is_reported && peer.difference != difference;
        if let Some(difference) = difference.as_ref().filter(|_| is_news) {
            tracing::error!("{}", differs(&peer.name, &difference.text));
        }
        // Of the kernel, not of the connection: once is enough.
        static NOTED: Once = Once::new();
        if !info.socket.notes.is_empty() {
            NOTED.call_once(|| tracing::info!("{}", info.socket.notes.join("; ")));
        }
        (peer.key, peer.problem, peer.difference) = (info.key, None, difference);
        peer.meter.up(Instant::now());
        peer.connection = Some(PeerConnection { address: info.address, dialed: info.dialed, socket: info.socket });
        self.links.push(OpenLink { id: link, peer: id, sender, is_reported, is_touched: false });
        is_reported
    }

    /// Whose connection ended, and whether that is reported.
    pub fn went_down(&mut self, link: LinkId, reason: &str) -> Option<(NodeId, bool)> {
        let at = self.links.iter().position(|known| known.id == link)?;
        let OpenLink { peer, is_reported, .. } = self.links.remove(at);
        let known = self.peer(peer);
        known.connection = None;
        known.meter.down();
        if is_reported {
            tracing::info!("a connection ended: {reason}");
        }
        Some((peer, is_reported))
    }

    /// A connection came to nothing. Beside one that is up that says nothing of the link.
    pub fn not_reached(&mut self, id: NodeId, why: String) {
        let peer = self.peer(id);
        if peer.connection.is_none() {
            peer.problem = Some(why);
        }
    }

    /// What this node defines is something else from the next connection on.
    pub fn defines(&mut self, definitions: String) {
        self.definitions = definitions;
    }

    /// The groups that a peer defines differently than this node, or does not have, by their names.
    pub fn defined_differently(&self, id: NodeId) -> &[String] {
        let peer = self.peers.iter().find(|peer| peer.id == id);
        peer.and_then(|peer| peer.difference.as_ref()).map_or(&[], |difference| &difference.groups)
    }

    /// How a peer defines a group differently, in a sentence.
    pub fn difference(&self, id: NodeId, group: &str) -> Option<String> {
        let peer = self.peers.iter().find(|peer| peer.id == id)?;
        let difference = peer.difference.as_ref()?;
        difference.groups.iter().any(|name| name == group).then(|| differs(&peer.name, &difference.text))
    }

    /// Asks the kernel how the connections do. Of which peers so many came up that not each was reported; what is up now is reported
    /// from here on, so its end will be.
    pub fn look(&mut self) -> Vec<UnsteadyLink> {
        let now = Instant::now();
        let mut unsteady = Vec::new();
        for KnownPeer { id, name, turnover, connection, .. } in &mut self.peers {
            let Some(connections) = turnover.look(now) else { continue };
            let up = connection.as_ref().map(|connection| connection.address);
            self.links.iter_mut().filter(|link| link.peer == *id).for_each(|link| link.is_reported = true);
            unsteady.push(UnsteadyLink { peer: *id, connections, up });
            let how = if up.is_some() { "it is connected now" } else { "it is not connected now" };
            tracing::warn!(
                "node {name}: {connections} more connections came up within a minute and are not reported one by one; {how}; 'farshore link \
                 show' has their count"
            );
        }
        for link in &self.links {
            let peer = self.peers.iter_mut().find(|peer| peer.id == link.peer).expect("links lead to known peers");
            if let Some(info) = link.sender.look() {
                peer.meter.look(Instant::now(), info);
            }
        }
        unsteady
    }

    // --- Frames out ---

    pub fn send(&mut self, link: LinkId, header: FrameHeader, payload: SendPayload) {
        // A link that has ended takes no frames; its end is on its way to the engine.
        if let Some(link) = self.links.iter_mut().find(|known| known.id == link) {
            link.sender.push(header, payload);
            link.is_touched = true;
        }
    }

    pub fn flush(&mut self) {
        for link in self.links.iter_mut().filter(|link| link.is_touched) {
            link.is_touched = false;
            link.sender.flush();
        }
    }

    pub fn close(&self, link: LinkId, reason: &str) {
        self.links.iter().filter(|known| known.id == link).for_each(|link| link.close(reason));
    }

    /// Ends all links by intent.
    pub fn close_all(&self, reason: &str) {
        self.links.iter().for_each(|link| link.close(reason));
    }

    pub fn all_are_down(&self) -> bool {
        self.links.is_empty()
    }

    // --- For people ---

    /// All peers, in the order of the configuration.
    pub fn snapshot(&self) -> Vec<LinkSnapshot> {
        let now = Instant::now();
        let one = |peer: &KnownPeer| LinkSnapshot {
            peer: peer.id,
            connection: peer.connection.clone(),
            reading: peer.meter.reading(now),
            connections: peer.meter.connections(),
            carried: self.links.iter().find(|up| up.peer == peer.id).map(|up| up.sender.carried()),
        };
        self.peers.iter().map(one).collect()
    }

    /// What each link did since this was last asked; with `take` the next answer begins here.
    pub fn minutes(&mut self, take: bool) -> Vec<(NodeId, Minute)> {
        let now = Instant::now();
        let minute = |meter: &mut LinkMeter| if take { meter.take_minute(now) } else { meter.minute(now) };
        self.peers.iter_mut().map(|peer| (peer.id, minute(&mut peer.meter))).collect()
    }

    /// The links' settings change now.
    pub fn retuned(&mut self) {
        let now = Instant::now();
        self.peers.iter_mut().for_each(|peer| peer.meter.retuned(now));
    }
}

impl OpenLink {
    fn close(&self, reason: &str) {
        self.sender.flush();
        self.sender.close(reason);
    }
}

fn log_connected(session: SessionId, info: &PeerInfo) {
    let PeerInfo { name, address, socket, .. } = info;
    let way = if info.dialed { "to" } else { "from" };
    let sealed = if info.certificate.is_some() { "TLS 1.3, " } else { "" };
    tracing::info!("node {name} is connected ({way} {address}, {sealed}session {:016x})", session.0);
    if let Some(facts) = &info.certificate {
        let whose = format!("the certificate of node {name}");
        let warning = crate::tls::warning(&whose, "farshore cert rotate", facts, crate::tls::facts::now());
        warning.iter().for_each(|warning| tracing::warn!("{warning}"));
    }
    for warning in &socket.warnings {
        tracing::warn!("the connection with node {name}: {warning}");
    }
    tracing::info!("the socket to node {name}: {socket}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_without_end_are_reported_by_their_number() {
        let start = Instant::now();
        let mut turnover = Turnover::new(start);
        assert_eq!((0..1000).filter(|_| turnover.is_reported()).count(), REPORTED_MAX as usize);
        assert_eq!(turnover.look(start + REPEAT_AFTER / 2), None);
        assert_eq!(turnover.look(start + REPEAT_AFTER), Some(1000 - REPORTED_MAX));
        assert!(turnover.is_reported());
        assert_eq!(turnover.look(start + REPEAT_AFTER * 2), None, "all were reported");
    }
}
