//! Events: all that changed, as lines of JSON in a log of bounded size on each node.
//!
//! [`EventRecord`] is one event, in the log, on the control socket and for hooks alike; its kinds and fields stand in the table
//! `settings::events`. [`log`] is the pair of files, [`merge`] makes one list of several nodes' events and keeps the positions of whoever
//! follows them. Who makes events is the daemon (`daemon::events`).

pub mod log;
pub mod merge;
mod record;

pub use record::{EVENT_SCHEMA, EVENTS_SCHEMA, EventPage, EventRecord, NewEvent, cut, unix_ms};
