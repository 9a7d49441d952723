//! Volumes far larger than what is written to them: 8 GiB to 16 TiB, of which clients know a few far apart places. Where the
//! engine's arithmetic has borders (a region, a word of bits, a cell of the bitmap, a frame of bits, an extent, the first
//! and the last byte) such a place lies across it.
//!
//! Disks and judges hold the places alone, one after the other: the volume's *image*. So nothing here costs the volume's
//! length, and the judges compare images as they do of a small volume. What the engine writes elsewhere has to be zeroes.
//!
//! The first sync of such a volume would take hours: both nodes begin as they would be after it, with records that a small
//! world of the same kind left at a clean stop, and bitmaps of the true size without a bit in them.

use std::ops::Range;
use std::sync::Arc;

use engine::bitmap::{self, BitmapCell, REGIONS_PER_CELL};
use engine::cell::{self, CELL_BYTES, Head};
use engine::limits::{GIB, KIB, MIB, REGION_BYTES};
use engine::superblock::{self, Superblock};
use engine::{ActivityConfig, GroupId, Input, NodeId, Store, VolumeId};

use crate::disk::SECTOR;
use crate::faults::Fault;
use crate::oracle::Failure;
use crate::rng::Rng;
use crate::storage::hash;
use crate::swarm::Options;
use crate::world::{Tally, World};

/// What makes the world of `--wide` another one than its seed's.
const WIDE: u64 = 0x61de_0000_0000_0000;
const SECTOR_BYTES: u64 = SECTOR as u64;
const SECOND: u64 = 1_000_000_000;
const TIB: u64 = 1024 * GIB;
/// Regions that one frame of dirty bits tells of; in bytes of the volume.
pub const BITS_FRAME_BYTES: u64 = 8 * GIB;
/// Regions of one word, and of one cell of the stored bitmap; in bytes.
const WORD_BYTES: u64 = 64 * REGION_BYTES;
const CELL_SPAN_BYTES: u64 = REGIONS_PER_CELL * REGION_BYTES;
/// Up to this size histories may fork: the full sync that follows is over in good time.
const FORKS_MAX: u64 = 10 * GIB;

/// Where clients write: places in order, whole sectors, not touching. All else is zeroes.
#[derive(Debug)]
pub struct Spread {
    spans: Vec<Range<u64>>,
    /// The image's byte with which each of them begins.
    begins: Vec<u64>,
    image_bytes: u64,
    /// Each region that a place lies in, and its part of the image.
    regions: Vec<(u64, Range<usize>)>,
}

impl Spread {
    /// Places that overlap or touch are joined.
    pub fn new(mut places: Vec<Range<u64>>) -> Spread {
        places.retain(|place| !place.is_empty());
        places.sort_by_key(|place| place.start);
        let mut spans: Vec<Range<u64>> = Vec::new();
        for place in places {
            assert!(place.start.is_multiple_of(SECTOR_BYTES) && place.end.is_multiple_of(SECTOR_BYTES));
            match spans.last_mut() {
                Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
                _ => spans.push(place),
            }
        }
        let (mut begins, mut regions, mut at) = (Vec::new(), Vec::new(), 0);
        for span in &spans {
            begins.push(at);
            let mut from = span.start;
            while from < span.end {
                let to = ((from / REGION_BYTES + 1) * REGION_BYTES).min(span.end);
                let part = (at + from - span.start) as usize..(at + to - span.start) as usize;
                regions.push((from / REGION_BYTES, part));
                from = to;
            }
            at += span.end - span.start;
        }
        Spread { spans, begins, image_bytes: at, regions }
    }

    pub fn image_bytes(&self) -> u64 {
        self.image_bytes
    }

    pub fn spans(&self) -> &[Range<u64>] {
        &self.spans
    }

    pub fn regions(&self) -> &[(u64, Range<usize>)] {
        &self.regions
    }

    /// The image's bytes that lie before this byte of the volume.
    fn before(&self, offset: u64) -> u64 {
        let Some(at) = self.spans.partition_point(|span| span.start < offset).checked_sub(1) else { return 0 };
        self.begins[at] + offset.min(self.spans[at].end) - self.spans[at].start
    }

    /// What a range of the volume has of the image; places that it covers whole lie side by side there.
    pub fn image(&self, offset: u64, length: u64) -> Range<u64> {
        self.before(offset)..self.before(offset + length)
    }

    /// The byte of the volume that a byte of the image stands for.
    pub fn place(&self, image: u64) -> u64 {
        let at = self.begins.partition_point(|begin| *begin <= image) - 1;
        self.spans[at].start + image - self.begins[at]
    }

    /// How much of a length fits into the place from that byte of the image on.
    pub fn fit(&self, image: u64, length: u64) -> u64 {
        let at = self.begins.partition_point(|begin| *begin <= image) - 1;
        length.min(self.begins[at] + self.spans[at].end - self.spans[at].start - image)
    }

    /// The pieces of a range of the volume that lie in places: where in the range, and how long.
    fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = Range<usize>> {
        let first = self.spans.partition_point(|span| span.end <= offset);
        let inside = self.spans[first..].iter().take_while(move |span| span.start < offset + length);
        inside.map(move |span| {
            let (from, to) = (span.start.max(offset), span.end.min(offset + length));
            (from - offset) as usize..(to - offset) as usize
        })
    }

    /// What data written there leaves in the image; `None`: it is not zeroes where nobody writes.
    pub fn folded(&self, offset: u64, data: &[u8]) -> Option<Vec<u8>> {
        let (mut image, mut end) = (Vec::new(), 0);
        for piece in self.pieces(offset, data.len() as u64) {
            if data[end..piece.start].iter().any(|byte| *byte != 0) {
                return None;
            }
            image.extend_from_slice(&data[piece.clone()]);
            end = piece.end;
        }
        data[end..].iter().all(|byte| *byte == 0).then_some(image)
    }

    /// A hash of the range of which that is the image's part: where in the range something stands, and what.
    pub fn hash(&self, offset: u64, length: u64, image: &[u8]) -> [u8; 32] {
        let (mut told, mut at) = (length.to_le_bytes().to_vec(), 0);
        for piece in self.pieces(offset, length) {
            for from in piece.step_by(SECTOR) {
                let sector = &image[at..at + SECTOR];
                at += SECTOR;
                if sector.iter().any(|byte| *byte != 0) {
                    told.extend_from_slice(&(from as u64).to_le_bytes());
                    told.extend_from_slice(sector);
                }
            }
        }
        hash(&told)
    }

    /// The range of the volume of which that is the image's part.
    pub fn unfolded(&self, offset: u64, length: u64, image: &[u8]) -> Vec<u8> {
        let (mut data, mut at) = (vec![0; length as usize], 0);
        for piece in self.pieces(offset, length) {
            let bytes = piece.len();
            data[piece].copy_from_slice(&image[at..at + bytes]);
            at += bytes;
        }
        data
    }
}

impl Options {
    /// Bytes of a volume that disks and judges hold.
    pub fn image_bytes(&self) -> u64 {
        self.spread.as_ref().map_or(self.volume_bytes, |spread| spread.image_bytes())
    }

    /// Each region of a volume that clients write to, and its part of an image of that length.
    pub fn regions(&self, image_bytes: usize) -> Vec<(u64, Range<usize>)> {
        if let Some(spread) = &self.spread {
            return spread.regions().to_vec();
        }
        let region = REGION_BYTES as usize;
        let whole = (0..image_bytes).step_by(region);
        whole.map(|from| ((from / region) as u64, from..(from + region).min(image_bytes))).collect()
    }

    /// Where a byte of the image lies in the volume.
    pub fn placed(&self, offset: u64) -> u64 {
        self.spread.as_ref().map_or(offset, |spread| spread.place(offset))
    }

    /// A full sync of these volumes is not waited for.
    pub fn syncs_for_hours(&self) -> bool {
        self.spread.is_some() && self.volume_bytes > FORKS_MAX
    }

    /// Nor is an update sync that has so much to send or to compare, because records of what differs were lost.
    pub fn takes_hours(&self, dirty_bytes: u64) -> bool {
        self.spread.is_some() && dirty_bytes > FORKS_MAX
    }

    /// Sizes that are odd multiples of a sector, on media of either kind, and wide volumes: for some seeds.
    pub fn with_drawn_sizes(mut self, rng: &mut Rng) -> Options {
        let odd = rng.percent(30);
        if odd {
            self.block_bytes = *rng.pick(&[512, 4096]);
            self.volume_bytes -= SECTOR_BYTES * (2 * rng.below(32) + 1);
        }
        if !self.skirmish && rng.percent(WIDE_PERCENT) {
            let size = wide_size(rng) + if odd { SECTOR_BYTES * (2 * rng.below(64) + 1) } else { 0 };
            self = self.widened(size, rng);
        }
        self
    }

    /// A seed's world with wide volumes, one in three of an odd size.
    pub fn draw_wide(seed: u64) -> Options {
        let mut rng = Rng::new(seed ^ WIDE);
        let odd = if rng.percent(33) { SECTOR_BYTES * (2 * rng.below(64) + 1) } else { 0 };
        let block_bytes = *rng.pick(&[512, 4096]);
        let size = wide_size(&mut rng) + odd;
        Options { block_bytes, ..Options::draw(seed ^ WIDE) }.widened(size, &mut rng)
    }

    /// The same world with volumes of that size.
    pub fn widened(mut self, size: u64, rng: &mut Rng) -> Options {
        self.pairs = vec![[0, 1]];
        self.volumes = rng.between(1, 3) as u16;
        self.volume_bytes = size;
        self.bytes_per_s = self.bytes_per_s.max(12_500_000);
        self.queue_items = self.queue_items.max(10_000);
        self.forks = size <= FORKS_MAX;
        if self.forks {
            self.volumes = 1;
            // Slow enough for a sync to be cut short.
            self.bytes_per_s = *rng.pick(&[4_000_000, 12_500_000, 125_000_000]);
        }
        // Without records, or by an order, a volume would be gone through from end to end.
        let blind = [Fault::Rot, Fault::RotAll, Fault::Astray, Fault::OldCopy];
        let whole = [Fault::FullSync, Fault::Whim, Fault::WhimOfTwo];
        let unfit = |fault: &Fault| blind.contains(fault) || whole.contains(fault);
        let forks = self.forks;
        self.faults.retain(|fault| !unfit(fault) && (forks || *fault != Fault::Failover));
        // Room for what a few hot extents have: else a compared sync takes the rollback point away.
        self.history_bytes = *rng.pick(&[self.history_bytes, 256 * MIB, 256 * MIB]);
        let many = rng.percent(25);
        if many {
            let extents = rng.between(600, 1200);
            self.activity = ActivityConfig { extent_bytes: 64 * KIB, extents: extents as u32 };
            self.spread = Some(Arc::new(many_places(size, extents, self.activity.extent_bytes, rng)));
        } else {
            let extent_bytes = *rng.pick(&[MIB, 4 * MIB, 4 * MIB, 8 * MIB]);
            self.activity = ActivityConfig { extent_bytes, extents: rng.between(4, 12) as u32 };
            self.spread = Some(Arc::new(border_places(size, extent_bytes, rng)));
        }
        self
    }
}

/// Runs a seed in a world with wide volumes, whatever else it draws.
pub fn run_wide(seed: u64, verbose: bool) -> (Result<(), Failure>, Tally) {
    crate::run(Options::draw_wide(seed), verbose)
}

/// Percent of seeds with wide volumes.
const WIDE_PERCENT: u64 = 12;

/// Half of them just above 8 GiB, a few of terabytes.
fn wide_size(rng: &mut Rng) -> u64 {
    let (from, to) = match rng.below(100) {
        0..50 => (8 * GIB, 10 * GIB),
        50..80 => (10 * GIB, 256 * GIB),
        80..98 => (256 * GIB, 2 * TIB),
        _ => (2 * TIB, 16 * TIB),
    };
    rng.between(from / 4096, to / 4096) * 4096
}

/// A few places across borders, each of two or three regions.
fn border_places(size: u64, extent_bytes: u64, rng: &mut Rng) -> Spread {
    let end = size / REGION_BYTES * REGION_BYTES;
    let mut borders = vec![0, end, size / CELL_SPAN_BYTES * CELL_SPAN_BYTES, size / WORD_BYTES * WORD_BYTES];
    borders.extend([BITS_FRAME_BYTES, TIB].into_iter().filter(|border| *border < size));
    for unit in [REGION_BYTES, WORD_BYTES, CELL_SPAN_BYTES, extent_bytes, BITS_FRAME_BYTES] {
        borders.push(rng.between(1, (size / unit).max(1)) * unit);
    }
    let place = |border: u64, rng: &mut Rng| {
        let from = border.saturating_sub(REGION_BYTES * rng.between(0, 2));
        from.min(size)..(from + REGION_BYTES * rng.between(2, 3)).min(size)
    };
    Spread::new(borders.into_iter().map(|border| place(border, rng)).collect())
}

/// So many of one block each, in extents of their own, besides the first and the last.
fn many_places(size: u64, count: u64, extent_bytes: u64, rng: &mut Rng) -> Spread {
    let extents = size / extent_bytes;
    let first = rng.below(extents - 2 * count);
    let mut places: Vec<_> = (0..count)
        .map(|n| {
            // Half of them close to each other, half over the whole volume.
            let extent = if n % 2 == 0 { first + n } else { rng.below(extents) };
            let at = extent * extent_bytes + rng.below(extent_bytes / 4096) * 4096;
            at..at + 4096
        })
        .collect();
    places.push(0..4096);
    places.push(size - 3 * SECTOR_BYTES..size);
    Spread::new(places)
}

impl World {
    /// Gives the nodes of a world with wide volumes the records of two that are in step.
    pub(crate) fn begin_mirrored(&mut self) {
        let left = records_after_a_clean_stop(&self.options);
        let group = GroupId(0);
        for (store, node, content) in left {
            self.nodes[node].disks.get_mut(&store).expect("every store has a disk").restore(content);
        }
        for node in 0..2 {
            // What they are records of is larger.
            let sb = Superblock { sizes: Vec::new(), ..self.superblock_of(node, group) };
            let superblock = self.nodes[node].disks.get_mut(&Store::Superblock(group)).expect("every store has a disk");
            let (mut content, newest) = (superblock.view().to_vec(), sb.encode());
            content[sb.slot_offset() as usize..][..newest.len()].copy_from_slice(&newest);
            superblock.restore(content);
            let content = clean_bitmap(&self.options, &sb, group);
            let bits = self.nodes[node].disks.get_mut(&Store::Bitmap(group)).expect("every store has a disk");
            bits.restore(content);
        }
        // Where both stand is where the judge's knowledge begins.
        let secondary = self.other(group, self.operator.authority(group));
        let at = self.superblock_of(secondary, group).identity.position;
        let images = self.nodes[secondary].views(group);
        self.judge.primary_up(group, at, &images);
    }

    fn superblock_of(&self, node: usize, group: GroupId) -> Superblock {
        let file = self.nodes[node].disks[&Store::Superblock(group)].view();
        let read = superblock::read(file, self.group_config(node, group).tag);
        read.ok().and_then(|read| read.found).expect("a clean stop left a superblock")
    }
}

/// What two nodes with small volumes keep once they are in step and stopped.
fn records_after_a_clean_stop(options: &Options) -> Vec<(Store, usize, Vec<u8>)> {
    let small = Options { volume_bytes: 2 * REGION_BYTES, spread: None, block_bytes: 4096, ..options.clone() };
    let (mut world, group) = (World::new(small, false), GroupId(0));
    while !world.in_step(group) {
        assert!(world.verdict.is_ok() && world.now < 300 * SECOND, "two small nodes do not come in step");
        world.run_until(world.now + SECOND / 2);
    }
    let mut left = Vec::new();
    for node in 0..2 {
        world.input(node, Input::Stop);
    }
    while left.len() < 6 {
        assert!(world.now < 600 * SECOND, "two small nodes do not stop");
        world.run_until(world.now + SECOND / 20);
        for node in 0..2 {
            let taken = left.iter().any(|(_, from, _)| *from == node);
            if !world.nodes[node].up() && !taken {
                // Without a rollback point nothing of the undo store is read.
                let stores = [Store::Superblock(group), Store::Activity(group), Store::Journal(group)];
                left.extend(stores.map(|store| (store, node, world.nodes[node].disks[&store].view().to_vec())));
            }
        }
    }
    left
}

/// A bitmap file without a bit, as if each cell had been written five times.
fn clean_bitmap(options: &Options, sb: &Superblock, group: GroupId) -> Vec<u8> {
    let (node, peer): (NodeId, NodeId) = (sb.node, sb.peer);
    let size = options.volume_bytes;
    let cells = engine::bitmap_file_bytes([size].into_iter()) / CELL_BYTES;
    let mut file = Vec::new();
    for volume in 0..options.volumes {
        for index in 0..cells {
            let place = file.len() as u64;
            let body = BitmapCell::encode(VolumeId(volume), size, index * REGIONS_PER_CELL, sb.confirmed, &[]);
            for update in [4, 5] {
                let head = Head { node, peer, tag: sb.tag, update, place, ..Head::default() };
                file.extend(cell::encode(bitmap::KIND, &head, &body));
            }
        }
    }
    assert_eq!(file.len() as u64 % CELL_BYTES, 0, "group {}", group.0);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_the_volume_is_a_range_of_the_image_and_back() {
        let spread = Spread::new(vec![4096..8192, 0..512, TIB..TIB + 1024, 8192..8704]);
        assert_eq!(spread.spans(), [0..512, 4096..8704, TIB..TIB + 1024]);
        assert_eq!(spread.image_bytes(), 512 + 4608 + 1024);
        assert_eq!(spread.image(0, 4096), 0..512);
        assert_eq!(spread.image(4608, 2 * TIB), 1024..6144);
        assert_eq!((spread.place(511), spread.place(512), spread.place(5120)), (511, 4096, TIB));
        assert_eq!((spread.fit(5120, 4096), spread.fit(512, 512)), (1024, 512));
        let mut data = vec![0; 8192];
        (data[0], data[511], data[4096]) = (1, 2, 3);
        let image = spread.folded(0, &data).expect("only where clients write");
        assert_eq!((image[0], image[511], image[512]), (1, 2, 3));
        assert_eq!(spread.unfolded(0, 8192, &image), data);
        data[600] = 1;
        assert_eq!(spread.folded(0, &data), None, "nobody writes there");
    }

    #[test]
    fn regions_are_cut_where_the_volume_has_them() {
        let spread = Spread::new(vec![0..512, 2 * REGION_BYTES - 512..2 * REGION_BYTES + 1024]);
        assert_eq!(spread.regions(), [(0, 0..512), (1, 512..1024), (2, 1024..2048)]);
    }
}
