//! The words of `mark`.

use clap::{Args as ClapArgs, Subcommand};

use super::reach::ReachAny;

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct MarkArgs {
    #[command(subcommand)]
    pub command: Option<MarkCommand>,
    /// One group or several, then the name of the mark: 1 to 63 letters, digits, '-', '_', '.' and ':'
    #[arg(required = true, num_args = 2.., value_names = ["GROUP", "NAME"])]
    pub words: Vec<String>,
    /// Return when the mark is durable on the other node
    #[arg(long)]
    pub wait: bool,
    /// With --wait: give up after this time, such as 10m [default: never]
    #[arg(long, value_name = "DURATION", requires = "wait")]
    pub timeout: Option<String>,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, Subcommand)]
pub enum MarkCommand {
    /// Named marks and where they are; the image kept during a sync, from when, and what it takes
    #[command(after_help = "Examples:\n  farshore mark list db\n  farshore mark list db --json")]
    List(MarkListArgs),
    /// Keep a mark from being dropped by mistake
    #[command(after_help = "Example:\n  farshore mark lock db before-upgrade")]
    Lock(MarkLockArgs),
    /// The mark may be dropped again
    #[command(after_help = "Example:\n  farshore mark unlock db before-upgrade")]
    Unlock(MarkLockArgs),
    /// Give a mark up; of the image before a sync: it cannot be had back, its space is free
    #[command(after_help = "Examples:\n  farshore mark drop db nightly-1130\n  farshore mark drop db before-sync-12")]
    Drop(MarkDropArgs),
}

#[derive(Debug, ClapArgs)]
pub struct MarkListArgs {
    /// The group
    pub group: String,
    /// One JSON object, schema farshore-marks/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct MarkLockArgs {
    /// The group
    pub group: String,
    /// The mark, as 'mark list' names it
    pub name: String,
    /// One JSON object, schema farshore-answer/1 (docs/book/status-json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}

#[derive(Debug, ClapArgs)]
pub struct MarkDropArgs {
    /// The group
    pub group: String,
    /// The mark, as 'mark list' names it
    pub name: String,
    /// Also a mark that is locked
    #[arg(long)]
    pub override_lock: bool,
    /// Also where the sync overwrites a history of this node's own, or left out a volume that has one: no delta of that is saved then
    #[arg(long)]
    pub discard: bool,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: ReachAny,
}
