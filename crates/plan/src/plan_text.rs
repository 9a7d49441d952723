//! The plan for a terminal, and as JSON.

use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::advice::Advice;
use crate::answer::table;
use crate::model::tally::Quantiles;
use crate::model::{ModelMode, PlannedDisk};
use crate::plan::{ModePlan, ModesPlan, Needed, OutagePlan, Variant};
use crate::scan::TraceWorkload;
use units::quantities::{
    Bytes, Rate, Seconds, show_bit_rate, show_bytes, show_bytes_decimal, show_rate, show_share, show_time,
};

pub const PLAN_SCHEMA: &str = "farshore-plan/1";

/// What `plan --json` prints. The comments of fields are the manual's words: docs/book/json.md is made from them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanReport<'a> {
    /// name and version of this schema
    pub schema: &'static str,
    /// what was assumed
    pub inputs: PlanInputs,
    /// what `scan` says of the trace
    pub workload: &'a TraceWorkload,
    /// one for each mode
    pub modes: &'a [ModePlan],
    /// `async` with what could be saved
    pub variants: &'a [Variant],
    /// `async` on other links
    pub changes: &'a [Variant],
    /// the link away for a while, at its worst moment or from `--outage-at` on
    pub outage: &'a OutagePlan,
    /// the answer to `--rpo`; `null` without it
    pub needed: Option<Needed>,
    /// what to set
    pub advice: &'a Advice,
}

/// Everything that is not the workload.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanInputs {
    /// the way to the other side
    pub link: LinkInputs,
    /// disk of the primary
    pub local_disk: DiskInputs,
    /// disk of the secondary
    pub remote_disk: DiskInputs,
    /// bytes that the queue holds
    pub queue_bytes: u64,
    /// writes that the queue holds
    pub queue_items: u64,
    /// seconds between two snapshots of the mode `periodic`
    pub period_s: f64,
}

/// The way to the other side.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkInputs {
    /// bytes a second, as the line is sold or as measured
    pub rate_bytes_per_s: f64,
    /// seconds: idle round trip
    pub rtt_s: f64,
    /// 0 to 1, of the packets
    pub loss_share: f64,
    /// `reno`, `cubic`, `bbr`
    pub congestion: &'static str,
    /// bytes a second that the link carries of writes
    pub goodput_bytes_per_s: f64,
}

/// A disk: each write takes the overhead, and all together no more than the rate.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskInputs {
    /// bytes a second; `null`: no limit
    pub rate_bytes_per_s: Option<f64>,
    /// seconds
    pub overhead_s: f64,
}

impl From<&PlannedDisk> for DiskInputs {
    fn from(disk: &PlannedDisk) -> DiskInputs {
        DiskInputs { rate_bytes_per_s: disk.rate.map(|rate| rate.bytes_per_s()), overhead_s: disk.overhead.0 }
    }
}

fn time(seconds: f64) -> String {
    show_time(Seconds(seconds))
}

/// What was assumed, in one paragraph of facts.
pub fn inputs(plan: &ModesPlan) -> Vec<(&'static str, String)> {
    let (setup, work) = (&plan.setup, &plan.work);
    let link = &setup.link;
    let disk = |disk: &PlannedDisk| match disk.rate {
        Some(rate) => format!("{} after {}", show_rate(rate), show_time(disk.overhead)),
        None => "infinitely fast".to_owned(),
    };
    let loss = if link.loss.0 > 0.0 { format!(", {} lost", show_share(link.loss.0)) } else { String::new() };
    vec![
        (
            "workload",
            format!(
                "{}, {} writes, {} mean, {} in the busiest second, {} mean size",
                time(work.duration_s),
                work.writes,
                show_rate(Rate::from_bytes_per_s(work.bytes_per_s)),
                show_rate(Rate::from_bytes_per_s(work.peak_1s_bytes_per_s)),
                show_bytes(Bytes(work.size_bytes.mean as u64))
            ),
        ),
        (
            "link",
            format!(
                "{}, {}, {}{loss}: carries {}",
                show_bit_rate(link.rate),
                show_time(link.rtt),
                link.congestion.name(),
                show_rate(link.goodput())
            ),
        ),
        ("disks", format!("local {}, far {}", disk(&setup.local), disk(&setup.remote))),
        ("queue", format!("{}, {} writes", show_bytes(Bytes(setup.queue_bytes)), setup.queue_items)),
    ]
}

/// Below the table of modes, where any of them blocks: writers of the trace do not slow down for their waits.
const BLOCKED_IS_A_BOUND: &str = "blocked is an upper bound: the trace's writers do not write later when they wait, and those that waited \
     while it was recorded wait again here\n";

/// Heading and rows of the table of modes.
pub fn mode_rows(plan: &ModesPlan) -> (Vec<String>, Vec<Vec<String>>) {
    let header = [
        "mode",
        "mark",
        "added p50",
        "p95",
        "p99",
        "max",
        "blocked",
        "queue peak",
        "no blocking",
        "lag p50",
        "p99",
        "max",
        "drain",
        "link use",
        "per day",
    ];
    let row = |mode: &ModePlan| {
        let ships = mode.kind != ModelMode::Logging;
        let or_dash = |text: String, shown: bool| if shown { text } else { "-".to_owned() };
        let q = |q: &Quantiles| [time(q.p50), time(q.p95), time(q.p99), time(q.max)];
        let [a50, a95, a99, amax] = q(&mode.added_s);
        vec![
            mode.mode.to_owned(),
            mode.rating.to_owned(),
            a50,
            a95,
            a99,
            amax,
            time(mode.blocked.clock_s),
            or_dash(show_bytes(Bytes(mode.queue.peak_bytes)), mode.queue.peak_bytes > 0),
            mode.queue.zero_blocking_bytes.map_or("-".to_owned(), |bytes| show_bytes(Bytes(bytes))),
            or_dash(time(mode.lag_s.p50), ships),
            or_dash(time(mode.lag_s.p99), ships),
            or_dash(time(mode.lag_s.max), ships),
            or_dash(time(mode.drain_s), mode.kind.is_ordered()),
            or_dash(show_share(mode.link_use_share), ships),
            or_dash(show_bytes_decimal(mode.wire_bytes_per_day), ships),
        ]
    };
    (header.map(str::to_owned).to_vec(), plan.modes.iter().map(row).collect())
}

/// Heading and rows of changed worlds.
pub fn variant_rows(variants: &[Variant]) -> (Vec<String>, Vec<Vec<String>>) {
    let header = ["async", "on the link", "queue peak", "blocked", "lag p99", "lag max"];
    let row = |v: &Variant| {
        vec![
            v.name.clone(),
            show_bytes(Bytes(v.wire_bytes as u64)),
            show_bytes(Bytes(v.queue_peak_bytes)),
            time(v.blocked_clock_s),
            time(v.lag_p99_s),
            time(v.lag_max_s),
        ]
    };
    (header.map(str::to_owned).to_vec(), variants.iter().map(row).collect())
}

/// The outage in one sentence.
pub fn outage_sentence(plan: &ModesPlan) -> String {
    let outage = &plan.outage;
    let up_to_date = match outage.catch_up_s {
        s if s.is_finite() => format!("up to date {} after its return", time(s)),
        _ => "never up to date again, as more is written than the link carries".to_owned(),
    };
    let resynced = match outage.resync_s {
        s if s.is_finite() => format!("resynced in {}", time(s)),
        _ => "to resync".to_owned(),
    };
    format!(
        "link away for {} from {} on: {} written, {} to send in order ({} beyond the queue), {up_to_date}; or {} of regions {resynced}",
        time(outage.length_s),
        time(outage.start_s),
        show_bytes(Bytes(outage.written_bytes)),
        show_bytes(Bytes(outage.queue_bytes)),
        show_bytes(Bytes(outage.spill_bytes)),
        show_bytes(Bytes(outage.region_bytes))
    )
}

/// All of it, for a terminal.
pub fn text(plan: &ModesPlan, advice: &Advice) -> String {
    let mut out = String::new();
    for (name, value) in inputs(plan) {
        out += &format!("{name:<9} {value}\n");
    }
    let (header, rows) = mode_rows(plan);
    out += &format!("\n{}", table(&header, &rows));
    if plan.modes.iter().any(|mode| mode.blocked.writes > 0) {
        out += BLOCKED_IS_A_BOUND;
    }
    let (header, rows) = variant_rows(&plan.variants);
    out += &format!("\n{}", table(&header, &rows));
    let (header, rows) = variant_rows(&plan.changes);
    out += &format!("\n{}", table(&header, &rows));
    out += &format!("\noutage: {}\n\nadvice\n", outage_sentence(plan));
    for item in &advice.items {
        out += &format!("  {} = {}\n      {}\n", item.key, item.value, item.reason);
    }
    let [workload, load, latency, mode] = advice.table2;
    out += &format!("  table 2 (AVS): {workload}, {load}, {latency} latency: {mode}\n");
    for warning in &advice.warnings {
        out += &format!("note: {warning}\n");
    }
    out
}

/// The contract for programs; docs/book/json.md lists the keys.
pub fn json(plan: &ModesPlan, advice: &Advice) -> Json {
    let setup = &plan.setup;
    let link = LinkInputs {
        rate_bytes_per_s: setup.link.rate.bytes_per_s(),
        rtt_s: setup.link.rtt.0,
        loss_share: setup.link.loss.0,
        congestion: setup.link.congestion.name(),
        goodput_bytes_per_s: setup.link.goodput().bytes_per_s(),
    };
    let inputs = PlanInputs {
        link,
        local_disk: (&setup.local).into(),
        remote_disk: (&setup.remote).into(),
        queue_bytes: setup.queue_bytes,
        queue_items: setup.queue_items,
        period_s: setup.period.0,
    };
    json!(PlanReport {
        schema: PLAN_SCHEMA,
        inputs,
        workload: &plan.work,
        modes: &plan.modes,
        variants: &plan.variants,
        changes: &plan.changes,
        outage: &plan.outage,
        needed: plan.needed,
        advice,
    })
}
