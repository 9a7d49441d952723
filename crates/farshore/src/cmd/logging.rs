//! `logging`: stop sending, track only.

use super::answers::Answers;
use super::reach;
use crate::api::ApiRequest;
use crate::args::LoggingArgs;
use crate::outcome::CommandOutcome;

pub fn run(args: &LoggingArgs) -> CommandOutcome {
    let mut answers = Answers::new("logging", args.json);
    for group in answers.targets(&args.reach, &args.groups.groups, args.groups.all)? {
        let request = ApiRequest::Logging { group: group.clone(), volume: args.volume.clone() };
        answers.add(&group, reach::ask_any(&args.reach, request))?;
    }
    answers.finish()
}
