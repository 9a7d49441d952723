//! `promote`: this node becomes the primary of a group.

use super::progress::WaitingFor;
use super::reach::{self, report};
use crate::api::ApiRequest;
use crate::args::PromoteArgs;
use crate::outcome::CommandOutcome;

pub fn run(args: &PromoteArgs) -> CommandOutcome {
    let request = ApiRequest::Promote { group: args.group.clone(), force: args.force };
    report(reach::order_watched(&args.reach, &args.group, request, WaitingFor::Promotion)?)
}
