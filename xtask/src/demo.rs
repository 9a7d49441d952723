//! `cargo xtask demo`: two daemons and a long cable on one machine.

use crate::project::Project;
use crate::wan::{self, Options};
use anyhow::{Context, Result, ensure};
use std::process::{Command, ExitCode};

const RTT_NS: u64 = 50_000_000;
const RATE_BITS_PER_SECOND: u64 = 100_000_000;

/// Builds the product and runs its demo: beside an emulated WAN, or, where that is not possible,
/// over the product's own relay, which needs no root but emulates less.
pub fn main(arguments: &[String]) -> Result<ExitCode> {
    let project = Project::find()?;
    let status = project
        .command("cargo")
        .args(["build", "--release", "--locked", "--package", "farshore"])
        .status()
        .context("starting `cargo build` failed")?;
    ensure!(status.success(), "building farshore failed; see above");
    let mut farshore = Command::new(project.target.join("release/farshore"));
    farshore.arg("demo");
    if let Err(reason) = wan::available() {
        eprintln!("{reason:#}; running over the in-process relay instead");
        let status = farshore.arg("--relay").args(arguments).status().context("starting farshore failed")?;
        return Ok(ExitCode::from(status.code().map_or(1, |code| code as u8)));
    }
    farshore.args(arguments);
    wan::cli::run_beside(Options::link(RTT_NS, RATE_BITS_PER_SECOND), farshore)
}
