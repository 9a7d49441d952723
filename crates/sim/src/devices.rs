//! Devices of unequal sizes, and such that an operator enlarges while their node is down. What every judge looks at is what all of them
//! held at the beginning, and clients write nothing else. What the group has beyond that is held against its dirty regions like
//! the rest, and compared at rest.

use engine::{GroupId, Store, VolumeId};

use crate::oracle::{Failure, Oracle};
use crate::world::World;

/// A larger device holds no zeroes at its end, and not the same on both nodes.
const FILLINGS: [u8; 2] = [0x77, 0xee];

/// The node is down for so long while its device is enlarged.
const ENLARGED_WITHIN_NS: u64 = 200_000_000;

impl World {
    /// A node starts: its devices have the size that the operator gave them since.
    pub fn takes_up_devices(&mut self, node: usize) {
        let (volumes, volume_bytes) = (self.options.volumes, self.options.volume_bytes);
        let sim = &mut self.nodes[node];
        let more = std::mem::take(&mut sim.grows_bytes) as usize;
        if more == 0 {
            return;
        }
        sim.extra_bytes += more as u64;
        sim.image_bytes = self.options.image_bytes() as usize;
        let bitmap = engine::bitmap_file_bytes((0..volumes).map(|_| volume_bytes + sim.extra_bytes)) as usize;
        for (store, disk) in &mut sim.disks {
            match store {
                Store::Volume(..) => disk.grow(more, FILLINGS[node % 2]),
                Store::Bitmap(_) => disk.grow(bitmap.saturating_sub(disk.size()), 0),
                _ => {}
            }
        }
        let bytes = self.nodes[node].extra_bytes;
        self.log(format_args!("the devices of node {node} hold {bytes} bytes more than at least"));
    }

    /// How large the node has a volume of the group.
    pub fn volume_bytes(&self, node: usize, group: GroupId, volume: VolumeId) -> Option<u64> {
        self.nodes[node].engine.as_ref()?.volume_bytes(group, volume)
    }

    /// A node whose device is smaller than the group's volumes gets a larger one. True: one is on its way.
    pub fn enlarges_what_is_too_small(&mut self, group: GroupId) -> bool {
        let pair = self.options.pairs[group.0 as usize];
        let bytes = pair.iter().filter_map(|node| self.volume_bytes(*node, group, VolumeId(0))).max().unwrap_or(0);
        let device = |world: &World, node: usize| world.options.volume_bytes + world.nodes[node].extra_bytes;
        let Some(node) = pair.into_iter().find(|node| device(self, *node) < bytes) else { return false };
        self.nodes[node].grows_bytes = bytes - device(self, node);
        self.crash(node, false, ENLARGED_WITHIN_NS);
        true
    }

    /// At rest both nodes hold the same of the group's volumes, also where they are larger than they began (P5).
    pub fn check_larger_part(&mut self, group: GroupId) {
        let pair = self.options.pairs[group.0 as usize];
        let primary = self.operator.authority(group);
        for volume in (0..self.options.volumes).map(VolumeId) {
            let Some(end) = self.volume_bytes(primary, group, volume) else { return };
            let (from, end) = (self.options.image_bytes() as usize, end as usize);
            let of = |node: usize| self.nodes[node].disks[&Store::Volume(group, volume)].view().get(from..end);
            let [a, b] = pair.map(of);
            if self.options.spread.is_none() && (a.is_none() || a != b) {
                let what =
                    format!("group {} volume {} differs at rest behind byte {from}, of {end}", group.0, volume.0);
                return self.fail(Failure::new(Oracle::Equality, what));
            }
        }
    }
}
