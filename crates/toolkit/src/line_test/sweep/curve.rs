//! What one congestion control made of each size: the plateau, the knee, and what follows from them.

use plan::answer::table;
use serde::Serialize;
use serde_json::{Value as Json, json};
use units::quantities::show_share;

use super::plan::{ALIKE_FACTOR, LEAST_BYTES, MOST_BYTES, Setting, SweepPlan, pace_text};
use crate::line_test::client::TestOutcome;
use crate::line_test::report::{self, DirectionSummary, rate, size, us};

pub const SWEEP_SCHEMA: &str = "farshore-link-sweep/1";
/// Sizes in a row that have to bring nothing.
const FLAT_IN_A_ROW: usize = 2;
/// A round trip under load that is this much longer than the idle one is a queue.
const QUEUE_SHARE: f64 = 0.5;

/// One test of a setting.
#[derive(Clone, Debug)]
pub struct MeasuredSetting {
    pub granted_bytes: u64,
    /// What the receiver let the sender have on its way, at most.
    pub window_bytes: u64,
    pub bytes_per_s: f64,
    pub idle_rtt_us: u64,
    pub loaded_rtt_us: u64,
    pub buffer_delay_share: f64,
    pub loss_share: f64,
    pub limiter: &'static str,
    pub warnings: Vec<String>,
}

impl MeasuredSetting {
    pub fn of(outcome: &TestOutcome, summary: &DirectionSummary<'_>) -> MeasuredSetting {
        MeasuredSetting {
            granted_bytes: outcome.near.socket.send.connected_bytes,
            window_bytes: outcome.near.socket.send.window_bytes,
            bytes_per_s: summary.bytes_per_s(),
            idle_rtt_us: outcome.idle_us.at(0.5),
            loaded_rtt_us: summary.sent.rtt_us.mean() as u64,
            buffer_delay_share: summary.rfc6349().buffer_delay_share,
            loss_share: summary.loss_share(),
            limiter: summary.verdict().word,
            warnings: report::warnings(outcome),
        }
    }
}

/// One setting, measured in each round.
#[derive(Clone, Debug)]
pub struct SweepPoint {
    pub setting: Setting,
    /// In the order of the rounds; never empty.
    pub rounds: Vec<MeasuredSetting>,
}

impl SweepPoint {
    /// The round with the middle rate: all its figures belong together. Of two, the lower.
    pub fn median(&self) -> &MeasuredSetting {
        let mut by_rate: Vec<&MeasuredSetting> = self.rounds.iter().collect();
        by_rate.sort_by(|one, other| one.bytes_per_s.total_cmp(&other.bytes_per_s));
        by_rate[(by_rate.len() - 1) / 2]
    }

    pub fn bytes_per_s(&self) -> f64 {
        self.median().bytes_per_s
    }

    pub fn loaded_rtt_us(&self) -> u64 {
        self.median().loaded_rtt_us
    }

    /// From the slowest round to the quickest, in MBytes a second.
    fn range(&self) -> String {
        let rates = || self.rounds.iter().map(|round| round.bytes_per_s / 1e6);
        format!("{:.3} to {:.3}", rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max))
    }

    /// As a program has it: what was asked for, and the figures of one round or of the median.
    pub fn figures(&self, measured: &MeasuredSetting) -> PointFigures {
        PointFigures {
            requested_bytes: self.setting.asked_bytes(),
            paced_bytes_per_s: self.setting.paced_bytes_per_s(),
            granted_bytes: measured.granted_bytes,
            window_bytes: measured.window_bytes,
            bytes_per_s: measured.bytes_per_s,
            rtt_s: measured.idle_rtt_us as f64 / 1e6,
            loaded_rtt_s: measured.loaded_rtt_us as f64 / 1e6,
            buffer_delay_share: measured.buffer_delay_share,
            loss_share: measured.loss_share,
            limiter: measured.limiter,
        }
    }
}

/// What `link sweep --json` prints of one congestion control. The comments of fields are the manual's words: docs/book/json.md is made from
/// them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepReport {
    /// name and version of this schema
    pub schema: &'static str,
    /// what holds for all tests
    pub start: SweepStart,
    /// one for each size of the buffers
    pub sweep: Vec<CurvePoint>,
    /// autotuning, and autotuning with pacing
    pub others: Vec<CurvePoint>,
    /// what follows
    pub end: SweepEnd,
    /// sentences: what to set
    pub advice: Vec<String>,
    /// somebody here asked to stop
    pub interrupted: bool,
    /// a sentence: why the sweep did not come to its end; `null`: it did
    pub lost: Option<String>,
    /// sentences, each once
    pub warnings: Vec<String>,
}

/// What holds for all tests of a sweep.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepStart {
    /// address of the far end
    pub address: String,
    /// congestion control
    pub congestion: String,
    /// seconds: the shortest idle round trip of all tests
    pub rtt_s: f64,
    /// how often each setting was measured at most
    pub rounds: usize,
}

/// A setting, by the round with the middle rate.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CurvePoint {
    #[serde(flatten)]
    pub figures: PointFigures,
    /// bytes a second: min(plateau, window / idle round trip)
    pub formula_bytes_per_s: f64,
    /// bytes a second, in the order of the rounds
    pub rounds_bytes_per_s: Vec<f64>,
}

/// A setting as one test found it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointFigures {
    /// bytes of each buffer; `null`: autotuning
    pub requested_bytes: Option<u64>,
    /// bytes a second; `null`: without pacing
    pub paced_bytes_per_s: Option<u64>,
    /// bytes as the kernel counts, twice what it grants; under autotuning where it began
    pub granted_bytes: u64,
    /// bytes: the largest window of the receiver
    pub window_bytes: u64,
    /// bytes a second that were received
    pub bytes_per_s: f64,
    /// seconds: idle round trip
    pub rtt_s: f64,
    /// seconds: round trip under load
    pub loaded_rtt_s: f64,
    /// how much longer that is, as a share of the idle one
    pub buffer_delay_share: f64,
    /// 0 to 1, of the bytes sent: sent again
    pub loss_share: f64,
    /// what limits it, as `limiter` of `link test`
    pub limiter: &'static str,
}

/// What follows from a sweep.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepEnd {
    /// bytes a second: the best of the fixed sizes
    pub plateau_bytes_per_s: f64,
    /// bytes: the smallest size within the tolerance of that; `null`: not all sizes were tried
    pub knee_bytes: Option<u64>,
    /// bytes to set; `null`: not all sizes were tried
    pub recommended_bytes: Option<u64>,
    /// 0 to 1, of the bytes sent with the largest size: sent again
    pub loss_share: f64,
    /// 0 to 1: what counts as no gain
    pub tolerance: f64,
}

/// Everything that was measured under one congestion control.
#[derive(Clone, Debug)]
pub struct Curve {
    pub address: String,
    /// As asked for; `None`: what the configuration says.
    pub asked: Option<String>,
    /// As used.
    pub congestion: String,
    pub idle_rtt_us: u64,
    pub points: Vec<SweepPoint>,
    /// Autotuning, and autotuning paced at the plateau.
    pub others: Vec<SweepPoint>,
    /// All sizes were tried: before that there is no knee.
    pub is_whole: bool,
    pub tolerance: f64,
    pub largest_flush: u64,
}

impl Curve {
    pub fn new(plan: &SweepPlan, address: &str, asked: Option<String>) -> Curve {
        Curve {
            address: address.to_owned(),
            congestion: asked.clone().unwrap_or_default(),
            asked,
            idle_rtt_us: u64::MAX,
            points: Vec::new(),
            others: Vec::new(),
            is_whole: false,
            tolerance: plan.tolerance,
            largest_flush: plan.largest_flush,
        }
    }

    /// Every setting that was measured, in the order of the table.
    pub fn settings(&self) -> Vec<Setting> {
        self.all().map(|point| point.setting).collect()
    }

    fn all(&self) -> impl Iterator<Item = &SweepPoint> {
        self.points.iter().chain(&self.others)
    }

    /// The point of a setting, once it has been measured.
    pub fn point(&self, setting: Setting) -> Option<&SweepPoint> {
        self.all().find(|point| point.setting == setting)
    }

    /// One more round of a setting.
    pub fn add(&mut self, setting: Setting, measured: MeasuredSetting) {
        let list = if setting.asked_bytes().is_some() { &mut self.points } else { &mut self.others };
        match list.iter_mut().find(|point| point.setting == setting) {
            Some(point) => point.rounds.push(measured),
            None => list.push(SweepPoint { setting, rounds: vec![measured] }),
        }
    }

    /// The best of all sizes, bytes a second.
    pub fn plateau(&self) -> f64 {
        self.points.iter().map(|point| point.bytes_per_s()).fold(0.0, f64::max)
    }

    /// The last sizes brought nothing beyond the best before them.
    pub fn is_flat(&self) -> bool {
        let Some(split) = self.points.len().checked_sub(FLAT_IN_A_ROW).filter(|split| *split > 0) else { return false };
        let before = self.points[..split].iter().map(|point| point.bytes_per_s()).fold(0.0, f64::max);
        self.points[split..].iter().all(|point| point.bytes_per_s() <= before * (1.0 + self.tolerance))
    }

    /// The smallest size that is within the tolerance of the best.
    pub fn knee(&self) -> Option<&SweepPoint> {
        let is_there = |point: &&SweepPoint| point.bytes_per_s() >= self.plateau() * (1.0 - self.tolerance);
        if self.is_whole { self.points.iter().find(is_there) } else { None }
    }

    /// What the line could carry with that window: min(plateau, window / round trip), bytes a second.
    pub fn formula(&self, point: &SweepPoint) -> f64 {
        let rtt_s = self.idle_rtt_us.max(1) as f64 / 1e6;
        (point.median().window_bytes as f64 / rtt_s).min(self.plateau())
    }

    /// Twice the knee, for the day that is worse; no less than a flush, nor than 64 KiB; no more than 32 MiB.
    pub fn recommended_bytes(&self) -> Option<u64> {
        let knee = self.knee()?.setting.asked_bytes()?;
        Some((2 * knee).max(self.largest_flush).clamp(LEAST_BYTES, MOST_BYTES))
    }

    /// The recommended size where it was measured, else the knee.
    pub fn best(&self) -> Option<&SweepPoint> {
        let bytes = self.recommended_bytes()?;
        self.point(Setting::Fixed { bytes }).or(self.knee())
    }

    /// What may be set without knowing the line's rate: that, or autotuning.
    pub fn advisable(&self) -> impl Iterator<Item = &SweepPoint> {
        self.best().into_iter().chain(self.point(Setting::Auto))
    }

    /// What to set, each with its reason.
    pub fn advice(&self) -> Vec<String> {
        let (Some(bytes), Some(knee)) = (self.recommended_bytes(), self.knee()) else {
            return vec!["none: the sweep ended before all sizes were tried".to_owned()];
        };
        let mut advice = vec![format!(
            "buffers = {} on both nodes: twice the knee of {}, at least the largest flush ({}) and 64 KiB, at most 32 MiB",
            units::exact::size_text(bytes),
            knee.setting.name(),
            size(self.largest_flush),
        )];
        let best = self.best();
        let fixed_us = best.map_or(0, SweepPoint::loaded_rtt_us);
        let fixed = best.map_or(String::new(), |point| format!("{} has {}", point.setting.name(), us(fixed_us)));
        for other in &self.others {
            let is_paced = other.setting.paced_bytes_per_s().is_some();
            let name = if is_paced { "autotuning with pacing" } else { "autotuning" };
            let beside = format!("{} at {} under load", rate(other.bytes_per_s()), us(other.loaded_rtt_us()));
            // Pacing pays with its few percent for the short queue.
            let least = if is_paced { 0.9 } else { 1.0 - self.tolerance };
            let carries = other.bytes_per_s() / self.plateau().max(1.0);
            let is_shorter = other.loaded_rtt_us() as f64 * ALIKE_FACTOR < fixed_us as f64;
            advice.push(if carries < least {
                format!("{name} carries less: {beside}")
            } else if carries > 1.0 + self.tolerance {
                format!("{name} carries more than any size that was tried: {beside}, where {fixed}")
            } else if is_shorter {
                format!("{name} does better: {beside}, where {fixed}")
            } else {
                format!("{name} carries as much with no shorter queue: {beside}, where {fixed}")
            });
        }
        if !self.is_flat() {
            let last = self.points.last().map_or(String::new(), |point| point.setting.name());
            advice.push(format!("a larger --to may find more: up to {last} no two sizes in a row brought nothing"));
        }
        if best.is_some_and(|point| point.median().buffer_delay_share > QUEUE_SHARE) {
            let pace = pace_text(self.plateau());
            let other = if self.congestion == "bbr" { "" } else { " or congestion = \"bbr\"" };
            advice.push(format!("that size fills queues on the way: pacing = {pace}{other} keeps them short"));
        }
        advice
    }

    fn rounds(&self) -> usize {
        self.all().map(|point| point.rounds.len()).max().unwrap_or(0)
    }

    /// `interrupted` and `lost` are the whole sweep's.
    pub fn json(&self, interrupted: bool, lost: Option<&str>) -> Json {
        json!(self.report(interrupted, lost))
    }

    /// The same as types.
    pub fn report(&self, interrupted: bool, lost: Option<&str>) -> SweepReport {
        let point = |point: &SweepPoint| CurvePoint {
            figures: point.figures(point.median()),
            formula_bytes_per_s: self.formula(point),
            rounds_bytes_per_s: point.rounds.iter().map(|round| round.bytes_per_s).collect(),
        };
        SweepReport {
            schema: SWEEP_SCHEMA,
            start: SweepStart {
                address: self.address.clone(),
                congestion: self.congestion.clone(),
                rtt_s: self.idle_rtt_us as f64 / 1e6,
                rounds: self.rounds(),
            },
            sweep: self.points.iter().map(point).collect(),
            others: self.others.iter().map(point).collect(),
            end: SweepEnd {
                plateau_bytes_per_s: self.plateau(),
                knee_bytes: self.knee().and_then(|knee| knee.setting.asked_bytes()),
                recommended_bytes: self.recommended_bytes(),
                loss_share: self.points.last().map_or(0.0, |point| point.median().loss_share),
                tolerance: self.tolerance,
            },
            advice: self.advice(),
            interrupted,
            lost: lost.map(str::to_owned),
            warnings: self.warnings(),
        }
    }

    /// Each sentence once.
    pub fn warnings(&self) -> Vec<String> {
        let rounds = self.all().flat_map(|point| &point.rounds);
        let all: std::collections::BTreeSet<&String> = rounds.flat_map(|round| &round.warnings).collect();
        all.into_iter().cloned().collect()
    }

    pub fn text(&self) -> String {
        let mut header = vec![
            "requested",
            "granted",
            "window",
            "MBytes/s",
            "formula",
            "off",
            "loaded",
            "buffer delay",
            "sent again",
            "limiter",
            "",
        ];
        let rounds = self.rounds();
        if rounds > 1 {
            header.insert(4, "rounds");
        }
        let header: Vec<String> = header.into_iter().map(str::to_owned).collect();
        let rows: Vec<_> = self.all().map(|point| self.row(point, rounds > 1)).collect();
        let median = if rounds > 1 { format!(", medians of {rounds} rounds") } else { String::new() };
        let mut out = format!(
            "{}, congestion control {}, idle round trip {}{median}\n\n{}\n",
            self.address,
            self.congestion,
            us(self.idle_rtt_us),
            table(&header, &rows)
        );
        out += "formula: min(plateau, window / idle round trip); granted as the kernel counts, twice what it grants\n";
        out += &format!(
            "plateau {}, bandwidth-delay product {}\n",
            rate(self.plateau()),
            size((self.plateau() * self.idle_rtt_us as f64 / 1e6) as u64)
        );
        out + &self.advice().iter().map(|line| format!("advice: {line}\n")).collect::<String>()
    }

    fn row(&self, point: &SweepPoint, has_rounds: bool) -> Vec<String> {
        let (measured, formula) = (point.median(), self.formula(point));
        let off = (measured.bytes_per_s / formula.max(1.0) - 1.0) * 100.0;
        let is_knee = self.knee().is_some_and(|knee| knee.setting == point.setting);
        let mut row = vec![
            point.setting.name(),
            size(measured.granted_bytes),
            size(measured.window_bytes),
            format!("{:.3}", measured.bytes_per_s / 1e6),
            format!("{:.3}", formula / 1e6),
            format!("{off:+.1} %"),
            us(measured.loaded_rtt_us),
            show_share(measured.buffer_delay_share),
            show_share(measured.loss_share),
            measured.limiter.to_owned(),
            if is_knee { "<- knee" } else { "" }.to_owned(),
        ];
        if has_rounds {
            row.insert(4, point.range());
        }
        row
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn measured(asked: Option<u64>, mb: f64, loaded_ms: u64) -> MeasuredSetting {
        MeasuredSetting {
            granted_bytes: asked.unwrap_or(0) * 2,
            window_bytes: asked.unwrap_or(4 << 20),
            bytes_per_s: mb * 1e6,
            idle_rtt_us: 32_000,
            loaded_rtt_us: loaded_ms * 1000,
            buffer_delay_share: loaded_ms as f64 / 32.0 - 1.0,
            loss_share: 0.0,
            limiter: "network",
            warnings: Vec::new(),
        }
    }

    fn point(asked: Option<u64>, mb: f64, loaded_ms: u64) -> SweepPoint {
        let setting = asked.map_or(Setting::Auto, |bytes| Setting::Fixed { bytes });
        SweepPoint { setting, rounds: vec![measured(asked, mb, loaded_ms)] }
    }

    /// The table of IBM's "TCP Tuning" page for HADR, with its link of 32 ms.
    pub fn ibm() -> Curve {
        let rates = [1.554048, 3.347476, 4.734673, 4.834047, 4.821998];
        let points = rates.iter().enumerate().map(|(n, mb)| point(Some(LEAST_BYTES << n), *mb, 33 + 30 * n as u64));
        Curve {
            address: "far:7338".into(),
            asked: Some("cubic".into()),
            congestion: "cubic".into(),
            idle_rtt_us: 32_000,
            points: points.collect(),
            others: vec![point(None, 4.83, 225)],
            is_whole: true,
            tolerance: 0.03,
            largest_flush: 64 << 10,
        }
    }

    #[test]
    fn the_papers_table_has_its_knee_and_its_advice() {
        let sweep = ibm();
        assert!(sweep.is_flat(), "512 KiB and 1 MiB bring nothing");
        assert_eq!(sweep.knee().and_then(|knee| knee.setting.asked_bytes()), Some(256 << 10));
        assert_eq!(sweep.recommended_bytes(), Some(512 << 10), "as the page recommends");
        let formulas: Vec<_> = sweep.points.iter().map(|point| sweep.formula(point) / 1e6).collect();
        for (formula, known) in formulas.iter().zip([2.048, 4.096, 4.834, 4.834, 4.834]) {
            assert!((formula - known).abs() < 0.001, "{formulas:?}");
        }
        let text = sweep.text();
        assert!(text.contains("<- knee") && text.contains("buffers = 512KiB"), "{text}");
        assert!(text.contains("pacing = 38672kbit/s or congestion"), "{text}");
        let advice = Curve { congestion: "bbr".into(), ..sweep.clone() }.advice().concat();
        assert!(advice.contains("pacing = 38672kbit/s keeps"), "it is in use already: {advice}");
        assert!(text.contains("autotuning carries as much with no shorter queue"), "{text}");
        assert!(text.contains("where 512 KiB has 123 ms"), "{text}");
        let auto = |mb, loaded_ms| Curve { others: vec![point(None, mb, loaded_ms)], ..ibm() }.advice().concat();
        assert!(auto(9.0, 225).contains("autotuning carries more than any size that was tried: 9 MB/s"));
        assert!(auto(4.8, 60).contains("autotuning does better"));
        assert!(auto(4.8, 120).contains("no shorter queue"), "as good as alike");
        assert!(auto(4.0, 40).contains("autotuning carries less"));
        assert_eq!(sweep.json(false, None)["end"]["knee_bytes"], 256 << 10);
    }

    #[test]
    fn a_sweep_goes_on_while_it_gains_and_advice_has_its_bounds() {
        let mut sweep = ibm();
        sweep.points.truncate(4);
        assert!(!sweep.is_flat(), "256 KiB still gained");
        sweep.points.truncate(1);
        assert!(!sweep.is_flat());
        sweep.largest_flush = 1 << 20;
        assert_eq!(sweep.recommended_bytes(), Some(1 << 20), "a flush fits");
        sweep.points = vec![point(Some(64 << 20), 1.0, 40)];
        assert_eq!(sweep.recommended_bytes(), Some(MOST_BYTES));
        assert!(sweep.advice().concat().contains("larger --to may find more: up to 64 MiB"), "{:?}", sweep.advice());
        assert!(!ibm().advice().concat().contains("--to"));
        let part = Curve { is_whole: false, ..ibm() };
        assert!(part.recommended_bytes().is_none() && part.advice().concat().contains("ended before all sizes"));
        assert!(!part.text().contains("<- knee") && part.json(true, None)["end"]["knee_bytes"].is_null());
    }

    #[test]
    fn the_middle_round_speaks_for_all() {
        let mut sweep = ibm();
        let first = Setting::Fixed { bytes: LEAST_BYTES };
        for (mb, loaded_ms) in [(9.0, 90), (1.6, 40)] {
            sweep.add(first, measured(Some(LEAST_BYTES), mb, loaded_ms));
        }
        let point = sweep.point(first).expect("it was measured");
        assert_eq!((point.bytes_per_s(), point.loaded_rtt_us()), (1.6e6, 40_000), "a stray round changes nothing");
        assert_eq!(sweep.knee().and_then(|knee| knee.setting.asked_bytes()), Some(256 << 10));
        let text = sweep.text();
        assert!(text.contains("medians of 3 rounds") && text.contains("1.554 to 9.000"), "{text}");
        let json = sweep.json(false, None);
        assert_eq!(json["sweep"][0]["rounds_bytes_per_s"].as_array().map(Vec::len), Some(3));
        assert_eq!(json["start"]["rounds"], 3);
        sweep.add(first, measured(Some(LEAST_BYTES), 1.5, 33));
        assert_eq!(
            sweep.point(first).map(SweepPoint::bytes_per_s),
            Some(1.554048e6),
            "of four the lower of the middle two"
        );
    }
}
