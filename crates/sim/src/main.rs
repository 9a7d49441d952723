//! `sim SEED` runs one seed and prints a line per transition; `sim FROM..TO` and `sim --seeds COUNT` run many and print
//! a summary.
//!
//! Exit code: 0 all well, 1 a judge objected, 2 the engine's own assertion, 3 usage, 4 no progress, 5 a rare branch was
//! never taken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use engine::marks::{Mark, Marks};
use sim::run_seed;
use sim::world::{Failure, Tally};

/// Fewer seeds than this need not reach every rare branch.
const SEEDS_FOR_MARKS: u64 = 200;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [seed] if seed.parse::<u64>().is_ok() => one(seed.parse().unwrap_or_default()),
        [range] => match range.split_once("..").map(|(a, b)| (a.parse(), b.parse())) {
            Some((Ok(from), Ok(to))) if from < to => many(from, to),
            _ => usage(),
        },
        ["--seeds", count] if count.parse::<u64>().is_ok_and(|c| c > 0) => many(0, count.parse().unwrap_or(1)),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: sim SEED | sim FROM..TO | sim --seeds COUNT   (TO is not included)");
    ExitCode::from(3)
}

enum Verdict {
    Well,
    Failed(Failure),
    Panicked,
}

fn judged(seed: u64, verbose: bool) -> (Verdict, Tally) {
    match catch_unwind(AssertUnwindSafe(|| run_seed(seed, verbose))) {
        Ok((Ok(()), tally)) => (Verdict::Well, tally),
        Ok((Err(failure), tally)) => (Verdict::Failed(failure), tally),
        Err(_) => (Verdict::Panicked, Tally::default()),
    }
}

fn code(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Well => 0,
        Verdict::Failed(Failure::Correctness(_)) => 1,
        Verdict::Panicked => 2,
        Verdict::Failed(Failure::Liveness(_)) => 4,
    }
}

fn one(seed: u64) -> ExitCode {
    let (verdict, tally) = judged(seed, true);
    print_tally(&tally, 1);
    match &verdict {
        Verdict::Well => println!("seed {seed}: well"),
        Verdict::Failed(failure) => println!("seed {seed}: {failure:?}"),
        Verdict::Panicked => println!("seed {seed}: an assertion of the engine or the simulator failed, see above"),
    }
    ExitCode::from(code(&verdict))
}

fn many(from: u64, to: u64) -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()) as u64;
    let mut results: Vec<(u64, Verdict, Tally)> = Vec::new();
    std::thread::scope(|scope| {
        let run = |t: u64| {
            move || {
                (from..to)
                    .filter(|s| s % threads == t)
                    .map(|s| {
                        let (verdict, tally) = judged(s, false);
                        (s, verdict, tally)
                    })
                    .collect::<Vec<_>>()
            }
        };
        let workers: Vec<_> = (0..threads).map(|t| scope.spawn(run(t))).collect();
        results = workers.into_iter().filter_map(|w| w.join().ok()).flatten().collect();
    });
    results.sort_by_key(|(seed, ..)| *seed);
    let mut sum = Tally::default();
    let mut worst = 0;
    for (seed, verdict, tally) in &results {
        add(&mut sum, tally);
        match verdict {
            Verdict::Well => continue,
            Verdict::Failed(failure) => println!("seed {seed}: {failure:?}"),
            Verdict::Panicked => println!("seed {seed}: an assertion failed; run 'cargo run -p sim -- {seed}'"),
        }
        worst = if worst == 0 { code(verdict) } else { worst.min(code(verdict)) };
    }
    print_tally(&sum, results.len() as u64);
    if let Some((seed, ..)) = results.iter().find(|(_, v, _)| !matches!(v, Verdict::Well)) {
        println!("the transitions of seed {seed}:");
        let _ = judged(*seed, true);
    }
    let failed = results.iter().filter(|(_, v, _)| !matches!(v, Verdict::Well)).count();
    if worst == 0 && to - from >= SEEDS_FOR_MARKS && !all_marks_hit(&sum.marks) {
        worst = 5;
    }
    println!("{} passed, {failed} failed", results.len() - failed);
    ExitCode::from(worst)
}

fn add(sum: &mut Tally, tally: &Tally) {
    sum.writes += tally.writes;
    sum.overlaps += tally.overlaps;
    sum.faults += tally.faults;
    sum.prefix_checks += tally.prefix_checks;
    sum.virtual_ns += tally.virtual_ns;
    sum.crashes[0] += tally.crashes[0];
    sum.crashes[1] += tally.crashes[1];
    sum.marks.add(&tally.marks);
}

fn print_tally(t: &Tally, seeds: u64) {
    println!(
        "{seeds} seeds: {} writes ({} % overlapping), {} faults, {}+{} crashes, {} prefixes checked, {:.1} virtual hours",
        t.writes,
        t.overlaps * 100 / t.writes.max(1),
        t.faults,
        t.crashes[0],
        t.crashes[1],
        t.prefix_checks,
        t.virtual_ns as f64 / 3.6e12
    );
}

fn all_marks_hit(marks: &Marks) -> bool {
    let missed: Vec<_> = Mark::ALL.into_iter().filter(|m| marks.count(*m) == 0).collect();
    for mark in &missed {
        println!("never taken: {mark:?}");
    }
    missed.is_empty()
}
