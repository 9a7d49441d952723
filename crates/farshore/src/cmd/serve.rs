//! `serve`: everything that can be wrong is found before anything is touched.

use std::path::Path;

use settings::{Config, ConfiguredNode, GroupOverrides, LinkOverrides};

use crate::args::ServeArgs;
use crate::daemon;
use crate::log;
use crate::outcome::{CommandFailure, CommandOutcome};

pub fn run(args: &ServeArgs) -> CommandOutcome {
    log::choose(args.log.log_format);
    super::inputs::forbid_core_dumps()?;
    let config = Config::load(&args.config)?;
    let name = config.local_node(args.node.as_deref())?;
    let silent = config.check_to_serve(&name, &daemon::detached::of_machine(&config, &name))?;
    let proof = config.proof(&name)?;
    let node = config.node(&name).ok_or("the node is not in the configuration")?;
    make_state_directory(&node.state)?;
    // Before anything in it is read: a daemon that still runs may be changing it.
    let state = daemon::hold(&node.state)?;
    let overrides = GroupOverrides::load(&node.overrides_file())?;
    let link_overrides = LinkOverrides::load(&node.link_overrides_file())?;
    check_together(&config, &link_overrides, node)?;
    log::start(super::status::colours_wanted(&std::io::stderr()))?;
    let dates = proof.warnings();
    config.warnings().iter().chain(&dates).chain(&overrides.unused(&config)).for_each(|text| tracing::warn!("{text}"));
    let end = daemon::run(config, name, &state, (overrides, link_overrides), (proof, silent));
    log::finish();
    Ok(end?)
}

/// The link's overrides were sound under another file.
fn check_together(config: &Config, overrides: &LinkOverrides, node: &ConfiguredNode) -> Result<(), CommandFailure> {
    overrides.effective(&config.link.settings).check(config.link.timeout).map_err(|(key, why)| {
        let file = node.link_overrides_file();
        format!("{}: {key}: {why}; correct or remove the line there", file.display()).into()
    })
}

/// The last component only: a missing parent is more likely an unmounted file system than a wish.
fn make_state_directory(state: &Path) -> Result<(), CommandFailure> {
    host::disk::meta::make_directory(state)
        .map_err(|error| format!("the state directory {} cannot be made: {error}", state.display()).into())
}
