//! What groups of one node share: its memory, and permits for what only a few may do at once. The node accounts after every
//! input of a group what that group holds, and lets the next ones go on.

use alloc::string::String;
use alloc::vec::Vec;

use crate::context::TimerKey;
use crate::formats::identity::Identity;
use crate::group::{Group, reset};
use crate::ids::{GroupId, mix};
use crate::injected_fault::{Fault, injected};
use crate::node::Node;
use crate::shared::coverage::CoveragePoint;

/// Groups short of memory that are asked in one turn; the others are in the next.
const ASKED_MAX: usize = 64;

impl Node {
    /// Every group asks for a permit to start.
    pub(crate) fn start_all(&mut self, entropy: u64, boot: u128) {
        (self.start_entropy, self.boot) = (entropy, boot);
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        ids.into_iter().for_each(|id| self.starts.wait(id));
    }

    /// Before [`crate::Input::Start`]: the group is not taken up in this run, and `why` says so to operators. None of its stores is
    /// asked for anything. Its peer hears who this node was at last, as far as that is known, and that its half has failed.
    pub fn refuse(&mut self, id: GroupId, why: String, recorded: Option<Identity>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.refuse(why, recorded);
    }

    /// What a group holds now, and whether it is still at what it had a permit for.
    pub(crate) fn account_for(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let (before, held) = group.count_memory();
        self.memory.account(group.reserve_bytes(), before, held);
        self.memory_freed |= held < before;
        if group.memory().joins_line() {
            self.coverage.hit(CoveragePoint::MemoryShort);
            self.short_of_memory.push_back(id);
        }
        if let Some((before, now)) = group.count_link_use(false)
            && let Some(link) = self.links.get_mut(&group.peer())
        {
            link.uses(before, now);
        }
        if group.common().lifecycle.stage().is_none() {
            self.starts.release(id);
        } else if reset::wants_start(group) {
            self.starts.wait(id);
        }
        let permit = group.take_permit_events();
        let has_permit = permit.taken || self.syncs.holds(id);
        let shown = group.shown();
        if shown.uses_permit() || shown.keeps_permit() && has_permit {
            // It may have asked for one earlier in this input.
            self.syncs.acquire(self.now.mono, id);
        } else {
            self.syncs.release(id);
            if !group.shown().has_use_for_permit() {
                self.syncs.leave(id);
            }
            if permit.wanted {
                self.coverage.hit(CoveragePoint::SyncWaitedForPermit);
                if !injected(Fault::SyncWaiterForgotten) {
                    self.syncs.wait(id);
                }
            }
        }
    }

    /// Starts those who have a permit; called after every input.
    pub(crate) fn schedule(&mut self) {
        let now = self.now.mono;
        while let Some(id) = self.starts.next(now) {
            // Each group's generation gets a tag of its own.
            let (entropy, boot) = (mix(self.start_entropy, u64::from(id.0)), self.boot);
            self.in_group(id, |g, cx| g.start(cx, entropy, boot));
        }
        while let Some(id) = self.syncs.next(now) {
            self.in_group(id, Group::sync_permitted);
        }
        for (key, frees_at) in
            [(TimerKey::Starts, self.starts.frees_at(now)), (TimerKey::Syncs, self.syncs.frees_at(now))]
        {
            match frees_at {
                Some(at) => self.timers.set(key, at),
                None => self.timers.clear(key),
            }
        }
    }

    /// Memory came free: those who were short of it are asked, in the order in which they ran short.
    pub(crate) fn lend_memory(&mut self) {
        if !core::mem::take(&mut self.memory_freed) {
            return;
        }
        let short = self.short_of_memory.len();
        for _ in 0..short.min(ASKED_MAX) {
            let Some(id) = self.short_of_memory.pop_front() else { return };
            if let Some(group) = self.groups.get_mut(&id) {
                group.memory().leaves_line();
            }
            self.in_group(id, |g, cx| g.memory_freed(cx));
        }
        self.memory_freed |= short > ASKED_MAX;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::formats::identity::Role;
    use crate::{ActivityConfig, GroupConfig, NodeConfig, NodeId, Settings, VolumeConfig, limits};

    fn node_of(groups: u32) -> Node {
        let volume =
            VolumeConfig { size_bytes: 1 << 20, block_bytes: 4096, changed_outside: false, is_detached: false };
        let group = |number| GroupConfig {
            id: GroupId(number),
            tag: u64::from(number),
            peer: NodeId(1),
            starts_as: Role::Primary,
            meets_peer_first: false,
            volumes: vec![volume],
            settings: Settings::default(),
            journal_bytes: limits::JOURNAL_BYTES_DEFAULT,
            window_bytes: limits::WINDOW_BYTES_DEFAULT,
            activity: ActivityConfig::default(),
            history_bytes: limits::HISTORY_BYTES_DEFAULT,
            view_bytes: 0,
            queue_disk_bytes: 0,
            queue_durable: false,
            queue_file: 0,
        };
        Node::new(NodeConfig {
            node: NodeId(0),
            groups: (0..groups).map(group).collect(),
            link_timeout: limits::LINK_TIMEOUT_DEFAULT,
            memory_bytes: limits::MEMORY_BYTES_DEFAULT,
            syncs_at_once: limits::SYNCS_AT_ONCE,
        })
    }

    /// A hundred groups ran short of memory, and some came free once. Those whom the first turn did not ask were not asked in the
    /// next one either: they waited until somebody else gave something back.
    #[test]
    fn all_who_are_short_of_memory_are_asked_when_some_came_free() {
        let mut node = node_of(100);
        for id in (0..100).map(GroupId) {
            node.groups.get_mut(&id).expect("of this node").memory().note(true);
            node.account_for(id);
        }
        assert_eq!(node.short_of_memory.len(), 100);
        node.memory_freed = true;
        let waiting = |node: &Node| node.groups.values().filter(|group| group.common().memory.is_short()).count();
        node.lend_memory();
        assert_eq!(waiting(&node), 100 - ASKED_MAX, "so many are asked in one turn");
        node.lend_memory();
        assert_eq!(waiting(&node), 0);
        node.lend_memory();
        assert!(!node.memory_freed, "nobody is left to ask");
    }
}
