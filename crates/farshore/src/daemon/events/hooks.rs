//! Tells hooks of events: a queue and a thread for each, so that one that hangs keeps nobody up, the other hooks neither.
//!
//! At least once: after each event its number is kept in a file of the hook, and a start goes on behind it with what the log still
//! has. An event that a hook was given when the daemon ended is given once more. What does not reach the disk for want of room goes to
//! hooks all the same, as long as the daemon runs.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::disk::meta::make_own_directory;
use rustix::fs::OFlags;
use settings::events::EventKind;
use settings::{Config, ConfiguredHook, ConfiguredNode, durable};

use super::EventSender;
use super::attempt::AttemptFailure;
use super::program;
use super::queue::BoundedQueue;
use super::webhook::Webhook;
use crate::events::log::LogReader;
use crate::events::{EventRecord, NewEvent};

/// Events that may wait for one hook: what is older is no news any more.
const QUEUE_MAX: usize = 256;
/// The pause before the second attempt; each one after that is twice as long.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Numbers beyond this were not given by any log.
const NUMBER_MAX: u64 = 1 << 53;
/// Pause between two looks whether the threads have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// All hooks of the file.
pub(super) struct Hooks {
    list: Vec<RunningHook>,
}

struct RunningHook {
    config: ConfiguredHook,
    queue: Arc<BoundedQueue<EventRecord>>,
    thread: JoinHandle<()>,
}

/// What one thread works with.
struct HookWorker {
    config: ConfiguredHook,
    queue: Arc<BoundedQueue<EventRecord>>,
    events: EventSender,
    /// Where its position is kept.
    position: PathBuf,
    config_file: PathBuf,
    way: HookWay,
    /// The position could not be written, which was told.
    is_failing: bool,
}

enum HookWay {
    Program,
    Web(Box<Webhook>),
}

impl Hooks {
    /// Starts a thread for each hook of the file, and gives it what it has not had.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(
        config: &Config,
        here: &ConfiguredNode,
        log: &LogReader,
        events: &EventSender,
    ) -> anyhow::Result<Hooks> {
        let directory = here.hooks_directory();
        if !config.hooks.is_empty() {
            config.check_hooks().iter().for_each(|problem| tracing::error!("{}", problem.message));
            if let Err(why) = make_own_directory(&directory) {
                tracing::warn!("{why}; after a start hooks are not told what they missed");
            }
        }
        let mut list = Vec::new();
        for hook in &config.hooks {
            let queue = Arc::new(BoundedQueue::new(QUEUE_MAX));
            let worker = HookWorker {
                config: hook.clone(),
                queue: queue.clone(),
                events: events.clone(),
                position: position_file(&directory, hook),
                config_file: config.file.clone(),
                way: match &hook.url {
                    None => HookWay::Program,
                    Some(url) => HookWay::Web(Box::new(Webhook::new(url.clone(), hook.ca.clone()))),
                },
                is_failing: false,
            };
            worker.catch_up(log);
            let thread = std::thread::Builder::new().name(format!("hook {}", hook.name)).spawn(|| worker.run())?;
            list.push(RunningHook { config: hook.clone(), queue, thread });
        }
        Ok(Hooks { list })
    }

    pub fn offer(&self, records: &[EventRecord]) {
        for hook in &self.list {
            let wanted = records.iter().filter(|record| hook.config.wants(&record.kind, record.group.as_deref()));
            wanted.for_each(|record| hook.queue.push_over(record.clone()));
        }
    }

    /// Ends them, and waits no longer than this for it.
    pub fn stop(&self, patience: Duration) {
        self.list.iter().for_each(|hook| hook.queue.close());
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline && self.list.iter().any(|hook| !hook.thread.is_finished()) {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// The newest number that a hook of the file has had. The log may have lost it: a full disk kept the event from it, or it was removed.
pub(super) fn newest_position(config: &Config, here: &ConfiguredNode) -> u64 {
    let directory = here.hooks_directory();
    let positions = config.hooks.iter().filter_map(|hook| read_position(&position_file(&directory, hook)));
    positions.filter(|number| *number <= NUMBER_MAX).max().unwrap_or(0)
}

/// Where a hook's position is kept. It has an ending because names may hold dots: a file that is being replaced is no other hook's.
fn position_file(directory: &Path, hook: &ConfiguredHook) -> PathBuf {
    directory.join(format!("{}.position", hook.name))
}

/// `None`: it has none yet. One that cannot be read is the start of the log: rather twice than never.
fn read_position(path: &Path) -> Option<u64> {
    match durable::open(path).and_then(std::io::read_to_string) {
        Ok(text) => Some(text.trim().parse().unwrap_or(0)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(_) => Some(0),
    }
}

/// Keeps a position. A full disk has no room for another file, and then the one that is there is written over: its few bytes lie in one
/// block, which the disk takes whole or not at all.
fn write_position(path: &Path, number: u64) -> std::io::Result<()> {
    let text = number.to_string();
    durable::replace(path, text.as_bytes()).or_else(|error| {
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
        let Ok(mut file) = OpenOptions::new().write(true).custom_flags(flags).open(path) else { return Err(error) };
        file.write_all(text.as_bytes()).and_then(|()| file.set_len(text.len() as u64)).map_err(|_| error)?;
        file.sync_all()
    })
}

impl HookWorker {
    /// Puts into the queue what the log has behind the position. A new hook begins here.
    fn catch_up(&self, log: &LogReader) {
        let Some(position) = read_position(&self.position) else {
            let _ = write_position(&self.position, log.last());
            return;
        };
        let read = log.each_record(position, |record| {
            if self.config.wants(&record.kind, record.group.as_deref()) {
                self.queue.push_over(record);
            }
            true
        });
        if let Err(error) = read {
            let name = &self.config.name;
            tracing::warn!("hook {name} is not told what it missed: the log of events cannot be read: {error}");
        }
    }

    fn run(mut self) {
        while let Some((event, dropped)) = self.queue.take_one() {
            if dropped > 0 {
                self.tell_overflow(dropped);
            }
            match self.deliver(&event) {
                Ok(()) => {}
                Err((_, AttemptFailure::Ending)) => return,
                Err((attempts, AttemptFailure::Failed(reason))) => self.tell_failure(&event, attempts, &reason),
            }
            self.keep_position(event.number);
        }
    }

    /// Tries as often as it may; how often that was, where it came to nothing.
    fn deliver(&mut self, event: &EventRecord) -> Result<(), (u32, AttemptFailure)> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.attempt(event) {
                Ok(()) => return Ok(()),
                Err(AttemptFailure::Failed(reason)) if attempts <= self.config.retries => {
                    tracing::debug!("hook {}: attempt {attempts}: {reason}", self.config.name);
                    if self.queue.is_closed_within(backoff(attempts)) {
                        return Err((attempts, AttemptFailure::Ending));
                    }
                }
                Err(failure) => return Err((attempts, failure)),
            }
        }
    }

    fn attempt(&mut self, event: &EventRecord) -> Result<(), AttemptFailure> {
        match &mut self.way {
            HookWay::Web(webhook) => webhook.post(event, self.config.timeout, &self.queue),
            HookWay::Program => program::of_event(&self.config, &self.config_file, event, &self.queue),
        }
    }

    fn tell_failure(&self, event: &EventRecord, attempts: u32, reason: &str) {
        let name = self.config.name.as_str();
        let tries = if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
        let text = format!("hook {name} did not take event {} ({}) in {tries}: {reason}", event.number, event.kind);
        tracing::warn!("{text}");
        let told = NewEvent::now(EventKind::HookFailed, text)
            .with("hook", name)
            .with("event", event.number)
            .with("event_kind", event.kind.as_str())
            .with("attempts", attempts)
            .with("reason", reason);
        self.events.record(told);
    }

    fn tell_overflow(&self, dropped: u64) {
        let name = self.config.name.as_str();
        let text =
            format!("hook {name} is behind: {dropped} events were left out, as {QUEUE_MAX} newer ones wait for it");
        tracing::warn!("{text}");
        let told = NewEvent::now(EventKind::HookOverflow, text).with("hook", name).with("count", dropped);
        self.events.record(told);
    }

    fn keep_position(&mut self, number: u64) {
        let kept = write_position(&self.position, number);
        if let Err(error) = &kept
            && !self.is_failing
        {
            let (name, path) = (&self.config.name, self.position.display());
            tracing::warn!(
                "the position of hook {name} cannot be kept in {path}: {error}; after a start it gets events again"
            );
        }
        self.is_failing = kept.is_err();
    }
}

/// The pause after so many attempts.
fn backoff(attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1).min(16);
    (BACKOFF_FIRST * 2u32.pow(doublings)).min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_kept_also_where_no_other_file_can_be_made() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("web.position");
        assert_eq!(read_position(&path), None);
        write_position(&path, 1234).expect("written");
        // As on a full disk: the new file cannot be made.
        std::fs::create_dir(directory.path().join("web.position.new")).expect("made");
        for number in [99, 100_000] {
            write_position(&path, number).expect("written over");
            assert_eq!(read_position(&path), Some(number));
        }
        std::fs::remove_file(&path).expect("removed");
        assert!(write_position(&path, 5).is_err() && !path.exists());
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        let pauses = [1, 2, 3, 6, 7, 20, u32::MAX].map(|attempts| backoff(attempts).as_secs());
        assert_eq!(pauses, [1, 2, 4, 32, 60, 60, 60]);
    }
}
