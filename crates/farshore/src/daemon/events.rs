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

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use settings::events::EventKind;
use settings::{Config, NodeName};

use tokio::sync::Semaphore;

use self::hooks::Hooks;
use self::queue::BoundedQueue;
use crate::api::{ErrorCode, Reply};
use crate::events::NewEvent;
use crate::events::log::{EventLog, EventQuestion, LogReader, OpenedLog};

/// Events that may wait to be written; what comes while as many wait is lost and counted.
const WAITING_MAX: usize = 16_384;
/// Readers of the log at once: each waits for a disk, on a thread and with a request's room.
const READERS_MAX: usize = 2;
/// How long one more waits for them. A page is read within milliseconds.
const READER_PATIENCE: Duration = Duration::from_millis(100);
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

/// The log of a node that runs.
pub(super) struct EventKeeper {
    sender: EventSender,
    log: LogReader,
    readers: Arc<Semaphore>,
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
        let (log, OpenedLog { notes, newest, values, missed }) =
            EventLog::open(&here.events_file(), here.events_limit_bytes, node.as_str(), given);
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
        let readers = Arc::new(Semaphore::new(READERS_MAX));
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

    /// Answers a request for events. Reading waits for a disk, so another thread does it; and while a disk hangs, no more than a few
    /// requests wait for it.
    pub async fn answer(&self, question: EventQuestion) -> Reply {
        let permit = tokio::time::timeout(READER_PATIENCE, self.readers.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            let message = format!(
                "the log of events is being read by {READERS_MAX} others, and its disk lets them wait; ask again"
            );
            return Reply::error(ErrorCode::Failed, message);
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
