//! Two real daemons and a long cable on one machine, as a play in five acts.
//!
//! The stage ([`stage`]) is a temporary directory, two daemons and the cable ([`cable`]) between them; the players are
//! five writers ([`writers`]), one per volume, whose every sector is stamped. Act one is the first sync. Act two writes
//! as the AVS paper's TABLE 4 did ([`table4`]). Act three pulls the cable under load ([`outage`]). Act four kills the
//! primary and promotes the secondary ([`failover`]), and a checker that shares no code with the daemons reads the far
//! volumes. The last act repeats the second and the fourth on a slow disk and in `sync`.
//!
//! The product is a program here, met as by anybody: its commands, its control socket ([`control`]), its exports. Nothing
//! is measured from inside the daemons: what is printed is what a client of the export saw, what `status`
//! said, or what the far volumes hold.

mod cable;
mod control;
mod daemon;
mod failover;
mod numbers;
mod outage;
mod printer;
pub mod relay;
mod report;
mod stage;
mod table4;
mod terms;
mod writers;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use serde_json::json;

use control::state;
use printer::DemoPrinter;
use report::DemoReport;
use stage::{DemoPair, DemoStage};

pub use report::DemoEnding;
use report::DemoMode;
use terms::{GROUP, LINK_PATIENCE, MODEL_LATENCY, SYNC_PATIENCE, VOLUME_BYTES, VOLUMES};
use toolkit::interrupt::Interrupt;
pub use toolkit::interrupt::Interrupted;

/// What `cargo xtask demo` takes.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask demo", about = "Run two daemons on this machine and show what they do")]
#[command(after_help = "Beside an emulated WAN (as root):\n  cargo xtask demo\nAnywhere:\n  cargo xtask demo --relay")]
pub struct DemoOptions {
    /// One JSON object, schema farshore-demo/1, instead of the report
    #[arg(long)]
    pub json: bool,
    /// Join the daemons by a relay inside this process instead of the WAN named by FARSHORE_WAN_*
    #[arg(long)]
    pub relay: bool,
    /// Where the temporary directory is made; it should be on a disk [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Time TCP connections to an address, print the median in microseconds (the demo runs this inside the WAN)
    #[arg(long, value_name = "ADDRESS", hide = true)]
    pub probe: Option<std::net::SocketAddr>,
}

/// Plays it. Whatever happens, the daemons are ended and the temporary directory is removed.
///
/// # Errors
/// The stage could not be set, or a daemon did not do as told: a sentence, with the place of the kept logs.
pub fn run(options: &DemoOptions) -> Result<DemoEnding> {
    if let Some(address) = options.probe {
        println!("{}", cable::probe(address)?.as_micros());
        return Ok(DemoEnding::AsPromised);
    }
    let printer = DemoPrinter::new(options.json);
    let mut stage = DemoStage::set(options.relay, options.dir.as_deref(), Interrupt::listen()?)?;
    let played = play(&mut stage, &printer);
    stage.strike(played.is_err());
    let report = match played {
        Err(error) if !error.is::<Interrupted>() => {
            return Err(error.context(format!("the demo broke off (its logs are kept in {})", stage.logs().display())));
        }
        played => played?,
    };
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        printer.conclude(&report);
    }
    Ok(report.ending())
}

fn play(stage: &mut DemoStage, printer: &DemoPrinter) -> Result<DemoReport> {
    let began = Instant::now();
    printer.opening(stage);
    let mut report = DemoReport::new(stage);
    let rtt = stage.measure_rtt()?;
    report.link.rtt_ms = numbers::millis(rtt);
    {
        let pair = first_sync(stage, printer, "raw disk", None)?;
        report.table4.extend(table4::play(&pair, printer, table4::DemoDisk::Raw, rtt)?);
        report.cut = Some(outage::play(&pair, stage, printer)?);
        report.failovers.push(failover::play(pair, stage, printer, DemoMode::Async)?);
    }
    {
        let pair = first_sync(stage, printer, "modelled 8 ms disk", Some(MODEL_LATENCY))?;
        report.table4.extend(table4::play(&pair, printer, table4::DemoDisk::Modelled, rtt)?);
        report.failovers.push(failover::play(pair, stage, printer, DemoMode::Sync)?);
    }
    report.finish(began.elapsed());
    Ok(report)
}

/// Two new daemons, five new volumes, and their first copy.
fn first_sync(stage: &mut DemoStage, printer: &DemoPrinter, disk: &str, latency: Option<Duration>) -> Result<DemoPair> {
    printer.act(&format!("first sync, {disk}"));
    let began = Instant::now();
    let pair = stage.start_pair(latency)?;
    pair.near.wait_for_link(LINK_PATIENCE)?;
    // A secondary that was never synced is overwritten on demand only.
    pair.near.ask_until_done(&json!({ "request": "sync", "group": GROUP, "full": true }), LINK_PATIENCE)?;
    pair.near.wait_for(state::REPLICATING, SYNC_PATIENCE, |status| printer.progress(status))?;
    printer.step_done();
    printer.line(&format!(
        "two daemons, {} volumes of {} each, replicating after {:.1} s",
        VOLUMES,
        units::exact::show_size(VOLUME_BYTES),
        began.elapsed().as_secs_f64()
    ));
    Ok(pair)
}
