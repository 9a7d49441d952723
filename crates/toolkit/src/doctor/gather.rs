//! The only part that looks: files below /proc and /sys, questions to the kernel, the peer and the daemon. Every wait is
//! bounded by the patience given; what cannot be read is left out, and the checks say "unknown".

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::disk::{EngineKind, FileEngine, file_system_of};
use host::net;
use host::tls::facts::now;
use settings::{Config, Keyed, LinkKey, NodeName, host_name};
use units::exact::time_text;

use super::facts::{
    Bond, Clock, DiskFacts, EndFacts, InterfaceFacts, LinkFacts, MemoryFacts, PeerFacts, QueueFacts, Space,
    TcpHandshake,
};
use crate::disk_test::scratch::{ScratchFile, ScratchOptions};
use crate::disk_test::{self, DiskTestPlan, UNIT_BYTES};
use crate::interrupt::Interrupt;
use crate::within::within;

/// Flushes are measured for so long, in a file of this size.
const FLUSH_TIME: Duration = Duration::from_millis(300);
const FLUSH_BYTES: u64 = 1 << 20;
/// An address of nobody (RFC 5737): which way it goes is the default way.
const NOBODY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const SYSCTLS: [&str; 15] = [
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.core.default_qdisc",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_rto_min_us",
    "net.ipv4.tcp_rto_max_ms",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
];

/// What is known before anything is measured.
#[derive(Default)]
pub struct GatheredFacts {
    pub config: Option<(Config, NodeName)>,
    pub daemon: Option<DaemonFacts>,
    /// A node's name, or HOST:PORT, and where it is if that needs no look-up.
    pub peer: Option<(String, Option<SocketAddr>)>,
    pub state: Option<PathBuf>,
    /// The disk below the state directory is not written.
    pub skips_disk: bool,
    pub remarks: Vec<String>,
    pub patience: Duration,
}

/// What the daemon that runs tells.
pub struct DaemonFacts {
    pub node: String,
    pub version: String,
    pub certificate_until: Option<String>,
    /// What its groups hold together.
    pub memory_bytes: u64,
    pub queues: Vec<QueueFacts>,
    /// The link to the peer, if there is one.
    pub link: Option<DaemonLink>,
}

pub struct DaemonLink {
    /// Where the peer is, while it is connected.
    pub address: Option<SocketAddr>,
    /// Each key, as it holds.
    pub settings: BTreeMap<String, String>,
    pub facts: LinkFacts,
}

/// Measures. `say` is told what is being done.
pub fn facts(around: &GatheredFacts, interrupt: &Interrupt, say: &dyn Fn(&str)) -> EndFacts {
    let daemon = around.daemon.as_ref();
    let link = daemon.and_then(|daemon| daemon.link.as_ref());
    let (peer, interface) = way_to_peer(around, link, say);
    let node = daemon.map(|daemon| daemon.node.clone());
    let node = node.or(around.config.as_ref().map(|(_, node)| node.to_string()));
    let (warnings, until) = certificates(around);
    let mut remarks = around.remarks.clone();
    say("measuring the disk");
    let state = around.state.as_ref().filter(|_| !around.skips_disk);
    let disk = state.and_then(|state| match writable(state) {
        Ok(()) => Some(disk(state, around.patience, interrupt)),
        Err(remark) => {
            remarks.push(remark);
            None
        }
    });
    EndFacts {
        host: host_name(),
        node,
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        farshore: env!("CARGO_PKG_VERSION").to_owned(),
        daemon: daemon.map(|daemon| daemon.version.clone()),
        taken: time_text(u64::try_from(now()).unwrap_or(0).saturating_mul(1_000_000_000)),
        remarks,
        peer,
        interface,
        sysctls: SYSCTLS.iter().filter_map(|name| Some(((*name).to_owned(), sysctl(name)?))).collect(),
        settings: settings(around, link),
        link: link.map(|link| link.facts.clone()),
        link_timeout_s: around.config.as_ref().map(|(config, _)| config.link.timeout.as_secs_f64()),
        clock: net::clock()
            .map(|clock| Clock { synchronised: clock.synchronised, maximum_error_s: clock.maximum_error_s }),
        certificate_warnings: warnings,
        certificate_until: until,
        disk,
        io_uring_refused: io_uring_refused(),
        space: around.state.as_ref().and_then(|state| space(state, around.config.as_ref())),
        memory: memory(around),
        queues: daemon.map(|daemon| daemon.queues.clone()).unwrap_or_default(),
    }
}

fn sysctl(name: &str) -> Option<String> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn way_to_peer(
    around: &GatheredFacts,
    link: Option<&DaemonLink>,
    say: &dyn Fn(&str),
) -> (Option<PeerFacts>, Option<InterfaceFacts>) {
    let Some((name, known)) = &around.peer else {
        return (None, interface_to(NOBODY));
    };
    // A connected link has the address that works, whatever the configuration says.
    let linked = link.and_then(|link| link.address);
    let mut peer = PeerFacts { name: name.clone(), ..PeerFacts::default() };
    say(&format!("looking for {name}"));
    let address = match linked.or(*known).map_or_else(|| resolve(name, around.patience), Ok) {
        Ok(address) => address,
        Err(why) => {
            peer.silence = Some(why);
            return (Some(peer), interface_to(NOBODY));
        }
    };
    peer.address = Some(address.to_string());
    if link.is_none_or(|link| link.facts.tcp.is_none()) {
        say(&format!("asking {address}"));
        match net::shake_hands(address, around.patience) {
            Ok(found) => peer.handshake = Some(handshake(&found)),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                let patience = units::exact::show_seconds(around.patience.as_secs_f64());
                peer.silence = Some(format!("no answer within {patience}"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                peer.silence = Some("the connection was refused: nobody listens on that port".to_owned());
            }
            Err(error) => peer.silence = Some(error.to_string()),
        }
    }
    let interface = interface_to(address.ip());
    ping(&mut peer, address.ip(), interface.as_ref().map_or(1500, |interface| interface.mtu), around.patience, say);
    (Some(peer), interface)
}

/// # Errors
/// A sentence: the name leads nowhere, or nobody tells in time.
fn resolve(name: &str, patience: Duration) -> Result<SocketAddr, String> {
    let wanted = name.to_owned();
    let found = within(patience, move || wanted.to_socket_addrs().map(|mut list| list.next()));
    match found {
        Some(Ok(Some(address))) => Ok(address),
        Some(Ok(None)) => Err("the name has no address".to_owned()),
        Some(Err(error)) => Err(format!("the name does not resolve ({error})")),
        None => Err("nobody resolved the name in time; see --timeout".to_owned()),
    }
}

fn handshake(found: &net::HandshakeFacts) -> TcpHandshake {
    TcpHandshake {
        rtt_s: f64::from(found.rtt_us) / 1e6,
        segment_bytes: found.segment_bytes,
        path_mtu: found.path_mtu,
        window_scaling: found.window_scaling,
        sack: found.sack,
        timestamps: found.timestamps,
    }
}

fn ping(peer: &mut PeerFacts, address: IpAddr, mtu: u32, patience: Duration, say: &dyn Fn(&str)) {
    say(&format!("pinging {address}"));
    let round_trip = match net::round_trip(address, patience) {
        Ok(Some(time)) => time,
        Ok(None) => {
            peer.ping_silence = Some("the peer does not answer pings".to_owned());
            return;
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            peer.ping_silence = Some("pings need root (CAP_NET_RAW)".to_owned());
            return;
        }
        Err(error) => {
            peer.ping_silence = Some(error.to_string());
            return;
        }
    };
    peer.ping_rtt_s = Some(round_trip.as_secs_f64());
    say(&format!("trying large packets to {address}"));
    // What fails here after a ping worked is as silent as no answer.
    if let Ok(Some(found)) = net::path_mtu(address, mtu, round_trip, patience) {
        (peer.path_mtu, peer.path_swallows) = (Some(found.bytes), found.is_silent);
    }
    let answer = (4 * round_trip + Duration::from_millis(200)).min(patience);
    let clock = net::clock_offset(address, answer).unwrap_or(None);
    (peer.clock_offset_s, peer.clock_error_s) = clock.map(|clock| (clock.offset_s, clock.error_s)).unzip();
}

/// The interface by which packets to an address leave.
fn interface_to(address: IpAddr) -> Option<InterfaceFacts> {
    let route = net::route_to(address).ok()?;
    let found = net::interface(&net::interface_name(route.interface)?).ok()?;
    let settings = net::settings_of(&found.name).ok();
    let offloads = net::offloads_of(&found.name);
    let counters = found.counters;
    let settings = settings.as_ref();
    Some(InterfaceFacts {
        is_virtual: found.is_virtual,
        bonds: bonds(&found.name),
        lower: found.lower,
        mtu: found.mtu,
        carrier: found.carrier,
        speed_mbit: settings.and_then(|settings| settings.speed_mbit),
        full_duplex: settings.and_then(|settings| settings.full_duplex),
        autonegotiation: settings.map(|settings| settings.autonegotiation),
        twisted_pair: settings.is_some_and(|settings| settings.twisted_pair),
        supported: settings.map(|settings| settings.supported.names.clone()).unwrap_or_default(),
        advertised: settings.map(|settings| settings.advertised.names.clone()).unwrap_or_default(),
        supported_mbit: settings.map_or(0, |settings| settings.supported.fastest_mbit),
        advertised_mbit: settings.map_or(0, |settings| settings.advertised.fastest_mbit),
        packets: counters.received_packets + counters.sent_packets,
        errors: counters.received_errors + counters.sent_errors,
        dropped: counters.received_dropped + counters.sent_dropped,
        carrier_losses: counters.carrier_losses,
        tso: offloads.tso,
        gso: offloads.gso,
        gro: offloads.gro,
        receive_checksum: offloads.receive_checksum,
        qdiscs: net::qdisc_of(route.interface).unwrap_or_default(),
        route_mtu: route.mtu,
        route_rto_min_ms: route.rto_min_ms,
        name: found.name,
    })
}

/// This interface and what is below it, as far as they are bonds.
fn bonds(name: &str) -> Vec<Bond> {
    let mut names = vec![name.to_owned()];
    let mut at = 0;
    while let Some(found) = names.get(at).and_then(|name| net::interface(name).ok()) {
        // A member of two counts once, and a circle ends.
        let below: Vec<String> = found.lower.into_iter().filter(|lower| !names.contains(lower)).collect();
        names.extend(below);
        at += 1;
    }
    let bond = |name: String| net::bond_mode(&name).map(|mode| Bond { name, mode });
    names.into_iter().filter_map(bond).collect()
}

/// As they hold: what the daemon says, else what the file says.
fn settings(around: &GatheredFacts, link: Option<&DaemonLink>) -> BTreeMap<String, String> {
    let configured = || {
        let (config, _) = around.config.as_ref()?;
        let text = |key: LinkKey| (key.as_str().to_owned(), config.link.settings.text(key));
        Some(LinkKey::all().map(text).collect())
    };
    link.map(|link| link.settings.clone()).or_else(configured).unwrap_or_default()
}

/// What is wrong with them, and until when this node's is valid.
fn certificates(around: &GatheredFacts) -> (Vec<String>, Option<String>) {
    let credentials = around.config.as_ref().and_then(|(config, node)| config.credentials(node));
    let until = around.daemon.as_ref().and_then(|daemon| daemon.certificate_until.clone());
    match credentials {
        Some(Ok(found)) => {
            let seconds = u64::try_from(found.own.not_after).unwrap_or(0);
            (found.warnings(now()), Some(time_text(seconds.saturating_mul(1_000_000_000))))
        }
        Some(Err(sentences)) => (sentences, until),
        None => (Vec::new(), until),
    }
}

fn writable(directory: &Path) -> Result<(), String> {
    use rustix::fs::Access;
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| {
        let why = if errno == rustix::io::Errno::ACCESS { "run as root".to_owned() } else { errno.to_string() };
        format!("{} cannot be written, so its disk is not measured ({why})", directory.display())
    })
}

/// A few flushes of one unit.
fn disk(directory: &Path, patience: Duration, interrupt: &Interrupt) -> DiskFacts {
    let mut disk = DiskFacts { path: directory.display().to_string(), ..DiskFacts::default() };
    let options = ScratchOptions { bytes: FLUSH_BYTES, buffered: false, overwrite_device: false };
    let scratch = match ScratchFile::open(directory, options, patience) {
        Ok(scratch) => scratch,
        Err(refused) => return DiskFacts { failed: Some(refused.to_string()), ..disk },
    };
    disk.in_memory = scratch.is_in_memory();
    disk.file_system = scratch.file_system.as_ref().map(|system| system.kind.clone()).unwrap_or_default();
    let plan = DiskTestPlan { sizes: vec![UNIT_BYTES], span_bytes: FLUSH_BYTES, time: FLUSH_TIME, patience };
    let measured = disk_test::measure(&scratch.file, &plan, interrupt, |_| {});
    let removed = scratch.remove(patience);
    match measured.and_then(|measured| removed.map(|()| measured)) {
        Ok(measured) => match measured.samples.first() {
            Some(sample) => {
                (disk.flush_p50_s, disk.flush_p99_s) = (sample.quantile_s(0.5), sample.quantile_s(0.99));
                disk
            }
            None => DiskFacts { failed: Some("interrupted".to_owned()), ..disk },
        },
        Err(why) => DiskFacts { failed: Some(why), ..disk },
    }
}

fn io_uring_refused() -> Option<String> {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Some(error.to_string()),
    };
    let _inside = runtime.enter();
    FileEngine::new(EngineKind::Uring).err().map(|error| error.to_string())
}

fn space(state: &Path, config: Option<&(Config, NodeName)>) -> Option<Space> {
    let system = file_system_of(state).ok()?;
    let promised = |(config, node): &(Config, NodeName)| -> u64 {
        let left = |group: &str, file: &str, bytes: u64| {
            let path = state.join("groups").join(group).join(file);
            // Blocks of 512 bytes, whatever the file system's are.
            let taken = fs::metadata(path).map_or(0, |facts| facts.blocks() * 512);
            bytes.saturating_sub(taken)
        };
        let groups = config.groups_of(node);
        groups
            .map(|group| {
                let name = group.name.as_str();
                left(name, "journal", group.layout.journal_bytes)
                    + left(name, "undo", group.layout.history_bytes)
                    + left(name, "queue", group.layout.queue_disk_bytes)
            })
            .sum()
    };
    Some(Space {
        path: state.display().to_string(),
        free_bytes: system.free_bytes,
        total_bytes: system.total_bytes,
        promised_bytes: config.map_or(0, promised),
    })
}

/// What the groups of this node may hold, by the configuration and by what was `set` in a daemon that runs.
fn memory(around: &GatheredFacts) -> Option<MemoryFacts> {
    let (config, name) = around.config.as_ref()?;
    let node = config.node(name)?;
    let live = |group: &str| {
        let queues = around.daemon.as_ref().map(|daemon| daemon.queues.as_slice()).unwrap_or_default();
        queues.iter().find(|found| found.group == group).map(|found| found.limit_bytes)
    };
    let (mut groups, mut wanted_bytes) = (0, 0_u64);
    for group in config.groups_of(name) {
        let queue = live(group.name.as_str()).unwrap_or(group.settings.queue_memory_bytes);
        // One or the other, by its role.
        wanted_bytes = wanted_bytes.saturating_add(queue.max(group.layout.window_bytes));
        groups += 1;
    }
    let limit_bytes = config.memory_bytes(node);
    let machine = fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |key: &str| -> Option<u64> {
        let line = machine.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some(MemoryFacts {
        groups,
        wanted_bytes: wanted_bytes.min(limit_bytes),
        limit_bytes,
        held_bytes: around.daemon.as_ref().map_or(0, |daemon| daemon.memory_bytes),
        available_bytes: bytes("MemAvailable:")?,
        total_bytes: bytes("MemTotal:")?,
    })
}
