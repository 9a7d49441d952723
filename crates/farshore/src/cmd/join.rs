//! `join`: this machine becomes the secondary of the node that waits by `up`.

use settings::{Config, NodeName};

use super::first_run::{self, DaemonStart};
use crate::args::pair::JoinArgs;
use crate::join::devices::NamedDevice;
use crate::join::joining::{JoinFailure, JoiningNode};
use crate::join::token::JoinToken;
use crate::join::words;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print, warn};

pub fn run(args: &JoinArgs) -> CommandOutcome {
    super::inputs::forbid_core_dumps()?;
    let token = JoinToken::parse(&args.token).map_err(CommandFailure::usage)?;
    let joining = joining(args)?;
    let config = match joining.join(&token, &first_run::say) {
        Ok(joined) => {
            joined.remarks.iter().map(|remark| first_run::cleaned(remark)).for_each(warn);
            let (node, group, file) = (&joining.node, &joined.group, args.config.display());
            print(&format!("{node} has joined group {group}; {file} was written\n"))?;
            first_run::doctor(&joined.config, node)?;
            joined.config
        }
        Err(JoinFailure::Refused(why)) => return Err(first_run::cleaned(&why).into()),
        Err(JoinFailure::NotTaken(error)) => {
            let Some(config) = joined_before(args, &joining.node, &token) else {
                return Err(words::not_joined(&token, &error, words::now_unix_s()).into());
            };
            print(&format!("{} has joined already: {} is there\n", joining.node, args.config.display()))?;
            config
        }
    };
    match first_run::start(&args.config, &config, &joining.node, args.no_start)? {
        DaemonStart::Runs => print("its daemon runs: nothing is left to be done here\n")?,
        DaemonStart::Ordered => print("its daemon was started, and starts at each boot\n")?,
        DaemonStart::Yours(command) => print(&format!("start its daemon: {command}\n"))?,
    };
    Ok(Exit::Done.into())
}

/// # Errors
/// Usage: what was typed cannot be.
fn joining(args: &JoinArgs) -> Result<JoiningNode, CommandFailure> {
    let mut words = args.device.clone();
    if words.is_empty() && first_run::can_ask() {
        words.extend(first_run::ask("This machine's device for the copy, such as /dev/disk/by-id/DISK", None));
    }
    let named = |word: &String| NamedDevice::parse(word);
    let devices: Result<Vec<NamedDevice>, String> = words.iter().map(named).collect();
    devices.iter().flatten().for_each(|device| first_run::warn_of_drawn_name(device.path()));
    let address = args.address.as_deref().map(first_run::parse_address).transpose();
    Ok(JoiningNode {
        file: std::path::absolute(&args.config)?,
        node: first_run::own_name(args.name.as_deref())?,
        address: address.map_err(|why| CommandFailure::usage(format!("--address: {why}")))?,
        state: std::path::absolute(&args.state)?,
        devices: devices.map_err(|why| CommandFailure::usage(format!("--device: {why}")))?,
        overwrite: args.overwrite,
    })
}

/// The configuration, if by that this node is one of a pair with whoever made the token.
fn joined_before(args: &JoinArgs, node: &NodeName, token: &JoinToken) -> Option<Config> {
    let config = Config::load(&args.config).ok()?;
    let is_paired = config.peers_of(node).any(|peer| peer.address == token.address());
    is_paired.then_some(config)
}
