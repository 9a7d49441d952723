//! The nodes of a world, and what their operator holds them for.

pub mod disk;
pub mod ledger;
pub mod node;
pub mod rot;
pub mod storage;
pub mod trouble;
pub mod volumes;

use std::ops::{Index, IndexMut};
use std::rc::Rc;

use engine::identity::Role;
use engine::state::{Broken, State};
use engine::superblock::Superblock;
use engine::{
    CommandId, CommandResult, GroupConfig, GroupId, NodeConfig, NodeId, Store, VolumeConfig, VolumeId, VolumeSet,
    limits, status,
};

use crate::options::SimOptions;
use crate::rng::Rng;
use disk::SimDisk;
use ledger::CommandLedger;
use node::SimNode;
use storage::superblock_in;
use volumes::{DeviceId, NamedVolume, VolumeFile, by_number, first_volumes, numbers_of};

/// The nodes by their numbers. Whoever looks at a world looks here; nothing of it knows of links, checkers or time.
pub struct SimCluster {
    pub options: Rc<SimOptions>,
    nodes: Vec<SimNode>,
    /// Which volumes the operator gives to each group. A node has them once it has taken that up.
    pub file: VolumeFile,
    pub ledger: CommandLedger,
}

impl SimCluster {
    pub fn new(options: SimOptions, rng: &mut Rng) -> SimCluster {
        SimCluster {
            nodes: (0..options.nodes()).map(|id| SimNode::new(id, &options, rng)).collect(),
            file: VolumeFile::new(&options),
            ledger: CommandLedger::new(&options),
            options: Rc::new(options),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &SimNode> {
        self.nodes.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut SimNode> {
        self.nodes.iter_mut()
    }

    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.options.groups()).map(GroupId)
    }

    /// The two members of a group, in order.
    pub fn pair(&self, group: GroupId) -> [usize; 2] {
        self.options.pairs[group.0 as usize]
    }

    /// The other member of a group.
    pub fn other(&self, group: GroupId, node: usize) -> usize {
        let [a, b] = self.pair(group);
        if a == node { b } else { a }
    }

    /// The node that is meant to be a group's primary.
    pub fn primary(&self, group: GroupId) -> usize {
        self.ledger.authority(group)
    }

    /// The other one.
    pub fn secondary(&self, group: GroupId) -> usize {
        self.other(group, self.primary(group))
    }

    /// The groups a node is a member of.
    pub fn groups_of(&self, node: usize) -> Vec<GroupId> {
        self.groups().filter(|group| self.pair(*group).contains(&node)).collect()
    }

    pub fn glance(&self, node: usize, group: GroupId) -> Option<status::GroupGlance> {
        self[node].glance(group)
    }

    /// Promoted in the moment in which the other began a sync, say: it takes none.
    pub fn is_primary(&self, node: usize, group: GroupId) -> bool {
        self.glance(node, group).is_some_and(|glance| glance.identity.role == Role::Primary)
    }

    /// Both ends agree that nothing is under way, and the mode's promise holds.
    pub fn in_step(&self, group: GroupId) -> bool {
        let (p, s) = (self.glance(self.primary(group), group), self.glance(self.secondary(group), group));
        let (Some(p), Some(s)) = (p, s) else { return false };
        p.state == State::Replicating && p.drained && s.drained && s.identity.role == Role::Secondary
    }

    /// The group's present primary and secondary, if both are up and through with starting.
    pub fn working_pair(&self, group: GroupId) -> Option<(usize, usize)> {
        let (primary, secondary) = (self.primary(group), self.secondary(group));
        let (p, s) = (self.glance(primary, group)?, self.glance(secondary, group)?);
        // What could not be opened has read nothing: what it holds for dirty stands on its disk alone.
        if [&p, &s].iter().any(|glance| glance.state == State::Failed(Broken::Device)) {
            return None;
        }
        let roles = (p.identity.role, s.identity.role) == (Role::Primary, Role::Secondary);
        (roles && p.running && s.running && self[primary].serves(group)).then_some((primary, secondary))
    }

    /// The primary serves, and in its order the secondary follows.
    pub fn is_followed(&self, group: GroupId) -> bool {
        let secondary = self.glance(self.secondary(group), group);
        self.glance(self.primary(group), group).is_some_and(|glance| glance.state == State::Replicating)
            && secondary.is_some_and(|glance| glance.running && !glance.identity.inconsistent)
    }

    pub fn rollback_point(&self, node: usize, group: GroupId) -> Option<String> {
        self[node].status_of(group)?.rollback_point.map(|point| point.name)
    }

    /// How large the node has a volume of the group.
    pub fn volume_bytes(&self, node: usize, group: GroupId, number: VolumeId) -> Option<u64> {
        self[node].engine()?.volume_bytes(group, self.position(node, group, number)?)
    }

    // ---- what its volumes are called ---------------------------------------------------------------------------------

    /// The volumes that a group has on a node, in the order of names.
    pub fn volumes(&self, node: usize, group: GroupId) -> Vec<NamedVolume> {
        self[node].volumes(group).map_or_else(|| first_volumes(&self.options, group), <[NamedVolume]>::to_vec)
    }

    /// Their numbers, by position.
    pub fn numbers(&self, node: usize, group: GroupId) -> Vec<VolumeId> {
        match self[node].volumes(group) {
            Some(volumes) => volumes.iter().map(|volume| volume.number).collect(),
            None => (0..self.options.volumes).map(VolumeId).collect(),
        }
    }

    /// Where the engine of a node has a volume, if it has it.
    pub fn position(&self, node: usize, group: GroupId, number: VolumeId) -> Option<VolumeId> {
        match self[node].volumes(group) {
            Some(volumes) => {
                let at = volumes.iter().position(|volume| volume.number == number)?;
                Some(VolumeId(at as u16))
            }
            None => Some(number).filter(|number| number.0 < self.options.volumes),
        }
    }

    /// The numbers of volumes that a node's engine tells of.
    pub fn numbers_of(&self, node: usize, group: GroupId, positions: VolumeSet) -> VolumeSet {
        numbers_of(self[node].volumes(group), positions)
    }

    /// On which devices a volume stands, where a group has others than it began with.
    pub fn devices(&self, group: GroupId, number: VolumeId) -> Option<[DeviceId; 2]> {
        let pair = self.pair(group);
        if pair.iter().all(|node| self[*node].volumes(group).is_none()) {
            return None;
        }
        let of = |member: usize| {
            let volumes = self.volumes(pair[member], group);
            volumes.iter().find(|volume| volume.number == number).map(|volume| volume.devices[member])
        };
        Some([of(0)?, of(1)?])
    }

    /// The disk of a volume, if the node has it.
    pub fn volume_disk(&self, node: usize, group: GroupId, number: VolumeId) -> Option<&SimDisk> {
        Some(self[node].disk(Store::Volume(group, self.position(node, group, number)?)))
    }

    /// The volumes of a group as a reader sees them, by their numbers. One that is not there has no byte.
    pub fn views(&self, node: usize, group: GroupId) -> Vec<&[u8]> {
        by_number(self[node].volumes(group), self[node].views(group))
    }

    /// The same as a loss of power leaves them.
    pub fn durable_volumes(&self, node: usize, group: GroupId) -> Vec<&[u8]> {
        by_number(self[node].volumes(group), self[node].durable_volumes(group))
    }

    /// Volumes that are set aside, as a node shows it.
    pub fn aside(&self, node: usize, group: GroupId) -> VolumeSet {
        let aside = self.glance(node, group).map(|glance| glance.aside).unwrap_or_default();
        self.numbers_of(node, group, aside)
    }

    /// The two nodes of a group define it differently: its halves do not meet.
    pub fn is_apart(&self, group: GroupId) -> bool {
        let pair = self.pair(group);
        if pair.iter().all(|node| self[*node].volumes(group).is_none()) {
            return false;
        }
        let [a, b] = pair.map(|node| self.volumes(node, group));
        !a.iter().map(|volume| volume.name).eq(b.iter().map(|volume| volume.name))
    }

    /// How large its device is.
    pub fn device_bytes(&self, node: usize) -> u64 {
        self.options.volume_bytes + self[node].storage.extra_bytes()
    }

    /// What a node's superblock durably says of a group.
    pub fn record(&self, node: usize, group: GroupId) -> Option<Superblock> {
        superblock_in(self[node].disk(Store::Superblock(group)).durable(), tag_of(group))
    }

    /// The same as a reader sees it.
    pub fn superblock(&self, node: usize, group: GroupId) -> Superblock {
        self.readable_record(node, group).expect("recorded")
    }

    /// What the next start will read of it, unless the power fails before.
    pub fn readable_record(&self, node: usize, group: GroupId) -> Option<Superblock> {
        superblock_in(self[node].disk(Store::Superblock(group)).view(), tag_of(group))
    }

    /// A node has answered a command.
    pub fn command_done(&mut self, node: usize, id: CommandId, result: CommandResult) {
        let node = &self.nodes[node];
        let failed = |group| node.glance(group).is_some_and(|glance| matches!(glance.state, State::Failed(_)));
        self.ledger.command_done(id, result, failed);
    }

    /// A group as a start of it finds it.
    pub fn group_config(&self, node: usize, group: GroupId) -> GroupConfig {
        let o = &self.options;
        // A node whose state directory was emptied must not begin a history of its own.
        let starts_primary = o.first_primary(group.0) == node && !self[node].is_wiped(group);
        GroupConfig {
            id: group,
            tag: tag_of(group),
            peer: NodeId(self.other(group, node) as u16),
            starts_as: if starts_primary { Role::Primary } else { Role::Secondary },
            meets_peer_first: true,
            volumes: (0..self.numbers(node, group).len() as u16)
                .map(|volume| VolumeConfig {
                    size_bytes: self.device_bytes(node),
                    block_bytes: o.block_bytes,
                    changed_outside: self[node].has_changed(group, VolumeId(volume)),
                    is_detached: self[node].storage.is_detached(group, VolumeId(volume)),
                })
                .collect(),
            settings: self.ledger.settings(group),
            journal_bytes: o.journal_bytes,
            window_bytes: o.window_bytes,
            activity: o.activity,
            history_bytes: o.history_bytes,
            view_bytes: o.view_bytes,
            queue_disk_bytes: o.queue_disk_bytes,
            queue_durable: o.queue_durable,
            queue_file: self[node].storage.queue_file,
        }
    }

    pub fn node_config(&self, node: usize) -> NodeConfig {
        NodeConfig {
            node: NodeId(node as u16),
            groups: self.groups_of(node).into_iter().map(|group| self.group_config(node, group)).collect(),
            link_timeout: limits::LINK_TIMEOUT_DEFAULT,
            memory_bytes: self.options.memory_bytes,
            syncs_at_once: self.options.syncs_at_once,
        }
    }
}

/// Of its records.
pub fn tag_of(group: GroupId) -> u64 {
    0x5151 + u64::from(group.0)
}

impl Index<usize> for SimCluster {
    type Output = SimNode;

    fn index(&self, node: usize) -> &SimNode {
        &self.nodes[node]
    }
}

impl IndexMut<usize> for SimCluster {
    fn index_mut(&mut self, node: usize) -> &mut SimNode {
        &mut self.nodes[node]
    }
}
