//! `cargo xtask wan` as a program: what it gives to a command, and that nothing of it stays behind.
//! Needs root and `/dev/net/tun`; without them it says so and is counted as skipped by
//! `cargo xtask test`.

use rustix::process::{Pid, Signal, geteuid, kill_process, test_kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const XTASK: &str = env!("CARGO_BIN_EXE_xtask");
const PATIENCE: Duration = Duration::from_secs(20);

fn must_skip(test: &str) -> bool {
    if geteuid().is_root() && Path::new("/dev/net/tun").exists() {
        return false;
    }
    eprintln!("SKIPPED {test}: it needs root and /dev/net/tun");
    if let Some(path) = std::env::var_os("FARSHORE_TEST_SKIPS") {
        let list = fs::File::options().append(true).create(true).open(path);
        writeln!(list.expect("the list of skips"), "{test}: it needs root and /dev/net/tun")
            .expect("the list of skips takes a line");
    }
    true
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A WAN kept up by another process, with a program left running in one of its namespaces.
struct WanProcess {
    name: String,
    forwarder: Child,
    lodger: Child,
}

impl WanProcess {
    fn start(name: &str) -> WanProcess {
        let name = format!("{name}-{}", std::process::id());
        let mut forwarder = Command::new(XTASK)
            .args(["wan", "up", "--rtt", "2ms", "--name", &name])
            .stdout(Stdio::piped())
            .spawn()
            .expect("our own binary");
        let lines = BufReader::new(forwarder.stdout.take().expect("stdout is piped")).lines();
        let lines: Vec<String> = lines.map(|line| line.expect("text")).take_while(|line| line != "ready").collect();
        assert!(lines.contains(&format!("FARSHORE_WAN_NEAR_NS={name}-near")), "{lines:?}");
        let lodger = Command::new("ip")
            .args(["netns", "exec", &format!("{name}-near"), "sleep", "1000"])
            .spawn()
            .expect("iproute2");
        WanProcess { name, forwarder, lodger }
    }

    fn traces(&self) -> Vec<String> {
        let WanProcess { name, .. } = self;
        let paths =
            [format!("/run/netns/{name}-near"), format!("/run/netns/{name}-far"), format!("/run/farshore-wan/{name}")];
        paths.into_iter().filter(|path| fs::symlink_metadata(path).is_ok()).collect()
    }

    /// Waits until the program inside the namespace is really there.
    fn wait_for_lodger(&self) {
        let lodger = format!("/proc/{}/comm", self.lodger.id());
        eventually("sleep runs in the namespace", || {
            fs::read_to_string(&lodger).is_ok_and(|comm| comm.trim() == "sleep")
        });
    }
}

impl Drop for WanProcess {
    fn drop(&mut self) {
        for child in [&mut self.forwarder, &mut self.lodger] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_command_finds_the_wan_and_gives_its_status() {
    if must_skip("a_command_finds_the_wan_and_gives_its_status") {
        return;
    }
    let script = "ip netns exec $FARSHORE_WAN_NEAR_NS ping -q -c 1 -W 5 $FARSHORE_WAN_FAR_ADDR >&2 && \
                  $XTASK wan ctl cut ab && $XTASK wan ctl stats && exit 7";
    let output = Command::new(XTASK)
        .args(["wan", "run", "--rtt", "2ms", "--", "sh", "-c", script])
        .env("XTASK", XTASK)
        .output()
        .expect("our own binary");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    let report = text.lines().last().expect("a line of statistics");
    let report: serde_json::Value = serde_json::from_str(report).expect("JSON");
    assert_eq!(report["ab"]["line"]["is_cut"], true);
    assert_eq!(report["ba"]["line"]["is_cut"], false);
    let name = report["name"].as_str().expect("a name");
    assert!(fs::symlink_metadata(format!("/run/netns/{name}-near")).is_err());
}

#[test]
fn a_signal_ends_it_with_all_that_runs_inside() {
    if must_skip("a_signal_ends_it_with_all_that_runs_inside") {
        return;
    }
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let mut up = WanProcess::start("signal");
        up.wait_for_lodger();
        kill_process(Pid::from_child(&up.forwarder), signal).expect("our own child");
        assert!(up.forwarder.wait().expect("our own child").success());
        assert_eq!(up.traces(), Vec::<String>::new());
        assert!(!up.lodger.wait().expect("our own child").success(), "killed, not finished");
    }
}

#[test]
fn the_next_start_removes_what_a_killed_one_left() {
    if must_skip("the_next_start_removes_what_a_killed_one_left") {
        return;
    }
    let mut up = WanProcess::start("killed");
    up.wait_for_lodger();
    up.forwarder.kill().expect("our own child");
    up.forwarder.wait().expect("our own child");
    let status = Command::new(XTASK)
        .args(["wan", "run", "--name", &format!("next-{}", std::process::id()), "--", "true"])
        .status()
        .expect("our own binary");
    assert!(status.success());
    assert_eq!(up.traces(), Vec::<String>::new());
    assert!(!up.lodger.wait().expect("our own child").success(), "killed, not finished");
}

#[test]
fn a_command_does_not_outlive_a_killed_forwarder() {
    if must_skip("a_command_does_not_outlive_a_killed_forwarder") {
        return;
    }
    let mut forwarder = Command::new(XTASK)
        .args(["wan", "run", "--rtt", "2ms", "--", "sh", "-c", "echo $$; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("our own binary");
    let mut line = String::new();
    let mut stdout = BufReader::new(forwarder.stdout.take().expect("stdout is piped"));
    stdout.read_line(&mut line).expect("a line");
    let command = Pid::from_raw(line.trim().parse().expect("a process id")).expect("not zero");
    forwarder.kill().expect("our own child");
    forwarder.wait().expect("our own child");
    eventually("the command ended with the forwarder", || test_kill_process(command).is_err());
}
