//! `follow`: a target of systemd is up while this node is primary of a group.
//!
//! Only a change of the role is acted upon, and the first look: an operator who stops the target is left alone. A daemon
//! that does not answer has not lost its role: a restart stops nothing. A primary that serves nobody is waited for: what hangs on the
//! target would find no export, and nothing starts it a second time.

use std::time::Duration;

use settings::GroupName;

use super::reach;
use super::role_target::RoleTarget;
use crate::api::{GroupView, NodeView, Protection, Role};
use crate::args::FollowArgs;
use crate::log;
use crate::outcome::{CommandFailure, CommandOutcome};
use crate::show::explained;

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
            Ok(status) => match status.groups.first().filter(|group| group.is_closed() && last != Some(true)) {
                Some(closed) => Err(waits_for_export(&target, closed)),
                None => follow(&target, last, is_primary(&status)),
            },
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

/// `None`: what is recorded of the group is not known yet, or this node is primary and serves nobody.
fn is_primary(status: &NodeView) -> Option<bool> {
    let group = status.groups.first().filter(|group| !group.starting)?;
    let is_primary = group.role == Role::Primary;
    (!is_primary || group.protection != Protection::None).then_some(is_primary)
}

fn waits_for_export(target: &RoleTarget, group: &GroupView) -> String {
    format!(
        "this node is primary and its export is closed, so {} is not started yet: {} {}",
        target.unit(),
        group.name,
        explained(group)
    )
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
