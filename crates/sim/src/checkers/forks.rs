//! Of a fork that is resolved by bits: what the node that was not chosen held where the two differed is in its delta, durable, before the
//! choice is on record; and the delta holds nothing else than that node's content.

use std::collections::BTreeMap;

use engine::delta::{DeltaHead, DeltaWalk, HEAD_BYTES};
use engine::identity::Identity;
use engine::{GroupId, Store, VolumeId};

use crate::nodes::SimCluster;
use crate::options::spread::WriteSpread;
use crate::oracle::{Oracle, OracleFailure};
use crate::payload::crc32c;
use crate::stamps::SECTOR;

/// As it was ordered that a node's content is kept: over which generation, and by whom.
#[derive(Clone, Copy)]
pub struct KeepOrdered {
    pub over: u64,
    pub discard: bool,
    pub by_policy: bool,
}

/// An order to keep a node's content.
pub struct KeepOrder {
    ordered: KeepOrdered,
    /// What the node that is kept held then. What it writes later is no difference that was there.
    images: Vec<Vec<u8>>,
}

#[derive(Default)]
pub struct ForkChecker {
    orders: BTreeMap<(GroupId, usize), KeepOrder>,
    /// The last promotion of each node: the generation that it left, the one that it began, and whether it was forced.
    promotions: BTreeMap<(GroupId, usize), (u64, u64, bool)>,
}

/// What a delta holds: by volume and sector. `None`: it says that what stood there is lost.
pub(super) type SavedSectors = BTreeMap<(usize, usize), Option<Vec<u8>>>;

impl ForkChecker {
    /// What was ordered before is given back, for [`ForkChecker::is_refused`].
    pub fn ordered(
        &mut self,
        cluster: &SimCluster,
        node: usize,
        group: GroupId,
        ordered: KeepOrdered,
    ) -> Option<KeepOrder> {
        let images = cluster[node].views(group).into_iter().map(<[u8]>::to_vec).collect();
        self.orders.insert((group, node), KeepOrder { ordered, images })
    }

    /// It was refused at once: one that was under way goes on.
    pub fn is_refused(&mut self, node: usize, group: GroupId, before: Option<KeepOrder>) {
        match before {
            Some(before) => _ = self.orders.insert((group, node), before),
            None => _ = self.orders.remove(&(group, node)),
        }
    }

    pub fn is_promoted(&mut self, node: usize, group: GroupId, identity: &Identity, forced: bool) {
        let (left, begun) = (identity.parent.generation.tag, identity.generation.tag);
        self.promotions.insert((group, node), (left, begun, forced));
    }

    /// A choice that nobody typed is on record: of the two only this node was promoted since they parted, and with force; and the other one
    /// is in the run in which they did.
    pub fn check_policy(&self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let by_policy = self.orders.get(&(group, node)).is_some_and(|order| order.ordered.by_policy);
        let Some(ours) = cluster.glance(node, group).map(|glance| glance.identity).filter(|_| by_policy) else {
            return Ok(());
        };
        let objects = |what: &str| {
            let what = format!("group {}: node {node} keeps its content by policy, {what}", group.0);
            Err(OracleFailure::new(Oracle::OneWriter, what))
        };
        if let Some((_, begun, false)) = self.promotions.get(&(group, node))
            && *begun == ours.generation.tag
        {
            return objects("and nobody forced its promotion");
        }
        let other = cluster.other(group, node);
        let theirs = cluster.glance(other, group).map(|glance| glance.identity.incarnation);
        match self.promotions.get(&(group, other)) {
            Some((left, ..)) if *left == ours.parent.generation.tag => objects("and the other one was promoted, too"),
            // It may be an older copy of itself.
            _ if theirs.is_some_and(|run| run != ours.parent.incarnation) => {
                objects("and the other one was started again since")
            }
            _ => Ok(()),
        }
    }

    /// Somebody ordered that this node is kept.
    pub fn was_ordered(&self, node: usize, group: GroupId) -> bool {
        self.orders.contains_key(&(group, node))
    }

    /// What was saved on the node that gives its content up cannot be looked at any more: its operator moved it somewhere else, or somebody
    /// wrote to the volumes that it is compared with.
    pub fn delta_is_moved(&mut self, group: GroupId, kept: usize) {
        if let Some(order) = self.orders.get_mut(&(group, kept)) {
            order.ordered.discard = true;
        }
    }

    /// The choice is on record.
    pub fn check_delta(&self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let objects = |what: String| Err(OracleFailure::new(Oracle::OneWriter, format!("group {}: {what}", group.0)));
        let Some(order) = self.orders.get(&(group, node)) else {
            return objects(format!("node {node} keeps its content, and nobody ordered it"));
        };
        if order.ordered.discard {
            return Ok(());
        }
        let other = cluster.other(group, node);
        let file = cluster[other].storage.disk_if_any(Store::Delta(group)).map_or(&[][..], |disk| disk.durable());
        let saved = match saved_sectors(file, order.ordered.over, cluster[other].storage.spread()) {
            Ok(saved) => saved,
            Err(what) => return objects(format!("the delta of node {other} is not whole: {what}")),
        };
        let theirs = cluster[other].views(group);
        for ((volume, sector), content) in &saved {
            let found = theirs[*volume].get(sector * SECTOR..(sector + 1) * SECTOR);
            if found.is_some_and(|found| content.as_deref() != Some(found)) {
                return objects(format!("the delta of node {other} holds another sector {sector} of volume {volume}"));
            }
        }
        // What has no device on one of the nodes is left out, and nothing of it is sent.
        let has_device = |volume: usize| {
            let is_detached = |node: usize| cluster[node].storage.is_detached(group, VolumeId(volume as u16));
            !is_detached(node) && !is_detached(other)
        };
        let volumes = order.images.iter().zip(&theirs).enumerate();
        for (volume, (ours, theirs)) in volumes.filter(|(volume, _)| has_device(*volume)) {
            let mut sectors = ours.chunks(SECTOR).zip(theirs.chunks(SECTOR)).enumerate();
            let unsaved = |(at, (a, b)): &(usize, (&[u8], &[u8]))| a != b && !saved.contains_key(&(volume, *at));
            if let Some((at, _)) = sectors.find(unsaved) {
                return objects(format!(
                    "sector {at} of volume {volume} differs, and node {other} has not saved its own"
                ));
            }
        }
        Ok(())
    }
}

/// Reads a delta as any program that did not write it would. `spread`: where the image of a wide volume stands.
pub(super) fn saved_sectors(file: &[u8], over: u64, spread: Option<&WriteSpread>) -> Result<SavedSectors, String> {
    let head = file.get(..HEAD_BYTES as usize).and_then(DeltaHead::decode).ok_or("it has no head")?;
    if head.position.generation.tag != over {
        return Err("it is of another history".into());
    }
    let (mut walk, mut saved) = (DeltaWalk::new(head), SavedSectors::new());
    while let Some(offset) = walk.next_offset() {
        let block = file.get(offset as usize..offset as usize + HEAD_BYTES as usize);
        let index = block.and_then(|block| walk.take(block)).ok_or(format!("no batch at byte {offset}"))?;
        for entry in &index.entries {
            let length = entry.length as usize;
            let (from, to) = (entry.offset, entry.offset + u64::from(entry.length));
            let image = spread.map_or(from..to, |spread| spread.image(from, to - from));
            let content = if entry.payload_at == 0 {
                vec![0; (image.end - image.start) as usize]
            } else {
                let from = offset as usize + entry.payload_at as usize;
                let found = file.get(from..from + length).ok_or("it is cut short")?;
                if crc32c(found) != entry.payload_crc {
                    return Err(format!("what was saved at byte {from} is damaged"));
                }
                let folded = spread.map_or_else(|| Some(found.to_vec()), |spread| spread.folded(entry.offset, found));
                folded.ok_or("something stands where nobody writes")?
            };
            let first = image.start as usize / SECTOR;
            for (at, sector) in content.chunks(SECTOR).enumerate() {
                let sector = (!entry.is_lost).then(|| sector.to_vec());
                saved.insert((usize::from(entry.volume.0), first + at), sector);
            }
        }
    }
    if walk.is_whole() { Ok(saved) } else { Err("it ends elsewhere than its head says".into()) }
}
