//! A scanned workload in words and columns, for a terminal.

use crate::answer::table;
use crate::scan::{Distribution, TraceInterval, TraceWorkload};
use units::quantities::{Bytes, Rate, Seconds, show_bytes, show_rate, show_share, show_time};

/// Rows of the interval table at most; the busiest are kept.
const INTERVAL_ROWS: usize = 12;

fn rate(bytes_per_s: f64) -> String {
    show_rate(Rate::from_bytes_per_s(bytes_per_s))
}

fn size(bytes: f64) -> String {
    show_bytes(Bytes(bytes.round() as u64))
}

fn gap(ns: f64) -> String {
    show_time(Seconds(ns / 1e9))
}

/// Names and values, one pair a line.
pub fn facts(work: &TraceWorkload) -> Vec<(&'static str, String)> {
    let unknown = || "unknown: the source only counted".to_owned();
    let sampled = if work.sampled_one_in > 1 {
        format!(" (estimated from one page of {})", work.sampled_one_in)
    } else {
        String::new()
    };
    let saved = |savings: &Vec<crate::overlap::Saving>| {
        let each = savings
            .iter()
            .map(|s| format!("{} within {}", show_share(s.saved_share), show_time(Seconds(f64::from(s.window_s)))));
        each.collect::<Vec<_>>().join(", ") + &sampled
    };
    let five = |d: &Distribution, show: fn(f64) -> String| {
        format!(
            "mean {}, p50 {}, p95 {}, p99 {}, max {}",
            show(d.mean),
            show(d.p50),
            show(d.p95),
            show(d.p99),
            show(d.max)
        )
    };
    vec![
        ("time", show_time(Seconds(work.duration_s))),
        ("volumes", work.volumes.to_string()),
        ("writes", format!("{} ({:.1}/s), {}", work.writes, work.writes_per_s, size(work.bytes as f64))),
        (
            "flushes",
            format!(
                "{} ({:.1}/s), {} writes with FUA, {} trims",
                work.flushes, work.flushes_per_s, work.fua_writes, work.trims
            ),
        ),
        (
            "rate",
            format!(
                "mean {}, busiest second {}, 10 s {}, 60 s {}",
                rate(work.bytes_per_s),
                rate(work.peak_1s_bytes_per_s),
                rate(work.peak_10s_bytes_per_s),
                rate(work.peak_60s_bytes_per_s)
            ),
        ),
        ("seconds", five(&work.second_bytes, rate)),
        ("peak to mean", format!("{:.1}", work.peak_to_mean)),
        ("write size", five(&work.size_bytes, size)),
        ("gap", five(&work.gap_ns, gap)),
        ("working set", work.working_set_bytes.map_or_else(unknown, |bytes| size(bytes as f64) + &sampled)),
        ("overwritten", work.savings.as_ref().map_or_else(unknown, saved)),
        ("sequential", work.sequential_share.map_or_else(unknown, show_share)),
        ("hot extents", work.hot_extents.map_or_else(unknown, |count| format!("{count} of 4 MiB within 5 s"))),
    ]
}

/// The scan's report.
pub fn workload_text(work: &TraceWorkload) -> String {
    let facts = facts(work);
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut out: String = facts.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect();
    out += "\n";
    out += &distribution_text("write size", &work.size_bytes, size);
    out += &distribution_text("gap", &work.gap_ns, gap);
    out += &intervals_text(work);
    out
}

/// Bars of a distribution whose buckets double.
fn distribution_text(name: &str, distribution: &Distribution, show: fn(f64) -> String) -> String {
    let total: u64 = distribution.buckets.iter().map(|(_, count)| count).sum();
    let most = distribution.buckets.iter().map(|(_, count)| *count).max().unwrap_or(1);
    let mut out = String::new();
    for (upper, count) in &distribution.buckets {
        let bar = "#".repeat((*count as f64 / most as f64 * 40.0).ceil() as usize);
        let share = show_share(*count as f64 / total.max(1) as f64);
        out += &format!("{name} <= {:<9} {count:>10} {share:>7}  {bar}\n", show(*upper as f64));
    }
    out + "\n"
}

fn intervals_text(work: &TraceWorkload) -> String {
    let mut shown: Vec<_> = work.intervals.iter().filter(|interval| interval.writes > 0).collect();
    let total = shown.len();
    shown.sort_by_key(|interval| std::cmp::Reverse(interval.bytes));
    shown.truncate(INTERVAL_ROWS);
    shown.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    let header = ["from", "writes/s", "rate", "busiest second", "size", "flushes/s"].map(str::to_owned);
    // The last interval is as long as the trace was.
    let length_s = |i: &TraceInterval| work.interval_s.min(work.duration_s - i.start_s).max(1.0);
    let per_s = |i: &TraceInterval, count: u64| format!("{:.1}", count as f64 / length_s(i));
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|i| {
            vec![
                show_time(Seconds(i.start_s)),
                per_s(i, i.writes),
                rate(i.bytes as f64 / length_s(i)),
                rate(i.peak_second_bytes as f64),
                size(i.mean_bytes()),
                per_s(i, i.flushes),
            ]
        })
        .collect();
    let of = if total > shown.len() { format!("the {} busiest of {total}", shown.len()) } else { total.to_string() };
    format!("intervals of {} ({of}):\n{}", show_time(Seconds(work.interval_s)), table(&header, &rows))
}
