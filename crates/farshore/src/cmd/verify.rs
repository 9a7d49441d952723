//! `verify`: compare the copy with the primary's volumes, and with `--wait` stay until that has ended.

use engine::RefusalCode;
use toolkit::screen::clean;

use super::answers::Answers;
use super::progress::{ProgressView, WorkStage};
use super::reach::{self, WatchStep, Watched};
use crate::api::refusals::DeskRefusal;
use crate::api::{
    ApiRequest, GroupState, GroupView, OperationState, OperationView, RefusalView, Reply, SyncView, VerifyView,
};
use crate::args::reach::ReachAny;
use crate::args::verify::VerifyArgs;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print};
use crate::show;

/// What is waited for, and where. `operation`: of one that began with the order, where its daemon names it.
struct Begun {
    group: String,
    reach: ReachAny,
    operation: Option<String>,
}

pub fn run(args: &VerifyArgs) -> CommandOutcome {
    let answers = Answers::new("verify", args.json);
    let mut answers = if args.stop { answers } else { answers.of_begins() };
    let mut begun = Vec::new();
    for group in answers.targets(&args.reach, &args.groups.groups, args.groups.all)? {
        let answer = reach::ask_any(&args.reach, request(args, &group));
        let mut named = None;
        if let Ok(Reply::Ok { done_on, unchanged, operation, .. }) = &answer {
            let on = done_on.clone().or_else(|| args.reach.on.clone());
            named = operation.clone().filter(|_| !unchanged && !args.stop);
            let reach = ReachAny { on, ..args.reach.clone() };
            begun.push(Begun { group: group.clone(), reach, operation: named.clone() });
        }
        answers.add(&group, answer)?;
        if let Some(id) = named.filter(|_| !args.wait && !args.json) {
            print(&format!("operation {}\n", clean(&id)))?;
        }
    }
    for Begun { group, reach, operation } in begun.into_iter().filter(|_| args.wait) {
        let ended = match operation {
            Some(id) => until_done(&reach, &group, &id),
            None => until_none_runs(&reach, &group),
        };
        answers.amend(&group, ended);
    }
    answers.finish()
}

fn request(args: &VerifyArgs, group: &str) -> ApiRequest {
    let group = group.to_owned();
    if args.stop {
        return ApiRequest::VerifyStop { group };
    }
    // Of bits a second.
    let rate_bytes_per_s = args.rate.map(|bits| (bits / 8).max(1));
    ApiRequest::Verify { group, repair: args.repair, sample_percent: args.sample, rate_bytes_per_s }
}

/// Stays until the verify that was ordered has ended: what is to be said then.
fn until_done(reach: &ReachAny, group: &str, id: &str) -> Result<String, CommandFailure> {
    let mut view = ProgressView::new(group);
    let ended = reach::watch_operation(reach, id, None, |_| {
        if let Some(run) = reach::glance(reach, group).and_then(|now| now.verify) {
            view.show(&stage(&run));
        }
        Ok(())
    });
    // Before anything else is said.
    drop(view);
    let OperationView { state, message, refusal, .. } = match ended? {
        Watched::Ended(operation) => *operation,
        Watched::CutOff(_) => return Err(is_no_more(group)),
        Watched::TimeIsUp => unreachable!("without a deadline it is waited for ever"),
    };
    let text = message.unwrap_or_else(|| format!("the verify of {group} is {state}"));
    said((state, refusal), text)
}

/// What came of it: one that ended, and found something, ends the command with a warning.
fn said(outcome: (OperationState, Option<RefusalView>), text: String) -> Result<String, CommandFailure> {
    match outcome {
        (OperationState::Done, None) => Ok(text),
        (state, refusal) => {
            let exit = if state == OperationState::Done { Exit::Warning } else { Exit::Failed };
            let failure = CommandFailure { exit, ..CommandFailure::from(text) };
            Err(failure.ended(refusal.unwrap_or_else(|| DeskRefusal::VerifyStopped.into()), state))
        }
    }
}

fn is_no_more(group: &str) -> CommandFailure {
    let why = format!("the verify of {group} is no more: its daemon was started anew, or this node is not the primary");
    CommandFailure::from(why).ended(DeskRefusal::VerifyStopped.into(), OperationState::Stopped)
}

/// Stays until no verify of the group runs, whoever ordered it: what is to be said then.
fn until_none_runs(reach: &ReachAny, group: &str) -> Result<String, CommandFailure> {
    let mut view = ProgressView::new(group);
    let ended = reach::watch(reach, group, None, |now| {
        if let Some(run) = &now.verify {
            view.show(&stage(run));
            return Ok(WatchStep::Again);
        }
        Ok(WatchStep::Enough(now.clone()))
    });
    // Before anything else is said.
    drop(view);
    match ended? {
        Some(now) => how_it_ended(&now),
        None => unreachable!("without a deadline it is waited for ever"),
    }
}

fn stage(run: &VerifyView) -> WorkStage {
    if run.waits {
        return WorkStage::words("verify: waits until the peer is in step");
    }
    let rate_bytes_per_s = if run.since_s > 0.0 { run.done_bytes as f64 / run.since_s } else { 0.0 };
    let (done_bytes, total_bytes) = (run.done_bytes, run.total_bytes);
    WorkStage::amount("verifies", SyncView { done_bytes, total_bytes, rate_bytes_per_s, ..SyncView::default() })
}

fn how_it_ended(now: &GroupView) -> Result<String, CommandFailure> {
    let group = &now.name;
    if now.state == GroupState::Failed {
        return Err(CommandFailure::from(format!("{group} {}", show::explained(now))).because(RefusalCode::GroupFailed));
    }
    let Some(ended) = &now.verified else { return Err(is_no_more(group)) };
    let text = format!("{group}: verify {}", show::verify::ended(show::verify::comparable_bytes(now), ended));
    said(ended.outcome(), text)
}
