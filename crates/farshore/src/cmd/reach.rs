//! How a command finds the running daemon, and asks it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use settings::Config;
use settings::limits::POLL_INTERVAL;

use super::progress::{self, ProgressView, WaitingFor, WorkStage};
use crate::api::client::{ControlClient, Unanswered};
use crate::api::refusals::DeskRefusal;
use crate::api::{ApiRequest, ErrorCode, GroupState, GroupView, NodeView, OperationState, OperationView, Reply};
use crate::args::groups::ALL_GROUPS;
use crate::args::reach::{Reach, ReachAny};
use crate::outcome::{CommandFailure, CommandOutcome, Exit, clean_lines, print, warn};

/// A daemon that restarts is back in this time; a watcher waits it out.
const RESTART_PATIENCE: Duration = Duration::from_secs(30);
/// A start may replay a journal; a command waits so long for it.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// What is shown beside an order is not worth holding up the order's answer for longer.
const GLANCE_PATIENCE: Duration = Duration::from_secs(1);
/// The first looks come quickly: many waits end at once.
const POLL_FIRST: Duration = Duration::from_millis(50);

/// The control socket: the one named, else the configured one of this node.
pub fn socket(reach: &Reach) -> Result<PathBuf, CommandFailure> {
    if let Some(socket) = &reach.socket {
        return Ok(socket.clone());
    }
    let config = Config::load(&reach.config)?;
    let node = config.local_node(reach.node.as_deref())?;
    let node = config.node(&node).ok_or("the node is not in the configuration")?;
    Ok(node.control_socket())
}

pub fn ask(reach: &Reach, request: &ApiRequest) -> Result<Reply, CommandFailure> {
    let socket = socket(reach)?;
    let answer = ControlClient::connect(&socket).and_then(|mut client| client.ask(request));
    answer.map_err(unanswered)
}

fn unanswered(why: Unanswered) -> CommandFailure {
    let refusal = why.refusal();
    CommandFailure::from(why).because(refusal)
}

/// Asks the daemon of the node that was named, by the daemon here; or this one.
pub fn ask_any(reach: &ReachAny, request: ApiRequest) -> Result<Reply, CommandFailure> {
    of_node(reach, ask(&reach.here, &addressed(reach, request))?)
}

/// What was asked of one node counts of that one alone: the word of another, or of this one, would have a command act on the wrong node.
fn of_node(reach: &ReachAny, reply: Reply) -> Result<Reply, CommandFailure> {
    let is_another = |node: &&str| reach.on.as_deref().is_some_and(|asked| asked != *node);
    match (&reach.on, reply.node().filter(is_another).map(str::to_owned)) {
        (Some(asked), Some(node)) => Err(format!(
            "node {asked} was asked, and the answer is that of node {node:?}; are the daemons of both nodes of one version?"
        )
        .into()),
        _ => Ok(reply),
    }
}

pub fn addressed(reach: &ReachAny, request: ApiRequest) -> ApiRequest {
    match &reach.on {
        Some(node) => ApiRequest::On { node: node.clone(), order: Box::new(request) },
        None => request,
    }
}

/// The status of the node that was named; of this one, with what its peers say.
///
/// # Errors
/// As [`status`].
pub fn status_of_both(reach: &ReachAny, group: Option<&str>) -> Result<NodeView, CommandFailure> {
    let group = group.map(str::to_owned);
    if reach.on.is_some() {
        return as_status(ask_any(reach, ApiRequest::Status { group })?);
    }
    match ask(&reach.here, &ApiRequest::StatusOfBoth { group: group.clone() })? {
        // A daemon that still runs from before it was upgraded.
        Reply::Error { code: ErrorCode::BadRequest, .. } => status(&reach.here, group.as_deref()),
        reply => as_status(reply),
    }
}

/// The groups that are meant, by their names: those that were typed, or all of the node that is asked.
///
/// # Errors
/// As [`status`].
pub fn groups(reach: &ReachAny, typed: &[String], all: bool) -> Result<Vec<String>, CommandFailure> {
    if !all && !typed.iter().any(|name| name == ALL_GROUPS) {
        return Ok(typed.to_vec());
    }
    let status = status_any(reach, None)?;
    Ok(status.groups.into_iter().map(|group| group.name).collect())
}

/// The status of the node that was named, or of this one alone.
///
/// # Errors
/// As [`status`].
pub fn status_any(reach: &ReachAny, group: Option<&str>) -> Result<NodeView, CommandFailure> {
    as_status(ask_any(reach, ApiRequest::Status { group: group.map(str::to_owned) })?)
}

/// # Errors
/// A sentence: no daemon, or it has no such group.
pub fn status(reach: &Reach, group: Option<&str>) -> Result<NodeView, CommandFailure> {
    as_status(ask(reach, &ApiRequest::Status { group: group.map(str::to_owned) })?)
}

/// Has a group's role changed, and shows how far that is. The daemon is asked for that beside the order, whose answer comes when all is
/// done.
///
/// # Errors
/// As [`ask_any`].
pub fn order_watched(
    reach: &ReachAny,
    group: &str,
    request: ApiRequest,
    waiting_for: WaitingFor,
) -> Result<Reply, CommandFailure> {
    let mut view = ProgressView::new(group);
    let look = || {
        // Without an answer the line stays as it is: what became of the order its own answer says.
        if let Some(found) = glance(reach, group) {
            view.show(&WorkStage::of(&found, waiting_for));
        }
    };
    progress::during(|| ask_any(reach, request), look)
}

/// One look at a group, for a line that can do without: `None` where nobody answers soon.
pub fn glance(reach: &ReachAny, group: &str) -> Option<GroupView> {
    let request = addressed(reach, ApiRequest::Status { group: Some(group.to_owned()) });
    let mut client = ControlClient::connect(&socket(&reach.here).ok()?).ok()?;
    let status = as_status(of_node(reach, client.ask_within(GLANCE_PATIENCE, &request).ok()?).ok()?).ok()?;
    status.groups.into_iter().find(|found| found.name == group)
}

/// How a group is once its start is over: before that nobody knows its role, and commands are refused.
///
/// # Errors
/// As [`status`], and a start that takes long.
pub fn started(reach: &Reach, group: &str) -> Result<NodeView, CommandFailure> {
    let deadline = Instant::now() + START_PATIENCE;
    let mut view = ProgressView::new(group);
    loop {
        let status = status(reach, Some(group))?;
        let is_starting =
            |group: &GroupView| group.starting && !matches!(group.state, GroupState::Failed | GroupState::Paused);
        let Some(starting) = status.groups.iter().find(|group| is_starting(group)) else { return Ok(status) };
        view.show(&WorkStage::of(starting, WaitingFor::State));
        if Instant::now() >= deadline {
            return Err(
                format!("group {group} is still starting, see 'farshore status {group}'; try again later").into()
            );
        }
        std::thread::sleep(POLL_FIRST);
    }
}

fn as_status(reply: Reply) -> Result<NodeView, CommandFailure> {
    match reply {
        Reply::Status(status) => Ok(*status),
        Reply::Error { message, code, refusal, .. } => Err(CommandFailure::refused(message, &code, refusal)),
        other => Err(unexpected(&other)),
    }
}

/// What a look at a group says to the loop that watches it.
pub enum WatchStep<T> {
    Again,
    Enough(T),
}

/// Looks at one group until `examine` has seen enough or `deadline` passed. A daemon that restarts meanwhile is waited
/// for; one that is not there at the first look is not.
///
/// # Errors
/// What `examine` says, or a sentence: no daemon, no such group. `Ok(None)`: the deadline passed.
pub fn watch<T>(
    reach: &ReachAny,
    group: &str,
    deadline: Option<Instant>,
    mut examine: impl FnMut(&GroupView) -> Result<WatchStep<T>, CommandFailure>,
) -> Result<Option<T>, CommandFailure> {
    let socket = socket(&reach.here)?;
    let request = addressed(reach, ApiRequest::Status { group: Some(group.to_owned()) });
    let mut heard: Option<Instant> = None;
    let mut pause = POLL_FIRST;
    loop {
        let patience = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        match ControlClient::connect(&socket).and_then(|mut client| client.ask_within(patience, &request)) {
            // Its data thread has ended, its doors are still open.
            Ok(Reply::Error { code: ErrorCode::Failed, .. }) if may_restart(heard) => {}
            Ok(reply) => {
                heard = Some(Instant::now());
                let status = as_status(of_node(reach, reply)?)?;
                let found = status.groups.iter().find(|found| found.name == group);
                let found = found.ok_or_else(|| {
                    let why = format!("the daemon of {} shows no group {group:?}", status.node);
                    CommandFailure::refused(why, &ErrorCode::UnknownGroup, None)
                })?;
                if let WatchStep::Enough(result) = examine(found)? {
                    return Ok(Some(result));
                }
            }
            Err(Unanswered::NotRunning { .. } | Unanswered::Closed { .. }) if may_restart(heard) => {}
            // It was heard before: what it said then is what there is to tell.
            Err(_) if heard.is_some() && deadline.is_some_and(|deadline| Instant::now() >= deadline) => {}
            Err(error) => return Err(unanswered(error)),
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(None);
        }
        let left = deadline.map_or(pause, |deadline| deadline.saturating_duration_since(Instant::now()));
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(POLL_INTERVAL);
    }
}

/// How waiting for an operation ended.
pub enum Watched {
    Ended(Box<OperationView>),
    TimeIsUp,
    /// A daemon before the one that answers was at it; what that says.
    CutOff(String),
}

/// Asks about an operation until it has ended or `deadline` passed, and shows it in between. A daemon that restarts meanwhile is waited for.
///
/// # Errors
/// A sentence: no daemon, it does not know the operation, or `show` waits no longer.
pub fn watch_operation(
    reach: &ReachAny,
    id: &str,
    deadline: Option<Instant>,
    mut show: impl FnMut(&OperationView) -> Result<(), CommandFailure>,
) -> Result<Watched, CommandFailure> {
    let socket = socket(&reach.here)?;
    let request = addressed(reach, ApiRequest::Operation { id: id.to_owned() });
    let mut heard: Option<Instant> = None;
    let mut pause = POLL_FIRST;
    let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    loop {
        let patience = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        let answer = ControlClient::connect(&socket).and_then(|mut client| client.ask_within(patience, &request));
        let answer = answer.map(|reply| of_node(reach, reply));
        match answer {
            Ok(Err(other_node)) => return Err(other_node),
            Ok(Ok(Reply::Operation(operation))) if operation.state != OperationState::Running => {
                return Ok(Watched::Ended(operation));
            }
            Ok(Ok(Reply::Operation(operation))) => {
                heard = Some(Instant::now());
                show(&operation)?;
            }
            Ok(Ok(Reply::Error { code: ErrorCode::Failed, .. })) if may_restart(heard) => {}
            Ok(Ok(Reply::Error { message, code, refusal, .. })) => {
                let failure = CommandFailure::refused(message, &code, refusal);
                return match failure.code() == Some(DeskRefusal::OperationCutOff.word()) {
                    true => Ok(Watched::CutOff(failure.message)),
                    false => Err(failure),
                };
            }
            Ok(Ok(other)) => return Err(unexpected(&other)),
            Err(Unanswered::NotRunning { .. } | Unanswered::Closed { .. }) if may_restart(heard) => {}
            // It was heard before: what it said then is what there is to tell.
            Err(_) if heard.is_some() && is_late() => {}
            Err(error) => return Err(unanswered(error)),
        }
        if is_late() {
            return Ok(Watched::TimeIsUp);
        }
        let left = deadline.map_or(pause, |deadline| deadline.saturating_duration_since(Instant::now()));
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(POLL_INTERVAL);
    }
}

pub fn may_restart(heard: Option<Instant>) -> bool {
    heard.is_some_and(|at| at.elapsed() < RESTART_PATIENCE)
}

/// Prints what a daemon answered to a command that changes something.
pub fn report(reply: Reply) -> CommandOutcome {
    Ok(said(reply)?.into())
}

/// The same, and how a command ends with that.
pub fn said(reply: Reply) -> Result<Exit, CommandFailure> {
    match reply {
        Reply::Ok { message, warnings, .. } => {
            // Another node's daemon may have said it.
            print(&(clean_lines(&message) + "\n"))?;
            // What it came to may itself be the warning.
            warnings.iter().filter(|warning| !message.contains(*warning)).for_each(warn);
            Ok(if warnings.is_empty() { Exit::Done } else { Exit::Warning })
        }
        Reply::Error { message, code, refusal, .. } => Err(CommandFailure::refused(message, &code, refusal)),
        other => Err(unexpected(&other)),
    }
}

pub fn unexpected(reply: &Reply) -> CommandFailure {
    let kind = reply.kind();
    format!("the daemon answered with {kind}, which does not fit the command; are both of one version?").into()
}
