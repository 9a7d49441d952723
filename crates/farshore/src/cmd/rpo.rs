//! `rpo`: how well groups kept to their recovery point objective, from the events of both nodes.

use jiff::tz::TimeZone;
use serde_json::json;

use super::events::{read_all, since};
use super::reach;
use super::status::paint;
use crate::api::{GroupView, NodeView, RPO_SCHEMA, Role, RpoHistory, RpoReport};
use crate::args::events::RpoArgs;
use crate::args::reach::ReachAny;
use crate::events::unix_ms;
use crate::outcome::{CommandOutcome, Exit, print};
use crate::rpo::{self, RpoNow};
use crate::show;

pub fn run(args: &RpoArgs) -> CommandOutcome {
    let now_unix_ms = unix_ms();
    let since_unix_ms = since(&args.since, now_unix_ms)?;
    let reach = ReachAny { here: args.reach.clone(), on: None };
    let names = reach::groups(&reach, &args.groups.groups, args.groups.all)?;
    let status = reach::status_of_both(&reach, None)?;
    let (events, is_whole) = read_all(reach::socket(&args.reach)?)?;
    let of_group = |name: &String| {
        let group = status.groups.iter().find(|group| group.name == *name);
        let group = group.ok_or_else(|| format!("no group {name:?} here"))?;
        let rpo = group.rpo.clone().unwrap_or_default();
        let thresholds = [rpo.warn_seconds, rpo.error_seconds];
        let now = RpoNow { now_unix_ms, primary: primary_of(&status, group), thresholds };
        Ok::<_, String>(rpo::history(name, &events, since_unix_ms, &now))
    };
    let groups: Vec<RpoHistory> = names.iter().map(of_group).collect::<Result<_, _>>()?;
    print(&match args.json {
        true => format!("{}\n", json!(RpoReport { schema: RPO_SCHEMA, groups })),
        false => {
            let pages = groups.iter().map(|group| show::rpo::page(group, &TimeZone::system(), &paint()));
            pages.collect::<Vec<_>>().join("\n")
        }
    })?;
    Ok(if is_whole { Exit::Done } else { Exit::Warning }.into())
}

/// Which of the nodes that answered is the primary now.
fn primary_of<'a>(status: &'a NodeView, here: &GroupView) -> Option<&'a str> {
    if here.role == Role::Primary {
        return Some(&status.node);
    }
    status.peer_says.iter().filter_map(|says| says.status.as_deref()).find_map(|node| {
        let is_primary = node.groups.iter().any(|group| group.name == here.name && group.role == Role::Primary);
        is_primary.then_some(node.node.as_str())
    })
}
