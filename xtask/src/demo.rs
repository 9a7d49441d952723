//! `cargo xtask demo`: two daemons and a long cable on one machine. With `BLESS=1` its page shows this run.

use crate::made::remade;
use crate::project::Project;
use crate::wan::{self, WanOptions};
use anyhow::{Context, Error, Result, ensure};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

const RTT_NS: u64 = 50_000_000;
const RATE_BITS_PER_SECOND: u64 = 100_000_000;
/// Its own line, which needs no root but emulates less.
const RELAY: &str = "--relay";
const PAGE: &str = "docs/book/demo.md";
/// How the demonstration begins; what comes before is the line's.
const TITLE: &str = "Farshore demo:";

/// Builds the product and the demonstration, and plays it: beside an emulated WAN, or, where that is not possible or not
/// wanted, over its own relay.
pub fn main(arguments: &[String]) -> Result<ExitCode> {
    let project = Project::find()?;
    if std::env::var_os("BLESS").is_some() {
        return record(&project, arguments);
    }
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

/// Plays it, and writes what it says into the page.
fn record(project: &Project, arguments: &[String]) -> Result<ExitCode> {
    let mut demo = Command::new(std::env::current_exe()?);
    let demo = demo.arg("demo").args(arguments).env_remove("BLESS").stdout(Stdio::piped());
    let mut demo = demo.spawn().context("starting the demonstration failed")?;
    let mut said = String::new();
    for line in BufReader::new(demo.stdout.take().context("it has an output")?).lines() {
        let line = line?;
        println!("{line}");
        said += &format!("{line}\n");
    }
    ensure!(demo.wait()?.success(), "{PAGE} is as it was: not everything held");
    let begin = said.find(TITLE).with_context(|| format!("the demonstration did not say `{TITLE}`"))?;
    let text = format!("```text\n{}\n```\n", said[begin..].trim_end());
    let file = project.root.join(PAGE);
    let page = remade(&fs::read_to_string(&file)?, "BLESS=1 cargo xtask demo", &[("one run", text)]);
    fs::write(&file, page.map_err(Error::msg)?).with_context(|| format!("writing {PAGE} failed"))?;
    println!("{PAGE} is written");
    Ok(ExitCode::SUCCESS)
}
