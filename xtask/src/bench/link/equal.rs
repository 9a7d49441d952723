//! A full sync of a copy that is equal already: what travels, and how long that takes, beside the sync that sends everything.

use super::super::fio;
use super::pair::{GROUP, LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, median};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::{Context, Result};
use serde::Serialize;
use std::time::Instant;

const LINE: (f64, f64) = (100.0, 50.0);
const VOLUME_BYTES: u64 = 1 << 30;
/// All of the volume, with a content that no compression makes smaller.
const FILL: &[&str] = &["--rw=write", "--bs=1m", "--iodepth=4", "--refill_buffers"];
const ORDERS: [&[&str]; 2] =
    [&["sync", GROUP, "--full", "--wait"], &["sync", GROUP, "--full", "--no-compare", "--wait"]];

#[derive(Serialize)]
struct EqualCell {
    order: String,
    equal_mib: f64,
    /// What TCP sent for it, the median.
    sent_mib: f64,
    /// From the order until it is done, the median.
    sync_s: f64,
}

impl SeriesRow for EqualCell {
    const HEAD: &'static [&'static str] = &["order", "equal", "on the wire", "sync"];

    fn cells(&self) -> Vec<String> {
        let sizes = [self.equal_mib, self.sent_mib].map(|mib| format!("{mib:.1} MiB"));
        [vec![self.order.clone()], sizes.to_vec(), vec![format!("{:.1} s", self.sync_s)]].concat()
    }
}

struct EqualRound {
    sent_bytes: u64,
    sync_s: f64,
}

/// # Errors
/// A pair does not come up, or a sync fails.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<EqualCell>("equal: a full sync of an equal copy, 100 Mbit/s, 50 ms");
    let line = TableLine::new(LINE.0, LINE.1).options();
    let pair = LinkPair::start(stage, &PairSetup { line, link: "", group: "", volume_bytes: VOLUME_BYTES })?;
    fio::latency(pair.fio(FILL))?;
    pair.drain()?;
    for order in ORDERS {
        let rounds = (0..arguments.rounds).map(|_| one_round(&pair, order)).collect::<Result<Vec<_>>>()?;
        section.add(&cell(order, &rounds))?;
    }
    pair.stop()?;
    Ok(section)
}

fn one_round(pair: &LinkPair, order: &[&str]) -> Result<EqualRound> {
    let sent = || pair.look()?.sent_bytes().context("the status lacks a figure");
    let before = sent()?;
    let began = Instant::now();
    pair.order("near", order)?;
    let sync_s = began.elapsed().as_secs_f64();
    pair.wait_until("the group replicates", |look| look.state() == "replicating")?;
    Ok(EqualRound { sent_bytes: sent()?.saturating_sub(before), sync_s })
}

fn cell(order: &[&str], rounds: &[EqualRound]) -> EqualCell {
    let of = |value: fn(&EqualRound) -> f64| median(&rounds.iter().map(value).collect::<Vec<f64>>());
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    EqualCell {
        order: order.iter().filter(|word| **word != GROUP).copied().collect::<Vec<_>>().join(" "),
        equal_mib: mib(VOLUME_BYTES as f64),
        sent_mib: mib(of(|round| round.sent_bytes as f64)),
        sync_s: of(|round| round.sync_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_what_travelled() {
        let round = |sent_bytes| EqualRound { sent_bytes, sync_s: 4.0 };
        let row = cell(ORDERS[0], &[round(3 << 20), round(3 << 20), round(9 << 20)]);
        assert_eq!(row.cells(), ["sync --full --wait", "1024.0 MiB", "3.0 MiB", "4.0 s"]);
    }
}
