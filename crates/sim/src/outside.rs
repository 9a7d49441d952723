//! Somebody else writes to a volume while its node is stopped cleanly: an administrator mounts it, restores it, or copies
//! something over it. The host finds that at the next start, and until a start is on record at each one after it.

use engine::identity::Role;
use engine::superblock::Superblock;
use engine::{GroupId, Store, VolumeId, superblock};

use crate::disk::SECTOR;
use crate::judge::{Fill, content};
use crate::world::World;

/// A stamp that no client's write has.
const FOREIGN: u64 = 1 << 60;

/// A clean stop that was asked for.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// For so long the node is down.
    pub down_ns: u64,
    /// What is written meanwhile.
    pub outside: Vec<Outside>,
}

/// A range of a volume: its first sector, and how many.
#[derive(Clone, Copy, Debug)]
pub struct Outside {
    pub group: GroupId,
    pub volume: VolumeId,
    pub first: u64,
    pub sectors: u64,
}

impl World {
    /// The node has stopped cleanly; its volumes are written.
    pub fn written_from_outside(&mut self, node: usize, outside: &[Outside]) {
        for Outside { group, volume, first, sectors } in outside.iter().copied() {
            // After any other stop nobody can tell (docs/reliability.md, P7).
            if !self.stopped_cleanly(node, group) {
                continue;
            }
            self.next_request += 1;
            let fill = Fill::Stamp(FOREIGN + self.next_request);
            let bytes = content(fill, volume, first..first + sectors);
            self.log(format_args!(
                "somebody writes {sectors} sectors of volume {} of node {node} from {first} on",
                volume.0
            ));
            let disk = self.nodes[node].disks.get_mut(&Store::Volume(group, volume)).expect("every store has a disk");
            disk.goes_astray(first as usize * SECTOR, &bytes);
            self.nodes[node].changed.insert((group, volume));
            self.nodes[node].lost_images.insert(group);
            // Whatever it was, its copy is not that any more.
            self.watch.forget(group, node);
            if self.record_of(node, group).is_some_and(|found| found.identity.role == Role::Primary) {
                self.watch.changed_outside(group, node);
            }
            if self.operator.authority(group) == node {
                self.judge.changed_outside(group, volume, first, &bytes);
            } else {
                self.judge.promises_void(group);
            }
        }
    }

    /// It is on record that nothing was under way.
    fn stopped_cleanly(&self, node: usize, group: GroupId) -> bool {
        self.record_of(node, group).is_some_and(|found| found.clean)
    }

    fn record_of(&self, node: usize, group: GroupId) -> Option<Superblock> {
        let file = self.nodes[node].disks[&Store::Superblock(group)].durable();
        let read = superblock::read(file, self.group_config(node, group).tag);
        read.ok().and_then(|read| read.found)
    }

    /// A start is on record: what it found changed is no news any more.
    pub fn change_is_recorded(&mut self, node: usize, group: GroupId) {
        self.nodes[node].changed.retain(|(of, _)| *of != group);
        let primary = self.glance(node, group).is_some_and(|glance| glance.identity.role == Role::Primary);
        if primary {
            self.nodes[node].lost_images.remove(&group);
        }
    }
}
