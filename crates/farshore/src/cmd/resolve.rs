//! `resolve`: of the forks of groups the content of one node is kept.

use super::answers::Answers;
use super::progress::WaitingFor;
use super::reach;
use crate::api::ApiRequest;
use crate::args::ResolveArgs;
use crate::outcome::CommandOutcome;

pub fn run(args: &ResolveArgs) -> CommandOutcome {
    let mut answers = Answers::new("resolve", args.json);
    for group in answers.targets(&args.reach, &args.groups.groups, args.groups.all)? {
        let request = ApiRequest::Resolve {
            group: group.clone(),
            keep: args.keep.clone(),
            discard: args.discard,
            close_clients: args.close_clients,
        };
        answers.add(&group, reach::order_watched(&args.reach, &group, request, WaitingFor::State))?;
    }
    answers.finish()
}
