//! The newest number that wrote to each part of a volume, until that number is confirmed and flushed: by runs, so that what is held
//! grows with the writes under way and not with their lengths (P8). A trim of a terabyte is one run.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::ids::Seq;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnitRun {
    last: u64,
    seq: Seq,
}

/// Units (regions, blocks: the caller's choice) and the newest number of each.
#[derive(Debug, Default)]
pub(crate) struct NewestWrites {
    /// By first unit; they do not overlap.
    runs: BTreeMap<u64, UnitRun>,
    /// What was noted, in order: number, first and last unit.
    log: VecDeque<(Seq, u64, u64)>,
}

impl NewestWrites {
    /// Number `seq`, higher than all noted before, wrote to the units `first..=last`.
    pub fn note(&mut self, first: u64, last: u64, seq: Seq) {
        debug_assert!(self.last_noted().is_none_or(|noted| noted <= seq));
        if let Some((&start, &run)) = self.runs.range(..first).next_back()
            && run.last >= first
        {
            self.runs.insert(start, UnitRun { last: first - 1, ..run });
            if run.last > last {
                self.runs.insert(last + 1, run);
            }
        }
        let hidden: Vec<u64> = self.runs.range(first..=last).map(|(start, _)| *start).collect();
        for start in hidden {
            if let Some(run) = self.runs.remove(&start).filter(|run| run.last > last) {
                self.runs.insert(last + 1, run);
            }
        }
        self.runs.insert(first, UnitRun { last, seq });
        self.log.push_back((seq, first, last));
    }

    /// Everything up to here is confirmed: `each` gets the units whose newest number that covers.
    pub fn clear_through(&mut self, through: Seq, mut each: impl FnMut(u64, u64)) {
        while let Some(&(seq, first, last)) = self.log.front()
            && seq <= through
        {
            self.log.pop_front();
            let own = self.runs.range(first..=last).filter(|(_, run)| run.seq == seq);
            let own: Vec<(u64, u64)> = own.map(|(start, run)| (*start, run.last)).collect();
            for (start, last) in own {
                self.runs.remove(&start);
                each(start, last);
            }
        }
    }

    /// What was noted up to here and is not confirmed, newer or not.
    pub fn noted_through(&self, through: Seq) -> impl Iterator<Item = (u64, u64)> {
        self.log.iter().take_while(move |(seq, ..)| *seq <= through).map(|(_, first, last)| (*first, *last))
    }

    /// Some of these units have a number that is not confirmed.
    pub fn touches(&self, first: u64, last: u64) -> bool {
        self.runs.range(..=last).next_back().is_some_and(|(_, run)| run.last >= first)
    }

    pub fn last_noted(&self) -> Option<Seq> {
        self.log.back().map(|(seq, ..)| *seq)
    }

    pub fn clear(&mut self) {
        self.runs.clear();
        self.log.clear();
    }

    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.runs.len() + self.log.len()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const UNITS: u64 = 40;

    /// A step of xorshift, below `below`.
    fn draw(state: &mut u64, below: u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % below
    }

    // proves: rule 1
    #[test]
    fn runs_say_what_a_number_for_each_unit_would() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..200 {
            let (mut newest, mut model, mut cleared_through) =
                (NewestWrites::default(), vec![None; UNITS as usize], Seq(0));
            for seq in (1..60).map(Seq) {
                let first = draw(&mut state, UNITS);
                let last = (first + draw(&mut state, 12)).min(UNITS - 1);
                newest.note(first, last, seq);
                model[first as usize..=last as usize].fill(Some(seq));
                if draw(&mut state, 4) == 0 {
                    cleared_through = Seq(cleared_through.0 + draw(&mut state, seq.0 - cleared_through.0 + 1));
                    let mut given = vec![false; UNITS as usize];
                    newest
                        .clear_through(cleared_through, |first, last| given[first as usize..=last as usize].fill(true));
                    for (unit, number) in model.iter_mut().enumerate() {
                        assert_eq!(given[unit], number.is_some_and(|number| number <= cleared_through), "unit {unit}");
                        *number = number.filter(|number| *number > cleared_through);
                    }
                }
                let (from, to) = (draw(&mut state, UNITS), draw(&mut state, UNITS));
                let (from, to) = (from.min(to), from.max(to));
                let any = model[from as usize..=to as usize].iter().any(Option::is_some);
                assert_eq!(newest.touches(from, to), any, "{from} to {to} after {seq:?}");
                let outstanding = (seq.0 - cleared_through.0) as usize;
                assert!(newest.held() <= 3 * outstanding, "{} for {outstanding} writes", newest.held());
            }
        }
    }

    #[test]
    fn a_write_of_any_length_is_one_run() {
        let mut newest = NewestWrites::default();
        newest.note(0, 1 << 40, Seq(1));
        assert_eq!(newest.held(), 2, "a run and a line of the log");
        newest.note(7, 7, Seq(2));
        assert_eq!(newest.held(), 5, "it lies in the middle of the other");
        newest.clear_through(Seq(2), |_, _| {});
        assert_eq!(newest.held(), 0);
    }
}
