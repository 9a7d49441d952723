//! The stage: a temporary directory, the cable, and pairs of daemons with new volumes, one pair after the other.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use toolkit::interrupt::Interrupt;
use witness::{RunId, WriteRecorder};

use crate::cable::{Cable, CableEnd, Ends};
use crate::daemon::DemoDaemon;
use crate::terms::{GROUP, QUEUE_BYTES, VOLUME_BYTES, VOLUMES, volume_name};

const CLUSTER: &str = "demo";
/// The daemons' names. The one with the smaller name dials.
const NEAR: &str = "alpha";
const FAR: &str = "beta";

pub struct DemoStage {
    dir: PathBuf,
    pub cable: Cable,
    pub interrupt: Interrupt,
    /// The product, and this program, which measures inside the WAN.
    product: PathBuf,
    itself: PathBuf,
    pairs: u16,
}

/// Two daemons that replicate one group of five volumes, and the notes of everyone who writes to it.
pub struct DemoPair {
    pub near: DemoDaemon,
    pub far: DemoDaemon,
    pub near_nbd: PathBuf,
    pub far_nbd: PathBuf,
    pub recorder: Arc<WriteRecorder>,
    pub interrupt: Interrupt,
    dir: PathBuf,
}

impl DemoPair {
    pub fn far_volume(&self, volume: u32) -> PathBuf {
        volume_file(&self.dir, FAR, volume)
    }
}

impl DemoStage {
    /// # Errors
    /// There is no cable, or no room for a temporary directory.
    pub fn set(relay: bool, parent: Option<&Path>, interrupt: Interrupt) -> Result<Self> {
        let cable = Cable::find(relay)?;
        let itself = std::env::current_exe().context("the path of this program is unknown")?;
        let product = itself.with_file_name("farshore");
        ensure!(product.is_file(), "{} is not there; run `cargo xtask demo`, which builds it", product.display());
        let parent = parent.map_or_else(default_parent, Path::to_owned);
        let dir = parent.join(format!("farshore-demo-{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&dir);
        made.with_context(|| format!("the temporary directory {} cannot be made; choose with --dir", dir.display()))?;
        let stage = Self { dir, cable, interrupt, product, itself, pairs: 0 };
        fs::create_dir(stage.logs())?;
        stage.make_certificates()?;
        Ok(stage)
    }

    /// What the daemons say; the one thing that outlives a failure.
    pub fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    fn certificates(&self) -> PathBuf {
        self.dir.join("tls")
    }

    /// As two nodes on two machines have them.
    fn make_certificates(&self) -> Result<()> {
        let anywhere = [7337, 7338].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let config = self.dir.join("certificates.toml");
        fs::write(&config, config_text(&self.dir, &self.certificates(), anywhere, None))?;
        for words in [&["init"][..], &["node", NEAR], &["node", FAR]] {
            let mut command = Command::new(&self.product);
            let output = command.arg("cert").args(words).args(["--days", "1", "--config"]).arg(&config).output()?;
            let why = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "certificates cannot be made: {}", why.trim());
        }
        Ok(())
    }

    /// # Errors
    /// Nothing answers at the other end.
    pub fn measure_rtt(&self) -> Result<Duration> {
        self.cable.rtt(&self.itself)
    }

    /// New volumes, new state, two daemons. They may not replicate yet when this returns.
    ///
    /// # Errors
    /// A file cannot be made, or a daemon does not start.
    pub fn start_pair(&mut self, model_latency: Option<Duration>) -> Result<DemoPair> {
        let number = self.pairs;
        self.pairs += 1;
        let dir = self.dir.join(format!("pair{}", number + 1));
        fs::create_dir(&dir)?;
        for (node, volume) in [NEAR, FAR].into_iter().flat_map(|node| (0..VOLUMES).map(move |volume| (node, volume))) {
            let file = File::create_new(volume_file(&dir, node, volume))?;
            file.set_len(VOLUME_BYTES).context("a volume's file cannot be given its size")?;
        }
        let ends = self.cable.lay(number)?;
        let far = self.start_daemon(&dir, CableEnd::Far, &ends, model_latency)?;
        let near = self.start_daemon(&dir, CableEnd::Near, &ends, model_latency)?;
        let run = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let recorder = WriteRecorder::with_file(RunId(run), &dir.join("writes.log"))?;
        let nbd = |node| state(&dir, node).join("nbd.sock");
        let (near_nbd, far_nbd) = (nbd(NEAR), nbd(FAR));
        let (recorder, interrupt) = (Arc::new(recorder), self.interrupt.clone());
        Ok(DemoPair { near, far, near_nbd, far_nbd, recorder, interrupt, dir })
    }

    fn start_daemon(&self, dir: &Path, end: CableEnd, ends: &Ends, latency: Option<Duration>) -> Result<DemoDaemon> {
        let node = match end {
            CableEnd::Near => NEAR,
            CableEnd::Far => FAR,
        };
        // Over a relay the near daemon finds the far one where the relay listens; everything else is the same file.
        let far_address = if end == CableEnd::Near { ends.far_from_near } else { ends.far };
        let config = dir.join(format!("{node}.toml"));
        fs::write(&config, config_text(dir, &self.certificates(), [ends.near, far_address], latency))?;
        let mut command = self.cable.command(end, &self.product);
        command.arg("serve").arg("--config").arg(&config).args(["--node", node]);
        let pair = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let log = self.logs().join(format!("{pair}-{node}.log"));
        DemoDaemon::start(node, command, &log, &state(dir, node).join("control.sock"), &self.interrupt)
    }

    /// Remove everything, but after a failure leave the logs, whose place errors name. Pairs must be gone.
    pub fn strike(&self, keep_logs: bool) {
        let keep_logs = keep_logs && self.interrupt.check().is_ok();
        if !keep_logs {
            let _ = fs::remove_dir_all(&self.dir);
            return;
        }
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path == self.logs() {
                continue;
            }
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

impl Drop for DemoStage {
    fn drop(&mut self) {
        // After a panic nobody has struck the stage.
        if std::thread::panicking() {
            self.strike(true);
        }
    }
}

fn config_text(dir: &Path, certificates: &Path, addresses: [SocketAddr; 2], latency: Option<Duration>) -> String {
    let mut text =
        format!("cluster = \"{CLUSTER}\"\n\n[tls]\ndirectory = {certificates:?}\n\n[link]\ntimeout = \"2s\"\n\n");
    for (node, address) in [NEAR, FAR].into_iter().zip(addresses) {
        text += &format!("[nodes.{node}]\naddress = \"{address}\"\nstate = {:?}\n\n", state(dir, node));
    }
    text += &format!(
        "[groups.{GROUP}]\nprimary = \"{NEAR}\"\nsecondary = \"{FAR}\"\nmode = \"async\"\n\
         queue = {{ memory = {QUEUE_BYTES}, disk = 0 }}\n\n"
    );
    for volume in 0..VOLUMES {
        let [near, far] = [NEAR, FAR].map(|node| volume_file(dir, node, volume));
        let name = volume_name(volume);
        text += &format!("[groups.{GROUP}.volumes.{name}]\n{NEAR} = {near:?}\n{FAR} = {far:?}\n");
        if let Some(latency) = latency {
            text += &format!("model_latency = {{ {NEAR} = \"{}ms\" }}\n", latency.as_millis());
        }
    }
    text
}

/// A directory on a disk; what is temporary is often in memory.
fn default_parent() -> PathBuf {
    let disk = Path::new("/var/tmp");
    if disk.is_dir() { disk.to_owned() } else { std::env::temp_dir() }
}

fn state(dir: &Path, node: &str) -> PathBuf {
    dir.join(format!("{node}.state"))
}

fn volume_file(dir: &Path, node: &str, volume: u32) -> PathBuf {
    dir.join(format!("{node}-{}.img", volume_name(volume)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Config;

    #[test]
    fn the_configuration_is_sound() {
        let addresses = ["10.0.0.1:7337", "10.0.0.2:7337"].map(|text| text.parse().expect("an address"));
        for latency in [None, Some(Duration::from_millis(8))] {
            let (dir, certificates) = (Path::new("/var/tmp/demo/pair1"), Path::new("/var/tmp/demo/tls"));
            let text = config_text(dir, certificates, addresses, latency);
            let config = Config::parse(Path::new("/var/tmp/demo/alpha.toml"), &text).expect(&text);
            assert_eq!(config.groups[0].volumes.len(), VOLUMES as usize);
        }
    }
}
