//! Opens everything a node needs and describes it to the data thread. What is wrong with a group keeps that group down alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use engine::identity::Role;
use engine::{GroupConfig, GroupId, NodeConfig, VolumeConfig, limits};
use host::disk::blank::first_data;
use host::disk::meta::make_own_directory;
use host::disk::overlap::Footprint;
use host::disk::volume::{VolumeOptions, open_volume};
use host::disk::{EngineKind, File};
use host::driver::{
    AddedGroup, DriverSetup, GroupOpener, GroupSetup, LinkSetup, Listen, NodeProof, NoticeSender, OpenedGroup,
    RefusedGroup, Stores, VolumeSetup,
};
use host::link::LinkPeer;
use settings::{
    Config, ConfiguredGroup, ConfiguredNode, ConfiguredVolume, FileEngineChoice, GroupOverrides, LinkOverrides,
    ListenAddress, NodeName, Silent,
};
use units::size::show_exact;

use super::detached::DetachRecord;
use super::device_record::GroupDevices;
use super::devices::{self, ClosedGroup, StartDecision};
use super::difference::compare;
use super::disk_queue::QueuePlace;
use super::group_directory::{self, GROUPS};
use super::names::Strays;
use super::patience::Patience;
use super::reverses::Reverses;
use super::seals::{GroupSeals, Seals};
use super::{link_rate, other_volumes, state_files, terms};

/// What clients may have in flight besides the queues: eight connections with all they are granted, before a socket
/// waits for memory.
const FRONT_IN_FLIGHT_BYTES: u64 = 512 << 20;

/// All of a node's groups, open.
#[derive(Default)]
pub(super) struct OpenedGroups {
    groups: Vec<OpenGroup>,
    seals: Seals,
    taken: TakenDevices,
    /// Why groups are not taken up, by their names.
    pub refused: BTreeMap<String, String>,
}

struct OpenGroup {
    id: GroupId,
    config: ConfiguredGroup,
    begins_as: Role,
    /// `begins_as` is what the operator said of these devices.
    is_ordered: bool,
    volumes: Vec<OpenVolume>,
    refused: Option<RefusedGroup>,
    stores: Option<Stores>,
}

/// A volume of a group that is refused is not open, nor is one that is detached.
struct OpenVolume {
    file: Option<Arc<File>>,
    size_bytes: u64,
    changed_outside: bool,
    is_detached: bool,
}

/// What is the same for all groups of a start.
struct GroupOpening<'a> {
    config: &'a Config,
    node: &'a NodeName,
    state: &'a Path,
    strays: Strays,
    patience: Patience,
    taken: TakenDevices,
}

/// Opens volumes and state files of all groups of `node`. A group that cannot be opened is refused, and keeps no other down.
///
/// # Errors
/// A sentence: the configuration has more groups than can be counted.
pub(super) fn open(config: &Config, node: &NodeName, silent: &Silent) -> anyhow::Result<OpenedGroups> {
    let state = &config.node(node).expect("the node was looked up before").state;
    let strays = Strays::find(&state.join(GROUPS), config, node);
    let mut opening =
        GroupOpening { config, node, state, strays, patience: Patience::new(), taken: TakenDevices::default() };
    let mut opened = OpenedGroups::default();
    for group in config.groups_of(node) {
        let id = config.group_id(group);
        let detached = DetachRecord::of(config, node, group).read().unwrap_or_default();
        let untouched = group.volumes.iter().filter(|volume| detached.contains_key(volume.name.as_str()));
        let untouched: Vec<_> = untouched.map(|volume| volume.device(node)).collect();
        let unseen = silent.why_without(&group.name, &untouched);
        let unseen = unseen.map(|why| devices::close_unseen(config, node, group, &why));
        match unseen.map_or_else(|| opening.group(id, group), Err) {
            Ok((open, seals)) => {
                opened.groups.push(open);
                opened.seals.add(seals);
            }
            Err(closed) => {
                tracing::error!("group {}: {}", group.name, closed.why);
                opened.refused.insert(group.name.to_string(), closed.why.clone());
                opened.groups.push(opening.closed(id, group, *closed));
            }
        }
    }
    opened.groups.iter_mut().for_each(|group| opening.open_disk_queue(group));
    opened.groups.sort_by_key(|group| group.id);
    opened.taken = opening.taken;
    Ok(opened)
}

/// Opens the volumes and state files of one group again, as a start does; `taken` are the devices of the others.
///
/// # Errors
/// A sentence: why the group is not taken up.
pub(super) fn open_again(
    config: &Config,
    node: &NodeName,
    (id, group): (GroupId, &ConfiguredGroup),
    taken: TakenDevices,
) -> Result<(OpenedGroup, GroupSeals, TakenDevices), String> {
    let state = &config.node(node).expect("the node was looked up before").state;
    let strays = Strays::find(&state.join(GROUPS), config, node);
    let mut opening = GroupOpening { config, node, state, strays, patience: Patience::new(), taken };
    let (mut open, seals) = opening.group(id, group).map_err(|closed| closed.why)?;
    opening.open_disk_queue(&mut open);
    // The settings that hold are the data thread's.
    let engine = engine_group(config, node, &open, group.settings.for_engine());
    let OpenGroup { volumes, stores, .. } = open;
    let volumes = volumes.into_iter().map(|volume| volume.file).collect();
    let stores = stores.expect("a group that is taken up is open");
    Ok((OpenedGroup { volumes, stores, config: engine }, seals, opening.taken))
}

/// A group that comes while the daemon runs.
pub(super) struct OpenedAddition {
    pub added: AddedGroup,
    pub seals: Option<GroupSeals>,
    pub taken: TakenDevices,
    /// Why it is not taken up.
    pub refused: Option<String>,
}

/// Opens one more group, as a start does; `taken` are the devices of the others. A group that cannot be opened is refused as at a start.
pub(super) fn open_addition(
    config: &Config,
    node: &NodeName,
    group: &ConfiguredGroup,
    (settings, taken): (engine::Settings, TakenDevices),
) -> OpenedAddition {
    let state = &config.node(node).expect("the node was looked up before").state;
    let strays = Strays::find(&state.join(GROUPS), config, node);
    let mut opening = GroupOpening { config, node, state, strays, patience: Patience::new(), taken };
    let id = config.group_id(group);
    let (mut open, seals) = match opening.group(id, group) {
        Ok((open, seals)) => (open, Some(seals)),
        Err(closed) => (opening.closed(id, group, *closed), None),
    };
    opening.open_disk_queue(&mut open);
    let refused = open.refused.as_ref().map(|refused| refused.why.clone());
    let config = engine_group(config, node, &open, settings);
    OpenedAddition { added: AddedGroup { config, setup: group_setup(open) }, seals, taken: opening.taken, refused }
}

impl OpenedGroups {
    /// What whoever opens a group again has to know of those that are open.
    pub fn take_kept(&mut self) -> (Seals, TakenDevices) {
        (std::mem::take(&mut self.seals), std::mem::take(&mut self.taken))
    }
}

impl GroupOpening<'_> {
    /// Nothing of ours is made before every volume of the group is known to be good.
    fn group(&mut self, id: GroupId, group: &ConfiguredGroup) -> Result<(OpenGroup, GroupSeals), Box<ClosedGroup>> {
        let close = |problems: &[String]| devices::close(self.config, self.node, group, problems);
        let directory = self.state.join(GROUPS).join(group.name.as_str());
        other_volumes::finish(&directory).map_err(|error| close(&[format!("{error:#}")]))?;
        let detached = DetachRecord::of(self.config, self.node, group).read();
        let detached = detached.map_err(|error| close(&[format!("{error:#}")]))?;
        let look = devices::look(self.config, self.node, group).map_err(|error| close(&[format!("{error:#}")]))?;
        if let StartDecision::Refused(closed) = look {
            return Err(closed);
        }
        if matches!(look, StartDecision::Good { .. }) {
            let converted = other_volumes::convert(self.config, self.node, group);
            converted.map_err(|error| close(&[format!("{error:#}")]))?;
        }
        let (mut files, mut problems) = (Vec::new(), Vec::new());
        for volume in &group.volumes {
            let name = format!("{}/{}", group.name, volume.name);
            if detached.contains_key(volume.name.as_str()) {
                tracing::warn!("volume {name} is detached: the group goes on without it");
                files.push(None);
                continue;
            }
            match open_one(volume, self.node, &name, self.patience, &mut self.taken) {
                Ok(file) => files.push(Some(Arc::new(file))),
                Err(problem) => problems.push(format!("volume {name}: {problem}")),
            }
        }
        let (found, begins_as) = match look {
            StartDecision::Good { found, begins_as } => (Some(found), begins_as),
            StartDecision::ThePeers => (None, None),
            StartDecision::Unknown | StartDecision::Refused(_) => {
                if problems.is_empty() {
                    problems.push("a device came into being in this very moment; start again".to_owned());
                }
                return Err(close(&problems));
            }
        };
        if let Some(found) = found.as_ref().filter(|_| problems.is_empty()) {
            let names = group.volumes.iter().map(|volume| volume.name.as_str());
            let opened = names.zip(&files).filter_map(|(name, file)| Some((name, &**file.as_ref()?)));
            problems = devices::exchanged(found, opened);
        }
        if problems.is_empty() {
            problems.extend(self.is_unclaimed(group, &files, begins_as));
        }
        if !problems.is_empty() {
            return Err(close(&problems));
        }
        self.with_stores((id, group), (files, detached), (found, begins_as))
            .map_err(|error| close(&[format!("{error:#}")]))
    }

    /// A configured primary without any record, upon volumes that carry something: nobody has said whose content counts, and if this is a
    /// node whose state directory is not there, it may be neither primary nor up to date.
    fn is_unclaimed(
        &self,
        group: &ConfiguredGroup,
        files: &[Option<Arc<File>>],
        begins_as: Option<Role>,
    ) -> Option<String> {
        let directory = self.state.join(GROUPS).join(group.name.as_str());
        let tag = self.config.group_tag(group);
        let is_ordered = begins_as.is_some() || self.starts_as(group) != Role::Primary;
        // Both have a reason of their own.
        let is_renamed = self.strays.hold_against(&directory, group).is_err();
        let has_lost_superblock = !directory.join("superblock").exists() && directory.join("journal").exists();
        if is_ordered || is_renamed || has_lost_superblock || !group_directory::is_new(&directory, tag) {
            return None;
        }
        let opened = files.iter().zip(&group.volumes).filter_map(|(file, volume)| Some((file.as_ref()?, volume)));
        let found = opened.into_iter().find_map(|(file, volume)| match first_data(file) {
            Ok(found) => found.map(|at| format!("volume {}/{} carries data (at byte {at})", group.name, volume.name)),
            Err(error) => {
                Some(format!("whether volume {}/{} carries data is not known: {error}", group.name, volume.name))
            }
        })?;
        Some(devices::unclaimed(self.config, self.node, group, &found))
    }

    fn with_stores(
        &self,
        (id, group): (GroupId, &ConfiguredGroup),
        (files, detached): (Vec<Option<Arc<File>>>, GroupDevices),
        (found, begins_as): (Option<GroupDevices>, Option<Role>),
    ) -> anyhow::Result<(OpenGroup, GroupSeals)> {
        let directory = group_directory(self.state, group, &self.strays)?;
        let tag = self.config.group_tag(group);
        let recorded = group_directory::recorded(&directory, tag);
        let size = |(file, volume): (&Option<Arc<File>>, &ConfiguredVolume)| match file {
            Some(file) => file.size_bytes(),
            None => detached.get(volume.name.as_str()).map_or(limits::SECTOR_BYTES, |device| device.size_bytes),
        };
        let sizes: Vec<u64> = files.iter().zip(&group.volumes).map(size).collect();
        let stores = state_files::open(&directory, group, tag, sizes.iter().copied(), self.patience)?;
        if recorded.as_ref().is_some_and(|recorded| !recorded.clean) {
            files.iter().flatten().for_each(|file| file.forget_cache());
            stores.forget_caches();
        }
        if let Some(found) = found {
            devices::keep(&directory, &found)?;
        }
        let named = group.volumes.iter().zip(&files);
        let named: Vec<_> = named.filter_map(|(volume, file)| Some((volume.name.to_string(), file.clone()?))).collect();
        let seals = GroupSeals::load(group.name.as_str(), &directory, tag, named);
        let mut compared = seals.compare().into_iter();
        // A device that has come was written by nobody of us.
        let came = DetachRecord::of(self.config, self.node, group).known_without_device();
        let is_changed = |(file, came): (&Option<Arc<File>>, bool)| {
            file.is_some() && compared.next().is_some_and(|changed| changed) && !came
        };
        let changed: Vec<bool> = files.iter().zip(came).map(is_changed).collect();
        // Whoever attached before counts on what a failed flush lost: a flush of his would answer for it (rule 12).
        let has_lost = recorded.as_ref().is_some_and(engine::superblock::Superblock::has_lost_caches);
        if has_lost || changed.iter().any(|changed| *changed) {
            // What was kept for the content of before must not reach this one.
            terms::renew(&directory).with_context(|| format!("{} cannot be written to", directory.display()))?;
        }
        let open = |((file, size_bytes), changed_outside): ((Option<Arc<File>>, u64), bool)| OpenVolume {
            size_bytes,
            is_detached: file.is_none(),
            file,
            changed_outside,
        };
        let volumes = files.into_iter().zip(sizes).zip(changed).map(open).collect();
        let (is_ordered, begins_as) = (begins_as.is_some(), begins_as.unwrap_or_else(|| self.starts_as(group)));
        let open = OpenGroup {
            id,
            config: group.clone(),
            begins_as,
            is_ordered,
            volumes,
            refused: None,
            stores: Some(stores),
        };
        Ok((open, seals))
    }

    fn closed(
        &self,
        id: GroupId,
        group: &ConfiguredGroup,
        ClosedGroup { why, sizes, recorded }: ClosedGroup,
    ) -> OpenGroup {
        let closed = |size_bytes| OpenVolume { file: None, size_bytes, changed_outside: false, is_detached: false };
        let (volumes, refused) = (sizes.into_iter().map(closed).collect(), Some(RefusedGroup { why, recorded }));
        let begins_as = self.starts_as(group);
        OpenGroup { id, config: group.clone(), begins_as, is_ordered: false, volumes, refused, stores: None }
    }

    /// Once all groups that start together have what they cannot do without.
    fn open_disk_queue(&self, open: &mut OpenGroup) {
        if let Some(stores) = &mut open.stores {
            let directory = self.state.join(GROUPS).join(open.config.name.as_str());
            let tag = self.config.group_tag(&open.config);
            // What cannot be read now may say so.
            let is_needed = match group_directory::recorded(&directory, tag) {
                Some(recorded) => recorded.queue_redo,
                None => !group_directory::is_new(&directory, tag),
            };
            let here = self.config.node(self.node).expect("the node was looked up before");
            stores.queue = QueuePlace::of(here).open(&open.config, is_needed, self.patience);
        }
    }

    fn starts_as(&self, group: &ConfiguredGroup) -> Role {
        if group.primary == *self.node { Role::Primary } else { Role::Secondary }
    }
}

/// The bytes that volumes lie in, and whose they are.
#[derive(Clone, Default)]
pub(super) struct TakenDevices(Vec<(Footprint, String)>);

impl TakenDevices {
    /// The devices of this group are let go of.
    pub fn leave(&mut self, group: &str) {
        self.0.retain(|(_, volume)| !is_of(group, volume));
    }

    /// Those that it has found again.
    pub fn join(&mut self, group: &str, found: TakenDevices) {
        self.0.extend(found.0.into_iter().filter(|(_, volume)| is_of(group, volume)));
    }

    fn hold_against(&self, path: &Path) -> Result<Footprint, String> {
        let footprint = Footprint::of(path).map_err(|error| error.to_string())?;
        let Some((theirs, other)) = self.0.iter().find(|(theirs, _)| theirs.overlaps(&footprint)) else {
            return Ok(footprint);
        };
        let what = theirs.relation(&footprint);
        Err(format!("{} {what} the device of volume {other}; two volumes cannot share a device", path.display()))
    }
}

fn is_of(group: &str, volume: &str) -> bool {
    volume.split_once('/').is_some_and(|(of, _)| of == group)
}

fn open_one(
    volume: &ConfiguredVolume,
    node: &NodeName,
    name: &str,
    patience: Patience,
    taken: &mut TakenDevices,
) -> Result<File, String> {
    let footprint = taken.hold_against(volume.device(node))?;
    let file = patience
        .free(|| open_volume(volume.device(node), VolumeOptions { buffered: !volume.direct }))
        .map_err(|error| error.to_string())?;
    let path = file.path().display().to_string();
    if file.identity() != footprint.identity() {
        return Err(format!("{path} was replaced in this very moment; start again"));
    }
    taken.0.push((footprint, name.to_owned()));
    if file.size_bytes() > limits::VOLUME_BYTES_MAX {
        let (size, most) = (show_exact(file.size_bytes()), show_exact(limits::VOLUME_BYTES_MAX));
        return Err(format!("{path} has {size}, and a volume has at most {most}; use a smaller device"));
    }
    if let Some(latency) = volume.model_latency(node) {
        tracing::warn!(
            "volume {name}: writes and flushes take at least {latency:?}, as the configuration models a slow disk"
        );
        file.model_latency(latency);
    }
    Ok(file)
}

fn group_directory(state: &Path, group: &ConfiguredGroup, strays: &Strays) -> anyhow::Result<PathBuf> {
    let groups = state.join(GROUPS);
    let directory = groups.join(group.name.as_str());
    strays.hold_against(&directory, group)?;
    // Each name durable: a node that lost them would take itself for a new one.
    let made = make_own_directory(&groups).and_then(|()| make_own_directory(&directory));
    made.map_err(anyhow::Error::msg)?;
    Ok(directory)
}

/// What the data thread is given; `opener` opens its groups again.
pub(super) fn setup(
    config: &Config,
    node: &NodeName,
    (overrides, link_overrides): (&GroupOverrides, &LinkOverrides),
    proof: NodeProof,
    (OpenedGroups { groups, .. }, opener): (OpenedGroups, Arc<dyn GroupOpener>),
    notices: NoticeSender,
) -> DriverSetup {
    let here = config.node(node).expect("the node was looked up before");
    let reverses = Reverses::read(&here.state, config.groups_of(node).map(|group| group.name.as_str()));
    let settings = |group: &OpenGroup| {
        let settings = overrides.of(&group.config.name).effective(&group.config.settings).for_engine();
        reverses.settings_now(group.config.name.as_str(), settings)
    };
    let memory_bytes = config.memory_bytes(here);
    let mut engine_groups = Vec::new();
    let mut setups = Vec::new();
    for group in groups {
        engine_groups.push(engine_group(config, node, &group, settings(&group)));
        setups.push(group_setup(group));
    }
    let link = link_setup(config, here, link_overrides, proof);
    let largest_frames = link.peers.len() as u64 * limits::PART_BYTES_MAX;
    DriverSetup {
        node: NodeConfig {
            node: config.node_id(node),
            groups: engine_groups,
            link_timeout: config.link.timeout,
            memory_bytes,
            syncs_at_once: limits::SYNCS_AT_ONCE,
        },
        groups: setups,
        opener,
        link,
        nbd: here.nbd.iter().map(|listen_at| listen(config, listen_at)).collect(),
        file_engine: match here.engine {
            FileEngineChoice::Auto => EngineKind::Auto,
            FileEngineChoice::Uring => EngineKind::Uring,
            FileEngineChoice::Pool => EngineKind::Pool,
        },
        // Doubled, because a buffer may be up to a half larger than what lies in it.
        front_bytes: bytes(memory_bytes.saturating_mul(2).saturating_add(FRONT_IN_FLIGHT_BYTES)),
        // The windows keep it lower, also those of groups that come later.
        arriving_bytes: bytes(memory_bytes.saturating_mul(2).saturating_add(largest_frames)),
        served: reverses.served(config, node),
        notices,
    }
}

fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn group_setup(group: OpenGroup) -> GroupSetup {
    let named = group.config.volumes.iter().zip(group.volumes);
    GroupSetup {
        name: group.config.name.to_string(),
        volumes: named.map(|(volume, open)| VolumeSetup { name: volume.name.to_string(), device: open.file }).collect(),
        refused: group.refused,
        stores: group.stores,
    }
}

fn engine_group(config: &Config, node: &NodeName, group: &OpenGroup, settings: engine::Settings) -> GroupConfig {
    let peer = group.config.peer_of(node).expect("a node opens its own groups");
    let volume = |open: &OpenVolume| VolumeConfig {
        size_bytes: open.size_bytes,
        block_bytes: open.file.as_ref().map_or(limits::SECTOR_BYTES, |file| u64::from(file.physical_block())),
        changed_outside: open.changed_outside,
        is_detached: open.is_detached,
    };
    let queue = group.stores.as_ref().and_then(|stores| stores.queue.as_ref());
    GroupConfig {
        id: group.id,
        tag: config.group_tag(&group.config),
        peer: config.node_id(peer),
        starts_as: group.begins_as,
        meets_peer_first: !group.is_ordered,
        volumes: group.volumes.iter().map(volume).collect(),
        settings,
        journal_bytes: state_files::journal_bytes(&group.config),
        window_bytes: group.config.layout.window_bytes,
        activity: state_files::activity(&group.config),
        history_bytes: state_files::history_bytes(&group.config),
        view_bytes: state_files::view_bytes(&group.config),
        queue_durable: group.config.layout.queue_durable,
        queue_disk_bytes: queue.map_or(0, |queue| queue.size_bytes()),
        queue_file: queue.map_or(0, |queue| queue.mark()),
    }
}

fn link_setup(config: &Config, here: &ConfiguredNode, link_overrides: &LinkOverrides, proof: NodeProof) -> LinkSetup {
    let peer = |other: &ConfiguredNode| LinkPeer {
        id: config.node_id(&other.name),
        name: other.name.to_string(),
        address: other.address,
    };
    let peers: Vec<LinkPeer> = config.peers_of(&here.name).map(peer).collect();
    let settings = link_overrides.effective(&config.link.settings);
    LinkSetup {
        cluster: config.top.cluster.to_string(),
        node: here.name.to_string(),
        proof,
        definitions: config.definitions(),
        compare,
        peers,
        listen: vec![here.address],
        socket: settings.socket_options(config.link.timeout),
        flow: settings.flow(link_rate::week_minute()),
        control: None,
    }
}

fn listen(config: &Config, listen_at: &ListenAddress) -> Listen {
    match listen_at {
        ListenAddress::Unix(path) => Listen::Unix(path.clone()),
        ListenAddress::Tcp(address) => Listen::Tcp { address: *address, needs_tls: config.needs_tls(*address) },
    }
}
