//! What is seen of a test while it runs: a bar on a terminal, lines for eyes, lines of JSON for programs.

use std::cell::Cell;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use toolkit::line_test::client::{self, TestWatch};
use toolkit::line_test::tally::TestInterval;
use toolkit::line_test::terms::Terms;
use toolkit::line_test::{report, soak};

use crate::args::line::LinkTestArgs;
use crate::outcome::{CommandFailure, event, print};

pub fn of_test(args: &LinkTestArgs, terms: &Terms) -> Box<dyn TestWatch> {
    if prints_lines(args) {
        return Box::new(IntervalLines::new(terms));
    }
    let bar = TestProgressBar::new(terms.mode.word(), terms.all_time().as_secs_f64());
    if args.json_stream {
        Box::new(JsonStream { lines: JsonLines::new(report::STREAM_SCHEMA), bar })
    } else {
        Box::new(bar)
    }
}

/// Whether there are lines before the report.
pub fn prints_lines(args: &LinkTestArgs) -> bool {
    args.interval.is_some() && !args.json && !args.json_stream
}

/// How far a test has come, on a terminal.
pub struct TestProgressBar(ProgressBar);

impl TestProgressBar {
    pub fn new(what: &str, time_s: f64) -> TestProgressBar {
        let is_seen = time_s > 2.0 && std::io::stderr().is_terminal();
        let target = if is_seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some((time_s * 1000.0) as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {percent} % {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(what.to_owned());
        TestProgressBar(bar)
    }
}

impl TestWatch for TestProgressBar {
    fn progress(&self, elapsed: Duration, bytes: u64) {
        let elapsed_s = elapsed.as_secs_f64().max(1e-3);
        self.0.set_position(elapsed.as_millis() as u64);
        self.0.set_message(report::rate(bytes as f64 / elapsed_s));
    }

    fn says(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }
}

impl Drop for TestProgressBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Intervals as they come, a line each. What cannot be written is told with the report.
struct IntervalLines {
    terms: Terms,
    printed_s: Cell<f64>,
    listens: Cell<bool>,
}

impl IntervalLines {
    fn new(terms: &Terms) -> IntervalLines {
        IntervalLines { terms: terms.clone(), printed_s: Cell::new(0.0), listens: Cell::new(true) }
    }

    fn print(&self, line: &str) {
        let is_read = print(&format!("{line}\n")).is_ok_and(|is_read| is_read);
        self.listens.set(self.listens.get() && is_read);
    }
}

impl TestWatch for IntervalLines {
    fn progress(&self, _: Duration, _: u64) {}

    fn began(&self, _: &client::TestOutcome) {
        self.print(&report::interval_head(&self.terms));
    }

    fn interval(&self, interval: &TestInterval) {
        let since_s = self.printed_s.replace(interval.t_s);
        self.print(&report::interval_line(&self.terms, interval, since_s));
    }

    fn listens(&self) -> bool {
        self.listens.get()
    }
}

/// Says lines of JSON, as long as somebody reads them. What cannot be written is told with the last one.
struct JsonLines {
    schema: &'static str,
    listens: Cell<bool>,
}

impl JsonLines {
    fn new(schema: &'static str) -> JsonLines {
        JsonLines { schema, listens: Cell::new(true) }
    }

    fn print(&self, name: &str, data: &Value) {
        let is_read = event(self.schema, name, data).is_ok_and(|is_read| is_read);
        self.listens.set(self.listens.get() && is_read);
    }
}

/// A test's begin and its intervals.
struct JsonStream {
    lines: JsonLines,
    bar: TestProgressBar,
}

impl TestWatch for JsonStream {
    fn progress(&self, elapsed: Duration, bytes: u64) {
        self.bar.progress(elapsed, bytes);
    }

    fn began(&self, outcome: &client::TestOutcome) {
        self.lines.print("start", &json!(report::start(outcome)));
    }

    fn interval(&self, interval: &TestInterval) {
        self.lines.print("interval", &json!(interval));
    }

    fn listens(&self) -> bool {
        self.lines.listens.get()
    }
}

/// Of a probe or a sweep: what was found out, not the tests by which it was.
pub struct Findings {
    lines: JsonLines,
    bar: TestProgressBar,
}

impl Findings {
    /// A bar alone, where nothing is streamed.
    pub fn watch(schema: &'static str, bar: TestProgressBar, is_streamed: bool) -> Box<dyn TestWatch> {
        if is_streamed { Box::new(Findings { lines: JsonLines::new(schema), bar }) } else { Box::new(bar) }
    }
}

impl TestWatch for Findings {
    fn progress(&self, elapsed: Duration, bytes: u64) {
        self.bar.progress(elapsed, bytes);
    }

    fn says(&self, what: &str) {
        self.bar.says(what);
    }

    fn found(&self, what: &'static str, finding: &Value) {
        self.lines.print(what, finding);
    }

    fn listens(&self) -> bool {
        self.lines.listens.get()
    }
}

/// Of a soak's tests only the first one's begin is told, and only of one that is streamed.
pub struct SoakWatch {
    pub bar: TestProgressBar,
    pub has_begun: Cell<bool>,
}

impl TestWatch for SoakWatch {
    fn progress(&self, elapsed: Duration, bytes: u64) {
        self.bar.progress(elapsed, bytes);
    }

    fn began(&self, outcome: &client::TestOutcome) {
        if !self.has_begun.replace(true) {
            let start = soak::SoakStart::new(&outcome.address, &outcome.terms);
            let _ = event(soak::STREAM_SCHEMA, "start", &json!(start));
        }
    }
}

/// Where a soak's records go.
pub struct SoakRecord {
    file: Option<(fs::File, std::path::PathBuf)>,
    is_streamed: bool,
}

impl SoakRecord {
    pub fn open(path: Option<&Path>, is_streamed: bool) -> Result<SoakRecord, CommandFailure> {
        let Some(path) = path else { return Ok(SoakRecord { file: None, is_streamed }) };
        let opened = fs::OpenOptions::new().append(true).create_new(true).open(path);
        let file = opened.map_err(|error| format!("--out: {} cannot be made: {error}", path.display()))?;
        Ok(SoakRecord { file: Some((file, path.to_owned())), is_streamed })
    }
}

impl soak::RecordSink for SoakRecord {
    fn keep(&self, what: &'static str, record: Value) -> Result<(), String> {
        if self.is_streamed {
            event(soak::STREAM_SCHEMA, what, &record).map_err(|failure| failure.message)?;
        }
        let Some((file, path)) = &self.file else { return Ok(()) };
        let (mut file, line) = (file, json!({ what: record }));
        file.write_all(format!("{line}\n").as_bytes()).map_err(|error| format!("{}: {error}", path.display()))
    }
}
