//! `demote`: this node becomes the secondary of a group. What hangs on the group's target stops first.

use super::progress::{self, ProgressView, WaitingFor, WorkStage};
use super::reach::{self, report};
use super::role_target::RoleTarget;
use crate::api::ApiRequest;
use crate::args::DemoteArgs;
use crate::outcome::{CommandOutcome, print, warn};

pub fn run(args: &DemoteArgs) -> CommandOutcome {
    let target = RoleTarget::of(&args.group);
    // Of another node, what hangs on its role is that node's.
    let was_up = args.reach.on.is_none() && target.is_up();
    if was_up {
        let mut view = ProgressView::new(&args.group);
        let stage = WorkStage::words(format!("waits until {} and what hangs on it have stopped", target.unit()));
        progress::during(|| target.stop(), || view.show(&stage))?;
        drop(view);
        print(&format!("{} is stopped\n", target.unit()))?;
    }
    let outcome = demote(args);
    // This node is primary as before.
    if was_up && outcome.is_err() {
        match target.start() {
            Ok(()) => warn(format!("{} is started again", target.unit())),
            Err(problem) => warn(problem),
        }
    }
    outcome
}

fn demote(args: &DemoteArgs) -> CommandOutcome {
    let request = ApiRequest::Demote { group: args.group.clone(), close_clients: args.close_clients };
    report(reach::order_watched(&args.reach, &args.group, request, WaitingFor::Demotion)?)
}
