//! What a secondary owes its primary for what that asked: dirty regions, the ranges it may have lost, their content. However
//! often it asks, one answer of each kind is under way, and of it only as much is made as the link takes.
//!
//! * An answer has its turns among the frames of all groups, while the link has credit: what is asked for and not read stays
//!   a cursor, or a list of names.
//! * A newer question takes the place of the one before.
//! * Content is read for the link's next turns, a few ranges at a time, and counts against `memory.limit` until it is handed over.
//!   What cannot be read is read again after a pause, a few times.

use alloc::collections::VecDeque;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::identity::Role;
use crate::formats::wire::{FrameHeader, FrameKind, RANGES_MAX, VolumeRange, encode_ranges, flags};
use crate::ids::*;
use crate::limits::{APPLY_RETRY_AFTER, PART_BYTES_MAX, PULLS_IN_FLIGHT};
use crate::shared::bits_walk::BitsWalk;
use crate::shared::kept_tail::KeptTail;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::volumes::Volumes;
use crate::state::Broken;
use crate::time::Mono;
use crate::{Buf, IoDone, IoResult, Output, SendPayload, Slice, Store};

/// Ranges read for pulls at once: enough to keep the link busy beside a disk, in all 4 MiB at most.
const READS_MAX: usize = 4;

/// Failed reads of content, one after the other and with a pause behind each, before the group gives up.
const READ_FAILURES_MAX: u32 = 8;

/// Dirty regions.
#[derive(Clone, Copy, Debug)]
struct BitsAnswer {
    question: Seq,
    walk: BitsWalk,
}

/// Ranges of which the first ones are sent.
#[derive(Debug)]
struct TailAnswer {
    tail: KeptTail,
    sent: usize,
}

#[derive(Debug, Default)]
pub(crate) struct PeerAnswers {
    bits: Option<BitsAnswer>,
    tail: Option<TailAnswer>,
    /// Of this question are the pulls.
    pull_question: Seq,
    /// Asked for in it and not handed to the link.
    pulls_owed: usize,
    to_read: VecDeque<VolumeRange>,
    read: VecDeque<(VolumeRange, Buf)>,
    read_bytes: u64,
    /// Under way, whatever question they were for.
    reads: usize,
    reading_bytes: u64,
    failures: u32,
    /// After a read that failed nothing is read before this.
    reads_again_at: Mono,
}

impl PeerAnswers {
    /// The session is over, and with it what was asked.
    pub fn forget(&mut self) {
        let PeerAnswers { reads, reading_bytes, failures, reads_again_at, .. } = *self;
        *self = PeerAnswers { reads, reading_bytes, failures, reads_again_at, ..PeerAnswers::default() };
    }

    /// Memory that it costs.
    pub fn held_bytes(&self) -> u64 {
        let ranges = self.tail.as_ref().map_or(0, |answer| answer.tail.ranges.capacity());
        self.read_bytes + self.reading_bytes + (ranges * size_of::<VolumeRange>()) as u64
    }

    pub fn tail(&mut self, tail: KeptTail) {
        self.tail = Some(TailAnswer { tail, sent: 0 });
    }

    fn next_tail(&mut self) -> Option<(FrameKind, Seq, u16, SendPayload)> {
        let TailAnswer { tail, sent } = self.tail.as_mut()?;
        let question = tail.question;
        let ranges = &tail.ranges[*sent..];
        let ranges = &ranges[..ranges.len().min(RANGES_MAX)];
        *sent += ranges.len();
        if ranges.is_empty() {
            let flags = flags::LAST | if tail.unknown { flags::UNKNOWN } else { 0 };
            self.tail = None;
            return Some((FrameKind::Tail, question, flags, SendPayload::None));
        }
        Some((FrameKind::Tail, question, 0, SendPayload::Control(encode_ranges(ranges))))
    }
}

impl PeerAnswers {
    pub fn bits_asked(&mut self, question: Seq) {
        self.bits = Some(BitsAnswer { question, walk: BitsWalk::default() });
    }

    /// A primary asks for content. `None`: not of a range that it may ask for.
    pub fn pull_is_asked(&mut self, common: &GroupCommon, cx: &mut Cx, header: &FrameHeader) -> Option<()> {
        let range = VolumeRange { volume: header.volume, offset: header.offset, length: header.length };
        if !common.volumes.has_sectors(&range) || range.length > PART_BYTES_MAX {
            return None;
        }
        if common.volumes.is_detached(range.volume) {
            // It was never named to it.
            return Some(());
        }
        if common.role() == Role::Secondary && !self.range_asked(header.seq, range) {
            common.protocol_error(cx, "a question for more ranges at once than may be asked for");
        }
        Some(())
    }

    /// False: it is one more than may be.
    fn range_asked(&mut self, question: Seq, range: VolumeRange) -> bool {
        if question != self.pull_question {
            self.pull_question = question;
            (self.pulls_owed, self.read_bytes) = (0, 0);
            self.to_read.clear();
            self.read.clear();
        }
        if self.pulls_owed >= PULLS_IN_FLIGHT {
            return false;
        }
        self.pulls_owed += 1;
        self.to_read.push_back(range);
        true
    }

    /// The next frame of an answer, now that the link has credit for one.
    pub fn next(&mut self, common: &GroupCommon, cx: &Cx) -> Option<(FrameHeader, SendPayload)> {
        let (session, group) = (cx.peer.session, common.id());
        let blank = |kind, question| FrameHeader { seq: question, ..FrameHeader::new(kind, session, group) };
        if let Some((range, buf)) = self.read.pop_front() {
            self.read_bytes -= range.length;
            self.pulls_owed -= 1;
            let header = blank(FrameKind::Pulled, self.pull_question);
            let header = FrameHeader { volume: range.volume, offset: range.offset, length: range.length, ..header };
            return Some((header, SendPayload::Data(Slice { buf, start: 0, length: range.length as u32 })));
        }
        if let Some((kind, question, flags, payload)) = self.next_tail() {
            return Some((FrameHeader { flags, ..blank(kind, question) }, payload));
        }
        let question = self.bits.as_ref()?.question;
        self.next_bits(blank(FrameKind::Bits, question), &common.volumes)
    }

    fn next_bits(&mut self, header: FrameHeader, volumes: &Volumes) -> Option<(FrameHeader, SendPayload)> {
        let frame = self.bits.as_mut()?.walk.next(header, volumes);
        if frame.0.flags & flags::LAST != 0 {
            self.bits = None;
        }
        Some(frame)
    }

    /// Reads what is asked for, a little ahead of the link, as far as there is memory for it; the first range always.
    pub fn read_ahead(&mut self, common: &mut GroupCommon, cx: &mut Cx, others_bytes: u64) {
        while cx.now.mono >= self.reads_again_at
            && self.reads + self.read.len() < READS_MAX
            && let Some(range) = self.to_read.front().copied()
        {
            let none = self.read_bytes + self.reading_bytes == 0;
            if !none && others_bytes + self.held_bytes() + range.length > cx.allowance {
                return common.memory.note(true);
            }
            self.to_read.pop_front();
            self.reads += 1;
            self.reading_bytes += range.length;
            let (session, question) = (cx.peer.session, self.pull_question);
            let token = common.slots.start(SlotOperation::PullRead { range, session, question });
            let (store, length) = (Store::Volume(common.id(), range.volume), range.length as u32);
            cx.out.push_back(Output::Read { token, store, offset: range.offset, length, crc: None });
        }
        common.memory.note(false);
    }

    /// A range was read, or could not be. In another session, or by another question, a primary asks anew.
    pub fn pull_read(
        &mut self,
        common: &GroupCommon,
        cx: &mut Cx,
        range: VolumeRange,
        asked_by: (SessionId, Seq),
        result: IoResult,
    ) -> Result<(), Broken> {
        self.reads -= 1;
        self.reading_bytes -= range.length;
        // A peer that goes back to an older question is answered no more often than it has asked since.
        let is_awaited = self.pulls_owed > self.to_read.len() + self.read.len();
        let asked = asked_by == (cx.peer.session, self.pull_question) && is_awaited;
        if !asked || common.role() != Role::Secondary {
            return Ok(());
        }
        let Ok(IoDone::Payload { buf, .. }) = result else { return self.pull_read_failed(common.id(), cx, range) };
        self.failures = 0;
        self.read_bytes += range.length;
        self.read.push_back((range, buf));
        Ok(())
    }

    fn pull_read_failed(&mut self, group: GroupId, cx: &mut Cx, range: VolumeRange) -> Result<(), Broken> {
        self.to_read.push_front(range);
        if cx.now.mono >= self.reads_again_at {
            // Others that were under way beside it say nothing new.
            self.failures += 1;
            self.reads_again_at = cx.now.mono.plus(APPLY_RETRY_AFTER);
        }
        if self.failures >= READ_FAILURES_MAX {
            return Err(Broken::VolumeRead);
        }
        // Whatever it finds to do, the link then asks this group for its next frame.
        cx.timers.set_sooner(TimerKey::Group(group, GroupTimer::ApplyRetry), self.reads_again_at);
        Ok(())
    }
}

const _: () = assert!(PULLS_IN_FLIGHT >= READS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_what_is_being_read_and_the_names_of_ranges_are_counted() {
        let mut answers = PeerAnswers { read_bytes: 1000, reading_bytes: 30, ..PeerAnswers::default() };
        assert_eq!(answers.held_bytes(), 1030);
        answers.tail(KeptTail { question: Seq(1), ranges: Vec::with_capacity(3), unknown: false });
        assert_eq!(answers.held_bytes(), 1030 + 3 * size_of::<VolumeRange>() as u64);
    }
}
