//! Clients of groups that start anew: they stay attached, and what they ask meanwhile waits until the group serves again.

use std::collections::BTreeMap;

use engine::GroupId;

use crate::frontend::{ClientId, ClientOp};

/// A request that has not reached the engine.
pub(super) struct HeldRequest {
    pub client: ClientId,
    pub cookie: u64,
    pub op: ClientOp,
}

/// What waits is bounded by what clients may have in flight, as before a slow disk.
#[derive(Default)]
pub(super) struct HeldClients {
    groups: BTreeMap<GroupId, Vec<HeldRequest>>,
}

impl HeldClients {
    /// What clients of the group ask from now on waits.
    pub fn hold(&mut self, group: GroupId) {
        self.groups.entry(group).or_default();
    }

    pub fn holds(&self, group: GroupId) -> bool {
        self.groups.contains_key(&group)
    }

    /// The request waits, if its group's do; else it comes back.
    pub fn keep(&mut self, group: GroupId, request: HeldRequest) -> Option<HeldRequest> {
        match self.groups.get_mut(&group) {
            Some(waiting) => {
                waiting.push(request);
                None
            }
            None => Some(request),
        }
    }

    /// The group's clients are not held any more. What waited, in the order in which it came; `None`: they were not held.
    pub fn end(&mut self, group: GroupId) -> Option<Vec<HeldRequest>> {
        self.groups.remove(&group)
    }
}
