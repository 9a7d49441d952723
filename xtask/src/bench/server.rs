//! The servers: ours as an operator would run it, the others as their manuals recommend for comparison.

use super::BenchSeries;
use crate::wan::sys;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_PATIENCE: Duration = Duration::from_secs(20);
const STOP_PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// For the first copy, which goes over loopback.
const SYNC_PATIENCE: &str = "5m";
const GROUP: &str = "bench";

/// A running server. Dropped, it is killed.
pub struct BenchServer {
    pub title: &'static str,
    /// For fio and every other libnbd program.
    pub uri: String,
    child: Child,
    log: PathBuf,
}

impl BenchServer {
    /// A pair of daemons makes a first copy, so that no region is dirty; then the far one is stopped and the group put
    /// to `logging`: what is measured is an export that tracks what changes.
    ///
    /// # Errors
    /// With the place and the end of the daemon's log.
    pub fn farshore(program: &Path, home: &Path, file: &Path, series: BenchSeries) -> Result<BenchServer> {
        let far_file = home.join("far.img");
        File::create_new(&far_file)?.set_len(fs::metadata(file)?.len())?;
        secret(home)?;
        let config = home.join("farshore.toml");
        fs::write(&config, config_text(home, file, &far_file, series)?)?;
        let daemon = |node: &str| {
            let mut command = Command::new(program);
            command.arg("serve").arg("--config").arg(&config).args(["--node", node]);
            let socket = home.join(format!("{node}.state/nbd.sock"));
            let uri = format!("nbd+unix:///{GROUP}/v1?socket={}", socket.display());
            BenchServer::start("farshore", command, &home.join(format!("{node}.log")), uri)
        };
        let far = daemon("far")?;
        // The file is filled, so whose content counts has to be said before the first start.
        let accept = ["accept-device", GROUP, "v1", "--content-is-good", "--node", "near", "--config"];
        let accepted = Command::new(program).args(accept).arg(&config).output()?;
        ensure!(accepted.status.success(), "{}", String::from_utf8_lossy(&accepted.stderr));
        let near = daemon("near")?;
        let control = home.join("near.state/control.sock");
        let verbs = [
            &["sync", GROUP, "--full", "--wait"][..],
            &["wait", GROUP, "--for", "replicating", "--timeout", SYNC_PATIENCE],
            &["logging", GROUP],
        ];
        for verb in verbs {
            near.order(program, verb, &control)?;
        }
        far.stop()?;
        near.wait_until_served()?;
        Ok(near)
    }

    /// Run a command of ours against this daemon, again while the daemon says that it is still starting.
    ///
    /// # Errors
    /// It fails to the last.
    pub fn order(&self, program: &Path, verb: &[&str], control: &Path) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            let output = Command::new(program).args(verb).arg("--socket").arg(control).output()?;
            if output.status.success() {
                return Ok(());
            }
            let complaint = String::from_utf8_lossy(&output.stderr);
            let words = self.last_words();
            ensure!(Instant::now() < deadline, "farshore {} failed: {}{words}", verb[0], complaint.trim());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// # Errors
    /// It does not start.
    pub fn qemu_nbd(home: &Path, file: &Path) -> Result<BenchServer> {
        let socket = home.join("qemu.sock");
        let mut command = Command::new("qemu-nbd");
        command.args(["--persistent", "--shared=0", "--socket"]).arg(&socket).args(["--export-name", "bench"]);
        // Its own lock would refuse the file that our daemon holds; nobody writes while the other one is asked.
        let shown_path = file.display();
        command
            .arg("--image-opts")
            .arg(format!("driver=file,filename={shown_path},locking=off,cache.direct=on,aio=io_uring"));
        let uri = format!("nbd+unix:///bench?socket={}", socket.display());
        let server = BenchServer::start("qemu-nbd cache=none aio=io_uring", command, &home.join("qemu-nbd.log"), uri)?;
        server.wait_until_served()?;
        Ok(server)
    }

    /// # Errors
    /// It does not start.
    pub fn nbdkit(home: &Path, file: &Path) -> Result<BenchServer> {
        let socket = home.join("nbdkit.sock");
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--unix"]).arg(&socket).arg("file").arg(file);
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let server = BenchServer::start("nbdkit file", command, &home.join("nbdkit.log"), uri)?;
        server.wait_until_served()?;
        Ok(server)
    }

    /// Starts a server that is reached at `uri`; what it says goes to `log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(title: &'static str, mut command: Command, log: &Path, uri: String) -> Result<BenchServer> {
        let output = File::create(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        sys::end_with_parent(&mut command);
        let child = command.spawn().with_context(|| format!("starting {title} failed; is it installed?"))?;
        Ok(BenchServer { title, uri, child, log: log.to_owned() })
    }

    /// Wait until its export can be entered.
    fn wait_until_served(&self) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            let output = Command::new("nbdinfo").args(["--size", &self.uri]).output();
            let output = output.context("starting nbdinfo failed; is it installed?")?;
            if output.status.success() {
                return Ok(());
            }
            let complaint = String::from_utf8_lossy(&output.stderr);
            ensure!(
                Instant::now() < deadline,
                "{} does not serve {}: {}{}",
                self.title,
                self.uri,
                complaint.trim(),
                self.last_words()
            );
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Processor time of all its threads so far, in the kernel and outside.
    ///
    /// # Errors
    /// It has ended.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text =
            fs::read_to_string(&path).with_context(|| format!("{} has ended{}", self.title, self.last_words()))?;
        let ticks = cpu_ticks(&text).with_context(|| format!("{path} makes no sense"))?;
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// # Errors
    /// It does not end in time; then it is killed.
    pub fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let deadline = Instant::now() + STOP_PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!("{} did not stop within {} s{}", self.title, STOP_PATIENCE.as_secs(), self.last_words());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// The end of its log: the file will be gone when the sentence is read.
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        match lines[lines.len().saturating_sub(5)..] {
            [] => "; it logged nothing".to_owned(),
            ref last => format!("; its last words:\n  {}", last.join("\n  ")),
        }
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What both daemons of a pair prove to each other. They live for this run only, on loopback.
///
/// # Errors
/// The file cannot be made.
pub fn secret(home: &Path) -> Result<()> {
    let mut secret = OpenOptions::new().write(true).create_new(true).mode(0o600).open(home.join("secret"))?;
    writeln!(secret, "bench-{:?}-{}-not-a-secret-worth-keeping", Instant::now(), std::process::id())?;
    Ok(())
}

/// Addresses for two daemons of this machine.
///
/// # Errors
/// There is no loopback.
pub fn free_addresses() -> Result<[SocketAddr; 2]> {
    let ports = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    let [near, far] = ports.each_ref().map(TcpListener::local_addr);
    Ok([near?, far?])
}

fn config_text(home: &Path, file: &Path, far_file: &Path, series: BenchSeries) -> Result<String> {
    let [near, far] = free_addresses()?;
    let direct = series == BenchSeries::Direct;
    Ok(format!(
        "cluster = \"bench\"\nsecret_file = {secret:?}\n\n\
         [nodes.near]\naddress = \"{near}\"\nstate = {near_state:?}\n\n\
         [nodes.far]\naddress = \"{far}\"\nstate = {far_state:?}\n\n\
         [groups.{GROUP}]\nprimary = \"near\"\nsecondary = \"far\"\nstart_alone = \"serve\"\nqueue.disk = 0\n\n\
         [groups.{GROUP}.volumes.v1]\nnear = {file:?}\nfar = {far_file:?}\ndirect = {direct}\n",
        secret = home.join("secret"),
        near_state = home.join("near.state"),
        far_state = home.join("far.state"),
    ))
}

/// User and system time, fields 14 and 15; the second field, the program's name, may hold anything but a newline.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_odd_names() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(cpu_ticks("7 (short) S"), None);
    }
}
