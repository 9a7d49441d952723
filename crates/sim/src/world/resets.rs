//! A group has its stores closed and opened while its node lives on: one that failed and is reset, and one that its operator removes and
//! adds again.

use std::rc::Rc;

use engine::identity::Role;
use engine::status::LinkStatus;
use engine::{GroupId, Input, StartAlone, VolumeId};

use super::{World, WorldEvent};
use crate::oracle::{Oracle, OracleFailure};

/// Of so many openings one fails where the world is not a scenario's.
const REFUSED_PERCENT: u64 = 5;

/// Closing a store under what is asked of it would lose an answer, or give it to somebody else.
fn closes(world: &mut World, node: usize, group: GroupId) -> bool {
    let under_way = world.cluster[node].storage.under_way(group);
    let unanswered = world.checkers.writes.pending_on(node, group);
    if under_way > 0 || unanswered > 0 {
        let what = format!(
            "node {node} has the stores of group {} closed over {under_way} operations and {unanswered} requests",
            group.0
        );
        world.fail(OracleFailure::new(Oracle::Durability, what));
        return false;
    }
    let now = world.now();
    world.checkers.sees_unverified_run(&world.cluster, now, node, group);
    true
}

/// The devices of a node's volumes hold so much more from now on, and what they were to hold more since. A group sees it when it begins anew.
pub fn enlarges(world: &mut World, node: usize, bytes: u64) {
    let options = Rc::clone(&world.cluster.options);
    world.cluster[node].storage.grows_by(bytes);
    if world.cluster[node].storage.takes_up_devices(node, &options) {
        let bytes = world.cluster[node].storage.extra_bytes();
        world.log(format_args!("the devices of node {node} hold {bytes} bytes more than at least"));
    }
}

/// The operator has a group leave the node, to come again a moment later.
pub fn reloads(world: &mut World, node: usize, group: GroupId) {
    world.log(format_args!("node {node} reloads group {}", group.0));
    world.input(node, Input::Remove { group });
}

/// The operator has the group go on without a volume whose disk is dead.
pub fn detaches(world: &mut World, node: usize, group: GroupId, volume: VolumeId) {
    world.log(format_args!("node {node} detaches volume {} of group {}", volume.0, group.0));
    if let Some(number) = world.cluster.numbers(node, group).get(usize::from(volume.0)) {
        world.checkers.newcomers.is_gone(group, node, *number);
    }
    world.cluster[node].storage.detach(group, volume);
    reloads(world, node, group);
}

/// Another disk is there. As a daemon does, only where the record says that the volume was detached. False: it does not.
pub fn attaches(world: &mut World, node: usize, group: GroupId, volume: VolumeId) -> bool {
    has_disk_again(world, node, group, volume, true)
}

/// The same, with the disk that it had.
pub fn attaches_again(world: &mut World, node: usize, group: GroupId, volume: VolumeId) -> bool {
    has_disk_again(world, node, group, volume, false)
}

fn has_disk_again(world: &mut World, node: usize, group: GroupId, volume: VolumeId, is_another: bool) -> bool {
    let record = world.cluster.readable_record(node, group);
    if !record.is_some_and(|record| record.identity.role == Role::Secondary && record.detached.contains(volume)) {
        return false;
    }
    let which = if is_another { "another" } else { "its" };
    world.log(format_args!("node {node} attaches volume {} of group {} on {which} disk", volume.0, group.0));
    world.cluster[node].storage.attach(group, volume, is_another);
    if is_another {
        world.checkers.overwritten.has_another_disk(group, node, volume);
    }
    reloads(world, node, group);
    true
}

/// The same, on one of its nodes.
pub fn reloads_either(world: &mut World, pair: [usize; 2], group: GroupId) {
    let node = *world.rng.pick(&pair);
    reloads(world, node, group);
}

pub(super) fn removed(world: &mut World, node: usize, group: GroupId) {
    if !closes(world, node, group) {
        return;
    }
    world.log(format_args!("group {} has left node {node}", group.0));
    let beside = serves_later(world, node, group);
    world.cluster[node].is_reset(group, beside);
    starts_anew(world, node, group);
    world.cluster[node].storage.closes(group, true);
    let (boot, after) = (world.cluster[node].boot(), world.rng.between(100_000, 300_000_000));
    world.timeline.schedule(after, WorldEvent::Added { node, boot, group });
}

pub(super) fn added(world: &mut World, node: usize, group: GroupId) {
    world.cluster[node].storage.closes(group, false);
    let config = Box::new(world.cluster.group_config(node, group));
    let entropy = world.rng.draw();
    world.input(node, Input::Add { config, entropy, refused: None });
}

pub(super) fn reopens(world: &mut World, node: usize, group: GroupId) {
    if !closes(world, node, group) {
        return;
    }
    let beside = serves_later(world, node, group);
    world.cluster[node].is_reset(group, beside);
    world.cluster[node].storage.closes(group, true);
    let (boot, after) = (world.cluster[node].boot(), world.rng.between(100_000, 50_000_000));
    world.timeline.schedule(after, WorldEvent::Reopened { node, boot, group });
}

/// The other node serves, and was promoted after this one.
fn serves_later(world: &World, node: usize, group: GroupId) -> bool {
    let other = world.cluster.other(group, node);
    let number = |node: usize| world.glance(node, group).map(|glance| glance.identity.generation.number);
    world.cluster[other].takes_requests(group) && number(other) > number(node)
}

/// A node opens its export. Where it was reset beside one that serves, and is connected with it, only its operator has it do so (P6).
pub(super) fn check_opening(world: &mut World, node: usize, group: GroupId) -> Result<(), OracleFailure> {
    let was_beside = world.cluster[node].was_reset_beside(group);
    let may_serve = world.cluster.ledger.settings(group).start_alone == StartAlone::Serve;
    let link = world.cluster[node].status_of(group).map(|status| status.peer.link);
    let sees_it = matches!(link, Some(LinkStatus::Connected | LinkStatus::Congested));
    if !was_beside || may_serve || !sees_it || !serves_later(world, node, group) {
        return Ok(());
    }
    let what = format!("node {node} was reset, and opens group {} beside its peer, which serves", group.0);
    Err(OracleFailure::new(Oracle::OneWriter, what))
}

/// The group on the node is another one from here on.
pub(super) fn starts_anew(world: &mut World, node: usize, group: GroupId) {
    world.cluster[node].starts_anew(group);
    world.cluster.ledger.starts_anew(node, group);
    world.checkers.writes.starts_anew(node, group);
    world.checkers.newcomers.starts_anew(node, Some(group));
}

pub(super) fn reopened(world: &mut World, node: usize, group: GroupId) {
    let by_chance = !world.unattended && world.rng.percent(REFUSED_PERCENT);
    let refused = std::mem::take(&mut world.cluster[node].storage.trouble.refuses_reopening) || by_chance;
    let opened = if refused {
        Err("it cannot be opened: another device stands in its place".to_owned())
    } else {
        Ok(Box::new(world.cluster.group_config(node, group)))
    };
    world.cluster[node].storage.closes(group, false);
    world.log(format_args!("node {node} group {} is opened again: {}", group.0, opened.is_ok()));
    world.input(node, Input::Reopened { group, opened });
}
