//! Taking up a group: superblock, dirty regions, journal replay (secondary), then a new incarnation, durable before the
//! first number or batch of this run (rule 5).
//!
//! ```text
//! files durable -> superblock -> bitmap -> activity log -> [bits stored, log emptied] -> [secondary: replay] -> flush -> record -> ready
//! ```

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::activity::{self, ActivityCell};
use crate::bitmap::Bitmap;
use crate::bitmap::{self, BitmapCell, REGIONS_PER_CELL};
use crate::bits::{AfterBits, mark_extent};
use crate::cell::{self, CELL_BYTES, Rejected};
use crate::group::{Cx, Group, Phase};
use crate::identity::{Identity, Role};
use crate::ids::*;
use crate::journal::{self, Entry, INDEX_BYTES, Index, LiveBatch, RecordKind, Ring};
use crate::limits::REGION_BYTES;
use crate::marks::Mark;
use crate::planted::{Fault, planted};
use crate::record::AfterSuper;
use crate::replica::{Content, Record};
use crate::rollback::Scan;
use crate::slots::Op;
use crate::state::{Broken, State};
use crate::superblock::{self, JournalHead, RollbackPoint, Superblock};
use crate::undo;
use crate::wire::Kind;
use crate::{Event, IoDone, IoError, Output, Store};

/// Cells of the bitmap read at once: 1 MiB.
const CELLS_PER_READ: usize = 64;

/// How far the start has come.
#[derive(Debug)]
pub(crate) enum StartStage {
    Idle,
    /// What a killed run had not made durable still reads as if it were; a power loss would take it back.
    Settling {
        left: usize,
        entropy: u64,
        boot: u128,
    },
    Superblocks {
        entropy: u64,
        boot: u128,
    },
    /// A new group: what an older one may have left in these files is wiped.
    Wipe {
        left: u32,
    },
    /// Cells are read from this one on.
    Bitmap {
        next: usize,
    },
    Activity,
    StoringBits,
    EmptyingLog,
    /// A sync was under way: what it overwrote is read back first.
    Undo(Scan),
    Replay(Replay),
    Flush {
        left: usize,
    },
    Recording,
}

/// Replay of the journal, one batch at a time: read, check whole, apply.
#[derive(Debug)]
pub(crate) struct Replay {
    /// Where the next batch is expected.
    next: JournalHead,
    /// Not found there: it may have wrapped.
    tried_start: bool,
    /// Last number read back, or applied before.
    last: Seq,
    /// Applied before: read back only for a primary that may have lost it.
    applied: Seq,
    /// Where it began, and the whole batches since.
    head: JournalHead,
    live: Vec<LiveBatch>,
    batch: Option<Index>,
    payloads: Vec<crate::Buf>,
    damaged: bool,
    applying: bool,
    records: u64,
}

impl Group {
    pub fn start(&mut self, cx: &mut Cx, entropy: u64, boot: u128) {
        self.entropy = entropy;
        let id = self.id();
        let files =
            [Store::Superblock(id), Store::Bitmap(id), Store::Activity(id), Store::Journal(id), Store::Undo(id)];
        self.phase = Phase::Starting(StartStage::Settling { left: files.len(), entropy, boot });
        for store in files {
            let token = self.start_op(Op::StartRead);
            cx.out.push_back(Output::Flush { token, store });
        }
    }

    pub fn read_meta(&mut self, cx: &mut Cx, store: Store, offset: u64, length: u32) {
        let token = self.start_op(Op::StartRead);
        cx.out.push_back(Output::ReadMeta { token, store, offset, length });
    }

    /// A read or flush of the start completed.
    pub fn start_read_done(&mut self, cx: &mut Cx, result: Result<IoDone, IoError>) {
        let Phase::Starting(stage) = &mut self.phase else { return };
        match stage {
            StartStage::Settling { left, entropy, boot } => {
                *left -= 1;
                let (done, entropy, boot) = (*left == 0, *entropy, *boot);
                if result.is_err() {
                    self.start_failed(
                        cx,
                        Broken::Superblock,
                        "the group's files could not be flushed; see the kernel log for the disk of the state directory",
                    );
                } else if done {
                    self.phase = Phase::Starting(StartStage::Superblocks { entropy, boot });
                    self.read_meta(cx, Store::Superblock(self.id()), 0, superblock::FILE_BYTES as u32);
                }
            }
            StartStage::Superblocks { entropy, boot } => {
                let (entropy, boot) = (*entropy, *boot);
                match result {
                    Ok(IoDone::Meta(bytes)) => self.superblocks_read(cx, &bytes, entropy, boot),
                    _ => self.start_failed(
                        cx,
                        Broken::Superblock,
                        "the superblock cannot be read; see the kernel log for the disk of the state directory",
                    ),
                }
            }
            StartStage::Wipe { left } => {
                *left -= 1;
                let done = *left == 0;
                if result.is_err() {
                    self.start_failed(cx, Broken::Bits, "the group's files could not be written; see the kernel log");
                } else if done {
                    self.phase = Phase::Starting(StartStage::StoringBits);
                    self.save_all_bits(cx, AfterBits::Started);
                }
            }
            StartStage::Bitmap { .. } | StartStage::Activity => match result {
                Ok(IoDone::Meta(bytes)) => self.bits_read(cx, &bytes),
                _ => self.start_failed(
                    cx,
                    Broken::Bits,
                    "the bitmap or the activity log cannot be read; see the kernel log for the disk of the state directory",
                ),
            },
            StartStage::Undo(_) => self.undo_read(cx, result),
            StartStage::Replay(_) => self.replay_read(cx, result),
            StartStage::Flush { left } => {
                *left -= 1;
                let done = *left == 0;
                if result.is_err() {
                    self.start_failed(cx, Broken::VolumeFlush, "a volume could not be flushed after replay");
                } else if done {
                    self.record(cx);
                }
            }
            StartStage::Idle | StartStage::Recording | StartStage::StoringBits | StartStage::EmptyingLog => {
                unreachable!("nothing was asked for")
            }
        }
    }

    pub fn start_failed(&mut self, cx: &mut Cx, broken: Broken, why: &str) {
        cx.event(self.id(), Event::Note(why.into()));
        self.phase = Phase::Running;
        self.fail(cx, broken);
        self.reason = why.into();
    }

    fn superblocks_read(&mut self, cx: &mut Cx, bytes: &[u8], entropy: u64, boot: u128) {
        let read = superblock::read(bytes, self.config.tag);
        if let Ok(read) = &read
            && read.damaged > 0
        {
            let note = "a copy of the superblock is damaged or was torn; its twin or the other slot counts";
            cx.event(self.id(), Event::Note(note.into()));
        }
        match read.map(|read| read.found) {
            Ok(Some(found)) => self.known_group(cx, found, boot),
            Ok(None) => self.new_group(cx, entropy, boot),
            Err(superblock::Rejected::Astray) => {
                self.start_failed(
                    cx,
                    Broken::Superblock,
                    "a slot of the superblock was overwritten by a write that went astray: what it recorded last may be lost \
                     ('farshore inspect' shows the places); check the disk of the state directory, then restore the file, or \
                     remove the group's state directory here and sync in full from the other node",
                );
            }
            Err(superblock::Rejected::VersionUnknown(version)) => {
                self.start_failed(cx, Broken::Superblock, &other_version("superblock", version, superblock::VERSION));
            }
            Err(superblock::Rejected::Foreign) => {
                self.start_failed(cx, Broken::Superblock, "the superblock in the state directory belongs to another cluster or group: give this group its own state \
                     directory back, or undo a renaming of cluster or group");
            }
            Err(_) => self.start_failed(cx, Broken::Superblock, "both copies of the superblock are damaged, so it is not known whose data the volumes hold ('farshore inspect' \
                 shows the places); restore the file, or remove the group's state directory here and sync in full from the \
                 other node"),
        }
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
            ..Superblock::default()
        };
        if role == Role::Primary {
            self.volumes.iter_mut().for_each(|v| v.dirty.set_all());
        }
        self.phase = Phase::Starting(StartStage::Wipe { left: 3 });
        let bitmap_bytes = bitmap::file_bytes(self.config.volumes.iter().map(|v| v.size_bytes));
        let activity_bytes = activity::file_bytes(self.config.activity);
        // Of the undo store its first index: without it no batch behind it follows.
        let files = [
            (Store::Bitmap(self.id()), bitmap_bytes),
            (Store::Activity(self.id()), activity_bytes),
            (Store::Undo(self.id()), undo::INDEX_BYTES as u64),
        ];
        for (store, length) in files {
            let token = self.start_op(Op::StartRead);
            cx.out.push_back(Output::Zero { token, store, offset: 0, length, no_hole: true, durable: true });
        }
    }

    fn known_group(&mut self, cx: &mut Cx, found: Superblock, boot: u128) {
        if (found.node, found.peer) == (self.config.peer, self.node) {
            return self.start_failed(cx, Broken::Superblock, PEERS_DIRECTORY);
        }
        self.sb.current = Superblock { boot, ..found.clone() };
        self.put_run_in_doubt(&found, boot);
        self.replica.ring = Ring::new(self.config.journal_bytes, found.journal);
        let changed = found.clean && self.volumes.iter().any(|v| v.config.changed_outside);
        if changed {
            let note = "a volume was written while farshore was stopped: its copy is no longer trusted";
            cx.event(self.id(), Event::Note(note.into()));
        }
        if changed && found.identity.role == Role::Secondary {
            self.sb.current.identity.generation = Generation::BLANK;
            self.sb.current.identity.inconsistent = true;
            (self.sb.current.rollback_point, self.sb.current.rolling_back) = (RollbackPoint::default(), false);
        }
        if changed {
            self.sb.current.compare = true;
            self.volumes.iter_mut().for_each(|v| v.dirty.set_all());
        }
        self.read_bitmap(cx, 0);
    }

    /// A primary that stopped uncleanly in another boot of the machine lost what was not flushed; the peer may have it.
    fn put_run_in_doubt(&mut self, found: &Superblock, boot: u128) {
        let sb = &mut self.sb.current;
        let lost_caches = !found.clean && (found.boot != boot || boot == 0);
        if sb.in_doubt == Incarnation(0) && lost_caches && found.identity.role == Role::Primary {
            sb.in_doubt = found.identity.incarnation;
            sb.served_in_doubt = false;
        }
    }

    // ---- bits ------------------------------------------------------------------------------------------------------

    fn read_bitmap(&mut self, cx: &mut Cx, next: usize) {
        self.phase = Phase::Starting(StartStage::Bitmap { next });
        let count = (self.bitmap.count() - next).min(CELLS_PER_READ);
        self.read_meta(cx, Store::Bitmap(self.id()), next as u64 * CELL_BYTES, (count as u64 * CELL_BYTES) as u32);
    }

    fn bits_read(&mut self, cx: &mut Cx, bytes: &[u8]) {
        match &self.phase {
            Phase::Starting(StartStage::Bitmap { next }) => {
                let next = *next;
                for (index, bytes) in (next..).zip(bytes.chunks(CELL_BYTES as usize)) {
                    if !self.bitmap_cell_read(cx, index, bytes) {
                        return;
                    }
                }
                let next = (next + CELLS_PER_READ).min(self.bitmap.count());
                if next < self.bitmap.count() {
                    return self.read_bitmap(cx, next);
                }
                self.phase = Phase::Starting(StartStage::Activity);
                let length = activity::file_bytes(self.config.activity) as u32;
                self.read_meta(cx, Store::Activity(self.id()), 0, length);
            }
            _ => self.activity_read(cx, bytes),
        }
    }

    /// False: the start failed.
    fn bitmap_cell_read(&mut self, cx: &mut Cx, index: usize, bytes: &[u8]) -> bool {
        let (id, cell) = self.bitmap.place(index);
        let choice = cell::choose(bitmap::KIND, self.config.tag, index as u64 * CELL_BYTES, bytes);
        let read = choice.newest.and_then(|(head, body)| Ok((head, BitmapCell::decode(body)?)));
        let fits = |found: &BitmapCell| found.volume == id && found.first_region == cell * REGIONS_PER_CELL;
        match read {
            Err(Rejected::VersionUnknown(version)) => {
                self.start_failed(cx, Broken::Bits, &other_version("bitmap", version, bitmap::VERSION));
                return false;
            }
            Ok((_, found)) if fits(&found) && found.volume_bytes > self.volume(id).config.size_bytes => {
                self.volume_shrank(cx, &found);
                return false;
            }
            Ok((head, found)) if fits(&found) && !choice.in_doubt => {
                self.bitmap.found(index, head.update);
                self.volume_grew(&found);
                let volume = self.volume(id);
                volume.stored.set_cell(cell, &found.words);
                for (at, word) in found.words.iter().enumerate() {
                    volume.dirty.join_word(cell * REGIONS_PER_CELL / 64 + at as u64, *word);
                }
            }
            other => {
                self.bitmap.found(index, other.map_or(0, |(head, _)| head.update));
                self.cell_lost(cx, id, cell);
            }
        }
        true
    }

    /// Rule 21: nothing is taken up over a volume that lost its end.
    fn volume_shrank(&mut self, cx: &mut Cx, was: &BitmapCell) {
        let why = format!(
            "volume {} of the group (in the order of names) shrank: it has {} bytes here and had {}; give it its old size \
             back, nothing was touched",
            was.volume.0 + 1,
            self.volume(was.volume).config.size_bytes,
            was.volume_bytes
        );
        self.start_failed(cx, Broken::VolumeShrank, &why);
    }

    /// What lies behind the old end was never compared.
    fn volume_grew(&mut self, was: &BitmapCell) {
        let volume = self.volume(was.volume);
        let regions = bitmap::regions(volume.config.size_bytes);
        if was.volume_bytes < volume.config.size_bytes {
            volume.put_in_doubt(was.volume_bytes / REGION_BYTES, regions - 1);
            self.bitmap.outgrown = true;
        }
    }

    /// What a cell held is not known: all of it may differ.
    fn cell_lost(&mut self, cx: &mut Cx, id: VolumeId, cell: u64) {
        cx.marks.hit(Mark::BitmapCellLost);
        let size = self.volume(id).config.size_bytes;
        let first = cell * REGIONS_PER_CELL;
        let last = (first + REGIONS_PER_CELL).min(bitmap::regions(size)).saturating_sub(1);
        let (from, to) = (first * REGION_BYTES, ((last + 1) * REGION_BYTES).min(size));
        let note = format!(
            "the stored dirty regions of volume {} from byte {from} to {to} are damaged: all of it will be compared",
            id.0 + 1
        );
        cx.event(self.id(), Event::Note(note));
        if size > 0 {
            self.volume(id).put_in_doubt(first, last);
        }
    }

    fn activity_read(&mut self, cx: &mut Cx, bytes: &[u8]) {
        let mut extents = Vec::new();
        let mut whole = true;
        for (index, bytes) in bytes.chunks(CELL_BYTES as usize).enumerate().take(self.activity.cells()) {
            let choice = cell::choose(activity::KIND, self.config.tag, index as u64 * CELL_BYTES, bytes);
            let read = choice.newest.and_then(|(head, body)| Ok((head, ActivityCell::decode(body)?)));
            match &read {
                Err(Rejected::VersionUnknown(version)) => {
                    let why = other_version("activity log", *version, activity::VERSION);
                    return self.start_failed(cx, Broken::Bits, &why);
                }
                Ok((_, found)) if self.is_of_a_later_run(found) => {
                    return self.superblock_is_older(cx, "activity log", found.incarnation);
                }
                _ => {}
            }
            whole &= read.is_ok() && !choice.in_doubt;
            if let Ok((head, found)) = read {
                self.activity.found(index, head.update);
                extents.extend(found.extents);
            }
        }
        let unclean = !self.sb.current.clean && self.role() == Role::Primary && !planted(Fault::HotForgotten);
        if unclean {
            cx.marks.hit(Mark::UncleanPrimaryStart);
            self.hot_extents(cx, &extents, whole);
        } else if self.role() == Role::Primary {
            cx.marks.hit(Mark::CleanPrimaryStart);
        }
        if self.sb.current.compare {
            for volume in &mut self.volumes {
                volume.doubt = Some(volume.dirty.clone());
            }
        }
        self.sb.current.compare = self.volumes.iter().any(|volume| volume.doubt.is_some());
        self.phase = Phase::Starting(StartStage::StoringBits);
        if core::mem::take(&mut self.bitmap.outgrown) {
            self.save_all_bits(cx, AfterBits::Started);
        } else {
            self.save_bits(cx, AfterBits::Started);
        }
    }

    /// A start empties the log in the name of the run that it records next; what a run logs comes after that.
    fn is_of_a_later_run(&self, log: &ActivityCell) -> bool {
        let recorded = self.sb.current.identity.incarnation.0;
        let latest = if log.extents.is_empty() { recorded + 1 } else { recorded };
        log.incarnation.0 > latest
    }

    fn superblock_is_older(&mut self, cx: &mut Cx, than: &str, run: Incarnation) {
        let why = format!(
            "the superblock is older than the {than} beside it (run {} there, run {} here): an old copy was restored, or its \
             last update was lost. Bring back all files of the group's state directory as they were, or remove the directory \
             and sync in full from the other node",
            run.0, self.sb.current.identity.incarnation.0
        );
        self.start_failed(cx, Broken::Superblock, &why);
    }

    /// What was being written when this primary stopped may differ; nothing else can.
    fn hot_extents(&mut self, cx: &mut Cx, extents: &[activity::Extent], whole: bool) {
        if !whole {
            cx.marks.hit(Mark::ActivityLogLost);
            let note = "the activity log is damaged: every region will be compared";
            cx.event(self.id(), Event::Note(note.into()));
            self.sb.current.compare = true;
            return self.volumes.iter_mut().for_each(|v| v.dirty.set_all());
        }
        let extent_bytes = self.config.activity.extent_bytes;
        for extent in extents {
            let Some(volume) = self.volumes.get_mut(usize::from(extent.volume.0)) else { continue };
            let size = volume.config.size_bytes;
            let doubt = volume.doubt.get_or_insert_with(|| Bitmap::new(size));
            mark_extent(doubt, *extent, extent_bytes, size);
            mark_extent(&mut volume.dirty, *extent, extent_bytes, size);
        }
        cx.event(self.id(), Event::HotExtents { extents: extents.len() as u64, extent_bytes });
    }

    /// The bits are stored: the log may be emptied, this run has its own.
    pub fn bits_started(&mut self, cx: &mut Cx) {
        self.phase = Phase::Starting(StartStage::EmptyingLog);
        self.reset_activity(cx);
    }

    /// The log on disk is empty; false: this is no start.
    pub fn start_activity_reset(&mut self, cx: &mut Cx) -> bool {
        if !matches!(self.phase, Phase::Starting(StartStage::EmptyingLog)) {
            return false;
        }
        let known = self.sb.current.update > 0;
        match self.role() {
            Role::Secondary if known && self.sb.current.rollback_point.id != 0 => self.begin_scan(cx),
            Role::Secondary if known => self.begin_replay(cx),
            _ => self.flush_then_record(cx),
        }
        true
    }

    // ---- replay ----------------------------------------------------------------------------------------------------

    pub fn begin_replay(&mut self, cx: &mut Cx) {
        let position = self.sb.current.identity.position;
        self.replica.stand_at(position, self.sb.current.applied_wall);
        self.phase = Phase::Starting(StartStage::Replay(Replay {
            next: self.sb.current.journal,
            tried_start: false,
            last: position.seq,
            applied: position.seq,
            head: self.sb.current.journal,
            live: Vec::new(),
            batch: None,
            payloads: Vec::new(),
            damaged: false,
            applying: false,
            records: 0,
        }));
        self.read_next_batch(cx);
    }

    fn replay_mut(&mut self) -> &mut Replay {
        match &mut self.phase {
            Phase::Starting(StartStage::Replay(replay)) => replay,
            other => unreachable!("replay is under way, not {other:?}"),
        }
    }

    fn read_next_batch(&mut self, cx: &mut Cx) {
        let offset = self.replay_mut().next.offset;
        if offset + INDEX_BYTES as u64 > self.config.journal_bytes {
            return self.no_batch_here(cx);
        }
        self.read_meta(cx, Store::Journal(self.id()), offset, INDEX_BYTES as u32);
    }

    fn no_batch_here(&mut self, cx: &mut Cx) {
        let replay = self.replay_mut();
        if !replay.tried_start && replay.next.offset != 0 {
            // It may stand at the ring's start: the writer wraps when a batch does not fit at the end.
            replay.tried_start = true;
            self.read_meta(cx, Store::Journal(self.config.id), 0, INDEX_BYTES as u32);
        } else {
            self.replay_ended(cx);
        }
    }

    fn replay_read(&mut self, cx: &mut Cx, result: Result<IoDone, IoError>) {
        if self.replay_mut().batch.is_none() {
            return match result {
                Ok(IoDone::Meta(block)) => self.index_read(cx, &block),
                _ => self.start_failed(
                    cx,
                    Broken::Journal,
                    "the journal cannot be read; see the kernel log for the disk of the state directory",
                ),
            };
        }
        let replay = self.replay_mut();
        match result {
            Ok(IoDone::Payload { buf, .. }) => replay.payloads.push(buf),
            Err(IoError::Damaged) => replay.damaged = true,
            _ => {
                return self.start_failed(
                    cx,
                    Broken::Journal,
                    "the journal cannot be read; see the kernel log for the disk of the state directory",
                );
            }
        }
        self.read_next_payload(cx);
    }

    /// Whether the block is the batch that follows.
    fn follows(&mut self, index: &Index, offset: u64) -> bool {
        let identity = self.sb.current.identity;
        let (tag, ring_bytes, own_from) =
            (self.config.tag, self.config.journal_bytes, self.sb.current.own_from_ordinal);
        let replay = self.replay_mut();
        let first = index.entries.first().map_or(Seq::NONE, |e| e.seq);
        let consecutive = index.entries.windows(2).all(|w| w[0].seq.next() == w[1].seq);
        // The first ones may hold what was applied before: it is kept while the primary may not have flushed it.
        let in_order = if replay.live.is_empty() { first <= replay.last.next() } else { first == replay.last.next() };
        let own = index.boot == identity.incarnation;
        index.tag == tag
            && index.ring_offset == offset
            && index.ordinal == replay.next.ordinal
            // A start records with its own run how far whole batches reach, so whatever follows is of that run; a batch of
            // another is a left-over behind an earlier torn tail.
            && (own
                || (index.boot < identity.incarnation && index.ordinal < own_from))
            && index.generation == identity.position.generation
            && index.incarnation == identity.position.incarnation
            // A cut is one step, or none: what of it had landed is not replayed.
            && index.cut == 0
            && offset + u64::from(index.bytes) <= ring_bytes
            && consecutive
            && in_order
    }

    fn index_read(&mut self, cx: &mut Cx, block: &[u8]) {
        let replay = self.replay_mut();
        let offset = if replay.tried_start { 0 } else { replay.next.offset };
        match Index::decode(block) {
            Some(index) if self.follows(&index, offset) => {
                let sizes_fit = index.entries.iter().all(|e| self.entry_fits(e));
                let replay = self.replay_mut();
                if !sizes_fit {
                    return self.start_failed(
                        cx,
                        Broken::Journal,
                        "the journal holds writes past the end of a volume: a volume shrank; give it its old size back",
                    );
                }
                replay.payloads.clear();
                replay.damaged = false;
                replay.batch = Some(index);
                self.read_next_payload(cx);
            }
            other => self.not_the_next_batch(cx, other.as_ref(), block),
        }
    }

    /// The journal ends here, unless the block says that it must not be read by these rules.
    fn not_the_next_batch(&mut self, cx: &mut Cx, index: Option<&Index>, block: &[u8]) {
        if let Some(index) = index
            && index.tag == self.config.tag
            && index.boot > self.sb.current.identity.incarnation
        {
            return self.superblock_is_older(cx, "journal", index.boot);
        }
        match Index::other_version(block) {
            Some(version) => {
                let why = other_version("journal", version, journal::VERSION);
                self.start_failed(cx, Broken::Journal, &why);
            }
            None => self.no_batch_here(cx),
        }
    }

    fn entry_fits(&self, entry: &Entry) -> bool {
        let size = self.volumes.get(usize::from(entry.volume.0)).map(|v| v.config.size_bytes);
        matches!(entry.kind, RecordKind::Void | RecordKind::SyncEnd)
            || size.is_some_and(|size| entry.offset.checked_add(entry.length).is_some_and(|end| end <= size))
    }

    fn read_next_payload(&mut self, cx: &mut Cx) {
        let replay = self.replay_mut();
        let Some(index) = &replay.batch else { return };
        if replay.damaged {
            // Torn: the crash came while it was written, it was never confirmed.
            cx.marks.hit(Mark::JournalTornTail);
            return self.replay_ended(cx);
        }
        let next = index.entries.iter().filter(|e| e.payload_bytes > 0).nth(replay.payloads.len()).copied();
        let base = index.ring_offset;
        match next {
            Some(entry) => {
                let token = self.start_op(Op::StartRead);
                cx.out.push_back(Output::Read {
                    token,
                    store: Store::Journal(self.id()),
                    offset: base + u64::from(entry.payload_at),
                    length: entry.payload_bytes,
                    crc: (!planted(Fault::ReplayTorn)).then_some(entry.payload_crc),
                });
            }
            None => self.apply_batch(cx),
        }
    }

    fn apply_batch(&mut self, cx: &mut Cx) {
        let replay = self.replay_mut();
        let Some(index) = &replay.batch else { return };
        let mut payloads = core::mem::take(&mut replay.payloads).into_iter();
        let records: Vec<Record> = index
            .entries
            .iter()
            .map(|e| Record {
                seq: e.seq,
                volume: e.volume,
                offset: e.offset,
                length: e.length,
                wall: e.wall,
                crc: e.payload_crc,
                content: match e.kind {
                    RecordKind::Data => payloads.next().map_or(Content::Void, Content::Data),
                    RecordKind::Zero => Content::Zero { no_hole: e.no_hole },
                    RecordKind::Void => Content::Void,
                    RecordKind::SyncEnd => Content::SyncEnd,
                },
                cost: 0,
                resync: e.resync,
            })
            .collect();
        let applied = replay.applied;
        replay.last = index.last();
        replay.records += records.iter().filter(|record| record.seq > applied).count() as u64;
        replay.live.push(LiveBatch { offset: index.ring_offset, ordinal: index.ordinal, last: index.last() });
        replay.next = JournalHead { offset: index.ring_offset + u64::from(index.bytes), ordinal: index.ordinal + 1 };
        replay.tried_start = false;
        replay.applying = true;
        // What was on the volumes before is only remembered, for a primary that may have lost it.
        self.replica.remember(&records);
        self.replica.replay(records.into_iter().filter(|record| record.seq > applied).collect());
        self.apply(cx);
        self.replay_goes_on(cx);
    }

    /// Called when applied records may have completed: the next batch, once this one is on the volumes.
    pub fn replay_goes_on(&mut self, cx: &mut Cx) {
        if !matches!(&self.phase, Phase::Starting(StartStage::Replay(r)) if r.applying) || !self.replica.replayed() {
            return;
        }
        let replay = self.replay_mut();
        replay.applying = false;
        replay.batch = None;
        self.read_next_batch(cx);
    }

    fn replay_ended(&mut self, cx: &mut Cx) {
        let replay = self.replay_mut();
        let (next, records, last) = (replay.next, replay.records, replay.last.max(replay.applied));
        let (head, live) = (replay.head, core::mem::take(&mut replay.live));
        if next.ordinal < self.sb.current.confirmed_ordinal {
            self.journal_damaged(cx, next, last);
        }
        if records > 0 {
            cx.marks.hit(Mark::JournalReplayedRecords);
        }
        let position = Position { seq: last, ..self.sb.current.identity.position };
        let wall = self.replica.written_wall();
        if self.replica.take_sync_end() {
            self.sb.current.identity.inconsistent = false;
            self.sb.current.rollback_point = RollbackPoint::default();
        }
        self.replica.stand_at(position, wall);
        self.replica.kept_from_journal();
        self.replica.ring = Ring::with(self.config.journal_bytes, next, live);
        self.sb.current.identity.position = position;
        self.sb.current.journal = if self.replica.kept.is_empty() { next } else { head };
        self.sb.current.own_from_ordinal = next.ordinal;
        self.sb.current.confirmed_ordinal = next.ordinal;
        if self.replica.kept.is_empty() {
            _ = self.replica.ring.trim(next);
        }
        self.sb.current.applied_wall = wall;
        cx.event(self.id(), Event::Replayed { to: position, records });
        self.flush_then_record(cx);
    }

    /// A batch that was durable is not whole any more. What came after it may be on the volumes already, in part: this is no
    /// prefix (P2) before a sync has ended, and what is missing stands dirty at the primary.
    fn journal_damaged(&mut self, cx: &mut Cx, at: JournalHead, last: Seq) {
        cx.marks.hit(Mark::JournalDamaged);
        self.sb.current.identity.inconsistent = true;
        let note = format!(
            "the journal is damaged at byte {}: batch {} was durable and is not whole any more. This copy is whole \
             up to sequence {} and holds an unknown part of what was confirmed after it: no image before the next sync has ended",
            at.offset, at.ordinal, last.0
        );
        cx.event(self.id(), Event::Note(note));
    }

    /// What an earlier run left in caches becomes durable before this run gives its first number.
    fn flush_then_record(&mut self, cx: &mut Cx) {
        self.phase = Phase::Starting(StartStage::Flush { left: self.volumes.len() });
        for index in 0..self.volumes.len() {
            let token = self.start_op(Op::StartRead);
            cx.out.push_back(Output::Flush { token, store: Store::Volume(self.id(), VolumeId(index as u16)) });
        }
    }

    // ---- ready -----------------------------------------------------------------------------------------------------

    pub fn record(&mut self, cx: &mut Cx) {
        self.phase = Phase::Starting(StartStage::Recording);
        self.sb.current.identity.incarnation.0 += u64::from(!planted(Fault::NumberReused));
        self.sb.current.clean = false;
        if self.sb.current.in_doubt == Incarnation(0) {
            self.sb.current.flushed = alloc::vec![Seq::NONE; self.volumes.len()];
        }
        self.save(cx, Some(AfterSuper::Ready));
    }

    pub fn ready(&mut self, cx: &mut Cx) {
        if !matches!(self.phase, Phase::Starting(_)) {
            // Stopped while starting.
            return;
        }
        self.phase = Phase::Running;
        if self.sb.current.rollback_point.id == 0 {
            self.empty_undo();
        }
        let identity = self.sb.current.identity;
        cx.event(
            self.id(),
            Event::Ready {
                role: identity.role,
                incarnation: identity.incarnation,
                generation: identity.generation,
                clean: !self.sb.current.compare,
            },
        );
        self.transition(cx, State::Logging, "waiting for the peer");
        if identity.role == Role::Primary {
            self.open_or_withhold(cx);
        }
        if cx.peer.link.is_some() {
            self.replica.new_session();
            self.say_hello(cx, Kind::GroupHello);
            if let Some(hello) = self.early_hello.take() {
                self.peer_hello(cx, hello);
            }
        }
    }
}

const PEERS_DIRECTORY: &str = "the superblock was written by the other node: this is a copy of its state directory; give each \
     node its own back, or remove the group's state directory here and sync in full from the other node";

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
