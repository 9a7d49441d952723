//! `drain`: wait until what was written so far is on the other node.

use std::time::Instant;

use super::answers::Answers;
use super::drain_left::LeftToDrain;
use super::mark;
use super::progress::{ProgressView, WorkStage};
use super::reach::{self, WatchStep};
use super::waits::{deadline, lacks, never_ends, not_primary};
use crate::api::refusals::DeskRefusal;
use crate::api::{GroupState, GroupView, Reply};
use crate::args::stats::DrainArgs;
use crate::outcome::{CommandFailure, CommandOutcome};
use crate::show::explained;

pub fn run(args: &DrainArgs) -> CommandOutcome {
    let deadline = deadline(args.timeout.as_deref())?;
    let mut answers = Answers::new("drain", args.json);
    for group in answers.targets(&args.reach, &args.groups.groups, args.groups.all)? {
        let drained = match args.to.as_deref().filter(|name| *name != NOW) {
            Some(name) => mark::until_there(&args.reach, &group, name, deadline),
            None => until_drained(args, &group, deadline),
        };
        answers.add(&group, drained)?;
    }
    answers.finish()
}

/// For `--to`: what was written until the command looks first. No mark is called so.
const NOW: &str = "now";

/// What is waited for: fixed by the first look.
struct DrainTarget {
    generation: String,
    sequence: u64,
}

fn until_drained(args: &DrainArgs, name: &str, deadline: Option<Instant>) -> Result<Reply, CommandFailure> {
    let mut target: Option<DrainTarget> = None;
    let mut last = String::new();
    let (mut view, mut left) = (ProgressView::new(name), LeftToDrain::default());
    let found = reach::watch(&args.reach, name, deadline, |group| {
        last = explained(group);
        let (Some(sequence), false) = (group.last_sequence, group.starting) else {
            return not_primary(group, target.is_some());
        };
        let target = target.get_or_insert_with(|| DrainTarget { generation: group.generation.clone(), sequence });
        // Within a run numbers only grow.
        if target.generation != group.generation || sequence < target.sequence {
            let why = format!(
                "{name}: the group began another run or generation meanwhile; look at its status, and type it again"
            );
            return Err(CommandFailure::from(why).because(DeskRefusal::Failed));
        }
        if has(group, target.sequence) {
            return Ok(WatchStep::Enough(said(group, target.sequence)));
        }
        if let Some(failure) = never_ends(group) {
            return Err(failure);
        }
        view.show(&WorkStage::left("drains", left.bytes(group, target.sequence)));
        Ok(WatchStep::Again)
    });
    drop(view);
    found?.ok_or_else(|| {
        let message = format!("{name}: what was written is not on the other node in time: the group {last}");
        CommandFailure::from(message).because(DeskRefusal::TimeIsUp)
    })
}

/// The copy holds all up to this number. Where nothing was written in this run, that it lacks nothing.
fn has(group: &GroupView, sequence: u64) -> bool {
    let Some(peer) = group.peers.first() else { return false };
    let is_in_step =
        group.state == GroupState::Replicating && peer.lag_bytes == Some(0) && peer.lag_seconds == Some(0.0);
    is_in_step || peer.recovery_point.as_ref().is_some_and(|point| point.sequence >= sequence)
}

fn said(group: &GroupView, sequence: u64) -> Reply {
    let peer = group.peers.first().map_or("the other node", |peer| peer.node.as_str());
    let text = format!("{}: all up to sequence {sequence} is on {peer}", group.name);
    Reply::done(text, lacks(group))
}
