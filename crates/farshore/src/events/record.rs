//! One event: before it has a number, and with it.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use settings::events::EventKind;
use settings::limits::NAME_BYTES_MAX;

/// The schema of [`EventRecord`].
pub const EVENT_SCHEMA: &str = "farshore-event/1";
/// The schema of [`EventPage`].
pub const EVENTS_SCHEMA: &str = "farshore-events/1";
/// Texts of an event are cut here: what a command answered may list a thousand clients.
const TEXT_BYTES_MAX: usize = 1024;

/// Something that happened on a node. Keys are added, never renamed or reused without a new `schema`. The comments of fields are the
/// manual's words: docs/book/events.md is made from them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EventRecord {
    /// name and version of this schema
    pub schema: String,
    /// goes up by one with each event of a run of the daemon. A run begins with the milliseconds since 1970, or higher. Numbers of events
    /// that were not kept are missing
    pub number: u64,
    /// milliseconds since 1970, by the node's clock
    pub time_unix_ms: u64,
    /// the node that saw the event
    pub node: String,
    /// left out where the event is of none
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// left out where the event is of none
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// a word of the table of [kinds](#kinds). New kinds are added, so skip what you do not know
    pub kind: String,
    /// for people; the words may change. Cut at 1 KiB
    pub text: String,
    /// Those of the kind.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// Events of one node, oldest first: the answer to the request `events` on the control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EventPage {
    /// name and version of this schema
    pub schema: String,
    /// this node
    pub node: String,
    /// those with a number higher than `after`, oldest first, at most `limit` and 1 000 (of another node 16 KiB); with `last` the newest
    /// so many
    pub events: Vec<EventRecord>,
    /// number of the oldest event of the log
    pub first: u64,
    /// number of the newest event of the log; there are gaps between the two
    pub last: u64,
    /// ask for what comes after it next time
    pub position: u64,
    /// there is more now
    pub more: bool,
    /// such as a file of the log that cannot be read
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl EventPage {
    /// Leaves no more than these bytes of lines, and one event at least: the rest is asked for with the next page.
    pub fn shorten(&mut self, most: usize) {
        let mut bytes = 0;
        let fits = self.events.iter().take_while(|event| {
            bytes += event.line().len();
            bytes <= most
        });
        let count = fits.count().max(1);
        if count < self.events.len() {
            self.events.truncate(count);
            self.more = true;
            self.position = self.events.last().map_or(self.position, |event| event.number);
        }
    }
}

/// An event that has no number yet.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    time_unix_ms: u64,
    group: Option<String>,
    peer: Option<String>,
    kind: EventKind,
    text: String,
    fields: Map<String, Value>,
}

impl NewEvent {
    /// That happens now.
    pub fn now(kind: EventKind, text: impl Into<String>) -> NewEvent {
        NewEvent::at(unix_ms(), kind, text)
    }

    /// That happened then, milliseconds since 1970.
    pub fn at(time_unix_ms: u64, kind: EventKind, text: impl Into<String>) -> NewEvent {
        NewEvent { time_unix_ms, group: None, peer: None, kind, text: cut(text.into()), fields: Map::new() }
    }

    /// A command may name what is no group, of any length.
    pub fn of_group(self, group: &str) -> NewEvent {
        NewEvent { group: Some(cut_at(group.to_owned(), NAME_BYTES_MAX)), ..self }
    }

    pub fn of_peer(self, peer: &str) -> NewEvent {
        NewEvent { peer: Some(peer.to_owned()), ..self }
    }

    /// Adds a field of its kind.
    pub fn with(mut self, field: &'static str, value: impl Into<Value>) -> NewEvent {
        debug_assert!(self.kind.fields().contains(&field), "{} has no field {field}", self.kind.as_str());
        let value = match value.into() {
            Value::String(text) => Value::String(cut(text)),
            other => other,
        };
        self.fields.insert(field.to_owned(), value);
        self
    }

    /// The same of what may not be known.
    pub fn with_known(self, field: &'static str, value: Option<impl Into<Value>>) -> NewEvent {
        match value {
            Some(value) => self.with(field, value),
            None => self,
        }
    }

    /// The same of a time, in whole milliseconds.
    pub fn with_ms(self, field: &'static str, time: Option<Duration>) -> NewEvent {
        self.with_known(field, time.map(milliseconds))
    }

    pub fn kind(&self) -> EventKind {
        self.kind
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn numbered(self, number: u64, node: &str) -> EventRecord {
        let NewEvent { time_unix_ms, group, peer, kind, text, fields } = self;
        let (schema, node, kind) = (EVENT_SCHEMA.to_owned(), node.to_owned(), kind.as_str().to_owned());
        EventRecord { schema, number, time_unix_ms, node, group, peer, kind, text, fields }
    }
}

impl EventRecord {
    /// As the log has it, with its end.
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("texts and numbers are JSON");
        line.push('\n');
        line
    }
}

/// Milliseconds since 1970, by this node's clock.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, milliseconds)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A text of bounded length, for a line of a log.
pub fn cut(text: String) -> String {
    cut_at(text, TEXT_BYTES_MAX)
}

/// The same with another bound, cut between letters.
fn cut_at(mut text: String, most: usize) -> String {
    if text.len() > most {
        let mut end = most;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_and_comes_back() {
        let event = NewEvent::at(5, EventKind::State, "a\nb")
            .of_group("db")
            .of_peer("beta")
            .with("from", "logging")
            .with_known("reason", None::<String>);
        let record = event.numbered(7, "alpha");
        let line = record.line();
        assert_eq!(
            line,
            "{\"schema\":\"farshore-event/1\",\"number\":7,\"time_unix_ms\":5,\"node\":\"alpha\",\"group\":\"db\",\
             \"peer\":\"beta\",\"kind\":\"state\",\"text\":\"a\\nb\",\"from\":\"logging\"}\n"
        );
        assert_eq!(serde_json::from_str::<EventRecord>(&line).expect("it is one"), record);
    }

    #[test]
    fn a_page_that_is_too_long_ends_earlier_and_goes_on() {
        let event = |number| NewEvent::at(5, EventKind::Note, "x".repeat(1000)).numbered(number, "alpha");
        let (schema, node, events) = (EVENTS_SCHEMA.to_owned(), "alpha".to_owned(), (1..=40).map(event).collect());
        let page =
            EventPage { schema, node, events, first: 1, last: 90, position: 90, more: false, warnings: Vec::new() };
        let mut short = page.clone();
        short.shorten(16 << 10);
        assert!((10..16).contains(&short.events.len()) && short.more, "{}", short.events.len());
        assert_eq!(short.position, short.events.len() as u64);
        short.shorten(1);
        assert_eq!((short.events.len(), short.position), (1, 1));
        let mut whole = page.clone();
        whole.shorten(1 << 20);
        assert_eq!(whole, page);
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        let event = NewEvent::at(5, EventKind::Command, "ü".repeat(2000)).with("answer", "x".repeat(5000));
        let line = event.numbered(1, "alpha").line();
        assert!(line.len() < 2 * TEXT_BYTES_MAX + 300 && line.contains('…'), "{}", line.len());
    }
}
