//! How a command finds its configuration, and by that the running daemon.

use std::path::PathBuf;

use clap::Args as ClapArgs;

/// Where commands look for the configuration when nothing says otherwise.
pub const DEFAULT_CONFIG: &str = "/etc/farshore/farshore.toml";

/// How a command finds the running daemon.
#[derive(Clone, Debug, ClapArgs)]
pub struct Reach {
    /// Configuration file, if not the one that FARSHORE_CONFIG names; its node's control socket is used
    #[arg(long, value_name = "FILE", default_value_os_t = default_config())]
    pub config: PathBuf,
    /// Which node of the file this is [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Control socket of the daemon; no configuration file is read then
    #[arg(long, value_name = "PATH", conflicts_with = "node")]
    pub socket: Option<PathBuf>,
}

/// The same for what may be done on another node.
#[derive(Clone, Debug, ClapArgs)]
pub struct ReachAny {
    #[command(flatten)]
    pub here: Reach,
    /// Have it done by the daemon of this node, which the daemon here asks
    #[arg(long, value_name = "NODE")]
    pub on: Option<String>,
}

/// The file that is read when none is named. Clap itself must not know of the variable: it takes what that says for words that were
/// typed, and shows them as required in every sentence about wrong usage.
pub fn default_config() -> PathBuf {
    std::env::var_os("FARSHORE_CONFIG").map_or_else(|| DEFAULT_CONFIG.into(), PathBuf::from)
}
