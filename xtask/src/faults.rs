//! `cargo xtask faults`: injects one fault after the other in the engine, whose own invariants are off, and counts the
//! seeds until a checker outside of it objects. The same worlds pass without a fault.

use crate::measured::RunFile;
use crate::project::Project;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Mutex;

#[derive(clap::Args)]
pub struct FaultsArgs {
    /// Only these; without any, all
    names: Vec<String>,
    /// Seeds to try in each range
    #[arg(long, default_value_t = SEEDS)]
    seeds: u64,
    /// Ranges of seeds to try; the median over them is what counts
    #[arg(long, default_value_t = RANGES)]
    ranges: u64,
    /// Also add the rows of those that are caught to this file of measurements, of which a test makes the table in
    /// docs/book/simulator.md
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
}

/// Seeds of a range, and ranges, of the table in docs/book/simulator.md.
const SEEDS: u64 = 200;
const RANGES: u64 = 3;
/// Where the next range of seeds begins.
const RANGE_STEP: u64 = 100_000;
/// Worlds of other kinds, for a fault that seeds do not show: how the simulator calls them, and how many are tried.
const OTHER_WORLDS: [(&str, u64); 2] = [("--sparse", 40_000), ("--wide", 100)];

/// A fault as the simulator lists it.
#[derive(Clone, Debug)]
struct ListedFault {
    name: String,
    breaks: String,
}

/// What a range of seeds came to.
#[derive(Clone, Debug)]
struct FaultOutcome {
    /// One more than were tried if nobody objected.
    seeds: u64,
    oracle: String,
    /// Of which kind, if not seeds.
    worlds: Option<&'static str>,
}

/// A row for the page: how many worlds of which kind each range took, and the median of the ranges.
#[derive(Serialize)]
struct FaultRow {
    fault: String,
    counts: Vec<u64>,
    worlds: Vec<&'static str>,
    median_count: u64,
    median_worlds: &'static str,
    checker: String,
}

/// How many worlds of each kind it took to catch all that they caught.
type Farthest = BTreeMap<Option<&'static str>, u64>;

impl FaultOutcome {
    fn is_caught(&self, tried: u64) -> bool {
        self.worlds.is_some() || self.seeds <= tried
    }

    fn worlds_name(&self) -> &'static str {
        self.worlds.map_or("seeds", |option| option.trim_start_matches('-'))
    }
}

impl FaultRow {
    fn new(fault: &ListedFault, outcomes: &[FaultOutcome], median: &FaultOutcome) -> FaultRow {
        FaultRow {
            fault: fault.name.clone(),
            counts: outcomes.iter().map(|outcome| outcome.seeds).collect(),
            worlds: outcomes.iter().map(FaultOutcome::worlds_name).collect(),
            median_count: median.seeds,
            median_worlds: median.worlds_name(),
            checker: median.oracle.clone(),
        }
    }
}

/// Builds the simulator with the faults in it, runs them all, and prints the table. Non-zero if one is not caught, or
/// if a seed does not pass without a fault.
pub fn main(arguments: &FaultsArgs) -> Result<ExitCode> {
    ensure!(arguments.seeds > 0 && arguments.ranges > 0, "there must be at least one seed and one range");
    let project = Project::find()?;
    let unlike = [(arguments.seeds != SEEDS, "`--seeds`"), (arguments.ranges != RANGES, "`--ranges`")];
    let machine = "any: a seed is the same run on each";
    let open = |path: &PathBuf| RunFile::open(path, project.commit(), machine.to_owned(), unlike);
    let file = arguments.append.as_ref().map(open).transpose()?;
    let build = ["build", "--profile", "faults", "--locked", "--package", "sim", "--features", "injected-faults"];
    let status = project.command("cargo").args(build).status().context("starting `cargo build` failed")?;
    ensure!(status.success(), "building the simulator failed; see above");
    let sim = project.target.join("faults/sim").to_string_lossy().into_owned();
    let faults = chosen(list(&sim)?, &arguments.names)?;
    let outcomes = run_all(&sim, &faults, arguments)?;
    println!("{:<28} {:<22} {:>6}  {:<14} by", "fault", "breaks", "median", "seeds");
    let (mut missed, mut farthest, mut rows) = (0, Farthest::new(), Vec::new());
    for (fault, of_fault) in faults.iter().zip(outcomes) {
        let seeds: Vec<String> = of_fault.iter().map(|outcome| outcome_text(outcome, arguments.seeds)).collect();
        for outcome in of_fault.iter().filter(|outcome| outcome.is_caught(arguments.seeds)) {
            let most = farthest.entry(outcome.worlds).or_default();
            *most = outcome.seeds.max(*most);
        }
        let mut sorted: Vec<&FaultOutcome> = of_fault.iter().collect();
        sorted.sort_by_key(|outcome| (!outcome.is_caught(arguments.seeds), outcome.worlds, outcome.seeds));
        let median = sorted[sorted.len() / 2];
        match median.is_caught(arguments.seeds) {
            true => rows.push(FaultRow::new(fault, &of_fault, median)),
            false => missed += 1,
        }
        let median_text = outcome_text(median, arguments.seeds);
        let (name, breaks, oracle) = (&fault.name, &fault.breaks, &median.oracle);
        println!("{name:<28} {breaks:<22} {median_text:>6}  {:<14} {oracle}", seeds.join(" "));
    }
    let clean = passes_without(&sim, &farthest, arguments.ranges)?;
    println!("{} faults, {} caught, {missed} missed", faults.len(), faults.len() - missed);
    if let Some(mut file) = file {
        file.add("faults", &rows)?;
    }
    Ok(if missed == 0 && clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn outcome_text(outcome: &FaultOutcome, most: u64) -> String {
    match outcome.worlds {
        Some(worlds) => format!("{}{worlds}", outcome.seeds),
        None if outcome.seeds > most => "-".to_owned(),
        None => outcome.seeds.to_string(),
    }
}

fn list(sim: &str) -> Result<Vec<ListedFault>> {
    let output = Command::new(sim).arg("--faults").output().context("starting the simulator failed")?;
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let fault = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        Some(ListedFault { name: fields.next()?, breaks: fields.next()? })
    };
    Ok(lines.lines().filter_map(fault).collect())
}

fn chosen(all: Vec<ListedFault>, names: &[String]) -> Result<Vec<ListedFault>> {
    for name in names {
        let known: Vec<&str> = all.iter().map(|fault| fault.name.as_str()).collect();
        ensure!(known.contains(&name.as_str()), "there is no fault `{name}`; there are: {}", known.join(", "));
    }
    Ok(all.into_iter().filter(|fault| names.is_empty() || names.contains(&fault.name)).collect())
}

/// Every fault over every range, as many at once as there are cores. Outcomes by fault, then by range.
fn run_all(sim: &str, faults: &[ListedFault], arguments: &FaultsArgs) -> Result<Vec<Vec<FaultOutcome>>> {
    let jobs: VecDeque<(usize, u64)> =
        (0..faults.len()).flat_map(|fault| (0..arguments.ranges).map(move |range| (fault, range))).collect();
    let jobs = Mutex::new(jobs);
    let work = || {
        let mut done = Vec::new();
        loop {
            let next = jobs.lock().ok().and_then(|mut jobs| jobs.pop_front());
            let Some((fault, range)) = next else { return done };
            let from = range * RANGE_STEP;
            let outcome = run_worlds(sim, &faults[fault].name, from, arguments.seeds);
            eprintln!("{}: seeds {from}..: {outcome:?}", faults[fault].name);
            done.push((fault, range, outcome));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let mut done = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).for_each(|part| done.extend(part));
    });
    done.sort_by_key(|(fault, range, _)| (*fault, *range));
    let mut outcomes = vec![Vec::new(); faults.len()];
    for (fault, _, outcome) in done {
        outcomes[fault].push(outcome?);
    }
    Ok(outcomes)
}

/// Seeds first; worlds of other kinds for what they do not show.
fn run_worlds(sim: &str, name: &str, from: u64, seeds: u64) -> Result<FaultOutcome> {
    let outcome = run_one(sim, name, None, from, seeds)?;
    if outcome.is_caught(seeds) {
        return Ok(outcome);
    }
    for (worlds, most) in OTHER_WORLDS {
        let other = run_one(sim, name, Some(worlds), from, most)?;
        if other.seeds <= most {
            return Ok(other);
        }
    }
    Ok(outcome)
}

fn run_one(sim: &str, name: &str, worlds: Option<&'static str>, from: u64, count: u64) -> Result<FaultOutcome> {
    let range = format!("{from}..{}", from + count);
    let output = Command::new(sim).args(["--inject", name]).args(worlds).arg(range).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = text.lines().last().unwrap_or_default().split(' ').collect();
    match words[..] {
        ["caught", seeds, oracle, ..] => Ok(FaultOutcome { seeds: seeds.parse()?, oracle: oracle.to_owned(), worlds }),
        ["missed", ..] => Ok(FaultOutcome { seeds: count + 1, oracle: "nobody".to_owned(), worlds: None }),
        _ => anyhow::bail!("the simulator said `{text}` of the fault {name}, which is no verdict"),
    }
}

/// The worlds that caught the faults, of each kind, without a fault. Two at least: of one alone each step would be told.
fn passes_without(sim: &str, farthest: &Farthest, ranges: u64) -> Result<bool> {
    let mut clean = true;
    for (worlds, count) in farthest {
        for from in (0..ranges).map(|range| range * RANGE_STEP) {
            let numbers = format!("{from}..{}", from + count.max(&2));
            println!("without a fault, {} {numbers}:", worlds.unwrap_or("seeds"));
            clean &= Command::new(sim).args(*worlds).arg(numbers).status()?.success();
        }
    }
    Ok(clean)
}
