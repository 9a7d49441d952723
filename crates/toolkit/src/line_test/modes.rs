//! `link test --mode all`: one mode after the other on the same line, side by side.

use std::rc::Rc;

use plan::answer::table;
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use units::quantities::show_share;

use super::Trouble;
use super::client::{self, Outcome, Target, Watch};
use super::disk::Disk;
use super::report::{self, us};
use super::terms::{Direction, Terms};

pub const MODES_SCHEMA: &str = "farshore-link-modes/1";

/// What each mode came to; never empty.
#[derive(Clone, Debug, Default)]
pub struct Modes {
    pub outcomes: Vec<Outcome>,
    /// Somebody asked to stop.
    pub interrupted: bool,
    /// Why it did not come to its end.
    pub lost: Option<String>,
}

/// # Errors
/// There was no test at all.
pub async fn run(
    target: &Target,
    each: &[Terms],
    disk: &Rc<Disk>,
    stop: &Notify,
    watch: &dyn Fn(&Terms) -> Box<dyn Watch>,
) -> Result<Modes, Trouble> {
    let mut modes = Modes::default();
    for terms in each {
        match client::run(target, terms, disk.clone(), stop, &*watch(terms)).await {
            // What was measured before stands.
            Err(Trouble::Interrupted) if !modes.outcomes.is_empty() => modes.interrupted = true,
            Err(Trouble::Failed(why) | Trouble::Silent(why)) if !modes.outcomes.is_empty() => modes.lost = Some(why),
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

impl Modes {
    /// Each sentence once.
    pub fn warnings(&self) -> Vec<String> {
        let all: std::collections::BTreeSet<String> = self.outcomes.iter().flat_map(report::warnings).collect();
        all.into_iter().collect()
    }

    pub fn json(&self, line_rate: Option<units::quantities::Rate>) -> Json {
        json!({
            "schema": MODES_SCHEMA,
            "tests": self.outcomes.iter().map(|outcome| report::json(outcome, line_rate)).collect::<Vec<_>>(),
            "interrupted": self.interrupted, "lost": self.lost, "warnings": self.warnings(),
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
            "marked",
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
fn rows(outcome: &Outcome) -> Vec<Vec<String>> {
    let row = |(number, story): (usize, &report::Story<'_>)| {
        let sent = story.sent;
        let is_back = number == 1 || outcome.terms.direction == Direction::Reverse;
        vec![
            format!("{}{}", outcome.terms.mode.word(), if is_back { ", from the far end" } else { "" }),
            format!("{:.3}", story.bytes_per_s() / 1e6),
            sent.flushes.to_string(),
            us(sent.response_us.at(0.5)),
            us(sent.response_us.mean() as u64),
            us(sent.response_us.at(0.99)),
            us(sent.response_us.max()),
            us(sent.confirmed_us.at(0.5)),
            sent.marked_flushes.to_string(),
            show_share(story.loss_share()),
            story.verdict().word.to_owned(),
        ]
    };
    report::stories(outcome, None).iter().enumerate().map(row).collect()
}
