//! What `compression = "auto"` costs where nothing can be gained: data that does not get smaller, on a line as fast as
//! the machine.

use super::pair::{LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, mbit_text, median, share_text};
use super::throughput::WRITERS;
use super::{LinkBenchArgs, LinkStage, TableLine, rate_text};
use anyhow::Result;
use serde::Serialize;

const RTT_NS: u64 = 1_000_000;
/// Of the throughput without.
const BAR: f64 = 0.98;

#[derive(Serialize)]
struct CompressionCell {
    line_mbit: f64,
    off_mbit: f64,
    auto_mbit: f64,
    /// Median of the ratios within rounds.
    ratio: f64,
    met: bool,
    /// Processors in use by the primary, without and with.
    off_cores: f64,
    auto_cores: f64,
}

impl SeriesRow for CompressionCell {
    const HEAD: &'static [&'static str] =
        &["line", "off Mbit/s", "auto Mbit/s", "ratio", ">= 98 %", "primary's cores, off, auto"];

    fn cells(&self) -> Vec<String> {
        vec![
            rate_text(self.line_mbit),
            mbit_text(self.off_mbit),
            mbit_text(self.auto_mbit),
            share_text(self.ratio),
            if self.met { "yes" } else { "no" }.to_owned(),
            format!("{:.2}, {:.2}", self.off_cores, self.auto_cores),
        ]
    }
}

/// # Errors
/// A pair does not come up, or falls out of step.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<CompressionCell>("compression of what does not get smaller");
    for &rate_bits_per_second in &arguments.rates {
        section.add(&cell(stage, arguments, &TableLine { rate_bits_per_second, rtt_ns: RTT_NS, loss: 0.0 })?)?;
    }
    Ok(section)
}

fn cell(stage: &LinkStage, arguments: &LinkBenchArgs, line: &TableLine) -> Result<CompressionCell> {
    let group = format!("queue.memory = \"{}B\"", line.queue_bytes());
    let setup = PairSetup { line: line.options(), link: "", group: &group, volume_bytes: stage.volume_bytes };
    let pair = LinkPair::start(stage, &setup)?;
    let [mut off, mut auto] = [Vec::new(), Vec::new()];
    for round in 0..arguments.rounds {
        for is_auto in [round % 2 == 1, round % 2 == 0] {
            let value = if is_auto { "compression=auto" } else { "compression=off" };
            pair.order("near", &["link", "set", value])?;
            let carried = pair.carry(WRITERS, line.warm_up(), f64::from(arguments.seconds))?;
            if is_auto { &mut auto } else { &mut off }.push((carried.mbit, carried.cores[0]));
        }
    }
    pair.stop()?;
    let of = |runs: &[(f64, f64)], value: fn(&(f64, f64)) -> f64| median(&runs.iter().map(value).collect::<Vec<_>>());
    let ratio = median(&auto.iter().zip(&off).map(|(auto, off)| auto.0 / off.0).collect::<Vec<f64>>());
    Ok(CompressionCell {
        line_mbit: line.rate_mbit(),
        off_mbit: of(&off, |run| run.0),
        auto_mbit: of(&auto, |run| run.0),
        ratio,
        met: ratio >= BAR,
        off_cores: of(&off, |run| run.1),
        auto_cores: of(&auto, |run| run.1),
    })
}
