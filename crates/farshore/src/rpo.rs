//! How well a group kept to its RPO: what the events of its nodes say of when the lag was watched, and when it was beyond a threshold.
//!
//! Only a primary knows its lag, and only once there is a copy. So the time that counts is the one in which a daemon said that it watched;
//! of the rest nothing is claimed.

use std::collections::BTreeMap;

use serde_json::Value;
use settings::events::EventKind;

use crate::api::{RpoHistory, RpoLevel, RpoMiss};
use crate::events::EventRecord;

/// Of which thresholds events tell, the lower one first.
pub const LEVELS: [&str; 2] = ["warn", "error"];

/// What is known now, besides events.
pub struct RpoNow<'a> {
    pub now_unix_ms: u64,
    /// Who is the primary, if that is known.
    pub primary: Option<&'a str>,
    /// By level, seconds; `None`: off.
    pub thresholds: [Option<f64>; 2],
}

/// From then until then, milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: u64,
    to: u64,
}

impl Span {
    fn within(self, other: Span) -> Option<Span> {
        let (from, to) = (self.from.max(other.from), self.to.min(other.to));
        (from < to).then_some(Span { from, to })
    }
}

/// The history of a group since `from_unix_ms`. `events`: all that is kept, of all nodes, oldest first.
pub fn history(group: &str, events: &[EventRecord], from_unix_ms: u64, now: &RpoNow<'_>) -> RpoHistory {
    let window = Span { from: from_unix_ms.min(now.now_unix_ms), to: now.now_unix_ms };
    let mut by_node = BTreeMap::<&str, Vec<&EventRecord>>::new();
    for event in events {
        by_node.entry(&event.node).or_default().push(event);
    }
    let missed_by = |(node, events): (&&str, &Vec<&EventRecord>)| missed_by(group, node, events, window);
    let mut missed: Vec<RpoMiss> = by_node.iter().flat_map(missed_by).collect();
    missed.sort_by(|a, b| (a.since_unix_ms, &a.level).cmp(&(b.since_unix_ms, &b.level)));
    let levels = LEVELS.iter().zip(now.thresholds).filter_map(|(level, threshold_s)| {
        let of_level: Vec<&RpoMiss> = missed.iter().filter(|miss| miss.level == *level).collect();
        if threshold_s.is_none() && of_level.is_empty() {
            return None;
        }
        let watches_now = |node: &str| now.primary == Some(node) && threshold_s.is_some();
        let watched: BTreeMap<&str, Vec<Span>> = by_node
            .iter()
            .map(|(node, events)| (*node, watched_by(group, level, events, watches_now(node), window)))
            .collect();
        // What an alarm says of the time after its node went is nothing.
        let known = |miss: &&RpoMiss| {
            let span = span_of(miss, window.to);
            watched[miss.node.as_str()].iter().filter_map(|watched| span.within(*watched)).collect::<Vec<_>>()
        };
        let missed_s = seconds(merged(of_level.iter().flat_map(known).collect()));
        let watched_s = seconds(merged(watched.values().flatten().copied().collect()));
        Some(RpoLevel {
            level: (*level).to_owned(),
            threshold_s,
            watched_s,
            met_share: (watched_s > 0.0).then(|| (1.0 - missed_s / watched_s).max(0.0)),
            missed_s,
            times: of_level.len() as u64,
            longest_s: of_level.iter().map(|miss| miss.lasted_s).fold(0.0, f64::max),
        })
    });
    let levels = levels.collect();
    RpoHistory { group: group.to_owned(), since_unix_ms: window.from, until_unix_ms: window.to, levels, missed }
}

/// When this node watched its lag for this threshold, as far as its events say.
fn watched_by(group: &str, level: &str, events: &[&EventRecord], watches_now: bool, window: Span) -> Vec<Span> {
    let mut spans = Vec::new();
    let began = events.first().map_or(window.to, |event| event.time_unix_ms);
    let (mut since, mut is_known, mut last) = (None, false, began);
    for event in events {
        let (kind, time) = (EventKind::parse(&event.kind).ok(), event.time_unix_ms.max(last));
        let is_of_it =
            event.group.as_deref() == Some(group) && event.fields.get("level").and_then(Value::as_str) == Some(level);
        let (watches, as_of) = match kind {
            Some(EventKind::RpoWatched) if is_of_it => (true, time),
            // Before that it watched, as long as its log goes back.
            Some(EventKind::RpoUnwatched) if is_of_it => (false, time),
            Some(EventKind::RpoMissed) if is_of_it && !is_known => (true, began),
            Some(EventKind::DaemonStopped) => (false, time),
            // It was killed: nothing is known of the time since the event before.
            Some(EventKind::DaemonStarted) => (false, last),
            _ => {
                last = time;
                continue;
            }
        };
        if !is_known && kind == Some(EventKind::RpoUnwatched) {
            since = Some(began);
        }
        (is_known, last) = (true, time);
        match (watches, since) {
            (true, None) => since = Some(as_of),
            (false, Some(from)) => {
                spans.push(Span { from, to: as_of });
                since = None;
            }
            _ => {}
        }
    }
    if !is_known && watches_now {
        since = Some(began);
    }
    // A node that does not say that it watches now has stopped since, or cannot be asked.
    spans.extend(since.map(|from| Span { from, to: if watches_now { window.to } else { last } }));
    spans.into_iter().filter_map(|span| span.within(window)).collect()
}

/// The alarms of a node that reach into the window.
fn missed_by(group: &str, node: &str, events: &[&EventRecord], window: Span) -> Vec<RpoMiss> {
    let (mut open, mut missed) = (BTreeMap::<String, &EventRecord>::new(), Vec::new());
    for event in events.iter().filter(|event| event.group.as_deref() == Some(group)) {
        let Some(level) = event.fields.get("level").and_then(Value::as_str) else { continue };
        match EventKind::parse(&event.kind) {
            Ok(EventKind::RpoMissed) => {
                open.insert(level.to_owned(), event);
            }
            Ok(EventKind::RpoMet) => {
                if let Some(began) = open.remove(level) {
                    missed.push(miss(node, level, began, Some(event), window));
                }
            }
            _ => {}
        }
    }
    missed.extend(open.iter().map(|(level, began)| miss(node, level, began, None, window)));
    missed.retain(|miss| span_of(miss, window.to).within(window).is_some());
    missed
}

fn miss(node: &str, level: &str, began: &EventRecord, ended: Option<&EventRecord>, window: Span) -> RpoMiss {
    let missed_ms = |event: &EventRecord| event.fields.get("missed_ms").and_then(Value::as_u64);
    // The lag passed the threshold, and it was told when that had lasted for a while.
    let since_unix_ms = began.time_unix_ms.saturating_sub(missed_ms(began).unwrap_or(0));
    // It was over when the lag came back, and not when that had lasted for a while.
    let until = ended.map(|ended| match missed_ms(ended) {
        Some(lasted) => since_unix_ms.saturating_add(lasted).min(ended.time_unix_ms),
        None => ended.time_unix_ms,
    });
    let lasted = until.unwrap_or(window.to).saturating_sub(since_unix_ms);
    let reason = ended.and_then(|ended| ended.fields.get("reason")).and_then(Value::as_str);
    RpoMiss {
        level: level.to_owned(),
        node: node.to_owned(),
        since_unix_ms,
        until_unix_ms: until,
        lasted_s: lasted as f64 / 1000.0,
        threshold_s: began.fields.get("threshold_seconds").and_then(Value::as_f64),
        reason: reason.map(str::to_owned),
    }
}

fn span_of(miss: &RpoMiss, now: u64) -> Span {
    Span { from: miss.since_unix_ms, to: miss.until_unix_ms.unwrap_or(now) }
}

/// In order, none over another.
fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| span.from);
    let mut whole: Vec<Span> = Vec::new();
    for span in spans {
        match whole.last_mut() {
            Some(last) if span.from <= last.to => last.to = last.to.max(span.to),
            _ => whole.push(span),
        }
    }
    whole
}

fn seconds(spans: Vec<Span>) -> f64 {
    spans.into_iter().map(|span| span.to - span.from).sum::<u64>() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MINUTE: u64 = 60_000;

    /// `(minute, node, kind, fields)`.
    fn events(list: &[(u64, &str, &str, Value)]) -> Vec<EventRecord> {
        let one = |(number, (minute, node, kind, fields)): (usize, &(u64, &str, &str, Value))| {
            let of_group = !kind.starts_with("daemon");
            let mut event = json!({
                "schema": "farshore-event/1", "number": number, "time_unix_ms": minute * MINUTE, "node": node, "kind": kind, "text": "",
            });
            let event = event.as_object_mut().expect("an object");
            event.extend(of_group.then(|| ("group".to_owned(), json!("db"))));
            event.extend(fields.as_object().expect("fields").clone());
            serde_json::from_value(Value::Object(event.clone())).expect("an event")
        };
        list.iter().enumerate().map(one).collect()
    }

    fn at(minute: u64, primary: Option<&str>) -> RpoNow<'_> {
        RpoNow { now_unix_ms: minute * MINUTE, primary, thresholds: [Some(30.0), Some(300.0)] }
    }

    fn level(level: &str) -> Value {
        json!({"level": level, "threshold_seconds": 30.0})
    }

    #[test]
    fn what_was_missed_is_a_share_of_the_time_that_was_watched() {
        let list = events(&[
            (0, "alpha", "daemon-started", json!({})),
            (0, "alpha", "rpo-watched", level("warn")),
            (20, "alpha", "rpo-watched", level("error")),
            (10, "alpha", "rpo-missed", level("warn")),
            (13, "alpha", "rpo-met", json!({"level": "warn", "missed_ms": 2 * MINUTE})),
            (50, "alpha", "rpo-missed", level("warn")),
        ]);
        let history = history("db", &list, 0, &at(60, Some("alpha")));
        let [warn, error] = history.levels.as_slice() else { panic!("{history:?}") };
        assert_eq!((warn.watched_s, warn.missed_s, warn.times, warn.longest_s), (3600.0, 720.0, 2, 600.0));
        assert_eq!(warn.met_share, Some(0.8));
        assert_eq!((error.watched_s, error.missed_s, error.times), (2400.0, 0.0, 0));
        assert_eq!(error.met_share, Some(1.0));
        let ends: Vec<_> = history.missed.iter().map(|miss| miss.until_unix_ms).collect();
        assert_eq!(ends, [Some(12 * MINUTE), None]);
        // Half of the first one.
        let later = super::history("db", &list, 11 * MINUTE, &at(60, Some("alpha")));
        assert_eq!((later.levels[0].watched_s, later.levels[0].missed_s), (49.0 * 60.0, 660.0));
    }

    #[test]
    fn nothing_is_claimed_of_time_in_which_nobody_watched() {
        let list = events(&[
            (0, "alpha", "rpo-watched", level("error")),
            (10, "alpha", "rpo-missed", level("error")),
            // Killed; it comes back an hour later, as the secondary.
            (80, "alpha", "daemon-started", json!({})),
            (
                81,
                "alpha",
                "rpo-met",
                json!({"level": "error", "reason": "this node is the secondary, and knows no lag"}),
            ),
            (30, "beta", "rpo-watched", level("error")),
            // Its copy is no image for a while.
            (
                50,
                "beta",
                "rpo-unwatched",
                json!({"level": "error", "reason": "what the copy on alpha lacks is not known"}),
            ),
            (70, "beta", "rpo-watched", level("error")),
            (90, "beta", "daemon-stopped", json!({})),
        ]);
        let history = history("db", &list, 0, &at(100, None));
        let error = &history.levels[1];
        assert_eq!(error.watched_s, f64::from(10 + 20 + 20) * 60.0, "alpha to its last event, and beta: {history:?}");
        assert_eq!(error.missed_s, 0.0, "of what came after its last event alpha knows nothing: {history:?}");
        assert_eq!(history.missed[0].reason.as_deref(), Some("this node is the secondary, and knows no lag"));
    }

    #[test]
    fn a_log_that_begins_later_says_nothing_of_before() {
        let quiet = events(&[(40, "alpha", "link-connected", json!({}))]);
        let watched =
            |list: &[EventRecord], primary| history("db", list, 0, &at(60, primary)).levels[0].watched_s / 60.0;
        assert_eq!(watched(&quiet, Some("alpha")), 20.0, "it watched all the time");
        assert_eq!(watched(&quiet, Some("beta")), 0.0);
        let ended = events(&[(10, "alpha", "link-lost", json!({})), (30, "alpha", "rpo-unwatched", level("warn"))]);
        assert_eq!(watched(&ended, Some("beta")), 20.0, "before that it did");
        let stopped = events(&[(10, "alpha", "link-lost", json!({})), (30, "alpha", "daemon-stopped", json!({}))]);
        assert_eq!(watched(&stopped, None), 0.0, "as what it did is not known");
        assert_eq!(history("db", &[], 0, &at(60, None)).levels[0].met_share, None);
    }
}
