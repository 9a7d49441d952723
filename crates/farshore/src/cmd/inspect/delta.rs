//! A walk over the batches of a delta, and what was saved in them.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use engine::delta::{DeltaHead, DeltaWalk, HEAD_BYTES, VERSION};
use engine::undo::{INDEX_BYTES, UndoEntry};
use serde_json::json;
use units::exact::show_size;

use super::report::InspectReport;
use crate::outcome::{CommandFailure, CommandOutcome, Exit};

/// A saved range, and where its content stands in the file; `None`: all zeroes, or lost.
struct SavedRange {
    entry: UndoEntry,
    at: Option<u64>,
}

/// What a delta holds, as far as it is whole.
struct DeltaContent {
    head: DeltaHead,
    ranges: Vec<SavedRange>,
    /// Where it ends too early, if it does.
    damaged_at: Option<u64>,
}

fn read_block(file: &File, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut block = vec![0; INDEX_BYTES];
    match file.read_exact_at(&mut block, offset) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
        done => done.map(|()| block),
    }
}

/// # Errors
/// A sentence in place of content: it has no head that counts.
fn read(file: &File) -> std::io::Result<Result<DeltaContent, String>> {
    let block = read_block(file, 0)?;
    let Some(head) = DeltaHead::decode(&block) else {
        return Ok(Err(match DeltaHead::other_version(&block) {
            Some(version) => format!("it is of format version {version}, this program knows {VERSION}"),
            None => "it has no head: it was not saved to its end, and nothing is lost by that".into(),
        }));
    };
    let (mut walk, mut ranges, mut damaged_at) = (DeltaWalk::new(head), Vec::new(), None);
    while let Some(offset) = walk.next_offset() {
        let Some(index) = walk.take(&read_block(file, offset)?) else {
            damaged_at = Some(offset);
            break;
        };
        let place = |entry: UndoEntry| SavedRange {
            entry,
            at: (entry.payload_at > 0).then(|| offset + u64::from(entry.payload_at)),
        };
        ranges.extend(index.entries.into_iter().map(place));
    }
    if damaged_at.is_none() && !walk.is_whole() {
        damaged_at = Some(head.file_bytes);
    }
    Ok(Ok(DeltaContent { head, ranges, damaged_at }))
}

/// Why there is no content.
#[derive(Debug, PartialEq, Eq)]
enum NoContent {
    /// It was damaged when the delta was saved.
    Lost,
    /// What stands at this byte is not what was saved.
    Damaged(u64),
}

fn content(file: &File, range: &SavedRange) -> std::io::Result<Result<Vec<u8>, NoContent>> {
    if range.entry.is_lost {
        return Ok(Err(NoContent::Lost));
    }
    let mut bytes = vec![0; range.entry.length as usize];
    let Some(at) = range.at else { return Ok(Ok(bytes)) };
    file.read_exact_at(&mut bytes, at)?;
    Ok(if crc32c::crc32c(&bytes) == range.entry.payload_crc { Ok(bytes) } else { Err(NoContent::Damaged(at)) })
}

pub(super) fn report(file: &File, size_bytes: u64) -> std::io::Result<InspectReport> {
    let mut report = InspectReport::default();
    let found = match read(file)? {
        Ok(found) => found,
        Err(why) => return Ok(InspectReport::failed(why)),
    };
    let DeltaContent { head, ranges, damaged_at } = &found;
    report.line("content of node", format!("{}, given up for node {}", head.node.0, head.peer.0));
    report.line(
        "its history",
        format!("generation {}, up to sequence {}", head.position.generation, head.position.seq.0),
    );
    report.line("chosen", format!("generation {}", head.chosen));
    let lines = ranges.iter().enumerate().map(|(number, range)| {
        let UndoEntry { volume, offset, length, .. } = range.entry;
        let zeroes = match range.at {
            _ if range.entry.is_lost => ", lost",
            None => ", zeroes",
            Some(_) => "",
        };
        format!("    range {number}: volume {} (by name) from byte {offset}, {length} bytes{zeroes}", volume.0 + 1)
    });
    report.push_some(lines, ranges.len(), "ranges");
    report.line("in all", format!("{} ranges, {}", ranges.len(), show_size(head.content_bytes)));
    if let Some(at) = damaged_at {
        report.warnings.push(format!(
            "it is damaged at byte {at}: {} of {} ranges are readable",
            ranges.len(),
            head.ranges
        ));
    }
    if head.lost_ranges > 0 {
        report.warnings.push(format!(
            "{} of the ranges, {}, are lost: what was kept of them in the undo store was damaged when the delta was saved",
            head.lost_ranges,
            show_size(head.lost_bytes)
        ));
    }
    for (number, range) in ranges.iter().enumerate() {
        if let Err(NoContent::Damaged(at)) = content(file, range)? {
            report.warnings.push(format!("the content of range {number} at byte {at} is not what was saved"));
        }
    }
    let list = ranges.iter().map(|range| {
        let (UndoEntry { volume, offset, length, is_lost, .. }, is_zero) = (range.entry, range.at.is_none());
        json!({"volume": volume.0, "offset": offset, "length": length, "zero": is_zero && !is_lost, "lost": is_lost})
    });
    report.facts = json!({
        "node": head.node.0, "peer": head.peer.0, "sequence": head.position.seq.0, "content_bytes": head.content_bytes, "lost_bytes": head.lost_bytes,
        "whole": damaged_at.is_none() && size_bytes >= head.file_bytes, "ranges": list.collect::<Vec<_>>(),
    });
    Ok(report)
}

/// Writes what was saved to standard output.
pub(super) fn extract(files: &[PathBuf], range: &str) -> CommandOutcome {
    let [path] = files else {
        return Err(CommandFailure::usage("--extract reads one file"));
    };
    let cannot = |error: std::io::Error| CommandFailure::from(format!("{} cannot be read: {error}", path.display()));
    let file = File::open(path).map_err(cannot)?;
    let found =
        read(&file).map_err(cannot)?.map_err(|why| CommandFailure::from(format!("{}: {why}", path.display())))?;
    let wanted: Vec<&SavedRange> = match range {
        "all" => found.ranges.iter().collect(),
        number => {
            let number = number.parse::<usize>().ok().and_then(|number| found.ranges.get(number));
            let none = || {
                let last = found.ranges.len().saturating_sub(1);
                CommandFailure::usage(format!("--extract takes 'all' or the number of a range, 0 to {last}"))
            };
            vec![number.ok_or_else(none)?]
        }
    };
    let mut out = std::io::stdout().lock();
    for range in wanted {
        let bytes = content(&file, range).map_err(cannot)?;
        let bytes = bytes.map_err(|why| {
            let UndoEntry { volume, offset, length, .. } = range.entry;
            let why = match why {
                NoContent::Damaged(at) => format!("what stands at byte {at} is not what was saved"),
                NoContent::Lost => format!(
                    "{length} bytes of volume {} (by name) from byte {offset} are lost: they were damaged when the delta was saved; take the other \
                     ranges by their numbers",
                    volume.0 + 1
                ),
            };
            CommandFailure::from(format!("{}: {why}", path.display()))
        })?;
        out.write_all(&bytes).map_err(|error| CommandFailure::from(format!("standard output: {error}")))?;
    }
    Ok(Exit::Done.into())
}

const _: () = assert!(HEAD_BYTES as usize == INDEX_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use engine::undo::UndoIndex;
    use engine::{Generation, Incarnation, Position, VolumeId};

    #[test]
    fn ranges_are_listed_and_damage_is_named() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("delta");
        let payload_crc = crc32c::crc32c(&[7; 4096]);
        let (volume, is_lost) = (VolumeId(1), false);
        let entry = UndoEntry { volume, offset: 8192, length: 4096, payload_at: 4096, payload_crc, is_lost };
        let zeroes = UndoEntry { offset: 0, payload_at: 0, payload_crc: 0, ..entry };
        let lost = UndoEntry { offset: 16384, is_lost: true, ..zeroes };
        let index = UndoIndex {
            tag: 1,
            ring_offset: HEAD_BYTES,
            ordinal: 1,
            mark: 9,
            boot: Incarnation(2),
            chain: 0,
            bytes: 8192,
            entries: vec![entry, zeroes, lost],
        };
        let image = index.encode();
        let chain = u32::from_le_bytes(image[INDEX_BYTES - 4..].try_into().expect("four bytes"));
        let position = Position { generation: Generation { number: 1, tag: 9 }, ..Position::default() };
        let head = DeltaHead {
            tag: 1,
            position,
            batches: 1,
            ranges: 3,
            content_bytes: 8192,
            lost_ranges: 1,
            lost_bytes: 4096,
            file_bytes: HEAD_BYTES + 8192,
            chain,
            ..DeltaHead::default()
        };
        let whole = [head.encode(), image, vec![7; 4096]].concat();
        let seen = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("written");
            report(&File::open(&path).expect("there"), bytes.len() as u64).expect("readable")
        };
        let found = seen(&whole);
        assert_eq!(found.facts["ranges"].as_array().map(Vec::len), Some(3), "{found:?}");
        assert_eq!(
            (&found.facts["ranges"][2]["lost"], &found.facts["ranges"][1]["zero"]),
            (&json!(true), &json!(true))
        );
        assert_eq!((found.warnings.len(), found.facts["whole"].as_bool()), (1, Some(true)));
        assert!(found.warnings[0].contains("1 of the ranges, 4 KiB, are lost"), "{found:?}");
        assert!(found.exit() != Exit::Done, "who reads it by a script hears of it");
        let mut rotten = whole.clone();
        rotten[9000] ^= 1;
        assert!(seen(&rotten).warnings[1].contains("is not what was saved"));
        let mut torn = whole;
        torn[5000] ^= 1;
        assert!(seen(&torn).warnings[0].contains("damaged at byte 4096"));
        assert!(seen(&[0; 8192]).exit() != Exit::Done);
    }
}
