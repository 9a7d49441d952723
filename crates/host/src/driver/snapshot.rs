//! What people may see of a data thread, as plain data.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use engine::status::{GroupStatus, QueueStatus, SharedStatus};
use engine::{Mono, NodeId};

use super::forward::ForwardStatus;
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
    /// By the name of each export that ever had a client, `GROUP/VOLUME`.
    pub exports: BTreeMap<String, nbd::ExportCounters>,
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
    pub figures: GroupFigures,
    /// Clients of the group are served by its peer; `None`: they are not.
    pub forward: Option<ForwardStatus>,
    /// Its exports are for the peer alone.
    pub is_lent: bool,
    /// It was told to leave, and has not come to rest.
    pub is_leaving: bool,
    /// How long the link has been as it is.
    pub link_for: Duration,
    /// Why no connection comes about, when that is known.
    pub link_problem: Option<String>,
}

/// What the engine does not know of a group.
#[derive(Clone, Debug)]
pub struct GroupFigures {
    /// In the order of their ids.
    pub volumes: Vec<VolumeSnapshot>,
    pub sync: Option<SyncPace>,
    pub queue: QueuePace,
    /// Size of the disk queue; 0: there is none.
    pub disk_queue_bytes: u64,
    pub stored: StoredBytes,
}

/// Bytes written to a group's own files since the daemon took it up.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredBytes {
    /// Bitmap and activity log.
    pub bitmap: u64,
    pub journal: u64,
    pub undo: u64,
    /// The disk queue, in whole blocks.
    pub queue: u64,
}

#[derive(Clone, Debug)]
pub struct VolumeSnapshot {
    pub clients: u64,
    /// Used past the page cache.
    pub direct: bool,
    /// That its device has fallen silent, or the first failure since the start.
    pub error: Option<String>,
    /// Its device has refused something since the group was taken up.
    pub has_failed: bool,
    /// Its device, and not only the disk under files of its group, answers nothing.
    pub is_silent: bool,
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

/// How fast a queue fills and empties, lately.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueuePace {
    pub entering_bytes_per_s: f64,
    pub leaving_bytes_per_s: f64,
    /// Writes by which it grows; 0: it does not.
    pub gains_items_per_s: f64,
    /// The same of the file of its log.
    pub log_gains_bytes_per_s: f64,
}

/// Sums at a moment that moves along: rates are measured from there.
#[derive(Clone, Copy, Debug)]
struct RateBase<const N: usize> {
    since: (Mono, [u64; N]),
    next: (Mono, [u64; N]),
}

impl<const N: usize> RateBase<N> {
    /// Sums that are zero now.
    fn new(now: Mono) -> RateBase<N> {
        RateBase { since: (now, [0; N]), next: (now, [0; N]) }
    }

    /// Rates since a moment at least one window ago, where the first look is that old.
    fn rates(&mut self, sums: [u64; N], now: Mono) -> [f64; N] {
        if now.since(self.next.0) >= RATE_WINDOW {
            (self.since, self.next) = (self.next, (now, sums));
        }
        let seconds = now.since(self.since.0).as_secs_f64();
        let mut rates = [0.0; N];
        if seconds > 0.0 {
            for ((rate, sum), before) in rates.iter_mut().zip(sums).zip(self.since.1) {
                *rate = sum.saturating_sub(before) as f64 / seconds;
            }
        }
        rates
    }
}

/// Measures the rate of a sync under way.
pub(super) struct SyncMeter {
    full: bool,
    done: RateBase<1>,
}

impl SyncMeter {
    pub fn new(full: bool, now: Mono) -> SyncMeter {
        SyncMeter { full, done: RateBase::new(now) }
    }

    pub fn pace(&mut self, done_bytes: u64, now: Mono) -> SyncPace {
        let [bytes_per_s] = self.done.rates([done_bytes], now);
        SyncPace { full: self.full, bytes_per_s }
    }
}

/// Measures the rates of a queue.
#[derive(Default)]
pub(super) struct QueueMeter {
    /// `None`: nobody has looked yet.
    base: Option<RateBase<4>>,
}

impl QueueMeter {
    pub fn pace(&mut self, queue: &QueueStatus, now: Mono) -> QueuePace {
        let log_bytes = queue.log.filled.map_or(0, |(bytes, _)| bytes);
        let sums = [queue.entered_bytes, queue.left_bytes, queue.items, log_bytes];
        let base = self.base.get_or_insert(RateBase { since: (now, sums), next: (now, sums) });
        let [entering_bytes_per_s, leaving_bytes_per_s, gains_items_per_s, log_gains_bytes_per_s] =
            base.rates(sums, now);
        QueuePace { entering_bytes_per_s, leaving_bytes_per_s, gains_items_per_s, log_gains_bytes_per_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_the_rates_of_its_last_seconds() {
        let mut meter = QueueMeter::default();
        let mut at = |second: u64, entered_bytes, left_bytes| {
            let queue = QueueStatus { entered_bytes, left_bytes, ..QueueStatus::default() };
            let pace = meter.pace(&queue, Mono(second * 1_000_000_000));
            (pace.entering_bytes_per_s, pace.leaving_bytes_per_s)
        };
        assert_eq!(at(10, 5_000, 4_000), (0.0, 0.0), "what was before the first look is no rate");
        assert_eq!(at(12, 7_000, 5_000), (1_000.0, 500.0));
        assert_eq!(at(13, 8_000, 5_000), (1_000.0, 1_000.0 / 3.0), "over at least one window");
        assert_eq!(at(14, 8_000, 9_000), (500.0, 2_000.0));
        assert_eq!(at(18, 8_000, 9_000), (0.0, 0.0));
        let holds = |items| QueueStatus { items, ..QueueStatus::default() };
        let mut meter = QueueMeter::default();
        let gains = [(10, 100), (12, 300), (14, 200)]
            .map(|(second, items)| meter.pace(&holds(items), Mono(second * 1_000_000_000)));
        assert_eq!(gains.map(|pace| pace.gains_items_per_s), [0.0, 100.0, 0.0], "what it loses is no growth");
    }
}
