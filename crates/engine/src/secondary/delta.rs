//! What this copy holds where it differs from the peer that an operator chose over it is saved, before anything of it is overwritten.
//!
//! ```text
//! Union frames: the bits of both -> stored here too -> Renew -> read, batch, read, batch .. -> flush -> head -> Saved
//! ```
//! The union stands in this node's own bits, durable, before anything else: whatever becomes of the session, the bits of both cover what
//! differs (rule 6). A session that ends in the midst of it leaves a file without a head, which the next attempt begins anew.

use alloc::vec;
use alloc::vec::Vec;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::bitmap::Bitmap;
use crate::formats::delta::{DeltaHead, HEAD_BYTES, mark};
use crate::formats::identity::Role;
use crate::formats::undo::{BLOCK_BYTES, ENTRIES_MAX, INDEX_BYTES, UndoEntry, UndoIndex, checksum};
use crate::formats::wire::{FrameHeader, FrameKind, VolumeRange, flags};
use crate::ids::{Generation, Seq, VolumeId, VolumeSet};
use crate::injected_fault::{Fault, injected};
use crate::limits::{PART_BYTES_MAX, REGION_BYTES};
use crate::records::bits::AfterBits;
use crate::secondary::Secondary;
use crate::shared::bits_walk::join_words;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::Greeting;
use crate::shared::operation_slots::{DeltaPart, SlotOperation};
use crate::{Buf, Event, IoDone, IoError, IoResult, Output, SendPayload, Slice, Store, WriteBytes};

/// A batch has room for so much where memory is short: its index, a block, is an eighth of that.
const BATCH_BYTES_MIN: u64 = 8 * REGION_BYTES;

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
}

/// Ranges that are saved together, and their content as far as it was read.
#[derive(Debug, Default)]
struct DeltaBatch {
    ranges: Vec<VolumeRange>,
    /// With its checksum; `None`: all zeroes.
    content: Vec<Option<(Buf, u32)>>,
    left: usize,
}

/// A delta that is being saved.
#[derive(Debug, Default)]
pub(crate) struct DeltaSave {
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
    /// The next region is looked for from here on.
    cursor: (usize, u64),
    head: DeltaHead,
    reading_bytes: u64,
}

impl DeltaSave {
    /// Whoever asked for it is gone. What is under way ends by itself.
    pub fn forget(&mut self) {
        self.stage = DeltaStage::Idle;
        self.reading_bytes = 0;
    }

    /// Memory that it costs.
    pub fn held_bytes(&self) -> u64 {
        self.reading_bytes
    }

    /// The next ranges, as many as one batch takes and there is memory for; none: all is saved.
    fn next_ranges(&mut self, common: &GroupCommon, room: u64) -> Vec<VolumeRange> {
        let room = room.clamp(BATCH_BYTES_MIN, PART_BYTES_MAX);
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
            ranges.push(VolumeRange { volume: VolumeId(self.cursor.0 as u16), offset, length: end - offset });
        }
        ranges
    }

    /// The index of a batch that was read, and all that is written behind it.
    fn batch_image(&mut self, common: &GroupCommon, batch: DeltaBatch) -> Vec<WriteBytes> {
        let mut at = INDEX_BYTES as u32;
        let mut content = Vec::new();
        let mut entries = Vec::new();
        for (range, read) in batch.ranges.iter().zip(batch.content) {
            let length = range.length as u32;
            let (payload_at, payload_crc) = read.as_ref().map_or((0, 0), |(_, crc)| (at, *crc));
            entries.push(UndoEntry { volume: range.volume, offset: range.offset, length, payload_at, payload_crc });
            if let Some((buf, _)) = read {
                let whole = length.next_multiple_of(BLOCK_BYTES as u32);
                at += whole;
                content.push(WriteBytes::Payload(Slice { buf, start: 0, length }));
                if whole > length {
                    content.push(WriteBytes::Meta(vec![0; (whole - length) as usize]));
                }
            }
        }
        let head = &mut self.head;
        head.ranges += entries.len() as u64;
        head.content_bytes += batch.ranges.iter().map(|range| range.length).sum::<u64>();
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
        self.delta.cursor = (0, 0);
        self.delta.head = DeltaHead {
            tag: common.config.tag,
            node: common.node,
            peer: common.config.peer,
            position: self.replica.progress().position(),
            chosen: self.delta.chosen,
            file_bytes: HEAD_BYTES,
            ..DeltaHead::default()
        };
        self.delta.stage = DeltaStage::Renewing;
        let token = common.slots.start(SlotOperation::Delta(DeltaPart::Renew));
        cx.out.push_back(Output::Renew { token, store: Store::Delta(common.id()) });
    }

    /// A step has ended.
    pub fn delta_done(&mut self, common: &mut GroupCommon, cx: &mut Cx, part: DeltaPart, result: IoResult) {
        if matches!(self.delta.stage, DeltaStage::Stored) {
            // What ended is of an earlier attempt.
            return self.begin_delta(common, cx);
        }
        let goes_on = common.lifecycle.is_running() && !common.has_failed();
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
            Err(IoError::NoSpace) => {
                cx.coverage.hit(CoveragePoint::DeltaWithoutSpace);
                self.answer_delta(common, cx, flags::NO_SPACE);
            }
            Err(_) => self.answer_delta(common, cx, flags::FAILED),
        }
    }

    fn delta_step(&mut self, common: &mut GroupCommon, cx: &mut Cx, part: DeltaPart, done: IoDone) {
        let store = Store::Delta(common.id());
        match part {
            DeltaPart::Renew | DeltaPart::Batch => self.read_for_delta(common, cx),
            DeltaPart::Read(at) => {
                let DeltaStage::Reading(batch) = &mut self.delta.stage else { return };
                batch.left -= 1;
                if let IoDone::Summed { buf, zero: false, crc } = done {
                    batch.content[at] = Some((buf, crc));
                }
                if batch.left > 0 {
                    return;
                }
                let DeltaStage::Reading(batch) = core::mem::replace(&mut self.delta.stage, DeltaStage::Writing) else {
                    return;
                };
                let offset = self.delta.head.file_bytes;
                let parts = self.delta.batch_image(common, batch);
                let token = common.slots.start(SlotOperation::Delta(DeltaPart::Batch));
                cx.write(token, store, offset, parts, false);
            }
            DeltaPart::Flush => {
                self.delta.stage = DeltaStage::Heading;
                let token = common.slots.start(SlotOperation::Delta(DeltaPart::Head));
                cx.write(token, store, 0, vec![WriteBytes::Meta(self.delta.head.encode())], true);
            }
            DeltaPart::Head => {
                cx.coverage.hit(CoveragePoint::DeltaSaved);
                let DeltaHead { ranges, content_bytes: bytes, .. } = self.delta.head;
                cx.event(common.id(), Event::DeltaSaved { ranges, bytes });
                self.answer_delta(common, cx, 0);
            }
        }
    }

    /// The next batch, or the end.
    fn read_for_delta(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let room = cx.allowance.saturating_sub(self.replica.window().lease_bytes());
        let ranges = self.delta.next_ranges(common, room);
        self.delta.reading_bytes = ranges.iter().map(|range| range.length).sum();
        if ranges.is_empty() {
            self.delta.stage = DeltaStage::Flushing;
            let token = common.slots.start(SlotOperation::Delta(DeltaPart::Flush));
            return cx.out.push_back(Output::Flush { token, store: Store::Delta(common.id()) });
        }
        for (at, range) in ranges.iter().enumerate() {
            let token = common.slots.start(SlotOperation::Delta(DeltaPart::Read(at)));
            let (store, length) = (Store::Volume(common.id(), range.volume), range.length as u32);
            cx.out.push_back(Output::ReadSummed { token, store, offset: range.offset, length });
        }
        let (content, left) = (ranges.iter().map(|_| None).collect(), ranges.len());
        self.delta.stage = DeltaStage::Reading(DeltaBatch { ranges, content, left });
    }

    /// It is saved, or why not.
    fn answer_delta(&mut self, common: &GroupCommon, cx: &mut Cx, flags: u16) {
        let question = self.delta.question;
        self.delta.forget();
        let Some(link) = cx.peer.link else { return };
        let length = self.delta.head.content_bytes;
        let header = FrameHeader {
            flags,
            length,
            seq: question,
            ..FrameHeader::new(FrameKind::Saved, cx.peer.session, common.id())
        };
        cx.send(link, header, SendPayload::None);
    }
}

impl DeltaSave {
    fn forget_if(&mut self, is_over: bool) {
        if is_over {
            self.forget();
        }
    }
}
