//! What folding saves: with a backlog, a closed epoch travels as its last state, not as its history.
//!
//! An epoch closes after a second or 64 MiB. While the link keeps up nothing waits, so nothing folds; when the link reaches an
//! epoch that is still open, its writes leave one by one. Only what is closed and untouched is folded.

use std::collections::VecDeque;

use super::tally::{BlockedWriters, Lag, QueueFill};
use super::{DiskAtWork, LinkAtWork, ModelSetup, cost_bytes, moment_s, parts};
use crate::trace::{TraceKind, TraceRecord};

/// An epoch closes when its first write is this old, or when it holds this much.
pub const EPOCH_S: f64 = 1.0;
pub const EPOCH_BYTES: u64 = 64 << 20;

#[derive(Clone, Copy)]
struct Waiter {
    at_s: f64,
    volume: u16,
    offset: u64,
    length: u64,
}

#[derive(Default)]
struct Epoch {
    opened_s: f64,
    bytes: u64,
    /// Not yet sent, in order.
    writes: VecDeque<Waiter>,
    /// Its first writes have left one by one: it no longer folds.
    begun: bool,
    /// Already reduced to its last state: payload, items and cost.
    folded: Option<(u64, u64, u64)>,
    last_at_s: f64,
    first_at_s: f64,
}

impl Epoch {
    fn closes_s(&self) -> f64 {
        if self.bytes >= EPOCH_BYTES { self.last_at_s } else { self.opened_s + EPOCH_S }
    }
}

/// A replay in async mode with folding.
pub struct Folding {
    setup: ModelSetup,
    link: LinkAtWork,
    remote: DiskAtWork,
    waiting_epochs: VecDeque<Epoch>,
    receipts: VecDeque<(f64, u64, u64)>,
    admitted_s: f64,
    durable_s: f64,
    pub fill: QueueFill,
    pub lag: Lag,
    pub waiting: BlockedWriters,
    pub payload_bytes: u64,
    pub folded_away_bytes: u64,
}

impl Folding {
    pub fn new(setup: ModelSetup) -> Self {
        Self {
            setup,
            link: LinkAtWork::new(&setup),
            remote: DiskAtWork::default(),
            waiting_epochs: VecDeque::new(),
            receipts: VecDeque::new(),
            admitted_s: 0.0,
            durable_s: 0.0,
            fill: QueueFill::default(),
            lag: Lag::default(),
            waiting: BlockedWriters::default(),
            payload_bytes: 0,
            folded_away_bytes: 0,
        }
    }

    pub fn add(&mut self, records: &[TraceRecord]) {
        for record in records {
            if record.kind == TraceKind::Write && record.length > 0 {
                self.write(record);
            }
        }
    }

    fn write(&mut self, record: &TraceRecord) {
        let (at_s, payload) = (moment_s(record), u64::from(record.length));
        let (cost, items) = (cost_bytes(payload), parts(payload));
        self.payload_bytes += payload;
        let mut now_s = self.admitted_s.max(at_s);
        loop {
            self.advance(now_s);
            let is_empty = self.fill.items == 0;
            let has_room = self.fill.bytes.saturating_add(cost) <= self.setup.queue_bytes
                && self.fill.items.saturating_add(items) <= self.setup.queue_items;
            if is_empty || has_room {
                break;
            }
            now_s = self.next_change_s(now_s);
        }
        self.waiting.add(at_s, now_s);
        self.admitted_s = now_s;
        self.fill.enter(now_s, cost, items);
        let waiter = Waiter { at_s: now_s, volume: record.volume, offset: record.offset, length: payload };
        let is_open =
            self.waiting_epochs.back().is_some_and(|epoch| epoch.folded.is_none() && epoch.closes_s() > now_s);
        if !is_open {
            self.waiting_epochs.push_back(Epoch { opened_s: now_s, first_at_s: now_s, ..Epoch::default() });
        }
        let epoch = self.waiting_epochs.back_mut().expect("just made if there was none");
        epoch.bytes += payload;
        epoch.last_at_s = now_s;
        epoch.writes.push_back(waiter);
        self.advance(now_s);
    }

    /// Everything that happens up to a moment: epochs fold, the link takes what it can, receipts free the queue.
    fn advance(&mut self, now_s: f64) {
        self.fold_closed(now_s);
        while self.link.free_s() <= now_s && self.send_next() {}
        while let Some(&(receipt_s, bytes, items)) = self.receipts.front() {
            if receipt_s > now_s {
                break;
            }
            self.fill.leave(receipt_s, bytes, items);
            self.receipts.pop_front();
        }
    }

    fn fold_closed(&mut self, now_s: f64) {
        let link_free_s = self.link.free_s();
        for epoch in &mut self.waiting_epochs {
            let is_waiting = epoch.folded.is_none() && !epoch.begun && !epoch.writes.is_empty();
            // The link would have begun it before it closed.
            if !is_waiting || epoch.closes_s() > now_s || epoch.closes_s() > link_free_s {
                continue;
            }
            let before: u64 = epoch.writes.iter().map(|write| cost_bytes(write.length)).sum();
            let items: u64 = epoch.writes.iter().map(|write| parts(write.length)).sum();
            let (payload, cost, left) = union(epoch.writes.make_contiguous());
            let (cost, left) = (cost.min(before), left.min(items));
            self.fill.leave(now_s, before - cost, items - left);
            self.folded_away_bytes += epoch.bytes - payload;
            epoch.folded = Some((payload, cost, left));
            epoch.writes.clear();
        }
    }

    /// Gives the link its next load, if any waits.
    fn send_next(&mut self) -> bool {
        let Some(epoch) = self.waiting_epochs.front_mut() else {
            return false;
        };
        if let Some((payload, cost, items)) = epoch.folded {
            let (first_at_s, free_s) = (epoch.first_at_s, self.link.free_s());
            self.waiting_epochs.pop_front();
            self.send(free_s, first_at_s, payload, cost, items);
            return true;
        }
        epoch.begun = true;
        let Some(write) = epoch.writes.pop_front() else {
            self.waiting_epochs.pop_front();
            return !self.waiting_epochs.is_empty();
        };
        let at_s = self.link.free_s().max(write.at_s);
        self.send(at_s, write.at_s, write.length, cost_bytes(write.length), parts(write.length));
        true
    }

    fn send(&mut self, from_s: f64, written_s: f64, payload: u64, cost: u64, items: u64) {
        let wire = payload as f64 / self.setup.compression + (items * super::FRAME_HEADER_BYTES) as f64;
        let (_, arrived_s) = self.link.send(from_s, wire);
        self.durable_s = self.remote.write(&self.setup.remote, arrived_s, payload).max(self.durable_s);
        self.receipts.push_back((self.durable_s + self.setup.link.rtt.0 / 2.0, cost, items));
        self.lag.confirmed(written_s, self.durable_s);
    }

    /// The next moment at which there may be more room.
    fn next_change_s(&self, now_s: f64) -> f64 {
        let receipt = self.receipts.front().map(|(receipt_s, ..)| *receipt_s);
        let sent = (!self.waiting_epochs.is_empty()).then(|| self.link.free_s());
        let closed =
            self.waiting_epochs.iter().find(|epoch| epoch.folded.is_none() && !epoch.begun).map(Epoch::closes_s);
        let next =
            [receipt, sent, closed].into_iter().flatten().filter(|&at_s| at_s > now_s).fold(f64::INFINITY, f64::min);
        assert!(next.is_finite(), "a full queue always has something under way");
        next
    }

    /// Sends what is left; call once, at the end.
    pub fn finish(&mut self) {
        let mut now_s = self.admitted_s;
        loop {
            self.advance(now_s);
            if self.waiting_epochs.iter().all(|epoch| epoch.folded.is_none() && epoch.writes.is_empty()) {
                return;
            }
            now_s = self.next_change_s(now_s);
        }
    }

    pub fn wire_bytes(&self) -> f64 {
        self.link.sent_bytes
    }
}

/// Payload, queue cost and items of what remains when only the last state of each byte counts.
fn union(writes: &mut [Waiter]) -> (u64, u64, u64) {
    writes.sort_unstable_by_key(|write| (write.volume, write.offset));
    let (mut payload, mut cost, mut items) = (0, 0, 0);
    let mut run: Option<(u16, u64, u64)> = None;
    let mut close = |run: Option<(u16, u64, u64)>| {
        if let Some((_, from, until)) = run {
            payload += until - from;
            cost += cost_bytes(until - from);
            items += parts(until - from);
        }
    };
    for write in writes.iter() {
        let end = write.offset + write.length;
        match &mut run {
            Some((volume, _, until)) if *volume == write.volume && write.offset <= *until => *until = (*until).max(end),
            _ => close(run.replace((write.volume, write.offset, end))),
        }
    }
    close(run);
    (payload, cost, items)
}

#[cfg(test)]
mod tests {
    use super::super::{LinkModel, ModelMode, stream::StreamReplay};
    use super::*;
    use units::quantities::{Rate, Seconds};

    /// 1000 writes of 4 KiB a second over `pages` pages in turn, for 10 s.
    fn writes(pages: u64) -> Vec<TraceRecord> {
        let write = |n: u64| TraceRecord {
            time_ns: n * 1_000_000,
            offset: n % pages * 4096,
            length: 4096,
            ..TraceRecord::default()
        };
        (0..10_000).map(write).collect()
    }

    fn setup(mb_per_s: f64) -> ModelSetup {
        ModelSetup::new(LinkModel::measured(Rate::from_mb(mb_per_s), Seconds::from_ms(10.0))).unbounded()
    }

    fn fold(setup: ModelSetup, records: &[TraceRecord]) -> Folding {
        let mut folding = Folding::new(setup);
        folding.add(records);
        folding.finish();
        folding
    }

    #[test]
    fn a_link_that_keeps_up_folds_nothing() {
        let folded = fold(setup(50.0), &writes(10));
        assert_eq!((folded.folded_away_bytes, folded.payload_bytes), (0, 40_960_000));
    }

    #[test]
    fn a_slow_link_sends_the_last_state_of_each_second() {
        // 4 MB/s arrive, 100 pages again and again; the link carries 1 MB/s. Only the first second leaves as it was written.
        let folded = fold(setup(1.0), &writes(100));
        let mut plain = StreamReplay::new(ModelMode::Async, setup(1.0));
        plain.add(&writes(100));
        assert!(folded.folded_away_bytes > 25_000_000, "{}", folded.folded_away_bytes);
        assert!(folded.wire_bytes() < plain.wire_bytes() / 3.0);
        assert!(folded.fill.peak_bytes * 3 < plain.fill.peak_bytes);
        assert!(folded.lag.times.quantiles().max < 5.5 && plain.lag.times.quantiles().max > 25.0);
        // Nothing is lost: what was sent and what was folded away is what was written.
        let sent = folded.payload_bytes - folded.folded_away_bytes;
        assert!(folded.wire_bytes() > sent as f64 && folded.wire_bytes() < sent as f64 * 1.05);
    }

    #[test]
    fn without_overwrites_folding_only_saves_headers() {
        let folded = fold(setup(1.0), &writes(1_000_000));
        let mut plain = StreamReplay::new(ModelMode::Async, setup(1.0));
        plain.add(&writes(1_000_000));
        assert_eq!(folded.folded_away_bytes, 0);
        assert!(folded.wire_bytes() <= plain.wire_bytes());
        assert!((folded.fill.peak_bytes as f64 / plain.fill.peak_bytes as f64) < 1.02);
    }

    #[test]
    fn a_bounded_queue_stays_bounded() {
        let folded = fold(ModelSetup { queue_bytes: 1 << 20, queue_items: 1000, ..setup(1.0) }, &writes(100));
        assert!(folded.fill.peak_bytes <= 1 << 20 && folded.waiting.writes > 0);
    }
}
