//! `follow`: a target of systemd is up while this node is primary of a group.
//!
//! Only a change of the role is acted upon, and the first look: an operator who stops the target is left alone. A daemon
//! that does not answer has not lost its role: a restart stops nothing.

use std::time::Duration;

use settings::GroupName;

use super::reach;
use super::role_target::RoleTarget;
use crate::api::{NodeView, Role};
use crate::args::FollowArgs;
use crate::log;
use crate::outcome::{CommandFailure, CommandOutcome};

/// How often the daemon is asked for the role.
const LOOK: Duration = Duration::from_millis(250);

pub fn run(args: &FollowArgs) -> CommandOutcome {
    log::choose(args.log.log_format);
    // What is wrong with names or the configuration stays wrong.
    reach::socket(&args.reach)?;
    log::start(super::status::colours_wanted(&std::io::stderr()))?;
    let group = GroupName::parse(&args.group).map_err(CommandFailure::usage)?;
    let target = RoleTarget::of(&group);
    let mut last: Option<bool> = None;
    let mut complaint = String::new();
    loop {
        let next = match reach::status(&args.reach, Some(&args.group)) {
            Ok(status) => follow(&target, last, is_primary(&status)),
            Err(failure) => Err(failure.message),
        };
        match next {
            Ok(seen) => {
                last = seen;
                complaint.clear();
            }
            Err(failure) if failure != complaint => {
                tracing::warn!("{failure}");
                complaint = failure;
            }
            Err(_) => {}
        }
        std::thread::sleep(LOOK);
    }
}

/// `None`: what is recorded of the group is not known yet.
fn is_primary(status: &NodeView) -> Option<bool> {
    status.groups.first().filter(|group| !group.starting).map(|group| group.role == Role::Primary)
}

/// Brings the target to where the role is. Returns which role it follows now.
fn follow(target: &RoleTarget, last: Option<bool>, seen: Option<bool>) -> Result<Option<bool>, String> {
    if seen.is_none() || seen == last {
        return Ok(last);
    }
    if seen == Some(true) {
        target.start()?;
        tracing::info!("this node is primary: {} is started", target.unit());
    } else if target.is_up() {
        target.begin_stop()?;
        tracing::warn!("this node is secondary already: {} is stopped", target.unit());
    } else {
        tracing::info!("this node is secondary");
    }
    Ok(seen)
}
