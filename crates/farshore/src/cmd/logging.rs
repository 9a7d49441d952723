//! `logging`: stop sending, mark only.

use super::reach::{self, report};
use crate::api::Request;
use crate::args::GroupArgs;
use crate::outcome::Outcome;

pub fn run(args: &GroupArgs) -> Outcome {
    report(reach::ask(&args.reach, &Request::Logging { group: args.group.clone() })?)
}
