//! Two daemons on loopback with one group of sparse files, whose primary can be killed and started again.

use super::super::server::{BenchServer, free_addresses, secret};
use super::super::{check_signals, control};
use super::nbd;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const GROUP: &str = "bench";
/// Volumes are called so, and numbered from 1.
pub const VOLUME: &str = "v";
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOK_AT_STATE_EVERY: Duration = Duration::from_millis(50);
const LOOK_AT_BITMAP_EVERY: Duration = Duration::from_secs(1);
/// However slow the machine is, what takes longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// A first sync reads the volumes once.
const SYNC_PATIENCE: Duration = Duration::from_secs(2 * 3600);

/// What the bench makes a group of.
#[derive(Clone, Copy, Debug)]
pub struct GroupShape {
    pub volumes: u64,
    pub volume_bytes: u64,
}

pub struct RecoveryPair {
    program: PathBuf,
    home: PathBuf,
    pub shape: GroupShape,
    near: Option<BenchServer>,
    far: Option<BenchServer>,
    starts: u32,
    /// The boot of the machine that `near` is told it runs in.
    boot: u32,
    signals: File,
}

impl RecoveryPair {
    /// Two daemons whose first copy is made; how long that took.
    ///
    /// # Errors
    /// With the end of the log of the daemon that failed.
    pub fn replicating(
        program: &Path,
        home: &Path,
        shape: GroupShape,
        signals: File,
    ) -> Result<(RecoveryPair, Duration)> {
        secret(home)?;
        fs::write(home.join("farshore.toml"), config_text(home, shape)?)?;
        for node in ["near", "far"] {
            for number in 1..=shape.volumes {
                File::create_new(home.join(format!("{node}.{VOLUME}{number}")))?.set_len(shape.volume_bytes)?;
            }
        }
        let (program, home) = (program.to_owned(), home.to_owned());
        let mut pair = RecoveryPair { program, home, shape, near: None, far: None, starts: 0, boot: 1, signals };
        pair.far = Some(pair.serve("far")?);
        pair.near = Some(pair.serve("near")?);
        let started = Instant::now();
        pair.near().order(&pair.program, &["sync", GROUP, "--full"], &pair.home.join("near.state/control.sock"))?;
        pair.wait_until_replicating(SYNC_PATIENCE)?;
        let took = started.elapsed();
        pair.wait_for_rest()?;
        Ok((pair, took))
    }

    fn serve(&mut self, node: &str) -> Result<BenchServer> {
        self.starts += 1;
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--config").arg(self.home.join("farshore.toml")).args(["--node", node]);
        if node == "near" {
            command.env("FARSHORE_BOOT_ID", self.boot.to_string());
        }
        BenchServer::start("farshore", command, &self.home.join(format!("{node}-{}.log", self.starts)), String::new())
    }

    fn near(&self) -> &BenchServer {
        self.near.as_ref().expect("it runs but within a blow")
    }

    /// For clients of the primary.
    pub fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{GROUP}/{volume}?socket={}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.home.join("near.state/nbd.sock")
    }

    /// Waits until clients have written since the counter stood there.
    ///
    /// # Errors
    /// They do not.
    pub fn wait_for_writes(&self, before: u64) -> Result<()> {
        let started = Instant::now();
        while self.counter("writes")? == before {
            ensure!(started.elapsed() < PATIENCE, "fio does not write; does it know the nbd engine?");
            self.pause(LOOK_EVERY)?;
        }
        Ok(())
    }

    /// Kills the primary; with `power` it comes back as after another boot of its machine.
    pub fn kill(&mut self, power: bool) {
        self.near.take();
        self.boot += u32::from(power);
    }

    /// Starts the primary; the time from then until a block at `offset` of the first volume was read.
    ///
    /// # Errors
    /// It does not serve.
    pub fn serve_again(&mut self, offset: u64) -> Result<Duration> {
        let started = Instant::now();
        self.near = Some(self.serve("near")?);
        loop {
            match nbd::read(&self.socket(), &format!("{GROUP}/{VOLUME}1"), offset) {
                Ok(_) => return Ok(started.elapsed()),
                Err(error) if started.elapsed() > PATIENCE => bail!("{error:#}{}", self.near().last_words()),
                Err(_) => self.pause(LOOK_EVERY)?,
            }
        }
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// The bench was interrupted.
    pub fn pause(&self, time: Duration) -> Result<()> {
        std::thread::sleep(time);
        check_signals(&self.signals)
    }

    /// Waits until the mode's promise holds again: what a sync had to send is on the peer's volumes.
    ///
    /// # Errors
    /// It does not come to that.
    pub fn wait_until_replicating(&self, patience: Duration) -> Result<()> {
        self.wait_until(patience, |group| group["state"] == "replicating")
    }

    fn wait_until(&self, patience: Duration, holds: impl Fn(&Value) -> bool) -> Result<()> {
        let started = Instant::now();
        loop {
            let status = self.ask(&json!({ "request": "status" }));
            let group = status.map(|status| status["groups"][0].clone()).unwrap_or_default();
            if holds(&group) {
                return Ok(());
            }
            let words = self.near().last_words();
            ensure!(started.elapsed() < patience, "the group is not in step: {group}{words}");
            self.pause(LOOK_AT_STATE_EVERY)?;
        }
    }

    /// Waits until nothing is dirty, on disk either: what earlier runs left there is not the next one's doing.
    ///
    /// # Errors
    /// Bits stay.
    pub fn wait_for_rest(&self) -> Result<()> {
        let started = Instant::now();
        loop {
            let clean = |group: &Value| group["state"] == "replicating" && group["peers"][0]["dirty_bytes"] == 0;
            self.wait_until(PATIENCE, clean)?;
            let stored = self.stored_regions()?;
            if stored == 0 {
                return Ok(());
            }
            ensure!(started.elapsed() < PATIENCE, "{stored} regions stay dirty on disk{}", self.near().last_words());
            self.pause(LOOK_AT_BITMAP_EVERY)?;
        }
    }

    fn stored_regions(&self) -> Result<u64> {
        let bitmap = self.home.join("near.state/groups").join(GROUP).join("bitmap");
        let output = Command::new(&self.program).args(["inspect", "--json"]).arg(bitmap).output()?;
        let found: Value = serde_json::from_slice(&output.stdout)?;
        let maps = found["files"][0]["facts"]["maps"].as_array().with_context(|| format!("no maps in {found}"))?;
        Ok(maps.iter().filter_map(|map| map["dirty_regions"].as_u64()).sum())
    }

    /// A sum of the primary since its start.
    ///
    /// # Errors
    /// It does not answer, or not with that.
    pub fn counter(&self, name: &str) -> Result<u64> {
        let answer = self.ask(&json!({ "request": "counters" }))?;
        answer["counters"][format!("group.{GROUP}.{name}")].as_u64().with_context(|| format!("no {name} in {answer}"))
    }

    fn ask(&self, request: &Value) -> Result<Value> {
        control::ask(&self.home.join("near.state/control.sock"), request)
    }

    /// # Errors
    /// A daemon does not stop in time.
    pub fn stop(mut self) -> Result<()> {
        for server in [self.near.take(), self.far.take()].into_iter().flatten() {
            server.stop()?;
        }
        Ok(())
    }
}

fn config_text(home: &Path, shape: GroupShape) -> Result<String> {
    let mut text = format!("cluster = \"bench\"\nsecret_file = {:?}\n\n", home.join("secret"));
    for (node, address) in ["near", "far"].into_iter().zip(free_addresses()?) {
        let state = home.join(format!("{node}.state"));
        text += &format!("[nodes.{node}]\naddress = \"{address}\"\nstate = {state:?}\n\n");
    }
    text += &format!("[groups.{GROUP}]\nprimary = \"near\"\nsecondary = \"far\"\nqueue.disk = 0\n\n");
    for number in 1..=shape.volumes {
        let [near, far] = ["near", "far"].map(|node| home.join(format!("{node}.{VOLUME}{number}")));
        text += &format!("[groups.{GROUP}.volumes.{VOLUME}{number}]\nnear = {near:?}\nfar = {far:?}\n");
    }
    Ok(text)
}
