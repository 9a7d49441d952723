//! Two real daemons on this machine, in a directory of their own: started, watched, killed and stopped by tests.
//!
//! Everything ends with the test, however it ends: daemons are killed by their own process, the directory is removed.

pub mod damage;
pub mod eight;
pub mod line;
pub mod load;
pub mod schema;
pub mod wan;

use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use demo::relay::{Relay, RelayOptions};
use farshore::certs::{CertificateHolder, Registry, Validity};
use forgetful::{Fate, ForgetfulStore, Loss};
use host::tls::MemberIdentity;
use serde_json::Value;

/// However loaded the machine is, what takes longer has failed.
pub const DEADLINE: Duration = Duration::from_secs(90);
/// Pause between two looks at a condition.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The next free port of this process's own address.
static PORT: AtomicU16 = AtomicU16::new(7400);

/// The one group of every pair.
pub const GROUP: &str = "g";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Near,
    Far,
}

impl Side {
    pub const BOTH: [Side; 2] = [Side::Near, Side::Far];

    pub fn name(self) -> &'static str {
        match self {
            Side::Near => "near",
            Side::Far => "far",
        }
    }

    pub fn other(self) -> Side {
        match self {
            Side::Near => Side::Far,
            Side::Far => Side::Near,
        }
    }
}

/// What a pair is made of; `near` starts as primary.
pub struct PairPlan<'a> {
    pub volumes: &'a [&'a str],
    pub volume_bytes: u64,
    pub mode: &'a str,
    /// Further lines of the group's table.
    pub group: &'a str,
    /// Further lines of the file's head.
    pub head: &'a str,
    /// Further lines of each node's table.
    pub node: &'a str,
    /// Each node's directory, volumes and state, is a store of its own whose power can be cut.
    pub forgets: bool,
}

/// Lines of a group's table with which a new primary opens its export though it never meets its peer.
pub const SERVES_ALONE: &str = "start_alone = \"serve\"\n";

impl PairPlan<'_> {
    pub const DEFAULT: PairPlan<'static> = PairPlan {
        volumes: &["data", "log"],
        volume_bytes: 16 << 20,
        mode: "async",
        group: "",
        head: "",
        node: "",
        forgets: false,
    };
}

impl Default for PairPlan<'_> {
    fn default() -> Self {
        PairPlan::DEFAULT
    }
}

/// Two nodes of one cluster; neither runs until it is served.
pub struct Pair {
    // Taken down in this order: daemons, what they stand on, the directory of it all.
    daemons: [Option<DaemonProcess>; 2],
    relay: Option<Relay>,
    /// By node, if the plan says so.
    stores: Vec<ForgetfulStore>,
    /// By node, how often its power came on.
    boots: [u32; 2],
    directory: tempfile::TempDir,
}

struct DaemonProcess(Child);

/// What became of a start.
#[derive(Debug)]
pub enum DaemonStart {
    Up,
    WithoutPower,
    Ended(ExitStatus),
}

impl Drop for Pair {
    fn drop(&mut self) {
        // A daemon that waits for a store without power could not be killed.
        self.stores.iter().for_each(ForgetfulStore::fail_requests);
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        // Both fail when it has ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Pair {
    pub fn new(plan: &PairPlan) -> Pair {
        let directory = tempfile::Builder::new().prefix("farshore-").tempdir().expect("a directory for the pair");
        let mut pair = Pair { daemons: [None, None], relay: None, stores: Vec::new(), boots: [1; 2], directory };
        let mut secret = fs::OpenOptions::new();
        let mut secret = secret.write(true).create_new(true).mode(0o600).open(pair.path("secret")).expect("a secret");
        std::io::Write::write_all(&mut secret, &[b's'; 48]).expect("a secret is written");
        for node in Side::BOTH {
            fs::create_dir(pair.path(node.name())).expect("a directory for the node");
            if plan.forgets {
                pair.stores
                    .push(ForgetfulStore::mount(&pair.path(node.name())).expect("FUSE and root: ask must_skip first"));
            }
            for volume in plan.volumes {
                let file = fs::File::create(pair.device(node, volume)).expect("a volume");
                file.set_len(plan.volume_bytes).expect("the volume has room");
            }
        }
        pair.flush_stores(plan);
        fs::write(pair.config(), pair.config_text(plan)).expect("a configuration");
        pair
    }

    /// A pair whose nodes run and whose first sync is done.
    pub fn replicating(plan: &PairPlan) -> Pair {
        let mut pair = Pair::new(plan);
        pair.first_sync();
        pair
    }

    /// Serves both nodes and makes the first copy.
    pub fn first_sync(&mut self) {
        Side::BOTH.into_iter().for_each(|node| self.serve(node));
        self.sync_fully(Side::Near);
    }

    /// A full sync to its end, from the node that is primary.
    pub fn sync_fully(&mut self, primary: Side) {
        self.until("the nodes have met", |pair| {
            let (code, said) = pair.output_of(primary, &["sync", GROUP, "--full", "--wait"]);
            assert!(code == 0 || said.contains("can only be begun when it is there"), "{said}\n{}", pair.log(primary));
            code == 0
        });
    }

    /// Makes new volumes durable, as whoever creates them has to before a power loss.
    fn flush_stores(&self, plan: &PairPlan) {
        for node in Side::BOTH.into_iter().filter(|_| plan.forgets) {
            let volumes = plan.volumes.iter().map(|volume| self.device(node, volume));
            for path in volumes.chain([self.path(node.name())]) {
                fs::File::open(path).and_then(|file| file.sync_all()).expect("the store flushes");
            }
        }
    }

    fn config_text(&self, plan: &PairPlan) -> String {
        let process = std::process::id().to_be_bytes();
        // A loopback address of this process alone: its ports meet nobody else's.
        let address = format!("127.{}.{}.{}", 64 + process[1] % 64, process[2], process[3]);
        let mut text =
            format!("cluster = \"test\"\nsecret_file = \"{}\"\n{}\n", self.path("secret").display(), plan.head);
        for node in Side::BOTH {
            let (name, port) = (node.name(), PORT.fetch_add(1, Ordering::Relaxed));
            let state = self.path(name).join("state");
            text += &format!(
                "[nodes.{name}]\naddress = \"{address}:{port}\"\nstate = \"{}\"\n{}\n",
                state.display(),
                plan.node
            );
        }
        text += &format!("[groups.{GROUP}]\nprimary = \"near\"\nsecondary = \"far\"\nmode = \"{}\"\n", plan.mode);
        text += &format!("journal = \"16MiB\"\nwindow = \"4MiB\"\n{}\n", plan.group);
        if !plan.group.contains("queue.disk") {
            // Hundreds of pairs at once would reserve 4 GiB for each of their nodes.
            text += "queue.disk = 0\n";
        }
        for volume in plan.volumes {
            text += &format!("[groups.{GROUP}.volumes.{volume}]\n");
            for node in Side::BOTH {
                text += &format!("{} = \"{}\"\n", node.name(), self.device(node, volume).display());
            }
        }
        text
    }

    /// Makes an authority and both nodes' certificates, where a head says `[tls] directory = "tls"`.
    pub fn certify(&self) {
        let registry = Registry::new(&self.path("tls"));
        registry.make_authority("test", Validity::days(2)).expect("an authority");
        for node in Side::BOTH {
            let holder = CertificateHolder {
                identity: MemberIdentity::node("test", node.name()),
                hosts: vec![node.name().to_owned()],
            };
            registry.issue(&holder, Validity::days(2), false).expect("a certificate");
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn config(&self) -> PathBuf {
        self.path("farshore.toml")
    }

    /// What the node is served with.
    fn config_of(&self, node: Side) -> PathBuf {
        if self.relay.is_some() && node == Side::Far { self.path("relayed.toml") } else { self.config() }
    }

    /// Where the configuration says a node is.
    pub fn address(&self, node: Side) -> SocketAddr {
        let text = fs::read_to_string(self.config()).expect("the configuration is there");
        let table: toml::Table = text.parse().expect("the configuration is TOML");
        table["nodes"][node.name()]["address"].as_str().and_then(|address| address.parse().ok()).expect("an address")
    }

    /// The configuration with another address of a node, in a file of its own.
    fn config_with_address(&self, name: &str, node: Side, address: SocketAddr) -> PathBuf {
        let text = fs::read_to_string(self.config()).expect("the configuration is there");
        let text = text.replace(&format!("\"{}\"", self.address(node)), &format!("\"{address}\""));
        fs::write(self.path(name), text).expect("the configuration is written");
        self.path(name)
    }

    /// Puts a line between the nodes that can be cut; before either is served. `far` is the one that dials.
    pub fn lay_relay(&mut self) {
        let target = self.address(Side::Near);
        let listen = SocketAddr::new(target.ip(), 0);
        let rtt = Duration::from_millis(2);
        let relay = Relay::start(RelayOptions { listen, target, rtt, rate_bits: 1_000_000_000 }).expect("a relay");
        self.config_with_address("relayed.toml", Side::Near, relay.address());
        self.relay = Some(relay);
    }

    pub fn relay(&self) -> &Relay {
        self.relay.as_ref().expect("a relay was laid")
    }

    /// Changes the configuration's text, for both nodes.
    pub fn edit_config(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.config()).expect("the configuration is there");
        assert!(text.contains(from), "{from:?} is in {text}");
        fs::write(self.config(), text.replace(from, to)).expect("the configuration is written");
    }

    pub fn device(&self, node: Side, volume: &str) -> PathBuf {
        self.path(node.name()).join(volume)
    }

    /// Where NBD clients find a volume.
    pub fn uri(&self, node: Side, volume: &str) -> String {
        let socket = self.path(node.name()).join("state/nbd.sock");
        format!("nbd+unix:///{GROUP}/{volume}?socket={}", socket.display())
    }

    /// What the node's daemons have said so far.
    pub fn log(&self, node: Side) -> String {
        fs::read_to_string(self.log_path(node)).unwrap_or_default()
    }

    fn log_path(&self, node: Side) -> PathBuf {
        self.path(&format!("{}.log", node.name()))
    }

    // --- Daemons ---

    /// Starts the node's daemon and waits until it answers.
    pub fn serve(&mut self, node: Side) {
        assert!(self.try_serve(node), "{} lost its power:\n{}", node.name(), self.log(node));
    }

    /// The same for a node that may lose its power meanwhile; whether it still has it.
    pub fn try_serve(&mut self, node: Side) -> bool {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(["serve", "--node", node.name(), "--config"]).arg(self.config_of(node));
        self.start(node, command)
    }

    /// Starts the node's daemon where it cannot reach its peer, nor its peer it.
    pub fn serve_alone(&mut self, node: Side) {
        let ip = self.address(Side::Near).ip();
        let elsewhere = match node {
            // It listens where nobody dials.
            Side::Near => SocketAddr::new(ip, PORT.fetch_add(1, Ordering::Relaxed)),
            // It dials where nobody listens.
            Side::Far => SocketAddr::new(ip, 1),
        };
        let config = self.config_with_address("alone.toml", Side::Near, elsewhere);
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(["serve", "--node", node.name(), "--config"]).arg(config);
        self.serve_by(node, command);
    }

    /// Starts the node's daemon by a command of the caller's, and waits until its group has started.
    pub fn serve_by(&mut self, node: Side, command: Command) {
        assert!(self.start(node, command), "{} lost its power:\n{}", node.name(), self.log(node));
    }

    /// As [`Pair::serve_by`], with a log of the caller's too.
    pub fn serve_by_with_log(&mut self, node: Side, command: Command, log: Stdio) {
        assert!(self.start_logging(node, command, log), "{} lost its power", node.name());
    }

    /// Starts the node's daemon with a log of the caller's.
    pub fn serve_with_log(&mut self, node: Side, log: Stdio) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(["serve", "--node", node.name(), "--config"]).arg(self.config_of(node));
        assert!(self.start_logging(node, command, log), "{} lost its power", node.name());
    }

    /// The same for one that says all it can.
    pub fn serve_loudly(&mut self, node: Side, log: Stdio) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(["serve", "--node", node.name(), "--config"]).arg(self.config_of(node));
        command.env("FARSHORE_LOG", "debug");
        assert!(self.start_logging(node, command, log), "{} lost its power", node.name());
    }

    fn start(&mut self, node: Side, command: Command) -> bool {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_path(node)).expect("a log");
        self.start_logging(node, command, log.into())
    }

    fn start_logging(&mut self, node: Side, command: Command, log: Stdio) -> bool {
        match self.start_or_end(node, command, log) {
            DaemonStart::Up => true,
            DaemonStart::WithoutPower => false,
            DaemonStart::Ended(status) => {
                panic!("the daemon of {} ended with {status}:\n{}", node.name(), self.log(node))
            }
        }
    }

    /// Starts the node's daemon, which may refuse to.
    pub fn serve_or_end(&mut self, node: Side) -> DaemonStart {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(["serve", "--node", node.name(), "--config"]).arg(self.config_of(node));
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_path(node)).expect("a log");
        self.start_or_end(node, command, log.into())
    }

    fn start_or_end(&mut self, node: Side, mut command: Command, log: Stdio) -> DaemonStart {
        if !self.stores.is_empty() {
            // The machine goes on when a store loses its power; the node is to see another boot of it.
            command.env("FARSHORE_BOOT_ID", self.boots[node as usize].to_string());
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("the daemon starts");
        self.daemons[node as usize] = Some(DaemonProcess(child));
        let (mut question, mut ended) = (None, None);
        self.until(&format!("{} has started", node.name()), |pair| {
            let daemon = pair.daemons[node as usize].as_mut().expect("started above");
            ended = daemon.0.try_wait().expect("a child can be asked");
            if ended.is_some() || !pair.has_power(node) {
                return true;
            }
            // Asked beside, because without power there is no answer.
            let asked = question.get_or_insert_with(|| Background::start(pair.command(node, &["status", "--json"])));
            if !asked.has_ended() {
                return false;
            }
            let output = question.take().expect("just asked").output();
            // Until it has started it refuses commands and has no exports.
            output.status.code().is_some_and(|code| code < 2)
                && serde_json::from_slice::<Value>(&output.stdout)
                    .is_ok_and(|status| status["groups"][0]["reason"] != "it is starting")
        });
        match ended {
            Some(status) => {
                self.daemons[node as usize] = None;
                DaemonStart::Ended(status)
            }
            None if self.has_power(node) => DaemonStart::Up,
            None => DaemonStart::WithoutPower,
        }
    }

    /// Ends the node's daemon at once, as a crash would.
    pub fn kill(&mut self, node: Side) {
        self.daemons[node as usize].take().expect("the daemon runs");
    }

    /// The medium does not give these bytes of a file on a node's store back any more.
    pub fn refuse_reads(&self, node: Side, path: &Path, bytes: Range<u64>) {
        self.stores[node as usize].refuse_reads(path, bytes).expect("a file");
    }

    /// Cuts the power of nodes, all at one moment: their stores forget, their daemons are gone. Then it is back; what
    /// that has cost each.
    pub fn lose_power(&mut self, nodes: &[Side], seed: u64) -> Vec<Loss> {
        for node in nodes.iter().filter(|node| self.has_power(**node)) {
            self.stores[*node as usize].cut_power(Fate::Drawn(seed + *node as u64));
        }
        // Their daemons hear nothing of it before they are dead.
        for node in nodes {
            if let Some(daemon) = &mut self.daemons[*node as usize] {
                daemon.0.kill().expect("a child of ours can be killed");
            }
        }
        for node in nodes {
            self.stores[*node as usize].fail_requests();
            self.daemons[*node as usize].take();
            self.restore_power(*node);
        }
        nodes.iter().map(|node| self.stores[*node as usize].loss()).collect()
    }

    /// Has the node's power cut after so many more flushes. From then on it must not be asked anything while
    /// [`Pair::has_power`] says no: nobody would answer. [`Pair::lose_power`] ends that.
    pub fn lose_power_after(&self, node: Side, flushes: u64, seed: u64) {
        self.stores[node as usize].cut_power_after(flushes, Fate::Drawn(seed));
    }

    /// Has a call of the node's store fail, after so many more; see [`ForgetfulStore::fail_call_after`].
    pub fn fail_call_after(&self, node: Side, calls: u64, errno: i32) {
        self.stores[node as usize].fail_call_after(calls, errno);
    }

    /// The node's store answers nothing any more, or again.
    pub fn hang(&self, node: Side) {
        self.stores[node as usize].hang();
    }

    pub fn answer_again(&self, node: Side) {
        self.stores[node as usize].answer_again();
    }

    /// Calls off a failure that has not come. Which call it was if it has.
    pub fn fail_no_call(&self, node: Side) -> Option<&'static str> {
        self.stores[node as usize].fail_no_call()
    }

    /// File or folder of the last flush that failed.
    pub fn failed_flush_of(&self, node: Side) -> Option<std::ffi::OsString> {
        self.stores[node as usize].failed_flush_of()
    }

    /// The same at the first flush that finds at least so many bytes not flushed: so many may be forgotten.
    pub fn lose_power_when_unflushed(&self, node: Side, bytes: u64, seed: u64) {
        self.stores[node as usize].cut_power_when_unflushed(bytes, Fate::Drawn(seed));
    }

    /// Starts a node's daemon, whose power is lost at a flush of that start, if it comes to so many. Then it starts
    /// once more. Whether the power was lost.
    pub fn serve_with_a_loss(&mut self, node: Side, flushes: u64, seed: u64) -> bool {
        self.lose_power_after(node, flushes, seed);
        self.try_serve(node);
        self.stores[node as usize].keep_power();
        if self.has_power(node) {
            return false;
        }
        self.lose_power(&[node], seed);
        self.serve(node);
        true
    }

    pub fn has_power(&self, node: Side) -> bool {
        self.stores.get(node as usize).is_none_or(ForgetfulStore::has_power)
    }

    /// The same for both while neither runs, and of what was not flushed nothing survives.
    pub fn lose_power_at_rest(&mut self) -> Vec<Loss> {
        assert!(self.daemons.iter().all(Option::is_none), "both nodes rest");
        let losses = self.stores.iter().map(|store| store.cut_power(Fate::AllLost)).collect();
        Side::BOTH.into_iter().for_each(|node| self.restore_power(node));
        losses
    }

    fn restore_power(&mut self, node: Side) {
        self.stores[node as usize].restore_power();
        self.boots[node as usize] += 1;
    }

    /// The node's daemon, which runs.
    pub fn pid(&self, node: Side) -> u32 {
        self.daemons[node as usize].as_ref().expect("the daemon runs").0.id()
    }

    /// Stops the node's daemon cleanly.
    pub fn stop(&mut self, node: Side) -> ExitStatus {
        let mut daemon = self.daemons[node as usize].take().expect("the daemon runs");
        let process = rustix::process::Pid::from_child(&daemon.0);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("our own child takes a signal");
        let started = Instant::now();
        loop {
            if let Some(status) = daemon.0.try_wait().expect("a child can be asked") {
                return status;
            }
            assert!(started.elapsed() < DEADLINE, "{} did not stop:\n{}", node.name(), self.log(node));
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Stops both cleanly, `near` first.
    pub fn stop_both(&mut self) {
        self.stop_from(Side::Near);
    }

    /// Stops both, the primary first: then nothing is left to be sent.
    pub fn stop_from(&mut self, primary: Side) {
        for node in [primary, primary.other()] {
            let status = self.stop(node);
            assert!(status.success(), "{} stopped with {status}:\n{}", node.name(), self.log(node));
        }
    }

    /// Makes a node primary whose peer is gone.
    pub fn promote_by_force(&self, node: Side) {
        let (code, said) = self.output_of(node, &["promote", GROUP, "--force"]);
        assert_eq!(code, 1, "a forced promotion warns: {said}\n{}", self.log(node));
    }

    /// Starts a former primary again, whose peer was promoted meanwhile, and makes it the secondary.
    pub fn return_as_secondary(&mut self, node: Side) {
        self.serve(node);
        self.until("both nodes see the fork", |pair| {
            let reasons = Side::BOTH.map(|node| pair.status(node)["reason"].to_string());
            reasons.iter().all(|reason| reason.contains("both nodes are primary"))
        });
        let (code, said) = self.output_of(node, &["demote", GROUP]);
        assert!(code < 2, "{said}\n{}", self.log(node));
        self.until_fork_is_over(node.other());
        self.sync_fully(node.other());
    }

    /// Waits until a primary has heard that its peer was demoted, which is told after the peer's answer.
    pub fn until_fork_is_over(&mut self, primary: Side) {
        self.until("the primary has heard of the demotion", |pair| {
            !pair.status(primary)["reason"].to_string().contains("both nodes are primary")
        });
    }

    // --- Commands ---

    /// Runs a command of the binary against the node. One that does not end, such as a daemon that should have refused to
    /// start, is ended with exit code 124.
    pub fn run(&self, node: Side, words: &[&str]) -> Output {
        let command = self.command(node, words);
        let mut bounded = Command::new("timeout");
        bounded.arg("110").arg(command.get_program()).args(command.get_args());
        bounded.stdin(Stdio::null()).output().expect("the binary runs")
    }

    /// A command of the binary against the node, not yet run.
    pub fn command(&self, node: Side, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.args(words).args(["--node", node.name(), "--config"]).arg(self.config());
        command
    }

    /// Runs a command that must end with exit code 0; its output.
    pub fn done(&self, node: Side, words: &[&str]) -> String {
        let (code, text) = self.output_of(node, words);
        assert_eq!(code, 0, "{words:?} on {}: {text}\n{}", node.name(), self.log(node));
        text
    }

    /// Runs a command; its exit code and everything it said.
    pub fn output_of(&self, node: Side, words: &[&str]) -> (i32, String) {
        let output = self.run(node, words);
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().expect("commands end by themselves"), String::from_utf8_lossy(&said).into_owned())
    }

    pub fn wait_for(&self, node: Side, state: &str) {
        self.done(node, &["wait", GROUP, "--for", state, "--timeout", "90s"]);
    }

    /// Waits until all that was written is on its way to the peer's volumes: confirmed as durable there. Writers must have
    /// stopped.
    pub fn wait_for_rest(&mut self, primary: Side) {
        self.until("nothing waits to be sent or confirmed", |pair| {
            let status = pair.status(primary);
            status["state"] == "replicating" && status["queue"]["items"] == 0
        });
    }

    /// The group as the node shows it.
    pub fn status(&self, node: Side) -> Value {
        let output = self.run(node, &["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).expect("status is JSON");
        status["groups"][0].clone()
    }

    /// Asks the control socket itself.
    pub fn ask(&self, node: Side, request: &Value) -> Value {
        use std::io::{BufRead, BufReader, Write};
        let socket = self.path(node.name()).join("state/control.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("the daemon listens");
        writeln!(stream, "{request}").expect("the daemon reads");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("the daemon answers");
        serde_json::from_str(&line).expect("answers are JSON")
    }

    pub fn counter(&self, node: Side, name: &str) -> u64 {
        let reply = self.ask(node, &serde_json::json!({ "request": "counters" }));
        reply["counters"][name].as_u64().unwrap_or_else(|| panic!("there is a counter {name}: {reply}"))
    }

    /// Looks until the condition holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Pair) -> bool) {
        let started = Instant::now();
        while !holds(self) {
            let logs = Side::BOTH.map(|node| self.log(node)).join("\n");
            assert!(started.elapsed() < DEADLINE, "it did not come to this: {what}\n{logs}");
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    // --- Clients and content ---

    /// Runs qemu-io commands on a volume; all must succeed.
    pub fn qemu_io(&self, node: Side, volume: &str, commands: &[&str]) {
        let (success, said) = self.try_qemu_io(node, volume, commands);
        assert!(success, "qemu-io {commands:?}: {said}\n{}", self.log(node));
    }

    pub fn try_qemu_io(&self, node: Side, volume: &str, commands: &[&str]) -> (bool, String) {
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw"]).args(commands.iter().flat_map(|words| ["-c", words]));
        let output = command.arg(self.uri(node, volume)).output().expect("qemu-io is installed (apt: qemu-utils)");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // It tells of a failed request in its output alone.
        (output.status.success() && !said.contains("failed"), said)
    }

    /// Runs qemu-io commands while the test goes on.
    pub fn start_qemu_io(&self, node: Side, volume: &str, commands: &[&str]) -> Background {
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw"]).args(commands.iter().flat_map(|words| ["-c", words]));
        command.arg(self.uri(node, volume));
        Background::start(command)
    }

    /// The volume's bytes on a node that does not run.
    pub fn content(&self, node: Side, volume: &str) -> Vec<u8> {
        assert!(self.daemons[node as usize].is_none(), "a volume is looked at when its daemon rests");
        fs::read(self.device(node, volume)).expect("the volume is there")
    }

    pub fn assert_equal(&self, volumes: &[&str]) {
        for volume in volumes {
            let differ = first_difference(&self.content(Side::Near, volume), &self.content(Side::Far, volume));
            let logs = || Side::BOTH.map(|node| self.log(node)).join("\n");
            assert!(differ.is_none(), "{volume} differs from byte {differ:?} on:\n{}", logs());
        }
    }
}

fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    if one.len() != other.len() {
        return Some(one.len().min(other.len()));
    }
    one.iter().zip(other).position(|(one, other)| one != other)
}

/// Where a node's peers dial it.
pub fn address(pair: &Pair, node: Side) -> String {
    let text = fs::read_to_string(pair.config()).expect("the configuration is there");
    let mut lines = text.lines().skip_while(|line| *line != format!("[nodes.{}]", node.name()));
    let line = lines.find(|line| line.starts_with("address")).expect("a node has an address");
    line.split('"').nth(1).expect("in quotes").to_owned()
}

/// A program that runs beside the test and ends with it at the latest.
pub struct Background(Option<Child>);

impl Background {
    pub fn start(mut command: Command) -> Background {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().unwrap_or_else(|error| panic!("{program} does not start: {error}"));
        Background(Some(child))
    }

    pub fn has_ended(&mut self) -> bool {
        self.0.as_mut().expect("it is not finished").try_wait().expect("a child can be asked").is_some()
    }

    /// Waits for its end; whether it succeeded, and what it said.
    pub fn finish(mut self, pair: &mut Pair) -> (bool, String) {
        pair.until("a client ends", |_| self.has_ended());
        let output = self.output();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success() && !said.contains("failed"), said)
    }
}

impl Background {
    /// Waits for its end, which must be near; what it wrote.
    pub fn output(mut self) -> Output {
        let child = self.0.take().expect("it is finished once");
        child.wait_with_output().expect("a child's output can be read")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a command printed, on both ways, once its exit code and these parts of it are as expected.
#[track_caller]
pub fn expect(output: &Output, code: i32, parts: &[&str]) -> String {
    let all = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{all}");
    for part in parts {
        assert!(all.contains(part), "no {part:?} in: {all}");
    }
    assert!(!all.contains("panicked"), "{all}");
    all
}

/// Whether a program is there to be run.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| Path::new(&directory).join(program).is_file())
}

/// The same numbers in every run.
pub struct TestRandom(u64);

impl TestRandom {
    pub fn new(seed: u64) -> TestRandom {
        TestRandom(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// From 0 to `limit` - 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Whether a test must be left out because something is not there: said aloud, and to `cargo xtask test`.
pub fn must_skip(test: &str, needed: &[(&str, bool)]) -> bool {
    let missing: Vec<&str> = needed.iter().filter(|(_, is_there)| !is_there).map(|(what, _)| *what).collect();
    if missing.is_empty() {
        return false;
    }
    let line = format!("{test}: it needs {}", missing.join(", "));
    eprintln!("SKIPPED {line}");
    if let Some(path) = std::env::var_os("FARSHORE_TEST_SKIPS") {
        let mut list = fs::File::options().append(true).create(true).open(path).expect("the list of skips");
        std::io::Write::write_all(&mut list, format!("{line}\n").as_bytes()).expect("the list of skips takes a line");
    }
    true
}

/// Whether a test that cuts the power of stores must be left out.
pub fn must_skip_stores(test: &str) -> bool {
    forgetful::missing().is_some_and(|needed| must_skip(test, &[(needed, false)]))
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
