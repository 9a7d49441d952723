//! From numbers to advice: each recommendation with its reason, and the row of the AVS paper's table 2 it stands in.

use serde::Serialize;

use crate::formulas::{
    BUFFER_BYTES_MAX, GRANTED_USABLE, activity_log_resync, bandwidth_delay, rto_min_advice, socket_buffer,
};
use crate::model::ModelMode;
use crate::plan::{ModePlan, ModesPlan};
use crate::scan::EXTENT_BYTES;
use crate::table2::{LOW_LATENCY_MS, TableRow, Work, row_for};
use units::MIB;
use units::quantities::{Bytes, Rate, Seconds, show_bit_rate, show_bytes, show_rate, show_share, show_time};

/// Room above what the trace needed: the next day is not this day.
const QUEUE_MARGIN: f64 = 1.25;
/// A queue larger than this belongs on a disk.
const MEMORY_QUEUE_MAX: u64 = 1 << 30;
/// A kind of work that fills this share of the link on average is heavy.
const HEAVY_SHARE: f64 = 0.7;
/// Share of the writes that continue the last one, and their size, in a load.
const LOADING_SEQUENTIAL: f64 = 0.7;
const LOADING_SIZE_BYTES: f64 = 65_536.0;
/// A burst: this share of the bytes within that share of the intervals.
const BURST_BYTES_SHARE: f64 = 0.9;
const BURST_TIME_SHARE: f64 = 0.1;
/// How long one write may wait when nothing else is set.
const WAIT_LIMIT_S: f64 = 10.0;
const EXTENTS_MIN: u64 = 128;
const EXTENTS_DEFAULT: u64 = 1024;
const EXTENTS_MAX: u64 = 65_536;

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AdviceItem {
    /// of the configuration: `mode`, `queue.memory`, ...
    pub key: &'static str,
    /// as the configuration takes it
    pub value: String,
    /// a sentence
    pub reason: String,
}

/// All advice, and how the work was understood.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Advice {
    /// the mode to use
    pub mode: &'static str,
    /// what to set, each with its reason
    pub items: Vec<AdviceItem>,
    /// row of table 2 of AVS: workload, load, latency, and the mode it advises
    pub table2: [&'static str; 4],
    /// sentences for whoever must agree to it
    pub warnings: Vec<String>,
    #[serde(skip)]
    pub kind: ModelMode,
}

pub fn advise(plan: &ModesPlan) -> Advice {
    let (kind, reason) = choose_mode(plan);
    let row = row_for(work_of(plan), plan.setup.link.rtt.as_ms() < LOW_LATENCY_MS);
    let mut items = vec![AdviceItem { key: "mode", value: kind.name().to_owned(), reason }];
    items.extend(queue_items(plan, kind));
    items.extend(link_items(plan));
    items.extend(activity_log_item(plan));
    Advice {
        mode: kind.name(),
        items,
        table2: [row.workload, row.load, row.latency, row.mode],
        warnings: warnings(plan, kind, row),
        kind,
    }
}

/// The strongest mode that keeps every promise; failing all, the one that at least keeps moving.
fn choose_mode(plan: &ModesPlan) -> (ModelMode, String) {
    let goodput = plan.setup.link.goodput();
    let mean = Rate::from_bytes_per_s(plan.work.bytes_per_s);
    let mut refused = Vec::new();
    for mode in plan.modes.iter().filter(|mode| mode.kind.is_ordered()) {
        match objection(plan, mode) {
            None => {
                let mut reason = fitting(plan, mode);
                for refusal in refused {
                    reason += &format!("; {refusal}");
                }
                return (mode.kind, reason);
            }
            Some(why) => refused.push(format!("not {}: {why}", mode.mode)),
        }
    }
    let refused = refused.join("; ");
    if mean >= goodput {
        let reason = format!(
            "{} are written on average and the link carries {}: no mode can send every write. Ship a point-in-time copy now and then; {refused}",
            show_rate(mean),
            show_rate(goodput)
        );
        return (ModelMode::Periodic, reason);
    }
    (
        ModelMode::SuperAsync,
        format!("writers never wait, and the far copy keeps moving from one consistent point to the next; {refused}"),
    )
}

/// Why a mode does.
fn fitting(plan: &ModesPlan, mode: &ModePlan) -> String {
    let age = show_time(Seconds(plan.free_lag_s.max));
    if mode.kind == ModelMode::Async {
        let blocked = if mode.blocked.writes > 0 {
            format!(
                " (with the {} given they would wait {})",
                show_bytes(Bytes(plan.setup.queue_bytes)),
                show_time(Seconds(mode.blocked.clock_s))
            )
        } else {
            String::new()
        };
        return format!(
            "writers wait for their own disk only, given the queue below{blocked}; the far copy is at most {age} old"
        );
    }
    format!(
        "99 of 100 writes take at most {} longer, and {} are allowed; the far copy misses nothing that was answered",
        show_time(Seconds(mode.added_s.p99)),
        show_time(plan.questions.max_latency)
    )
}

/// Why a mode does not do, assuming the queue that is advised.
fn objection(plan: &ModesPlan, mode: &ModePlan) -> Option<String> {
    let limit = plan.questions.max_latency;
    if plan.work.bytes_per_s >= plan.setup.link.goodput().bytes_per_s() {
        return Some("more is written than the link carries".to_owned());
    }
    // Waiting for room ends with the advised queue; waiting for the peer does not.
    let waits_for_peer = mode.kind != ModelMode::Async;
    if waits_for_peer && mode.added_s.p99 > limit.0 {
        return Some(format!("99 of 100 writes take up to {} longer", show_time(Seconds(mode.added_s.p99))));
    }
    if waits_for_peer && mode.rating == "???" {
        return Some("one write or burst at a time, it cannot carry the busiest interval (???)".to_owned());
    }
    let needed = mode.queue.zero_blocking_bytes.unwrap_or(0);
    if needed > MEMORY_QUEUE_MAX && mode.blocked.writes > 0 && plan.questions.rpo.is_none() {
        return Some(format!(
            "its queue would need {}, which is {} of writes behind",
            show_bytes(Bytes(needed)),
            show_time(Seconds(plan.free_lag_s.max))
        ));
    }
    match plan.questions.rpo {
        // With the queue that blocks nobody, not with the one given.
        Some(rpo) if plan.free_lag_s.max > rpo.0 => Some(format!(
            "the far copy is up to {} old, and {} are allowed",
            show_time(Seconds(plan.free_lag_s.max)),
            show_time(rpo)
        )),
        _ => None,
    }
}

fn queue_items(plan: &ModesPlan, kind: ModelMode) -> Vec<AdviceItem> {
    let mut items = Vec::new();
    let peak = plan.modes.iter().filter_map(|mode| mode.queue.zero_blocking_bytes).max();
    if let (Some(peak), true) = (peak, kind.is_ordered()) {
        let wanted = round_up((peak as f64 * QUEUE_MARGIN) as u64);
        let have = plan.setup.queue_bytes;
        let reason = if wanted <= have {
            format!(
                "the trace needed {} at its fullest: {} of the queue",
                show_bytes(Bytes(peak)),
                show_share(peak as f64 / have as f64)
            )
        } else {
            format!(
                "the trace needed {} at its fullest; a quarter more for the day that is worse",
                show_bytes(Bytes(peak))
            )
        };
        items.push(AdviceItem { key: "queue.memory", value: binary(wanted.max(have).min(MEMORY_QUEUE_MAX)), reason });
    }
    if let (Some(peak), ModelMode::SuperAsync) = (peak, kind) {
        let reason = format!(
            "past it the group ships sets of regions until it has caught up; {} would keep every write in order",
            show_bytes(Bytes(peak))
        );
        items.push(AdviceItem { key: "queue.memory", value: binary(plan.setup.queue_bytes), reason });
    }
    let outage = &plan.outage;
    let spill = outage.queue_bytes.max(peak.unwrap_or(0)).saturating_sub(plan.setup.queue_bytes);
    let length = show_time(Seconds(outage.length_s));
    let after = if outage.catch_up_s.is_finite() {
        format!(
            "in order {} after its end the far copy is up to date. Without the disk queue {} of regions are resynced, in {}",
            show_time(Seconds(outage.catch_up_s)),
            show_bytes(Bytes(outage.region_bytes)),
            show_time(Seconds(outage.resync_s))
        )
    } else {
        "the far copy is never up to date again, as more is written than the link carries".to_owned()
    };
    items.push(AdviceItem {
        key: "queue.disk",
        value: if spill == 0 { "none".to_owned() } else { binary(round_up((spill as f64 * QUEUE_MARGIN) as u64)) },
        reason: format!(
            "an outage of {length} at the worst moment leaves {} to send: {after}",
            show_bytes(Bytes(outage.queue_bytes))
        ),
    });
    items
}

fn link_items(plan: &ModesPlan) -> Vec<AdviceItem> {
    let link = &plan.setup.link;
    let product = bandwidth_delay(link.rate, link.rtt);
    let buffer = socket_buffer(link.rate, link.rtt, Bytes(plan.work.largest_write_bytes))
        .0
        .next_multiple_of(4096)
        .min(BUFFER_BYTES_MAX.0);
    let mut items = vec![
        AdviceItem {
            key: "socket buffers",
            value: format!("auto, or {} on both ends", binary(buffer)),
            reason: format!(
                "{} x {} is {}; the largest write is {}; never below 64 KiB. The kernel's own tuning is better where it may grow",
                show_bit_rate(link.rate),
                show_time(link.rtt),
                show_bytes(Bytes::ceil(product)),
                show_bytes(Bytes(plan.work.largest_write_bytes))
            ),
        },
        AdviceItem {
            key: "net.ipv4.tcp_wmem, tcp_rmem",
            value: format!("maximum at least {}", Bytes::ceil(2.0 * product / GRANTED_USABLE).0.max(4 * MIB)),
            reason: "twice the bandwidth-delay product over the usable share of a kernel buffer (0.62), on both ends"
                .to_owned(),
        },
    ];
    if link.loss.0 > 0.0 && link.rtt.0 < 0.05 {
        items.push(AdviceItem {
            key: "minimum RTO",
            value: show_time(rto_min_advice(link.rtt)),
            reason: "segments are lost, and the default of 200 ms is far above the round trip; on both ends or on none"
                .to_owned(),
        });
    }
    items
}

fn activity_log_item(plan: &ModesPlan) -> Option<AdviceItem> {
    let hot = plan.work.hot_extents?;
    let extents = (hot * 2).next_power_of_two().clamp(EXTENTS_MIN, EXTENTS_MAX).max(EXTENTS_DEFAULT);
    let resync = activity_log_resync(extents, Bytes(EXTENT_BYTES), plan.setup.link.goodput());
    Some(AdviceItem {
        key: "activity log",
        value: format!("{extents} extents of 4 MiB"),
        reason: format!(
            "{hot} extents were hot within 5 s; after a crash at most {} are compared or sent, {} at the link's rate",
            show_bytes(Bytes(extents * EXTENT_BYTES)),
            show_time(resync)
        ),
    })
}

fn warnings(plan: &ModesPlan, kind: ModelMode, row: &TableRow) -> Vec<String> {
    let mut found = Vec::new();
    if plan.work.second_bytes.max > plan.setup.link.goodput().bytes_per_s() && kind.is_ordered() {
        found.push(format!(
            "the busiest second writes {}, more than the link's {}: the queue carries the difference",
            show_rate(Rate::from_bytes_per_s(plan.work.second_bytes.max)),
            show_rate(plan.setup.link.goodput())
        ));
    }
    let longest =
        plan.modes.iter().filter(|mode| mode.kind == kind && mode.blocked.writes > 0).map(|mode| mode.added_s.max);
    if let Some(longest) =
        longest.fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b)))).filter(|s| *s > WAIT_LIMIT_S)
    {
        found.push(format!(
            "with the queue given a write would wait up to {}; past wait_limit (10 s unless set) the group stops waiting and only tracks what changes",
            show_time(Seconds(longest))
        ));
    }
    if plan.work.duration_s < 86_400.0 {
        found.push(format!(
            "the trace is {} long: what happens once a day or a month is not in it",
            show_time(Seconds(plan.work.duration_s))
        ));
    }
    if plan.work.duration_s < plan.outage.length_s {
        found.push(format!(
            "the trace is shorter than the outage of {}: the queue for it is a lower bound",
            show_time(Seconds(plan.outage.length_s))
        ));
    }
    if let Some(needed) = plan.needed {
        found.push(match needed.rate_bytes_per_s {
            Some(rate) => format!(
                "a far copy at most {} old needs a link of {} (given: {})",
                show_time(Seconds(needed.rpo_s)),
                show_bit_rate(Rate::from_bytes_per_s(rate)),
                show_bit_rate(plan.setup.link.rate)
            ),
            None => format!(
                "no bandwidth keeps the far copy within {}: half a round trip and the far disk alone take longer",
                show_time(Seconds(needed.rpo_s))
            ),
        });
    }
    if plan.setup.local.rate.is_none() && plan.setup.local.overhead.0 == 0.0 {
        found
            .push("no disk was given: disks count as infinitely fast; --disk RATE,OVERHEAD describes yours".to_owned());
    }
    if plan.work.savings.is_none() {
        found.push(
            "the source only counted writes: their moments within an interval are made up, and folding is not promised"
                .to_owned(),
        );
    }
    if row.advice == crate::table2::TableAdvice::Logging && kind.is_ordered() {
        found.push("it looks like a load or an import: logging for its length and a resync afterwards may be cheaper (table 2)".to_owned());
    }
    found
}

/// What kind of work table 2 would call it.
pub fn work_of(plan: &ModesPlan) -> Work {
    let work = &plan.work;
    let goodput = plan.setup.link.goodput().bytes_per_s();
    let heavy = work.bytes_per_s > HEAVY_SHARE * goodput || work.second_bytes.p95 > goodput;
    let loading = work.sequential_share.is_some_and(|share| share >= LOADING_SEQUENTIAL)
        && work.size_bytes.mean >= LOADING_SIZE_BYTES;
    if loading && heavy {
        return Work::Loading;
    }
    if work.writes_per_s < 1.0 {
        return Work::FewWrites;
    }
    let mut bytes: Vec<u64> = work.intervals.iter().map(|interval| interval.bytes).collect();
    bytes.sort_unstable_by(|a, b| b.cmp(a));
    let few = ((bytes.len() as f64 * BURST_TIME_SHARE).floor() as usize).max(1);
    let in_few: u64 = bytes.iter().take(few).sum();
    if bytes.len() >= 10 && in_few as f64 >= BURST_BYTES_SHARE * work.bytes as f64 {
        return Work::Burst;
    }
    Work::Transactions { heavy }
}

/// To a power of two or three quarters of one, from 1 MiB: sizes that people write.
fn round_up(bytes: u64) -> u64 {
    let power = bytes.max(MIB).next_power_of_two();
    if power > 2 * MIB && bytes <= power / 4 * 3 { power / 4 * 3 } else { power }
}

/// Exact, as the configuration wants it: `96MiB`.
fn binary(bytes: u64) -> String {
    let unit = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let found = unit.iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    found.map_or_else(|| format!("{bytes}B"), |(name, factor)| format!("{}{name}", bytes / factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LinkModel, ModelSetup};
    use crate::plan::{Planner, Questions};
    use crate::scan::TraceScan;
    use crate::trace::TraceRecord;

    fn advice(link: LinkModel, rpo: Option<f64>, records: &[TraceRecord]) -> Advice {
        let mut scan = TraceScan::new(Seconds(1.0));
        scan.add(records);
        let questions = Questions {
            modes: ModelMode::ALL.to_vec(),
            rpo: rpo.map(Seconds),
            max_latency: Seconds(0.01),
            outage: Seconds(10.0),
            outage_at: None,
            compression: None,
            what_if: None,
        };
        let mut planner = Planner::new(ModelSetup::new(link), questions, scan.finish());
        planner.add(records);
        advise(&planner.finish(None))
    }

    fn steady(per_s: u64, length: u32, stride: u64) -> Vec<TraceRecord> {
        let write = |n: u64| TraceRecord {
            time_ns: n * 1_000_000_000 / per_s,
            offset: n * stride % (1 << 40),
            length,
            ..TraceRecord::default()
        };
        (0..per_s * 60).map(write).collect()
    }

    #[track_caller]
    fn check(link: LinkModel, rpo: Option<f64>, records: &[TraceRecord], mode: ModelMode, row: &str) {
        let found = advice(link, rpo, records);
        assert_eq!((found.kind, found.table2[3]), (mode, row), "{found:#?}");
    }

    #[test]
    fn each_situation_gets_its_mode_and_its_row() {
        let link = |mbit: f64, ms: f64| LinkModel::of_line(Rate::from_mbit(mbit), Seconds::from_ms(ms));
        let light = steady(50, 8192, 99 * 8192);
        check(link(1000.0, 1.0), None, &light, ModelMode::Sync, "sync");
        check(link(100.0, 50.0), None, &light, ModelMode::Async, "async, or a periodic point-in-time copy");
        let heavy = steady(1000, 16_384, 99 * 8192);
        check(
            link(100.0, 50.0),
            None,
            &heavy,
            ModelMode::Periodic,
            "point-in-time copy shipped periodically; redo logs sync or async",
        );
        let load = steady(100, 262_144, 262_144);
        check(link(100.0, 50.0), None, &load, ModelMode::Periodic, "logging, then a fast resync");
        // A recovery point that even half a round trip breaks.
        check(link(100.0, 50.0), Some(0.01), &light, ModelMode::SuperAsync, "async, or a periodic point-in-time copy");
    }

    #[test]
    fn sizes_are_such_as_people_write() {
        assert_eq!(
            [1, MIB, MIB + 1, 3 * MIB, 5 * MIB, 7 * MIB].map(|bytes| binary(round_up(bytes))),
            ["1MiB", "1MiB", "2MiB", "3MiB", "6MiB", "8MiB"].map(str::to_owned)
        );
    }
}
