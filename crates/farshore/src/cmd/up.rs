//! `up`: from two machines to a replicating pair, with one line to be typed on the second.
//!
//! Each step looks at what is there first, so that the command typed again goes on from where it was: certificates that are there are
//! used, a configuration that is there is taken for agreed, a daemon that runs is asked, a sync that goes is waited for.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use host::tls::MemberIdentity;
use settings::pair::{PairSide, PairTerms, PairVolume, pair_config, path_text};
use settings::{ClusterName, Config, ConfiguredGroup, GroupName, NodeName, VolumeName};
use units::exact::parse_duration;

use super::first_run::{self, DaemonStart};
use super::reach::{self, WatchStep};
use super::sync;
use crate::api::{GroupState, GroupView, LinkState, Role};
use crate::args::pair::UpArgs;
use crate::args::reach::{Reach, ReachAny};
use crate::certs::{Registry, certificates_of};
use crate::daemon::devices::{DeviceContent, accept};
use crate::join::devices::{LocalDevice, NamedDevice, named};
use crate::join::joining::{make_directory, write_new};
use crate::join::line::Invitation;
use crate::join::token::JoinToken;
use crate::join::waiting::{JoinedPair, WaitingNode};
use crate::join::words;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print, warn};
use crate::show::explained;

/// Shorter nobody types; longer a token lies about.
const EXPIRES: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3600);
/// How long somebody may take to start a daemon by hand, or both nodes to meet.
const HAND_PATIENCE: Duration = Duration::from_secs(600);
/// How long a service may take to start.
const SERVICE_PATIENCE: Duration = Duration::from_secs(90);
/// Nodes that have met know in this time how they stand.
const MEETING: f64 = 10.0;
/// How a copy that never was one says so.
const NEVER_SYNCED: &str = "the secondary has never been synced";
/// Addresses of nobody (RFC 5737): the way to them is the default way.
const NOBODY: &str = "192.0.2.1:7337";
const NOBODY_ELSE: &str = "198.51.100.1:7337";

pub fn run(args: &UpArgs) -> CommandOutcome {
    super::inputs::forbid_core_dumps()?;
    let file = std::path::absolute(&args.config)?;
    let (config, node) = if file.exists() { found(args, &file)? } else { begun(args, &file)? };
    let group = config.group(&args.group).ok_or("the group is not in the configuration")?;
    let peer = group.peer_of(&node).ok_or("the node is not one of the group")?;
    let here = config.node(&node).ok_or("the node is not in the configuration")?;
    let patience = match first_run::start(&file, &config, &node, args.no_start)? {
        DaemonStart::Runs => Duration::ZERO,
        DaemonStart::Ordered => SERVICE_PATIENCE,
        DaemonStart::Yours(command) if args.no_start => {
            print(&format!(
                "start the daemon here and on {peer}: {command}\nthen type 'farshore up' again: it orders the first sync\n"
            ))?;
            return Ok(Exit::Done.into());
        }
        DaemonStart::Yours(command) => {
            print(&format!("start the daemon, in another terminal or as a service: {command}\n"))?;
            HAND_PATIENCE
        }
    };
    first_run::wait_for_daemon(here, patience)?;
    let reach = Reach { config: file, node: Some(node.to_string()), socket: None };
    replicate(&ReachAny { here: reach, on: None }, group, &node, peer)
}

/// Waits for the peer, orders the first sync, and waits for its end.
fn replicate(reach: &ReachAny, group: &ConfiguredGroup, node: &NodeName, peer: &NodeName) -> CommandOutcome {
    let mut told = false;
    let step = reach::watch(reach, group.name.as_str(), Some(Instant::now() + HAND_PATIENCE), |view| {
        if !told && !is_linked(view) && next_step(view, node)?.is_none() {
            first_run::say(&format!("waiting for the daemon of {peer}"));
            told = true;
        }
        Ok(next_step(view, node)?.map_or(WatchStep::Again, WatchStep::Enough))
    })?;
    let group = &group.name;
    match step {
        Some(NextStep::Nothing) => {
            print(&format!("{group} replicates to {peer}: all is done\n"))?;
            return Ok(Exit::Done.into());
        }
        Some(NextStep::Wait) => sync::follow(reach, group.as_str())?,
        Some(NextStep::Sync) => sync::in_full(reach, group.as_str())?,
        None => {
            return Err(format!(
                "the daemon of {peer} was not met in time: see 'farshore status {group}', start the daemon there, and type 'farshore up' \
                 again"
            )
            .into());
        }
    }
    print(&format!("{group} replicates to {peer}. Make it a block device of this machine: farshore attach {group}\n"))?;
    Ok(Exit::Done.into())
}

/// What a group needs next.
#[derive(Debug, PartialEq, Eq)]
enum NextStep {
    Nothing,
    /// Its first sync.
    Sync,
    /// A sync goes already.
    Wait,
}

fn is_linked(view: &GroupView) -> bool {
    view.peers.iter().any(|peer| matches!(peer.link, LinkState::Connected | LinkState::Congested))
}

/// `None`: that is not known yet.
///
/// # Errors
/// A sentence: somebody has to look at the group first. Only a copy that never was one is synced unasked.
fn next_step(view: &GroupView, node: &NodeName) -> Result<Option<NextStep>, CommandFailure> {
    let stopped = |advice: &str| Err(format!("{} {} on {node}; {advice}", view.name, explained(view)).into());
    let is_due = view.sync_ordered || view.sync_position.is_some();
    match &view.state {
        GroupState::Failed => stopped("when that is put right, type 'farshore up' again"),
        GroupState::Replicating if !is_due => Ok(Some(NextStep::Nothing)),
        GroupState::Syncing | GroupState::CatchingUp => Ok(Some(NextStep::Wait)),
        _ if is_due => Ok(Some(NextStep::Wait)),
        _ if view.starting => Ok(None),
        _ if view.role != Role::Primary => {
            stopped("this node is not its primary any more, so 'farshore up' orders nothing")
        }
        GroupState::Logging if view.reason.as_ref().is_some_and(|reason| reason.starts_with(NEVER_SYNCED)) => {
            Ok(Some(NextStep::Sync))
        }
        GroupState::Logging if is_linked(view) && view.peers.iter().all(|peer| peer.link_since_s > MEETING) => {
            stopped("a sync that is not the first one is ordered by you: 'farshore sync'")
        }
        _ => Ok(None),
    }
}

/// A configuration that is there, if it is one that this command makes or that does not contradict it.
///
/// # Errors
/// A sentence: what of it is otherwise than typed. It is never changed.
fn found(args: &UpArgs, file: &Path) -> Result<(Config, NodeName), CommandFailure> {
    let config = Config::load(file)?;
    let node = config.local_node(args.name.as_deref())?;
    let name = file.display();
    let kept = "it was left as it is";
    let Some(group) = config.group(&args.group) else {
        let groups: Vec<_> = config.groups.iter().map(|group| group.name.as_str()).collect();
        return Err(format!(
            "{name} is there already and has no group {:?} (its groups are {}); {kept}: add the group to that file on both nodes \
             ('farshore config example' shows how), or name another file with --config",
            args.group,
            groups.join(", ")
        )
        .into());
    };
    if group.primary != node {
        let (group, primary) = (&group.name, &group.primary);
        return Err(format!(
            "by {name} the primary of {group} is {primary}, and this is {node}: type 'farshore up' there"
        )
        .into());
    }
    let otherwise = |what: &str, is: String, typed: String| -> Result<(), CommandFailure> {
        Err(format!(
            "{name} is there already and has {is} as {what}, not {typed}; {kept}: leave the option out, or move the file away"
        )
        .into())
    };
    for (volume, path) in named(&devices(args)?)? {
        match group.volumes.iter().find(|known| known.name == volume) {
            Some(known) if known.device(&node) == path => {}
            Some(known) => {
                let is = known.device(&node).display().to_string();
                otherwise(&format!("the device of volume {volume}"), is, path.display().to_string())?;
            }
            None => otherwise("volumes", format!("no {volume}"), volume.to_string())?,
        }
    }
    let typed = address("address", args.address.as_deref())?;
    let is = config.node(&node).map(|node| node.address);
    if let Some((typed, is)) = typed.zip(is).filter(|(typed, is)| typed != is) {
        otherwise("this node's address", is.to_string(), typed.to_string())?;
    }
    Ok((config, node))
}

fn devices(args: &UpArgs) -> Result<Vec<NamedDevice>, CommandFailure> {
    let parsed: Result<Vec<NamedDevice>, String> = args.device.iter().map(|word| NamedDevice::parse(word)).collect();
    parsed.map_err(|why| CommandFailure::usage(format!("--device: {why}")))
}

fn address(option: &str, typed: Option<&str>) -> Result<Option<SocketAddr>, CommandFailure> {
    let address = typed.map(first_run::parse_address).transpose();
    address.map_err(|why| CommandFailure::usage(format!("--{option}: {why}")))
}

/// Everything from nothing to the configuration of both.
fn begun(args: &UpArgs, file: &Path) -> Result<(Config, NodeName), CommandFailure> {
    let node = first_run::own_name(args.name.as_deref())?;
    let patience = parse_duration(&args.expires).map_err(|why| CommandFailure::usage(format!("--expires: {why}")))?;
    if !EXPIRES.contains(&patience) {
        return Err(CommandFailure::usage(format!("--expires: {:?} is out of range; 1s to 168h", args.expires)));
    }
    let wanted = wanted(args)?;
    let registry = Registry::new(&file.parent().unwrap_or(Path::new("/")).join("tls"));
    let waiting = waiting(args, &registry, node, wanted)?;
    checked(&waiting, file)?;
    let listener = WaitingNode::listen(waiting.address)?;
    make_directory(file)?;
    waiting.certify(&registry, file)?;
    let (end, end_unix_s) = (Instant::now() + patience, words::now_unix_s() + patience.as_secs());
    let invite = |invitation: &Invitation| invited(&waiting, &invitation.token(waiting.address, end_unix_s));
    let keep = |pair: &JoinedPair| kept(&waiting, file, pair);
    let joined = waiting.wait((&listener, end), (&registry, file), &invite, &keep, &first_run::say);
    let pair = joined.map_err(|why| first_run::cleaned(&why))?;
    drop(listener);
    pair.remarks.iter().map(|remark| first_run::cleaned(remark)).for_each(warn);
    print(&format!("the second node has joined; {} was written\n", file.display()))?;
    first_run::doctor(&pair.config, &waiting.node)?;
    Ok((pair.config, waiting.node))
}

/// What only the operator knows: devices and address.
struct Wanted {
    devices: Vec<(VolumeName, PathBuf)>,
    address: SocketAddr,
    peer: Option<SocketAddr>,
}

/// As typed, or asked for.
///
/// # Errors
/// Usage: all that is missing, in one sentence.
fn wanted(args: &UpArgs) -> Result<Wanted, CommandFailure> {
    let peer = address("peer", args.peer.as_deref())?;
    let can_ask = first_run::can_ask();
    let mut missing = Vec::new();
    let mut devices = devices(args)?;
    if devices.is_empty() && can_ask {
        let question = "This machine's device, whose content is kept, such as /dev/disk/by-id/DISK";
        let answer = first_run::ask(question, None);
        let parsed: Result<Vec<_>, String> = answer.iter().map(|word| NamedDevice::parse(word)).collect();
        devices = parsed.map_err(CommandFailure::usage)?;
    }
    if devices.is_empty() {
        missing.push("--device /dev/disk/by-id/DISK (this machine's device, whose content is kept)");
    }
    let towards = peer.and_then(own_address);
    let mut own = address("address", args.address.as_deref())?.or(towards);
    if own.is_none() && can_ask {
        let default = NOBODY.parse().ok().and_then(own_address).map(|address| address.ip().to_string());
        let answer = first_run::ask("This node's address, which the other node reaches", default.as_deref());
        own = address("address", answer.as_deref())?;
    }
    let Some(address) = own.filter(|_| !devices.is_empty()) else {
        if own.is_none() {
            missing.push("--address ADDRESS (where the other node reaches this one), or --peer ADDRESS (where the other node is)");
        }
        return Err(CommandFailure::usage(format!("missing: {}", missing.join("; "))));
    };
    Ok(Wanted { devices: named(&devices)?, address, peer })
}

/// By which address this machine reaches another one; nothing is sent.
fn own_address(to: SocketAddr) -> Option<SocketAddr> {
    let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().ok()?;
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then(|| SocketAddr::new(ip, settings::example::PORT))
}

/// Looks at the devices, and draws up what this node offers.
fn waiting(args: &UpArgs, registry: &Registry, node: NodeName, wanted: Wanted) -> Result<WaitingNode, CommandFailure> {
    let group = GroupName::parse(&args.group).map_err(CommandFailure::usage)?;
    let keys: Result<Vec<(String, String)>, String> = args.set.iter().map(|word| key(word)).collect();
    let keys = keys.map_err(|why| CommandFailure::usage(format!("--set: {why}")))?;
    let state = std::path::absolute(&args.state)?;
    path_text(&state).map_err(|why| CommandFailure::usage(format!("--state: {why}")))?;
    let mut volumes = Vec::new();
    for (volume, path) in wanted.devices {
        first_run::warn_of_drawn_name(&path);
        first_run::say(&format!("looking at {}", path.display()));
        volumes.push(LocalDevice::look(volume, &path)?);
    }
    let cluster = cluster(registry, &node, &group)?;
    Ok(WaitingNode { cluster, group, keys, node, address: wanted.address, state, volumes, peer: wanted.peer })
}

/// A key of the group's table, and its value; what they mean is checked with the file.
fn key(word: &str) -> Result<(String, String), String> {
    let (key, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is no KEY=VALUE, such as mode=sync"))?;
    let is_sound = |letter: char| letter.is_ascii_lowercase() || letter == '_' || letter == '.';
    if key.is_empty() || !key.chars().all(is_sound) || key == "primary" || key == "secondary" {
        return Err(format!(
            "{key:?} is no key that can be given here; write one of the group's table, such as mode=sync"
        ));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// The cluster of certificates that are there, else a name of its own: clusters never talk to each other by accident.
fn cluster(registry: &Registry, node: &NodeName, group: &GroupName) -> Result<ClusterName, String> {
    let certificate = registry.paths(&MemberIdentity::node("", node.as_str())).certificate;
    if certificate.exists() {
        let facts = certificates_of(&certificate)?;
        let identity = facts.into_iter().next().and_then(|facts| facts.identity);
        let named = identity.filter(|identity| identity.name == node.as_str());
        let named = named.ok_or_else(|| {
            format!("{} is there already, and is not of node {node}; it was left as it is", certificate.display())
        })?;
        return ClusterName::parse(&named.cluster);
    }
    ClusterName::parse(&format!("{node}-{group}")).or_else(|_| ClusterName::parse(node.as_str()))
}

/// Finds what the configuration would be refused for, before anybody waits: as if another node had joined.
fn checked(waiting: &WaitingNode, file: &Path) -> Result<(), CommandFailure> {
    let other = NodeName::parse(if waiting.node.as_str() == "beta" { "alpha" } else { "beta" })?;
    let nobody = [NOBODY, NOBODY_ELSE].iter().filter_map(|address| address.parse().ok());
    let address = nobody.into_iter().find(|address: &SocketAddr| address.ip() != waiting.address.ip());
    let (address, state) = (address.ok_or("no address is left")?, Path::new("/var/lib/farshore"));
    let volume = |(at, device): (usize, &LocalDevice)| {
        let there = PathBuf::from(format!("/dev/disk/by-id/{at}"));
        (device.volume().clone(), device.path().to_owned(), there)
    };
    let volumes: Vec<_> = waiting.volumes.iter().enumerate().map(volume).collect();
    let volumes: Vec<_> =
        volumes.iter().map(|(name, primary, secondary)| PairVolume { name, primary, secondary }).collect();
    let text = pair_config(
        &PairTerms { cluster: &waiting.cluster, group: &waiting.group, keys: &waiting.keys },
        &PairSide { node: &waiting.node, address: waiting.address, state: &waiting.state },
        &PairSide { node: &other, address, state },
        &volumes,
    )?;
    match Config::parse(file, &text) {
        Ok(_) => Ok(()),
        Err(problems) => {
            let all: Vec<_> = problems.list.iter().map(|problem| problem.message.as_str()).collect();
            Err(CommandFailure::usage(format!("the configuration would not be sound: {}", all.join("; "))))
        }
    }
}

/// Prints the line for the second machine. The token goes through a pipe, from a word that shells have themselves: every user of a machine
/// can read the command lines of its processes. Those of 'ssh' and 'sudo' would hold the whole line.
fn invited(waiting: &WaitingNode, token: &JoinToken) -> Result<(), String> {
    first_run::say(&format!(
        "{} waits at {} until {}. Type this on the second machine, as root, with its device in the place of DISK; the token is good for \
         one try. Type it in a shell there, not after 'ssh' or 'sudo': their command lines are read by every user of the machine:",
        waiting.node,
        waiting.address,
        token.end_text()
    ));
    print(&format!("echo {token} | farshore join{}\n", device_options(waiting))).map_err(|failure| failure.message)?;
    Ok(())
}

/// What is left to be filled in on the second machine.
fn device_options(waiting: &WaitingNode) -> String {
    match waiting.volumes.as_slice() {
        [_] => " --device /dev/disk/by-id/DISK".to_owned(),
        several => several.iter().map(|device| format!(" --device {}=/dev/disk/by-id/DISK", device.volume())).collect(),
    }
}

/// Once the other node has its files: that the content here counts, and then this node's configuration.
fn kept(waiting: &WaitingNode, file: &Path, pair: &JoinedPair) -> Result<(), String> {
    if waiting.volumes.iter().any(LocalDevice::has_data) {
        let group = pair.config.group(waiting.group.as_str()).ok_or("the group is not in its configuration")?;
        let volumes: Vec<String> = group.volumes.iter().map(|volume| volume.name.to_string()).collect();
        // Who types 'up' here has said whose content counts.
        accept(&pair.config, &waiting.node, group, &volumes, DeviceContent::Good)
            .map_err(|error| format!("{error:#}"))?;
    }
    write_new(file, &pair.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_the_group_are_taken() {
        assert_eq!(key("mode=sync"), Ok(("mode".to_owned(), "sync".to_owned())));
        assert_eq!(key("queue.memory=8MiB").map(|(key, _)| key).as_deref(), Ok("queue.memory"));
        for wrong in ["mode", "=1", "primary=beta", "a b=1", "[x]=1"] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }
}
