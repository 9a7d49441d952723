//! What groups of one node share: its memory, and turns at what only a few may do at once. The node settles after every
//! input of a group what that group holds, and lets the next ones go on.

use alloc::string::String;
use alloc::vec::Vec;

use crate::context::{Cx, TimerKey};
use crate::formats::identity::{Decision, Identity, Role};
use crate::formats::superblock::Superblock;
use crate::group::Group;
use crate::ids::{GroupId, mix};
use crate::node::Node;
use crate::planted::{Fault, planted};
use crate::records::start::CannotStart;
use crate::shared::lifecycle::StartStage;
use crate::shared::marks::Mark;
use crate::state::{Broken, State};

/// Groups short of memory that are asked in one turn; the others are in the next.
const ASKED_MAX: usize = 64;

impl Node {
    /// Every group asks for a turn to start.
    pub(crate) fn start_all(&mut self, entropy: u64, boot: u128) {
        (self.start_entropy, self.boot) = (entropy, boot);
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        ids.into_iter().for_each(|id| self.starts.wait(id));
    }

    /// Before [`crate::Input::Start`]: the group is not taken up in this run, and `why` says so to operators. None of its stores is
    /// asked for anything. Its peer hears who this node was at last, as far as that is known, and that its half has failed.
    pub fn refuse(&mut self, id: GroupId, why: String, recorded: Option<Identity>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        assert!(group.common.lifecycle.is_at(StartStage::Idle), "it has not begun to start");
        group.refused = Some(why);
        if let Some(identity) = recorded {
            group.common.sb.take_up(Superblock { identity, ..Superblock::default() }, identity);
        }
    }

    /// What a group holds now, and whether it is still at what it had a turn for.
    pub(crate) fn settle(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let held = group.held_bytes();
        let before = core::mem::replace(&mut group.counted_bytes, held);
        self.memory.account(group.reserve_bytes, before, held);
        self.memory_freed |= held < before;
        if group.common.memory.joins_line() {
            self.marks.hit(Mark::MemoryShort);
            self.short_of_memory.push_back(id);
        }
        let link_use = group.primary.peer.link_use(&group.common);
        if link_use != group.counted_use {
            let before = core::mem::replace(&mut group.counted_use, link_use);
            if let Some(link) = self.links.get_mut(&group.common.config.peer) {
                link.uses(before, link_use);
            }
        }
        if !group.common.lifecycle.stage().is_some() {
            self.starts.leave(id);
        }
        if group.common.state == State::Syncing {
            self.syncs.enter(self.now.mono, id);
        } else {
            self.syncs.leave(id);
            if group.primary.peer.take_want_of_turn() {
                self.marks.hit(Mark::SyncWaitedForTurn);
                if !planted(Fault::TurnForgotten) {
                    self.syncs.wait(id);
                }
            }
        }
    }

    /// Lets those in whose turn it is; called after every input.
    pub(crate) fn give_turns(&mut self) {
        let now = self.now.mono;
        while let Some(id) = self.starts.next(now) {
            // Each group's generation gets a tag of its own.
            let (entropy, boot) = (mix(self.start_entropy, u64::from(id.0)), self.boot);
            self.in_group(id, |g, cx| {
                if g.common.lifecycle.is_at(StartStage::Idle) {
                    match g.refused.take() {
                        Some(why) => g.start_failed(cx, CannotStart::new(Broken::Device, why)),
                        None => g.primary.peer.start(&mut g.common, cx, entropy, boot),
                    }
                }
            });
        }
        while let Some(id) = self.syncs.next(now) {
            self.in_group(id, Group::turn_to_sync);
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
                group.common.memory.leaves_line();
            }
            self.in_group(id, |g, cx| g.memory_freed(cx));
        }
        self.memory_freed |= short > ASKED_MAX;
    }
}

impl Group {
    /// Begins a sync that an operator typed; what he is told.
    pub fn begins(&mut self, cx: &mut Cx, full: bool) -> &'static str {
        let begins = self.primary.sync_in_turn(&mut self.common, cx, full);
        self.bits_saved(cx);
        if !begins {
            return "the sync begins by itself when it is its turn: other groups of this node are syncing";
        }
        if full || self.primary.peer.syncs() {
            "sync began"
        } else {
            "the sync begins as soon as it is settled what the peer holds"
        }
    }

    /// A place for a sync is this group's, if it still has use for it.
    fn turn_to_sync(&mut self, cx: &mut Cx) {
        if self.primary.peer.waits_to_resume(&self.common) && self.primary.peer.syncs() {
            return self.primary.peer.resume(&mut self.common, cx);
        }
        let may = self.common.role() == Role::Primary
            && self.common.lifecycle.is_running()
            && !matches!(self.common.state, State::Failed(_))
            && self.common.greeting.hello().is_some_and(|h| !h.failed)
            && !matches!(self.primary.peer.decision(&self.common), None | Some(Decision::Refuse(_)));
        if may && self.primary.peer.full_is_wanted(&self.common) {
            self.primary.sync_in_turn(&mut self.common, cx, true);
        } else if self.common.state == State::Logging {
            self.primary.try_autosync(&mut self.common, cx);
        }
        self.bits_saved(cx);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::{ActivityConfig, GroupConfig, NodeConfig, NodeId, Settings, VolumeConfig, limits};

    fn node_of(groups: u32) -> Node {
        let volume = VolumeConfig { size_bytes: 1 << 20, block_bytes: 4096, changed_outside: false };
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
            node.groups.get_mut(&id).expect("of this node").common.memory.note(true);
            node.settle(id);
        }
        assert_eq!(node.short_of_memory.len(), 100);
        node.memory_freed = true;
        let waiting = |node: &Node| node.groups.values().filter(|group| group.common.memory.is_short()).count();
        node.lend_memory();
        assert_eq!(waiting(&node), 100 - ASKED_MAX, "so many are asked in one turn");
        node.lend_memory();
        assert_eq!(waiting(&node), 0);
        node.lend_memory();
        assert!(!node.memory_freed, "nobody is left to ask");
    }
}
