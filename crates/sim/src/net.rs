//! Connections between two nodes: reliable, ordered byte streams with delay, jitter and rate, over paths that can be cut,
//! one way or both. A cut holds what is under way, as a transport that retransmits does; what ends a connection is one
//! of its ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::wire::{HEADER_BYTES, Header, Kind};
use engine::{FramePayload, Input, LinkId, NodeId, SendPayload, SessionId};

use crate::node::SimNode;
use crate::oracle::{Failure, Oracle};
use crate::payload::Payload;
use crate::trip::Instant;
use crate::world::{Event, World, slice_of};

/// One frame on its way.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub header: [u8; HEADER_BYTES],
    pub payload: Arc<Vec<u8>>,
}

impl Parcel {
    pub fn bytes(&self) -> u64 {
        (self.header.len() + self.payload.len()) as u64
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub struct Direction {
    /// Handed over by the sender's engine, not yet on the path.
    pub queue: VecDeque<Parcel>,
    pub transmitting: bool,
    /// Arrived at the cut.
    pub held: VecDeque<Parcel>,
    /// When the last parcel arrives: order is kept even if the delay shrinks.
    pub last_arrival: u64,
}

/// A connection; its ends are numbered as in its path.
#[derive(Debug)]
pub struct Connection {
    pub id: u64,
    pub session: u64,
    /// The nodes, in order.
    pub ends: [usize; 2],
    pub open: [bool; 2],
    /// Direction `d` carries what end `d` sends.
    pub directions: [Direction; 2],
}

/// The path between two nodes.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Direction `d` carries from end `d`; false: cut.
    pub passes: [bool; 2],
    pub delay_ns: u64,
    pub jitter_ns: u64,
    pub bytes_per_s: u64,
}

impl Path {
    pub fn transmit_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s)) as u64 + 1
    }
}

/// All paths, by their two nodes in order, and the connections over them.
pub struct Net {
    pub paths: BTreeMap<[usize; 2], Path>,
    pub connections: BTreeMap<u64, Connection>,
    next_connection: u64,
}

impl Net {
    pub fn new(pairs: &[[usize; 2]], path: Path) -> Net {
        let paths = pairs.iter().map(|pair| (*pair, path)).collect();
        Net { paths, connections: BTreeMap::new(), next_connection: 1 }
    }

    pub fn path_of(&self, connection: &Connection) -> Path {
        self.paths[&connection.ends]
    }

    /// What the paths carry, and which connections are open at which end: for a failure report.
    pub fn explain(&self) -> String {
        let paths = self.paths.iter().map(|(pair, path)| format!("path {pair:?} passes {:?}", path.passes));
        let connections = self.connections.values().map(|c| format!("connection {} open {:?}", c.id, c.open));
        paths.chain(connections).collect::<Vec<_>>().join(", ")
    }

    /// The number of a connection that is open at its first end.
    pub fn open_between(&self, pair: [usize; 2]) -> Option<u64> {
        self.connections.values().find(|c| c.ends == pair && c.open[0]).map(|c| c.id)
    }
}

impl World {
    pub fn dial(&mut self) {
        let wait = self.rng.between(30_000_000, 200_000_000);
        self.schedule(wait, Event::Dial);
        for pair in self.net.paths.keys().copied().collect::<Vec<_>>() {
            if self.reachable(pair) && self.net.open_between(pair).is_none() {
                self.connect(pair);
            }
        }
    }

    /// Both nodes are up and hear each other.
    pub fn reachable(&self, pair: [usize; 2]) -> bool {
        pair.iter().all(|n| self.nodes[*n].up()) && self.net.paths[&pair].passes == [true; 2]
    }

    pub fn connect(&mut self, pair: [usize; 2]) {
        let id = self.net.next_connection;
        self.net.next_connection += 1;
        let session = self.rng.draw();
        let connection = Connection { id, session, ends: pair, open: [false; 2], directions: Default::default() };
        self.net.connections.insert(id, connection);
        let delay = self.net.paths[&pair].delay_ns;
        self.schedule(2 * delay, Event::ConnectionUp { connection: id, end: 1 });
        self.schedule(3 * delay, Event::ConnectionUp { connection: id, end: 0 });
    }

    pub fn connection_up(&mut self, connection: u64, end: usize) {
        let Some(c) = self.net.connections.get_mut(&connection) else { return };
        let (node, peer) = (c.ends[end], NodeId(c.ends[1 - end] as u16));
        if !self.nodes[node].up() || (end == 0 && !c.open[1]) {
            return;
        }
        let session = SessionId(c.session);
        // What it said before goes on the older one.
        self.drain(node);
        if !self.nodes[node].up() {
            // Its last word was that it has stopped.
            return;
        }
        let Some(c) = self.net.connections.get_mut(&connection) else { return };
        c.open[end] = true;
        self.input(node, Input::LinkUp { peer, link: LinkId(connection), session });
    }

    pub fn connection_down(&mut self, connection: u64, end: usize, reason: &'static str) {
        let Some(c) = self.net.connections.get_mut(&connection) else { return };
        let node = c.ends[end];
        if std::mem::replace(&mut c.open[end], false) {
            self.input(node, Input::LinkDown { link: LinkId(connection), reason: reason.into() });
        }
        self.forget_closed(connection);
    }

    /// A connection that is closed at both ends and carries nothing is history.
    fn forget_closed(&mut self, connection: u64) {
        if self
            .net
            .connections
            .get(&connection)
            .is_some_and(|c| c.open == [false; 2] && c.directions[0].idle() && c.directions[1].idle())
        {
            self.net.connections.remove(&connection);
        }
    }

    /// One end closes: it is told at once, the other end when the path lets it know.
    pub fn close(&mut self, node: usize, link: LinkId, reason: &str) {
        self.log(format_args!("node {node} closes connection {}: {reason}", link.0));
        let broke_protocol = reason.contains("the peer sent") && !reason.contains("goodbye");
        // With a fault planted the engine's own words are no verdict.
        if broke_protocol && !cfg!(feature = "planted") {
            return self.fail(Failure::new(Oracle::Protocol, format!("node {node}: {reason}")));
        }
        let Some(c) = self.net.connections.get(&link.0) else { return };
        let end = usize::from(c.ends[1] == node);
        let path = self.net.path_of(c);
        // The host closes a moment later; what arrives meanwhile must be fenced.
        let after = self.rng.below(3_000_000);
        self.schedule(after, Event::ConnectionDown { connection: link.0, end, reason: "closed here" });
        if path.passes[end] {
            let down = Event::ConnectionDown { connection: link.0, end: 1 - end, reason: "closed by peer" };
            self.schedule(path.delay_ns, down);
        }
    }

    /// A node died. A killed process's kernel closes its sockets; a machine without power says nothing.
    pub fn drop_connections(&mut self, node: usize, power: bool) {
        for id in self.net.connections.keys().copied().collect::<Vec<_>>() {
            let c = self.net.connections.get_mut(&id).expect("listed");
            let Some(end) = c.ends.iter().position(|n| *n == node) else { continue };
            if std::mem::replace(&mut c.open[end], false) && !power {
                let path = &self.net.paths[&c.ends];
                // Who stops by intent closes behind the last word.
                let unsent = c.directions[end].queue.iter().filter(|_| self.nodes[node].stopping);
                let last_word_ns: u64 = unsent.map(|parcel| path.transmit_ns(parcel.bytes()) + 1).sum();
                let delay = path.delay_ns + last_word_ns;
                self.schedule(delay, Event::ConnectionDown { connection: id, end: 1 - end, reason: "reset" });
            }
        }
    }

    pub fn send(&mut self, node: usize, link: LinkId, header: Header, payload: SendPayload) {
        let payload = match payload {
            SendPayload::None => Vec::new(),
            SendPayload::Control(bytes) => bytes,
            SendPayload::Data(slice) => slice_of(&slice).to_vec(),
        };
        if header.kind.carries_data() {
            self.data_sent_bytes[node] += payload.len() as u64;
        }
        if let Err(failure) = self.observe_frame(node, &header, &payload) {
            return self.fail(failure);
        }
        let parcel = Parcel { header: header.sealed(&payload).encode(), payload: Arc::new(payload) };
        self.check_session(node, link);
        let Some(c) = self.net.connections.get_mut(&link.0) else { return };
        let end = usize::from(c.ends[1] == node);
        if c.open[end] {
            c.directions[end].queue.push_back(parcel);
            self.transmit(link.0, end);
        }
    }

    /// Who was told of a newer connection to a peer sends on none before it (rule 18).
    fn check_session(&mut self, node: usize, link: LinkId) {
        let Some(ends) = self.net.connections.get(&link.0).map(|c| c.ends) else { return };
        let newer = self
            .net
            .connections
            .range(link.0 + 1..)
            .find(|(_, c)| c.ends == ends && c.open[usize::from(c.ends[1] == node)]);
        if let Some((newer, _)) = newer {
            let what = format!("node {node} sends on connection {} and was told of {newer}", link.0);
            self.fail(Failure::new(Oracle::Session, what));
        }
    }

    /// Puts the next parcel on the path, if it passes and none is being put there.
    fn transmit(&mut self, connection: u64, end: usize) {
        let Some(c) = self.net.connections.get_mut(&connection) else { return };
        let path = self.net.paths[&c.ends];
        let direction = &mut c.directions[end];
        let Some(parcel) = direction.queue.front() else { return };
        if direction.transmitting || !path.passes[end] {
            return;
        }
        direction.transmitting = true;
        let after = path.transmit_ns(parcel.bytes());
        self.schedule(after, Event::Transmitted { connection, end });
    }

    pub fn transmitted(&mut self, connection: u64, end: usize) {
        let Some(c) = self.net.connections.get_mut(&connection) else { return };
        let path = self.net.paths[&c.ends];
        let jitter = if path.jitter_ns > 0 { self.rng.below(path.jitter_ns) } else { 0 };
        let direction = &mut c.directions[end];
        direction.transmitting = false;
        let Some(parcel) = direction.queue.pop_front() else { return };
        direction.last_arrival = direction.last_arrival.max(self.now + path.delay_ns + jitter);
        let (after, bytes) = (direction.last_arrival - self.now, parcel.bytes());
        let (node, open) = (c.ends[end], c.open[end]);
        self.schedule(after, Event::Arrive { connection, end, parcel });
        self.transmit(connection, end);
        if open {
            self.input(node, Input::Sent { link: LinkId(connection), bytes });
        }
    }

    /// A parcel that end `end` sent comes to the other one.
    pub fn arrive(&mut self, connection: u64, end: usize, parcel: Parcel) {
        let Some(c) = self.net.connections.get_mut(&connection) else { return };
        let path = self.net.paths[&c.ends];
        if !path.passes[end] || !c.directions[end].held.is_empty() {
            return c.directions[end].held.push_back(parcel);
        }
        let to = c.ends[1 - end];
        if !c.open[1 - end] {
            // Nobody is there: a reset comes back.
            return self.schedule(path.delay_ns, Event::ConnectionDown { connection, end, reason: "reset" });
        }
        let header = match Header::decode(&parcel.header) {
            Ok(header) => header,
            Err(e) => {
                let what = format!("an engine's own frame is refused: {e}");
                return self.fail(Failure::new(Oracle::Protocol, what));
            }
        };
        let payload = if header.kind.carries_data() {
            let meters = self.nodes[to].payload.entry(header.group).or_default();
            let meter = if header.kind == Kind::Pulled { &meters.aside } else { &meters.queued };
            FramePayload::Data(Payload::handed_over(Arc::unwrap_or_clone(parcel.payload), meter))
        } else if parcel.payload.is_empty() {
            FramePayload::None
        } else {
            FramePayload::Control(Arc::unwrap_or_clone(parcel.payload))
        };
        if self.trips_before(to, Instant::Message) {
            return;
        }
        self.input(to, Input::Frame { link: LinkId(connection), header, payload });
        self.trips_after(to, Instant::Message);
    }

    /// Cuts the only path of a story, each way or not.
    pub fn cut(&mut self, passes: [bool; 2]) {
        for pair in self.net.paths.keys().copied().collect::<Vec<_>>() {
            self.set_path(pair, passes);
        }
    }

    /// All cables are back.
    pub fn restore_path(&mut self) {
        self.cut([true; 2]);
    }

    /// Sets what a path carries. What was held arrives, what waited goes out, where it passes again.
    pub fn set_path(&mut self, pair: [usize; 2], passes: [bool; 2]) {
        self.net.paths.get_mut(&pair).expect("a known path").passes = passes;
        for id in self.net.connections.keys().copied().collect::<Vec<_>>() {
            for end in (0..2).filter(|end| passes[*end]) {
                let c = self.net.connections.get_mut(&id).expect("listed");
                if c.ends != pair {
                    continue;
                }
                for parcel in std::mem::take(&mut c.directions[end].held) {
                    self.arrive(id, end, parcel);
                }
                self.transmit(id, end);
            }
        }
    }

    /// One end's machine forgets the connection without a word; the other learns it when it sends.
    pub fn half_open(&mut self, pair: [usize; 2]) {
        let Some(id) = self.net.open_between(pair) else { return };
        let end = self.rng.below(2) as usize;
        self.schedule(1, Event::ConnectionDown { connection: id, end, reason: "forgotten" });
    }

    /// Both ends drop the connection at once.
    pub fn flap(&mut self, pair: [usize; 2]) {
        let Some(id) = self.net.open_between(pair) else { return };
        for end in 0..2 {
            self.schedule(1 + end as u64, Event::ConnectionDown { connection: id, end, reason: "flap" });
        }
    }

    pub fn everyone_is_up(&self) -> bool {
        self.nodes.iter().all(SimNode::up)
    }
}

impl Direction {
    fn idle(&self) -> bool {
        self.queue.is_empty() && self.held.is_empty()
    }
}
