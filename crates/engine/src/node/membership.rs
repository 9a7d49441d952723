//! Groups come to the node and leave it while it runs.
//!
//! What a session agreed upon at its beginning holds until its end: a group that comes or leaves ends the session with its peer, and the next
//! one begins with the groups that both nodes then have.

use alloc::string::String;

use crate::context::{GroupTimer, TimerKey};
use crate::formats::identity::Identity;
use crate::group::{Group, reset};
use crate::ids::GroupId;
use crate::node::Node;
use crate::shared::coverage::CoveragePoint;
use crate::shared::link::PeerLink;
use crate::{GroupConfig, Output};

const GROUPS_CHANGED: &str = "a group of the two nodes came or left; the link comes up anew";

impl Node {
    /// They are ignored in frames as those that have left.
    pub(super) fn expect_groups(&mut self, groups: alloc::vec::Vec<GroupId>) {
        for id in groups.into_iter().filter(|id| !self.groups.contains_key(id)) {
            self.gone.entry(id).or_default();
        }
    }

    /// The group starts as at a start of the node. `refused`: it is not taken up, for this reason, and was this at last, as far as that
    /// is known. A group of this number that is here, and a node that stops, leave nothing to do.
    pub(super) fn add_group(&mut self, config: GroupConfig, entropy: u64, refused: Option<(String, Option<Identity>)>) {
        let (id, peer) = (config.id, config.peer);
        if self.stopping || self.groups.contains_key(&id) {
            return;
        }
        self.coverage.hit(CoveragePoint::GroupAdded);
        let mut group = Group::new(self.config.node, config);
        match (self.gone.remove(&id), refused) {
            (Some(Some(left)), refused) => reset::comes_again(&mut group, left, entropy, refused),
            (_, Some((why, recorded))) => group.refuse(why, recorded),
            (_, None) => {}
        }
        self.memory.joins(group.reserve_bytes());
        self.groups.insert(id, group);
        self.start_entropy = entropy;
        self.links.entry(peer).or_insert_with(|| PeerLink::new(peer)).keeps_apart(id);
        self.part_with(peer, GROUPS_CHANGED.into());
        self.starts.wait(id);
    }

    /// The group stops as at a stop of the node; then [`Output::Removed`].
    pub(super) fn remove_group(&mut self, id: GroupId) {
        if self.groups.contains_key(&id) && self.removing.insert(id) {
            self.coverage.hit(CoveragePoint::GroupRemoved);
            self.in_group(id, |g, cx| g.stop(cx));
        }
    }

    /// Groups that have come to rest leave. While the node itself stops they stay: its end is theirs.
    pub(super) fn drop_removed(&mut self) {
        if self.removing.is_empty() || self.stopping {
            return;
        }
        let is_at_rest = |id: &GroupId| {
            let group = self.groups.get(id);
            group.is_none_or(|group| {
                let common = group.common();
                common.lifecycle.has_stopped() && common.slots.are_idle() && !reset::is_closed(group)
            })
        };
        let at_rest: alloc::vec::Vec<GroupId> = self.removing.iter().copied().filter(is_at_rest).collect();
        for id in at_rest {
            self.removing.remove(&id);
            self.drop_group(id);
        }
    }

    fn drop_group(&mut self, id: GroupId) {
        // What it holds, and what it is to its link, is nothing from here on.
        self.account_for(id);
        let Some(mut group) = self.groups.remove(&id) else { return };
        GroupTimer::ALL.into_iter().for_each(|timer| self.timers.clear(TimerKey::Group(id, timer)));
        let (_, held) = group.count_memory();
        self.memory.leaves(group.reserve_bytes(), held);
        self.memory_freed = true;
        self.short_of_memory.retain(|short| *short != id);
        for line in [&mut self.starts, &mut self.syncs] {
            line.release(id);
            line.leave(id);
        }
        let peer = group.peer();
        if let Some((before, now)) = group.count_link_use(true)
            && let Some(link) = self.links.get_mut(&peer)
        {
            link.uses(before, now);
        }
        let is_linked = self.links.get(&peer).is_some_and(|link| link.session.is_some() && !link.is_apart(id));
        self.gone.insert(id, Some(reset::leaves(&group, is_linked)));
        // Others that leave with it still drain in this session; the last of them ends it, or one that comes.
        let others_drain = |other: &GroupId| self.groups.get(other).is_some_and(|group| group.peer() == peer);
        if !self.removing.iter().any(others_drain) {
            self.part_with(peer, GROUPS_CHANGED.into());
        }
        let failed = group.common().has_failed();
        self.outputs.push_back(Output::Removed { group: id, failed });
    }
}
