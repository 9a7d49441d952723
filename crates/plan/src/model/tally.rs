//! What a replay adds up, whatever its mode.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::series::{Join, TimeSeries};

/// Parts of a rising line that stand for it in the distribution of lag.
const LAG_STEPS: u32 = 8;

/// Quantiles, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Quantiles {
    /// seconds: the median
    pub p50: f64,
    /// seconds: 95 of 100 are no longer
    pub p95: f64,
    /// seconds: 99 of 100 are no longer
    pub p99: f64,
    /// seconds: 999 of 1 000 are no longer
    pub p999: f64,
    /// seconds: the longest
    pub max: f64,
}

/// A distribution of times: of writes, each counting once, or of moments, each counting as long as it lasted.
#[derive(Clone, Debug)]
pub struct TimeDistribution {
    histogram: Histogram<u64>,
    max_s: f64,
}

impl Default for TimeDistribution {
    fn default() -> Self {
        // From 1 µs to 12 days in steps of 1 %; longer times are counted as that long.
        let histogram = Histogram::new_with_bounds(1, 1 << 40, 2).expect("fixed bounds are sound");
        Self { histogram, max_s: 0.0 }
    }
}

impl TimeDistribution {
    pub fn add(&mut self, time_s: f64) {
        self.add_for(time_s, 1);
    }

    pub fn add_for(&mut self, time_s: f64, weight: u64) {
        let us = (time_s * 1e6).round().max(0.0) as u64;
        self.histogram.saturating_record_n(us, weight);
        self.max_s = self.max_s.max(time_s);
    }

    pub fn quantiles(&self) -> Quantiles {
        if self.histogram.is_empty() {
            return Quantiles::default();
        }
        let at = |q: f64| {
            (self.histogram.lowest_equivalent(self.histogram.value_at_quantile(q)) as f64 / 1e6).min(self.max_s)
        };
        Quantiles { p50: at(0.5), p95: at(0.95), p99: at(0.99), p999: at(0.999), max: self.max_s }
    }

    /// Share of all that took this long or less, at rising times: for a picture.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let total = self.histogram.len().max(1) as f64;
        let mut sum = 0u64;
        let points = self.histogram.iter_recorded().map(|step| {
            sum = sum.saturating_add(step.count_at_value());
            (step.value_iterated_to() as f64 / 1e6, sum as f64 / total)
        });
        points.collect()
    }
}

/// The recovery point's distance: how old the newest consistent copy on the far side is.
#[derive(Clone, Debug)]
pub struct Lag {
    pub times: TimeDistribution,
    pub curve: TimeSeries,
    known_until_s: f64,
}

impl Default for Lag {
    fn default() -> Self {
        Self { times: TimeDistribution::default(), curve: TimeSeries::new(Join::Max), known_until_s: 0.0 }
    }
}

impl Lag {
    /// A write of this moment became durable far away at that one. Both only grow from call to call.
    pub fn confirmed(&mut self, written_s: f64, durable_s: f64) {
        let from_s = self.known_until_s;
        if durable_s <= from_s {
            return;
        }
        if written_s > from_s {
            self.flat(written_s - from_s);
        }
        self.rising(written_s, from_s.max(written_s), durable_s);
        self.known_until_s = durable_s;
    }

    fn flat(&mut self, for_s: f64) {
        self.times.add_for(0.0, weight(for_s));
    }

    fn rising(&mut self, written_s: f64, from_s: f64, until_s: f64) {
        let width_s = until_s - from_s;
        let steps = if width_s > 1e-3 { LAG_STEPS } else { 1 };
        for step in 0..steps {
            let middle_s = from_s + width_s * (f64::from(step) + 0.5) / f64::from(steps);
            self.times.add_for(middle_s - written_s, weight(width_s / f64::from(steps)));
        }
        self.times.max_s = self.times.max_s.max(until_s - written_s);
        // A long rise is drawn as one.
        let shown = (width_s / self.curve.step().0).ceil().clamp(1.0, 512.0) as u32;
        for step in 1..=shown {
            let at_s = from_s + width_s * f64::from(step) / f64::from(shown);
            self.curve.add((at_s * 1e9) as u64, at_s - written_s);
        }
    }
}

/// Whole microseconds, at least one.
fn weight(for_s: f64) -> u64 {
    ((for_s * 1e6) as u64).max(1)
}

/// What stands in the queue.
#[derive(Clone, Debug)]
pub struct QueueFill {
    pub bytes: u64,
    pub items: u64,
    pub peak_bytes: u64,
    pub peak_items: u64,
    pub peak_at_s: f64,
    pub curve: TimeSeries,
    since_s: f64,
}

impl Default for QueueFill {
    fn default() -> Self {
        let curve = TimeSeries::new(Join::Max);
        Self { bytes: 0, items: 0, peak_bytes: 0, peak_items: 0, peak_at_s: 0.0, curve, since_s: 0.0 }
    }
}

impl QueueFill {
    pub fn enter(&mut self, at_s: f64, bytes: u64, items: u64) {
        self.stood_until(at_s);
        self.bytes += bytes;
        self.items += items;
        self.peak_items = self.peak_items.max(self.items);
        if self.bytes > self.peak_bytes {
            (self.peak_bytes, self.peak_at_s) = (self.bytes, at_s);
        }
        self.curve.add((at_s * 1e9) as u64, self.bytes as f64);
    }

    pub fn leave(&mut self, at_s: f64, bytes: u64, items: u64) {
        self.stood_until(at_s);
        self.bytes -= bytes;
        self.items -= items;
    }

    /// Nothing came and nothing left until then: what stood there is no less for that.
    fn stood_until(&mut self, at_s: f64) {
        let ns = |at_s: f64| (at_s * 1e9) as u64;
        if self.bytes > 0 && at_s > self.since_s {
            self.curve.hold(ns(self.since_s), ns(at_s), self.bytes as f64);
        }
        self.since_s = self.since_s.max(at_s);
    }
}

/// Writers who waited for room.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockedWriters {
    pub writes: u64,
    /// Sum over all writers.
    pub writer_s: f64,
    /// Time in which anybody waited.
    pub clock_s: f64,
    until_s: f64,
}

impl BlockedWriters {
    pub fn add(&mut self, from_s: f64, until_s: f64) {
        if until_s > from_s {
            self.writes += 1;
            self.writer_s += until_s - from_s;
            self.clock_s += (until_s - from_s.max(self.until_s)).max(0.0);
            self.until_s = self.until_s.max(until_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_rises_and_falls_back() {
        let mut lag = Lag::default();
        // Written at 1, durable at 3; written at 2, durable at 3; then nothing until 9, durable at 10.
        lag.confirmed(1.0, 3.0);
        lag.confirmed(2.0, 3.0);
        lag.confirmed(9.0, 10.0);
        let quantiles = lag.times.quantiles();
        assert_eq!(quantiles.max, 2.0);
        // Of ten seconds seven had no lag; in the last half of one it was over 1.5 s.
        assert_eq!(quantiles.p50, 0.0);
        assert!((1.2..=1.7).contains(&quantiles.p95), "{quantiles:?}");
    }

    /// In a stall nothing comes and nothing leaves, and the picture showed an empty queue.
    #[test]
    fn what_stands_in_a_stall_is_drawn() {
        let mut fill = QueueFill::default();
        fill.enter(0.0, 1000, 1);
        fill.enter(1.0, 1000, 1);
        fill.leave(9.0, 1000, 1);
        fill.enter(9.55, 500, 1);
        let seen: Vec<f64> = fill.curve.values().to_vec();
        assert!(seen[..10].iter().all(|&bytes| bytes == 1000.0), "{seen:?}");
        assert!(seen[10..=90].iter().all(|&bytes| bytes == 2000.0), "{seen:?}");
        assert_eq!(seen[91..], [1000.0, 1000.0, 1000.0, 1000.0, 1500.0]);
        assert_eq!((fill.peak_bytes, fill.peak_at_s), (2000, 1.0));
    }

    #[test]
    fn two_who_wait_at_once_count_twice_and_the_clock_once() {
        let mut waiting = BlockedWriters::default();
        waiting.add(1.0, 3.0);
        waiting.add(2.0, 4.0);
        waiting.add(6.0, 6.0);
        waiting.add(7.0, 8.0);
        assert_eq!((waiting.writes, waiting.writer_s, waiting.clock_s), (3, 5.0, 4.0));
    }
}
