//! What a secondary keeps because its primary may lose it: **exactly what it made durable above what the primary forgot and
//! what the primary flushed** (P1, P3, P4).
//!
//! Fewer, and a write that was confirmed is lost with the primary's power. More, and an older write is fetched over a newer one:
//! the primary records a flush only where it overwrites what it takes for kept here.
//!
//! ```text
//!   flushed by the primary, or given up      kept                    not durable yet
//!  ---------------------------------- floor ------ last kept ------------------------------> sequence
//! ```
//! The floor only rises within a stream. The journal's index above it is what a start reads this back from, so the journal is trimmed
//! up to the floor at most, and the primary is told of the floor (`noted`) only when that is on record.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::formats::wire::{FlushPoints, VolumeRange};
use crate::ids::{Seq, VolumeSet};
use crate::injected_fault::{Fault, injected};

/// A durable write of which the primary may not have flushed its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptWrite {
    /// It stands for the numbers from here on.
    pub first: Seq,
    pub seq: Seq,
    pub range: VolumeRange,
}

/// The writes kept, of one stream.
#[derive(Debug, Default)]
pub(crate) struct KeptWrites {
    /// Oldest first, all above `floor`.
    writes: VecDeque<KeptWrite>,
    /// The primary flushed its own up to here, as far as it reported.
    primary_flushed: Seq,
    /// Nothing up to here is kept: it is flushed, or was given up.
    floor: Seq,
}

impl KeptWrites {
    /// A stream of writes begins behind `from`; up to there the primary has flushed its own.
    pub fn of_stream(from: Seq) -> KeptWrites {
        KeptWrites { writes: VecDeque::new(), primary_flushed: from, floor: from }
    }

    /// All that a snapshot carries was flushed by the primary before it was sent: nothing of it is kept.
    pub fn of_snapshot() -> KeptWrites {
        KeptWrites::of_stream(Seq(u64::MAX))
    }

    /// A write is durable here, or some that became one. `first` is above all that landed before.
    pub fn landed(&mut self, first: Seq, seq: Seq, range: VolumeRange) {
        let is_flushed = seq <= self.floor && !injected(Fault::FlushedIsKept);
        if is_flushed || injected(Fault::TailNotKept) {
            return;
        }
        debug_assert!(self.writes.back().is_none_or(|last| last.seq < first) || cfg!(feature = "injected-faults"));
        self.writes.push_back(KeptWrite { first, seq, range });
    }

    /// The primary reports that it flushed its own writes up to here.
    pub fn flushed_by_primary(&mut self, through: Seq) {
        self.raise_floor(through);
        self.primary_flushed = self.primary_flushed.max(through.min(self.floor));
    }

    /// Keeps nothing of what landed so far, up to `durable`, though the primary may not have flushed it. Whether that was
    /// anything: then the caller records `given_up` with whatever it is given up for.
    pub fn give_up(&mut self, durable: Seq) -> bool {
        let gives_up = !self.writes.is_empty();
        self.raise_floor(durable);
        gives_up
    }

    /// A start has read back from the journal, which reaches to `last`, all that may have to be kept. Whatever is before the first
    /// of it was trimmed, and so flushed by the primary, unless it was `given_up`.
    pub fn read_back(&mut self, last: Seq, given_up: Seq) {
        self.floor = self.writes.front().map_or(last, |kept| Seq(kept.first.0 - 1));
        self.primary_flushed = if given_up == Seq::NONE { self.floor } else { Seq::NONE };
    }

    fn raise_floor(&mut self, through: Seq) {
        if through <= self.floor {
            return;
        }
        while self.writes.front().is_some_and(|kept| kept.seq <= through) {
            self.writes.pop_front();
        }
        // What stands for several numbers is kept as a whole, or not at all.
        let kept_after = self.writes.front().map_or(through, |kept| Seq(kept.first.0 - 1));
        self.floor = self.floor.max(through.min(kept_after));
    }

    /// The journal's index is needed above this number only.
    pub fn floor(&self) -> Seq {
        self.floor
    }

    pub fn primary_flushed(&self) -> Seq {
        self.primary_flushed
    }

    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// How many writes are kept.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// What a primary with these flush points may have lost, oldest first.
    pub fn beyond<'a>(&'a self, points: &'a FlushPoints) -> impl Iterator<Item = VolumeRange> + 'a {
        let flushed =
            |range: &VolumeRange| points.volumes.get(usize::from(range.volume.0)).copied().unwrap_or_default();
        self.writes.iter().filter(move |kept| kept.seq > flushed(&kept.range)).map(|kept| kept.range)
    }

    /// Where they stand.
    pub fn ranges(&self) -> impl Iterator<Item = &VolumeRange> {
        self.writes.iter().map(|kept| &kept.range)
    }

    /// Nothing of these volumes is kept any more. The floor stays where it is.
    pub fn forget_volumes(&mut self, volumes: &VolumeSet) {
        self.writes.retain(|kept| !volumes.contains(kept.range.volume));
    }

    /// The number of the oldest write that is kept.
    pub fn oldest(&self) -> Option<Seq> {
        self.writes.front().map(|first| first.seq)
    }

    /// `durable`: what landed so far; `noted`: what the primary was told is not kept any more.
    pub fn check_invariants(&self, durable: Seq, noted: Seq) {
        assert!(self.primary_flushed <= self.floor, "the floor is behind the primary's flush point");
        assert!(noted <= self.floor, "the primary was told that something is not kept that is");
        assert!(self.writes.front().is_none_or(|first| first.seq > self.floor), "kept though flushed");
        assert!(self.writes.back().is_none_or(|last| last.seq <= durable), "kept before it is durable");
    }
}

/// Sorted, overlapping and touching ranges joined.
pub(crate) fn merged(mut ranges: Vec<VolumeRange>) -> Vec<VolumeRange> {
    ranges.sort_unstable();
    let mut joined: Vec<VolumeRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.volume == range.volume && range.offset <= last.offset + last.length => {
                last.length = last.length.max(range.offset + range.length - last.offset);
            }
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Incarnation, VolumeId};
    use alloc::vec;

    fn range(n: u64) -> VolumeRange {
        VolumeRange { volume: VolumeId((n % 2) as u16), offset: n * 512, length: 512 }
    }

    fn numbers(kept: &KeptWrites) -> Vec<u64> {
        kept.writes.iter().map(|write| write.seq.0).collect()
    }

    /// The sentence itself, kept by filtering everything that ever landed.
    #[derive(Default)]
    struct KeptModel {
        /// Each by its first and its last number.
        durable: Vec<(u64, u64)>,
        forgotten: u64,
    }

    impl KeptModel {
        fn kept(&self) -> Vec<u64> {
            self.durable.iter().map(|(_, seq)| *seq).filter(|seq| *seq > self.forgotten).collect()
        }
    }

    // proves: P1, P4
    /// Writes land in order, some numbers are no writes; the primary reports in any order, also what has not landed yet; now and
    /// then all is given up, or a start reads it back.
    #[test]
    fn it_keeps_what_the_sentence_says() {
        let mut state = 7u64;
        let mut draw = |below: u64| {
            state = crate::ids::mix(state, 1);
            state % below
        };
        for _ in 0..2_000 {
            let from = draw(20);
            let mut model = KeptModel { durable: Vec::new(), forgotten: from };
            let (mut kept, mut last, mut given_up) = (KeptWrites::of_stream(Seq(from)), from, 0);
            // Flushed at the primary, by its word, before it landed here.
            let mut ahead = from;
            for _ in 0..60 {
                match draw(12) {
                    0..6 => {
                        let first = last + 1 + draw(2);
                        last = first + draw(8).saturating_sub(5);
                        kept.landed(Seq(first), Seq(last), range(last));
                        model.durable.push((first, last));
                    }
                    6..9 => {
                        let through = (last + 3).saturating_sub(draw(8));
                        kept.flushed_by_primary(Seq(through));
                        model.forgotten = model.forgotten.max(through);
                        ahead = if through > last { ahead.max(through) } else { ahead };
                    }
                    9 => {
                        assert_eq!(kept.give_up(Seq(last)), !model.kept().is_empty());
                        given_up = last;
                        model.forgotten = model.forgotten.max(last);
                    }
                    10 => {
                        // The journal still holds what was flushed since the last trim.
                        let trimmed = model.forgotten.saturating_sub(draw(4)).max(given_up);
                        kept = KeptWrites::default();
                        let still = model.durable.iter().filter(|(_, seq)| *seq > trimmed);
                        still.for_each(|(first, seq)| kept.landed(Seq(*first), Seq(*seq), range(*seq)));
                        kept.read_back(Seq(last), Seq(given_up));
                        model.forgotten = kept.floor().0;
                    }
                    _ => {
                        let points = vec![Seq(draw(last + 1)), Seq(draw(last + 1))];
                        let points = FlushPoints { incarnation: Incarnation(1), volumes: points };
                        let lost: Vec<u64> = kept.beyond(&points).map(|range| range.offset / 512).collect();
                        let model = model.kept().into_iter();
                        assert_eq!(lost, model.filter(|n| *n > points.volumes[(n % 2) as usize].0).collect::<Vec<_>>());
                    }
                }
                assert_eq!(numbers(&kept), model.kept());
                kept.check_invariants(Seq(last), Seq::NONE);
                // Its primary forgets up to the floor, and fetches a write as a whole.
                let splits = |(first, seq): &(u64, u64)| (*first..*seq).contains(&kept.floor().0) && *first > ahead;
                assert!(!model.durable.iter().any(splits), "the floor lies within a write");
            }
        }
    }

    #[test]
    fn nothing_of_a_snapshot_is_kept() {
        let mut kept = KeptWrites::of_snapshot();
        kept.landed(Seq(1), Seq(1), range(1));
        assert!(kept.is_empty());
    }

    /// A start knows of the primary's flushes by what was trimmed, and not where that was given up.
    #[test]
    fn what_was_given_up_is_not_taken_for_flushed_after_a_start() {
        let mut kept = KeptWrites::default();
        kept.read_back(Seq(9), Seq(9));
        assert_eq!((kept.primary_flushed(), kept.floor()), (Seq::NONE, Seq(9)));
        kept.flushed_by_primary(Seq(9));
        assert_eq!(kept.primary_flushed(), Seq(9));
    }
}
