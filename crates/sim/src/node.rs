//! One node of the world: an engine, its disks, and what the world knows of it.

use std::collections::{BTreeMap, BTreeSet};

use engine::{GroupId, Node, NodeId, Store, VolumeId};

use crate::disk::Disk;
use crate::outside::Stop;
use crate::payload::{Meter, Meters};
use crate::rng::Rng;
use crate::swarm::Options;

/// Temporary trouble of a node's disks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// Writes of clients fail, or replicated ones.
    pub write_errors_until: u64,
    pub apply_errors_until: u64,
    pub read_errors_until: u64,
    /// Each read of a volume fails.
    pub unreadable_until: u64,
    pub full_until: u64,
    /// No space where a primary's volumes are, and for superblocks, bitmaps, journals.
    pub serving_full_until: u64,
    pub state_full_until: u64,
    pub slow_until: u64,
    /// A flush of a volume takes so much longer.
    pub flush_ns: u64,
    /// Nothing completes before this.
    pub stalled_until: u64,
    pub fail_next_flush: bool,
    /// The next write of a superblock, bitmap or journal fails.
    pub fail_next_record: bool,
    /// The same of the one of this number among those to come; 0: none.
    pub fail_record_in: u64,
    /// Faults that made this trouble and have not shown yet.
    pub unfelt: u64,
}

pub struct SimNode {
    pub id: usize,
    pub engine: Option<Box<Node>>,
    /// Completions of an older boot are nobody's.
    pub boot: u64,
    pub disks: BTreeMap<Store, Disk>,
    /// The machine's boot: a new one after every power loss.
    pub machine_boot: u64,
    /// Groups that have started since it booted.
    pub ready: BTreeSet<GroupId>,
    pub serving: BTreeSet<GroupId>,
    /// Groups that have failed since it booted.
    pub failed: BTreeSet<GroupId>,
    pub wake_at: Option<u64>,
    pub trouble: Trouble,
    /// Its clocks: monotonic since boot, wall skewed.
    pub booted_at: u64,
    pub wall_skew_ns: i64,
    /// In which boot the exports of a group opened last.
    opened: BTreeMap<GroupId, u64>,
    /// It goes by intent: its last words still leave.
    pub stopping: bool,
    /// What its engine holds of each group.
    pub payload: BTreeMap<GroupId, Meters>,
    /// Groups whose state directory was emptied: the operator has them start as secondaries.
    pub wiped: BTreeSet<GroupId>,
    /// Groups of which a flush failed since their exports opened last: what it covered may be lost.
    pub forgot: BTreeSet<GroupId>,
    /// The clean stop that is under way, where more is to come of it than a restart.
    pub stop: Option<Stop>,
    /// Volumes that somebody wrote while it was stopped; the host says so until a start is on record.
    pub changed: BTreeSet<(GroupId, VolumeId)>,
    /// Groups whose copy here was nobody's image any more after that.
    pub lost_images: BTreeSet<GroupId>,
    /// So much more its volumes' devices hold than all devices did at the beginning, and will hold from its next start on.
    pub extra_bytes: u64,
    pub grows_bytes: u64,
    /// No more than that of its volumes is the judges' concern.
    pub image_bytes: usize,
    /// How often its volumes were flushed.
    pub volume_flushes: u64,
    /// What was read of its volumes.
    pub volume_read_bytes: u64,
}

impl SimNode {
    pub fn new(id: usize, options: &Options, rng: &mut Rng) -> SimNode {
        let mut disks = BTreeMap::new();
        for g in (0..options.groups()).filter(|g| options.pairs[*g as usize].contains(&id)) {
            let group = GroupId(g);
            for v in 0..options.volumes {
                let mut content = vec![0u8; options.image_bytes() as usize];
                // Old content that the first sync must replace.
                if rng.percent(50) && options.spread.is_none() {
                    let end = content.len() / 2;
                    content[..end].fill(0xee);
                }
                disks.insert(Store::Volume(group, VolumeId(v)), Disk::new(content));
            }
            disks.insert(Store::Journal(group), Disk::blank(options.journal_bytes as usize));
            disks.insert(Store::Superblock(group), Disk::blank(engine::superblock::FILE_BYTES as usize));
            let activity = engine::activity_file_bytes(options.activity) as usize;
            disks.insert(Store::Activity(group), Disk::blank(activity));
            disks.insert(Store::Undo(group), Disk::blank(options.history_bytes as usize));
            let bitmap = engine::bitmap_file_bytes((0..options.volumes).map(|_| options.volume_bytes));
            disks.insert(Store::Bitmap(group), Disk::blank(bitmap as usize));
        }
        SimNode {
            id,
            engine: None,
            boot: 0,
            disks,
            machine_boot: 1,
            ready: BTreeSet::new(),
            serving: BTreeSet::new(),
            failed: BTreeSet::new(),
            wake_at: None,
            trouble: Trouble::default(),
            booted_at: 0,
            wall_skew_ns: rng.below(4_000_000_000) as i64 - 2_000_000_000,
            opened: BTreeMap::new(),
            stopping: false,
            payload: BTreeMap::new(),
            wiped: BTreeSet::new(),
            forgot: BTreeSet::new(),
            stop: None,
            changed: BTreeSet::new(),
            lost_images: BTreeSet::new(),
            extra_bytes: 0,
            grows_bytes: options.extra_bytes.get(id).copied().unwrap_or(0),
            image_bytes: usize::MAX,
            volume_flushes: 0,
            volume_read_bytes: 0,
        }
    }

    pub fn node_id(&self) -> NodeId {
        NodeId(self.id as u16)
    }

    pub fn opened_in(&self, group: GroupId) -> Option<u64> {
        self.opened.get(&group).copied()
    }

    pub fn opens_in(&mut self, group: GroupId) {
        self.opened.insert(group, self.machine_boot);
    }

    /// Where payload of a group counts that goes the way of writes.
    pub fn queued(&mut self, group: GroupId) -> &Meter {
        &self.payload.entry(group).or_default().queued
    }

    /// Where payload counts that was read: on a primary it joins the writes, from a journal it is replayed as one.
    pub fn read_from(&mut self, store: Store) -> &Meter {
        let (Store::Volume(group, _)
        | Store::Journal(group)
        | Store::Superblock(group)
        | Store::Bitmap(group)
        | Store::Activity(group)
        | Store::Undo(group)) = store;
        let queued = matches!(store, Store::Journal(_)) || self.serving.contains(&group);
        let meters = self.payload.entry(group).or_default();
        if queued { &meters.queued } else { &meters.aside }
    }

    pub fn up(&self) -> bool {
        self.engine.is_some()
    }

    /// The volumes as a reader sees them.
    pub fn views(&self, group: GroupId) -> Vec<&[u8]> {
        let volumes = Store::Volume(group, VolumeId(0))..=Store::Volume(group, VolumeId(u16::MAX));
        let images = self.disks.range(volumes).map(|(_, disk)| disk.view());
        images.map(|image| &image[..image.len().min(self.image_bytes)]).collect()
    }

    /// A copy of them.
    pub fn images(&self, group: GroupId) -> Vec<Vec<u8>> {
        self.views(group).into_iter().map(<[u8]>::to_vec).collect()
    }
}
