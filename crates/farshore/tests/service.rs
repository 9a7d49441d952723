//! A service manager that started the daemon hears that it is ready, how its groups stand, that it lives and that it stops.

use crate::common::{DEADLINE, Pair, PairPlan, Side, must_skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What systemd sets for `Type=notify` and `WatchdogSec=3`, and what it heard so far.
struct ServiceManager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl ServiceManager {
    fn new(path: &Path) -> ServiceManager {
        let socket = UnixDatagram::bind(path).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        ServiceManager { socket, heard: Vec::new() }
    }

    fn starts(pair: &mut Pair, node: Side, socket: &Path) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(["serve", "--node", node.name(), "--config"]).arg(pair.config());
        command.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", "3000000");
        pair.serve_by(node, command);
    }

    /// Listens until each of these is heard: a line that begins like the first and holds the second.
    fn until(&mut self, wanted: &[(&str, &str)]) {
        let (from, began) = (self.heard.len(), Instant::now());
        let mut datagram = [0; 4096];
        loop {
            let is_heard = |(begins, holds): &(&str, &str)| {
                self.heard[from..].iter().any(|line| line.starts_with(begins) && line.contains(holds))
            };
            if wanted.iter().all(is_heard) {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "not all of {wanted:?} in {:?}", self.heard);
            if let Ok(length) = self.socket.recv(&mut datagram) {
                let text = std::str::from_utf8(&datagram[..length]).expect("text");
                self.heard.extend(text.lines().map(str::to_owned));
            }
        }
    }
}

#[test]
fn a_service_manager_hears_how_the_groups_stand() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    let path = pair.path("notify");
    let mut manager = ServiceManager::new(&path);
    ServiceManager::starts(&mut pair, Side::Near, &path);
    manager.until(&[("READY=1", ""), ("STATUS=1 group: 1 logging", "")]);
    pair.serve(Side::Far);
    pair.sync_fully(Side::Near);
    manager.until(&[("STATUS=1 group: 1 replicating", ""), ("WATCHDOG=1", "")]);
    assert!(pair.stop(Side::Near).success());
    manager.until(&[("STOPPING=1", "")]);
}

/// Nothing of the group is opened, for a reason that is known: whoever waits for this daemon waits no longer.
#[test]
fn a_daemon_with_a_group_that_is_refused_is_ready_and_says_so() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    pair.serve(Side::Near);
    assert!(pair.stop(Side::Near).success());
    let device = pair.device(Side::Near, "data");
    fs::rename(&device, pair.path("kept")).expect("moved away");
    fs::File::create(&device).and_then(|file| file.set_len(16 << 20)).expect("another file under its name");
    let path = pair.path("notify");
    let mut manager = ServiceManager::new(&path);
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.args(["serve", "--node", "near", "--config"]).arg(pair.config()).env("NOTIFY_SOCKET", &path);
    pair.serve_by(Side::Near, command);
    manager.until(&[("STATUS=1 group", "1 refused"), ("READY=1", "")]);
}

/// It was told of a service manager that is not there: that is no reason to serve nobody.
#[test]
fn a_service_manager_that_does_not_listen_keeps_nobody_from_serving() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    let nowhere = pair.path("nowhere");
    ServiceManager::starts(&mut pair, Side::Near, &nowhere);
    assert!(pair.stop(Side::Near).success());
}

/// The journal knows the time of a line, and reads its priority from the line's head.
#[test]
fn the_journal_gets_priorities_and_no_times() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    let log = fs::File::create(pair.path("journal")).expect("a log");
    let stat = rustix::fs::fstat(&log).expect("asked");
    let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
    command.args(["serve", "--node", "near", "--config"]).arg(pair.config());
    command.env("JOURNAL_STREAM", format!("{}:{}", stat.st_dev, stat.st_ino));
    pair.serve_by_with_log(Side::Near, command, log.into());
    assert!(pair.stop(Side::Near).success());
    let text = fs::read_to_string(pair.path("journal")).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("<6> INFO farshore::daemon: node near of cluster")), "{text}");
    assert!(lines.iter().all(|line| line.starts_with("<6> INFO ")), "{text}");
}

/// The settings of the unit that is shipped.
fn unit() -> Vec<(String, String)> {
    let text = include_str!("../../../packaging/systemd/farshore.service");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('=')).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn setting(key: &str) -> String {
    let found: Vec<String> = unit().into_iter().filter(|(other, _)| other == key).map(|(_, value)| value).collect();
    assert_eq!(found.len(), 1, "{key}: {found:?}");
    found[0].clone()
}

/// The service manager does not kill a stop that is still within its own patience, and what it starts is a command.
#[test]
fn the_unit_fits_the_daemon() {
    let seconds: u64 = setting("TimeoutStopSec").parse().expect("seconds");
    assert!(Duration::from_secs(seconds) > host::driver::STOP_PATIENCE + Duration::from_secs(2), "{seconds} s");
    assert_eq!(setting("Type"), "notify");
    let command = setting("ExecStart");
    let arguments = command.strip_prefix("/usr/bin/farshore ").expect("the program").split(' ');
    let output = Command::new(env!("CARGO_BIN_EXE_farshore")).args(arguments).arg("--help").output().expect("runs");
    assert!(output.status.success(), "{command}");
}

/// A unit that wants the daemon brings back one that was stopped, at each of its own tries.
#[test]
fn no_other_unit_starts_the_daemon() {
    for unit in [
        include_str!("../../../packaging/systemd/farshore-attach@.service"),
        include_str!("../../../packaging/systemd/farshore-primary@.service"),
        include_str!("../../../packaging/systemd/farshore-primary@.target"),
        include_str!("../../../packaging/systemd/resource-agents-deps.target.d/farshore.conf"),
    ] {
        let named: Vec<&str> = unit.lines().filter(|line| line.split(['=', ' ']).any(|word| word == DAEMON)).collect();
        assert_eq!(named, [format!("After={DAEMON}")], "{unit}");
    }
}

const DAEMON: &str = "farshore.service";

/// Of the settings that keep a service from devices, `ProtectClock=` does not look like one: before systemd 253 it leaves only the clock's.
#[test]
fn the_unit_of_a_device_may_open_devices() {
    let unit = include_str!("../../../packaging/systemd/farshore-attach@.service");
    for closes in ["ProtectClock=", "PrivateDevices=", "DevicePolicy=", "DeviceAllow="] {
        assert!(!unit.lines().any(|line| line.starts_with(closes)), "{closes}");
    }
}

/// What a script of a package asks of systemctl before a removal, on a system of these links. The script is led to folders of ours.
fn asked_by_removal(script: &str, word: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name);
    let wants = place("units/multi-user.target.wants");
    for made in [&place("run"), &place("bin"), &wants, &place("units/farshore-attach@db-data.service.d")] {
        fs::create_dir_all(made).expect("a folder");
    }
    for unit in [
        "farshore-attach@db-data.service",
        r"farshore-attach@db-my\x2dlog.service",
        "farshore-primary@db.service",
        "x.service",
    ] {
        std::os::unix::fs::symlink("/nowhere", wants.join(unit)).expect("a link");
    }
    let systemctl = format!("#!/bin/sh\nprintf '%s\\n' \"$*\" >> {}\n", place("asked").display());
    fs::write(place("bin/systemctl"), systemctl).expect("a program");
    fs::set_permissions(place("bin/systemctl"), fs::Permissions::from_mode(0o755)).expect("a mode");
    let script = script
        .replace("/etc/systemd/system", &place("units").display().to_string())
        .replace("/run/systemd/system", &place("run").display().to_string())
        .replace("/run/farshore", &place("no-device").display().to_string());
    let path = format!("{}:{}", place("bin").display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("sh").args(["-c", &script, "script", word]).env("PATH", path).output().expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(place("asked")).expect("it was asked").lines().map(str::to_owned).collect()
}

/// An instance that waits for its next try, or stays enabled, would be there with the next installation.
#[test]
fn a_removal_stops_and_disables_each_instance() {
    for (script, word) in [
        (include_str!("../../../packaging/debian/prerm"), "remove"),
        (include_str!("../../../packaging/rpm/preun.sh"), "0"),
    ] {
        let asked = asked_by_removal(script, word);
        assert_eq!(
            asked,
            [
                "stop farshore-primary@*.service",
                "stop farshore-primary@*.target",
                "stop farshore-attach@*.service",
                "stop farshore.service",
                "reset-failed farshore*",
                "--quiet disable farshore.service",
                "--quiet disable farshore-attach@db-data.service",
                r"--quiet disable farshore-attach@db-my\x2dlog.service",
                "--quiet disable farshore-primary@db.service",
            ]
        );
    }
}

/// What `systemd-analyze security` finds open in the unit: 10 is everything.
#[test]
fn the_unit_exposes_little() {
    let is_there = Command::new("systemd-analyze").arg("--version").output().is_ok();
    if must_skip("the_unit_exposes_little", &[("systemd-analyze", is_there)]) {
        return;
    }
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/farshore.service");
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--threshold=30", "--no-pager", unit]);
    let output = command.output().expect("asked before");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
