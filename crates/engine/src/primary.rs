//! A write's life on the primary, and those who wait.

pub mod alone;
pub mod aside;
pub mod catch_up;
pub mod covered;
pub mod disk_queue;
pub mod drain_rate;
pub mod held_up;
pub mod ladder;
pub mod meeting;
pub mod orders;
pub mod pace;
pub mod resync;
pub mod stall;
pub mod steps;
pub mod stream;
pub mod waiters;
pub mod waits;
pub mod write;
pub mod younger;

use crate::peer::Peer;
use crate::primary::drain_rate::DrainRate;
use crate::primary::ladder::ModeLadder;
use crate::primary::pace::WritePace;
use crate::primary::waiters::{PeerWindow, WaitingWriters};

/// The primary's half of a group: writes under way, those who wait, and what it has for its secondary.
#[derive(Default)]
pub(crate) struct Primary {
    pub peer: Peer,
    waiters: WaitingWriters,
    window: PeerWindow,
    pace: WritePace,
    drain: DrainRate,
    ladder: ModeLadder,
}

impl Primary {
    /// Who waits: for status.
    pub fn waiters(&self) -> &WaitingWriters {
        &self.waiters
    }
}
