//! The planner's command lines: `calc`. Quantities are parsed here, with their units, so that nothing is guessed later.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use plan::formulas::CongestionModel;
use plan::model::{LinkModel, ModelMode, PlannedDisk};
use plan::plan::WhatIf;
use plan::trace::csv::Columns;
use units::quantities::{Bytes, Rate, Seconds, Share, parse_rate, parse_share, parse_size, parse_time};

/// Which traces, and what they are.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// Traces of the same time, merged by it; - is standard input. Packed with gzip or zstd or not
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// What the files are, when detection is wrong: iolog, blkparse, blktrace, msr, snia, samples, farshore
    #[arg(long, value_name = "NAME", conflicts_with = "columns")]
    pub format: Option<String>,
    /// What the columns of a table hold, such as time:ms,op,offset:sector,size:B,-
    #[arg(long, value_name = "LIST", value_parser = Columns::parse)]
    pub columns: Option<Columns>,
    /// Go on although more than 1 % of a file cannot be used
    #[arg(long)]
    pub skip_bad: bool,
}

#[derive(Debug, Args)]
pub struct ScanArgs {
    #[command(flatten)]
    pub trace: TraceArgs,
    /// Also write the records to a new file that later steps read fast
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Length of an interval; long traces get longer ones
    #[arg(long, value_name = "TIME", value_parser = positive_time, default_value = "60s")]
    pub interval: Seconds,
    /// One JSON object, schema farshore-scan/1 (docs/book/json.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).args(["device", "group"]))]
pub struct RecordArgs {
    /// A disk to sample, such as /dev/sdb: counts only
    #[arg(long, value_name = "DEV")]
    pub device: Option<PathBuf>,
    /// A group of the running daemon: each request's moment, place and length, never its bytes
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// How long; Ctrl-C ends it earlier, and what was recorded stays good
    #[arg(long = "for", value_name = "TIME", value_parser = positive_time, default_value = "24h")]
    pub length: Seconds,
    /// With --device: time between samples
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "1s", conflicts_with = "group")]
    pub interval: Seconds,
    /// The new file to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    pub reach: super::reach::Reach,
}

/// A shorter one would measure the sampling.
fn parse_interval(text: &str) -> Result<Seconds, String> {
    parse_time(text).and_then(|time| {
        if (0.1..=3600.0).contains(&time.0) {
            Ok(time)
        } else {
            Err(format!("{text:?} is out of range; intervals are 100ms to 1h"))
        }
    })
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub trace: TraceArgs,
    /// The link: RATE,RTT[,loss=SHARE][,goodput], or the JSON of a link test
    #[arg(long, value_name = "LINK", value_parser = LinkSource::parse)]
    pub link: LinkSource,
    /// Disks of both sides: RATE,OVERHEAD, or the JSON of a disk test [default: infinitely fast]
    #[arg(long, value_name = "DISK", value_parser = DiskSource::parse)]
    pub disk: Option<DiskSource>,
    /// The far side's disk, if it is another
    #[arg(long, value_name = "DISK", value_parser = DiskSource::parse)]
    pub remote_disk: Option<DiskSource>,
    /// Modes to plan: all, or some of sync,nearsync,async,superasync,periodic,logging
    #[arg(long, value_name = "MODES", value_parser = parse_modes, default_value = "all")]
    pub mode: ModeList,
    /// Memory queue
    #[arg(long, value_name = "SIZE", value_parser = positive_size, default_value = "64MiB")]
    pub queue: Bytes,
    /// Memory queue, in writes
    #[arg(long, value_name = "NUMBER", default_value_t = plan::model::QUEUE_ITEMS_DEFAULT, value_parser = clap::value_parser!(u64).range(1..))]
    pub queue_items: u64,
    /// Time between marks in periodic mode
    #[arg(long, value_name = "TIME", value_parser = positive_time, default_value = "5m")]
    pub period: Seconds,
    /// How far the data compress, such as 2.5; shown as a possibility when not given
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    pub compression: Option<f64>,
    /// Congestion control in force: how it answers loss, and what bbr gives up to look at the line. 'auto': what was
    /// measured, else as the daemons on a full line bbr from 10 ms on
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub congestion: CongestionName,
    /// Oldest the far copy may be; also says which bandwidth that needs
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    pub rpo: Option<Seconds>,
    /// Most that 99 of 100 writes may take longer
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10ms")]
    pub max_latency: Seconds,
    /// Length of the outage to plan for
    #[arg(long, value_name = "TIME", value_parser = positive_time, default_value = "10m")]
    pub outage: Seconds,
    /// When it begins [default: where it hurts most]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub outage_at: Option<Seconds>,
    /// A changed world beside the given one, such as bandwidth=2x,rtt=0.5x,queue=4x
    #[arg(long, value_name = "CHANGES", value_parser = WhatIf::parse)]
    pub what_if: Option<WhatIf>,
    /// Write the plots as SVG into this directory
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// Write one HTML page with plots, tables and reasons
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// One JSON object, schema farshore-plan/1 (docs/book/json.md)
    #[arg(long)]
    pub json: bool,
}

/// Modes in the order of their strength.
pub type ModeList = Vec<ModelMode>;

fn parse_modes(text: &str) -> Result<ModeList, String> {
    if text == "all" {
        return Ok(ModelMode::ALL.to_vec());
    }
    let mut modes = text.split(',').map(|word| ModelMode::parse(word.trim())).collect::<Result<ModeList, _>>()?;
    modes.sort_unstable();
    modes.dedup();
    Ok(modes)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CongestionName {
    Auto,
    Reno,
    Cubic,
    Bbr,
}

/// Numbers by hand, or what the toolkit measured.
#[derive(Clone, Debug)]
pub enum LinkSource {
    Given(LinkModel),
    Measured(PathBuf),
}

impl LinkSource {
    fn parse(text: &str) -> Result<Self, String> {
        if text.ends_with(".json") {
            return Ok(Self::Measured(text.into()));
        }
        let end = text.match_indices(',').nth(1).map_or(text.len(), |(at, _)| at);
        let (rate, rtt) = parse_pair(&text[..end])?;
        let mut link = LinkModel { congestion: CongestionModel::auto(rtt), ..LinkModel::of_line(rate, rtt) };
        for part in text[end..].split(',').skip(1) {
            match part.trim().split_once('=') {
                Some(("loss", share)) => link.loss = parse_share(share)?,
                None if part.trim() == "goodput" => link.payload_share = 1.0,
                _ => return Err(format!("{part:?} is unknown; after rate and round trip come loss=0.1% and goodput")),
            }
        }
        Ok(Self::Given(link))
    }
}

#[derive(Clone, Debug)]
pub enum DiskSource {
    Given(PlannedDisk),
    Measured(PathBuf),
}

impl DiskSource {
    fn parse(text: &str) -> Result<Self, String> {
        if text.ends_with(".json") {
            return Ok(Self::Measured(text.into()));
        }
        parse_pair(text).map(|(rate, overhead)| Self::Given(PlannedDisk { rate: Some(rate), overhead }))
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  farshore calc bdp --rate 100Mbit --rtt 50ms\n  farshore calc queue --write-size 8kB --writes 50 --drain 160kB/s --queue 8MB\n  farshore calc modes --legacy hadr --link 10MiB/s,100ms --disk 200MiB/s,1ms --actual 1.469MiB/s --flush-pages 8.3 --transaction-pages 15.2 --open 2.9"
)]
pub struct CalcArgs {
    #[command(subcommand)]
    pub formula: CalcCommand,
    /// One JSON object, schema farshore-calc/1 (docs/book/json.md)
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum CalcCommand {
    /// Bandwidth-delay product, and the socket buffers it asks for
    #[command(after_help = "Example:\n  farshore calc bdp --rate 100Mbit --rtt 50ms --flush 1MiB --pause 10s")]
    Bdp(BdpArgs),
    /// Table B-1: what socket buffers carry at which round trip
    #[command(after_help = "Example:\n  farshore calc buffers --buffers 24KiB,256KiB --rtts 10ms,50ms --link 100Mibit")]
    Buffers(BuffersArgs),
    /// One request per round trip: what a protocol without a window carries
    #[command(after_help = "Example:\n  farshore calc round-trip --write-size 8kB --rtt 50ms")]
    RoundTrip(RoundTripArgs),
    /// How long a queue lasts, and how long it takes to empty
    #[command(after_help = "Example:\n  farshore calc queue --write-size 8kB --writes 50 --drain 160kB/s --queue 8MB")]
    Queue(QueueArgs),
    /// Retransmission timeout, and whether to lower its minimum
    #[command(after_help = "Example:\n  farshore calc rto --rtt 3ms --rto-min 100ms")]
    Rto(RtoArgs),
    /// What loss leaves of a link
    #[command(after_help = "Example:\n  farshore calc loss --link 100Mbit --rtt 50ms --loss 0.1%")]
    Loss(LossArgs),
    /// Activity log: its size against the resync after a crash
    #[command(
        after_help = "Examples:\n  farshore calc activity-log --rate 100Mbit --extents 1024\n  farshore calc activity-log --rate 100Mbit --target 5m"
    )]
    ActivityLog(ActivityLogArgs),
    /// What one write waits for in each mode; the HADR calculator with --legacy hadr
    #[command(after_help = "Example:\n  farshore calc modes --link 100Mbit,50ms --disk 200MB/s,1ms --write-size 8KiB")]
    Modes(ModesArgs),
    /// Table 2: which mode suits which work
    #[command(after_help = "Example:\n  farshore calc table2")]
    Table2,
    /// Table 4: synchronous against asynchronous response of the old remote mirror
    #[command(after_help = "Example:\n  farshore calc table4 --rtt 50ms")]
    Table4(Table4Args),
}

#[derive(Debug, Args)]
pub struct BdpArgs {
    /// The highest rate to send at
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: Rate,
    /// The longest round trip
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub rtt: Seconds,
    /// The largest write
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64KiB")]
    pub flush: Bytes,
    /// A pause of the receiver to ride out
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub pause: Option<Seconds>,
}

#[derive(Debug, Args)]
pub struct BuffersArgs {
    /// Socket buffers
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size, default_value = "24KiB,256KiB")]
    pub buffers: Vec<Bytes>,
    /// Round trips
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = parse_time, default_value = "10ms,20ms,50ms,100ms,200ms")]
    pub rtts: Vec<Seconds>,
    /// The link; the paper's is of 2^20 bits
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "100Mibit")]
    pub link: Rate,
}

#[derive(Debug, Args)]
pub struct RoundTripArgs {
    /// Size of a write
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub write_size: Bytes,
    /// Round trip
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    pub rtt: Seconds,
    /// Requests in flight at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX))]
    pub depth: u64,
    /// Most that one request carries
    #[arg(long, value_name = "SIZE", value_parser = positive_size, default_value = "32KiB")]
    pub call: Bytes,
}

#[derive(Debug, Args)]
pub struct QueueArgs {
    /// Size of a write
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub write_size: Bytes,
    /// Writes per second
    #[arg(long, value_name = "NUMBER", value_parser = count)]
    pub writes: f64,
    /// What leaves the queue
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub drain: Rate,
    /// The queue
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB")]
    pub queue: Bytes,
}

#[derive(Debug, Args)]
pub struct RtoArgs {
    /// Round trip
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub rtt: Seconds,
    /// Its deviation
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "0s")]
    pub deviation: Seconds,
    /// Minimum in force
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "200ms")]
    pub rto_min: Seconds,
}

#[derive(Debug, Args)]
pub struct LossArgs {
    /// The link
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub link: Rate,
    /// Round trip
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    pub rtt: Seconds,
    /// Share of packets lost
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub loss: Share,
    /// Size of a write
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4KiB")]
    pub write_size: Bytes,
}

#[derive(Debug, Args)]
pub struct ActivityLogArgs {
    /// What the link carries
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: Rate,
    /// Extents in the log
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX))]
    pub extents: u64,
    /// Size of an extent
    #[arg(long, value_name = "SIZE", value_parser = positive_size, default_value = "4MiB")]
    pub extent: Bytes,
    /// The longest resync to accept
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub target: Option<Seconds>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LegacyCalcArgs {
    /// The HADR calculator: one flush at a time, sync sends after the local write, MB of 2^20
    Hadr,
}

#[derive(Debug, Args)]
pub struct ModesArgs {
    /// The link: RATE,RTT
    #[arg(long, value_name = "RATE,RTT", value_parser = parse_pair)]
    pub link: (Rate, Seconds),
    /// The disks of both sides: RATE,OVERHEAD
    #[arg(long, value_name = "RATE,TIME", value_parser = parse_pair)]
    pub disk: (Rate, Seconds),
    /// Size of a write
    #[arg(long, value_name = "SIZE", value_parser = positive_size, default_value = "8KiB")]
    pub write_size: Bytes,
    /// An old calculator's answers instead
    #[arg(long, value_name = "NAME", requires_all = ["actual", "flush_pages", "transaction_pages", "open"])]
    pub legacy: Option<LegacyCalcArgs>,
    /// With --legacy: the rate the workload has
    #[arg(long, value_name = "RATE", value_parser = parse_rate, requires = "legacy")]
    pub actual: Option<Rate>,
    /// With --legacy: pages of 4096 bytes per flush
    #[arg(long, value_name = "NUMBER", value_parser = count, requires = "legacy")]
    pub flush_pages: Option<f64>,
    /// With --legacy: pages per transaction
    #[arg(long, value_name = "NUMBER", value_parser = count, requires = "legacy")]
    pub transaction_pages: Option<f64>,
    /// With --legacy: open transactions
    #[arg(long, value_name = "NUMBER", value_parser = count, requires = "legacy")]
    pub open: Option<f64>,
}

#[derive(Debug, Args)]
pub struct Table4Args {
    /// Round trip
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "50ms")]
    pub rtt: Seconds,
}

/// `RATE,TIME`.
pub fn parse_pair(text: &str) -> Result<(Rate, Seconds), String> {
    let Some((rate, time)) = text.split_once(',') else {
        parse_rate(text)?;
        return Err(format!("{text:?} wants a time behind the rate, such as \"{text},1ms\""));
    };
    if parse_time(rate).is_ok() && parse_rate(time).is_ok() {
        return Err(format!("the rate comes first; write \"{},{}\"", time.trim(), rate.trim()));
    }
    Ok((parse_rate(rate)?, parse_time(time)?))
}

/// More than nothing, so that it can be divided by.
pub fn positive_time(text: &str) -> Result<Seconds, String> {
    parse_time(text)
        .and_then(|time| if time.0 > 0.0 { Ok(time) } else { Err(format!("{text:?} must be more than zero")) })
}

/// More than nothing, so that it can be divided by.
pub fn positive_size(text: &str) -> Result<Bytes, String> {
    parse_size(text)
        .and_then(|size| if size.0 > 0 { Ok(size) } else { Err(format!("{text:?} must be more than zero")) })
}

/// What is packed over what it becomes.
fn ratio(text: &str) -> Result<f64, String> {
    match number(text)? {
        ratio if ratio >= 1.0 => Ok(ratio),
        _ => Err(format!("{text:?} would make data larger; for data packed to half their size write 2")),
    }
}

/// More pages, writes or extents than anything here has; the product of two is still exact.
const COUNT_MAX: u64 = 10_000_000;

/// So many of something: more than none, halves too, as means are.
pub fn count(text: &str) -> Result<f64, String> {
    match number(text)? {
        count if count <= COUNT_MAX as f64 => Ok(count),
        _ => Err(format!("{text:?} is more than there can be ({COUNT_MAX} at most)")),
    }
}

/// Less of anything is nothing, and what is divided by it no number any more.
const NUMBER_MIN: f64 = 1e-9;

/// A plain number, more than zero.
pub fn number(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(value) if value > 0.0 && value < NUMBER_MIN => {
            Err(format!("{text:?} is less than there can be (0.000000001 at least)"))
        }
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err(format!("{text:?} is not a number above zero")),
    }
}
