//! The check itself.
//!
//! 1. Read every sector ([`crate::scan`]). Damage ends it here.
//! 2. A write that is *seen* anywhere is in the prefix, and so is everything that was acknowledged before the issue of
//!    one that is. As "follows" is an order of intervals, one number says it all: the latest issue among the seen.
//! 3. Every write of that set must have been replaced by what is seen in its sectors: it is no prefix if that is the
//!    base, or a write that this one follows. A concurrent one leaves an edge: the seen write is the later one.
//! 4. The edges and the log together must allow an order ([`crate::order`]).
//! 5. The set so far is the shortest prefix. A write outside it may be in too if everything seen in its sectors can come
//!    after it; such writes do not stand in one another's way (their cycles shorten to cycles through one of them,
//!    because of two pairs of intervals, each one before the other, one of the crossed pairs is in order as well). The
//!    longest prefix is the shortest one plus all of these, less those that follow a write that cannot be in. What was
//!    acknowledged and is not in the longest prefix is lost.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

use crate::log::{RecordedWrite, WriteHistory};
use crate::order::{Edge, OrderCycle, WriteSpan, earliest_after, order_all};
use crate::scan::{BASE, Known, Surface, scan, sectors_of};
use crate::stamp::{SECTOR_BYTES, VolumeNumber, WriteName, WriterId};
use crate::verdict::{PrefixReport, PrefixVerdict, SectorPosition, Violation, WriterPrefix};

/// A volume as it was found, read once from its first byte to its last.
pub struct VolumeImage<'a> {
    pub(crate) volume: VolumeNumber,
    pub(crate) source: Box<dyn Read + 'a>,
    pub(crate) base: Option<Box<dyn Read + 'a>>,
}

impl<'a> VolumeImage<'a> {
    /// An image whose base is zeroes.
    pub fn new(volume: VolumeNumber, source: impl Read + 'a) -> Self {
        Self { volume, source: Box::new(source), base: None }
    }

    /// An image read straight from a file or device, whose base is zeroes.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(volume: VolumeNumber, path: &Path) -> io::Result<Self> {
        let file = std::fs::File::open(path)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot open image {}: {error}", path.display())))?;
        Ok(Self::new(volume, file))
    }

    /// What the volume held before the run; zeroes past its end.
    #[must_use]
    pub fn on_base(mut self, base: impl Read + 'a) -> Self {
        self.base = Some(Box::new(base));
        self
    }
}

/// Decide whether `images`, one for each volume that was written to, are together a prefix of `history`.
///
/// Memory: four bytes per sector below the last write of each volume, and about 100 bytes per write.
///
/// # Errors
/// An image cannot be read; a volume has writes but no image, or two images; two writes share a name or a tick.
pub fn check(history: &WriteHistory, images: Vec<VolumeImage<'_>>) -> io::Result<PrefixVerdict> {
    validate(history, &images)?;
    let known = Known::new(history.run, history.writes.clone());
    let mut images = images;
    images.sort_by_key(|image| image.volume);
    let mut surfaces = Vec::with_capacity(images.len());
    for mut image in images {
        let base = image.base.as_mut().map(|base| base.as_mut() as &mut dyn Read);
        match scan(&known, image.volume, image.source.as_mut(), base)? {
            Ok(surface) => surfaces.push(surface),
            Err(violation) => return Ok(PrefixVerdict::Broken(violation)),
        }
    }
    let check = PrefixChecker::new(&known.writes, &surfaces);
    Ok(check.decide().map_or_else(PrefixVerdict::Broken, PrefixVerdict::Prefix))
}

pub(crate) fn validate(history: &WriteHistory, images: &[VolumeImage<'_>]) -> io::Result<()> {
    let refuse = |problem: String| Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    let mut given = BTreeMap::new();
    for image in images {
        if given.insert(image.volume, ()).is_some() {
            return refuse(format!("volume {} has two images; give one of each", image.volume.0));
        }
    }
    let mut names = std::collections::HashSet::new();
    let mut ticks = std::collections::HashSet::new();
    for write in &history.writes {
        if !given.contains_key(&write.volume) {
            return refuse(format!("{} went to volume {}, whose image is not given", write.name, write.volume.0));
        }
        let ticks_new = ticks.insert(write.issued) && write.acknowledged.is_none_or(|tick| ticks.insert(tick));
        if !names.insert(write.name) || !ticks_new {
            return refuse(format!("{} is in the log twice, or shares a tick with another event", write.name));
        }
    }
    Ok(())
}

struct PrefixChecker<'a> {
    /// Sorted by issue; everything below speaks of them by index.
    writes: &'a [RecordedWrite],
    surfaces: &'a [Surface],
    /// Where each write is first seen.
    seen: Vec<Option<SectorPosition>>,
    /// In the shortest prefix.
    required: Vec<bool>,
    /// The last issued of the seen ones.
    last_seen: Option<usize>,
}

impl<'a> PrefixChecker<'a> {
    fn new(writes: &'a [RecordedWrite], surfaces: &'a [Surface]) -> Self {
        let mut seen = vec![None; writes.len()];
        for surface in surfaces {
            for (sector, &index) in surface.found.iter().enumerate() {
                if index != BASE {
                    seen[index as usize].get_or_insert(position(surface.volume, sector as u64));
                }
            }
        }
        let last_seen = seen.iter().rposition(Option::is_some);
        let latest_issue = last_seen.map_or(0, |index| writes[index].issued);
        let required = writes
            .iter()
            .zip(&seen)
            .map(|(write, seen)| seen.is_some() || acknowledged(write) < latest_issue)
            .collect();
        Self { writes, surfaces, seen, required, last_seen }
    }

    fn decide(&self) -> Result<PrefixReport, Violation> {
        let edges = self.overlaps()?;
        let nodes: Vec<usize> = (0..self.writes.len()).filter(|&index| self.required[index]).collect();
        let spans: Vec<WriteSpan> = nodes.iter().map(|&index| span(&self.writes[index])).collect();
        let mut rank = vec![0; self.writes.len()];
        for (at, &index) in nodes.iter().enumerate() {
            rank[index] = at;
        }
        let mut ranked: Vec<Edge> =
            edges.iter().map(|edge| Edge { before: rank[edge.before], after: rank[edge.after], ..*edge }).collect();
        ranked.sort_unstable();
        let order = order_all(&spans, &ranked).map_err(|cycle| self.disorder(&nodes, &cycle))?;
        let mut bounds = vec![0; self.writes.len()];
        for (at, earliest) in earliest_after(&spans, &ranked, &order).into_iter().enumerate() {
            bounds[nodes[at]] = earliest;
        }
        Ok(self.report(&self.longest(&bounds)))
    }

    /// Step 3: for every required write, what is seen in its sectors came after it.
    fn overlaps(&self) -> Result<Vec<Edge>, Violation> {
        let mut edges = Vec::new();
        for (index, write) in self.writes.iter().enumerate().filter(|&(index, _)| self.required[index]) {
            let first = edges.len();
            let mut previous = index;
            for (sector, found) in self.shown(write) {
                let found = found.ok_or_else(|| self.absent(index, sector, None))?;
                // Neighbouring sectors mostly show the same write.
                if found == index || found == previous {
                    continue;
                }
                previous = found;
                if acknowledged(&self.writes[found]) < write.issued {
                    return Err(self.absent(index, sector, Some(found)));
                }
                let follows = acknowledged(write) < self.writes[found].issued;
                if !follows && !edges[first..].iter().any(|edge: &Edge| edge.after == found) {
                    edges.push(Edge { before: index, after: found, volume: write.volume, sector });
                }
            }
        }
        Ok(edges)
    }

    /// What the sectors of a write hold; `None` is the base.
    fn shown(&self, write: &RecordedWrite) -> impl Iterator<Item = (u64, Option<usize>)> + use<'_> {
        let at = self.surfaces.binary_search_by_key(&write.volume, |surface| surface.volume);
        let surface = &self.surfaces[at.expect("every volume written to has an image")];
        sectors_of(write).map(|sector| {
            let found = surface.found[sector as usize];
            (sector, (found != BASE).then_some(found as usize))
        })
    }

    /// A required write, and a sector where it is not although nothing later is there.
    fn absent(&self, index: usize, sector: u64, found: Option<usize>) -> Violation {
        let write = &self.writes[index];
        let found = found.map(|found| self.writes[found].name);
        let position = position(write.volume, sector);
        if let Some(seen) = self.seen[index] {
            return Violation::Torn { position, name: write.name, found, seen };
        }
        let later = self.last_seen.expect("an unseen write is required by a seen one");
        let later_seen = self.seen[later].expect("the last seen write is seen");
        Violation::Missing { position, name: write.name, found, later: self.writes[later].name, later_seen }
    }

    fn disorder(&self, nodes: &[usize], cycle: &OrderCycle) -> Violation {
        let first = cycle.edges.iter().min_by_key(|edge| (edge.volume, edge.sector)).expect("a cycle has an overlap");
        let names: Vec<WriteName> = cycle.nodes.iter().map(|&node| self.writes[nodes[node]].name).collect();
        Violation::Disorder { position: position(first.volume, first.sector), names }
    }

    /// Step 5. `bounds`: for a required write, the earliest acknowledgement among it and all that must come after it.
    fn longest(&self, bounds: &[u64]) -> Vec<bool> {
        let mut included = self.required.clone();
        let mut out_acknowledged = u64::MAX;
        for (index, write) in self.writes.iter().enumerate().filter(|&(index, _)| !self.required[index]) {
            included[index] = self.shown(write).all(|(_, found)| found.is_some_and(|f| write.issued < bounds[f]));
            if !included[index] {
                out_acknowledged = out_acknowledged.min(acknowledged(write));
            }
        }
        for (index, write) in self.writes.iter().enumerate() {
            debug_assert!(!self.required[index] || write.issued < out_acknowledged, "checked in step 3");
            included[index] &= write.issued < out_acknowledged;
        }
        included
    }

    fn report(&self, included: &[bool]) -> PrefixReport {
        let mut report = PrefixReport::default();
        let mut newest: BTreeMap<WriterId, WriterPrefix> = BTreeMap::new();
        for (index, write) in self.writes.iter().enumerate() {
            let WriteName { writer, number } = write.name;
            let entry = newest.entry(writer).or_insert(WriterPrefix { writer, included: 0, acknowledged: 0 });
            if write.acknowledged.is_some() {
                entry.acknowledged = entry.acknowledged.max(number);
            }
            if included[index] && (write.acknowledged.is_some() || self.seen[index].is_some()) {
                report.included_writes += 1;
                entry.included = entry.included.max(number);
            } else if write.acknowledged.is_some() {
                report.lost_writes += 1;
                report.lost_bytes += u64::from(write.length_bytes);
                report.lost_first.get_or_insert(write.name);
            }
        }
        report.newest = newest.into_values().collect();
        report
    }
}

pub(crate) fn position(volume: VolumeNumber, sector: u64) -> SectorPosition {
    SectorPosition { volume, offset_bytes: sector * SECTOR_BYTES as u64 }
}

fn acknowledged(write: &RecordedWrite) -> u64 {
    write.acknowledged.unwrap_or(u64::MAX)
}

fn span(write: &RecordedWrite) -> WriteSpan {
    WriteSpan { issued: write.issued, acknowledged: acknowledged(write) }
}
