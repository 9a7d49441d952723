//! `mark`: names points of the write order; lists, locks and drops them, and the images kept besides the volumes' own.

use std::time::Instant;

use engine::RefusalCode;
use serde_json::json;

use super::answers::Answers;
use super::drain_left::LeftToDrain;
use super::progress::{ProgressView, WorkStage};
use super::reach::{self, WatchStep, report, unexpected};
use super::waits::{deadline, lacks, never_ends, not_primary};
use crate::api::refusals::DeskRefusal;
use crate::api::{ApiRequest, DroppedMark, GroupView, MARKS_SCHEMA, MarkList, MarkState, NamedMark, Reply, Role};
use crate::args::mark::{MarkArgs, MarkCommand, MarkDropArgs, MarkListArgs, MarkLockArgs};
use crate::args::reach::ReachAny;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print, warn};
use crate::show::{self, explained};

pub fn run(args: &MarkArgs) -> CommandOutcome {
    match &args.command {
        None => set(args),
        Some(MarkCommand::List(args)) => list(args),
        Some(MarkCommand::Lock(args)) => lock(args, true),
        Some(MarkCommand::Unlock(args)) => lock(args, false),
        Some(MarkCommand::Drop(args)) => drop(args),
    }
}

fn set(args: &MarkArgs) -> CommandOutcome {
    let Some((name, groups)) = args.words.split_last().filter(|(_, groups)| !groups.is_empty()) else {
        return Err(CommandFailure::usage("a mark needs a group and a name: 'farshore mark GROUP NAME'"));
    };
    let deadline = deadline(args.timeout.as_deref())?;
    let mut answers = Answers::new("mark", args.json);
    let request = ApiRequest::Mark { groups: groups.to_vec(), name: name.clone() };
    let answer = reach::ask_any(&args.reach, request);
    if !args.wait || !matches!(answer, Ok(Reply::Ok { .. })) {
        answers.add(&groups[0], answer)?;
        return answers.finish();
    }
    for group in groups {
        let there = primary_of(&args.reach, group).and_then(|reach| until_there(&reach, group, name, deadline));
        answers.add(group, there)?;
    }
    answers.finish()
}

/// Whoever typed it at the secondary had the primary set it, and waits for that one's word.
fn primary_of(reach: &ReachAny, group: &str) -> Result<ReachAny, CommandFailure> {
    let status = reach::status_any(reach, Some(group))?;
    let found = status.groups.iter().find(|found| found.name == group);
    let is_there = |found: &&GroupView| reach.on.is_none() && !found.starting && found.role != Role::Primary;
    let peer = found.filter(is_there).and_then(|found| found.peers.first()).map(|peer| peer.node.clone());
    Ok(ReachAny { on: peer.or_else(|| reach.on.clone()), ..reach.clone() })
}

/// Waits until the mark is durable on both nodes.
pub fn until_there(
    reach: &ReachAny,
    group: &str,
    name: &str,
    deadline: Option<Instant>,
) -> Result<Reply, CommandFailure> {
    let (mut view, mut left) = (ProgressView::new(group), LeftToDrain::default());
    let (mut heard, mut last) = (None, String::new());
    let found = reach::watch(reach, group, deadline, |now| {
        last = explained(now);
        // What a secondary has is on both nodes whatever its primary knows.
        if now.starting || now.role != Role::Primary {
            return not_primary(now, heard.is_some());
        }
        let marks = match named(reach, group) {
            Ok(marks) => marks,
            // It restarts in between.
            Err(_) if reach::may_restart(heard) => return Ok(WatchStep::Again),
            Err(failure) => return Err(failure),
        };
        let Some(mark) = marks.iter().rfind(|mark| mark.name == name) else {
            // A daemon that begins has read none yet.
            if heard.take().is_some() {
                return Ok(WatchStep::Again);
            }
            let why = format!("{group}: there is no mark {name:?}; 'farshore mark list {group}' shows what there is");
            return Err(CommandFailure::from(why).because(RefusalCode::NoSuchMark));
        };
        heard = Some(Instant::now());
        match mark.state {
            MarkState::OnBoth => {
                let text = format!("{group}: {name} is on both nodes, at sequence {}", mark.sequence);
                return Ok(WatchStep::Enough(Reply::done(text, lacks(now))));
            }
            MarkState::HereAlone => {
                let why = format!("{group}: {name} is on this node only, and does not come to the other one");
                return Err(CommandFailure::from(why).because(DeskRefusal::Failed));
            }
            MarkState::OnItsWay | MarkState::NotKnown => {}
        }
        if let Some(failure) = never_ends(now) {
            return Err(failure);
        }
        view.show(&WorkStage::left("drains", left.bytes(now, mark.sequence)));
        Ok(WatchStep::Again)
    });
    std::mem::drop(view);
    found?.ok_or_else(|| {
        let message = format!(
            "{group}: {name} is set, and was not on the other node in time: the group {last}; 'farshore drain {group} --to {name}' goes on waiting"
        );
        CommandFailure::from(message).because(DeskRefusal::TimeIsUp)
    })
}

/// The named marks of a group.
fn named(reach: &ReachAny, group: &str) -> Result<Vec<NamedMark>, CommandFailure> {
    match reach::ask_any(reach, ApiRequest::Marks { group: group.to_owned() })? {
        Reply::Marks(list) => Ok(list.marks),
        Reply::Error { message, code, refusal, .. } => Err(CommandFailure::refused(message, &code, refusal)),
        other => Err(unexpected(&other)),
    }
}

fn list(args: &MarkListArgs) -> CommandOutcome {
    let status = reach::status_any(&args.reach, Some(&args.group))?;
    let named = named(&args.reach, &args.group)?;
    let marks = status.groups.first().map(|group| group.marks.as_slice()).unwrap_or_default();
    let text = if args.json {
        format!("{}\n", json!(MarkList { schema: MARKS_SCHEMA, group: &args.group, marks, named: &named }))
    } else {
        show::marks(marks, &named)
    };
    print(&text)?;
    Ok(Exit::Done.into())
}

fn lock(args: &MarkLockArgs, locked: bool) -> CommandOutcome {
    let (group, name) = (args.group.clone(), args.name.clone());
    let mut answers = Answers::new(if locked { "mark lock" } else { "mark unlock" }, args.json);
    answers.add(&args.group, reach::ask_any(&args.reach, ApiRequest::LockMark { group, name, locked }))?;
    answers.finish()
}

fn drop(args: &MarkDropArgs) -> CommandOutcome {
    let (group, name) = (args.group.clone(), args.name.clone());
    let request = ApiRequest::DropMark { group, name, discard: args.discard, override_lock: args.override_lock };
    match reach::ask_any(&args.reach, request) {
        Ok(Reply::Ok { warnings, unchanged, operation, .. }) if args.json => {
            let dropped = (!unchanged).then_some(args.name.as_str());
            let (schema, group, operation) = (MARKS_SCHEMA, args.group.as_str(), operation.as_deref());
            print(&format!("{}\n", json!(DroppedMark { schema, group, dropped, operation })))?;
            warnings.iter().for_each(warn);
            let exit = if warnings.is_empty() { Exit::Done } else { Exit::Warning };
            Ok(exit.into())
        }
        answer if args.json => {
            let mut answers = Answers::new("mark drop", true);
            answers.add(&args.group, answer)?;
            answers.finish()
        }
        answer => report(answer?),
    }
}
