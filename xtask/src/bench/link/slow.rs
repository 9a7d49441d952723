//! Lines as slow as they come, always full: nothing must time out, and the lag that is shown must be the true one.

use super::pair::{LinkMoment, LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, mbit_text, share_text};
use super::{LinkBenchArgs, LinkStage, TableLine, rate_text};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::time::{Duration, Instant};

/// T1 and one channel pair of ISDN.
const LINES: [(f64, f64); 2] = [(1.5, 100.0), (0.128, 100.0)];
/// 256 KiB of writes: 16 s at 128 kbit/s.
const GROUP: &str = "queue.items = 32\nwait_limit = \"1h\"";
const WRITERS: &[&str] = &["--rw=randwrite", "--bs=8k", "--iodepth=4"];
/// One round each, of so many times the usual length: at 128 kbit/s that is 1 MB.
const LONGER: u32 = 8;
const LOOK_EVERY: Duration = Duration::from_millis(200);
const VOLUME_BYTES: u64 = 16 << 20;

#[derive(Serialize)]
struct SlowLinkCell {
    line_mbit: f64,
    iperf_mbit: f64,
    farshore_mbit: f64,
    share: f64,
    /// How often the link came up anew, and the states that were seen.
    reconnects: u64,
    states: Vec<String>,
    /// Age of what is not confirmed at the end: as `status` has it, and as the bench saw writes come and be confirmed.
    shown_lag_s: f64,
    true_lag_s: f64,
    /// Over all looks.
    lag_error_s_most: f64,
}

impl SeriesRow for SlowLinkCell {
    const HEAD: &'static [&'static str] =
        &["line", "iperf3", "farshore", "share", "came up anew", "states", "lag shown", "true lag", "differed at most"];

    fn cells(&self) -> Vec<String> {
        vec![
            rate_text(self.line_mbit),
            format!("{} Mbit/s", mbit_text(self.iperf_mbit)),
            format!("{} Mbit/s", mbit_text(self.farshore_mbit)),
            share_text(self.share),
            self.reconnects.to_string(),
            self.states.join(", "),
            format!("{:.1} s", self.shown_lag_s),
            format!("{:.1} s", self.true_lag_s),
            format!("{:.1} s", self.lag_error_s_most),
        ]
    }
}

/// # Errors
/// A pair does not come up.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<SlowLinkCell>("slow");
    for (rate_mbit, rtt_ms) in LINES {
        section.add(&cell(stage, arguments, &TableLine::new(rate_mbit, rtt_ms))?)?;
    }
    Ok(section)
}

fn cell(stage: &LinkStage, arguments: &LinkBenchArgs, line: &TableLine) -> Result<SlowLinkCell> {
    let pair = LinkPair::start(
        stage,
        &PairSetup { line: line.options(), link: "", group: GROUP, volume_bytes: VOLUME_BYTES },
    )?;
    let seconds = f64::from(arguments.seconds * LONGER);
    let writers = pair.write(WRITERS)?;
    let before = pair.look()?;
    let looks = watch(&pair, Duration::from_secs_f64(seconds))?;
    drop(writers);
    pair.drain()?;
    // Not before: what it leaves in the kernel's buffers would take its turn for half a minute.
    let iperf_mbit = pair.iperf(&pair.congestion()?, line.warm_up(), seconds)?;
    let rate = |from: &LinkMoment, to: &LinkMoment| {
        (to.confirmed_bytes - from.confirmed_bytes) as f64 * 8.0 / 1e6 / to.at.duration_since(from.at).as_secs_f64()
    };
    // The first half is for the queue to fill.
    let (middle, last) = (&looks[looks.len() / 2], &looks[looks.len() - 1]);
    let farshore_mbit = rate(middle, last);
    let lags: Vec<(f64, f64)> = (0..looks.len()).filter_map(|at| lags_at(&looks, at)).collect();
    ensure!(!lags.is_empty(), "the lag is never told");
    let (shown_lag_s, true_lag_s) = lags[lags.len() - 1];
    let mut states: Vec<String> = looks.iter().map(|look| look.state().to_owned()).collect();
    states.dedup();
    Ok(SlowLinkCell {
        line_mbit: line.rate_mbit(),
        iperf_mbit,
        farshore_mbit,
        share: farshore_mbit / iperf_mbit,
        reconnects: last.connections() - before.connections(),
        states,
        shown_lag_s,
        true_lag_s,
        lag_error_s_most: lags.iter().map(|(shown, truth)| (shown - truth).abs()).fold(0.0, f64::max),
    })
}

fn watch(pair: &LinkPair, time: Duration) -> Result<Vec<LinkMoment>> {
    let started = Instant::now();
    let mut looks = Vec::new();
    while started.elapsed() < time {
        looks.push(pair.look()?);
        pair.pause(LOOK_EVERY)?;
    }
    Ok(looks)
}

/// The lag that was shown, and the age of the oldest byte that was admitted and not confirmed, as earlier looks saw it
/// come; `None`: it was not told, or came before the first look.
fn lags_at(looks: &[LinkMoment], at: usize) -> Option<(f64, f64)> {
    let now = &looks[at];
    let came = looks[..=at].partition_point(|look| look.admitted_bytes <= now.confirmed_bytes);
    // Between the look before and this one.
    let came_at = looks.get(came)?.at.min(now.at);
    (came > 0).then_some(())?;
    Some((now.lag_s()?, now.at.duration_since(came_at).as_secs_f64()))
}
