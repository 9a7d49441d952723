//! What the daemon of a peer says of itself, below what this node says.

use toolkit::screen::{Colour, Paint, clean};
use units::exact::{show_seconds, show_size};

use super::table::{Table, in_one_line, plain, titled};
use super::{colour, direction, mode_word, promotable_words, role_word, time_words};
use crate::api::{GroupView, LinkState, NodeView, PeerSays, PeerStatusView, Role};

/// One section for each peer that was asked.
pub(super) fn sections(status: &NodeView, paint: &Paint) -> String {
    // The groups of two nodes share their link, so any of them tells.
    let link_to = |node: &str| status.groups.iter().flat_map(|group| &group.peers).find(|peer| peer.node == node);
    let one = |says: &PeerSays| section(says, link_to(&says.node), status.groups.len() == 1, paint);
    status.peer_says.iter().map(one).collect()
}

fn section(says: &PeerSays, link: Option<&PeerStatusView>, in_full: bool, paint: &Paint) -> String {
    let node = clean(&says.node);
    let Some(theirs) = &says.status else {
        let why = in_one_line(says.why.as_deref().unwrap_or("it was not asked"));
        let answered = match says.answered_s {
            Some(seconds) => format!("its daemon last answered {} ago", show_seconds(seconds)),
            None => "its daemon has answered no question since this daemon started".to_owned(),
        };
        let link = link.map(|link| format!("; {}", link_words(link))).unwrap_or_default();
        return format!(
            "\n{} what {node} says of itself is not known: {why}; {answered}{link}\n",
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
        [group] if in_full => text += &lines(&says.node, group, paint),
        groups => text += &table(&says.node, groups, paint),
    }
    text
}

/// Questions go beside the link: where none was answered, or asked, the daemon may have been linked all the while.
fn link_words(peer: &PeerStatusView) -> String {
    let since = show_seconds(peer.link_since_s);
    match &peer.link {
        LinkState::Connected | LinkState::Congested => format!("the link to it has been up for {since}"),
        LinkState::Connecting => "the link to it has not been up since this daemon started".to_owned(),
        LinkState::Disconnected => format!("the link to it was up until {since} ago"),
        LinkState::Other(word) => format!("the link to it is {} for {since}", clean(word)),
    }
}

fn lines(node: &str, group: &GroupView, paint: &Paint) -> String {
    let state = paint.with(colour(group), &clean(group.state.as_str()));
    let (direction, role, mode) = (clean(&direction(node, group)), clean(&role_word(group)), clean(&mode_word(group)));
    let mut text = format!("  {:<12}{direction}  {role}, mode {mode}, {state}\n", "Role");
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

fn table(node: &str, groups: &[GroupView], paint: &Paint) -> String {
    let mut table = Table::new(["GROUP", "DIRECTION", "ROLE", "MODE", "STATE", "POSITION", "SPACE", "NEEDS AN EYE"]);
    for group in groups {
        let notes = group.warnings.len() + group.volumes.iter().filter(|volume| volume.error.is_some()).count();
        let note =
            group.reason.clone().or_else(|| (notes > 0).then(|| format!("{notes} warnings"))).unwrap_or_default();
        table.row([
            plain(&group.name),
            plain(&direction(node, group)),
            plain(&role_word(group)),
            plain(&mode_word(group)),
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
        Some(point) => {
            format!("knows the copy to be at {}, sequence {}", time_words(point.time.as_deref()), point.sequence)
        }
        None => "knows of no consistent point of the copy".to_owned(),
    }
}

fn space(group: &GroupView) -> String {
    let journal = group.journal.as_ref().filter(|_| group.role == Role::Secondary).map(|journal| {
        format!("journal {} of {} not yet applied", show_size(journal.bytes), show_size(journal.limit_bytes))
    });
    let queue = (group.role != Role::Secondary).then(|| {
        let (bytes, limit_bytes) = group.queue.filled_of();
        format!("queue {} of {}", show_size(bytes), show_size(limit_bytes))
    });
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

    fn silent(answered_s: Option<f64>, link: Option<&PeerStatusView>) -> String {
        let why = Some("it does not answer within 1s".to_owned());
        let says = PeerSays { node: "beta".to_owned(), age_s: None, answered_s, why, status: None };
        section(&says, link, true, &Paint::plain())
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
            silent(Some(12.0), None),
            "\n! what beta says of itself is not known: it does not answer within 1s; its daemon last answered 12 s ago\n"
        );
        assert!(silent(None, None).ends_with("its daemon has answered no question since this daemon started\n"));
    }

    /// The first status after the primary was gone said that its daemon had not answered since this one started: nobody had asked it.
    #[test]
    fn a_daemon_that_was_linked_is_not_called_silent() {
        for (link, words) in [
            ("connected", "the link to it has been up for 30 s"),
            ("congested", "the link to it has been up for 30 s"),
            ("connecting", "the link to it has not been up since this daemon started"),
            ("disconnected", "the link to it was up until 30 s ago"),
            ("frayed", "the link to it is frayed for 30 s"),
        ] {
            let peer = json!({"node": "beta", "link": link, "link_since_s": 30.0, "dirty_bytes": 0});
            let peer: PeerStatusView = serde_json::from_value(peer).expect("a peer");
            for answered_s in [None, Some(12.0)] {
                let said = silent(answered_s, Some(&peer));
                assert!(said.ends_with(&format!("; {words}\n")), "{said}");
            }
        }
    }
}
