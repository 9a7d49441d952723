//! `logging`: stop sending, track only.

use super::reach::{self, report};
use crate::api::ApiRequest;
use crate::args::GroupArgs;
use crate::outcome::CommandOutcome;

pub fn run(args: &GroupArgs) -> CommandOutcome {
    report(reach::ask_any(&args.reach, ApiRequest::Logging { group: args.group.clone() })?)
}
