//! A walk over a journal's batches: from the head that the superblock beside it names, as replay does it, or over the
//! whole file when there is none.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use engine::journal::{BatchOf, INDEX_BYTES, JournalEntry, JournalIndex, RecordKind, VERSION};
use engine::superblock::{JournalHead, Superblock};
use engine::wire::{FrameHeader, FrameKind};
use engine::{GroupId, Seq, SessionId};
use serde_json::{Value, json};

use super::report::InspectReport;
use super::superblock::superblock_beside;
use units::exact::show_size;
use units::exact::time_text;

/// One batch as it was found.
pub(super) struct FoundBatch {
    pub index: JournalIndex,
    /// The first record whose payload does not match its checksum.
    pub damaged: Option<Seq>,
}

/// The batches of a walk, and why it went no further.
#[derive(Default)]
pub(super) struct Walk {
    pub batches: Vec<FoundBatch>,
    pub end: String,
    /// Whole batches behind the end that carry later numbers.
    stranded: Vec<(u64, u64)>,
}

pub(super) fn report(file: &File, size_bytes: u64, path: &Path) -> std::io::Result<InspectReport> {
    let mut report = InspectReport::default();
    let ring = RingFile { file, size_bytes, of: BatchOf::Journal };
    let walk = match superblock_beside(path) {
        Some(beside) => {
            report.line("head", format!("byte {}, batch {}", beside.journal.offset, beside.journal.ordinal));
            ring.replayable(&beside)?
        }
        None => {
            report.line(
                "head",
                "unknown (no superblock beside it counts): every whole batch of the file, by its ordinal",
            );
            ring.every()?
        }
    };
    let lines = walk.batches.iter().map(line);
    report.push_some(lines, walk.batches.len(), "batches");
    let records: usize = walk.batches.iter().map(|batch| batch.index.entries.len()).sum();
    let bytes: u64 = walk.batches.iter().map(|batch| u64::from(batch.index.bytes)).sum();
    report.line("in all", format!("{} batches, {records} records, {}", walk.batches.len(), show_size(bytes)));
    report.line("ends", &walk.end);
    for batch in &walk.batches {
        if let Some(seq) = batch.damaged {
            report.warnings.push(format!(
                "batch {} at byte {}: the payload of sequence {} does not match its checksum; replay ends before this batch",
                batch.index.ordinal, batch.index.ring_offset, seq.0
            ));
        }
    }
    if let Some((offset, ordinal)) = walk.stranded.first() {
        report.warnings.push(format!(
            "{} later batches stand behind the end, the first is batch {ordinal} at byte {offset}: a power loss tore what \
             lies between, or it was damaged since; what was confirmed up to the end is replayed, these are not",
            walk.stranded.len()
        ));
    }
    report.facts = json!({
        "batches": walk.batches.iter().map(facts).collect::<Vec<_>>(), "records": records, "bytes": bytes,
        "ends": walk.end, "stranded": walk.stranded.len(),
    });
    Ok(report)
}

pub(super) fn line(batch: &FoundBatch) -> String {
    let index = &batch.index;
    let checked = match batch.damaged {
        None => "checksums ok".to_owned(),
        Some(seq) => format!("DAMAGED at sequence {}", seq.0),
    };
    let wall = index.entries.last().map_or(0, |entry| entry.wall.0);
    format!(
        "    batch {} at byte {}: sequences {} to {} of incarnation {}, generation {}, from node {}; written in run {}, \
         {}, to {}; {checked}",
        index.ordinal,
        index.ring_offset,
        index.first.0,
        index.last().0,
        index.incarnation.0,
        index.generation,
        index.origin.0,
        index.boot.0,
        show_size(u64::from(index.bytes)),
        time_text(wall),
    )
}

pub(super) fn facts(batch: &FoundBatch) -> Value {
    let index = &batch.index;
    let count = |kind: RecordKind| index.entries.iter().filter(|entry| entry.kind == kind).count();
    json!({
        "offset": index.ring_offset, "ordinal": index.ordinal, "boot": index.boot.0, "origin": index.origin.0,
        "generation": index.generation.to_string(), "incarnation": index.incarnation.0, "bytes": index.bytes,
        "first_sequence": index.first.0, "last_sequence": index.last().0, "tag": format!("{:016x}", index.tag),
        "data": count(RecordKind::Data), "zero": count(RecordKind::Zero), "void": count(RecordKind::Void),
        "sync_end": count(RecordKind::SyncEnd), "damaged_sequence": batch.damaged.map(|seq| seq.0),
    })
}

/// What stands at an offset of the ring.
enum RingPosition {
    Batch(JournalIndex),
    /// Not a whole batch, and why.
    Nothing(&'static str),
}

pub(super) struct RingFile<'a> {
    pub file: &'a File,
    pub size_bytes: u64,
    pub of: BatchOf,
}

impl RingFile<'_> {
    fn at(&self, offset: u64) -> std::io::Result<RingPosition> {
        let mut block = [0; INDEX_BYTES];
        if offset.checked_add(INDEX_BYTES as u64).is_none_or(|end| end > self.size_bytes) {
            return Ok(RingPosition::Nothing("the file ends there"));
        }
        self.file.read_exact_at(&mut block, offset)?;
        let has_magic = block.starts_with(match self.of {
            BatchOf::Journal => b"FSHBATCH",
            BatchOf::Queue => b"FSHQUEUB",
        });
        Ok(match JournalIndex::decode(self.of, &block) {
            Some(index) if index.ring_offset != offset => {
                RingPosition::Nothing("a batch of another offset stands there")
            }
            Some(index) if offset + u64::from(index.bytes) > self.size_bytes => {
                RingPosition::Nothing("the batch there runs past the end of the file")
            }
            Some(index) => RingPosition::Batch(index),
            None if block.iter().all(|byte| *byte == 0) => RingPosition::Nothing("it is blank there"),
            None if has_magic && block[8..10] != VERSION.to_le_bytes() => {
                RingPosition::Nothing("the batch there is of another format version, or damaged")
            }
            None if has_magic => RingPosition::Nothing("the index block there is damaged"),
            None => RingPosition::Nothing("no batch starts there"),
        })
    }

    /// The batches from a head on that a start would take; `refusal`: why a whole batch is not the one that follows, if it is not. And where the
    /// next one is due.
    pub fn follow(
        &self,
        mut next: JournalHead,
        refusal: impl Fn(&JournalIndex, JournalHead, &Walk) -> Option<String>,
    ) -> std::io::Result<(Walk, JournalHead)> {
        let mut walk = Walk::default();
        loop {
            let mut why = match self.at(next.offset)? {
                RingPosition::Batch(index) => refusal(&index, next, &walk).map_or(Ok(index), Err),
                RingPosition::Nothing(why) => Err(why.to_owned()),
            };
            let mut offset = next.offset;
            // It may have wrapped: a batch that does not fit at the end stands at the start.
            if let (Err(_), true, RingPosition::Batch(index)) = (&why, next.offset != 0, self.at(0)?)
                && refusal(&index, next, &walk).is_none()
            {
                (why, offset) = (Ok(index), 0);
            }
            match why {
                Ok(index) => {
                    let end = offset + u64::from(index.bytes);
                    next = JournalHead { offset: end, ordinal: index.ordinal.saturating_add(1) };
                    let is_last = next.ordinal == index.ordinal;
                    let damaged = self.first_damaged(&index)?;
                    walk.batches.push(FoundBatch { index, damaged });
                    if damaged.is_some() {
                        walk.end = format!("before byte {offset}: a payload of the last batch shown is damaged");
                        break;
                    }
                    if is_last {
                        walk.end = format!("at byte {end}: no batch can have a higher number");
                        break;
                    }
                }
                Err(why) => {
                    walk.end = format!("at byte {}, where batch {} is due: {why}", next.offset, next.ordinal);
                    break;
                }
            }
        }
        Ok((walk, next))
    }

    /// The batches that replay would take, by replay's own rules.
    fn replayable(&self, beside: &Superblock) -> std::io::Result<Walk> {
        let (mut walk, next) = self.follow(beside.journal, |index, next, walk| refusal(index, beside, next, walk))?;
        for batch in self.scan()?.into_iter().filter(|index| index.tag == beside.tag && index.ordinal > next.ordinal) {
            if batch.boot == beside.identity.incarnation {
                walk.stranded.push((batch.ring_offset, batch.ordinal));
            }
        }
        walk.stranded.sort_by_key(|(_, ordinal)| *ordinal);
        Ok(walk)
    }

    /// Every whole batch of the file, left-overs included.
    fn every(&self) -> std::io::Result<Walk> {
        let mut walk = Walk {
            end: "unknown: without a superblock, left-overs cannot be distinguished from what counts".into(),
            ..Walk::default()
        };
        for index in self.scan()? {
            let damaged = self.first_damaged(&index)?;
            walk.batches.push(FoundBatch { index, damaged });
        }
        walk.batches.sort_by_key(|batch| (batch.index.boot, batch.index.ordinal));
        Ok(walk)
    }

    /// Whole index blocks in their own places. Batches start on blocks, and never inside one that is whole.
    pub fn scan(&self) -> std::io::Result<Vec<JournalIndex>> {
        let (mut found, mut offset) = (Vec::new(), 0);
        while offset < self.size_bytes {
            offset += match self.at(offset)? {
                RingPosition::Batch(index) => {
                    let bytes = u64::from(index.bytes).next_multiple_of(INDEX_BYTES as u64);
                    found.push(index);
                    bytes.max(INDEX_BYTES as u64)
                }
                RingPosition::Nothing(_) => INDEX_BYTES as u64,
            };
        }
        Ok(found)
    }

    fn first_damaged(&self, index: &JournalIndex) -> std::io::Result<Option<Seq>> {
        for entry in index.entries.iter().filter(|entry| entry.payload_bytes > 0) {
            if !self.is_whole(index, entry)? {
                return Ok(Some(entry.seq));
            }
        }
        Ok(None)
    }

    fn is_whole(&self, index: &JournalIndex, entry: &JournalEntry) -> std::io::Result<bool> {
        // Bounded: the decoder lets no payload be longer than a frame.
        let mut payload = vec![0; entry.payload_bytes as usize];
        self.file.read_exact_at(&mut payload, index.ring_offset + u64::from(entry.payload_at))?;
        let sealed = FrameHeader::new(FrameKind::Data, SessionId(0), GroupId(0)).sealed(&payload);
        Ok(sealed.payload_crc == entry.payload_crc)
    }
}

/// Why a whole batch is not the one that follows, if it is not.
fn refusal(index: &JournalIndex, beside: &Superblock, next: JournalHead, walk: &Walk) -> Option<String> {
    let position = beside.identity.position;
    let before = walk.batches.last().map(|batch| &batch.index);
    if index.tag != beside.tag {
        return Some("a batch of another group stands there".into());
    }
    if index.ordinal != next.ordinal {
        return Some(format!("batch {} stands there, a left-over", index.ordinal));
    }
    // A start records with its own run how far whole batches reach: what follows is of that run.
    let kept = index.boot < beside.identity.incarnation && index.ordinal < beside.own_from_ordinal;
    if index.boot != beside.identity.incarnation && !kept {
        return Some(format!("the batch there is of run {}, a left-over", index.boot.0));
    }
    if index.generation != position.generation || index.incarnation != position.incarnation {
        return Some("the batch there is of another history".into());
    }
    if index.snapshot != 0 {
        return Some(format!("the batch there is of snapshot {}, which is begun anew", index.snapshot));
    }
    if !index.is_in_order() {
        return Some("the sequences in the batch there do not follow each other".into());
    }
    // The first ones may hold what was applied before: it is kept while the primary may not have flushed it.
    let last = before.map_or(position.seq, JournalIndex::last);
    if last.0 == u64::MAX {
        return Some("the sequences before it end with the highest number there is".into());
    }
    let due = last.next();
    let fits = if before.is_some() { index.first == due } else { index.first <= due };
    (!fits).then(|| format!("the batch there begins with sequence {}, and {} is due", index.first.0, due.0))
}

#[cfg(test)]
mod tests {
    use engine::{Generation, Incarnation, NodeId, VolumeId, Wall};

    use super::*;
    use crate::outcome::Exit;

    const GENERATION: Generation = Generation { number: 1, tag: 5 };

    fn batch(offset: u64, ordinal: u64, seq: u64, fill: u8) -> Vec<u8> {
        let payload = [fill; 4096];
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
            incarnation: Incarnation(1),
            snapshot: 0,
            durable_below: 0,
            bytes: 8192,
            first: Seq(seq),
            entries: vec![entry],
        };
        [index.encode(BatchOf::Journal), payload.to_vec()].concat()
    }

    /// A superblock that has a batch due at byte 8192, and what comes before it applied.
    fn record(directory: &Path, ordinal: u64, applied: u64) {
        let journal = JournalHead { offset: 8192, ordinal };
        let mut superblock = Superblock { update: 2, tag: 42, journal, ..Superblock::default() };
        superblock.identity.incarnation = Incarnation(2);
        superblock.identity.position.generation = GENERATION;
        superblock.identity.position.incarnation = Incarnation(1);
        superblock.identity.position.seq = Seq(applied);
        std::fs::write(directory.join("superblock"), superblock.encode()).expect("written");
    }

    /// A journal of three batches, wrapped, its superblock beside it.
    fn made() -> (tempfile::TempDir, Vec<u8>) {
        let directory = tempfile::tempdir().expect("directory");
        record(directory.path(), 7, 10);
        let journal = [batch(0, 9, 13, 1), batch(8192, 7, 11, 2), batch(16384, 8, 12, 3), vec![0; 4096]].concat();
        (directory, journal)
    }

    fn seen(directory: &Path, journal: &[u8]) -> InspectReport {
        let path = directory.join("journal");
        std::fs::write(&path, journal).expect("written");
        report(&File::open(&path).expect("there"), journal.len() as u64, &path).expect("readable")
    }

    #[test]
    fn a_walk_follows_the_ring_and_says_why_it_ends() {
        let (directory, journal) = made();
        let whole = seen(directory.path(), &journal);
        let sequences = |report: &InspectReport| -> Vec<u64> {
            let batches = report.facts["batches"].as_array().expect("a list");
            batches.iter().filter_map(|batch| batch["last_sequence"].as_u64()).collect()
        };
        assert_eq!((sequences(&whole), whole.exit()), (vec![11, 12, 13], Exit::Done), "{whole:?}");

        let mut torn = journal.clone();
        torn[16384 + 4096 + 9] ^= 1;
        let torn = seen(directory.path(), &torn);
        assert_eq!((sequences(&torn), torn.exit()), (vec![11, 12], Exit::Warning));
        assert!(torn.warnings[0].contains("sequence 12 does not match"), "{torn:?}");

        let mut hole = journal.clone();
        hole[16384 + 200] ^= 1;
        let hole = seen(directory.path(), &hole);
        assert_eq!(sequences(&hole), [11]);
        assert!(hole.facts["ends"].as_str().is_some_and(|end| end.contains("the index block there is damaged")));
        assert!(hole.warnings[0].contains("batch 9 at byte 0"), "{hole:?}");

        std::fs::remove_file(directory.path().join("superblock")).expect("removed");
        let alone = seen(directory.path(), &journal);
        assert_eq!(sequences(&alone), [11, 12, 13]);
    }

    /// Of an index whose checksum is right, whoever wrote it.
    #[test]
    fn a_walk_ends_behind_the_highest_numbers() {
        let directory = tempfile::tempdir().expect("directory");
        let journal = [vec![0; 8192], batch(8192, u64::MAX, u64::MAX, 2)].concat();
        for (applied, why) in
            [(u64::MAX - 1, "no batch can have a higher number"), (u64::MAX, "the highest number there is")]
        {
            record(directory.path(), u64::MAX, applied);
            let found = seen(directory.path(), &journal);
            assert!(found.facts["ends"].as_str().is_some_and(|end| end.contains(why)), "{found:?}");
        }
    }
}
