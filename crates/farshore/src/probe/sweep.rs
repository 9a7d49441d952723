//! `link sweep`: which socket buffers the line wants. Doubled until two sizes bring nothing; the knee is the smallest that
//! comes as close to the best as the tolerance says.

use std::rc::Rc;
use std::time::Duration;

use plan::answer::table;
use plan::picture::{COLOURS, Chart, Line, Scale};
use plan::units::show_share;
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

use super::Trouble;
use super::client::{self, Target, Watch};
use super::disk::Disk;
use super::report::{self, rate, size, us};
use super::terms::{Mode, Sockets, Terms};

pub const SWEEP_SCHEMA: &str = "farshore-link-sweep/1";
/// Where sweeps begin, and the least that is recommended: IBM's "TCP Tuning" for HADR asks for no less.
pub const LEAST_BYTES: u64 = 64 << 10;
/// The most that is recommended, by the same page.
pub const MOST_BYTES: u64 = 32 << 20;
/// Sizes in a row that have to bring nothing.
const FLAT_IN_A_ROW: usize = 2;
/// A round trip under load that is this much longer than the idle one is a queue.
const QUEUE_SHARE: f64 = 0.5;

/// What to try.
#[derive(Clone, Debug)]
pub struct Plan {
    pub from_bytes: u64,
    pub to_bytes: u64,
    /// Of each size.
    pub time: Duration,
    /// What counts as no gain.
    pub tolerance: f64,
    pub largest_flush: u64,
    pub sockets: Sockets,
    pub timeout: Duration,
}

impl Plan {
    /// # Errors
    /// A sentence: which term is out of bounds.
    pub fn check(&self) -> Result<(), String> {
        if self.from_bytes > self.to_bytes {
            return Err(format!("--from {} is above --to {}", size(self.from_bytes), size(self.to_bytes)));
        }
        if !(0.001..=0.5).contains(&self.tolerance) {
            return Err("--tolerance: use 0.1% to 50%".to_owned());
        }
        [self.from_bytes, self.to_bytes].into_iter().try_for_each(|bytes| self.terms(Some(bytes)).check())
    }

    fn terms(&self, bytes: Option<u64>) -> Terms {
        let sockets = Sockets { send_bytes: bytes, receive_bytes: bytes, ..self.sockets.clone() };
        let (time_s, timeout_s) = (self.time.as_secs_f64(), self.timeout.as_secs_f64());
        Terms { mode: Mode::Catchup, time_s, timeout_s, sockets, ..Terms::default() }
    }
}

/// One setting of the sockets, measured.
#[derive(Clone, Debug)]
pub struct Point {
    /// `None`: the kernel's autotuning.
    pub asked_bytes: Option<u64>,
    pub paced_bytes_per_s: Option<u64>,
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

/// A sweep and what follows from it.
#[derive(Clone, Debug)]
pub struct Sweep {
    pub address: String,
    pub congestion: String,
    pub idle_rtt_us: u64,
    pub points: Vec<Point>,
    /// Autotuning, and autotuning paced at the plateau.
    pub others: Vec<Point>,
    pub tolerance: f64,
    pub largest_flush: u64,
    pub interrupted: bool,
    /// Why it did not come to its end.
    pub lost: Option<String>,
}

/// Sweeps until two sizes bring nothing, then tries what the kernel does by itself.
///
/// # Errors
/// There was no test, or one was lost.
pub async fn run(
    target: &Target,
    plan: &Plan,
    stop: &Notify,
    watch: &dyn Fn(&str) -> Box<dyn Watch>,
) -> Result<Sweep, Trouble> {
    let mut sweep = Sweep {
        address: target.address.clone(),
        congestion: String::new(),
        idle_rtt_us: u64::MAX,
        points: Vec::new(),
        others: Vec::new(),
        tolerance: plan.tolerance,
        largest_flush: plan.largest_flush,
        interrupted: false,
        lost: None,
    };
    match points(target, plan, stop, watch, &mut sweep).await {
        // What was measured before stands.
        Err(Trouble::Interrupted) if !sweep.points.is_empty() => sweep.interrupted = true,
        Err(Trouble::Failed(why) | Trouble::Silent(why)) if !sweep.points.is_empty() => sweep.lost = Some(why),
        result => result?,
    }
    Ok(sweep)
}

async fn points(
    target: &Target,
    plan: &Plan,
    stop: &Notify,
    watch: &dyn Fn(&str) -> Box<dyn Watch>,
    sweep: &mut Sweep,
) -> Result<(), Trouble> {
    let mut bytes = plan.from_bytes;
    while bytes <= plan.to_bytes && !sweep.interrupted && !sweep.is_flat() {
        let sockets = Sockets { send_bytes: Some(bytes), receive_bytes: Some(bytes), ..plan.sockets.clone() };
        let point = measure(target, plan, sockets, stop, &*watch(&size(bytes)), sweep).await?;
        sweep.points.push(point);
        bytes *= 2;
    }
    let auto = Sockets { autotuned: true, ..plan.sockets.clone() };
    if !sweep.interrupted {
        let point = measure(target, plan, auto.clone(), stop, &*watch("auto"), sweep).await?;
        sweep.others.push(point);
    }
    if !sweep.interrupted {
        // With the headers of its packets that is a few percent below the line's rate: nothing has to queue.
        let paced = Sockets { pacing_bytes_per_s: Some((sweep.plateau() as u64).max(1000)), ..auto };
        let point = measure(target, plan, paced, stop, &*watch("paced"), sweep).await?;
        sweep.others.push(point);
    }
    Ok(())
}

async fn measure(
    target: &Target,
    plan: &Plan,
    sockets: Sockets,
    stop: &Notify,
    watch: &dyn Watch,
    sweep: &mut Sweep,
) -> Result<Point, Trouble> {
    let terms = Terms { sockets, ..plan.terms(None) };
    let outcome = client::run(target, &terms, Rc::new(Disk::None), stop, watch).await?;
    if let Some(why) = &outcome.lost {
        return Err(Trouble::failed(format!("the sweep with {} did not come to its end: {why}", target.address)));
    }
    sweep.interrupted |= outcome.interrupted.is_some();
    sweep.idle_rtt_us = sweep.idle_rtt_us.min(outcome.idle_us.at(0.5));
    sweep.congestion.clone_from(&outcome.near.socket.congestion);
    let stories = report::stories(&outcome, None);
    let story = stories.first().ok_or_else(|| Trouble::failed("the test has nothing to tell"))?;
    Ok(Point {
        asked_bytes: terms.sockets.send_bytes,
        paced_bytes_per_s: terms.sockets.pacing_bytes_per_s,
        granted_bytes: outcome.near.socket.send.connected_bytes,
        window_bytes: outcome.near.socket.send.window_bytes,
        bytes_per_s: story.bytes_per_s(),
        idle_rtt_us: outcome.idle_us.at(0.5),
        loaded_rtt_us: story.sent.rtt_us.mean() as u64,
        buffer_delay_share: story.rfc6349().buffer_delay_share,
        loss_share: story.loss_share(),
        limiter: story.verdict().word,
        warnings: report::warnings(&outcome),
    })
}

impl Sweep {
    /// The best of all sizes, bytes a second.
    pub fn plateau(&self) -> f64 {
        self.points.iter().map(|point| point.bytes_per_s).fold(0.0, f64::max)
    }

    /// The last sizes brought nothing beyond the best before them.
    fn is_flat(&self) -> bool {
        let Some(split) = self.points.len().checked_sub(FLAT_IN_A_ROW).filter(|split| *split > 0) else { return false };
        let before = self.points[..split].iter().map(|point| point.bytes_per_s).fold(0.0, f64::max);
        self.points[split..].iter().all(|point| point.bytes_per_s <= before * (1.0 + self.tolerance))
    }

    /// The smallest size that is within the tolerance of the best.
    pub fn knee(&self) -> Option<&Point> {
        self.points.iter().find(|point| point.bytes_per_s >= self.plateau() * (1.0 - self.tolerance))
    }

    /// What the line could carry with that window: min(plateau, window / round trip), bytes a second.
    pub fn formula(&self, point: &Point) -> f64 {
        let rtt_s = self.idle_rtt_us.max(1) as f64 / 1e6;
        (point.window_bytes as f64 / rtt_s).min(self.plateau())
    }

    /// Twice the knee, for the day that is worse; no less than a flush, nor than 64 KiB; no more than 32 MiB.
    pub fn recommended_bytes(&self) -> Option<u64> {
        let knee = self.knee()?.asked_bytes?;
        Some((2 * knee).max(self.largest_flush).clamp(LEAST_BYTES, MOST_BYTES))
    }

    /// What to set, each with its reason.
    pub fn advice(&self) -> Vec<String> {
        let (Some(bytes), Some(knee)) = (self.recommended_bytes(), self.knee()) else { return Vec::new() };
        let mut advice = vec![format!(
            "buffers = {} on both nodes: twice the knee of {}, at least the largest flush ({}) and 64 KiB, at most 32 MiB",
            crate::config::units::size_text(bytes),
            knee.asked_bytes.map_or_else(|| "auto".to_owned(), size),
            size(self.largest_flush),
        )];
        let good = |point: &Point| point.bytes_per_s >= self.plateau() * (1.0 - self.tolerance);
        let best = self.points.iter().find(|point| point.asked_bytes == Some(bytes)).or(Some(knee));
        for other in &self.others {
            let name = if other.paced_bytes_per_s.is_some() { "autotuning with pacing" } else { "autotuning" };
            let beside = format!("{} at {} under load", rate(other.bytes_per_s), us(other.loaded_rtt_us));
            let fixed = best.map_or(0, |point| point.loaded_rtt_us);
            // Pacing pays with its few percent for the short queue.
            let carries =
                good(other) || (other.paced_bytes_per_s.is_some() && other.bytes_per_s >= self.plateau() * 0.9);
            advice.push(match (carries, other.loaded_rtt_us < fixed) {
                (true, true) => format!("{name} does better: {beside}, where that size has {}", us(fixed)),
                (true, false) => {
                    format!("{name} carries as much with no shorter queue: {beside}, where that size has {}", us(fixed))
                }
                (false, _) => format!("{name} carries less: {beside}"),
            });
        }
        if best.is_some_and(|point| point.buffer_delay_share > QUEUE_SHARE) {
            let pace = crate::config::units::rate_text((self.plateau() * 8.0 / 1000.0) as u64 * 1000);
            advice.push(format!(
                "that size fills queues on the way: pacing = {pace} or congestion = \"bbr\" keeps them short"
            ));
        }
        advice
    }

    pub fn json(&self) -> Json {
        let point = |point: &Point| {
            json!({
                "requested_bytes": point.asked_bytes, "paced_bytes_per_s": point.paced_bytes_per_s,
                "granted_bytes": point.granted_bytes, "window_bytes": point.window_bytes,
                "bytes_per_s": point.bytes_per_s, "formula_bytes_per_s": self.formula(point),
                "rtt_s": point.idle_rtt_us as f64 / 1e6, "loaded_rtt_s": point.loaded_rtt_us as f64 / 1e6,
                "buffer_delay_share": point.buffer_delay_share, "loss_share": point.loss_share, "limiter": point.limiter,
            })
        };
        let loss = self.points.last().map_or(0.0, |point| point.loss_share);
        json!({
            "schema": SWEEP_SCHEMA,
            "start": { "address": self.address, "congestion": self.congestion, "rtt_s": self.idle_rtt_us as f64 / 1e6 },
            "sweep": self.points.iter().map(point).collect::<Vec<_>>(),
            "others": self.others.iter().map(point).collect::<Vec<_>>(),
            "end": {
                "plateau_bytes_per_s": self.plateau(), "knee_bytes": self.knee().and_then(|knee| knee.asked_bytes),
                "recommended_bytes": self.recommended_bytes(), "loss_share": loss, "tolerance": self.tolerance,
            },
            "advice": self.advice(), "interrupted": self.interrupted, "lost": self.lost, "warnings": self.warnings(),
        })
    }

    /// Each sentence once.
    pub fn warnings(&self) -> Vec<String> {
        let all: std::collections::BTreeSet<&String> =
            self.points.iter().chain(&self.others).flat_map(|point| &point.warnings).collect();
        all.into_iter().cloned().collect()
    }

    pub fn text(&self) -> String {
        let header = [
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
        let knee = self.knee().and_then(|knee| knee.asked_bytes);
        let row = |point: &Point| {
            let name = match (point.asked_bytes, point.paced_bytes_per_s) {
                (Some(bytes), _) => size(bytes),
                (None, None) => "auto".to_owned(),
                (None, Some(pace)) => format!("auto, paced {}", rate(pace as f64)),
            };
            let formula = self.formula(point);
            let off = (point.bytes_per_s / formula.max(1.0) - 1.0) * 100.0;
            let mark = if knee.is_some() && point.asked_bytes == knee { "<- knee" } else { "" };
            vec![
                name,
                size(point.granted_bytes),
                size(point.window_bytes),
                format!("{:.3}", point.bytes_per_s / 1e6),
                format!("{:.3}", formula / 1e6),
                format!("{off:+.1} %"),
                us(point.loaded_rtt_us),
                show_share(point.buffer_delay_share),
                show_share(point.loss_share),
                point.limiter.to_owned(),
                mark.to_owned(),
            ]
        };
        let rows: Vec<_> = self.points.iter().chain(&self.others).map(row).collect();
        let mut out = format!(
            "{}, congestion control {}, idle round trip {}\n\n{}\n",
            self.address,
            self.congestion,
            us(self.idle_rtt_us),
            table(&header.map(str::to_owned), &rows)
        );
        out += "formula: min(plateau, window / idle round trip); granted as the kernel counts, twice what it grants\n";
        out += &format!(
            "plateau {}, bandwidth-delay product {}\n",
            rate(self.plateau()),
            size((self.plateau() * self.idle_rtt_us as f64 / 1e6) as u64)
        );
        out += &self.advice().iter().map(|line| format!("advice: {line}\n")).collect::<String>();
        if self.interrupted {
            out += "interrupted: this is what there was until then\n";
        }
        out
    }

    /// What came of each size, and what it did to the round trip.
    pub fn charts(&self) -> Vec<Chart> {
        let curve = |of: &dyn Fn(&Point) -> f64| -> Vec<(f64, f64)> {
            self.points.iter().filter_map(|point| Some((point.asked_bytes? as f64, of(point)))).collect()
        };
        let auto = self.others.iter().find(|point| point.paced_bytes_per_s.is_none());
        let limit = |name: &str, of: &dyn Fn(&Point) -> f64| auto.map(|auto| (name.to_owned(), of(auto)));
        let idle_s = self.idle_rtt_us as f64 / 1e6;
        let loaded = |point: &Point| point.loaded_rtt_us as f64 / 1e6;
        vec![
            Chart {
                id: "sweep-rate",
                title: format!("What each buffer size carries, {} at {}", self.congestion, us(self.idle_rtt_us)),
                x: (Scale::Bytes, "socket buffer requested, on all four sockets"),
                y: (Scale::Rate, "received"),
                lines: vec![
                    Line::new("measured", COLOURS[0], curve(&|point| point.bytes_per_s)),
                    Line::new("min(plateau, window / round trip)", COLOURS[1], curve(&|point| self.formula(point)))
                        .dashed(),
                ],
                limits: limit("autotuning", &|point| point.bytes_per_s).into_iter().collect(),
            },
            Chart {
                id: "sweep-round-trip",
                title: format!("What each buffer size does to the round trip, {}", self.congestion),
                x: (Scale::Bytes, "socket buffer requested, on all four sockets"),
                y: (Scale::Time, "round trip"),
                lines: vec![
                    Line::new("under load", COLOURS[0], curve(&loaded)),
                    Line::new("idle", COLOURS[2], curve(&|_| idle_s)).dashed(),
                ],
                limits: limit("autotuning", &loaded).into_iter().collect(),
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(asked: Option<u64>, mb: f64, loaded_ms: u64) -> Point {
        Point {
            asked_bytes: asked,
            paced_bytes_per_s: None,
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

    /// The table of IBM's "TCP Tuning" page for HADR, with its link of 32 ms.
    fn ibm() -> Sweep {
        let rates = [1.554048, 3.347476, 4.734673, 4.834047, 4.821998];
        let points = rates.iter().enumerate().map(|(n, mb)| point(Some(LEAST_BYTES << n), *mb, 33 + 30 * n as u64));
        Sweep {
            address: "far:7338".into(),
            congestion: "cubic".into(),
            idle_rtt_us: 32_000,
            points: points.collect(),
            others: vec![point(None, 4.83, 225)],
            tolerance: 0.03,
            largest_flush: 64 << 10,
            interrupted: false,
            lost: None,
        }
    }

    #[test]
    fn the_papers_table_has_its_knee_and_its_advice() {
        let sweep = ibm();
        assert!(sweep.is_flat(), "512 KiB and 1 MiB bring nothing");
        assert_eq!(sweep.knee().and_then(|knee| knee.asked_bytes), Some(256 << 10));
        assert_eq!(sweep.recommended_bytes(), Some(512 << 10), "as the page recommends");
        let formulas: Vec<_> = sweep.points.iter().map(|point| sweep.formula(point) / 1e6).collect();
        for (formula, known) in formulas.iter().zip([2.048, 4.096, 4.834, 4.834, 4.834]) {
            assert!((formula - known).abs() < 0.001, "{formulas:?}");
        }
        let text = sweep.text();
        assert!(text.contains("<- knee") && text.contains("buffers = 512KiB"), "{text}");
        assert!(text.contains("pacing = 38672kbit/s or congestion"), "{text}");
        assert!(text.contains("autotuning carries as much with no shorter queue"), "{text}");
        assert_eq!(sweep.json()["end"]["knee_bytes"], 256 << 10);
        assert_eq!(sweep.charts().len(), 2);
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
        sweep.points.clear();
        assert!(sweep.recommended_bytes().is_none() && sweep.advice().is_empty());
    }
}
