//! The plan: all modes, all questions, in one or two passes over the trace.

use serde::Serialize;

use crate::hadr::LoadRating;
use crate::model::catch_up::{Regions, SnapshotReplay};
use crate::model::fold::Folding;
use crate::model::lean::Bandwidths;
use crate::model::stream::StreamReplay;
use crate::model::tally::Quantiles;
use crate::model::{ModelMode, ModelSetup, moment_s};
use crate::scan::TraceWorkload;
use crate::series::TimeSeries;
use crate::trace::{TraceKind, TraceRecord};
use units::quantities::{Bytes, Rate, Seconds, show_rate};

/// Compression that is shown as a possibility when nothing is known of the data.
pub const COMPRESSION_ASSUMED: f64 = 2.0;
/// Bandwidths that are always tried beside the given one.
const FACTORS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

/// What is asked beside the plain plan.
#[derive(Clone, Debug)]
pub struct Questions {
    pub modes: Vec<ModelMode>,
    /// Oldest the far copy may be.
    pub rpo: Option<Seconds>,
    /// Most that a write may take longer, for 99 of 100.
    pub max_latency: Seconds,
    pub outage: Seconds,
    /// The outage begins here; otherwise where it hurts most.
    pub outage_at: Option<Seconds>,
    /// `None`: [`COMPRESSION_ASSUMED`] is shown as a possibility.
    pub compression: Option<f64>,
    pub what_if: Option<WhatIf>,
}

/// A changed world: factors on bandwidth, round trip and queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    pub bandwidth: f64,
    pub rtt: f64,
    pub queue: f64,
}

impl WhatIf {
    /// `bandwidth=2x,rtt=0.5x,queue=4x`.
    ///
    /// # Errors
    /// A sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut found = Self { bandwidth: 1.0, rtt: 1.0, queue: 1.0 };
        for part in text.split(',') {
            let bad = || format!("{part:?} is no change; write such as \"bandwidth=2x\", \"rtt=0.5x\" or \"queue=4x\"");
            let (name, factor) = part.trim().split_once('=').ok_or_else(bad)?;
            let factor: f64 = factor.strip_suffix('x').and_then(|number| number.parse().ok()).ok_or_else(bad)?;
            if !(1e-3..=1e3).contains(&factor) {
                return Err(format!("{part:?} is out of range; factors are 0.001x to 1000x"));
            }
            match name {
                "bandwidth" => found.bandwidth = factor,
                "rtt" => found.rtt = factor,
                "queue" => found.queue = factor,
                _ => return Err(bad()),
            }
        }
        Ok(found)
    }

    fn applied(self, setup: ModelSetup) -> ModelSetup {
        let mut link = setup.link;
        link.rtt = Seconds(link.rtt.0 * self.rtt);
        // Loss takes the more the longer the way is.
        link.rate = link.widened_rate(self.bandwidth);
        ModelSetup { link, queue_bytes: (setup.queue_bytes as f64 * self.queue) as u64, ..setup }
    }

    fn name(self, setup: ModelSetup) -> String {
        let parts = [("bandwidth", self.bandwidth), ("rtt", self.rtt), ("queue", self.queue)];
        let changed: Vec<String> = parts
            .iter()
            .filter(|(_, factor)| *factor != 1.0)
            .map(|(name, factor)| format!("{factor} x {name}"))
            .collect();
        let rate = self.applied(setup).link.rate;
        if changed.is_empty() {
            "as it is".to_owned()
        } else if rate.bytes_per_s() < setup.link.rate.times(self.bandwidth).bytes_per_s() {
            format!("{} (loss leaves {})", changed.join(", "), show_rate(rate))
        } else {
            changed.join(", ")
        }
    }
}

/// What one mode does to this workload.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModePlan {
    /// `sync`, `nearsync`, `async`, `superasync`, `periodic`, `logging`
    pub mode: &'static str,
    /// the HADR calculator's mark: empty, `?`, `??`, `???`
    pub rating: &'static str,
    /// what a write takes
    pub response_s: Quantiles,
    /// how much longer a write takes than without replication
    pub added_s: Quantiles,
    /// writers that waited for room in the queue
    pub blocked: Blocked,
    /// the queue
    pub queue: QueuePlan,
    /// age of the far copy, over time
    pub lag_s: Quantiles,
    /// seconds from the fullest moment until nothing waited
    pub drain_s: f64,
    /// 0 to 1, of the time: the link was sending
    pub link_use_share: f64,
    /// bytes on the line
    pub wire_bytes: f64,
    /// bytes on the line in a day like the trace
    pub wire_bytes_per_day: f64,
    /// sets of regions sent, in modes that send states
    pub snapshots: u64,
    /// bytes of the largest of them
    pub snapshot_bytes_max: u64,
    #[serde(skip)]
    pub kind: ModelMode,
    #[serde(skip)]
    pub curves: Option<Curves>,
}

/// Writers that waited for room in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Blocked {
    /// writes that waited
    pub writes: u64,
    /// seconds: sum over all writers
    pub writer_s: f64,
    /// seconds in which anybody waited
    pub clock_s: f64,
}

/// The queue of a mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueuePlan {
    /// bytes: the most
    pub peak_bytes: u64,
    /// writes: the most
    pub peak_items: u64,
    /// seconds from the beginning of the trace to the moment with the most bytes
    pub peak_at_s: f64,
    /// bytes: a queue of this size makes nobody wait; `null`: the mode never waits for room
    pub zero_blocking_bytes: Option<u64>,
    /// writes: a queue of this size makes nobody wait; `null`: the mode never waits for room
    pub zero_blocking_items: Option<u64>,
}

/// For pictures.
#[derive(Clone, Debug)]
pub struct Curves {
    pub queue: TimeSeries,
    pub lag: TimeSeries,
    pub added: Vec<(f64, f64)>,
    pub drain: Option<TimeSeries>,
}

/// Async with what could be saved.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Variant {
    /// what is different
    pub name: String,
    /// bytes on the line
    pub wire_bytes: f64,
    /// bytes: the most in the queue
    pub queue_peak_bytes: u64,
    /// seconds in which anybody waited for room
    pub blocked_clock_s: f64,
    /// seconds: the greatest age of the far copy
    pub lag_max_s: f64,
    /// seconds: for 99 of 100 moments the far copy is no older
    pub lag_p99_s: f64,
}

/// The link away for a while, at its worst moment.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutagePlan {
    /// seconds from the beginning of the trace
    pub start_s: f64,
    /// seconds
    pub length_s: f64,
    /// bytes written meanwhile
    pub written_bytes: u64,
    /// bytes of the regions that were written meanwhile
    pub region_bytes: u64,
    /// bytes that the queue must hold to send in order
    pub queue_bytes: u64,
    /// bytes of it beyond the queue's memory
    pub spill_bytes: u64,
    /// seconds from the link's return until the far copy is up to date, in order; `null`: never
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub catch_up_s: f64,
    /// seconds from the link's return until the far copy is up to date, as a resync of regions; `null`: never
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub resync_s: f64,
}

/// The answer to `--rpo`.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Needed {
    /// seconds: what was asked for
    pub rpo_s: f64,
    /// bytes a second, as the line is sold; `null`: no bandwidth keeps it, the round trip alone is longer
    pub rate_bytes_per_s: Option<f64>,
}

/// The whole answer.
#[derive(Clone, Debug)]
pub struct ModesPlan {
    pub setup: ModelSetup,
    pub questions: Questions,
    pub work: TraceWorkload,
    pub modes: Vec<ModePlan>,
    /// The queue of the ordered modes if it had no limit.
    pub free_queue: TimeSeries,
    /// Age of the far copy with such a queue.
    pub free_lag_s: Quantiles,
    pub variants: Vec<Variant>,
    pub changes: Vec<Variant>,
    pub outage: OutagePlan,
    pub needed: Option<Needed>,
}

/// Replays of the second pass.
pub struct Planner {
    setup: ModelSetup,
    questions: Questions,
    work: TraceWorkload,
    streams: Vec<StreamReplay>,
    stream_modes: Vec<ModelMode>,
    /// Without a limit, for the size that blocks nobody.
    free: StreamReplay,
    snapshots: Vec<(ModelMode, SnapshotReplay)>,
    packed: StreamReplay,
    foldings: Option<[Folding; 2]>,
    changes: Vec<(String, StreamReplay)>,
    outage: StreamReplay,
    outage_span_s: (f64, f64),
    outage_regions: Regions,
    outage_bytes: u64,
    bandwidths: Option<Bandwidths>,
}

impl Planner {
    /// `work` is the first pass over the same trace.
    pub fn new(setup: ModelSetup, questions: Questions, work: TraceWorkload) -> Self {
        let compression = questions.compression.unwrap_or(COMPRESSION_ASSUMED);
        let packed = ModelSetup { compression, ..setup };
        let start_s = questions.outage_at.unwrap_or_else(|| work.fill.heaviest(questions.outage)).0;
        let outage_span_s = (start_s, start_s + questions.outage.0);
        let down = ModelSetup { outage: Some(outage_span_s), ..setup.unbounded() };
        let changes =
            FACTORS.iter().map(|&bandwidth| WhatIf { bandwidth, rtt: 1.0, queue: 1.0 }).chain(questions.what_if);
        let selected = |ordered: bool| questions.modes.iter().copied().filter(move |mode| mode.is_ordered() == ordered);
        let goodput = setup.link.goodput();
        Self {
            streams: selected(true).map(|mode| StreamReplay::new(mode, setup)).collect(),
            stream_modes: selected(true).collect(),
            free: StreamReplay::new(ModelMode::Async, setup.unbounded()),
            snapshots: selected(false).map(|mode| (mode, SnapshotReplay::new(mode, setup))).collect(),
            packed: StreamReplay::new(ModelMode::Async, packed),
            // Where the source only counted, nobody knows what is overwritten.
            foldings: work.savings.is_some().then(|| [Folding::new(setup), Folding::new(packed)]),
            changes: changes
                .map(|change| (change.name(setup), StreamReplay::new(ModelMode::Async, change.applied(setup))))
                .collect(),
            outage: StreamReplay::new(ModelMode::Async, down),
            outage_span_s,
            outage_regions: Regions::default(),
            outage_bytes: 0,
            bandwidths: questions.rpo.map(|_| Bandwidths::between(setup, goodput.times(1e-3), goodput.times(1e3))),
            setup,
            questions,
            work,
        }
    }

    pub fn add(&mut self, records: &[TraceRecord]) {
        self.streams.iter_mut().for_each(|stream| stream.add(records));
        self.free.add(records);
        self.snapshots.iter_mut().for_each(|(_, snapshots)| snapshots.add(records));
        self.packed.add(records);
        self.foldings.iter_mut().flatten().for_each(|folding| folding.add(records));
        self.changes.iter_mut().for_each(|(_, stream)| stream.add(records));
        self.outage.add(records);
        if let Some(bandwidths) = &mut self.bandwidths {
            bandwidths.add(records);
        }
        let (from_s, until_s) = self.outage_span_s;
        for record in records {
            if record.kind == TraceKind::Write && (from_s..until_s).contains(&moment_s(record)) {
                self.outage_bytes += u64::from(record.length);
                self.outage_regions.rating(record.volume, record.offset, u64::from(record.length));
            }
        }
    }

    /// The bandwidths to try in another pass, if the question for one is open.
    pub fn refinement(&self) -> Option<Bandwidths> {
        let limit_s = self.questions.rpo?.0;
        match self.bandwidths.as_ref()?.bracket(limit_s) {
            (Some(low), Some(high)) => Some(Bandwidths::between(self.setup, low, high)),
            _ => None,
        }
    }

    /// `refined` has seen the trace again, if [`Planner::refinement`] asked for it.
    pub fn finish(mut self, refined: Option<&Bandwidths>) -> ModesPlan {
        self.foldings.iter_mut().flatten().for_each(Folding::finish);
        let modes = self.mode_plans();
        let variants = self.variants();
        let changes = self.changes.iter().map(|(name, stream)| variant(name.clone(), stream)).collect();
        let needed = self.questions.rpo.map(|rpo| self.needed(rpo, refined));
        let outage = self.outage_plan();
        let free_queue = self.free.fill.curve.clone();
        let free_lag_s = self.free.lag.times.quantiles();
        ModesPlan {
            free_queue,
            free_lag_s,
            setup: self.setup,
            questions: self.questions,
            work: self.work,
            modes,
            variants,
            changes,
            outage,
            needed,
        }
    }

    fn mode_plans(&mut self) -> Vec<ModePlan> {
        let (setup, work) = (self.setup, &self.work);
        let day = |bytes: f64| if work.duration_s > 0.0 { bytes / work.duration_s * 86_400.0 } else { 0.0 };
        let mut plans = Vec::new();
        for (mode, stream) in self.stream_modes.iter().zip(&self.streams) {
            let mut plan = stream_plan(*mode, stream, rating(*mode, &setup, work));
            plan.queue.zero_blocking_bytes = Some(self.free.fill.peak_bytes);
            plan.queue.zero_blocking_items = Some(self.free.fill.peak_items);
            plan.wire_bytes_per_day = day(plan.wire_bytes);
            plans.push(plan);
        }
        for (mode, snapshots) in &mut self.snapshots {
            snapshots.finish();
            let mut plan = snapshots_plan(*mode, snapshots, &setup, work);
            plan.wire_bytes_per_day = day(plan.wire_bytes);
            plans.push(plan);
        }
        plans.sort_by_key(|plan| plan.kind);
        plans
    }

    fn variants(&self) -> Vec<Variant> {
        let given = self.questions.compression;
        let ratio = given.unwrap_or(COMPRESSION_ASSUMED);
        let word = if given.is_some() { "" } else { ", assumed" };
        let plain = self.changes.iter().find(|(name, _)| name == "as it is").map(|(_, stream)| stream);
        let mut found: Vec<Variant> = plain.map(|stream| variant("plain".to_owned(), stream)).into_iter().collect();
        found.push(variant(format!("compressed ({ratio}:1{word})"), &self.packed));
        if let Some([folded, both]) = &self.foldings {
            found.push(folded_variant("folded".to_owned(), folded));
            found.push(folded_variant(format!("folded, then compressed ({ratio}:1{word})"), both));
        }
        found
    }

    fn needed(&self, rpo: Seconds, refined: Option<&Bandwidths>) -> Needed {
        let first = self.bandwidths.as_ref().and_then(|tried| tried.bracket(rpo.0).1);
        let goodput = refined.and_then(|tried| tried.bracket(rpo.0).1).or(first);
        // From what frames get back to what is sold.
        let sold = |rate: Rate| rate.bytes_per_s() / self.setup.link.payload_share;
        Needed { rpo_s: rpo.0, rate_bytes_per_s: goodput.map(sold) }
    }

    fn outage_plan(&self) -> OutagePlan {
        let (start_s, until_s) = self.outage_span_s;
        let queue_bytes = self.outage.fill.peak_bytes;
        let goodput = self.setup.link.goodput();
        let fill = Rate::from_bytes_per_s(self.work.bytes_per_s);
        let region_bytes = self.outage_regions.bytes();
        // A trace that ends during the outage goes on, in thought, as it was on average.
        let goes_on = self.work.duration_s < until_s + self.outage.drain_s();
        let in_order = Bytes(queue_bytes).at(goodput).0;
        let catch_up_s = if goes_on {
            crate::formulas::catch_up_time(Bytes(queue_bytes), fill, goodput).0.max(in_order)
        } else {
            (self.outage.fill.peak_at_s + self.outage.drain_s() - until_s).max(0.0)
        };
        OutagePlan {
            start_s,
            length_s: until_s - start_s,
            written_bytes: self.outage_bytes,
            region_bytes,
            queue_bytes,
            spill_bytes: queue_bytes.saturating_sub(self.setup.queue_bytes),
            catch_up_s,
            resync_s: crate::formulas::catch_up_time(Bytes(region_bytes), fill, goodput).0,
        }
    }
}

fn stream_plan(mode: ModelMode, stream: &StreamReplay, rating: LoadRating) -> ModePlan {
    let waiting = &stream.waiting;
    ModePlan {
        mode: mode.name(),
        rating: rating.text(),
        response_s: stream.response.quantiles(),
        added_s: stream.added.quantiles(),
        blocked: Blocked { writes: waiting.writes, writer_s: waiting.writer_s, clock_s: waiting.clock_s },
        queue: QueuePlan {
            peak_bytes: stream.fill.peak_bytes,
            peak_items: stream.fill.peak_items,
            peak_at_s: stream.fill.peak_at_s,
            ..QueuePlan::default()
        },
        lag_s: stream.lag.times.quantiles(),
        drain_s: stream.drain_s(),
        link_use_share: stream.link_use(),
        wire_bytes: stream.wire_bytes(),
        wire_bytes_per_day: 0.0,
        snapshots: 0,
        snapshot_bytes_max: 0,
        kind: mode,
        curves: Some(Curves {
            queue: stream.fill.curve.clone(),
            lag: stream.lag.curve.clone(),
            added: stream.added.curve(),
            drain: Some(stream.drain.clone()),
        }),
    }
}

fn snapshots_plan(mode: ModelMode, snapshots: &SnapshotReplay, setup: &ModelSetup, work: &TraceWorkload) -> ModePlan {
    let local_s = setup.local.write_s(work.size_bytes.mean as u64);
    ModePlan {
        mode: mode.name(),
        rating: if mode == ModelMode::SuperAsync { rating(mode, setup, work).text() } else { "" },
        response_s: Quantiles { p50: local_s, p95: local_s, p99: local_s, p999: local_s, max: local_s },
        added_s: Quantiles::default(),
        blocked: Blocked::default(),
        queue: QueuePlan {
            peak_bytes: snapshots.fill.peak_bytes,
            peak_items: snapshots.fill.peak_items,
            peak_at_s: snapshots.fill.peak_at_s,
            ..QueuePlan::default()
        },
        lag_s: snapshots.lag.times.quantiles(),
        drain_s: 0.0,
        link_use_share: snapshots.link_use(),
        wire_bytes: snapshots.wire_bytes(),
        wire_bytes_per_day: 0.0,
        snapshots: snapshots.snapshots,
        snapshot_bytes_max: snapshots.snapshot_bytes_max,
        kind: mode,
        curves: Some(Curves {
            queue: snapshots.fill.curve.clone(),
            lag: snapshots.lag.curve.clone(),
            added: vec![(1e-6, 1.0)],
            drain: None,
        }),
    }
}

fn variant(name: String, stream: &StreamReplay) -> Variant {
    let lag = stream.lag.times.quantiles();
    Variant {
        name,
        wire_bytes: stream.wire_bytes(),
        queue_peak_bytes: stream.fill.peak_bytes,
        blocked_clock_s: stream.waiting.clock_s,
        lag_max_s: lag.max,
        lag_p99_s: lag.p99,
    }
}

fn folded_variant(name: String, folding: &Folding) -> Variant {
    let lag = folding.lag.times.quantiles();
    Variant {
        name,
        wire_bytes: folding.wire_bytes(),
        queue_peak_bytes: folding.fill.peak_bytes,
        blocked_clock_s: folding.waiting.clock_s,
        lag_max_s: lag.max,
        lag_p99_s: lag.p99,
    }
}

/// What one request waits for in a mode, the mode's own formula on an idle link.
pub fn response_s(mode: ModelMode, setup: &ModelSetup, bytes: f64) -> f64 {
    let local = setup.local.write_s(bytes as u64);
    let send = setup.wire_bytes(bytes as u64) / setup.link.goodput().bytes_per_s();
    let remote = setup.remote.write_s(bytes as u64);
    match mode {
        ModelMode::Sync => local.max(send + setup.link.rtt.0 + remote),
        ModelMode::NearSync => local.max(send + setup.link.rtt.0),
        ModelMode::Async | ModelMode::SuperAsync => local.max(send),
        ModelMode::Periodic | ModelMode::Logging => local,
    }
}

/// The HADR calculator's marks, for block writes: the least rate is one write at a time, the largest one burst at a time (what
/// was written without waiting); the worst interval counts.
pub fn rating(mode: ModelMode, setup: &ModelSetup, work: &TraceWorkload) -> LoadRating {
    let busy = work.intervals.iter().filter(|interval| interval.writes > 0);
    let of = |interval: &crate::scan::TraceInterval| {
        let length_s = work.interval_s.min(work.duration_s - interval.start_s).max(1.0);
        let rate = |bytes: f64| bytes / response_s(mode, setup, bytes).max(1e-9);
        let least = rate(interval.mean_bytes());
        LoadRating::of(interval.bytes as f64 / length_s, least, rate(interval.burst_bytes()).max(least))
    };
    busy.map(of).max().unwrap_or(LoadRating::None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formulas::CongestionModel;
    use crate::model::LinkModel;
    use crate::scan::TraceScan;
    use units::quantities::Share;

    fn planned(setup: ModelSetup, questions: Questions, records: &[TraceRecord]) -> ModesPlan {
        let mut scan = TraceScan::new(Seconds(60.0));
        scan.add(records);
        let mut planner = Planner::new(setup, questions, scan.finish());
        planner.add(records);
        let refined = planner.refinement().map(|mut bandwidths| {
            bandwidths.add(records);
            bandwidths
        });
        planner.finish(refined.as_ref())
    }

    fn questions() -> Questions {
        Questions {
            modes: ModelMode::ALL.to_vec(),
            rpo: Some(Seconds(5.0)),
            max_latency: Seconds(0.01),
            outage: Seconds(60.0),
            outage_at: None,
            compression: None,
            what_if: Some(WhatIf::parse("bandwidth=8x,queue=2x").unwrap()),
        }
    }

    /// 100 writes of 8 KiB a second for ten minutes, ten times as many in the fifth, over 20 MiB again and again.
    fn records() -> Vec<TraceRecord> {
        let mut found = Vec::new();
        for second in 0..600u64 {
            let count = if (240..300).contains(&second) { 1000 } else { 100 };
            found.extend((0..count).map(|n| TraceRecord {
                time_ns: second * 1_000_000_000 + n * 1_000_000_000 / count,
                offset: (second * 7 + n * 13) % 2560 * 8192,
                length: 8192,
                ..TraceRecord::default()
            }));
        }
        found
    }

    #[test]
    fn a_burst_on_a_narrow_link() {
        let setup = ModelSetup {
            queue_bytes: 8 << 20,
            ..ModelSetup::new(LinkModel::measured(Rate::from_mb(2.0), Seconds::from_ms(50.0)))
        };
        let plan = planned(setup, questions(), &records());
        let of = |name: &str| plan.modes.iter().find(|mode| mode.mode == name).unwrap();
        assert_eq!(plan.modes.len(), 6);
        // 8.2 MB/s against 2: 60 s of burst leave some 370 MB behind, and 8 MiB block writers most of that time.
        let zero = of("async").queue.zero_blocking_bytes.unwrap();
        assert!((350e6..420e6).contains(&(zero as f64)), "{zero}");
        assert!(of("async").queue.peak_bytes <= 8 << 20 && of("async").blocked.clock_s > 100.0);
        assert!(of("sync").added_s.p50 >= 0.05);
        assert_eq!(of("superasync").added_s.max, 0.0);
        assert!(of("superasync").snapshots > 0 && of("superasync").lag_s.max < 60.0);
        // The queue bounds the age of the far copy too: 8 MiB are some 4 s of the link.
        assert!((3.5..5.0).contains(&of("async").lag_s.max) && plan.free_lag_s.max > 100.0);
        // The whole set of 20 MiB fits any snapshot.
        assert!(of("logging").snapshot_bytes_max == 20 << 20);
        // Worst outage: the burst itself.
        assert!((plan.outage.start_s - 240.0).abs() < 2.0 && plan.outage.queue_bytes > 480_000_000);
        // 5 s of lag: the burst of 8.2 MB/s must nearly be carried.
        let needed = plan.needed.unwrap().rate_bytes_per_s.unwrap();
        assert!((7.4e6..8.4e6).contains(&needed), "{needed}");
        let changes: Vec<f64> = plan.changes.iter().map(|change| change.blocked_clock_s).collect();
        assert!(changes[0] >= changes[1] && changes[1] > changes[2] && changes[4] == 0.0, "{changes:?}");
        // Folded, a second's 1000 writes are at most 2560 pages of 8 KiB: little; compressed half.
        let wire: Vec<f64> = plan.variants.iter().map(|variant| variant.wire_bytes).collect();
        assert!(wire[1] < wire[0] * 0.53 && wire[2] <= wire[0], "{wire:?}");
    }

    #[test]
    fn a_wide_link_asks_for_nothing() {
        let setup = ModelSetup::new(LinkModel::of_line(Rate::from_mbit(1000.0), Seconds::from_ms(0.5)));
        let plan = planned(setup, questions(), &records());
        for mode in &plan.modes {
            assert_eq!((mode.blocked.writes, mode.rating), (0, ""), "{}", mode.mode);
        }
        assert!(plan.modes[0].added_s.p99 < 0.002);
    }

    /// A line twice as wide carried twice of what was measured, though it is loss that holds the connection back.
    #[test]
    fn a_wider_line_does_not_end_the_loss_of_a_measured_one() {
        let measured = LinkModel::measured(Rate::from_mb(10.0), Seconds::from_ms(50.0));
        let link = LinkModel { loss: Share(0.001), ..measured };
        let changed = |link: LinkModel, text: &str| {
            let (change, setup) = (WhatIf::parse(text).unwrap(), ModelSetup::new(link));
            (change.applied(setup).link.goodput().as_mb(), change.name(setup))
        };
        let is = |mb: f64, name: &str| (mb, name.to_owned());
        // The formula leaves 1.12 MB/s of any line, less than came through.
        assert_eq!(changed(link, "bandwidth=2x"), is(10.0, "2 x bandwidth (loss leaves 10 MB/s)"));
        assert_eq!(changed(link, "bandwidth=0.5x"), is(5.0, "0.5 x bandwidth"));
        assert_eq!(changed(link, "rtt=0.5x"), is(10.0, "0.5 x rtt"));
        // 112 MB/s over half a millisecond; bbr passes over loss; without loss it is the line that was measured.
        assert_eq!(changed(link, "bandwidth=2x,rtt=0.01x"), is(20.0, "2 x bandwidth, 0.01 x rtt"));
        let bbr = LinkModel { congestion: CongestionModel::Bbr, ..link };
        assert_eq!(changed(bbr, "bandwidth=2x"), is(20.0, "2 x bandwidth"));
        assert_eq!(changed(measured, "bandwidth=2x"), is(20.0, "2 x bandwidth"));
    }

    #[test]
    fn changes_are_parsed_and_asked_back() {
        assert_eq!(WhatIf::parse("bandwidth=2x,rtt=0.5x"), Ok(WhatIf { bandwidth: 2.0, rtt: 0.5, queue: 1.0 }));
        for text in ["bandwidth", "bandwidth=2", "width=2x", "rtt=0x", "queue=-1x", ""] {
            assert!(WhatIf::parse(text).is_err(), "{text}");
        }
    }
}
