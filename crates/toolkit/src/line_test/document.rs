//! What `link test --json` prints. The comments of fields are the manual's words: docs/book/json.md is made from them.
//!
//! Keys are added, never renamed or used for something else without a new number behind the schema's name.

use serde::Serialize;

use super::tally::{SocketBuffer, SpreadReport, TestInterval, WriterWaits};
use super::terms::Terms;

/// What `link test --json` prints.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkTestReport {
    /// name and version of this schema
    pub schema: &'static str,
    /// what was known before the first flush
    pub start: LinkTestStart,
    /// those of `end`; `null` with it
    pub intervals: Option<Vec<TestInterval>>,
    /// the direction that was asked for, or the first of both; `null`: nothing is known of it
    pub end: Option<DirectionReport>,
    /// the other direction; `null`: none
    pub reverse: Option<DirectionReport>,
    /// seconds: round trips beside the load
    pub loaded_rtt_s: SpreadReport,
    /// `at the far end`, `here`, or `here, twice` (without reports); `null`: by nobody
    pub interrupted: Option<&'static str>,
    /// a sentence: why the test did not come to its end; `null`: it did
    pub lost: Option<String>,
    /// sentences: what the kernels refused or capped
    pub warnings: Vec<String>,
}

/// What was known before the first flush.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkTestStart {
    /// address of the far end
    pub address: String,
    /// the node at the far end by its certificate; `null`: it showed none
    pub peer: Option<String>,
    /// by TLS
    pub encrypted: bool,
    /// what was asked for
    pub terms: Terms,
    /// seconds: idle round trip, median
    pub rtt_s: f64,
    /// seconds: idle round trips
    pub idle_rtt_s: SpreadReport,
    /// bytes of the largest packet, by the route
    pub mtu_bytes: u64,
    /// congestion control of this end at the end of the test
    pub congestion: String,
    /// of the first connection; the others are asked the same
    pub sockets: SocketPair,
}

/// The sockets of both ends.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SocketPair {
    /// this end's
    pub near: SocketSummary,
    /// the far end's; `null`: it did not report, or not yet
    pub far: Option<SocketSummary>,
}

/// One end of a connection.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SocketSummary {
    /// send buffer
    pub send: SocketBuffer,
    /// receive buffer
    pub receive: SocketBuffer,
    /// congestion control
    pub congestion: String,
    /// small segments wait for confirmations
    pub nagle: bool,
    /// bytes of a full segment
    pub segment_bytes: u64,
    /// bytes that the kernel might hold unsent when the connection began; `null`: no limit
    pub unsent_bytes: Option<u64>,
    /// seconds: shortest pause before a retransmission; `null`: nobody asked
    pub min_rto_s: Option<f64>,
}

/// One direction of a test.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DirectionReport {
    /// by the end that received; `null`: it did not report
    pub received: Option<ReceivedReport>,
    /// by the end that sent
    pub sent: SentReport,
    /// 0 to 1, of the bytes sent: sent again
    pub loss_share: f64,
    /// seconds that a writer waited for each flush
    pub response_s: SpreadReport,
    /// seconds from a flush until it was durable at the far end
    pub confirmed_s: SpreadReport,
    /// bytes of a flush
    pub flush_bytes: SpreadReport,
    /// bytes of a send call
    pub send_bytes: SpreadReport,
    /// seconds in which the socket took nothing, each time
    pub congestion_s: SpreadReport,
    /// seconds that writers waited for room in the queue, each time
    pub room_s: SpreadReport,
    /// seconds: the kernel's smoothed round trip, looked at twenty times a second
    pub rtt_s: SpreadReport,
    /// where the writers' time went
    pub waits: WriterWaits,
    /// the figures of RFC 6349
    pub rfc6349: Rfc6349,
    /// what limits the direction: `round-trip`, `local-disk`, `remote-disk`, `target-rate`, `gap`, `pacing`, or a word of `limit` in
    /// [`status --json`](status-json.md#links)
    pub limiter: &'static str,
    /// the same as a sentence
    pub limiter_reason: String,
    /// of the sending end: one for each second, or longer ones
    pub intervals: Vec<TestInterval>,
}

/// What an end received.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceivedReport {
    /// bytes of flushes
    pub bytes: u64,
    /// flushes received
    pub flushes: u64,
    /// seconds from the first byte that counts to the last
    pub seconds: f64,
    /// bytes a second: the rate that counts, and that `plan --link` reads
    pub bytes_per_s: f64,
    /// the same in MiB a second
    pub mib_per_s: f64,
    /// bytes of a receive call
    pub receive_bytes: SpreadReport,
    /// 0 to 1, of the time: its disk was busy
    pub disk_share: f64,
}

/// What an end sent.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SentReport {
    /// bytes of flushes that were confirmed
    pub bytes: u64,
    /// flushes that were confirmed
    pub flushes: u64,
    /// seconds from the first flush to the last confirmation
    pub seconds: f64,
    /// flushes of `superasync` that found the queue full: a mirror would send a catch-up snapshot
    pub tracked_flushes: u64,
    /// bytes of those
    pub tracked_bytes: u64,
    /// bytes of frames before compression
    pub plain_bytes: u64,
    /// bytes of frames after compression
    pub wire_bytes: u64,
    /// bytes that TCP sent again
    pub retransmitted_bytes: u64,
    /// how often segments arrived in another order
    pub reorderings: u64,
}

/// The figures of RFC 6349.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rfc6349 {
    /// time taken over the time at `--line-rate`; `null` without it
    pub transfer_time_ratio: Option<f64>,
    /// 0 to 1, of the bytes: did not have to be sent again
    pub tcp_efficiency_share: f64,
    /// how much longer the round trip is under load, as a share of the idle one
    pub buffer_delay_share: f64,
}
