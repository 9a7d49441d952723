//! `demote`: this node becomes the secondary of a group.

use super::{Outcome, reach, report};
use crate::api::Request;
use crate::args::GroupArgs;

pub fn run(args: &GroupArgs) -> Outcome {
    report(reach::ask(&args.reach, &Request::Demote { group: args.group.clone() })?)
}
