//! The configuration as checked values: what is in it, and what follows from it without a look at anything else.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::NodeId;
use host::tls::Clients;

use crate::group::{Layout, LiveSettings};
use crate::limits;
use crate::link::LinkSettings;
use crate::names::{ClusterName, GroupName, NodeName, VolumeName};
use crate::problem::{ConfigProblem, TextPosition};

/// A checked configuration. Nodes, groups and volumes are in the order of their names: their index is their number.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it was read from, for messages.
    pub file: PathBuf,
    pub cluster: ClusterName,
    /// Always there without `tls`, of no use with it.
    pub secret_file: Option<PathBuf>,
    /// Replication and NBD may leave loopback unencrypted.
    pub insecure: bool,
    /// Links between nodes are encrypted, and NBD over TCP may be.
    pub tls: Option<Tls>,
    pub link: CheckedLink,
    pub nodes: Vec<ConfiguredNode>,
    pub groups: Vec<ConfiguredGroup>,
    /// Places of what was read, by dotted path, so that later checks can point at a line.
    pub(crate) positions: BTreeMap<String, TextPosition>,
}

/// Certificates, and who is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Where `farshore cert` keeps them.
    pub directory: PathBuf,
    pub clients: Clients,
}

/// How connections between nodes behave; the same for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedLink {
    /// Silence after which a peer counts as unreachable.
    pub timeout: Duration,
    /// As the file has them; [`crate::LinkOverrides`] lays what was `set` on top.
    pub settings: LinkSettings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredNode {
    pub name: NodeName,
    /// Where peers reach this node, and where it listens.
    pub address: SocketAddr,
    /// Directory of Farshore's own files.
    pub state: PathBuf,
    /// Where NBD clients are served; never empty.
    pub nbd: Vec<NbdListen>,
    pub engine: FileEngineChoice,
    /// What its groups may hold in memory together; `None`: see [`Config::memory_bytes`].
    pub memory_limit_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NbdListen {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// How the node talks to its disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEngineChoice {
    /// io_uring where the kernel allows it, else the pool.
    Auto,
    Uring,
    Pool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredGroup {
    pub name: GroupName,
    /// Who starts as primary the first time; afterwards the stored role counts.
    pub primary: NodeName,
    pub secondary: NodeName,
    /// As the file has them; [`crate::Overrides`] lays what was `set` on top.
    pub settings: LiveSettings,
    /// Of its stores and its window, per node.
    pub layout: Layout,
    /// Never empty.
    pub volumes: Vec<ConfiguredVolume>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredVolume {
    pub name: VolumeName,
    /// Backing device or file, per member node.
    pub devices: BTreeMap<NodeName, PathBuf>,
    /// Use the devices past the page cache (O_DIRECT) where they allow it; `false`: through it.
    pub direct: bool,
    /// Tests and demos: every write and flush completes at least this long after issue.
    pub model_latency: BTreeMap<NodeName, Duration>,
}

impl Config {
    pub fn node(&self, name: &NodeName) -> Option<&ConfiguredNode> {
        self.nodes.iter().find(|node| node.name == *name)
    }

    pub fn group(&self, name: &str) -> Option<&ConfiguredGroup> {
        self.groups.iter().find(|group| group.name.as_str() == name)
    }

    /// The groups `node` is a member of, with their number in the file's order.
    pub fn groups_of<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = (usize, &'a ConfiguredGroup)> {
        self.groups.iter().enumerate().filter(move |(_, group)| group.peer_of(node).is_some())
    }

    /// The nodes that `node` has groups with.
    pub fn peers_of<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = &'a ConfiguredNode> {
        let meets =
            |other: &&ConfiguredNode| self.groups_of(node).any(|(_, group)| group.peer_of(node) == Some(&other.name));
        self.nodes.iter().filter(meets)
    }

    /// A node's place in the list of nodes, which is sorted by name on every node alike.
    ///
    /// # Panics
    /// It is none of this file.
    pub fn node_id(&self, name: &NodeName) -> NodeId {
        let at = self.nodes.iter().position(|node| node.name == *name).expect("a group's members are nodes");
        NodeId(u16::try_from(at).expect("a configuration has at most 64 nodes"))
    }

    /// Whether NBD clients of this address have to encrypt.
    pub fn needs_tls(&self, address: SocketAddr) -> bool {
        self.tls.is_some() && !self.insecure && !is_loopback(address.ip())
    }

    /// What all groups of `node` may hold in memory together.
    pub fn memory_bytes(&self, node: &ConfiguredNode) -> u64 {
        let needed = self.groups_of(&node.name).count() as u64 * limits::MEMORY_PER_GROUP;
        node.memory_limit_bytes.unwrap_or(limits::MEMORY.default.max(needed))
    }

    /// `a and b share a machine`: their volumes and directories must not meet either. Demos and tests run so.
    pub(crate) fn machine_of(&self, node: &NodeName) -> String {
        match self.node(node).map(|node| node.address.ip()) {
            Some(ip) if !ip.is_unspecified() => ip.to_canonical().to_string(),
            _ => node.as_str().to_owned(),
        }
    }

    /// A problem at a place in the file, such as `groups.db`.
    pub fn problem(&self, path: &str, message: impl Into<String>) -> ConfigProblem {
        ConfigProblem { position: self.positions.get(path).copied(), message: message.into() }
    }
}

impl ConfiguredNode {
    /// Where commands reach the daemon.
    pub fn control_socket(&self) -> PathBuf {
        self.state.join("control.sock")
    }

    /// What `set` persists.
    pub fn overrides_file(&self) -> PathBuf {
        self.state.join("overrides.toml")
    }

    /// What `link set` persists.
    pub fn link_overrides_file(&self) -> PathBuf {
        self.state.join("link.toml")
    }

    /// Where the links' histories are, one file per peer.
    pub fn link_history_directory(&self) -> PathBuf {
        self.state.join("links")
    }
}

impl ConfiguredGroup {
    /// The other member, when `node` is one.
    pub fn peer_of(&self, node: &NodeName) -> Option<&NodeName> {
        if *node == self.primary {
            Some(&self.secondary)
        } else if *node == self.secondary {
            Some(&self.primary)
        } else {
            None
        }
    }
}

impl ConfiguredVolume {
    /// # Panics
    /// When `node` is not a member of the volume's group: a checked configuration has a device for each member.
    pub fn device(&self, node: &NodeName) -> &Path {
        self.devices.get(node).expect("a checked volume has a device on each member node")
    }

    pub fn model_latency(&self, node: &NodeName) -> Option<Duration> {
        self.model_latency.get(node).copied()
    }
}

impl NbdListen {
    /// The address, if it is one of TCP.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            NbdListen::Unix(_) => None,
            NbdListen::Tcp(address) => Some(*address),
        }
    }
}

impl std::fmt::Display for NbdListen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NbdListen::Unix(path) => write!(f, "unix:{}", path.display()),
            NbdListen::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl FileEngineChoice {
    pub fn as_str(self) -> &'static str {
        match self {
            FileEngineChoice::Auto => "auto",
            FileEngineChoice::Uring => "uring",
            FileEngineChoice::Pool => "pool",
        }
    }
}

pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Problems, example};

    fn parse(text: &str) -> Result<Config, Problems> {
        Config::parse(Path::new("/etc/farshore/farshore.toml"), text)
    }

    #[test]
    fn damage_at_every_byte_is_survived() {
        let text = example::EXAMPLE;
        // The most telling characters of the grammar, in the wrong place.
        let intruders = ["\"", "[", "]", "{", "=", ".", "\n", "#", "'''", "\0", "\u{1b}"];
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            let _ = parse(&text[..cut]);
            let intruder = intruders[cut % intruders.len()];
            let _ = parse(&format!("{}{intruder}{}", &text[..cut], &text[cut..]));
        }
        assert!(parse(&format!("a = {}", "[".repeat(100_000))).is_err());
        assert!(parse(&format!("{}a = 1", "a.".repeat(10_000))).is_err());
    }

    #[test]
    fn a_thousand_groups_and_their_problems_are_read_in_one_go() {
        let head = example::EXAMPLE.split("[groups.db]").next().expect("text before");
        let group = |number: usize, key: &str| {
            format!(
                "[groups.g{number:04}]\nprimary = \"alpha\"\nsecondary = \"beta\"\n\
                 [groups.g{number:04}.volumes.v]\n{key} = \"/dev/a{number}\"\nbeta = \"/dev/b{number}\"\n"
            )
        };
        let text = |key: &str| -> String { (0..1000).fold(head.to_owned(), |text, number| text + &group(number, key)) };
        let config = parse(&text("alpha")).expect("sound");
        assert_eq!(config.groups.len(), 1000);
        assert_eq!(config.groups[7].name.as_str(), "g0007");
        // An unknown key and a missing device each.
        assert_eq!(parse(&text("alhpa")).expect_err("bad").list.len(), 2000);
    }

    #[test]
    fn who_has_to_encrypt_follows_from_table_address_and_word() {
        let text = include_str!("../tests/valid_configs/tls-any-client.toml");
        let [loopback, lan] = ["127.0.0.1:10809", "10.0.0.1:10809"].map(|text| text.parse().expect("an address"));
        let config = parse(text).expect("sound");
        assert!(config.needs_tls(lan) && !config.needs_tls(loopback));
        let config = parse(&text.replace("cluster =", "insecure = true\ncluster =")).expect("sound");
        assert!(!config.needs_tls(lan) && config.warnings()[0].contains("unencrypted"), "{:?}", config.warnings());
        assert!(!config.warnings()[0].contains("replication"), "a link is encrypted all the same");
        let without = text.replace("[tls]", "[link]").replace("directory", "# ").replace("clients", "# ");
        let wrong = parse(&without.replace("cluster =", "secret_file = \"/s\"\ncluster =")).expect_err("not encrypted");
        assert_eq!(wrong.list.len(), 3, "two links and an export: {wrong}");
    }

    #[test]
    fn plain_listeners_beside_certified_clients_deserve_a_word() {
        let text = include_str!("../tests/valid_configs/tls-any-client.toml");
        assert!(parse(text).expect("sound").notes().is_empty(), "anybody may come in anyway");
        let certified = text.replace("\"any\"", "\"certified\"");
        assert!(parse(&certified).expect("sound").notes().is_empty(), "all of it is encrypted");
        let plain = certified.replace("tcp:10.0.0.1:10809", "tcp:127.0.0.1:10809");
        let notes = parse(&plain).expect("sound").notes();
        assert!(notes.len() == 1 && notes[0].contains("NBD on 127.0.0.1:10809 (alpha)"), "{notes:?}");
    }

    #[test]
    fn a_node_is_found_by_name() {
        let config = parse(example::EXAMPLE).expect("sound");
        let alpha = config.local_node(Some("alpha")).expect("there");
        let group = &config.groups[0];
        assert_eq!(group.peer_of(&alpha).map(NodeName::as_str), Some("beta"));
        assert_eq!(config.groups_of(&alpha).count(), 1);
        assert_eq!(group.volumes[0].device(&alpha), Path::new("/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"));
        let node = config.node(&alpha).expect("there");
        assert_eq!(node.control_socket(), Path::new("/var/lib/farshore-alpha/control.sock"));
        assert_eq!(node.nbd, [NbdListen::Unix("/var/lib/farshore-alpha/nbd.sock".into())]);
        assert!(config.local_node(Some("gamma")).is_err());
    }
}
