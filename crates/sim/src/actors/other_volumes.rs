//! The operator gives groups other volumes, and has one node after the other take that up. And disks of volumes die, and others come in their
//! place.

use std::collections::BTreeMap;

use engine::{Command, GroupId, Input, VolumeId};

use crate::nodes::node::CleanStop;
use crate::nodes::volumes::NamedVolume;
use crate::world::resets::{attaches, detaches};
use crate::world::{World, WorldEvent, other_volumes};

const MILLISECOND: u64 = 1_000_000;
/// Names are drawn from so many.
const NAMES: u64 = 10_000;
/// A group has no more volumes than that.
const VOLUMES_MAX: usize = 5;
/// So often a node that refuses the file is stopped for it before the operator gives in.
const TRIES_MAX: u32 = 4;
/// So often he gives in before he gives up.
const GIVEN_IN_MAX: u32 = 6;
/// So often he looks after dead disks before he does without their volumes.
const LOOKS_MAX: u32 = 60;

/// What an operator remembers of the volumes of groups.
#[derive(Default)]
pub struct VolumeKeeper {
    /// Those that left, with their groups: they may come back.
    removed: Vec<(GroupId, NamedVolume)>,
    /// How often each node was stopped for a file that it has not taken up.
    tries: BTreeMap<usize, u32>,
    /// How often he gave in.
    given_in: u32,
    /// How often somebody looked at a group without a primary; and at one with a dead disk.
    without_primary: BTreeMap<GroupId, u32>,
    looks: BTreeMap<GroupId, u32>,
}

fn are_behind(world: &World) -> Vec<usize> {
    let is_behind = |node: &usize| {
        let groups = world.cluster.groups_of(*node);
        groups.into_iter().any(|group| !other_volumes::has_taken_up(&world.cluster, *node, group))
    };
    (0..world.cluster.count()).filter(is_behind).collect()
}

/// The node is stopped, and takes the file up before it starts again. True: its stop has begun.
fn stops_for_it(world: &mut World, node: usize) -> bool {
    // What comes on a secondary waits for its primary's word: where there is none, nobody would ever say it.
    let has_primary =
        |group: &GroupId| world.cluster.pair(*group).iter().any(|node| world.cluster.is_primary(*node, *group));
    if !world.cluster[node].up() || !world.cluster.groups_of(node).iter().all(has_primary) {
        return false;
    }
    let down_ns = MILLISECOND * world.rng.between(10, 800);
    world.cluster[node].plans_stop(CleanStop { down_ns, outside: Vec::new(), takes_up_volumes: true });
    world.input(node, Input::Stop);
    true
}

impl VolumeKeeper {
    /// He changes the file, or has a node take up what he changed. True: he did.
    pub fn changes(&mut self, world: &mut World, group: GroupId) -> bool {
        let behind = are_behind(world);
        if !behind.is_empty() && world.rng.percent(75) {
            let node = *world.rng.pick(&behind);
            return stops_for_it(world, node);
        }
        self.edits(world, group)
    }

    fn edits(&mut self, world: &mut World, group: GroupId) -> bool {
        let volumes = world.cluster.file.of(group).to_vec();
        let number = world.rng.pick(&volumes).number;
        let name = world.rng.below(NAMES) as u32 * 10 + 1 + group.0;
        if volumes.iter().any(|volume| [name, name + 2].contains(&volume.name)) {
            return false;
        }
        let (is_free, may_leave) = (volumes.len() < VOLUMES_MAX, volumes.len() > 1);
        let what = world.rng.below(9);
        world.log(format_args!("the operator edits group {}: {what} {number:?} {name}", group.0));
        match what {
            0..=2 if is_free => _ = world.cluster.file.adds(group, name),
            3 | 4 if may_leave => {
                let volume = world.cluster.file.removes(group, number);
                self.removed.push((group, volume));
            }
            5 => world.cluster.file.renames(group, number, name),
            6 if may_leave => return moves(world, group, number),
            7 if is_free => return self.comes_back(world, group),
            8 if may_leave => mistakes_devices(world, group, &volumes, name),
            _ => return false,
        }
        true
    }

    fn comes_back(&mut self, world: &mut World, group: GroupId) -> bool {
        let Some(at) = self.removed.iter().position(|(of, _)| *of == group) else { return false };
        let (_, volume) = self.removed.remove(at);
        let is_taken = |other: &NamedVolume| {
            other.name == volume.name || other.devices.iter().any(|device| volume.devices.contains(device))
        };
        if world.cluster.groups().any(|group| world.cluster.file.of(group).iter().any(is_taken)) {
            return false;
        }
        world.cluster.file.takes_in(group, volume.name, volume.devices);
        true
    }

    /// Both nodes of each group come to have the same volumes.
    pub fn brings_together(&mut self, world: &mut World) {
        let behind = are_behind(world);
        self.tries.retain(|node, _| behind.contains(node));
        for node in &behind {
            if !world.cluster[*node].up() || !world.rng.percent(30) {
                continue;
            }
            if stops_for_it(world, *node) {
                let tries = self.tries.entry(*node).or_default();
                *tries += 1;
                if *tries > TRIES_MAX {
                    *tries = 0;
                    self.given_in += 1;
                    gives_in(world, *node);
                    if self.given_in > GIVEN_IN_MAX {
                        other_volumes::ends_unchecked(
                            world,
                            "two groups want one device, and neither of their primaries may be changed",
                        );
                    }
                }
                return;
            }
        }
    }

    /// What no node may be promoted with stays as it is.
    fn sees_to_a_primary(&mut self, world: &mut World, group: GroupId) {
        let pair = world.cluster.pair(group);
        if pair.iter().any(|node| world.cluster.is_primary(*node, group)) {
            self.without_primary.remove(&group);
            return;
        }
        let looks = self.without_primary.entry(group).or_default();
        *looks += 1;
        let lacks = |node: &usize| {
            world.cluster.readable_record(*node, group).is_some_and(|record| !record.unfilled.is_empty())
        };
        if *looks > 16 * LOOKS_MAX && pair.iter().any(lacks) {
            other_volumes::ends_unchecked(world, "no node of a group may be promoted with what stands on its devices");
        }
    }

    /// Other disks come in place of those that died. True: nothing else is to be done with the group now.
    pub fn replaces_dead_disks(&mut self, world: &mut World, group: GroupId) -> bool {
        let pair = world.cluster.pair(group);
        self.sees_to_a_primary(world, group);
        let lacking: Vec<usize> = pair.into_iter().filter(|node| dead(world, *node, group).is_some()).collect();
        let Some(node) = lacking.first().copied() else {
            self.looks.remove(&group);
            return false;
        };
        let looks = self.looks.entry(group).or_default();
        *looks += 1;
        if *looks > 8 * LOOKS_MAX {
            other_volumes::ends_unchecked(
                world,
                "nothing is left of a volume, and no node of its group may be changed",
            );
        }
        if looks.is_multiple_of(LOOKS_MAX) {
            return does_without(world, node, group);
        }
        if !world.rng.percent(20) || !pair.iter().all(|node| runs(world, *node, group)) {
            return false;
        }
        let other = world.cluster.other(group, node);
        match pair.map(|node| world.cluster.is_primary(node, group)) {
            [false, false] => {
                let entropy = world.rng.draw();
                _ = world.command(other, group, Command::Promote { force: true, entropy });
            }
            _ if world.cluster.is_primary(node, group) => _ = world.command(node, group, Command::Demote),
            _ => {
                let volume = dead(world, node, group).expect("it was looked up");
                attaches(world, node, group, volume);
            }
        }
        true
    }
}

/// A device goes to another group of the same two nodes.
fn moves(world: &mut World, group: GroupId, number: VolumeId) -> bool {
    let pair = world.cluster.pair(group);
    let fits = |of: &GroupId| {
        *of != group && world.cluster.pair(*of) == pair && world.cluster.file.of(*of).len() < VOLUMES_MAX
    };
    let Some(to) = world.cluster.groups().find(fits) else { return false };
    let volume = world.cluster.file.removes(group, number);
    let is_named = world.cluster.file.of(to).iter().any(|other| other.name == volume.name);
    let name = if is_named { volume.name + 5 } else { volume.name };
    world.cluster.file.takes_in(to, name, volume.devices);
    true
}

/// Two volumes get new names, and on one node he takes the device of each for that of the other.
fn mistakes_devices(world: &mut World, group: GroupId, volumes: &[NamedVolume], name: u32) {
    let [a, b] = [volumes[0].number, volumes[1].number];
    world.cluster.file.renames(group, a, name);
    world.cluster.file.renames(group, b, name + 2);
    let secondary = world.cluster.secondary(group);
    let member = usize::from(world.cluster.pair(group)[0] != secondary);
    world.cluster.file.swaps_devices(group, member, [a, b]);
}

/// The node does not take the file up. What its groups have counts if it is their primary; else what it keeps of them is made anew.
fn gives_in(world: &mut World, node: usize) {
    let mut anew = Vec::new();
    for group in world.cluster.groups_of(node) {
        if other_volumes::has_taken_up(&world.cluster, node, group) {
            continue;
        }
        if world.cluster.primary(group) == node {
            let volumes = world.cluster.volumes(node, group);
            world.log(format_args!("the operator gives group {} back what node {node} has of it", group.0));
            world.cluster.file.goes_back(group, volumes);
        } else {
            anew.push(group);
        }
    }
    other_volumes::begins_anew(world, node, &anew);
}

// ---- dead disks ----------------------------------------------------------------------------------------------------------

fn runs(world: &World, node: usize, group: GroupId) -> bool {
    world.glance(node, group).is_some_and(|glance| glance.running)
}

/// A volume of the group that is detached on the node.
fn dead(world: &World, node: usize, group: GroupId) -> Option<VolumeId> {
    let volumes = world.cluster.numbers(node, group).len() as u16;
    (0..volumes).map(VolumeId).find(|volume| world.cluster[node].storage.is_detached(group, *volume))
}

/// A disk of a volume dies, and is detached; or another one is attached. True: it was done.
pub fn disk_dies_or_comes(world: &mut World, group: GroupId) -> bool {
    let node = if world.rng.percent(80) { world.cluster.secondary(group) } else { world.cluster.primary(group) };
    let volumes = world.cluster.numbers(node, group).len() as u64;
    if !runs(world, node, group) {
        return false;
    }
    if let Some(volume) = dead(world, node, group) {
        return attaches(world, node, group, volume);
    }
    let other = world.cluster.other(group, node);
    let is_whole = |node: usize| {
        let record = world.cluster.readable_record(node, group);
        record.is_some_and(|record| record.aside.is_empty() && record.unfilled.is_empty() && record.detached.is_empty())
    };
    // As a daemon does: one volume at least stays in order. And whoever has the other copy of a dead disk still has it.
    if volumes < 2 || !is_whole(node) || !is_whole(other) {
        return false;
    }
    let volume = VolumeId(world.rng.below(volumes) as u16);
    if world.rng.percent(40) {
        // Another disk may have come by the time the peer hears of it.
        let pair = world.cluster.pair(group);
        world.set_path(pair, [false; 2]);
        let after = MILLISECOND * world.rng.between(200, 3000);
        world.timeline.schedule(after, WorldEvent::Cable { pair, passes: [true; 2] });
    }
    detaches(world, node, group, volume);
    true
}

/// Nothing is left of a volume: it is taken out of the file. True: it was.
fn does_without(world: &mut World, node: usize, group: GroupId) -> bool {
    let Some(volume) = dead(world, node, group) else { return false };
    let number = world.cluster.numbers(node, group)[usize::from(volume.0)];
    let volumes = world.cluster.file.of(group);
    if volumes.len() < 2 || volumes.iter().all(|volume| volume.number != number) {
        return false;
    }
    world.log(format_args!("the operator does without volume {} of group {}", number.0, group.0));
    world.cluster.file.removes(group, number);
    true
}
