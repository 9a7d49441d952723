//! One write at a time in `sync`: what it waits for beyond the round trip and the wire, on a line that was never full and after
//! it was. Congestion control that paces by what it has measured may have measured the writer.

use super::super::fio;
use super::pair::{LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;

const CONTROLS: [&str; 3] = ["auto", "cubic", "bbr"];
const SIZES_KIB: [u32; 3] = [1, 16, 64];
const WRITES: u32 = 200;
/// Mbit/s and milliseconds.
const LINE: (f64, f64) = (100.0, 50.0);
/// Of a packet of 1500 bytes, what is payload.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;
/// Mean beside round trip and wire, at most, under `auto`.
const BAR: f64 = 1.03;
/// Fills the line.
const LOAD: [&str; 3] = ["--rw=write", "--bs=1m", "--iodepth=8"];
const LOADED_FOR: Duration = Duration::from_secs(6);

#[derive(Serialize)]
struct Lone {
    congestion: &'static str,
    kib: u32,
    ideal_ms: f64,
    fresh_ms: f64,
    fresh_share: f64,
    loaded_ms: f64,
    loaded_share: f64,
    /// In use at the end.
    in_use: String,
    met: bool,
}

impl SeriesRow for Lone {
    const HEAD: &'static [&'static str] = &[
        "congestion",
        "write",
        "ideal",
        "fresh line, mean",
        "x ideal",
        "after load, mean",
        "x ideal",
        "then in use",
        "bar met",
    ];

    fn cells(&self) -> Vec<String> {
        let time = |ms: f64| format!("{ms:.2} ms");
        let share = |share: f64| format!("{share:.3}");
        let times = [
            time(self.ideal_ms),
            time(self.fresh_ms),
            share(self.fresh_share),
            time(self.loaded_ms),
            share(self.loaded_share),
        ];
        let met = if self.met { "yes" } else { "no" }.to_owned();
        [vec![self.congestion.to_owned(), format!("{} KiB", self.kib)], times.to_vec(), vec![self.in_use.clone(), met]]
            .concat()
    }
}

/// Each size on a link of its own.
///
/// # Errors
/// A pair does not come up, or a write fails.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<Lone>("lone: one write at a time in sync, 100 Mbit/s, 50 ms");
    let controls: Vec<&'static str> = CONTROLS
        .into_iter()
        .filter(|name| arguments.congestion.is_empty() || arguments.congestion.iter().any(|asked| asked == name))
        .collect();
    for kib in SIZES_KIB {
        for congestion in &controls {
            section.add(&lone(stage, congestion, kib)?)?;
        }
    }
    Ok(section)
}

fn lone(stage: &LinkStage, congestion: &'static str, kib: u32) -> Result<Lone> {
    let (rate_mbit, rtt_ms) = LINE;
    let link = format!("congestion = {congestion:?}");
    let (line, group) = (TableLine::new(rate_mbit, rtt_ms).options(), "mode = \"sync\"");
    let pair = LinkPair::start(stage, &PairSetup { line, link: &link, group, volume_bytes: stage.volume_bytes })?;
    let (size, count) = (format!("--bs={kib}k"), format!("--number_ios={WRITES}"));
    let one_at_a_time = || fio::latency(pair.fio(&["--rw=randwrite", "--iodepth=1", &size, &count]));
    let fresh_ms = one_at_a_time()?.mean_ms;
    let in_use = pair.congestion_under_load(&LOAD, LOADED_FOR)?;
    let loaded_ms = one_at_a_time()?.mean_ms;
    pair.stop()?;
    let ideal_ms = rtt_ms + f64::from(kib) * 8192.0 / PAYLOAD_SHARE / (rate_mbit * 1e3);
    let [fresh_share, loaded_share] = [fresh_ms, loaded_ms].map(|ms| ms / ideal_ms);
    let met = fresh_share <= BAR;
    Ok(Lone { congestion, kib, ideal_ms, fresh_ms, fresh_share, loaded_ms, loaded_share, in_use, met })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::shown;

    #[test]
    fn a_row_has_what_the_page_shows() {
        let row = Lone {
            congestion: "auto",
            kib: 16,
            ideal_ms: 51.36,
            fresh_ms: 52.0,
            fresh_share: 1.014,
            loaded_ms: 52.5,
            loaded_share: 1.023,
            in_use: "bbr".to_owned(),
            met: true,
        };
        assert!(shown("lone", &row).ends_with("| 16 KiB | 51.36 ms | 1.014 | | | 1.023 | | |\n"));
    }
}
