//! Crashes at a chosen instant: a run counts its instants, another one of the same world is cut at one of them.

use std::fmt;
use std::str::FromStr;

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
        let is_second = |word: &str, of: [&str; 2]| of.iter().position(|one| *one == word).map(|at| at == 1);
        let kind = is_second(kind, ["sync", "message"]).ok_or_else(bad)?;
        Ok(Trip {
            node: node.parse().map_err(|_| bad())?,
            kind: if kind { Instant::Message } else { Instant::Sync },
            at: at.parse().map_err(|_| bad())?,
            after: is_second(after, ["before", "after"]).ok_or_else(bad)?,
            power: is_second(power, ["kill", "power"]).ok_or_else(bad)?,
            down_ns: DOWN_NS,
        })
    }
}

/// Instants seen per node since the last trip, and the trips to come.
#[derive(Clone, Debug)]
pub struct TripPlan {
    counted: Vec<[u64; 2]>,
    due: Vec<Trip>,
    taken: usize,
}

impl TripPlan {
    pub fn new(nodes: usize) -> TripPlan {
        TripPlan { counted: vec![[0; 2]; nodes], due: Vec::new(), taken: 0 }
    }

    pub fn counted(&self) -> &[[u64; 2]] {
        &self.counted
    }

    /// So many were taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// These are the trips to come.
    pub fn set_due(&mut self, due: Vec<Trip>) {
        self.due = due;
    }

    /// This one is to come, counted from now on.
    pub fn set_next(&mut self, trip: Trip) {
        self.counted[trip.node] = [0; 2];
        self.due = vec![trip];
    }

    /// An instant comes.
    pub fn counts(&mut self, node: usize, kind: Instant) {
        self.counted[node][kind as usize] += 1;
    }

    /// The trip of a node that comes now: before or after the instant that was counted last.
    pub fn take(&mut self, node: usize, kind: Instant, after: bool) -> Option<Trip> {
        let trip = self.due.first().copied()?;
        if (trip.node, trip.kind, trip.after, trip.at) != (node, kind, after, self.counted[node][kind as usize]) {
            return None;
        }
        self.due.remove(0);
        self.taken += 1;
        self.counted.iter_mut().for_each(|c| *c = [0; 2]);
        Some(trip)
    }
}
