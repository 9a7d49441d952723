//! `events` and `rpo`.

use clap::Args as ClapArgs;

use super::groups::GroupsArgs;
use super::reach::Reach;

#[derive(Debug, ClapArgs)]
pub struct EventsArgs {
    /// Only events of this group
    pub group: Option<String>,
    /// Show new events as they come, also over a restart of the daemon, until interrupted
    #[arg(long, short)]
    pub follow: bool,
    /// From then on: how long ago, such as 2h, or a time, such as 2026-11-27T08:00:00Z [default: all; with --follow the last ten]
    #[arg(long, value_name = "DURATION|TIME")]
    pub since: Option<String>,
    /// One JSON object per line, schema farshore-event/1 (docs/book/events.md)
    #[arg(long)]
    pub json: bool,
    /// Only this node's events: the other nodes' daemons are not asked for theirs
    #[arg(long)]
    pub local: bool,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Debug, ClapArgs)]
pub struct RpoArgs {
    #[command(flatten)]
    pub groups: GroupsArgs,
    /// From then on: how long ago, such as 7d, or a time, such as 2026-11-27T08:00:00Z
    #[arg(long, value_name = "DURATION|TIME", default_value = "30d")]
    pub since: String,
    /// One JSON object, schema farshore-rpo/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}
