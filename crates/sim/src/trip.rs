//! Crashes at a chosen instant: a run counts its instants, another one of the same world is cut at one of them.

use std::fmt;
use std::str::FromStr;

use crate::world::World;

/// A node is down for so long after a trip.
pub const DOWN_NS: u64 = 300_000_000;

/// What is counted in a node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instant {
    /// A durable write or a flush completes.
    Sync,
    /// A frame arrives.
    Message,
}

/// A crash of `node` at its `at`-th instant of that kind, counted from 1 since the last trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trip {
    pub node: usize,
    pub kind: Instant,
    pub at: u64,
    /// Right after what happened, all that follows from it at once included; otherwise right before.
    pub after: bool,
    /// The machine with the process.
    pub power: bool,
    pub down_ns: u64,
}

/// `NODE.sync|message.NUMBER.before|after.kill|power`
impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind == Instant::Sync { "sync" } else { "message" };
        let after = if self.after { "after" } else { "before" };
        let power = if self.power { "power" } else { "kill" };
        write!(f, "{}.{kind}.{}.{after}.{power}", self.node, self.at)
    }
}

impl FromStr for Trip {
    type Err = String;

    fn from_str(words: &str) -> Result<Trip, String> {
        let bad =
            || format!("`{words}` is no trip; it looks like `0.sync.12.before.kill` or `1.message.3.after.power`");
        let parts: Vec<&str> = words.split('.').collect();
        let [node, kind, at, after, power] = parts[..] else { return Err(bad()) };
        Ok(Trip {
            node: node.parse().map_err(|_| bad())?,
            kind: [("sync", Instant::Sync), ("message", Instant::Message)]
                .iter()
                .find(|k| k.0 == kind)
                .ok_or_else(bad)?
                .1,
            at: at.parse().map_err(|_| bad())?,
            after: match after {
                "after" => true,
                "before" => false,
                _ => return Err(bad()),
            },
            power: match power {
                "power" => true,
                "kill" => false,
                _ => return Err(bad()),
            },
            down_ns: DOWN_NS,
        })
    }
}

/// Instants seen per node since the last trip, and the trips to come.
#[derive(Clone, Debug, Default)]
pub struct Trips {
    pub counted: Vec<[u64; 2]>,
    pub due: Vec<Trip>,
    pub taken: usize,
}

impl World {
    /// An instant comes: true if the node crashes before it.
    pub fn trips_before(&mut self, node: usize, kind: Instant) -> bool {
        self.trips.counted[node][kind as usize] += 1;
        self.trips(node, kind, false)
    }

    /// The instant is over.
    pub fn trips_after(&mut self, node: usize, kind: Instant) {
        self.trips(node, kind, true);
    }

    fn trips(&mut self, node: usize, kind: Instant, after: bool) -> bool {
        let Some(trip) = self.trips.due.first().copied() else { return false };
        let is_now = (trip.node, trip.kind, trip.after) == (node, kind, after)
            && trip.at == self.trips.counted[node][kind as usize];
        if !is_now || !self.nodes[node].up() {
            return false;
        }
        self.trips.due.remove(0);
        self.trips.taken += 1;
        self.trips.counted.iter_mut().for_each(|c| *c = [0; 2]);
        self.crash(node, trip.power, trip.down_ns);
        true
    }
}
