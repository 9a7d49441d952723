//! Who uses the exports of a node.

use serde::{Deserialize, Serialize};

/// The schema of [`ClientList`] and of what `clients --json` prints.
pub const CLIENTS_SCHEMA: &str = "farshore-clients/1";

/// The NBD clients that are at an export now, sorted by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClientList {
    /// name and version of this schema
    pub schema: String,
    /// this node
    pub node: String,
    /// one for each connection at an export, by export
    pub clients: Vec<ClientView>,
}

/// One connection of a client. Sums count from its `since_s` on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClientView {
    /// `GROUP/VOLUME`
    pub export: String,
    /// where it comes from, for people
    pub who: String,
    /// `ADDRESS:PORT` of its end of a TCP connection; `null`: a socket file
    #[serde(default)]
    pub address: Option<String>,
    /// the process that opened the socket file, by the kernel's number; else `null`. A device that a program gave to the kernel keeps the
    /// program's number
    #[serde(default)]
    pub process: Option<i32>,
    /// the user that opened the socket file, by the kernel's number; else `null`
    #[serde(default)]
    pub user: Option<u32>,
    /// whom its certificate names; `null`: none was shown
    #[serde(default)]
    pub certificate: Option<String>,
    /// seconds: how long it has been attached
    pub since_s: f64,
    /// what was negotiated: `tls`, `structured-replies`, `base:allocation`, `read-only`
    pub agreed: Vec<String>,
    /// since it was attached, answered or not
    pub reads: RequestSums,
    /// since it was attached, answered or not
    pub writes: RequestSums,
    /// since it was attached, answered or not
    pub flushes: RequestSums,
    /// since it was attached, answered or not
    pub trims: RequestSums,
    /// since it was attached, answered or not
    pub zeroes: RequestSums,
    /// requests that are not answered yet
    pub in_flight: u64,
    /// seconds: how long ago it asked for anything last; `null`: never
    #[serde(default)]
    pub last_request_s: Option<f64>,
    /// seconds since its last flush was done; `null`: it has flushed nothing
    #[serde(default)]
    pub last_flush_s: Option<f64>,
}

/// Requests of one kind, answered or not, and the bytes of their ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RequestSums {
    /// requests of this kind
    pub requests: u64,
    /// bytes of their ranges
    pub bytes: u64,
}
