//! A pair whose nodes live in the two namespaces of an emulated WAN (docs/book/wan.md).

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use super::{Pair, PairPlan, Side, is_root, must_skip};

/// A WAN kept up by a process of its own, which removes it when it ends.
pub struct WanGuard {
    forwarder: Child,
    xtask: PathBuf,
    environment: HashMap<String, String>,
}

impl WanGuard {
    /// Sets one up; `None` where that is impossible, which is said.
    pub fn start(test: &str, options: &[&str]) -> Option<WanGuard> {
        let xtask = xtask();
        let needed = [
            ("root", is_root()),
            ("/dev/net/tun", std::path::Path::new("/dev/net/tun").exists()),
            ("the xtask binary (cargo build -p xtask)", xtask.is_file()),
        ];
        if must_skip(test, &needed) {
            return None;
        }
        // Told to stop when this process ends, however it ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]).arg(&xtask).args(["wan", "up"]).args(options);
        let mut forwarder = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("setpriv runs xtask");
        let lines = BufReader::new(forwarder.stdout.take().expect("stdout is piped")).lines();
        let lines: Vec<String> = lines.map(|line| line.expect("text")).take_while(|line| line != "ready").collect();
        let pairs = lines.iter().filter_map(|line| line.split_once('='));
        let environment = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Some(WanGuard { forwarder, xtask, environment })
    }

    fn value(&self, name: &str) -> &str {
        self.environment.get(name).unwrap_or_else(|| panic!("the WAN tells {name}: {:?}", self.environment))
    }

    /// Changes the running line, such as `cut` and `restore`.
    pub fn control(&self, words: &[&str]) {
        let mut command = Command::new(&self.xtask);
        command.args(["wan", "ctl", "--socket", self.value("FARSHORE_WAN_CONTROL")]).args(words);
        let output = command.output().expect("xtask runs");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A pair with a node at each end, which know each other by certificates; neither is served yet.
    pub fn pair(&self, plan: &PairPlan) -> Pair {
        let pair = Pair::new(&PairPlan { head: &format!("[tls]\ndirectory = \"tls\"\n{}", plan.head), ..*plan });
        pair.certify();
        for node in Side::BOTH {
            let address = format!("{}:7337", self.address(node));
            pair.edit_config(&pair.address(node).to_string(), &address);
        }
        pair
    }

    /// A command to be run at an end.
    pub fn at(&self, node: Side, program: &str) -> Command {
        let end = if node == Side::Near { "NEAR" } else { "FAR" };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.value(&format!("FARSHORE_WAN_{end}_NS")), program]);
        command
    }

    /// The address of an end.
    pub fn address(&self, node: Side) -> &str {
        self.value(if node == Side::Near { "FARSHORE_WAN_NEAR_ADDR" } else { "FARSHORE_WAN_FAR_ADDR" })
    }

    /// Serves both nodes, each at its end.
    pub fn serve(&self, pair: &mut Pair) {
        Side::BOTH.into_iter().for_each(|node| self.serve_one(pair, node));
    }

    pub fn serve_one(&self, pair: &mut Pair, node: Side) {
        let mut command = self.at(node, env!("CARGO_BIN_EXE_farshore"));
        command.args(["serve", "--node", node.name(), "--config"]).arg(pair.config());
        pair.serve_by(node, command);
    }
}

/// `link serve` at the far end; it ends with this.
pub struct LineServer(Child);

impl WanGuard {
    pub fn serve_tests(&self, pair: &Pair) -> LineServer {
        let mut command = self.at(Side::Far, env!("CARGO_BIN_EXE_farshore"));
        command.args(["link", "serve", "--node", "far", "--config"]).arg(pair.config());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the binary runs");
        // It ends after a few lines for each test: a pipe holds more.
        let mut line = String::new();
        let said = child.stdout.as_mut().expect("stdout is piped");
        BufReader::new(said).read_line(&mut line).expect("it says where it listens");
        assert!(line.starts_with("serving line tests on"), "{line}");
        LineServer(child)
    }

    /// `link WORDS` at the near end, to its end.
    pub fn link(&self, pair: &Pair, words: &[&str]) -> Output {
        let mut command = self.at(Side::Near, env!("CARGO_BIN_EXE_farshore"));
        command.arg("link").args(words).args(["--node", "near", "--config"]).arg(pair.config());
        command.stdin(Stdio::null()).env("NO_COLOR", "1").output().expect("the binary runs")
    }
}

impl Drop for LineServer {
    fn drop(&mut self) {
        // Both fail when it has ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for WanGuard {
    fn drop(&mut self) {
        let process = rustix::process::Pid::from_child(&self.forwarder);
        // It fails when the forwarder has ended by itself, which is as good.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        let _ = self.forwarder.wait();
    }
}

/// `cargo xtask test` names itself; else it is looked for where cargo puts it.
fn xtask() -> PathBuf {
    let beside = || PathBuf::from(env!("CARGO_BIN_EXE_farshore")).with_file_name("xtask");
    std::env::var_os("FARSHORE_XTASK").map_or_else(beside, PathBuf::from)
}
