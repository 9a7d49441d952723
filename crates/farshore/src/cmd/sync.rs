//! `sync`: start it, and with `--wait` stay until the groups replicate.

mod reverse;

use std::time::{Duration, Instant};

use engine::RefusalCode;
use toolkit::screen::clean;

use super::answers::Answers;
use super::progress::{ProgressView, WaitingFor, WorkStage};
use super::reach::{self, WatchStep, Watched};
use crate::api::refusals::DeskRefusal;
use crate::api::{ApiRequest, GroupState, GroupView, OperationState, OperationView, RefusalView, Reply};
use crate::args::SyncArgs;
use crate::args::reach::ReachAny;
use crate::outcome::{CommandFailure, CommandOutcome, print};
use crate::show::explained;
use crate::show::table::in_one_line;

/// How long a sync that was accepted may take to show in the state.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// How long a command that has more to do behind a sync waits for one that does not move.
const STALL_PATIENCE: Duration = Duration::from_secs(30);

pub fn run(args: &SyncArgs) -> CommandOutcome {
    if args.reverse.reverse {
        return reverse::run(args);
    }
    let mut answers = Answers::new("sync", args.json).of_begins();
    let mut begun = Vec::new();
    for group in answers.targets(&args.reach, &args.groups.groups, args.groups.all)? {
        let answer = reach::ask_any(&args.reach, request(&group, args.full, args.no_compare, args.volume.clone()));
        let mut operation = None;
        // Of a group that is in step already there is nothing to be waited for.
        if let Ok(Reply::Ok { done_on, unchanged: false, operation: named, .. }) = &answer {
            operation = named.clone();
            begun.push((group.clone(), where_it_goes(&args.reach, done_on.as_deref()), named.clone()));
        }
        answers.add(&group, answer)?;
        if let Some(id) = operation.filter(|_| !args.wait && !args.json) {
            print(&format!("operation {}\n", clean(&id)))?;
        }
    }
    for (group, reach, operation) in begun.into_iter().filter(|_| args.wait) {
        answers.amend(&group, until_done(&reach, &group, (operation.as_deref(), args.full), &mut Stall::waits()));
    }
    answers.finish()
}

fn request(group: &str, full: bool, no_compare: bool, volume: Option<String>) -> ApiRequest {
    ApiRequest::Sync { group: group.to_owned(), full, no_compare, answers_nothing: false, volume }
}

/// Only the node that syncs knows how far it is.
fn where_it_goes(reach: &ReachAny, done_on: Option<&str>) -> ReachAny {
    ReachAny { on: done_on.map(str::to_owned).or_else(|| reach.on.clone()), ..reach.clone() }
}

/// Orders a full sync of one group, and stays until it replicates.
///
/// # Errors
/// A sentence: it is refused, or as of [`follow`].
pub fn in_full(reach: &ReachAny, group: &str) -> Result<(), CommandFailure> {
    let reply = reach::ask_any(reach, request(group, true, false, None))?;
    let (done_on, operation) = match &reply {
        Reply::Ok { done_on, operation, .. } => (done_on.clone(), operation.clone()),
        _ => (None, None),
    };
    reach::said(reply)?;
    let reach = where_it_goes(reach, done_on.as_deref());
    followed(until_done(&reach, group, (operation.as_deref(), true), &mut Stall::waits()))
}

/// Orders an update sync of one group that answers no question of an operator's, and stays until it replicates; says so unless `quiet`.
///
/// # Errors
/// As [`in_full`], or the sync stands still: it goes on by itself, and `then` is to be typed again.
pub fn bring_up_to_date(reach: &ReachAny, group: &str, quiet: bool, then: &str) -> Result<(), CommandFailure> {
    let request = ApiRequest::Sync {
        group: group.to_owned(),
        full: false,
        no_compare: false,
        answers_nothing: true,
        volume: None,
    };
    match reach::ask_any(reach, request)? {
        Reply::Ok { unchanged: true, .. } => Ok(()),
        Reply::Ok { done_on, operation, .. } => {
            let reach = where_it_goes(reach, done_on.as_deref());
            let ended = until_done(&reach, group, (operation.as_deref(), false), &mut Stall::leaves(then))?;
            if quiet { Ok(()) } else { print(&format!("{ended}\n")).map(drop) }
        }
        Reply::Error { message, code, refusal, .. } => Err(CommandFailure::refused(message, &code, refusal)),
        other => Err(reach::unexpected(&other)),
    }
}

/// Stays until the group replicates, with a progress bar on a terminal.
///
/// # Errors
/// A sentence: the sync was stopped or failed, or no daemon answers.
pub fn follow(reach: &ReachAny, group: &str) -> Result<(), CommandFailure> {
    followed(until_in_step(reach, group, Instant::now(), &mut Stall::waits()))
}

fn followed(ended: Result<String, CommandFailure>) -> Result<(), CommandFailure> {
    print(&format!("{}\n", ended?))?;
    Ok(())
}

/// Stays until a sync that was ordered has ended: what is to be said then. Where the order has a name, that one is asked for: a state may be
/// the one of before, or another sync's. A daemon that was started anew knows no name of before: of an update sync the state says as much.
fn until_done(
    reach: &ReachAny,
    group: &str,
    (operation, full): (Option<&str>, bool),
    stall: &mut Stall,
) -> Result<String, CommandFailure> {
    let started = Instant::now();
    match operation.map(|id| until_ended(reach, group, id, stall)).transpose()? {
        Some(Watched::Ended(operation)) => how_it_ended(group, *operation, started),
        Some(Watched::CutOff(why)) if full => Err(cut_off(group, &why)),
        Some(Watched::CutOff(_) | Watched::TimeIsUp) | None => until_in_step(reach, group, started, stall),
    }
}

fn how_it_ended(group: &str, operation: OperationView, started: Instant) -> Result<String, CommandFailure> {
    let OperationView { state, message, refusal, .. } = operation;
    if matches!(state, OperationState::Done | OperationState::Unchanged) {
        return Ok(up_to_date(group, started));
    }
    let message = message.unwrap_or_else(|| format!("the sync of {group} is {state}"));
    Err(CommandFailure::from(message).ended(refusal.unwrap_or_else(|| DeskRefusal::SyncStopped.into()), state))
}

/// That the group is in step may be due to an update sync that came after it.
fn cut_off(group: &str, why: &str) -> CommandFailure {
    let message = format!(
        "{why}. Whether the full sync of {group} came to its end is not on record: see 'farshore status {group}'"
    );
    CommandFailure::from(message).because(RefusalView::of_lost(DeskRefusal::OperationCutOff, "sync", "--full"))
}

/// How an operation ended.
fn until_ended(reach: &ReachAny, group: &str, id: &str, stall: &mut Stall) -> Result<Watched, CommandFailure> {
    let mut view = ProgressView::new(group);
    let (mut position, mut reason) = (None, None);
    let ended = reach::watch_operation(reach, id, None, |_| {
        if let Some(now) = reach::glance(reach, group) {
            say_position(&view, &mut position, &now);
            say_reason(&view, &mut reason, &now);
            view.show(&WorkStage::of(&now, WaitingFor::State));
            stall.look(&now, Instant::now())?;
        }
        Ok(())
    });
    // Before anything else is said.
    drop(view);
    ended
}

fn up_to_date(group: &str, started: Instant) -> String {
    format!("{group}: the copy is up to date, after {}", units::exact::show_seconds(started.elapsed().as_secs_f64()))
}

fn until_in_step(reach: &ReachAny, group: &str, started: Instant, stall: &mut Stall) -> Result<String, CommandFailure> {
    let mut view = ProgressView::new(group);
    let (mut seen, mut position, mut reason) = (false, None, None);
    let result = reach::watch(reach, group, None, |group| {
        seen |= matches!(group.state, GroupState::Syncing | GroupState::CatchingUp);
        say_position(&view, &mut position, group);
        say_reason(&view, &mut reason, group);
        view.show(&WorkStage::of(group, WaitingFor::State));
        stall.look(group, Instant::now())?;
        examine(group, seen || started.elapsed() > START_PATIENCE)
    });
    // Before anything else is said.
    drop(view);
    result?;
    Ok(up_to_date(group, started))
}

/// Whether a sync that is waited for moves.
struct Stall {
    /// What is typed again once it has ended; `None`: it is waited for however long it stands.
    then: Option<String>,
    /// Since when all of this is as it is.
    seen: Option<(Instant, StallFacts)>,
}

#[derive(PartialEq)]
struct StallFacts {
    state: GroupState,
    done_bytes: Option<u64>,
    queued_bytes: u64,
    dirty_bytes: Vec<u64>,
    sync_position: Option<u64>,
}

impl Stall {
    fn waits() -> Stall {
        Stall { then: None, seen: None }
    }

    fn leaves(then: &str) -> Stall {
        Stall { then: Some(then.to_owned()), seen: None }
    }

    /// # Errors
    /// A sentence: it has stood for too long.
    fn look(&mut self, group: &GroupView, now: Instant) -> Result<(), CommandFailure> {
        let facts = StallFacts {
            state: group.state.clone(),
            done_bytes: group.sync.as_ref().map(|sync| sync.done_bytes),
            queued_bytes: group.queue.bytes,
            dirty_bytes: group.peers.iter().map(|peer| peer.dirty_bytes).collect(),
            sync_position: group.sync_position,
        };
        let since = match &self.seen {
            Some((since, seen)) if *seen == facts => *since,
            _ => now,
        };
        self.seen = Some((since, facts));
        let Some(then) = self.then.as_ref().filter(|_| now.duration_since(since) >= STALL_PATIENCE) else {
            return Ok(());
        };
        let waits = match group.sync_position {
            Some(position) => format!("waits for its turn, number {position} in line"),
            None => explained(group),
        };
        let message = format!(
            "{}: nothing has moved for {STALL_PATIENCE:?}: it {waits}. What the copy lacks is sent as soon as that is possible; then type \
             '{then}' again",
            group.name
        );
        Err(CommandFailure::from(message).because(RefusalCode::NotInStep))
    }
}

/// Where a sync stands that is waited for.
#[derive(Debug, PartialEq)]
enum Course {
    Goes,
    Done,
    Stopped,
    Failed,
}

/// `due`: it was ordered and has not begun, or stands in line behind other groups. `begun`: it was seen, or had time enough to be;
/// only then does a state without one mean that it ended badly.
fn course(state: &GroupState, due: bool, begun: bool) -> Course {
    match state {
        GroupState::Failed => Course::Failed,
        // The state is that of before.
        _ if due => Course::Goes,
        GroupState::Replicating => Course::Done,
        GroupState::Logging if begun => Course::Stopped,
        _ => Course::Goes,
    }
}

fn examine(group: &GroupView, begun: bool) -> Result<WatchStep<()>, CommandFailure> {
    match course(&group.state, group.sync_ordered || group.sync_position.is_some(), begun) {
        Course::Goes => Ok(WatchStep::Again),
        Course::Done => Ok(WatchStep::Enough(())),
        Course::Stopped => {
            let why = format!("the sync of {} was stopped: it {}", group.name, explained(group));
            Err(CommandFailure::from(why).ended(DeskRefusal::SyncStopped.into(), OperationState::Stopped))
        }
        Course::Failed => {
            let why = format!("the sync of {} did not end: it {}", group.name, explained(group));
            Err(CommandFailure::from(why).because(RefusalCode::GroupFailed))
        }
    }
}

/// Other groups of the node sync first: where this one stands in line, whenever that changes.
fn say_position(view: &ProgressView, said: &mut Option<u64>, group: &GroupView) {
    if *said != group.sync_position
        && let Some(position) = group.sync_position
    {
        view.say(&in_one_line(&format!(
            "{} waits for its turn: other groups of this node are syncing; it is number {position} in line",
            group.name
        )));
    }
    *said = group.sync_position;
}

/// Why nothing moves, whenever that changes: a sync that waits for somebody would else wait in silence.
fn say_reason(view: &ProgressView, said: &mut Option<String>, group: &GroupView) {
    let stands = matches!(group.state, GroupState::Paused | GroupState::Queuing | GroupState::Holding);
    let reason = stands.then(|| explained(group));
    if let Some(reason) = reason.as_ref().filter(|reason| said.as_ref() != Some(*reason)) {
        view.say(&in_one_line(&format!("{} {reason}", group.name)));
    }
    *said = reason;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_the_sync_that_was_ordered() {
        use GroupState::{Failed, Logging, Replicating, Syncing};
        // A full sync of a group in step stands in line: that it replicates is not what was asked for.
        assert_eq!(course(&Replicating, true, true), Course::Goes);
        // An update sync stands in line for longer than a sync takes to begin.
        assert_eq!(course(&Logging, true, true), Course::Goes);
        assert_eq!(course(&Syncing, false, true), Course::Goes);
        assert_eq!(course(&Replicating, false, true), Course::Done);
        assert_eq!(course(&Logging, false, false), Course::Goes);
        assert_eq!(course(&Logging, false, true), Course::Stopped);
        assert_eq!(course(&Failed, true, false), Course::Failed);
    }
}
