//! The line tests against their formulas, over an emulated WAN with modelled disks: what a flush takes in each mode, table B-1
//! of the AVS paper, and the sweep of the HADR paper's link. Measurements, not tests: they take minutes, print the tables of
//! docs/book/toolkit.md and check nothing.
//!
//! ```text
//! cargo build -p xtask && cargo test -p farshore --test all line_modes:: -- --ignored --nocapture --test-threads 1
//! ```

use crate::common::wan::{LineServer, WanGuard};
use crate::common::{Pair, PairPlan};
use plan::formulas::{SEGMENT_BYTES, printed_as_b1, table_b1};
use plan::model::{LinkModel, ModelSetup, PlannedDisk};
use serde_json::Value;
use units::quantities::{Bytes, Rate, Seconds, show_bytes, show_time};

const FLUSH_BYTES: u64 = 64 << 10;
/// What a deviation must not pass without a mark.
const BAR: f64 = 0.05;
/// The far machine's disk, which is the near one's as well unless a case says otherwise.
const DISK: (f64, f64) = (50.0, 8.0);
const SLOW: (f64, f64) = (10.0, 40.0);
const FAST: (f64, f64) = (200.0, 1.0);
/// Table B-1 counts a megabit as 2^20.
const MEBIBIT: f64 = 1_048_576.0;
const PAPER_MBIT: f64 = 100.0;
/// Of the HADR paper's link.
const PAPER_KBIT: f64 = 38_640.0;

/// A line with `link serve` at its far end.
struct Site {
    _server: LineServer,
    pair: Pair,
    wan: WanGuard,
}

impl Site {
    fn new(test: &str, rtt: &str, rate: &str) -> Option<Site> {
        let name = format!("line-{}", std::process::id());
        let wan = WanGuard::start(test, &["--rtt", rtt, "--rate", rate, "--name", &name])?;
        let pair = wan.pair(&PairPlan { volumes: &["data"], volume_bytes: 1 << 20, ..PairPlan::DEFAULT });
        Some(Site { _server: wan.serve_tests(&pair), pair, wan })
    }

    #[track_caller]
    fn json(&self, words: &[&str]) -> Value {
        let output = self.wan.link(&self.pair, &[words, &["--congestion", "cubic", "--json"]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}: {errors}"))
    }
}

fn number(json: &Value, pointer: &str) -> f64 {
    json.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {pointer} in {json}"))
}

fn off(measured: f64, formula: f64) -> String {
    let off = measured / formula - 1.0;
    let mark = if off.abs() > BAR { " (!)" } else { "" };
    format!("{:+.1} %{mark}", off * 100.0)
}

/// What emulated packets of 1500 bytes leave of a line.
fn goodput(rate: Rate) -> Rate {
    rate.times(SEGMENT_BYTES.as_f64() / 1500.0)
}

/// What one flush waits for, in seconds: Farshore's modes as `farshore calc modes` has them, Db2's as the HADR wiki ("HADR
/// sync mode").
fn formula(mode: &str, legacy: bool, [local, send, far, rtt]: [f64; 4]) -> (&'static str, f64) {
    match (mode, legacy) {
        ("sync", false) => ("max(local, send + far + rtt)", local.max(send + far + rtt)),
        ("sync", true) => ("local + send + far + rtt", local + send + far + rtt),
        ("nearsync", _) => ("max(local, send + rtt)", local.max(send + rtt)),
        ("async", true) => ("max(local, send)", local.max(send)),
        _ => ("local", local),
    }
}

#[test]
#[ignore = "a measurement of minutes; docs/book/toolkit.md shows its result"]
fn what_a_flush_takes_in_each_mode() {
    let Some(site) = Site::new("what_a_flush_takes_in_each_mode", "20ms", "100mbit") else { return };
    let disk = |(mb, ms): (f64, f64)| PlannedDisk { rate: Some(Rate::from_mb(mb)), overhead: Seconds::from_ms(ms) };
    let setup = ModelSetup::new(LinkModel::of_line(goodput(Rate::from_mbit(100.0)), Seconds(0.0)));
    let send = setup.wire_bytes(FLUSH_BYTES) / goodput(Rate::from_mbit(100.0)).bytes_per_s();
    println!("| Mode | `--disk` | Formula | by it | p50 | off | mean | off |\n|---|---|---|---|---|---|---|---|");
    let cases = [
        ("sync", false, DISK),
        ("nearsync", false, DISK),
        ("async", false, DISK),
        ("superasync", false, DISK),
        ("sync", true, DISK),
        ("nearsync", true, DISK),
        ("async", true, DISK),
        ("superasync", true, DISK),
        ("sync", false, SLOW),
        ("nearsync", false, SLOW),
        // Where the line is slower than the disk.
        ("async", true, FAST),
    ];
    for (mode, legacy, near) in cases {
        let text = |(mb, ms): (f64, f64)| format!("{mb}MB/s,{ms}ms");
        let (near_text, far_text) = (text(near), text(DISK));
        let mut words = vec!["test", "far", "--mode", mode, "--time", "5s", "--omit", "1s"];
        words.extend(["--disk", &near_text, "--remote-disk", &far_text]);
        words.extend(if legacy { &["--legacy", "hadr"][..] } else { &[] });
        let json = site.json(&words);
        let [local, far] = [near, DISK].map(|pair| disk(pair).write_s(FLUSH_BYTES));
        let (name, by_it) = formula(mode, legacy, [local, send, far, number(&json, "/start/rtt_s")]);
        let [p50, mean] = ["/end/response_s/p50", "/end/response_s/mean"].map(|pointer| number(&json, pointer));
        let time = |seconds: f64| format!("{:.2} ms", seconds * 1e3);
        println!(
            "| {mode}{} | `{near_text}` | {name} | {} | {} | {} | {} | {} |",
            if legacy { " --legacy hadr" } else { "" },
            time(by_it),
            time(p50),
            off(p50, by_it),
            time(mean),
            off(mean, by_it),
        );
    }
}

#[test]
#[ignore = "a measurement of minutes; docs/book/toolkit.md shows its result"]
fn table_b1_on_a_line() {
    let buffers = [24, 256].map(|kib| Bytes(kib << 10));
    let rtts = [10.0, 20.0, 50.0, 100.0, 200.0].map(Seconds::from_ms);
    let line = Rate::from_bytes_per_s(PAPER_MBIT * MEBIBIT / 8.0);
    let rate = format!("{}kbit", (line.bytes_per_s() * 8.0 / 1e3).round());
    let mbit = |rate: f64| rate * 8.0 / MEBIBIT;
    let cells = table_b1(&buffers, &rtts, line);
    println!(
        "| Round trip | Buffer | Table B-1, Mbit/s | measured | window seen | min(line, window / round trip) | off |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (&buffer, cells) in buffers.iter().zip(cells) {
        for (&rtt, cell) in rtts.iter().zip(cells) {
            let Some(site) = Site::new("table_b1_on_a_line", &format!("{}ms", rtt.0 * 1e3), &rate) else { return };
            let size = format!("{}KiB", buffer.0 >> 10);
            let words = ["test", "far", "--mode", "catchup", "--time", "5s", "--omit", "3s"];
            let json = site.json(&[&words[..], &["--sndbuf", &size, "--rcvbuf", &size]].concat());
            let window = number(&json, "/start/sockets/near/send/window_bytes");
            let by_it = goodput(line).bytes_per_s().min(window / number(&json, "/start/rtt_s"));
            let measured = number(&json, "/end/received/bytes_per_s");
            println!(
                "| {} | {} | {} | {:.2} | {} | {:.2} | {} |",
                show_time(rtt),
                show_bytes(buffer),
                printed_as_b1(mbit(cell.bytes_per_s())),
                mbit(measured),
                show_bytes(Bytes(window as u64)),
                mbit(by_it),
                off(measured, by_it),
            );
        }
    }
}

#[test]
#[ignore = "a measurement of minutes; docs/book/toolkit.md shows its result"]
fn the_hadr_papers_link_swept() {
    let Some(site) = Site::new("the_hadr_papers_link_swept", "32ms", &format!("{PAPER_KBIT}kbit")) else { return };
    let json = site.json(&["sweep", "far", "--time", "6s"]);
    println!("| Buffer | MB/s | formula | off |\n|---|---|---|---|");
    for point in json["sweep"].as_array().expect("points") {
        let asked = show_bytes(Bytes(number(point, "/requested_bytes") as u64));
        let [measured, by_it] = ["/bytes_per_s", "/formula_bytes_per_s"].map(|pointer| number(point, pointer));
        println!("| {asked} | {:.3} | {:.3} | {} |", measured / 1e6, by_it / 1e6, off(measured, by_it));
    }
    let [knee, advised] = ["/end/knee_bytes", "/end/recommended_bytes"].map(|pointer| number(&json, pointer) as u64);
    let [knee, advised] = [knee, advised].map(|bytes| show_bytes(Bytes(bytes)));
    let (plateau, most) = (number(&json, "/end/plateau_bytes_per_s"), goodput(Rate::from_mbit(PAPER_KBIT / 1e3)));
    let most = most.bytes_per_s();
    println!("\nknee {knee}, advised {advised}; plateau {:.3} MB/s", plateau / 1e6);
    println!("of {:.3} MB/s that TCP leaves of the line: {}", most / 1e6, off(plateau, most));
}
