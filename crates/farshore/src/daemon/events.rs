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

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use settings::events::EventKind;
use settings::{Config, NodeName};

use self::hooks::Hooks;
use self::queue::BoundedQueue;
use crate::api::{ErrorCode, Reply};
use crate::events::NewEvent;
use crate::events::log::{EventLog, EventQuestion, OpenedLog};

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

/// The log of a node that runs.
pub(super) struct EventKeeper {
    sender: EventSender,
    log: Arc<Mutex<EventLog>>,
    writer: JoinHandle<()>,
    hooks: Arc<Hooks>,
    /// The newest value of each setting that the log names.
    values: Vec<((String, String), String)>,
}

impl EventKeeper {
    /// Opens the log and starts what writes it. A log that cannot be opened is a line in the daemon's own, and the mirror goes on.
    ///
    /// # Errors
    /// A sentence: a thread cannot be started.
    pub fn open(config: &Config, node: &NodeName) -> anyhow::Result<EventKeeper> {
        let here = config.node(node).expect("the node was looked up before");
        let (log, OpenedLog { notes, newest, values }) =
            EventLog::open(&here.events_file(), here.events_limit_bytes, node.as_str());
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        let sender = EventSender::new();
        let hooks = Arc::new(Hooks::start(config, here, &log, &sender)?);
        let log = Arc::new(Mutex::new(log));
        let writer = {
            let (sender, log, hooks) = (sender.clone(), log.clone(), hooks.clone());
            let write = move || write_for_ever(&sender, &log, &hooks);
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
        Ok(EventKeeper { sender, log, writer, hooks, values })
    }

    pub fn sender(&self) -> &EventSender {
        &self.sender
    }

    /// What the log knew of settings when it was opened: by group and key.
    pub fn values(&self) -> &[((String, String), String)] {
        &self.values
    }

    /// Answers a request for events. Reading waits for a disk, so another thread does it.
    pub async fn answer(&self, question: EventQuestion) -> Reply {
        let log = self.log.clone();
        let read = move || log.lock().expect("nobody panics with the log").page(&question);
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

fn write_for_ever(sender: &EventSender, log: &Mutex<EventLog>, hooks: &Hooks) {
    while let Some(events) = sender.waiting.take_all() {
        let lost = sender.lost.swap(0, Ordering::Relaxed);
        let records = log.lock().expect("nobody panics with the log").append(events, lost);
        hooks.offer(&records);
    }
}
