//! `link serve` and those who ask it, as whole programs on loopback.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Pair, PairPlan, Side, schema};

pub const PLAN: PairPlan = PairPlan { volumes: &["data"], volume_bytes: 1 << 20, ..PairPlan::DEFAULT };

pub fn farshore(pair: &Pair, words: &[&str], node: Side) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.args(words).arg("--config").arg(pair.config()).args(["--node", node.name()]);
    command.stdin(Stdio::null()).env("NO_COLOR", "1");
    command
}

/// What a command says line by line as it goes, once it has ended.
pub fn stream(pair: &Pair, address: &str, command: &str, words: &[&str]) -> Vec<Value> {
    let words = [&["link", command, address, "--json-stream"], words].concat();
    let output = farshore(pair, &words, Side::Near).output().expect("the binary runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{words:?}: {errors}");
    let said = String::from_utf8(output.stdout).expect("text");
    let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let schema = format!("farshore-link-{command}-stream/1");
    assert!(events.iter().all(|event| event["schema"] == schema), "{events:?}");
    assert!(events.last().is_some_and(|last| last["event"] == "end"), "{events:?}");
    events.iter().for_each(schema::seen);
    events
}

/// The same while it runs.
pub fn streaming(pair: &Pair, words: &[&str]) -> (Child, impl Iterator<Item = Value> + use<>) {
    let words = [words, &["--json-stream"]].concat();
    let mut child = farshore(pair, &words, Side::Near).stdout(Stdio::piped()).spawn().expect("the binary runs");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    (child, lines.map(|line| serde_json::from_str(&line.expect("text")).expect("JSON")))
}

/// `link serve` on the far node, ended with the test.
pub struct LinkServer {
    pub child: Child,
    pub address: SocketAddr,
    said: BufReader<std::process::ChildStdout>,
    /// What it complains of.
    log: PathBuf,
}

impl LinkServer {
    pub fn start(pair: &Pair, words: &[&str]) -> LinkServer {
        let words = [&["link", "serve", "--listen", "127.0.0.1:0"], words].concat();
        let log = pair.path("serve.log");
        let mut command = farshore(pair, &words, Side::Far);
        command.stdout(Stdio::piped()).stderr(fs::File::create(&log).expect("created"));
        let mut child = command.spawn().expect("the binary runs");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says where it listens");
        let address = line.trim_start_matches("serving line tests on ").split(';').next().unwrap_or_default();
        LinkServer { address: address.parse().unwrap_or_else(|_| panic!("{line}")), child, said, log }
    }

    /// What it said, once it has ended by itself.
    pub fn end(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.said.read_to_string(&mut text).expect("text");
        (self.child.wait().expect("it ended").code(), text)
    }

    /// The next line it says.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("text");
        line
    }

    /// The lines it says up to the first one with this in it.
    pub fn until(&mut self, part: &str) {
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "it ended and did not say {part:?}");
            if line.contains(part) {
                return;
            }
        }
    }

    /// How many of its complaints say this.
    pub fn complaints(&self, of: &str) -> usize {
        fs::read_to_string(&self.log).expect("a log").lines().filter(|line| line.contains(of)).count()
    }

    pub fn interrupt(&self) {
        interrupt(&self.child);
    }
}

impl Drop for LinkServer {
    fn drop(&mut self) {
        // Both fail when it has ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn interrupt(child: &Child) {
    send(child, Signal::INT);
}

pub fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it runs");
}
