//! A full line whose rate falls while the connection lives: what a lone writer of another group waits beside the load, second
//! by second, until that is as it stays at the new rate. Congestion control that paces by what it measured paces too fast for a while.

use super::super::fio::{self, FioWrite};
use super::pair::{LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, median};
use super::{LinkBenchArgs, LinkStage, TableLine, rate_text};
use anyhow::{Context, Result};
use serde::Serialize;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CONTROLS: [&str; 3] = ["cubic", "bbr", "auto"];
/// Mbit/s and milliseconds.
const LINE: (f64, f64) = (100.0, 50.0);
/// Mbit/s after the fall, and whether the queue before the line keeps its bytes, as a router's does, or shrinks with the rate.
const FALLS: [(f64, QueueFall); 4] =
    [(5.0, QueueFall::Shrinks), (20.0, QueueFall::Keeps), (10.0, QueueFall::Keeps), (5.0, QueueFall::Keeps)];
const LOAD: &[&str] = &["--rw=write", "--bs=1m", "--iodepth=8"];
/// `auto` has taken bbr by then.
const LOADED_FOR: Duration = Duration::from_secs(8);
const LONE: &[&str] = &["--rw=randwrite", "--bs=4k", "--iodepth=1", "--time_based", "--log_unix_epoch=1"];
/// Of the lone writer, and from the fall on.
const LEAD: Duration = Duration::from_secs(3);
const AFTER_S: u32 = 25;
/// The last so many of these show what stays.
const STEADY_S: u32 = 10;
/// What is shown second by second.
const SHOWN_S: u32 = 12;
/// At most so many times what stays is back to it.
const BACK: f64 = 2.0;
/// A look for the way back: each tenth of a second, at a second.
const STEP_S: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum QueueFall {
    Shrinks,
    Keeps,
}

/// Medians over the rounds.
#[derive(Serialize)]
struct FallCell {
    to_mbit: f64,
    queue: QueueFall,
    congestion: &'static str,
    /// What is in use when the rate falls.
    in_use: String,
    /// What the write under way waits, on average over a second: each second from the fall on, and the last ten.
    waits_ms: Vec<f64>,
    steady_ms: f64,
    back_s: f64,
    back_s_most: f64,
    /// Of the new rate, what was confirmed since the fall.
    carried_share: f64,
}

impl SeriesRow for FallCell {
    const HEAD: &'static [&'static str] =
        &["falls to", "queue", "congestion", "waits each second, ms", "steady", "back after", "at most", "carried"];

    fn cells(&self) -> Vec<String> {
        let waits: Vec<String> = self.waits_ms.iter().map(|ms| format!("{ms:.0}")).collect();
        vec![
            rate_text(self.to_mbit),
            match self.queue {
                QueueFall::Shrinks => "shrinks",
                QueueFall::Keeps => "keeps its bytes",
            }
            .to_owned(),
            format!("{} ({})", self.congestion, self.in_use),
            waits.join(" "),
            format!("{:.0} ms", self.steady_ms),
            format!("{:.1} s", self.back_s),
            format!("{:.1} s", self.back_s_most),
            format!("{:.0} %", self.carried_share * 100.0),
        ]
    }
}

struct FallRun {
    in_use: String,
    waits_ms: Vec<f64>,
    steady_ms: f64,
    back_s: f64,
    carried_share: f64,
}

/// # Errors
/// A pair does not come up, or a write fails.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let mut section = ReportSection::new::<FallCell>("fall: from 100 Mbit/s, 50 ms");
    let is_asked =
        |name: &&str| arguments.congestion.is_empty() || arguments.congestion.iter().any(|asked| asked == name);
    let controls: Vec<&'static str> = CONTROLS.into_iter().filter(is_asked).collect();
    for (to_mbit, queue) in FALLS {
        let mut runs: Vec<Vec<FallRun>> = controls.iter().map(|_| Vec::new()).collect();
        for _ in 0..arguments.rounds {
            for (congestion, runs) in controls.iter().zip(&mut runs) {
                runs.push(fall(stage, congestion, to_mbit, queue)?);
            }
        }
        for (congestion, runs) in controls.iter().zip(&runs) {
            section.add(&cell(congestion, to_mbit, queue, runs))?;
        }
    }
    Ok(section)
}

fn fall(stage: &LinkStage, congestion: &str, to_mbit: f64, queue: QueueFall) -> Result<FallRun> {
    let link = format!("congestion = {congestion:?}");
    let line = TableLine::new(LINE.0, LINE.1);
    let mut options = line.options();
    if queue == QueueFall::Keeps {
        options.queue_bytes = Some((line.rate_mbit() * line.rtt_ms() * 1e3 / 8.0) as u64);
    }
    let setup = PairSetup { line: options, link: &link, group: "mode = \"sync\"", volume_bytes: stage.volume_bytes };
    let pair = LinkPair::start_beside(stage, &setup)?;
    let load = pair.write(LOAD)?;
    pair.pause(LOADED_FOR)?;
    let log = pair.home().join("lone");
    let seconds = LEAD.as_secs() as u32 + AFTER_S + 1;
    let (to_log, runtime) = (format!("--write_lat_log={}", log.display()), format!("--runtime={seconds}"));
    let lone = fio::start(pair.fio_beside(&[LONE, &[&to_log, &runtime, "--per_job_logs=0"]].concat()))?;
    pair.pause(LEAD)?;
    let in_use = pair.congestion()?;
    let before = pair.look()?;
    pair.line(&format!("rate {to_mbit}mbit"))?;
    let (fell, fell_s) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64());
    pair.pause((fell + Duration::from_secs(AFTER_S.into())).saturating_duration_since(Instant::now()))?;
    let after = pair.look()?;
    let elapsed_s = after.at.duration_since(before.at).as_secs_f64();
    let carried_share = (after.confirmed_bytes - before.confirmed_bytes) as f64 * 8.0 / 1e6 / elapsed_s / to_mbit;
    lone.ended()?;
    drop(load);
    // What waits need not be carried at the new rate.
    pair.line(&format!("rate {}mbit", LINE.0))?;
    let log = log.with_file_name("lone_clat.log");
    let writes = fio::logged_writes(&std::fs::read_to_string(&log).context("fio made no log")?)?;
    pair.stop()?;
    let waits = WaitTimes { writes, since_s: fell_s };
    let end_s = f64::from(AFTER_S);
    let steady_ms = waits.mean_ms(end_s - f64::from(STEADY_S), end_s);
    let waits_ms = (0..SHOWN_S).map(|second| waits.mean_ms(second.into(), f64::from(second) + 1.0)).collect();
    Ok(FallRun { in_use, waits_ms, steady_ms, back_s: waits.back_s(BACK * steady_ms), carried_share })
}

/// One writer's, one after the other, from a moment on.
struct WaitTimes {
    writes: Vec<FioWrite>,
    since_s: f64,
}

impl WaitTimes {
    /// What the write under way waits, on average over that time.
    fn mean_ms(&self, from_s: f64, to_s: f64) -> f64 {
        let (from_s, to_s) = (self.since_s + from_s, self.since_s + to_s);
        let (mut time_s, mut sum) = (0.0, 0.0);
        for write in &self.writes {
            let overlap_s = write.done_s.min(to_s) - (write.done_s - write.took_s).max(from_s);
            if overlap_s > 0.0 {
                time_s += overlap_s;
                sum += overlap_s * write.took_s;
            }
        }
        sum / time_s * 1e3
    }

    /// When the first second begins that is good again, after the first that is not.
    fn back_s(&self, good_ms: f64) -> f64 {
        let steps = (f64::from(AFTER_S) / STEP_S) as u32;
        let is_good = |step: &u32| {
            let from_s = f64::from(*step) * STEP_S;
            self.mean_ms(from_s, from_s + 1.0) <= good_ms
        };
        let Some(bad) = (0..steps).find(|step| !is_good(step)) else { return 0.0 };
        f64::from((bad..steps).find(is_good).unwrap_or(steps)) * STEP_S
    }
}

fn cell(congestion: &'static str, to_mbit: f64, queue: QueueFall, runs: &[FallRun]) -> FallCell {
    let of = |value: fn(&FallRun) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
    let back = of(|run| run.back_s);
    let second = |at: usize| median(&runs.iter().map(|run| run.waits_ms[at]).collect::<Vec<f64>>());
    FallCell {
        to_mbit,
        queue,
        congestion,
        in_use: runs.last().map(|run| run.in_use.clone()).unwrap_or_default(),
        waits_ms: (0..SHOWN_S as usize).map(second).collect(),
        steady_ms: median(&of(|run| run.steady_ms)),
        back_s: median(&back),
        back_s_most: back.iter().copied().fold(0.0, f64::max),
        carried_share: median(&of(|run| run.carried_share)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One second of waits after the other, each of writes of that length.
    fn waits(lengths_s: &[f64]) -> WaitTimes {
        let mut writes = Vec::new();
        let mut done_s = 100.0;
        for &took_s in lengths_s {
            for _ in 0..(1.0 / took_s).round().max(1.0) as u32 {
                done_s += took_s;
                writes.push(FioWrite { done_s, took_s });
            }
        }
        WaitTimes { writes, since_s: 100.0 }
    }

    #[test]
    fn a_row_has_what_the_page_shows() {
        let mut waits_ms = vec![100.0; SHOWN_S as usize];
        (waits_ms[3], waits_ms[9]) = (1734.0, 9999.0);
        let run = FallRun { in_use: "bbr".to_owned(), waits_ms, steady_ms: 238.0, back_s: 2.7, carried_share: 0.95 };
        let row = cell("auto", 5.0, QueueFall::Shrinks, &[run]);
        assert!(crate::measured::shown("fall", &row).ends_with("| 5 | shrinks | 1734/ | 238/ | 2.7/ | 95/ |\n"));
    }

    #[test]
    fn a_write_counts_for_as_long_as_it_is_under_way() {
        let waits = waits(&[0.1, 2.0, 0.1]);
        assert!((waits.mean_ms(0.0, 1.0) - 100.0).abs() < 1e-6);
        assert!((waits.mean_ms(1.5, 2.5) - 2000.0).abs() < 1e-6);
        assert!((waits.mean_ms(0.5, 1.5) - 1050.0).abs() < 1e-6);
    }

    #[test]
    fn back_is_the_first_good_second_after_a_bad_one() {
        assert_eq!(waits(&[0.1; 30]).back_s(200.0), 0.0);
        let mut lengths = vec![0.1, 0.5, 1.0, 0.5];
        lengths.extend([0.1; 30]);
        let back_s = waits(&lengths).back_s(200.0);
        assert!((3.0..=4.0).contains(&back_s), "{back_s}");
    }
}
