//! What writers are promised is set on each node for itself: where the two differ both say so, and which has what.

use engine::identity::Role;
use engine::state::Mode;
use engine::status::GroupStatus;
use settings::{GroupKey, GroupName, Keyed, LiveSettings};
use units::exact::show_seconds;

/// Those that say what an acknowledgement means. The others may well differ: nodes have more memory or less.
const PROMISES: [&str; 6] = ["mode", "policy", "degrade", "hold", "fallback", "wait_limit"];

/// Warnings of a group, as one of its nodes shows it beside its peer.
pub(super) fn of_group(
    group: &GroupName,
    (node, peer): (&str, &str),
    now: &GroupStatus,
    settings: &LiveSettings,
) -> Vec<String> {
    let served = now.served_before_in.map(|before| served_otherwise(group, before, settings.mode));
    let clock = now.clock_behind.map(|behind| {
        let primary = if now.role == Role::Primary { node } else { peer };
        format!(
            "the wall clock of {primary} stands {} behind the times of the last writes: it was set back, or they were stamped by another node; \
             times of writes and of the copy stand still until it is past them, numbers go on",
            show_seconds(behind.as_secs_f64())
        )
    });
    let differ = now.peer.settings.map(|reported| LiveSettings::of_peer(&reported)).and_then(|reported| {
        let (primary, secondary) = match now.role {
            Role::Primary => ((node, settings), (peer, &reported)),
            Role::Secondary => ((peer, &reported), (node, settings)),
        };
        differ(group, primary, secondary)
    });
    let theirs = now.peer.settings.map(|reported| reported.after_forced_failover);
    let failover = theirs.filter(|theirs| *theirs != settings.after_forced_failover).map(|theirs| {
        let ours = settings.after_forced_failover.word();
        format!(
            "'after_forced_failover' counts where both nodes have the same: {node} has {ours}, {peer} has {}; until then a fork asks its operator",
            theirs.word()
        )
    });
    let ladder = settings.check_ladder().err().map(|(key, why)| format!("'{key}' has no effect: {why}"));
    served.into_iter().chain(ladder).chain(differ).chain(failover).chain(clock).collect()
}

fn served_otherwise(group: &GroupName, before: Mode, now: Mode) -> String {
    let (before, now) = (before.word(), now.word());
    format!(
        "this node was promoted and serves in mode {now}, as it is set here; the primary before it served in {before}: 'farshore set {group} \
         mode={before}' here goes on with that"
    )
}

fn differ(group: &GroupName, primary: (&str, &LiveSettings), secondary: (&str, &LiveSettings)) -> Option<String> {
    let changes = changes(&PROMISES.map(GroupKey::named), primary.1, secondary.1);
    if changes.is_empty() {
        return None;
    }
    let (names, (primary, secondary)) = (list(&changes, |change| change.1.clone()), (primary.0, secondary.0));
    let theirs = list(&changes, |change| change.2.clone());
    let set = changes.iter().map(|(key, ours, _)| format!("'{key}={ours}'")).collect::<Vec<_>>().join(" ");
    Some(format!(
        "each node serves by its own settings: {primary} has {names}, {secondary} {theirs}, which counts once it is promoted; to have the same: \
         farshore set {group} {set} on {secondary}"
    ))
}

/// Keys of these that count on both nodes, and differ.
fn changes(keys: &[GroupKey], ours: &LiveSettings, theirs: &LiveSettings) -> Vec<(GroupKey, String, String)> {
    let acts = |key: &&GroupKey| [ours, theirs].iter().all(|settings| settings.acting().any(|acting| acting == **key));
    let both = keys.iter().filter(acts).map(|key| (*key, ours.text(*key), theirs.text(*key)));
    both.filter(|(_, ours, theirs)| ours != theirs).collect()
}

fn list(changes: &[(GroupKey, String, String)], value: impl Fn(&(GroupKey, String, String)) -> String) -> String {
    changes.iter().map(|change| format!("{} = {}", change.0, value(change))).collect::<Vec<_>>().join(", ")
}

/// What `set` says of the peer: it changed this node alone.
pub(super) fn of_set(
    keys: &[GroupKey],
    here: &LiveSettings,
    (peer, reported): (&str, Option<engine::Settings>),
) -> String {
    let Some(reported) = reported.map(|reported| LiveSettings::of_peer(&reported)) else {
        return format!("what {peer} is set to is not known, set it there too");
    };
    let changes = changes(keys, here, &reported);
    if changes.is_empty() {
        return format!("{peer} has the same");
    }
    format!("{peer} keeps {}, set it there too", list(&changes, |change| change.2.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_reported_with_what_to_type() {
        let group = GroupName::parse("db").expect("a name");
        let ours = LiveSettings { mode: Mode::Sync, ..LiveSettings::default() };
        let theirs = LiveSettings { queue_items: 77, ..LiveSettings::default() };
        let reported = differ(&group, ("alpha", &ours), ("beta", &theirs)).expect("they differ");
        for part in ["alpha has mode = sync, beta mode = async", "farshore set db 'mode=sync' on beta"] {
            assert!(reported.contains(part), "{reported}");
        }
        assert_eq!(differ(&group, ("alpha", &ours), ("beta", &LiveSettings { queue_items: 77, ..ours.clone() })), None);
    }

    #[test]
    fn set_says_what_the_peer_has() {
        let (here, there) = (LiveSettings { mode: Mode::Sync, ..LiveSettings::default() }, LiveSettings::default());
        let said = |reported| of_set(&["mode", "hold"].map(GroupKey::named), &here, ("beta", reported));
        assert_eq!(said(Some(there.for_engine())), "beta keeps mode = async, set it there too");
        assert_eq!(said(Some(here.for_engine())), "beta has the same");
        assert!(said(None).contains("not known"));
    }
}
