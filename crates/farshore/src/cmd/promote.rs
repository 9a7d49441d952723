//! `promote`: this node becomes the primary of groups.

use toolkit::screen::clean;
use units::exact::{show_seconds, show_size};

use super::answers::Answers;
use super::progress::WaitingFor;
use super::{first_run, reach};
use crate::api::{ApiRequest, GroupView, Reply, Role};
use crate::args::PromoteArgs;
use crate::outcome::{CommandFailure, CommandOutcome};
use crate::show::promotable_words;

pub fn run(args: &PromoteArgs) -> CommandOutcome {
    let mut answers = Answers::new("promote", args.json);
    let asks = args.force && !args.yes && !args.json && first_run::can_ask();
    for group in answers.targets(&args.reach, &args.groups.groups, args.groups.all)? {
        if asks {
            is_meant(args, &group)?;
        }
        let request = ApiRequest::Promote {
            group: group.clone(),
            force: args.force,
            in_window: args.in_window,
            skip_hooks: args.skip_hooks,
            is_announced: false,
        };
        answers.add(&group, reach::order_watched(&args.reach, &group, request, WaitingFor::Promotion))?;
    }
    answers.finish()
}

/// Somebody at a terminal hears what may be lost, and says that it may. A script has decided.
fn is_meant(args: &PromoteArgs, group: &str) -> Result<(), CommandFailure> {
    let request = ApiRequest::Status { group: Some(group.to_owned()) };
    let Reply::Status(status) = reach::ask_any(&args.reach, request)? else { return Ok(()) };
    let Some(now) = status.groups.iter().find(|now| now.name == group) else { return Ok(()) };
    if now.role == Role::Primary {
        return Ok(());
    }
    eprint!("{}", what_may_be_lost(&status.node, now));
    match first_run::ask("Type yes to promote it all the same", None).as_deref() {
        Some("yes") => Ok(()),
        _ => Err(CommandFailure::from(format!("{}: nothing was done", clean(group)))),
    }
}

fn what_may_be_lost(node: &str, group: &GroupView) -> String {
    let (node, name) = (clean(node), clean(&group.name));
    let mut text = format!(
        "{name}: node {node} becomes primary without asking the other node. What that one acknowledged and this copy does not have is lost.\n"
    );
    if let Some(left) = group.peer_window_s {
        let left = show_seconds(left);
        text = format!(
            "{name}: node {node} becomes primary without asking the other node. Nothing that one acknowledged is missing here: it answers nobody \
             alone for {left} more.\n"
        );
    }
    text += &format!("  This copy  {}\n", promotable_words(group));
    for volume in group.volumes.iter().filter(|volume| volume.set_aside) {
        text += &format!(
            "  Without    volume {}: it was set aside, and what stands in it here is older\n",
            clean(&volume.name)
        );
    }
    if let Some(peer) = group.peers.first() {
        let lag = match (peer.heard_lag_bytes, peer.heard_lag_seconds) {
            (Some(bytes), Some(seconds)) => format!("{}, {}", show_size(bytes), show_seconds(seconds)),
            (Some(bytes), None) => show_size(bytes),
            _ => "not known".to_owned(),
        };
        let heard = match peer.heard_s {
            Some(seconds) => {
                format!("as the primary said {} ago; what came after that is not known", show_seconds(seconds))
            }
            None => "the primary has said nothing since this daemon started".to_owned(),
        };
        text += &format!("  Behind     {lag} ({heard})\n");
        text += &format!("  Link       {}: {}\n", clean(&peer.node), clean(peer.link.as_str()));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_may_be_lost_is_said_in_numbers() {
        let group = |peer| {
            let group = json!({
                "name": "db", "role": "secondary", "mode": "sync", "state": "logging", "protection": "none", "volumes": [],
                "queue": {"bytes": 0, "items": 0, "bytes_hwm": 0, "items_hwm": 0, "limit_bytes": 0, "limit_items": 0, "blocked_ms": 0},
                "promotable": {"sequence": 7, "time": "2026-01-02T03:04:05Z"}, "peers": [peer], "settings": {}
            });
            serde_json::from_value::<GroupView>(group).expect("a group")
        };
        let peer = json!({"node": "alpha", "link": "disconnected", "link_since_s": 9.0, "dirty_bytes": 0, "heard_s": 9.0,
            "heard_lag_bytes": 4096, "heard_lag_seconds": 2.0});
        let said = what_may_be_lost("beta", &group(peer));
        for part in ["db: node beta becomes primary", "sequence 7", "Behind     4 KiB, 2", "9", "alpha: disconnected"] {
            assert!(said.contains(part), "{part:?}: {said}");
        }
        let silent = json!({"node": "alpha", "link": "connecting", "link_since_s": 9.0, "dirty_bytes": 0});
        let said = what_may_be_lost("beta", &group(silent));
        assert!(said.contains("not known (the primary has said nothing since this daemon started)"), "{said}");
    }
}
