//! One primary's run: the order of its writes, and what a prefix of them leaves on the volumes.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::{Position, RequestId, Seq, VolumeId, VolumeSet};

use crate::oracle::{Oracle, OracleFailure};
use crate::stamps::{SECTOR, SectorFill, sector_bytes};

/// One write in the order of a run.
#[derive(Clone, Debug)]
pub struct LoggedWrite {
    pub id: RequestId,
    pub first: Seq,
    pub last: Seq,
    /// Each number of it but the last stands for so much.
    pub part_bytes: u64,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    pub fill: SectorFill,
    /// It had its position in the stream; otherwise the secondary knows it by a region only.
    pub streamed: bool,
    /// It never had one. What was on its way when its volume was set aside may still arrive as a write.
    pub never_streamed: bool,
}

/// A sector that a failed write was for.
#[derive(Clone, Copy, Debug)]
struct WildSector {
    /// The last write of it that failed.
    failed: Seq,
    /// From this number on it is known again.
    until: Option<Seq>,
}

/// A sector that is what the primary's disk made of a failed write, from a number on.
#[derive(Clone, Debug)]
struct RepairedSector {
    from: Seq,
    volume: VolumeId,
    sector: u64,
    bytes: [u8; SECTOR],
}

/// One primary's run: where its volumes started, and the order of its writes.
#[derive(Debug, Default)]
pub struct PrimaryRun {
    base: Vec<Vec<u8>>,
    pub(super) log: Vec<LoggedWrite>,
    pub(super) last: Seq,
    /// Highest number acknowledged to a client, and acknowledged under `sync` while replicating.
    pub(super) acked: Seq,
    pub(super) promised: Seq,
    /// Highest number acknowledged under `nearsync` while replicating, since the secondary last died.
    pub(super) received: Seq,
    /// Sectors whose local write failed: the secondary's may be the one before it or after it, up to this number, or until they
    /// are known to be repaired.
    wild: BTreeMap<(VolumeId, u64), WildSector>,
    /// What they were repaired to: from that number on they hold this.
    repaired: Vec<RepairedSector>,
    /// Its exports have not opened yet.
    pub(super) fenced: bool,
    /// It goes on with the writes of the one before: the run in which their numbers began.
    pub(super) goes_on: Option<u64>,
    /// The prefix that a secondary claimed last, if the next one goes on from there.
    replayed: Option<ReplayedPrefix>,
}

/// The volumes of a run after a prefix of its writes.
#[derive(Debug)]
struct ReplayedPrefix {
    seq: Seq,
    /// So many of the log.
    writes: usize,
    /// Nothing of it is half a write.
    is_whole: bool,
    images: Vec<Vec<u8>>,
}

/// Which run: generation's tag and incarnation.
pub type RunKey = (u64, u64);

impl PrimaryRun {
    /// One whose exports have not opened, of volumes that are told next.
    pub fn unopened() -> PrimaryRun {
        PrimaryRun { fenced: true, ..PrimaryRun::default() }
    }

    /// Nothing counts in it yet, and these are its volumes; what they had before keeps its place in memory.
    pub fn begins_anew(self, images: &[&[u8]], fenced: bool) -> PrimaryRun {
        let mut base = self.base;
        base.resize_with(images.len(), Vec::new);
        for (volume, image) in base.iter_mut().zip(images).filter(|(volume, image)| volume != image) {
            volume.clear();
            volume.reserve_exact(image.len());
            volume.extend_from_slice(image);
        }
        PrimaryRun { base, fenced, ..PrimaryRun::default() }
    }

    /// The run that goes on with this one behind `last`, from its primary's log. Its exports have not opened yet.
    pub fn up_to(&self, last: Seq, begins: u64) -> PrimaryRun {
        let mut log: Vec<LoggedWrite> = self.log.iter().filter(|write| write.first <= last).cloned().collect();
        for write in log.iter_mut().filter(|write| write.last > last) {
            // The rest of it never was.
            write.length = (last.0 - write.first.0 + 1) * write.part_bytes;
            write.last = last;
        }
        PrimaryRun {
            base: self.base.clone(),
            log,
            last,
            acked: self.acked.min(last),
            promised: self.promised.min(last),
            received: self.received.min(last),
            wild: self.wild.clone(),
            repaired: self.repaired.iter().map(RepairedSector::clone).collect(),
            fenced: true,
            goes_on: Some(begins),
            replayed: None,
        }
    }

    /// It goes on with these volumes. What has grown, or came, since the run that it goes on with began holds there what it holds now.
    pub fn has_grown(&mut self, images: &[&[u8]]) {
        self.base.resize_with(self.base.len().max(images.len()), Vec::new);
        for (volume, image) in self.base.iter_mut().zip(images) {
            volume.extend_from_slice(image.get(volume.len()..).unwrap_or_default());
        }
    }

    /// What a sector held when it began.
    pub fn base_sector(&self, volume: usize, index: usize) -> Option<&[u8]> {
        self.base.get(volume)?.get(index * SECTOR..(index + 1) * SECTOR)
    }

    /// A write has its numbers; up to `acked` all was acknowledged when it was issued.
    pub fn admits(&mut self, write: LoggedWrite, acked: Seq, is_aside: bool) -> Result<(), OracleFailure> {
        if is_aside && write.first == self.last {
            self.log.push(write);
            return Ok(());
        }
        let first = write.first;
        if first <= self.last {
            return Err(OracleFailure::new(Oracle::Order, format!("number {} was given twice in one run", first.0)));
        }
        // Rule 4: issued after an acknowledgement means a higher number.
        if first <= acked {
            let what = format!("number {} is not above {}, acknowledged before", first.0, acked.0);
            return Err(OracleFailure::new(Oracle::Order, what));
        }
        self.last = write.last;
        self.log.push(write);
        Ok(())
    }

    /// A write up to `last` is answered with an error.
    pub fn write_failed(&mut self, volume: VolumeId, sectors: Range<u64>, last: Seq) {
        for sector in sectors {
            let wild = self.wild.entry((volume, sector)).or_insert(WildSector { failed: last, until: None });
            *wild = WildSector { failed: wild.failed.max(last), until: None };
        }
    }

    /// A write up to `last` is answered with success.
    pub fn write_done(&mut self, volume: VolumeId, sectors: Range<u64>, last: Seq) {
        for sector in sectors {
            // An older one may be answered later: it waited for the peer.
            if let Some(WildSector { failed, until: until @ None }) = self.wild.get_mut(&(volume, sector))
                && last > *failed
            {
                *until = Some(last);
            }
        }
        self.acked = self.acked.max(last);
    }

    /// Some sectors may be on either side of a failed write.
    pub fn has_wild(&self) -> bool {
        self.wild.values().any(|wild| wild.until.is_none())
    }

    /// The secondary is in step at `at`: what was wild is what the primary holds.
    pub fn is_repaired(&mut self, at: Seq, images: &[&[u8]]) {
        let from = self.last.max(at);
        for ((volume, sector), wild) in self.wild.iter_mut().filter(|(_, wild)| wild.until.is_none()) {
            wild.until = Some(from);
            let (volume, sector) = (*volume, *sector);
            // One that left is nobody's any more.
            let Some(image) = images.get(usize::from(volume.0)).filter(|image| !image.is_empty()) else { continue };
            let bytes = image[sector as usize * SECTOR..][..SECTOR].try_into().expect("a whole sector");
            self.repaired.push(RepairedSector { from, volume, sector, bytes });
        }
    }

    /// A secondary's images, but for these volumes, are those after exactly the numbers up to `at`.
    pub fn check_prefix(&mut self, at: Position, images: &[&[u8]], without: &VolumeSet) -> Result<(), OracleFailure> {
        let replayed = self.replayed_to(at.seq);
        let checked = self.compare_all(images, &replayed.images, at, without);
        self.replayed = Some(replayed).filter(|replayed| replayed.is_whole);
        checked
    }

    /// The volumes after exactly the numbers up to `seq`: what was looked at last, and what came after it.
    fn replayed_to(&mut self, seq: Seq) -> ReplayedPrefix {
        // A repair that was found since may belong before what was replayed.
        let goes_on = |of: &ReplayedPrefix| of.seq <= seq && self.repaired.is_empty();
        let fresh = || ReplayedPrefix { seq: Seq::NONE, writes: 0, is_whole: true, images: self.base.clone() };
        let mut replayed = self.replayed.take().filter(goes_on).unwrap_or_else(fresh);
        let mut repaired = self.repaired.iter().filter(|of| of.from <= seq).peekable();
        let repair = |images: &mut [Vec<u8>], of: &RepairedSector| {
            images[usize::from(of.volume.0)][of.sector as usize * SECTOR..][..SECTOR].copy_from_slice(&of.bytes);
        };
        for write in self.log.iter().skip(replayed.writes).take_while(|w| w.first <= seq) {
            while let Some(of) = repaired.next_if(|of| of.from < write.first) {
                repair(&mut replayed.images, of);
            }
            let parts = seq.0.min(write.last.0) - write.first.0 + 1;
            let length = (parts * write.part_bytes).min(write.length);
            for sector in write.offset / SECTOR as u64..(write.offset + length) / SECTOR as u64 {
                let bytes = sector_bytes(write.fill, write.volume, sector);
                let image = &mut replayed.images[usize::from(write.volume.0)];
                image[sector as usize * SECTOR..][..SECTOR].copy_from_slice(&bytes);
            }
            replayed.is_whole &= write.last <= seq;
            replayed.writes += 1;
        }
        repaired.for_each(|of| repair(&mut replayed.images, of));
        replayed.seq = seq;
        replayed
    }

    /// A write of the sector has failed.
    pub fn has_failed(&self, volume: VolumeId, sector: u64) -> bool {
        self.wild.contains_key(&(volume, sector))
    }

    /// Nobody knows which side of a failed write the sector is on at that number.
    pub fn is_wild(&self, volume: VolumeId, sector: u64, at: Seq) -> bool {
        self.wild.get(&(volume, sector)).is_some_and(|wild| wild.until.is_none_or(|until| at < until))
    }

    fn compare_all(
        &self,
        images: &[&[u8]],
        expected: &[Vec<u8>],
        at: Position,
        without: &VolumeSet,
    ) -> Result<(), OracleFailure> {
        let volumes = (0..).map(VolumeId).zip(images.iter().zip(expected));
        for (volume, (image, expected)) in volumes.filter(|(volume, _)| !without.contains(*volume)) {
            self.compare(volume, image, expected, at)?;
        }
        Ok(())
    }

    fn compare(&self, volume: VolumeId, image: &[u8], expected: &[u8], at: Position) -> Result<(), OracleFailure> {
        if image == expected {
            return Ok(());
        }
        for sector in 0..image.len().min(expected.len()) / SECTOR {
            let (found, wanted) = (&image[sector * SECTOR..][..SECTOR], &expected[sector * SECTOR..][..SECTOR]);
            if found != wanted && !self.is_wild(volume, sector as u64, at.seq) {
                let word = |b: &[u8]| u64::from_le_bytes(b[..8].try_into().expect("eight bytes"));
                let what = format!(
                    "the secondary is not the prefix up to {}: volume {} sector {sector} holds write {}, not {}",
                    at.seq.0,
                    volume.0,
                    word(found),
                    word(wanted)
                );
                return Err(OracleFailure::new(Oracle::Prefix, what));
            }
        }
        Ok(())
    }
}
