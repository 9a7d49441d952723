//! A primary dies while it writes to a large, sparse volume. When it is back only what was being written at the end is
//! compared, no more than that is shipped, and what its peer confirmed and it lost with its power is fetched back.
//!
//! `FARSHORE_RECOVERY_GIB` makes the volume another size.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::common::{Pair, PairPlan, Side, TestRandom, must_skip_stores};
use host::nbd::{Address, Ask, ClientError, NbdClient};
use rustix::fs::SeekFrom;

/// What an entry of the activity log stands for.
const EXTENT_BYTES: u64 = 4 << 20;
/// Entries of the activity log.
const LOG_EXTENTS: u64 = 1024;
const HOT_EXTENTS: u64 = 10;
const BLOCK_BYTES: u64 = 4096;
/// Writes that may wait to be confirmed.
const QUEUE_ITEMS: u64 = 64;
/// What is compared at once, and shipped when it differs.
const PROBE_BYTES: u64 = 64 << 10;

fn volume_bytes() -> u64 {
    let reported = std::env::var("FARSHORE_RECOVERY_GIB").ok();
    let gib: u64 = reported.map_or(16, |text| text.parse().expect("FARSHORE_RECOVERY_GIB is a number"));
    assert!(gib >= 16, "the places that are written lie within 16 GiB");
    gib << 30
}

fn pair_of_large_volumes(plan: &PairPlan) -> Pair {
    let mut pair = Pair::replicating(&PairPlan { volumes: &["data"], volume_bytes: volume_bytes(), ..*plan });
    wait_for_clean_bitmap(&mut pair);
    pair
}

/// Bits of the first sync that are still on disk would be shipped too.
fn wait_for_clean_bitmap(pair: &mut Pair) {
    pair.wait_for_rest(Side::Near);
    pair.until("nothing is dirty on disk", |pair| stored_regions(pair) == 0);
}

fn stored_regions(pair: &Pair) -> u64 {
    let bitmap = pair.path("near/state/groups/g/bitmap");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_farshore"))
        .args(["inspect", "--json"])
        .arg(bitmap)
        .output()
        .expect("the binary runs");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let maps = found["files"][0]["facts"]["maps"].as_array().expect("a bitmap has maps");
    maps.iter().filter_map(|map| map["dirty_regions"].as_u64()).sum()
}

// proves: P3, rule 2
#[test]
fn after_a_kill_only_hot_extents_are_compared() {
    let mut pair = pair_of_large_volumes(&PairPlan::DEFAULT);
    let load = BlockWriter::start(&pair, hot_blocks(1));
    load.wait_for(&mut pair, 2000);
    pair.kill(Side::Near);
    load.join();
    let sums = return_of_the_primary(&mut pair);
    assert_eq!(hot_extents(&pair), HOT_EXTENTS);
    assert_eq!(sums.compared, HOT_EXTENTS * EXTENT_BYTES, "{sums:?}");
    assert!(sums.shipped <= HOT_EXTENTS * EXTENT_BYTES && sums.pulled == 0, "{sums:?}");
    assert_equal(&mut pair);
}

// proves: P1, rule 2
#[test]
fn after_a_power_loss_what_the_peer_confirmed_is_pulled() {
    if must_skip_stores("after_a_power_loss_what_the_peer_confirmed_is_pulled") {
        return;
    }
    // Of the writes that it loses the peer has confirmed all but what the queue holds.
    let group = &format!("queue.items = {QUEUE_ITEMS}");
    // On a machine with far more to do than it can, a first sync must not end for silence.
    let head = "[link]\ntimeout = \"30s\"";
    let mut pair = pair_of_large_volumes(&PairPlan { forgets: true, group, head, ..PairPlan::DEFAULT });
    let load = BlockWriter::start(&pair, hot_blocks(2));
    load.wait_for(&mut pair, 2000);
    // The volumes are flushed every few seconds: right behind a flush there would be nothing to lose.
    pair.lose_power_when_unflushed(Side::Near, 4 * QUEUE_ITEMS * BLOCK_BYTES, 3);
    pair.until("the power fails", |pair| !pair.has_power(Side::Near));
    let loss = pair.lose_power(&[Side::Near], 3);
    let writes = load.join();
    println!("it lost {loss:?}");
    let sums = return_of_the_primary(&mut pair);
    assert_eq!(hot_extents(&pair), HOT_EXTENTS);
    assert!(sums.pulled > 0 && sums.pulled <= writes * BLOCK_BYTES, "{sums:?} of {writes} writes");
    assert!(sums.compared <= HOT_EXTENTS * EXTENT_BYTES && sums.shipped <= HOT_EXTENTS * EXTENT_BYTES, "{sums:?}");
    assert_equal(&mut pair);
}

// proves: P3, rule 2
#[test]
fn a_log_that_is_too_small_ships_what_was_written_and_no_volume() {
    let mut pair = pair_of_large_volumes(&PairPlan::DEFAULT);
    let mut random = TestRandom::new(5);
    let anywhere = move || random.below(3 * LOG_EXTENTS * EXTENT_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
    let load = BlockWriter::start(&pair, anywhere);
    load.wait_for(&mut pair, 3 * LOG_EXTENTS);
    pair.kill(Side::Near);
    let writes = load.join();
    let sums = return_of_the_primary(&mut pair);
    assert!(sums.compared <= LOG_EXTENTS * EXTENT_BYTES, "{sums:?}");
    assert!(sums.shipped <= writes * PROBE_BYTES, "{sums:?} of {writes} writes");
    assert_equal(&mut pair);
}

#[derive(Debug)]
struct BlockSums {
    compared: u64,
    shipped: u64,
    pulled: u64,
}

/// Starts it, and lets it and its peer become equal.
fn return_of_the_primary(pair: &mut Pair) -> BlockSums {
    pair.serve(Side::Near);
    pair.wait_for(Side::Near, "replicating");
    pair.wait_for_rest(Side::Near);
    let sum = |name| pair.counter(Side::Near, &format!("group.g.{name}"));
    let sums =
        BlockSums { compared: sum("compared_bytes"), shipped: sum("shipped_bytes"), pulled: sum("pulled_bytes") };
    println!("{sums:?}");
    sums
}

/// How many extents the primary says were being written when it died.
fn hot_extents(pair: &Pair) -> u64 {
    let log = pair.log(Side::Near);
    let (before, _) = log.rsplit_once(" extents of 4 MiB").expect("it says so");
    before.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a number of extents")
}

/// Blocks of extents that lie far apart.
fn hot_blocks(seed: u64) -> impl FnMut() -> u64 + Send + 'static {
    let mut random = TestRandom::new(seed);
    move || {
        let extent = random.below(HOT_EXTENTS) * (3 << 29) / EXTENT_BYTES;
        extent * EXTENT_BYTES + random.below(EXTENT_BYTES / BLOCK_BYTES) * BLOCK_BYTES
    }
}

/// A writer of single blocks, several in flight, until its server is gone.
struct BlockWriter {
    answered: Arc<AtomicU64>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl BlockWriter {
    fn start(pair: &Pair, next_offset: impl FnMut() -> u64 + Send + 'static) -> BlockWriter {
        let address = Address::Unix(pair.path("near/state/nbd.sock"));
        let (answered, end) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let writer = RecoveryWriter { answered: answered.clone(), end: end.clone(), issued: 0, next_offset };
        BlockWriter { answered, end, thread: Some(std::thread::spawn(move || writer.work(&address))) }
    }

    fn wait_for(&self, pair: &mut Pair, writes: u64) {
        pair.until("the writer gets its answers", |pair| {
            let has_ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!has_ended, "the writer ended:\n{}", pair.log(Side::Near));
            self.answered.load(Ordering::Relaxed) >= writes
        });
    }

    /// Waits for the end of a writer whose server is gone; the writes that it issued.
    fn join(mut self) -> u64 {
        self.thread.take().expect("it is joined once").join().expect("the writer does not panic")
    }
}

impl Drop for BlockWriter {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

struct RecoveryWriter<F> {
    answered: Arc<AtomicU64>,
    end: Arc<AtomicBool>,
    issued: u64,
    next_offset: F,
}

impl<F: FnMut() -> u64> RecoveryWriter<F> {
    const DEPTH: usize = 8;

    fn work(mut self, address: &Address) -> u64 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        // That its server goes is why it ends.
        let _ = runtime.block_on(self.write_on(address));
        self.issued
    }

    async fn write_on(&mut self, address: &Address) -> Result<(), ClientError> {
        let mut client = NbdClient::connect(address, "g/data").await?;
        while !self.end.load(Ordering::Relaxed) {
            while client.in_flight() < Self::DEPTH {
                self.issued += 1;
                let data = self.issued.to_le_bytes().repeat(BLOCK_BYTES as usize / 8);
                client.queue(self.issued, Ask::Write { offset: (self.next_offset)(), data: &data, fua: false });
            }
            let answer = client.next().await?;
            assert!(answer.result.is_ok(), "a write failed: {:?}", answer.result);
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Stops both nodes and compares their volumes wherever either holds data.
fn assert_equal(pair: &mut Pair) {
    pair.stop_both();
    let volumes = Side::BOTH.map(|node| File::open(pair.device(node, "data")).expect("a volume"));
    let mut compared = 0;
    for sparse in &volumes {
        let mut at = 0;
        while let Ok(from) = rustix::fs::seek(sparse, SeekFrom::Data(at)) {
            at = rustix::fs::seek(sparse, SeekFrom::Hole(from)).expect("data has an end");
            compared += at - from;
            for offset in (from..at).step_by(1 << 20) {
                let [near, far] = volumes.each_ref().map(|volume| read(volume, offset, at.min(offset + (1 << 20))));
                assert!(near == far, "they differ between bytes {offset} and {}", offset + (1 << 20));
            }
        }
    }
    assert!(compared > 0, "nothing was written");
}

fn read(volume: &File, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![0; (to - from) as usize];
    volume.read_exact_at(&mut bytes, from).expect("the volume reads");
    bytes
}
