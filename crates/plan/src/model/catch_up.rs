//! Modes that send states instead of writes: a set of dirty regions is frozen at a mark, shipped, and becomes the next
//! consistent point; what is written meanwhile is dirty for the next one.
//!
//! `periodic` freezes on a schedule. `superasync` streams while its queue has room and switches to catch-up snapshots when it has not; it
//! streams again behind a snapshot that is small.

use std::collections::{HashMap, VecDeque};

use super::tally::{Lag, QueueFill};
use super::{
    DiskAtWork, FRAME_HEADER_BYTES, LinkAtWork, ModelMode, ModelSetup, REGION_BYTES, cost_bytes, moment_s, parts,
};
use crate::trace::{TraceKind, TraceRecord};

/// Regions, one bit each, in pages of 16 MiB of volume: 512 bytes of memory for each page touched.
#[derive(Default)]
pub struct Regions {
    pages: HashMap<(u16, u64), Box<[u64; 64]>>,
    count: u64,
}

const REGIONS_PER_PAGE: u64 = 64 * 64;

impl Regions {
    pub fn rating(&mut self, volume: u16, offset: u64, length: u64) {
        let last = (offset + length.max(1) - 1) / REGION_BYTES;
        for region in offset / REGION_BYTES..=last {
            let page = self.pages.entry((volume, region / REGIONS_PER_PAGE)).or_insert_with(|| Box::new([0; 64]));
            let (word, bit) = ((region % REGIONS_PER_PAGE / 64) as usize, 1u64 << (region % 64));
            self.count += u64::from(page[word] & bit == 0);
            page[word] |= bit;
        }
    }
    pub fn bytes(&self) -> u64 {
        self.count * REGION_BYTES
    }
    /// Frames that carry them: one for each run, and another for each 64 KiB.
    fn frames(&self) -> u64 {
        let runs_of = |page: &[u64; 64]| {
            let begins = |before: u64, word: u64| u64::from((word & !(word << 1 | before >> 63)).count_ones());
            page.iter().scan(0, |before, word| Some(begins(std::mem::replace(before, *word), *word))).sum::<u64>()
        };
        self.pages.values().map(|page| runs_of(page)).sum::<u64>() + self.bytes() / (64 * 1024)
    }
    fn clear(&mut self) {
        self.pages.clear();
        self.count = 0;
    }
}

enum ReplayState {
    /// Writes travel in order.
    Streaming,
    /// A snapshot frozen at one moment is durable far away at another.
    Snapshotting { begun_s: f64, done_s: f64, then_stream: bool },
    /// Until the next mark of the schedule.
    Resting { next_mark_s: f64 },
}

/// A replay in superasync, periodic or logging mode. Writers never wait in any of them.
pub struct SnapshotReplay {
    setup: ModelSetup,
    mode: ModelMode,
    link: LinkAtWork,
    remote: DiskAtWork,
    state: ReplayState,
    dirty: Regions,
    /// Unconfirmed, for superasync: when durable, cost, items, volume, offset, length.
    sent: VecDeque<(f64, u64, u64, u16, u64, u64)>,
    /// The first write that the last consistent point does not hold.
    oldest_s: Option<f64>,
    last_s: f64,
    pub fill: QueueFill,
    pub lag: Lag,
    pub snapshots: u64,
    /// Largest set of regions that was shipped, or in logging all that would be.
    pub snapshot_bytes_max: u64,
}

impl SnapshotReplay {
    pub fn new(mode: ModelMode, setup: ModelSetup) -> Self {
        assert!(!mode.is_ordered(), "ordered modes send every write");
        let state = match mode {
            ModelMode::SuperAsync => ReplayState::Streaming,
            ModelMode::Periodic => ReplayState::Resting { next_mark_s: setup.period.0 },
            _ => ReplayState::Resting { next_mark_s: f64::INFINITY },
        };
        Self {
            setup,
            mode,
            link: LinkAtWork::new(&setup),
            remote: DiskAtWork::default(),
            state,
            dirty: Regions::default(),
            sent: VecDeque::new(),
            oldest_s: None,
            last_s: 0.0,
            fill: QueueFill::default(),
            lag: Lag::default(),
            snapshots: 0,
            snapshot_bytes_max: 0,
        }
    }

    pub fn add(&mut self, records: &[TraceRecord]) {
        for record in records {
            self.last_s = moment_s(record);
            if record.kind == TraceKind::Write && record.length > 0 {
                self.advance(self.last_s);
                self.write(record);
            }
        }
    }

    fn write(&mut self, record: &TraceRecord) {
        let (at_s, payload) = (moment_s(record), u64::from(record.length));
        if !matches!(self.state, ReplayState::Streaming) {
            self.oldest_s.get_or_insert(at_s);
            self.dirty.rating(record.volume, record.offset, payload);
            return;
        }
        let (cost, items) = (cost_bytes(payload), parts(payload));
        while let Some(&(receipt_s, bytes, count, ..)) = self.sent.front() {
            if receipt_s > at_s {
                break;
            }
            self.fill.leave(receipt_s, bytes, count);
            self.sent.pop_front();
        }
        let has_room =
            self.fill.bytes + cost <= self.setup.queue_bytes && self.fill.items + items <= self.setup.queue_items;
        if !has_room && !self.sent.is_empty() {
            self.dirty.rating(record.volume, record.offset, payload);
            return self.give_up_queue(at_s);
        }
        let (_, arrived_s) = self.link.send(at_s, self.setup.wire_bytes(payload));
        let durable_s = self.remote.write(&self.setup.remote, arrived_s, payload);
        self.lag.confirmed(at_s, durable_s);
        self.sent.push_back((
            durable_s + self.setup.link.rtt.0 / 2.0,
            cost,
            items,
            record.volume,
            record.offset,
            payload,
        ));
        self.fill.enter(at_s, cost, items);
    }

    /// All that is unconfirmed becomes bits, and the first snapshot begins. The link is free of it at once.
    fn give_up_queue(&mut self, now_s: f64) {
        for (_, _, _, volume, offset, length) in std::mem::take(&mut self.sent) {
            self.dirty.rating(volume, offset, length);
        }
        self.fill.leave(now_s, self.fill.bytes, self.fill.items);
        self.oldest_s.get_or_insert(now_s);
        let (busy_s, sent_bytes) = (self.link.busy_s, self.link.sent_bytes);
        self.link = LinkAtWork { busy_s, sent_bytes, ..LinkAtWork::new(&self.setup) };
        self.freeze(now_s);
    }

    /// Marks a point and ships what is dirty.
    fn freeze(&mut self, now_s: f64) {
        let bytes = self.dirty.bytes();
        self.snapshots += 1;
        self.snapshot_bytes_max = self.snapshot_bytes_max.max(bytes);
        let wire = bytes as f64 / self.setup.compression + (self.dirty.frames() * FRAME_HEADER_BYTES) as f64;
        let (_, arrived_s) = self.link.send(now_s, wire);
        let done_s = self.remote.write(&self.setup.remote, arrived_s, bytes);
        let then_stream = self.mode == ModelMode::SuperAsync && bytes <= self.setup.queue_bytes / 4;
        self.dirty.clear();
        self.state = ReplayState::Snapshotting { begun_s: now_s, done_s, then_stream };
    }

    /// Ends snapshots and begins the next ones, up to a moment.
    fn advance(&mut self, now_s: f64) {
        loop {
            match self.state {
                ReplayState::Streaming => return,
                ReplayState::Resting { next_mark_s } if next_mark_s > now_s => return,
                ReplayState::Resting { next_mark_s } => self.freeze(next_mark_s),
                ReplayState::Snapshotting { done_s, .. } if done_s > now_s => return,
                ReplayState::Snapshotting { begun_s, done_s, then_stream } => {
                    self.end_snapshot(begun_s, done_s, then_stream)
                }
            }
        }
    }

    fn end_snapshot(&mut self, begun_s: f64, done_s: f64, then_stream: bool) {
        if let Some(oldest_s) = self.oldest_s.take() {
            self.lag.confirmed(oldest_s, done_s);
        }
        // What is dirty now was written after the mark.
        if self.dirty.count > 0 {
            self.oldest_s = Some(begun_s);
        }
        self.state = match self.mode {
            ModelMode::SuperAsync if then_stream && self.dirty.count == 0 => ReplayState::Streaming,
            ModelMode::SuperAsync => return self.freeze(done_s),
            _ => {
                let period_s = self.setup.period.0;
                ReplayState::Resting { next_mark_s: done_s.max(((begun_s / period_s).floor() + 1.0) * period_s) }
            }
        };
    }

    /// The trace is over: everything still dirty is counted, and shipped unless the mode ships nothing.
    pub fn finish(&mut self) {
        if self.mode == ModelMode::Logging {
            self.snapshot_bytes_max = self.dirty.bytes();
            return;
        }
        for _ in 0..4 {
            let until_s = match self.state {
                ReplayState::Streaming => return,
                ReplayState::Resting { .. } if self.dirty.count == 0 => return,
                ReplayState::Resting { next_mark_s } => next_mark_s,
                ReplayState::Snapshotting { done_s, .. } => done_s,
            };
            self.advance(until_s);
        }
    }

    pub fn wire_bytes(&self) -> f64 {
        self.link.sent_bytes
    }

    pub fn link_use(&self) -> f64 {
        let whole_s = self.last_s.max(self.link.free_s());
        if whole_s > 0.0 { (self.link.busy_s / whole_s).min(1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::LinkModel;
    use super::*;
    use units::quantities::{Rate, Seconds};

    const PLACE_BYTES: u64 = 32 * 1024;

    /// Each overwrites one of so many places.
    fn writes(per_s: u64, seconds: u64, places: u64) -> Vec<TraceRecord> {
        let gap_ns = 1_000_000_000 / per_s;
        let write = |n: u64| TraceRecord {
            time_ns: n * gap_ns,
            offset: n % places * PLACE_BYTES,
            length: PLACE_BYTES as u32,
            ..TraceRecord::default()
        };
        (0..per_s * seconds).map(write).collect()
    }

    fn snapshots(mode: ModelMode, setup: ModelSetup, records: &[TraceRecord]) -> SnapshotReplay {
        let mut snapshots = SnapshotReplay::new(mode, setup);
        snapshots.add(records);
        snapshots.finish();
        snapshots
    }

    fn setup(mb_per_s: f64) -> ModelSetup {
        let link = LinkModel::measured(Rate::from_mb(mb_per_s), Seconds::from_ms(10.0));
        ModelSetup { queue_bytes: 1 << 20, period: Seconds(10.0), ..ModelSetup::new(link) }
    }

    #[test]
    fn regions_count_once() {
        let mut regions = Regions::default();
        regions.rating(0, 0, 1);
        regions.rating(0, 100, REGION_BYTES);
        regions.rating(1, 0, 1);
        regions.rating(0, REGION_BYTES * 5000, 1);
        assert_eq!((regions.bytes(), regions.frames()), (4 * REGION_BYTES, 3));
    }

    #[test]
    fn a_link_that_keeps_up_takes_no_snapshot() {
        let replay = snapshots(ModelMode::SuperAsync, setup(10.0), &writes(100, 20, 1000));
        assert_eq!(replay.snapshots, 0);
        assert!(replay.lag.times.quantiles().max < 0.02);
    }

    /// 32 MB/s over 50 places into 1 MB/s: each snapshot is 1.6 MiB at most and takes 1.7 s, so the point keeps moving.
    #[test]
    fn overload_switches_to_snapshots_and_the_point_keeps_moving() {
        let replay = snapshots(ModelMode::SuperAsync, setup(1.0), &writes(1000, 60, 50));
        assert!(replay.snapshots > 10 && replay.snapshot_bytes_max == 50 * PLACE_BYTES);
        let max = replay.lag.times.quantiles().max;
        assert!((1.7..5.5).contains(&max), "{max}");
    }

    #[test]
    fn periods_are_kept_while_the_link_can() {
        let replay = snapshots(ModelMode::Periodic, setup(10.0), &writes(100, 100, 20));
        assert!((9..=10).contains(&replay.snapshots), "{}", replay.snapshots);
        let max = replay.lag.times.quantiles().max;
        assert!((10.0..10.5).contains(&max), "{max}");
        // 320 MB of regions in each period over 1 MB/s: one snapshot takes far longer than a period.
        let late = snapshots(ModelMode::Periodic, setup(1.0), &writes(1000, 30, 100_000));
        assert!(late.lag.times.quantiles().max > 100.0);
    }

    #[test]
    fn logging_only_counts() {
        let replay = snapshots(ModelMode::Logging, setup(1.0), &writes(100, 10, 7));
        assert_eq!((replay.snapshot_bytes_max, replay.wire_bytes()), (7 * PLACE_BYTES, 0.0));
    }
}
