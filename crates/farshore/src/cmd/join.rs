//! `join`: this machine becomes the secondary of the node that waits by `up`.

use std::io::ErrorKind;

use settings::{Config, NodeName};

use super::first_run::{self, DaemonStart};
use crate::args::pair::JoinArgs;
use crate::join::devices::NamedDevice;
use crate::join::joining::{JoinFailure, JoiningNode};
use crate::join::line::LineError;
use crate::join::token::JoinToken;
use crate::join::words;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print, warn};

/// Where the token belongs.
const PIPE: &str = "echo TOKEN | farshore join --device /dev/disk/by-id/DISK";

pub fn run(args: &JoinArgs) -> CommandOutcome {
    super::inputs::forbid_core_dumps()?;
    let token = token(args)?;
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
            let Some(config) = joined_before(args, &joining.node, &token, &error) else {
                return Err(words::not_joined(&token, &error, words::now_unix_s()).into());
            };
            let (node, file) = (&joining.node, args.config.display());
            print(&format!(
                "{node} has joined already: {file} is there. Where 'farshore up' on the first node waits for a node all the same, stop \
                 this node's daemon ('systemctl stop farshore') and join by the line that it prints\n"
            ))?;
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

/// The token, which no command line holds: every user of a machine can read those, for as long as a process runs.
///
/// # Errors
/// Usage: it stands on the command line, there is none, or it is no token.
fn token(args: &JoinArgs) -> Result<JoinToken, CommandFailure> {
    if args.token.is_some() {
        return Err(CommandFailure::usage(format!(
            "the token is not taken from the command line, which every user of this machine can read: pipe it in ('{PIPE}'), or type \
             'farshore join' without it, which asks. If others use this machine, they may have read this one: end 'farshore up' on the \
             first node, and type it again for a new one"
        )));
    }
    let text = first_run::told("The token that 'farshore up' printed last on the first node");
    let text = text.map_err(|error| CommandFailure::usage(format!("the join token cannot be read: {error}")))?;
    if text.trim().is_empty() {
        return Err(CommandFailure::usage(format!(
            "no join token came on standard input: type the line that 'farshore up' printed on the first node, which is '{PIPE}'"
        )));
    }
    JoinToken::parse(&text).map_err(CommandFailure::usage)
}

/// # Errors
/// Usage: what was typed cannot be.
fn joining(args: &JoinArgs) -> Result<JoiningNode, CommandFailure> {
    let mut words = args.device.clone();
    if words.is_empty() && first_run::can_ask() {
        words.extend(first_run::ask("This machine's device for the copy, such as /dev/disk/by-id/DISK", None));
    }
    if words.is_empty() {
        let missing = "missing: --device /dev/disk/by-id/DISK (this machine's device, which the first sync overwrites)";
        return Err(CommandFailure::usage(missing));
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

/// The configuration, if by that this node is one of a pair with whoever made the token. Not while a node may be waited for there: the pair
/// is none yet.
fn joined_before(args: &JoinArgs, node: &NodeName, token: &JoinToken, error: &LineError) -> Option<Config> {
    if !nobody_waits(error) {
        return None;
    }
    let config = Config::load(&args.config).ok()?;
    let is_paired = config.peers_of(node).any(|peer| peer.address == token.address());
    is_paired.then_some(config)
}

/// Whether an error shows that 'up' waits at the token's address no more: nothing listens there, or what listens, such as the daemon, takes
/// no tokens. An 'up' that hears somebody else, or whose connection broke, may wait still.
fn nobody_waits(error: &LineError) -> bool {
    match error {
        LineError::Dial(error) => error.kind() == ErrorKind::ConnectionRefused,
        LineError::NotTheOne(_) => true,
        LineError::AnotherToken(_)
        | LineError::Late
        | LineError::Proof(_)
        | LineError::Broken(_)
        | LineError::Garbled(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use host::link::auth::AuthError;

    use super::*;

    /// This node's daemon would take port and devices while the first node waits for it to join.
    #[test]
    fn only_who_finds_nobody_waiting_may_have_joined() {
        for (error, is_so) in [
            (LineError::Dial(ErrorKind::ConnectionRefused.into()), true),
            (LineError::NotTheOne("no such protocol".to_owned()), true),
            (LineError::Dial(ErrorKind::TimedOut.into()), false),
            (LineError::AnotherToken("alert".to_owned()), false),
            (LineError::Late, false),
            (LineError::Proof(AuthError::Refused), false),
            (LineError::Broken(ErrorKind::ConnectionReset.into()), false),
            (LineError::Garbled("no text".to_owned()), false),
        ] {
            assert_eq!(nobody_waits(&error), is_so, "{error:?}");
        }
    }
}
