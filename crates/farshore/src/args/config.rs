//! `farshore config`: the file, and what a running daemon takes up of it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::reach::{ReachAny, default_config};

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Report every problem of a configuration file at once
    #[command(
        after_help = "Examples:\n  farshore config check farshore.toml\n  farshore config check farshore.toml --node alpha   (also its devices, directories and secret)"
    )]
    Check(CheckArgs),
    /// What the configuration file, as it is now, would have the running daemon do; nothing is changed
    #[command(after_help = "Examples:\n  farshore config plan\n  farshore config plan --json")]
    Plan(ConfigPlanArgs),
    /// Have the running daemon take up the configuration file: groups come, leave, grow or start anew, settings change
    #[command(
        after_help = "Examples:\n  farshore config apply\n  farshore config apply --close-clients\n  farshore config apply --json\n\nBoth nodes need the same file: apply it on both. Until then the groups that differ do not meet; the others go on."
    )]
    Apply(ConfigApplyArgs),
    /// Print a commented example with every key
    #[command(after_help = "Example:\n  farshore config example > farshore.toml")]
    Example,
}

#[derive(Debug, Args)]
pub struct ConfigPlanArgs {
    /// One JSON object, schema farshore-config-plan/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, Args)]
pub struct ConfigApplyArgs {
    /// Cut off clients that are attached to a group that has to stop: they fail with what they have not flushed
    #[arg(long)]
    pub close_clients: bool,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The file to check [default: what FARSHORE_CONFIG names, else /etc/farshore/farshore.toml]
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The same, in the other commands' way
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check as this node, with what the file says about this machine [default: the host name, if the file has it]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
}

impl CheckArgs {
    pub fn file(&self) -> PathBuf {
        self.file.clone().or_else(|| self.config.clone()).unwrap_or_else(default_config)
    }
}
