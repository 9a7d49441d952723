//! Two daemons at the ends of an emulated WAN, as an operator would run them, and what can be asked of them.

use super::super::check_signals;
use super::super::control;
use super::super::fio::{self, Running};
use super::super::server::BenchServer;
use super::{DIRECTORY, LinkStage};
use crate::wan::check::processor_time;
use crate::wan::iperf::{self, IperfFlow};
use crate::wan::{CableSide, FAR_ADDRESS4, FAR_ADDRESS6, NEAR_ADDRESS4, NEAR_ADDRESS6, Wan, WanOptions};
use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// `congestion = "auto"` looks at a full line for so long, and a little more.
const AUTO_TAKES: Duration = Duration::from_secs(4);
pub const GROUP: &str = "bench";
/// In `sync`, beside the other one, where a series asks for it.
const LONE_GROUP: &str = "lone";
const LONE_VOLUME_BYTES: u64 = 16 << 20;
const PORT: u16 = 7337;
/// What one queued write counts for beside its bytes: the product's own, told here so that the bench notices a change.
const ITEM_OVERHEAD_BYTES: u64 = 256;
/// However slow the line is, what takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const MIB: u64 = 1 << 20;

/// What a pair is made of.
pub struct PairSetup<'a> {
    pub line: WanOptions,
    /// Lines of the table `[link]`.
    pub link: &'a str,
    /// Lines of the group's table.
    pub group: &'a str,
    pub volume_bytes: u64,
}

/// The two of them, replicating.
pub struct LinkPair<'a> {
    stage: &'a LinkStage,
    near: BenchServer,
    far: BenchServer,
    wan: Wan,
    home: TempDir,
    /// Where the other node's files are: in `home`, or apart from it.
    far_home: Option<TempDir>,
}

/// What was so at one moment.
#[derive(Clone, Debug)]
pub struct LinkMoment {
    pub at: Instant,
    /// Of clients' writes: taken by the primary, and confirmed as durable by the secondary.
    pub admitted_bytes: u64,
    pub confirmed_bytes: u64,
    /// Read for syncs, since the daemon started.
    pub resynced_bytes: u64,
    group: Value,
    link: Value,
}

/// What a saturated link carried, and at what price.
#[derive(Clone, Debug)]
pub struct LinkThroughput {
    /// Mbit/s of 10^6 bits: clients' bytes that were confirmed as durable by the secondary meanwhile.
    pub mbit: f64,
    /// What limits the link, as `status` has it.
    pub limit: String,
    pub sent_again_share: f64,
    pub send_window_bytes: u64,
    /// Processors in use by the primary, the secondary and the emulator.
    pub cores: [f64; 3],
}

impl<'a> LinkPair<'a> {
    /// Sets up line and daemons, and makes the first copy of empty volumes.
    ///
    /// # Errors
    /// With the end of the log of the daemon that failed.
    pub fn start(stage: &'a LinkStage, setup: &PairSetup) -> Result<LinkPair<'a>> {
        LinkPair::start_groups(stage, setup, &[(GROUP, setup.group, setup.volume_bytes)], None)
    }

    /// The same with the secondary's files in memory: its disk is another one than that of the primary.
    ///
    /// # Errors
    /// With the end of the log of the daemon that failed.
    pub fn start_with_far_in_memory(stage: &'a LinkStage, setup: &PairSetup) -> Result<LinkPair<'a>> {
        let far_home = directory(Path::new(DIRECTORY))?;
        LinkPair::start_groups(stage, setup, &[(GROUP, setup.group, setup.volume_bytes)], Some(far_home))
    }

    /// The same with a second, small group in `sync`, for a writer beside the others.
    ///
    /// # Errors
    /// With the end of the log of the daemon that failed.
    pub fn start_beside(stage: &'a LinkStage, setup: &PairSetup) -> Result<LinkPair<'a>> {
        let lone = (LONE_GROUP, "mode = \"sync\"", LONE_VOLUME_BYTES);
        LinkPair::start_groups(stage, setup, &[(GROUP, setup.group, setup.volume_bytes), lone], None)
    }

    /// Name, lines of its table, and size of its volume, each.
    fn start_groups(
        stage: &'a LinkStage,
        setup: &PairSetup,
        groups: &[(&str, &str, u64)],
        far_home: Option<TempDir>,
    ) -> Result<LinkPair<'a>> {
        let home = directory(&stage.dir)?;
        let far = far_home.as_ref().map_or(home.path(), TempDir::path);
        let config = home.path().join("farshore.toml");
        fs::write(&config, config_text([home.path(), far], setup.link, stage, groups))?;
        for (node, home) in [("near", home.path()), ("far", far)] {
            for (group, _, volume_bytes) in groups {
                File::create_new(image(home, node, group))?.set_len(*volume_bytes)?;
            }
        }
        for words in [&["init"][..], &["node", "near"], &["node", "far"]] {
            certify(&stage.program, words, &config)?;
        }
        let wan = Wan::start(setup.line.clone())?;
        let serve = |side, node: &str, home: &Path| {
            let mut command = wan.command(side, &stage.program.to_string_lossy())?;
            command.arg("serve").arg("--config").arg(&config).args(["--node", node]);
            let socket = state(home, node).join("nbd.sock");
            let uri = format!("nbd+unix:///{GROUP}/v1?socket={}", socket.display());
            BenchServer::start("farshore", command, &home.join(format!("{node}.log")), uri)
        };
        let (far, near) = (serve(CableSide::Far, "far", far)?, serve(CableSide::Near, "near", home.path())?);
        let pair = LinkPair { stage, near, far, wan, home, far_home };
        for (group, ..) in groups {
            pair.order("near", &["sync", group, "--full", "--wait"])?;
        }
        pair.wait_until("the group replicates", |look| look.state() == "replicating")?;
        Ok(pair)
    }

    /// Runs a command of ours against a node.
    ///
    /// # Errors
    /// It fails.
    pub fn order(&self, node: &str, verb: &[&str]) -> Result<()> {
        let server = if node == "near" { &self.near } else { &self.far };
        server.order(&self.stage.program, verb, &self.socket(node))
    }

    /// Changes settings of the group.
    ///
    /// # Errors
    /// They are refused.
    pub fn set(&self, setting: &str) -> Result<()> {
        self.order("near", &["set", GROUP, setting])
    }

    /// Changes settings of the link on both nodes, which connect again, and waits until they have.
    ///
    /// # Errors
    /// They are refused, or the nodes do not meet again.
    pub fn tune(&self, settings: &[&str]) -> Result<()> {
        for node in ["near", "far"] {
            let before = self.look()?.connections();
            self.order(node, &[&["link", "set"][..], settings].concat())?;
            self.wait_until("the link comes up again", |look| {
                look.connections() > before && look.is_connected() && look.state() == "replicating"
            })?;
        }
        Ok(())
    }

    /// fio with the export to write to.
    pub fn fio(&self, arguments: &[&str]) -> Command {
        fio_to(&self.near.uri, arguments)
    }

    /// Where a second job of fio writes, which knows nothing of the first one's.
    pub fn uri(&self) -> String {
        format!("--uri={}", self.near.uri)
    }

    /// The same with the export of the second group.
    pub fn fio_beside(&self, arguments: &[&str]) -> Command {
        let (first, second) = (format!("/{GROUP}/"), format!("/{LONE_GROUP}/"));
        fio_to(&self.near.uri.replacen(&first, &second, 1), arguments)
    }

    /// Writers who go on until the result is dropped.
    ///
    /// # Errors
    /// fio does not start.
    pub fn write(&self, arguments: &[&str]) -> Result<Running> {
        let before = self.look()?.admitted_bytes;
        let mut command = self.fio(arguments);
        command.args(["--time_based", "--runtime=1h"]);
        let running = fio::start(command)?;
        self.wait_until("fio writes; does it know the nbd engine?", |look| look.admitted_bytes > before)?;
        Ok(running)
    }

    /// Keeps the queue filled by writers and sees what is confirmed over `seconds` after `warm_up`, then waits until
    /// all is confirmed.
    ///
    /// # Errors
    /// The group did not replicate all the time, or the link came up anew.
    pub fn carry(&self, writers: &[&str], warm_up: Duration, seconds: f64) -> Result<LinkThroughput> {
        let running = self.write(writers)?;
        self.pause(warm_up)?;
        let cpu = self.cpu_seconds()?;
        let from = self.look()?;
        self.pause(Duration::from_secs_f64(seconds))?;
        let to = self.look()?;
        let cpu_after = self.cpu_seconds()?;
        drop(running);
        let is_steady = from.state() == "replicating" && to.state() == "replicating";
        ensure!(is_steady && from.connections() == to.connections(), "it did not stay in step: {}", to.group);
        self.drain()?;
        let elapsed_s = to.at.duration_since(from.at).as_secs_f64();
        let confirmed_bytes = to.confirmed_bytes - from.confirmed_bytes;
        let number = |name: &str| to.link["tcp"][name].as_f64().unwrap_or(f64::NAN);
        Ok(LinkThroughput {
            mbit: confirmed_bytes as f64 * 8.0 / 1e6 / elapsed_s,
            limit: to.link["limit"].as_str().unwrap_or("?").to_owned(),
            sent_again_share: number("retransmitted_share"),
            send_window_bytes: number("send_window_bytes") as u64,
            cores: [0, 1, 2].map(|at| (cpu_after[at] - cpu[at]) / elapsed_s),
        })
    }

    /// Waits until everything that was written is confirmed.
    ///
    /// # Errors
    /// It is not in time.
    pub fn drain(&self) -> Result<()> {
        self.wait_until("everything is confirmed", |look| look.confirmed_bytes == look.admitted_bytes).map(drop)
    }

    /// What iperf3 gets over the same line, Mbit/s of 10^6 bits.
    ///
    /// # Errors
    /// It does not get through.
    pub fn iperf(&self, congestion: &str, warm_up: Duration, seconds: f64) -> Result<f64> {
        let (warm_up, seconds) = (warm_up.as_secs_f64().ceil() as u32, seconds.ceil() as u32);
        let address = if self.stage.ipv6 { FAR_ADDRESS6 } else { FAR_ADDRESS4 };
        let flow = IperfFlow { address, seconds, warm_up, is_reverse: false, congestion: Some(congestion) };
        let goodput = iperf::goodput(&self.wan, &flow);
        check_signals(&self.stage.signals)?;
        goodput
    }

    /// The congestion control that the link comes to on a full line, which `auto` knows after some seconds.
    ///
    /// # Errors
    /// fio does not start, or the daemon does not answer.
    pub fn congestion_under_load(&self, writers: &[&str], warm_up: Duration) -> Result<String> {
        let running = self.write(writers)?;
        self.pause(warm_up.max(AUTO_TAKES))?;
        let in_use = self.congestion()?;
        drop(running);
        self.drain()?;
        Ok(in_use)
    }

    /// Where a series may keep files of its own.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The congestion control that the link uses.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn congestion(&self) -> Result<String> {
        let look = self.look()?;
        look.link["socket"]["congestion"].as_str().map(str::to_owned).context("the link is not connected")
    }

    /// Changes the line by a command of docs/book/wan.md.
    ///
    /// # Errors
    /// There is no such command.
    pub fn line(&self, command: &str) -> Result<()> {
        self.wan.control(command)
    }

    /// Sets a sysctl of the primary's side.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn sysctl(&self, setting: &str) -> Result<()> {
        let output = self.wan.command(CableSide::Near, "sysctl")?.args(["-q", "-w", setting]).output();
        let output = output.context("starting `sysctl` failed; install the package procps")?;
        ensure!(output.status.success(), "{setting}: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// The bench was interrupted.
    pub fn pause(&self, time: Duration) -> Result<()> {
        std::thread::sleep(time);
        check_signals(&self.stage.signals)
    }

    /// # Errors
    /// It does not come to that in time; with the end of both logs.
    pub fn wait_until(&self, what: &str, holds: impl Fn(&LinkMoment) -> bool) -> Result<LinkMoment> {
        self.wait_within(PATIENCE, what, holds)
    }

    /// # Errors
    /// It does not come to that within `patience`; with the end of both logs.
    pub fn wait_within(
        &self,
        patience: Duration,
        what: &str,
        holds: impl Fn(&LinkMoment) -> bool,
    ) -> Result<LinkMoment> {
        let started = Instant::now();
        loop {
            let look = self.look();
            if let Ok(look) = &look
                && holds(look)
            {
                return Ok(look.clone());
            }
            let is_in_time = started.elapsed() < patience;
            let words = || format!("near{}\nfar{}", self.near.last_words(), self.far.last_words());
            ensure!(is_in_time, "it did not come to this: {what}; {}\n{}", look.map(|look| look.group)?, words());
            self.pause(LOOK_EVERY)?;
        }
    }

    /// What is so now.
    ///
    /// # Errors
    /// The primary does not answer, or not with that.
    pub fn look(&self) -> Result<LinkMoment> {
        let socket = self.socket("near");
        let counters = control::ask(&socket, &json!({ "request": "counters" }))?;
        let at = Instant::now();
        let status = control::ask(&socket, &json!({ "request": "status" }))?;
        let counter = |name: &str| {
            let counter = counters["counters"][format!("group.{GROUP}.{name}")].as_u64();
            counter.with_context(|| format!("no {name} in {counters}"))
        };
        let (admitted_bytes, resynced_bytes) = (counter("written_bytes")?, counter("resynced_bytes")?);
        let group = status["groups"][0].clone();
        let queue = |name: &str| group["queue"][name].as_u64().with_context(|| format!("no queue in {status}"));
        // What was admitted between the two questions may be queued and not counted yet.
        let in_memory = queue("bytes")?.saturating_sub(queue("items")? * ITEM_OVERHEAD_BYTES);
        let waiting_bytes = (in_memory + queue("disk_bytes")?).min(admitted_bytes);
        let link = status["links"][0].clone();
        let confirmed_bytes = admitted_bytes - waiting_bytes;
        Ok(LinkMoment { at, admitted_bytes, confirmed_bytes, resynced_bytes, group, link })
    }

    /// A promotion of the copy would have an image.
    ///
    /// # Errors
    /// The secondary does not answer.
    pub fn copy_is_promotable(&self) -> Result<bool> {
        let status = control::ask(&self.socket("far"), &json!({ "request": "status" }))?;
        Ok(status["groups"][0]["promotable"].is_object())
    }

    /// Both images hold the same.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn images_are_equal(&self) -> Result<bool> {
        let [mut near, mut far] = ["near", "far"].map(|node| File::open(image(self.home_of(node), node, GROUP)));
        let mut parts = [(); 2].map(|()| Vec::with_capacity(MIB as usize));
        loop {
            for (file, part) in [&mut near, &mut far].into_iter().zip(&mut parts) {
                part.clear();
                let file = file.as_mut().map_err(|error| anyhow!("an image cannot be opened: {error}"))?;
                file.by_ref().take(MIB).read_to_end(part)?;
            }
            if parts[0] != parts[1] || parts[0].is_empty() {
                return Ok(parts[0] == parts[1]);
            }
        }
    }

    fn home_of(&self, node: &str) -> &Path {
        let far = self.far_home.as_ref().filter(|_| node == "far");
        far.unwrap_or(&self.home).path()
    }

    fn socket(&self, node: &str) -> PathBuf {
        state(self.home_of(node), node).join("control.sock")
    }

    fn cpu_seconds(&self) -> Result<[f64; 3]> {
        Ok([self.near.cpu_seconds()?, self.far.cpu_seconds()?, processor_time()?.as_secs_f64()])
    }

    /// # Errors
    /// A daemon does not stop in time.
    pub fn stop(self) -> Result<()> {
        self.near.stop()?;
        self.far.stop()
    }
}

impl LinkMoment {
    pub fn state(&self) -> &str {
        self.group["state"].as_str().unwrap_or_default()
    }

    pub fn is_connected(&self) -> bool {
        self.group["peers"][0]["link"] == "connected"
    }

    pub fn connections(&self) -> u64 {
        self.link["connections"].as_u64().unwrap_or_default()
    }

    /// What may differ from the peer's copy.
    pub fn dirty_bytes(&self) -> Option<u64> {
        self.group["peers"][0]["dirty_bytes"].as_u64()
    }

    /// What still has to travel: in the queue, or dirty and not yet sent by the sync that runs.
    pub fn missing_bytes(&self) -> u64 {
        let queued = self.admitted_bytes - self.confirmed_bytes;
        let sent = self.group["sync"]["done_bytes"].as_u64().unwrap_or(0);
        if queued > 0 { queued } else { self.dirty_bytes().unwrap_or(0).saturating_sub(sent) }
    }

    /// What `status` says the line would have to carry more, bytes a second.
    pub fn missing_bytes_per_s(&self) -> u64 {
        self.group["sync"]["missing_bytes_per_s"].as_u64().unwrap_or(0)
    }

    /// A figure of the queue, as `status` names it.
    pub fn queue(&self, figure: &str) -> Option<u64> {
        self.group["queue"][figure].as_u64()
    }

    pub fn disk_queue_bytes(&self) -> u64 {
        self.queue("disk_bytes").unwrap_or(0)
    }

    pub fn queue_log(&self) -> &str {
        self.group["queue"]["log"].as_str().unwrap_or("unknown")
    }

    /// By TCP, since the connection came up.
    pub fn sent_bytes(&self) -> Option<u64> {
        self.link["tcp"]["sent_bytes"].as_u64()
    }

    /// Age of what the peer has not applied, as `status` tells it.
    pub fn lag_s(&self) -> Option<f64> {
        self.group["peers"][0]["lag_seconds"].as_f64()
    }
}

fn fio_to(uri: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("fio");
    command.args(["--ioengine=nbd", "--norandommap", "--thread", "--name=writer"]);
    command.arg(format!("--uri={uri}")).args(arguments);
    command
}

fn certify(program: &Path, words: &[&str], config: &Path) -> Result<()> {
    let output = Command::new(program).arg("cert").args(words).arg("--config").arg(config).output()?;
    ensure!(output.status.success(), "making certificates failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

fn directory(parent: &Path) -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix("farshore-bench-").tempdir_in(parent);
    made.with_context(|| format!("no directory can be made in {}", parent.display()))
}

fn state(home: &Path, node: &str) -> PathBuf {
    home.join(format!("{node}.state"))
}

fn image(home: &Path, node: &str, group: &str) -> PathBuf {
    home.join(format!("{node}.{group}.img"))
}

fn config_text(homes: [&Path; 2], link: &str, stage: &LinkStage, groups: &[(&str, &str, u64)]) -> String {
    let [near, far] = match stage.ipv6 {
        true => [NEAR_ADDRESS6, FAR_ADDRESS6].map(|address| format!("[{address}]:{PORT}")),
        false => [NEAR_ADDRESS4, FAR_ADDRESS4].map(|address| format!("{address}:{PORT}")),
    };
    let more = &stage.link;
    let mut text = format!(
        "cluster = \"bench\"\n\n[tls]\ndirectory = {tls:?}\n\n[link]\n{link}\n{more}\n\n\
         [nodes.near]\naddress = \"{near}\"\nstate = {near_state:?}\n\n\
         [nodes.far]\naddress = \"{far}\"\nstate = {far_state:?}\n",
        tls = homes[0].join("tls"),
        near_state = state(homes[0], "near"),
        far_state = state(homes[1], "far"),
    );
    for (name, lines, _) in groups {
        // Writers who fill the queue on purpose are to be slowed down to the line, and not let go.
        let patience = if lines.contains("wait_limit") { "" } else { "wait_limit = \"1h\"" };
        // What is measured elsewhere is the queue in memory.
        let disk_queue =
            if lines.contains("queue.disk") || lines.contains("superasync") { "" } else { "queue.disk = 0" };
        let [near_file, far_file] = [image(homes[0], "near", name), image(homes[1], "far", name)];
        text += &format!(
            "\n[groups.{name}]\nprimary = \"near\"\nsecondary = \"far\"\n{lines}\n{disk_queue}\n{patience}\n\n\
             [groups.{name}.volumes.v1]\nnear = {near_file:?}\nfar = {far_file:?}\n",
        );
    }
    text
}
