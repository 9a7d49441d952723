//! From two empty machines to a replicating pair: `up` on one, `join` on the other, as whole processes over loopback.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use farshore::certs::requests::OwnKey;
use farshore::join::bell::Bell;
use farshore::join::line::{JoinLine, LineError};
use farshore::join::token::JoinToken;
use serde_json::{Value, json};

use crate::common::{DEADLINE, expect};

const VOLUME_BYTES: usize = 8 << 20;
/// Small stores, quickly made.
const SMALL: [&str; 6] = ["--set", "journal=16MiB", "--set", "window=4MiB", "--set", "queue.disk=0"];
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
    /// The last line to be typed on the other machine.
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
        Waiting::new(command.args(more).stderr(log))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("up.log")).unwrap_or_default()
    }

    /// Waits until the first machine has said that.
    fn near_says(&self, part: &str) {
        let started = Instant::now();
        while !self.log().contains(part) {
            assert!(started.elapsed() < DEADLINE, "no {part:?} in: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// `join` on the second machine, with these words besides.
    fn join(&self, token: &str, more: &[&str]) -> Output {
        self.join_at(token, self.addresses[1], more)
    }

    fn join_at(&self, token: &str, address: SocketAddr, more: &[&str]) -> Output {
        let mut command = Machines::farshore(&["join", "--name", "far", "--config"]);
        command.arg(self.path("far/etc/farshore.toml")).arg("--state").arg(self.path("far/state"));
        command.arg("--device").arg(self.path("far/data")).args(["--address", &address.to_string()]);
        piped(command.args(more), token)
    }

    fn serve(&mut self, node: &str) {
        let log = fs::File::options().create(true).append(true).open(self.path(&format!("{node}.log"))).expect("a log");
        let config = self.path(&format!("{node}/etc/farshore.toml"));
        let mut command = Machines::farshore(&["serve", "--node", node, "--config"]);
        let child = command.arg(config).stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
        self.daemons.push(child);
    }

    /// Waits until the second machine's daemon answers.
    fn far_answers(&self) {
        let (socket, started) = (self.path("far/state/control.sock"), Instant::now());
        while UnixStream::connect(&socket).is_err() {
            assert!(started.elapsed() < DEADLINE, "{}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
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

/// What comes of a command whose standard input is a pipe with a token in it.
fn piped(command: &mut Command, token: &str) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    writeln!(stdin, "{token}").expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

impl Waiting {
    /// Starts `up`, which prints its line.
    fn new(command: &mut Command) -> Waiting {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut waiting = Waiting { child, stdout, line: String::new() };
        waiting.next_token();
        waiting
    }

    fn token(&self) -> String {
        self.line.split(' ').nth(1).expect("a token").to_owned()
    }

    /// The token of the next line that it prints.
    fn next_token(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it prints a line");
        // The token goes through a pipe, and stands in no list of processes.
        assert!(line.starts_with("echo fj") && line.contains(" | farshore join --device "), "{line}");
        self.line = line.trim().to_owned();
        self.token()
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
    assert!(machines.log().contains("not after 'ssh' or 'sudo'"), "{}", machines.log());
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
    machines.blank("third", VOLUME_BYTES as u64);
    let mut third = Machines::farshore(&["join", "--name", "third", "--config"]);
    third.arg(machines.path("third.toml")).arg("--device").arg(machines.path("third"));
    let refused = piped(&mut third, &token);
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
    machines.near_says("was turned away: the other end did not prove");
    let earlier = JoinToken::new(right.address(), end, [7; 32], right.secret());
    expect(&machines.join(&earlier.to_string(), &[]), 2, &["this one was used, or is of an earlier 'farshore up'"]);
    let cut = &waiting.token()[..60];
    expect(&machines.join(cut, &[]), 3, &["the join token is damaged or not whole; copy it whole"]);
    expect(&machines.join("main", &[]), 3, &["this is not a join token"]);
    expect(&machines.join("", &[]), 3, &["no join token came on standard input"]);
    machines.far_is_untouched();
    // All of that has used up nothing.
    expect(&machines.join(&waiting.token(), &["--no-start"]), 0, &["far has joined"]);
}

// proves: P10
/// Every user of a machine reads the command lines of its processes.
#[test]
fn a_token_on_the_command_line_is_refused() {
    let mut command = Machines::farshore(&["join", "fjaeca", "--device", "/dev/vg0/data"]);
    let refused = command.output().expect("it runs");
    expect(&refused, 3, &["the token is not taken from the command line", "echo TOKEN | farshore join --device"]);
}

// proves: P10
/// A node shows its token and does not join. Whoever has read the token meanwhile does not join in its place, whatever he is called.
#[test]
fn a_token_whose_first_try_failed_lets_no_stranger_in() {
    let machines = Machines::new();
    let mut waiting = machines.wait(&[]);
    let token = waiting.token();
    machines.blank("far/data", 4 << 20);
    expect(&machines.join(&token, &[]), 2, &["is too small for volume data", "The token is used"]);
    let next = waiting.next_token();
    assert_ne!(next, token);
    let seen = JoinToken::parse(&token).expect("a token");
    let stranger = JoinLine::dial(&seen, Duration::from_secs(5)).err();
    assert!(matches!(stranger, Some(LineError::AnotherToken(_))), "{stranger:?}");
    machines.blank("far/data", VOLUME_BYTES as u64);
    expect(&machines.join(&token, &[]), 2, &["waits for another token: this one was used"]);
    expect(&machines.join(&next, &["--no-start"]), 0, &["far has joined"]);
}

/// Each of them is heard for seconds, and a line for each would take the token off the screen.
#[test]
fn connections_that_say_nothing_or_little_do_not_keep_the_node_out() {
    let machines = Machines::new();
    let waiting = machines.wait(&[]);
    let stranger = || TcpStream::connect(machines.addresses[0]).expect("it listens");
    let _silent = [(); 3].map(|()| stranger());
    let _slow = [(); 8].map(|()| {
        let mut slow = stranger();
        slow.write_all(&[0x16]).expect("sent");
        slow
    });
    expect(&machines.join(&waiting.token(), &["--no-start"]), 0, &["far has joined"]);
    let log = machines.log();
    assert!((1..=3).contains(&log.matches("was turned away: ").count()), "{log}");
}

/// The second machine has written all, the first has lost its own and waits anew: what is there is no pair.
#[test]
fn no_node_takes_itself_for_joined_while_one_is_waited_for() {
    let machines = Machines::new();
    let first = machines.wait(&["--no-start"]);
    expect(&machines.join(&first.token(), &["--no-start"]), 0, &["far has joined"]);
    assert_eq!(first.finish().0, Some(0));
    fs::remove_file(machines.path("near/etc/farshore.toml")).expect("lost");
    let waiting = machines.wait(&["--no-start"]);
    let right = JoinToken::parse(&waiting.token()).expect("a token");
    let wrong = JoinToken::new(right.address(), u64::MAX / 2, right.fingerprint(), [7; 16]);
    let refused = expect(&machines.join(&wrong.to_string(), &["--no-start"]), 2, &["its secret is another one"]);
    assert!(!refused.contains("has joined already"), "{refused}");
    expect(&machines.join(&waiting.token(), &["--no-start"]), 0, &["far has joined"]);
}

/// The second machine has written all, the first has lost its own. A daemon that was started there meanwhile is in the way of the next try.
#[test]
fn a_daemon_of_an_earlier_try_is_named() {
    let mut machines = Machines::new();
    let first = machines.wait(&["--no-start"]);
    let old = first.token();
    expect(&machines.join(&old, &["--no-start"]), 0, &["far has joined"]);
    assert_eq!(first.finish().0, Some(0));
    fs::remove_file(machines.path("near/etc/farshore.toml")).expect("lost");
    machines.serve("far");
    machines.far_answers();
    let mut waiting = machines.wait(&["--no-start"]);
    let again = expect(&machines.join(&old, &[]), 2, &["waits for another token", "printed last"]);
    assert!(!again.contains("has joined already"), "{again}");
    expect(&machines.join(&waiting.token(), &[]), 2, &["the daemon of far runs already", "systemctl stop farshore"]);
    machines.stop();
    expect(&machines.join(&waiting.next_token(), &["--no-start"]), 0, &["far has joined"]);
    assert_eq!(waiting.finish().0, Some(0));
}

#[test]
fn nothing_that_the_joining_node_says_drives_the_first_ones_terminal() {
    let machines = Machines::new();
    for (last, code) in [(json!({ "left": "no \u{1b}[31mway" }), Some(2)), (json!("written"), Some(0))] {
        let waiting = machines.wait(&["--no-start"]);
        let bell = Bell::hang(machines.addresses[1]).expect("hung");
        let (mut line, answer) = wish_by_hand(&machines, &waiting.token(), "\u{1b}]0;9.9\u{7}", bell.word());
        assert!(answer["grant"].is_object(), "{answer}");
        line.send(&last).expect("sent");
        assert_eq!(waiting.finish().0, code, "{}", machines.log());
    }
    let log = machines.log();
    assert!(log.contains("no ?[31mway") && log.contains("far runs Farshore ?]0;9.9?"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log:?}");
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
    let mut waiting = machines.wait(&[]);
    let away = machines.join_at(&waiting.token(), "192.0.2.1:7337".parse().expect("an address"), &[]);
    expect(&away, 2, &["192.0.2.1 is no address of this machine"]);
    let taken = TcpListener::bind(far).expect("its port");
    let port = format!("port {} of {} is taken by another program", far.port(), far.ip());
    expect(&machines.join(&waiting.next_token(), &[]), 2, &[&port]);
    drop(taken);
    // Nobody reaches the port of a node behind a firewall.
    let (_, answer) = wish_by_hand(&machines, &waiting.next_token(), "0.0.0", &"0".repeat(32));
    let said = answer["refused"].as_str().expect("a refusal");
    let test = format!("test it on near with 'nc -vz {} {}'", far.ip(), far.port());
    for part in [&format!("port {} of far ({}) is not reached from near", far.port(), far.ip()), &test] {
        assert!(said.contains(part.as_str()), "no {part:?} in: {said}");
    }
    machines.far_is_untouched();
    expect(&machines.join(&waiting.next_token(), &["--no-start"]), 0, &["far has joined"]);
}

/// A node that is none, of that version of the program: its line, and what its wish is answered.
fn wish_by_hand(machines: &Machines, token: &str, program: &str, bell: &str) -> (JoinLine, Value) {
    let token = JoinToken::parse(token).expect("a token");
    let mut line = JoinLine::dial(&token, Duration::from_secs(5)).expect("it waits");
    let offer: Value = line.receive().expect("an offer");
    assert_eq!(offer["offer"]["volumes"][0], json!({ "name": "data", "bytes": VOLUME_BYTES }));
    let key = OwnKey::find_or_make(&machines.path("none")).expect("a key");
    let unix_ms = offer["offer"]["unix_ms"].clone();
    line.send(&json!({ "wish": {
        "program": program, "node": "far", "address": machines.addresses[1],
        "state": "/var/lib/farshore", "bell": bell, "unix_ms": unix_ms,
        "devices": [{ "volume": "data", "path": "/dev/vg0/data", "bytes": VOLUME_BYTES }],
        "request": key.request().expect("a request"),
    } }))
    .expect("sent");
    let answer: Value = line.receive().expect("an answer");
    (line, answer)
}

#[test]
fn a_device_that_carries_data_or_is_too_small_is_refused_before_anything_is_written() {
    let machines = Machines::new();
    let mut waiting = machines.wait(&[]);
    let token = waiting.token();
    let full = || fs::write(machines.path("far/data"), vec![5; VOLUME_BYTES]).expect("written");
    full();
    let refused = machines.join(&token, &[]);
    expect(&refused, 2, &["carries data (at byte 0)", "--overwrite", "Nothing was written"]);
    expect(&machines.join(&token, &["--device", "/dev/null"]), 2, &["each needs its volume's name"]);
    // So far nobody was shown the token, which is as good as new.
    assert!(!machines.log().contains("did not join"), "{}", machines.log());
    machines.blank("far/data", 4 << 20);
    let small = expect(
        &machines.join(&token, &[]),
        2,
        &["is too small for volume data: it has 4MiB, and the volume needs 8MiB"],
    );
    assert!(small.contains("on far"), "{small}");
    machines.far_is_untouched();
    let log = machines.log();
    assert!(log.contains("did not join: ") && log.contains("is too small"), "{log}");
    full();
    expect(&machines.join(&waiting.next_token(), &["--overwrite", "--no-start"]), 0, &["far has joined"]);
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
    let mut waiting = Waiting::new(&mut up);
    let form = " --device data=/dev/disk/by-id/DISK --device log=/dev/disk/by-id/DISK";
    assert!(waiting.line.ends_with(form), "{}", waiting.line);
    let join = |token: &str, devices: [String; 2]| {
        let mut command = Machines::farshore(&["join", "--name", "far", "--no-start", "--config"]);
        command.arg(machines.path("far/etc/farshore.toml")).arg("--state").arg(machines.path("far/state"));
        command.args(["--address", &machines.addresses[1].to_string()]);
        piped(command.args(devices.iter().flat_map(|device| ["--device", device])), token)
    };
    let exchanged = [format!("log={}", device("far/data")), format!("data={}", device("far/log"))];
    let small = "is too small for volume data: it has 4MiB, and the volume needs 8MiB";
    expect(&join(&waiting.token(), exchanged), 2, &[small]);
    let right = [format!("log={}", device("far/log")), format!("data={}", device("far/data"))];
    expect(&join(&waiting.next_token(), right), 0, &["far has joined group db"]);
    assert_eq!(waiting.finish().0, Some(0));
    let text = fs::read_to_string(machines.path("near/etc/farshore.toml")).expect("there");
    for part in ["[groups.db.volumes.data]", "[groups.db.volumes.log]", &device("far/log"), "journal = \"16MiB\""] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}
