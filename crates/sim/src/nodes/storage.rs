//! What the disks of a node do with what its engine asks for, and what goes wrong there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::journal::BatchOf;
use engine::limits::META_BLOCK_BYTES;
use engine::superblock::{self, Superblock};
use engine::{GroupId, IoDone, IoError, Output, SpilledPart, Store, Token, VolumeId};

use super::disk::{SimDisk, WrittenBytes, joined};
use super::rot::VolumeRot;
pub use super::trouble::DiskTrouble;
use super::volumes::DeviceId;
use crate::options::SimOptions;
use crate::options::spread::WriteSpread;
use crate::payload::{Meters, Payload, PayloadMeter, SharedBytes, bytes_of, crc32c, hash, is_zero, slice_of};
use crate::rng::Rng;

/// Until then a trouble strikes each time, and not by chance.
pub const ALWAYS: u64 = u64::MAX;

/// A larger device holds no zeroes at its end, and not the same on both nodes.
const FILLINGS: [u8; 2] = [0x77, 0xee];

/// What a disk holds that takes the place of one that died.
const REPLACED: u8 = 0x33;

/// What the file of a delta may hold beside its content, at most.
const DELTA_BYTES: usize = 1 << 20;

/// What a disk is doing.
pub struct DiskJob {
    store: Store,
    kind: JobKind,
}

enum JobKind {
    Write {
        write: u64,
        offset: u64,
        length: u64,
        durable: bool,
        /// Of what is spilled, of each part.
        sums: Option<Vec<u32>>,
    },
    /// What was complete when it began.
    Flush {
        completions: u64,
    },
    /// `image`: where it begins on the disk; `before`: what stood there when it began, at that revision.
    Read {
        offset: u64,
        length: u32,
        image: u64,
        before: Vec<u8>,
        revision: u64,
        kind: ReadKind,
    },
    ReadMeta {
        offset: u64,
        length: u32,
    },
    FindHole {
        offset: u64,
        length: u64,
    },
    /// Blank from then on.
    Renew,
}

/// What is wanted of what was read.
enum ReadKind {
    /// The content, if it has this checksum where one is given.
    Plain {
        crc: Option<u32>,
    },
    Summed,
    /// The content, if each part has its sum.
    Parts(Vec<SpilledPart>),
    Hash,
}

/// What became of an engine's output.
pub enum BegunOutput {
    Job(Token, DiskJob),
    /// It writes what is no zero where nobody writes, from that byte on.
    Astray(Store, u64),
    /// It is none for a disk.
    Other(Output),
}

impl DiskJob {
    /// What was written before it is on stable storage when it ends.
    pub fn is_sync(&self) -> bool {
        let syncs = matches!(self.kind, JobKind::Flush { .. } | JobKind::Write { durable: true, .. });
        syncs && !matches!(self.store, Store::History(_))
    }

    pub fn group(&self) -> GroupId {
        group_of(self.store)
    }

    /// The group whose volume it writes to.
    pub fn writes_volume(&self) -> Option<GroupId> {
        match (&self.kind, self.store) {
            (JobKind::Write { .. }, Store::Volume(group, _)) => Some(group),
            _ => None,
        }
    }
}

/// The disks of a node, and what is read and written there.
#[derive(Default)]
pub struct NodeStorage {
    disks: BTreeMap<Store, SimDisk>,
    pub trouble: DiskTrouble,
    /// What tells the file of its queues from a copy.
    pub queue_file: u64,
    /// What comparisons read that nobody wrote.
    pub rot: VolumeRot,
    /// Of the session with each group's peer: hashes of another one say nothing.
    hash_keys: BTreeMap<GroupId, u64>,
    /// What its engine holds of each group.
    payload: BTreeMap<GroupId, Meters>,
    /// Groups of which a flush failed since their exports opened last: what it covered may be lost.
    forgot: Vec<GroupId>,
    /// How many operations of each group are under way.
    under_way: BTreeMap<GroupId, u64>,
    /// Groups whose stores are being closed and opened.
    closed: BTreeSet<GroupId>,
    /// Volumes that its operator detached, and those of which nothing may be asked for that reason: a group that runs goes on until its
    /// stores are closed.
    detached: BTreeSet<Store>,
    untouched: BTreeSet<Store>,
    /// Devices of volumes that are in no group any more.
    shelf: BTreeMap<DeviceId, SimDisk>,
    /// Where clients write, if the volumes are far larger than that.
    spread: Option<Arc<WriteSpread>>,
    /// How long an operation takes.
    disk_ns: (u64, u64),
    /// So much more its volumes' devices hold than all devices did at the beginning, and will hold from its next start on.
    extra_bytes: u64,
    grows_bytes: u64,
    volume_flushes: u64,
    marks_flushes: u64,
    volume_read_bytes: u64,
}

/// All that a node keeps for a group beside the volumes.
pub fn records(group: GroupId) -> [Store; 6] {
    [
        Store::Superblock(group),
        Store::Bitmap(group),
        Store::Activity(group),
        Store::Journal(group),
        Store::Undo(group),
        Store::Marks(group),
    ]
}

/// What a superblock's file holds.
pub fn superblock_in(file: &[u8], tag: u64) -> Option<Superblock> {
    superblock::read(file, tag).ok().and_then(|read| read.found)
}

fn group_of(store: Store) -> GroupId {
    let (Store::Volume(group, _)
    | Store::Journal(group)
    | Store::Superblock(group)
    | Store::Bitmap(group)
    | Store::Activity(group)
    | Store::Undo(group)
    | Store::History(group)
    | Store::Marks(group)
    | Store::Delta(group)
    | Store::Queue(group)) = store;
    group
}

/// Zeroes are holes here, in blocks of 4 KiB.
fn first_run(image: &[u8]) -> (u64, bool) {
    let mut blocks = image.chunks(4096);
    let first = blocks.next().is_some_and(is_zero);
    let more: usize = blocks.take_while(|block| is_zero(block) == first).map(<[u8]>::len).sum();
    ((image.len().min(4096) + more) as u64, first)
}

impl NodeStorage {
    pub fn new(node: usize, options: &SimOptions, rng: &mut Rng) -> NodeStorage {
        let mut disks = BTreeMap::new();
        for g in (0..options.groups()).filter(|g| options.pairs[*g as usize].contains(&node)) {
            let group = GroupId(g);
            for v in 0..options.volumes {
                let mut content = vec![0u8; options.image_bytes() as usize];
                // Old content that the first sync must replace.
                if rng.percent(50) && options.spread.is_none() {
                    let end = content.len() / 2;
                    content[..end].fill(0xee);
                }
                disks.insert(Store::Volume(group, VolumeId(v)), SimDisk::new(content));
            }
            let bitmap = engine::bitmap_file_bytes((0..options.volumes).map(|_| options.volume_bytes));
            let activity = engine::activity_file_bytes(options.activity);
            for (store, bytes) in [
                (Store::Journal(group), options.journal_bytes),
                (Store::Superblock(group), superblock::FILE_BYTES),
                (Store::Activity(group), activity),
                (Store::Undo(group), options.history_bytes),
                (Store::History(group), options.view_bytes),
                (Store::Queue(group), options.queue_disk_bytes),
                (Store::Bitmap(group), bitmap),
                (Store::Marks(group), engine::marks::FILE_BYTES),
            ] {
                disks.insert(store, SimDisk::blank(bytes as usize));
            }
        }
        NodeStorage {
            disks,
            spread: options.spread.clone(),
            disk_ns: options.disk_ns,
            grows_bytes: options.extra_bytes.get(node).copied().unwrap_or(0),
            ..NodeStorage::default()
        }
    }

    pub fn disk(&self, store: Store) -> &SimDisk {
        &self.disks[&store]
    }

    /// One that there is not always.
    pub fn disk_if_any(&self, store: Store) -> Option<&SimDisk> {
        self.disks.get(&store)
    }

    pub fn disk_mut(&mut self, store: Store) -> &mut SimDisk {
        self.disks.get_mut(&store).expect("every store has a disk")
    }

    pub fn disks(&self) -> impl Iterator<Item = (&Store, &SimDisk)> {
        self.disks.iter()
    }

    pub fn disks_mut(&mut self) -> impl Iterator<Item = (&Store, &mut SimDisk)> {
        self.disks.iter_mut()
    }

    /// Another disk takes the place of one.
    pub fn replace(&mut self, store: Store, disk: SimDisk) {
        self.disks.insert(store, disk);
    }

    /// The volumes of a group, and its records.
    pub fn stores_of(&self, group: GroupId) -> Vec<Store> {
        let of_group = |store: &&Store| matches!(store, Store::Volume(g, _) if *g == group);
        self.disks.keys().filter(of_group).copied().chain(records(group)).collect()
    }

    /// The volumes as a reader sees them.
    pub fn views(&self, group: GroupId) -> Vec<&[u8]> {
        let volumes = Store::Volume(group, VolumeId(0))..=Store::Volume(group, VolumeId(u16::MAX));
        self.disks.range(volumes).map(|(_, disk)| disk.view()).collect()
    }

    /// The same as a loss of power leaves it.
    pub fn durable_volumes(&self, group: GroupId) -> Vec<&[u8]> {
        let volumes = Store::Volume(group, VolumeId(0))..=Store::Volume(group, VolumeId(u16::MAX));
        self.disks.range(volumes).map(|(_, disk)| disk.durable()).collect()
    }

    /// Nothing is recorded of the group any more.
    pub fn empties_records(&mut self, group: GroupId) {
        for store in records(group) {
            let disk = self.disk_mut(store);
            disk.restore(vec![0; disk.size()]);
        }
    }

    pub fn lose_power(&mut self, rng: &mut Rng) {
        self.untouched = self.detached.clone();
        self.under_way.clear();
        self.closed.clear();
        // Who sets no mark draws nothing for the file of marks; and nobody reads what a run kept for its views.
        let is_left_alone = |store: &Store| matches!(store, Store::Marks(_) | Store::History(_));
        let strikes = |store: &Store, disk: &SimDisk| !is_left_alone(store) || !disk.is_settled();
        self.disks.iter_mut().filter(|(store, disk)| strikes(store, disk)).for_each(|(_, disk)| disk.lose_power(rng));
    }

    /// The process died, and the machine lives.
    pub fn kill(&mut self, rng: &mut Rng) {
        self.untouched = self.detached.clone();
        self.under_way.clear();
        self.closed.clear();
        self.disks.values_mut().for_each(|disk| disk.kill(rng));
    }

    /// How often volumes were flushed.
    pub fn volume_flushes(&self) -> u64 {
        self.volume_flushes
    }

    /// How often files of marks were.
    pub fn marks_flushes(&self) -> u64 {
        self.marks_flushes
    }

    /// What was read of volumes.
    pub fn volume_read_bytes(&self) -> u64 {
        self.volume_read_bytes
    }

    pub fn payload(&self) -> &BTreeMap<GroupId, Meters> {
        &self.payload
    }

    pub fn meters(&mut self, group: GroupId) -> &Meters {
        self.payload.entry(group).or_default()
    }

    /// Where payload counts that was read: on a primary it joins the writes, from a journal it is replayed as one.
    fn read_meter(&mut self, store: Store, serves: bool) -> &PayloadMeter {
        let queued = matches!(store, Store::Journal(_)) || serves;
        let meters = self.meters(group_of(store));
        if queued { &meters.queued } else { &meters.aside }
    }

    pub fn extra_bytes(&self) -> u64 {
        self.extra_bytes
    }

    /// The volumes' devices are so much larger at the next start.
    pub fn grows_by(&mut self, bytes: u64) {
        self.grows_bytes += bytes;
    }

    /// They are so much larger then, whatever was said before.
    pub fn grows_to(&mut self, bytes: u64) {
        self.grows_bytes = bytes;
    }

    /// A start, or the operator has the devices grow under a group that is in use: they have the size that he gave them. True if they grew.
    pub fn takes_up_devices(&mut self, node: usize, options: &SimOptions) -> bool {
        let more = std::mem::take(&mut self.grows_bytes) as usize;
        if more == 0 {
            return false;
        }
        self.extra_bytes += more as u64;
        let size_bytes = options.volume_bytes + self.extra_bytes;
        let bitmap = engine::bitmap_file_bytes((0..options.volumes).map(|_| size_bytes)) as usize;
        for (store, disk) in &mut self.disks {
            match store {
                Store::Volume(..) => disk.grow(more, FILLINGS[node % 2]),
                Store::Bitmap(_) => disk.grow(bitmap.saturating_sub(disk.size()), 0),
                _ => {}
            }
        }
        true
    }

    /// The stores of the group are closed, or open again.
    pub fn closes(&mut self, group: GroupId, closed: bool) {
        if closed {
            self.touches_no_more(group);
            self.closed.insert(group)
        } else {
            self.closed.remove(&group)
        };
    }

    /// The operator detaches a volume: from the group's next opening on its device is not touched.
    pub fn detach(&mut self, group: GroupId, volume: VolumeId) {
        self.detached.insert(Store::Volume(group, volume));
    }

    /// It has a device again. `is_another`: one that holds nothing that anybody wrote.
    pub fn attach(&mut self, group: GroupId, volume: VolumeId, is_another: bool) {
        let store = Store::Volume(group, volume);
        if self.detached.remove(&store) && is_another {
            let size_bytes = self.disk(store).size();
            self.disk_mut(store).restore(vec![REPLACED; size_bytes]);
        }
    }

    pub fn is_detached(&self, group: GroupId, volume: VolumeId) -> bool {
        self.detached.contains(&Store::Volume(group, volume))
    }

    /// The devices of volumes of a group that stops having them.
    pub fn takes_down(&mut self, group: GroupId, devices: &[DeviceId]) {
        for (at, device) in (0..).zip(devices) {
            let store = Store::Volume(group, VolumeId(at));
            self.shelf.extend(self.disks.remove(&store).map(|disk| (*device, disk)));
            self.detached.remove(&store);
        }
    }

    /// A group has this device at a position from now on, or none there. `fresh`: a device that no group had before.
    pub fn puts_up(
        &mut self,
        group: GroupId,
        position: VolumeId,
        (device, is_detached): (DeviceId, bool),
        fresh: impl Fn() -> SimDisk,
    ) {
        let store = Store::Volume(group, position);
        let disk = self.shelf.remove(&device).unwrap_or_else(fresh);
        self.disks.insert(store, disk);
        if is_detached {
            self.detached.insert(store);
        }
        self.touches_no_more(group);
    }

    /// Of this group: another one, whose volume is detached too, may still be coming to rest.
    fn touches_no_more(&mut self, group: GroupId) {
        let is_its = |store: &Store| matches!(store, Store::Volume(of, _) if *of == group);
        self.untouched.retain(|store| !is_its(store));
        self.untouched.extend(self.detached.iter().filter(|store| is_its(store)).copied());
    }

    /// Some group had the device, and none has it now.
    pub fn is_on_shelf(&self, device: DeviceId) -> bool {
        self.shelf.contains_key(&device)
    }

    /// A group has more volumes, or fewer, than what its bitmap has room for.
    pub fn resizes_bitmap(&mut self, group: GroupId, bytes: usize) {
        let disk = self.disk_mut(Store::Bitmap(group));
        if disk.size() != bytes {
            let mut content = disk.view().to_vec();
            content.resize(bytes, 0);
            disk.restore(content);
        }
    }

    /// Somebody moves a file away.
    pub fn removes(&mut self, store: Store) -> bool {
        self.disks.remove(&store).is_some()
    }

    /// Operations of the group that have not ended.
    pub fn under_way(&self, group: GroupId) -> u64 {
        self.under_way.get(&group).copied().unwrap_or(0)
    }

    /// Begins the operation that an engine asks for.
    pub fn begin(&mut self, output: Output) -> BegunOutput {
        let begun = self.begin_one(output);
        if let BegunOutput::Job(_, job) = &begun {
            assert!(!self.closed.contains(&job.group()), "something is asked of stores that are closed");
            assert!(!self.untouched.contains(&job.store), "something is asked of a volume that is detached");
            *self.under_way.entry(job.group()).or_default() += 1;
        }
        begun
    }

    fn begin_one(&mut self, output: Output) -> BegunOutput {
        let (token, store, kind) = match output {
            Output::Write { token, store, offset, parts, durable, .. } => {
                let parts: Vec<SharedBytes> = parts.into_iter().map(bytes_of).collect();
                let Some(spread) = self.spread_of(store) else {
                    let data = WrittenBytes::new(parts);
                    return BegunOutput::Job(token, self.begin_write(store, offset, data, durable));
                };
                let data = joined(&parts);
                let image = spread.image(offset, data.len() as u64).start;
                let Some(data) = spread.folded(offset, &data) else { return BegunOutput::Astray(store, offset) };
                return BegunOutput::Job(token, self.begin_write(store, image, data.into(), durable));
            }
            Output::Zero { token, store, offset, length, durable, .. } => {
                let range = self.image_of(store, offset, length);
                let zeroes = WrittenBytes::new(vec![SharedBytes::zeroes((range.end - range.start) as usize)]);
                return BegunOutput::Job(token, self.begin_write(store, range.start, zeroes, durable));
            }
            Output::Flush { token, store } => {
                self.volume_flushes += u64::from(matches!(store, Store::Volume(..)));
                self.marks_flushes += u64::from(matches!(store, Store::Marks(_)));
                (token, store, JobKind::Flush { completions: self.disk(store).begin_flush() })
            }
            Output::Read { token, store, offset, length, crc } => {
                (token, store, self.begin_read(store, offset, length, ReadKind::Plain { crc }))
            }
            Output::ReadSummed { token, store, offset, length } => {
                (token, store, self.begin_read(store, offset, length, ReadKind::Summed))
            }
            Output::ReadHash { token, store, offset, length } => {
                (token, store, self.begin_read(store, offset, length, ReadKind::Hash))
            }
            Output::Spill { token, store, offset, parts } => {
                let parts: Vec<SharedBytes> = parts.iter().map(slice_of).collect();
                let mut job = self.begin_write(store, offset, WrittenBytes::new(in_blocks(&parts)), false);
                if let JobKind::Write { sums, .. } = &mut job.kind {
                    *sums = Some(parts.iter().map(|part| crc32c(part)).collect());
                }
                return BegunOutput::Job(token, job);
            }
            Output::Append { token, store, offset, mut index, parts } => {
                let parts: Vec<SharedBytes> = parts.iter().map(slice_of).collect();
                let summed: Vec<u32> = parts.iter().map(|part| crc32c(part)).collect();
                let entries = index.entries.iter_mut().filter(|entry| entry.payload_bytes > 0);
                entries.zip(&summed).for_each(|(entry, crc)| entry.payload_crc = *crc);
                let mut bytes = vec![index.encode(BatchOf::Queue).into()];
                bytes.extend(in_blocks(&parts));
                let mut job = self.begin_write(store, offset, WrittenBytes::new(bytes), true);
                if let JobKind::Write { sums, .. } = &mut job.kind {
                    *sums = Some(summed);
                }
                return BegunOutput::Job(token, job);
            }
            Output::Fetch { token, store, offset, parts } => {
                let length = parts.iter().map(|part| part.length.next_multiple_of(META_BLOCK_BYTES as u32)).sum();
                (token, store, self.begin_read(store, offset, length, ReadKind::Parts(parts)))
            }
            Output::Renew { token, store, .. } => (token, store, JobKind::Renew),
            Output::ReadMeta { token, store, offset, length } => (token, store, JobKind::ReadMeta { offset, length }),
            Output::FindHole { token, store, offset, length } => (token, store, JobKind::FindHole { offset, length }),
            other => return BegunOutput::Other(other),
        };
        BegunOutput::Job(token, DiskJob { store, kind })
    }

    /// Of the image of a volume, where it is wide.
    fn begin_write(&mut self, store: Store, offset: u64, data: WrittenBytes, durable: bool) -> DiskJob {
        let length = data.bytes();
        // What is kept for views is never flushed, and what a loss of power leaves of it is nobody's business.
        let durable = durable || matches!(store, Store::History(_));
        let write = self.disk_mut(store).begin_write(offset, data);
        DiskJob { store, kind: JobKind::Write { write, offset, length, durable, sums: None } }
    }

    /// A write that ends while the read is under way may be in what it returns, or not.
    fn begin_read(&self, store: Store, offset: u64, length: u32, kind: ReadKind) -> JobKind {
        let image = self.image_of(store, offset, u64::from(length));
        let bytes = image.start as usize..image.end as usize;
        let disk = self.disk(store);
        let (revision, before) = (disk.revision(&bytes), disk.view()[bytes].to_vec());
        JobKind::Read { offset, length, image: image.start, before, revision, kind }
    }

    /// Where the images of wide volumes stand.
    pub fn spread(&self) -> Option<&WriteSpread> {
        self.spread.as_deref()
    }

    /// A volume's, if it is wide.
    fn spread_of(&self, store: Store) -> Option<&Arc<WriteSpread>> {
        self.spread.as_ref().filter(|_| matches!(store, Store::Volume(..)))
    }

    fn image_of(&self, store: Store, offset: u64, length: u64) -> std::ops::Range<u64> {
        self.spread_of(store).map_or(offset..offset + length, |spread| spread.image(offset, length))
    }

    /// How long it takes.
    pub fn takes_ns(&mut self, job: &DiskJob, now: u64, rng: &mut Rng) -> u64 {
        let (low, high) = self.disk_ns;
        let is_slow = self.is_slow(now);
        let more_ns = match (&job.kind, job.store) {
            (JobKind::Flush { .. }, Store::Volume(..)) => self.trouble.flush_ns,
            (JobKind::Read { .. }, Store::Volume(..)) => self.trouble.read_ns,
            (JobKind::Write { .. }, Store::Superblock(_)) => self.trouble.superblock_ns,
            (JobKind::Write { .. }, Store::Queue(_)) => self.trouble.queue_ns,
            (JobKind::Write { .. }, Store::Marks(_)) => self.trouble.marks_ns,
            (JobKind::Write { .. }, Store::History(_)) => self.trouble.views_ns,
            _ => 0,
        };
        let stalled_ns = self.trouble.stalled_until.saturating_sub(now);
        // What a start reads of marks takes neither chance nor time: scenarios without marks go as they always went.
        let is_drawn = matches!(job.kind, JobKind::Write { .. }) || !matches!(job.store, Store::Marks(_));
        let work_ns = if is_drawn { rng.between(low, high) } else { 0 };
        work_ns * if is_slow { 100 } else { 1 } + more_ns + stalled_ns
    }

    pub fn is_slow(&self, now: u64) -> bool {
        self.trouble.slow_until > now
    }

    /// The trouble shows: so many faults that made it count now.
    pub fn felt(&mut self) -> u64 {
        std::mem::take(&mut self.trouble.unfelt)
    }

    /// A flush has failed since the exports opened last.
    pub fn forgets(&self, group: GroupId) -> bool {
        self.forgot.contains(&group)
    }

    /// A flush failed since this was asked last.
    pub fn has_forgotten(&mut self, group: GroupId) -> bool {
        let before = self.forgot.len();
        self.forgot.retain(|forgot| *forgot != group);
        self.forgot.len() < before
    }

    /// It ends; `serves`: its group's exports are open here.
    pub fn finish(&mut self, job: DiskJob, now: u64, serves: bool, rng: &mut Rng) -> Result<IoDone, IoError> {
        let store = job.store;
        *self.under_way.entry(group_of(store)).or_insert(1) -= 1;
        match job.kind {
            JobKind::Write { write, offset, length, durable, sums } => {
                self.rot.mend(store, offset..offset + length, now);
                let Some(error) = self.write_error(store, now, serves, rng) else {
                    self.disk_mut(store).end_write(now, write, offset, length, durable);
                    return Ok(sums.map_or(IoDone::Done, IoDone::Sums));
                };
                // Where a scenario has it last, nothing of a record lands.
                let never = !matches!(store, Store::Volume(..)) && self.trouble.state_full_until == ALWAYS;
                self.disk_mut(store).fail_write(write, offset, length, || !never && rng.percent(50));
                Err(error)
            }
            JobKind::Flush { .. } | JobKind::ReadMeta { .. }
                if self.trouble.marks_unreadable && matches!(store, Store::Marks(_)) =>
            {
                Err(IoError::Io)
            }
            JobKind::Flush { completions } => self.finish_flush(store, completions, rng),
            JobKind::ReadMeta { offset, length } => {
                let bytes = offset as usize..(offset + u64::from(length)) as usize;
                Ok(IoDone::Meta(self.disk(store).read(bytes)))
            }
            JobKind::Renew => self.renew(store, now),
            JobKind::FindHole { offset, length } => {
                // Of a wide volume most is no part of the image.
                let known = self.spread.is_none().then(|| &self.disk(store).view()[offset as usize..]);
                let (run, is_hole) = known.map_or((length, false), |image| first_run(&image[..length as usize]));
                Ok(IoDone::Run { length: run, is_hole })
            }
            JobKind::Read { offset, length, image, before, revision, kind } => {
                let is_volume = matches!(store, Store::Volume(..));
                if is_volume {
                    self.volume_read_bytes += u64::from(length);
                }
                let unreadable = self.trouble.unreadable_until > now;
                let may_fail = is_volume || matches!(store, Store::Queue(_));
                if is_volume && unreadable || may_fail && strikes(self.trouble.read_errors_until, now, 10, rng) {
                    return Err(IoError::Io);
                }
                let bytes = image as usize..image as usize + before.len();
                let disk = self.disk(store);
                let view = &disk.view()[bytes.clone()];
                let is_same = disk.revision(&bytes) == revision || view == before;
                let mut data = if is_same || rng.percent(50) { before } else { view.to_vec() };
                match kind {
                    ReadKind::Hash => self.rot.shows(store, image, &mut data),
                    _ => self.rot.mend(store, image..image + data.len() as u64, now),
                }
                let spread = self.spread_of(store).cloned();
                // Of a wide volume most is no part of the image: not looked at byte by byte.
                let zero = !matches!(kind, ReadKind::Hash) && is_zero(&data);
                let meter = self.read_meter(store, serves);
                let answer = match spread {
                    Some(spread) if matches!(kind, ReadKind::Hash) => {
                        Ok(IoDone::Hash(spread.hash(offset, u64::from(length), &data)))
                    }
                    Some(_) if zero => kind.answer(SharedBytes::zeroes(length as usize), zero, meter),
                    Some(spread) => kind.answer(spread.unfolded(offset, u64::from(length), &data).into(), zero, meter),
                    None => kind.answer(data.into(), zero, meter),
                };
                self.keyed(group_of(store), answer)
            }
        }
    }

    fn finish_flush(&mut self, store: Store, completions: u64, rng: &mut Rng) -> Result<IoDone, IoError> {
        if self.trouble.queue_flush_fails && matches!(store, Store::Queue(_)) {
            return Err(IoError::Io);
        }
        if let Store::Volume(group, _) = store
            && std::mem::take(&mut self.trouble.fail_next_flush)
        {
            self.disk_mut(store).fail_flush(completions, rng);
            self.forgot.push(group);
            return Err(IoError::Io);
        }
        self.disk_mut(store).end_flush(completions);
        Ok(IoDone::Done)
    }

    /// A session with the group's peer begins.
    pub fn begins_session(&mut self, group: GroupId, session: u64) {
        self.hash_keys.insert(group, session);
    }

    fn keyed(&self, group: GroupId, answer: Result<IoDone, IoError>) -> Result<IoDone, IoError> {
        let key = self.hash_keys.get(&group).copied().unwrap_or(0).to_le_bytes();
        answer.map(|done| match done {
            IoDone::Hash(mut hash) => {
                hash.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
                IoDone::Hash(hash)
            }
            other => other,
        })
    }

    /// A delta is blank from now on.
    fn renew(&mut self, store: Store, now: u64) -> Result<IoDone, IoError> {
        if self.trouble.state_full_until > now {
            return Err(IoError::NoSpace);
        }
        let group = group_of(store);
        let volumes: usize = self.views(group).iter().map(|view| view.len()).sum();
        // Of a wide volume the undo store may hold more than its image.
        let history = self.disk(Store::Undo(group)).view().len();
        let bytes = 2 * volumes + history + history / 8 + DELTA_BYTES;
        self.disks.insert(store, SimDisk::blank(bytes.next_multiple_of(4096)));
        Ok(IoDone::Done)
    }

    /// Whether a write fails now, and how.
    fn write_error(&mut self, store: Store, now: u64, serves: bool, rng: &mut Rng) -> Option<IoError> {
        let trouble = &mut self.trouble;
        if matches!(store, Store::History(_)) {
            return trouble.views_fail.or((trouble.state_full_until > now).then_some(IoError::NoSpace));
        }
        if matches!(store, Store::Queue(_)) {
            let is_full = trouble.state_full_until.max(trouble.queue_full_until) > now;
            let fails = is_full || trouble.fail_queue_in == 1 || strikes(trouble.write_errors_until, now, 20, rng);
            trouble.fail_queue_in = trouble.fail_queue_in.saturating_sub(1);
            return fails.then_some(if is_full { IoError::NoSpace } else { IoError::Io });
        }
        if trouble.marks_fail && matches!(store, Store::Marks(_)) {
            return Some(IoError::Io);
        }
        if !matches!(store, Store::Volume(..)) {
            if let Some(error) = trouble.delta_fails.filter(|_| matches!(store, Store::Delta(_))) {
                return Some(error);
            }
            let delta_full = matches!(store, Store::Delta(_)) && trouble.delta_full_until > now;
            if trouble.state_full_until > now || delta_full {
                return Some(IoError::NoSpace);
            }
            let fails = trouble.fail_record_in == 1;
            trouble.fail_record_in = trouble.fail_record_in.saturating_sub(1);
            return (std::mem::take(&mut trouble.fail_next_record) || fails).then_some(IoError::Io);
        }
        if serves && trouble.serving_full_until > now {
            return Some(IoError::NoSpace);
        }
        if serves {
            let fails = trouble.write_errors_until > now && rng.percent(5);
            return fails.then(|| *rng.pick(&[IoError::Io, IoError::NoSpace]));
        }
        if strikes(trouble.full_until, now, 30, rng) {
            return Some(IoError::NoSpace);
        }
        strikes(trouble.apply_errors_until, now, 5, rng).then_some(IoError::Io)
    }
}

/// Whether a trouble that lasts until then strikes now: by chance, or each time where a scenario has it last [`ALWAYS`].
fn strikes(until: u64, now: u64, percent: u64, rng: &mut Rng) -> bool {
    until > now && (until == ALWAYS || rng.percent(percent))
}

/// Each part in whole blocks.
fn in_blocks(parts: &[SharedBytes]) -> Vec<SharedBytes> {
    let padding =
        |part: &SharedBytes| SharedBytes::zeroes(part.len().next_multiple_of(META_BLOCK_BYTES as usize) - part.len());
    parts.iter().flat_map(|part| [part.clone(), padding(part)]).filter(|part| !part.is_empty()).collect()
}

fn have_sums(data: &[u8], parts: &[SpilledPart]) -> bool {
    let mut at = 0;
    parts.iter().all(|part| {
        let begins = at;
        at += part.length.next_multiple_of(META_BLOCK_BYTES as u32) as usize;
        crc32c(&data[begins..begins + part.length as usize]) == part.crc
    })
}

impl ReadKind {
    fn answer(self, data: SharedBytes, zero: bool, meter: &PayloadMeter) -> Result<IoDone, IoError> {
        match self {
            ReadKind::Plain { crc: Some(crc) } if crc != crc32c(&data) => Err(IoError::Damaged),
            ReadKind::Parts(parts) if !have_sums(&data, &parts) => Err(IoError::Damaged),
            ReadKind::Plain { .. } | ReadKind::Parts(_) => {
                Ok(IoDone::Payload { buf: Payload::handed_over(data, meter), zero })
            }
            ReadKind::Summed => {
                let crc = crc32c(&data);
                Ok(IoDone::Summed { buf: Payload::handed_over(data, meter), zero, crc })
            }
            ReadKind::Hash => Ok(IoDone::Hash(hash(&data))),
        }
    }
}
