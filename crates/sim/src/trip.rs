//! Crashes at a chosen instant: a run counts its instants, another one of the same world is cut at one of them.

use crate::world::World;

/// What is counted in a node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instant {
    /// A durable write or a flush completes.
    Sync,
    /// A frame arrives.
    Message,
}

/// A crash of `node` at its `at`-th instant of that kind, counted from 1 since the last trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
