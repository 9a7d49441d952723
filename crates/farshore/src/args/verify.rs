//! Options of `verify` and `assume-equal`.

use clap::Args as ClapArgs;
use units::exact::parse_rate;

use super::groups::GroupsArgs;
use super::reach::ReachAny;

#[derive(Debug, ClapArgs)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// Compare so much of each volume, drawn by chance: a look, and no proof
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub sample: Option<u8>,
    /// Send this node's content again where the copy differs
    #[arg(long)]
    pub repair: bool,
    /// Read at most so much, such as 200Mbit/s [default: as disks, link and writers leave room]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// End the verify that runs
    #[arg(long, conflicts_with_all = ["sample", "repair", "rate", "wait"])]
    pub stop: bool,
    /// Wait until it has ended; exits with 1 when something differs or could not be read
    #[arg(long)]
    pub wait: bool,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct AssumeEqualArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}
