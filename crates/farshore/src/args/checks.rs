//! The checks' part of the command line: `disk test`, `doctor`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use units::quantities::{Bytes, Rate, Seconds, parse_rate, parse_size, parse_time};

#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Measure how long the disk takes until a write is durable, as two numbers for the planner
    #[command(
        after_help = "Examples:\n  farshore disk test /var/lib/farshore\n  farshore disk test /var/lib/farshore --json > disk.json && farshore plan db.trace --link 100Mbit,50ms --disk disk.json\n  farshore disk test /dev/sdx --overwrite-device        (destroys what is on it)\n\nExits with 1 when the numbers are doubtful; standard error says why."
    )]
    Test(DiskTestArgs),
}

#[derive(Debug, Args)]
pub struct DiskTestArgs {
    /// A directory on the disk; the test makes a file there and removes it, also when it is interrupted
    pub path: PathBuf,
    /// For all sizes together, in equal parts
    #[arg(long, value_name = "TIME", value_parser = test_time, default_value = "10s")]
    pub time: Seconds,
    /// Sizes of a flush, multiples of 4KiB, 64MiB at most
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size, default_value = "4KiB,16KiB,64KiB,256KiB,1MiB,4MiB")]
    pub sizes: Vec<Bytes>,
    /// Size of the file, written once before the test and then over and over
    #[arg(long, value_name = "SIZE", value_parser = file_size, default_value = "64MiB")]
    pub file_size: Bytes,
    /// What one flush may take before the disk counts as hung
    #[arg(long, value_name = "TIME", value_parser = test_time, default_value = "30s")]
    pub timeout: Seconds,
    /// Write through the page cache even where O_DIRECT works
    #[arg(long)]
    pub buffered: bool,
    /// PATH may be a block device, and what is on it be destroyed; refused all the same while anybody uses it
    #[arg(long)]
    pub overwrite_device: bool,
    /// One JSON object, schema farshore-disk-test/1, which `farshore plan --disk` reads
    #[arg(long)]
    pub json: bool,
}

/// Long enough to tell, short enough to wait for.
fn test_time(text: &str) -> Result<Seconds, String> {
    parse_time(text).and_then(|time| {
        let is_fit = (0.1..=86400.0).contains(&time.0);
        if is_fit { Ok(time) } else { Err(format!("{text:?} is out of range; 100ms to 24h")) }
    })
}

fn file_size(text: &str) -> Result<Bytes, String> {
    parse_size(text).and_then(|size| {
        let is_fit = size.0.is_multiple_of(4096) && (8192..=1 << 40).contains(&size.0);
        if is_fit { Ok(size) } else { Err(format!("{text:?} is out of range; multiples of 4KiB, 8KiB to 1TiB")) }
    })
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  farshore doctor\n  farshore doctor 10.0.0.2 --bw 100Mbit --rtt 50ms\n  ssh beta farshore doctor --json > beta.json; farshore doctor --beside beta.json        (both ends in one table)\n  farshore doctor --json | jq '.checks[] | select(.verdict == \"warning\") | .command'\n\nExits with 1 when a line is a warning, 2 when one is a problem. Run as root, it sees more."
)]
pub struct DoctorArgs {
    /// The other end: a node of the configuration, or HOST[:PORT] [default: the only peer there is]
    pub peer: Option<String>,
    /// What the line carries, for the bandwidth-delay product [default: as measured by the daemon, else the card's speed]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub bw: Option<Rate>,
    /// The round trip [default: as measured]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub rtt: Option<Seconds>,
    /// What `farshore doctor --json` printed on the other end
    #[arg(long, value_name = "FILE")]
    pub beside: Option<PathBuf>,
    /// How long to wait for each answer
    #[arg(long, value_name = "TIME", value_parser = test_time, default_value = "3s")]
    pub timeout: Seconds,
    /// Leave the disk of the state directory alone: no flush is timed, no space looked at
    #[arg(long)]
    pub skip_disk: bool,
    /// One JSON object, schema farshore-doctor/1
    #[arg(long)]
    pub json: bool,
    /// A line of JSON for what it is doing, for each check, and for all; schema farshore-doctor-stream/1
    #[arg(long, conflicts_with = "json")]
    pub json_stream: bool,
    #[command(flatten)]
    pub reach: super::reach::Reach,
}
