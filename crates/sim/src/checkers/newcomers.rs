//! Volumes that come to groups: nothing of a device is overwritten before somebody says so (P7), none that nobody has filled is promoted (P2),
//! and what moves with a device from one group to another is what counted in the first (P1).

use std::collections::BTreeMap;

use engine::{GroupId, VolumeId};

use crate::nodes::SimCluster;
use crate::nodes::volumes::DeviceId;
use crate::oracle::{Oracle, OracleFailure};

/// What stood on a device when it came to a secondary.
struct Newcomer {
    content: Vec<u8>,
    /// No group had it before: what stands there is of nobody.
    is_fresh: bool,
    /// Somebody typed that it may be overwritten.
    is_asked_for: bool,
}

/// The devices of a volume on both nodes.
type Devices = [DeviceId; 2];

#[derive(Default)]
pub struct NewcomerChecker {
    secondary: BTreeMap<(GroupId, usize, VolumeId), Newcomer>,
    /// Words for the primary's content that no sync was taken up for yet, and the nodes that remember them.
    words: BTreeMap<(GroupId, VolumeId), usize>,
    /// Volumes that came on a primary whose export has not opened since.
    arrived: BTreeMap<(GroupId, usize, VolumeId), Devices>,
    /// What stood on a primary's device when its volume left its group; and what a primary opened with, where a volume had come.
    left: BTreeMap<Devices, LeftDevice>,
    opened: BTreeMap<Devices, (usize, Vec<u8>)>,
}

/// What counted of a volume when it left a group.
struct LeftDevice {
    node: usize,
    content: Vec<u8>,
    /// The node is secondary in the group to which it goes: there the other one's content would count.
    is_given_up: bool,
}

impl NewcomerChecker {
    pub fn comes(&mut self, group: GroupId, node: usize, number: VolumeId, content: Vec<u8>, is_fresh: bool) {
        let is_asked_for = self.words.contains_key(&(group, number));
        self.secondary.insert((group, node, number), Newcomer { content, is_fresh, is_asked_for });
    }

    pub fn arrives(&mut self, group: GroupId, node: usize, number: VolumeId, devices: Devices) {
        self.opened.remove(&devices);
        self.arrived.insert((group, node, number), devices);
    }

    /// The node has the volume no more, or another disk in its place.
    pub fn is_gone(&mut self, group: GroupId, node: usize, number: VolumeId) {
        self.secondary.remove(&(group, node, number));
        self.arrived.remove(&(group, node, number));
    }

    /// All that is known of a node's copy is void.
    pub fn is_void(&mut self, group: GroupId, node: usize) {
        self.secondary.retain(|(of, at, _), _| (*of, *at) != (group, node));
    }

    /// Somebody said that the primary's content counts: of this volume, or of all.
    pub fn asked_for(&mut self, group: GroupId, number: Option<VolumeId>) {
        for ((of, _, volume), newcomer) in &mut self.secondary {
            newcomer.is_asked_for |= *of == group && number.is_none_or(|number| number == *volume);
        }
    }

    /// The same of one volume, typed at this node. It remembers that until a sync is taken up.
    pub fn word_typed(&mut self, group: GroupId, node: usize, number: VolumeId) {
        self.asked_for(group, Some(number));
        self.words.insert((group, number), node);
    }

    /// A secondary takes a sync up: what comes behind that was not asked for.
    pub fn sync_taken_up(&mut self, group: GroupId) {
        self.words.retain(|(of, _), _| *of != group);
    }

    /// The node died, or the group started anew there.
    pub fn starts_anew(&mut self, node: usize, group: Option<GroupId>) {
        self.words.retain(|(of, _), at| *at != node || group.is_some_and(|group| *of != group));
    }

    /// A volume leaves a group on the node that is its primary. `is_given_up`: that is secondary in the group to which it goes.
    pub fn leaves(
        &mut self,
        node: usize,
        devices: Devices,
        content: Vec<u8>,
        is_given_up: bool,
    ) -> Result<(), OracleFailure> {
        let opened = self.opened.remove(&devices);
        let objects = is_given_up && opened.is_some_and(|(other, opened)| other != node && opened != content);
        self.left.insert(devices, LeftDevice { node, content, is_given_up });
        if objects { Err(other_content(node, devices)) } else { Ok(()) }
    }

    /// A node opens the exports of a group.
    pub fn opens(&mut self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let views = cluster.views(node, group);
        let is_its = |(of, at, _): &(GroupId, usize, VolumeId)| (*of, *at) == (group, node);
        let arrived: Vec<_> =
            self.arrived.iter().filter(|(key, _)| is_its(key)).map(|(key, devices)| (*key, *devices)).collect();
        for (key, devices) in arrived {
            self.arrived.remove(&key);
            let content = views.get(usize::from(key.2.0)).copied().unwrap_or_default();
            // Of two primaries each takes its own along.
            let counts = |left: &LeftDevice| left.node == node || left.is_given_up;
            if self.left.remove(&devices).is_some_and(|left| counts(&left) && left.content != content) {
                return Err(other_content(node, devices));
            }
            self.opened.insert(devices, (node, content.to_vec()));
        }
        Ok(())
    }

    /// A node was promoted: whatever stands there counts from now on.
    pub fn is_promoted(&mut self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let views = cluster.views(node, group);
        for ((of, at, number), newcomer) in &self.secondary {
            let is_there = |number: &VolumeId| views.get(usize::from(number.0)).copied() == Some(&newcomer.content[..]);
            if (*of, *at) == (group, node) && newcomer.is_fresh && is_there(number) {
                let what = format!(
                    "node {node} is promoted in group {} with volume {}, and nobody has filled its device",
                    group.0, number.0
                );
                return Err(OracleFailure::new(Oracle::Prefix, what));
            }
        }
        self.is_void(group, node);
        Ok(())
    }

    /// Nothing of a device is overwritten before somebody says so.
    pub fn look(&mut self, cluster: &SimCluster, group: GroupId) -> Result<(), OracleFailure> {
        for ((of, node, number), newcomer) in &self.secondary {
            if *of != group || newcomer.is_asked_for {
                continue;
            }
            let is_same = cluster
                .volume_disk(*node, group, *number)
                .is_none_or(|disk| disk.view().get(..newcomer.content.len()) == Some(&newcomer.content[..]));
            if !is_same {
                let what = format!(
                    "group {}: the device of volume {} that came on node {node} is overwritten, and nobody typed that it may be",
                    group.0, number.0
                );
                return Err(OracleFailure::new(Oracle::Outside, what));
            }
        }
        Ok(())
    }
}

fn other_content(node: usize, devices: Devices) -> OracleFailure {
    let what = format!(
        "devices {devices:?} moved to another group, and node {node} has other content of it than counted in the first"
    );
    OracleFailure::new(Oracle::OneWriter, what)
}
