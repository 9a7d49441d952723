//! From text to values: every table and key, in one walk that goes on after a problem.
//!
//! Where a required value is missing or bad, a placeholder takes its place so that the walk can go on. A problem was
//! recorded with it, and a sheet with problems never becomes a [`Config`], so no placeholder leaves this module.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::tls::Clients;
use toml::de::DeTable;

use crate::config::{
    CheckedLink, Config, ConfiguredGroup, ConfiguredNode, ConfiguredVolume, FileEngineChoice, NbdListen, Tls,
};
use crate::group::{GroupKey, Layout, LiveSettings, one_of};
use crate::keys::{self, Keyed};
use crate::link::{LinkKey, LinkSettings, LinkStart};
use crate::names::{ClusterName, GroupName, NodeName, VolumeName};
use crate::problem::Problems;
use crate::sheet::{Sheet, SheetSection};
use crate::{check, clients, limits, suggest};
use units::exact::{bounded_size, duration_text, parse_duration};

const TOP_KEYS: [&str; 7] = ["cluster", "secret_file", "insecure", "tls", "link", "nodes", "groups"];
const TLS_KEYS: [&str; 2] = ["directory", "clients"];
const NODE_KEYS: [&str; 5] = ["address", "state", "nbd", "engine", "memory"];
const MEMORY_KEYS: [&str; 1] = ["limit"];
/// Beside the tables of keys.
const GROUP_KEYS: [&str; 3] = ["primary", "secondary", "volumes"];
/// Keys of a volume beside node names, so a node may not be called so.
const VOLUME_KEYS: [&str; 2] = ["direct", "model_latency"];

const UNKNOWN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Config {
    /// Reads and checks a file; local facts are not looked at, see [`Config::check_local`].
    ///
    /// # Errors
    /// Every problem of the file.
    pub fn load(file: &Path) -> Result<Self, Problems> {
        let text = read_text(file)?;
        Self::parse(file, &text)
    }

    /// Checks a text as if it came from `file`; relative paths are taken from that file's directory.
    ///
    /// # Errors
    /// Every problem of the text.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Problems> {
        let (tree, errors) = DeTable::parse_recoverable(text);
        let mut sheet = Sheet::new(text);
        if !sheet.syntax(&errors) {
            return Err(Problems::new(file, sheet.problems));
        }
        let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let base = absolute.parent().unwrap_or(Path::new("/"));
        let root = sheet.root(&tree);
        let mut config = read_top(&mut sheet, &root, file, base);
        check::check(&config, &mut sheet);
        config.positions = sheet.positions();
        if sheet.problems.is_empty() { Ok(config) } else { Err(Problems::new(file, sheet.problems)) }
    }
}

/// # Errors
/// The file cannot be read, is too large, or is not UTF-8.
fn read_text(file: &Path) -> Result<String, Problems> {
    let cannot = |error: std::io::Error| {
        let advice = match error.kind() {
            std::io::ErrorKind::NotFound => "; write one with `farshore config example` or `farshore init`",
            _ => "",
        };
        Problems::one(file, format!("the configuration file cannot be read: {error}{advice}"))
    };
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(cannot)?;
    opened.take(limits::CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > limits::CONFIG_BYTES_MAX {
        let most = limits::CONFIG_BYTES_MAX;
        return Err(Problems::one(file, format!("the file is larger than {most} bytes; is it a configuration file?")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        Problems::one(file, format!("byte {byte} is not UTF-8 text; is this a configuration file?"))
    })
}

fn read_top<'t>(sheet: &mut Sheet<'t>, root: &SheetSection<'t>, file: &Path, base: &Path) -> Config {
    sheet.only(root, &TOP_KEYS);
    let cluster = sheet.required(root, "cluster", "add a name that both nodes share", ClusterName::parse);
    let tls = read_tls(sheet, root, base);
    if tls.is_none() {
        let advice = "name a file of 32 or more random bytes, the same on both nodes (or add a table [tls])";
        sheet.absent(root, "secret_file", advice);
    }
    let secret_file = sheet.value(root, "secret_file", |text| parse_path(text, base));
    let insecure = sheet.flag(root, "insecure").unwrap_or(false);
    let link = read_link(sheet, root);
    let nodes = read_nodes(sheet, root, base);
    let groups = read_groups(sheet, root, base, &node_names(root));
    Config {
        file: file.to_owned(),
        cluster: cluster.unwrap_or_else(ClusterName::missing),
        secret_file,
        insecure,
        tls,
        link,
        nodes,
        groups,
        positions: BTreeMap::new(),
    }
}

fn read_tls<'t>(sheet: &mut Sheet<'t>, root: &SheetSection<'t>, base: &Path) -> Option<Tls> {
    let section = sheet.section(root, "tls")?;
    sheet.only(&section, &TLS_KEYS);
    let advice = "name the directory where 'farshore cert' keeps certificates, such as \"/etc/farshore/tls\"";
    let directory = sheet.required(&section, "directory", advice, |text| parse_path(text, base)).unwrap_or_default();
    let clients = clients::read(sheet, &section).unwrap_or(Clients::Certified);
    Some(Tls { directory, clients })
}

fn read_link<'t>(sheet: &mut Sheet<'t>, root: &SheetSection<'t>) -> CheckedLink {
    let (mut start, mut settings) = (LinkStart::default(), LinkSettings::default());
    if let Some(section) = sheet.section(root, "link") {
        let start_keys = keys::SettingKey::<LinkStart>::all().map(keys::SettingKey::as_str);
        let known: Vec<&str> = start_keys.chain(LinkKey::all().map(LinkKey::as_str)).collect();
        sheet.only(&section, &known);
        read_keys(sheet, &section, &mut start);
        read_keys(sheet, &section, &mut settings);
    }
    CheckedLink { timeout: start.timeout, settings }
}

/// The declared node names, good or bad, so that a group that uses one is not accused for the node's own problem.
fn node_names<'t>(root: &SheetSection<'t>) -> BTreeSet<&'t str> {
    root.table("nodes").map(|table| table.keys().map(|key| key.get_ref().as_ref()).collect()).unwrap_or_default()
}

fn read_nodes<'t>(sheet: &mut Sheet<'t>, root: &SheetSection<'t>, base: &Path) -> Vec<ConfiguredNode> {
    let Some(all) = sheet.section(root, "nodes") else {
        sheet.absent(root, "nodes", "add a table [nodes.NAME] for each of the two nodes");
        return Vec::new();
    };
    let mut nodes = Vec::new();
    for key in all.keys().take(limits::NODES_MAX + 1) {
        let Some(section) = sheet.section(&all, key) else {
            continue;
        };
        match NodeName::parse(key) {
            Ok(_) if VOLUME_KEYS.contains(&key) => {
                sheet.at(
                    section.span.clone(),
                    format!("a node cannot be called {key:?}, which is a key of volumes; rename it"),
                );
            }
            Ok(name) => nodes.push(read_node(sheet, &section, name, base)),
            Err(reason) => sheet.at(section.span.clone(), reason),
        }
    }
    if nodes.len() > limits::NODES_MAX {
        sheet.at(all.span.clone(), format!("there are more than {} nodes; split the cluster", limits::NODES_MAX));
    }
    nodes
}

fn read_node<'t>(sheet: &mut Sheet<'t>, section: &SheetSection<'t>, name: NodeName, base: &Path) -> ConfiguredNode {
    sheet.only(section, &NODE_KEYS);
    let advice = "say where peers reach this node, such as \"10.0.0.1:7337\"";
    let address = sheet.required(section, "address", advice, parse_address).unwrap_or(UNKNOWN_ADDRESS);
    let advice = "name a directory for Farshore's own files, such as \"/var/lib/farshore\"";
    let state = sheet.required(section, "state", advice, |text| parse_path(text, base)).unwrap_or_default();
    let nbd = sheet.values(section, "nbd", |text| parse_listen(text, base));
    let nbd = match nbd {
        Some(list) if !list.is_empty() => list,
        Some(_) if sheet.problems.is_empty() => {
            sheet.at_path(
                &section.path,
                "nbd: the list is empty; leave the key out for a socket in the state directory",
            );
            Vec::new()
        }
        _ => vec![NbdListen::Unix(state.join("nbd.sock"))],
    };
    let engine = sheet.value(section, "engine", parse_engine).unwrap_or(FileEngineChoice::Auto);
    let memory_limit_bytes = sheet.section(section, "memory").and_then(|memory| {
        sheet.only(&memory, &MEMORY_KEYS);
        sheet.value(&memory, "limit", |text| bounded_size(text, limits::MEMORY))
    });
    ConfiguredNode { name, address, state, nbd, engine, memory_limit_bytes }
}

fn read_groups<'t>(
    sheet: &mut Sheet<'t>,
    root: &SheetSection<'t>,
    base: &Path,
    nodes: &BTreeSet<&str>,
) -> Vec<ConfiguredGroup> {
    let Some(all) = sheet.section(root, "groups") else {
        sheet.absent(root, "groups", "add a table [groups.NAME] with at least one volume");
        return Vec::new();
    };
    let mut groups = Vec::new();
    for key in all.keys().take(limits::GROUPS_MAX + 1) {
        let Some(section) = sheet.section(&all, key) else {
            continue;
        };
        match GroupName::parse(key) {
            Ok(name) => groups.push(read_group(sheet, &section, name, base, nodes)),
            Err(reason) => sheet.at(section.span.clone(), reason),
        }
    }
    if groups.len() > limits::GROUPS_MAX {
        sheet.at(all.span.clone(), format!("there are more than {} groups; split the file", limits::GROUPS_MAX));
    }
    if groups.is_empty() && sheet.problems.is_empty() {
        sheet.at(all.span.clone(), "there is no group; add a table [groups.NAME] with at least one volume");
    }
    groups
}

fn read_group<'t>(
    sheet: &mut Sheet<'t>,
    section: &SheetSection<'t>,
    name: GroupName,
    base: &Path,
    nodes: &BTreeSet<&str>,
) -> ConfiguredGroup {
    let mut known: Vec<&str> = GROUP_KEYS.to_vec();
    known.extend(
        GroupKey::all()
            .map(GroupKey::as_str)
            .chain(keys::SettingKey::<Layout>::all().map(keys::SettingKey::as_str))
            .map(table_or_key),
    );
    known.dedup();
    sheet.only(section, &known);
    let mut member = |key: &str, advice: &str| {
        sheet.required(section, key, advice, |text| known_node(text, nodes)).unwrap_or_else(NodeName::missing)
    };
    let primary = member("primary", "name the node that starts as primary");
    let secondary = member("secondary", "name the node that keeps the copy");
    let (mut settings, mut layout) = (LiveSettings::default(), Layout::default());
    read_keys(sheet, section, &mut settings);
    read_keys(sheet, section, &mut layout);
    let volumes = read_volumes(sheet, section, base, [&primary, &secondary]);
    ConfiguredGroup { name, primary, secondary, settings, layout, volumes }
}

/// The settings of a table of keys, by the readers that `set` uses. Those of a table of their own are the only ones in it.
fn read_keys<'t, S: Keyed>(sheet: &mut Sheet<'t>, section: &SheetSection<'t>, settings: &mut S) {
    let names = || keys::SettingKey::<S>::all().map(keys::SettingKey::as_str);
    let mut tables: BTreeMap<&str, SheetSection<'t>> = BTreeMap::new();
    for (table, _) in names().filter_map(|name| name.split_once('.')) {
        if !tables.contains_key(table)
            && let Some(found) = sheet.section(section, table)
        {
            let known: Vec<&str> = names().filter_map(|name| name.strip_prefix(table)?.strip_prefix('.')).collect();
            sheet.only(&found, &known);
            tables.insert(table, found);
        }
    }
    for key in keys::SettingKey::<S>::all() {
        let (table, name) = match key.as_str().split_once('.') {
            Some((table, name)) => (tables.get(table), name),
            None => (Some(section), key.as_str()),
        };
        if let Some(table) = table {
            sheet.value(table, name, |text| settings.set(key, text));
        }
    }
}

/// What stands in the group's own table for a key.
fn table_or_key(name: &'static str) -> &'static str {
    name.split_once('.').map_or(name, |(table, _)| table)
}

fn read_volumes<'t>(
    sheet: &mut Sheet<'t>,
    group: &SheetSection<'t>,
    base: &Path,
    members: [&NodeName; 2],
) -> Vec<ConfiguredVolume> {
    let advice = format!("add a table [{}.volumes.NAME] with a device for each node", group.path);
    let Some(all) = sheet.section(group, "volumes") else {
        sheet.absent(group, "volumes", &advice);
        return Vec::new();
    };
    let mut volumes = Vec::new();
    for key in all.keys().take(limits::VOLUMES_MAX + 1) {
        let Some(section) = sheet.section(&all, key) else {
            continue;
        };
        match VolumeName::parse(key) {
            Ok(name) => volumes.push(read_volume(sheet, &section, name, base, members)),
            Err(reason) => sheet.at(section.span.clone(), reason),
        }
    }
    if all.keys().next().is_none() {
        sheet.at(all.span.clone(), format!("the group has no volume; {advice}"));
    }
    if volumes.len() > limits::VOLUMES_MAX {
        sheet.at(all.span.clone(), format!("the group has more than {} volumes; split it", limits::VOLUMES_MAX));
    }
    volumes
}

fn read_volume<'t>(
    sheet: &mut Sheet<'t>,
    section: &SheetSection<'t>,
    name: VolumeName,
    base: &Path,
    members: [&NodeName; 2],
) -> ConfiguredVolume {
    let members: Vec<&NodeName> = members.into_iter().filter(|member| !member.is_missing()).collect();
    let member_names: Vec<&str> = members.iter().map(|member| member.as_str()).collect();
    if members.len() == 2 {
        sheet.only(section, &[&member_names[..], &VOLUME_KEYS[..]].concat());
    }
    let mut devices = BTreeMap::new();
    for member in &members {
        let advice = format!("name the device or file that holds this volume on {member}");
        if let Some(path) = sheet.required(section, member.as_str(), &advice, |text| parse_path(text, base)) {
            devices.insert((*member).clone(), path);
        }
    }
    let mut model_latency = BTreeMap::new();
    if let Some(latencies) = sheet.section(section, "model_latency") {
        if members.len() == 2 {
            sheet.only(&latencies, &member_names);
        }
        for member in &members {
            if let Some(latency) = sheet.value(&latencies, member.as_str(), parse_model_latency) {
                model_latency.insert((*member).clone(), latency);
            }
        }
    }
    let direct = sheet.flag(section, "direct").unwrap_or(true);
    ConfiguredVolume { name, devices, direct, model_latency }
}

fn known_node(text: &str, nodes: &BTreeSet<&str>) -> Result<NodeName, String> {
    if !nodes.contains(text) {
        let hint = suggest::hint(text, nodes.iter().copied());
        let names = suggest::list(nodes.iter().copied());
        return Err(format!("no node is called {text:?}{hint}; the nodes of this file are {names}"));
    }
    // A declared node with a bad name has its problem at its own table.
    Ok(NodeName::parse(text).unwrap_or_else(|_| NodeName::missing()))
}

/// An absolute path; a relative one is taken from the directory of the file.
fn parse_path(text: &str, base: &Path) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("the path is empty".to_owned());
    }
    if text.contains('\0') {
        return Err("the path contains a zero byte".to_owned());
    }
    // Through `components` so that "/dev//sdb" and "/dev/./sdb" are the same text.
    Ok(base.join(text).components().collect())
}

/// An IP address and port. Names are refused: what they mean may differ between the two nodes and change at night.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return if address.port() == 0 {
            Err(format!("{text:?} has port 0; give a port, such as 7337"))
        } else {
            Ok(address)
        };
    }
    let advice = "write an IP address and port, such as \"10.0.0.1:7337\" or \"[fd00::1]:7337\"";
    if text.parse::<IpAddr>().is_ok() {
        return Err(format!("{text:?} has no port; {advice}"));
    }
    Err(format!("{text:?} is not an address (host names are not looked up); {advice}"))
}

/// `unix:/path` or `tcp:ADDRESS:PORT`.
fn parse_listen(text: &str, base: &Path) -> Result<NbdListen, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return parse_path(path, base).map(NbdListen::Unix);
    }
    match text.strip_prefix("tcp:") {
        Some(address) => parse_address(address).map(NbdListen::Tcp),
        None => Err(format!(
            "{text:?} is not an address to listen; write \"unix:/run/farshore/nbd.sock\" or \"tcp:127.0.0.1:10809\""
        )),
    }
}

fn parse_engine(text: &str) -> Result<FileEngineChoice, String> {
    let all = [FileEngineChoice::Auto, FileEngineChoice::Uring, FileEngineChoice::Pool];
    one_of("file engine", text, &all, FileEngineChoice::as_str)
}

fn parse_model_latency(text: &str) -> Result<Duration, String> {
    let latency = parse_duration(text)?;
    if latency > limits::MODEL_LATENCY_MAX {
        return Err(format!("{text:?} is too long; the most is \"{}\"", duration_text(limits::MODEL_LATENCY_MAX)));
    }
    Ok(latency)
}
