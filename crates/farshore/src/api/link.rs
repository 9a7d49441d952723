//! The link to a peer, now and over time. The comments of fields are the manual's words: docs/book/status-json.md is made from them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::words::{LinkLimit, LinkState, Origin};

/// The schema of [`LinkHistory`] and of what `link history --json` prints.
pub const LINK_HISTORY_SCHEMA: &str = "farshore-link-history/1";
/// The schema of [`LinkList`].
pub const LINKS_SCHEMA: &str = "farshore-links/1";

/// What `link show --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinkList {
    /// name and version of this schema
    pub schema: &'static str,
    /// this node
    pub node: String,
    /// one per peer, or the one that was asked for
    pub links: Vec<LinkReport>,
}

/// The link to one peer, which all groups share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinkReport {
    /// the peer
    pub node: String,
    /// where the connection is
    pub link: LinkState,
    /// seconds: for how long it has been so
    pub link_since_s: f64,
    /// why it is not connected, or congested; else `null`
    #[serde(default)]
    pub link_reason: Option<String>,
    /// of the peer's end; `null` when not connected
    #[serde(default)]
    pub address: Option<String>,
    /// whether this node dialed; `null` when not connected
    #[serde(default)]
    pub dialed: Option<bool>,
    /// how often the link came up since the daemon's start
    pub connections: u64,
    /// by key
    pub settings: BTreeMap<String, SettingStatus>,
    /// what the kernel granted; `null` when not connected
    #[serde(default)]
    pub socket: Option<SocketStatus>,
    /// what the kernel measures, a second old at most; `null` when not connected, and in the connection's first second
    #[serde(default)]
    pub tcp: Option<TcpStatus>,
    /// bytes of frames since the connection came up, before (plain) and after (wire) compression; `null` when not connected
    #[serde(default)]
    pub compression: Option<CompressionStatus>,
    /// bytes per second that this node sends at most now, by `rate` and `schedule`; `null`: no limit
    #[serde(default)]
    pub allowed_bytes_per_s: Option<u64>,
    /// whether that holds sending back now; `null` when not connected
    #[serde(default)]
    pub rate_held: Option<bool>,
    /// what limits the link; `null` as `tcp`
    #[serde(default)]
    pub limit: Option<LinkLimit>,
    /// the same as a sentence, with what to do; `null` as `tcp`
    #[serde(default)]
    pub verdict: Option<String>,
    /// options that the kernel refused, a path that swallows large packets, retransmissions that rose after a change
    #[serde(default, deserialize_with = "super::sentences::sentences")]
    pub warnings: Vec<String>,
}

/// Bytes of frames since the connection came up, before (`plain`) and after (`wire`) compression.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CompressionStatus {
    /// of what this node sends now: `lz4`, `zstd:LEVEL`, `none`
    pub method: String,
    /// why `none` though something was set; else `null`
    #[serde(default)]
    pub reason: Option<String>,
    /// bytes of frames sent
    pub sent_plain_bytes: u64,
    /// bytes on the line, without TLS's own
    pub sent_wire_bytes: u64,
    /// plain by wire
    pub sent_ratio: f64,
    /// bytes of frames sent that were copied on their way to the kernel, compressed or encrypted; all others are sent from where the
    /// client's request left them, also where writes are joined
    #[serde(default)]
    pub sent_copied_bytes: u64,
    /// bytes of frames received
    pub received_plain_bytes: u64,
    /// bytes on the line, without TLS's own
    pub received_wire_bytes: u64,
    /// plain by wire
    pub received_ratio: f64,
}

/// What the kernel granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SocketStatus {
    /// what is sent and not yet confirmed has to fit
    pub send_buffer: BufferStatus,
    /// what is received and not yet read has to fit
    pub receive_buffer: BufferStatus,
    /// congestion control as requested
    pub congestion_requested: String,
    /// congestion control in use
    pub congestion: String,
    /// one for each socket option that was asked for
    pub options: Vec<OptionStatus>,
}

/// A buffer by the kernel's own count: twice what was asked, about 0.62 of it usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BufferStatus {
    /// bytes; `null`: left to the kernel
    pub requested_bytes: Option<u64>,
    /// bytes, of which the kernel counts twice what it grants
    pub granted_at_creation_bytes: u64,
    /// bytes, likewise
    pub granted_when_connected_bytes: u64,
}

/// A socket option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OptionStatus {
    /// its name
    pub option: String,
    /// as set
    pub requested: u64,
    /// as read back; `null`: unknown to the kernel
    pub granted: Option<u64>,
}

/// `TCP_INFO`, a second old at most; shares and rates over the last ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TcpStatus {
    /// milliseconds: round trip, smoothed
    pub rtt_ms: f64,
    /// milliseconds: the shortest lately
    pub rtt_min_ms: f64,
    /// milliseconds: its variation
    pub rtt_variation_ms: f64,
    /// milliseconds: retransmission timeout
    pub rto_ms: f64,
    /// bytes of a full segment
    pub segment_bytes: u64,
    /// bytes of the largest packet
    pub path_mtu_bytes: u64,
    /// bytes: congestion window
    pub cwnd_bytes: u64,
    /// bytes, usable: what the peer lets this node send
    pub send_window_bytes: u64,
    /// bytes, usable: what this node lets the peer send
    pub receive_window_bytes: u64,
    /// bytes in the kernel, not yet on the line
    pub unsent_bytes: u64,
    /// bytes: the limit of that; 0 from an older daemon
    #[serde(default)]
    pub unsent_limit_bytes: u64,
    /// bytes since the connection came up
    pub sent_bytes: u64,
    /// bytes since the connection came up
    pub received_bytes: u64,
    /// bytes since the connection came up
    pub retransmitted_bytes: u64,
    /// bytes a second: the kernel's estimate of what arrives
    pub delivery_bytes_per_s: u64,
    /// bytes a second: how fast the kernel sends at most
    pub pacing_bytes_per_s: u64,
    /// bytes a second, over ten seconds
    pub sent_bytes_per_s: f64,
    /// bytes a second, over ten seconds
    pub received_bytes_per_s: f64,
    /// 0 to 1, of the bytes sent
    pub retransmitted_share: f64,
    /// 0 to 1, of the time: data in flight
    pub busy_share: f64,
    /// 0 to 1, of that: the peer's window full
    pub receiver_limited_share: f64,
    /// 0 to 1, of that: the send buffer full
    pub buffer_limited_share: f64,
    /// no more to send
    pub app_limited: bool,
}

/// How a link did, oldest first: the daemon's answer, of which `link history` makes [`LinkHistoryTable`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinkHistory {
    /// name and version of this schema
    pub schema: String,
    /// this node
    pub node: String,
    /// the node at the other end
    pub peer: String,
    /// stretches of a minute, mostly; the last one is not over
    pub records: Vec<LinkRecord>,
    /// such as a file of the history that cannot be read
    #[serde(default, deserialize_with = "super::sentences::sentences")]
    pub warnings: Vec<String>,
}

/// What `link history --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinkHistoryTable<'a> {
    /// name and version of this schema
    pub schema: &'static str,
    /// this node
    pub node: &'a str,
    /// the node at the other end
    pub peer: &'a str,
    /// oldest first; stretches of which nothing is known are left out
    pub rows: Vec<LinkHistoryRow>,
    /// such as a file of the history that cannot be read
    pub warnings: &'a [String],
}

/// A stretch of a link's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinkHistoryRow {
    /// milliseconds since 1970: start of the stretch
    pub from_unix_ms: u64,
    /// the stretch
    pub now: LinkRecord,
    /// with `--against`: the stretch so long before; `null`: nothing is known, or it was not asked for
    pub before: Option<LinkRecord>,
}

/// Some time of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinkRecord {
    /// milliseconds since 1970, this node's clock: end of the stretch's last record
    pub unix_ms: u64,
    /// milliseconds: time watched
    pub covered_ms: u64,
    /// milliseconds: of it, connected
    pub connected_ms: u64,
    /// bytes
    pub sent_bytes: u64,
    /// bytes
    pub received_bytes: u64,
    /// bytes
    pub retransmitted_bytes: u64,
    /// bytes a second: the best second
    pub sent_bytes_per_s_max: u64,
    /// microseconds: shortest round trip; 0: not measured
    pub rtt_min_us: u64,
    /// microseconds: mean round trip; 0: not measured
    pub rtt_mean_us: u64,
    /// microseconds: longest round trip; 0: not measured
    pub rtt_max_us: u64,
    /// how often the link came up
    pub connections: u64,
    /// milliseconds with data in flight
    pub busy_ms: u64,
    /// milliseconds of it: limited by the peer's window
    pub receiver_limited_ms: u64,
    /// milliseconds of it: limited by the send buffer
    pub buffer_limited_ms: u64,
}

/// A setting, and where its value is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SettingStatus {
    /// as `set` or `link set` takes it
    pub value: String,
    /// where it is from
    pub origin: Origin,
}
