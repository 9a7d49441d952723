//! What a trace says about the work that made it: how much, how bursty, how large, how often the same place again.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::overlap::{Overlap, Saving};
use crate::series::{Join, TimeSeries};
use crate::trace::{TraceKind, TraceRecord};
use units::quantities::Seconds;

pub const SCAN_SCHEMA: &str = "farshore-scan/1";
/// Writes nearer to one another than this were not waiting for one another: no disk answers so fast.
pub const BURST_GAP_NS: u64 = 100_000;
/// An extent of the activity log, and the time a hot one stays hot.
pub const EXTENT_BYTES: u64 = 4 << 20;
const EXTENT_WINDOW_NS: u64 = 5 * SECOND_NS;
/// More hot extents than this are "too many" whatever their number.
const EXTENTS_MAX: usize = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;
/// Intervals kept; when they run out, their width doubles.
const INTERVALS_MAX: usize = 2880;
/// A burst ends here at the latest: more never was one transaction.
const BURST_BYTES_MAX: u64 = 1 << 30;

/// What `scan --json` prints. The comments of fields are the manual's words: docs/book/json.md is made from them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScanReport<'a> {
    /// name and version of this schema
    pub schema: &'static str,
    /// formats found, one for each file
    pub formats: &'a [&'static str],
    /// reads passed over
    pub reads: u64,
    /// sentences about records left out
    pub warnings: &'a [String],
    /// all figures of the trace; `null` where a figure needs offsets and the source has only counts
    pub workload: &'a TraceWorkload,
}

/// A part of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceInterval {
    /// seconds from the beginning of the trace
    pub start_s: f64,
    /// writes of this part
    pub writes: u64,
    /// bytes written
    pub bytes: u64,
    /// flushes of this part
    pub flushes: u64,
    /// bytes of its busiest second
    pub peak_second_bytes: u64,
    /// how often writes came at once: each within 0.1 ms of the one before
    pub bursts: u64,
}

impl TraceInterval {
    fn join(&mut self, next: &Self) {
        self.writes += next.writes;
        self.bytes += next.bytes;
        self.flushes += next.flushes;
        self.peak_second_bytes = self.peak_second_bytes.max(next.peak_second_bytes);
        self.bursts += next.bursts;
    }
    pub fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.writes.max(1) as f64
    }
    /// What was written at once, without waiting.
    pub fn burst_bytes(&self) -> f64 {
        self.bytes as f64 / self.bursts.max(1) as f64
    }
}

/// A distribution in few words, in the unit that the key names.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Distribution {
    /// the mean
    pub mean: f64,
    /// the median
    pub p50: f64,
    /// 95 of 100 are no larger
    pub p95: f64,
    /// 99 of 100 are no larger
    pub p99: f64,
    /// the largest
    pub max: f64,
    /// `[upper bound, count]`, bounds double
    pub buckets: Vec<(u64, u64)>,
}

/// Everything the scan found.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceWorkload {
    /// seconds from the first record to the last
    pub duration_s: f64,
    /// volumes of the trace: the highest number and one
    pub volumes: usize,
    /// writes of the trace
    pub writes: u64,
    /// bytes written
    pub bytes: u64,
    /// flushes of the trace
    pub flushes: u64,
    /// writes that had to be durable before they were answered
    pub fua_writes: u64,
    /// trims of the trace
    pub trims: u64,
    /// over the whole trace
    pub writes_per_s: f64,
    /// bytes a second over the whole trace
    pub bytes_per_s: f64,
    /// bytes in single seconds, idle ones included
    pub second_bytes: Distribution,
    /// bytes a second in the busiest second
    pub peak_1s_bytes_per_s: f64,
    /// bytes a second in the busiest ten seconds
    pub peak_10s_bytes_per_s: f64,
    /// bytes a second in the busiest minute
    pub peak_60s_bytes_per_s: f64,
    /// the busiest second over the mean
    pub peak_to_mean: f64,
    /// bytes of a write
    pub size_bytes: Distribution,
    /// nanoseconds from a write to the next
    pub gap_ns: Distribution,
    /// bytes that were written at least once; `null`: the source only counted
    pub working_set_bytes: Option<u64>,
    /// one for each window; `null`: the source only counted
    pub savings: Option<Vec<Saving>>,
    /// the figures of overwriting rest on one page of this many
    pub sampled_one_in: u64,
    /// 0 to 1, of the bytes: continue where the volume's last write ended; `null`: the source only counted
    pub sequential_share: Option<f64>,
    /// over the whole trace
    pub flushes_per_s: f64,
    /// most extents of 4 MiB written within 5 s; `null`: the source only counted
    pub hot_extents: Option<u64>,
    /// bytes
    pub largest_write_bytes: u64,
    /// seconds: length of each of `intervals`
    pub interval_s: f64,
    /// parts of the trace, oldest first
    pub intervals: Vec<TraceInterval>,
    #[serde(skip)]
    pub fill: TimeSeries,
}

/// A hash for small numbers that gives the same order of work on every run.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }
    fn write_u64(&mut self, value: u64) {
        let x = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 29);
    }
}

/// Gathers records in order of time.
pub struct TraceScan {
    last_ns: u64,
    seen: bool,
    volumes: usize,
    writes: u64,
    bytes: u64,
    flushes: u64,
    fua_writes: u64,
    trims: u64,
    synthetic: bool,
    sizes: Histogram<u64>,
    gaps: Histogram<u64>,
    last_write_ns: Option<u64>,
    seconds: Seconds60,
    overlap: Overlap,
    ends: Vec<u64>,
    sequential_bytes: u64,
    extents: HashSet<u64, BuildHasherDefault<Mixer>>,
    extents_since_ns: u64,
    last_extent: u64,
    hot_extents: usize,
    burst_bytes: u64,
    largest_write_bytes: u64,
    interval_ns: u64,
    intervals: Vec<TraceInterval>,
    fill: TimeSeries,
}

/// Bytes per second: the second under way and the sums of the last ten and sixty.
struct Seconds60 {
    second: u64,
    now: u64,
    last: [u64; 60],
    histogram: Histogram<u64>,
    peaks: [u64; 3],
}

impl Seconds60 {
    fn add(&mut self, second: u64, bytes: u64) {
        if second != self.second {
            self.close_until(second);
        }
        self.now += bytes;
    }

    fn close_until(&mut self, second: u64) {
        let bytes = std::mem::take(&mut self.now);
        self.close(bytes);
        let idle = second.saturating_sub(self.second + 1);
        if idle > 0 {
            self.histogram.saturating_record(0);
            self.histogram.record_n(0, idle - 1).expect("zero fits");
            (0..idle.min(60)).for_each(|step| self.last[((self.second + 1 + step) % 60) as usize] = 0);
        }
        self.second = second;
    }

    fn close(&mut self, bytes: u64) {
        self.histogram.saturating_record(bytes);
        self.last[(self.second % 60) as usize] = bytes;
        let sum = |count: u64| {
            (0..count.min(self.second + 1)).map(|back| self.last[((self.second - back) % 60) as usize]).sum()
        };
        let sums: [u64; 3] = [bytes, sum(10), sum(60)];
        for (peak, sum) in self.peaks.iter_mut().zip(sums) {
            *peak = (*peak).max(sum);
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1 << 42, 3).expect("fixed bounds are sound")
}

impl TraceScan {
    /// `interval` is at least a second; it grows for long traces.
    pub fn new(interval: Seconds) -> Self {
        Self {
            last_ns: 0,
            seen: false,
            volumes: 0,
            writes: 0,
            bytes: 0,
            flushes: 0,
            fua_writes: 0,
            trims: 0,
            synthetic: false,
            sizes: histogram(),
            gaps: histogram(),
            last_write_ns: None,
            seconds: Seconds60 { second: 0, now: 0, last: [0; 60], histogram: histogram(), peaks: [0; 3] },
            overlap: Overlap::default(),
            ends: Vec::new(),
            sequential_bytes: 0,
            extents: HashSet::default(),
            extents_since_ns: 0,
            last_extent: u64::MAX,
            hot_extents: 0,
            burst_bytes: 0,
            largest_write_bytes: 0,
            interval_ns: interval.as_ns().max(SECOND_NS),
            intervals: Vec::new(),
            fill: TimeSeries::new(Join::Sum),
        }
    }

    pub fn add(&mut self, records: &[TraceRecord]) {
        for record in records {
            debug_assert!(record.time_ns >= self.last_ns, "records come in order of time");
            self.seen = true;
            self.last_ns = record.time_ns;
            self.volumes = self.volumes.max(usize::from(record.volume) + 1);
            self.synthetic |= record.synthetic;
            match record.kind {
                TraceKind::Write => self.write(record),
                TraceKind::Flush => {
                    self.flushes += 1;
                    self.interval(record.time_ns).flushes += 1;
                }
                TraceKind::Trim => self.trims += 1,
            }
        }
    }

    fn write(&mut self, record: &TraceRecord) {
        let (time_ns, bytes) = (record.time_ns, u64::from(record.length));
        self.writes += 1;
        self.bytes += bytes;
        self.largest_write_bytes = self.largest_write_bytes.max(bytes);
        self.fua_writes += u64::from(record.fua);
        self.sizes.saturating_record(bytes.max(1));
        let gap = self.last_write_ns.map(|last| time_ns - last);
        if let Some(gap) = gap {
            self.gaps.saturating_record(gap.max(1));
        }
        self.last_write_ns = Some(time_ns);
        let is_new_burst = gap.is_none_or(|gap| gap > BURST_GAP_NS) || self.burst_bytes > BURST_BYTES_MAX;
        self.burst_bytes = if is_new_burst { bytes } else { self.burst_bytes + bytes };
        self.seconds.add(time_ns / SECOND_NS, bytes);
        let second_bytes = self.seconds.now;
        let interval = self.interval(time_ns);
        interval.writes += 1;
        interval.bytes += bytes;
        interval.bursts += u64::from(is_new_burst);
        interval.peak_second_bytes = interval.peak_second_bytes.max(second_bytes);
        self.fill.add(time_ns, bytes as f64);
        if !record.synthetic {
            self.count_extents(record);
        }
    }

    fn count_extents(&mut self, record: &TraceRecord) {
        self.overlap.write(record);
        let volume = usize::from(record.volume);
        if volume >= self.ends.len() {
            self.ends.resize(volume + 1, u64::MAX);
        }
        if self.ends[volume] == record.offset {
            self.sequential_bytes += u64::from(record.length);
        }
        self.ends[volume] = record.offset + u64::from(record.length);
        if record.time_ns - self.extents_since_ns > EXTENT_WINDOW_NS {
            self.extents.clear();
            self.extents_since_ns = record.time_ns;
            self.last_extent = u64::MAX;
        }
        let last = (record.offset + u64::from(record.length).max(1) - 1) / EXTENT_BYTES;
        for extent in record.offset / EXTENT_BYTES..=last {
            let key = extent | (volume as u64) << 42;
            if key != self.last_extent && self.extents.len() < EXTENTS_MAX {
                self.extents.insert(key);
                self.last_extent = key;
                self.hot_extents = self.hot_extents.max(self.extents.len());
            }
        }
    }

    fn interval(&mut self, time_ns: u64) -> &mut TraceInterval {
        let mut index = (time_ns / self.interval_ns) as usize;
        while index >= INTERVALS_MAX {
            let pairs = self.intervals.chunks(2).map(|pair| {
                let mut first = pair[0];
                pair[1..].iter().for_each(|next| first.join(next));
                first
            });
            self.intervals = pairs.collect();
            self.interval_ns *= 2;
            index = (time_ns / self.interval_ns) as usize;
        }
        while self.intervals.len() <= index {
            let start_s = self.intervals.len() as f64 * Seconds::from_ns(self.interval_ns).0;
            self.intervals.push(TraceInterval { start_s, ..TraceInterval::default() });
        }
        &mut self.intervals[index]
    }

    /// # Errors
    /// A sentence, when there was no write to learn from.
    pub fn verdict(&self, reads: u64) -> Result<(), String> {
        match (self.writes, reads) {
            (0, 0) if !self.seen => Err("the trace holds no records: nothing can be said about it".to_owned()),
            (0, 0) => Err("the trace holds no writes: nothing would be replicated".to_owned()),
            (0, _) => Err(format!("the trace holds {reads} reads and no writes: nothing would be replicated")),
            _ => Ok(()),
        }
    }

    pub fn finish(mut self) -> TraceWorkload {
        self.seconds.close_until(self.last_ns / SECOND_NS + 1);
        let duration_s = Seconds::from_ns(self.last_ns).0;
        let per_s = |count: u64| if duration_s > 0.0 { count as f64 / duration_s } else { 0.0 };
        let bytes_per_s = per_s(self.bytes);
        let [peak_1, peak_10, peak_60] = self.seconds.peaks;
        // A trace shorter than the window has its whole in it.
        let over = |bytes: u64, window: f64| bytes as f64 / window.min(duration_s.max(1.0));
        let known = !self.synthetic;
        TraceWorkload {
            duration_s,
            volumes: self.volumes,
            writes: self.writes,
            bytes: self.bytes,
            flushes: self.flushes,
            fua_writes: self.fua_writes,
            trims: self.trims,
            writes_per_s: per_s(self.writes),
            bytes_per_s,
            second_bytes: distribution(&self.seconds.histogram),
            peak_1s_bytes_per_s: peak_1 as f64,
            peak_10s_bytes_per_s: over(peak_10, 10.0),
            peak_60s_bytes_per_s: over(peak_60, 60.0),
            // A trace of less than a second is one peak.
            peak_to_mean: if bytes_per_s > 0.0 { (peak_1 as f64 / bytes_per_s).max(1.0) } else { 0.0 },
            size_bytes: distribution(&self.sizes),
            gap_ns: distribution(&self.gaps),
            working_set_bytes: known.then(|| self.overlap.working_set_bytes()),
            savings: known.then(|| self.overlap.savings()),
            sampled_one_in: self.overlap.sampled_one_in(),
            sequential_share: known.then(|| self.sequential_bytes as f64 / self.bytes.max(1) as f64),
            flushes_per_s: per_s(self.flushes),
            hot_extents: known.then_some(self.hot_extents as u64),
            largest_write_bytes: self.largest_write_bytes,
            interval_s: Seconds::from_ns(self.interval_ns).0,
            intervals: self.intervals,
            fill: self.fill,
        }
    }
}

fn distribution(histogram: &Histogram<u64>) -> Distribution {
    if histogram.is_empty() {
        return Distribution::default();
    }
    let mut buckets: Vec<(u64, u64)> = Vec::new();
    for value in histogram.iter_recorded() {
        let upper = histogram.lowest_equivalent(value.value_iterated_to()).next_power_of_two();
        match buckets.last_mut() {
            Some((bound, count)) if *bound == upper => *count += value.count_at_value(),
            _ => buckets.push((upper, value.count_at_value())),
        }
    }
    // Sizes are round numbers; the lower end of a step shows them as they are.
    let round = |value: u64| histogram.lowest_equivalent(value) as f64;
    let at = |quantile: f64| round(histogram.value_at_quantile(quantile));
    Distribution {
        mean: histogram.mean(),
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        max: round(histogram.max()),
        buckets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64, offset: u64, length: u32) -> TraceRecord {
        TraceRecord { time_ns: ms * 1_000_000, offset, length, ..TraceRecord::default() }
    }

    #[test]
    fn a_steady_second_and_a_burst() {
        let mut scan = TraceScan::new(Seconds(10.0));
        // 100 writes of 8 KiB a second for 20 s, one behind the other; then 1000 at once in second 30; end at 60 s.
        let steady: Vec<TraceRecord> = (0..2000).map(|n| at_ms(n * 10, n * 8192, 8192)).collect();
        let burst: Vec<TraceRecord> = (0..1000).map(|_| at_ms(30_000, 0, 8192)).collect();
        let flush = TraceRecord { kind: TraceKind::Flush, ..at_ms(60_000, 0, 0) };
        scan.add(&steady);
        scan.add(&burst);
        scan.add(&[flush]);
        let found = scan.finish();
        assert_eq!((found.duration_s, found.writes, found.bytes, found.flushes), (60.0, 3000, 3000 * 8192, 1));
        assert_eq!(found.peak_1s_bytes_per_s, 1000.0 * 8192.0);
        assert_eq!(found.peak_10s_bytes_per_s, 100.0 * 8192.0);
        assert!((found.peak_to_mean - 1000.0 / 50.0).abs() < 1e-9);
        // A third of all seconds had 100 writes, one had 1000.
        assert_eq!(found.second_bytes.p50, 0.0);
        assert!((found.sequential_share.unwrap() - 1999.0 / 3000.0).abs() < 1e-9);
        assert_eq!(found.intervals.len(), 7);
        assert_eq!((found.intervals[3].bursts, found.intervals[3].writes, found.intervals[0].bursts), (1, 1000, 1000));
        assert_eq!(found.intervals[3].burst_bytes(), 1000.0 * 8192.0);
        assert_eq!(found.size_bytes.buckets.iter().map(|(_, count)| count).sum::<u64>(), 3000);
        // 5 s of 100 writes of 8 KiB side by side are one or two extents.
        assert!((1..=3).contains(&found.hot_extents.unwrap()), "{:?}", found.hot_extents);
    }

    #[test]
    fn long_traces_keep_few_intervals() {
        let mut scan = TraceScan::new(Seconds(1.0));
        (0..20_000).for_each(|second| scan.add(&[at_ms(second * 1000, 0, 512)]));
        let found = scan.finish();
        assert!(found.intervals.len() <= INTERVALS_MAX && found.interval_s == 8.0);
        assert_eq!(found.intervals.iter().map(|interval| interval.writes).sum::<u64>(), 20_000);
        assert!(found.intervals.windows(2).all(|pair| pair[1].start_s - pair[0].start_s == 8.0));
    }

    #[test]
    fn counts_without_offsets_promise_no_folding() {
        let mut scan = TraceScan::new(Seconds(60.0));
        scan.add(&[
            TraceRecord { synthetic: true, ..at_ms(0, 0, 512) },
            TraceRecord { synthetic: true, ..at_ms(9, 0, 512) },
        ]);
        let found = scan.finish();
        assert_eq!((found.working_set_bytes, found.savings, found.sequential_share), (None, None, None));
    }
}
