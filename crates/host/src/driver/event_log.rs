//! What happens, logged for people: one line each, louder the more it matters.

use engine::Event;
use engine::VolumeId;
use engine::identity::Decision;
use engine::state::State;

use super::volume::LocalVolume;
use crate::engine_text::with_names;
use units::size::show_size;

/// The decision that was logged last, as long as nothing else has happened.
#[derive(Default)]
pub(super) struct LastDecision(Option<Decision>);

impl LastDecision {
    /// Whether the event says anything new: a peer that works off its journal greets again and again, and each time the same follows.
    pub fn is_news(&mut self, event: &Event) -> bool {
        let decision = match event {
            Event::Decided { decision, .. } => Some(*decision),
            _ => None,
        };
        let is_news = decision.is_none() || decision != self.0;
        self.0 = decision;
        is_news
    }
}

/// Logs an event of a group.
pub(super) fn log(group: &str, volumes: &[LocalVolume], event: &Event) {
    let named = |text: &str| with_names(text, group, volumes.iter().map(|volume| volume.export()));
    match event {
        Event::State { from, to, why } => log_state(group, *from, *to, &named(why)),
        Event::Ready { role, incarnation, generation, clean } => {
            let how = match (incarnation.0, clean) {
                (1, _) => "its first start",
                (_, true) => "nothing to compare with the peer",
                (_, false) => "what was being written when this node stopped is compared with the peer",
            };
            let role = role.word();
            tracing::info!("group {group}: {role}, generation {generation}, incarnation {} ({how})", incarnation.0);
        }
        Event::HotExtents { extents, extent_bytes } => tracing::info!(
            "group {group}: {extents} extents of {} were being written when this node stopped; they will be compared with \
             the peer",
            show_size(*extent_bytes)
        ),
        Event::Pulled { bytes } => {
            tracing::warn!(
                "group {group}: {} that this node lost with its power were fetched back from the peer",
                show_size(*bytes)
            );
        }
        Event::WritesAlone { generation } => {
            tracing::info!("group {group}: writes go on without the peer, as generation {generation}");
        }
        Event::Decided { decision, .. } => log_decision(group, decision, named),
        Event::SyncBegan { .. } | Event::SyncEnded { .. } | Event::SnapshotEnded { .. } => log_sync(group, event),
        Event::QueueDropped { items, bytes, why } => {
            let size = show_size(*bytes);
            tracing::warn!("group {group}: {items} queued writes ({size}) became dirty regions: {}", named(why));
        }
        Event::LocalWriteFailed { volume, offset } => {
            let name = name_of(volumes, *volume);
            tracing::error!("group {group}: a write to volume {name} at byte {offset} failed; its region stays dirty");
        }
        Event::WritersHeldUp { .. } | Event::WritersGoOn => log_held_up(group, event),
        Event::Replayed { to, records } if *records > 0 => {
            tracing::info!(
                "group {group}: {records} records were replayed from the journal, up to sequence {}",
                to.seq.0
            );
        }
        Event::Promoted { generation } => {
            tracing::warn!("group {group}: this node was promoted; its history is generation {generation} now");
        }
        Event::RollbackPoint { name, at } => {
            tracing::info!("group {group}: {name} keeps the image at sequence {} until the sync has ended", at.seq.0);
        }
        Event::RolledBack { to } => {
            tracing::warn!("group {group}: the volumes are back at sequence {}, before the sync", to.seq.0);
        }
        Event::Demoted => tracing::warn!("group {group}: this node was demoted to secondary"),
        Event::Note(text) => tracing::info!("group {group}: {}", named(text)),
        Event::Replayed { .. } | Event::Admitted { .. } | Event::AppliedWrite { .. } => {
            tracing::trace!("group {group}: {event:?}");
        }
    }
}

fn log_sync(group: &str, event: &Event) {
    match event {
        Event::SyncBegan { full, compare, dirty_bytes } => {
            let what = if *full { "full sync" } else { "update sync" };
            let how = if *compare { ", by comparing hashes" } else { "" };
            tracing::info!("group {group}: {what} of {} began{how}", show_size(*dirty_bytes));
        }
        Event::SyncEnded { sent_bytes } => {
            tracing::info!("group {group}: the sync has sent its last region, {} in all", show_size(*sent_bytes));
        }
        Event::SnapshotEnded { at, .. } => {
            tracing::info!("group {group}: the secondary is consistent at sequence {}", at.seq.0);
        }
        _ => unreachable!("an event of a sync"),
    }
}

fn log_held_up(group: &str, event: &Event) {
    let Event::WritersHeldUp { acts_in } = event else {
        return tracing::info!("group {group}: writers are not held up any more");
    };
    let then = match acts_in {
        Some(left) => format!("if that lasts for {:.1} s more, the group goes to logging", left.as_secs_f64()),
        None => "under strict they go on waiting".to_owned(),
    };
    tracing::warn!(
        "group {group}: writers are held up, the queue is full: more is written than the link carries; {then}"
    );
}

fn log_state(group: &str, from: State, to: State, why: &str) {
    let colon = if why.is_empty() { "" } else { ": " };
    let edge = format!("group {group}: {} -> {}{colon}{why}", from.word(), to.word());
    match to {
        State::Failed(broken) if !edge.ends_with(broken.words()) => tracing::error!("{edge} ({})", broken.words()),
        State::Failed(_) => tracing::error!("{edge}"),
        State::Holding | State::Paused(_) => tracing::warn!("{edge}"),
        State::Logging if from != State::Logging => tracing::warn!("{edge}"),
        _ => tracing::info!("{edge}"),
    }
}

fn log_decision(group: &str, decision: &Decision, named: impl Fn(&str) -> String) {
    match decision {
        Decision::Continue(seq) => tracing::info!("group {group}: the peer has everything up to {}: going on", seq.0),
        Decision::UpdateSync => tracing::info!("group {group}: the peer lacks the dirty regions only"),
        Decision::NeedsFullSync(why) => tracing::warn!("group {group}: {}", named(&why.to_string())),
        Decision::Refuse(why) => tracing::error!("group {group}: nothing is sent: {}", named(&why.to_string())),
        Decision::Idle => tracing::warn!("group {group}: both nodes are secondary; promote one"),
    }
}

fn name_of(volumes: &[LocalVolume], id: VolumeId) -> &str {
    volumes.get(usize::from(id.0)).map_or("?", LocalVolume::export)
}

#[cfg(test)]
mod tests {
    use engine::identity::DecisionRow;

    use super::*;

    #[test]
    fn a_decision_is_logged_once_until_something_else_happens() {
        let decided = |decision| Event::Decided { row: DecisionRow::LoneStretch, decision };
        let mut last = LastDecision::default();
        let news = [
            decided(Decision::UpdateSync),
            decided(Decision::UpdateSync),
            decided(Decision::Idle),
            decided(Decision::UpdateSync),
            Event::Demoted,
            Event::Demoted,
            decided(Decision::UpdateSync),
        ]
        .map(|event| last.is_news(&event));
        assert_eq!(news, [true, false, true, true, true, true, true]);
    }
}
