//! How long a disk takes until a write is durable, measured as the daemon's journal would meet it.
//!
//! Writes of several sizes follow one another, each durable (RWF_DSYNC) before the next begins, through the very file
//! engine that the daemon uses. What they take is laid on a line, `time = overhead + bytes / rate`: the two numbers a
//! plan needs. The HADR toolkit measures the same with two sizes, 1 page and 1000 pages of 4 KiB.
//!
//! Scratch ([`scratch`]) is a file of its own that is gone afterwards, or a device that was given up for it.

pub mod fit;
pub mod report;
pub mod scratch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use host::buffers::Buffer;
use host::disk::{Completion, DiskError, DiskOp, EngineKind, File, FileEngine, Inline, Part};

use crate::interrupt::Interrupt;
use crate::within::{broke_down, no_thread};
use units::exact::show_seconds;

/// Lengths and offsets are multiples of it: what every disk takes directly.
pub const UNIT_BYTES: u64 = 4096;
/// The largest flush that is measured: its bytes stand in memory, and a disk's rate shows long before.
pub const FLUSH_BYTES_MAX: u64 = 64 << 20;
/// The sizes take turns so often: what else the machine does for a while then meets all of them, and the median round none of it.
const ROUNDS: u32 = 10;
/// The scratch is first written in pieces of so much.
const PIECE_BYTES: u64 = 1 << 20;
/// How often the progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What to measure.
#[derive(Clone, Debug)]
pub struct DiskTestPlan {
    /// Ascending, each a multiple of [`UNIT_BYTES`], [`FLUSH_BYTES_MAX`] at most and no larger than the span.
    pub sizes: Vec<u64>,
    /// The beginning of the scratch that is written, over and over.
    pub span_bytes: u64,
    /// For all sizes together, in equal parts and by turns.
    pub time: Duration,
    /// What a single flush may take before the disk counts as hung.
    pub patience: Duration,
}

/// Flushes of one size.
#[derive(Clone, Debug)]
pub struct FlushSample {
    pub bytes: u64,
    /// In ascending order; never empty.
    pub times: Vec<Duration>,
    /// The median of the rounds' mean times.
    pub typical_s: f64,
}

impl FlushSample {
    /// Of the rounds in which that size was written; none of them is empty, and there is one at least.
    pub fn new(bytes: u64, rounds: &[Vec<Duration>]) -> FlushSample {
        let mut means: Vec<f64> = rounds.iter().map(|times| mean_s(times)).collect();
        means.sort_unstable_by(f64::total_cmp);
        let mut times = rounds.concat();
        times.sort_unstable();
        let middle = means.len() / 2;
        let typical_s =
            if means.len() % 2 == 1 { means[middle] } else { means[middle - 1..=middle].iter().sum::<f64>() / 2.0 };
        FlushSample { bytes, times, typical_s }
    }

    pub fn mean_s(&self) -> f64 {
        mean_s(&self.times)
    }

    /// The shortest time that this share of the flushes did not pass, in seconds.
    pub fn quantile_s(&self, share: f64) -> f64 {
        let rank = (share * self.times.len() as f64).ceil() as usize;
        self.times[rank.clamp(1, self.times.len()) - 1].as_secs_f64()
    }
}

fn mean_s(times: &[Duration]) -> f64 {
    times.iter().map(Duration::as_secs_f64).sum::<f64>() / times.len() as f64
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct DiskMeasurement {
    pub samples: Vec<FlushSample>,
    /// `io_uring` or `workers`.
    pub engine: &'static str,
    /// Someone asked to stop before the end.
    pub interrupted: bool,
}

/// Writes the scratch once, then measures. `progress` is told now and then how much of [`DiskTestPlan::time`] has gone.
///
/// The disk is spoken to on a thread of its own: where it hangs it may hold up whoever asks it, io_uring or not.
///
/// # Errors
/// A sentence: there is no thread, a write failed, or took longer than the plan's patience. Then the thread is left behind as it is.
pub fn measure(
    file: &Arc<File>,
    plan: &DiskTestPlan,
    interrupt: &Interrupt,
    progress: impl Fn(Duration),
) -> Result<DiskMeasurement, String> {
    let pulse = Arc::new(Pulse::new());
    let (answer_to, answer) = mpsc::channel();
    let (bench_file, bench_plan, bench_interrupt, bench_pulse) =
        (file.clone(), plan.clone(), interrupt.clone(), pulse.clone());
    let work = move || {
        // Nobody listens any more when it took too long.
        let _ = answer_to.send(bench(&bench_file, &bench_plan, &bench_interrupt, &bench_pulse));
    };
    let thread = std::thread::Builder::new().spawn(work).map_err(no_thread)?;
    loop {
        match answer.recv_timeout(LOOK_EVERY.min(plan.patience)) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => broke_down(thread),
            Err(RecvTimeoutError::Timeout) if pulse.silence() < plan.patience => progress(pulse.gone()),
            Err(RecvTimeoutError::Timeout) => {
                let (path, patience) = (file.path().display(), show_seconds(plan.patience.as_secs_f64()));
                return Err(format!(
                    "{path} has not answered for {patience}: see the kernel log, or allow it more with --timeout"
                ));
            }
        }
    }
}

/// How far the measuring is, told from its thread to the one that watches it.
struct Pulse {
    start: Instant,
    /// Milliseconds since the start: the last answer, and how much of the plan's time has gone.
    last_ms: AtomicU64,
    gone_ms: AtomicU64,
}

impl Pulse {
    fn new() -> Pulse {
        Pulse { start: Instant::now(), last_ms: AtomicU64::new(0), gone_ms: AtomicU64::new(0) }
    }

    fn beat(&self) {
        self.last_ms.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }

    fn gone(&self) -> Duration {
        Duration::from_millis(self.gone_ms.load(Ordering::Relaxed))
    }
}

fn bench(
    file: &Arc<File>,
    plan: &DiskTestPlan,
    interrupt: &Interrupt,
    pulse: &Pulse,
) -> Result<DiskMeasurement, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("this process gets no timers from the kernel: {error}"))?;
    runtime.block_on(async {
        let largest = plan.sizes.iter().copied().max().unwrap_or(0);
        let mut bench = DiskBench { pen: Pen::new(file.clone(), largest)?, pulse };
        let engine = bench.pen.engine();
        let (samples, interrupted) = bench.all(plan, interrupt).await.map_err(|error| error.to_string())?;
        Ok(DiskMeasurement { samples, engine, interrupted })
    })
}

/// What was written of one size.
#[derive(Default)]
struct SizeWritten {
    bytes: u64,
    offset: u64,
    rounds: Vec<Vec<Duration>>,
}

impl SizeWritten {
    /// One write behind the other, and from the beginning again.
    fn next_offset(&mut self, span_bytes: u64) -> u64 {
        let offset = if self.offset + self.bytes > span_bytes { 0 } else { self.offset };
        self.offset = offset + self.bytes;
        offset
    }
}

struct DiskBench<'a> {
    pen: Pen,
    pulse: &'a Pulse,
}

impl DiskBench<'_> {
    /// The samples, and whether someone asked to stop before the end.
    async fn all(&mut self, plan: &DiskTestPlan, interrupt: &Interrupt) -> Result<(Vec<FlushSample>, bool), DiskError> {
        // Blocks are allocated and initialised before the first one counts, as in the daemon's own files.
        let goes_on = || {
            self.pulse.beat();
            interrupt.check().is_ok()
        };
        if !self.pen.fill(plan.span_bytes, goes_on).await? {
            return Ok((Vec::new(), true));
        }
        self.pulse.beat();
        let run = plan.time / ROUNDS / u32::try_from(plan.sizes.len()).unwrap_or(u32::MAX);
        let mut written: Vec<SizeWritten> =
            plan.sizes.iter().map(|&bytes| SizeWritten { bytes, ..SizeWritten::default() }).collect();
        let (mut runs, mut interrupted) = (0, false);
        for size in (0..ROUNDS).flat_map(|_| 0..plan.sizes.len()) {
            let start = Instant::now();
            let (size, mut times) = (&mut written[size], Vec::new());
            while !interrupted && (start.elapsed() < run || times.is_empty()) {
                times.push(self.pen.write(size.next_offset(plan.span_bytes), size.bytes, true).await?);
                self.pulse.beat();
                interrupted = interrupt.check().is_err();
                let gone = run * runs + start.elapsed().min(run);
                self.pulse.gone_ms.store(gone.as_millis() as u64, Ordering::Relaxed);
            }
            runs += 1;
            if !times.is_empty() {
                size.rounds.push(times);
            }
        }
        let met = written.iter().filter(|size| !size.rounds.is_empty());
        Ok((met.map(|size| FlushSample::new(size.bytes, &size.rounds)).collect(), interrupted))
    }
}

/// Writes one thing after the other, as the daemon's journal does: by its file engine, and never the same bytes twice.
pub struct Pen {
    engine: FileEngine,
    file: Arc<File>,
    noise: Noise,
    /// Emptied in every use; kept for its capacity.
    done: Vec<Completion>,
}

impl Pen {
    /// For writes of `largest` bytes at most. To be called inside a runtime.
    ///
    /// # Errors
    /// A sentence: the kernel gives no engine.
    pub fn new(file: Arc<File>, largest: u64) -> Result<Pen, String> {
        let engine = FileEngine::new(EngineKind::Auto).map_err(|error| error.to_string())?;
        Ok(Pen { engine, file, noise: Noise::new(largest), done: Vec::new() })
    }

    pub fn engine(&self) -> &'static str {
        if self.engine.kind() == EngineKind::Uring { "io_uring" } else { "workers" }
    }

    /// Writes the first `span_bytes` once, so that they are allocated, as long as it `goes_on`; whether it did to the end.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn fill(&mut self, span_bytes: u64, goes_on: impl Fn() -> bool) -> Result<bool, DiskError> {
        for offset in (0..span_bytes).step_by(PIECE_BYTES as usize) {
            if !goes_on() {
                return Ok(false);
            }
            self.write(offset, PIECE_BYTES.min(span_bytes - offset), false).await?;
        }
        self.run(DiskOp::Flush).await?;
        Ok(true)
    }

    /// How long it took, durable or not.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn write(&mut self, offset: u64, length: u64, dsync: bool) -> Result<Duration, DiskError> {
        let part = self.noise.part(length as usize);
        self.run(DiskOp::Write { offset, parts: part.into(), dsync }).await
    }

    /// One request, from the hand-over to its completion.
    async fn run(&mut self, op: DiskOp) -> Result<Duration, DiskError> {
        self.engine.submit(0, &self.file, op, Inline::Forbidden);
        self.engine.kick();
        loop {
            self.engine.completions(&mut self.done);
            if let Some(Completion { result, elapsed, .. }) = self.done.pop() {
                return result.map(|_| elapsed);
            }
            self.engine.ready().await;
        }
    }
}

/// Bytes that no disk can compress or has seen before, so that all of them travel.
struct Noise {
    buffer: Arc<Buffer>,
    stamp: u64,
}

impl Noise {
    fn new(largest: u64) -> Noise {
        let mut buffer = Buffer::detached(largest.max(PIECE_BYTES) as usize);
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for word in buffer.chunks_exact_mut(8) {
            // Marsaglia's xorshift, 64 bits.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        Noise { buffer: Arc::new(buffer), stamp: 0 }
    }

    /// The first `length` bytes, with a number in each unit that was in none before.
    fn part(&mut self, length: usize) -> Part {
        let bytes = Arc::get_mut(&mut self.buffer).expect("the write before has ended");
        for unit in bytes[..length].chunks_mut(UNIT_BYTES as usize) {
            self.stamp += 1;
            unit[..8].copy_from_slice(&self.stamp.to_le_bytes());
        }
        Part::Shared { buffer: self.buffer.clone(), range: 0..length }
    }
}

#[cfg(test)]
mod tests {
    use super::scratch::{ScratchFile, ScratchOptions};
    use super::*;
    use crate::within::tests::has_no_threads;

    #[test]
    fn quantiles_are_times_that_were_seen() {
        let sample = FlushSample::new(4096, &[(1..=1000).rev().map(Duration::from_micros).collect()]);
        for (share, us) in [(0.0, 1.0), (0.5, 500.0), (0.9, 900.0), (0.999, 999.0), (1.0, 1000.0)] {
            assert!((sample.quantile_s(share) * 1e6 - us).abs() < 1e-6, "{share}");
        }
        assert!((sample.mean_s() - 500.5e-6).abs() < 1e-12);
        assert_eq!(FlushSample::new(1, &[vec![Duration::from_secs(2)]]).quantile_s(0.999), 2.0);
    }

    #[test]
    fn without_a_thread_nothing_is_measured_and_a_sentence_says_so() {
        if !has_no_threads("disk_test::tests::without_a_thread_nothing_is_measured_and_a_sentence_says_so") {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let options = ScratchOptions { bytes: 1 << 20, buffered: true, overwrite_device: false };
        let scratch = ScratchFile::open(directory.path(), options, Duration::ZERO).expect("it needs none");
        let (time, patience) = (Duration::from_millis(10), Duration::from_secs(60));
        let plan = DiskTestPlan { sizes: vec![UNIT_BYTES], span_bytes: 1 << 20, time, patience };
        let measured = measure(&scratch.file, &plan, &Interrupt::never(), |_| {});
        assert!(measured.is_err_and(|why| why.contains("no further thread")));
    }

    #[test]
    fn a_round_beside_other_load_moves_the_mean_and_not_what_is_typical() {
        let round = |us| vec![Duration::from_micros(us); 10];
        let sample = FlushSample::new(4096, &[round(100), round(9000), round(110), round(105)]);
        assert!((sample.typical_s * 1e6 - 107.5).abs() < 1e-6 && sample.mean_s() > 20.0 * sample.typical_s);
    }

    #[test]
    fn no_unit_is_written_twice() {
        let mut noise = Noise::new(4096);
        let mut units: Vec<Vec<u8>> = Vec::new();
        for _ in 0..2 {
            units.extend(noise.part(8192).bytes().chunks(4096).map(<[u8]>::to_vec));
        }
        units.sort();
        units.dedup();
        assert_eq!(units.len(), 4);
    }
}
