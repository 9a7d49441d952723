//! A cable that is out for five seconds under a writer in `sync`: the longest that one of its writes takes, and what is sent again.

use super::super::fio::{self, Latency};
use super::pair::{LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, median};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;

const RATE_MBIT: f64 = 100.0;
const ROUND_TRIPS_MS: [f64; 2] = [5.0, 50.0];
const OUTAGE: Duration = Duration::from_secs(5);
const CALM: Duration = Duration::from_secs(3);
const WRITER: &[&str] = &["--rw=randwrite", "--bs=4k", "--iodepth=1", "--time_based", "--runtime=16"];
/// Room for what one writer writes at the disk's speed while the cable is out.
const GROUP_LINES: &str = "mode = \"sync\"\nqueue.memory = \"1GiB\"\nqueue.items = 1000000";

#[derive(Serialize)]
struct CableCell {
    rtt_ms: f64,
    outage_s: u64,
    /// Of all writes of a round: the median, and the longest of the rounds.
    p50_ms: f64,
    longest_ms: f64,
    /// The group's state at the end of the outage.
    state: String,
    /// By syncs, the most of the rounds.
    resynced_bytes: u64,
}

impl SeriesRow for CableCell {
    const HEAD: &'static [&'static str] =
        &["round trip", "outage", "p50 of writes", "longest write", "state meanwhile", "resynced"];

    fn cells(&self) -> Vec<String> {
        vec![
            format!("{} ms", self.rtt_ms),
            format!("{} s", self.outage_s),
            format!("{:.2} ms", self.p50_ms),
            format!("{:.0} ms", self.longest_ms),
            self.state.clone(),
            format!("{} bytes", self.resynced_bytes),
        ]
    }
}

struct CableRound {
    writes: Latency,
    state: String,
    resynced_bytes: u64,
}

/// # Errors
/// A pair does not come up, or not again.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<CableCell>("cable: out for 5 s under a writer in sync, 100 Mbit/s");
    for rtt_ms in ROUND_TRIPS_MS {
        let line = TableLine::new(RATE_MBIT, rtt_ms).options();
        let setup = PairSetup { line, link: "", group: GROUP_LINES, volume_bytes: stage.volume_bytes };
        let pair = LinkPair::start(stage, &setup)?;
        let rounds = (0..arguments.rounds).map(|_| one_round(&pair)).collect::<Result<Vec<_>>>()?;
        pair.stop()?;
        section.add(&cell(rtt_ms, &rounds))?;
    }
    Ok(section)
}

fn one_round(pair: &LinkPair) -> Result<CableRound> {
    let before = pair.look()?.resynced_bytes;
    let writer = pair.fio(WRITER);
    let writes = std::thread::spawn(move || fio::latency(writer));
    pair.pause(CALM)?;
    pair.line("cut")?;
    pair.pause(OUTAGE)?;
    let during = pair.look()?;
    pair.line("restore")?;
    let writes = writes.join().expect("reading fio's output does not panic")?;
    pair.drain()?;
    Ok(CableRound { writes, state: during.state().to_owned(), resynced_bytes: pair.look()?.resynced_bytes - before })
}

fn cell(rtt_ms: f64, rounds: &[CableRound]) -> CableCell {
    let p50: Vec<f64> = rounds.iter().map(|round| round.writes.p50_ms).collect();
    CableCell {
        rtt_ms,
        outage_s: OUTAGE.as_secs(),
        p50_ms: median(&p50),
        longest_ms: rounds.iter().map(|round| round.writes.max_ms).fold(0.0, f64::max),
        state: rounds.last().map(|round| round.state.clone()).unwrap_or_default(),
        resynced_bytes: rounds.iter().map(|round| round.resynced_bytes).max().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_the_longest_of_all_rounds() {
        let round = |max_ms| {
            let writes = Latency { mean_ms: 6.0, p50_ms: 5.5, p99_ms: 7.0, max_ms, per_second: 160.0 };
            CableRound { writes, state: "queuing".to_owned(), resynced_bytes: 0 }
        };
        let row = cell(5.0, &[round(210.0), round(250.0)]);
        assert_eq!(row.cells(), ["5 ms", "5 s", "5.50 ms", "250 ms", "queuing", "0 bytes"]);
    }
}
