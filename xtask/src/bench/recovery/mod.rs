//! `cargo xtask bench recovery`: a primary is killed while it writes, and what its return costs.
//!
//! Two daemons hold one group of sparse files. Writers are at work, the primary is killed and started again at once: how
//! long until it serves a read, how long until the group replicates, and what went between them for that.
//!
//! Reading order: `load` (what is written), `pair` (who is killed), `nbd` (the read), `report` (what it comes to).

mod load;
mod nbd;
mod pair;
mod report;

use super::build;
use super::machine::machine;
use crate::measured::RunFile;
use crate::project::Project;
use crate::wan::sys;
use anyhow::{Context, Result};
use load::Area;
use pair::{GroupShape, PATIENCE, RecoveryPair};
use report::{RecoveryReport, RecoveryRow, RecoveryRun};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What one entry of the activity log stands for, and how many it has: the product's own, told here so that the bench
/// notices a change.
const EXTENT_BYTES: u64 = 4 << 20;
const EXTENTS: u64 = 1024;
const HOT_EXTENTS: u64 = 10;
/// What the figures in docs/book/recovery.md were measured with at least: rounds, seconds of writing; and the group's size and volumes.
const ROUNDS_MIN: u32 = 2;
const SECONDS_MIN: u32 = 5;
const SIZE_GIB: u32 = 1024;
const VOLUMES: u32 = 1;

#[derive(clap::Args)]
pub struct RecoveryArgs {
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Also add the rows to this file of measurements, of which `cargo xtask measured` makes the page
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
    /// How often each blow is dealt
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long writers are at work before a blow
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Size of the group in GiB; its files are sparse
    #[arg(long, default_value_t = SIZE_GIB, value_parser = clap::value_parser!(u32).range(64..))]
    size: u32,
    /// How many volumes share that size
    #[arg(long, default_value_t = VOLUMES, value_parser = clap::value_parser!(u32).range(1..=16))]
    volumes: u32,
    /// Where the files are made; it should be on the disk of interest
    #[arg(long, default_value = "/var/tmp")]
    dir: PathBuf,
}

impl RecoveryArgs {
    /// Options that make another measurement than docs/book/recovery.md has.
    fn unlike_the_page(&self) -> [(bool, &'static str); 4] {
        [
            (self.rounds < ROUNDS_MIN, "`--rounds` below 2"),
            (self.seconds < SECONDS_MIN, "`--seconds` below 5"),
            (self.size != SIZE_GIB, "`--size`"),
            (self.volumes != VOLUMES, "`--volumes`"),
        ]
    }
}

/// What happens to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    Kill,
    /// It comes back believing that its machine was switched off: all that it had not flushed may be lost.
    Power,
}

struct Scenario {
    blow: FailureKind,
    area: Area,
}

const SCENARIOS: [Scenario; 4] = [
    Scenario { blow: FailureKind::Kill, area: Area::Extents(HOT_EXTENTS) },
    Scenario { blow: FailureKind::Power, area: Area::Extents(HOT_EXTENTS) },
    Scenario { blow: FailureKind::Kill, area: Area::Run(10 * EXTENTS) },
    Scenario { blow: FailureKind::Power, area: Area::Run(10 * EXTENTS) },
];

impl Scenario {
    fn title(&self) -> String {
        let blow = match self.blow {
            FailureKind::Kill => "kill -9",
            FailureKind::Power => "power",
        };
        let (Area::Extents(extents) | Area::Run(extents)) = self.area;
        format!("{blow}, {extents} extents")
    }

    /// The most that may go to the peer as data, bytes: what the log can name of the area, and nothing else.
    fn shipped_bytes_max(&self) -> u64 {
        let (Area::Extents(extents) | Area::Run(extents)) = self.area;
        extents * EXTENT_BYTES
    }

    fn play(&self, pair: &mut RecoveryPair, seconds: u32, seed: u32) -> Result<RecoveryRun> {
        pair.wait_for_rest()?;
        let runs = self.area.runs(pair.shape.volumes, pair.shape.volume_bytes);
        let before = pair.counter("writes")?;
        let load = load::start(pair, &runs, seed)?;
        pair.wait_for_writes(before)?;
        pair.pause(Duration::from_secs(seconds.into()))?;
        let writes = pair.counter("writes")? - before;
        pair.kill(self.blow == FailureKind::Power);
        drop(load);
        let started = Instant::now();
        let served = pair.serve_again(runs[0].offset)?;
        pair.wait_until_replicating(PATIENCE)?;
        let replicating = started.elapsed();
        Ok(RecoveryRun {
            served_s: served.as_secs_f64(),
            replicating_s: replicating.as_secs_f64(),
            writes,
            compared_bytes: pair.counter("compared_bytes")?,
            shipped_bytes: pair.counter("shipped_bytes")?,
            pulled_bytes: pair.counter("pulled_bytes")?,
        })
    }
}

/// Runs it; the exit code is zero whatever the numbers are, as they belong to the machine.
pub fn main(arguments: &RecoveryArgs) -> Result<ExitCode> {
    let project = Project::find()?;
    let machine = machine(&arguments.dir);
    let open = |path: &PathBuf| RunFile::open(path, project.commit(), machine.clone(), arguments.unlike_the_page());
    let append = arguments.append.as_ref().map(open).transpose()?;
    let signals = sys::signals_as_bytes()?;
    let program = build(&project)?;
    let home = tempfile::Builder::new().prefix("farshore-bench-").tempdir_in(&arguments.dir);
    let home = home.with_context(|| format!("no directory can be made in {}", arguments.dir.display()))?;
    let volumes = u64::from(arguments.volumes);
    let shape =
        GroupShape { volumes, volume_bytes: (u64::from(arguments.size) << 30) / volumes / EXTENT_BYTES * EXTENT_BYTES };
    eprintln!("the first sync of {} GiB reads all of it, and takes its time", arguments.size);
    let (mut pair, first_sync) = RecoveryPair::replicating(&program, home.path(), shape, signals)?;
    eprintln!("the first sync took {:.1} s", first_sync.as_secs_f64());
    let mut rows = SCENARIOS.map(|scenario| RecoveryRow::new(scenario.title(), scenario.shipped_bytes_max()));
    for round in 0..arguments.rounds {
        for (scenario, row) in SCENARIOS.iter().zip(&mut rows) {
            eprintln!("round {} of {}: {}", round + 1, arguments.rounds, row.name);
            row.runs.push(scenario.play(&mut pair, arguments.seconds, round + 1)?);
        }
    }
    pair.stop()?;
    let report = RecoveryReport::new(project.commit(), machine, shape, first_sync, rows.into());
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        report.print()?;
    }
    if let Some(mut append) = append {
        report.append(&mut append)?;
    }
    Ok(ExitCode::SUCCESS)
}
