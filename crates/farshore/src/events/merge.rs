//! Several nodes' events as one list, and how far each node's log was read.

use std::collections::BTreeMap;

use super::{EventPage, EventRecord};

/// By time, then node, then number. The nodes' clocks differ, so of what happened on two nodes within their difference the order says
/// nothing.
pub fn merged(lists: impl IntoIterator<Item = Vec<EventRecord>>) -> Vec<EventRecord> {
    let mut all: Vec<EventRecord> = lists.into_iter().flatten().collect();
    all.sort_by(|a, b| (a.time_unix_ms, &a.node, a.number).cmp(&(b.time_unix_ms, &b.node, b.number)));
    all
}

/// How far each node's log was read, by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPositions(BTreeMap<String, u64>);

impl EventPositions {
    /// The number after which to read on.
    pub fn of(&self, node: &str) -> u64 {
        self.0.get(node).copied().unwrap_or(0)
    }

    /// Takes note of a page that was read from there on; a sentence if events are missing before it.
    pub fn advance(&mut self, page: &EventPage) -> Option<String> {
        let before = self.0.insert(page.node.clone(), page.position).unwrap_or(0);
        let node = &page.node;
        if page.last < before {
            self.0.insert(node.clone(), 0);
            return Some(format!("the log of events of {node} was begun anew; it is read from its start"));
        }
        // How many is not known: each run of a daemon begins with a higher number.
        (before > 0 && page.first > before.saturating_add(1)).then(|| {
            format!(
                "events of {node} after number {before} made room for newer ones before they were read; 'events.limit' sets how many are kept"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use settings::events::EventKind;

    use super::*;
    use crate::events::{EVENTS_SCHEMA, NewEvent};

    fn record(time: u64, node: &str, number: u64) -> EventRecord {
        NewEvent::at(time, EventKind::Note, "x").numbered(number, node)
    }

    fn page(node: &str, (first, last): (u64, u64), position: u64) -> EventPage {
        let (schema, node) = (EVENTS_SCHEMA.to_owned(), node.to_owned());
        EventPage { schema, node, events: Vec::new(), first, last, position, more: false, warnings: Vec::new() }
    }

    #[test]
    fn by_time_then_node_then_number() {
        let alpha = vec![record(10, "alpha", 1), record(10, "alpha", 2), record(30, "alpha", 3), record(5, "alpha", 4)];
        let beta = vec![record(10, "beta", 1), record(20, "beta", 2)];
        let all: Vec<_> = merged([beta, alpha]).into_iter().map(|e| (e.time_unix_ms, e.node, e.number)).collect();
        let expected =
            [(5, "alpha", 4), (10, "alpha", 1), (10, "alpha", 2), (10, "beta", 1), (20, "beta", 2), (30, "alpha", 3)];
        assert_eq!(all, expected.map(|(time, node, number)| (time, node.to_owned(), number)));
    }

    #[test]
    fn each_node_has_its_own_position() {
        let mut positions = EventPositions::default();
        assert_eq!(positions.advance(&page("alpha", (50, 60), 60)), None, "a first look misses nothing");
        assert_eq!(positions.advance(&page("beta", (1, 3), 2)), None);
        assert_eq!((positions.of("alpha"), positions.of("beta"), positions.of("gamma")), (60, 2, 0));
        let missed = positions.advance(&page("alpha", (71, 90), 80)).expect("some are missing");
        assert!(missed.starts_with("events of alpha after number 60 made room"), "{missed}");
        assert_eq!(positions.advance(&page("alpha", (81, 90), 90)), None, "the next one is there");
        positions.advance(&page("gamma", (1, u64::MAX), u64::MAX));
        assert_eq!(positions.advance(&page("gamma", (1, u64::MAX), u64::MAX)), None, "a peer may say any number");
    }

    #[test]
    fn a_log_that_begins_anew_is_read_from_its_start() {
        let mut positions = EventPositions::default();
        positions.advance(&page("alpha", (1, 60), 60));
        assert!(positions.advance(&page("alpha", (1, 2), 60)).expect("told").contains("begun anew"));
        assert_eq!(positions.of("alpha"), 0);
    }
}
