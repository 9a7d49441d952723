//! The ordered modes: every write travels, in order, as it was written.

use std::collections::VecDeque;

use super::tally::{BlockedWriters, Lag, QueueFill, TimeDistribution};
use super::{DiskAtWork, LinkAtWork, ModelMode, ModelSetup, cost_bytes, moment_s, parts};
use crate::series::{Join, TimeSeries};
use crate::trace::{TraceKind, TraceRecord};

/// A replay in one of the modes sync, nearsync and async.
pub struct StreamReplay {
    mode: ModelMode,
    setup: ModelSetup,
    link: LinkAtWork,
    local: DiskAtWork,
    /// The same disk without replication: what the application has today.
    local_alone: DiskAtWork,
    remote: DiskAtWork,
    /// Receipts on their way: when they are back, and what they free.
    receipts: VecDeque<(f64, u64, u64)>,
    admitted_s: f64,
    durable_s: f64,
    last_s: f64,
    pub fill: QueueFill,
    pub lag: Lag,
    pub waiting: BlockedWriters,
    pub response: TimeDistribution,
    pub added: TimeDistribution,
    pub drain: TimeSeries,
    /// When what stood in the queue at its fullest had all left.
    drained_s: Option<f64>,
    drained_of_peak_s: f64,
}

impl StreamReplay {
    pub fn new(mode: ModelMode, setup: ModelSetup) -> Self {
        assert!(mode.is_ordered(), "other modes do not send every write");
        Self {
            mode,
            setup,
            link: LinkAtWork::new(&setup),
            local: DiskAtWork::default(),
            local_alone: DiskAtWork::default(),
            remote: DiskAtWork::default(),
            receipts: VecDeque::new(),
            admitted_s: 0.0,
            durable_s: 0.0,
            last_s: 0.0,
            fill: QueueFill::default(),
            lag: Lag::default(),
            waiting: BlockedWriters::default(),
            response: TimeDistribution::default(),
            added: TimeDistribution::default(),
            drain: TimeSeries::new(Join::Sum),
            drained_s: None,
            drained_of_peak_s: 0.0,
        }
    }

    pub fn add(&mut self, records: &[TraceRecord]) {
        for record in records {
            self.last_s = moment_s(record);
            if record.kind == TraceKind::Write && record.length > 0 {
                self.write(self.last_s, u64::from(record.length));
            }
        }
    }

    fn write(&mut self, at_s: f64, payload: u64) {
        let (cost, items) = (cost_bytes(payload), parts(payload));
        let admitted_s = self.admit(at_s, cost, items);
        self.note_drained(admitted_s);
        let (left_s, arrived_s) = self.link.send(admitted_s, self.setup.wire_bytes(payload));
        let durable_s = self.remote.write(&self.setup.remote, arrived_s, payload).max(self.durable_s);
        self.durable_s = durable_s;
        let half_rtt_s = self.setup.link.rtt.0 / 2.0;
        let receipt_s = durable_s + half_rtt_s;
        self.receipts.push_back((receipt_s, cost, items));
        self.fill.enter(admitted_s, cost, items);
        self.drain.add((left_s * 1e9) as u64, self.setup.wire_bytes(payload));
        // A write that waits for room is on neither side yet: it makes the far copy no older.
        self.lag.confirmed(admitted_s, durable_s);
        let local_s = self.local.write(&self.setup.local, admitted_s, payload);
        let alone_s = self.local_alone.write(&self.setup.local, at_s, payload);
        let answered_s = match self.mode {
            ModelMode::Sync => local_s.max(receipt_s),
            ModelMode::NearSync => local_s.max(arrived_s + half_rtt_s),
            _ => local_s,
        };
        self.response.add(answered_s - at_s);
        self.added.add((answered_s - alone_s).max(0.0));
    }

    /// When there is room; writers are let in in the order they came. An empty queue takes anything.
    fn admit(&mut self, at_s: f64, cost: u64, items: u64) -> f64 {
        let mut now_s = self.admitted_s.max(at_s);
        while let Some(&(receipt_s, bytes, count)) = self.receipts.front() {
            let has_room = self.fill.bytes.saturating_add(cost) <= self.setup.queue_bytes
                && self.fill.items.saturating_add(items) <= self.setup.queue_items;
            if receipt_s > now_s && has_room {
                break;
            }
            now_s = now_s.max(receipt_s);
            self.fill.leave(receipt_s, bytes, count);
            self.receipts.pop_front();
        }
        self.waiting.add(at_s, now_s);
        self.admitted_s = now_s;
        now_s
    }

    /// Looks whether the backlog of the fullest moment has just been worked off.
    fn note_drained(&mut self, now_s: f64) {
        if self.fill.peak_at_s != self.drained_of_peak_s {
            (self.drained_of_peak_s, self.drained_s) = (self.fill.peak_at_s, None);
        }
        if self.drained_s.is_none() && self.link.free_s() <= now_s {
            self.drained_s = Some(self.link.free_s());
        }
    }

    /// From the fullest moment until nothing waited any more.
    pub fn drain_s(&self) -> f64 {
        let is_current = self.fill.peak_at_s == self.drained_of_peak_s;
        let until_s = self.drained_s.filter(|_| is_current).unwrap_or(self.link.free_s());
        (until_s - self.fill.peak_at_s).max(0.0)
    }

    /// Bytes on the link, headers included.
    pub fn wire_bytes(&self) -> f64 {
        self.link.sent_bytes
    }

    /// Share of the time that the link was sending.
    pub fn link_use(&self) -> f64 {
        let whole_s = self.last_s.max(self.link.free_s());
        if whole_s > 0.0 { (self.link.busy_s / whole_s).min(1.0) } else { 0.0 }
    }

    /// When the far side had everything.
    pub fn caught_up_s(&self) -> f64 {
        self.durable_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LinkModel, PlannedDisk};
    use units::quantities::{Rate, Seconds};

    /// 50 writes of 8 KB a second for `seconds`.
    fn avs_writes(seconds: u64) -> Vec<TraceRecord> {
        let write =
            |n: u64| TraceRecord { time_ns: n * 20_000_000, offset: n * 8192, length: 8000, ..TraceRecord::default() };
        (0..50 * seconds).map(write).collect()
    }

    fn link(kb_per_s: f64, rtt_ms: f64) -> LinkModel {
        LinkModel::measured(Rate::from_bytes_per_s(kb_per_s * 1000.0), Seconds::from_ms(rtt_ms))
    }

    fn replay(mode: ModelMode, setup: ModelSetup, records: &[TraceRecord]) -> StreamReplay {
        let mut stream = StreamReplay::new(mode, setup);
        stream.add(records);
        stream
    }

    /// AVS, example 2, replayed instead of divided: 400 KB/s into 160 KB/s fills 8 MB in 33 s, and the next writer waits.
    #[test]
    fn the_avs_queue_fills_after_33_s() {
        let cost = cost_bytes(8000) as f64;
        // The paper counts payload only: a queue that holds as many writes, a link that also carries the headers.
        let queue_bytes = (8_000_000.0 / 8000.0 * cost) as u64;
        let setup = ModelSetup { queue_bytes, ..ModelSetup::new(link(160.0 * 8096.0 / 8000.0, 0.0)) };
        let before = replay(ModelMode::Async, setup, &avs_writes(33));
        assert_eq!((before.waiting.writes, before.fill.peak_bytes <= queue_bytes), (0, true));
        let after = replay(ModelMode::Async, setup, &avs_writes(34));
        assert!(after.waiting.writes > 0);
        // Unbounded, 60 s leave (400 - 160) x 60 KB behind.
        let free = replay(ModelMode::Async, setup.unbounded(), &avs_writes(60));
        let backlog = free.fill.peak_bytes as f64 / cost * 8000.0;
        assert!((backlog - 14_400_000.0).abs() < 30_000.0, "{backlog}");
        assert!((free.drain_s() - 14_400_000.0 / 160_000.0).abs() < 0.3, "{}", free.drain_s());
        assert!((free.lag.times.quantiles().max - 90.0).abs() < 0.3);
    }

    /// Every mode's answer on an idle link is its formula.
    #[test]
    fn lone_writes_take_the_formulas_time() {
        let disk = PlannedDisk { rate: Some(Rate::from_mb(200.0)), overhead: Seconds(0.001) };
        let setup = ModelSetup { local: disk, remote: disk, ..ModelSetup::new(link(12_500.0, 50.0)) };
        let records: Vec<TraceRecord> = (0..10)
            .map(|n| TraceRecord { time_ns: n * 1_000_000_000, length: 8192, ..TraceRecord::default() })
            .collect();
        let local = 0.001 + 8192.0 / 200e6;
        let send = 8288.0 / 12.5e6;
        for (mode, wanted) in
            [(ModelMode::Sync, send + 0.05 + local), (ModelMode::NearSync, send + 0.05), (ModelMode::Async, local)]
        {
            let stream = replay(mode, setup, &records);
            let response = stream.response.quantiles();
            assert!((response.max - wanted).abs() < 1e-9, "{mode:?} {} {wanted}", response.max);
            assert!((stream.added.quantiles().max - (wanted - local)).abs() < 1e-9);
        }
    }

    #[test]
    fn an_outage_holds_everything_and_is_caught_up() {
        let setup = ModelSetup { outage: Some((10.0, 20.0)), ..ModelSetup::new(link(800.0, 10.0)).unbounded() };
        let stream = replay(ModelMode::Async, setup, &avs_writes(60));
        let lag = stream.lag.times.quantiles();
        assert!((lag.max - 10.0).abs() < 0.1, "{lag:?}");
        // 10 s at 400 KB/s are caught up at a net 400 KB/s: ten more seconds.
        let backlog = stream.fill.peak_bytes as f64;
        assert!((backlog - 500.0 * cost_bytes(8000) as f64).abs() < 20_000.0, "{backlog}");
        assert!((stream.drain_s() - 10.0).abs() < 0.4, "{}", stream.drain_s());
    }

    #[test]
    fn compression_is_bandwidth_and_loss_is_a_tail() {
        let plain = replay(ModelMode::Async, ModelSetup::new(link(200.0, 10.0)).unbounded(), &avs_writes(30));
        let packed = replay(
            ModelMode::Async,
            ModelSetup { compression: 4.0, ..ModelSetup::new(link(200.0, 10.0)).unbounded() },
            &avs_writes(30),
        );
        assert!(plain.fill.peak_bytes > 20 * packed.fill.peak_bytes);
        let lossy = LinkModel {
            loss: units::quantities::Share(0.001),
            congestion: crate::formulas::CongestionModel::Bbr,
            ..link(12_500.0, 50.0)
        };
        let added = replay(ModelMode::Sync, ModelSetup::new(lossy), &avs_writes(200)).added.quantiles();
        assert!(added.p50 < 0.055 && (0.3..0.5).contains(&added.p99), "{added:?}");
    }

    /// The queue against a model that knows nothing of receipts in order: at each moment it adds up all that is unconfirmed.
    #[test]
    fn occupancy_agrees_with_a_naive_count() {
        let mut seed = 88_172_645_463_325_252u64;
        let mut next = |bound: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % bound
        };
        let (mut time_ns, mut records) = (0, Vec::new());
        for _ in 0..2000 {
            time_ns += next(20_000_000);
            records.push(TraceRecord { time_ns, length: (1 + next(64)) as u32 * 512, ..TraceRecord::default() });
        }
        let setup = ModelSetup::new(link(1500.0, 30.0)).unbounded();
        let stream = replay(ModelMode::Async, setup, &records);
        let (mut free, mut kept, mut peak) = (0.0f64, Vec::new(), 0u64);
        for record in &records {
            let (at, payload) = (moment_s(record), u64::from(record.length));
            free = free.max(at) + setup.wire_bytes(payload) / 1_500_000.0;
            kept.push((at, free + 0.03, cost_bytes(payload)));
            peak = peak
                .max(kept.iter().filter(|(from, until, _)| *from <= at && *until > at).map(|(_, _, cost)| cost).sum());
        }
        assert_eq!(stream.fill.peak_bytes, peak);
    }
}
