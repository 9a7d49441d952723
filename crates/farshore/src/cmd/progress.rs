//! What is seen of a command that takes its time: on a terminal a line that is redrawn, else a line now and then, so that a log shows
//! life. Both go to standard error, and nothing is said of what takes less than two seconds.
//!
//! A daemon tells the total of a sync only. Of a queue or a journal it tells what is left: the most that was seen is the total, and what
//! it got less by in the last seconds is the rate.

use std::collections::VecDeque;
use std::io::Write;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use settings::limits::POLL_INTERVAL;
use toolkit::screen::clean;
use units::exact::show_seconds;

use crate::api::{GroupState, GroupView, Role, SyncView};
use crate::outcome::is_screen;
use crate::show::table::in_one_line;
use crate::show::{explained, handover_words, sync_line};

/// What ends sooner is not worth a word.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
/// Without a terminal: the first line, and how long until the next.
const FIRST_LINE_AFTER: Duration = Duration::from_secs(10);
const NEXT_LINE_AFTER: Duration = Duration::from_secs(60);
/// A rate is that of so long before.
const RATE_OVER: Duration = Duration::from_secs(10);

/// What a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingFor {
    /// A state of the group.
    State,
    Demotion,
    Promotion,
    Switchover,
}

/// Where a group is in what it does, as one look shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkStage {
    what: String,
    amount: Option<WorkAmount>,
}

#[derive(Clone, Debug, PartialEq)]
enum WorkAmount {
    /// With a total.
    Sync(SyncView),
    /// Bytes that are left.
    Left(u64),
}

impl WorkStage {
    pub fn words(what: impl Into<String>) -> WorkStage {
        WorkStage { what: what.into(), amount: None }
    }

    /// With a total.
    pub fn amount(what: &str, amount: SyncView) -> WorkStage {
        WorkStage { what: what.to_owned(), amount: Some(WorkAmount::Sync(amount)) }
    }

    /// What is left of it.
    pub fn left(what: &str, bytes: u64) -> WorkStage {
        WorkStage { what: what.to_owned(), amount: Some(WorkAmount::Left(bytes)) }
    }

    pub fn of(group: &GroupView, waiting_for: WaitingFor) -> WorkStage {
        let unapplied_bytes = group.journal.as_ref().map_or(0, |journal| journal.bytes);
        let queued_bytes = if group.role == Role::Primary { group.queue.bytes } else { 0 };
        if let Some(sync) = &group.sync {
            return WorkStage { what: "syncing".to_owned(), amount: Some(WorkAmount::Sync(sync.clone())) };
        }
        match (waiting_for, &group.state) {
            _ if group.starting && unapplied_bytes > 0 => {
                WorkStage::left("starting, reads back the journal", unapplied_bytes)
            }
            (WaitingFor::Switchover, _) => WorkStage::words(match &group.handover {
                Some(handover) => format!("hands over {}", handover_words(handover)),
                None => "hands over".to_owned(),
            }),
            (WaitingFor::Demotion, _) if queued_bytes > 0 => WorkStage::left("sends what is queued", queued_bytes),
            (WaitingFor::Demotion, _) => WorkStage::words("becomes secondary"),
            (WaitingFor::Promotion, _) if group.role == Role::Secondary && unapplied_bytes > 0 => {
                WorkStage::left("applies the journal", unapplied_bytes)
            }
            (WaitingFor::Promotion, GroupState::Paused) => WorkStage::words(explained(group)),
            (WaitingFor::Promotion, _) => WorkStage::words("becomes primary"),
            (WaitingFor::State, GroupState::CatchingUp) if queued_bytes > 0 => {
                WorkStage::left("catches up", queued_bytes)
            }
            (WaitingFor::State, _) => WorkStage::words(explained(group)),
        }
    }
}

/// Makes numbers of looks.
#[derive(Debug, Default)]
struct WorkMeter {
    what: String,
    most_bytes: u64,
    /// When how much was left, oldest first.
    looks: VecDeque<(Instant, u64)>,
}

impl WorkMeter {
    /// The numbers of a stage, where it has any.
    fn look(&mut self, stage: &WorkStage, now: Instant) -> Option<SyncView> {
        let left_bytes = match &stage.amount {
            Some(WorkAmount::Sync(sync)) => return Some(sync.clone()),
            Some(WorkAmount::Left(bytes)) => *bytes,
            None => return None,
        };
        if self.what != stage.what {
            *self = WorkMeter { what: stage.what.clone(), ..WorkMeter::default() };
        }
        self.most_bytes = self.most_bytes.max(left_bytes);
        self.looks.push_back((now, left_bytes));
        // The oldest that stays is as old as that, or a little older.
        while self.looks.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= RATE_OVER) {
            self.looks.pop_front();
        }
        let (since, before_bytes) = self.looks.front().copied().unwrap_or((now, left_bytes));
        let seconds = now.duration_since(since).as_secs_f64();
        let rate = if seconds > 0.0 { before_bytes.saturating_sub(left_bytes) as f64 / seconds } else { 0.0 };
        Some(SyncView {
            done_bytes: self.most_bytes - left_bytes,
            total_bytes: self.most_bytes,
            rate_bytes_per_s: rate,
            ..SyncView::default()
        })
    }
}

/// Whether a line is to be written without a terminal, `elapsed` after the begin, when the last one was.
fn line_is_due(elapsed: Duration, last: Option<Duration>) -> bool {
    last.map_or(FIRST_LINE_AFTER, |last| last + NEXT_LINE_AFTER) <= elapsed
}

/// How far a command is. Its line is taken away when this goes.
pub struct ProgressView {
    name: String,
    started: Instant,
    meter: WorkMeter,
    on_screen: bool,
    bar: Option<ProgressBar>,
    last_line: Option<Duration>,
}

impl ProgressView {
    /// Of work on a group, which begins now.
    pub fn new(group: &str) -> ProgressView {
        let on_screen = is_screen(&std::io::stderr());
        let started = Instant::now();
        ProgressView { name: clean(group), started, meter: WorkMeter::default(), on_screen, bar: None, last_line: None }
    }

    /// Shows a stage, if there is reason to by now.
    pub fn show(&mut self, stage: &WorkStage) {
        let (now, what) = (Instant::now(), in_one_line(&stage.what));
        let numbers = self.meter.look(stage, now);
        let elapsed = now.duration_since(self.started);
        if self.on_screen {
            if elapsed >= SHOWN_AFTER {
                self.draw(&what, numbers.as_ref());
            }
        } else if line_is_due(elapsed, self.last_line) {
            self.last_line = Some(elapsed);
            let numbers = numbers.map(|numbers| format!(", {}", sync_line(&numbers))).unwrap_or_default();
            self.say(&format!("{} {what}{numbers} (after {})", self.name, show_seconds(elapsed.as_secs_f64())));
        }
    }

    /// A line that stays, above the one that is redrawn.
    pub fn say(&self, line: &str) {
        // Whoever does not read it still waits for the end.
        let write = || _ = writeln!(std::io::stderr(), "{line}");
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Cut at the width of the terminal: a line that is broken in two cannot be redrawn.
    fn draw(&mut self, what: &str, numbers: Option<&SyncView>) {
        let bar = self.bar.get_or_insert_with(|| ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()));
        let template = if numbers.is_some() { "{prefix} [{bar:12}] {wide_msg}" } else { "{prefix} {wide_msg}" };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(self.name.clone());
        let mut text = what.to_owned();
        if let Some(numbers) = numbers {
            bar.set_length(numbers.total_bytes);
            bar.set_position(numbers.done_bytes.min(numbers.total_bytes));
            text += &format!(", {}", sync_line(numbers));
        }
        bar.set_message(text);
    }
}

impl Drop for ProgressView {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Does something on a thread of its own, and shows how far it is until it is done. Where the system gives no thread, it is done here,
/// and nothing is shown.
pub fn during<T: Send, W: FnOnce() -> T + Send>(work: W, mut show: impl FnMut()) -> T {
    thread::scope(|scope| {
        let (give, given) = channel::<W>();
        let (alive, ended) = channel::<()>();
        let worker = thread::Builder::new().spawn_scoped(scope, move || {
            // It goes when the work is done, however that ends.
            let _alive = alive;
            let work = given.recv().expect("it is given its work");
            work()
        });
        let Ok(worker) = worker else { return work() };
        let _ = give.send(work);
        let mut pause = SHOWN_AFTER;
        while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            show();
            pause = POLL_INTERVAL;
        }
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::without_threads::has_no_threads;

    fn stage(waiting_for: WaitingFor, changes: Value) -> (String, Option<u64>) {
        let mut group = json!({
            "name": "db", "role": "primary", "mode": "async", "state": "replicating", "protection": "queued", "volumes": [],
            "queue": {"bytes": 0, "items": 0, "bytes_hwm": 0, "items_hwm": 0, "limit_bytes": 0, "limit_items": 0, "blocked_ms": 0},
            "peers": [], "settings": {}
        });
        changes.as_object().expect("changes").iter().for_each(|(key, value)| group[key] = value.clone());
        let group: GroupView = serde_json::from_value(group).expect("a group");
        let stage = WorkStage::of(&group, waiting_for);
        let bytes = stage.amount.map(|amount| match amount {
            WorkAmount::Sync(sync) => sync.total_bytes,
            WorkAmount::Left(bytes) => bytes,
        });
        (stage.what, bytes)
    }

    #[test]
    fn stages() {
        use WaitingFor::{Demotion, Promotion, State};
        let queue = |bytes: u64| json!({"bytes": bytes, "items": 0, "bytes_hwm": 0, "items_hwm": 0, "limit_bytes": 0, "limit_items": 0, "blocked_ms": 0});
        let journal = |bytes: u64| json!({"bytes": bytes, "limit_bytes": 99});
        let sync = json!({"full": true, "done_bytes": 1, "total_bytes": 9, "rate_bytes_per_s": 1.0});
        for (waiting_for, changes, what, bytes) in [
            (State, json!({}), "is replicating", None),
            (State, json!({"state": "queuing", "reason": "the link is down"}), "is queuing: the link is down", None),
            (State, json!({"state": "syncing", "sync": sync}), "syncing", Some(9)),
            (State, json!({"state": "catching-up", "queue": queue(7)}), "catches up", Some(7)),
            (State, json!({"starting": true, "journal": journal(5)}), "starting, reads back the journal", Some(5)),
            (Demotion, json!({"queue": queue(7)}), "sends what is queued", Some(7)),
            (Demotion, json!({"sync": sync, "queue": queue(7)}), "syncing", Some(9)),
            (Demotion, json!({"role": "secondary", "queue": queue(7)}), "becomes secondary", None),
            (Promotion, json!({"role": "secondary", "journal": journal(5)}), "applies the journal", Some(5)),
            (Promotion, json!({"role": "secondary", "journal": journal(0)}), "becomes primary", None),
            (Promotion, json!({"state": "paused", "reason": "no space"}), "is paused: no space", None),
        ] {
            assert_eq!(stage(waiting_for, changes.clone()), (what.to_owned(), bytes), "{changes}");
        }
    }

    #[test]
    fn what_is_left_becomes_a_share_and_a_rate() {
        let (mut meter, begin) = (WorkMeter::default(), Instant::now());
        let mut look = |what: &str, seconds: u64, left: u64| {
            let numbers = meter.look(&WorkStage::left(what, left), begin + Duration::from_secs(seconds));
            let numbers = numbers.expect("bytes were left");
            (numbers.done_bytes, numbers.total_bytes, numbers.rate_bytes_per_s)
        };
        assert_eq!(look("drain", 0, 900), (0, 900, 0.0));
        assert_eq!(look("drain", 1, 1000), (0, 1000, 0.0));
        assert_eq!(look("drain", 4, 700), (300, 1000, 50.0));
        // Ten seconds back from here the second look is the newest that is old enough.
        assert_eq!(look("drain", 11, 200), (800, 1000, 80.0));
        assert_eq!(look("drain", 12, 0), (1000, 1000, 1000.0 / 11.0));
        assert_eq!(look("apply", 13, 50), (0, 50, 0.0));
        assert_eq!(meter.look(&WorkStage::words("waits"), begin), None);
    }

    #[test]
    fn lines_come_now_and_then() {
        let due =
            |elapsed: u64, last: Option<u64>| line_is_due(Duration::from_secs(elapsed), last.map(Duration::from_secs));
        assert!(!due(0, None) && !due(9, None) && due(10, None) && due(500, None));
        assert!(!due(69, Some(10)) && due(70, Some(10)) && !due(71, Some(70)));
    }

    #[test]
    fn what_is_done_at_once_is_not_shown() {
        let mut shown = 0;
        assert_eq!(during(|| 7, || shown += 1), 7);
        assert_eq!(shown, 0);
    }

    #[test]
    fn without_a_thread_the_work_is_done_all_the_same() {
        if has_no_threads("cmd::progress::tests::without_a_thread_the_work_is_done_all_the_same") {
            assert_eq!(during(|| 7, || {}), 7);
        }
    }
}
