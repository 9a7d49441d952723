//! The line between two nodes, measured with a mirror's own traffic: `link serve`, `link test` and what is built on them.
//!
//! A dress rehearsal without the audience's money: the same stage (sockets, TLS, frames, packing are the link's own), the
//! same play (flushes, confirmations, modes), but nothing is on the disks afterwards.
//!
//! ```text
//! link test                                  link serve
//!   Ask: the terms            ->
//!                             <-             Ready: a token (or No: why not)
//!   Join: token               ->             on each connection that is to carry data
//!   Go                        ->             the writers of either end begin
//!   Data..., SyncBegin (what counts), Data..., SyncEnd  -> or <-
//!                                            and Acks the other way; Heartbeats both ways, for life and round trips
//!   Finish                    ->
//!                             <-             Report: this end's half (or No: why it ended)
//! ```
//!
//! `terms` is what is asked · `wire` one connection and what arrives on it · `writer` who fills it · `disk` modelled and real ·
//! `tally` what was counted · `stage` all of one end's connections · `client`, `serve` the two programs ·
//! `report` for eyes and for machines, by the types of `document` · on top of that all `modes` side by side, `sweep` buffer sizes, `path` what the
//! way is like, `soak` for hours.
//!
//! What must hold: nobody gets more than a handshake's attention without the nodes' own credentials; one test at a time; every
//! wait ends with the peer's silence for [`terms::Terms::timeout`]; the far end believes no term it has not checked itself.

pub mod client;
pub mod disk;
pub mod document;
pub mod modes;
pub mod path;
pub mod report;
pub mod serve;
pub mod soak;
mod stage;
pub mod sweep;
pub mod tally;
pub mod terms;
mod wire;
mod words;
mod writer;

use std::time::Duration;

/// Where tests are served when nothing is said: next to the daemon's own port.
pub const PORT: u16 = 7338;
/// Silence after which the other end counts as gone, when nothing is said.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// How a test ended without a result, or with half of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestFailure {
    /// What was asked for cannot be: a sentence.
    Usage(String),
    /// It was tried: a sentence.
    Failed(String),
    /// Somebody is there, or was, and nothing came any more: a sentence.
    Silent(String),
    /// Somebody here asked to stop.
    Interrupted,
}

impl TestFailure {
    fn no_timer(error: std::io::Error) -> TestFailure {
        TestFailure::Failed(format!("no timer is to be had: {error}"))
    }

    pub fn sentence(self) -> String {
        match self {
            TestFailure::Usage(why) | TestFailure::Failed(why) | TestFailure::Silent(why) => why,
            TestFailure::Interrupted => "interrupted before the test began; nothing was measured".to_owned(),
        }
    }

    /// With the address of the test that it was to be.
    fn of_test_with(self, address: &str) -> TestFailure {
        let named = |why: String| if why.contains(address) { why } else { format!("no test with {address}: {why}") };
        match self {
            TestFailure::Usage(why) => TestFailure::Usage(named(why)),
            TestFailure::Failed(why) => TestFailure::Failed(named(why)),
            TestFailure::Silent(why) => TestFailure::Silent(named(why)),
            result => result,
        }
    }

    fn failed(sentence: impl Into<String>) -> TestFailure {
        TestFailure::Failed(sentence.into())
    }
}
