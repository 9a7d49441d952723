//! How a line of the log is written: for eyes, for the system's journal, or for programs.

use std::fmt;

use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing::Level;
use tracing::field::{Field, Visit};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, format};
use tracing_subscriber::registry::LookupSpan;

use crate::outcome::clean_lines;

/// What `--log-format` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogForm {
    /// Lines for eyes, with times.
    Text,
    /// One JSON object for each line.
    Json,
    /// Each line with its priority at its head and without a time, as the system's journal takes it.
    Journal,
}

impl LogForm {
    /// A line that the log says of itself, with its end.
    pub(super) fn line(self, level: Level, target: &str, message: &str) -> String {
        match self {
            LogForm::Text => format!("{} {level:>5} {target}: {message}\n", time()),
            LogForm::Json => json_line(level, target, message, Map::new()),
            LogForm::Journal => with_priority(level, &format!("{level:>5} {target}: {message}")),
        }
    }

    /// The sentence with which a command ends that failed; as text it is the sentence of any command.
    pub(super) fn last_word(self, message: &str) -> String {
        match self {
            LogForm::Text => format!("farshore: {}\n", clean_lines(message)),
            LogForm::Json => json_line(Level::ERROR, "farshore", message, Map::new()),
            LogForm::Journal => with_priority(Level::ERROR, &format!("farshore: {}", clean_lines(message))),
        }
    }
}

/// RFC 3339 in UTC, with microseconds.
fn time() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// A message may have several lines, and what a peer sent may stand in it: each gets the priority.
fn with_priority(level: Level, text: &str) -> String {
    let priority = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    text.lines().map(|line| format!("<{priority}>{line}\n")).collect()
}

fn json_line(level: Level, target: &str, message: &str, fields: Map<String, Value>) -> String {
    let level = level.as_str().to_ascii_lowercase();
    let line = json!({ "time": time(), "level": level, "target": target, "message": message, "fields": fields });
    format!("{line}\n")
}

/// Lines for the journal, which knows the time and reads the priority from the line's head (sd-daemon(3)).
pub(super) struct JournalLines(Format<Full, ()>);

impl JournalLines {
    pub fn new() -> JournalLines {
        JournalLines(format().without_time())
    }
}

impl<S, N> FormatEvent<S, N> for JournalLines
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        writer.write_str(&with_priority(*event.metadata().level(), &text))
    }
}

/// One JSON object for each line: `time`, `level`, `target`, `message`, `fields`.
///
/// Own code and not the `json` feature of `tracing-subscriber`: that puts the message among the fields, and brings a crate along.
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        let mut found = EventFields::default();
        event.record(&mut found);
        let metadata = event.metadata();
        let target = found.target.as_deref().unwrap_or_else(|| metadata.target());
        writer.write_str(&json_line(*metadata.level(), target, &found.message, found.fields))
    }
}

#[derive(Default)]
struct EventFields {
    /// Of a line that came by way of the crate `log`, whose own target stands in a field.
    target: Option<String>,
    message: String,
    fields: Map<String, Value>,
}

impl EventFields {
    fn put(&mut self, field: &Field, value: Value) {
        let text = || value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match field.name() {
            "message" => self.message = text(),
            "log.target" => self.target = Some(text()),
            // Where in the source such a line was written.
            name if name.starts_with("log.") => {}
            name => drop(self.fields.insert(name.to_owned(), value)),
        }
    }
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Page {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    /// Lines of each level, one with several lines, control characters and fields.
    fn say_all() {
        tracing::error!("broken");
        tracing::warn!("two\nlines \"quoted\" \u{1b}[31m");
        tracing::info!(path = %"/run/x", count = 3_u64, ratio = 0.5, late = true, "fields");
        tracing::debug!(target: "elsewhere", "little");
    }

    fn logged(say: impl FnOnce(), form: LogForm) -> String {
        let page = Page::default();
        let writer = page.clone();
        let lines = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(move || writer.clone());
        match form {
            LogForm::Json => tracing::subscriber::with_default(lines.event_format(JsonLines).finish(), say),
            _ => tracing::subscriber::with_default(lines.event_format(JournalLines::new()).finish(), say),
        }
        page.text()
    }

    #[test]
    fn each_line_is_one_object() {
        let text = logged(say_all, LogForm::Json);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let of = |key: &str| lines.iter().map(|line| line[key].as_str().unwrap_or_default()).collect::<Vec<_>>();
        assert_eq!(of("level"), ["error", "warn", "info", "debug"]);
        assert_eq!(of("message"), ["broken", "two\nlines \"quoted\" \u{1b}[31m", "fields", "little"]);
        assert_eq!(of("target")[3], "elsewhere");
        assert!(of("time").iter().all(|time| time.parse::<Timestamp>().is_ok() && time.ends_with('Z')), "{text}");
        assert_eq!(lines[0]["fields"], json!({}));
        assert_eq!(lines[2]["fields"], json!({ "path": "/run/x", "count": 3, "ratio": 0.5, "late": true }));
    }

    #[test]
    fn each_line_of_the_journal_has_its_priority() {
        let text = logged(say_all, LogForm::Journal);
        let heads: Vec<&str> = text.lines().map(|line| &line[..3]).collect();
        assert_eq!(heads, ["<3>", "<4>", "<4>", "<6>", "<7>"], "{text}");
    }

    #[test]
    fn what_the_log_says_of_itself_has_the_form_of_the_others() {
        let line = |form: LogForm| form.line(Level::WARN, "farshore::log", "3 lines are missing");
        assert!(line(LogForm::Text).ends_with("Z  WARN farshore::log: 3 lines are missing\n"));
        assert_eq!(line(LogForm::Journal), "<4> WARN farshore::log: 3 lines are missing\n");
        let parsed: Value = serde_json::from_str(&line(LogForm::Json)).unwrap();
        assert_eq!((&parsed["level"], &parsed["message"]), (&json!("warn"), &json!("3 lines are missing")));
        assert_eq!(LogForm::Text.last_word("no"), "farshore: no\n");
        assert_eq!(LogForm::Journal.last_word("one\ntwo"), "<3>farshore: one\n<3>two\n");
        let of_peer = "beta says:\n\u{1b}]0;x\u{7}\tno\r";
        assert_eq!(LogForm::Text.last_word(of_peer), "farshore: beta says:\n?]0;x?\tno?\n");
        assert_eq!(LogForm::Journal.last_word(of_peer), "<3>farshore: beta says:\n<3>?]0;x?\tno?\n");
        let parsed: Value = serde_json::from_str(&LogForm::Json.last_word("no")).unwrap();
        assert_eq!((&parsed["level"], &parsed["target"]), (&json!("error"), &json!("farshore")));
    }
}
