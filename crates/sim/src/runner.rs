//! Many seeds on all cores, and what came of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::oracle::{Failure, Oracle};
use crate::scenarios::sparse::{SparseScenario, run_sparse};
use crate::simulation::{RunOutcome, run_crowd, run_seed, run_skirmish, run_wide};
use crate::tally::RunTally;

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

    /// The exit code that tells it: 0 well, 1 a checker objected, 2 an assertion, 4 no progress.
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
type SeedRun = fn(u64, bool) -> RunOutcome;

/// How a seed is run and checked, and whether each of its steps is told.
pub type CheckedRun = fn(u64, bool) -> (Verdict, RunTally);

/// Runs the skirmish of a seed alone: a tenth of a second.
pub fn check_skirmish(seed: u64, verbose: bool) -> (Verdict, RunTally) {
    check_run(run_skirmish, seed, verbose)
}

/// Plays the sparse scenario of that number: about ten milliseconds.
pub fn check_sparse(number: u64, verbose: bool) -> (Verdict, RunTally) {
    check_run(run_sparse, number, verbose)
}

/// Plays a scenario that was drawn or cut short.
pub fn check_scenario(scenario: &SparseScenario, verbose: bool) -> (Verdict, RunTally) {
    check_by(|| scenario.run(verbose))
}

/// Drops steps of a scenario that fails as long as the same checker objects; which steps are left.
pub fn shrink(scenario: &SparseScenario, fails: &Verdict) -> Vec<usize> {
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
            if same(&check_scenario(&scenario.only(&fewer), false).0) {
                kept = fewer;
            }
        }
        if kept.len() == before {
            return kept;
        }
    }
}

/// Runs a seed in a world with wide volumes.
pub fn check_wide(seed: u64, verbose: bool) -> (Verdict, RunTally) {
    check_run(run_wide, seed, verbose)
}

/// Runs the crowd of a seed.
pub fn check_crowd(seed: u64, verbose: bool) -> (Verdict, RunTally) {
    check_run(run_crowd, seed, verbose)
}

/// One of so many seeds has a crowd as well.
const CROWD_EVERY: u64 = 32;

/// Runs one seed, its skirmish first, and checks it; one in 32 has its crowd as well.
pub fn check_seed(seed: u64, verbose: bool) -> (Verdict, RunTally) {
    let (verdict, mut tally) = check_skirmish(seed, verbose);
    if !verdict.is_well() {
        return (verdict, tally);
    }
    if seed % CROWD_EVERY == CROWD_EVERY / 2 {
        let (verdict, crowd) = check_crowd(seed, verbose);
        tally.add(&crowd);
        if !verdict.is_well() {
            return (verdict, tally);
        }
    }
    let (verdict, long) = check_run(run_seed, seed, verbose);
    tally.add(&long);
    (verdict, tally)
}

fn check_run(run: SeedRun, seed: u64, verbose: bool) -> (Verdict, RunTally) {
    check_by(|| run(seed, verbose))
}

fn check_by(run: impl FnOnce() -> RunOutcome) -> (Verdict, RunTally) {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok((Ok(()), tally)) => (Verdict::Well, tally),
        Ok((Err(failure), tally)) => (Verdict::Failed(failure), tally),
        Err(_) => (Verdict::Panicked, RunTally::default()),
    }
}

/// The sum over many seeds.
#[derive(Debug, Default)]
pub struct Sum {
    pub seeds: u64,
    pub tally: RunTally,
    /// The seeds that did not end well.
    pub failed: Vec<(u64, Verdict)>,
}

impl Sum {
    fn take(&mut self, seed: u64, verdict: Verdict, tally: &RunTally) {
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
pub fn run_many(check: CheckedRun, from: u64, to: u64, deadline: Option<Instant>) -> Sum {
    let next = AtomicU64::new(from);
    let work = || {
        let mut sum = Sum::default();
        while deadline.is_none_or(|at| Instant::now() < at) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= to {
                break;
            }
            let (verdict, tally) = check(seed, false);
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
