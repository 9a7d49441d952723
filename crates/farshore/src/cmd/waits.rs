//! What commands have in common that wait for the other node.

use std::time::{Duration, Instant};

use engine::RefusalCode;

use super::reach::WatchStep;
use crate::api::{GroupState, GroupView, Reply, Role};
use crate::outcome::CommandFailure;
use crate::show::explained;

pub fn deadline(timeout: Option<&str>) -> Result<Option<Instant>, CommandFailure> {
    let timeout = timeout.map(units::exact::parse_duration).transpose();
    let timeout: Option<Duration> = timeout.map_err(|reason| CommandFailure::usage(format!("--timeout: {reason}")))?;
    Ok(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
}

pub fn not_primary(group: &GroupView, has_begun: bool) -> Result<WatchStep<Reply>, CommandFailure> {
    if group.starting || group.role == Role::Primary {
        return Ok(WatchStep::Again);
    }
    let peer = group.peers.first().map_or("its peer", |peer| peer.node.as_str());
    let why = match has_begun {
        true => format!("{}: this node became secondary meanwhile", group.name),
        false => format!("{}: this node is the secondary: type it on {peer}, or with --on {peer}", group.name),
    };
    Err(CommandFailure::from(why).because(RefusalCode::NotPrimary))
}

/// Waiting for what nobody sends would last for ever.
pub fn never_ends(group: &GroupView) -> Option<CommandFailure> {
    let (name, why) = (&group.name, explained(group));
    let (code, text) = match group.state {
        GroupState::Failed => (RefusalCode::GroupFailed, format!("{name}: nothing is sent: the group {why}")),
        GroupState::Logging if group.mode == "logging" => (
            RefusalCode::ModeLogging,
            format!("{name}: nothing is sent in mode logging: 'farshore set {name} mode=async' first"),
        ),
        // Nobody sends before somebody has typed something: `status` says what.
        GroupState::Logging if !group.syncs_by_itself => (
            RefusalCode::NotInStep,
            format!(
                "{name}: nothing is sent before an operator has seen to it: the group {why}; 'farshore status {name}' says what to type"
            ),
        ),
        _ => return None,
    };
    Some(CommandFailure::from(text).because(code))
}

/// What the other node has not, though it has the numbers.
pub fn lacks(group: &GroupView) -> Vec<String> {
    let peer = group.peers.first().map_or("the other node", |peer| peer.node.as_str());
    let aside: Vec<&str> =
        group.volumes.iter().filter(|volume| volume.set_aside).map(|volume| volume.name.as_str()).collect();
    match aside.is_empty() {
        true => Vec::new(),
        false => {
            vec![format!("{}: {} set aside, so {peer} lacks what was written there", group.name, aside.join(", "))]
        }
    }
}
