//! Single writes in `sync`: a large one after a pause, where slow start may begin anew, and small ones on a short line
//! that loses, where the shortest retransmission pause decides.

use super::super::fio::{self, Latency};
use super::pair::{LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow};
use super::{LinkStage, TableLine};
use anyhow::Result;
use serde::Serialize;

const SYNC: &str = "mode = \"sync\"";
/// A large write, one at a time.
const LARGE: [&str; 3] = ["--rw=write", "--bs=1m", "--iodepth=1"];
const LARGE_BYTES: f64 = 1048576.0;
/// Of a packet of 1500 bytes, what is payload.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;
const LONG_LINE: (f64, f64) = (100.0, 50.0);
/// Congestion control, and `net.ipv4.tcp_slow_start_after_idle`.
const SENDERS: [(&str, u32); 3] = [("cubic", 1), ("cubic", 0), ("bbr", 1)];

const SHORT_LINE: (f64, f64) = (100.0, 2.0);
const SHORT_LINE_LOSS: f64 = 0.01;
const PAUSES: [&str; 3] = ["off", "40ms", "20ms"];

#[derive(Serialize)]
struct Large {
    congestion: &'static str,
    slow_start_after_idle: u32,
    ideal_ms: f64,
    /// One write after the other, and each after two seconds of nothing.
    warm_ms: f64,
    after_idle_ms: f64,
    after_idle_ms_most: f64,
}

impl SeriesRow for Large {
    const HEAD: &'static [&'static str] =
        &["control", "tcp_slow_start_after_idle", "ideal", "one after the other", "after 2 s", "at most"];

    fn cells(&self) -> Vec<String> {
        let time = |ms: f64| format!("{ms:.0} ms");
        let times = [self.ideal_ms, self.warm_ms, self.after_idle_ms, self.after_idle_ms_most].map(time);
        [vec![self.congestion.to_owned(), self.slow_start_after_idle.to_string()], times.to_vec()].concat()
    }
}

/// A write of 1 MiB after a pause.
///
/// # Errors
/// A pair does not come up, or a write fails.
pub fn large(stage: &LinkStage) -> Result<ReportSection> {
    let mut section = ReportSection::new::<Large>("idle: a write of 1 MiB in sync, medians");
    let (rate_mbit, rtt_ms) = LONG_LINE;
    for (congestion, slow_start_after_idle) in SENDERS {
        let link = format!("congestion = {congestion:?}");
        let line = TableLine::new(rate_mbit, rtt_ms).options();
        let pair =
            LinkPair::start(stage, &PairSetup { line, link: &link, group: SYNC, volume_bytes: stage.volume_bytes })?;
        pair.sysctl(&format!("net.ipv4.tcp_slow_start_after_idle={slow_start_after_idle}"))?;
        let write = |more: &[&str]| fio::latency(pair.fio(&[&LARGE[..], more].concat()));
        let warm = write(&["--number_ios=40"])?;
        let idle = write(&["--number_ios=10", "--thinktime=2s"])?;
        section.add(&Large {
            congestion,
            slow_start_after_idle,
            ideal_ms: rtt_ms + LARGE_BYTES * 8.0 / PAYLOAD_SHARE / (rate_mbit * 1e3),
            warm_ms: warm.p50_ms,
            after_idle_ms: idle.p50_ms,
            after_idle_ms_most: idle.max_ms,
        })?;
        pair.stop()?;
    }
    Ok(section)
}

#[derive(Serialize)]
struct Small {
    min_rto: &'static str,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    per_second: f64,
}

impl SeriesRow for Small {
    const HEAD: &'static [&'static str] = &["min_rto", "p50", "p99", "most", "writes/s"];

    fn cells(&self) -> Vec<String> {
        let time = |ms: f64| format!("{ms:.1} ms");
        let times = [self.p50_ms, self.p99_ms, self.max_ms].map(time);
        [vec![self.min_rto.to_owned()], times.to_vec(), vec![format!("{:.0}", self.per_second)]].concat()
    }
}

/// 4 KiB at a time on a short line that loses.
///
/// # Errors
/// A pair does not come up, or a write fails.
pub fn small(stage: &LinkStage, seconds: u32) -> Result<ReportSection> {
    let mut section = ReportSection::new::<Small>("rto: 4 KiB in sync, one at a time, 100 Mbit/s, 2 ms, 1 % loss");
    let line = TableLine { loss: SHORT_LINE_LOSS, ..TableLine::new(SHORT_LINE.0, SHORT_LINE.1) }.options();
    let pair = LinkPair::start(stage, &PairSetup { line, link: "", group: SYNC, volume_bytes: stage.volume_bytes })?;
    for min_rto in PAUSES {
        // It begins without.
        if min_rto != "off" {
            pair.tune(&[&format!("min_rto={min_rto}")])?;
        }
        let runtime = format!("--runtime={}", 3 * seconds);
        let arguments = ["--rw=randwrite", "--bs=4k", "--iodepth=1", "--time_based", &runtime];
        let Latency { p50_ms, p99_ms, max_ms, per_second, .. } = fio::latency(pair.fio(&arguments))?;
        section.add(&Small { min_rto, p50_ms, p99_ms, max_ms, per_second })?;
    }
    pair.stop()?;
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::shown;

    #[test]
    fn a_row_has_what_the_page_shows() {
        let row = Large {
            congestion: "bbr",
            slow_start_after_idle: 1,
            ideal_ms: 137.0,
            warm_ms: 139.2,
            after_idle_ms: 137.4,
            after_idle_ms_most: 249.0,
        };
        assert!(shown("idle", &row).ends_with("| bbr | 1 | 139 ms | 137 ms | 249 ms |\n"));
        let row = Small { min_rto: "40ms", p50_ms: 2.8, p99_ms: 16.2, max_ms: 66.1, per_second: 281.3 };
        assert!(shown("rto", &row).ends_with("| 40ms | 2.8 | 16.2 | 66.1 | 281 |\n"));
    }
}
