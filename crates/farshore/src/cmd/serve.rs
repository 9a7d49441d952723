//! `serve`: everything that can be wrong is found before anything is touched.

use std::path::Path;

use super::{Failure, Outcome, warn};
use crate::args::ServeArgs;
use crate::config::{Config, Node};
use crate::daemon;
use crate::link_overrides::LinkOverrides;
use crate::overrides::Overrides;

pub fn run(args: &ServeArgs) -> Outcome {
    let config = Config::load(&args.config)?;
    let name = config.local_node(args.node.as_deref())?;
    config.check_local(&name)?;
    let proof = config.proof(&name)?;
    let node = config.node(&name).ok_or("the node is not in the configuration")?;
    make_state_directory(&node.state)?;
    // Before anything in it is read: a daemon that still runs may be changing it.
    let state = daemon::hold(&node.state)?;
    let overrides = Overrides::load(&node.overrides_file())?;
    let link_overrides = LinkOverrides::load(&node.link_overrides_file())?;
    check_together(&config, &link_overrides, node)?;
    start_log();
    let dates = proof.warnings();
    config.warnings().iter().chain(&dates).chain(&overrides.unused(&config)).for_each(warn);
    Ok(daemon::run(config, name, &state, (overrides, link_overrides), proof)?)
}

/// The link's overrides were sound under another file.
fn check_together(config: &Config, overrides: &LinkOverrides, node: &Node) -> Result<(), Failure> {
    overrides.effective(&config.link.settings).check(config.link.timeout).map_err(|(key, why)| {
        let file = node.link_overrides_file();
        format!("{}: {key}: {why}; correct or remove the line there", file.display()).into()
    })
}

/// The last component only: a missing parent is more likely an unmounted file system than a wish.
fn make_state_directory(state: &Path) -> Result<(), Failure> {
    host::disk::meta::make_directory(state)
        .map_err(|error| format!("the state directory {} cannot be made: {error}", state.display()).into())
}

/// To standard error, where a service manager collects it; `FARSHORE_LOG` chooses more or less.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("FARSHORE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let colours = super::status::colours_wanted(&std::io::stderr());
    // A second subscriber (in tests of one process) is refused, and the first one stays.
    let _ =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).try_init();
}
