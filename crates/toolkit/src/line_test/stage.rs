//! All of one end: its connections, their writers and readers, and who looks at them meanwhile.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::{Duration, Instant};

use host::tcp_info::TcpInfo;

use super::TestFailure;
use super::disk::TestDisk;
use super::tally::{EndReport, Kernel, ReceivedTally, Sent, TestInterval};
use super::terms::{INTERVAL_S, Terms};
use super::wire::TestWire;
use super::writer::{SoFar, TestWriters, WriterTally, content};

/// How often the kernel is asked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub struct TestStage {
    pub terms: Rc<Terms>,
    pub is_far: bool,
    pub wires: Vec<Rc<TestWire>>,
    /// Since when figures count; `None`: not yet.
    counts_from: Rc<Cell<Option<Instant>>>,
    disk: Rc<TestDisk>,
    /// By connection; there once its writers have ended.
    written: RefCell<Vec<WriterTally>>,
    watched: RefCell<WatchedTotals>,
}

/// Where the interval under way began.
#[derive(Clone, Copy)]
struct IntervalStart {
    /// When figures began to count.
    origin: Instant,
    t_s: f64,
    moved: (u64, u64),
    kernel: Kernel,
}

/// What looks add up to.
#[derive(Default)]
struct WatchedTotals {
    sent: Sent,
    received: ReceivedTally,
    intervals: Vec<TestInterval>,
    interval_began: Option<IntervalStart>,
    /// So many of them were told while the test runs.
    intervals_shown: usize,
    /// What the kernel told, and frames' bytes before and after packing, when figures began to count.
    kernel_before: Kernel,
    carried_before: (u64, u64),
}

impl TestStage {
    pub fn new(terms: Rc<Terms>, is_far: bool, wires: Vec<Rc<TestWire>>, disk: Rc<TestDisk>) -> Rc<TestStage> {
        let written = RefCell::new(wires.iter().map(|_| WriterTally::default()).collect());
        let (counts_from, watched) = (Rc::default(), RefCell::default());
        let stage = TestStage { terms, is_far, wires, counts_from, disk, written, watched };
        for wire in &stage.wires {
            wire.sender.set_flow(stage.terms.flow());
            // Calls are counted from here on.
            wire.sender.take_calls();
            if let Some(info) = wire.sender.look() {
                wire.look(&info);
            }
            if stage.receives() {
                wire.land_on(stage.disk.clone(), &stage.terms);
            }
        }
        Rc::new(stage)
    }

    pub fn sends(&self) -> bool {
        self.terms.direction.sends(self.is_far)
    }

    pub fn receives(&self) -> bool {
        self.terms.direction.receives(self.is_far)
    }

    /// No more flushes from here on; whoever waits looks up.
    pub fn stop(&self) {
        self.wires.iter().for_each(|wire| wire.stop());
    }

    /// Sends and receives all there is.
    ///
    /// # Errors
    /// The first that went wrong; what was counted until then stays.
    pub async fn play(self: &Rc<TestStage>) -> Result<(), TestFailure> {
        if self.terms.omit_s == 0.0 {
            self.count_from_now();
        }
        // Nothing of it goes on when the call is given up.
        let result = tokio::select! {
            result = self.parts() => result,
            never = self.watch() => match never {},
        };
        if !self.counts() && self.has_begun_over_there() {
            // All of it came at once.
            self.count_from_now();
        }
        let mut infos = Vec::new();
        self.look(&mut infos);
        // What is left of the last one, unless that is next to nothing.
        let began = self.watched.borrow().interval_began;
        if began.is_some_and(|mark| mark.origin.elapsed().as_secs_f64() - mark.t_s >= INTERVAL_S.min) {
            self.interval(&infos);
        }
        result
    }

    /// Figures begin here: what came before is forgotten.
    fn count_from_now(&self) {
        let now = Instant::now();
        self.counts_from.set(Some(now));
        if self.sends() {
            self.wires.iter().for_each(|wire| wire.begin_figures());
        }
        let carried_before = self.carried();
        let mut watched = self.watched.borrow_mut();
        *watched = WatchedTotals { kernel_before: watched.sent.kernel, carried_before, ..WatchedTotals::default() };
    }

    /// The sender's figures begin where its own word of that stands in the stream.
    fn has_begun_over_there(&self) -> bool {
        self.wires.iter().any(|wire| wire.arriving.borrow().began.is_some())
    }

    /// Whether what happens now is in the figures.
    pub fn counts(&self) -> bool {
        self.counts_from.get().is_some()
    }

    /// Bytes of frames that left, before and after packing.
    fn carried(&self) -> (u64, u64) {
        let sent = self.wires.iter().map(|wire| wire.sender.carried().sent);
        sent.fold((0, 0), |sum, sent| (sum.0 + sent.plain_bytes, sum.1 + sent.wire_bytes))
    }

    async fn parts(self: &Rc<TestStage>) -> Result<(), TestFailure> {
        let mut parts = tokio::task::JoinSet::new();
        let content = content(self.terms.compressible_share);
        for (number, wire) in self.wires.iter().enumerate() {
            if self.sends() {
                let writers = Rc::new(TestWriters {
                    wire: wire.clone(),
                    disk: self.disk.clone(),
                    terms: self.terms.clone(),
                    is_far: self.is_far,
                    counts_from: self.counts_from.clone(),
                    content: content.clone(),
                    seed: number as u64 + if self.is_far { 1000 } else { 0 },
                    so_far: SoFar::default(),
                });
                let stage = self.clone();
                parts.spawn_local(async move {
                    let result = writers.run().await;
                    stage.written.borrow_mut()[number] = writers.written();
                    result
                });
            }
            if self.receives() {
                let wire = wire.clone();
                parts.spawn_local(async move { wire.receive().await });
            }
        }
        let mut result = Ok(());
        while let Some(part) = parts.join_next().await {
            let part =
                part.unwrap_or_else(|error| Err(TestFailure::failed(format!("a part of the test ended: {error}"))));
            if part.is_err() && result.is_ok() {
                result = part;
                // The others have nothing to wait for.
                self.wires.iter().for_each(|wire| wire.end("another connection of the test ended"));
            }
        }
        result
    }

    /// One of its connections is gone, and not by this end's wish.
    pub fn is_ended_over_there(&self) -> bool {
        self.wires.iter().any(|wire| wire.is_down() && !wire.is_cut())
    }

    /// Bytes confirmed or received so far, for eyes.
    pub fn progress_bytes(&self) -> u64 {
        let (confirmed, received) = self.moved_bytes();
        confirmed + received
    }

    /// Something arrived, in either direction.
    pub fn has_carried(&self) -> bool {
        self.wires.iter().any(|wire| wire.leaving.borrow().received > 0 || wire.arriving.borrow().bytes > 0)
    }

    /// Confirmed by the other end, received of it.
    fn moved_bytes(&self) -> (u64, u64) {
        let leaving = self.wires.iter().map(|wire| wire.leaving.borrow().durable_bytes).sum();
        (leaving, self.wires.iter().map(|wire| wire.arriving.borrow().bytes).sum())
    }

    /// Of this end, whether it sends or not: those that were not given before.
    pub fn new_intervals(&self) -> Vec<TestInterval> {
        let watched = &mut *self.watched.borrow_mut();
        let shown = std::mem::replace(&mut watched.intervals_shown, watched.intervals.len());
        watched.intervals[shown..].to_vec()
    }

    async fn watch(&self) -> Infallible {
        let mut infos = Vec::new();
        self.omit(&mut infos).await;
        let origin = Instant::now();
        let mark = IntervalStart { origin, t_s: 0.0, moved: self.moved_bytes(), kernel: Kernel::default() };
        self.watched.borrow_mut().interval_began = Some(mark);
        let every = self.terms.interval();
        let mut next = origin + every;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look(&mut infos);
            if Instant::now() >= next {
                next += every;
                self.interval(&infos);
            }
        }
    }

    /// Returns when figures count. Looks meanwhile, so that nothing gathers.
    async fn omit(&self, infos: &mut Vec<TcpInfo>) {
        if self.counts() {
            return;
        }
        let end = Instant::now() + Duration::from_secs_f64(self.terms.omit_s);
        let left = || match self.sends() {
            true => end.saturating_duration_since(Instant::now()),
            false if self.has_begun_over_there() => Duration::ZERO,
            false => LOOK_EVERY,
        };
        while !left().is_zero() {
            tokio::time::sleep(LOOK_EVERY.min(left())).await;
            self.look(infos);
        }
        self.count_from_now();
    }

    /// One look at every connection.
    fn look(&self, infos: &mut Vec<TcpInfo>) {
        let mut watched = self.watched.borrow_mut();
        infos.clear();
        for wire in &self.wires {
            let calls = wire.sender.take_calls();
            calls.sent_bytes.iter().for_each(|bytes| watched.sent.send_bytes.add(u64::from(*bytes)));
            calls.congestions.iter().for_each(|time| watched.sent.congestion_us.add_time(*time));
            calls.received_bytes.iter().for_each(|bytes| watched.received.receive_bytes.add(u64::from(*bytes)));
            let Some(info) = wire.sender.look() else { continue };
            wire.look(&info);
            if info.rtt_us > 0 {
                watched.sent.rtt_us.add(u64::from(info.rtt_us));
            }
            infos.push(info);
        }
        if infos.len() == self.wires.len() {
            let mut kernel = Kernel::default();
            infos.iter().for_each(|info| kernel.add(info));
            watched.sent.kernel = kernel.since(&watched.kernel_before);
        }
    }

    fn interval(&self, infos: &[TcpInfo]) {
        let mut watched = self.watched.borrow_mut();
        let Some(IntervalStart { origin, moved: moved_before, kernel: before, .. }) = watched.interval_began else {
            return;
        };
        let (t_s, moved, now) = (origin.elapsed().as_secs_f64(), self.moved_bytes(), watched.sent.kernel);
        let busy_us = now.busy_us.saturating_sub(before.busy_us).max(1) as f64;
        let mean = |of: fn(&TcpInfo) -> u64| infos.iter().map(of).sum::<u64>() / (infos.len() as u64).max(1);
        let sum = |of: fn(&TcpInfo) -> u64| infos.iter().map(of).sum::<u64>();
        let share = |now_us: u64, last_us: u64| (now_us.saturating_sub(last_us) as f64 / busy_us).min(1.0);
        watched.intervals.push(TestInterval {
            t_s,
            acked_bytes: moved.0 - moved_before.0,
            received_bytes: moved.1 - moved_before.1,
            rtt_s: mean(|info| u64::from(info.rtt_us)) as f64 / 1e6,
            min_rtt_s: now.rtt_min_us as f64 / 1e6,
            cwnd_bytes: sum(TcpInfo::cwnd_bytes),
            send_window_bytes: sum(|info| u64::from(info.send_window_bytes)),
            unsent_bytes: sum(|info| u64::from(info.unsent_bytes)),
            retransmitted_bytes: now.retransmitted_bytes.saturating_sub(before.retransmitted_bytes),
            receiver_limited_share: share(now.receiver_limited_us, before.receiver_limited_us),
            buffer_limited_share: share(now.buffer_limited_us, before.buffer_limited_us),
        });
        watched.interval_began = Some(IntervalStart { origin, t_s, moved, kernel: now });
    }

    /// This end's half of the report, as far as it has come.
    pub fn half(&self) -> EndReport {
        EndReport {
            sent: self.sends().then(|| if self.counts() { self.sent() } else { Sent::default() }),
            received: self.receives().then(|| if self.counts() { self.received() } else { ReceivedTally::default() }),
            socket: self.wires.first().map(|wire| wire.socket.borrow().clone()).unwrap_or_default(),
            interrupted: self.wires.iter().any(|wire| wire.is_stopped()),
        }
    }

    fn sent(&self) -> Sent {
        let watched = self.watched.borrow();
        let mut sent = Sent { intervals: watched.intervals.clone(), ..watched.sent.clone() };
        let [mut began, mut writers_done, mut done]: [Option<Instant>; 3] = [None; 3];
        for (wire, written) in self.wires.iter().zip(&*self.written.borrow()) {
            sent.flushes += written.flushes;
            sent.bytes += written.bytes;
            sent.tracked_flushes += written.tracked_flushes;
            sent.tracked_bytes += written.tracked_bytes;
            sent.response_us.merge(&written.response_us);
            sent.flush_bytes.merge(&written.flush_bytes);
            sent.room_us.merge(&written.room_us);
            sent.confirmed_us.merge(&wire.leaving.borrow().confirmed_us);
            sent.waits.disk_s += written.waits.disk_s;
            sent.waits.far_s += written.waits.far_s;
            sent.waits.room_s += written.waits.room_s;
            sent.waits.pace_s += written.waits.pace_s;
            began = began.into_iter().chain(written.began).min();
            (writers_done, done) = (writers_done.max(written.writers_done), done.max(written.done));
        }
        let (carried, before) = (self.carried(), watched.carried_before);
        (sent.plain_bytes, sent.wire_bytes) = (carried.0 - before.0, carried.1 - before.1);
        let since =
            |until: Option<Instant>| began.zip(until).map_or(0.0, |(began, until)| (until - began).as_secs_f64());
        (sent.seconds, sent.writing_s) = (since(done), since(writers_done));
        sent
    }

    fn received(&self) -> ReceivedTally {
        let mut received = self.watched.borrow().received.clone();
        let (mut began, mut last): (Option<Instant>, Option<Instant>) = (None, None);
        for wire in &self.wires {
            let arriving = wire.arriving.borrow();
            received.bytes += arriving.counted.0;
            received.flushes += arriving.counted.1;
            received.disk_share += arriving.disk_s;
            began = began.into_iter().chain(arriving.began).min();
            last = last.max(arriving.last);
        }
        received.seconds = began.zip(last).map_or(0.0, |(began, last)| (last - began).as_secs_f64());
        let all_s = received.seconds * self.wires.len() as f64;
        received.disk_share = if all_s > 0.0 { (received.disk_share / all_s).min(1.0) } else { 0.0 };
        received
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_test::wire::tests::beside_a_silent_peer;

    #[test]
    fn nothing_goes_on_when_a_test_is_given_up() {
        beside_a_silent_peer(async |wire| {
            let disk = Rc::new(TestDisk::None);
            let held = Rc::downgrade(&disk);
            let stage = TestStage::new(Rc::new(Terms::default()), true, vec![wire.clone()], disk);
            let playing = tokio::time::timeout(Duration::from_millis(1), stage.play());
            assert!(playing.await.is_err(), "nobody sends");
            let watched = Rc::downgrade(&stage);
            drop(stage);
            assert!(watched.upgrade().is_none(), "somebody still looks at it");
            wire.end("it was given up");
            wire.until(|wire| wire.is_down().then_some(())).await.expect("it is");
            drop(wire);
            // The connection's own task lets go of what it had, a disk's file among it.
            for run in 0.. {
                assert!(run < 10_000, "the disk is still held");
                if held.upgrade().is_none() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        });
    }
}
