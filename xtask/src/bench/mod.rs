//! `cargo xtask bench`: the export of a group in `logging`, dirty tracking on, beside other NBD servers.
//!
//! Like with like: past the page cache against `qemu-nbd` with `cache=none`, through it against `nbdkit file`. All
//! servers of a series run on the same file, one is asked at a time, and they take turns, each round beginning with the
//! other one. What is compared is the ratio within a round, so that a machine that grows slower hurts both alike.
//!
//! Reading order: `workload` (what is asked), `server` (who is asked), `fio` (who asks), `rows` (what it comes to).

mod beside;
mod control;
mod fio;
mod link;
mod machine;
mod recovery;
mod rows;
mod server;
mod workload;

use crate::measured::RunFile;
use crate::project::Project;
use crate::wan::sys;
use anyhow::{Context, Result, bail, ensure};
use rows::{ReportRow, WorkloadRounds};
use serde::Serialize;
use server::BenchServer;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use workload::{BenchWorkload, WORKLOADS};

const SCHEMA: &str = "farshore-bench/1";
/// What the figures in docs/book/bench.md were measured with: turns of each server, seconds of a turn, size of the file.
const ROUNDS: u32 = 9;
const SECONDS: u32 = 2;
const SIZE_MIB: u32 = 1024;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    other: Option<OtherBench>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Also add the rows to this file of measurements, of which `cargo xtask measured` makes the page
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
    /// How often each server gets its turn
    #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Length of one turn
    #[arg(long, default_value_t = SECONDS, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Size of the file in MiB
    #[arg(long, default_value_t = SIZE_MIB, value_parser = clap::value_parser!(u32).range(64..))]
    size: u32,
    /// Where the file is made; it should be on the disk of interest
    #[arg(long, default_value = "/var/tmp")]
    dir: PathBuf,
    /// Only workloads whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Only this series
    #[arg(long, value_parser = ["direct", "cached"])]
    series: Option<String>,
}

/// What else is measured.
#[derive(clap::Subcommand)]
enum OtherBench {
    /// What the return of a killed primary costs: time to serve, bytes compared, shipped and pulled (see docs/book/recovery.md)
    Recovery(recovery::RecoveryArgs),
    /// What replication makes of a line, beside iperf3 on the same emulated one (see docs/book/link.md)
    Link(link::LinkBenchArgs),
    /// What others' clients feel beside a hanging device, stalled clients, many connects and a hostile peer (see docs/book/bench.md)
    Beside(beside::BesideArgs),
}

impl BenchArgs {
    /// Options that make another measurement than docs/book/bench.md has.
    fn unlike_the_page(&self) -> [(bool, &'static str); 3] {
        [
            (self.rounds < ROUNDS, "`--rounds` below 9"),
            (self.seconds < SECONDS, "`--seconds` below 2"),
            (self.size != SIZE_MIB, "`--size`"),
        ]
    }
}

/// Past the page cache or through it, and who is the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchSeries {
    Direct,
    Cached,
}

impl BenchSeries {
    fn name(self) -> &'static str {
        match self {
            BenchSeries::Direct => "direct",
            BenchSeries::Cached => "cached",
        }
    }
}

#[derive(Serialize)]
struct BenchReport {
    schema: &'static str,
    commit: String,
    rounds: u32,
    seconds: u32,
    size_bytes: u64,
    rows: Vec<ReportRow>,
}

/// Runs it; the exit code is zero whatever the numbers are, as they belong to the machine.
pub fn main(arguments: BenchArgs) -> Result<ExitCode> {
    match &arguments.other {
        Some(OtherBench::Recovery(recovery)) => return recovery::main(recovery),
        Some(OtherBench::Link(link)) => return link::main(link),
        Some(OtherBench::Beside(beside)) => return beside::main(beside),
        None => {}
    }
    let project = Project::find()?;
    let open = |path: &PathBuf| {
        RunFile::open(path, project.commit(), machine::machine(&arguments.dir), arguments.unlike_the_page())
    };
    let mut append = arguments.append.as_ref().map(open).transpose()?;
    let signals = sys::signals_as_bytes()?;
    let program = build(&project)?;
    let home = tempfile::Builder::new().prefix("farshore-bench-").tempdir_in(&arguments.dir);
    let home = home.with_context(|| format!("no directory can be made in {}", arguments.dir.display()))?;
    let file = home.path().join("near.img");
    let size_bytes = u64::from(arguments.size) << 20;
    fill(&file, size_bytes)?;
    let mut rows = Vec::new();
    for series in [BenchSeries::Direct, BenchSeries::Cached] {
        if arguments.series.as_ref().is_none_or(|only| only == series.name()) {
            let stage = BenchStage { program: &program, home: home.path(), file: &file, signals: &signals };
            let of_series = stage.play(series, &arguments)?;
            if let Some(append) = &mut append {
                append.add("export", &of_series)?;
            }
            rows.extend(of_series);
        }
    }
    let (rounds, seconds) = (arguments.rounds, arguments.seconds);
    let report = BenchReport { schema: SCHEMA, commit: project.commit(), rounds, seconds, size_bytes, rows };
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        rows::print(&report.rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn build(project: &Project) -> Result<PathBuf> {
    let status = project
        .command("cargo")
        .args(["build", "--release", "--locked", "--package", "farshore"])
        .status()
        .context("starting `cargo build` failed")?;
    ensure!(status.success(), "building farshore failed; see above");
    Ok(project.target.join("release/farshore"))
}

/// Every byte written, so that no server reads a hole.
fn fill(path: &Path, size_bytes: u64) -> Result<()> {
    let mut file = File::create_new(path)?;
    let block: Vec<u8> = (0..1_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for _ in 0..size_bytes / block.len() as u64 {
        file.write_all(&block).with_context(|| format!("filling {} failed", path.display()))?;
    }
    file.sync_all()?;
    Ok(())
}

struct BenchStage<'a> {
    program: &'a Path,
    home: &'a Path,
    file: &'a Path,
    signals: &'a File,
}

impl BenchStage<'_> {
    fn play(&self, series: BenchSeries, arguments: &BenchArgs) -> Result<Vec<ReportRow>> {
        let home = self.home.join(series.name());
        std::fs::create_dir(&home)?;
        let ours = BenchServer::farshore(self.program, &home, self.file, series)?;
        let peer = match series {
            BenchSeries::Direct => BenchServer::qemu_nbd(&home, self.file)?,
            BenchSeries::Cached => BenchServer::nbdkit(&home, self.file)?,
        };
        let chosen =
            |workload: &&BenchWorkload| arguments.only.as_ref().is_none_or(|only| workload.name.contains(only));
        let mut rows = Vec::new();
        for workload in WORKLOADS.iter().filter(chosen) {
            let mut rounds = WorkloadRounds::default();
            for round in 0..arguments.rounds {
                self.print_progress(&format!(
                    "{} {}, round {} of {}",
                    series.name(),
                    workload.name,
                    round + 1,
                    arguments.rounds
                ));
                let mut order = [(&ours, true), (&peer, false)];
                if round % 2 == 1 {
                    order.reverse();
                }
                for (server, is_ours) in order {
                    let run = fio::run(server, workload, arguments.seconds, round);
                    // Ctrl-C reaches fio as well; then its failure is not the news.
                    check_signals(self.signals)?;
                    rounds.add(is_ours, run?);
                }
            }
            rows.extend(rows::of(workload, series, peer.title, &rounds));
        }
        self.print_progress("");
        ours.stop()?;
        peer.stop()?;
        Ok(rows)
    }

    /// What goes on, on one line of a terminal.
    fn print_progress(&self, text: &str) {
        let mut error = std::io::stderr();
        if error.is_terminal() {
            let _ = write!(error, "\r\x1b[K{text}");
        }
    }
}

/// # Errors
/// The bench was interrupted; dropped, its servers and files go.
fn check_signals(mut signals: &File) -> Result<()> {
    match signals.read(&mut [0]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("interrupted; the servers were ended and their file was removed"),
    }
}
