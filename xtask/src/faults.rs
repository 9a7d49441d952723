//! `cargo xtask faults`: injects one fault after the other in the engine, whose own invariants are off, and counts the
//! seeds until a checker outside of it objects. The same worlds pass without a fault.

use crate::measured::RunFile;
use crate::project::Project;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::{Mutex, mpsc};

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
    /// Run scenarios alone, until a test fails: those of this file in crates/sim/tests; without a name, all
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    scenarios: Option<String>,
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
/// Lives come first: they reach what operators order in a tenth of the time, and catch most of what seeds do not.
const OTHER_WORLDS: [(&str, u64); 3] = [("--lives", 1_000), ("--sparse", 40_000), ("--wide", 100)];

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
    /// No world is counted: a test fails, whose name this is.
    fn of_scenario(fault: &ListedFault, test: String) -> FaultRow {
        let fault = fault.name.clone();
        FaultRow { fault, counts: vec![], worlds: vec![], median_count: 0, median_worlds: "scenario", checker: test }
    }

    /// `None`: the median range has missed the fault.
    fn of(fault: &ListedFault, outcomes: &[FaultOutcome], tried: u64) -> Option<FaultRow> {
        let median = median(outcomes, tried);
        median.is_caught(tried).then(|| FaultRow {
            fault: fault.name.clone(),
            counts: outcomes.iter().map(|outcome| outcome.seeds).collect(),
            worlds: outcomes.iter().map(FaultOutcome::worlds_name).collect(),
            median_count: median.seeds,
            median_worlds: median.worlds_name(),
            checker: median.oracle.clone(),
        })
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
    let mut file = arguments.append.as_ref().map(open).transpose()?;
    let build = ["build", "--profile", "faults", "--locked", "--package", "sim", "--features", "injected-faults"];
    let status = project.command("cargo").args(build).status().context("starting `cargo build` failed")?;
    ensure!(status.success(), "building the simulator failed; see above");
    let sim = project.target.join("faults/sim").to_string_lossy().into_owned();
    let faults = chosen(list(&sim)?, &arguments.names)?;
    if let Some(module) = &arguments.scenarios {
        return shown_by_scenarios(&project, &faults, module, file.as_mut());
    }
    let outcomes = run_all(&sim, &faults, arguments, |fault, of_fault| {
        let row = FaultRow::of(fault, of_fault, arguments.seeds);
        file.as_mut().zip(row).map_or(Ok(()), |(file, row)| file.add("faults", &[row]))
    })?;
    println!("{:<28} {:<22} {:>6}  {:<14} by", "fault", "breaks", "median", "seeds");
    let (mut missed, mut farthest) = (0, Farthest::new());
    for (fault, of_fault) in faults.iter().zip(outcomes) {
        let seeds: Vec<String> = of_fault.iter().map(|outcome| outcome_text(outcome, arguments.seeds)).collect();
        for outcome in of_fault.iter().filter(|outcome| outcome.is_caught(arguments.seeds)) {
            let most = farthest.entry(outcome.worlds).or_default();
            *most = outcome.seeds.max(*most);
        }
        let median = median(&of_fault, arguments.seeds);
        missed += usize::from(!median.is_caught(arguments.seeds));
        let median_text = outcome_text(median, arguments.seeds);
        let (name, breaks, oracle) = (&fault.name, &fault.breaks, &median.oracle);
        println!("{name:<28} {breaks:<22} {median_text:>6}  {:<14} {oracle}", seeds.join(" "));
    }
    let clean = passes_without(&sim, &farthest, arguments.ranges)?;
    println!("{} faults, {} caught, {missed} missed", faults.len(), faults.len() - missed);
    Ok(if missed == 0 && clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Of the ranges of a fault. Worlds of a kind that is tried later count as more.
fn median(of_fault: &[FaultOutcome], tried: u64) -> &FaultOutcome {
    let mut sorted: Vec<&FaultOutcome> = of_fault.iter().collect();
    let rank = |outcome: &FaultOutcome| OTHER_WORLDS.iter().position(|(worlds, _)| Some(*worlds) == outcome.worlds);
    sorted.sort_by_key(|outcome| (!outcome.is_caught(tried), rank(outcome), outcome.seeds));
    sorted[sorted.len() / 2]
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

/// Every fault over every range, as many at once as there are cores. Outcomes by fault, then by range. `is_counted` hears of each fault as
/// soon as all of its ranges have ended: of a run that is stopped what it has counted stays.
fn run_all(
    sim: &str,
    faults: &[ListedFault],
    arguments: &FaultsArgs,
    mut is_counted: impl FnMut(&ListedFault, &[FaultOutcome]) -> Result<()>,
) -> Result<Vec<Vec<FaultOutcome>>> {
    let jobs: VecDeque<(usize, u64)> =
        (0..faults.len()).flat_map(|fault| (0..arguments.ranges).map(move |range| (fault, range))).collect();
    let jobs = Mutex::new(jobs);
    let (sender, done) = mpsc::channel();
    let work = |sender: mpsc::Sender<(usize, u64, Result<FaultOutcome>)>| {
        while let Some((fault, range)) = jobs.lock().ok().and_then(|mut jobs| jobs.pop_front()) {
            let from = range * RANGE_STEP;
            let outcome = run_worlds(sim, &faults[fault].name, from, arguments.seeds);
            eprintln!("{}: seeds {from}..: {outcome:?}", faults[fault].name);
            if sender.send((fault, range, outcome)).is_err() {
                return;
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let mut outcomes = vec![BTreeMap::new(); faults.len()];
    std::thread::scope(|scope| {
        for sender in vec![sender; threads] {
            scope.spawn(|| work(sender));
        }
        for (fault, range, outcome) in done {
            outcomes[fault].insert(range, outcome?);
            if outcomes[fault].len() as u64 == arguments.ranges {
                let of_fault: Vec<FaultOutcome> = outcomes[fault].values().cloned().collect();
                is_counted(&faults[fault], &of_fault)?;
            }
        }
        Ok(())
    })
    .map(|()| outcomes.into_iter().map(|ranges| ranges.into_values().collect()).collect())
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

/// For what no seed shows, or few: a test of the simulator has to fail with the fault in it. That all pass without one the test command shows.
fn shown_by_scenarios(
    project: &Project,
    faults: &[ListedFault],
    module: &str,
    mut file: Option<&mut RunFile>,
) -> Result<ExitCode> {
    let mut missed = 0;
    for fault in faults {
        let shown = failed_scenario(project, &fault.name, module)?;
        println!("{:<28} {:<22} {}", fault.name, fault.breaks, shown.as_deref().unwrap_or("-"));
        missed += usize::from(shown.is_none());
        if let Some((file, test)) = file.as_mut().zip(shown) {
            file.add("faults", &[FaultRow::of_scenario(fault, test)])?;
        }
    }
    println!("{} faults, {} caught, {missed} missed", faults.len(), faults.len() - missed);
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The first test that fails with the fault in it.
fn failed_scenario(project: &Project, fault: &str, module: &str) -> Result<Option<String>> {
    let run = "nextest run --cargo-profile faults --locked --package sim --features injected-faults -E";
    let which = format!("test(/^{module}/) & not test(/^documented::/)");
    let run = run.split(' ').chain([which.as_str()]);
    let output = project.command("cargo").args(run).env("FARSHORE_INJECT", fault).env("NO_COLOR", "1").output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(text.contains("Summary ["), "the scenarios did not run with the fault {fault}:\n{text}");
    let failed = text.lines().find(|line| line.trim_start().starts_with("FAIL ["));
    Ok(failed.and_then(|line| line.rsplit("::").next()).map(|name| format!("`{}`", name.trim())))
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
