//! A walk over the undo store's batches from its start, as a start of the daemon does it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use engine::undo::{INDEX_BYTES, UndoIndex, VERSION};
use serde_json::json;

use super::report::InspectReport;
use super::superblock::superblock_beside;
use units::exact::show_size;

pub(super) fn report(file: &File, size_bytes: u64, path: &Path) -> std::io::Result<InspectReport> {
    let mut report = InspectReport::default();
    let (batches, end) = walk(file, size_bytes)?;
    let ranges: usize = batches.iter().map(|index| index.entries.len()).sum();
    let saved: u64 = batches.iter().flat_map(|index| &index.entries).map(|entry| u64::from(entry.length)).sum();
    let lines = batches.iter().map(|index| {
        format!(
            "    batch {} at byte {}: {} ranges for mark {:016x}, written in run {}, {}",
            index.ordinal,
            index.ring_offset,
            index.entries.len(),
            index.mark,
            index.boot.0,
            show_size(u64::from(index.bytes))
        )
    });
    report.push_some(lines, batches.len(), "batches");
    report.line("in all", format!("{} batches, {ranges} ranges, {} of volumes", batches.len(), show_size(saved)));
    report.line("ends", &end);
    let marks: Vec<u64> = batches.iter().map(|index| index.mark).collect();
    match superblock_beside(path).map(|beside| beside.rollback_point) {
        Some(point) if point.id == 0 => report.line("counts", "no: the superblock beside it holds no rollback point"),
        Some(point) if point.was_damaged() => {
            report.line("rollback point", format!("{:016x}, found damaged at an earlier start", point.id));
            report.warnings.push("the daemon will not roll back to the rollback point, whatever stands here".into());
        }
        Some(point) => {
            let whole = marks.iter().filter(|mark| **mark == point.id).count() as u64;
            report.line("rollback point", format!("{:016x}, {} batches of it are recorded", point.id, point.batches));
            if whole < point.batches {
                report.warnings.push(format!(
                    "{whole} of {} batches of the rollback point are whole: it is damaged, and the daemon will not roll back \
                     to it",
                    point.batches
                ));
            }
        }
        None => report.line("counts", "unknown: no superblock beside it counts"),
    }
    report.facts = json!({
        "batches": batches.len(), "ranges": ranges, "saved_bytes": saved, "ends": end,
        "marks": marks.iter().collect::<std::collections::BTreeSet<_>>(),
    });
    Ok(report)
}

/// Whole batches from the start of the file, each chained to the one before, and why there are no more.
fn walk(file: &File, size_bytes: u64) -> std::io::Result<(Vec<UndoIndex>, String)> {
    let (mut batches, mut at, mut chain) = (Vec::<UndoIndex>::new(), 0u64, 0u32);
    loop {
        if at + INDEX_BYTES as u64 > size_bytes {
            return Ok((batches, format!("at byte {at}, where the file ends")));
        }
        let mut block = [0; INDEX_BYTES];
        file.read_exact_at(&mut block, at)?;
        let due = batches.len() as u64 + 1;
        let why = match UndoIndex::decode(&block) {
            Some(index) if index.ring_offset != at => "a batch of another offset stands there".to_owned(),
            Some(index) if index.ordinal != due || index.chain != chain => {
                format!("batch {} stands there, a left-over", index.ordinal)
            }
            Some(index) => {
                chain = u32::from_le_bytes(block[INDEX_BYTES - 4..].try_into().expect("four bytes"));
                at += u64::from(index.bytes);
                batches.push(index);
                continue;
            }
            None if block.iter().all(|byte| *byte == 0) => "it is blank there".to_owned(),
            None => match UndoIndex::other_version(&block) {
                Some(version) => {
                    format!("the batch there is of format version {version}, this program knows {VERSION}")
                }
                None => "no whole batch starts there".to_owned(),
            },
        };
        return Ok((batches, format!("at byte {at}, where batch {due} is due: {why}")));
    }
}

#[cfg(test)]
mod tests {
    use engine::undo::UndoEntry;
    use engine::{Incarnation, VolumeId};

    use super::*;
    use crate::outcome::Exit;

    fn batch(ordinal: u64, offset: u64, chain: u32) -> Vec<u8> {
        let entry = UndoEntry {
            volume: VolumeId(0),
            offset: 0,
            length: 4096,
            payload_at: 4096,
            payload_crc: 1,
            is_lost: false,
        };
        let boot = Incarnation(2);
        let index =
            UndoIndex { tag: 1, ring_offset: offset, ordinal, mark: 7, boot, chain, bytes: 8192, entries: vec![entry] };
        [index.encode(), vec![0; 4096]].concat()
    }

    #[test]
    fn the_walk_follows_the_chain_and_says_why_it_ends() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("undo");
        let first = batch(1, 0, 0);
        let chain = u32::from_le_bytes(first[INDEX_BYTES - 4..INDEX_BYTES].try_into().expect("four bytes"));
        let seen = |second: Vec<u8>| {
            let image = [first.clone(), second, vec![0; 8192]].concat();
            std::fs::write(&path, &image).expect("written");
            report(&File::open(&path).expect("there"), image.len() as u64, &path).expect("readable")
        };
        let whole = seen(batch(2, 8192, chain));
        assert_eq!((whole.exit(), whole.facts["batches"].as_u64()), (Exit::Done, Some(2)), "{whole:?}");
        assert!(whole.facts["ends"].as_str().is_some_and(|end| end.contains("it is blank there")));
        let left_over = seen(batch(2, 8192, chain ^ 1));
        assert_eq!(left_over.facts["batches"], 1);
        assert!(left_over.facts["ends"].as_str().is_some_and(|end| end.contains("a left-over")), "{left_over:?}");
    }
}
