//! One volume of a group: what of its bits is stored, what has been flushed; its busy ranges are in `ranges.rs`, what may differ at the
//! peer is in `peer_copy.rs`.

use alloc::vec::Vec;

use crate::VolumeConfig;
use crate::formats::bitmap::{Bitmap, regions};
use crate::ids::Seq;
use crate::injected_fault::{Fault, injected};
use crate::limits::REGION_BYTES;
use crate::shared::flushes::Flushes;
use crate::shared::peer_copy::PeerCopy;
use crate::shared::ranges::RangeLocks;
use crate::shared::volume_traffic::TrafficMeter;

#[derive(Debug)]
pub(crate) struct Volume {
    /// With the size that the volume has in its group: its device may hold more.
    config: VolumeConfig,
    /// What its peer has of it.
    pub copy: PeerCopy,
    /// What the bitmap file is known to hold: a crash finds at least this.
    pub stored: Bitmap,
    /// Long writes that wait for their regions to be stored.
    announced: Vec<AnnouncedWrite>,
    ranges: RangeLocks,
    /// The last write that overwrote a block the peer keeps the range of: an acknowledged flush that covers it must be on
    /// record, else a pull after a power loss would undo it (P1, P4).
    overwrote: Seq,
    /// It was written beside the order, and no number was given since.
    unnumbered: bool,
    pub flushes: Flushes,
    pub traffic: TrafficMeter,
}

/// What stands in a range's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    Write,
    Resync,
}

/// A write whose regions are to be stored before it is issued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnnouncedWrite {
    slot: u32,
    first: u64,
    last: u64,
}

impl Volume {
    pub fn new(config: VolumeConfig) -> Volume {
        Volume {
            copy: PeerCopy::new(config.size_bytes),
            stored: Bitmap::new(config.size_bytes),
            announced: Vec::new(),
            config,
            ranges: RangeLocks::default(),
            overwrote: Seq::NONE,
            unnumbered: false,
            flushes: Flushes::default(),
            traffic: TrafficMeter::default(),
        }
    }

    /// A run of numbers from 1 on begins: what was counted in the last one is forgotten, the bits stay.
    pub fn begin_run(&mut self) {
        let blank = Volume::new(self.config);
        let Volume { mut copy, stored, mut ranges, flushes, .. } = core::mem::replace(self, blank);
        copy.begin_run();
        // Reads of the run before that are still under way hold their ranges.
        ranges.forget_line();
        (self.copy, self.stored, self.ranges, self.flushes) = (copy, stored, ranges, flushes.of_new_run());
    }

    /// The group's size changed; nothing is under way.
    pub fn resize(&mut self, size_bytes: u64) {
        self.config.size_bytes = size_bytes;
        self.copy.resize(size_bytes);
        self.stored = self.stored.resized(size_bytes);
    }

    /// In its group: its device may hold more.
    pub fn size_bytes(&self) -> u64 {
        self.config.size_bytes
    }

    pub fn block_bytes(&self) -> u64 {
        self.config.block_bytes
    }

    /// Somebody wrote it while the node was stopped.
    pub fn changed_outside(&self) -> bool {
        self.config.changed_outside
    }

    /// It has no device here: nothing is asked of it.
    pub fn is_detached(&self) -> bool {
        self.config.is_detached
    }

    // ---- writes whose regions are stored first -----------------------------------------------------------------------

    /// False: it was announced before.
    pub fn announce(&mut self, slot: u32, first: u64, last: u64) -> bool {
        let is_new = !self.is_announced(slot);
        if is_new {
            self.announced.push(AnnouncedWrite { slot, first, last });
        }
        is_new
    }

    pub fn is_announced(&self, slot: u32) -> bool {
        self.announced.iter().any(|a| a.slot == slot)
    }

    pub fn forget_announced(&mut self, slot: u32) {
        self.announced.retain(|a| a.slot != slot);
    }

    /// First and last regions of each that is announced.
    pub fn announced(&self) -> impl Iterator<Item = (u64, u64)> {
        self.announced.iter().map(|a| (a.first, a.last))
    }

    // ---- ranges ------------------------------------------------------------------------------------------------------

    fn widened(&self, offset: u64, length: u64) -> (u64, u64) {
        let block = self.config.block_bytes;
        (offset / block * block, (offset + length).next_multiple_of(block))
    }

    /// What the range would have to wait for: a busy range or one that already waits.
    pub fn conflict(&self, offset: u64, length: u64) -> Option<Conflict> {
        let (start, end) = self.widened(offset, length);
        if injected(Fault::WriteIgnoresOverlap) {
            return None;
        }
        let is_write = self.ranges.conflict(start, end)?;
        Some(if is_write { Conflict::Write } else { Conflict::Resync })
    }

    /// Whether the range is being written or read; who merely waits does not count.
    #[cfg(test)]
    pub fn is_busy(&self, offset: u64, length: u64) -> bool {
        let (start, end) = self.widened(offset, length);
        self.ranges.is_held(start, end)
    }

    /// Takes the range; the caller has seen no conflict, or was let in by [`Volume::next_free_waiter`].
    pub fn occupy(&mut self, slot: u32, offset: u64, length: u64, seq: Seq, is_write: bool) {
        let range = self.widened(offset, length);
        self.ranges.hold(slot, range, seq, is_write);
    }

    /// The write that holds its range has its numbers now. `streamed`: it travels under the last of them.
    pub fn number(&mut self, slot: u32, (offset, length): (u64, u64), (first, last): (Seq, Seq), streamed: bool) {
        self.ranges.number(slot, first);
        self.copy.set_written(offset, length, last, streamed);
        if self.copy.keep(offset, length, last, streamed) {
            self.overwrote = last;
        }
    }

    /// The write that holds its range gets no number: the volume is set aside. `last`: the last number given, of whichever volume. What is
    /// complete here ends before the next one until the write is done: a sync freezes what is dirty at a number, and sends no byte that no flush
    /// covers.
    pub fn write_aside(&mut self, slot: u32, (offset, length): (u64, u64), last: Seq) {
        self.ranges.number(slot, last.next());
        self.unnumbered = true;
        self.copy.set_written(offset, length, last, false);
        if self.copy.keep(offset, length, last, false) {
            // What it overwrites has a lower number, or this one.
            self.overwrote = last;
        }
    }

    /// Whether it is part of the order again, and was written beside it behind the last number: a flush up to that number may have left those
    /// writes out, so that a sync begins behind one more. It is asked once.
    pub fn takes_number(&mut self) -> bool {
        !self.copy.is_aside() && core::mem::take(&mut self.unnumbered)
    }

    /// The range is held by another operation from here on.
    pub fn hand_over(&mut self, from: u32, to: u32) {
        self.ranges.hand_over(from, to);
    }

    /// Waits for the range, behind all that wait already.
    pub fn wait_for_range(&mut self, slot: u32, offset: u64, length: u64, is_write: bool) {
        let range = self.widened(offset, length);
        self.ranges.wait(slot, range, is_write);
    }

    /// Gives the range back.
    pub fn release(&mut self, slot: u32) {
        self.ranges.release(slot);
    }

    /// It was let in and does not take the range after all.
    pub fn let_go(&mut self, slot: u32) {
        self.ranges.let_go(slot);
    }

    /// The first waiter whose range is free now, in order of arrival: it occupies it, or lets it go.
    pub fn next_free_waiter(&mut self) -> Option<u32> {
        self.ranges.next_free()
    }

    pub fn has_writes_in_flight(&self) -> bool {
        self.ranges.writes() > 0
    }

    /// All numbers up to here that belong to this volume are complete on its disk. `last`: the last number given.
    pub fn complete_through(&self, last: Seq) -> Seq {
        let under_way = self.ranges.first_number().filter(|_| !injected(Fault::FlushTooFar));
        under_way.map_or(last, |first| last.min(Seq(first.0 - 1)))
    }

    /// What must be on record before a flush is acknowledged: nothing, unless it covers an overwrite of what the peer keeps.
    pub fn record_due(&self) -> Seq {
        self.flushes.record_due(self.overwrote)
    }

    /// Numbers up to here that belong to this volume are flushed on it. `last`: the last number given.
    pub fn flush_point(&self, last: Seq) -> Seq {
        let through = self.flushes.through();
        if self.flushes.are_drained() { through.max(self.complete_through(last)) } else { through }
    }

    /// A number waits for the local flush before its bits can clear.
    pub fn wants_flush(&self) -> bool {
        // What is written to a volume set aside clears no bit; the peer keeps the writes of all volumes up to what is flushed on each.
        self.copy.wants_flush(self.flushes.through()) || self.copy.is_aside() && self.flushes.unflushed_bytes() > 0
    }

    /// The first run of regions of a snapshot at or after `from` that can be read now, at most `longest` bytes; `to`: not beyond this
    /// region. A region that is being written is passed over.
    pub fn next_of_snapshot(&self, from: u64, to: u64, longest: u64) -> Option<(u64, u64)> {
        let unshipped = self.copy.unshipped()?;
        let end = regions(self.config.size_bytes).min(to.saturating_add(1));
        let mut from = from;
        loop {
            let first = unshipped.next_set(from).filter(|region| *region < end)?;
            let next = unshipped.run_end(first, (first + (longest / REGION_BYTES).max(1)).min(end));
            let start = first * REGION_BYTES;
            let (start, stop) = self.widened(start, (next * REGION_BYTES).min(self.config.size_bytes) - start);
            let Some((held_from, held_to)) = self.ranges.first_held(start, stop) else { return Some((first, next)) };
            let free_until = held_from / REGION_BYTES;
            if free_until > first {
                return Some((first, free_until));
            }
            // What is held is passed over at once, however long it is.
            from = held_to.div_ceil(REGION_BYTES).max(first + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::REGION_BYTES as R;

    fn volume() -> Volume {
        Volume::new(VolumeConfig { size_bytes: 64 * R, block_bytes: 4096, changed_outside: false, is_detached: false })
    }

    // proves: rule 3
    #[test]
    fn overlap_is_decided_on_whole_blocks_and_in_order_of_arrival() {
        let mut v = volume();
        v.occupy(1, 0, 512, Seq(1), true);
        assert_eq!(v.conflict(3584, 512), Some(Conflict::Write), "same 4 KiB block");
        assert_eq!(v.conflict(4096, 512), None);
        v.wait_for_range(2, 3584, 1024, true);
        assert_eq!(v.conflict(4096, 512), Some(Conflict::Write), "behind a waiter");
        v.wait_for_range(3, 4096, 512, false);
        assert_eq!(v.next_free_waiter(), None);
        v.release(1);
        assert_eq!(v.next_free_waiter(), Some(2));
        v.occupy(2, 3584, 1024, Seq(2), true);
        assert_eq!(v.next_free_waiter(), None);
        v.release(2);
        assert_eq!(v.next_free_waiter(), Some(3));
    }

    #[test]
    fn a_number_over_what_the_peer_keeps_is_to_be_recorded() {
        let mut v = volume();
        let mut number = |seq, offset| {
            v.occupy(1, offset, 4096, Seq(u64::MAX), true);
            v.number(1, (offset, 4096), (Seq(seq), Seq(seq)), true);
            v.release(1);
            v.overwrote
        };
        assert_eq!(number(1, 0), Seq::NONE);
        assert_eq!(number(2, 4096), Seq::NONE);
        assert_eq!(number(3, 0), Seq(3));
        v.begin_run();
        assert_eq!(v.overwrote, Seq::NONE, "numbers begin anew");
        assert!(v.copy.dirty.get(0), "what may differ does not");
    }

    // proves: rule 1
    #[test]
    fn completion_is_counted_up_to_the_oldest_write_in_flight() {
        let mut v = volume();
        assert_eq!(v.complete_through(Seq(9)), Seq(9));
        // It waits for its number: no later one may count as complete because of it.
        v.occupy(9, 4 * R, R, Seq(u64::MAX), true);
        assert_eq!(v.complete_through(Seq(9)), Seq(9));
        v.occupy(1, 0, 1, Seq(4), true);
        v.occupy(2, R, R, Seq(3), false);
        assert_eq!(v.complete_through(Seq(9)), Seq(3));
        v.release(1);
        v.occupy(3, 2 * R, R, Seq(u64::MAX), true);
        assert_eq!(v.complete_through(Seq(9)), Seq(9), "a write without its number yet");
    }

    fn volume_of_eight() -> Volume {
        Volume::new(VolumeConfig { size_bytes: 8 * R, block_bytes: 4096, changed_outside: false, is_detached: false })
    }

    // proves: rule 7
    #[test]
    fn the_walk_takes_runs_and_passes_over_what_is_being_written() {
        let mut v = volume_of_eight();
        v.copy.set_written(0, 6 * R, Seq(1), false);
        v.copy.freeze();
        v.occupy(9, 2 * R, 512, Seq(1), true);
        assert_eq!(v.next_of_snapshot(0, u64::MAX, 8 * R), Some((0, 2)));
        assert_eq!(v.next_of_snapshot(0, u64::MAX, R), Some((0, 1)));
        v.copy.take_for_snapshot(0, 2);
        assert_eq!(v.next_of_snapshot(0, u64::MAX, 8 * R), Some((3, 6)));
        assert_eq!(v.next_of_snapshot(0, 2, 8 * R), None, "nothing up to there can be read now");
        v.copy.take_for_snapshot(3, 6);
        v.release(9);
        assert_eq!((v.copy.unshipped_in(0, 7), v.copy.all_shipped()), (1, false));
        assert_eq!(v.next_of_snapshot(0, u64::MAX, 8 * R), Some((2, 3)));
    }

    /// A trim of GiBs that was under way had each of its regions looked at, for every input of the group.
    #[test]
    fn the_walk_passes_over_a_long_range_at_once() {
        let mut v = Volume::new(VolumeConfig {
            size_bytes: 1 << 40,
            block_bytes: 4096,
            changed_outside: false,
            is_detached: false,
        });
        v.copy.set_differs(0, 1 << 40);
        v.copy.freeze();
        v.occupy(1, 3 * R, 600 << 30, Seq(1), true);
        v.copy.take_for_snapshot(0, 3);
        let next = 3 + (600 << 30) / R;
        for _ in 0..1000 {
            assert_eq!(v.next_of_snapshot(0, u64::MAX, 8 * R), Some((next, next + 8)));
        }
    }

    // proves: P3
    /// A sync that began beside such writes sent what no flush here covered.
    #[test]
    fn a_write_without_a_number_is_not_complete_before_it_is_done() {
        let mut v = Volume::new(VolumeConfig {
            size_bytes: 1 << 20,
            block_bytes: 4096,
            changed_outside: false,
            is_detached: false,
        });
        v.copy.set_aside(true);
        for (slot, at) in [(1, 0), (2, R)] {
            v.occupy(slot, at, R, Seq(u64::MAX), true);
            v.write_aside(slot, (at, R), Seq(7));
        }
        assert_eq!((v.complete_through(Seq(7)), v.complete_through(Seq(9))), (Seq(7), Seq(7)));
        v.release(1);
        assert_eq!(v.complete_through(Seq(9)), Seq(7), "the other one is not done");
        v.release(2);
        assert_eq!(v.complete_through(Seq(9)), Seq(9));
    }
}
