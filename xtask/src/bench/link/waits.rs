//! What a writer in `async` waits for the queue: beside the same export in `logging`, while memory holds the queue, and while the line is away
//! and the queue goes to disk. By turns, at half of the line's rate.

use super::super::fio::{self, Latency};
use super::super::rows::quantile;
use super::pair::{LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, median};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::Result;
use serde::Serialize;

const LINE: (f64, f64) = (100.0, 50.0);
/// Half of the line.
const RATE: &str = "--rate=6m";
const SIZES_KIB: [u32; 2] = [8, 64];
/// Memory is full soon after the line is away.
const GROUP: &str = "mode = \"async\"\nqueue.memory = \"4MiB\"\nqueue.disk = \"1GiB\"";
/// Times the same in `logging`: while memory lasts, and on the way to disk.
const BARS: [f64; 2] = [1.10, 1.25];
/// As much as the upper quartile may be above a bar (design of the benches).
const SLACK: f64 = 1.03;

#[derive(Serialize)]
struct WaitCell {
    size_kib: u32,
    /// `memory` or `disk`.
    queue: &'static str,
    logging_p50_ms: f64,
    p50_ms: f64,
    logging_p99_ms: f64,
    p99_ms: f64,
    /// Medians of the rounds' own ratios, and the quartiles of the p99's.
    ratio_p50: f64,
    ratio_p99: f64,
    ratio_p99_quartiles: [f64; 2],
    bar: f64,
    met: bool,
}

impl SeriesRow for WaitCell {
    const HEAD: &'static [&'static str] =
        &["writes", "queue in", "p50 in logging", "p50", "ratio", "p99 in logging", "p99", "ratio", "quartiles", "met"];

    fn cells(&self) -> Vec<String> {
        let time = |ms: f64| format!("{ms:.3} ms");
        let [low, high] = self.ratio_p99_quartiles;
        vec![
            format!("{} KiB", self.size_kib),
            self.queue.to_owned(),
            time(self.logging_p50_ms),
            time(self.p50_ms),
            format!("{:.2}", self.ratio_p50),
            time(self.logging_p99_ms),
            time(self.p99_ms),
            format!("{:.2}", self.ratio_p99),
            format!("{low:.2} to {high:.2}"),
            if self.met { "yes" } else { "no" }.to_owned(),
        ]
    }
}

/// In `logging`, with the queue in memory, with the queue on disk.
type Round = [Latency; 3];

/// # Errors
/// A pair does not come up, or not again.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<WaitCell>("waits: async beside logging, half of 100 Mbit/s");
    let line = TableLine::new(LINE.0, LINE.1).options();
    let setup = PairSetup { line, link: "", group: GROUP, volume_bytes: stage.volume_bytes };
    let pair = LinkPair::start_with_far_in_memory(stage, &setup)?;
    // Every block is written once, so that no turn meets new ground.
    fio::latency(pair.fio(&["--rw=write", "--bs=1m", "--iodepth=4"]))?;
    pair.drain()?;
    for size_kib in SIZES_KIB {
        let rounds: Vec<Round> =
            (0..arguments.rounds).map(|_| round(&pair, size_kib, arguments.seconds)).collect::<Result<_>>()?;
        for (at, queue) in [(1, "memory"), (2, "disk")] {
            section.add(&cell(size_kib, queue, &rounds, at))?;
        }
    }
    pair.stop()?;
    Ok(section)
}

fn round(pair: &LinkPair, size_kib: u32, seconds: u32) -> Result<Round> {
    let turn = |seconds: u32| {
        let (size, runtime) = (format!("--bs={size_kib}k"), format!("--runtime={seconds}"));
        fio::latency(pair.fio(&["--rw=randwrite", "--iodepth=4", "--time_based", RATE, &size, &runtime]))
    };
    pair.set("mode=logging")?;
    let logging = turn(seconds)?;
    pair.set("mode=async")?;
    pair.wait_until("the group replicates", |look| look.state() == "replicating")?;
    pair.drain()?;
    let memory = turn(seconds)?;
    pair.line("cut")?;
    turn(2)?;
    pair.wait_until("the queue goes to disk", |look| look.disk_queue_bytes() > 0)?;
    let disk = turn(seconds)?;
    pair.line("restore")?;
    pair.wait_until("the group replicates again", |look| look.state() == "replicating")?;
    pair.drain()?;
    Ok([logging, memory, disk])
}

fn cell(size_kib: u32, queue: &'static str, rounds: &[Round], at: usize) -> WaitCell {
    let of = |at: usize, value: fn(&Latency) -> f64| {
        median(&rounds.iter().map(|round| value(&round[at])).collect::<Vec<_>>())
    };
    let ratios = |value: fn(&Latency) -> f64| {
        rounds.iter().map(|round| value(&round[at]) / value(&round[0])).collect::<Vec<_>>()
    };
    let (p50, p99) = (|latency: &Latency| latency.p50_ms, |latency: &Latency| latency.p99_ms);
    let ratios_p99 = ratios(p99);
    let (bar, ratio_p99) = (BARS[at - 1], median(&ratios_p99));
    let ratio_p99_quartiles = [0.25, 0.75].map(|share| quantile(&ratios_p99, share));
    WaitCell {
        size_kib,
        queue,
        logging_p50_ms: of(0, p50),
        p50_ms: of(at, p50),
        logging_p99_ms: of(0, p99),
        p99_ms: of(at, p99),
        ratio_p50: median(&ratios(p50)),
        ratio_p99,
        ratio_p99_quartiles,
        bar,
        met: ratio_p99 <= bar && ratio_p99_quartiles[1] <= bar * SLACK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_met_by_the_median_and_nearly_by_the_quartile() {
        let latency = |p99_ms| Latency { mean_ms: 1.0, p50_ms: 1.0, p99_ms, max_ms: 9.0, per_second: 1.0 };
        let round = |memory, disk| [latency(1.0), latency(memory), latency(disk)];
        let rounds = [round(1.0, 1.2), round(1.05, 1.3), round(1.1, 1.5)];
        let [memory, disk] = [(1, "memory"), (2, "disk")].map(|(at, queue)| cell(8, queue, &rounds, at));
        assert!(memory.met && !disk.met);
        assert_eq!(disk.cells()[7..], ["1.30", "1.25 to 1.40", "no"]);
    }
}
