//! `group detach` and `group attach`; `accept-device`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

use super::reach::{DEFAULT_CONFIG, ReachAny};

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Go on without a volume of this node, whose disk is dead: nothing is asked of that disk
    #[command(
        after_help = "Examples:\n  farshore group detach db data\n  farshore group detach db data --on beta       (typed on alpha)\n\nThe group begins anew on this node, also one that failed by that disk. On a secondary no copy of the volume is kept; on a primary its\nexport is closed. A promotion of the other volumes needs --force meanwhile."
    )]
    Detach(GroupDetachArgs),
    /// Take a volume back that was detached: whatever its disk holds, all of it is sent anew
    #[command(
        after_help = "Example:\n  farshore group attach db data && farshore sync db --volume data --wait\n\nOn the secondary. The disk is the one that the configuration names, as large as the old one at least; its content is overwritten."
    )]
    Attach(GroupAttachArgs),
}

#[derive(Debug, ClapArgs)]
pub struct GroupDetachArgs {
    /// The group
    pub group: String,
    /// The volume
    pub volume: String,
    /// Cut off the clients that are attached to it: what they have not flushed is lost to them
    #[arg(long)]
    pub close_clients: bool,
    /// Also where nothing is known to be wrong with the disk, and the other node is not known to have all of the volume: that is given up
    #[arg(long)]
    pub force: bool,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct GroupAttachArgs {
    /// The group
    pub group: String,
    /// The volume
    pub volume: String,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct AcceptDeviceArgs {
    /// The group
    pub group: String,
    /// Its volumes that are on other devices, all of them
    #[arg(value_name = "VOLUME", required = true)]
    pub volumes: Vec<String>,
    /// What is on the new devices counts: this node begins anew as the primary it was
    #[arg(long, conflicts_with = "rebuild")]
    pub content_is_good: bool,
    /// What is on the new devices does not count: this node begins anew as secondary
    #[arg(long)]
    pub rebuild: bool,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "FARSHORE_CONFIG", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,
    /// Which node of the file this is [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
}
