//! Links to peers: their events go to the engine, its frames to them.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Once;
use std::time::{Duration, Instant};

use engine::wire::Header;
use engine::{FramePayload, Input, LinkId, NodeId, SendPayload, SessionId};

use super::plane::{Core, Plane};
use crate::complaints::REPEAT_AFTER;
use crate::link::meter::{Meter, Minute, Reading};
use crate::link::{Carried, LinkEvents, LinkSender, PeerInfo, SocketReport};

/// How often the kernel is asked how a connection does.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// So many connections of one peer are told one by one in [`REPEAT_AFTER`]; of the others only how many they were.
const TOLD_MAX: u32 = 16;

/// A live link.
pub(super) struct LinkHere {
    id: LinkId,
    peer: NodeId,
    sender: Rc<LinkSender>,
    /// The log says that it came up, and will say that it ended.
    told: bool,
    /// Frames were pushed and not yet flushed.
    touched: bool,
}

/// The link to one peer, for people.
#[derive(Clone, Debug)]
pub struct LinkSnapshot {
    pub peer: NodeId,
    /// Of the connection that is up.
    pub connection: Option<Connection>,
    pub reading: Option<Reading>,
    /// How often it came up since the start.
    pub connections: u64,
    /// By the connection that is up.
    pub carried: Option<Carried>,
}

/// A connection that is up, and what its socket got.
#[derive(Clone, Debug)]
pub struct Connection {
    pub address: SocketAddr,
    /// This node dialed.
    pub dialed: bool,
    pub socket: SocketReport,
}

/// What is known of the peers, and what they should agree to.
pub(super) struct Meeting {
    peers: Vec<PeerHere>,
    definitions: String,
    show_difference: fn(&str, &str) -> String,
}

struct PeerHere {
    id: NodeId,
    name: String,
    /// Of the newest session.
    key: [u8; 32],
    /// Why there is no link, in a sentence.
    problem: Option<String>,
    /// The peer's definitions, when they differ.
    differs: Option<String>,
    connection: Option<Connection>,
    meter: Meter,
    turnover: Turnover,
}

/// A peer's connections, as the log tells of them: one whose link falls again and again does not fill it.
struct Turnover {
    since: Instant,
    told: u32,
    untold: u64,
}

impl Turnover {
    fn new(now: Instant) -> Turnover {
        Turnover { since: now, told: 0, untold: 0 }
    }

    /// One more comes up: whether that is told.
    fn is_told(&mut self) -> bool {
        let is_told = self.told < TOLD_MAX;
        if is_told {
            self.told += 1;
        } else {
            self.untold += 1;
        }
        is_told
    }

    /// Begins anew when it is time; how many were not told until then.
    fn look(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.since) < REPEAT_AFTER {
            return None;
        }
        let untold = std::mem::replace(self, Turnover::new(now)).untold;
        (untold > 0).then_some(untold)
    }
}

impl Meeting {
    pub fn new(
        peers: Vec<(NodeId, String)>,
        definitions: String,
        show_difference: fn(&str, &str) -> String,
    ) -> Meeting {
        let now = Instant::now();
        let here = |(id, name)| PeerHere {
            id,
            name,
            key: [0; 32],
            problem: None,
            differs: None,
            connection: None,
            meter: Meter::new(now),
            turnover: Turnover::new(now),
        };
        Meeting { peers: peers.into_iter().map(here).collect(), definitions, show_difference }
    }

    fn peer(&mut self, id: NodeId) -> &mut PeerHere {
        self.peers.iter_mut().find(|peer| peer.id == id).expect("links lead to known peers")
    }

    pub fn key(&mut self, id: NodeId) -> [u8; 32] {
        self.peer(id).key
    }

    /// Why there is no link to the peer, if that is known.
    pub fn problem(&self, id: NodeId) -> Option<String> {
        self.peers.iter().find(|peer| peer.id == id).and_then(|peer| peer.problem.clone())
    }

    fn came_up(&mut self, id: NodeId, info: PeerInfo) {
        let peer = self.peer(id);
        (peer.key, peer.problem, peer.differs) = (info.key, None, None);
        peer.meter.up(Instant::now());
        peer.connection = Some(Connection { address: info.address, dialed: info.dialed, socket: info.socket });
    }

    fn went_down(&mut self, id: NodeId) {
        let peer = self.peer(id);
        peer.connection = None;
        peer.meter.down();
    }

    /// All peers, in the order of the configuration, without what only their senders know.
    fn links(&self) -> Vec<LinkSnapshot> {
        let now = Instant::now();
        let one = |peer: &PeerHere| LinkSnapshot {
            peer: peer.id,
            connection: peer.connection.clone(),
            reading: peer.meter.reading(now),
            connections: peer.meter.connections(),
            carried: None,
        };
        self.peers.iter().map(one).collect()
    }

    /// What each link did since this was last asked; with `take` the next answer begins here.
    pub fn minutes(&mut self, take: bool) -> Vec<(NodeId, Minute)> {
        let now = Instant::now();
        let minute = |meter: &mut Meter| if take { meter.take_minute(now) } else { meter.minute(now) };
        self.peers.iter_mut().map(|peer| (peer.id, minute(&mut peer.meter))).collect()
    }

    /// The links' settings change now.
    pub fn retuned(&mut self) {
        let now = Instant::now();
        self.peers.iter_mut().for_each(|peer| peer.meter.retuned(now));
    }

    /// A connection came to nothing. Beside one that is up that says nothing of the link.
    fn not_reached(&mut self, id: NodeId, why: String) {
        let peer = self.peer(id);
        if peer.connection.is_none() {
            peer.problem = Some(why);
        }
    }

    fn tell_turnover(&mut self, now: Instant) {
        for PeerHere { name, turnover, .. } in &mut self.peers {
            if let Some(untold) = turnover.look(now) {
                tracing::warn!(
                    "node {name}: {untold} more connections came up within a minute and are not told one by one; 'farshore link show' has \
                     their count"
                );
            }
        }
    }

    fn differs(&mut self, id: NodeId, theirs: String) {
        let difference = (self.show_difference)(&self.definitions, &theirs);
        let peer = self.peer(id);
        if peer.differs.as_ref() == Some(&theirs) {
            return;
        }
        let sentence = format!(
            "node {} has other definitions of the groups, so there is no link; give both nodes the same configuration \
             file:\n{difference}",
            peer.name
        );
        tracing::error!("{sentence}");
        (peer.problem, peer.differs) = (Some(sentence), Some(theirs));
    }
}

fn tell_connected(session: SessionId, info: &PeerInfo) {
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

impl LinkEvents for Plane {
    fn up(&self, peer: NodeId, link: LinkId, session: SessionId, sender: Rc<LinkSender>, info: PeerInfo) {
        let core = &mut *self.core.borrow_mut();
        let told = core.meeting.peer(peer).turnover.is_told();
        if told {
            tell_connected(session, &info);
        }
        // Of the kernel, not of the connection: once is enough.
        static NOTED: Once = Once::new();
        if !info.socket.notes.is_empty() {
            NOTED.call_once(|| tracing::info!("{}", info.socket.notes.join("; ")));
        }
        core.meeting.came_up(peer, info);
        core.links.push(LinkHere { id: link, peer, sender, told, touched: false });
        core.input(Input::LinkUp { peer, link, session });
    }

    fn down(&self, link: LinkId, reason: String) {
        let core = &mut *self.core.borrow_mut();
        if let Some(at) = core.links.iter().position(|known| known.id == link) {
            let LinkHere { peer, told, .. } = core.links.remove(at);
            core.meeting.went_down(peer);
            if told {
                tracing::info!("a connection ended: {reason}");
            }
        }
        core.input(Input::LinkDown { link, reason });
        self.link_ended.notify_one();
    }

    fn frame(&self, link: LinkId, header: Header, payload: FramePayload) {
        self.core.borrow_mut().input(Input::Frame { link, header, payload });
    }

    fn heard(&self, link: LinkId) {
        self.core.borrow_mut().input(Input::Heard { link });
    }

    fn sent(&self, link: LinkId, bytes: u64) {
        self.core.borrow_mut().input(Input::Sent { link, bytes });
    }

    fn turn_done(&self) {
        self.turn();
    }

    fn refused(&self, who: String, why: String) {
        tracing::warn!("no link with {who}: {why}");
    }

    fn not_reached(&self, peer: NodeId, why: String) {
        self.core.borrow_mut().meeting.not_reached(peer, why);
    }

    fn definitions_differ(&self, peer: NodeId, theirs: String) {
        self.core.borrow_mut().meeting.differs(peer, theirs);
    }
}

impl Plane {
    /// Asks the kernel once a second how the connections do, for ever.
    pub async fn watch_links(self: Rc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let core = &mut *self.core.borrow_mut();
            core.meeting.tell_turnover(Instant::now());
            for link in &core.links {
                if let Some(info) = link.sender.look() {
                    core.meeting.peer(link.peer).meter.look(Instant::now(), info);
                }
            }
        }
    }

    /// Ends all links by intent.
    pub fn hang_up(&self, reason: &str) {
        for link in &self.core.borrow().links {
            link.sender.flush();
            link.sender.close(reason);
        }
    }

    /// Resolves when no link is up.
    pub async fn links_are_down(&self) {
        while !self.core.borrow().links.is_empty() {
            self.link_ended.notified().await;
        }
    }
}

impl Core {
    pub fn send(&mut self, link: LinkId, header: Header, payload: SendPayload) {
        // A link that has ended takes no frames; its end is on its way to the engine.
        if let Some(link) = self.links.iter_mut().find(|known| known.id == link) {
            link.sender.push(header, payload);
            link.touched = true;
        }
    }

    /// All links, in the order of the configuration.
    pub fn link_snapshots(&self) -> Vec<LinkSnapshot> {
        let mut links = self.meeting.links();
        for link in &mut links {
            link.carried = self.links.iter().find(|up| up.peer == link.peer).map(|up| up.sender.carried());
        }
        links
    }

    pub fn flush_links(&mut self) {
        for link in self.links.iter_mut().filter(|link| link.touched) {
            link.touched = false;
            link.sender.flush();
        }
    }

    pub fn close_link(&mut self, link: LinkId, reason: &str) {
        if let Some(link) = self.links.iter().find(|known| known.id == link) {
            link.sender.flush();
            link.sender.close(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_without_end_are_told_by_their_number() {
        let start = Instant::now();
        let mut turnover = Turnover::new(start);
        assert_eq!((0..1000).filter(|_| turnover.is_told()).count(), TOLD_MAX as usize);
        assert_eq!(turnover.look(start + REPEAT_AFTER / 2), None);
        assert_eq!(turnover.look(start + REPEAT_AFTER), Some(1000 - u64::from(TOLD_MAX)));
        assert!(turnover.is_told());
        assert_eq!(turnover.look(start + REPEAT_AFTER * 2), None, "all were told");
    }
}
