//! The groups of this node and their volumes: where their bytes are, and which of them front ends may see.

use std::cell::Cell;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::status::GroupStatus;
use engine::{Event, GroupConfig, GroupId, Mono, NodeConfig, NodeId, Request, Store, VolumeId};

use super::clock::NodeClock;
use super::disk_queue_health::DiskQueueHealth;
use super::event_log::{self, LastDecision};
use super::request_recorder::{RecordedRequests, RequestRecorder};
use super::setup::{GroupSetup, LetGo, OpenedGroup, RefusedGroup, Stores, VolumeSetup};
use super::snapshot::{GroupFigures, QueueMeter, StoredBytes, SyncMeter};
use super::volume::LocalVolume;
use crate::disk::{DiskError, File, FileEngine};
use crate::frontend::ClientInfo;

/// Whether somebody still reads from a device that is let go of is looked at so often.
const DEVICE_HELD_AGAIN: Duration = Duration::from_millis(20);

struct LocalGroup {
    id: GroupId,
    peer: NodeId,
    name: String,
    /// Its volumes: positions in [`LocalGroups::volumes`].
    volumes: Range<usize>,
    /// `None`: it is refused.
    stores: Option<Stores>,
    /// What is saved of it while a fork is resolved; made when that begins.
    delta: Option<Arc<File>>,
    /// Its exports are open.
    is_open: bool,
    sync: Option<SyncMeter>,
    queue: QueueMeter,
    stored: Cell<StoredBytes>,
    disk_queue: DiskQueueHealth,
    last_decision: LastDecision,
    recorder: RequestRecorder,
}

pub(super) struct LocalGroups {
    /// In the order of their ids.
    groups: Vec<LocalGroup>,
    /// All groups' volumes; a position here is the volume's handle.
    volumes: Vec<LocalVolume>,
    /// Positions in `volumes`, in the order of their exports' names.
    by_name: Vec<usize>,
    /// How many volumes have an open export.
    open_volumes: usize,
}

impl LocalGroups {
    /// Also returns the groups that are refused.
    pub fn new(node: &NodeConfig, setups: Vec<GroupSetup>) -> (LocalGroups, Vec<(GroupId, RefusedGroup)>) {
        assert_eq!(node.groups.len(), setups.len(), "every group has its stores");
        assert!(node.groups.is_sorted_by_key(|group| group.id), "groups come in the order of their ids");
        let mut refused = Vec::new();
        let mut local = LocalGroups { groups: Vec::new(), volumes: Vec::new(), by_name: Vec::new(), open_volumes: 0 };
        for (config, setup) in node.groups.iter().zip(setups) {
            refused.extend(local.take(config, setup).map(|refused| (config.id, refused)));
        }
        local.sort();
        (local, refused)
    }

    /// One more group; why it is refused, if it is.
    pub fn add(&mut self, config: &GroupConfig, setup: GroupSetup) -> Option<RefusedGroup> {
        let refused = self.take(config, setup);
        self.groups.sort_by_key(|group| group.id);
        self.sort();
        refused
    }

    fn take(&mut self, config: &GroupConfig, setup: GroupSetup) -> Option<RefusedGroup> {
        assert_eq!(config.volumes.len(), setup.volumes.len(), "every volume has its device");
        assert_eq!(setup.is_open(), setup.refused.is_none(), "what is not refused is open");
        let first = self.volumes.len();
        for (number, VolumeSetup { name, device }) in setup.volumes.into_iter().enumerate() {
            let id = VolumeId(u16::try_from(number).expect("a group has at most 1 024 volumes"));
            self.volumes.push(LocalVolume::new(config.id, id, format!("{}/{name}", setup.name), device));
        }
        self.groups.push(LocalGroup {
            id: config.id,
            peer: config.peer,
            name: setup.name,
            volumes: first..self.volumes.len(),
            stores: setup.stores,
            delta: None,
            is_open: false,
            sync: None,
            queue: QueueMeter::default(),
            stored: Cell::default(),
            disk_queue: DiskQueueHealth::default(),
            last_decision: LastDecision::default(),
            recorder: RequestRecorder::default(),
        });
        setup.refused
    }

    fn sort(&mut self) {
        let held = self.groups.iter().flat_map(|group| group.volumes.clone());
        self.by_name = held.collect();
        self.by_name.sort_by(|a, b| self.volumes[*a].export().cmp(self.volumes[*b].export()));
    }

    /// A group leaves, its exports closed. Its volumes keep their positions, which clients that are on their way out still name.
    pub fn remove(&mut self, id: GroupId) -> (String, LetGo) {
        let let_go = self.close(id);
        let name = self.groups.remove(self.position(id)).name;
        self.sort();
        (name, let_go)
    }

    /// Leaves those clients that are attached to the group.
    pub fn retain_clients_of(&self, id: GroupId, clients: &mut Vec<ClientInfo>) {
        let here = self.groups.iter().filter(|group| group.id == id);
        let volumes: Vec<_> = here.flat_map(|group| &self.volumes[group.volumes.clone()]).collect();
        clients.retain(|client| volumes.iter().any(|volume| volume.export() == client.export));
    }

    fn position(&self, id: GroupId) -> usize {
        self.groups.binary_search_by_key(&id, |group| group.id).expect("the engine names groups it was given")
    }

    fn group(&self, id: GroupId) -> &LocalGroup {
        &self.groups[self.position(id)]
    }

    fn group_mut(&mut self, id: GroupId) -> &mut LocalGroup {
        let at = self.position(id);
        &mut self.groups[at]
    }

    pub fn peer(&self, id: GroupId) -> NodeId {
        self.group(id).peer
    }

    /// Those of these names that are here.
    pub fn ids_of(&self, names: &[String]) -> Vec<GroupId> {
        let is_named = |group: &&LocalGroup| names.contains(&group.name);
        self.groups.iter().filter(is_named).map(|group| group.id).collect()
    }

    /// The peer and the name of a group that is here.
    pub fn named(&self, id: GroupId) -> Option<(NodeId, &str)> {
        let at = self.groups.binary_search_by_key(&id, |group| group.id).ok()?;
        Some((self.groups[at].peer, &self.groups[at].name))
    }

    pub fn volume(&self, at: usize) -> &LocalVolume {
        &self.volumes[at]
    }

    pub fn volume_mut(&mut self, at: usize) -> &mut LocalVolume {
        &mut self.volumes[at]
    }

    /// Of a group that was taken up.
    pub fn file(&self, store: Store) -> &Arc<File> {
        let stores = |group| {
            let stores = self.group(group).stores.as_ref();
            stores.expect("a group that is refused asks for nothing of its stores")
        };
        match store {
            Store::Volume(group, volume) => self.volumes[self.volume_position(group, volume)].device(),
            Store::Journal(group) => &stores(group).journal,
            Store::Superblock(group) => &stores(group).superblock,
            Store::Bitmap(group) => &stores(group).bitmap,
            Store::Activity(group) => &stores(group).activity,
            Store::Marks(group) => &stores(group).marks,
            Store::Undo(group) => &stores(group).undo,
            Store::History(group) => {
                let history = stores(group).history.as_ref();
                history.expect("a group without a store for views keeps nothing there")
            }
            Store::Queue(group) => {
                let queue = stores(group).queue.as_ref();
                queue.expect("a group without a disk queue spills nothing")
            }
            Store::Delta(group) => {
                let delta = self.group(group).delta.as_ref();
                delta.expect("a delta is made before anything is written to it")
            }
        }
    }

    /// The files of a group are let go of: nobody asks anything of them. What is returned frees them, and may wait for a disk.
    pub fn close(&mut self, id: GroupId) -> LetGo {
        let group = self.group_mut(id);
        let (stores, volumes) = (group.stores.take(), group.volumes.clone());
        group.delta = None;
        let devices: Vec<_> = self.volumes[volumes].iter_mut().filter_map(LocalVolume::close).collect();
        Box::new(move || {
            let held: Vec<_> = devices.iter().map(Arc::downgrade).collect();
            drop((stores, devices));
            // A client's read asks the engine for nothing, and keeps its device, with the lock, until the disk has answered.
            while held.iter().any(|device| device.strong_count() > 0) {
                std::thread::sleep(DEVICE_HELD_AGAIN);
            }
        })
    }

    /// They are open again.
    pub fn reopened(&mut self, id: GroupId, opened: OpenedGroup) -> GroupConfig {
        let OpenedGroup { volumes: devices, stores, config } = opened;
        let group = self.group_mut(id);
        group.stores = Some(stores);
        group.disk_queue = DiskQueueHealth::default();
        let positions = group.volumes.clone();
        assert_eq!(positions.len(), devices.len(), "the group has the volumes that it had");
        self.volumes[positions].iter_mut().zip(devices).for_each(|(volume, device)| volume.reopened(device));
        config
    }

    /// How the delta of a group is made anew: beside which of its files, and where.
    pub fn delta_place(&self, id: GroupId) -> (&Arc<File>, Arc<Path>) {
        let stores = self.group(id).stores.as_ref().expect("a group that is refused asks for nothing of its stores");
        (&stores.superblock, stores.delta.clone())
    }

    pub fn delta_made(&mut self, id: GroupId, file: File) {
        self.group_mut(id).delta = Some(Arc::new(file));
    }

    fn volume_position(&self, group: GroupId, volume: VolumeId) -> usize {
        self.group(group).volumes.start + usize::from(volume.0)
    }

    pub fn store_failed(&mut self, store: Store, error: &DiskError) {
        match store {
            Store::Volume(group, volume) => {
                let at = self.volume_position(group, volume);
                self.volumes[at].failed(error);
            }
            Store::Queue(group) => {
                let group = self.group_mut(group);
                group.disk_queue.failed(&group.name, error);
            }
            _ => tracing::error!("{error}"),
        }
    }

    /// The disk queue took what it was given: the next failure is news again.
    pub fn spilled(&mut self, id: GroupId) {
        self.group_mut(id).disk_queue.written();
    }

    // --- Exports ---

    pub fn is_open(&self, id: GroupId) -> bool {
        self.groups.binary_search_by_key(&id, |group| group.id).is_ok_and(|at| self.groups[at].is_open)
    }

    pub fn open_volumes(&self) -> usize {
        self.open_volumes
    }

    /// The volume at this position has an export, if its group's are open: a detached one has none.
    pub fn is_exported(&self, at: usize) -> bool {
        self.volumes[at].has_device() && self.is_open(self.volumes[at].group())
    }

    /// Positions of all volumes, in the order of their exports' names.
    pub fn by_name(&self) -> impl Iterator<Item = usize> {
        self.by_name.iter().copied()
    }

    /// The volume of this export's name, open or not.
    pub fn named_volume(&self, name: &str) -> Option<usize> {
        let found = self.by_name.binary_search_by(|at| self.volumes[*at].export().cmp(name));
        found.ok().map(|found| self.by_name[found])
    }

    /// The names of a group's exports, open or not.
    pub fn exports_of(&self, id: GroupId) -> impl Iterator<Item = String> {
        let here = self.groups.iter().filter(move |group| group.id == id).flat_map(|group| group.volumes.clone());
        here.map(|at| self.volumes[at].export().to_owned())
    }

    /// Positions of the volumes that are open, in the order of their exports' names.
    pub fn open_exports(&self) -> impl Iterator<Item = usize> {
        self.by_name.iter().copied().filter(|at| self.is_exported(*at))
    }

    /// The group's exports appear or disappear; returns the volumes whose clients have to leave.
    pub fn serve(&mut self, id: GroupId, open: bool) -> Range<usize> {
        let group = self.group_mut(id);
        if std::mem::replace(&mut group.is_open, open) == open {
            return 0..0;
        }
        let volumes = group.volumes.clone();
        let count = self.volumes[volumes.clone()].iter().filter(|volume| volume.has_device()).count();
        let name = &self.group(id).name;
        if open {
            tracing::info!("group {name}: its {count} volume(s) are served");
            self.open_volumes += count;
            return 0..0;
        }
        tracing::info!("group {name}: its volumes are no longer served");
        self.open_volumes -= count;
        volumes
    }

    /// Whether the volume at this position is open. One of a group that left, and perhaps came again elsewhere, is not.
    pub fn is_served(&self, at: usize) -> bool {
        let found = self.groups.binary_search_by_key(&self.volumes[at].group(), |group| group.id);
        let has_device = self.volumes[at].has_device();
        has_device && found.is_ok_and(|found| self.groups[found].is_open && self.groups[found].volumes.contains(&at))
    }

    /// Whether the volume at this position is, or was, of the group.
    pub fn is_of(&self, at: usize, id: GroupId) -> bool {
        self.volumes[at].group() == id
    }

    // --- For people ---

    /// So many bytes are written to a file of a group's own.
    pub fn note_stored(&self, store: Store, bytes: u64) {
        let (group, which): (_, fn(&mut StoredBytes) -> &mut u64) = match store {
            Store::Bitmap(group) | Store::Activity(group) => (group, |stored| &mut stored.bitmap),
            Store::Journal(group) => (group, |stored| &mut stored.journal),
            Store::Undo(group) => (group, |stored| &mut stored.undo),
            Store::Queue(group) => (group, |stored| &mut stored.queue),
            Store::Volume(..) | Store::Superblock(_) | Store::Marks(_) | Store::Delta(_) | Store::History(_) => return,
        };
        let cell = &self.group(group).stored;
        let mut stored = cell.get();
        *which(&mut stored) += bytes;
        cell.set(stored);
    }

    /// Logs what happened, if that is news; then what the log says, without the group's name.
    pub fn log_event(&mut self, id: GroupId, event: &Event, now: Mono) -> Option<String> {
        let at = self.position(id);
        let group = &mut self.groups[at];
        match event {
            Event::SyncBegan { full, .. } => group.sync = Some(SyncMeter::new(*full, now)),
            Event::SyncEnded { .. } => group.sync = None,
            _ => {}
        }
        if !group.last_decision.is_news(event) {
            return None;
        }
        let line = event_log::line(&group.name, &self.volumes[group.volumes.clone()], event)?;
        line.log(&group.name);
        Some(line.text)
    }

    pub fn snapshot(&mut self, status: &GroupStatus, now: Mono, disks: &FileEngine) -> GroupFigures {
        let at = self.position(status.id);
        let group = &mut self.groups[at];
        let done_bytes = status.sync.map(|sync| sync.done_bytes);
        let sync = done_bytes.and_then(|done| group.sync.as_mut().map(|meter| meter.pace(done, now)));
        let stores = group.stores.as_ref();
        let volumes = self.volumes[group.volumes.clone()].iter().map(|volume| volume.snapshot(disks, stores)).collect();
        let queue = group.queue.pace(&status.queue, now);
        let disk_queue = stores.and_then(|stores| stores.queue.as_ref());
        let disk_queue_bytes = disk_queue.map_or(0, |file| file.size_bytes());
        GroupFigures { volumes, sync, queue, disk_queue_bytes, stored: group.stored.get() }
    }

    /// Records a request if somebody records this group.
    pub fn record(&mut self, id: GroupId, clock: NodeClock, volume: VolumeId, request: &Request) {
        self.group_mut(id).recorder.record(clock, volume.0, request);
    }

    /// `None`: the group has left.
    pub fn take_recorded(&mut self, id: GroupId, now: Mono) -> Option<RecordedRequests> {
        let at = self.groups.binary_search_by_key(&id, |group| group.id).ok()?;
        Some(self.groups[at].recorder.take(now))
    }
}
