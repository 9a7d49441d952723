//! Of a fork that a full sync ends: before the end is on record, a delta holds what the copy held wherever the sync overwrote that; and it
//! holds nothing else.

use std::collections::BTreeMap;

use engine::identity::Identity;
use engine::undo::{INDEX_BYTES, UndoEntry, UndoIndex};
use engine::{Generation, GroupId, Position, Store, VolumeId};

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
    /// The primary's history does not lead over that position.
    is_of_fork: bool,
    /// The number of the superblock's update that was seen last with the point; `None`: it was not on record yet.
    seen: Option<u64>,
    is_saved: bool,
}

#[derive(Default)]
pub struct OverwrittenChecker {
    copies: BTreeMap<(GroupId, usize), OverwrittenCopy>,
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
        let images = cluster[node].views(group).into_iter().map(|image| Some(image.to_vec())).collect();
        let copy = OverwrittenCopy { images, at, is_of_fork, seen: None, is_saved: false };
        self.copies.insert((group, node), copy);
    }

    /// The volume has another disk: what stood in it is gone with the old one.
    pub fn has_another_disk(&mut self, group: GroupId, node: usize, volume: VolumeId) {
        let image = self.copies.get_mut(&(group, node)).and_then(|copy| copy.images.get_mut(usize::from(volume.0)));
        image.into_iter().for_each(|image| *image = None);
    }

    /// It went back to the point, its operator gave that up with all that it kept, or nobody knows any more what stands there.
    pub fn forget(&mut self, group: GroupId, node: usize) {
        self.copies.remove(&(group, node));
    }

    /// A delta has its head.
    pub fn check_saved(&mut self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let has_point = cluster.record(node, group).is_some_and(|record| record.rollback_point.id != 0);
        let Some(copy) = self.copies.get_mut(&(group, node)).filter(|_| has_point) else { return Ok(()) };
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
        let volumes = copy.images.iter().zip(&now).enumerate().filter(|(volume, _)| has_device(*volume));
        for (volume, (before, now)) in volumes {
            let Some(before) = before else { continue };
            let mut sectors = before.chunks(SECTOR).zip(now.chunks(SECTOR)).enumerate();
            let unsaved = |(at, (a, b)): &(usize, (&[u8], &[u8]))| a != b && !saved.contains_key(&(volume, *at));
            if let Some((at, _)) = sectors.find(unsaved) {
                return objects(format!("lacks sector {at} of volume {volume}, which is overwritten"));
            }
        }
        copy.is_saved = true;
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
            let (Some(copy), Some(record)) = (self.copies.get_mut(&(group, node)), cluster.record(node, group)) else {
                continue;
            };
            let is_old = copy.seen.is_some_and(|seen| record.update < seen);
            let has_point = record.rollback_point.id != 0 && record.rollback_point.position == copy.at;
            if has_point && !is_old {
                copy.seen = Some(record.update);
                continue;
            }
            if copy.seen.is_none() && !is_old {
                continue;
            }
            let has_ended = !is_old && !record.identity.inconsistent && !record.identity.generation.is_blank();
            let lacks_delta = has_ended && copy.is_of_fork && !copy.is_saved && !is_rotten(node);
            self.forget(group, node);
            if lacks_delta {
                let what = format!(
                    "group {}: a sync has ended that overwrote a history of node {node}'s own, and there is no delta of it",
                    group.0
                );
                return Err(OracleFailure::new(Oracle::OneWriter, what));
            }
        }
        Ok(())
    }
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
