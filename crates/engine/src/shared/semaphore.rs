//! A semaphore: something heavy that only so many groups of a node do at once (rules 17 and 24). A ticket window with a few
//! clerks: who comes while all are busy waits in line.
//!
//! A group that keeps its permit for longer than the limit goes on, but no longer counts: so nobody waits for ever behind
//! a broken or endless one.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use crate::ids::GroupId;
use crate::time::Mono;

#[derive(Debug)]
pub(crate) struct GroupSemaphore {
    permits: usize,
    hold_limit: Duration,
    /// Who is at it, and since when.
    holders: BTreeMap<GroupId, Mono>,
    waiting: VecDeque<GroupId>,
}

impl GroupSemaphore {
    pub fn new(permits: usize, hold_limit: Duration) -> GroupSemaphore {
        assert!(permits > 0, "a semaphore without permits");
        GroupSemaphore { permits, hold_limit, holders: BTreeMap::new(), waiting: VecDeque::new() }
    }

    fn has_permit(&self, now: Mono) -> bool {
        self.holders.values().filter(|since| now.since(**since) < self.hold_limit).count() < self.permits
    }

    /// The group is inside, or could enter without overtaking anyone.
    pub fn admits(&self, now: Mono, group: GroupId) -> bool {
        self.holders.contains_key(&group) || (self.waiting.is_empty() && self.has_permit(now))
    }

    pub fn holds(&self, group: GroupId) -> bool {
        self.holders.contains_key(&group)
    }

    pub fn acquire(&mut self, now: Mono, group: GroupId) {
        self.holders.entry(group).or_insert(now);
        self.waiting.retain(|waiting| *waiting != group);
    }

    pub fn release(&mut self, group: GroupId) {
        self.holders.remove(&group);
    }

    /// Goes to the end of the line, unless it stands there.
    pub fn wait(&mut self, group: GroupId) {
        if !self.waiting.contains(&group) {
            self.waiting.push_back(group);
        }
    }

    /// It wants none any more.
    pub fn leave(&mut self, group: GroupId) {
        self.waiting.retain(|waiting| *waiting != group);
    }

    /// Who has a permit now, by order.
    pub fn next(&mut self, now: Mono) -> Option<GroupId> {
        if !self.has_permit(now) {
            return None;
        }
        let group = self.waiting.pop_front()?;
        self.holders.insert(group, now);
        Some(group)
    }

    /// When a permit comes free by itself, if someone waits for it.
    pub fn frees_at(&self, now: Mono) -> Option<Mono> {
        let counting = self.holders.values().filter(|since| now.since(**since) < self.hold_limit);
        counting.min().filter(|_| !self.waiting.is_empty()).map(|since| since.plus(self.hold_limit))
    }

    /// Where it stands in line; 1: it is next.
    pub fn position(&self, group: GroupId) -> Option<usize> {
        self.waiting.iter().position(|waiting| *waiting == group).map(|at| at + 1)
    }

    /// How many are inside, and how many wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.holders.len(), self.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    // proves: rule 24
    #[test]
    fn so_many_at_once_and_the_others_in_order() {
        let mut semaphore = GroupSemaphore::new(2, SECOND);
        (1..=5).for_each(|n| semaphore.wait(GroupId(n)));
        semaphore.wait(GroupId(2));
        let taken: alloc::vec::Vec<_> = core::iter::from_fn(|| semaphore.next(Mono(0))).collect();
        assert_eq!(taken, [GroupId(1), GroupId(2)]);
        assert_eq!([2, 3, 5].map(|n| semaphore.position(GroupId(n))), [None, Some(1), Some(3)]);
        assert!(semaphore.admits(Mono(0), GroupId(1)) && !semaphore.admits(Mono(0), GroupId(9)));
        semaphore.release(GroupId(2));
        assert!(!semaphore.admits(Mono(0), GroupId(9)), "others were first");
        assert_eq!(semaphore.next(Mono(0)), Some(GroupId(3)));
        assert_eq!((semaphore.next(Mono(0)), semaphore.counts()), (None, (2, 2)));
    }

    // proves: rule 24
    #[test]
    fn nobody_waits_for_ever_behind_one_that_does_not_end() {
        let mut semaphore = GroupSemaphore::new(1, SECOND);
        semaphore.wait(GroupId(1));
        semaphore.wait(GroupId(2));
        assert_eq!(semaphore.next(Mono(5)), Some(GroupId(1)));
        assert_eq!(semaphore.frees_at(Mono(5)), Some(Mono(5).plus(SECOND)));
        assert_eq!(semaphore.next(Mono(5)), None);
        assert_eq!(semaphore.next(Mono(5).plus(SECOND)), Some(GroupId(2)));
        assert_eq!((semaphore.counts(), semaphore.frees_at(Mono(6).plus(SECOND))), ((2, 0), None));
    }
}
