//! What a node shows of a group is so, or was a moment ago: each claim of `status` is held against the other node's engine and against
//! the disks. An operator acts on such words, and nothing else in a run would object to them.

use std::collections::BTreeMap;

use engine::GroupId;
use engine::identity::Role;
use engine::state::{Mode, State};
use engine::status::{GroupStatus, LinkStatus};

use crate::nodes::SimCluster;
use crate::oracle::{Oracle, OracleFailure};

/// A claim may outlive what made it true for so long: the link is lost without a word, or a frame waits behind a full one.
const CORRECTED_WITHIN_NS: u64 = 30_000_000_000;

#[derive(Default)]
pub struct StatusChecker {
    /// Since when a node claims of a group what is not so.
    untrue: BTreeMap<(GroupId, usize, &'static str), u64>,
}

impl StatusChecker {
    pub fn look(&mut self, cluster: &SimCluster, now: u64, group: GroupId) -> Result<(), OracleFailure> {
        for node in cluster.pair(group) {
            let Some(seen) = SeenGroup::of(cluster, now, group, node) else {
                self.untrue.retain(|(of, at, _), _| (*of, *at) != (group, node));
                continue;
            };
            for (claim, is_made, is_so) in CLAIMS {
                let key = (group, node, *claim);
                if !is_made(&seen) || is_so(&seen) {
                    self.untrue.remove(&key);
                    continue;
                }
                let since = *self.untrue.entry(key).or_insert(now);
                if now - since > CORRECTED_WITHIN_NS {
                    return Err(OracleFailure::new(Oracle::Status, seen.words(claim)));
                }
            }
        }
        Ok(())
    }
}

/// A group as one node shows it, and as its peer does.
struct SeenGroup<'a> {
    cluster: &'a SimCluster,
    now: u64,
    group: GroupId,
    node: usize,
    here: GroupStatus,
    there: Option<GroupStatus>,
}

impl<'a> SeenGroup<'a> {
    /// Nothing is claimed by a node that is down, starts, stops, changes its role, or has failed.
    fn of(cluster: &'a SimCluster, now: u64, group: GroupId, node: usize) -> Option<SeenGroup<'a>> {
        let here = cluster[node].status_of(group)?;
        let runs = cluster.glance(node, group).is_some_and(|glance| glance.running);
        if !runs || matches!(here.state, State::Failed(_)) {
            return None;
        }
        let there = cluster[cluster.other(group, node)].status_of(group);
        Some(SeenGroup { cluster, now, group, node, here, there })
    }

    fn says(&self, words: &str) -> bool {
        self.here.reason.contains(words)
    }

    fn is_primary(&self) -> bool {
        self.here.role == Role::Primary
    }

    fn is_connected(&self) -> bool {
        is_up(&self.here)
    }

    /// Both know of the connection, and the peer is through with its start and changes no role.
    fn hears_peer(&self) -> bool {
        let other = self.cluster.other(self.group, self.node);
        let runs = self.cluster.glance(other, self.group).is_some_and(|glance| glance.running);
        runs && self.is_connected() && self.there.as_ref().is_some_and(is_up)
    }

    fn acts_as_set(&self) -> bool {
        let settings = &self.here.settings;
        let rungs = [Some(settings.mode), settings.ladder().map(|ladder| ladder.mode)];
        rungs.contains(&self.here.acts_as) && (self.here.acts_as == rungs[0]) == self.here.ladder.is_none()
    }

    /// What the peer's role is, on its disk.
    fn peer_role(&self) -> Option<Role> {
        let other = self.cluster.other(self.group, self.node);
        self.cluster.record(other, self.group).map(|record| record.identity.role)
    }

    /// On its disk: given up, and not yet on record.
    fn peer_has_point(&self) -> bool {
        let other = self.cluster.other(self.group, self.node);
        self.cluster.record(other, self.group).is_some_and(|record| record.rollback_point.id != 0)
    }

    fn peer_has_failed(&self) -> bool {
        self.there.as_ref().is_some_and(|there| matches!(there.state, State::Failed(_)))
    }

    /// Where the disk stands still that waits to be recorded.
    fn is_held_in_logging(&self) -> bool {
        let stands_still = self.cluster[self.node].storage.trouble.stalled_until > self.now;
        stands_still || self.cluster.record(self.node, self.group).is_none_or(|record| record.held_in_logging)
    }

    fn words(&self, claim: &str) -> String {
        let (here, there) = (&self.here, self.there.as_ref());
        let seconds = CORRECTED_WITHIN_NS / 1_000_000_000;
        let peer = there.map(|there| (there.role, there.state, there.peer.link, there.promotable));
        format!(
            "node {} group {}: for {seconds} s and more it is not so that {claim}: {:?} {:?}, link {:?}, shows its peer as {:?} with {:?}, \
             reason '{}'; the peer: {peer:?}",
            self.node,
            self.group.0,
            here.role,
            here.state,
            here.peer.link,
            here.peer.role,
            here.peer.recovery_point,
            here.reason
        )
    }
}

fn is_up(status: &GroupStatus) -> bool {
    matches!(status.peer.link, LinkStatus::Connected | LinkStatus::Congested)
}

/// A claim in words, whether it is made, and whether it is so.
type StatusClaim = (&'static str, fn(&SeenGroup) -> bool, fn(&SeenGroup) -> bool);

const CLAIMS: &[StatusClaim] = &[
    (
        "both nodes are primary",
        |s| s.says("both nodes are primary"),
        |s| s.is_connected() && (!s.hears_peer() || s.peer_role() != Some(Role::Secondary)),
    ),
    ("the peer is connected", |s| s.says("the peer is connected, but"), |s| s.is_connected()),
    ("the peer's half has not answered", |s| s.says("half of the group has not answered"), |s| !s.hears_peer()),
    (
        "the peer handed over to this node",
        |s| s.says("the peer handed over to this node"),
        |s| !s.is_primary() && (!s.hears_peer() || s.peer_role() == Some(Role::Secondary)),
    ),
    ("it acts as the mode that is set, or as that falls back to", |s| s.is_primary(), |s| s.acts_as_set()),
    ("the mode is logging", |s| s.says("mode is logging"), |s| s.here.settings.mode == Mode::Logging),
    (
        "an operator holds it in logging",
        |s| s.says("operator asked for logging") || s.says("operator holds"),
        |s| s.is_held_in_logging(),
    ),
    ("autosync is off", |s| s.says("autosync is off"), |s| !s.here.settings.autosync),
    (
        "it stands in line for a permit",
        |s| s.is_primary() && s.says("waiting for its turn"),
        |s| s.here.sync_position.is_some(),
    ),
    ("the peer has failed", |s| s.says("the peer reports that its half"), |s| !s.hears_peer() || s.peer_has_failed()),
    (
        "the peer is waited for",
        |s| s.is_primary() && s.says("waiting for the peer"),
        |s| !s.hears_peer() || s.here.peer.role.is_none(),
    ),
    (
        "the peer has the role that is shown",
        |s| s.here.peer.role.is_some() && s.hears_peer() && !s.peer_has_failed(),
        |s| s.here.peer.role == s.peer_role(),
    ),
    (
        "the peer could present the recovery point",
        |s| s.is_primary() && s.here.peer.recovery_point.is_some() && s.hears_peer() && s.here.peer.role.is_some(),
        |s| {
            let lacks = |there: &GroupStatus| there.role == Role::Secondary && there.promotable.is_none();
            !s.there.as_ref().is_some_and(lacks) || s.peer_has_point()
        },
    ),
];
