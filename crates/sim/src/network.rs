//! Connections between two nodes: reliable, ordered byte streams with delay, jitter and rate, over paths that can be cut,
//! one way or both. A cut holds what is under way, as a transport that retransmits does; what ends a connection is one
//! of its ends.

use std::collections::{BTreeMap, VecDeque};

use engine::wire::HEADER_BYTES;
use engine::{NodeId, SessionId};

use crate::oracle::{Oracle, OracleFailure};
use crate::payload::SharedBytes;
use crate::rng::Rng;

/// What happens on a connection, some time from now; end `end` is where.
pub enum LinkEvent {
    /// What it sent is on the path.
    Transmitted {
        connection: u64,
        end: usize,
    },
    /// What it sent comes to the other one.
    Arrive {
        connection: u64,
        end: usize,
        parcel: Parcel,
    },
    Up {
        connection: u64,
        end: usize,
    },
    Down {
        connection: u64,
        end: usize,
        reason: &'static str,
    },
}

/// An event, and after how long it comes.
pub type Later = (u64, LinkEvent);

/// One frame on its way.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub header: [u8; HEADER_BYTES],
    pub payload: SharedBytes,
}

impl Parcel {
    pub fn bytes(&self) -> u64 {
        (self.header.len() + self.payload.len()) as u64
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct FrameDirection {
    /// Handed over by the sender's engine, not yet on the path.
    queue: VecDeque<Parcel>,
    transmitting: bool,
    /// Arrived at the cut.
    held: VecDeque<Parcel>,
    /// When the last parcel arrives: order is kept even if the delay shrinks.
    last_arrival: u64,
}

impl FrameDirection {
    fn idle(&self) -> bool {
        self.queue.is_empty() && self.held.is_empty()
    }
}

/// A connection; its ends are numbered as in its path.
#[derive(Debug)]
struct Connection {
    session: u64,
    /// The nodes, in order.
    ends: [usize; 2],
    open: [bool; 2],
    /// Direction `d` carries what end `d` sends.
    directions: [FrameDirection; 2],
}

impl Connection {
    fn end_of(&self, node: usize) -> usize {
        usize::from(self.ends[1] == node)
    }
}

/// The path between two nodes.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Direction `d` carries from end `d`; false: cut.
    pub passes: [bool; 2],
    pub delay_ns: u64,
    /// Parcels take so much longer for now; a connection comes and goes as fast as ever.
    pub slower_ns: u64,
    pub jitter_ns: u64,
    pub bytes_per_s: u64,
}

impl Path {
    fn transmit_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s)) as u64 + 1
    }
}

/// A parcel was put on its path.
pub struct Transmission {
    pub arrives: Later,
    /// The one behind it is being put there.
    pub next: Option<Later>,
    /// The node that sent it and still holds the connection, and its bytes.
    pub sent: Option<(usize, u64)>,
}

/// What becomes of a parcel at the end of its path.
pub enum Arrival {
    /// It is held at a cut.
    Held,
    /// Nobody is there: a reset comes back.
    Refused(Later),
    /// It is this node's.
    At(usize, Parcel),
}

/// All paths, by their two nodes in order, and the connections over them.
pub struct SimNetwork {
    paths: BTreeMap<[usize; 2], Path>,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
}

impl SimNetwork {
    pub fn new(pairs: &[[usize; 2]], path: Path) -> SimNetwork {
        let paths = pairs.iter().map(|pair| (*pair, path)).collect();
        SimNetwork { paths, connections: BTreeMap::new(), next_connection: 1 }
    }

    pub fn pairs(&self) -> Vec<[usize; 2]> {
        self.paths.keys().copied().collect()
    }

    pub fn path(&self, pair: [usize; 2]) -> &Path {
        &self.paths[&pair]
    }

    /// Each parcel takes so long from now on, and no less than in the beginning; those that are under way arrive as they would have.
    pub fn set_delay(&mut self, delay_ns: u64) {
        for path in self.paths.values_mut() {
            path.slower_ns = delay_ns.saturating_sub(path.delay_ns);
        }
    }

    pub fn path_mut(&mut self, pair: [usize; 2]) -> &mut Path {
        self.paths.get_mut(&pair).expect("a known path")
    }

    /// Connections that are open at some end, or carry something.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// What the paths carry, and which connections are open at which end: for a failure report.
    pub fn explain(&self) -> String {
        let paths = self.paths.iter().map(|(pair, path)| format!("path {pair:?} passes {:?}", path.passes));
        let connections = self.connections.iter().map(|(id, c)| format!("connection {id} open {:?}", c.open));
        paths.chain(connections).collect::<Vec<_>>().join(", ")
    }

    /// The number of a connection that is open at its first end.
    pub fn open_between(&self, pair: [usize; 2]) -> Option<u64> {
        self.connections.iter().find(|(_, c)| c.ends == pair && c.open[0]).map(|(id, _)| *id)
    }

    pub fn connect(&mut self, pair: [usize; 2], session: u64) -> [Later; 2] {
        let id = self.next_connection;
        self.next_connection += 1;
        let connection = Connection { session, ends: pair, open: [false; 2], directions: Default::default() };
        self.connections.insert(id, connection);
        let delay = self.paths[&pair].delay_ns;
        let up = |end| LinkEvent::Up { connection: id, end };
        [(2 * delay, up(1)), (3 * delay, up(0))]
    }

    /// The node at an end of a connection that comes up there; none comes up at its first end before the other.
    pub fn comes_up(&self, connection: u64, end: usize) -> Option<usize> {
        let c = self.connections.get(&connection)?;
        (end == 1 || c.open[1]).then_some(c.ends[end])
    }

    /// It is open at that end from now on: to whom, and in which session.
    pub fn open(&mut self, connection: u64, end: usize) -> Option<(NodeId, SessionId)> {
        let c = self.connections.get_mut(&connection)?;
        c.open[end] = true;
        Some((NodeId(c.ends[1 - end] as u16), SessionId(c.session)))
    }

    /// It is closed at that end from now on: the node that held it open there.
    pub fn goes_down(&mut self, connection: u64, end: usize) -> Option<usize> {
        let c = self.connections.get_mut(&connection)?;
        std::mem::replace(&mut c.open[end], false).then_some(c.ends[end])
    }

    /// A connection that is closed at both ends and carries nothing is history.
    pub fn forget_closed(&mut self, connection: u64) {
        let is_over = |c: &Connection| c.open == [false; 2] && c.directions.iter().all(FrameDirection::idle);
        if self.connections.get(&connection).is_some_and(is_over) {
            self.connections.remove(&connection);
        }
    }

    /// One end closes: it is told at once, the other end when the path lets it know.
    pub fn close(&mut self, connection: u64, node: usize, rng: &mut Rng) -> Vec<Later> {
        let Some(c) = self.connections.get(&connection) else { return Vec::new() };
        let (end, path) = (c.end_of(node), self.paths[&c.ends]);
        // The host closes a moment later; what arrives meanwhile must be fenced.
        let here = (rng.below(3_000_000), LinkEvent::Down { connection, end, reason: "closed here" });
        let there = (path.delay_ns, LinkEvent::Down { connection, end: 1 - end, reason: "closed by peer" });
        if path.passes[end] { vec![here, there] } else { vec![here] }
    }

    /// A node died. A killed process's kernel closes its sockets; a machine without power says nothing. `stopping`: who stops by
    /// intent closes behind the last word.
    pub fn drop_node(&mut self, node: usize, power: bool, stopping: bool) -> Vec<Later> {
        let mut resets = Vec::new();
        for (id, c) in &mut self.connections {
            let Some(end) = c.ends.iter().position(|n| *n == node) else { continue };
            if std::mem::replace(&mut c.open[end], false) && !power {
                let path = &self.paths[&c.ends];
                let unsent = c.directions[end].queue.iter().filter(|_| stopping);
                let last_word_ns: u64 = unsent.map(|parcel| path.transmit_ns(parcel.bytes()) + 1).sum();
                let down = LinkEvent::Down { connection: *id, end: 1 - end, reason: "reset" };
                resets.push((path.delay_ns + last_word_ns, down));
            }
        }
        resets
    }

    /// One end's machine forgets the connection without a word; the other learns it when it sends.
    pub fn half_open(&self, pair: [usize; 2], rng: &mut Rng) -> Option<Later> {
        let connection = self.open_between(pair)?;
        let end = rng.below(2) as usize;
        Some((1, LinkEvent::Down { connection, end, reason: "forgotten" }))
    }

    /// Both ends drop the connection at once.
    pub fn flap(&self, pair: [usize; 2]) -> impl Iterator<Item = Later> + use<> {
        let down = |connection, end| (1 + end as u64, LinkEvent::Down { connection, end, reason: "flap" });
        self.open_between(pair).into_iter().flat_map(move |id| [down(id, 0), down(id, 1)])
    }

    /// Who was told of a newer connection to a peer sends on none before it (rule 18).
    pub fn check_session(&self, connection: u64, node: usize) -> Result<(), OracleFailure> {
        let Some(ends) = self.connections.get(&connection).map(|c| c.ends) else { return Ok(()) };
        let mut newer = self.connections.range(connection + 1..);
        match newer.find(|(_, c)| c.ends == ends && c.open[c.end_of(node)]) {
            None => Ok(()),
            Some((newer, _)) => {
                let what = format!("node {node} sends on connection {connection} and was told of {newer}");
                Err(OracleFailure::new(Oracle::Session, what))
            }
        }
    }

    pub fn send(&mut self, connection: u64, node: usize, parcel: Parcel) -> Option<Later> {
        let c = self.connections.get_mut(&connection)?;
        let end = c.end_of(node);
        if !c.open[end] {
            return None;
        }
        c.directions[end].queue.push_back(parcel);
        self.transmit(connection, end)
    }

    /// Puts the next parcel on the path, if it passes and none is being put there.
    pub fn transmit(&mut self, connection: u64, end: usize) -> Option<Later> {
        let c = self.connections.get_mut(&connection)?;
        let path = &self.paths[&c.ends];
        let direction = &mut c.directions[end];
        let parcel = direction.queue.front()?;
        if direction.transmitting || !path.passes[end] {
            return None;
        }
        direction.transmitting = true;
        Some((path.transmit_ns(parcel.bytes()), LinkEvent::Transmitted { connection, end }))
    }

    pub fn transmitted(&mut self, connection: u64, end: usize, now: u64, rng: &mut Rng) -> Option<Transmission> {
        let c = self.connections.get_mut(&connection)?;
        let path = &self.paths[&c.ends];
        let jitter = if path.jitter_ns > 0 { rng.below(path.jitter_ns) } else { 0 };
        let direction = &mut c.directions[end];
        direction.transmitting = false;
        let parcel = direction.queue.pop_front()?;
        direction.last_arrival = direction.last_arrival.max(now + path.delay_ns + path.slower_ns + jitter);
        let sent = c.open[end].then_some((c.ends[end], parcel.bytes()));
        let arrives = (direction.last_arrival - now, LinkEvent::Arrive { connection, end, parcel });
        Some(Transmission { arrives, next: self.transmit(connection, end), sent })
    }

    /// A parcel that end `end` sent comes to the other one.
    pub fn arrive(&mut self, connection: u64, end: usize, parcel: Parcel) -> Arrival {
        let Some(c) = self.connections.get_mut(&connection) else { return Arrival::Held };
        let path = &self.paths[&c.ends];
        if !path.passes[end] || !c.directions[end].held.is_empty() {
            c.directions[end].held.push_back(parcel);
            return Arrival::Held;
        }
        if !c.open[1 - end] {
            return Arrival::Refused((path.delay_ns, LinkEvent::Down { connection, end, reason: "reset" }));
        }
        Arrival::At(c.ends[1 - end], parcel)
    }

    /// Sets what a path carries: the ways over it that pass now, by connection and end.
    pub fn set_path(&mut self, pair: [usize; 2], passes: [bool; 2]) -> Vec<(u64, usize)> {
        self.path_mut(pair).passes = passes;
        let ids = self.connections.iter().filter(|(_, c)| c.ends == pair).map(|(id, _)| *id);
        ids.flat_map(|id| (0..2).filter(|end| passes[*end]).map(move |end| (id, end))).collect()
    }

    /// What a cut held arrives now.
    pub fn take_held(&mut self, connection: u64, end: usize) -> VecDeque<Parcel> {
        let c = self.connections.get_mut(&connection);
        c.map(|c| std::mem::take(&mut c.directions[end].held)).unwrap_or_default()
    }
}
