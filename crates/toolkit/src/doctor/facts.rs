//! The sheet: everything that was found on one machine. It travels as JSON, so that the other end's lies beside ours; what
//! an older version did not write down is missing, never an error.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What one end knows of itself and of the way to the other. The comments of fields are the manual's words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct EndFacts {
    /// the machine's name
    pub host: String,
    /// the node; `null`: no configuration names it
    pub node: Option<String>,
    /// version of Linux
    pub kernel: String,
    /// version of this program
    pub farshore: String,
    /// version of the daemon that runs; `null`: none answers
    pub daemon: Option<String>,
    /// RFC 3339, this machine's clock
    pub taken: String,
    /// why there is no configuration, or no daemon that answers
    pub remarks: Vec<String>,
    /// the other end, as seen from here; `null`: none is known
    pub peer: Option<PeerFacts>,
    /// by which packets to the peer leave; without a peer, that of the default route
    pub interface: Option<InterfaceFacts>,
    /// `net.*`, each as the kernel prints it
    pub sysctls: BTreeMap<String, String>,
    /// what the link is asked for by configuration and `link set`, by key
    pub settings: BTreeMap<String, String>,
    /// what the daemon measured of its link to the peer; `null`: no daemon, or no peer
    pub link: Option<LinkFacts>,
    /// seconds of silence after which the daemon gives a connection up; `null`: no configuration tells
    pub link_timeout_s: Option<f64>,
    /// whether the kernel's clock is kept right; `null`: unknown
    pub clock: Option<Clock>,
    /// what is wrong with certificates
    pub certificate_warnings: Vec<String>,
    /// RFC 3339: until when this node's is valid; `null`: none
    pub certificate_until: Option<String>,
    /// flushes of 4 KiB in the state directory; `null`: not tried
    pub disk: Option<DiskFacts>,
    /// why io_uring cannot be used; `null`: it works
    pub io_uring_refused: Option<String>,
    /// where journals, undo stores and disk queues lie; `null`: unknown
    pub space: Option<Space>,
    /// what groups may hold in memory, beside what there is; `null`: unknown
    pub memory: Option<MemoryFacts>,
    /// of the groups that this node's daemon serves; empty without one
    pub queues: Vec<QueueFacts>,
}

/// The other end, as seen from here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PeerFacts {
    /// as it was named
    pub name: String,
    /// `ADDRESS:PORT`; `null`: its name leads nowhere
    pub address: Option<String>,
    /// why it cannot be reached; `null`: it can
    pub silence: Option<String>,
    /// what a TCP handshake agreed upon; `null`: none was made
    pub handshake: Option<TcpHandshake>,
    /// seconds: round trip of a ping; `null`: unknown
    pub ping_rtt_s: Option<f64>,
    /// bytes, found by echoes that may not be fragmented; `null`: unknown
    pub path_mtu: Option<u32>,
    /// larger packets vanish without a message
    pub path_swallows: bool,
    /// why echoes told nothing; `null`: they did
    pub ping_silence: Option<String>,
    /// seconds by which its clock is ahead; `null`: unknown
    pub clock_offset_s: Option<f64>,
    /// seconds by which that can be off; `null`: unknown
    pub clock_error_s: Option<f64>,
}

/// What a TCP handshake with the peer agreed upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TcpHandshake {
    /// seconds: round trip
    pub rtt_s: f64,
    /// bytes of a full segment
    pub segment_bytes: u32,
    /// bytes of the largest packet
    pub path_mtu: u32,
    /// agreed
    pub window_scaling: bool,
    /// agreed
    pub sack: bool,
    /// agreed
    pub timestamps: bool,
}

/// A network interface; `null` where it does not tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct InterfaceFacts {
    /// such as `eth0`
    pub name: String,
    /// veth, bond, bridge, tunnel
    pub is_virtual: bool,
    /// members of a bond, card of a VLAN
    pub lower: Vec<String>,
    /// itself and those below it that are bonds
    pub bonds: Vec<Bond>,
    /// bytes
    pub mtu: u32,
    /// a link is detected
    pub carrier: Option<bool>,
    /// megabits a second
    pub speed_mbit: Option<u32>,
    /// duplex is full
    pub full_duplex: Option<bool>,
    /// on
    pub autonegotiation: Option<bool>,
    /// copper
    pub twisted_pair: bool,
    /// modes of the card
    pub supported: Vec<String>,
    /// modes offered to the other end of the cable
    pub advertised: Vec<String>,
    /// megabits a second: the fastest supported
    pub supported_mbit: u32,
    /// megabits a second: the fastest advertised
    pub advertised_mbit: u32,
    /// packets sent and received since the interface came up
    pub packets: u64,
    /// packets damaged since the interface came up
    pub errors: u64,
    /// packets dropped since the interface came up
    pub dropped: u64,
    /// how often the link was lost
    pub carrier_losses: u64,
    /// the card cuts segments
    pub tso: Option<bool>,
    /// the kernel cuts segments late
    pub gso: Option<bool>,
    /// the kernel joins segments early
    pub gro: Option<bool>,
    /// the card checks checksums
    pub receive_checksum: Option<bool>,
    /// queueing disciplines, the root first
    pub qdiscs: Vec<String>,
    /// bytes, of the route to the peer; `null`: not set
    pub route_mtu: Option<u32>,
    /// milliseconds, of the route to the peer; `null`: not set
    pub route_rto_min_ms: Option<u32>,
}

/// Several cards as one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Bond {
    /// such as `bond0`
    pub name: String,
    /// as the kernel calls it: `balance-rr`, `active-backup`, `802.3ad`
    pub mode: String,
}

/// What the daemon measured of its link to the peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LinkFacts {
    /// as `link` in `status --json`
    pub state: String,
    /// why it is not connected; `null`: it is
    pub reason: Option<String>,
    /// sentences
    pub warnings: Vec<String>,
    /// a sentence: what limits it
    pub verdict: Option<String>,
    /// what limits it, as `status --json` calls it
    pub limit: Option<String>,
    /// what the kernel measures; `null`: it is not up
    pub tcp: Option<Tcp>,
    /// congestion control in use
    pub congestion: Option<String>,
    /// seconds: the longest retransmission pause that its socket was granted; `null`: its kernel has no such option
    pub rto_max_s: Option<f64>,
    /// bytes as granted; `null`: left to the kernel's tuning
    pub send_buffer_bytes: Option<u64>,
    /// bytes as granted; `null`: left to the kernel's tuning
    pub receive_buffer_bytes: Option<u64>,
    /// bytes a second: the best second of the last day
    pub best_bytes_per_s: Option<f64>,
}

/// What the kernel measures of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Tcp {
    /// seconds: round trip, smoothed
    pub rtt_s: f64,
    /// seconds: the shortest lately
    pub rtt_min_s: f64,
    /// seconds: retransmission timeout
    pub rto_s: f64,
    /// bytes of the largest packet
    pub path_mtu: u32,
    /// bytes of a full segment
    pub segment_bytes: u32,
    /// 0 to 1, of the bytes sent
    pub retransmitted_share: f64,
    /// bytes since the connection came up
    pub sent_bytes: u64,
}

/// Whether the kernel's clock is kept right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Clock {
    /// something keeps it right
    pub synchronised: bool,
    /// seconds by which it can be off
    pub maximum_error_s: f64,
}

/// Flushes of 4 KiB in the state directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct DiskFacts {
    /// where
    pub path: String,
    /// its kind
    pub file_system: String,
    /// a file system in memory
    pub in_memory: bool,
    /// seconds: the median
    pub flush_p50_s: f64,
    /// seconds: 99 of 100 no longer
    pub flush_p99_s: f64,
    /// why nothing was measured; `null`: something was
    pub failed: Option<String>,
}

/// Where journals, undo stores and disk queues lie.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Space {
    /// where
    pub path: String,
    /// bytes
    pub free_bytes: u64,
    /// bytes
    pub total_bytes: u64,
    /// bytes by which files there may still grow, by the configuration
    pub promised_bytes: u64,
}

/// What groups may hold in memory, queues and what arrives, beside what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct MemoryFacts {
    /// groups of this node
    pub groups: u64,
    /// bytes: of each group the larger of its queue and its window, all together, and no more than the node's limit
    pub wanted_bytes: u64,
    /// bytes: the node's limit
    pub limit_bytes: u64,
    /// bytes held by the daemon now
    pub held_bytes: u64,
    /// bytes that the kernel could give to a program now
    pub available_bytes: u64,
    /// bytes of the machine
    pub total_bytes: u64,
}

/// A group's queue, since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct QueueFacts {
    /// the group
    pub group: String,
    /// bytes: the most
    pub bytes_hwm: u64,
    /// bytes: what it may hold
    pub limit_bytes: u64,
    /// writes: the most
    pub items_hwm: u64,
    /// writes: what it may hold
    pub limit_items: u64,
    /// milliseconds that writers waited for room, all together
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
