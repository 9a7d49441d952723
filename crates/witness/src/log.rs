//! What the writers know: what each issued, when, and what was acknowledged, when.
//!
//! "When" is a tick of one counter that all writers of a run share. A tick is taken *before* a write is handed to the
//! client and *after* its answer came back, so "A's acknowledgement has a lower tick than B's issue" is never claimed
//! where it was not so. A [`WriteRecorder`] lives in the writers' process (which must outlive the daemons it watches) and,
//! if asked, appends every event to a file for a later check, never forcing it to disk.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, Write as _};
use std::path::Path;
use std::sync::Mutex;

use crate::stamp::{RunId, SECTOR_BYTES, SectorStamp, VolumeNumber, WriteName, WriterId};

/// One write as its writer saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedWrite {
    pub name: WriteName,
    pub volume: VolumeNumber,
    pub offset_bytes: u64,
    pub length_bytes: u32,
    /// Tick of the issue.
    pub issued: u64,
    /// Tick of the acknowledgement; `None`: failed or never answered, so it may or may not have happened.
    pub acknowledged: Option<u64>,
}

/// All writes of a run, to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteHistory {
    pub run: RunId,
    pub writes: Vec<RecordedWrite>,
}

/// A write between its issue and its answer. Dropped without an answer, it stays one of unknown outcome.
#[derive(Debug)]
#[must_use = "a write that is neither acknowledged nor failed counts as one of unknown outcome"]
pub struct WriteTicket {
    slot: usize,
    run: RunId,
    write: RecordedWrite,
}

impl WriteTicket {
    pub fn name(&self) -> WriteName {
        self.write.name
    }

    /// Stamp every sector of the payload, which must be as long as the write was said to be.
    pub fn stamp(&self, payload: &mut [u8]) {
        assert_eq!(payload.len(), self.write.length_bytes as usize, "the payload is the write's");
        let first = self.write.offset_bytes / SECTOR_BYTES as u64;
        let sectors = (payload.len() / SECTOR_BYTES) as u32;
        for (index, sector) in payload.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            let stamp = SectorStamp {
                run: self.run,
                name: self.write.name,
                volume: self.write.volume,
                issued: self.write.issued,
                sector: first + index as u64,
                sectors,
                index: index as u32,
            };
            stamp.write(sector);
        }
    }
}

/// The writers' common note book.
#[derive(Debug)]
pub struct WriteRecorder {
    run: RunId,
    book: Mutex<LogState>,
}

#[derive(Debug)]
struct LogState {
    tick: u64,
    numbers: HashMap<WriterId, u64>,
    writes: Vec<RecordedWrite>,
    file: Option<File>,
    file_error: Option<io::Error>,
}

impl WriteRecorder {
    /// Kept in memory only.
    pub fn new(run: RunId) -> Self {
        let book = LogState { tick: 0, numbers: HashMap::new(), writes: Vec::new(), file: None, file_error: None };
        Self { run, book: Mutex::new(book) }
    }

    /// Kept in memory and appended to a new file at `path`.
    ///
    /// # Errors
    /// The file exists already or cannot be created.
    pub fn with_file(run: RunId, path: &Path) -> io::Result<Self> {
        let recorder = Self::new(run);
        let mut file = File::create_new(path)?;
        writeln!(file, "witness 1 {:016x}", run.0)?;
        recorder.book().file = Some(file);
        Ok(recorder)
    }

    /// Note that `writer` is about to write. Offset and length are whole sectors, and the length is not zero.
    pub fn issue(&self, writer: WriterId, volume: VolumeNumber, offset_bytes: u64, length_bytes: u32) -> WriteTicket {
        assert!(offset_bytes.is_multiple_of(SECTOR_BYTES as u64), "a write starts on a sector");
        assert!(length_bytes > 0 && length_bytes.is_multiple_of(SECTOR_BYTES as u32), "a write is whole sectors");
        let mut book = self.book();
        let number = book.numbers.entry(writer).or_insert(0);
        *number += 1;
        let name = WriteName { writer, number: *number };
        let issued = book.next_tick();
        let write = RecordedWrite { name, volume, offset_bytes, length_bytes, issued, acknowledged: None };
        let slot = book.writes.len();
        book.writes.push(write);
        book.append(format_args!("i {} {} {} {offset_bytes} {length_bytes} {issued}", writer.0, name.number, volume.0));
        WriteTicket { slot, run: self.run, write }
    }

    /// The write was answered with success.
    pub fn acknowledge(&self, ticket: WriteTicket) {
        let mut book = self.book();
        let tick = book.next_tick();
        book.writes[ticket.slot].acknowledged = Some(tick);
        let name = ticket.write.name;
        book.append(format_args!("a {} {} {tick}", name.writer.0, name.number));
    }

    /// The write was answered with an error, or not at all: its outcome is unknown.
    pub fn fail(&self, ticket: WriteTicket) {
        drop(ticket);
    }

    /// A tick for an event that is no write, such as the issue of a flush: writes acknowledged at a lower one were
    /// acknowledged before it.
    pub fn tick(&self) -> u64 {
        self.book().next_tick()
    }

    /// All that is known now. Writes still under way count as of unknown outcome.
    pub fn history(&self) -> WriteHistory {
        WriteHistory { run: self.run, writes: self.book().writes.clone() }
    }

    /// Whether the file has all that was noted; ask before it is used.
    ///
    /// # Errors
    /// The first append to the file that failed; nothing was appended after it.
    pub fn saved(&self) -> io::Result<()> {
        self.book().file_error.take().map_or(Ok(()), Err)
    }

    fn book(&self) -> std::sync::MutexGuard<'_, LogState> {
        // A panic between two events leaves the book whole: every method finishes its change before it can fail.
        self.book.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl LogState {
    fn next_tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    fn append(&mut self, line: std::fmt::Arguments<'_>) {
        // One write(2) per event: an issue is in the file's pages before the write itself leaves this process.
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(format!("{line}\n").as_bytes())
        {
            self.file = None;
            self.file_error = Some(error);
        }
    }
}

impl WriteHistory {
    /// Read the file that a [`WriteRecorder`] appended to. A last line without its end (the writers were killed) is ignored:
    /// an issue that was not noted was not sent, an acknowledgement that was not noted only makes the check milder.
    ///
    /// # Errors
    /// The file cannot be read, or a line makes no sense; the error names the line.
    pub fn load(path: &Path) -> io::Result<Self> {
        Self::read(io::BufReader::new(File::open(path)?))
    }

    /// As [`WriteHistory::load`], from any source.
    ///
    /// # Errors
    /// As [`WriteHistory::load`].
    pub fn read(mut source: impl BufRead) -> io::Result<Self> {
        let mut line = String::new();
        source.read_line(&mut line)?;
        let run = line
            .strip_prefix("witness 1 ")
            .and_then(|rest| u64::from_str_radix(rest.trim_end(), 16).ok())
            .ok_or_else(|| nonsense(1, &line))?;
        let mut history = WriteHistory { run: RunId(run), writes: Vec::new() };
        let mut slots = HashMap::new();
        for number in 2.. {
            line.clear();
            source.read_line(&mut line)?;
            if !line.ends_with('\n') {
                break;
            }
            history.take_line(&line, &mut slots).ok_or_else(|| nonsense(number, &line))?;
        }
        Ok(history)
    }

    fn take_line(&mut self, line: &str, slots: &mut HashMap<WriteName, usize>) -> Option<()> {
        let mut words = line.split_ascii_whitespace();
        let kind = words.next()?;
        let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let name = WriteName { writer: WriterId(u32::try_from(*numbers.first()?).ok()?), number: *numbers.get(1)? };
        match (kind, &numbers[2..]) {
            ("i", &[volume, offset_bytes, length, issued]) => {
                let sectors = SECTOR_BYTES as u64;
                let whole = length > 0 && length.is_multiple_of(sectors) && offset_bytes.is_multiple_of(sectors);
                offset_bytes.checked_add(length).filter(|_| whole)?;
                let write = RecordedWrite {
                    name,
                    volume: VolumeNumber(u32::try_from(volume).ok()?),
                    offset_bytes,
                    length_bytes: u32::try_from(length).ok()?,
                    issued,
                    acknowledged: None,
                };
                if slots.insert(name, self.writes.len()).is_some() {
                    return None;
                }
                self.writes.push(write);
            }
            ("a", &[tick]) => {
                let write = self.writes.get_mut(*slots.get(&name)?)?;
                if tick <= write.issued || write.acknowledged.is_some() {
                    return None;
                }
                write.acknowledged = Some(tick);
            }
            _ => return None,
        }
        Some(())
    }

    /// Add the log of other writers of the same run, whose ticks came from the same counter.
    ///
    /// # Errors
    /// The run differs, or a writer is in both.
    pub fn merge(&mut self, other: WriteHistory) -> Result<(), String> {
        if self.run != other.run {
            return Err(format!("the logs are of two runs, {:016x} and {:016x}", self.run.0, other.run.0));
        }
        let ours: HashSet<WriterId> = self.writes.iter().map(|write| write.name.writer).collect();
        if let Some(write) = other.writes.iter().find(|write| ours.contains(&write.name.writer)) {
            return Err(format!("writer {} is in both logs", write.name.writer.0));
        }
        self.writes.extend(other.writes);
        Ok(())
    }
}

fn nonsense(number: u64, line: &str) -> io::Error {
    let shown: String = line.trim_end().chars().take(80).collect();
    let problem =
        format!("line {number} of the writers' log makes no sense: {shown:?}; it is not a log of this format");
    io::Error::new(io::ErrorKind::InvalidData, problem)
}
