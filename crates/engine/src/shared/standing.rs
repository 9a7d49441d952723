//! What a group says of its state, and why, to people. The state itself follows from the lifecycle and from what is sent.

use alloc::string::{String, ToString};

use crate::ids::GroupId;
use crate::state::{State, legal};

/// The state that was reported last, and its reason. Each edge is in one table: see [`legal`].
pub(crate) struct Standing {
    reported: State,
    why: String,
}

impl Standing {
    pub fn new() -> Standing {
        Standing { reported: State::Logging, why: String::new() }
    }

    pub fn reported(&self) -> State {
        self.reported
    }

    pub fn why(&self) -> &str {
        &self.why
    }

    /// The state is what it was, and has this reason.
    pub fn explain(&mut self, why: impl Into<String>) {
        self.why = why.into();
    }

    /// The state is now this one, for this reason. The one reported before, if it was another.
    pub fn report(&mut self, group: GroupId, now: State, why: &str) -> Option<State> {
        if self.why != why {
            self.why = why.to_string();
        }
        if self.reported == now {
            return None;
        }
        assert!(
            legal(self.reported, now),
            "group {}: {} -> {now} is not in the table of edges",
            group.0,
            self.reported
        );
        Some(core::mem::replace(&mut self.reported, now))
    }
}
