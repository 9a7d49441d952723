//! `link test --mode all`: one mode after the other on the same line, side by side.

use std::rc::Rc;

use plan::answer::table;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use units::quantities::show_share;

use super::TestFailure;
use super::client::{self, TestOutcome, TestTarget, TestWatch};
use super::disk::TestDisk;
use super::document::LinkTestReport;
use super::report::{self, us};
use super::terms::{Terms, TestDirection};

pub const MODES_SCHEMA: &str = "farshore-link-modes/1";

/// What each mode came to; never empty.
#[derive(Clone, Debug, Default)]
pub struct ModeResults {
    pub outcomes: Vec<TestOutcome>,
    /// Somebody asked to stop.
    pub interrupted: bool,
    /// Why it did not come to its end.
    pub lost: Option<String>,
}

/// What `link test --mode all --json` prints. The comments of fields are the manual's words: docs/book/json.md is made from them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModesReport<'a> {
    /// name and version of this schema
    pub schema: &'static str,
    /// one for each mode
    pub tests: Vec<LinkTestReport>,
    /// somebody asked to stop
    pub interrupted: bool,
    /// a sentence: why the tests did not come to their end; `null`: they did
    pub lost: Option<&'a str>,
    /// sentences, each once
    pub warnings: Vec<String>,
}

/// # Errors
/// There was no test at all.
pub async fn run(
    target: &TestTarget,
    each: &[Terms],
    disk: &Rc<TestDisk>,
    stop: &Notify,
    watch: &dyn Fn(&Terms) -> Box<dyn TestWatch>,
) -> Result<ModeResults, TestFailure> {
    let mut modes = ModeResults::default();
    for terms in each {
        match client::run(target, terms, disk.clone(), stop, &*watch(terms)).await {
            // What was measured before stands.
            Err(TestFailure::Interrupted) if !modes.outcomes.is_empty() => modes.interrupted = true,
            Err(TestFailure::Failed(why) | TestFailure::Silent(why)) if !modes.outcomes.is_empty() => {
                modes.lost = Some(why)
            }
            outcome => {
                let outcome = outcome?;
                modes.interrupted = outcome.interrupted.is_some();
                modes.lost.clone_from(&outcome.lost);
                modes.outcomes.push(outcome);
            }
        }
        if modes.interrupted || modes.lost.is_some() {
            break;
        }
    }
    Ok(modes)
}

impl ModeResults {
    /// Each sentence once.
    pub fn warnings(&self) -> Vec<String> {
        let all: std::collections::BTreeSet<String> = self.outcomes.iter().flat_map(report::warnings).collect();
        all.into_iter().collect()
    }

    pub fn json(&self, line_rate: Option<units::quantities::Rate>) -> Json {
        json!(ModesReport {
            schema: MODES_SCHEMA,
            tests: self.outcomes.iter().map(|outcome| report::report(outcome, line_rate)).collect(),
            interrupted: self.interrupted,
            lost: self.lost.as_deref(),
            warnings: self.warnings(),
        })
    }

    pub fn text(&self) -> String {
        let header = [
            "mode",
            "MBytes/s",
            "flushes",
            "response p50",
            "mean",
            "p99",
            "max",
            "confirmed p50",
            "tracked",
            "sent again",
            "limited by",
        ];
        let rows: Vec<_> = self.outcomes.iter().flat_map(rows).collect();
        let mut out = self.outcomes.first().map_or_else(String::new, report::head_of_modes);
        out += &format!("\n{}", table(&header.map(str::to_owned), &rows));
        out += "response: what a writer waits; confirmed: until it is durable at the far end\n";
        if self.interrupted {
            out += "interrupted: this is what there was until then\n";
        }
        out
    }
}

/// One for each direction.
fn rows(outcome: &TestOutcome) -> Vec<Vec<String>> {
    let row = |(number, summary): (usize, &report::DirectionSummary<'_>)| {
        let sent = summary.sent;
        let is_back = number == 1 || outcome.terms.direction == TestDirection::Reverse;
        vec![
            format!("{}{}", outcome.terms.mode.word(), if is_back { ", from the far end" } else { "" }),
            format!("{:.3}", summary.bytes_per_s() / 1e6),
            sent.flushes.to_string(),
            us(sent.response_us.at(0.5)),
            us(sent.response_us.mean() as u64),
            us(sent.response_us.at(0.99)),
            us(sent.response_us.max()),
            us(sent.confirmed_us.at(0.5)),
            sent.tracked_flushes.to_string(),
            show_share(summary.loss_share()),
            summary.verdict().word.to_owned(),
        ]
    };
    report::summaries(outcome, None).iter().enumerate().map(row).collect()
}
