//! Keeps the log of this node's events, and tells hooks of them.
//!
//! Events come from the data thread ([`notices`]), from looks at the groups ([`looks`]), from commands ([`commands`]) and from hooks
//! that failed. All of them go into one bounded queue; a thread of its own numbers and writes them and hands them to the queues of
//! [`hooks`], each of which has a thread too. So neither the data thread nor the control thread waits for a disk or for a hook.

mod attempt;
pub(super) mod commands;
mod hooks;
pub(super) mod looks;
pub(super) mod notices;
mod program;
mod queue;
mod webhook;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use settings::events::EventKind;
use settings::{Config, NodeName};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::commands::{CommandSource, CommandText};
use self::hooks::Hooks;
use self::queue::BoundedQueue;
use crate::api::{ErrorCode, Reply};
use crate::events::log::{EventLog, EventQuestion, LogReader, OpenedLog};
use crate::events::{NewEvent, unix_ms};

/// Events that may wait to be written; what comes while as many wait is lost and counted.
const WAITING_MAX: usize = 16_384;
/// Readers of the log at once for whoever asks here: each waits for a disk, on a thread and with a request's room.
const READERS_MAX: usize = 2;
/// How long one more waits for them. A page is read within milliseconds.
const READER_PATIENCE: Duration = Duration::from_millis(100);
/// How long a peer's question waits for the one before it. What it asks for may be far back in the log, and its daemon has 5 s.
const PEER_READER_PATIENCE: Duration = Duration::from_secs(2);
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

/// A command on its way to another node. What came of it is recorded, and that it is not known where this daemon ends before.
pub(super) struct CarriedCommand {
    events: EventSender,
    /// `None`: it was recorded.
    command: Option<CommandText>,
    who: CommandSource,
    node: String,
    begun: Instant,
}

impl CarriedCommand {
    pub fn new(
        events: &EventSender,
        command: Option<CommandText>,
        who: CommandSource,
        node: &str,
        begun: Instant,
    ) -> CarriedCommand {
        CarriedCommand { events: events.clone(), command, who, node: node.to_owned(), begun }
    }

    /// Records what came of it, as a word and as a sentence.
    pub fn ended(mut self, result: (&str, String)) {
        self.record(result);
    }

    fn record(&mut self, result: (&str, String)) {
        if let Some(command) = self.command.take() {
            self.events.record(command.carried(&self.who, &self.node, result, self.begun.elapsed()));
        }
    }
}

impl Drop for CarriedCommand {
    fn drop(&mut self) {
        self.record(("unknown", "this daemon ended before the answer was here".to_owned()));
    }
}

/// Who may read the log now. Each peer has one place of its own: whatever a peer asks for, and however often, nobody else waits for it.
struct LogReaders {
    here: Arc<Semaphore>,
    /// By the names that they have proven.
    peers: RefCell<BTreeMap<String, Arc<Semaphore>>>,
}

impl LogReaders {
    fn new() -> LogReaders {
        LogReaders { here: Arc::new(Semaphore::new(READERS_MAX)), peers: RefCell::default() }
    }

    /// A place for a question that was asked here, or by another node's daemon.
    ///
    /// # Errors
    /// A sentence: all places stay taken.
    async fn enter(&self, from_node: Option<&str>) -> Result<OwnedSemaphorePermit, String> {
        let (places, patience) = match from_node {
            None => (self.here.clone(), READER_PATIENCE),
            Some(node) => (self.places_of(node), PEER_READER_PATIENCE),
        };
        match tokio::time::timeout(patience, places.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(match from_node {
                None => format!(
                    "the log of events is being read by {READERS_MAX} others, and its disk lets them wait; ask again"
                ),
                Some(node) => {
                    format!("the log of events is being read for another question of node {node}; ask again")
                }
            }),
        }
    }

    fn places_of(&self, node: &str) -> Arc<Semaphore> {
        let mut peers = self.peers.borrow_mut();
        peers.entry(node.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }
}

/// The log of a node that runs.
pub(super) struct EventKeeper {
    sender: EventSender,
    log: LogReader,
    readers: LogReaders,
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
        let clean = newest.map(|newest| newest.kind == EventKind::DaemonStopped.as_str());
        let version = env!("CARGO_PKG_VERSION");
        let how = match clean {
            Some(false) => "; the run before did not stop in order",
            _ => "",
        };
        let text = format!("farshore {version} started{how}");
        let started = NewEvent::now(EventKind::DaemonStarted, text).with("version", version).with_known("clean", clean);
        sender.record(started);
        Ok(EventKeeper { sender, log: reader, readers: LogReaders::new(), writer, hooks, values, missed })
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

    /// The daemon ends: what waits is written, within a moment. Hooks get what is left after the next start.
    pub fn finish(&self, clean: bool) {
        let how = if clean { "" } else { " before all groups were at rest" };
        let text = format!("farshore stopped{how}");
        self.sender.record(NewEvent::now(EventKind::DaemonStopped, text).with("clean", clean));
        self.sender.waiting.close();
        let deadline = Instant::now() + LAST_EVENTS;
        while !self.writer.is_finished() && Instant::now() < deadline {
            std::thread::sleep(LOOK_AGAIN);
        }
        self.hooks.stop(LAST_EVENTS);
    }
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

    /// With eight connections that asked for events of the far future a peer kept both readers busy, and a local one was turned away.
    #[tokio::test]
    async fn a_peer_keeps_nobody_else_from_the_log() {
        let readers = LogReaders::new();
        let _of_beta = readers.enter(Some("beta")).await.expect("a place");
        let soon = Duration::from_millis(10);
        let second = tokio::time::timeout(soon, readers.enter(Some("beta"))).await;
        assert!(second.is_err(), "one question of a peer at a time");
        let _of_gamma = readers.enter(Some("gamma")).await.expect("a place of its own");
        let _here = [readers.enter(None).await.expect("a place"), readers.enter(None).await.expect("another")];
        let third = readers.enter(None).await.expect_err("two read");
        assert!(third.contains("being read by 2 others"), "{third}");
    }

    /// An order that was on its way to another node when its daemon was restarted stood in no log here.
    #[test]
    fn a_command_that_is_carried_is_recorded_also_where_the_daemon_ends_first() {
        let events = EventSender::new();
        let order = ApiRequest::Demote { group: "db".to_owned(), close_clients: false };
        let carried = || {
            let command = CommandText::of(&order);
            CarriedCommand::new(&events, command, CommandSource::default(), "beta", Instant::now())
        };
        carried().ended(("done", "demoted".to_owned()));
        drop(carried());
        let recorded = events.waiting.take_all().expect("both");
        let records: Vec<_> = recorded.into_iter().map(|event| event.numbered(1, "alpha")).collect();
        let results: Vec<_> = records.iter().map(|record| record.fields["result"].as_str()).collect();
        assert_eq!(results, [Some("done"), Some("unknown")]);
        assert_eq!(records[1].fields["to_node"].as_str(), Some("beta"), "{records:?}");
    }
}
