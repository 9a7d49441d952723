//! What recording a group costs its daemon: processor time per write with a recorder and without, by turns. A measurement, not
//! a test: it takes minutes and checks nothing.
//!
//! ```text
//! TMPDIR=/dev/shm cargo test -p farshore --test all record_cost:: -- --ignored --nocapture --test-threads 1
//! ```
//!
//! Two pairs stand side by side, and one writer asks their primaries by short turns, so that whatever else the machine does
//! meets both. One of them has a recorder: in the first half the first, in the second half the other, so that what makes the
//! two unlike cancels out. They are in `logging`, where a write costs least and the recorder's share is largest; with files in
//! memory no disk has a say either.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{DEADLINE, GROUP, Pair, PairPlan, Side};
use host::nbd::{Address, Ask, NbdClient};

const VOLUME_BYTES: u64 = 64 << 20;
const WRITE_BYTES: u64 = 4096;
const TURN: Duration = Duration::from_millis(100);
/// Turns of each side that are looked at together.
const TURNS_PER_BLOCK: usize = 16;
const BLOCKS_PER_HALF: usize = 24;
/// A little more than the daemon's patience with a recorder that is gone.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(10_200);

/// Processor time per write, in nanoseconds.
#[derive(Clone, Copy)]
struct Cost {
    /// Threads that handle requests.
    data: f64,
    /// The thread that answers on the control socket.
    control: f64,
    /// All threads, those that have ended too.
    daemon: f64,
}

/// Processor time so far, in nanoseconds.
fn spent(pid: u32) -> Cost {
    // User and kernel ticks of a hundredth of a second: fields 14 and 15, counted behind the name.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the daemon runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().expect("a number")).sum();
    Cost { data: ran_ns(pid, "data-"), control: ran_ns(pid, "farshore"), daemon: ticks * 1e7 }
}

/// Of the threads whose names begin like this.
fn ran_ns(pid: u32, name: &str) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the daemon runs");
    let of_name = threads
        .map(|thread| thread.expect("a thread").path())
        .filter(|thread| fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.starts_with(name)));
    let ran =
        |text: String| text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("it begins with a time");
    of_name.map(|thread| ran(fs::read_to_string(thread.join("schedstat")).expect("the kernel counts"))).sum()
}

/// A pair, and the writer's connection to its primary.
struct PairWriter {
    pair: Pair,
    client: NbdClient,
    seed: u64,
}

impl PairWriter {
    async fn new() -> PairWriter {
        let pair = Pair::replicating(&PairPlan { volumes: &["data"], volume_bytes: VOLUME_BYTES, ..PairPlan::DEFAULT });
        pair.done(Side::Near, &["logging", GROUP]);
        let address = Address::Unix(pair.path(Side::Near.name()).join("state/nbd.sock"));
        let client = NbdClient::connect(&address, &format!("{GROUP}/data")).await.expect("the export");
        PairWriter { pair, client, seed: 0x9e37_79b9_7f4a_7c15 }
    }

    fn spent(&self) -> Cost {
        spent(self.pair.pid(Side::Near))
    }

    fn record(&self) -> Child {
        let out = self.pair.path("cost.trace");
        let file = out.to_str().expect("a name in UTF-8");
        let mut command = self.pair.command(Side::Near, &["record", "--group", GROUP, "--for", "1h", "--out", file]);
        let recorder = command.stdout(Stdio::null()).spawn().expect("the recorder starts");
        // It has asked once when it opens its file.
        let asked = Instant::now();
        while !out.exists() {
            assert!(asked.elapsed() < DEADLINE, "the recorder begins");
            std::thread::sleep(Duration::from_millis(10));
        }
        recorder
    }

    /// Random writes, `depth` at once, for a turn; how many.
    async fn turn(&mut self, depth: usize) -> f64 {
        let (data, until, mut issued) = ([0x5a; WRITE_BYTES as usize], Instant::now() + TURN, 0u64);
        while Instant::now() < until || self.client.in_flight() > 0 {
            while self.client.in_flight() < depth && Instant::now() < until {
                self.seed ^= self.seed << 13;
                self.seed ^= self.seed >> 7;
                self.seed ^= self.seed << 17;
                let offset = self.seed % (VOLUME_BYTES / WRITE_BYTES) * WRITE_BYTES;
                self.client.queue(issued, Ask::Write { offset, data: &data, fua: false });
                issued += 1;
            }
            if self.client.in_flight() > 0 {
                assert!(self.client.next().await.expect("the daemon answers").result.is_ok(), "the write is done");
            }
        }
        issued as f64
    }
}

/// Both sides by turns; what a write cost each.
async fn block(sides: &mut [PairWriter; 2], depth: usize) -> [Cost; 2] {
    let before = [sides[0].spent(), sides[1].spent()];
    let mut writes = [0.0; 2];
    for turn in 0..2 * TURNS_PER_BLOCK {
        // First the one, the other, the other, the one.
        let which = (turn + turn / 2) % 2;
        writes[which] += sides[which].turn(depth).await;
    }
    [0, 1].map(|which| {
        let after = sides[which].spent();
        Cost {
            data: (after.data - before[which].data) / writes[which],
            control: (after.control - before[which].control) / writes[which],
            daemon: (after.daemon - before[which].daemon) / writes[which],
        }
    })
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// With a recorder and without, by block.
async fn half(sides: &mut [PairWriter; 2], recorded: usize, depth: usize) -> Vec<[Cost; 2]> {
    let mut recorder = sides[recorded].record();
    let mut costs = Vec::new();
    for _ in 0..BLOCKS_PER_HALF {
        let cost = block(sides, depth).await;
        costs.push([cost[recorded], cost[1 - recorded]]);
    }
    recorder.kill().and_then(|()| recorder.wait()).expect("our own child ends");
    costs
}

async fn measure(depth: usize) {
    let mut sides = [PairWriter::new().await, PairWriter::new().await];
    // Regions are set dirty by the first write to them.
    block(&mut sides, depth).await;
    let first = half(&mut sides, 0, depth).await;
    std::thread::sleep(FORGOTTEN_AFTER);
    let second = half(&mut sides, 1, depth).await;
    println!("\n| 4 KiB writes, {depth} at once | not recorded | recorded | ratio (of each half, with quartiles) |");
    println!("|---|---|---|---|");
    let parts = [
        ("data threads", (|cost| cost.data) as fn(&Cost) -> f64),
        ("control thread", |cost| cost.control),
        ("whole daemon", |cost| cost.daemon),
    ];
    for (name, get) in parts {
        let us = |which: usize| quartiles(first.iter().chain(&second).map(|pair| get(&pair[which])).collect())[1] / 1e3;
        let [one, other] = [&first, &second]
            .map(|half| quartiles(half.iter().map(|[with, without]| get(with) / get(without)).collect()));
        let ratio = (one[1] * other[1]).sqrt();
        let shown = [one, other].map(|[low, middle, high]| format!("{middle:.3}, {low:.3} to {high:.3}"));
        // A thread that sleeps when nobody records has no ratio.
        let ratio = if ratio.is_finite() { format!("{ratio:.4} ({})", shown.join("; ")) } else { String::new() };
        println!("| {name} | {:.3} µs | {:.3} µs | {ratio} |", us(1), us(0));
    }
    sides.iter_mut().for_each(|side| side.pair.stop_both());
}

fn run(depth: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure(depth));
}

#[test]
#[ignore = "a measurement of minutes; docs/book/planner.md shows its result"]
fn one_write_at_a_time() {
    run(1);
}

#[test]
#[ignore = "a measurement of minutes; docs/book/planner.md shows its result"]
fn thirty_two_writes_at_once() {
    run(32);
}
