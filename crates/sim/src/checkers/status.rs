//! What a node shows of its peer is so: what `status` says of a peer that is connected comes true, or is corrected, within the time that
//! a frame may take. An operator acts on such words; nothing else in a run would object to them.

use std::collections::BTreeMap;

use engine::GroupId;
use engine::identity::Role;
use engine::state::State;
use engine::status::{Glance, GroupStatus, LinkStatus};

use crate::nodes::SimCluster;
use crate::oracle::{Failure, Oracle};

/// A frame waits behind a full link, or for a connection that is dead to be noticed, and no longer than this.
const CORRECTED_WITHIN_NS: u64 = 60_000_000_000;

#[derive(Default)]
pub struct StatusChecker {
    /// Since when a node shows of a group what is not so.
    untrue: BTreeMap<(GroupId, usize), u64>,
}

impl StatusChecker {
    pub fn look(&mut self, cluster: &SimCluster, now: u64, group: GroupId) -> Result<(), Failure> {
        for node in cluster.pair(group) {
            let Some(words) = untrue_words(cluster, group, node) else {
                self.untrue.remove(&(group, node));
                continue;
            };
            let since = *self.untrue.entry((group, node)).or_insert(now);
            if now - since > CORRECTED_WITHIN_NS {
                let seconds = (now - since) / 1_000_000_000;
                let what = format!("node {node} group {}: for {seconds} s {words}", group.0);
                return Err(Failure::new(Oracle::Status, what));
            }
        }
        Ok(())
    }
}

/// What the node shows of a peer that it is connected to, and is not so.
fn untrue_words(cluster: &SimCluster, group: GroupId, node: usize) -> Option<String> {
    let other = cluster.other(group, node);
    let (here, there) = (cluster.glance(node, group)?, cluster.glance(other, group)?);
    let speaks = |glance: &Glance| glance.running && !matches!(glance.state, State::Failed(_));
    if !speaks(&here) || !speaks(&there) {
        // Who starts, stops or changes its role speaks later; of one that failed while a role was recorded nobody knows it.
        return None;
    }
    let (shown, peers) = (cluster[node].status_of(group)?, cluster[other].status_of(group)?);
    let is_connected = |status: &GroupStatus| status.peer.link == LinkStatus::Connected;
    if !is_connected(&shown) || !is_connected(&peers) {
        return None;
    }
    let role = there.identity.role;
    if shown.peer.role.is_some_and(|said| said != role) {
        return Some(format!("its connected peer is shown as {:?} and is {role:?}", shown.peer.role));
    }
    let both_primary = role == Role::Primary && here.identity.role == Role::Primary;
    let says_both = shown.reason.contains("both nodes are primary");
    (says_both && !both_primary).then(|| format!("it says '{}', and its connected peer is {role:?}", shown.reason))
}
