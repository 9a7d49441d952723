//! `cargo xtask bench link`: what replication makes of a line.
//!
//! Each series lays an emulated WAN between two daemons, which know each other by certificates, and measures what
//! clients wrote and the secondary confirmed as durable, never what was only queued. iperf3 runs on the same line in the
//! same run, by turns, with the same congestion control: where the machine or the emulator is the limit, it is for both.
//!
//! Reading order: `pair` (who is measured), `throughput` (the main table), then a file for each other series, `report`.

mod buffers;
mod compression;
mod fall;
mod idle;
mod lone;
mod modes;
mod outage;
mod pair;
mod report;
mod slow;
mod throughput;

use super::{build, commit};
use crate::project::Project;
use crate::wan::{WanOptions, sys};
use anyhow::Result;
use report::{LinkBenchReport, ReportSection};
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use units::traffic_control;

/// Of iperf3's goodput.
const BAR: f64 = 0.95;
/// Of a group's queue and window, told here so that the bench is what users have.
const DEFAULT_BYTES: u64 = 64 << 20;

#[derive(clap::Args)]
pub struct LinkBenchArgs {
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Only this series [default: all, more than an hour]
    #[arg(long, value_enum)]
    only: Option<LinkSeries>,
    /// How often each gets its turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Length of one turn, after its start
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Rates of the lines, of the series throughput, loss and compression
    #[arg(long, value_delimiter = ',', value_parser = traffic_control::rate_bits_per_second, default_value = "10mbit,100mbit,1gbit")]
    rates: Vec<u64>,
    /// Round trips of the lines, of the series throughput and loss
    #[arg(long, value_delimiter = ',', value_parser = traffic_control::duration_ns, default_value = "1ms,10ms,50ms,100ms,200ms")]
    rtts: Vec<u64>,
    /// Congestion controls [default: throughput: auto; loss: bbr,cubic]
    #[arg(long, value_delimiter = ',')]
    congestion: Vec<String>,
    /// Measure this program, such as an earlier release, instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Further lines of the configuration's table [link], such as 'unsent = "1MiB"'
    #[arg(long, value_name = "LINE")]
    link: Vec<String>,
    /// Over IPv6
    #[arg(long)]
    ipv6: bool,
    /// What the lines of the series loss draw their losses from: under one seed two runs lose the same segments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Queue in MiB, of the series throughput and loss [default: by the line, see docs/link.md]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    queue: Option<u64>,
    /// Size of the volume in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(16..))]
    size: u32,
    /// Where volumes, journal and state are made; the default is memory, because the line is what is measured
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LinkSeries {
    /// Beside iperf3, every rate at every round trip
    Throughput,
    /// The same with 0.1 % loss
    Loss,
    /// Fixed socket buffers, beside table B-1
    Buffers,
    /// Until data flows again after a cut line
    Outage,
    /// A large write after a pause
    Idle,
    /// One write at a time on a line that was never full, and after it was
    Lone,
    /// A full line whose rate falls: what a lone writer beside the load waits, second by second
    Fall,
    /// Small writes on a short line that loses
    Rto,
    /// What a write waits for in each mode on a short line
    Modes,
    /// T1 and ISDN
    Slow,
    /// `auto` beside `off` on what does not get smaller
    Compression,
}

impl LinkSeries {
    const ALL: [LinkSeries; 11] = [
        LinkSeries::Throughput,
        LinkSeries::Loss,
        LinkSeries::Buffers,
        LinkSeries::Outage,
        LinkSeries::Idle,
        LinkSeries::Lone,
        LinkSeries::Fall,
        LinkSeries::Rto,
        LinkSeries::Modes,
        LinkSeries::Slow,
        LinkSeries::Compression,
    ];

    fn play(self, stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
        match self {
            LinkSeries::Throughput => throughput::clean(stage, arguments),
            LinkSeries::Loss => throughput::lossy(stage, arguments),
            LinkSeries::Buffers => buffers::play(stage, arguments),
            LinkSeries::Outage => outage::play(stage, arguments),
            LinkSeries::Idle => idle::large(stage),
            LinkSeries::Lone => lone::play(stage, arguments),
            LinkSeries::Fall => fall::play(stage, arguments),
            LinkSeries::Rto => idle::small(stage, arguments.seconds),
            LinkSeries::Modes => modes::play(stage, arguments),
            LinkSeries::Slow => slow::play(stage, arguments),
            LinkSeries::Compression => compression::play(stage, arguments),
        }
    }
}

/// What all series share.
pub struct LinkStage {
    program: PathBuf,
    dir: PathBuf,
    signals: File,
    ipv6: bool,
    volume_bytes: u64,
    /// Further lines of the table `[link]`.
    link: String,
}

/// A line of the tables.
#[derive(Clone, Copy, Debug)]
pub struct TableLine {
    rate_bits_per_second: u64,
    rtt_ns: u64,
    /// A share of segments.
    loss: f64,
}

impl TableLine {
    pub fn new(rate_mbit: f64, rtt_ms: f64) -> TableLine {
        TableLine { rate_bits_per_second: (rate_mbit * 1e6) as u64, rtt_ns: (rtt_ms * 1e6) as u64, loss: 0.0 }
    }

    fn options(&self) -> WanOptions {
        WanOptions { loss: self.loss, ..WanOptions::link(self.rtt_ns, self.rate_bits_per_second) }
    }

    fn rate_mbit(&self) -> f64 {
        self.rate_bits_per_second as f64 / 1e6
    }

    fn rtt_ms(&self) -> f64 {
        self.rtt_ns as f64 / 1e6
    }

    /// A queue of a second of the line, the product's own default at most: what it holds it takes to empty, after each turn.
    /// But four times what is on its way at least, because behind a lost segment waits all that comes until it was sent again.
    fn queue_bytes(&self) -> u64 {
        let per_second = self.rate_bits_per_second / 8;
        let on_the_way = (u128::from(per_second) * u128::from(self.rtt_ns) / 1_000_000_000) as u64;
        per_second.clamp(1 << 20, DEFAULT_BYTES).max(4 * on_the_way)
    }

    /// As much may be sent and not confirmed; the product's own default at least.
    fn window_bytes(&self) -> u64 {
        self.queue_bytes().max(DEFAULT_BYTES)
    }

    /// Until the sender knows the line: two seconds and fifteen round trips.
    fn warm_up(&self) -> Duration {
        Duration::from_secs(2) + 15 * Duration::from_nanos(self.rtt_ns)
    }
}

impl LinkBenchArgs {
    fn lines(&self) -> Vec<TableLine> {
        let line = |rate_bits_per_second, rtt_ns| TableLine { rate_bits_per_second, rtt_ns, loss: 0.0 };
        self.rates.iter().flat_map(|&rate| self.rtts.iter().map(move |&rtt| line(rate, rtt))).collect()
    }
}

/// A line's rate as people say it.
fn rate_text(mbit: f64) -> String {
    match mbit {
        1000.0.. => format!("{} Gbit/s", mbit / 1000.0),
        1.0.. => format!("{mbit} Mbit/s"),
        _ => format!("{} kbit/s", mbit * 1000.0),
    }
}

/// Runs it; the exit code is zero whatever the numbers are, as they belong to the machine.
///
/// # Errors
/// A series could not be played to its end.
pub fn main(arguments: &LinkBenchArgs) -> Result<ExitCode> {
    let project = Project::find()?;
    let signals = sys::signals_as_bytes()?;
    let program = arguments.program.clone().map_or_else(|| build(&project), Ok)?;
    let (dir, ipv6) = (arguments.dir.clone(), arguments.ipv6);
    let (volume_bytes, link) = (u64::from(arguments.size) << 20, arguments.link.join("\n"));
    let stage = LinkStage { program, dir, signals, ipv6, volume_bytes, link };
    let runs = (arguments.rounds, arguments.seconds);
    let mut report = LinkBenchReport::new(commit(&project), &arguments.dir, ipv6, runs);
    for series in LinkSeries::ALL {
        if arguments.only.is_none_or(|only| only == series) {
            report.add(series.play(&stage, arguments)?);
        }
    }
    report.show(arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_holds_a_second_or_four_times_what_is_on_its_way() {
        assert_eq!(TableLine::new(10.0, 1.0).queue_bytes(), 1_250_000);
        assert_eq!(TableLine::new(100.0, 1000.0).queue_bytes(), 50_000_000);
        assert_eq!(TableLine::new(1000.0, 1.0).queue_bytes(), DEFAULT_BYTES);
        assert_eq!(TableLine::new(1000.0, 200.0).queue_bytes(), 100_000_000);
        assert_eq!(TableLine::new(1000.0, 1.0).window_bytes(), DEFAULT_BYTES);
        assert_eq!(TableLine::new(0.128, 100.0).queue_bytes(), 1 << 20);
    }

    #[test]
    fn rates_are_shown_in_the_unit_they_are_sold_in() {
        assert_eq!([1000.0, 100.0, 1.5, 0.128].map(rate_text), ["1 Gbit/s", "100 Mbit/s", "1.5 Mbit/s", "128 kbit/s"]);
    }
}
