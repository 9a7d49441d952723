//! Many seeds on all cores, and what came of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use engine::identity::Row;
use engine::marks::{Mark, Marks};

use crate::crowd::run_crowd;
use crate::gates::{BRANCHES_BY_TEST, EDGES_BY_STORY, ROWS_BY_TEST};
use crate::oracle::{Failure, Oracle};
use crate::sparse::{Scenario, run_sparse};
use crate::wide::run_wide;
use crate::world::Tally;
use crate::{run_seed, run_skirmish};

/// How a seed ended.
#[derive(Clone, Debug)]
pub enum Verdict {
    Well,
    Failed(Failure),
    /// An assertion of the engine or the simulator.
    Panicked,
}

impl Verdict {
    pub fn is_well(&self) -> bool {
        matches!(self, Verdict::Well)
    }

    /// The exit code that tells it: 0 well, 1 a judge objected, 2 an assertion, 4 no progress.
    pub fn code(&self) -> u8 {
        match self {
            Verdict::Well => 0,
            Verdict::Failed(Failure { oracle: Oracle::Liveness, .. }) => 4,
            Verdict::Failed(_) => 1,
            Verdict::Panicked => 2,
        }
    }
}

/// A world of a seed, and whether to tell each of its steps.
type Run = fn(u64, bool) -> (Result<(), Failure>, Tally);

/// How a seed is run and judged, and whether each of its steps is told.
pub type Judged = fn(u64, bool) -> (Verdict, Tally);

/// Runs the skirmish of a seed alone: a tenth of a second.
pub fn judged_skirmish(seed: u64, verbose: bool) -> (Verdict, Tally) {
    judged_run(run_skirmish, seed, verbose)
}

/// Plays the sparse scenario of that number: about ten milliseconds.
pub fn judged_sparse(number: u64, verbose: bool) -> (Verdict, Tally) {
    judged_run(run_sparse, number, verbose)
}

/// Plays a scenario that was drawn or cut short.
pub fn judged_scenario(scenario: &Scenario, verbose: bool) -> (Verdict, Tally) {
    judged_by(|| scenario.run(verbose))
}

/// Drops steps of a scenario that fails as long as the same judge objects; which steps are left.
pub fn shrink(scenario: &Scenario, fails: &Verdict) -> Vec<usize> {
    let oracle = |verdict: &Verdict| match verdict {
        Verdict::Failed(failure) => Some(failure.oracle),
        Verdict::Well | Verdict::Panicked => None,
    };
    let same = |verdict: &Verdict| !verdict.is_well() && oracle(verdict) == oracle(fails);
    let mut kept: Vec<usize> = (0..scenario.steps.len()).collect();
    loop {
        let before = kept.len();
        for step in kept.clone().into_iter().rev() {
            let fewer: Vec<usize> = kept.iter().copied().filter(|at| *at != step).collect();
            if same(&judged_scenario(&scenario.only(&fewer), false).0) {
                kept = fewer;
            }
        }
        if kept.len() == before {
            return kept;
        }
    }
}

/// Runs a seed in a world with wide volumes.
pub fn judged_wide(seed: u64, verbose: bool) -> (Verdict, Tally) {
    judged_run(run_wide, seed, verbose)
}

/// Runs the crowd of a seed.
pub fn judged_crowd(seed: u64, verbose: bool) -> (Verdict, Tally) {
    judged_run(run_crowd, seed, verbose)
}

/// One of so many seeds has a crowd as well.
const CROWD_EVERY: u64 = 32;

/// Runs one seed, its skirmish first, and judges it; one in 32 has its crowd as well.
pub fn judged(seed: u64, verbose: bool) -> (Verdict, Tally) {
    let (verdict, mut tally) = judged_skirmish(seed, verbose);
    if !verdict.is_well() {
        return (verdict, tally);
    }
    if seed % CROWD_EVERY == CROWD_EVERY / 2 {
        let (verdict, crowd) = judged_crowd(seed, verbose);
        tally.add(&crowd);
        if !verdict.is_well() {
            return (verdict, tally);
        }
    }
    let (verdict, long) = judged_run(run_seed, seed, verbose);
    tally.add(&long);
    (verdict, tally)
}

fn judged_run(run: Run, seed: u64, verbose: bool) -> (Verdict, Tally) {
    judged_by(|| run(seed, verbose))
}

fn judged_by(run: impl FnOnce() -> (Result<(), Failure>, Tally)) -> (Verdict, Tally) {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok((Ok(()), tally)) => (Verdict::Well, tally),
        Ok((Err(failure), tally)) => (Verdict::Failed(failure), tally),
        Err(_) => (Verdict::Panicked, Tally::default()),
    }
}

/// The sum over many seeds.
#[derive(Debug, Default)]
pub struct Sum {
    pub seeds: u64,
    pub tally: Tally,
    /// The seeds that did not end well.
    pub failed: Vec<(u64, Verdict)>,
}

impl Sum {
    fn take(&mut self, seed: u64, verdict: Verdict, tally: &Tally) {
        self.seeds += 1;
        self.tally.add(tally);
        if !verdict.is_well() {
            self.failed.push((seed, verdict));
        }
    }

    /// Adds another's.
    pub fn add(&mut self, other: Sum) {
        self.seeds += other.seeds;
        self.tally.add(&other.tally);
        self.failed.extend(other.failed);
    }
}

/// Runs seeds from `from` on, on all cores, up to `to` (not included) or until `deadline`, whatever comes first.
pub fn run_many(judged: Judged, from: u64, to: u64, deadline: Option<Instant>) -> Sum {
    let next = AtomicU64::new(from);
    let work = || {
        let mut sum = Sum::default();
        while deadline.is_none_or(|at| Instant::now() < at) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= to {
                break;
            }
            let (verdict, tally) = judged(seed, false);
            sum.take(seed, verdict, &tally);
        }
        sum
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut sum = Sum::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).for_each(|part| sum.add(part));
    });
    sum.failed.sort_by_key(|(seed, _)| *seed);
    sum
}

impl Tally {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        self.writes += other.writes;
        self.overlaps += other.overlaps;
        self.faults += other.faults;
        self.prefix_checks += other.prefix_checks;
        self.coverage_checks += other.coverage_checks;
        self.virtual_ns += other.virtual_ns;
        self.unjudged += other.unjudged;
        self.crashes.resize(self.crashes.len().max(other.crashes.len()), 0);
        self.crashes.iter_mut().zip(&other.crashes).for_each(|(mine, theirs)| *mine += theirs);
        self.marks.add(&other.marks);
        self.edges.extend(&other.edges);
        self.rows.extend(&other.rows);
    }

    /// In a line; `seeds`: how many there were, and of what.
    pub fn describe(&self, seeds: (u64, &str)) -> String {
        let (seeds, what) = seeds;
        let crashes: u64 = self.crashes.iter().sum();
        let unjudged = match self.unjudged {
            0 => String::new(),
            count => format!(", {count} not judged at rest: a full sync would have taken hours"),
        };
        format!(
            "{seeds} {what}: {} writes ({} % overlapping), {} faults, {crashes} crashes, {} prefixes and {} coverages \
             checked, {:.1} virtual hours{unjudged}",
            self.writes,
            self.overlaps * 100 / self.writes.max(1),
            self.faults,
            self.prefix_checks,
            self.coverage_checks,
            self.virtual_ns as f64 / 3.6e12
        )
    }

    /// Rare branches, edges of the state table and rows of the identity table that were never taken.
    pub fn missing(&self) -> Vec<String> {
        let by_test = |mark: &Mark| BRANCHES_BY_TEST.iter().any(|(taken, _)| taken == mark);
        let marks = Mark::ALL.into_iter().filter(|mark| !by_test(mark) && self.marks.count(*mark) == 0);
        let by_story = |edge: &(&str, &str)| EDGES_BY_STORY.iter().any(|(taken, _)| taken == edge);
        let edges = engine::state::edges().filter(|edge| !by_story(edge) && !self.edges.contains(edge));
        let marks = marks.map(|mark| format!("branch {mark:?}"));
        let edges = edges.map(|(from, to)| format!("edge {from} -> {to}"));
        let elsewhere = |row: &Row| ROWS_BY_TEST.iter().any(|(taken, _)| taken == row);
        let rows = Row::ALL.iter().filter(|row| !elsewhere(row) && !self.rows.contains(row));
        marks.chain(edges).chain(rows.map(|row| format!("row {} of the identity table", row.name()))).collect()
    }

    /// How often a rare branch was taken.
    pub fn mark(&self, mark: Mark) -> u64 {
        Marks::count(&self.marks, mark)
    }
}
