//! How a link did, minute by minute, for four weeks: a ring on disk (docs/book/format.md, "Link history").
//!
//! A ring of a fixed number of records: when the last one is written, the next goes over the first. Each
//! record carries its number and its own checksum, so one that rotted is noticed and left out; only a file whose head
//! cannot be read is put aside and begun anew. Nothing rests on it, so a write here may fail without harm.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::meter::Minute;

const MAGIC: [u8; 8] = *b"FSHRLINK";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 4096;
/// A power of two, so that no record lies across two sectors: one is old or new, never both.
pub const RECORD_BYTES: usize = 128;
/// Four weeks of minutes, and 5 MiB.
pub(crate) const RECORDS_MAX: u64 = 28 * 24 * 60;
/// No record is numbered so high: at one a minute it takes 8 000 million years.
const NUMBERS_END: u64 = 1 << 52;
/// Files put aside at most.
const ASIDE_MAX: u64 = 5;

const FILE_BYTES: u64 = HEAD_BYTES as u64 + RECORDS_MAX * RECORD_BYTES as u64;

/// One line: what a stretch of time, mostly a minute, has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinuteRecord {
    /// Counts the records of this file from 1.
    pub number: u64,
    /// When it ended, by this node's clock.
    pub unix_ms: u64,
    pub covered_ms: u32,
    pub connected_ms: u32,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub retransmitted_bytes: u64,
    /// The best second.
    pub sent_per_s_max: u64,
    /// All three 0: not measured.
    pub rtt_min_us: u32,
    pub rtt_mean_us: u32,
    pub rtt_max_us: u32,
    pub connections: u32,
    pub busy_ms: u32,
    pub receiver_limited_ms: u32,
    pub buffer_limited_ms: u32,
}

impl MinuteRecord {
    pub fn of(minute: &Minute, unix_ms: u64) -> MinuteRecord {
        let short = |ms: u128| u32::try_from(ms).unwrap_or(u32::MAX);
        let us = |us: u64| short(u128::from(us / 1000));
        MinuteRecord {
            number: 0,
            unix_ms,
            covered_ms: short(minute.covered.as_millis()),
            connected_ms: short(minute.sums.time.as_millis()),
            sent_bytes: minute.sums.sent_bytes,
            received_bytes: minute.sums.received_bytes,
            retransmitted_bytes: minute.sums.retransmitted_bytes,
            sent_per_s_max: minute.sent_per_s_max,
            rtt_min_us: minute.rtt_min_us,
            rtt_mean_us: minute.rtt_mean_us(),
            rtt_max_us: minute.rtt_max_us,
            connections: minute.connections,
            busy_ms: us(minute.sums.busy_us),
            receiver_limited_ms: us(minute.sums.receiver_limited_us),
            buffer_limited_ms: us(minute.sums.buffer_limited_us),
        }
    }

    fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        for wide in [self.number, self.unix_ms] {
            bytes.extend(wide.to_le_bytes());
        }
        for narrow in [self.covered_ms, self.connected_ms] {
            bytes.extend(narrow.to_le_bytes());
        }
        for wide in [self.sent_bytes, self.received_bytes, self.retransmitted_bytes, self.sent_per_s_max] {
            bytes.extend(wide.to_le_bytes());
        }
        for narrow in [
            self.rtt_min_us,
            self.rtt_mean_us,
            self.rtt_max_us,
            self.connections,
            self.busy_ms,
            self.receiver_limited_ms,
            self.buffer_limited_ms,
        ] {
            bytes.extend(narrow.to_le_bytes());
        }
        bytes.resize(RECORD_BYTES - 4, 0);
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes.try_into().expect("a record has its length")
    }

    /// `None`: not whole, or of another position.
    fn decode(bytes: &[u8; RECORD_BYTES], position: u64) -> Option<MinuteRecord> {
        let (content, sum) = bytes.split_last_chunk::<4>().expect("a record is longer than its checksum");
        let wide = |at: usize| u64::from_le_bytes(*content[at..].first_chunk().expect("a field lies inside"));
        let narrow = |at: usize| u32::from_le_bytes(*content[at..].first_chunk().expect("a field lies inside"));
        let record = MinuteRecord {
            number: wide(0),
            unix_ms: wide(8),
            covered_ms: narrow(16),
            connected_ms: narrow(20),
            sent_bytes: wide(24),
            received_bytes: wide(32),
            retransmitted_bytes: wide(40),
            sent_per_s_max: wide(48),
            rtt_min_us: narrow(56),
            rtt_mean_us: narrow(60),
            rtt_max_us: narrow(64),
            connections: narrow(68),
            busy_ms: narrow(72),
            receiver_limited_ms: narrow(76),
            buffer_limited_ms: narrow(80),
        };
        let is_whole = u32::from_le_bytes(*sum) == crc32c::crc32c(content);
        let counts = (1..NUMBERS_END).contains(&record.number) && position_of(record.number) == position;
        (is_whole && counts).then_some(record)
    }
}

fn position_of(number: u64) -> u64 {
    (number - 1) % RECORDS_MAX
}

/// What a file held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryRecords {
    /// In the order of their numbers.
    pub list: Vec<MinuteRecord>,
    /// Positions that hold something that is no record.
    pub damaged: u64,
}

/// Why a file is no history of this link.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("its head is missing or damaged")]
    Head,
    #[error("it is of version {0}, which this program does not know")]
    Version(u16),
    #[error("it belongs to another cluster, node or peer")]
    Other,
}

/// A peer's history, open for one more line.
#[derive(Debug)]
pub struct MinuteHistory {
    file: File,
    next: u64,
}

impl MinuteHistory {
    /// Opens the file, or makes a new one. One that cannot be used is put aside as `NAME.damaged`, `NAME.damaged.2` and so on, and a
    /// new one begun: then there is a sentence for the log.
    ///
    /// # Errors
    /// Neither is possible.
    pub fn open(path: &Path, tag: u64) -> io::Result<(MinuteHistory, Option<String>)> {
        let file = unfollowed().open(path);
        let read = file.map_err(HistoryError::Io).and_then(|file| Ok((read_from(&file, tag)?, file)));
        let why = match read {
            Ok((records, file)) => {
                let next = records.list.last().map_or(1, |last| last.number + 1);
                let note = (records.damaged > 0).then(|| damaged_sentence(path, records.damaged));
                return Ok((MinuteHistory { file, next }, note));
            }
            Err(HistoryError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((MinuteHistory { file: make(path, tag)?, next: 1 }, None));
            }
            Err(HistoryError::Io(error)) => return Err(error),
            Err(error) => error,
        };
        let aside = free_aside(path);
        std::fs::rename(path, &aside)?;
        let note = format!(
            "the link history {} cannot be used ({why}); it was put aside as {} and a new one begins",
            path.display(),
            aside.display()
        );
        Ok((MinuteHistory { file: make(path, tag)?, next: 1 }, Some(note)))
    }

    /// Writes the next line, durably.
    ///
    /// # Errors
    /// The disk refuses; the next call tries the same position again.
    pub fn append(&mut self, record: &MinuteRecord) -> io::Result<()> {
        let record = MinuteRecord { number: self.next, ..*record };
        let position = HEAD_BYTES as u64 + position_of(self.next) * RECORD_BYTES as u64;
        self.file.write_all_at(&record.encode(), position)?;
        self.file.sync_data()?;
        self.next += 1;
        Ok(())
    }
}

/// All lines of a file; never writes.
///
/// # Errors
/// It cannot be read, or is no history of this link.
pub fn read(path: &Path, tag: u64) -> Result<HistoryRecords, HistoryError> {
    read_from(&unfollowed().write(false).open(path)?, tag)
}

/// A file's bytes with these records: for tests and fuzzing.
pub fn example(tag: u64, records: &[MinuteRecord]) -> Vec<u8> {
    let mut bytes = head(tag).to_vec();
    for (position, record) in records.iter().enumerate() {
        bytes.extend(MinuteRecord { number: position as u64 + 1, ..*record }.encode());
    }
    bytes
}

/// Identity of a history: one of another pair of nodes is not continued.
pub fn tag(cluster: &str, node: &str, peer: &str) -> u64 {
    // Names hold no slash, so the text is unambiguous.
    let hash = blake3::hash(format!("farshore link {cluster}/{node}/{peer}").as_bytes());
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

pub fn damaged_sentence(path: &Path, count: u64) -> String {
    format!("the link history {} has {count} damaged records; they are left out", path.display())
}

/// A name that nothing has yet: a start with a wrong configuration puts a good history aside, and the next one with the right one that
/// of the wrong. After so many the last one is overwritten.
fn free_aside(path: &Path) -> PathBuf {
    let later = (2..ASIDE_MAX).map(|number| beside(path, &format!(".damaged.{number}")));
    let mut names = std::iter::once(beside(path, ".damaged")).chain(later);
    let free = names.find(|name| std::fs::symlink_metadata(name).is_err());
    free.unwrap_or_else(|| beside(path, &format!(".damaged.{ASIDE_MAX}")))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn read_from(mut file: &File, tag: u64) -> Result<HistoryRecords, HistoryError> {
    let mut bytes = Vec::new();
    file.by_ref().take(FILE_BYTES).read_to_end(&mut bytes)?;
    parse(&bytes, Some(tag))
}

/// Reads a file's bytes; without a tag it may be of any link.
///
/// # Errors
/// It is no history, or not this link's.
pub fn parse(bytes: &[u8], tag: Option<u64>) -> Result<HistoryRecords, HistoryError> {
    let (head, content) = bytes.split_first_chunk().ok_or(HistoryError::Head)?;
    check_head(head, tag)?;
    let mut records = HistoryRecords::default();
    // What a cut-off file lacks was never written, or is lost: either way there is nothing to be said of it.
    let (positions, _) = content.as_chunks::<RECORD_BYTES>();
    let written = positions.iter().enumerate().filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0));
    for (position, bytes) in written {
        match MinuteRecord::decode(bytes, position as u64) {
            Some(record) => records.list.push(record),
            None => records.damaged += 1,
        }
    }
    records.list.sort_by_key(|record| record.number);
    Ok(records)
}

fn head(tag: u64) -> [u8; HEAD_BYTES] {
    let mut head = MAGIC.to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend([0; 6]);
    head.extend(tag.to_le_bytes());
    head.resize(HEAD_BYTES - 4, 0);
    head.extend(crc32c::crc32c(&head).to_le_bytes());
    head.try_into().expect("a head has its length")
}

fn check_head(bytes: &[u8; HEAD_BYTES], expected: Option<u64>) -> Result<(), HistoryError> {
    let (content, sum) = bytes.split_last_chunk::<4>().expect("a head is longer than its checksum");
    if content[..8] != MAGIC || u32::from_le_bytes(*sum) != crc32c::crc32c(content) {
        return Err(HistoryError::Head);
    }
    let version = u16::from_le_bytes([content[8], content[9]]);
    if version != VERSION {
        return Err(HistoryError::Version(version));
    }
    let tag = u64::from_le_bytes(*content[16..].first_chunk().expect("a field lies inside"));
    if expected.is_none_or(|expected| tag == expected) { Ok(()) } else { Err(HistoryError::Other) }
}

/// To read and write: a link is not followed, and a pipe is not waited for.
fn unfollowed() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}

/// Whole before it appears under its name. The lines take space as they are written.
fn make(path: &Path, tag: u64) -> io::Result<File> {
    let unfinished = beside(path, ".new");
    // Left by a crash, or put there by somebody: a link would lead elsewhere.
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = unfollowed().create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all_at(&head(tag), 0)?;
    file.set_len(FILE_BYTES)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: u64 = 7;

    fn record(minute: u64) -> MinuteRecord {
        MinuteRecord { unix_ms: minute * 60_000, sent_bytes: minute * 1000, rtt_min_us: 50, ..MinuteRecord::default() }
    }

    fn file() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("beta");
        (directory, path)
    }

    fn open(path: &Path) -> (MinuteHistory, Option<String>) {
        MinuteHistory::open(path, TAG).expect("it opens")
    }

    /// With a link there, root emptied whatever it led to.
    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let (directory, path) = file();
        let victim = directory.path().join("victim");
        std::fs::write(&victim, "precious").expect("written");
        std::os::unix::fs::symlink(&victim, beside(&path, ".new")).expect("a link");
        open(&path).0.append(&record(1)).expect("written");
        std::fs::remove_file(&path).expect("there");
        std::os::unix::fs::symlink(&victim, &path).expect("a link");
        assert!(MinuteHistory::open(&path, TAG).is_err() && read(&path, TAG).is_err());
        assert_eq!(std::fs::read(&victim).expect("there"), b"precious");
    }

    #[test]
    fn lines_are_kept_and_go_round() {
        let (_directory, path) = file();
        let (mut history, note) = open(&path);
        assert_eq!(note, None);
        for minute in 1..=3 {
            history.append(&record(minute)).expect("written");
        }
        drop(history);
        let (mut history, note) = open(&path);
        assert_eq!((note, history.next), (None, 4));
        // As if four weeks had passed.
        history.next = RECORDS_MAX + 1;
        history.append(&record(99)).expect("written");
        let records = read(&path, TAG).expect("a history");
        let minutes: Vec<u64> = records.list.iter().map(|record| record.unix_ms / 60_000).collect();
        assert_eq!((minutes, records.damaged), (vec![2, 3, 99], 0), "the oldest made room");
        let size = std::fs::metadata(&path).expect("there").len();
        assert_eq!(size, FILE_BYTES, "it does not grow");
    }

    /// Every field another value.
    fn full_record() -> MinuteRecord {
        MinuteRecord {
            number: 3,
            unix_ms: 2,
            covered_ms: 3,
            connected_ms: 4,
            sent_bytes: 5,
            received_bytes: 6,
            retransmitted_bytes: 7,
            sent_per_s_max: 8,
            rtt_min_us: 9,
            rtt_mean_us: 10,
            rtt_max_us: 11,
            connections: 12,
            busy_ms: 13,
            receiver_limited_ms: 14,
            buffer_limited_ms: 15,
        }
    }

    /// Another shape is another version: else a node of an older build would read what it does not know.
    #[test]
    fn a_changed_shape_has_a_changed_version() {
        // The last four bytes are a checksum, after which all checksums are the same.
        let sum = |bytes: &[u8]| crc32c::crc32c(&bytes[..bytes.len() - 4]);
        let sums = [sum(&head(TAG)), sum(&full_record().encode())];
        assert_eq!(
            (VERSION, sums),
            (1, [0x59e6_b9f5, 0x22a4_8150]),
            "a new shape: give it a new version, and document it"
        );
    }

    #[test]
    fn every_field_is_read_back() {
        let record = full_record();
        assert_eq!(MinuteRecord::decode(&record.encode(), 2), Some(record));
        assert_eq!(MinuteRecord::decode(&record.encode(), 3), None, "astray");
    }

    /// The record after it would have no number, and whoever wrote it broke down.
    #[test]
    fn a_number_that_nobody_reaches_is_damage() {
        let (_directory, path) = file();
        let (mut history, _) = open(&path);
        history.append(&record(1)).expect("written");
        for number in [NUMBERS_END, u64::MAX] {
            let bytes = MinuteRecord { number, ..full_record() }.encode();
            history
                .file
                .write_all_at(&bytes, HEAD_BYTES as u64 + position_of(number) * RECORD_BYTES as u64)
                .expect("written");
        }
        let (mut history, note) = open(&path);
        assert!(note.is_some_and(|note| note.contains("2 damaged records")));
        history.append(&record(2)).expect("written");
        assert_eq!(read(&path, TAG).expect("a history").list.len(), 2);
    }

    #[test]
    fn a_damaged_line_is_left_out_and_counted() {
        let (_directory, path) = file();
        let (mut history, _) = open(&path);
        for minute in 1..=3 {
            history.append(&record(minute)).expect("written");
        }
        history.file.write_all_at(&[0xff], (HEAD_BYTES + RECORD_BYTES + 24) as u64).expect("damaged");
        let records = read(&path, TAG).expect("a history");
        assert_eq!((records.list.len(), records.damaged), (2, 1));
        let (history, note) = open(&path);
        assert_eq!(history.next, 4);
        assert!(note.expect("told").contains("1 damaged records"));
    }

    #[test]
    fn a_wrong_start_and_the_right_one_after_it_lose_nothing() {
        let (_directory, path) = file();
        let (mut history, _) = open(&path);
        history.append(&record(1)).expect("written");
        for tag in [TAG + 1, TAG] {
            MinuteHistory::open(&path, tag).expect("a new one begins").1.expect("told");
        }
        let kept = read(&beside(&path, ".damaged"), TAG).expect("the good one");
        assert_eq!(kept.list.len(), 1);
        assert!(read(&beside(&path, ".damaged.2"), TAG + 1).is_ok());
        for tag in (0..4 * ASIDE_MAX).map(|round| TAG + round % 2 + 1) {
            MinuteHistory::open(&path, tag).expect("a new one begins");
        }
        assert!(read(&beside(&path, ".damaged"), TAG).is_ok(), "still");
        assert!(!beside(&path, &format!(".damaged.{}", ASIDE_MAX + 1)).exists());
    }

    #[test]
    fn an_unusable_file_is_put_aside_and_named() {
        for (damage, words) in [
            ((|file: &File| file.write_all_at(b"x", 3).expect("damaged")) as fn(&File), "missing or damaged"),
            (|file| file.set_len(100).expect("cut"), "missing or damaged"),
            (|file| file.write_all_at(&head(8), 0).expect("another's"), "another cluster"),
        ] {
            let (_directory, path) = file();
            let (mut history, _) = open(&path);
            history.append(&record(1)).expect("written");
            damage(&history.file);
            assert!(read(&path, TAG).expect_err("unusable").to_string().contains(words));
            let (history, note) = open(&path);
            let note = note.expect("it is told");
            assert!(note.contains(words) && note.contains("beta.damaged"), "{note}");
            assert_eq!(history.next, 1);
            assert!(beside(&path, ".damaged").exists());
            assert_eq!(read(&path, TAG).expect("begun anew"), HistoryRecords::default());
        }
    }
}
