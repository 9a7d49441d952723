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
        group.map(|group| (node, group))
    });
    let (node, group) = match here.role {
        Role::Primary => (status, here),
        _ => theirs.unwrap_or((status, here)),
    };
    let peer = group.peers.first();
    let link = peer.and_then(|peer| node.links.iter().find(|link| link.node == peer.node));
    let set = |key: &str| group.settings.get(key).map(|setting| setting.value.clone());
    GroupQueue {
        name: group.name.clone(),
        node: node.node.clone(),
        role: group.role.clone(),
        state: group.state.clone(),
        mode: group.mode.clone(),
        effective_mode: group.effective_mode.clone(),
        mode_ladder: group.mode_ladder.clone(),
        policy: set("policy"),
        when_full: set("queue.when_full"),
        link_weight: set("link.weight"),
        allowed_bytes_per_s: link.and_then(|link| link.allowed_bytes_per_s),
        rpo: group.rpo.clone(),
        recovery_point: peer.and_then(|peer| peer.recovery_point.clone()),
        queue: group.queue.clone(),
        lag_bytes: peer.and_then(|peer| peer.lag_bytes),
        lag_seconds: peer.and_then(|peer| peer.lag_seconds),
    }
}
