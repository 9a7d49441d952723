//! The requests of one client that owe an answer, and the memory that they claim.

use std::time::Instant;

use super::proto::{self, NbdCommand, NbdRequest};
use crate::buffers::cost_of;

/// Extents in one block-status answer. Clients ask again for the rest; 4 096 describe 16 MiB of the worst scatter.
pub(super) const EXTENTS_MAX: usize = 4096;
/// What a block status may cost in answer bytes, claimed when it is asked.
const EXTENTS_BYTES: usize = EXTENTS_MAX * 8;

/// Bytes of memory a request claims until its answer has left.
pub(super) fn cost(command: NbdCommand, payload_bytes: usize) -> usize {
    match command {
        NbdCommand::BlockStatus => EXTENTS_BYTES,
        _ if payload_bytes == 0 => 0,
        _ => cost_of(payload_bytes),
    }
}

/// A request that owes an answer.
#[derive(Clone, Copy)]
pub(super) struct PendingRequest {
    pub handle: u64,
    pub command: NbdCommand,
    pub offset: u64,
    pub length: u32,
    pub one_extent: bool,
    /// When its head was read.
    pub since: Instant,
    /// Bytes of memory.
    cost: usize,
}

impl PendingRequest {
    pub fn new(request: &NbdRequest, payload_bytes: usize, since: Instant) -> PendingRequest {
        PendingRequest {
            handle: request.handle,
            command: request.command,
            offset: request.offset,
            length: request.length,
            one_extent: request.flags & proto::flag::REQ_ONE != 0,
            since,
            cost: cost(request.command, payload_bytes),
        }
    }
}

/// Requests in flight, found by cookie: a table whose slots are reused, each with a generation so that an answer
/// given twice is noticed.
#[derive(Default)]
pub(super) struct PendingRequests {
    slots: Vec<(u32, Option<PendingRequest>)>,
    free: Vec<u32>,
    count: usize,
    bytes: usize,
}

impl PendingRequests {
    pub fn count(&self) -> usize {
        self.count
    }

    /// What they claim.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The cookie finds it again.
    pub fn insert(&mut self, due: PendingRequest) -> u64 {
        self.count += 1;
        self.bytes += due.cost;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            u32::try_from(self.slots.len() - 1).expect("the allowance bounds the table")
        });
        let (generation, content) = &mut self.slots[slot as usize];
        *generation = generation.wrapping_add(1);
        *content = Some(due);
        u64::from(*generation) << 32 | u64::from(slot)
    }

    pub fn remove(&mut self, cookie: u64) -> PendingRequest {
        let slot = cookie as u32;
        let (generation, content) = &mut self.slots[slot as usize];
        assert_eq!(u64::from(*generation), cookie >> 32, "the data path answered a request of an earlier turn");
        let due = content.take().expect("the data path answered a request twice");
        self.free.push(slot);
        self.count -= 1;
        self.bytes -= due.cost;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_read() -> PendingRequest {
        PendingRequest {
            handle: 5,
            command: NbdCommand::Read,
            offset: 0,
            length: 512,
            one_extent: false,
            since: Instant::now(),
            cost: 512,
        }
    }

    #[test]
    fn slots_are_reused_and_cookies_are_not() {
        let read = a_read();
        let mut pending = PendingRequests::default();
        let first = pending.insert(read);
        assert_eq!(pending.remove(first).handle, 5);
        let second = pending.insert(read);
        assert_ne!(first, second);
        assert_eq!((pending.slots.len(), pending.count, pending.bytes), (1, 1, 512));
    }

    #[test]
    #[should_panic(expected = "an earlier turn")]
    fn an_answer_given_late_is_a_bug() {
        let read = a_read();
        let mut pending = PendingRequests::default();
        let first = pending.insert(read);
        pending.remove(first);
        pending.insert(read);
        pending.remove(first);
    }
}
