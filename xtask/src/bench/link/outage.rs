//! A cable that is cut for a while under load: how soon after its return something is confirmed again, and how soon all.
//!
//! By default a silence of five seconds ends the connection and the nodes dial anew; with a longer `timeout` the same
//! connection outlives the cut, and the kernel's pause between retransmissions decides.

use super::pair::{LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, median};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::Result;
use serde::Serialize;
use std::time::{Duration, Instant};

const LINE: (f64, f64) = (100.0, 50.0);
const OUTAGES_S: [u64; 2] = [12, 20];
const SETTINGS: [&str; 3] = ["", "timeout = \"60s\"\nmax_rto = \"1s\"", "timeout = \"60s\"\nmax_rto = \"2m\""];
/// A twelfth of the line, so that the queue takes what is written meanwhile.
const WRITERS: &[&str] = &["--rw=randwrite", "--bs=8k", "--iodepth=4", "--rate=1m"];
const CALM: Duration = Duration::from_secs(2);
/// Less is what travels anyway.
const CAUGHT_UP_BYTES: u64 = 256 << 10;

#[derive(Serialize)]
struct OutageCell {
    outage_s: u64,
    settings: String,
    /// Medians, since the line was whole again: until something is confirmed, and until all but what travels is.
    resumed_s: f64,
    resumed_s_most: f64,
    caught_up_s: f64,
    /// The same connection went on.
    kept_connection: bool,
    /// The group's state at the end of the outage.
    state: String,
}

impl SeriesRow for OutageCell {
    const HEAD: &'static [&'static str] =
        &["outage", "settings", "resumes after", "at most", "caught up after", "connection", "state meanwhile"];

    fn cells(&self) -> Vec<String> {
        vec![
            format!("{} s", self.outage_s),
            self.settings.clone(),
            format!("{:.2} s", self.resumed_s),
            format!("{:.2} s", self.resumed_s_most),
            format!("{:.2} s", self.caught_up_s),
            if self.kept_connection { "the same" } else { "a new one" }.to_owned(),
            self.state.clone(),
        ]
    }
}

struct OutageKind {
    resumed_s: f64,
    caught_up_s: f64,
    kept_connection: bool,
    state: String,
}

/// # Errors
/// A pair does not come up, or not again.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<OutageCell>("outage");
    let line = TableLine::new(LINE.0, LINE.1);
    for settings in SETTINGS {
        let setup = PairSetup { line: line.options(), link: settings, group: "", volume_bytes: stage.volume_bytes };
        let pair = LinkPair::start(stage, &setup)?;
        for outage_s in OUTAGES_S {
            let blow = |_| strike(&pair, Duration::from_secs(outage_s));
            let blows = (0..arguments.rounds).map(blow).collect::<Result<Vec<_>>>()?;
            section.add(&cell(outage_s, settings, &blows))?;
        }
        pair.stop()?;
    }
    Ok(section)
}

fn strike(pair: &LinkPair, outage: Duration) -> Result<OutageKind> {
    let writers = pair.write(WRITERS)?;
    pair.pause(CALM)?;
    let before = pair.look()?;
    pair.line("cut")?;
    pair.pause(outage)?;
    let during = pair.look()?;
    pair.line("restore")?;
    let whole = Instant::now();
    let resumed =
        pair.wait_until("something is confirmed again", |look| look.confirmed_bytes > during.confirmed_bytes)?;
    let caught_up = pair.wait_until("the queue is empty again", |look| {
        look.state() == "replicating" && look.admitted_bytes - look.confirmed_bytes <= CAUGHT_UP_BYTES
    })?;
    drop(writers);
    pair.drain()?;
    Ok(OutageKind {
        resumed_s: resumed.at.duration_since(whole).as_secs_f64(),
        caught_up_s: caught_up.at.duration_since(whole).as_secs_f64(),
        kept_connection: caught_up.connections() == before.connections(),
        state: during.state().to_owned(),
    })
}

fn cell(outage_s: u64, settings: &str, blows: &[OutageKind]) -> OutageCell {
    let of = |value: fn(&OutageKind) -> f64| blows.iter().map(value).collect::<Vec<f64>>();
    let resumed = of(|blow| blow.resumed_s);
    OutageCell {
        outage_s,
        settings: if settings.is_empty() { "as they come".to_owned() } else { settings.replace('\n', ", ") },
        resumed_s: median(&resumed),
        resumed_s_most: resumed.iter().copied().fold(0.0, f64::max),
        caught_up_s: median(&of(|blow| blow.caught_up_s)),
        kept_connection: blows.iter().all(|blow| blow.kept_connection),
        state: blows.last().map(|blow| blow.state.clone()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::shown;

    #[test]
    fn a_row_has_what_the_page_shows() {
        let outage = |settings: &str| {
            let blow =
                OutageKind { resumed_s: 0.25, caught_up_s: 1.5, kept_connection: true, state: "queuing".to_owned() };
            cell(12, settings, &[blow])
        };
        assert!(shown("outage", &outage(SETTINGS[0])).ends_with("| defaults | 0.25 s | 1.50 s |\n"));
        let row = "| `timeout = \"60s\", max_rto = \"1s\"` | 0.25 s | 1.50 s |\n";
        assert!(shown("outage", &outage(SETTINGS[1])).ends_with(row));
    }
}
