//! Crashes are enumerated, not hoped for: a scenario is played once to count its instants, then again with a crash at each of
//! them, and again with a second crash while it recovers from the first.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::script::ScriptedScenario;
use crate::trips::{DOWN_NS, Instant, Trip};

/// How much of the enumeration is done.
#[derive(Clone, Copy, Debug)]
pub struct CrashDepth {
    /// Single crashes at most; a regular sample when there are more.
    pub single_max: usize,
    /// Of the single crashes so many are followed by second ones,
    pub firsts_max: usize,
    /// each by so many.
    pub seconds_max: usize,
}

impl CrashDepth {
    /// For every run of the tests.
    pub const SAMPLE: CrashDepth = CrashDepth { single_max: 120, firsts_max: 10, seconds_max: 8 };
    /// Everything once, and a broad sample of second crashes.
    pub const FULL: CrashDepth = CrashDepth { single_max: usize::MAX, firsts_max: 150, seconds_max: 40 };
}

/// A run that ended badly: the scenario, its crashes, and what was said.
#[derive(Clone, Debug)]
pub struct FoundFailure {
    pub scenario: &'static str,
    pub trips: Vec<Trip>,
    pub what: String,
}

impl fmt::Display for FoundFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.scenario)?;
        self.trips.iter().try_for_each(|trip| write!(f, " {trip}"))?;
        write!(f, ": {}", self.what)
    }
}

/// What an enumeration came to.
#[derive(Clone, Debug, Default)]
pub struct CrashReport {
    /// Instants of the scenario, over its nodes.
    pub instants: u64,
    pub single: usize,
    pub double: usize,
    pub virtual_ns: u64,
    pub found: Vec<FoundFailure>,
}

impl CrashReport {
    pub fn add(&mut self, other: CrashReport) {
        self.instants += other.instants;
        self.single += other.single;
        self.double += other.double;
        self.virtual_ns += other.virtual_ns;
        self.found.extend(other.found);
    }
}

/// Plays a scenario with crashes at its instants, on all cores.
pub fn enumerate(script: &ScriptedScenario, depth: CrashDepth) -> CrashReport {
    let world = script.play(&[], false).world;
    let mut report = CrashReport { instants: world.trips.counted().iter().flatten().sum(), ..CrashReport::default() };
    let singles = sample(trips_of(world.trips.counted()), depth.single_max);
    report.single = singles.len();
    let runs: Vec<Vec<Trip>> = singles.iter().map(|trip| vec![*trip]).collect();
    run_all(script, &runs, &mut report);
    let firsts = sample(singles, depth.firsts_max);
    let seconds: Vec<Vec<Trip>> =
        firsts.iter().flat_map(|first| seconds_of(script, *first, depth.seconds_max)).collect();
    report.double = seconds.len();
    run_all(script, &seconds, &mut report);
    report
}

/// Every way to crash at one of the counted instants.
fn trips_of(counted: &[[u64; 2]]) -> Vec<Trip> {
    let mut trips = Vec::new();
    for (node, counts) in counted.iter().enumerate() {
        for kind in [Instant::Sync, Instant::Message] {
            for at in 1..=counts[kind as usize] {
                for (after, power) in [(false, false), (false, true), (true, false), (true, true)] {
                    trips.push(Trip { node, kind, at, after, power, down_ns: DOWN_NS });
                }
            }
        }
    }
    trips
}

/// Crashes during the recovery from the first one.
fn seconds_of(script: &ScriptedScenario, first: Trip, most: usize) -> Vec<Vec<Trip>> {
    let played = catch_unwind(AssertUnwindSafe(|| script.play(&[first], false).world));
    let Ok(world) = played else { return Vec::new() };
    if world.trips.taken() == 0 {
        return Vec::new();
    }
    sample(trips_of(world.trips.counted()), most).into_iter().map(|second| vec![first, second]).collect()
}

/// At most `most` of them, spread evenly. The stride is odd, so that every way to crash is met.
fn sample<T: Copy>(all: Vec<T>, most: usize) -> Vec<T> {
    let stride = all.len().div_ceil(most.max(1)).max(1) | 1;
    all.into_iter().step_by(stride).collect()
}

fn run_all(script: &ScriptedScenario, runs: &[Vec<Trip>], report: &mut CrashReport) {
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut found, mut virtual_ns) = (Vec::new(), 0);
        while let Some(trips) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = catch_unwind(AssertUnwindSafe(|| script.check(trips, false)));
            let what = match result {
                Ok((verdict, now)) => {
                    virtual_ns += now;
                    verdict.err().map(|failure| failure.to_string())
                }
                Err(_) => Some("an assertion failed".to_owned()),
            };
            found.extend(what.map(|what| FoundFailure { scenario: script.name, trips: trips.clone(), what }));
        }
        (found, virtual_ns)
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for (found, virtual_ns) in workers.into_iter().filter_map(|worker| worker.join().ok()) {
            report.found.extend(found);
            report.virtual_ns += virtual_ns;
        }
    });
    report.found.sort_by_key(|found| found.trips.clone());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_meets_every_way_to_crash() {
        let all = trips_of(&[[50, 100], [30, 70]]);
        assert_eq!(all.len(), 1000);
        let some = sample(all, 120);
        assert!((100..=120).contains(&some.len()), "{}", some.len());
        for (after, power) in [(false, false), (false, true), (true, false), (true, true)] {
            assert!(some.iter().any(|trip| (trip.after, trip.power) == (after, power)));
        }
    }

    #[test]
    fn a_trip_is_read_as_it_is_written() {
        for trip in trips_of(&[[2, 1], [1, 2]]) {
            assert_eq!(trip.to_string().parse(), Ok(trip));
        }
        assert!("1.sync.x.before.kill".parse::<Trip>().is_err());
    }
}
