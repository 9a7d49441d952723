//! `sync`: start it, and with `--wait` stay until the group replicates.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::reach::{self, Look};
use super::wait::explained;
use super::{Failure, Outcome, print, report};
use crate::api::{GroupState, GroupStatus, Reply, Request};
use crate::args::SyncArgs;
use crate::show;

/// A shorter sync needs no bar.
const BAR_AFTER: Duration = Duration::from_secs(2);
/// How long a sync that was accepted may take to show in the state.
const START_PATIENCE: Duration = Duration::from_secs(10);

pub fn run(args: &SyncArgs) -> Outcome {
    let reply = reach::ask(&args.reach, &Request::Sync { group: args.group.clone(), full: args.full })?;
    if !args.wait || !matches!(reply, Reply::Ok { .. }) {
        return report(reply);
    }
    let code = report(reply)?;
    let started = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    let mut seen = false;
    let result = reach::watch(&args.reach, &args.group, None, |group| {
        seen |= matches!(group.state, GroupState::Syncing | GroupState::CatchingUp);
        draw(&mut bar, group, started);
        judge(group, seen || started.elapsed() > START_PATIENCE)
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    result?;
    let took = crate::config::units::show_seconds(started.elapsed().as_secs_f64());
    print(&format!("{}: the copy is up to date, after {took}\n", args.group))?;
    Ok(code)
}

/// `begun`: the sync was seen, or had time enough to be; only then does a state without one mean that it ended badly.
fn judge(group: &GroupStatus, begun: bool) -> Result<Look<()>, Failure> {
    match &group.state {
        GroupState::Replicating => Ok(Look::Enough(())),
        GroupState::Failed => Err(format!("the sync of {} did not end: it {}", group.name, explained(group)).into()),
        GroupState::Logging if begun => {
            Err(format!("the sync of {} was stopped: it {}", group.name, explained(group)).into())
        }
        _ => Ok(Look::Again),
    }
}

fn draw(bar: &mut Option<ProgressBar>, group: &GroupStatus, started: Instant) {
    let Some(sync) = &group.sync else { return };
    if bar.is_none() && std::io::stderr().is_terminal() && started.elapsed() > BAR_AFTER {
        let fresh = ProgressBar::with_draw_target(Some(sync.total_bytes), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {msg}") {
            fresh.set_style(style.progress_chars("=> "));
        }
        fresh.set_prefix(group.name.clone());
        *bar = Some(fresh);
    }
    if let Some(bar) = bar {
        bar.set_length(sync.total_bytes);
        bar.set_position(sync.done_bytes.min(sync.total_bytes));
        bar.set_message(show::sync_line(sync));
    }
}
