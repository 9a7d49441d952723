//! The log of a node's events: two files of lines, the newer one grows, and when it is full it takes the older one's place.
//!
//! Nothing rests on it, so nothing waits for it: an event that cannot be written is counted, and the log says how many are missing
//! as soon as it can. A line that a crash tore is taken away at the next start. Each event has a number of its own; numbers of events
//! that were not kept are missing.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Deserialize;
use settings::events::EventKind;

use super::{EVENTS_SCHEMA, EventPage, EventRecord, NewEvent};

/// What a line may have; an event's texts are cut far below.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// A page has no more than this of lines, and one event at least.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Events of a page.
pub const PAGE_EVENTS_MAX: usize = 1000;

/// A node's log, open to be written and read.
#[derive(Debug)]
pub struct EventLog {
    node: String,
    path: PathBuf,
    half_bytes: u64,
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
}

/// A line's number, without the rest of it.
#[derive(Deserialize)]
struct LineHead {
    number: u64,
}

impl EventLog {
    /// Opens the log of `node`, whose newer half is `path`; both halves together take no more than `limit_bytes`.
    pub fn open(path: &Path, limit_bytes: u64, node: &str) -> (EventLog, OpenedLog) {
        let (node, path) = (node.to_owned(), path.to_owned());
        let half_bytes = limit_bytes / 2;
        let mut log = EventLog { node, path, half_bytes, file: None, bytes: 0, last: 0, not_kept: 0, failure: None };
        let mut opened = OpenedLog::default();
        match log.reopen() {
            Ok(torn) => opened.notes.extend(torn),
            Err(error) => log.failed(&error, 0),
        }
        let mut values = std::collections::BTreeMap::new();
        let read = log.each_record(0, |record| {
            if let Some((key, value)) = value_of(&record) {
                values.insert((record.group.clone().unwrap_or_default(), key), value);
            }
            opened.newest = Some(record);
            true
        });
        match read {
            Ok(0) => {}
            Ok(damaged) => opened.notes.push(log.damaged_sentence(damaged)),
            Err(error) => {
                opened.notes.push(format!("the log of events {} cannot be read: {error}", log.path.display()))
            }
        }
        log.last = opened.newest.as_ref().map_or(0, |newest| newest.number);
        opened.values = values.into_iter().collect();
        (log, opened)
    }

    /// The number of the newest event.
    pub fn last(&self) -> u64 {
        self.last
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
            self.last += 1;
            records.push(event.numbered(self.last, &self.node));
        }
        match self.write(&records) {
            Ok(()) => (self.not_kept, self.failure) = (0, None),
            // What tells of the missing ones is none of them.
            Err(error) => self.failed(&error, lost + records.len() as u64 - u64::from(has_told)),
        }
        records
    }

    /// One warning, however long it lasts.
    fn failed(&mut self, error: &io::Error, events: u64) {
        self.not_kept += events;
        if self.failure.is_none() {
            let path = self.path.display();
            tracing::warn!("the log of events {path} cannot be written: {error}; events are not kept until it can");
        }
        self.failure = Some(error.to_string());
    }

    /// All of these lines or none, but for a change of halves between them.
    fn write(&mut self, records: &[EventRecord]) -> io::Result<()> {
        if self.file.is_none() {
            self.reopen()?;
        }
        let mut waiting = String::new();
        for line in records.iter().map(EventRecord::line) {
            let begun = self.bytes + waiting.len() as u64;
            if begun > 0 && begun + line.len() as u64 > self.half_bytes {
                self.write_lines(&waiting)?;
                waiting.clear();
                self.begin_anew()?;
            }
            waiting += &line;
        }
        self.write_lines(&waiting)
    }

    fn write_lines(&mut self, lines: &str) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let file = self.file.as_mut().expect("it is open to be written");
        if let Err(error) = file.write_all(lines.as_bytes()) {
            // Half a line would spoil the next one. If even that fails, the next start takes it away.
            let _ = file.set_len(self.bytes);
            self.file = None;
            return Err(error);
        }
        self.bytes += lines.len() as u64;
        file.sync_data()
    }

    /// The newer half becomes the older one, whose place it takes.
    fn begin_anew(&mut self) -> io::Result<()> {
        self.file = None;
        std::fs::rename(&self.path, self.older())?;
        self.reopen()?;
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }

    /// Opens the newer half behind its last whole line; a sentence if there was more.
    fn reopen(&mut self) -> io::Result<Option<String>> {
        let mut options = unfollowed();
        let mut file = options.write(true).create(true).mode(0o600).open(&self.path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no plain file; remove it"));
        }
        let (whole, all) = whole_lines(&mut file)?;
        if whole < all {
            file.set_len(whole)?;
            file.sync_data()?;
        }
        file.seek(SeekFrom::End(0))?;
        (self.file, self.bytes) = (Some(file), whole);
        let torn = format!(
            "the last line of the log of events {} was torn by a crash; it was taken away ({} bytes)",
            self.path.display(),
            all - whole
        );
        Ok((whole < all).then_some(torn))
    }

    fn older(&self) -> PathBuf {
        self.path.with_extension("old.jsonl")
    }

    fn damaged_sentence(&self, lines: u64) -> String {
        format!("the log of events {} has {lines} lines that are no events; they are left out", self.path.display())
    }

    // --- Reading ---

    /// A page of what is asked for, oldest first.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn page(&self, question: &EventQuestion) -> io::Result<EventPage> {
        let limit = question.limit.clamp(1, PAGE_EVENTS_MAX);
        let mut page = EventPage {
            schema: EVENTS_SCHEMA.to_owned(),
            node: self.node.clone(),
            events: Vec::new(),
            first: self.last,
            last: self.last,
            position: self.last,
            more: false,
            warnings: Vec::new(),
        };
        if question.after == self.last {
            return Ok(page);
        }
        let (mut bytes, mut first) = (0, None);
        let wanted = |record: &EventRecord| {
            record.time_unix_ms >= question.since_unix_ms
                && question.group.as_ref().is_none_or(|group| record.group.as_ref() == Some(group))
        };
        let damaged = self.each_line(|number, line| {
            first.get_or_insert(number);
            if number <= question.after {
                return Ok(true);
            }
            let record: EventRecord = serde_json::from_str(line)?;
            if wanted(&record) {
                bytes += line.len();
                if page.events.len() == limit || (bytes > PAGE_BYTES_MAX && !page.events.is_empty()) {
                    page.more = true;
                    return Ok(false);
                }
                page.events.push(record);
            }
            Ok(true)
        })?;
        page.first = first.unwrap_or(self.last);
        if let (true, Some(newest)) = (page.more, page.events.last()) {
            page.position = newest.number;
        }
        page.warnings.extend((damaged > 0).then(|| self.damaged_sentence(damaged)));
        Ok(page)
    }

    /// Whole events after this number, until `take` has enough; how many lines are none.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn each_record(&self, after: u64, mut take: impl FnMut(EventRecord) -> bool) -> io::Result<u64> {
        self.each_line(|number, line| if number <= after { Ok(true) } else { Ok(take(serde_json::from_str(line)?)) })
    }

    /// Lines with their numbers, oldest first, until `take` has enough; how many are none.
    fn each_line(&self, mut take: impl FnMut(u64, &str) -> serde_json::Result<bool>) -> io::Result<u64> {
        let mut damaged = 0;
        for path in [self.older(), self.path.clone()] {
            let file = match unfollowed().open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // What somebody else put there may be longer than any log of ours.
            let mut lines = BufReader::new(file.take(self.half_bytes + LINE_BYTES_MAX));
            let mut line = Vec::new();
            loop {
                line.clear();
                if lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                    break;
                }
                let text = std::str::from_utf8(&line).ok();
                let head = text.and_then(|text| Some((serde_json::from_str::<LineHead>(text).ok()?.number, text)));
                match head.map(|(number, text)| take(number, text)) {
                    Some(Ok(true)) => {}
                    Some(Ok(false)) => return Ok(damaged),
                    None | Some(Err(_)) => damaged += 1,
                }
            }
        }
        Ok(damaged)
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

/// A link is not followed, and a pipe is not waited for.
fn unfollowed() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 64 << 10;

    fn log(directory: &tempfile::TempDir) -> (EventLog, OpenedLog) {
        EventLog::open(&directory.path().join("events.jsonl"), LIMIT, "alpha")
    }

    fn note(text: &str) -> NewEvent {
        NewEvent::now(EventKind::Note, text).of_group("db")
    }

    fn numbers(log: &EventLog, question: &EventQuestion) -> Vec<u64> {
        log.page(question).expect("read").events.iter().map(|event| event.number).collect()
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
        assert_eq!((opened.newest.expect("two").text.as_str(), second.last()), ("two", 2));
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
        let page = log.page(&EventQuestion { after: 1990, ..all() }).expect("read");
        assert_eq!((page.events.len(), page.last, page.position, page.more), (10, 2000, 2000, false));
        let kept = numbers(&log, &all());
        assert!(kept.len() > 100 && kept.is_sorted() && kept.windows(2).all(|two| two[0] + 1 == two[1]), "no gap");
        assert_eq!(log.page(&all()).expect("read").first, kept[0]);
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
        let page = log.page(&all()).expect("read");
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
        let page = log.page(&all()).expect("read");
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
            let page = log.page(&question).expect("read");
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
}
