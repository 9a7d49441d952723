//! `cargo xtask soak --mutants K/N`: small changes of the engine, one at a time, drawn at random from all that cargo-mutants knows
//! of, and what objects to each: unit tests, scenarios, seeds, stories.
//!
//! The tool lists the mutants; how they are judged is here. Its own driver builds all tests of all crates for each mutant, where
//! most are caught by the first test that is built. What came of each is written down at once, so a run that is stopped goes on
//! where it was.

mod judges;
mod list;
mod records;

use crate::project::Project;
use anyhow::{Context, Result};
use judges::Workshop;
use list::{Mutant, Shard};
use records::{Outcome, Record, Records};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct MutantsArgs {
    /// Judge mutants of the engine instead: of the sample this shard, such as 1/1 or 2/4
    #[arg(long = "mutants", value_name = "K/N")]
    pub shard: Option<Shard>,
    /// So many mutants are drawn, by the number of --from
    #[arg(long, default_value_t = 250, requires = "shard")]
    sample: usize,
    /// Judge those again that no test objected to
    #[arg(long, requires = "shard")]
    again: bool,
    /// Ask only those who are done within seconds; what they let pass is left open for a run that asks all
    #[arg(long, requires = "shard")]
    quick: bool,
    /// Only mutants whose name contains this
    #[arg(long, value_name = "TEXT", requires = "shard")]
    only: Option<String>,
}

/// A sample is well when so many of a hundred are caught; the others need a test, or an argument in docs/simulator.md.
const CAUGHT_PERCENT: usize = 97;

/// Judges the shard until it is done or the time is over. Non-zero if too few were caught.
pub fn main(arguments: &MutantsArgs, shard: Shard, from: u64, minutes: Option<u64>) -> Result<ExitCode> {
    let project = Project::find()?;
    let deadline = minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let mut drawn = list::draw(list::all(&project)?, from, shard);
    drawn.retain(|mutant| arguments.only.as_ref().is_none_or(|text| mutant.name.contains(text)));
    let wanted = shard.share_of(arguments.sample);
    let folder = project.target.join("mutants");
    std::fs::create_dir_all(&folder).with_context(|| format!("making {} failed", folder.display()))?;
    let mut records = Records::load(&folder.join("outcomes.jsonl"))?;
    let workshop = Workshop::set_up(&project, &folder, arguments.quick)?;
    let mut viable = Vec::new();
    for mutant in &drawn {
        if viable.len() == wanted || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        let known = records.of(mutant).filter(|record| match record.outcome {
            Outcome::Missed => !arguments.again,
            Outcome::Open => arguments.quick && !arguments.again,
            _ => true,
        });
        let record = match known {
            Some(record) => record.clone(),
            None => {
                let record = workshop.judge(mutant, arguments.quick)?;
                println!("{}: {}", record.name, record.told());
                records.add(record.clone())?;
                record
            }
        };
        if record.outcome != Outcome::Unviable {
            viable.push(record);
        }
    }
    Ok(conclude(&viable, wanted, from))
}

/// Prints the sum, and what nobody objected to.
fn conclude(viable: &[Record], wanted: usize, from: u64) -> ExitCode {
    let count = |outcome: Outcome| viable.iter().filter(|record| record.outcome == outcome).count();
    let (caught, ended) = (count(Outcome::Caught), count(Outcome::Ended));
    for judge in judges::names() {
        let by = viable.iter().filter(|record| record.by.as_deref() == Some(judge)).count();
        println!("{by:>6} by {judge}");
    }
    let (missed, open) = (count(Outcome::Missed), count(Outcome::Open));
    for record in viable.iter().filter(|record| matches!(record.outcome, Outcome::Missed | Outcome::Open)) {
        println!("nobody objected to {}", record.name);
    }
    println!(
        "mutants: {} of {wanted} judged, drawn from {from}: {} caught, of which {ended} had to be ended, {missed} missed, {open} open",
        viable.len(),
        caught + ended
    );
    let is_well = 100 * (caught + ended) >= CAUGHT_PERCENT * viable.len();
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
