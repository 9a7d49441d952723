//! What this copy holds where it differs from the peer whose content counts is saved in a delta.
//!
//! ```text
//! resolved by bits: Union frames -> stored here too -> Renew -> read, batch, read, batch .. -> flush -> head -> Saved
//! full sync:        its end is flushed ----------------> Renew -> read, batch, read, batch .. -> flush -> head -> its end is recorded
//! ```
//! * Where an order resolves the fork by bits, what the volumes hold is saved before anything of it is overwritten. The union stands in this
//!   node's own bits, durable, before anything else: whatever becomes of the session, the bits of both cover what differs (rule 6). A session
//!   that ends in the midst of it leaves a file without a head, which the next attempt begins anew.
//! * A full sync overwrites what nobody's bits name. What it overwrites is in the undo store by then, and is copied from there. The rollback
//!   point stays until the delta has its head, whatever becomes of the session. A crash in between begins the sync anew, and saves again.

use alloc::vec;
use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::bitmap::Bitmap;
use crate::formats::delta::{DeltaHead, HEAD_BYTES, SavedDelta, mark};
use crate::formats::identity::Role;
use crate::formats::undo::{
    BLOCK_BYTES, ENTRIES_MAX, INDEX_BYTES, SavedRange, UndoEntry, UndoIndex, UndoStore, checksum,
};
use crate::formats::wire::{FrameHeader, FrameKind, VolumeRange, flags};
use crate::ids::{Generation, Position, Seq, VolumeId, VolumeSet};
use crate::injected_fault::{Fault, injected};
use crate::limits::{PART_BYTES_MAX, REGION_BYTES, SAVE_PIECE_BYTES_MAX, SYNC_STALLED_AFTER};
use crate::records::bits::AfterBits;
use crate::secondary::Secondary;
use crate::secondary::replica::{delta_gets_on, delta_is_there, pause_for_delta};
use crate::shared::bits_walk::join_words;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::Greeting;
use crate::shared::lifecycle::Phase;
use crate::shared::operation_slots::{DeltaPart, SlotOperation};
use crate::time::Mono;
use crate::{Buf, Event, IoDone, IoError, IoResult, Output, SendPayload, Slice, Store, WriteBytes};

/// A batch has room for so much where memory is short: its index, a block, is an eighth of that.
const BATCH_BYTES_MIN: u64 = 8 * REGION_BYTES;

/// What an operator reads of a sync that cannot end.
const NO_SPACE: &str = "delta unsaved: the sync overwrote a history of this node's own, and its state directory has no space for the delta of \
    that; the sync ends when there is some, or when the rollback point is given up ('farshore mark drop GROUP NAME --discard')";
const TOO_LARGE: &str = "delta unsaved: the sync overwrote a history of this node's own, and the file system of its state directory takes no file \
    as large as the delta of that (16 TiB on ext4; 'ulimit -f' is a limit too); the sync ends when it does, or when the rollback point is given up \
    ('farshore mark drop GROUP NAME --discard')";
const TOO_MANY: &str = "delta unsaved: the sync overwrote a history of this node's own, and the group's state directory keeps as many earlier \
    deltas as it may ('delta.1' and so on); the sync ends when one of them is moved away or removed, or when the rollback point is given up \
    ('farshore mark drop GROUP NAME --discard')";
const NOT_SAVED: &str = "delta unsaved: the sync overwrote a history of this node's own, and the delta of that cannot be saved, as a disk fails \
    ('farshore log'); it is tried again, and the sync ends when that is put right, or when the rollback point is given up \
    ('farshore mark drop GROUP NAME --discard')";

/// Where it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DeltaSource {
    /// The volumes, where a region is dirty at either node.
    #[default]
    Union,
    /// The undo store: what a full sync has overwritten.
    Overwritten,
}

/// What is tried again once something has failed that may have been put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeltaRetry {
    Anew,
    Batch,
    Head,
}

/// How far it has come.
#[derive(Debug, Default)]
enum DeltaStage {
    #[default]
    Idle,
    /// The union arrives.
    Named,
    /// It is being stored in this node's bits.
    Storing,
    /// What an earlier attempt has under way ends first.
    Stored,
    Renewing,
    Reading(DeltaBatch),
    Writing,
    Flushing,
    Heading,
    /// Of what a sync overwrote: a step failed. `due`: it is time to try again.
    Failed {
        retry: DeltaRetry,
        due: bool,
    },
}

/// Ranges that are saved together, and their content as far as it was read.
#[derive(Debug, Default)]
struct DeltaBatch {
    ranges: Vec<DeltaRange>,
    /// With its checksum; `None`: all zeroes.
    content: Vec<Option<(Buf, u32)>>,
    left: usize,
}

/// A range of a volume, and where its content is read.
#[derive(Clone, Copy, Debug)]
struct DeltaRange {
    range: VolumeRange,
    place: ContentPlace,
}

#[derive(Clone, Copy, Debug)]
enum ContentPlace {
    Volume,
    /// With its checksum.
    UndoStore(u64, u32),
    Zeroes,
    /// The undo store does not hold any more what stood there.
    Lost,
}

impl ContentPlace {
    fn of(saved: &SavedRange) -> ContentPlace {
        saved.undo_offset.map_or(ContentPlace::Zeroes, |offset| ContentPlace::UndoStore(offset, saved.crc))
    }
}

/// A step that failed, and what an operator reads of that.
#[derive(Clone, Copy, Debug)]
struct DeltaFailure {
    part: DeltaPart,
    words: &'static str,
}

/// A delta that is being saved.
#[derive(Debug, Default)]
pub(crate) struct DeltaSave {
    source: DeltaSource,
    stage: DeltaStage,
    /// Names the attempt.
    question: Seq,
    /// Frames that named what may differ.
    named: u64,
    /// Whose content was chosen.
    chosen: Generation,
    /// What it has no device for, and so will not overwrite.
    left_out: VolumeSet,
    /// A fault on purpose: what was dirty here before the other side's bits were joined.
    own: Vec<Bitmap>,
    /// The next region is looked for from here on, or the next range: a byte of a volume then.
    cursor: (usize, u64),
    head: DeltaHead,
    /// Both as they were before the batch that is being read or written.
    before: ((usize, u64), DeltaHead),
    reading_bytes: u64,
    /// Why what a sync overwrote cannot be saved, as far as that was tried.
    failure: Option<DeltaFailure>,
    /// The last one that this run of the node saved.
    saved: Option<SavedDelta>,
    /// When the peer was shown last that it gets on.
    shown_at: Mono,
}

impl DeltaSave {
    /// The session is over, and nobody asks for a union any more. What a sync overwrote is saved all the same.
    pub fn forget_union(&mut self) {
        if self.source == DeltaSource::Union {
            self.forget();
        }
    }

    /// It is not to be saved any more. What is under way ends by itself.
    pub fn forget(&mut self) {
        (self.source, self.stage) = (DeltaSource::Union, DeltaStage::Idle);
        (self.reading_bytes, self.failure) = (0, None);
    }

    /// What stands in the state directory stays there.
    pub fn after_promotion(self) -> DeltaSave {
        DeltaSave { saved: self.saved, ..DeltaSave::default() }
    }

    /// Why the sync cannot end that waits for it.
    pub fn failure(&self) -> Option<&'static str> {
        self.failure.map(|failure| failure.words)
    }

    /// The last one that this run of the node saved.
    pub fn saved(&self) -> Option<SavedDelta> {
        self.saved
    }

    /// There may be space by now.
    pub fn retry(&mut self) {
        if let DeltaStage::Failed { due, .. } = &mut self.stage {
            *due = true;
        }
    }

    /// Memory that it costs.
    pub fn held_bytes(&self) -> u64 {
        self.reading_bytes
    }

    /// The next ranges, as many as one batch takes and there is memory for; none: all is saved.
    fn next_ranges(&mut self, common: &GroupCommon, room: u64) -> Vec<DeltaRange> {
        match self.source {
            DeltaSource::Union => self.next_regions(common, room.clamp(BATCH_BYTES_MIN, PART_BYTES_MAX)),
            // A range alone may be as long. With less to a batch, indices would make the file much longer than the undo store.
            DeltaSource::Overwritten => {
                let room = room.clamp(SAVE_PIECE_BYTES_MAX, PART_BYTES_MAX);
                self.next_overwritten(&common.undo, &common.sb.own_history, room)
            }
        }
    }

    /// Of volumes that were a copy of the peer's history alone, nothing is saved.
    fn next_overwritten(&mut self, undo: &UndoStore, of: &VolumeSet, room: u64) -> Vec<DeltaRange> {
        let (mut ranges, mut bytes) = (Vec::new(), 0);
        while ranges.len() < ENTRIES_MAX
            && let Some(saved) = undo.saved_from(VolumeId(self.cursor.0 as u16), self.cursor.1)
        {
            if !of.contains(saved.volume) {
                self.cursor = (usize::from(saved.volume.0) + 1, 0);
                continue;
            }
            let place = ContentPlace::of(&saved);
            let content = if matches!(place, ContentPlace::Zeroes) { 0 } else { u64::from(saved.length) };
            if !ranges.is_empty() && bytes + content > room {
                break;
            }
            bytes += content;
            self.cursor = (usize::from(saved.volume.0), saved.range().end);
            let range = VolumeRange { volume: saved.volume, offset: saved.offset, length: u64::from(saved.length) };
            ranges.push(DeltaRange { range, place });
        }
        ranges
    }

    fn next_regions(&mut self, common: &GroupCommon, room: u64) -> Vec<DeltaRange> {
        let (mut ranges, mut bytes) = (Vec::new(), 0);
        while ranges.len() < ENTRIES_MAX
            && bytes + REGION_BYTES <= room
            && let Some(volume) = common.volumes.get(self.cursor.0)
        {
            let dirty = self.own.get(self.cursor.0).unwrap_or(&volume.copy.dirty);
            let next = dirty.next_set(self.cursor.1);
            let is_left_out = volume.is_detached() || self.left_out.contains(VolumeId(self.cursor.0 as u16));
            let Some(first) = next.filter(|_| !is_left_out) else {
                self.cursor = (self.cursor.0 + 1, 0);
                continue;
            };
            let most = (room - bytes) / REGION_BYTES;
            let next = (first..first + most).find(|region| dirty.next_set(*region) != Some(*region));
            let next = next.unwrap_or(first + most);
            self.cursor.1 = next;
            let (offset, end) = (first * REGION_BYTES, (next * REGION_BYTES).min(volume.size_bytes()));
            bytes += end - offset;
            let range = VolumeRange { volume: VolumeId(self.cursor.0 as u16), offset, length: end - offset };
            ranges.push(DeltaRange { range, place: ContentPlace::Volume });
        }
        ranges
    }

    /// The index of a batch that was read, and all that is written behind it.
    fn batch_image(&mut self, common: &GroupCommon, batch: DeltaBatch) -> Vec<WriteBytes> {
        let mut at = INDEX_BYTES as u32;
        let mut content = Vec::new();
        let mut entries = Vec::new();
        let head = &mut self.head;
        for (DeltaRange { range, place }, read) in batch.ranges.iter().zip(batch.content) {
            let length = range.length as u32;
            let is_lost = matches!(place, ContentPlace::Lost);
            let (count, sum) = (if is_lost { 1 } else { 0 }, if is_lost { range.length } else { 0 });
            head.lost_ranges += count;
            head.lost_bytes += sum;
            head.content_bytes += range.length - sum;
            let (payload_at, payload_crc) = read.as_ref().map_or((0, 0), |(_, crc)| (at, *crc));
            let (volume, offset) = (range.volume, range.offset);
            entries.push(UndoEntry { volume, offset, length, payload_at, payload_crc, is_lost });
            if let Some((buf, _)) = read {
                let whole = length.next_multiple_of(BLOCK_BYTES as u32);
                at += whole;
                content.push(WriteBytes::Payload(Slice { buf, start: 0, length }));
                if whole > length {
                    content.push(WriteBytes::Meta(vec![0; (whole - length) as usize]));
                }
            }
        }
        head.ranges += entries.len() as u64;
        let index = UndoIndex {
            tag: head.tag,
            ring_offset: head.file_bytes,
            ordinal: head.batches + 1,
            mark: mark(head.position.generation),
            boot: common.sb.identity.incarnation,
            chain: head.chain,
            bytes: at,
            entries,
        };
        let image = index.encode();
        head.chain = checksum(&image).expect("an index block has its checksum");
        head.batches += 1;
        head.file_bytes += u64::from(at);
        let mut parts = vec![WriteBytes::Meta(image)];
        parts.extend(content);
        parts
    }
}

impl Secondary {
    /// The primary whose content was chosen names what may differ. `None`: not a frame that it could send.
    pub fn union_named(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        primary: &Greeting,
        header: &FrameHeader,
        words: &[u8],
    ) -> Option<()> {
        let receives = common.role() == Role::Secondary && common.lifecycle.is_running() && !common.has_failed();
        let hello = primary.hello()?;
        let chosen = hello.identity.generation;
        // It is asked for nothing by a peer that does not say that it was chosen over this history.
        let receives = receives && hello.keeps_over == common.sb.identity.generation.tag;
        let is_last = header.flags & flags::LAST != 0;
        if self.delta.source == DeltaSource::Overwritten {
            if is_last {
                say_saved(common, cx, (header.seq, flags::FAILED), 0);
            }
            return Some(());
        }
        if !receives || self.replica.is_streaming() || self.begins_stream() || chosen == common.sb.identity.generation {
            if is_last {
                // Whoever waits for an answer is not left to wait.
                self.delta.question = header.seq;
                self.answer_delta(common, cx, flags::FAILED);
            }
            return Some(());
        }
        let delta = &mut self.delta;
        if delta.question != header.seq || matches!(delta.stage, DeltaStage::Idle) {
            let own = injected(Fault::DeltaOfOneSide);
            let own = if own { common.volumes.copies().map(|copy| copy.dirty.clone()).collect() } else { Vec::new() };
            (delta.stage, delta.question, delta.chosen, delta.own) = (DeltaStage::Named, header.seq, chosen, own);
            (delta.named, delta.left_out) = (0, hello.detached);
        }
        if !matches!(delta.stage, DeltaStage::Named) {
            return Some(());
        }
        if is_last && header.length != delta.named {
            // Its beginning was not heard: what is named is not all that may differ.
            self.answer_delta(common, cx, flags::FAILED);
            return Some(());
        }
        delta.named += 1;
        if join_words(&mut common.volumes, &hello.volume_bytes, header, words)? {
            delta.stage = DeltaStage::Storing;
            common.bits().save(cx, AfterBits::Union { question: header.seq.0 });
        }
        Some(())
    }

    /// The union stands in the bits of both.
    pub fn union_stored(&mut self, common: &mut GroupCommon, cx: &mut Cx, question: Seq) {
        if matches!(self.delta.stage, DeltaStage::Storing) && self.delta.question == question {
            self.delta.stage = DeltaStage::Stored;
            self.begin_delta(common, cx);
        }
    }

    /// Begins once an earlier attempt has nothing under way.
    fn begin_delta(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if !matches!(self.delta.stage, DeltaStage::Stored) || common.slots.saves_delta() {
            return;
        }
        if injected(Fault::DeltaSkipped) {
            return self.answer_delta(common, cx, 0);
        }
        let position = self.replica.progress().position();
        self.delta.renew(common, cx, position);
    }

    /// A step has ended.
    pub fn delta_done(&mut self, common: &mut GroupCommon, cx: &mut Cx, part: DeltaPart, result: IoResult) {
        if part == DeltaPart::Head && result.is_ok() {
            // It is whole, whatever became of the session or of the sync meanwhile, and stays.
            self.delta.saved = Some(self.delta.head.saved());
            cx.event(common.id(), Event::DeltaSaved(self.delta.head.saved()));
        }
        if matches!(self.delta.stage, DeltaStage::Stored) {
            // What ended is of an earlier attempt.
            return self.begin_delta(common, cx);
        }
        let phase = common.lifecycle.phase();
        let ends_sync = self.delta.source == DeltaSource::Overwritten && matches!(phase, Phase::Stopping { .. });
        let goes_on = (phase == Phase::Running || ends_sync) && !common.has_failed();
        let is_expected = matches!(
            (&self.delta.stage, part),
            (DeltaStage::Renewing, DeltaPart::Renew)
                | (DeltaStage::Reading(_), DeltaPart::Read(_))
                | (DeltaStage::Writing, DeltaPart::Batch)
                | (DeltaStage::Flushing, DeltaPart::Flush)
                | (DeltaStage::Heading, DeltaPart::Head)
        );
        if !goes_on || !is_expected {
            return self.delta.forget_if(!goes_on);
        }
        match result {
            Ok(done) => self.delta_step(common, cx, part, done),
            Err(IoError::Damaged) if matches!(part, DeltaPart::Read(_)) => delta_lacks(self, common, cx, part),
            Err(error) if self.delta.source == DeltaSource::Overwritten => delta_failed(self, common, cx, part, error),
            Err(error) => {
                let flags = match error {
                    IoError::NoSpace => flags::NO_SPACE,
                    IoError::TooLarge => flags::TOO_LARGE,
                    IoError::TooManyDeltas => flags::TOO_MANY,
                    IoError::Io | IoError::Damaged => flags::FAILED,
                };
                if flags == flags::NO_SPACE {
                    cx.coverage.hit(CoveragePoint::DeltaWithoutSpace);
                }
                self.answer_delta(common, cx, flags);
            }
        }
    }

    fn delta_step(&mut self, common: &mut GroupCommon, cx: &mut Cx, part: DeltaPart, done: IoDone) {
        let has_mended = |failure: &mut DeltaFailure| part.stage() >= failure.part.stage();
        if !matches!(part, DeltaPart::Read(_)) && self.delta.failure.take_if(has_mended).is_some() {
            delta_gets_on(&mut self.replica, common);
        }
        match part {
            DeltaPart::Renew | DeltaPart::Batch => self.read_for_delta(common, cx),
            DeltaPart::Read(at) => {
                let DeltaStage::Reading(batch) = &mut self.delta.stage else { return };
                batch.left -= 1;
                match (done, batch.ranges[at].place) {
                    (IoDone::Summed { buf, zero: false, crc }, _)
                    | (IoDone::Payload { buf, .. }, ContentPlace::UndoStore(_, crc)) => {
                        batch.content[at] = Some((buf, crc));
                    }
                    _ => {}
                }
                if batch.left == 0 {
                    self.delta.write_batch(common, cx);
                }
            }
            DeltaPart::Flush => self.delta.write_head(common, cx),
            DeltaPart::Head => {
                if self.delta.source == DeltaSource::Overwritten {
                    cx.coverage.hit(CoveragePoint::SyncLeftDelta);
                    self.delta.forget();
                    return delta_is_there(&mut self.replica, common, cx);
                }
                cx.coverage.hit(CoveragePoint::DeltaSaved);
                self.answer_delta(common, cx, 0);
            }
        }
    }

    /// The next batch, or the end.
    fn read_for_delta(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let room = cx.allowance.saturating_sub(self.replica.window().lease_bytes());
        self.delta.before = (self.delta.cursor, self.delta.head);
        let ranges = self.delta.next_ranges(common, room);
        if ranges.is_empty() {
            self.delta.reading_bytes = 0;
            self.delta.stage = DeltaStage::Flushing;
            let token = common.slots.start(SlotOperation::Delta(DeltaPart::Flush));
            return cx.out.push_back(Output::Flush { token, store: Store::Delta(common.id()) });
        }
        let is_read = |part: &&DeltaRange| !matches!(part.place, ContentPlace::Zeroes);
        self.delta.reading_bytes = ranges.iter().filter(is_read).map(|part| part.range.length).sum();
        let (content, left) = (ranges.iter().map(|_| None).collect(), ranges.iter().filter(is_read).count());
        for (at, DeltaRange { range, place }) in ranges.iter().enumerate() {
            let length = range.length as u32;
            let mut token = || common.slots.start(SlotOperation::Delta(DeltaPart::Read(at)));
            let id = common.config.id;
            match *place {
                ContentPlace::Volume => {
                    let (store, offset) = (Store::Volume(id, range.volume), range.offset);
                    cx.out.push_back(Output::ReadSummed { token: token(), store, offset, length });
                }
                ContentPlace::UndoStore(offset, crc) => {
                    let (store, crc) = (Store::Undo(id), Some(crc));
                    cx.out.push_back(Output::Read { token: token(), store, offset, length, crc });
                }
                ContentPlace::Zeroes | ContentPlace::Lost => {}
            }
        }
        self.delta.stage = DeltaStage::Reading(DeltaBatch { ranges, content, left });
        if left == 0 {
            self.delta.write_batch(common, cx);
        }
    }

    /// It is saved, or why not.
    fn answer_delta(&mut self, common: &GroupCommon, cx: &mut Cx, flags: u16) {
        self.delta.forget();
        say_saved(common, cx, (self.delta.question, flags), self.delta.head.content_bytes);
    }
}

/// The end of a sync over a fork waits for its delta. Called after every input, and begins or goes on where nothing is under way.
pub(crate) fn proceed_delta(secondary: &mut Secondary, common: &mut GroupCommon, cx: &mut Cx) {
    if !secondary.replica.awaits_delta() || common.has_failed() {
        return;
    }
    let point = common.sb.rollback_point;
    if !point.is_of_fork {
        // It was given up by name.
        secondary.delta.forget();
        return delta_is_there(&mut secondary.replica, common, cx);
    }
    if common.slots.saves_delta() {
        return;
    }
    match secondary.delta.stage {
        DeltaStage::Failed { retry, due: true } => match retry {
            DeltaRetry::Anew => secondary.delta.renew(common, cx, point.position),
            DeltaRetry::Batch => secondary.read_for_delta(common, cx),
            DeltaRetry::Head => secondary.delta.write_head(common, cx),
        },
        DeltaStage::Idle => {
            let delta = &mut secondary.delta;
            (delta.source, delta.chosen) = (DeltaSource::Overwritten, common.sb.identity.generation);
            (delta.own, delta.shown_at) = (Vec::new(), cx.now.mono);
            delta.renew(common, cx, point.position);
        }
        _ => {}
    }
}

/// What was saved of a range is damaged, however often it is read: the delta says so, and has all the rest.
fn delta_lacks(secondary: &mut Secondary, common: &mut GroupCommon, cx: &mut Cx, part: DeltaPart) {
    if let (DeltaStage::Reading(batch), DeltaPart::Read(at)) = (&mut secondary.delta.stage, part) {
        cx.coverage.hit(CoveragePoint::DeltaLacksRange);
        batch.ranges[at].place = ContentPlace::Lost;
    }
    secondary.delta_step(common, cx, part, IoDone::Done);
}

/// A step of it failed. Nothing is lost by waiting: the sync goes on as one that has not ended.
fn delta_failed(secondary: &mut Secondary, common: &mut GroupCommon, cx: &mut Cx, part: DeltaPart, error: IoError) {
    let retry = match (part, error) {
        (DeltaPart::Read(_), _) | (DeltaPart::Batch, IoError::NoSpace) => DeltaRetry::Batch,
        (DeltaPart::Head, IoError::NoSpace) => DeltaRetry::Head,
        _ => DeltaRetry::Anew,
    };
    if retry == DeltaRetry::Batch {
        (secondary.delta.cursor, secondary.delta.head) = secondary.delta.before;
    }
    secondary.delta.stage = DeltaStage::Failed { retry, due: false };
    secondary.delta.reading_bytes = 0;
    let words = match error {
        IoError::NoSpace => NO_SPACE,
        IoError::TooLarge => TOO_LARGE,
        IoError::TooManyDeltas => TOO_MANY,
        IoError::Io | IoError::Damaged => NOT_SAVED,
    };
    let before = secondary.delta.failure.replace(DeltaFailure { part, words });
    if before.is_none_or(|before| before.words != words) {
        cx.event(common.id(), Event::Note(words.into()));
    }
    pause_for_delta(&mut secondary.replica, common, cx);
}

/// Whether the peer is to be shown that this gets on: it hears nothing else meanwhile, and would give the sync up.
pub(crate) fn delta_is_to_be_shown(secondary: &mut Secondary, cx: &Cx) -> bool {
    let is_due = cx.now.mono.since(secondary.delta.shown_at) >= SYNC_STALLED_AFTER / 4;
    let shows = is_due && matches!(secondary.delta.stage, DeltaStage::Reading(_)) && secondary.replica.awaits_delta();
    if shows {
        secondary.delta.shown_at = cx.now.mono;
    }
    shows
}

/// Tells the primary that asked what became of its question.
fn say_saved(common: &GroupCommon, cx: &mut Cx, (question, flags): (Seq, u16), length: u64) {
    let Some(link) = cx.peer.link else { return };
    let kind = FrameKind::Saved;
    let header = FrameHeader { flags, length, seq: question, ..FrameHeader::new(kind, cx.peer.session, common.id()) };
    cx.send(link, header, SendPayload::None);
}

impl DeltaSave {
    fn forget_if(&mut self, is_over: bool) {
        if is_over {
            self.forget();
        }
    }

    /// The file begins anew. `position`: the last one of the history that is given up.
    fn renew(&mut self, common: &mut GroupCommon, cx: &mut Cx, position: Position) {
        self.cursor = (0, 0);
        self.head = DeltaHead {
            tag: common.config.tag,
            node: common.node,
            peer: common.config.peer,
            position,
            chosen: self.chosen,
            file_bytes: HEAD_BYTES,
            ..DeltaHead::default()
        };
        self.stage = DeltaStage::Renewing;
        let token = common.slots.start(SlotOperation::Delta(DeltaPart::Renew));
        cx.out.push_back(Output::Renew { token, store: Store::Delta(common.id()) });
    }

    /// All of the batch is read.
    fn write_batch(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let DeltaStage::Reading(batch) = core::mem::replace(&mut self.stage, DeltaStage::Writing) else { return };
        let offset = self.head.file_bytes;
        let parts = self.batch_image(common, batch);
        let token = common.slots.start(SlotOperation::Delta(DeltaPart::Batch));
        // While a sync waits for it, no flush at the end takes so long that the peer would give the sync up.
        let durable = self.source == DeltaSource::Overwritten;
        cx.write(token, Store::Delta(common.id()), offset, parts, durable);
    }

    /// All before it is durable.
    fn write_head(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        self.stage = DeltaStage::Heading;
        let token = common.slots.start(SlotOperation::Delta(DeltaPart::Head));
        cx.write(token, Store::Delta(common.id()), 0, vec![WriteBytes::Meta(self.head.encode())], true);
    }
}
