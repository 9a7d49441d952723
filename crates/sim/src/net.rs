//! Connections between two nodes: reliable, ordered byte streams with delay and rate, over a path that can be cut, one
//! way or both. A cut holds what is under way, as a transport that retransmits does; what ends a connection is one of
//! its ends.

use std::collections::VecDeque;

/// One frame on its way.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub header: [u8; engine::wire::HEADER_BYTES],
    pub payload: Vec<u8>,
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

/// A connection; end 0 is node 0's.
#[derive(Debug)]
pub struct Connection {
    pub id: u64,
    pub session: u64,
    pub open: [bool; 2],
    /// Direction `d` carries what node `d` sends.
    pub directions: [Direction; 2],
}

impl Connection {
    pub fn new(id: u64, session: u64) -> Connection {
        Connection { id, session, open: [false; 2], directions: Default::default() }
    }
}

/// The path between the nodes.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Direction `d` carries from node `d`; false: cut.
    pub passes: [bool; 2],
    pub delay_ns: u64,
    pub bytes_per_s: u64,
}

impl Path {
    pub fn transmit_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s)) as u64 + 1
    }
}
