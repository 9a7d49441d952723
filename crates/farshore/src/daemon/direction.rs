//! Which way a group replicates, by what is known now: the role of this node, and that which the peer told in the session that is up. Which
//! role a peer had before its link was lost is no word about now: it may have been promoted since.

use engine::identity::Role;
use engine::state::State;
use engine::status::{GroupStatus, LinkStatus};

use crate::api::Flow;

/// Who would send to whom, and whether that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// This node to its peer.
    Out { flows: bool },
    /// The peer to this node.
    In { flows: bool },
    /// Both nodes are primary.
    Fork,
    /// A role is not known, or nobody is primary.
    Unknown,
}

impl Direction {
    pub fn of(now: &GroupStatus) -> Direction {
        let is_up = matches!(now.peer.link, LinkStatus::Connected | LinkStatus::Congested);
        let ours = (!now.starting).then_some(now.role);
        Direction::between(ours, now.peer.role.filter(|_| is_up), now.state)
    }

    /// `ours`: `None` before the record was read. `theirs`: `None` where the peer has not said it in this session, or there is none.
    fn between(ours: Option<Role>, theirs: Option<Role>, state: State) -> Direction {
        let flows = matches!(state, State::Syncing | State::CatchingUp | State::Replicating);
        match (ours, theirs) {
            (Some(Role::Primary), Some(Role::Primary)) => Direction::Fork,
            (Some(Role::Primary), Some(Role::Secondary)) => Direction::Out { flows },
            // It is what this node would do; whom it would meet is not known.
            (Some(Role::Primary), None) => Direction::Out { flows: false },
            (Some(Role::Secondary), Some(Role::Primary)) => Direction::In { flows },
            (Some(Role::Secondary), Some(Role::Secondary) | None) | (None, _) => Direction::Unknown,
        }
    }

    /// Where content goes, as a sentence for whoever has started the group anew.
    pub fn words(self, is_primary: bool, peer: &str) -> String {
        match self {
            Direction::Fork => {
                "both nodes are primary, so nothing is sent: 'farshore resolve GROUP --keep NODE'".to_owned()
            }
            Direction::In { .. } => format!("the content of {peer} comes here"),
            _ if is_primary => format!("what is here counts, and goes to {peer}"),
            Direction::Out { .. } | Direction::Unknown => {
                format!("the content of {peer} comes here once that is the primary")
            }
        }
    }

    /// As the status has it: the word, from where, and to where.
    pub fn shown(self, here: &str, peer: &str) -> (Flow, Option<String>, Option<String>) {
        let word = |flows| if flows { Flow::Flowing } else { Flow::Stopped };
        let (here, peer) = (Some(here.to_owned()), Some(peer.to_owned()));
        match self {
            Direction::Out { flows } => (word(flows), here, peer),
            Direction::In { flows } => (word(flows), peer, here),
            Direction::Fork => (Flow::Fork, None, None),
            Direction::Unknown => (Flow::Unknown, None, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::state::{Broken, Pause};

    use super::*;

    const PRIMARY: Option<Role> = Some(Role::Primary);
    const SECONDARY: Option<Role> = Some(Role::Secondary);

    #[test]
    fn roles_that_are_known_now_decide() {
        use Direction::{Fork, In, Out, Unknown};
        for (ours, theirs, direction) in [
            (PRIMARY, SECONDARY, Out { flows: true }),
            // A state may be told a moment longer than its session.
            (PRIMARY, None, Out { flows: false }),
            (PRIMARY, PRIMARY, Fork),
            (SECONDARY, PRIMARY, In { flows: true }),
            // Its primary may have been demoted since, or this node be alone.
            (SECONDARY, None, Unknown),
            (SECONDARY, SECONDARY, Unknown),
            (None, PRIMARY, Unknown),
            (None, SECONDARY, Unknown),
            (None, None, Unknown),
        ] {
            assert_eq!(Direction::between(ours, theirs, State::Replicating), direction, "{ours:?}, {theirs:?}");
        }
    }

    #[test]
    fn what_does_not_travel_does_not_flow() {
        for (state, flows) in [
            (State::Replicating, true),
            (State::CatchingUp, true),
            (State::Syncing, true),
            (State::Logging, false),
            (State::Queuing, false),
            (State::Holding, false),
            (State::Paused(Pause::HistoryFull), false),
            (State::Failed(Broken::Superblock), false),
        ] {
            assert_eq!(Direction::between(PRIMARY, SECONDARY, state), Direction::Out { flows }, "{state}");
            assert_eq!(Direction::between(SECONDARY, PRIMARY, state), Direction::In { flows }, "{state}");
        }
    }

    #[test]
    fn whoever_resets_a_group_hears_where_content_goes() {
        use Direction::{Fork, In, Out, Unknown};
        for (direction, is_primary, words) in [
            (Out { flows: false }, true, "what is here counts, and goes to beta"),
            (Unknown, true, "what is here counts, and goes to beta"),
            (In { flows: true }, false, "the content of beta comes here"),
            (Unknown, false, "the content of beta comes here once that is the primary"),
        ] {
            assert_eq!(direction.words(is_primary, "beta"), words);
        }
        assert!(Fork.words(true, "beta").contains("resolve GROUP --keep"));
    }

    #[test]
    fn the_ends_are_named_where_they_are_known() {
        let shown = |direction: Direction| {
            let (flow, from, to) = direction.shown("alpha", "beta");
            (flow, [from, to].map(|node| node.unwrap_or_default()).join(" "))
        };
        assert_eq!(shown(Direction::Out { flows: true }), (Flow::Flowing, "alpha beta".to_owned()));
        assert_eq!(shown(Direction::In { flows: false }), (Flow::Stopped, "beta alpha".to_owned()));
        assert_eq!(shown(Direction::Fork), (Flow::Fork, " ".to_owned()));
        assert_eq!(shown(Direction::Unknown), (Flow::Unknown, " ".to_owned()));
    }
}
