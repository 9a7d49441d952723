//! A database's writes at several times what the line carries: hot pages over and over again, and a log that grows. What folding leaves of them.

use super::pair::{LinkMoment, LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, mbit_text, median};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::time::Duration;

const LINE: (f64, f64) = (20.0, 50.0);
/// All of the backlog stands in memory.
const GROUP: &str = "mode = \"async\"\nqueue.memory = \"64MiB\"";
const LINK: &str = "compression = \"off\"";
/// Times what the line carries, where it compresses and folds.
const BAR: f64 = 3.0;
/// Until the queue holds more than an epoch, and its first writes are flushed.
const WARM_UP: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;
/// Where pages are, and behind them a log.
const PAGES_BYTES: u64 = 1 << 30;
const LOG_BYTES: u64 = 64 * MIB;
#[cfg(test)]
const PAGE_BYTES: u64 = 8192;
/// Six times the line's rate, with the log.
#[cfg(test)]
const PAGES_BYTES_PER_S: u64 = 12 * MIB;
/// Of each page 24 % differ from all others, the rest is one text: `zstd -1` makes 2 048 bytes of it. Pages are hot by Zipf. The same numbers
/// are drawn in each turn.
const WRITERS: &[&str] = &[
    "--rw=randwrite",
    "--bs=8k",
    "--size=1g",
    "--random_distribution=zipf:0.99",
    "--randseed=7",
    "--iodepth=16",
    "--fsync=64",
    "--refill_buffers",
    "--buffer_compress_percentage=76",
    "--buffer_compress_chunk=8k",
    "--buffer_pattern=\"the same text in each page \"",
    "--time_based",
    "--runtime=1h",
    "--rate=12m",
];
/// Its tail is overwritten by nothing, and each of its writes is flushed.
const LOG: &[&str] = &[
    "--name=log",
    "--rw=write",
    "--bs=4k",
    "--offset=1g",
    "--size=64m",
    "--iodepth=1",
    "--fsync=1",
    "--refill_buffers",
    "--buffer_compress_percentage=76",
    "--buffer_compress_chunk=4k",
    "--buffer_pattern=\"the same text in each page \"",
    "--time_based",
    "--runtime=1h",
    "--rate=3m",
];
/// Compression of the link and folding of the group: alone, and both.
const WAYS: [(&str, &str); 4] = [("off", "never"), ("off", "auto"), ("zstd", "never"), ("zstd", "auto")];

#[derive(Serialize)]
struct FoldCell {
    compression: &'static str,
    fold: &'static str,
    offered_mbit: f64,
    /// Of clients' writes: durable at the secondary.
    moved_mbit: f64,
    /// What TCP sent for it.
    carried_mbit: f64,
    /// What was moved, by the line's rate.
    times: f64,
    /// `None`: there is no bar.
    met: Option<bool>,
}

impl SeriesRow for FoldCell {
    const HEAD: &'static [&'static str] =
        &["compression", "fold", "offered Mbit/s", "moved Mbit/s", "carried Mbit/s", "x the line", ">= 3"];

    fn cells(&self) -> Vec<String> {
        let rates = [self.offered_mbit, self.moved_mbit, self.carried_mbit].map(mbit_text);
        let met = self.met.map_or("-", |met| if met { "yes" } else { "no" });
        let ways = [self.compression, self.fold].map(str::to_owned);
        [&ways[..], &rates, &[format!("{:.2}", self.times), met.to_owned()]].concat()
    }
}

/// What was so of one turn, Mbit/s.
#[derive(Clone, Copy)]
struct FoldTurn {
    offered: f64,
    moved: f64,
    carried: f64,
}

/// # Errors
/// A pair does not come up, falls out of step, or the images differ in the end.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<FoldCell>("fold: hot pages and a log at six times the line's rate");
    let line = TableLine::new(LINE.0, LINE.1).options();
    let volume_bytes = PAGES_BYTES + LOG_BYTES;
    let pair = LinkPair::start(stage, &PairSetup { line, link: LINK, group: GROUP, volume_bytes })?;
    let mut turns = WAYS.map(|_| Vec::new());
    for round in 0..arguments.rounds as usize {
        for turn in 0..WAYS.len() {
            // Each way goes first, second, and so on in turn.
            let way = (round + turn) % WAYS.len();
            go_by(&pair, WAYS[way])?;
            turns[way].push(one_turn(&pair, arguments.seconds)?);
        }
    }
    pair.wait_until("the copy has applied all of it", |look| look.dirty_bytes() == Some(0))?;
    ensure!(pair.images_are_equal()?, "the images differ");
    pair.stop()?;
    for (way, turns) in WAYS.into_iter().zip(&turns) {
        section.add(&cell(way, turns))?;
    }
    Ok(section)
}

fn go_by(pair: &LinkPair, (compression, fold): (&str, &str)) -> Result<()> {
    pair.order("near", &["link", "set", &format!("compression={compression}")])?;
    pair.set(&format!("fold={fold}"))
}

fn one_turn(pair: &LinkPair, seconds: u32) -> Result<FoldTurn> {
    let uri = pair.uri();
    let writers = pair.write(&[WRITERS, LOG, &[uri.as_str()]].concat())?;
    pair.pause(WARM_UP)?;
    let from = pair.look()?;
    pair.pause(Duration::from_secs(seconds.into()))?;
    let to = pair.look()?;
    drop(writers);
    let is_in_order = to.state() == "replicating" || to.state() == "catching-up";
    ensure!(is_in_order && to.resynced_bytes == from.resynced_bytes, "it did not stay in order: {}", to.state());
    // What is left goes the shortest way.
    go_by(pair, WAYS[WAYS.len() - 1])?;
    pair.drain()?;
    let elapsed_s = to.at.duration_since(from.at).as_secs_f64();
    let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 * 8.0 / 1e6 / elapsed_s;
    let sent = |look: &LinkMoment| look.sent_bytes().context("the status lacks what TCP sent");
    Ok(FoldTurn {
        offered: rate(from.admitted_bytes, to.admitted_bytes),
        moved: rate(from.confirmed_bytes, to.confirmed_bytes),
        carried: rate(sent(&from)?, sent(&to)?),
    })
}

fn cell((compression, fold): (&'static str, &'static str), turns: &[FoldTurn]) -> FoldCell {
    let of = |value: fn(&FoldTurn) -> f64| median(&turns.iter().map(value).collect::<Vec<f64>>());
    let times = of(|turn| turn.moved / LINE.0);
    let has_bar = (compression, fold) == WAYS[WAYS.len() - 1];
    FoldCell {
        compression,
        fold,
        offered_mbit: of(|turn| turn.offered),
        moved_mbit: of(|turn| turn.moved),
        carried_mbit: of(|turn| turn.carried),
        times,
        met: has_bar.then_some(times >= BAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_what_travelled() {
        let turn = FoldTurn { offered: 120.0, moved: 60.0, carried: 20.0 };
        let row = cell(WAYS[3], &[turn, FoldTurn { moved: 61.0, ..turn }, turn]);
        assert_eq!(row.cells()[5..], ["3.00", "yes"]);
        assert_eq!(cell(WAYS[1], &[turn]).cells()[..2], ["off", "auto"]);
        assert_eq!(cell(WAYS[1], &[turn]).cells()[6], "-");
    }

    /// Of the writes of pages, those that another one overwrites within a second: what the bar is about.
    #[test]
    fn three_of_ten_writes_are_overwritten_within_a_second() {
        let weights: Vec<f64> = (1..=PAGES_BYTES / PAGE_BYTES).map(|rank| (rank as f64).powf(-0.99)).collect();
        let (all, writes) = (weights.iter().sum::<f64>(), PAGES_BYTES_PER_S / PAGE_BYTES);
        let again = weights.iter().map(|weight| weight / all).map(|p| p * (1.0 - (1.0 - p).powf(writes as f64)));
        let share = again.sum::<f64>();
        assert!((0.3..0.5).contains(&share), "{share}");
    }
}
