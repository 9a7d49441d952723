//! Volumes far larger than what is written to them: 8 GiB to 16 TiB, of which clients know a few far apart places. Where the
//! engine's arithmetic has borders (a region, a unit in which is saved, a word of bits, a leaf of them, a cell of the bitmap, an extent, the first
//! and the last byte) such a place lies across it.

use std::ops::Range;
use std::sync::Arc;

use engine::ActivityConfig;
use engine::bitmap::REGIONS_PER_CELL;
use engine::limits::{GIB, KIB, MIB, REGION_BYTES, SAVE_UNIT_BYTES};

use super::SimOptions;
use super::fault::FaultKind;
use super::spread::WriteSpread;
use crate::rng::Rng;
use crate::stamps::SECTOR;

/// What makes the world of `--wide` another one than its seed's.
const WIDE: u64 = 0x61de_0000_0000_0000;
const SECTOR_BYTES: u64 = SECTOR as u64;
pub const TIB: u64 = 1024 * GIB;
/// Behind so many bytes an injected fault displaces dirty bits that are reported to a peer.
pub const BITS_FRAME_BYTES: u64 = 8 * GIB;
/// Regions of one word, and of one cell of the stored bitmap; in bytes.
const WORD_BYTES: u64 = 64 * REGION_BYTES;
const CELL_SPAN_BYTES: u64 = REGIONS_PER_CELL * REGION_BYTES;
/// Regions of one leaf of a map in memory, in bytes.
const LEAF_BYTES: u64 = CELL_SPAN_BYTES / 9;
/// Up to this size histories may fork: the full sync that follows is over in good time.
const FORKS_MAX: u64 = 10 * GIB;

impl SimOptions {
    /// Bytes of a volume that disks and checkers hold.
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

    /// How much of a length fits into the place from that byte of the image on.
    pub fn fit(&self, image: u64, length: u64) -> u64 {
        self.spread.as_ref().map_or(length, |spread| spread.fit(image, length))
    }

    /// Where a byte of the image lies in the volume.
    pub fn spread_offset(&self, offset: u64) -> u64 {
        self.spread.as_ref().map_or(offset, |spread| spread.offset_of(offset))
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
    pub fn with_drawn_sizes(mut self, rng: &mut Rng) -> SimOptions {
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
    pub fn draw_wide(seed: u64) -> SimOptions {
        let mut rng = Rng::new(seed ^ WIDE);
        let odd = if rng.percent(33) { SECTOR_BYTES * (2 * rng.below(64) + 1) } else { 0 };
        let block_bytes = *rng.pick(&[512, 4096]);
        let size = wide_size(&mut rng) + odd;
        SimOptions { block_bytes, ..SimOptions::draw(seed ^ WIDE) }.widened(size, &mut rng)
    }

    /// The same world with volumes of that size.
    pub fn widened(mut self, size: u64, rng: &mut Rng) -> SimOptions {
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
        let blind = [FaultKind::Rot, FaultKind::RotAll, FaultKind::Astray, FaultKind::OldCopy];
        let whole = [FaultKind::FullSync, FaultKind::Whim, FaultKind::WhimOfTwo];
        let unfit = |fault: &FaultKind| blind.contains(fault) || whole.contains(fault);
        let forks = self.forks;
        self.faults.retain(|fault| !unfit(fault) && (forks || *fault != FaultKind::Failover));
        // Room for what a few hot extents have: else a compared sync takes the rollback point away.
        self.history_bytes = *rng.pick(&[self.history_bytes, 256 * MIB, 256 * MIB]);
        let many = rng.percent(25);
        if many {
            let extents = rng.between(600, 1200);
            self.activity = ActivityConfig { extent_bytes: 64 * KIB, extents: extents as u32 };
            self.spread = Some(Arc::new(many_ranges(size, extents, self.activity.extent_bytes, rng)));
        } else {
            let extent_bytes = *rng.pick(&[MIB, 4 * MIB, 4 * MIB, 8 * MIB]);
            self.activity = ActivityConfig { extent_bytes, extents: rng.between(4, 12) as u32 };
            self.spread = Some(Arc::new(border_ranges(size, extent_bytes, rng)));
        }
        self
    }
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

/// A few places across borders, each of two or three units.
fn border_ranges(size: u64, extent_bytes: u64, rng: &mut Rng) -> WriteSpread {
    let end = size / REGION_BYTES * REGION_BYTES;
    let mut borders = vec![0, end, size / CELL_SPAN_BYTES * CELL_SPAN_BYTES, size / LEAF_BYTES * LEAF_BYTES];
    borders.extend([BITS_FRAME_BYTES, TIB].into_iter().filter(|border| *border < size));
    for unit in [SAVE_UNIT_BYTES, WORD_BYTES, LEAF_BYTES, CELL_SPAN_BYTES, extent_bytes, BITS_FRAME_BYTES] {
        borders.push(rng.between(1, (size / unit).max(1)) * unit);
    }
    let range_at = |border: u64, rng: &mut Rng| {
        let from = border.saturating_sub(SAVE_UNIT_BYTES * rng.between(0, 2));
        from.min(size)..(from + SAVE_UNIT_BYTES * rng.between(2, 3)).min(size)
    };
    WriteSpread::new(borders.into_iter().map(|border| range_at(border, rng)).collect())
}

/// So many of one block each, in extents of their own, besides the first and the last.
fn many_ranges(size: u64, count: u64, extent_bytes: u64, rng: &mut Rng) -> WriteSpread {
    let extents = size / extent_bytes;
    let first = rng.below(extents - 2 * count);
    let mut ranges: Vec<_> = (0..count)
        .map(|n| {
            // Half of them close to each other, half over the whole volume.
            let extent = if n % 2 == 0 { first + n } else { rng.below(extents) };
            let at = extent * extent_bytes + rng.below(extent_bytes / 4096) * 4096;
            at..at + 4096
        })
        .collect();
    ranges.push(0..4096);
    ranges.push(size - 3 * SECTOR_BYTES..size);
    WriteSpread::new(ranges)
}
