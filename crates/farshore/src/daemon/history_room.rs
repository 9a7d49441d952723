//! Whether what a sync overwrites fits into `history`: without room the group pauses, and before that somebody can still set it. And what the
//! delta of a sync over a fork needs, which is no matter of `history`.

use engine::identity::{Decision, DecisionReason, Role};
use engine::state::{Pause, State};
use engine::status::{GroupStatus, MeetingStatus};
use engine::undo::space_for_sync;
use settings::limits::{GIB, MIB};
use settings::{ConfiguredGroup, NodeName};
use units::exact::{show_size, size_text};

/// As `status` warns: before the full sync that the group waits for, and while a sync stands still. `is_full`: the sync under way is one.
pub(super) fn of_group(node: &NodeName, group: &ConfiguredGroup, now: &GroupStatus, is_full: bool) -> Option<String> {
    let stands_still = now.state == State::Paused(Pause::HistoryFull);
    if now.state == State::Paused(Pause::DeltaUnsaved) {
        let used_bytes = now.rollback_point.as_ref().map(|point| point.used_bytes);
        let secondary = if now.role == Role::Primary { group.peer_of(node)? } else { node };
        return Some(of_delta(group.name.as_str(), secondary.as_str(), used_bytes));
    }
    match now.role {
        Role::Primary if stands_still => {
            let differs_bytes = if is_full { volume_bytes(now) } else { now.peer.dirty_bytes };
            let (need, have) = (space_for_sync(differs_bytes, volume_bytes(now)), group.layout.history_bytes);
            // Whether the image is of a fork is the other node's word alone: what is printed is right for both.
            paused((group.name.as_str(), false), group.peer_of(node)?.as_str(), need, have).map(|warning| {
                format!(
                    "{warning}. Refused with 'delta-unsaved', it keeps what only that node has: '--discard' loses that"
                )
            })
        }
        Role::Primary if full_sync_wanted(now.state, now.meeting).is_some() => of_full_sync(node, group, now, true),
        Role::Secondary if stands_still => {
            let point = now.rollback_point.as_ref()?;
            let need = point.used_bytes.saturating_add(point.reserved_bytes);
            paused((group.name.as_str(), point.keeps_own), node.as_str(), need, point.limit_bytes)
        }
        _ => None,
    }
}

/// Of a full sync from this primary, as the group was before the order. What a secondary's file says is not known here; both nodes have
/// the same one, or should. `compares`: how much of it differs is not known before.
pub(super) fn of_full_sync(
    node: &NodeName,
    group: &ConfiguredGroup,
    now: &GroupStatus,
    compares: bool,
) -> Option<String> {
    let wanted = full_sync_wanted(now.state, now.meeting);
    if now.role != Role::Primary || wanted.is_some_and(has_no_image) {
        return None;
    }
    let is_of_fork = wanted.is_some_and(DecisionReason::is_of_two_histories);
    let (need, have) = (reserved_for_all(volume_bytes(now)), group.layout.history_bytes);
    ahead((group.name.as_str(), is_of_fork), group.peer_of(node)?.as_str(), (need, have), compares)
}

/// Why only a full sync makes the copy whole. While the group sends, what the peer said when it connected no longer counts.
fn full_sync_wanted(state: State, meeting: Option<MeetingStatus>) -> Option<DecisionReason> {
    match meeting?.decision {
        Decision::NeedsFullSync(why) if state == State::Logging => Some(why),
        _ => None,
    }
}

/// A copy that was never made, or is none any more, has no image to go back to: its first sync needs no room.
fn has_no_image(why: DecisionReason) -> bool {
    matches!(why, DecisionReason::NeverSynced | DecisionReason::CopyLost)
}

fn volume_bytes(now: &GroupStatus) -> u64 {
    now.volumes.iter().fold(0, |sum: u64, volume| sum.saturating_add(volume.size_bytes))
}

/// What the undo store reserves for a full sync.
fn reserved_for_all(bytes: u64) -> u64 {
    space_for_sync(bytes, bytes)
}

/// How the image before a sync is given up; `keeps_own`: with it what only that node has.
fn given_up((group, keeps_own): (&str, bool)) -> String {
    let discard = if keeps_own { " --discard', which loses what only that node has" } else { "'" };
    format!("'farshore mark list {group}', 'farshore mark drop {group} NAME{discard}")
}

fn ahead(group: (&str, bool), peer: &str, (need, have): (u64, u64), compares: bool) -> Option<String> {
    let (takes, when) = match compares {
        true => ("needs up to 9/8 of the volumes for that if all of them differ", "should that not be enough"),
        false => ("reserves 9/8 of the volumes for that", "before anything is overwritten"),
    };
    (need > have).then(|| {
        format!(
            "a full sync keeps the image that {peer} has until the snapshot under way has ended, and {takes}: history = \"{}\" or \
             more, where the configuration here says \"{}\"; with less the group pauses with 'history full' {when}: \
             raise history on both nodes and restart the daemon of {peer} first, or give that image up on {peer} when the group has \
             paused ({})",
            to_set(need),
            size_text(have),
            given_up(group)
        )
    })
}

fn paused(group: (&str, bool), secondary: &str, need: u64, have: u64) -> Option<String> {
    (need > have).then(|| {
        format!(
            "the sync needs history = \"{}\" or more and has \"{}\": raise history on both nodes and restart the daemon of {secondary}, or \
             give the image before the sync up on {secondary} ({})",
            to_set(need),
            size_text(have),
            given_up(group)
        )
    })
}

/// What the delta of a sync takes that is written to its end. `used_bytes`: what the undo store holds, where that is known.
fn of_delta(group: &str, secondary: &str, used_bytes: Option<u64>) -> String {
    let room = used_bytes
        .map_or_else(|| "as much again as the sync overwrote".to_owned(), |used| format!("up to {}", show_size(used)));
    format!(
        "the sync waits for its delta alone: {secondary} saves what it overwrote of its own history as the file 'delta', which takes {room} in the \
         state directory there, beside what 'history' may take ('farshore status {group}' there says what is in the way); to give up what only \
         {secondary} had, {} there",
        given_up((group, true))
    )
}

/// In the largest unit in which a person would write it, and never less.
fn to_set(bytes: u64) -> String {
    if bytes > GIB { format!("{}GiB", bytes.div_ceil(GIB)) } else { format!("{}MiB", bytes.div_ceil(MIB)) }
}

#[cfg(test)]
mod tests {
    use engine::Generation;

    use super::*;

    #[test]
    fn a_full_sync_needs_nine_eighths_of_the_volumes() {
        for (volumes, to_set) in [(1, "1MiB"), (64 * MIB, "72MiB"), (14 * GIB, "16GiB"), (1024 * GIB, "1152GiB")] {
            let need = reserved_for_all(volumes);
            let warning = ahead(("db", false), "beta", (need, need - 1), false).expect("a byte is missing");
            assert!(warning.contains(&format!("history = \"{to_set}\" or more")), "{volumes}: {warning}");
            assert_eq!(
                (ahead(("db", false), "beta", (need, need), true), paused(("db", false), "beta", need, need)),
                (None, None)
            );
        }
        let warning = paused(("db", false), "beta", reserved_for_all(1024 * GIB), 16 * GIB).expect("it does not fit");
        assert!(warning.starts_with("the sync needs history = \"1152GiB\" or more and has \"16GiB\""), "{warning}");
    }

    /// More of `history` lets no sync go on that waits for its delta.
    #[test]
    fn a_sync_that_waits_for_its_delta_is_told_what_that_takes() {
        for (used_bytes, room) in [(None, "as much again"), (Some(3 << 30), "3 GiB")] {
            let warning = of_delta("db", "beta", used_bytes);
            assert!(warning.contains(room) && warning.contains("state directory"), "{warning}");
            assert!(warning.contains("--discard") && !warning.contains("raise history"), "{warning}");
        }
    }

    /// What the engine decided is asked for, not the words that it says of it.
    #[test]
    fn a_full_sync_that_is_waited_for_is_known_by_the_engines_decision() {
        let blank = Generation::default();
        let of = |state, decision| {
            let meeting = MeetingStatus { decision, peer_dirty_bytes: 0, peer_failed: false };
            full_sync_wanted(state, Some(meeting)).map(has_no_image)
        };
        for (why, none) in [
            (DecisionReason::NeverSynced, true),
            (DecisionReason::CopyLost, true),
            (DecisionReason::Unrelated { ours: blank, theirs: blank }, false),
            (DecisionReason::PeerSawOurFuture, false),
        ] {
            assert_eq!(of(State::Logging, Decision::NeedsFullSync(why)), Some(none), "{why}");
            // The first full sync goes on, and its peer has an image when it has ended.
            assert_eq!(of(State::Replicating, Decision::NeedsFullSync(why)), None, "{why}");
        }
        let apart = DecisionReason::TwoPrimaries { ours: blank, theirs: blank };
        for decision in [Decision::Refuse(apart), Decision::UpdateSync, Decision::Idle] {
            assert_eq!(of(State::Logging, decision), None);
        }
        assert_eq!(full_sync_wanted(State::Logging, None), None, "the peer is not there");
    }
}
