//! NBD, the first front end: any block client's requests become [`crate::frontend::ClientOp`]s, and nothing of NBD goes
//! further.
//!
//! A client passes four stages. `server` has the listeners, their owners and modes, and how many may be inside.
//! `handshake` and `negotiation` agree on TLS, an export and its terms, within a bounded time and number of questions. `session` takes
//! requests off the socket in batches and hands them on, after `check` has refused what is wrong once and for all.
//! `connection` carries answers out, in whatever order they become ready. `proto` is the codec of all of them:
//! pure functions over bytes, which is what the fuzzers get. `client` is the other half of the conversation, for our
//! own benchmarks and demonstrations.
//!
//! What must hold:
//! * one task per connection, none per request; a request costs no allocation once the connection is warm;
//! * backpressure is not reading: no slot, no byte budget or no buffer means that the socket waits;
//! * whoever stalls half way through a request or does not take its answers holds up nobody else, and is cut off some time;
//! * no client, listener or export takes all connections;
//! * an export that a client may not use is for it one that does not exist; who may only read writes nothing;
//! * whatever bytes a client sends, and wherever it stops, only its own connection ends.

mod admission;
mod answer_queue;
mod answers;
mod check;
mod client;
mod client_origin;
mod connection;
mod counters;
mod handshake;
pub mod kernel;
mod listen;
mod memory_shares;
pub mod negotiation;
mod pending_requests;
pub mod proto;
mod proxy;
mod receive_buffer;
mod server;
mod session;
mod socket;
mod stall;
mod visible_exports;

pub use client::{Address, Ask, ClientError, Export, NbdAnswer, NbdClient};
pub use counters::{CommandCounters, ExportCounters, LATENCY_BOUNDS_US, LatencyCounters, NbdCounters, RequestSums};
pub(crate) use proxy::KEPT_BYTES_MAX;
pub use proxy::{ContentCheck, ContentVerdict, NbdProxy, ProxyEnd, ProxyEvent};
pub use server::{Limits, ListenError, NbdServer};
