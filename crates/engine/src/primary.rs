//! A write's life on the primary, and those who wait.

pub mod covered;
pub mod cuts;
pub mod held_up;
pub mod meeting;
pub mod orders;
pub mod resync;
pub mod stall;
pub mod stream;
pub mod waits;
pub mod write;

use alloc::collections::VecDeque;

use crate::ids::Seq;
use crate::peer::Peer;
use crate::primary::held_up::HeldUp;
use crate::shared::time::Mono;

/// The primary's half of a group: writes under way, and those who wait.
pub(crate) struct Primary {
    pub peer: Peer,
    /// Writes waiting for the peer, in write order.
    pub waiting_ack: VecDeque<(Seq, u32)>,
    /// Writes waiting for room in the queue, in order of arrival.
    pub blocked: VecDeque<u32>,
    /// Writes that were asked for in this run.
    came: u64,
    pub hold_until: Option<Mono>,
    held_up: HeldUp,
}

impl Primary {
    pub fn new() -> Primary {
        Primary {
            peer: Peer::new(),
            waiting_ack: VecDeque::new(),
            blocked: VecDeque::new(),
            came: 0,
            hold_until: None,
            held_up: HeldUp::default(),
        }
    }
}
