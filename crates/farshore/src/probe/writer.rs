//! One writer: a flush, what it waits for, the next flush.
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

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::Buf;
use host::timer::Pauser;

use super::Trouble;
use super::disk::Disk;
use super::tally::{Spread, Waits};
use super::terms::{FLUSH_BYTES, Mode, Sizes, Terms};
use super::wire::Wire;

/// A writer that only the link slows down needs no more than this waiting before the socket.
const AHEAD_BYTES: u64 = 1 << 20;
/// What a target rate may make up for after a pause.
const MAKE_UP: Duration = Duration::from_millis(100);

/// What ends a writer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Far {
    Nothing,
    Received,
    Durable,
    /// The kernel took all of it.
    HandedOver,
}

pub struct Writer {
    pub wire: Rc<Wire>,
    pub disk: Rc<Disk>,
    pub terms: Rc<Terms>,
    pub is_far: bool,
    /// Somebody wants it to end.
    pub stop: Rc<Cell<bool>>,
    /// Since when figures count; `None`: not yet.
    pub counts_from: Rc<Cell<Option<Instant>>>,
    /// What is sent, and how much of it there is.
    pub content: (Buf, u64),
    pub seed: u64,
}

/// What a writer has to tell.
#[derive(Default)]
pub struct Written {
    /// All it ever handed over, flushes and bytes: what the other end has to have.
    handed_over: (u64, u64),
    // From here on what counts.
    pub flushes: u64,
    pub bytes: u64,
    pub marked_flushes: u64,
    pub marked_bytes: u64,
    pub response_us: Spread,
    pub flush_bytes: Spread,
    pub room_us: Spread,
    pub waits: Waits,
    pub began: Option<Instant>,
    pub done: Option<Instant>,
}

impl Writer {
    fn has_local_write(&self) -> bool {
        self.terms.mode != Mode::Catchup
    }

    fn sends_after_local(&self) -> bool {
        self.terms.legacy_hadr && self.terms.mode == Mode::Sync
    }

    fn waits_for(&self) -> Far {
        match (self.terms.mode, self.terms.legacy_hadr) {
            (Mode::Sync, _) => Far::Durable,
            (Mode::Nearsync, _) => Far::Received,
            (Mode::Async, true) => Far::HandedOver,
            _ => Far::Nothing,
        }
    }

    /// Writes until the time is up, the count is reached or somebody says stop; then until all is confirmed. What was
    /// written until an error is kept in `written`.
    ///
    /// # Errors
    /// The connection was lost, or the disk failed.
    pub async fn run(&self, written: &mut Written) -> Result<(), Trouble> {
        let result = self.write(written).await;
        // Of what was lost on the way, too, only that counts.
        self.leave_out(written);
        result
    }

    async fn write(&self, written: &mut Written) -> Result<(), Trouble> {
        let pauser = Pauser::new().map_err(Trouble::no_timer)?;
        let mut sizes = Sizes::new(&self.terms, self.seed);
        let began = Instant::now();
        let end = began + self.terms.all_time();
        (written.began, written.done) = (Some(began), Some(began));
        self.wire.begin_stream();
        let rate = self.terms.target_bytes_per_s.map(|rate| rate / f64::from(self.terms.connections));
        let mut turn = began;
        while self.goes_on(written, end) {
            let size = sizes.draw();
            if let Some(rate) = rate {
                let before = Instant::now();
                turn = turn.max(before.checked_sub(MAKE_UP).unwrap_or(before));
                pauser.until(turn.min(end)).await;
                turn += Duration::from_secs_f64(size as f64 / rate);
                written.waits.pace_s += before.elapsed().as_secs_f64();
                if !self.goes_on(written, end) {
                    break;
                }
            }
            self.flush(size, written, &pauser).await?;
            // The connection's own task has its turn.
            tokio::task::yield_now().await;
        }
        let (last, bytes) = written.handed_over;
        self.wire.end_stream(last, bytes);
        self.wire.until(|wire| (wire.leaving.borrow().durable >= last).then_some(())).await?;
        written.done = Some(Instant::now());
        Ok(())
    }

    fn goes_on(&self, written: &mut Written, end: Instant) -> bool {
        self.leave_out(written);
        let done = written.flushes + written.marked_flushes;
        let is_counted = self.counts_from.get().is_some();
        !self.stop.get() && Instant::now() < end && self.terms.count.is_none_or(|count| !is_counted || done < count)
    }

    /// Forgets what came before figures count; a flush that was under way then is of that time.
    fn leave_out(&self, written: &mut Written) {
        let since = self.counts_from.get();
        if since > written.began {
            let handed_over = written.handed_over;
            *written = Written { handed_over, began: since, done: since, ..Written::default() };
        }
    }

    async fn flush(&self, size: u64, written: &mut Written, pauser: &Pauser) -> Result<(), Trouble> {
        let began = Instant::now();
        let has_room = self.room(size, written).await?;
        let admitted = Instant::now();
        let is_sent_first = has_room && !self.sends_after_local();
        let mut handed_over = if is_sent_first { self.send(size, written) } else { 0 };
        let before_disk = Instant::now();
        if self.has_local_write() {
            self.disk.write(size, pauser).await.map_err(Trouble::failed)?;
        }
        let local = Instant::now();
        if has_room && !is_sent_first {
            handed_over = self.send(size, written);
        }
        let (number, before_far) = (written.handed_over.0, Instant::now());
        self.wire
            .until(|wire| {
                let leaving = wire.leaving.borrow();
                let is_done = match self.waits_for() {
                    Far::Nothing => true,
                    Far::Received => leaving.received >= number,
                    Far::Durable => leaving.durable >= number,
                    Far::HandedOver => wire.taken_bytes() >= handed_over,
                };
                (is_done || !has_room).then_some(())
            })
            .await?;
        written.waits.room_s += (admitted - began).as_secs_f64();
        written.waits.disk_s += (local - before_disk).as_secs_f64();
        written.waits.far_s += before_far.elapsed().as_secs_f64();
        written.done = Some(Instant::now());
        written.response_us.add_time(began.elapsed());
        written.flush_bytes.add(size);
        Ok(())
    }

    /// What the kernel will have taken of this connection when it took all of this flush, some of which it may have by now.
    fn send(&self, size: u64, written: &mut Written) -> u64 {
        written.flushes += 1;
        written.bytes += size;
        let (number, bytes) = written.handed_over;
        written.handed_over = (number + 1, bytes + size);
        let (content, content_bytes) = &self.content;
        self.wire.hand_over(number + 1, size, content, *content_bytes);
        self.wire.pushed_bytes()
    }

    /// Waits for room in the queue; superasync does not, and marks the flush instead (`false`).
    async fn room(&self, size: u64, written: &mut Written) -> Result<bool, Trouble> {
        let is_paced = self.terms.is_paced(self.is_far);
        let has_room = |wire: &Wire| {
            let leaving = wire.leaving.borrow();
            if leaving.open.len() >= self.terms.open_flushes_max() {
                return false;
            }
            let is_ahead = !is_paced && wire.sender.queued_bytes() >= AHEAD_BYTES.max(size);
            let fits = leaving.open_bytes == 0 || leaving.open_bytes + size <= self.terms.queue_bytes;
            self.terms.mode.confirms() || (fits && !is_ahead)
        };
        if has_room(&self.wire) {
            return Ok(true);
        }
        if self.terms.mode == Mode::Superasync {
            written.marked_flushes += 1;
            written.marked_bytes += size;
            return Ok(false);
        }
        let began = Instant::now();
        // An interrupt ends the wait: the flush that waits is the last one.
        self.wire.until(|wire| (self.stop.get() || has_room(wire)).then_some(())).await?;
        written.room_us.add_time(began.elapsed());
        Ok(true)
    }
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
    use crate::probe::wire::tests::beside_a_silent_peer;

    #[test]
    fn a_flush_is_handed_over_when_the_kernel_has_all_of_it() {
        beside_a_silent_peer(async |wire| {
            let writer = Writer {
                wire: wire.clone(),
                disk: Rc::new(Disk::None),
                terms: Rc::new(Terms { mode: Mode::Async, legacy_hadr: true, ..Terms::default() }),
                is_far: false,
                stop: Rc::default(),
                counts_from: Rc::new(Cell::new(Some(Instant::now()))),
                content: content(0.0),
                seed: 0,
            };
            let mut written = Written::default();
            // Nobody reads: the kernels take some flushes, and a part of the last one at most.
            for _ in 0..10_000 {
                let handed_over = writer.send(FLUSH_BYTES.default, &mut written);
                // The connection's own task hands over the rest when the kernel lets it, and says what was taken, in turns.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                let is_taken = wire.taken_bytes() >= handed_over;
                assert_eq!(is_taken, wire.sender.queued_bytes() == 0, "flush {}", written.flushes);
                if !is_taken {
                    return;
                }
            }
            panic!("the kernels take it all");
        });
    }
}
