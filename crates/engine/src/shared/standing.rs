//! Where a group is, and why, for people.

use alloc::string::{String, ToString};

use crate::ids::GroupId;
use crate::state::{State, legal};

/// The state of a group. Each edge is in one table: see [`legal`].
pub(crate) struct Standing {
    state: State,
    why: String,
}

impl Standing {
    pub fn new() -> Standing {
        Standing { state: State::Logging, why: String::new() }
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    pub fn why(&self) -> &str {
        &self.why
    }

    /// It stays where it is, and says why.
    pub fn explain(&mut self, why: impl Into<String>) {
        self.why = why.into();
    }

    /// The only way from one state to another. Where it was, if it was elsewhere.
    pub fn enter(&mut self, group: GroupId, to: State, why: &str) -> Option<State> {
        if self.why != why {
            self.why = why.to_string();
        }
        if self.state == to {
            return None;
        }
        assert!(legal(self.state, to), "group {}: {} -> {to} is not in the table of edges", group.0, self.state);
        Some(core::mem::replace(&mut self.state, to))
    }
}
