//! From text to values: every table and key, in one walk that goes on after a problem.
//!
//! Where a required value is missing or bad, a placeholder takes its place so that the walk can go on. A problem was
//! recorded with it, and a sheet with problems never becomes a [`Config`], so no placeholder leaves this module.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use toml::de::DeTable;

use super::{
    Config, ConfiguredGroup, ConfiguredHook, ConfiguredNode, ConfiguredVolume, ListenAddress, Tls, TopLevelKeys, check,
};
use crate::forms::Around;
use crate::group::{GroupMembers, Layout, LiveSettings, RpoThresholds, ScrubSettings};
use crate::keys::{self, Keyed};
use crate::limits;
use crate::link::{ConfiguredLink, LinkSettings};
use crate::names::{GroupName, NodeName, VolumeName};
use crate::problem::Problems;
use crate::role_hooks::RoleHooks;
use crate::sheet::{Sheet, SheetSection};

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
            std::io::ErrorKind::NotFound => {
                "; `farshore up` makes one for a new pair, `farshore init` and `farshore config example` write one to be changed"
            }
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
    let names = node_names(root);
    let around = Around { base, nodes: &names, members: &[] };
    let top = read_table(sheet, root, TopLevelKeys::default(), &["tls", "link", "nodes", "groups", "hook"], around);
    let tls = sheet.section(root, "tls");
    let tls = tls.map(|section| read_table(sheet, &section, Tls::default(), &[], around));
    let link = read_link(sheet, root, around);
    let nodes = read_nodes(sheet, root, around);
    let groups = read_groups(sheet, root, around);
    let hooks = read_hooks(sheet, root, around);
    Config { file: file.to_owned(), top, tls, link, nodes, groups, hooks, positions: BTreeMap::new() }
}

/// Reads the keys of a table; what is neither one of them nor `beside` them is reported as unknown.
fn read_table<'t, S: Keyed>(
    sheet: &mut Sheet<'t>,
    section: &SheetSection<'t>,
    mut settings: S,
    beside: &[&str],
    around: Around<'_>,
) -> S {
    sheet.only(section, &[&keys::known::<S>(), beside].concat());
    keys::read(sheet, section, &mut settings, around);
    settings
}

fn read_link<'t>(sheet: &mut Sheet<'t>, root: &SheetSection<'t>, around: Around<'_>) -> ConfiguredLink {
    let link = ConfiguredLink::of(LinkSettings::default());
    let Some(section) = sheet.section(root, "link") else { return link };
    let mut link = read_table(sheet, &section, link, &keys::known::<LinkSettings>(), around);
    keys::read(sheet, &section, &mut link.settings, around);
    link
}

/// The declared node names, good or bad, so that a group that uses one is not accused for the node's own problem.
fn node_names<'t>(root: &SheetSection<'t>) -> BTreeSet<&'t str> {
    root.table("nodes").map(|table| table.keys().map(|key| key.get_ref().as_ref()).collect()).unwrap_or_default()
}

/// The tables that stand under a key, each with its name, and where they stand; beyond `most` they are not looked at, which is reported.
fn named<'t, N>(
    sheet: &mut Sheet<'t>,
    all: &SheetSection<'t>,
    most: usize,
    parse: fn(&str) -> Result<N, String>,
) -> Vec<(N, SheetSection<'t>)> {
    let mut found = Vec::new();
    for key in all.keys().take(most + 1) {
        let Some(section) = sheet.section(all, key) else { continue };
        match parse(key) {
            Ok(name) => found.push((name, section)),
            Err(reason) => sheet.at(section.span.clone(), reason),
        }
    }
    found
}

fn read_nodes<'t>(sheet: &mut Sheet<'t>, root: &SheetSection<'t>, around: Around<'_>) -> Vec<ConfiguredNode> {
    let Some(all) = sheet.section(root, "nodes") else {
        sheet.absent(root, "nodes", "add a table [nodes.NAME] for each of the two nodes");
        return Vec::new();
    };
    let parse = |key: &str| match NodeName::parse(key)? {
        _ if keys::known::<ConfiguredVolume>().contains(&key) => {
            Err(format!("a node cannot be called {key:?}, which is a key of volumes; rename it"))
        }
        name => Ok(name),
    };
    let found = named(sheet, &all, limits::NODES_MAX, parse);
    if found.len() > limits::NODES_MAX {
        sheet.at(all.span.clone(), format!("there are more than {} nodes; split the cluster", limits::NODES_MAX));
    }
    found.into_iter().map(|(name, section)| read_node(sheet, &section, name, around)).collect()
}

fn read_node<'t>(
    sheet: &mut Sheet<'t>,
    section: &SheetSection<'t>,
    name: NodeName,
    around: Around<'_>,
) -> ConfiguredNode {
    let mut node = read_table(sheet, section, ConfiguredNode::of(name), &[], around);
    if node.nbd.is_empty() {
        node.nbd.push(ListenAddress::Unix(node.state.join("nbd.sock")));
    }
    node
}

fn read_groups<'t>(sheet: &mut Sheet<'t>, root: &SheetSection<'t>, around: Around<'_>) -> Vec<ConfiguredGroup> {
    let Some(all) = sheet.section(root, "groups") else {
        sheet.absent(root, "groups", "add a table [groups.NAME] with at least one volume");
        return Vec::new();
    };
    let found = named(sheet, &all, limits::GROUPS_MAX, GroupName::parse);
    if found.len() > limits::GROUPS_MAX {
        sheet.at(all.span.clone(), format!("there are more than {} groups; split the file", limits::GROUPS_MAX));
    }
    if found.is_empty() && sheet.problems.is_empty() {
        sheet.at(all.span.clone(), "there is no group; add a table [groups.NAME] with at least one volume");
    }
    found.into_iter().map(|(name, section)| read_group(sheet, &section, name, around)).collect()
}

fn read_hooks<'t>(sheet: &mut Sheet<'t>, root: &SheetSection<'t>, around: Around<'_>) -> Vec<ConfiguredHook> {
    let found = sheet.sections(root, "hook");
    if let Some(beyond) = found.get(limits::HOOKS_MAX) {
        sheet.at(
            beyond.span.clone(),
            format!("there are more than {} hooks; let one program serve several", limits::HOOKS_MAX),
        );
    }
    let one = |section| read_table(sheet, section, ConfiguredHook::default(), &[], around);
    found.iter().take(limits::HOOKS_MAX).map(one).collect()
}

fn read_group<'t>(
    sheet: &mut Sheet<'t>,
    section: &SheetSection<'t>,
    name: GroupName,
    around: Around<'_>,
) -> ConfiguredGroup {
    let names = keys::names::<LiveSettings>().chain(keys::names::<Layout>()).chain(keys::names::<RpoThresholds>());
    let names = names.chain(keys::names::<ScrubSettings>()).chain(keys::names::<RoleHooks>());
    let beside = [vec!["volumes"], keys::known_of(names.clone())].concat();
    let GroupMembers { primary, secondary } = read_table(sheet, section, GroupMembers::default(), &beside, around);
    let (mut settings, mut layout, mut rpo) = (LiveSettings::default(), Layout::default(), RpoThresholds::default());
    let (mut scrub, mut hooks) = (ScrubSettings::default(), RoleHooks::default());
    let tables = &keys::tables(sheet, section, names);
    keys::read_beside(sheet, (section, tables), &mut settings, around);
    keys::read_beside(sheet, (section, tables), &mut layout, around);
    keys::read_beside(sheet, (section, tables), &mut rpo, around);
    keys::read_beside(sheet, (section, tables), &mut scrub, around);
    keys::read_beside(sheet, (section, tables), &mut hooks, around);
    let known: Vec<&NodeName> = [&primary, &secondary].into_iter().filter(|member| !member.is_missing()).collect();
    let volumes = read_volumes(sheet, section, Around { members: &known, ..around });
    ConfiguredGroup { name, primary, secondary, settings, layout, rpo, scrub, hooks, volumes }
}

fn read_volumes<'t>(sheet: &mut Sheet<'t>, group: &SheetSection<'t>, around: Around<'_>) -> Vec<ConfiguredVolume> {
    let advice = format!("add a table [{}.volumes.NAME] with a device for each node", group.path);
    let Some(all) = sheet.section(group, "volumes") else {
        sheet.absent(group, "volumes", &advice);
        return Vec::new();
    };
    let found = named(sheet, &all, limits::VOLUMES_MAX, VolumeName::parse);
    if all.keys().next().is_none() {
        sheet.at(all.span.clone(), format!("the group has no volume; {advice}"));
    }
    if found.len() > limits::VOLUMES_MAX {
        sheet.at(all.span.clone(), format!("the group has more than {} volumes; split it", limits::VOLUMES_MAX));
    }
    found.into_iter().map(|(name, section)| read_volume(sheet, &section, name, around)).collect()
}

fn read_volume<'t>(
    sheet: &mut Sheet<'t>,
    section: &SheetSection<'t>,
    name: VolumeName,
    around: Around<'_>,
) -> ConfiguredVolume {
    // Of an unknown member its key would be reported as unknown.
    if let [one, other] = around.members {
        sheet.only(section, &[vec![one.as_str(), other.as_str()], keys::known::<ConfiguredVolume>()].concat());
    }
    let mut volume = ConfiguredVolume::of(name);
    keys::read(sheet, section, &mut volume, around);
    volume
}
