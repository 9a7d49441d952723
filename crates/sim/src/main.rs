//! `sim SEED` runs one seed and prints a line per transition; the other forms run many (`sim --help`).
//!
//! Exit code: 0 all well, 1 a judge objected, 2 the engine's own assertion, 3 usage, 4 no progress, 5 a rare branch or an
//! edge was never taken, 6 a planted fault was not caught.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::enumerate::{Depth, Report, enumerate};
use sim::runner::{Sum, Verdict, judged, judged_skirmish, run_many};
use sim::script;
use sim::trip::Trip;

/// Fewer seeds than this need not reach every rare branch.
const SEEDS_FOR_BRANCHES: u64 = 1000;
/// From this many on it is told which ones they did not reach.
const SEEDS_WORTH_A_LOOK: u64 = 200;

const USAGE: &str = "\
usage: sim SEED                       one seed, a line per transition
       sim FROM..TO | --seeds COUNT   many, TO not included; from 1000 seeds on every rare branch must be taken
       sim --seconds N [--from SEED]  seeds until then
       sim --skirmishes FROM..TO      the skirmishes of seeds alone, each a tenth of a second
       sim --stories [full]           every story with a crash at its instants, and at those of its recovery
       sim --story NAME [TRIP [TRIP]] one, a line per transition
       sim --faults                   the faults that can be planted
       sim --plant NAME FROM..TO      plants one and runs seeds until a judge catches it (cargo feature `planted`)";

/// What was asked for.
enum Task {
    One(u64),
    Many(u64, u64),
    Seconds(u64, u64),
    Skirmishes(u64, u64),
    Stories(Depth),
    Story(String, Vec<Trip>),
    Faults,
    Plant(String, u64, u64),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match task(&words) {
        Some(Task::One(seed)) => one(seed),
        Some(Task::Many(from, to)) => many(from, to),
        Some(Task::Seconds(seconds, from)) => for_seconds(seconds, from),
        Some(Task::Skirmishes(from, to)) => ExitCode::from(conclude(&run_many(judged_skirmish, from, to, None))),
        Some(Task::Stories(depth)) => stories(depth),
        Some(Task::Story(name, trips)) => story(&name, &trips),
        Some(Task::Faults) => list_faults(),
        Some(Task::Plant(name, from, to)) => plant(&name, from, to),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(3)
        }
    }
}

fn task(words: &[&str]) -> Option<Task> {
    Some(match words {
        ["--stories"] => Task::Stories(Depth::SAMPLE),
        ["--stories", "full"] => Task::Stories(Depth::FULL),
        ["--story", name, trips @ ..] => {
            let trips: Option<Vec<Trip>> = trips.iter().map(|words| words.parse().ok()).collect();
            Task::Story((*name).to_owned(), trips?)
        }
        ["--faults"] => Task::Faults,
        ["--seeds", count] => Task::Many(0, count.parse().ok().filter(|count| *count > 0)?),
        ["--seconds", seconds] => Task::Seconds(seconds.parse().ok()?, 0),
        ["--seconds", seconds, "--from", seed] => Task::Seconds(seconds.parse().ok()?, seed.parse().ok()?),
        ["--skirmishes", seeds] => {
            let (from, to) = range(seeds)?;
            Task::Skirmishes(from, to)
        }
        ["--plant", name, seeds] | ["--plant", name, "--seeds", seeds] => {
            let (from, to) = range(seeds)?;
            Task::Plant((*name).to_owned(), from, to)
        }
        [seed] if seed.parse::<u64>().is_ok() => Task::One(seed.parse().ok()?),
        [seeds] => {
            let (from, to) = range(seeds)?;
            Task::Many(from, to)
        }
        _ => return None,
    })
}

fn range(words: &str) -> Option<(u64, u64)> {
    let (from, to) = words.split_once("..")?;
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from < to).then_some((from, to))
}

fn one(seed: u64) -> ExitCode {
    let (verdict, tally) = judged(seed, true);
    println!("{}", tally.describe(1));
    match &verdict {
        Verdict::Well => println!("seed {seed}: well"),
        Verdict::Failed(failure) => println!("seed {seed}: {failure}"),
        Verdict::Panicked => println!("seed {seed}: an assertion of the engine or the simulator failed, see above"),
    }
    ExitCode::from(verdict.code())
}

fn many(from: u64, to: u64) -> ExitCode {
    let sum = run_many(judged, from, to, None);
    let mut code = conclude(&sum);
    let missing = if to - from >= SEEDS_WORTH_A_LOOK { sum.tally.missing() } else { Vec::new() };
    missing.iter().for_each(|what| eprintln!("never taken: {what}"));
    if code == 0 && !missing.is_empty() && to - from >= SEEDS_FOR_BRANCHES {
        code = 5;
    }
    ExitCode::from(code)
}

fn for_seconds(seconds: u64, from: u64) -> ExitCode {
    let sum = run_many(judged, from, u64::MAX, Some(Instant::now() + Duration::from_secs(seconds)));
    println!("seeds {from}..{}", from + sum.seeds);
    ExitCode::from(conclude(&sum))
}

/// Prints the sum; the worst exit code.
fn conclude(sum: &Sum) -> u8 {
    let mut worst = 0;
    for (seed, verdict) in &sum.failed {
        match verdict {
            Verdict::Failed(failure) => println!("seed {seed}: {failure}"),
            _ => println!("seed {seed}: an assertion failed"),
        }
        worst = if worst == 0 { verdict.code() } else { worst.min(verdict.code()) };
    }
    if let Some((seed, _)) = sum.failed.first() {
        println!("to see every transition: cargo run --profile sim -p sim -- {seed}");
    }
    println!("{}", sum.tally.describe(sum.seeds));
    println!("{} passed, {} failed", sum.seeds - sum.failed.len() as u64, sum.failed.len());
    worst
}

fn stories(depth: Depth) -> ExitCode {
    let mut sum = Report::default();
    for script in script::all() {
        let report = enumerate(&script, depth);
        println!(
            "{}: {} instants, {} crashes at one of them, {} pairs of crashes, {} failures",
            script.name,
            report.instants,
            report.single,
            report.double,
            report.found.len()
        );
        report.found.iter().for_each(|found| println!("sim --story {found}"));
        sum.add(report);
    }
    println!("stories: {:.1} virtual hours", sum.virtual_ns as f64 / 3.6e12);
    println!("{} passed, {} failed", sum.single + sum.double - sum.found.len(), sum.found.len());
    ExitCode::from(u8::from(!sum.found.is_empty()))
}

fn story(name: &str, trips: &[Trip]) -> ExitCode {
    let scripts = script::all();
    let Some(script) = scripts.iter().find(|script| script.name == name) else {
        let names: Vec<&str> = scripts.iter().map(|script| script.name).collect();
        eprintln!("there is no story `{name}`; there are: {}", names.join(", "));
        return ExitCode::from(3);
    };
    match script.judge(trips, true).0 {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn list_faults() -> ExitCode {
    for fault in engine::planted::Fault::ALL {
        println!("{}\t{}\t{}", fault.name(), fault.breaks(), fault.how());
    }
    ExitCode::SUCCESS
}

/// Prints `caught COUNT ORACLE SENTENCE` or `missed COUNT`: how many seeds it took, and who objected. An assertion of the
/// engine is no verdict: only a judge may object.
#[cfg(feature = "planted")]
fn plant(name: &str, from: u64, to: u64) -> ExitCode {
    if !engine::planted::plant(name) {
        eprintln!("there is no fault `{name}` to plant; `sim --faults` lists them");
        return ExitCode::from(3);
    }
    std::panic::set_hook(Box::new(|_| {}));
    for seed in from..to {
        if let (Verdict::Failed(failure), _) = judged(seed, false) {
            println!("caught {} {} seed {seed}: {}", seed - from + 1, failure.oracle, failure.what);
            return ExitCode::SUCCESS;
        }
    }
    println!("missed {}", to - from);
    ExitCode::from(6)
}

#[cfg(not(feature = "planted"))]
fn plant(name: &str, _: u64, _: u64) -> ExitCode {
    eprintln!("this build cannot plant {name}: build it with `--features planted --profile faults`");
    ExitCode::from(3)
}
