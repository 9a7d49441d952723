//! One volume of a group on its primary: which regions are dirty, what has been flushed; its busy ranges are in `ranges.rs`.

use alloc::vec::Vec;

use crate::VolumeConfig;
use crate::formats::bitmap::{Bitmap, region_span};
use crate::ids::Seq;
use crate::injected_fault::{Fault, injected};
use crate::limits::REGION_BYTES;
use crate::shared::flushes::Flushes;
use crate::shared::frozen::FrozenBits;
use crate::shared::newest_writes::NewestWrites;
use crate::shared::ranges::RangeLocks;

/// What is kept is known by blocks of this size, rounded outwards.
const KEPT_BLOCK_BYTES: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Volume {
    /// With the size that the volume has in its group: its device may hold more.
    config: VolumeConfig,
    pub dirty: Bitmap,
    /// What the bitmap file is known to hold: a crash finds at least this.
    pub stored: Bitmap,
    /// Regions that are dirty only because it is not known whether they differ: compared before they are sent.
    unverified: Option<Bitmap>,
    /// Long writes that wait for their regions to be stored.
    announced: Vec<AnnouncedWrite>,
    /// While a snapshot is under way.
    snapshot: Option<FrozenBits>,
    ranges: RangeLocks,
    /// Regions with work outstanding in the stream: a bit stands for the highest number that touched it (rule 1).
    touched: NewestWrites,
    /// Those of them that the stream alone makes equal: clean when first touched, or their content was shipped. Of others
    /// the confirmations of single writes must not clear the bits.
    covered: Bitmap,
    /// Blocks that the peer keeps the ranges of, since it was not told that this volume's flush covers them.
    kept: NewestWrites,
    /// The last write that overwrote a block the peer keeps the range of: an acknowledged flush that covers it must be on
    /// record, else a pull after a power loss would undo it (P1, P4).
    overwrote: Seq,
    pub flushes: Flushes,
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
            dirty: Bitmap::new(config.size_bytes),
            stored: Bitmap::new(config.size_bytes),
            unverified: None,
            announced: Vec::new(),
            config,
            snapshot: None,
            ranges: RangeLocks::default(),
            touched: NewestWrites::default(),
            covered: Bitmap::new(config.size_bytes),
            kept: NewestWrites::default(),
            overwrote: Seq::NONE,
            flushes: Flushes::default(),
        }
    }

    /// A run of numbers from 1 on begins: what was counted in the last one is forgotten, the bits stay.
    pub fn begin_run(&mut self) {
        let dirty = core::mem::replace(&mut self.dirty, Bitmap::new(0));
        let stored = core::mem::replace(&mut self.stored, Bitmap::new(0));
        // Reads of the run before that are still under way hold their ranges.
        let (mut ranges, flushes) = (core::mem::take(&mut self.ranges), self.flushes.of_new_run());
        ranges.forget_line();
        *self =
            Volume { dirty, stored, ranges, flushes, unverified: self.unverified.take(), ..Volume::new(self.config) };
    }

    /// The group's size changed; nothing is under way.
    pub fn resize(&mut self, size_bytes: u64) {
        self.config.size_bytes = size_bytes;
        self.dirty = self.dirty.resized(size_bytes);
        self.stored = self.stored.resized(size_bytes);
        self.covered = self.covered.resized(size_bytes);
        self.unverified = self.unverified.take().map(|unverified| unverified.resized(size_bytes));
    }

    /// Nothing is known of the range: it is compared before it is sent.
    pub fn set_unverified(&mut self, first: u64, last: u64) {
        let size = self.config.size_bytes;
        let unverified = self.unverified.get_or_insert_with(|| Bitmap::new(size));
        for region in first..=last {
            self.dirty.set(region);
            unverified.set(region);
        }
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

    /// All that is dirty needs verification.
    pub fn set_all_unverified(&mut self) {
        self.unverified = Some(self.dirty.clone());
    }

    /// Something may need verification, or nothing: all that is dirty is compared in the sync that comes.
    pub fn begin_verification(&mut self) {
        let size = self.config.size_bytes;
        _ = self.unverified.get_or_insert_with(|| Bitmap::new(size));
    }

    pub fn has_unverified(&self) -> bool {
        self.unverified.is_some()
    }

    pub fn clear_unverified(&mut self) {
        self.unverified = None;
    }

    /// All of it is to be sent, and nothing of it compared.
    pub fn send_all(&mut self) {
        self.dirty.set_all();
        self.unverified = None;
    }

    /// This copy is equal to its primary's.
    pub fn is_equal(&mut self) {
        if !self.dirty.is_clean() {
            (self.dirty, self.unverified) = (Bitmap::new(self.config.size_bytes), None);
        }
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

    /// Dirty regions that are not merely unverified.
    pub fn surely_dirty_bytes(&self) -> u64 {
        self.dirty.dirty_bytes() - self.unverified.as_ref().map_or(0, |unverified| unverified.common_bytes(&self.dirty))
    }

    /// What was written to the range is being undone or dropped: the peer may have it.
    pub fn set_undone(&mut self, offset: u64, length: u64) {
        let (first, last) = region_span(offset, length);
        (first..=last).for_each(|region| _ = self.dirty.set(region));
    }

    pub fn needs_verification(&self, region: u64) -> bool {
        self.unverified.as_ref().is_some_and(|unverified| unverified.get(region))
    }

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
    pub fn is_busy(&self, offset: u64, length: u64) -> bool {
        let (start, end) = self.widened(offset, length);
        self.ranges.is_held(start, end)
    }

    /// Takes the range; the caller has seen no conflict, or was let in by [`Volume::next_free_waiter`].
    pub fn occupy(&mut self, slot: u32, offset: u64, length: u64, seq: Seq, is_write: bool) {
        let range = self.widened(offset, length);
        self.ranges.hold(slot, range, seq, is_write);
    }

    /// The write that holds its range has its number now.
    pub fn number(&mut self, slot: u32, seq: Seq) {
        self.ranges.number(slot, seq);
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

    /// Sets the bits of a live write. `streamed`: it travels under number `seq`.
    pub fn set_written(&mut self, offset: u64, length: u64, seq: Seq, streamed: bool) {
        let (first, last) = region_span(offset, length);
        for region in first..=last {
            let partial = (region + 1) * REGION_BYTES > self.config.size_bytes;
            let forgotten = injected(if streamed { Fault::BitNotSetQueued } else { Fault::BitNotSetAlone })
                || partial && injected(Fault::TailRegionNotDirty);
            let was_clean = forgotten || self.dirty.set(region);
            if let Some(snapshot) = &mut self.snapshot {
                snapshot.touch(region);
            }
            if streamed && (was_clean || injected(Fault::ClearUncovered)) {
                self.covered.set(region);
            }
        }
        if streamed {
            self.touched.note(first, last, seq);
        }
    }

    /// The write will be kept by the peer until it knows that it is flushed here; and it may overwrite what is kept.
    pub fn keep(&mut self, offset: u64, length: u64, seq: Seq, streamed: bool) {
        let (first, last) = (offset / KEPT_BLOCK_BYTES, (offset + length - 1) / KEPT_BLOCK_BYTES);
        if self.kept.touches(first, last) {
            self.overwrote = seq;
        }
        if streamed {
            self.kept.note(first, last, seq);
        }
    }

    /// The peer, or this node's own record, knows that everything up to here is flushed.
    pub fn forget_kept(&mut self, through: Seq) {
        self.kept.clear_through(through, |_, _| {});
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

    /// Regions of the range travel whole under number `seq`: the stream makes them equal.
    pub fn set_covered(&mut self, offset: u64, length: u64, seq: Seq) {
        let (first, last) = region_span(offset, length);
        (first..=last).for_each(|region| _ = self.covered.set(region));
        self.touched.note(first, last, seq);
    }

    /// The stream cannot be trusted for these regions: a local write failed, or a read for resync did.
    pub fn set_uncovered(&mut self, offset: u64, length: u64) {
        let (first, last) = region_span(offset, length);
        for region in first..=last {
            self.dirty.set(region);
            if let Some(snapshot) = &mut self.snapshot {
                snapshot.touch(region);
            }
            self.covered.clear(region);
        }
    }

    /// Clears the bits whose highest number is both applied at the peer and flushed here (rule 1).
    /// True: some bits cleared.
    pub fn clear_confirmed(&mut self, applied: Seq) -> bool {
        let through = if injected(Fault::ClearUnflushed) { applied } else { applied.min(self.flushes.through()) };
        let (dirty, covered) = (&mut self.dirty, &mut self.covered);
        let mut cleared = false;
        let mut clear = |first: u64, last: u64| {
            for region in first..=last {
                if covered.get(region) {
                    covered.clear(region);
                    dirty.clear(region);
                    cleared = true;
                }
            }
        };
        if injected(Fault::ClearForOlder) {
            self.touched.noted_through(through).for_each(|(first, last)| clear(first, last));
        }
        self.touched.clear_through(through, clear);
        cleared
    }

    /// A number waits for the local flush before its bits can clear.
    pub fn wants_flush(&self) -> bool {
        self.touched.last_noted().is_some_and(|seq| seq > self.flushes.through())
    }

    /// The stream ended: bits stay, what was outstanding is forgotten (rule 10).
    pub fn forget_stream(&mut self) {
        self.touched.clear();
        self.covered = Bitmap::new(self.config.size_bytes);
    }

    /// Whether the region must still be shipped.
    pub fn must_ship(&self, region: u64) -> bool {
        self.dirty.get(region) && !self.covered.get(region)
    }

    /// The first region at or after `from` that must be shipped; counts those it passed over as covered.
    pub fn next_to_ship(&self, from: u64, skipped: &mut u64) -> Option<u64> {
        let mut region = self.dirty.next_set(from)?;
        while !self.must_ship(region) {
            *skipped += 1;
            region = self.dirty.next_set(region + 1)?;
        }
        Some(region)
    }

    // ---- a snapshot -----------------------------------------------------------------------------------------------------

    /// A snapshot begins: what is dirty now belongs to it.
    pub fn freeze(&mut self) {
        self.snapshot = Some(FrozenBits::new(&self.dirty, self.config.size_bytes));
    }

    /// The snapshot is applied at the peer: only what was touched since the freeze may differ.
    pub fn end_snapshot(&mut self) {
        let Some(bits) = self.snapshot.take() else { return };
        self.unverified = None;
        let mut from = 0;
        while let Some(region) = self.dirty.next_set(from) {
            if !bits.written().get(region) || injected(Fault::SnapshotClearsAll) {
                self.dirty.clear(region);
            }
            from = region + 1;
        }
    }

    /// The snapshot comes to nothing.
    pub fn drop_snapshot(&mut self) {
        self.snapshot = None;
    }

    pub fn written_bytes(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |bits| bits.written().dirty_bytes())
    }

    pub fn all_shipped(&self) -> bool {
        self.snapshot.as_ref().is_none_or(|bits| bits.unshipped().is_clean())
    }

    /// The first run of regions at or after `from` that can be read now, at most `longest` bytes; `to`: not beyond this
    /// region. A region that is being written is passed over.
    pub fn next_of_snapshot(&self, from: u64, to: u64, longest: u64) -> Option<(u64, u64)> {
        let bits = self.snapshot.as_ref()?;
        let size = self.config.size_bytes;
        let ready = |region: u64| {
            let start = region * REGION_BYTES;
            start < size
                && region <= to
                && bits.unshipped().get(region)
                && !self.is_busy(start, REGION_BYTES.min(size - start))
        };
        let mut first = bits.unshipped().next_set(from).filter(|region| *region <= to)?;
        while !ready(first) {
            first = bits.unshipped().next_set(first + 1).filter(|region| *region <= to)?;
        }
        let mut next = first + 1;
        while (next + 1 - first) * REGION_BYTES <= longest && ready(next) {
            next += 1;
        }
        Some((first, next))
    }

    pub fn take_for_snapshot(&mut self, first: u64, next: u64) {
        let Some(bits) = self.snapshot.as_mut() else { return };
        bits.take(first, next);
    }

    pub fn unshipped_in(&self, first: u64, last: u64) -> u64 {
        self.snapshot.as_ref().map_or(0, |bits| bits.unshipped().count_in(first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::REGION_BYTES as R;

    fn flushed(through: Seq) -> Flushes {
        let mut flushes = Flushes::default();
        flushes.begin(through);
        _ = flushes.ended(true);
        flushes
    }

    fn volume() -> Volume {
        Volume::new(VolumeConfig { size_bytes: 64 * R, block_bytes: 4096, changed_outside: false })
    }

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
    fn a_bit_clears_for_the_highest_number_only_and_after_both_sides() {
        let mut v = volume();
        v.set_written(0, 4096, Seq(1), true);
        v.set_written(0, 4096, Seq(2), true);
        v.flushes = flushed(Seq(2));
        v.clear_confirmed(Seq(1));
        assert!(v.dirty.get(0), "number 2 is not applied");
        v.flushes = flushed(Seq(1));
        v.clear_confirmed(Seq(2));
        assert!(v.dirty.get(0), "number 2 is not flushed");
        v.flushes = flushed(Seq(2));
        v.clear_confirmed(Seq(2));
        assert!(!v.dirty.get(0));
        assert_eq!(v.touched.held(), 0);
    }

    #[test]
    fn a_live_write_on_an_old_dirty_region_never_clears_it() {
        let mut v = volume();
        v.set_written(0, 4096, Seq(1), false);
        v.set_written(0, 4096, Seq(2), true);
        v.flushes = flushed(Seq(9));
        v.clear_confirmed(Seq(9));
        assert!(v.dirty.get(0), "its older difference was never shipped");
        assert!(v.must_ship(0));
        v.set_covered(0, R, Seq(3));
        assert!(!v.must_ship(0));
        v.clear_confirmed(Seq(9));
        assert!(!v.dirty.get(0));
    }

    #[test]
    fn the_walk_skips_what_the_stream_covers() {
        let mut v = volume();
        v.set_written(R, 1, Seq(1), false);
        v.set_written(2 * R, 1, Seq(2), true);
        v.set_written(3 * R, 1, Seq(3), false);
        let mut skipped = 0;
        assert_eq!(v.next_to_ship(0, &mut skipped), Some(1));
        assert_eq!(v.next_to_ship(2, &mut skipped), Some(3));
        assert_eq!(skipped, 1);
    }

    #[test]
    fn only_the_blocks_of_a_write_are_kept() {
        let touched = |offset, length| {
            let mut v = volume();
            v.keep(3 * 4096, 2 * 4096, Seq(1), true);
            v.keep(offset, length, Seq(2), false);
            v.overwrote == Seq(2)
        };
        assert!(!touched(0, 3 * 4096) && touched(0, 3 * 4096 + 512), "up to its first block");
        assert!(touched(5 * 4096 - 512, 512) && !touched(5 * 4096, 4096), "from behind its last one");
    }

    #[test]
    fn overwriting_what_the_peer_keeps_is_noticed_until_the_flush_is_known() {
        let mut v = volume();
        v.keep(0, 4096, Seq(1), true);
        v.keep(4096, 4096, Seq(2), true);
        assert_eq!(v.overwrote, Seq::NONE);
        v.keep(0, 512, Seq(3), false);
        assert_eq!(v.overwrote, Seq(3));
        v.forget_kept(Seq(2));
        v.keep(4096, 512, Seq(4), true);
        assert_eq!(v.overwrote, Seq(3));
    }

    #[test]
    fn what_a_trim_holds_grows_with_the_writes_and_not_with_their_length() {
        const TRIM: u64 = 1 << 30;
        let size_bytes = 1 << 40;
        let mut v = Volume::new(VolumeConfig { size_bytes, block_bytes: 4096, changed_outside: false });
        let trims = size_bytes / TRIM;
        for n in 0..trims {
            v.set_written(n * TRIM, TRIM, Seq(n + 1), true);
            v.keep(n * TRIM, TRIM, Seq(n + 1), true);
        }
        assert_eq!((v.touched.held() as u64, v.kept.held() as u64), (2 * trims, 2 * trims));
        assert_eq!(v.dirty.dirty_bytes(), size_bytes);
        v.flushes = flushed(Seq(trims));
        v.clear_confirmed(Seq(trims));
        v.forget_kept(Seq(trims));
        assert_eq!((v.touched.held(), v.kept.held(), v.dirty.is_clean()), (0, 0, true));
    }

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
        Volume::new(VolumeConfig { size_bytes: 8 * R, block_bytes: 4096, changed_outside: false })
    }

    #[test]
    fn bits_of_a_snapshot_clear_at_its_end_but_for_what_was_written_since() {
        let mut v = volume_of_eight();
        v.set_written(0, 2 * R, Seq(1), false);
        v.freeze();
        v.set_written(R, 512, Seq(2), false);
        v.set_written(5 * R, 512, Seq(3), false);
        v.set_uncovered(7 * R, 512);
        assert_eq!(v.written_bytes(), 3 * R);
        v.end_snapshot();
        let dirty: alloc::vec::Vec<u64> = (0..8).filter(|region| v.dirty.get(*region)).collect();
        assert_eq!(dirty, [1, 5, 7]);
    }

    #[test]
    fn the_walk_takes_runs_and_passes_over_what_is_being_written() {
        let mut v = volume_of_eight();
        v.set_written(0, 6 * R, Seq(1), false);
        v.freeze();
        v.occupy(9, 2 * R, 512, Seq(1), true);
        assert_eq!(v.next_of_snapshot(0, u64::MAX, 8 * R), Some((0, 2)));
        assert_eq!(v.next_of_snapshot(0, u64::MAX, R), Some((0, 1)));
        v.take_for_snapshot(0, 2);
        assert_eq!(v.next_of_snapshot(0, u64::MAX, 8 * R), Some((3, 6)));
        assert_eq!(v.next_of_snapshot(0, 2, 8 * R), None, "nothing up to there can be read now");
        v.take_for_snapshot(3, 6);
        v.release(9);
        assert_eq!((v.unshipped_in(0, 7), v.all_shipped()), (1, false));
        assert_eq!(v.next_of_snapshot(0, u64::MAX, 8 * R), Some((2, 3)));
    }
}
