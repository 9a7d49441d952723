//! `promote`: this node becomes the primary of groups.

use super::answers::Answers;
use super::progress::WaitingFor;
use super::reach;
use crate::api::ApiRequest;
use crate::args::PromoteArgs;
use crate::outcome::CommandOutcome;

pub fn run(args: &PromoteArgs) -> CommandOutcome {
    let mut answers = Answers::new("promote", args.json);
    for group in answers.targets(&args.reach, &args.groups.groups, args.groups.all)? {
        let request = ApiRequest::Promote {
            group: group.clone(),
            force: args.force,
            skip_hooks: args.skip_hooks,
            is_announced: false,
        };
        answers.add(&group, reach::order_watched(&args.reach, &group, request, WaitingFor::Promotion))?;
    }
    answers.finish()
}
