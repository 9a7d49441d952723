//! What the daemon of a peer says of itself, below what this node says.

use toolkit::screen::{Colour, Paint, clean};
use units::exact::{show_seconds, show_size};

use super::table::{Table, in_one_line, plain, titled};
use super::{colour, promotable_words};
use crate::api::{GroupView, NodeView, PeerSays, Role};

/// One section for each peer that was asked.
pub(super) fn sections(status: &NodeView, paint: &Paint) -> String {
    status.peer_says.iter().map(|says| section(says, status.groups.len() == 1, paint)).collect()
}

fn section(says: &PeerSays, in_full: bool, paint: &Paint) -> String {
    let node = clean(&says.node);
    let Some(theirs) = &says.status else {
        let why = in_one_line(says.why.as_deref().unwrap_or("it was not asked"));
        let answered = match says.answered_s {
            Some(seconds) => format!("its daemon last answered {} ago", show_seconds(seconds)),
            None => "its daemon has not answered since this one started".to_owned(),
        };
        return format!(
            "\n{} what {node} says of itself is not known: {why}; {answered}\n",
            paint.with(Colour::Busy, "!")
        );
    };
    let age = show_seconds(says.age_s.unwrap_or_default());
    let head = format!(
        "{node} says of itself, {age} ago (farshore {}, up {})",
        clean(&theirs.version),
        show_seconds(theirs.uptime_s)
    );
    let mut text = format!("\n{}\n", paint.with(Colour::Head, &head));
    for warning in &theirs.warnings {
        text += &format!("{} {}\n", paint.with(Colour::Bad, "!"), in_one_line(warning));
    }
    match theirs.groups.as_slice() {
        [group] if in_full => text += &lines(group, paint),
        groups => text += &table(groups, paint),
    }
    text
}

fn lines(group: &GroupView, paint: &Paint) -> String {
    let state = paint.with(colour(group), &clean(group.state.as_str()));
    let mut text = format!("  {:<12}{}, mode {}, {state}\n", "Role", clean(group.role.as_str()), clean(&group.mode));
    let mut line = |title: &str, content: &str| text += &titled(title, 12, content);
    if let Some(reason) = &group.reason {
        line("Why", reason);
    }
    group.warnings.iter().for_each(|warning| line("Warning", warning));
    let broken = group.volumes.iter().filter_map(|volume| Some((&volume.name, volume.error.as_ref()?)));
    broken.for_each(|(name, error)| line("Warning", &format!("volume {name}: {error}")));
    line("Position", &position(group));
    line("Space", &space(group));
    text
}

fn table(groups: &[GroupView], paint: &Paint) -> String {
    let mut table = Table::new(["GROUP", "ROLE", "MODE", "STATE", "POSITION", "SPACE", "NEEDS AN EYE"]);
    for group in groups {
        let notes = group.warnings.len() + group.volumes.iter().filter(|volume| volume.error.is_some()).count();
        let note =
            group.reason.clone().or_else(|| (notes > 0).then(|| format!("{notes} warnings"))).unwrap_or_default();
        table.row([
            plain(&group.name),
            plain(group.role.as_str()),
            plain(&group.mode),
            (clean(group.state.as_str()), Some(colour(group))),
            plain(&position(group)),
            plain(&space(group)),
            plain(&in_one_line(&note)),
        ]);
    }
    table.text("  ", paint)
}

/// How far its copy is; of a primary, how far that it knows its peer's to be.
fn position(group: &GroupView) -> String {
    if group.role == Role::Secondary {
        return promotable_words(group);
    }
    match group.peers.first().and_then(|peer| peer.recovery_point.as_ref()) {
        Some(point) => format!("knows the copy to be at {}, sequence {}", point.time, point.sequence),
        None => "knows of no consistent point of the copy".to_owned(),
    }
}

fn space(group: &GroupView) -> String {
    let journal = group.journal.as_ref().filter(|_| group.role == Role::Secondary).map(|journal| {
        format!("journal {} of {} not yet applied", show_size(journal.bytes), show_size(journal.limit_bytes))
    });
    let queue = (group.role != Role::Secondary)
        .then(|| format!("queue {} of {}", show_size(group.queue.bytes), show_size(group.queue.limit_bytes)));
    let marks = group.marks.iter().map(|mark| {
        let taken_bytes = mark.used_bytes.saturating_add(mark.reserved_bytes);
        format!("{} {} of {}", mark.name, show_size(taken_bytes), show_size(mark.limit_bytes))
    });
    let memory = format!("memory {}", show_size(group.memory_bytes));
    queue.into_iter().chain(journal).chain([memory]).chain(marks).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn silent(answered_s: Option<f64>) -> String {
        let why = Some("it does not answer within 1s".to_owned());
        let says = PeerSays { node: "beta".to_owned(), age_s: None, answered_s, why, status: None };
        section(&says, true, &Paint::plain())
    }

    #[test]
    fn no_number_wraps() {
        let most = u64::MAX;
        let group = json!({
            "name": "db", "role": "secondary", "mode": "async", "state": "replicating", "protection": "queued", "volumes": [],
            "queue": {"bytes": 0, "items": 0, "bytes_hwm": 0, "items_hwm": 0, "limit_bytes": 0, "limit_items": 0, "blocked_ms": 0},
            "marks": [{"name": "m", "sequence": 1, "time": "", "used_bytes": most, "reserved_bytes": most, "limit_bytes": most}],
            "peers": [], "settings": {}
        });
        let group: GroupView = serde_json::from_value(group).expect("a group");
        assert!(space(&group).ends_with("m 16777216 TiB of 16777216 TiB"), "{}", space(&group));
    }

    #[test]
    fn why_nothing_is_known_is_one_line() {
        assert_eq!(
            silent(Some(12.0)),
            "\n! what beta says of itself is not known: it does not answer within 1s; its daemon last answered 12 s ago\n"
        );
        assert!(silent(None).ends_with("its daemon has not answered since this one started\n"));
    }
}
