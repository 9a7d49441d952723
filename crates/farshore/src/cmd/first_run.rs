//! What `up` and `join` have in common: names and addresses as typed, questions, the doctor, the daemon's start.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use settings::example::{PORT, is_drawn_name};
use settings::{Config, ConfiguredNode, NodeName, host_name};
use toolkit::doctor::facts::PathFacts;
use toolkit::doctor::gather::{self, GatheredFacts};
use toolkit::doctor::{Check, CheckVerdict, checks};
use toolkit::interrupt::Interrupt;
use toolkit::screen::clean;

use crate::api::client::ControlClient;
use crate::args::reach::DEFAULT_CONFIG;
use crate::outcome::{CommandFailure, print, warn};

/// The service that the packages install.
const UNIT: &str = "farshore.service";
/// How long the doctor waits for each answer.
const DOCTOR_PATIENCE: Duration = Duration::from_secs(3);
/// Pause between two looks for the daemon.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// A line that is piped in is no longer than this.
const LINE_BYTES_MAX: u64 = 4096;
/// Lines of the doctor that are about a daemon that need not run yet.
const NOT_YET: [&str; 3] = ["peer", "link", "daemon"];

/// A step, for whoever waits for the end of it. It may have come from the other node.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", cleaned(text));
}

/// What came from the other node: its lines, without what else would reach the terminal.
pub fn cleaned(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

/// That a device is named as the kernel found it, if it is.
pub fn warn_of_drawn_name(device: &Path) {
    if device.to_str().is_some_and(is_drawn_name) {
        let name = device.display();
        warn(format!(
            "{name} may be another disk after a reboot: give the name that stays with it ('ls -l /dev/disk/by-id')"
        ));
    }
}

/// Whether somebody can be asked.
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks once more until something comes; an empty line takes the default. `None`: the input ended.
pub fn ask(question: &str, default: Option<&str>) -> Option<String> {
    loop {
        let hint = default.map(|default| format!(" [{default}]")).unwrap_or_default();
        let _ = write!(std::io::stderr(), "{question}{hint}: ");
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line).ok()? == 0 {
            return None;
        }
        match (line.trim(), default) {
            ("", None) => {}
            ("", Some(default)) => return Some(default.to_owned()),
            (answer, _) => return Some(answer.to_owned()),
        }
    }
}

/// What somebody types to a question on a terminal, else the first line of what is piped in; empty where the input ends.
///
/// # Errors
/// The input cannot be read, or is no text.
pub fn told(question: &str) -> io::Result<String> {
    if io::stdin().is_terminal() {
        return Ok(ask(question, None).unwrap_or_default());
    }
    let mut line = String::new();
    io::stdin().lock().take(LINE_BYTES_MAX).read_line(&mut line)?;
    Ok(line)
}

/// The name that was given, else that of the host up to its first dot.
///
/// # Errors
/// Usage: it is no name of a node.
pub fn own_name(given: Option<&str>) -> Result<NodeName, CommandFailure> {
    let host = host_name().to_lowercase();
    let name = given.unwrap_or_else(|| host.split('.').next().unwrap_or_default());
    NodeName::parse(name).map_err(|why| match given {
        Some(_) => CommandFailure::usage(format!("--name: {why}")),
        None => {
            CommandFailure::usage(format!("the host name cannot be this node's: {why}; give another one with --name"))
        }
    })
}

/// ADDRESS or ADDRESS:PORT, the port of links where none is given.
///
/// # Errors
/// A sentence: it is neither, or is nobody's address.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let advice = "write an IP address, such as 10.0.0.1 or 10.0.0.1:7337 (host names are not looked up)";
    let ip = text.trim_matches(['[', ']']).parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, PORT));
    let address = ip.or_else(|| text.parse().ok()).ok_or_else(|| format!("{text:?} is no address; {advice}"))?;
    if address.ip().is_unspecified() || address.port() == 0 {
        return Err(format!("{text:?} leads nowhere: both nodes have to reach it; {advice}"));
    }
    Ok(address)
}

/// Runs the doctor's checks of the way to the peer and of this machine, and prints what matters.
///
/// # Errors
/// Standard output cannot be written.
pub fn doctor(config: &Config, node: &NodeName) -> Result<(), CommandFailure> {
    let Some(peer) = config.peers_of(node).next() else { return Ok(()) };
    say(&format!("the doctor looks at {node} and its way to {}", peer.name));
    let around = GatheredFacts {
        config: Some((config.clone(), node.clone())),
        peer: Some((peer.name.to_string(), Some(peer.address))),
        state: config.node(node).map(|node| node.state.clone()).filter(|state| state.is_dir()),
        skips_disk: true,
        patience: DOCTOR_PATIENCE,
        ..GatheredFacts::default()
    };
    let facts = gather::facts(&around, &Interrupt::never(), &|_| {});
    let all = checks::all(&facts, &PathFacts::of(&facts, None, None));
    let matters = |check: &&Check| check.verdict >= CheckVerdict::Warning && !NOT_YET.contains(&check.id);
    let found: String = all.iter().filter(matters).map(check_text).collect();
    print(&match found.is_empty() {
        true => format!("the doctor on {node}: nothing that matters\n"),
        false => format!("the doctor on {node}, more with 'farshore doctor':\n{found}"),
    })?;
    Ok(())
}

fn check_text(check: &Check) -> String {
    let want = if check.want.is_empty() { String::new() } else { format!("; want {}", check.want) };
    let why = if check.why.is_empty() { String::new() } else { format!("    {}\n", check.why) };
    let run = check.command.as_ref().map(|command| format!("    run: {command}\n")).unwrap_or_default();
    format!("  {}: {} is {}{want}\n{why}{run}", check.verdict.word(), check.id, check.have)
}

/// What was done for the daemon of this node.
#[derive(Debug, PartialEq, Eq)]
pub enum DaemonStart {
    /// It answers already.
    Runs,
    /// systemd starts it, now and at each boot.
    Ordered,
    /// The command that starts it.
    Yours(String),
}

/// Starts the daemon as a service, where that can be; `is_left`: somebody else does that.
///
/// # Errors
/// A sentence: systemd refuses.
pub fn start(file: &Path, config: &Config, node: &NodeName, is_left: bool) -> Result<DaemonStart, CommandFailure> {
    let here = config.node(node).ok_or("the node is not in the configuration")?;
    if ControlClient::connect(&here.control_socket()).is_ok() {
        return Ok(DaemonStart::Runs);
    }
    let is_host = config.local_node(None).is_ok_and(|local| local == *node);
    let is_default = file == Path::new(DEFAULT_CONFIG);
    if is_left || !is_host || !is_default || !has_unit() {
        let config_option = if is_default { String::new() } else { format!(" --config {}", file.display()) };
        let node_option = if is_host { String::new() } else { format!(" --node {node}") };
        return Ok(DaemonStart::Yours(format!("farshore serve{config_option}{node_option}")));
    }
    for file in files_outside(config, here) {
        say(&format!(
            "{} is a file outside of {}: the service may write it only after 'systemctl edit farshore' with ReadWritePaths=",
            file.display(),
            here.state.display()
        ));
    }
    say(&format!("systemctl enable --now {UNIT}"));
    let said = Command::new("systemctl").args(["enable", "--now", UNIT]).output();
    let said = said.map_err(|error| format!("systemctl cannot be started: {error}"))?;
    if !said.status.success() {
        let why = String::from_utf8_lossy(&said.stderr);
        return Err(format!(
            "'systemctl enable --now {UNIT}' failed: {}; 'journalctl -u farshore' says more. Then type this command again",
            why.trim()
        )
        .into());
    }
    Ok(DaemonStart::Ordered)
}

/// Volumes that are plain files where a service may not write.
fn files_outside<'a>(config: &'a Config, node: &'a ConfiguredNode) -> impl Iterator<Item = PathBuf> + 'a {
    let devices = config.groups_of(&node.name).flat_map(|group| &group.volumes);
    let devices = devices.map(|volume| volume.device(&node.name).to_owned());
    devices.filter(|path| path.is_file() && !path.starts_with(&node.state))
}

/// systemd runs, and knows the service.
fn has_unit() -> bool {
    let known = || Command::new("systemctl").args(["cat", UNIT]).output().is_ok_and(|said| said.status.success());
    Path::new("/run/systemd/system").is_dir() && known()
}

/// Waits until the daemon of a node answers.
///
/// # Errors
/// A sentence: it does not, in that time.
pub fn wait_for_daemon(node: &ConfiguredNode, patience: Duration) -> Result<(), CommandFailure> {
    let end = Instant::now() + patience;
    let socket = node.control_socket();
    loop {
        match ControlClient::connect(&socket) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= end => {
                return Err(format!("{error}. When it runs, type this command again: it goes on from here").into());
            }
            Err(_) => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_the_port_of_links() {
        for (typed, meant) in [
            ("10.0.0.1", "10.0.0.1:7337"),
            ("10.0.0.1:99", "10.0.0.1:99"),
            ("fd00::1", "[fd00::1]:7337"),
            ("[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(parse_address(typed).map(|address| address.to_string()).as_deref(), Ok(meant));
        }
        for (typed, part) in
            [("db1", "host names are not looked up"), ("0.0.0.0", "leads nowhere"), ("10.0.0.1:0", "leads nowhere")]
        {
            assert!(parse_address(typed).unwrap_err().contains(part), "{typed}");
        }
        assert!(own_name(Some("Alpha")).is_err() && own_name(Some("alpha")).is_ok());
    }
}
