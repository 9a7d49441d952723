//! Keeps the log of this node's events, and tells hooks of them.
//!
//! Events come from the data thread ([`notices`]), from looks at the groups ([`looks`]), from commands ([`commands`]) and from hooks
//! that failed. All of them go into one bounded queue; a thread of its own numbers and writes them and hands them to the queues of
//! [`hooks`], each of which has a thread too. So neither the data thread nor the control thread waits for a disk or for a hook.

pub(super) mod attempt;
pub(super) mod commands;
mod hooks;
pub(super) mod looks;
pub(super) mod notices;
pub(super) mod program;
pub(super) mod queue;
mod webhook;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use settings::events::EventKind;
use settings::{Config, NodeName};

use self::commands::{CommandEnd, CommandSource, CommandText};
use self::hooks::Hooks;
use self::queue::BoundedQueue;
use super::reader_room::ReaderRoom;
use crate::api::{ErrorCode, Reply};
use crate::events::log::{EventLog, EventQuestion, LogReader, OpenedLog};
use crate::events::{EventRecord, NewEvent, unix_ms};

/// Events that may wait to be written; what comes while as many wait is lost and counted.
const WAITING_MAX: usize = 16_384;
/// How long a stop waits for the last event to be written, and for hooks to let go.
const LAST_EVENTS: Duration = Duration::from_secs(1);
/// Pause between two looks whether they have.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The way into the log, from any thread.
#[derive(Clone)]
pub(super) struct EventSender {
    waiting: Arc<BoundedQueue<NewEvent>>,
    lost: Arc<AtomicU64>,
}

impl EventSender {
    fn new() -> EventSender {
        EventSender { waiting: Arc::new(BoundedQueue::new(WAITING_MAX)), lost: Arc::new(AtomicU64::new(0)) }
    }

    /// Never waits.
    pub fn record(&self, event: NewEvent) {
        if !self.waiting.push(event) {
            self.note_lost(1);
        }
    }

    /// So many events never came so far.
    pub fn note_lost(&self, events: u64) {
        self.lost.fetch_add(events, Ordering::Relaxed);
    }
}

/// A command that is under way, here or on another node. When this is dropped it is recorded what came of it, or that nobody knows that:
/// this daemon may end before a disk or another node has answered.
pub(super) struct CommandUnderWay {
    events: EventSender,
    /// `None`: there is nothing to be recorded.
    command: Option<CommandText>,
    who: CommandSource,
    /// Where it is done, if not here.
    node: Option<String>,
    begun: Instant,
    end: Option<CommandEnd>,
}

impl CommandUnderWay {
    pub fn new(
        events: &EventSender,
        command: Option<CommandText>,
        who: CommandSource,
        node: Option<&str>,
        begun: Instant,
    ) -> CommandUnderWay {
        let (events, node) = (events.clone(), node.map(str::to_owned));
        CommandUnderWay { events, command, who, node, begun, end: None }
    }

    /// What came of it.
    pub fn ended(&mut self, end: CommandEnd) {
        self.end = Some(end);
    }
}

impl Drop for CommandUnderWay {
    fn drop(&mut self) {
        let Some(command) = self.command.take() else { return };
        let end = self.end.take().unwrap_or_else(|| {
            let why = match std::thread::panicking() {
                true => "this daemon broke down over it; what it said is in its log",
                false => "this daemon ended before the answer was here",
            };
            CommandEnd::new("unknown", why)
        });
        self.events.record(command.event(&self.who, self.node.as_deref(), end, self.begun.elapsed()));
    }
}

/// The log of a node that runs.
pub(super) struct EventKeeper {
    sender: EventSender,
    log: LogReader,
    readers: ReaderRoom,
    writer: JoinHandle<()>,
    hooks: Arc<Hooks>,
    /// The newest value of each setting that the log names.
    values: Vec<((String, String), String)>,
    missed: Vec<((String, String), u64)>,
}

impl EventKeeper {
    /// Opens the log and starts what writes it. A log that cannot be opened is a line in the daemon's own, and the mirror goes on.
    ///
    /// # Errors
    /// A sentence: a thread cannot be started.
    pub fn open(config: &Config, node: &NodeName) -> anyhow::Result<EventKeeper> {
        let here = config.node(node).expect("the node was looked up before");
        let given = hooks::newest_position(config, here);
        let (mut log, OpenedLog { notes, newest, values, missed }) =
            EventLog::open(&here.events_file(), here.events_limit_bytes, node.as_str(), given);
        log.begin_run(unix_ms());
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        let sender = EventSender::new();
        let reader = log.reader().clone();
        let hooks = Arc::new(Hooks::start(config, here, &reader, &sender)?);
        let writer = {
            let (sender, hooks) = (sender.clone(), hooks.clone());
            let write = move || write_for_ever(&sender, log, &hooks);
            std::thread::Builder::new().name("events".into()).spawn(write)?
        };
        sender.record(started(newest.as_ref()));
        let readers = ReaderRoom::new("the log of events");
        Ok(EventKeeper { sender, log: reader, readers, writer, hooks, values, missed })
    }

    pub fn sender(&self) -> &EventSender {
        &self.sender
    }

    /// What the log knew of settings when it was opened: by group and key.
    pub fn values(&self) -> &[((String, String), String)] {
        &self.values
    }

    /// Thresholds that the log says were passed and not met again: group, level, and since when.
    pub fn missed(&self) -> &[((String, String), u64)] {
        &self.missed
    }

    /// Answers a request for events, of another node's daemon or asked here. Reading waits for a disk, so another thread does it; and
    /// while a disk hangs, no more than a few requests wait for it.
    pub async fn answer(&self, question: EventQuestion, from_node: Option<&str>) -> Reply {
        let permit = match self.readers.enter(from_node).await {
            Ok(permit) => permit,
            Err(message) => return Reply::error(ErrorCode::Failed, message),
        };
        let log = self.log.clone();
        let read = move || {
            let page = log.page(&question);
            drop(permit);
            page
        };
        match tokio::task::spawn_blocking(read).await.expect("reading does not panic") {
            Ok(page) => Reply::Events(Box::new(page)),
            Err(error) => Reply::error(ErrorCode::Failed, format!("the log of events cannot be read: {error}")),
        }
    }

    /// The daemon ends in order: what waits is written, and that. Hooks get what is left after the next start.
    pub fn finish(&self, clean: bool) {
        let how = if clean { "" } else { " before all groups were at rest" };
        let text = format!("farshore stopped{how}");
        self.sender.record(NewEvent::now(EventKind::DaemonStopped, text).with("clean", clean));
        self.write_last();
    }

    /// What waits is written, within a moment, and nothing more comes. Without [`EventKeeper::finish`] the next start tells of a crash.
    pub fn write_last(&self) {
        self.sender.waiting.close();
        let deadline = Instant::now() + LAST_EVENTS;
        while !self.writer.is_finished() && Instant::now() < deadline {
            std::thread::sleep(LOOK_AGAIN);
        }
        self.hooks.stop(LAST_EVENTS);
    }
}

/// That this run begins, and how the one before ended, whose newest event this is. Whether groups were at rest it said itself, if it could.
fn started(newest: Option<&EventRecord>) -> NewEvent {
    let before = newest.map(|newest| match newest.kind == EventKind::DaemonStopped.as_str() {
        true if newest.fields.get("clean") == Some(&Value::Bool(false)) => {
            (false, "; the run before stopped before all groups were at rest")
        }
        true => (true, ""),
        false => (false, "; the run before did not stop in order"),
    });
    let (clean, how) = before.unzip();
    let version = env!("CARGO_PKG_VERSION");
    let text = format!("farshore {version} started{}", how.unwrap_or_default());
    NewEvent::now(EventKind::DaemonStarted, text).with("version", version).with_known("clean", clean)
}

fn write_for_ever(sender: &EventSender, mut log: EventLog, hooks: &Hooks) {
    while let Some(events) = sender.waiting.take_all() {
        let lost = sender.lost.swap(0, Ordering::Relaxed);
        let records = log.append(events, lost);
        hooks.offer(&records);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ApiRequest;

    /// A stop that was not waited for to its end is an event of its own, and passed for a clean one at the next start.
    #[test]
    fn a_start_says_whether_the_run_before_came_to_rest() {
        let event = |kind| NewEvent::now(kind, "").numbered(1, "alpha");
        let stopped = |clean| NewEvent::now(EventKind::DaemonStopped, "").with("clean", clean).numbered(1, "alpha");
        for (newest, clean, how) in [
            (None, None, ""),
            (Some(stopped(true)), Some(true), ""),
            (Some(stopped(false)), Some(false), "; the run before stopped before all groups were at rest"),
            (Some(event(EventKind::Note)), Some(false), "; the run before did not stop in order"),
        ] {
            let started = started(newest.as_ref());
            assert_eq!(started.text(), format!("farshore {} started{how}", env!("CARGO_PKG_VERSION")));
            assert_eq!(started.numbered(2, "alpha").fields.get("clean").and_then(Value::as_bool), clean, "{newest:?}");
        }
    }

    /// An order that was on its way to another node when its daemon was restarted stood in no log here; a promotion that waited for a disk
    /// then stood in none at all.
    #[test]
    fn a_command_is_recorded_also_where_the_daemon_ends_or_breaks_down_first() {
        let events = EventSender::new();
        let order = ApiRequest::Demote { group: "db".to_owned(), close_clients: false, skip_hooks: false };
        let under_way = |node| {
            let command = CommandText::of(&order);
            CommandUnderWay::new(&events, command, CommandSource::default(), node, Instant::now())
        };
        let mut done = under_way(Some("beta"));
        done.ended(CommandEnd::new("done", "demoted"));
        drop(done);
        drop(under_way(Some("beta")));
        drop(under_way(None));
        let breaks = || {
            let _command = under_way(None);
            panic!("as a bug would");
        };
        let broke: std::thread::Result<()> = std::panic::catch_unwind(std::panic::AssertUnwindSafe(breaks));
        assert!(broke.is_err());
        let recorded = events.waiting.take_all().expect("all");
        let records: Vec<_> = recorded.into_iter().map(|event| event.numbered(1, "alpha")).collect();
        let results: Vec<_> = records.iter().map(|record| record.fields["result"].as_str()).collect();
        assert_eq!(results, [Some("done"), Some("unknown"), Some("unknown"), Some("unknown")]);
        let nodes: Vec<_> = records.iter().map(|record| record.fields.get("to_node")?.as_str()).collect();
        assert_eq!(nodes, [Some("beta"), Some("beta"), None, None], "{records:?}");
        let answers = records.iter().map(|record| record.fields["answer"].as_str().unwrap_or_default());
        let broke_down: Vec<_> = answers.map(|answer| answer.contains("broke down")).collect();
        assert_eq!(broke_down, [false, false, false, true], "{records:?}");
    }
}
