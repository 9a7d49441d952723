//! What `sync --reverse` is told.

use clap::Args as ClapArgs;

/// Whose content counts, and what becomes of clients.
#[derive(Debug, Default, ClapArgs)]
pub struct ReverseArgs {
    /// The other node becomes the primary, serves the clients of this node, and sends its content; this node takes over again by itself
    #[arg(long, conflicts_with_all = ["volume", "wait", "on"])]
    pub reverse: bool,
    /// With --reverse: end the one that is under way where it stands; the other node stays the primary, and the exports here close
    #[arg(long, requires = "reverse", conflicts_with_all = ["full", "yes", "discard", "close_clients"])]
    pub stop: bool,
    /// With --reverse: give up what was written here and is not on the other node, or was on a disk that failed, without a question
    #[arg(long, requires = "reverse")]
    pub yes: bool,
    /// With --reverse: save nothing of what is given up
    #[arg(long, requires = "reverse")]
    pub discard: bool,
    /// With --reverse: cut clients off where the content under them would change
    #[arg(long, requires = "reverse")]
    pub close_clients: bool,
    /// With --reverse: run no command of the configuration before or after the roles change
    #[arg(long, requires = "reverse")]
    pub skip_hooks: bool,
}
