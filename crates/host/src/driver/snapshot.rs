//! What people may see of a data thread, as plain data.

use std::net::SocketAddr;
use std::time::Duration;

use engine::status::{GroupStatus, SharedStatus};
use engine::{Mono, NodeId};

use crate::disk::EngineKind;
use crate::frontend::ClientInfo;
use crate::link::meter::LinkReading;
use crate::link::{LinkTraffic, SocketReport};
use crate::nbd;

/// Shortest stretch a sync's rate is measured over.
const RATE_WINDOW: Duration = Duration::from_secs(2);

/// Everything the data thread knows that people may want to see, at one moment.
#[derive(Clone, Debug)]
pub struct DriverSnapshot {
    /// Since the data thread started.
    pub uptime: Duration,
    /// In the order of their ids.
    pub groups: Vec<GroupSnapshot>,
    pub links: Vec<LinkSnapshot>,
    pub nbd: nbd::NbdCounters,
    /// Who is attached, sorted by export.
    pub clients: Vec<ClientInfo>,
    /// `Uring` or `Pool`.
    pub file_engine: EngineKind,
    /// What the groups share: memory, turns.
    pub shared: SharedStatus,
    /// Memory that front ends hold, and may hold.
    pub front_bytes: (usize, usize),
}

#[derive(Clone, Debug)]
pub struct GroupSnapshot {
    pub status: GroupStatus,
    /// In the order of their ids.
    pub volumes: Vec<VolumeSnapshot>,
    pub sync: Option<SyncPace>,
    /// It was told to leave, and has not come to rest.
    pub is_leaving: bool,
    /// How long the link has been as it is.
    pub link_for: Duration,
    /// Why no connection comes about, when that is known.
    pub link_problem: Option<String>,
}

#[derive(Clone, Debug)]
pub struct VolumeSnapshot {
    pub clients: u64,
    /// Used past the page cache.
    pub direct: bool,
    /// That its device has fallen silent, or the first failure since the start.
    pub error: Option<String>,
}

/// The link to one peer.
#[derive(Clone, Debug)]
pub struct LinkSnapshot {
    pub peer: NodeId,
    /// Of the connection that is up.
    pub connection: Option<PeerConnection>,
    pub reading: Option<LinkReading>,
    /// How often it came up since the start.
    pub connections: u64,
    /// By the connection that is up.
    pub carried: Option<LinkTraffic>,
}

/// A connection that is up, and what its socket got.
#[derive(Clone, Debug)]
pub struct PeerConnection {
    pub address: SocketAddr,
    /// This node dialed.
    pub dialed: bool,
    pub socket: SocketReport,
}

/// What the engine's own figures do not say about a sync.
#[derive(Clone, Copy, Debug)]
pub struct SyncPace {
    pub full: bool,
    /// Lately.
    pub bytes_per_s: f64,
}

/// Measures the rate of a sync under way.
pub(super) struct SyncMeter {
    full: bool,
    /// Where the rate is measured from, and where it will be next: a moment, and the bytes done by then.
    since: (Mono, u64),
    next: (Mono, u64),
}

impl SyncMeter {
    pub fn new(full: bool, now: Mono) -> SyncMeter {
        SyncMeter { full, since: (now, 0), next: (now, 0) }
    }

    /// The rate since a moment that moves along, at least one window ago where the sync is that old.
    pub fn pace(&mut self, done_bytes: u64, now: Mono) -> SyncPace {
        if now.since(self.next.0) >= RATE_WINDOW {
            (self.since, self.next) = (self.next, (now, done_bytes));
        }
        let seconds = now.since(self.since.0).as_secs_f64();
        let bytes_per_s = if seconds > 0.0 { done_bytes.saturating_sub(self.since.1) as f64 / seconds } else { 0.0 };
        SyncPace { full: self.full, bytes_per_s }
    }
}
