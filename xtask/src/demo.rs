//! `cargo xtask demo`: two daemons and a long cable on one machine.

use crate::project::Project;
use crate::wan::{self, WanOptions};
use anyhow::{Context, Result, ensure};
use std::process::{Command, ExitCode};

const RTT_NS: u64 = 50_000_000;
const RATE_BITS_PER_SECOND: u64 = 100_000_000;
/// Its own line, which needs no root but emulates less.
const RELAY: &str = "--relay";

/// Builds the product and the demonstration, and plays it: beside an emulated WAN, or, where that is not possible or not
/// wanted, over its own relay.
pub fn main(arguments: &[String]) -> Result<ExitCode> {
    let project = Project::find()?;
    let status = project
        .command("cargo")
        .args(["build", "--release", "--locked", "--package", "farshore", "--package", "demo"])
        .status()
        .context("starting `cargo build` failed")?;
    ensure!(status.success(), "building farshore failed; see above");
    let mut demo = Command::new(project.target.join("release/demo"));
    demo.args(arguments);
    let wants_relay = arguments.iter().any(|argument| argument == RELAY);
    match wan::available() {
        Ok(()) if !wants_relay => {
            return wan::cli::run_beside(WanOptions::link(RTT_NS, RATE_BITS_PER_SECOND), demo);
        }
        Err(reason) if !wants_relay => {
            eprintln!("{reason:#}; running over the in-process relay instead");
            demo.arg(RELAY);
        }
        _ => {}
    }
    let status = demo.status().context("starting the demonstration failed")?;
    Ok(ExitCode::from(status.code().map_or(1, |code| code as u8)))
}
