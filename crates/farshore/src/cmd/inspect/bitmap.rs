//! The dirty regions of a group's volumes, cell by cell.

use std::collections::BTreeMap;

use engine::bitmap::{BitmapCell, KIND};
use engine::cell::{self, CELL_BYTES, Rejected};
use engine::limits::REGION_BYTES;
use serde_json::json;

use super::{Report, SHOWN, push_some, superblock_beside};
use crate::config::units::show_size;

pub(super) fn report(image: &[u8], path: &std::path::Path) -> Report {
    let mut report = Report::default();
    let mut volumes: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    let mut tag = None;
    let mut lost = 0;
    for (index, bytes) in image.chunks(CELL_BYTES as usize).enumerate() {
        let place = index as u64 * CELL_BYTES;
        let found = [0, 1, 2, 3].into_iter().find_map(|copy| {
            let block = bytes.get(copy * cell::BYTES..(copy + 1) * cell::BYTES)?;
            cell::decode(KIND, block).ok().map(|(head, _)| head.tag)
        });
        tag = tag.or(found);
        let choice = cell::choose(KIND, found.unwrap_or_default(), place, bytes);
        match choice.newest.and_then(|(_, body)| BitmapCell::decode(body)) {
            Ok(cell) if !choice.in_doubt => {
                let set = cell.words.iter().enumerate().flat_map(|(at, word)| {
                    let base = cell.first_region + at as u64 * 64;
                    (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| base + bit)
                });
                volumes.entry(cell.volume.0).or_default().extend(set);
            }
            Err(Rejected::Blank) => {}
            _ => {
                lost += 1;
                report.warnings.push(format!(
                    "cell {index} (bytes {place} to {}) is damaged: the daemon compares everything it stands for",
                    place + CELL_BYTES - 1
                ));
            }
        }
    }
    let Some(tag) = tag else {
        report.line("holds", "nothing yet: it is written at the first start");
        return report;
    };
    report.line("group", format!("tag {tag:016x}"));
    let mut maps = Vec::new();
    for (volume, set) in &volumes {
        let ranges = ranges(set.iter().copied());
        let bytes = set.len() as u64 * REGION_BYTES;
        let label = format!("volume {}", volume + 1);
        report.line(&label, format!("{} regions dirty, at most {}", set.len(), show_size(bytes)));
        let lines = ranges.iter().map(|(first, last)| format!("    regions {first} to {last}"));
        push_some(&mut report, lines, ranges.len(), "ranges");
        maps.push(json!({
            "volume": volume, "dirty_regions": set.len(), "first_ranges": &ranges[..ranges.len().min(SHOWN)],
        }));
    }
    if superblock_beside(path).is_some_and(|beside| !beside.clean) {
        report.line("besides", "what the activity log names: the daemon runs, or its last stop was not clean");
    }
    report.facts =
        json!({ "tag": format!("{tag:016x}"), "region_bytes": REGION_BYTES, "lost_cells": lost, "maps": maps });
    report
}

/// Neighbours joined: first and last.
fn ranges(set: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for region in set {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == region => *last = region,
            _ => ranges.push((region, region)),
        }
    }
    ranges
}
