//! More is written than the link carries, for five minutes in `superasync`; and the line is away for ten minutes under full load, in `async`:
//! what writers feel of that, how old the copy becomes, and how long it takes to be in step again.

use super::super::fio::{self, Latency};
use super::pair::{GROUP, LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::Result;
use serde::Serialize;
use std::process::Command;
use std::time::{Duration, Instant};

const LINE: (f64, f64) = (100.0, 50.0);
const BLOCK_BYTES: f64 = 65_536.0;
/// What the comparison in `logging` takes.
const CALM_S: u64 = 60;
const LOOK_EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(1800);

const OVERLOAD_S: u64 = 300;
/// Twice what the line has.
const OVERLOAD: &str = "24414k";
const OVERLOAD_GROUP: &str = "mode = \"superasync\"";
/// Writers overwrite these, over and over.
const PLACES_MIB: [u64; 2] = [96, 256];

const AWAY_S: u64 = 600;
/// All that the line carries.
const AWAY: &str = "11m";
const AWAY_GROUP: &str = "mode = \"async\"\nqueue.disk = \"8GiB\"";

#[derive(Serialize)]
struct OverloadCell {
    places_mib: u64,
    /// 10^6 bytes per second.
    written_mb_s: f64,
    logging_mb_s: f64,
    p99_ms: f64,
    logging_p99_ms: f64,
    looks: u64,
    promotable: u64,
    oldest_s: f64,
    /// Looks at which `status` named the bandwidth that is missing for a copy each 30 s.
    named: u64,
    /// What was missing at the end, by what the line carries; and how long it took.
    needs_s: f64,
    caught_up_s: f64,
}

impl SeriesRow for OverloadCell {
    const HEAD: &'static [&'static str] = &[
        "places",
        "written",
        "in logging",
        "p99",
        "in logging",
        "promotable",
        "oldest copy",
        "missing bandwidth named",
        "caught up",
        "bytes need",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            format!("{} MiB", self.places_mib),
            format!("{:.1} MB/s", self.written_mb_s),
            format!("{:.1} MB/s", self.logging_mb_s),
            format!("{:.2} ms", self.p99_ms),
            format!("{:.2} ms", self.logging_p99_ms),
            format!("{} of {} looks", self.promotable, self.looks),
            format!("{:.1} s", self.oldest_s),
            format!("{} of {} looks", self.named, self.looks),
            format!("{:.1} s", self.caught_up_s),
            format!("{:.1} s", self.needs_s),
        ]
    }
}

#[derive(Serialize)]
struct SpillCell {
    outage_s: u64,
    written_mb_s: f64,
    p99_ms: f64,
    spilled_mib: u64,
    state: String,
    resynced_bytes: u64,
    images_equal: bool,
    needs_s: f64,
    caught_up_s: f64,
}

impl SeriesRow for SpillCell {
    const HEAD: &'static [&'static str] =
        &["outage", "written", "p99", "in the disk queue", "state", "resynced", "images", "caught up", "bytes need"];

    fn cells(&self) -> Vec<String> {
        vec![
            format!("{} s", self.outage_s),
            format!("{:.1} MB/s", self.written_mb_s),
            format!("{:.2} ms", self.p99_ms),
            format!("{} MiB", self.spilled_mib),
            self.state.clone(),
            format!("{} bytes", self.resynced_bytes),
            if self.images_equal { "equal" } else { "differ" }.to_owned(),
            format!("{:.1} s", self.caught_up_s),
            format!("{:.1} s", self.needs_s),
        ]
    }
}

/// # Errors
/// A pair does not come up, or not again.
pub fn overload(stage: &LinkStage, _: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section =
        ReportSection::new::<OverloadCell>("overload: twice what 100 Mbit/s carry, for 300 s in superasync");
    for places_mib in PLACES_MIB {
        let pair = start(stage, OVERLOAD_GROUP)?;
        let carried = carried_bytes_per_s(&pair)?;
        let size = format!("--size={places_mib}m");
        let logging = in_logging(&pair, OVERLOAD, &size)?;
        let writer = writer(&pair, OVERLOAD, &size, OVERLOAD_S);
        let writes = std::thread::spawn(move || fio::latency(writer));
        let (mut looks, mut promotable, mut named, mut oldest_s) = (0, 0, 0, 0.0_f64);
        while !writes.is_finished() {
            pair.pause(LOOK_EVERY)?;
            looks += 1;
            promotable += u64::from(pair.copy_is_promotable()?);
            let look = pair.look()?;
            named += u64::from(look.missing_bytes_per_s() > 0);
            oldest_s = oldest_s.max(look.lag_s().unwrap_or(f64::INFINITY));
        }
        let writes = writes.join().expect("reading fio's output does not panic")?;
        let missing_bytes = pair.look()?.missing_bytes();
        let caught_up_s = catches_up(&pair)?;
        pair.stop()?;
        section.add(&OverloadCell {
            places_mib,
            written_mb_s: mb_per_s(&writes),
            logging_mb_s: mb_per_s(&logging),
            p99_ms: writes.p99_ms,
            logging_p99_ms: logging.p99_ms,
            looks,
            promotable,
            oldest_s,
            named,
            needs_s: missing_bytes as f64 / carried,
            caught_up_s,
        })?;
    }
    Ok(section)
}

/// # Errors
/// A pair does not come up, or not again.
pub fn spill(stage: &LinkStage, _: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<SpillCell>("spill: the line is away for 600 s, under all that it carries");
    let pair = start(stage, AWAY_GROUP)?;
    let carried = carried_bytes_per_s(&pair)?;
    let size = format!("--size={}", stage.volume_bytes);
    let before = pair.look()?.resynced_bytes;
    pair.line("cut")?;
    let away = fio::latency(writer(&pair, AWAY, &size, AWAY_S))?;
    let during = pair.look()?;
    pair.line("restore")?;
    let caught_up_s = catches_up(&pair)?;
    let resynced_bytes = pair.look()?.resynced_bytes - before;
    // What is confirmed lies in the journal of the secondary, and is applied behind that.
    pair.wait_within(PATIENCE, "all is applied", |look| look.dirty_bytes() == Some(0))?;
    let images_equal = pair.images_are_equal()?;
    pair.stop()?;
    section.add(&SpillCell {
        outage_s: AWAY_S,
        written_mb_s: mb_per_s(&away),
        p99_ms: away.p99_ms,
        spilled_mib: during.disk_queue_bytes() >> 20,
        state: during.state().to_owned(),
        resynced_bytes,
        images_equal,
        needs_s: during.missing_bytes() as f64 / carried,
        caught_up_s,
    })?;
    Ok(section)
}

fn start<'a>(stage: &'a LinkStage, group: &str) -> Result<LinkPair<'a>> {
    let line = TableLine::new(LINE.0, LINE.1).options();
    LinkPair::start(stage, &PairSetup { line, link: "", group, volume_bytes: stage.volume_bytes })
}

fn carried_bytes_per_s(pair: &LinkPair) -> Result<f64> {
    let mbit = pair.iperf("cubic", Duration::from_secs(3), 8.0)?;
    Ok(mbit * 1e6 / 8.0)
}

/// What its writers feel of an export whose group sends nothing; both copies are equal again afterwards.
fn in_logging(pair: &LinkPair, rate: &str, size: &str) -> Result<Latency> {
    pair.order("near", &["logging", GROUP])?;
    let writes = fio::latency(writer(pair, rate, size, CALM_S))?;
    pair.order("near", &["sync", GROUP, "--wait"])?;
    catches_up(pair)?;
    Ok(writes)
}

/// Until both copies are equal, seconds.
fn catches_up(pair: &LinkPair) -> Result<f64> {
    let from = Instant::now();
    pair.wait_within(PATIENCE, "both copies are equal", |look| {
        look.state() == "replicating" && look.confirmed_bytes == look.admitted_bytes
    })?;
    Ok(from.elapsed().as_secs_f64())
}

fn writer(pair: &LinkPair, rate: &str, size: &str, seconds: u64) -> Command {
    let (rate, runtime) = (format!("--rate={rate}"), format!("--runtime={seconds}"));
    pair.fio(&["--rw=randwrite", "--bs=64k", "--iodepth=4", "--time_based", &rate, size, &runtime])
}

fn mb_per_s(writes: &Latency) -> f64 {
    writes.per_second * BLOCK_BYTES / 1e6
}
