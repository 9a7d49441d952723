//! The examples by which the Availability Suite's paper sizes a queue, with real writers on an emulated line: 20 writes of 8 KiB a second at
//! 50 ms never fill the queue; 50 a second against a drain of 160 KB/s fill 8 MB in 33 s, and what comes then is a setting.

use super::pair::{LinkMoment, LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::{Context, Result};
use serde::Serialize;
use std::time::Duration;

const LINE: (f64, f64) = (100.0, 50.0);
const BLOCK_BYTES: u64 = 8192;
/// 160 KB/s.
const DRAIN: &str = "rate = \"1280kbit/s\"";
/// 8 MiB of such writes, each with the 256 bytes that it counts for beside its content.
const QUEUE: &str = "queue.memory = \"8448KiB\"";
/// In which nothing fills, and in which the writers are watched once the queue is full.
const WATCHED: Duration = Duration::from_secs(60);
const AFTERWARDS: Duration = Duration::from_secs(20);
/// When the forecast is read.
const FORECAST_AT: Duration = Duration::from_secs(10);

struct Example {
    name: &'static str,
    link: &'static str,
    when_full: &'static str,
    writes_per_s: u32,
    fills: bool,
}

const EXAMPLES: [Example; 3] = [
    Example { name: "1", link: "", when_full: "block", writes_per_s: 20, fills: false },
    Example { name: "2", link: DRAIN, when_full: "block", writes_per_s: 50, fills: true },
    Example { name: "2", link: DRAIN, when_full: "bitmap", writes_per_s: 50, fills: true },
];

#[derive(Serialize)]
struct PaperCell {
    example: &'static str,
    when_full: &'static str,
    offered_per_s: u32,
    peak_bytes: u64,
    /// Since the first write; none: it did not fill within a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    forecast_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    full_s: Option<f64>,
    /// Afterwards, or all the time.
    written_per_s: f64,
    state: String,
}

impl SeriesRow for PaperCell {
    const HEAD: &'static [&'static str] =
        &["example", "when full", "offered", "peak", "forecast", "full after", "written then", "state then"];

    fn cells(&self) -> Vec<String> {
        let seconds = |time: Option<f64>| time.map_or_else(|| "never".to_owned(), |time| format!("{time:.1} s"));
        vec![
            self.example.to_owned(),
            self.when_full.to_owned(),
            format!("{}/s", self.offered_per_s),
            format!("{} KiB", self.peak_bytes >> 10),
            seconds(self.forecast_s),
            seconds(self.full_s),
            format!("{:.1}/s", self.written_per_s),
            self.state.clone(),
        ]
    }
}

/// # Errors
/// A pair does not come up, or a queue that is to fill does not.
pub fn play(stage: &LinkStage, _: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<PaperCell>("paper: the examples of the Availability Suite's paper");
    for example in &EXAMPLES {
        section.add(&written(stage, example)?)?;
    }
    Ok(section)
}

fn written(stage: &LinkStage, example: &Example) -> Result<PaperCell> {
    let group = format!("mode = \"async\"\n{QUEUE}\nqueue.when_full = \"{}\"", example.when_full);
    let line = TableLine::new(LINE.0, LINE.1).options();
    let setup = PairSetup { line, link: example.link, group: &group, volume_bytes: stage.volume_bytes };
    let pair = LinkPair::start(stage, &setup)?;
    let rate = format!("--rate_iops={}", example.writes_per_s);
    let writers = pair.write(&["--rw=randwrite", "--bs=8k", "--iodepth=4", &rate])?;
    let from = pair.look()?;
    let (mut forecast_s, mut full_s) = (None, None);
    if example.fills {
        pair.pause(FORECAST_AT)?;
        let look = pair.look()?;
        forecast_s = look.queue("full_in_s").map(|left| since(&from, &look) + left as f64);
        let full = pair.wait_until("the queue is full", is_full)?;
        full_s = Some(since(&from, &full));
    }
    let before = pair.look()?;
    pair.pause(if example.fills { AFTERWARDS } else { WATCHED })?;
    let after = pair.look()?;
    drop(writers);
    pair.stop()?;
    let writes = (after.admitted_bytes - before.admitted_bytes) / BLOCK_BYTES;
    Ok(PaperCell {
        example: example.name,
        when_full: example.when_full,
        offered_per_s: example.writes_per_s,
        peak_bytes: after.queue("bytes_hwm").context("no peak of the queue")?,
        forecast_s,
        full_s,
        written_per_s: writes as f64 / since(&before, &after),
        state: after.state().to_owned(),
    })
}

/// A writer waits for room, or the order was given up.
fn is_full(look: &LinkMoment) -> bool {
    look.queue("blocked_ms").is_some_and(|waited| waited > 0) || look.state() != "replicating"
}

fn since(from: &LinkMoment, to: &LinkMoment) -> f64 {
    to.at.duration_since(from.at).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::shown;

    #[test]
    fn a_row_has_what_the_page_shows() {
        let cell = |full_s: Option<f64>| PaperCell {
            example: "2",
            when_full: "block",
            offered_per_s: 50,
            peak_bytes: 8 << 20,
            forecast_s: full_s,
            full_s,
            written_per_s: 19.5,
            state: "replicating".to_owned(),
        };
        let row = "| 2 | `block` | 50/s | 8192 KiB | 33.3 s | 33.3 s | 19.5/s |\n";
        assert!(shown("paper", &cell(Some(33.3))).ends_with(row));
        assert!(shown("paper", &cell(None)).contains("| never | never |"));
    }
}
