//! Which ranges of a volume are held, and who waits for which, in order of arrival (rule 3). Giving a range back costs what it wakes:
//! a thousand writers of one block are not looked at for each of them.
//!
//! ```text
//! held:   [ a ]      [   b   ]          of each byte one holder at most
//! line:     [ d ][ c    ]               of each byte who waits for it last
//! ```
//! Who comes to wait stands behind whoever waits last at each byte of its range, and where nobody waits behind the holder: those
//! stand behind everybody before them. It is free when all it stands behind have given their ranges back. A range may also be taken past
//! those who wait (a read that saves what they would overwrite): who is free then waits for that as well.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::ids::Seq;

/// Ranges without overlap: end by start and slot.
type RangeMap = BTreeMap<(u64, u32), u64>;

/// A range being written or read; widened to the device's block.
#[derive(Debug)]
struct HeldRange {
    start: u64,
    end: u64,
    seq: Seq,
    is_write: bool,
    /// Its position in the order of arrival.
    came: u64,
    /// So many must give their ranges back first; `None`: it is held.
    waits_for: Option<usize>,
    /// Was let in from the line and has not said since that it takes the range.
    called: bool,
    /// Who waits for this one.
    behind: Vec<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct RangeLocks {
    by_slot: BTreeMap<u32, HeldRange>,
    held: RangeMap,
    line: RangeMap,
    /// Who waits for nobody any more.
    free: BTreeSet<(u64, u32)>,
    came: u64,
    writes: usize,
    /// First numbers of the writes under way, and how many have each: writes to a volume that is set aside share one.
    numbers: BTreeMap<Seq, u32>,
    /// How many waiters were looked at so far.
    pub looked_at: u64,
}

/// Those that share a byte with `start..end`: start, end, slot.
fn overlapping(ranges: &RangeMap, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, u32)> {
    let before = ranges.range(..(start, 0)).next_back().filter(move |(_, its_end)| **its_end > start);
    let within = ranges.range((start, 0)..(end, 0));
    before.into_iter().chain(within).map(|(&(its_start, slot), &its_end)| (its_start, its_end, slot))
}

impl RangeLocks {
    /// Whether who would stand in the way of the range is a write.
    pub fn conflict(&self, start: u64, end: u64) -> Option<bool> {
        let found = overlapping(&self.held, start, end).next().or_else(|| overlapping(&self.line, start, end).next());
        found.map(|(_, _, slot)| self.by_slot[&slot].is_write)
    }

    pub fn is_held(&self, start: u64, end: u64) -> bool {
        self.first_held(start, end).is_some()
    }

    /// Start and end of the first range that is held and shares a byte with this one.
    pub fn first_held(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        overlapping(&self.held, start, end).next().map(|(start, end, _)| (start, end))
    }

    /// Takes a range that nobody holds, or of one that [`RangeLocks::next_free`] let in so much as is needed.
    pub fn hold(&mut self, slot: u32, (start, end): (u64, u64), seq: Seq, is_write: bool) {
        if let Some(range) = self.by_slot.get_mut(&slot) {
            assert!(core::mem::replace(&mut range.called, false), "slot {slot} holds a range already");
            assert!(
                range.start <= start && end <= range.end && range.is_write == is_write,
                "it waited for another range"
            );
            if (range.start, range.end) != (start, end) {
                self.narrow(slot, start, end);
            }
        } else {
            debug_assert!(!self.is_held(start, end));
            self.enter(slot, (start, end), is_write, None);
            self.held.insert((start, slot), end);
        }
        self.number(slot, seq);
    }

    /// Who waits for the rest of the range only waits no more.
    fn narrow(&mut self, slot: u32, start: u64, end: u64) {
        let range = self.by_slot.get_mut(&slot).expect("the range is held");
        self.held.remove(&(range.start, slot));
        self.held.insert((start, slot), end);
        (range.start, range.end) = (start, end);
        let behind = core::mem::take(&mut range.behind);
        let (still, rest): (Vec<u32>, Vec<u32>) = behind.into_iter().partition(|other| {
            let other = &self.by_slot[other];
            other.start < end && start < other.end
        });
        self.by_slot.get_mut(&slot).expect("the range is held").behind = still;
        rest.into_iter().for_each(|other| self.step_up(other));
    }

    /// It has its number now. Of a read, and of a write that waits for its own, nothing is counted.
    pub fn number(&mut self, slot: u32, seq: Seq) {
        let range = self.by_slot.get_mut(&slot).expect("the range is held");
        range.seq = seq;
        if range.is_write && seq != Seq(u64::MAX) {
            *self.numbers.entry(seq).or_insert(0) += 1;
        }
    }

    /// Waits for the range, behind all that wait already.
    pub fn wait(&mut self, slot: u32, (start, end): (u64, u64), is_write: bool) {
        let mut before: Vec<u32> = Vec::new();
        let line: Vec<_> = overlapping(&self.line, start, end).collect();
        let mut from = start;
        for &(its_start, its_end, last) in &line {
            if its_start > from {
                before.extend(overlapping(&self.held, from, its_start).map(|(_, _, holder)| holder));
            }
            before.push(last);
            from = its_end;
        }
        if from < end {
            before.extend(overlapping(&self.held, from, end).map(|(_, _, holder)| holder));
        }
        before.sort_unstable();
        before.dedup();
        self.enter(slot, (start, end), is_write, Some(before.len()));
        for &other in &before {
            self.by_slot.get_mut(&other).expect("whoever is in the way is known").behind.push(slot);
        }
        for (its_start, its_end, last) in line {
            self.line.remove(&(its_start, last));
            if its_start < start {
                self.line.insert((its_start, last), start);
            }
            if its_end > end {
                self.line.insert((end, last), its_end);
            }
        }
        self.line.insert((start, slot), end);
        if before.is_empty() {
            self.free.insert((self.came, slot));
        }
    }

    fn enter(&mut self, slot: u32, (start, end): (u64, u64), is_write: bool, waits_for: Option<usize>) {
        self.came += 1;
        self.writes += usize::from(is_write);
        let (seq, came) = (Seq(u64::MAX), self.came);
        let range = HeldRange { start, end, seq, is_write, came, waits_for, called: false, behind: Vec::new() };
        assert!(self.by_slot.insert(slot, range).is_none(), "slot {slot} has a range already");
    }

    /// The first in line whose range is free now; it holds it from here on.
    pub fn next_free(&mut self) -> Option<u32> {
        while let Some((_, slot)) = self.free.pop_first() {
            self.looked_at += 1;
            let HeldRange { start, end, .. } = self.by_slot[&slot];
            // Someone took it past the line.
            let holder = overlapping(&self.held, start, end).next().map(|(_, _, holder)| holder);
            if let Some(holder) = holder {
                self.by_slot.get_mut(&holder).expect("a holder is known").behind.push(slot);
                self.waits_for(slot, Some(1));
                continue;
            }
            let of_it: Vec<_> = overlapping(&self.line, start, end).filter(|(_, _, last)| *last == slot).collect();
            for (its_start, _, _) in of_it {
                self.line.remove(&(its_start, slot));
            }
            self.held.insert((start, slot), end);
            self.waits_for(slot, None);
            return Some(slot);
        }
        None
    }

    fn waits_for(&mut self, slot: u32, some: Option<usize>) {
        let range = self.by_slot.get_mut(&slot).expect("who waits is known");
        (range.waits_for, range.called) = (some, some.is_none());
    }

    /// Gives a range back.
    pub fn release(&mut self, slot: u32) {
        let range = self.by_slot.remove(&slot).expect("a busy range is released once");
        assert!(range.waits_for.is_none(), "only what is held is given back");
        self.held.remove(&(range.start, slot));
        if range.is_write {
            self.writes -= 1;
            self.forget_number(range.seq);
        }
        range.behind.into_iter().for_each(|other| self.step_up(other));
    }

    /// A write under this number has ended. One that had none yet leaves none.
    fn forget_number(&mut self, seq: Seq) {
        if let Some(count) = self.numbers.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                self.numbers.remove(&seq);
            }
        }
    }

    /// One of those it waits for is out of its way.
    fn step_up(&mut self, slot: u32) {
        self.looked_at += 1;
        let waiter = self.by_slot.get_mut(&slot).expect("who waits is known");
        let left = waiter.waits_for.expect("it waits") - 1;
        waiter.waits_for = Some(left);
        if left == 0 {
            self.free.insert((waiter.came, slot));
        }
    }

    /// Gives back what the slot was let in to, if it was.
    pub fn let_go(&mut self, slot: u32) {
        if self.by_slot.contains_key(&slot) {
            self.release(slot);
        }
    }

    /// The range is held by another operation from here on.
    pub fn hand_over(&mut self, from: u32, to: u32) {
        let range = self.by_slot.remove(&from).expect("the range is held");
        self.held.remove(&(range.start, from));
        self.held.insert((range.start, to), range.end);
        self.by_slot.insert(to, range);
    }

    /// Nobody waits any more.
    pub fn forget_line(&mut self) {
        self.by_slot.retain(|_, range| range.waits_for.is_none());
        self.by_slot.values_mut().for_each(|range| range.behind.clear());
        self.writes = self.by_slot.values().filter(|range| range.is_write).count();
        self.line.clear();
        self.free.clear();
    }

    /// Writes that hold a range or wait for one.
    pub fn writes(&self) -> usize {
        self.writes
    }

    /// The first number of the writes under way.
    pub fn first_number(&self) -> Option<Seq> {
        self.numbers.first_key_value().map(|(seq, _)| *seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Seq = Seq(u64::MAX);

    fn hold(ranges: &mut RangeLocks, slot: u32, range: (u64, u64)) {
        ranges.hold(slot, range, NONE, true);
    }

    /// Everybody who is free now, as they are let in.
    fn free(ranges: &mut RangeLocks) -> Vec<u32> {
        core::iter::from_fn(|| ranges.next_free()).collect()
    }

    #[test]
    fn a_hot_block_costs_each_of_its_writers_a_look_or_two() {
        let mut ranges = RangeLocks::default();
        hold(&mut ranges, 0, (0, 4096));
        for slot in 1..=10_000 {
            ranges.wait(slot, (0, 4096), true);
        }
        for slot in 0..=10_000 {
            ranges.release(slot);
            assert_eq!(ranges.next_free(), (slot < 10_000).then_some(slot + 1));
            assert_eq!(ranges.next_free(), None);
        }
        assert_eq!(ranges.looked_at, 20_000, "once when it becomes free, once when it is let in");
        assert!(ranges.by_slot.is_empty() && ranges.held.is_empty() && ranges.line.is_empty());
    }

    #[test]
    fn who_waits_elsewhere_is_not_looked_at() {
        let mut ranges = RangeLocks::default();
        for n in 0..1000 {
            hold(&mut ranges, n, (u64::from(n) * 10, u64::from(n) * 10 + 5));
            ranges.wait(n + 1000, (u64::from(n) * 10, u64::from(n) * 10 + 5), true);
        }
        ranges.release(500);
        assert_eq!((ranges.next_free(), ranges.next_free(), ranges.looked_at), (Some(1500), None, 2));
    }

    // proves: rule 3
    #[test]
    fn a_wide_range_waits_for_all_in_it_and_all_in_it_for_the_wide_one() {
        let mut ranges = RangeLocks::default();
        hold(&mut ranges, 1, (10, 20));
        hold(&mut ranges, 2, (30, 40));
        ranges.wait(3, (15, 35), true);
        ranges.wait(4, (0, 100), false);
        ranges.wait(5, (20, 30), true);
        ranges.wait(6, (90, 95), true);
        ranges.release(1);
        assert_eq!(free(&mut ranges), []);
        ranges.release(2);
        assert_eq!(free(&mut ranges), [3]);
        ranges.release(3);
        assert_eq!(free(&mut ranges), [4], "not 5, though nobody holds its range");
        ranges.release(4);
        assert_eq!(free(&mut ranges), [5, 6]);
    }

    #[test]
    fn a_range_taken_past_the_line_is_waited_for_and_leaves_the_line_as_it_was() {
        let mut ranges = RangeLocks::default();
        hold(&mut ranges, 1, (0, 10));
        ranges.wait(2, (5, 25), true);
        ranges.hold(3, (15, 30), Seq::NONE, false);
        ranges.wait(4, (20, 40), true);
        ranges.release(1);
        assert_eq!(free(&mut ranges), [], "2 is free of 1 and waits for 3");
        ranges.hand_over(3, 9);
        ranges.release(9);
        assert_eq!(free(&mut ranges), [2]);
        ranges.release(2);
        assert_eq!(free(&mut ranges), [4]);
    }

    #[test]
    fn who_takes_less_than_it_waited_for_leaves_the_rest_to_others() {
        let mut ranges = RangeLocks::default();
        hold(&mut ranges, 1, (0, 10));
        ranges.wait(2, (0, 100), true);
        ranges.wait(3, (5, 15), true);
        ranges.wait(4, (50, 60), true);
        ranges.wait(5, (12, 55), true);
        ranges.release(1);
        assert_eq!(ranges.next_free(), Some(2));
        hold(&mut ranges, 2, (0, 8));
        assert_eq!(free(&mut ranges), [4], "5 is behind 3, which still waits");
        ranges.release(2);
        assert_eq!(free(&mut ranges), [3]);
    }

    #[test]
    fn numbers_are_those_of_writes_under_way() {
        let mut ranges = RangeLocks::default();
        ranges.hold(1, (0, 1), Seq(7), true);
        ranges.hold(2, (1, 2), Seq(5), false);
        hold(&mut ranges, 3, (2, 3));
        assert_eq!((ranges.first_number(), ranges.writes()), (Some(Seq(7)), 2));
        ranges.number(3, Seq(6));
        assert_eq!(ranges.first_number(), Some(Seq(6)));
        ranges.release(3);
        ranges.release(1);
        assert_eq!((ranges.first_number(), ranges.writes()), (None, 0));
    }

    // proves: rule 3
    /// Against the words themselves: who came first holds it first, as long as the ranges share a byte.
    #[test]
    fn any_order_of_ranges_is_the_order_of_arrival() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let (mut ranges, mut model, mut next) = (RangeLocks::default(), Vec::<(u32, u64, u64, bool)>::new(), 0);
        for _ in 0..30_000 {
            let (start, length) = (draw(60), 1 + draw(12));
            let clash = |s: u64, e: u64| move |r: &&(u32, u64, u64, bool)| s < r.2 && r.1 < e;
            if draw(2) == 0 && model.len() < 40 {
                let expected = model.iter().any(|r| clash(start, start + length)(&r));
                assert_eq!(ranges.conflict(start, start + length).is_some(), expected);
                match expected {
                    true => ranges.wait(next, (start, start + length), true),
                    false => hold(&mut ranges, next, (start, start + length)),
                }
                model.push((next, start, start + length, !expected));
                next += 1;
            } else if let Some(at) = model.iter().position(|r| r.3) {
                let holders: Vec<usize> = (at..model.len()).filter(|&i| model[i].3).collect();
                let (slot, ..) = model.remove(holders[draw(holders.len() as u64) as usize]);
                ranges.release(slot);
                let mut woken = Vec::new();
                for i in 0..model.len() {
                    let (slot, s, e, holds) = model[i];
                    if !holds && !model[..i].iter().any(|r| clash(s, e)(&r)) {
                        model[i].3 = true;
                        woken.push(slot);
                    }
                }
                let let_in = free(&mut ranges);
                let_in.iter().for_each(|&slot| {
                    let (_, s, e, _) = *model.iter().find(|r| r.0 == slot).expect("known");
                    hold(&mut ranges, slot, (s, e));
                });
                assert_eq!(let_in, woken);
            }
        }
    }

    /// A new run began with the line of the last one: its writers were let in once more.
    #[test]
    fn who_waited_is_forgotten_and_who_holds_a_range_is_not() {
        let mut ranges = RangeLocks::default();
        hold(&mut ranges, 1, (0, 10));
        ranges.wait(2, (5, 25), true);
        ranges.wait(3, (8, 9), true);
        ranges.forget_line();
        assert_eq!(ranges.writes(), 1);
        ranges.wait(4, (0, 5), true);
        ranges.release(1);
        assert_eq!(free(&mut ranges), [4]);
    }
}
