//! One node of the world: an engine, its disks, and what the world knows of it.

use std::collections::{BTreeMap, BTreeSet};

use engine::coverage::CoveragePoint;
use engine::identity::Role;
use engine::superblock::Superblock;
use engine::{GroupId, Incarnation, IoDone, IoError, Mono, Node, Now, Store, VolumeId, Wall, status};

use super::disk::SimDisk;
use super::storage::{DiskJob, NodeStorage, superblock_in};
use super::tag_of;
use super::volumes::{DeviceId, NamedVolume};
use crate::options::SimOptions;
use crate::rng::Rng;

/// A clean stop that was asked for.
#[derive(Clone, Debug, Default)]
pub struct CleanStop {
    /// For so long the node is down.
    pub down_ns: u64,
    /// What is written meanwhile.
    pub outside: Vec<OutsideWrite>,
    /// The file with the volumes of groups was changed, and is taken up.
    pub takes_up_volumes: bool,
}

/// A range of a volume that somebody else writes: its first sector, and how many.
#[derive(Clone, Copy, Debug)]
pub struct OutsideWrite {
    pub group: GroupId,
    pub volume: VolumeId,
    pub first: u64,
    pub sectors: u64,
}

#[derive(Default)]
pub struct SimNode {
    engine: Option<Box<Node>>,
    /// Completions of an older boot are nobody's.
    boot: u64,
    /// The machine's boot: a new one after every power loss.
    machine_boot: u64,
    pub storage: NodeStorage,
    /// Groups that have started since it booted, those that serve, and those that have failed.
    ready: BTreeSet<GroupId>,
    serving: BTreeSet<GroupId>,
    /// Groups whose export a switchover has closed, in which incarnation, and which may open it again.
    closed_over: BTreeMap<GroupId, Incarnation>,
    failed: BTreeSet<GroupId>,
    /// Groups that were reset in this boot and have not opened since: what a failed flush had lost before, and whether the peer served, in a
    /// later generation.
    lost_at_reset: BTreeSet<GroupId>,
    reset_beside: BTreeSet<GroupId>,
    wake_at: Option<u64>,
    /// Its clocks: monotonic since boot, wall skewed.
    booted_at: u64,
    wall_skew_ns: i64,
    /// In which boot the exports of a group opened last.
    opened: BTreeMap<GroupId, u64>,
    /// Groups whose process was killed since then, when their machine had its power all the time.
    killed: BTreeSet<GroupId>,
    /// Of these, when the power failed first after that: the run on record, if that knew of nothing to be verified.
    flushed: BTreeMap<GroupId, Incarnation>,
    /// It goes by intent: its last words still leave.
    stopping: bool,
    /// The clean stop that is under way, where more is to come of it than a restart.
    stop: Option<CleanStop>,
    /// Groups whose state directory was emptied: the operator has them start as secondaries.
    wiped: BTreeSet<GroupId>,
    /// Volumes that somebody wrote while it was stopped; the host says so until a start is on record.
    changed: BTreeSet<(GroupId, VolumeId)>,
    /// Groups whose copy here was nobody's image any more after that.
    lost_images: BTreeSet<GroupId>,
    /// The volumes of groups that have others than they began with.
    volumes: BTreeMap<GroupId, Vec<NamedVolume>>,
    /// Devices of volumes that left, and the role that this node had in their groups then.
    left: BTreeMap<DeviceId, Role>,
    /// What takes its place before a group is opened: the step has been taken.
    takes_place: Vec<ChangedRecord>,
}

/// A record of a group that gets other volumes, as it is to be.
#[derive(Clone, Debug)]
pub enum ChangedRecord {
    /// Blocks of the journal, each behind its offset.
    Journal(GroupId, Vec<(u64, Vec<u8>)>),
    Bitmap(GroupId, Vec<u8>),
    Superblock(GroupId, Vec<u8>),
    /// Last, of all groups at once: a device may go from one to another.
    Volumes(Vec<(GroupId, Vec<NamedVolume>)>),
}

impl SimNode {
    pub fn new(id: usize, options: &SimOptions, rng: &mut Rng) -> SimNode {
        SimNode {
            storage: NodeStorage::new(id, options, rng),
            machine_boot: 1,
            wall_skew_ns: rng.below(4_000_000_000) as i64 - 2_000_000_000,
            ..SimNode::default()
        }
    }

    // ---- its process -------------------------------------------------------------------------------------------------

    pub fn up(&self) -> bool {
        self.engine.is_some()
    }

    pub fn engine(&self) -> Option<&Node> {
        self.engine.as_deref()
    }

    pub fn engine_mut(&mut self) -> Option<&mut Node> {
        self.engine.as_deref_mut()
    }

    pub fn glance(&self, group: GroupId) -> Option<status::GroupGlance> {
        self.engine.as_ref()?.glance(group)
    }

    pub fn status_of(&self, group: GroupId) -> Option<status::GroupStatus> {
        self.engine.as_ref()?.status_of(group)
    }

    /// How often its engine passed a coverage point since it booted.
    pub fn coverage(&self, point: CoveragePoint) -> u64 {
        self.engine.as_ref().map_or(0, |engine| engine.coverage().count(point))
    }

    /// What its engine reports of a group, for a failure report.
    pub fn explain(&self, group: GroupId) -> Option<String> {
        self.engine.as_ref().map(|engine| engine.explain(group))
    }

    pub fn boot(&self) -> u64 {
        self.boot
    }

    pub fn machine_boot(&self) -> u64 {
        self.machine_boot
    }

    /// The engine starts; its first input is still to come.
    pub fn boots(&mut self, engine: Box<Node>, now: u64) {
        self.engine = Some(engine);
        self.boot += 1;
        (self.stopping, self.booted_at) = (false, now);
        self.serving.clear();
        self.closed_over.clear();
        self.ready.clear();
        self.failed.clear();
        self.lost_at_reset.clear();
        self.reset_beside.clear();
    }

    /// The process ends at once; `power`: the machine with it. Its engine as it was.
    pub fn dies(&mut self, power: bool, rng: &mut Rng) -> Option<Box<Node>> {
        self.boot += 1;
        (self.wake_at, self.stop) = (None, None);
        self.serving.clear();
        self.closed_over.clear();
        self.ready.clear();
        if !power {
            let served = self.opened.iter().filter(|(_, boot)| **boot == self.machine_boot);
            self.killed.extend(served.map(|(group, _)| *group));
        }
        self.machine_boot += u64::from(power);
        if power {
            self.storage.lose_power(rng)
        } else {
            self.storage.kill(rng)
        }
        self.engine.take()
    }

    /// The restart that is due is nobody's.
    pub fn stays_down(&mut self) {
        self.boot += 1;
    }

    pub fn clocks(&self, now: u64) -> Now {
        let wall = (1_700_000_000_000_000_000i64 + now as i64 + self.wall_skew_ns) as u64;
        Now { mono: Mono(now - self.booted_at + 1), wall: Wall(wall) }
    }

    /// Its wall clock is wrong by so much more.
    pub fn skews(&mut self, by_ns: i64) {
        self.wall_skew_ns += by_ns;
    }

    pub fn up_ns(&self, now: u64) -> u64 {
        now - self.booted_at
    }

    /// It wants to be woken earlier than it will be: after so long.
    pub fn wakes_after(&mut self, now: u64) -> Option<u64> {
        let at = self.engine.as_ref()?.next_timeout()?;
        let at = (at.0 + self.booted_at).saturating_sub(1).max(now + 1);
        if self.wake_at.is_some_and(|wake| wake <= at) {
            return None;
        }
        self.wake_at = Some(at);
        Some(at - now)
    }

    pub fn is_woken(&mut self) {
        self.wake_at = None;
    }

    // ---- a clean stop ------------------------------------------------------------------------------------------------

    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// What is to come of the clean stop that follows.
    pub fn plans_stop(&mut self, stop: CleanStop) {
        self.stop = Some(stop);
    }

    /// It has stopped.
    pub fn stopped(&mut self) -> CleanStop {
        self.stopping = true;
        self.stop.take().unwrap_or(CleanStop { down_ns: 300_000_000, ..CleanStop::default() })
    }

    // ---- its groups --------------------------------------------------------------------------------------------------

    pub fn is_ready(&self, group: GroupId) -> bool {
        self.ready.contains(&group)
    }

    /// A start is on record: what it found changed is no news any more.
    pub fn is_started(&mut self, group: GroupId, as_primary: bool) {
        self.ready.insert(group);
        self.changed.retain(|(of, _)| *of != group);
        if as_primary {
            self.lost_images.remove(&group);
        }
    }

    pub fn serves(&self, group: GroupId) -> bool {
        self.serving.contains(&group)
    }

    /// Clients may ask it.
    pub fn takes_requests(&self, group: GroupId) -> bool {
        self.up() && self.serves(group)
    }

    pub fn set_serving(&mut self, group: GroupId, open: bool) {
        if open {
            self.serving.insert(group)
        } else {
            self.serving.remove(&group)
        };
    }

    /// A switchover closes the export of this incarnation.
    pub fn closes_over(&mut self, group: GroupId, incarnation: Incarnation) {
        self.closed_over.insert(group, incarnation);
    }

    /// It leads back: the export of the same incarnation opens again.
    pub fn opens_again(&mut self, group: GroupId, incarnation: Incarnation) -> bool {
        self.closed_over.remove(&group) == Some(incarnation)
    }

    pub fn has_failed(&self, group: GroupId) -> bool {
        self.failed.contains(&group)
    }

    pub fn fails(&mut self, group: GroupId) {
        self.failed.insert(group);
    }

    /// The stores of a group that is reset are about to be closed.
    pub fn is_reset(&mut self, group: GroupId, beside: bool) {
        if beside {
            self.reset_beside.insert(group);
        }
        if self.storage.forgets(group) {
            self.lost_at_reset.insert(group);
        }
    }

    /// It opens after a reset: whether a flush had failed before that.
    pub fn lost_at_reset(&mut self, group: GroupId) -> bool {
        self.lost_at_reset.remove(&group)
    }

    /// The same: whether the peer served then.
    pub fn was_reset_beside(&mut self, group: GroupId) -> bool {
        self.reset_beside.remove(&group)
    }

    /// A group that failed starts anew: what it had written before is flushed first, as after a kill.
    pub fn starts_anew(&mut self, group: GroupId) {
        self.failed.remove(&group);
        self.ready.remove(&group);
        self.serving.remove(&group);
        self.closed_over.remove(&group);
        if self.opened.get(&group) == Some(&self.machine_boot) {
            self.killed.insert(group);
        }
    }

    /// The machine has lost its power since the exports of the group opened last.
    pub fn lost_power_since_open(&self, group: GroupId) -> bool {
        self.opened.get(&group) != Some(&self.machine_boot)
    }

    /// The power has just failed, and left this on record.
    pub fn loses_power_with(&mut self, group: GroupId, record: Option<&Superblock>) {
        if self.killed.contains(&group) {
            let sure = record.filter(|record| record.unverified_run == Incarnation(0));
            let run = sure.map_or(Incarnation(0), |record| record.identity.incarnation);
            self.flushed.entry(group).or_insert(run);
        }
    }

    /// What runs before this one had written was flushed when the power failed: they ended by a kill, and a start was on record. `None`: not
    /// so, or it is not known.
    pub fn flushed_before(&self, group: GroupId) -> Option<Incarnation> {
        self.flushed.get(&group).copied()
    }

    pub fn opens(&mut self, group: GroupId) {
        self.opened.insert(group, self.machine_boot);
        self.killed.remove(&group);
        self.flushed.remove(&group);
    }

    pub fn is_wiped(&self, group: GroupId) -> bool {
        self.wiped.contains(&group)
    }

    pub fn wipes(&mut self, group: GroupId) {
        self.storage.empties_records(group);
        self.wiped.insert(group);
    }

    /// Somebody else has written to a volume.
    pub fn is_changed(&mut self, group: GroupId, volume: VolumeId) {
        self.changed.insert((group, volume));
        self.lost_images.insert(group);
    }

    pub fn has_changed(&self, group: GroupId, volume: VolumeId) -> bool {
        self.changed.contains(&(group, volume))
    }

    // ---- other volumes -----------------------------------------------------------------------------------------------

    /// Those of a group, if it has others than it began with.
    pub fn volumes(&self, group: GroupId) -> Option<&[NamedVolume]> {
        self.volumes.get(&group).map(Vec::as_slice)
    }

    pub fn has_volumes(&mut self, group: GroupId, volumes: Vec<NamedVolume>) {
        self.volumes.insert(group, volumes);
    }

    /// The role in which it had a device when that left a group last.
    pub fn left_as(&self, device: DeviceId) -> Option<Role> {
        self.left.get(&device).copied()
    }

    pub fn leaves(&mut self, device: DeviceId, role: Role) {
        self.left.insert(device, role);
    }

    /// What takes its place before groups are opened.
    pub fn takes_place_mut(&mut self) -> &mut Vec<ChangedRecord> {
        &mut self.takes_place
    }

    /// What was known of its copy is gone with its records, or under what somebody else wrote.
    pub fn lost_its_image(&self, group: GroupId) -> bool {
        self.wiped.contains(&group) || self.lost_images.contains(&group)
    }

    // ---- its disks ---------------------------------------------------------------------------------------------------

    pub fn disk(&self, store: Store) -> &SimDisk {
        self.storage.disk(store)
    }

    pub fn disk_mut(&mut self, store: Store) -> &mut SimDisk {
        self.storage.disk_mut(store)
    }

    /// An operation of its disks ends.
    pub fn finish(&mut self, job: DiskJob, now: u64, rng: &mut Rng) -> Result<IoDone, IoError> {
        let serves = self.serves(job.group());
        self.storage.finish(job, now, serves, rng)
    }

    /// The volumes as a reader sees them, as far as the group uses their devices.
    pub fn views(&self, group: GroupId) -> Vec<&[u8]> {
        self.as_used(group, self.storage.views(group))
    }

    /// What a loss of power leaves of its volumes.
    pub fn durable_volumes(&self, group: GroupId) -> Vec<&[u8]> {
        self.as_used(group, self.storage.durable_volumes(group))
    }

    /// What lies behind a volume's end is nobody's.
    fn as_used<'a>(&'a self, group: GroupId, images: Vec<&'a [u8]>) -> Vec<&'a [u8]> {
        if self.storage.spread().is_some() {
            return images;
        }
        let recorded = superblock_in(self.disk(Store::Superblock(group)).view(), tag_of(group));
        let recorded = recorded.map(|record| record.sizes).unwrap_or_default();
        let used = |(at, image): (usize, &'a [u8])| {
            let shown = self.engine().and_then(|engine| engine.volume_bytes(group, VolumeId(at as u16)));
            let bytes = shown.unwrap_or(u64::MAX).min(recorded.get(at).copied().unwrap_or(u64::MAX));
            &image[..image.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))]
        };
        images.into_iter().enumerate().map(used).collect()
    }
}
