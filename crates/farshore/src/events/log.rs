//! The log of a node's events: two files of lines, the newer one grows, and when it is full it takes the older one's place.
//!
//! Nothing rests on it, so nothing waits for it: an event that cannot be written is counted, and the log says how many are missing
//! as soon as it can. A line that a crash tore is taken away at the next start. Each event has a number of its own; numbers of events
//! that were not kept are missing, and each run begins with a higher one. They go back only where the clock was set back and neither the log
//! nor the position of a hook on disk tells of a run before: then nothing but the clock could have said how far that one came.
//!
//! One thread writes; whoever reads has a [`LogReader`], which opens the files for itself.

mod reading;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use settings::durable;
use settings::events::EventKind;

pub use reading::LogReader;
use reading::{line_begin, unfollowed};

use super::{EventRecord, NewEvent};

/// What a line may have; an event's texts are cut far below.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// A page has no more than this of lines, and one event at least.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Events of a page.
pub const PAGE_EVENTS_MAX: usize = 1000;
/// No clock has the numbers of a run begin beyond this: what reads JSON counts to 2^53.
const CLOCK_NUMBERS_MAX: u64 = 1 << 52;
/// Where the clock is behind the last number that is known, they begin so far after that: a run does not tell of so many events without
/// keeping one.
const RUN_NUMBERS: u64 = 1 << 20;

/// A node's log, open to be written.
#[derive(Debug)]
pub struct EventLog {
    /// Where it is, and what those who read it are told.
    reader: LogReader,
    /// `None`: it could not be opened, which is tried again with the next event.
    file: Option<File>,
    bytes: u64,
    last: u64,
    /// Events since the last one that was kept.
    not_kept: u64,
    /// Why; told once.
    failure: Option<String>,
}

/// Which events are wanted.
#[derive(Clone, Debug, Default)]
pub struct EventQuestion {
    /// Those with a higher number.
    pub after: u64,
    /// Those from then on, milliseconds since 1970.
    pub since_unix_ms: u64,
    /// So many at most.
    pub limit: usize,
    /// The newest ones, so many; else the oldest come first.
    pub newest: Option<usize>,
    pub group: Option<String>,
}

/// What a log held when it was opened.
#[derive(Debug, Default)]
pub struct OpenedLog {
    /// For the daemon's log.
    pub notes: Vec<String>,
    /// The newest event of the run before.
    pub newest: Option<EventRecord>,
    /// The newest value of each setting that an event named: by group and key.
    pub values: Vec<((String, String), String)>,
    /// Thresholds that were passed and not met again: group, level, and since when, milliseconds since 1970.
    pub missed: Vec<((String, String), u64)>,
}

impl EventLog {
    /// Opens the log of `node`, whose newer half is `path`; both halves together take no more than `limit_bytes`. Numbers up to
    /// `given` are known elsewhere and are not given again.
    pub fn open(path: &Path, limit_bytes: u64, node: &str, given: u64) -> (EventLog, OpenedLog) {
        let reader = LogReader::new(path, limit_bytes / 2, node);
        let mut log = EventLog { reader, file: None, bytes: 0, last: 0, not_kept: 0, failure: None };
        let mut opened = OpenedLog::default();
        match log.reopen() {
            Ok(torn) => opened.notes.extend(torn),
            Err(error) => log.failed(&error, 0),
        }
        let name = path.display();
        match log.shorten() {
            Ok(told) => opened.notes.extend(told),
            Err(error) => opened.notes.push(format!("the log of events {name} cannot be made shorter: {error}")),
        }
        log.reader.shared().bytes = log.bytes;
        let mut known = KnownFromLog::default();
        let read = log.reader.each_record(0, |record| {
            log.last = log.last.max(record.number);
            known.take(&record);
            opened.newest = Some(record);
            true
        });
        match read {
            Ok(0) => {}
            Ok(damaged) => opened.notes.push(log.reader.damaged_sentence(damaged)),
            Err(error) => {
                log.last = log.last.max(log.reader.newest_number().unwrap_or(0));
                opened.notes.push(format!("the log of events {name} cannot be read: {error}"));
            }
        }
        log.last = log.last.max(given);
        log.reader.shared().last = log.last;
        opened.values = known.values.into_iter().collect();
        opened.missed = known.missed.into_iter().collect();
        (log, opened)
    }

    /// Has the numbers of this run begin after all that a run before can have given. On a full disk events are not kept, and their numbers
    /// were told all the same: to hooks, whose receivers take a number that comes again for an event that they had, and to those who
    /// follow. So a run begins with its clock, milliseconds since 1970: no run has an event for each of its milliseconds.
    pub fn begin_run(&mut self, now_unix_ms: u64) {
        let by_clock = now_unix_ms.min(CLOCK_NUMBERS_MAX);
        self.last = if by_clock > self.last { by_clock } else { self.last.saturating_add(RUN_NUMBERS) };
        self.reader.shared().last = self.last;
    }

    /// For whoever reads it.
    pub fn reader(&self) -> &LogReader {
        &self.reader
    }

    /// Numbers events and writes them, durably. `lost` of them never came so far. All of them are returned, whether they were kept or
    /// not, with the one that tells of those that were not.
    pub fn append(&mut self, events: Vec<NewEvent>, lost: u64) -> Vec<EventRecord> {
        let missing = self.not_kept + lost;
        let told = (missing > 0).then(|| {
            let reason = self.failure.clone().unwrap_or_else(|| "too many came at once".to_owned());
            NewEvent::now(EventKind::EventsNotKept, format!("{missing} events were not kept: {reason}"))
                .with("count", missing)
                .with("reason", reason)
        });
        let has_told = told.is_some();
        let mut records = Vec::with_capacity(events.len() + 1);
        for event in told.into_iter().chain(events) {
            self.last = self.last.saturating_add(1);
            records.push(event.numbered(self.last, &self.reader.node));
        }
        let (kept, failure) = self.write(&records);
        if kept > 0 || failure.is_none() {
            (self.not_kept, self.failure) = (0, None);
        }
        if let Some(error) = failure {
            // What tells of the missing ones is none of them, and once it was kept they are told of.
            let untold = if kept == 0 { lost } else { 0 };
            let new = records.len() - kept - usize::from(has_told && kept == 0);
            self.failed(&error, untold + new as u64);
        }
        let mut shared = self.reader.shared();
        (shared.bytes, shared.last) = (self.bytes, self.last);
        drop(shared);
        records
    }

    /// One warning, however long it lasts.
    fn failed(&mut self, error: &io::Error, events: u64) {
        self.not_kept += events;
        if self.failure.is_none() {
            let path = self.reader.path.display();
            tracing::warn!("the log of events {path} cannot be written: {error}; events are not kept until it can");
        }
        self.failure = Some(error.to_string());
    }

    /// How many of these were kept, from the first one on, and why not all of them.
    fn write(&mut self, records: &[EventRecord]) -> (usize, Option<io::Error>) {
        let (mut kept, mut waiting, mut waiting_bytes) = (0, Vec::new(), 0);
        let mut write_all = || {
            if self.file.is_none() {
                self.reopen()?;
            }
            for line in records.iter().map(EventRecord::line) {
                let begun = self.bytes + waiting_bytes;
                if begun > 0 && begun + line.len() as u64 > self.reader.half_bytes {
                    self.write_lines(&waiting)?;
                    kept += waiting.len();
                    waiting.clear();
                    waiting_bytes = 0;
                    self.begin_anew()?;
                }
                waiting_bytes += line.len() as u64;
                waiting.push(line);
            }
            self.write_lines(&waiting)
        };
        match write_all() {
            Ok(()) => (records.len(), None),
            Err(error) => (kept, Some(error)),
        }
    }

    /// All of these lines, durably, or none.
    fn write_lines(&mut self, lines: &[String]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let file = self.file.as_mut().expect("it is open to be written");
        let lines = lines.concat();
        let begun = file.seek(SeekFrom::Start(self.bytes));
        if let Err(error) = begun.and_then(|_| file.write_all(lines.as_bytes())).and_then(|()| file.sync_data()) {
            // Half a line would spoil the next one. If even that fails, the next start takes it away.
            let _ = file.set_len(self.bytes);
            self.file = None;
            return Err(error);
        }
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// The newer half becomes the older one, whose place it takes. Readers are told before and after.
    fn begin_anew(&mut self) -> io::Result<()> {
        self.file = None;
        self.reader.shared().turns += 1;
        let turned = std::fs::rename(&self.reader.path, self.reader.older()).and_then(|()| {
            self.bytes = 0;
            self.reopen()?;
            File::open(self.reader.path.parent().unwrap_or(Path::new("/")))?.sync_all()
        });
        let mut shared = self.reader.shared();
        (shared.bytes, shared.turns) = (self.bytes, shared.turns + 1);
        turned
    }

    /// Opens the newer half behind its last whole line; a sentence if there was more.
    fn reopen(&mut self) -> io::Result<Option<String>> {
        let path = &self.reader.path;
        let mut options = unfollowed();
        let mut file = options.write(true).create(true).mode(0o600).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no plain file; remove it"));
        }
        let (whole, all) = whole_lines(&mut file)?;
        if whole < all {
            file.set_len(whole)?;
            file.sync_data()?;
        }
        file.seek(SeekFrom::End(0))?;
        let torn = format!(
            "the last line of the log of events {} was torn by a crash; it was taken away ({} bytes)",
            path.display(),
            all - whole
        );
        (self.file, self.bytes) = (Some(file), whole);
        Ok((whole < all).then_some(torn))
    }

    /// Halves that are longer than they may be, as after a change of the limit, keep their newest lines; a sentence if one was. Done at
    /// a start, before anybody reads. A crash in between leaves the newer half whole.
    fn shorten(&mut self) -> io::Result<Option<String>> {
        let (half, older) = (self.reader.half_bytes, self.reader.older());
        let told = |bytes: u64| {
            let path = self.reader.path.display();
            format!(
                "the log of events {path} was longer than 'events.limit' lets it be; its oldest {bytes} bytes made room"
            )
        };
        let mut older_file = match unfollowed().open(&older) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let older_bytes = older_file.as_ref().map_or(Ok(0), |file| file.metadata().map(|found| found.len()))?;
        if let (true, Some(file)) = (self.bytes > half, self.file.as_mut()) {
            let newer = line_begin(file, self.bytes - half, self.bytes)?;
            let before = line_begin(file, newer.saturating_sub(half), newer)?;
            let (first, second) = (part(file, before, newer)?, part(file, newer, self.bytes)?);
            let told = told(older_bytes + before);
            durable::replace(&older, &first)?;
            durable::replace(&self.reader.path, &second)?;
            self.reopen()?;
            return Ok(Some(told));
        }
        let (true, Some(file)) = (older_bytes > half, older_file.as_mut()) else { return Ok(None) };
        let begin = line_begin(file, older_bytes - half, older_bytes)?;
        let newest = part(file, begin, older_bytes)?;
        durable::replace(&older, &newest)?;
        Ok(Some(told(begin)))
    }
}

/// These bytes of a file.
fn part(file: &mut File, begin: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(begin))?;
    file.take(end - begin).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What the log says of the run before, for the looks at the groups.
#[derive(Default)]
struct KnownFromLog {
    values: BTreeMap<(String, String), String>,
    missed: BTreeMap<(String, String), u64>,
}

impl KnownFromLog {
    fn take(&mut self, record: &EventRecord) {
        let group = || record.group.clone().unwrap_or_default();
        if let Some((key, value)) = value_of(record) {
            self.values.insert((group(), key), value);
        }
        let level = record.fields.get("level").and_then(|level| level.as_str());
        match (EventKind::parse(&record.kind), level) {
            (Ok(EventKind::RpoMissed), Some(level)) => {
                self.missed.insert((group(), level.to_owned()), record.time_unix_ms);
            }
            (Ok(EventKind::RpoMet), Some(level)) => {
                self.missed.remove(&(group(), level.to_owned()));
            }
            _ => {}
        }
    }
}

/// The setting that an event names, and its value.
fn value_of(record: &EventRecord) -> Option<(String, String)> {
    let field = |name: &str| record.fields.get(name).and_then(|value| value.as_str()).map(str::to_owned);
    let key = match EventKind::parse(&record.kind).ok()? {
        kind @ (EventKind::Mode | EventKind::Policy) => kind.as_str().to_owned(),
        EventKind::Setting => format!("setting {}", field("key")?),
        _ => return None,
    };
    Some((key, field("to")?))
}

/// How many bytes of a file are whole lines, and how many there are in all.
fn whole_lines(file: &mut File) -> io::Result<(u64, u64)> {
    let all = file.seek(SeekFrom::End(0))?;
    let mut end = all;
    let mut chunk = [0; 4096];
    while end > 0 {
        let length = end.min(chunk.len() as u64);
        let piece = &mut chunk[..usize::try_from(length).expect("a piece of a page")];
        file.seek(SeekFrom::Start(end - length))?;
        file.read_exact(piece)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok((end - length + at as u64 + 1, all));
        }
        end -= length;
    }
    Ok((0, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 64 << 10;

    fn log(directory: &tempfile::TempDir) -> (EventLog, OpenedLog) {
        EventLog::open(&directory.path().join("events.jsonl"), LIMIT, "alpha", 0)
    }

    fn note(text: &str) -> NewEvent {
        NewEvent::now(EventKind::Note, text).of_group("db")
    }

    fn numbers(log: &EventLog, question: &EventQuestion) -> Vec<u64> {
        log.reader().page(question).expect("read").events.iter().map(|event| event.number).collect()
    }

    fn all() -> EventQuestion {
        EventQuestion { limit: PAGE_EVENTS_MAX, ..EventQuestion::default() }
    }

    #[test]
    fn events_are_kept_over_a_start_and_numbers_go_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut first, opened) = log(&directory);
        assert!(opened.notes.is_empty() && opened.newest.is_none());
        first.append(vec![note("one"), note("two")], 0);
        drop(first);
        let (mut second, opened) = log(&directory);
        assert_eq!((opened.newest.expect("two").text.as_str(), second.reader().last()), ("two", 2));
        assert_eq!(second.append(vec![note("three")], 0)[0].number, 3);
        assert_eq!(numbers(&second, &all()), [1, 2, 3]);
    }

    #[test]
    fn both_halves_stay_within_their_limit_and_the_newest_are_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut log, _) = log(&directory);
        for round in 0..200 {
            log.append((0..10).map(|at| note(&format!("{round} {at} {}", "x".repeat(100)))).collect(), 0);
            let size = |name: &str| std::fs::metadata(directory.path().join(name)).map_or(0, |found| found.len());
            assert!(size("events.jsonl") <= LIMIT / 2 && size("events.old.jsonl") <= LIMIT / 2);
        }
        let page = log.reader().page(&EventQuestion { after: 1990, ..all() }).expect("read");
        assert_eq!((page.events.len(), page.last, page.position, page.more), (10, 2000, 2000, false));
        let kept = numbers(&log, &all());
        assert!(kept.len() > 100 && kept.is_sorted() && kept.windows(2).all(|two| two[0] + 1 == two[1]), "no gap");
        assert_eq!(log.reader().page(&all()).expect("read").first, kept[0]);
    }

    #[test]
    fn a_torn_line_is_taken_away_and_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("events.jsonl");
        let (mut first, _) = log(&directory);
        first.append(vec![note("one"), note("two")], 0);
        drop(first);
        let whole = std::fs::read(&path).expect("there");
        for cut in 1..100 {
            std::fs::write(&path, &whole[..whole.len() - cut]).expect("torn");
            let (mut log, opened) = log(&directory);
            assert!(opened.notes.len() == 1 && opened.notes[0].contains("torn by a crash"), "{:?}", opened.notes);
            log.append(vec![note("next")], 0);
            assert_eq!(numbers(&log, &all()), [1, 2]);
        }
        std::fs::write(&path, [&whole[..], &[0; 5000]].concat()).expect("zeroes, as a power loss leaves them");
        let (log, opened) = log(&directory);
        assert_eq!((opened.notes.len(), numbers(&log, &all())), (1, vec![1, 2]));
    }

    #[test]
    fn lines_that_are_no_events_are_left_out_and_counted() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("events.jsonl");
        let (mut first, _) = log(&directory);
        first.append(vec![note("one")], 0);
        let mut bytes = std::fs::read(&path).expect("there");
        bytes.extend(b"hello\n{\"number\":5}\n\xff\xfe\n");
        std::fs::write(&path, bytes).expect("damaged");
        let (mut log, opened) = log(&directory);
        assert!(opened.notes[0].contains("3 lines that are no events"), "{:?}", opened.notes);
        log.append(vec![note("two")], 0);
        let page = log.reader().page(&all()).expect("read");
        assert_eq!((page.events.len(), page.warnings.len()), (2, 1));
    }

    /// A disk that is full takes nothing; later the log says how many are missing.
    #[test]
    fn what_a_full_disk_does_not_take_is_counted() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut log, _) = log(&directory);
        log.append(vec![note("one")], 0);
        for _ in 0..3 {
            log.file = Some(File::options().write(true).open("/dev/full").expect("it is there"));
            assert_eq!(log.append(vec![note("lost")], 0).last().expect("numbered all the same").text, "lost");
        }
        let records = log.append(vec![note("kept")], 2);
        let told = &records[0];
        assert_eq!((told.kind.as_str(), told.fields["count"].as_u64()), ("events-not-kept", Some(5)), "{told:?}");
        assert!(told.text.contains("No space left"), "{told:?}");
        let page = log.reader().page(&all()).expect("read");
        let texts: Vec<_> = page.events.iter().map(|event| event.text.as_str()).collect();
        assert_eq!((texts[0], texts[2], texts.len()), ("one", "kept", 3));
        assert_eq!(log.append(vec![note("next")], 0).len(), 1, "told once");
    }

    #[test]
    fn pages_go_on_where_the_last_one_ended() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut log, _) = log(&directory);
        log.append((0..25).map(|at| note(&at.to_string())).collect(), 0);
        log.append(vec![NewEvent::at(0, EventKind::LinkLost, "x").of_peer("beta")], 0);
        let (mut found, mut question) =
            (Vec::new(), EventQuestion { limit: 10, group: Some("db".to_owned()), ..all() });
        loop {
            let page = log.reader().page(&question).expect("read");
            found.extend(page.events.iter().map(|event| event.number));
            question.after = page.position;
            if !page.more {
                break;
            }
        }
        assert_eq!((found, question.after), ((1..=25).collect::<Vec<_>>(), 26), "what is not wanted was looked at too");
        let recent = EventQuestion { since_unix_ms: 1, ..all() };
        assert_eq!(numbers(&log, &recent).len(), 25, "an event before 1970 and a bit is old");
    }

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let victim = directory.path().join("victim");
        std::fs::write(&victim, "precious").expect("written");
        std::os::unix::fs::symlink(&victim, directory.path().join("events.jsonl")).expect("a link");
        let (mut log, _) = log(&directory);
        log.append(vec![note("one")], 0);
        assert_eq!(std::fs::read(&victim).expect("there"), b"precious");
    }

    /// A lower limit takes the oldest events, and no number comes back.
    #[test]
    fn a_lower_limit_keeps_the_newest_events_and_their_numbers() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("events.jsonl");
        let (mut large, _) = EventLog::open(&path, LIMIT * 64, "alpha", 0);
        let write = |log: &mut EventLog, count: u32| {
            log.append((0..count).map(|at| note(&format!("{at} {}", "x".repeat(100)))).collect(), 0);
        };
        write(&mut large, 3000);
        drop(large);
        let size = |name: &str| std::fs::metadata(directory.path().join(name)).map_or(0, |found| found.len());
        assert!(size("events.jsonl") > LIMIT * 4);
        let (mut small, opened) = log(&directory);
        assert!(opened.notes.len() == 1 && opened.notes[0].contains("events.limit"), "{:?}", opened.notes);
        assert_eq!((opened.newest.expect("kept").number, small.reader().last()), (3000, 3000));
        for expected in [3000, 3010] {
            assert!(size("events.jsonl") <= LIMIT / 2 && size("events.old.jsonl") <= LIMIT / 2);
            let kept = numbers(&small, &all());
            assert!(kept.len() > 100 && kept.windows(2).all(|two| two[0] + 1 == two[1]), "{kept:?}");
            assert_eq!(kept.last(), Some(&expected));
            write(&mut small, 10);
        }
        // The older half alone is too long.
        let (mut large, _) = EventLog::open(&path, LIMIT, "alpha", 0);
        write(&mut large, 500);
        drop(large);
        let (log, opened) = EventLog::open(&path, LIMIT / 2, "alpha", 0);
        assert_eq!((log.reader().last(), opened.notes.len()), (3520, 1));
        assert!(size("events.jsonl") <= LIMIT / 4 && size("events.old.jsonl") <= LIMIT / 4);
    }

    /// Where nothing can be made shorter the newest are read all the same.
    #[test]
    fn a_log_that_is_too_long_is_read_from_its_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("events.jsonl");
        let (mut large, _) = EventLog::open(&path, LIMIT * 64, "alpha", 0);
        large.append((0..3000).map(|at| note(&format!("{at} {}", "x".repeat(100)))).collect(), 0);
        // Something that is no file stands where the shorter one would be made.
        std::fs::create_dir(directory.path().join("events.old.jsonl.new")).expect("made");
        let (mut small, opened) = log(&directory);
        assert!(opened.notes[0].contains("cannot be made shorter"), "{:?}", opened.notes);
        assert_eq!((small.reader().last(), small.append(vec![note("next")], 0)[0].number), (3000, 3001));
        assert_eq!(numbers(&small, &all()).last(), Some(&3001));
    }

    #[test]
    fn numbers_that_hooks_had_are_not_given_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut log, _) = EventLog::open(&directory.path().join("events.jsonl"), LIMIT, "alpha", 41);
        assert_eq!((log.reader().last(), log.append(vec![note("next")], 0)[0].number), (41, 42));
    }

    /// With a hook, an event that was not kept and was under way at the stop, and the first one of the next run, had the same number: a
    /// receiver dropped the new one as a repeat.
    #[test]
    fn a_number_that_was_told_and_not_kept_is_not_given_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let full = || Some(File::options().write(true).open("/dev/full").expect("it is there"));
        let mut told = vec![0];
        let hour = 3_600_000;
        // The clock goes on, is set back, and goes on again while the disk takes nothing at all.
        let runs = [(hour, true), (2 * hour, true), (5, true), (5, true), (3 * hour, false), (3 * hour + 99, false)];
        for (now_unix_ms, keeps) in runs {
            let (mut log, _) = log(&directory);
            log.begin_run(now_unix_ms);
            if !keeps {
                log.file = full();
            }
            let first = log.append(vec![note("first")], 0);
            log.file = full();
            let lost = log.append(vec![note("lost")], 0);
            told.extend(first.iter().chain(&lost).map(|event| event.number));
        }
        assert!(told.windows(2).all(|two| two[0] < two[1]), "{told:?}");
        assert!(told.iter().all(|number| *number < 1 << 53), "{told:?}");
    }

    #[test]
    fn an_older_half_that_cannot_be_read_takes_no_numbers_away() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut first, _) = log(&directory);
        first.append(vec![note("one"), note("two")], 0);
        std::fs::create_dir(directory.path().join("events.old.jsonl")).expect("made");
        let (mut second, opened) = log(&directory);
        assert!(opened.notes[0].contains("cannot be read"), "{:?}", opened.notes);
        assert_eq!(second.append(vec![note("three")], 0)[0].number, 3);
    }

    #[test]
    fn the_newest_ones_can_be_asked_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut log, _) = log(&directory);
        log.append((0..25).map(|at| note(&at.to_string())).collect(), 0);
        log.append(vec![NewEvent::now(EventKind::LinkLost, "x").of_peer("beta")], 0);
        let newest = EventQuestion { newest: Some(3), group: Some("db".to_owned()), ..all() };
        let page = log.reader().page(&newest).expect("read");
        assert_eq!(page.events.iter().map(|event| event.number).collect::<Vec<_>>(), [23, 24, 25]);
        assert_eq!((page.position, page.more), (26, false));
    }

    /// A writer that waits for its disk holds up no reader: they share nothing that is held meanwhile.
    #[test]
    fn what_is_not_durable_yet_is_not_read_and_a_log_that_turns_over_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut log, _) = log(&directory);
        log.append(vec![note("one")], 0);
        // As the file is while the next event is being flushed.
        let line = note("two").numbered(2, "alpha").line();
        let mut file = File::options().append(true).open(directory.path().join("events.jsonl")).expect("there");
        file.write_all(line.as_bytes()).expect("written");
        assert_eq!(numbers(&log, &all()), [1]);
        log.reader.shared().turns += 1;
        assert!(log.reader().page(&all()).expect_err("halfway").to_string().contains("changing places"));
    }

    /// Of many lines some may be kept before the disk is full.
    #[test]
    fn lines_are_counted_by_what_was_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut log, _) = log(&directory);
        log.append(vec![note("first")], 0);
        // The halves cannot change places: what fits into the newer one is kept, the rest is not.
        let older = directory.path().join("events.old.jsonl");
        std::fs::create_dir_all(older.join("in the way")).expect("made");
        log.append((0..400).map(|at| note(&format!("{at} {}", "x".repeat(100)))).collect(), 0);
        std::fs::remove_dir_all(&older).expect("removed");
        let kept = log.reader().last() - numbers(&log, &all()).len() as u64;
        let told = log.append(vec![note("next")], 0).remove(0);
        assert_eq!(told.fields["count"].as_u64(), Some(kept), "{told:?}");
        assert!(kept > 50 && kept < 350, "{kept}");
    }

    #[test]
    fn what_was_missed_when_the_log_ended_is_known() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut first, _) = log(&directory);
        let rpo = |time, kind, level: &str| NewEvent::at(time, kind, "x").of_group("db").with("level", level);
        let (missed, met) = (EventKind::RpoMissed, EventKind::RpoMet);
        first.append(vec![rpo(5, missed, "warn"), rpo(6, missed, "error"), rpo(7, met, "error")], 0);
        let known = log(&directory).1.missed;
        assert_eq!(known, [(("db".to_owned(), "warn".to_owned()), 5)]);
    }
}
