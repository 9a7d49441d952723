//! `failback`: groups go back to the node that the configuration has as their primary. What that node lacks is sent first, then it takes over.
//!
//! One verb that can be typed again at any time: each step finds out what the one before came to, whatever was restarted meanwhile.

use engine::RefusalCode;
use settings::{Config, GroupName};
use toolkit::interrupt::Interrupt;

use super::answers::Answers;
use super::demote::carry_out;
use super::switchover::{Terms, order};
use super::sync;
use crate::api::Reply;
use crate::args::reach::ReachAny;
use crate::args::{FailbackArgs, HandoverArgs};
use crate::outcome::{CommandFailure, CommandOutcome};

/// Writers may have the copy fall behind again before the switchover comes.
const ROUNDS: usize = 3;

pub fn run(args: &FailbackArgs) -> CommandOutcome {
    let mut answers = Answers::new("failback", args.handover.json);
    let FailbackArgs { groups, handover } = args;
    // Where no configuration can be read here, the daemon knows which node is home.
    let mut terms = Terms::new(None, handover)?;
    let mut interrupt = None;
    let groups = answers.targets(&handover.reach, &groups.groups, groups.all)?;
    groups.iter().try_for_each(|group| GroupName::parse(group).map(drop)).map_err(CommandFailure::usage)?;
    for group in groups {
        terms.to = home(&handover.reach, &group);
        answers.add(&group, fail_back(handover, &group, &terms, &mut interrupt))?;
        if interrupt.as_ref().is_some_and(|interrupt: &Interrupt| interrupt.check().is_err()) {
            break;
        }
    }
    answers.finish()
}

/// The node that the configuration of this machine has as the group's primary.
fn home(reach: &ReachAny, group: &str) -> Option<String> {
    let config = Config::load(&reach.here.config).ok()?;
    config.groups.iter().find(|found| found.name.as_str() == group).map(|found| found.primary.to_string())
}

/// What is sent first is sent before anything is stopped for the switchover.
fn fail_back(
    HandoverArgs { reach, json, .. }: &HandoverArgs,
    group: &str,
    terms: &Terms,
    interrupt: &mut Option<Interrupt>,
) -> Result<Reply, CommandFailure> {
    let order = order(reach, group, terms, *json);
    let mut answer = carry_out(&order, group, interrupt)?;
    for _ in 0..ROUNDS {
        if !lacks_writes(&answer) {
            break;
        }
        sync::bring_up_to_date(reach, group, *json, &format!("farshore failback {group}"))?;
        answer = carry_out(&order, group, interrupt)?;
    }
    Ok(answer)
}

/// Such a sync answers no question: where an operator is asked whose content counts, nothing is sent.
fn lacks_writes(answer: &Reply) -> bool {
    let Reply::Error { refusal: Some(refusal), .. } = answer else { return false };
    refusal.code == RefusalCode::NotInStep.word()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_copy_that_is_behind_is_synced_first() {
        assert!(lacks_writes(&Reply::refused(RefusalCode::NotInStep, "db: the peer is not in step")));
        for other in
            [RefusalCode::PeerAway, RefusalCode::HistoriesApart, RefusalCode::ModeLogging, RefusalCode::ChoiceNeeded]
        {
            assert!(!lacks_writes(&Reply::refused(other, "db: no")), "{}", other.word());
        }
        assert!(!lacks_writes(&Reply::ok("db: switched over")));
    }
}
