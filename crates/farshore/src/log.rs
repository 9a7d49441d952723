//! The daemon's log: lines go into a bounded queue, and a thread of its own writes them to standard error.
//!
//! Where a log goes is somebody else's: a full disk, a reader that is gone, a pipe that nobody empties. None of it may stop or end
//! a thread that serves. So a line that finds no room, or cannot be written, is lost and counted; the log itself tells how many,
//! at the place where they are missing, as soon as it can be written again.
//!
//! Own code and not `tracing-appender`: its thread swallows write errors without counting what they cost, tells nobody of what it
//! dropped, and its end cannot be waited for before an abort.

mod form;

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

pub use form::LogForm;
use form::{JournalLines, JsonLines};
use rustix::fs::fstat;
use tracing::Level;

/// What may wait to be written: some ten thousand lines, minutes of a log that is far too busy. As much again is being written.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// How long an end waits for the last lines: a terminal or a collector takes them in no time.
const LAST_LINES: Duration = Duration::from_secs(1);
/// Standard error that does not block and takes nothing is tried again after this.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// The process's one log, once it was started.
static LOG: OnceLock<Log> = OnceLock::new();
/// How its lines are written, once that was chosen.
static FORM: OnceLock<LogForm> = OnceLock::new();

/// Chooses how lines are written, also the last one of a command that fails before there is a log. `None`: as the system's journal takes
/// them where that reads standard error, else as text.
pub fn choose(wanted: Option<LogForm>) {
    let usual = || if is_journal(io::stderr()) { LogForm::Journal } else { LogForm::Text };
    let _ = FORM.set(wanted.unwrap_or_else(usual));
}

fn form() -> LogForm {
    FORM.get().copied().unwrap_or(LogForm::Text)
}

/// Starts the log of a daemon in the form that was chosen: to standard error, where a service manager collects it; `FARSHORE_LOG`
/// chooses more or less.
///
/// # Errors
/// A sentence: the thread that writes it cannot be started.
pub fn start(colours: bool) -> Result<(), String> {
    let log = Log::new(WAITING_BYTES_MAX);
    log.spawn(io::stderr(), form())
        .map_err(|error| format!("the thread that writes the log cannot be started: {error}"))?;
    // A second one (in tests of one process) goes with its thread, and the first one stays.
    let log = LOG.get_or_init(|| log).clone();
    let filter = tracing_subscriber::EnvFilter::try_from_env("FARSHORE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || log.clone())
        .with_ansi(colours)
        .log_internal_errors(false);
    let _ = match form() {
        LogForm::Journal => lines.event_format(JournalLines::new()).try_init(),
        LogForm::Json => lines.event_format(JsonLines).try_init(),
        LogForm::Text => lines.try_init(),
    };
    Ok(())
}

/// Whether the system's journal reads this: systemd names the device and the inode of its end in `JOURNAL_STREAM`.
fn is_journal(out: impl AsFd) -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(out).is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Lines that were not written since the start: the disk was full, or nobody read the pipe.
pub fn lost_lines() -> u64 {
    LOG.get().map_or(0, Log::lost_lines)
}

/// Why a command failed, before the process ends: behind what the log still holds, or at once where there is no log.
pub fn last_word(message: &str) {
    let line = form().last_word(message);
    match LOG.get() {
        Some(log) => {
            let _ = log.clone().write_all(line.as_bytes());
            log.flush_within(LAST_LINES);
        }
        None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

/// Waits until everything is written, but not for ever.
pub fn finish() {
    if let Some(log) = LOG.get() {
        log.flush_within(LAST_LINES);
    }
}

/// The end at which lines come in; clones share it.
#[derive(Clone)]
struct Log(Arc<LogShared>);

struct LogShared {
    waiting_bytes_max: usize,
    waiting: Mutex<WaitingLines>,
    /// Something waits, was taken, or was written.
    changed: Condvar,
}

#[derive(Default)]
struct WaitingLines {
    text: Vec<u8>,
    /// Lines that came after `text` and found no room.
    lost: u64,
    /// The thread is at what it took last.
    writing: bool,
    /// Lines of the whole run that were not written.
    lost_in_all: u64,
}

impl Log {
    fn new(waiting_bytes_max: usize) -> Log {
        Log(Arc::new(LogShared { waiting_bytes_max, waiting: Mutex::default(), changed: Condvar::new() }))
    }

    fn lost_lines(&self) -> u64 {
        self.0.lock().lost_in_all
    }

    fn spawn(&self, out: impl Write + Send + 'static, form: LogForm) -> io::Result<()> {
        let shared = self.0.clone();
        thread::Builder::new().name("log".into()).spawn(move || shared.write_for_ever(out, form)).map(drop)
    }

    /// Whether everything that had come is written by then.
    fn flush_within(&self, limit: Duration) -> bool {
        let is_busy = |waiting: &mut WaitingLines| waiting.writing || waiting.has_something();
        let waited = self.0.changed.wait_timeout_while(self.0.lock(), limit, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Takes whole lines, one at a time, as the subscriber gives them. Never waits for the thread, and never fails.
impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.lock();
        // After one that was lost no more come in before that is told, so that it is told at its place.
        if waiting.lost > 0 || waiting.text.len() + line.len() > self.0.waiting_bytes_max {
            waiting.lost += 1;
            waiting.lost_in_all += 1;
        } else {
            waiting.text.extend_from_slice(line);
        }
        self.0.changed.notify_all();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WaitingLines {
    fn has_something(&self) -> bool {
        !self.text.is_empty() || self.lost > 0
    }
}

impl LogShared {
    /// Nothing in here is left half done by a panic, and a log has to go on through one.
    fn lock(&self) -> MutexGuard<'_, WaitingLines> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_for_ever(&self, out: impl Write, form: LogForm) {
        let mut page = LogPage { out, form, missing: 0, why: None, is_mid_line: false };
        loop {
            let (text, lost) = self.take();
            let unwritten = page.lines(&text);
            if lost > 0 {
                page.miss(lost, "they came faster than it was read");
                page.write_missing();
            }
            let mut waiting = self.lock();
            waiting.lost_in_all += unwritten;
            waiting.writing = false;
            drop(waiting);
            self.changed.notify_all();
        }
    }

    fn take(&self) -> (Vec<u8>, u64) {
        let idle = |waiting: &mut WaitingLines| !waiting.has_something();
        let mut waiting = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        waiting.writing = true;
        self.changed.notify_all();
        (std::mem::take(&mut waiting.text), std::mem::take(&mut waiting.lost))
    }
}

/// Where the lines go, and what is missing there.
struct LogPage<W> {
    out: W,
    form: LogForm,
    missing: u64,
    why: Option<String>,
    /// A write ended within a line.
    is_mid_line: bool,
}

impl<W: Write> LogPage<W> {
    /// Writes them; returns how many could not be written.
    fn lines(&mut self, text: &[u8]) -> u64 {
        if !self.write_missing() {
            let unwritten = count_lines(text);
            self.missing += unwritten;
            return unwritten;
        }
        let Err((written, error)) = self.put(text) else { return 0 };
        let unwritten = count_lines(&text[written..]);
        self.miss(unwritten, &error.to_string());
        unwritten
    }

    fn miss(&mut self, lines: u64, why: &str) {
        self.missing += lines;
        self.why.get_or_insert_with(|| why.to_owned());
    }

    /// Whether nothing is missing without being told.
    fn write_missing(&mut self) -> bool {
        let Some(why) = self.why.as_deref().filter(|_| self.missing > 0) else { return true };
        let newline = if self.is_mid_line { "\n" } else { "" };
        let message = format!("{} lines of this log are missing here: {why}", self.missing);
        let text = newline.to_owned() + &self.form.line(Level::WARN, module_path!(), &message);
        // Part of it may be out: the next attempt says it all again, on a line of its own.
        let is_written = self.put(text.as_bytes()).is_ok();
        if is_written {
            (self.missing, self.why) = (0, None);
        }
        is_written
    }

    /// What was written of it before the error that ended it.
    fn put(&mut self, text: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut written = 0;
        while written < text.len() {
            match self.out.write(&text[written..]) {
                Ok(0) => return Err((written, ErrorKind::WriteZero.into())),
                Ok(count) => {
                    written += count;
                    self.is_mid_line = text[written - 1] != b'\n';
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(TRY_AGAIN),
                Err(error) => return Err((written, error)),
            }
        }
        Ok(())
    }
}

fn count_lines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, SyncSender};

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// Takes `room` bytes, then fails until there is more.
    #[derive(Clone, Default)]
    struct FullDisk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl FullDisk {
        fn make_room(&self, bytes: usize) {
            self.0.lock().unwrap().1 += bytes;
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap()
        }
    }

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (text, room) = &mut *self.0.lock().unwrap();
            let count = bytes.len().min(*room);
            if count == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            text.extend_from_slice(&bytes[..count]);
            *room -= count;
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn say(log: &Log, line: &str) {
        log.clone().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// A disk filled up in the middle of a line, stood so for a while, and was emptied.
    #[test]
    fn what_could_not_be_written_is_reported_where_it_is_missing() {
        let (log, disk) = (Log::new(WAITING_BYTES_MAX), FullDisk::default());
        log.spawn(disk.clone(), LogForm::Text).unwrap();
        disk.make_room("first\nsec".len());
        for line in ["first", "second", "third"] {
            say(&log, line);
            assert!(log.flush_within(SOON), "a full disk holds nobody up");
        }
        disk.make_room(1 << 20);
        say(&log, "fourth");
        assert!(log.flush_within(SOON));
        let text = disk.text();
        assert!(text.starts_with("first\nsec\n") && text.ends_with("\nfourth\n"), "{text}");
        assert!(text.contains("WARN farshore::log: 2 lines of this log are missing here: no storage space"), "{text}");
        say(&log, "fifth");
        assert!(log.flush_within(SOON) && disk.text().ends_with("\nfourth\nfifth\n"), "it is told once");
        assert_eq!(log.lost_lines(), 2);
    }

    /// Each write waits until the test takes it.
    struct SlowPipe(SyncSender<String>);

    impl Write for SlowPipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(String::from_utf8_lossy(bytes).into_owned()).map_err(|_| ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn next(pipe: &Receiver<String>) -> String {
        pipe.recv_timeout(SOON).expect("it is written")
    }

    /// Nobody read the pipe, the queue filled, and what came then was lost; then it was read again.
    #[test]
    fn a_log_that_nobody_reads_holds_nobody_up() {
        let (sender, pipe) = mpsc::sync_channel(0);
        let log = Log::new(16);
        log.spawn(SlowPipe(sender), LogForm::Text).unwrap();
        say(&log, "first");
        // The thread has taken it, and waits for its reader.
        log.0.changed.wait_while(log.0.lock(), |waiting| waiting.has_something()).map(drop).unwrap();
        for line in ["waits", "a line that is too long", "short", "short"] {
            say(&log, line);
        }
        assert!(!log.flush_within(Duration::from_millis(10)), "an end does not wait for ever");
        assert_eq!([next(&pipe), next(&pipe)], ["first\n", "waits\n"]);
        let missing = next(&pipe);
        assert!(missing.contains("3 lines of this log are missing here: they came faster"), "{missing}");
        say(&log, "last");
        assert_eq!(next(&pipe), "last\n");
        assert_eq!(log.lost_lines(), 3);
        assert!(log.flush_within(SOON));
    }
}
