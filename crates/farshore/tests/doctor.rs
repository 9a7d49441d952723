//! `doctor` as a whole process: what it finds on a line that it does not know, with daemons and without, and that it
//! changes nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::wan::WanGuard;
use crate::common::{Pair, PairPlan, Side, expect, schema};
use serde_json::Value;

const FARSHORE: &str = env!("CARGO_BIN_EXE_farshore");

fn doctor(words: &[&str]) -> Output {
    Command::new(FARSHORE).arg("doctor").args(words).output().expect("the command runs")
}

/// The report of one end, and that the exit code is the worst line's.
fn report(output: &Output) -> Value {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(report["schema"], "farshore-doctor/1");
    schema::seen(&report);
    let lines = report["checks"].as_array().expect("a list");
    let rank = |verdict: &Value| match verdict.as_str() {
        Some("ok" | "info") => 0,
        Some("warning") => 1,
        Some("problem") => 2,
        other => panic!("{other:?}"),
    };
    let worst = lines.iter().map(|line| rank(&line["verdict"])).max();
    assert_eq!(output.status.code(), worst, "{report}");
    assert_eq!(Some(rank(&report["verdict"])), worst);
    report
}

fn line<'a>(report: &'a Value, id: &str) -> &'a Value {
    let lines = report["checks"].as_array().expect("a list");
    lines.iter().find(|line| line["id"] == id).unwrap_or_else(|| panic!("{id}: {report}"))
}

#[track_caller]
fn is(report: &Value, id: &str, verdict: &str, have: &str, command: &str) {
    let line = line(report, id);
    assert_eq!(line["verdict"], verdict, "{line}");
    assert!(line["have"].as_str().is_some_and(|text| text.contains(have)), "{line}");
    assert!(command.is_empty() || line["command"].as_str().is_some_and(|text| text.contains(command)), "{line}");
}

#[test]
fn bad_input_is_one_sentence() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let other = file("other.json", r#"{"schema":"farshore-status/1","facts":{}}"#);
    let broken = file("broken.json", "{");
    let config = file("farshore.toml", "cluster = 7");
    let missing = directory.path().join("missing").display().to_string();
    expect(&doctor(&["--beside", &missing]), 2, &["missing: it cannot be read: No such file"]);
    expect(&doctor(&["--beside", &other]), 2, &["other.json", "\"farshore-doctor/1\" is wanted"]);
    expect(&doctor(&["--beside", &broken]), 2, &["broken.json", "not what doctor --json prints"]);
    expect(&doctor(&["--config", &config]), 2, &["farshore.toml"]);
    expect(&doctor(&["--config", &missing]), 2, &["missing"]);
    expect(&doctor(&["--rtt", "5"]), 3, &["has no unit"]);
    expect(&doctor(&["--bw", "100M"]), 3, &["could be bits or bytes"]);
    expect(&doctor(&["--timeout", "0s"]), 3, &["out of range"]);
    expect(&doctor(&["db.invalid", "--timeout", "20s"]), 2, &["db.invalid:7337: the name does not resolve", "getent"]);
    // Nobody listens there.
    expect(&doctor(&["127.0.0.1:1"]), 2, &["127.0.0.1:1: the connection was refused"]);
}

/// What must not change, from one end's view. Which congestion control is allowed is the host's, and another test's line may
/// be starting.
fn settings(wan: &WanGuard, node: Side) -> String {
    let mut command = wan.at(node, "sh");
    command.args([
        "-c",
        "sysctl net.ipv4 2>/dev/null | grep -v -e random -e route.flush -e tcp_allowed; ip link show; ip route",
    ]);
    String::from_utf8_lossy(&command.output().expect("sh runs").stdout).into_owned()
}

fn send_frame(wan: &WanGuard, node: Side, words: &[&str]) {
    let output = wan.at(node, words[0]).args(&words[1..]).output().expect("ip runs");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn examined(wan: &WanGuard, node: Side, words: &[&str]) -> Output {
    let mut command = wan.at(node, FARSHORE);
    command.arg("doctor").args(words);
    command.output().expect("the command runs")
}

#[test]
fn an_unequal_pair_of_machines_is_seen_from_either_end() {
    let Some(wan) = WanGuard::start("an_unequal_pair_of_machines_is_seen_from_either_end", &["--rtt", "20ms"]) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    for node in Side::BOTH {
        for setting in ["tcp_mtu_probing=1", "tcp_slow_start_after_idle=0", "tcp_wmem=4096 16384 33554432"] {
            send_frame(&wan, node, &["sysctl", "-w", &format!("net.ipv4.{setting}")]);
        }
    }
    send_frame(&wan, Side::Near, &["sysctl", "-w", "net.ipv4.tcp_rmem=4096 8192 16384"]);
    send_frame(&wan, Side::Far, &["ip", "link", "set", "wan0", "mtu", "1400"]);
    let before = Side::BOTH.map(|node| settings(&wan, node));

    // Nobody listens: the peer is a problem, and everything else is still examined.
    let way = ["--bw", "100Mbit", "--timeout", "2s", "--json"];
    let far = examined(&wan, Side::Far, &[&[wan.address(Side::Near)], &way[..]].concat());
    let reported = report(&far);
    is(&reported, "peer", "problem", "the connection was refused", "");
    is(&reported, "tcp-rmem", "ok", "most ", "");
    let sheet = directory.path().join("far.json");
    fs::write(&sheet, &far.stdout).expect("written");

    let beside = [wan.address(Side::Far), "--beside", sheet.to_str().expect("UTF-8")];
    let near = report(&examined(&wan, Side::Near, &[&beside[..], &way[..]].concat()));
    for id in ["speed", "duplex", "autonegotiation", "modes"] {
        is(&near, id, "info", "unknown", "");
        assert!(line(&near, id)["why"].as_str().is_some_and(|why| why.contains("wan0 is a virtual interface")));
    }
    is(&near, "bandwidth-delay", "ok", "100 Mbit/s (--bw) x ", "");
    let product = line(&near, "bandwidth-delay")["have"].as_str().expect("a text").to_owned();
    let (_, round_trip) = product.rsplit_once(" x ").expect("a round trip");
    let ms: f64 = round_trip.split(' ').next().and_then(|number| number.parse().ok()).expect("in milliseconds");
    assert!((20.0..100.0).contains(&ms), "a busy machine answers late, never early: {product}");
    is(&near, "tcp-rmem", "warning", "16 KiB", "sysctl -w net.ipv4.tcp_rmem=\"4096 8192 ");
    let command = line(&near, "tcp-rmem")["command"].as_str().expect("a text").to_owned();
    let most = command.rsplit(' ').next().and_then(|text| text.trim_matches('"').parse::<f64>().ok());
    // 2 x 12.5 MB/s x the round trip / 0.62.
    let right = 2.0 * 12.5e6 * ms / 1000.0 / 0.62;
    assert!(most.is_some_and(|most| (most / right - 1.0).abs() < 0.05), "{command}, and {product}");
    is(&near, "both-mtu", "warning", "1500 (wan0) here, 1400 (wan0) there", "ip link set wan0 mtu 1400        (here)");
    is(&near, "mtu-probing", "ok", "on", "");
    let rows = near["ends"].as_array().expect("a table");
    let row = |what: &str| rows.iter().find(|row| row["what"] == what).expect("a row");
    assert_eq!(row("mtu"), &serde_json::json!({"what": "mtu", "here": "1500", "there": "1400", "alike": false}));
    assert_eq!(row("tcp_rmem most")["here"], "16384");
    assert_eq!(row("timestamps")["alike"], true);

    let text = examined(&wan, Side::Near, &[&beside[..], &way[..4]].concat());
    expect(&text, 2, &["both ends", "differ", "$ sysctl -w net.ipv4.tcp_rmem=", "nothing was changed"]);
    assert_eq!(Side::BOTH.map(|node| settings(&wan, node)), before, "it changes nothing");
}

#[test]
fn a_path_that_swallows_large_packets_is_found() {
    let test = "a_path_that_swallows_large_packets_is_found";
    let Some(wan) = WanGuard::start(test, &["--rtt", "10ms", "--drop-above", "1400"]) else { return };
    let reported = report(&examined(&wan, Side::Near, &[wan.address(Side::Far), "--json"]));
    is(&reported, "path-mtu", "problem", "1400, and larger packets vanish", "ip link set wan0 mtu 1400");
    assert_eq!(reported["facts"]["peer"]["path_mtu"], 1400);
}

/// A third machine behind the far one, on a line of its own that carries less.
struct ThirdMachine {
    name: String,
}

impl ThirdMachine {
    const ADDRESS: &'static str = "10.231.7.2";

    fn start(wan: &WanGuard) -> ThirdMachine {
        let beyond = ThirdMachine { name: format!("beyond-{}", std::process::id()) };
        let name = beyond.name.as_str();
        let run = |mut command: Command, words: &str| {
            let output = command.args(words.split(' ')).output().expect("ip runs");
            assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let (here, near, far) = (|| Command::new("ip"), || wan.at(Side::Near, "ip"), || wan.at(Side::Far, "ip"));
        run(here(), &format!("netns add {name}"));
        run(far(), &format!("link add out mtu 1400 type veth peer name in mtu 1400 netns {name}"));
        run(far(), "addr add 10.231.7.1/24 dev out");
        run(far(), "link set out up");
        run(here(), &format!("-n {name} addr add {}/24 dev in", ThirdMachine::ADDRESS));
        run(here(), &format!("-n {name} link set in up"));
        run(here(), &format!("-n {name} route add default via 10.231.7.1"));
        run(near(), &format!("route add 10.231.7.0/24 via {}", wan.address(Side::Far)));
        run(wan.at(Side::Far, "sysctl"), "-q -w net.ipv4.ip_forward=1");
        beyond
    }
}

impl Drop for ThirdMachine {
    fn drop(&mut self) {
        // What is left of it goes with the WAN.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

#[test]
fn a_router_that_reports_a_narrower_path_is_heard() {
    let Some(wan) = WanGuard::start("a_router_that_reports_a_narrower_path_is_heard", &["--rtt", "10ms"]) else {
        return;
    };
    let _beyond = ThirdMachine::start(&wan);
    // Nobody listens there, which is not what is asked.
    let output = examined(&wan, Side::Near, &[ThirdMachine::ADDRESS, "--json"]);
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    is(&reported, "path-mtu", "info", "1400; wan0 has 1500", "");
    assert_eq!(reported["facts"]["peer"]["path_mtu"], 1400);
}

/// With a daemon it knows more, and says what it measured.
#[test]
fn with_daemons_the_link_is_examined() {
    let Some(wan) = WanGuard::start("with_daemons_the_link_is_examined", &["--rtt", "20ms"]) else { return };
    let mut pair = wan.pair(&PairPlan { volumes: &["data"], volume_bytes: 2 << 20, ..PairPlan::DEFAULT });
    wan.serve(&mut pair);
    pair.sync_fully(Side::Near);
    pair.until("the link was looked at", |pair| {
        let output = pair.run(Side::Near, &["link", "show", "--json"]);
        let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        !shown["links"][0]["tcp"].is_null()
    });
    let config = pair.config();
    let words = |node: Side| {
        let name = node.name();
        ["--config".to_owned(), config.display().to_string(), "--node".to_owned(), name.to_owned(), "--json".to_owned()]
    };
    let examine = |node: Side, more: &[&str]| {
        let words = words(node);
        let words: Vec<&str> = words.iter().map(String::as_str).chain(more.iter().copied()).collect();
        report(&examined(&wan, node, &words))
    };
    let near = examine(Side::Near, &["--bw", "100Mbit"]);
    is(&near, "peer", "ok", "linked", "");
    is(&near, "link", "ok", "connected", "");
    // The sync may still have filled the queue before the line.
    assert!(line(&near, "round-trip")["have"].as_str().is_some_and(|have| have.contains("on the link, at best 20")));
    is(&near, "bandwidth-delay", "ok", "(the link)", "");
    is(&near, "path-mtu", "ok", "1500", "");
    is(&near, "clock-offset", "ok", "ms", "");
    // Tests beside this one may keep the disk busy.
    assert!(line(&near, "disk-flush")["have"].as_str().is_some_and(|have| have.starts_with("4 KiB durable in ")));
    is(&near, "versions", "ok", env!("CARGO_PKG_VERSION"), "");
    is(&near, "rto-max", "ok", "1 s (the link's max_rto", "");
    is(&near, "keepalive", "ok", "5 s of silence end a connection", "");
    is(&near, "firewall", "ok", "heartbeats come every 200 ms", "");
    is(&near, "memory", "ok", "1 group may hold 64 MiB", "");
    let queues = line(&near, "queues")["have"].as_str().expect("text");
    assert!(queues.contains("of 64 MiB") && queues.contains("since the daemon started"), "{queues}");
    // The certificates of the test are made for two days.
    is(&near, "tls", "warning", "expires", "farshore cert rotate near");
    let space = line(&near, "space")["have"].as_str().expect("text");
    assert!(space.contains("may still take"), "the undo store has not taken its space: {space}");
    assert_eq!(near["facts"]["settings"]["buffers"], "auto");
    assert!(hidden_files(&pair.path("near/state")).is_empty(), "what was flushed is gone");
    // With its socket alone it knows its links, and not the volumes' journals.
    let socket = pair.path("near/state/control.sock");
    let alone = report(&examined(&wan, Side::Near, &["--socket", socket.to_str().expect("UTF-8"), "--json"]));
    is(&alone, "peer", "ok", "linked", "");

    assert!(pair.stop(Side::Far).success());
    pair.until("the link is down", |pair| pair.output_of(Side::Near, &["link", "show"]).1.contains("disconnected"));
    let near = examine(Side::Near, &["--timeout", "2s"]);
    is(&near, "link", "problem", "disconnected", "farshore link show");
    is(&near, "peer", "problem", "refused", "");
    let far = examine(Side::Far, &["--timeout", "2s"]);
    is(&far, "daemon", "info", "unknown", "");
    is(&far, "memory", "ok", "(0 B now)", "");
    let lines = far["checks"].as_array().expect("a list");
    assert!(lines.iter().all(|line| line["id"] != "queues"), "nobody tells of queues: {far}");
    assert!(line(&far, "daemon")["why"].as_str().is_some_and(|why| why.contains("no daemon answers")));
}

fn hidden_files(directory: &Path) -> Vec<String> {
    let list = fs::read_dir(directory).expect("a directory").flatten();
    let names = list.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with('.')).collect()
}

#[test]
fn several_peers_must_be_distinguished() {
    let pair = Pair::new(&PairPlan::DEFAULT);
    let text = fs::read_to_string(pair.config()).expect("the configuration is there");
    let third = "[nodes.third]\naddress = \"127.0.0.9:7001\"\nstate = \"third\"\n[groups.h]\nprimary = \"near\"\nsecondary = \
                 \"third\"\nmode = \"async\"\n[groups.h.volumes.v]\nnear = \"v\"\nthird = \"v\"\n";
    fs::write(pair.config(), text + third).expect("written");
    let config = pair.config();
    let words = ["--config", config.to_str().expect("UTF-8"), "--node", "near"];
    expect(&doctor(&words), 3, &["has the peers far, third", "farshore doctor PEER"]);
}

#[test]
fn without_the_disk_the_space_is_still_reported() {
    let pair = Pair::new(&PairPlan::DEFAULT);
    let (config, state) = (pair.config(), pair.path("near").join("state"));
    fs::create_dir_all(&state).expect("a directory");
    let words = ["--config", config.to_str().expect("UTF-8"), "--node", "near", "--skip-disk", "--json"];
    let reported = report(&doctor(&words));
    // How much is free is this machine's affair; what is made of it, the checks' own tests show.
    let space = line(&reported, "space")["have"].as_str().expect("text");
    let (directory, promised) = (format!("in {}", state.display()), "may still take 16 GiB");
    assert!(space.contains(&directory) && space.contains(promised), "{space}");
    is(&reported, "disk-flush", "info", "unknown", "");
    // The same, line by line.
    let stream = [&words[..5], &["--json-stream"]].concat();
    let output = doctor(&stream);
    let lines = String::from_utf8(output.stdout).expect("text");
    let mut events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(events.iter().all(|event| event["schema"] == "farshore-doctor-stream/1"), "{lines}");
    events.iter().for_each(schema::seen);
    let end = events.pop().expect("an end");
    assert_eq!((&end["event"], &end["data"]["schema"]), (&"end".into(), &"farshore-doctor/1".into()));
    let (doing, found): (Vec<_>, Vec<_>) = events.into_iter().partition(|event| event["event"] == "doing");
    assert!(!doing.is_empty() && doing.iter().all(|event| event["data"]["what"].is_string()), "{doing:?}");
    let found: Vec<_> = found.into_iter().map(|mut event| event["data"].take()).collect();
    assert_eq!(Some(&found), end["data"]["checks"].as_array());
}
