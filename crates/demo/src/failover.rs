//! The primary is killed under load, the secondary is promoted, and the witness reads the far volumes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use host::nbd::{Address, Ask, NbdClient};
use serde_json::json;
use units::exact::show_size;
use witness::{PrefixVerdict, VolumeImage, VolumeNumber};

use crate::control::state;
use crate::printer::DemoPrinter;
use crate::report::{DemoMode, Failover};
use crate::stage::{DemoPair, DemoStage};
use crate::terms::{GROUP, RATE_BITS, SYNC_PATIENCE, VOLUMES, volume_name};
use crate::writers::{DemoWriters, WritePlan};

/// What an asynchronous primary must still owe its secondary when it is killed.
const OWED_BYTES_MIN: u64 = 1 << 20;
/// Twice the line, so that a backlog builds up.
const ASYNC_BYTES_PER_S: u64 = RATE_BITS / 8 * 2;
const ASYNC_WRITE_BYTES: u32 = 32 << 10;
const SYNC_WRITE_BYTES: u32 = 8 << 10;
/// How long the writers run at least before the kill.
const LOAD: Duration = Duration::from_secs(1);
const OWED_PATIENCE: Duration = Duration::from_secs(10);
const PROMOTE_PATIENCE: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub fn play(pair: DemoPair, stage: &DemoStage, printer: &DemoPrinter, mode: DemoMode) -> Result<Failover> {
    printer.act(&format!("the primary is killed, {}", mode.name()));
    pair.near.set("mode", mode.name())?;
    pair.near.wait_for(state::REPLICATING, SYNC_PATIENCE, |_| {})?;
    let plan = match mode {
        DemoMode::Sync => WritePlan::closed(SYNC_WRITE_BYTES),
        DemoMode::Async => WritePlan::open(ASYNC_WRITE_BYTES, ASYNC_BYTES_PER_S),
    };
    let writers = DemoWriters::start(pair.near_nbd.clone(), pair.recorder.clone(), plan)?;
    printer.step("writing");
    let unconfirmed_bytes = wait_for_debt(&pair, stage, mode)?;
    let images: Vec<_> = (0..VOLUMES).map(|volume| (VolumeNumber(volume), pair.far_volume(volume))).collect();
    let DemoPair { near, far, far_nbd, recorder, .. } = pair;
    let pid = near.pid();
    let killed = Instant::now();
    near.kill()?;
    printer.step("promoting the secondary");
    far.ask_until_done(&json!({ "request": "promote", "group": GROUP, "force": true }), PROMOTE_PATIENCE)?;
    read_first_byte(&far_nbd, stage)?;
    let recovery = killed.elapsed();
    let outcome = writers.abandon()?;
    ensure!(!outcome.samples.is_empty(), "no write was answered before the kill, so nothing was shown");
    printer.step("reading the far volumes");
    far.stop()?;
    recorder.saved().context("the writers' log could not be written")?;
    let history = recorder.history();
    let images =
        images.iter().map(|(volume, path)| VolumeImage::open(*volume, path)).collect::<std::io::Result<_>>()?;
    let verdict = witness::check(&history, images)?;
    let acknowledged_writes = history.writes.iter().filter(|write| write.acknowledged.is_some()).count() as u64;
    let (lost_writes, lost_bytes, violation) = match verdict {
        PrefixVerdict::Prefix(report) => (report.lost_writes, report.lost_bytes, None),
        PrefixVerdict::Broken(violation) => (0, 0, Some(violation.to_string())),
    };
    let result = Failover {
        mode,
        recovery_s: recovery.as_secs_f64(),
        lost_writes,
        lost_bytes,
        acknowledged_writes,
        verified: violation.is_none(),
        unconfirmed_bytes,
        violation,
    };
    printer.step_done();
    printer.line(&format!("kill -9 {pid} with {} unconfirmed", show_size(unconfirmed_bytes)));
    printer.failover(&result);
    Ok(result)
}

/// Let the writers run; in async until enough is unconfirmed. Returns what is.
fn wait_for_debt(pair: &DemoPair, stage: &DemoStage, mode: DemoMode) -> Result<u64> {
    stage.interrupt.pause(LOAD)?;
    let deadline = Instant::now() + OWED_PATIENCE;
    loop {
        let status = pair.near.status()?;
        let owed = status.peers.iter().filter_map(|peer| peer.lag_bytes).max().unwrap_or(status.queue.bytes);
        if mode == DemoMode::Sync || owed >= OWED_BYTES_MIN {
            return Ok(owed);
        }
        ensure!(
            Instant::now() < deadline,
            "the primary never had {OWED_BYTES_MIN} bytes unconfirmed (now {owed}): the line is faster than it should be"
        );
        stage.interrupt.pause(LOOK_EVERY)?;
    }
}

/// The promoted export opens and answers.
fn read_first_byte(socket: &std::path::Path, stage: &DemoStage) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let deadline = Instant::now() + PROMOTE_PATIENCE;
    let address = Address::Unix(socket.to_owned());
    let export = format!("{GROUP}/{}", volume_name(0));
    runtime.block_on(async {
        let mut client = loop {
            match NbdClient::connect(&address, &export).await {
                Ok(client) => break client,
                Err(_) if Instant::now() < deadline => stage.interrupt.pause(LOOK_EVERY)?,
                Err(error) => return Err(error).context("the promoted secondary does not serve"),
            }
        };
        let answer = client.call(Ask::Read { offset: 0, length: 4096 }).await?;
        answer.map_err(|errno| anyhow::anyhow!("the promoted secondary answered a read with {errno:?}"))?;
        client.disconnect().await?;
        Ok(())
    })
}
