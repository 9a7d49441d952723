//! Inverse questions: which bandwidth keeps a promise? Many links at once are tried in one pass, each with a few numbers
//! of memory; a second pass between the last that failed and the first that held gives the answer to a quarter of a percent.

use super::line::LineModel;
use super::{DiskAtWork, ModelSetup, moment_s};
use crate::trace::{TraceKind, TraceRecord};
use units::quantities::Rate;

/// Links tried in one pass.
pub const TRIES: usize = 64;

/// Lag of an unbounded ordered queue, for many bandwidths.
pub struct Bandwidths {
    setup: ModelSetup,
    tries: Vec<BandwidthTry>,
}

struct BandwidthTry {
    line: LineModel,
    remote: DiskAtWork,
    lag_max_s: f64,
}

impl Bandwidths {
    /// Goodputs from `low` to `high` in equal ratios.
    pub fn between(setup: ModelSetup, low: Rate, high: Rate) -> Self {
        let (low, high) = (low.bytes_per_s().max(1.0), high.bytes_per_s().max(2.0));
        let ratio = (high / low).powf(1.0 / (TRIES - 1) as f64);
        let tries = (0..TRIES).map(|step| BandwidthTry {
            line: LineModel::new(&setup.link, low * ratio.powi(step as i32)),
            remote: DiskAtWork::default(),
            lag_max_s: 0.0,
        });
        Self { setup, tries: tries.collect() }
    }

    pub fn add(&mut self, records: &[TraceRecord]) {
        let one_way_s = self.setup.link.rtt.0 / 2.0;
        for record in records {
            if record.kind != TraceKind::Write || record.length == 0 {
                continue;
            }
            let (at_s, payload) = (moment_s(record), u64::from(record.length));
            let wire = self.setup.wire_bytes(payload);
            for each in &mut self.tries {
                let arrived_s = each.line.send(at_s, wire) + one_way_s;
                let durable_s = each.remote.write(&self.setup.remote, arrived_s, payload);
                each.lag_max_s = each.lag_max_s.max(durable_s - at_s);
            }
        }
    }

    /// The last goodput that breaks a limit on lag and the first that keeps it; `None` where there is no such.
    pub fn bracket(&self, lag_max_s: f64) -> (Option<Rate>, Option<Rate>) {
        let first = self.tries.iter().position(|each| each.lag_max_s <= lag_max_s);
        let rate = |index: usize| Rate::from_bytes_per_s(self.tries[index].line.goodput);
        let last = first.map_or(self.tries.len().checked_sub(1), |index| index.checked_sub(1));
        (last.map(rate), first.map(rate))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LinkModel, ModelMode, stream::StreamReplay};
    use super::*;
    use units::quantities::Seconds;

    #[test]
    fn two_passes_find_the_bandwidth_for_a_recovery_point() {
        // 10 MB at once every minute: 5 s of lag need a good 2 MB/s.
        let write =
            |n: u64| TraceRecord { time_ns: n / 100 * 60_000_000_000, length: 100_000, ..TraceRecord::default() };
        let records: Vec<TraceRecord> = (0..500).map(write).collect();
        let setup = ModelSetup::new(LinkModel::measured(Rate::from_mb(1.0), Seconds::from_ms(50.0)));
        let search = |low, high| {
            let mut bandwidths = Bandwidths::between(setup, low, high);
            bandwidths.add(&records);
            bandwidths.bracket(5.0)
        };
        let (low, high) = search(Rate::from_mb(0.01), Rate::from_mb(1000.0));
        let (_, found) = search(low.unwrap(), high.unwrap());
        let found = found.unwrap();
        let exact = 100.0 * setup.wire_bytes(100_000) / (5.0 - 0.025);
        assert!((1.0..1.004).contains(&(found.bytes_per_s() / exact)), "{found:?} {exact}");
        // And the full model agrees that it holds.
        let link = LinkModel { rate: found, ..setup.link };
        let mut stream = StreamReplay::new(ModelMode::Async, ModelSetup { link, ..setup }.unbounded());
        stream.add(&records);
        assert!(stream.lag.times.quantiles().max <= 5.0);
        assert_eq!(search(Rate::from_mb(10.0), Rate::from_mb(20.0)).0, None);
        assert_eq!(search(Rate::from_mb(0.1), Rate::from_mb(0.2)).1, None);
    }
}
