//! Every short history of a pair, and whether the two nodes meet again as they should. The decision at a meeting is a table over what the
//! nodes know of themselves. Here it is judged by the truth: by the writes that a history issued, and by those that both images hold.
//!
//! * Nothing that a node holds for good is ever overwritten, but by an operator's choice.
//! * No image becomes a mixture of two histories. What has joined is equal.
//! * Where one content is part of the other, the nodes join by themselves and by an update, but for rows that are listed.
//! * Each row is taken, but for those that are listed. Both lists are exact.

mod event;
pub mod exceptions;
mod pair;
mod truth;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::identity::DecisionRow;
use engine::limits::KIB;
use engine::state::{Mode, Policy};

use crate::options::SimOptions;
use crate::scenarios::options;
pub use event::HistoryEvent;
use exceptions::{APART_WITHOUT_LOSS, ApartException, ROWS_OUT_OF_REACH};
use pair::{HistoryEnd, HistoryPair};

/// Events of the longest histories that every run of the tests plays.
pub const DEPTH: usize = 4;

/// A pair of nodes, and what happens to it.
#[derive(Clone, Debug)]
pub struct History {
    pub mode: Mode,
    pub events: Vec<HistoryEvent>,
}

/// A history that ended badly.
#[derive(Clone, Debug)]
pub struct BadHistory {
    pub history: History,
    pub what: String,
    /// The engine or the simulator objected, and no checker.
    pub is_assertion: bool,
}

/// What the histories came to.
#[derive(Debug, Default)]
pub struct HistoryReport {
    pub histories: usize,
    pub joined: usize,
    pub virtual_ns: u64,
    pub rows: BTreeMap<DecisionRow, usize>,
    pub apart_without_loss: BTreeMap<DecisionRow, usize>,
    pub bad: Vec<BadHistory>,
}

/// What one history came to, and what may happen next.
struct PlayedHistory {
    next: Vec<HistoryEvent>,
    end: HistoryEnd,
    rows: BTreeSet<DecisionRow>,
    objection: Option<String>,
    virtual_ns: u64,
}

impl History {
    /// As it is typed.
    pub fn words(&self) -> String {
        let mut words = vec![self.mode.word().to_owned()];
        words.extend(self.events.iter().map(HistoryEvent::to_string));
        words.join(",")
    }

    pub fn parse(words: &str) -> Option<History> {
        let (mode, events) = words.split_once(',').unwrap_or((words, ""));
        let mode = [Mode::Async, Mode::Sync].into_iter().find(|of| of.word() == mode)?;
        let events: Result<Vec<HistoryEvent>, ()> =
            events.split(',').filter(|name| !name.is_empty()).map(str::parse).collect();
        Some(History { mode, events: events.ok()? })
    }

    /// Plays it with a line per transition: what was objected to. `None`: an event changes nothing.
    pub fn tell(&self) -> Option<Option<String>> {
        let played = self.play(false, true)?;
        println!("{:?}, taken: {:?}", played.end, played.rows);
        Some(played.objection)
    }

    /// `None`: an event changes nothing.
    fn play(&self, truth_alone: bool, verbose: bool) -> Option<PlayedHistory> {
        let mut pair = HistoryPair::in_step(small(self.mode), truth_alone, verbose);
        for event in &self.events {
            if !pair.happens(*event) {
                return None;
            }
        }
        let (next, end) = (pair.possible(), pair.ends());
        let apart = if let HistoryEnd::ApartWithoutLoss(row) = end { self.is_apart_without_reason(row) } else { None };
        let objection = pair.objection().map(str::to_owned).or(apart);
        Some(PlayedHistory { next, end, rows: pair.rows(), objection, virtual_ns: pair.now() })
    }

    fn is_apart_without_reason(&self, row: DecisionRow) -> Option<String> {
        let is_reason = |it: &ApartException| it.row == row && self.events.iter().any(it.after);
        let is_listed = APART_WITHOUT_LOSS.iter().any(is_reason);
        (!is_listed).then(|| format!("they do not join, nothing would be lost, and {} is no reason", row.name()))
    }
}

/// Two volumes of a few blocks.
fn small(mode: Mode) -> SimOptions {
    SimOptions {
        volume_bytes: 64 * KIB,
        journal_bytes: 384 * KIB,
        window_bytes: 128 * KIB,
        queue_bytes: 128 * KIB,
        history_bytes: 256 * KIB,
        wait_limit_ms: 100,
        start_alone_ms: 1500,
        ..options(mode, Policy::Degrade)
    }
}

/// Plays every history up to that many events, shortest first, on all cores. `until_caught`: only the truth is asked, and the first history
/// that it objects to is the last one.
pub fn enumerate(depth: usize, until_caught: bool) -> HistoryReport {
    let mut report = HistoryReport::default();
    for mode in [Mode::Async, Mode::Sync] {
        let mut level = vec![History { mode, events: Vec::new() }];
        for _ in 0..=depth {
            level = play_level(&level, until_caught, &mut report);
            if until_caught && report.is_caught() {
                return report;
            }
        }
    }
    report
}

/// Plays all of one length, and returns those that are longer by one.
fn play_level(level: &[History], until_caught: bool, report: &mut HistoryReport) -> Vec<History> {
    let (next, played) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(history) = level.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = catch_unwind(AssertUnwindSafe(|| history.play(until_caught, false)));
            played.lock().expect("nobody panics with it").push((history, result));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    let mut played = played.into_inner().expect("nobody panics with it");
    played.sort_by(|a, b| a.0.events.cmp(&b.0.events));
    let mut longer = Vec::new();
    for (history, result) in played {
        if until_caught && report.is_caught() {
            break;
        }
        match result {
            Ok(Some(played)) => {
                let with = |event: &HistoryEvent| [history.events.as_slice(), &[*event]].concat();
                longer.extend(played.next.iter().map(|event| History { mode: history.mode, events: with(event) }));
                report.takes(history, played);
            }
            Ok(None) => {}
            Err(_) => {
                let what = "an assertion failed".to_owned();
                report.histories += 1;
                report.bad.push(BadHistory { history: history.clone(), what, is_assertion: true });
            }
        }
    }
    longer
}

impl HistoryReport {
    /// A checker has objected.
    pub fn is_caught(&self) -> bool {
        self.bad.iter().any(|bad| !bad.is_assertion)
    }

    fn takes(&mut self, history: &History, played: PlayedHistory) {
        self.histories += 1;
        self.virtual_ns += played.virtual_ns;
        played.rows.into_iter().for_each(|row| *self.rows.entry(row).or_default() += 1);
        match played.end {
            HistoryEnd::Joined => self.joined += 1,
            HistoryEnd::ApartForReason => {}
            HistoryEnd::ApartWithoutLoss(row) => *self.apart_without_loss.entry(row).or_default() += 1,
        }
        if let Some(what) = played.objection {
            self.bad.push(BadHistory { history: history.clone(), what, is_assertion: false });
        }
    }

    /// What is not as the lists of exceptions say of histories of the usual length. Longer ones may come to more.
    pub fn unlisted(&self, depth: usize) -> Vec<String> {
        if depth < DEPTH {
            return Vec::new();
        }
        let is_due = |it: &&ApartException| it.length <= depth && !self.apart_without_loss.contains_key(&it.row);
        let never = APART_WITHOUT_LOSS.iter().filter(is_due);
        let mut found: Vec<String> =
            never.map(|it| format!("{}: listed, and keeps nobody apart without loss", it.row.name())).collect();
        for row in DecisionRow::ALL {
            let is_listed = ROWS_OUT_OF_REACH.iter().any(|(listed, _)| listed == row);
            match (self.rows.contains_key(row), is_listed) {
                (true, true) if depth == DEPTH => {
                    found.push(format!("{}: listed as out of reach, and taken", row.name()));
                }
                (false, false) => found.push(format!("{}: never taken", row.name())),
                _ => {}
            }
        }
        found
    }
}
