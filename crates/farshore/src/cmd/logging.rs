//! `logging`: stop sending, mark only.

use super::{Outcome, reach, report};
use crate::api::Request;
use crate::args::GroupArgs;

pub fn run(args: &GroupArgs) -> Outcome {
    report(reach::ask(&args.reach, &Request::Logging { group: args.group.clone() })?)
}
