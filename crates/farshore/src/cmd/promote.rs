//! `promote`: this node becomes the primary of a group.

use super::reach::{self, report};
use crate::api::ApiRequest;
use crate::args::PromoteArgs;
use crate::outcome::CommandOutcome;

pub fn run(args: &PromoteArgs) -> CommandOutcome {
    report(reach::ask_any(&args.reach, ApiRequest::Promote { group: args.group.clone(), force: args.force })?)
}
