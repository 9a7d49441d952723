//! `demote`: this node becomes the secondary of a group.

use super::reach::{self, report};
use crate::api::Request;
use crate::args::DemoteArgs;
use crate::outcome::Outcome;

pub fn run(args: &DemoteArgs) -> Outcome {
    let request = Request::Demote { group: args.group.clone(), close_clients: args.close_clients };
    report(reach::ask(&args.reach, &request)?)
}
