//! Folding: what is overwritten before it was sent is left out, and the peer takes all that is sent of such a stretch in one step.
//!
//! An *epoch* is a run of numbers of the queue that are not sent yet. A write in it whose every byte later writes of the epoch overwrite is
//! left out. What is between would have been an image without it, so the epoch is atomic at the peer: no position inside is ever named. The
//! peer writes it to its journal as one batch, which bounds it.
//!
//! The queue keeps what is left out until it is confirmed. A session that is lost loses the epoch, and nothing else.
//!
//! Only writes whose bytes are in memory, and stay there, are taken into an epoch. What would have to be read back in the midst of one waits
//! for room, and that may be made by the end of the epoch alone. What was read back is in memory.
//!
//! Only what is flushed here is taken into an epoch, for the reason for which only that is joined ([`crate::peer::framing`]).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use crate::formats::wire::flags;
use crate::ids::{Seq, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::limits::{EPOCH_BYTES_MAX, EPOCH_FRAMES_MAX, EPOCH_TIME, RUN_MAX};
use crate::peer::queue::{ItemBody, QueueItem, StreamQueue};
use crate::shared::cost::cost;
use crate::status::StepSpan;
use crate::time::Mono;

/// Numbers that the peer takes in one step.
#[derive(Debug)]
pub(super) struct SendEpoch {
    first: Seq,
    last: Seq,
    /// Of each number, whether it is left out.
    left_out: Vec<bool>,
    /// Their bytes.
    left_out_bytes: u64,
    /// Payload of the others.
    sent_bytes: u64,
    /// From the stamp of its first write to that of its last.
    time: Duration,
}

impl SendEpoch {
    pub fn first(&self) -> Seq {
        self.first
    }

    pub fn last(&self) -> Seq {
        self.last
    }

    pub fn leaves_out(&self, seq: Seq) -> bool {
        let at = seq.0.checked_sub(self.first.0).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.left_out.get(at)).copied().unwrap_or(false)
    }

    fn span(&self) -> StepSpan {
        StepSpan { time: self.time, bytes: self.sent_bytes + self.left_out_bytes }
    }

    pub fn contains(&self, seq: Seq) -> bool {
        (self.first..=self.last).contains(&seq)
    }
}

/// An epoch is looked for once so much of the peer's window is there.
const WINDOW_PART: u64 = 4;

/// What bounds an epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpochRoom {
    pub bytes: u64,
    /// What it may take of the peer's window.
    pub cost_bytes: u64,
    /// Every number up to here is flushed on this node.
    pub flushed: Seq,
    /// From here on memory lets go of what the disk queue takes.
    pub leaves_from: Option<Seq>,
}

/// A primary's grant, and how often it went back.
pub(super) type Grant = (u64, u64);

/// What was sent and is not counted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Writes that were left out, and their bytes.
    pub left_out: (u64, u64),
    /// The largest of what the peer takes at once though it is several writes.
    pub step: Option<StepSpan>,
}

impl Taken {
    fn step(&mut self, span: StepSpan) {
        self.step = Some(self.step.map_or(span, |other| other.max(span)));
    }
}

/// The epoch that is being sent.
#[derive(Debug, Default)]
pub(super) struct Folding {
    epoch: Option<SendEpoch>,
    /// Up to here there is nothing to leave out.
    examined: Seq,
    /// A smaller grant came while an epoch was under way: it counts from the epoch's end on.
    later_grant: Option<Grant>,
    uncounted: Taken,
    /// The most that this session had of the peer's window, since it last had all of it.
    window_bytes: u64,
    /// Whether with more of it something would be left out from this number on, and the last one looked at.
    with_more: Option<(Seq, Seq, bool)>,
    /// It is waited for.
    is_waiting: bool,
    /// Payload of what the peer confirms at once: the most of late, and when that was sent.
    step: (u64, Mono),
}

impl Folding {
    pub fn epoch(&self) -> Option<&SendEpoch> {
        self.epoch.as_ref()
    }

    /// What is sent next may begin an epoch.
    pub fn look(&mut self, queue: &StreamQueue, room: EpochRoom) {
        if self.epoch.is_some() || queue.first_unsent().is_none_or(|next| next <= self.examined) {
            return;
        }
        let found = find(queue, room);
        self.examined = found.as_ref().map_or(self.examined, |(epoch, _)| epoch.last);
        self.epoch = found.filter(|(_, folds)| *folds).map(|(epoch, _)| epoch);
    }

    /// A frame is sent that stands for so many numbers. One of several writes is a step, as an epoch is.
    pub fn frame(&mut self, numbers: usize, span: StepSpan, now: Mono) {
        if numbers > 1 && self.epoch.is_none() {
            self.uncounted.step(span);
        }
        let joined = if numbers > 1 { span.bytes } else { 0 };
        let bytes = self.epoch.as_ref().map_or(joined, |epoch| epoch.sent_bytes);
        if bytes >= self.step.0 || now.since(self.step.1) > EPOCH_TIME {
            self.step = (bytes, now);
        }
    }

    pub fn step_bytes(&self) -> u64 {
        self.step.0
    }

    /// With what is `left` of the peer's window little could be left out. More of it comes, unless the peer `is_idle`, and is worth waiting
    /// for.
    pub fn waits_for_room(&mut self, queue: &StreamQueue, room: EpochRoom, left: u64, is_idle: bool) -> bool {
        self.window_bytes = if is_idle { left } else { self.window_bytes.max(left) };
        let worth = (self.window_bytes / WINDOW_PART).min(2 * cost(EPOCH_BYTES_MAX));
        let next = queue.first_unsent().filter(|next| self.epoch.is_none() && *next > self.examined);
        self.is_waiting = next.is_some_and(|next| {
            !is_idle && left < worth && self.folds_with_more(queue, EpochRoom { cost_bytes: worth / 2, ..room }, next)
        });
        self.is_waiting
    }

    /// Where nothing is left out, that is known of all numbers that were looked at.
    fn folds_with_more(&mut self, queue: &StreamQueue, room: EpochRoom, next: Seq) -> bool {
        let is_known =
            |(from, through, folds): &(Seq, Seq, bool)| *from == next || !folds && (*from..=*through).contains(&next);
        let (from, through, folds) = self.with_more.filter(is_known).unwrap_or_else(|| {
            let found = find(queue, room);
            found.map_or((next, next, false), |(epoch, folds)| (epoch.first, epoch.last, folds))
        });
        self.with_more = Some((from, through, folds));
        folds
    }

    /// The stream waits for more of the peer's window, though some is left.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// All through here was sent. The grant that counts from here on, if another one was put off.
    pub fn sent(&mut self, through: Seq) -> Option<Grant> {
        let epoch = self.epoch.take_if(|epoch| epoch.last <= through)?;
        let (writes, bytes) = &mut self.uncounted.left_out;
        *writes += epoch.left_out.iter().filter(|is_out| **is_out).count() as u64;
        *bytes += epoch.left_out_bytes;
        self.uncounted.step(epoch.span());
        self.later_grant.take()
    }

    /// What was sent since this was last asked.
    pub fn take_uncounted(&mut self) -> Taken {
        core::mem::take(&mut self.uncounted)
    }

    /// The peer may have promised the room for an epoch to others, once it has heard that this node goes by less. So it hears so when the
    /// epoch is sent.
    pub fn grant(&mut self, now: Grant, new: Grant) -> Grant {
        let goes_back = new.0 < now.0 && self.epoch.is_some();
        self.later_grant = Some(new).filter(|_| goes_back);
        if goes_back { now } else { new }
    }

    /// The session is lost: what is left is looked at anew.
    pub fn forget(&mut self) {
        *self = Folding::default();
    }
}

/// Where in a volume what a write of the epoch wrote still stands at its end: by volume and offset, the end and the write's index.
#[derive(Default)]
struct Standing(BTreeMap<(VolumeId, u64), (u64, usize)>);

impl Standing {
    /// `by` writes there. Of each write before it that stood there, what it loses.
    fn write(&mut self, volume: VolumeId, start: u64, end: u64, by: usize, mut loses: impl FnMut(usize, u64)) {
        let before = self.0.range(..(volume, start)).next_back();
        let from = before.filter(|((of, _), (its_end, _))| *of == volume && *its_end > start).map(|(key, _)| *key);
        let first = from.unwrap_or((volume, start));
        let met: Vec<_> = self.0.range(first..(volume, end)).map(|(key, value)| (*key, *value)).collect();
        for ((_, its_start), (its_end, owner)) in met {
            self.0.remove(&(volume, its_start));
            loses(owner, its_end.min(end) - its_start.max(start));
            if its_start < start {
                self.0.insert((volume, its_start), (start, owner));
            }
            if its_end > end {
                self.0.insert((volume, end), (its_end, owner));
            }
        }
        self.0.insert((volume, start), (end, by));
    }
}

/// The longest run from what is sent next on that may be an epoch, and whether anything of it is left out.
fn find(queue: &StreamQueue, room: EpochRoom) -> Option<(SendEpoch, bool)> {
    let begins = queue.unsent().next()?.wall;
    let may_be = |item: &&QueueItem| {
        let in_time = item.wall.since(begins) <= EPOCH_TIME;
        let stays = injected(Fault::EpochLeavesMemory) || room.leaves_from.is_none_or(|from| item.seq < from);
        !is_barrier(item) && !queue.is_awaited(item) && in_time && item.seq <= room.flushed && stays
    };
    let mut standing = Standing::default();
    // What is left of each.
    let mut left: Vec<u64> = Vec::new();
    let (mut frames, mut bytes, mut cost_bytes) = (0, 0, 0);
    let mut items: Vec<&QueueItem> = Vec::new();
    for (at, item) in queue.unsent().take(RUN_MAX as usize - 1).take_while(may_be).enumerate() {
        let (payload, costs) = costs_of(item);
        if frames == EPOCH_FRAMES_MAX
            || bytes + payload > room.bytes.min(EPOCH_BYTES_MAX)
            || cost_bytes + costs > room.cost_bytes
        {
            break;
        }
        (frames, bytes, cost_bytes) = (frames + 1, bytes + payload, cost_bytes + costs);
        items.push(item);
        left.push(item.length);
        standing.write(item.volume, item.offset, item.offset + item.length, at, |owner, lost| {
            left[owner] -= lost.min(left[owner]);
            if left[owner] == 0 {
                let (payload, costs) = costs_of(items[owner]);
                (frames, bytes, cost_bytes) = (frames - 1, bytes - payload, cost_bytes - costs);
            }
        });
    }
    let (first, last) = (items.first()?, items.last()?);
    let left_out: Vec<bool> = left.iter().map(|left| *left == 0).collect();
    let folds = left_out.contains(&true);
    let left_out_bytes = items.iter().zip(&left_out).filter(|(_, is_out)| **is_out).map(|(item, _)| item.length).sum();
    let time = last.wall.since(first.wall);
    Some((SendEpoch { first: first.seq, last: last.seq, left_out, left_out_bytes, sent_bytes: bytes, time }, folds))
}

/// Its payload, and what it costs the peer.
fn costs_of(item: &QueueItem) -> (u64, u64) {
    let payload = if matches!(item.body, ItemBody::Data(_)) { item.length } else { 0 };
    (payload, cost(payload))
}

/// What has its own place in the order, or is not at hand.
fn is_barrier(item: &QueueItem) -> bool {
    if item.flags & flags::MARK != 0 {
        // The peer stands there, and nothing of before goes with what comes behind.
        return !injected(Fault::MarkFolded);
    }
    let is_write = matches!(item.body, ItemBody::Data(_) | ItemBody::Zero { .. });
    !is_write || item.flags & !flags::WANT_RECEIVED != 0 || item.length == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::queue::QueueRecord;
    use crate::time::Wall;
    use crate::{Buf, Slice};
    use alloc::sync::Arc;
    use alloc::vec;

    const PLENTY: EpochRoom =
        EpochRoom { bytes: 1 << 30, cost_bytes: 1 << 30, flushed: Seq(u64::MAX), leaves_from: None };

    #[derive(Clone, Copy)]
    struct Asked {
        volume: u16,
        start: u64,
        end: u64,
        is_data: bool,
    }

    fn write(volume: u16, start: u64, end: u64) -> Asked {
        Asked { volume, start, end, is_data: true }
    }

    /// Numbers from 1 on, of sectors, a millisecond apart.
    fn queue(writes: &[Asked]) -> StreamQueue {
        let mut queue = StreamQueue::new(Seq::NONE, QueueRecord::default());
        for (seq, asked) in (1..).zip(writes) {
            let length = (asked.end - asked.start) * 512;
            let slice = Slice { buf: Buf::new(Arc::new(seq)), start: 0, length: length as u32 };
            let body = if asked.is_data { ItemBody::Data(slice) } else { ItemBody::Zero { no_hole: false } };
            queue.push(QueueItem {
                seq: Seq(seq),
                volume: VolumeId(asked.volume),
                offset: asked.start * 512,
                length,
                wall: Wall(seq * 1_000_000),
                flags: 0,
                body,
                cost_bytes: cost(length),
            });
        }
        queue
    }

    /// The last number of the epoch and those that it leaves out, if it leaves out any.
    fn found(queue: &StreamQueue, room: EpochRoom) -> Option<(u64, Vec<u64>)> {
        let mut folding = Folding::default();
        folding.look(queue, room);
        let epoch = folding.epoch()?;
        let numbers = epoch.first.0..=epoch.last.0;
        Some((epoch.last.0, numbers.filter(|seq| epoch.leaves_out(Seq(*seq))).collect()))
    }

    // proves: rule 20
    /// Of each sector of each write it is looked whether a later one wrote it again.
    #[test]
    fn what_is_left_out_is_what_later_writes_overwrite_as_a_whole() {
        let mut state = 5u64;
        let mut draw = |below: u64| {
            state = crate::ids::mix(state, 1);
            state % below
        };
        let mut folded = 0;
        for _ in 0..2_000 {
            let writes: Vec<Asked> = (0..1 + draw(24))
                .map(|_| {
                    let start = draw(12);
                    Asked { volume: draw(2) as u16, start, end: start + 1 + draw(6), is_data: draw(5) > 0 }
                })
                .collect();
            let again = |at: usize, sector: u64| {
                let later = writes[at + 1..].iter();
                later.clone().any(|w| w.volume == writes[at].volume && (w.start..w.end).contains(&sector))
            };
            let is_out = |at: usize| (writes[at].start..writes[at].end).all(|sector| again(at, sector));
            let expected: Vec<u64> = (0..writes.len()).filter(|at| is_out(*at)).map(|at| at as u64 + 1).collect();
            folded += expected.len();
            let expected = (!expected.is_empty()).then_some((writes.len() as u64, expected));
            assert_eq!(found(&queue(&writes), PLENTY), expected);
        }
        assert!(folded > 5_000, "{folded}");
    }

    // proves: rule 20, P8
    #[test]
    fn an_epoch_ends_at_the_first_of_its_bounds() {
        let hot: Vec<Asked> = (0..200).map(|n| write(0, n % 4 * 8, n % 4 * 8 + 8)).collect();
        let last = |room: EpochRoom| found(&queue(&hot), room).map(|(last, _)| last);
        assert_eq!(last(PLENTY), Some(200));
        assert_eq!(last(EpochRoom { flushed: Seq(77), ..PLENTY }), Some(77));
        assert_eq!(
            (
                last(EpochRoom { leaves_from: Some(Seq(78)), ..PLENTY }),
                last(EpochRoom { leaves_from: Some(Seq(1)), ..PLENTY })
            ),
            (Some(77), None)
        );
        assert_eq!(
            (last(EpochRoom { flushed: Seq::NONE, ..PLENTY }), last(EpochRoom { bytes: 4096, ..PLENTY })),
            (None, None)
        );
        assert_eq!(
            last(EpochRoom { cost_bytes: 4 * cost(4096), ..PLENTY }),
            None,
            "the fifth has no room before it folds"
        );
        assert_eq!(last(EpochRoom { cost_bytes: 5 * cost(4096), ..PLENTY }), Some(200));
        let long: Vec<Asked> = (0..1500).map(|n| write(0, n % 4 * 8, n % 4 * 8 + 8)).collect();
        assert_eq!(found(&queue(&long), PLENTY).map(|(last, _)| last), Some(1001), "a second");
        let wide: Vec<Asked> = (0..200).map(|n| write(0, n / 2 * 8, n / 2 * 8 + 8)).collect();
        let (last, left_out) = found(&queue(&wide), PLENTY).expect("each is written twice");
        assert_eq!(last as usize - left_out.len(), EPOCH_FRAMES_MAX);
    }

    // proves: rule 20
    #[test]
    fn what_has_its_own_place_in_the_order_ends_it() {
        for flags in [flags::RESYNC, flags::SETS_ASIDE, flags::MARK] {
            let mut queue = queue(&[write(0, 0, 8), write(0, 0, 8), write(0, 0, 8), write(0, 0, 8)]);
            queue.get_mut(Seq(3)).expect("queued").flags = flags;
            assert_eq!(found(&queue, PLENTY), Some((2, vec![1])));
        }
        for body in [ItemBody::Probe([0; 32]), ItemBody::SyncEnd, ItemBody::Pending, ItemBody::Void, ItemBody::OnDisk] {
            let mut queue = queue(&[write(0, 0, 8), write(0, 0, 8), write(0, 0, 8), write(0, 0, 8)]);
            queue.get_mut(Seq(3)).expect("queued").body = body;
            assert_eq!(found(&queue, PLENTY), Some((2, vec![1])));
        }
    }

    // proves: rule 20
    #[test]
    fn a_grant_that_goes_back_waits_for_the_end_of_the_epoch() {
        let queue = queue(&[write(0, 0, 8), write(0, 0, 8)]);
        let mut folding = Folding::default();
        assert_eq!(folding.grant((100, 0), (50, 1)), (50, 1), "nothing is under way");
        folding.look(&queue, PLENTY);
        assert_eq!(folding.grant((100, 0), (50, 1)), (100, 0));
        assert_eq!(folding.sent(Seq(1)), None);
        assert_eq!(folding.sent(Seq(2)), Some((50, 1)));
        let step = Some(StepSpan { time: Duration::from_millis(1), bytes: 8192 });
        assert_eq!(folding.take_uncounted(), Taken { left_out: (1, 4096), step });
        assert_eq!(folding.take_uncounted(), Taken::default());
        folding.look(&queue, PLENTY);
        assert!(folding.epoch().is_none(), "looked at already");
        folding.forget();
        folding.look(&queue, PLENTY);
        assert_eq!(folding.grant((100, 0), (50, 1)), (100, 0));
        assert_eq!(folding.grant((100, 0), (120, 1)), (120, 1));
        assert_eq!(folding.sent(Seq(2)), None, "a later grant was larger");
    }

    // proves: rule 20, P8
    #[test]
    fn a_little_of_the_window_is_left_while_more_of_it_comes_and_something_folds() {
        const WINDOW: u64 = 1 << 20;
        let hot: Vec<Asked> = (0..200).map(|n| write(0, n % 4 * 8, n % 4 * 8 + 8)).collect();
        let cold: Vec<Asked> = (0..200).map(|n| write(0, n * 8, n * 8 + 8)).collect();
        let waits = |writes: &[Asked], left: u64, is_idle: bool| {
            let mut folding = Folding::default();
            assert!(!folding.waits_for_room(&queue(writes), PLENTY, WINDOW, true), "nothing is on its way");
            [(); 2].map(|()| folding.waits_for_room(&queue(writes), PLENTY, left, is_idle))
        };
        assert_eq!(waits(&hot, WINDOW / 4 - 1, false), [true; 2]);
        assert_eq!(waits(&hot, WINDOW / 4, false), [false; 2], "there is enough");
        assert_eq!(waits(&hot, WINDOW / 4 - 1, true), [false; 2], "no more comes");
        assert_eq!(waits(&cold, WINDOW / 4 - 1, false), [false; 2], "nothing is left out with more");
        assert_eq!(waits(&hot[..1], WINDOW / 4 - 1, false), [false; 2], "no backlog");
    }

    // proves: rule 20
    #[test]
    fn frames_of_an_epoch_stand_for_what_is_left_out_before_them() {
        use crate::SendPayload;
        use crate::peer::framing::{FrameRoom, next_unit};
        let blocks = |list: &[u64]| -> Vec<Asked> { list.iter().map(|n| write(0, n * 8, n * 8 + 8)).collect() };
        let mut queue = queue(&blocks(&[5, 0, 5, 1, 5, 0, 1, 2, 9]));
        let mut folding = Folding::default();
        folding.look(&queue, EpochRoom { flushed: Seq(8), ..PLENTY });
        let room = FrameRoom { bytes: 1 << 20, cost_bytes: 1 << 20, flushed: Seq(8) };
        let mut frames = Vec::new();
        while let Some(unit) = next_unit(&queue, folding.epoch(), &room) {
            let slices = if let SendPayload::Gathered(slices) = &unit.payload { slices.len() } else { 1 };
            frames.push((unit.numbers, unit.first.seq.0, unit.last.seq.0, slices));
            let (numbers, last) = (unit.numbers, unit.last.seq);
            (0..numbers).for_each(|_| queue.advance(Mono(0)));
            folding.sent(last);
        }
        assert_eq!(frames, [(5, 5, 5, 1), (3, 6, 8, 3), (1, 9, 9, 1)]);
    }
}
