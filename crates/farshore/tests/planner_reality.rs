//! The plan against reality: a trace replayed, each write at its moment, through two real daemons at the ends of an emulated
//! WAN, and what happened beside what the model said. A measurement, not a test: it takes minutes and checks nothing.
//!
//! ```text
//! cargo build -p xtask && cargo test -p farshore --test all planner_reality:: -- --ignored --nocapture --test-threads 1
//! ```
//!
//! Each case is replayed `FARSHORE_ROUNDS` times (3); shown are the median and, in brackets, the least and the most. With
//! `FARSHORE_PLOTS=DIR` the last round's curves are written there.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::wan::WanGuard;
use crate::common::{GROUP, Pair, PairPlan, Side};
use host::nbd::{Address, Ask, NbdClient};
use plan::formulas::{CongestionModel, SEGMENT_BYTES};
use plan::model::stream::StreamReplay;
use plan::model::tally::{Quantiles, TimeDistribution};
use plan::model::{LinkModel, ModelMode, ModelSetup, PlannedDisk, moment_s};
use plan::picture::{COLOURS, Chart, PlotLine, Scale, svg};
use plan::trace::TraceRecord;
use units::quantities::{Rate, Seconds, show_bytes, show_time};

const RTT_MS: f64 = 50.0;
const MBIT: f64 = 20.0;
const VOLUME_BYTES: u64 = 64 << 20;
/// A status is asked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// 100 writes of 8 KiB a second, and every 15 s a burst of 4 s at five times that: more than the link carries.
fn trace() -> Vec<TraceRecord> {
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
            records.push(TraceRecord { time_ns, offset, length: 8192, ..TraceRecord::default() });
        }
    }
    records
}

/// What the daemons and the writer saw.
struct SeenRun {
    response: TimeDistribution,
    answered_s: Vec<f64>,
    looks: Vec<GroupMoment>,
    peak_bytes: u64,
    waited_s: f64,
}

/// The primary's group at a moment.
struct GroupMoment {
    now_s: f64,
    queue_bytes: f64,
    queue_items: usize,
    /// As `status` shows it: until the far side has applied.
    lag_s: f64,
    peak_bytes: u64,
    waited_s: f64,
}

impl GroupMoment {
    fn take(pair: &Pair, start: Instant) -> GroupMoment {
        let since_s = || Instant::now().saturating_duration_since(start).as_secs_f64();
        let asked_s = since_s();
        let group = &pair.ask(Side::Near, &serde_json::json!({ "request": "status" }))["groups"][0];
        let number =
            |name: &str| group["queue"][name].as_f64().unwrap_or_else(|| panic!("{name} is a number: {group}"));
        GroupMoment {
            now_s: f64::midpoint(asked_s, since_s()),
            queue_bytes: number("bytes"),
            queue_items: number("items") as usize,
            lag_s: group["peers"][0]["lag_seconds"].as_f64().unwrap_or(0.0),
            peak_bytes: number("bytes_hwm") as u64,
            waited_s: number("blocked_ms") / 1e3,
        }
    }
}

/// Lets the congestion control find the line's rate, which it does once in a connection's life and not in the model's: three
/// bursts that fit into the smallest queue.
fn warm_up(pair: &mut Pair) {
    for _ in 0..3 {
        let burst = vec![TraceRecord { length: 8192, ..TraceRecord::default() }; 150];
        run_writer(pair, &burst, Instant::now()).join().expect("the writer ends");
        pair.wait_for_rest(Side::Near);
    }
}

fn run_writer(pair: &Pair, records: &[TraceRecord], start: Instant) -> std::thread::JoinHandle<Vec<f64>> {
    let socket = pair.path(Side::Near.name()).join("state/nbd.sock");
    let owned = records.to_vec();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(write_all(&Address::Unix(socket), &owned, start))
    })
}

fn replay(pair: &Pair, records: &[TraceRecord]) -> SeenRun {
    let start = Instant::now() + Duration::from_millis(200);
    let before = GroupMoment::take(pair, start);
    let writer = run_writer(pair, records, start);
    let mut looks: Vec<GroupMoment> = Vec::new();
    while !writer.is_finished() || looks.last().is_none_or(|look| look.queue_items > 0) {
        looks.push(GroupMoment::take(pair, start));
        std::thread::sleep(LOOK_EVERY);
    }
    let answered_s = writer.join().expect("the writer ends");
    let mut response = TimeDistribution::default();
    records.iter().zip(&answered_s).for_each(|(record, answered)| response.add(answered - moment_s(record)));
    let last = looks.last().expect("looked at least once");
    let (peak_bytes, waited_s) = (last.peak_bytes, last.waited_s - before.waited_s);
    SeenRun { response, answered_s, looks, peak_bytes, waited_s }
}

/// Issues each write at its moment, whatever became of the earlier ones; when each was answered.
async fn write_all(address: &Address, records: &[TraceRecord], start: Instant) -> Vec<f64> {
    let mut client = NbdClient::connect(address, &format!("{GROUP}/data")).await.expect("the export");
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

impl SeenRun {
    /// Age of the oldest write that is not yet durable far away. In async a write is answered as soon as it is admitted, and
    /// the queue keeps it until it is durable: so many writes back from the last one answered.
    fn lag_until_durable(&self) -> Vec<(f64, f64)> {
        let mut answered_s = self.answered_s.clone();
        answered_s.sort_by(f64::total_cmp);
        let at = |look: &GroupMoment| {
            let admitted = answered_s.partition_point(|at_s| *at_s <= look.now_s);
            let oldest_s = answered_s.get(admitted.saturating_sub(look.queue_items)).copied().unwrap_or(look.now_s);
            (look.now_s, (look.now_s - oldest_s).max(0.0))
        };
        self.looks.iter().map(at).collect()
    }

    fn lag_until_applied(&self) -> Vec<(f64, f64)> {
        self.looks.iter().map(|look| (look.now_s, look.lag_s)).collect()
    }
}

/// Each moment counts as long as it lasted, as in the model.
fn over_time(points: &[(f64, f64)]) -> Quantiles {
    let mut times = TimeDistribution::default();
    points.windows(2).for_each(|pair| times.add_for(pair[1].1, ((pair[1].0 - pair[0].0) * 1e6) as u64));
    times.quantiles()
}

fn model(mode: ModelMode, queue_bytes: u64, records: &[TraceRecord], congestion: CongestionModel) -> StreamReplay {
    // The emulator counts IP packets of 1500 bytes.
    let link = LinkModel {
        payload_share: SEGMENT_BYTES.as_f64() / 1500.0,
        congestion,
        ..LinkModel::of_line(Rate::from_mbit(MBIT), Seconds::from_ms(RTT_MS))
    };
    let setup = ModelSetup { queue_bytes, local: PlannedDisk::default(), ..ModelSetup::new(link) };
    let mut stream = StreamReplay::new(mode, setup);
    stream.add(records);
    stream
}

/// What the daemons' connection uses; the model must use the same.
fn congestion(pair: &Pair) -> CongestionModel {
    let status = pair.ask(Side::Near, &serde_json::json!({ "request": "status" }));
    let name = status["links"][0]["socket"]["congestion"].as_str().expect("the link is up");
    CongestionModel::like(name)
}

type Show = fn(f64) -> String;

/// A row: what was planned, what each round saw.
fn row(name: &str, show: Show, planned: f64, mut seen: Vec<f64>) {
    seen.sort_by(f64::total_cmp);
    let median = seen[seen.len() / 2];
    let off = if planned > 0.0 { format!("{:+.1} %", (median / planned - 1.0) * 100.0) } else { String::new() };
    let (least, most) = (show(seen[0]), show(seen[seen.len() - 1]));
    println!("| {name} | {} | {} ({least} to {most}) | {off} |", show(planned), show(median));
}

fn compare(name: &str, mode: ModelMode, stream: &StreamReplay, rounds: &[SeenRun]) {
    println!("\n| {name} | planned | measured | off |\n|---|---|---|---|");
    let bytes: Show = |bytes| show_bytes(units::quantities::Bytes(bytes as u64));
    let time: Show = |seconds| show_time(Seconds(seconds));
    let of = |get: &dyn Fn(&SeenRun) -> f64| rounds.iter().map(get).collect::<Vec<f64>>();
    row("queue high-water mark", bytes, stream.fill.peak_bytes as f64, of(&|seen| seen.peak_bytes as f64));
    row("writers waited for room, sum", time, stream.waiting.writer_s, of(&|seen| seen.waited_s));
    let responses: Vec<Quantiles> = rounds.iter().map(|seen| seen.response.quantiles()).collect();
    quantile_rows("response", time, stream.response.quantiles(), &responses);
    // What the primary knows is half a round trip older than what is true.
    let lag = stream.lag.times.quantiles();
    let later = |seconds| seconds + RTT_MS / 2e3;
    let lag = Quantiles { p50: later(lag.p50), p95: later(lag.p95), p99: later(lag.p99), max: later(lag.max), ..lag };
    if mode == ModelMode::Async {
        let durable: Vec<Quantiles> = rounds.iter().map(|seen| over_time(&seen.lag_until_durable())).collect();
        quantile_rows("lag until durable", time, lag, &durable);
    }
    // Which the model leaves out.
    let applied: Vec<Quantiles> = rounds.iter().map(|seen| over_time(&seen.lag_until_applied())).collect();
    quantile_rows("lag until applied", time, lag, &applied);
}

fn quantile_rows(name: &str, show: Show, planned: Quantiles, seen: &[Quantiles]) {
    for (which, get) in
        [("p50", (|q| q.p50) as fn(&Quantiles) -> f64), ("p95", |q| q.p95), ("p99", |q| q.p99), ("max", |q| q.max)]
    {
        row(&format!("{name}, {which}"), show, get(&planned), seen.iter().map(get).collect());
    }
}

fn draw(folder: &Path, name: &str, mode: ModelMode, queue_bytes: u64, stream: &StreamReplay, seen: &SeenRun) {
    let chart = |id, title: &str, y, planned: Vec<(f64, f64)>, measured: Vec<(f64, f64)>, limits| Chart {
        id,
        title: format!("{title}, {name}"),
        x: (Scale::Time, "time of the trace"),
        y,
        lines: vec![
            PlotLine::new("measured", COLOURS[1], measured),
            PlotLine::new("planned", COLOURS[0], planned).dashed(),
        ],
        limits,
    };
    let measured_lag = if mode == ModelMode::Async { seen.lag_until_durable() } else { seen.lag_until_applied() };
    let limit = vec![("limit".to_owned(), queue_bytes as f64)];
    let queue = chart(
        "queue",
        "Queue",
        (Scale::Bytes, "bytes"),
        stream.fill.curve.points().collect(),
        seen.looks.iter().map(|look| (look.now_s, look.queue_bytes)).collect(),
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

fn plan_and_reality(mode: ModelMode, mib: u64) {
    let test = format!("{}_{mib}", mode.name());
    let name = format!("planner-{}", std::process::id());
    let (rtt, rate) = (format!("{RTT_MS}ms"), format!("{MBIT}mbit"));
    let Some(wan) = WanGuard::start(&test, &["--rtt", &rtt, "--rate", &rate, "--name", &name]) else {
        return;
    };
    let (records, mut rounds) = (trace(), Vec::new());
    let mut used = CongestionModel::Cubic;
    let count = std::env::var("FARSHORE_ROUNDS").map_or(3, |text| text.parse().expect("a number of rounds"));
    for _ in 0..count {
        let group = &format!("queue.memory = \"{mib}MiB\"\nwait_limit = \"1h\"");
        let mut pair = wan.pair(&PairPlan {
            volumes: &["data"],
            volume_bytes: VOLUME_BYTES,
            mode: mode.name(),
            group,
            ..PairPlan::default()
        });
        wan.serve(&mut pair);
        pair.sync_fully(Side::Near);
        warm_up(&mut pair);
        rounds.push(replay(&pair, &records));
        used = congestion(&pair);
        pair.stop_both();
    }
    let (name, queue_bytes) = (format!("{} {mib} MiB", mode.name()), mib << 20);
    let stream = model(mode, queue_bytes, &records, used);
    compare(&name, mode, &stream, &rounds);
    if let (Some(folder), Some(seen)) = (std::env::var_os("FARSHORE_PLOTS"), rounds.last()) {
        draw(Path::new(&folder), &name, mode, queue_bytes, &stream, seen);
    }
}

/// A queue that the bursts fill by half.
#[test]
#[ignore = "a measurement of minutes; docs/book/planner.md shows its result"]
fn async_16() {
    plan_and_reality(ModelMode::Async, 16);
}

/// One that they fill: writers wait.
#[test]
#[ignore = "a measurement of minutes; docs/book/planner.md shows its result"]
fn async_2() {
    plan_and_reality(ModelMode::Async, 2);
}

#[test]
#[ignore = "a measurement of minutes; docs/book/planner.md shows its result"]
fn nearsync_2() {
    plan_and_reality(ModelMode::NearSync, 2);
}

#[test]
#[ignore = "a measurement of minutes; docs/book/planner.md shows its result"]
fn sync_2() {
    plan_and_reality(ModelMode::Sync, 2);
}
