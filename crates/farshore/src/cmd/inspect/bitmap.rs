//! The dirty regions of a group's volumes, as they are stored: what the activity log covers comes on top.

use std::collections::BTreeMap;
use std::path::Path;

use engine::bitmap::{BitmapCell, KIND};
use engine::limits::REGION_BYTES;
use serde_json::{Value, json};

use super::cell;
use super::report::{InspectReport, SHOWN};
use super::superblock::superblock_beside;
use crate::daemon::seals;
use units::exact::show_size;

/// One volume's dirty regions, in order.
#[derive(Default)]
struct VolumeBits {
    size_bytes: u64,
    /// First and last of neighbours.
    ranges: Vec<(u64, u64)>,
    dirty: u64,
}

impl VolumeBits {
    fn mark(&mut self, region: u64) {
        self.dirty += 1;
        match self.ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(region) => *last = region,
            _ => self.ranges.push((region, region)),
        }
    }
}

pub(super) fn report(image: &[u8], path: &Path) -> InspectReport {
    let mut report = InspectReport::default();
    let mut volumes: BTreeMap<u16, VolumeBits> = BTreeMap::new();
    let costs = "the daemon compares everything it stands for";
    let lost = cell::each(KIND, image, &mut report, costs, |_, body| {
        let found = BitmapCell::decode(body)?;
        let volume = volumes.entry(found.volume.0).or_default();
        volume.size_bytes = found.volume_bytes;
        for (at, word) in found.words.iter().enumerate() {
            let base = found.first_region.saturating_add(at as u64 * 64);
            (0..64).filter(|bit| word >> bit & 1 == 1).for_each(|bit| volume.mark(base.saturating_add(bit)));
        }
        Ok(())
    });
    if volumes.is_empty() && report.warnings.is_empty() && report.failure.is_none() {
        report.line("holds", "nothing yet: it is written at the first start");
        return report;
    }
    let tag = cell::tag(KIND, image);
    report.line("group", format!("tag {tag:016x}"));
    let names = names(path).filter(|names| names.len() == volumes.len()).unwrap_or_default();
    let maps: Vec<Value> = volumes
        .iter()
        .map(|(number, volume)| describe(&mut report, *number, names.get(usize::from(*number)), volume))
        .collect();
    if superblock_beside(path).is_some_and(|beside| !beside.clean) {
        report.line("besides", "what the activity log names: the daemon runs, or its last stop was not clean");
    }
    report.facts =
        json!({ "tag": format!("{tag:016x}"), "region_bytes": REGION_BYTES, "lost_cells": lost, "maps": maps });
    report
}

/// The volumes' names, from the fingerprints of the same stop, if there are any.
fn names(path: &Path) -> Option<Vec<String>> {
    let sealed = seals::decode(&std::fs::read(path.with_file_name("fingerprints")).ok()?).ok()?;
    let beside = superblock_beside(path)?;
    let same = beside.clean && beside.identity.incarnation == sealed.run;
    same.then(|| sealed.volumes.into_keys().collect())
}

/// What a checksum covers may still be no size and no region that there is: sums end at the largest number.
fn describe(report: &mut InspectReport, number: u16, name: Option<&String>, volume: &VolumeBits) -> Value {
    let ranges = &volume.ranges;
    let regions = volume.size_bytes.div_ceil(REGION_BYTES);
    let spare = if regions > 0 && ranges.last().is_some_and(|(_, last)| *last == regions - 1) {
        regions.saturating_mul(REGION_BYTES) - volume.size_bytes
    } else {
        0
    };
    let dirty_bytes = volume.dirty.saturating_mul(REGION_BYTES) - spare;
    let label = match name {
        Some(name) => format!("volume {name}"),
        None => format!("volume {} (by name)", u32::from(number) + 1),
    };
    report.line(&label, format!("{} of {regions} regions dirty, {}", volume.dirty, show_size(dirty_bytes)));
    let lines = ranges.iter().map(|(first, last)| {
        let end = last.saturating_add(1).saturating_mul(REGION_BYTES).min(volume.size_bytes);
        let begin = first.saturating_mul(REGION_BYTES);
        format!("    regions {first} to {last}: bytes {begin} to {}", end.saturating_sub(1))
    });
    report.push_some(lines, ranges.len(), "ranges");
    json!({
        "volume": number, "name": name, "size_bytes": volume.size_bytes, "regions": regions,
        "dirty_regions": volume.dirty, "dirty_bytes": dirty_bytes,
        "first_ranges": &ranges[..ranges.len().min(SHOWN)],
    })
}

#[cfg(test)]
mod tests {
    use engine::bitmap::REGIONS_PER_CELL;
    use engine::cell::{BYTES, CELL_BYTES, CellHead, encode};
    use engine::identity::Confirmed;
    use engine::{Bitmap, VolumeId};

    use super::*;
    use crate::outcome::Exit;

    /// Two cells of one volume, both their slots alike.
    fn image() -> Vec<u8> {
        let size = (REGIONS_PER_CELL + 100) * REGION_BYTES - 512;
        let mut map = Bitmap::new(size);
        for region in [3, 4, 5, 64, REGIONS_PER_CELL + 99] {
            map.set(region);
        }
        let mut image = Vec::new();
        for index in 0..2 {
            for update in [2, 1] {
                let head = CellHead { update, tag: 7, offset: index * CELL_BYTES, ..CellHead::default() };
                let body = BitmapCell::encode(
                    VolumeId(0),
                    size,
                    index * REGIONS_PER_CELL,
                    Confirmed::default(),
                    &map.cell(index),
                );
                image.extend(encode(KIND, &head, &body));
            }
        }
        image
    }

    #[test]
    fn regions_are_counted_and_damage_is_located() {
        let nowhere = Path::new("/nowhere/bitmap");
        let mut image = image();
        let seen = report(&image, nowhere);
        assert_eq!(seen.exit(), Exit::Done, "{seen:?}");
        let last = REGIONS_PER_CELL + 99;
        assert_eq!(seen.facts["maps"][0]["first_ranges"], json!([[3, 5], [64, 64], [last, last]]));
        assert_eq!(seen.facts["maps"][0]["dirty_bytes"], 5 * REGION_BYTES - 512);
        let second = CELL_BYTES as usize;
        image[second + 50] ^= 1;
        let seen = report(&image, nowhere);
        assert_eq!((seen.warnings.len(), seen.facts["lost_cells"].as_u64()), (1, Some(0)), "the twin counts: {seen:?}");
        (1..4).for_each(|copy| image[second + copy * BYTES + 50] ^= 1);
        let seen = report(&image, nowhere);
        assert_eq!((seen.exit(), seen.facts["lost_cells"].as_u64()), (Exit::Warning, Some(1)));
        assert!(seen.warnings.iter().any(|w| w.contains("cell 1 (bytes 16384 to 32767) is lost")), "{seen:?}");
        assert_eq!(report(&[0; 2 * CELL_BYTES as usize], nowhere).exit(), Exit::Done);
    }

    /// Of a cell whose checksum is right, whoever wrote it.
    #[test]
    fn numbers_that_no_volume_has_are_shown_and_end_nothing() {
        let all = vec![u64::MAX; REGIONS_PER_CELL as usize / 64];
        // The last region of the largest size.
        let last = u64::MAX / REGION_BYTES;
        let in_cell = last % REGIONS_PER_CELL;
        let mut one = vec![0u64; all.len()];
        one[in_cell as usize / 64] = 1u64 << (in_cell % 64);
        let last_cell = u64::MAX - u64::MAX % REGIONS_PER_CELL;
        let cases = [(u64::MAX, last_cell, &all), (0, last_cell, &all), (u64::MAX, last - in_cell, &one)];
        for (size, first, words) in cases {
            let body = BitmapCell::encode(VolumeId(u16::MAX), size, first, Confirmed::default(), words);
            let slot = |update| encode(KIND, &CellHead { update, tag: 7, ..CellHead::default() }, &body);
            let seen = report(&[slot(2), slot(1)].concat(), Path::new("/nowhere/bitmap"));
            let dirty: u32 = words.iter().map(|word| word.count_ones()).sum();
            assert_eq!(seen.facts["maps"][0]["dirty_regions"], dirty, "{seen:?}");
            assert!(seen.lines.iter().any(|line| line.contains("volume 65536 (by name)")), "{seen:?}");
        }
    }
}
