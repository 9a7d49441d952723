//! Scattered blocks that were written while nothing was sent: what of them travels afterwards, and how long that takes.

use super::super::fio;
use super::pair::{LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, median};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::{Context, Result};
use serde::Serialize;
use std::time::Instant;

const LINE: (f64, f64) = (100.0, 50.0);
const WRITTEN_BYTES: u64 = 16 << 20;
/// Each block once, with a content that no compression makes smaller.
const WRITERS: &[&str] =
    &["--rw=randwrite", "--bs=4k", "--iodepth=32", "--norandommap=0", "--refill_buffers", "--io_size=16m"];

#[derive(Serialize)]
struct ScatteredCell {
    written_mib: f64,
    dirty_mib: f64,
    /// What TCP sent for it.
    sent_mib: f64,
    /// Of what was written, the largest of the rounds.
    sent_share: f64,
    /// From the order until both hold the same.
    sync_s: f64,
}

impl SeriesRow for ScatteredCell {
    const HEAD: &'static [&'static str] = &["written", "dirty", "on the wire", "of what was written", "sync"];

    fn cells(&self) -> Vec<String> {
        let mib = |mib: f64| format!("{mib:.2} MiB");
        let sizes = [self.written_mib, self.dirty_mib, self.sent_mib].map(mib);
        [sizes.to_vec(), vec![format!("{:.2}", self.sent_share), format!("{:.2} s", self.sync_s)]].concat()
    }
}

struct ScatteredRound {
    dirty_bytes: u64,
    sent_bytes: u64,
    sync_s: f64,
}

/// # Errors
/// A pair does not come up, or a sync fails.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<ScatteredCell>("scattered: 4 KiB at random, 100 Mbit/s, 50 ms");
    let line = TableLine::new(LINE.0, LINE.1).options();
    let pair = LinkPair::start(stage, &PairSetup { line, link: "", group: "", volume_bytes: stage.volume_bytes })?;
    let rounds = (0..arguments.rounds).map(|round| one_round(&pair, round)).collect::<Result<Vec<_>>>()?;
    pair.stop()?;
    section.add(&cell(&rounds))?;
    Ok(section)
}

fn one_round(pair: &LinkPair, round: u32) -> Result<ScatteredRound> {
    pair.order("near", &["logging", super::pair::GROUP])?;
    fio::latency(pair.fio(&[WRITERS, &[&format!("--randseed={}", round + 1)]].concat()))?;
    let before = pair.look()?;
    let began = Instant::now();
    pair.order("near", &["sync", super::pair::GROUP, "--wait"])?;
    let sync_s = began.elapsed().as_secs_f64();
    let after = pair.wait_until("the group replicates", |look| look.state() == "replicating")?;
    let bytes = |bytes: Option<u64>| bytes.context("the status lacks a figure");
    Ok(ScatteredRound {
        dirty_bytes: bytes(before.dirty_bytes())?,
        sent_bytes: bytes(after.sent_bytes())?.saturating_sub(bytes(before.sent_bytes())?),
        sync_s,
    })
}

fn cell(rounds: &[ScatteredRound]) -> ScatteredCell {
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let of = |value: fn(&ScatteredRound) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
    let sent = of(|round| round.sent_bytes as f64);
    ScatteredCell {
        written_mib: mib(WRITTEN_BYTES as f64),
        dirty_mib: mib(median(&of(|round| round.dirty_bytes as f64))),
        sent_mib: mib(median(&sent)),
        sent_share: sent.iter().copied().fold(0.0, f64::max) / WRITTEN_BYTES as f64,
        sync_s: median(&of(|round| round.sync_s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_what_travelled() {
        let round = |sent_bytes| ScatteredRound { dirty_bytes: 16 << 20, sent_bytes, sync_s: 1.75 };
        let row = cell(&[round(17 << 20), round(17 << 20), round(18 << 20)]);
        assert_eq!(row.cells(), ["16.00 MiB", "16.00 MiB", "17.00 MiB", "1.12", "1.75 s"]);
    }
}
