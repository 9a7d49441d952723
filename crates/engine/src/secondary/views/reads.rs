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
    fn volume_read(&mut self, start: u64, content: Option<Buf>, image: impl FnOnce(Range<u64>) -> ImagePieces) -> bool {
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

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec;

    use super::*;
    use crate::limits::KIB;

    const V: VolumeId = VolumeId(1);

    fn request(range: Range<u64>) -> ViewRequest {
        let parts = vec![RequestPart { range, stage: PartStage::Wanted }];
        ViewRequest { number: 7, id: RequestId(1), volume: V, parts, held_bytes: 0 }
    }

    fn saved(offset: u64, length: u64, undo_offset: Option<u64>) -> SavedRange {
        SavedRange { volume: V, offset, length: length as u32, undo_offset, crc: 5 }
    }

    fn content() -> Option<Buf> {
        Some(Buf::new(Arc::new(())))
    }

    /// Where each part of what was read begins in its buffer, and how long it is; zeroes begin nowhere.
    fn read(request: &ViewRequest) -> Vec<(Option<u32>, u64)> {
        let of_part = |part: &RequestPart| match &part.stage {
            PartStage::Done(ViewPart::Data(slice)) => (Some(slice.start), u64::from(slice.length)),
            PartStage::Done(ViewPart::Zeroes(length)) => (None, *length),
            other => panic!("{other:?}"),
        };
        request.parts.iter().map(of_part).collect()
    }

    // proves: P9
    /// A saved range is checked as a whole, so it is read as a whole, and once, however often an older copy lies within it.
    #[test]
    fn a_saved_range_is_read_once_for_all_its_parts() {
        let large = saved(0, 64 * KIB, Some(100 * KIB));
        let mut image = |volume: VolumeId, range: Range<u64>| {
            assert_eq!(volume, V);
            let all = [
                (0..8 * KIB, Some(large)),
                (8 * KIB..12 * KIB, Some(saved(8 * KIB, 4 * KIB, None))),
                (12 * KIB..20 * KIB, Some(large)),
                (20 * KIB..24 * KIB, None),
            ];
            let within = |range: &Range<u64>, of: &Range<u64>| range.start.max(of.start)..range.end.min(of.end);
            let pieces = all.into_iter().map(|(piece, saved)| (within(&piece, &range), saved));
            pieces.filter(|(piece, _)| piece.start < piece.end).collect::<ImagePieces>()
        };
        let mut of = request(4 * KIB..24 * KIB);
        let first = of.next(&mut image).expect("something is to be read");
        assert_eq!((first.source, first.offset, first.length), (ViewSource::Saved(100 * KIB), 100 * KIB, 64 * KIB));
        assert_eq!(first.crc, Some(5));
        of.begins(first.source, first.begins_at);
        let second = of.next(&mut image).expect("the volume is to be read too");
        assert_eq!((second.source, second.length), (ViewSource::Volume(20 * KIB), 4 * KIB));
        of.begins(second.source, second.begins_at);
        assert!(of.next(&mut image).is_none() && !of.is_complete());
        of.saved_read(first.source, content());
        assert!(!of.volume_read(20 * KIB, content(), |range| vec![(range, None)]));
        assert!(of.is_complete());
        let place = |at: u64| Some((at * KIB) as u32);
        let expected = [(place(4), 4 * KIB), (None, 4 * KIB), (place(12), 8 * KIB), (place(0), 4 * KIB)];
        assert_eq!(read(&of), expected);
    }

    // proves: P2
    #[test]
    fn what_was_saved_while_the_volume_was_read_is_read_again() {
        let mut of = request(0..16 * KIB);
        let next = of.next(&mut |_, range| vec![(range, None)]).expect("the volume is to be read");
        of.begins(next.source, next.begins_at);
        let meanwhile = saved(4 * KIB, 4 * KIB, Some(40 * KIB));
        let image = |_: VolumeId, _: Range<u64>| {
            vec![(0..4 * KIB, None), (4 * KIB..8 * KIB, Some(meanwhile)), (8 * KIB..16 * KIB, None)]
        };
        assert!(of.volume_read(0, content(), |range| image(V, range)));
        let again = of.next(&mut |_, range| vec![(range, Some(meanwhile))]).expect("it is to be read again");
        assert_eq!((again.source, again.length), (ViewSource::Saved(40 * KIB), 4 * KIB));
        of.begins(again.source, again.begins_at);
        of.saved_read(again.source, None);
        assert!(of.is_complete());
        assert_eq!(read(&of), [(Some(0), 4 * KIB), (None, 4 * KIB), (Some((8 * KIB) as u32), 8 * KIB)]);
    }
}
