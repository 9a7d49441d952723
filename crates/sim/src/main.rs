//! `sim SEED` runs one seed and prints a line per transition; the other forms run many (`sim --help`).
//!
//! Exit code: 0 all well, 1 a judge objected, 2 the engine's own assertion, 3 usage, 4 no progress, 5 a rare branch or an
//! edge was never taken, or too many wide worlds were not judged at rest, 6 a planted fault was not caught.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::runner::{
    CheckedRun, Sum, Verdict, check_crowd, check_scenario, check_seed, check_skirmish, check_sparse, check_wide,
    run_many, shrink,
};
use sim::scenarios::enumerate::{Depth, Report, enumerate};
use sim::scenarios::script;
use sim::scenarios::sparse::SparseScenario;
use sim::tally::RunTally;
use sim::trips::Trip;

/// Fewer seeds than this need not reach every rare branch.
const SEEDS_FOR_BRANCHES: u64 = 1000;
/// From this many on it is told which ones they did not reach.
const SEEDS_WORTH_A_LOOK: u64 = 200;

/// So many of a thousand seeds may end before they are judged at rest, because a wide volume would need a full sync.
const UNJUDGED_PER_MILLE_MAX: u64 = 30;

const USAGE: &str = "\
usage: sim SEED                       one seed, a line per transition
       sim FROM..TO | --seeds COUNT   many, TO not included; from 1000 seeds on every rare branch must be taken
       sim --seconds N [--from SEED]  seeds until then
       sim --skirmishes FROM..TO      the skirmishes of seeds alone, each a tenth of a second
       sim --sparse FROM..TO          sparse scenarios: few writes, much time; about ten milliseconds each
       sim --sparse SECONDS --from N  as many as there is time for, from that number on
       sim --sparse N [STEP,...]      one of them, a line per step and transition; of its steps only these
       sim --shrink N                 drops steps of one that fails as long as the same judge objects
       sim --liars FROM..TO | SEED    a peer that is authenticated and wrong; one seed: a line per frame
       sim --wide FROM..TO            seeds whose volumes have 8 GiB to 16 TiB; of one alone: a line per transition
       sim --crowd FROM..TO           65 to 128 groups that all catch up at once; of one alone: a line per transition
       sim --stories [full]           every story with a crash at its instants, and at those of its recovery
       sim --stories names            what they are called
       sim --story NAME [TRIP [TRIP]] one, a line per transition
       sim --faults                   the faults that can be planted
       sim --plant NAME [--wide | --crowd | --sparse] FROM..TO
                                      plants one and runs seeds until a judge catches it (cargo feature `planted`)";

/// Runs of one kind: what one of them and many are called, and what replays one.
struct Runs {
    one: &'static str,
    many: &'static str,
    replay: &'static str,
}

const SEEDS: Runs = Runs { one: "seed", many: "seeds", replay: "" };
const SPARSE: Runs = Runs { one: "scenario", many: "scenarios", replay: "--sparse " };

/// What was asked for.
enum Task {
    One(u64),
    Many(u64, u64),
    Seconds(u64, u64),
    Skirmishes(u64, u64),
    Sparse(u64, u64),
    SparseFor(u64, u64),
    Scenario(u64, Option<Vec<usize>>),
    Shrink(u64),
    Liars(u64, u64),
    Liar(u64),
    Profile(CheckedRun, u64, u64),
    Stories(Depth),
    StoryNames,
    Story(String, Vec<Trip>),
    Faults,
    Plant(String, CheckedRun, u64, u64),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match task(&words) {
        Some(Task::One(seed)) => one(check_seed, seed),
        Some(Task::Many(from, to)) => many(from, to),
        Some(Task::Seconds(seconds, from)) => for_seconds(seconds, from),
        Some(Task::Skirmishes(from, to)) => ExitCode::from(conclude(&run_many(check_skirmish, from, to, None), &SEEDS)),
        Some(Task::Sparse(from, to)) => ExitCode::from(conclude(&run_many(check_sparse, from, to, None), &SPARSE)),
        Some(Task::SparseFor(seconds, from)) => sparse_for(seconds, from),
        Some(Task::Scenario(number, steps)) => scenario(number, steps.as_deref()),
        Some(Task::Shrink(number)) => shrunk(number),
        Some(Task::Liars(from, to)) => liars(from, to),
        Some(Task::Liar(seed)) => liar(seed),
        Some(Task::Profile(check, from, to)) if to == from + 1 => one(check, from),
        Some(Task::Profile(check, from, to)) => ExitCode::from(conclude(&run_many(check, from, to, None), &SEEDS)),
        Some(Task::Stories(depth)) => stories(depth),
        Some(Task::StoryNames) => story_names(),
        Some(Task::Story(name, trips)) => story(&name, &trips),
        Some(Task::Faults) => list_faults(),
        Some(Task::Plant(name, check, from, to)) => plant(&name, check, from, to),
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
        ["--stories", "names"] => Task::StoryNames,
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
        ["--sparse", number] if number.parse::<u64>().is_ok() => Task::Scenario(number.parse().ok()?, None),
        ["--sparse", numbers] => {
            let (from, to) = range(numbers)?;
            Task::Sparse(from, to)
        }
        ["--sparse", seconds, "--from", number] => Task::SparseFor(seconds.parse().ok()?, number.parse().ok()?),
        ["--sparse", number, steps] => {
            let steps: Option<Vec<usize>> = steps.split(',').map(|step| step.parse().ok()).collect();
            Task::Scenario(number.parse().ok()?, Some(steps?))
        }
        ["--shrink", number] => Task::Shrink(number.parse().ok()?),
        ["--liars", seed] if seed.parse::<u64>().is_ok() => Task::Liar(seed.parse().ok()?),
        ["--liars", seeds] => {
            let (from, to) = range(seeds)?;
            Task::Liars(from, to)
        }
        [profile @ ("--wide" | "--crowd"), seeds] => {
            let (from, to) = range(seeds)?;
            Task::Profile(worlds(profile), from, to)
        }
        ["--plant", name, seeds] | ["--plant", name, "--seeds", seeds] => {
            let (from, to) = range(seeds)?;
            Task::Plant((*name).to_owned(), check_seed, from, to)
        }
        ["--plant", name, profile @ ("--wide" | "--crowd" | "--sparse"), seeds] => {
            let (from, to) = range(seeds)?;
            Task::Plant((*name).to_owned(), worlds(profile), from, to)
        }
        [seed] if seed.parse::<u64>().is_ok() => Task::One(seed.parse().ok()?),
        [seeds] => {
            let (from, to) = range(seeds)?;
            Task::Many(from, to)
        }
        _ => return None,
    })
}

fn worlds(profile: &str) -> CheckedRun {
    match profile {
        "--wide" => check_wide,
        "--crowd" => check_crowd,
        _ => check_sparse,
    }
}

fn range(words: &str) -> Option<(u64, u64)> {
    let (from, to) = words.split_once("..")?;
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from < to).then_some((from, to))
}

fn one(check: CheckedRun, seed: u64) -> ExitCode {
    let (verdict, tally) = check(seed, true);
    told(&SEEDS, seed, &verdict, &tally)
}

/// Tells how one run ended.
fn told(runs: &Runs, number: u64, verdict: &Verdict, tally: &RunTally) -> ExitCode {
    println!("{}", tally.describe((1, runs.many)));
    match &verdict {
        Verdict::Well => println!("{} {number}: well", runs.one),
        Verdict::Failed(failure) => println!("{} {number}: {failure}", runs.one),
        Verdict::Panicked => {
            println!("{} {number}: an assertion of the engine or the simulator failed, see above", runs.one);
        }
    }
    ExitCode::from(verdict.code())
}

/// One sparse scenario, of its steps only these where some are named.
fn scenario(number: u64, steps: Option<&[usize]>) -> ExitCode {
    let whole = SparseScenario::draw(number);
    let drawn = steps.map_or_else(|| whole.clone(), |steps| whole.only(steps));
    let (verdict, tally) = check_scenario(&drawn, true);
    told(&SPARSE, number, &verdict, &tally)
}

fn shrunk(number: u64) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let scenario = SparseScenario::draw(number);
    let (verdict, tally) = check_scenario(&scenario, false);
    if !verdict.is_well() {
        let kept = shrink(&scenario, &verdict);
        scenario.only(&kept).steps.iter().for_each(|(pause, step)| {
            println!("{:>12.6} s later {step:?}", *pause as f64 / 1e9);
        });
        let kept: Vec<String> = kept.iter().map(usize::to_string).collect();
        println!("sim --sparse {number} {}", kept.join(","));
    }
    told(&SPARSE, number, &verdict, &tally)
}

fn sparse_for(seconds: u64, from: u64) -> ExitCode {
    let sum = run_many(check_sparse, from, u64::MAX, Some(Instant::now() + Duration::from_secs(seconds)));
    println!("scenarios {from}..{}", from + sum.seeds);
    ExitCode::from(conclude(&sum, &SPARSE))
}

fn many(from: u64, to: u64) -> ExitCode {
    let sum = run_many(check_seed, from, to, None);
    let mut code = conclude(&sum, &SEEDS);
    let missing = if to - from >= SEEDS_WORTH_A_LOOK { sum.tally.missing() } else { Vec::new() };
    missing.iter().for_each(|what| eprintln!("never taken: {what}"));
    let unjudged = sum.tally.unjudged * 1000 > sum.seeds * UNJUDGED_PER_MILLE_MAX;
    if unjudged {
        eprintln!("too many seeds were not judged at rest: {} of {}", sum.tally.unjudged, sum.seeds);
    }
    if code == 0 && (!missing.is_empty() || unjudged) && to - from >= SEEDS_FOR_BRANCHES {
        code = 5;
    }
    ExitCode::from(code)
}

fn for_seconds(seconds: u64, from: u64) -> ExitCode {
    let sum = run_many(check_seed, from, u64::MAX, Some(Instant::now() + Duration::from_secs(seconds)));
    println!("seeds {from}..{}", from + sum.seeds);
    ExitCode::from(conclude(&sum, &SEEDS))
}

/// Prints the sum; the worst exit code.
fn conclude(sum: &Sum, runs: &Runs) -> u8 {
    let mut worst = 0;
    for (seed, verdict) in &sum.failed {
        match verdict {
            Verdict::Failed(failure) => println!("{} {seed}: {failure}", runs.one),
            _ => println!("{} {seed}: an assertion failed", runs.one),
        }
        worst = if worst == 0 { verdict.code() } else { worst.min(verdict.code()) };
    }
    if let Some((seed, _)) = sum.failed.first() {
        println!("to see every transition: cargo run --profile sim -p sim -- {}{seed}", runs.replay);
    }
    println!("{}", sum.tally.describe((sum.seeds, runs.many)));
    println!("{} passed, {} failed", sum.seeds - sum.failed.len() as u64, sum.failed.len());
    worst
}

fn liars(from: u64, to: u64) -> ExitCode {
    let found = sim::hostile::run_many(from, to);
    found.failed.iter().for_each(|(seed, what)| println!("sim --liars {seed}: {what}"));
    println!("{}", found.sum);
    println!("{} passed, {} failed", to - from - found.failed.len() as u64, found.failed.len());
    ExitCode::from(u8::from(!found.failed.is_empty()))
}

fn liar(seed: u64) -> ExitCode {
    match sim::hostile::run(seed, true) {
        Ok(reached) => {
            println!("seed {seed}: well, {reached:?}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("seed {seed}: {what}");
            ExitCode::FAILURE
        }
    }
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

fn story_names() -> ExitCode {
    script::all().iter().for_each(|script| println!("{}", script.name));
    ExitCode::SUCCESS
}

fn story(name: &str, trips: &[Trip]) -> ExitCode {
    let scripts = script::all();
    let Some(script) = scripts.iter().find(|script| script.name == name) else {
        let names: Vec<&str> = scripts.iter().map(|script| script.name).collect();
        eprintln!("there is no story `{name}`; there are: {}", names.join(", "));
        return ExitCode::from(3);
    };
    match script.check(trips, true).0 {
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
fn plant(name: &str, check: CheckedRun, from: u64, to: u64) -> ExitCode {
    if !engine::planted::plant(name) {
        eprintln!("there is no fault `{name}` to plant; `sim --faults` lists them");
        return ExitCode::from(3);
    }
    std::panic::set_hook(Box::new(|_| {}));
    for seed in from..to {
        if let (Verdict::Failed(failure), _) = check(seed, false) {
            println!("caught {} {} seed {seed}: {}", seed - from + 1, failure.oracle, failure.what);
            return ExitCode::SUCCESS;
        }
    }
    println!("missed {}", to - from);
    ExitCode::from(6)
}

#[cfg(not(feature = "planted"))]
fn plant(name: &str, _: CheckedRun, _: u64, _: u64) -> ExitCode {
    eprintln!("this build cannot plant {name}: build it with `--features planted --profile faults`");
    ExitCode::from(3)
}
