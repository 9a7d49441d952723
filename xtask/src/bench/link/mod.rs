//! `cargo xtask bench link`: what replication makes of a line.
//!
//! Each series lays an emulated WAN between two daemons, which know each other by certificates, and measures what
//! clients wrote and the secondary confirmed as durable, never what was only queued. iperf3 runs on the same line in the
//! same run, by turns, with the same congestion control: where the machine or the emulator is the limit, it is for both.
//!
//! Reading order: `pair` (who is measured), `throughput` (the main table), then a file for each other series, `report`.

mod buffers;
mod cable;
mod compression;
mod durable;
mod equal;
mod fall;
mod fold;
mod idle;
mod lone;
mod modes;
mod outage;
mod overload;
mod pair;
mod paper;
mod report;
mod scattered;
mod slow;
mod throughput;
mod waits;

use super::build;
use super::machine::machine;
use crate::measured::{RunFile, rate_text};
use crate::project::Project;
use crate::wan::{WanOptions, sys};
use anyhow::Result;
use clap::ValueEnum;
use report::{LinkBenchReport, ReportSection};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use units::traffic_control;

/// Of iperf3's goodput.
const BAR: f64 = 0.95;
/// Of a group's queue and window, told here so that the bench is what users have.
const DEFAULT_BYTES: u64 = 64 << 20;
/// What the figures in docs/book/link.md were measured with: seconds of a turn at least, the volume's size, where files were, and
/// what lossy lines drew their losses from.
const SECONDS_MIN: u32 = 4;
const SIZE_MIB: u32 = 256;
const DIRECTORY: &str = "/dev/shm";
const SEED: u64 = 1;

#[derive(clap::Args)]
pub struct LinkBenchArgs {
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Also add the rows to this file of measurements, of which `cargo xtask measured` makes the page
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
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
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Queue in MiB, of the series throughput and loss [default: by the line, see docs/book/link.md]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    queue: Option<u64>,
    /// Size of the volume in MiB
    #[arg(long, default_value_t = SIZE_MIB, value_parser = clap::value_parser!(u32).range(16..))]
    size: u32,
    /// Where volumes, journal and state are made; the default is memory, because the line is what is measured
    #[arg(long, default_value = DIRECTORY)]
    dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
    /// Scattered blocks written in an outage: what of them travels
    Scattered,
    /// A cable that is out for five seconds under a writer in sync: its longest write
    Cable,
    /// A full sync of a copy that is equal already
    Equal,
    /// Twice what the line carries, for five minutes in superasync
    Overload,
    /// A line that is away for ten minutes under load: all of it goes through the disk queue
    Spill,
    /// The Availability Suite's two examples of a queue: one that never fills, and one that is full after 33 s
    Paper,
    /// A database's hot pages at several times the line's rate: what of it travels with `fold`, and without
    Fold,
    /// What the log of the queue costs writers; `--dir` on the disk that is to be measured
    Durable,
    /// What a writer in async waits for the queue, in memory and on its way to disk; `--dir` on the disk that is to be measured
    Waits,
}

impl LinkSeries {
    const ALL: [LinkSeries; 20] = [
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
        LinkSeries::Scattered,
        LinkSeries::Cable,
        LinkSeries::Equal,
        LinkSeries::Overload,
        LinkSeries::Spill,
        LinkSeries::Paper,
        LinkSeries::Fold,
        LinkSeries::Durable,
        LinkSeries::Waits,
    ];

    /// What writers feel of the disk counts there, beside the line.
    fn measures_a_disk(self) -> bool {
        matches!(self, LinkSeries::Modes | LinkSeries::Spill | LinkSeries::Durable | LinkSeries::Waits)
    }

    /// As `--only` knows it.
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

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
            LinkSeries::Scattered => scattered::play(stage, arguments),
            LinkSeries::Cable => cable::play(stage, arguments),
            LinkSeries::Equal => equal::play(stage, arguments),
            LinkSeries::Overload => overload::overload(stage, arguments),
            LinkSeries::Spill => overload::spill(stage, arguments),
            LinkSeries::Paper => paper::play(stage, arguments),
            LinkSeries::Fold => fold::play(stage, arguments),
            LinkSeries::Durable => durable::play(stage, arguments),
            LinkSeries::Waits => waits::play(stage, arguments),
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
    fn series(&self) -> impl Iterator<Item = LinkSeries> {
        LinkSeries::ALL.into_iter().filter(move |&series| self.only.is_none_or(|only| only == series))
    }

    /// Options that make another measurement of a series than docs/book/link.md has. Rates, round trips and most congestion controls
    /// stand in the rows.
    fn unlike_the_page(&self, series: LinkSeries) -> [(bool, &'static str); 10] {
        let is_throughput = series == LinkSeries::Throughput;
        let is_auto = self.congestion.first().is_none_or(|first| first == "auto");
        let of_a_disk = series.measures_a_disk();
        let is_in_memory = self.dir == Path::new(DIRECTORY);
        [
            (self.program.is_some(), "`--program`"),
            (!self.link.is_empty(), "`--link`"),
            (self.ipv6, "`--ipv6`"),
            (self.seconds < SECONDS_MIN, "`--seconds` below 4"),
            (self.queue.is_some(), "`--queue`"),
            (self.size != SIZE_MIB, "`--size`"),
            (self.seed != SEED, "`--seed`"),
            (is_throughput && !is_auto, "`--congestion` of throughput"),
            (!of_a_disk && !is_in_memory, "`--dir` of a series that measures no disk"),
            (of_a_disk && is_in_memory, "a series of the disk without its `--dir` (`--only` leaves others out)"),
        ]
    }

    fn lines(&self) -> Vec<TableLine> {
        let line = |rate_bits_per_second, rtt_ns| TableLine { rate_bits_per_second, rtt_ns, loss: 0.0 };
        self.rates.iter().flat_map(|&rate| self.rtts.iter().map(move |&rtt| line(rate, rtt))).collect()
    }
}

/// Runs it; the exit code is zero whatever the numbers are, as they belong to the machine.
///
/// # Errors
/// A series could not be played to its end.
pub fn main(arguments: &LinkBenchArgs) -> Result<ExitCode> {
    let project = Project::find()?;
    let machine = machine(&arguments.dir);
    let unlike = arguments.series().flat_map(|series| arguments.unlike_the_page(series));
    let open = |path: &PathBuf| RunFile::open(path, project.commit(), machine.clone(), unlike);
    let mut append = arguments.append.as_ref().map(open).transpose()?;
    let signals = sys::signals_as_bytes()?;
    let program = arguments.program.clone().map_or_else(|| build(&project), Ok)?;
    let (dir, ipv6) = (arguments.dir.clone(), arguments.ipv6);
    let (volume_bytes, link) = (u64::from(arguments.size) << 20, arguments.link.join("\n"));
    let stage = LinkStage { program, dir, signals, ipv6, volume_bytes, link };
    let runs = (arguments.rounds, arguments.seconds);
    let mut report = LinkBenchReport::new(project.commit(), machine, ipv6, runs);
    for series in arguments.series() {
        let section = series.play(&stage, arguments)?;
        if let Some(append) = &mut append {
            append.add(&series.name(), section.rows())?;
        }
        report.add(section);
    }
    report.show(arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};
    use std::collections::BTreeSet;

    #[derive(Parser)]
    struct LinkBenchCommand {
        #[command(flatten)]
        arguments: LinkBenchArgs,
    }

    /// By some words of the command.
    fn unlike_the_page(words: &str) -> BTreeSet<&'static str> {
        let command = LinkBenchCommand::try_parse_from(format!("link {words}").split_whitespace());
        let arguments = command.unwrap_or_else(|error| panic!("{words}: {error}")).arguments;
        let options = arguments.series().flat_map(|series| arguments.unlike_the_page(series));
        options.filter(|(is_given, _)| *is_given).map(|(_, option)| option).collect()
    }

    /// Rows replace each other by line, round trip and control; each option changes those, or nothing, or is refused.
    #[test]
    fn what_no_row_says_is_refused_beside_the_page() {
        const HARMLESS: [&str; 6] = ["json", "append", "only", "rounds", "rates", "rtts"];
        let refused = [
            ("--only lone --program old", "`--program`"),
            ("--only lone --link unsent=1", "`--link`"),
            ("--only lone --ipv6", "`--ipv6`"),
            ("--only lone --seconds 3", "`--seconds` below 4"),
            ("--only loss --queue 8", "`--queue`"),
            ("--only lone --size 64", "`--size`"),
            ("--only loss --seed 11", "`--seed`"),
            ("--only throughput --congestion cubic", "`--congestion` of throughput"),
            ("--only lone --dir /var/tmp", "`--dir` of a series that measures no disk"),
        ];
        for (words, option) in refused {
            assert_eq!(unlike_the_page(words), BTreeSet::from([option]), "{words}");
        }
        let as_the_page =
            ["--only throughput --congestion auto", "--only loss --congestion bbr", "--only spill --dir /var/tmp"];
        for words in as_the_page {
            assert!(unlike_the_page(words).is_empty(), "{words}");
        }
        assert_eq!(unlike_the_page("").len(), 1, "series of a disk in memory, beside all others");
        let command = LinkBenchCommand::command();
        let options = command.get_arguments().filter_map(|argument| argument.get_long());
        for option in options.filter(|option| !HARMLESS.contains(option)) {
            let is_refused = |(words, _): &(&str, &str)| words.contains(&format!("--{option}"));
            assert!(refused.iter().any(is_refused), "--{option}: in which rows, or else refused");
        }
    }

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
