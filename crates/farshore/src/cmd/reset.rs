//! `reset`: groups that failed start anew.

use super::answers::Answers;
use super::progress::WaitingFor;
use super::reach;
use crate::api::ApiRequest;
use crate::args::ResetArgs;
use crate::outcome::CommandOutcome;

pub fn run(args: &ResetArgs) -> CommandOutcome {
    let mut answers = Answers::new("reset", args.json);
    for group in answers.targets(&args.reach, &args.groups.groups, args.groups.all)? {
        let request = ApiRequest::Reset { group: group.clone() };
        // It waits for disks, and may read back a journal.
        answers.add(&group, reach::order_watched(&args.reach, &group, request, WaitingFor::State))?;
    }
    answers.finish()
}
