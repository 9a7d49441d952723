//! What replication carries beside iperf3: on clean lines, on lines that lose segments, with fixed buffers, and on lines
//! as slow as they come.

use super::pair::{LinkPair, LinkThroughput, PairSetup};
use super::report::{ReportSection, SeriesRow, mbit_text, median, share_text};
use super::{BAR, LinkBenchArgs, LinkStage, TableLine};
use crate::wan::WanOptions;
use anyhow::Result;
use serde::Serialize;

/// Loss of the lossy lines, a share of segments.
const LOSS: f64 = 0.001;
/// Writers who are always ahead of the line: 64 KiB at random, as many in flight as they like.
pub const WRITERS: &[&str] = &["--rw=randwrite", "--bs=64k", "--iodepth=32"];

/// One line, both on it.
#[derive(Serialize)]
struct ThroughputCell {
    line_mbit: f64,
    rtt_ms: f64,
    loss: f64,
    congestion: String,
    iperf_mbit: f64,
    farshore_mbit: f64,
    /// Median of the ratios within rounds.
    share: f64,
    share_least: f64,
    met: bool,
    limit: String,
    sent_again_share: f64,
    cores: [f64; 3],
}

impl SeriesRow for ThroughputCell {
    const HEAD: &'static [&'static str] = &[
        "line",
        "round trip",
        "control",
        "iperf3 Mbit/s",
        "farshore Mbit/s",
        "share",
        "least",
        ">= 95 %",
        "verdict",
        "sent again",
        "cores near, far, emulator",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            super::rate_text(self.line_mbit),
            format!("{} ms", self.rtt_ms),
            self.congestion.clone(),
            mbit_text(self.iperf_mbit),
            mbit_text(self.farshore_mbit),
            share_text(self.share),
            share_text(self.share_least),
            if self.met { "yes" } else { "no" }.to_owned(),
            self.limit.clone(),
            format!("{:.2} %", self.sent_again_share * 100.0),
            self.cores.map(|cores| format!("{cores:.2}")).join(", "),
        ]
    }
}

/// Every rate at every round trip, by the link's own choice of congestion control.
///
/// # Errors
/// A pair does not come up, or falls out of step.
pub fn clean(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<ThroughputCell>("throughput");
    let congestion = arguments.congestion.first().map_or("auto", String::as_str);
    for line in arguments.lines() {
        section.add(&cell(stage, arguments, &line, congestion)?)?;
    }
    Ok(section)
}

/// The same lines, each losing one segment in a thousand.
///
/// # Errors
/// As [`clean`].
pub fn lossy(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<ThroughputCell>("loss of 0.1 %");
    let both = ["bbr", "cubic"].map(str::to_owned);
    let controls = if arguments.congestion.is_empty() { &both[..] } else { &arguments.congestion };
    for line in arguments.lines() {
        for congestion in controls {
            section.add(&cell(stage, arguments, &TableLine { loss: LOSS, ..line }, congestion)?)?;
        }
    }
    Ok(section)
}

fn cell(stage: &LinkStage, arguments: &LinkBenchArgs, line: &TableLine, congestion: &str) -> Result<ThroughputCell> {
    let link = format!("congestion = {congestion:?}");
    let queue = arguments.queue.map_or(line.queue_bytes(), |mib| mib << 20);
    let window = line.window_bytes();
    let group = format!("queue.memory = \"{queue}B\"\nwindow = \"{window}B\"");
    let volume_bytes = stage.volume_bytes;
    let options = WanOptions { seed: arguments.seed, ..line.options() };
    let pair = LinkPair::start(stage, &PairSetup { line: options, link: &link, group: &group, volume_bytes })?;
    let (warm_up, seconds) = (line.warm_up(), f64::from(arguments.seconds));
    let in_use = pair.congestion_under_load(WRITERS, warm_up)?;
    let (mut iperf, mut ours): (Vec<f64>, Vec<LinkThroughput>) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        for is_ours in [round % 2 == 1, round % 2 == 0] {
            match is_ours {
                true => ours.push(pair.carry(WRITERS, warm_up, seconds)?),
                false => iperf.push(pair.iperf(&in_use, warm_up, seconds)?),
            }
        }
    }
    pair.stop()?;
    let shares: Vec<f64> = ours.iter().zip(&iperf).map(|(ours, iperf)| ours.mbit / iperf).collect();
    let of = |value: fn(&LinkThroughput) -> f64| median(&ours.iter().map(value).collect::<Vec<f64>>());
    let share = median(&shares);
    Ok(ThroughputCell {
        line_mbit: line.rate_mbit(),
        rtt_ms: line.rtt_ms(),
        loss: line.loss,
        congestion: in_use,
        iperf_mbit: median(&iperf),
        farshore_mbit: of(|carried| carried.mbit),
        share,
        share_least: shares.iter().copied().fold(f64::INFINITY, f64::min),
        met: share >= BAR,
        limit: ours.last().map(|carried| carried.limit.clone()).unwrap_or_default(),
        sent_again_share: of(|carried| carried.sent_again_share),
        cores: [of(|carried| carried.cores[0]), of(|carried| carried.cores[1]), of(|carried| carried.cores[2])],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::shown;

    #[test]
    fn a_row_has_what_the_page_shows() {
        let row = ThroughputCell {
            line_mbit: 100.0,
            rtt_ms: 50.0,
            loss: LOSS,
            congestion: "bbr".to_owned(),
            iperf_mbit: 95.8,
            farshore_mbit: 94.6,
            share: 0.987,
            share_least: 0.97,
            met: true,
            limit: "network".to_owned(),
            sent_again_share: 0.001,
            cores: [0.1, 0.2, 0.3],
        };
        assert!(shown("throughput", &row).ends_with("| 100 Mbit/s | 95.8/94.6 (98.7) |\n"));
        assert!(shown("loss", &row).ends_with("| 100 Mbit/s | bbr | 95.8/94.6 (98.7) |\n"));
    }
}
