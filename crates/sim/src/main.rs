//! `sim SEED` runs one seed and prints a line per transition; the other forms run many (`sim --help`).
//!
//! Exit code: 0 all well, 1 a checker objected, 2 the engine's own assertion, 3 usage, 4 no progress, 5 a rare branch or an
//! edge was never taken, or too many wide worlds were not checked at rest, 6 an injected fault was not caught.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::runner::{SeedTotals, SeedVerdict, check_run, check_scenario, run_many, shrink};
use sim::scenarios::enumerate::{CrashDepth, CrashReport, enumerate};
use sim::scenarios::histories::{self, History};
use sim::scenarios::script;
use sim::scenarios::sparse::{SparseScenario, run_sparse};
use sim::simulation::{SeedRun, run_crowd, run_life, run_seed, run_skirmish, run_wide};
use sim::tally::RunTally;
use sim::trips::Trip;

/// Fewer seeds than this need not reach every rare branch.
const SEEDS_FOR_BRANCHES: u64 = 1000;
/// From this many on it is told which ones they did not reach.
const SEEDS_WORTH_A_LOOK: u64 = 200;

/// So many of a thousand seeds may end before they are checked at rest, because a wide volume would need a full sync.
const UNCHECKED_PER_MILLE_MAX: u64 = 30;

const USAGE: &str = "\
usage: sim SEED                       one seed, a line per transition
       sim FROM..TO | --seeds COUNT   many, TO not included; from 1000 seeds on every rare branch must be taken
       sim --seconds N [--from SEED]  seeds until then
       sim --skirmishes FROM..TO      the skirmishes of seeds alone, each a tenth of a second; of one alone: a line per transition
       sim --sparse FROM..TO          sparse scenarios: few writes, much time; about ten milliseconds each
       sim --sparse SECONDS --from N  as many as there is time for, from that number on
       sim --sparse N [STEP,...]      one of them, a line per step and transition; of its steps only these
       sim --shrink N                 drops steps of one that fails as long as the same checker objects
       sim --hostile FROM..TO | SEED  a peer that is authenticated and wrong; one seed: a line per frame
       sim --wide FROM..TO            seeds whose volumes have 8 GiB to 16 TiB; of one alone: a line per transition
       sim --lives FROM..TO           groups that get other volumes and lose disks; of one alone: a line per transition
       sim --crowd FROM..TO           65 to 128 groups that all catch up at once; of one alone: a line per transition
       sim --scenarios [full]         every scripted scenario with a crash at its instants, and at those of its recovery
       sim --scenarios names          what they are called
       sim --scenario NAME [TRIP [TRIP]] one, a line per transition
       sim --histories [DEPTH]        every history of a pair up to so many events, judged by the writes that both hold
       sim --history MODE[,EVENT...]  one, a line per transition
       sim --faults                   the faults that can be injected
       sim --inject NAME --histories DEPTH
                                      the same with histories
       sim --inject NAME [--wide | --crowd | --lives | --sparse] FROM..TO
                                      injects one and runs seeds until a checker catches it (cargo feature `injected-faults`)";

/// Runs of one kind: what one of them and many are called, and the words that replay one with a line per transition.
struct Runs {
    one: &'static str,
    many: &'static str,
    replay: fn(u64) -> String,
}

const SEEDS: Runs = Runs { one: "seed", many: "seeds", replay: |seed| seed.to_string() };
const SKIRMISHES: Runs = Runs { replay: |seed| alone("--skirmishes", seed), ..SEEDS };
const WIDE: Runs = Runs { replay: |seed| alone("--wide", seed), ..SEEDS };
const LIVES: Runs = Runs { replay: |seed| alone("--lives", seed), ..SEEDS };
const CROWD: Runs = Runs { replay: |seed| alone("--crowd", seed), ..SEEDS };
const SPARSE: Runs = Runs { one: "scenario", many: "scenarios", replay: |number| format!("--sparse {number}") };

/// A range of one seed.
fn alone(profile: &str, seed: u64) -> String {
    format!("{profile} {seed}..{}", seed + 1)
}

/// What was asked for.
enum SimTask {
    One(SeedRun, u64),
    Many(u64, u64),
    Seconds(u64, u64),
    SparseFor(u64, u64),
    Scenario(u64, Option<Vec<usize>>),
    Shrink(u64),
    HostilePeers(u64, u64),
    HostilePeer(u64),
    Runs(SeedRun, &'static Runs, u64, u64),
    Crashes(CrashDepth),
    ScriptNames,
    Script(String, Vec<Trip>),
    Histories(usize),
    History(History),
    Faults,
    Inject(String, SeedRun, u64, u64),
    InjectHistories(String, usize),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match task(&words) {
        Some(SimTask::One(run, seed)) => one(run, seed),
        Some(SimTask::Many(from, to)) => many(from, to),
        Some(SimTask::Seconds(seconds, from)) => for_seconds(seconds, from),
        Some(SimTask::SparseFor(seconds, from)) => sparse_for(seconds, from),
        Some(SimTask::Scenario(number, steps)) => scenario(number, steps.as_deref()),
        Some(SimTask::Shrink(number)) => shrunk(number),
        Some(SimTask::HostilePeers(from, to)) => hostile_peers(from, to),
        Some(SimTask::HostilePeer(seed)) => hostile_peer(seed),
        Some(SimTask::Runs(run, runs, from, to)) => ExitCode::from(conclude(&run_many(run, from, to, None), runs)),
        Some(SimTask::Crashes(depth)) => crashes(depth),
        Some(SimTask::ScriptNames) => script_names(),
        Some(SimTask::Script(name, trips)) => scripted(&name, &trips),
        Some(SimTask::Histories(depth)) => histories(depth),
        Some(SimTask::History(history)) => one_history(&history),
        Some(SimTask::Faults) => list_faults(),
        Some(SimTask::InjectHistories(name, depth)) => inject_histories(&name, depth),
        Some(SimTask::Inject(name, run, from, to)) => inject(&name, run, from, to),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(3)
        }
    }
}

fn task(words: &[&str]) -> Option<SimTask> {
    Some(match words {
        ["--scenarios"] => SimTask::Crashes(CrashDepth::SAMPLE),
        ["--scenarios", "full"] => SimTask::Crashes(CrashDepth::FULL),
        ["--scenarios", "names"] => SimTask::ScriptNames,
        ["--scenario", name, trips @ ..] => {
            let trips: Option<Vec<Trip>> = trips.iter().map(|words| words.parse().ok()).collect();
            SimTask::Script((*name).to_owned(), trips?)
        }
        ["--histories"] => SimTask::Histories(histories::DEPTH),
        ["--histories", depth] => SimTask::Histories(depth.parse().ok()?),
        ["--history", words] => SimTask::History(History::parse(words)?),
        ["--faults"] => SimTask::Faults,
        ["--seeds", count] => SimTask::Many(0, count.parse().ok().filter(|count| *count > 0)?),
        ["--seconds", seconds] => SimTask::Seconds(seconds.parse().ok()?, 0),
        ["--seconds", seconds, "--from", seed] => SimTask::Seconds(seconds.parse().ok()?, seed.parse().ok()?),
        ["--sparse", number] if number.parse::<u64>().is_ok() => SimTask::Scenario(number.parse().ok()?, None),
        ["--sparse", numbers] => {
            let (from, to) = range(numbers)?;
            SimTask::Runs(run_sparse, &SPARSE, from, to)
        }
        ["--sparse", seconds, "--from", number] => SimTask::SparseFor(seconds.parse().ok()?, number.parse().ok()?),
        ["--sparse", number, steps] => {
            let steps: Option<Vec<usize>> = steps.split(',').map(|step| step.parse().ok()).collect();
            SimTask::Scenario(number.parse().ok()?, Some(steps?))
        }
        ["--shrink", number] => SimTask::Shrink(number.parse().ok()?),
        ["--hostile", seed] if seed.parse::<u64>().is_ok() => SimTask::HostilePeer(seed.parse().ok()?),
        ["--hostile", seeds] => {
            let (from, to) = range(seeds)?;
            SimTask::HostilePeers(from, to)
        }
        [profile @ ("--wide" | "--crowd" | "--lives" | "--skirmishes"), seeds] => {
            let (from, to) = range(seeds)?;
            match worlds(profile) {
                (run, _) if to == from + 1 => SimTask::One(run, from),
                (run, runs) => SimTask::Runs(run, runs, from, to),
            }
        }
        ["--inject", name, seeds] | ["--inject", name, "--seeds", seeds] => {
            let (from, to) = range(seeds)?;
            SimTask::Inject((*name).to_owned(), run_seed, from, to)
        }
        ["--inject", name, "--histories", depth] => SimTask::InjectHistories((*name).to_owned(), depth.parse().ok()?),
        ["--inject", name, profile @ ("--wide" | "--crowd" | "--lives" | "--sparse"), seeds] => {
            let (from, to) = range(seeds)?;
            SimTask::Inject((*name).to_owned(), worlds(profile).0, from, to)
        }
        [seed] if seed.parse::<u64>().is_ok() => SimTask::One(run_seed, seed.parse().ok()?),
        [seeds] => {
            let (from, to) = range(seeds)?;
            SimTask::Many(from, to)
        }
        _ => return None,
    })
}

fn worlds(profile: &str) -> (SeedRun, &'static Runs) {
    match profile {
        "--wide" => (run_wide, &WIDE),
        "--crowd" => (run_crowd, &CROWD),
        "--lives" => (run_life, &LIVES),
        "--skirmishes" => (run_skirmish, &SKIRMISHES),
        _ => (run_sparse, &SPARSE),
    }
}

fn range(words: &str) -> Option<(u64, u64)> {
    let (from, to) = words.split_once("..")?;
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from < to).then_some((from, to))
}

fn one(run: SeedRun, seed: u64) -> ExitCode {
    let (verdict, tally) = check_run(run, seed, true);
    report_verdict(&SEEDS, seed, &verdict, &tally)
}

/// Tells how one run ended.
fn report_verdict(runs: &Runs, number: u64, verdict: &SeedVerdict, tally: &RunTally) -> ExitCode {
    println!("{}", tally.describe((1, runs.many)));
    match &verdict {
        SeedVerdict::Well => println!("{} {number}: well", runs.one),
        SeedVerdict::Failed(failure) => println!("{} {number}: {failure}", runs.one),
        SeedVerdict::Panicked => {
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
    report_verdict(&SPARSE, number, &verdict, &tally)
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
    report_verdict(&SPARSE, number, &verdict, &tally)
}

fn sparse_for(seconds: u64, from: u64) -> ExitCode {
    let sum = run_many(run_sparse, from, u64::MAX, Some(Instant::now() + Duration::from_secs(seconds)));
    println!("scenarios {from}..{}", from + sum.seeds);
    ExitCode::from(conclude(&sum, &SPARSE))
}

fn many(from: u64, to: u64) -> ExitCode {
    let sum = run_many(run_seed, from, to, None);
    let mut code = conclude(&sum, &SEEDS);
    let missing = if to - from >= SEEDS_WORTH_A_LOOK { sum.tally.missing() } else { Vec::new() };
    missing.iter().for_each(|what| eprintln!("never taken: {what}"));
    let unchecked = sum.tally.unchecked * 1000 > sum.seeds * UNCHECKED_PER_MILLE_MAX;
    if unchecked {
        eprintln!("too many seeds were not checked at rest: {} of {}", sum.tally.unchecked, sum.seeds);
    }
    if code == 0 && (!missing.is_empty() || unchecked) && to - from >= SEEDS_FOR_BRANCHES {
        code = 5;
    }
    ExitCode::from(code)
}

fn for_seconds(seconds: u64, from: u64) -> ExitCode {
    let sum = run_many(run_seed, from, u64::MAX, Some(Instant::now() + Duration::from_secs(seconds)));
    println!("seeds {from}..{}", from + sum.seeds);
    ExitCode::from(conclude(&sum, &SEEDS))
}

/// Prints the sum; the worst exit code.
fn conclude(sum: &SeedTotals, runs: &Runs) -> u8 {
    let mut worst = 0;
    for (seed, verdict) in &sum.failed {
        match verdict {
            SeedVerdict::Failed(failure) => println!("{} {seed}: {failure}", runs.one),
            _ => println!("{} {seed}: an assertion failed", runs.one),
        }
        worst = if worst == 0 { verdict.code() } else { worst.min(verdict.code()) };
    }
    if let Some((seed, _)) = sum.failed.first() {
        println!("to see every transition: cargo run --profile sim -p sim -- {}", (runs.replay)(*seed));
    }
    println!("{}", sum.tally.describe((sum.seeds, runs.many)));
    println!("{} passed, {} failed", sum.seeds - sum.failed.len() as u64, sum.failed.len());
    worst
}

fn hostile_peers(from: u64, to: u64) -> ExitCode {
    let found = sim::hostile::run_many(from, to);
    found.failed.iter().for_each(|(seed, what)| println!("sim --hostile {seed}: {what}"));
    println!("{}", found.sum);
    println!("{} passed, {} failed", to - from - found.failed.len() as u64, found.failed.len());
    ExitCode::from(u8::from(!found.failed.is_empty()))
}

fn hostile_peer(seed: u64) -> ExitCode {
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

fn crashes(depth: CrashDepth) -> ExitCode {
    let mut sum = CrashReport::default();
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
        report.found.iter().for_each(|found| println!("sim --scenario {found}"));
        sum.add(report);
    }
    println!("scenarios: {:.1} virtual hours", sum.virtual_ns as f64 / 3.6e12);
    println!("{} passed, {} failed", sum.single + sum.double - sum.found.len(), sum.found.len());
    ExitCode::from(u8::from(!sum.found.is_empty()))
}

fn script_names() -> ExitCode {
    script::all().iter().for_each(|script| println!("{}", script.name));
    ExitCode::SUCCESS
}

fn scripted(name: &str, trips: &[Trip]) -> ExitCode {
    let scripts = script::all();
    let Some(script) = scripts.iter().find(|script| script.name == name) else {
        let names: Vec<&str> = scripts.iter().map(|script| script.name).collect();
        eprintln!("there is no scenario `{name}`; there are: {}", names.join(", "));
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

fn histories(depth: usize) -> ExitCode {
    let report = histories::enumerate(depth, false);
    for (row, count) in &report.rows {
        println!("{}: taken in {count} histories", row.name());
    }
    for (row, count) in &report.apart_without_loss {
        println!("{}: {count} histories stay apart though nothing would be lost", row.name());
    }
    report.bad.iter().take(40).for_each(|bad| println!("sim --history {}: {}", bad.history.words(), bad.what));
    let unlisted = report.unlisted(depth);
    unlisted.iter().for_each(|what| println!("{what}"));
    let (all, hours) = (report.histories, report.virtual_ns as f64 / 3.6e12);
    println!("{all} histories: {} joined, {hours:.1} virtual hours", report.joined);
    println!("{} passed, {} failed", all - report.bad.len(), report.bad.len());
    ExitCode::from(if report.bad.is_empty() { 5 * u8::from(!unlisted.is_empty()) } else { 1 })
}

fn one_history(history: &History) -> ExitCode {
    let Some(objection) = history.tell() else {
        println!("its last event changes nothing");
        return ExitCode::from(3);
    };
    println!("{}", objection.as_deref().unwrap_or("well"));
    ExitCode::from(u8::from(objection.is_some()))
}

fn list_faults() -> ExitCode {
    for fault in engine::injected_fault::Fault::ALL {
        println!("{}\t{}\t{}", fault.name(), fault.breaks(), fault.how());
    }
    ExitCode::SUCCESS
}

/// Prints `caught COUNT ORACLE SENTENCE` or `missed COUNT`: how many seeds it took, and who objected. An assertion of the
/// engine is no verdict: only a checker may object.
fn inject(name: &str, run: SeedRun, from: u64, to: u64) -> ExitCode {
    with_fault(name, || {
        for seed in from..to {
            if let (SeedVerdict::Failed(failure), _) = check_run(run, seed, false) {
                let caught = format!("caught {} {} seed {seed}: {}", seed - from + 1, failure.oracle, failure.what);
                return (true, caught);
            }
        }
        (false, format!("missed {}", to - from))
    })
}

/// The same with histories, of which only the truth is asked.
fn inject_histories(name: &str, depth: usize) -> ExitCode {
    with_fault(name, || {
        let report = histories::enumerate(depth, true);
        match report.bad.iter().find(|bad| !bad.is_assertion) {
            Some(bad) => (true, format!("caught {} {}: {}", report.histories, bad.history.words(), bad.what)),
            None => (false, format!("missed {}", report.histories)),
        }
    })
}

/// Injects a fault for the whole process; what `runs` says, and whether it caught the fault.
#[cfg(feature = "injected-faults")]
fn with_fault(name: &str, runs: impl FnOnce() -> (bool, String)) -> ExitCode {
    if !engine::injected_fault::inject(name) {
        eprintln!("there is no fault `{name}` to inject; `sim --faults` lists them");
        return ExitCode::from(3);
    }
    std::panic::set_hook(Box::new(|_| {}));
    let (is_caught, words) = runs();
    println!("{words}");
    ExitCode::from(if is_caught { 0 } else { 6 })
}

#[cfg(not(feature = "injected-faults"))]
fn with_fault(name: &str, _: impl FnOnce() -> (bool, String)) -> ExitCode {
    eprintln!("this build cannot inject {name}: build it with `--features injected-faults --profile faults`");
    ExitCode::from(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a wide world that failed it named the plain seed, which is another run.
    #[test]
    fn the_line_that_is_printed_replays_the_same_kind_of_run() {
        for (profile, line) in [
            ("--wide", "--wide 7..8"),
            ("--crowd", "--crowd 7..8"),
            ("--skirmishes", "--skirmishes 7..8"),
            ("--sparse", "--sparse 7"),
        ] {
            let Some(SimTask::Runs(_, runs, 3, 9)) = task(&[profile, "3..9"]) else { panic!("{profile}") };
            let replay = (runs.replay)(7);
            let again: Vec<&str> = replay.split(' ').collect();
            assert_eq!(replay, line);
            assert!(matches!(task(&again), Some(SimTask::One(_, 7) | SimTask::Scenario(7, None))), "{line}");
        }
        let plain = (SEEDS.replay)(7);
        assert!(matches!(task(&[plain.as_str()]), Some(SimTask::One(_, 7))), "{plain}");
    }
}
