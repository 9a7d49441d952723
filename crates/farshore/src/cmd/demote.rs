//! `demote`: this node becomes the secondary of a group. What hangs on the group's target stops first.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use settings::{Config, GroupName};
use toolkit::interrupt::Interrupt;

use super::progress::{self, ProgressView, WaitingFor, WorkStage};
use super::reach::{self, report};
use super::role_target::RoleTarget;
use crate::api::{ApiRequest, NodeView, Reply, Role};
use crate::args::DemoteArgs;
use crate::args::reach::ReachAny;
use crate::outcome::{CommandFailure, CommandOutcome, print, warn};

/// How often it is looked whether somebody asks to wait no more.
const INTERRUPT_LOOK: Duration = Duration::from_millis(50);

pub fn run(args: &DemoteArgs) -> CommandOutcome {
    let group = GroupName::parse(&args.group).map_err(CommandFailure::usage)?;
    let target = RoleTarget::of(&group);
    if !(target.is_up() && is_to_stop(args, &group)?) {
        return report(order(&args.reach, &args.group, args.close_clients)?);
    }
    // From here on Ctrl-C is a failure like any other: it would leave the target down on a node that is primary.
    let interrupt = Interrupt::listen()?;
    let outcome = match stop(&target, args, &interrupt).and_then(|()| order_heard(args, &interrupt)) {
        Ok(Some(reply)) => report(reply),
        // It may still come about, and what hangs on the target must not start beside it.
        Ok(None) => return Err(goes_on(&target, &args.group).into()),
        Err(failure) => Err(failure),
    };
    if outcome.is_err() && !is_secondary(args, &group) {
        match target.start() {
            Ok(()) => warn(format!("{} is started again", target.unit())),
            Err(problem) => warn(problem),
        }
    }
    outcome
}

fn stop(target: &RoleTarget, args: &DemoteArgs, interrupt: &Interrupt) -> Result<(), CommandFailure> {
    let mut view = ProgressView::new(&args.group);
    let stage = WorkStage::words(format!("waits until {} and what hangs on it have stopped", target.unit()));
    let stopped = progress::during(|| target.stop(interrupt), || view.show(&stage));
    drop(view);
    stopped?;
    print(&format!("{} is stopped\n", target.unit()))?;
    interrupt.check().map_err(|_| "interrupted before the daemon was asked: nothing is demoted")?;
    Ok(())
}

/// It was demoted, whatever was heard of it. Where the daemon does not say, this node is primary as before.
fn is_secondary(args: &DemoteArgs, group: &GroupName) -> bool {
    let status = reach::status_any(&args.reach, Some(group.as_str()));
    let is_it = |status: NodeView| {
        let found = status.groups.into_iter().find(|found| found.name == group.as_str());
        found.is_some_and(|found| !found.starting && found.role == Role::Secondary)
    };
    status.is_ok_and(is_it)
}

/// Where the daemon refuses anyway, nothing stops.
fn is_to_stop(args: &DemoteArgs, group: &GroupName) -> Result<bool, CommandFailure> {
    let status = reach::status_any(&args.reach, Some(group.as_str()))?;
    Ok(is_primary(&status, group) && !is_of_another_node(args, &status))
}

fn is_primary(status: &NodeView, group: &GroupName) -> bool {
    let found = status.groups.iter().find(|found| found.name == group.as_str());
    found.is_some_and(|found| !found.starting && found.role == Role::Primary)
}

/// The target here follows the daemon of this machine's node. Where the configuration does not say which node that is, the one that
/// was asked is.
fn is_of_another_node(args: &DemoteArgs, status: &NodeView) -> bool {
    let here = &args.reach.here;
    let own = Config::load(&here.config).ok().and_then(|config| config.local_node(None).ok());
    own.map_or(args.reach.on.is_some(), |own| own.as_str() != status.node)
}

fn order(whom: &ReachAny, group: &str, close_clients: bool) -> Result<Reply, CommandFailure> {
    let request = ApiRequest::Demote { group: group.to_owned(), close_clients };
    reach::order_watched(whom, group, request, WaitingFor::Demotion)
}

/// The daemon's answer; `None`: somebody asked to wait no more. The daemon carries the order out all the same.
fn order_heard(args: &DemoteArgs, interrupt: &Interrupt) -> Result<Option<Reply>, CommandFailure> {
    let (tell, told) = channel();
    let (whom, group, close_clients) = (args.reach.clone(), args.group.clone(), args.close_clients);
    if Builder::new().spawn(move || _ = tell.send(order(&whom, &group, close_clients))).is_err() {
        return order(&args.reach, &args.group, args.close_clients).map(Some);
    }
    loop {
        match told.recv_timeout(INTERRUPT_LOOK) {
            Ok(answer) => return answer.map(Some),
            Err(RecvTimeoutError::Timeout) if interrupt.check().is_err() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("the thread that asked the daemon broke down".into()),
        }
    }
}

fn goes_on(target: &RoleTarget, group: &str) -> String {
    format!(
        "interrupted, and the daemon goes on with the demotion: 'farshore status {group}' says what became of it. {unit} stays stopped; if this \
         node stays primary, type 'systemctl start {unit}'",
        unit = target.unit()
    )
}
