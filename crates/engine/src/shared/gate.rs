//! Turns: something heavy that only so many groups of a node do at once (rules 17 and 24). A ticket window with a few
//! clerks: who comes while all are busy waits in line.
//!
//! A group that keeps its place for longer than one turn goes on, but no longer counts: so nobody waits for ever behind
//! a broken or endless one.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use crate::ids::GroupId;
use crate::time::Mono;

#[derive(Debug)]
pub(crate) struct Gate {
    places: usize,
    turn: Duration,
    /// Who is at it, and since when.
    inside: BTreeMap<GroupId, Mono>,
    waiting: VecDeque<GroupId>,
}

impl Gate {
    pub fn new(places: usize, turn: Duration) -> Gate {
        assert!(places > 0, "a gate that lets nobody through");
        Gate { places, turn, inside: BTreeMap::new(), waiting: VecDeque::new() }
    }

    fn has_place(&self, now: Mono) -> bool {
        self.inside.values().filter(|since| now.since(**since) < self.turn).count() < self.places
    }

    /// The group is inside, or could enter without overtaking anyone.
    pub fn lets_in(&self, now: Mono, group: GroupId) -> bool {
        self.inside.contains_key(&group) || (self.waiting.is_empty() && self.has_place(now))
    }

    pub fn enter(&mut self, now: Mono, group: GroupId) {
        self.inside.entry(group).or_insert(now);
        self.waiting.retain(|waiting| *waiting != group);
    }

    pub fn leave(&mut self, group: GroupId) {
        self.inside.remove(&group);
    }

    /// Takes its place at the end of the line, unless it stands there.
    pub fn wait(&mut self, group: GroupId) {
        if !self.waiting.contains(&group) {
            self.waiting.push_back(group);
        }
    }

    /// Whose turn it is now; it has entered.
    pub fn next(&mut self, now: Mono) -> Option<GroupId> {
        if !self.has_place(now) {
            return None;
        }
        let group = self.waiting.pop_front()?;
        self.inside.insert(group, now);
        Some(group)
    }

    /// When a place comes free by itself, if someone waits for it.
    pub fn frees_at(&self, now: Mono) -> Option<Mono> {
        let counting = self.inside.values().filter(|since| now.since(**since) < self.turn);
        counting.min().filter(|_| !self.waiting.is_empty()).map(|since| since.plus(self.turn))
    }

    /// Where it stands in line; 1: it is next.
    pub fn place(&self, group: GroupId) -> Option<usize> {
        self.waiting.iter().position(|waiting| *waiting == group).map(|at| at + 1)
    }

    /// How many are inside, and how many wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.inside.len(), self.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn so_many_at_once_and_the_others_in_order() {
        let mut gate = Gate::new(2, SECOND);
        (1..=5).for_each(|n| gate.wait(GroupId(n)));
        gate.wait(GroupId(2));
        let taken: alloc::vec::Vec<_> = core::iter::from_fn(|| gate.next(Mono(0))).collect();
        assert_eq!(taken, [GroupId(1), GroupId(2)]);
        assert_eq!([2, 3, 5].map(|n| gate.place(GroupId(n))), [None, Some(1), Some(3)]);
        assert!(gate.lets_in(Mono(0), GroupId(1)) && !gate.lets_in(Mono(0), GroupId(9)));
        gate.leave(GroupId(2));
        assert!(!gate.lets_in(Mono(0), GroupId(9)), "others were first");
        assert_eq!(gate.next(Mono(0)), Some(GroupId(3)));
        assert_eq!((gate.next(Mono(0)), gate.counts()), (None, (2, 2)));
    }

    #[test]
    fn nobody_waits_for_ever_behind_one_that_does_not_end() {
        let mut gate = Gate::new(1, SECOND);
        gate.wait(GroupId(1));
        gate.wait(GroupId(2));
        assert_eq!(gate.next(Mono(5)), Some(GroupId(1)));
        assert_eq!(gate.frees_at(Mono(5)), Some(Mono(5).plus(SECOND)));
        assert_eq!(gate.next(Mono(5)), None);
        assert_eq!(gate.next(Mono(5).plus(SECOND)), Some(GroupId(2)));
        assert_eq!((gate.counts(), gate.frees_at(Mono(6).plus(SECOND))), ((2, 0), None));
    }
}
