//! Of a fork that a full sync ends: before the end is on record, a delta holds what the copy held wherever the sync overwrote that; and it
//! holds nothing else. A volume that the sync leaves out is owed one by the sync that takes it in. Whatever the answer to an order says of
//! such a file comes true.

use std::collections::{BTreeMap, BTreeSet};

use engine::identity::Identity;
use engine::superblock::Superblock;
use engine::undo::{INDEX_BYTES, UndoEntry, UndoIndex};
use engine::{CommandId, CommandResult, Generation, GroupId, Position, Store, VolumeId};

use super::forks::saved_sectors;
use crate::nodes::SimCluster;
use crate::oracle::{Oracle, OracleFailure};
use crate::payload::crc32c;
use crate::stamps::SECTOR;

/// A copy that a sync is about to overwrite.
struct OverwrittenCopy {
    /// As it was when its rollback point was taken, at this position. `None`: the volume has had another disk since.
    images: Vec<Option<Vec<u8>>>,
    at: Position,
    /// Of what the sync overwrites in these volumes there is to be a delta: the primary's history does not lead over that position, or an
    /// earlier sync left them out.
    owes: BTreeSet<VolumeId>,
    /// The number of the superblock's update that was seen last with the point; `None`: it was not on record yet.
    seen: Option<u64>,
    is_saved: bool,
}

#[derive(Default)]
pub struct OverwrittenChecker {
    copies: BTreeMap<(GroupId, usize), OverwrittenCopy>,
    /// Volumes that hold a history of their node's own, which follows another one.
    owed: BTreeMap<(GroupId, usize), BTreeSet<VolumeId>>,
    /// Full syncs that were typed, and the node that they overwrite.
    typed: BTreeMap<CommandId, ((GroupId, usize), Generation)>,
    /// These were said to save what they overwrite on this node, once that takes up a sync of this history.
    promised: BTreeMap<(GroupId, usize), Generation>,
}

impl OverwrittenChecker {
    /// The node takes a rollback point. `is_resolved`: what only it has was saved before, or given up by an order.
    pub fn takes_point(&mut self, cluster: &SimCluster, node: usize, group: GroupId, at: Position, is_resolved: bool) {
        let other = cluster.other(group, node);
        let primary = cluster.glance(other, group).map(|glance| glance.identity);
        let own = cluster.record(node, group).map_or(at.generation, |record| record.identity.generation);
        // Also where the primary died as that came to its record, and nobody heard of it.
        let is_chosen = cluster.record(other, group).is_some_and(|record| record.kept_over != 0);
        let is_of_fork = !is_resolved && !is_chosen && primary.is_some_and(|primary| !leads_over(&primary, own, at));
        let images: Vec<_> = cluster[node].views(group).into_iter().map(|image| Some(image.to_vec())).collect();
        let owes = if is_of_fork { volumes(images.len(), cluster.record(node, group)) } else { BTreeSet::new() };
        if is_resolved || is_chosen {
            self.owed.remove(&(group, node));
        }
        self.copies.insert((group, node), OverwrittenCopy { images, at, owes, seen: None, is_saved: false });
    }

    /// A full sync is typed that overwrites this node.
    pub fn is_typed(&mut self, cluster: &SimCluster, id: CommandId, group: GroupId, node: usize) {
        if let Some(primary) = cluster.glance(cluster.other(group, node), group) {
            self.typed.insert(id, ((group, node), primary.identity.generation));
        }
    }

    /// That is answered.
    pub fn hears_answer(&mut self, id: CommandId, answer: &CommandResult) {
        let Some((over, chosen)) = self.typed.remove(&id) else { return };
        match answer {
            CommandResult::Done(text) if text.contains("the peer saves what it overwrites") => {
                self.promised.insert(over, chosen)
            }
            _ => self.promised.remove(&over),
        };
    }

    /// The volume has another disk: what stood in it is gone with the old one.
    pub fn has_another_disk(&mut self, group: GroupId, node: usize, volume: VolumeId) {
        let image = self.copies.get_mut(&(group, node)).and_then(|copy| copy.images.get_mut(usize::from(volume.0)));
        image.into_iter().for_each(|image| *image = None);
        self.owed.entry((group, node)).or_default().remove(&volume);
    }

    /// It went back to the point: what stands there is what it was.
    pub fn went_back(&mut self, group: GroupId, node: usize) {
        self.copies.remove(&(group, node));
        self.promised.remove(&(group, node));
    }

    /// Its operator gives a point up, if that is of no fork.
    pub fn may_be_given_up(&mut self, group: GroupId, node: usize) {
        self.promised.remove(&(group, node));
    }

    /// Its operator gave the point up with all that it kept, nobody knows any more what stands there, or it counts.
    pub fn forget(&mut self, group: GroupId, node: usize) {
        self.went_back(group, node);
        self.owed.remove(&(group, node));
    }

    /// It was promoted: what stands there counts, but for what has no device.
    pub fn is_promoted(&mut self, cluster: &SimCluster, group: GroupId, node: usize) {
        self.went_back(group, node);
        let has_none = |volume: &VolumeId| cluster[node].storage.is_detached(group, *volume);
        self.owed.entry((group, node)).or_default().retain(has_none);
    }

    /// A delta has its head.
    pub fn check_saved(&mut self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let has_point = cluster.record(node, group).is_some_and(|record| record.rollback_point.id != 0);
        if !has_point {
            return Ok(());
        }
        // It came true, whatever is known of the copy.
        self.promised.remove(&(group, node));
        let Some(copy) = self.copies.get_mut(&(group, node)) else { return Ok(()) };
        let objects = |what: String| {
            let what = format!("group {}: the delta of what a sync overwrote on node {node} {what}", group.0);
            Err(OracleFailure::new(Oracle::OneWriter, what))
        };
        let file = cluster[node].storage.disk_if_any(Store::Delta(group)).map_or(&[][..], |disk| disk.durable());
        let saved = match saved_sectors(file, copy.at.generation.tag, cluster[node].storage.spread()) {
            Ok(saved) => saved,
            Err(what) => return objects(format!("is not whole: {what}")),
        };
        for ((volume, sector), content) in &saved {
            let image = copy.images[*volume].as_deref().unwrap_or_default();
            let found = image.get(sector * SECTOR..(sector + 1) * SECTOR);
            match content {
                None if !is_damaged(cluster, node, group, (*volume, sector * SECTOR)) => {
                    return objects(format!(
                        "calls sector {sector} of volume {volume} lost, and nothing is damaged there"
                    ));
                }
                Some(content) if found.is_some_and(|found| found != content) => {
                    return objects(format!("holds another sector {sector} of volume {volume} than stood there"));
                }
                _ => {}
            }
        }
        let has_device = |volume: usize| !cluster[node].storage.is_detached(group, VolumeId(volume as u16));
        let now = cluster[node].views(group);
        let owes = |volume: usize| copy.owes.contains(&VolumeId(volume as u16));
        let volumes = copy.images.iter().zip(&now).enumerate();
        let volumes = volumes.filter(|(volume, _)| has_device(*volume) && owes(*volume));
        for (volume, (before, now)) in volumes {
            let Some(before) = before else { continue };
            let mut sectors = before.chunks(SECTOR).zip(now.chunks(SECTOR)).enumerate();
            let unsaved = |(at, (a, b)): &(usize, (&[u8], &[u8]))| a != b && !saved.contains_key(&(volume, *at));
            if let Some((at, _)) = sectors.find(unsaved) {
                return objects(format!("lacks sector {at} of volume {volume}, which is overwritten"));
            }
        }
        copy.is_saved = true;
        // What is set aside from here on was taken in.
        let left_out = cluster.record(node, group).map(|record| record.sync_aside).unwrap_or_default();
        self.owed.entry((group, node)).or_default().retain(|volume| left_out.contains(*volume));
        Ok(())
    }

    /// A sync that has ended has left its delta. `is_rotten`: what the undo store of this node held may be lost.
    pub fn look(
        &mut self,
        cluster: &SimCluster,
        group: GroupId,
        is_rotten: impl Fn(usize) -> bool,
    ) -> Result<(), OracleFailure> {
        for node in cluster.pair(group) {
            let Some(record) = cluster.record(node, group) else { continue };
            let is_taken_up = |chosen: &Generation| *chosen == record.identity.generation;
            let is_promised = self.promised.get(&(group, node)).is_some_and(is_taken_up);
            let objects =
                |what: String| Err(OracleFailure::new(Oracle::OneWriter, format!("group {}: {what}", group.0)));
            let has_nothing = record.identity.inconsistent && record.rollback_point.id == 0;
            if is_promised && has_nothing && !is_rotten(node) {
                return objects(format!("node {node} was said to save what is overwritten, and has no image"));
            }
            let Some(copy) = self.copies.get_mut(&(group, node)) else {
                self.has_taken_in(&record, group, node);
                continue;
            };
            let is_old = copy.seen.is_some_and(|seen| record.update < seen);
            let has_point = record.rollback_point.id != 0 && record.rollback_point.position == copy.at;
            if has_point && !is_old {
                let owed = self.owed.entry((group, node)).or_default();
                if is_promised {
                    self.promised.remove(&(group, node));
                }
                copy.is_being_overwritten(&record, owed, is_promised);
                continue;
            }
            if copy.seen.is_none() && !is_old {
                continue;
            }
            let has_ended = !is_old && !record.identity.inconsistent && !record.identity.generation.is_blank();
            let lacks_delta = has_ended && !copy.owes.is_empty() && !copy.is_saved && !is_rotten(node);
            self.copies.remove(&(group, node));
            if is_old {
                self.owed.remove(&(group, node));
            }
            self.has_taken_in(&record, group, node);
            if lacks_delta {
                return objects(format!(
                    "a sync has ended that overwrote a history of node {node}'s own, and there is no delta of it"
                ));
            }
        }
        Ok(())
    }

    /// What a whole copy presents was taken in by a sync.
    fn has_taken_in(&mut self, record: &Superblock, group: GroupId, node: usize) {
        if !record.identity.inconsistent {
            self.owed.entry((group, node)).or_default().retain(|volume| record.aside.contains(*volume));
        }
    }
}

impl OverwrittenCopy {
    /// The point is on record. `is_promised`: a delta, to whoever ordered the sync.
    fn is_being_overwritten(&mut self, record: &Superblock, owed: &mut BTreeSet<VolumeId>, is_promised: bool) {
        if is_promised {
            // Of a volume that the sync leaves out it overwrites nothing.
            self.owes = volumes(self.images.len(), Some(record.clone()));
            self.owes.retain(|volume| !record.sync_aside.contains(*volume));
        }
        if !self.is_saved {
            owed.extend(&self.owes);
        }
        if owed.iter().any(|volume| !record.sync_aside.contains(*volume)) {
            self.owes.extend(owed.iter());
        }
        self.seen = Some(record.update);
    }
}

/// So many, without those whose device holds nothing of the group yet.
fn volumes(count: usize, record: Option<Superblock>) -> BTreeSet<VolumeId> {
    let unfilled = record.map(|record| record.unfilled).unwrap_or_default();
    (0..count as u16).map(VolumeId).filter(|id| !unfilled.contains(*id)).collect()
}

/// What the undo store kept of this place cannot be read any more, in whichever batch it stands. Wide volumes are not looked at.
fn is_damaged(cluster: &SimCluster, node: usize, group: GroupId, (volume, at): (usize, usize)) -> bool {
    let file = cluster[node].storage.disk(Store::Undo(group)).view();
    let blocks = (0..file.len()).step_by(INDEX_BYTES);
    let batches = blocks.filter_map(|from| Some((from, UndoIndex::decode(file.get(from..from + INDEX_BYTES)?)?)));
    let is_here = |entry: &UndoEntry| {
        let range = entry.offset as usize..entry.offset as usize + entry.length as usize;
        usize::from(entry.volume.0) == volume && range.contains(&at)
    };
    let rots = |from: usize, entry: &UndoEntry| {
        let from = from + entry.payload_at as usize;
        file.get(from..from + entry.length as usize).is_none_or(|content| crc32c(content) != entry.payload_crc)
    };
    cluster[node].storage.spread().is_some()
        || batches
            .into_iter()
            .any(|(from, index)| index.entries.iter().any(|entry| is_here(entry) && rots(from, entry)))
}

/// Whoever stands there, in a history of its `own`, followed this primary's, or the one that it grew from no further than it grew from there.
/// One that went back to the image before a sync is still a follower of that history.
fn leads_over(primary: &Identity, own: Generation, at: Position) -> bool {
    let parent = primary.parent;
    let is_behind = at.generation != own || (at.incarnation, at.seq) <= (parent.incarnation, parent.seq);
    own == primary.generation || own == parent.generation && is_behind
}
