//! Who uses the exports of a node.

use serde::{Deserialize, Serialize};

/// The schema of [`ClientList`] and of what `clients --json` prints.
pub const CLIENTS_SCHEMA: &str = "farshore-clients/1";

/// The NBD clients that are at an export now, sorted by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientList {
    /// [`CLIENTS_SCHEMA`].
    pub schema: String,
    pub node: String,
    pub clients: Vec<ClientView>,
}

/// One connection of a client. Sums count from its `since_s` on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientView {
    /// `GROUP/VOLUME`.
    pub export: String,
    /// Where it comes from, for people.
    pub who: String,
    /// `ADDRESS:PORT` of its end; `null`: it came by a socket file.
    #[serde(default)]
    pub address: Option<String>,
    /// Who opened the socket file: numbers of process and user, as the kernel says.
    #[serde(default)]
    pub process: Option<i32>,
    #[serde(default)]
    pub user: Option<u32>,
    /// Whom its certificate names; `null`: it showed none.
    #[serde(default)]
    pub certificate: Option<String>,
    /// How long it has been attached, seconds.
    pub since_s: f64,
    /// What was agreed on when it came: `tls`, `structured-replies`, `base:allocation`, `read-only`.
    pub agreed: Vec<String>,
    pub reads: RequestSums,
    pub writes: RequestSums,
    pub flushes: RequestSums,
    pub trims: RequestSums,
    pub zeroes: RequestSums,
    /// Requests that are not answered yet.
    pub in_flight: u64,
    /// How long ago it asked for anything last, seconds; `null`: never.
    #[serde(default)]
    pub last_request_s: Option<f64>,
    /// How long ago its last flush was done, seconds; `null`: it has flushed nothing.
    #[serde(default)]
    pub last_flush_s: Option<f64>,
}

/// Requests of one kind, answered or not, and the bytes of their ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSums {
    pub requests: u64,
    pub bytes: u64,
}
