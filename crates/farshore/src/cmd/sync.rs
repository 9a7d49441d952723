//! `sync`: start it, and with `--wait` stay until the group replicates.

use std::time::{Duration, Instant};

use super::progress::{ProgressView, WaitingFor, WorkStage};
use super::reach::report;
use super::reach::{self, WatchStep};
use crate::api::{ApiRequest, GroupState, GroupView, Reply};
use crate::args::SyncArgs;
use crate::args::reach::ReachAny;
use crate::outcome::{CommandFailure, CommandOutcome, print};
use crate::show::explained;
use crate::show::table::in_one_line;

/// How long a sync that was accepted may take to show in the state.
const START_PATIENCE: Duration = Duration::from_secs(10);

pub fn run(args: &SyncArgs) -> CommandOutcome {
    let reply = reach::ask_any(&args.reach, ApiRequest::Sync { group: args.group.clone(), full: args.full })?;
    let Reply::Ok { done_on, .. } = &reply else { return report(reply) };
    if !args.wait {
        return report(reply);
    }
    // Only the node that syncs knows how far it is.
    let reach = ReachAny { on: done_on.clone().or_else(|| args.reach.on.clone()), ..args.reach.clone() };
    let code = report(reply)?;
    follow(&reach, &args.group)?;
    Ok(code)
}

/// Stays until the group replicates, with a progress bar on a terminal.
///
/// # Errors
/// A sentence: the sync was stopped or failed, or no daemon answers.
pub fn follow(reach: &ReachAny, group: &str) -> Result<(), CommandFailure> {
    let started = Instant::now();
    let mut view = ProgressView::new(group);
    let mut seen = false;
    let mut position = None;
    let mut reason = None;
    let result = reach::watch(reach, group, None, |group| {
        seen |= matches!(group.state, GroupState::Syncing | GroupState::CatchingUp);
        say_position(&view, &mut position, group);
        say_reason(&view, &mut reason, group);
        view.show(&WorkStage::of(group, WaitingFor::State));
        examine(group, seen || started.elapsed() > START_PATIENCE)
    });
    // Before anything else is said.
    drop(view);
    result?;
    let took = units::exact::show_seconds(started.elapsed().as_secs_f64());
    print(&format!("{group}: the copy is up to date, after {took}\n"))?;
    Ok(())
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
        Course::Stopped => Err(format!("the sync of {} was stopped: it {}", group.name, explained(group)).into()),
        Course::Failed => Err(format!("the sync of {} did not end: it {}", group.name, explained(group)).into()),
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
