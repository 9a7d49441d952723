//! What a write waits for in each mode where the peer is next door. The paper's remark: over a link without latency
//! `async` gains nothing.

use super::super::fio::{self, Latency};
use super::pair::{LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, median};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::Result;
use serde::Serialize;

const LINE: (f64, f64) = (1000.0, 0.0);
const SIZES_KIB: [u32; 3] = [8, 32, 64];
const WRITERS: [u32; 2] = [1, 5];
const MODES: [&str; 4] = ["logging", "async", "nearsync", "sync"];
/// All writers together, KiB/s: a quarter of the line, so that no queue fills in any mode.
const PACE_KIB: u32 = 30 << 10;

#[derive(Serialize)]
struct ModeCell {
    size_kib: u32,
    writers: u32,
    /// By mode: logging, async, nearsync, sync.
    p50_ms: [f64; 4],
    p99_ms: [f64; 4],
}

impl SeriesRow for ModeCell {
    const HEAD: &'static [&'static str] = &["writes", "writers", "logging p50 / p99", "async", "nearsync", "sync"];

    fn cells(&self) -> Vec<String> {
        let time = |at: usize| format!("{:.3} / {:.3} ms", self.p50_ms[at], self.p99_ms[at]);
        let head = vec![format!("{} KiB", self.size_kib), self.writers.to_string()];
        [head, (0..MODES.len()).map(time).collect()].concat()
    }
}

/// # Errors
/// A pair does not come up, or a write fails.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<ModeCell>("modes, 1 Gbit/s, round trip near 0");
    let line = TableLine::new(LINE.0, LINE.1).options();
    let pair = LinkPair::start(stage, &PairSetup { line, link: "", group: "", volume_bytes: stage.volume_bytes })?;
    // Every block is written once, so that no mode meets new ground.
    fio::latency(pair.fio(&["--rw=write", "--bs=1m", "--iodepth=4"]))?;
    pair.drain()?;
    for writers in WRITERS {
        for size_kib in SIZES_KIB {
            let mut times = [const { Vec::new() }; MODES.len()];
            for _ in 0..arguments.rounds {
                for (mode, times) in MODES.iter().zip(&mut times) {
                    pair.set(&format!("mode={mode}"))?;
                    if *mode != "logging" {
                        pair.wait_until("the mode holds", |look| look.state() == "replicating")?;
                    }
                    times.push(run(&pair, writers, size_kib, arguments.seconds)?);
                }
            }
            let of = |value: fn(&Latency) -> f64| {
                times.each_ref().map(|times| median(&times.iter().map(value).collect::<Vec<_>>()))
            };
            let (p50_ms, p99_ms) = (of(|times| times.p50_ms), of(|times| times.p99_ms));
            section.add(&ModeCell { size_kib, writers, p50_ms, p99_ms })?;
        }
    }
    pair.stop()?;
    Ok(section)
}

fn run(pair: &LinkPair, writers: u32, size_kib: u32, seconds: u32) -> Result<Latency> {
    let words = [
        format!("--bs={size_kib}k"),
        format!("--numjobs={writers}"),
        format!("--rate={}k", PACE_KIB / writers),
        format!("--runtime={seconds}"),
    ];
    let fixed = ["--rw=randwrite", "--iodepth=1", "--time_based"];
    fio::latency(pair.fio(&[&fixed[..], &words.each_ref().map(String::as_str)].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::shown;

    #[test]
    fn a_row_has_what_the_page_shows() {
        let row = ModeCell { size_kib: 8, writers: 5, p50_ms: [0.1, 0.2, 0.3, 0.4], p99_ms: [1.0, 2.0, 3.0, 4.0] };
        let cells = "| 8 KiB, 5 | 0.100/1.000 | 0.200/2.000 | 0.300/3.000 | 0.400/4.000 |\n";
        assert!(shown("modes", &row).ends_with(cells));
    }
}
