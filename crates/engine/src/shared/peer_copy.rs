//! What is known here of the peer's copy of one volume: which regions of it may differ, what the stream makes equal, which writes the
//! peer keeps, what belongs to a snapshot.

use crate::formats::bitmap::{Bitmap, region_span};
use crate::ids::Seq;
use crate::injected_fault::{Fault, injected};
use crate::limits::REGION_BYTES;
use crate::shared::newest_writes::NewestWrites;
use alloc::vec::Vec;

/// Its part in a snapshot.
#[derive(Debug)]
struct FrozenBits {
    /// Of the snapshot, and not read yet.
    unshipped: Bitmap,
    /// Of the snapshot, and not sent: the peer's answer says whether they are to be.
    asked: Bitmap,
    /// Touched since the freeze: what stays dirty when the snapshot is done.
    written: Bitmap,
}

/// What is kept is known by blocks of this size, rounded outwards.
const KEPT_BLOCK_BYTES: u64 = 4096;

#[derive(Debug)]
pub(crate) struct PeerCopy {
    /// Regions that may differ.
    pub dirty: Bitmap,
    /// Those of them that are dirty only because it is not known whether they differ: compared before they are sent.
    unverified: Option<Bitmap>,
    /// While a snapshot is under way.
    snapshot: Option<FrozenBits>,
    /// Regions that the peer has as they are here, by what it applied of a snapshot that has not ended. They are dirty all the same.
    held: Option<Bitmap>,
    /// Of a snapshot that was cut short behind its end: what was touched since its freeze. The peer may come to its image all the same.
    cut_short: Option<Bitmap>,
    /// Regions with work outstanding in the stream: a bit stands for the highest number that touched it (rule 1).
    touched: NewestWrites,
    /// Those of them that the stream alone makes equal: clean when first touched, or their content was shipped. Of others
    /// the confirmations of single writes must not clear the bits.
    covered: Bitmap,
    /// Blocks that the peer keeps the ranges of, since it was not told that this volume's flush covers them.
    kept: NewestWrites,
    /// A primary's: the volume is set aside. What is written to it is dirty, and nothing of it is sent before it rejoins.
    is_aside: bool,
}

impl PeerCopy {
    pub fn new(size_bytes: u64) -> PeerCopy {
        PeerCopy {
            dirty: Bitmap::new(size_bytes),
            unverified: None,
            snapshot: None,
            held: None,
            cut_short: None,
            touched: NewestWrites::default(),
            covered: Bitmap::new(size_bytes),
            kept: NewestWrites::default(),
            is_aside: false,
        }
    }

    /// A run of numbers from 1 on begins: what was counted in the last one is forgotten, the bits stay.
    pub fn begin_run(&mut self) {
        let blank = PeerCopy::new(self.dirty.size_bytes());
        let PeerCopy { dirty, unverified, .. } = core::mem::replace(self, blank);
        (self.dirty, self.unverified) = (dirty, unverified);
    }

    /// Nothing is under way.
    pub fn resize(&mut self, size_bytes: u64) {
        self.dirty = self.dirty.resized(size_bytes);
        self.covered = self.covered.resized(size_bytes);
        self.unverified = self.unverified.take().map(|unverified| unverified.resized(size_bytes));
        (self.held, self.cut_short) = (None, None);
    }

    // ---- set aside -------------------------------------------------------------------------------------------------------

    pub fn is_aside(&self) -> bool {
        self.is_aside
    }

    /// The volume is set aside from here on, or rejoins. What travels of it already goes on.
    pub fn set_aside(&mut self, is_aside: bool) {
        self.is_aside = is_aside;
    }

    /// Regions that may differ and are to be sent with those of the others.
    pub fn dirty_bytes_to_send(&self) -> u64 {
        if self.is_aside { 0 } else { self.dirty.dirty_bytes() }
    }

    fn blank(&self) -> Bitmap {
        Bitmap::new(self.dirty.size_bytes())
    }

    // ---- what may differ -----------------------------------------------------------------------------------------------

    /// Nothing is known of the range: it is compared before it is sent.
    pub fn set_unverified(&mut self, first: u64, last: u64) {
        let unverified = self.unverified.get_or_insert_with(|| Bitmap::new(self.dirty.size_bytes()));
        self.dirty.set_range(first, last);
        unverified.set_range(first, last);
    }

    /// All that is dirty needs verification.
    pub fn set_all_unverified(&mut self) {
        self.unverified = Some(self.dirty.clone());
    }

    /// Something may need verification, or nothing: all that is dirty is compared in the sync that comes.
    pub fn begin_verification(&mut self) {
        _ = self.unverified.get_or_insert_with(|| Bitmap::new(self.dirty.size_bytes()));
    }

    pub fn has_unverified(&self) -> bool {
        self.unverified.is_some()
    }

    /// A sync has compared what needed it; but for a volume that it left out.
    pub fn clear_unverified(&mut self) {
        if !self.is_aside {
            self.unverified = None;
        }
    }

    pub fn needs_verification(&self, region: u64) -> bool {
        self.unverified.as_ref().is_some_and(|unverified| unverified.get(region))
    }

    /// All of it is to be compared, and sent where it differs.
    pub fn compare_all(&mut self) {
        self.send_all();
        self.set_all_unverified();
    }

    /// All of it is to be sent, and nothing of it compared.
    pub fn send_all(&mut self) {
        self.dirty.set_all();
        (self.unverified, self.held, self.cut_short) = (None, None, None);
    }

    /// The peer has nothing of it any more, whatever the stream brought.
    pub fn lost_at_peer(&mut self) {
        if self.dirty.dirty_bytes() < self.dirty.size_bytes() || self.unverified.is_some() {
            self.send_all();
        }
        (self.held, self.cut_short) = (None, None);
        if !self.covered.is_clean() {
            self.covered = self.blank();
        }
    }

    /// Another device is there, of which nothing is known: all of it is compared, whatever the stream brought.
    pub fn replaced_at_peer(&mut self) {
        if self.dirty.dirty_bytes() < self.dirty.size_bytes() || self.unverified.is_none() {
            self.dirty.set_all();
            self.set_all_unverified();
        }
        (self.held, self.cut_short) = (None, None);
        if !self.covered.is_clean() {
            self.covered = self.blank();
        }
    }

    /// This copy is equal to its primary's.
    pub fn is_equal(&mut self) {
        if !self.dirty.is_clean() {
            (self.dirty, self.unverified) = (self.blank(), None);
        }
    }

    /// An operator said at the freeze that this copy is equal to its peer's, though nothing was sent: only what was touched since may
    /// differ.
    pub fn assume_equal(&mut self) {
        self.end_snapshot();
        self.forget_held();
    }

    /// Dirty regions that are not merely unverified, and are to be sent.
    pub fn surely_dirty_bytes(&self) -> u64 {
        let unverified = self.unverified.as_ref().map_or(0, |unverified| unverified.common_bytes(&self.dirty));
        self.dirty_bytes_to_send().saturating_sub(unverified)
    }

    /// Units with such a region.
    pub fn surely_dirty_units(&self) -> u64 {
        if self.is_aside { 0 } else { self.dirty.units_outside(self.unverified.as_ref()) }
    }

    /// What stands in the range may differ.
    pub fn set_differs(&mut self, offset: u64, length: u64) {
        let (first, last) = region_span(offset, length);
        self.dirty.set_range(first, last);
        self.change(first, last);
    }

    /// The regions are not what a snapshot that is under way, or was cut short, made of them.
    fn change(&mut self, first: u64, last: u64) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.written.set_range(first, last);
        }
        if let Some(written) = &mut self.cut_short {
            written.set_range(first, last);
        }
        if let Some(held) = self.held.as_mut().filter(|_| !injected(Fault::HeldThoughWritten)) {
            held.clear_range(first, last);
        }
    }

    // ---- the stream ----------------------------------------------------------------------------------------------------

    /// Sets the bits of a live write. `streamed`: it travels under number `seq`.
    pub fn set_written(&mut self, offset: u64, length: u64, seq: Seq, streamed: bool) {
        let (first, last) = region_span(offset, length);
        if streamed {
            // Of those that were clean the stream alone makes the difference good.
            self.covered.set_outside(&self.dirty, first, last);
        }
        let forgotten = injected(if streamed { Fault::BitNotSetQueued } else { Fault::BitNotSetAlone });
        let partial = (last + 1) * REGION_BYTES > self.dirty.size_bytes() && injected(Fault::TailRegionNotDirty);
        if streamed && (forgotten || injected(Fault::ClearUncovered)) {
            self.covered.set_range(first, last);
        }
        if !forgotten && !partial {
            self.dirty.set_range(first, last);
        } else if !forgotten && first < last {
            self.dirty.set_range(first, last - 1);
        }
        self.change(first, last);
        if streamed {
            self.touched.note(first, last, seq);
        } else if self.is_aside && !injected(Fault::AsideStillCovered) {
            // What the stream brings of it is older.
            self.covered.clear_range(first, last);
        }
    }

    /// Regions of the range travel whole under number `seq`: the stream makes them equal.
    pub fn set_covered(&mut self, offset: u64, length: u64, seq: Seq) {
        let (first, last) = region_span(offset, length);
        self.covered.set_range(first, last);
        self.touched.note(first, last, seq);
    }

    /// The stream cannot be trusted for these regions: a local write failed, or a read for resync did.
    pub fn set_uncovered(&mut self, offset: u64, length: u64) {
        let (first, last) = region_span(offset, length);
        self.dirty.set_range(first, last);
        self.change(first, last);
        self.covered.clear_range(first, last);
    }

    /// Clears the bits whose highest number is both applied at the peer and flushed here (rule 1).
    /// True: some bits cleared.
    pub fn clear_confirmed(&mut self, applied: Seq, flushed: Seq) -> bool {
        let through = if injected(Fault::ClearUnflushed) { applied } else { applied.min(flushed) };
        let (dirty, covered) = (&mut self.dirty, &mut self.covered);
        let mut cleared = false;
        let mut clear = |first: u64, last: u64| {
            if covered.count_in(first, last) > 0 {
                dirty.clear_inside(covered, first, last);
                covered.clear_range(first, last);
                cleared = true;
            }
        };
        if injected(Fault::ClearForOlder) {
            self.touched.noted_through(through).for_each(|(first, last)| clear(first, last));
        }
        self.touched.clear_through(through, clear);
        cleared
    }

    /// A number waits for the local flush before its bits can clear.
    pub fn wants_flush(&self, flushed: Seq) -> bool {
        self.touched.last_noted().is_some_and(|seq| seq > flushed)
    }

    /// The stream ended: bits stay, what was outstanding is forgotten (rule 10).
    pub fn forget_stream(&mut self) {
        self.touched.clear();
        self.covered = self.blank();
    }

    /// Whether the region must still be shipped.
    pub fn must_ship(&self, region: u64) -> bool {
        self.dirty.get(region) && !self.covered.get(region)
    }

    /// Something of the range must still be shipped: both copies are not said to be equal there.
    pub fn must_ship_in(&self, offset: u64, length: u64) -> bool {
        let (first, last) = region_span(offset, length);
        // A walk to the next one would go through all that is outstanding behind the range, for each chunk of a verify.
        !self.dirty.is_within(&self.covered, first, last)
    }

    /// The first region at or after `from` that must be shipped now.
    pub fn next_to_ship(&self, from: u64) -> Option<u64> {
        if self.is_aside {
            return None;
        }
        self.dirty.next_set_outside(&self.covered, from)
    }

    /// A dirty region at or after `from`, before this one or the end, need not be shipped.
    pub fn skips(&self, from: u64, next: Option<u64>) -> bool {
        !self.is_aside && self.dirty.next_set(from) != next
    }

    /// The write will be kept by the peer until it knows that it is flushed here. True: it overwrites what is kept.
    pub fn keep(&mut self, offset: u64, length: u64, seq: Seq, streamed: bool) -> bool {
        let (first, last) = (offset / KEPT_BLOCK_BYTES, (offset + length - 1) / KEPT_BLOCK_BYTES);
        let overwrites = self.kept.touches(first, last);
        if streamed {
            self.kept.note(first, last, seq);
        }
        overwrites
    }

    /// The peer, or this node's own record, knows that everything up to here is flushed.
    pub fn forget_kept(&mut self, through: Seq) {
        self.kept.clear_through(through, |_, _| {});
    }

    // ---- a snapshot -----------------------------------------------------------------------------------------------------

    /// A snapshot begins: what is dirty now belongs to it, and is shipped unless the peer has it from the one before. A volume that is set
    /// aside is no part of it.
    pub fn freeze(&mut self) {
        if self.is_aside {
            // Nor of one that was frozen before it.
            self.snapshot = None;
            return;
        }
        let mut unshipped = self.dirty.clone();
        if let Some(held) = &self.held {
            unshipped.leave_out(held);
        }
        self.snapshot = Some(FrozenBits { unshipped, asked: self.blank(), written: self.blank() });
    }

    /// The peer has applied these regions of the snapshot, as they were at its mark.
    pub fn peer_applied(&mut self, first: u64, last: u64) {
        let Some(bits) = &self.snapshot else { return };
        let held = self.held.get_or_insert_with(|| Bitmap::new(self.dirty.size_bytes()));
        held.set_outside(&bits.written, first, last);
    }

    /// The peer has a part of a snapshot that was cut short.
    pub fn has_held(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.is_clean())
    }

    /// The peer is not known to have anything of a snapshot that was cut short.
    pub fn forget_held(&mut self) {
        (self.held, self.cut_short) = (None, None);
    }

    /// The peer is in the middle of a later one.
    pub fn forget_cut_short(&mut self) {
        self.cut_short = None;
    }

    /// A snapshot was cut short behind its end, and the peer may have come to its image.
    pub fn was_cut_short(&self) -> bool {
        self.cut_short.is_some()
    }

    /// The snapshot is applied at the peer: only what was touched since the freeze may differ.
    pub fn end_snapshot(&mut self) {
        if let Some(bits) = self.snapshot.take() {
            self.is_equal_but_for(&bits.written);
        }
    }

    /// So is the one that was cut short behind its end.
    pub fn end_cut_short(&mut self) {
        if let Some(written) = self.cut_short.take() {
            self.is_equal_but_for(&written);
        }
    }

    fn is_equal_but_for(&mut self, written: &Bitmap) {
        (self.unverified, self.held) = (None, None);
        if injected(Fault::SnapshotClearsAll) {
            self.dirty = self.blank();
        } else {
            self.dirty.retain(written);
        }
    }

    /// The snapshot comes to nothing, but for what the peer has applied of it. `end_sent`: that may be all of it.
    pub fn drop_snapshot(&mut self, end_sent: bool) {
        let bits = self.snapshot.take();
        if end_sent {
            self.cut_short = bits.map(|bits| bits.written);
        }
    }

    pub fn written_bytes(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |bits| bits.written.dirty_bytes())
    }

    pub fn all_shipped(&self) -> bool {
        self.snapshot.as_ref().is_none_or(|bits| bits.unshipped.is_clean() && bits.asked.is_clean())
    }

    /// Of the snapshot, and not read yet.
    pub fn unshipped(&self) -> Option<&Bitmap> {
        self.snapshot.as_ref().map(|bits| &bits.unshipped)
    }

    pub fn take_for_snapshot(&mut self, first: u64, next: u64) {
        let Some(bits) = self.snapshot.as_mut() else { return };
        bits.unshipped.clear_range(first, next - 1);
    }

    pub fn unshipped_in(&self, first: u64, last: u64) -> u64 {
        self.unshipped().map_or(0, |unshipped| unshipped.count_in(first, last))
    }

    /// Of what the snapshot is to send, what is not merely unverified: bytes of regions, and units that have one.
    pub fn surely_unshipped(&self) -> (u64, u64) {
        let Some(unshipped) = self.unshipped() else { return (0, 0) };
        let unverified = self.unverified.as_ref();
        let compared = unverified.map_or(0, |unverified| unverified.common_bytes(unshipped));
        (unshipped.dirty_bytes() - compared, unshipped.units_outside(unverified))
    }

    // ---- what a snapshot compares ----------------------------------------------------------------------------------------

    /// The hash of these regions is on its way.
    pub fn ask_of_snapshot(&mut self, first: u64, next: u64) {
        let Some(bits) = self.snapshot.as_mut() else { return };
        bits.unshipped.clear_range(first, next - 1);
        bits.asked.set_range(first, next - 1);
    }

    /// Regions that wait for the peer's answer.
    pub fn asked_in(&self, first: u64, last: u64) -> u64 {
        self.snapshot.as_ref().map_or(0, |bits| bits.asked.count_in(first, last))
    }

    /// No answer is waited for: they are sent.
    pub fn ask_no_more(&mut self, first: u64, last: u64) {
        self.take_back(first, last, |unverified, region| unverified.clear(region));
    }

    /// They differ somewhere: they are asked for one by one.
    pub fn ask_again(&mut self, first: u64, last: u64) {
        self.take_back(first, last, |_, _| {});
    }

    fn take_back(&mut self, first: u64, last: u64, mut note: impl FnMut(&mut Bitmap, u64)) {
        let Some(bits) = self.snapshot.as_mut() else { return };
        while let Some(region) = bits.asked.next_set(first).filter(|region| *region <= last) {
            bits.asked.clear(region);
            bits.unshipped.set(region);
            if let Some(unverified) = self.unverified.as_mut() {
                note(unverified, region);
            }
        }
    }

    /// The peer has what stands here, unless it was written since.
    pub fn is_answered_equal(&mut self, first: u64, last: u64) {
        let Some(bits) = self.snapshot.as_mut() else { return };
        let asked: Vec<u64> = (first..=last).filter(|region| bits.asked.get(*region)).collect();
        bits.asked.clear_range(first, last);
        asked.into_iter().for_each(|region| self.peer_applied(region, region));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::REGION_BYTES as R;

    // proves: P3, rule 1
    #[test]
    fn a_bit_clears_for_the_highest_number_only_and_after_both_sides() {
        let mut v = PeerCopy::new(64 * R);
        v.set_written(0, 4096, Seq(1), true);
        v.set_written(0, 4096, Seq(2), true);
        v.clear_confirmed(Seq(1), Seq(2));
        assert!(v.dirty.get(0), "number 2 is not applied");
        v.clear_confirmed(Seq(2), Seq(1));
        assert!(v.dirty.get(0), "number 2 is not flushed");
        v.clear_confirmed(Seq(2), Seq(2));
        assert!(!v.dirty.get(0));
        assert_eq!(v.touched.held(), 0);
    }

    // proves: P3, rule 1
    #[test]
    fn a_live_write_on_an_old_dirty_region_never_clears_it() {
        let mut v = PeerCopy::new(64 * R);
        v.set_written(0, 4096, Seq(1), false);
        v.set_written(0, 4096, Seq(2), true);
        v.clear_confirmed(Seq(9), Seq(9));
        assert!(v.dirty.get(0), "its older difference was never shipped");
        assert!(v.must_ship(0));
        v.set_covered(0, R, Seq(3));
        assert!(!v.must_ship(0));
        v.clear_confirmed(Seq(9), Seq(9));
        assert!(!v.dirty.get(0));
    }

    #[test]
    fn the_walk_skips_what_the_stream_covers() {
        let mut v = PeerCopy::new(64 * R);
        v.set_written(R, 1, Seq(1), false);
        v.set_written(2 * R, 1, Seq(2), true);
        v.set_written(3 * R, 1, Seq(3), false);
        assert_eq!((v.next_to_ship(0), v.next_to_ship(2)), (Some(1), Some(3)));
        assert!(!v.skips(0, Some(1)) && v.skips(2, Some(3)) && v.skips(2, None) && !v.skips(4, None));
    }

    /// What a trim sets dirty is held as a range until the peer has applied the trim, not as an entry of some 100 bytes a region, which
    /// no limit of memory counted (P8).
    #[test]
    fn what_a_trim_holds_grows_with_the_writes_and_not_with_their_length() {
        const TRIM: u64 = 1 << 30;
        let size_bytes = 1 << 40;
        let mut v = PeerCopy::new(size_bytes);
        let trims = size_bytes / TRIM;
        for n in 0..trims {
            v.set_written(n * TRIM, TRIM, Seq(n + 1), true);
            v.keep(n * TRIM, TRIM, Seq(n + 1), true);
        }
        assert_eq!((v.touched.held() as u64, v.kept.held() as u64), (2 * trims, 2 * trims));
        assert_eq!(v.dirty.dirty_bytes(), size_bytes);
        v.clear_confirmed(Seq(trims), Seq(trims));
        v.forget_kept(Seq(trims));
        assert_eq!((v.touched.held(), v.kept.held(), v.dirty.is_clean()), (0, 0, true));
    }

    // proves: P3, rule 8
    #[test]
    fn bits_of_a_snapshot_clear_at_its_end_but_for_what_was_written_since() {
        let mut v = PeerCopy::new(8 * R);
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

    // proves: P3, rule 8
    /// However often a snapshot is cut short, the next one ships what the peer has not applied, and what was written since.
    #[test]
    fn what_the_peer_applied_of_a_snapshot_is_left_out_of_the_next_one_until_it_is_written() {
        let mut v = PeerCopy::new(8 * R);
        v.set_written(0, 6 * R, Seq(1), false);
        let unshipped = |v: &PeerCopy| {
            let map = v.unshipped().expect("a snapshot is under way");
            (0..8).filter(|region| map.get(*region)).collect::<alloc::vec::Vec<u64>>()
        };
        v.freeze();
        assert_eq!(unshipped(&v), [0, 1, 2, 3, 4, 5]);
        v.set_written(R, 512, Seq(2), false);
        v.peer_applied(0, 3);
        v.set_written(2 * R, 512, Seq(3), false);
        v.drop_snapshot(false);
        v.set_uncovered(3 * R, 512);
        v.freeze();
        assert_eq!(unshipped(&v), [1, 2, 3, 4, 5], "one was written before it was confirmed, one after, one at rest");
        v.peer_applied(4, 5);
        v.drop_snapshot(false);
        v.freeze();
        assert_eq!(unshipped(&v), [1, 2, 3]);
        v.set_written(4 * R, 512, Seq(4), false);
        v.end_snapshot();
        let dirty: alloc::vec::Vec<u64> = (0..8).filter(|region| v.dirty.get(*region)).collect();
        assert_eq!(dirty, [4], "bits clear with the end, of what was left out too");
        v.freeze();
        assert_eq!(unshipped(&v), [4], "nothing is left of a snapshot that has ended");
    }

    // proves: P2, rule 8
    /// Until the peer has answered, a region is one that a write has to save first.
    #[test]
    fn what_waits_for_an_answer_is_of_the_snapshot_until_the_answer_is_there() {
        let mut v = PeerCopy::new(8 * R);
        v.compare_all();
        v.freeze();
        assert_eq!((v.surely_unshipped(), v.needs_verification(7)), ((0, 0), true));
        v.ask_of_snapshot(0, 8);
        assert_eq!((v.unshipped_in(0, 7), v.asked_in(0, 7), v.all_shipped()), (0, 8, false));
        v.ask_no_more(2, 3);
        assert_eq!((v.unshipped_in(0, 7), v.asked_in(0, 7)), (2, 6), "a write comes there");
        assert!(!v.needs_verification(2), "it is sent whatever the answer is");
        v.set_written(2 * R, 2 * R, Seq(1), false);
        v.is_answered_equal(0, 3);
        v.ask_again(4, 5);
        assert_eq!((v.unshipped_in(4, 5), v.needs_verification(4)), (2, true), "they are asked for one by one");
        v.ask_of_snapshot(4, 6);
        v.ask_no_more(4, 4);
        v.is_answered_equal(5, 7);
        assert_eq!((v.unshipped_in(0, 7), v.asked_in(0, 7)), (3, 0));
        v.drop_snapshot(false);
        v.freeze();
        assert_eq!(v.unshipped_in(0, 7), 3, "what is equal is left out of the next one");
        assert_eq!((v.unshipped_in(0, 1), v.unshipped_in(5, 7)), (0, 0));
    }

    // proves: P3
    #[test]
    fn what_all_is_sent_of_or_is_forgotten_is_not_left_out() {
        let cases: [fn(&mut PeerCopy); 3] = [PeerCopy::send_all, PeerCopy::forget_held, |v| v.set_differs(0, 4 * R)];
        for (case, change) in cases.into_iter().enumerate() {
            let mut v = PeerCopy::new(4 * R);
            v.set_written(0, 4 * R, Seq(1), false);
            v.freeze();
            v.peer_applied(0, 3);
            v.drop_snapshot(true);
            change(&mut v);
            v.freeze();
            assert_eq!(v.unshipped_in(0, 3), 4, "case {case}");
            v.drop_snapshot(false);
            v.end_cut_short();
            assert_eq!(v.dirty.dirty_bytes(), 4 * R, "case {case}: nor is it equal");
        }
    }

    // proves: P3
    /// Another snapshot may have been frozen by then: what was written before that counts as well.
    #[test]
    fn a_snapshot_whose_end_is_heard_of_late_leaves_dirty_what_was_touched_since_its_freeze() {
        let mut v = PeerCopy::new(8 * R);
        v.set_written(0, 6 * R, Seq(1), false);
        v.freeze();
        v.set_written(R, 512, Seq(2), false);
        v.peer_applied(0, 2);
        v.drop_snapshot(true);
        v.set_written(2 * R, 512, Seq(3), false);
        v.freeze();
        v.set_uncovered(3 * R, 512);
        v.set_written(7 * R, 512, Seq(4), false);
        assert!(v.was_cut_short());
        v.drop_snapshot(false);
        v.end_cut_short();
        let dirty = |v: &PeerCopy| (0..8).filter(|region| v.dirty.get(*region)).collect::<alloc::vec::Vec<u64>>();
        assert_eq!(dirty(&v), [1, 2, 3, 7]);
        assert!(!v.was_cut_short());
        v.freeze();
        v.drop_snapshot(true);
        v.freeze();
        v.forget_cut_short();
        v.drop_snapshot(false);
        v.end_cut_short();
        assert_eq!(dirty(&v), [1, 2, 3, 7], "the peer was in the middle of a later one");
    }

    // proves: P3, rule 1
    /// What the stream brings of it is older than what is written to it alone; and no sync sends or clears anything of it.
    #[test]
    fn bits_of_a_volume_that_is_set_aside_stay_until_it_rejoins() {
        let mut v = PeerCopy::new(8 * R);
        v.set_written(0, R, Seq(1), true);
        v.set_written(R, R, Seq(2), true);
        v.set_aside(true);
        v.set_written(R, 512, Seq(3), false);
        v.clear_confirmed(Seq(9), Seq(9));
        assert!(!v.dirty.get(0), "that has travelled");
        assert!(v.dirty.get(1), "this is newer");
        assert_eq!((v.next_to_ship(0), v.must_ship_in(R, 1), v.dirty_bytes_to_send()), (None, true, 0));
        v.freeze();
        assert_eq!(v.unshipped_in(0, 7), 0);
        v.end_snapshot();
        assert!(v.dirty.get(1));
        v.set_aside(false);
        v.freeze();
        assert_eq!((v.unshipped_in(0, 7), v.dirty_bytes_to_send()), (1, R));
    }

    #[test]
    fn only_the_blocks_of_a_write_are_kept() {
        let touched = |offset, length| {
            let mut v = PeerCopy::new(64 * R);
            v.keep(3 * 4096, 2 * 4096, Seq(1), true);
            v.keep(offset, length, Seq(2), false)
        };
        assert!(!touched(0, 3 * 4096) && touched(0, 3 * 4096 + 512), "up to its first block");
        assert!(touched(5 * 4096 - 512, 512) && !touched(5 * 4096, 4096), "from behind its last one");
    }

    // proves: P4
    #[test]
    fn overwriting_what_the_peer_keeps_is_noticed_until_the_flush_is_known() {
        let mut v = PeerCopy::new(64 * R);
        assert!(!v.keep(0, 4096, Seq(1), true) && !v.keep(4096, 4096, Seq(2), true));
        assert!(v.keep(0, 512, Seq(3), false));
        v.forget_kept(Seq(2));
        assert!(!v.keep(4096, 512, Seq(4), true));
    }

    /// A verify asks it for each chunk: with much outstanding behind the range each chunk cost milliseconds.
    #[test]
    fn whether_a_range_must_be_shipped_is_seen_in_that_range_alone() {
        let mut v = PeerCopy::new(1 << 40);
        (0..1 << 12).for_each(|n| v.set_written(n << 28, R, Seq(n + 1), true));
        for _ in 0..1_000_000 {
            assert!(!v.must_ship_in(0, 16 * R));
        }
    }
}
