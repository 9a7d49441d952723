//! WriteOracle of P1 after a power loss: what the secondary confirmed and the primary lost is back before the exports open, and
//! nothing newer was undone for it.

use std::collections::BTreeMap;

use engine::{GroupId, Position, Seq, VolumeId};

use super::WriteOracle;
use super::run::LoggedWrite;
use crate::oracle::{Oracle, OracleFailure};
use crate::stamps::{SECTOR, SectorFill, sector_bytes};

impl WriteOracle {
    /// A primary has set a volume aside: what of it waits in the queue, beyond what the peer has `confirmed`, goes there without content.
    pub fn streams_no_more(&mut self, node: usize, group: GroupId, volume: VolumeId, confirmed: Option<Position>) {
        let g = self.group(group);
        let Some((_, key)) = g.current.filter(|(primary, _)| *primary == node) else { return };
        let is_of_run = |at: &Position| (g.history(at.generation.tag), at.incarnation.0) == key;
        let through = confirmed.filter(is_of_run).map_or(Seq::NONE, |at| at.seq);
        let Some(run) = g.runs.get_mut(&key) else { return };
        let waiting = run.log.iter_mut().filter(|write| write.volume == volume && write.last > through);
        waiting.for_each(|write| write.streamed = false);
    }

    /// `images`: the volumes of a primary that lost power, before its exports open; `at`: where its secondary stands in the
    /// run that ended. No sector may hold less than the secondary has. `flushed`: that run was killed, and what it had written was
    /// flushed before the power failed: only what was under way when it was killed may be missing, as after a mere kill.
    pub fn check_pulled(
        &mut self,
        group: GroupId,
        at: Position,
        flushed: bool,
        images: &[&[u8]],
    ) -> Result<(), OracleFailure> {
        let g = self.group(group);
        let Some((_, key)) = g.current else { return Ok(()) };
        if (g.history(at.generation.tag), at.incarnation.0) != key {
            return Ok(());
        }
        let Some(run) = g.runs.get(&key) else { return Ok(()) };
        let mut newest: BTreeMap<(VolumeId, u64), (u64, SectorFill, bool)> = BTreeMap::new();
        for write in run.log.iter().filter(|write| write.last <= at.seq) {
            for sector in write.offset / SECTOR as u64..(write.offset + write.length) / SECTOR as u64 {
                newest.insert((write.volume, sector), (write.id.0, write.fill, write.streamed));
            }
        }
        // What reached the secondary as a region was never acknowledged by it as a write, and stays dirty here.
        for ((volume, index), (id, ..)) in newest.into_iter().filter(|(_, (.., streamed))| *streamed) {
            let Some(image) = images.get(usize::from(volume.0)).filter(|image| !image.is_empty()) else { continue };
            let sector = &g.sectors[usize::from(volume.0)][index as usize];
            let Some(theirs) = sector.versions.iter().position(|version| version.1 == id) else { continue };
            let complete =
                if flushed { sector.versions[..=theirs].iter().rposition(|version| version.2) } else { Some(theirs) };
            let Some(theirs) = complete else { continue };
            let fill = sector.versions[theirs].0;
            // What a failed write left was repaired, to what it overwrote perhaps.
            let failed = !sector.versions[theirs].2 && run.has_failed(volume, index);
            let found = &image[index as usize * SECTOR..][..SECTOR];
            let same = |fill: SectorFill| sector_bytes(fill, volume, index) == found;
            let ours = sector.versions.iter().rposition(|version| same(version.0));
            if ours.is_none_or(|ours| ours < theirs) && !run.is_wild(volume, index, at.seq) && !failed && !same(fill) {
                let holds = found.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                let what = format!(
                    "volume {} sector {index}: the secondary confirmed {fill:?} up to number {}, the primary lost it with its power \
                     and opens without it: it holds write {holds}, of {:?}",
                    volume.0, at.seq.0, sector.versions
                );
                return Err(OracleFailure::new(Oracle::Confirmation, what));
            }
        }
        Ok(())
    }

    /// A sync has ended. `durable`: what the primary's volumes hold without their caches; `theirs`: the secondary's volumes. No sector there
    /// holds a write that travelled as a region, and that the primary would lose with its power.
    pub fn check_behind(&self, group: GroupId, durable: &[&[u8]], theirs: &[&[u8]]) -> Result<(), OracleFailure> {
        let g = &self.groups[&group];
        let Some(run) = g.current.and_then(|(_, key)| g.runs.get(&key)) else { return Ok(()) };
        // Zeroes are everybody's.
        let is_told_apart = |write: &&LoggedWrite| write.never_streamed && matches!(write.fill, SectorFill::Stamp(_));
        for write in run.log.iter().filter(is_told_apart) {
            let volume = usize::from(write.volume.0);
            let (Some(ours), Some(theirs)) = (durable.get(volume), theirs.get(volume)) else { continue };
            for index in write.offset / SECTOR as u64..(write.offset + write.length) / SECTOR as u64 {
                let bytes = index as usize * SECTOR..(index as usize + 1) * SECTOR;
                let (Some(ours), Some(theirs)) = (ours.get(bytes.clone()), theirs.get(bytes)) else { continue };
                let versions = &g.sectors[volume][index as usize].versions;
                let holds = |bytes: &[u8]| {
                    versions.iter().rposition(|version| sector_bytes(version.0, write.volume, index) == bytes)
                };
                let Some(there) = holds(theirs).filter(|at| versions[*at].1 == write.id.0) else { continue };
                if holds(ours).is_none_or(|here| here < there) && !run.has_failed(write.volume, index) {
                    let what = format!(
                        "volume {} sector {index}: a sync brought write {:?} to the secondary, and no flush covers it here",
                        write.volume.0, write.fill
                    );
                    return Err(OracleFailure::new(Oracle::Confirmation, what));
                }
            }
        }
        Ok(())
    }
}
