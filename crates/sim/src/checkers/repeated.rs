//! A command whose goal is reached says so and changes nothing; one whose goal is not reached does not say so.

use engine::identity::{Decision, DecisionReason, Identity, Role};
use engine::marks::Mark;
use engine::state::State;
use engine::status::{GroupGlance, GroupStatus};
use engine::{Command, CommandResult, Incarnation, VolumeId};

use crate::oracle::{Oracle, OracleFailure};

/// The role that a command asks for.
pub fn role_wanted(command: &Command) -> Option<Role> {
    match command {
        Command::Promote { .. } | Command::PromoteInWindow { .. } | Command::PromoteForPeer { .. } => {
            Some(Role::Primary)
        }
        Command::Demote => Some(Role::Secondary),
        Command::Logging
        | Command::SetAside { .. }
        | Command::Rejoin { .. }
        | Command::Sync { .. }
        | Command::SendAll
        | Command::BringUpToDate
        | Command::Set(_)
        | Command::Keep { .. }
        | Command::TakeBack { .. }
        | Command::Yield { .. }
        | Command::DropRollbackPoint { .. }
        | Command::Mark { .. }
        | Command::LockMark { .. }
        | Command::DropMark { .. }
        | Command::Reset { .. } => None,
        // Whether it changes the role of the node at which it is typed depends on both nodes.
        Command::Switchover { .. } => None,
        Command::Verify(_) | Command::VerifyStop | Command::ForgetPeaks | Command::AssumeEqual => None,
    }
}

/// Whether the goal of a command is reached in a group that shows this: then alone `Unchanged` is its answer.
pub fn is_reached(command: &Command, shown: &GroupStatus) -> bool {
    match command {
        Command::Promote { .. } | Command::PromoteInWindow { .. } | Command::PromoteForPeer { .. } => {
            shown.role == Role::Primary
        }
        Command::Demote | Command::Yield { .. } => shown.role == Role::Secondary,
        // No order stands: that is not shown.
        Command::TakeBack { .. } => true,
        Command::Keep { .. } => shown.role == Role::Primary && !is_forked(shown),
        Command::Switchover { to, .. } if *to == shown.peer.node => shown.peer.role == Some(Role::Primary),
        Command::Switchover { .. } => shown.role == Role::Primary,
        Command::Logging => shown.role == Role::Primary && shown.state == State::Logging,
        Command::Sync { full: false } | Command::BringUpToDate => {
            let is_clean = shown.volumes.iter().all(|volume| volume.is_aside || volume.dirty_bytes == 0);
            shown.state == State::Replicating && shown.queue.bytes == 0 && shown.sync.is_none() && is_clean
        }
        Command::SetAside { volume } => shown.role == Role::Primary && is_aside(shown, *volume),
        Command::Rejoin { volume } => shown.role == Role::Primary && !is_aside(shown, *volume),
        Command::DropRollbackPoint { .. } => shown.role == Role::Secondary && shown.rollback_point.is_none(),
        Command::Mark { name, .. } => shown.role == Role::Primary && marked(shown, name).is_some(),
        Command::LockMark { name, locked } => marked(shown, name).is_some_and(|mark| mark.locked == *locked),
        Command::DropMark { .. } => shown.role == Role::Secondary && shown.rollback_point.is_none(),
        // Of this node's half: see who asks.
        Command::Reset { .. } => false,
        Command::Verify(_) => shown.verify.is_some(),
        Command::VerifyStop => shown.role == Role::Primary && shown.verify.is_none(),
        Command::AssumeEqual => shown.doubts.assumed_equal,
        // A full sync is a new one each time, and settings are compared by the daemon.
        Command::Sync { full: true } | Command::SendAll | Command::Set(_) | Command::ForgetPeaks => false,
    }
}

fn marked<'a>(shown: &'a GroupStatus, name: &str) -> Option<&'a Mark> {
    shown.marks.iter().find(|mark| mark.name == name)
}

fn is_aside(shown: &GroupStatus, volume: VolumeId) -> bool {
    shown.volumes.get(usize::from(volume.0)).is_some_and(|volume| volume.is_aside)
}

/// Nothing goes to its peer before an operator says whose content counts.
fn is_forked(shown: &GroupStatus) -> bool {
    let decision = shown.meeting.as_ref().map(|meeting| meeting.decision);
    matches!(decision, None | Some(Decision::Refuse(_) | Decision::NeedsFullSync(DecisionReason::Fork { .. })))
}

/// A command was told `Unchanged`, and its goal was not reached when it was decided about.
pub fn untrue(command: &str, text: &str) -> OracleFailure {
    let what = format!("{command} is told that it has nothing to do ({text}), and its goal is not reached");
    OracleFailure::new(Oracle::Repeated, what)
}

/// A command for this role was typed: how its group stood before and right after, and the answer, if there was one at once.
pub fn check(
    wanted: Role,
    (before, after): (&GroupGlance, &GroupGlance),
    answer: Option<&CommandResult>,
) -> Result<(), OracleFailure> {
    let is_reached = before.running && before.identity.role == wanted;
    let what = match (is_reached, answer) {
        (true, Some(CommandResult::Unchanged(_) | CommandResult::Refused(_))) => {
            if kept(&before.identity) == kept(&after.identity) && after.running {
                return Ok(());
            }
            format!("a command for the role {wanted:?}, which the node had, changed it: {before:?}, then {after:?}")
        }
        (true, _) => format!("a command for the role {wanted:?}, which the node had, is carried out: {answer:?}"),
        (false, Some(CommandResult::Unchanged(text))) => {
            format!("a command for the role {wanted:?} is told that it has it ({text}): {before:?}")
        }
        (false, _) => return Ok(()),
    };
    Err(OracleFailure::new(Oracle::Repeated, what))
}

/// What a change of role changes. The rest may move on in the same moment, by a timer that is due.
fn kept(identity: &Identity) -> (Role, Incarnation, bool) {
    (identity.role, identity.incarnation, identity.handed_over)
}

#[cfg(test)]
mod tests {
    use engine::state::{Mode, Protection};

    use super::*;

    fn glance(role: Role, running: bool) -> GroupGlance {
        GroupGlance {
            identity: Identity { role, ..Identity::default() },
            state: State::Replicating,
            mode: Mode::Async,
            protection: Protection::Queued,
            paused: None,
            running,
            drained: true,
            needs_verification: false,
            aside: engine::VolumeSet::default(),
            peer_window_until: None,
        }
    }

    #[test]
    fn what_is_reached_is_said_and_nothing_else_is() {
        let (primary, secondary) = (glance(Role::Primary, true), glance(Role::Secondary, true));
        let unchanged = CommandResult::Unchanged("already".into());
        let done = CommandResult::Done("done".into());
        let promote = |before: &GroupGlance, after: &GroupGlance, answer| check(Role::Primary, (before, after), answer);
        assert!(promote(&primary, &primary, Some(&unchanged)).is_ok());
        assert!(promote(&primary, &primary, Some(&done)).is_err());
        assert!(promote(&primary, &glance(Role::Primary, false), None).is_err(), "it begins again");
        assert!(promote(&primary, &secondary, Some(&unchanged)).is_err());
        assert!(promote(&secondary, &secondary, Some(&unchanged)).is_err());
        assert!(promote(&secondary, &glance(Role::Secondary, false), None).is_ok());
        assert!(promote(&glance(Role::Primary, false), &primary, None).is_ok(), "it is on its way");
    }
}
