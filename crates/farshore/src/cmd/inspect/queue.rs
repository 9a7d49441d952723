//! The disk queue of a group: payload alone, or a log (`queue.durable`), which is walked as a start does.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use engine::Seq;
use engine::cell::{BYTES, CELL_BYTES, Rejected};
use engine::journal::{BatchOf, JournalIndex};
use engine::queue_log::{KIND, QueueCell, name_of, ring_bytes};
use engine::superblock::{JournalHead, Superblock};
use serde_json::json;
use units::exact::show_size;

use super::cell;
use super::journal::{RingFile, Walk, facts, line};
use super::report::InspectReport;
use super::superblock::superblock_beside;

pub(super) fn report(file: &File, size_bytes: u64, path: &Path) -> std::io::Result<InspectReport> {
    let mut report = InspectReport::default();
    let offset = ring_bytes(size_bytes);
    let mut bytes = vec![0; (size_bytes - offset) as usize];
    file.read_exact_at(&mut bytes, offset)?;
    let is_log = bytes.len() as u64 == CELL_BYTES && bytes.chunks(BYTES).any(|copy| copy.starts_with(&KIND.magic));
    let beside = superblock_beside(path);
    if !is_log {
        report.line("log", "none: payload alone; what of it counts only a daemon that runs knows");
        if beside.is_some_and(|beside| beside.queue_redo) {
            report.warnings.push(REDO_NEEDS_IT.into());
        }
        report.facts = json!({ "log": null });
        return Ok(report);
    }
    let seen = cell::see(KIND, cell::tag(KIND, &bytes), offset, &bytes);
    seen.damage(&mut report);
    let newest = seen.choice.newest.and_then(|(head, body)| Ok((head.tag, QueueCell::decode(body)?)));
    let (tag, found) = match newest {
        Ok(found) if seen.lost().is_none() => found,
        Err(Rejected::VersionUnknown(version)) => {
            report.failure = Some(cell::version_sentence(KIND, version));
            return Ok(report);
        }
        _ => {
            report
                .warnings
                .push(format!("the cell of the log, from byte {offset} on, is lost: the log does not count"));
            return Ok(report);
        }
    };
    let ring = RingFile { file, size_bytes: offset, of: BatchOf::Queue };
    let (walk, next) = ring.follow(found.head, |index, next, walk| refusal(index, (tag, &found), next, walk))?;
    // The one that ends it, if a payload of it is damaged.
    let due = walk.batches.last().filter(|batch| batch.damaged.is_some()).map_or(next.ordinal, |b| b.index.ordinal);
    let (run, _) = last_of(&found, &walk);
    let later = ring.scan()?.into_iter().filter(|index| index.tag == tag && index.generation == found.generation);
    let is_damaged = due < found.confirmed_ordinal
        || later.into_iter().any(|index| index.boot.0 >= run && index.durable_below > due);
    describe(&mut report, tag, &found, &walk);
    counts(&mut report, &found, beside.as_ref().filter(|beside| beside.tag == tag), path);
    if is_damaged {
        report.warnings.push(format!("batch {due} was durable and is not whole any more: the log does not count"));
    }
    if host::disk::File::mark_of(file) != found.file {
        report.warnings.push("this is a copy of the file that was written: in a copy the log does not count".into());
    }
    report.facts = json!({
        "log": {
            "tag": format!("{tag:016x}"), "generation": found.generation.to_string(),
            "head": { "offset": found.head.offset, "ordinal": found.head.ordinal },
            "before": { "incarnation": found.before.0.0, "sequence": found.before.1.0 },
            "flushed": found.flushed.0, "confirmed_ordinal": found.confirmed_ordinal,
            "batches": walk.batches.iter().map(facts).collect::<Vec<_>>(), "ends": walk.end, "damaged": is_damaged,
            "begun": found.begun.0,
            "counts": beside.as_ref().map(|beside| beside.queue_logged && beside.queue_log == name_of(found.begun)), "redo": beside.map(|beside| beside.queue_redo),
        },
    });
    Ok(report)
}

const REDO_NEEDS_IT: &str = "a start was cut short while it wrote the log of the queue to the volumes, and this file holds no log: the group does not start";

fn describe(report: &mut InspectReport, tag: u64, found: &QueueCell, walk: &Walk) {
    report.line("group", format!("tag {tag:016x}"));
    report.line("generation", found.generation);
    report.line("begun in", format!("run {}", found.begun.0));
    let (run, before) = found.before;
    report.line("head", format!("byte {}, batch {}", found.head.offset, found.head.ordinal));
    report.line("before it", format!("sequence {} of run {}: the peer and the volumes here have it", before.0, run.0));
    report.line("flushed", format!("up to sequence {} every volume held it", found.flushed.0));
    report.line("durable", format!("every batch below {}", found.confirmed_ordinal));
    report.push_some(walk.batches.iter().map(line), walk.batches.len(), "batches");
    let bytes: u64 = walk.batches.iter().map(|batch| u64::from(batch.index.bytes)).sum();
    report.line("in all", format!("{} batches, {}", walk.batches.len(), show_size(bytes)));
    report.line("ends", &walk.end);
}

fn counts(report: &mut InspectReport, found: &QueueCell, beside: Option<&Superblock>, path: &Path) {
    let words = match beside {
        Some(beside) if beside.queue_logged && beside.queue_log != name_of(found.begun) => {
            "no: the superblock beside it names another log, that was begun later"
        }
        Some(beside) if beside.queue_logged => "yes: the superblock beside it says so",
        Some(_) => "no: the superblock beside it says that the log is closed",
        None => "unknown: no superblock of this group lies beside it",
    };
    report.line("counts", words);
    if beside.is_some_and(|beside| beside.queue_redo) {
        let path = path.display();
        report.warnings.push(format!(
            "a start was cut short while it wrote this log to the volumes: the group does not start without {path} as it is"
        ));
    }
}

/// Run and number of the last batch so far.
fn last_of(found: &QueueCell, walk: &Walk) -> (u64, Seq) {
    let last = walk.batches.last().map(|batch| (batch.index.boot.0, batch.index.last()));
    last.unwrap_or((found.before.0.0, found.before.1))
}

/// Why a whole batch is not the one that follows, if it is not.
fn refusal(index: &JournalIndex, (tag, found): (u64, &QueueCell), next: JournalHead, walk: &Walk) -> Option<String> {
    let (run, last) = last_of(found, walk);
    let ordinal = index.ordinal;
    match () {
        () if index.tag != tag => Some("a batch of another group stands there".into()),
        () if ordinal != next.ordinal => Some(format!("batch {ordinal} stands there, a left-over")),
        () if index.boot.0 < run => Some(format!("the batch there is of run {}, a left-over", index.boot.0)),
        () if index.generation != found.generation => Some("the batch there is of another history".into()),
        () if last.0 == u64::MAX => Some("the sequences before it end with the highest number there is".into()),
        () if index.first != last.next() => {
            Some(format!("the batch there begins with sequence {}, and {} is due", index.first.0, last.next().0))
        }
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use engine::cell::{CellHead, encode};
    use engine::journal::{JournalEntry, RecordKind};
    use engine::wire::{FrameHeader, FrameKind};
    use engine::{Generation, GroupId, Incarnation, NodeId, SessionId, VolumeId, Wall};

    use super::*;

    const GENERATION: Generation = Generation { number: 1, tag: 5 };

    fn batch(offset: u64, ordinal: u64, seq: u64, durable_below: u64) -> Vec<u8> {
        let payload = [seq as u8; 4096];
        let payload_crc = FrameHeader::new(FrameKind::Data, SessionId(0), GroupId(0)).sealed(&payload).payload_crc;
        let entry = JournalEntry {
            seq: Seq(seq),
            kind: RecordKind::Data,
            no_hole: false,
            resync: false,
            sets_aside: false,
            mark: false,
            volume: VolumeId(0),
            offset: 0,
            length: 4096,
            wall: Wall(1),
            payload_at: 4096,
            payload_bytes: 4096,
            payload_crc,
        };
        let index = JournalIndex {
            tag: 42,
            ring_offset: offset,
            ordinal,
            boot: Incarnation(2),
            origin: NodeId(0),
            generation: GENERATION,
            incarnation: Incarnation(2),
            snapshot: 0,
            durable_below,
            bytes: 8192,
            first: Seq(seq),
            entries: vec![entry],
        };
        [index.encode(BatchOf::Queue), payload.to_vec()].concat()
    }

    /// A log of three batches, whose cell was written in this file, and the superblock beside it.
    fn seen(redo: bool, rots: Option<usize>) -> InspectReport {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("queue");
        let mut ring = [batch(0, 7, 11, 7), batch(8192, 8, 12, 7), batch(16384, 9, 13, 9), vec![0; 8192]].concat();
        if let Some(at) = rots {
            ring[at] ^= 1;
        }
        std::fs::write(&path, &ring).expect("written");
        let cell = QueueCell {
            generation: GENERATION,
            head: JournalHead { offset: 0, ordinal: 7 },
            before: (Incarnation(2), Seq(10)),
            flushed: Seq(11),
            confirmed_ordinal: 8,
            file: host::disk::File::mark_of(File::open(&path).expect("there")),
            ..QueueCell::default()
        };
        let offset = ring.len() as u64;
        let slot = |update| {
            let head = CellHead { update, tag: 42, offset, ..CellHead::default() };
            encode(KIND, &head, &cell.encode())
        };
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|file| file.write_all_at(&[slot(4), slot(5)].concat(), offset))
            .expect("written");
        let mut superblock = Superblock { update: 2, tag: 42, ..Superblock::default() };
        (superblock.queue_logged, superblock.queue_redo) = (true, redo);
        std::fs::write(directory.path().join("superblock"), superblock.encode()).expect("written");
        let file = File::open(&path).expect("there");
        let size_bytes = file.metadata().expect("known").len();
        report(&file, size_bytes, &path).expect("readable")
    }

    fn last(report: &InspectReport) -> u64 {
        let batches = report.facts["log"]["batches"].as_array().expect("a list");
        batches.iter().filter_map(|batch| batch["last_sequence"].as_u64()).max().unwrap_or_default()
    }

    #[test]
    fn a_log_is_walked_as_a_start_does() {
        let whole = seen(false, None);
        assert_eq!((last(&whole), whole.warnings.as_slice()), (13, &[][..]), "{whole:?}");
        assert_eq!((&whole.facts["log"]["counts"], &whole.facts["log"]["damaged"]), (&true.into(), &false.into()));
        // The last one passes for torn; of the one before it the last one says that it was durable.
        let torn = seen(false, Some(16384 + 200));
        assert_eq!((last(&torn), &torn.facts["log"]["damaged"]), (12, &false.into()), "{torn:?}");
        let rotten = seen(true, Some(8192 + 200));
        assert_eq!((last(&rotten), &rotten.facts["log"]["damaged"]), (11, &true.into()), "{rotten:?}");
        assert!(rotten.warnings.iter().any(|warning| warning.contains("batch 8 was durable")), "{rotten:?}");
        assert!(rotten.warnings.iter().any(|warning| warning.contains("a start was cut short")), "{rotten:?}");
    }

    #[test]
    fn payload_alone_is_no_log() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), [7; 65536]).expect("written");
        let found = report(file.as_file(), 65536, file.path()).expect("readable");
        assert!(found.facts["log"].is_null() && found.warnings.is_empty(), "{found:?}");
        let empty = report(file.as_file(), 0, file.path()).expect("readable");
        assert!(empty.facts["log"].is_null(), "{empty:?}");
    }
}
