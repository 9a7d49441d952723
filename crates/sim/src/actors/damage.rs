//! What befalls a node's records while its power is off: a bit turns over, a block goes astray, an old copy is restored.
//! Each record is damaged once in a seed at most: what is kept twice has a whole copy then, and what has not is named.

use engine::cell::{BYTES, SLOT_BYTES};
use engine::identity::Role;
use engine::superblock::Superblock;
use engine::{GroupId, Input, Store, VolumeId, journal, undo};

use super::operator::Operator;
use crate::checkers::facts::KnownFact;
use crate::nodes::storage::records;
use crate::options::fault::FaultKind;
use crate::stamps::SECTOR;
use crate::world::{ActorCue, OldCopy, World, WorldEvent};

const SECOND: u64 = 1_000_000_000;

/// The superblock of a running group counts a batch of the journal or the undo store within this time of its landing. One
/// that rots before looks torn (docs/book/reliability.md, P9).
const COUNTED_NS: u64 = SECOND;

/// Ordinal and bytes of the batch whose index stands there.
fn batch_at(store: Store, ring: &[u8], at: u64) -> Option<(u64, u32)> {
    let block = ring.get(at as usize..at as usize + BYTES)?;
    match store {
        Store::Journal(_) => {
            journal::JournalIndex::decode(journal::BatchOf::Journal, block).map(|index| (index.ordinal, index.bytes))
        }
        _ => undo::UndoIndex::decode(block).map(|index| (index.ordinal, index.bytes)),
    }
}

/// True if something was damaged; an old copy counts when it comes back.
pub fn damage_records(world: &mut World, fault: FaultKind, group: GroupId) -> bool {
    let primary = world.cluster.primary(group);
    let node = *world.rng.pick(&[primary, world.cluster.secondary(group)]);
    match fault {
        FaultKind::Rot => rot(world, node, group),
        FaultKind::RotAll => rot_all(world, node, group),
        FaultKind::Astray => goes_astray(world, node, group, node == primary),
        _ => {
            copies_records(world, group);
            false
        }
    }
}

/// What a comparison reads in a sector of a node's volume is not what was written.
pub fn rots(world: &mut World, node: usize, group: GroupId, volume: VolumeId, sector: u64) {
    world.log(format_args!("sector {sector} of volume {} of node {node} group {} rots", volume.0, group.0));
    let now = world.now();
    world.cluster[node].storage.rot.plant(Store::Volume(group, volume), sector, now);
}

/// The power fails, and a bit of a record that was written lately turns over.
fn rot(world: &mut World, node: usize, group: GroupId) -> bool {
    let store = *world.rng.pick(&records(group));
    let trouble = world.cluster[node].storage.trouble;
    let slow = trouble.slow_until.max(trouble.stalled_until) + COUNTED_NS > world.now();
    let counted = matches!(store, Store::Journal(_) | Store::Undo(_));
    let starts = !world.cluster[node].is_ready(group);
    if !world.cluster[node].up()
        || counted && (slow || starts)
        || !world.checkers.facts.add(KnownFact::Rotten(node, store))
    {
        return false;
    }
    loses_power_for_a_while(world, node);
    let before = if counted { world.now().saturating_sub(COUNTED_NS) } else { u64::MAX };
    let disk = world.cluster[node].disk_mut(store);
    let done = disk.rot(before, &mut world.rng);
    world.log(format_args!("a bit of {store:?} of node {node} turns over: {done}"));
    done
}

/// The power fails, and of one store's records nothing whole is left.
fn rot_all(world: &mut World, node: usize, group: GroupId) -> bool {
    let store = *world.rng.pick(&[Store::Bitmap(group), Store::Activity(group)]);
    let up = world.cluster[node].up();
    loses_power_for_a_while(world, node);
    world.cluster[node].disk_mut(store).rot_all();
    up
}

/// The power fails, and a write that was meant for another place is found over a copy of a cell, or over a slot of it.
/// Over a slot of a secondary's superblock: the group fails, and its records have to be made anew.
fn goes_astray(world: &mut World, node: usize, group: GroupId, serves: bool) -> bool {
    let store = *world.rng.pick(&records(group));
    if matches!(store, Store::Journal(_) | Store::Undo(_)) {
        return goes_astray_over_batch(world, node, group, store);
    }
    let whole = world.rng.percent(50) && !(serves && matches!(store, Store::Superblock(_)));
    let length = if whole { SLOT_BYTES as usize } else { BYTES };
    let from = *world.rng.pick(&world.cluster[node].storage.stores_of(group));
    if !world.cluster[node].up() || world.checkers.facts.has(KnownFact::Rotten(node, store)) {
        return false;
    }
    let Some(data) = world.cluster[node].disk(from).latest(length) else { return false };
    world.checkers.facts.add(KnownFact::Rotten(node, store));
    loses_power_for_a_while(world, node);
    let disk = world.cluster[node].disk_mut(store);
    let at = world.rng.below((disk.size() / length) as u64) as usize * length;
    disk.goes_astray(at, &data);
    if whole && matches!(store, Store::Superblock(_)) {
        world.checkers.facts.add(KnownFact::Spoiled(group, node));
    }
    world.log(format_args!("{length} bytes of {from:?} went astray to {at} of {store:?} of node {node}"));
    true
}

/// The power fails, and a write that was meant for another place is found over a batch of the journal or the undo store
/// that the superblock counts as durable: over its index, or over the first sector of its content.
fn goes_astray_over_batch(world: &mut World, node: usize, group: GroupId, store: Store) -> bool {
    if !world.cluster[node].up() || world.checkers.facts.has(KnownFact::Rotten(node, store)) {
        return false;
    }
    loses_power_for_a_while(world, node);
    let batches = counted_batches(world, node, group, store);
    let from = *world.rng.pick(&world.cluster[node].storage.stores_of(group));
    if batches.is_empty() {
        return false;
    }
    let (offset, bytes) = *world.rng.pick(&batches);
    let over_content = bytes > BYTES && world.rng.percent(50);
    let applied = matches!(store, Store::Journal(_)) && begins_applied(world, node, group, offset);
    let (at, length) = if over_content { (offset + BYTES, SECTOR) } else { (offset, BYTES) };
    let Some(data) = world.cluster[node].disk(from).latest(length) else { return false };
    let disk = world.cluster[node].disk_mut(store);
    if disk.durable()[at..at + length] == data {
        return false;
    }
    disk.goes_astray(at, &data);
    world.checkers.facts.add(KnownFact::Rotten(node, store));
    if matches!(store, Store::Journal(_)) && !(over_content && applied) {
        world.checkers.facts.add(KnownFact::JournalHit(group, node));
    }
    world.log(format_args!("{length} bytes of {from:?} went astray to {at} of {store:?} of node {node}"));
    true
}

/// Whether a batch of a secondary's journal begins with content that its superblock says is on the volumes.
fn begins_applied(world: &World, node: usize, group: GroupId, offset: usize) -> bool {
    let sb = world.cluster.record(node, group);
    let ring = world.cluster[node].disk(Store::Journal(group)).durable();
    let index = journal::JournalIndex::decode(journal::BatchOf::Journal, &ring[offset..offset + journal::INDEX_BYTES]);
    let first =
        index.and_then(|index| index.entries.iter().find(|entry| entry.payload_bytes > 0).map(|entry| entry.seq));
    sb.zip(first).is_some_and(|(sb, seq)| seq <= sb.identity.position.seq)
}

/// Batches of a secondary's store that its superblock counts as durable and a start reads: where each begins, and its
/// bytes.
fn counted_batches(world: &World, node: usize, group: GroupId, store: Store) -> Vec<(usize, usize)> {
    let follows = |sb: &Superblock| sb.identity.role == Role::Secondary && !sb.rolling_back;
    let Some(sb) = world.cluster.record(node, group).filter(follows) else { return Vec::new() };
    let (mut offset, first, last) = match store {
        Store::Journal(_) => (sb.journal.offset, sb.journal.ordinal, sb.confirmed_ordinal),
        _ => (0, 1, sb.rollback_point.batches.saturating_add(1)),
    };
    let ring = world.cluster[node].disk(store).durable();
    let mut batches = Vec::new();
    for ordinal in first..last {
        // One that did not fit at the end stands at the start.
        let offsets = [offset, 0].into_iter();
        let found = offsets.filter_map(|at| Some((at, batch_at(store, ring, at)?))).find(|(_, b)| b.0 == ordinal);
        let Some((at, (_, bytes))) = found else { break };
        batches.push((at as usize, bytes as usize));
        offset = at + u64::from(bytes);
    }
    batches
}

/// Somebody copies what a secondary holds to restore it in a while: the superblock alone, all records, or those with the
/// volumes.
pub fn copies_records(world: &mut World, group: GroupId) {
    let primary = world.cluster.primary(group);
    let node = world.cluster.secondary(group);
    if world.checkers.facts.has(KnownFact::Spoiled(group, node)) {
        return;
    }
    if !world.cluster.is_followed(group) {
        return world.timeline.schedule(SECOND / 2, WorldEvent::Cue(ActorCue::Copy(group)));
    }
    let some = match world.rng.below(4) {
        0 => vec![Store::Superblock(group)],
        1 => records(group).to_vec(),
        _ => world.cluster[node].storage.stores_of(group),
    };
    let stores = some.iter().map(|store| (*store, world.cluster[node].disk(*store).durable().to_vec())).collect();
    let copy = OldCopy { group, node, primary, stores };
    let after = world.rng.between(SECOND / 10, 3 * SECOND);
    world.timeline.schedule(after, WorldEvent::Cue(ActorCue::Restore(copy)));
}

/// The old copy comes back, if the primary is still the one to find out; often it starts again just then.
pub fn restores_records(world: &mut World, operator: &Operator, copy: OldCopy) {
    if world.cluster.primary(copy.group) != copy.primary {
        return;
    }
    if !world.cluster.is_followed(copy.group) || operator.has_plan(copy.group) {
        return world.timeline.schedule(SECOND / 2, WorldEvent::Cue(ActorCue::Restore(copy)));
    }
    let OldCopy { group, node, primary, stores } = copy;
    world.log(format_args!("an old copy of {} stores of node {node} is restored", stores.len()));
    world.tally.faults += 1;
    loses_power_for_a_while(world, node);
    // Without its caches it would ask what the peer keeps of them: a known limit (docs/book/reliability.md).
    match world.rng.below(4) {
        0 => {}
        1 => world.crash(primary, false, SECOND / 5),
        // Cleanly: then no activity log has what was written lately compared.
        _ => world.input(primary, Input::Stop),
    }
    for (store, content) in stores {
        let disk = world.cluster[node].disk_mut(store);
        // A device that was enlarged since stays as large.
        let mut content = content;
        content.extend_from_slice(disk.view().get(content.len()..).unwrap_or_default());
        disk.restore(content);
    }
    world.checkers.facts.add(KnownFact::Spoiled(group, node));
    world.copy_is_void(group, node);
}

fn loses_power_for_a_while(world: &mut World, node: usize) {
    let down = world.rng.between(SECOND / 10, 3 * SECOND);
    world.crash(node, true, down);
}
