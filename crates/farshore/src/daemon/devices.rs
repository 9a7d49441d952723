//! Is each volume on the device that it was on? Asked at every start, before anything is opened.
//!
//! What a start finds is kept in `devices`, durable before the group is taken up, so that it counts after any stop, a crash too. A
//! group one of whose volumes is on another device is refused as a whole: nothing of it is opened, exported, synced from or onto,
//! while the other groups go on. There are two ways out:
//!
//! * the devices were exchanged: each volume is given its own again, and nothing has happened;
//! * one was replaced: `accept-device`. What was recorded of the group, its dirty regions, journal and position in the order, is about
//!   a device that is gone, so the group begins anew on this node: as secondary, to be rebuilt from its peer, or as a primary whose
//!   content counts. In neither case anything flows before `sync --full` is typed: a group that is new has no history in common
//!   with its peer.
//!
//! Accepting is in steps, of which each may be cut short: `accepted` is written by the command; the next start removes what is
//! recorded, the superblock last, and keeps the new devices. While there is no superblock `accepted` says in which role the group
//! begins; the start that finds one, and every volume on its device, removes it.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use engine::NodeId;
use engine::identity::{Identity, Role};
use engine::limits;
use engine::superblock::{self, Superblock};
use host::disk::File;
use host::disk::device_id::{DeviceId, compare};
use host::disk::meta::{make_directory, make_own_directory};
use settings::{Config, ConfigProblem, ConfiguredGroup, ConfiguredVolume, NodeName, Silent};

use super::device_record::{self as record, Accepted, GroupDevices};
use super::group_directory::{self, GROUPS};
use super::names::Strays;
use super::terms;
use crate::api::Reply;

/// What is to become of a group at this start.
pub(super) enum StartDecision {
    /// Its volumes are on their devices, or it is new; if it is new because devices were accepted, the role it begins in.
    Good {
        found: GroupDevices,
        begins_as: Option<Role>,
    },
    /// The state directory is the other node's, or a copy of it.
    ThePeers,
    Refused(Box<ClosedGroup>),
    /// A device cannot be looked at: opening it tells why.
    Unknown,
}

/// A group that is not taken up.
pub(super) struct ClosedGroup {
    /// In words.
    pub why: String,
    /// That its volumes have, as far as that is known.
    pub sizes: Vec<u64>,
    /// Who it was.
    pub recorded: Option<Identity>,
}

/// What the operator says of a device that is not the recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceContent {
    Good,
    Rebuild,
}

/// A volume on a device that is not its own, in words.
struct ForeignDevice<'a> {
    volume: &'a ConfiguredVolume,
    /// Why it is none of its own.
    text: String,
    /// What is there.
    found: String,
}

/// A group of this node, seen from its state directory.
struct GroupOnDisk<'a> {
    config: &'a Config,
    node: &'a NodeName,
    group: &'a ConfiguredGroup,
    directory: PathBuf,
    tag: u64,
}

/// Looks at the volumes of `group`. What was accepted is made so.
///
/// # Errors
/// A sentence: what was accepted cannot be read, or what is recorded cannot be removed where that was accepted.
pub(super) fn look(config: &Config, node: &NodeName, group: &ConfiguredGroup) -> anyhow::Result<StartDecision> {
    let group_dir = GroupOnDisk::of(config, node, group);
    let Some(found) = group_dir.found() else { return Ok(StartDecision::Unknown) };
    let on_record = !group_dir.is_new();
    if on_record && group_dir.is_the_peers(&found) {
        // All that is recorded is about its devices, and nothing is kept.
        return Ok(match group_dir.are_numbers_swapped(|name| config.node_id(name)) {
            // The engine refuses that in words of its own.
            true => StartDecision::ThePeers,
            false => StartDecision::Refused(group_dir.close(&found, &[superblock::PEERS_DIRECTORY.to_owned()])),
        });
    }
    let foreign_devices = if on_record { group_dir.foreign_devices(&found) } else { Vec::new() };
    if foreign_devices.is_empty() && on_record {
        // The group is on record again, or each volume was given its own device back.
        record::remove_accepted(&group_dir.directory);
        return Ok(StartDecision::Good { found, begins_as: None });
    }
    let accepted = record::read_accepted(&group_dir.directory)?;
    if foreign_devices.is_empty() {
        // Whose content counts was said of these devices; that none of it does, of any.
        let holds =
            |accepted: &Accepted| accepted.begins_as == Role::Secondary || same_devices(&accepted.devices, &found);
        let begins_as = accepted.filter(holds).map(|accepted| accepted.begins_as);
        return Ok(StartDecision::Good { found, begins_as });
    }
    match accepted.filter(|accepted| group_dir.counts(accepted, &found)) {
        Some(accepted) => group_dir.begin_anew(found, &accepted),
        None => {
            let why = group_dir.refusal(&foreign_devices);
            let (sizes, recorded) = (group_dir.sizes(&found), group_dir.recorded_identity());
            Ok(StartDecision::Refused(Box::new(ClosedGroup { why, sizes, recorded })))
        }
    }
}

/// Why a group without any record is not taken up as primary: `found` says which volume is not blank.
pub(super) fn unclaimed(config: &Config, node: &NodeName, group: &ConfiguredGroup, found: &str) -> String {
    let all: Vec<_> = group.volumes.iter().map(|volume| volume.name.as_str()).collect();
    let (name, state) =
        (&group.name, config.node(node).map(|here| here.state.display().to_string()).unwrap_or_default());
    let peer = group.peer_of(node).map(ToString::to_string).unwrap_or_default();
    let command = format!("farshore accept-device {name} {}", all.join(" "));
    format!(
        "{found}, and nothing is recorded of the group on this node. If the node has served it before, its state directory {state} is not \
         mounted or was lost: bring it back. If this is the first start, say whose content counts: '{command} --content-is-good' (this \
         node's, which it serves as primary), or '{command} --rebuild' (that of {peer})"
    )
}

/// A group that cannot be opened, and what stands in its way. The node's other groups have nothing to do with it.
pub(super) fn close(
    config: &Config,
    node: &NodeName,
    group: &ConfiguredGroup,
    problems: &[String],
) -> Box<ClosedGroup> {
    let group_dir = GroupOnDisk::of(config, node, group);
    let detached = record::read_detached(&group_dir.directory).unwrap_or_default();
    let looked_at = group.volumes.iter().filter(|volume| !detached.contains_key(volume.name.as_str()));
    let found = |volume: &ConfiguredVolume| Some((volume.name.to_string(), DeviceId::of(volume.device(node)).ok()?));
    let found = looked_at.filter_map(found).collect();
    group_dir.close(&found, problems)
}

/// The same of a group with a device that answers nothing, which is not looked at.
pub(super) fn close_unseen(
    config: &Config,
    node: &NodeName,
    group: &ConfiguredGroup,
    problem: &str,
) -> Box<ClosedGroup> {
    GroupOnDisk::of(config, node, group).close(&GroupDevices::default(), &[problem.to_owned()])
}

/// What is open for `volumes`, but is not what was `found` when they were looked at: a path came to lead elsewhere meanwhile.
pub(super) fn exchanged<'a>(found: &GroupDevices, volumes: impl Iterator<Item = (&'a str, &'a File)>) -> Vec<String> {
    let exchanged = |(name, file): (&str, &File)| {
        let why = match (found.get(name), DeviceId::of_open(file)) {
            (Some(looked_at), Ok(open)) => compare(looked_at, &open).err()?.to_string(),
            (None, _) => "it was not looked at".to_owned(),
            (_, Err(error)) => error.to_string(),
        };
        Some(format!("volume {name}: what is at its path changed while it was opened ({why}); start again"))
    };
    volumes.filter_map(exchanged).collect()
}

/// Keeps which devices the group is on, durably. Called before the group is taken up.
///
/// # Errors
/// A sentence: it cannot be written.
pub(super) fn keep(directory: &Path, found: &GroupDevices) -> anyhow::Result<()> {
    record::keep_devices(directory, found)
}

/// What a start of `node` would refuse for the devices of its volumes, each at its place. Nothing is changed, and those that answer
/// nothing are not looked at.
pub fn refused(config: &Config, node: &NodeName, silent: &Silent) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    for group in config.groups_of(node).filter(|group| silent.why(&group.name).is_none()) {
        let group_dir = GroupOnDisk::of(config, node, group);
        let Some(found) = group_dir.found().filter(|found| !group_dir.is_new() && !group_dir.is_the_peers(found))
        else {
            continue;
        };
        let accepted = record::read_accepted(&group_dir.directory);
        if matches!(&accepted, Ok(Some(accepted)) if group_dir.counts(accepted, &found)) {
            continue;
        }
        for foreign_device in group_dir.foreign_devices(&found) {
            let at = format!("groups.{}.volumes.{}.{node}", group.name, foreign_device.volume.name);
            let advice = group_dir.advice(&[&foreign_device]);
            problems.push(config.problem(&at, format!("{node}: volume {}; {advice}", foreign_device.text)));
        }
    }
    problems
}

/// Takes the operator's word for the devices that `volumes` are on now; what was done, in words.
///
/// # Errors
/// A sentence: there is nothing to be accepted in this way.
pub fn accept(
    config: &Config,
    node: &NodeName,
    group: &ConfiguredGroup,
    volumes: &[String],
    content: DeviceContent,
) -> anyhow::Result<Reply> {
    let group_dir = GroupOnDisk::of(config, node, group);
    let name = &group.name;
    let found = group_dir.found().context("not every device can be looked at: 'farshore config check' shows which")?;
    if group_dir.is_new() {
        return group_dir.claim(found, content).map(Reply::ok);
    }
    let foreign_devices = group_dir.foreign_devices(&found);
    if foreign_devices.is_empty() {
        let text = format!("all volumes of {name} are on the devices that are recorded: there is nothing to accept");
        return Ok(Reply::unchanged(text));
    }
    let is_named =
        |foreign_device: &&ForeignDevice| volumes.iter().any(|wanted| *wanted == foreign_device.volume.name.as_str());
    if let Some(other) = foreign_devices.iter().find(|foreign_device| !is_named(foreign_device)) {
        bail!(
            "volume {}; the group begins anew as a whole, so name {} as well, or give it its device back first",
            other.text,
            other.volume.name
        );
    }
    if group_directory::is_open(&group_dir.directory) {
        bail!(
            "a daemon has {name} open, on the devices that it found at its start, so what is recorded goes on to change: stop the daemon, type \
             this again, and start it"
        );
    }
    let begins_as = group_dir.role_for(content)?;
    let update = group_dir.recorded_update();
    record::write_accepted(&group_dir.directory, &Accepted { begins_as, update, devices: found })?;
    let text = foreign_devices.iter().map(|ForeignDevice { volume, found, .. }| {
        format!("accepted for volume {name}/{}: {}, {found}\n", volume.name, volume.device(node).display())
    });
    Ok(Reply::ok(format!("{}{}", text.collect::<String>(), group_dir.next_steps(begins_as))))
}

impl<'a> GroupOnDisk<'a> {
    fn of(config: &'a Config, node: &'a NodeName, group: &'a ConfiguredGroup) -> GroupOnDisk<'a> {
        let here = config.node(node).expect("the node was looked up before");
        let directory = here.state.join(GROUPS).join(group.name.as_str());
        GroupOnDisk { config, node, group, directory, tag: config.group_tag(group) }
    }

    fn close(&self, found: &GroupDevices, problems: &[String]) -> Box<ClosedGroup> {
        let why = format!(
            "it cannot be opened: {}. Nothing of the group is served or sent, and the peer's copy stays as it is; other groups go on. When \
             this is put right, type 'farshore reset {}' or restart the daemon",
            problems.join("; "),
            self.group.name
        );
        // What is recorded may be the other node's.
        let recorded = if self.is_the_peers(found) { None } else { self.recorded_identity() };
        Box::new(ClosedGroup { why, sizes: self.sizes(found), recorded })
    }

    /// `None`: one cannot be looked at. A volume that is detached is on the device that it had, which is not looked at.
    fn found(&self) -> Option<GroupDevices> {
        let detached = record::read_detached(&self.directory).ok()?;
        let one = |volume: &ConfiguredVolume| {
            let name = volume.name.to_string();
            let device = match detached.get(&name) {
                Some(device) => device.clone(),
                None => DeviceId::of(volume.device(self.node)).ok()?,
            };
            Some((name, device))
        };
        self.group.volumes.iter().map(one).collect()
    }

    fn is_new(&self) -> bool {
        group_directory::is_new(&self.directory, self.tag)
    }

    fn recorded(&self) -> Option<Superblock> {
        group_directory::recorded(&self.directory, self.tag)
    }

    fn recorded_identity(&self) -> Option<Identity> {
        self.recorded().map(|found| found.identity)
    }

    fn recorded_role(&self) -> Option<Role> {
        self.recorded_identity().map(|identity| identity.role)
    }

    fn recorded_update(&self) -> Option<u64> {
        self.recorded().map(|found| found.update)
    }

    /// It was said of these devices, and of what is on record still: a group that ran since has another role, or has acknowledged more, of
    /// which nobody has said anything.
    fn counts(&self, accepted: &Accepted, found: &GroupDevices) -> bool {
        same_devices(&accepted.devices, found) && accepted.update == self.recorded_update()
    }

    /// The state directory is the other node's, or a copy of it. A program of before called nodes by their places in the list of names: where one got
    /// another name since, a record of this node may look like the other's, and is about this node's devices.
    fn is_the_peers(&self, found: &GroupDevices) -> bool {
        let mut names: Vec<&NodeName> = self.config.nodes.iter().map(|node| &node.name).collect();
        names.sort();
        let place = |name: &NodeName| NodeId(names.binary_search(&name).map_or(u16::MAX, |at| at as u16));
        self.are_numbers_swapped(|name| self.config.node_id(name))
            || self.are_numbers_swapped(place) && !self.foreign_devices(found).is_empty()
    }

    fn are_numbers_swapped(&self, number: impl Fn(&NodeName) -> NodeId) -> bool {
        let Some((found, peer)) = self.recorded().zip(self.group.peer_of(self.node)) else { return false };
        (found.node, found.peer) == (number(peer), number(self.node))
    }

    /// The recorded sizes, or those that are there.
    fn sizes(&self, found: &GroupDevices) -> Vec<u64> {
        let recorded = record::read_devices(&self.directory).ok().flatten().unwrap_or_default();
        let size = |volume: &ConfiguredVolume| {
            let name = volume.name.as_str();
            let size = recorded.get(name).or_else(|| found.get(name)).map_or(0, |device| device.size_bytes);
            size.clamp(limits::SECTOR_BYTES, limits::VOLUME_BYTES_MAX)
        };
        self.group.volumes.iter().map(size).collect()
    }

    /// Volumes that are not on the device that is recorded for them.
    fn foreign_devices(&self, found: &GroupDevices) -> Vec<ForeignDevice<'a>> {
        let recorded = match record::read_devices(&self.directory) {
            Ok(Some(recorded)) => Ok(recorded),
            // A start keeps it before the superblock says anything: it was lost, or an old copy was restored.
            Ok(None) => Err(format!("is missing ({})", record::path(&self.directory).display())),
            Err(error) => Err(format!("{error:#}")),
        };
        let one = |volume: &'a ConfiguredVolume| {
            let (name, path) = (volume.name.as_str(), volume.device(self.node).display());
            let is = found.get(name)?;
            let (title, found) = (format!("{}/{name}", self.group.name), words(is));
            let recorded = match &recorded {
                Ok(recorded) => recorded.get(name),
                Err(damage) => {
                    let text = format!(
                        "{title}: whether {path} is its device is not known: the record of its devices {damage}"
                    );
                    return Some(ForeignDevice { volume, text, found });
                }
            };
            // One under a new name: whether there may be one is another question.
            let was = recorded?;
            let contradiction = compare(was, is).err()?;
            let text = format!(
                "{title}: {path} is not the device that is recorded for it: {contradiction}. Recorded is {}, found {found}{}",
                words(was),
                self.whose(is, name)
            );
            Some(ForeignDevice { volume, text, found })
        };
        self.group.volumes.iter().filter_map(one).collect()
    }

    /// Whether it is the device of another volume of this node: they were exchanged.
    fn whose(&self, device: &DeviceId, not: &str) -> String {
        for group in self.config.groups_of(self.node) {
            let group_dir = GroupOnDisk::of(self.config, self.node, group);
            let recorded = record::read_devices(&group_dir.directory).ok().flatten().unwrap_or_default();
            let others = recorded.iter().filter(|(name, _)| group.name != self.group.name || *name != not);
            let owner = others.filter(|(_, theirs)| compare(theirs, device).is_ok()).map(|(name, _)| name).next();
            if let Some(name) = owner {
                return format!(" (that is the device of volume {}/{name})", group.name);
            }
        }
        String::new()
    }

    fn begin_anew(&self, found: GroupDevices, accepted: &Accepted) -> anyhow::Result<StartDecision> {
        // Before anything else: what was kept for the old content must not reach this one.
        terms::renew(&self.directory).with_context(|| format!("{} cannot be written to", self.directory.display()))?;
        record::clear(&self.directory)?;
        let (name, role) = (&self.group.name, accepted.begins_as);
        tracing::warn!("group {name}: it begins anew as {} on devices that were accepted", role.word());
        Ok(StartDecision::Good { found, begins_as: Some(role) })
    }

    fn refusal(&self, foreign_devices: &[ForeignDevice]) -> String {
        let text: Vec<_> =
            foreign_devices.iter().map(|foreign_device| format!("volume {}", foreign_device.text)).collect();
        let all: Vec<_> = foreign_devices.iter().collect();
        format!(
            "refused: {}. Nothing of the group is opened or sent, and the peer's copy stays as it is. What to do: {}",
            text.join("; "),
            self.advice(&all)
        )
    }

    fn advice(&self, foreign_devices: &[&ForeignDevice]) -> String {
        let names: Vec<_> = foreign_devices.iter().map(|foreign_device| foreign_device.volume.name.as_str()).collect();
        let command = format!("farshore accept-device {} {}", self.group.name, names.join(" "));
        let good = match self.recorded_role() {
            Some(Role::Primary) => format!(", or '{command} --content-is-good' if what is on it counts"),
            _ => String::new(),
        };
        format!(
            "if devices changed places, give each volume its own (names under /dev/disk/by-id stay) and restart the daemon; if one was \
             replaced, type '{command} --rebuild' to have this node rebuilt from its peer{good}, and restart the daemon"
        )
    }

    fn role_for(&self, content: DeviceContent) -> anyhow::Result<Role> {
        let role = self.recorded_role();
        let name = &self.group.name;
        match (content, role) {
            (DeviceContent::Rebuild, _) => Ok(Role::Secondary),
            (DeviceContent::Good, Some(Role::Primary)) => Ok(Role::Primary),
            (DeviceContent::Good, Some(Role::Secondary)) => bail!(
                "this node is the secondary of {name}, so no content of its own counts: type --rebuild. If the other node is gone for \
                 good, do that, restart the daemon, and then 'farshore promote {name} --force'"
            ),
            (DeviceContent::Good, None) => bail!(
                "what is recorded of {name} cannot be read, so nobody knows whether this node was its primary: only --rebuild is possible"
            ),
        }
    }

    /// The operator's word for a group that has no record here: its first start, or the first after all was lost.
    fn claim(&self, found: GroupDevices, content: DeviceContent) -> anyhow::Result<String> {
        let (name, node) = (&self.group.name, self.node);
        let begins_as = match content {
            DeviceContent::Rebuild => Role::Secondary,
            DeviceContent::Good if self.group.primary == *node => Role::Primary,
            DeviceContent::Good => bail!(
                "{node} is the secondary of {name} in the configuration, so its content does not count at the first start: name it as \
                 'primary' there, on both nodes, or type --rebuild"
            ),
        };
        let state = &self.config.node(node).expect("the node was looked up before").state;
        Strays::find(&state.join(GROUPS), self.config, node).hold_against(&self.directory, self.group)?;
        make_directory(state).with_context(|| format!("{} cannot be made", state.display()))?;
        for directory in [&state.join(GROUPS), &self.directory] {
            make_own_directory(directory).map_err(anyhow::Error::msg)?;
        }
        let text =
            found.iter().map(|(volume, device)| format!("accepted for volume {name}/{volume}: {}\n", words(device)));
        let text: String = text.collect();
        record::write_accepted(&self.directory, &Accepted { begins_as, update: None, devices: found })?;
        Ok(format!("{text}{}", self.next_steps(begins_as)))
    }

    fn next_steps(&self, begins_as: Role) -> String {
        let (name, node) = (&self.group.name, self.node);
        let peer = self.group.peer_of(node).map(ToString::to_string).unwrap_or_default();
        match begins_as {
            Role::Secondary => format!(
                "{name} begins anew on {node} as secondary when its daemon is restarted. Then, on {peer}: 'farshore promote {name} \
                 --force' unless it is primary already, and 'farshore sync {name} --full', which overwrites the devices of {node}"
            ),
            Role::Primary => format!(
                "{name} begins anew on {node} as primary when its daemon is restarted, and serves what is on its devices. Nothing is \
                 sent before you have looked at it and type 'farshore sync {name} --full' on {node}, which overwrites the copy of {peer}"
            ),
        }
    }
}

fn words(device: &DeviceId) -> String {
    let date = |seconds| jiff::Timestamp::from_second(seconds).map_or_else(|_| "?".to_owned(), |at| at.to_string());
    device.words(date)
}

fn same_devices(accepted: &GroupDevices, found: &GroupDevices) -> bool {
    accepted.len() == found.len()
        && accepted
            .iter()
            .zip(found)
            .all(|((name, theirs), (other, ours))| name == other && compare(theirs, ours).is_ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use host::disk::volume::{VolumeOptions, open_volume};

    use super::*;

    /// By hashes alone the copy that a program of before wrote passed for this node's own: only its devices spoke against it, which may be accepted.
    #[test]
    fn a_copy_of_the_peers_records_is_known_by_the_numbers_of_before_too() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = directory.path().display().to_string();
        let mut text = settings::example::EXAMPLE.replace("/var/lib/farshore-alpha", &format!("{state}/alpha"));
        for (volume, device) in [("data", "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"), ("log", "/dev/vg0/db-log")] {
            let path = directory.path().join(volume);
            fs::write(&path, [7; 4096]).expect("written");
            text = text.replace(&format!("alpha = \"{device}\""), &format!("alpha = \"{}\"", path.display()));
        }
        let config = Config::parse(Path::new("/farshore.toml"), &text).unwrap_or_else(|why| panic!("{why}"));
        let (alpha, group) = (&config.nodes[0].name, &config.groups[0]);
        let directory = GroupOnDisk::of(&config, alpha, group).directory;
        fs::create_dir_all(&directory).expect("made");
        let known = |node, peer| {
            let sb = Superblock { update: 2, tag: config.group_tag(group), node, peer, ..Superblock::default() };
            fs::write(directory.join("superblock"), engine::other_volumes::superblock_file(&sb)).expect("written");
            match look(&config, alpha, group).expect("it can be looked at") {
                StartDecision::ThePeers => "the engine says so".to_owned(),
                StartDecision::Refused(closed) => closed.why,
                StartDecision::Good { .. } | StartDecision::Unknown => "another".to_owned(),
            }
        };
        let [here, there] = [0, 1].map(|at| config.node_id(&config.nodes[at].name));
        assert_eq!(known(there, here), "the engine says so");
        let why = known(NodeId(1), NodeId(0));
        assert!(why.contains("the superblock was written by the other node"), "{why}");
        for (node, peer) in [(here, there), (NodeId(0), NodeId(1))] {
            let why = known(node, peer);
            assert!(why.contains("the record of its devices is missing"), "{why}");
        }
        // A node got another name with the same step, and another place: this one's own record looked like the other's.
        let found = GroupOnDisk::of(&config, alpha, group).found().expect("each can be looked at");
        record::keep_devices(&directory, &found).expect("written");
        assert_eq!(known(NodeId(1), NodeId(0)), "another");
        assert_eq!(known(there, here), "the engine says so");
    }

    /// Looked at and opened are two steps, and what is opened is what is written to.
    #[test]
    fn a_device_that_is_exchanged_while_it_is_opened_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory");
        let [path, other] = ["volume", "other"].map(|name| directory.path().join(name));
        [&path, &other].iter().for_each(|path| fs::write(path, [7; 4096]).expect("written"));
        let found = GroupDevices::from([("data".to_owned(), DeviceId::of(&path).expect("there"))]);
        let open = || open_volume(&path, VolumeOptions::default()).expect("opens");
        let exchanged = |name, file: &File| exchanged(&found, std::iter::once((name, file)));
        assert!(exchanged("data", &open()).is_empty());
        fs::rename(&other, &path).expect("in its place");
        let said = exchanged("data", &open()).concat();
        assert!(said.contains("volume data: what is at its path changed while it was opened (its inode was"), "{said}");
        let said = exchanged("log", &open()).concat();
        assert!(said.contains("it was not looked at"), "{said}");
    }
}
