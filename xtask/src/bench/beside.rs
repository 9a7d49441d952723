//! `cargo xtask bench beside`: what others' clients feel beside a device that hangs, stalled clients, a thousand connects and a lying
//! peer. The measuring is done by a test of the daemon (`crates/farshore/tests/beside.rs`), which knows the protocol; here it runs
//! optimised and for long, and its lines become a table.

use super::machine;
use crate::project::Project;
use anyhow::{Context, Result, ensure};
use std::process::{ExitCode, Stdio};

#[derive(clap::Args)]
pub struct BesideArgs {
    /// How often both are measured, by turns; shown are medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Length of one turn
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

/// What a line of the test begins with that belongs into the table.
const LINE: &str = "BESIDE ";

/// Runs it and prints the table, also where the others waited for longer than they may: then the exit code is not zero.
pub fn main(arguments: &BesideArgs) -> Result<ExitCode> {
    let project = Project::find()?;
    let mut command = project.command("cargo");
    command.args(["test", "--release", "--locked", "--package", "farshore", "--test", "all"]);
    command.args(["beside::", "--", "--nocapture"]);
    command.env("FARSHORE_ROUNDS", arguments.rounds.to_string());
    command.env("FARSHORE_SECONDS", arguments.seconds.to_string());
    let output = command.stderr(Stdio::inherit()).output().context("starting `cargo test` failed")?;
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{}", machine::machine(&std::env::temp_dir()));
    said.lines().filter_map(|line| line.split_once(LINE)).for_each(|(_, line)| println!("{line}"));
    ensure!(output.status.success(), "the measurement failed:\n{said}");
    Ok(ExitCode::SUCCESS)
}
