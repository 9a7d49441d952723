//! A verify names what rotted, and nothing else: each rotten sector that stands from its begin to its end, and no range in which none
//! stood meanwhile.

use std::collections::BTreeMap;

use engine::limits::VERIFY_NAMED_MAX;
use engine::status::VerifyTotals;
use engine::{GroupId, Store, VolumeId, VolumeSet};

use crate::nodes::SimCluster;
use crate::oracle::{Oracle, OracleFailure};
use crate::stamps::SECTOR;

/// A range of a volume.
#[derive(Clone, Copy, Debug)]
pub struct NamedRange {
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
}

impl NamedRange {
    fn has(&self, volume: VolumeId, sector: u64) -> bool {
        let at = sector * SECTOR as u64;
        self.volume == volume && (self.offset..self.offset + self.length).contains(&at)
    }
}

struct RunningVerify {
    began: u64,
    named: Vec<NamedRange>,
    /// Volumes that were set aside at some time: nothing of these need have been compared.
    left_out: VolumeSet,
}

#[derive(Default)]
pub struct VerifyChecker(BTreeMap<(GroupId, usize), RunningVerify>);

impl VerifyChecker {
    pub fn began(&mut self, group: GroupId, node: usize, now: u64, left_out: VolumeSet) {
        self.0.insert((group, node), RunningVerify { began: now, named: Vec::new(), left_out });
    }

    pub fn leaves_out(&mut self, group: GroupId, node: usize, volume: VolumeId) {
        if let Some(run) = self.0.get_mut(&(group, node)) {
            run.left_out.insert(volume);
        }
    }

    pub fn names(
        &mut self,
        cluster: &SimCluster,
        group: GroupId,
        node: usize,
        range: NamedRange,
    ) -> Result<(), OracleFailure> {
        let Some(run) = self.0.get_mut(&(group, node)) else { return Ok(()) };
        run.named.push(range);
        let stood = cluster.pair(group).into_iter().any(|node| {
            let rot = cluster[node].storage.rot.of(Store::Volume(group, range.volume));
            let mut rot = rot.filter(|(sector, _)| range.has(range.volume, *sector));
            rot.any(|(_, rot)| rot.mended.is_none_or(|mended| mended >= run.began))
        });
        if stood {
            return Ok(());
        }
        let what = format!("group {}: a verify names {range:?}, where both copies were equal all the time", group.0);
        Err(OracleFailure::new(Oracle::Verify, what))
    }

    /// It has come to its end. A sample need not have found anything, nor one that could not read all; of
    /// many ranges the first are named.
    pub fn ended(
        &mut self,
        cluster: &SimCluster,
        (group, node): (GroupId, usize),
        is_full: bool,
        totals: VerifyTotals,
    ) -> Result<(), OracleFailure> {
        let Some(RunningVerify { began, named, left_out }) = self.0.remove(&(group, node)) else { return Ok(()) };
        if !is_full || totals.unread_bytes > 0 || named.len() >= VERIFY_NAMED_MAX {
            return Ok(());
        }
        for (member, volume) in cluster
            .pair(group)
            .into_iter()
            .flat_map(|member| (0..cluster.options.volumes).map(move |volume| (member, VolumeId(volume))))
            .filter(|(_, volume)| !left_out.contains(*volume))
        {
            let rot = cluster[member].storage.rot.of(Store::Volume(group, volume));
            let mut missed = rot.filter(|(_, rot)| rot.stands() && rot.since <= began);
            let is_named = |sector: u64| named.iter().any(|range| range.has(volume, sector));
            if let Some((sector, _)) = missed.find(|(sector, _)| !is_named(*sector)) {
                let what = format!(
                    "group {} volume {}: a whole verify has not named sector {sector}, which was rotten on node {member} all the time",
                    group.0, volume.0
                );
                return Err(OracleFailure::new(Oracle::Verify, what));
            }
        }
        Ok(())
    }
}
