//! What the server has seen, as plain data for the control plane.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::proto::{NbdCommand, flag};

/// Upper bounds of the classes that requests are counted in by the time they took, microseconds: from a write into a cache to a peer
/// that answers just before the policy acts. What took longer is in a class of its own behind them.
pub const LATENCY_BOUNDS_US: [u64; 15] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// A snapshot of everything counted since the server was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NbdCounters {
    /// Connections taken from a listener.
    pub connections_accepted: u64,
    /// Turned away because there was no room, at the listener or at an export.
    pub connections_refused: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Clients that reached an export.
    pub sessions_started: u64,
    /// Sessions that ended with a disconnect request, all answers sent.
    pub sessions_ended_cleanly: u64,
    /// Handshakes that ended without an export, for whatever reason (an honest `LIST` and `ABORT` too).
    pub handshakes_without_session: u64,
    /// Clients cut off because their bytes were not NBD.
    pub violations: u64,
    /// Clients cut off because what they owed did not come, or their answers were not taken.
    pub stalled: u64,
    commands: [CommandCounters; NbdCommand::ALL.len()],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandCounters {
    pub received: u64,
    pub done: u64,
    /// Answered with an error, refused ones included. Received but neither: in flight, or its client left.
    pub failed: u64,
    /// Bytes of the ranges that were done.
    pub bytes: u64,
    pub with_fua: u64,
    pub with_no_hole: u64,
    pub with_fast_zero: u64,
    pub with_df: u64,
    pub with_one_extent: u64,
    /// Of those that were done by the data path.
    pub latency: LatencyCounters,
}

/// What clients asked of one export since the server was made, all clients one after the other and beside each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounters {
    pub reads: RequestSums,
    /// Writes of data, of zeroes, and trims; bytes are those of data.
    pub writes: RequestSums,
    pub flushes: RequestSums,
}

/// Requests that were done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSums {
    pub done: u64,
    pub bytes: u64,
    /// Microseconds, from the head of each to its answer, added up.
    pub took_us: u64,
}

impl ExportCounters {
    fn note(&mut self, command: NbdCommand, bytes: u64, took: Duration) {
        let (sums, bytes) = match command {
            NbdCommand::Read => (&mut self.reads, bytes),
            NbdCommand::Write => (&mut self.writes, bytes),
            NbdCommand::WriteZeroes | NbdCommand::Trim => (&mut self.writes, 0),
            NbdCommand::Flush => (&mut self.flushes, 0),
            NbdCommand::Disconnect | NbdCommand::Cache | NbdCommand::BlockStatus | NbdCommand::Unknown => return,
        };
        sums.done += 1;
        sums.bytes += bytes;
        sums.took_us = sums.took_us.saturating_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }
}

/// One export's counters while they count, shared by its clients.
#[derive(Clone, Default)]
pub(super) struct ExportTally(Rc<Cell<ExportCounters>>);

impl ExportTally {
    pub fn done(&self, command: NbdCommand, bytes: u64, took: Duration) {
        let mut counters = self.0.get();
        counters.note(command, bytes, took);
        self.0.set(counters);
    }
}

/// How long requests took, from the head of each to its answer, by classes of [`LATENCY_BOUNDS_US`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyCounters {
    pub classes: [u64; LATENCY_BOUNDS_US.len() + 1],
    pub sum_us: u64,
}

impl LatencyCounters {
    fn note(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let class = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        self.classes[class] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }
}

impl NbdCounters {
    pub fn command(&self, command: NbdCommand) -> &CommandCounters {
        &self.commands[command as usize]
    }

    /// Every command of the closed list with its counters.
    pub fn commands(&self) -> impl Iterator<Item = (NbdCommand, &CommandCounters)> {
        NbdCommand::ALL.into_iter().zip(&self.commands)
    }
}

/// The counters while they count: one per server, on its thread.
#[derive(Default)]
pub(super) struct SharedCounters {
    all: RefCell<NbdCounters>,
    /// By the name of the export, from its first client on.
    exports: RefCell<BTreeMap<String, ExportTally>>,
}

impl SharedCounters {
    pub fn snapshot(&self) -> NbdCounters {
        *self.all.borrow()
    }

    /// Those of one export.
    pub fn of_export(&self, export: &str) -> ExportTally {
        let mut exports = self.exports.borrow_mut();
        if let Some(tally) = exports.get(export) {
            return tally.clone();
        }
        exports.entry(export.to_owned()).or_default().clone()
    }

    pub fn exports(&self) -> BTreeMap<String, ExportCounters> {
        self.exports.borrow().iter().map(|(name, tally)| (name.clone(), tally.0.get())).collect()
    }

    pub fn note(&self, change: impl FnOnce(&mut NbdCounters)) {
        change(&mut self.all.borrow_mut());
    }

    pub fn received(&self, command: NbdCommand, flags: u16) {
        let counters = &mut self.all.borrow_mut().commands[command as usize];
        counters.received += 1;
        if flags != 0 {
            counters.with_fua += u64::from(flags & flag::FUA != 0);
            counters.with_no_hole += u64::from(flags & flag::NO_HOLE != 0);
            counters.with_fast_zero += u64::from(flags & flag::FAST_ZERO != 0);
            counters.with_df += u64::from(flags & flag::DF != 0);
            counters.with_one_extent += u64::from(flags & flag::REQ_ONE != 0);
        }
    }

    pub fn done(&self, command: NbdCommand, bytes: u64) {
        let counters = &mut self.all.borrow_mut().commands[command as usize];
        counters.done += 1;
        counters.bytes += bytes;
    }

    /// The same of one that went through the data path.
    pub fn done_in(&self, command: NbdCommand, bytes: u64, took: Duration) {
        self.done(command, bytes);
        self.all.borrow_mut().commands[command as usize].latency.note(took);
    }

    pub fn failed(&self, command: NbdCommand) {
        self.all.borrow_mut().commands[command as usize].failed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_counted_apart_and_zeroes_carry_no_bytes() {
        let shared = SharedCounters::default();
        let took = Duration::from_micros(250);
        shared.of_export("g/data").done(NbdCommand::Write, 4096, took);
        shared.of_export("g/data").done(NbdCommand::WriteZeroes, 1 << 20, took);
        shared.of_export("g/log").done(NbdCommand::Read, 512, took);
        shared.of_export("g/log").done(NbdCommand::BlockStatus, 512, took);
        let exports = shared.exports();
        assert_eq!(exports["g/data"].writes, RequestSums { done: 2, bytes: 4096, took_us: 500 });
        assert_eq!(exports["g/log"].reads, RequestSums { done: 1, bytes: 512, took_us: 250 });
        assert_eq!(exports["g/log"].writes, RequestSums::default());
    }

    #[test]
    fn a_request_is_in_the_first_class_that_has_room_for_it() {
        let mut latency = LatencyCounters::default();
        for us in [0, 100, 101, 10_000_000, 10_000_001] {
            latency.note(Duration::from_micros(us));
        }
        assert_eq!((latency.classes[0], latency.classes[1], latency.classes[14], latency.classes[15]), (2, 1, 1, 1));
        assert_eq!(latency.sum_us, 20_000_202);
    }
}
