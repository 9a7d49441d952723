//! `cargo xtask soak --mutants K/N`: small changes of the engine, one at a time, drawn at random from all that cargo-mutants knows
//! of, and what objects to each: unit tests, scenarios, seeds, scripted scenarios.
//!
//! The tool lists the mutants; how they are checked is here. Its own driver builds all tests of all crates for each mutant. Here the
//! whole sample is built at once, each mutant behind a switch that is read at run time, and as many are checked at a time as there
//! are cores. What came of each is written down at once, so a run that is stopped goes on where it was.

mod checkers;
mod list;
mod records;
mod switches;
mod tree;

use crate::project::Project;
use anyhow::{Context, Result, anyhow};
use checkers::Workshop;
use list::{Mutant, Shard};
use records::{MutantOutcome, MutantRecord, MutantRecords};
use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct MutantsArgs {
    /// Check mutants of the engine instead: of the sample this shard, such as 1/1 or 2/4
    #[arg(long = "mutants", value_name = "K/N")]
    pub shard: Option<Shard>,
    /// So many mutants are drawn, by the number of --from
    #[arg(long, default_value_t = 250, requires = "shard")]
    sample: usize,
    /// Check those again that no test objected to
    #[arg(long, requires = "shard")]
    again: bool,
    /// Ask only those who are done within seconds; what they let pass is left open for a run that asks all
    #[arg(long, requires = "shard")]
    quick: bool,
    /// Only mutants whose name contains this
    #[arg(long, value_name = "TEXT", requires = "shard")]
    only: Option<String>,
}

/// A sample is well when so many of a hundred are caught; the others need a test, or an argument in docs/book/simulator.md.
const CAUGHT_PERCENT: usize = 97;

/// Checks the shard until it is done or the time is over. Non-zero if too few were caught.
pub fn main(arguments: &MutantsArgs, shard: Shard, from: u64, minutes: Option<u64>) -> Result<ExitCode> {
    let project = Project::find()?;
    let deadline = minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let mut drawn = list::draw(list::all(&project)?, from, shard);
    drawn.retain(|mutant| arguments.only.as_ref().is_none_or(|text| mutant.name.contains(text)));
    let wanted = shard.share_of(arguments.sample);
    let folder = project.target.join("mutants");
    std::fs::create_dir_all(&folder).with_context(|| format!("making {} failed", folder.display()))?;
    let mut records = MutantRecords::load(&folder.join("outcomes.jsonl"))?;
    // Of these nothing more is to be learned in this run.
    let mut done: HashSet<usize> = HashSet::new();
    loop {
        let is_viable =
            |mutant: &&Mutant| records.of(mutant).is_none_or(|known| known.outcome != MutantOutcome::Unviable);
        let sample: Vec<Mutant> = drawn.iter().filter(is_viable).take(wanted).cloned().collect();
        let is_due = |mutant: &&Mutant| !done.contains(&mutant.id) && arguments.asks(records.of(mutant));
        let due: Vec<&Mutant> = sample.iter().filter(is_due).collect();
        // Each one that does not compile has another one in its place by now.
        if due.is_empty() || is_over(deadline) {
            let checked: Vec<&MutantRecord> = sample.iter().filter_map(|mutant| records.of(mutant)).collect();
            return Ok(conclude(&checked, wanted, from));
        }
        done.extend(due.iter().map(|mutant| mutant.id));
        let workshop = Workshop::set_up(&project, &folder, &sample, arguments.quick)?;
        check_all(&workshop, &due, &mut records, deadline)?;
    }
}

impl MutantsArgs {
    /// Whether there is something to ask about a mutant of which this is known.
    fn asks(&self, known: Option<&MutantRecord>) -> bool {
        known.is_none_or(|record| match record.outcome {
            MutantOutcome::Missed => self.again,
            MutantOutcome::Open => self.again || !self.quick,
            _ => false,
        })
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Those that have a switch on all cores, the others after them.
fn check_all(
    workshop: &Workshop,
    due: &[&Mutant],
    records: &mut MutantRecords,
    deadline: Option<Instant>,
) -> Result<()> {
    let (switched, others): (Vec<_>, Vec<_>) = due.iter().copied().partition(|mutant| workshop.has_switch(mutant));
    let cores = thread::available_parallelism().map_or(1, |count| count.get());
    let records = Mutex::new(records);
    for (mutants, checkers) in [(switched, cores), (others, 1)] {
        let next = AtomicUsize::new(0);
        let check_some = || -> Result<()> {
            while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !is_over(deadline)) {
                let record = workshop.checker(mutant)?;
                println!("{}: {}", record.name, record.summary());
                records.lock().map_err(|_| anyhow!("a checker failed"))?.add(record)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let checkers: Vec<_> = (0..checkers).map(|_| scope.spawn(check_some)).collect();
            checkers.into_iter().try_for_each(|checker| checker.join().map_err(|_| anyhow!("a checker failed"))?)
        })?;
    }
    Ok(())
}

/// Prints the sum, and what nobody objected to.
fn conclude(viable: &[&MutantRecord], wanted: usize, from: u64) -> ExitCode {
    let count = |outcome: MutantOutcome| viable.iter().filter(|record| record.outcome == outcome).count();
    let (caught, ended) = (count(MutantOutcome::Caught), count(MutantOutcome::Ended));
    for checker in checkers::names() {
        let by = viable.iter().filter(|record| record.by.as_deref() == Some(checker)).count();
        println!("{by:>6} by {checker}");
    }
    let (missed, open) = (count(MutantOutcome::Missed), count(MutantOutcome::Open));
    for record in viable.iter().filter(|record| matches!(record.outcome, MutantOutcome::Missed | MutantOutcome::Open)) {
        println!("nobody objected to {}", record.name);
    }
    println!(
        "mutants: {} of {wanted} checked, drawn from {from}: {} caught, of which {ended} had to be ended, {missed} missed, {open} open",
        viable.len(),
        caught + ended
    );
    let is_well = 100 * (caught + ended) >= CAUGHT_PERCENT * viable.len();
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
