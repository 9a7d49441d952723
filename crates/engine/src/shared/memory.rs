//! The node's memory (rule 22): one pool that all groups borrow from, for what waits in a primary's queue and for what a
//! secondary holds or has promised to take.
//!
//! A shared larder: every group has a shelf of its own that nobody else may use, so each can always go on, if only by a
//! small step; the rest is shared. Of what the others leave free a group may take four fifths, never all: so there is
//! always something for the one that comes next, and the more there are who want much, the less each gets (the dynamic
//! threshold of shared-memory switches, Choudhury and Hahne 1998). A group whose peer is dead slow keeps what it has and
//! gets no more; the others live on their shelves and on what is free.
//!
//! The sum stays within the limit but for a group's *first* write and one part of a resync: an empty queue takes a write
//! of any size, else a write larger than the shelf could wait for ever.

use crate::limits::MEMORY_GROUP_BYTES;

/// What part of the free memory one group may borrow.
const SHARE: (u64, u64) = (4, 5);

#[derive(Debug)]
pub(crate) struct NodeMemory {
    limit_bytes: u64,
    /// Sum of the groups' own shelves.
    reserved_bytes: u64,
    /// Sum of what groups hold beyond their shelves.
    borrowed_bytes: u64,
    held_bytes: u64,
}

/// A group's position in the line for memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryWish {
    /// The pool kept it from something just now.
    wants: bool,
    /// It waits in line.
    waits: bool,
}

impl MemoryWish {
    /// The pool keeps the group from something, or does not.
    pub fn note(&mut self, short: bool) {
        self.wants |= short;
    }

    /// It takes its position in the line; false: it wants nothing, or has one.
    pub fn joins_line(&mut self) -> bool {
        core::mem::take(&mut self.wants) && !core::mem::replace(&mut self.waits, true)
    }

    /// It is its turn.
    pub fn leaves_line(&mut self) {
        self.waits = false;
    }

    pub fn is_short(&self) -> bool {
        self.wants || self.waits
    }
}

/// What a group may always hold: enough for one frame of its window.
pub(crate) fn reserve(window_bytes: u64) -> u64 {
    window_bytes.min(MEMORY_GROUP_BYTES)
}

impl NodeMemory {
    /// `reserves`: of all groups, each from [`reserve`].
    pub fn new(limit_bytes: u64, reserves: impl Iterator<Item = u64>) -> NodeMemory {
        NodeMemory { limit_bytes, reserved_bytes: reserves.sum(), borrowed_bytes: 0, held_bytes: 0 }
    }

    /// A group with this reserve comes.
    pub fn joins(&mut self, reserve: u64) {
        self.reserved_bytes += reserve;
    }

    /// A group with this reserve leaves, which holds `held` until now.
    pub fn leaves(&mut self, reserve: u64, held: u64) {
        self.account(reserve, held, 0);
        self.reserved_bytes -= reserve;
    }

    /// What a group with this reserve, which holds `held` now, may hold in all.
    pub fn allowance(&self, reserve: u64, held: u64) -> u64 {
        let shared = self.limit_bytes.saturating_sub(self.reserved_bytes);
        let others = self.borrowed_bytes - held.saturating_sub(reserve);
        reserve + shared.saturating_sub(others) / SHARE.1 * SHARE.0
    }

    /// The group holds `now` where it held `before`.
    pub fn account(&mut self, reserve: u64, before: u64, now: u64) {
        self.held_bytes = self.held_bytes - before + now;
        self.borrowed_bytes = self.borrowed_bytes - before.saturating_sub(reserve) + now.saturating_sub(reserve);
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: P8, rule 22
    #[test]
    fn the_shelf_is_always_there_and_the_sum_stays_within_the_limit() {
        let (reserve, groups) = (100, 8);
        let mut memory = NodeMemory::new(8 * 100 + 5000, (0..groups).map(|_| reserve));
        let mut held = alloc::vec![0u64; 8];
        // Every group takes all it may, over and over, and nobody gives anything back.
        for _ in 0..50 {
            for mine in &mut held {
                let may = memory.allowance(reserve, *mine);
                assert!(may >= reserve);
                let now = may.max(*mine);
                memory.account(reserve, *mine, now);
                *mine = now;
            }
        }
        assert_eq!(memory.held_bytes(), held.iter().sum::<u64>());
        assert!(memory.held_bytes() <= memory.limit_bytes());
        assert_eq!(held[0], reserve + 4000, "the first one, alone, took four fifths");
    }

    #[test]
    fn what_one_gives_back_another_gets() {
        let mut memory = NodeMemory::new(200 + 1000, [100, 100].into_iter());
        memory.account(100, 0, 900);
        assert_eq!(memory.allowance(100, 0), 100 + 160);
        memory.account(100, 900, 100);
        assert_eq!(memory.allowance(100, 0), 100 + 800);
        assert_eq!(memory.allowance(100, 100), 100 + 800, "its own shelf does not count against it");
    }
}
