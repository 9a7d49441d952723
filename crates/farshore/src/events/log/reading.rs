//! Reading a log that is being written: by files of one's own, and no lock is held while a disk is waited for.
//!
//! What readers and the writer share is a few numbers. So a disk that hangs under the writer hangs under nobody who only wants to know
//! them, and a reader that hangs holds up no writer.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::fs::OFlags;
use serde::Deserialize;

use super::{EventQuestion, LINE_BYTES_MAX, PAGE_BYTES_MAX, PAGE_EVENTS_MAX};
use crate::events::{EVENTS_SCHEMA, EventPage, EventRecord};

/// How often the halves are opened anew because they changed places meanwhile, and the pause before that: the halves change places
/// in a moment unless their disk hangs.
const TURNS_MAX: u32 = 50;
const TURN_PAUSE: Duration = Duration::from_millis(10);

/// What a log's readers need; a clone reads the same log.
#[derive(Clone, Debug)]
pub struct LogReader {
    pub(super) node: String,
    pub(super) path: PathBuf,
    pub(super) half_bytes: u64,
    shared: Arc<Mutex<LogState>>,
}

/// How far the log is written. Changed by the writer, and only once what it says is on the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogState {
    /// The number of the newest event.
    pub last: u64,
    /// Whole lines of the newer half.
    pub bytes: u64,
    /// Counts up before the halves change places, and after: odd in between.
    pub turns: u64,
}

/// A line's number, without the rest of it.
#[derive(Deserialize)]
struct LineHead {
    number: u64,
}

impl LogReader {
    /// Of a log that nothing is known of yet: all that is found counts.
    pub(super) fn new(path: &Path, half_bytes: u64, node: &str) -> LogReader {
        let shared = Arc::new(Mutex::new(LogState { last: u64::MAX, bytes: 0, turns: 0 }));
        LogReader { node: node.to_owned(), path: path.to_owned(), half_bytes, shared }
    }

    /// Held for a copy or a change, never over a disk.
    pub(super) fn shared(&self) -> MutexGuard<'_, LogState> {
        self.shared.lock().expect("nobody panics with a few numbers")
    }

    fn state(&self) -> LogState {
        *self.shared()
    }

    /// The number of the newest event.
    pub fn last(&self) -> u64 {
        self.state().last
    }

    pub(super) fn older(&self) -> PathBuf {
        self.path.with_extension("old.jsonl")
    }

    pub(super) fn damaged_sentence(&self, lines: u64) -> String {
        format!("the log of events {} has {lines} lines that are no events; they are left out", self.path.display())
    }

    /// A page of what is asked for, oldest first.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn page(&self, question: &EventQuestion) -> io::Result<EventPage> {
        let last = self.last();
        let mut page = EventPage {
            schema: EVENTS_SCHEMA.to_owned(),
            node: self.node.clone(),
            events: Vec::new(),
            first: last,
            last,
            position: last,
            more: false,
            warnings: Vec::new(),
        };
        if question.after == last {
            return Ok(page);
        }
        let (mut wanted, mut first) = (WantedEvents::new(question), None);
        let damaged = self.each_line(last, |number, line| {
            first.get_or_insert(number);
            if number <= question.after { Ok(true) } else { Ok(wanted.take(serde_json::from_str(line)?, line.len())) }
        })?;
        page.first = first.unwrap_or(last);
        (page.events, page.more) = (wanted.events.into_iter().map(|(event, _)| event).collect(), wanted.is_full);
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
        let last = self.last();
        self.each_line(
            last,
            |number, line| if number <= after { Ok(true) } else { Ok(take(serde_json::from_str(line)?)) },
        )
    }

    /// Lines with their numbers up to `last`, oldest first, until `take` has enough; how many are none.
    fn each_line(&self, last: u64, mut take: impl FnMut(u64, &str) -> serde_json::Result<bool>) -> io::Result<u64> {
        let mut damaged = 0;
        for half in self.halves()? {
            if !lines_of(half, last, &mut take, &mut damaged)? {
                break;
            }
        }
        Ok(damaged)
    }

    /// The number of the newest event of the newer half, whatever is wrong with the older one; 0: it has none.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn newest_number(&self) -> io::Result<u64> {
        let mut newest = 0;
        if let Some(half) = self.tail(&self.path, self.state().bytes)? {
            let mut take = |number: u64, _: &str| {
                newest = number.max(newest);
                Ok(true)
            };
            lines_of(half, u64::MAX, &mut take, &mut 0)?;
        }
        Ok(newest)
    }

    /// Both halves, the older one first, as they were at one moment: what came into the newer one since then is not in it.
    fn halves(&self) -> io::Result<Vec<io::Take<BufReader<File>>>> {
        for _ in 0..TURNS_MAX {
            let before = self.state();
            if before.turns.is_multiple_of(2) {
                let halves = [(self.older(), u64::MAX), (self.path.clone(), before.bytes)];
                let opened: io::Result<Vec<_>> = halves.iter().map(|(path, end)| self.tail(path, *end)).collect();
                if self.state().turns == before.turns {
                    return Ok(opened?.into_iter().flatten().collect());
                }
            }
            std::thread::sleep(TURN_PAUSE);
        }
        Err(io::Error::other("its halves are changing places, and the disk does not end it"))
    }

    /// A half up to `end`, from a line's begin. Of one that is longer than it may be, as after a change of its limit or where somebody
    /// else put it there, the newest lines; `None`: there is none.
    fn tail(&self, path: &Path, end: u64) -> io::Result<Option<io::Take<BufReader<File>>>> {
        let mut file = match unfollowed().open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let end = end.min(file.metadata()?.len());
        let begin = line_begin(&mut file, end.saturating_sub(self.half_bytes + LINE_BYTES_MAX), end)?;
        file.seek(SeekFrom::Start(begin))?;
        Ok(Some(BufReader::new(file).take(end - begin)))
    }
}

/// The same of one half; whether more is wanted.
fn lines_of(
    mut half: impl BufRead,
    last: u64,
    take: &mut impl FnMut(u64, &str) -> serde_json::Result<bool>,
    damaged: &mut u64,
) -> io::Result<bool> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if half.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(true);
        }
        let text = std::str::from_utf8(&line).ok();
        let head = text.and_then(|text| Some((serde_json::from_str::<LineHead>(text).ok()?.number, text)));
        match head.map(|(number, text)| if number > last { Ok(true) } else { take(number, text) }) {
            Some(Ok(true)) => {}
            Some(Ok(false)) => return Ok(false),
            None | Some(Err(_)) => *damaged += 1,
        }
    }
}

/// Events of a page as they are found.
struct WantedEvents<'a> {
    question: &'a EventQuestion,
    limit: usize,
    /// With the bytes of their lines.
    events: VecDeque<(EventRecord, usize)>,
    bytes: usize,
    /// There is more than the page holds, behind it.
    is_full: bool,
}

impl WantedEvents<'_> {
    fn new(question: &EventQuestion) -> WantedEvents<'_> {
        let limit = question.newest.unwrap_or(question.limit).min(question.limit).clamp(1, PAGE_EVENTS_MAX);
        WantedEvents { question, limit, events: VecDeque::new(), bytes: 0, is_full: false }
    }

    /// Whether more may come.
    fn take(&mut self, record: EventRecord, bytes: usize) -> bool {
        let EventQuestion { since_unix_ms, group, newest, .. } = self.question;
        let is_of_group = group.as_ref().is_none_or(|group| record.group.as_ref() == Some(group));
        if record.time_unix_ms < *since_unix_ms || !is_of_group {
            return true;
        }
        let has_no_room = |events: &VecDeque<_>, held| {
            events.len() == self.limit || (held + bytes > PAGE_BYTES_MAX && !events.is_empty())
        };
        if newest.is_none() && has_no_room(&self.events, self.bytes) {
            self.is_full = true;
            return false;
        }
        while has_no_room(&self.events, self.bytes) {
            self.bytes -= self.events.pop_front().map_or(0, |(_, bytes)| bytes);
        }
        self.bytes += bytes;
        self.events.push_back((record, bytes));
        true
    }
}

/// The first begin of a line from `at` on, or `end`.
pub(super) fn line_begin(file: &mut File, at: u64, end: u64) -> io::Result<u64> {
    let Some(before) = at.checked_sub(1) else { return Ok(0) };
    file.seek(SeekFrom::Start(before))?;
    let skipped = BufReader::new(file).take(end - before).skip_until(b'\n')?;
    Ok(before + skipped as u64)
}

/// A link is not followed, and a pipe is not waited for.
pub(super) fn unfollowed() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}
