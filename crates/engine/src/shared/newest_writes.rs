//! The newest number that wrote to each part of a volume, until that number is confirmed and flushed: by runs, so that what is held
//! grows with the writes under way and not with their lengths (P8). A trim of a terabyte is one run.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::ids::Seq;

/// Numbers that are told apart: more than a queue holds by default.
const NOTED_MAX: usize = if cfg!(test) { 1 << 12 } else { 1 << 23 };

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
        if self.log.len() > NOTED_MAX {
            self.join_older_half();
        }
    }

    /// A peer that confirms nothing does not make this grow for ever: the older half is told apart no more, and is confirmed with the
    /// newest of it. What lies between two of its runs counts as written.
    fn join_older_half(&mut self) {
        let seq = self.log[self.log.len() / 2].0;
        let newer = self.log.split_off(self.log.partition_point(|(noted, ..)| *noted <= seq));
        let older = core::mem::replace(&mut self.log, newer);
        let first = older.iter().map(|(_, first, _)| *first).min().unwrap_or_default();
        let last = older.iter().map(|(_, _, last)| *last).max().unwrap_or_default();
        self.log.push_front((seq, first, last));
        let mut joined = BTreeMap::<u64, UnitRun>::new();
        for (start, run) in core::mem::take(&mut self.runs) {
            match joined.last_entry() {
                Some(mut before) if run.seq <= seq && before.get().seq == seq => before.get_mut().last = run.last,
                _ => _ = joined.insert(start, UnitRun { seq: run.seq.max(seq), ..run }),
            }
        }
        self.runs = joined;
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

    #[test]
    fn of_what_is_never_confirmed_the_older_half_becomes_one() {
        let (mut writes, numbers) = (NewestWrites::default(), NOTED_MAX as u64 + 1);
        for seq in 1..=numbers {
            writes.note(seq * 2, seq * 2, Seq(seq));
        }
        let half = numbers / 2 + 1;
        assert_eq!((writes.runs.len() as u64, writes.log.len() as u64), (numbers - half + 1, numbers - half + 1));
        writes.note(4, 5, Seq(numbers + 1));
        let mut cleared = Vec::new();
        writes.clear_through(Seq(half - 1), |first, last| cleared.push((first, last)));
        assert_eq!(cleared, [], "nothing before its newest number");
        writes.clear_through(Seq(half), |first, last| cleared.push((first, last)));
        assert_eq!(cleared, [(2, 3), (6, half * 2)]);
        assert!(writes.touches(5, 5) && !writes.touches(6, half * 2));
        writes.clear_through(Seq(numbers + 1), |_, _| {});
        assert!(writes.runs.is_empty() && writes.log.is_empty());
    }
}
