//! From two empty machines to a replicating pair: `up` on one, `join` on the other, as whole processes over loopback.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use farshore::certs::requests::OwnKey;
use farshore::join::line::JoinLine;
use farshore::join::token::JoinToken;
use serde_json::{Value, json};

use crate::common::{DEADLINE, expect};

const VOLUME_BYTES: usize = 8 << 20;
/// Small stores, quickly made.
const SMALL: [&str; 4] = ["--set", "journal=16MiB", "--set", "window=4MiB"];
static PORT: AtomicU16 = AtomicU16::new(7400);

/// Two machines, which are directories; everything ends with the test.
struct Machines {
    addresses: [SocketAddr; 2],
    daemons: Vec<Child>,
    directory: tempfile::TempDir,
}

/// A process that waits for a node to join.
struct Waiting {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The line to be typed on the other machine.
    line: String,
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.daemons.iter_mut().for_each(end);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Both fail when it has ended by itself, which is as good.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

impl Machines {
    /// The first machine's volume carries data, the second's is blank.
    fn new() -> Machines {
        let directory = tempfile::Builder::new().prefix("farshore-").tempdir().expect("a directory");
        // Loopback addresses of this process alone, apart from those of other tests.
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let address = || {
            let port = PORT.fetch_add(1, Ordering::Relaxed);
            SocketAddr::from(([127, 128 + a % 64, b, c], port))
        };
        let machines = Machines { addresses: [address(), address()], daemons: Vec::new(), directory };
        for name in ["near", "far"] {
            fs::create_dir(machines.path(name)).expect("a directory");
        }
        let content: Vec<u8> = (0..VOLUME_BYTES).map(|at| (at / 4096 % 251) as u8).collect();
        fs::write(machines.path("near/data"), content).expect("a volume");
        machines.blank("far/data", VOLUME_BYTES as u64);
        machines
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn blank(&self, name: &str, bytes: u64) {
        let _ = fs::remove_file(self.path(name));
        fs::File::create(self.path(name)).and_then(|file| file.set_len(bytes)).expect("a volume");
    }

    fn farshore(words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(words).stdin(Stdio::null()).env_remove("FARSHORE_CONFIG");
        command
    }

    /// `up` on the first machine, with these words besides.
    fn up(&self, more: &[&str]) -> Command {
        let mut command = Machines::farshore(&["up", "--name", "near", "--config"]);
        command.arg(self.path("near/etc/farshore.toml")).arg("--state").arg(self.path("near/state")).args(more);
        command
    }

    /// The same with all that it needs; it has printed its line.
    fn wait(&self, more: &[&str]) -> Waiting {
        let mut command = self.up(&SMALL);
        command.arg("--device").arg(self.path("near/data")).args(["--address", &self.addresses[0].to_string()]);
        let log = fs::File::options().create(true).append(true).open(self.path("up.log")).expect("a log");
        let mut child = command.args(more).stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("it prints a line");
        assert!(line.starts_with("farshore join fj"), "{line}{}", self.log());
        Waiting { child, stdout, line: line.trim().to_owned() }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("up.log")).unwrap_or_default()
    }

    /// `join` on the second machine, with these words besides.
    fn join(&self, token: &str, more: &[&str]) -> Output {
        self.join_at(token, self.addresses[1], more)
    }

    fn join_at(&self, token: &str, address: SocketAddr, more: &[&str]) -> Output {
        let mut command = Machines::farshore(&["join", token, "--name", "far", "--config"]);
        command.arg(self.path("far/etc/farshore.toml")).arg("--state").arg(self.path("far/state"));
        command.arg("--device").arg(self.path("far/data")).args(["--address", &address.to_string()]);
        command.args(more).output().expect("it runs")
    }

    fn serve(&mut self, node: &str) {
        let log = fs::File::options().create(true).append(true).open(self.path(&format!("{node}.log"))).expect("a log");
        let config = self.path(&format!("{node}/etc/farshore.toml"));
        let mut command = Machines::farshore(&["serve", "--node", node, "--config"]);
        let child = command.arg(config).stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
        self.daemons.push(child);
    }

    /// Ends both daemons cleanly, the first machine's before the other.
    fn stop(&mut self) {
        for daemon in &mut self.daemons {
            let process = rustix::process::Pid::from_child(daemon);
            rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("our own child");
            daemon.wait().expect("it ends");
        }
        self.daemons.clear();
    }

    fn logs(&self) -> String {
        ["up.log", "near.log", "far.log"].map(|log| fs::read_to_string(self.path(log)).unwrap_or_default()).join("\n")
    }

    /// Nothing was made on the second machine.
    #[track_caller]
    fn far_is_untouched(&self) {
        let names: Vec<_> =
            fs::read_dir(self.path("far")).expect("there").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["data"]);
    }
}

impl Waiting {
    fn token(&self) -> String {
        self.line.split(' ').nth(2).expect("a token").to_owned()
    }

    /// Waits for its end: its exit code, and what it printed after the line.
    fn finish(mut self) -> (Option<i32>, String) {
        let started = Instant::now();
        let status = loop {
            match self.child.try_wait().expect("a child can be asked") {
                Some(status) => break status,
                None => assert!(started.elapsed() < DEADLINE, "it does not end"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("text");
        (status.code(), rest)
    }
}

#[test]
fn two_empty_machines_become_a_replicating_pair() {
    let mut machines = Machines::new();
    let waiting = machines.wait(&[]);
    assert!(waiting.line.ends_with(" --device /dev/disk/by-id/DISK"), "{}", waiting.line);
    let token = waiting.token();
    let output = machines.join(&token, &[]);
    expect(
        &output,
        0,
        &["far has joined group main", "the doctor on far", "start its daemon: farshore serve --config"],
    );
    // No private key has travelled.
    assert!(machines.path("far/etc/tls/nodes/far.key").exists() && !machines.path("far/etc/tls/ca.key").exists());
    assert!(machines.path("near/etc/tls/ca.key").exists() && !machines.path("near/etc/tls/nodes/far.key").exists());
    ["near", "far"].into_iter().for_each(|node| machines.serve(node));
    let (code, said) = waiting.finish();
    assert_eq!(code, Some(0), "{said}\n{}", machines.logs());
    for part in
        ["the second node has joined", "start the daemon", "main: the copy is up to date", "farshore attach main"]
    {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
    let texts =
        ["near", "far"].map(|node| fs::read(machines.path(&format!("{node}/etc/farshore.toml"))).expect("there"));
    assert_eq!(texts[0], texts[1], "both have the same file");
    // Typed again, all is done; the options may be left out.
    let again = machines.up(&[]).output().expect("it runs");
    expect(&again, 0, &["main replicates to far: all is done"]);
    let again = machines.join(&token, &[]);
    expect(&again, 0, &["far has joined already", "its daemon runs: nothing is left"]);
    // A third machine has the same line.
    let mut third = Machines::farshore(&["join", &token, "--name", "third", "--config"]);
    third.arg(machines.path("third.toml")).arg("--device").arg(machines.path("far/data"));
    let refused = third.output().expect("it runs");
    expect(&refused, 2, &["does not take this token: it was used", "type 'farshore up' on the first node again"]);
    assert!(!machines.path("third.toml").exists());
    machines.stop();
    let [near, far] = ["near/data", "far/data"].map(|name| fs::read(machines.path(name)).expect("there"));
    assert!(near == far && near[4096 * 7] == 7, "the copy is equal, and the first machine's content is kept");
}

#[test]
fn a_token_that_is_old_wrong_or_damaged_is_refused() {
    let machines = Machines::new();
    let old = machines.wait(&["--expires", "1s"]);
    let token = old.token();
    let (code, _) = old.finish();
    assert_eq!(code, Some(2));
    assert!(machines.log().contains("nobody joined before the token's end"), "{}", machines.log());
    expect(
        &machines.join(&token, &[]),
        2,
        &["the join token is old: it ended at", "type 'farshore up' on the first node again"],
    );
    let waiting = machines.wait(&[]);
    expect(&machines.join(&token, &[]), 2, &["the join token is old: it ended at"]);
    let right = JoinToken::parse(&waiting.token()).expect("a token");
    let end = u64::MAX / 2;
    let wrong = JoinToken::new(right.address(), end, right.fingerprint(), [7; 16]);
    expect(&machines.join(&wrong.to_string(), &[]), 2, &["its secret is another one than 'farshore up' waits for"]);
    assert!(machines.log().contains("was turned away: the other end did not prove"), "{}", machines.log());
    let earlier = JoinToken::new(right.address(), end, [7; 32], right.secret());
    expect(&machines.join(&earlier.to_string(), &[]), 2, &["it was used, or is of an earlier 'farshore up'"]);
    let cut = &waiting.token()[..60];
    expect(&machines.join(cut, &[]), 3, &["the join token is damaged or not whole; copy the whole line"]);
    expect(&machines.join("main", &[]), 3, &["this is not a join token"]);
    machines.far_is_untouched();
    // All of that has used up nothing.
    expect(&machines.join(&waiting.token(), &["--no-start"]), 0, &["far has joined"]);
}

#[test]
fn a_port_that_is_closed_is_named_with_its_node_and_a_test() {
    let machines = Machines::new();
    let [near, far] = machines.addresses;
    let nobody = JoinToken::new(near, u64::MAX / 2, [7; 32], [7; 16]).to_string();
    let test = format!("'nc -vz {} {}'", near.ip(), near.port());
    expect(&machines.join(&nobody, &[]), 2, &["nobody waits for this token at", &test]);
    let mut up = machines.up(&["--device"]);
    up.arg(machines.path("near/data"));
    let elsewhere = up.args(["--address", "192.0.2.1"]).output().expect("it runs");
    expect(&elsewhere, 2, &["192.0.2.1 is no address of this machine"]);
    let waiting = machines.wait(&[]);
    let token = waiting.token();
    let away = machines.join_at(&token, "192.0.2.1:7337".parse().expect("an address"), &[]);
    expect(&away, 2, &["192.0.2.1 is no address of this machine"]);
    let taken = TcpListener::bind(far).expect("its port");
    let port = format!("port {} of {} is taken by another program", far.port(), far.ip());
    expect(&machines.join(&token, &[]), 2, &[&port]);
    drop(taken);
    let said = refusal_of_a_node_behind_a_firewall(&machines, &token);
    let test = format!("test it on near with 'nc -vz {} {}'", far.ip(), far.port());
    for part in [&format!("port {} of far ({}) is not reached from near", far.port(), far.ip()), &test] {
        assert!(said.contains(part.as_str()), "no {part:?} in: {said}");
    }
    machines.far_is_untouched();
    expect(&machines.join(&token, &["--no-start"]), 0, &["far has joined"]);
}

/// What is answered to a node whose port nobody reaches.
fn refusal_of_a_node_behind_a_firewall(machines: &Machines, token: &str) -> String {
    let token = JoinToken::parse(token).expect("a token");
    let mut line = JoinLine::dial(&token, Duration::from_secs(5)).expect("it waits");
    let offer: Value = line.receive().expect("an offer");
    assert_eq!(offer["offer"]["volumes"][0], json!({ "name": "data", "bytes": VOLUME_BYTES }));
    let key = OwnKey::find_or_make(&machines.path("none")).expect("a key");
    let unix_ms = offer["offer"]["unix_ms"].clone();
    line.send(&json!({ "wish": {
        "program": offer["offer"]["program"], "node": "far", "address": machines.addresses[1],
        "state": "/var/lib/farshore", "bell": "0".repeat(32), "unix_ms": unix_ms,
        "devices": [{ "volume": "data", "path": "/dev/vg0/data", "bytes": VOLUME_BYTES }],
        "request": key.request().expect("a request"),
    } }))
    .expect("sent");
    let answer: Value = line.receive().expect("an answer");
    answer["refused"].as_str().expect("a refusal").to_owned()
}

#[test]
fn a_device_that_carries_data_or_is_too_small_is_refused_before_anything_is_written() {
    let machines = Machines::new();
    let waiting = machines.wait(&[]);
    let token = waiting.token();
    machines.blank("far/data", 4 << 20);
    let small = expect(
        &machines.join(&token, &[]),
        2,
        &["is too small for volume data: it has 4MiB, and the volume needs 8MiB"],
    );
    assert!(small.contains("on far"), "{small}");
    fs::write(machines.path("far/data"), vec![5; VOLUME_BYTES]).expect("written");
    let refused = machines.join(&token, &[]);
    expect(&refused, 2, &["carries data (at byte 0)", "--overwrite", "Nothing was written"]);
    expect(&machines.join(&token, &["--device", "/dev/null"]), 2, &["each device needs its volume's name"]);
    machines.far_is_untouched();
    assert!(machines.log().contains("did not join: ") && machines.log().contains("carries data"), "{}", machines.log());
    expect(&machines.join(&token, &["--overwrite", "--no-start"]), 0, &["far has joined"]);
    let content = fs::read(machines.path("far/data")).expect("there");
    assert!(content.iter().all(|byte| *byte == 5), "only the first sync overwrites it");
}

#[test]
fn files_that_are_there_are_left_as_they_are_and_what_was_begun_goes_on() {
    let machines = Machines::new();
    let [near, far] = ["near/etc/farshore.toml", "far/etc/farshore.toml"].map(|name| machines.path(name));
    fs::create_dir(machines.path("far/etc")).expect("a directory");
    fs::write(&far, "cluster = \"old\"\n").expect("written");
    let waiting = machines.wait(&[]);
    let refused = machines.join(&waiting.token(), &[]);
    expect(&refused, 2, &["is there already, and says something else", "left as it is"]);
    assert_eq!(fs::read_to_string(&far).expect("there"), "cluster = \"old\"\n");
    assert!(!machines.path("far/etc/tls").exists());
    // It broke after the token was used: both are typed again, with a new token and the certificates that are there.
    let (code, _) = waiting.finish();
    assert_eq!(code, Some(2));
    assert!(
        machines.log().contains("type 'farshore up' again for a new token") && !near.exists(),
        "{}",
        machines.log()
    );
    let authority = fs::read(machines.path("near/etc/tls/ca.crt")).expect("there");
    fs::remove_file(&far).expect("moved away");
    let waiting = machines.wait(&["--no-start"]);
    expect(&machines.join(&waiting.token(), &["--no-start"]), 0, &["far has joined", "start its daemon"]);
    let (code, said) = waiting.finish();
    assert!(code == Some(0) && said.contains("then type 'farshore up' again"), "{code:?} {said}");
    assert_eq!(fs::read(machines.path("near/etc/tls/ca.crt")).expect("there"), authority);
    // As if the first machine had crashed before it wrote its own: the same files are used again.
    let (text, key) =
        (fs::read(&far).expect("there"), fs::read(machines.path("far/etc/tls/nodes/far.key")).expect("there"));
    fs::remove_file(&near).expect("lost");
    let waiting = machines.wait(&["--no-start"]);
    expect(&machines.join(&waiting.token(), &["--no-start"]), 0, &["far has joined"]);
    assert_eq!(waiting.finish().0, Some(0));
    assert_eq!((fs::read(&far).expect("there"), fs::read(&near).expect("there")), (text.clone(), text));
    assert_eq!(fs::read(machines.path("far/etc/tls/nodes/far.key")).expect("there"), key);
    // What contradicts the file is refused, and the file stays.
    let before = fs::read(&near).expect("there");
    for (words, part) in [
        (["--group", "other"], "has no group \"other\" (its groups are main); it was left as it is"),
        (["--device", "/dev/other"], "as the device of volume data, not /dev/other"),
        (["--address", "10.9.9.9"], "as this node's address, not 10.9.9.9:7337"),
        (["--name", "far"], "the primary of main is near, and this is far: type 'farshore up' there"),
    ] {
        let mut command = Machines::farshore(&["up", "--config"]);
        command.arg(&near);
        if words[0] != "--name" {
            command.args(["--name", "near"]);
        }
        expect(&command.args(words).output().expect("it runs"), 2, &[part]);
    }
    assert_eq!(fs::read(&near).expect("there"), before);
}

#[test]
fn all_that_is_missing_is_said_at_once() {
    let machines = Machines::new();
    let missing = machines.up(&[]).output().expect("it runs");
    expect(&missing, 3, &["missing: --device /dev/disk/by-id/DISK", "--address ADDRESS", "or --peer ADDRESS"]);
    for (words, part) in [
        (["--expires", "0s"], "out of range; 1s to 168h"),
        (["--set", "moed=sync"], "unknown key \"moed\""),
        (["--set", "mode=asinc"], "is not a mode"),
        (["--address", "db1"], "host names are not looked up"),
    ] {
        let mut command = machines.up(&["--device"]);
        command.arg(machines.path("near/data"));
        if words[0] != "--address" {
            command.args(["--address", &machines.addresses[0].to_string()]);
        }
        expect(&command.args(words).output().expect("it runs"), 3, &[part]);
    }
    assert!(!machines.path("near/etc").exists(), "nothing was made");
}

#[test]
fn several_volumes_each_have_their_device() {
    let machines = Machines::new();
    for name in ["near/log", "far/log"] {
        machines.blank(name, 4 << 20);
    }
    let device = |name: &str| machines.path(name).display().to_string();
    let mut up = machines.up(&SMALL);
    up.args(["--group", "db", "--no-start", "--address", &machines.addresses[0].to_string()]);
    up.args(["--device", &format!("data={}", device("near/data")), "--device", &format!("log={}", device("near/log"))]);
    let mut child = up.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("it prints a line");
    let waiting = Waiting { child, stdout, line: line.trim().to_owned() };
    assert!(waiting.line.ends_with(" --device data=/dev/disk/by-id/DISK --device log=/dev/disk/by-id/DISK"), "{line}");
    let join = |devices: [String; 2]| {
        let mut command = Machines::farshore(&["join", &waiting.token(), "--name", "far", "--no-start", "--config"]);
        command.arg(machines.path("far/etc/farshore.toml")).arg("--state").arg(machines.path("far/state"));
        command.args(["--address", &machines.addresses[1].to_string()]);
        command.args(devices.iter().flat_map(|device| ["--device", device])).output().expect("it runs")
    };
    let exchanged = [format!("log={}", device("far/data")), format!("data={}", device("far/log"))];
    expect(&join(exchanged), 2, &["is too small for volume data: it has 4MiB, and the volume needs 8MiB"]);
    let right = [format!("log={}", device("far/log")), format!("data={}", device("far/data"))];
    expect(&join(right), 0, &["far has joined group db"]);
    assert_eq!(waiting.finish().0, Some(0));
    let text = fs::read_to_string(machines.path("near/etc/farshore.toml")).expect("there");
    for part in ["[groups.db.volumes.data]", "[groups.db.volumes.log]", &device("far/log"), "journal = \"16MiB\""] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}
