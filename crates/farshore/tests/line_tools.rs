//! What is built on line tests, as whole programs: `link sweep`, `link probe`, `link soak`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::common::line::{LinkServer, PLAN, farshore, interrupt, stream};
use crate::common::wan::WanGuard;
use crate::common::{Pair, Side, schema};
use serde_json::Value;

#[test]
fn a_sweep_a_probe_and_a_soak_report_what_they_found() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    let address = server.address.to_string();
    let run = |words: &[&str]| {
        let output = farshore(&pair, &[&["link", words[0], &address], &words[1..]].concat(), Side::Near).output();
        let output = output.expect("the binary runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{words:?}: {errors}");
        let json: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}: {errors}"));
        schema::seen(&json);
        json
    };
    let plots = pair.path("plots");
    let plots_text = plots.to_str().expect("text");
    let json = run(&["sweep", "--json", "--time", "200ms", "--to", "256KiB", "--plots", plots_text]);
    let sizes: Vec<_> =
        json["sweep"].as_array().expect("points").iter().map(|point| &point["requested_bytes"]).collect();
    assert!((2..=3).contains(&sizes.len()) && sizes[0] == 65536, "{json}");
    assert_eq!(json["others"].as_array().map(Vec::len), Some(2), "autotuning, and paced");
    assert!(json["end"]["recommended_bytes"].as_u64().is_some_and(|bytes| bytes >= 128 << 10), "{json}");
    for plot in ["sweep-rate.svg", "sweep-round-trip.svg"] {
        assert!(plots.join(plot).is_file(), "{plot}");
    }

    let json = run(&["probe", "--json", "--time", "300ms"]);
    assert_eq!((&json["schema"], &json["large_packets"]), (&"farshore-link-probe/1".into(), &"pass".into()));
    assert!(json["clock_offset_s"].as_f64().is_some_and(|offset| offset.abs() < 1.0), "one machine, one clock: {json}");
    assert!(json["forward"]["bytes_per_s"].as_f64() > Some(0.0) && json["reverse"]["bytes_per_s"].as_f64() > Some(0.0));

    let out = pair.path("soak");
    let out_text = out.to_str().expect("text");
    let soak = ["soak", "--json", "--rate", "1MB/s", "--time", "2s", "--every", "500ms", "--out", out_text];
    let json = run(&soak);
    let stretches = json["stretches"].as_array().expect("stretches").len();
    assert!(stretches >= 2 && json["outages"].as_array().is_some_and(Vec::is_empty), "{json}");
    assert_eq!(fs::read_to_string(&out).expect("kept").lines().count(), stretches);
    let again = farshore(&pair, &[&["link", "soak", &address][..], &soak[1..]].concat(), Side::Near).output();
    let again = again.expect("the binary runs");
    assert_eq!(again.status.code(), Some(2), "records are never overwritten");
}

#[test]
fn sweeps_are_repeated_compared_and_streamed() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    let address = server.address.to_string();
    let events = |command: &str, words: &[&str]| {
        let mut events = stream(&pair, &address, command, words);
        let end = events.pop().expect("an end")["data"].take();
        (events, end)
    };
    let plots = pair.path("plots");
    let plots_text = plots.to_str().expect("text");
    let words = ["--congestion", "cubic,reno", "--repeat", "2", "--time", "100ms", "--to", "128KiB"];
    let (points, end) = events("sweep", &[&words[..], &["--plots", plots_text]].concat());
    assert_eq!(end["schema"], "farshore-link-sweeps/1");
    schema::seen(&end);
    // Two sizes, autotuning, and autotuning paced; the second round begins when the first is over.
    let reported: Vec<_> = points.iter().map(|point| (&point["data"]["congestion"], &point["data"]["round"])).collect();
    assert_eq!(reported.len(), 2 * 2 * 4, "{reported:?}");
    for (part, (name, round)) in reported.chunks(4).zip([("cubic", 1), ("reno", 1), ("cubic", 2), ("reno", 2)]) {
        assert!(part.iter().all(|reported| *reported.0 == name && *reported.1 == round), "{part:?}");
    }
    for (sweep, name) in end["sweeps"].as_array().expect("a list").iter().zip(["cubic", "reno"]) {
        assert_eq!((&sweep["start"]["congestion"], &sweep["start"]["rounds"]), (&name.into(), &2.into()), "{sweep}");
        let all = sweep["sweep"].as_array().into_iter().chain(sweep["others"].as_array()).flatten();
        assert!(all.clone().count() == 4, "{sweep}");
        assert!(all.clone().all(|point| point["rounds_bytes_per_s"].as_array().map(Vec::len) == Some(2)), "{sweep}");
    }
    assert!(end["best"]["congestion"].is_string() && end["advice"].as_array().map(Vec::len) == Some(2), "{end}");
    assert!(plots.join("sweep-rate.svg").is_file() && plots.join("sweep-round-trip.svg").is_file());

    let (parts, end) = events("probe", &["--time", "200ms"]);
    let names: Vec<_> = parts.iter().map(|part| part["event"].as_str().expect("text")).collect();
    assert_eq!(names, ["path", "idle", "load"]);
    assert_eq!(parts[0]["data"]["large_packets"], "pass");
    assert!(parts[1]["data"]["idle_rtt_s"]["count"].as_u64() > Some(0), "{}", parts[1]);
    // The end has all of it.
    for (key, found) in parts.iter().flat_map(|part| part["data"].as_object().expect("an object")) {
        assert_eq!(&end[key], found, "{key}");
    }

    let refused = |words: &[&str], code: i32, hint: &str| {
        let words = [&["link", "sweep", &address, "--time", "100ms"], words].concat();
        let output = farshore(&pair, &words, Side::Near).output().expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(hint), "{words:?}: {said}");
        assert!(output.stdout.is_empty(), "{words:?}");
    };
    refused(&["--from", "0B"], 3, "--from: 0 B is out of bounds");
    refused(&["--repeat", "0"], 3, "--repeat: 0 is out of bounds; use 1 to 99");
    refused(&["--congestion", "cubic,cubic"], 3, "\"cubic\" is named twice");
    refused(&["--congestion", "cubic,No Such"], 3, "--congestion");
    // Told before time is spent on the first.
    refused(&["--congestion", "cubic,no-such"], 2, "net.ipv4.tcp_available_congestion_control");
}

/// A way to the server whose connection of this number (from 0) is cut after 64 KiB.
fn cutting(server: SocketAddr, number: usize) -> SocketAddr {
    let door = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = door.local_addr().expect("bound");
    std::thread::spawn(move || {
        for (at, near) in door.incoming().enumerate() {
            let near = near.expect("accepted");
            let far = TcpStream::connect(server).expect("it listens");
            let bytes_max = if at == number { 64 << 10 } else { u64::MAX };
            for (from, to) in [(&near, &far), (&far, &near)] {
                let [from, mut to] = [from, to].map(|stream| stream.try_clone().expect("a descriptor"));
                std::thread::spawn(move || {
                    // Whatever ends it, it is over.
                    let _ = std::io::copy(&mut (&from).take(bytes_max), &mut to);
                    let _ = [from, to].map(|stream| stream.shutdown(Shutdown::Both));
                });
            }
        }
    });
    address
}

#[test]
fn a_probe_distinguishes_a_path_that_swallows_packets_from_one_that_broke_once() {
    let pair = Pair::new(&PLAN);
    let mut server = LinkServer::start(&pair, &[]);
    let probe = |address: SocketAddr| {
        let words = ["link", "probe", &address.to_string(), "--json", "--time", "200ms"];
        farshore(&pair, &words, Side::Near).output().expect("the binary runs")
    };
    // The first connection that carries data; the one before asks for the test.
    let output = probe(cutting(server.address, 1));
    let said = String::from_utf8_lossy(&output.stderr);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(json["large_packets"], "pass", "{said}");
    server.until("test from");
    // Nor is one that is busy.
    let address = server.address.to_string();
    let words = ["link", "test", &address, "--time", "1h", "--target-rate", "1MB/s", "--connections", "2"];
    let mut client = farshore(&pair, &words, Side::Near).stdout(Stdio::null()).spawn().expect("the binary runs");
    server.until("2 connections");
    let output = probe(server.address);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("it is at a test with"), "{said}");
    interrupt(&client);
    assert!(client.wait().expect("it ended").success());
}

#[test]
fn a_probe_finds_the_largest_packet_that_passes() {
    let name = format!("hole-{}", std::process::id());
    let options = ["--rtt", "10ms", "--name", &name];
    let Some(wan) = WanGuard::start("a_probe_finds_the_largest_packet_that_passes", &options) else { return };
    let pair = wan.pair(&PLAN);
    let _server = wan.serve_tests(&pair);
    // The second is less than any IPv6 path may have.
    for largest in [1337, 777] {
        wan.control(&["drop-above", &largest.to_string()]);
        let output = wan.link(&pair, &["probe", "far", "--json", "--time", "500ms", "--timeout", "2s"]);
        let said = String::from_utf8_lossy(&output.stderr);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        assert_eq!((&json["large_packets"], &json["mtu_bytes"]), (&"vanish".into(), &1500.into()), "{said}");
        assert_eq!((&json["path_mtu_bytes"], &json["path_mtu_is_exact"]), (&largest.into(), &true.into()), "{said}");
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("packets of up to {largest} bytes pass, larger ones vanish")), "{said}");
        // The load went in segments of that size: twelve bytes of it are options.
        assert_eq!(json["segment_bytes"], largest - 40 - 12, "{json}");
        let test = wan.link(&pair, &["test", "far", "--timeout", "2s"]);
        let said = String::from_utf8_lossy(&test.stderr);
        assert!(test.status.code() == Some(2) && said.contains("swallows large packets"), "{said}");
    }
}

#[test]
fn a_probe_sees_that_packets_overtake_each_other() {
    let name = format!("reorder-{}", std::process::id());
    let options = ["--rtt", "20ms", "--rate", "50mbit", "--reorder", "1", "--name", &name];
    let Some(wan) = WanGuard::start("a_probe_sees_that_packets_overtake_each_other", &options) else { return };
    let pair = wan.pair(&PLAN);
    let _server = wan.serve_tests(&pair);
    let output = wan.link(&pair, &["probe", "far", "--json", "--time", "1s"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    for way in ["forward", "reverse"] {
        assert!(json[way]["reorderings"].as_u64() > Some(0), "{way}: {json}");
    }
}

#[test]
fn a_soak_keeps_the_outage_of_its_line() {
    let name = format!("outage-{}", std::process::id());
    let Some(wan) = WanGuard::start("a_soak_keeps_the_outage_of_its_line", &["--rtt", "10ms", "--name", &name]) else {
        return;
    };
    let pair = wan.pair(&PLAN);
    let _server = wan.serve_tests(&pair);
    let mut command = wan.at(Side::Near, env!("CARGO_BIN_EXE_farshore"));
    command.args(["link", "soak", "far", "--rate", "5Mbit", "--time", "9s", "--every", "1s", "--timeout", "1s"]);
    command.args(["--json-stream", "--node", "near", "--config"]).arg(pair.config()).stdout(Stdio::piped());
    let mut soak = command.spawn().expect("the binary runs");
    let said = BufReader::new(soak.stdout.take().expect("piped")).lines();
    let mut events = said.map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("JSON"));
    assert!(events.any(|event| event["event"] == "stretch"), "it ended without one");
    wan.control(&["cut"]);
    // Longer than it waits for a sign of life.
    std::thread::sleep(Duration::from_secs(3));
    wan.control(&["restore"]);
    let end = events.last().expect("an end")["data"].take();
    assert_eq!(soak.wait().expect("it ended").code(), Some(1), "{end}");
    assert_eq!(end["outages"].as_array().map(Vec::len), Some(1), "{end}");
    assert!(end["outages"][0]["seconds"].as_f64() > Some(1.0) && end["interrupted"] == false, "{end}");
    assert!(end["stretches"].as_array().map(Vec::len) > Some(1), "it did not go on: {end}");
}

#[test]
fn what_was_found_before_an_interrupt_is_reported() {
    let mut pair = Pair::new(&PLAN);
    let mut server = LinkServer::start(&pair, &[]);
    let address = server.address.to_string();
    let start = |pair: &Pair, command: &str, words: &[&str]| {
        let words = [&["link", command, &address, "--json"], words].concat();
        farshore(pair, &words, Side::Near).stdout(Stdio::piped()).spawn().expect("the binary runs")
    };
    let reported = |client: Child, codes: &[i32]| {
        interrupt(&client);
        let output = client.wait_with_output().expect("it ended");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let is_expected = output.status.code().is_some_and(|code| codes.contains(&code));
        assert!(is_expected && json["interrupted"] == true, "{}: {json}", output.status);
        json
    };
    let is_free = |pair: &mut Pair| {
        pair.until("the server has noticed", |pair| {
            let words = ["link", "test", &address, "--count", "1"];
            farshore(pair, &words, Side::Near).output().expect("the binary runs").status.success()
        });
    };
    // One size is over when the next begins.
    let sweep = start(&pair, "sweep", &["--time", "2s"]);
    (0..2).for_each(|_| server.until("test from"));
    let json = reported(sweep, &[1]);
    assert!(json["sweep"].as_array().map(Vec::len) >= Some(1), "{json}");
    assert!(
        json["end"]["knee_bytes"].is_null() && json["end"]["recommended_bytes"].is_null(),
        "a part has no knee: {json}"
    );
    is_free(&mut pair);
    let out = pair.path("records");
    let soak = start(&pair, "soak", &["--rate", "1MB/s", "--every", "1s", "--out", out.to_str().expect("text")]);
    (0..3).for_each(|_| server.until("test from"));
    // Where the machine is busy a stretch may be an outlier, and the soak warns of it.
    let json = reported(soak, &[0, 1]);
    let stretches = json["stretches"].as_array().map(Vec::len);
    assert!(stretches >= Some(1), "{json}");
    assert_eq!(Some(fs::read_to_string(&out).expect("records").lines().count()), stretches);
    is_free(&mut pair);
    let probe = start(&pair, "probe", &["--time", "1h"]);
    server.until("catchup, flushes of 64 KiB, 60 min");
    let json = reported(probe, &[1]);
    assert!(json["idle_rtt_s"]["count"].as_u64() > Some(0) && json["large_packets"] == "pass", "{json}");
}

#[test]
fn an_interrupt_is_heard_before_there_is_a_test() {
    let pair = Pair::new(&PLAN);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound").to_string();
    for command in ["test", "sweep", "probe", "soak"] {
        let rate: &[&str] = if command == "soak" { &["--rate", "1MB/s"] } else { &[] };
        let words = [&["link", command, &address, "--timeout", "10m"], rate].concat();
        let client = farshore(&pair, &words, Side::Near).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let _held = silent.accept().expect("dialed");
        interrupt(&client);
        let output = client.wait_with_output().expect("it ended");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("interrupted before the test began"), "{said}");
    }
}
