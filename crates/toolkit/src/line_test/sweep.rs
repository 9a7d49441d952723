//! `link sweep`: which socket buffers the line wants. Doubled until two sizes bring nothing; the knee is the smallest that
//! comes as close to the best as the tolerance says.
//!
//! With several congestion controls each has its own curve; with several rounds each round goes through all of them and all
//! their sizes, so that what changes on the line meanwhile changes for all alike, and the middle round counts.

mod charts;
mod curve;
mod plan;

use std::collections::BTreeSet;
use std::rc::Rc;

use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

pub use charts::charts;
pub use curve::{Curve, MeasuredSetting, PointFigures, SWEEP_SCHEMA, SweepPoint, SweepReport};
use plan::ALIKE_FACTOR;
pub use plan::{LEAST_BYTES, MOST_BYTES, ROUNDS, Setting, SweepPlan};

use super::TestFailure;
use super::client::{self, TestTarget, TestWatch};
use super::disk::TestDisk;
use super::report::{self, rate, us};
use super::terms::Terms;

/// Of several congestion controls.
pub const SWEEPS_SCHEMA: &str = "farshore-link-sweeps/1";
pub const STREAM_SCHEMA: &str = "farshore-link-sweep-stream/1";

/// What was measured, and what follows from it.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// One of each congestion control, as far as they were measured; never empty.
    pub curves: Vec<Curve>,
    pub interrupted: bool,
    /// Why it did not come to its end.
    pub lost: Option<String>,
}

/// What `link sweep --json` prints of several congestion controls. The comments of fields are the manual's words: docs/book/json.md is made
/// from them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepsReport<'a> {
    /// name and version of this schema
    pub schema: &'static str,
    /// one for each congestion control
    pub sweeps: Vec<SweepReport>,
    /// what to take: of those that carry as much as the fastest, the one with the shortest round trip under load; `null`: nothing to compare
    pub best: Option<BestPoint>,
    /// sentences: what to set
    pub advice: Vec<String>,
    /// somebody here asked to stop
    pub interrupted: bool,
    /// a sentence: why the sweep did not come to its end; `null`: it did
    pub lost: Option<&'a str>,
    /// sentences, each once
    pub warnings: Vec<String>,
}

/// A setting of one of several congestion controls.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BestPoint {
    #[serde(flatten)]
    pub figures: PointFigures,
    /// congestion control
    pub congestion: String,
}

/// A test of one round, as it ends.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FoundPoint {
    #[serde(flatten)]
    pub figures: PointFigures,
    /// congestion control
    pub congestion: String,
    /// from 1
    pub round: u32,
}

/// Sweeps until two sizes bring nothing, then tries what the kernel does by itself.
///
/// # Errors
/// There was no test, or the first was lost.
pub async fn run(
    target: &TestTarget,
    plan: &SweepPlan,
    stop: &Notify,
    watch: &dyn Fn(&str) -> Box<dyn TestWatch>,
) -> Result<Sweep, TestFailure> {
    let controls = plan.controls.iter().cloned();
    let curves = controls.map(|control| Curve::new(plan, &target.address, control)).collect();
    let mut sweep = Sweep { curves, ..Sweep::default() };
    let measured = SweepRounds { target, plan, stop, watch }.run(&mut sweep.curves).await;
    sweep.curves.retain(|curve| !curve.points.is_empty());
    match measured {
        // What was measured before stands.
        Err(TestFailure::Interrupted) if !sweep.curves.is_empty() => sweep.interrupted = true,
        Err(TestFailure::Failed(why) | TestFailure::Silent(why)) if !sweep.curves.is_empty() => sweep.lost = Some(why),
        result => sweep.interrupted = !result?,
    }
    Ok(sweep)
}

/// Round after round. Everything here returns whether somebody still wants more.
struct SweepRounds<'a> {
    target: &'a TestTarget,
    plan: &'a SweepPlan,
    stop: &'a Notify,
    watch: &'a dyn Fn(&str) -> Box<dyn TestWatch>,
}

impl SweepRounds<'_> {
    async fn run(&self, curves: &mut [Curve]) -> Result<bool, TestFailure> {
        if curves.len() > 1 {
            self.try_each(curves).await?;
        }
        for round in 1..=self.plan.rounds {
            for curve in &mut *curves {
                let goes_on = if round == 1 { self.first(curve).await? } else { self.again(curve, round).await? };
                if !goes_on {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// A control that one of the kernels has not is told before minutes are spent on the others.
    async fn try_each(&self, curves: &[Curve]) -> Result<(), TestFailure> {
        for curve in curves {
            let terms = Terms { count: Some(1), ..self.plan.terms(Setting::Auto.sockets(curve.asked.as_ref())) };
            let watch = (self.watch)(&format!("trying {}", curve.congestion));
            let outcome = client::run(self.target, &terms, Rc::new(TestDisk::None), self.stop, &*watch).await?;
            match (outcome.lost, outcome.interrupted) {
                (Some(why), _) => return Err(TestFailure::failed(why).of_test_with(&self.target.address)),
                (None, Some(_)) => return Err(TestFailure::Interrupted),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Says by its own figures which settings there are.
    async fn first(&self, curve: &mut Curve) -> Result<bool, TestFailure> {
        let mut bytes = self.plan.from_bytes;
        while bytes <= self.plan.to_bytes && !curve.is_flat() {
            if !self.measure(curve, Setting::Fixed { bytes }, 1).await? {
                return Ok(false);
            }
            bytes *= 2;
        }
        curve.is_whole = true;
        if !self.measure(curve, Setting::Auto, 1).await? {
            return Ok(false);
        }
        // With the headers of its packets that is a few percent below the line's rate: nothing has to queue.
        let paced = Setting::AutoPaced { bytes_per_s: (curve.plateau() as u64).max(1000) };
        self.measure(curve, paced, 1).await
    }

    async fn again(&self, curve: &mut Curve, round: u32) -> Result<bool, TestFailure> {
        for setting in curve.settings() {
            if !self.measure(curve, setting, round).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn measure(&self, curve: &mut Curve, setting: Setting, round: u32) -> Result<bool, TestFailure> {
        let watch = (self.watch)(&self.label(curve, setting, round));
        let terms = self.plan.terms(setting.sockets(curve.asked.as_ref()));
        let outcome = client::run(self.target, &terms, Rc::new(TestDisk::None), self.stop, &*watch).await?;
        if let Some(why) = &outcome.lost {
            let address = &self.target.address;
            return Err(TestFailure::failed(format!("the sweep with {address} did not come to its end: {why}")));
        }
        let summaries = report::summaries(&outcome, None);
        let summary = summaries.first().ok_or_else(|| TestFailure::failed("the test has nothing to tell"))?;
        let is_whole = outcome.interrupted.is_none();
        // Half a test is better than none, and worse than a whole one; from beside a whole curve it would mislead.
        if is_whole || (!curve.is_whole && curve.point(setting).is_none()) {
            curve.idle_rtt_us = curve.idle_rtt_us.min(outcome.idle_us.at(0.5));
            curve.congestion.clone_from(&outcome.near.socket.congestion);
            let measured = MeasuredSetting::of(&outcome, summary);
            curve.add(setting, measured.clone());
            if let Some(point) = curve.point(setting) {
                let (figures, congestion) = (point.figures(&measured), curve.congestion.clone());
                watch.found("point", &json!(FoundPoint { figures, congestion, round }));
            }
        }
        Ok(is_whole && watch.listens())
    }

    fn label(&self, curve: &Curve, setting: Setting, round: u32) -> String {
        let round = if self.plan.rounds == 1 { String::new() } else { format!("{round}/{} ", self.plan.rounds) };
        let control = if self.plan.controls.len() == 1 { String::new() } else { format!("{} ", curve.congestion) };
        format!("{round}{control}{}", setting.name())
    }
}

impl Sweep {
    /// What to take of several congestion controls.
    pub fn advice(&self) -> Vec<String> {
        let is_whole = self.curves.len() > 1 && self.curves.iter().all(|curve| curve.is_whole);
        let Some((winner, first)) = best(&self.curves).filter(|_| is_whole) else { return Vec::new() };
        let point_text = |point: &SweepPoint| {
            let (carried, loaded) = (rate(point.bytes_per_s()), us(point.loaded_rtt_us()));
            format!("{carried} at {loaded} under load with {}", point.setting.as_set())
        };
        let mut advice = vec![format!("congestion = {:?} does best: {}", winner.congestion, point_text(first))];
        let others = self.curves.iter().filter(|curve| curve.congestion != winner.congestion);
        for curve in others {
            let Some((_, own)) = best(std::slice::from_ref(curve)) else { continue };
            let carries = own.bytes_per_s() >= first.bytes_per_s() * (1.0 - curve.tolerance);
            let is_quick = own.loaded_rtt_us() as f64 <= first.loaded_rtt_us() as f64 * ALIKE_FACTOR;
            let word = if carries && is_quick { "does as well" } else { "at best" };
            advice.push(format!("{} {word}: {}", curve.congestion, point_text(own)));
        }
        advice
    }

    /// Each sentence once.
    pub fn warnings(&self) -> Vec<String> {
        let all: BTreeSet<String> = self.curves.iter().flat_map(Curve::warnings).collect();
        all.into_iter().collect()
    }

    pub fn json(&self) -> Json {
        let lost = self.lost.as_deref();
        if let [one] = &self.curves[..] {
            return one.json(self.interrupted, lost);
        }
        let best = best(&self.curves).map(|(curve, point)| BestPoint {
            figures: point.figures(point.median()),
            congestion: curve.congestion.clone(),
        });
        json!(SweepsReport {
            schema: SWEEPS_SCHEMA,
            sweeps: self.curves.iter().map(|curve| curve.report(self.interrupted, lost)).collect(),
            best,
            advice: self.advice(),
            interrupted: self.interrupted,
            lost,
            warnings: self.warnings(),
        })
    }

    pub fn text(&self) -> String {
        let mut out = self.curves.iter().map(Curve::text).collect::<Vec<_>>().join("\n");
        let advice = self.advice();
        if !advice.is_empty() {
            let lines = advice.iter().map(|line| format!("advice: {line}\n")).collect::<String>();
            out += &format!("\nbeside each other\n{lines}");
        }
        if self.interrupted {
            out += "interrupted: this is what there was until then\n";
        }
        out
    }
}

/// Of all that carry as much as the best, to the tolerance, the one with the shortest round trip under load.
fn best(curves: &[Curve]) -> Option<(&Curve, &SweepPoint)> {
    let all = || curves.iter().flat_map(|curve| curve.advisable().map(move |point| (curve, point)));
    let most = all().map(|(_, point)| point.bytes_per_s()).fold(0.0, f64::max);
    let carrying = all().filter(|(curve, point)| point.bytes_per_s() >= most * (1.0 - curve.tolerance));
    carrying.min_by_key(|(_, point)| point.loaded_rtt_us())
}

#[cfg(test)]
mod tests {
    use super::curve::tests::{ibm, measured};
    use super::*;

    /// The same line under another control: as much, with the queue that `loaded_ms` says.
    fn other(name: &str, mb: f64, loaded_ms: u64) -> Curve {
        let mut curve = Curve { congestion: name.into(), asked: Some(name.into()), ..ibm() };
        for point in curve.points.iter_mut().chain(&mut curve.others) {
            point.rounds = vec![measured(point.setting.asked_bytes(), mb, loaded_ms)];
        }
        curve
    }

    #[test]
    fn of_several_controls_the_one_with_the_shortest_queue_is_advised() {
        let one = Sweep { curves: vec![ibm()], ..Sweep::default() };
        assert!(one.advice().is_empty(), "nothing to compare");
        assert_eq!(one.json()["schema"], SWEEP_SCHEMA);
        let two = Sweep { curves: vec![ibm(), other("bbr", 4.8, 36)], ..Sweep::default() };
        let advice = two.advice();
        assert_eq!(advice.len(), 2, "{advice:?}");
        assert!(advice[0].starts_with("congestion = \"bbr\" does best: 4.8 MB/s at 36 ms under load"), "{advice:?}");
        assert!(
            advice[1].starts_with("cubic at best: 4.83 MB/s at 123 ms under load with buffers = 512KiB"),
            "{advice:?}"
        );
        let json = two.json();
        assert_eq!((&json["schema"], &json["best"]["congestion"]), (&SWEEPS_SCHEMA.into(), &"bbr".into()));
        assert_eq!(json["sweeps"][0]["start"]["congestion"], "cubic");
        assert!(two.text().contains("beside each other\nadvice: congestion = \"bbr\""));
        // One that carries less is not better for its short queue.
        let slow = Sweep { curves: vec![ibm(), other("vegas", 3.0, 33)], ..Sweep::default() };
        assert!(slow.advice()[0].starts_with("congestion = \"cubic\""), "{:?}", slow.advice());
        let alike = Sweep { curves: vec![other("reno", 4.8, 34), other("bbr", 4.8, 36)], ..Sweep::default() };
        assert!(alike.advice()[1].starts_with("bbr does as well"), "{:?}", alike.advice());
        for curves in [vec![ibm()], vec![ibm(), other("bbr", 4.8, 36)]] {
            assert_eq!(charts(&curves).len(), 2);
        }
    }
}
