//! `cargo xtask bench beside`: what others' clients feel beside a device that hangs, stalled clients, a thousand connects and a lying
//! peer. The measuring is done by a test of the daemon (`crates/farshore/tests/beside.rs`), which knows the protocol; here it runs
//! optimised and for long, and its lines become a table.

use super::machine;
use crate::measured::{Row, RunFile, beside_text};
use crate::project::Project;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

#[derive(clap::Args)]
pub struct BesideArgs {
    /// How often both are measured, by turns; shown are medians
    #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Length of one turn
    #[arg(long, default_value_t = SECONDS, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Also add the rows to this file of measurements, of which `cargo xtask measured` makes the page
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
}

/// What the figures in docs/book/bench.md were measured with: turns of each, seconds of a turn.
const ROUNDS: u32 = 5;
const SECONDS: u32 = 4;
/// What a line of the test begins with that has a row of the table, as JSON.
const LINE: &str = "BESIDE ";

/// Runs it and prints the table, also where the others waited for longer than they may: then the exit code is not zero.
pub fn main(arguments: &BesideArgs) -> Result<ExitCode> {
    let project = Project::find()?;
    let machine = machine::machine(&std::env::temp_dir());
    let open = |path: &PathBuf| {
        RunFile::open(path, project.commit(), machine.clone(), unlike_the_page(arguments.rounds, arguments.seconds))
    };
    let append = arguments.append.as_ref().map(open).transpose()?;
    let mut command = project.command("cargo");
    command.args(["test", "--release", "--locked", "--package", "farshore", "--test", "all"]);
    command.args(["beside::", "--", "--nocapture"]);
    command.env("FARSHORE_ROUNDS", arguments.rounds.to_string());
    command.env("FARSHORE_SECONDS", arguments.seconds.to_string());
    let output = command.stderr(Stdio::inherit()).output().context("starting `cargo test` failed")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let lines = said.lines().filter_map(|line| Some(line.split_once(LINE)?.1));
    let rows = lines.map(serde_json::from_str::<Value>).collect::<serde_json::Result<Vec<Value>>>()?;
    println!("{machine}");
    print!("{}", beside_text(&rows.iter().map(Row::of).collect::<Result<Vec<Row>>>()?)?);
    ensure!(output.status.success(), "the measurement failed:\n{said}");
    if let Some(mut append) = append {
        append.add("beside", &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Options that make another measurement than docs/book/bench.md has.
fn unlike_the_page(rounds: u32, seconds: u32) -> [(bool, &'static str); 2] {
    [(rounds < ROUNDS, "`--rounds` below 5"), (seconds < SECONDS, "`--seconds` below 4")]
}
