//! `verify`: compare the copy with the primary's volumes, and with `--wait` stay until that has ended.

use engine::RefusalCode;

use super::answers::Answers;
use super::progress::{ProgressView, WorkStage};
use super::reach::{self, WatchStep};
use crate::api::refusals::DeskRefusal;
use crate::api::{ApiRequest, GroupState, GroupView, OperationState, Reply, SyncView, VerifiedView, VerifyView};
use crate::args::reach::ReachAny;
use crate::args::verify::VerifyArgs;
use crate::outcome::{CommandFailure, CommandOutcome, Exit};
use crate::show;

/// What is waited for, where, and whether an answer before it was none of a new one.
struct Begun {
    group: String,
    reach: ReachAny,
}

pub fn run(args: &VerifyArgs) -> CommandOutcome {
    let mut answers = Answers::new("verify", args.json);
    let mut begun = Vec::new();
    for group in answers.targets(&args.reach, &args.groups.groups, args.groups.all)? {
        let answer = reach::ask_any(&args.reach, request(args, &group));
        if let Ok(Reply::Ok { done_on, .. }) = &answer {
            let on = done_on.clone().or_else(|| args.reach.on.clone());
            begun.push(Begun { group: group.clone(), reach: ReachAny { on, ..args.reach.clone() } });
        }
        answers.add(&group, answer)?;
    }
    for Begun { group, reach } in begun.into_iter().filter(|_| args.wait) {
        answers.amend(&group, until_ended(&reach, &group));
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

/// Stays until no verify of the group runs: what is to be said then.
fn until_ended(reach: &ReachAny, group: &str) -> Result<String, CommandFailure> {
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
    let Some(ended) = &now.verified else {
        let why =
            format!("the verify of {group} is no more: its daemon was started anew, or this node is not the primary");
        return Err(CommandFailure::from(why).ended(DeskRefusal::VerifyStopped.into(), OperationState::Stopped));
    };
    let text = format!("{group}: verify {}", show::verify::ended(now, ended));
    let VerifiedView { differing_bytes, repaired_bytes, unread_bytes, given_up, .. } = ended;
    if given_up.is_some() {
        return Err(CommandFailure::from(text).ended(DeskRefusal::VerifyStopped.into(), OperationState::Stopped));
    }
    if *differing_bytes > *repaired_bytes || *unread_bytes > 0 {
        let failure = CommandFailure { exit: Exit::Warning, ..CommandFailure::from(text) };
        return Err(failure.ended(DeskRefusal::CopyDiffers.into(), OperationState::Done));
    }
    Ok(text)
}
