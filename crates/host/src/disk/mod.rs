//! Disks: a file engine for each data thread, and the ways to open what it works on.
//!
//! The engine is a waiter with one tray: the driver puts requests on it ([`FileEngine::submit`]), sends it off once a
//! turn ([`FileEngine::kick`]), and takes back what is done ([`FileEngine::completions`]) when [`Readiness`] says so.
//! Nothing here waits on a disk, save for a lone short request on a disk that has lately been faster than a trip through
//! the reactor is worth, and for that no longer than a moment.
//!
//! What must hold:
//! * every submitted request completes exactly once, with its token;
//! * memory lent to the kernel stays alive and untouched until its completion, also when the engine is dropped;
//! * the thread waits for no disk longer than [`INLINE_WAIT_MAX`], and never for one that owes an answer already;
//! * a device that answers nothing holds a share of slots and workers, never all of them: the others go on;
//! * requests in flight together are unordered: order is made above, by waiting.

mod advisory_lock;
pub mod at_rest;
pub mod blank;
mod delta;
pub mod device_id;
mod device_queues;
mod devices;
mod file;
pub mod fingerprint;
mod holders;
mod identity;
pub mod meta;
mod op;
mod open_error;
pub mod overlap;
mod pool;
mod signal;
mod status;
mod uring;
pub mod volume;
mod work;
mod zero;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use delta::DELTAS_KEPT_MAX;
pub use devices::{OwedAnswers, SilenceNews};
pub use file::File;
pub use holders::{FileSystem, claim_unused, file_system_of, opened_by, used_by};
pub use identity::FileIdentity;
pub use op::{AllocationRun, Completion, DiskAnswer, DiskError, DiskOp, ErrorKind, Inline, OpName, Part, Parts};
pub use signal::Readiness;
pub use status::block_status;
pub use zero::is_zero;

use crate::buffers;
use devices::WatchedDevices;
use pool::{FinishedWork, WorkerPool};
use signal::Signals;
use uring::IoRing;
use work::DiskWork;

/// The thread waits for a request only where recent ones took less: about what a trip through the reactor and back costs.
const INLINE_BOUND: Duration = Duration::from_micros(100);
/// However quick a disk was, after this the thread goes on and the answer is collected when it comes: one that hangs in
/// this very moment costs the others no more. A shorter wait is dearer: its end would come before the clock's next tick, so
/// each request would have the processor's timer set and reset.
const INLINE_WAIT_MAX: Duration = Duration::from_millis(5);
/// A device that owes an answer for so long is spoken of: longer than a disk that turns needs to wake.
pub const SILENCE_REPORTED: Duration = Duration::from_secs(10);
/// Worker threads of one engine at most; a lone device has half of them.
const WORKERS_MAX: usize = 64;

/// Which machinery a file engine uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// The ring where the kernel and the container allow it, else workers.
    Auto,
    /// io_uring; refuse to start without.
    Uring,
    /// Worker threads.
    Pool,
}

/// Why a data thread cannot have a file engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(
        "io_uring does not work on this machine or is forbidden in this container ({0}); set the file engine to \
         \"auto\" or \"pool\", or allow it (kernel.io_uring_disabled = 0, seccomp profile)"
    )]
    NoRing(std::io::Error),
    #[error("the data thread cannot watch its descriptors ({0}); raise the limit of open files (ulimit -n)")]
    NoSignals(std::io::Error),
}

/// Disk I/O of one data thread. Not `Send`: it belongs to the thread and the tokio runtime that made it.
///
/// Dropping it waits for what the kernel holds; requests not yet begun are dropped without a completion.
pub struct FileEngine {
    ring: Option<IoRing>,
    workers: WorkerPool,
    signals: Rc<Signals>,
    /// Submitted since the last kick.
    gathered: Vec<DiskWork>,
    /// Files that are being flushed, by their address, and the flushes that wait behind that. The kernel reports a lost write to one flush
    /// of an open file: another one beside it could succeed before anybody has heard of that.
    flushes: BTreeMap<usize, VecDeque<DiskWork>>,
    /// Done, not yet reported.
    finished: Vec<Completion>,
    /// Done, but not to be reported before the key's time.
    delayed: BTreeMap<(Instant, u64), Completion>,
    delayed_count: u64,
    at_ring: usize,
    at_workers: usize,
    devices: WatchedDevices,
    /// Emptied in every use; kept for its capacity.
    collected: Vec<FinishedWork>,
    bounce: buffers::Pool,
}

impl FileEngine {
    /// Must run on the data thread, inside its tokio runtime (with I/O enabled).
    ///
    /// # Errors
    /// `kind` is [`EngineKind::Uring`] and the ring does not work, or descriptors ran out.
    pub fn new(kind: EngineKind) -> Result<FileEngine, EngineError> {
        let ring = match kind {
            EngineKind::Pool => None,
            EngineKind::Uring => Some(IoRing::open().map_err(EngineError::NoRing)?),
            EngineKind::Auto => IoRing::open()
                .inspect_err(|error| tracing::info!("io_uring is not available ({error}): using worker threads"))
                .ok(),
        };
        let watch = ring.as_ref().map(IoRing::watch_fd).transpose().map_err(EngineError::NoSignals)?;
        let signals = Signals::new(watch).map_err(EngineError::NoSignals)?;
        let bell = signals.worker_bell().map_err(EngineError::NoSignals)?;
        Ok(FileEngine {
            ring,
            workers: WorkerPool::new(WORKERS_MAX, bell),
            signals: Rc::new(signals),
            gathered: Vec::new(),
            flushes: BTreeMap::new(),
            finished: Vec::new(),
            delayed: BTreeMap::new(),
            delayed_count: 0,
            at_ring: 0,
            at_workers: 0,
            devices: WatchedDevices::default(),
            collected: Vec::new(),
            // Bounded by what is in flight; the limits of the layers above bound that.
            bounce: buffers::Pool::new(usize::MAX),
        })
    }

    /// What is live: `Uring` or `Pool`.
    pub fn kind(&self) -> EngineKind {
        if self.ring.is_some() { EngineKind::Uring } else { EngineKind::Pool }
    }

    /// Requests submitted and not yet reported as completed.
    pub fn pending(&self) -> usize {
        let held: usize = self.flushes.values().map(VecDeque::len).sum();
        held + self.gathered.len() + self.at_ring + self.at_workers + self.delayed.len() + self.finished.len()
    }

    /// For how long the device on which this file lies owes an answer and has given none, whatever file it was asked for:
    /// `None` below [`SILENCE_REPORTED`], which is no news.
    pub fn silence(&self, file: &File) -> Option<Duration> {
        self.devices.silence(file.device(), Instant::now()).filter(|silence| *silence >= SILENCE_REPORTED)
    }

    /// Which devices owe answers and have given none for at least so long.
    pub(crate) fn owing(&self, at_least: Duration) -> Vec<OwedAnswers> {
        self.devices.owing(at_least, Instant::now())
    }

    /// Which devices have fallen silent since this was asked last, and which answer again.
    pub(crate) fn silence_news(&mut self) -> Vec<SilenceNews> {
        self.devices.news(Instant::now())
    }

    /// Gathers a request. `token` comes back with its completion; any failure comes as a completion too.
    pub fn submit(&mut self, token: u64, file: &Arc<File>, op: DiskOp, inline: Inline) {
        match DiskWork::prepare(token, file, op, inline, &self.bounce) {
            Ok(mut work) if work.is_empty() => {
                let result = Ok(work.answer_empty());
                self.finished.push(Completion { token, result, elapsed: Duration::ZERO });
            }
            Ok(work) => {
                if let Some(work) = self.first_in_line(work) {
                    self.gathered.push(work);
                }
            }
            Err(error) => self.finished.push(Completion { token, result: Err(error), elapsed: Duration::ZERO }),
        }
    }

    /// A flush waits while its file is being flushed; nothing else does.
    fn first_in_line(&mut self, work: DiskWork) -> Option<DiskWork> {
        if !work.is_flush() {
            return Some(work);
        }
        match self.flushes.entry(Arc::as_ptr(&work.file) as usize) {
            Entry::Vacant(line) => {
                line.insert(VecDeque::new());
                Some(work)
            }
            Entry::Occupied(line) => {
                line.into_mut().push_back(work);
                None
            }
        }
    }

    /// A flush has ended: the next one of its file is on its way.
    fn begin_next_flush(&mut self, file: &Arc<File>, now: Instant) {
        let Entry::Occupied(mut line) = self.flushes.entry(Arc::as_ptr(file) as usize) else { return };
        let Some(mut work) = line.get_mut().pop_front() else {
            line.remove();
            return;
        };
        (work.issued, work.device) = (now, self.devices.number(&work.file));
        self.devices.begin(work.device, now);
        match &mut self.ring {
            Some(ring) if ring.has_workers() || !work.needs_kernel_worker() => {
                self.at_ring += 1;
                ring.add(work);
            }
            _ => self.at_workers += self.workers.submit(std::iter::once(work)),
        }
    }

    /// Sends what was gathered on its way. Call once a turn, after the turn's frames went to the sockets: this is
    /// where the thread may wait a moment for a lone request.
    pub fn kick(&mut self) {
        let now = Instant::now();
        for work in &mut self.gathered {
            (work.issued, work.device) = (now, self.devices.number(&work.file));
        }
        if let [work] = self.gathered.as_mut_slice() {
            work.lone = self.devices.is_alone(work.device, now);
        }
        self.gathered.iter().for_each(|work| self.devices.begin(work.device, now));
        let waits = matches!(self.gathered.as_slice(), [work] if work.lone && work.suits_inline(INLINE_BOUND));
        let pool_only = self.ring.is_none();
        let has_workers = self.ring.as_ref().is_some_and(IoRing::has_workers);
        let goes_to_worker =
            |work: &mut DiskWork| pool_only || work.needs_worker() || !has_workers && work.needs_kernel_worker();
        let to_workers = self.gathered.extract_if(.., goes_to_worker);
        let mut to_workers = to_workers.peekable();
        if to_workers.peek().is_some() {
            self.at_workers += self.workers.submit(to_workers);
        } else {
            drop(to_workers);
        }
        if let Some(ring) = &mut self.ring {
            self.at_ring += self.gathered.len();
            self.gathered.drain(..).for_each(|work| ring.add(work));
        }
        if waits {
            self.wait_for_ring()
        } else {
            self.submit_ring()
        }
        if !self.finished.is_empty() {
            self.signals.note();
        }
    }

    /// Moves all completions that may be reported now to `out`, in no particular order.
    pub fn completions(&mut self, out: &mut Vec<Completion>) {
        let mut collected = std::mem::take(&mut self.collected);
        self.reap_ring(&mut collected);
        if self.at_workers > 0 {
            let before = collected.len();
            self.workers.collect(&mut collected);
            self.at_workers -= collected.len() - before;
        }
        self.submit_ring();
        if !collected.is_empty() || !self.delayed.is_empty() {
            let now = Instant::now();
            collected.drain(..).for_each(|(work, result)| self.finish(work, result, now));
            // Flushes that waited for one that has ended.
            self.submit_ring();
            self.release_delayed(now);
        }
        self.collected = collected;
        out.append(&mut self.finished);
    }

    /// Resolves when completions may wait; call [`FileEngine::completions`] after each return.
    pub async fn ready(&self) {
        self.readiness().wait().await;
    }

    /// The same as [`FileEngine::ready`] without borrowing the engine while waiting.
    pub fn readiness(&self) -> Readiness {
        Readiness(self.signals.clone())
    }

    fn submit_ring(&mut self) {
        if let Some(ring) = &mut self.ring
            && !ring.submit()
        {
            self.signals.note();
        }
    }

    /// Submits a lone request and waits a moment for its answer.
    fn wait_for_ring(&mut self) {
        // Without a ring nothing could end the wait, and a disk that hangs would hold the thread.
        let Some(ring) = self.ring.as_mut().filter(|ring| ring.can_wait()) else {
            return self.submit_ring();
        };
        if !ring.submit_and_wait(INLINE_WAIT_MAX) {
            self.signals.note();
        }
        let mut collected = std::mem::take(&mut self.collected);
        self.reap_ring(&mut collected);
        let now = Instant::now();
        for (work, result) in collected.drain(..) {
            self.finish(work, result, now);
            // A held back completion has no descriptor to tell of it: have the timer set.
            self.signals.note();
        }
        self.collected = collected;
        // What needs another transfer.
        self.submit_ring();
    }

    fn reap_ring(&mut self, collected: &mut Vec<FinishedWork>) {
        if let Some(ring) = &mut self.ring {
            let before = collected.len();
            ring.reap(collected);
            self.at_ring -= collected.len() - before;
        }
    }

    fn finish(&mut self, work: DiskWork, result: Result<DiskAnswer, DiskError>, now: Instant) {
        self.devices.end(work.device, now);
        if work.is_flush() {
            self.begin_next_flush(&work.file, now);
        }
        let due = work.due().unwrap_or(now).max(now);
        let elapsed = due - work.issued;
        work.sample(elapsed);
        let completion = Completion { token: work.token, result, elapsed };
        if due > now {
            self.delayed_count += 1;
            self.delayed.insert((due, self.delayed_count), completion);
        } else {
            self.finished.push(completion);
        }
    }

    fn release_delayed(&mut self, now: Instant) {
        while let Some(first) = self.delayed.first_entry() {
            let (due, _) = *first.key();
            if due > now {
                self.signals.wake_after(due - now);
                return;
            }
            self.finished.push(first.remove());
        }
    }
}
