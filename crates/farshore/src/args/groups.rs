//! The groups that a command is for.

use clap::Args as ClapArgs;

/// What stands for all groups of a node.
pub const ALL_GROUPS: &str = "*";

#[derive(Clone, Debug, ClapArgs)]
pub struct GroupsArgs {
    /// The groups, one after the other; '*' is all of the node
    #[arg(value_name = "GROUP", required_unless_present = "all")]
    pub groups: Vec<String>,
    /// All groups of the node
    #[arg(long, conflicts_with = "groups")]
    pub all: bool,
}
