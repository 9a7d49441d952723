//! What befalls a node's records while its power is off: a bit turns over, a block goes astray, an old copy is restored.
//! Each record is damaged once in a seed at most: what is kept twice has a whole copy then, and what has not is named.

use engine::cell::{BYTES, SLOT_BYTES};
use engine::identity::Role;
use engine::state::State;
use engine::superblock::{self, Superblock};
use engine::{GroupId, Input, Store, journal, undo};

use crate::disk::SECTOR;
use crate::faults::Fault;
use crate::node::SimNode;
use crate::operator::Plan;
use crate::world::{Event, World};

const SECOND: u64 = 1_000_000_000;

/// The superblock of a running group counts a batch of the journal or the undo store within this time of its landing. One
/// that rots before looks torn (docs/reliability.md, P9).
const COUNTED_NS: u64 = SECOND;

/// What a secondary held as it was.
pub struct OldCopy {
    pub group: GroupId,
    node: usize,
    /// The primary that will find out.
    primary: usize,
    stores: Vec<(Store, Vec<u8>)>,
}

/// Ordinal and bytes of the batch whose index stands there.
fn batch_at(store: Store, ring: &[u8], at: u64) -> Option<(u64, u32)> {
    let block = ring.get(at as usize..at as usize + BYTES)?;
    match store {
        Store::Journal(_) => journal::Index::decode(block).map(|index| (index.ordinal, index.bytes)),
        _ => undo::Index::decode(block).map(|index| (index.ordinal, index.bytes)),
    }
}

/// All that a node keeps for a group beside the volumes.
fn records(group: GroupId) -> [Store; 5] {
    [Store::Superblock(group), Store::Bitmap(group), Store::Activity(group), Store::Journal(group), Store::Undo(group)]
}

impl World {
    /// True if something was damaged; an old copy counts when it comes back.
    pub fn damage_records(&mut self, fault: Fault, group: GroupId) -> bool {
        let primary = self.operator.authority(group);
        let node = *self.rng.pick(&[primary, self.other(group, primary)]);
        match fault {
            Fault::Rot => self.rot(node, group),
            Fault::RotAll => self.rot_all(node, group),
            Fault::Astray => self.goes_astray(node, group, node == primary),
            _ => {
                self.copies_records(group);
                false
            }
        }
    }

    /// The power fails, and a bit of a record that was written lately turns over.
    fn rot(&mut self, node: usize, group: GroupId) -> bool {
        let store = *self.rng.pick(&records(group));
        let trouble = self.nodes[node].trouble;
        let slow = trouble.slow_until.max(trouble.stalled_until) + COUNTED_NS > self.now;
        let counted = matches!(store, Store::Journal(_) | Store::Undo(_));
        let starts = !self.nodes[node].ready.contains(&group);
        if !self.nodes[node].up() || counted && (slow || starts) || !self.watch.rotten.insert((node, store)) {
            return false;
        }
        self.loses_power_for_a_while(node);
        let before = if counted { self.now.saturating_sub(COUNTED_NS) } else { u64::MAX };
        let disk = self.nodes[node].disks.get_mut(&store).expect("every store has a disk");
        let done = disk.rot(before, &mut self.rng);
        self.log(format_args!("a bit of {store:?} of node {node} turns over: {done}"));
        done
    }

    /// The power fails, and of one store's records nothing whole is left.
    fn rot_all(&mut self, node: usize, group: GroupId) -> bool {
        let store = *self.rng.pick(&[Store::Bitmap(group), Store::Activity(group)]);
        let up = self.nodes[node].up();
        self.loses_power_for_a_while(node);
        self.nodes[node].disks.get_mut(&store).expect("every store has a disk").rot_all();
        up
    }

    /// The power fails, and a write that was meant for another place is found over a copy of a cell, or over a slot of it.
    /// Over a slot of a secondary's superblock: the group fails, and its records have to be made anew.
    fn goes_astray(&mut self, node: usize, group: GroupId, serves: bool) -> bool {
        let store = *self.rng.pick(&records(group));
        if matches!(store, Store::Journal(_) | Store::Undo(_)) {
            return self.goes_astray_over_batch(node, group, store);
        }
        let whole = self.rng.percent(50) && !(serves && matches!(store, Store::Superblock(_)));
        let length = if whole { SLOT_BYTES as usize } else { BYTES };
        let from = *self.rng.pick(&self.stores_of(node, group));
        if !self.nodes[node].up() || self.watch.rotten.contains(&(node, store)) {
            return false;
        }
        let Some(data) = self.nodes[node].disks[&from].latest(length) else { return false };
        self.watch.rotten.insert((node, store));
        self.loses_power_for_a_while(node);
        let disk = self.nodes[node].disks.get_mut(&store).expect("every store has a disk");
        let at = self.rng.below((disk.size() / length) as u64) as usize * length;
        disk.goes_astray(at, &data);
        if whole && matches!(store, Store::Superblock(_)) {
            self.watch.spoiled.insert((group, node));
        }
        self.log(format_args!("{length} bytes of {from:?} went astray to {at} of {store:?} of node {node}"));
        true
    }

    /// The power fails, and a write that was meant for another place is found over a batch of the journal or the undo store
    /// that the superblock counts as durable: over its index, or over the first sector of its content.
    fn goes_astray_over_batch(&mut self, node: usize, group: GroupId, store: Store) -> bool {
        if !self.nodes[node].up() || self.watch.rotten.contains(&(node, store)) {
            return false;
        }
        self.loses_power_for_a_while(node);
        let batches = self.counted_batches(node, group, store);
        let from = *self.rng.pick(&self.stores_of(node, group));
        if batches.is_empty() {
            return false;
        }
        let (offset, bytes) = *self.rng.pick(&batches);
        let over_content = bytes > BYTES && self.rng.percent(50);
        let applied = matches!(store, Store::Journal(_)) && self.begins_applied(node, group, offset);
        let (at, length) = if over_content { (offset + BYTES, SECTOR) } else { (offset, BYTES) };
        let Some(data) = self.nodes[node].disks[&from].latest(length) else { return false };
        let disk = self.nodes[node].disks.get_mut(&store).expect("every store has a disk");
        if disk.durable()[at..at + length] == data {
            return false;
        }
        disk.goes_astray(at, &data);
        self.watch.rotten.insert((node, store));
        if matches!(store, Store::Journal(_)) && !(over_content && applied) {
            self.watch.hit.insert((group, node));
        }
        self.log(format_args!("{length} bytes of {from:?} went astray to {at} of {store:?} of node {node}"));
        true
    }

    /// Whether a batch of a secondary's journal begins with content that its superblock says is on the volumes.
    fn begins_applied(&self, node: usize, group: GroupId, offset: usize) -> bool {
        let disks = &self.nodes[node].disks;
        let tag = self.group_config(node, group).tag;
        let sb = superblock::read(disks[&Store::Superblock(group)].durable(), tag).ok().and_then(|read| read.found);
        let ring = disks[&Store::Journal(group)].durable();
        let index = journal::Index::decode(&ring[offset..offset + journal::INDEX_BYTES]);
        let first =
            index.and_then(|index| index.entries.iter().find(|entry| entry.payload_bytes > 0).map(|entry| entry.seq));
        sb.zip(first).is_some_and(|(sb, seq)| seq <= sb.identity.position.seq)
    }

    /// Batches of a secondary's store that its superblock counts as durable and a start reads: where each begins, and its
    /// bytes.
    fn counted_batches(&self, node: usize, group: GroupId, store: Store) -> Vec<(usize, usize)> {
        let disks = &self.nodes[node].disks;
        let tag = self.group_config(node, group).tag;
        let file = disks[&Store::Superblock(group)].durable();
        let read = superblock::read(file, tag).ok().and_then(|read| read.found);
        let follows = |sb: &Superblock| sb.identity.role == Role::Secondary && !sb.rolling_back;
        let Some(sb) = read.filter(follows) else { return Vec::new() };
        let (mut offset, first, last) = match store {
            Store::Journal(_) => (sb.journal.offset, sb.journal.ordinal, sb.confirmed_ordinal),
            _ => (0, 1, sb.rollback_point.batches.saturating_add(1)),
        };
        let ring = disks[&store].durable();
        let mut batches = Vec::new();
        for ordinal in first..last {
            // One that did not fit at the end stands at the start.
            let places = [offset, 0].into_iter();
            let found = places.filter_map(|at| Some((at, batch_at(store, ring, at)?))).find(|(_, b)| b.0 == ordinal);
            let Some((at, (_, bytes))) = found else { break };
            batches.push((at as usize, bytes as usize));
            offset = at + u64::from(bytes);
        }
        batches
    }

    /// Somebody copies what a secondary holds to restore it in a while: the superblock alone, all records, or those with the
    /// volumes.
    pub fn copies_records(&mut self, group: GroupId) {
        let primary = self.operator.authority(group);
        let node = self.other(group, primary);
        if self.healing || self.watch.spoiled.contains(&(group, node)) {
            return;
        }
        if !self.is_followed(group) {
            return self.schedule(SECOND / 2, Event::Copy(group));
        }
        let some = match self.rng.below(4) {
            0 => vec![Store::Superblock(group)],
            1 => records(group).to_vec(),
            _ => self.stores_of(node, group),
        };
        let disks = &self.nodes[node].disks;
        let stores = some.iter().map(|store| (*store, disks[store].durable().to_vec())).collect();
        let copy = OldCopy { group, node, primary, stores };
        let after = self.rng.between(SECOND / 10, 3 * SECOND);
        self.schedule(after, Event::Restore(copy));
    }

    /// The old copy comes back, if the primary is still the one to find out; often it starts again just then.
    pub fn restores_records(&mut self, copy: OldCopy) {
        if self.healing || self.operator.authority(copy.group) != copy.primary {
            return;
        }
        if !self.is_followed(copy.group) || self.operator.plans[&copy.group] != Plan::None {
            return self.schedule(SECOND / 2, Event::Restore(copy));
        }
        let OldCopy { group, node, primary, stores } = copy;
        self.log(format_args!("an old copy of {} stores of node {node} is restored", stores.len()));
        self.tally.faults += 1;
        self.loses_power_for_a_while(node);
        // Without its caches it would ask what the peer keeps of them: a known limit (docs/reliability.md).
        match self.rng.below(4) {
            0 => {}
            1 => self.crash(primary, false, SECOND / 5),
            // Cleanly: then no activity log has what was written lately compared.
            _ => self.input(primary, Input::Stop),
        }
        for (store, content) in stores {
            self.nodes[node].disks.get_mut(&store).expect("every store has a disk").restore(content);
        }
        self.watch.spoiled.insert((group, node));
        self.copy_is_void(group, node);
    }

    /// The primary serves, and in its order the secondary follows.
    fn is_followed(&self, group: GroupId) -> bool {
        let primary = self.operator.authority(group);
        let secondary = self.glance(self.other(group, primary), group);
        self.glance(primary, group).is_some_and(|glance| glance.state == State::Replicating)
            && secondary.is_some_and(|glance| glance.running && !glance.identity.inconsistent)
    }

    /// The operator of a node whose group failed on spoiled records makes them anew.
    pub fn replaces_spoiled_records_of(&mut self, node: usize) {
        let spoiled = self.watch.spoiled.iter().copied().filter(|(_, spoiled)| *spoiled == node);
        for (group, node) in spoiled.collect::<Vec<_>>() {
            self.replaces_records(group, node);
        }
    }

    fn replaces_records(&mut self, group: GroupId, node: usize) {
        self.log(format_args!("the operator empties what node {node} keeps of group {}", group.0));
        self.watch.spoiled.remove(&(group, node));
        self.crash(node, false, SECOND / 5);
        self.empties_records(group, node);
        self.nodes[node].wiped.insert(group);
        self.copy_is_void(group, node);
    }

    /// Nothing is recorded of the group on this node any more.
    pub fn empties_records(&mut self, group: GroupId, node: usize) {
        for store in records(group) {
            let disk = self.nodes[node].disks.get_mut(&store).expect("every store has a disk");
            disk.restore(vec![0; disk.size()]);
        }
    }

    /// The records of one node were spoiled and emptied, or somebody wrote to its copy, and the other never held an image, or
    /// gave it up: no command brings the group back.
    pub fn is_lost(&self, group: GroupId) -> bool {
        let pair = self.options.pairs[group.0 as usize];
        let has_no_image = |node: usize| {
            let status = self.nodes[node].engine.as_ref().map(|engine| engine.status()).unwrap_or_default();
            let of_group = status.into_iter().find(|status| status.id == group);
            let runs = self.glance(node, group).is_some_and(|glance| glance.running);
            runs && of_group
                .is_some_and(|status| status.identity.role == Role::Secondary && status.promotable.is_none())
        };
        let is_gone = |node: &SimNode| node.wiped.contains(&group) || node.lost_images.contains(&group);
        let was_emptied = pair.iter().any(|node| is_gone(&self.nodes[*node]));
        was_emptied && self.judge.pending() == 0 && pair.into_iter().all(has_no_image)
    }

    /// What the node's copy was known to be no longer holds.
    fn copy_is_void(&mut self, group: GroupId, node: usize) {
        self.watch.forget(group, node);
        self.watch.told_is_void(group, node);
        self.watch.may_flow(group, node);
        self.watch.hit.remove(&(group, node));
        self.judge.promises_void(group);
        self.operator.gives_up(group, node);
    }

    fn loses_power_for_a_while(&mut self, node: usize) {
        let down = self.rng.between(SECOND / 10, 3 * SECOND);
        self.crash(node, true, down);
    }

    /// The volumes of a group on a node, and its records.
    fn stores_of(&self, node: usize, group: GroupId) -> Vec<Store> {
        let of_group = |store: &&Store| matches!(store, Store::Volume(g, _) if *g == group);
        let volumes = self.nodes[node].disks.keys().filter(of_group).copied();
        volumes.chain(records(group)).collect()
    }
}
