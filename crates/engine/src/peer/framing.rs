//! What the next frame of the stream carries: one number of the queue, or neighbours that are joined.
//!
//! Numbers that follow each other, and whose ranges do, travel as one frame. The peer takes such a frame as one record: it stands for all
//! of its numbers, or for none, and no position that the peer names lies between them. So they are of one second.
//!
//! Only what is flushed here is joined. Of that the peer keeps nothing for a primary that loses its power, so nothing of it is ever fetched
//! in part.

use alloc::vec;
use alloc::vec::Vec;

use crate::formats::wire::{FrameKind, flags};
use crate::ids::Seq;
use crate::injected_fault::{Fault, injected};
use crate::limits::{EPOCH_TIME, SLICES_MAX};
use crate::peer::epoch::SendEpoch;
use crate::peer::queue::{ItemBody, QueueItem, StreamQueue};
use crate::shared::cost::cost;
use crate::{SendPayload, Slice};

/// What bounds a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameRoom {
    /// Payload of one frame on this link.
    pub bytes: u64,
    /// What the peer's window has left.
    pub cost_bytes: u64,
    /// Every number up to here is flushed on this node.
    pub flushed: Seq,
}

/// What one frame carries.
#[derive(Debug)]
pub(super) struct FrameUnit<'a> {
    pub kind: FrameKind,
    pub payload: SendPayload,
    /// Numbers of the queue, from the next one on, that it stands for; the first of them may be left out.
    pub numbers: usize,
    pub first: &'a QueueItem,
    pub last: &'a QueueItem,
    pub length: u64,
}

/// The next frame's; `None`: its bytes are not at hand.
pub(super) fn next_unit<'a>(
    queue: &'a StreamQueue,
    epoch: Option<&SendEpoch>,
    room: &FrameRoom,
) -> Option<FrameUnit<'a>> {
    let is_left_out = |item: &&QueueItem| epoch.is_some_and(|epoch| epoch.leaves_out(item.seq));
    let left_out = queue.unsent().take_while(is_left_out).count();
    let item = queue.unsent().nth(left_out)?;
    if queue.is_awaited(item) {
        return None;
    }
    let (kind, payload) = match &item.body {
        ItemBody::OnDisk if injected(Fault::SpilledSentAsZeroes) => (FrameKind::Zero, SendPayload::None),
        ItemBody::Data(slice) => return Some(joined((queue, left_out), epoch, (item, slice), room)),
        ItemBody::Zero { .. } => (FrameKind::Zero, SendPayload::None),
        ItemBody::Void => (FrameKind::Void, SendPayload::None),
        ItemBody::Probe(hash) => (FrameKind::Probe, SendPayload::Control(hash.to_vec())),
        ItemBody::SyncEnd => (FrameKind::SyncEnd, SendPayload::None),
        ItemBody::Pending | ItemBody::OnDisk | ItemBody::Fetching => return None,
    };
    Some(FrameUnit { kind, payload, numbers: left_out + 1, first: item, last: item, length: item.length })
}

/// A write, and those behind it that continue it.
///
/// `left_out`: so many numbers before it are.
fn joined<'a>(
    (queue, left_out): (&'a StreamQueue, usize),
    epoch: Option<&SendEpoch>,
    (first, slice): (&'a QueueItem, &Slice),
    room: &FrameRoom,
) -> FrameUnit<'a> {
    let (mut slices, mut last, mut length) = (vec![slice.clone()], first, first.length);
    let mut numbers = left_out + 1;
    let is_left_out = |item: &QueueItem| epoch.is_some_and(|epoch| epoch.leaves_out(item.seq));
    for (at, item) in queue.unsent().enumerate().skip(numbers) {
        if epoch.is_some_and(|epoch| !epoch.contains(item.seq)) {
            break;
        }
        if is_left_out(item) {
            continue;
        }
        let ItemBody::Data(slice) = &item.body else { break };
        let continues = item.volume == first.volume && item.offset == first.offset + length;
        let is_alike = item.flags == first.flags && item.flags & flags::RESYNC == 0;
        let sum = length + item.length;
        let in_time = item.wall.since(first.wall) <= EPOCH_TIME;
        let fits = slices.len() < SLICES_MAX && sum <= room.bytes && cost(sum) <= room.cost_bytes;
        if !continues || !is_alike || !fits || !in_time || queue.is_awaited(item) || item.seq > room.flushed {
            break;
        }
        slices.push(slice.clone());
        (last, length, numbers) = (item, sum, at + 1);
    }
    FrameUnit { kind: FrameKind::Data, numbers, payload: payload_of(slices), first, last, length }
}

fn payload_of(mut slices: Vec<Slice>) -> SendPayload {
    if injected(Fault::JoinedMisplaced) {
        slices.reverse();
    }
    match slices.len() {
        1 => SendPayload::Data(slices.remove(0)),
        _ => SendPayload::Gathered(slices),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buf;
    use crate::ids::VolumeId;
    use crate::peer::queue::QueueRecord;
    use crate::time::{Mono, Wall};
    use alloc::sync::Arc;

    const PLENTY: FrameRoom = FrameRoom { bytes: 1 << 20, cost_bytes: 1 << 20, flushed: Seq(u64::MAX) };

    /// Writes of 4 KiB, each with its volume, its block and its flags.
    fn queue(writes: &[(u16, u64, u16)]) -> StreamQueue {
        let mut queue = StreamQueue::new(Seq::NONE, QueueRecord::default());
        for (seq, (volume, block, flags)) in (1..).zip(writes) {
            let slice = Slice { buf: Buf::new(Arc::new(seq)), start: 0, length: 4096 };
            queue.push(QueueItem {
                seq: Seq(seq),
                volume: VolumeId(*volume),
                offset: block * 4096,
                length: 4096,
                wall: Wall(seq),
                flags: *flags,
                body: ItemBody::Data(slice),
                cost_bytes: cost(4096),
            });
        }
        queue
    }

    /// How many numbers each of the frames stands for.
    fn frames(queue: &mut StreamQueue, room: &FrameRoom) -> Vec<usize> {
        core::iter::from_fn(|| {
            let unit = next_unit(queue, None, room)?;
            let slices = match &unit.payload {
                SendPayload::Data(_) => 1,
                SendPayload::Gathered(slices) => slices.len(),
                _ => 0,
            };
            assert_eq!((unit.numbers, unit.length), (slices, 4096 * slices as u64));
            let numbers = unit.numbers;
            (0..numbers).for_each(|_| queue.advance(Mono(0)));
            Some(numbers)
        })
        .collect()
    }

    // proves: rule 4, rule 25
    #[test]
    fn neighbours_in_number_and_in_place_travel_together() {
        let run: Vec<_> = (0..5).map(|block| (0, block, 0)).collect();
        let of_run = |room: FrameRoom| frames(&mut queue(&run), &room);
        assert_eq!(of_run(PLENTY), [5]);
        assert_eq!(of_run(FrameRoom { bytes: 8192, ..PLENTY }), [2, 2, 1], "no frame is longer than the link's");
        assert_eq!(of_run(FrameRoom { bytes: 512, ..PLENTY }), [1; 5], "one write is not cut here");
        assert_eq!(of_run(FrameRoom { cost_bytes: cost(12288), ..PLENTY }), [3, 2]);
        assert_eq!(of_run(FrameRoom { flushed: Seq(3), ..PLENTY }), [3, 1, 1]);
        assert_eq!(of_run(FrameRoom { flushed: Seq::NONE, ..PLENTY }), [1; 5]);
        let mut long = queue(&run);
        (1..).map(Seq).take(5).for_each(|seq| long.get_mut(seq).expect("queued").wall = Wall(seq.0 * 400_000_000));
        assert_eq!(frames(&mut long, &PLENTY), [3, 2], "between writes of two seconds there is a recovery point");
        let many: Vec<_> = (0..200).map(|block| (0, block, 0)).collect();
        assert_eq!(frames(&mut queue(&many), &PLENTY), [60, 60, 60, 20]);
    }

    // proves: rule 4
    #[test]
    fn what_does_not_continue_a_write_travels_alone() {
        let of = |writes: &[_]| frames(&mut queue(writes), &PLENTY);
        assert_eq!(of(&[(0, 0, 0), (0, 2, 0), (0, 1, 0)]), [1; 3], "other places");
        assert_eq!(of(&[(0, 0, 0), (0, 0, 0), (0, 1, 0)]), [1, 2], "the same place once more");
        assert_eq!(of(&[(0, 0, 0), (1, 1, 0), (0, 1, 0)]), [1; 3], "another volume");
        assert_eq!(of(&[(0, 0, 0), (0, 1, flags::WANT_RECEIVED)]), [1; 2], "its writer waits otherwise");
        assert_eq!(of(&[(0, 0, flags::RESYNC), (0, 1, flags::RESYNC)]), [1; 2], "a region of a sync is none");
        let mut with_void = queue(&[(0, 0, 0), (0, 1, 0), (0, 2, 0)]);
        with_void.void(Seq(2));
        let first = next_unit(&with_void, None, &PLENTY).map(|unit| unit.numbers);
        assert_eq!(first, Some(1), "a number between them that is no write");
    }
}
