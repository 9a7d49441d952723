//! Many seeds on all cores, and what came of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::oracle::{Oracle, OracleFailure};
use crate::scenarios::sparse::SparseScenario;
use crate::simulation::{RunOutcome, SeedRun};
use crate::tally::RunTally;

/// How a seed ended.
#[derive(Clone, Debug)]
pub enum SeedVerdict {
    Well,
    Failed(OracleFailure),
    /// An assertion of the engine or the simulator.
    Panicked,
}

impl SeedVerdict {
    pub fn is_well(&self) -> bool {
        matches!(self, SeedVerdict::Well)
    }

    /// The exit code that tells it: 0 well, 1 a checker objected, 2 an assertion, 4 no progress.
    pub fn code(&self) -> u8 {
        match self {
            SeedVerdict::Well => 0,
            SeedVerdict::Failed(OracleFailure { oracle: Oracle::Liveness, .. }) => 4,
            SeedVerdict::Failed(_) => 1,
            SeedVerdict::Panicked => 2,
        }
    }
}

/// Runs a seed.
pub fn check_run(run: SeedRun, seed: u64, verbose: bool) -> (SeedVerdict, RunTally) {
    check_by(|| run(seed, verbose))
}

/// Plays a scenario that was drawn or cut short.
pub fn check_scenario(scenario: &SparseScenario, verbose: bool) -> (SeedVerdict, RunTally) {
    check_by(|| scenario.run(verbose))
}

fn check_by(run: impl FnOnce() -> RunOutcome) -> (SeedVerdict, RunTally) {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok((Ok(()), tally)) => (SeedVerdict::Well, tally),
        Ok((Err(failure), tally)) => (SeedVerdict::Failed(failure), tally),
        Err(_) => (SeedVerdict::Panicked, RunTally::default()),
    }
}

/// Drops steps of a scenario that fails as long as the same checker objects; which steps are left.
pub fn shrink(scenario: &SparseScenario, fails: &SeedVerdict) -> Vec<usize> {
    let oracle = |verdict: &SeedVerdict| match verdict {
        SeedVerdict::Failed(failure) => Some(failure.oracle),
        SeedVerdict::Well | SeedVerdict::Panicked => None,
    };
    let same = |verdict: &SeedVerdict| !verdict.is_well() && oracle(verdict) == oracle(fails);
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

/// The sum over many seeds.
#[derive(Debug, Default)]
pub struct SeedTotals {
    pub seeds: u64,
    pub tally: RunTally,
    /// The seeds that did not end well.
    pub failed: Vec<(u64, SeedVerdict)>,
}

impl SeedTotals {
    fn take(&mut self, seed: u64, verdict: SeedVerdict, tally: &RunTally) {
        self.seeds += 1;
        self.tally.add(tally);
        if !verdict.is_well() {
            self.failed.push((seed, verdict));
        }
    }

    /// Adds another's.
    pub fn add(&mut self, other: SeedTotals) {
        self.seeds += other.seeds;
        self.tally.add(&other.tally);
        self.failed.extend(other.failed);
    }
}

/// Runs seeds from `from` on, on all cores, up to `to` (not included) or until `deadline`, whatever comes first.
pub fn run_many(run: SeedRun, from: u64, to: u64, deadline: Option<Instant>) -> SeedTotals {
    let next = AtomicU64::new(from);
    let work = || {
        let mut sum = SeedTotals::default();
        while deadline.is_none_or(|at| Instant::now() < at) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= to {
                break;
            }
            let (verdict, tally) = check_run(run, seed, false);
            sum.take(seed, verdict, &tally);
        }
        sum
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut sum = SeedTotals::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).for_each(|part| sum.add(part));
    });
    sum.failed.sort_by_key(|(seed, _)| *seed);
    sum
}
