//! `link soak`: a steady load for hours, one test after the other, and a record of each: what was out of the ordinary is kept
//! beside what was not there at all.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use units::quantities::show_share;

use super::TestFailure;
use super::client::{self, TestTarget, TestWatch};
use super::disk::TestDisk;
use super::report::{self, rate, time};
use super::serve::unix_us;
use super::terms::Terms;

pub const SOAK_SCHEMA: &str = "farshore-link-soak/1";
pub const STREAM_SCHEMA: &str = "farshore-link-soak-stream/1";
/// Between two attempts while the line is down.
const AGAIN: Duration = Duration::from_secs(1);
/// A stretch that carries less than this share of what was asked for is out of the ordinary.
const SLOW_SHARE: f64 = 0.9;
/// And one whose slowest hundredth takes so many times the median's.
const LATE_FACTOR: f64 = 3.0;
/// And more than this: waiting for a processor takes milliseconds on a busy machine, many times a line of 0.1 ms. A line that is worth a
/// word takes longer: whose last segment is lost waits 200 ms, or 20 with the least `min_rto`.
const LATE_MIN_S: f64 = 0.01;
/// Stretches before a median says anything.
const ENOUGH: usize = 5;

/// One stretch of the load.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stretch {
    /// seconds since 1970: its begin
    pub unix_s: f64,
    /// seconds under load
    pub seconds: f64,
    /// bytes a second that were received
    pub bytes_per_s: f64,
    /// seconds that a writer waited: the median
    pub response_p50_s: f64,
    /// seconds that a writer waited: 99 of 100 no longer
    pub response_p99_s: f64,
    /// seconds that a writer waited: the longest
    pub response_max_s: f64,
    /// 0 to 1, of the bytes sent: sent again
    pub loss_share: f64,
    /// why it is out of the ordinary; `null`: it is not
    pub outlier: Option<String>,
}

/// A time without a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LineOutage {
    /// seconds since 1970: when it was noticed
    pub unix_s: f64,
    /// seconds until the next test began
    pub seconds: f64,
    /// a sentence
    pub reason: String,
}

/// What `link soak --json` prints. The comments of fields are the manual's words: docs/book/json.md is made from them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SoakReport<'a> {
    /// name and version of this schema
    pub schema: &'static str,
    /// what was asked for
    pub start: SoakStart,
    /// one for each test, oldest first
    pub stretches: &'a [Stretch],
    /// oldest first
    pub outages: &'a [LineOutage],
    /// somebody here asked to stop
    pub interrupted: bool,
    /// bytes a second: median of the stretches
    pub median_bytes_per_s: f64,
    /// seconds: median of the stretches' `response_p99_s`
    pub median_response_p99_s: f64,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SoakStart {
    /// address of the far end
    pub address: String,
    /// terms of each test
    pub terms: Terms,
}

impl SoakStart {
    pub fn new(address: &str, terms: &Terms) -> SoakStart {
        SoakStart { address: address.to_owned(), terms: terms.clone() }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Soak {
    pub stretches: Vec<Stretch>,
    pub outages: Vec<LineOutage>,
    pub interrupted: bool,
}

/// Told of each record, a `stretch` or an `outage`, as soon as there is one.
pub trait RecordSink {
    /// # Errors
    /// A sentence: it could not be kept.
    fn keep(&self, what: &'static str, record: Json) -> Result<(), String>;
}

/// Tests of `terms` one after the other until `length` is over or `stop` is notified.
///
/// # Errors
/// The first test could not be made, or a record could not be kept. What is lost later is an outage.
pub async fn run(
    target: &TestTarget,
    terms: &Terms,
    length: Duration,
    stop: &Notify,
    watch: &dyn TestWatch,
    keep: &dyn RecordSink,
) -> Result<Soak, TestFailure> {
    let (mut soak, began) = (Soak::default(), Instant::now());
    let mut down: Option<(Instant, f64, String)> = None;
    while let Some(left) = length.checked_sub(began.elapsed()).filter(|left| *left > Duration::from_millis(100)) {
        let part = Terms { time_s: terms.time_s.min(left.as_secs_f64()), ..terms.clone() };
        let unix_s = unix_us() as f64 / 1e6;
        let result = client::run(target, &part, Rc::new(TestDisk::None), stop, watch).await;
        let (outcome, lost) = match result {
            Ok(mut outcome) => {
                let lost = outcome.lost.take();
                (Some(outcome), lost)
            }
            Err(trouble) if soak.stretches.is_empty() && down.is_none() => return Err(trouble),
            Err(TestFailure::Interrupted) => {
                soak.interrupted = true;
                break;
            }
            Err(trouble) => (None, Some(trouble.sentence())),
        };
        let interrupted = outcome.as_ref().and_then(|outcome| outcome.interrupted);
        // At the far end somebody serves anew, or no more, which is an outage.
        soak.interrupted |= matches!(interrupted, Some("here" | client::TWICE));
        if let Some(why) = lost {
            if interrupted != Some(client::TWICE) {
                down.get_or_insert((Instant::now(), unix_us() as f64 / 1e6, why));
            }
            if soak.interrupted {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => continue,
                () = stop.notified() => { soak.interrupted = true; break }
            }
        }
        let Some(outcome) = outcome else { continue };
        soak.back(&mut down, Duration::from_secs_f64(part.time_s), keep)?;
        if let Some(summary) = report::summaries(&outcome, None).first() {
            let stretch = soak.rated(unix_s, summary, terms.target_bytes_per_s);
            keep.keep("stretch", json!(stretch)).map_err(TestFailure::failed)?;
            soak.stretches.push(stretch);
        }
        if soak.interrupted {
            break;
        }
    }
    soak.back(&mut down, Duration::ZERO, keep)?;
    Ok(soak)
}

impl Soak {
    /// The line is there again: a test of this length has just come to its end.
    fn back(
        &mut self,
        down: &mut Option<(Instant, f64, String)>,
        test: Duration,
        keep: &dyn RecordSink,
    ) -> Result<(), TestFailure> {
        let Some((since, unix_s, reason)) = down.take() else { return Ok(()) };
        let outage = LineOutage { unix_s, seconds: since.elapsed().saturating_sub(test).as_secs_f64(), reason };
        keep.keep("outage", json!(outage)).map_err(TestFailure::failed)?;
        self.outages.push(outage);
        Ok(())
    }

    fn rated(&self, unix_s: f64, summary: &report::DirectionSummary<'_>, target: Option<f64>) -> Stretch {
        let at = |q| summary.sent.response_us.at(q) as f64 / 1e6;
        let mut stretch = Stretch {
            unix_s,
            seconds: summary.sent.seconds,
            bytes_per_s: summary.bytes_per_s(),
            response_p50_s: at(0.5),
            response_p99_s: at(0.99),
            response_max_s: summary.sent.response_us.max() as f64 / 1e6,
            loss_share: summary.loss_share(),
            outlier: None,
        };
        stretch.outlier = self.outlier(&stretch, target);
        stretch
    }

    fn outlier(&self, new: &Stretch, target: Option<f64>) -> Option<String> {
        let usual = |of: fn(&Stretch) -> f64| (self.stretches.len() >= ENOUGH).then(|| self.median(of));
        let slower = |wanted: f64| new.bytes_per_s < wanted * SLOW_SHARE;
        if let Some(asked) = target.filter(|asked| slower(*asked)) {
            return Some(format!("carried {} where {} was asked for", rate(new.bytes_per_s), rate(asked)));
        }
        if let Some(usual) = usual(|stretch| stretch.bytes_per_s).filter(|usual| slower(*usual)) {
            return Some(format!("carried {} where {} is usual", rate(new.bytes_per_s), rate(usual)));
        }
        let is_late = |usual: &f64| new.response_p99_s > (usual * LATE_FACTOR).max(LATE_MIN_S);
        let late = usual(|stretch| stretch.response_p99_s).filter(is_late)?;
        Some(format!("1 in 100 waited {} where {} is usual", time(new.response_p99_s), time(late)))
    }

    fn median(&self, of: fn(&Stretch) -> f64) -> f64 {
        let mut values: Vec<f64> = self.stretches.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    }

    pub fn needs_attention(&self) -> bool {
        !self.outages.is_empty() || self.stretches.iter().any(|stretch| stretch.outlier.is_some())
    }

    pub fn text(&self) -> String {
        let tested_s: f64 = self.stretches.iter().map(|stretch| stretch.seconds).sum();
        let down_s: f64 = self.outages.iter().map(|outage| outage.seconds).sum();
        let worst = |of: fn(&Stretch) -> f64| self.stretches.iter().map(of).fold(0.0, f64::max);
        let slowest = self.stretches.iter().map(|stretch| stretch.bytes_per_s).fold(f64::INFINITY, f64::min);
        let many = if self.stretches.len() == 1 { "stretch" } else { "stretches" };
        let mut out = format!("{} {many}, {} under load\n", self.stretches.len(), time(tested_s));
        if !self.stretches.is_empty() {
            out += &format!(
                "rate        {} in the middle, {} at the slowest\n",
                rate(self.median(|s| s.bytes_per_s)),
                rate(slowest)
            );
            out += &format!(
                "response    p50 {} and p99 {} in the middle; worst p99 {}, longest {}\n",
                time(self.median(|s| s.response_p50_s)),
                time(self.median(|s| s.response_p99_s)),
                time(worst(|s| s.response_p99_s)),
                time(worst(|s| s.response_max_s)),
            );
            out += &format!("sent again  {} at worst\n", show_share(worst(|s| s.loss_share)));
        }
        out += &format!("outages     {}, {} in all\n", self.outages.len(), time(down_s));
        for outage in &self.outages {
            out += &format!("  {}  {}: {}\n", moment(outage.unix_s), time(outage.seconds), outage.reason);
        }
        let outliers: Vec<_> = self.stretches.iter().filter_map(|s| Some((s.unix_s, s.outlier.as_ref()?))).collect();
        out += &format!("outliers    {}\n", outliers.len());
        for (unix_s, why) in outliers {
            out += &format!("  {}  {why}\n", moment(unix_s));
        }
        if self.interrupted {
            out += "interrupted: this is what there was until then\n";
        }
        out
    }

    pub fn json(&self, target: &TestTarget, terms: &Terms) -> Json {
        json!(SoakReport {
            schema: SOAK_SCHEMA,
            start: SoakStart::new(&target.address, terms),
            stretches: &self.stretches,
            outages: &self.outages,
            interrupted: self.interrupted,
            median_bytes_per_s: self.median(|s| s.bytes_per_s),
            median_response_p99_s: self.median(|s| s.response_p99_s),
        })
    }
}

/// In UTC, to the second.
fn moment(unix_s: f64) -> String {
    jiff::Timestamp::from_second(unix_s as i64).map_or_else(|_| "?".to_owned(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(mb: f64, p99_s: f64) -> Stretch {
        Stretch {
            unix_s: 1_795_000_000.0,
            seconds: 60.0,
            bytes_per_s: mb * 1e6,
            response_p50_s: p99_s / 2.0,
            response_p99_s: p99_s,
            response_max_s: p99_s * 2.0,
            loss_share: 0.0,
            outlier: None,
        }
    }

    #[test]
    fn what_is_out_of_the_ordinary_is_reported() {
        let mut soak = Soak::default();
        assert_eq!(soak.outlier(&stretch(1.0, 9.0), None), None, "nothing is usual yet");
        assert!(soak.outlier(&stretch(0.8, 0.05), Some(1e6)).is_some_and(|why| why.contains("800 kB/s")));
        soak.stretches = vec![stretch(4.6, 0.05); 6];
        assert_eq!(soak.outlier(&stretch(4.5, 0.06), None), None);
        assert!(soak.outlier(&stretch(4.6, 0.2), None).is_some_and(|why| why.contains("waited 200 ms")));
        assert!(soak.outlier(&stretch(2.0, 0.05), None).is_some_and(|why| why.contains("carried 2 MB/s")));
        let short = Soak { stretches: vec![stretch(100.0, 0.000_1); 6], ..Soak::default() };
        assert_eq!(short.outlier(&stretch(100.0, 0.009), None), None, "a processor was waited for, not the line");
        assert!(short.outlier(&stretch(100.0, 0.021), None).is_some_and(|why| why.contains("waited 21 ms")));
        assert!(!soak.needs_attention());
        soak.outages.push(LineOutage {
            unix_s: 1_795_000_000.0,
            seconds: 30.0,
            reason: "the connection was lost".into(),
        });
        assert!(soak.needs_attention() && soak.text().contains("2026-11-18T"), "{}", soak.text());
    }
}
