//! A group as lines that a shell can evaluate: what an agent of a cluster manager asks, without a reader of JSON.
//!
//! Each line is `farshore_KEY=VALUE`. Names and sentences stand in single quotes, whatever they hold; all else is a word
//! or a number. Keys and words are only added, as in `--json`.

use crate::api::{GroupState, GroupView, LinkState, Role};

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
        ("role", quoted(group.role.as_str())),
        ("starting", word(group.starting)),
        ("mode", quoted(&group.mode)),
        ("state", quoted(group.state.as_str())),
        ("protection", quoted(group.protection.as_str())),
        ("generation", quoted(&group.generation)),
        ("promotable", word(group.promotable.is_some())),
        ("in_step", word(is_in_step(group))),
        ("peer", quoted(peer.map_or("", |peer| &peer.node))),
        ("link", quoted(peer.map_or("", |peer| peer.link.as_str()))),
        ("lag_bytes", number(peer.and_then(|peer| peer.lag_bytes))),
        ("dirty_bytes", dirty.to_string()),
        ("clients", clients.to_string()),
        ("broken_volumes", broken.to_string()),
        ("volumes", group.volumes.len().to_string()),
        ("reason", quoted(group.reason.as_deref().unwrap_or(""))),
    ];
    lines.iter().map(|(key, value)| format!("farshore_{key}={value}\n")).collect()
}

/// The nodes are connected, and the mode's promise holds: the copy lacks no more than the mode allows.
fn is_in_step(group: &GroupView) -> bool {
    let is_linked =
        group.peers.first().is_some_and(|peer| matches!(peer.link, LinkState::Connected | LinkState::Congested));
    let has_image = group.role == Role::Primary || group.promotable.is_some();
    !group.starting && is_linked && has_image && group.state == GroupState::Replicating
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
    use std::process::Command;

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
