//! The first sync of a wide volume would take hours: both nodes begin as they would be after it, with records that a small
//! world of the same kind left at a clean stop, and bitmaps of the true size without a bit in them.

use std::rc::Rc;

use engine::bitmap::{self, BitmapCell, REGIONS_PER_CELL};
use engine::cell::{self, CELL_BYTES, CellHead};
use engine::limits::SAVE_UNIT_BYTES;
use engine::superblock::Superblock;
use engine::{GroupId, Input, NodeId, Store, VolumeId};

use super::{SECOND, Simulation};
use crate::nodes::disk::SimDisk;
use crate::options::SimOptions;
use crate::world::{FirstRecords, World};

/// A bitmap file of so many bytes is not held in memory.
const MADE_BYTES_MIN: u64 = 64 << 20;

/// What the nodes of a world with wide volumes begin with; none where no volume is wide.
pub fn first_records(options: &SimOptions) -> FirstRecords {
    if options.spread.is_none() {
        return Vec::new();
    }
    let small = SimOptions { volume_bytes: 2 * SAVE_UNIT_BYTES, spread: None, block_bytes: 4096, ..options.clone() };
    let (mut simulation, group) = (Simulation::new(small, false), GroupId(0));
    while !simulation.world.cluster.in_step(group) {
        let now = simulation.world.now();
        assert!(simulation.world.verdict().is_ok() && now < 300 * SECOND, "two small nodes do not come in step");
        simulation.pass(SECOND / 2);
    }
    for node in 0..2 {
        simulation.world.input(node, Input::Stop);
    }
    let mut left: [Option<FirstRecords>; 2] = [None, None];
    while left.iter().any(Option::is_none) {
        assert!(simulation.world.now() < 600 * SECOND, "two small nodes do not stop");
        simulation.pass(SECOND / 20);
        for (node, left) in left.iter_mut().enumerate() {
            if !simulation.world.cluster[node].up() && left.is_none() {
                *left = Some(records_of(&simulation.world, options, node, group));
            }
        }
    }
    left.into_iter().flatten().flatten().collect()
}

/// What a node that was stopped keeps. Without a rollback point nothing of the undo store is read.
fn records_of(world: &World, options: &SimOptions, node: usize, group: GroupId) -> FirstRecords {
    let content = |store: Store| world.cluster[node].disk(store).view().to_vec();
    let same = |store: Store| (node, store, SimDisk::new(content(store)));
    // What they are to be records of is larger.
    let sb = Superblock { sizes: Vec::new(), ..world.cluster.superblock(node, group) };
    let (mut superblock, newest) = (content(Store::Superblock(group)), sb.encode());
    superblock[sb.slot_offset() as usize..][..newest.len()].copy_from_slice(&newest);
    vec![
        (node, Store::Superblock(group), SimDisk::new(superblock)),
        same(Store::Activity(group)),
        same(Store::Journal(group)),
        (node, Store::Bitmap(group), clean_bitmap(options, sb)),
    ]
}

/// A bitmap file without a bit, as if each cell had been written five times. Of a few volumes of 16 TiB it has gigabytes, of which next to
/// nothing is ever written.
fn clean_bitmap(options: &SimOptions, sb: Superblock) -> SimDisk {
    let size = options.volume_bytes;
    let cells = (engine::bitmap_file_bytes([size].into_iter()) / CELL_BYTES) as usize;
    let make = move |page: usize| {
        let (volume, index) = (VolumeId((page / cells) as u16), (page % cells) as u64);
        let body = BitmapCell::encode(volume, size, index * REGIONS_PER_CELL, sb.confirmed, &[]);
        let (node, peer, tag, offset): (NodeId, NodeId, u64, u64) =
            (sb.node, sb.peer, sb.tag, page as u64 * CELL_BYTES);
        let slot = |update| {
            let head = CellHead { node, peer, tag, update, offset, ..CellHead::default() };
            cell::encode(bitmap::KIND, &head, &body)
        };
        let page: Vec<u8> = [4, 5].map(slot).concat();
        assert_eq!(page.len() as u64, CELL_BYTES, "a bitmap is whole cells");
        page
    };
    let pages = cells * usize::from(options.volumes);
    if pages as u64 * CELL_BYTES < MADE_BYTES_MIN {
        return SimDisk::new((0..pages).flat_map(make).collect());
    }
    SimDisk::made(CELL_BYTES as usize, pages, Rc::new(make))
}
