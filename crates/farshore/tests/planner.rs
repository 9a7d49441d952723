//! The planner's commands as an operator meets them, bad traces above all: a plan made from half a trace must say so.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{GROUP, Pair, PairPlan, Side, expect, schema};

fn farshore(folder: &Path, arguments: &[&str], input: Option<&[u8]>) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_farshore"))
        .args(arguments)
        .current_dir(folder)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    if let Some(bytes) = input {
        // A command that refuses early closes its input: no failure of the test.
        let _ = child.stdin.take().expect("piped").write_all(bytes);
    }
    child.wait_with_output().expect("the command ends")
}

struct PlannerBench {
    dir: tempfile::TempDir,
}

impl PlannerBench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("dir") }
    }
    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).expect("written");
        path
    }
    fn run(&self, arguments: &[&str]) -> Output {
        farshore(self.dir.path(), arguments, None)
    }
}

/// A second of writes each 2 ms, then a pause, then the same again: `seconds` in all.
fn iolog(seconds: u64) -> String {
    let mut text = "fio version 3 iolog\n0 /dev/sdb add\n1 /dev/sdb open\n".to_owned();
    for second in 0..seconds {
        for n in 0..500 {
            let (us, offset) = (second * 1_000_000 + n * 2000 + 10, (second * 37 + n * 11) % 4000 * 8192);
            text += &format!("{us} /dev/sdb write {offset} 8192\n");
        }
        text += &format!("{} /dev/sdb sync 0 0\n", second * 1_000_000 + 999_999);
    }
    text
}

#[test]
fn a_trace_is_scanned_kept_and_planned() {
    let bench = PlannerBench::new();
    bench.file("db.iolog", iolog(20));
    expect(&bench.run(&["scan", "db.iolog", "--out", "db.trace"]), 0, &["fio iolog v3", "10000 (500", "overwritten"]);
    let again = bench.run(&["scan", "db.trace", "--json"]);
    let scan: serde_json::Value = serde_json::from_slice(&again.stdout).expect("one object");
    schema::seen(&scan);
    assert_eq!((scan["schema"].as_str(), scan["workload"]["writes"].as_u64()), (Some("farshore-scan/1"), Some(10_000)));
    // The file is not overwritten.
    expect(&bench.run(&["scan", "db.iolog", "--out", "db.trace"]), 2, &["not overwritten"]);
    let plan = bench.run(&["plan", "db.trace", "--link", "10Mbit,50ms", "--queue", "1MiB", "--rpo", "5s", "--json"]);
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).expect("one object");
    assert_eq!(plan["schema"], "farshore-plan/1");
    schema::seen(&plan);
    let modes: Vec<&str> = plan["modes"].as_array().unwrap().iter().filter_map(|mode| mode["mode"].as_str()).collect();
    assert_eq!(modes, ["sync", "nearsync", "async", "superasync", "periodic", "logging"]);
    // 4 MB/s do not go through 10 Mbit/s: writers wait, and the needed bandwidth is near what is written.
    assert!(plan["modes"][2]["blocked"]["clock_s"].as_f64().unwrap() > 10.0);
    let needed = plan["needed"]["rate_bytes_per_s"].as_f64().unwrap();
    assert!((3.0e6..4.6e6).contains(&needed), "{needed}");
    assert_eq!(plan["advice"]["mode"], "periodic");
    // Text and JSON of the same plan, twice: nothing is left to chance.
    let text = || bench.run(&["plan", "db.trace", "--link", "100Mbit,50ms,loss=0.1%"]).stdout;
    assert_eq!(text(), text());
    // It stands where somebody is blocked, and nowhere else.
    let says_bound = |link: &str, mode: &str| {
        let plan = bench.run(&["plan", "db.trace", "--link", link, "--mode", mode, "--queue", "1MiB"]);
        String::from_utf8_lossy(&plan.stdout)
            .contains("blocked is an upper bound: the trace's writers do not write later")
    };
    assert_eq!([says_bound("10Mbit,50ms", "async"), says_bound("10Mbit,50ms", "logging")], [true, false]);
}

#[test]
fn pictures_and_page_stand_alone() {
    let bench = PlannerBench::new();
    bench.file("db.iolog", iolog(5));
    let plan = bench.run(&["plan", "db.iolog", "--link", "100Mbit,50ms", "--plots", "plots", "--report", "plan.html"]);
    expect(&plan, 0, &["advice", "table 2 (AVS)"]);
    for name in ["rates", "queue", "lag", "added-latency"] {
        let svg = fs::read_to_string(bench.dir.path().join(format!("plots/{name}.svg"))).expect("an SVG");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
    }
    let page = fs::read_to_string(bench.dir.path().join("plan.html")).expect("a page");
    assert!(page.contains("Recommended mode: async") && page.matches("<svg").count() == 4);
    // Nothing is fetched: the only address is the name of the SVG language.
    assert_eq!(page.matches("http").count(), page.matches("http://www.w3.org/2000/svg").count());
}

#[test]
fn what_is_no_trace_is_refused_with_its_name() {
    let bench = PlannerBench::new();
    bench.file("empty", "");
    bench.file("garbage", (0..60_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<u8>>());
    bench.file("reads", "fio version 3 iolog\n1 f read 0 512\n2 f read 512 512\n");
    bench.file("still", "fio version 2 iolog\nf write 0 512\nf write 512 512\n");
    bench.file("table.csv", "when,what\n1,2\n");
    expect(&bench.run(&["scan", "empty"]), 2, &["empty is empty"]);
    expect(&bench.run(&["scan", "garbage"]), 2, &["garbage is no trace this program knows", "--columns"]);
    expect(&bench.run(&["scan", "reads"]), 2, &["2 reads and no writes"]);
    expect(&bench.run(&["scan", "missing"]), 2, &["missing cannot be opened"]);
    expect(&bench.run(&["scan", "."]), 2, &["is a directory"]);
    expect(&bench.run(&["scan", "table.csv"]), 2, &["--columns time:ms"]);
    expect(&bench.run(&["scan", "table.csv", "--columns", "time,offset:B,size:B"]), 3, &["needs a unit of time"]);
    expect(&bench.run(&["scan", "table.csv", "--format", "pcap"]), 2, &["formats are iolog"]);
    expect(&bench.run(&["scan", "still"]), 1, &["all records have the same time"]);
    expect(&bench.run(&["plan", "still", "--link", "10Mbit,1ms"]), 2, &["without times there is no queue to plan"]);
    expect(&bench.run(&["plan", "-", "--link", "10Mbit,1ms"]), 3, &["farshore scan - --out FILE"]);
}

#[test]
fn what_is_left_out_is_reported_and_too_much_is_refused() {
    let bench = PlannerBench::new();
    let good = iolog(4);
    bench.file(
        "few",
        format!("{good}rubbish\n-5 /dev/sdb write 0 512\n4000000 /dev/sdb write 9223372036854775808 512\n"),
    );
    expect(&bench.run(&["scan", "few"]), 1, &["first at few, line 2008", "time is negative", "2^63", "2000 (500"]);
    expect(&bench.run(&["plan", "few", "--link", "100Mbit,1ms"]), 1, &["warning: few: 1 left out"]);
    let mixed = format!("{good}{}", "8,0 1 1 0.5 7 Q W 8 + 8 [x]\n".repeat(100));
    bench.file("mixed", mixed);
    expect(&bench.run(&["scan", "mixed"]), 2, &["100 of 2104", "too many to plan with the rest", "--skip-bad"]);
    expect(&bench.run(&["scan", "mixed", "--skip-bad"]), 1, &["100 left out"]);
    bench.file("twice", format!("{good}{}", good.lines().skip(1).map(|line| format!("{line}\n")).collect::<String>()));
    // Two runs in one file: within the repair's reach they merge, beyond it they are refused.
    let long = iolog(40);
    bench.file(
        "long-twice",
        format!("{long}{}", long.lines().skip(1).map(|line| format!("{line}\n")).collect::<String>()),
    );
    expect(&bench.run(&["scan", "long-twice"]), 2, &["lies before that of records already used"]);
}

#[test]
fn a_cut_file_keeps_its_beginning_and_says_so() {
    let bench = PlannerBench::new();
    bench.file("db.iolog", iolog(20));
    expect(&bench.run(&["scan", "db.iolog", "--out", "db.trace"]), 0, &[]);
    let whole = fs::read(bench.dir.path().join("db.trace")).expect("a trace");
    bench.file("cut.trace", &whole[..whole.len() - 5000]);
    expect(&bench.run(&["scan", "cut.trace"]), 1, &["ends in the middle", "8176 ("]);
    bench.file("first.trace", &whole[..1000]);
    expect(&bench.run(&["scan", "first.trace"]), 2, &["holds no records", "first.trace: ", "ends in the middle"]);
    let mut bad = whole;
    bad[120_000] ^= 1;
    bench.file("bad.trace", bad);
    expect(&bench.run(&["scan", "bad.trace"]), 1, &["checksum", "4088 ("]);
}

#[test]
fn standard_input_and_packed_files_work() {
    let bench = PlannerBench::new();
    let text = iolog(3);
    let output = farshore(bench.dir.path(), &["scan", "-"], Some(text.as_bytes()));
    expect(&output, 0, &["1500 (500"]);
    // Two volumes of one time.
    bench.file("a", &text);
    bench.file("b", text.replace("/dev/sdb", "/dev/sdc"));
    expect(&bench.run(&["scan", "a", "b"]), 0, &["volumes       2", "3000 (1000"]);
}

#[test]
fn units_are_asked_back() {
    let bench = PlannerBench::new();
    bench.file("db", iolog(2));
    for (link, hint) in [
        ("100Mb,50ms", "could be bits or bytes"),
        ("100MB,50ms", "did you mean"),
        ("100Mbit", "wants a time behind the rate, such as \"100Mbit,1ms\""),
        ("50ms,100Mbit", "the rate comes first; write \"100Mbit,50ms\""),
        ("fast", "is not a rate"),
        ("100Mbit,50", "has no unit"),
        ("100Mbit,50ms,loos=1%", "loss=0.1%"),
        ("100Mbit,-50ms", "negative"),
    ] {
        expect(&bench.run(&["plan", "db", "--link", link]), 3, &[hint]);
    }
    expect(
        &bench.run(&["plan", "db", "--link", "10Mbit,1ms", "--queue", "8MB", "--mode", "asink"]),
        3,
        &["is no mode"],
    );
    let also = |words: &[&str]| bench.run(&[&["plan", "db", "--link", "10Mbit,1ms"], words].concat());
    expect(&also(&["--disk", "1ms,200MB/s"]), 3, &["the rate comes first; write \"200MB/s,1ms\""]);
    expect(&also(&["--compression", "0.5"]), 3, &["would make data larger"]);
    expect(&also(&["--outage-at", "3h"]), 3, &["--outage-at 3 h lies behind the trace, which ends after 2 s"]);
    expect(&bench.run(&["plan", "db", "--link", "missing.json"]), 2, &["missing.json cannot be read"]);
    bench.file("other.json", "{\"schema\":\"farshore-disk-test/1\"}");
    expect(&bench.run(&["plan", "db", "--link", "other.json"]), 2, &["farshore-link-test/1"]);
    let measured = r#"{"schema":"farshore-link-test/1","start":{"rtt_s":0.05,"congestion":"cubic"},"end":{"received":{"bytes_per_s":11700000}}}"#;
    bench.file("link.json", measured);
    bench.file("still.json", measured.replace("11700000", "1e-300"));
    expect(&bench.run(&["plan", "db", "--link", "still.json"]), 2, &["is 1e-300, which is less than a bit per second"]);
    bench.file("disk.json", r#"{"schema":"farshore-disk-test/1","end":{"bytes_per_s":2e8,"overhead_s":0.001}}"#);
    expect(
        &bench.run(&["plan", "db", "--link", "link.json", "--disk", "disk.json"]),
        0,
        &["11.7 MB/s", "50 ms, cubic", "200 MB/s after 1 ms"],
    );
}

#[test]
fn formulas_answer_on_their_own() {
    let bench = PlannerBench::new();
    expect(&bench.run(&["calc", "bdp", "--rate", "100Mbit", "--rtt", "50ms"]), 0, &["625000 B", "source: HADR"]);
    expect(&bench.run(&["calc", "buffers"]), 0, &["18.75", "9.38", "0.94"]);
    let hadr = [
        "calc",
        "modes",
        "--legacy",
        "hadr",
        "--link",
        "10MiB/s,100ms",
        "--disk",
        "200MiB/s,1ms",
        "--actual",
        "7.307MiB/s",
    ];
    let rest = ["--flush-pages", "17.6", "--transaction-pages", "15.9", "--open", "22.7", "--json"];
    let output = bench.run(&[&hadr[..], &rest[..]].concat());
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    schema::seen(&answer);
    assert_eq!((&answer["rows"][0]["target_mib_per_s"], &answer["rows"][0]["pages"]), (&"5.484".into(), &360.0.into()));
    expect(&bench.run(&["calc", "round-trip", "--write-size", "8kB", "--rtt", "0s"]), 3, &["more than zero"]);
}

/// What is divided by next to nothing is no number any more, and made a panic.
#[test]
fn a_quantity_next_to_nothing_is_refused_in_a_sentence() {
    let bench = PlannerBench::new();
    let zeros = "0".repeat(320);
    let site = ["calc", "modes", "--legacy", "hadr", "--link", "10MiB/s,0s", "--disk", "200MiB/s,0s"];
    let load = ["--actual", "1MiB/s", "--flush-pages", "1e-323", "--transaction-pages", "15", "--open", "3"];
    expect(&bench.run(&[site, load].concat()), 3, &["\"1e-323\" is less than there can be (0.000000001 at least)"]);
    let rtt = format!("0.{zeros}1s");
    let shorter = ["is shorter than any time here can be (1 ns)"];
    expect(&bench.run(&["calc", "round-trip", "--write-size", "8kB", "--rtt", &rtt]), 3, &shorter);
    expect(&bench.run(&["doctor", "--skip-disk", "--rtt", &rtt]), 3, &shorter);
    bench.file("db", iolog(1));
    let link = format!("0.{zeros}1bit,50ms");
    expect(&bench.run(&["plan", "db", "--link", &link]), 3, &["a rate is at least 1 bit/s"]);
    // The least that there is makes large numbers, and no harm.
    expect(&bench.run(&["plan", "db", "--link", "1bit,1ns", "--disk", "1bit,1ns"]), 0, &["sync"]);
    expect(&bench.run(&["calc", "round-trip", "--write-size", "8kB", "--rtt", "1ns"]), 0, &["source"]);
}

/// 1e200 pages made a panic, 1e17 a search without an end, 2^60 extents a sum beyond any number.
#[test]
fn a_count_beyond_all_bounds_is_refused_in_a_sentence() {
    let bench = PlannerBench::new();
    let modes = |pages: &str, transaction: &str, open: &str| {
        let site = ["calc", "modes", "--legacy", "hadr", "--link", "10MiB/s,100ms", "--disk", "200MiB/s,1ms"];
        let load = ["--actual", "9MiB/s", "--flush-pages", pages, "--transaction-pages", transaction, "--open", open];
        bench.run(&[&site[..], &load[..]].concat())
    };
    for count in ["1e200", "1e17", "10000001", "inf"] {
        for output in [modes(count, "1", "1"), modes("1", count, "1"), modes("1", "1", count)] {
            expect(&output, 3, &[&format!("\"{count}\" is ")]);
        }
    }
    expect(&modes("1e7", "1e7", "1e7"), 0, &["SYNC"]);
    for rest in [["round-trip", "--depth"], ["activity-log", "--extents"]] {
        let known = [&["calc", rest[0]][..], &["--write-size", "8kB", "--rtt", "1ms"], &["--rate", "100Mbit"]];
        let known = if rest[0] == "round-trip" { known[..2].concat() } else { [known[0], known[2]].concat() };
        for count in ["0", "10000001", "18446744073709551615"] {
            expect(&bench.run(&[&known[..], &[rest[1], count]].concat()), 3, &["is not in 1..=10000000"]);
        }
        expect(&bench.run(&[&known[..], &[rest[1], "10000000"]].concat()), 0, &["source"]);
    }
}

#[test]
fn a_disk_that_is_not_there_is_named() {
    let bench = PlannerBench::new();
    expect(&bench.run(&["record", "--device", "/dev/no-such-disk", "--out", "x"]), 2, &["cannot be looked at"]);
    expect(
        &bench.run(&["record", "--device", "/dev/null", "--out", "x"]),
        2,
        &["the kernel counts nothing for \"null\""],
    );
    assert!(!bench.dir.path().join("x").exists());
}

#[test]
fn a_group_is_recorded_exactly_and_an_end_at_any_moment_keeps_it() {
    let mut pair = Pair::replicating(&PairPlan::default());
    let path = |name: &str| pair.path(name).to_str().expect("text").to_owned();
    let (kept, whole) = (path("kept.trace"), path("whole.trace"));
    let (code, said) = pair.output_of(Side::Near, &["record", "--group", "other", "--out", &whole]);
    assert!(code == 2 && said.contains("no group \"other\"") && !Path::new(&whole).exists(), "{said}");
    let (code, said) = pair.output_of(Side::Near, &["record", "--group", GROUP, "--for", "1s", "--out", &whole]);
    assert!(code == 0 && said.contains("0 requests of g"), "{said}");

    let config = pair.config();
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_farshore"))
        .args(["record", "--group", GROUP, "--out", &kept, "--node", "near", "--config"])
        .arg(config)
        .stderr(Stdio::null())
        .spawn()
        .expect("the command runs");
    pair.until("the recording began", |_| Path::new(&kept).exists());
    pair.qemu_io(Side::Near, "log", &["write -P 1 0 64k", "write -f -P 2 1M 128k", "flush", "discard 4M 64k"]);
    let here = pair.path("near");
    let scanned = || {
        let output = farshore(&here, &["scan", &kept, "--json"], None);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_default()
    };
    pair.until("the last request is in the file", |_| scanned()["workload"]["trims"] == 1);
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    let found = scanned();
    let of = |key: &str| found["workload"][key].as_u64();
    // A client may ask for FUA and flush more often than it was told to.
    assert_eq!((of("writes"), of("bytes"), of("fua_writes") >= Some(1)), (Some(2), Some(196_608), true), "{found}");
    assert!(
        of("flushes") >= Some(1)
            && found["warnings"][0].as_str().is_some_and(|text| text.contains("ends in the middle"))
    );
    pair.stop_both();
}

/// The model is of this product: its constants are the engine's.
#[test]
fn the_model_knows_the_product() {
    assert_eq!(plan::model::FRAME_HEADER_BYTES, engine::wire::HEADER_BYTES as u64);
    assert_eq!(plan::model::PART_BYTES, engine::limits::PART_BYTES_MAX);
    assert_eq!(plan::model::ITEM_OVERHEAD_BYTES, engine::limits::ITEM_OVERHEAD_BYTES);
    assert_eq!(plan::formulas::BBR_FROM.0, host::link::tuning::AUTO_ROUND_TRIP.as_secs_f64());
    assert_eq!(plan::model::ITEM_BLOCK_BYTES, engine::limits::META_BLOCK_BYTES);
    assert_eq!(plan::model::REGION_BYTES, engine::limits::REGION_BYTES);
    assert_eq!(plan::model::QUEUE_BYTES_DEFAULT, engine::limits::QUEUE_BYTES_DEFAULT);
    assert_eq!(plan::model::QUEUE_ITEMS_DEFAULT, engine::limits::QUEUE_ITEMS_DEFAULT);
}
