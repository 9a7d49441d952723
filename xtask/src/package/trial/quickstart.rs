//! The quickstart between two hosts: `docs/book/quickstart.md`, from the configuration to the change of sides.

use super::host::TrialHost;
use super::{ALPHA, BETA, Tally};
use crate::project::run;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The device of each host: a file.
const DEVICE: &str = "/srv/data.img";
const DEVICE_BYTES: u64 = 64 << 20;
const CONFIG: &str = "/etc/farshore/farshore.toml";
/// How long a daemon may take to begin, or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon in the foreground of a host; ended when forgotten.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Configures, serves, syncs, writes, upgrades and changes sides.
///
/// # Errors
/// When a command fails, or something does not hold.
pub fn play(hosts: &[TrialHost; 2], package: &Path, tally: &mut Tally) -> Result<()> {
    let [alpha, beta] = hosts;
    configure(alpha, beta)?;
    for host in hosts {
        let said = host.run(&["farshore", "config", "check", "--node", host.node])?;
        tally.expect(&host.of("the configuration is sound"), said.contains(": sound"), &said)?;
    }
    let mut secondary = start(beta)?;
    let mut primary = start(alpha)?;
    sync_fully(alpha)?;
    let before = alpha.root.with_file_name("written");
    fill(&before)?;
    copy(&before, &export(alpha))?;
    alpha.run(&["farshore", "wait", "main", "--for", "replicating", "--timeout", "30s", "--node", "alpha"])?;
    let status = alpha.run(&["farshore", "status", "main", "--node", "alpha"])?;
    tally.expect("the group replicates", status.contains("replicating"), &status)?;

    let said = alpha.unpack(package)?;
    let lives = primary.0.try_wait()?.is_none() && said.contains("nothing was started or restarted");
    tally.expect("an upgrade leaves the daemon alone", lives, &said)?;

    alpha.run(&["farshore", "demote", "main", "--node", "alpha"])?;
    beta.run(&["farshore", "promote", "main", "--node", "beta"])?;
    let after = beta.root.with_file_name("read");
    copy(Path::new(&export(beta)), &after.to_string_lossy())?;
    let is_same = fs::read(&before)? == fs::read(&after)?;
    tally.expect("after a change of sides the other host has every byte", is_same, "the images differ")?;
    for (host, daemon) in [(alpha, &mut primary), (beta, &mut secondary)] {
        let code = end(daemon)?;
        tally.expect(&host.of("the daemon stops cleanly"), code == Some(0), &format!("{code:?}"))?;
    }
    Ok(())
}

/// Devices, one file for both nodes, certificates, and the copies that beta needs.
fn configure(alpha: &TrialHost, beta: &TrialHost) -> Result<()> {
    for host in [alpha, beta] {
        fs::File::create(host.root.join(DEVICE.trim_start_matches('/')))?.set_len(DEVICE_BYTES)?;
    }
    let side = |(node, _, address): (&str, &str, &str)| format!("{node}={address}:{DEVICE}");
    alpha.run(&["farshore", "init", "--near", &side(ALPHA), "--far", &side(BETA), "--out", CONFIG])?;
    for words in [["init"].as_slice(), &["node", "alpha"], &["node", "beta"]] {
        alpha.run(&[["farshore", "cert"].as_slice(), words].concat())?;
    }
    let folder = |host: &TrialHost| host.root.join("etc/farshore");
    fs::create_dir_all(folder(beta).join("tls/nodes"))?;
    for file in ["farshore.toml", "tls/ca.crt", "tls/nodes/beta.crt", "tls/nodes/beta.key"] {
        fs::copy(folder(alpha).join(file), folder(beta).join(file))
            .with_context(|| format!("copying {file} failed"))?;
    }
    Ok(())
}

/// Starts a daemon, and waits until it answers.
fn start(host: &TrialHost) -> Result<Daemon> {
    let mut daemon = Daemon(host.serve()?);
    let begun = Instant::now();
    let is_silent = || -> Result<bool> {
        let status = host.command(&["farshore", "status", "--node", host.node]).output()?.status;
        Ok(status.code().is_none_or(|code| code > 1))
    };
    while is_silent()? {
        let log = || fs::read_to_string(host.root.with_extension("log")).unwrap_or_default();
        ensure!(daemon.0.try_wait()?.is_none(), "the daemon of {} ended: {}", host.node, log());
        ensure!(begun.elapsed() < PATIENCE, "the daemon of {} does not answer: {}", host.node, log());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(daemon)
}

/// The first sync. A group that is still starting asks for patience, and a person types the command again.
fn sync_fully(host: &TrialHost) -> Result<()> {
    let begun = Instant::now();
    loop {
        match host.run(&["farshore", "sync", "main", "--full", "--wait", "--node", host.node]) {
            Err(error) if error.to_string().contains("try again in a moment") && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(500));
            }
            result => return result.map(drop),
        }
    }
}

/// Asks a daemon to stop. Returns its exit code; `None`: a signal ended it.
fn end(daemon: &mut Daemon) -> Result<Option<i32>> {
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    let begun = Instant::now();
    loop {
        if let Some(status) = daemon.0.try_wait()? {
            return Ok(status.code());
        }
        ensure!(begun.elapsed() < PATIENCE, "a daemon was asked to stop and did not");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A host's export, for a client outside of it: sockets are files.
fn export(host: &TrialHost) -> String {
    format!("nbd+unix:///main/data?socket={}", host.root.join("var/lib/farshore/nbd.sock").display())
}

/// As large as the device, of numbers that stand nowhere twice.
fn fill(file: &PathBuf) -> Result<()> {
    let words: Vec<u8> = (0..DEVICE_BYTES / 8).flat_map(|word| (word + 1).to_le_bytes()).collect();
    fs::write(file, words).with_context(|| format!("writing {} failed", file.display()))
}

fn copy(from: &Path, to: &str) -> Result<()> {
    run(Command::new("nbdcopy").arg("--flush").arg(from).arg(to))
}
