//! `cargo xtask soak`: seeds, sparse scenarios, hostile peers, enumerated crashes and fuzzers on all cores, until the time
//! is over. Its last line is for docs/book/reliability.md.

use crate::mutants::{self, MutantsArgs};
use crate::project::Project;
use anyhow::{Context, Result, ensure};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct SoakArgs {
    /// How long; without it until it is stopped (a sum is printed after every slice)
    #[arg(long)]
    minutes: Option<u64>,
    /// The first seed, sparse scenario and hostile peer; what mutants are drawn by
    #[arg(long, default_value_t = 1_000_000)]
    from: u64,
    /// Leave out the fuzzers
    #[arg(long)]
    no_fuzz: bool,
    #[command(flatten)]
    mutants: MutantsArgs,
}

/// Seeds, or sparse scenarios, run for so long at a time.
const SLICE: Duration = Duration::from_secs(10 * 60);
/// Hostile peers of one slice: about a minute of two cores.
const HOSTILE_PEERS_PER_SLICE: u64 = 5_000;
/// Each fuzz target grows for so long, once per soak and hour.
const FUZZ_SECONDS: u64 = 20;

/// What was run so far.
#[derive(Debug, Default)]
struct SoakTotals {
    seeds: u64,
    scenarios: u64,
    hostile_peers: u64,
    faults: u64,
    crashes: u64,
    scripted: u64,
    virtual_hours: f64,
    failures: u64,
}

/// Runs until the time is over. Non-zero if anything failed.
pub fn main(arguments: &SoakArgs) -> Result<ExitCode> {
    if let Some(shard) = arguments.mutants.shard {
        return mutants::main(&arguments.mutants, shard, arguments.from, arguments.minutes);
    }
    let project = Project::find()?;
    let build = ["build", "--profile", "sim", "--locked", "--package", "sim"];
    let status = project.command("cargo").args(build).status().context("starting `cargo build` failed")?;
    ensure!(status.success(), "building the simulator failed; see above");
    let sim = project.target.join("sim/sim").to_string_lossy().into_owned();
    let begin = Instant::now();
    let deadline = arguments.minutes.map(|minutes| begin + Duration::from_secs(60 * minutes));
    let mut sum = SoakTotals::default();
    let mut slice = 0;
    while deadline.is_none_or(|deadline| Instant::now() < deadline) {
        match slice % 6 {
            1 => scripted(&sim, &mut sum)?,
            2 if !arguments.no_fuzz => fuzz(&project, &mut sum)?,
            4 => scenarios(&sim, arguments.from, deadline, &mut sum)?,
            5 => hostile_peers(&sim, arguments.from, &mut sum)?,
            _ => seeds(&sim, arguments.from, deadline, &mut sum)?,
        }
        slice += 1;
        let minutes = begin.elapsed().as_secs() / 60;
        let from = arguments.from;
        let (seeds, scenarios, hostile_peers) = (from + sum.seeds, from + sum.scenarios, from + sum.hostile_peers);
        println!(
            "soak: {minutes} minutes, seeds {from}..{seeds}, sparse scenarios {from}..{scenarios}, hostile peers \
             {from}..{hostile_peers}, {} crashes at chosen instants of scripted scenarios, {:.1} virtual hours, {} faults and {} crashes in \
             seeds, {} failures",
            sum.scripted, sum.virtual_hours, sum.faults, sum.crashes, sum.failures
        );
    }
    Ok(if sum.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A slice of seeds, from where the last one ended.
fn seeds(sim: &str, from: u64, deadline: Option<Instant>, sum: &mut SoakTotals) -> Result<()> {
    let seconds = slice_until(deadline);
    let text = run(Command::new(sim).args(["--seconds", &seconds, "--from", &(from + sum.seeds).to_string()]))?;
    let line = text.lines().find(|line| line.contains(" seeds: ")).context("the simulator printed no sum")?;
    sum.seeds += number_before(line, " seeds: ").unwrap_or(0);
    sum.faults += number_before(line, " faults").unwrap_or(0);
    sum.crashes += number_before(line, " crashes").unwrap_or(0);
    sum.take(&text);
    Ok(())
}

/// A slice of sparse scenarios, from where the last one ended.
fn scenarios(sim: &str, from: u64, deadline: Option<Instant>, sum: &mut SoakTotals) -> Result<()> {
    let seconds = slice_until(deadline);
    let text = run(Command::new(sim).args(["--sparse", &seconds, "--from", &(from + sum.scenarios).to_string()]))?;
    let line = text.lines().find(|line| line.contains(" scenarios: ")).context("the simulator printed no sum")?;
    sum.scenarios += number_before(line, " scenarios: ").unwrap_or(0);
    sum.take(&text);
    Ok(())
}

/// A slice of peers that are authenticated and wrong, from where the last one ended.
fn hostile_peers(sim: &str, from: u64, sum: &mut SoakTotals) -> Result<()> {
    let first = from + sum.hostile_peers;
    let text = run(Command::new(sim).args(["--hostile", &format!("{first}..{}", first + HOSTILE_PEERS_PER_SLICE)]))?;
    sum.hostile_peers += HOSTILE_PEERS_PER_SLICE;
    sum.take(&text);
    Ok(())
}

/// In seconds, as the simulator wants it.
fn slice_until(deadline: Option<Instant>) -> String {
    let left = deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(Instant::now()));
    left.min(SLICE).as_secs().max(1).to_string()
}

/// Every scripted scenario with a crash at each of its instants.
fn scripted(sim: &str, sum: &mut SoakTotals) -> Result<()> {
    let text = run(Command::new(sim).args(["--scenarios", "full"]))?;
    let last = text.lines().last().unwrap_or_default();
    sum.scripted += number_before(last, " passed").unwrap_or(0) + number_before(last, " failed").unwrap_or(0);
    sum.take(&text);
    Ok(())
}

/// Grows every fuzz target's corpus for a while, where libFuzzer can be had.
fn fuzz(project: &Project, sum: &mut SoakTotals) -> Result<()> {
    let there = Command::new("cargo").args(["+nightly", "fuzz", "--version"]).current_dir(&project.root).output();
    if !there.is_ok_and(|output| output.status.success()) {
        println!("no libFuzzer here (`cargo +nightly fuzz` does not run): fuzzers skipped");
        return Ok(());
    }
    let mut command = Command::new("cargo");
    let list = command.args(["+nightly", "fuzz", "list"]).current_dir(&project.root).output()?;
    let time = format!("-max_total_time={FUZZ_SECONDS}");
    for target in String::from_utf8_lossy(&list.stdout).lines() {
        let arguments = ["+nightly", "fuzz", "run", "--features", "libfuzzer", target, "--", &time];
        let status = Command::new("cargo").args(arguments).current_dir(&project.root).status()?;
        if !status.success() {
            println!("the fuzz target {target} failed; see above");
            sum.failures += 1;
        }
    }
    Ok(())
}

impl SoakTotals {
    /// What both kinds of runs say at their end.
    fn take(&mut self, text: &str) {
        let last = text.lines().last().unwrap_or_default();
        self.failures += number_before(last, " failed").unwrap_or(1);
        let hours = text
            .lines()
            .filter_map(|line| line.strip_suffix(" virtual hours")?.rsplit(' ').next()?.parse::<f64>().ok());
        self.virtual_hours += hours.sum::<f64>();
    }
}

/// Runs a program to its end and shows what it says. That it found something is no error here: its words are counted.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().context("starting the simulator failed")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{text}");
    ensure!(!text.is_empty(), "the simulator ended without a word: {}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// The whole number that stands right before `words`.
fn number_before(line: &str, words: &str) -> Option<u64> {
    let (before, _) = line.split_once(words)?;
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulators_words_are_understood() {
        let text = "seeds 7..67\n60 seeds: 308375 writes (36 % overlapping), 736 faults, 333 crashes, 274 prefixes and \
                    47080 coverages checked, 1.7 virtual hours\n59 passed, 1 failed\n";
        let line = text.lines().nth(1).expect("three lines");
        assert_eq!(number_before(line, " seeds: "), Some(60));
        assert_eq!(number_before(line, " faults"), Some(736));
        assert_eq!(number_before(line, " crashes"), Some(333));
        let mut sum = SoakTotals::default();
        sum.take(text);
        assert_eq!((sum.failures, sum.virtual_hours), (1, 1.7));
        sum.take("it broke");
        assert_eq!(sum.failures, 2, "no verdict is a failure");
    }
}
