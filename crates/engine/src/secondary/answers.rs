//! What a secondary owes its primary for what that asked: dirty regions, the ranges it may have lost, their content. However
//! often it asks, one answer of each kind is under way, and of it only as much is made as the link takes.
//!
//! * An answer has its turns among the frames of all groups, while the link has credit: what is asked for and not read stays
//!   a cursor, or a list of names.
//! * A newer question takes the place of the one before.
//! * Content is read for the link's next turns, a few ranges at a time, and counts against `memory.limit` until it is handed over.
//!   What cannot be read is read again after a pause, a few times.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::common::Common;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::durability::kept::merged;
use crate::formats::identity::Role;
use crate::formats::wire::FlushPoints;
use crate::formats::wire::{Header, Kind, RANGES_MAX, VolumeRange, encode_ranges, flags};
use crate::ids::*;
use crate::limits::{APPLY_RETRY_AFTER, PULLS_IN_FLIGHT};
use crate::planted::{Fault, planted};
use crate::secondary::Secondary;
use crate::shared::slots::Op;
use crate::shared::time::Mono;
use crate::state::{Broken, State};
use crate::{Buf, IoDone, IoError, Output, SendPayload, Slice, Store, limits};

/// Words of dirty bits in one frame.
pub(crate) const BITS_WORDS: usize = 4096;
/// Ranges read for pulls at once: enough to keep the link busy beside a disk, in all 4 MiB at most.
const READS_MAX: usize = 4;

/// Failed reads of content, one after the other and with a pause behind each, before the group gives up.
const READ_FAILURES_MAX: u32 = 8;

/// Dirty regions: where the walk over them goes on.
#[derive(Clone, Copy, Debug)]
struct BitsAnswer {
    question: Seq,
    volume: usize,
    region: u64,
}

/// Ranges of which the first ones are sent.
#[derive(Debug)]
struct TailAnswer {
    question: Seq,
    ranges: Vec<VolumeRange>,
    sent: usize,
    /// More was confirmed than is named, and nobody knows what.
    unknown: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Answers {
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

impl Answers {
    /// The session is over, and with it what was asked.
    pub fn forget(&mut self) {
        let Answers { reads, reading_bytes, failures, reads_again_at, .. } = *self;
        *self = Answers { reads, reading_bytes, failures, reads_again_at, ..Answers::default() };
    }

    /// Memory that it costs.
    pub fn held_bytes(&self) -> u64 {
        let ranges = self.tail.as_ref().map_or(0, |tail| tail.ranges.capacity());
        self.read_bytes + self.reading_bytes + (ranges * size_of::<VolumeRange>()) as u64
    }

    pub fn tail(&mut self, question: Seq, ranges: Vec<VolumeRange>, unknown: bool) {
        self.tail = Some(TailAnswer { question, ranges, sent: 0, unknown });
    }

    fn next_tail(&mut self) -> Option<(Kind, Seq, u16, SendPayload)> {
        let tail = self.tail.as_mut()?;
        let question = tail.question;
        let ranges = &tail.ranges[tail.sent..];
        let ranges = &ranges[..ranges.len().min(RANGES_MAX)];
        tail.sent += ranges.len();
        if ranges.is_empty() {
            let flags = flags::LAST | if tail.unknown { flags::UNKNOWN } else { 0 };
            self.tail = None;
            return Some((Kind::Tail, question, flags, SendPayload::None));
        }
        Some((Kind::Tail, question, 0, SendPayload::Control(encode_ranges(ranges))))
    }
}

impl Common {
    pub fn bits_asked(&mut self, question: Seq) {
        if self.role() == Role::Secondary {
            self.answers.bits = Some(BitsAnswer { question, volume: 0, region: 0 });
        }
    }

    /// A range is asked for. False: it is one more than may be.
    #[must_use]
    pub fn range_asked(&mut self, question: Seq, range: VolumeRange) -> bool {
        let answers = &mut self.answers;
        if question != answers.pull_question {
            answers.pull_question = question;
            (answers.pulls_owed, answers.read_bytes) = (0, 0);
            answers.to_read.clear();
            answers.read.clear();
        }
        if answers.pulls_owed >= PULLS_IN_FLIGHT {
            return false;
        }
        answers.pulls_owed += 1;
        answers.to_read.push_back(range);
        true
    }
}

impl Common {
    /// The next frame of an answer, now that the link has credit for one.
    pub fn next_answer(&mut self, cx: &mut Cx, others_bytes: u64) -> Option<(Header, SendPayload)> {
        let answers = self.role() == Role::Secondary && self.lifecycle.is_running();
        if !answers || matches!(self.state, State::Failed(_)) {
            self.answers.forget();
            return None;
        }
        self.read_for_pulls(cx, others_bytes);
        let blank = |kind, question| Header { seq: question, ..Header::new(kind, cx.peer.session, self.config.id) };
        if let Some((range, buf)) = self.answers.read.pop_front() {
            self.answers.read_bytes -= range.length;
            self.answers.pulls_owed -= 1;
            let header = blank(Kind::Pulled, self.answers.pull_question);
            let header = Header { volume: range.volume, offset: range.offset, length: range.length, ..header };
            return Some((header, SendPayload::Data(Slice { buf, start: 0, length: range.length as u32 })));
        }
        if let Some((kind, question, flags, payload)) = self.answers.next_tail() {
            return Some((Header { flags, ..blank(kind, question) }, payload));
        }
        self.next_bits(cx)
    }
}

impl Common {
    fn next_bits(&mut self, cx: &Cx) -> Option<(Header, SendPayload)> {
        let bits = self.answers.bits.as_mut()?;
        let header = Header { seq: bits.question, ..Header::new(Kind::Bits, cx.peer.session, self.config.id) };
        while let Some(volume) = self.volumes.get(bits.volume) {
            let Some(region) = volume.dirty.next_set(bits.region) else {
                (bits.volume, bits.region) = (bits.volume + 1, 0);
                continue;
            };
            let chunk = region as usize / 64 / BITS_WORDS;
            let words = volume.dirty.words().chunks(BITS_WORDS).nth(chunk).unwrap_or_default();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let offset = (chunk * BITS_WORDS * 64) as u64;
            bits.region = offset + (BITS_WORDS * 64) as u64;
            let offset = if planted(Fault::BitsDisplaced) { 0 } else { offset };
            let header = Header { volume: VolumeId(bits.volume as u16), offset, ..header };
            return Some((header, SendPayload::Control(bytes)));
        }
        self.answers.bits = None;
        Some((Header { flags: flags::LAST, ..header }, SendPayload::None))
    }
}

impl Common {
    /// Reads what is asked for, a little ahead of the link, as far as there is memory for it; the first range always.
    fn read_for_pulls(&mut self, cx: &mut Cx, others_bytes: u64) {
        while cx.now.mono >= self.answers.reads_again_at
            && self.answers.reads + self.answers.read.len() < READS_MAX
            && let Some(range) = self.answers.to_read.front().copied()
        {
            let none = self.answers.read_bytes + self.answers.reading_bytes == 0;
            if !none && others_bytes + self.answers.held_bytes() + range.length > cx.allowance {
                self.wants_memory = true;
                return;
            }
            self.answers.to_read.pop_front();
            self.answers.reads += 1;
            self.answers.reading_bytes += range.length;
            let (session, question) = (cx.peer.session, self.answers.pull_question);
            let token = self.slots.start(Op::PullRead { range, session, question });
            let (store, offset, length) = (Store::Volume(self.id(), range.volume), range.offset, range.length as u32);
            cx.out.push_back(Output::Read { token, store, offset, length, crc: None });
        }
    }
}

impl Common {
    pub fn pull_read(
        &mut self,
        cx: &mut Cx,
        range: VolumeRange,
        (session, question): (SessionId, Seq),
        result: Result<IoDone, IoError>,
    ) -> Result<(), Broken> {
        self.answers.reads -= 1;
        self.answers.reading_bytes -= range.length;
        // In another session, or by another question, the primary asks anew.
        let asked = session == cx.peer.session && question == self.answers.pull_question && self.answers.pulls_owed > 0;
        if !asked || self.role() != Role::Secondary {
            return Ok(());
        }
        let Ok(IoDone::Payload { buf, .. }) = result else { return self.pull_read_failed(cx, range) };
        self.answers.failures = 0;
        self.answers.read_bytes += range.length;
        self.answers.read.push_back((range, buf));
        Ok(())
    }

    fn pull_read_failed(&mut self, cx: &mut Cx, range: VolumeRange) -> Result<(), Broken> {
        let answers = &mut self.answers;
        answers.to_read.push_front(range);
        if cx.now.mono >= answers.reads_again_at {
            // Others that were under way beside it say nothing new.
            answers.failures += 1;
            answers.reads_again_at = cx.now.mono.plus(APPLY_RETRY_AFTER);
        }
        if answers.failures >= READ_FAILURES_MAX {
            return Err(Broken::VolumeRead);
        }
        // Whatever it finds to do, the link then asks this group for its next frame.
        let key = TimerKey::Group(self.id(), GroupTimer::ApplyRetry);
        cx.timers.set_sooner(key, self.answers.reads_again_at);
        Ok(())
    }
}

const _: () = assert!(BITS_WORDS * 8 <= crate::limits::CONTROL_BYTES_MAX as usize);
const _: () = assert!(PULLS_IN_FLIGHT >= READS_MAX);

impl Secondary {
    // ---- the secondary answers --------------------------------------------------------------------------------------

    /// A primary asks for what it may have lost. One that was promoted meanwhile has nothing to tell.
    pub fn tail_is_asked(&mut self, common: &mut Common, cx: &mut Cx, points: FlushPoints, question: Seq) {
        self.tail_asked = Some((points, question)).filter(|_| common.role() == Role::Secondary);
        self.answer_tail(common, cx);
    }

    /// Once everything received is on the volumes, the primary is told which ranges it may have lost.
    pub fn answer_tail(&mut self, common: &mut Common, cx: &mut Cx) {
        if self.tail_asked.is_none() || common.role() != Role::Secondary {
            return;
        }
        self.give_up_unlanded(common, cx);
        if !self.replica_at_rest(common, cx) {
            return;
        }
        let Some((points, question)) = self.tail_asked.take() else { return };
        let same_run = points.incarnation == self.position().incarnation;
        let mut ranges = if same_run { merged(self.kept.beyond(&points).collect()) } else { Vec::new() };
        let recorded = points.volumes.iter().min().copied().unwrap_or_default();
        let given_up = common.sb.current.given_up;
        // Of what was given up whole nobody knows which run it was of.
        let given_up = given_up == Seq(u64::MAX) || same_run && given_up > recorded.max(self.kept.primary_flushed());
        // A journal that was read back may hold more than an answer does.
        let too_many = ranges.len() > limits::KEPT_MAX;
        if too_many {
            ranges.clear();
        }
        let unknown = given_up || too_many;
        common.answers.tail(question, ranges, unknown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_what_is_being_read_and_the_names_of_ranges_are_counted() {
        let mut answers = Answers { read_bytes: 1000, reading_bytes: 30, ..Answers::default() };
        assert_eq!(answers.held_bytes(), 1030);
        answers.tail(Seq(1), Vec::with_capacity(3), false);
        assert_eq!(answers.held_bytes(), 1030 + 3 * size_of::<VolumeRange>() as u64);
    }
}
