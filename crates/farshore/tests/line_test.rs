//! `link serve` and `link test` as whole programs: what is measured is what was asked for, and whatever is wrong is told in a
//! sentence, in bounded time.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;
use std::time::Duration;

use common::wan::Wan;
use common::{Node, Pair, Plan, is_root, must_skip};
use engine::wire::{Header, Kind, flags};
use engine::{FramePayload, GroupId, LinkId, NodeId, SendPayload, SessionId};
use host::buffers::Pool;
use host::link::solo::{self, Papers, Solo, Wish};
use host::link::{Flow, LinkEvents, LinkSender, PeerInfo, Secret, SocketOptions};
use serde_json::Value;

const PLAN: Plan = Plan { volumes: &["data"], volume_bytes: 1 << 20, ..Plan::DEFAULT };

fn farshore(pair: &Pair, words: &[&str], node: Node) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.args(words).arg("--config").arg(pair.config()).args(["--node", node.name()]);
    command.stdin(Stdio::null()).env("NO_COLOR", "1");
    command
}

/// `link serve` on the far node, ended with the test.
struct Server {
    child: Child,
    address: SocketAddr,
    said: BufReader<std::process::ChildStdout>,
    /// What it complains of.
    log: PathBuf,
}

impl Server {
    fn start(pair: &Pair, words: &[&str]) -> Server {
        let words = [&["link", "serve", "--listen", "127.0.0.1:0"], words].concat();
        let log = pair.path("serve.log");
        let mut command = farshore(pair, &words, Node::Far);
        command.stdout(Stdio::piped()).stderr(fs::File::create(&log).expect("created"));
        let mut child = command.spawn().expect("the binary runs");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says where it listens");
        let address = line.trim_start_matches("serving line tests on ").split(';').next().unwrap_or_default();
        Server { address: address.parse().unwrap_or_else(|_| panic!("{line}")), child, said, log }
    }

    /// What it said, once it has ended by itself.
    fn end(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.said.read_to_string(&mut text).expect("text");
        (self.child.wait().expect("it ended").code(), text)
    }

    /// The next line it says.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("text");
        line
    }

    /// How many of its complaints say this.
    fn complaints(&self, of: &str) -> usize {
        fs::read_to_string(&self.log).expect("a log").lines().filter(|line| line.contains(of)).count()
    }

    fn interrupt(&self) {
        interrupt(&self.child);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail when it has ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
}

fn test(pair: &Pair, address: &str, words: &[&str]) -> Output {
    let words = [&["link", "test", address], words].concat();
    farshore(pair, &words, Node::Near).output().expect("the binary runs")
}

#[track_caller]
fn measured(pair: &Pair, server: &Server, words: &[&str]) -> Value {
    let output = test(pair, &server.address.to_string(), &[words, &["--json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{words:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}: {errors}"))
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
    let server = Server::start(&pair, &[]);
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
    // Its writer is its disk's: it never waits for the line, and what finds the queue full is marked.
    let words =
        ["--mode", "superasync", "--disk", "100MB/s,0s", "--count", "64", "--flush-size", "1MiB", "--queue", "1MiB"];
    let json = measured(&pair, &server, &words);
    let (sent, marked) = (&json["end"]["sent"]["flushes"], &json["end"]["sent"]["marked_flushes"]);
    assert_eq!(sent.as_u64().unwrap_or(0) + marked.as_u64().unwrap_or(0), 64, "{json}");
    assert_eq!(json["end"]["received"]["flushes"], *sent);
}

#[test]
fn directions_connections_sizes_and_packing_are_as_asked() {
    let pair = Pair::new(&PLAN);
    let server = Server::start(&pair, &[]);
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
    let packing = Pair::new(&Plan { head: "[link]\ncompression = \"lz4\"\n", ..PLAN });
    let server = Server::start(&packing, &[]);
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
    let server = Server::start(&pair, &[]);
    let words = ["--target-rate", "10MB/s", "--omit", "1s", "--time", "1s"];
    for direction in [&[][..], &["--reverse"]] {
        let json = measured(&pair, &server, &[&words[..], direction].concat());
        assert_eq!(json["start"]["terms"]["omit_s"], 1.0);
        // As much was written before, which neither end tells.
        for end in ["sent", "received"] {
            let told = &json["end"][end];
            let bytes = told["bytes"].as_f64().expect("a number");
            assert!((1e5..15e6).contains(&bytes) && told["seconds"].as_f64() < Some(1.6), "{end}: {told}");
        }
        let flushes = &json["end"]["sent"]["flushes"];
        for counted in ["response_s", "flush_bytes"] {
            assert_eq!(&json["end"][counted]["count"], flushes, "{counted}");
        }
        assert!(json["intervals"].as_array().is_some_and(|seconds| seconds.len() <= 2), "{json}");
    }
    // So many that count, however many came before.
    let json = measured(&pair, &server, &["--omit", "300ms", "--count", "7", "--time", "60s"]);
    assert_eq!(json["end"]["sent"]["flushes"], 7, "{json}");
}

#[test]
fn a_stream_tells_as_it_goes() {
    let pair = Pair::new(&PLAN);
    let server = Server::start(&pair, &[]);
    let address = server.address.to_string();
    let events = |command: &str, words: &[&str]| {
        let words = [&["link", command, &address, "--json-stream"], words].concat();
        let output = farshore(&pair, &words, Node::Near).output().expect("the binary runs");
        let said = String::from_utf8(output.stdout).expect("text");
        let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let schema = format!("farshore-link-{command}-stream/1");
        assert!(lines.iter().all(|line| line["schema"] == schema), "{said}");
        lines
    };
    for (direction, moved) in [("--bidir", "acked_bytes"), ("--reverse", "received_bytes")] {
        let lines = events("test", &[direction, "--target-rate", "10MB/s", "--time", "3s"]);
        let names: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
        assert_eq!((names[0], names[names.len() - 1]), ("start", "end"), "{names:?}");
        assert!(names.len() >= 3 && names[1..names.len() - 1].iter().all(|name| *name == "interval"), "{names:?}");
        assert!(lines[1]["data"][moved].as_f64() > Some(0.0), "{}", lines[1]);
        assert!(lines[0]["data"]["mtu_bytes"].as_f64() > Some(0.0), "{}", lines[0]);
        assert_eq!(lines[names.len() - 1]["data"]["schema"], "farshore-link-test/1");
    }
    let lines = events("soak", &["--rate", "1MB/s", "--time", "1s", "--every", "300ms"]);
    let names: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert!(names.len() >= 4 && names[0] == "start" && names[1] == "stretch", "{names:?}");
    let end = &lines[names.len() - 1];
    assert_eq!((&end["event"], &end["data"]["schema"]), (&"end".into(), &"farshore-link-soak/1".into()));
    assert_eq!(end["data"]["stretches"].as_array().map(Vec::len), Some(names.len() - 2), "{end}");
}

/// A user who may do nothing that needs a privilege.
const NOBODY: u32 = 65534;

#[test]
fn what_the_kernel_does_not_allow_is_told_in_a_sentence() {
    let binary = env!("CARGO_BIN_EXE_farshore");
    let as_nobody = |program: &str, words: &[&str]| {
        let mut command = Command::new("setpriv");
        let nobody = NOBODY.to_string();
        command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups", program]).args(words);
        command.stdin(Stdio::null()).env("NO_COLOR", "1").output().expect("setpriv runs")
    };
    let is_reached = || as_nobody(binary, &["--version"]).status.success();
    let needed = [("root", is_root()), ("a binary that everybody may run", is_root() && is_reached())];
    if must_skip("what_the_kernel_does_not_allow_is_told_in_a_sentence", &needed) {
        return;
    }
    let pair = Pair::new(&PLAN);
    let server = Server::start(&pair, &[]);
    let (address, config) = (server.address.to_string(), pair.config());
    fs::set_permissions(pair.path("."), fs::Permissions::from_mode(0o755)).expect("chmod");
    for name in [pair.path("secret"), config.clone()] {
        std::os::unix::fs::chown(name, Some(NOBODY), Some(NOBODY)).expect("chown");
    }
    let told = |command: &str, words: &[&str], code: i32, hint: &str| {
        let node = if command == "serve" { "far" } else { "near" };
        let config = config.to_str().expect("text");
        let output = as_nobody(binary, &[&["link", command], words, &["--node", node, "--config", config]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(hint) && said.lines().count() == 1, "{words:?}: {hint:?} is not all of: {said}");
    };
    let test = |words: &[&str], code, hint: &str| {
        told("test", &[&[&address, "--time", "1s", "--count", "3"], words].concat(), code, hint);
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
        told("serve", &["--listen", "127.0.0.1:1"], 2, "net.ipv4.ip_unprivileged_port_start");
    }
}

#[test]
fn sockets_are_told_at_each_moment() {
    let pair = Pair::new(&PLAN);
    let server = Server::start(&pair, &[]);
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
    let server = Server::start(&pair, &["--disk-file", far.to_str().expect("text")]);
    let near_text = near.to_str().expect("text");
    let words = ["--mode", "sync", "--count", "5", "--disk-file", near_text, "--remote-disk", "file"];
    let output = test(&pair, &server.address.to_string(), &words);
    let said = String::from_utf8_lossy(&output.stderr);
    // Where the file system does not write directly that is told, and nothing is left either.
    assert!(output.status.success() || said.contains("O_DIRECT"), "{said}");
    assert!(!near.exists(), "it was removed");
    pair.until("the far end removed its own", |_| !far.exists());
    fs::write(&near, "somebody's").expect("written");
    refused(&pair, &server.address.to_string(), &words, 2, "exists already");
    assert_eq!(fs::read_to_string(&near).expect("still there"), "somebody's");
}

#[test]
fn wrong_usage_is_told_before_anything_is_dialed() {
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
        (&["--mode", "superasync"], "superasync never waits"),
        (&["--flush-dist", "/no/such/file"], "cannot be read"),
        (&["--disk", "200MB/s"], "--disk"),
    ] {
        refused(&pair, "127.0.0.1:1", words, 3, hint);
    }
    for (host, hint) in [("", "is no HOST"), ("host:port", "is no HOST"), ("near", "is this node")] {
        refused(&pair, host, &[], 3, hint);
    }
}

#[test]
fn whoever_is_not_there_or_not_ours_is_told() {
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
    pair.serve(Node::Far);
    let daemon = pair.address(Node::Far).to_string();
    refused(&pair, &daemon, &[], 2, "answers there with its daemon");
    // Another secret.
    let server = Server::start(&pair, &[]);
    let other = Pair::new(&PLAN);
    fs::write(other.path("secret"), [b'x'; 48]).expect("written");
    refused(&other, &server.address.to_string(), &[], 2, "secret");
}

#[test]
fn the_serving_end_keeps_its_own_bounds() {
    let mut pair = Pair::new(&PLAN);
    let mut server = Server::start(&pair, &["--max-time", "5s"]);
    let address = server.address.to_string();
    refused(&pair, &address, &["--time", "6s"], 3, "serves tests of 5 s at most");
    refused(&pair, &address, &["--time", "1s", "--remote-disk", "file"], 3, "given no file");
    // Strangers and rubbish do not keep it from the next test.
    let mut stranger = TcpStream::connect(server.address).expect("it listens");
    stranger.write_all(&[0xff; 4096]).expect("written");
    let _silent = TcpStream::connect(server.address).expect("it listens");
    let long = [&["link", "test", &address][..], &["--time", "4s", "--target-rate", "1MB/s"]].concat();
    let mut first = farshore(&pair, &long, Node::Near).stdout(Stdio::null()).spawn().expect("the binary runs");
    assert!(server.line().starts_with("test from"));
    pair.until("the second is turned away", |pair| {
        let said = test(pair, &address, &["--count", "1", "--time", "1s"]).stderr;
        String::from_utf8_lossy(&said).contains("it is at a test with")
    });
    assert!(first.wait().expect("it ended").success());
    assert!(test(&pair, &address, &["--count", "1", "--time", "1s"]).status.success());
}

#[test]
fn interrupts_end_a_test_with_both_reports() {
    let pair = Pair::new(&PLAN);
    for at_far_end in [false, true] {
        let mut server = Server::start(&pair, &["--once"]);
        let address = server.address.to_string();
        let words = ["link", "test", &address, "--time", "1h", "--target-rate", "1MB/s", "--json-stream"];
        let mut client = farshore(&pair, &words, Node::Near).stdout(Stdio::piped()).spawn().expect("the binary runs");
        assert!(server.line().starts_with("test from"));
        let mut events = BufReader::new(client.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
        assert!(events.next().is_some_and(|line| line.contains("\"start\"")));
        if at_far_end {
            server.interrupt();
        } else {
            interrupt(&client);
        }
        let said = events.last().expect("it ends with a report");
        assert!(client.wait().expect("it ended").success(), "{said}");
        let json = serde_json::from_str::<Value>(&said).expect("JSON")["data"].take();
        assert!(json["interrupted"].is_string() && json["lost"].is_null(), "{json}");
        assert_eq!(json["end"]["sent"]["bytes"], json["end"]["received"]["bytes"], "{json}");
        let (code, said) = server.end();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("received  NEARSYNC") && said.contains("interrupted"), "{said}");
    }
}

#[test]
fn a_peer_that_dies_is_told_with_what_there_was() {
    let pair = Pair::new(&PLAN);
    let mut server = Server::start(&pair, &[]);
    let address = server.address.to_string();
    let words = ["link", "test", &address, "--time", "1h", "--target-rate", "10MB/s"];
    let client = farshore(&pair, &words, Node::Near).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let client = client.expect("the binary runs");
    assert!(server.line().starts_with("test from"));
    // The near end learns of the begin a moment later.
    std::thread::sleep(Duration::from_millis(500));
    server.child.kill().expect("it runs");
    let output = client.wait_with_output().expect("it ended");
    let [said, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("did not come to its end") && said.contains("NEARSYNC:"), "{said}{errors}");
}

#[test]
fn certificates_tell_who_may_test() {
    let plan = Plan { head: "[tls]\ndirectory = \"tls\"\n", ..PLAN };
    let mut pair = Pair::new(&plan);
    pair.certify();
    let server = Server::start(&pair, &[]);
    let json = measured(&pair, &server, &["--mode", "sync", "--count", "5"]);
    assert_eq!((&json["start"]["peer"], &json["start"]["encrypted"]), (&"far".into(), &true.into()), "{json}");
    let stranger = Pair::new(&plan);
    stranger.certify();
    refused(&stranger, &server.address.to_string(), &[], 2, "ca.crt");
    // A secret is of no use there, nor is a certificate where a secret is asked for.
    refused(&Pair::new(&PLAN), &server.address.to_string(), &[], 2, "TLS");
    let plain = Pair::new(&PLAN);
    let unencrypted = Server::start(&plain, &[]);
    refused(&pair, &unencrypted.address.to_string(), &[], 2, "TLS");
    assert_eq!(measured(&pair, &server, &["--count", "1"])["lost"], Value::Null, "the next one is served");
    // Another authority in the same place is taken up as it comes.
    fs::rename(pair.path("tls"), pair.path("old")).expect("moved");
    fs::rename(stranger.path("tls"), pair.path("tls")).expect("moved");
    pair.until("the new certificates are taken up", |pair| {
        test(pair, &server.address.to_string(), &["--count", "1"]).status.success()
    });
}

#[test]
fn a_sweep_a_probe_and_a_soak_tell_what_they_found() {
    let pair = Pair::new(&PLAN);
    let server = Server::start(&pair, &[]);
    let address = server.address.to_string();
    let run = |words: &[&str]| {
        let output = farshore(&pair, &[&["link", words[0], &address], &words[1..]].concat(), Node::Near).output();
        let output = output.expect("the binary runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{words:?}: {errors}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}: {errors}"))
    };
    let plots = pair.path("plots");
    let plots_text = plots.to_str().expect("text");
    let json = run(&["sweep", "--json", "--time", "200ms", "--to", "256KiB", "--plots", plots_text]);
    let sizes: Vec<_> =
        json["sweep"].as_array().expect("points").iter().map(|point| &point["requested_bytes"]).collect();
    assert!((2..=3).contains(&sizes.len()) && sizes[0] == 65536, "{json}");
    assert_eq!(json["others"].as_array().map(Vec::len), Some(2), "autotuning, and paced");
    assert!(json["end"]["recommended_bytes"].as_u64().is_some_and(|bytes| bytes >= 128 << 10), "{json}");
    assert!(plots.join("sweep-rate.svg").is_file() && plots.join("sweep-round-trip.svg").is_file());

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
    let again = farshore(&pair, &[&["link", "soak", &address][..], &soak[1..]].concat(), Node::Near).output();
    let again = again.expect("the binary runs");
    assert_eq!(again.status.code(), Some(2), "records are never overwritten");
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
fn a_probe_tells_a_path_that_swallows_packets_from_one_that_broke_once() {
    let pair = Pair::new(&PLAN);
    let mut server = Server::start(&pair, &[]);
    let probe = |address: SocketAddr| {
        let words = ["link", "probe", &address.to_string(), "--json", "--time", "200ms"];
        farshore(&pair, &words, Node::Near).output().expect("the binary runs")
    };
    // The first connection that carries data; the one before asks for the test.
    let output = probe(cutting(server.address, 1));
    let said = String::from_utf8_lossy(&output.stderr);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(json["large_packets"], "pass", "{said}");
    while !server.line().starts_with("test from") {}
    // Nor is one that is busy.
    let address = server.address.to_string();
    let words = ["link", "test", &address, "--time", "1h", "--target-rate", "1MB/s", "--connections", "2"];
    let mut client = farshore(&pair, &words, Node::Near).stdout(Stdio::null()).spawn().expect("the binary runs");
    while !server.line().contains("2 connections") {}
    let output = probe(server.address);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("it is at a test with"), "{said}");
    interrupt(&client);
    assert!(client.wait().expect("it ended").success());
}

#[test]
fn a_probe_finds_the_largest_packet_that_passes() {
    let name = format!("hole-{}", std::process::id());
    let options = ["--rtt", "10ms", "--drop-above", "1337", "--name", &name];
    let Some(wan) = Wan::start("a_probe_finds_the_largest_packet_that_passes", &options) else { return };
    let pair = wan.pair(&PLAN);
    let _server = wan.serve_tests(&pair);
    let output = wan.link(&pair, &["probe", "far", "--json", "--time", "500ms", "--timeout", "2s"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((&json["large_packets"], &json["mtu_bytes"]), (&"vanish".into(), &1500.into()), "{said}");
    assert_eq!((&json["path_mtu_bytes"], &json["path_mtu_is_exact"]), (&1337.into(), &true.into()), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("packets of up to 1337 bytes pass, larger ones vanish"), "{said}");
    // The load went in segments of that size: twelve bytes of it are options.
    assert_eq!(json["segment_bytes"], 1337 - 40 - 12, "{json}");
}

#[test]
fn an_interrupt_is_heard_before_there_is_a_test() {
    let pair = Pair::new(&PLAN);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound").to_string();
    for command in ["test", "sweep", "probe", "soak"] {
        let rate: &[&str] = if command == "soak" { &["--rate", "1MB/s"] } else { &[] };
        let words = [&["link", command, &address, "--timeout", "10m"], rate].concat();
        let client = farshore(&pair, &words, Node::Near).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let _held = silent.accept().expect("dialed");
        interrupt(&client);
        let output = client.wait_with_output().expect("it ended");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("interrupted before the test began"), "{said}");
    }
}

/// Hears nothing: what it sent is what matters.
struct Deaf;

impl LinkEvents for Deaf {
    fn up(&self, _: NodeId, _: LinkId, _: SessionId, _: Rc<LinkSender>, _: PeerInfo) {}
    fn down(&self, _: LinkId, _: String) {}
    fn frame(&self, _: LinkId, _: Header, _: FramePayload) {}
    fn heard(&self, _: LinkId) {}
    fn sent(&self, _: LinkId, _: u64) {}
    fn turn_done(&self) {}
    fn refused(&self, _: String, _: String) {}
    fn definitions_differ(&self, _: NodeId, _: String) {}
}

/// One who has the nodes' own secret, and may be hostile all the same.
struct Insider {
    papers: Papers,
    runtime: tokio::runtime::Runtime,
}

impl Insider {
    fn new() -> Insider {
        let papers = Papers { cluster: "test".to_owned(), tls: None, secret: Some(Secret::new(&[b's'; 48])) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Insider { papers, runtime }
    }

    async fn dial(&self, address: SocketAddr) -> Solo {
        let (address, socket) = (address.to_string(), SocketOptions::default());
        let wish =
            Wish { address: &address, peers: &[], socket: &socket, flow: Flow::default(), timeout: common::DEADLINE };
        solo::dial(&self.papers, &wish).await.expect("let in")
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::task::LocalSet::new().block_on(&self.runtime, work)
    }
}

fn send(solo: &Solo, kind: Kind, fill: impl FnOnce(&mut Header), payload: &[u8]) {
    let mut header = Header::new(kind, solo.session, GroupId(0));
    fill(&mut header);
    let payload = if payload.is_empty() { SendPayload::None } else { SendPayload::Control(payload.to_vec()) };
    solo.sender.push(header, payload);
    solo.sender.flush();
}

/// The other end closes it.
async fn ends(solo: Solo) {
    let ended = tokio::time::timeout(common::DEADLINE, solo.run(&Pool::new(1 << 20), &Deaf)).await;
    assert!(ended.is_ok(), "it is still connected");
}

#[test]
fn an_authenticated_peer_that_sends_rubbish_is_cut_off() {
    let mut pair = Pair::new(&PLAN);
    let server = Server::start(&pair, &["--timeout", "2s"]);
    let insider = Insider::new();
    let mut rubbish = |kind, fill: fn(&mut Header), payload: &[u8], why: &str| {
        insider.run(async {
            let solo = insider.dial(server.address).await;
            send(&solo, kind, fill, payload);
            ends(solo).await;
        });
        // Silence would have ended it as well.
        pair.until(why, |_| server.complaints(why) == 1);
    };
    let last: fn(&mut Header) = |header| header.flags = flags::LAST;
    rubbish(Kind::Pull, |_| {}, &[], "(Pull) that has no place in a test");
    rubbish(Kind::GroupState, last, b"no JSON", "does not understand (expected value");
    rubbish(Kind::GroupState, last, b"\"\x1b[2J\"", "does not understand (control character");
    rubbish(Kind::GroupState, last, b"\"go\"", "it spoke out of turn");
    rubbish(Kind::GroupState, last, b"{\"join\":{\"token\":7}}", "it joins a test that is not there");
    rubbish(Kind::Ack, |_| {}, &[7; 49], "the other end confirmed what was never sent");
    rubbish(Kind::SyncBegin, |_| {}, &[], "data before there was a test");
    rubbish(Kind::SyncEnd, |header| header.offset = 1, &[], "ended before it was complete");
    rubbish(Kind::Zero, |_| {}, &[], "(Zero) that has no place in a test");
    assert_eq!(measured(&pair, &server, &["--count", "3"])["end"]["received"]["flushes"], 3, "the next one is served");
}

#[test]
fn an_authenticated_peer_that_asks_for_nothing_is_let_go() {
    let mut pair = Pair::new(&PLAN);
    let server = Server::start(&pair, &["--timeout", "1s"]);
    let insider = Insider::new();
    insider.run(async {
        let solo = insider.dial(server.address).await;
        let (sender, session) = (solo.sender.clone(), solo.session);
        let alive = async move {
            loop {
                sender.push(Header::new(Kind::Heartbeat, session, GroupId(0)), SendPayload::Control(vec![7; 8]));
                sender.flush();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::select! { () = ends(solo) => {}, () = alive => {} }
    });
    pair.until("it says so", |_| server.complaints("it asked for no test within 6s") == 1);
    drop(server);
    // Nor are there many of them, however long they may be silent.
    let server = Server::start(&pair, &["--timeout", "5m"]);
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
