//! What `queue.durable` costs writers in `async`: the same writes with the log of the queue and without it, in turns.

use super::super::fio::{self, Latency};
use super::pair::{LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, median};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::Result;
use serde::Serialize;

const LINE: (f64, f64) = (1000.0, 1.0);
/// A name, and what fio is told. The last one stays below what the line carries.
const WORKLOADS: [(&str, &[&str]); 4] = [
    ("4 KiB, 1 at a time", &["--bs=4k", "--iodepth=1"]),
    ("4 KiB, each flushed", &["--bs=4k", "--iodepth=1", "--fsync=1"]),
    ("4 KiB, 16 at a time", &["--bs=4k", "--iodepth=16"]),
    ("64 KiB, 32 MiB/s", &["--bs=64k", "--iodepth=4", "--rate=32m"]),
];

#[derive(Serialize)]
struct DurableCell {
    writes: &'static str,
    without_per_s: f64,
    with_per_s: f64,
    /// Median of the rounds' own.
    ratio: f64,
    without_mean_ms: f64,
    with_mean_ms: f64,
    without_p99_ms: f64,
    with_p99_ms: f64,
}

impl SeriesRow for DurableCell {
    const HEAD: &'static [&'static str] =
        &["writes", "without, per s", "with", "ratio", "without, mean", "with", "without, p99", "with"];

    fn cells(&self) -> Vec<String> {
        let times = [self.without_mean_ms, self.with_mean_ms, self.without_p99_ms, self.with_p99_ms];
        let rates = [self.without_per_s, self.with_per_s].map(|rate| format!("{rate:.0}"));
        let times = times.map(|ms| format!("{ms:.2} ms"));
        [&[self.writes.to_owned()][..], &rates, &[format!("{:.2}", self.ratio)], &times].concat()
    }
}

/// # Errors
/// A pair does not come up, or a write fails.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<DurableCell>("durable: the log of the queue, async, 1 Gbit/s, 1 ms");
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        rounds.push([turn(stage, false, arguments.seconds)?, turn(stage, true, arguments.seconds)?]);
    }
    for (number, (writes, _)) in WORKLOADS.into_iter().enumerate() {
        let of = |durable: usize, value: fn(&Latency) -> f64| {
            median(&rounds.iter().map(|round| value(&round[durable][number])).collect::<Vec<_>>())
        };
        let ratio = |round: &[Vec<Latency>; 2]| round[1][number].per_second / round[0][number].per_second;
        section.add(&DurableCell {
            writes,
            without_per_s: of(0, |latency| latency.per_second),
            with_per_s: of(1, |latency| latency.per_second),
            ratio: median(&rounds.iter().map(ratio).collect::<Vec<_>>()),
            without_mean_ms: of(0, |latency| latency.mean_ms),
            with_mean_ms: of(1, |latency| latency.mean_ms),
            without_p99_ms: of(0, |latency| latency.p99_ms),
            with_p99_ms: of(1, |latency| latency.p99_ms),
        })?;
    }
    Ok(section)
}

/// All workloads, one after the other, on a pair of its own that is in step.
fn turn(stage: &LinkStage, durable: bool, seconds: u32) -> Result<Vec<Latency>> {
    let (rate_mbit, rtt_ms) = LINE;
    let group = format!("mode = \"async\"\nqueue.disk = \"1GiB\"\nqueue.durable = {durable}");
    let line = TableLine::new(rate_mbit, rtt_ms).options();
    let pair = LinkPair::start(stage, &PairSetup { line, link: "", group: &group, volume_bytes: stage.volume_bytes })?;
    if durable {
        pair.wait_until("the log is open", |look| look.queue_log() == "live")?;
    }
    let runtime = format!("--runtime={seconds}");
    let mut found = Vec::new();
    for (_, words) in WORKLOADS {
        let words = [&["--rw=randwrite", "--time_based", &runtime][..], words].concat();
        found.push(fio::latency(pair.fio(&words))?);
        pair.drain()?;
    }
    pair.stop()?;
    Ok(found)
}
