//! Groups get other volumes (docs/book/decisions/0068-other-volumes.md). The operator changes the file, and each node takes that up between a
//! clean stop and a start. The engine's own code converts the records. What a daemon does with files is done here with disks: all that is new
//! is written beside, then one step is taken, then each record takes its place.

use engine::identity::Role;
use engine::journal::INDEX_BYTES;
use engine::other_volumes::{
    FoundCells, KeptBatches, Lost, Obstacle, VolumeMap, converted, counts_under, obstacle, superblock_file,
};
use engine::superblock::Superblock;
use engine::{GroupId, Store, VolumeId, cell};

use super::World;
use crate::nodes::disk::SimDisk;
use crate::nodes::node::ChangedRecord;
use crate::nodes::volumes::{DeviceId, NamedVolume};
use crate::nodes::{SimCluster, tag_of};

/// No client's write has such a stamp.
const FRESH: u64 = 0x6e65_7700_0000_0000;

/// What a device holds that nobody had before. No two of them hold the same.
fn fresh_content(node: usize, device: DeviceId, bytes: usize) -> Vec<u8> {
    let word = FRESH | u64::from(device) << 8 | node as u64;
    word.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// Why a node does not take up what the file says of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Obstacle(Obstacle),
    /// A device held the other node's content where it was before.
    OtherRole,
    /// A volume would stand on another device than the recorded one; or its clients would find another one's content under a new name, which is
    /// seen at once.
    OtherDevice,
}

/// What a group is to be on a node, beside its volumes. All is written, and the step has not been taken.
struct Prepared {
    group: GroupId,
    records: Vec<ChangedRecord>,
    volumes: Vec<NamedVolume>,
}

/// The node takes up what the file says now of each of its groups, or nothing of it. It has stopped cleanly. `most`: it dies when so many
/// records have taken their places.
///
/// # Errors
/// Which group cannot be converted now, and why.
pub fn takes_up(world: &mut World, node: usize, most: usize) -> Result<(), (GroupId, Refusal)> {
    finishes(world, node, usize::MAX);
    let changes = |group: &GroupId| !has_taken_up(&world.cluster, node, *group);
    let groups: Vec<GroupId> = world.cluster.groups_of(node).into_iter().filter(changes).collect();
    for group in &groups {
        if world.cluster[node].storage.removes(Store::Delta(*group)) {
            let kept = world.cluster.other(*group, node);
            world.checkers.forks.delta_is_moved(*group, kept);
            world.log(format_args!("the operator moves the delta of group {} on node {node} away", group.0));
        }
    }
    let prepared: Result<Vec<Prepared>, _> =
        groups.iter().map(|group| prepare(&world.cluster, node, *group).map_err(|why| (*group, why))).collect();
    // From here on what was prepared counts.
    let mut volumes = Vec::new();
    for prepared in prepared? {
        world.cluster[node].takes_place_mut().extend(prepared.records);
        volumes.push((prepared.group, prepared.volumes));
    }
    if !volumes.is_empty() {
        world.cluster[node].takes_place_mut().push(ChangedRecord::Volumes(volumes));
    }
    finishes(world, node, most);
    Ok(())
}

/// The node has the volumes that the file gives to the group.
pub fn has_taken_up(cluster: &SimCluster, node: usize, group: GroupId) -> bool {
    cluster.volumes(node, group) == cluster.file.of(group)
}

fn member(cluster: &SimCluster, node: usize, group: GroupId) -> usize {
    usize::from(cluster.pair(group)[0] != node)
}

fn prepare(cluster: &SimCluster, node: usize, group: GroupId) -> Result<Prepared, Refusal> {
    let (before, now) = (cluster.volumes(node, group), cluster.file.of(group).to_vec());
    // Nothing was ever recorded of the group, or it was taken away.
    let Some(sb) = cluster.readable_record(node, group) else {
        return Ok(Prepared { group, records: Vec::new(), volumes: now });
    };
    let at = member(cluster, node, group);
    let device = |volume: &NamedVolume| volume.devices[at];
    let stays = |then: &NamedVolume| now.iter().find(|volume| volume.name == then.name);
    if before.iter().any(|then| stays(then).is_some_and(|volume| device(volume) != device(then))) {
        return Err(Refusal::OtherDevice);
    }
    let names = |volumes: &[NamedVolume]| volumes.iter().map(|volume| volume.name).collect::<Vec<_>>();
    let (map, renamed) = VolumeMap::of_names(&names(&before), &names(&now), |then, volume| {
        device(&before[then]) == device(&now[volume])
    });
    let is_mistaken = |(volume, from): (&NamedVolume, Option<VolumeId>)| {
        from.is_some_and(|from| volume.number != before[usize::from(from.0)].number && is_renamed(volume, &before))
    };
    if sb.identity.role == Role::Primary && now.iter().zip(map.positions()).any(is_mistaken) {
        return Err(Refusal::OtherDevice);
    }
    let map = map.with_renamed(&renamed);
    obstacle(&sb, &map, false).map_or(Ok(()), |obstacle| Err(Refusal::Obstacle(obstacle)))?;
    let came = now.iter().zip(map.positions()).filter(|(_, from)| from.is_none()).map(|(volume, _)| device(volume));
    let role = sb.identity.role;
    if came.into_iter().any(|came| had_in(cluster, node, group, came).is_some_and(|had| !counts_under(role, had))) {
        return Err(Refusal::OtherRole);
    }
    let records = convert(cluster, node, group, (&sb, &map)).map_err(Refusal::Obstacle)?;
    Ok(Prepared { group, records, volumes: now })
}

fn is_renamed(volume: &NamedVolume, before: &[NamedVolume]) -> bool {
    before.iter().all(|then| then.name != volume.name)
}

/// In which role the node had a device: in the group that it is about to leave, or has left last.
fn had_in(cluster: &SimCluster, node: usize, group: GroupId, device: DeviceId) -> Option<Role> {
    let leaves = |of: &GroupId| {
        let at = member(cluster, node, *of);
        let has = |volumes: &[NamedVolume]| volumes.iter().any(|volume| volume.devices[at] == device);
        has(&cluster.volumes(node, *of)) && (*of == group || !has(cluster.file.of(*of)))
    };
    match cluster.groups_of(node).into_iter().find(leaves) {
        Some(of) => cluster.readable_record(node, of).map(|record| record.identity.role),
        None => cluster[node].left_as(device),
    }
}

/// The records of a group, for other volumes: bitmap, journal and superblock.
fn convert(
    cluster: &SimCluster,
    node: usize,
    group: GroupId,
    (sb, map): (&Superblock, &VolumeMap),
) -> Result<Vec<ChangedRecord>, Obstacle> {
    let device_bytes: Vec<u64> = map.positions().map(|_| cluster.device_bytes(node)).collect();
    let old = cluster[node].disk(Store::Bitmap(group)).view();
    let cells: Vec<&[u8]> = old.chunks_exact(cell::CELL_BYTES as usize).collect();
    let mut found = FoundCells::default();
    for (index, bytes) in cells.iter().enumerate() {
        found.take(tag_of(group), index, bytes)?;
    }
    let planned = found.plan(map, &device_bytes);
    let mut bitmap = Vec::new();
    for (index, cell) in planned.iter().enumerate() {
        let old: Vec<Vec<u8>> = cell.from.iter().map(|from| cells[*from].to_vec()).collect();
        bitmap.extend(cell.image(sb, index, &old)?);
    }
    let ring = cluster[node].disk(Store::Journal(group)).view();
    let mut kept = KeptBatches::new(sb, ring.len() as u64);
    let mut blocks = Vec::new();
    while let Some(offset) = kept.next_offset() {
        match kept.take(&ring[offset as usize..offset as usize + INDEX_BYTES], map)? {
            Some(block) => blocks.push((offset, block)),
            None if kept.looks_again() => {}
            None => break,
        }
    }
    kept.end()?;
    let bits = planned.iter().any(|cell| cell.from.is_empty());
    let sb = converted(sb, map, &device_bytes, Lost { bits, kept: kept.gives_up() });
    let superblock = ChangedRecord::Superblock(group, superblock_file(&sb));
    Ok(vec![ChangedRecord::Journal(group, blocks), ChangedRecord::Bitmap(group, bitmap), superblock])
}

/// Goes on with steps that were taken, before any group of the node is opened. `most`: the node dies after so many records.
pub fn finishes(world: &mut World, node: usize, most: usize) {
    let changed = world.cluster[node].takes_place_mut().clone();
    let is_whole = most >= changed.len();
    for record in changed.into_iter().take(most) {
        takes_its_place(world, node, record);
    }
    if is_whole {
        world.cluster[node].takes_place_mut().clear();
    }
}

/// It may do so again after a crash.
fn takes_its_place(world: &mut World, node: usize, record: ChangedRecord) {
    let storage = &mut world.cluster[node].storage;
    match record {
        ChangedRecord::Journal(group, blocks) => {
            let ring = storage.disk_mut(Store::Journal(group));
            blocks.iter().for_each(|(offset, block)| ring.goes_astray(*offset as usize, block));
        }
        ChangedRecord::Bitmap(group, content) => storage.disk_mut(Store::Bitmap(group)).restore(content),
        ChangedRecord::Superblock(group, content) => storage.disk_mut(Store::Superblock(group)).restore(content),
        ChangedRecord::Volumes(now) => has_from_now_on(world, node, now),
    }
}

/// The node has these volumes of these groups. All devices are taken from where they were before any has another place.
pub fn has_from_now_on(world: &mut World, node: usize, now: Vec<(GroupId, Vec<NamedVolume>)>) {
    let before: Vec<_> = now.iter().map(|(group, _)| devices_of(world, node, *group)).collect();
    for ((group, volumes), had) in now.iter().zip(&before) {
        leave(world, node, *group, volumes, &now);
        world.cluster[node].storage.takes_down(*group, had);
        // Their positions are others now.
        world.checkers.overwritten.forget(*group, node);
    }
    for ((group, volumes), had) in now.into_iter().zip(before) {
        world.log(format_args!("node {node} has {volumes:?} of group {}", group.0));
        comes(world, node, group, volumes, &had);
    }
}

fn devices_of(world: &World, node: usize, group: GroupId) -> Vec<DeviceId> {
    let at = member(&world.cluster, node, group);
    world.cluster.volumes(node, group).iter().map(|volume| volume.devices[at]).collect()
}

/// Those of before that are not among the volumes of now.
fn leave(world: &mut World, node: usize, group: GroupId, now: &[NamedVolume], all: &[(GroupId, Vec<NamedVolume>)]) {
    let (at, before) = (member(&world.cluster, node, group), world.cluster.volumes(node, group));
    let role = world.cluster.readable_record(node, group).map(|record| record.identity.role);
    for volume in before {
        // Under another name, and on another device, it is one that left and another one that comes, whatever the operator means by it.
        let is_it = |stays: &NamedVolume| stays.name == volume.name || stays.devices[at] == volume.devices[at];
        if now.iter().any(|stays| stays.number == volume.number && is_it(stays)) {
            continue;
        }
        if world.cluster.primary(group) == node {
            world.checkers.writes.forgets(group, volume.number);
        }
        world.checkers.newcomers.is_gone(group, node, volume.number);
        let Some(role) = role.filter(|_| now.iter().all(|stays| stays.devices[at] != volume.devices[at])) else {
            continue;
        };
        world.cluster[node].leaves(volume.devices[at], role);
        if role == Role::Primary {
            let content = world.cluster.views(node, group)[usize::from(volume.number.0)].to_vec();
            let takes_it = |to: &&(GroupId, Vec<NamedVolume>)| to.1.iter().any(|other| other.devices == volume.devices);
            let there = all.iter().find(takes_it).and_then(|to| world.cluster.readable_record(node, to.0));
            let is_given_up = there.is_some_and(|record| record.identity.role == Role::Secondary);
            let told = world.checkers.newcomers.leaves(node, volume.devices, content, is_given_up);
            world.check(told);
        }
    }
}

fn comes(world: &mut World, node: usize, group: GroupId, now: Vec<NamedVolume>, had: &[DeviceId]) {
    let (at, bytes) = (member(&world.cluster, node, group), world.cluster.device_bytes(node));
    let record = world.cluster.readable_record(node, group);
    let names: Vec<u32> = world.cluster.volumes(node, group).iter().map(|volume| volume.name).collect();
    let storage = &mut world.cluster[node].storage;
    let mut is_fresh = Vec::new();
    for (position, volume) in (0..).map(VolumeId).zip(&now) {
        let device = volume.devices[at];
        let is_detached = record.as_ref().is_some_and(|record| record.detached.contains(position));
        is_fresh.push(!storage.is_on_shelf(device));
        let fresh = || SimDisk::new(fresh_content(node, device, bytes as usize));
        storage.puts_up(group, position, (device, is_detached), fresh);
    }
    storage.resizes_bitmap(group, engine::bitmap_file_bytes(now.iter().map(|_| bytes)) as usize);
    world.cluster[node].has_volumes(group, now.clone());
    let image_bytes = world.cluster.options.image_bytes();
    for (volume, is_fresh) in now.into_iter().zip(is_fresh) {
        world.checkers.writes.knows(group, volume.number, image_bytes);
        let Some(record) = &record else { continue };
        let content = || world.cluster.views(node, group)[usize::from(volume.number.0)].to_vec();
        match record.identity.role {
            // What stays may be overwritten if that was typed before.
            Role::Secondary if !names.contains(&volume.name) || !had.contains(&volume.devices[at]) => {
                let content = content();
                world.checkers.newcomers.comes(group, node, volume.number, content, is_fresh);
            }
            Role::Primary if !had.contains(&volume.devices[at]) => {
                world.checkers.newcomers.arrives(group, node, volume.number, volume.devices);
            }
            _ => {}
        }
    }
}

/// The operator empties what a node keeps of these groups, and gives them the volumes that the file says. What stood in its way is gone with
/// that.
pub fn begins_anew(world: &mut World, node: usize, groups: &[GroupId]) {
    world.crash(node, false, 200_000_000);
    for group in groups {
        world.log(format_args!("the operator empties what node {node} keeps of group {}", group.0));
        world.cluster[node].wipes(*group);
    }
    let now = groups.iter().map(|group| (*group, world.cluster.file.of(*group).to_vec())).collect();
    has_from_now_on(world, node, now);
    groups.iter().for_each(|group| world.copy_is_void(*group, node));
}

/// Nothing more is asked of this world: no operator could bring it together.
pub fn ends_unchecked(world: &mut World, why: &str) {
    world.log(format_args!("it ends here: {why}"));
    world.over = true;
}
