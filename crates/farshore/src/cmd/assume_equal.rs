//! `assume-equal`: two copies without a common history are declared equal.

use super::answers::Answers;
use super::reach;
use crate::api::ApiRequest;
use crate::args::verify::AssumeEqualArgs;
use crate::outcome::CommandOutcome;

pub fn run(args: &AssumeEqualArgs) -> CommandOutcome {
    let mut answers = Answers::new("assume-equal", args.json);
    for group in answers.targets(&args.reach, &args.groups.groups, args.groups.all)? {
        let request = ApiRequest::AssumeEqual { group: group.clone() };
        answers.add(&group, reach::ask_any(&args.reach, request))?;
    }
    answers.finish()
}
