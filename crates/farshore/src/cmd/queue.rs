//! `queue`: what waits for the secondary, and when it is full.

use std::io::IsTerminal;
use std::time::Duration;

use serde_json::json;

use super::answers::Answers;
use super::reach;
use super::status::paint;
use crate::api::{ApiRequest, GroupQueue, GroupView, NodeView, QUEUE_SCHEMA, QueueReport, Role};
use crate::args::stats::QueueArgs;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, REDRAW, print};
use crate::show;

const EVERY: Duration = Duration::from_secs(1);

pub fn run(args: &QueueArgs) -> CommandOutcome {
    if args.reset_peaks {
        let mut answers = Answers::new("queue", args.json);
        for group in answers.targets(&args.reach, &args.groups.groups, args.groups.all)? {
            answers.add(&group, reach::ask_any(&args.reach, ApiRequest::ResetPeaks { group: group.clone() }))?;
        }
        return answers.finish();
    }
    let names = reach::groups(&args.reach, &args.groups.groups, args.groups.all)?;
    loop {
        let queues = look(args, &names)?;
        let text = rendered(args, queues);
        let redraw = args.watch && !args.json && std::io::stdout().is_terminal();
        if !print(&if redraw { format!("{REDRAW}{text}") } else { text })? || !args.watch {
            return Ok(Exit::Done.into());
        }
        std::thread::sleep(EVERY);
    }
}

fn rendered(args: &QueueArgs, groups: Vec<GroupQueue>) -> String {
    if args.json {
        return format!("{}\n", json!(QueueReport { schema: QUEUE_SCHEMA, groups }));
    }
    let pages: Vec<String> = groups.iter().map(|group| show::queue::page(group, &paint())).collect();
    pages.join("\n")
}

/// In the order in which they were typed.
fn look(args: &QueueArgs, names: &[String]) -> Result<Vec<GroupQueue>, CommandFailure> {
    let only = if let [name] = names { Some(name.as_str()) } else { None };
    let status = reach::status_of_both(&args.reach, only)?;
    let found = |name: &String| {
        let group = status.groups.iter().find(|group| group.name == *name);
        group.map(|group| of_primary(&status, group)).ok_or_else(|| format!("no group {name:?} here").into())
    };
    names.iter().map(found).collect()
}

/// What waits, waits at the primary: where the peer is that, and said so, its word counts.
fn of_primary(status: &NodeView, here: &GroupView) -> GroupQueue {
    let theirs = status.peer_says.iter().filter_map(|says| says.status.as_deref()).find_map(|node| {
        let group = node.groups.iter().find(|group| group.name == here.name && group.role == Role::Primary);
        group.map(|group| (node.node.as_str(), group))
    });
    let (node, group) = match here.role {
        Role::Primary => (status.node.as_str(), here),
        _ => theirs.unwrap_or((status.node.as_str(), here)),
    };
    let peer = group.peers.first();
    GroupQueue {
        name: group.name.clone(),
        node: node.to_owned(),
        role: group.role.clone(),
        state: group.state.clone(),
        mode: group.mode.clone(),
        queue: group.queue.clone(),
        lag_bytes: peer.and_then(|peer| peer.lag_bytes),
        lag_seconds: peer.and_then(|peer| peer.lag_seconds),
    }
}
