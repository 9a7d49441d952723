//! Checks on this machine: which node it is, and whether what the file says about that node is so.

pub mod programs;
pub mod secret;
pub mod silent;

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use host::disk::meta::OPEN_TO_OTHERS;
use host::disk::overlap::Footprint;
use host::disk::volume::{self, OpenError};
use host::tls::{Credentials, MemberIdentity, Paths, facts};
use host::trusted_file::not_ours;

use super::check::own_directories;
use super::{Config, ConfiguredGroup, ConfiguredNode, ConfiguredVolume, ListenAddress};
use crate::names::NodeName;
use crate::problem::{ConfigProblem, Problems};
use crate::suggest;
use secret::SecretFile;
use silent::Silent;

/// The name of this machine, as the kernel has it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Volumes that are detached, each as node, group and volume: whatever stands at their paths is none of theirs.
#[derive(Clone, Debug, Default)]
pub struct DetachedVolumes(BTreeSet<(NodeName, String, String)>);

impl DetachedVolumes {
    pub fn add(&mut self, node: &NodeName, group: &str, volume: &str) {
        self.0.insert((node.clone(), group.to_owned(), volume.to_owned()));
    }

    fn has(&self, node: &NodeName, group: &ConfiguredGroup, volume: &ConfiguredVolume) -> bool {
        self.0.contains(&(node.clone(), group.name.to_string(), volume.name.to_string()))
    }
}

impl Config {
    /// Which node this is: `wanted` if given, else the one named like the host (whole, or up to its first dot).
    ///
    /// # Errors
    /// A sentence that lists the names there are.
    pub fn local_node(&self, wanted: Option<&str>) -> Result<NodeName, Problems> {
        let names = || self.nodes.iter().map(|node| node.name.as_str());
        let (word, called) = match wanted {
            Some(name) => (name.to_owned(), "no node is called"),
            None => (host_name(), "this host is no node of this file: nothing is called"),
        };
        let short = word.split('.').next().unwrap_or_default().to_owned();
        let spellings =
            if wanted.is_some() { vec![word.clone()] } else { vec![word.to_lowercase(), short.to_lowercase()] };
        let found = spellings.iter().find_map(|word| self.nodes.iter().find(|node| node.name.as_str() == word));
        found.map(|node| node.name.clone()).ok_or_else(|| {
            let hint = suggest::hint(&word, names());
            let list = suggest::list(names());
            Problems::one(&self.file, format!("{called} {word:?}{hint}; choose one of {list} with --node"))
        })
    }

    /// Looks at this machine: devices, state directory and secret of `node`. Every problem found, and the devices that answer nothing,
    /// which are among them and are not to be looked at again.
    pub fn check_local(&self, node: &NodeName, detached: &DetachedVolumes) -> (Vec<ConfigProblem>, Silent) {
        let silent = Silent::find(self, node);
        (check(self, node, DeviceProblems::All, (&silent, detached)), silent)
    }

    /// The nodes whose volumes are on the same machine as those of `node`, which is one of them.
    pub fn nodes_of_machine<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = &'a ConfiguredNode> {
        let machine = self.machine_of(node);
        self.nodes.iter().filter(move |other| self.machine_of(&other.name) == machine)
    }

    /// The same of what others could have changed while the node runs: its state directory, and its secret. Certificates are looked at
    /// by who takes new ones up.
    pub fn check_believed(&self, node: &NodeName) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        self.node(node).into_iter().for_each(|node| check_state(self, node, &mut problems));
        if self.tls.is_none() {
            problems.extend(read_proof(self, node).err().unwrap_or_default());
        }
        problems
    }

    /// What keeps a node from starting at all. A device that cannot be used keeps its group down, and no other: those that answer
    /// nothing are returned, and are not to be looked at again.
    ///
    /// # Errors
    /// Every problem, in one list.
    pub fn check_to_serve(&self, node: &NodeName, detached: &DetachedVolumes) -> Result<Silent, Problems> {
        let silent = Silent::find(self, node);
        // A node that does not start for another reason tells of all there is.
        if check(self, node, DeviceProblems::Found, (&silent, detached)).is_empty() {
            return Ok(silent);
        }
        Err(Problems::new(&self.file, check(self, node, DeviceProblems::All, (&silent, detached))))
    }

    /// Reads what `node` proves with who it is: its certificates, else the shared secret.
    ///
    /// # Errors
    /// Sentences: missing, damaged, another node's, too short, too long, or readable by others.
    pub fn proof(&self, node: &NodeName) -> Result<Proof, Problems> {
        read_proof(self, node).map_err(|problems| Problems::new(&self.file, problems))
    }

    /// Reads the certificates of `node`; `None` without `[tls]`.
    ///
    /// # Errors
    /// A sentence for everything that is wrong with the files.
    pub fn credentials(&self, node: &NodeName) -> Option<Result<Credentials, Vec<String>>> {
        let tls = self.tls.as_ref()?;
        let us = MemberIdentity::node(self.top.cluster.as_str(), node.as_str());
        let peers: Vec<String> = self.peers_of(node).map(|peer| peer.name.to_string()).collect();
        Some(Credentials::load(&Paths::of_node(&tls.directory, node.as_str()), &us, &peers, &tls.clients))
    }
}

/// Whose problems are told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeviceProblems {
    All,
    /// What a device is for that can be looked at: two groups may mean one, and which is right is not known.
    Found,
}

fn check(
    config: &Config,
    name: &NodeName,
    devices: DeviceProblems,
    (silent, detached): (&Silent, &DetachedVolumes),
) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    if let Err(found) = read_proof(config, name) {
        problems.extend(found);
    }
    if let Some(node) = config.node(name) {
        check_state(config, node, &mut problems);
        check_sockets(config, node, &mut problems);
    }
    check_devices(config, name, (devices, silent, detached), &mut problems);
    if devices == DeviceProblems::All {
        problems.extend(config.check_hooks());
        problems.extend(config.check_role_hooks(name));
    }
    problems
}

/// What a node proves with who it is.
pub enum Proof {
    Secret(SecretFile),
    Certificates(Box<Credentials>),
}

impl Proof {
    /// What an operator should see to: certificates that end soon.
    pub fn warnings(&self) -> Vec<String> {
        match self {
            Proof::Secret(_) => Vec::new(),
            Proof::Certificates(credentials) => credentials.warnings(facts::now()),
        }
    }

    /// What was looked at, for a sentence.
    pub fn word(&self) -> &'static str {
        match self {
            Proof::Secret(_) => "secret",
            Proof::Certificates(_) => "certificates",
        }
    }
}

fn read_proof(config: &Config, name: &NodeName) -> Result<Proof, Vec<ConfigProblem>> {
    if let Some(credentials) = config.credentials(name) {
        let as_problem = |message: String| config.problem("tls.directory", format!("directory: {message}"));
        return credentials
            .map(|read| Proof::Certificates(Box::new(read)))
            .map_err(|wrong| wrong.into_iter().map(as_problem).collect());
    }
    let file = config.top.secret_file.as_deref().expect("a checked configuration has a secret or certificates");
    secret::read_secret(file).map(Proof::Secret).map_err(|message| vec![config.problem("secret_file", message)])
}

/// The state directory exists or can be made: `serve` makes its last component.
fn check_state(config: &Config, node: &ConfiguredNode, problems: &mut Vec<ConfigProblem>) {
    let key_path = format!("nodes.{}.state", node.name);
    let name = node.state.display();
    let parent = node.state.parent().unwrap_or(Path::new("/"));
    let may_write = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    let message = match std::fs::metadata(&node.state) {
        Ok(found) if found.is_dir() && found.mode() & OPEN_TO_OTHERS != 0 => {
            let (path, mode) = (node.state.clone(), found.mode() & 0o7777);
            format!("state: {}", OpenError::OpenToOthers { path, mode, advice: 0o700 })
        }
        Ok(found) if found.is_dir() => match (foreign(&node.state), rustix::fs::access(&node.state, may_write)) {
            (Some(why), _) => format!("state: {name} {why}; run: chown root {name}, or give the daemon one of its own"),
            (None, Ok(())) => return,
            (None, Err(error)) => {
                format!("state: {name} cannot be written: {error}; make it writable for the daemon's user")
            }
        },
        Ok(_) => {
            format!("state: {name} is not a directory; name a directory for Farshore's own files")
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => match std::fs::metadata(parent) {
            Ok(found) if found.is_dir() => return,
            _ => format!(
                "state: neither {name} nor the directory it would be made in exists; run: mkdir -p {}",
                parent.display()
            ),
        },
        Err(error) => format!("state: {name} cannot be looked at: {error}"),
    };
    problems.push(config.problem(&key_path, message));
}

/// That a directory belongs to neither root nor this user: whose it is may put files there that we would take for ours.
fn foreign(path: &Path) -> Option<String> {
    rustix::fs::stat(path).ok().and_then(|found| not_ours(&found))
}

/// Directories of the sockets that are made at the start.
fn check_sockets(config: &Config, node: &ConfiguredNode, problems: &mut Vec<ConfigProblem>) {
    let nbd = node.nbd.iter().enumerate().map(|(index, listen)| ("nbd", format!("nbd.{index}"), listen));
    let metrics = node.metrics.iter().map(|listen| ("metrics", "metrics".to_owned(), listen));
    for (key, key_path, listen) in nbd.chain(metrics) {
        let ListenAddress::Unix(socket) = listen else {
            continue;
        };
        let parent = socket.parent().unwrap_or(Path::new("/"));
        // The default socket lies in the state directory, which serve makes.
        if parent != node.state && !parent.is_dir() {
            let message =
                format!("{key}: the directory of the socket does not exist; run: mkdir -p {}", parent.display());
            problems.push(config.problem(&format!("nodes.{}.{key_path}", node.name), message));
        }
    }
}

/// Every device of this node exists, is something we can use, and is nobody else's under another name. A volume without a device uses none.
fn check_devices(
    config: &Config,
    name: &NodeName,
    (devices, silent, detached): (DeviceProblems, &Silent, &DetachedVolumes),
    problems: &mut Vec<ConfigProblem>,
) {
    let machine = config.machine_of(name);
    let mut taken: Vec<(Footprint, String)> = Vec::new();
    for group in config.groups_of(name) {
        let without = group.volumes.iter().filter(|volume| detached.has(name, group, volume));
        let without: Vec<_> = without.map(|volume| volume.device(name)).collect();
        if let Some(why) = silent.why_without(&group.name, &without) {
            if devices == DeviceProblems::All {
                problems.push(config.problem(&format!("groups.{}", group.name), format!("{}: {why}", group.name)));
            }
            continue;
        }
        for volume in &group.volumes {
            let here = volume.devices.iter().filter(|(node, _)| config.machine_of(node) == machine);
            for (node, device) in here.filter(|(node, _)| !detached.has(node, group, volume)) {
                let key_path = format!("groups.{}.volumes.{}.{node}", group.name, volume.name);
                let user = format!("volume {}/{} on node {node}", group.name, volume.name);
                let mine = node == name;
                match identify(device) {
                    Ok(footprint) => {
                        if let Some((theirs, other)) = taken.iter().find(|(theirs, _)| theirs.overlaps(&footprint)) {
                            let what = theirs.relation(&footprint);
                            let message = format!(
                                "{node}: {} {what} the device of {other}, by another name; two volumes cannot share a device",
                                device.display()
                            );
                            problems.push(config.problem(&key_path, message));
                        } else {
                            taken.push((footprint, user));
                        }
                        if let Some(message) = mine.then(|| inside_own_directory(config, name, device)).flatten() {
                            problems.push(config.problem(&key_path, format!("{node}: {message}")));
                        } else if let Some(message) =
                            (mine && devices == DeviceProblems::All).then(|| in_use(config, name, device)).flatten()
                        {
                            problems.push(config.problem(&key_path, format!("{node}: {message}")));
                        }
                    }
                    Err(message) if mine && devices == DeviceProblems::All => {
                        problems.push(config.problem(&key_path, format!("{node}: {message}")))
                    }
                    Err(_) => {}
                }
            }
        }
    }
}

fn identify(device: &Path) -> Result<Footprint, String> {
    let name = device.display();
    let found: Metadata = std::fs::metadata(device).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!("{name} does not exist; attach the device, or make a file of the right size")
        }
        _ => format!("{name} cannot be looked at: {error}"),
    })?;
    let kind = found.file_type();
    if kind.is_block_device() || kind.is_file() {
        Footprint::of(device).map_err(|error| error.to_string())
    } else {
        Err(format!("{name} is neither a block device nor a plain file; name one of these"))
    }
}

/// Why a start would not open it, though it is there: mounted, read-only, held by another program, of no usable size.
fn in_use(config: &Config, name: &NodeName, device: &Path) -> Option<String> {
    let state = &config.node(name)?.state;
    volume::look(device, state).err().map(|error| error.to_string())
}

/// A link may lead into a directory of the daemon's own even when the path does not.
fn inside_own_directory(config: &Config, name: &NodeName, device: &Path) -> Option<String> {
    let real = std::fs::canonicalize(device).ok()?;
    let leads_into = |(what, directory): (&'static str, PathBuf)| {
        let directory = std::fs::canonicalize(directory).ok()?;
        real.starts_with(directory).then_some(what)
    };
    let what = own_directories(config.node(name)?).find_map(leads_into)?;
    Some(format!(
        "{} leads to {}, inside the {what} directory; keep volumes outside it",
        device.display(),
        real.display()
    ))
}
