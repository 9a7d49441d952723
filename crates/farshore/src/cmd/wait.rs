//! `wait`: until a group is in a state, it cannot get there any more, or time is up.

use std::time::{Duration, Instant};

use settings::suggest;

use super::progress::{ProgressView, WaitingFor, WorkStage};
use super::reach::{self, WatchStep};
use crate::api::GroupState;
use crate::args::WaitArgs;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print};
use crate::show::explained;

pub fn run(args: &WaitArgs) -> CommandOutcome {
    let wanted = parse_state(&args.state)?;
    let timeout = args.timeout.as_deref().map(units::exact::parse_duration).transpose();
    let timeout: Option<Duration> = timeout.map_err(|reason| CommandFailure::usage(format!("--timeout: {reason}")))?;
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut last = String::new();
    let mut view = ProgressView::new(&args.group);
    let found = reach::watch(&args.reach, &args.group, deadline, |group| {
        last = explained(group);
        // What stands there until the start is over is no state yet.
        if group.state == wanted && !(group.starting && wanted == GroupState::Logging) {
            Ok(WatchStep::Enough(()))
        } else if group.state == GroupState::Failed {
            Err(CommandFailure::from(format!("{} will not reach {wanted}: it {last}", group.name)))
        } else {
            view.show(&WorkStage::of(group, WaitingFor::State));
            Ok(WatchStep::Again)
        }
    });
    // Before anything else is said.
    drop(view);
    let found = found?;
    match found {
        Some(()) => {
            print(&format!("{} is {wanted}\n", args.group))?;
            Ok(Exit::Done.into())
        }
        None => Err(format!("{} is not {wanted} in time: it {last}", args.group).into()),
    }
}

fn parse_state(text: &str) -> Result<GroupState, CommandFailure> {
    match GroupState::from(text) {
        GroupState::Other(word) => Err(CommandFailure::usage(format!(
            "{word:?} is not a state{}; choose one of {}",
            suggest::hint(&word, GroupState::WORDS.iter().copied()),
            suggest::list(GroupState::WORDS.iter().copied()),
        ))),
        state => Ok(state),
    }
}
