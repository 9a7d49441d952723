//! TABLE 4 of the AVS paper, again: sequential writes of 8, 32 and 64 KiB over 50 ms, sync and async.
//!
//! Sync: five writers, one per volume, one write in flight each. Async: an open loop at half the line's rate. Beside each
//! stands what the same write takes with the group in `logging` (for sync: made durable before it is answered), measured
//! in the same run.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::json;

use crate::control::state;
use crate::numbers::{Sorted, millis};
use crate::printer::DemoPrinter;
use crate::report::{DemoMode, ResultCell};
use crate::stage::DemoPair;
use crate::terms::{GROUP, RATE_BITS, SYNC_PATIENCE};
use crate::writers::{DemoWriters, WritePlan};

/// Size of a write in bytes, and the paper's response in sync and in async, milliseconds.
const PAPER: [(u32, f64, f64); 3] = [(8 << 10, 60.0, 10.0), (32 << 10, 66.0, 18.0), (64 << 10, 124.0, 25.0)];
/// How long each cell is measured.
const CELL: Duration = Duration::from_millis(2_500);
/// Writes per writer that show what the local disk takes: enough for a median, little to send afterwards.
const LOCAL_WRITES: u64 = 60;
/// All cells write here, so that what the local writes dirtied is small.
const RING_BYTES: u64 = 8 << 20;

/// What lies under the primary's volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DemoDisk {
    Raw,
    /// Every write or flush takes 8 ms at least, as the paper's spindles did.
    Modelled,
}

impl DemoDisk {
    pub fn name(self) -> &'static str {
        match self {
            DemoDisk::Raw => "raw",
            DemoDisk::Modelled => "modelled-8ms",
        }
    }
}

pub fn play(pair: &DemoPair, printer: &DemoPrinter, disk: DemoDisk, rtt: Duration) -> Result<Vec<ResultCell>> {
    printer.act(&format!("TABLE 4, {} disk", disk.name()));
    let mut local = Vec::new();
    printer.step("the local disk alone");
    pair.near.ask(&json!({ "request": "logging", "group": GROUP }))?;
    pair.near.wait_for(state::LOGGING, SYNC_PATIENCE, |_| {})?;
    for (size, _, _) in PAPER {
        local.push((local_write(pair, size, true)?, local_write(pair, size, false)?));
    }
    pair.near.ask(&json!({ "request": "sync", "group": GROUP, "full": false }))?;
    let mut cells = Vec::new();
    for mode in [DemoMode::Sync, DemoMode::Async] {
        pair.near.set("mode", mode.name())?;
        pair.near.wait_for(state::REPLICATING, SYNC_PATIENCE, |_| {})?;
        for ((size, paper_sync, paper_async), (durable, complete)) in PAPER.into_iter().zip(&local) {
            printer.step(&format!("{} writes of {} KiB", mode.name(), size >> 10));
            let (plan, paper_ms, local) = match mode {
                DemoMode::Sync => (WritePlan::closed(size), paper_sync, durable),
                DemoMode::Async => (WritePlan::open(size, RATE_BITS / 8 / 2), paper_async, complete),
            };
            let times = measure(pair, WritePlan { ring_bytes: RING_BYTES, ..plan })?;
            cells.push(ResultCell {
                size_bytes: size,
                mode,
                disk: disk.name(),
                response_ms: millis(times.median()),
                response_p99_ms: millis(times.share(0.99)),
                paper_ms,
                local_ms: millis(*local),
                rtt_ms: millis(rtt),
                writes: times.len(),
            });
        }
    }
    printer.step_done();
    printer.table4(&cells);
    Ok(cells)
}

fn local_write(pair: &DemoPair, size: u32, fua: bool) -> Result<Duration> {
    let plan = WritePlan { fua, count_max: Some(LOCAL_WRITES), ring_bytes: RING_BYTES / 2, ..WritePlan::closed(size) };
    let outcome = DemoWriters::start(pair.near_nbd.clone(), pair.recorder.clone(), plan)?.finish()?;
    Ok(Sorted::new(outcome.samples.iter().map(|sample| sample.took).collect()).median())
}

fn measure(pair: &DemoPair, plan: WritePlan) -> Result<Sorted> {
    let writers = DemoWriters::start(pair.near_nbd.clone(), pair.recorder.clone(), plan)?;
    pair.interrupt.pause(CELL)?;
    let outcome = writers.stop()?;
    let status = pair.near.status()?;
    // A group that fell out of its promise would measure something else.
    let now = status.explained();
    ensure!(status.state == state::REPLICATING, "the group left `replicating` while it was measured: it {now}");
    Ok(Sorted::new(outcome.samples.iter().map(|sample| sample.took).collect()))
}
