//! Every sector that differs between two related copies lies in a dirty region of one of them (P3), and at rest none does (P5).

use std::collections::BTreeMap;
use std::ops::Range;

use engine::limits::REGION_BYTES;
use engine::{GroupId, VolumeId};

use crate::nodes::SimCluster;
use crate::nodes::volumes::DeviceId;
use crate::oracle::{Oracle, OracleFailure};
use crate::stamps::SECTOR;

/// The two copies of a region, compared when one of them had changed.
struct ComparedRegion {
    region: u64,
    /// Of the image.
    bytes: Range<usize>,
    /// The image's in both nodes, when they were compared.
    revisions: Option<[u64; 2]>,
    differ: bool,
}

#[derive(Default)]
struct ComparedVolume {
    /// So much both have, and on these devices.
    both: usize,
    devices: Option<[DeviceId; 2]>,
    regions: Vec<ComparedRegion>,
}

#[derive(Default)]
pub struct CoverageChecker {
    checks: u64,
    /// What was found when the two copies of a volume were compared last.
    compared: BTreeMap<(GroupId, VolumeId), ComparedVolume>,
}

impl CoverageChecker {
    /// How often it looked.
    pub fn checks(&self) -> u64 {
        self.checks
    }

    pub fn check(&mut self, cluster: &SimCluster, group: GroupId, pair: (usize, usize)) -> Result<(), OracleFailure> {
        self.checks += 1;
        self.compare_changed(cluster, group, pair.0);
        self.uncovered(cluster, group, pair).map_or(Ok(()), |what| Err(OracleFailure::new(Oracle::Coverage, what)))
    }

    /// Looks which regions of the two copies differ, where one of them has changed since.
    fn compare_changed(&mut self, cluster: &SimCluster, group: GroupId, primary: usize) {
        for volume in cluster.numbers(primary, group) {
            let [Some(a), Some(b)] = cluster.pair(group).map(|node| cluster.volume_disk(node, group, volume)) else {
                continue;
            };
            let used = cluster.volume_bytes(primary, group, volume).unwrap_or(0) as usize;
            let both = a.size().min(b.size()).min(used);
            let devices = cluster.devices(group, volume);
            let compared = self.compared.entry((group, volume)).or_default();
            if (compared.both, compared.devices) != (both, devices) {
                let one = |(region, bytes)| ComparedRegion { region, bytes, revisions: None, differ: false };
                let regions = cluster.options.regions(both).into_iter().map(one).collect();
                *compared = ComparedVolume { both, devices, regions };
            }
            for part in &mut compared.regions {
                let revisions = Some([a.revision(&part.bytes), b.revision(&part.bytes)]);
                if part.revisions != revisions {
                    part.revisions = revisions;
                    part.differ = a.view()[part.bytes.clone()] != b.view()[part.bytes.clone()];
                }
            }
        }
    }

    fn uncovered(&self, cluster: &SimCluster, group: GroupId, pair: (usize, usize)) -> Option<String> {
        let (primary, secondary) = pair;
        let (ours, theirs) = (cluster[primary].engine()?, cluster[secondary].engine()?);
        let at = |volume: VolumeId| {
            let [ours, theirs] = [primary, secondary].map(|node| cluster.position(node, group, volume));
            Some((volume, [ours?, theirs?]))
        };
        let both = cluster.numbers(primary, group).into_iter().filter_map(at);
        let differ = both.flat_map(|v| self.compared[&(group, v.0)].regions.iter().map(move |part| (v, part)));
        let mut differ = differ.filter(|(_, part)| part.differ).peekable();
        differ.peek()?;
        let (ours, theirs) = (ours.dirty_regions(group), theirs.dirty_regions(group));
        let is_dirty = |at: &[VolumeId; 2], region: u64| {
            [&ours, &theirs].iter().zip(at).any(|(dirty, at)| dirty[usize::from(at.0)].get(region))
        };
        let ((volume, _), part) = differ.find(|((_, at), part)| !is_dirty(at, part.region))?;
        let of = |node: usize| {
            let disk = cluster.volume_disk(node, group, volume).expect("both nodes have it");
            &disk.view()[part.bytes.clone()]
        };
        Some(format!(
            "group {} volume {} region {} differs between nodes {primary} and {secondary}, and neither holds it for dirty; {}",
            group.0,
            volume.0,
            part.region,
            first_difference(part.region, of(primary), of(secondary))
        ))
    }
}

/// The first sector that differs, and whose writes its two versions are.
fn first_difference(region: u64, a: &[u8], b: &[u8]) -> String {
    let mut sectors = a.chunks(SECTOR).zip(b.chunks(SECTOR)).enumerate();
    let Some((at, (x, y))) = sectors.find(|(_, (x, y))| x != y) else { return String::new() };
    let stamp = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let sector = region * REGION_BYTES / SECTOR as u64 + at as u64;
    format!("sector {sector}: write {} and write {}", stamp(x), stamp(y))
}

/// At rest both nodes hold the same bytes (P5).
pub fn check_equal(cluster: &SimCluster, group: GroupId) -> Result<(), OracleFailure> {
    let [a, b] = cluster.pair(group).map(|node| cluster.views(node, group));
    for (volume, (x, y)) in a.iter().zip(b).enumerate() {
        // Behind that `check_larger_part` looks.
        let both = x.len().min(y.len()) / SECTOR;
        if let Some(at) = (0..both).find(|s| x[s * SECTOR..][..SECTOR] != y[s * SECTOR..][..SECTOR]) {
            let what = format!("group {} volume {volume} sector {at} differs at rest", group.0);
            return Err(OracleFailure::new(Oracle::Equality, what));
        }
    }
    Ok(())
}

/// The same where the group's volumes are larger than they began.
pub fn check_larger_part(cluster: &SimCluster, group: GroupId) -> Result<(), OracleFailure> {
    for volume in cluster.numbers(cluster.primary(group), group) {
        let Some(end) = cluster.volume_bytes(cluster.primary(group), group, volume) else { return Ok(()) };
        let (from, end) = (cluster.options.image_bytes() as usize, end as usize);
        let of = |node: usize| cluster.volume_disk(node, group, volume).and_then(|disk| disk.view().get(from..end));
        let [a, b] = cluster.pair(group).map(of);
        if cluster.options.spread.is_none() && (a.is_none() || a != b) {
            let what = format!("group {} volume {} differs at rest behind byte {from}, of {end}", group.0, volume.0);
            return Err(OracleFailure::new(Oracle::Equality, what));
        }
    }
    Ok(())
}
