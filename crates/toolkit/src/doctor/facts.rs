//! The sheet: everything that was found on one machine. It travels as JSON, so that the other end's lies beside ours; what
//! an older version did not write down is missing, never an error.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What one end knows of itself and of the way to the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndFacts {
    pub host: String,
    pub node: Option<String>,
    pub kernel: String,
    /// Of this program, and of the daemon that runs.
    pub farshore: String,
    pub daemon: Option<String>,
    /// RFC 3339, this machine's clock.
    pub taken: String,
    /// Why there is no configuration, or no daemon that answers.
    pub remarks: Vec<String>,
    pub peer: Option<PeerFacts>,
    /// By which packets to the peer leave; without a peer, that of the default route.
    pub interface: Option<InterfaceFacts>,
    /// `net.*`, each as the kernel prints it.
    pub sysctls: BTreeMap<String, String>,
    /// What the link is asked for by configuration and `link set`.
    pub settings: BTreeMap<String, String>,
    pub link: Option<LinkFacts>,
    /// Silence after which the daemon gives a connection up; `None`: no configuration tells.
    pub link_timeout_s: Option<f64>,
    pub clock: Option<Clock>,
    /// What is wrong with certificates, and until when this node's is valid.
    pub certificate_warnings: Vec<String>,
    pub certificate_until: Option<String>,
    pub disk: Option<DiskFacts>,
    /// `None`: it works; else why not.
    pub io_uring_refused: Option<String>,
    pub space: Option<Space>,
    pub memory: Option<MemoryFacts>,
    /// Of the groups that this node's daemon serves; empty without one.
    pub queues: Vec<QueueFacts>,
}

/// The other end, as seen from here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerFacts {
    pub name: String,
    /// `None`: its name leads nowhere.
    pub address: Option<String>,
    /// Why it cannot be reached; `None`: it can.
    pub silence: Option<String>,
    pub handshake: Option<TcpHandshake>,
    pub ping_rtt_s: Option<f64>,
    /// Found by echoes that may not be fragmented.
    pub path_mtu: Option<u32>,
    pub path_swallows: bool,
    /// Why echoes told nothing.
    pub ping_silence: Option<String>,
    /// How far its clock is ahead.
    pub clock_offset_s: Option<f64>,
    /// By how much that can be off.
    pub clock_error_s: Option<f64>,
}

/// What a TCP handshake with the peer agreed upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpHandshake {
    pub rtt_s: f64,
    pub segment_bytes: u32,
    pub path_mtu: u32,
    pub window_scaling: bool,
    pub sack: bool,
    pub timestamps: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceFacts {
    pub name: String,
    pub is_virtual: bool,
    /// Members of a bond, card of a VLAN.
    pub lower: Vec<String>,
    /// Itself and those below it that are bonds.
    pub bonds: Vec<Bond>,
    pub mtu: u32,
    pub carrier: Option<bool>,
    pub speed_mbit: Option<u32>,
    pub full_duplex: Option<bool>,
    pub autonegotiation: Option<bool>,
    pub twisted_pair: bool,
    pub supported: Vec<String>,
    pub advertised: Vec<String>,
    pub supported_mbit: u32,
    pub advertised_mbit: u32,
    pub packets: u64,
    pub errors: u64,
    pub dropped: u64,
    pub carrier_losses: u64,
    pub tso: Option<bool>,
    pub gso: Option<bool>,
    pub gro: Option<bool>,
    pub receive_checksum: Option<bool>,
    /// The root first.
    pub qdiscs: Vec<String>,
    /// Of the route to the peer.
    pub route_mtu: Option<u32>,
    pub route_rto_min_ms: Option<u32>,
}

/// Several cards as one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bond {
    pub name: String,
    /// As the kernel calls it: `balance-rr`, `active-backup`, `802.3ad`.
    pub mode: String,
}

/// What the daemon measured of its link to the peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkFacts {
    pub state: String,
    pub reason: Option<String>,
    pub warnings: Vec<String>,
    pub verdict: Option<String>,
    /// What limits it, as `status --json` calls it.
    pub limit: Option<String>,
    /// `None`: it is not up.
    pub tcp: Option<Tcp>,
    pub congestion: Option<String>,
    /// The longest retransmission pause that its socket was granted; `None`: its kernel has no such option.
    pub rto_max_s: Option<f64>,
    /// As granted; `None`: left to the kernel's tuning.
    pub send_buffer_bytes: Option<u64>,
    pub receive_buffer_bytes: Option<u64>,
    /// The best second of the last day.
    pub best_bytes_per_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tcp {
    pub rtt_s: f64,
    pub rtt_min_s: f64,
    pub rto_s: f64,
    pub path_mtu: u32,
    pub segment_bytes: u32,
    pub retransmitted_share: f64,
    pub sent_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    pub synchronised: bool,
    pub maximum_error_s: f64,
}

/// Flushes of 4 KiB in the state directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskFacts {
    pub path: String,
    pub file_system: String,
    pub in_memory: bool,
    pub flush_p50_s: f64,
    pub flush_p99_s: f64,
    /// Why nothing was measured.
    pub failed: Option<String>,
}

/// Where journals and undo stores lie.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Space {
    pub path: String,
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// What the configuration may still make grow there.
    pub promised_bytes: u64,
}

/// What groups may hold in memory, queues and what arrives, beside what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryFacts {
    pub groups: u64,
    /// Of each group the larger of its queue and its window, all together, and no more than the node's limit.
    pub wanted_bytes: u64,
    /// The node's limit.
    pub limit_bytes: u64,
    /// Held by the daemon now.
    pub held_bytes: u64,
    /// What the kernel could give to a program now, and all there is.
    pub available_bytes: u64,
    pub total_bytes: u64,
}

/// A group's queue, since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueFacts {
    pub group: String,
    pub bytes_hwm: u64,
    pub limit_bytes: u64,
    pub items_hwm: u64,
    pub limit_items: u64,
    /// Writers waited for room, all together.
    pub blocked_ms: u64,
}

impl QueueFacts {
    /// How full it was at most, by bytes or by writes.
    pub fn fullest_share(&self) -> f64 {
        let share = |most: u64, limit: u64| most as f64 / limit.max(1) as f64;
        share(self.bytes_hwm, self.limit_bytes).max(share(self.items_hwm, self.limit_items))
    }
}

impl EndFacts {
    /// Value `at` of a sysctl that is a list of numbers.
    pub fn sysctl(&self, name: &str, at: usize) -> Option<u64> {
        self.sysctls.get(name)?.split_whitespace().nth(at)?.parse().ok()
    }

    pub fn words(&self, name: &str) -> Vec<&str> {
        self.sysctls.get(name).map(|text| text.split_whitespace().collect()).unwrap_or_default()
    }

    /// The largest packet of the path: as found by echoes, else as the kernel has it for the link or the handshake.
    pub fn path_mtu(&self) -> Option<u32> {
        let link = || Some(self.link.as_ref()?.tcp?.path_mtu);
        let handshake = || Some(self.peer.as_ref()?.handshake?.path_mtu);
        let found = self.peer.as_ref().and_then(|peer| peer.path_mtu);
        found.or_else(link).or_else(handshake).filter(|mtu| *mtu > 0)
    }
}

/// Bandwidth and round trip to compare with, and where they are from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathFacts {
    pub bytes_per_s: Option<f64>,
    pub bytes_from: &'static str,
    /// The bandwidth is only what the card could do.
    pub is_upper_bound: bool,
    pub rtt_s: Option<f64>,
    pub rtt_from: &'static str,
}

impl PathFacts {
    /// What was said wins; then what the daemon measured; then what the handshake, the echo and the card tell.
    pub fn of(facts: &EndFacts, bytes_per_s: Option<f64>, rtt_s: Option<f64>) -> PathFacts {
        let link = facts.link.as_ref();
        let tcp = link.and_then(|link| link.tcp.as_ref());
        let peer = facts.peer.as_ref();
        let card = facts.interface.as_ref().filter(|interface| !interface.is_virtual);
        let card = card.and_then(|interface| interface.speed_mbit).map(|mbit| f64::from(mbit) * 125_000.0);
        let rates = [
            (bytes_per_s, "--bw"),
            // A link that carried nothing to speak of tells nothing of what it could.
            (link.and_then(|link| link.best_bytes_per_s).filter(|rate| *rate > 1e6), "the link's best second of a day"),
            (card, "the card's speed"),
        ];
        let trips = [
            (rtt_s, "--rtt"),
            (tcp.map(|tcp| tcp.rtt_min_s).filter(|rtt| *rtt > 0.0), "the link"),
            (peer.and_then(|peer| peer.ping_rtt_s), "a ping"),
            (peer.and_then(|peer| peer.handshake).map(|found| found.rtt_s), "a handshake"),
        ];
        let first = |list: &[(Option<f64>, &'static str)]| {
            list.iter().find(|(value, _)| value.is_some()).copied().unwrap_or((None, ""))
        };
        let ((rate, bytes_from), (rtt, rtt_from)) = (first(&rates), first(&trips));
        PathFacts { bytes_per_s: rate, bytes_from, is_upper_bound: bytes_from == rates[2].1, rtt_s: rtt, rtt_from }
    }
}
