//! Clients are held while their group starts anew, and go on with it.

use std::collections::BTreeMap;

use engine::GroupId;

use super::PlaneCore;
use crate::driver::clients::ClientTerms;
use crate::driver::held_clients::HeldRequest;
use crate::frontend::{RequestFailure, RequestOutcome};

impl PlaneCore {
    /// The group serves again. Its clients go on where they were, and those whose volume is not what they were told of leave.
    pub(super) fn go_on_with_held(&mut self, group: GroupId) {
        let held = self.held.end(group);
        if self.forwards.of(group).is_some_and(|forward| !forward.is_paused()) {
            // Nobody made the peer come to rest: what was asked there, or waits for it, may be older than what stands here, or newer.
            self.cut_off_forwarded(group);
        }
        let forwarded = self.forwards.end(group);
        if held.is_none() && forwarded.is_none() {
            return;
        }
        let waiting = forwarded.into_iter().chain(held).flatten();
        let positions = self.groups.open_exports().filter(|at| self.groups.is_of(*at, group));
        let now: BTreeMap<String, (usize, ClientTerms)> = positions
            .map(|at| (self.groups.volume(at).export().to_owned(), (at, ClientTerms::of(&self.export_of(at)))))
            .collect();
        let groups = &self.groups;
        let moves = self.clients.rebind(|at| {
            let is_left_behind = groups.is_of(at, group) && !groups.is_served(at);
            now.get(groups.volume(at).export()).filter(|_| is_left_behind).copied()
        });
        self.clients.part_those(|at| groups.is_of(at, group) && !groups.is_served(at));
        for (before, at) in moves {
            self.groups.volume_mut(before).client_left();
            self.groups.volume_mut(at).client_came();
        }
        for request in waiting {
            if self.clients.is_attached(request.client) {
                self.submit(request);
            }
        }
    }

    /// What clients of the group ask waits from now on, as long as it is not served elsewhere.
    pub(super) fn hold(&mut self, group: GroupId) {
        if self.groups.named(group).is_some() && !self.forwards.has(group) {
            self.held.hold(group);
        }
    }

    /// What has become of it is that the group is served here as before, or not at all.
    pub(super) fn let_go_of_held(&mut self, group: GroupId) {
        match self.groups.is_open(group) {
            true => self.go_on_with_held(group),
            false => _ = self.part_with_held(group),
        }
    }

    /// Clients of the group are not held any longer, and leave; whether they were held.
    pub(super) fn part_with_held(&mut self, group: GroupId) -> bool {
        let Some(waiting) = self.held.end(group) else { return false };
        for HeldRequest { client, cookie, .. } in waiting {
            self.clients.answer(client, cookie, RequestOutcome::Failed(RequestFailure::Gone));
        }
        let groups = &self.groups;
        self.clients.part_those(|at| groups.is_of(at, group) && !groups.is_served(at));
        true
    }
}
