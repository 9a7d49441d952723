//! What the server has seen, as plain data for the control plane.

use std::cell::RefCell;

use super::proto::{NbdCommand, flag};

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
pub(super) struct SharedCounters(RefCell<NbdCounters>);

impl SharedCounters {
    pub fn snapshot(&self) -> NbdCounters {
        *self.0.borrow()
    }

    pub fn note(&self, change: impl FnOnce(&mut NbdCounters)) {
        change(&mut self.0.borrow_mut());
    }

    pub fn received(&self, command: NbdCommand, flags: u16) {
        let counters = &mut self.0.borrow_mut().commands[command as usize];
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
        let counters = &mut self.0.borrow_mut().commands[command as usize];
        counters.done += 1;
        counters.bytes += bytes;
    }

    pub fn failed(&self, command: NbdCommand) {
        self.0.borrow_mut().commands[command as usize].failed += 1;
    }
}
