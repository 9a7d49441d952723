//! `promote`: this node becomes the primary of a group.

use super::reach::{self, report};
use crate::api::Request;
use crate::args::PromoteArgs;
use crate::outcome::Outcome;

pub fn run(args: &PromoteArgs) -> Outcome {
    report(reach::ask(&args.reach, &Request::Promote { group: args.group.clone(), force: args.force })?)
}
