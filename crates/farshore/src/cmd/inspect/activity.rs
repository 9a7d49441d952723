//! The activity log: which extents were being written.

use std::path::Path;

use engine::activity::{ActivityCell, Extent, KIND, SLOTS_PER_CELL};
use engine::limits::EXTENT_BYTES;
use serde_json::json;

use super::cell;
use super::report::{InspectReport, SHOWN};
use super::superblock::superblock_beside;
use units::exact::show_size;

pub(super) fn report(image: &[u8], path: &Path) -> InspectReport {
    let mut report = InspectReport::default();
    let (mut extents, mut run, mut cells) = (Vec::new(), 0, 0);
    let costs = "after an unclean stop the daemon compares every region of the group";
    let lost = cell::each(KIND, image, &mut report, costs, |_, body| {
        let found = ActivityCell::decode(body)?;
        (run, cells) = (run.max(found.incarnation.0), cells + 1);
        extents.extend(found.extents);
        Ok(())
    });
    if cells == 0 && report.warnings.is_empty() && report.failure.is_none() {
        report.line("holds", "nothing yet: it is written at the first start");
        return report;
    }
    extents.sort();
    let tag = cell::tag(KIND, image);
    report.line("group", format!("tag {tag:016x}"));
    report.line("written in", format!("run {run} of this node"));
    let (count, slots) = (extents.len() as u64, cells * SLOTS_PER_CELL);
    report.line("hot", format!("{count} extents of {slots} at most, {}", show_size(count * EXTENT_BYTES)));
    let line = |extent: &Extent| {
        // What a checksum covers may still be no extent that there is.
        let first = extent.number.saturating_mul(EXTENT_BYTES);
        let last = first.saturating_add(EXTENT_BYTES - 1);
        format!("    volume {} (by name): bytes {first} to {last}", u32::from(extent.volume.0) + 1)
    };
    report.push_some(extents.iter().map(line), extents.len(), "extents");
    match superblock_beside(path) {
        Some(beside) if beside.clean => report.line("counts", "no: the last stop was clean, the bitmap holds every difference"),
        Some(beside) if run > beside.identity.incarnation.0.saturating_add(1) => report.warnings.push(format!(
            "the superblock beside it is of an earlier run ({}): it is an old copy, and the daemon refuses to start the group",
            beside.identity.incarnation.0
        )),
        _ => {}
    }
    report.facts = json!({
        "tag": format!("{tag:016x}"), "run": run, "extent_bytes": EXTENT_BYTES, "extents": count, "lost_cells": lost,
        "first_extents": extents.iter().take(SHOWN).map(|e| json!([e.volume.0, e.number])).collect::<Vec<_>>(),
    });
    report
}

#[cfg(test)]
mod tests {
    use engine::activity::encode_slots;
    use engine::cell::{BYTES, CellHead, encode};
    use engine::identity::Confirmed;
    use engine::superblock::Superblock;
    use engine::{Incarnation, VolumeId};

    use super::*;
    use crate::outcome::Exit;

    #[test]
    fn hot_extents_are_named_and_damage_is_located() {
        let nowhere = Path::new("/nowhere/activity");
        let slots =
            [Some(Extent { volume: VolumeId(1), number: 2 }), None, Some(Extent { volume: VolumeId(0), number: 9 })];
        let slot = |update| {
            let head = CellHead { update, tag: 7, ..CellHead::default() };
            encode(KIND, &head, &encode_slots(Incarnation(4), Confirmed::default(), slots.into_iter()))
        };
        let mut image = [slot(2), slot(1)].concat();
        let seen = report(&image, nowhere);
        assert_eq!((seen.exit(), seen.facts["run"].as_u64()), (Exit::Done, Some(4)), "{seen:?}");
        assert_eq!(seen.facts["first_extents"], json!([[0, 9], [1, 2]]));
        assert!(
            seen.lines.iter().any(|line| line.contains("volume 2 (by name): bytes 8388608 to 12582911")),
            "{seen:?}"
        );
        image[60] ^= 1;
        assert_eq!(report(&image, nowhere).facts["extents"], 2, "the twin counts");
        (1..4).for_each(|copy| image[copy * BYTES + 60] ^= 1);
        let seen = report(&image, nowhere);
        assert_eq!((seen.exit(), seen.facts["lost_cells"].as_u64()), (Exit::Warning, Some(1)));
    }

    /// Of a cell whose checksum is right, whoever wrote it.
    #[test]
    fn numbers_that_no_volume_has_are_shown_and_end_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut beside = Superblock { update: 2, tag: 7, ..Superblock::default() };
        beside.identity.incarnation = Incarnation(u64::MAX);
        std::fs::write(directory.path().join("superblock"), beside.encode()).expect("written");
        let extent = Extent { volume: VolumeId(0), number: (1 << 48) - 1 };
        let body = encode_slots(Incarnation(u64::MAX), Confirmed::default(), [Some(extent)].into_iter());
        let slot = |update| encode(KIND, &CellHead { update, tag: 7, ..CellHead::default() }, &body);
        let seen = report(&[slot(2), slot(1)].concat(), &directory.path().join("activity"));
        assert_eq!(seen.exit(), Exit::Done, "{seen:?}");
        assert!(seen.lines.iter().any(|line| line.contains("bytes 18446744073709551615 to")), "{seen:?}");
    }
}
