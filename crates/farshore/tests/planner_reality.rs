//! The plan against reality: a trace replayed, each write at its moment, through two real daemons at the ends of an emulated
//! WAN, and what happened beside what the model said. A measurement, not a test: it takes minutes and judges nothing.
//!
//! ```text
//! cargo build -p xtask && cargo test -p farshore --test planner_reality -- --ignored --nocapture
//! ```
//!
//! With `FARSHORE_PLOTS=DIR` the curves are written there.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::wan::Wan;
use common::{GROUP, Node, Pair, Plan};
use host::nbd::{Address, Ask, Client};
use plan::formulas::SEGMENT_BYTES;
use plan::model::stream::Stream;
use plan::model::tally::{Quantiles, Times};
use plan::model::{Disk, Link, Mode, Setup, moment_s};
use plan::picture::{COLOURS, Chart, Line, Scale, svg};
use plan::trace::Record;
use plan::units::{Rate, Seconds, show_bytes, show_time};

const RTT_MS: f64 = 50.0;
const MBIT: f64 = 20.0;
/// Mode and queue: one that fills, and one that the bursts fill by half.
const CASES: [(Mode, u64); 4] = [(Mode::Async, 16), (Mode::Async, 2), (Mode::NearSync, 2), (Mode::Sync, 2)];
const VOLUME_BYTES: u64 = 64 << 20;
/// A status is asked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// 100 writes of 8 KiB a second, and every 15 s a burst of 4 s at five times that: more than the link carries.
fn trace() -> Vec<Record> {
    let mut records = Vec::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for second in 0..50u64 {
        let per_second = if second % 15 >= 8 && second % 15 < 12 { 500 } else { 100 };
        for n in 0..per_second {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let time_ns = second * 1_000_000_000 + n * 1_000_000_000 / per_second;
            let offset = seed % (VOLUME_BYTES / 8192) * 8192;
            records.push(Record { time_ns, offset, length: 8192, ..Record::default() });
        }
    }
    records
}

/// What the daemons and the writer saw.
struct Seen {
    response: Times,
    answered_s: Vec<f64>,
    queue: Vec<(f64, f64)>,
    /// As the daemon tells it: until the far side has applied.
    lag: Vec<(f64, f64)>,
    /// Writes in the queue.
    items: Vec<(f64, u64)>,
    peak_bytes: u64,
    waited_s: f64,
}

fn replay(pair: &Pair, records: &[Record]) -> Seen {
    let socket = pair.path(Node::Near.name()).join("state/nbd.sock");
    let owned = records.to_vec();
    let start = Instant::now() + Duration::from_millis(200);
    let writer = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(write_all(&Address::Unix(socket), &owned, start))
    });
    let (mut queue, mut lag, mut items) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = pair.status(Node::Near);
    while !writer.is_finished() || last["queue"]["bytes"].as_u64() != Some(0) {
        last = pair.status(Node::Near);
        let now_s = Instant::now().saturating_duration_since(start).as_secs_f64();
        queue.push((now_s, last["queue"]["bytes"].as_f64().unwrap_or(0.0)));
        items.push((now_s, last["queue"]["items"].as_u64().unwrap_or(0)));
        lag.push((now_s, last["peers"][0]["lag_seconds"].as_f64().unwrap_or(0.0)));
        std::thread::sleep(LOOK_EVERY);
    }
    let answered_s = writer.join().expect("the writer ends");
    let mut response = Times::default();
    records.iter().zip(&answered_s).for_each(|(record, answered)| response.add(answered - moment_s(record)));
    let peak_bytes = last["queue"]["bytes_hwm"].as_u64().unwrap_or(0);
    let waited_s = last["queue"]["blocked_ms"].as_f64().unwrap_or(0.0) / 1e3;
    Seen { response, answered_s, queue, lag, items, peak_bytes, waited_s }
}

/// Issues each write at its moment, whatever became of the earlier ones; when each was answered.
async fn write_all(address: &Address, records: &[Record], start: Instant) -> Vec<f64> {
    let mut client = Client::connect(address, &format!("{GROUP}/data")).await.expect("the export");
    let data = vec![0x5a; 8192];
    let mut answered_s = vec![0.0; records.len()];
    let mut next = 0;
    while next < records.len() || client.in_flight() > 0 {
        let due = records.get(next).map(|record| start + Duration::from_nanos(record.time_ns));
        if due.is_some_and(|due| due <= Instant::now()) {
            client.queue(next as u64, Ask::Write { offset: records[next].offset, data: &data, fua: false });
            next += 1;
            continue;
        }
        let pause = due.map_or(Duration::from_secs(60), |due| due.saturating_duration_since(Instant::now()));
        if client.in_flight() == 0 {
            tokio::time::sleep(pause).await;
        } else if let Ok(answer) = tokio::time::timeout(pause, client.next()).await {
            let answer = answer.expect("the daemon answers");
            assert!(answer.result.is_ok(), "the write is done");
            answered_s[answer.cookie as usize] = start.elapsed().as_secs_f64();
        }
    }
    answered_s
}

impl Seen {
    /// Age of the oldest write that is not yet durable far away. In async a write is answered as soon as it is admitted, and
    /// the queue keeps it until it is durable: so many writes back from the last one answered.
    fn lag_until_durable(&self) -> Vec<(f64, f64)> {
        let mut answered_s = self.answered_s.clone();
        answered_s.sort_by(f64::total_cmp);
        let at = |&(now_s, items): &(f64, u64)| {
            let admitted = answered_s.partition_point(|at_s| *at_s <= now_s);
            let oldest_s = answered_s.get(admitted.saturating_sub(items as usize)).copied().unwrap_or(now_s);
            (now_s, (now_s - oldest_s).max(0.0))
        };
        self.items.iter().map(at).collect()
    }
}

fn model(mode: Mode, queue_bytes: u64, records: &[Record]) -> Stream {
    // The emulator counts IP packets of 1500 bytes.
    let link = Link {
        payload_share: SEGMENT_BYTES.as_f64() / 1500.0,
        ..Link::of_line(Rate::from_mbit(MBIT), Seconds::from_ms(RTT_MS))
    };
    let setup = Setup { queue_bytes, local: Disk::default(), ..Setup::new(link) };
    let mut stream = Stream::new(mode, setup);
    stream.add(records);
    stream
}

fn row(name: &str, planned: String, seen: String, off: f64) {
    println!("| {name} | {planned} | {seen} | {:+.1} % |", off * 100.0);
}

fn compare(name: &str, mode: Mode, stream: &Stream, seen: &Seen) {
    println!("\n| {name} | planned | measured | off |\n|---|---|---|---|");
    let off = |planned: f64, seen: f64| if planned > 0.0 { seen / planned - 1.0 } else { 0.0 };
    let bytes = |bytes: u64| show_bytes(plan::units::Bytes(bytes));
    let time = |seconds: f64| show_time(Seconds(seconds));
    let (fill, waited) = (stream.fill.peak_bytes, stream.waiting.writer_s);
    row("queue high-water mark", bytes(fill), bytes(seen.peak_bytes), off(fill as f64, seen.peak_bytes as f64));
    row("writers waited for room, sum", time(waited), time(seen.waited_s), off(waited, seen.waited_s));
    let (planned, measured) = (stream.response.quantiles(), seen.response.quantiles());
    for (name, get) in [
        ("response p50", (|q| q.p50) as fn(Quantiles) -> f64),
        ("response p95", |q| q.p95),
        ("response p99", |q| q.p99),
        ("response max", |q| q.max),
    ] {
        row(name, time(get(planned)), time(get(measured)), off(get(planned), get(measured)));
    }
    lag_rows("lag until durable", stream, if mode == Mode::Async { seen.lag_until_durable() } else { Vec::new() });
    // Which the model leaves out.
    lag_rows("lag until applied", stream, seen.lag.clone());
}

fn lag_rows(name: &str, stream: &Stream, points: Vec<(f64, f64)>) {
    let mut lags: Vec<f64> = points.iter().map(|point| point.1).collect();
    lags.sort_by(f64::total_cmp);
    // What the primary knows is half a round trip older than what is true.
    let planned = stream.lag.times.quantiles();
    for (what, planned, share) in [("p50", planned.p50, 0.5), ("p95", planned.p95, 0.95), ("max", planned.max, 1.0)] {
        let planned = planned + RTT_MS / 2e3;
        if let Some(&measured) = lags.get((lags.len().saturating_sub(1) as f64 * share) as usize) {
            let text = |seconds: f64| show_time(Seconds(seconds));
            row(&format!("{name}, {what}"), text(planned), text(measured), measured / planned - 1.0);
        }
    }
}

fn draw(folder: &Path, name: &str, mode: Mode, queue_bytes: u64, stream: &Stream, seen: &Seen) {
    let chart = |id, title: &str, y, planned: Vec<(f64, f64)>, measured: Vec<(f64, f64)>, limits| Chart {
        id,
        title: format!("{title}, {name}"),
        x: (Scale::Time, "time of the trace"),
        y,
        lines: vec![Line::new("measured", COLOURS[1], measured), Line::new("planned", COLOURS[0], planned).dashed()],
        limits,
    };
    let measured_lag = if mode == Mode::Async { seen.lag_until_durable() } else { seen.lag.clone() };
    let limit = vec![("limit".to_owned(), queue_bytes as f64)];
    let queue = chart(
        "queue",
        "Queue",
        (Scale::Bytes, "bytes"),
        stream.fill.curve.points().collect(),
        seen.queue.clone(),
        limit,
    );
    let lag = chart(
        "lag",
        "Age of the far copy (durable)",
        (Scale::Time, "age"),
        stream.lag.curve.points().collect(),
        measured_lag,
        Vec::new(),
    );
    std::fs::create_dir_all(folder).expect("a directory");
    for chart in [queue, lag] {
        let file = folder.join(format!("reality-{}-{}.svg", name.replace(' ', "-"), chart.id));
        std::fs::write(file, svg(&chart)).expect("a picture is written");
    }
}

#[test]
#[ignore = "a measurement of minutes; docs/planner.md shows its result"]
fn the_plan_and_what_happened() {
    let name = format!("planner-{}", std::process::id());
    let (rtt, rate) = (format!("{RTT_MS}ms"), format!("{MBIT}mbit"));
    let Some(wan) = Wan::start("the_plan_and_what_happened", &["--rtt", &rtt, "--rate", &rate, "--name", &name]) else {
        return;
    };
    let records = trace();
    for (mode, mib) in CASES {
        let (name, queue_bytes) = (format!("{} {mib} MiB", mode.name()), mib << 20);
        let group = &format!("queue.memory = \"{mib}MiB\"\nwait_limit = \"60s\"");
        let mut pair = wan.pair(&Plan {
            volumes: &["data"],
            volume_bytes: VOLUME_BYTES,
            mode: mode.name(),
            group,
            ..Plan::default()
        });
        wan.serve(&mut pair);
        pair.sync_fully(Node::Near);
        let seen = replay(&pair, &records);
        assert_eq!(seen.answered_s.len(), records.len());
        let stream = model(mode, queue_bytes, &records);
        compare(&name, mode, &stream, &seen);
        if let Some(folder) = std::env::var_os("FARSHORE_PLOTS") {
            draw(Path::new(&folder), &name, mode, queue_bytes, &stream, &seen);
        }
        pair.stop_both();
    }
}
