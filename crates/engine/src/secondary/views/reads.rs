//! The reads of one view. A read is cut into parts: saved ranges, each read as a whole and checked, and what stands on the volume, which
//! counts only if none of it is saved when the read has ended. Requests are answered in any order, each at once.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use crate::context::Cx;
use crate::formats::undo::SavedRange;
use crate::ids::{RequestId, ViewId, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::{OperationSlots, SlotOperation, ViewReadOp, ViewSource};
use crate::{Buf, IoDone, IoError, IoResult, Output, Slice, Store, ViewPart, limits};

/// What of a range is saved, and where; the rest stands on the volume.
pub(super) type ImagePieces = Vec<(Range<u64>, Option<SavedRange>)>;

#[derive(Debug)]
enum PartStage {
    Wanted,
    /// The second: the place on the volume with which the content begins.
    Reading(ViewSource, u64),
    Done(ViewPart),
}

#[derive(Debug)]
struct RequestPart {
    range: Range<u64>,
    stage: PartStage,
}

#[derive(Debug)]
struct ViewRequest {
    number: u64,
    id: RequestId,
    volume: VolumeId,
    /// In order, without a gap.
    parts: Vec<RequestPart>,
    /// Content of it that was read.
    held_bytes: u64,
}

/// What is to be read next.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextRead {
    request: u64,
    volume: VolumeId,
    source: ViewSource,
    /// On the volume, or in the store.
    offset: u64,
    /// On the volume.
    begins_at: u64,
    pub length: u64,
    crc: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct ViewReads {
    requests: VecDeque<ViewRequest>,
    under_way: usize,
    reading_bytes: u64,
}

impl ViewReads {
    pub fn ask(&mut self, number: u64, id: RequestId, volume: VolumeId, range: Range<u64>) {
        let parts = alloc::vec![RequestPart { range, stage: PartStage::Wanted }];
        self.requests.push_back(ViewRequest { number, id, volume, parts, held_bytes: 0 });
    }

    /// Requests that are not answered.
    pub fn waiting(&self) -> usize {
        self.requests.len()
    }

    pub fn under_way(&self) -> usize {
        self.under_way
    }

    pub fn held_bytes(&self) -> u64 {
        self.reading_bytes + self.requests.iter().map(|request| request.held_bytes).sum::<u64>()
    }

    /// The next part to be read, if one may be. What is zero, or under way already, needs no read; whatever is complete by that is answered.
    pub fn next(
        &mut self,
        cx: &mut Cx,
        mut image: impl FnMut(VolumeId, Range<u64>) -> ImagePieces,
    ) -> Option<NextRead> {
        let held_bytes = self.held_bytes();
        let has_room = |more| self.under_way == 0 || held_bytes + more <= limits::VIEW_HELD_BYTES_MAX;
        if self.under_way >= limits::VIEW_READS_MAX {
            return None;
        }
        for at in 0..self.requests.len() {
            let request = &mut self.requests[at];
            if let Some(next) = request.next(&mut image) {
                return has_room(next.length).then_some(next);
            }
        }
        self.answer_complete(cx);
        None
    }

    /// The part is read from here on.
    pub fn begin(&mut self, slots: &mut OperationSlots, cx: &mut Cx, view: ViewId, saved_in: Store, next: NextRead) {
        let NextRead { request, volume, source, offset, begins_at, length, crc } = next;
        let found = self.requests.iter_mut().find(|of| of.number == request).expect("it was asked for its next part");
        found.begins(source, begins_at);
        (self.under_way, self.reading_bytes) = (self.under_way + 1, self.reading_bytes + length);
        let store = match source {
            ViewSource::Volume(_) => Store::Volume(slots.group(), volume),
            ViewSource::Saved(_) => {
                cx.coverage.hit(CoveragePoint::ViewReadSaved);
                saved_in
            }
        };
        let token = slots.start(SlotOperation::ViewRead(ViewReadOp { view, request, source, length }));
        cx.out.push_back(Output::Read { token, store, offset, length: length as u32, crc });
    }

    /// A part was read, or could not be: then its request fails, and this is why.
    pub fn read_done(
        &mut self,
        cx: &mut Cx,
        op: ViewReadOp,
        result: IoResult,
        mut image: impl FnMut(VolumeId, Range<u64>) -> ImagePieces,
    ) -> Option<String> {
        (self.under_way, self.reading_bytes) = (self.under_way - 1, self.reading_bytes - op.length);
        let at = self.requests.iter().position(|request| request.number == op.request)?;
        let request = &mut self.requests[at];
        let content = match result {
            Ok(IoDone::Payload { zero: true, .. }) => None,
            Ok(IoDone::Payload { buf, .. }) => Some(buf),
            Ok(_) => unreachable!("a read answers with content"),
            Err(error) => {
                let failed = self.requests.remove(at).expect("it was found there");
                cx.out.push_back(Output::ViewData { id: failed.id, result: Err(IoError::Io) });
                return Some(failed.words(op.source, error));
            }
        };
        request.held_bytes += if content.is_some() { op.length } else { 0 };
        match op.source {
            ViewSource::Saved(_) => request.saved_read(op.source, content),
            ViewSource::Volume(start) => {
                let volume = request.volume;
                if request.volume_read(start, content, |range| image(volume, range)) {
                    cx.coverage.hit(CoveragePoint::ViewReadAgain);
                }
            }
        }
        self.answer_complete(cx);
        None
    }

    fn answer_complete(&mut self, cx: &mut Cx) {
        let mut at = 0;
        while at < self.requests.len() {
            if !self.requests[at].is_complete() {
                at += 1;
                continue;
            }
            let request = self.requests.remove(at).expect("it was found there");
            let of_part = |part: RequestPart| match part.stage {
                PartStage::Done(part) => part,
                PartStage::Wanted | PartStage::Reading(..) => unreachable!("it is complete"),
            };
            let result = Ok(request.parts.into_iter().map(of_part).collect());
            cx.out.push_back(Output::ViewData { id: request.id, result });
        }
    }

    /// The view has ended: nobody is answered with content any more.
    pub fn give_up(&mut self, cx: &mut Cx) {
        for request in self.requests.drain(..) {
            cx.out.push_back(Output::ViewData { id: request.id, result: Err(IoError::Io) });
        }
    }
}

impl RequestPart {
    fn reads(&self, source: ViewSource) -> bool {
        matches!(self.stage, PartStage::Reading(of, _) if of == source)
    }
}

impl ViewRequest {
    fn is_complete(&self) -> bool {
        self.parts.iter().all(|part| matches!(part.stage, PartStage::Done(_)))
    }

    /// The first part that is wanted, cut where the image changes its place.
    fn next(&mut self, image: &mut impl FnMut(VolumeId, Range<u64>) -> ImagePieces) -> Option<NextRead> {
        loop {
            let at = self.parts.iter().position(|part| matches!(part.stage, PartStage::Wanted))?;
            let pieces = image(self.volume, self.parts[at].range.clone());
            let mut next = None;
            let mut parts = Vec::with_capacity(pieces.len());
            for (range, saved) in pieces {
                let stage = self.stage_of(&range, saved);
                if matches!(stage, PartStage::Wanted) && next.is_none() {
                    next = Some(self.read_of(&range, saved));
                }
                parts.push(RequestPart { range, stage });
            }
            self.parts.splice(at..=at, parts);
            if next.is_some() {
                return next;
            }
        }
    }

    /// Zeroes need no read, and a saved range is read once for all its parts.
    fn stage_of(&self, range: &Range<u64>, saved: Option<SavedRange>) -> PartStage {
        let Some(saved) = saved else { return PartStage::Wanted };
        let Some(offset) = saved.undo_offset else { return PartStage::Done(ViewPart::Zeroes(range.end - range.start)) };
        let reading = PartStage::Reading(ViewSource::Saved(offset), saved.offset);
        if self.reads(ViewSource::Saved(offset)) { reading } else { PartStage::Wanted }
    }

    fn reads(&self, source: ViewSource) -> bool {
        self.parts.iter().any(|part| part.reads(source))
    }

    fn read_of(&self, range: &Range<u64>, saved: Option<SavedRange>) -> NextRead {
        let content = saved.and_then(|saved| Some((saved.undo_offset?, saved)));
        let (source, offset, begins_at, length, crc) = match content {
            Some((offset, saved)) => {
                (ViewSource::Saved(offset), offset, saved.offset, u64::from(saved.length), Some(saved.crc))
            }
            None => (ViewSource::Volume(range.start), range.start, range.start, range.end - range.start, None),
        };
        NextRead { request: self.number, volume: self.volume, source, offset, begins_at, length, crc }
    }

    /// The part that [`ViewRequest::next`] named is being read.
    fn begins(&mut self, source: ViewSource, begins_at: u64) {
        let part = self.parts.iter_mut().find(|part| matches!(part.stage, PartStage::Wanted));
        part.expect("it was wanted a moment ago").stage = PartStage::Reading(source, begins_at);
    }

    /// A saved range was read: every part that waits for it has its content.
    fn saved_read(&mut self, source: ViewSource, content: Option<Buf>) {
        for part in self.parts.iter_mut() {
            if let PartStage::Reading(of, begins_at) = part.stage
                && of == source
            {
                part.stage = PartStage::Done(part_of(&content, part.range.clone(), begins_at));
            }
        }
    }

    /// A part of the volume was read. True: something of it was saved meanwhile, and perhaps overwritten, and is read again.
    fn volume_read(
        &mut self,
        start: u64,
        content: Option<Buf>,
        image: impl FnOnce(Range<u64>) -> ImagePieces,
    ) -> bool {
        let is_it = |part: &RequestPart| part.reads(ViewSource::Volume(start));
        let Some(at) = self.parts.iter().position(is_it) else { return false };
        let range = self.parts[at].range.clone();
        let pieces = match injected(Fault::ViewReadNotCheckedAgain) {
            true => alloc::vec![(range, None)],
            false => image(range),
        };
        let again = pieces.iter().any(|(_, saved)| saved.is_some());
        let staged = |(range, saved): (Range<u64>, Option<SavedRange>)| {
            let stage = match saved {
                None => PartStage::Done(part_of(&content, range.clone(), start)),
                Some(_) => PartStage::Wanted,
            };
            RequestPart { range, stage }
        };
        let parts: Vec<RequestPart> = pieces.into_iter().map(staged).collect();
        self.parts.splice(at..=at, parts);
        again
    }

    fn words(&self, source: ViewSource, error: IoError) -> String {
        let volume = self.volume.0 + 1;
        let what = if error == IoError::Damaged { "is damaged" } else { "cannot be read" };
        match source {
            ViewSource::Volume(offset) => format!("volume {volume} {what} at byte {offset}"),
            ViewSource::Saved(offset) => {
                format!("what was saved of volume {volume} {what}, at byte {offset} of its store")
            }
        }
    }
}

/// A range of what was read from `start` on; no content: it is all zeroes.
fn part_of(content: &Option<Buf>, range: Range<u64>, start: u64) -> ViewPart {
    let length = range.end - range.start;
    match content {
        None => ViewPart::Zeroes(length),
        Some(buf) => {
            ViewPart::Data(Slice { buf: buf.clone(), start: (range.start - start) as u32, length: length as u32 })
        }
    }
}
