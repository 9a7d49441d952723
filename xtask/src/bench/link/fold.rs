//! A database's writes at several times what the line carries: hot pages over and over again, and a log that grows. What folding leaves of them.

use super::pair::{LinkMoment, LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, mbit_text, median};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fs;
use std::time::Duration;

const LINE: (f64, f64) = (10.0, 50.0);
/// All of the backlog stands in memory, and nothing gets smaller by compression.
const GROUP: &str = "mode = \"async\"\nqueue.memory = \"64MiB\"";
const LINK: &str = "compression = \"off\"";
/// Of what the line carries.
const BAR: f64 = 3.0;
/// Until the queue holds more than an epoch, and its first writes are flushed.
const WARM_UP: Duration = Duration::from_secs(10);
/// Pages of 8 KiB by Zipf 0.99 in the first three quarters of 64 MiB, and behind them the tail of a log, which is flushed with each of its
/// writes. The same numbers are drawn in each turn.
const WRITERS: &[&str] = &[
    "--rw=randwrite",
    "--bs=8k",
    "--size=48m",
    "--random_distribution=zipf:0.99",
    "--randseed=7",
    "--iodepth=16",
    "--fsync=64",
    "--refill_buffers",
    "--time_based",
    "--runtime=1h",
    "--rate=4m",
];

#[derive(Serialize)]
struct FoldCell {
    fold: &'static str,
    offered_mbit: f64,
    /// Of clients' writes: durable at the secondary.
    moved_mbit: f64,
    /// What TCP sent for it.
    carried_mbit: f64,
    ratio: f64,
    met: bool,
}

impl SeriesRow for FoldCell {
    const HEAD: &'static [&'static str] =
        &["fold", "offered Mbit/s", "moved Mbit/s", "carried Mbit/s", "ratio", ">= 3"];

    fn cells(&self) -> Vec<String> {
        let rates = [self.offered_mbit, self.moved_mbit, self.carried_mbit].map(mbit_text);
        let met = if self.met { "yes" } else { "no" };
        [vec![self.fold.to_owned()], rates.to_vec(), vec![format!("{:.2}", self.ratio), met.to_owned()]].concat()
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
    let mut section = ReportSection::new::<FoldCell>("fold: hot pages and a log at several times the line's rate");
    let line = TableLine::new(LINE.0, LINE.1).options();
    let pair = LinkPair::start(stage, &PairSetup { line, link: LINK, group: GROUP, volume_bytes: stage.volume_bytes })?;
    let [mut auto, mut never] = [Vec::new(), Vec::new()];
    for round in 0..arguments.rounds {
        for is_auto in [round % 2 == 0, round % 2 == 1] {
            pair.set(if is_auto { "fold=auto" } else { "fold=never" })?;
            let turn = one_turn(&pair, arguments.seconds)?;
            if is_auto { &mut auto } else { &mut never }.push(turn);
        }
    }
    let images = ["near", "far"].map(|node| pair.home().join(format!("{node}.bench.img")));
    pair.drain()?;
    pair.wait_until("the copy has applied all of it", |look| look.dirty_bytes() == Some(0))?;
    let [near, far] = images.map(fs::read);
    ensure!(near? == far?, "the images differ");
    pair.stop()?;
    section.add(&cell("auto", &auto))?;
    section.add(&cell("never", &never))?;
    Ok(section)
}

fn one_turn(pair: &LinkPair, seconds: u32) -> Result<FoldTurn> {
    let log =
        ["--name=log", "--rw=write", "--bs=4k", "--offset=48m", "--size=16m", "--iodepth=1", "--fsync=1", "--rate=1m"];
    let uri = pair.uri();
    let writers = pair.write(&[WRITERS, &log, &[uri.as_str()]].concat())?;
    pair.pause(WARM_UP)?;
    let from = pair.look()?;
    pair.pause(Duration::from_secs(seconds.into()))?;
    let to = pair.look()?;
    drop(writers);
    ensure!(to.state() == "replicating" || to.state() == "catching-up", "it did not stay in order: {}", to.state());
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

fn cell(fold: &'static str, turns: &[FoldTurn]) -> FoldCell {
    let of = |value: fn(&FoldTurn) -> f64| median(&turns.iter().map(value).collect::<Vec<f64>>());
    let ratio = of(|turn| turn.moved / turn.carried);
    FoldCell {
        fold,
        offered_mbit: of(|turn| turn.offered),
        moved_mbit: of(|turn| turn.moved),
        carried_mbit: of(|turn| turn.carried),
        ratio,
        met: ratio >= BAR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_what_travelled() {
        let turn = FoldTurn { offered: 40.0, moved: 30.0, carried: 10.0 };
        let row = cell("auto", &[turn, FoldTurn { moved: 31.0, ..turn }, turn]);
        assert_eq!(row.cells()[4..], ["3.00", "yes"]);
    }
}
