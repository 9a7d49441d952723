//! A group that was not taken up: what its records say of its volumes, as nobody else knows.

use std::path::Path;

use engine::activity::{self, ActivityCell};
use engine::bitmap::{self, BitmapCell};
use engine::cell::{CELL_BYTES, CellKind, choose};
use engine::limits::REGION_BYTES;
use engine::status::GroupStatus;
use engine::superblock::Superblock;
use engine::{Bitmap, VolumeId};
use settings::ConfiguredGroup;

use super::{Desk, beside};
use crate::daemon::group_directory::{self, GROUPS};
use crate::daemon::state_files;

/// A group's records as they stand in its state directory.
struct Records {
    superblock: Superblock,
    dirty_bytes: Vec<u64>,
}

/// `now`, as the data thread says; of a group that was not taken up that says nothing of its volumes.
pub(super) async fn as_recorded(desk: &Desk, group: &ConfiguredGroup, mut now: GroupStatus) -> GroupStatus {
    if desk.refused.why(group.name.as_str()).is_none() {
        return now;
    }
    let config = desk.config();
    let here = config.node(&desk.node).expect("the node was looked up before");
    let directory = here.state.join(GROUPS).join(group.name.as_str());
    let (tag, extent_bytes) = (config.group_tag(group), state_files::activity(group).extent_bytes);
    let Some(records) = beside(move || Records::read(&directory, tag, extent_bytes)).await else { return now };
    let Records { superblock, dirty_bytes } = records;
    for ((id, volume), dirty_bytes) in (0..).map(VolumeId).zip(&mut now.volumes).zip(dirty_bytes) {
        volume.is_aside = superblock.aside.contains(id);
        volume.is_detached = superblock.detached.contains(id);
        volume.is_unfilled = superblock.unfilled.contains(id);
        volume.dirty_bytes = dirty_bytes;
    }
    now
}

impl Records {
    /// `None`: they cannot be read.
    fn read(directory: &Path, tag: u64, extent_bytes: u64) -> Option<Records> {
        let superblock = group_directory::recorded(directory, tag)?;
        let bits = std::fs::read(directory.join("bitmap")).ok()?;
        let log = if superblock.clean { Vec::new() } else { std::fs::read(directory.join("activity")).ok()? };
        let dirty_bytes = dirty_bytes(&superblock.sizes, tag, (&bits, &log), extent_bytes);
        Some(Records { superblock, dirty_bytes })
    }
}

/// Of each volume, as a start would find it: stored regions, and the extents that were being written if the last stop was not clean. With a
/// part of either file lost all may differ.
fn dirty_bytes(sizes: &[u64], tag: u64, (bits, log): (&[u8], &[u8]), extent_bytes: u64) -> Vec<u64> {
    let mut maps: Vec<Bitmap> = sizes.iter().map(|size_bytes| Bitmap::new(*size_bytes)).collect();
    let mut is_whole = each_cell(bitmap::KIND, tag, bits, |body| {
        let Ok(found) = BitmapCell::decode(body) else { return false };
        let map = maps.get_mut(usize::from(found.volume.0));
        let dirty = |(at, word): (usize, &u64)| {
            let base = found.first_region.saturating_add(at as u64 * 64);
            (0..64).filter(|bit| word >> bit & 1 == 1).map(|bit| base.saturating_add(bit)).collect::<Vec<_>>()
        };
        let found = found.words.iter().enumerate().flat_map(dirty);
        map.is_none_or(|map| sets_all(map, found))
    });
    is_whole &= each_cell(activity::KIND, tag, log, |body| {
        let Ok(found) = ActivityCell::decode(body) else { return false };
        found.extents.iter().all(|extent| {
            let Some(map) = maps.get_mut(usize::from(extent.volume.0)) else { return true };
            let regions = map.size_bytes().div_ceil(REGION_BYTES);
            let at = |number: u64| number.saturating_mul(extent_bytes / REGION_BYTES).min(regions);
            sets_all(map, at(extent.number)..at(extent.number.saturating_add(1)))
        })
    });
    match is_whole {
        true => maps.iter().map(Bitmap::dirty_bytes).collect(),
        false => sizes.to_vec(),
    }
}

/// False: one of them is none of the volume's.
fn sets_all(map: &mut Bitmap, regions: impl Iterator<Item = u64>) -> bool {
    let count = map.size_bytes().div_ceil(REGION_BYTES);
    let mut are_within = true;
    for region in regions {
        are_within &= region < count;
        if region < count {
            map.set(region);
        }
    }
    are_within
}

/// What counts in each cell goes to `take`; false: one of them is lost, or `take` said so.
fn each_cell(kind: CellKind, tag: u64, file: &[u8], mut take: impl FnMut(&[u8]) -> bool) -> bool {
    let cells = file.chunks(CELL_BYTES as usize).enumerate();
    let found = cells.map(|(at, bytes)| choose(kind, tag, at as u64 * CELL_BYTES, bytes));
    found.fold(true, |is_whole, choice| match choice.newest {
        Ok((_, body)) if !choice.ambiguous => take(body) && is_whole,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use engine::Incarnation;
    use engine::activity::{Extent, encode_slots};
    use engine::bitmap::REGIONS_PER_CELL;
    use engine::cell::{CellHead, encode};
    use engine::identity::Confirmed;

    use super::*;

    const TAG: u64 = 7;
    const EXTENT_BYTES: u64 = 4 << 20;

    fn cell(kind: CellKind, body: &[u8]) -> Vec<u8> {
        let slot = |update| encode(kind, &CellHead { update, tag: TAG, ..CellHead::default() }, body);
        [slot(2), slot(1)].concat()
    }

    #[test]
    fn what_a_start_would_find_dirty_is_counted_from_the_files() {
        let size = 16 * EXTENT_BYTES - 512;
        assert!(size.div_ceil(REGION_BYTES) < REGIONS_PER_CELL);
        let mut map = Bitmap::new(size);
        [0, 3, size.div_ceil(REGION_BYTES) - 1].into_iter().for_each(|region| _ = map.set(region));
        let bits = cell(bitmap::KIND, &BitmapCell::encode(VolumeId(0), size, 0, Confirmed::default(), &map.cell(0)));
        let stored = 3 * REGION_BYTES - 512;
        let of = |bits: &[u8], log: &[u8]| dirty_bytes(&[size, EXTENT_BYTES], TAG, (bits, log), EXTENT_BYTES);
        assert_eq!(of(&bits, &[]), [stored, 0], "a clean stop");
        let extents = [(0, 2), (1, 0)].map(|(volume, number)| Some(Extent { volume: VolumeId(volume), number }));
        let log = encode_slots(Incarnation(4), Confirmed::default(), extents.into_iter());
        let mut log = cell(activity::KIND, &log);
        assert_eq!(of(&bits, &log), [stored + EXTENT_BYTES, EXTENT_BYTES]);
        (0..4).for_each(|copy| log[copy * engine::cell::BYTES + 60] ^= 1);
        assert_eq!(of(&bits, &log), [size, EXTENT_BYTES], "nobody knows what was being written");
    }
}
