//! Writers: a flush, what it waits for, a pause if one is asked for, the next flush.
//!
//! ```text
//! mode        order                 waits for (Farshore)             with --legacy hadr
//! sync        send, local write     local and durable there          send only after the local write
//! nearsync    send, local write     local and received there         the same
//! async       send, local write     local; room in the queue         also until the socket took it all
//! superasync  send, local write     local; never for room            the same
//! catchup     send                  room in the queue                the same
//! ```
//!
//! The Db2 column is "HADR sync mode" of the Db2 HADR wiki: its sync sends what is on its own disk already, its async ends
//! when the TCP layer has the bytes.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::Buf;
use host::timer::Pauser;
use tokio::task::JoinSet;

use super::TestFailure;
use super::disk::TestDisk;
use super::tally::{ValueSpread, WriterWaits};
use super::terms::{FLUSH_BYTES, Sizes, Terms, TestMode};
use super::wire::TestWire;

/// A writer that only the link slows down needs no more than this waiting before the socket.
const AHEAD_BYTES: u64 = 1 << 20;
/// What a target rate may make up for after a pause.
const MAKE_UP: Duration = Duration::from_millis(100);

/// So long after its time a test goes on, until the turn or the gap of the last flush is over: n flushes take n of them.
const OVERTIME: Duration = Duration::from_secs(1);

/// Between the seeds of two writers of a connection: more than there are connections.
const SEEDS: u64 = 10_000;

/// What a flush waits for at the other end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FarWait {
    Nothing,
    Received,
    Durable,
    /// The kernel took all of it.
    HandedOver,
}

/// A flush that was handed over. That of one which was not is zero, which everything has come to.
#[derive(Clone, Copy, Default)]
struct HandedOver {
    number: u64,
    /// What the kernel will have taken of this connection when it took all of the flush, some of which it may have by now.
    pushed_bytes: u64,
}

/// Of one connection: as many as the terms' depth, each with one flush at a time.
pub struct TestWriters {
    pub wire: Rc<TestWire>,
    pub disk: Rc<TestDisk>,
    pub terms: Rc<Terms>,
    pub is_far: bool,
    /// Since when figures count; `None`: not yet.
    pub counts_from: Rc<Cell<Option<Instant>>>,
    /// What is sent, and how much of it there is.
    pub content: (Buf, u64),
    pub seed: u64,
    pub so_far: SoFar,
}

/// What they did until now.
#[derive(Default)]
pub struct SoFar {
    /// All they ever handed over, flushes and bytes: what the other end has to have.
    handed_over: Cell<(u64, u64)>,
    /// Of these, what counts.
    written: RefCell<WriterTally>,
}

/// What writers have to tell, of what counts.
#[derive(Default)]
pub struct WriterTally {
    /// Flushes that were begun.
    begun: u64,
    pub flushes: u64,
    pub bytes: u64,
    pub tracked_flushes: u64,
    pub tracked_bytes: u64,
    pub response_us: ValueSpread,
    pub flush_bytes: ValueSpread,
    pub room_us: ValueSpread,
    pub waits: WriterWaits,
    pub began: Option<Instant>,
    /// The last of them ended; and all was confirmed.
    pub writers_done: Option<Instant>,
    pub done: Option<Instant>,
}

impl TestWriters {
    fn has_local_write(&self) -> bool {
        self.terms.mode != TestMode::Catchup
    }

    fn sends_after_local(&self) -> bool {
        self.terms.legacy_hadr && self.terms.mode == TestMode::Sync
    }

    fn waits_for(&self) -> FarWait {
        match (self.terms.mode, self.terms.legacy_hadr) {
            (TestMode::Sync, _) => FarWait::Durable,
            (TestMode::Nearsync, _) => FarWait::Received,
            (TestMode::Async, true) => FarWait::HandedOver,
            _ => FarWait::Nothing,
        }
    }

    /// Writes until the time is up, the count is reached or somebody says stop; then until all is confirmed. What was
    /// written until an error is [`TestWriters::written`] all the same.
    ///
    /// # Errors
    /// The connection was lost, or the disk failed.
    pub async fn run(self: &Rc<Self>) -> Result<(), TestFailure> {
        let began = Instant::now();
        self.so_far.written.replace(WriterTally { began: Some(began), ..WriterTally::default() });
        let mut writers = JoinSet::new();
        for number in 0..self.terms.depth {
            writers.spawn_local(self.clone().write(began, number.into()));
        }
        let ended = all_ended(writers).await;
        self.counted().writers_done = Some(Instant::now());
        let result = match ended {
            Ok(()) => {
                let (last, bytes) = self.so_far.handed_over.get();
                self.wire.end_stream(last, bytes);
                self.wire.drained(last).await
            }
            error => error,
        };
        // What is not confirmed by now never will be.
        let (flushes, bytes) = self.wire.leaving.borrow().unconfirmed();
        let mut written = self.counted();
        written.done = Some(Instant::now());
        written.flushes -= flushes;
        written.bytes -= bytes;
        result
    }

    /// Once they have ended.
    pub fn written(&self) -> WriterTally {
        self.counted();
        self.so_far.written.take()
    }

    /// One of them.
    async fn write(self: Rc<Self>, began: Instant, number: u64) -> Result<(), TestFailure> {
        let pauser = Pauser::new().map_err(TestFailure::no_timer)?;
        let mut sizes = Sizes::new(&self.terms, self.seed + number * SEEDS);
        let end = began + self.terms.all_time();
        let rate = self.terms.target_bytes_per_s.map(|rate| rate / f64::from(self.terms.writers()));
        let gap = Duration::from_secs_f64(self.terms.gap_s);
        let mut run = began;
        while self.goes_on(end) {
            let size = sizes.draw();
            let before = Instant::now();
            run = run.max(before.checked_sub(MAKE_UP).unwrap_or(before));
            run += rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(size as f64 / rate));
            self.flush(size, &pauser).await?;
            // After the last one too.
            if rate.is_some() || !gap.is_zero() {
                self.pause(run.max(Instant::now() + gap).min(end + OVERTIME), &pauser).await;
            }
            // The connection's own task has its turn.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn pause(&self, until: Instant, pauser: &Pauser) {
        let before = Instant::now();
        // An interrupt, or the end of the connection, ends it: whoever goes on finds out.
        let _ = self.wire.unless_stopped(pauser.until(until)).await;
        if let Some(mut written) = self.counting(before) {
            written.waits.pace_s += before.elapsed().as_secs_f64();
        }
    }

    fn goes_on(&self, end: Instant) -> bool {
        let begun = self.counted().begun;
        let is_counted = self.counts_from.get().is_some();
        let is_enough = self.terms.count.is_some_and(|count| is_counted && begun >= count);
        !self.wire.is_stopped() && Instant::now() < end && !is_enough
    }

    /// What counts so far: once figures do, what came before is forgotten.
    fn counted(&self) -> RefMut<'_, WriterTally> {
        let since = self.counts_from.get();
        let mut written = self.so_far.written.borrow_mut();
        if since > written.began {
            *written = WriterTally { began: since, ..WriterTally::default() };
        }
        written
    }

    /// For what began then; `None`: that was before figures count, and is of that time even if it ends in theirs.
    fn counting(&self, began: Instant) -> Option<RefMut<'_, WriterTally>> {
        let counts = self.counts_from.get().is_some_and(|since| began >= since);
        counts.then(|| self.counted())
    }

    async fn flush(&self, size: u64, pauser: &Pauser) -> Result<(), TestFailure> {
        let began = Instant::now();
        self.counted().begun += 1;
        let has_room = self.room(size, began).await?;
        let admitted = Instant::now();
        let is_sent_first = has_room && !self.sends_after_local();
        let mut sent = if is_sent_first { self.send(size, began) } else { HandedOver::default() };
        let before_disk = Instant::now();
        if self.has_local_write() {
            let written = self.wire.unless_stopped(self.disk.write(size, pauser)).await?;
            written.unwrap_or(Ok(())).map_err(TestFailure::failed)?;
        }
        let local = Instant::now();
        if has_room && !is_sent_first {
            sent = self.send(size, began);
        }
        let before_far = Instant::now();
        self.wire
            .until(|wire| {
                let leaving = wire.leaving.borrow();
                let is_done = match self.waits_for() {
                    FarWait::Nothing => true,
                    FarWait::Received => leaving.received >= sent.number,
                    FarWait::Durable => leaving.durable >= sent.number,
                    FarWait::HandedOver => wire.taken_bytes() >= sent.pushed_bytes,
                };
                is_done.then_some(())
            })
            .await?;
        let Some(mut written) = self.counting(began).filter(|_| !self.wire.is_stopped()) else { return Ok(()) };
        written.waits.room_s += (admitted - began).as_secs_f64();
        written.waits.disk_s += (local - before_disk).as_secs_f64();
        written.waits.far_s += before_far.elapsed().as_secs_f64();
        written.response_us.add_time(began.elapsed());
        written.flush_bytes.add(size);
        Ok(())
    }

    fn send(&self, size: u64, began: Instant) -> HandedOver {
        let counts = self.counting(began).map(|mut written| {
            written.flushes += 1;
            written.bytes += size;
        });
        let (number, bytes) = self.so_far.handed_over.get();
        self.so_far.handed_over.set((number + 1, bytes + size));
        self.wire.hand_over(number + 1, size, counts.is_some(), &self.content);
        HandedOver { number: number + 1, pushed_bytes: self.wire.pushed_bytes() }
    }

    /// Waits for room in the queue; superasync does not, and tracks the flush instead (`false`).
    async fn room(&self, size: u64, flush_began: Instant) -> Result<bool, TestFailure> {
        let is_paced = self.terms.is_paced(self.is_far);
        let has_room = |wire: &TestWire| {
            let leaving = wire.leaving.borrow();
            if leaving.open_flushes() >= self.terms.open_flushes_max() {
                return false;
            }
            let is_ahead = !is_paced && wire.sender.queued_bytes() >= AHEAD_BYTES.max(size);
            let fits = leaving.open_bytes == 0 || leaving.open_bytes + size <= self.terms.queue_bytes;
            self.terms.mode.confirms() || (fits && !is_ahead)
        };
        if has_room(&self.wire) {
            return Ok(true);
        }
        if self.terms.mode == TestMode::Superasync {
            if let Some(mut written) = self.counting(flush_began) {
                written.tracked_flushes += 1;
                written.tracked_bytes += size;
            }
            return Ok(false);
        }
        let began = Instant::now();
        // An interrupt ends the wait: the flush that waits is the last one.
        self.wire.until(|wire| (wire.is_stopped() || has_room(wire)).then_some(())).await?;
        if let Some(mut written) = self.counting(flush_began) {
            written.room_us.add_time(began.elapsed());
        }
        Ok(true)
    }
}

/// The first error ends the others: what was spawned goes with the set.
async fn all_ended(mut writers: JoinSet<Result<(), TestFailure>>) -> Result<(), TestFailure> {
    while let Some(ended) = writers.join_next().await {
        ended.unwrap_or_else(|error| Err(TestFailure::failed(format!("a writer ended: {error}"))))?;
    }
    Ok(())
}

/// What is sent: random bytes, of which a share repeats itself within each 4 KiB, so that it packs away.
pub fn content(compressible_share: f64) -> (Buf, u64) {
    const PAGE: usize = 4096;
    // Longer than what is packed together, so that nothing is found again.
    const BYTES: usize = 8 << 20;
    const { assert!(BYTES as u64 >= 2 * engine::limits::PART_BYTES_MAX && FLUSH_BYTES.min >= 512) };
    let mut buffer = host::buffers::Buffer::detached(BYTES);
    let plain = (PAGE as f64 * (1.0 - compressible_share)) as usize / 8 * 8;
    let mut seed = 7;
    for page in buffer.chunks_mut(PAGE) {
        for word in page[..plain].chunks_exact_mut(8) {
            word.copy_from_slice(&super::terms::mixed(&mut seed).to_le_bytes());
        }
        page[plain..].fill(0x55);
    }
    (Buf::new(std::sync::Arc::new(buffer)), BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_test::wire::tests::beside_a_silent_peer;

    #[test]
    fn a_flush_is_handed_over_when_the_kernel_has_all_of_it() {
        beside_a_silent_peer(async |wire| {
            let writers = TestWriters {
                wire: wire.clone(),
                disk: Rc::new(TestDisk::None),
                terms: Rc::new(Terms { mode: TestMode::Async, legacy_hadr: true, ..Terms::default() }),
                is_far: false,
                counts_from: Rc::new(Cell::new(Some(Instant::now()))),
                content: content(0.0),
                seed: 0,
                so_far: SoFar::default(),
            };
            // Nobody reads: the kernels take some flushes, and a part of the last one at most.
            for number in 1..=10_000 {
                let sent = writers.send(FLUSH_BYTES.default, Instant::now());
                assert_eq!(sent.number, number);
                // The connection's own task hands over the rest when the kernel lets it, and says what was taken, in turns.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                let is_taken = wire.taken_bytes() >= sent.pushed_bytes;
                assert_eq!(is_taken, wire.sender.queued_bytes() == 0, "flush {number}");
                if !is_taken {
                    return;
                }
            }
            panic!("the kernels take it all");
        });
    }
}
