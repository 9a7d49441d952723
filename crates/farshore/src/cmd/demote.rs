//! `demote`: this node becomes the secondary of a group.

use super::reach::{self, report};
use crate::api::ApiRequest;
use crate::args::DemoteArgs;
use crate::outcome::CommandOutcome;

pub fn run(args: &DemoteArgs) -> CommandOutcome {
    let request = ApiRequest::Demote { group: args.group.clone(), close_clients: args.close_clients };
    report(reach::ask_any(&args.reach, request)?)
}
