//! What a running daemon takes and tells: the types of the control socket, one JSON object per line.
//!
//! A client connects to `<state>/control.sock`, writes one [`ApiRequest`] as a line, reads one [`Reply`] as a line, and may
//! go on with the next. [`NodeView`] is a contract (docs/status-json.md): keys are added, never renamed or reused without a
//! new `schema`. These are the only types with serde that face outwards.

mod both_nodes;
pub mod client;
mod clients;
mod reply;
pub mod server;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use both_nodes::PeerSays;
pub use clients::{CLIENTS_SCHEMA, ClientList, ClientView, RequestSums};
pub use reply::{RecordedBatch, Reply};

/// The schema of [`NodeView`].
pub const STATUS_SCHEMA: &str = "farshore-status/1";
/// The schema of [`DaemonCounters`].
pub const COUNTERS_SCHEMA: &str = "farshore-counters/1";
/// The schema of what `mark list --json` prints.
pub const MARKS_SCHEMA: &str = "farshore-marks/1";

/// The schema of [`LinkHistory`] and of what `link history --json` prints.
pub const LINK_HISTORY_SCHEMA: &str = "farshore-link-history/1";
/// The schema of what `link show --json` prints.
pub const LINKS_SCHEMA: &str = "farshore-links/1";

/// What a client may ask. Waiting is the client's business (it asks for status again), so that it outlives a restart of
/// the daemon and costs the daemon nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ApiRequest {
    /// All groups, or one.
    Status {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
    },
    /// The same, and beside it what the daemons of the peers say of themselves.
    StatusOfBoth {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
    },
    /// A request that the daemon of another node answers, or of this one.
    On { node: String, order: Box<ApiRequest> },
    /// Who is attached to the exports, or to those of one group.
    Clients {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
    },
    /// Stop sending; only dirty bits are set.
    Logging { group: String },
    /// Bring the secondary up to date: dirty regions, or with `full` everything.
    Sync {
        group: String,
        #[serde(default)]
        full: bool,
    },
    /// All or none of the keys; the value `default` gives a key back to the configuration file.
    Set { group: String, settings: BTreeMap<String, String> },
    /// Settings of all links of this node, all or none; they connect again. The value `default` gives a key back.
    SetLink { settings: BTreeMap<String, String> },
    /// How the link to a peer did, from a moment on (milliseconds since 1970). The peer may be left out where there is one.
    LinkHistory {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<String>,
        #[serde(default)]
        since_unix_ms: u64,
    },
    /// Refused while clients are attached, unless they may be cut off.
    Demote {
        group: String,
        #[serde(default, skip_serializing_if = "is_false")]
        close_clients: bool,
    },
    Promote {
        group: String,
        #[serde(default)]
        force: bool,
    },
    /// Give a mark up; so far the rollback point is the only one.
    DropMark { group: String, name: String },
    /// What was counted since the daemon started.
    Counters,
    /// What clients asked of a group since the last such request; the first one begins it, and ten seconds without one end it.
    Record { group: String },
    /// What changed on this node, oldest first: events with a higher number than `after`, from a moment on (milliseconds since 1970), so
    /// many at most. A reply has no more than 1 000 of them.
    Events {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
        #[serde(default)]
        since_unix_ms: u64,
        #[serde(default)]
        after: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
        /// Only the newest ones, so many.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<usize>,
    },
}

impl ApiRequest {
    /// It only looks: nothing changes, and it is answered soon.
    pub fn is_look(&self) -> bool {
        match self {
            ApiRequest::Status { .. }
            | ApiRequest::StatusOfBoth { .. }
            | ApiRequest::Clients { .. }
            | ApiRequest::Counters
            | ApiRequest::Record { .. }
            | ApiRequest::Events { .. }
            | ApiRequest::LinkHistory { .. } => true,
            ApiRequest::On { order, .. } => order.is_look(),
            ApiRequest::Logging { .. }
            | ApiRequest::Sync { .. }
            | ApiRequest::Set { .. }
            | ApiRequest::SetLink { .. }
            | ApiRequest::Demote { .. }
            | ApiRequest::Promote { .. }
            | ApiRequest::DropMark { .. } => false,
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Enums that travel as one word. A word of a newer version is kept, not refused, so that an older client still shows it.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
            /// A word this version does not know.
            Other(String),
        }

        impl $name {
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(String::deserialize(deserializer)?.as_str()))
            }
        }
    };
}

words!(
    /// Why a request was not done, for scripts.
    ErrorCode {
        /// The line is no request of this version.
        BadRequest = "bad-request",
        /// This node has no such group.
        UnknownGroup = "unknown-group",
        /// A key or value of `set` is wrong.
        BadValue = "bad-value",
        /// The state does not allow it; the message says why and what to do.
        Refused = "refused",
        /// It was tried and failed.
        Failed = "failed",
        /// It was sent to another node, and whether it was done there is not known.
        OutcomeUnknown = "outcome-unknown",
    }
);

words!(
    /// What this node is for a group.
    Role {
        Primary = "primary",
        Secondary = "secondary",
    }
);

words!(
    /// Where a group is.
    GroupState {
        Logging = "logging",
        Queuing = "queuing",
        Syncing = "syncing",
        CatchingUp = "catching-up",
        Replicating = "replicating",
        Holding = "holding",
        Paused = "paused",
        Failed = "failed",
    }
);

words!(
    /// What an acknowledgement means now.
    Protection {
        /// Durable here and in the secondary's journal.
        BothDurable = "both-durable",
        /// Complete here and in the secondary's memory.
        BothReceived = "both-received",
        /// Complete here and placed in the queue.
        Queued = "queued",
        /// Complete here, its region dirty.
        LocalOnly = "local-only",
        /// Not given until the peer is back.
        Held = "held",
        /// This node does not serve the group.
        None = "none",
    }
);

words!(
    /// Where the connection to a peer is.
    LinkState {
        Connecting = "connecting",
        Connected = "connected",
        Congested = "congested",
        Disconnected = "disconnected",
    }
);

words!(
    /// What keeps a link from carrying more.
    LinkLimit {
        /// What the operator allows.
        Rate = "rate",
        ReceiverWindow = "receiver-window",
        SendBuffer = "send-buffer",
        Loss = "loss",
        Queueing = "queueing",
        /// There is no more to send.
        Nothing = "nothing",
        Network = "network",
    }
);

words!(
    /// Where a setting's value comes from.
    Origin {
        Config = "config",
        Set = "set",
    }
);

/// What one node knows, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// [`STATUS_SCHEMA`].
    pub schema: String,
    /// Of this node; empty from daemons that do not tell.
    #[serde(default)]
    pub cluster: String,
    pub node: String,
    /// Version of the daemon.
    pub version: String,
    pub uptime_s: f64,
    /// What an operator must know about the node as a whole, such as an insecure link.
    #[serde(default, deserialize_with = "reply::sentences")]
    pub warnings: Vec<String>,
    /// This node's certificates; `null` when nothing is encrypted.
    #[serde(default)]
    pub tls: Option<TlsStatus>,
    /// What the groups share; absent from daemons that do not tell.
    #[serde(default)]
    pub shared: Option<SharedView>,
    /// NBD connections of all exports; absent from daemons that do not tell.
    #[serde(default)]
    pub clients: Option<ClientsStatus>,
    /// Lines of the daemon's log that were not written since it started.
    #[serde(default)]
    pub lost_log_lines: u64,
    /// One per peer; empty from daemons that do not tell.
    #[serde(default)]
    pub links: Vec<LinkReport>,
    /// What the daemons of the peers say of themselves; left out where nobody asked them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peer_says: Vec<PeerSays>,
    /// In the order of their names.
    pub groups: Vec<GroupView>,
}

/// The certificates that new connections use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsStatus {
    /// When this node's certificate ends, and the last of the authorities it believes.
    pub certificate_until: String,
    pub authority_until: String,
    /// SHA-256 of this node's certificate.
    pub fingerprint: String,
}

/// What the groups of a node share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedView {
    /// Held by all groups in memory, or promised to their peers, and what they may.
    pub memory_bytes: u64,
    pub memory_limit_bytes: u64,
    /// Groups that start now, and that wait for their turn to.
    pub starting: u64,
    pub starting_waiting: u64,
    /// Groups that sync now from this node, and that wait for their turn to.
    pub syncing: u64,
    pub syncing_waiting: u64,
}

/// NBD connections of all exports; sums count from the daemon's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientsStatus {
    /// Open now.
    pub connected: u64,
    /// Turned away because there was no free slot.
    pub refused: u64,
    /// Cut off because they owed bytes, or took no answers, for 120 s.
    pub stalled: u64,
    /// Cut off because they did not speak NBD.
    pub violations: u64,
}

/// The link to one peer, which all groups share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The peer.
    pub node: String,
    pub link: LinkState,
    /// How long it has been so.
    pub link_since_s: f64,
    /// Why it is not connected, or congested.
    #[serde(default)]
    pub link_reason: Option<String>,
    /// Of the peer's end, while connected.
    #[serde(default)]
    pub address: Option<String>,
    /// Whether this node dialed.
    #[serde(default)]
    pub dialed: Option<bool>,
    /// How often it came up since the daemon started.
    pub connections: u64,
    pub settings: BTreeMap<String, SettingStatus>,
    /// What the connection's socket got of what was asked.
    #[serde(default)]
    pub socket: Option<SocketStatus>,
    #[serde(default)]
    pub tcp: Option<TcpStatus>,
    /// What the connection carried, before and after compression.
    #[serde(default)]
    pub compression: Option<CompressionStatus>,
    /// Whether what is to be sent waits for the rate allowed, now.
    #[serde(default)]
    pub rate_held: Option<bool>,
    /// What keeps it from carrying more, as a word and as a sentence.
    #[serde(default)]
    pub limit: Option<LinkLimit>,
    #[serde(default)]
    pub verdict: Option<String>,
    #[serde(default, deserialize_with = "reply::sentences")]
    pub warnings: Vec<String>,
}

/// Bytes of frames since the connection came up, before (`plain`) and after (`wire`) compression.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompressionStatus {
    /// What is done with what is sent: `lz4`, `zstd:LEVEL`, or `none`.
    pub method: String,
    /// Why it is `none` though something was asked for.
    #[serde(default)]
    pub reason: Option<String>,
    pub sent_plain_bytes: u64,
    pub sent_wire_bytes: u64,
    /// Plain by wire.
    pub sent_ratio: f64,
    pub received_plain_bytes: u64,
    pub received_wire_bytes: u64,
    pub received_ratio: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketStatus {
    pub send_buffer: BufferStatus,
    pub receive_buffer: BufferStatus,
    pub congestion_requested: String,
    pub congestion: String,
    pub options: Vec<OptionStatus>,
}

/// The kernel's own count: twice what was asked, about 0.62 of it usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferStatus {
    /// `null`: left to the kernel's tuning.
    pub requested_bytes: Option<u64>,
    pub granted_at_creation_bytes: u64,
    pub granted_when_connected_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionStatus {
    pub option: String,
    pub requested: u64,
    /// As read back; `null`: the kernel does not know it.
    pub granted: Option<u64>,
}

/// `TCP_INFO`, a second old at most; shares and rates over the last ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpStatus {
    pub rtt_ms: f64,
    pub rtt_min_ms: f64,
    pub rtt_variation_ms: f64,
    pub rto_ms: f64,
    pub segment_bytes: u64,
    pub path_mtu_bytes: u64,
    pub cwnd_bytes: u64,
    /// What the peer lets us send, and we it.
    pub send_window_bytes: u64,
    pub receive_window_bytes: u64,
    pub unsent_bytes: u64,
    /// As much may stand unsent; 0 from an older daemon.
    #[serde(default)]
    pub unsent_limit_bytes: u64,
    /// Since the connection came up.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub retransmitted_bytes: u64,
    /// As the kernel measures it.
    pub delivery_bytes_per_s: u64,
    pub pacing_bytes_per_s: u64,
    pub sent_bytes_per_s: f64,
    pub received_bytes_per_s: f64,
    /// Of the bytes sent.
    pub retransmitted_share: f64,
    /// Of the time, how much there was something on its way.
    pub busy_share: f64,
    /// Of that time.
    pub receiver_limited_share: f64,
    pub buffer_limited_share: f64,
    /// The program had no more to send.
    pub app_limited: bool,
}

/// How a link did, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkHistory {
    /// [`LINK_HISTORY_SCHEMA`].
    pub schema: String,
    pub node: String,
    pub peer: String,
    /// Stretches of a minute, mostly; the last one is not over.
    pub records: Vec<LinkRecord>,
    #[serde(default, deserialize_with = "reply::sentences")]
    pub warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRecord {
    /// When it ended, milliseconds since 1970, this node's clock.
    pub unix_ms: u64,
    pub covered_ms: u64,
    pub connected_ms: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub retransmitted_bytes: u64,
    /// The best second.
    pub sent_bytes_per_s_max: u64,
    /// 0: not measured.
    pub rtt_min_us: u64,
    pub rtt_mean_us: u64,
    pub rtt_max_us: u64,
    /// How often it came up.
    pub connections: u64,
    pub busy_ms: u64,
    pub receiver_limited_ms: u64,
    pub buffer_limited_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupView {
    pub name: String,
    pub role: Role,
    /// What is recorded of the group is not known yet, its role neither.
    #[serde(default)]
    pub starting: bool,
    /// Of the group's history here, as number and tag; empty from daemons that do not tell.
    #[serde(default)]
    pub generation: String,
    /// Another one after each promotion of this node: whoever keeps requests for its volumes asks them again in the same term only.
    #[serde(default)]
    pub term: String,
    /// What is wanted: `sync`, `nearsync`, `async`, `logging`; on a secondary of its primary, `unknown` before that was heard of.
    pub mode: String,
    pub state: GroupState,
    /// What an acknowledgement means now.
    pub protection: Protection,
    /// Why the state is not the wanted one; absent when it is.
    #[serde(default)]
    pub reason: Option<String>,
    pub volumes: Vec<VolumeView>,
    pub queue: QueueView,
    /// What the group holds of the node's memory, or has promised to its peer.
    #[serde(default)]
    pub memory_bytes: u64,
    /// The landing journal; on a secondary only.
    #[serde(default)]
    pub journal: Option<JournalStatus>,
    pub peers: Vec<PeerStatusView>,
    /// The image that a promotion of this node would give; on a secondary only, `null` when there is none.
    #[serde(default)]
    pub promotable: Option<RecoveryPoint>,
    /// Images kept besides the volumes' own, oldest first.
    #[serde(default)]
    pub marks: Vec<MarkStatus>,
    /// Present while a sync runs.
    #[serde(default)]
    pub sync: Option<SyncView>,
    /// A sync that was ordered and has not begun.
    #[serde(default)]
    pub sync_ordered: bool,
    /// Where the group stands in the line of those that wait for their turn to sync; 1: it is next.
    #[serde(default)]
    pub sync_position: Option<u64>,
    /// Live settings by key.
    pub settings: BTreeMap<String, SettingStatus>,
    /// The lag from which somebody should know; absent from daemons that do not tell.
    #[serde(default)]
    pub rpo: Option<RpoView>,
    #[serde(default, deserialize_with = "reply::sentences")]
    pub warnings: Vec<String>,
}

impl GroupView {
    /// A primary that serves nobody: its export waits for the peer, for `start_alone`, or for an operator.
    pub fn is_closed(&self) -> bool {
        let is_primary = self.role == Role::Primary && !self.starting && self.state != GroupState::Failed;
        is_primary && self.protection == Protection::None
    }
}

/// Thresholds of a group's lag; `null`: off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RpoView {
    pub warn_seconds: Option<f64>,
    pub error_seconds: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeView {
    pub name: String,
    /// In this group, on whichever node is primary.
    pub size_bytes: u64,
    /// What its device holds on this node; 0 from an older daemon.
    #[serde(default)]
    pub device_bytes: u64,
    pub device: String,
    /// Regions that may differ from the peer's, in bytes.
    pub dirty_bytes: u64,
    /// Whether the device is used past the page cache (O_DIRECT).
    pub direct: bool,
    /// Clients attached now.
    #[serde(default)]
    pub clients: u64,
    /// What is wrong with the device; absent when nothing is.
    #[serde(default)]
    pub error: Option<String>,
}

/// Writes waiting to be sent or confirmed, in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    pub bytes: u64,
    pub items: u64,
    /// High-water marks since the daemon started.
    pub bytes_hwm: u64,
    pub items_hwm: u64,
    pub limit_bytes: u64,
    pub limit_items: u64,
    /// Sum of the time writers waited for room, milliseconds.
    pub blocked_ms: u64,
    /// Writers who wait for room now.
    #[serde(default)]
    pub waiting_writers: u64,
    /// While the queue holds writers up: for how long they were of late. It runs back while they are not.
    #[serde(default)]
    pub held_up_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Received, not yet applied.
    pub bytes: u64,
    pub limit_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatusView {
    pub node: String,
    pub link: LinkState,
    /// How long the link has been so.
    pub link_since_s: f64,
    /// Why the link is not connected; absent when it is.
    #[serde(default)]
    pub link_reason: Option<String>,
    /// Acknowledged by the primary and not durable on the secondary; `null`: unknown.
    pub lag_bytes: Option<u64>,
    /// Age of the oldest such write; `null`: unknown.
    pub lag_seconds: Option<f64>,
    /// On a secondary: how long ago its primary was heard of last; `null`: never since this daemon started.
    #[serde(default)]
    pub heard_s: Option<f64>,
    /// How far behind that said the copy was.
    #[serde(default)]
    pub heard_lag_bytes: Option<u64>,
    #[serde(default)]
    pub heard_lag_seconds: Option<f64>,
    /// Live settings of the peer by key, as it told last; `null`: it has not yet.
    #[serde(default)]
    pub settings: Option<BTreeMap<String, String>>,
    /// Regions that may differ from this peer's, in bytes.
    pub dirty_bytes: u64,
    /// The newest point of the write order the secondary can present; `null`: none yet.
    pub recovery_point: Option<RecoveryPoint>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryPoint {
    pub sequence: u64,
    /// RFC 3339, the primary's clock.
    pub time: String,
}

/// An image of the group at one position of the write order, kept in the undo store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkStatus {
    pub name: String,
    pub sequence: u64,
    /// RFC 3339, the primary's clock.
    pub time: String,
    /// What it takes of the undo store, what a sync under way has reserved there, and what the store may take in all.
    pub used_bytes: u64,
    pub reserved_bytes: u64,
    pub limit_bytes: u64,
    /// Why it cannot be gone back to; absent when it can.
    #[serde(default)]
    pub error: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SyncView {
    /// Everything, rather than what was dirty.
    pub full: bool,
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// Lately.
    pub rate_bytes_per_s: f64,
    /// Which snapshot of this catch-up travels; `None`: regions travel in the stream of writes.
    #[serde(default)]
    pub snapshot: Option<u64>,
    /// During the snapshot before: regions that writers dirtied, each counted once.
    #[serde(default)]
    pub dirtied_bytes_per_s: Option<u64>,
    /// How much of that is more than reached the peer; 0: the catch-up ends by itself.
    #[serde(default)]
    pub missing_bytes_per_s: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingStatus {
    pub value: String,
    pub origin: Origin,
}

/// Sums since the daemon started, by dotted name such as `group.db.writes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonCounters {
    /// [`COUNTERS_SCHEMA`].
    pub schema: String,
    pub node: String,
    pub counters: BTreeMap<String, u64>,
    /// How long requests of NBD clients took, by command; empty from daemons that do not tell.
    #[serde(default)]
    pub latencies: BTreeMap<String, LatencyClasses>,
}

/// Requests that were done, by how long they took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyClasses {
    /// Upper bounds of the classes, microseconds.
    pub bounds_us: Vec<u64>,
    /// Requests in each class; the last one has no upper bound.
    pub counts: Vec<u64>,
    pub sum_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(request: &ApiRequest) -> String {
        serde_json::to_string(request).expect("serialises")
    }

    #[test]
    fn requests_have_their_documented_form() {
        let group = || "db".to_owned();
        for (request, text) in [
            (ApiRequest::Status { group: None }, r#"{"request":"status"}"#),
            (ApiRequest::Status { group: Some(group()) }, r#"{"request":"status","group":"db"}"#),
            (ApiRequest::StatusOfBoth { group: Some(group()) }, r#"{"request":"status-of-both","group":"db"}"#),
            (
                ApiRequest::On { node: "beta".into(), order: Box::new(ApiRequest::Clients { group: None }) },
                r#"{"request":"on","node":"beta","order":{"request":"clients"}}"#,
            ),
            (ApiRequest::Sync { group: group(), full: true }, r#"{"request":"sync","group":"db","full":true}"#),
            (
                ApiRequest::Set { group: group(), settings: BTreeMap::from([("mode".into(), "sync".into())]) },
                r#"{"request":"set","group":"db","settings":{"mode":"sync"}}"#,
            ),
            (
                ApiRequest::Promote { group: group(), force: false },
                r#"{"request":"promote","group":"db","force":false}"#,
            ),
            (ApiRequest::Demote { group: group(), close_clients: false }, r#"{"request":"demote","group":"db"}"#),
            (
                ApiRequest::Demote { group: group(), close_clients: true },
                r#"{"request":"demote","group":"db","close_clients":true}"#,
            ),
            (ApiRequest::Counters, r#"{"request":"counters"}"#),
            (
                ApiRequest::SetLink { settings: BTreeMap::from([("buffers".into(), "4MiB".into())]) },
                r#"{"request":"set-link","settings":{"buffers":"4MiB"}}"#,
            ),
            (
                ApiRequest::Events { group: None, since_unix_ms: 0, after: 5, limit: None, last: None },
                r#"{"request":"events","since_unix_ms":0,"after":5}"#,
            ),
            (
                ApiRequest::LinkHistory { peer: Some("beta".into()), since_unix_ms: 5 },
                r#"{"request":"link-history","peer":"beta","since_unix_ms":5}"#,
            ),
        ] {
            assert_eq!(line(&request), text);
            assert_eq!(serde_json::from_str::<ApiRequest>(text).expect(text), request);
        }
        assert!(serde_json::from_str::<ApiRequest>(r#"{"request":"status","grp":"db"}"#).is_err());
        assert!(serde_json::from_str::<ApiRequest>(r#"{"request":"format","group":"db"}"#).is_err());
    }

    #[test]
    fn words_of_a_newer_daemon_are_kept() {
        let state: GroupState = serde_json::from_str("\"rewinding\"").expect("any word");
        assert_eq!(state, GroupState::Other("rewinding".to_owned()));
        assert_eq!(serde_json::to_string(&state).expect("text"), "\"rewinding\"");
        assert_eq!(GroupState::from("catching-up"), GroupState::CatchingUp);
    }

    #[test]
    fn the_words_are_the_data_paths() {
        use engine::{identity, state, status};
        assert_eq!(GroupState::WORDS, state::State::WORDS);
        use state::Protection as P;
        let protections = [P::BothDurable, P::BothReceived, P::Queued, P::LocalOnly, P::Held, P::None];
        assert_eq!(Protection::WORDS, protections.map(P::word));
        use status::LinkStatus as L;
        let links = [L::Connecting, L::Connected, L::Congested, L::Disconnected];
        assert_eq!(LinkState::WORDS, links.map(L::word));
        let limits = host::link::meter::Limit::ALL.map(host::link::meter::Limit::word);
        assert_eq!(LinkLimit::WORDS, limits);
        assert_eq!(Role::WORDS, [identity::Role::Primary, identity::Role::Secondary].map(identity::Role::word));
    }
}
