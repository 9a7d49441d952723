//! The scheduler of a link. Groups that have something to send share it by bytes, not by frames: a group's quantum lasts until a part's
//! bytes are sent, or nothing is left (deficit round robin, Shreedhar and Varghese 1995). One that comes after a rest has its
//! turn before those that send without end, as RFC 8290 has it for flows: who writes little waits for nobody's sync. A group's weight
//! (`link.weight`) makes its quantum larger or smaller: nobody is starved.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};

use crate::ids::GroupId;
use crate::limits::LINK_WEIGHT_DEFAULT;

#[derive(Debug, Default)]
pub(crate) struct LinkScheduler {
    /// Came after a rest. When they have had their turn, or nothing more, they stand behind the others before they may come so again.
    fresh: VecDeque<GroupId>,
    busy: VecDeque<GroupId>,
    /// Of all that stand in line.
    shares: BTreeMap<GroupId, LinkShare>,
}

#[derive(Debug)]
struct LinkShare {
    /// What it may still send of its quantum. Below zero: what it took beyond.
    left_bytes: i64,
    weight: u8,
}

/// What a group of this weight may send in its turn, where one of the default weight may send a part.
fn quantum(part_bytes: u64, weight: u8) -> i64 {
    (part_bytes * u64::from(weight) / u64::from(LINK_WEIGHT_DEFAULT)).max(1) as i64
}

impl LinkScheduler {
    /// The group may have something to send; its weight counts from its next quantum on.
    pub fn offer(&mut self, group: GroupId, part_bytes: u64, weight: u8) {
        match self.shares.entry(group) {
            Entry::Vacant(share) => {
                share.insert(LinkShare { left_bytes: quantum(part_bytes, weight), weight });
                self.fresh.push_back(group);
            }
            Entry::Occupied(share) => share.into_mut().weight = weight,
        }
    }

    fn line(&mut self) -> &mut VecDeque<GroupId> {
        if self.fresh.is_empty() { &mut self.busy } else { &mut self.fresh }
    }

    /// Whose turn it is; it stays so until its share is used up or it rests.
    pub fn next(&mut self, part_bytes: u64) -> Option<GroupId> {
        loop {
            let group = *self.line().front()?;
            let share = self.shares.get_mut(&group).expect("it stands in line");
            if share.left_bytes > 0 {
                return Some(group);
            }
            share.left_bytes += quantum(part_bytes, share.weight);
            self.line().pop_front();
            self.busy.push_back(group);
        }
    }

    /// The group whose turn it is sent so much.
    pub fn took(&mut self, group: GroupId, bytes: u64) {
        if let Some(share) = self.shares.get_mut(&group) {
            share.left_bytes -= bytes as i64;
        }
    }

    /// The group whose turn it is has nothing more to send.
    pub fn rests(&mut self, group: GroupId) {
        let came_fresh = !self.fresh.is_empty();
        let front = self.line().pop_front();
        debug_assert_eq!(front, Some(group), "it was its turn");
        if came_fresh && !self.busy.is_empty() {
            self.busy.push_back(group);
        } else {
            self.shares.remove(&group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const QUANTUM: u64 = 1000;
    const A: GroupId = GroupId(1);
    const B: GroupId = GroupId(2);
    const C: GroupId = GroupId(3);

    /// Who sends what in so many frames; each sends frames of its own size and never ends.
    fn frames(scheduler: &mut LinkScheduler, count: usize, size: impl Fn(GroupId) -> u64) -> Vec<GroupId> {
        let mut sent = Vec::new();
        for _ in 0..count {
            let group = scheduler.next(QUANTUM).expect("somebody's turn");
            scheduler.took(group, size(group));
            sent.push(group);
        }
        sent
    }

    #[test]
    fn large_and_small_frames_get_the_same_bytes() {
        let mut scheduler = LinkScheduler::default();
        [A, B].iter().for_each(|group| scheduler.offer(*group, QUANTUM, LINK_WEIGHT_DEFAULT));
        let size = |group| if group == A { 1000 } else { 10 };
        let sent = frames(&mut scheduler, 101 * 20, size);
        let bytes = |group| sent.iter().filter(|g| **g == group).count() as u64 * size(group);
        assert_eq!((bytes(A), bytes(B)), (20_000, 20_000));
        assert_eq!(sent[..102], [&[A][..], &[B; 100], &[A]].concat(), "a turn lasts until its bytes are sent");
    }

    #[test]
    fn each_gets_bytes_by_its_weight_and_nobody_none() {
        let mut scheduler = LinkScheduler::default();
        [(A, 40), (B, 10), (C, 1)].into_iter().for_each(|(group, weight)| scheduler.offer(group, QUANTUM, weight));
        let sent = frames(&mut scheduler, 51 * 20, |_| 100);
        let count = |group| sent.iter().filter(|sent| **sent == group).count();
        assert_eq!([A, B, C].map(count), [800, 200, 20]);
        scheduler.offer(A, QUANTUM, 10);
        // It has the quantum of its next turn already.
        frames(&mut scheduler, 51, |_| 100);
        let sent = frames(&mut scheduler, 21 * 20, |_| 100);
        assert_eq!(sent.iter().filter(|sent| **sent == A).count(), 200, "then it counts");
    }

    #[test]
    fn what_was_taken_beyond_a_quantum_is_missing_in_the_next() {
        let mut scheduler = LinkScheduler::default();
        [A, B].iter().for_each(|group| scheduler.offer(*group, QUANTUM, LINK_WEIGHT_DEFAULT));
        let sent = frames(&mut scheduler, 4, |group| if group == A { 2500 } else { 1000 });
        assert_eq!(sent, [A, B, B, A]);
    }

    #[test]
    fn who_comes_after_a_rest_goes_first_and_only_once() {
        let mut scheduler = LinkScheduler::default();
        [A, B].iter().for_each(|group| scheduler.offer(*group, QUANTUM, LINK_WEIGHT_DEFAULT));
        frames(&mut scheduler, 3, |_| QUANTUM);
        scheduler.offer(C, QUANTUM, LINK_WEIGHT_DEFAULT);
        scheduler.offer(C, QUANTUM, LINK_WEIGHT_DEFAULT);
        assert_eq!(frames(&mut scheduler, 1, |_| 10), [C]);
        scheduler.rests(C);
        scheduler.offer(C, QUANTUM, LINK_WEIGHT_DEFAULT);
        assert_eq!(frames(&mut scheduler, 4, |_| QUANTUM), [B, C, A, B], "it stands behind those that were there");
        assert_eq!(scheduler.next(QUANTUM), Some(C));
        scheduler.rests(C);
        scheduler.offer(C, QUANTUM, LINK_WEIGHT_DEFAULT);
        assert_eq!(frames(&mut scheduler, 1, |_| QUANTUM), [C], "now it has");
    }

    #[test]
    fn nobody_is_asked_when_all_rest() {
        let mut scheduler = LinkScheduler::default();
        [A, B].iter().for_each(|group| scheduler.offer(*group, QUANTUM, LINK_WEIGHT_DEFAULT));
        for group in [A, B] {
            assert_eq!(scheduler.next(QUANTUM), Some(group));
            scheduler.rests(group);
        }
        assert_eq!(scheduler.next(QUANTUM), None);
        assert!(scheduler.shares.is_empty());
    }
}
