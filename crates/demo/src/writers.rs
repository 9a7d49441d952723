//! Five writers, one per volume, all sectors stamped.
//!
//! They live on one thread of their own, so that nothing the demo does meanwhile disturbs what they measure. Paced
//! writers are an open loop: a write is issued when its time has come, whether or not the earlier ones were answered,
//! and if a writer is at its depth, waiting for a place counts as waiting for the answer.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::terms::{GROUP, VOLUME_BYTES, VOLUMES, volume_name};
use anyhow::{Context, Result, anyhow, bail};
use host::nbd::{Address, Ask, NbdClient};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::sleep_until;
use witness::{VolumeNumber, WriteRecorder, WriteTicket, WriterId};

/// Writes in flight per paced writer; reached only when the export stands still for long.
const DEPTH_MAX: usize = 256;
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// How long writers that were told to stop may wait for their last answers.
const DRAIN_PATIENCE: Duration = Duration::from_secs(30);

/// How the writers go about it.
#[derive(Clone, Copy, Debug)]
pub enum WritePace {
    /// One write at a time per writer, the next one at once.
    Closed,
    /// So many bytes per second, all writers together, evenly spaced.
    Open { bytes_per_s: u64 },
}

/// What the writers are to do. Writes are sequential and start over at the end of the ring.
#[derive(Clone, Copy, Debug)]
pub struct WritePlan {
    pub size_bytes: u32,
    pub pace: WritePace,
    /// Ask for each write to be durable before it is answered.
    pub fua: bool,
    /// The part of each volume that is written, from its start.
    pub ring_bytes: u64,
    /// Writes per writer after which it ends by itself.
    pub count_max: Option<u64>,
}

impl WritePlan {
    pub fn closed(size_bytes: u32) -> Self {
        Self { size_bytes, pace: WritePace::Closed, fua: false, ring_bytes: VOLUME_BYTES, count_max: None }
    }

    pub fn open(size_bytes: u32, bytes_per_s: u64) -> Self {
        Self { pace: WritePace::Open { bytes_per_s }, ..Self::closed(size_bytes) }
    }

    fn period(&self) -> Option<Duration> {
        match self.pace {
            WritePace::Closed => None,
            WritePace::Open { bytes_per_s } => {
                let seconds = f64::from(self.size_bytes) * f64::from(VOLUMES) / bytes_per_s as f64;
                Some(Duration::from_secs_f64(seconds))
            }
        }
    }
}

/// An answered write.
#[derive(Clone, Copy, Debug)]
pub struct WriteSample {
    pub began: Instant,
    pub took: Duration,
}

/// What the writers saw.
#[derive(Debug, Default)]
pub struct WriterOutcome {
    pub samples: Vec<WriteSample>,
    /// Why writers ended before they were told to.
    pub troubles: Vec<String>,
}

/// What the control thread says. Writers only ever read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterOrder {
    Write,
    /// Issue nothing more, wait for what is in flight.
    Stop,
    /// Leave everything as it is.
    Abandon,
}

/// Writers at work. Dropped, they abandon it.
pub struct DemoWriters {
    order: watch::Sender<WriterOrder>,
    acknowledged_bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<WriterOutcome>>>,
}

impl DemoWriters {
    /// Connect one writer per volume to the export at `socket` and set them to work.
    ///
    /// # Errors
    /// The thread cannot be made. A refused connection shows when they are stopped.
    pub fn start(socket: PathBuf, recorder: Arc<WriteRecorder>, plan: WritePlan) -> Result<Self> {
        assert!(u64::from(plan.size_bytes) <= plan.ring_bytes && plan.ring_bytes <= VOLUME_BYTES);
        let (order, orders) = watch::channel(WriterOrder::Write);
        let acknowledged_bytes = Arc::new(AtomicU64::new(0));
        let crew = Crew { socket, recorder, plan, orders, acknowledged_bytes: acknowledged_bytes.clone() };
        let thread = std::thread::Builder::new().name("writers".into()).spawn(move || crew.work())?;
        Ok(Self { order, acknowledged_bytes, thread: Some(thread) })
    }

    /// Bytes of all answered writes so far.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged_bytes.load(Ordering::Relaxed)
    }

    /// No more writes; wait for the answers that are due.
    ///
    /// # Errors
    /// A write failed, or was not answered in time.
    pub fn stop(self) -> Result<WriterOutcome> {
        let outcome = self.end(WriterOrder::Stop)?;
        match outcome.troubles.first() {
            Some(trouble) => bail!("{trouble}"),
            None => Ok(outcome),
        }
    }

    /// Wait until every writer has done its count.
    ///
    /// # Errors
    /// A write failed.
    pub fn finish(self) -> Result<WriterOutcome> {
        let outcome = self.end(WriterOrder::Write)?;
        match outcome.troubles.first() {
            Some(trouble) => bail!("{trouble}"),
            None => Ok(outcome),
        }
    }

    /// Leave: writes in flight stay of unknown outcome, and troubles are to be expected.
    ///
    /// # Errors
    /// They never connected.
    pub fn abandon(self) -> Result<WriterOutcome> {
        self.end(WriterOrder::Abandon)
    }

    fn end(mut self, order: WriterOrder) -> Result<WriterOutcome> {
        self.order.send_replace(order);
        let thread = self.thread.take().expect("writers end once");
        thread.join().map_err(|_| anyhow!("the writers' thread panicked; its message is above"))?
    }
}

impl Drop for DemoWriters {
    fn drop(&mut self) {
        self.order.send_replace(WriterOrder::Abandon);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What all writers share.
struct Crew {
    socket: PathBuf,
    recorder: Arc<WriteRecorder>,
    plan: WritePlan,
    orders: watch::Receiver<WriterOrder>,
    acknowledged_bytes: Arc<AtomicU64>,
}

impl Crew {
    fn work(self) -> Result<WriterOutcome> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let local = LocalSet::new();
        runtime.block_on(local.run_until(self.write_all()))
    }

    async fn write_all(self) -> Result<WriterOutcome> {
        let crew = Rc::new(self);
        let mut writers = Vec::new();
        for volume in 0..VOLUMES {
            writers.push(DemoWriter::connect(crew.clone(), volume).await?);
        }
        let began = Instant::now();
        let tasks: Vec<_> =
            writers.into_iter().map(|writer| tokio::task::spawn_local(writer.write_until_stopped(began))).collect();
        let mut outcome = WriterOutcome::default();
        for task in tasks {
            let (samples, trouble) = task.await.context("a writer panicked; its message is above")?;
            outcome.samples.extend(samples);
            outcome.troubles.extend(trouble);
        }
        Ok(outcome)
    }
}

struct WriteInFlight {
    ticket: WriteTicket,
    began: Instant,
}

struct DemoWriter {
    crew: Rc<Crew>,
    volume: u32,
    client: NbdClient,
    flying: HashMap<u64, WriteInFlight>,
    issued: u64,
    payload: Vec<u8>,
    samples: Vec<WriteSample>,
    /// When the next write is due; `None` with a closed loop.
    due: Option<Instant>,
    orders: watch::Receiver<WriterOrder>,
}

impl DemoWriter {
    async fn connect(crew: Rc<Crew>, volume: u32) -> Result<Self> {
        let address = Address::Unix(crew.socket.clone());
        let export = format!("{GROUP}/{}", volume_name(volume));
        let connect = tokio::time::timeout(CONNECT_PATIENCE, NbdClient::connect(&address, &export)).await;
        let client = connect.with_context(|| format!("export {export} did not answer in time"))??;
        let payload = vec![0; crew.plan.size_bytes as usize];
        let orders = crew.orders.clone();
        let (flying, samples) = (HashMap::new(), Vec::new());
        Ok(Self { crew, volume, client, flying, issued: 0, payload, samples, due: None, orders })
    }

    /// Returns what was answered, and why it ended if nobody said so.
    async fn write_until_stopped(mut self, began: Instant) -> (Vec<WriteSample>, Option<String>) {
        // Spread over the period, so that the five do not all write at the same moment.
        self.due = self.crew.plan.period().map(|period| began + period.mul_f64(f64::from(self.volume) / 5.0));
        let result = self.write_on().await;
        let name = volume_name(self.volume);
        let trouble = result.err().map(|error| format!("the writer of {name} ended: {error:#}"));
        (self.samples, trouble)
    }

    async fn write_on(&mut self) -> Result<()> {
        let mut drain_until = None;
        loop {
            let order = *self.orders.borrow_and_update();
            if order == WriterOrder::Abandon {
                return Ok(());
            }
            let counted = self.crew.plan.count_max.is_some_and(|count| self.issued >= count);
            let done = counted || order == WriterOrder::Stop;
            if done {
                if self.flying.is_empty() {
                    return Ok(());
                }
                drain_until.get_or_insert(Instant::now() + DRAIN_PATIENCE);
            } else {
                self.issue_due();
            }
            let wake = if done { drain_until } else { self.due.filter(|_| self.flying.len() < DEPTH_MAX) };
            let wake = wake.map(tokio::time::Instant::from_std);
            tokio::select! {
                biased;
                answer = self.client.next(), if !self.flying.is_empty() => {
                    let answer = answer?;
                    self.take(answer.cookie, answer.result.map(|_| ()))?;
                }
                _ = self.orders.changed() => {}
                () = async { sleep_until(wake.expect("checked")).await }, if wake.is_some() => {
                    if done {
                        bail!("{} writes were not answered within {} s", self.flying.len(), DRAIN_PATIENCE.as_secs());
                    }
                }
            }
        }
    }

    /// Issue everything whose time has come.
    fn issue_due(&mut self) {
        let Some(period) = self.crew.plan.period() else {
            if self.flying.is_empty() {
                self.issue(None);
            }
            return;
        };
        let counted = |writer: &Self| writer.crew.plan.count_max.is_some_and(|count| writer.issued >= count);
        while self.flying.len() < DEPTH_MAX && !counted(self) {
            let (Some(due), now) = (self.due, Instant::now()) else { return };
            if due > now {
                return;
            }
            // A late timer is our own fault; a full depth is the export's, and then the wait counts.
            self.issue((self.flying.len() + 1 == DEPTH_MAX).then_some(due));
            self.due = Some(due + period);
        }
    }

    /// One write, which counts from now, or from when it had to wait.
    fn issue(&mut self, waits_since: Option<Instant>) {
        let plan = &self.crew.plan;
        let slots = plan.ring_bytes / u64::from(plan.size_bytes);
        let offset = self.issued % slots * u64::from(plan.size_bytes);
        let writer = WriterId(self.volume);
        let ticket = self.crew.recorder.issue(writer, VolumeNumber(self.volume), offset, plan.size_bytes);
        ticket.stamp(&mut self.payload);
        let began = waits_since.unwrap_or_else(Instant::now);
        self.client.queue(self.issued, Ask::Write { offset, data: &self.payload, fua: plan.fua });
        self.flying.insert(self.issued, WriteInFlight { ticket, began });
        self.issued += 1;
    }

    fn take(&mut self, cookie: u64, result: Result<(), host::nbd::proto::Errno>) -> Result<()> {
        let took_until = Instant::now();
        let flying = self.flying.remove(&cookie).context("the export answered a write twice")?;
        if let Err(errno) = result {
            self.crew.recorder.fail(flying.ticket);
            bail!("a write was answered with {errno:?}");
        }
        self.crew.recorder.acknowledge(flying.ticket);
        self.samples.push(WriteSample { began: flying.began, took: took_until - flying.began });
        self.crew.acknowledged_bytes.fetch_add(u64::from(self.crew.plan.size_bytes), Ordering::Relaxed);
        Ok(())
    }
}
