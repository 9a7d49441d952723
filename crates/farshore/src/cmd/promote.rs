//! `promote`: this node becomes the primary of a group.

use super::{Outcome, reach, report};
use crate::api::Request;
use crate::args::PromoteArgs;

pub fn run(args: &PromoteArgs) -> Outcome {
    report(reach::ask(&args.reach, &Request::Promote { group: args.group.clone(), force: args.force })?)
}
