//! A group as lines that a shell can evaluate: what an agent of a cluster manager asks, without a reader of JSON.
//!
//! Each line is `farshore_KEY=VALUE`. Names and sentences stand in single quotes, whatever they hold; all else is a word
//! or a number. Keys and words are only added, as in `--json`.

use crate::api::{GroupState, GroupView, LinkState, NodeView, Role, VolumeView};
use crate::attach::record::{AttachedDevice, AttachedState};

/// Where there is no group to show: why, in a word.
pub fn unanswered(word: &str) -> String {
    format!("farshore_answered={word}\n")
}

/// One group, of its first peer.
pub fn group(node: &str, group: &GroupView) -> String {
    let peer = group.peers.first();
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let dirty = super::dirty_bytes(group);
    let clients = group.volumes.iter().map(|volume| volume.clients).fold(0, u64::saturating_add);
    let broken = group.volumes.iter().filter(|volume| volume.error.is_some()).count();
    let lines = [
        ("answered", "yes".to_owned()),
        ("group", quoted(&group.name)),
        ("node", quoted(node)),
        ("role", quoted(role(group))),
        ("condition", quoted(condition(group))),
        ("starting", word(group.starting)),
        ("mode", quoted(&group.mode)),
        ("effective_mode", quoted(&group.effective_mode)),
        ("state", quoted(group.state.as_str())),
        ("protection", quoted(group.protection.as_str())),
        ("generation", quoted(&group.generation)),
        ("term", quoted(&group.term)),
        ("promotable", word(group.promotable.is_some())),
        ("in_step", word(is_in_step(group))),
        ("peer", quoted(peer.map_or("", |peer| &peer.node))),
        ("link", quoted(peer.map_or("", |peer| peer.link.as_str()))),
        ("linked", word(is_linked(group))),
        ("lag_bytes", number(peer.and_then(|peer| peer.lag_bytes))),
        ("dirty_bytes", dirty.to_string()),
        ("clients", clients.to_string()),
        ("broken_volumes", broken.to_string()),
        ("volumes", group.volumes.len().to_string()),
        ("reason", quoted(group.reason.as_deref().unwrap_or(""))),
    ];
    page(&lines)
}

/// What else is known of a group here: what its peer's daemon says of itself, where it was asked and answered, and how the devices of
/// its volumes fare, where their records can be read.
pub fn beside(status: &NodeView, group: &GroupView, records: Option<&[AttachedDevice]>) -> String {
    let peer = group.peers.first().and_then(|peer| said_by(status, &peer.node, &group.name));
    page(&[
        ("peer_role", quoted(peer.map_or("", role))),
        ("peer_condition", quoted(peer.map_or("", condition))),
        ("peer_generation", quoted(peer.map_or("", |theirs| &theirs.generation))),
        ("peer_term", quoted(peer.map_or("", |theirs| &theirs.term))),
        ("devices", quoted(devices(group, records))),
    ])
}

fn page(lines: &[(&str, String)]) -> String {
    lines.iter().map(|(key, value)| format!("farshore_{key}={value}\n")).collect()
}

fn said_by<'a>(status: &'a NodeView, peer: &str, name: &str) -> Option<&'a GroupView> {
    let says = status.peer_says.iter().find(|says| says.node == peer)?;
    says.status.as_ref()?.groups.iter().find(|group| group.name == name)
}

/// Empty where it is not known: a group shows a copy's role until its record is read. One that starts may be at that; one that stands still
/// or failed before has no history.
fn role(group: &GroupView) -> &str {
    let number = group.generation.split('-').next().unwrap_or("");
    let is_blank = matches!(number, "" | "0");
    match condition(group) {
        "starting" => "",
        "halted" if is_blank => "",
        _ => group.role.as_str(),
    }
}

/// What the group does on its node, in a word: it starts, and goes on by itself (`starting`); it failed, or its start stands still
/// (`halted`); its promotion runs (`promoting`); it is a `copy`; as a primary it serves (`serving`), its export is still closed (`closed`),
/// or its demotion or a stop runs (`ending`).
fn condition(group: &GroupView) -> &'static str {
    match &group.role {
        _ if group.state == GroupState::Failed => "halted",
        _ if group.starting && group.state != GroupState::Paused => "starting",
        // Also out of a start that stands still.
        _ if group.promoting => "promoting",
        _ if group.starting => "halted",
        // Also where the data path is secondary already, and its disk has not recorded that.
        _ if group.demoting => "ending",
        Role::Secondary => "copy",
        Role::Primary if !group.is_closed() => "serving",
        // A closed export sends nothing. A stop that runs without a link looks the same, and has nothing to wait for.
        Role::Primary if group.state == GroupState::Logging => "closed",
        Role::Primary => "ending",
        Role::Other(_) => "unknown",
    }
}

/// `attached`: each volume has a device, and none of the group's is of no more use: what waits for the daemon is well. `none`: there is no
/// device. `broken`: anything else. `unknown`: the records cannot be read, or are another node's.
fn devices(group: &GroupView, records: Option<&[AttachedDevice]>) -> &'static str {
    let Some(records) = records else { return "unknown" };
    let own: Vec<&AttachedDevice> = records.iter().filter(|device| device.group == group.name).collect();
    let has_device = |volume: &VolumeView| own.iter().any(|device| device.volume == volume.name);
    if own.is_empty() {
        "none"
    } else if own.iter().all(|device| is_well(device)) && group.volumes.iter().all(has_device) {
        "attached"
    } else {
        "broken"
    }
}

fn is_well(device: &AttachedDevice) -> bool {
    matches!(device.state, AttachedState::Connected | AttachedState::Waiting { .. })
}

fn is_linked(group: &GroupView) -> bool {
    group.peers.first().is_some_and(|peer| matches!(peer.link, LinkState::Connected | LinkState::Congested))
}

/// The nodes are connected, and the mode's promise holds: the copy lacks no more than the mode allows.
fn is_in_step(group: &GroupView) -> bool {
    let has_image = group.role == Role::Primary || group.promotable.is_some();
    // A copy of a primary that acts as a lower mode may lack what that acknowledged.
    let holds = group.state == GroupState::Replicating && group.acts_otherwise().is_none();
    !group.starting && is_linked(group) && has_image && holds
}

fn word(holds: bool) -> String {
    if holds { "yes" } else { "no" }.to_owned()
}

/// Nothing in it means anything to a shell, and it stays one line.
fn quoted(text: &str) -> String {
    let text: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::process::Command;

    /// A primary of two volumes that replicates, but for some keys.
    fn shown(changes: &[(&str, Value)]) -> GroupView {
        let volume =
            |name: &str| json!({"name": name, "size_bytes": 1, "device": "/dev/x", "dirty_bytes": 0, "direct": true});
        let mut group = json!({
            "name": "db", "role": "primary", "generation": "3.cafe", "term": "t1", "mode": "sync", "state": "replicating",
            "protection": "both-durable", "volumes": [volume("a"), volume("b")],
            "queue": {"bytes": 0, "items": 0, "bytes_hwm": 0, "items_hwm": 0, "limit_bytes": 9, "limit_items": 9, "blocked_ms": 0},
            "peers": [{"node": "beta", "link": "connected", "link_since_s": 9.0, "lag_bytes": 0, "lag_seconds": 0.0, "dirty_bytes": 0,
                "recovery_point": null}],
            "settings": {}
        });
        for (key, value) in changes {
            group[*key] = value.clone();
        }
        serde_json::from_value(group).expect("a group")
    }

    /// An agent of a cluster decides by this word: a demotion that took its time passed for an export that an operator was asked about.
    #[test]
    fn what_a_group_does_is_one_word() {
        let is = |word: &str, changes: &[(&str, &str)]| {
            let keys: Vec<(&str, Value)> = changes.iter().map(|(key, value)| (*key, json!(value))).collect();
            assert_eq!(condition(&shown(&keys)), word, "{changes:?}");
            let mut starts = shown(&keys);
            starts.starting = true;
            let stands = matches!(starts.state, GroupState::Failed | GroupState::Paused);
            assert_eq!(condition(&starts), if stands { "halted" } else { "starting" }, "{changes:?}");
        };
        is("serving", &[]);
        for state in ["syncing", "paused", "logging"] {
            is("serving", &[("state", state), ("protection", "local-only")]);
        }
        is("serving", &[("state", "holding"), ("protection", "held")]);
        is("closed", &[("state", "logging"), ("protection", "none")]);
        for state in ["replicating", "queuing", "syncing", "catching-up"] {
            is("ending", &[("state", state), ("protection", "none")]);
        }
        for role in ["primary", "secondary"] {
            is("halted", &[("role", role), ("state", "failed"), ("protection", "none")]);
        }
        for state in ["replicating", "logging", "paused"] {
            is("copy", &[("role", "secondary"), ("state", state), ("protection", "none")]);
        }
        is("unknown", &[("role", "witness")]);
    }

    /// It was shown as a copy, and the other node was promoted by force beside it.
    #[test]
    fn a_promotion_that_runs_is_no_copy() {
        let is = |word: &str, changes: &[(&str, Value)]| {
            let group = shown(&[&[("promoting", json!(true))][..], changes].concat());
            assert_eq!(condition(&group), word, "{changes:?}");
            assert_eq!(role(&group), if word == "starting" { "" } else { group.role.as_str() }, "{changes:?}");
        };
        let (secondary, starting) = (("role", json!("secondary")), ("starting", json!(true)));
        for state in ["replicating", "logging", "paused"] {
            is("promoting", &[secondary.clone(), ("state", json!(state))]);
        }
        // The role is being recorded.
        is("promoting", &[("state", json!("logging")), ("protection", json!("none"))]);
        // Whoever has no room for its history leaves a start that stands still in this way.
        is("promoting", &[secondary.clone(), starting.clone(), ("state", json!("paused"))]);
        // The role is not known yet, and the promotion is refused in a moment.
        is("starting", &[secondary.clone(), starting]);
        is("halted", &[secondary, ("state", json!("failed"))]);
    }

    #[test]
    fn a_promotion_of_a_primary_that_serves_has_ended() {
        let awaits = |changes: &[(&str, Value)]| shown(changes).is_between_roles();
        assert!(!awaits(&[]));
        assert!(awaits(&[("protection", json!("none"))]), "its role is being recorded");
        assert!(awaits(&[("role", json!("secondary"))]));
        assert!(awaits(&[("role", json!("secondary")), ("starting", json!(true)), ("state", json!("paused"))]));
    }

    /// While a state disk hung over it, it was shown as a copy; after a crash it would have been the primary.
    #[test]
    fn a_demotion_that_runs_is_no_copy() {
        let shown = |changes: &[(&str, Value)]| {
            let mut group = shown(changes);
            group.is_demoted_now();
            (condition(&group), role(&group).to_owned(), group.demoting)
        };
        let ending = ("ending", "primary".to_owned(), true);
        let (secondary, logging) = (("role", json!("secondary")), ("state", json!("logging")));
        let closed = ("protection", json!("none"));
        assert_eq!(shown(&[secondary.clone(), logging.clone(), closed.clone()]), ending, "it is being recorded");
        assert_eq!(shown(std::slice::from_ref(&closed)), ending, "what is queued is sent");
        assert_eq!(shown(&[logging, closed]), ending, "there is no link");
        assert_eq!(shown(&[]), ("serving", "primary".to_owned(), false), "clients are waited for");
        assert_eq!(shown(&[secondary, ("state", json!("failed"))]).0, "halted");
    }

    /// Another group's device, one for two volumes, or one whose requests fail passed for enough.
    #[test]
    fn devices_are_attached_where_each_volume_has_a_good_one() {
        let device = |group: &str, volume: &str, state: &str| {
            let record = json!({
                "group": group, "volume": volume, "control": "/s", "term": "t1", "device": "/dev/nbd0", "link": "/dev/farshore/x",
                "size_bytes": 1, "state": state, "since_unix_ms": 1, "why": "it is away", "helper_pid": 1, "attached_unix_ms": 1,
                "wait_s": 60, "index": 0
            });
            serde_json::from_value::<AttachedDevice>(record).expect("a record")
        };
        let (a, group) = (device("db", "a", "connected"), shown(&[]));
        assert_eq!((devices(&group, None), devices(&group, Some(&[]))), ("unknown", "none"));
        assert_eq!(devices(&group, Some(&[device("db2", "a", "connected")])), "none");
        assert_eq!(devices(&group, Some(std::slice::from_ref(&a))), "broken");
        assert_eq!(devices(&group, Some(&[a.clone(), device("db2", "b", "connected")])), "broken");
        for (state, word) in [
            ("connected", "attached"),
            ("waiting", "attached"),
            ("failing", "broken"),
            ("ended", "broken"),
            ("no-helper", "broken"),
        ] {
            assert_eq!(devices(&group, Some(&[a.clone(), device("db", "b", state)])), word, "{state}");
        }
    }

    /// A secondary's role was shown of a primary whose record could not be read, and the other node was promoted by force beside it.
    #[test]
    fn a_role_that_is_not_read_is_none() {
        let is = |word: &str, changes: &[(&str, Value)]| {
            let group = shown(changes);
            assert_eq!(role(&group), word, "{changes:?}");
            let line = format!("\nfarshore_role='{word}'\n");
            assert!(super::group("alpha", &group).contains(&line), "{changes:?}");
        };
        let (secondary, starting) = (("role", json!("secondary")), ("starting", json!(true)));
        let blank = ("generation", json!("0-00000000"));
        is("primary", &[]);
        is("secondary", &[secondary.clone(), blank.clone()]);
        is("", &[secondary.clone(), blank.clone(), starting.clone()]);
        is("", &[secondary.clone(), starting.clone()]);
        for state in ["failed", "paused"] {
            let halted = [("state", json!(state)), starting.clone(), secondary.clone()];
            is("secondary", &halted);
            is("", &[&halted[..], std::slice::from_ref(&blank)].concat());
            is("", &[&halted[..], &[("generation", json!(""))][..]].concat());
            is("primary", &[("state", json!(state)), starting.clone(), ("generation", json!("1-0badcafe"))]);
        }
        is("", &[secondary, blank, ("state", json!("failed"))]);
    }

    /// What nobody was asked, or does not say, is an empty word.
    #[test]
    fn the_peer_is_shown_by_its_own_word() {
        let word = |group: GroupView, peer: &str| {
            let said = json!({"node": peer, "status": {"schema": "s", "node": peer, "version": "1", "uptime_s": 1.0, "groups": [group]}});
            let status = json!({"schema": "s", "node": "alpha", "version": "1", "uptime_s": 1.0, "groups": [], "peer_says": [said]});
            let status: NodeView = serde_json::from_value(status).expect("a status");
            let page = beside(&status, &shown(&[]), None);
            page.lines().filter_map(|line| line.strip_prefix("farshore_peer_")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(word(shown(&[]), "beta"), "role='primary' condition='serving' generation='3.cafe' term='t1'");
        let promoted = shown(&[("role", json!("secondary")), ("promoting", json!(true))]);
        assert_eq!(word(promoted, "beta"), "role='secondary' condition='promoting' generation='3.cafe' term='t1'");
        let starts = shown(&[("starting", json!(true))]);
        assert_eq!(word(starts, "beta"), "role='' condition='starting' generation='3.cafe' term='t1'");
        let nothing = "role='' condition='' generation='' term=''";
        assert_eq!(word(shown(&[("name", json!("db2"))]), "beta"), nothing);
        assert_eq!(word(shown(&[]), "gamma"), nothing);
    }

    /// A name or a sentence is never a command, whatever it holds.
    #[test]
    fn what_is_quoted_is_one_word_of_a_shell() {
        for text in ["", "it's", "$(touch x); `id` \"\\", "a 'b' c", "-n", "täglich"] {
            let script = format!("farshore_reason={}\nprintf %s \"$farshore_reason\"", quoted(text));
            let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
            assert_eq!(String::from_utf8_lossy(&output.stdout), text);
        }
        assert_eq!(quoted("two\nlines"), "'two lines'");
    }
}
