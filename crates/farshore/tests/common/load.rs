//! Stamped writers, and the checker that reads what is left of their work.
//!
//! Several writers share each volume, keep several writes in flight, and meet again and again in a small area, so that
//! most writes overlap others that are under way.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::nbd::{Address, Ask, ClientError, NbdClient};
use tokio::sync::watch;
use witness::{
    PrefixReport, PrefixVerdict, RunId, SECTOR_BYTES, VolumeImage, VolumeNumber, WriteName, WriteRecorder, WriteTicket,
    WriterId,
};

use super::{GROUP, Pair, Side, TestRandom};

#[derive(Clone, Copy, Debug)]
pub struct LoadPlan {
    pub volumes: &'static [&'static str],
    pub writers_per_volume: u32,
    /// Writes in flight per writer.
    pub depth: usize,
    /// The part of each volume that is written, from its start: the smaller, the more overlaps.
    pub area_bytes: u64,
    pub sectors_max: u64,
    /// One request of so many is a flush; 0: none is.
    pub flush_one_in: u64,
}

impl LoadPlan {
    /// Overlaps are the rule.
    pub fn crowded(volumes: &'static [&'static str]) -> LoadPlan {
        LoadPlan { volumes, writers_per_volume: 2, depth: 3, area_bytes: 512 << 10, sectors_max: 48, flush_one_in: 0 }
    }
}

/// One run: its writers' note book, and what the volumes held before.
pub struct WriterRun {
    pub recorder: Arc<WriteRecorder>,
    volumes: &'static [&'static str],
    /// By volume; empty: zeroes.
    base: Vec<Vec<u8>>,
    /// What an acknowledged FUA or flush has made durable.
    durable: Arc<Mutex<Durable>>,
}

#[derive(Default)]
struct Durable {
    /// Written through, or flushed before the last power loss.
    certain: HashSet<WriteName>,
    /// By volume, when the last of the acknowledged flushes was issued.
    flushed: HashMap<VolumeNumber, u64>,
    /// When the power was lost last: what was not flushed by then no later flush can bring back.
    power_lost: u64,
}

impl Durable {
    fn covers(&self, write: &witness::RecordedWrite) -> bool {
        let flushed = self.flushed.get(&write.volume).copied().unwrap_or(0);
        let is_flushed = write.acknowledged.is_some_and(|tick| self.power_lost < tick && tick < flushed);
        is_flushed || self.certain.contains(&write.name)
    }
}

impl WriterRun {
    /// A run on volumes that hold zeroes.
    pub fn on_zeroes(number: u64, volumes: &'static [&'static str]) -> WriterRun {
        let base = vec![Vec::new(); volumes.len()];
        WriterRun { recorder: Arc::new(WriteRecorder::new(RunId(number))), volumes, base, durable: Arc::default() }
    }

    /// A run on what the node, which must rest, holds now.
    pub fn on_content(number: u64, pair: &Pair, node: Side, volumes: &'static [&'static str]) -> WriterRun {
        let base = volumes.iter().map(|volume| pair.content(node, volume)).collect();
        WriterRun { base, ..WriterRun::on_zeroes(number, volumes) }
    }

    /// Which prefix of the run the volumes of a node at rest are. Anything else ends the test with the first reason.
    pub fn check(&self, pair: &Pair, node: Side) -> PrefixReport {
        let contents: Vec<Vec<u8>> = self.volumes.iter().map(|volume| pair.content(node, volume)).collect();
        match witness::check(&self.recorder.history(), self.images(&contents)).expect("images in memory can be read") {
            PrefixVerdict::Prefix(report) => report,
            PrefixVerdict::Broken(violation) => {
                let kept = self.keep(&contents);
                let logs = Side::BOTH.map(|node| pair.log(node)).join("\n");
                panic!("{} holds no prefix: {violation}\n(images kept in {})\n{logs}", node.name(), kept.display())
            }
        }
    }

    /// The writes that an acknowledged flush or FUA promised to be durable on the primary's own disk.
    pub fn flushed(&self) -> HashSet<WriteName> {
        let durable = self.durable.lock().expect("no writer panics");
        let history = self.recorder.history();
        history.writes.iter().filter(|write| durable.covers(write)).map(|write| write.name).collect()
    }

    /// Notes that the primary has lost its power; its writers are gone.
    pub fn power_lost(&self) {
        let certain = self.flushed();
        let power_lost = self.recorder.tick();
        *self.durable.lock().expect("no writer panics") = Durable { certain, flushed: HashMap::new(), power_lost };
    }

    /// The writes that were acknowledged until now.
    pub fn acknowledged(&self) -> HashSet<WriteName> {
        let history = self.recorder.history();
        history.writes.iter().filter(|write| write.acknowledged.is_some()).map(|write| write.name).collect()
    }

    /// Ends the test unless the volumes of a node at rest hold all that was promised. They need not be a prefix.
    pub fn assert_kept(&self, pair: &Pair, node: Side, promised: &HashSet<WriteName>) {
        let contents: Vec<Vec<u8>> = self.volumes.iter().map(|volume| pair.content(node, volume)).collect();
        let kept = witness::check_kept(&self.recorder.history(), promised, self.images(&contents));
        if let Err(violation) = kept.expect("images in memory can be read") {
            let kept = self.keep(&contents);
            let logs = Side::BOTH.map(|node| pair.log(node)).join("\n");
            panic!("{} broke a promise: {violation}\n(images kept in {})\n{logs}", node.name(), kept.display())
        }
    }

    fn images<'a>(&'a self, contents: &'a [Vec<u8>]) -> Vec<VolumeImage<'a>> {
        let images = contents.iter().zip(&self.base).enumerate().map(|(number, (content, base))| {
            VolumeImage::new(VolumeNumber(number as u32), content.as_slice()).on_base(base.as_slice())
        });
        images.collect()
    }

    /// Leaves the images of a broken promise to whoever has to find out why.
    fn keep(&self, contents: &[Vec<u8>]) -> PathBuf {
        let kept = tempfile::Builder::new().prefix("farshore-broken-").tempdir().expect("a directory").keep();
        for (name, content) in self.volumes.iter().zip(contents) {
            fs::write(kept.join(name), content).expect("an image is written");
        }
        kept
    }
}

/// What the test says. Writers only read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadOrder {
    Write,
    /// Issue nothing more for now.
    Pause,
    /// Issue nothing more, wait for the answers, leave.
    Stop,
    /// Leave at once: what is in flight stays of unknown outcome.
    Abandon,
}

/// Writers at work on a node's exports. Dropped, they abandon it.
pub struct WriterLoad {
    orders: watch::Sender<LoadOrder>,
    counts: Arc<LoadCounts>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

#[derive(Default)]
struct LoadCounts {
    acknowledged: AtomicU64,
    failed: AtomicU64,
    in_flight: AtomicU64,
    /// Of the writes answered since this was last taken, the longest: nanoseconds.
    longest: AtomicU64,
}

impl WriterLoad {
    /// Sets the writers to work on a primary's exports.
    pub fn start(pair: &Pair, node: Side, run: &WriterRun, plan: LoadPlan) -> WriterLoad {
        let (orders, _) = watch::channel(LoadOrder::Write);
        let counts = Arc::new(LoadCounts::default());
        let socket = pair.path(node.name()).join("state/nbd.sock");
        let mut threads = Vec::new();
        for number in 0..plan.volumes.len() as u32 * plan.writers_per_volume {
            let volume = number % plan.volumes.len() as u32;
            let writer = LoadWriter {
                address: Address::Unix(socket.clone()),
                export: format!("{GROUP}/{}", plan.volumes[volume as usize]),
                volume: VolumeNumber(volume),
                name: WriterId(number),
                random: TestRandom::new(1 + u64::from(number) + run.recorder.history().writes.len() as u64),
                plan,
                recorder: run.recorder.clone(),
                durable: run.durable.clone(),
                orders: orders.subscribe(),
                counts: counts.clone(),
                flying: Vec::new(),
            };
            threads.push(std::thread::spawn(move || writer.work()));
        }
        WriterLoad { orders, counts, threads }
    }

    pub fn acknowledged(&self) -> u64 {
        self.counts.acknowledged.load(Ordering::Relaxed)
    }

    /// How long the longest of the writes took that were answered since this was last asked.
    pub fn take_longest(&self) -> Duration {
        Duration::from_nanos(self.counts.longest.swap(0, Ordering::Relaxed))
    }

    /// Requests that were answered with an error.
    pub fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }

    /// Waits until so many more writes were answered.
    pub fn wait_for_more(&self, pair: &mut Pair, more: u64) {
        let goal = self.acknowledged() + more;
        pair.until("the writers get their answers", |pair| {
            let has_ended = self.threads.iter().any(JoinHandle::is_finished);
            assert!(!has_ended, "a writer ended:\n{}", Side::BOTH.map(|node| pair.log(node)).join("\n"));
            self.acknowledged() >= goal
        });
    }

    /// Issues nothing more and waits until nothing is in flight.
    pub fn pause(&self, pair: &mut Pair) {
        self.orders.send_replace(LoadOrder::Pause);
        pair.until("the last writes are answered", |_| self.counts.in_flight.load(Ordering::SeqCst) == 0);
    }

    pub fn resume(&self) {
        self.orders.send_replace(LoadOrder::Write);
    }

    /// Waits for all answers; no writer may have met trouble.
    pub fn stop(self) {
        let failed = self.failed();
        let troubles = self.end(LoadOrder::Stop);
        assert!(troubles.is_empty() && failed == 0, "{failed} requests failed; {troubles:?}");
    }

    /// Leaves what is in flight as it is: of unknown outcome.
    pub fn abandon(self) {
        self.end(LoadOrder::Abandon);
    }

    fn end(mut self, order: LoadOrder) -> Vec<String> {
        self.orders.send_replace(order);
        let results = self.threads.drain(..).map(|thread| thread.join().expect("no writer panics"));
        results.filter_map(Result::err).collect()
    }
}

impl Drop for WriterLoad {
    fn drop(&mut self) {
        self.orders.send_replace(LoadOrder::Abandon);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct LoadWriter {
    address: Address,
    export: String,
    volume: VolumeNumber,
    name: WriterId,
    random: TestRandom,
    plan: LoadPlan,
    recorder: Arc<WriteRecorder>,
    orders: watch::Receiver<LoadOrder>,
    counts: Arc<LoadCounts>,
    durable: Arc<Mutex<Durable>>,
    flying: Vec<(u64, Instant, RequestInFlight)>,
}

/// A request whose answer is awaited.
enum RequestInFlight {
    Write {
        ticket: WriteTicket,
        fua: bool,
    },
    /// With the tick of its issue.
    Flush(u64),
}

impl LoadWriter {
    /// Why it ended, if nobody had said so.
    fn work(mut self) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let result = runtime.block_on(self.write_on());
        // What is left behind in flight is in flight no more as far as a pause is concerned.
        self.counts.in_flight.fetch_sub(self.flying.len() as u64, Ordering::SeqCst);
        result.map_err(|error| format!("the writer of {} ended: {error}", self.export))
    }

    async fn write_on(&mut self) -> Result<(), ClientError> {
        let mut client = NbdClient::connect(&self.address, &self.export).await?;
        for cookie in 0.. {
            let order = *self.orders.borrow_and_update();
            match order {
                LoadOrder::Abandon => return Ok(()),
                LoadOrder::Stop if self.flying.is_empty() => return client.disconnect().await,
                LoadOrder::Write if self.flying.len() < self.plan.depth => {
                    self.issue(&mut client, cookie);
                    if self.flying.len() < self.plan.depth {
                        continue;
                    }
                }
                LoadOrder::Write | LoadOrder::Pause | LoadOrder::Stop => {}
            }
            tokio::select! {
                biased;
                _ = self.orders.changed() => {}
                answer = client.next(), if !self.flying.is_empty() => {
                    let answer = answer?;
                    self.take(answer.cookie, answer.result.is_ok());
                }
            }
        }
        Ok(())
    }

    fn issue(&mut self, client: &mut NbdClient, cookie: u64) {
        // Counted before it is recorded: a pause that sees nothing in flight has seen everything.
        self.counts.in_flight.fetch_add(1, Ordering::SeqCst);
        let flying = if self.plan.flush_one_in > 0 && self.random.below(self.plan.flush_one_in) == 0 {
            let tick = self.recorder.tick();
            client.queue(cookie, Ask::Flush);
            RequestInFlight::Flush(tick)
        } else {
            self.issue_write(client, cookie)
        };
        self.flying.push((cookie, Instant::now(), flying));
    }

    fn issue_write(&mut self, client: &mut NbdClient, cookie: u64) -> RequestInFlight {
        let sector_bytes = SECTOR_BYTES as u64;
        let sectors = 1 + self.random.below(self.plan.sectors_max);
        let offset = self.random.below(self.plan.area_bytes / sector_bytes - sectors) * sector_bytes;
        let mut payload = vec![0; (sectors * sector_bytes) as usize];
        let ticket = self.recorder.issue(self.name, self.volume, offset, payload.len() as u32);
        ticket.stamp(&mut payload);
        let fua = self.random.below(16) == 0;
        client.queue(cookie, Ask::Write { offset, data: &payload, fua });
        RequestInFlight::Write { ticket, fua }
    }

    fn take(&mut self, cookie: u64, is_done: bool) {
        let at =
            self.flying.iter().position(|(flying, ..)| *flying == cookie).expect("answers are to our own requests");
        let (_, issued, flying) = self.flying.swap_remove(at);
        let took = u64::try_from(issued.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counts.longest.fetch_max(took, Ordering::Relaxed);
        match flying {
            RequestInFlight::Write { ticket, fua } if is_done => {
                let name = ticket.name();
                self.recorder.acknowledge(ticket);
                if fua {
                    self.durable().certain.insert(name);
                }
                self.counts.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            RequestInFlight::Flush(tick) if is_done => {
                let volume = self.volume;
                let mut durable = self.durable();
                let flushed = durable.flushed.entry(volume).or_insert(0);
                *flushed = tick.max(*flushed);
            }
            RequestInFlight::Write { ticket, .. } => {
                self.recorder.fail(ticket);
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
            }
            RequestInFlight::Flush(_) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.counts.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    fn durable(&self) -> MutexGuard<'_, Durable> {
        self.durable.lock().expect("no writer panics")
    }
}
