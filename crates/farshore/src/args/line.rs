//! What is typed to test the line: `link serve`, `link test` and what is built on them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use toolkit::line_test::sweep::ROUNDS;
use toolkit::line_test::terms::TestMode;
use units::quantities::{Bytes, Rate, Seconds, Share, parse_rate, parse_share, parse_size, parse_time};

use super::planner::parse_pair;

/// Whose credentials are shown: the nodes' own.
#[derive(Clone, Debug, Args)]
pub struct CredentialArgs {
    /// Configuration file, if not the one that FARSHORE_CONFIG names: its certificates or secret are what both ends prove themselves with
    #[arg(long, value_name = "FILE", default_value_os_t = super::reach::default_config())]
    pub config: PathBuf,
    /// Which node of the file this is [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Silence of the other end after which it counts as gone, and the longest wait for anything; in a test that of whoever
    /// asks holds for both
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10s")]
    pub timeout: Seconds,
}

#[derive(Debug, Args)]
pub struct LinkServeArgs {
    /// Where to listen [default: the node's address in the configuration, port 7338]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Longest test that is served
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1h")]
    pub max_time: Seconds,
    /// A file that tests may make and write when they ask for --remote-disk file; it must not be there, and is removed
    /// afterwards
    #[arg(long, value_name = "PATH")]
    pub disk_file: Option<PathBuf>,
    /// End after one test; a probe, a sweep or a soak are several
    #[arg(long)]
    pub once: bool,
    #[command(flatten)]
    pub credentials: CredentialArgs,
}

/// What is asked of the sockets of both ends.
#[derive(Clone, Debug, Args)]
pub struct SocketArgs {
    /// Send buffer of both ends [default: what the configuration says]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub sndbuf: Option<Bytes>,
    /// Receive buffer of both ends [default: what the configuration says]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub rcvbuf: Option<Bytes>,
    /// Let small segments wait for confirmations (TCP_NODELAY off)
    #[arg(long)]
    pub nagle: bool,
    /// Congestion control of both ends, such as bbr or cubic [default: what the configuration says]
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Each connection never faster than this, by the kernel's spacing of packets
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub pace: Option<Rate>,
    /// What the kernel of either end may hold unsent (TCP_NOTSENT_LOWAT), 16KiB to 64MiB [default: what the configuration
    /// says]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, visible_alias = "notsent")]
    pub unsent: Option<Bytes>,
    /// Shortest pause before a retransmission, of both ends (TCP_RTO_MIN_US, Linux 6.15), 20ms to 200ms; a route's rto_min
    /// wins over it [default: what the configuration says]
    #[arg(long, value_name = "TIME", value_parser = parse_time, visible_alias = "rto-min")]
    pub min_rto: Option<Seconds>,
}

/// What travels, and what it waits for.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// What a flush waits for: sync, nearsync, async, superasync, or catchup (no writer, all the line carries); all: one after
    /// the other, side by side. superasync, and so all, needs to know how fast writers are: --disk, --disk-file, --target-rate
    /// or --gap
    #[arg(long, value_name = "MODE", value_parser = LineModesArgs::parse, default_value = "nearsync")]
    pub mode: LineModesArgs,
    /// The waits of Db2's HADR instead of Farshore's
    #[arg(long, value_name = "WHOSE")]
    pub legacy: Option<LegacySocketArgs>,
    /// Bytes of each flush
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64KiB", conflicts_with = "flush_dist")]
    pub flush_size: Bytes,
    /// Sizes by how often they come: lines of SIZE COUNT, or the JSON of 'farshore scan'
    #[arg(long, value_name = "FILE")]
    pub flush_dist: Option<PathBuf>,
    /// Write no more than this, all connections together
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub target_rate: Option<Rate>,
    /// End after this many flushes of each connection, if that is before the time
    #[arg(long, value_name = "NUMBER")]
    pub count: Option<u64>,
    /// Connections, each with a writer of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub connections: u32,
    /// Writers of each connection: so many flushes may be under way on it, as of a busy volume; 256 at most
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub depth: u32,
    /// After each flush its writer does nothing for so long; 1m at most
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "0s")]
    pub gap: Seconds,
    /// The far end sends
    #[arg(long, conflicts_with = "bidir")]
    pub reverse: bool,
    /// Both ends send
    #[arg(long)]
    pub bidir: bool,
    /// Model this machine's disk: each flush takes OVERHEAD and its size over RATE; not in catchup [default: infinitely fast]
    #[arg(long, value_name = "RATE,OVERHEAD", value_parser = parse_pair, conflicts_with = "disk_file")]
    pub disk: Option<(Rate, Seconds)>,
    /// Write to this machine's disk instead: a new file there, removed afterwards
    #[arg(long, value_name = "PATH")]
    pub disk_file: Option<PathBuf>,
    /// The far machine's disk: RATE,OVERHEAD, or 'file' where its 'link serve' was given one
    #[arg(long, value_name = "DISK", value_parser = RemoteDisk::parse)]
    pub remote_disk: Option<RemoteDisk>,
    /// Written and not confirmed, of each connection, at most; when its time is over a test lasts until that has drained
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB")]
    pub queue: Bytes,
    /// Pack frames: off, lz4, zstd, zstd:LEVEL or auto [default: what the configuration says]
    #[arg(long, value_name = "HOW")]
    pub compress: Option<String>,
    /// Share of the content that repeats itself, for --compress
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "0%")]
    pub compressible: Share,
}

#[derive(Debug, Args)]
pub struct LinkTestArgs {
    /// A node of the configuration, or HOST[:PORT] where 'farshore link serve' runs
    #[arg(value_name = "HOST")]
    pub host: String,
    /// How long
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10s")]
    pub time: Seconds,
    /// Before that: what happens in this time, such as slow start, is in no figure of either end; 10m at most
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "0s")]
    pub omit: Seconds,
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub socket: SocketArgs,
    /// What the line is sold as, for RFC 6349's transfer time ratio
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub line_rate: Option<Rate>,
    /// Print a line for each stretch of this length as it goes; in JSON the length of an interval, 100ms to 1h [default: no
    /// lines; in JSON 1s, longer beyond an hour]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub interval: Option<Seconds>,
    /// Between two round trips beside the load, 1ms to 1m; one that takes longer puts off the next
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "100ms")]
    pub probe_interval: Seconds,
    /// One JSON object, schema farshore-link-test/1 (docs/book/json.md), which 'farshore plan --link' reads; of --mode all
    /// farshore-link-modes/1
    #[arg(long)]
    pub json: bool,
    /// A line of JSON as it goes: start, each interval, end; schema farshore-link-test-stream/1 (docs/book/json.md)
    #[arg(long, conflicts_with = "json")]
    pub json_stream: bool,
    #[command(flatten)]
    pub credentials: CredentialArgs,
}

#[derive(Debug, Args)]
pub struct SweepArgs {
    /// A node of the configuration, or HOST[:PORT] where 'farshore link serve' runs
    #[arg(value_name = "HOST")]
    pub host: String,
    /// The first size
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64KiB")]
    pub from: Bytes,
    /// No size above this
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "32MiB")]
    pub to: Bytes,
    /// Each size for so long
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10s")]
    pub time: Seconds,
    /// A gain of no more than this is none
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "3%")]
    pub tolerance: Share,
    /// Largest flush of the workload: the recommended size holds it
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64KiB")]
    pub largest_flush: Bytes,
    /// Rounds: each goes through all sizes again, and of each size the middle one counts; 99 at most
    #[arg(long, value_name = "NUMBER", default_value_t = ROUNDS.default)]
    pub repeat: u32,
    /// Congestion controls of both ends, such as bbr,cubic: a table and a curve each, and which does best [default: what the
    /// configuration says]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub congestion: Vec<String>,
    /// Draw the curves into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// One JSON object, schema farshore-link-sweep/1 (docs/book/json.md); of several congestion controls farshore-link-sweeps/1
    #[arg(long)]
    pub json: bool,
    /// A line of JSON for each test as it ends, and one for all; schema farshore-link-sweep-stream/1
    #[arg(long, conflicts_with = "json")]
    pub json_stream: bool,
    #[command(flatten)]
    pub credentials: CredentialArgs,
}

#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// A node of the configuration, or HOST[:PORT] where 'farshore link serve' runs
    #[arg(value_name = "HOST")]
    pub host: String,
    /// Load both directions for so long
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5s")]
    pub time: Seconds,
    /// One JSON object, schema farshore-link-probe/1 (docs/book/json.md)
    #[arg(long)]
    pub json: bool,
    /// A line of JSON as each part is known: path, idle, load, end; schema farshore-link-probe-stream/1
    #[arg(long, conflicts_with = "json")]
    pub json_stream: bool,
    #[command(flatten)]
    pub credentials: CredentialArgs,
}

#[derive(Debug, Args)]
pub struct LinkSoakArgs {
    /// A node of the configuration, or HOST[:PORT] where 'farshore link serve' runs
    #[arg(value_name = "HOST")]
    pub host: String,
    /// The load
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: Rate,
    /// For how long
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "24h")]
    pub time: Seconds,
    /// Length of a stretch, which is one record
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1m")]
    pub every: Seconds,
    /// What a flush waits for
    #[arg(long, value_name = "MODE", value_parser = TestMode::parse, default_value = "nearsync")]
    pub mode: TestMode,
    /// Bytes of each flush
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64KiB")]
    pub flush_size: Bytes,
    /// Keep each record here as soon as there is one, a line of JSON each; an existing file is never overwritten
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// One JSON object at the end, schema farshore-link-soak/1 (docs/book/json.md)
    #[arg(long)]
    pub json: bool,
    /// A line of JSON as it goes: start, each stretch and outage, end; schema farshore-link-soak-stream/1
    #[arg(long, conflicts_with = "json")]
    pub json_stream: bool,
    #[command(flatten)]
    pub credentials: CredentialArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineModesArgs {
    One(TestMode),
    All,
}

impl LineModesArgs {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        TestMode::parse(text).map(Self::One).map_err(|why| format!("{why}; or \"all\""))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LegacySocketArgs {
    /// Db2 HADR: sync sends after the local write, async waits until the socket took it all
    Hadr,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RemoteDisk {
    Modelled(Rate, Seconds),
    File,
}

impl RemoteDisk {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "file" => Ok(Self::File),
            _ => parse_pair(text)
                .map(|(rate, overhead)| Self::Modelled(rate, overhead))
                .map_err(|why| format!("{why}; or \"file\"")),
        }
    }
}
