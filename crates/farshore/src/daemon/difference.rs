//! Two nodes' definitions of all groups, group by group, where they differ.

use std::collections::BTreeMap;

use host::driver::DefinitionsDifference;
use settings::diff_definitions;

/// Groups shown at most: a text comes from a peer, and whoever has more differences has another configuration.
const GROUPS_SHOWN_MAX: usize = 8;

/// Two texts of definitions side by side, ours first; only what differs.
pub(super) fn compare(ours: &str, theirs: &str) -> DefinitionsDifference {
    let (ours, theirs) = (by_name(ours), by_name(theirs));
    let names: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let side = |texts: &BTreeMap<String, String>, name| texts.get(name).cloned().unwrap_or_default();
    let pairs = names.into_iter().map(|name| (name, side(&ours, name), side(&theirs, name)));
    let different: Vec<_> = pairs.filter(|(_, ours, theirs)| ours != theirs).collect();
    let shown = different.iter().take(GROUPS_SHOWN_MAX).map(|(_, ours, theirs)| diff_definitions(ours, theirs));
    let is_ours = different.iter().filter(|(_, ours, _)| !ours.is_empty());
    let groups = is_ours.filter_map(|(line, ..)| line.strip_prefix("group ")).map(str::to_owned).collect();
    let mut text: String = shown.collect();
    if different.len() > GROUPS_SHOWN_MAX {
        text.push_str(&format!("... and {} more groups\n", different.len() - GROUPS_SHOWN_MAX));
    }
    DefinitionsDifference { text, groups }
}

/// Cuts the text at its heads; each definition names its group in the line after.
fn by_name(text: &str) -> BTreeMap<String, String> {
    let mut groups = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        // A head at the very start is this group's own.
        let next = rest.match_indices("\nfarshore-group/").map(|(at, _)| at + 1).find(|at| *at > 1);
        let (group, behind) = rest.split_at(next.unwrap_or(rest.len()));
        let name = group.lines().nth(1).unwrap_or_default();
        groups.insert(name.to_owned(), group.to_owned());
        rest = behind;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        let group = |name: &str, volumes: &str| format!("farshore-group/1\ngroup {name}\nprimary a\n{volumes}");
        let ours = group("a", "volume.0 x\n") + &group("b", "volume.0 y\n");
        let theirs = group("a", "volume.0 x\n") + &group("b", "volume.0 z\n") + &group("c", "");
        let text = compare(&ours, &theirs).text;
        assert!(text.contains("! volume.0"), "{text}");
        assert!(text.contains('y') && text.contains('z') && text.contains('c'), "{text}");
        assert!(!text.contains("x\n"), "{text}");
        assert_eq!(compare(&ours, &theirs).groups, ["b"]);
        let same = compare(&ours, &ours);
        assert!(same.text.is_empty() && same.groups.is_empty());
    }

    #[test]
    fn any_text_of_a_peer_is_survived() {
        for theirs in ["", "\n", "ä", "ä\nfarshore-group/", "farshore-group/1\n\nfarshore-group/1\n", "\n\n\n"] {
            compare("farshore-group/1\ngroup a\n", theirs);
        }
    }
}
