//! `link serve` and `link test` as whole programs: what is measured is what was asked for, and whatever is wrong is told in a
//! sentence, in bounded time.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::rc::Rc;
use std::time::Duration;

use crate::common::line::{LinkServer, PLAN, farshore, interrupt, send as send_signal, stream, streaming};
use crate::common::{DEADLINE, Pair, PairPlan, Side, is_root, must_skip, must_skip_stores, schema};
use engine::wire::{FrameHeader, FrameKind, flags};
use engine::{FramePayload, GroupId, LinkId, NodeId, SendPayload, SessionId};
use forgetful::{Fate, ForgetfulStore};
use host::buffers::Pool;
use host::link::single::{self, DialRequest, LineCredentials, SingleConnection};
use host::link::{ClusterSecret, FrameOptions, LinkEvents, LinkSender, PeerInfo, SocketOptions};
use rustix::process::Signal;
use serde_json::Value;

fn test(pair: &Pair, address: &str, words: &[&str]) -> Output {
    let words = [&["link", "test", address], words].concat();
    farshore(pair, &words, Side::Near).output().expect("the binary runs")
}

#[track_caller]
fn measured(pair: &Pair, server: &LinkServer, words: &[&str]) -> Value {
    let output = test(pair, &server.address.to_string(), &[words, &["--json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{words:?}: {errors}");
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}: {errors}"));
    // That of several modes is as long as their number.
    if words.contains(&"all") {
        schema::check(&json);
    } else {
        schema::seen(&json);
    }
    json
}

/// It ends with this code and says this, and nothing else.
#[track_caller]
fn refused(pair: &Pair, address: &str, words: &[&str], code: i32, hint: &str) {
    let output = test(pair, address, words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    assert!(said.contains(hint), "{words:?}: {hint:?} is not in {said}");
}

#[test]
fn every_mode_carries_what_was_asked_for() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    for mode in ["sync", "nearsync", "async", "catchup"] {
        let words = ["--mode", mode, "--count", "50", "--flush-size", "16KiB", "--time", "60s"];
        let json = measured(&pair, &server, &words);
        assert_eq!(json["schema"], "farshore-link-test/1");
        for end in ["sent", "received"] {
            assert_eq!(json["end"][end]["bytes"], 50 * (16 << 10), "{mode}: {json}");
            assert_eq!(json["end"][end]["flushes"], 50, "{mode}");
        }
        assert_eq!(json["end"]["response_s"]["count"], 50, "{mode}");
        assert_eq!(json["end"]["confirmed_s"]["count"], 50, "{mode}");
        assert!(json["end"]["received"]["bytes_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{mode}: {json}");
    }
    // What plan reads is what was measured.
    let output = test(&pair, &server.address.to_string(), &["--mode", "catchup", "--count", "50", "--json"]);
    let link = plan::inputs::link(&String::from_utf8_lossy(&output.stdout)).expect("a link");
    assert!(link.goodput().bytes_per_s() > 0.0 && link.rtt.0 > 0.0, "{link:?}");
    // Its writer is its disk's: it never waits for the line, and what finds the queue full is tracked.
    let words =
        ["--mode", "superasync", "--disk", "100MB/s,0s", "--count", "64", "--flush-size", "1MiB", "--queue", "1MiB"];
    let json = measured(&pair, &server, &words);
    let (sent, tracked) = (&json["end"]["sent"]["flushes"], &json["end"]["sent"]["tracked_flushes"]);
    assert_eq!(sent.as_u64().unwrap_or(0) + tracked.as_u64().unwrap_or(0), 64, "{json}");
    assert_eq!(json["end"]["received"]["flushes"], *sent);
}

#[test]
fn every_mode_is_measured_beside_the_others() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    let words = ["--mode", "all", "--disk", "100MB/s,1ms", "--count", "5"];
    let json = measured(&pair, &server, &words);
    assert_eq!(json["schema"], "farshore-link-modes/1");
    let tests = json["tests"].as_array().expect("tests");
    let modes: Vec<_> = tests.iter().map(|test| &test["start"]["terms"]["mode"]).collect();
    assert_eq!(modes, ["sync", "nearsync", "async", "superasync", "catchup"]);
    assert!(tests.iter().all(|test| test["end"]["sent"]["flushes"] == 5), "{json}");
    let page = test(&pair, &server.address.to_string(), &words);
    let page = String::from_utf8_lossy(&page.stdout);
    let rows = page.lines().filter(|line| modes.iter().any(|mode| line.starts_with(mode.as_str().expect("text"))));
    assert_eq!(rows.count(), 5, "{page}");
    refused(&pair, "127.0.0.1:1", &["--mode", "all"], 3, "never waits for the link");
    // What there was until somebody asked it to stop.
    let mut server = LinkServer::start(&pair, &[]);
    let words = ["link", "test", &server.address.to_string(), "--mode", "all", "--target-rate", "1MB/s", "--json"];
    let mut client = farshore(&pair, &[&words[..], &["--time", "1s"]].concat(), Side::Near);
    let client = client.stdout(Stdio::piped()).spawn().expect("the binary runs");
    server.until("nearsync, flushes");
    interrupt(&client);
    let output = client.wait_with_output().expect("it ended");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    schema::seen(&json);
    assert!(output.status.code() == Some(1) && json["interrupted"] == true, "{json}");
    assert!(matches!(json["tests"].as_array().map(Vec::len), Some(1 | 2)), "{json}");
}

#[test]
fn directions_connections_sizes_and_packing_are_as_asked() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    let sizes = pair.path("sizes");
    fs::write(&sizes, "4KiB 3\n1537KiB 1 # three parts\n").expect("written");
    let sizes = sizes.to_str().expect("text");
    let common = ["--count", "20", "--mode", "async", "--connections", "3", "--flush-dist", sizes];
    for direction in [&["--reverse"][..], &["--bidir"]] {
        let json = measured(&pair, &server, &[&common[..], direction].concat());
        assert_eq!(json["end"]["received"]["flushes"], 60, "{json}");
        assert_eq!(json["end"]["flush_bytes"]["max"], 1537.0 * 1024.0);
        assert_eq!(json["reverse"].is_object(), direction == ["--bidir"]);
    }
    let json = measured(
        &pair,
        &server,
        &["--count", "8", "--flush-size", "1MiB", "--compress", "lz4", "--compressible", "75%"],
    );
    let [plain, wire] = ["plain_bytes", "wire_bytes"].map(|key| json["end"]["sent"][key].as_u64().expect("a number"));
    assert!(wire * 3 < plain, "{wire} of {plain}");
    // What is not said is the configuration's.
    let packing = Pair::new(&PairPlan { head: "[link]\ncompression = \"lz4\"\n", ..PLAN });
    let server = LinkServer::start(&packing, &[]);
    let words = ["--count", "8", "--flush-size", "1MiB", "--compressible", "75%"];
    let json = measured(&packing, &server, &words);
    assert_eq!(json["start"]["terms"]["compression"], "lz4");
    assert_eq!(
        measured(&packing, &server, &["--count", "1", "--compress", "off"])["start"]["terms"]["compression"],
        "off"
    );
}

#[test]
fn a_begin_that_is_omitted_is_in_no_figure() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    let words = ["--target-rate", "10MB/s", "--omit", "1s", "--time", "1s"];
    for direction in [&[][..], &["--reverse"]] {
        let json = measured(&pair, &server, &[&words[..], direction].concat());
        assert_eq!(json["start"]["terms"]["omit_s"], 1.0);
        // As much was written before, which neither end tells.
        for end in ["sent", "received"] {
            let reported = &json["end"][end];
            let bytes = reported["bytes"].as_f64().expect("a number");
            assert!((1e5..15e6).contains(&bytes) && reported["seconds"].as_f64() < Some(1.6), "{end}: {reported}");
        }
        let flushes = &json["end"]["sent"]["flushes"];
        for counted in ["response_s", "flush_bytes"] {
            assert_eq!(&json["end"][counted]["count"], flushes, "{counted}");
        }
        both_ends_agree(&json["end"]);
        assert!(json["intervals"].as_array().is_some_and(|seconds| seconds.len() <= 2), "{json}");
    }
    // So many that count, however many came before.
    for (count, direction) in [(7, "--reverse"), (1, "--reverse"), (1, "--bidir")] {
        let text = count.to_string();
        let words = ["--omit", "300ms", "--count", &text, "--time", "60s", direction];
        let json = measured(&pair, &server, &words);
        assert_eq!(json["end"]["sent"]["flushes"], count, "{json}");
        both_ends_agree(&json["end"]);
    }
}

/// What counts is in the stream, not in each end's clock.
fn both_ends_agree(end: &Value) {
    for what in ["flushes", "bytes"] {
        assert_eq!(end["sent"][what], end["received"][what], "{end}");
    }
    assert!(end["received"]["bytes_per_s"].as_f64() > Some(0.0), "{end}");
}

#[test]
fn several_writers_share_a_connection() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    // One after the other they would take 800 ms at least.
    let words = ["--mode", "sync", "--remote-disk", "1GB/s,20ms", "--count", "40", "--depth", "8", "--time", "60s"];
    let json = measured(&pair, &server, &words);
    assert_eq!(json["end"]["received"]["flushes"], 40, "{json}");
    assert!(json["end"]["response_s"]["min"].as_f64() >= Some(0.02), "{json}");
    assert!(json["end"]["sent"]["seconds"].as_f64() < Some(0.75), "{json}");
    // So many that count, of all of them together and of both ends.
    let words = ["--depth", "3", "--connections", "2", "--bidir", "--omit", "300ms", "--count", "7", "--time", "60s"];
    let json = measured(&pair, &server, &words);
    for way in ["end", "reverse"] {
        assert_eq!(json[way]["sent"]["flushes"], 14, "{json}");
        assert_eq!(json[way]["response_s"]["count"], 14, "{json}");
    }
}

#[test]
fn writers_pause_and_their_pauses_are_reported() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    // Also of a mode that waits for nothing else.
    let words = ["--mode", "superasync", "--count", "5", "--gap", "50ms", "--time", "60s"];
    let json = measured(&pair, &server, &words);
    assert!(json["end"]["waits"]["pace_s"].as_f64() >= Some(0.25), "{json}");
    assert_eq!(json["end"]["limiter"], "gap");
    // Two flushes with a pause each take two pauses: else their rate is not what goes on like that.
    for paced in [["--gap", "1s"], ["--target-rate", "65536B/s"]] {
        let json = measured(&pair, &server, &[&["--count", "2", "--time", "60s"][..], &paced].concat());
        for end in ["sent", "received"] {
            assert!(json["end"][end]["seconds"].as_f64() > Some(1.5), "{paced:?}: {json}");
        }
    }
    // Nor are there more than that when the time ends in the middle of a turn.
    let json = measured(&pair, &server, &["--target-rate", "131072B/s", "--time", "1.2s"]);
    assert!(json["end"]["received"]["bytes_per_s"].as_f64() < Some(1.1 * 131_072.0), "{json}");
    // Nobody waits for a pause when somebody wants it to end.
    let server = LinkServer::start(&pair, &["--once"]);
    let address = server.address.to_string();
    let words = ["link", "test", &address, "--gap", "1m", "--time", "1h", "--timeout", "10m"];
    let (mut client, mut events) = streaming(&pair, &words);
    assert!(events.next().is_some_and(|event| event["event"] == "start"));
    interrupt(&client);
    let began = std::time::Instant::now();
    assert!(events.last().is_some_and(|event| event["event"] == "end"));
    assert!(client.wait().expect("it ended").success());
    assert!(began.elapsed() < Duration::from_secs(30), "it waited for the pause");
}

#[test]
fn nobody_waits_for_modelled_disks_and_queues_after_an_interrupt() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    let address = server.address.to_string();
    // Each of the flushes on their way takes almost ten seconds there, or here; or 64 MiB of them take minutes.
    let slow =
        [&["--remote-disk", "6.6kB/s,0s"][..], &["--disk", "6.6kB/s,0s"], &["--disk", "1GB/s,0s", "--pace", "200kB/s"]];
    for disk in slow {
        let words = ["link", "test", &address, "--mode", "async", "--time", "1h"];
        let (mut client, mut events) = streaming(&pair, &[&words[..], disk].concat());
        assert!(events.any(|event| event["event"] == "interval"));
        interrupt(&client);
        let began = std::time::Instant::now();
        let end = events.last().expect("an end");
        assert!(client.wait().expect("it ended").success());
        assert!(began.elapsed() < Duration::from_secs(60), "it waited for {disk:?}");
        let end = &end["data"]["end"];
        assert!(end["sent"]["bytes"].as_u64() <= end["received"]["bytes"].as_u64(), "more than arrived: {end}");
        // What was cut short is no measured time.
        let times = match disk {
            ["--remote-disk", _] => &end["confirmed_s"],
            ["--disk", _] => &end["response_s"],
            _ => continue,
        };
        assert!(times["count"] == 0 || times["min"].as_f64() > Some(9.0), "{end}");
    }
}

#[test]
fn intervals_and_probes_are_as_long_as_asked() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    let words = ["--target-rate", "10MB/s", "--time", "2s", "--interval", "200ms", "--probe-interval", "5ms"];
    let json = measured(&pair, &server, &words);
    assert!(json["intervals"].as_array().is_some_and(|list| (4..=11).contains(&list.len())), "{json}");
    // A tenth of a second apart there were 20 at most.
    assert!(json["loaded_rtt_s"]["count"].as_u64() > Some(40), "{json}");
    let output = test(&pair, &server.address.to_string(), &[&words[..], &["--bidir"]].concat());
    let page = String::from_utf8_lossy(&output.stdout);
    let mut lines = page.lines();
    assert!(lines.next().is_some_and(|head| head.contains("to far end") && head.contains("round trip")), "{page}");
    let reported: Vec<_> = lines.take_while(|line| line.matches(" MB/s").count() == 2).collect();
    assert!(reported.len() >= 4, "{page}");
}

#[test]
fn what_the_kernel_holds_and_how_soon_it_repeats_are_as_asked() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    let words = ["--count", "5", "--unsent", "96KiB", "--min-rto", "40ms", "--time", "60s"];
    let output = test(&pair, &server.address.to_string(), &[&words[..], &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) {
        assert!(said.contains("TCP_RTO_MIN_US") && said.contains("Linux 6.15"), "{said}");
        return;
    }
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    for end in ["near", "far"] {
        let socket = &json["start"]["sockets"][end];
        assert_eq!(socket["unsent_bytes"], 96 << 10, "{socket}");
        // In whole ticks of the kernel's.
        assert!((0.04..=0.05).contains(&socket["min_rto_s"].as_f64().expect("a number")), "{socket}");
    }
    let page = test(&pair, &server.address.to_string(), &words).stdout;
    let page = String::from_utf8_lossy(&page);
    assert!(page.contains("held unsent at most: near 96 KiB, far 96 KiB"), "{page}");
    assert!(page.contains("shortest retransmission pause: near 40 ms, far 40 ms"), "{page}");
}

#[test]
fn a_stream_reports_as_it_goes() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    let address = server.address.to_string();
    for (direction, moved) in [("--bidir", "acked_bytes"), ("--reverse", "received_bytes")] {
        let lines = stream(&pair, &address, "test", &[direction, "--target-rate", "10MB/s", "--time", "3s"]);
        let names: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
        assert_eq!((names[0], names[names.len() - 1]), ("start", "end"), "{names:?}");
        assert!(names.len() >= 3 && names[1..names.len() - 1].iter().all(|name| *name == "interval"), "{names:?}");
        assert!(lines[1]["data"][moved].as_f64() > Some(0.0), "{}", lines[1]);
        assert!(lines[0]["data"]["mtu_bytes"].as_f64() > Some(0.0), "{}", lines[0]);
        assert_eq!(lines[names.len() - 1]["data"]["schema"], "farshore-link-test/1");
    }
    let lines = stream(&pair, &address, "soak", &["--rate", "1MB/s", "--time", "1s", "--every", "300ms"]);
    let names: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert!(names.len() >= 4 && names[0] == "start" && names[1] == "stretch", "{names:?}");
    let end = &lines[names.len() - 1];
    assert_eq!((&end["event"], &end["data"]["schema"]), (&"end".into(), &"farshore-link-soak/1".into()));
    assert_eq!(end["data"]["stretches"].as_array().map(Vec::len), Some(names.len() - 2), "{end}");
}

/// A user who may do nothing that needs a privilege.
const NOBODY: u32 = 65534;

#[test]
fn what_the_kernel_does_not_allow_is_reported_in_a_sentence() {
    let binary = env!("CARGO_BIN_EXE_farshore");
    let as_nobody = |program: &str, words: &[&str]| {
        let mut command = Command::new("setpriv");
        let nobody = NOBODY.to_string();
        command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups", program]).args(words);
        command.stdin(Stdio::null()).env("NO_COLOR", "1").output().expect("setpriv runs")
    };
    let is_reached = || as_nobody(binary, &["--version"]).status.success();
    let needed = [("root", is_root()), ("a binary that everybody may run", is_root() && is_reached())];
    if must_skip("what_the_kernel_does_not_allow_is_reported_in_a_sentence", &needed) {
        return;
    }
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    let (address, config) = (server.address.to_string(), pair.config());
    fs::set_permissions(pair.path("."), fs::Permissions::from_mode(0o755)).expect("chmod");
    for name in [pair.path("secret"), config.clone()] {
        std::os::unix::fs::chown(name, Some(NOBODY), Some(NOBODY)).expect("chown");
    }
    let reported = |command: &str, words: &[&str], code: i32, hint: &str| {
        let node = if command == "serve" { "far" } else { "near" };
        let config = config.to_str().expect("text");
        let output = as_nobody(binary, &[&["link", command], words, &["--node", node, "--config", config]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(hint) && said.lines().count() == 1, "{words:?}: {hint:?} is not all of: {said}");
    };
    let test = |words: &[&str], code, hint: &str| {
        reported("test", &[&[&address, "--time", "1s", "--count", "3"], words].concat(), code, hint);
    };
    let setting = |name: &str| fs::read_to_string(format!("/proc/sys/net/{name}")).expect("a setting");
    test(&["--congestion", "no-such"], 2, "net.ipv4.tcp_available_congestion_control lists what there is");
    let allowed = setting("ipv4/tcp_allowed_congestion_control");
    let is_allowed = |name: &&str| allowed.split_whitespace().any(|other| other == *name);
    let available = setting("ipv4/tcp_available_congestion_control");
    // Which may be all of them.
    if let Some(name) = available.split_whitespace().find(|name| !is_allowed(name)) {
        test(&["--congestion", name], 2, "allow it in net.ipv4.tcp_allowed_congestion_control");
    }
    let most: u64 = setting("core/wmem_max").trim().parse().expect("a number");
    if most < 512 << 20 {
        test(&["--sndbuf", "512MiB"], 1, "net.core.wmem_max");
    }
    let trial = pair.path("near").join("trial");
    test(&["--disk-file", trial.to_str().expect("text")], 2, "may not be written by this user");
    let first: u16 = setting("ipv4/ip_unprivileged_port_start").trim().parse().expect("a number");
    if first > 1 {
        reported("serve", &["--listen", "127.0.0.1:1"], 2, "net.ipv4.ip_unprivileged_port_start");
    }
}

#[test]
fn sockets_are_reported_at_each_moment() {
    let pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    let words = ["--count", "5", "--sndbuf", "64KiB", "--rcvbuf", "96KiB", "--nagle", "--congestion", "cubic"];
    let json = measured(&pair, &server, &words);
    for end in ["near", "far"] {
        let socket = &json["start"]["sockets"][end];
        for (buffer, asked) in [("send", 64 << 10), ("receive", 96 << 10)] {
            assert_eq!(socket[buffer]["requested_bytes"], asked, "{socket}");
            assert_eq!(socket[buffer]["connected_bytes"], 2 * asked, "{socket}");
            assert!(socket[buffer]["created_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{socket}");
        }
        assert_eq!((&socket["congestion"], &socket["nagle"]), (&"cubic".into(), &true.into()));
    }
}

#[test]
fn a_real_disk_is_written_and_left_as_it_was() {
    let mut pair = Pair::new(&PLAN);
    let (near, far) = (pair.path("near-trial"), pair.path("far-trial"));
    let server = LinkServer::start(&pair, &["--disk-file", far.to_str().expect("text")]);
    let near_text = near.to_str().expect("text");
    let words = ["--mode", "sync", "--count", "5", "--disk-file", near_text, "--remote-disk", "file"];
    let output = test(&pair, &server.address.to_string(), &words);
    let said = String::from_utf8_lossy(&output.stderr);
    // Where the file system does not write directly that is told, and nothing is left either.
    assert!(output.status.success() || said.contains("O_DIRECT"), "{said}");
    assert!(!near.exists(), "it was removed");
    pair.until("the far end removed its own", |_| !far.exists());
    fs::write(&near, "somebody's").expect("written");
    refused(&pair, &server.address.to_string(), &words, 3, "exists already");
    assert_eq!(fs::read_to_string(&near).expect("still there"), "somebody's");
    let serve = farshore(&pair, &["link", "serve", "--disk-file", near_text], Side::Far).output();
    let serve = serve.expect("the binary runs");
    let said = String::from_utf8_lossy(&serve.stderr);
    assert!(serve.status.code() == Some(3) && said.contains("exists already"), "{said}");
}

/// It hangs as a disk does whose power fails.
#[test]
fn a_disk_that_hangs_ends_the_test() {
    if must_skip_stores("a_disk_that_hangs_ends_the_test") {
        return;
    }
    let pair = Pair::new(&PLAN);
    for (node, location) in [(Side::Near, ": "), (Side::Far, ": at the far end ")] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = ForgetfulStore::mount(directory.path()).expect("FUSE and root");
        let file = directory.path().join("trial").display().to_string();
        let (near, far) = (["--disk-file", &file], ["--remote-disk", "file"]);
        let [near, far]: [&[&str]; 2] = if node == Side::Near { [&near, &[]] } else { [&far, &near] };
        let mut server = LinkServer::start(&pair, far);
        let address = server.address.to_string();
        let words = [&["link", "test", &address, "--mode", "sync", "--time", "1h", "--timeout", "2s"], near].concat();
        let client = farshore(&pair, &words, Side::Near).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut client = client.expect("the binary runs");
        server.until("test from");
        store.cut_power(Fate::AllLost);
        let mut errors = BufReader::new(client.stderr.as_mut().expect("piped")).lines().map(|line| line.expect("text"));
        let said = errors.find(|line| !line.contains("warning")).expect("a sentence");
        let hung = format!("did not come to its end{location}{file} has not answered for 2s: see the kernel log");
        // The processes cannot end before the requests do.
        store.fail_requests();
        assert!(said.contains(&hung), "{said}");
        assert_eq!(client.wait().expect("it ends").code(), Some(2));
    }
}

#[test]
fn wrong_usage_is_reported_before_anything_is_dialed() {
    let pair = Pair::new(&PLAN);
    for (words, hint) in [
        (&["--flush-size", "0"][..], "out of bounds; use 512 B to 64 MiB"),
        (&["--flush-size", "65MiB"], "out of bounds"),
        (&["--sndbuf", "0"], "--sndbuf"),
        (&["--rcvbuf", "2GiB"], "--rcvbuf"),
        (&["--mode", "snyc"], "is not a mode"),
        (&["--congestion", "no such"], "--congestion"),
        (&["--time", "0s"], "--time"),
        (&["--omit", "11m"], "--omit: 11 min"),
        (&["--count", "0"], "--count"),
        (&["--connections", "0"], "use 1 to 64"),
        (&["--target-rate", "0Mbit"], "out of range"),
        (&["--compress", "zip"], "--compress"),
        (&["--timeout", "1ms"], "use 1s to 10m"),
        (&["--mode", "superasync"], "never waits for the link"),
        (&["--flush-dist", "/no/such/file"], "cannot be read"),
        (&["--disk", "200MB/s"], "--disk"),
        (&["--depth", "0"], "--depth: 0 is out of bounds; use 1 to 256"),
        (&["--depth", "256", "--connections", "3"], "are 768 writers; use 512 at most"),
        (&["--gap", "2m"], "--gap: 2 min is out of bounds"),
        (&["--gap", "5"], "has no unit"),
        (&["--gap", "-1s"], "\"-1s\" is below zero"),
        (&["--interval", "10ms"], "use 100ms to 1h"),
        (&["--interval", "100ms", "--time", "1h"], "36000 intervals are more than the 3600"),
        (&["--probe-interval", "0s"], "use 1ms to 1m"),
        (&["--unsent", "1GiB"], "--unsent: 1 GiB is out of bounds"),
        (&["--min-rto", "1s"], "--min-rto: 1 s is out of bounds; use 20ms to 200ms"),
    ] {
        refused(&pair, "127.0.0.1:1", words, 3, hint);
    }
    for (host, hint) in [("", "is no HOST"), ("host:port", "is no HOST"), ("near", "is this node")] {
        refused(&pair, host, &[], 3, hint);
    }
}

#[test]
fn whoever_is_not_there_or_not_ours_is_reported() {
    let mut pair = Pair::new(&PLAN);
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    refused(&pair, &nobody.to_string(), &[], 2, "is 'farshore link serve' running there");
    refused(&pair, "no-such-host.invalid", &["--timeout", "2s"], 2, "cannot resolve");
    // Somebody who accepts and says nothing, or something else.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    refused(&pair, &silent.local_addr().expect("bound").to_string(), &["--timeout", "1s"], 2, "within 1s");
    let web = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = web.local_addr().expect("bound").to_string();
    let answer = std::thread::spawn(move || {
        let (mut stream, _) = web.accept().expect("dialed");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").expect("written");
        // Until it has had enough.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    refused(&pair, &address, &[], 2, "not Farshore's");
    answer.join().expect("it answered");
    pair.serve(Side::Far);
    let daemon = pair.address(Side::Far).to_string();
    refused(&pair, &daemon, &[], 2, "answers there with its daemon");
    // Another secret.
    let server = LinkServer::start(&pair, &[]);
    let other = Pair::new(&PLAN);
    fs::write(other.path("secret"), [b'x'; 48]).expect("written");
    refused(&other, &server.address.to_string(), &[], 2, "secret");
}

#[test]
fn the_serving_end_keeps_its_own_bounds() {
    let mut pair = Pair::new(&PLAN);
    let mut server = LinkServer::start(&pair, &["--max-time", "5s"]);
    let address = server.address.to_string();
    refused(&pair, &address, &["--time", "6s"], 3, "serves tests of 5 s at most");
    refused(&pair, &address, &["--time", "1s", "--remote-disk", "file"], 3, "given no file");
    // Unauthenticated peers and rubbish do not keep it from the next test.
    let mut unauthenticated = TcpStream::connect(server.address).expect("it listens");
    unauthenticated.write_all(&[0xff; 4096]).expect("written");
    let _silent = TcpStream::connect(server.address).expect("it listens");
    let long = [&["link", "test", &address][..], &["--time", "4s", "--target-rate", "1MB/s"]].concat();
    let mut first = farshore(&pair, &long, Side::Near).stdout(Stdio::null()).spawn().expect("the binary runs");
    assert!(server.line().starts_with("test from"));
    pair.until("the second is turned away", |pair| {
        let said = test(pair, &address, &["--count", "1", "--time", "1s"]).stderr;
        String::from_utf8_lossy(&said).contains("it is at a test with")
    });
    assert!(first.wait().expect("it ended").success());
    assert!(test(&pair, &address, &["--count", "1", "--time", "1s"]).status.success());
}

#[test]
fn whoever_is_turned_away_again_and_again_is_reported_once() {
    let mut pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &[]);
    for _ in 0..5 {
        let mut unauthenticated = TcpStream::connect(server.address).expect("it listens");
        unauthenticated.write_all(b"GET / HTTP/1.1\r\nHost: far\r\n\r\n").expect("written");
        // Until it has had enough.
        let _ = unauthenticated.read_to_end(&mut Vec::new());
    }
    let other = Pair::new(&PLAN);
    fs::write(other.path("secret"), [b'x'; 48]).expect("written");
    refused(&other, &server.address.to_string(), &[], 2, "secret");
    // The other one is another matter, and is told after all of the first one's.
    pair.until("both are told", |_| server.complaints("refused 127.0.0.1") == 2);
    assert_eq!(server.complaints("not Farshore's"), 1);
}

#[test]
fn interrupts_end_a_test_with_both_reports() {
    let pair = Pair::new(&PLAN);
    for at_far_end in [false, true] {
        let mut server = LinkServer::start(&pair, &["--once"]);
        let address = server.address.to_string();
        let words = ["link", "test", &address, "--time", "1h", "--target-rate", "1MB/s"];
        let (mut client, mut events) = streaming(&pair, &words);
        assert!(server.line().starts_with("test from"));
        assert!(events.next().is_some_and(|event| event["event"] == "start"));
        if at_far_end {
            server.interrupt();
        } else {
            interrupt(&client);
        }
        let json = events.last().expect("it ends with a report")["data"].take();
        assert!(client.wait().expect("it ended").success(), "{json}");
        assert!(json["interrupted"].is_string() && json["lost"].is_null(), "{json}");
        assert_eq!(json["end"]["sent"]["bytes"], json["end"]["received"]["bytes"], "{json}");
        let (code, said) = server.end();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("received  NEARSYNC") && said.contains("interrupted"), "{said}");
    }
}

#[test]
fn a_peer_that_dies_is_reported_with_what_there_was() {
    let pair = Pair::new(&PLAN);
    let mut server = LinkServer::start(&pair, &[]);
    let address = server.address.to_string();
    let words = ["link", "test", &address, "--time", "1h", "--target-rate", "10MB/s", "--json-stream"];
    let client = farshore(&pair, &words, Side::Near).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut client = client.expect("the binary runs");
    assert!(server.line().starts_with("test from"));
    // Both ends have begun.
    let mut events = BufReader::new(client.stdout.take().expect("piped"));
    events.read_line(&mut String::new()).expect("text");
    server.child.kill().expect("it runs");
    let mut end = String::new();
    events.read_to_string(&mut end).expect("text");
    let output = client.wait_with_output().expect("it ended");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("did not come to its end"), "{errors}");
    let end: Value = end.lines().last().map(|line| serde_json::from_str(line).expect("JSON")).expect("an end");
    let data = &end["data"];
    assert!(end["event"] == "end" && data["lost"].is_string() && data["end"]["sent"].is_object(), "{end}");
}

#[test]
fn the_timeout_of_whoever_asks_holds_for_both_ends() {
    let mut pair = Pair::new(&PLAN);
    let mut server = LinkServer::start(&pair, &["--timeout", "10m"]);
    let address = server.address.to_string();
    let words = ["link", "test", &address, "--time", "1h", "--target-rate", "1MB/s", "--timeout", "1s"];
    let mut client = farshore(&pair, &words, Side::Near).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let client = client.as_mut().expect("the binary runs");
    server.until("test from");
    send_signal(client, Signal::STOP);
    pair.until("the far end gives it up", |_| server.complaints("nothing was heard for 1s") == 1);
    send_signal(client, Signal::CONT);
    assert_eq!(client.wait().expect("it ended").code(), Some(2));
}

#[test]
fn certificates_decide_who_may_test() {
    let plan = PairPlan { head: "[tls]\ndirectory = \"tls\"\n", ..PLAN };
    let mut pair = Pair::new(&plan);
    pair.certify();
    let server = LinkServer::start(&pair, &[]);
    let json = measured(&pair, &server, &["--mode", "sync", "--count", "5"]);
    assert_eq!((&json["start"]["peer"], &json["start"]["encrypted"]), (&"far".into(), &true.into()), "{json}");
    let unauthenticated = Pair::new(&plan);
    unauthenticated.certify();
    refused(&unauthenticated, &server.address.to_string(), &[], 2, "ca.crt");
    // A secret is of no use there, nor is a certificate where a secret is asked for.
    refused(&Pair::new(&PLAN), &server.address.to_string(), &[], 2, "TLS");
    let plain = Pair::new(&PLAN);
    let unencrypted = LinkServer::start(&plain, &[]);
    refused(&pair, &unencrypted.address.to_string(), &[], 2, "TLS");
    assert_eq!(measured(&pair, &server, &["--count", "1"])["lost"], Value::Null, "the next one is served");
    // Another authority in the same place is taken up as it comes.
    fs::rename(pair.path("tls"), pair.path("old")).expect("moved");
    fs::rename(unauthenticated.path("tls"), pair.path("tls")).expect("moved");
    pair.until("the new certificates are taken up", |pair| {
        test(pair, &server.address.to_string(), &["--count", "1"]).status.success()
    });
}

/// Hears nothing: what it sent is what matters.
struct Deaf;

impl LinkEvents for Deaf {
    fn up(&self, _: NodeId, _: LinkId, _: SessionId, _: Rc<LinkSender>, _: PeerInfo) {}
    fn down(&self, _: LinkId, _: String) {}
    fn frame(&self, _: LinkId, _: FrameHeader, _: FramePayload) {}
    fn heard(&self, _: LinkId) {}
    fn sent(&self, _: LinkId, _: u64) {}
    fn turn_done(&self) {}
    fn refused(&self, _: String, _: String) {}
}

/// One who has the nodes' own secret, and may be hostile all the same.
struct Insider {
    credentials: LineCredentials,
    runtime: tokio::runtime::Runtime,
}

impl Insider {
    fn new() -> Insider {
        let credentials =
            LineCredentials { cluster: "test".to_owned(), tls: None, secret: Some(ClusterSecret::new(&[b's'; 48])) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Insider { credentials, runtime }
    }

    async fn dial(&self, address: SocketAddr) -> SingleConnection {
        let (address, socket) = (address.to_string(), SocketOptions::default());
        let wish = DialRequest {
            address: &address,
            peers: &[],
            socket: &socket,
            flow: FrameOptions::default(),
            timeout: DEADLINE,
        };
        single::dial(&self.credentials, &wish).await.expect("let in")
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::task::LocalSet::new().block_on(&self.runtime, work)
    }
}

fn send(solo: &SingleConnection, kind: FrameKind, fill: impl FnOnce(&mut FrameHeader), payload: &[u8]) {
    let mut header = FrameHeader::new(kind, solo.session, GroupId(0));
    fill(&mut header);
    let payload = if payload.is_empty() { SendPayload::None } else { SendPayload::Control(payload.to_vec()) };
    solo.sender.push(header, payload);
    solo.sender.flush();
}

/// The other end closes it.
async fn ends(solo: SingleConnection) {
    let ended = tokio::time::timeout(DEADLINE, solo.run(&Pool::new(1 << 20), &Deaf)).await;
    assert!(ended.is_ok(), "it is still connected");
}

#[test]
fn an_authenticated_peer_that_sends_rubbish_is_cut_off() {
    let mut pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &["--timeout", "2s"]);
    let insider = Insider::new();
    let mut rubbish = |kind, fill: fn(&mut FrameHeader), payload: &[u8], why: &str| {
        insider.run(async {
            let solo = insider.dial(server.address).await;
            send(&solo, kind, fill, payload);
            ends(solo).await;
        });
        // Silence would have ended it as well.
        pair.until(why, |_| server.complaints(why) == 1);
    };
    let last: fn(&mut FrameHeader) = |header| header.flags = flags::LAST;
    rubbish(FrameKind::Pull, |_| {}, &[], "(Pull) that has no place in a test");
    rubbish(FrameKind::GroupState, last, b"no JSON", "does not understand (expected value");
    rubbish(FrameKind::GroupState, last, b"\"\x1b[2J\"", "does not understand (control character");
    rubbish(FrameKind::GroupState, last, b"\"go\"", "it spoke out of turn");
    rubbish(FrameKind::GroupState, last, b"{\"join\":{\"token\":7}}", "it joins a test that is not there");
    rubbish(FrameKind::Ack, |_| {}, &[7; 49], "the other end confirmed what was never sent");
    rubbish(FrameKind::SyncBegin, |_| {}, &[], "data before there was a test");
    rubbish(FrameKind::SyncEnd, |header| header.offset = 1, &[], "ended before it was complete");
    rubbish(FrameKind::Zero, |_| {}, &[], "(Zero) that has no place in a test");
    assert_eq!(measured(&pair, &server, &["--count", "3"])["end"]["received"]["flushes"], 3, "the next one is served");
}

#[test]
fn an_authenticated_peer_that_asks_for_nothing_is_let_go() {
    let mut pair = Pair::new(&PLAN);
    let server = LinkServer::start(&pair, &["--timeout", "1s"]);
    let insider = Insider::new();
    insider.run(async {
        let solo = insider.dial(server.address).await;
        let (sender, session) = (solo.sender.clone(), solo.session);
        let alive = async move {
            loop {
                sender.push(
                    FrameHeader::new(FrameKind::Heartbeat, session, GroupId(0)),
                    SendPayload::Control(vec![7; 8]),
                );
                sender.flush();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::select! { () = ends(solo) => {}, () = alive => {} }
    });
    pair.until("it says so", |_| server.complaints("it asked for no test within 6s") == 1);
    drop(server);
    // Nor are there many of them, however long they may be silent.
    let server = LinkServer::start(&pair, &["--timeout", "5m"]);
    insider.run(async {
        let mut held = Vec::new();
        for _ in 0..64 {
            held.push(insider.dial(server.address).await);
        }
        ends(insider.dial(server.address).await).await;
    });
    pair.until("it says so", |_| server.complaints("64 connections have asked for nothing yet") == 1);
    assert_eq!(measured(&pair, &server, &["--count", "3"])["end"]["received"]["flushes"], 3, "the next one is served");
}
