//! Checks across the whole file: what two correct lines may not say together.
//!
//! Placeholders of unreadable values (see `parse`) are passed over; their problem is on the list already.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use host::tls::Clients;
use host::tls::clients::{Grant, Scope};

use super::clients::{key_of, text_of};
use super::hooks::{ConfiguredHook, HookUrl};
use super::{Config, ConfiguredGroup, ConfiguredNode, GROUPS, ListenAddress, is_loopback};
use crate::names::{GroupName, NodeName};
use crate::role_hooks::{RoleHook, wrong_command};
use crate::sheet::Sheet;
use crate::{limits, suggest};
use units::exact::{duration_text, show_size, size_text};

pub(super) fn check(config: &Config, sheet: &mut Sheet<'_>) {
    if let Err((key, why)) = config.link.settings.check(config.link.timeout) {
        sheet.at_path(&format!("link.{key}"), format!("{key}: {why}"));
    }
    for node in &config.nodes {
        check_node(config, node, sheet);
    }
    check_addresses(config, sheet);
    check_directories(config, sheet);
    for group in &config.groups {
        check_group(group, sheet);
    }
    check_numbers(config, sheet);
    check_devices(config, sheet);
    check_clients(config, sheet);
    check_hooks(config, sheet);
}

/// Two groups in some millions have the same number on links. So have two nodes of one in some ten thousand: one of them has another then, and
/// rarely that one is taken too.
fn check_numbers(config: &Config, sheet: &mut Sheet<'_>) {
    let mut complain = |kind: &str, name: &str, other: &str| {
        sheet.at_path(
            &format!("{kind}s.{name}"),
            format!(
                "{kind} {name} has by chance the same number on links as {kind} {other}; give one of them another name"
            ),
        );
    };
    let mut groups = BTreeMap::new();
    for group in &config.groups {
        if let Some(other) = groups.insert(config.group_id(group).0, group.name.as_str()) {
            complain("group", group.name.as_str(), other);
        }
    }
    let mut nodes: BTreeMap<u16, Vec<&NodeName>> = BTreeMap::new();
    for node in &config.nodes {
        let same = nodes.entry(config.node_id(&node.name).0).or_default();
        if let Some(other) = same.iter().find(|other| config.meet(other, &node.name)) {
            complain("node", node.name.as_str(), other.as_str());
        }
        same.push(&node.name);
    }
}

impl Config {
    /// What is allowed but dangerous; `serve` says it loudly.
    pub fn warnings(&self) -> Vec<String> {
        warnings(self)
    }

    /// What is sound, and may not be what was meant: a word for whoever checks the file.
    pub fn notes(&self) -> Vec<String> {
        notes(self)
    }

    /// Of `key`, which takes so many bytes of a node's memory for a group: that the group never gets all of it. The data path lends one group
    /// four fifths of `memory.limit` at most.
    pub fn beyond_memory(&self, node: &ConfiguredNode, group: &GroupName, (key, bytes): (&str, u64)) -> Option<String> {
        let limit = self.memory_bytes(node);
        let most = limit / 5 * 4;
        let enough = bytes.div_ceil(4).saturating_mul(5).div_ceil(limits::MIB).saturating_mul(limits::MIB);
        (bytes > most).then(|| {
            format!(
                "{group}: {key} = \"{}\" has no effect above {}, four fifths of the memory.limit of {} that node {} has; set it lower, or \
                 memory.limit = \"{}\" or more there, which counts when its daemon starts",
                size_text(bytes),
                show_size(most),
                show_size(limit),
                node.name,
                size_text(enough.min(limits::MEMORY.max))
            )
        })
    }
}

fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let is_open = |address: &SocketAddr| !is_loopback(address.ip());
    let plain_links = config.nodes.iter().filter(|node| config.tls.is_none() && is_open(&node.address));
    let replication = plain_links.map(|node| format!("replication on {} ({})", node.address, node.name));
    let nbd: Vec<String> = config
        .nodes
        .iter()
        .flat_map(|node| node.nbd.iter().filter_map(move |listen| Some((node, listen.tcp()?))))
        .filter(|(_, address)| is_open(address))
        .map(|(node, address)| format!("NBD on {address} ({})", node.name))
        .collect();
    let open: Vec<String> = replication.chain(nbd.iter().filter(|_| config.top.insecure).cloned()).collect();
    if !open.is_empty() {
        warnings.push(format!(
            "insecure = true: data crosses the network unencrypted and can be read or changed on the way: {}",
            open.join(", ")
        ));
    }
    if config.tls.as_ref().is_some_and(|tls| tls.clients == Clients::Any) && !nbd.is_empty() {
        warnings.push(format!(
            "clients = \"any\": whoever reaches these addresses can read and write the volumes: {}",
            nbd.join(", ")
        ));
    }
    warnings.extend(open_metrics(config));
    for group in &config.groups {
        for volume in group.volumes.iter().filter(|volume| !volume.model_latency.is_empty()) {
            warnings.push(format!(
                "volume {}/{} has a model_latency: its writes are slowed on purpose, for tests and demos only",
                group.name, volume.name
            ));
        }
    }
    warnings
}

/// Where metrics are for everybody.
fn open_metrics(config: &Config) -> Option<String> {
    let is_any = config.tls.as_ref().is_some_and(|tls| tls.clients == Clients::Any);
    let addresses = config.nodes.iter().filter_map(|node| Some((node, node.metrics.as_ref()?.tcp()?)));
    let open = addresses
        .filter(|(_, address)| !is_loopback(address.ip()) && (is_any || !config.needs_tls(*address)))
        .map(|(node, address)| format!("metrics on {address} ({})", node.name));
    let open: Vec<String> = open.collect();
    let list = open.join(", ");
    (!open.is_empty()).then(|| format!("whoever reaches these addresses can read how the groups stand: {list}"))
}

fn notes(config: &Config) -> Vec<String> {
    let members = config.nodes.iter().flat_map(|node| config.groups_of(&node.name).map(move |group| (node, group)));
    let beyond = members.flat_map(|(node, group)| {
        let held = [("queue.memory", group.settings.queue_memory_bytes), ("window", group.layout.window_bytes)];
        held.into_iter().filter_map(move |held| config.beyond_memory(node, &group.name, held))
    });
    plain_listeners(config).into_iter().chain(beyond).collect()
}

/// Where whoever comes in the clear passes the table of clients.
fn plain_listeners(config: &Config) -> Option<String> {
    let tls = config.tls.as_ref().filter(|tls| tls.clients != Clients::Any)?;
    let listens =
        config.nodes.iter().flat_map(|node| node.nbd.iter().filter_map(move |listen| Some((node, listen.tcp()?))));
    let plain = listens.filter(|(_, address)| !config.needs_tls(*address));
    let plain: Vec<String> = plain.map(|(node, address)| format!("NBD on {address} ({})", node.name)).collect();
    if plain.is_empty() {
        return None;
    }
    let directory = tls.directory.display();
    Some(format!(
        "'clients' does not bind who comes in the clear: any program that reaches these addresses can read and write the \
         volumes without a certificate of {directory}: {}; a unix socket is open to its owner alone",
        plain.join(", ")
    ))
}

fn check_node(config: &Config, node: &ConfiguredNode, sheet: &mut Sheet<'_>) {
    let path = format!("nodes.{}", node.name);
    if node.address.port() != 0 {
        let ip = node.address.ip();
        if ip.is_unspecified() || ip.is_multicast() {
            sheet.at_path(
                &format!("{path}.address"),
                format!("address: peers cannot dial {ip}; give the address of {} that its peer reaches", node.name),
            );
        } else if !is_loopback(ip) && !config.top.insecure && config.tls.is_none() {
            sheet.at_path(
                &format!("{path}.address"),
                format!(
                    "address: replication to {} would leave this machine unencrypted; add a table [tls] with its directory (see 'farshore cert init'), use a loopback address (a tunnel's end), or set insecure = true at the top if the network is trusted",
                    node.address
                ),
            );
        }
    }
    for (index, listen) in node.nbd.iter().enumerate() {
        let key_path = format!("{path}.nbd.{index}");
        match listen {
            ListenAddress::Tcp(address)
                if !is_loopback(address.ip()) && !config.top.insecure && config.tls.is_none() =>
            {
                sheet.at_path(
                    &key_path,
                    format!(
                        "nbd: {listen} would serve volumes unencrypted and to anyone beyond this machine; add a table [tls] with its directory (see 'farshore cert init'), use a unix socket or a loopback address, or set insecure = true at the top if the network is trusted"
                    ),
                );
            }
            ListenAddress::Unix(socket) => check_socket_length(sheet, &key_path, "nbd", socket),
            ListenAddress::Tcp(_) => {}
        }
    }
    check_metrics(config, node, sheet);
    let groups = config.groups_of(&node.name).count() as u64;
    let needed = groups * limits::MEMORY_PER_GROUP;
    if let Some(limit) = node.memory_limit_bytes.filter(|limit| *limit < needed) {
        sheet.at_path(
            &format!("{path}.memory.limit"),
            format!(
                "limit: {} is too little for the {groups} groups of {}, each of which needs {}; use \"{}\" or more, or leave the key out",
                size_text(limit),
                node.name,
                size_text(limits::MEMORY_PER_GROUP),
                size_text(needed),
            ),
        );
    }
    if !node.state.as_os_str().is_empty() {
        check_socket_length(sheet, &format!("{path}.state"), "state", &node.control_socket());
    }
    if node.nbd.len() > limits::NBD_LISTENERS_MAX {
        let most = limits::NBD_LISTENERS_MAX;
        sheet.at_path(&format!("{path}.nbd.{most}"), format!("nbd: at most {most} addresses to listen per node"));
    }
}

fn check_metrics(config: &Config, node: &ConfiguredNode, sheet: &mut Sheet<'_>) {
    let key_path = format!("nodes.{}.metrics", node.name);
    match &node.metrics {
        Some(ListenAddress::Unix(socket)) => check_socket_length(sheet, &key_path, "metrics", socket),
        Some(ListenAddress::Tcp(address))
            if !is_loopback(address.ip()) && !config.top.insecure && config.tls.is_none() =>
        {
            let message = format!(
                "metrics: tcp:{address} would tell anyone beyond this machine how the groups stand; add a table [tls] with its directory (see 'farshore cert init'), use a loopback address or a unix socket behind a proxy that knows who asks, or set insecure = true at the top if the network is trusted"
            );
            sheet.at_path(&key_path, message);
        }
        _ => {}
    }
}

fn check_socket_length(sheet: &mut Sheet<'_>, key_path: &str, key: &str, socket: &Path) {
    let bytes = socket.as_os_str().len();
    let most = limits::SOCKET_PATH_BYTES_MAX;
    if bytes > most {
        sheet.at_path(
            key_path,
            format!(
                "{key}: the socket {} has a path of {bytes} bytes, and the kernel takes {most}; choose a shorter one",
                socket.display()
            ),
        );
    }
}

/// No two listeners of one machine on one address or socket.
fn check_addresses(config: &Config, sheet: &mut Sheet<'_>) {
    let mut taken: BTreeMap<(String, String), String> = BTreeMap::new();
    for node in &config.nodes {
        let machine = config.machine_of(&node.name);
        let replication = (node.address.port() != 0).then(|| {
            ("tcp:".to_owned() + &node.address.to_string(), format!("nodes.{}.address", node.name), "address")
        });
        let nbd = node
            .nbd
            .iter()
            .enumerate()
            .map(|(index, listen)| (listen.to_string(), format!("nodes.{}.nbd.{index}", node.name), "nbd"));
        let metrics = node
            .metrics
            .iter()
            .map(|listen| (listen.to_string(), format!("nodes.{}.metrics", node.name), "metrics address"));
        for (listen, key_path, key) in replication.into_iter().chain(nbd).chain(metrics) {
            let user = format!("{key} of node {}", node.name);
            // A default socket clashes only where the state directories do, and that is told there.
            if !sheet.has(&key_path) {
                continue;
            }
            if let Some(other) = taken.get(&(machine.clone(), listen.clone())) {
                let what = listen.strip_prefix("tcp:").unwrap_or(&listen).to_owned();
                sheet.at_path(&key_path, format!("{key}: {what} is already the {other}; each needs its own"));
            } else {
                taken.insert((machine.clone(), listen), user);
            }
        }
    }
}

/// Nodes on one machine need directories apart, or each would read the other's files as its own.
fn check_directories(config: &Config, sheet: &mut Sheet<'_>) {
    let mut seen: Vec<(String, &ConfiguredNode)> = Vec::new();
    for node in config.nodes.iter().filter(|node| !node.state.as_os_str().is_empty()) {
        let machine = config.machine_of(&node.name);
        for (_, other) in seen.iter().filter(|(other_machine, _)| *other_machine == machine) {
            if overlap(&node.state, &other.state) {
                sheet.at_path(
                    &format!("nodes.{}.state", node.name),
                    format!(
                        "state: {} overlaps the state directory {} of node {} on the same machine; give each node its own",
                        node.state.display(),
                        other.state.display(),
                        other.name
                    ),
                );
            }
        }
        seen.push((machine, node));
    }
    check_queue_directories(config, sheet, &seen);
}

/// Files of a disk queue are removed by name: nothing else has a name where they lie.
fn check_queue_directories(config: &Config, sheet: &mut Sheet<'_>, with_state: &[(String, &ConfiguredNode)]) {
    for node in &config.nodes {
        let Some(queues) = node.queue_directory() else { continue };
        let machine = config.machine_of(&node.name);
        let beside = with_state.iter().filter(|(other_machine, _)| *other_machine == machine);
        // In its own state directory they may lie, beside what is recorded of groups.
        let may_lie_in = |other: &ConfiguredNode| {
            other.name == node.name && queues.starts_with(&other.state) && !overlap(&queues, &other.state.join(GROUPS))
        };
        let is_in_the_way = |other: &ConfiguredNode| overlap(&queues, &other.state) && !may_lie_in(other);
        for (_, other) in beside.filter(|(_, other)| is_in_the_way(other)) {
            sheet.at_path(
                &format!("nodes.{}.queues", node.name),
                format!(
                    "queues: {}, where the disk queues would lie, overlaps the state directory {} of node {}; name another directory",
                    queues.display(),
                    other.state.display(),
                    other.name
                ),
            );
        }
    }
}

fn check_group(group: &ConfiguredGroup, sheet: &mut Sheet<'_>) {
    let path = format!("groups.{}", group.name);
    if group.primary == group.secondary && !group.primary.is_missing() {
        sheet.at_path(
            &format!("{path}.secondary"),
            format!(
                "secondary: {} is the primary already; a copy on the same node protects nothing, name the other node",
                group.secondary
            ),
        );
    }
    if let (Some(warn), Some(error)) = (group.rpo.warn, group.rpo.error)
        && error < warn
    {
        let key = if sheet.has(&format!("{path}.rpo.error")) { "error" } else { "warn" };
        sheet.at_path(
            &format!("{path}.rpo.{key}"),
            format!(
                "rpo: error = \"{}\" is less than warn = \"{}\", so the warning would come after the alarm; exchange them",
                duration_text(error),
                duration_text(warn)
            ),
        );
    }
    if let Err((key, why)) = group.settings.check_ladder() {
        let at = [key, "fallback"].map(|key| format!("{path}.{key}"));
        let at = at.iter().find(|at| sheet.has(at)).unwrap_or(&at[1]).clone();
        sheet.at_path(&at, format!("{key}: {why}"));
    }
    let layout = &group.layout;
    if layout.queue_durable && layout.queue_disk_bytes < limits::QUEUE_LOG_BYTES_MIN {
        let key = if sheet.has(&format!("{path}.queue.durable")) { "durable" } else { "disk" };
        sheet.at_path(
            &format!("{path}.queue.{key}"),
            format!(
                "queue: durable = true keeps a log in the disk queue, and disk = \"{}\" is too small for one; use disk = \"{}\" or more",
                size_text(layout.queue_disk_bytes),
                size_text(limits::QUEUE_LOG_BYTES_MIN),
            ),
        );
    }
    for hook in RoleHook::ALL {
        check_command(hook.as_str(), group.hooks.command(hook), &format!("{path}.hooks"), sheet);
    }
    if group.layout.journal_bytes < limits::JOURNAL_WINDOWS_MIN * group.layout.window_bytes {
        let key = if sheet.has(&format!("{path}.journal")) { "journal" } else { "window" };
        sheet.at_path(
            &format!("{path}.{key}"),
            format!(
                "journal: {} is less than twice the window of {}, so receiving would wait for applying; use journal = \"{}\" or more, or a smaller window",
                size_text(group.layout.journal_bytes),
                size_text(group.layout.window_bytes),
                size_text(limits::JOURNAL_WINDOWS_MIN * group.layout.window_bytes),
            ),
        );
    }
}

/// Where a daemon makes and removes files of its own.
pub(super) fn own_directories(node: &ConfiguredNode) -> impl Iterator<Item = (&'static str, PathBuf)> {
    let state = Some(node.state.clone()).filter(|state| !state.as_os_str().is_empty());
    state.map(|state| ("state", state)).into_iter().chain(node.queue_directory().map(|queues| ("queue", queues)))
}

fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// A device belongs to one volume, and Farshore's own files lie outside all of them.
fn check_devices(config: &Config, sheet: &mut Sheet<'_>) {
    let mut taken: BTreeMap<(String, PathBuf), String> = BTreeMap::new();
    for group in &config.groups {
        for volume in &group.volumes {
            for (name, device) in &volume.devices {
                let key_path = format!("groups.{}.volumes.{}.{name}", group.name, volume.name);
                let user = format!("volume {}/{} on node {name}", group.name, volume.name);
                let machine = config.machine_of(name);
                if let Some(other) = taken.get(&(machine.clone(), device.clone())) {
                    sheet.at_path(
                        &key_path,
                        format!(
                            "{name}: {} is already used by {other}; two volumes cannot share a device",
                            device.display()
                        ),
                    );
                } else {
                    taken.insert((machine.clone(), device.clone()), user);
                }
                check_device_path(config, sheet, &key_path, &machine, name.as_str(), device);
            }
        }
    }
}

fn check_device_path(config: &Config, sheet: &mut Sheet<'_>, key_path: &str, machine: &str, key: &str, device: &Path) {
    for node in config.nodes.iter().filter(|node| config.machine_of(&node.name) == machine) {
        for (what, directory) in own_directories(node).filter(|(_, directory)| overlap(device, directory)) {
            sheet.at_path(
                key_path,
                format!(
                    "{key}: {} overlaps the {what} directory {} of node {}; keep volumes outside it",
                    device.display(),
                    directory.display(),
                    node.name
                ),
            );
        }
    }
    if config.top.secret_file.as_deref() == Some(device) {
        sheet.at_path(key_path, format!("{key}: {} is the secret file; a volume would overwrite it", device.display()));
    }
    if config.tls.as_ref().is_some_and(|tls| device.starts_with(&tls.directory)) {
        let message =
            format!("{key}: {} lies where the certificates are; a volume would overwrite one", device.display());
        sheet.at_path(key_path, message);
    }
}

/// What entries of `clients` say of each other, and of the groups there are.
fn check_clients(config: &Config, sheet: &mut Sheet<'_>) {
    let Some(Clients::Listed(list)) = config.tls.as_ref().map(|tls| &tls.clients) else { return };
    let mut seen = BTreeMap::new();
    for client in list {
        let key = key_of(&client.holder);
        if seen.insert(&client.holder, ()).is_some() {
            let message = format!("clients: {key:?} is there twice; write all it may use into one list");
            sheet.at_path("tls.clients", message);
        }
        for (at, Grant { scope, .. }) in client.grants.iter().enumerate() {
            let key_path = format!("tls.clients.{key}.{at}");
            if client.grants[..at].iter().any(|other| other.scope == *scope) {
                let message =
                    format!("{key}: {:?} is there twice; say once whether it may only be read", text_of(scope));
                sheet.at_path(&key_path, message);
            }
            if let Some(why) = unknown(config, scope) {
                sheet.at_path(&key_path, format!("{key}: {why}"));
            }
        }
    }
}

/// Why there is no such export.
fn unknown(config: &Config, scope: &Scope) -> Option<String> {
    let (group, volume) = match scope {
        Scope::All => return None,
        Scope::Group(group) => (group.as_str(), None),
        Scope::Export(name) => name.split_once('/').map(|(group, volume)| (group, Some(volume)))?,
    };
    let Some(found) = config.group(group) else {
        let names = || config.groups.iter().map(|group| group.name.as_str());
        let (hint, known) = (suggest::hint(group, names()), suggest::list(names()));
        return Some(format!("there is no group {group:?}{hint}; groups are {known}"));
    };
    let names = || found.volumes.iter().map(|volume| volume.name.as_str());
    let volume = volume.filter(|volume| !names().any(|name| name == *volume))?;
    let (hint, known) = (suggest::hint(volume, names()), suggest::list(names()));
    Some(format!("group {group} has no volume {volume:?}{hint}; its volumes are {known}"))
}

/// What the keys of hooks say together, and of the groups there are.
fn check_hooks(config: &Config, sheet: &mut Sheet<'_>) {
    let mut seen = BTreeSet::new();
    for (at, hook) in config.hooks.iter().enumerate() {
        let path = format!("hook.{at}");
        if !hook.name.is_missing() && !seen.insert(&hook.name) {
            sheet.at_path(
                &format!("{path}.name"),
                format!("name: another hook is called {:?}; rename one", hook.name.as_str()),
            );
        }
        check_purpose(hook, &path, sheet);
        for (number, group) in hook.groups.iter().enumerate() {
            if let Some(why) = unknown(config, &Scope::Group(group.to_string())) {
                sheet.at_path(&format!("{path}.groups.{number}"), format!("groups: {why}"));
            }
        }
    }
}

/// A command in the table `path`.
fn check_command(key: &str, command: &[String], path: &str, sheet: &mut Sheet<'_>) {
    for (word, why) in wrong_command(command) {
        let word = word.map(|word| format!(".{word}")).unwrap_or_default();
        sheet.at_path(&format!("{path}.{key}{word}"), format!("{key}: {why}"));
    }
}

/// One of `command` and `url`, and what goes with it.
fn check_purpose(hook: &ConfiguredHook, path: &str, sheet: &mut Sheet<'_>) {
    let [command, url] = ["command", "url"].map(|key| sheet.has(&format!("{path}.{key}")));
    if command && url {
        let message =
            "url: the hook has a command too; make two hooks of it, as each has attempts and a queue of its own";
        sheet.at_path(&format!("{path}.url"), message);
    }
    if !command && !url {
        let message = "the hook does nothing; add command = [\"/path/to/program\"] or url = \"https://HOST/PATH\"";
        sheet.at_path(path, message);
    }
    check_command("command", &hook.command, path, sheet);
    if hook.ca.is_some() && !hook.url.as_ref().is_some_and(HookUrl::is_encrypted) {
        let message =
            "ca: authorities count for an address that begins with https:// alone; remove the line or correct url";
        sheet.at_path(&format!("{path}.ca"), message);
    }
}
