//! `demote`: this node becomes the secondary of groups. What hangs on a group's target stops first.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use engine::RefusalCode;
use settings::{Config, GroupName};
use toolkit::interrupt::Interrupt;

use super::answers::Answers;
use super::progress::{self, ProgressView, WaitingFor, WorkStage};
use super::reach;
use super::role_target::RoleTarget;
use crate::api::refusals::DeskRefusal;
use crate::api::{ApiRequest, NodeView, OperationState, RefusalView, Reply, Role, SwitchoverOrder};
use crate::args::DemoteArgs;
use crate::args::groups::GroupsArgs;
use crate::args::reach::ReachAny;
use crate::outcome::{CommandFailure, CommandOutcome, print, warn};

/// How often it is looked whether somebody asks to wait no more.
const INTERRUPT_LOOK: Duration = Duration::from_millis(50);

/// An order by which this node stops being primary, if it is.
#[derive(Clone)]
pub(super) struct RoleOrder {
    pub reach: ReachAny,
    pub request: ApiRequest,
    pub waiting_for: WaitingFor,
    pub json: bool,
    /// What it is, in words.
    pub what: &'static str,
}

pub fn run(args: &DemoteArgs) -> CommandOutcome {
    let order = |group: &str| RoleOrder {
        reach: args.reach.clone(),
        request: ApiRequest::Demote {
            group: group.to_owned(),
            close_clients: args.close_clients,
            skip_hooks: args.skip_hooks,
        },
        waiting_for: WaitingFor::Demotion,
        json: args.json,
        what: "demotion",
    };
    each("demote", &args.reach, &args.groups, (args.json, order))
}

/// One group after the other.
pub(super) fn each(
    verb: &'static str,
    reach: &ReachAny,
    groups: &GroupsArgs,
    (json, order): (bool, impl Fn(&str) -> RoleOrder),
) -> CommandOutcome {
    let mut answers = Answers::new(verb, json);
    let mut interrupt = None;
    let groups = answers.targets(reach, &groups.groups, groups.all)?;
    // Before the first one is demoted.
    groups.iter().try_for_each(|group| GroupName::parse(group).map(drop)).map_err(CommandFailure::usage)?;
    for group in groups {
        answers.add(&group, carry_out(&order(&group), &group, &mut interrupt))?;
        if interrupt.as_ref().is_some_and(|interrupt: &Interrupt| interrupt.check().is_err()) {
            // Who typed Ctrl-C wants no other group demoted.
            break;
        }
    }
    answers.finish()
}

/// One group. `interrupt`: from the first target on that was stopped.
pub(super) fn carry_out(
    order: &RoleOrder,
    name: &str,
    interrupt: &mut Option<Interrupt>,
) -> Result<Reply, CommandFailure> {
    let group = GroupName::parse(name).map_err(CommandFailure::usage)?;
    let target = RoleTarget::of(&group);
    if !(target.is_up() && is_to_stop(order, &group)?) {
        // Once a target was stopped nothing else listens to Ctrl-C.
        let Some(heard) = interrupt.as_ref() else { return ask(order, name) };
        return order_heard(order, name, heard)?.ok_or_else(|| interrupted(order, name, ""));
    }
    if let Some(refusal) = refused_anyway(order)? {
        return Ok(refusal);
    }
    // From here on Ctrl-C is a failure like any other: it would leave the target down on a node that is primary.
    let heard = match interrupt.take() {
        Some(heard) => heard,
        None => Interrupt::listen()?,
    };
    let interrupt = &*interrupt.insert(heard);
    let stopped = stop(&target, name, !order.json, interrupt);
    let mut answer = match stopped.and_then(|()| order_heard(order, name, interrupt)) {
        Ok(Some(reply)) => Ok(reply),
        // It may still come about, and what hangs on the target must not start beside it.
        Ok(None) => {
            let unit = target.unit();
            let then = format!(". {unit} stays stopped; if this node stays primary, type 'systemctl start {unit}'");
            return Err(interrupted(order, name, &then));
        }
        Err(failure) => Err(failure),
    };
    if let Some(message) = open_end(&mut answer) {
        let unit = target.unit();
        let what = order.what;
        *message += &format!(
            "; the {what} may still come about, so {unit} stays stopped: see 'farshore status {name}', and if this node stays primary, \
             type 'systemctl start {unit}'"
        );
        return answer;
    }
    if !matches!(answer, Ok(Reply::Ok { unchanged: false, .. })) && !is_secondary(order, &group) {
        match target.start() {
            Ok(()) => warn(format!("{} is started again", target.unit())),
            Err(problem) => warn(problem),
        }
    }
    answer
}

/// A switchover that would be refused now, or has nothing to do, stops nothing.
fn refused_anyway(order: &RoleOrder) -> Result<Option<Reply>, CommandFailure> {
    let ApiRequest::Switchover(switchover) = &order.request else { return Ok(None) };
    let asks = ApiRequest::Switchover(SwitchoverOrder { only_asks: true, ..switchover.clone() });
    let reply = reach::ask_any(&order.reach, asks)?;
    Ok((!matches!(reply, Reply::Ok { unchanged: false, .. })).then_some(reply))
}

fn stop(target: &RoleTarget, group: &str, says_so: bool, interrupt: &Interrupt) -> Result<(), CommandFailure> {
    let mut view = ProgressView::new(group);
    let stage = WorkStage::words(format!("waits until {} and what hangs on it have stopped", target.unit()));
    let stopped = progress::during(|| target.stop(interrupt), || view.show(&stage));
    drop(view);
    stopped?;
    if says_so {
        print(&format!("{} is stopped\n", target.unit()))?;
    }
    interrupt.check().map_err(|_| "interrupted before the daemon was asked: nothing is changed")?;
    Ok(())
}

/// The sentence of an answer after which a demotion may still come about, or has.
fn open_end(answer: &mut Result<Reply, CommandFailure>) -> Option<&mut String> {
    match answer {
        Ok(Reply::Error { message, code, refusal, .. }) => {
            let refusal = refusal.as_deref().cloned().unwrap_or_else(|| RefusalView::of(code));
            let is_open = matches!(refusal.outcome(code), OperationState::Running | OperationState::Unknown);
            (is_open || refusal.code == RefusalCode::RoleChanging.word()).then_some(message)
        }
        Err(failure) => (failure.code() == Some(DeskRefusal::NoAnswer.word())).then_some(&mut failure.message),
        Ok(_) => None,
    }
}

/// It was demoted, whatever was heard of it. Where the daemon does not say, this node is primary as before.
fn is_secondary(order: &RoleOrder, group: &GroupName) -> bool {
    let status = reach::status_any(&order.reach, Some(group.as_str()));
    let is_it = |status: NodeView| {
        let found = status.groups.into_iter().find(|found| found.name == group.as_str());
        found.is_some_and(|found| !found.starting && found.role == Role::Secondary)
    };
    status.is_ok_and(is_it)
}

/// Where the daemon refuses anyway, nothing stops.
fn is_to_stop(order: &RoleOrder, group: &GroupName) -> Result<bool, CommandFailure> {
    let status = reach::status_any(&order.reach, Some(group.as_str()))?;
    let stays = match &order.request {
        ApiRequest::Switchover(SwitchoverOrder { to: Some(to), .. }) => *to == status.node,
        _ => false,
    };
    Ok(!stays && is_primary(&status, group) && !is_of_another_node(&order.reach, &status))
}

fn is_primary(status: &NodeView, group: &GroupName) -> bool {
    let found = status.groups.iter().find(|found| found.name == group.as_str());
    found.is_some_and(|found| !found.starting && found.role == Role::Primary)
}

/// The target here follows the daemon of this machine's node. Where the configuration does not say which node that is, the one that
/// was asked is.
fn is_of_another_node(reach: &ReachAny, status: &NodeView) -> bool {
    let here = &reach.here;
    let own = Config::load(&here.config).ok().and_then(|config| config.local_node(None).ok());
    own.map_or(reach.on.is_some(), |own| own.as_str() != status.node)
}

fn ask(order: &RoleOrder, group: &str) -> Result<Reply, CommandFailure> {
    reach::order_watched(&order.reach, group, order.request.clone(), order.waiting_for)
}

/// The daemon's answer; `None`: somebody asked to wait no more. The daemon carries the order out all the same.
fn order_heard(order: &RoleOrder, name: &str, interrupt: &Interrupt) -> Result<Option<Reply>, CommandFailure> {
    let (tell, told) = channel();
    let (asked, group) = (order.clone(), name.to_owned());
    if Builder::new().spawn(move || _ = tell.send(ask(&asked, &group))).is_err() {
        return ask(order, name).map(Some);
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

fn interrupted(order: &RoleOrder, group: &str, then: &str) -> CommandFailure {
    let message = format!(
        "interrupted, and the daemon goes on with the {}: 'farshore status {group}' says what became of it{then}",
        order.what
    );
    CommandFailure::from(message).because(DeskRefusal::NotDoneYet)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The daemon went on with the demotion, and what hangs on the target was started beside it.
    #[test]
    fn an_answer_that_leaves_the_end_open_starts_nothing() {
        let none = |refusal| Err(CommandFailure::from("nobody answers").because(refusal));
        for (mut answer, is_open) in [
            (Ok(Reply::failed(DeskRefusal::NotDoneYet, "this is not done after 8s")), true),
            (Ok(Reply::refused(RefusalCode::RoleChanging, "db: a demotion is under way")), true),
            (Ok(Reply::failed(DeskRefusal::BrokeDown, "the daemon broke down over this")), true),
            (none(DeskRefusal::NoAnswer), true),
            (none(DeskRefusal::NotReached), false),
            (Ok(Reply::refused(DeskRefusal::StateDiskSilent, "db: nothing was changed")), false),
            (Ok(Reply::refused(DeskRefusal::ClientsAttached, "db: clients are attached")), false),
            (Ok(Reply::refused(RefusalCode::StoreFailed, "db: it stays primary, and failed")), false),
            (none(DeskRefusal::Failed), false),
            (Ok(Reply::ok("db: demoted")), false),
        ] {
            assert_eq!(open_end(&mut answer).is_some(), is_open, "{answer:?}");
        }
    }
}
