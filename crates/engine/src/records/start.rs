//! Records are taken up: superblock, dirty regions and activity log are read, or made for a new group; at the end this run is recorded.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::context::Cx;
use crate::formats::bitmap::{BitmapCell, REGIONS_PER_CELL};
use crate::formats::cell::{CELL_BYTES, CellHead, RELIED_ON_FROM, Rejected};
use crate::formats::identity::{Confirmed, Identity, Role};
use crate::formats::superblock::{RollbackPoint, Superblock};
use crate::formats::undo::UndoStore;
use crate::formats::{bitmap, cell, journal, marks, superblock, undo};
use crate::ids::{Generation, Incarnation, NodeId, Seq, VolumeId, VolumeSet};
use crate::injected_fault::{Fault, injected};
use crate::limits::REGION_BYTES;
use crate::records::activity;
use crate::records::activity::{ActivityCell, ActivityLog};
use crate::records::bits::{AfterBits, BitmapWriter, StoredBits, regions_of};
use crate::records::marks::{FoundMarks, LATCHED, MarkTable, lost_words};
use crate::records::record::{AfterSuper, SuperWriter, is_detached, is_unfilled, without_devices};
use crate::shared::coverage::CoveragePoint;
use crate::shared::lifecycle::{Lifecycle, OtherFiles, StartStage};
use crate::shared::operation_slots::{OperationSlots, SlotOperation};
use crate::shared::peer_copy::PeerCopy;
use crate::shared::size::ExactSize;
use crate::shared::volumes::Volumes;
use crate::state::Broken;
use crate::{Event, GroupConfig, IoDone, IoResult, Output, Store};

/// Cells of the bitmap read at once: 1 MiB.
const CELLS_PER_READ: usize = 64;

/// Why a group cannot be taken up: which of its stores stands in the way, and what is to be done about it.
#[derive(Debug)]
pub(crate) struct CannotStart {
    broken: Broken,
    why: String,
}

impl CannotStart {
    pub fn new(broken: Broken, why: impl Into<String>) -> CannotStart {
        CannotStart { broken, why: why.into() }
    }

    /// Which part of the group it is, and what people are told.
    pub fn into_text(self) -> (Broken, String) {
        (self.broken, self.why)
    }

    pub fn unreadable(broken: Broken, what: &str) -> CannotStart {
        CannotStart::new(
            broken,
            format!("{what} cannot be read; see the kernel log for the disk of the state directory"),
        )
    }
}

/// The records of a group while it is taken up, with what they tell of.
pub(crate) struct GroupStart<'a> {
    pub node: NodeId,
    pub config: &'a GroupConfig,
    pub lifecycle: &'a mut Lifecycle,
    pub sb: &'a mut SuperWriter,
    pub bitmap: &'a mut BitmapWriter,
    pub activity: &'a mut ActivityLog,
    pub volumes: &'a mut Volumes,
    pub slots: &'a mut OperationSlots,
    pub undo: &'a UndoStore,
    pub marks: &'a mut MarkTable,
}

impl GroupStart<'_> {
    fn bits(&mut self) -> StoredBits<'_> {
        StoredBits {
            head: CellHead { node: self.node, peer: self.config.peer, tag: self.config.tag, ..CellHead::default() },
            writer: self.bitmap,
            activity: self.activity,
            volumes: self.volumes,
            slots: self.slots,
            config: self.config.activity,
            confirmed: self.sb.current.confirmed,
        }
    }

    /// Empties the activity log for the run whose incarnation is recorded next.
    pub fn reset_activity(&mut self, cx: &mut Cx) {
        let run = Incarnation(self.sb.current.identity.incarnation.0 + 1);
        self.bits().reset_activity(cx, run);
    }

    pub fn begin(&mut self, cx: &mut Cx, entropy: u64, boot: u128) {
        let id = self.config.id;
        let mut files =
            vec![Store::Superblock(id), Store::Bitmap(id), Store::Activity(id), Store::Journal(id), Store::Undo(id)];
        let has_queue = self.config.queue_disk_bytes > 0 && injected(Fault::QueueFlushedUnasked);
        files.extend(has_queue.then_some(Store::Queue(id)));
        self.lifecycle.enter_stage(StartStage::FlushFiles { left: files.len(), entropy, boot });
        for store in files {
            let token = self.slots.start(SlotOperation::StartRead);
            cx.out.push_back(Output::Flush { token, store });
        }
    }

    /// A read or flush of the start completed.
    pub fn read_done(&mut self, cx: &mut Cx, result: IoResult) -> Result<(), CannotStart> {
        let Some(stage) = self.lifecycle.stage() else { return Ok(()) };
        match stage {
            StartStage::FlushFiles { entropy, boot, .. } => {
                let done = self.lifecycle.one_done();
                if result.is_err() {
                    let why = "the group's files could not be flushed; see the kernel log for the disk of the state directory";
                    return Err(CannotStart::new(Broken::Superblock, why));
                } else if done {
                    self.lifecycle.enter_stage(StartStage::Marks { entropy, boot });
                    read_meta(self.slots, cx, Store::Marks(self.config.id), 0, marks::FILE_BYTES as u32);
                }
                Ok(())
            }
            StartStage::Marks { entropy, boot } => {
                let has_any = self.marks_read(cx, result)?;
                if has_any {
                    // What was read may stand in a cache alone.
                    self.lifecycle.enter_stage(StartStage::MarksFlush { entropy, boot });
                    let token = self.slots.start(SlotOperation::StartRead);
                    cx.out.push_back(Output::Flush { token, store: Store::Marks(self.config.id) });
                } else {
                    self.read_superblocks(cx, entropy, boot);
                }
                Ok(())
            }
            StartStage::MarksFlush { entropy, boot } => {
                if result.is_err() {
                    self.marks_are_unsound(cx);
                }
                self.read_superblocks(cx, entropy, boot);
                Ok(())
            }
            StartStage::Superblocks { entropy, boot } => match result {
                Ok(IoDone::Meta(bytes)) => self.superblocks_read(cx, &bytes, entropy, boot),
                _ => Err(CannotStart::unreadable(Broken::Superblock, "the superblock")),
            },
            StartStage::Blank { entropy, boot, beside } => self.beside_read(cx, result, beside, (entropy, boot)),
            StartStage::Wipe { .. } => {
                let done = self.lifecycle.one_done();
                if result.is_err() {
                    let why = "the group's files could not be written; see the kernel log";
                    return Err(CannotStart::new(Broken::Bits, why));
                } else if done {
                    self.lifecycle.enter_stage(StartStage::StoringBits);
                    self.bits().save_all(cx, AfterBits::Started);
                }
                Ok(())
            }
            StartStage::Bitmap { .. } | StartStage::Activity => match result {
                Ok(IoDone::Meta(bytes)) => self.bits_read(cx, &bytes),
                _ => Err(CannotStart::unreadable(Broken::Bits, "the bitmap or the activity log")),
            },
            StartStage::Idle
            | StartStage::Flush { .. }
            | StartStage::Undo
            | StartStage::Replay
            | StartStage::QueueFlush
            | StartStage::QueueHead
            | StartStage::QueueRead
            | StartStage::QueueMark
            | StartStage::QueueWrite
            | StartStage::Recording
            | StartStage::StoringBits
            | StartStage::EmptyingLog => {
                unreachable!("nothing was asked for")
            }
        }
    }

    /// Marks that cannot be read are lost by name, and nothing else is. True: the file holds something.
    fn marks_read(&mut self, cx: &mut Cx, result: IoResult) -> Result<bool, CannotStart> {
        let Ok(IoDone::Meta(bytes)) = result else {
            self.marks_are_unsound(cx);
            return Ok(false);
        };
        match self.marks.take_up(self.config.tag, &bytes) {
            FoundMarks::Whole => {}
            FoundMarks::Damaged(cells) => cx.event(self.config.id, Event::Note(lost_words(cells))),
            FoundMarks::OtherVersion(version) => {
                return Err(CannotStart::new(Broken::Marks, other_version("file of marks", version, marks::VERSION)));
            }
        }
        Ok(bytes.iter().any(|byte| *byte != 0))
    }

    fn marks_are_unsound(&mut self, cx: &mut Cx) {
        self.marks.cannot_be_relied_on();
        cx.event(self.config.id, Event::Note(LATCHED.into()));
    }

    fn read_superblocks(&mut self, cx: &mut Cx, entropy: u64, boot: u128) {
        self.lifecycle.enter_stage(StartStage::Superblocks { entropy, boot });
        read_meta(self.slots, cx, Store::Superblock(self.config.id), 0, superblock::FILE_BYTES as u32);
    }

    fn superblocks_read(&mut self, cx: &mut Cx, bytes: &[u8], entropy: u64, boot: u128) -> Result<(), CannotStart> {
        let read = superblock::read(bytes, self.config.tag);
        if let Ok(read) = &read
            && read.damaged > 0
        {
            let note = "a copy of the superblock is damaged or was torn; its twin or the other slot counts";
            cx.event(self.config.id, Event::Note(note.into()));
        }
        match read.map(|read| read.found) {
            Ok(Some(found)) => self.known_group(cx, found, boot),
            // New, unless what stands beside it says otherwise.
            Ok(None) => {
                self.look_beside(cx, OtherFiles::Log, (entropy, boot));
                Ok(())
            }
            Err(superblock::Rejected::Astray) => Err(CannotStart::new(
                Broken::Superblock,
                "a slot of the superblock was overwritten by a write that went astray: what it recorded last may be lost \
                     ('farshore inspect' shows the offsets); check the disk of the state directory, then restore the file, or \
                     remove the group's state directory here and sync in full from the other node",
            )),
            Err(superblock::Rejected::VersionUnknown(version)) => {
                Err(CannotStart::new(Broken::Superblock, other_version("superblock", version, superblock::VERSION)))
            }
            Err(superblock::Rejected::Foreign) => Err(CannotStart::new(
                Broken::Superblock,
                "the superblock in the state directory belongs to another cluster or group: give this group its own state \
                     directory back, or undo a renaming of cluster or group",
            )),
            Err(_) => Err(CannotStart::new(
                Broken::Superblock,
                "both copies of the superblock are damaged, so it is not known whose data the volumes hold ('farshore inspect' \
                 shows the offsets); restore the file, or remove the group's state directory here and sync in full from the \
                 other node",
            )),
        }
    }

    fn known_group(&mut self, cx: &mut Cx, found: Superblock, boot: u128) -> Result<(), CannotStart> {
        if (found.node, found.peer) == (self.config.peer, self.node) {
            return Err(CannotStart::new(Broken::Superblock, superblock::PEERS_DIRECTORY));
        }
        let (node, peer) = (self.node, self.config.peer);
        let current = Superblock { node, peer, boot, confirmed: Confirmed::default(), ..found.clone() };
        // As if that had been recorded before the reset.
        let found = Superblock { boot: if self.sb.lost_unrecorded() { 0 } else { found.boot }, ..found };
        self.sb.take_up(current, found.identity);
        self.sb.current.served_unverified &= !injected(Fault::ServedAloneForgotten);
        self.volumes.take_up_sizes(&found.sizes);
        self.take_up_confirmed(found.confirmed);
        self.set_unverified_run(&found, boot);
        let changed = found.clean && self.volumes.iter().any(|v| v.changed_outside());
        if changed {
            let note = "a volume was written while farshore was stopped: its copy is no longer trusted";
            cx.event(self.config.id, Event::Note(note.into()));
            self.changed_behind_our_back(found.identity.role);
        }
        self.read_bitmap(cx, 0);
        Ok(())
    }

    /// A first start that was cut short leaves no log but of the first run, no bits but those it began with, and no batch.
    fn beside_read(
        &mut self,
        cx: &mut Cx,
        result: IoResult,
        beside: OtherFiles,
        (entropy, boot): (u64, u128),
    ) -> Result<(), CannotStart> {
        let Ok(IoDone::Meta(bytes)) = result else {
            let why = "what stands beside a blank superblock cannot be read; see the kernel log for the disk of the state directory";
            return Err(CannotStart::new(Broken::Bits, why));
        };
        let tag = self.config.tag;
        let (file, lived) = match beside {
            OtherFiles::Log => ("activity log", log_lived(tag, &bytes)),
            OtherFiles::Bits => ("bitmap", cell::choose(bitmap::KIND, tag, 0, &bytes).highest > RELIED_ON_FROM),
            OtherFiles::Journal => (
                "journal",
                journal::JournalIndex::decode(journal::BatchOf::Journal, &bytes).is_some_and(|index| index.tag == tag),
            ),
        };
        if lived {
            let why = format!(
                "the superblock is blank, and the {file} beside it says that this group has lived: restore the file, or remove the \
                 group's state directory here and sync in full from the other node"
            );
            return Err(CannotStart::new(Broken::Superblock, why));
        }
        match beside {
            OtherFiles::Log => self.look_beside(cx, OtherFiles::Bits, (entropy, boot)),
            OtherFiles::Bits => self.look_beside(cx, OtherFiles::Journal, (entropy, boot)),
            OtherFiles::Journal => self.new_group(cx, entropy, boot),
        }
        Ok(())
    }

    fn bits_read(&mut self, cx: &mut Cx, bytes: &[u8]) -> Result<(), CannotStart> {
        match self.lifecycle.stage() {
            Some(StartStage::Bitmap { next }) => {
                for (index, bytes) in (next..).zip(bytes.chunks(CELL_BYTES as usize)) {
                    self.bitmap_cell_read(cx, index, bytes)?;
                }
                let next = (next + CELLS_PER_READ).min(self.bitmap.count());
                if next < self.bitmap.count() {
                    self.read_bitmap(cx, next);
                    return Ok(());
                }
                // Cells tell it of a whole device. One that is lost, or is looked for elsewhere since another volume grew, tells nothing.
                if let Some((id, before_bytes)) = self.volumes.recorded_beyond_device(&self.sb.current.sizes) {
                    return Err(self.volume_shrank(id, before_bytes));
                }
                self.lifecycle.enter_stage(StartStage::Activity);
                let length = activity::file_bytes(self.config.activity) as u32;
                read_meta(self.slots, cx, Store::Activity(self.config.id), 0, length);
                Ok(())
            }
            _ => self.activity_read(cx, bytes),
        }
    }

    /// False: the start failed.
    fn bitmap_cell_read(&mut self, cx: &mut Cx, index: usize, bytes: &[u8]) -> Result<(), CannotStart> {
        let (id, cell) = self.bitmap.position(index);
        let choice = cell::choose(bitmap::KIND, self.config.tag, index as u64 * CELL_BYTES, bytes);
        let read = choice.newest.and_then(|(head, body)| Ok((head, BitmapCell::decode(body)?)));
        let fits = |found: &BitmapCell| found.volume == id && found.first_region == cell * REGIONS_PER_CELL;
        match read {
            Err(Rejected::VersionUnknown(version)) => {
                return Err(CannotStart::new(Broken::Bits, other_version("bitmap", version, bitmap::VERSION)));
            }
            Ok((_, found)) if self.is_of_a_larger_volume(&found) => {
                return Err(self.volume_shrank(found.volume, found.volume_bytes));
            }
            Ok((head, found)) if fits(&found) && !choice.ambiguous => {
                self.bitmap.found(index, head.update);
                if choice.damaged > 0 {
                    self.copy_lost(cx, index, id);
                }
                self.take_up_cell(&found);
                if choice.damaged == 0 {
                    self.volumes.of(id).stored.set_cell(cell, &found.words);
                }
            }
            read => {
                // The next update goes over the slot that is left: torn, it leaves neither, and not what is older than the lost. Beside a
                // first update nothing was lost: the blank slot is written as well before anything follows from it.
                self.bitmap.found(index, if choice.highest > 1 { choice.highest + 1 } else { choice.highest });
                if let Ok((_, found)) = &read
                    && !choice.ambiguous
                {
                    self.take_up_moved_cell(index, found);
                }
                if !self.nothing_stood_there(index) {
                    self.cell_lost(cx, id, cell);
                }
            }
        }
        Ok(())
    }

    /// Rule 21: nothing is taken up over a volume that lost its end.
    fn volume_shrank(&self, id: VolumeId, before_bytes: u64) -> CannotStart {
        let why = format!(
            "volume {} of the group (in the order of names) shrank: it has {} here and had {}; give it its old size back, nothing was \
             touched",
            id.0 + 1,
            ExactSize(self.volumes.device_bytes(id)),
            ExactSize(before_bytes)
        );
        CannotStart::new(Broken::VolumeShrank, why)
    }

    fn activity_read(&mut self, cx: &mut Cx, bytes: &[u8]) -> Result<(), CannotStart> {
        let mut extents = Vec::new();
        let mut whole = true;
        for (index, bytes) in bytes.chunks(CELL_BYTES as usize).enumerate().take(self.activity.cells()) {
            let choice = cell::choose(activity::KIND, self.config.tag, index as u64 * CELL_BYTES, bytes);
            let read = choice.newest.and_then(|(head, body)| Ok((head, ActivityCell::decode(body)?)));
            match &read {
                Err(Rejected::VersionUnknown(version)) => {
                    let why = other_version("activity log", *version, activity::VERSION);
                    return Err(CannotStart::new(Broken::Bits, why));
                }
                Ok((_, found)) if self.is_of_a_later_run(found) => {
                    return Err(superblock_is_older("activity log", found.incarnation, &self.sb.current));
                }
                _ => {}
            }
            whole &= read.is_ok() && !choice.ambiguous;
            if let Ok((head, found)) = read {
                self.activity.found(index, head.update);
                self.take_up_confirmed(found.confirmed);
                extents.extend(found.extents);
            }
        }
        let unclean =
            !self.sb.current.clean && self.sb.current.identity.role == Role::Primary && !injected(Fault::HotForgotten);
        if unclean {
            cx.coverage.hit(CoveragePoint::UncleanPrimaryStart);
            self.hot_extents(cx, &extents, whole);
        } else if self.sb.current.identity.role == Role::Primary {
            cx.coverage.hit(CoveragePoint::CleanPrimaryStart);
        }
        if self.sb.current.compare {
            self.volumes.copies_mut().for_each(PeerCopy::set_all_unverified);
        }
        self.sb.current.compare = self.volumes.copies().any(PeerCopy::has_unverified);
        self.take_up_detached(cx)?;
        if self.sb.current.identity.role == Role::Primary {
            self.volumes.set_aside(&self.sb.current.aside);
        } else if injected(Fault::AsideForgotten) {
            self.sb.current.aside = VolumeSet::default();
        }
        self.lifecycle.enter_stage(StartStage::StoringBits);
        if self.bitmap.is_outgrown() && self.sb.current.identity.role == Role::Secondary {
            // Its size is its primary's, whatever its devices hold.
            self.bits().store_device_sizes(cx);
        }
        if self.bitmap.has_moved() {
            self.bits().save_all(cx, AfterBits::Started);
            return Ok(());
        }
        self.bits().save(cx, AfterBits::Started);
        Ok(())
    }

    /// Of a volume without a device nothing is here; nor of one that has a device again: all of it is to come from the peer.
    fn take_up_detached(&mut self, cx: &mut Cx) -> Result<(), CannotStart> {
        let detached = self.volumes.detached();
        let attached = self.sb.current.detached.without(&detached);
        if self.sb.current.identity.role == Role::Primary
            && let Some(named) = attached.named()
        {
            let why =
                format!("{named} was detached here, and what counts of it stands at the peer: {ATTACH_AS_SECONDARY}");
            return Err(CannotStart::new(Broken::Device, why));
        }
        self.without_devices(cx);
        for id in attached.iter().filter(|_| !injected(Fault::AttachTakenForWhole)) {
            cx.coverage.hit(CoveragePoint::VolumeAttached);
            is_unfilled(self.sb, id);
            self.volumes.copy_of(id).send_all();
        }
        Ok(())
    }

    fn without_devices(&mut self, cx: &mut Cx) {
        for id in self.volumes.detached().iter() {
            cx.coverage.hit(CoveragePoint::VolumeDetached);
            is_detached(self.sb, id);
            self.volumes.copy_of(id).send_all();
        }
    }

    fn look_beside(&mut self, cx: &mut Cx, beside: OtherFiles, (entropy, boot): (u64, u128)) {
        self.lifecycle.enter_stage(StartStage::Blank { entropy, boot, beside });
        let (store, length) = match beside {
            OtherFiles::Log => (Store::Activity(self.config.id), activity::file_bytes(self.config.activity) as u32),
            OtherFiles::Bits => (Store::Bitmap(self.config.id), CELL_BYTES as u32),
            OtherFiles::Journal => (Store::Journal(self.config.id), journal::INDEX_BYTES as u32),
        };
        read_meta(self.slots, cx, store, 0, length);
    }

    fn new_group(&mut self, cx: &mut Cx, entropy: u64, boot: u128) {
        let role = self.config.starts_as;
        let generation = match role {
            Role::Primary => Generation { number: 1, tag: entropy },
            Role::Secondary => Generation::BLANK,
        };
        self.sb.current = Superblock {
            tag: self.config.tag,
            node: self.node,
            peer: self.config.peer,
            identity: Identity { role, generation, ..Identity::default() },
            boot,
            alone: true,
            given_up: if role == Role::Primary && self.config.meets_peer_first { Seq(u64::MAX) } else { Seq::NONE },
            ..Superblock::default()
        };
        if role == Role::Primary {
            self.volumes.copies_mut().for_each(|copy| copy.dirty.set_all());
        }
        // Its other volumes came on new devices; of these there is nothing here.
        self.without_devices(cx);
        if role == Role::Primary {
            self.volumes.set_aside(&self.sb.current.aside);
        }
        self.lifecycle.enter_stage(StartStage::Wipe { left: 3 });
        let bitmap_bytes = bitmap::file_bytes(self.volumes.device_sizes().into_iter());
        let activity_bytes = activity::file_bytes(self.config.activity);
        // Of the undo store its first index: without it no batch behind it follows.
        let files = [
            (Store::Bitmap(self.config.id), bitmap_bytes),
            (Store::Activity(self.config.id), activity_bytes),
            (Store::Undo(self.config.id), undo::INDEX_BYTES as u64),
        ];
        for (store, length) in files {
            let token = self.slots.start(SlotOperation::StartRead);
            cx.out.push_back(Output::Zero { token, store, offset: 0, length, no_hole: true, durable: true });
        }
    }

    /// Somebody wrote a volume while this node was stopped. A secondary is no image any more. What a primary holds is what its
    /// owner wants, or an accident: its peer's copy stays as it is until the operator says so, and nothing is fetched over it.
    fn changed_behind_our_back(&mut self, role: Role) {
        let sb = &mut self.sb.current;
        match role {
            Role::Secondary => {
                sb.identity.generation = Generation::BLANK;
                sb.identity.inconsistent = true;
                (sb.rollback_point, sb.rolling_back) = (RollbackPoint::default(), false);
            }
            Role::Primary => {
                sb.changed_outside = true;
            }
        }
        sb.compare = true;
        self.volumes.copies_mut().for_each(|copy| copy.dirty.set_all());
    }

    /// A primary that stopped uncleanly in another boot of the machine lost what was not flushed; the peer may have it.
    fn set_unverified_run(&mut self, found: &Superblock, boot: u128) {
        let sb = &mut self.sb.current;
        // One that has not met its peer has never served.
        let lost_caches = !found.clean && (found.boot != boot || boot == 0) && !found.is_unmet();
        if sb.unverified_run == Incarnation(0) && lost_caches && found.identity.role == Role::Primary {
            let identity = &found.identity;
            sb.unverified_run = identity.incarnation;
            sb.unverified_generations = [identity.generation, identity.parent.generation];
            sb.served_unverified = false;
        }
    }

    // ---- bits ------------------------------------------------------------------------------------------------------

    fn read_bitmap(&mut self, cx: &mut Cx, next: usize) {
        self.lifecycle.enter_stage(StartStage::Bitmap { next });
        let count = (self.bitmap.count() - next).min(CELLS_PER_READ);
        read_meta(
            self.slots,
            cx,
            Store::Bitmap(self.config.id),
            next as u64 * CELL_BYTES,
            (count as u64 * CELL_BYTES) as u32,
        );
    }

    fn is_of_a_larger_volume(&self, found: &BitmapCell) -> bool {
        self.config
            .volumes
            .get(usize::from(found.volume.0))
            .is_some_and(|device| device.size_bytes < found.volume_bytes)
    }

    fn take_up_cell(&mut self, found: &BitmapCell) {
        self.take_up_confirmed(found.confirmed);
        self.volume_grew(found);
        self.volumes.of(found.volume).copy.dirty.join_cell(found.first_region / REGIONS_PER_CELL, &found.words);
    }

    /// Cells stand one after the other: where a device was enlarged, those of the volumes behind it belong further back.
    fn take_up_moved_cell(&mut self, at: usize, found: &BitmapCell) {
        if let Some(cell_index) = self.bitmap.belongs_behind(at, found) {
            self.bitmap.found_elsewhere(cell_index, at);
            self.take_up_cell(found);
        }
    }

    /// Whatever this cell holds, no bits are lost with it: they are known from where they stood before, which is overwritten later than
    /// this; or the group did not reach so far.
    fn nothing_stood_there(&self, index: usize) -> bool {
        let (id, cell) = self.bitmap.position(index);
        let begins_at = cell * REGIONS_PER_CELL * REGION_BYTES;
        let recorded = self.sb.current.sizes.get(usize::from(id.0));
        self.bitmap.was_found_elsewhere(index) || recorded.is_some_and(|size| *size <= begins_at)
    }

    /// What a record left out rests on this: the newest of all counts. Others are of a history that this node left.
    pub fn take_up_confirmed(&mut self, found: Confirmed) {
        let sb = &mut self.sb.current;
        let ours = sb.identity.role == Role::Primary && sb.identity.goes_on_from(found.position.generation);
        if ours && !injected(Fault::ConfirmedForgotten) {
            sb.confirmed = sb.confirmed.max(found);
        }
    }

    /// What lies behind the old end of the group was never compared.
    fn volume_grew(&mut self, was: &BitmapCell) {
        if was.volume_bytes == self.volumes.device_bytes(was.volume) {
            return;
        }
        let before_bytes = self.sb.current.sizes.get(usize::from(was.volume.0)).copied().unwrap_or(was.volume_bytes);
        self.bitmap.device_grew(was.volume, was.volume_bytes);
        if self.sb.current.identity.role == Role::Primary {
            // A secondary follows its primary.
            self.volumes.device_grew(was.volume);
        }
        let volume = self.volumes.of(was.volume);
        if before_bytes < volume.size_bytes() {
            volume.copy.set_unverified(before_bytes / REGION_BYTES, bitmap::regions(volume.size_bytes()) - 1);
        }
    }

    /// A copy of a cell does not count, and another does: should that one be lost as well, an older update would count. So
    /// nothing of it is taken for stored until it is written anew.
    fn copy_lost(&mut self, cx: &mut Cx, index: usize, id: VolumeId) {
        self.bitmap.write_again(index);
        let note = format!(
            "a copy of the stored dirty regions of volume {} is damaged or was torn; its twin or the other slot counts",
            id.0 + 1
        );
        cx.event(self.config.id, Event::Note(note));
    }

    /// What a cell held is not known: all of it may differ.
    fn cell_lost(&mut self, cx: &mut Cx, id: VolumeId, cell: u64) {
        cx.coverage.hit(CoveragePoint::BitmapCellLost);
        let size = self.volumes.of(id).size_bytes();
        let first = cell * REGIONS_PER_CELL;
        let last = (first + REGIONS_PER_CELL).min(bitmap::regions(size)).saturating_sub(1);
        let (from, to) = (first * REGION_BYTES, ((last + 1) * REGION_BYTES).min(size));
        let note = format!(
            "the stored dirty regions of volume {} from byte {from} to {to} are damaged: all of it will be compared",
            id.0 + 1
        );
        cx.event(self.config.id, Event::Note(note));
        if size > 0 {
            self.volumes.copy_of(id).set_unverified(first, last);
        }
    }

    /// A start empties the log in the name of the run that it records next; what a run logs comes after that.
    fn is_of_a_later_run(&self, log: &ActivityCell) -> bool {
        let recorded = self.sb.current.identity.incarnation.0;
        let latest = if log.extents.is_empty() { recorded + 1 } else { recorded };
        log.incarnation.0 > latest
    }

    /// What was being written when this primary stopped may differ; nothing else can.
    fn hot_extents(&mut self, cx: &mut Cx, extents: &[activity::Extent], whole: bool) {
        if !whole {
            cx.coverage.hit(CoveragePoint::ActivityLogLost);
            let note = "the activity log is damaged: every region will be compared";
            cx.event(self.config.id, Event::Note(note.into()));
            self.sb.current.compare = true;
            return self.volumes.copies_mut().for_each(|copy| copy.dirty.set_all());
        }
        let extent_bytes = self.config.activity.extent_bytes;
        for extent in extents {
            let Some(volume) = self.volumes.get_mut(usize::from(extent.volume.0)) else { continue };
            let size = volume.size_bytes();
            volume.copy.begin_verification();
            if let Some((first, last)) = regions_of(*extent, extent_bytes, size) {
                volume.copy.set_unverified(first, last);
            }
        }
        cx.event(self.config.id, Event::HotExtents { extents: extents.len() as u64, extent_bytes });
    }

    /// The bits are stored: the log may be emptied, this run has its own.
    pub fn bits_started(&mut self, cx: &mut Cx) {
        if !self.lifecycle.is_at(StartStage::StoringBits) {
            // Stopped while starting.
            return;
        }
        self.lifecycle.enter_stage(StartStage::EmptyingLog);
        self.reset_activity(cx);
    }

    /// What an earlier run left in caches becomes durable before this run gives its first number.
    pub fn flush_then_record(&mut self, cx: &mut Cx) {
        self.lifecycle.enter_stage(StartStage::Flush { left: self.volumes.len() });
        for index in 0..self.volumes.len() {
            let token = self.slots.start(SlotOperation::StartRead);
            let store = self.volumes.flush_store(self.config.id, VolumeId(index as u16));
            cx.out.push_back(Output::Flush { token, store });
        }
    }

    /// A volume's flush has ended.
    pub fn volume_flushed(&mut self, result: IoResult) -> Result<(), CannotStart> {
        self.lifecycle.one_done();
        match result {
            Ok(_) => Ok(()),
            Err(_) => Err(CannotStart::new(Broken::VolumeFlush, "a volume could not be flushed after replay")),
        }
    }

    // ---- ready -----------------------------------------------------------------------------------------------------

    pub fn record(&mut self, cx: &mut Cx) {
        self.lifecycle.enter_stage(StartStage::Recording);
        self.sb.current.identity.incarnation.0 += u64::from(!injected(Fault::NumberReused));
        self.sb.current.clean = false;
        let sizes = self.volumes.sizes();
        let is_primary = self.sb.current.identity.role == Role::Primary;
        if is_primary && self.sb.current.sizes.iter().zip(&sizes).any(|(before, now)| before < now) {
            cx.coverage.hit(CoveragePoint::PrimaryGrew);
        }
        self.sb.current.sizes = sizes;
        without_devices(self.sb, self.volumes.detached());
        self.sb.begin_flush_points(self.volumes.len());
        self.sb.save(self.undo, self.slots, cx, Some(AfterSuper::Ready));
    }
}

fn log_lived(tag: u64, bytes: &[u8]) -> bool {
    bytes.chunks(CELL_BYTES as usize).enumerate().any(|(index, bytes)| {
        let choice = cell::choose(activity::KIND, tag, index as u64 * CELL_BYTES, bytes);
        let found = choice.newest.and_then(|(_, body)| ActivityCell::decode(body));
        found.is_ok_and(|found| found.incarnation > Incarnation(1) || !found.extents.is_empty())
    })
}

/// How a volume that was detached on a primary has a device again.
pub(crate) const ATTACH_AS_SECONDARY: &str = "'farshore demote GROUP' here, 'farshore promote GROUP --force' on the peer, and then 'farshore group attach GROUP VOLUME' here";

/// Why a file of another version cannot be used, and what to do.
pub(crate) fn other_version(what: &str, version: u16, known: u16) -> String {
    if version > known {
        return format!(
            "the {what} is of a newer version of farshore (format version {version}, this one knows {known}); upgrade this node"
        );
    }
    format!(
        "the {what} is of format version {version}, which was never released (this one knows {known}): remove the group's \
         state directory here and sync in full from the other node"
    )
}

/// Some file of the group says that the superblock has seen later runs.
pub(crate) fn superblock_is_older(than: &str, run: Incarnation, superblock: &Superblock) -> CannotStart {
    let why = format!(
        "the superblock is older than the {than} beside it (run {} there, run {} here): an old copy was restored, or its \
         last update was lost. Bring back all files of the group's state directory as they were when this node stopped last, or \
         remove the directory and sync in full from the other node",
        run.0, superblock.identity.incarnation.0
    );
    CannotStart::new(Broken::Superblock, why)
}

/// A read of the start.
pub(crate) fn read_meta(slots: &mut OperationSlots, cx: &mut Cx, store: Store, offset: u64, length: u32) {
    let token = slots.start(SlotOperation::StartRead);
    cx.out.push_back(Output::ReadMeta { token, store, offset, length });
}
