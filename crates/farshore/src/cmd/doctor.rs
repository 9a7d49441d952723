//! `doctor`: what keeps the mirror from carrying what it could, and the command that mends it.

mod daemon_facts;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use settings::example::PORT;
use settings::{Config, NodeName};
use toolkit::doctor::facts::{EndFacts, PathFacts};
use toolkit::doctor::gather::{self, GatheredFacts};
use toolkit::doctor::report::{self, DOCTOR_SCHEMA, DoctorReport, STREAM_SCHEMA};
use toolkit::doctor::{Check, CheckVerdict, checks, ends};
use toolkit::interrupt::Interrupt;
use toolkit::screen::Paint;

use super::inputs::{read_bounded, with_port};
use super::status::colours_wanted;
use crate::api::client::ControlClient;
use crate::api::{ApiRequest, LinkRecord, NodeView, Reply};
use crate::args::checks::DoctorArgs;
use crate::args::reach::DEFAULT_CONFIG;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, event, print};

/// The best second of the link is looked for in a day.
const HISTORY: Duration = Duration::from_secs(86_400);

/// Another node's report is a few pages.
const BESIDE_BYTES_MAX: u64 = 16 << 20;

/// # Errors
/// When the configuration or the file beside is damaged; a peer that does not answer is a line of the report.
pub fn run(args: &DoctorArgs) -> CommandOutcome {
    let beside = args.beside.as_ref().map(|file| {
        let named = |why: String| format!("{}: {why}", file.display());
        let text = read_bounded(file, BESIDE_BYTES_MAX).map_err(named)?;
        report::facts_of(&text).map_err(named)
    });
    let beside: Option<EndFacts> = beside.transpose()?;
    let interrupt = Interrupt::listen()?;
    let around = around(args)?;
    let spinner = spinner();
    let facts = gather::facts(&around, &interrupt, &|doing| {
        spinner.set_message(doing.to_owned());
        if args.json_stream {
            // What cannot be written is told with the end.
            let _ = event(STREAM_SCHEMA, "doing", &json!({ "what": doing }));
        }
    });
    spinner.finish_and_clear();
    if interrupt.check().is_err() {
        return Err("interrupted; nothing was changed".into());
    }
    let way = PathFacts::of(&facts, args.bw.map(|rate| rate.bytes_per_s()), args.rtt.map(|time| time.0));
    let mut checks = checks::all(&facts, &way);
    let rows = beside.as_ref().map(|there| ends::rows(&facts, there));
    checks.extend(beside.iter().flat_map(|there| ends::checks(&facts, there)));
    print_report(args, &facts, &way, &checks, beside.as_ref().zip(rows.as_deref()))?;
    Ok(match report::worst(&checks) {
        CheckVerdict::Ok | CheckVerdict::Info => Exit::Done,
        CheckVerdict::Warning => Exit::Warning,
        CheckVerdict::Problem => Exit::Failed,
    }
    .into())
}

fn print_report(
    args: &DoctorArgs,
    facts: &EndFacts,
    way: &PathFacts,
    checks: &[Check],
    ends: Option<(&EndFacts, &[ends::EndsRow])>,
) -> Result<(), CommandFailure> {
    let (verdict, rows) = (report::worst(checks), ends.map(|(_, rows)| rows));
    let report = DoctorReport { schema: DOCTOR_SCHEMA, verdict, checks, way: way.into(), facts, ends: rows };
    if args.json_stream {
        for check in checks {
            event(STREAM_SCHEMA, "check", &json!(check))?;
        }
        event(STREAM_SCHEMA, "end", &json!(report))?;
    } else if args.json {
        print(&format!("{}\n", serde_json::to_string(&report)?))?;
    } else {
        let paint = if colours_wanted(&std::io::stdout()) { Paint::colours() } else { Paint::plain() };
        print(&report::text(facts, checks, ends, &paint))?;
    }
    Ok(())
}

fn spinner() -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let spinner = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        spinner.set_style(style.tick_chars("-\\|/ "));
    }
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

/// Configuration, daemon and peer, as far as they are there.
fn around(args: &DoctorArgs) -> Result<GatheredFacts, CommandFailure> {
    let mut remarks = Vec::new();
    let config = config(args, &mut remarks)?;
    let node = config.as_ref().and_then(|(config, name)| config.node(name));
    let socket = args.reach.socket.clone().or(node.map(|node| node.control_socket()));
    let state = node.map(|node| node.state.clone()).filter(|state| state.is_dir());
    // With a socket alone, the directory it lies in is the state directory.
    let state = state.or(args.reach.socket.as_ref().and_then(|socket| Some(socket.parent()?.to_path_buf())));
    let mut client = socket.and_then(|socket| connected(&socket, &mut remarks));
    let status = client.as_mut().and_then(|client| status(client, &mut remarks));
    let peer = peer(args, config.as_ref(), status.as_ref())?;
    let history = client.as_mut().zip(peer.as_ref()).map(|(client, (name, _))| history(client, name));
    let daemon = status.map(|status| daemon_facts::daemon(&status, peer.as_ref(), &history.unwrap_or_default()));
    Ok(GatheredFacts {
        config,
        daemon,
        peer,
        state,
        skips_disk: args.skip_disk,
        remarks,
        patience: Duration::from_secs_f64(args.timeout.0),
    })
}

fn config(args: &DoctorArgs, remarks: &mut Vec<String>) -> Result<Option<(Config, NodeName)>, CommandFailure> {
    let file = &args.reach.config;
    if args.reach.socket.is_some() {
        return Ok(None);
    }
    if !file.exists() && file.as_os_str() == DEFAULT_CONFIG {
        remarks.push(format!("no configuration: {DEFAULT_CONFIG} is not there, and --config names no other"));
        return Ok(None);
    }
    let config = Config::load(file)?;
    let node = config.local_node(args.reach.node.as_deref())?;
    Ok(Some((config, node)))
}

fn connected(socket: &Path, remarks: &mut Vec<String>) -> Option<ControlClient> {
    ControlClient::connect(socket).map_err(|error| remarks.push(error.to_string())).ok()
}

fn status(client: &mut ControlClient, remarks: &mut Vec<String>) -> Option<NodeView> {
    match client.ask(&ApiRequest::Status { group: None }) {
        Ok(Reply::Status(status)) => return Some(*status),
        Ok(Reply::Error { message, .. }) => remarks.push(message),
        Ok(other) => remarks.push(super::reach::unexpected(&other).message),
        Err(error) => remarks.push(error.to_string()),
    }
    None
}

/// What the daemon keeps of the link; without it the best second is not known, which the checks say.
fn history(client: &mut ControlClient, peer: &str) -> Vec<LinkRecord> {
    let since = std::time::SystemTime::now().checked_sub(HISTORY).unwrap_or(std::time::UNIX_EPOCH);
    let since_unix_ms = since.duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    match client.ask(&ApiRequest::LinkHistory { peer: Some(peer.to_owned()), since_unix_ms }) {
        Ok(Reply::LinkHistory(history)) => history.records,
        _ => Vec::new(),
    }
}

type NamedPeer = (String, Option<SocketAddr>);

/// The one that was named, else the only one there is.
fn peer(
    args: &DoctorArgs,
    config: Option<&(Config, NodeName)>,
    status: Option<&NodeView>,
) -> Result<Option<NamedPeer>, CommandFailure> {
    let configured = |(config, node): &(Config, NodeName)| -> Vec<NamedPeer> {
        config.peers_of(node).map(|peer| (peer.name.to_string(), Some(peer.address))).collect()
    };
    let linked = |status: &NodeView| status.links.iter().map(|link| (link.node.clone(), None)).collect::<Vec<_>>();
    let known = config.map(configured).or(status.map(linked)).unwrap_or_default();
    if let Some(name) = &args.peer {
        let found = known.into_iter().find(|(known, _)| known == name);
        return found.map_or_else(|| Ok(Some((with_port(name, PORT)?, None))), |found| Ok(Some(found)));
    }
    match known.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
            Err(CommandFailure::usage(format!(
                "this node has the peers {}; name one: farshore doctor PEER",
                names.join(", ")
            )))
        }
    }
}
