//! What happens, logged for people: one line each, louder the more it matters.

use engine::Event;
use engine::VolumeId;
use engine::identity::Decision;
use engine::state::State;
use engine::status::SavedDelta;

use tracing::Level;

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

/// What the log says of an event.
pub(super) struct EventLine {
    level: Level,
    /// Without the group's name.
    pub text: String,
}

impl EventLine {
    pub fn log(&self, group: &str) {
        let text = &self.text;
        match self.level {
            Level::ERROR => tracing::error!("group {group}: {text}"),
            Level::WARN => tracing::warn!("group {group}: {text}"),
            _ => tracing::info!("group {group}: {text}"),
        }
    }
}

fn info(text: String) -> EventLine {
    EventLine { level: Level::INFO, text }
}

fn warn(text: String) -> EventLine {
    EventLine { level: Level::WARN, text }
}

fn error(text: String) -> EventLine {
    EventLine { level: Level::ERROR, text }
}

/// What there is to be said of an event of a group; of single writes nothing is.
pub(super) fn line(group: &str, volumes: &[LocalVolume], event: &Event) -> Option<EventLine> {
    let named = |text: &str| with_names(text, group, volumes.iter().map(|volume| volume.export()));
    Some(match event {
        Event::State { from, to, why } => of_state(*from, *to, &named(why)),
        Event::Ready { role, incarnation, generation, clean } => {
            let how = match (incarnation.0, clean) {
                (1, _) => "its first start",
                (_, true) => "nothing to compare with the peer",
                (_, false) => "what was being written when this node stopped is compared with the peer",
            };
            info(format!("{}, generation {generation}, incarnation {} ({how})", role.word(), incarnation.0))
        }
        Event::HotExtents { extents, extent_bytes } => info(format!(
            "{extents} extents of {} were being written when this node stopped: what they hold may differ from the peer",
            show_size(*extent_bytes)
        )),
        Event::Pulled { bytes } => {
            warn(format!("{} that this node lost with its power were fetched back from the peer", show_size(*bytes)))
        }
        Event::QueuedAlone { why } => warn(format!("writes are answered without the peer, and follow in order: {why}")),
        Event::QueueLog { .. } | Event::RunGoesOn { .. } => of_queue_log(event),
        Event::SteppedDown { from, to, why } => {
            warn(format!("the line is slow, {} counts in place of {}: {why}", to.word(), from.word()))
        }
        Event::SteppedUp { from, to, why } => {
            info(format!("{} counts again in place of {}: {why}", to.word(), from.word()))
        }
        Event::WritesAlone { generation } => info(format!("writes go on without the peer, as generation {generation}")),
        Event::Decided { decision, .. } => of_decision(decision, named),
        Event::SyncBegan { .. } | Event::SyncEnded { .. } | Event::SnapshotEnded { .. } => of_sync(event),
        Event::VerifyBegan { .. } | Event::VerifyDiffers { .. } | Event::VerifyEnded { .. } => {
            of_verify(volumes, event)
        }
        Event::QueueDropped { items, bytes, why } => {
            let size = show_size(*bytes);
            warn(format!("{items} queued writes ({size}) became dirty regions: {}", named(why)))
        }
        Event::LocalWriteFailed { volume, offset } => {
            let name = name_of(volumes, *volume);
            error(format!("a write to volume {name} at byte {offset} failed; its region stays dirty"))
        }
        Event::WritersHeldUp { .. } | Event::WritersGoOn => of_held_up(event),
        Event::Replayed { to, records } if *records > 0 => {
            info(format!("{records} records were replayed from the journal, up to sequence {}", to.seq.0))
        }
        Event::Promoted { generation } => {
            warn(format!("this node was promoted; its history is generation {generation} now"))
        }
        Event::RollbackPoint { name, at } => {
            info(format!("{name} keeps the image at sequence {} until the sync has ended", at.seq.0))
        }
        Event::RolledBack { to } => warn(format!("the volumes are back at sequence {}, before the sync", to.seq.0)),
        Event::HandedOver => warn("the peer handed over to this node, which is to be primary".to_owned()),
        Event::DeltaSaved(saved) => of_delta(saved),
        Event::ViewOpened { view, at } => info(format!("view {} is open, of sequence {}", view.0, at.seq.0)),
        Event::ViewLost { view, why } => warn(format!("view {} is lost: {why}", view.0)),
        Event::ForkKept { differing_bytes } => warn(format!(
            "this node's content was chosen over what its peer wrote since they parted: {differing_bytes} bytes differ at most"
        )),
        Event::Marked { .. } | Event::MarkThere { .. } | Event::MarkLost { .. } => of_mark(event),
        Event::Demoted => warn("this node was demoted to secondary".to_owned()),
        Event::SetAside { .. } | Event::Rejoins { .. } | Event::PromotesWithout { .. } => of_aside(volumes, event),
        Event::Note(text) => info(named(text)),
        Event::Replayed { .. } | Event::Admitted { .. } | Event::AppliedWrite { .. } => {
            tracing::trace!("group {group}: {event:?}");
            return None;
        }
    })
}

fn of_queue_log(event: &Event) -> EventLine {
    info(match event {
        Event::QueueLog { is_live: true } => "the queue stands in its log: a start goes on in order".to_owned(),
        Event::QueueLog { .. } => "the log of the queue takes no more for now".to_owned(),
        Event::RunGoesOn { at } => {
            format!("goes on in order from the log of the queue, behind sequence {}: nothing is compared", at.seq.0)
        }
        _ => unreachable!("an event of the log"),
    })
}

fn of_sync(event: &Event) -> EventLine {
    info(match event {
        Event::SyncBegan { full, compare, dirty_bytes } => {
            let what = if *full { "full sync" } else { "update sync" };
            let how = if *compare { ", by comparing hashes" } else { "" };
            format!("{what} of {} began{how}", show_size(*dirty_bytes))
        }
        Event::SyncEnded { sent_bytes } => {
            format!("the sync has sent its last region, {} in all", show_size(*sent_bytes))
        }
        Event::SnapshotEnded { at, .. } => format!("the secondary is consistent at sequence {}", at.seq.0),
        _ => unreachable!("an event of a sync"),
    })
}

fn of_verify(volumes: &[LocalVolume], event: &Event) -> EventLine {
    match event {
        Event::VerifyBegan { sample_percent: 100, repair, by_timer } => {
            let by_itself = if *by_timer { " by itself, as scrub.every says" } else { "" };
            info(format!("a verify began{by_itself}{}", if *repair { ", and repairs what differs" } else { "" }))
        }
        Event::VerifyBegan { sample_percent, .. } => {
            info(format!("a verify of {sample_percent} % of the blocks began"))
        }
        Event::VerifyDiffers { volume, offset, length, unreadable } => {
            let (name, size) = (name_of(volumes, *volume), show_size(*length));
            let why = if *unreadable { "cannot be read by the peer" } else { "differ from the peer's" };
            error(format!("volume {name}: {size} at byte {offset} {why}"))
        }
        Event::VerifyEnded { sample_percent, totals } => {
            let (compared, left) = (show_size(totals.compared_bytes), totals.left_bytes());
            let sample = match sample_percent {
                100 => String::new(),
                percent => format!(", a sample of {percent} %, and no proof of the rest"),
            };
            let repaired = match totals.repaired_bytes {
                0 => String::new(),
                bytes => format!(", {} were repaired", show_size(bytes)),
            };
            let unread = match totals.unread_bytes {
                0 => String::new(),
                bytes => format!(", {} could not be read here and were not compared", show_size(bytes)),
            };
            let text =
                format!("the verify ended: {compared} compared{sample}, {} differ{repaired}{unread}", show_size(left));
            if left > 0 || totals.unread_bytes > 0 { warn(text) } else { info(text) }
        }
        _ => unreachable!("an event of a verify"),
    }
}

fn of_mark(event: &Event) -> EventLine {
    match event {
        Event::Marked { name, at, alone: false, .. } => info(format!("mark {name} is set at sequence {}", at.seq.0)),
        Event::Marked { name, at, .. } => {
            info(format!("mark {name} is set at sequence {}, here alone: the peer is sent nothing in order", at.seq.0))
        }
        Event::MarkThere { name, at, .. } => info(format!("the peer has mark {name}, at sequence {}", at.seq.0)),
        Event::MarkLost { name, .. } => warn(format!("mark {name} is not at the peer, and will not come there")),
        _ => unreachable!("an event of a mark"),
    }
}

fn of_aside(volumes: &[LocalVolume], event: &Event) -> EventLine {
    match event {
        Event::SetAside { volume } => {
            let name = name_of(volumes, *volume);
            warn(format!("volume {name} is set aside: the group's order is without it from here on"))
        }
        Event::Rejoins { volume } => info(format!(
            "volume {} rejoins the group's order, with the sync that begins next",
            name_of(volumes, *volume)
        )),
        Event::PromotesWithout { volumes: lacking } => {
            let names: Vec<_> = lacking.iter().map(|volume| name_of(volumes, volume)).collect();
            warn(format!("this node is promoted without volume {}: what stands in it here is older", names.join(", ")))
        }
        _ => unreachable!("an event of a volume that is set aside"),
    }
}

fn of_delta(saved: &SavedDelta) -> EventLine {
    let SavedDelta { ranges, bytes, lost_ranges, lost_bytes } = saved;
    let text = format!(
        "what this node held where it differs from its peer is saved: {ranges} ranges, {bytes} bytes ('farshore inspect' on the file 'delta' of \
         the group's state directory lists it)"
    );
    match lost_ranges {
        0 => info(text),
        _ => warn(format!(
            "{text}; {lost_ranges} of the ranges, {lost_bytes} bytes, are lost, as the undo store was damaged there: the delta names them"
        )),
    }
}

fn of_held_up(event: &Event) -> EventLine {
    let Event::WritersHeldUp { acts_in } = event else {
        return info("writers are not held up any more".to_owned());
    };
    let then = match acts_in {
        Some(left) => format!("if that lasts for {:.1} s more, the group goes to logging", left.as_secs_f64()),
        None => "under strict they go on waiting".to_owned(),
    };
    warn(format!("writers are held up, the queue is full: more is written than the link carries; {then}"))
}

fn of_state(from: State, to: State, why: &str) -> EventLine {
    let colon = if why.is_empty() { "" } else { ": " };
    let edge = format!("{} -> {}{colon}{why}", from.word(), to.word());
    match to {
        State::Failed(broken) if !edge.ends_with(broken.words()) => error(format!("{edge} ({})", broken.words())),
        State::Failed(_) => error(edge),
        State::Holding | State::Paused(_) => warn(edge),
        State::Logging if from != State::Logging => warn(edge),
        _ => info(edge),
    }
}

fn of_decision(decision: &Decision, named: impl Fn(&str) -> String) -> EventLine {
    match decision {
        Decision::Continue(seq) => info(format!("the peer has everything up to {}: going on", seq.0)),
        Decision::UpdateSync => info("the peer lacks the dirty regions only".to_owned()),
        Decision::NeedsFullSync(why) => warn(named(&why.to_string())),
        Decision::Refuse(why) => error(format!("nothing is sent: {}", named(&why.to_string()))),
        Decision::Idle => warn("both nodes are secondary; promote one".to_owned()),
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
