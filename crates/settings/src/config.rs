//! The configuration as checked values: what is in it, and what follows from it without a look at anything else.

mod check;
mod clients;
pub(crate) mod definition;
pub(crate) mod hooks;
pub(crate) mod local;
mod parse;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::{GroupId, NodeId};
use hooks::ConfiguredHook;
use host::driver::{group_tag, node_number, second_node_number};
use host::tls::Clients;

use crate::forms::{Around, ValueForm, address, flag, latency, list, maybe, one_of, path, per_node, size, word};
use crate::group::{Layout, LiveSettings, RpoThresholds, ScrubSettings};
use crate::keys::{Takes, keyed};
use crate::limits;
use crate::link::ConfiguredLink;
use crate::names::{ClusterName, GroupName, NodeName, VolumeName};
use crate::problem::{ConfigProblem, TextPosition};
use crate::role_hooks::RoleHooks;

/// A checked configuration. Nodes, groups and volumes are in the order of their names: their index is their number.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it was read from, for messages.
    pub file: PathBuf,
    pub top: TopLevelKeys,
    /// Links between nodes are encrypted, and NBD over TCP may be.
    pub tls: Option<Tls>,
    pub link: ConfiguredLink,
    pub nodes: Vec<ConfiguredNode>,
    pub groups: Vec<ConfiguredGroup>,
    /// In the order of the file.
    pub hooks: Vec<ConfiguredHook>,
    /// Positions of what was read, by dotted path, so that later checks can point at a line.
    pub(crate) positions: BTreeMap<String, TextPosition>,
}

keyed! {
    /// What stands above all tables.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TopLevelKeys, takes(Takes::Restart) {
        "cluster" => cluster: ClusterName =
            ValueForm::new("name", "a name", ClusterName::missing(), |text, _| ClusterName::parse(text), ClusterName::to_string)
                .required("add a name that both nodes share");
            "part of what the nodes prove to each other: two clusters never talk by accident",
            "a name both nodes share. Part of what they prove to each other, so two clusters never talk by accident";
        /// Always there without `tls`, of no use with it.
        "secret_file" => secret_file: Option<PathBuf> = maybe(path()).required_without(
                "tls",
                "name a file of 32 or more random bytes, the same on both nodes (or add a table [tls])",
            );
            "What nodes on one machine prove to each other: 32 or more random bytes, mode 0600. Make it with:\n  \
                 (umask 077; head -c 32 /dev/urandom | base64 > /etc/farshore/secret)\nNot needed with [tls].",
            "for nodes on one machine: a file of 32 to 4 096 bytes (one line ending at its end does not count), the same on both nodes, mode 0600 or narrower; anything wider is refused, see [whose files](#whose-files). `farshore init --create-secret` makes one, or `(umask 077; head -c 32 /dev/urandom \\| base64 > FILE)`. With `[tls]` it is not read";
        /// Replication and NBD may leave loopback unencrypted.
        "insecure" => insecure: bool = flag(false);
            "Allow unencrypted replication, or NBD over TCP, on anything but loopback. Leave it false unless the network between\n\
                 the nodes is trusted or a tunnel carries it.",
            "allow what crosses anything but loopback to be unencrypted: links, if there is no `[tls]` (with it they are always encrypted), and NBD over TCP, whose clients then choose. Without it such a file is refused; with it `serve` warns at every start and names what is open";
    }
}

keyed! {
    /// Certificates, and who is believed.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Tls, takes(Takes::Restart) {
        /// Where `farshore cert` keeps them.
        "directory" => directory: PathBuf =
            path().required("name the directory where 'farshore cert' keeps certificates, such as \"/etc/farshore/tls\"");
            "where 'farshore cert' keeps them",
            "where `farshore cert` keeps them: `ca.crt`, and of this node `nodes/NAME.crt` and `nodes/NAME.key` (mode 0600 or narrower, else refused), see [whose files](#whose-files); also `revoked`, if there is one";
        "clients" => clients: Clients = clients::form();
            "NBD clients: \"certified\" (all of this cluster), \"any\" who encrypts, or who may use what, such as\n\
                 { backup = [\"db/data:ro\"], web = [\"db/*\"], \"dns:db1.example.com\" = [\"*\"] }",
            "whom NBD over TLS lets in: `\"certified\"`: every client of this cluster (`farshore cert client NAME`), to every export; `\"any\"`: whoever encrypts; or a table of who may use what, see below";
    }
}

keyed! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ConfiguredNode, takes(Takes::Restart) {
        also {
            name: NodeName,
        }
        /// Where peers reach this node, and where it listens.
        "address" => address: SocketAddr = address().required("say where peers reach this node, such as \"10.0.0.1:7337\"");
            "where peers reach this node; it listens there",
            "where peers reach this node; it listens there too";
        /// Directory of Farshore's own files.
        "state" => state: PathBuf =
            path().required("name a directory for Farshore's own files, such as \"/var/lib/farshore\"");
            "Farshore's own files; the disk needs room for journals and history below",
            "directory of Farshore's own files. `serve` makes it (mode 0700) when only its last component is missing. It is root's or the daemon's own, and nobody else may write to it. Holds the control socket, the overrides and, per group, bitmaps and journal: its disk needs room for the `journal` of each group, and up to `history` during a sync";
        /// Directory of the groups' disk queues; `None`: in the state directory.
        "queues" => queues: Option<PathBuf> = maybe(path()).by_default("in the state directory");
            choice "\"/fast/farshore\"", "the groups' disk queues, on a disk of their own; default: in the state directory",
            "directory of the groups' disk queues, for a disk of their own: there the daemon makes a directory with the node's name (mode 0700), and a file for each group in it. Without it the [disk queue](#window-and-memory) of a group lies in its state directory. If the directory is missing, groups go on without a disk queue";
        /// Where NBD clients are served; never empty.
        "nbd" => nbd: Vec<ListenAddress> = nbd().by_default("`[\"unix:STATE/nbd.sock\"]`");
            choice "[\"unix:/run/farshore/nbd.sock\", \"tcp:127.0.0.1:10809\"]", "default: nbd.sock in the state directory",
            "where NBD clients are served: `\"unix:/path\"` (mode 0600) or `\"tcp:ADDRESS:PORT\"`";
        "engine" => engine: FileEngineChoice = word(&FileEngineChoice::ALL, FileEngineChoice::as_str, FileEngineChoice::Auto, FileEngineChoice::parse);
            "auto, uring, pool: how it talks to disks",
            "how it talks to its disks: `\"uring\"`, `\"pool\"` (worker threads), or `\"auto\"`: io_uring where the kernel allows it";
        /// Where metrics are read; `None`: nowhere.
        "metrics" => metrics: Option<ListenAddress> = maybe(listen("metrics", 9750)).by_default("none");
            choice "\"tcp:127.0.0.1:9750\"", "where Prometheus reads metrics; default: nowhere",
            "where metrics are served at `/metrics`: `\"tcp:ADDRESS:PORT\"` or `\"unix:/path\"` (mode 0660, the group is that of the directory if the directory is setgid). Beyond loopback whoever reads needs a certificate, as NBD clients do ([who may read](operate/monitoring.md#who-may-read))";
        "peer_commands" => peer_commands: PeerCommands = word(&PeerCommands::ALL, PeerCommands::as_str, PeerCommands::All, PeerCommands::parse);
            "all, read, none: what the daemons of its peers may ask of this node",
            "what the daemons of this node's peers may ask of it when a command is typed there ([both nodes](cli.md#both-nodes)): `\"all\"`: look and give orders for the groups of both; `\"read\"`: look only, as `status` does; `\"none\"`: nothing. Whoever may not ask is told so. Only with `\"all\"` a peer may [hand over](operate/fail-back.md#in-one-command) to this node";
        /// The log of events and its older half, together.
        "events.limit" => events_limit_bytes: u64 = size(limits::EVENTS);
            "what the log of events may take on the state directory's disk",
            "what [the log of events](events.md) may take on the state directory's disk: two files of half of it each. When the newer one is full the older one is given up";
        /// What its groups may hold in memory together; `None`: see [`Config::memory_bytes`].
        "memory.limit" => memory_limit_bytes: Option<u64> = maybe(size(limits::MEMORY))
                .by_default("`\"1GiB\"`, or 2.125 MiB for each group of the node if that is more");
            choice "\"1GiB\"", "what all groups of this node may hold in memory; default 1GiB, or 2.125 MiB per group if more",
            "memory for queues, and for what arrives as a secondary, of all groups together. Each group has 1 MiB + 64 KiB to itself, and may borrow up to four fifths of what the others leave. When the memory is used up, the effect is that of a full queue. Read at the daemon's start";
    }
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
    pub rpo: RpoThresholds,
    pub scrub: ScrubSettings,
    pub hooks: RoleHooks,
    /// Never empty.
    pub volumes: Vec<ConfiguredVolume>,
}

keyed! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ConfiguredVolume, takes(Takes::Restart) {
        also {
            name: VolumeName,
        }
        /// Backing device or file, per member node.
        "NODE" => devices: BTreeMap<NodeName, PathBuf> = per_node(Some("name the device or file that holds this volume on"), path());
            "the device or file that holds the volume there",
            "under the name of each of the group's two nodes: the device or file that holds the volume there, used raw: the group's bytes and nothing else. A disk by its name under `/dev/disk/by-id`, or a logical volume: what is `/dev/sdb` today may be `/dev/sdc` after a reboot";
        /// Use the devices past the page cache (O_DIRECT) where they allow it; `false`: through it.
        "direct" => direct: bool = flag(true);
            "past the page cache where the device allows it; false: through it",
            "`true`: the devices are used past the page cache (O_DIRECT) where they allow it, on both nodes. `false`: through it, which is faster for reads that repeat and costs memory; a flush is a flush either way";
        /// Tests and demos: every write and flush completes at least this long after issue.
        "model_latency" => model_latency: BTreeMap<NodeName, Duration> = per_node(None, latency());
            choice "{ alpha = \"8ms\" }", "tests and demos: slow this node's disk down",
            "for tests and demos: `{ alpha = \"8ms\" }` makes every write and flush of that node's device complete at least so long after its issue. `serve` warns while it is there";
    }
}

/// Where a service of this node listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenAddress {
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

/// What peers' daemons may ask of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerCommands {
    /// To look, and orders for the groups of both.
    All,
    /// To look.
    Read,
    None,
}

fn nbd() -> ValueForm<Vec<ListenAddress>> {
    list(format!("1 to {} addresses", limits::NBD_LISTENERS_MAX), listen("nbd", 10809))
}

/// `unix:/path` or `tcp:ADDRESS:PORT`; the socket's name and the port are those of the sentence about a bad one.
fn listen(socket: &'static str, port: u16) -> ValueForm<ListenAddress> {
    let read = move |text: &str, around: Around<'_>| match (text.strip_prefix("unix:"), text.strip_prefix("tcp:")) {
        (Some(socket), _) => path().read(socket, around).map(ListenAddress::Unix),
        (_, Some(key_path)) => address().read(key_path, around).map(ListenAddress::Tcp),
        _ => Err(format!(
            "{text:?} is not an address to listen; write \"unix:/run/farshore/{socket}.sock\" or \"tcp:127.0.0.1:{port}\""
        )),
    };
    ValueForm::new(
        "address",
        "`\"unix:/path\"` or `\"tcp:ADDRESS:PORT\"`",
        ListenAddress::Unix(PathBuf::new()),
        read,
        ListenAddress::to_string,
    )
}

impl Config {
    pub fn node(&self, name: &NodeName) -> Option<&ConfiguredNode> {
        self.nodes.iter().find(|node| node.name == *name)
    }

    pub fn group(&self, name: &str) -> Option<&ConfiguredGroup> {
        self.groups.iter().find(|group| group.name.as_str() == name)
    }

    /// The groups `node` is a member of.
    pub fn groups_of<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = &'a ConfiguredGroup> {
        self.groups.iter().filter(move |group| group.peer_of(node).is_some())
    }

    pub fn group_by_id(&self, id: GroupId) -> Option<&ConfiguredGroup> {
        self.groups.iter().find(|group| self.group_id(group) == id)
    }

    /// A group's number on links and in the daemon. It follows from its name, so groups may come and go beside it.
    pub fn group_id(&self, group: &ConfiguredGroup) -> GroupId {
        GroupId(self.group_tag(group) as u32)
    }

    /// What both nodes of each group have to agree on: the same bytes wherever the same is meant.
    pub fn definitions(&self) -> String {
        self.groups.iter().map(ConfiguredGroup::definition).collect()
    }

    /// Names the group in its state files.
    pub fn group_tag(&self, group: &ConfiguredGroup) -> u64 {
        group_tag(self.top.cluster.as_str(), group.name.as_str())
    }

    /// The nodes that `node` has groups with.
    pub fn peers_of<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = &'a ConfiguredNode> {
        let meets =
            |other: &&ConfiguredNode| self.groups_of(node).any(|group| group.peer_of(node) == Some(&other.name));
        self.nodes.iter().filter(meets)
    }

    /// A node's number on links and in files. Of two that meet and have the same by chance, the one whose name comes later has another.
    pub fn node_id(&self, name: &NodeName) -> NodeId {
        let cluster = self.top.cluster.as_str();
        let first = node_number(cluster, name.as_str());
        let has_it = |other: &&ConfiguredNode| {
            other.name < *name && node_number(cluster, other.name.as_str()) == first && self.meet(&other.name, name)
        };
        match self.nodes.iter().any(|other| has_it(&other)) {
            true => second_node_number(cluster, name.as_str()),
            false => first,
        }
    }

    /// They have a group together, or each has one with the same third node, which calls both by their numbers.
    pub(crate) fn meet(&self, one: &NodeName, other: &NodeName) -> bool {
        let (ones, others) = (self.peers_of(one), self.peers_of(other));
        let (ones, others): (BTreeSet<_>, BTreeSet<_>) =
            (ones.map(|node| &node.name).collect(), others.map(|node| &node.name).collect());
        ones.contains(other) || !ones.is_disjoint(&others)
    }

    /// Of the nodes that `here` has groups with the one with this number: others, which it never meets, may have the same.
    pub fn peer_by_id<'a>(&'a self, here: &'a NodeName, id: NodeId) -> Option<&'a ConfiguredNode> {
        self.peers_of(here).find(|peer| self.node_id(&peer.name) == id)
    }

    /// Whether NBD clients and readers of metrics at this address have to encrypt.
    pub fn needs_tls(&self, address: SocketAddr) -> bool {
        self.tls.is_some() && !self.top.insecure && !is_loopback(address.ip())
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

/// Under the state directory: what is recorded of each group.
pub const GROUPS: &str = "groups";

impl ConfiguredNode {
    /// Where commands reach the daemon.
    pub fn control_socket(&self) -> PathBuf {
        self.state.join("control.sock")
    }

    /// Where the files of its groups' disk queues lie, if not in the state directory.
    pub fn queue_directory(&self) -> Option<PathBuf> {
        self.queues.as_ref().map(|queues| queues.join(self.name.as_str()))
    }

    /// What `set` persists.
    pub fn overrides_file(&self) -> PathBuf {
        self.state.join("overrides.toml")
    }

    /// What `link set` persists.
    pub fn link_overrides_file(&self) -> PathBuf {
        self.state.join("link.toml")
    }

    /// The newer half of the log of events.
    pub fn events_file(&self) -> PathBuf {
        self.state.join("events.jsonl")
    }

    /// How far each hook has come, one file per hook.
    pub fn hooks_directory(&self) -> PathBuf {
        self.state.join("hooks")
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

impl ListenAddress {
    /// The address, if it is one of TCP.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Unix(_) => None,
            ListenAddress::Tcp(address) => Some(*address),
        }
    }
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAddress::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl FileEngineChoice {
    pub const ALL: [FileEngineChoice; 3] = [FileEngineChoice::Auto, FileEngineChoice::Uring, FileEngineChoice::Pool];

    /// # Errors
    /// A sentence with the ones there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        one_of("file engine", text, &Self::ALL, Self::as_str)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            FileEngineChoice::Auto => "auto",
            FileEngineChoice::Uring => "uring",
            FileEngineChoice::Pool => "pool",
        }
    }
}

impl PeerCommands {
    pub const ALL: [PeerCommands; 3] = [PeerCommands::All, PeerCommands::Read, PeerCommands::None];

    /// # Errors
    /// A sentence with the ones there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        one_of("word for what peers may ask", text, &Self::ALL, Self::as_str)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            PeerCommands::All => "all",
            PeerCommands::Read => "read",
            PeerCommands::None => "none",
        }
    }
}

pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes that never meet were compared, and a pair that ran well could neither start nor be renamed.
    #[test]
    fn two_nodes_whose_numbers_are_equal_by_chance_have_others_where_they_meet() {
        let mut names = BTreeMap::new();
        let number = |name: &String| node_number("main", name);
        let pair = (0..)
            .map(|at| format!("n{at:03}"))
            .find_map(|name| Some((names.insert(number(&name), name.clone())?, name)));
        let (one, other) = pair.expect("some hundred names have such a pair");
        let node = |name: &str, at: usize| {
            format!("[nodes.{name}]\naddress = \"127.0.0.{at}:7400\"\nstate = \"/var/lib/{name}\"\n")
        };
        let group = |primary: &str, secondary: &str| {
            let name = format!("of-{primary}-{secondary}");
            let volume =
                format!("[groups.{name}.volumes.v]\n{primary} = \"/dev/{name}\"\n{secondary} = \"/dev/{name}\"\n");
            format!("[groups.{name}]\nprimary = \"{primary}\"\nsecondary = \"{secondary}\"\n{volume}")
        };
        let with = |groups: &[(&str, &str)]| {
            let nodes: String = [&one, &other, "x", "y"].iter().zip(1..).map(|(name, at)| node(name, at)).collect();
            let groups: String = groups.iter().map(|(one, other)| group(one, other)).collect();
            let config = parse(&format!("cluster = \"main\"\nsecret_file = \"/etc/farshore/secret\"\n{nodes}{groups}"));
            config.unwrap_or_else(|problems| panic!("{problems}"))
        };
        let named = |config: &Config, name: &str| {
            config.nodes.iter().find(|node| node.name.as_str() == name).expect("it is there").name.clone()
        };
        let numbers = |groups: &[(&str, &str)]| {
            let config = with(groups);
            [&one, &other].map(|name| config.node_id(&named(&config, name)))
        };
        let first = number(&one);
        let apart = [(one.as_str(), "x"), (&other, "y")];
        assert_eq!(numbers(&apart), [first; 2], "they never meet");
        // Whoever meets one of them means that one: the first of the file was taken for it.
        let config = with(&apart);
        for (here, peer) in [("x", &one), ("y", &other)] {
            let here = named(&config, here);
            let found = config.peer_by_id(&here, first).map(|peer| peer.name.as_str());
            assert_eq!(found, Some(peer.as_str()));
        }
        assert!(config.peer_by_id(&named(&config, "x"), number(&"y".to_owned())).is_none());
        for groups in [&[(one.as_str(), other.as_str())][..], &[(&one, "x"), ("x", &other)]] {
            assert_eq!(numbers(groups), [first, second_node_number("main", &other)], "{groups:?}");
        }
    }

    #[test]
    fn two_groups_whose_numbers_are_equal_by_chance_are_refused() {
        let cluster = parse(example::EXAMPLE).expect("sound").top.cluster.to_string();
        let mut names = BTreeMap::new();
        let number = |name: &String| group_tag(&cluster, name) as u32;
        let pair =
            (0..).map(|at| format!("g{at}")).find_map(|name| Some((names.insert(number(&name), name.clone())?, name)));
        let (one, other) = pair.expect("some hundred thousand names have such a pair");
        let table = |name: &str| {
            let volume = format!("[groups.{name}.volumes.v]\nalpha = \"/dev/{name}a\"\nbeta = \"/dev/{name}b\"\n");
            format!("[groups.{name}]\nprimary = \"alpha\"\nsecondary = \"beta\"\n{volume}")
        };
        let problems =
            parse(&(example::EXAMPLE.to_owned() + &table(&one) + &table(&other))).expect_err("refused").to_string();
        let sentence = format!("group {other} has by chance the same number on links as group {one}");
        let turned = format!("group {one} has by chance the same number on links as group {other}");
        assert!(problems.contains(&sentence) || problems.contains(&turned), "{problems}");
        assert_eq!(problems.lines().count(), 1, "{problems}");
    }
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

    /// `set` and `config check` say the same of a queue that memory cannot hold.
    #[test]
    fn a_queue_or_a_window_above_four_fifths_of_memory_deserves_a_word() {
        let text = include_str!("../tests/valid_configs/one-machine.toml");
        let notes = |text: &str| parse(text).expect("sound").notes();
        let large = notes(text);
        assert_eq!(large.len(), 2, "1 GiB of the default of 1 GiB, on either node: {large:?}");
        for (note, node) in large.iter().zip(["alpha", "beta"]) {
            let words = format!(
                "db: queue.memory = \"1GiB\" has no effect above 819 MiB, four fifths of the memory.limit of 1 GiB that node {node} has"
            );
            assert!(note.starts_with(&words) && note.contains("memory.limit = \"1280MiB\" or more"), "{note}");
        }
        assert_eq!(notes(&text.replace("\"1GiB\"", "\"819MiB\"")), Vec::<String>::new());
        let given =
            text.replace("state = \"alpha-state\"", "state = \"alpha-state\", memory = { limit = \"1280MiB\" }");
        assert!(matches!(&*notes(&given), [note] if note.contains("that node beta has")), "{:?}", notes(&given));
        let window = text.replace("queue = { memory = \"1GiB\" }", "window = \"1GiB\"\njournal = \"2GiB\"");
        assert!(notes(&window)[0].starts_with("db: window = \"1GiB\" has no effect above"), "{:?}", notes(&window));
        let config = parse(text).expect("sound");
        let said = config.beyond_memory(&config.nodes[0], &config.groups[0].name, ("queue.memory", 1 << 30));
        assert_eq!(said.as_ref(), large.first());
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
        assert_eq!(node.nbd, [ListenAddress::Unix("/var/lib/farshore-alpha/nbd.sock".into())]);
        assert!(config.local_node(Some("gamma")).is_err());
    }
}
